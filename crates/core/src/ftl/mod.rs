//! The flash translation layer: where host data goes, and how space comes back.
//!
//! A [`Store`] has the map, the superblocks (`space`), the rows under way (`rows`) and the state of checkpoints
//! (`journal`). A `Placement` decides where data goes: `page` maps every page by itself, with an SLC cache before it
//! and a mapping cache beside it where the profile says so; `hybrid` is FAST and FASTer. The rest is written once for
//! both, above the trait: host reads (`read`), ends of operations (`done`), failures (`rewrite`), `checkpoint`,
//! `recover`.
//!
//! Three rules keep data safe over a power loss, and everything else follows from them:
//! 1. A unit's map entry moves when the unit is put into a row, but the superblock it leaves is not erased before that
//!    row is programmed (`Superblock::host_hazard`, `Superblock::collect_hazard`); nor, when a deallocation took it
//!    away, before that is logged (`Superblock::log_hazard`).
//! 2. Every unit carries the sequence of its host write; of two copies the higher wins, a collected copy keeps its
//!    original's, so it never matters which of two equal copies is found.
//! 3. A map checkpoint names what was durable when it was taken, and the program sequence up to which that is complete;
//!    rows after it are scanned.

mod checkpoint;
mod deal;
mod done;
mod hybrid;
mod journal;
mod map;
mod page;
mod placement;
mod precondition;
mod read;
mod recover;
mod rewrite;
mod rows;
mod sizing;
mod space;
mod store;

pub use hybrid::LOG_BLOCKS_MIN;
pub use map::{Entry, Map};
pub(crate) use page::map_cache::LentWork;
pub use page::map_cache::{ENTRY_BYTES, LookUp, MapCache, MapStatistics};
pub use page::{SlcFill, slc_reserve, slc_rows};
pub use precondition::{Precondition, write_amplification};
pub use recover::{Flaw, RecoveryReport};
pub use sizing::{Plan, Reserved, plan};
pub use store::Store;
pub use tidewater_base::statistics::FtlStatistics;

use crate::events::EventQueue;
use crate::flash::{Kind, Source};
use crate::flaw::Injected;
use crate::owner::Owner;
use crate::profile::{FtlProfile, Mapping, Profile};
use hybrid::Hybrid;
use page::{PageMapping, Slc, map_cache};
use placement::Placement;
use recover::Recovery;
use std::ops::{Deref, DerefMut};
use store::Clock;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Stamps};

/// Where data goes on a drive.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a drive has one of them")]
enum Placed {
    Page(PageMapping),
    Hybrid(Hybrid),
}

/// The translation layer, with the flash below it.
#[derive(Clone, Debug)]
pub struct Ftl<M> {
    store: Store<M>,
    placed: Placed,
    recovery: Option<Box<Recovery>>,
    recovered: Option<RecoveryReport>,
}

/// What is on flash is asked of the store.
impl<M> Deref for Ftl<M> {
    type Target = Store<M>;

    #[inline(always)]
    fn deref(&self) -> &Store<M> {
        &self.store
    }
}

impl<M> DerefMut for Ftl<M> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Store<M> {
        &mut self.store
    }
}

/// Asks the placement, whichever it is.
macro_rules! placed {
    ($placed:expr, $by:ident => $call:expr) => {
        match $placed {
            Placed::Page($by) => $call,
            Placed::Hybrid($by) => $call,
        }
    };
}

/// Hands reads for the host to the SLC cache, which only page mapping has.
fn seen<M: Medium>(placed: &mut Placed) -> impl FnMut(&mut Store<M>, &mut Clock<'_>, u32) {
    move |store, clock, superblock| {
        if let Placed::Page(by) = placed {
            by.on_host_read(store, clock, superblock);
        }
    }
}

