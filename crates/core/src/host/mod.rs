//! The host side of the firmware: submission queues, arbitration, permits and the checks that every command passes.
//!
//! A front end [submits](Host::submit) entries. The device [fetches](Host::fetch) the next command by arbitration when
//! a slot is free, works on it, and [completes](Host::complete) it. A [`Permit`] holds the slot from fetch to
//! completion, so a command that was admitted can always be completed, and each is completed once. Admission never
//! loses a command: a full ring gives it back, and a full slot table leaves it in its ring.
//!
//! Sections are those of the NVM Express Base Specification, revision 1.4. Queues are numbered from 0 here; on the wire
//! queue `q` is I/O submission queue `q + 1`, because 0 is the admin queue. Each submission queue has a completion
//! queue of its own with as many entries.

mod arbitration;
mod permits;
mod queues;
mod request;
#[cfg(test)]
mod tests;

pub use arbitration::Turns;
pub use permits::{Permit, Slot};
pub use queues::Submission;
pub use request::{Bounds, Request, check_range, parse_without_pointer, without_pointer};

use crate::profile::HostProfile;
use arbitration::Arbiter;
use permits::{CommandIds, Slots};
use queues::SubmissionQueues;
use std::collections::VecDeque;
use std::hint::cold_path;
use tidewater_wire::nvme::{Command, Cqe, DsmRange, Kind, NSID_ALL, Sqe, Status};

/// A namespace: what its blocks are and whether they may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace identifier, from 1.
    pub id: u32,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Of these, the first that host commands may change: behind them lie the fast side's LBA rings.
    pub writable_blocks: u64,
    /// Bytes of a block as a power of two: 9 or 12.
    pub block_shift: u8,
    /// Writes are refused: the drive is at the end of its life, or the host has set write protection (section 8.19).
    pub read_only: bool,
}

/// A command's end, for the front end to pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The queue it belongs to, from 0.
    pub queue: u16,
    /// The completion queue entry, with head pointer and phase tag.
    pub cqe: Cqe,
}

/// Where the next completion of a queue goes.
#[derive(Clone, Debug)]
struct CompletionQueue {
    tail: u32,
    phase: bool,
}

/// The host side of one controller.
#[derive(Clone, Debug)]
pub struct Host {
    queues: SubmissionQueues,
    /// Commands of a front end with queues of its own, until there is a slot for them.
    requests: VecDeque<Request>,
    arbiter: Arbiter,
    slots: Slots,
    command_ids: CommandIds,
    completions: Box<[CompletionQueue]>,
    completion_entries: u32,
    transfer_max: u64,
    namespace: Namespace,
}

impl Host {
    /// A controller without commands. All memory is reserved here. Asserts the ranges that a checked profile keeps.
    pub fn new(profile: &HostProfile, namespace: Namespace) -> Host {
        assert!(profile.transfer_max > 0, "[host] transfer_max is 0");
        assert!(namespace.id != 0 && namespace.id != NSID_ALL, "{} is no namespace identifier", namespace.id);
        assert!(namespace.block_shift < 32, "a block of 2^{} bytes", namespace.block_shift);
        Host {
            queues: SubmissionQueues::new(profile.queues, profile.queue_entries),
            requests: VecDeque::new(),
            arbiter: Arbiter::new(profile),
            slots: Slots::new(profile.outstanding_max),
            command_ids: CommandIds::new(profile.queues),
            completions: vec![CompletionQueue { tail: 0, phase: true }; profile.queues as usize].into_boxed_slice(),
            completion_entries: profile.queue_entries,
            transfer_max: u64::from(profile.transfer_max),
            namespace,
        }
    }

    /// Appends a command to submission queue `queue` (from 0), or gives it back when that ring is full: it holds one
    /// command less than `[host] queue_entries`. Asserts that the queue exists.
    #[inline]
    pub fn submit(&mut self, queue: u16, submission: Submission) -> Result<(), Submission> {
        self.queues.push(queue, submission)
    }

    /// Takes the next command by arbitration and a slot for it. `None`: no command waits, or no slot is free.
    ///
    /// A command that cannot be executed takes a slot too: [`Slot::command`] then holds the status to complete it with.
    #[inline(never)]
    pub fn fetch(&mut self) -> Option<Permit> {
        if self.slots.is_full() {
            return None;
        }
        if let Some(request) = self.requests.pop_front() {
            return Some(self.take(request));
        }
        let queue = self.arbiter.pick(self.queues.occupied())?;
        let submission = self.queues.pop(queue);
        Some(self.admit(queue, submission))
    }

    /// As [`Host::submit`] and then [`Host::fetch`], but where no command waits and a slot is free, as most of the
    /// time, the command bypasses the ring, which is only notified.
    #[inline(always)]
    pub fn submit_and_fetch(&mut self, queue: u16, submission: Submission) -> Result<Option<Permit>, Submission> {
        if self.queues.occupied() != 0 || self.slots.is_full() {
            cold_path();
            self.queues.push(queue, submission)?;
            return Ok(self.fetch());
        }
        self.queues.pass(queue);
        let picked = self.arbiter.pick(1 << queue);
        debug_assert_eq!(picked, Some(queue), "there is no other");
        Ok(Some(self.admit(queue, submission)))
    }

