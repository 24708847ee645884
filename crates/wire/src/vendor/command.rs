//! The vendor specific commands: from a submission queue entry to what it asks for, and back.
//!
//! They follow the common format for vendor specific commands (section 4.2): double word 10 is the number of double
//! words that move (NDT), 11 is zero (NDM), 12 to 15 are the command's own. Double words 2 and 3, which later revisions
//! give to the command, carry an epoch or a time-out of the I/O commands.

use super::{AttachPeers, Epoch, FastSetup, LANES_MAX, Promote, Role, TransportSetup, opcode};
use crate::log::RECORD_ALIGN;
use crate::nvme::{Sqe, Status};

/// Up to where Trim Log releases the log on flash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TrimTo {
    /// Pages of the ring of logical pages with a number below this.
    Page(u64),
    /// Bytes of one lane below this stream offset; a page is released when all its bytes are, and all pages before it.
    Stream {
        /// Lane, 0 to 15.
        lane: u8,
        /// Stream offset.
        offset: u64,
    },
}

/// A vendor specific admin command whose own fields are valid. `function` is 0 for the physical function; a virtual one
/// may name only itself, which is for the firmware to check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AdminCommand {
    /// Set the rings of a function up; [`FastSetup`] follows as data.
    FastSetup {
        /// Function.
        function: u16,
    },
    /// Set replication up; [`TransportSetup`] follows as data.
    TransportSetup {
        /// Function.
        function: u16,
    },
    /// Become primary with a higher epoch; [`Promote`] follows as data.
    Promote {
        /// Function.
        function: u16,
    },
    /// Tell how nodes are reached; [`AttachPeers`] follows as data.
    AttachPeers {
        /// Function.
        function: u16,
    },
    /// Stop being primary.
    Demote {
        /// Function.
        function: u16,
        /// Secondary or stand-alone.
        to: Role,
        /// The epoch that is given up: the device's own, else Stale Epoch.
        epoch: Epoch,
    },
    /// Release the log on flash, so that its pages may be used again.
    TrimLog {
        /// Function.
        function: u16,
        /// Up to where.
        to: TrimTo,
    },
}

/// Number of double words of a payload.
pub(super) const fn dwords(bytes: usize) -> u32 {
    bytes.div_ceil(4) as u32
}

pub(super) fn checked(sqe: &Sqe, ndt: u32) -> Result<(), Status> {
    let right = sqe.fuse() == 0 && sqe.psdt() == 0 && sqe.cdw10() == ndt && sqe.cdw11() == 0;
    if right { Ok(()) } else { Err(Status::INVALID_FIELD) }
}

pub(super) fn pair(sqe: &Sqe, low: usize) -> u64 {
    u64::from(sqe.dwords()[low]) | u64::from(sqe.dwords()[low + 1]) << 32
}

pub(super) fn with_pair(sqe: Sqe, low: usize, value: u64) -> Sqe {
    sqe.with_dword(low, value as u32).with_dword(low + 1, (value >> 32) as u32)
}

pub(super) fn bare(opcode: u8, cid: u16, ndt: u32) -> Sqe {
    Sqe::default().with_dword(0, u32::from(opcode) | u32::from(cid) << 16).with_dword(10, ndt)
}

/// Bits 23:16 of double word 12.
fn byte2(sqe: &Sqe) -> u8 {
    (sqe.cdw12() >> 16) as u8
}

impl AdminCommand {
    /// Reads an entry. Opcodes that the registry does not have give Invalid Command Opcode.
    pub fn parse(sqe: &Sqe) -> Result<AdminCommand, Status> {
        let function = sqe.cdw12() as u16;
        let command = match sqe.opcode() {
            opcode::FAST_SETUP => AdminCommand::FastSetup { function },
            opcode::TRANSPORT_SETUP => AdminCommand::TransportSetup { function },
            opcode::PROMOTE => AdminCommand::Promote { function },
            opcode::ATTACH_PEERS => AdminCommand::AttachPeers { function },
            opcode::DEMOTE => {
                let to = Role::from_code(byte2(sqe)).filter(|role| *role != Role::Primary);
                AdminCommand::Demote { function, to: to.ok_or(Status::INVALID_FIELD)?, epoch: Epoch(pair(sqe, 14)) }
            }
            opcode::TRIM_LOG => {
                let lane = byte2(sqe);
                let to = match sqe.cdw12() >> 24 {
                    0 => TrimTo::Page(pair(sqe, 14)),
                    1 if usize::from(lane) < LANES_MAX => TrimTo::Stream { lane, offset: pair(sqe, 14) },
                    _ => return Err(Status::INVALID_FIELD),
                };
                AdminCommand::TrimLog { function, to }
            }
            _ => return Err(Status::INVALID_OPCODE),
        };
        checked(sqe, dwords(command.data_bytes()))?;
        Ok(command)
    }

