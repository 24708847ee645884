//! The memory that a simulated host lends to its drive (host memory buffer): it keeps the stamp of each unit instead of
//! its bytes, answers the drive's accesses, and does what a [`HostFaultPlan`] says.
//!
//! [`LentMemory`] is for a caller that drives a device event by event: hand it each [`Output::HostMemory`] by
//! [`LentMemory::take`], and hand the device what [`LentMemory::input`] gives when [`LentMemory::next_at`] has come.
//! [`Lent`] is the same as middleware around any world of the drive loop. [`LentMemory::lend`],
//! [`LentMemory::withdraw`] and [`LentMemory::take_away`] do at run time what Set Features does to a served drive;
//! [`settle`] does one of them between two requests and waits until it is done.

use std::collections::BTreeMap;
use tidewater_base::Instant;
use tidewater_core::device::{Device, Input, Output};
use tidewater_core::drive::World;
use tidewater_core::host::Submission;
use tidewater_core::host_memory::{Access, Answer, HostFault, HostFaultPlan, Lending, Operation, Stamp, State, Ticket};
use tidewater_core::profile::Profile;
use tidewater_nand::Medium;

/// A unit, as it was written.
#[derive(Clone, Copy, Debug)]
struct Unit {
    len: u32,
    stamp: Stamp,
    content: u64,
    damaged: bool,
}

#[derive(Clone, Copy, Debug)]
enum Pending {
    Lending(Lending),
    Answer(Ticket, Answer),
}

/// Memory that a host lends.
#[derive(Clone, Debug, Default)]
pub struct LentMemory {
    /// By where they begin. What is taken back stays as it is, in case it is lent again.
    units: BTreeMap<u64, Unit>,
    /// Bytes that are lent; 0: none are, and accesses find nothing.
    bytes: u64,
    plan: HostFaultPlan,
    pending: BTreeMap<(Instant, u64), Pending>,
    order: u64,
    accesses: u64,
    faults: u64,
    /// It has asked for the memory, and the drive has not given it back yet.
    withdrawing: bool,
}

impl LentMemory {
    /// A host that lends nothing yet, and to whose memory this happens.
    pub fn new(plan: HostFaultPlan) -> LentMemory {
        LentMemory { plan, ..LentMemory::default() }
    }

    /// A host that lends what the profile says from `now` on, if the drive has use for it. As Linux does, it lends
    /// nothing where that is less than the drive's least.
    pub fn of_profile(profile: &Profile, device: &Device<impl Medium>, now: Instant) -> LentMemory {
        let mut host = LentMemory::default();
        let wanted = device.host_memory().wanted();
        let bytes = LentMemory::offer(profile, wanted);
        if profile.hmb.enabled && wanted > 0 && bytes >= profile.serve.hmb_min {
            host.lend(now, bytes, false);
        }
        host
    }

    /// Bytes that a host that lends memory has for a drive that has use for `wanted`. A drive takes no less than its
    /// least.
    pub(crate) fn offer(profile: &Profile, wanted: u64) -> u64 {
        if profile.hmb.size > 0 { profile.hmb.size } else { wanted }
    }

    fn schedule(&mut self, at: Instant, what: Pending) {
        self.order += 1;
        self.pending.insert((at, self.order), what);
    }

    /// Lends so many bytes. What is lent already is withdrawn by [`LentMemory::withdraw`] first, or taken away.
    /// `returned`: the drive learns that this is the memory of before, unchanged; whether it is, its checks will say.
    pub fn lend(&mut self, now: Instant, bytes: u64, returned: bool) {
        self.bytes = bytes;
        self.schedule(now, Pending::Lending(Lending::Lend { bytes, returned }));
    }

    /// Asks for the memory; the drive may use it until [`Output::HostMemoryFree`].
    pub fn withdraw(&mut self, now: Instant) {
        self.withdrawing = true;
        self.schedule(now, Pending::Lending(Lending::Withdraw));
    }

    /// Takes the memory away without notice: the drive finds out.
    pub fn take_away(&mut self) {
        self.bytes = 0;
    }

    /// Takes the memory away, and notifies the drive at once.
    pub fn take_away_with_notice(&mut self, now: Instant) {
        self.take_away();
        self.schedule(now, Pending::Lending(Lending::Gone));
    }

    /// Corrupts the contents of every unit.
    pub fn corrupt_all(&mut self) {
        self.units.values_mut().for_each(|unit| unit.damaged = true);
    }

    /// The drive has lost its power: it waits for no answer any more.
    pub fn power_cut(&mut self) {
        self.pending.clear();
        self.bytes = 0;
        self.withdrawing = false;
    }

    /// Whether it waits for the drive to give its memory back.
    pub fn is_withdrawing(&self) -> bool {
        self.withdrawing
    }

    /// This happens to the memory.
    #[must_use]
    pub fn with_plan(self, plan: HostFaultPlan) -> LentMemory {
        LentMemory { plan, ..self }
    }

    /// Bytes that are lent.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Accesses that were carried out, and faults of the plan that happened.
    pub fn counts(&self) -> (u64, u64) {
        (self.accesses, self.faults)
    }

