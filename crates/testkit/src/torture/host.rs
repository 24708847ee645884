//! The host of a campaign: random commands, one event at a time, with the oracle beside it.

use super::{EVENTS_MAX, Scenario, Victim};
use std::collections::BTreeMap;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::device::{Input, Output};
use tidewater_core::host::Submission;
use tidewater_sim::host_memory::LentMemory;
use tidewater_sim::oracle::Oracle;
use tidewater_wire::nvme::{DsmRange, Sqe, Status};

/// How often each command comes, as weights.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Writes that may stay in a volatile buffer.
    pub write: u64,
    /// Writes with Force Unit Access.
    pub write_fua: u64,
    /// Reads.
    pub read: u64,
    /// Compares.
    pub compare: u64,
    /// Flushes.
    pub flush: u64,
    /// Deallocations by Dataset Management.
    pub deallocate: u64,
    /// Writes of zeroes, a quarter of them with Force Unit Access.
    pub write_zeroes: u64,
}

impl Mix {
    /// Everything, mostly writes.
    pub const ALL: Mix =
        Mix { write: 60, write_fua: 8, read: 12, compare: 4, flush: 6, deallocate: 5, write_zeroes: 5 };

    /// Writes that are overwritten soon, and hardly anything that makes them durable.
    pub const OVERWRITE: Mix =
        Mix { write: 90, write_fua: 1, read: 4, compare: 1, flush: 2, deallocate: 1, write_zeroes: 1 };

    /// Deallocation and flushes all the time.
    pub const DEALLOCATE: Mix =
        Mix { write: 45, write_fua: 5, read: 5, compare: 2, flush: 10, deallocate: 20, write_zeroes: 13 };

    /// Nothing.
    pub const NONE: Mix = Mix { write: 0, write_fua: 0, read: 0, compare: 0, flush: 0, deallocate: 0, write_zeroes: 0 };

    pub(super) fn total(&self) -> u64 {
        self.write + self.write_fua + self.read + self.compare + self.flush + self.deallocate + self.write_zeroes
    }
}

/// Pages that one command touches at most.
const PAGES_MAX: u32 = 6;
/// The host waits after one command in so many.
const PAUSE_EVERY: u64 = 40;

#[derive(Clone, Debug)]
enum What {
    Read,
    Compare { pages: Vec<u32>, tag: u64 },
    Change,
    Flush,
}

#[derive(Clone, Debug)]
struct InFlight {
    id: u64,
    what: What,
}

/// The host.
#[derive(Clone, Debug)]
pub(super) struct Host {
    rng: Rng,
    oracle: Oracle,
    in_flight: BTreeMap<(u16, u16), InFlight>,
    mix: Mix,
    depth: usize,
    queues: u16,
    blocks_per_page: u32,
    lossy: bool,
    may_wear_out: bool,
    now: Instant,
    paused_until: Instant,
    cid: u16,
    tag: u64,
    reads_first: u32,
    commands: u64,
    reads_checked: u64,
    memory: LentMemory,
}

impl Host {
    /// A host that lends `memory`.
    pub(super) fn new(scenario: &Scenario, oracle: Oracle, now: Instant, seed: u64, memory: LentMemory) -> Host {
        let mut rng = Rng::new(seed, b"torture host");
        // Tags of different lives must not be mistaken for each other.
        let tag = rng.next_u64() >> 24 << 20;
        let profile = &scenario.profile;
        Host {
            mix: scenario.mix,
            depth: scenario.queue_depth as usize,
            queues: profile.host.queues as u16,
            blocks_per_page: profile.ftl.unit_size / profile.host.block_size,
            lossy: scenario.lossy,
            may_wear_out: scenario.may_wear_out,
            rng,
            oracle,
            in_flight: BTreeMap::new(),
            now,
            paused_until: now,
            cid: 0,
            tag,
            reads_first: 0,
            commands: 0,
            reads_checked: 0,
            memory,
        }
    }

