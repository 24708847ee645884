//! vfio-user: a PCI function over a UNIX socket.
//!
//! Sections are those of the protocol's specification ("vfio-user Protocol Specification", version 0.9, kept by QEMU
//! and by libvfio-user); structures that it takes from Linux are those of `linux/vfio.h`. All numbers are
//! little-endian: the protocol takes the host's order, and this project's hosts are little-endian.
//!
//! A payload that is longer than its structure is accepted, because some clients pad their messages.

mod interrupts;
mod regions;
#[cfg(test)]
mod tests;

pub use interrupts::{IrqAction, IrqData, IrqIndex, IrqInfo, SetIrqs, irq_info_flag};
pub use regions::{
    Area, IoEventFd, RegionAccess, RegionInfo, RegionIoFds, RegionWrite, WriteMulti, areas_to_bytes, parse_areas,
    region, region_info_flag,
};

use crate::layout::{Part, layout};

/// Major version of the protocol that this describes.
pub const MAJOR: u16 = 0;
/// Minor version of the protocol that this describes.
pub const MINOR: u16 = 1;

/// Bytes that one data transfer may carry if nothing was agreed ("Version", `max_data_xfer_size`).
pub const TRANSFER_DEFAULT: u32 = 1 << 20;

/// Messages (section "Commands").
pub mod command {
    /// First message of a client: version and capabilities.
    pub const VERSION: u16 = 1;
    /// The client lends memory.
    pub const DMA_MAP: u16 = 2;
    /// The client takes memory back.
    pub const DMA_UNMAP: u16 = 3;
    /// Properties of the device.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// Properties of a region.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// Descriptors that stand for writes to a region.
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    /// Properties of the interrupts of a kind.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Where interrupts go.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Bytes of a region.
    pub const REGION_READ: u16 = 9;
    /// Bytes for a region.
    pub const REGION_WRITE: u16 = 10;
    /// From the server: bytes of the client's memory.
    pub const DMA_READ: u16 = 11;
    /// From the server: bytes for the client's memory.
    pub const DMA_WRITE: u16 = 12;
    /// The function is reset.
    pub const DEVICE_RESET: u16 = 13;
    /// Dirty pages, of older revisions.
    pub const USER_DIRTY_PAGES: u16 = 14;
    /// Several small region writes.
    pub const REGION_WRITE_MULTI: u16 = 15;
    /// Features of a device, migration among them.
    pub const DEVICE_FEATURE: u16 = 16;
    /// State of a device that migrates.
    pub const MIG_DATA_READ: u16 = 17;
    /// State for a device that migrates.
    pub const MIG_DATA_WRITE: u16 = 18;
}

layout! {
    /// Header of every message (section "Header").
    pub struct Header [16] {
        /// Chosen by the sender of a command, and repeated in its reply.
        0 id: u16,
        /// The command: one of [`command`], or any other number.
        2 command: u16,
        /// Bytes of the message, with this header.
        4 size: u32,
        /// Bits of the header's flags.
        8 flags: u32,
        /// The errno of a reply with the error bit.
        12 error: u32,
    }
}

impl Header {
    /// Bits 3:0 of the flags: the type of the message.
    pub const TYPE_MASK: u32 = 0xF;
    /// A command.
    pub const TYPE_COMMAND: u32 = 0;
    /// A reply.
    pub const TYPE_REPLY: u32 = 1;
    /// Of a command: no reply is wanted.
    pub const NO_REPLY: u32 = 1 << 4;
    /// Of a reply: the command failed.
    pub const ERROR: u32 = 1 << 5;

    /// The header of a command with `payload` bytes behind it. Asserts that they fit a message.
    pub fn command(id: u16, command: u16, payload: usize) -> Header {
        let size = u32::try_from(Header::SIZE + payload).expect("a message is below 4 GiB");
        Header { id, command, size, flags: Header::TYPE_COMMAND, error: 0 }
    }

    /// The header of the reply to this, with `payload` bytes behind it.
    pub fn reply(&self, payload: usize) -> Header {
        Header { flags: Header::TYPE_REPLY, ..Header::command(self.id, self.command, payload) }
    }

    /// The whole reply to this that says that it failed.
    pub fn failure(&self, errno: u32) -> Header {
        Header { flags: Header::TYPE_REPLY | Header::ERROR, error: errno, ..Header::command(self.id, self.command, 0) }
    }

    /// A header from its bytes. Every pattern is valid.
    pub fn from_bytes(bytes: &[u8; Header::SIZE]) -> Header {
        Header::parse(bytes).expect("every pattern is a header")
    }

