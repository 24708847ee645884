//! Frames between the devices of a replication group.
//!
//! Every frame starts with a header of 16 bytes: version (high 4 bits of byte 0) and kind (low 4), function, sender,
//! receiver, CRC-32C of the whole frame with this field as zero (4), epoch (8). After a [`Body::Data`] frame come the
//! log bytes that it names and then their own CRC-32C: the carrier of the frame adds them.

use super::{Epoch, Group, HISTORY_MAX, History, LANES_MAX, Start};
use std::fmt;
use tidewater_base::checksum::crc32c;

/// The layout that is described here.
const VERSION: u8 = 2;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the longest frame, an attachment; the log bytes of a data frame not counted.
pub const FRAME_BYTES_MAX: usize = HEADER_BYTES + Group::BYTES + 8 + 16 * LANES_MAX + HISTORY_MAX * 8 * (1 + LANES_MAX);
/// Bytes of a [`Body::Report`].
pub const REPORT_BYTES: usize = HEADER_BYTES + 16;
/// Bytes of a [`Body::Report`] in a chain, which says too what the rest of the chain has.
pub const REPORT_CHAIN_BYTES: usize = REPORT_BYTES + 8;
/// Flags of a report: fields that follow, and what a flag alone says.
const COVERED: u8 = 1;
const ON_FLASH: u8 = 2;
const RING_SURVIVES: u8 = 4;
const LOST_MEMORY: u8 = 8;
/// Of an acceptance, beside its number of lanes.
const LOST: u64 = 1 << 8;
/// Of an attachment, there: where the log ends follows.
const ENDS: u64 = 1 << 8;

/// Bytes of a [`Body::Data`], the log bytes that it names not counted.
const DATA_BYTES: usize = HEADER_BYTES + 16;

const PROPOSE: u8 = 1;
const ACCEPTED: u8 = 2;
const REFUSE: u8 = 3;
const ATTACH: u8 = 4;
const DATA: u8 = 5;
const REPORT: u8 = 6;
const KEEP_ALIVE: u8 = 7;
const PULL: u8 = 8;
const TRIM: u8 = 9;
const FLUSH: u8 = 10;

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The function whose log it is about: 0 is the physical one.
    pub function: u8,
    /// The node that sends it.
    pub from: u8,
    /// The node that it is for.
    pub to: u8,
    /// The epoch in which it was sent; of a refusal, the epoch that is refused.
    pub epoch: Epoch,
    /// The content.
    pub body: Body,
}

/// Content of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// Asks to accept the header's epoch, made by the sender, who would be primary of `target`.
    Propose {
        /// The operator says that a peer without an answer is dead.
        force: bool,
        /// The version of the group that the sender knows. `target` has this version too unless the proposal changes
        /// the group.
        base: Epoch,
        /// The group that the sender would be primary of.
        target: Group,
    },
    /// Accepts the header's epoch: the sender takes nothing more from lower ones.
    Accepted(Box<Accepted>),
    /// Refuses a frame of the header's epoch.
    Refuse {
        /// The highest epoch that the sender has accepted.
        promised: Epoch,
        /// Why.
        reason: Reason,
        /// The group that the sender knows; with [`Reason::Pending`] the one that is about to be.
        group: Group,
    },
    /// Tells a replica the epoch's history: the replica cuts what is not in it, and answers with reports.
    Attach(Box<Attach>),
    /// Log bytes.
    Data {
        /// They answer a [`Body::Pull`].
        pulled: bool,
        /// Lane.
        lane: u8,
        /// Stream offset of the first byte.
        offset: u64,
        /// Number of bytes; not 0.
        len: u32,
    },
    /// A replica's credit counter of one lane.
    Report {
        /// Lane.
        lane: u8,
        /// Whether the sender, and in a chain all after it, hold all that the epoch began with.
        synced: bool,
        /// Bytes past the counter that the sender's intake queue takes; 0 when it said so before.
        window: u32,
        /// End of the sender's persisted bytes.
        persisted: u64,
        /// In a chain, end of what all members after the sender have too, and no more than `persisted`; else the same.
        covered: u64,
        /// The durable part, where reports say that.
        durable: Option<Durable>,
        /// The sender has lost memory that held log bytes, or is new, and asks where the log ends ([`Attach::ends`]).
        lost: bool,
    },
    /// The primary lives and has nothing to say.
    KeepAlive,
    /// Asks an acceptor for log bytes that the candidate lacks.
    Pull {
        /// Lane.
        lane: u8,
        /// Stream offset of the first byte.
        start: u64,
        /// Stream offset after the last byte; above `start`.
        end: u64,
    },
    /// The primary lives, and its host has no use for a lane's log below an offset.
    Trim {
        /// Lane.
        lane: u8,
        /// The offset.
        to: u64,
    },
    /// The primary lives, and its host waits until replicas have a lane's bytes below an offset where a power cut does
    /// not reach them.
    Flush {
        /// Lane.
        lane: u8,
        /// The offset.
        to: u64,
    },
}

