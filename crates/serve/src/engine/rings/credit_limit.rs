//! The limit of the fast side's credit once the backing store has failed: a host counts on its credit beyond the end of
//! this process, so none is given for bytes that are not stored.

use crate::engine::context::Pending;
use crate::engine::firmware::Firmware;
use crate::engine::route::World;
use tidewater_core::subsystem::{Input, Slot};
use tidewater_wire::nvme::{Cqe, Status};
use tidewater_wire::vendor::opcode;

impl<M> World<M> {
    /// Limits each lane's credit to what is stored, once. Until the firmware has taken this input, it may give credit
    /// for more: see [`World::exceeds_credit_limit`].
    pub(crate) fn limit_credit(&mut self, firmware: &Firmware) {
        if !self.store_failed || std::mem::replace(&mut self.is_credit_limited, true) {
            return;
        }
        let functions = firmware.subsystem.device().fast().functions();
        for (function, of) in functions.iter().enumerate() {
            for (lane, l) in of.lanes().iter().enumerate() {
                let ring = self.ports.get(function).and_then(|port| port.ring.as_ref());
                // What a mapped ring has is in its file. A lane of which nothing was stored yet is as it was found in
                // the image.
                let is_kept = ring.is_some_and(|ring| ring.keeps(lane, of));
                let stored = self.payload.image().stored_log(function, lane).filter(|_| !is_kept);
                let from = stored.unwrap_or(l.released()).min(l.released());
                self.cx.push(Input::Withhold { function: function as u8, lane: lane as u8, from });
            }
        }
    }

    /// Whether a command is about to return credit that was given before the firmware took the limit.
    pub(crate) fn exceeds_credit_limit(&self, firmware: &Firmware, slot: Option<Slot>) -> bool {
        let is_limit = |(_, pending): &(_, Pending)| matches!(pending, Pending::Plain(Input::Withhold { .. }));
        self.store_failed
            && self.cx.pending.iter().any(is_limit)
            && slot.is_some_and(|slot| {
                let command = firmware.subsystem.last_command(slot);
                command.queue > 0 && [opcode::WAIT_CREDIT, opcode::READ_CONTROL_PAGE].contains(&command.sqe.opcode())
            })
    }

    /// A completion, or Write Fault in place of one that returns too much credit.
    pub(crate) fn within_credit_limit(&self, firmware: &Firmware, slot: Option<Slot>, cqe: Cqe) -> Cqe {
        let exceeds = cqe.status.is_success() && self.exceeds_credit_limit(firmware, slot);
        if exceeds { Cqe { status: Status::WRITE_FAULT, ..cqe } } else { cqe }
    }
}
