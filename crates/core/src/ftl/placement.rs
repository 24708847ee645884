//! Placements of data: where a unit goes that the host writes, and how space comes back.
//!
//! A placement owns what it knows of its own; what is on flash, and on its way there, it changes by the methods of
//! [`Store`]. Checkpoints, recovery, failures and the ends of programs and erases are the same for all of them.

use super::precondition::Precondition;
use super::rows::Row;
use super::store::{Clock, Store, Stream};
use crate::owner::Owner;
use tidewater_nand::Medium;

/// A row that a program has ended for.
#[derive(Clone, Copy)]
pub(super) struct Programmed {
    pub(super) row: u32,
    pub(super) number: u64,
    pub(super) failed: bool,
}

/// Where data goes.
pub(super) trait Placement<M: Medium> {
    /// Whether a host unit can be taken now; opens a row for it where that needs one.
    fn can_write(&mut self, store: &mut Store<M>) -> bool;

    /// Whether [`Placement::can_write`] may say yes.
    fn may_write(&self) -> bool;

    /// As [`Placement::can_write`], without opening a row.
    fn has_ready_die(&self, store: &Store<M>) -> bool;

    /// Units that the open host row still takes, 0 when none is open.
    fn row_room(&self, store: &Store<M>) -> u32;

    /// Takes a host unit, which [`Placement::can_write`] has said it can, with its version and write sequence.
    fn write(&mut self, store: &mut Store<M>, clock: &mut Clock, lpn: u32, stamp: (u64, u64), owner: Owner);

    /// Programs the open host rows as they are.
    fn pad(&mut self, store: &mut Store<M>, clock: &mut Clock);

    /// The time of a row to be filled is over.
    fn on_fill_timeout(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32, generation: u32);

    /// Queues the program of a row that is filled, or is to be filled no more.
    fn submit(&mut self, store: &mut Store<M>, clock: &mut Clock, row: u32);

    /// A row for a unit of this stream whose program has failed on a die, wherever there is a superblock.
    fn row_again(&mut self, store: &mut Store<M>, die: u32, stream: Stream) -> Option<u32>;

    /// A unit of a row that failed on a die goes to a row of another stream, with this number.
    fn moved_again(&mut self, _store: &mut Store<M>, _die: u32, _number: u64) {}

    /// A unit of a row that failed was put into the row `to`.
    fn put_again(&mut self, _store: &mut Store<M>, _failed: &Row, _unit: u32, _to: u32) {}

    /// Programs the open row of the fast side's log as it is.
    fn pad_log(&mut self, _store: &mut Store<M>, _clock: &mut Clock) {}

    /// A superblock takes no more rows, because a program failed in it.
    fn forget_open(&mut self, store: &mut Store<M>, superblock: u32);

    /// A superblock takes no more rows: it may be collected.
    fn close(&mut self, store: &mut Store<M>, superblock: u32);

    /// A row that copies from elsewhere is about to be applied to the medium.
    fn find_origins(&mut self, _store: &mut Store<M>, _row: u32) {}

    /// The program of a row of the placement's own streams has ended.
    fn on_own_row(&mut self, _store: &mut Store<M>, _clock: &mut Clock, _done: Programmed) {}

    /// The map entries of a row are on flash.
    fn on_data_row(&mut self, _store: &mut Store<M>, _clock: &mut Clock, _row: u32) {}

    /// A read that is not for the host is done.
    fn on_read(&mut self, store: &mut Store<M>, clock: &mut Clock, operation: u32);

    /// A superblock is erased, or out of use: it is of no stream any more.
    fn leave(&mut self, _store: &mut Store<M>, _superblock: u32) {}

    /// A superblock that was erased is free, or out of use.
    fn on_erased(&mut self, _store: &mut Store<M>, _clock: &mut Clock, _die: u32, _superblock: u32) {}

    /// A superblock of a die is out of use for good, or all of them may be in use again.
    fn size(&mut self, _store: &mut Store<M>, _die: u32) {}

    /// Superblocks that are not bad, at least, for the drive to take writes.
    fn least_superblocks(&self, store: &Store<M>) -> u32;