impl<M: Medium> Ftl<M> {
    /// A translation layer over an erased medium, sized by the plan.
    pub fn new(profile: &Profile, medium: M, plan: &Plan, stamps: Stamps) -> Ftl<M> {
        let units = plan.units as u32;
        // What is kept back for a dump is reserve like any other; collection goes on with what it has always had.
        let dump = sizing::dump_reserve(profile, plan.reserved.dump_pages);
        let (gc_start, gc_reserve) = (profile.ftl.gc_start + dump, profile.ftl.gc_reserve + dump);
        let ftl = FtlProfile { gc_start, gc_reserve, ..profile.ftl.clone() };
        let sizes = (units, plan.reserved.pages as u32, map_cache::mapping_pages(profile, plan.units) as u32);
        let mut store = Store::new(profile, ftl, medium, plan.superblocks_per_die, sizes, stamps);
        let dies = store.layout.dies;
        let placed = match profile.ftl.mapping {
            Mapping::Page => {
                let mut cache = MapCache::new(profile, units, dies);
                if let Some(cache) = &mut cache {
                    cache.fill_mapping_pools(&mut store);
                }
                let slc = Slc::new(profile, gc_start, gc_reserve);
                Placed::Page(PageMapping::new(dies, sizing::log_reserve(profile), slc, cache))
            }
            Mapping::Fast | Mapping::Faster => Placed::Hybrid(Hybrid::new(profile, &store.layout, units)),
        };
        let mut ftl = Ftl { store, placed, recovery: None, recovered: None };
        placed!(&mut ftl.placed, by => {
            let store = &mut ftl.store;
            for die in 0..dies {
                by.size(store, die);
                by.update_ready(store, die);
            }
            store.check_end_of_life(by);
        });
        ftl
    }

    /// A translation layer over a medium that has lived. It serves nothing until [`Ftl::is_recovering`] is false; drive
    /// it with events as always. `deallocations` have survived in memory and are not on flash.
    pub fn power_on(
        profile: &Profile,
        medium: M,
        plan: &Plan,
        now: Instant,
        events: &mut EventQueue,
        flaw: Injected<Flaw>,
        deallocations: Vec<(u32, u32, u64)>,
    ) -> Ftl<M> {
        let mut ftl = Ftl::new(profile, medium, plan, Stamps::Full);
        let clock = &mut Clock { now, events };
        let recovery = placed!(&mut ftl.placed, by => Recovery::begin(&mut ftl.store, by, clock, flaw, deallocations));
        ftl.recovery = Some(Box::new(recovery));
        ftl.recover(clock);
        ftl
    }

    /// Goes on with recovery where its reads are done.
    fn recover(&mut self, clock: &mut Clock) {
        if let Some(recovery) = &mut self.recovery
            && let Some(report) = placed!(&mut self.placed, by => recovery.resume(&mut self.store, by, clock))
        {
            self.recovered = Some(report);
            self.recovery = None;
        }
    }

    /// Whether recovery is still under way.
    pub fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// Flash reads that a recovery under way has done; 0 when there is none.
    pub fn recovery_reads(&self) -> u64 {
        self.recovery.as_ref().map_or(0, |recovery| recovery.reads())
    }

    /// Report of the last recovery, once it has ended.
    pub fn recovery_report(&self) -> Option<RecoveryReport> {
        self.recovered
    }

    /// Constructs a past. Call it on a new drive only. `tag` is the version of the content.
    ///
    /// # Errors
    /// In words, when bad blocks leave too little room for the steady state.
    pub fn precondition(&mut self, past: Precondition, seed: u64, tag: u64) -> Result<(), String> {
        assert_eq!(self.map.mapped(), 0, "only a new drive can be given a past");
        if past.is_full() {
            self.store.map.expect_all();
            self.store.valid_bits.expect_all();
        }
        placed!(&mut self.placed, by => {
            let store = &mut self.store;
            if past != Precondition::Fresh {
                by.precondition(store, past, seed, tag)?;
                store.place_checkpoint(by);
            }
            (0..store.layout.dies).for_each(|die| by.update_ready(store, die));
        });
        self.store.space.wake.clear(); // Nothing is collected before the host has begun.
        Ok(())
    }

    /// Maps a page that is read before it was written, with unmapped neighbours of it, as if they had been written
    /// before the run. False: there is no room to do so without collecting first.
    pub fn premap(&mut self, lpn: u32, tag: u64) -> bool {
        let placed = placed!(&mut self.placed, by => by.premap(&mut self.store, lpn, tag));
        self.store.statistics.premapped += u64::from(placed.unwrap_or(0));
        placed.is_some()
    }

    /// Charges the flash read of a page that was written before the run but has no place of its own: a unit of its die
    /// is read in its stead. False: nothing on that die was ever programmed.
    pub fn read_past(&mut self, now: Instant, events: &mut EventQueue, lpn: u32, owner: Owner) -> bool {
        self.store.read_past(&mut seen(&mut self.placed), &mut Clock { now, events }, lpn, owner)
    }

