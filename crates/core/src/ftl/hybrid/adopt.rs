//! A hybrid mapping comes back after a power loss: roles from the headers of what is on flash.

use super::state::{Hybrid, Role, RowRole};
use crate::flash::NONE;
use crate::ftl::store::{Clock, State, Store, Stream};
use std::collections::BTreeMap;
use tidewater_nand::Medium;

impl Hybrid {
    /// What a row was written for, if all of it can be read.
    pub(super) fn row_role<M: Medium>(&self, store: &Store<M>, superblock: u32, row: u32) -> Option<RowRole> {
        let planes = 0..store.layout.planes();
        let mut headers = planes.map(|p| store.medium.header(store.layout.block(superblock, p), row));
        let first = headers.next()??;
        headers.all(|h| h.is_some()).then_some(RowRole::of(first))
    }

    /// RW log blocks that were being filled go on behind the torn row, as many as are filled at once.
    pub fn reopen_log<M: Medium>(&mut self, store: &mut Store<M>, partial: &[(u32, u32)]) {
        for &(rows, superblock) in partial {
            let role = (0..rows).find_map(|row| store.row_header(superblock, row)).map(RowRole::of);
            let point = self.points.iter().position(|&p| p == NONE);
            match (role, point) {
                (Some(RowRole::Log), Some(point)) => self.set_point(point, superblock),
                (Some(RowRole::Isolated), _) if self.isolation.open == NONE && self.isolation.blocks_max > 0 => {
                    self.isolation.open = superblock;
                }
                _ => {
                    store.space.may_collect(superblock);
                    continue;
                }
            }
            store.space.reopen(superblock, Stream::Host, rows);
        }
    }

    /// Gives every superblock of data its role; the map is there already.
    pub fn adopt_roles<M: Medium>(&mut self, store: &mut Store<M>, clock: &mut Clock) {
        let mut log: Vec<(u64, u32)> = Vec::new();
        let mut isolated: Vec<(u64, u32)> = Vec::new();
        let mut in_place: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for superblock in 0..store.layout.superblocks() {
            let s = &store.space.superblocks[superblock as usize];
            if s.stream == Stream::Map || !matches!(s.state, State::Closed | State::Open) {
                continue;
            }
            let is_open = s.state == State::Open;
            let rows = store.rows_programmed(superblock);
            let header = (0..rows).find_map(|row| store.row_header(superblock, row));
            match header.map(|h| (RowRole::of(h), h.program_sequence)) {
                _ if store.space.valid_units(superblock) == 0 && !is_open => {
                    self.drain(store, clock, superblock);
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
        let Hybrid { roles, data, retired, log: order, isolation, .. } = self;
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
            let most = superblocks.iter().copied().max_by_key(|&s| store.space.valid_units(s));
            data[block as usize] = most.expect("there is one");
            for superblock in superblocks {
                roles[superblock as usize] = Role::InPlace(block);
                if data[block as usize] != superblock {
                    retired.push_back((block, superblock));
                }
            }
        }
        store.erase_drained(clock);
    }
}
