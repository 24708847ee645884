//! FASTer's isolation area: RW log blocks in which cold pages wait for their merges.
//!
//! What would have to be merged because it is in a victim of the log, and is cold, is copied here instead: the victim
//! is free at once. A page that is overwritten here after all is spared its merge, and of a logical block all cold
//! pages are merged at once. As the last block of the area fills up, its oldest is emptied by full merges, as many
//! pages of it as are left to fill: so merges are spread over the time that a block takes to fill, and no victim waits
//! for one unless the area is full.

use super::state::{Hybrid, Isolation, RESERVE, Role, RowRole, least_log};
use crate::flash::NONE;
use crate::ftl::store::{Clock, State, Store, Stream};
use tidewater_nand::Medium;

impl Hybrid {
    /// RW log blocks that the isolation area may have now: of a log that shrinks, what hot pages need stays.
    pub fn isolation_limit<M: Medium>(&self, store: &Store<M>) -> u32 {
        let least = least_log(self.points.len() as u32);
        self.isolation.blocks_max.min(self.whole_log_limit(store).saturating_sub(least))
    }

    /// Whether the isolation area takes another page without a superblock that merges need.
    pub fn has_room_in_isolation<M: Medium>(&self, store: &Store<M>) -> bool {
        let Isolation { open, row, ref blocks, .. } = self.isolation;
        let may_open = || (blocks.len() as u32) < self.isolation_limit(store) && store.space.free_superblocks > RESERVE;
        row != NONE || open != NONE || may_open()
    }

    /// Whether cold pages should wait for merges: there is no room before those have given some back, or more are due
    /// than can be under way. Else a victim would one day wait for all merges of a block at once.
    pub fn isolation_lags<M: Medium>(&self, store: &Store<M>) -> bool {
        let merges = self.merges.len() as u32;
        self.isolation_due(store).is_some_and(|(_, due)| due > merges || !self.has_room_in_isolation(store))
    }

    /// The row that takes cold pages; [`Hybrid::has_room_in_isolation`] has said that there is one.
    pub fn isolated_row<M: Medium>(&mut self, store: &mut Store<M>) -> u32 {
        let Isolation { mut open, row, .. } = self.isolation;
        if row != NONE {
            return row;
        }
        if open == NONE {
            let die = self.roomiest_die(store).expect("a superblock is free");
            open = store.space.open(die, Stream::Host).expect("it has room");
            self.roles[open as usize] = Role::Log;
            self.isolation.blocks.push_back(open);
        }
        let row = self.open_log_row(store, open, RowRole::Isolated);
        let full = store.space.is_full(open);
        let area = &mut self.isolation;
        area.open = if full { NONE } else { open };
        area.row = row;
        row
    }

    /// Merges the next logical block of the area's oldest superblock, if that is due. False: it is not, or there is no
    /// room.
    pub fn merge_isolated<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock, slot: usize) -> bool {
        while let Some((oldest, _)) = self.isolation_due(store) {
            if store.space.valid_units(oldest) == 0 {
                let area = &mut self.isolation;
                area.blocks.pop_front();
                area.next_row = 0;
                area.exhausted = false;
                self.drain(store, clock, oldest);
                store.erase_drained(clock);
                continue;
            }
            if self.isolation.exhausted {
                return false;
            }
            let from = self.isolation.next_row;
            let Some((row, block)) = self.next_block_of(store, oldest, from) else {
                self.isolation.exhausted = true;
                return false;
            };
            self.isolation.next_row = row;
            if !self.merge_fully(store, clock, slot, block) {
                return false;
            }
            store.statistics.merges_isolation += 1;
            return true;
        }
        false
    }

    /// The area's oldest superblock, if it holds nothing any more, or more than the area still takes; and how much
    /// more.
    fn isolation_due<M: Medium>(&self, store: &Store<M>) -> Option<(u32, u32)> {
        let area = &self.isolation;
        let &oldest = area.blocks.front()?;
        if store.space.superblocks[oldest as usize].state != State::Closed {
            return None;
        }
        let valid = store.space.valid_units(oldest);
        let (count, limit) = (area.blocks.len() as u32, self.isolation_limit(store));
        let room = match area.open {
            NONE => 0,
            open => {
                (store.layout.rows - u32::from(store.space.superblocks[open as usize].rows))
                    * store.layout.units_per_row
            }
        };
        let due = if count > limit { valid } else { (valid + 1).saturating_sub(room) };
        (valid == 0 || count >= limit && due > 0).then_some((oldest, due))
    }
}
