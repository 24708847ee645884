//! The control block of a function as bytes, for the store that keeps it ([`LogRemains`]).

use super::transport::{Config, Persistent};
use super::{ControlBlock, Function, Lane, OFFSET_END, Setup};
use crate::profile::{FastProfile, OnWrap};
use crate::saved::{Fields, Kind, StateError};
use tidewater_base::Duration;
use tidewater_wire::replication::{Group, Start};
use tidewater_wire::vendor::{Epoch, LANES_MAX, Role};

const KIND: Kind = Kind { what: "control block", magic: *b"TWCB", version: 1 };

/// The most bytes of a control block that was never replicated: each cut of a replica's log takes 17 more.
pub const BLOCK_BYTES_MAX: usize = 3 << 10;

/// No counter ever gets here: what has it is not ours.
const COUNT_MAX: u64 = 1 << 62;

/// What is left of a function of the fast side: its control block, and what was in the memory of its rings.
#[derive(Clone, Debug, PartialEq)]
pub struct LogRemains {
    /// The control block.
    pub block: ControlBlock,
    /// For each lane the bytes from [`ControlBlock::ends`] on that were released and are in the ring's memory, without
    /// a gap; none where that memory does not survive, or has been destaged. Lanes that are missing have none.
    pub rings: Vec<Vec<u8>>,
}

impl LogRemains {
    /// What is left when nothing is in the rings.
    pub fn destaged(block: ControlBlock) -> LogRemains {
        LogRemains { block, rings: Vec::new() }
    }
}

impl ControlBlock {
    /// Where each lane's stream had come to on flash.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// The log's pages that it tells of: from the first that is needed to behind the last that is on flash.
    pub fn pages(&self) -> std::ops::Range<u64> {
        self.head..self.settled
    }

    /// How the function is set up.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 << 10);
        let Setup { lanes, ring_size, queue_size, partial_after, on_wrap } = self.setup;
        out.extend([lanes as u8, on_wrap as u8, self.destage_failed.into(), self.transport.led.into()]);
        for number in [ring_size, queue_size, partial_after.as_ps(), self.head, self.settled] {
            out.extend(number.to_le_bytes());
        }
        for number in [self.range.0, self.range.1, self.range.2] {
            out.extend(number.to_le_bytes());
        }
        for offset in self.ends.iter().chain(&self.trimmed) {
            out.extend(offset.to_le_bytes());
        }
        put_transport(&mut out, &self.transport);
        put_config(&mut out, &self.transport_config);
        out.extend((self.cuts.len() as u32).to_le_bytes());
        for &(lane, end, sequence) in &self.cuts {
            out.push(lane);
            out.extend(end.to_le_bytes());
            out.extend(sequence.to_le_bytes());
        }
        KIND.seal(&out)
    }

    /// The control block in these bytes.
    ///
    /// # Errors
    /// When they are not what [`ControlBlock::to_bytes`] gave, or say what can't be.
    pub fn from_bytes(bytes: &[u8]) -> Result<ControlBlock, StateError> {
        let mut f = KIND.open(bytes)?;
        let [lanes, on_wrap, destage_failed, led] = f.array()?;
        let on_wrap = OnWrap::from_code(on_wrap).ok_or_else(|| f.wrong("there is no such rule for a full ring"))?;
        let (ring_size, queue_size) = (f.u64()?, f.u64()?);
        let setup =
            Setup { lanes: lanes.into(), ring_size, queue_size, partial_after: Duration::from_ps(f.u64()?), on_wrap };
        let (head, settled) = (f.u64()?, f.u64()?);
        let range = (f.u32()?, f.u32()?, f.u32()?);
        if !(1..=LANES_MAX).contains(&usize::from(lanes)) || destage_failed > 1 || led > 1 {
            return Err(f.wrong("a function has 1 to 16 lanes"));
        }
        let mut offsets = || (0..lanes).map(|_| f.u64()).collect::<Result<Vec<u64>, _>>();
        let (ends, trimmed) = (offsets()?, offsets()?);
        let transport = Persistent { led: led != 0, ..transport(&mut f)? };
        let transport_config = config(&mut f)?;
        let count = f.u32()?;
        let mut cuts = Vec::new();
        for _ in 0..count {
            cuts.push((f.u8()?, f.u64()?, f.u64()?));
        }
        f.end()?;
        let is_good = ring_size.is_power_of_two()
            && (1..=ring_size).contains(&queue_size)
            && ring_size <= OFFSET_END
            && setup.partial_after.as_ps() < COUNT_MAX
            && head <= settled
            && settled < COUNT_MAX
            && settled - head <= u64::from(range.1)
            && range.2 < range.1
            && range.0.checked_add(range.1).is_some()
            && ends.iter().chain(&trimmed).all(|&offset| offset <= OFFSET_END)
            && transport_config.lanes == lanes
            && cuts.iter().all(|&(lane, end, sequence)| lane < lanes && end <= OFFSET_END && sequence < COUNT_MAX);
        if !is_good {
            return Err(f.wrong("its numbers make no sense"));
        }
        let destage_failed = destage_failed == 1;
        Ok(ControlBlock {
            ends,
            trimmed,
            head,
            settled,
            range,
            destage_failed,
            setup,
            transport,
            transport_config,
            cuts,
        })
    }

    /// Whether a function of this drive may be set up as the block says, and its ring of logical pages lies where it
    /// may.
    pub(crate) fn fits(&self, function: &Function, fast: &FastProfile) -> bool {
        let (first, count, _) = self.range;
        let log = &function.log;
        let lanes = u64::from(self.setup.lanes);
        let of_memory = |bytes: u64, most: u64| bytes.checked_mul(lanes).is_some_and(|bytes| bytes <= most);
        first >= log.first_lpn()
            && u64::from(first) + u64::from(count) <= u64::from(log.first_lpn()) + u64::from(log.count())
            && of_memory(self.setup.ring_size, fast.size)
            && of_memory(self.setup.queue_size, fast.queue_size.saturating_mul(fast.lanes.into()))
    }
}

