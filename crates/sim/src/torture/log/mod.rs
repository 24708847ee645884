//! Torture of the fast side: the power fails after every event, and the log that comes back is held against what was
//! written and what was credited.

mod writer;

use super::{Mix, Scenario, Victim, step_recovery};
use crate::oracle::Oracle;
use crate::torture::host::Host;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use tidewater_base::{Instant, Rng};
use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::fast::{Content, Function};
use tidewater_core::power::Remains;
use tidewater_nand::{FaultyNand, Nand};
use writer::{Action, Writer};

/// The bytes of pages of the log, under the sequence of their stamps.
type Bytes = HashMap<u64, Rc<[u8]>>;

/// A drive with a fast side, and its clients.
#[derive(Clone)]
struct Bench {
    device: Victim,
    bytes: Bytes,
    writers: Vec<Writer>,
    /// Block traffic beside the log, if any.
    host: Option<Host>,
    now: Instant,
    appended: u64,
}

/// A drive that came back, and the bytes of its flash.
struct Alive {
    device: Victim,
    now: Instant,
    bytes: Bytes,
}

/// What came back of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Log {
    start: u64,
    bytes: Vec<u8>,
}

impl Log {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// What a campaign did.
#[derive(Clone, Debug, Default)]
pub struct LogCounts {
    /// Events before the cuts.
    pub events: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Power cuts during a recovery.
    pub nested_cuts: u64,
    /// Different logs that came back.
    pub states: HashSet<u64>,
    /// Bytes credited in the run.
    pub bytes: u64,
    /// Pages destaged, and of these partial ones.
    pub pages: (u64, u64),
    /// Times that the LBA ring went round.
    pub turns: u64,
    /// The most joules that a cut took.
    pub energy_max: f64,
}

impl LogCounts {
    /// Adds another campaign's counts.
    pub fn add(&mut self, other: LogCounts) {
        self.events += other.events;
        self.cuts += other.cuts;
        self.nested_cuts += other.nested_cuts;
        self.states.extend(other.states);
        self.bytes += other.bytes;
        self.pages = (self.pages.0 + other.pages.0, self.pages.1 + other.pages.1);
        self.turns += other.turns;
        self.energy_max = self.energy_max.max(other.energy_max);
    }
}

impl fmt::Display for LogCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} events, {} cuts, {} nested cuts, {} distinct logs, {} bytes credited, {} pages ({} partial), \
             {} turns of the LBA ring, at most {:.4} J",
            self.events,
            self.cuts,
            self.nested_cuts,
            self.states.len(),
            self.bytes,
            self.pages.0,
            self.pages.1,
            self.turns,
            self.energy_max
        )
    }
}

/// How thorough a campaign of the fast side is.
#[derive(Clone, Copy, Debug)]
pub struct LogEffort {
    /// Events of the run; the power is cut after each.
    pub events: u64,
    /// In every so many recoveries the power is cut again. 0: never.
    pub nested_every: u64,
    /// After every so many events of such a recovery.
    pub nested_stride: u64,
    /// After so many events the run goes on with a drive that lost its power. 0: never.
    pub life: u64,
}

/// Tortures the fast side of a scenario's drive, stand-alone.
///
/// # Errors
/// The first promise that was broken.
///
/// # Panics
/// When the device asserts something about itself, or the profile makes no drive with a fast side.
pub fn torture_log(scenario: &Scenario, effort: LogEffort, seed: u64) -> Result<LogCounts, super::Failure> {
    let fail = |event, what| super::Failure { scenario: scenario.name.clone(), seed, event, what };
    let mut rng = Rng::new(seed, b"log torture");
    let mut counts = LogCounts::default();
    let mut bench = Bench::new(scenario, &mut rng, seed);
    for event in 1..=effort.events {
        bench.step().map_err(|what| fail(event, what))?;
        let alive = bench.cut(scenario, effort, &mut counts).map_err(|what| fail(event, what))?;
        if effort.life > 0 && event % effort.life == 0 {
            bench.count(&mut counts);
            let Alive { device, now, bytes } = alive;
            bench = Bench::over(scenario, &mut rng, (device, now), bytes);
        }
    }
    counts.events = effort.events;
    bench.count(&mut counts);
    Ok(counts)
}

