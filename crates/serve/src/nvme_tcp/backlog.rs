//! Commands that wait here before the drive works on them, because their host has enough already.
//!
//! A host that takes no data of its reads would have the drive copy all of it into buffers, and one that sends hundreds
//! of commands at once would have all of them done before another host's connection is looked at.

use super::border::Border;
use super::commands::Command;
use super::target::Target;
use tidewater_base::Duration;
use tidewater_core::subsystem::Input;
use tidewater_wire::fabrics::Response;
use tidewater_wire::nvme::{Sqe, Status, admin_opcode, opcode};

/// Bytes of reads that the drive works on for a host, or that wait for the host, at most: 64 reads of 128 KiB, or
/// 2,048 of 4 KiB. A queue for which nothing is on its way has one more.
const READS_BYTES_MAX: u64 = 8 << 20;
/// The same for all hosts together, in equal parts.
const READS_OF_ALL: u64 = 32 << 20;

/// Bytes by [`weight`] that a host may begin between two looks at the connections, where there are others. One command
/// may take more; the host then waits until others have begun as much, or have had as many turns.
const TURN_BYTES: u32 = 64 << 10;
/// From when on others are not waited for: several times as long as a host needs between two commands that follow each
/// other.
pub(super) const QUIET: Duration = Duration::from_us(200);
const COMMAND_BYTES: u32 = 4 << 10;
/// A sync of the backing store.
const FLUSH_BYTES: u32 = 32 << 10;
/// The smallest block: what a namespace has is not known here.
const BLOCK_BYTES: u32 = 512;

/// How much of a turn a command takes: bytes that it moves, or about as many as the drive reads or writes for it.
fn weight(command: &Command) -> u32 {
    let blocks = (command.sqe.cdw12() & 0xFFFF) + 1;
    let bytes = match command.sqe.opcode() {
        opcode::VERIFY | opcode::WRITE_ZEROES => blocks * BLOCK_BYTES,
        opcode::FLUSH => FLUSH_BYTES,
        _ => command.pointer.len(),
    };
    bytes.max(COMMAND_BYTES)
}

/// Whether an I/O command has data for its host: bits 1:0 of its opcode.
fn is_read(sqe: &Sqe) -> bool {
    sqe.opcode() & 3 == 2
}

impl Target {
    /// A command of a controller of the subsystem: now, or once its host has taken enough.
    pub(super) fn pass_on(&mut self, index: usize, place: u16, function: u8, border: &mut dyn Border) {
        let Some((association, queue)) = self.peers[index].as_ref().and_then(|peer| peer.queue) else { return };
        if queue == 0 && self.aborts_held(index, place, function) {
            return;
        }
        if queue > 0 {
            let is_first = self.peers[index].as_ref().is_some_and(|peer| peer.held.is_empty());
            let may_begin = is_first && self.has_room_for(index, place, association);
            let peer = self.peers[index].as_mut().expect("a command comes by a connection");
            if !may_begin {
                if !self.holding.contains(&index) {
                    self.holding.push_back(index);
                }
                return peer.held.push_back(place);
            }
        }
        self.hand_in(index, place, (function, queue), border);
    }

    /// Ends a command that waits here, and then the Abort command that asks for it (NVM Express Base Specification 2.0,
    /// section 5.1): the drive knows nothing of it yet. False: it is no such Abort.
    fn aborts_held(&mut self, index: usize, place: u16, function: u8) -> bool {
        let Some(peer) = self.peers[index].as_mut() else { return false };
        let sqe = peer.connection.commands.at(place).sqe;
        if sqe.opcode() != admin_opcode::ABORT {
            return false;
        }
        let (queue, cid) = (sqe.cdw10() as u16, (sqe.cdw10() >> 16) as u16);
        let Some(other) = self.associations.peer(function, queue) else { return false };
        let Some(peer) = self.peers[other].as_ref() else { return false };
        let is_it = |held: &&u16| peer.connection.commands.get(**held).is_some_and(|command| command.sqe.cid() == cid);
        let Some(&held) = peer.held.iter().find(is_it) else { return false };
        self.respond(other, held, Response { status: Status::ABORT_REQUESTED, ..Response::default() });
        // Double word 0: it was aborted.
        self.respond(index, place, Response { status: Status::SUCCESS, ..Response::default() });
        true
    }

    fn hand_in(&mut self, index: usize, place: u16, (function, queue): (u8, u16), border: &mut dyn Border) {
        let commands = &mut self.peers[index].as_mut().expect("a command comes by a connection").connection.commands;
        let command = commands.at(place);
        let (sqe, len, weight) = (command.sqe, command.pointer.len(), weight(command));
        if queue > 0 && is_read(&sqe) {
            commands.promise(place, len);
        }
        if queue > 0
            && let Some((_, association)) = self.associations.of_function(function)
        {
            association.begin(weight);
        }
        border.input(Input::Capsule { function, queue, sqe });
    }

    /// Whether the drive may work on a command: its host has not begun enough in this turn, and takes its data.
    fn has_room_for(&self, index: usize, place: u16, association: usize) -> bool {
        let connection = &self.peers[index].as_ref().expect("a command comes by a connection").connection;
        let command = connection.commands.get(place).expect("it waits");
        let Some(association) = self.associations.get(association) else { return true };
        if !association.may_begin(weight(command), TURN_BYTES) && self.associations.len() > 1 {
            return false;
        }
        if !is_read(&command.sqe) || connection.promised() == 0 {
            return true;
        }
        let queues = association.peers().filter_map(|index| self.peers[index].as_ref());
        let all: u64 = queues.map(|peer| peer.connection.promised()).sum();
        let hosts = self.associations.len().max(1) as u64;
        all + u64::from(command.pointer.len()) <= READS_BYTES_MAX.min(READS_OF_ALL / hosts)
    }

    /// A turn begins: hands in what waited for it, or for hosts that have taken their data. Returns whether there was
    /// some, and whether some waits for [`QUIET`] at most.
    pub(super) fn resume_held(&mut self, border: &mut dyn Border) -> (bool, bool) {
        let mut any = false;
        let have_begun = self.associations.begin_turn(TURN_BYTES, QUIET, self.now);
        for _ in 0..self.holding.len() {
            let Some(index) = self.holding.pop_front() else { break };
            while let Some((place, association, queue)) = self.first_held(index)
                && self.has_room_for(index, place, association)
            {
                let peer = self.peers[index].as_mut().expect("it was found");
                peer.held.pop_front();
                if let Some(function) = self.associations.get(association).and_then(|one| one.function()) {
                    self.hand_in(index, place, (function, queue), border);
                    any = true;
                }
            }
            if self.first_held(index).is_some() {
                self.holding.push_back(index);
            }
        }
        if self.holding.len() > 1 {
            // Another one comes first in the next turn.
            self.holding.rotate_left(1);
        }
        (any, have_begun && !any && !self.holding.is_empty())
    }

    /// The first command that a connection holds back, and the controller and the queue that it is.
    fn first_held(&self, index: usize) -> Option<(u16, usize, u16)> {
        let peer = self.peers.get(index)?.as_ref()?;
        let (association, queue) = peer.queue?;
        Some((*peer.held.front()?, association, queue))
    }
}
