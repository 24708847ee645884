//! The flash translation layer: where host data goes, and how space comes back. What follows is the page-mapped one,
//! and what the hybrid one (`hybrid`) shares with it.
//!
//! Host data fills one *row* at a time (see [`Layout`]), row after row over the dies; every die has a superblock open
//! for host data and one for collected data. Collection works within a die, in steps of a row.
//!
//! Three rules keep data safe over a power loss, and everything else follows from them:
//! 1. A unit's map entry moves when the unit is put into a row, but the superblock it leaves is not erased before that
//!    row is programmed (`Superblock::host_hazard`, `Superblock::collect_hazard`); nor, when a deallocation took it
//!    away, before that is logged (`Superblock::log_hazard`).
//! 2. Every unit carries the sequence of its host write; of two copies the higher wins, a collected copy keeps its
//!    original's, so it never matters which of two equal copies is found.
//! 3. A map checkpoint names what was durable when it was taken, and the program sequence up to which that is complete;
//!    rows after it are scanned.

mod bad;
pub mod checkpoint;
mod collect;
mod dies;
mod done;
mod hybrid;
mod log;
mod map;
mod map_cache;
mod outstanding;
mod precondition;
mod read;
mod recover;
mod sizing;
mod slc;
mod staged;
mod statistics;
mod write;

pub use hybrid::LOG_BLOCKS_MIN;
use map::ValidBits;
pub use map::{Entry, Map};
pub(crate) use map_cache::LentWork;
pub use map_cache::{ENTRY_BYTES, LookUp, MapCache, MapStatistics};
pub use precondition::Precondition;
pub use precondition::write_amplification;
pub use recover::{Flaw, RecoveryReport};
pub use sizing::{Plan, Reserved, plan};
pub use slc::{SlcFill, slc_reserve, slc_rows};
pub use statistics::FtlStatistics;

use crate::flash::{Flash, NONE};
use crate::layout::Layout;
use crate::owner::Owner;
use crate::profile::{FtlProfile, Profile};
use checkpoint::Checkpoint;
use dies::DieSet;
use hybrid::Hybrid;
use outstanding::Outstanding;
use slc::Slc;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use tidewater_nand::{Medium, Origin, Stamps};

/// What a superblock is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Erased.
    Free,
    /// Rows are added to it.
    Open,
    /// Full; a candidate for collection.
    Closed,
    /// Being collected.
    Victim,
    /// Collected: erased as soon as what replaced its data is programmed.
    Draining,
    /// An erase is queued or under way.
    Erasing,
    /// A plane has no block left, or never had one.
    Bad,
}

/// Which data goes to a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Written by the host.
    Host,
    /// Written by the host too, in single-level mode. Of superblocks: their rows are the host's.
    Slc,
    /// Moved by collection.
    Collected,
    /// Destaged from the fast side.
    Log,
    /// Copied by a merge, where the mapping is hybrid.
    Merge,
    /// The map's checkpoints.
    Map,
    /// Pages of the map, where only some of them are at hand.
    Mapping,
}

/// One superblock.
#[derive(Clone, Copy, Debug)]
pub struct Superblock {
    state: State,
    stream: Stream,
    /// A program failed in it: no more rows, and it is collected first.
    failed: bool,
    die: u16,
    /// Rows given out.
    rows: u16,
    /// Erases that the map needs to be even about: the highest of its planes.
    erases: u32,
    /// The latest host row that took over a unit of this superblock.
    host_hazard: u64,
    /// The latest row of destaged log that did.
    log_row_hazard: u64,
    /// The latest collected row of this die that did.
    collect_hazard: u64,
    /// The write sequence of the latest deallocation that did: it must be logged before, or an older copy elsewhere
    /// would come back.
    log_hazard: u64,
    /// Host units written before it closed, as a clock for cost-benefit.
    closed_at: u64,
}