impl Function {
    /// What survives of it besides its pages and the memory of its rings.
    pub fn control_block(&self) -> ControlBlock {
        self.save()
    }

    /// Whether its control block is still this one.
    pub fn is_saved_as(&self, block: &ControlBlock) -> bool {
        block.head == self.log.head()
            && block.settled == self.log.settled()
            && block.range == (self.log.first_lpn(), self.log.count(), self.log.reserve())
            && block.destage_failed == self.destage_failed
            && block.setup == self.setup
            && block.trimmed == self.trimmed
            && block.cuts == self.cuts
            && block.transport_config == self.transport_config
            && block.transport == *self.transport.persistent()
            && block.ends.iter().copied().eq(self.lanes.iter().map(Lane::durable))
    }
}

fn put_group(out: &mut Vec<u8>, group: &Group) {
    out.extend(group.to_bytes());
}

fn group(f: &mut Fields<'_>) -> Result<Group, StateError> {
    Group::from_bytes(&f.array()?).ok_or_else(|| f.wrong("there can be no such group"))
}

fn put_transport(out: &mut Vec<u8>, it: &Persistent) {
    out.extend([it.node, it.role as u8, it.pending.is_some().into(), u8::from(it.rebuild) | u8::from(it.lost) << 1]);
    put_group(out, &it.group);
    if let Some(pending) = &it.pending {
        put_group(out, pending);
    }
    for epoch in [it.floor, it.promised, it.synced, it.synced_in] {
        out.extend(epoch.0.to_le_bytes());
    }
    let starts = it.history.starts();
    out.push(starts.len() as u8);
    for start in starts {
        out.extend(start.epoch.0.to_le_bytes());
        start.offsets.iter().for_each(|offset| out.extend(offset.to_le_bytes()));
    }
}

fn transport(f: &mut Fields<'_>) -> Result<Persistent, StateError> {
    let [node, role, is_pending, bits] = f.array()?;
    if bits > 3 {
        return Err(f.wrong("its log has no such property"));
    }
    let role = Role::from_code(role).ok_or_else(|| f.wrong("there is no such role"))?;
    let group_now = group(f)?;
    let pending = match is_pending {
        0 => None,
        _ => Some(group(f)?),
    };
    let [floor, promised, synced, synced_in] = [Epoch(f.u64()?), Epoch(f.u64()?), Epoch(f.u64()?), Epoch(f.u64()?)];
    let mut it = Persistent {
        node,
        role,
        group: group_now,
        pending,
        floor,
        promised,
        synced,
        synced_in,
        rebuild: bits & 1 != 0,
        lost: bits & 2 != 0,
        ..Persistent::new()
    };
    for _ in 0..f.u8()? {
        let epoch = Epoch(f.u64()?);
        let mut offsets = [0; LANES_MAX];
        for offset in &mut offsets {
            *offset = f.u64()?;
        }
        if offsets.iter().any(|&offset| offset > OFFSET_END) || !it.history.push(Start { epoch, offsets }) {
            return Err(f.wrong("its epochs do not ascend"));
        }
    }
    if role != Role::StandAlone && !it.group.contains(node) {
        return Err(f.wrong("a node is a member of its group"));
    }
    Ok(it)
}

