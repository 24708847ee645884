//! The side of a replica: it attaches to an epoch, takes log bytes, and reports its counters.

use super::{Flaw, LocalLog, Role, Transport, flag};
use tidewater_base::Instant;
use tidewater_wire::replication::{Attach, Durable, Epoch, LANES_MAX, Mode, Reason};

impl Transport {
    /// Whether this node follows `from` in `epoch`.
    pub(super) fn follows(&self, from: u8, epoch: Epoch) -> bool {
        self.attached() && epoch == self.persistent.promised && self.follower.upstream == Some(from)
    }

    /// Reports these lanes at the next tick of the report period; at once where that is configured and a period has
    /// passed.
    pub(super) fn report_soon(&mut self, lanes: u16) {
        if lanes == 0 || self.follower.upstream.is_none() {
            return;
        }
        self.follower.changed |= lanes;
        if self.follower.tick_at == Instant::NEVER {
            let period = self.config.report_period;
            if self.config.report_at_once {
                self.follower.tick_at = (self.follower.reported_at + period).max(self.now);
                return self.arm(self.follower.tick_at);
            }
            // Ticks stand at multiples of the period, as a free-running timer makes them.
            self.follower.tick_at = Instant::ZERO + period * (self.now.as_ps() / period.as_ps() + 1);
            self.arm(self.follower.tick_at);
        }
    }

    /// Reports these lanes at once where that is configured and nothing more of them is on its way, so that no later
    /// report says more; else at the next tick. `is_there`: members behind this one have all that it has.
    pub(super) fn report_moved(&mut self, lanes: u16, is_there: bool, log: &impl LocalLog) {
        let has_come = |lane: usize| lanes & 1 << lane == 0 || log.persisted(lane) >= self.follower.received[lane];
        let at_once = self.config.report_at_once && is_there && (0..self.lanes()).all(has_come);
        if !at_once || lanes == 0 || self.follower.upstream.is_none() {
            return self.report_soon(lanes);
        }
        let follower = &mut self.follower;
        follower.due |= lanes;
        follower.changed &= !lanes;
        (follower.reported_at, follower.keep_alive_at) = (self.now, self.now + self.config.keep_alive);
    }

    /// The persisted counter of a lane has moved.
    pub(super) fn persisted_moved(&mut self, lane: usize, log: &mut impl LocalLog) {
        if self.follower.upstream.is_some() {
            let all = self.all_lanes();
            let lanes = if self.note_sync(log) { all } else { 1 << lane };
            let is_last = self.peers.iter().all(|peer| peer.flow.is_none());
            self.report_moved(lanes, is_last, log);
        }
        self.flows_have_more(lane, log);
        if self.candidate.is_some() {
            self.pulled(lane, log);
        }
    }

    /// Notes that the log is complete up to where the epoch started, and that it has again what it lost. True when that
    /// is new.
    fn note_sync(&mut self, log: &impl LocalLog) -> bool {
        let own = &self.persistent;
        let epoch = own.history.last();
        let starts = own.history.last_offsets();
        let lanes = usize::from(self.config.lanes);
        let holds = |ends: [u64; LANES_MAX]| (0..lanes).all(|lane| log.persisted(lane) >= ends[lane]);
        let new = own.synced != epoch && holds(starts);
        if new {
            let own = self.persistent.change();
            own.synced = epoch;
            own.synced_in = own.group.version();
            own.rebuild = false;
            self.set_flag(flag::STALE, false);
        }
        let regain = if self.flaw.is(Flaw::RegainEarly) { Some(starts) } else { self.follower.regain };
        let regained = self.persistent.lost && regain.is_some_and(holds);
        if regained {
            self.persistent.change().lost = false;
        }
        new || regained
    }

    /// Whether it asks where the log ends: it has lost memory.
    pub(super) fn asks_for_ends(&self) -> bool {
        self.persistent.lost && self.follower.regain.is_none()
    }

    /// What the report of a lane says: synced, own counter, what is covered, and what is durable.
    pub(super) fn counters(&self, lane: usize, log: &impl LocalLog) -> (bool, u64, u64, Option<Durable>) {
        let own = &self.persistent;
        // Who may lack bytes that it had is not in step: it does not count in a promotion, either.
        let mut synced = own.synced == own.history.last() && !own.lost;
        let persisted = log.persisted(lane);
        let mut covered = persisted;
        let mut durable = Durable { destaged: log.destaged(lane).min(persisted), ring_survives: log.ring_survives() };
        // In a chain, what has come to the end; elsewhere a replica has no flow.
        for flow in self.peers.iter().filter_map(|peer| peer.flow.as_ref()) {
            synced &= flow.synced;
            let known = flow.known & 1 << lane != 0;
            covered = if known { covered.min(flow.covered[lane]) } else { 0 };
            durable.destaged = if known { durable.destaged.min(flow.destaged[lane]) } else { 0 };
            durable.ring_survives &= flow.ring_survives;
        }
        (synced, persisted, covered, self.config.report_destaged.then_some(durable))
    }

