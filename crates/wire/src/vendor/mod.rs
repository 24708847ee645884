//! Everything of the fast side and of the byte window that is specific to this vendor, in one registry: admin and I/O
//! commands, log pages, status codes, the pages in BAR2, and what is left on media (ADR 7, ADR 12).
//!
//! [`REGISTRY`] is the table of opcodes and log pages, [`LAYOUTS`] that of byte layouts, those of [`crate::log`] too,
//! [`status::NAMED`] that of status codes; `docs/reference/vendor.md` is generated from the three. Sections and figures
//! are those of the NVM Express Base Specification, revision 1.4, unless the X-SSD paper is named.

mod command;
mod logs;
mod media;
mod pages;
mod setup;
pub mod status;
#[cfg(test)]
mod tests;
mod types;
mod window;

pub use crate::layout::{Field, Layout, LayoutError};
pub use command::{AdminCommand, IoCommand, NO_TIMEOUT, ReadLogHeader, TAIL, TrimTo};
pub use logs::{BarLayout, FastStatus, LanePlace, LaneStatus, PeerStatus, Peers};
pub use media::{PageHeader, StampVersion};
pub use pages::{ControlPage, LANE_PAGES_OFFSET, LanePage, LaneRecord, NO_FLOOR, PAGE_BYTES, RINGS_OFFSET};
pub use setup::{AttachPeers, FastSetup, PeerAddress, Promote, TransportSetup};
pub use types::{DestagePriority, Epoch, FlowState, Mode, NodeList, OnWrap, Role, TransportStatus};
pub use window::{
    ANYWHERE, DumpEntry, DumpTable, EntryInfo, WINDOW_ENTRIES_MAX, WindowCommand, WindowLogHead, WindowStatus,
};

use crate::log::{
    CopySector, FileBind, FileChange, FileDelta, FilePatch, FileSession, RecordHeader, RingCopyHeader, RingHeader,
    RingLane, RingLanePage, RingPage, RingSlot,
};

/// Lanes of a function, at most: 4 bits on media (ADR 7).
pub const LANES_MAX: usize = 16;
/// Peers of a function, at most.
pub const PEERS_MAX: usize = 15;
/// Devices of a replication group, at most.
pub const NODES_MAX: usize = PEERS_MAX + 1;
/// Bits of a stream offset on media: 16 TiB for each lane (ADR 7).
pub const OFFSET_BITS: u32 = 44;

/// Where data moves, which bits 1:0 of an opcode tell (sections 5 and 6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Direction {
    /// No data moves.
    None = 0,
    /// From the host to the device.
    ToDevice = 1,
    /// From the device to the host.
    ToHost = 2,
}

impl Direction {
    /// The direction in bits 1:0 of an opcode; `None` for both ways at once, which no command here has.
    pub const fn of(opcode: u8) -> Option<Direction> {
        match opcode & 3 {
            0 => Some(Direction::None),
            1 => Some(Direction::ToDevice),
            2 => Some(Direction::ToHost),
            _ => None,
        }
    }
}

/// Which number space a code is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Set {
    /// Opcodes of the admin queue: C0h to FFh.
    Admin,
    /// Opcodes of I/O queues: 80h to FFh.
    Io,
    /// Log page identifiers: C0h to FFh.
    LogPage,
}

/// One line of the registry.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Number space.
    pub set: Set,
    /// Opcode or log page identifier.
    pub code: u8,
    /// Name.
    pub name: &'static str,
    /// Its effect.
    pub doc: &'static str,
    /// Where data moves.
    pub direction: Direction,
    /// Fields of the submission queue entry, besides NDT: where, and what.
    pub dwords: &'static [(&'static str, &'static str)],
    /// Layout of the data, or of its head.
    pub data: Option<&'static Layout>,
}

impl Entry {
    /// Whether it is of the byte window, and not of the fast side.
    pub fn is_of_window(&self) -> bool {
        match self.set {
            Set::Admin => false,
            Set::Io => (opcode::BA_PIN..=opcode::BA_ENTRY_INFO).contains(&self.code),
            Set::LogPage => self.code == log_page::WINDOW,
        }
    }
}

