//! What is sent next.

use super::state::{Phase, back_off};
use super::{Flaw, LocalLog, Source, Transmit, Transport};
use tidewater_base::{Duration, Instant};
use tidewater_wire::replication::{Accepted, Attach, Body, Epoch, Frame, LANES_MAX};

impl Transport {
    /// The next frame to send, or `None` when there is nothing to send before the next event.
    pub fn poll(&mut self, log: &mut impl LocalLog) -> Option<Transmit> {
        for _ in 0..self.peers.len() {
            let place = self.cursor % self.peers.len();
            // Peers take turns, so that one that catches up does not hold back the others.
            self.cursor = place + 1;
            if self.peers[place].link_up
                && let Some((epoch, body, source)) = self.next_body(place, log)
            {
                let (function, from, to) = (self.config.function, self.persistent.node, self.peers[place].node);
                let after = self.version();
                return Some(Transmit { peer: to, frame: Frame { function, from, to, epoch, body }, source, after });
            }
        }
        None
    }

    fn next_body(&mut self, place: usize, log: &mut impl LocalLog) -> Option<(Epoch, Body, Option<Source>)> {
        if let Some((epoch, reason)) = self.peers[place].refuse.take() {
            let own = &self.persistent;
            let group = match reason {
                tidewater_wire::replication::Reason::Pending => own.pending.unwrap_or(own.group),
                _ => own.group,
            };
            return Some((epoch, Body::Refuse { promised: own.promised, reason, group }, None));
        }
        let node = self.peers[place].node;
        if std::mem::take(&mut self.peers[place].propose_due)
            && let Some(candidate) = &self.candidate
        {
            let base = self.persistent.group.version();
            let body = Body::Propose { force: candidate.force, base, target: candidate.target };
            return Some((candidate.epoch, body, None));
        }
        let promised = self.persistent.promised;
        if std::mem::take(&mut self.peers[place].accept_due) && promised.node() == node {
            let (history, ends) = self.synced_log(log);
            let (lanes, oldest) = (self.config.lanes, self.oldest(log));
            let synced = history.last();
            let version = if self.flaw.is(Flaw::RankByEpoch) { Epoch::ZERO } else { self.persistent.synced_in };
            let lost = self.persistent.lost;
            let accepted = Accepted { synced, version, lost, lanes, oldest, ends, history };
            return Some((promised, Body::Accepted(Box::new(accepted)), None));
        }
        if self.candidate.is_some() {
            return self.next_pull(node, log);
        }
        let attach = self.peers[place].flow.as_mut().is_some_and(|flow| std::mem::take(&mut flow.attach_due));
        if attach {
            return Some(self.next_attach(place, log));
        }
        if self.follower.upstream == Some(node) && self.follower.due != 0 {
            let lane = self.follower.due.trailing_zeros();
            let bit = 1 << lane;
            let window = if self.follower.full & bit != 0 { log.window() } else { 0 };
            self.follower.due &= !bit;
            self.follower.full &= !bit;
            let (synced, persisted, covered, durable) = self.counters(lane as usize, log);
            let lost = self.asks_for_ends();
            let body = Body::Report { lane: lane as u8, synced, window, persisted, covered, durable, lost };
            return Some((promised, body, None));
        }
        if promised.node() == node
            && self.follower.upstream.is_none()
            && let Some((body, source)) = self.next_pulled(log)
        {
            return Some((promised, body, Some(source)));
        }
        if let Some(body) = self.next_trim(place, log) {
            return Some((self.persistent.history.last(), body, None));
        }
        let (body, source) = self.next_data(place, log).or_else(|| Some((self.next_flush(place)?, None)))?;
        Some((self.persistent.history.last(), body, source))
    }

    /// For each lane the oldest offset that is there.
    pub(super) fn oldest(&self, log: &impl LocalLog) -> [u64; LANES_MAX] {
        self.of_lanes(|lane| log.oldest(lane))
    }

    /// For each lane where the log ends.
    pub(super) fn ends(&self, log: &impl LocalLog) -> [u64; LANES_MAX] {
        self.of_lanes(|lane| log.persisted(lane))
    }

    /// A value of each lane that there is.
    fn of_lanes(&self, value: impl Fn(usize) -> u64) -> [u64; LANES_MAX] {
        std::array::from_fn(|lane| if lane < self.lanes() { value(lane) } else { 0 })
    }

    fn next_attach(&mut self, place: usize, log: &impl LocalLog) -> (Epoch, Body, Option<Source>) {
        let (now, config) = (self.now, self.config);
        let (mut at, mut asked) = (Instant::NEVER, false);
        if let Some(flow) = &mut self.peers[place].flow {
            asked = std::mem::take(&mut flow.ends_due);
            flow.attach_wait = back_off(flow.attach_wait, config.retry, config.retry_max);
            at = now + flow.attach_wait;
            flow.attach_at = at;
        }
        self.arm(at);
        let own = &self.persistent;
        let (oldest, lanes) = (self.oldest(log), config.lanes);
        let ends = asked.then(|| self.ends(log));
        let attach = Attach { group: own.group, lanes, oldest, ends, history: own.history.clone() };
        (own.history.last(), Body::Attach(Box::new(attach)), None)
    }

    /// What the candidate asks `node` for.
    fn next_pull(&mut self, node: u8, log: &impl LocalLog) -> Option<(Epoch, Body, Option<Source>)> {
        let candidate = self.candidate.as_mut()?;
        let Phase::Pull { targets, due, asked } = &mut candidate.phase else { return None };
        for lane in 0..usize::from(self.config.lanes) {
            let (end, source) = targets[lane];
            let start = log.persisted(lane);
            if *due & 1 << lane != 0 && source == node && start < end {
                *due &= !(1 << lane);
                asked[lane] = end.min(start + u64::from(log.window()));
                let body = Body::Pull { lane: lane as u8, start, end: asked[lane].max(start + 1) };
                return Some((candidate.epoch, body, None));
            }
        }
        None
    }

