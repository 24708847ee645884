//! Vendor specific status codes: status code type 7h (figure 125).

use crate::nvme::Status;

const VENDOR: u8 = 7;

macro_rules! vendor_statuses {
    ($($(#[doc = $doc:literal])* $constant:ident = $sc:literal, $dnr:literal, $name:literal;)*) => {
        $($(#[doc = $doc])* pub const $constant: Status = Status::new(VENDOR, $sc, $dnr);)*

        /// Every status above with its name and what it says, ordered by code.
        pub const NAMED: &[(Status, &str, &str)] = &[$(($constant, $name, concat!($($doc),*)),)*];
    };
}

vendor_statuses! {
    /// The function is not the primary of its group: write at the primary, or promote this one.
    NOT_PRIMARY = 0x01, true, "Not Primary";
    /// The device was deposed: a peer knows a higher epoch than its own. Demote it, so that it rejoins.
    DEPOSED_EPOCH = 0x02, true, "Deposed Epoch";
    /// The command carries an epoch that is not the device's: read the control page, and decide anew.
    STALE_EPOCH = 0x03, true, "Stale Epoch";
    /// There is no room for the bytes now: wait for credit.
    RING_FULL = 0x04, false, "Ring Full";
    /// The request is larger than the ring or the queue can ever take: split it, or set up a larger one.
    REQUEST_TOO_LARGE = 0x05, true, "Request Larger Than Ring";
    /// The lane's stream is broken: its host wrote outside of its credit. Set the lane up anew.
    STREAM_BROKEN = 0x06, true, "Stream Broken";
    /// The bytes lie past credit + queue size, or below what was released: read the credit first.
    BEYOND_CREDIT = 0x07, true, "Beyond Credit";
    /// The time-out of the command passed: the status register says why.
    TIMED_OUT = 0x08, false, "Timed Out";
    /// The function has no such lane.
    LANE_UNKNOWN = 0x09, true, "Lane Unknown";
    /// A block command, or a sanitize, would change logical pages that belong to the ring: only Trim Log releases them.
    RANGE_RESERVED = 0x0A, true, "Range Reserved for Log";
    /// Promotion refused: the epoch is not above every epoch that the group knows.
    PROMOTION_EPOCH_LOW = 0x0B, true, "Promotion Refused, Epoch Not Higher";
    /// Promotion refused: too few replicas accepted the epoch to intersect every set that can acknowledge. More peers,
    /// or force.
    PROMOTION_NO_QUORUM = 0x0C, false, "Promotion Refused, Too Few Replicas";
    /// Promotion refused: the log with the highest epoch could not be pulled in full from the peer that has it.
    PROMOTION_LOG_INCOMPLETE = 0x0D, false, "Promotion Refused, Log Incomplete";
    /// Stored energy does not suffice to destage rings of this size after a power loss: smaller rings, or more energy
    /// in the profile.
    ENERGY_TOO_LITTLE = 0x0E, true, "Stored Energy Too Little";
    /// The fast side of this function is not set up, or the profile has none.
    NOT_SET_UP = 0x0F, true, "Fast Side Not Set Up";
    /// The stream offset is no longer readable (trimmed or overwritten): start at the head that the control page tells.
    OFFSET_RELEASED = 0x10, true, "Offset Released";
    /// The range of logical pages lies outside of the namespace, overlaps another function's, or is smaller than the
    /// rings in memory.
    RANGE_INVALID = 0x11, true, "Range Invalid";
    /// A node is unknown, or comes twice: attach it first.
    NODE_UNKNOWN = 0x12, true, "Node Unknown";
    /// The set-up cannot change while the log holds bytes that are not destaged, or another set-up or promotion runs.
    BUSY = 0x13, false, "Set-up Busy";
    /// The region to be sealed holds bytes that are released, or ends past credit + queue size.
    REGION_INVALID = 0x14, true, "Region Invalid";
    /// The profile has no byte window.
    WINDOW_ABSENT = 0x15, true, "Byte Window Absent";
    /// No entry of the byte window has this name.
    ENTRY_UNKNOWN = 0x16, true, "Entry Unknown";
    /// The entry of the byte window is being pinned, flushed or read: wait for that command.
    ENTRY_BUSY = 0x17, false, "Entry Busy";
    /// An entry of the byte window has this name: flush or unpin it first.
    ENTRY_EXISTS = 0x18, true, "Entry Exists";
    /// The place in the buffer overlaps that of another entry.
    BUFFER_OVERLAP = 0x19, true, "Buffer Overlap";
    /// Another entry has some of the logical blocks.
    LBA_OVERLAP = 0x1A, true, "LBA Overlap";
    /// A range is not whole logical pages, ends past the buffer, the entry or the usable capacity, or is empty.
    WINDOW_RANGE = 0x1B, true, "Window Range Invalid";
    /// The buffer has no gap of this size: flush or unpin an entry first.
    BUFFER_FULL = 0x1C, false, "Buffer Full";
    /// All entries of the mapping table are in use: flush or unpin one first.
    TABLE_FULL = 0x1D, false, "Mapping Table Full";
    /// The command touches logical blocks that are pinned in the byte window: flush or unpin the entry first.
    LBA_PINNED = 0x1E, false, "LBA Pinned";
    /// A Flush of the entry has begun and was cut short: flush it again, so that its blocks are of one moment.
    FLUSH_BEGUN = 0x1F, true, "Flush Begun";
}