/// A row that is being filled or programmed: its units live in the controller's memory.
#[derive(Clone, Debug)]
struct Row {
    superblock: u32,
    row: u32,
    stream: Stream,
    count: u32,
    /// Its number in the outstanding rows of its kind.
    number: u64,
    /// The order of all rows on the drive; goes into the page header.
    program_sequence: u64,
    /// The `index` of its page headers.
    index: u32,
    generation: u32,
    in_use: bool,
    /// A timer runs that pads it.
    timed: bool,
    /// A host waits for a unit of it: only then are the owners of its units kept apart.
    owned: bool,
    /// The whole row is the firmware's own (map, deallocations).
    own: Option<checkpoint::OwnRow>,
    /// What the mapping pages of the row say, one behind the other, when the medium keeps stamps.
    images: Vec<u32>,
}

impl Row {
    /// What the firmware itself writes into it.
    #[inline(always)]
    fn own_payload(&self) -> Option<Arc<[u32]>> {
        if self.own.is_none() && self.images.is_empty() { None } else { self.some_payload() }
    }

    #[inline(never)]
    fn some_payload(&self) -> Option<Arc<[u32]>> {
        match &self.own {
            None => Some(self.images.as_slice().into()),
            Some(own) => own.payload.clone(),
        }
    }
}

/// What a die knows of its own space.
#[derive(Clone, Debug)]
struct DieSpace {
    free: BinaryHeap<Reverse<(u32, u64, u32)>>,
    /// Free superblocks that only the SLC cache may open.
    kept: u32,
    host_superblock: u32,
    /// Takes what the fast side destages.
    log_superblock: u32,
    /// Takes pages that are read before they are written.
    past_superblock: u32,
    collect_superblock: u32,
    collect_row: u32,
    collected: Outstanding,
    victim: u32,
    victim_row: u32,
    reads: u32,
    /// Units that collection may move before the host has written more, times [`collect::CREDIT`].
    credit: i64,
    /// Units to move for each unit that the host writes, times [`collect::CREDIT`].
    ratio: i64,
    /// The credit beyond which collection is behind what the host's writes were to pay for.
    behind: i64,
    /// Superblocks in which a program failed.
    failed: Vec<u32>,
    erases_max: u32,
    victims: u32,
    /// When collection looked last, no superblock had anything to give back, or there was no place for it.
    starved: bool,
}

impl DieSpace {
    /// Free superblocks, without those that the SLC cache keeps.
    #[inline]
    fn free_beyond(&self) -> usize {
        self.free.len().saturating_sub(self.kept as usize)
    }
}

