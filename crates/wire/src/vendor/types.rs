//! The values that several layouts share.

use std::fmt;

use super::{NODES_MAX, PEERS_MAX};
use crate::layout::{Part, codes};

codes! {
    /// Role of a function in replication of its log (the paper's section 4.2).
    pub enum Role {
        /// It has no peers.
        StandAlone = 0 "stand-alone",
        /// Its host writes, and it ships what is written to its peers.
        Primary = 1 "primary",
        /// It takes the log of a primary; its host may read it, but not write.
        Secondary = 2 "secondary",
    }
}

codes! {
    /// Which writer the flash scheduler serves first (section 4.3). The other one gets the gaps only.
    pub enum DestagePriority {
        /// Neither: turns are shared as between any two sources.
        Neutral = 0 "neutral",
        /// Block commands.
        Conventional = 1 "conventional",
        /// The log's pages.
        Destage = 2 "destage",
    }
}

codes! {
    /// Action when the ring of logical pages wraps onto a page that the host has not trimmed.
    pub enum OnWrap {
        /// Destage waits for Trim Log: the log pushes back, and nothing is lost.
        WaitForTrim = 0 "wait-for-trim",
        /// The oldest page is overwritten.
        OverwriteOldest = 1 "overwrite-oldest",
    }
}

codes! {
    /// How a mirror flow to a peer is doing.
    pub enum FlowState {
        /// The peer has not answered since it was attached.
        Detached = 0 "detached",
        /// Bytes come from destaged pages: the peer lags behind the ring's memory.
        CatchingUp = 1 "catching-up",
        /// Bytes come from the ring's memory.
        Streaming = 2 "streaming",
        /// The shadow counter has not moved for the stall time-out, though bytes were shipped.
        Stalled = 3 "stalled",
        /// The peer can't follow: the log that it lacks is gone, or its own shares nothing with it. Make it stand-alone
        /// and set it up as a secondary again.
        Stale = 4 "stale",
    }
}

/// Which counter the host of a primary sees (section 4.2; quorum goes beyond the paper).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Mode {
    /// The least of the local counter and all shadow counters: a credited byte is on every replica.
    #[default]
    Eager,
    /// The local counter: peers follow at their own pace.
    Lazy,
    /// Peers forward to each other in the order of their numbers; the counter is that of the last.
    Chain,
    /// The `k`-th largest of the local counter and all shadow counters: a credited byte is on `k` devices.
    Quorum(
        /// Devices that must hold a byte, the primary counted: 1 to 16.
        u8,
    ),
}

impl Mode {
    /// The name that profiles and reports use, without `k`.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Eager => "eager",
            Mode::Lazy => "lazy",
            Mode::Chain => "chain",
            Mode::Quorum(_) => "quorum",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Quorum(k) => write!(f, "quorum {k}"),
            other => f.write_str(other.name()),
        }
    }
}

impl Part for Mode {
    const BYTES: usize = 2;
    const KIND: &'static str = "u8, then k as u8 (quorum only)";
    const CODES: &'static [(u8, &'static str)] = &[(0, "eager"), (1, "lazy"), (2, "chain"), (3, "quorum")];
    fn get(bytes: &[u8]) -> Result<Mode, &'static str> {
        match *bytes {
            [0, _] => Ok(Mode::Eager),
            [1, _] => Ok(Mode::Lazy),
            [2, _] => Ok(Mode::Chain),
            [3, k] if (1..=NODES_MAX as u8).contains(&k) => Ok(Mode::Quorum(k)),
            _ => Err("eager (0), lazy (1), chain (2), or quorum (3) of 1 to 16 devices"),
        }
    }
    fn put(&self, out: &mut [u8]) {
        out.copy_from_slice(&match *self {
            Mode::Eager => [0, 0],
            Mode::Lazy => [1, 0],
            Mode::Chain => [2, 0],
            Mode::Quorum(k) => [3, k],
        });
    }
}

/// A reign of one primary: a counter and, in the low 8 bits, the node that made it, so that no two nodes make the same
/// one. Higher is newer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Before any primary: what a device is set up with.
    pub const ZERO: Epoch = Epoch(0);

    /// The epoch with this counter (56 bits; higher ones are dropped), made by `node`.
    pub const fn new(counter: u64, node: u8) -> Epoch {
        Epoch(counter << 8 | node as u64)
    }

    /// How many reigns there were before.
    pub const fn counter(self) -> u64 {
        self.0 >> 8
    }

    /// The node that made it.
    pub const fn node(self) -> u8 {
        self.0 as u8
    }

    /// The least epoch that `node` can make and that is above this one. `None` when 56 bits are used up.
    pub const fn next(self, node: u8) -> Option<Epoch> {
        if self.counter() == u64::MAX >> 8 { None } else { Some(Epoch::new(self.counter() + 1, node)) }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.counter(), self.node())
    }
}

impl Part for Epoch {
    const BYTES: usize = 8;
    const KIND: &'static str = "u64";
    fn get(bytes: &[u8]) -> Result<Epoch, &'static str> {
        u64::get(bytes).map(Epoch)
    }
    fn put(&self, out: &mut [u8]) {
        self.0.put(out);
    }
}

