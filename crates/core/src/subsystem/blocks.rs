//! Block commands on their way to the device and back: blocks of the device, units, and the data of each.

use super::context::Context;
use super::faults::Faults;
use super::interface::{LogPiece, Output, Slot, Unit};
use super::namespaces::{Extent, Namespaces};
use super::slots::{Command, Slots, Stage, Work};
use crate::content::Whereabouts;
use crate::host::Request;
use tidewater_wire::nvme::{self, DSM_DEALLOCATE, DsmRange, FUA, Kind, LIMITED_RETRY, Status, WRITE_ZEROES_DEALLOCATE};
use tidewater_wire::vendor::ReadLogHeader;

/// Blocks that one command of the device may address.
const BLOCKS_MAX: u64 = 1 << 16;

impl Slots {
    /// A block command that its namespace allows, on these blocks of the device. Returns the bytes of its data, and
    /// whether they come from the host.
    ///
    /// # Errors
    /// Invalid Field in Command, or a status that was injected.
    #[inline]
    pub(super) fn admit(
        &mut self,
        slot: Slot,
        parsed: &nvme::Command,
        place: Extent,
        write_cache: bool,
        faults: &mut Faults,
    ) -> Result<(u32, bool), Status> {
        // Blocks of 4 KiB may be more blocks of the device than a command of it tells: it gets several, one behind the
        // other.
        let part = place.blocks.min(BLOCKS_MAX);
        if parsed.kind.transfers() && part < place.blocks {
            return Err(Status::INVALID_FIELD);
        }
        let (start, bytes) = (place.first << self.block_shift, place.blocks << self.block_shift);
        let command = &mut self[slot];
        command.first_block = place.first;
        command.blocks = part as u32;
        command.more = (place.blocks - part) as u32;
        command.start = start;
        command.bytes = bytes;
        if !faults.on_blocks.is_empty()
            && let Some(status) = faults.status(parsed.nsid, parsed.first_block, parsed.blocks.into())
        {
            return Err(status);
        }
        command.durable = match parsed.kind {
            Kind::Flush => true,
            Kind::Write | Kind::WriteZeroes { .. } => parsed.fua || !write_cache,
            Kind::DatasetManagement { deallocate, .. } => deallocate && !write_cache,
            Kind::Read | Kind::Compare | Kind::Verify => false,
        };
        let (work, len, is_source) = match parsed.kind {
            Kind::Read => (Work::Read, bytes as u32, false),
            Kind::Write => (Work::Write, bytes as u32, true),
            Kind::Compare => (Work::Compare, bytes as u32, true),
            Kind::Flush => (Work::Flush, 0, false),
            Kind::Verify => (Work::Verify, 0, false),
            Kind::WriteZeroes { .. } => (Work::WriteZeroes, 0, false),
            Kind::DatasetManagement { ranges, .. } => (Work::Ranges, u32::from(ranges) * DsmRange::SIZE as u32, true),
        };
        command.work = work;
        Ok((len, is_source))
    }

    /// The request to the device for a command.
    #[inline]
    pub(super) fn request(&mut self, slot: Slot, nsid: u32) -> Request {
        let command = &mut self[slot];
        command.stage = Stage::Device;
        let Command { first_block, blocks, durable, work, .. } = *command;
        let cdw12 = command.sqe.cdw12();
        let kind = match work {
            Work::Read | Work::Compare => Kind::Read,
            Work::Write => Kind::Write,
            Work::Verify => Kind::Verify,
            Work::WriteZeroes => Kind::WriteZeroes { deallocate: cdw12 & WRITE_ZEROES_DEALLOCATE != 0 },
            Work::Flush => Kind::Flush,
            Work::Ranges => Kind::DatasetManagement {
                ranges: (command.len / DsmRange::SIZE as u32) as u16,
                deallocate: command.sqe.cdw11() & DSM_DEALLOCATE != 0,
                integral_read: false,
                integral_write: false,
            },
            work => unreachable!("{work:?} is not for the device"),
        };
        let modifies = matches!(work, Work::Write | Work::WriteZeroes);
        if modifies {
            self[slot].version = self.take_version();
        }
        let parsed = match kind {
            Kind::Flush | Kind::DatasetManagement { .. } => {
                nvme::Command { kind, nsid, first_block: 0, blocks: 0, fua: false, limited_retry: false }
            }
            _ => {
                let (fua, limited_retry) = (modifies && durable || cdw12 & FUA != 0, cdw12 & LIMITED_RETRY != 0);
                nvme::Command { kind, nsid, first_block, blocks, fua, limited_retry }
            }
        };
        let command = &mut self[slot];
        let ranges = (work == Work::Ranges).then(|| std::mem::take(&mut command.ranges));
        Request { cid: slot.0, tag: command.version, command: parsed, ranges }
    }