/// The translation layer, with the flash below it.
#[derive(Clone, Debug)]
pub struct Ftl<M> {
    /// The scheduler.
    pub flash: Flash,
    /// The medium.
    pub medium: M,
    /// Counters.
    pub statistics: FtlStatistics,
    layout: Layout,
    map: Map,
    superblocks: Vec<Superblock>,
    /// Rows of each superblock whose program is done; later ones are read from the controller's memory.
    programmed: Vec<u16>,
    /// Valid units by superblock; [`NOT_A_CANDIDATE`] is set unless it may be collected.
    valid: Vec<u32>,
    /// One bit for each physical unit.
    valid_bits: ValidBits,
    dies: Vec<DieSpace>,
    /// Free superblocks of all dies.
    free_superblocks: u32,
    /// `None`: every page is mapped by itself.
    hybrid: Option<Box<Hybrid>>,
    /// `None`: the whole map is at hand.
    map_cache: Option<Box<MapCache>>,
    /// Logical pages; mapping pages lie behind them.
    units: u32,
    /// Superblocks of each die that are for mapping pages.
    mapping_pool: u32,
    /// `None`: host writes go to blocks in their own mode at once.
    slc: Option<Box<Slc>>,
    /// Dies that are starved.
    starved: u32,
    /// Dies on which collection has more to do, or more reason to, than when it looked last.
    wake: Vec<u32>,
    /// Collected superblocks that wait for what replaced their data.
    draining: Vec<u32>,
    /// Dies that can take another host row now.
    ready: DieSet,
    next_die: u32,
    rows: Vec<Row>,
    free_rows: Vec<u32>,
    row_lpns: Vec<u32>,
    row_owners: Vec<u32>,
    /// Where each unit of a row was before: rows by units.
    row_previous: Vec<u32>,
    /// Version and write sequence, when the medium keeps stamps.
    row_stamps: Vec<(u64, u64)>,
    /// Where each unit of a row comes from, when there is a payload store; of rows of merges it is known when they are
    /// programmed.
    row_origins: Vec<Origin>,
    host_row: u32,
    host_rows: Outstanding,
    log_row: u32,
    log_rows: Outstanding,
    /// Dies that can take another row of destaged log now.
    log_ready: DieSet,
    next_log_die: u32,
    /// The power has failed: what is destaged on stored energy may take every superblock, and nothing else is done.
    emergency: bool,
    /// Superblocks of each die that are kept back for the log.
    log_reserve: u32,
    data_units: u32,
    row_sequence: u64,
    write_sequence: u64,
    /// Host units ever written, as a clock for cost-benefit; unlike the counters it is never reset.
    host_clock: u64,
    free_order: u64,
    checkpoint: Checkpoint,
    /// Owners whose units are programmed, for the device to take.
    acknowledged: Vec<u32>,
    /// Owners whose units could not be programmed: no space is left.
    rejected: Vec<u32>,
    /// Owners of log pages that are written again because a program failed.
    rewritten: Vec<u32>,
    recovery: Option<Box<recover::Recovery>>,
    recovered: Option<RecoveryReport>,
    profile: FtlProfile,
    stamps: bool,
    /// There is a payload store, which needs to know what is a copy of what.
    payload: bool,
    read_only: bool,
    good_superblocks: u32,
    programs_per_die: u32,
}

/// Set in `valid` while a superblock is not a candidate for collection.
const NOT_A_CANDIDATE: u32 = 1 << 31;