macro_rules! registry {
    ($($module:ident $set:ident $modoc:literal {
        $($(#[doc = $doc:literal])+ $constant:ident = $code:literal, $name:literal, $direction:ident,
            [$($dword:literal => $what:literal),*], $data:expr;)+
    })+) => {
        $(
            #[doc = $modoc]
            pub mod $module {
                $($(#[doc = $doc])+ pub const $constant: u8 = $code;)+
            }
        )+

        /// Every opcode and log page, by number space and code.
        pub const REGISTRY: &[Entry] = &[$($(Entry {
            set: Set::$set,
            code: $code,
            name: $name,
            doc: concat!($($doc),+),
            direction: Direction::$direction,
            dwords: &[$(($dword, $what)),*],
            data: $data,
        },)+)+];
    };
}

registry! {
    admin_opcode Admin "Opcodes of vendor specific admin commands." {
        /// Sets up the rings of a function: lanes, sizes, the ring of logical pages, priority, threshold.
        FAST_SETUP = 0xC1, "Fast Setup", ToDevice, ["12, 15:0" => "function"], Some(&FastSetup::LAYOUT);
        /// Sets up replication: role, node, peers, mode, periods.
        TRANSPORT_SETUP = 0xC5, "Transport Setup", ToDevice, ["12, 15:0" => "function"], Some(&TransportSetup::LAYOUT);
        /// Asks the group to accept a higher epoch with this device as primary. Completes when it is primary, or was
        /// refused.
        PROMOTE = 0xC9, "Promote", ToDevice, ["12, 15:0" => "function"], Some(&Promote::LAYOUT);
        /// Tells how nodes are reached.
        ATTACH_PEERS = 0xCD, "Attach Peers", ToDevice, ["12, 15:0" => "function"], Some(&AttachPeers::LAYOUT);
        /// Makes a primary a secondary or stand-alone.
        DEMOTE = 0xD0, "Demote", None,
            ["12, 15:0" => "function", "12, 23:16" => "role to take: 0 stand-alone, 2 secondary",
             "14, 15" => "epoch that is given up"],
            Option::None;
        /// Releases log on flash, so that its logical pages may be used again.
        TRIM_LOG = 0xD4, "Trim Log", None,
            ["12, 15:0" => "function", "12, 23:16" => "lane, if by stream offset",
             "12, 31:24" => "0: by page number; 1: by stream offset",
             "14, 15" => "first page number, or stream offset, that is kept"],
            Option::None;
    }
    io_opcode Io "Opcodes of vendor specific I/O commands, for carriers without BARs." {
        /// Stores bytes of a stream. Completes when they are in the intake queue: credit tells when they are
        /// persistent.
        APPEND = 0x81, "Append", ToDevice,
            ["2, 3" => "epoch", "12, 7:0" => "lane", "13" => "bytes", "14, 15" => "stream offset"], Option::None;
        /// Reads bytes of a stream that are persistent in this device, from the ring's memory or from flash, and waits
        /// for them if asked to. Replicas need not have them yet.
        READ_LOG = 0x82, "Read Log", ToHost,
            ["2, 3" => "time-out in nanoseconds; 0 does not wait, all ones waits for ever", "12, 7:0" => "lane",
             "13" => "bytes of the stream", "14, 15" => "stream offset; all ones: where the log ends now"],
            Some(&ReadLogHeader::LAYOUT);
        /// Waits until the credit reaches an offset. Double word 0 of the completion: how far it is past it. When the
        /// device stops being primary, or begins another epoch, the wait ends with Deposed Epoch, Not Primary or Stale
        /// Epoch: the bytes may be gone, and others in their place.
        WAIT_CREDIT = 0x84, "Wait for Credit", None,
            ["2, 3" => "time-out in nanoseconds; all ones waits for ever", "12, 7:0" => "lane",
             "14, 15" => "stream offset"], Option::None;
        /// Sets the floor of a lane, as a store into its lane page does.
        WRITE_LANE_PAGE = 0x88, "Write Lane Page", None, ["12, 7:0" => "lane", "14, 15" => "floor"], Option::None;
        /// Reads the control page.
        READ_CONTROL_PAGE = 0x8A, "Read Control Page", ToHost, [], Some(&ControlPage::LAYOUT);
        /// Overwrites a dead writer's region by one void record and zeroes.
        SEAL_REGION = 0x8C, "Seal Region", None,
            ["2, 3" => "epoch", "12, 7:0" => "lane", "13" => "bytes of the region, a multiple of 64",
             "14, 15" => "stream offset of the region, a multiple of 64"], Option::None;
        /// Pins logical blocks into the byte window. Double word 0 of the completion: the entry's first byte in the
        /// window.
        BA_PIN = 0x90, "Pin", None,
            ["2, 3" => "first byte in the buffer, a multiple of the logical page; all ones: the device chooses",
             "12, 15:0" => "entry", "13" => "logical blocks", "14, 15" => "first logical block"], Option::None;
        /// Writes an entry to its logical blocks, and unpins it. Completes when it is on flash.
        BA_FLUSH = 0x94, "Flush Entry", None, ["12, 15:0" => "entry"], Option::None;
        /// Completes when all that was stored into an entry before is safe. With BARs the host needs none: it flushes
        /// its cache lines, fences and loads.
        BA_SYNC = 0x98, "Sync Entry", None, ["12, 15:0" => "entry"], Option::None;
        /// Unpins an entry, and discards what was stored into it.
        BA_UNPIN = 0x9C, "Unpin", None, ["12, 15:0" => "entry"], Option::None;
        /// Stores bytes into an entry, for carriers without BARs.
        BA_WRITE = 0xA1, "Write Entry", ToDevice,
            ["12, 15:0" => "entry", "13" => "bytes", "14, 15" => "first byte, from the start of the entry"],
            Option::None;
        /// Reads bytes of an entry by the device's DMA engine.
        BA_READ_DMA = 0xA2, "Read Entry by DMA", ToHost,
            ["12, 15:0" => "entry", "13" => "bytes", "14, 15" => "first byte, from the start of the entry"],
            Option::None;
        /// Tells where an entry is.
        BA_ENTRY_INFO = 0xA6, "Entry Info", ToHost, ["12, 15:0" => "entry"], Some(&EntryInfo::LAYOUT);
    }
    log_page LogPage "Identifiers of vendor specific log pages." {
        /// How the fast side of a function is doing.
        FAST_STATUS = 0xC0, "Fast Status", ToHost, ["11, 31:16" => "function"], Some(&FastStatus::LAYOUT);
        /// Where the parts of a function's BAR2 are.
        LAYOUT = 0xC1, "Layout", ToHost, ["11, 31:16" => "function"], Some(&BarLayout::LAYOUT);
        /// The mirror flows of a primary.
        PEERS = 0xC2, "Peers", ToHost, ["11, 31:16" => "function"], Some(&Peers::LAYOUT);
        /// Where the byte window is in BAR2, and how it is doing.
        WINDOW = 0xC3, "Window", ToHost, [], Some(&WindowStatus::LAYOUT);
    }
}

/// The opcodes of both command sets.
pub mod opcode {
    pub use super::admin_opcode::*;
    pub use super::io_opcode::*;
}

/// Every byte layout, in the order of the reference.
pub const LAYOUTS: &[&Layout] = &[
    &FastSetup::LAYOUT,
    &TransportSetup::LAYOUT,
    &Promote::LAYOUT,
    &AttachPeers::LAYOUT,
    &PeerAddress::LAYOUT,
    &ReadLogHeader::LAYOUT,
    &FastStatus::LAYOUT,
    &LaneStatus::LAYOUT,
    &BarLayout::LAYOUT,
    &LanePlace::LAYOUT,
    &Peers::LAYOUT,
    &PeerStatus::LAYOUT,
    &ControlPage::LAYOUT,
    &LaneRecord::LAYOUT,
    &LanePage::LAYOUT,
    &RingHeader::LAYOUT,
    &RingPage::LAYOUT,
    &RingLane::LAYOUT,
    &RingLanePage::LAYOUT,
    &RingSlot::LAYOUT,
    &RingCopyHeader::LAYOUT,
    &CopySector::LAYOUT,
    &PageHeader::LAYOUT,
    &RecordHeader::LAYOUT,
    &FileChange::LAYOUT,
    &FileDelta::LAYOUT,
    &FilePatch::LAYOUT,
    &FileBind::LAYOUT,
    &FileSession::LAYOUT,
    &EntryInfo::LAYOUT,
    &WindowStatus::LAYOUT,
    &WindowLogHead::LAYOUT,
    &DumpTable::LAYOUT,
    &DumpEntry::LAYOUT,
];
