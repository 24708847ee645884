//! Ways into a log that hold a slot, and what is stored by them.

use tidewater_wire::log::{RECORD_ALIGN, RecordHeader, RecordKind};

use super::log::Log;
use super::memory::{LINE, WriteBack, fence};
use super::owner;
use super::ring::Ring;
use super::stores;
use crate::fill_void;
use crate::writers::Reserved;
use crate::{LogError, Written};

/// Bytes that are fetched for the next record, at most: as many lines as processors have under way at once.
const FETCH_AHEAD_MAX: u64 = 4096;

/// Payloads in pieces of so many bytes at most are put together first: copying them once more costs less than storing
/// them piece by piece.
const GATHERED_MAX: usize = 1024;

/// A slot of this process, given back when this is dropped.
#[derive(Debug)]
pub(super) struct Claim<'l> {
    pub(super) log: &'l Log,
    pub(super) slot: usize,
    pub(super) owner: u64,
}

impl Claim<'_> {
    /// Whether it is this process's: a fork copies it, and leaves it to the parent.
    #[inline]
    fn is_mine(&self) -> bool {
        owner::me().is_ok_and(|me| me == self.owner)
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_mine() {
            self.log.ring.writers().release(self.slot);
        }
    }
}

impl Log {
    /// Stores a record by a slot.
    #[inline]
    pub(super) fn write_record(&self, slot: usize, parts: &[&[u8]]) -> Result<Written, LogError> {
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

    /// Stores bytes by a slot.
    pub(super) fn write_raw(&self, slot: usize, bytes: &[u8]) -> Result<Written, LogError> {
        if bytes.is_empty() {
            let end = self.end();
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

/// One thread's way into a log.
#[derive(Debug)]
pub struct Writer<'l> {
    pub(super) claim: Claim<'l>,
}

impl<'l> Writer<'l> {
    /// Its slot. In a child of the process that made it that is another one: both sides of a fork write.
    #[inline]
    fn slot(&mut self) -> Result<usize, LogError> {
        if !self.claim.is_mine() {
            // What is dropped here is the parent's, and stays so.
            self.claim = self.claim.log.claim()?;
        }
        Ok(self.claim.slot)
    }

    /// Appends one record, as [`Log::append`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn append(&mut self, payload: &[u8]) -> Result<Written, LogError> {
        let slot = self.slot()?;
        self.claim.log.write_record(slot, &[payload])
    }

    /// Writes bytes at the end of the stream, as they are (`x_pwrite`).
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn x_pwrite(&mut self, bytes: &[u8]) -> Result<Written, LogError> {
        let slot = self.slot()?;
        self.claim.log.write_raw(slot, bytes)
    }
}

/// A record that is being filled. It has a slot of its own, and belongs to the process that began it: in a child of it,
/// nothing of it is stored.
#[derive(Debug)]
pub struct Begun<'l> {
    claim: Claim<'l>,
    reserved: Reserved,
    bytes: u32,
    over: bool,
}

impl<'l> Begun<'l> {
    pub(super) fn new(claim: Claim<'l>, bytes: u32) -> Result<Begun<'l>, LogError> {
        let reserved = claim.log.take(claim.slot, RecordHeader::span(bytes.into()), RECORD_ALIGN)?;
        claim.log.ring.zero(reserved.from, reserved.end - reserved.from);
        Ok(Begun { claim, reserved, bytes, over: false })
    }

    /// Its log sequence number.
    pub fn lsn(&self) -> u64 {
        self.reserved.offset
    }

    /// Bytes of its payload.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Stores bytes at a place of its payload. Asserts that they are inside.
    pub fn fill(&mut self, at: u32, bytes: &[u8]) {
        let inside = u64::from(at) + bytes.len() as u64 <= u64::from(self.bytes);
        assert!(inside, "{at} and {} bytes of {}", bytes.len(), self.bytes);
        if self.claim.is_mine() {
            let offset = self.reserved.offset + RecordHeader::SIZE as u64 + u64::from(at);
            self.claim.log.ring.write(offset, bytes);
        }
    }

    /// The record is whole (`x_free`).
    ///
    /// # Errors
    /// `Joined`: another process began it.
    pub fn commit(mut self) -> Result<Written, LogError> {
        if !self.claim.is_mine() {
            return Err(LogError::Joined);
        }
        let (log, lsn) = (self.claim.log, self.reserved.offset);
        let mut payload = vec![0; self.bytes as usize];
        log.ring.read(lsn + RecordHeader::SIZE as u64, &mut payload);
        let (length, epoch) = (self.bytes, log.ring.header().epoch);
        let data_checksum = stores::sum(0, &payload);
        let header = RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn, epoch };
        self.end(&header.to_bytes());
        Ok(Written { lsn, end: self.reserved.end })
    }

    fn end(&mut self, header: &[u8]) {
        self.over = true;
        let log = self.claim.log;
        log.ring.write(self.reserved.offset, header);
        log.settle(self.reserved);
        log.ring.writers().publish(self.claim.slot);
    }
}

impl Drop for Begun<'_> {
    /// Gives it up (`x_abort`).
    fn drop(&mut self) {
        if !self.over && self.claim.is_mine() {
            let mut void = vec![0; (self.reserved.end - self.reserved.offset) as usize];
            fill_void(self.reserved.offset, self.claim.log.ring.header().epoch, &mut void);
            self.end(&void);
        }
    }
}
