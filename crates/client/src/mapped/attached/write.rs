//! Storing records and bytes by a slot.

use std::ops::Deref;

use tidewater_wire::log::{RECORD_ALIGN, RecordHeader, RecordKind};

use super::Attached;
use crate::mapped::memory::{LINE, WriteBack, fence};
use crate::mapped::owner;
use crate::mapped::ring::Ring;
use crate::mapped::stores;
use crate::writers::Reserved;
use crate::{LogError, Written};

/// Bytes that are fetched for the next record, at most: as many lines as processors have under way at once.
const FETCH_AHEAD_MAX: u64 = 4096;

/// Payloads in pieces of so many bytes at most are put together first: copying them once more costs less than storing
/// them piece by piece.
const GATHERED_MAX: usize = 1024;

/// A slot of this process, given back when this is dropped.
#[derive(Debug)]
pub(in crate::mapped) struct Claim<A: Deref<Target = Attached>> {
    pub(in crate::mapped) on: A,
    pub(in crate::mapped) slot: usize,
    pub(in crate::mapped) owner: u64,
}

impl<A: Deref<Target = Attached>> Claim<A> {
    /// Whether it is this process's: a fork copies it, and leaves it to the parent.
    #[inline]
    pub(in crate::mapped) fn is_mine(&self) -> bool {
        owner::me().is_ok_and(|me| me == self.owner)
    }
}

impl<A: Deref<Target = Attached>> Drop for Claim<A> {
    #[inline]
    fn drop(&mut self) {
        if self.is_mine() {
            self.on.ring.writers().release(self.slot);
        }
    }
}

impl Attached {
    /// Stores a record by a slot.
    #[inline]
    pub(in crate::mapped) fn write_record(&self, slot: usize, parts: &[&[u8]]) -> Result<Written, LogError> {
        match parts {
            [payload] => self.write_payload(slot, payload),
            _ => self.write_parts(slot, parts),
        }
    }

    /// Stores a record whose payload is in one piece.
    #[inline]
    fn write_payload(&self, slot: usize, payload: &[u8]) -> Result<Written, LogError> {
        let past = self.write_back != WriteBack::None;
        let length = self.length(payload.len() as u64)?;
        let reserved = self.take_lines(slot, length)?;
        let header = |checksum| self.header(reserved.offset, length, checksum);
        if self.ring.write_record(reserved, payload, past, header).is_none() {
            self.store_parts(reserved, length, &[payload]);
        }
        Ok(self.publish_record(slot, reserved))
    }

    fn write_parts(&self, slot: usize, parts: &[&[u8]]) -> Result<Written, LogError> {
        let bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        let length = self.length(bytes)?;
        if bytes <= GATHERED_MAX as u64 {
            let mut payload = [0; GATHERED_MAX];
            let mut filled = 0;
            for part in parts {
                payload[filled..][..part.len()].copy_from_slice(part);
                filled += part.len();
            }
            return self.write_payload(slot, &payload[..filled]);
        }
        let reserved = self.take_lines(slot, length)?;
        self.store_parts(reserved, length, parts);
        Ok(self.publish_record(slot, reserved))
    }

    #[inline]
    fn length(&self, bytes: u64) -> Result<u32, LogError> {
        u32::try_from(bytes).map_err(|_| LogError::TooLarge { bytes, most: self.ring.size() })
    }

