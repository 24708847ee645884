//! Blocks that turn bad: rows that failed are written elsewhere, blocks are replaced, and in the end the drive goes
//! read-only.

use super::write::{LOST, NOWHERE};
use super::{DieSpace, Entry, Ftl, NOT_A_CANDIDATE, State, Stream};
use crate::events::EventQueue;
use crate::flash::NONE;
use crate::owner::Owner;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand, Origin};

impl<M: Medium> Ftl<M> {
    /// A program failed in this superblock: it takes no more rows.
    #[cold]
    pub(super) fn fail_superblock(&mut self, superblock: u32) {
        let s = &mut self.superblocks[superblock as usize];
        s.failed = true;
        let die = &mut self.dies[s.die as usize];
        if die.host_superblock == superblock {
            die.host_superblock = NONE;
        }
        if die.log_superblock == superblock {
            die.log_superblock = NONE;
        }
        if die.collect_superblock == superblock {
            die.collect_superblock = NONE;
        }
        self.checkpoint.forget_open(superblock);
        self.forget_open_slc(superblock);
        if let Some(hybrid) = &mut self.hybrid {
            hybrid.forget_open(superblock);
        }
        self.forget_mapping_open(superblock);
        let die = u32::from(self.superblocks[superblock as usize].die);
        self.update_ready(die);
    }

    /// Writes the units of a failed row again, those that were overtaken meanwhile too: a host may have been promised
    /// them before what overtook them is on flash.
    #[cold]
    pub(super) fn rewrite(&mut self, now: Instant, events: &mut EventQueue, row: u32) {
        let failed = self.rows[row as usize].clone();
        if matches!(failed.stream, Stream::Map | Stream::Merge) {
            return; // Its owner writes it again, with what the map says by then.
        }
        if failed.stream == Stream::Host && self.is_slc(failed.superblock) {
            // Each unit counts once as one that went to the SLC cache: with the row that is programmed in the end.
            self.statistics.slc = self.statistics.slc.saturating_sub(failed.count.into());
        }
        let die = u32::from(self.superblocks[failed.superblock as usize].die);
        let mut last = failed.number;
        // Mapping pages go to a row of their own, which only they fill.
        let mut mapping_row = NONE;
        for unit in 0..failed.count {
            let at = (row * self.layout.units_per_row + unit) as usize;
            let lpn = self.row_lpns[at];
            let owner = if failed.owned { Owner::unpack(self.row_owners[at]) } else { Owner::None };
            if lpn == Nand::NO_LPN {
                continue;
            }
            if failed.stream == Stream::Log && owner != Owner::None {
                self.rewritten.push(owner.pack());
            }
            let stamp = if self.stamps { self.row_stamps[at] } else { (0, 0) };
            let ppn = self.layout.ppn(failed.superblock, failed.row, unit);
            let is_current = self.map.get(lpn) == Entry::At(ppn);
            let to = if mapping_row == NONE { self.rewrite_row(die, failed.stream) } else { Some(mapping_row) };
            let Some(to) = to else {
                if is_current {
                    self.lose(lpn, ppn);
                } else {
                    self.stand_in(lpn, ppn, self.row_previous[at]);
                }
                if owner != Owner::None {
                    self.rejected.push(owner.pack());
                }
                continue;
            };
            if self.rows[to as usize].stream == failed.stream {
                self.statistics.collected += 1;
                last = self.rows[to as usize].number;
            } else {
                self.move_hazards(die, self.rows[to as usize].number);
            }
            let full = if is_current {
                let full = self.put(to, lpn, stamp, owner);
                // Where it was durable before is still that: the failed row never was.
                let now_at = (to * self.layout.units_per_row + self.rows[to as usize].count - 1) as usize;
                self.row_previous[now_at] = self.row_previous[at];
                full
            } else {
                let full = self.put_overtaken(to, lpn, stamp, owner, self.row_previous[at]);
                let r = &self.rows[to as usize];
                let (superblock, place) = (r.superblock, self.layout.ppn(r.superblock, r.row, r.count - 1));
                self.stand_in(lpn, ppn, place);
                if self.stamps {
                    self.log_gone_again(superblock, lpn, stamp.1 + 1);
                }
                full
            };
            self.carry_image(&failed.images, unit, to);
            // What it is a copy of has waited for this row, too.
            let origin = if self.payload { self.row_origins[at] } else { Origin::Memory };
            self.set_origin(to, origin);
            mapping_row = if failed.stream == Stream::Mapping && !full { to } else { NONE };
            if full {
                self.submit(now, events, to);
            }
        }
        if mapping_row != NONE {
            self.submit(now, events, mapping_row);
        }
        self.log_deallocations(now, events);
        match failed.stream {
            Stream::Collected => self.dies[die as usize].collected.rewrite(failed.number, last),
            Stream::Mapping => self.log_rows.rewrite(failed.number, last),
            Stream::Log => {
                self.log_rows.rewrite(failed.number, last);
                self.pad_log_row(now, events);
            }
            _ => {
                self.host_rows.rewrite(failed.number, last);
                self.pad_host_row(now, events);
            }
        }
    }

