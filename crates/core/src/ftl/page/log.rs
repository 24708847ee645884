//! Rows of the fast side's log. They have superblocks of their own, because their programs may overtake those of host
//! data or be overtaken by them, and a superblock's rows are programmed in order.

use super::state::PageMapping;
use crate::flash::NONE;
use crate::ftl::placement::Placement;
use crate::ftl::store::{Clock, Store, Stream};
use crate::owner::Owner;
use tidewater_nand::Medium;

impl PageMapping {
    /// Whether a page of the log can be taken now. When not, ask again after a program or an erase is done.
    #[inline]
    pub fn can_write_log<M: Medium>(&mut self, store: &mut Store<M>) -> bool {
        if self.log_row != NONE {
            return true;
        }
        if store.emergency {
            return self.any_log_row(store, self.next_log_die).is_some();
        }
        let Some(die) = self.log_ready.next(self.next_log_die) else { return false };
        self.next_log_die = if die + 1 == store.layout.dies { 0 } else { die + 1 };
        self.open_log_row_on(store, die);
        true
    }

    /// Units in the row of the log that is being filled.
    pub fn log_row_fill<M: Medium>(&self, store: &Store<M>) -> u32 {
        match self.log_row {
            NONE => 0,
            row => store.rows.staged[row as usize].count,
        }
    }

    /// Puts a page of the log into the open row; [`PageMapping::can_write_log`] must have said yes. `owner` is
    /// acknowledged once it is programmed. Returns the page's write sequence, which no other page ever has.
    pub fn write_log<M: Medium>(
        &mut self,
        store: &mut Store<M>,
        clock: &mut Clock,
        lpn: u32,
        version: u64,
        owner: Owner,
    ) -> u64 {
        store.write_sequence += 1;
        store.statistics.log += 1;
        store.space.host_clock += 1;
        let (row, sequence) = (self.log_row, store.write_sequence);
        if store.put(row, lpn, (version, sequence), owner) {
            self.submit(store, clock, row);
        }
        sequence
    }

    #[inline(never)]
    pub fn update_log_ready<M: Medium>(&mut self, store: &mut Store<M>, die: u32) {
        let room = self.dies[die as usize].log_superblock != NONE
            || store.space.dies[die as usize].free_beyond() > store.profile.gc_reserve as usize;
        let queues_row = store.flash.log_programs(die) < store.programs_per_die;
        self.log_ready.set(die, room && queues_row && self.is_paced(store, die));
    }

    /// The open row of the log, or one opened wherever there is a superblock, the reserve included; `die` first.
    pub fn any_log_row<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> Option<u32> {
        if self.log_row != NONE {
            return Some(self.log_row);
        }
        let dies = store.layout.dies;
        let may =
            |&d: &u32| self.dies[d as usize].log_superblock != NONE || !store.space.dies[d as usize].free.is_empty();
        let die = (0..dies).map(|i| (die + i) % dies).find(may)?;
        self.next_log_die = if die + 1 == dies { 0 } else { die + 1 };
        Some(self.open_log_row_on(store, die))
    }

    fn open_log_row_on<M: Medium>(&mut self, store: &mut Store<M>, die: u32) -> u32 {
        let mut superblock = self.dies[die as usize].log_superblock;
        if superblock == NONE {
            superblock = store.space.open(die, Stream::Log).expect("the die has a free superblock");
        }
        let number = store.rows.log.open();
        let (row, full) = store.open_row(superblock, Stream::Log, number);
        self.log_row = row;
        self.dies[die as usize].log_superblock = if full { NONE } else { superblock };
        if !store.emergency {
            self.update_ready(store, die);
        }
        self.log_row
    }
}
