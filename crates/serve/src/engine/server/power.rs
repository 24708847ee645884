//! The power of a device: cut by a fault of the control socket, and back after a while.

use super::open::{self, Drive};
use crate::engine::{Engine, Event, Firmware, InputLog, ServeError, Setup, TcpSetup, wrong};
use crate::nbd;
use crate::peers::PeersSetup;
use crate::vfio_user::Waker;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tidewater_core::{Device, Remains};
use tidewater_nand::{Nand, Recorder};

/// A drive without power.
struct PoweredOff {
    until: Instant,
    remains: Remains<Recorder<Nand>>,
    state: Vec<u8>,
    next_version: u64,
    log: Option<InputLog>,
}

/// The power of a device.
#[derive(Default)]
pub(super) struct Power {
    /// What is left of the drive while there is none.
    off: Option<PoweredOff>,
    /// Cuts so far.
    pub(super) cuts: u64,
    /// Where hosts and peers reached the device before a cut.
    tcp_address: Option<SocketAddr>,
    nbd_address: Option<nbd::Address>,
    peers_address: Option<SocketAddr>,
}

impl Power {
    /// When the power comes back; `None`: it is there.
    pub(super) fn off_until(&self) -> Option<Instant> {
        Some(self.off.as_ref()?.until)
    }

    /// The log of inputs of a device that ends without power.
    pub(super) fn take_log(&mut self) -> Option<InputLog> {
        self.off.take()?.log
    }

    /// Cuts the power: the pages that were only in volatile memory are gone, and how many those were.
    ///
    /// # Errors
    /// When what is left could not be stored.
    pub(super) fn cut(&mut self, engine: &mut Engine, firmware: Firmware, until: Instant) -> Result<usize, ServeError> {
        // What recovery is left with is what the image has.
        engine.store_logs_and_rings(&firmware);
        let Firmware { subsystem, mut log, .. } = firmware;
        if let Some(log) = &mut log {
            log.cut(subsystem.device().now());
        }
        self.cuts += 1;
        let state = subsystem.state();
        let next_version = subsystem.next_version();
        engine.power_lost();
        let Engine { hosts, storage, group, .. } = engine;
        if let Some(target) = hosts.target.take() {
            // Where it was, hosts look for it again.
            self.tcp_address = target.addresses().first().copied();
        }
        if let Some(nbd) = hosts.nbd.take() {
            self.nbd_address = Some(nbd.address().clone());
        }
        if let Some(peers) = group.carrier() {
            self.peers_address = peers.address();
        }
        group.set_carrier(None);
        let remains = subsystem.into_device().cut_power();
        let mut changes = Default::default();
        remains.medium().take_changes(&mut changes);
        let payload = &mut storage.payload;
        for page in remains.destaged() {
            let header = page.page.header(page.function, page.number, page.epoch, &page.bytes);
            payload.keep_log(page.lpn, &header, &page.bytes);
        }
        for page in remains.dumped() {
            payload.keep_window(page.lpn, page.version, &page.bytes);
        }
        let stored = payload.apply(&changes);
        let left = payload.image_mut().store_log_remains(remains.log());
        let lost = payload.held();
        let forgotten = payload.power_lost();
        payload.image_mut().window_power_lost();
        let pmrs = hosts.functions.pmrs().try_for_each(|pmr| pmr.power_lost(payload.image()));
        tracing::info!("the power was cut: {lost} pages held only in volatile memory are lost");
        stored.and(left).and(forgotten).and(pmrs).map_err(|_| wrong("the image could not be written"))?;
        self.off = Some(PoweredOff { until, remains, state, next_version, log });
        Ok(lost)
    }

    /// Brings the drive back, with connections where they were.
    ///
    /// # Errors
    /// When that can't be done.
    pub(super) fn restore(
        &mut self,
        engine: &mut Engine,
        (setup, drive): (&Setup, &Drive),
        waker: &Arc<Waker>,
        notify: &mut dyn FnMut(Event),
    ) -> Result<Option<Firmware>, ServeError> {
        let Some(PoweredOff { remains, state, next_version, log, .. }) = self.off.take() else { return Ok(None) };
        let device = Device::power_on(&drive.profile, remains).map_err(wrong)?;
        let mut firmware = drive.firmware(device, (next_version, state), log)?;
        let Engine { cx, hosts, storage, group, rings, .. } = engine;
        open::recover(&mut firmware, &mut storage.payload, notify)?;
        if let Some(log) = &mut firmware.log {
            log.timers = 0; // Recovery follows from the cut.
        }
        firmware.timing = drive.profile.serve.timing;
        if let Some(tcp) = &setup.nvme_tcp {
            let tcp = TcpSetup { address: self.tcp_address.unwrap_or(tcp.address), ..tcp.clone() };
            hosts.target = Some(open::target(&tcp, firmware.subsystem.options())?);
        }
        if let Some(address) = self.nbd_address.as_ref().or(setup.nbd.as_ref()) {
            hosts.nbd = Some(open::nbd(address, firmware.subsystem.options())?);
        }
        if let Some(setup) = &setup.peers {
            let setup = PeersSetup { listen: self.peers_address.or(setup.listen), ..setup.clone() };
            group.set_carrier(Some(open::peers(&setup, storage.image(), &firmware, waker)?));
            storage.repeat_news();
        }
        let fast = firmware.subsystem.device().fast();
        rings.resume(cx, storage, fast, &mut |text| notify(Event::Note(text)));
        engine.tell_of_disk();
        tracing::info!("the power is back");
        Ok(Some(firmware))
    }
}