/// The part of a replica's bytes that survives a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durable {
    /// End of what the sender, and in a chain all after it, have on flash; no more than the counter.
    pub destaged: u64,
    /// Whether what is in the rings of the sender, and in a chain of all after it, outlives a power cut.
    pub ring_survives: bool,
}

/// The log of a node that accepts an epoch, as far as the newest epoch goes in which it held all that was there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Accepted {
    /// That epoch.
    pub synced: Epoch,
    /// The version of the group of which it was an epoch.
    pub version: Epoch,
    /// The node has lost memory that held log bytes: others may have more of that epoch.
    pub lost: bool,
    /// Number of lanes.
    pub lanes: u8,
    /// For each lane the oldest offset that it can still send.
    pub oldest: [u64; LANES_MAX],
    /// For each lane where that log ends.
    pub ends: [u64; LANES_MAX],
    /// Its history.
    pub history: History,
}

/// The log of an epoch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attach {
    /// The group.
    pub group: Group,
    /// Number of lanes.
    pub lanes: u8,
    /// For each lane the oldest offset that the sender can still send.
    pub oldest: [u64; LANES_MAX],
    /// For each lane where the sender's log ends, for a replica that has asked.
    pub ends: Option<[u64; LANES_MAX]>,
    /// Its history; the header's epoch is its newest.
    pub history: History,
}

/// Why a frame is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// A higher epoch was accepted.
    Epoch,
    /// There is a newer group.
    Group,
    /// A change of the group has begun and has to be finished first.
    Pending,
    /// The histories share no epoch, or the log that the replica lacks is gone: the replica has to be rebuilt.
    Stale,
    /// Group or number of lanes were set up differently.
    Mismatch,
}

/// Why bytes are no frame. Such bytes are dropped: the protocol repeats what matters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameError {
    /// There are fewer bytes, or more, than such a frame has: this many.
    Length(usize),
    /// The checksum is wrong.
    Checksum,
    /// The version, in the high half, or the kind, in the low half of byte 0, is not known.
    Kind(u8),
    /// A field has a value that it can't have.
    Field(&'static str),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length(n) => write!(f, "a frame of {n} bytes: too short or too long for its kind"),
            FrameError::Checksum => f.write_str("the checksum of a frame is wrong"),
            FrameError::Kind(byte) => {
                write!(f, "version and kind {byte:#04x} are not known: this is version {VERSION}")
            }
            FrameError::Field(name) => write!(f, "field {name} of a frame has a value that it can't have"),
        }
    }
}

impl std::error::Error for FrameError {}

