//! Ends of programs and erases.

use super::placement::{Placement, Programmed};
use super::space::Superblock;
use super::store::{Clock, State, Store, Stream};
use crate::flash::Operation;
use crate::owner::Owner;
use tidewater_nand::{Medium, Page, PageHeader, PageKind};

impl<M: Medium> Store<M> {
    /// A row's program is done: applies it to the medium, acknowledges its owners, and frees what it replaced.
    #[inline(never)]
    pub(super) fn on_programmed<const SINGLE: bool, P: Placement<M>>(
        &mut self,
        by: &mut P,
        clock: &mut Clock,
        operation: u32,
    ) {
        let &Operation { die, superblock, tag: row, .. } = self.flash.operation(operation);
        let &Superblock { state, rows, failed, .. } = &self.space.superblocks[superblock as usize];
        let failed = failed || !self.program_planes::<SINGLE, P>(by, die, superblock, row);
        let programmed = &mut self.space.programmed[superblock as usize];
        debug_assert_eq!(u32::from(*programmed), self.flash.operation(operation).row);
        *programmed += 1;
        let done = *programmed;
        if done == rows && state == State::Open && (failed || u32::from(rows) == self.space.rows_of(superblock)) {
            by.close(self, superblock);
        }
        if failed {
            self.rewrite(by, clock, row);
        }
        let r = &mut self.rows.staged[row as usize];
        r.in_use = false;
        if matches!(r.stream, Stream::Map | Stream::Mapping) {
            self.statistics.units_meta += u64::from(self.layout.row_units::<SINGLE>());
        }
        let (number, stream, count, owned) = (r.number, r.stream, r.count, r.owned);
        self.rows.free.push(row);
        if owned && !failed {
            let first = (row * self.layout.row_units::<SINGLE>()) as usize;
            let owners = self.rows.owners[first..first + count as usize].iter();
            self.rows.acknowledged.extend(owners.filter(|&&owner| owner != Owner::None.pack()));
        }
        match stream {
            Stream::Collected => self.rows.collected[die as usize].finish(number),
            Stream::Host | Stream::Slc => self.rows.host.finish(number),
            Stream::Log => self.rows.log.finish(number),
            Stream::Mapping => {
                self.rows.log.finish(number);
                by.on_own_row(self, clock, Programmed { row, number, failed });
            }
            Stream::Merge => by.on_own_row(self, clock, Programmed { row, number, failed }),
            Stream::Map => {
                let r = &mut self.rows.staged[row as usize];
                let (program_sequence, own) = (r.program_sequence, r.own.take());
                self.on_own_row_programmed(by, clock, superblock, program_sequence, own, failed);
            }
        }
        by.update_ready(self, die);
        if !self.emergency {
            if !failed && !matches!(stream, Stream::Map | Stream::Mapping) {
                by.on_data_row(self, clock, row);
            }
            if !self.space.draining.is_empty() {
                self.erase_drained(clock);
            }
            by.collect(self, clock, die);
        }
    }

    /// Applies a row to every plane. False: a plane failed, and the superblock is marked.
    #[inline(always)]
    fn program_planes<const SINGLE: bool, P: Placement<M>>(
        &mut self,
        by: &mut P,
        die: u32,
        superblock: u32,
        row: u32,
    ) -> bool {
        if self.rows.payload && self.rows.staged[row as usize].stream == Stream::Merge {
            by.find_origins(self, row);
        }
        let r = &self.rows.staged[row as usize];
        let (kind, index) = match &r.own {
            None => (PageKind::Data, r.index),
            Some(own) => own.what.page_kind(),
        };
        let header = PageHeader { kind, program_sequence: r.program_sequence, superblock, index };
        let first = (row * self.layout.row_units::<SINGLE>()) as usize;
        let (planes, per_page) =
            if SINGLE { (1, 1) } else { (self.layout.planes(), self.layout.units_per_page as usize) };
        let mut good = true;
        for plane in 0..planes {
            let units = first + plane as usize * per_page..first + (plane as usize + 1) * per_page;
            let content = Page {
                header,
                lpns: &self.rows.lpns[units.clone()],
                stamps: if self.stamps { &self.rows.stamps[units.clone()] } else { &[] },
                origins: if self.rows.payload { &self.rows.origins[units] } else { &[] },
                own_payload: if plane == 0 { r.own_payload() } else { None },
            };
            let at = self.layout.block_on(die, superblock, plane);
            if self.medium.program(at, r.row, &content).is_err() {
                self.statistics.program_failures += 1;
                good = false;
            }
        }
        if !good {
            self.fail_superblock(by, superblock);
        }
        good
    }

    /// An erase is done: the superblock is free again, or out of use.
    pub(super) fn on_erased(&mut self, by: &mut impl Placement<M>, clock: &mut Clock, operation: u32) {
        let &Operation { die, superblock, .. } = self.flash.operation(operation);
        debug_assert_eq!(self.space.valid_units(superblock), 0);
        let whole = self.erase_planes(superblock);
        by.leave(self, superblock);
        if whole {
            self.space.superblocks[superblock as usize].erases = self.erases_of(superblock);
            self.space.put_free(superblock);
        } else {
            self.retire(by, superblock);
        }
        by.on_erased(self, clock, die, superblock);
        by.update_ready(self, die);
        self.log_deallocations(by, clock);
        by.collect(self, clock, die);
        if self.space.starved > 0 {
            // What they collect may go to any die.
            (0..self.layout.dies).for_each(|die| self.space.wake_if_starved(die));
            by.wake(self, clock);
        }
    }
}