impl Bench {
    fn new(scenario: &Scenario, rng: &mut Rng, seed: u64) -> Bench {
        let options = Options { seed, stamps: true, precondition: scenario.precondition, ..Options::default() };
        let faults = scenario.faults.clone();
        let device = Device::over(&scenario.profile, options, |nand| FaultyNand::new(nand, faults));
        let device = device.unwrap_or_else(|e| panic!("{}: {e}", scenario.name));
        Bench::over(scenario, rng, (device, Instant::ZERO), Bytes::default())
    }

    fn over(scenario: &Scenario, rng: &mut Rng, (device, now): (Victim, Instant), bytes: Bytes) -> Bench {
        let lanes = device.fast().function(0).expect("the profile has a fast side").lanes();
        let writers =
            lanes.iter().enumerate().map(|(i, lane)| Writer::new(i, lane.credit(), now, rng.next_u64())).collect();
        let host = (scenario.mix.total() > 0).then(|| {
            let pages = (device.capacity() / u64::from(device.profile().ftl.unit_size)) as u32;
            let contents: Vec<_> = (0..pages).map(|lpn| device.content(lpn)).collect();
            Host::new(scenario, Oracle::new(scenario.durability(), contents), now, rng.next_u64())
        });
        Bench { device, bytes, writers, host, now, appended: 0 }
    }

    fn function(&self) -> &Function {
        self.device.fast().function(0).expect("the profile has a fast side")
    }

    /// One event: of the device, of a writer, or of the block side's host.
    fn step(&mut self) -> Result<(), String> {
        let device_at = self.device.deadline().unwrap_or(Instant::NEVER);
        let (writer, writer_at) =
            self.writers.iter().map(|w| w.next_at).enumerate().min_by_key(|&(_, at)| at).expect("a lane has a writer");
        let host_at = self.host.as_ref().map_or(Instant::NEVER, Host::submits_at);
        self.now = device_at.min(writer_at).min(host_at).max(self.now);
        if device_at <= writer_at.min(host_at) {
            self.device.handle(self.now, Input::Timer).map_err(|_| "a timer was refused")?;
        } else if host_at <= writer_at {
            let host = self.host.as_mut().expect("it has a time");
            host.submit_at(self.now, &mut self.device)?;
        } else {
            self.write(writer);
        }
        self.take_outputs()
    }

    fn write(&mut self, writer: usize) {
        let setup = *self.function().setup();
        let writer = &mut self.writers[writer];
        let lane = writer.lane;
        match writer.act(self.now, &setup) {
            Action::Store { address, offset, len } => {
                let bytes: Vec<u8> = (offset..offset + u64::from(len)).map(|o| writer::byte(lane, 0, o)).collect();
                self.appended += u64::from(len);
                let store = Input::Store { function: 0, address, content: Content::Bytes(&bytes) };
                let _ = self.device.handle(self.now, store);
            }
            Action::ReadCredit => {
                let credit = self.function().lanes()[lane].credit();
                self.writers[lane].credit = credit;
            }
            Action::Trim { offset } => {
                self.device.trim_log(0, lane, offset);
            }
        }
    }

    fn take_outputs(&mut self) -> Result<(), String> {
        while let Some(output) = self.device.poll() {
            match output {
                Output::Store { function, page, .. } => {
                    let mut bytes = vec![0; page.len as usize];
                    self.device.fast().read_ring(function.into(), page.lane.into(), page.offset, &mut bytes);
                    self.bytes.insert(page.sequence, bytes.into());
                }
                other => {
                    let host = self.host.as_mut().ok_or("an output, but there is no block traffic")?;
                    host.take(&self.device, other)?;
                }
            }
        }
        Ok(())
    }

