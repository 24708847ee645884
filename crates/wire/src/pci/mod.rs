//! PCI: the configuration space of an NVMe function.
//!
//! Sections are those of the PCI Express Base Specification, revision 4.0 (PCIe), of PCI Local Bus 3.0 (PCI), and of
//! the PCI Bus Power Management Interface Specification 1.2 (PM), unless NVM Express is named.

mod config;

pub use config::{Change, ConfigSpace, Options, command, offset};

/// Vendor ID. Tidewater has none that PCI-SIG assigned: 1234h is what virtual devices without one customarily use, and
/// no driver attaches quirks to it. Drivers find an NVMe controller by its class code.
pub const VENDOR_ID: u16 = 0x1234;

/// Device ID under [`VENDOR_ID`], chosen freely: "TW".
pub const DEVICE_ID: u16 = 0x5457;

/// Class code: mass storage controller, non-volatile memory controller, NVM Express (NVM Express 1.4, section 2.1.5).
pub const CLASS_NVME: u32 = 0x01_0802;
