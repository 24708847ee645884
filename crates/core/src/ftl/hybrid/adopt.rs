//! A hybrid mapping comes back after a power loss: roles from the headers of what is on flash.

use super::{Ftl, Hybrid, Role, RowRole};
use crate::events::EventQueue;
use crate::flash::NONE;
use crate::ftl::{Entry, NOT_A_CANDIDATE, State, Stream};
use std::collections::BTreeMap;
use tidewater_base::Instant;
use tidewater_nand::Medium;

impl<M: Medium> Ftl<M> {
    /// What a row was written for, if all of it can be read.
    fn row_role(&self, superblock: u32, row: u32) -> Option<RowRole> {
        let planes = 0..self.layout.planes();
        let mut headers = planes.map(|p| self.medium.header(self.layout.block(superblock, p), row));
        let first = headers.next()??;
        headers.all(|h| h.is_some()).then_some(RowRole::of(first))
    }

    /// Whether a row was copied by a merge that was not committed: what it was copied from is still there.
    pub(in crate::ftl) fn is_uncommitted_copy(&self, superblock: u32, row: u32, rows: u32) -> bool {
        if self.hybrid.is_none() {
            return false;
        }
        let is_copy = |role| matches!(role, Some(RowRole::Copy(_) | RowRole::LastCopy(_)));
        let is_last = |role| matches!(role, Some(RowRole::LastCopy(_)));
        let header = self.row_header(superblock, row).map(RowRole::of);
        is_copy(header) && !is_last(self.row_role(superblock, rows - 1))
    }

    /// For [`Flaw::CutMerges`](crate::ftl::Flaw): what data blocks hold of logical blocks whose merge was cut is gone.
    pub(in crate::ftl) fn give_up_sources_of_cut_merges(&mut self) {
        let per_block = self.layout.units_per_superblock;
        for superblock in 0..self.layout.superblocks() {
            let rows = if self.layout.is_whole(superblock) { self.rows_programmed(superblock) } else { 0 };
            if rows == 0 || !self.is_uncommitted_copy(superblock, rows - 1, rows) {
                continue;
            }
            let Some(RowRole::Copy(block) | RowRole::LastCopy(block)) =
                self.row_header(superblock, rows - 1).map(RowRole::of)
            else {
                continue;
            };
            for lpn in block * per_block..((block + 1) * per_block).min(self.map.units()) {
                let Entry::At(ppn) = self.map.get(lpn) else { continue };
                let at = self.layout.superblock_of(ppn);
                let role = self.row_header(at, self.layout.row_of(ppn)).map(RowRole::of);
                if at != superblock && !matches!(role, Some(RowRole::Log | RowRole::Isolated)) {
                    self.map.set(lpn, Entry::Unmapped);
                }
            }
        }
    }

    /// RW log blocks that were being filled go on behind the torn row, as many as are filled at once.
    pub(in crate::ftl) fn reopen_log(&mut self, partial: &[(u32, u32)]) {
        for &(rows, superblock) in partial {
            let role = (0..rows).find_map(|row| self.row_header(superblock, row)).map(RowRole::of);
            let hybrid = self.hybrid();
            let point = hybrid.points.iter().position(|&p| p == NONE);
            match (role, point) {
                (Some(RowRole::Log), Some(point)) => hybrid.set_point(point, superblock),
                (Some(RowRole::Isolated), _) if hybrid.isolation.open == NONE && hybrid.isolation.blocks_max > 0 => {
                    hybrid.isolation.open = superblock;
                }
                _ => {
                    self.valid[superblock as usize] &= !NOT_A_CANDIDATE;
                    continue;
                }
            }
            let s = &mut self.superblocks[superblock as usize];
            s.state = State::Open;
            s.stream = Stream::Host;
            s.rows = rows as u16;
            self.programmed[superblock as usize] = rows as u16;
        }
    }

    /// Gives every superblock of data its role; the map is there already.
    pub(in crate::ftl) fn adopt_roles(&mut self, now: Instant, events: &mut EventQueue) {
        let mut log: Vec<(u64, u32)> = Vec::new();
        let mut isolated: Vec<(u64, u32)> = Vec::new();
        let mut in_place: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for superblock in 0..self.layout.superblocks() {
            let s = &self.superblocks[superblock as usize];
            if s.stream == Stream::Map || !matches!(s.state, State::Closed | State::Open) {
                continue;
            }
            let is_open = s.state == State::Open;
            let rows = self.rows_programmed(superblock);
            let header = (0..rows).find_map(|row| self.row_header(superblock, row));
            match header.map(|h| (RowRole::of(h), h.program_sequence)) {
                _ if self.valid[superblock as usize] & !NOT_A_CANDIDATE == 0 && !is_open => {
                    self.drain(now, events, superblock);
                }
                Some((RowRole::Log, sequence)) => log.push((sequence, superblock)),
                Some((RowRole::Isolated, sequence)) => isolated.push((sequence, superblock)),
                Some((RowRole::Sequential(block) | RowRole::Copy(block) | RowRole::LastCopy(block), _)) => {
                    in_place.entry(block).or_default().push(superblock);
                }
                None => unreachable!("superblock {superblock} holds data and has no readable row"),
            }
        }
        log.sort_unstable();
        isolated.sort_unstable();
        let valid = &self.valid;
        let Hybrid { roles, data, retired, log: order, isolation, .. } =
            self.hybrid.as_deref_mut().expect("asked before");
        for (_, superblock) in log {
            roles[superblock as usize] = Role::Log;
            order.push_back(superblock);
        }
        for (_, superblock) in isolated {
            roles[superblock as usize] = Role::Log;
            isolation.blocks.push_back(superblock);
        }
        for (block, superblocks) in in_place {
            // Where most of it is counts as its data block; what else there is of it is merged into a new one.
            let most = superblocks.iter().copied().max_by_key(|&s| valid[s as usize] & !NOT_A_CANDIDATE);
            data[block as usize] = most.expect("there is one");
            for superblock in superblocks {
                roles[superblock as usize] = Role::InPlace(block);
                if data[block as usize] != superblock {
                    retired.push_back((block, superblock));
                }
            }
        }
        self.erase_drained(now, events);
    }
}
