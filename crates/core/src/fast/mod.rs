//! The fast side of X-SSD (Lee et al., SIGMOD 2022): log bytes go through an intake queue into a ring in memory that
//! survives a power loss, are acknowledged by a credit counter, and are destaged in order to a ring of logical pages.
//!
//! The way of the data: [`bar`] (what an address means), [`Lane`] (queue, ring, credit), [`LbaRing`] (pages). What
//! happens when, is in `intake`: it ties them to the device's memories, to flash and to time. ADR 7 has the reasons.

pub mod bar;
mod commands;
mod intake;
mod lane;
mod pages;
mod reassembly;
mod replication;
mod saved;
mod status;
pub mod transport;
mod waits;

pub use crate::content::{Content, LogPage, Place};
pub use lane::{Lane, LaneStatistics, Refusal};
pub use pages::{LbaRing, OFFSET_END, PAGE_HEADER};
pub use saved::{BLOCK_BYTES_MAX, LogRemains};

use crate::context::Options;
use crate::flaw::Injected;
use crate::profile::{FastProfile, OnWrap, Profile};
use tidewater_base::{Duration, Instant};
use tidewater_wire::vendor::PeerAddress;
use transport::Transport;
use waits::Wait;

/// How a function is set up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setup {
    /// Lanes, 1 to [`LANES_MAX`](tidewater_wire::vendor::LANES_MAX).
    pub lanes: u32,
    /// Bytes of each lane's ring, a power of two.
    pub ring_size: u64,
    /// Bytes of each lane's intake queue.
    pub queue_size: u64,
    /// Bytes that wait longer than this are destaged with filler.
    pub partial_after: Duration,
    /// What happens when the LBA ring is full.
    pub on_wrap: OnWrap,
}

impl Setup {
    fn of(fast: &FastProfile) -> Setup {
        Setup {
            lanes: fast.lanes,
            ring_size: fast.size / u64::from(fast.lanes),
            queue_size: fast.queue_size,
            partial_after: fast.partial_after,
            on_wrap: fast.on_wrap,
        }
    }
}

/// A function: lanes that share an LBA ring and a replication group.
#[derive(Clone, Debug)]
pub struct Function {
    setup: Setup,
    lanes: Vec<Lane>,
    log: LbaRing,
    next_lane: usize,
    /// Below this the host has no use for a lane's log any more.
    trimmed: Vec<u64>,
    /// Lanes that are to be trimmed, and up to where: by its primary's host, or once all peers have it.
    trims: Vec<(usize, u64)>,
    /// When its destage timer is due.
    timer_at: Instant,
    transport: Transport,
    transport_config: transport::Config,
    /// When its transport's timer is due.
    transport_at: Instant,
    /// It has peers.
    replicated: bool,
    /// A Promote that waits for its outcome.
    promoting: Option<u16>,
    /// Network addresses of the peers, for the carrier of frames.
    addresses: Vec<PeerAddress>,
    /// The LBA ring is full.
    waits_for_trim: bool,
    /// A page could not be written: no block is left, or the backing store has failed.
    destage_failed: bool,
    /// The log ends at these offsets for pages up to a write sequence: lane, end, sequence.
    cuts: Vec<(u8, u64, u64)>,
    /// What is in its rings outlives a power cut.
    ring_survives: bool,
    /// For each lane what is synced on the backing store, of what was wanted there; `None`: what counts is the drive's
    /// flash.
    flushed: Option<Vec<u64>>,
    flaw: Injected<Flaw>,
}

/// A fast side that is broken on purpose: for tests of the tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// What goes to flash on stored energy lacks its last page.
    ForgetLastPage,
    /// Credit does not wait for replicas.
    CreditAlone,
    /// Where a log was cut does not survive a power loss.
    ForgetCuts,
}

/// Bytes of the intake queues of all lanes where peers are reached by a network: 400 MB/s over 10 ms. A lane's has a
/// quarter of its ring, if that is less, so that it drains while the rest goes to flash.
const NETWORK_QUEUE: u64 = 4 << 20;

