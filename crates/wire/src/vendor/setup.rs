//! Data of the set-up commands.

use super::{DestagePriority, Epoch, LANES_MAX, Mode, NodeList, OnWrap, PEERS_MAX, Role};
use crate::layout::layout;

layout! {
    /// Data of Fast Setup. The energy for an emergency destage is the profile's: a device that has too little refuses.
    pub struct FastSetup [64] {
        fixed 0 version: u16 = 1, " Version of this layout.";
        /// Lanes, 1 to 16.
        2 lanes: u16,
        /// Which writer the flash scheduler serves first.
        4 priority: DestagePriority,
        /// Action when the ring of logical pages wraps onto a page that is not trimmed.
        5 on_wrap: OnWrap,
        /// Bytes of each lane's ring in memory: a multiple of 4096.
        8 ring_bytes: u32,
        /// Bytes of each lane that may be outstanding past the credit: 1 to `ring_bytes`.
        12 queue_bytes: u32,
        /// First logical page of the ring of logical pages.
        16 lba_first: u64,
        /// Number of its logical pages, at least 1.
        24 lba_count: u64,
        /// Age of the oldest byte, in nanoseconds, at which a page is destaged though it is not full; all ones: never.
        32 partial_page_ns: u64,
    }
    check |it| {
        if !(1..=LANES_MAX as u16).contains(&it.lanes) {
            Err(("lanes", "1 to 16"))
        } else if it.ring_bytes == 0 || it.ring_bytes % 4096 != 0 {
            Err(("ring_bytes", "a multiple of 4096, at least 4096"))
        } else if it.queue_bytes == 0 || it.queue_bytes > it.ring_bytes {
            Err(("queue_bytes", "1 to ring_bytes"))
        } else if it.lba_count == 0 || it.lba_first.checked_add(it.lba_count).is_none() {
            Err(("lba_count", "at least 1, and the range must not pass 2^64"))
        } else {
            Ok(())
        }
    };
}

layout! {
    /// Data of Transport Setup: with whom, and how, a function replicates.
    pub struct TransportSetup [64] {
        fixed 0 version: u16 = 1, " Version of this layout.";
        /// The function's new role. To become a primary where there was one, promote instead.
        2 role: Role,
        /// This device's node in the group.
        3 node: u8,
        /// Which counter the host of a primary sees.
        4 mode: Mode,
        /// The other nodes of the group. A chain goes from the primary to the others in the order of their numbers.
        8 peers: NodeList,
        /// Epoch of a new group's first primary, made by its node, or zero: any that is above what it knows. A device
        /// that knows one which is not below refuses.
        24 epoch: Epoch,
        /// Period at which a secondary reports its counters, in nanoseconds, at least 1 (the paper varies 400 to
        /// 1,600).
        32 report_period_ns: u64,
        /// Time without progress after which a flow counts as stalled, in nanoseconds, at least 1.
        40 stall_timeout_ns: u64,
    }
    check |it| {
        let peers = it.peers.as_slice();
        if peers.contains(&it.node) {
            return Err(("peers", "other nodes than this one"));
        }
        if (it.role == Role::StandAlone) != peers.is_empty() {
            return Err(("peers", "empty in the stand-alone role, and only there"));
        }
        if matches!(it.mode, Mode::Quorum(k) if usize::from(k) > peers.len() + 1) {
            return Err(("mode", "a quorum of no more devices than the group has"));
        }
        if it.report_period_ns == 0 {
            return Err(("report_period_ns", "at least 1"));
        }
        if it.stall_timeout_ns == 0 {
            return Err(("stall_timeout_ns", "at least 1"));
        }
        Ok(())
    };
}

layout! {
    /// Data of Promote: a device asks its group to accept a higher epoch, with itself as primary.
    pub struct Promote [64] {
        fixed 0 version: u16 = 1, " Version of this layout.";
        /// Promote with fewer replicas than the mode needs, or a new group without a majority of the old one: the
        /// operator says that the others are dead. Bytes that only those held are lost; when one comes back it reports
        /// what it had to cut.
        2 force: bool,
        /// Replace the group by `mode` and `group`.
        3 new_group: bool,
        /// Mode of the new group.
        4 mode: Mode,
        /// The other nodes of the new group.
        8 group: NodeList,
        /// The epoch to be accepted, above all that the device knows; its low 8 bits are this device's node. A
        /// promotion that has to begin anew, because a peer died in its midst, asks for a higher one: the control page
        /// tells.
        24 epoch: Epoch,
    }
    check |it| {
        if it.epoch.counter() == 0 {
            Err(("epoch", "above zero"))
        } else if it.group.as_slice().contains(&it.epoch.node()) {
            Err(("group", "other nodes than this one"))
        } else if it.new_group && matches!(it.mode, Mode::Quorum(k) if usize::from(k) > it.group.as_slice().len() + 1) {
            Err(("mode", "a quorum of no more devices than the group has"))
        } else {
            Ok(())
        }
    };
}

layout! {
    /// How a node is reached.
    pub struct PeerAddress [32] {
        /// The node.
        0 node: u8,
        /// TCP port; 0 when the driver of the device provides the link (simulation, NTB).
        2 port: u16,
        /// IPv6 address, or IPv4 as ::ffff:a.b.c.d; zero when `port` is.
        8 address: [u8; 16],
    }
}

layout! {
    /// Data of Attach Peers: how nodes are reached. What is known of nodes that are not named stays.
    pub struct AttachPeers [512] {
        fixed 0 version: u16 = 1, " Version of this layout.";
        /// Addresses that follow, 1 to 15.
        2 count: u16,
        /// The addresses, of different nodes.
        32 peer: [PeerAddress; PEERS_MAX],
    }
    check |it| {
        let Some(peers) = it.peer.get(..usize::from(it.count)).filter(|peers| !peers.is_empty()) else {
            return Err(("count", "1 to 15"));
        };
        let twice = |(i, peer): (usize, &PeerAddress)| peers[..i].iter().any(|other| other.node == peer.node);
        if peers.iter().enumerate().any(twice) { Err(("peer", "of different nodes")) } else { Ok(()) }
    };
}
