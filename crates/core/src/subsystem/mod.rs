//! An NVM subsystem: the drive with its controllers, as a host sees it (NVM Express Base Specification 1.4, section 1.6).
//!
//! Registers, queues in the host's memory, admin commands and namespaces live here; what blocks mean is [`crate::Device`]'s.
pub mod input_log;
mod interface;

pub use interface::*;
