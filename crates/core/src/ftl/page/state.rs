//! The state of page mapping.

use super::map_cache::MapCache;
use super::slc::Slc;
use crate::flash::NONE;
use crate::ftl::space::DieSet;

/// Superblocks and rows that a die has open, and the superblock that it collects.
#[derive(Clone, Debug, Default)]
pub(super) struct PageDie {
    pub(super) host_superblock: u32,
    /// Takes what the fast side destages.
    pub(super) log_superblock: u32,
    /// Takes pages that are read before they are written.
    pub(super) past_superblock: u32,
    pub(super) collect_superblock: u32,
    pub(super) collect_row: u32,
    pub(super) victim: u32,
    pub(super) victim_row: u32,
    /// Reads of collection under way.
    pub(super) reads: u32,
    /// Units that collection may move before the host has written more, in fractions of a unit.
    pub(super) credit: i64,
    /// Units to move for each unit that the host writes, in the same fractions.
    pub(super) ratio: i64,
    /// The credit beyond which collection is behind what the host's writes were to pay for.
    pub(super) behind: i64,
    /// Superblocks in which a program failed.
    pub(super) failed: Vec<u32>,
    pub(super) victims: u32,
}

/// Every page is mapped by itself.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct PageMapping {
    pub(super) dies: Vec<PageDie>,
    /// Dies that can take another host row now.
    pub(super) ready: DieSet,
    pub(super) next_die: u32,
    pub(super) host_row: u32,
    /// Dies that can take another row of destaged log now.
    pub(super) log_ready: DieSet,
    pub(super) next_log_die: u32,
    pub(super) log_row: u32,
    /// Superblocks of each die that are kept back for the log.
    pub(super) log_reserve: u32,
    /// `None`: host writes go to blocks in their own mode at once.
    pub(in crate::ftl) slc: Option<Box<Slc>>,
    /// `None`: the whole map is at hand.
    pub(in crate::ftl) map_cache: Option<Box<MapCache>>,
}

impl PageMapping {
    /// Page mapping on so many dies, with nothing open.
    pub fn new(dies: u32, log_reserve: u32, slc: Option<Box<Slc>>, map_cache: Option<Box<MapCache>>) -> PageMapping {
        let die = PageDie {
            host_superblock: NONE,
            log_superblock: NONE,
            past_superblock: NONE,
            collect_superblock: NONE,
            collect_row: NONE,
            victim: NONE,
            ..PageDie::default()
        };
        PageMapping {
            dies: vec![die; dies as usize],
            ready: DieSet::new(dies),
            next_die: 0,
            host_row: NONE,
            log_ready: DieSet::new(dies),
            next_log_die: 0,
            log_row: NONE,
            log_reserve,
            slc,
            map_cache,
        }
    }
}