/// Up to 15 different nodes, in an order that matters for a chain.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct NodeList {
    count: u8,
    nodes: [u8; PEERS_MAX],
}

impl NodeList {
    /// No nodes.
    pub const EMPTY: NodeList = NodeList { count: 0, nodes: [0; PEERS_MAX] };

    /// These nodes; `None` when there are more than 15, or one comes twice.
    pub fn new(nodes: &[u8]) -> Option<NodeList> {
        let mut list = NodeList::EMPTY;
        for (i, node) in nodes.iter().enumerate() {
            if nodes[..i].contains(node) {
                return None;
            }
            *list.nodes.get_mut(i)? = *node;
            list.count += 1;
        }
        Some(list)
    }

    /// The nodes.
    pub fn as_slice(&self) -> &[u8] {
        &self.nodes[..usize::from(self.count)]
    }
}

impl fmt::Debug for NodeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl Part for NodeList {
    const BYTES: usize = 1 + PEERS_MAX;
    const KIND: &'static str = "u8 count, then 15 × u8";
    fn get(bytes: &[u8]) -> Result<NodeList, &'static str> {
        let [count, nodes @ ..] = bytes else { return Err("complete") };
        nodes.get(..usize::from(*count)).and_then(NodeList::new).ok_or("up to 15 different nodes")
    }
    fn put(&self, out: &mut [u8]) {
        out[0] = self.count;
        out[1..].copy_from_slice(&self.nodes);
    }
}

/// The status register (section 7.1): what a host looks at when a credit counter does not move. One 32-bit read tells
/// it all.
///
/// | bits | meaning |
/// |---|---|
/// | 0 | a destage failed, and no other page could be found: the conventional side takes no more log |
/// | 1 | data did not reach a peer within the stall time-out |
/// | 2 | data was shipped, and a counter update did not come back within the stall time-out |
/// | 3 | deposed: a peer knows a higher epoch |
/// | 4 | recovering: counters are not final yet |
/// | 5 | the ring of logical pages is full and waits for Trim Log |
/// | 31:16 | the stream of lane 0 to 15 is broken: its host wrote past credit + queue size, or below the released |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TransportStatus(pub u32);

impl TransportStatus {
    /// Nothing is wrong.
    pub const OK: TransportStatus = TransportStatus(0);
    /// A destage failed for good.
    pub const DESTAGE_FAILED: TransportStatus = TransportStatus(1);
    /// Data did not reach a peer.
    pub const PEER_UNREACHED: TransportStatus = TransportStatus(1 << 1);
    /// A counter update did not come back.
    pub const COUNTER_OVERDUE: TransportStatus = TransportStatus(1 << 2);
    /// A peer knows a higher epoch.
    pub const DEPOSED: TransportStatus = TransportStatus(1 << 3);
    /// The device recovers.
    pub const RECOVERING: TransportStatus = TransportStatus(1 << 4);
    /// The ring of logical pages waits for Trim Log.
    pub const WAITS_FOR_TRIM: TransportStatus = TransportStatus(1 << 5);

    /// The names of bits 0 to 5.
    pub const NAMED: &'static [(TransportStatus, &'static str)] = &[
        (TransportStatus::DESTAGE_FAILED, "destage failed"),
        (TransportStatus::PEER_UNREACHED, "data did not reach a peer"),
        (TransportStatus::COUNTER_OVERDUE, "counter update did not come back"),
        (TransportStatus::DEPOSED, "deposed"),
        (TransportStatus::RECOVERING, "recovering"),
        (TransportStatus::WAITS_FOR_TRIM, "ring of logical pages waits for trim"),
    ];

    /// The bit of a broken stream. Lanes past 15 have none.
    pub const fn broken(lane: u8) -> TransportStatus {
        TransportStatus(if lane < 16 { 1 << (16 + lane) } else { 0 })
    }

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: TransportStatus) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the stream of this lane is broken. Lanes past 15 never are.
    pub const fn is_broken(self, lane: u8) -> bool {
        self.0 & TransportStatus::broken(lane).0 != 0
    }

    /// Bit i: the stream of lane i is broken.
    pub const fn all_broken(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// The same register with the bits of `other` set or cleared.
    pub const fn with(self, other: TransportStatus, set: bool) -> TransportStatus {
        TransportStatus(if set { self.0 | other.0 } else { self.0 & !other.0 })
    }
}

impl fmt::Display for TransportStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut empty = true;
        let mut say = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let comma = if std::mem::take(&mut empty) { "" } else { ", " };
            write!(f, "{comma}{text}")
        };
        for (bit, name) in TransportStatus::NAMED {
            if self.has(*bit) {
                say(f, format_args!("{name}"))?;
            }
        }
        for lane in 0..16 {
            if self.is_broken(lane) {
                say(f, format_args!("lane {lane} broken"))?;
            }
        }
        if empty { f.write_str("ok") } else { Ok(()) }
    }
}

impl fmt::Debug for TransportStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransportStatus({self})")
    }
}

impl Part for TransportStatus {
    const BYTES: usize = 4;
    const KIND: &'static str = "u32";
    fn get(bytes: &[u8]) -> Result<TransportStatus, &'static str> {
        u32::get(bytes).map(TransportStatus)
    }
    fn put(&self, out: &mut [u8]) {
        self.0.put(out);
    }
}
