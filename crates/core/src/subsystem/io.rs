//! I/O commands: from an entry to the device and back.

use super::namespaces::Extent;
use super::pointers::Found;
use super::slots::{Command, Stage, Work};
use super::{MoveError, Output, Slot, StoreFault, Subsystem, Unit};
use crate::content::Whereabouts;
use crate::device;
use crate::host::{Bounds, Request, parse_without_pointer};
use tidewater_nand::Medium;
use tidewater_wire::nvme::{
    self, DSM_DEALLOCATE, DsmRange, FUA, Kind, LIMITED_RETRY, NSID_ALL, Status, WRITE_ZEROES_DEALLOCATE,
};

/// Blocks that one command of the device may address.
const BLOCKS_MAX: u64 = 1 << 16;
/// From this opcode on, I/O commands are vendor specific.
pub(super) const VENDOR: u8 = 0x80;

impl<M: Medium> Subsystem<M> {
    /// An entry of an I/O queue.
    #[inline]
    pub(super) fn begin_io(&mut self, slot: Slot) {
        self.state.smart.started(self.now);
        let sqe = &self.slots[slot].sqe;
        if sqe.opcode() >= VENDOR {
            return self.begin_vendor_io(slot);
        }
        match parse_without_pointer(sqe).and_then(|command| self.admit(slot, &command)) {
            Ok(()) => {}
            Err(status) => self.finish(slot, status),
        }
    }

