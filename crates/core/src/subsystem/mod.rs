//! An NVM subsystem: the drive with its controllers, as a host sees it (NVM Express Base Specification 1.4, section 1.6).
//!
//! Registers, queues in the host's memory, admin commands and namespaces live here; what blocks mean is [`crate::Device`]'s.
//!
//! Sans-IO, as the device is: [`Subsystem::handle`] takes what happens outside and the time, [`Subsystem::poll`] gives what
//! there is to do, [`Subsystem::deadline`] tells when it wants to be woken. It never holds payload.
pub mod features;
#[cfg(test)]
mod features_tests;
pub mod identify;
mod interface;
pub mod logs;
pub mod namespaces;
#[cfg(test)]
mod namespaces_tests;
mod options;
pub mod sanitize;
pub mod saved;
pub mod self_test;
pub mod smart;

pub use interface::*;
pub use options::{Bar2, Options, Region, ShadowDoorbells};

use crate::device::{self, Device, SetupError};
use crate::drive::Machine;
use std::collections::VecDeque;
use std::convert::Infallible;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand};
use tidewater_wire::nvme::Sqe;

/// A command in a slot, for whoever carries its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The controller.
    pub function: u8,
    /// The submission queue; 0 is the admin queue.
    pub queue: u16,
    /// The entry, as it was read.
    pub sqe: Sqe,
}

/// A drive with its controllers.
#[derive(Clone, Debug)]
pub struct Subsystem<M: Medium = Nand> {
    device: Device<M>,
    options: Options,
    outputs: VecDeque<Output>,
    now: Instant,
}

impl<M: Medium> Subsystem<M> {
    /// Controllers in front of a device that keeps stamps and payload.
    ///
    /// # Errors
    /// When the options contradict each other or the device, or the saved state is not one of this device.
    pub fn new(device: Device<M>, options: Options) -> Result<Subsystem<M>, SetupError> {
        options.check(&device)?;
        let now = device.now();
        Ok(Subsystem { outputs: VecDeque::with_capacity(1_024), now, device, options })
    }

    /// Tells the subsystem what happened. `now` must not run backwards, nor past a [`Subsystem::deadline`] that was not kept.
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        assert!(now >= self.now, "time runs backwards: {now:?} after {:?}", self.now);
        self.now = now;
        if let Input::Timer = input {
            let taken = self.device.handle(now, device::Input::Timer);
            debug_assert!(taken.is_ok());
        }
    }

    /// The next thing that there is to do.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether [`Subsystem::poll`] has something.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    /// When it wants to be woken.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.device.deadline()
    }

    /// What the host reads of a controller's BAR0 (or by Property Get): `len` bytes, 1 to 8, little-endian, at any offset.
    pub fn register(&self, function: u8, offset: u32, len: u8) -> u64 {
        let _ = (function, offset, len);
        0
    }

    /// What the host reads of a function's BAR2 outside of the slice for queues: `len` bytes, 1 to 8.
    pub fn load(&self, function: u8, address: u64, len: u8) -> u64 {
        self.device.load(function.into(), address, len.into())
    }

    /// Where a command's data is at the host, from [`Output::Fetch`], [`Output::Gather`], [`Output::Data`] or
    /// [`Output::Send`] until it is answered.
    pub fn segments(&self, slot: Slot) -> Segments<'_> {
        let _ = slot;
        Segments::Connection
    }

    /// The command of a slot, from its first output until its [`Output::Complete`].
    pub fn command(&self, slot: Slot) -> Option<Outstanding> {
        let _ = slot;
        None
    }

    /// Slots, the subsystem's own included: [`Output::Sync`] may name any, all others only those of commands.
    pub fn slots(&self) -> u16 {
        self.options.slots + options::OWN_SLOTS
    }

    /// Where a function's shadow doorbells are, if the host has told (Doorbell Buffer Config).
    pub fn shadow_doorbells(&self, function: u8) -> Option<ShadowDoorbells> {
        let _ = function;
        None
    }

    /// What bus addresses of a function mean: its controller memory buffer and persistent memory region lie where the host
    /// has put them (CMBMSC, PMRMSC), and everything else is the host's memory.
    pub fn region(&self, function: u8, address: u64, len: u32) -> Region {
        let _ = (function, address, len);
        Region::Host
    }

    /// What is where in every function's BAR2.
    pub fn bar2(&self) -> Bar2 {
        Bar2::of(&self.device, &self.options)
    }

    /// The drive.
    pub fn device(&self) -> &Device<M> {
        &self.device
    }

    /// The drive, for what no host does.
    pub fn device_mut(&mut self) -> &mut Device<M> {
        &mut self.device
    }

    /// The drive alone, for a power cut: what the controllers held is gone.
    pub fn into_device(self) -> Device<M> {
        self.device
    }

    /// What of the subsystem's own state outlives a power cut: namespaces, saved features, health. After each
    /// [`Output::SaveState`], and at a clean end, it is stored beside the drive's content, for [`Options::state`].
    pub fn state(&self) -> Vec<u8> {
        Vec::new()
    }
}

impl<M: Medium> Machine for Subsystem<M> {
    type Input<'a> = Input<'a>;
    type Output = Output;
    type Refused = Infallible;

    #[inline]
    fn handle(&mut self, now: Instant, input: Input<'_>) -> Result<(), Infallible> {
        Subsystem::handle(self, now, input);
        Ok(())
    }

    #[inline]
    fn on_deadline(&mut self, now: Instant) {
        Subsystem::handle(self, now, Input::Timer);
    }

    #[inline]
    fn poll(&mut self) -> Option<Output> {
        Subsystem::poll(self)
    }

    #[inline]
    fn has_output(&self) -> bool {
        Subsystem::has_output(self)
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        Subsystem::deadline(self)
    }
}