    /// Reads logical pages for the host: queues one operation for each row that holds some of them, and returns how
    /// many. Units that are unmapped, or still in the controller's memory, need none.
    ///
    /// # Errors
    /// The number of operations queued, when a page was lost.
    pub fn read(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        lpns: impl Iterator<Item = u32>,
        owner: Owner,
    ) -> Result<u32, u32> {
        self.store.read(&mut seen(&mut self.placed), &mut Clock { now, events }, lpns, owner)
    }

    /// The superblock and the row that a logical page is read from; `None`: flash does not have it.
    pub(crate) fn row_of(&self, lpn: u32) -> Option<(u32, u32)> {
        self.store.row_of(lpn)
    }

    /// Whether a host unit can be taken now. When not, ask again after a program or an erase is done.
    #[inline(always)]
    pub fn can_write(&mut self) -> bool {
        placed!(&mut self.placed, by => by.can_write(&mut self.store))
    }

    /// Whether [`Ftl::can_write`] may say yes.
    #[inline(always)]
    pub fn may_write(&self) -> bool {
        placed!(&self.placed, by => Placement::<M>::may_write(by))
    }

    /// Whether a host row is open, or a die is ready for one: as [`Ftl::can_write`], but without opening it.
    #[inline]
    pub fn has_ready_die(&self) -> bool {
        placed!(&self.placed, by => by.has_ready_die(&self.store))
    }

    /// Units that the open host row still takes, 0 when none is open.
    #[inline]
    pub fn row_room(&self) -> u32 {
        placed!(&self.placed, by => by.row_room(&self.store))
    }

    /// Puts a host unit into the open row; [`Ftl::can_write`] must have said yes. `owner` is acknowledged once the unit
    /// is programmed.
    #[inline(always)]
    pub fn write(&mut self, now: Instant, events: &mut EventQueue, lpn: u32, version: u64, owner: Owner) {
        self.store.write_sequence += 1;
        self.store.statistics.host += 1;
        self.store.space.host_clock += 1;
        let stamp = (version, self.store.write_sequence);
        placed!(&mut self.placed, by => by.write(&mut self.store, &mut Clock { now, events }, lpn, stamp, owner));
    }

    /// The open host row is programmed as it is, if it holds anything.
    pub fn pad_host_row(&mut self, now: Instant, events: &mut EventQueue) {
        placed!(&mut self.placed, by => by.pad(&mut self.store, &mut Clock { now, events }));
    }

    /// A row's time to be filled is over.
    pub fn on_fill_timeout(&mut self, now: Instant, events: &mut EventQueue, row: u32, generation: u32) {
        let clock = &mut Clock { now, events };
        placed!(&mut self.placed, by => by.on_fill_timeout(&mut self.store, clock, row, generation));
    }

    /// What a flush must wait for: pass it to [`Ftl::is_durable`]. Pads the open row and logs deallocations.
    pub fn begin_flush(&mut self, now: Instant, events: &mut EventQueue) -> (u64, u64) {
        self.pad_host_row(now, events);
        self.log_deallocations(now, events);
        // A row opened but still empty holds nothing to wait for.
        let is_open = matches!(&self.placed, Placed::Page(page) if page.has_host_row());
        (self.store.rows.host.last() - u64::from(is_open), self.store.write_sequence)
    }

    /// Whether everything up to this mark is on flash.
    pub fn is_durable(&self, mark: (u64, u64)) -> bool {
        self.rows.host.is_settled(mark.0) && self.checkpoint.is_logged(mark.1)
    }

    /// Logs the deallocations that are not logged yet, as far as there is room; while as many rows of the firmware's
    /// own are under way as may be, with the end of one of them.
    pub fn log_deallocations(&mut self, now: Instant, events: &mut EventQueue) {
        placed!(&mut self.placed, by => self.store.log_deallocations(by, &mut Clock { now, events }));
    }

    /// Deallocates logical pages: they read as zeroes from now on, for good once a flush has ended.
    pub fn deallocate(&mut self, first: u32, count: u32) {
        placed!(&mut self.placed, by => {
            let store = &mut self.store;
            if store.deallocate(first, count) {
                by.on_deallocated(store, first, first + count);
            }
        });
    }

    /// Goes on with collection where something other than an operation of the die has given it a reason.
    pub fn wake_collection(&mut self, now: Instant, events: &mut EventQueue) {
        placed!(&mut self.placed, by => by.wake(&mut self.store, &mut Clock { now, events }));
    }