impl Function {
    fn new(id: u8, setup: Setup, starts: &[u64], log: LbaRing, options: &Options, survives: bool) -> Function {
        // What is on its way between served devices is bounded by this, whatever hosts may store beyond their credit.
        let queue =
            if options.network_peers { (NETWORK_QUEUE / starts.len() as u64).min(setup.ring_size / 4) } else { 0 };
        let lane = |&start: &u64| Lane::new(setup.ring_size, setup.queue_size.max(queue), start, options.stamps);
        let times = if options.network_peers { transport::Config::network() } else { transport::Config::default() };
        let config = transport::Config { function: id, lanes: starts.len() as u8, ..times };
        Function {
            setup,
            lanes: starts.iter().map(lane).collect(),
            log,
            trimmed: vec![0; starts.len()],
            trims: Vec::new(),
            next_lane: 0,
            timer_at: Instant::NEVER,
            transport: Transport::new(config),
            transport_config: config,
            transport_at: Instant::NEVER,
            replicated: false,
            promoting: None,
            addresses: Vec::new(),
            waits_for_trim: false,
            destage_failed: false,
            cuts: Vec::new(),
            ring_survives: survives,
            flushed: options.network_peers.then(|| vec![0; starts.len()]),
            flaw: Injected::NONE,
        }
    }

    /// Whether a lane's stream can go on at `to` without what is before it.
    fn may_skip(&self, lane: usize, to: u64) -> bool {
        let behind = |l: &Lane| !l.is_broken() && l.floor() == u64::MAX && (l.arrived() + 1..=OFFSET_END).contains(&to);
        !self.replicated && self.transport.writable() && self.lanes.get(lane).is_some_and(behind)
    }

    /// Forgets cuts that concern no page that is still there.
    fn forget_cuts(&mut self) {
        if !self.cuts.is_empty() {
            let oldest = self.log.oldest_sequence().unwrap_or(u64::MAX);
            self.cuts.retain(|&(_, _, sequence)| sequence >= oldest);
        }
    }

    /// Whether, if the power fails, all rings find places in the LBA ring, with the next piece of a lane in its ring.
    #[cold]
    fn finds_place(&self, lane: usize, payload: u32) -> bool {
        let Some(next) = self.lanes[lane].next_end() else { return true };
        let pages = |(i, l): (usize, &Lane)| {
            let reached = if i == lane { l.reached().max(next) } else { l.reached() };
            (reached - l.placed()).div_ceil(payload.into())
        };
        let needed: u64 = self.lanes.iter().enumerate().map(pages).sum();
        self.setup.on_wrap == OnWrap::OverwriteOldest || needed <= self.log.free().into()
    }

    fn save(&self) -> ControlBlock {
        let mut block = ControlBlock {
            ends: self.lanes.iter().map(Lane::durable).collect(),
            trimmed: self.trimmed.clone(),
            head: self.log.head(),
            settled: self.log.settled(),
            range: (self.log.first_lpn(), self.log.count(), self.log.reserve()),
            destage_failed: self.destage_failed,
            setup: self.setup,
            transport: self.transport.persistent().clone(),
            transport_config: self.transport_config,
            cuts: self.cuts.clone(),
        };
        if self.flaw.is(Flaw::ForgetLastPage)
            && let Some((number, page)) = self.log.pages().last()
        {
            block.settled = number;
            block.ends[usize::from(page.lane)] = page.offset.min(block.ends[usize::from(page.lane)]);
        }
        block
    }

    /// How it is set up.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Its lanes.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// Its ring of logical pages.
    pub fn log(&self) -> &LbaRing {
        &self.log
    }

    /// Whether a page of the log could not be written, because the drive is at the end of its life, or its backing
    /// store is.
    pub fn destage_failed(&self) -> bool {
        self.destage_failed
    }

    /// Network addresses of the peers, from Attach Peers.
    pub fn addresses(&self) -> &[PeerAddress] {
        &self.addresses
    }

