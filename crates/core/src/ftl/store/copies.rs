//! Copies of units that are on flash: many of a row at once, into another row.

use super::Store;
use crate::flash::{Operation, count_units};
use crate::ftl::map::Entry;
use crate::ftl::space::Stream;
use crate::layout::Layout;
use tidewater_nand::{Medium, Origin};

/// The lowest of the bits that are set, `n` at most; and how many these are.
#[inline]
pub(in crate::ftl) fn lowest(of: u64, n: u32) -> (u64, u32) {
    let count = count_units(of);
    if count <= n {
        return (of, count);
    }
    let rest = (0..n).fold(of, |rest, _| rest & (rest - 1));
    (of & !rest, n)
}

/// The numbers of the bits that are set, from the lowest.
#[inline]
fn bits(mut of: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (of != 0).then(|| of.trailing_zeros());
        of &= of.wrapping_sub(1);
        bit
    })
}

/// Tells these units of a row, of which there is at least one, with the logical page of each.
#[inline(always)]
pub(in crate::ftl) fn each_lpn<M: Medium, const SINGLE: bool>(
    layout: &Layout,
    medium: &M,
    die: u32,
    superblock: u32,
    row: u32,
    units: u64,
    mut tell: impl FnMut(u32, u32),
) {
    if SINGLE {
        // There is nothing to look through.
        return tell(0, medium.lpn(layout.block_on(die, superblock, 0), row, 0));
    }
    let per_page = layout.units_per_page;
    let page = u64::MAX >> (u64::BITS - per_page);
    let mut first = 0;
    for plane in 0..layout.planes() {
        let of_page = units >> first & page;
        if of_page != 0 {
            let lpns = medium.lpns(layout.block_on(die, superblock, plane), row);
            bits(of_page).for_each(|unit| tell(first + unit, lpns[unit as usize]));
        }
        first += per_page;
    }
}

impl<M: Medium> Store<M> {
    /// Puts so many valid units of a row that was read, the first unit of which is `first`, into another row that has
    /// room for all, and moves their map entries. As [`Store::put`] for each, but they leave one superblock for one
    /// other. If it is full now, its stream, superblock and number there.
    #[inline(always)]
    pub(in crate::ftl) fn put_copies<const SINGLE: bool>(
        &mut self,
        row: u32,
        operation: &Operation,
        first: u32,
        units: u64,
        count: u32,
    ) -> Option<(Stream, u32, u32)> {
        let superblock = operation.superblock;
        let r = &mut self.rows.staged[row as usize];
        let (number, stream, into, index) = (r.number, r.stream, r.superblock, r.row);
        let unit = if SINGLE { 0 } else { r.count };
        debug_assert_eq!(unit, r.count);
        r.count = unit + count;
        let units_per_row = self.layout.row_units::<SINGLE>();
        let full = unit + count == units_per_row;
        let to = self.layout.ppn(into, index, unit);
        let at = (row * units_per_row + unit) as usize;
        let mut moved = 0;
        each_lpn::<M, SINGLE>(
            &self.layout,
            &self.medium,
            operation.die,
            superblock,
            operation.row,
            units,
            |unit, lpn| {
                let place = at + moved as usize;
                (self.rows.lpns[place], self.rows.previous[place]) = (lpn, first + unit);
                debug_assert_eq!(self.map.get(lpn), Entry::At(first + unit), "a valid unit is what its page maps to");
                self.map.redirect(lpn, to + moved);
                moved += 1;
            },
        );
        if self.stamps {
            self.stamp_copies(at, first, units);
        }
        self.valid_bits.clear_row(first, units);
        self.valid_bits.set_row(to, if SINGLE { 1 } else { u64::MAX >> (u64::BITS - count) });
        self.space.valid[superblock as usize] -= count;
        self.space.valid[into as usize] += count;
        let s = &mut self.space.superblocks[superblock as usize];
        match stream {
            Stream::Collected => s.collect_hazard = s.collect_hazard.max(number),
            Stream::Host => s.host_hazard = s.host_hazard.max(number),
            _ => {}
        }
        if self.space.starved > 0 {
            let die = u32::from(s.die);
            self.space.wake_if_starved(die);
        }
        full.then_some((stream, into, index))
    }

    /// Copies that are put into a row from the place `at` on are stamped as their originals.
    #[inline(never)]
    fn stamp_copies(&mut self, at: usize, first: u32, units: u64) {
        for (unit, at) in bits(units).zip(at..) {
            self.rows.stamps[at] = self.stamp_of_copy(first + unit);
            if self.rows.payload {
                self.rows.origins[at] = Origin::Copy(self.place_of(first + unit));
            }
        }
    }
}