    /// The host may have been quiet for long enough to fold the SLC cache.
    pub fn on_fold_timer(&mut self, now: Instant, events: &mut EventQueue) {
        if let Placed::Page(page) = &mut self.placed {
            page.on_fold_timer(&mut self.store, &mut Clock { now, events });
        }
    }

    /// From now on only the log is written, on stored energy, into whatever is erased.
    pub fn begin_emergency(&mut self) {
        self.store.emergency = true;
        self.store.flash.drop_all_but_log();
    }

    /// A die's array has finished an operation of this kind; returns the number of the one that is done with.
    #[inline(always)]
    pub fn on_cell(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        die: u32,
        generation: u32,
        kind: Kind,
    ) -> Option<u32> {
        if kind == Kind::Read
            && !self.store.layout.has_single_rows()
            && let Placed::Page(page) = &self.placed
        {
            page.expect_copies(&self.store, die);
        }
        let Store { flash, medium, layout, .. } = &mut self.store;
        flash.on_cell(now, events, die, generation, kind, medium, layout)
    }

    /// The flash operation with this number, which is of this kind, is done; and is no host read: those concern their
    /// owners only.
    // Programs and reads of collection, which are nearly all, look up what they need of their operation; the others get
    // a copy of it, since they may queue what takes its place.
    #[inline(always)]
    pub fn on_done(&mut self, now: Instant, events: &mut EventQueue, kind: Kind, done: u32) {
        let clock = &mut Clock { now, events };
        match kind {
            Kind::Program if self.store.layout.has_single_rows() => {
                placed!(&mut self.placed, by => self.store.on_programmed::<true, _>(by, clock, done));
            }
            Kind::Program => placed!(&mut self.placed, by => self.store.on_programmed::<false, _>(by, clock, done)),
            Kind::Erase => placed!(&mut self.placed, by => self.store.on_erased(by, clock, done)),
            Kind::Read if self.store.flash.operation(done).source == Source::Recovery => self.on_recovery_read(clock),
            Kind::Read => placed!(&mut self.placed, by => by.on_read(&mut self.store, clock, done)),
        }
    }

    #[inline(never)]
    fn on_recovery_read(&mut self, clock: &mut Clock) {
        if let Some(recovery) = &mut self.recovery {
            recovery.on_read();
        }
        self.recover(clock);
    }

    /// Flash beyond the logical capacity that may hold data, as a share of the capacity. On a small drive it is far
    /// more than `[ftl] over_provisioning`, because every die has whole superblocks.
    pub fn spare_share(&self) -> f64 {
        placed!(&self.placed, by => by.spare_share(&self.store))
    }

    /// The power fails: programs and erases under way are torn. What is left is the medium.
    pub fn cut_power(self) -> M {
        self.store.cut_power()
    }

    /// Checks what must always hold; for tests, since it walks everything.
    ///
    /// # Panics
    /// When something does not hold.
    pub fn assert_consistent(&self) {
        self.store.assert_consistent();
        if self.recovery.is_none() {
            placed!(&self.placed, by => by.assert_consistent(&self.store));
        }
    }

    fn page(&self) -> Option<&PageMapping> {
        match &self.placed {
            Placed::Page(page) => Some(page),
            Placed::Hybrid(_) => None,
        }
    }

    /// Whether the drive has an SLC cache.
    pub fn has_slc(&self) -> bool {
        self.page().is_some_and(|page| page.slc.is_some())
    }

    /// How full the SLC cache is; nothing where there is none.
    pub fn slc_fill(&self) -> SlcFill {
        let slc = self.page().and_then(|page| page.slc.as_ref());
        slc.map_or_else(SlcFill::default, |slc| slc.fill(&self.space, self.layout.units_per_row))
    }
}

/// The fast side's log, which only page mapping takes.
impl<M: Medium> Ftl<M> {
    /// Whether a page of the log can be taken now. When not, ask again after a program or an erase is done.
    #[inline]
    pub fn can_write_log(&mut self) -> bool {
        match &mut self.placed {
            Placed::Page(page) => page.can_write_log(&mut self.store),
            Placed::Hybrid(_) => false,
        }
    }

    /// Units in the row of the log that is being filled.
    pub fn log_row_fill(&self) -> u32 {
        self.page().map_or(0, |page| page.log_row_fill(&self.store))
    }

