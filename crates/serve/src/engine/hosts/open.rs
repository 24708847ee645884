//! Makes a PCI function: the memories that its host may map, and the function as vfio-user shows it.

use super::dma_messages::{DmaMessages, Done};
use super::doorbell_page::DoorbellPage;
use super::function::PciFunction;
use super::pmr::Pmr;
use crate::engine::{Firmware, ServeError, wrong};
use crate::image::{Image, Memory};
use crate::inbox::Inbox;
use crate::ring::MappedRing;
use crate::vfio_user::{self, DOORBELL_PAGE, Device, Doorbell, GuestMemory, Interrupts, Region, Waker};
use std::sync::Arc;
use tidewater_core::profile::{Access, Doorbells, Interrupts as Kind, Profile};
use tidewater_ipc::SharedMemory;
use tidewater_wire::log::RING_FILE_BAR2;
use tidewater_wire::pci::{ConfigSpace, Options as PciOptions};
use tidewater_wire::vfio_user::{Area, region};

/// A function, as the engine holds it and as its socket serves it.
pub(crate) struct Opened {
    pub(crate) function: PciFunction,
    pub(crate) device: Device,
    pub(crate) slot: vfio_user::Slot,
    /// The doorbell that clients of its mapped ring ring.
    pub(crate) doorbell: Option<Arc<Doorbell>>,
}

/// Shared parts of a device's functions.
pub(crate) struct Opening<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) firmware: &'a Firmware,
    pub(crate) image: &'a Image,
    pub(crate) waker: &'a Arc<Waker>,
    /// Where transfers by messages end.
    pub(crate) transfers: &'a Inbox<Done>,
    /// There are several functions.
    pub(crate) several: bool,
}

impl Opening<'_> {
    /// Makes a function. `serial`: its serial number; `pmr_place`: where its persistent memory region is in the image,
    /// if it has one.
    ///
    /// # Errors
    /// When there is no memory, or the image can't be read.
    pub(crate) fn function(
        &self,
        (number, serial): (u8, u64),
        pmr_place: Option<Memory>,
        ring: Option<&MappedRing>,
    ) -> Result<Opened, ServeError> {
        let &Opening { profile, firmware, image, waker, transfers, several } = self;
        let serve = &profile.serve;
        let bar2 = firmware.subsystem.bar2();
        let msi = serve.interrupts == Kind::Msi;
        let vectors = firmware.subsystem.vectors();
        let config = ConfigSpace::new(&PciOptions {
            bar2_bytes: bar2.size,
            bar4_bytes: serve.pmr_size,
            vectors: if msi { 0 } else { vectors },
            msi,
            multi_function: several,
            link_speed: profile.link.generation as u8,
            link_width: profile.link.lanes as u8,
            serial,
            ..PciOptions::default()
        });
        let mapped = serve.access == Access::Mapped;
        let shared = |name: &str, bytes: u64| SharedMemory::new(name, bytes).map(Arc::new).map_err(wrong);
        let cmb = if bar2.cmb_len > 0 { Some(shared("tidewater-bar2", bar2.size)?) } else { None };
        let pmr = if pmr_place.is_some() { Some(shared("tidewater-pmr", serve.pmr_size)?) } else { None };
        let mut regions: [Region; region::COUNT as usize] = std::array::from_fn(|_| Region::NONE);
        let mut doorbell = None;
        let page = match serve.doorbells {
            Doorbells::Mapped | Doorbells::Polled => {
                Some(shared("tidewater-bar0", DOORBELL_PAGE.offset + DOORBELL_PAGE.size)?)
            }
            Doorbells::Trapped => None,
        };
        regions[0] = match &page {
            Some(memory) => Region::mapped(config.bar_bytes(0), Arc::clone(memory), vec![DOORBELL_PAGE]),
            None => Region::trapped(config.bar_bytes(0)),
        };
        regions[2] = match &cmb {
            _ if let Some(ring) = ring => {
                // A region has one descriptor: the slice for queues is trapped beside a mapped ring.
                let file = ring.file();
                let bell = Arc::new(Doorbell::new(file.doorbells()).map_err(wrong)?);
                doorbell = Some(Arc::clone(&bell));
                let region = Region::of_file(bar2.size, Arc::clone(file.lent()), RING_FILE_BAR2, file.areas());
                Region { doorbell: Some(bell), ..region }
            }
            Some(memory) if mapped => {
                let area = Area { offset: bar2.cmb_offset, size: bar2.cmb_len };
                Region::mapped(bar2.size, Arc::clone(memory), vec![area])
            }
            _ => Region::trapped(bar2.size),
        };
        regions[4] = match &pmr {
            Some(memory) if mapped => {
                let area = Area { offset: 0, size: serve.pmr_size };
                Region::mapped(serve.pmr_size, Arc::clone(memory), vec![area])
            }
            _ => Region::trapped(serve.pmr_size),
        };
        let pmr = match (pmr, pmr_place) {
            (Some(memory), Some(place)) => {
                let loaded = Pmr::load(memory, serve.pmr_size, mapped, image, place);
                Some(loaded.map_err(|_| wrong("the persistent memory region can't be read from the image"))?)
            }
            _ => None,
        };
        regions[region::CONFIG as usize] = Region::trapped(ConfigSpace::SIZE as u64);
        let copy = ring.and_then(MappedRing::copy).map_or(Region::NONE, |copy| {
            let area = copy.area();
            Region::of_file(area.size, Arc::clone(copy.lent()), 0, vec![area])
        });
        let memory = Arc::new(GuestMemory::default());
        let (messages, offered) = if msi { (1, 0) } else { (0, u32::from(vectors)) };
        let interrupts = Arc::new(Interrupts::new(messages, offered));
        let messages = DmaMessages::new(number, Arc::clone(&interrupts), transfers.clone());
        let (slot, mailbox) = vfio_user::mailbox(Arc::clone(waker), vfio_user::DEPTH, vfio_user::PATIENCE);
        let function = PciFunction {
            mailbox,
            connection: None,
            memory: Arc::clone(&memory),
            interrupts: Arc::clone(&interrupts),
            messages,
            config,
            page: page.map(DoorbellPage::new),
            cmb: cmb.map(|memory| (memory, bar2.cmb_offset)),
            pmr,
        };
        Ok(Opened { function, device: Device { regions, copy, memory, interrupts }, slot, doorbell })
    }
}
