//! The power of a node fails, and what comes back is held against the truth.

use super::{Campaign, LogScenario};
use crate::torture::{Victim, step_recovery};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use tidewater_core::device::Device;
use tidewater_core::fast::transport::Persistent;
use tidewater_core::power::Remains;
use tidewater_core::profile::OnWrap;
use tidewater_nand::{FaultyNand, Nand};

/// A lane's log after recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Log {
    start: u64,
    bytes: Vec<u8>,
}

impl Log {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// A node's logs after recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recovered {
    logs: Vec<Log>,
    ends: Vec<u64>,
    transport: Persistent,
}

impl Recovered {
    fn epoch(&self) -> u64 {
        self.transport.history.last().0
    }

    /// Whether two nodes have the same logs, as far as neither has been trimmed.
    pub(super) fn agrees(&self, other: &Recovered) -> bool {
        let same = |(a, b): (&Log, &Log)| {
            let start = a.start.max(b.start);
            a.end() == b.end()
                && (start >= a.end() || a.bytes[(start - a.start) as usize..] == b.bytes[(start - b.start) as usize..])
        };
        self.transport.history == other.transport.history && self.logs.iter().zip(&other.logs).all(same)
    }

    fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        // The bytes are checked to be what these say.
        self.logs.iter().for_each(|log| (log.start, log.end()).hash(&mut hasher));
        (self.transport.promised.0, self.epoch(), self.transport.node).hash(&mut hasher);
        hasher.finish()
    }
}

/// The bytes of pages on flash, those first that went there on stored energy.
struct Bytes<'a> {
    destaged: HashMap<u64, Box<[u8]>>,
    kept: &'a tidewater_sim::cluster::LogBytes,
}

impl<'a> Bytes<'a> {
    fn of(remains: &Remains<FaultyNand<Nand>>, kept: &'a tidewater_sim::cluster::LogBytes) -> Bytes<'a> {
        let destaged = remains.destaged().iter().map(|page| (page.page.sequence, page.bytes.clone())).collect();
        Bytes { destaged, kept }
    }

    fn get(&self, sequence: u64) -> Option<&[u8]> {
        self.destaged.get(&sequence).map(|bytes| &**bytes).or_else(|| self.kept.get(sequence))
    }
}

/// The logs on flash, lane by lane.
fn read_back(device: &Victim, bytes: &Bytes<'_>) -> Result<Recovered, String> {
    let function = device.fast().function(0).ok_or("the fast side is gone")?;
    let mut logs: Vec<Option<Log>> = vec![None; function.lanes().len()];
    for (number, page) in function.log().pages().filter(|(_, page)| page.len > 0) {
        let bytes = bytes.get(page.sequence).ok_or_else(|| format!("no node has the bytes of page {number}"))?;
        let log = logs[usize::from(page.lane)].get_or_insert(Log { start: page.offset, bytes: Vec::new() });
        if log.end() != page.offset {
            return Err(format!("lane {}: a gap from {} to {}", page.lane, log.end(), page.offset));
        }
        log.bytes.extend(&bytes[..page.len as usize]);
    }
    let lane = |(lane, log): (usize, Option<Log>)| {
        let end = function.lanes()[lane].persisted();
        let log = log.unwrap_or(Log { start: end, bytes: Vec::new() });
        if log.end() == end {
            Ok(log)
        } else {
            Err(format!("lane {lane}: the log on flash ends at {}, the counter says {end}", log.end()))
        }
    };
    let logs: Vec<Log> = logs.into_iter().enumerate().map(lane).collect::<Result<_, String>>()?;
    let ends = logs.iter().map(Log::end).collect();
    Ok(Recovered { logs, ends, transport: function.transport().persistent().clone() })
}

fn power_on(scenario: &LogScenario, remains: Remains<FaultyNand<Nand>>) -> Result<Victim, String> {
    Device::power_on(&scenario.drive.profile, remains).map_err(|e| e.to_string())
}

/// Runs a recovery to its end. Returns how many events it took.
fn recover(scenario: &LogScenario, remains: Remains<FaultyNand<Nand>>) -> Result<(Victim, u64), String> {
    let mut device = power_on(scenario, remains)?;
    let mut events = 0;
    while device.is_recovering() {
        step_recovery(&mut device)?;
        events += 1;
    }
    Ok((device, events))
}

impl Campaign<'_> {
    /// The power of everything fails now. A node that nothing has happened to since it last came back comes back as
    /// then, so only the `touched` ones are brought back.
    pub(super) fn cut(&mut self, touched: u32) -> Result<(), String> {
        self.counts.cuts += 1;
        let nodes = self.bench.cluster.len();
        for node in (0..nodes).filter(|node| touched & 1 << node != 0) {
            self.cut_node(node).map_err(|what| format!("node {node}: {what}"))?;
        }
        self.truth.check_group(|node| {
            let recovered = self.recovered[node].as_ref()?;
            Some((recovered.epoch(), &recovered.ends[..]))
        })?;
        if self.recovered.iter().all(Option::is_some) {
            let mut hasher = DefaultHasher::new();
            self.recovered.iter().flatten().for_each(|recovered| recovered.fingerprint().hash(&mut hasher));
            self.counts.states.insert(hasher.finish());
        }
        Ok(())
    }

