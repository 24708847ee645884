//! Rows of the fast side's log. They have superblocks of their own, because their programs may overtake those of host
//! data or be overtaken by them, and a superblock's rows are programmed in order.

use super::{Ftl, NONE, Stream};
use crate::events::EventQueue;
use crate::owner::Owner;
use tidewater_base::Instant;
use tidewater_nand::Medium;

impl<M: Medium> Ftl<M> {
    /// Whether a page of the log can be taken now. When not, ask again after a program or an erase is done.
    #[inline]
    pub fn can_write_log(&mut self) -> bool {
        if self.log_row != NONE {
            return true;
        }
        if self.emergency {
            return self.any_log_row(self.next_log_die).is_some();
        }
        let Some(die) = self.log_ready.next(self.next_log_die) else { return false };
        self.next_log_die = if die + 1 == self.layout.dies { 0 } else { die + 1 };
        self.open_log_row_on(die);
        true
    }

    /// Units in the row of the log that is being filled.
    pub fn log_row_fill(&self) -> u32 {
        match self.log_row {
            NONE => 0,
            row => self.rows[row as usize].count,
        }
    }

    /// Puts a page of the log into the open row; [`Ftl::can_write_log`] must have said yes. `owner` is acknowledged
    /// once it is programmed. Returns the page's write sequence, which no other page ever has.
    pub fn write_log(&mut self, now: Instant, events: &mut EventQueue, lpn: u32, version: u64, owner: Owner) -> u64 {
        self.write_sequence += 1;
        self.statistics.log += 1;
        self.host_clock += 1;
        let (row, sequence) = (self.log_row, self.write_sequence);
        if self.put(row, lpn, (version, sequence), owner) {
            self.submit(now, events, row);
        }
        sequence
    }

    /// The open row of the log is programmed as it is, if it holds anything.
    pub fn pad_log_row(&mut self, now: Instant, events: &mut EventQueue) {
        if self.log_row_fill() > 0 {
            self.submit(now, events, self.log_row);
        }
    }

    /// The owners of the units in a row that is under way.
    pub fn owners_of_row(&self, row: u32) -> impl Iterator<Item = Owner> {
        let first = (row * self.layout.units_per_row) as usize;
        let r = &self.rows[row as usize];
        let owners = if r.owned { &self.row_owners[first..first + r.count as usize] } else { &[] };
        owners.iter().map(|&bits| Owner::unpack(bits))
    }

    /// From now on only the log is written, on stored energy, into whatever is erased.
    pub fn begin_emergency(&mut self) {
        self.emergency = true;
        self.flash.drop_all_but_log();
    }

    #[inline(never)]
    pub(super) fn update_log_ready(&mut self, die: u32) {
        let space = &self.dies[die as usize];
        let room = space.log_superblock != NONE || space.free_beyond() > self.profile.gc_reserve as usize;
        self.log_ready.set(die, room && self.is_paced(space) && self.flash.log_programs(die) < self.programs_per_die);
    }

    /// The open row of the log, or one opened wherever there is a superblock, the reserve included; `die` first.
    pub(super) fn any_log_row(&mut self, die: u32) -> Option<u32> {
        if self.log_row != NONE {
            return Some(self.log_row);
        }
        let dies = self.layout.dies;
        let die = (0..dies).map(|i| (die + i) % dies).find(|&d| {
            let space = &self.dies[d as usize];
            space.log_superblock != NONE || !space.free.is_empty()
        })?;
        self.next_log_die = if die + 1 == dies { 0 } else { die + 1 };
        Some(self.open_log_row_on(die))
    }

    fn open_log_row_on(&mut self, die: u32) -> u32 {
        let mut superblock = self.dies[die as usize].log_superblock;
        if superblock == NONE {
            superblock = self.open_superblock(die, Stream::Log).expect("the die has a free superblock");
        }
        let number = self.log_rows.open();
        let (row, full) = self.open_row(superblock, Stream::Log, number);
        self.log_row = row;
        self.dies[die as usize].log_superblock = if full { NONE } else { superblock };
        if !self.emergency {
            self.update_ready(die);
        }
        self.log_row
    }
}
