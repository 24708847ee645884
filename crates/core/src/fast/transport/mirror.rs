//! Peers, and the mirror flow to a peer: what was sent, what came back, and the time-outs.

use super::state::{Flow, back_off};
use super::{LocalLog, Role, Transport};
use tidewater_base::{Duration, Instant};
use tidewater_wire::replication::{Durable, Epoch, LANES_MAX, Mode};

/// Keep-alives after which trims are sent anew.
const TRIM_TURNS: u32 = 64;

impl Transport {
    pub(super) fn flow(&mut self, node: u8) -> Option<&mut Flow> {
        self.peers.iter_mut().find(|peer| peer.node == node)?.flow.as_mut()
    }

    /// A counter of a peer came in. `counters` are its own and what is covered, and what of it is durable.
    #[expect(clippy::too_many_arguments, reason = "the fields of a frame")]
    pub(super) fn report(
        &mut self,
        from: u8,
        epoch: Epoch,
        lane: usize,
        [synced, lost]: [bool; 2],
        window: u32,
        (counters, durable): ([u64; 2], Option<Durable>),
        log: &impl LocalLog,
    ) {
        let own = &self.persistent;
        // A replica of a star has nothing that its primary does not have; a member of a chain may be ahead of the one
        // before.
        let ahead = own.group.mode() != Mode::Chain || own.role == Role::Primary;
        let current = epoch == own.promised && epoch == own.history.last();
        if !current || (ahead && counters[0] > log.persisted(lane)) {
            return;
        }
        let (now, config, all) = (self.now, self.config, self.all_lanes());
        // In a chain, who lacks bytes itself can't say yet where the log ends.
        let is_whole = own.role == Role::Primary || (own.synced == epoch && !own.lost);
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == from) else { return };
        let retry = config.retry.max(peer.retry);
        let Some(flow) = &mut peer.flow else { return };
        flow.heard_at = now;
        flow.counter_failed = false;
        if window > 0 {
            flow.window = window;
        }
        let newly_synced = synced && !flow.synced;
        flow.synced |= synced;
        let first = flow.known & 1 << lane == 0;
        flow.known |= 1 << lane;
        if flow.known == all && !flow.stale {
            flow.attach_at = Instant::NEVER;
            flow.attach_due = false;
        }
        flow.ends_due |= lost && is_whole;
        flow.attach_due |= flow.ends_due;
        let moved = counters[0] > flow.shadow[lane];
        if moved {
            flow.shadow[lane] = counters[0];
            flow.moved_at = now;
            flow.again_wait = retry;
            flow.again_at = now + retry;
            flow.data_failed = false;
        }
        flow.sent[lane] = if first { flow.shadow[lane] } else { flow.sent[lane].max(flow.shadow[lane]) };
        let lanes = usize::from(config.lanes);
        flow.outstanding = (0..lanes).any(|lane| log.persisted(lane) > flow.shadow[lane]);
        if !flow.outstanding {
            flow.moved_at = now;
            flow.again_at = Instant::NEVER;
            flow.data_failed = false;
        } else if now.since(flow.moved_at) >= config.data_timeout {
            flow.data_failed = true;
        }
        let again_at = flow.again_at;
        let mut covered = counters[1] > flow.covered[lane];
        if let Some(durable) = durable {
            covered |= durable.destaged > flow.destaged[lane] || durable.ring_survives != flow.ring_survives;
            flow.destaged[lane] = flow.destaged[lane].max(durable.destaged);
            flow.ring_survives = durable.ring_survives;
        }
        flow.covered[lane] = flow.covered[lane].max(counters[1]);
        self.arm(again_at);
        let moved_lanes = if newly_synced { all } else { u16::from(covered) << lane };
        if self.persistent.role == Role::Primary {
            for lane in (0..lanes).filter(|lane| moved_lanes & 1 << lane != 0) {
                self.update_limit(lane);
            }
        } else {
            // Bytes that have come to the end of a chain are reported along it.
            let is_there = self.peers.iter().filter_map(|peer| peer.flow.as_ref()).all(|flow| {
                (0..lanes).all(|lane| moved_lanes & 1 << lane == 0 || flow.shadow[lane] >= log.persisted(lane))
            });
            self.report_moved(moved_lanes, is_there, log);
        }
    }

    /// The host of the primary waits until a lane's bytes below `to` are on flash here and there.
    pub(super) fn want(&mut self, lane: usize, to: u64) {
        if to <= self.wanted[lane] {
            return;
        }
        self.wanted[lane] = to;
        for flow in self.peers.iter_mut().filter_map(|peer| peer.flow.as_mut()) {
            flow.flush_due |= 1 << lane;
        }
    }

    /// There are new bytes for the peers.
    pub(super) fn flows_have_more(&mut self, lane: usize, log: &impl LocalLog) {
        let (now, end) = (self.now, log.persisted(lane));
        for flow in self.peers.iter_mut().filter_map(|peer| peer.flow.as_mut()) {
            if !flow.outstanding && end > flow.shadow[lane] {
                flow.outstanding = true;
                flow.moved_at = now;
            }
        }
    }

    /// The carrier tells of a link.
    pub(super) fn link(&mut self, node: u8, up: bool, restarted: bool) {
        let (all, now) = (self.all_lanes(), self.now);
        let Some(peer) = self.peers.iter_mut().find(|peer| peer.node == node) else { return };
        peer.link_up = up;
        if !up {
            return;
        }
        if let Some(flow) = peer.flow.as_mut().filter(|_| restarted) {
            *flow = Flow::new(now);
            self.wake = now;
        } else if let Some(flow) = &mut peer.flow {
            flow.go_back();
            flow.again_wait = Duration::ZERO;
            flow.attach_wait = Duration::ZERO;
            flow.attach_due = flow.known != all;
            flow.keep_alive_due = true;
        }
        if self.candidate.is_some() {
            self.propose_again(node);
        }
    }

    /// Runs what has timed out, if anything has, and finds the next deadline.
    pub(super) fn expire(&mut self, log: &mut impl LocalLog) {
        if self.now < self.wake {
            return;
        }
        self.expire_promotion(log);
        let (now, config, wanted) = (self.now, self.config, self.wanted);
        let mut wake = self.expire_follower().min(self.promotion_deadline()).min(self.leader_deadline());
        for peer in &mut self.peers {
            let link_up = peer.link_up;
            let Some(flow) = &mut peer.flow else { continue };
            if now >= flow.attach_at {
                flow.attach_due = true;
                flow.attach_at = Instant::NEVER;
            }
            if flow.keep_alive_at == Instant::NEVER {
                flow.keep_alive_at = now + config.keep_alive;
            } else if now >= flow.keep_alive_at {
                flow.keep_alive_due = link_up;
                flow.trim_due = link_up;
                // A frame may have been lost.
                for (lane, &wanted) in wanted.iter().enumerate().take(config.lanes.into()) {
                    if wanted > flow.destaged[lane] {
                        flow.flush_sent[lane] = 0;
                        flow.flush_due |= 1 << lane;
                    }
                }
                flow.trim_turns += 1;
                if flow.trim_turns.is_multiple_of(TRIM_TURNS) {
                    // A frame may have been lost.
                    flow.trim_sent = [0; LANES_MAX];
                }
                // Who is silent is asked less often.
                let wait = if flow.counter_failed { config.retry_max } else { Duration::ZERO };
                flow.keep_alive_at = now + wait.max(config.keep_alive);
            }
            if now >= flow.again_at {
                // Of what is only late one frame goes once more, and more each time that nothing comes of it.
                let first = config.retry.max(peer.retry);
                let frames = (flow.again_wait.as_ps() / first.as_ps()).max(1);
                flow.send_again(frames * u64::from(config.payload_max));
                flow.again_wait = back_off(flow.again_wait, first, config.retry_max);
                // Armed again by the first byte that is sent again.
                flow.again_at = Instant::NEVER;
            }
            let mut counter_at = Instant::NEVER;
            if !flow.counter_failed {
                counter_at = flow.heard_at + config.counter_timeout;
                if now >= counter_at {
                    flow.counter_failed = true;
                    counter_at = Instant::NEVER;
                }
            }
            wake = wake.min(flow.attach_at).min(flow.keep_alive_at).min(flow.again_at).min(counter_at);
        }
        self.wake = wake;
    }
}
