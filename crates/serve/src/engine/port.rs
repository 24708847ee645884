//! A PCI function as the engine holds it: its mailbox, its memories, and the client that is there.

use super::pmr::Pmr;
use super::rings::MappedRing;
use crate::vfio_user::{Connection, DmaError, Doorbell, GuestMemory, Interrupts, Mailbox, SharedMemory};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewater_core::subsystem::Region;
use tidewater_wire::pci::{ConfigSpace, command};

/// How long a client may take to answer for memory that only messages reach. All functions wait meanwhile, so that it is waited for once.
const MESSAGE_TIME: Duration = Duration::from_secs(1);

/// A PCI function.
pub struct Port {
    /// What clients want.
    pub mailbox: Mailbox,
    /// The client that is there.
    pub connection: Option<Arc<Connection>>,
    /// Its memory.
    pub memory: Arc<GuestMemory>,
    /// Where interrupts go.
    pub interrupts: Arc<Interrupts>,
    /// The configuration space.
    pub config: ConfigSpace,
    /// The slice for queues of BAR2, with its first byte in the BAR.
    pub cmb: Option<(Arc<SharedMemory>, u64)>,
    /// BAR4: the persistent memory region.
    pub pmr: Option<Pmr>,
    /// The mapped ring of its fast side.
    pub ring: Option<MappedRing>,
    /// What its clients ring: the device's thread hears it itself.
    pub doorbell: Option<Arc<Doorbell>>,
}

impl Port {
    /// Whether the function may read and write its host's memory: Bus Master Enable, and no power state in which it does nothing. A kernel
    /// that clears the one believes that nothing reaches memory any more that was lent before: it may be another kernel's.
    #[inline]
    fn is_master(&self) -> bool {
        self.config.command() & command::BUS_MASTER != 0 && self.config.power_state() == 0
    }

    /// Asks the client for its memory. One that lets the time pass is disconnected. False: it has not answered, or refused.
    #[cold]
    fn ask(&self, access: impl FnOnce(&Connection) -> Result<(), DmaError>) -> bool {
        let Some(client) = &self.connection else { return false };
        let begin = Instant::now();
        let is_done = access(client).is_ok();
        if !is_done && begin.elapsed() >= MESSAGE_TIME {
            client.close();
        }
        is_done
    }

    /// Copies from what a bus address means. False: nothing is there.
    #[inline]
    pub fn read(&self, region: Region, address: u64, to: &mut [u8]) -> bool {
        match region {
            Region::Host if !self.is_master() => false,
            Region::Host => match self.memory.read(address, to) {
                Ok(()) => true,
                Err(DmaError::ByMessage { .. }) => self.ask(|client| client.read(address, to, MESSAGE_TIME)),
                Err(_) => false,
            },
            Region::Cmb { offset } => self.cmb.as_ref().is_some_and(|(memory, from)| memory.read(from + offset, to)),
            Region::Pmr { offset } => self.pmr.as_ref().is_some_and(|pmr| pmr.read(offset, to)),
        }
    }

    /// Copies to what a bus address means. False: nothing is there.
    #[inline]
    pub fn write(&self, region: Region, address: u64, from: &[u8]) -> bool {
        match region {
            Region::Host if !self.is_master() => false,
            Region::Host => match self.memory.write(address, from) {
                Ok(()) => true,
                Err(DmaError::ByMessage { .. }) => self.ask(|client| client.write(address, from, MESSAGE_TIME)),
                Err(_) => false,
            },
            Region::Cmb { offset } => {
                self.cmb.as_ref().is_some_and(|(memory, first)| memory.write(first + offset, from))
            }
            Region::Pmr { offset } => self.pmr.as_ref().is_some_and(|pmr| pmr.write(offset, from)),
        }
    }

    /// Writes a completion queue entry so that a host that polls it never sees half of it. False: nothing is there.
    #[inline]
    pub fn write_entry(&self, region: Region, address: u64, entry: &[u8; 16]) -> bool {
        let (first, second) = entry.split_at(8);
        let word = u64::from_le_bytes(second.try_into().expect("half of 16 bytes"));
        match region {
            Region::Host if !self.is_master() => false,
            Region::Host => match self.memory.enter().write_cqe(address, entry) {
                Err(DmaError::ByMessage { .. }) => self.write(region, address, entry),
                written => written.is_ok(),
            },
            Region::Cmb { offset } => self.cmb.as_ref().is_some_and(|(memory, from)| {
                memory.write(from + offset, first) && memory.store_u64(from + offset + 8, word)
            }),
            Region::Pmr { offset } => {
                self.pmr.as_ref().is_some_and(|pmr| pmr.write(offset, first) && pmr.store_u64(offset + 8, word))
            }
        }
    }

    /// A double word of the host's memory, at once.
    #[inline]
    pub fn load_u32(&self, address: u64) -> Option<u32> {
        if self.is_master() { self.memory.enter().load_u32(address).ok() } else { None }
    }

    /// Stores a double word in the host's memory, at once. False: it can't be done so.
    pub fn store_u32(&self, address: u64, value: u32) -> bool {
        self.is_master() && self.memory.enter().store_u32(address, value).is_ok()
    }
}