    /// Log bytes that the candidate has asked for.
    fn next_pulled(&mut self, log: &impl LocalLog) -> Option<(Body, Source)> {
        for lane in 0..self.lanes() {
            let (start, end) = self.follower.pulls[lane];
            if start < end {
                let Some((len, source)) = self.locate(lane, start, end, log) else {
                    self.follower.pulls[lane] = (0, 0);
                    continue;
                };
                self.follower.pulls[lane].0 += u64::from(len);
                return Some((Body::Data { pulled: true, lane: lane as u8, offset: start, len }, source));
            }
        }
        None
    }

    /// What the host has trimmed of a lane since the last trim was sent, as far as the peer has it.
    fn next_trim(&mut self, place: usize, log: &impl LocalLog) -> Option<Body> {
        let lanes = self.lanes();
        let flow = self.peers[place].flow.as_mut().filter(|flow| flow.trim_due)?;
        for lane in 0..lanes {
            let to = log.trimmed(lane).min(flow.shadow[lane]);
            if to > flow.trim_sent[lane] {
                flow.trim_sent[lane] = to;
                flow.keep_alive_due = false;
                return Some(Body::Trim { lane: lane as u8, to });
            }
        }
        flow.trim_due = false;
        None
    }

    /// What the host waits for on flash, as far as the peer was sent it.
    fn next_flush(&mut self, place: usize) -> Option<Body> {
        let wanted = self.wanted;
        let flow = self.peers[place].flow.as_mut()?;
        while flow.flush_due != 0 {
            let lane = flow.flush_due.trailing_zeros() as usize;
            let to = wanted[lane].min(flow.sent[lane]);
            // The rest is said behind the bytes.
            flow.flush_due &= !(1 << lane);
            if to > flow.flush_sent[lane] {
                flow.flush_sent[lane] = to;
                return Some(Body::Flush { lane: lane as u8, to });
            }
        }
        None
    }

    /// Log bytes for a replica, or a sign of life.
    fn next_data(&mut self, place: usize, log: &impl LocalLog) -> Option<(Body, Option<Source>)> {
        let (lanes, now, config, wanted) = (self.lanes(), self.now, self.config, self.wanted);
        let retry = config.retry.max(self.peers[place].retry);
        let flow = self.peers[place].flow.as_ref()?;
        let (first, mut missing) = (flow.lane, false);
        for step in 0..lanes {
            let lane = (first + step) % lanes;
            let flow = self.peers[place].flow.as_ref()?;
            let again = flow.again_of(lane);
            let (start, end) = again.unwrap_or_else(|| {
                let end = flow.shadow[lane].saturating_add(u64::from(flow.window));
                (flow.sent[lane].max(flow.shadow[lane]), log.persisted(lane).min(end))
            });
            if flow.known & 1 << lane == 0 || start >= end {
                continue;
            }
            let Some((len, source)) = self.locate(lane, start, end, log) else {
                missing = true;
                continue;
            };
            let paced = self.catch_up_rate > 0 && matches!(source, Source::Page { .. });
            let rate = self.catch_up_rate;
            let flow = self.peers[place].flow.as_mut()?;
            if paced && now < flow.flash_at {
                let at = flow.flash_at;
                self.arm(at);
                continue;
            }
            if paced {
                flow.flash_at = now + Duration::from_secs_f64(f64::from(len) / rate as f64);
            }
            match again {
                Some(_) => flow.again[lane].0 = start + u64::from(len),
                None => flow.sent[lane] = start + u64::from(len),
            }
            flow.lane = lane + 1;
            flow.flush_due |= u16::from(wanted[lane] > flow.flush_sent[lane]) << lane;
            if flow.again_at == Instant::NEVER {
                flow.again_wait = flow.again_wait.max(retry);
                flow.again_at = now + flow.again_wait;
            }
            // Data is a sign of life too.
            flow.keep_alive_due = false;
            let again_at = flow.again_at;
            self.arm(again_at);
            return Some((Body::Data { pulled: false, lane: lane as u8, offset: start, len }, Some(source)));
        }
        let flow = self.peers[place].flow.as_mut()?;
        if missing && flow.attach_at == Instant::NEVER {
            // The peer lacks bytes that are gone: attaching tells it where the log begins now.
            flow.stale = true;
            flow.attach_wait = back_off(flow.attach_wait, config.retry, config.retry_max);
            flow.attach_at = now + flow.attach_wait;
            let at = flow.attach_at;
            self.arm(at);
        } else if !missing && flow.synced {
            flow.stale = false;
        }
        let flow = self.peers[place].flow.as_mut()?;
        std::mem::take(&mut flow.keep_alive_due).then_some((Body::KeepAlive, None))
    }

    /// Where the next bytes of `start..end` are, and how many of them one frame takes.
    fn locate(&self, lane: usize, start: u64, end: u64, log: &impl LocalLog) -> Option<(u32, Source)> {
        let most = (end - start).min(u64::from(self.config.payload_max)) as u32;
        if start >= log.in_ring_from(lane) {
            return Some((most, Source::Ring));
        }
        let page = log.page_at(lane, start)?;
        let skip = u32::try_from(start.checked_sub(page.offset)?).ok()?;
        let rest = page.len.checked_sub(skip).filter(|&rest| rest > 0)?;
        Some((most.min(rest), Source::Page { sequence: page.sequence, skip }))
    }
}
