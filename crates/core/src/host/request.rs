//! Commands behind their queues: an entry is parsed here, and checked against a namespace here, whichever front end has
//! brought it.

use tidewater_wire::nvme::{Command, DsmRange, Sqe, Status};
use tidewater_wire::vendor::status::RANGE_RESERVED;

/// A command that a front end has parsed and checked: it needs a slot, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The front end's number for it, which comes back with its completion. No two under way have the same.
    pub cid: u16,
    /// The content that comes with it ([`super::Submission::tag`]).
    pub tag: u64,
    /// What it does, in blocks of the device.
    pub command: Command,
    /// The ranges of Dataset Management, within the device.
    pub ranges: Option<Box<[DsmRange]>>,
}

/// The command of an entry.
///
/// # Errors
/// As [`Command::parse`].
#[inline(always)]
pub fn parse(sqe: &Sqe) -> Result<Command, Status> {
    Command::parse(sqe)
}

/// As `parse`, for a front end that moves the data itself: the way that the entry says is not looked at.
///
/// # Errors
/// As [`Command::parse`].
#[inline]
pub fn parse_without_pointer(sqe: &Sqe) -> Result<Command, Status> {
    parse(&without_pointer(sqe))
}

/// An entry without the way its data moves: PSDT (double word 0) is clear.
pub fn without_pointer(sqe: &Sqe) -> Sqe {
    const PSDT: u32 = 3 << 14;
    sqe.with_dword(0, sqe.dwords()[0] & !PSDT)
}

/// What commands of a namespace keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Its logical blocks.
    pub blocks: u64,
    /// Of these, the first that commands may change.
    pub writable_blocks: u64,
    /// Bytes of a block as a power of two.
    pub block_shift: u8,
    /// Nothing of it may change.
    pub read_only: bool,
    /// Bytes that one command may transfer.
    pub transfer_max: u64,
}

impl Bounds {
    /// Checks a command of the namespace, but for the ranges of Dataset Management.
    ///
    /// # Errors
    /// - Invalid Field in Command: a transfer longer than `transfer_max`. Write Zeroes and Verify transfer nothing, so
    ///   the limit does not bind them.
    /// - Namespace is Write Protected: a command that changes a read-only namespace.
    /// - LBA Out of Range: a block past the end.
    /// - Range Reserved (vendor specific): a command that changes a block of an LBA ring.
    #[inline(always)]
    pub fn check(&self, command: &Command) -> Result<(), Status> {
        let kind = command.kind;
        if kind.transfers() && u64::from(command.blocks) << self.block_shift > self.transfer_max {
            return Err(Status::INVALID_FIELD);
        }
        if self.read_only && kind.modifies() {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        check_range(command.first_block, command.blocks.into(), self.blocks)?;
        if kind.modifies() && !within(command.first_block, command.blocks.into(), self.writable_blocks) {
            return Err(RANGE_RESERVED);
        }
        Ok(())
    }

    /// Checks `count` ranges of Dataset Management.
    ///
    /// # Errors
    /// Data Transfer Error: the front end could not bring all of them. Else as [`Bounds::check`].
    pub fn check_ranges(&self, ranges: &[DsmRange], count: u16) -> Result<(), Status> {
        let ranges = ranges.get(..usize::from(count)).ok_or(Status::DATA_TRANSFER_ERROR)?;
        for range in ranges {
            check_range(range.first_block, range.blocks.into(), self.blocks)?;
        }
        let is_writable = |range: &DsmRange| within(range.first_block, range.blocks.into(), self.writable_blocks);
        if ranges.iter().all(is_writable) { Ok(()) } else { Err(RANGE_RESERVED) }
    }
}

/// Whether the blocks exist; correct for every value, also where their sum passes 64 bits.
#[inline]
fn within(first: u64, count: u64, blocks: u64) -> bool {
    first <= blocks && count <= blocks - first
}

/// Checks that `count` blocks from `first` on are among `blocks`.
///
/// # Errors
/// LBA Out of Range.
#[inline]
pub fn check_range(first: u64, count: u64, blocks: u64) -> Result<(), Status> {
    if within(first, count, blocks) { Ok(()) } else { Err(Status::LBA_OUT_OF_RANGE) }
}