    /// Flash beyond the logical capacity that may hold data, as a share of the capacity.
    fn spare_share(&self, store: &Store<M>) -> f64;

    /// Decides anew whether a die can take another host row.
    fn update_ready(&mut self, store: &mut Store<M>, die: u32);

    /// Gives space back, where a die has a reason to.
    fn collect(&mut self, store: &mut Store<M>, clock: &mut Clock, die: u32);

    /// Goes on with what something other than an operation of its die has given a reason for.
    fn wake(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        if !store.space.wake.is_empty() {
            for die in std::mem::take(&mut store.space.wake) {
                self.collect(store, clock, die);
            }
        }
    }

    /// Pages from `first` to before `end` were deallocated.
    fn on_deallocated(&mut self, _store: &mut Store<M>, _first: u32, _end: u32) {}

    /// The map entry of a page that is lost changes.
    fn on_lost(&mut self, _store: &mut Store<M>, _lpn: u32) {}

    /// Programs a part of the map that checkpoints do not hold.
    fn save_map(&mut self, _store: &mut Store<M>, _clock: &mut Clock) {}

    /// The program sequence through which all of the map that checkpoints do not hold is on flash.
    fn saved_through(&self, _store: &Store<M>) -> u64 {
        u64::MAX
    }

    /// The lowest program sequence of a row whose entries the map does not have yet.
    fn first_uncommitted(&self) -> Option<u64> {
        None
    }

    /// A unit can't be read any more: reads of it fail, until it is written again.
    fn lose(&mut self, store: &mut Store<M>, lpn: u32, ppn: u32) {
        self.on_lost(store, lpn);
        store.lose(lpn, ppn);
    }

    /// Constructs a past on a new drive. `tag` is the version of its content.
    ///
    /// # Errors
    /// In words, when bad blocks leave too little room.
    fn precondition(&mut self, store: &mut Store<M>, past: Precondition, seed: u64, tag: u64) -> Result<(), String>;

    /// Places a page that is read before it was written, with neighbours of it; how many. `None`: there is no room.
    fn premap(&mut self, store: &mut Store<M>, lpn: u32, tag: u64) -> Option<u32>;

    /// Forgets what is known of superblocks: recovery finds it anew.
    fn forget(&mut self, _store: &mut Store<M>) {}

    /// Entries of a mapping page, as a power of two. `None`: checkpoints hold the whole map.
    fn map_page_shift(&self) -> Option<u32> {
        None
    }

    /// Whether a row that a power loss has left, in a superblock of so many rows, does not count: what it was copied
    /// from is still there.
    fn is_uncommitted(&self, _store: &Store<M>, _superblock: u32, _row: u32, _rows: u32) -> bool {
        false
    }

    /// For [`Flaw::CutMerges`](super::Flaw): what such rows were copied from is gone.
    fn break_merges(&mut self, _store: &mut Store<M>) {}

    /// Recovery has read a row of each superblock, and the others may be read.
    fn learn_modes(&mut self, _store: &mut Store<M>) {}

    /// Recovery has found a superblock: says in which mode it is.
    fn adopt_mode(&mut self, _store: &mut Store<M>, _superblock: u32) {}

    /// Takes a superblock of the placement's own pages, and goes on behind `rows` where that can be. False: it is none.
    fn adopt_own(&mut self, _store: &mut Store<M>, _superblock: u32, _rows: Option<u32>, _bad: bool) -> bool {
        false
    }

    /// A superblock of data has a bad block.
    fn adopt_bad(&mut self, _die: u32, _superblock: u32) {}

    /// All superblocks have their states; those in `partial`, with their rows, were not full.
    fn adopt(&mut self, store: &mut Store<M>, clock: &mut Clock, partial: &mut Vec<(u32, u32)>);

    /// Recovery has ended: gives space back where that is due.
    fn on_recovered(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        (0..store.layout.dies).for_each(|die| self.collect(store, clock, die));
    }

    /// Recovery has found these entries elsewhere than where the map is kept, complete through `floor`.
    fn on_unsaved(&mut self, _floor: u64, _lpns: Vec<u32>) {}

    /// Checks what must always hold; for tests.
    fn assert_consistent(&self, _store: &Store<M>) {}
}