impl Frame {
    /// Writes the frame, without the log bytes that it names, and returns its length, at most [`FRAME_BYTES_MAX`].
    pub fn encode(&self, bytes: &mut [u8; FRAME_BYTES_MAX]) -> usize {
        let mut out = Writer { bytes, at: HEADER_BYTES };
        let kind = match &self.body {
            Body::Propose { force, base, target } => {
                out.u64(u64::from(*force));
                out.u64(base.0);
                out.put(&target.to_bytes());
                PROPOSE
            }
            Body::Accepted(accepted) => {
                out.u64(u64::from(accepted.lanes) | if accepted.lost { LOST } else { 0 });
                out.u64(accepted.synced.0);
                out.u64(accepted.version.0);
                out.lanes(accepted.lanes, &accepted.oldest);
                out.lanes(accepted.lanes, &accepted.ends);
                out.history(accepted.lanes, &accepted.history);
                ACCEPTED
            }
            Body::Refuse { promised, reason, group } => {
                out.u64(*reason as u64);
                out.u64(promised.0);
                out.put(&group.to_bytes());
                REFUSE
            }
            Body::Attach(attach) => {
                out.u64(u64::from(attach.lanes) | if attach.ends.is_some() { ENDS } else { 0 });
                out.put(&attach.group.to_bytes());
                out.lanes(attach.lanes, &attach.oldest);
                if let Some(ends) = &attach.ends {
                    out.lanes(attach.lanes, ends);
                }
                out.history(attach.lanes, &attach.history);
                ATTACH
            }
            Body::Data { pulled, lane, offset, len } => {
                out.put(&[*lane, u8::from(*pulled), 0, 0]);
                out.put(&len.to_le_bytes());
                out.u64(*offset);
                DATA
            }
            Body::Report { lane, synced, window, persisted, covered, durable, lost } => {
                let flags = [
                    (COVERED, covered != persisted),
                    (ON_FLASH, durable.is_some()),
                    (RING_SURVIVES, durable.is_some_and(|durable| durable.ring_survives)),
                    (LOST_MEMORY, *lost),
                ];
                let flags = flags.iter().filter(|(_, on)| *on).fold(0, |flags, (bit, _)| flags | bit);
                out.put(&[*lane, u8::from(*synced), flags, 0]);
                out.put(&window.to_le_bytes());
                out.u64(*persisted);
                if covered != persisted {
                    out.u64(*covered);
                }
                if let Some(durable) = durable {
                    out.u64(durable.destaged);
                }
                REPORT
            }
            Body::KeepAlive => KEEP_ALIVE,
            Body::Pull { lane, start, end } => {
                out.u64(u64::from(*lane));
                out.u64(*start);
                out.u64(*end);
                PULL
            }
            Body::Trim { lane, to } => {
                out.u64(u64::from(*lane));
                out.u64(*to);
                TRIM
            }
            Body::Flush { lane, to } => {
                out.u64(u64::from(*lane));
                out.u64(*to);
                FLUSH
            }
        };
        let len = out.at;
        bytes[..4].copy_from_slice(&[VERSION << 4 | kind, self.function, self.from, self.to]);
        bytes[4..8].fill(0);
        bytes[8..16].copy_from_slice(&self.epoch.0.to_le_bytes());
        let crc = crc32c(&bytes[..len]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        len
    }

    /// Bytes of the frame that begins here; of one without log bytes, all. `None`: there are too few.
    pub(super) fn len_of(bytes: &[u8]) -> Option<usize> {
        let is_data = bytes.first()? & 15 == DATA;
        if is_data { (bytes.len() >= DATA_BYTES).then_some(DATA_BYTES) } else { Some(bytes.len()) }
    }

    /// Log bytes that it names.
    pub fn log_bytes(&self) -> u32 {
        if let Body::Data { len, .. } = self.body { len } else { 0 }
    }

    /// The frame in these bytes, which hold it and nothing after it.
    pub fn parse(bytes: &[u8]) -> Result<Frame, FrameError> {
        let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(FrameError::Length(bytes.len()))?;
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(FrameError::Length(bytes.len()));
        }
        let [kind, function, from, to, c0, c1, c2, c3, epoch @ ..] = *header;
        let mut copy = [0; FRAME_BYTES_MAX];
        copy[..bytes.len()].copy_from_slice(bytes);
        copy[4..8].fill(0);
        if crc32c(&copy[..bytes.len()]) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(FrameError::Checksum);
        }
        if kind >> 4 != VERSION {
            return Err(FrameError::Kind(kind));
        }
        let mut rest = Reader { bytes: body, total: bytes.len() };
        let body = rest.body(kind)?;
        if !rest.bytes.is_empty() {
            return Err(FrameError::Length(bytes.len()));
        }
        Ok(Frame { function, from, to, epoch: Epoch(u64::from_le_bytes(epoch)), body })
    }
}

