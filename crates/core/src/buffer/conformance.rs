//! What every policy must keep to, whatever its order: no dirty page is lost, capacity is kept, a flush empties, a read
//! finds the newest write, and a copy goes on as the original.
//!
//! The suite does random operations on a buffer between a read cache and flash, as a drive has them. The policy is
//! guarded ([`Outside`]), so that each of its answers is checked too. Operations that end in a failure are made fewer
//! and smaller until none can be left out.

use super::policy::{Leaving, Part, Run, Setting};
use super::{Buffer, BufferProfile, Outside, make};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tidewater_base::Rng;
use tidewater_base::units::plural_exact;

/// What is done to a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A command writes pages.
    Write {
        /// The first of them.
        first: u32,
        /// How many.
        len: u32,
    },
    /// A page is read.
    Read {
        /// The page.
        lpn: u32,
    },
    /// A page is deallocated.
    Remove {
        /// The page.
        lpn: u32,
    },
    /// Flash takes pages, of those that leave if any do, or else the policy chooses.
    Destage {
        /// How many at most.
        pages: u32,
    },
    /// All dirty pages leave.
    Flush,
    /// A copy of the buffer is flushed beside another copy.
    Copy,
    /// The power fails, and a new policy takes back what the buffer held.
    PowerCut,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Operation::Write { first, len: 1 } => write!(f, "write {first}"),
            Operation::Write { first, len } => write!(f, "write {first}..{}", (first + len).min(PAGES)),
            Operation::Read { lpn } => write!(f, "read {lpn}"),
            Operation::Remove { lpn } => write!(f, "remove {lpn}"),
            Operation::Destage { pages } => write!(f, "destage {pages}"),
            Operation::Flush => f.write_str("flush"),
            Operation::Copy => f.write_str("copy"),
            Operation::PowerCut => f.write_str("power cut"),
        }
    }
}

impl Operation {
    /// The first page that it names.
    fn page(&self) -> Option<u32> {
        match *self {
            Operation::Write { first: lpn, .. } | Operation::Read { lpn } | Operation::Remove { lpn } => Some(lpn),
            _ => None,
        }
    }

    /// The same on pages that many lower.
    fn lowered(self, by: u32) -> Operation {
        match self {
            Operation::Write { first, len } => Operation::Write { first: first - by, len },
            Operation::Read { lpn } => Operation::Read { lpn: lpn - by },
            Operation::Remove { lpn } => Operation::Remove { lpn: lpn - by },
            other => other,
        }
    }
}

/// A rule that a policy broke, and the least that was found to break it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The rule.
    pub rule: &'static str,
    /// How it was broken.
    pub what: String,
    /// Pages that the buffer takes.
    pub capacity: usize,
    /// Pages of a logical block.
    pub block: u32,
    /// What was done to a new buffer; the last operation broke the rule.
    pub operations: Vec<Operation>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { rule, what, capacity, block, operations } = self;
        let [capacity, block] = [*capacity as u64, u64::from(*block)].map(|pages| plural_exact(pages, "page"));
        write!(f, "{rule}: {what}; in a buffer of {capacity}, blocks of {block}")?;
        let words: Vec<String> = operations.iter().map(Operation::to_string).collect();
        if words.is_empty() { Ok(()) } else { write!(f, ", after: {}", words.join(", ")) }
    }
}

impl std::error::Error for Failure {}

const MADE: &str = "a policy can be made";
const ANSWERS: &str = "every answer is right";
const FOUND: &str = "a read finds the newest write";
const KEPT: &str = "no page is lost";
const ROOM: &str = "the buffer keeps to its capacity";
const LEAVE: &str = "pages leave when there is no room";
const FLUSHED: &str = "a flush leaves no dirty page";
const ALONG: &str = "what goes along with dirty pages is current";
const COUNTED: &str = "hits and pages are counted";
const COPIED: &str = "a copy goes on as the original";
const REPEATED: &str = "equal operations have equal results";

/// Pages of the drive.
const PAGES: u32 = 100;
/// Pages of the read cache.
const CACHED: usize = 8;
/// Pages of a sequential run.
const SEQUENTIAL: u32 = 16;
/// Sequences of operations.
const CASES: u32 = 64;
/// Operations of one, at most.
const OPERATIONS_MAX: u64 = 300;
/// Sequences that are tried to make one that fails shorter.
const ATTEMPTS_MAX: u32 = 2_000;

