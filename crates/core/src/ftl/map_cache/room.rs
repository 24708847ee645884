//! The superblocks of mapping pages: they are a pool of their own on every die, and collected by themselves.
//!
//! Whatever collection of data waits for must never wait for it in turn: so the pool has all the superblocks it will
//! need from the start. Its closed superblocks have more room than there are mapping pages, so one of them always has
//! something to give back, and there is always one to move its pages to.

use crate::events::EventQueue;
use crate::flash::{Operation, Source};
use crate::ftl::{Entry, Ftl, NONE, NOT_A_CANDIDATE, State, Stream};
use crate::owner::Owner;
use crate::profile::Profile;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand, Origin};

/// Reads of collection under way on one die, as for data.
const READS: u32 = 2;

/// What a die has for mapping pages.
#[derive(Clone, Debug)]
pub(super) struct MapDie {
    /// All superblocks of its pool.
    members: Vec<u32>,
    /// Those of them that are erased and not open.
    spare: Vec<u32>,
    open: u32,
    victim: u32,
    victim_row: u32,
    reads: u32,
    /// The row that takes what is moved.
    row: u32,
    /// Nothing can be moved until a superblock is erased.
    is_stuck: bool,
}

impl Default for MapDie {
    fn default() -> MapDie {
        MapDie {
            members: Vec::new(),
            spare: Vec::new(),
            open: NONE,
            victim: NONE,
            victim_row: 0,
            reads: 0,
            row: NONE,
            is_stuck: false,
        }
    }
}

/// Superblocks that a die has for the mapping pages of so many logical pages: room for them and a quarter more, so that
/// collection finds something to give back; one that is open, and one to move pages to.
pub(in crate::ftl) fn pool_per_die(profile: &Profile, units: u64) -> u32 {
    let pages = super::mapping_pages(profile, units);
    if pages == 0 {
        return 0;
    }
    let nand = &profile.nand;
    let per_superblock =
        u64::from(nand.pages_per_block * nand.planes * (nand.page_size / profile.ftl.unit_size).max(1));
    let closed = (pages + pages / 4).div_ceil(u64::from(nand.dies()) * per_superblock.max(1));
    2 + closed as u32
}

impl<M: Medium> Ftl<M> {
    /// Fills the pool of every die from its erased superblocks.
    pub(in crate::ftl) fn fill_mapping_pools(&mut self) {
        for die in 0..self.layout.dies {
            while let Some(cache) = &self.map_cache
                && (cache.dies[die as usize].members.len() as u32) < self.mapping_pool
                && self.give_to_pool(die)
            {}
        }
    }

    /// Forgets what the pools have: recovery finds it anew.
    pub(in crate::ftl) fn empty_mapping_pools(&mut self) {
        if let Some(cache) = &mut self.map_cache {
            cache.dies.fill(MapDie::default());
        }
        for s in self.superblocks.iter_mut().filter(|s| s.stream == Stream::Mapping) {
            (s.state, s.stream) = (State::Bad, Stream::Host);
        }
    }

    /// Whether the units of a superblock are mapping pages, by what stands beside the first that can be read.
    pub(in crate::ftl) fn holds_mapping_pages(&self, superblock: u32) -> bool {
        let Some(cache) = &self.map_cache else { return false };
        let rows = 0..self.rows_programmed(superblock);
        let mut units = rows.flat_map(|row| {
            (0..self.layout.units_per_row).filter_map(move |unit| self.stamp_at(self.layout.ppn(superblock, row, unit)))
        });
        units.find(|stamp| stamp.lpn != Nand::NO_LPN).is_some_and(|stamp| stamp.lpn >= cache.first)
    }

    /// A superblock of mapping pages has come through a power loss: it is in its die's pool, and goes on behind its
    /// last row where it can.
    pub(in crate::ftl) fn adopt_mapping(&mut self, superblock: u32, goes_on_at: Option<u32>, bad: bool) {
        let s = &mut self.superblocks[superblock as usize];
        s.stream = Stream::Mapping;
        s.failed = bad;
        let die = usize::from(s.die);
        let Some(cache) = &mut self.map_cache else { return };
        let room = &mut cache.dies[die];
        room.members.push(superblock);
        if let Some(rows) = goes_on_at.filter(|_| room.open == NONE) {
            room.open = superblock;
            s.state = State::Open;
            s.rows = rows as u16;
            self.programmed[superblock as usize] = rows as u16;
        }
    }

    /// Takes an erased superblock of a die into its pool.
    fn give_to_pool(&mut self, die: u32) -> bool {
        let Some(superblock) = self.open_superblock(die, Stream::Mapping) else { return false };
        if let Some(cache) = &mut self.map_cache {
            let die = &mut cache.dies[die as usize];
            die.members.push(superblock);
            die.spare.push(superblock);
        }
        true
    }

