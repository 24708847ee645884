//! A log of the fast side as it is stored: slots of control blocks, and where its rings are.

use super::format::{LOG_CHUNK, LOG_SECTOR, Memory};
use tidewater_core::fast::ControlBlock;
use tidewater_core::profile::FastProfile;
use tidewater_wire::vendor::LANES_MAX;

/// Bytes of a slot for a control block.
pub(super) const SLOT: u64 = 16 << 10;
pub(super) const SLOTS: u64 = 3;
/// Bytes of a slot's content before the control block: the generation, and three words that are 0.
pub(super) const BEFORE: usize = 16;

/// Sectors of one lane's ring: all of it, wherever in a sector it begins and ends, and one more.
pub(super) fn lane_sectors(ring_size: u64) -> u64 {
    ring_size.div_ceil(LOG_CHUNK as u64) + 2
}

/// Sectors of a half: rings of `fast.size` bytes together, however many lanes share them.
pub(super) fn half_sectors(fast: &FastProfile) -> u64 {
    fast.size.div_ceil(LOG_CHUNK as u64) + 3 * LANES_MAX as u64
}

/// Where a lane's ring is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) generation: u32,
    /// Byte of the file.
    pub(super) at: u64,
    pub(super) sectors: u64,
}

impl Place {
    /// The sector of a byte of the stream.
    pub(super) fn sector(&self, offset: u64) -> u64 {
        self.at + offset / LOG_CHUNK as u64 % self.sectors * LOG_SECTOR as u64
    }
}

/// A ring as it is stored.
#[derive(Clone, Debug)]
pub(super) struct StoredLane {
    /// Everything before this is stored, or on flash by the control block that is stored.
    pub(super) until: u64,
    /// The bytes of the sector that it ends in.
    pub(super) tail: Box<[u8; LOG_CHUNK]>,
    /// The first of them that is there.
    pub(super) skip: u64,
    /// Where the generation began, in sectors of the stream.
    pub(super) first: u64,
    /// Sectors before this one have their place on the disk.
    pub(super) prepared: u64,
}

impl StoredLane {
    /// Whether going on from here, which is not where it ends, replaces bytes of its last sector.
    pub(super) fn ends_within_a_sector_of(&self, from: u64) -> bool {
        const CHUNK: u64 = LOG_CHUNK as u64;
        self.until < from && !self.until.is_multiple_of(CHUNK) && self.until / CHUNK == from / CHUNK
    }
}

/// What is known of the control block in a slot.
#[derive(Clone, Debug)]
pub(super) struct BlockSlot {
    pub(super) number: u64,
    /// The sync that makes it safe.
    pub(super) needs: u64,
    /// Where each lane ends on flash by it; empty: it is of a life before.
    pub(super) ends: Vec<u64>,
    /// The first page that is not on flash by it; of a life before, `u64::MAX`.
    pub(super) settled: u64,
    /// The same by the one that was safe in the slot before.
    pub(super) settled_before: u64,
}

impl BlockSlot {
    /// A slot with a block of a life before, or none.
    pub(super) const OLD: BlockSlot =
        BlockSlot { number: 0, needs: 0, ends: Vec::new(), settled: u64::MAX, settled_before: u64::MAX };

    /// The first page that is not on flash by the block that a crash leaves in the slot, at least.
    pub(super) fn settled_at_least(&self, synced: u64) -> u64 {
        if self.needs <= synced { self.settled } else { self.settled_before }
    }
}

/// A function of the fast side as it is stored.
#[derive(Debug)]
pub(super) struct StoredLog {
    pub(super) memory: Memory,
    pub(super) half: u64,
    pub(super) slots: [BlockSlot; SLOTS as usize],
    pub(super) number: u64,
    pub(super) generation: u32,
    /// The control block that is stored, and the rings with it; `None`: whatever is there is from a life before.
    pub(super) current: Option<(ControlBlock, Vec<StoredLane>)>,
}

impl StoredLog {
    pub(super) fn place(&self, generation: u32, ring_size: u64, lane: usize) -> Place {
        let sectors = lane_sectors(ring_size);
        let before = u64::from(generation % 2) * self.half + lane as u64 * sectors;
        Place { generation, at: self.memory.at() + SLOTS * SLOT + before * LOG_SECTOR as u64, sectors }
    }

    /// The newest control block, of those that are safe once so many syncs have ended.
    pub(super) fn newest(&self, synced: u64) -> Option<usize> {
        let safe = self.slots.iter().enumerate().filter(|(_, slot)| slot.needs <= synced);
        safe.max_by_key(|(_, slot)| slot.number).map(|(slot, _)| slot)
    }

    /// Whether the present control block has no use for pages that recovery may look for, to tell whether another
    /// counts: those behind what the oldest that a crash may leave has on flash.
    pub(super) fn releases_what_is_looked_for(&self, synced: u64) -> bool {
        let oldest = self.slots.iter().map(|slot| slot.settled_at_least(synced)).min();
        self.current.as_ref().zip(oldest).is_some_and(|((block, _), oldest)| block.pages().start > oldest)
    }

    /// Where a lane ends on flash by the newest control block that is safe: what is behind it may be needed from the
    /// ring.
    pub(super) fn safe_end(&self, lane: usize, synced: u64) -> u64 {
        self.newest(synced).and_then(|slot| self.slots[slot].ends.get(lane).copied()).unwrap_or(0)
    }
}