/// The policy of that built-in name, to be checked as others are.
pub fn built_in(name: &'static str) -> Outside {
    Outside::new("built-in", name, move |setting| {
        make(name, setting).ok_or_else(|| super::Fault::new(format_args!("there is no policy {name}")))
    })
}

/// Checks a policy. `profile`: thresholds and switches that it is made with. The same policy is always checked with the
/// same operations.
///
/// # Errors
/// The first failure, with as few operations as lead to it.
pub fn check(policy: &Outside, profile: &BufferProfile) -> Result<(), Box<Failure>> {
    let mut rng = Rng::new(11, b"conformance");
    for _ in 0..CASES {
        let case = Case::at_random(&mut rng);
        if let Err(broken) = case.run(policy, profile) {
            return Err(Box::new(case.shrunk(broken, policy, profile)));
        }
    }
    Ok(())
}

/// A rule that was broken, and how; after so many operations.
struct Broken {
    rule: &'static str,
    what: String,
    after: usize,
}

fn require(holds: bool, rule: &'static str, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { rule, what: what(), after: 0 }) }
}

/// The policy of a buffer has no fault.
fn trusted(buffer: &Buffer, rule: &'static str) -> Result<(), Broken> {
    match buffer.fault() {
        Some(fault) => Err(Broken { rule, what: fault.to_string(), after: 0 }),
        None => Ok(()),
    }
}

/// A buffer and what is done to it.
#[derive(Clone)]
struct Case {
    capacity: usize,
    block: u32,
    operations: Vec<Operation>,
}

impl Case {
    fn at_random(rng: &mut Rng) -> Case {
        let capacity = 1 + rng.below(39) as usize;
        let block = 1 + rng.below(19) as u32;
        let operations = 1 + rng.below(OPERATIONS_MAX);
        Case { capacity, block, operations: (0..operations).map(|_| operation(rng)).collect() }
    }

    fn run(&self, policy: &Outside, profile: &BufferProfile) -> Result<(), Broken> {
        let first = self.run_once(policy, profile)?;
        let second = self.run_once(policy, profile)?;
        let differ = first.iter().zip(&second).position(|(a, b)| a != b);
        let after = self.operations.len();
        require(differ.is_none() && first.len() == second.len(), REPEATED, || match differ {
            Some(at) => format!("page {} left first, and page {} when it was done again", first[at], second[at]),
            None => format!("{} pages left, and {} when it was done again", first.len(), second.len()),
        })
        .map_err(|broken| Broken { after, ..broken })
    }

    /// The pages that left, in order.
    fn run_once(&self, policy: &Outside, profile: &BufferProfile) -> Result<Vec<u32>, Broken> {
        let setting = Setting {
            capacity: self.capacity,
            block: self.block,
            units: PAGES,
            cached: CACHED,
            sequential: SEQUENTIAL,
            profile: profile.clone(),
        };
        let mut rig = Rig::new(policy, setting)?;
        let end = self.operations.iter().chain([&Operation::Flush]);
        for (at, operation) in end.enumerate() {
            let done = rig.apply(operation).and_then(|()| rig.check());
            // Of several things that are wrong, the policy's answer is the cause.
            trusted(&rig.buffer, ANSWERS).and(done).map_err(|broken| Broken { after: at + 1, ..broken })?;
        }
        Ok(rig.left)
    }

    /// The failure, with fewer and smaller operations as long as there is one.
    fn shrunk(mut self, mut broken: Broken, policy: &Outside, profile: &BufferProfile) -> Failure {
        self.operations.truncate(broken.after);
        let mut attempts = 0;
        let mut fails = |smaller: &Case| {
            attempts += 1;
            if attempts > ATTEMPTS_MAX { None } else { smaller.run(policy, profile).err() }
        };
        loop {
            let found = self.smaller().find_map(|mut smaller| {
                let broken = fails(&smaller)?;
                smaller.operations.truncate(broken.after);
                Some((smaller, broken))
            });
            let Some(found) = found else { break };
            (self, broken) = found;
        }
        // Once more, so that what the policy itself knows of its failure is of this case.
        broken = self.run(policy, profile).err().unwrap_or(broken);
        let Case { capacity, block, mut operations } = self;
        if broken.after > operations.len() {
            operations.push(Operation::Flush);
        }
        Failure { rule: broken.rule, what: broken.what, capacity, block, operations }
    }