    fn rewrite_row(&mut self, die: u32, stream: Stream) -> Option<u32> {
        let row = match stream {
            Stream::Collected => self.collected_row::<false>(die),
            Stream::Log => return self.any_log_row(die),
            Stream::Mapping => return self.any_mapping_row(die),
            _ => None,
        };
        row.or_else(|| self.any_host_row(die))
    }

    /// Collected units of a die go to a host row: what they left must wait for that too.
    fn move_hazards(&mut self, die: u32, number: u64) {
        let victim = self.dies[die as usize].victim;
        for &superblock in self.draining.iter().chain((victim != NONE).then_some(&victim)) {
            let s = &mut self.superblocks[superblock as usize];
            if u32::from(s.die) == die {
                s.host_hazard = s.host_hazard.max(number);
            }
        }
    }

    /// The open host row, or one opened wherever there is a superblock, the reserve included; `die` first.
    pub(super) fn any_host_row(&mut self, die: u32) -> Option<u32> {
        if self.hybrid.is_some() {
            return self.any_random_row();
        }
        if self.host_row != NONE {
            return Some(self.host_row);
        }
        let dies = self.layout.dies;
        let die = (0..dies).map(|i| (die + i) % dies).find(|&d| {
            let space = &self.dies[d as usize];
            space.host_superblock != NONE || !space.free.is_empty()
        })?;
        Some(self.open_host_row_on(die))
    }

    /// Puts a unit that was overtaken into a row: it is on flash for recovery to find, but not current.
    fn put_overtaken(&mut self, row: u32, lpn: u32, stamp: (u64, u64), owner: Owner, previous: u32) -> bool {
        let r = &mut self.rows[row as usize];
        let at = (row * self.layout.units_per_row + r.count) as usize;
        r.count += 1;
        let full = r.count == self.layout.units_per_row;
        self.row_lpns[at] = lpn;
        if owner != Owner::None {
            self.set_owner(row, at, owner);
        }
        self.row_previous[at] = previous;
        if self.stamps {
            self.row_stamps[at] = stamp;
        }
        full
    }

    /// A unit that was overtaken could not be programmed where it was to be. Until what overtook it is on flash, the
    /// page is at `place` instead, and what lies there must not be erased.
    fn stand_in(&mut self, lpn: u32, failed: u32, place: u32) {
        let units = self.layout.units_per_row as usize;
        for (id, row) in self.rows.iter().enumerate().filter(|(_, r)| r.in_use && r.stream != Stream::Merge) {
            let overtaker = |&at: &usize| self.row_lpns[at] == lpn && self.row_previous[at] == failed;
            let Some(at) = (id * units..id * units + row.count as usize).find(overtaker) else { continue };
            self.row_previous[at] = place;
            if matches!(place, NOWHERE | LOST) {
                continue;
            }
            let s = &mut self.superblocks[self.layout.superblock_of(place) as usize];
            match row.stream {
                Stream::Host => s.host_hazard = s.host_hazard.max(row.number),
                Stream::Log | Stream::Mapping => s.log_row_hazard = s.log_row_hazard.max(row.number),
                _ => {}
            }
        }
    }

    /// A page that is gone was put into this superblock once more. The log that says that it is gone may be forgotten
    /// before that copy, which is younger than the log: log it again.
    fn log_gone_again(&mut self, superblock: u32, lpn: u32, sequence: u64) {
        let pages = match self.map.get(lpn) {
            Entry::Unmapped => 1,
            Entry::Lost => 0,
            Entry::At(_) => return,
        };
        self.checkpoint.log_deallocation(lpn, pages, sequence);
        let s = &mut self.superblocks[superblock as usize];
        s.log_hazard = s.log_hazard.max(sequence);
    }