    /// The log of an epoch, from who sends it to this node.
    pub(super) fn attach(&mut self, from: u8, epoch: Epoch, attach: Attach, log: &mut impl LocalLog) {
        let own = &self.persistent;
        let group = attach.group;
        let outdated = |known: &super::Group| group.version() < known.version() && !group.same_as(known);
        if group.version() < own.floor {
            return self.refuse(from, epoch, Reason::Group);
        }
        if own.pending.as_ref().is_some_and(outdated) {
            return self.refuse(from, epoch, Reason::Pending);
        }
        let other = group.version() == own.group.version() && !group.same_as(&own.group);
        if other || attach.lanes != self.config.lanes {
            self.set_flag(flag::MISMATCH, true);
            return self.refuse(from, epoch, Reason::Mismatch);
        }
        let upstream = match group.mode() {
            Mode::Chain => super::predecessor(&group, epoch.node(), own.node),
            _ => Some(epoch.node()),
        };
        let members = group.contains(own.node) && group.contains(epoch.node()) && epoch.node() != own.node;
        if !members || upstream != Some(from) || attach.history.last() != epoch {
            return;
        }
        if self.attached() && own.promised == epoch {
            self.follower.heard(self.now);
            (self.follower.due, self.follower.full) = (self.all_lanes(), self.all_lanes());
            self.follower.regain = attach.ends.or(self.follower.regain);
            if !self.reaches(&attach, log) {
                self.refuse(from, epoch, Reason::Stale);
            }
            return;
        }
        if own.role == Role::Primary || self.candidate.is_some() || epoch > own.promised {
            self.depose(epoch, log);
        }
        let new = self.persistent.rebuild || self.persistent.synced == Epoch::ZERO;
        let keeps = self.shared(&attach.history, log);
        if keeps.is_none() && !new {
            self.set_flag(flag::STALE, true);
            return self.refuse(from, epoch, Reason::Stale);
        }
        let lanes = self.lanes();
        // It holds bytes, but not up to where the sender's begin.
        let gap = keeps.is_some_and(|ends| {
            (0..lanes).any(|lane| ends[lane] < attach.oldest[lane] && ends[lane] > log.oldest(lane))
        });
        if gap && !new {
            self.set_flag(flag::STALE, true);
            return self.refuse(from, epoch, Reason::Stale);
        }
        let keeps = keeps.filter(|_| !gap);
        let is_new = keeps.is_none() || self.persistent.synced == Epoch::ZERO;
        self.adopt(&attach.history, keeps, &attach.oldest, log);
        let own = self.persistent.change();
        own.group = group;
        own.floor = own.floor.max(group.version());
        own.pending = None;
        self.set_flag(flag::MISMATCH | flag::STALE | flag::REFUSED | flag::FAR_EPOCH, false);
        // What it acknowledged of earlier epochs, this one began with. Of one that has no log it may not know.
        self.follower.regain = if is_new { attach.ends } else { Some(attach.history.last_offsets()) };
        self.note_sync(log);
        self.reflow();
    }

    /// Whether all that this replica lacks can still be sent to it. With leave to rebuild it skips what can't.
    fn reaches(&mut self, attach: &Attach, log: &mut impl LocalLog) -> bool {
        for lane in 0..self.lanes() {
            let end = log.persisted(lane);
            if end < attach.oldest[lane] {
                if !self.persistent.rebuild && end > log.oldest(lane) {
                    self.set_flag(flag::STALE, true);
                    return false;
                }
                log.restart(lane, attach.oldest[lane]);
                self.persistent.log_cut();
                self.report_soon(1 << lane);
            }
        }
        self.note_sync(log);
        self.set_flag(flag::STALE, false);
        true
    }