    /// Cases that are a little smaller, those that are smallest first.
    fn smaller(&self) -> impl Iterator<Item = Case> + '_ {
        let count = self.operations.len();
        let pieces = std::iter::successors(Some(count), |&piece| Some(piece / 2)).take_while(|&piece| piece > 0);
        let without = pieces.flat_map(move |piece| {
            (0..count).step_by(piece).map(move |from| {
                let mut case = self.clone();
                case.operations.drain(from..(from + piece).min(count));
                case
            })
        });
        let with = move |at: usize, operation: Operation| {
            let mut case = self.clone();
            case.operations[at] = operation;
            case
        };
        let least = self.operations.iter().filter_map(|operation| operation.page()).min().unwrap_or(0);
        let lower = [least, least / 2].into_iter().filter(|&by| by > 0).map(|by| {
            let operations = self.operations.iter().map(|operation| operation.lowered(by)).collect();
            Case { operations, ..self.clone() }
        });
        let simpler = (0..count).flat_map(move |at| simpler(self.operations[at]).map(move |one| with(at, one)));
        let below = |value: usize| [1, value / 2, value - 1].into_iter().filter(move |&less| less > 0 && less < value);
        let capacities = below(self.capacity).map(|capacity| Case { capacity, ..self.clone() });
        let blocks = below(self.block as usize).map(|block| Case { block: block as u32, ..self.clone() });
        without.chain(capacities).chain(blocks).chain(lower).chain(simpler)
    }
}

fn operation(rng: &mut Rng) -> Operation {
    let lpn = rng.below(u64::from(PAGES)) as u32;
    let some = 1 + rng.below(11) as u32;
    match rng.below(32) {
        0..12 => Operation::Write { first: lpn, len: some },
        12..20 => Operation::Read { lpn },
        20..22 => Operation::Remove { lpn },
        22..28 => Operation::Destage { pages: some },
        28..30 => Operation::Flush,
        30 => Operation::Copy,
        _ => Operation::PowerCut,
    }
}

/// Simpler operations of the same kind.
fn simpler(operation: Operation) -> impl Iterator<Item = Operation> {
    let less = |value: u32, least: u32| {
        let values = [least, value / 2, value.saturating_sub(1)];
        values.into_iter().filter(move |&less| less >= least && less < value)
    };
    let found: Vec<Operation> = match operation {
        Operation::Write { first, len } => {
            let shorter = less(len, 1)
                .flat_map(|less| [first, first + len - less].map(|first| Operation::Write { first, len: less }));
            shorter.chain(less(first, 0).map(|first| Operation::Write { first, len })).collect()
        }
        Operation::Read { lpn } => less(lpn, 0).map(|lpn| Operation::Read { lpn }).collect(),
        Operation::Remove { lpn } => less(lpn, 0).map(|lpn| Operation::Remove { lpn }).collect(),
        Operation::Destage { pages } => less(pages, 1).map(|pages| Operation::Destage { pages }).collect(),
        Operation::Flush | Operation::Copy | Operation::PowerCut => Vec::new(),
    };
    found.into_iter()
}

/// A write buffer, a read cache and flash, as a drive has them.
struct Rig<'a> {
    policy: &'a Outside,
    setting: Setting,
    buffer: Buffer,
    cache: Buffer,
    in_cache: BTreeSet<u32>,
    /// What the host wrote last, and what flash has.
    newest: BTreeMap<u32, u64>,
    flash: BTreeMap<u32, u64>,
    version: u64,
    /// Pages that left, in order.
    left: Vec<u32>,
}

