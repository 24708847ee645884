//! Permits: a slot for each command that the controller works on.

use std::hint::cold_path;
use tidewater_wire::nvme::{Command, DsmRange, Kind, Status};

/// The right to work on one command, and the duty to complete it. It is a number, so that events can carry it; that it
/// stands for a taken slot is asserted at each use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Permit(u16);

impl Permit {
    /// The permit of a slot number, as an event has carried it.
    pub const fn from_index(index: u16) -> Permit {
        Permit(index)
    }

    /// The slot number: below `[host] outstanding_max`.
    pub const fn index(self) -> u16 {
        self.0
    }
}

/// An admitted command.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Its submission queue, from 0.
    pub queue: u16,
    /// Its command identifier.
    pub cid: u16,
    /// The content that comes with it ([`super::Submission::tag`]).
    pub tag: u64,
    /// The command, or the status that it must be completed with.
    pub command: Result<Command, Status>,
    pub(super) ranges: Option<Box<[DsmRange]>>,
    /// Whether this slot entered the identifier, and so takes it out. A command in conflict did not.
    pub(super) holds_cid: bool,
    pub(super) taken: bool,
}

impl Slot {
    /// The ranges of a valid Dataset Management command, all inside the namespace; empty for other commands.
    pub fn ranges(&self) -> &[DsmRange] {
        match (&self.command, &self.ranges) {
            (Ok(Command { kind: Kind::DatasetManagement { ranges: count, .. }, .. }), Some(ranges)) => {
                &ranges[..usize::from(*count)]
            }
            _ => &[],
        }
    }
}

/// The slots: reserved at the start, used last in, first out.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u16>,
    max: usize,
}

impl Slots {
    /// `max` slots, 1 to 4,096.
    pub(super) fn new(max: u32) -> Slots {
        assert!((1..=4096).contains(&max), "[host] outstanding_max = {max} is not in 1..=4096");
        let max = max as usize;
        Slots { slots: Vec::with_capacity(max), free: Vec::with_capacity(max), max }
    }

    /// Whether every slot is taken.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == self.max
    }

    /// Takes a slot. Asserts that one is free.
    #[inline(always)]
    pub(super) fn take(&mut self, slot: Slot) -> Permit {
        if let Some(index) = self.free.pop() {
            let place = &mut self.slots[usize::from(index)];
            assert!(!place.taken, "a free slot was taken twice: {index}");
            // Field by field: a free slot holds no ranges that would have to be dropped.
            let Slot { queue, cid, tag, command, ranges, holds_cid, taken } = slot;
            (place.queue, place.cid, place.tag, place.command) = (queue, cid, tag, command);
            (place.holds_cid, place.taken) = (holds_cid, taken);
            if ranges.is_some() {
                place.ranges = ranges;
            }
            return Permit(index);
        }
        cold_path();
        assert!(self.slots.len() < self.max, "a command was admitted although all {} slots are taken", self.max);
        self.slots.push(slot);
        Permit(self.slots.len() as u16 - 1)
    }

    /// Frees a slot and returns it for a last look. Asserts that it is taken.
    #[inline(always)]
    pub(super) fn release(&mut self, permit: Permit) -> &Slot {
        let slot = &mut self.slots[usize::from(permit.0)];
        assert!(slot.taken, "slot {} was completed although it is free", permit.0);
        slot.taken = false;
        if slot.ranges.is_some() {
            slot.ranges = None;
        }
        self.free.push(permit.0);
        slot
    }

    /// A taken slot. Asserts that it is taken.
    #[inline(always)]
    pub(super) fn get(&self, permit: Permit) -> &Slot {
        let slot = &self.slots[usize::from(permit.0)];
        assert!(slot.taken, "slot {} was used although it is free", permit.0);
        slot
    }

    /// Slots taken.
    pub(super) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Slots there are.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// The taken slots by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Permit, &Slot)> {
        let numbered = self.slots.iter().enumerate();
        numbered.filter(|(_, slot)| slot.taken).map(|(index, slot)| (Permit(index as u16), slot))
    }
}

/// The command identifiers outstanding in each queue: one bit for each of the 65,536, so that a look-up costs the same
/// whatever identifiers a host picks. 8 KiB for a queue.
#[derive(Clone)]
pub(super) struct CommandIds(Box<[u64]>);

impl CommandIds {
    pub(super) fn new(queues: u32) -> CommandIds {
        CommandIds(vec![0; queues as usize * 1024].into_boxed_slice())
    }

    #[inline(always)]
    fn place(queue: u16, cid: u16) -> (usize, u64) {
        (usize::from(queue) * 1024 + usize::from(cid >> 6), 1 << (cid & 63))
    }

    /// Enters an identifier. False: it is there already.
    #[inline(always)]
    pub(super) fn enter(&mut self, queue: u16, cid: u16) -> bool {
        let (word, bit) = CommandIds::place(queue, cid);
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Takes an identifier out.
    #[inline(always)]
    pub(super) fn leave(&mut self, queue: u16, cid: u16) {
        let (word, bit) = CommandIds::place(queue, cid);
        self.0[word] &= !bit;
    }
}

impl std::fmt::Debug for CommandIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CommandIds({} outstanding)", self.0.iter().map(|word| word.count_ones()).sum::<u32>())
    }
}
