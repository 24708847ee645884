//! Rows that are on flash at once, as if they had been programmed before the run.

use super::Store;
use crate::ftl::journal::Own;
use crate::ftl::map::Entry;
use std::sync::Arc;
use tidewater_nand::{Medium, Nand, Page, PageHeader, PageKind};

impl<M: Medium> Store<M> {
    /// Programs the next row of a superblock with these units; all that are not [`Nand::NO_LPN`] become valid.
    /// `own_payload`: what the firmware's own pages among them say. True: it was the last row.
    pub(in crate::ftl) fn place(
        &mut self,
        superblock: u32,
        lpns: &[u32],
        index: u32,
        tag: u64,
        own_payload: Option<Arc<[u32]>>,
    ) -> bool {
        let (row, full) = self.space.next_row(superblock);
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
        full
    }

    /// Programs the next row of a superblock with what the firmware itself keeps: no logical pages, and headers that
    /// say so. True: it was the last row.
    pub(in crate::ftl) fn place_own(&mut self, superblock: u32, own: Own, own_payload: Option<Arc<[u32]>>) -> bool {
        self.rows.sequence += 1;
        let (row, full) = self.space.next_row(superblock);
        self.preset_row(superblock, row, own.page_kind(), &[Nand::NO_LPN; 64], &[(0, 0); 64], own_payload);
        full
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