    /// The ranges of Dataset Management have come.
    ///
    /// # Errors
    /// As for [`Namespaces::find`]; LBA Out of Range; Invalid Field in Command.
    pub(super) fn take_ranges(&mut self, slot: Slot, namespaces: &Namespaces, bytes: &[u8]) -> Result<(), Status> {
        let command = &mut self[slot];
        let namespace = namespaces.find(command.sqe.nsid(), command.function)?;
        let parse = |bytes| {
            let DsmRange { attributes, blocks, first_block } = DsmRange::from_bytes(bytes);
            let extent = namespace.locate(first_block, blocks.into())?;
            // Blocks of 4 KiB on blocks of 512 bytes may be more than 32 bits count.
            let blocks = u32::try_from(extent.blocks).map_err(|_| Status::INVALID_FIELD)?;
            Ok(DsmRange { attributes, blocks, first_block: extent.first })
        };
        command.ranges = bytes.as_chunks::<{ DsmRange::SIZE }>().0.iter().map(parse).collect::<Result<_, Status>>()?;
        Ok(())
    }

    /// Which bytes of a unit a command is about.
    #[inline]
    fn unit(&self, command: &Command, lpn: u32) -> Unit {
        let size = 1u64 << self.unit_shift;
        let unit = u64::from(lpn) << self.unit_shift;
        let bytes = u64::from(command.blocks) << self.block_shift;
        let from = command.start.max(unit);
        let to = (command.start + bytes).min(unit + size);
        Unit { lpn, skip: (from - unit) as u32, len: (to - from) as u32, at: (from - command.start) as u32 }
    }

    #[inline]
    pub(super) fn on_unit_read(&mut self, cx: &mut Context, slot: Slot, lpn: u32, place: Whereabouts) {
        let command = &self[slot];
        if command.orphan {
            return;
        }
        let (unit, compare) = (self.unit(command, lpn), command.work == Work::Compare);
        if let Some(Output::Data {
            slot: of,
            unit: before,
            place: Whereabouts::Flash { at, page, unit: first, .. },
            ..
        }) = cx.outputs.back_mut()
            && *of == slot
            && before.at + before.len == unit.at
            && let Whereabouts::Flash { at: here, page: this, unit: next, .. } = place
            && (*at, *page) == (here, this)
            && *first + (lpn - before.lpn) == next
        {
            before.len += unit.len; // It follows on the same page: both move at once.
            return;
        }
        self[slot].moving += 1;
        cx.say(Output::Data { slot, unit, place, compare });
    }

    #[inline]
    pub(super) fn on_unit_taken(&mut self, cx: &mut Context, slot: Slot, lpn: u32, previous: Whereabouts) {
        let command = &self[slot];
        let (unit, version, zeroes) = (self.unit(command, lpn), command.version, command.work == Work::WriteZeroes);
        cx.say(Output::Taken { slot, unit, version, zeroes, previous });
    }

    /// A command of more blocks than one of the device tells goes on behind those that are done.
    #[cold]
    pub(super) fn advance(&mut self, slot: Slot) {
        let block_shift = self.block_shift;
        let command = &mut self[slot];
        let part = command.more.min(BLOCKS_MAX as u32);
        command.first_block += u64::from(command.blocks);
        command.start = command.first_block << block_shift;
        command.blocks = part;
        command.more -= part;
    }

    /// Bytes of log for a command whose reply follows.
    pub(super) fn on_log_piece(&mut self, cx: &mut Context, slot: Slot, piece: LogPiece) {
        let command = &mut self[slot];
        if command.orphan {
            return;
        }
        if command.moving == 0 {
            command.start = piece.offset; // The first piece.
        }
        command.moving += 1;
        let at = ReadLogHeader::SIZE as u32 + (piece.offset - command.start) as u32;
        cx.say(Output::Send { slot, at, bytes: Box::default(), log: Some(piece) });
    }
}
