//! Admin commands (NVM Express 1.4, section 5): which there are, who may use them, and where they go.

use super::erase::Erase;
use super::interface::{Slot, Transport};
use super::queues::Posting;
use super::rooms::Rooms;
use super::slots::{PAGE, Stage, Work};
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
    /// It waits for as long as it likes, without a slot.
    Asks,
    /// So many bytes of data come from the host first.
    Data(u32),
    /// It is one of this vendor, with so many bytes of data.
    Vendor { bytes: u32, from_host: bool },
    /// A list elsewhere in the host's memory is read first.
    List { address: u64, len: u32 },
    /// The host has lent memory, and may have brought back what was lent before.
    Lend { dw0: u32, returned: bool },
    /// The host wants its memory back.
    TakeBack,
    /// The device has to do something for it.
    Submit,
    /// Blocks are to be forgotten.
    Erase(Erase),
    /// A queue goes when nothing of it is under way.
    DeleteQueue(u16),
    /// Another command, by its queue and identifier, is to be aborted.
    Abort(u16, u16),
}

pub(super) type Outcome = Result<Next, Status>;

impl<M: Medium> Rooms<'_, M> {
    pub(super) fn parse_admin(&self, slot: Slot) -> Result<AdminCommand, Status> {
        let command = &self.slots[slot];
        match self.controllers[command.function].transport {
            Transport::Pcie => AdminCommand::parse(&command.sqe),
            Transport::Fabrics => AdminCommand::parse_capsule(&command.sqe),
        }
    }

    /// An entry of an admin queue.
    pub(super) fn begin_admin(&mut self, slot: Slot) -> Outcome {
        let parsed = self.parse_admin(slot)?;
        let function = self.slots[slot].function;
        let c = &self.controllers[function];
        self.cx.state.sanitize.permits(&parsed)?;
        if parsed.is_privileged() && !c.privileged {
            return Err(Status::OPERATION_DENIED);
        }
        match parsed.data() {
            Data::ToHost(bytes) if bytes > self.options.transfer_max.into() => return Err(Status::INVALID_FIELD),
            Data::FromHost(bytes) => {
                if let AdminCommand::Vendor(_) = parsed {
                    return Ok(Next::Vendor { bytes, from_host: true });
                }
                self.slots[slot].work = Work::AdminIn;
                return Ok(Next::Data(bytes));
            }
            _ => {}
        }
        match parsed {
            AdminCommand::CreateIoCq(create) => self.controllers.create_completion_queue(function, &create)?,
            AdminCommand::CreateIoSq(create) => self.controllers.create_submission_queue(function, &create)?,
            AdminCommand::DeleteIoCq { queue } => self.controllers.delete_completion_queue(function, queue)?,
            AdminCommand::DeleteIoSq { queue } => {
                self.controllers.begin_deletion(function, queue, slot)?;
                self.slots[slot].stage = Stage::Parked;
                return Ok(Next::DeleteQueue(queue));
            }
            AdminCommand::DoorbellBufferConfig { shadow, event_index } => {
                self.configure_doorbell_buffer(function, shadow, event_index)?;
            }
            AdminCommand::Abort { queue, cid } => return self.find_to_abort(function, queue, cid),
            AdminCommand::AsynchronousEventRequest => {
                let cid = self.slots[slot].sqe.cid();
                let asks = self.controllers[function].events.ask(cid);
                return if asks { Ok(Next::Asks) } else { Err(Status::AER_LIMIT_EXCEEDED) };
            }
            AdminCommand::KeepAlive => self.controllers[function].heard_at = self.cx.now,
            AdminCommand::Vendor(_) => return Ok(Next::Vendor { bytes: 0, from_host: true }),
            parsed => return self.do_admin(slot, &parsed, &[]),
        }
        Ok(Next::Done(0))
    }

    /// The data of an admin command has come.
    pub(super) fn with_admin_data(&mut self, slot: Slot, bytes: &[u8]) -> Outcome {
        let parsed = self.parse_admin(slot)?;
        self.do_admin(slot, &parsed, bytes)
    }

    /// Where shadow doorbells and event indices are (section 5.7).
    fn configure_doorbell_buffer(&mut self, function: u8, shadow: u64, events: u64) -> Result<(), Status> {
        if (shadow | events) & u64::from(PAGE - 1) != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        self.controllers[function].shadow = Some((shadow, events));
        Ok(())
    }

    /// Abort (section 5.1): an event that is asked for is aborted here.
    fn find_to_abort(&mut self, function: u8, queue: u16, cid: u16) -> Outcome {
        let c = &mut self.controllers[function];
        if usize::from(queue) >= c.submission.len() || !c.submission[usize::from(queue)].live {
            return Err(Status::INVALID_FIELD);
        }
        if queue == 0 && c.events.abort(cid) {
            self.controllers.post(self.cx, function, Posting::new(0, cid, Status::ABORT_REQUESTED, 0), None);
            return Ok(Next::Done(0));
        }
        Ok(Next::Abort(queue, cid))
    }
}