    /// One node's power fails: what comes back must be all that it ever reported, and no more than it received.
    fn cut_node(&mut self, node: usize) -> Result<(), String> {
        let Some(device) = self.bench.cluster.device(node) else { return Ok(()) };
        self.counts.recoveries += 1;
        let recovering = device.is_recovering();
        let remains = device.clone().cut_power();
        let bytes = Bytes::of(&remains, self.bench.cluster.bytes(node));
        self.counts.energy_max = self.counts.energy_max.max(remains.energy());
        let bound = tidewater_core::fast::energy_needed(&self.scenario.drive.profile);
        if remains.energy() > bound {
            return Err(format!("destaging took {} J, and set-up reckoned with {bound} J", remains.energy()));
        }
        let every = self.effort.nested_every;
        let again = (every > 0 && self.counts.recoveries.is_multiple_of(every)).then(|| remains.clone());
        let (device, events) = recover(self.scenario, remains)?;
        let recovered = read_back(&device, &bytes)?;
        if recovering {
            if self.recovered[node].as_ref().is_some_and(|before| *before != recovered) {
                return Err("another log when the power fails during a recovery".into());
            }
        } else {
            self.check_node(node, &device, &recovered)?;
        }
        if let Some(remains) = again {
            let nested = cut_recovery(self.scenario, self.effort.nested_stride, (remains, &bytes), events, &recovered);
            self.counts.nested_cuts += nested?;
        }
        self.recovered[node] = Some(recovered);
        Ok(())
    }

    /// Holds what came back of a node against what it was before, and against the truth.
    fn check_node(&self, node: usize, device: &Victim, recovered: &Recovered) -> Result<(), String> {
        let before = self.bench.cluster.device(node).expect("the node had power");
        let survives = before.fast().survives();
        let function = before.fast().function(0).expect("the profile has a fast side");
        if recovered.transport != *function.transport().persistent() {
            return Err("its transport has forgotten something".into());
        }
        for (lane, log) in recovered.logs.iter().enumerate() {
            let before = &function.lanes()[lane];
            // A replica has reported to its primary all that is persistent, whatever its own clients see.
            let (promised, shown) =
                if survives { (before.released(), self.truth.shown(node, lane)) } else { (before.durable(), 0) };
            if log.end() < promised.max(shown) {
                let end = log.end();
                return Err(format!("lane {lane}: {promised} bytes were persistent, {shown} shown, {end} came back"));
            }
            if log.end() > before.persisted() {
                return Err(format!("lane {lane}: {} bytes came back of {}", log.end(), before.persisted()));
            }
            let keeps = function.setup().on_wrap == OnWrap::WaitForTrim;
            let oldest = function.log().oldest(lane as u8).filter(|_| keeps);
            if let Some(page) = oldest.filter(|page| page.offset < log.start) {
                return Err(format!("lane {lane}: the log began at {}, now at {}", page.offset, log.start));
            }
            self.truth.check_bytes(recovered.epoch(), lane, log.start, &log.bytes)?;
        }
        if let Some(oracle) = self.bench.oracle(node) {
            for lpn in 0..oracle.pages() {
                oracle.check_after_power_loss(lpn, device.content(lpn)).map_err(|v| v.to_string())?;
            }
        }
        Ok(())
    }
}

/// Cuts the power during a recovery: whenever that is, the same must come back. Returns how many cuts that were.
fn cut_recovery(
    scenario: &LogScenario,
    stride: u64,
    (remains, bytes): (Remains<FaultyNand<Nand>>, &Bytes<'_>),
    events: u64,
    expected: &Recovered,
) -> Result<u64, String> {
    let mut device = power_on(scenario, remains)?;
    let mut cuts = 0;
    for event in 0..=events {
        // Always right after power-on and right after recovery: the latter is recovering twice.
        if event % stride.max(1) == 0 || event == events {
            cuts += 1;
            let (again, _) = recover(scenario, device.clone().cut_power())?;
            if read_back(&again, bytes)? != *expected {
                return Err(format!("another log when the power fails again at event {event} of the recovery"));
            }
        }
        if event < events {
            step_recovery(&mut device)?;
        }
    }
    Ok(cuts)
}