/// Where peers map each other's memory (NTB), a report is one posted write of 8 bytes: the counter in bits 43:0, the
/// lane in 47:44, synced in 48, and the low 15 bits of the epoch in 63:49. Its address says function, sender and
/// receiver. The epoch's bits tell an epoch from the 127 before it of the same node: posted writes do not stay on their
/// way that long.
impl Frame {
    /// The frame as a posted write, or `None` when it has more to say than fits.
    pub fn to_posted_write(&self) -> Option<u64> {
        match self.body {
            Body::Report { lane, synced, window: 0, persisted, covered, durable: None, lost: false }
                if covered == persisted && persisted >> 44 == 0 =>
            {
                Some(persisted | u64::from(lane) << 44 | u64::from(synced) << 48 | self.epoch.0 << 49)
            }
            _ => None,
        }
    }

    /// The frame that this posted write stands for, or `None` when it is not of the receiver's `epoch`.
    pub fn from_posted_write(write: u64, function: u8, from: u8, to: u8, epoch: Epoch) -> Option<Frame> {
        let persisted = write & ((1 << 44) - 1);
        let (lane, synced) = ((write >> 44) as u8 & 15, write >> 48 & 1 == 1);
        let body = Body::Report { lane, synced, window: 0, persisted, covered: persisted, durable: None, lost: false };
        (write >> 49 == epoch.0 & 0x7FFF).then_some(Frame { function, from, to, epoch, body })
    }
}