    /// Whether all that was released is on flash.
    pub fn is_destaged(&self) -> bool {
        self.lanes.iter().all(|lane| lane.durable() == lane.released())
    }
}

/// What survives of a function besides its pages: a few hundred bytes of non-volatile memory in the controller,
/// whatever the rings are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlBlock {
    /// Where each lane's stream had come to on flash.
    ends: Vec<u64>,
    trimmed: Vec<u64>,
    /// The numbers of the oldest page, and of the first that is not on flash.
    head: u64,
    settled: u64,
    /// The ring of logical pages: first page, pages, reserve.
    range: (u32, u32, u32),
    destage_failed: bool,
    setup: Setup,
    transport: transport::Persistent,
    transport_config: transport::Config,
    cuts: Vec<(u8, u64, u64)>,
}

/// All functions.
#[derive(Clone, Debug)]
pub struct Fast {
    functions: Vec<Function>,
    /// The memory of the rings among the device's ports.
    port: usize,
    /// That of the intake queues.
    queue_port: usize,
    /// Log bytes of a full page.
    payload: u32,
    survives: bool,
    profile: FastProfile,
    /// Bytes of a logical page.
    unit_size: u32,
    /// Planes that a program takes.
    planes: u64,
    /// Joules that destaging full rings takes at most.
    energy_needed: f64,
    /// The power has failed, and stored energy is used up.
    power_fails: bool,
    /// Since when the first bytes of the row of the log that is being filled have waited.
    row_since: Instant,
    /// Commands that wait for credit or for log bytes, and how many of them there are.
    waits: Vec<Wait>,
    waiting: usize,
    /// The last wall-clock time that was passed in; `None`: no peer is reached by a network.
    network: Option<Instant>,
}

impl Fast {
    /// The fast side of a new drive, whose logical pages from `first_lpn` on are its LBA rings. `ports`: the memories
    /// of rings and queues.
    pub(crate) fn new(
        profile: &Profile,
        first_lpn: u32,
        ports: (usize, usize),
        survives: bool,
        options: &Options,
    ) -> Fast {
        let fast = &profile.fast;
        let functions = if fast.is_enabled() { fast.functions } else { 0 };
        let pages = (fast.log_size / u64::from(profile.ftl.unit_size)) as u32;
        let reserve = reserve_pages(fast, profile.ftl.unit_size) as u32;
        let function = |f| {
            let starts = vec![0; fast.lanes as usize];
            let log = LbaRing::new(first_lpn + f * pages, pages, reserve);
            Function::new(f as u8, Setup::of(fast), &starts, log, options, survives)
        };
        Fast {
            functions: (0..functions).map(function).collect(),
            port: ports.0,
            queue_port: ports.1,
            payload: profile.ftl.unit_size - PAGE_HEADER,
            survives,
            profile: fast.clone(),
            unit_size: profile.ftl.unit_size,
            planes: profile.nand.planes.into(),
            energy_needed: energy_needed(profile),
            power_fails: false,
            row_since: Instant::NEVER,
            waits: Vec::new(),
            waiting: 0,
            network: options.network_peers.then_some(Instant::ZERO),
        }
    }

    /// Breaks the fast side on purpose, until the power fails: for tests of the tests.
    pub(crate) fn set_flaw(&mut self, flaw: Injected<Flaw>) {
        self.functions.iter_mut().for_each(|function| function.flaw = flaw);
    }

