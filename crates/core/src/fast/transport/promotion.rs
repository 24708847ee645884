//! Promotion: a candidate proposes an epoch, collects acceptors, takes over the best log among theirs, and becomes
//! primary.

use super::state::{Acceptor, Candidate, Phase, back_off};
use super::{CommandError, Flaw, LocalLog, Role, Transport, flag};
use tidewater_base::Instant;
use tidewater_wire::replication::{Accepted, Epoch, Group, History, LANES_MAX, MEMBERS_MAX, Mode, Reason};

/// How many members of `group` have to accept so that they intersect every set of members that can acknowledge.
fn needed(group: &Group) -> usize {
    let n = group.members().len();
    match group.mode() {
        Mode::Lazy => n,
        Mode::Eager | Mode::Chain => 1,
        Mode::Quorum(k) => n - usize::from(k) + 1,
    }
}

impl Transport {
    /// Starts a promotion, to an epoch that is at least `least`.
    pub(super) fn propose(
        &mut self,
        target: Group,
        least: Epoch,
        [force, first]: [bool; 2],
        log: &mut impl LocalLog,
    ) -> Result<(), CommandError> {
        let own = &self.persistent;
        let next = own.promised.max(own.history.last()).next(own.node).ok_or(CommandError::EpochsUsedUp)?;
        let epoch = next.max(least);
        if own.is_far(epoch) {
            return Err(CommandError::EpochFar(epoch, own.newest_known()));
        }
        let outdated = own.group.version() < own.floor;
        if outdated && !force {
            return Err(CommandError::Outdated);
        }
        self.step_down(log);
        self.set_flag(flag::DEPOSED | flag::REFUSED | flag::MISMATCH | flag::FAR_EPOCH, false);
        let changes = outdated || !target.same_as(&self.persistent.group);
        let target = target.at(if changes { epoch } else { self.persistent.group.version() });
        let (history, ends) = self.synced_log(log);
        let version = if self.flaw.is(Flaw::RankByEpoch) { Epoch::ZERO } else { self.persistent.synced_in };
        let rank = (version, history.last());
        let oldest = self.oldest(log);
        let mut acceptors = Vec::with_capacity(2 * MEMBERS_MAX);
        acceptors.push(Acceptor { node: self.persistent.node, rank, lost: self.persistent.lost, oldest, ends });
        self.candidate = Some(Box::new(Candidate {
            epoch,
            target,
            force,
            first,
            phase: Phase::Collect { acceptors, best: (rank, history) },
            retry_at: self.now + self.config.retry,
            retry_wait: self.config.retry,
            over_at: self.now + self.config.promotion_timeout,
        }));
        let own = self.persistent.change();
        own.promised = epoch;
        if changes {
            own.pending = Some(target);
        }
        self.reflow();
        self.propose_to_rest();
        self.wake = self.now;
        self.collected(log);
        Ok(())
    }

    /// The log that this node speaks for in a promotion: history up to the synced epoch, and for each lane the end of
    /// its bytes.
    pub(super) fn synced_log(&self, log: &impl LocalLog) -> (History, [u64; LANES_MAX]) {
        let own = &self.persistent;
        let mut ends = [0; LANES_MAX];
        let mut history = own.history.clone();
        let place = if self.flaw.is(Flaw::CountUnsynced) {
            history.starts().len().checked_sub(1)
        } else {
            history.position(own.synced)
        };
        let Some(place) = place else {
            return (History::default(), ends);
        };
        for (lane, end) in ends.iter_mut().enumerate().take(self.lanes()) {
            *end = log.persisted(lane).min(history.end(place, lane).unwrap_or(u64::MAX));
        }
        history.cut_after(place);
        (history, ends)
    }

    /// Lets a proposal be sent to a node that has not accepted.
    pub(super) fn propose_again(&mut self, node: u8) {
        let Some(candidate) = &self.candidate else { return };
        let Phase::Collect { acceptors, .. } = &candidate.phase else { return };
        if acceptors.iter().all(|acceptor| acceptor.node != node)
            && let Some(place) = self.peer(node)
        {
            self.peers[place].propose_due = true;
        }
    }

    fn propose_to_rest(&mut self) {
        let Some(candidate) = &self.candidate else { return };
        let Phase::Collect { acceptors, .. } = &candidate.phase else { return };
        let accepted: Vec<u8> = acceptors.iter().map(|acceptor| acceptor.node).collect();
        for group in [self.persistent.group, candidate.target] {
            for &node in group.members().iter().filter(|node| !accepted.contains(node)) {
                if let Some(place) = self.peer(node) {
                    self.peers[place].propose_due = true;
                }
            }
        }
    }

