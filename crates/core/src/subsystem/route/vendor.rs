//! Commands and log pages of the fast side and of the byte window (`wire::vendor`): they go to the device as capsules,
//! and what it has for their host comes back in pieces.

use super::Subsystem;
use crate::content::Whereabouts;
use crate::device;
use crate::host::without_pointer;
use crate::host_memory::Answer;
use crate::subsystem::interface::{LogPiece, Output, Slot};
use crate::subsystem::slots::{Stage, Work};
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::{Direction, IoCommand, WindowCommand, status as vendor_status};

impl<M: Medium> Subsystem<M> {
    /// An I/O command of this vendor.
    pub(super) fn begin_vendor_io(&mut self, slot: Slot) {
        let sqe = without_pointer(&self.slots[slot].sqe);
        let is_of_window = self.device.window().is_enabled() && WindowCommand::has(sqe.opcode());
        let bytes = match is_of_window {
            true => WindowCommand::parse(&sqe).map(|command| command.data_bytes()),
            false => IoCommand::parse(&sqe).map(|command| command.data_bytes()),
        };
        let begun = bytes.and_then(|bytes| {
            let bytes = u32::try_from(bytes).map_err(|_| Status::INVALID_FIELD)?;
            let from_host = Direction::of(sqe.opcode()) == Some(Direction::ToDevice);
            self.begin_vendor(slot, bytes, from_host)
        });
        if let Err(status) = begun {
            self.finish(slot, status);
        }
    }

    /// A command of the fast side: where its data is, is found out first, whichever way it goes.
    pub(super) fn begin_vendor(&mut self, slot: Slot, bytes: u32, from_host: bool) -> Result<(), Status> {
        self.cx.state.sanitize.permits_io()?;
        let command = &mut self.slots[slot];
        if !self.controllers[command.function].privileged {
            return Err(Status::OPERATION_DENIED);
        }
        if u64::from(bytes) > u64::from(self.options.transfer_max) {
            return Err(Status::INVALID_FIELD);
        }
        // Commands may wait for a long time. Those of one host must leave room for others.
        if self.slots.vendor_outstanding >= (self.slots.hosts() / 2).max(1) {
            return Err(vendor_status::BUSY);
        }
        self.slots.vendor_outstanding += 1;
        let command = &mut self.slots[slot];
        command.is_vendor = true;
        command.work = Work::Vendor;
        command.from_host = from_host;
        self.find_data(slot, bytes, from_host)
    }

    /// A command with its data goes to the fast side.
    pub(super) fn hand_to_fast_side(&mut self, slot: Slot, data: &[u8]) {
        if self.rooms().is_of_window(slot) {
            return self.hand_to_window(slot, data);
        }
        let command = &mut self.slots[slot];
        command.stage = Stage::Vendor;
        let sqe = without_pointer(&command.sqe);
        let sqe: Sqe = sqe.with_dword(0, sqe.dwords()[0] & 0xFFFF | u32::from(slot.0) << 16);
        let function = self.controllers.fast_function(self.slots[slot].function);
        self.tell_device(device::Input::Capsule { function, sqe, data });
    }

    /// An output of the fast side.
    #[inline(never)]
    pub(super) fn take_from_fast_side(&mut self, output: device::Output) {
        match output {
            device::Output::Store { function, lpn, number, epoch, page } => {
                self.cx.say(Output::StoreLog { function, lpn, number, page, epoch });
            }
            device::Output::Log { cid, function, lane, offset, len, from } => {
                self.slots.on_log_piece(&mut self.cx, Slot(cid), LogPiece { function, lane, offset, len, from });
            }
            device::Output::Reply { cid, status, result, data } => self.on_reply(Slot(cid), status, result, data),
            device::Output::Frame { peer, frame, from, after } => {
                self.cx.say(Output::Frame { peer, frame, from, after });
            }
            device::Output::Grouped { function, result } => {
                self.cx.say(Output::Grouped { function, result });
            }
            device::Output::HostMemory(access) => match self.host_memory.lender {
                Some(function) => self.cx.say(Output::HostMemory { function, access }),
                None => self.tell_device(device::Input::HostMemory { ticket: access.ticket, answer: Answer::Gone }),
            },
            device::Output::HostMemoryFree => self.on_host_memory_free(),
            device::Output::WindowLoad { lpn, place } => self.cx.say(Output::LoadWindow { lpn, place }),
            device::Output::WindowStore { lpn, version, offset } => {
                self.cx.say(Output::StoreWindow { lpn, version, offset });
            }
            output => unreachable!("{output:?} was not asked for"),
        }
    }

    /// A command of the fast side has ended.
    fn on_reply(&mut self, slot: Slot, status: Status, result: u32, data: Vec<u8>) {
        let command = &mut self.slots[slot];
        command.dw0 = result;
        command.status = status;
        command.stage = Stage::Send;
        let data = if status.is_success() && self.rooms().is_of_window(slot) {
            self.rooms().of_window(slot, data)
        } else {
            data
        };
        let data = match self.rooms().log_page_part(slot, data) {
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
            self.cx.say(Output::Sync { slot });
        } else if command.moving == 0 {
            let status = command.status;
            self.finish(slot, status);
        }
    }

    /// A command of the window with its data goes to the device.
    fn hand_to_window(&mut self, slot: Slot, data: &[u8]) {
        let command = match self.rooms().for_device(slot) {
            Ok(command) => command,
            Err(status) => return self.finish(slot, status),
        };
        let is_flush = matches!(command, WindowCommand::Flush { .. });
        let tag = if is_flush { self.slots.take_version() } else { 0 };
        let survives = self.device.window().survives();
        let of_slot = &mut self.slots[slot];
        of_slot.stage = Stage::Vendor;
        of_slot.durable = match command {
            // Memory that nothing keeps has nothing to make safe.
            WindowCommand::Pin { .. } | WindowCommand::Unpin { .. } | WindowCommand::Sync { .. } => survives,
            WindowCommand::Flush { .. } => true,
            _ => false,
        };
        // An entry is let go of in the image when its pages are safe there.
        of_slot.sync_again = survives && is_flush;
        self.tell_device(device::Input::Window { sqe: command.emit(slot.0), data, tag });
    }

    /// Requests of the window to the payload store, out of turn: while the drive recovers, its other outputs are not
    /// taken there is to say.
    pub fn take_window_load(&mut self) -> Option<(u32, Whereabouts)> {
        let place = self.cx.outputs.iter().position(|output| matches!(output, Output::LoadWindow { .. }))?;
        match self.cx.outputs.remove(place) {
            Some(Output::LoadWindow { lpn, place }) => Some((lpn, place)),
            _ => None,
        }
    }
}
