//! What the status register and the status log page tell.

use super::Transport;
use tidewater_base::Instant;
use tidewater_wire::replication::{Epoch, Group, LANES_MAX};
pub use tidewater_wire::vendor::Role;

/// Bits of the status register's low 32 bits. The first three are the failures of the paper's section 7.1.
pub mod flag {
    /// A destage failed.
    pub const DESTAGE_FAILED: u32 = 1 << 0;
    /// Data does not reach a peer: its reports come and show no progress, or its link is known to be down.
    pub const DATA_FAILED: u32 = 1 << 1;
    /// Counter updates of a peer do not come back. Whether data reaches it can't be known then.
    pub const COUNTER_FAILED: u32 = 1 << 2;
    /// This device was primary until it learnt of a higher epoch or newer group.
    pub const DEPOSED: u32 = 1 << 3;
    /// This device, or a peer of this primary, can't follow without being rebuilt.
    pub const STALE: u32 = 1 << 4;
    /// This device, or a peer of this primary, is not synced with the epoch yet.
    pub const CATCHING_UP: u32 = 1 << 5;
    /// A promotion of this device is under way.
    pub const PROMOTING: u32 = 1 << 6;
    /// The last promotion of this device was refused: try again, and what was learnt from the refusal is used.
    pub const REFUSED: u32 = 1 << 7;
    /// A peer has another group or another number of lanes.
    pub const MISMATCH: u32 = 1 << 8;
    /// The last attachment cut bytes of this log.
    pub const CUT: u32 = 1 << 9;
    /// A secondary has not heard of its primary for the counter time-out.
    pub const PRIMARY_SILENT: u32 = 1 << 10;
    /// A change of the group has begun that is not known to be finished.
    pub const PENDING: u32 = 1 << 11;
    /// The leader deadline of this primary has passed: it acknowledges nothing.
    pub const FROZEN: u32 = 1 << 12;
    /// Frames of a peer were dropped: they name an epoch too far above those that this device knows.
    pub const FAR_EPOCH: u32 = 1 << 13;
}

/// The state of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Its role.
    pub role: Role,
    /// Bits of [`flag`].
    pub flags: u32,
    /// The epoch of its log.
    pub epoch: Epoch,
    /// The highest epoch that it has accepted.
    pub promised: Epoch,
    /// Its group.
    pub group: Group,
    /// For each lane the bytes that the last attachment cut.
    pub cut: [u64; LANES_MAX],
}

impl Status {
    /// The status register: flags, and in bits 33:32 the role (0 stand-alone, 1 primary, 2 secondary).
    pub fn register(&self) -> u64 {
        let role = match self.role {
            Role::StandAlone => 0,
            Role::Primary => 1,
            Role::Secondary => 2,
        };
        u64::from(self.flags) | role << 32
    }
}

/// The state of a peer that this device sends to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerStatus {
    /// The node.
    pub node: u8,
    /// It has answered in this epoch, for each lane.
    pub attached: bool,
    /// It, and in a chain all after it, hold what the epoch began with: its counters stand behind credit.
    pub synced: bool,
    /// See [`flag::DATA_FAILED`].
    pub data_failed: bool,
    /// See [`flag::COUNTER_FAILED`].
    pub counter_failed: bool,
    /// See [`flag::STALE`].
    pub stale: bool,
    /// For each lane the next offset to send.
    pub sent: [u64; LANES_MAX],
    /// For each lane what it, and in a chain all after it, have on flash, as far as reports say that.
    pub destaged: [u64; LANES_MAX],
    /// Whether their rings outlive a power cut, as far as reports say that.
    pub ring_survives: bool,
    /// When its last report came.
    pub heard_at: Instant,
}

impl Transport {
    /// Role, epoch and flags.
    pub fn status(&self) -> Status {
        let mut flags = self.flags;
        let mut add = |bit, on| flags |= if on { bit } else { 0 };
        for peer in self.peers() {
            add(flag::DATA_FAILED, peer.data_failed);
            add(flag::COUNTER_FAILED, peer.counter_failed);
            add(flag::STALE, peer.stale);
            add(flag::CATCHING_UP, !peer.synced);
        }
        let own = &self.persistent;
        add(flag::CATCHING_UP, self.attached() && own.synced != own.history.last());
        add(flag::PROMOTING, self.candidate.is_some());
        add(flag::PENDING, own.pending.is_some());
        add(flag::FROZEN, self.is_frozen());
        // Whose primary it was is of no use to a primary.
        if own.role == Role::Primary {
            flags &= !flag::PRIMARY_SILENT;
        }
        let mut add = |bit, on| flags |= if on { bit } else { 0 };
        add(flag::CUT, self.cut.iter().any(|&bytes| bytes > 0));
        Status {
            role: own.role,
            flags,
            epoch: own.history.last(),
            promised: own.promised,
            group: own.group,
            cut: self.cut,
        }
    }

    /// End of a lane's bytes that as many replicas have as the mode asks for, beside this primary. 0 where that is
    /// none: in lazy mode, for a quorum of one, on a device that is no primary.
    pub fn on_replicas(&self, lane: usize) -> u64 {
        if self.persistent.role != Role::Primary || self.candidate.is_some() {
            return 0;
        }
        // Where no peer has to have anything, nothing is promised of them.
        match self.acknowledged_by_mode(lane, |flow| flow.covered[lane]) {
            u64::MAX => 0,
            // Credit has followed it up to here, unless it is frozen.
            end => end.min(self.limit[lane]),
        }
    }

    /// As [`Transport::on_replicas`], of what they have on flash.
    pub fn durable_on_replicas(&self, lane: usize) -> u64 {
        if self.candidate.is_some() || self.acknowledged_durable(lane) == u64::MAX {
            return 0;
        }
        self.replicated_durable(lane)
    }

    /// End of a lane's bytes that all peers have which can be reached and hold what the epoch began with: what is below
    /// can be trimmed, and none of them falls behind the log's begin.
    pub fn on_all_reachable(&self, lane: usize) -> u64 {
        let flows = self.peers.iter().filter(|peer| peer.link_up).filter_map(|peer| peer.flow.as_ref());
        let in_step = flows.filter(|flow| flow.synced && !flow.data_failed && !flow.counter_failed && !flow.stale);
        in_step.map(|flow| flow.shadow[lane]).min().unwrap_or(u64::MAX)
    }

    /// The peers that this device sends to.
    pub fn peers(&self) -> impl Iterator<Item = PeerStatus> {
        let all = self.all_lanes();
        self.peers.iter().filter_map(move |peer| {
            let flow = peer.flow.as_ref()?;
            Some(PeerStatus {
                node: peer.node,
                attached: flow.known == all,
                synced: flow.synced,
                data_failed: flow.data_failed || !peer.link_up,
                counter_failed: flow.counter_failed,
                stale: flow.stale,
                sent: flow.sent,
                destaged: flow.destaged,
                ring_survives: flow.ring_survives,
                heard_at: flow.heard_at,
            })
        })
    }
}
