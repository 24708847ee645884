//! Admin commands (NVM Express 1.4, section 5): which there are, who may use them, and where they go.

use super::pointers::{Found, PAGE};
use super::slots::{Stage, Work};
use super::{Slot, Subsystem, Transport};
use tidewater_nand::Medium;
use tidewater_wire::nvme::{AdminCommand, Data, Status};

/// How an admin command goes on.
pub(super) enum Next {
    /// It has ended well, with this double word 0.
    Done(u32),
    /// It ends with this for the host.
    Send(Vec<u8>),
    /// It goes on by itself.
    Later,
}

pub(super) type Outcome = Result<Next, Status>;

impl<M: Medium> Subsystem<M> {
    /// An entry of an admin queue.
    pub(super) fn begin_admin(&mut self, slot: Slot) {
        let outcome = self.try_admin(slot);
        self.end_admin(slot, outcome);
    }

    pub(super) fn parse_admin(&self, slot: Slot) -> Result<AdminCommand, Status> {
        let command = &self.slots[slot];
        match self.controllers[usize::from(command.function)].transport {
            Transport::Pcie => AdminCommand::parse(&command.sqe),
            Transport::Fabrics => AdminCommand::parse_capsule(&command.sqe),
        }
    }

    fn try_admin(&mut self, slot: Slot) -> Outcome {
        let parsed = self.parse_admin(slot)?;
        let function = self.slots[slot].function;
        let c = &self.controllers[usize::from(function)];
        self.state.sanitize.permits(&parsed)?;
        if parsed.is_privileged() && !c.privileged {
            return Err(Status::OPERATION_DENIED);
        }
        match parsed.data() {
            Data::ToHost(bytes) if bytes > self.transfer_max => return Err(Status::INVALID_FIELD),
            Data::FromHost(bytes) => {
                if let AdminCommand::Vendor(_) = parsed {
                    self.begin_vendor(slot, bytes, true)?;
                    return Ok(Next::Later);
                }
                self.slots[slot].work = Work::AdminIn;
                if self.find_data(slot, bytes, true)? == Found::All {
                    self.with_data_place(slot);
                }
                return Ok(Next::Later);
            }
            _ => {}
        }
        match parsed {
            AdminCommand::CreateIoCq(create) => self.create_completion_queue(function, &create),
            AdminCommand::CreateIoSq(create) => self.create_submission_queue(function, &create),
            AdminCommand::DeleteIoCq { queue } => self.delete_completion_queue(function, queue),
            AdminCommand::DeleteIoSq { queue } => self.delete_submission_queue(slot, queue),
            AdminCommand::DoorbellBufferConfig { shadow, event_index } => {
                self.configure_doorbell_buffer(function, shadow, event_index)
            }
            AdminCommand::Abort { queue, cid } => self.abort(function, queue, cid),
            AdminCommand::AsynchronousEventRequest => self.ask_for_event(slot),
            AdminCommand::KeepAlive => self.keep_alive(function),
            AdminCommand::Vendor(_) => {
                self.begin_vendor(slot, 0, true)?;
                Ok(Next::Later)
            }
            parsed => self.do_admin(slot, &parsed, &[]),
        }
    }

    /// The data of an admin command has come.
    pub(super) fn with_admin_data(&mut self, slot: Slot, bytes: &[u8]) {
        let outcome = self.parse_admin(slot).and_then(|parsed| self.do_admin(slot, &parsed, bytes));
        self.end_admin(slot, outcome);
    }

    pub(super) fn end_admin(&mut self, slot: Slot, outcome: Outcome) {
        match outcome {
            Ok(Next::Later) => {}
            Ok(Next::Done(dw0)) => {
                self.slots[slot].dw0 = dw0;
                self.finish(slot, Status::SUCCESS);
            }
            Ok(Next::Send(data)) => {
                if let Err(status) = self.answer(slot, data) {
                    self.finish(slot, status);
                }
            }
            Err(status) => self.finish(slot, status),
        }
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
        if self.find_data(slot, len, false)? == Found::All {
            self.with_data_place(slot);
        }
        Ok(())
    }

    fn ask_for_event(&mut self, slot: Slot) -> Outcome {
        let command = &self.slots[slot];
        let (function, cid) = (command.function, command.sqe.cid());
        if !self.controllers[usize::from(function)].events.ask(cid) {
            return Err(Status::AER_LIMIT_EXCEEDED);
        }
        // It waits for as long as it likes, without a slot.
        self.release(slot);
        self.tell_events(function);
        Ok(Next::Later)
    }

    fn keep_alive(&mut self, function: u8) -> Outcome {
        self.controllers[usize::from(function)].heard_at = self.now;
        Ok(Next::Done(0))
    }

    /// Where shadow doorbells and event indices are (section 5.7).
    fn configure_doorbell_buffer(&mut self, function: u8, shadow: u64, events: u64) -> Outcome {
        if (shadow | events) & u64::from(PAGE - 1) != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        self.controllers[usize::from(function)].shadow = Some((shadow, events));
        Ok(Next::Done(0))
    }

    /// Aborts a command, if it waits for something that may take long; all others end soon by themselves (section 5.1).
    /// Double word 0: 0 when it was aborted, else 1.
    fn abort(&mut self, function: u8, queue: u16, cid: u16) -> Outcome {
        let c = &mut self.controllers[usize::from(function)];
        if usize::from(queue) >= c.submission.len() || !c.submission[usize::from(queue)].live {
            return Err(Status::INVALID_FIELD);
        }
        if queue == 0 && c.events.abort(cid) {
            self.post(function, 0, cid, Status::ABORT_REQUESTED, 0, None);
            return Ok(Next::Done(0));
        }
        let found = self.slots.iter().find(|(_, command)| {
            command.function == function
                && command.queue == queue
                && command.sqe.cid() == cid
                && matches!(command.stage, Stage::Vendor | Stage::Device)
                && !command.orphan
        });
        let found = found.map(|(slot, command)| (slot, command.stage));
        if let Some((slot, Stage::Device)) = found
            && self.device.cancel_held(slot.0)
        {
            return Ok(Next::Done(0)); // It ends by itself, as aborted.
        }
        if let Some((slot, Stage::Vendor)) = found
            && self.device.cancel(slot.0)
        {
            self.finish(slot, Status::ABORT_REQUESTED);
            return Ok(Next::Done(0));
        }
        Ok(Next::Done(1))
    }
}
