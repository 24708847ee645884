//! NVM Express: registers, queue entries, status codes, admin commands and what they return, and the NVM command set.
//!
//! Sections and figures are those of the NVM Express Base Specification, revision 1.4 (10 June 2019).
//!
//! [`Sqe`] is a raw view of 64 bytes; [`Command`] holds only what is valid; [`Command::parse`] leads from one to the
//! other, and [`AdminCommand::parse`] does for the admin queue.

mod admin;
mod admin_emit;
#[cfg(test)]
mod admin_tests;
mod command;
mod cqe;
mod event;
pub mod feature;
pub mod identify;
pub mod log;
pub mod register;
mod sgl;
mod sqe;
mod status;
mod text;

pub use admin::{
    AdminCommand, Cns, CreateCq, CreateSq, Data, FormatNvm, GetFeatures, GetLogPage, Identify, PAGE, QueuePriority,
    Sanitize, SanitizeAction, SecureErase, Select, SelfTestAction, SetFeatures, admin_opcode,
};
pub use command::{Command, DsmRange, Kind};
pub use cqe::Cqe;
pub use event::{Event, EventType, doorbell_buffer};
pub use identify::NamespaceManagement;
pub use log::log_page;
pub use sgl::{Address, SglDescriptor};
pub use sqe::{DSM_DEALLOCATE, FUA, LIMITED_RETRY, Sqe, WRITE_ZEROES_DEALLOCATE};
pub use status::Status;
pub use text::{Nqn, Text};

/// The namespace identifier that means every namespace (section 6.1.2).
pub const NSID_ALL: u32 = 0xFFFF_FFFF;

/// Ranges in one Dataset Management command, at most (section 6.7: an 8-bit number that counts from 0).
pub const DSM_RANGES_MAX: usize = 256;

/// Opcodes of the NVM command set (figure 346) that the firmware executes; all others get Invalid Command Opcode.
pub mod opcode {
    /// Flush (section 6.8).
    pub const FLUSH: u8 = 0x00;
    /// Write (section 6.15).
    pub const WRITE: u8 = 0x01;
    /// Read (section 6.9).
    pub const READ: u8 = 0x02;
    /// Compare (section 6.6).
    pub const COMPARE: u8 = 0x05;
    /// Write Zeroes (section 6.17).
    pub const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management (section 6.7).
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    /// Verify (section 6.14).
    pub const VERIFY: u8 = 0x0C;

    /// Every opcode above with its name in the specification, in ascending order.
    pub const NAMED: &[(u8, &str)] = &[
        (FLUSH, "Flush"),
        (WRITE, "Write"),
        (READ, "Read"),
        (COMPARE, "Compare"),
        (WRITE_ZEROES, "Write Zeroes"),
        (DATASET_MANAGEMENT, "Dataset Management"),
        (VERIFY, "Verify"),
    ];
}