    /// The memory that it lends.
    pub(super) fn memory(&mut self) -> &mut LentMemory {
        &mut self.memory
    }

    /// When it last did or saw something.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    pub(super) fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// Commands completed.
    pub(super) fn commands(&self) -> u64 {
        self.commands
    }

    /// Pages and compares that were checked against the oracle.
    pub(super) fn reads_checked(&self) -> u64 {
        self.reads_checked
    }

    /// The next commands are reads, before anything is written.
    pub(super) fn read_first(&mut self, reads: u32) {
        self.reads_first = reads;
    }

    /// One event: a command is submitted, or a timer of the device falls due.
    pub(super) fn step(&mut self, device: &mut Victim) -> Result<(), String> {
        let deadline = device.deadline().unwrap_or(Instant::NEVER);
        let submits = self.submits_at();
        let answers = self.memory.next_at();
        if answers <= submits.min(deadline) && answers < Instant::NEVER {
            self.now = self.now.max(answers);
            let input = self.memory.input(self.now).ok_or("an answer is due")?;
            device.handle(self.now, input).map_err(|_| "an answer was refused")?;
            return self.take_outputs(device);
        }
        if deadline == Instant::NEVER && submits == Instant::NEVER {
            return Err(format!("the drive hangs:\n{}", device.describe_outstanding()));
        }
        // The first of both; of two at one instant, either.
        if submits < deadline || submits == deadline && self.rng.below(2) == 0 {
            self.now = submits;
            self.submit(device)?;
        } else {
            self.now = deadline;
            device.handle(deadline, Input::Timer).map_err(|_| "a timer was refused")?;
        }
        self.take_outputs(device)
    }

    /// When it submits its next command; [`Instant::NEVER`] before a completion.
    pub(super) fn submits_at(&self) -> Instant {
        if self.in_flight.len() < self.depth { self.paused_until.max(self.now) } else { Instant::NEVER }
    }

    /// Submits a command at `now`, for a caller that drives the device itself.
    pub(super) fn submit_at(&mut self, now: Instant, device: &mut Victim) -> Result<(), String> {
        self.now = now;
        self.submit(device)
    }

    /// Submits nothing more and waits for what is under way.
    pub(super) fn come_to_rest(&mut self, device: &mut Victim) -> Result<(), String> {
        for _ in 0..EVENTS_MAX {
            let answers = self.memory.next_at();
            if answers < Instant::NEVER && device.deadline().is_none_or(|at| answers <= at) {
                self.now = self.now.max(answers);
                let input = self.memory.input(self.now).ok_or("an answer is due")?;
                device.handle(self.now, input).map_err(|_| "an answer was refused")?;
                self.take_outputs(device)?;
                continue;
            }
            let Some(at) = device.deadline() else {
                if self.in_flight.is_empty() && device.outstanding() == 0 {
                    return Ok(());
                }
                return Err(format!("commands never end:\n{}", device.describe_outstanding()));
            };
            self.now = at;
            device.handle(at, Input::Timer).map_err(|_| "a timer was refused")?;
            self.take_outputs(device)?;
        }
        Err(format!("the drive does not come to rest:\n{}", device.describe_outstanding()))
    }

    /// Pages for a command: mostly in a small hot part.
    fn pick(&mut self, most: u32) -> std::ops::Range<u32> {
        let all = self.oracle.pages();
        let hot = (all / 5).max(1);
        let first = if self.rng.below(4) > 0 { self.rng.below(hot.into()) } else { self.rng.below(all.into()) } as u32;
        let count = if self.rng.below(2) == 0 { 1 } else { 1 + self.rng.below(most.into()) as u32 };
        first..(first + count).min(all)
    }

