//! The leader deadline: a primary that has one acknowledges nothing once it has passed, until it gets another.
//!
//! A process beside the device renews it as long as it may. One that is stopped, paused or gone renews nothing, and so
//! can't make a device acknowledge that should not. What was acknowledged is safe without it, by epochs: the deadline
//! bounds for how long a primary goes on that its members can't reach.

use super::state::{Frozen, Leader, Leadership};
use super::{CommandError, LocalLog, Role, Transport};
use tidewater_base::{Duration, Instant};
use tidewater_wire::replication::{Epoch, LANES_MAX};

/// No deadline is further away: days of picoseconds fill 64 bits.
const LASTS_MAX: Duration = Duration::from_ms(24 * 3_600 * 1_000);

impl Transport {
    /// Whether this primary may acknowledge, and until when.
    pub fn leadership(&self) -> Leadership {
        match (&self.leader.frozen, self.has_deadline()) {
            (Some(frozen), true) => Leadership::Frozen(frozen.since),
            (None, true) => Leadership::Until(self.leader.until),
            (_, false) => Leadership::Free,
        }
    }

    /// Whether this device acknowledges as primary until a deadline only.
    fn has_deadline(&self) -> bool {
        self.persistent.led && self.persistent.role == Role::Primary && self.candidate.is_none()
    }

    /// Whether its deadline has passed. One of another epoch is none.
    pub(super) fn is_frozen(&self) -> bool {
        let Leader { epoch, until, .. } = self.leader;
        self.has_deadline() && (epoch != self.persistent.history.last() || self.now >= until)
    }

    /// Takes a deadline.
    pub(super) fn lead(&mut self, epoch: Epoch, lasts: Option<Duration>) -> Result<(), CommandError> {
        let own = &self.persistent;
        let leads = own.role == Role::Primary && self.candidate.is_none();
        if lasts.is_some_and(|lasts| !lasts.is_zero()) && !(leads && own.history.last() == epoch) {
            return Err(CommandError::NotLeader(leads.then_some(own.history.last())));
        }
        self.persistent.change().led = lasts.is_some();
        let lasts = lasts.unwrap_or(Duration::ZERO).min(LASTS_MAX);
        (self.leader.epoch, self.leader.until) = (epoch, self.now + lasts);
        if !self.is_frozen() {
            self.leader.frozen = None;
            (0..self.lanes()).for_each(|lane| self.update_limit(lane));
        }
        self.wake = self.now;
        Ok(())
    }

    /// Holds what is acknowledged once the deadline has passed.
    pub(super) fn freeze_if_due(&mut self, log: &impl LocalLog) {
        if !self.is_frozen() {
            self.leader.frozen = None;
        } else if self.leader.frozen.is_none() {
            // A deadline may be noticed late, and one of an epoch before says nothing of this one.
            let past = self.leader.epoch == self.persistent.history.last();
            let since = if past { self.leader.until.min(self.now) } else { self.now };
            let mut durable = [0; LANES_MAX];
            for (lane, durable) in durable.iter_mut().enumerate().take(self.lanes()) {
                // A lazy group has no other limit.
                self.limit[lane] = self.limit[lane].min(log.persisted(lane));
                *durable = self.acknowledged_durable(lane).min(self.limit[lane]);
            }
            self.leader.frozen = Some(Frozen { since, durable });
        }
    }

    /// When the deadline passes.
    pub(super) fn leader_deadline(&self) -> Instant {
        if self.has_deadline() && !self.is_frozen() { self.leader.until } else { Instant::NEVER }
    }
}
