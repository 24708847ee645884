//! A PCI function as the engine holds it: its mailbox, its memories, and the client that is there.

use super::dma_messages::DmaMessages;
use super::doorbell_page::DoorbellPage;
use super::pmr::Pmr;
use crate::vfio_user::{Connection, DmaError, GuestMemory, Interrupts, Mailbox};
use std::sync::Arc;
use tidewater_core::subsystem::Region;
use tidewater_ipc::SharedMemory;
use tidewater_wire::pci::{ConfigSpace, command};

/// Whether bytes could be copied.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// They were.
    Done,
    /// Some can be reached by messages to the client alone.
    Far,
    /// Nothing is there, or not for this direction.
    Nothing,
}

impl From<bool> for Reached {
    fn from(is_done: bool) -> Reached {
        if is_done { Reached::Done } else { Reached::Nothing }
    }
}

impl From<Result<(), DmaError>> for Reached {
    #[inline]
    fn from(result: Result<(), DmaError>) -> Reached {
        match result {
            Ok(()) => Reached::Done,
            Err(DmaError::ByMessage { .. }) => Reached::Far,
            Err(_) => Reached::Nothing,
        }
    }
}

/// A PCI function.
pub struct PciFunction {
    /// What clients want.
    pub mailbox: Mailbox,
    /// The client that is there.
    pub connection: Option<Arc<Connection>>,
    /// Its memory.
    pub memory: Arc<GuestMemory>,
    /// Where interrupts go.
    pub interrupts: Arc<Interrupts>,
    /// Carries what only messages reach.
    pub(crate) messages: DmaMessages,
    /// The configuration space.
    pub config: ConfigSpace,
    /// The slice for queues of BAR2, with its first byte in the BAR.
    pub cmb: Option<(Arc<SharedMemory>, u64)>,
    /// The doorbells of BAR0, where the client may map them.
    pub page: Option<DoorbellPage>,
    /// BAR4: the persistent memory region.
    pub pmr: Option<Pmr>,
}

impl PciFunction {
    /// Whether the function may read and write its host's memory: Bus Master Enable, and no power state in which it
    /// does nothing. A kernel that clears the one believes that nothing reaches memory any more that was lent before:
    /// it may be another kernel's.
    #[inline]
    fn is_master(&self) -> bool {
        self.config.command() & command::BUS_MASTER != 0 && self.config.power_state() == 0
    }

    /// Copies from what a bus address means.
    #[inline]
    pub(crate) fn read(&self, region: Region, address: u64, to: &mut [u8]) -> Reached {
        match region {
            Region::Host if !self.is_master() => Reached::Nothing,
            Region::Host => self.memory.read(address, to).into(),
            Region::Cmb { offset } => {
                self.cmb.as_ref().is_some_and(|(memory, from)| memory.read(from + offset, to)).into()
            }
            Region::Pmr { offset } => self.pmr.as_ref().is_some_and(|pmr| pmr.read(offset, to)).into(),
        }
    }

    /// Copies to what a bus address means.
    #[inline]
    pub(crate) fn write(&self, region: Region, address: u64, from: &[u8]) -> Reached {
        match region {
            Region::Host if !self.is_master() => Reached::Nothing,
            Region::Host => self.memory.write(address, from).into(),
            Region::Cmb { offset } => {
                self.cmb.as_ref().is_some_and(|(memory, first)| memory.write(first + offset, from)).into()
            }
            Region::Pmr { offset } => self.pmr.as_ref().is_some_and(|pmr| pmr.write(offset, from)).into(),
        }
    }

    /// Writes a completion queue entry so that a host that polls it never sees half of it.
    #[inline]
    pub(crate) fn write_entry(&self, region: Region, address: u64, entry: &[u8; 16]) -> Reached {
        let (first, second) = entry.split_at(8);
        let word = u64::from_le_bytes(second.try_into().expect("half of 16 bytes"));
        match region {
            Region::Host if !self.is_master() => Reached::Nothing,
            Region::Host => self.memory.enter().write_cqe(address, entry).into(),
            Region::Cmb { offset } => {
                let written = self.cmb.as_ref().is_some_and(|(memory, from)| {
                    memory.write(from + offset, first) && memory.store_u64(from + offset + 8, word)
                });
                written.into()
            }
            Region::Pmr { offset } => {
                let written =
                    self.pmr.as_ref().is_some_and(|pmr| pmr.write(offset, first) && pmr.store_u64(offset + 8, word));
                written.into()
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