impl<M: Medium> Ftl<M> {
    /// A translation layer over an erased medium, sized by the plan.
    pub fn new(profile: &Profile, medium: M, plan: &Plan, stamps: Stamps) -> Ftl<M> {
        let units = plan.units as u32;
        let layout = Layout::new(&medium, profile.ftl.unit_size, plan.superblocks_per_die);
        let dies = layout.dies;
        let flash = Flash::new(profile, medium.config(), &layout, 4 * dies as usize + 4_096);
        let count = layout.superblocks() as usize;
        let space = DieSpace {
            free: BinaryHeap::new(),
            kept: 0,
            host_superblock: NONE,
            log_superblock: NONE,
            past_superblock: NONE,
            collect_superblock: NONE,
            collect_row: NONE,
            collected: Outstanding::default(),
            victim: NONE,
            victim_row: 0,
            reads: 0,
            credit: 0,
            ratio: 0,
            behind: 0,
            failed: Vec::new(),
            erases_max: 0,
            victims: 0,
            starved: false,
        };
        // What is kept back for a dump is reserve like any other; collection goes on with what it has always had.
        let dump = sizing::dump_reserve(profile, plan.reserved.dump_pages);
        let (gc_start, gc_reserve) = (profile.ftl.gc_start + dump, profile.ftl.gc_reserve + dump);
        let mapping_pages = map_cache::mapping_pages(profile, plan.units) as u32;
        let mut ftl = Ftl {
            flash,
            statistics: FtlStatistics::default(),
            map: Map::new(units + mapping_pages),
            map_cache: MapCache::new(profile, units, dies),
            units,
            mapping_pool: map_cache::pool_per_die(profile, plan.units),
            superblocks: (0..count)
                .map(|i| Superblock {
                    state: State::Bad,
                    stream: Stream::Host,
                    failed: false,
                    die: layout.die_of(i as u32) as u16,
                    rows: 0,
                    erases: 0,
                    host_hazard: 0,
                    log_row_hazard: 0,
                    collect_hazard: 0,
                    log_hazard: 0,
                    closed_at: 0,
                })
                .collect(),
            programmed: vec![0; count],
            valid: vec![NOT_A_CANDIDATE; count],
            valid_bits: ValidBits::new(layout.address_space(), units),
            dies: vec![space; dies as usize],
            free_superblocks: 0,
            hybrid: Hybrid::new(profile, &layout, units),
            slc: Slc::new(profile),
            starved: 0,
            wake: Vec::new(),
            draining: Vec::new(),
            ready: DieSet::new(dies),
            next_die: 0,
            rows: Vec::new(),
            free_rows: Vec::new(),
            row_lpns: Vec::new(),
            row_owners: Vec::new(),
            row_previous: Vec::new(),
            row_stamps: Vec::new(),
            row_origins: Vec::new(),
            payload: false,
            host_row: NONE,
            host_rows: Outstanding::default(),
            log_row: NONE,
            log_rows: Outstanding::default(),
            log_ready: DieSet::new(dies),
            next_log_die: 0,
            emergency: false,
            log_reserve: sizing::log_reserve(profile),
            data_units: units - plan.reserved.pages as u32,
            row_sequence: 0,
            write_sequence: 0,
            host_clock: 0,
            free_order: 0,
            checkpoint: Checkpoint::new(profile, if mapping_pages > 0 { units } else { 0 }, units + mapping_pages),
            acknowledged: Vec::with_capacity(64),
            rejected: Vec::new(),
            rewritten: Vec::new(),
            recovery: None,
            recovered: None,
            profile: FtlProfile { gc_start, gc_reserve, ..profile.ftl.clone() },
            stamps: stamps == Stamps::Full,
            read_only: false,
            good_superblocks: 0,
            programs_per_die: profile.flash.programs_per_die,
            layout,
            medium,
        };
        for superblock in 0..count as u32 {
            ftl.adopt(superblock);
        }
        ftl.fill_mapping_pools();
        (0..dies).for_each(|die| {
            ftl.size_slc(die);
            ftl.update_ready(die);
        });
        ftl.check_end_of_life();
        ftl
    }

    /// Takes an erased superblock into the free list, or marks it bad.
    fn adopt(&mut self, superblock: u32) {
        if !self.layout.is_whole(superblock) {
            return;
        }
        let erases = (0..self.layout.planes())
            .map(|p| self.medium.erase_count(self.layout.block(superblock, p)))
            .max()
            .unwrap_or(0);
        self.superblocks[superblock as usize].erases = erases;
        self.good_superblocks += 1;
        self.put_free(superblock);
    }

    fn put_free(&mut self, superblock: u32) {
        self.free_order += 1;
        let s = &mut self.superblocks[superblock as usize];
        s.state = State::Free;
        s.failed = false;
        s.rows = 0;
        self.programmed[superblock as usize] = 0;
        s.host_hazard = 0;
        s.log_row_hazard = 0;
        s.collect_hazard = 0;
        s.log_hazard = 0;
        let wear = if self.profile.wear_aware_allocation { s.erases } else { 0 };
        self.free_superblocks += 1;
        let die = &mut self.dies[s.die as usize];
        die.erases_max = die.erases_max.max(s.erases);
        die.free.push(Reverse((wear, self.free_order, superblock)));
        self.valid[superblock as usize] = NOT_A_CANDIDATE;
    }

    /// Logical pages.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Logical pages of the block side: the fast side's LBA rings and the byte window's dumps lie behind them.
    pub fn data_units(&self) -> u32 {
        self.data_units
    }

    /// The shape of the physical address space.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The map.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// The end of life: it takes no writes, and nothing is under way that could make room.
    #[inline]
    pub fn is_worn_out(&self) -> bool {
        self.is_read_only() && self.flash.outstanding() == 0
    }

