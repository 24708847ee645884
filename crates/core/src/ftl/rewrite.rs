//! Blocks that turn bad: rows that failed are written elsewhere, and in the end the drive goes read-only.

use super::placement::Placement;
use super::store::{Clock, Entry, NOT_A_CANDIDATE, State, Store, Stream};
use crate::flash::NONE;
use crate::owner::Owner;
use tidewater_nand::{Medium, Nand, Origin};

impl<M: Medium> Store<M> {
    /// A program failed in this superblock: it takes no more rows.
    #[cold]
    pub(super) fn fail_superblock(&mut self, by: &mut impl Placement<M>, superblock: u32) {
        self.space.superblocks[superblock as usize].failed = true;
        self.checkpoint.forget_open(superblock);
        by.forget_open(self, superblock);
        by.update_ready(self, self.layout.die_of(superblock));
    }

    /// Writes the units of a failed row again, those that were overtaken meanwhile too: a host may have been promised
    /// them before what overtook them is on flash.
    #[cold]
    pub(super) fn rewrite(&mut self, by: &mut impl Placement<M>, clock: &mut Clock, row: u32) {
        let failed = self.rows.staged[row as usize].clone();
        if matches!(failed.stream, Stream::Map | Stream::Merge) {
            return; // Its owner writes it again, with what the map says by then.
        }
        if failed.stream == Stream::Host && self.space.is_slc(failed.superblock) {
            // Each unit counts once as one that went to the SLC cache: with the row that is programmed in the end.
            self.statistics.slc.units_written = self.statistics.slc.units_written.saturating_sub(failed.count.into());
        }
        let die = u32::from(self.space.superblocks[failed.superblock as usize].die);
        let mut last = failed.number;
        // Mapping pages go to a row of their own, which only they fill.
        let mut mapping_row = NONE;
        for unit in 0..failed.count {
            let at = (row * self.layout.units_per_row + unit) as usize;
            let lpn = self.rows.lpns[at];
            let owner = if failed.owned { Owner::unpack(self.rows.owners[at]) } else { Owner::None };
            if lpn == Nand::NO_LPN {
                continue;
            }
            if failed.stream == Stream::Log && owner != Owner::None {
                self.rows.rewritten.push(owner.pack());
            }
            let stamp = if self.stamps { self.rows.stamps[at] } else { (0, 0) };
            let ppn = self.layout.ppn(failed.superblock, failed.row, unit);
            let is_current = self.map.get(lpn) == Entry::At(ppn);
            let to = if mapping_row == NONE { by.row_again(self, die, failed.stream) } else { Some(mapping_row) };
            let Some(to) = to else {
                if is_current {
                    by.lose(self, lpn, ppn);
                } else {
                    self.stand_in(lpn, ppn, self.rows.previous[at]);
                }
                if owner != Owner::None {
                    self.rows.rejected.push(owner.pack());
                }
                continue;
            };
            if self.rows.staged[to as usize].stream == failed.stream {
                self.statistics.collected += 1;
                last = last.max(self.rows.staged[to as usize].number);
            } else {
                by.moved_again(self, die, self.rows.staged[to as usize].number);
            }
            let full = if is_current {
                let full = self.put(to, lpn, stamp, owner);
                // Where it was durable before is still that: the failed row never was.
                let now_at = (to * self.layout.units_per_row + self.rows.staged[to as usize].count - 1) as usize;
                self.rows.previous[now_at] = self.rows.previous[at];
                full
            } else {
                let full = self.rows.put_overtaken(to, lpn, stamp, owner, self.rows.previous[at]);
                let r = &self.rows.staged[to as usize];
                let (superblock, place) = (r.superblock, self.layout.ppn(r.superblock, r.row, r.count - 1));
                self.stand_in(lpn, ppn, place);
                if self.stamps {
                    self.log_gone_again(superblock, lpn, stamp.1 + 1);
                }
                full
            };
            by.put_again(self, &failed, unit, to);
            // What it is a copy of has waited for this row, too.
            let origin = if self.rows.payload { self.rows.origins[at] } else { Origin::Memory };
            self.rows.set_origin(to, origin);
            mapping_row = if failed.stream == Stream::Mapping && !full { to } else { NONE };
            if full {
                by.submit(self, clock, to);
            }
        }
        if mapping_row != NONE {
            by.submit(self, clock, mapping_row);
        }
        self.log_deallocations(by, clock);
        match failed.stream {
            Stream::Collected => self.rows.collected[die as usize].rewrite(failed.number, last),
            Stream::Mapping => self.rows.log.rewrite(failed.number, last),
            Stream::Log => {
                self.rows.log.rewrite(failed.number, last);
                by.pad_log(self, clock);
            }
            _ => {
                self.rows.host.rewrite(failed.number, last);
                by.pad(self, clock);
            }
        }
    }

    /// A superblock is out of use for good.
    pub(super) fn retire(&mut self, by: &mut impl Placement<M>, superblock: u32) {
        self.space.superblocks[superblock as usize].state = State::Bad;
        self.space.valid[superblock as usize] = NOT_A_CANDIDATE;
        self.space.good_superblocks -= 1;
        by.size(self, self.layout.die_of(superblock));
        self.check_end_of_life(by);
    }

    /// The drive goes read-only while there is still room for what the buffer holds and for collection to end.
    pub(super) fn check_end_of_life(&mut self, by: &impl Placement<M>) {
        self.space.read_only |= self.space.good_superblocks < by.least_superblocks(self);
    }
}