    /// Whether there is one.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        !self.functions.is_empty()
    }

    /// Functions with bytes that wait for a page of the log to fill, each with an event that ends the wait.
    pub(crate) fn waiting_to_destage(&self) -> usize {
        self.functions.iter().filter(|f| f.timer_at != Instant::NEVER).count()
    }

    /// Whether bytes are on their way: into a ring, or from a page's register to flash. Those that wait for a trim are
    /// not.
    pub fn is_moving(&self) -> bool {
        self.functions.iter().any(|f| {
            let is_stuck = f.waits_for_trim || f.destage_failed;
            f.lanes.iter().any(|l| l.queued_bytes() > 0 && !is_stuck || l.placed() > l.durable())
        })
    }

    /// Whether a log holds anything that its client has not let go of (Trim Log).
    pub fn holds_log(&self) -> bool {
        self.functions.iter().any(|f| f.log.head() != f.log.tail() || !f.lanes.iter().all(Lane::is_idle))
    }

    /// A function, by its number.
    pub fn function(&self, function: usize) -> Option<&Function> {
        self.functions.get(function)
    }

    /// The functions.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Whether what is credited outlives a power loss.
    pub fn survives(&self) -> bool {
        self.survives
    }

    /// The memory of the rings among the device's ports.
    pub(crate) fn port(&self) -> usize {
        self.port
    }

    /// Log bytes of a full page.
    pub fn payload(&self) -> u32 {
        self.payload
    }

    /// Copies log bytes that are still in a ring's memory.
    ///
    /// # Panics
    /// When they are not, or never were.
    pub fn read_ring(&self, function: usize, lane: usize, offset: u64, bytes: &mut [u8]) {
        self.functions[function].lanes[lane].read(offset, bytes);
    }

    /// What survives besides pages.
    pub(crate) fn control_blocks(&self) -> Vec<ControlBlock> {
        self.functions.iter().map(Function::control_block).collect()
    }
}

/// Logical pages of all LBA rings.
pub fn log_pages(profile: &Profile) -> u64 {
    let fast = &profile.fast;
    let functions = if fast.is_enabled() { u64::from(fast.functions) } else { 0 };
    functions * (fast.log_size / u64::from(profile.ftl.unit_size))
}

/// Pages of each LBA ring that are kept free: full rings must find a place when the power fails, each lane's last page
/// being partly filler.
pub(crate) fn reserve_pages(fast: &FastProfile, unit_size: u32) -> u64 {
    let lane = fast.size / u64::from(fast.lanes);
    reserve_of(u64::from(fast.lanes), lane, unit_size)
}

/// As [`reserve_pages`], for lanes with rings of this size.
fn reserve_of(lanes: u64, ring_size: u64, unit_size: u32) -> u64 {
    lanes * (ring_size.div_ceil(u64::from(unit_size.max(2 * PAGE_HEADER) - PAGE_HEADER)) + 1)
}

/// Joules that destaging full rings takes at most.
pub fn energy_needed(profile: &Profile) -> f64 {
    let fast = &profile.fast;
    let pages = reserve_pages(fast, profile.ftl.unit_size) * u64::from(fast.functions);
    energy_of_pages(profile, pages, fast.power, fast.program_energy)
}

/// Joules that writing so many logical pages on stored energy takes at most: programs of all of them and of the rows
/// under way on every die, and the controller's power for as long as that takes on the slowest pages, one erase before
/// it.
pub(crate) fn energy_of_pages(profile: &Profile, pages: u64, power: f64, program_energy: f64) -> f64 {
    let nand = &profile.nand;
    let units_per_row = u64::from((nand.page_size / profile.ftl.unit_size.max(1) * nand.planes).max(1));
    let dies = u64::from(nand.dies());
    let rows = pages.div_ceil(units_per_row) + 1;
    let under_way = dies * u64::from(profile.flash.programs_per_die) * 2;
    let program = nand.program_time.iter().max().expect("three kinds").as_secs_f64() * f64::from(nand.planes);
    let row_bytes = f64::from((nand.page_size + nand.oob_size) * nand.planes);
    let bus = row_bytes / nand.bus_rate as f64 * dies.div_ceil(u64::from(nand.channels)) as f64;
    let rounds = rows.div_ceil(dies) + under_way / dies;
    let time = rounds as f64 * (program + bus) + nand.erase_time.as_secs_f64();
    (rows + under_way) as f64 * f64::from(nand.planes) * program_energy + time * power
}