    /// Bytes that the device fetches from the host for this command.
    pub const fn data_bytes(&self) -> usize {
        match self {
            AdminCommand::FastSetup { .. } => FastSetup::SIZE,
            AdminCommand::TransportSetup { .. } => TransportSetup::SIZE,
            AdminCommand::Promote { .. } => Promote::SIZE,
            AdminCommand::AttachPeers { .. } => AttachPeers::SIZE,
            AdminCommand::Demote { .. } | AdminCommand::TrimLog { .. } => 0,
        }
    }

    /// The function that the command is about.
    pub const fn function(&self) -> u16 {
        match *self {
            AdminCommand::FastSetup { function }
            | AdminCommand::TransportSetup { function }
            | AdminCommand::Promote { function }
            | AdminCommand::AttachPeers { function }
            | AdminCommand::Demote { function, .. }
            | AdminCommand::TrimLog { function, .. } => function,
        }
    }

    /// The entry that parses to this command, without its data pointer. Asserts that a lane is below 16 and that a
    /// demotion is not to primary.
    pub fn emit(&self, cid: u16) -> Sqe {
        let ndt = dwords(self.data_bytes());
        let function = u32::from(self.function());
        match *self {
            AdminCommand::FastSetup { .. } => bare(opcode::FAST_SETUP, cid, ndt).with_dword(12, function),
            AdminCommand::TransportSetup { .. } => bare(opcode::TRANSPORT_SETUP, cid, ndt).with_dword(12, function),
            AdminCommand::Promote { .. } => bare(opcode::PROMOTE, cid, ndt).with_dword(12, function),
            AdminCommand::AttachPeers { .. } => bare(opcode::ATTACH_PEERS, cid, ndt).with_dword(12, function),
            AdminCommand::Demote { to, epoch, .. } => {
                assert!(to != Role::Primary, "a demotion leads to secondary or stand-alone");
                let sqe = bare(opcode::DEMOTE, cid, ndt).with_dword(12, function | (to as u32) << 16);
                with_pair(sqe, 14, epoch.0)
            }
            AdminCommand::TrimLog { to, .. } => {
                let (by, lane, point) = match to {
                    TrimTo::Page(page) => (0, 0, page),
                    TrimTo::Stream { lane, offset } => (1, lane, offset),
                };
                assert!(usize::from(lane) < LANES_MAX, "a function has lanes 0 to 15");
                let sqe = bare(opcode::TRIM_LOG, cid, ndt).with_dword(12, function | u32::from(lane) << 16 | by << 24);
                with_pair(sqe, 14, point)
            }
        }
    }
}

/// Waits for ever, as a time-out.
pub const NO_TIMEOUT: u64 = u64::MAX;
/// Reads where the log ends now, as a stream offset of Read Log.
pub const TAIL: u64 = u64::MAX;

/// A vendor specific I/O command whose own fields are valid: the fast side for carriers without BARs. The function is
/// that of the controller. Whether the lane is in use, the epoch the device's and the offset in range is for the
/// firmware to check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IoCommand {
    /// Store bytes of a stream. It completes when the bytes are in the intake queue: credit tells when they are
    /// persistent.
    Append {
        /// Lane, 0 to 15.
        lane: u8,
        /// The writer's epoch: the device's own, else Stale Epoch.
        epoch: Epoch,
        /// Stream offset of the first byte.
        offset: u64,
        /// Bytes, at least 1; NDT is rounded up to whole double words.
        bytes: u32,
    },
    /// Read bytes of a stream that are persistent in the device, in the ring's memory or on flash: a
    /// [`super::ReadLogHeader`], then bytes.
    ReadLog {
        /// Lane, 0 to 15.
        lane: u8,
        /// Stream offset of the first byte, or [`TAIL`].
        offset: u64,
        /// Bytes of the stream that are wanted, at least 1; NDT counts the header too.
        bytes: u32,
        /// Nanoseconds to wait until all of them are there: 0 does not block, [`NO_TIMEOUT`] waits for ever. When the
        /// time has passed, what is there comes back, and the status is success.
        wait_ns: u64,
    },
    /// Wait until the credit reaches an offset. Double word 0 of the completion: how far it is past it, at most 2^32 -
    /// 1.
    WaitCredit {
        /// Lane, 0 to 15.
        lane: u8,
        /// Stream offset.
        offset: u64,
        /// Nanoseconds after which the command fails with Timed Out; [`NO_TIMEOUT`] waits for ever, or until the
        /// device's epoch is over.
        timeout_ns: u64,
    },
    /// Set the floor of a lane, as a store into its lane page does.
    WriteLanePage {
        /// Lane, 0 to 15.
        lane: u8,
        /// End of the regions that are released.
        floor: u64,
    },
    /// Read the control page.
    ReadControlPage,
    /// Overwrite a dead writer's region by one void record and zeroes.
    SealRegion {
        /// Lane, 0 to 15.
        lane: u8,
        /// The sealer's epoch: the device's own, else Stale Epoch.
        epoch: Epoch,
        /// Stream offset of the region's first byte: a multiple of 64.
        offset: u64,
        /// Bytes of the region: a multiple of 64, at least 64.
        bytes: u32,
    },
}

