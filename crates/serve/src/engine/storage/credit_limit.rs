//! The limit of the fast side's credit once the image can't be written: a host counts on its credit beyond the end of
//! this process, so none is given for bytes that are not stored.

use super::Storage;
use crate::engine::{Context, Pending, Turn};
use tidewater_core::border::LogInput;
use tidewater_core::fast::Fast;
use tidewater_core::subsystem::{Input, Slot};
use tidewater_wire::nvme::{Cqe, Status};
use tidewater_wire::vendor::opcode;

impl Storage {
    /// Limits each lane's credit to what is stored, once. Until the firmware has taken this input, it may give credit
    /// for more: see [`Storage::exceeds_credit_limit`].
    pub(super) fn limit_credit(&mut self, cx: &mut Context, fast: &Fast, kept: impl Fn(usize, usize) -> bool) {
        if !self.failed || std::mem::replace(&mut self.is_credit_limited, true) {
            return;
        }
        for (function, of) in fast.functions().iter().enumerate() {
            for (lane, l) in of.lanes().iter().enumerate() {
                // What a mapped ring has is in its file. A lane of which nothing was stored yet is as it was found in
                // the image.
                let stored = self.image().stored_log(function, lane).filter(|_| !kept(function, lane));
                let from = stored.unwrap_or(l.released()).min(l.released());
                cx.push_log(function as u8, LogInput::Withhold { lane: lane as u8, from });
            }
        }
    }

    /// Whether a command is about to return credit that was given before the firmware took the limit.
    pub(crate) fn exceeds_credit_limit(&self, t: &mut Turn, slot: Option<Slot>) -> bool {
        let is_limit = |(_, pending): &(_, Pending)| {
            matches!(pending, Pending::Plain(Input::Log { input: LogInput::Withhold { .. }, .. }))
        };
        self.failed
            && t.cx.pending.iter().any(is_limit)
            && slot.is_some_and(|slot| {
                let command = t.firmware.subsystem.last_command(slot);
                command.queue > 0 && [opcode::WAIT_CREDIT, opcode::READ_CONTROL_PAGE].contains(&command.sqe.opcode())
            })
    }

    /// A completion, or Write Fault in place of one that returns too much credit.
    pub(crate) fn within_credit_limit(&self, t: &mut Turn, slot: Option<Slot>, cqe: Cqe) -> Cqe {
        let exceeds = cqe.status.is_success() && self.exceeds_credit_limit(t, slot);
        if exceeds { Cqe { status: Status::WRITE_FAULT, ..cqe } } else { cqe }
    }
}