    /// A superblock of mapping pages is erased: it, or a less worn one, stays in the pool.
    pub(in crate::ftl) fn on_mapping_erased(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        die: u32,
        superblock: u32,
    ) {
        if let Some(cache) = &mut self.map_cache {
            let room = &mut cache.dies[die as usize];
            room.members.retain(|&member| member != superblock);
            room.is_stuck = false;
        }
        self.fill_mapping_pools();
        self.update_ready(die);
        self.collect_mapping(now, events, die);
        self.move_map_pages(now, events);
    }

    /// A superblock is not written any more.
    pub(in crate::ftl) fn forget_mapping_open(&mut self, superblock: u32) {
        let die = self.layout.die_of(superblock) as usize;
        if let Some(cache) = self.map_cache.as_mut().filter(|cache| cache.dies[die].open == superblock) {
            cache.dies[die].open = NONE;
        }
    }

    /// A row for mapping pages, on the next die that has room. `None`: all are collecting.
    pub(in crate::ftl) fn mapping_row(&mut self, now: Instant, events: &mut EventQueue) -> Option<u32> {
        let dies = self.layout.dies;
        for turn in 0..dies {
            let cache = self.map_cache.as_mut()?;
            let die = (cache.next_die + turn) % dies;
            let room = &cache.dies[die as usize];
            if room.victim == NONE && (room.open != NONE || room.spare.len() > 1) {
                cache.next_die = (die + 1) % dies;
                let row = self.open_mapping_row(die);
                self.collect_mapping(now, events, die);
                return row;
            }
            self.collect_mapping(now, events, die);
        }
        None
    }

    /// A row for mapping pages whose program has failed, wherever there is a superblock; `die` first.
    pub(in crate::ftl) fn any_mapping_row(&mut self, die: u32) -> Option<u32> {
        let dies = self.layout.dies;
        for die in (0..dies).map(|turn| (die + turn) % dies) {
            if let Some(row) = self.open_mapping_row(die) {
                return Some(row);
            }
            if self.give_to_pool(die) {
                return self.open_mapping_row(die);
            }
        }
        None
    }

    /// Opens a row for mapping pages on a die, the last of its superblocks included.
    fn open_mapping_row(&mut self, die: u32) -> Option<u32> {
        let room = &mut self.map_cache.as_mut()?.dies[die as usize];
        if room.open == NONE {
            room.open = room.spare.pop()?;
        }
        let superblock = room.open;
        let number = self.log_rows.open();
        let (row, full) = self.open_row(superblock, Stream::Mapping, number);
        if let Some(cache) = &mut self.map_cache {
            cache.rows_writing += 1;
        }
        if full {
            self.forget_mapping_open(superblock);
        }
        Some(row)
    }

    /// Collects mapping pages on a die as far as it must and may.
    pub(in crate::ftl) fn collect_mapping(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        if self.emergency || self.recovery.is_some() {
            return;
        }
        if !self.choose_mapping_victim(die) {
            return;
        }
        loop {
            let Some(cache) = &self.map_cache else { return };
            let &super::MapDie { victim, victim_row, reads, row, is_stuck, .. } = &cache.dies[die as usize];
            if reads >= READS || is_stuck {
                return;
            }
            let next = (victim_row..self.layout.rows).find_map(|row| {
                let units = self.valid_bits.row(self.layout.ppn(victim, row, 0), self.layout.units_per_row);
                (units != 0).then_some((row, units))
            });
            if let Some((row, units)) = next {
                if let Some(cache) = &mut self.map_cache {
                    let room = &mut cache.dies[die as usize];
                    room.victim_row = row + 1;
                    room.reads += 1;
                }
                self.flash.enqueue(now, events, Source::CollectRead, die, victim, row, units, die);
                continue;
            }
            if reads > 0 {
                return;
            }
            if let Some(cache) = &mut self.map_cache {
                let room = &mut cache.dies[die as usize];
                (room.victim, room.row) = (NONE, NONE);
            }
            if row != NONE {
                self.submit(now, events, row);
            }
            self.superblocks[victim as usize].state = State::Draining;
            self.draining.push(victim);
            return self.erase_drained(now, events);
        }
    }