impl<'a> Rig<'a> {
    fn new(policy: &'a Outside, setting: Setting) -> Result<Rig<'a>, Broken> {
        Ok(Rig {
            policy,
            buffer: Rig::buffer(policy, &setting)?,
            cache: Rig::cache(&setting),
            setting,
            in_cache: BTreeSet::new(),
            newest: BTreeMap::new(),
            flash: BTreeMap::new(),
            version: 0,
            left: Vec::new(),
        })
    }

    fn buffer(policy: &Outside, setting: &Setting) -> Result<Buffer, Broken> {
        let made = policy.make(setting).map_err(|fault| Broken { rule: MADE, what: fault.to_string(), after: 0 })?;
        Ok(Buffer::of(made, setting, true))
    }

    fn cache(setting: &Setting) -> Buffer {
        Buffer::new("lru", &Setting { capacity: setting.cached, ..setting.clone() }, false)
    }

    fn apply(&mut self, operation: &Operation) -> Result<(), Broken> {
        match *operation {
            Operation::Write { first, len } => {
                let run = Run { first, end: (first + len).min(PAGES) };
                (run.first..run.end).try_for_each(|lpn| self.write(lpn, run))
            }
            Operation::Read { lpn } => self.read(lpn),
            Operation::Remove { lpn } => {
                self.uncache(lpn);
                let held = self.buffer.contains(lpn);
                require(self.buffer.remove(lpn) == held, COUNTED, || format!("page {lpn} was held: {held}"))?;
                self.newest.remove(&lpn);
                self.flash.remove(&lpn);
                Ok(())
            }
            Operation::Destage { pages } => self.destage(pages),
            Operation::Flush => {
                while self.buffer.dirty() > 0 {
                    self.destage(u32::MAX)?;
                }
                let left = self.buffer.contents();
                require(left.is_empty(), FLUSHED, || format!("page {} is dirty", left[0].0))?;
                let lost = self.newest.iter().find(|&(lpn, version)| self.flash.get(lpn) != Some(version));
                require(lost.is_none(), FLUSHED, || format!("page {:?} is not on flash", lost.map(|(lpn, _)| lpn)))
            }
            Operation::Copy => self.copy(),
            Operation::PowerCut => self.cut_power(),
        }
    }

    fn uncache(&mut self, lpn: u32) {
        if self.cache.remove(lpn) {
            self.in_cache.remove(&lpn);
            self.buffer.uncached(lpn);
        }
    }

    fn write(&mut self, lpn: u32, run: Run) -> Result<(), Broken> {
        self.uncache(lpn);
        self.version += 1;
        let (version, hits) = (self.version, self.buffer.statistics.hits);
        let (held, dirty) = (self.buffer.contains(lpn), self.buffer.is_dirty(lpn));
        let mut rounds = 0;
        while !self.buffer.write(lpn, version, run) {
            require(!held, ROOM, || format!("page {lpn} is held, and a write of it needs room"))?;
            if !self.buffer.drop_clean() {
                self.destage(1)?;
            }
            rounds += 1;
            require(rounds < 1_000, LEAVE, || format!("there is never room for page {lpn}"))?;
        }
        let hit = self.buffer.statistics.hits > hits;
        require(hit == dirty, COUNTED, || format!("page {lpn} was dirty: {dirty}; its write counts as a hit: {hit}"))?;
        self.newest.insert(lpn, version);
        let there = self.buffer.is_dirty(lpn) && self.buffer.version(lpn) == Some(version);
        require(there, KEPT, || format!("page {lpn} was written, and the buffer does not have it"))
    }

    fn read(&mut self, lpn: u32) -> Result<(), Broken> {
        let held = self.buffer.contains(lpn);
        require(self.buffer.read(lpn) == held, COUNTED, || format!("page {lpn} was held: {held}"))?;
        let found = self.buffer.version(lpn).or(self.flash.get(&lpn).copied());
        require(found == self.newest.get(&lpn).copied(), FOUND, || format!("page {lpn} is an older version"))?;
        if held || self.cache.look_up(lpn) || !self.flash.contains_key(&lpn) {
            return Ok(());
        }
        if self.buffer.keeps_clean() {
            let mut rounds = 0;
            while !self.buffer.keep(lpn) {
                self.destage(1)?;
                rounds += 1;
                require(rounds < 1_000, LEAVE, || format!("there is never room for page {lpn}"))?;
            }
            let clean = self.buffer.contains(lpn) && !self.buffer.is_dirty(lpn);
            require(clean, KEPT, || format!("page {lpn} was read, and is not held as a clean page"))?;
        }
        self.take_into_cache(lpn);
        Ok(())
    }

    fn take_into_cache(&mut self, lpn: u32) {
        let (buffer, in_cache) = (&mut self.buffer, &mut self.in_cache);
        self.cache.fill(lpn, |gone| {
            buffer.uncached(gone);
            in_cache.remove(&gone);
        });
        self.in_cache.insert(lpn);
        self.buffer.cached(lpn);
    }

    fn destage(&mut self, pages: u32) -> Result<(), Broken> {
        if !self.buffer.is_leaving() {
            if self.buffer.dirty() == 0 {
                return Ok(());
            }
            self.buffer.choose(3);
            let flash = &self.flash;
            self.buffer.trim_leaving(|page| page.part == Part::Dirty || flash.contains_key(&page.lpn));
            self.buffer.count_leaving();
            let any = self.buffer.leaving().iter().any(|page| page.part == Part::Dirty);
            require(any, LEAVE, || "no dirty page was chosen".into())?;
            let stray =
                self.buffer.leaving().iter().find(|p| p.part == Part::Cached && !self.in_cache.contains(&p.lpn));
            require(stray.is_none(), ALONG, || format!("the read cache does not have {stray:?}"))?;
        }
        for _ in 0..pages {
            let Some(&page) = self.buffer.leaving().first() else { return Ok(()) };
            let version = self.buffer.take_leaving(true);
            self.left.push(page.lpn);
            if page.part == Part::Dirty {
                self.flash.insert(page.lpn, version);
                if self.buffer.keeps_destaged() {
                    self.take_into_cache(page.lpn);
                }
            } else {
                let current = self.flash.get(&page.lpn) == self.newest.get(&page.lpn);
                require(current, ALONG, || format!("page {} goes along, and flash has an older version", page.lpn))?;
            }
        }
        Ok(())
    }

    /// Copies are flushed side by side; one of them is read from in between, unless it holds what was read.
    fn copy(&mut self) -> Result<(), Broken> {
        let (mut one, mut other) = (self.buffer.clone(), self.buffer.clone());
        trusted(&one, COPIED)?;
        trusted(&other, COPIED)?;
        if !other.keeps_clean() {
            for lpn in (0..PAGES).rev() {
                let held = one.contains(lpn);
                require(other.read(lpn) == held, COPIED, || format!("page {lpn} is held: {held}"))?;
            }
        }
        while one.dirty() > 0 {
            if !one.is_leaving() {
                one.choose(2);
                other.choose(2);
            }
            let same = one.leaving() == other.leaving();
            require(same, COPIED, || {
                let of = |buffer: &Buffer| buffer.leaving().iter().map(|page| page.lpn).collect::<Vec<_>>();
                format!("of one copy pages {:?} leave, of another pages {:?}", of(&one), of(&other))
            })?;
            one.take_leaving(true);
            other.take_leaving(true);
            trusted(&one, COPIED)?;
            trusted(&other, COPIED)?;
        }
        Ok(())
    }

    /// What was held goes back, whatever room there is.
    fn cut_power(&mut self) -> Result<(), Broken> {
        let held = self.buffer.contents();
        trusted(&self.buffer, ANSWERS)?;
        self.buffer = Rig::buffer(self.policy, &self.setting)?;
        self.cache = Rig::cache(&self.setting);
        self.in_cache.clear();
        held.iter().for_each(|&(lpn, version)| self.buffer.restore(lpn, version));
        require(self.buffer.contents() == held, KEPT, || "what was restored is not what was held".into())
    }

    fn check(&self) -> Result<(), Broken> {
        let dirty: Vec<(u32, u64)> =
            self.newest.iter().filter(|&(l, v)| self.flash.get(l) != Some(v)).map(|(&l, &v)| (l, v)).collect();
        let contents = self.buffer.contents();
        require(contents == dirty, KEPT, || {
            let held: BTreeSet<_> = contents.iter().map(|page| page.0).collect();
            let lost = dirty.iter().find(|page| !held.contains(&page.0));
            format!("{} pages are dirty, {} are held; missing: {:?}", dirty.len(), held.len(), lost.map(|page| page.0))
        })?;
        let (len, capacity) = (self.buffer.len(), self.buffer.capacity());
        require(self.buffer.dirty() == dirty.len(), COUNTED, || format!("{} dirty pages", self.buffer.dirty()))?;
        require(len <= capacity, ROOM, || format!("it holds {len} pages"))?;
        let leaving = self.buffer.leaving().iter().filter(|page: &&Leaving| page.part == Part::Dirty).count();
        let all = self.buffer.policy.len() + leaving;
        require(all == len, COUNTED, || format!("the policy has {all} pages, and the buffer {len}"))
    }
}