    /// For each lane the end of what this log shares with the log of `history`; `None` when they share no epoch that
    /// both still know.
    pub(super) fn shared(
        &self,
        history: &tidewater_wire::replication::History,
        log: &impl LocalLog,
    ) -> Option<[u64; LANES_MAX]> {
        let own = &self.persistent;
        let (here, there) = own.history.common(history)?;
        // A synced epoch that was forgotten, not cut: nothing could be said of this log in a promotion any more.
        if own.history.starts()[here].epoch > own.synced && history.position(own.synced).is_none() {
            return None;
        }
        let mut ends = [0; LANES_MAX];
        for (lane, end) in ends.iter_mut().enumerate().take(self.lanes()) {
            let limit = |end: Option<u64>| end.unwrap_or(u64::MAX);
            *end = log.persisted(lane).min(limit(own.history.end(here, lane))).min(limit(history.end(there, lane)));
        }
        Some(ends)
    }

    /// Takes over a history: cuts each lane to `keeps`, or starts it over when there is nothing to keep or when it
    /// would not reach up to `oldest`, and counts the bytes that are cut.
    pub(super) fn adopt(
        &mut self,
        history: &tidewater_wire::replication::History,
        keeps: Option<[u64; LANES_MAX]>,
        oldest: &[u64; LANES_MAX],
        log: &mut impl LocalLog,
    ) {
        let common = self.persistent.history.common(history).map(|(here, _)| here);
        self.cut = [0; LANES_MAX];
        for lane in 0..self.lanes() {
            let end = log.persisted(lane);
            match keeps {
                Some(_) if self.flaw.is(Flaw::NoTruncation) => {}
                Some(keeps) if keeps[lane] >= oldest[lane] => {
                    self.cut[lane] = end - keeps[lane];
                    log.truncate(lane, keeps[lane]);
                }
                _ => {
                    self.cut[lane] = end - log.oldest(lane).min(end);
                    log.restart(lane, oldest[lane]);
                }
            }
            self.limit[lane] = self.limit[lane].min(log.persisted(lane));
        }
        self.persistent.log_cut();
        let own = self.persistent.change();
        if keeps.is_none() {
            (own.synced, own.synced_in) = (Epoch::ZERO, Epoch::ZERO);
        } else if history.position(own.synced).is_none() {
            // Nothing was acknowledged in an epoch that the primary does not know.
            let epoch = common.map_or(Epoch::ZERO, |here| own.history.starts()[here].epoch);
            own.synced = own.synced.min(epoch);
        }
        own.history = history.clone();
    }

    /// Log bytes came in.
    #[expect(clippy::too_many_arguments, reason = "the fields of a frame")]
    pub(super) fn data(
        &mut self,
        from: u8,
        epoch: Epoch,
        pulled: bool,
        lane: usize,
        offset: u64,
        len: u32,
        log: &mut impl LocalLog,
    ) {
        if pulled {
            if self.wants_pulled(from, epoch, lane, offset + u64::from(len)) {
                log.accept(lane, offset, len);
            }
            return;
        }
        if !self.follows(from, epoch) {
            return;
        }
        self.follower.heard(self.now);
        if offset + u64::from(len) <= log.persisted(lane) {
            // It was sent again: so the report has been lost.
            self.report_soon(1 << lane);
        } else if log.accept(lane, offset, len) && self.config.report_at_once {
            let received = &mut self.follower.received[lane];
            *received = (*received).max(offset + u64::from(len));
        }
    }

    /// A candidate asks for log bytes.
    pub(super) fn pull(&mut self, from: u8, epoch: Epoch, lane: usize, start: u64, end: u64, log: &impl LocalLog) {
        let own = &self.persistent;
        if epoch != own.promised || epoch.node() != from || self.candidate.is_some() || self.attached() {
            return;
        }
        let end = end.min(self.synced_log(log).1[lane]);
        if start >= log.oldest(lane) && start < end {
            self.follower.pulls[lane] = (start, end);
        }
    }

    /// Timers of a replica; the next of them.
    pub(super) fn expire_follower(&mut self) -> Instant {
        if self.follower.upstream.is_none() {
            return Instant::NEVER;
        }
        let (now, config, all) = (self.now, self.config, self.all_lanes());
        let follower = &mut self.follower;
        if now >= follower.tick_at {
            follower.due |= follower.changed;
            follower.changed = 0;
            follower.tick_at = Instant::NEVER;
            follower.reported_at = now;
            follower.keep_alive_at = now + config.keep_alive;
        }
        if now >= follower.keep_alive_at {
            (follower.due, follower.full) = (all, all);
            follower.keep_alive_at = now + config.keep_alive;
        }
        let silent_at = follower.heard_at + config.counter_timeout;
        let next = follower.tick_at.min(follower.keep_alive_at);
        // The keep-alive looks again, so silence needs no timer of its own.
        self.set_flag(flag::PRIMARY_SILENT, now >= silent_at);
        next
    }
}
