//! Where a command's data is: PRPs and SGLs (NVM Express 1.4, sections 4.3 and 4.4), each list read once.

use super::context::Context;
use super::controllers::Controllers;
use super::interface::{Output, Segment, Slot, Transport};
use super::slots::{PAGE, Slots, Stage, Walk};
use super::tokens::Read;
use tidewater_wire::fabrics::DataPointer;
use tidewater_wire::nvme::{Address, SglDescriptor, Status};

const PRP: u32 = 8;
const DESCRIPTOR: u32 = SglDescriptor::SIZE as u32;
/// Descriptors of an SGL for each piece of data that a command may have: some lead on, and some are empty.
const DESCRIPTORS_PER_SEGMENT: u32 = 4;

/// How far the look for a command's data has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// All of it has a place.
    All,
    /// A list is being read.
    Later,
}

/// The look for a command's data: the command, by its slot, and what its lists are read through.
pub(super) struct Pointers<'a> {
    pub cx: &'a mut Context,
    pub controllers: &'a Controllers,
    pub slots: &'a mut Slots,
    pub slot: Slot,
}

impl Pointers<'_> {
    /// Begins to find out where the `len` bytes of a command's data are. `is_source`: they go to the device.
    #[inline]
    pub(super) fn find(&mut self, len: u32, is_source: bool) -> Result<Found, Status> {
        let command = &mut self.slots[self.slot];
        command.len = len;
        command.segments.clear();
        let function = command.function;
        let sqe = &command.sqe;
        if len == 0 {
            return Ok(Found::All);
        }
        if self.controllers[function].transport == Transport::Fabrics {
            return match DataPointer::parse(sqe) {
                // Data for the host has no place in a capsule.
                Ok(DataPointer::Capsule { .. }) if !is_source => Err(Status::SGL_TYPE_INVALID),
                Ok(pointer) if pointer.len() < len => Err(Status::DATA_SGL_LENGTH_INVALID),
                // The connection refuses what is malformed, and carries the rest.
                _ => Ok(Found::All),
            };
        }
        if sqe.psdt() != 0 {
            return self.find_by_sgl(len, is_source);
        }
        let (first, second) = (sqe.prp1(), sqe.prp2());
        if first & 3 != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        let in_first = (PAGE - (first as u32 & (PAGE - 1))).min(len);
        self.place(first, in_first)?;
        let left = len - in_first;
        if left == 0 {
            return Ok(Found::All);
        }
        if left <= PAGE {
            if second & u64::from(PAGE - 1) != 0 {
                return Err(Status::PRP_OFFSET_INVALID);
            }
            self.place(second, left)?;
            return Ok(Found::All);
        }
        if second & u64::from(PRP - 1) != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        self.slots[self.slot].walk = Walk { left, is_source, ..Walk::default() };
        self.read_prps(second)
    }

    /// Reads a PRP list, up to the end of its page.
    fn read_prps(&mut self, at: u64) -> Result<Found, Status> {
        let room = (PAGE - (at as u32 & (PAGE - 1))) / PRP;
        let wanted = self.slots[self.slot].walk.left.div_ceil(PAGE);
        self.read_list(at, room.min(wanted) * PRP)
    }

    pub(super) fn read_list(&mut self, address: u64, len: u32) -> Result<Found, Status> {
        let command = &mut self.slots[self.slot];
        let function = command.function;
        if self.controllers[function].touches_cmb(address, len.into()) {
            return Err(Status::INVALID_USE_OF_CMB); // CMBSZ.LISTS is clear.
        }
        command.stage = Stage::Pointers;
        command.walk.len = len;
        let token = Read::List(self.slot).token();
        self.cx.say(Output::DmaRead { token, function, address, len });
        Ok(Found::Later)
    }

    /// A part of a list has been read.
    pub(super) fn resume(&mut self, bytes: &[u8]) -> Result<Found, Status> {
        assert_eq!(
            bytes.len(),
            self.slots[self.slot].walk.len as usize,
            "slot {}: another read was asked for",
            self.slot.0
        );
        if self.slots[self.slot].walk.is_sgl { self.resume_with_sgl(bytes) } else { self.resume_with_prps(bytes) }
    }

    fn resume_with_prps(&mut self, bytes: &[u8]) -> Result<Found, Status> {
        let count = bytes.len() / PRP as usize;
        for (i, entry) in bytes.as_chunks::<{ PRP as usize }>().0.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            // Only the first list may begin within a page: so each that follows brings its command on.
            if entry & u64::from(PAGE - 1) != 0 {
                return Err(Status::PRP_OFFSET_INVALID);
            }
            let left = self.slots[self.slot].walk.left;
            if i + 1 == count && left > PAGE {
                return self.read_prps(entry);
            }
            let len = left.min(PAGE);
            self.place(entry, len)?;
            self.slots[self.slot].walk.left = left - len;
        }
        Ok(Found::All)
    }

    #[cold]
    fn find_by_sgl(&mut self, len: u32, is_source: bool) -> Result<Found, Status> {
        let command = &mut self.slots[self.slot];
        // Fabrics has its own rules; over PCIe, metadata has none here, so 10b is as 01b (figure 105).
        if command.sqe.psdt() == 3 || command.queue == 0 {
            return Err(Status::INVALID_FIELD);
        }
        command.walk = Walk { left: len, is_sgl: true, is_last: true, is_source, ..Walk::default() };
        let descriptor = SglDescriptor::of_command(&command.sqe)?;
        match self.take_descriptor(descriptor, true)? {
            Some((at, bytes)) => self.read_sgl(at, bytes),
            None => self.end_sgl(),
        }
    }

    /// Takes a descriptor. `Some`: it leads to another segment.
    fn take_descriptor(&mut self, descriptor: SglDescriptor, ends_segment: bool) -> Result<Option<(u64, u32)>, Status> {
        let command = &mut self.slots[self.slot];
        match descriptor {
            SglDescriptor::DataBlock { address: Address::Memory(address), len } => {
                // More than there is data for is left alone (SGLS bit 18).
                let len = len.min(command.walk.left);
                command.walk.left -= len;
                self.place(address, len)?;
                Ok(None)
            }
            SglDescriptor::BitBucket { len } => {
                if !command.walk.is_source {
                    let len = len.min(command.walk.left);
                    command.walk.left -= len;
                    self.add(Segment { address: 0, len, bit_bucket: true })?;
                }
                Ok(None)
            }
            SglDescriptor::Segment { address: Address::Memory(address), len } if ends_segment => {
                command.walk.is_last = false;
                Ok(Some((address, len)))
            }
            SglDescriptor::LastSegment { address: Address::Memory(address), len } if ends_segment => {
                command.walk.is_last = true;
                Ok(Some((address, len)))
            }
            SglDescriptor::Segment { .. } | SglDescriptor::LastSegment { .. } if !ends_segment => {
                Err(Status::INVALID_SGL_SEGMENT)
            }
            // Offsets, keys and what a transport carries are for fabrics.
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// Reads a segment, at most a page of it at once.
    fn read_sgl(&mut self, at: u64, bytes: u32) -> Result<Found, Status> {
        let segments_max = self.slots.segments_max as u32;
        let command = &mut self.slots[self.slot];
        // So many descriptors there may be; a host that chains segments without end is stopped here, too.
        let descriptors = bytes / DESCRIPTOR;
        command.walk.read += descriptors;
        if command.walk.read > DESCRIPTORS_PER_SEGMENT * segments_max {
            return Err(Status::INVALID_SGL_COUNT);
        }
        let len = bytes.min(PAGE);
        command.walk.at = at.wrapping_add(len.into());
        command.walk.rest = bytes - len;
        self.read_list(at, len)
    }

    fn resume_with_sgl(&mut self, bytes: &[u8]) -> Result<Found, Status> {
        let Walk { at, rest, is_last, .. } = self.slots[self.slot].walk;
        let descriptors = bytes.as_chunks::<{ SglDescriptor::SIZE }>().0;
        for (i, descriptor) in descriptors.iter().enumerate() {
            let descriptor = SglDescriptor::parse(descriptor)?;
            let ends_segment = rest == 0 && i + 1 == descriptors.len();
            // A last segment leads nowhere; any other ends with the way to the next.
            let leads = matches!(descriptor, SglDescriptor::Segment { .. } | SglDescriptor::LastSegment { .. });
            if leads && is_last || ends_segment && !is_last && !leads {
                return Err(Status::INVALID_SGL_SEGMENT);
            }
            if let Some((at, len)) = self.take_descriptor(descriptor, ends_segment)? {
                return self.read_sgl(at, len);
            }
        }
        if rest > 0 {
            let len = rest.min(PAGE);
            let walk = &mut self.slots[self.slot].walk;
            walk.at = at.wrapping_add(len.into());
            walk.rest = rest - len;
            return self.read_list(at, len);
        }
        self.end_sgl()
    }

    fn end_sgl(&mut self) -> Result<Found, Status> {
        if self.slots[self.slot].walk.left > 0 { Err(Status::DATA_SGL_LENGTH_INVALID) } else { Ok(Found::All) }
    }

    /// The next bytes of a command's data are here.
    #[inline]
    fn place(&mut self, address: u64, len: u32) -> Result<(), Status> {
        if len == 0 {
            return Ok(());
        }
        let command = &mut self.slots[self.slot];
        let Some(end) = address.checked_add(len.into()) else { return Err(Status::DATA_TRANSFER_ERROR) };
        if self.controllers[command.function].touches_cmb(address, len.into()) {
            return Err(Status::INVALID_USE_OF_CMB); // CMBSZ.RDS and WDS are clear.
        }
        if let Some(last) = command.segments.last_mut()
            && !last.bit_bucket
            && last.address + u64::from(last.len) == end - u64::from(len)
        {
            last.len += len;
            return Ok(());
        }
        self.add(Segment { address, len, bit_bucket: false })
    }

    #[inline]
    fn add(&mut self, segment: Segment) -> Result<(), Status> {
        let segments_max = self.slots.segments_max;
        let segments = &mut self.slots[self.slot].segments;
        // As many as were reserved at the start.
        if segments.len() == segments_max {
            return Err(Status::INVALID_SGL_COUNT);
        }
        if segment.len > 0 {
            segments.push(segment);
        }
        Ok(())
    }
}