    /// Programs done, of all sources.
    pub fn programs_done(&self) -> u64 {
        use crate::flash::Source;
        let sources = [Source::HostProgram, Source::CollectProgram, Source::Destage, Source::Map];
        sources.iter().map(|&source| self.flash.statistics().operations_of(source)).sum()
    }

    /// Whether the end of life has made the drive read-only.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Asks the processor to fetch the map entry of a logical page that will be needed soon.
    #[inline]
    pub fn prefetch(&self, lpn: u32) {
        self.map.prefetch(lpn);
    }

    /// Asks the processor to fetch what overwriting a logical page will change, once its map entry is near.
    #[inline]
    pub fn prefetch_overwritten(&self, lpn: u32) {
        if let Entry::At(ppn) = self.map.get(lpn) {
            self.valid_bits.prefetch(ppn);
            prefetch_index::prefetch_index(&self.superblocks, self.layout.superblock_of(ppn) as usize);
        }
    }

    /// Takes the owners whose units were programmed since the last call.
    #[inline]
    pub fn take_acknowledged(&mut self) -> Option<Owner> {
        self.acknowledged.pop().map(Owner::unpack)
    }

    /// Takes the owners of log pages that were written again since the last call.
    pub fn take_rewritten(&mut self) -> Option<Owner> {
        self.rewritten.pop().map(Owner::unpack)
    }

    /// The write sequence of the newest unit.
    pub fn write_sequence(&self) -> u64 {
        self.write_sequence
    }

    /// Whether [`Ftl::take_rejected`] has one.
    #[inline]
    pub fn has_rejected(&self) -> bool {
        !self.rejected.is_empty()
    }

    /// Takes the owners whose units could not be programmed since the last call.
    pub fn take_rejected(&mut self) -> Option<Owner> {
        self.rejected.pop().map(Owner::unpack)
    }

    /// Whether a superblock is one of the mapping pages'.
    #[inline]
    fn is_mapping(&self, superblock: u32) -> bool {
        self.map_cache.is_some() && self.superblocks[superblock as usize].stream == Stream::Mapping
    }

    /// Decides anew whether a die can take another host row.
    #[inline(always)]
    fn update_ready(&mut self, die: u32) {
        if self.hybrid.is_some() {
            return self.unstick();
        }
        self.update_ready_by(die, self.flash.programs(die));
    }

    /// As [`Ftl::update_ready`], where the mapping is by page and the die has so many programs queued or in flight.
    #[inline(always)]
    fn update_ready_by(&mut self, die: u32, programs: u32) {
        // What most often says no is asked first.
        let queues_row = programs < self.programs_per_die;
        let ready = queues_row && {
            let space = &self.dies[die as usize];
            self.has_host_room(die, space) && self.is_paced(space)
        };
        self.ready.set(die, ready);
        if self.log_reserve > 0 {
            self.update_log_ready(die);
        }
    }

    /// Whether nothing that the firmware moves holds back what comes to a die.
    #[inline]
    fn is_paced(&self, space: &DieSpace) -> bool {
        !self.is_behind(space) && !self.map_cache.as_ref().is_some_and(|cache| cache.holds_host_back())
    }

    /// Marks a unit as overtaken by the row with this number.
    #[inline(always)]
    fn invalidate(&mut self, ppn: u32, host_row: u64) {
        let superblock = self.layout.superblock_of(ppn) as usize;
        debug_assert!(self.valid_bits.get(ppn));
        self.valid_bits.clear(ppn);
        self.valid[superblock] -= 1;
        let s = &mut self.superblocks[superblock];
        s.host_hazard = s.host_hazard.max(host_row);
        if self.starved > 0 {
            let die = u32::from(s.die);
            self.wake_if_starved(die);
        }
    }