    /// Takes what the drive says; true if it was about host memory.
    #[inline]
    pub fn take(&mut self, now: Instant, output: &Output) -> bool {
        match output {
            Output::HostMemory(access) => self.access(now, access),
            Output::HostMemoryFree => {
                self.bytes = 0;
                self.withdrawing = false;
            }
            _ => return false,
        }
        true
    }

    fn access(&mut self, now: Instant, access: &Access) {
        self.accesses += 1;
        let (mut at, mut corrupted, mut stale) = (now, false, false);
        for fault in self.plan.at(access.serial) {
            self.faults += 1;
            match fault {
                HostFault::Withdrawn => self.bytes = 0,
                HostFault::Corrupted => corrupted = true,
                HostFault::Stale => stale = true,
                HostFault::Slow(by) => at += by,
            }
        }
        let end = access.offset + u64::from(access.len);
        let answer = match access.operation {
            _ if end > self.bytes => Answer::Gone,
            Operation::Write { content } => {
                if !stale {
                    let over = self.units.range(..end).filter(|(at, unit)| *at + u64::from(unit.len) > access.offset);
                    let over: Vec<u64> = over.map(|(&at, _)| at).collect();
                    for at in over {
                        self.units.remove(&at);
                    }
                    let unit = Unit { len: access.len, stamp: access.stamp, content, damaged: corrupted };
                    self.units.insert(access.offset, unit);
                }
                Answer::Written
            }
            Operation::Read => {
                if stale {
                    self.units.remove(&access.offset);
                }
                match self.units.get_mut(&access.offset) {
                    Some(unit) => {
                        unit.damaged |= corrupted;
                        let Unit { stamp, content, damaged, .. } = *unit;
                        if damaged { Answer::Damaged } else { Answer::Found { stamp, content } }
                    }
                    None => Answer::Damaged,
                }
            }
        };
        self.schedule(at, Pending::Answer(access.ticket, answer));
    }

    /// When the drive gets its next input; [`Instant::NEVER`]: not before it has an output.
    #[inline]
    pub fn next_at(&self) -> Instant {
        self.pending.first_key_value().map_or(Instant::NEVER, |((at, _), _)| *at)
    }

    /// Inputs of the drive up to `now`.
    #[inline]
    pub fn input(&mut self, now: Instant) -> Option<Input<'static>> {
        if self.next_at() > now {
            return None;
        }
        let (_, pending) = self.pending.pop_first()?;
        Some(match pending {
            Pending::Lending(lending) => Input::Lending(lending),
            Pending::Answer(ticket, answer) => Input::HostMemory { ticket, answer },
        })
    }
}

/// A world whose host lends memory.
#[derive(Debug)]
pub struct Lent<'a, W> {
    /// The rest of the world.
    pub world: &'a mut W,
    /// The memory.
    pub memory: &'a mut LentMemory,
}

impl<M: Medium, W: World<Device<M>>> World<Device<M>> for Lent<'_, W> {
    #[inline]
    fn next_at(&self) -> Instant {
        self.world.next_at().min(self.memory.next_at())
    }

    #[inline]
    fn submit(&mut self, now: Instant) -> Option<Input<'_>> {
        if let Some(input) = self.memory.input(now) {
            return Some(input);
        }
        self.world.submit(now)
    }

    fn refused(&mut self, submission: Submission) {
        self.world.refused(submission);
    }

    #[inline]
    fn take(&mut self, now: Instant, output: Output, device: &Device<M>) {
        if !self.memory.take(now, &output) {
            self.world.take(now, output, device);
        }
    }

    #[inline]
    fn stop(&mut self, now: Instant, device: &Device<M>) -> bool {
        self.world.stop(now, device)
    }
}

/// Gives a drive that serves nothing so much host memory, from the instant `now` on: 0 takes it back in order, another
/// size than before does that first. Returns when that is done; the drive's own work goes on meanwhile.
///
/// # Errors
/// The drive's first output that does not concern host memory: it was serving after all.
pub fn settle<M: Medium>(
    device: &mut Device<M>,
    memory: &mut LentMemory,
    now: Instant,
    bytes: u64,
) -> Result<Instant, Output> {
    let mut now = now.max(device.now());
    if memory.bytes() > 0 || device.host_memory().state() != State::Absent {
        memory.withdraw(now);
        now = run(device, memory, now, State::Absent)?;
    }
    if bytes > 0 {
        memory.lend(now, bytes, false);
        now = run(device, memory, now, State::Lent)?;
    }
    Ok(now)
}

/// Runs a drive until its host memory is in this state, and nothing of that is under way.
fn run<M: Medium>(
    device: &mut Device<M>,
    memory: &mut LentMemory,
    mut now: Instant,
    until: State,
) -> Result<Instant, Output> {
    loop {
        while let Some(output) = device.poll() {
            if !memory.take(now, &output) {
                return Err(output);
            }
        }
        let due = memory.next_at();
        if due == Instant::NEVER && device.host_memory().state() == until {
            return Ok(now);
        }
        let event = device.deadline().unwrap_or(Instant::NEVER);
        assert!(due.min(event) < Instant::NEVER, "the drive neither takes nor gives back host memory");
        now = now.max(due.min(event));
        let input = if event <= now { Some(Input::Timer) } else { memory.input(now) };
        let taken = device.handle(now, input.expect("something is due"));
        debug_assert!(taken.is_ok(), "only Submit is refused");
    }
}