    /// Blocks within these pages: mostly whole pages.
    fn blocks(&mut self, pages: std::ops::Range<u32>) -> (u64, u32) {
        let (mut first, mut end) =
            (u64::from(pages.start * self.blocks_per_page), u64::from(pages.end * self.blocks_per_page));
        if self.rng.below(4) == 0 && self.blocks_per_page > 1 {
            let inset = u64::from(self.blocks_per_page) - 1;
            first += self.rng.below(inset + 1);
            end -= self.rng.below(inset + 1);
            if end <= first {
                end = first + 1;
            }
        }
        (first, (end - first) as u32)
    }

    fn submit(&mut self, device: &mut Victim) -> Result<(), String> {
        if self.rng.below(PAUSE_EVERY) == 0 {
            self.paused_until = self.now + Duration::from_us(1 + self.rng.below(3_000));
        }
        let queue = self.rng.below(self.queues.into()) as u16;
        // 64 identifiers for at most 16 commands: the next one in turn may still be under way, the one after that is
        // not.
        while self.in_flight.contains_key(&(queue, self.cid)) {
            self.cid = (self.cid + 1) % 64;
        }
        let cid = self.cid;
        self.cid = (self.cid + 1) % 64;
        self.tag += 1;
        let mut submission = Submission::new(Sqe::flush(cid), self.tag);
        let mix = self.mix;
        let mut dice = self.rng.below(mix.total());
        let mut comes = |weight: u64| {
            let hit = dice < weight;
            dice = dice.wrapping_sub(weight);
            hit
        };
        let reads = self.reads_first > 0;
        self.reads_first = self.reads_first.saturating_sub(1);
        let in_flight = if comes(mix.read) || reads {
            let pages = if reads { self.anywhere() } else { self.pick(PAGES_MAX) };
            let (first, blocks) = self.blocks(pages);
            submission.sqe = Sqe::read(cid, first, (blocks - 1) as u16);
            InFlight { id: self.oracle.read(), what: What::Read }
        } else if comes(mix.write) {
            self.write(&mut submission, false)
        } else if comes(mix.write_fua) {
            self.write(&mut submission, true)
        } else if comes(mix.flush) {
            InFlight { id: self.oracle.flush(), what: What::Flush }
        } else if comes(mix.compare) {
            let pages = self.pick(2);
            let (first, blocks) = self.blocks(pages.clone());
            // What the first page certainly holds, or anything.
            let tag = self.oracle.certain(pages.start).flatten().unwrap_or(self.tag);
            submission.tag = tag;
            submission.sqe = Sqe::compare(cid, first, (blocks - 1) as u16);
            let pages = self.pages_of(first, blocks).collect();
            InFlight { id: self.oracle.read(), what: What::Compare { pages, tag } }
        } else if comes(mix.deallocate) {
            self.deallocate(&mut submission)
        } else {
            self.write_zeroes(&mut submission)
        };
        self.in_flight.insert((queue, cid), in_flight);
        let full = |_| "a queue was full that should have had room".to_string();
        device.handle(self.now, Input::Submit { queue, submission }).map_err(full)
    }

    fn anywhere(&mut self) -> std::ops::Range<u32> {
        let first = self.rng.below(self.oracle.pages().into()) as u32;
        first..(first + PAGES_MAX).min(self.oracle.pages())
    }

    fn pages_of(&self, first: u64, blocks: u32) -> std::ops::Range<u32> {
        let per_page = u64::from(self.blocks_per_page);
        (first / per_page) as u32..(first + u64::from(blocks)).div_ceil(per_page) as u32
    }

    /// The pages that blocks cover as a whole.
    fn whole_pages_of(&self, first: u64, blocks: u32) -> std::ops::Range<u32> {
        let per_page = u64::from(self.blocks_per_page);
        first.div_ceil(per_page) as u32..((first + u64::from(blocks)) / per_page) as u32
    }