    /// Gives a command a slot; there is one.
    // Always inlined: an entry that was just built then never goes through memory.
    #[inline(always)]
    fn admit(&mut self, queue: u16, submission: Submission) -> Permit {
        let Submission { sqe, tag, ranges } = submission;
        let cid = sqe.cid();
        let holds_cid = self.command_ids.enter(queue, cid);
        let command = if holds_cid { self.check(&sqe, ranges.as_deref()) } else { Err(Status::COMMAND_ID_CONFLICT) };
        self.slots.take(Slot { queue, cid, tag, command, ranges, holds_cid, taken: true })
    }

    /// The command of an entry, or the status that it must be completed with.
    #[inline(always)]
    fn check(&self, sqe: &Sqe, ranges: Option<&[DsmRange]>) -> Result<Command, Status> {
        let command = request::parse(sqe)?;
        self.validate(&command, &self.namespace)?;
        if let Kind::DatasetManagement { ranges: count, .. } = command.kind {
            self.bounds(&self.namespace).check_ranges(ranges.unwrap_or(&[]), count)?;
        }
        Ok(command)
    }

    /// Takes a command that was parsed and checked, and a slot for it. `None`: no slot is free, or it is to wait, and
    /// [`Host::fetch`] gives it one, before commands in queues.
    #[inline]
    pub fn begin(&mut self, request: Request, waits: bool) -> Option<Permit> {
        if waits || self.slots.is_full() || !self.requests.is_empty() {
            cold_path();
            self.requests.push_back(request);
            return None;
        }
        Some(self.take(request))
    }

    #[inline(always)]
    fn take(&mut self, request: Request) -> Permit {
        let Request { cid, tag, command, ranges } = request;
        // What it was checked against may have changed since.
        let is_refused = self.namespace.read_only && command.kind.modifies();
        let command = if is_refused { Err(Status::NAMESPACE_WRITE_PROTECTED) } else { Ok(command) };
        self.slots.take(Slot { queue: 0, cid, tag, command, ranges, holds_cid: false, taken: true })
    }

    /// Whether [`Host::fetch`] has something to take, if a slot is free.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        self.queues.occupied() != 0 || !self.requests.is_empty()
    }

    /// The command that a permit stands for. Asserts that it is outstanding.
    #[inline]
    pub fn slot(&self, permit: Permit) -> &Slot {
        self.slots.get(permit)
    }

    /// Ends a command and frees its slot. `dw0` is the command-specific double word, 0 for the NVM command set. Asserts
    /// that the command is outstanding.
    #[inline(always)]
    pub fn complete(&mut self, permit: Permit, status: Status, dw0: u32) -> Completion {
        let &Slot { queue, cid, holds_cid, .. } = self.slots.release(permit);
        if holds_cid {
            self.command_ids.leave(queue, cid);
        }
        let completions = &mut self.completions[usize::from(queue)];
        let phase = completions.phase;
        completions.tail += 1;
        if completions.tail == self.completion_entries {
            *completions = CompletionQueue { tail: 0, phase: !phase };
        }
        Completion { queue, cqe: Cqe { dw0, sq_head: self.queues.head(queue), sq_id: queue + 1, cid, phase, status } }
    }

    fn bounds(&self, namespace: &Namespace) -> Bounds {
        let &Namespace { blocks, writable_blocks, block_shift, read_only, .. } = namespace;
        Bounds { blocks, writable_blocks, block_shift, read_only, transfer_max: self.transfer_max }
    }

    /// Checks a command against a namespace.
    ///
    /// # Errors
    /// Invalid Namespace or Format: another namespace; Flush also takes [`NSID_ALL`]. Else as [`Bounds::check`].
    #[inline(always)]
    pub fn validate(&self, command: &Command, namespace: &Namespace) -> Result<(), Status> {
        if command.nsid != namespace.id && !(command.kind == Kind::Flush && command.nsid == NSID_ALL) {
            return Err(Status::INVALID_NAMESPACE);
        }
        self.bounds(namespace).check(command)
    }

    /// The namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Refuses or takes writes from now on. Commands already fetched are not checked again.
    pub fn set_read_only(&mut self, read_only: bool) {
        self.namespace.read_only = read_only;
    }

    /// Number of submission queues.
    pub fn queues(&self) -> usize {
        self.queues.count()
    }

    /// Commands fetched and not yet completed.
    pub fn outstanding(&self) -> usize {
        self.slots.taken()
    }

    /// Commands that can be outstanding at once.
    pub fn outstanding_max(&self) -> usize {
        self.slots.max()
    }

    /// Commands that have no slot yet.
    pub fn waiting(&self) -> usize {
        self.queues.waiting() + self.requests.len()
    }

    /// Commands in one submission queue. Asserts that it exists.
    pub fn waiting_in(&self, queue: u16) -> usize {
        self.queues.waiting_in(queue)
    }

    /// The outstanding commands, for printing the state.
    pub fn outstanding_commands(&self) -> impl Iterator<Item = (Permit, &Slot)> {
        self.slots.iter()
    }

    /// The commands in one submission queue, oldest first, for printing the state. Asserts that it exists.
    pub fn waiting_commands(&self, queue: u16) -> impl Iterator<Item = &Submission> {
        self.queues.iter(queue)
    }
}