    /// A well-formed command: it is checked against its namespace, and its data is looked for.
    #[inline]
    fn admit(&mut self, slot: Slot, parsed: &nvme::Command) -> Result<(), Status> {
        let function = self.slots[slot].function;
        let modifies = parsed.kind.modifies();
        self.state.sanitize.permits_io()?;
        let is_flush_of_all = parsed.nsid == NSID_ALL && parsed.kind == Kind::Flush;
        let mut place = Extent { first: 0, blocks: 0 };
        if !is_flush_of_all {
            let namespace = self.state.namespaces.find(parsed.nsid, function)?;
            let device = self.device.host().namespace();
            let bounds = Bounds {
                blocks: namespace.blocks,
                writable_blocks: namespace.writable_blocks(device.writable_blocks),
                block_shift: namespace.block_shift,
                read_only: namespace.is_protected() || self.read_only,
                transfer_max: self.transfer_max,
            };
            bounds.check(parsed)?;
            place = namespace.locate(parsed.first_block, parsed.blocks.into())?;
        }
        if !self.erases.is_empty() && self.is_formatting(parsed.nsid) {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        // Blocks of 4 KiB may be more blocks of the device than a command of it tells: it gets several, one behind the
        // other.
        let part = place.blocks.min(BLOCKS_MAX);
        if parsed.kind.transfers() && part < place.blocks {
            return Err(Status::INVALID_FIELD);
        }
        let write_cache = self.state.features.write_cache(function);
        let command = &mut self.slots[slot];
        command.first_block = place.first;
        command.blocks = part as u32;
        command.more = (place.blocks - part) as u32;
        command.start = place.first << self.block_shift;
        let bytes = place.blocks << self.block_shift;
        command.bytes = bytes;
        if self.faults.any_on_blocks()
            && let Some(status) = self.faults.status(parsed.nsid, parsed.first_block, parsed.blocks.into())
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
        if modifies {
            self.state.sanitize.written();
        }
        if len == 0 {
            self.submit(slot);
            return Ok(());
        }
        match self.find_data(slot, len, is_source)? {
            Found::All => self.with_data_place(slot),
            Found::Later => {}
        }
        Ok(())
    }

    /// It is known where a command's data is.
    #[inline]
    pub(super) fn with_data_place(&mut self, slot: Slot) {
        let command = &mut self.slots[slot];
        let len = command.len;
        match command.work {
            Work::Read => self.submit(slot),
            Work::Write | Work::Compare => {
                command.stage = Stage::Fetch;
                command.moving = 1;
                self.outputs.push_back(Output::Fetch { slot, len });
            }
            Work::Vendor if len == 0 || !command.from_host => self.hand_to_fast_side(slot, &[]),
            Work::Ranges | Work::Vendor | Work::AdminIn => {
                command.stage = Stage::Gather;
                self.outputs.push_back(Output::Gather { slot, len });
            }
            Work::AdminOut => self.send_data(slot),
            Work::HostMemory | Work::Admin | Work::Verify | Work::WriteZeroes | Work::Flush => {
                unreachable!("{:?} has no data", command.work)
            }
        }
    }

    /// Data of the firmware goes to the host.
    pub(super) fn send_data(&mut self, slot: Slot) {
        let command = &mut self.slots[slot];
        command.stage = Stage::Send;
        command.moving += 1;
        let bytes = std::mem::take(&mut command.data);
        self.outputs.push_back(Output::Send { slot, at: 0, bytes, log: None });
    }

    /// Hands a command to the device.
    #[inline]
    pub(super) fn submit(&mut self, slot: Slot) {
        let command = &mut self.slots[slot];
        command.stage = Stage::Device;
        let Command { first_block, blocks, durable, .. } = *command;
        let cdw12 = command.sqe.cdw12();
        let kind = match command.work {
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
        let modifies = matches!(command.work, Work::Write | Work::WriteZeroes);
        if modifies {
            command.version = self.next_version;
            self.next_version += 1;
        }
        let nsid = self.device.host().namespace().id;
        let parsed = match kind {
            Kind::Flush | Kind::DatasetManagement { .. } => {
                nvme::Command { kind, nsid, first_block: 0, blocks: 0, fua: false, limited_retry: false }
            }
            _ => {
                let (fua, limited_retry) = (modifies && durable || cdw12 & FUA != 0, cdw12 & LIMITED_RETRY != 0);
                nvme::Command { kind, nsid, first_block, blocks, fua, limited_retry }
            }
        };
        let ranges = (command.work == Work::Ranges).then(|| std::mem::take(&mut command.ranges));
        let request = Request { cid: slot.0, tag: command.version, command: parsed, ranges };
        let taken = self.device.handle(self.now, device::Input::Begin(request));
        debug_assert!(taken.is_ok(), "only Submit is refused");
        self.take_from_device();
    }

    /// What the device has to say.
    #[inline]
    pub(super) fn take_from_device(&mut self) {
        while let Some(output) = self.device.poll() {
            match output {
                device::Output::Complete(completion) => {
                    self.on_device_done(Slot(completion.cqe.cid), completion.cqe.status);
                }
                device::Output::Data { cid, lpn, place, .. } => self.on_unit_read(Slot(cid), lpn, place),
                device::Output::Taken { cid, lpn, previous, .. } => self.on_unit_taken(Slot(cid), lpn, previous),
                other => self.take_from_fast_side(other),
            }
        }
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
    fn on_unit_read(&mut self, slot: Slot, lpn: u32, place: Whereabouts) {
        let command = &self.slots[slot];
        if command.orphan {
            return;
        }
        let (unit, compare) = (self.unit(command, lpn), command.work == Work::Compare);
        if let Some(Output::Data {
            slot: of,
            unit: before,
            place: Whereabouts::Flash { at, page, unit: first, .. },
            ..
        }) = self.outputs.back_mut()
            && *of == slot
            && before.at + before.len == unit.at
            && let Whereabouts::Flash { at: here, page: this, unit: next, .. } = place
            && (*at, *page) == (here, this)
            && *first + (lpn - before.lpn) == next
        {
            before.len += unit.len; // It follows on the same page: both move at once.
            return;
        }
        self.slots[slot].moving += 1;
        self.outputs.push_back(Output::Data { slot, unit, place, compare });
    }

    #[inline]
    fn on_unit_taken(&mut self, slot: Slot, lpn: u32, previous: Whereabouts) {
        let command = &self.slots[slot];
        let (unit, version, zeroes) = (self.unit(command, lpn), command.version, command.work == Work::WriteZeroes);
        self.outputs.push_back(Output::Taken { slot, unit, version, zeroes, previous });
    }

    /// The device has done its part.
    #[inline]
    fn on_device_done(&mut self, slot: Slot, status: Status) {
        let command = &mut self.slots[slot];
        if command.status.is_success() {
            command.status = status;
        }
        command.stage = Stage::Done;
        if command.moving == 0 {
            self.after_device(slot);
        }
    }

    /// A command of more blocks than one of the device tells goes on behind those that are done.
    #[cold]
    fn go_on_behind(&mut self, slot: Slot) {
        let command = &mut self.slots[slot];
        let part = command.more.min(BLOCKS_MAX as u32);
        command.first_block += u64::from(command.blocks);
        command.start = command.first_block << self.block_shift;
        command.blocks = part;
        command.more -= part;
        self.submit(slot);
    }

    /// The device has done its part, and no data is on its way.
    #[inline]
    fn after_device(&mut self, slot: Slot) {
        let command = &mut self.slots[slot];
        let status = command.status;
        if command.more > 0 && status.is_success() && !command.orphan {
            return self.go_on_behind(slot);
        }
        if command.durable && status.is_success() && !command.orphan {
            command.stage = Stage::Sync;
            let purge = command.purge;
            self.outputs.push_back(if purge { Output::Purge { slot } } else { Output::Sync { slot } });
        } else {
            self.finish(slot, status);
        }
    }

    /// Data has been moved, or not.
    #[inline]
    pub(super) fn on_moved(&mut self, slot: Slot, result: Result<(), MoveError>) {
        let command = &mut self.slots[slot];
        assert!(command.moving > 0, "slot {}: nothing was to be moved", slot.0);
        command.moving -= 1;
        if let Err(error) = result
            && command.status.is_success()
        {
            command.status = match error {
                MoveError::Host => Status::DATA_TRANSFER_ERROR,
                MoveError::Medium => Status::UNRECOVERED_READ_ERROR,
                MoveError::Differs => Status::COMPARE_FAILURE,
            };
        }
        let status = command.status;
        if command.stage == Stage::Fetch {
            self.end_transfer(slot);
        }
        let command = &mut self.slots[slot];
        match command.stage {
            Stage::Fetch if command.orphan || !status.is_success() => self.finish(slot, status),
            Stage::Fetch => self.submit(slot),
            Stage::Done if command.moving == 0 => self.after_device(slot),
            Stage::Send if command.moving == 0 => self.finish(slot, status),
            _ => {}
        }
    }

    /// What was stored is safe, or can't be made so.
    pub(super) fn on_synced(&mut self, slot: Slot, result: Result<(), StoreFault>) {
        assert!(self.slots[slot].stage == Stage::Sync, "slot {}: nothing was to be made safe", slot.0);
        if std::mem::take(&mut self.slots[slot].sync_again) && result.is_ok() && !self.slots[slot].orphan {
            return self.outputs.push_back(Output::Sync { slot });
        }
        let status = match result {
            Ok(()) => self.slots[slot].status,
            // Blocks that are forgotten, and the state of the subsystem, are stored too.
            Err(StoreFault) => {
                self.on_store_failed();
                Status::WRITE_FAULT
            }
        };
        self.finish(slot, status);
    }

    /// The backing store has failed: from now on the drive only reads.
    #[cold]
    pub(super) fn on_store_failed(&mut self) {
        self.read_only = true;
        self.look_for_end_of_life();
    }

    /// Data for the firmware has come.
    pub(super) fn on_gathered(&mut self, slot: Slot, bytes: Option<&[u8]>) {
        let command = &mut self.slots[slot];
        assert!(command.stage == Stage::Gather, "slot {}: no data was asked for", slot.0);
        command.stage = Stage::Begun;
        self.end_transfer(slot);
        let command = &mut self.slots[slot];
        let Some(bytes) = bytes else { return self.finish(slot, Status::DATA_TRANSFER_ERROR) };
        assert_eq!(bytes.len(), command.len as usize, "as many bytes as were asked for");
        if command.orphan {
            return self.finish(slot, Status::ABORT_REQUESTED);
        }
        match command.work {
            Work::Ranges => self.with_ranges(slot, bytes),
            Work::Vendor => self.hand_to_fast_side(slot, bytes),
            Work::AdminIn => self.with_admin_data(slot, bytes),
            work => unreachable!("{work:?} gathers nothing"),
        }
    }

    /// A list read has been answered.
    pub(super) fn on_list(&mut self, slot: Slot, bytes: Option<&[u8]>) {
        let command = &mut self.slots[slot];
        assert!(command.stage == Stage::Pointers, "slot {}: no list was asked for", slot.0);
        command.stage = Stage::Begun;
        let Some(bytes) = bytes else { return self.finish(slot, Status::DATA_TRANSFER_ERROR) };
        if command.orphan {
            return self.finish(slot, Status::ABORT_REQUESTED);
        }
        if command.work == Work::HostMemory {
            return self.with_host_memory(slot, bytes);
        }
        match self.go_on_finding(slot, bytes) {
            Ok(Found::All) => self.with_data_place(slot),
            Ok(Found::Later) => {}
            Err(status) => self.finish(slot, status),
        }
    }
}