    #[inline]
    fn header(&self, lsn: u64, length: u32, data_checksum: u32) -> RecordHeader {
        RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn, epoch: self.ring.header().epoch }
    }

    /// Reserves the lines of a record, and fills what is before them.
    #[inline]
    fn take_lines(&self, slot: usize, length: u32) -> Result<Reserved, LogError> {
        let reserved = self.take(slot, RecordHeader::span(length.into()), RECORD_ALIGN)?;
        if self.zero_gap(reserved) && self.write_back != WriteBack::None {
            self.ring.write_back(reserved.from, reserved.offset - reserved.from);
        }
        Ok(reserved)
    }

    /// Stores a record piece by piece.
    fn store_parts(&self, reserved: Reserved, length: u32, parts: &[&[u8]]) {
        if self.write_back != WriteBack::None {
            let mut lines = LineStream::new(&self.ring, reserved.offset);
            parts.iter().for_each(|part| lines.put(part));
            // Computed while lines are on their way.
            let checksum = parts.iter().fold(0, |before, part| stores::sum(before, part));
            return lines.end(&self.header(reserved.offset, length, checksum).to_bytes());
        }
        let (mut filled, mut checksum) = (reserved.offset + RecordHeader::SIZE as u64, 0);
        for part in parts {
            checksum = self.ring.write_summed(filled, checksum, part);
            filled += part.len() as u64;
        }
        // The fill of a record is whatever; zeroes, so that nothing of an older turn stays.
        self.ring.zero(filled, reserved.end - filled);
        self.ring.write_header(&self.header(reserved.offset, length, checksum));
    }

    /// The record is whole: others see it when it outlives what it has to.
    #[inline]
    fn publish_record(&self, slot: usize, reserved: Reserved) -> Written {
        let span = reserved.end - reserved.offset;
        if self.write_back == WriteBack::None {
            self.ring.writers().publish(slot);
            // The next record is probably as large, and its lines were read by the device since they were written.
            self.ring.fetch_ahead(reserved.end, span.min(FETCH_AHEAD_MAX));
        } else {
            // It is whole lines, which went past the caches: writing them back would take longer.
            self.ring.reach_ahead(reserved.end, span);
            fence();
            self.ring.writers().publish(slot);
        }
        Written { lsn: reserved.offset, end: reserved.end }
    }

    /// Fills what is between the end of the stream and a record that has to begin at a line. False: there is nothing.
    #[inline]
    fn zero_gap(&self, reserved: Reserved) -> bool {
        let gap = reserved.offset - reserved.from;
        if gap > 0 {
            self.ring.zero(reserved.from, gap);
        }
        gap > 0
    }

    /// Stores bytes so that a fence makes them outlive a loss of power: whole lines past the caches, what shares its
    /// line with others by the caches, and begins to write it back.
    fn store_past(&self, offset: u64, bytes: &[u8]) {
        let line = LINE as u64;
        let to_line = (offset.next_multiple_of(line) - offset).min(bytes.len() as u64) as usize;
        let (begin, bytes) = bytes.split_at(to_line);
        let (lines, end) = bytes.split_at(bytes.len() / LINE * LINE);
        for (offset, part) in [(offset, begin), (offset + (to_line + lines.len()) as u64, end)] {
            if !part.is_empty() {
                self.ring.write(offset, part);
                self.ring.write_back(offset, part.len() as u64);
            }
        }
        if !lines.is_empty() {
            self.ring.stream(offset + to_line as u64, lines);
        }
    }

    /// Writes bytes at the end of the stream, as they are.
    pub(in crate::mapped) fn x_pwrite(&self, bytes: &[u8]) -> Result<Written, LogError> {
        self.write_raw(self.claim()?.slot, bytes)
    }

    /// Stores bytes by a slot.
    pub(in crate::mapped) fn write_raw(&self, slot: usize, bytes: &[u8]) -> Result<Written, LogError> {
        if bytes.is_empty() {
            let end = self.ring.reserved();
            return Ok(Written { lsn: end, end });
        }
        let reserved = self.take(slot, bytes.len() as u64, 1)?;
        if self.write_back == WriteBack::None {
            self.ring.write(reserved.offset, bytes);
        } else {
            self.store_past(reserved.offset, bytes);
            fence();
        }
        self.ring.writers().publish(slot);
        if self.write_back != WriteBack::None {
            self.ring.write_back_tail();
        }
        Ok(Written { lsn: reserved.offset, end: reserved.end })
    }
}

/// A record on its way past the caches, gathered to whole lines.
struct LineStream<'r> {
    ring: &'r Ring,
    begin: u64,
    /// The record's first line, which is stored last: the header is in it.
    first: [u8; LINE],
    /// The line that is being filled, how far, and where it goes.
    line: [u8; LINE],
    filled: usize,
    at: u64,
}

impl<'r> LineStream<'r> {
    #[inline]
    fn new(ring: &'r Ring, at: u64) -> LineStream<'r> {
        LineStream { ring, begin: at, first: [0; LINE], line: [0; LINE], filled: RecordHeader::SIZE, at }
    }

    /// Bytes of the payload.
    #[inline]
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.filled == 0 && bytes.len() >= LINE {
                let (lines, rest) = bytes.split_at(bytes.len() / LINE * LINE);
                self.ring.stream(self.at, lines);
                self.at += lines.len() as u64;
                bytes = rest;
                continue;
            }
            let (some, rest) = bytes.split_at(bytes.len().min(LINE - self.filled));
            self.line[self.filled..][..some.len()].copy_from_slice(some);
            self.filled += some.len();
            bytes = rest;
            if self.filled == LINE {
                self.next();
            }
        }
    }

    #[inline]
    fn next(&mut self) {
        if self.at == self.begin {
            self.first = self.line;
        } else {
            self.ring.stream(self.at, &self.line);
        }
        (self.at, self.filled) = (self.at + LINE as u64, 0);
    }

    /// Fills the last line with zeroes, and puts the header in front of all.
    #[inline]
    fn end(mut self, header: &[u8; RecordHeader::SIZE]) {
        if self.filled > 0 {
            self.line[self.filled..].fill(0);
            self.next();
        }
        self.first[..RecordHeader::SIZE].copy_from_slice(header);
        self.ring.stream(self.begin, &self.first);
    }
}
