//! How an operation waits for a counter: reads it, and looks at the status register when it has not moved for a while,
//! instead of reading a stale counter for ever (the paper's section 7.1).

use tidewater_base::{Duration, Instant};
use tidewater_wire::vendor::{Role, TransportStatus};

use crate::lane::Lane;
use crate::{Action, Answer, Error, Health, Stall};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    AskCredit,
    CreditAsked,
    AskStatus,
    StatusAsked,
    Pause(Instant),
    Paused(Instant),
}

/// Waits until the credit reaches `wanted`.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    wanted: u64,
    step: Step,
    /// The credit when it last moved, and when that was.
    moved_to: u64,
    moved: Instant,
    looked: Instant,
}

impl Watch {
    pub(crate) fn new(lane: &Lane, wanted: u64, now: Instant) -> Watch {
        Watch { wanted, step: Step::AskCredit, moved_to: lane.credit, moved: now, looked: now }
    }

    /// The same wait for another offset: the clock goes on.
    pub(crate) fn want(&mut self, wanted: u64) {
        self.wanted = wanted;
        self.step = Step::AskCredit;
    }

    pub(crate) fn poll(&mut self, lane: &Lane) -> Option<Action> {
        let (action, next) = match self.step {
            Step::AskCredit => (Action::ReadCredit { lane: lane.setup.lane }, Step::CreditAsked),
            Step::AskStatus => (Action::ReadStatus, Step::StatusAsked),
            Step::Pause(until) => (Action::Wait { until }, Step::Paused(until)),
            Step::CreditAsked | Step::StatusAsked | Step::Paused(_) => return None,
        };
        self.step = next;
        Some(action)
    }

    /// Whether the credit suffices now.
    pub(crate) fn on(&mut self, lane: &mut Lane, now: Instant, answer: Answer) -> Result<bool, Error> {
        match (self.step, answer) {
            (Step::CreditAsked, Answer::Credit(credit)) => {
                lane.take_credit(credit)?;
                if lane.credit > self.moved_to {
                    (self.moved_to, self.moved, self.looked) = (lane.credit, now, now);
                }
                if lane.credit >= self.wanted {
                    return Ok(true);
                }
                let patience = lane.setup.patience;
                let late = now.since(self.moved) >= patience.timeout;
                self.step = if late || now.since(self.looked) >= patience.suspect {
                    Step::AskStatus
                } else {
                    Watch::pause(now, patience.poll)
                };
            }
            (Step::StatusAsked, Answer::Health(health)) => {
                self.looked = now;
                let cause = judge(lane, health)?;
                let waited = now.since(self.moved);
                if waited >= lane.setup.patience.timeout {
                    let cause = self.open_region(lane).unwrap_or(cause);
                    return Err(Error::Stalled { cause, waited, credit: lane.credit, wanted: self.wanted });
                }
                self.step = Watch::pause(now, lane.setup.patience.poll);
            }
            (Step::Paused(until), Answer::Time) => {
                self.step = if now >= until { Step::AskCredit } else { Step::Pause(until) };
            }
            (_, Answer::Gone) => return Err(Error::Gone),
            _ => {}
        }
        Ok(false)
    }

    fn pause(now: Instant, poll: Duration) -> Step {
        if poll.is_zero() { Step::AskCredit } else { Step::Pause(now + poll) }
    }

    /// The region that keeps the credit from the wanted offset, when nothing else does.
    fn open_region(&self, lane: &Lane) -> Option<Stall> {
        let region = lane.open_regions().next()?;
        let held = lane.gives_regions() && lane.credit >= lane.floor && self.wanted > lane.floor;
        held.then_some(Stall::OpenRegion { owner: region.owner, offset: region.offset })
    }
}

/// Judges a status for a writer: an end, or a reason to wait on.
fn judge(lane: &Lane, health: Health) -> Result<Stall, Error> {
    let Health { status, epoch, role } = health;
    if status.0 == u32::MAX {
        return Err(Error::Gone);
    }
    if status.is_broken(lane.setup.lane) {
        return Err(Error::StreamBroken { lane: lane.setup.lane });
    }
    if status.has(TransportStatus::DEPOSED) || epoch != lane.setup.epoch {
        return Err(Error::Deposed { ours: lane.setup.epoch, theirs: epoch });
    }
    if role == Role::Secondary {
        return Err(Error::NotPrimary { role });
    }
    if status.has(TransportStatus::DESTAGE_FAILED) {
        return Err(Error::DestageFailed);
    }
    Ok(if status.has(TransportStatus::PEER_UNREACHED) {
        Stall::PeerUnreached
    } else if status.has(TransportStatus::COUNTER_OVERDUE) {
        Stall::CounterOverdue
    } else if status.has(TransportStatus::WAITS_FOR_TRIM) {
        Stall::WaitsForTrim
    } else if status.has(TransportStatus::RECOVERING) {
        Stall::Recovering
    } else {
        Stall::Unexplained
    })
}