    fn count(&self, counts: &mut LogCounts) {
        for lane in self.function().lanes() {
            counts.pages.0 += lane.statistics.pages;
            counts.pages.1 += lane.statistics.partial_pages;
            counts.bytes += lane.statistics.bytes;
        }
        counts.turns += self.function().log().tail() / u64::from(self.function().log().count());
    }

    /// The power fails now. Returns the drive that came back.
    fn cut(&self, scenario: &Scenario, effort: LogEffort, counts: &mut LogCounts) -> Result<Alive, String> {
        counts.cuts += 1;
        let remains = self.device.clone().cut_power();
        counts.energy_max = counts.energy_max.max(remains.energy());
        let budget = scenario.profile.fast.energy;
        if remains.energy() > budget {
            return Err(format!("destaging took {} J of {budget} J", remains.energy()));
        }
        let mut bytes = self.bytes.clone();
        keep(&mut bytes, &remains);
        let (device, now, events) = recover(scenario, remains.clone())?;
        let logs = logs(&device, &bytes)?;
        self.check(&logs)?;
        if let Some(host) = &self.host {
            for lpn in 0..host.oracle().pages() {
                host.oracle().check_after_power_loss(lpn, device.content(lpn)).map_err(|v| v.to_string())?;
            }
        }
        counts.states.insert(fingerprint(&logs));
        if effort.nested_every > 0 && counts.cuts.is_multiple_of(effort.nested_every) {
            cut_recovery(scenario, effort, (remains, &bytes), events, &logs, counts)?;
        }
        Ok(Alive { device, now, bytes })
    }

    /// Holds what came back against what was written, credited and trimmed.
    fn check(&self, logs: &[Log]) -> Result<(), String> {
        let survives = self.device.fast().survives();
        for (lane, log) in logs.iter().enumerate() {
            let before = &self.function().lanes()[lane];
            let promised = if survives { before.credit() } else { before.durable() };
            if log.end() < promised {
                return Err(format!("lane {lane}: {promised} bytes were credited, {} came back", log.end()));
            }
            if log.end() > before.persisted() {
                return Err(format!("lane {lane}: {} bytes came back of {}", log.end(), before.persisted()));
            }
            let oldest = self.function().log().pages().find(|(_, page)| usize::from(page.lane) == lane && page.len > 0);
            if let Some((_, page)) = oldest.filter(|(_, page)| page.offset < log.start) {
                return Err(format!("lane {lane}: the log began at {}, now at {}", page.offset, log.start));
            }
            let wrong = (log.start..).zip(&log.bytes).find(|&(offset, &b)| b != writer::byte(lane, 0, offset));
            if let Some((offset, _)) = wrong {
                return Err(format!("lane {lane}: the byte at {offset} is not what was written"));
            }
        }
        Ok(())
    }
}

/// Keeps the bytes of pages that went to flash on stored energy.
fn keep(bytes: &mut Bytes, remains: &Remains<FaultyNand<Nand>>) {
    for page in remains.destaged() {
        bytes.insert(page.page.sequence, page.bytes.clone().into());
    }
}

/// The log of each lane, as it is on flash.
fn logs(device: &Victim, kept: &Bytes) -> Result<Vec<Log>, String> {
    let function = device.fast().function(0).ok_or("the fast side is gone")?;
    let mut logs: Vec<Option<Log>> = vec![None; function.lanes().len()];
    for (number, page) in function.log().pages().filter(|(_, page)| page.len > 0) {
        let bytes = kept.get(&page.sequence).ok_or_else(|| format!("nobody has the bytes of page {number}"))?;
        let log = logs[usize::from(page.lane)].get_or_insert(Log { start: page.offset, bytes: Vec::new() });
        if log.end() != page.offset {
            return Err(format!("lane {}: a gap from {} to {}", page.lane, log.end(), page.offset));
        }
        log.bytes.extend(&bytes[..page.len as usize]);
    }
    let lane = |(lane, log): (usize, Option<Log>)| {
        let log = log.unwrap_or(Log { start: function.lanes()[lane].credit(), bytes: Vec::new() });
        if log.end() != function.lanes()[lane].credit() {
            let credit = function.lanes()[lane].credit();
            return Err(format!("lane {lane}: the log ends at {}, the credit is {credit}", log.end()));
        }
        Ok(log)
    };
    logs.into_iter().enumerate().map(lane).collect()
}

