//! NVMe over Fabrics: commands that set up controllers and queues, and the discovery log page.
//!
//! Sections are those of the NVM Express over Fabrics specification, revision 1.1 (22 October 2019).

mod command;
mod connect;
mod discovery;
mod sgl;

pub use command::{Connect, Fabrics, PropertyGet, PropertySet, Response};
pub use connect::{ConnectData, Nqn, Parameter};
pub use discovery::{AddressFamily, DiscoveryEntry, DiscoveryHeader, SubsystemKind};
pub use sgl::DataPointer;

use crate::nvme::Status;

/// The opcode of every Fabrics command, on admin and I/O queues (section 3).
pub const OPCODE: u8 = 0x7F;
/// The name of every discovery subsystem (section 1.5.2).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// The log page that tells which subsystems there are (section 5).
pub const DISCOVERY_LOG_PAGE: u8 = 0x70;
/// The controller identifier by which a host asks for any controller (section 3.3: dynamic controller model).
pub const CONTROLLER_ANY: u16 = 0xFFFF;
/// Bytes of an NVMe Qualified Name, at most, without the NUL behind it.
pub const NQN_BYTES_MAX: usize = 223;

/// Types of Fabrics commands (figure 15).
pub mod kind {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTHENTICATION_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTHENTICATION_RECEIVE: u8 = 0x06;
    /// Disconnect.
    pub const DISCONNECT: u8 = 0x08;
}

/// Properties: registers of a controller over fabrics, at the same offsets as over PCIe (figure 12).
pub mod property {
    /// Controller Capabilities: 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version: 4 bytes.
    pub const VS: u32 = 0x08;
    /// Controller Configuration: 4 bytes, may be set.
    pub const CC: u32 = 0x14;
    /// Controller Status: 4 bytes.
    pub const CSTS: u32 = 0x1C;
    /// NVM Subsystem Reset: 4 bytes, may be set.
    pub const NSSR: u32 = 0x20;
    /// Every property with its length.
    pub const ALL: &[(u32, u8)] = &[(CAP, 8), (VS, 4), (CC, 4), (CSTS, 4), (NSSR, 4)];
}

/// Status codes of Fabrics commands (figure 17): command specific, so other commands use these numbers for something
/// else.
pub mod status {
    use super::Status;

    /// 80h: the record format of Connect or Disconnect is not supported.
    pub const INCOMPATIBLE_FORMAT: Status = Status::new(1, 0x80, true);
    /// 81h: the controller is in use, or none is free.
    pub const CONTROLLER_BUSY: Status = Status::new(1, 0x81, false);
    /// 82h: a parameter of Connect is wrong; the response says which.
    pub const INVALID_PARAMETERS: Status = Status::new(1, 0x82, true);
    /// 83h: the host should look at the discovery log again.
    pub const RESTART_DISCOVERY: Status = Status::new(1, 0x83, true);
    /// 84h: this host may not use this subsystem.
    pub const INVALID_HOST: Status = Status::new(1, 0x84, true);
    /// 85h: Disconnect of an admin queue.
    pub const INVALID_QUEUE_TYPE: Status = Status::new(1, 0x85, true);
    /// 90h: the discovery log changed while it was read.
    pub const DISCOVER_RESTART: Status = Status::new(1, 0x90, true);
    /// 91h: the host must authenticate first.
    pub const AUTHENTICATION_REQUIRED: Status = Status::new(1, 0x91, true);

    /// Every status above with its name in the specification.
    pub const NAMED: &[(Status, &str)] = &[
        (INCOMPATIBLE_FORMAT, "Connect Incompatible Format"),
        (CONTROLLER_BUSY, "Connect Controller Busy"),
        (INVALID_PARAMETERS, "Connect Invalid Parameters"),
        (RESTART_DISCOVERY, "Connect Restart Discovery"),
        (INVALID_HOST, "Connect Invalid Host"),
        (INVALID_QUEUE_TYPE, "Invalid Queue Type"),
        (DISCOVER_RESTART, "Discover Restart"),
        (AUTHENTICATION_REQUIRED, "Authentication Required"),
    ];

    /// The name of a Fabrics command's status.
    pub fn name(status: Status) -> Option<&'static str> {
        let own = NAMED.iter().find(|(known, _)| known.same_code(status)).map(|&(_, name)| name);
        own.or_else(|| status.name())
    }
}