    fn write(&mut self, submission: &mut Submission, fua: bool) -> InFlight {
        let pages = self.pick(PAGES_MAX);
        let (first, blocks) = self.blocks(pages);
        let sqe = Sqe::write(submission.sqe.cid(), first, (blocks - 1) as u16);
        submission.sqe = if fua { sqe.with_fua() } else { sqe };
        let pages = self.pages_of(first, blocks);
        InFlight { id: self.oracle.write(pages, submission.tag, fua), what: What::Change }
    }

    fn write_zeroes(&mut self, submission: &mut Submission) -> InFlight {
        let pages = self.pick(PAGES_MAX);
        let (first, blocks) = self.blocks(pages);
        let fua = self.rng.below(4) == 0;
        let sqe = Sqe::write_zeroes(submission.sqe.cid(), first, (blocks - 1) as u16, self.rng.below(2) == 0);
        submission.sqe = if fua { sqe.with_fua() } else { sqe };
        let whole = self.whole_pages_of(first, blocks);
        let tag = submission.tag;
        let pages = self.pages_of(first, blocks).map(|lpn| (lpn, (!whole.contains(&lpn)).then_some(tag)));
        InFlight { id: self.oracle.write_zeroes(pages, fua), what: What::Change }
    }

    fn deallocate(&mut self, submission: &mut Submission) -> InFlight {
        let mut pages = Vec::new();
        let ranges: Box<[DsmRange]> = (0..1 + self.rng.below(3))
            .map(|_| {
                let range = self.pick(3 * PAGES_MAX);
                let (first, blocks) = self.blocks(range);
                pages.extend(self.whole_pages_of(first, blocks));
                DsmRange::new(first, blocks)
            })
            .collect();
        submission.sqe = Sqe::dataset_management(submission.sqe.cid(), (ranges.len() - 1) as u8, true);
        submission.ranges = Some(ranges);
        InFlight { id: self.oracle.deallocate(pages), what: What::Change }
    }

    fn take_outputs(&mut self, device: &mut Victim) -> Result<(), String> {
        while let Some(output) = device.poll() {
            self.take(device, output)?;
        }
        Ok(())
    }

    /// Takes what the device says.
    pub(super) fn take(&mut self, device: &Victim, output: Output) -> Result<(), String> {
        if self.memory.take(device.now(), &output) {
            return Ok(());
        }
        match output {
            Output::Data { queue, cid, lpn, place } => {
                let id = self.in_flight.get(&(queue, cid)).ok_or("data for a command that is not under way")?.id;
                self.reads_checked += 1;
                self.oracle.check_read(id, lpn, place.version()).map_err(|v| v.to_string())
            }
            Output::Complete(completion) => {
                let key = (completion.queue, completion.cqe.cid);
                let done = self.in_flight.remove(&key).ok_or("a completion of a command that is not under way")?;
                self.commands += 1;
                self.complete(device, &done, completion.cqe.status)
            }
            other => Err(format!("{other:?} is not for the block side")),
        }
    }

    fn complete(&mut self, device: &Victim, done: &InFlight, status: Status) -> Result<(), String> {
        let is = |expected: Status| status.same_code(expected);
        let mut success = status.is_success();
        let read_only = self.may_wear_out && device.ftl().is_read_only();
        let expected = match &done.what {
            What::Compare { pages, tag } if success || is(Status::COMPARE_FAILURE) => {
                self.reads_checked += 1;
                self.oracle.check_compare(done.id, pages, *tag, success).map_err(|v| v.to_string())?;
                success = true;
                true
            }
            What::Read | What::Compare { .. } => success || self.lossy && is(Status::UNRECOVERED_READ_ERROR),
            What::Change => {
                let refused = is(Status::NAMESPACE_WRITE_PROTECTED) || is(Status::WRITE_FAULT);
                success || read_only && refused || self.lossy && is(Status::UNRECOVERED_READ_ERROR)
            }
            What::Flush => success || read_only && is(Status::WRITE_FAULT),
        };
        self.oracle.completed(done.id, success);
        if expected { Ok(()) } else { Err(format!("{:?} ended with {status:?}", done.what)) }
    }
}