    /// Puts a page of the log into the open row; [`Ftl::can_write_log`] must have said yes. `owner` is acknowledged
    /// once it is programmed. Returns the page's write sequence, which no other page ever has.
    pub fn write_log(&mut self, now: Instant, events: &mut EventQueue, lpn: u32, version: u64, owner: Owner) -> u64 {
        match &mut self.placed {
            Placed::Page(page) => page.write_log(&mut self.store, &mut Clock { now, events }, lpn, version, owner),
            Placed::Hybrid(_) => self.store.write_sequence,
        }
    }

    /// The open row of the log is programmed as it is, if it holds anything.
    pub fn pad_log_row(&mut self, now: Instant, events: &mut EventQueue) {
        placed!(&mut self.placed, by => by.pad_log(&mut self.store, &mut Clock { now, events }));
    }
}

/// The mapping cache.
impl<M: Medium> Ftl<M> {
    /// The mapping cache. `None`: the whole map is at hand.
    pub fn map_cache(&self) -> Option<&MapCache> {
        self.page()?.map_cache.as_deref()
    }

    /// The mapping cache, for what the device does with host memory.
    pub(crate) fn map_cache_mut(&mut self) -> Option<&mut MapCache> {
        match &mut self.placed {
            Placed::Page(page) => page.map_cache.as_deref_mut(),
            Placed::Hybrid(_) => None,
        }
    }

    /// Counts of the mapping cache; zeroes where there is none.
    pub fn map_statistics(&self) -> MapStatistics {
        self.map_cache().map_or_else(MapStatistics::default, |cache| cache.statistics)
    }

    pub(crate) fn reset_map_statistics(&mut self) {
        if let Some(cache) = self.map_cache_mut() {
            cache.statistics = MapStatistics::default();
        }
    }

    /// Lets the mapping cache do something, and what waits for it go on.
    #[inline]
    fn by_map<R>(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        does: impl FnOnce(&mut MapCache, &mut Store<M>, &mut Clock) -> R,
    ) -> Option<R> {
        match &mut self.placed {
            Placed::Page(page) => page.by_map(&mut self.store, &mut Clock { now, events }, does),
            Placed::Hybrid(_) => None,
        }
    }

    /// Looks for the mapping page of a logical page, for a command that needs its entry. The whole map is at hand: a
    /// hit.
    pub fn look_up(&mut self, now: Instant, events: &mut EventQueue, lpn: u32, owner: u32) -> LookUp {
        self.by_map(now, events, |cache, store, clock| cache.look_up(store, clock, lpn, owner)).unwrap_or(LookUp::Hit)
    }

    /// Takes an owner whose mapping page has come since the last call.
    #[inline]
    pub fn take_translated(&mut self) -> Option<u32> {
        self.map_cache_mut()?.take_translated()
    }

    /// Bytes read from and written to the cache's memory since the last call.
    pub(crate) fn take_map_traffic(&mut self) -> (u64, u64) {
        self.map_cache_mut().map_or((0, 0), MapCache::take_traffic)
    }

    /// So many units of host memory are the mapping cache's from now on; what was there is gone.
    pub(crate) fn lend_to_map(&mut self, now: Instant, events: &mut EventQueue, units: u32) {
        self.by_map(now, events, |cache, store, clock| cache.lend_to_map(store, clock, units));
    }

    /// A command has read a page in host memory. Not `good`: it is not there any more.
    pub(crate) fn on_lent_read(&mut self, now: Instant, events: &mut EventQueue, unit: u32, page: u32, good: bool) {
        self.by_map(now, events, |cache, store, clock| cache.on_lent_read(store, clock, unit, page, good));
    }

    /// A page that is to be programmed was read from host memory. Not `good`: it is read from flash.
    pub(crate) fn on_lent_home(&mut self, now: Instant, events: &mut EventQueue, unit: u32, page: u32, good: bool) {
        self.by_map(now, events, |cache, store, clock| cache.on_lent_home(store, clock, unit, page, good));
    }

    /// The mapping pages of a drive that has a past are on flash: those that hold something, or all of them.
    pub(crate) fn place_mapping_pages(&mut self, all: bool, tag: u64) {
        if let Placed::Page(PageMapping { map_cache: Some(cache), .. }) = &mut self.placed {
            cache.place_mapping_pages(&mut self.store, all, tag);
        }
    }
}
