//! FASTer's isolation area: RW log blocks in which cold pages wait for their merges.
//!
//! What would have to be merged because it is in a victim of the log, and is cold, is copied here instead: the victim
//! is free at once. A page that is overwritten here after all is spared its merge, and of a logical block all cold
//! pages are merged at once. As the last block of the area fills up, its oldest is emptied by full merges, as many
//! pages of it as are left to fill: so merges are spread over the time that a block takes to fill, and no victim waits
//! for one unless the area is full.

use super::{Ftl, RowRole};
use crate::events::EventQueue;
use crate::flash::NONE;
use crate::ftl::{NOT_A_CANDIDATE, State, Stream};
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_nand::Medium;

/// Blocks of the area, where the log is large enough: one fills up while another is emptied.
pub(super) const BLOCKS_MIN: u32 = 2;

/// The area.
#[derive(Clone, Debug, Default)]
pub(super) struct Isolation {
    /// RW log blocks that are set apart for it while no block is missing. 0: there is none.
    pub(super) blocks_max: u32,
    /// Its blocks in the order in which they were opened.
    pub(super) blocks: VecDeque<u32>,
    /// The one that is being filled, and the row of it that is: each, or [`NONE`].
    pub(super) open: u32,
    pub(super) row: u32,
    /// The row of the oldest to look at next.
    next_row: u32,
    /// All logical blocks in the oldest are being merged.
    exhausted: bool,
}

impl Isolation {
    pub(super) fn new(blocks_max: u32) -> Isolation {
        let blocks = VecDeque::with_capacity(blocks_max as usize);
        Isolation { blocks_max, blocks, open: NONE, row: NONE, next_row: 0, exhausted: false }
    }

    /// A merge has ended.
    pub(super) fn on_merged(&mut self) {
        self.exhausted = false;
    }
}

impl<M: Medium> Ftl<M> {
    /// RW log blocks that the isolation area may have now: of a log that shrinks, what hot pages need stays.
    pub(super) fn isolation_limit(&self, hybrid: &super::Hybrid) -> u32 {
        let least = super::least_log(hybrid.points.len() as u32);
        hybrid.isolation.blocks_max.min(self.whole_log_limit(hybrid).saturating_sub(least))
    }

    /// Whether the isolation area takes another page without a superblock that merges need.
    pub(super) fn has_room_in_isolation(&self) -> bool {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        let Isolation { open, row, ref blocks, .. } = hybrid.isolation;
        let may_open =
            || (blocks.len() as u32) < self.isolation_limit(hybrid) && self.free_superblocks > super::RESERVE;
        row != NONE || open != NONE || may_open()
    }

    /// Whether cold pages should wait for merges: there is no room before those have given some back, or more are due
    /// than can be under way. Else a victim would one day wait for all merges of a block at once.
    pub(super) fn isolation_lags(&self) -> bool {
        let hybrid = self.hybrid.as_ref().expect("only called under hybrid mapping");
        let merges = hybrid.merges.len() as u32;
        self.isolation_due(hybrid).is_some_and(|(_, due)| due > merges || !self.has_room_in_isolation())
    }

    /// The row that takes cold pages; [`Ftl::has_room_in_isolation`] has said that there is one.
    pub(super) fn isolated_row(&mut self) -> u32 {
        let Isolation { mut open, row, .. } = self.hybrid().isolation;
        if row != NONE {
            return row;
        }
        if open == NONE {
            let die = self.roomiest_die().expect("a superblock is free");
            open = self.open_superblock(die, Stream::Host).expect("it has room");
            let hybrid = self.hybrid();
            hybrid.roles[open as usize] = super::Role::Log;
            hybrid.isolation.blocks.push_back(open);
        }
        let row = self.open_log_row(open, RowRole::Isolated);
        let full = self.is_full(open);
        let area = &mut self.hybrid().isolation;
        area.open = if full { NONE } else { open };
        area.row = row;
        row
    }

    /// Merges the next logical block of the area's oldest superblock, if that is due. False: it is not, or there is no
    /// room.
    pub(super) fn merge_isolated(&mut self, now: Instant, events: &mut EventQueue, slot: usize) -> bool {
        while let Some((oldest, _)) =
            self.isolation_due(self.hybrid.as_ref().expect("only called under hybrid mapping"))
        {
            if self.valid[oldest as usize] & !NOT_A_CANDIDATE == 0 {
                let area = &mut self.hybrid().isolation;
                area.blocks.pop_front();
                area.next_row = 0;
                area.exhausted = false;
                self.drain(now, events, oldest);
                self.erase_drained(now, events);
                continue;
            }
            if self.hybrid().isolation.exhausted {
                return false;
            }
            let from = self.hybrid().isolation.next_row;
            let Some((row, block)) = self.next_block_of(oldest, from) else {
                self.hybrid().isolation.exhausted = true;
                return false;
            };
            self.hybrid().isolation.next_row = row;
            if !self.merge_fully(now, events, slot, block) {
                return false;
            }
            self.statistics.isolation_merges += 1;
            return true;
        }
        false
    }

    /// The area's oldest superblock, if it holds nothing any more, or more than the area still takes; and how much
    /// more.
    fn isolation_due(&self, hybrid: &super::Hybrid) -> Option<(u32, u32)> {
        let area = &hybrid.isolation;
        let &oldest = area.blocks.front()?;
        if self.superblocks[oldest as usize].state != State::Closed {
            return None;
        }
        let valid = self.valid[oldest as usize] & !NOT_A_CANDIDATE;
        let (count, limit) = (area.blocks.len() as u32, self.isolation_limit(hybrid));
        let room = match area.open {
            NONE => 0,
            open => (self.layout.rows - u32::from(self.superblocks[open as usize].rows)) * self.layout.units_per_row,
        };
        let due = if count > limit { valid } else { (valid + 1).saturating_sub(room) };
        (valid == 0 || count >= limit && due > 0).then_some((oldest, due))
    }
}