impl IoCommand {
    /// Reads an entry. Opcodes that the registry does not have give Invalid Command Opcode.
    #[inline]
    pub fn parse(sqe: &Sqe) -> Result<IoCommand, Status> {
        let lane = sqe.cdw12() as u8;
        let bytes = sqe.cdw13();
        let (carried, offset) = (pair(sqe, 2), pair(sqe, 14));
        let command = match sqe.opcode() {
            opcode::APPEND => IoCommand::Append { lane, epoch: Epoch(carried), offset, bytes },
            opcode::READ_LOG => IoCommand::ReadLog { lane, offset, bytes, wait_ns: carried },
            opcode::WAIT_CREDIT => IoCommand::WaitCredit { lane, offset, timeout_ns: carried },
            opcode::WRITE_LANE_PAGE => IoCommand::WriteLanePage { lane, floor: offset },
            opcode::READ_CONTROL_PAGE => IoCommand::ReadControlPage,
            opcode::SEAL_REGION => IoCommand::SealRegion { lane, epoch: Epoch(carried), offset, bytes },
            _ => return Err(Status::INVALID_OPCODE),
        };
        let valid = match command {
            IoCommand::ReadControlPage => true,
            _ if usize::from(lane) >= LANES_MAX => false,
            IoCommand::Append { bytes, .. } => bytes > 0,
            IoCommand::ReadLog { bytes, .. } => bytes > 0 && bytes <= u32::MAX - super::ReadLogHeader::SIZE as u32,
            IoCommand::SealRegion { offset, bytes, .. } => {
                bytes > 0 && u64::from(bytes).is_multiple_of(RECORD_ALIGN) && offset.is_multiple_of(RECORD_ALIGN)
            }
            IoCommand::WaitCredit { .. } | IoCommand::WriteLanePage { .. } => true,
        };
        if !valid {
            return Err(Status::INVALID_FIELD);
        }
        checked(sqe, dwords(command.data_bytes() as usize))?;
        Ok(command)
    }

    /// Bytes that move between host and device.
    pub const fn data_bytes(&self) -> u64 {
        match *self {
            IoCommand::Append { bytes, .. } => bytes as u64,
            IoCommand::ReadLog { bytes, .. } => super::ReadLogHeader::SIZE as u64 + bytes as u64,
            IoCommand::ReadControlPage => super::ControlPage::SIZE as u64,
            IoCommand::WaitCredit { .. } | IoCommand::WriteLanePage { .. } | IoCommand::SealRegion { .. } => 0,
        }
    }

    /// The entry that parses to this command if its ranges are kept, without its data pointer.
    pub fn emit(&self, cid: u16) -> Sqe {
        let ndt = dwords(self.data_bytes() as usize);
        let sqe = |opcode, lane: u8, carried, bytes, offset| {
            let sqe = bare(opcode, cid, ndt).with_dword(12, u32::from(lane)).with_dword(13, bytes);
            with_pair(with_pair(sqe, 2, carried), 14, offset)
        };
        match *self {
            IoCommand::Append { lane, epoch, offset, bytes } => sqe(opcode::APPEND, lane, epoch.0, bytes, offset),
            IoCommand::ReadLog { lane, offset, bytes, wait_ns } => sqe(opcode::READ_LOG, lane, wait_ns, bytes, offset),
            IoCommand::WaitCredit { lane, offset, timeout_ns } => sqe(opcode::WAIT_CREDIT, lane, timeout_ns, 0, offset),
            IoCommand::WriteLanePage { lane, floor } => sqe(opcode::WRITE_LANE_PAGE, lane, 0, 0, floor),
            IoCommand::ReadControlPage => bare(opcode::READ_CONTROL_PAGE, cid, ndt),
            IoCommand::SealRegion { lane, epoch, offset, bytes } => {
                sqe(opcode::SEAL_REGION, lane, epoch.0, bytes, offset)
            }
        }
    }
}

crate::layout::layout! {
    /// First bytes of what Read Log returns; the stream's bytes follow.
    pub struct ReadLogHeader [32] {
        fixed 0 version: u32 = 1, " Version of this layout.";
        /// Bytes of the stream that follow; fewer than were asked for when the time-out passed.
        4 bytes: u32,
        /// Stream offset of the first of them.
        8 offset: u64,
        /// The epoch that the device is in.
        16 epoch: Epoch,
        /// End of what can be read of the lane now.
        24 tail: u64,
    }
}
