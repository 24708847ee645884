//! The block side: what each NVMe command does to logical pages, from the command pipeline to its completion.

mod ahead;
mod command;
mod destage;
mod lent;
mod lookup;
mod work;

pub(crate) use ahead::Ahead;

use crate::caches::Caches;
use crate::host::{Permit, Slot};
use crate::host_memory::HostMemory;
use crate::memory::Use;
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_wire::nvme::Status;
use work::{Found, Work};

/// The block side of a device: commands under way, and the memories that they go through.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    /// By slot.
    work: Vec<Work>,
    /// Commands that wait for room in the buffer or on flash, oldest first.
    stalled: VecDeque<u16>,
    /// Commands that wait until what came before them is on flash.
    flushing: Vec<u16>,
    pub(crate) caches: Caches,
    ahead: Ahead,
    /// More dirty pages than this are destaged in the background.
    destage_above: usize,
    /// Flash reads under way for pages that leave the write buffer beside dirty ones, and whether one has failed.
    padding_reads: u32,
    padding_failed: bool,
    /// There is a mapping cache: commands look their entries up in it.
    translates: bool,
    /// Its memory among the device's ports; `usize::MAX`: the whole map is at hand, or what is not is in host memory.
    map_port: usize,
    pub(crate) memory: HostMemory,
    /// Pages of the map live in host memory.
    lends_map: bool,
    /// An access for the map has ended, or its memory has changed: what waited for either may go on.
    map_moved: bool,
    /// What reads have found in host memory.
    found: Vec<Found>,
}

/// What the block side of a new device has.
pub(crate) struct Parts {
    pub(crate) slots: usize,
    pub(crate) caches: Caches,
    pub(crate) memory: HostMemory,
    pub(crate) ahead: Ahead,
    /// Share of the write buffer that may be dirty.
    pub(crate) watermark: f64,
    pub(crate) translates: bool,
    pub(crate) map_port: usize,
}

impl Block {
    pub(crate) fn new(parts: Parts) -> Block {
        let Parts { slots, caches, memory, ahead, watermark, translates, map_port } = parts;
        Block {
            work: vec![Work::default(); slots],
            stalled: VecDeque::with_capacity(slots),
            flushing: Vec::with_capacity(slots),
            ahead,
            destage_above: (caches.write.capacity() as f64 * watermark) as usize,
            caches,
            padding_reads: 0,
            padding_failed: false,
            translates,
            map_port,
            lends_map: memory.has(Use::MapCache),
            memory,
            map_moved: false,
            found: Vec::new(),
        }
    }

    /// How the command in a slot ends, as far as is known.
    #[inline(always)]
    pub(crate) fn status(&self, slot: u16) -> Status {
        self.work[usize::from(slot)].status
    }

    /// The command in a slot ends like this.
    pub(crate) fn fail(&mut self, slot: u16, status: Status) {
        self.work[usize::from(slot)].status = status;
    }

    /// Whether the command in a slot has passed the gate of the byte window.
    pub(crate) fn has_begun(&self, slot: u16) -> bool {
        self.work[usize::from(slot)].begun
    }

    /// Whether commands look their map entries up.
    #[inline(always)]
    pub(crate) fn translates(&self) -> bool {
        self.translates
    }

    /// Whether pages of the map live in host memory.
    #[inline(always)]
    pub(crate) fn lends_map(&self) -> bool {
        self.lends_map
    }

    /// The memory of the mapping cache among the device's ports.
    pub(crate) fn map_port(&self) -> usize {
        self.map_port
    }

    /// Whether commands wait until what came before them is on flash.
    #[inline(always)]
    pub(crate) fn has_flushing(&self) -> bool {
        !self.flushing.is_empty()
    }

    /// Commands that wait for room.
    pub(crate) fn stalled(&self) -> usize {
        self.stalled.len()
    }

    /// Forgets the counters of its memories.
    pub(crate) fn reset_statistics(&mut self, now: Instant) {
        self.caches.write.reset_statistics(now);
        self.caches.read.reset_statistics(now);
        self.memory.statistics = Default::default();
    }

    /// A line that says where a command stands, for messages.
    pub(crate) fn describe(&self, permit: Permit, of: &Slot) -> String {
        let (slot, work) = (permit.index(), &self.work[usize::from(permit.index())]);
        format!("  slot {slot} queue {} cid {}: {:?}, {work:?}\n", of.queue, of.cid, of.command)
    }
}
