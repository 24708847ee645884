//! Credit of the fast side when the backing store has failed: what a host has been told outlives this process, so that
//! nothing is told of what is stored nowhere.

use super::served::Served;
use super::world::{Pending, World};
use tidewater_core::subsystem::{Input, Slot};
use tidewater_wire::nvme::{Cqe, Status};
use tidewater_wire::vendor::opcode;

impl<M> World<M> {
    /// The firmware hears how far each lane is stored, once. Until it has, it may give credit for more: see
    /// [`World::tells_too_much`].
    pub(super) fn withhold_logs(&mut self, machine: &Served) {
        if !self.store_failed || std::mem::replace(&mut self.logs_withheld, true) {
            return;
        }
        let functions = machine.subsystem.device().fast().functions();
        for (function, of) in functions.iter().enumerate() {
            for (lane, l) in of.lanes().iter().enumerate() {
                let ring = self.ports.get(function).and_then(|port| port.ring.as_ref());
                // What a mapped ring has is in its file. A lane of which nothing was stored yet is as it was found in
                // the image.
                let is_kept = ring.is_some_and(|ring| ring.keeps(lane, of));
                let stored = self.payload.image().stored_log(function, lane).filter(|_| !is_kept);
                let from = stored.unwrap_or(l.released()).min(l.released());
                self.push(Input::Withhold { function: function as u8, lane: lane as u8, from });
            }
        }
    }

    /// Whether a command is about to tell its host of credit that was given before the firmware heard that nothing is
    /// stored any more.
    pub(super) fn tells_too_much(&self, machine: &Served, slot: Option<Slot>) -> bool {
        let is_unheard = |(_, pending): &(_, Pending)| matches!(pending, Pending::Plain(Input::Withhold { .. }));
        self.store_failed
            && self.pending.iter().any(is_unheard)
            && slot.is_some_and(|slot| {
                let command = machine.subsystem.last_command(slot);
                command.queue > 0 && [opcode::WAIT_CREDIT, opcode::READ_CONTROL_PAGE].contains(&command.sqe.opcode())
            })
    }

    /// A completion, as its host may have it.
    pub(super) fn without_lies(&self, machine: &Served, slot: Option<Slot>, cqe: Cqe) -> Cqe {
        let lies = cqe.status.is_success() && self.tells_too_much(machine, slot);
        if lies { Cqe { status: Status::WRITE_FAULT, ..cqe } } else { cqe }
    }
}
