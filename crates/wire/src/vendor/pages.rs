//! The two kinds of pages in BAR2 through which a host and a device tell each other how far they are.
//!
//! **Consistency.** Every naturally aligned field of up to 64 bits is consistent by itself: the device stores it at
//! once, and a host has to load it at once. Counters only grow, so a host that loads one alone needs no more. Who wants
//! several fields of one moment reads [`ControlPage::sequence`] before and after: the fields between are of one moment
//! if both reads gave the same even value.

use super::{Epoch, LANES_MAX, Mode, Role, TransportStatus};
use crate::layout::layout;

/// Bytes that each control page and each lane page takes in BAR2, so that it can be mapped alone.
pub const PAGE_BYTES: usize = 4096;
/// Where the lanes' pages begin in BAR2: a page of 4 KiB for each.
pub const LANE_PAGES_OFFSET: u64 = 0x1000;
/// Where the lanes' rings begin in BAR2: a megabyte is what a huge page or an IOMMU window is a multiple or a part of.
pub const RINGS_OFFSET: u64 = 1 << 20;

/// Floor that no region uses: a lane with it has credit as soon as bytes are persisted.
pub const NO_FLOOR: u64 = u64::MAX;

layout! {
    /// Counters of one lane, in stream offsets. They never fall, but for two cases: after a secondary cut its log, and
    /// `persisted`, though never below `credit`, while bytes past the credit are being rewritten: these count again
    /// only when the new ones have reached memory.
    pub struct LaneRecord [64] {
        /// End of the bytes that the host may count on: the least of persisted, floor and replicated. The first bytes
        /// of the record, so that a poll costs one read.
        0 credit: u64,
        /// End of the contiguous bytes in this device's persistent memory.
        8 persisted: u64,
        /// Bytes that the host may have outstanding past the credit.
        16 queue_bytes: u32,
        /// Bytes of the lane's window; offset o lives at byte o mod this.
        20 ring_bytes: u32,
        /// Head of the ring in memory: bytes below it are destaged and may be overwritten.
        24 ring_head: u64,
        /// Tail of the ring in memory: end of the highest byte that arrived, gaps below it or not.
        32 ring_tail: u64,
        /// Head of the log on flash: the oldest stream offset that can still be read.
        40 lba_head: u64,
        /// Tail of the log on flash: end of what is destaged and can be read.
        48 lba_tail: u64,
        /// The floor that the device goes by: what a client that attaches finds left open.
        56 floor: u64,
    }
}

layout! {
    /// The page that only the device writes: how a host without commands learns of credit and trouble.
    pub struct ControlPage [4096] {
        fixed 0 magic: u64 = u64::from_le_bytes(*b"TIDECTRL"), " `TIDECTRL` in ASCII.";
        fixed 8 version: u32 = 1, " Version of this layout.";
        /// Function that the page belongs to; 0 is the physical one.
        12 function: u16,
        /// Lanes in use, 1 to 16; 0 when the fast side is not set up.
        14 lanes: u16,
        /// Odd while the device changes several fields that belong together; else even, and another one when anything
        /// on the page has changed.
        16 sequence: u64,
        /// The epoch that this device is in.
        24 epoch: Epoch,
        /// The status register.
        32 status: TransportStatus,
        /// The function's role.
        36 role: Role,
        /// This device's node.
        37 node: u8,
        /// Which counter the host sees.
        38 mode: Mode,
        /// Bit i: the i-th peer of the group is behind by more than the stall time-out.
        40 peers_late: u16,
        /// First logical page of the ring of logical pages.
        48 lba_first: u64,
        /// Number of its logical pages.
        56 lba_count: u64,
        /// Number (it only grows) of the oldest page that is neither trimmed nor overwritten. Page n is at lba_first +
        /// n mod lba_count.
        64 lba_head: u64,
        /// Number of the page that is destaged next.
        72 lba_tail: u64,
        /// One record for each lane; those not in use are zero.
        128 lane: [LaneRecord; LANES_MAX],
    }
    check |page| if usize::from(page.lanes) > LANES_MAX { Err(("lanes", "at most 16")) } else { Ok(()) };
}

impl ControlPage {
    /// Where the record of a lane (0 to 15) begins in the page.
    pub const fn lane_offset(lane: u8) -> usize {
        128 + lane as usize * LaneRecord::SIZE
    }

    /// Where the status register is in the page.
    pub const STATUS_OFFSET: usize = 32;
    /// Where the epoch is in the page.
    pub const EPOCH_OFFSET: usize = 24;
    /// Where the sequence is in the page.
    pub const SEQUENCE_OFFSET: usize = 16;
}

layout! {
    /// The page that only the client of a lane writes, each field with one 64-bit store. Every value is valid: the
    /// device takes a floor that falls (from anything but all ones) and a tail that falls as no change, and a tail past
    /// the credit and queue as a broken stream.
    pub struct LanePage [64] {
        /// End of the prefix of regions that are released; all ones without regions.
        0 floor: u64,
        /// Mapped mode only: end of the bytes that the client has stored into the window and fenced.
        8 tail: u64,
    }
}

impl LanePage {
    /// Where the floor is in the page.
    pub const FLOOR_OFFSET: usize = 0;
    /// Where the tail is in the page.
    pub const TAIL_OFFSET: usize = 8;
}