    /// A node asks this one to accept its epoch.
    pub(super) fn proposed(
        &mut self,
        from: u8,
        epoch: Epoch,
        force: bool,
        base: Epoch,
        target: Group,
        log: &mut impl LocalLog,
    ) {
        let own = &self.persistent;
        if epoch.node() != from || !target.contains(from) || (self.attached() && epoch == own.promised) {
            return;
        }
        // An older group may not so much as finish a change that a newer one began.
        if own.group.version() > base || (own.floor > base && !force) {
            return self.refuse(from, epoch, Reason::Group);
        }
        let pending = own.pending.is_some_and(|pending| base < pending.version() && !target.same_as(&pending));
        if pending && !force {
            return self.refuse(from, epoch, Reason::Pending);
        }
        if target.version() == own.group.version() && !target.same_as(&own.group) {
            self.set_flag(flag::MISMATCH, true);
            return self.refuse(from, epoch, Reason::Mismatch);
        }
        if epoch > own.promised {
            self.depose(epoch, log);
        }
        let own = self.persistent.change();
        own.pending = (!target.same_as(&own.group)).then_some(target);
        own.floor = own.floor.max(base);
        if let Some(place) = self.peer(from) {
            self.peers[place].accept_due = true;
        }
    }

    /// A node has accepted.
    pub(super) fn accepted(&mut self, from: u8, epoch: Epoch, accepted: Accepted, log: &mut impl LocalLog) {
        let group = self.persistent.group;
        let lanes = self.config.lanes;
        let Some(candidate) = &mut self.candidate else { return };
        let asked = group.contains(from) || candidate.target.contains(from);
        let Phase::Collect { acceptors, best } = &mut candidate.phase else { return };
        let known = acceptors.iter().any(|acceptor| acceptor.node == from);
        if candidate.epoch != epoch || !asked || known {
            return;
        }
        let starts = accepted.history.last_offsets();
        let whole = accepted.ends.iter().zip(starts).all(|(&end, start)| end >= start);
        if accepted.lanes != lanes || accepted.history.last() != accepted.synced || accepted.synced >= epoch || !whole {
            return self.set_flag(flag::MISMATCH, true);
        }
        let Accepted { synced, version, lost, oldest, ends, history, .. } = accepted;
        let rank = if synced == Epoch::ZERO { (synced, synced) } else { (version, synced) };
        if rank > best.0 {
            *best = (rank, history);
        }
        acceptors.push(Acceptor { node: from, rank, lost, oldest, ends });
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == from) {
            peer.propose_due = false;
        }
        self.collected(log);
    }

    /// Goes on when enough nodes have accepted.
    fn collected(&mut self, log: &mut impl LocalLog) {
        let group = self.persistent.group;
        let few = usize::from(self.flaw.is(Flaw::AcceptTooFew));
        let by_epoch = self.flaw.is(Flaw::RankByEpoch);
        let (counts_all, keeps_all) = (self.flaw.is(Flaw::EmptyVotes), self.flaw.is(Flaw::LostVotes));
        let Some(candidate) = &self.candidate else { return };
        let Phase::Collect { acceptors, .. } = &candidate.phase else { return };
        let count = |group: &Group| acceptors.iter().filter(|acceptor| group.contains(acceptor.node)).count();
        let changes = candidate.target.version() != group.version();
        let all = |group: &Group| count(group) == group.members().len();
        // What was acknowledged before the group came to be is with those that were synced in it; a set that intersects
        // all that the group's own mode lets acknowledge need not hold it.
        let heir = |acceptor: &Acceptor| {
            let (version, synced) = acceptor.rank;
            let version = if by_epoch { synced } else { version };
            synced != Epoch::ZERO && version >= group.version() && (keeps_all || !acceptor.lost)
        };
        let heirs = self.flaw.is(Flaw::NoHeir) || candidate.first || acceptors.iter().any(heir) || all(&group);
        // A member without a log speaks for no bytes: it may have acknowledged some, and have lost its memory since.
        // Nor does one that knows that it has.
        let speaks = |it: &&Acceptor| counts_all || it.rank.1 != Epoch::ZERO && (keeps_all || !it.lost);
        let votes = acceptors.iter().filter(|it| group.contains(it.node)).filter(speaks).count();
        let covers = votes + few >= needed(&group) || candidate.first || all(&group);
        let enough = if candidate.force {
            self.now >= candidate.over_at || (all(&group) && all(&candidate.target))
        } else {
            heirs
                && covers
                && (!changes
                    || (count(&group) > group.members().len() / 2
                        && count(&candidate.target) >= needed(&candidate.target)))
        };
        if enough {
            self.take_over(log);
        }
    }

    /// Takes over the best log among theirs.
    fn take_over(&mut self, log: &mut impl LocalLog) {
        let lanes = self.lanes();
        let Some(candidate) = &mut self.candidate else { return };
        let Phase::Collect { acceptors, best } = &mut candidate.phase else { return };
        let ((rank, best), acceptors) = (std::mem::take(best), std::mem::take(acceptors));
        let mut targets = [(0, self.persistent.node); LANES_MAX];
        let mut oldest = [0; LANES_MAX];
        for acceptor in acceptors.iter().filter(|acceptor| acceptor.rank == rank) {
            for lane in 0..lanes {
                if acceptor.ends[lane] > targets[lane].0 {
                    targets[lane] = (acceptor.ends[lane], acceptor.node);
                    oldest[lane] = acceptor.oldest[lane];
                }
            }
        }
        if best.last() == Epoch::ZERO {
            // No node has been in the group: the candidate's log becomes the group's.
            for (lane, target) in targets.iter_mut().enumerate().take(lanes) {
                let end = log.persisted(lane);
                log.truncate(lane, end);
                *target = (end, self.persistent.node);
            }
            self.persistent.log_cut();
        } else {
            let keeps = self.shared(&best, log);
            let new = self.persistent.rebuild || self.persistent.synced == Epoch::ZERO;
            let node = self.persistent.node;
            let gap = (0..lanes).any(|lane| {
                let end = keeps.map_or(0, |keeps| keeps[lane]);
                targets[lane].1 != node && end < oldest[lane] && end > log.oldest(lane)
            });
            if !new && (keeps.is_none() || gap) {
                self.set_flag(flag::STALE, true);
                return self.depose(self.persistent.promised, log);
            }
            for lane in 0..lanes {
                if targets[lane].1 == node {
                    oldest[lane] = 0;
                }
            }
            self.adopt(&best, keeps, &oldest, log);
        }
        let Some(candidate) = &mut self.candidate else { return };
        candidate.phase = Phase::Pull { targets, due: (u32::MAX >> (32 - lanes)) as u16, asked: [0; LANES_MAX] };
        candidate.retry_wait = self.config.retry;
        candidate.retry_at = self.now + self.config.retry;
        candidate.over_at = self.now + self.config.promotion_timeout;
        self.wake = self.now;
        self.pulled(0, log);
    }

    /// Whether these pulled bytes belong to what this candidate asked for.
    pub(super) fn wants_pulled(&self, from: u8, epoch: Epoch, lane: usize, end: u64) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| match &candidate.phase {
            Phase::Pull { targets, .. } => {
                candidate.epoch == epoch && targets[lane].1 == from && end <= targets[lane].0
            }
            Phase::Collect { .. } => false,
        })
    }

    /// Bytes of a lane have come in: asks for more, or becomes primary when nothing lacks.
    pub(super) fn pulled(&mut self, lane: usize, log: &mut impl LocalLog) {
        let lanes = self.lanes();
        let (now, config) = (self.now, self.config);
        let Some(candidate) = &mut self.candidate else { return };
        let Phase::Pull { targets, due, asked } = &mut candidate.phase else { return };
        candidate.over_at = now + config.promotion_timeout;
        (candidate.retry_wait, candidate.retry_at) = (config.retry, now + config.retry);
        if log.persisted(lane) >= asked[lane] {
            *due |= 1 << lane;
        }
        if (0..lanes).all(|lane| log.persisted(lane) >= targets[lane].0) {
            self.establish(log);
        }
    }

    /// The candidate holds all: it is primary.
    fn establish(&mut self, log: &mut impl LocalLog) {
        let Some(candidate) = self.candidate.take() else { return };
        let own = self.persistent.change();
        own.group = candidate.target;
        own.floor = own.floor.max(candidate.target.version());
        self.begin_epoch(candidate.epoch, log);
        let own = self.persistent.change();
        own.role = Role::Primary;
        own.pending = None;
        (own.rebuild, own.lost) = (false, false);
        self.set_flag(flag::STALE, false);
        for peer in &mut self.peers {
            peer.propose_due = false;
        }
        self.reflow();
        for lane in 0..self.lanes() {
            self.flows_have_more(lane, log);
        }
    }

    pub(super) fn promotion_deadline(&self) -> Instant {
        self.candidate.as_ref().map_or(Instant::NEVER, |candidate| match candidate.phase {
            Phase::Collect { .. } if !candidate.force => candidate.retry_at,
            _ => candidate.retry_at.min(candidate.over_at),
        })
    }

    /// Timers of a promotion.
    pub(super) fn expire_promotion(&mut self, log: &mut impl LocalLog) {
        let (now, config, all) = (self.now, self.config, self.all_lanes());
        let Some(candidate) = &mut self.candidate else { return };
        if now >= candidate.retry_at {
            candidate.retry_wait = back_off(candidate.retry_wait, config.retry, config.retry_max);
            candidate.retry_at = now + candidate.retry_wait;
            match &mut candidate.phase {
                Phase::Collect { .. } => self.propose_to_rest(),
                Phase::Pull { due, .. } => *due = all,
            }
        }
        let Some(candidate) = &self.candidate else { return };
        if now < candidate.over_at {
            return;
        }
        match candidate.phase {
            Phase::Collect { .. } if candidate.force => self.collected(log),
            Phase::Collect { .. } => {}
            // The source has died, or lost what it had: others may have it, and a new epoch asks them all.
            Phase::Pull { .. } => {
                let (target, options) = (candidate.target, [candidate.force, candidate.first]);
                if self.propose(target, Epoch::ZERO, options, log).is_err() {
                    self.depose(self.persistent.promised, log);
                }
            }
        }
    }
}