    /// A unit can't be read any more: reads of it fail, until it is written again.
    pub(super) fn lose(&mut self, lpn: u32, ppn: u32) {
        self.statistics.lost += 1;
        self.map.set(lpn, Entry::Lost);
        self.change_entry(lpn);
        self.invalidate(ppn, 0);
        // Logged like a deallocation, of no pages: an older copy must not come back in its place.
        if self.stamp_at(ppn).is_some_and(|stamp| stamp.lpn == lpn) {
            // One of its own, as a deallocation that follows has: else the order of both would be unknown.
            self.write_sequence += 1;
            let sequence = self.write_sequence;
            self.checkpoint.log_deallocation(lpn, 0, sequence);
            let hazard = &mut self.superblocks[self.layout.superblock_of(ppn) as usize].log_hazard;
            *hazard = sequence.max(*hazard);
        }
    }

    /// Erases every plane; blocks that fail, or are bad already, are replaced by spares. False: a plane has none left.
    pub(super) fn erase_planes(&mut self, superblock: u32) -> bool {
        let mut whole = true;
        for plane in 0..self.layout.planes() {
            let at = self.layout.block(superblock, plane);
            // A block in which a program failed is erased with the others, which takes its time, and then replaced.
            self.statistics.erases += 1;
            if !self.medium.is_bad(at) {
                if self.medium.erase(at).is_ok() {
                    continue;
                }
                self.statistics.erase_failures += 1;
            }
            whole &= self.replace_block(superblock, plane);
        }
        whole
    }

    fn replace_block(&mut self, superblock: u32, plane: u32) -> bool {
        while self.layout.replace(superblock, plane) {
            let spare = self.layout.block(superblock, plane);
            // A spare may hold remains of a life before the last power loss.
            if self.medium.programmed(spare) == 0 && !self.medium.is_torn(spare) || self.medium.erase(spare).is_ok() {
                return true;
            }
        }
        false
    }

    /// A superblock is out of use for good.
    pub(super) fn retire(&mut self, superblock: u32) {
        self.superblocks[superblock as usize].state = State::Bad;
        self.valid[superblock as usize] = NOT_A_CANDIDATE;
        self.good_superblocks -= 1;
        self.size_slc(self.layout.die_of(superblock));
        self.check_end_of_life();
    }

    /// Whether there is a place for one more row of what collection moves on a die, besides those that are being read.
    #[inline]
    pub(super) fn has_room_to_collect(&self, die: u32, space: &DieSpace) -> bool {
        // Nearly always there is.
        self.profile.gc_stream && !space.free.is_empty() && self.layout.rows > space.reads || self.finds_room(die)
    }

    #[inline(never)]
    fn finds_room(&self, die: u32) -> bool {
        let (rows, units) = (self.layout.rows, self.layout.units_per_row);
        let space = &self.dies[die as usize];
        let rows_needed = space.reads + 1;
        if self.profile.gc_stream {
            let rows_left = match space.collect_superblock {
                NONE => 0,
                open => rows - u32::from(self.superblocks[open as usize].rows),
            };
            let units_left = match space.collect_row {
                NONE => 0,
                row => units - self.rows[row as usize].count,
            };
            if (rows_left + space.free.len() as u32 * rows) * units + units_left >= rows_needed * units {
                return true;
            }
            if self.gives_back(die) {
                return false; // Rather wait for that than take from another die.
            }
        }
        self.host_row != NONE || self.dies.iter().any(|d| d.host_superblock != NONE || !d.free.is_empty())
    }

    /// Whether an erase will give a die a superblock.
    fn gives_back(&self, die: u32) -> bool {
        let first = (die * self.layout.superblocks_per_die) as usize;
        let on_die = &self.superblocks[first..first + self.layout.superblocks_per_die as usize];
        on_die.iter().any(|s| matches!(s.state, State::Draining | State::Erasing))
    }

    /// Collection on a die waits until an erase gives it a superblock. Where none will, because too many blocks turned
    /// bad, the drive has come to its end.
    pub(super) fn wait_for_room(&mut self, now: Instant, events: &mut EventQueue, die: u32) {
        self.starve(die);
        if self.dies[die as usize].reads == 0 {
            self.pad_collected_row(now, events, die);
            self.read_only |= !(0..self.layout.dies).any(|die| self.gives_back(die));
        }
    }

    /// The drive goes read-only while there is still room for what the buffer holds and for collection to end.
    pub(super) fn check_end_of_life(&mut self) {
        let data = self.units.div_ceil(self.layout.units_per_superblock);
        if let Some(hybrid) = &self.hybrid {
            self.read_only |= self.good_superblocks < self.least_superblocks(hybrid);
            return;
        }
        let least = data
            + self.layout.dies * (self.profile.gc_reserve + 2 + self.log_reserve + self.mapping_pool)
            + self.map_superblocks();
        if self.good_superblocks < least {
            self.read_only = true;
        }
    }
}
