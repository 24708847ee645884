//! Rows that are on flash at once, as if they had been programmed before the run.

use super::Store;
use crate::ftl::map::Entry;
use std::sync::Arc;
use tidewater_nand::{Medium, Nand, Page, PageHeader, PageKind};

impl<M: Medium> Store<M> {
    /// Programs a row with these units; all that are not [`Nand::NO_LPN`] and not mapped yet become valid.
    pub(in crate::ftl) fn place(&mut self, superblock: u32, row: u32, lpns: &[u32], index: u32, tag: u64) {
        self.place_with(superblock, row, lpns, index, tag, None);
    }

    /// As [`Ftl::place`], with what the firmware's own pages among them say.
    pub(in crate::ftl) fn place_with(
        &mut self,
        superblock: u32,
        row: u32,
        lpns: &[u32],
        index: u32,
        tag: u64,
        own_payload: Option<Arc<[u32]>>,
    ) {
        self.rows.sequence += 1;
        let mut units = [Nand::NO_LPN; 64];
        units[..lpns.len()].copy_from_slice(lpns);
        let mut stamps = [(0u64, 0u64); 64];
        for (unit, &lpn) in lpns.iter().enumerate() {
            if lpn == Nand::NO_LPN {
                continue;
            }
            self.write_sequence += 1;
            stamps[unit] = (tag, self.write_sequence);
            let ppn = self.layout.ppn(superblock, row, unit as u32);
            if let Entry::At(old) = self.map.set(lpn, Entry::At(ppn)) {
                self.invalidate(old, 0);
            }
            self.valid_bits.set(ppn);
            self.space.valid[superblock as usize] += 1;
        }
        self.preset_row(superblock, row, (PageKind::Data, index), &units, &stamps, own_payload);
    }

    /// Programs a row with what the firmware itself keeps: no logical pages, and headers that say so.
    pub(in crate::ftl) fn place_own(
        &mut self,
        superblock: u32,
        row: u32,
        kind: (PageKind, u32),
        own_payload: Option<Arc<[u32]>>,
    ) {
        self.rows.sequence += 1;
        self.preset_row(superblock, row, kind, &[Nand::NO_LPN; 64], &[(0, 0); 64], own_payload);
    }

    fn preset_row(
        &mut self,
        superblock: u32,
        row: u32,
        (kind, index): (PageKind, u32),
        units: &[u32; 64],
        stamps: &[(u64, u64); 64],
        own_payload: Option<Arc<[u32]>>,
    ) {
        let header = PageHeader { kind, program_sequence: self.rows.sequence, superblock, index };
        let per_page = self.layout.units_per_page as usize;
        for plane in 0..self.layout.planes() {
            let part = plane as usize * per_page..(plane as usize + 1) * per_page;
            let content = Page {
                header,
                lpns: &units[part.clone()],
                stamps: if self.stamps { &stamps[part] } else { &[] },
                origins: &[],
                own_payload: own_payload.clone().filter(|_| plane == 0),
            };
            self.medium.preset(self.layout.block(superblock, plane), row, &content);
        }
        self.space.programmed[superblock as usize] += 1;
    }
}