    /// Deallocates logical pages: they read as zeroes from now on, for good once a flush has ended.
    pub fn deallocate(&mut self, first: u32, count: u32) {
        self.write_sequence += 1;
        let end = first + count;
        let mut any = false;
        let mut lpn = first;
        while lpn < end {
            if self.map.is_untouched(lpn, lpn) {
                // Nothing in this chunk: on to the next.
                lpn = (lpn / (2 << 20) + 1).saturating_mul(2 << 20).min(end);
                continue;
            }
            if let old @ (Entry::At(_) | Entry::Lost) = self.map.set(lpn, Entry::Unmapped) {
                any = true;
                self.statistics.deallocated += 1;
                if let Entry::At(ppn) = old {
                    self.invalidate(ppn, 0);
                    self.superblocks[self.layout.superblock_of(ppn) as usize].log_hazard = self.write_sequence;
                }
            }
            lpn += 1;
        }
        if any {
            self.checkpoint.log_deallocation(first, count, self.write_sequence);
            self.change_deallocated(first, end);
        }
    }

    /// Superblocks that are not bad.
    pub fn good_superblocks(&self) -> u32 {
        self.good_superblocks
    }

    /// Flash beyond the logical capacity that may hold data, as a share of the capacity. On a small drive it is far
    /// more than `[ftl] over_provisioning`, because every die has whole superblocks.
    pub fn spare_share(&self) -> f64 {
        if let Some(hybrid) = &self.hybrid {
            return self.log_share(hybrid);
        }
        let reserve = self.layout.dies
            * (sizing::reserve_per_die(&self.profile) + self.log_reserve + self.mapping_pool)
            + self.map_superblocks();
        let reserve = reserve + self.dies.iter().map(|d| d.kept).sum::<u32>();
        let data = self.good_superblocks.saturating_sub(reserve) * self.layout.units_per_superblock;
        f64::from(data) / f64::from(self.units().max(1)) - 1.0
    }

    /// Erase counts of all superblocks that are not bad.
    pub fn erase_counts(&self) -> impl Iterator<Item = u32> {
        self.superblocks.iter().filter(|s| s.state != State::Bad).map(|s| s.erases)
    }

    /// Free superblocks of the die that has fewest, and of the one that has most.
    pub fn free_superblocks(&self) -> (usize, usize) {
        let free = || self.dies.iter().map(|d| d.free.len());
        (free().min().unwrap_or(0), free().max().unwrap_or(0))
    }

    /// Superblocks of all dies that hold nothing: erased, being erased, or collected and waiting for that.
    pub fn vacant_superblocks(&self) -> usize {
        let is_vacant = |s: &&Superblock| matches!(s.state, State::Free | State::Draining | State::Erasing);
        self.superblocks.iter().filter(is_vacant).count()
    }

    /// Checks what must always hold; for tests, since it walks everything.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn assert_consistent(&self) {
        let mut valid = vec![0u32; self.superblocks.len()];
        for lpn in 0..self.map.units() {
            if let Entry::At(ppn) = self.map.get(lpn) {
                assert!(self.valid_bits.get(ppn), "{lpn} maps to invalid unit {ppn}");
                valid[self.layout.superblock_of(ppn) as usize] += 1;
            }
        }
        if let Some(hybrid) = self.hybrid.as_ref().filter(|_| self.recovery.is_none()) {
            self.assert_hybrid_consistent(hybrid);
        }
        for (i, s) in self.superblocks.iter().enumerate() {
            assert_eq!(
                self.valid[i] & !NOT_A_CANDIDATE,
                valid[i],
                "superblock {i} ({s:?}) counts its valid units wrong"
            );
            assert_eq!(
                self.valid[i] & NOT_A_CANDIDATE == 0,
                s.state == State::Closed
                    && !matches!(s.stream, Stream::Map | Stream::Mapping)
                    && (s.stream != Stream::Slc || s.failed),
                "superblock {i} {s:?}"
            );
        }
    }
}
