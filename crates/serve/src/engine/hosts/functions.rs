//! All PCI functions, and bytes between their hosts' memory and the device: at once where they are within reach, else
//! by the function's [`DmaMessages`].
//!
//! [`DmaMessages`]: super::dma_messages::DmaMessages

use super::dma_messages::{Age, Direction, Done, Far, Purpose};
use super::function::{PciFunction, Reached};
use super::pmr::Pmr;
use crate::engine::Firmware;
use crate::inbox::Inbox;
use std::ops::Range;
use tidewater_core::subsystem::{Region, Segment, Segments, Slot};

/// How a transfer went.
#[must_use]
#[derive(Debug)]
pub(crate) enum Carried {
    Done,
    /// Not all of it is there.
    Failed,
    /// All but these parts is done.
    Far(Vec<Far>),
}

/// The PCI functions of a device.
pub(crate) struct Functions {
    all: Vec<PciFunction>,
    /// Transfers by messages that have ended.
    ended: Inbox<Done>,
    /// Power cuts: what was under way before one is dropped.
    cuts: u64,
}

impl Functions {
    /// Those of a device. Their transfers by messages end in `ended`.
    pub(crate) fn new(all: Vec<PciFunction>, ended: Inbox<Done>) -> Functions {
        Functions { all, ended, cuts: 0 }
    }

    pub(crate) fn all(&self) -> &[PciFunction] {
        &self.all
    }

    pub(crate) fn all_mut(&mut self) -> &mut [PciFunction] {
        &mut self.all
    }

    pub(crate) fn get(&self, function: u8) -> Option<&PciFunction> {
        self.all.get(usize::from(function))
    }

    /// Whether there is such a PCI function: the controllers behind these are of NVMe/TCP.
    #[inline]
    pub(crate) fn has(&self, function: u8) -> bool {
        usize::from(function) < self.all.len()
    }

    /// The persistent memory regions that there are.
    pub(crate) fn pmrs(&self) -> impl Iterator<Item = &Pmr> {
        self.all.iter().filter_map(|function| function.pmr.as_ref())
    }

    /// Whether a client or a transfer has something to say.
    pub(crate) fn has_messages(&self) -> bool {
        self.ended.has_messages() || self.all.iter().any(|function| !function.mailbox.is_empty())
    }

    /// The power has failed: transfers that are under way are for nothing, and doorbell pages are another controller's.
    pub(crate) fn power_lost(&mut self) {
        self.cuts += 1;
        self.all.iter_mut().filter_map(|function| function.page.as_mut()).for_each(|page| page.forget());
    }

    // --- DMA ---

    /// Copies bytes that a bus address of a function stands for.
    #[inline]
    pub(crate) fn read(&self, firmware: &Firmware, function: u8, address: u64, to: &mut [u8]) -> Carried {
        let region = firmware.subsystem.region(function, address, to.len() as u32);
        match self.get(function).map(|function| function.read(region, address, to)) {
            Some(Reached::Done) => Carried::Done,
            Some(Reached::Far) => Carried::Far(vec![Far { address, at: 0, len: to.len() }]),
            Some(Reached::Nothing) | None => Carried::Failed,
        }
    }

    /// Carries `len` bytes, from byte `first` of segments of the memory of a function's host. `copy` carries a part to
    /// or from an address: a range of these bytes.
    #[inline]
    fn carry(
        &self,
        firmware: &Firmware,
        number: u8,
        segments: &[Segment],
        (first, len): (u64, usize),
        mut copy: impl FnMut(&PciFunction, Region, u64, Range<usize>) -> Reached,
    ) -> Carried {
        let Some(function) = self.get(number) else { return Carried::Failed };
        // Where the segment begins.
        let (mut begins, end, mut far) = (0u64, first + len as u64, Vec::new());
        for segment in segments {
            let ends = begins + u64::from(segment.len);
            if ends > first && begins < end && !segment.bit_bucket {
                let (from, to) = (first.max(begins), end.min(ends));
                let (at, behind) = ((from - first) as usize, (to - first) as usize);
                let address = segment.address.wrapping_add(from - begins);
                let region = firmware.subsystem.region(number, address, (behind - at) as u32);
                match copy(function, region, address, at..behind) {
                    Reached::Done => {}
                    Reached::Far => far.push(Far { address, at, len: behind - at }),
                    Reached::Nothing => return Carried::Failed,
                }
            }
            begins = ends;
        }
        match far.is_empty() {
            _ if begins < end => Carried::Failed,
            true => Carried::Done,
            false => Carried::Far(far),
        }
    }

    /// Carries bytes to `at` of a command's data, in the memory of its host.
    pub(crate) fn write_data(&self, firmware: &Firmware, slot: Slot, of: &[Segment], at: u32, bytes: &[u8]) -> Carried {
        let (number, span) = (firmware.command(slot).function, (at.into(), bytes.len()));
        self.carry(firmware, number, of, span, |function, region, address, part| {
            function.write(region, address, &bytes[part])
        })
    }

    /// Brings a command's data from the host's memory.
    pub(crate) fn read_data(&self, firmware: &Firmware, slot: Slot, to: &mut [u8]) -> Carried {
        let Segments::Host(segments) = firmware.subsystem.segments(slot) else {
            unreachable!("data of a connection comes by the connection")
        };
        let (number, span) = (firmware.command(slot).function, (0, to.len()));
        self.carry(firmware, number, segments, span, |function, region, address, part| {
            function.read(region, address, &mut to[part])
        })
    }

    /// Copies bytes to or from `offset` of the memory that a function's host has lent.
    pub(crate) fn carry_lent(
        &self,
        firmware: &Firmware,
        number: u8,
        offset: u64,
        direction: Direction,
        bytes: &mut [u8],
    ) -> Carried {
        let lent = firmware.subsystem.host_memory(number);
        self.carry(firmware, number, lent, (offset, bytes.len()), |function, region, address, part| match direction {
            Direction::ToHost => function.write(region, address, &bytes[part]),
            Direction::FromHost => function.read(region, address, &mut bytes[part]),
        })
    }

    /// Begins what only messages can carry: parts of `bytes`.
    #[cold]
    pub(crate) fn begin(
        &mut self,
        firmware: &Firmware,
        function: u8,
        (direction, far): (Direction, Vec<Far>),
        purpose: Purpose,
        bytes: Vec<u8>,
    ) {
        let age = Age { cuts: self.cuts, resets: firmware.subsystem.resets(function) };
        let function = &mut self.all[usize::from(function)];
        let client = function.connection.clone();
        function.messages.carry(client, direction, far, (age, purpose, bytes));
    }

    /// Takes a transfer by messages that has ended. One from before a power cut is for nothing, and comes back as such.
    pub(crate) fn take_ended(&mut self) -> Option<Done> {
        let done = self.ended.take()?;
        self.all[usize::from(done.function)].messages.came_back();
        if done.age.cuts == self.cuts { Some(done) } else { Some(Done { purpose: Purpose::Nothing, ..done }) }
    }
}