    /// Chooses the superblock to collect next, where one must be collected. False: none.
    fn choose_mapping_victim(&mut self, die: u32) -> bool {
        let Some(cache) = &mut self.map_cache else { return false };
        let room = &mut cache.dies[die as usize];
        if room.victim != NONE {
            return true;
        }
        let all = self.layout.units_per_superblock;
        let valid = |s: u32| self.valid[s as usize] & !NOT_A_CANDIDATE;
        let closed = room.members.iter().copied().filter(|&s| {
            let s = &self.superblocks[s as usize];
            s.state == State::Closed
        });
        // One that failed goes first, then what has least to move.
        let Some(victim) = closed.min_by_key(|&s| (!self.superblocks[s as usize].failed, valid(s))) else {
            return false;
        };
        let failed = self.superblocks[victim as usize].failed;
        let is_due = room.spare.len() == 1 && room.open == NONE || !room.spare.is_empty() && failed;
        if valid(victim) > 0 && !is_due || valid(victim) >= all && !failed {
            return false;
        }
        (room.victim, room.victim_row) = (victim, 0);
        self.superblocks[victim as usize].state = State::Victim;
        cache.statistics.collections += 1;
        true
    }

    /// A row of a superblock of mapping pages has been read: what is still valid goes to another.
    pub(in crate::ftl) fn on_mapping_collect_read(
        &mut self,
        now: Instant,
        events: &mut EventQueue,
        operation: &Operation,
    ) {
        let die = operation.die;
        let first = self.layout.block(operation.superblock, 0);
        let images = if self.stamps { self.medium.own_payload(first, operation.row) } else { None }.unwrap_or_default();
        let mut left = operation.units;
        while left != 0 {
            let unit = left.trailing_zeros();
            left &= left - 1;
            let Some((ppn, place, lpn)) = self.still_valid(operation, unit) else { continue };
            let stamp = self.stamp_of_copy(ppn);
            let open = self.map_cache.as_ref().map_or(NONE, |cache| cache.dies[die as usize].row);
            let row = if open == NONE {
                self.open_mapping_row(die).or_else(|| self.any_mapping_row(die))
            } else {
                Some(open)
            };
            let Some(row) = row else {
                // So many programs failed that no superblock is left: what is valid stays where it is for now.
                self.read_only = true;
                if let Some(cache) = &mut self.map_cache {
                    let room = &mut cache.dies[die as usize];
                    room.victim_row = room.victim_row.min(operation.row);
                    room.is_stuck = true;
                }
                break;
            };
            let full = self.put(row, lpn, stamp, Owner::None);
            self.set_origin(row, Origin::Copy(place));
            if self.stamps {
                self.carry_image(&images, unit, row);
            }
            if let Some(cache) = &mut self.map_cache {
                cache.statistics.moved += 1;
                cache.dies[die as usize].row = if full { NONE } else { row };
            }
            if full {
                self.submit(now, events, row);
            }
        }
        if let Some(cache) = &mut self.map_cache {
            cache.dies[die as usize].reads -= 1;
        }
        self.collect_mapping(now, events, die);
    }

    /// The mapping pages of a drive that has a past are on flash: those that hold something, or all of them.
    pub(crate) fn place_mapping_pages(&mut self, all: bool, tag: u64) {
        let Some(cache) = &self.map_cache else { return };
        let (first, pages, shift) = (cache.first, cache.pages, cache.shift);
        let units = self.layout.units_per_row as usize;
        let mut row = [Nand::NO_LPN; 64];
        let mut count = 0;
        let mut turn = 0;
        for page in 0..pages {
            let lpns = page << shift..((page + 1) << shift).min(first);
            if !all && !lpns.clone().any(|lpn| self.map.get(lpn) != Entry::Unmapped) {
                continue;
            }
            row[count] = first + page;
            count += 1;
            if count == units || page == pages - 1 {
                self.place_mapping_row(&mut turn, &row[..count], tag);
                count = 0;
            }
        }
        if count > 0 {
            self.place_mapping_row(&mut turn, &row[..count], tag);
        }
    }

    fn place_mapping_row(&mut self, turn: &mut u32, lpns: &[u32], tag: u64) {
        let dies = self.layout.dies;
        for _ in 0..dies {
            let die = *turn % dies;
            *turn += 1;
            let Some(cache) = &mut self.map_cache else { return };
            let room = &mut cache.dies[die as usize];
            if room.open == NONE && room.spare.len() > 1 {
                room.open = room.spare.pop().unwrap_or(NONE);
            }
            let superblock = room.open;
            if superblock == NONE {
                continue;
            }
            let row = u32::from(self.superblocks[superblock as usize].rows);
            self.superblocks[superblock as usize].rows += 1;
            let mut images = Vec::new();
            if self.stamps {
                lpns.iter().for_each(|&lpn| self.add_image(lpn, &mut images));
            }
            let images = self.stamps.then(|| images.into());
            self.place_with(superblock, row, lpns, 0, tag, images);
            if self.is_full(superblock) {
                self.forget_mapping_open(superblock);
                self.close(superblock);
            }
            return;
        }
    }
}
