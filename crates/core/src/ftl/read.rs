//! Flash reads for the host.

use super::store::{Clock, Entry, State, Store};
use crate::flash::{NONE, Source};
use crate::owner::Owner;
use tidewater_nand::Medium;

impl<M: Medium> Store<M> {
    /// Reads logical pages for the host: queues one operation for each row that holds some of them, and returns how
    /// many. Units that are unmapped, or still in the controller's memory, need none. `seen`: called for each, with its
    /// superblock.
    ///
    /// # Errors
    /// The number of operations queued, when a page was lost.
    #[inline]
    pub(super) fn read(
        &mut self,
        seen: &mut impl FnMut(&mut Store<M>, &mut Clock, u32),
        clock: &mut Clock,
        lpns: impl Iterator<Item = u32>,
        owner: Owner,
    ) -> Result<u32, u32> {
        let (mut queued, mut lost) = (0, false);
        // The operation that the next unit may join.
        let (mut superblock, mut row, mut units) = (NONE, 0, 0u64);
        for lpn in lpns {
            let ppn = match self.map.get(lpn) {
                Entry::At(ppn) => ppn,
                Entry::Unmapped => continue,
                Entry::Lost => {
                    lost = true;
                    continue;
                }
            };
            let (s, r) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
            if r >= u32::from(self.space.programmed[s as usize]) {
                continue;
            }
            if (s, r) != (superblock, row) {
                if units != 0 {
                    self.queue_read(seen, clock, superblock, row, units, owner);
                    queued += 1;
                }
                (superblock, row, units) = (s, r, 0);
            }
            units |= 1 << self.layout.unit_of(ppn);
        }
        if units != 0 {
            self.queue_read(seen, clock, superblock, row, units, owner);
            queued += 1;
        }
        if lost { Err(queued) } else { Ok(queued) }
    }

    /// The superblock and the row that a logical page is read from; `None`: flash does not have it.
    pub(super) fn row_of(&self, lpn: u32) -> Option<(u32, u32)> {
        let Entry::At(ppn) = self.map.get(lpn) else { return None };
        let (superblock, row) = (self.layout.superblock_of(ppn), self.layout.row_of(ppn));
        (row < u32::from(self.space.programmed[superblock as usize])).then_some((superblock, row))
    }

    fn queue_read(
        &mut self,
        seen: &mut impl FnMut(&mut Store<M>, &mut Clock, u32),
        clock: &mut Clock,
        superblock: u32,
        row: u32,
        units: u64,
        owner: Owner,
    ) {
        let die = self.layout.die_of(superblock);
        seen(self, clock, superblock);
        if self.flash.shares_senses() && self.flash.share(die, superblock, row, units, owner.pack()) {
            return;
        }
        self.flash.enqueue(clock.now, clock.events, Source::HostRead, die, superblock, row, units, owner.pack());
    }

    /// Charges the flash read of a page that was written before the run but has no place of its own: a unit of its die
    /// is read in its stead. False: nothing on that die was ever programmed.
    pub(super) fn read_past(
        &mut self,
        seen: &mut impl FnMut(&mut Store<M>, &mut Clock, u32),
        clock: &mut Clock,
        lpn: u32,
        owner: Owner,
    ) -> bool {
        let die = lpn / self.layout.units_per_row % self.layout.dies;
        let first = die * self.layout.superblocks_per_die;
        let on_die = first..first + self.layout.superblocks_per_die;
        // Not one that is being erased: its blocks may turn out bad, and be gone when the read gets there.
        let holds = |s: &u32| {
            let state = self.space.superblocks[*s as usize].state;
            self.space.programmed[*s as usize] > 0 && matches!(state, State::Open | State::Closed | State::Victim)
        };
        let Some(superblock) = on_die.into_iter().find(holds) else { return false };
        // Never by another's sense: in truth the page has a place of its own.
        let (units, tag) = (1 << (lpn % self.layout.units_per_row), owner.pack());
        seen(self, clock, superblock);
        self.flash.enqueue(clock.now, clock.events, Source::HostRead, die, superblock, 0, units, tag);
        true
    }
}
