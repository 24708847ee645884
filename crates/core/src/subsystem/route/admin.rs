//! Admin commands: what each of them has come to goes on here.

use super::Subsystem;
use crate::device;
use crate::subsystem::admin::{Next, Outcome};
use crate::subsystem::interface::Slot;
use crate::subsystem::rooms::Rooms;
use crate::subsystem::slots::{Stage, Work};
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;

impl<M: Medium> Subsystem<M> {
    /// The rooms that an admin command is about.
    pub(super) fn rooms(&mut self) -> Rooms<'_, M> {
        Rooms {
            cx: &mut self.cx,
            controllers: &mut self.controllers,
            slots: &mut self.slots,
            erases: &self.erases,
            host_memory: &self.host_memory,
            health: &self.health,
            device: &self.device,
            options: &self.options,
        }
    }

    /// An entry of an admin queue.
    pub(super) fn begin_admin(&mut self, slot: Slot) {
        let outcome = self.rooms().begin_admin(slot);
        self.end_admin(slot, outcome);
    }

    pub(super) fn end_admin(&mut self, slot: Slot, outcome: Outcome) {
        if let Err(status) = outcome.and_then(|next| self.go_on(slot, next)) {
            self.finish(slot, status);
        }
    }

    fn go_on(&mut self, slot: Slot, next: Next) -> Result<(), Status> {
        let function = self.slots[slot].function;
        match next {
            Next::Later => {}
            Next::Done(dw0) => self.done(slot, dw0),
            Next::Send(data) => self.answer(slot, data)?,
            Next::Data(len) => self.find_data(slot, len, true)?,
            Next::Vendor { bytes, from_host } => self.begin_vendor(slot, bytes, from_host)?,
            Next::List { address, len } => _ = self.pointers(slot).read_list(address, len)?,
            Next::Asks => {
                self.release(slot);
                self.controllers.tell_events(&mut self.cx, function);
            }
            Next::Lend { dw0, returned } => {
                if self.device.host_memory().is_used()
                    && let Some(lending) = self.host_memory.begin(&self.controllers, function, returned)
                {
                    self.tell_device(device::Input::Lending(lending));
                }
                self.done(slot, dw0);
            }
            Next::TakeBack => {
                if !self.end_host_memory(function, Some(slot)) {
                    self.done(slot, 0);
                }
            }
            Next::Submit => self.submit(slot),
            Next::Erase(erase) => self.erase(erase),
            Next::DeleteQueue(queue) => {
                self.abort_waiting(function, queue);
                // The last of them may have ended it.
                self.try_delete(function, queue);
            }
            Next::Abort(queue, cid) => {
                let is_aborted = self.abort(function, queue, cid);
                self.done(slot, u32::from(!is_aborted));
            }
        }
        Ok(())
    }

    /// The command ends well, with this double word 0.
    fn done(&mut self, slot: Slot, dw0: u32) {
        self.slots[slot].dw0 = dw0;
        self.finish(slot, Status::SUCCESS);
    }

    /// Data goes to the host, and then the command ends.
    fn answer(&mut self, slot: Slot, data: Vec<u8>) -> Result<(), Status> {
        let command = &mut self.slots[slot];
        command.work = Work::AdminOut;
        let len = data.len() as u32;
        command.data = data.into_boxed_slice();
        if len == 0 {
            self.finish(slot, Status::SUCCESS);
            return Ok(());
        }
        self.find_data(slot, len, false)
    }

    /// Aborts a command, if it waits for something that may take long; all others end soon by themselves (section 5.1).
    fn abort(&mut self, function: u8, queue: u16, cid: u16) -> bool {
        let found = self.slots.iter().find(|(_, command)| {
            command.function == function
                && command.queue == queue
                && command.sqe.cid() == cid
                && matches!(command.stage, Stage::Vendor | Stage::Device)
                && !command.orphan
        });
        match found.map(|(slot, command)| (slot, command.stage)) {
            // It ends by itself, as aborted.
            Some((slot, Stage::Device)) => self.device.cancel_held(slot.0),
            Some((slot, _)) if self.device.cancel(slot.0) => {
                self.finish(slot, Status::ABORT_REQUESTED);
                true
            }
            _ => false,
        }
    }

    /// A queue goes: commands of it that may wait for long are aborted; all others end soon by themselves.
    pub(super) fn abort_waiting(&mut self, function: u8, queue: u16) {
        for waiting in self.slots.of_hosts() {
            let command = &self.slots[waiting];
            if command.orphan || command.function != function || command.queue != queue {
                continue;
            }
            match command.stage {
                Stage::Vendor if self.device.cancel(waiting.0) => self.finish(waiting, Status::ABORTED_SQ_DELETION),
                // The entry whose blocks it wants may stay pinned for ever. It ends by itself, with this status.
                Stage::Device if self.device.cancel_held(waiting.0) => {
                    self.slots[waiting].status = Status::ABORTED_SQ_DELETION;
                }
                _ => {}
            }
        }
    }

    pub(super) fn try_delete(&mut self, function: u8, queue: u16) {
        if let Some(slot) = self.controllers.try_delete(function, queue) {
            self.finish(slot, Status::SUCCESS);
        }
    }

    /// A host wants its memory back. True: the drive still uses it, and [`Subsystem::on_host_memory_free`] comes.
    pub(super) fn end_host_memory(&mut self, function: u8, waiting: Option<Slot>) -> bool {
        let Some(lending) = self.host_memory.end(&mut self.controllers, function, waiting) else { return false };
        if let Some(lending) = lending {
            self.tell_device(device::Input::Lending(lending));
        }
        true
    }

    /// Nothing of the drive's is in the host's memory any more.
    pub(super) fn on_host_memory_free(&mut self) {
        let Some((function, waiting)) = self.host_memory.free(&mut self.controllers) else { return };
        for slot in waiting {
            self.finish(slot, Status::SUCCESS);
        }
        self.try_quiesce(function);
        self.end_shutdowns();
    }
}
