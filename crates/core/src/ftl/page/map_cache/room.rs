//! The superblocks of mapping pages: they are a pool of their own on every die, and collected by themselves.
//!
//! Whatever collection of data waits for must never wait for it in turn: so the pool has all the superblocks it will
//! need from the start. Its closed superblocks have more room than there are mapping pages, so one of them always has
//! something to give back, and there is always one to move its pages to.

use super::MapCache;
use super::parts::MapDie;
use crate::flash::{NONE, Operation, Source};
use crate::ftl::store::{Clock, Entry, State, Store, Stream};
use crate::owner::Owner;
use tidewater_nand::{Medium, Nand, Origin};

/// Reads of collection under way on one die, as for data.
const READS: u32 = 2;

impl MapCache {
    /// Fills the pool of every die from its erased superblocks.
    pub(crate) fn fill_mapping_pools<M: Medium>(&mut self, store: &mut Store<M>) {
        for die in 0..store.layout.dies {
            while (self.dies[die as usize].members.len() as u32) < self.pool && self.give_to_pool(store, die) {}
        }
    }

    /// Forgets what the pools have: recovery finds it anew.
    pub(crate) fn empty_mapping_pools<M: Medium>(&mut self, store: &mut Store<M>) {
        self.dies.fill(MapDie::default());
        for s in store.space.superblocks.iter_mut().filter(|s| s.stream == Stream::Mapping) {
            (s.state, s.stream) = (State::Bad, Stream::Host);
        }
    }

    /// Whether the units of a superblock are mapping pages, by what stands beside the first that can be read.
    pub(crate) fn holds_mapping_pages<M: Medium>(&self, store: &Store<M>, superblock: u32) -> bool {
        let rows = 0..store.rows_programmed(superblock);
        let mut units = rows.flat_map(|row| {
            (0..store.layout.units_per_row)
                .filter_map(move |unit| store.stamp_at(store.layout.ppn(superblock, row, unit)))
        });
        units.find(|stamp| stamp.lpn != Nand::NO_LPN).is_some_and(|stamp| stamp.lpn >= self.first)
    }