    /// Whether it is a command.
    pub fn is_command(&self) -> bool {
        self.flags & Header::TYPE_MASK == Header::TYPE_COMMAND
    }

    /// Whether it is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & Header::TYPE_MASK == Header::TYPE_REPLY
    }

    /// Whether it is a reply that says that the command failed.
    pub fn is_failure(&self) -> bool {
        self.is_reply() && self.flags & Header::ERROR != 0
    }

    /// Whether it is a command whose sender waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.is_command() && self.flags & Header::NO_REPLY == 0
    }
}

/// The payload of VERSION, of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version<'a> {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Capabilities as JSON, up to the first zero byte or the end; may be empty.
    pub data: &'a [u8],
}

impl<'a> Version<'a> {
    /// From a payload; `None`: too short.
    pub fn parse(payload: &'a [u8]) -> Option<Version<'a>> {
        let (head, data) = payload.split_at_checked(4)?;
        let [major, minor] = Part::get(head).ok()?;
        let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
        Some(Version { major, minor, data: &data[..end] })
    }

    /// The payload, with the zero byte that ends the JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(5 + self.data.len());
        bytes.extend_from_slice(&self.major.to_le_bytes());
        bytes.extend_from_slice(&self.minor.to_le_bytes());
        bytes.extend_from_slice(self.data);
        bytes.push(0);
        bytes
    }
}

layout! {
    /// The payload of DMA_MAP.
    pub struct DmaMap [32] {
        /// Bytes of this structure.
        0 argsz: u32,
        /// [`DmaMap::READABLE`] and others.
        4 flags: u32,
        /// Where the range starts in the file of the descriptor.
        8 offset: u64,
        /// Bus address.
        16 address: u64,
        /// Bytes.
        24 size: u64,
    }
}

impl DmaMap {
    /// The device may read the range.
    pub const READABLE: u32 = 1;
    /// The device may write the range.
    pub const WRITABLE: u32 = 1 << 1;
    /// The file is to be mapped (libvfio-user).
    pub const MAP: u32 = 1 << 2;
    /// The file is to be read and written (libvfio-user).
    pub const FILE_IO: u32 = 1 << 3;
}

layout! {
    /// The payload of DMA_UNMAP and of its reply.
    pub struct DmaUnmap [24] {
        /// Room for the reply.
        0 argsz: u32,
        /// [`DmaUnmap::DIRTY_BITMAP`], [`DmaUnmap::ALL`].
        4 flags: u32,
        /// Bus address.
        8 address: u64,
        /// Bytes.
        16 size: u64,
    }
}

impl DmaUnmap {
    /// A bitmap of dirty pages is wanted (VFIO_DMA_UNMAP_FLAG_GET_DIRTY_BITMAP).
    pub const DIRTY_BITMAP: u32 = 1;
    /// Everything is taken back; address and size are 0 (VFIO_DMA_UNMAP_FLAG_ALL).
    pub const ALL: u32 = 1 << 1;
}

layout! {
    /// The payload of DEVICE_GET_INFO and of its reply.
    pub struct DeviceInfo [16] {
        /// Of a command: room for the reply; of a reply: room that it needs.
        0 argsz: u32,
        /// [`DeviceInfo::RESET`], [`DeviceInfo::PCI`].
        4 flags: u32,
        /// Regions.
        8 regions: u32,
        /// Kinds of interrupts.
        12 irqs: u32,
    }
}

impl DeviceInfo {
    /// DEVICE_RESET is supported.
    pub const RESET: u32 = 1;
    /// It is a PCI function.
    pub const PCI: u32 = 1 << 1;
}

layout! {
    /// Head of DMA_READ, DMA_WRITE and their replies; data follows where there is any.
    pub struct DmaAccess [16] {
        /// Bus address.
        0 address: u64,
        /// Bytes. Replies to DMA_WRITE of some clients have only the lower half.
        8 count: u64,
    }
}

impl DmaAccess {
    /// From a payload, and the data behind it; `None`: too short for either the structure or, `with_data`, for its
    /// count.
    pub fn split(payload: &[u8], with_data: bool) -> Option<(DmaAccess, &[u8])> {
        let access = DmaAccess::parse(payload).ok()?;
        let data = payload.get(DmaAccess::SIZE..)?;
        let data = if with_data { data.get(..usize::try_from(access.count).ok()?)? } else { &[] };
        Some((access, data))
    }
}