/// Cuts the power during a recovery: whenever that is, the same logs must come back.
fn cut_recovery(
    scenario: &Scenario,
    effort: LogEffort,
    (remains, bytes): (Remains<FaultyNand<Nand>>, &Bytes),
    events: u64,
    expected: &[Log],
    counts: &mut LogCounts,
) -> Result<(), String> {
    let mut device = Device::power_on(&scenario.profile, remains).map_err(|e| e.to_string())?;
    for event in 0..=events {
        if event % effort.nested_stride.max(1) == 0 || event == events {
            counts.nested_cuts += 1;
            let (again, ..) = recover(scenario, device.clone().cut_power())?;
            if logs(&again, bytes)? != expected {
                return Err(format!("another log when the power fails again at event {event} of the recovery"));
            }
        }
        if event < events {
            step_recovery(&mut device)?;
        }
    }
    Ok(())
}

fn fingerprint(logs: &[Log]) -> u64 {
    let mut hasher = DefaultHasher::new();
    logs.hash(&mut hasher);
    hasher.finish()
}

/// Runs a recovery to its end.
fn recover(scenario: &Scenario, remains: Remains<FaultyNand<Nand>>) -> Result<(Victim, Instant, u64), String> {
    let mut now = remains.at();
    let mut device = Device::power_on(&scenario.profile, remains).map_err(|e| e.to_string())?;
    let mut events = 0;
    while device.is_recovering() {
        now = step_recovery(&mut device)?;
        events += 1;
    }
    Ok((device, now, events))
}

/// Drives with a fast side, each with something of its own.
pub fn log_scenarios() -> Vec<Scenario> {
    use super::scenario::{scenario, tiny};
    use tidewater_base::Duration;
    use tidewater_core::profile::{OnWrap, Survives};
    let fast = |name: &str, change: &dyn Fn(&mut tidewater_core::profile::Profile)| {
        let mut p = tiny();
        p.nand.blocks_per_plane = 16;
        p.fast.size = 32 << 10;
        p.fast.queue_size = 2 << 10;
        p.fast.log_size = 256 << 10;
        p.fast.partial_after = Duration::from_us(300);
        for memory in p.memories.iter_mut().filter(|m| m.name == "sram") {
            memory.survives = Survives::ByCapacitors;
        }
        change(&mut p);
        Scenario { mix: Mix::NONE, ..scenario(name, p) }
    };
    vec![
        fast("log", &|_| {}),
        fast("log, small ring, overwrite oldest", &|p| {
            p.fast.size = 4 << 10;
            p.fast.queue_size = 512;
            p.fast.log_size = 64 << 10;
            p.fast.release = tidewater_core::profile::Release::Transferred;
            p.fast.on_wrap = OnWrap::OverwriteOldest;
        }),
        fast("log, three lanes, rows of two pages", &|p| {
            p.fast.lanes = 4;
            p.nand.planes = 2;
            p.nand.pages_per_block = 4;
        }),
        Scenario {
            mix: Mix::ALL,
            ..fast("log beside block traffic, destage priority", &|p| {
                p.fast.priority = tidewater_core::profile::DestagePriority::Destage;
            })
        },
        Scenario {
            mix: Mix::OVERWRITE,
            ..fast("log beside block traffic, conventional priority", &|p| {
                p.fast.priority = tidewater_core::profile::DestagePriority::Conventional;
            })
        },
        fast("log in volatile memory", &|p| {
            p.memories.iter_mut().for_each(|memory| memory.survives = Survives::Nothing);
        }),
    ]
}