/// Times of a transport, in the order in which they are stored.
fn times(it: &mut Config) -> [&mut Duration; 7] {
    [
        &mut it.report_period,
        &mut it.keep_alive,
        &mut it.retry,
        &mut it.retry_max,
        &mut it.data_timeout,
        &mut it.counter_timeout,
        &mut it.promotion_timeout,
    ]
}

fn put_config(out: &mut Vec<u8>, it: &Config) {
    out.extend([it.function, it.lanes, it.report_destaged.into(), it.report_at_once.into()]);
    out.extend(it.payload_max.to_le_bytes());
    let mut it = *it;
    for time in times(&mut it) {
        out.extend(time.as_ps().to_le_bytes());
    }
}

fn config(f: &mut Fields<'_>) -> Result<Config, StateError> {
    let [function, lanes, destaged, at_once] = f.array()?;
    let (report_destaged, report_at_once) = (destaged != 0, at_once != 0);
    let payload_max = f.u32()?;
    let mut it = Config { function, lanes, report_destaged, report_at_once, payload_max, ..Config::default() };
    for time in times(&mut it) {
        *time = Duration::from_ps(f.u64()?);
        if time.is_zero() || time.as_ps() >= COUNT_MAX {
            return Err(f.wrong("a time of its transport is none"));
        }
    }
    if it.payload_max == 0 {
        return Err(f.wrong("a frame carries at least one byte"));
    }
    Ok(it)
}

#[cfg(test)]
mod tests {
    use super::super::transport::Persistent;
    use super::*;
    use tidewater_wire::replication::Mode;

    fn block() -> ControlBlock {
        let group = Group::new(Epoch::new(3, 1), Mode::Quorum(2), &[1, 4, 9]).expect("a group");
        let mut transport = Persistent { node: 4, role: Role::Secondary, group, ..Persistent::new() };
        transport.pending = Some(group.at(Epoch::new(5, 9)));
        (transport.promised, transport.synced) = (Epoch::new(5, 9), Epoch::new(3, 1));
        for counter in 1..=16 {
            let start = Start { epoch: Epoch::new(counter, 1), offsets: [counter * 100; LANES_MAX] };
            assert!(transport.history.push(start));
        }
        ControlBlock {
            ends: vec![4_000, 77],
            trimmed: vec![1_000, 0],
            head: 12,
            settled: 19,
            range: (900, 64, 10),
            destage_failed: false,
            setup: Setup {
                lanes: 2,
                ring_size: 4_096,
                queue_size: 1_024,
                partial_after: Duration::from_us(20),
                on_wrap: OnWrap::OverwriteOldest,
            },
            transport,
            transport_config: Config { function: 3, lanes: 2, ..Config::default() },
            cuts: vec![(1, 77, 5)],
        }
    }

    #[test]
    fn a_control_block_comes_back_from_its_bytes() {
        let block = block();
        let bytes = block.to_bytes();
        assert!(bytes.len() <= BLOCK_BYTES_MAX, "{}", bytes.len());
        assert_eq!(ControlBlock::from_bytes(&bytes), Ok(block));
        crate::saved::try_damage(&bytes, ControlBlock::from_bytes);
    }

    /// Checksums keep mistakes out, not people.
    #[test]
    fn numbers_that_make_no_sense_are_an_error() {
        let good = block();
        let with = |change: fn(&mut ControlBlock)| {
            let mut block = good.clone();
            change(&mut block);
            ControlBlock::from_bytes(&block.to_bytes())
        };
        let wrong: [fn(&mut ControlBlock); 12] = [
            |b| b.setup.lanes = 17,
            |b| b.setup.ring_size = 1_000,
            |b| b.setup.ring_size = 0,
            |b| b.setup.queue_size = 0,
            |b| b.setup.queue_size = 8_192,
            |b| b.settled = 11,
            |b| b.settled = 12 + 65,
            |b| b.range.2 = 64,
            |b| b.range.0 = u32::MAX,
            |b| b.ends[0] = OFFSET_END + 1,
            |b| b.cuts[0].0 = 2,
            |b| b.transport_config.retry = Duration::ZERO,
        ];
        for (i, change) in wrong.into_iter().enumerate() {
            assert!(with(change).is_err(), "{i}");
        }
        assert!(with(|b| b.transport.node = 5).is_err(), "a node outside of its group");
        assert!(with(|b| b.transport_config.lanes = 1).is_err(), "another number of lanes");
        assert_eq!(with(|_| {}), Ok(block()));
    }
}
