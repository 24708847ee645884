//! I/O commands: from an entry to the device and back.

use super::Subsystem;
use crate::device;
use crate::host::{Bounds, parse_without_pointer};
use crate::subsystem::interface::{MoveError, Output, Slot, StoreFault};
use crate::subsystem::namespaces::Extent;
use crate::subsystem::pointers::{Found, Pointers};
use crate::subsystem::slots::{Stage, Work};
use tidewater_nand::Medium;
use tidewater_wire::nvme::{self, Kind, NSID_ALL, Status};

/// From this opcode on, I/O commands are vendor specific.
const VENDOR: u8 = 0x80;

impl<M: Medium> Subsystem<M> {
    /// An entry of an I/O queue.
    #[inline]
    pub(super) fn begin_io(&mut self, slot: Slot) {
        self.cx.state.smart.started(self.cx.now);
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
        self.cx.state.sanitize.permits_io()?;
        let is_flush_of_all = parsed.nsid == NSID_ALL && parsed.kind == Kind::Flush;
        let mut place = Extent { first: 0, blocks: 0 };
        if !is_flush_of_all {
            let namespace = self.cx.state.namespaces.find(parsed.nsid, function)?;
            let device = self.device.host().namespace();
            let bounds = Bounds {
                blocks: namespace.blocks,
                writable_blocks: namespace.writable_blocks(device.writable_blocks),
                block_shift: namespace.block_shift,
                read_only: namespace.is_protected() || self.health.store_failed,
                transfer_max: self.options.transfer_max.into(),
            };
            bounds.check(parsed)?;
            place = namespace.locate(parsed.first_block, parsed.blocks.into())?;
        }
        if !self.erases.is_empty() && self.erases.is_formatting(parsed.nsid) {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        let write_cache = self.cx.state.features.write_cache(function);
        let (len, is_source) = self.slots.admit(slot, parsed, place, write_cache, &mut self.controllers.faults)?;
        if modifies {
            self.cx.state.sanitize.written();
        }
        if len == 0 {
            self.submit(slot);
            return Ok(());
        }
        self.find_data(slot, len, is_source)
    }

    pub(super) fn pointers(&mut self, slot: Slot) -> Pointers<'_> {
        Pointers { cx: &mut self.cx, controllers: &self.controllers, slots: &mut self.slots, slot }
    }

    /// Finds out where the `len` bytes of a command's data are, and goes on once that is known. `is_source`: they go to
    /// the device.
    #[inline]
    pub(super) fn find_data(&mut self, slot: Slot, len: u32, is_source: bool) -> Result<(), Status> {
        if self.pointers(slot).find(len, is_source)? == Found::All {
            self.with_data_place(slot);
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
                self.cx.say(Output::Fetch { slot, len });
            }
            Work::Vendor if len == 0 || !command.from_host => self.hand_to_fast_side(slot, &[]),
            Work::Ranges | Work::Vendor | Work::AdminIn => {
                command.stage = Stage::Gather;
                self.cx.say(Output::Gather { slot, len });
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
        self.cx.say(Output::Send { slot, at: 0, bytes, log: None });
    }

    /// Hands a command to the device.
    #[inline]
    pub(super) fn submit(&mut self, slot: Slot) {
        let request = self.slots.request(slot, self.device.host().namespace().id);
        let taken = self.device.handle(self.cx.now, device::Input::Begin(request));
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
                device::Output::Data { cid, lpn, place, .. } => {
                    self.slots.on_unit_read(&mut self.cx, Slot(cid), lpn, place);
                }
                device::Output::Taken { cid, lpn, previous, .. } => {
                    self.slots.on_unit_taken(&mut self.cx, Slot(cid), lpn, previous);
                }
                other => self.take_from_fast_side(other),
            }
        }
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

    /// The device has done its part, and no data is on its way.
    #[inline]
    fn after_device(&mut self, slot: Slot) {
        let command = &mut self.slots[slot];
        let status = command.status;
        if command.more > 0 && status.is_success() && !command.orphan {
            self.slots.advance(slot);
            return self.submit(slot);
        }
        if command.durable && status.is_success() && !command.orphan {
            command.stage = Stage::Sync;
            let purge = command.purge;
            self.cx.say(if purge { Output::Purge { slot } } else { Output::Sync { slot } });
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
            return self.cx.say(Output::Sync { slot });
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
            Work::Ranges => match self.slots.take_ranges(slot, &self.cx.state.namespaces, bytes) {
                Ok(()) => self.submit(slot),
                Err(status) => self.finish(slot, status),
            },
            Work::Vendor => self.hand_to_fast_side(slot, bytes),
            Work::AdminIn => {
                let outcome = self.rooms().with_admin_data(slot, bytes);
                self.end_admin(slot, outcome);
            }
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
            let outcome = self.rooms().with_host_memory(slot, bytes);
            return self.end_admin(slot, outcome);
        }
        match self.pointers(slot).resume(bytes) {
            Ok(Found::All) => self.with_data_place(slot),
            Ok(Found::Later) => {}
            Err(status) => self.finish(slot, status),
        }
    }
}
