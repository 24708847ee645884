//! Commands and log pages of the fast side and of the byte window (`wire::vendor`): they go to the device as capsules,
//! and what it has for their host comes back in pieces.

use super::pointers::Found;
use super::slots::{Stage, Work};
use super::{LogPiece, Output, Slot, Subsystem, Transport};
use crate::device;
use crate::host::without_pointer;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::{Direction, IoCommand, ReadLogHeader, WindowCommand, status as vendor_status};

impl<M: Medium> Subsystem<M> {
    /// An I/O command of this vendor.
    pub(super) fn begin_vendor_io(&mut self, slot: Slot) {
        let sqe = without_pointer(&self.slots[slot].sqe);
        if self.device.window().is_enabled() && WindowCommand::has(sqe.opcode()) {
            return self.begin_window(slot, &sqe);
        }
        let begun = IoCommand::parse(&sqe).and_then(|command| {
            let bytes = u32::try_from(command.data_bytes()).map_err(|_| Status::INVALID_FIELD)?;
            let from_host = Direction::of(sqe.opcode()) == Some(Direction::ToDevice);
            self.begin_vendor(slot, bytes, from_host)
        });
        if let Err(status) = begun {
            self.finish(slot, status);
        }
    }

    /// A command of the fast side: where its data is, is found out first, whichever way it goes.
    pub(super) fn begin_vendor(&mut self, slot: Slot, bytes: u32, from_host: bool) -> Result<(), Status> {
        self.state.sanitize.permits_io()?;
        let command = &mut self.slots[slot];
        if !self.controllers[usize::from(command.function)].privileged {
            return Err(Status::OPERATION_DENIED);
        }
        if u64::from(bytes) > self.transfer_max {
            return Err(Status::INVALID_FIELD);
        }
        // Commands may wait for a long time. Those of one host must leave room for others.
        if self.vendor_outstanding >= (self.slots.hosts() / 2).max(1) {
            return Err(vendor_status::BUSY);
        }
        self.vendor_outstanding += 1;
        let command = &mut self.slots[slot];
        command.is_vendor = true;
        command.work = Work::Vendor;
        command.from_host = from_host;
        match self.find_data(slot, bytes, from_host)? {
            Found::All => self.with_data_place(slot),
            Found::Later => {}
        }
        Ok(())
    }

    /// The function of the fast side that a controller's commands are for. Fabrics controllers have none of their own:
    /// they use the first.
    pub(super) fn fast_function(&self, function: u8) -> u8 {
        match self.controllers[usize::from(function)].transport {
            Transport::Pcie => function,
            Transport::Fabrics => 0,
        }
    }

    /// A command with its data goes to the fast side.
    pub(super) fn hand_to_fast_side(&mut self, slot: Slot, data: &[u8]) {
        if self.is_of_window(slot) {
            return self.hand_to_window(slot, data);
        }
        let command = &mut self.slots[slot];
        command.stage = Stage::Vendor;
        let sqe = without_pointer(&command.sqe);
        let sqe: Sqe = sqe.with_dword(0, sqe.dwords()[0] & 0xFFFF | u32::from(slot.0) << 16);
        let function = self.fast_function(self.slots[slot].function);
        let taken = self.device.handle(self.now, device::Input::Capsule { function, sqe, data });
        debug_assert!(taken.is_ok(), "only Submit is refused");
        self.take_from_device();
    }

    /// What the fast side has to say.
    #[inline(never)]
    pub(super) fn take_from_fast_side(&mut self, output: device::Output) {
        match output {
            device::Output::Store { function, lpn, number, epoch, page } => {
                self.outputs.push_back(Output::StoreLog { function, lpn, number, page, epoch });
            }
            device::Output::Log { cid, function, lane, offset, len, from } => {
                self.on_log_piece(Slot(cid), LogPiece { function, lane, offset, len, from });
            }
            device::Output::Reply { cid, status, result, data } => self.on_reply(Slot(cid), status, result, data),
            device::Output::Frame { peer, frame, from, after } => {
                self.outputs.push_back(Output::Frame { peer, frame, from, after });
            }
            device::Output::Grouped { function, result } => {
                self.outputs.push_back(Output::Grouped { function, result });
            }
            device::Output::HostMemory(access) => self.on_host_access(access),
            device::Output::HostMemoryFree => self.on_host_memory_free(),
            device::Output::WindowLoad { lpn, place } => self.outputs.push_back(Output::LoadWindow { lpn, place }),
            device::Output::WindowStore { lpn, version, offset } => {
                self.outputs.push_back(Output::StoreWindow { lpn, version, offset });
            }
            output => unreachable!("{output:?} was not asked for"),
        }
    }

    /// Bytes of log for a command whose reply follows.
    fn on_log_piece(&mut self, slot: Slot, piece: LogPiece) {
        let command = &mut self.slots[slot];
        if command.orphan {
            return;
        }
        if command.moving == 0 {
            command.start = piece.offset; // The first piece.
        }
        command.moving += 1;
        let at = ReadLogHeader::SIZE as u32 + (piece.offset - command.start) as u32;
        self.outputs.push_back(Output::Send { slot, at, bytes: Box::default(), log: Some(piece) });
    }

    /// A command of the fast side has ended.
    fn on_reply(&mut self, slot: Slot, status: Status, result: u32, data: Vec<u8>) {
        let command = &mut self.slots[slot];
        command.dw0 = result;
        command.status = status;
        command.stage = Stage::Send;
        let data = if status.is_success() && self.is_of_window(slot) { self.of_window(slot, data) } else { data };
        let data = match self.log_page_part(slot, data) {
            Ok(data) => data,
            Err(status) => {
                self.slots[slot].status = status;
                Box::default()
            }
        };
        let command = &mut self.slots[slot];
        // Never more than the host has made room for.
        if command.status.is_success() && !command.orphan && !data.is_empty() && data.len() <= command.len as usize {
            command.data = data;
            return self.send_data(slot);
        }
        if command.moving == 0 && command.durable && command.status.is_success() && !command.orphan {
            command.stage = Stage::Sync;
            self.outputs.push_back(Output::Sync { slot });
        } else if command.moving == 0 {
            let status = command.status;
            self.finish(slot, status);
        }
    }
}