struct Writer<'a> {
    bytes: &'a mut [u8; FRAME_BYTES_MAX],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    fn lanes(&mut self, lanes: u8, values: &[u64; LANES_MAX]) {
        for &value in &values[..usize::from(lanes).min(LANES_MAX)] {
            self.u64(value);
        }
    }

    /// The epochs follow each other to the end of the frame: its length tells how many there are.
    fn history(&mut self, lanes: u8, history: &History) {
        for start in history.starts() {
            self.u64(start.epoch.0);
            self.lanes(lanes, &start.offsets);
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    total: usize,
}

fn lane_count(lanes: u64) -> Result<u8, FrameError> {
    if (1..=LANES_MAX as u64).contains(&lanes) { Ok(lanes as u8) } else { Err(FrameError::Field("lanes")) }
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (taken, rest) = self.bytes.split_first_chunk::<N>().ok_or(FrameError::Length(self.total))?;
        self.bytes = rest;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn epoch(&mut self) -> Result<Epoch, FrameError> {
        Ok(Epoch(self.u64()?))
    }

    /// A number below `bound` in 8 bytes.
    fn small(&mut self, bound: u64, name: &'static str) -> Result<u8, FrameError> {
        let value = self.u64()?;
        if value < bound { Ok(value as u8) } else { Err(FrameError::Field(name)) }
    }

    /// Lane, flag and two bytes of zero.
    fn lane_and_flag(&mut self) -> Result<(u8, bool), FrameError> {
        match self.take()? {
            [lane, flag @ 0..=1, 0, 0] if usize::from(lane) < LANES_MAX => Ok((lane, flag == 1)),
            _ => Err(FrameError::Field("lane")),
        }
    }

    fn group(&mut self) -> Result<Group, FrameError> {
        Group::from_bytes(&self.take()?).ok_or(FrameError::Field("group"))
    }

    fn lanes(&mut self, lanes: u8) -> Result<[u64; LANES_MAX], FrameError> {
        let mut values = [0; LANES_MAX];
        for value in &mut values[..usize::from(lanes)] {
            *value = self.u64()?;
        }
        Ok(values)
    }

    fn history(&mut self, lanes: u8) -> Result<History, FrameError> {
        let mut history = History::default();
        while !self.bytes.is_empty() {
            let start = Start { epoch: self.epoch()?, offsets: self.lanes(lanes)? };
            if history.starts().len() == HISTORY_MAX || !history.push(start) {
                return Err(FrameError::Field("history"));
            }
        }
        Ok(history)
    }

    fn body(&mut self, kind: u8) -> Result<Body, FrameError> {
        Ok(match kind & 15 {
            PROPOSE => {
                Body::Propose { force: self.small(2, "force")? == 1, base: self.epoch()?, target: self.group()? }
            }
            ACCEPTED => {
                let count = self.u64()?;
                let (lanes, lost) = (lane_count(count & !LOST)?, count & LOST != 0);
                let (synced, version) = (self.epoch()?, self.epoch()?);
                let (oldest, ends) = (self.lanes(lanes)?, self.lanes(lanes)?);
                let history = self.history(lanes)?;
                Body::Accepted(Box::new(Accepted { synced, version, lost, lanes, oldest, ends, history }))
            }
            REFUSE => {
                const REASONS: [Reason; 5] =
                    [Reason::Epoch, Reason::Group, Reason::Pending, Reason::Stale, Reason::Mismatch];
                let reason = REASONS[usize::from(self.small(REASONS.len() as u64, "reason")?)];
                Body::Refuse { promised: self.epoch()?, reason, group: self.group()? }
            }
            ATTACH => {
                let count = self.u64()?;
                let lanes = lane_count(count & !ENDS)?;
                let (group, oldest) = (self.group()?, self.lanes(lanes)?);
                let ends = if count & ENDS != 0 { Some(self.lanes(lanes)?) } else { None };
                Body::Attach(Box::new(Attach { group, lanes, oldest, ends, history: self.history(lanes)? }))
            }
            DATA => {
                let (lane, pulled) = self.lane_and_flag()?;
                let (len, offset) = (u32::from_le_bytes(self.take()?), self.u64()?);
                if len == 0 || offset.checked_add(u64::from(len)).is_none() {
                    return Err(FrameError::Field("len"));
                }
                Body::Data { pulled, lane, offset, len }
            }
            REPORT => {
                let [lane, synced @ 0..=1, flags @ 0..=15, 0] = self.take()? else {
                    return Err(FrameError::Field("lane"));
                };
                if usize::from(lane) >= LANES_MAX || flags & (ON_FLASH | RING_SURVIVES) == RING_SURVIVES {
                    return Err(FrameError::Field("lane"));
                }
                let (window, persisted) = (u32::from_le_bytes(self.take()?), self.u64()?);
                let covered = if flags & COVERED != 0 { self.u64()? } else { persisted };
                if covered > persisted || (flags & COVERED != 0 && covered == persisted) {
                    return Err(FrameError::Field("covered"));
                }
                let ring_survives = flags & RING_SURVIVES != 0;
                let durable = match flags & ON_FLASH {
                    0 => None,
                    _ => Some(Durable { destaged: self.u64()?, ring_survives }),
                };
                if durable.is_some_and(|durable| durable.destaged > persisted) {
                    return Err(FrameError::Field("destaged"));
                }
                let lost = flags & LOST_MEMORY != 0;
                Body::Report { lane, synced: synced == 1, window, persisted, covered, durable, lost }
            }
            KEEP_ALIVE => Body::KeepAlive,
            PULL => {
                let (lane, start, end) = (self.small(LANES_MAX as u64, "lane")?, self.u64()?, self.u64()?);
                if start >= end {
                    return Err(FrameError::Field("end"));
                }
                Body::Pull { lane, start, end }
            }
            TRIM => Body::Trim { lane: self.small(LANES_MAX as u64, "lane")?, to: self.u64()? },
            FLUSH => Body::Flush { lane: self.small(LANES_MAX as u64, "lane")?, to: self.u64()? },
            _ => return Err(FrameError::Kind(kind)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Mode;
    use super::*;
    use proptest::prelude::*;

    fn epoch() -> impl Strategy<Value = Epoch> {
        any::<u64>().prop_map(Epoch)
    }

    fn group() -> impl Strategy<Value = Group> {
        (epoch(), 0..4u8, proptest::sample::subsequence((0..=255u8).collect::<Vec<_>>(), 1..=16), any::<u8>()).prop_map(
            |(version, mode, members, k)| {
                let mode = match mode {
                    0 => Mode::Lazy,
                    1 => Mode::Eager,
                    2 => Mode::Chain,
                    _ => Mode::Quorum(k % members.len() as u8 + 1),
                };
                Group::new(version, mode, &members).unwrap()
            },
        )
    }

    /// Number of lanes, two sets of offsets, and a history.
    fn log() -> impl Strategy<Value = (u8, [u64; 16], [u64; 16], History)> {
        let steps = proptest::collection::vec((1..1u64 << 50, any::<[u32; 16]>()), 0..=HISTORY_MAX);
        (1..=16u8, any::<[u64; 16]>(), any::<[u64; 16]>(), steps).prop_map(|(lanes, mut a, mut b, steps)| {
            let mut history = History::default();
            let mut start = Start::default();
            for (up, offsets) in steps {
                start.epoch = Epoch(start.epoch.0 + up);
                for (sum, offset) in start.offsets.iter_mut().zip(offsets).take(usize::from(lanes)) {
                    *sum += u64::from(offset);
                }
                assert!(history.push(start));
            }
            a[usize::from(lanes)..].fill(0);
            b[usize::from(lanes)..].fill(0);
            (lanes, a, b, history)
        })
    }

    fn body() -> impl Strategy<Value = Body> {
        prop_oneof![
            (any::<bool>(), epoch(), group()).prop_map(|(force, base, target)| Body::Propose { force, base, target }),
            (epoch(), epoch(), any::<bool>(), log()).prop_map(
                |(synced, version, lost, (lanes, oldest, ends, history))| {
                    Body::Accepted(Box::new(Accepted { synced, version, lost, lanes, oldest, ends, history }))
                }
            ),
            (epoch(), 0..5usize, group()).prop_map(|(promised, reason, group)| Body::Refuse {
                promised,
                reason: [Reason::Epoch, Reason::Group, Reason::Pending, Reason::Stale, Reason::Mismatch][reason],
                group
            }),
            (group(), any::<bool>(), log()).prop_map(|(group, asked, (lanes, oldest, ends, history))| {
                Body::Attach(Box::new(Attach { group, lanes, oldest, ends: asked.then_some(ends), history }))
            }),
            (any::<bool>(), 0..16u8, 0..1u64 << 44, 1..=u32::MAX).prop_map(|(pulled, lane, offset, len)| Body::Data {
                pulled,
                lane,
                offset,
                len
            }),
            (0..16u8, any::<[bool; 2]>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<Option<bool>>()).prop_map(
                |(lane, [synced, lost], window, a, b, survives)| {
                    let durable = survives.map(|ring_survives| Durable { destaged: a.min(b) / 2, ring_survives });
                    Body::Report { lane, synced, window, persisted: a.max(b), covered: a.min(b), durable, lost }
                }
            ),
            Just(Body::KeepAlive),
            (0..16u8, any::<u64>()).prop_map(|(lane, to)| Body::Trim { lane, to }),
            (0..16u8, any::<u64>()).prop_map(|(lane, to)| Body::Flush { lane, to }),
            (0..16u8, 0..1u64 << 44, 1..1u64 << 44).prop_map(|(lane, start, len)| Body::Pull {
                lane,
                start,
                end: start + len
            }),
        ]
    }

    fn frame() -> impl Strategy<Value = Frame> {
        (any::<u8>(), any::<u8>(), any::<u8>(), epoch(), body()).prop_map(|(function, from, to, epoch, body)| Frame {
            function,
            from,
            to,
            epoch,
            body,
        })
    }

    proptest! {
        #[test]
        fn frames_come_back(frame in frame()) {
            let mut bytes = [0xA5; FRAME_BYTES_MAX];
            let len = frame.encode(&mut bytes);
            prop_assert_eq!(Frame::parse(&bytes[..len]), Ok(frame));
        }

        #[test]
        fn reports_fit_a_posted_write(epoch in epoch(), lane in 0..16u8, synced: bool, persisted in 0..1u64 << 44) {
            let body =
                Body::Report { lane, synced, window: 0, persisted, covered: persisted, durable: None, lost: false };
            let frame = Frame { function: 1, from: 2, to: 3, epoch, body };
            let write = frame.to_posted_write().unwrap();
            prop_assert_eq!(Frame::from_posted_write(write, 1, 2, 3, epoch), Some(frame));
            let other = Epoch(epoch.0 ^ 0x100);
            prop_assert_eq!(Frame::from_posted_write(write, 1, 2, 3, other), None);
        }

        #[test]
        fn a_flipped_bit_or_a_lost_byte_is_noticed(frame in frame(), at in any::<u64>()) {
            let mut bytes = [0; FRAME_BYTES_MAX];
            let len = frame.encode(&mut bytes);
            prop_assert!(Frame::parse(&bytes[..len - 1]).is_err());
            let bit = (at % (len as u64 * 8)) as usize;
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Frame::parse(&bytes[..len]).is_err());
        }

        /// The checksum is made right, so that what stands behind it is tried.
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 16..400), kind in 0..16u8) {
            bytes[0] = VERSION << 4 | kind;
            bytes[4..8].fill(0);
            let crc = crc32c(&bytes);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
            if let Ok(frame) = Frame::parse(&bytes) {
                let mut again = [0; FRAME_BYTES_MAX];
                let len = frame.encode(&mut again);
                prop_assert_eq!(Frame::parse(&again[..len]), Ok(frame));
            }
        }
    }

    #[test]
    fn fields_stand_where_the_layout_says() {
        let (lane, synced, window, persisted) = (3, true, 0x0403_0201, 0x99);
        let body = Body::Report { lane, synced, window, persisted, covered: persisted, durable: None, lost: false };
        let frame = Frame { function: 1, from: 2, to: 4, epoch: Epoch(0x0102), body };
        let mut bytes = [0; FRAME_BYTES_MAX];
        assert_eq!(frame.encode(&mut bytes), REPORT_BYTES);
        assert_eq!(bytes[..4], [0x26, 1, 2, 4]);
        assert_eq!(bytes[8..32], [2, 1, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 1, 2, 3, 4, 0x99, 0, 0, 0, 0, 0, 0, 0]);
        let durable = Some(Durable { destaged: 0x77, ring_survives: true });
        let body = Body::Report { lane, synced, window, persisted, covered: persisted, durable, lost: false };
        assert_eq!(Frame { body, ..frame }.encode(&mut bytes), REPORT_BYTES + 8);
        assert_eq!((bytes[18], bytes[32]), (6, 0x77));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        assert_eq!(Frame::parse(&[0; 3]), Err(FrameError::Length(3)));
        assert_eq!(Frame::parse(&[0x21; 20]), Err(FrameError::Checksum));
    }
}