    /// A superblock of mapping pages has come through a power loss: it is in its die's pool, and goes on behind its
    /// last row where it can.
    pub(crate) fn adopt_mapping<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        superblock: u32,
        goes_on_at: Option<u32>,
        bad: bool,
    ) {
        let s = &mut store.space.superblocks[superblock as usize];
        s.stream = Stream::Mapping;
        s.failed = bad;
        let die = usize::from(s.die);
        let room = &mut self.dies[die];
        room.members.push(superblock);
        if let Some(rows) = goes_on_at.filter(|_| room.open == NONE) {
            room.open = superblock;
            store.space.reopen(superblock, Stream::Mapping, rows);
        }
    }

    /// Takes an erased superblock of a die into its pool.
    fn give_to_pool<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> bool {
        let Some(superblock) = store.space.open(die, Stream::Mapping) else { return false };
        let die = &mut self.dies[die as usize];
        die.members.push(superblock);
        die.spare.push(superblock);
        true
    }

    /// A superblock of mapping pages is erased: it, or a less worn one, stays in the pool.
    pub(crate) fn on_mapping_erased<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        die: u32,
        superblock: u32,
    ) {
        let room = &mut self.dies[die as usize];
        room.members.retain(|&member| member != superblock);
        room.is_stuck = false;
        self.fill_mapping_pools(store);
        self.collect_mapping(store, clock, die);
        self.move_map_pages(store, clock);
    }

    /// A superblock of a die is not written any more.
    pub(crate) fn forget_mapping_open(&mut self, die: u32, superblock: u32) {
        let open = &mut self.dies[die as usize].open;
        if *open == superblock {
            *open = NONE;
        }
    }

    /// A row for mapping pages, on the next die that has room. `None`: all are collecting.
    pub(crate) fn mapping_row<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) -> Option<u32> {
        let dies = store.layout.dies;
        for turn in 0..dies {
            let die = (self.next_die + turn) % dies;
            let room = &self.dies[die as usize];
            if room.victim == NONE && room.open == NONE && room.spare.is_empty() {
                // Programs that failed have used its last one. One more, and collection has a place to go to.
                self.give_to_pool(store, die);
            }
            let room = &self.dies[die as usize];
            if room.victim == NONE && (room.open != NONE || room.spare.len() > 1) {
                self.next_die = (die + 1) % dies;
                let row = self.open_mapping_row(store, die);
                self.collect_mapping(store, clock, die);
                return row;
            }
            self.collect_mapping(store, clock, die);
        }
        None
    }

    /// A row for mapping pages whose program has failed, wherever there is a superblock; `die` first. The caller fills
    /// and programs it now: rows that are opened behind it may be programmed at once. So the row that collection is
    /// filling on a die is the caller's, too.
    pub(crate) fn any_mapping_row<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> Option<u32> {
        let dies = store.layout.dies;
        for die in (0..dies).map(|turn| (die + turn) % dies) {
            let filled = std::mem::replace(&mut self.dies[die as usize].row, NONE);
            if filled != NONE {
                return Some(filled);
            }
            if let Some(row) = self.open_mapping_row(store, die) {
                return Some(row);
            }
            if self.give_to_pool(store, die) {
                return self.open_mapping_row(store, die);
            }
        }
        None
    }

    /// Opens a row for mapping pages on a die, the last of its superblocks included.
    fn open_mapping_row<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> Option<u32> {
        let room = &mut self.dies[die as usize];
        if room.open == NONE {
            room.open = room.spare.pop()?;
        }
        let superblock = room.open;
        let number = store.rows.log.open();
        let (row, full) = store.open_row(superblock, Stream::Mapping, number);
        self.rows_writing += 1;
        if full {
            self.forget_mapping_open(die, superblock);
        }
        Some(row)
    }

    /// Collects mapping pages on a die as far as it must and may.
    pub(crate) fn collect_mapping<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32) {
        if store.emergency || store.recovering {
            return;
        }
        if !self.choose_mapping_victim(store, die) {
            return;
        }
        loop {
            let &MapDie { victim, victim_row, reads, row, is_stuck, .. } = &self.dies[die as usize];
            if reads >= READS || is_stuck {
                return;
            }
            let next = (victim_row..store.layout.rows).find_map(|row| {
                let units = store.valid_bits.row(store.layout.ppn(victim, row, 0), store.layout.units_per_row);
                (units != 0).then_some((row, units))
            });
            if let Some((row, units)) = next {
                let room = &mut self.dies[die as usize];
                room.victim_row = row + 1;
                room.reads += 1;
                store.flash.enqueue(clock.now, clock.events, Source::CollectRead, die, victim, row, units, die);
                continue;
            }
            if reads > 0 {
                return;
            }
            let room = &mut self.dies[die as usize];
            (room.victim, room.row) = (NONE, NONE);
            if row != NONE {
                store.queue_program(clock, Source::Map, row);
            }
            store.space.superblocks[victim as usize].state = State::Draining;
            store.space.draining.push(victim);
            return store.erase_drained(clock);
        }
    }

    /// Chooses the superblock to collect next, where one must be collected. False: none.
    fn choose_mapping_victim<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> bool {
        let room = &mut self.dies[die as usize];
        if room.victim != NONE {
            return true;
        }
        let all = store.layout.units_per_superblock;
        let valid = |s: u32| store.space.valid_units(s);
        let is_closed = |&s: &u32| store.space.superblocks[s as usize].state == State::Closed;
        let closed = room.members.iter().copied().filter(is_closed);
        // One that failed goes first, then what has least to move.
        let Some(victim) = closed.min_by_key(|&s| (!store.space.superblocks[s as usize].failed, valid(s))) else {
            return false;
        };
        let failed = store.space.superblocks[victim as usize].failed;
        let is_due = room.spare.len() == 1 && room.open == NONE || !room.spare.is_empty() && failed;
        if valid(victim) > 0 && !is_due || valid(victim) >= all && !failed {
            return false;
        }
        (room.victim, room.victim_row) = (victim, 0);
        store.space.superblocks[victim as usize].state = State::Victim;
        self.statistics.collections += 1;
        true
    }

    /// A row of a superblock of mapping pages has been read: what is still valid goes to another.
    pub(crate) fn on_mapping_collect_read<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        operation: &Operation,
    ) {
        let die = operation.die;
        let first = store.layout.block(operation.superblock, 0);
        let images =
            if store.stamps { store.medium.own_payload(first, operation.row) } else { None }.unwrap_or_default();
        let mut left = operation.units;
        while left != 0 {
            let unit = left.trailing_zeros();
            left &= left - 1;
            let Some((ppn, place, lpn)) = store.still_valid(operation, unit) else { continue };
            let stamp = store.stamp_of_copy(ppn);
            let open = self.dies[die as usize].row;
            let row = if open == NONE {
                self.open_mapping_row(store, die).or_else(|| self.any_mapping_row(store, die))
            } else {
                Some(open)
            };
            let Some(row) = row else {
                // So many programs failed that no superblock is left: what is valid stays where it is for now.
                store.space.read_only = true;
                let room = &mut self.dies[die as usize];
                room.victim_row = room.victim_row.min(operation.row);
                room.is_stuck = true;
                break;
            };
            let full = store.put(row, lpn, stamp, Owner::None);
            store.rows.set_origin(row, Origin::Copy(place));
            if store.stamps {
                self.carry_image(store, &images, unit, row);
            }
            self.statistics.moved += 1;
            self.dies[die as usize].row = if full { NONE } else { row };
            if full {
                store.queue_program(clock, Source::Map, row);
            }
        }
        let row = self.dies[die as usize].row;
        if row != NONE && store.layout.die_of(store.rows.staged[row as usize].superblock) != die {
            // The other die does not know that a row of its superblock is being filled.
            self.dies[die as usize].row = NONE;
            store.queue_program(clock, Source::Map, row);
        }
        self.dies[die as usize].reads -= 1;
        self.collect_mapping(store, clock, die);
    }

    /// The mapping pages of a drive that has a past are on flash: those that hold something, or all of them.
    pub(crate) fn place_mapping_pages<M: Medium>(&mut self, store: &mut Store<M>, all: bool, tag: u64) {
        let (first, pages, shift) = (self.first, self.pages, self.shift);
        let units = store.layout.units_per_row as usize;
        let mut row = [Nand::NO_LPN; 64];
        let mut count = 0;
        let mut turn = 0;
        for page in 0..pages {
            let lpns = page << shift..((page + 1) << shift).min(first);
            if !all && !lpns.clone().any(|lpn| store.map.get(lpn) != Entry::Unmapped) {
                continue;
            }
            row[count] = first + page;
            count += 1;
            if count == units || page == pages - 1 {
                self.place_mapping_row(store, &mut turn, &row[..count], tag);
                count = 0;
            }
        }
        if count > 0 {
            self.place_mapping_row(store, &mut turn, &row[..count], tag);
        }
    }

    fn place_mapping_row<M: Medium>(&mut self, store: &mut Store<M>, turn: &mut u32, lpns: &[u32], tag: u64) {
        let dies = store.layout.dies;
        for _ in 0..dies {
            let die = *turn % dies;
            *turn += 1;
            let room = &mut self.dies[die as usize];
            if room.open == NONE && room.spare.len() > 1 {
                room.open = room.spare.pop().unwrap_or(NONE);
            }
            let superblock = room.open;
            if superblock == NONE {
                continue;
            }
            let mut images = Vec::new();
            if store.stamps {
                lpns.iter().for_each(|&lpn| self.add_image(store, lpn, &mut images));
            }
            let images = store.stamps.then(|| images.into());
            if store.place(superblock, lpns, 0, tag, images) {
                self.forget_mapping_open(die, superblock);
                store.space.close(superblock);
            }
            return;
        }
    }
}
