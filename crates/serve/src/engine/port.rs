//! A PCI function as the engine holds it: its mailbox, its memories, and the client that is there.

use crate::vfio_user::{Connection, Mailbox, SharedMemory};
use std::sync::Arc;
use tidewater_core::subsystem::Region;
use tidewater_wire::pci::ConfigSpace;

/// A PCI function.
pub struct Port {
    /// What clients want.
    pub mailbox: Mailbox,
    /// The client that is there.
    pub connection: Option<Arc<Connection>>,
    /// The configuration space.
    pub config: ConfigSpace,
    /// BAR2, if there is one: of all of it, only the slice for queues is used from here.
    pub bar2: Option<SharedMemory>,
    /// First byte of the slice for queues in BAR2.
    pub cmb_offset: u64,
    /// BAR4, the persistent memory region, if there is one.
    pub pmr: Option<SharedMemory>,
}

impl Port {
    /// Copies from what a bus address means. False: nothing is there.
    pub fn read(&self, region: Region, address: u64, to: &mut [u8]) -> bool {
        match region {
            Region::Cmb { offset } => {
                self.bar2.as_ref().is_some_and(|bar| bar.mapping().read(self.cmb_offset + offset, to))
            }
            Region::Pmr { offset } => self.pmr.as_ref().is_some_and(|bar| bar.mapping().read(offset, to)),
            Region::Host => self.connection.as_ref().is_some_and(|client| client.read(address, to).is_ok()),
        }
    }

    /// Copies to what a bus address means. False: nothing is there.
    pub fn write(&self, region: Region, address: u64, from: &[u8]) -> bool {
        match region {
            Region::Cmb { offset } => {
                self.bar2.as_ref().is_some_and(|bar| bar.mapping().write(self.cmb_offset + offset, from))
            }
            Region::Pmr { offset } => self.pmr.as_ref().is_some_and(|bar| bar.mapping().write(offset, from)),
            Region::Host => self.connection.as_ref().is_some_and(|client| client.write(address, from).is_ok()),
        }
    }
}
