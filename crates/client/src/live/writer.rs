//! Ways into a log that hold a slot, and what is stored by them.

use tidewater_base::checksum::{crc32c, crc32c_append};
use tidewater_wire::vendor::{RECORD_ALIGN, RecordHeader, RecordKind};

use super::error::LiveError;
use super::level::Written;
use super::log::Log;
use super::memory::{WriteBack, fence};
use super::owner;
use crate::fill_void;
use crate::writers::Reserved;

/// Payloads from so many bytes on are stored past the caches where lines are written back.
const STREAM_MIN: u64 = 2048;

/// Bytes that are fetched for the next record, at most: as many lines as processors have under way at once.
const FETCH_AHEAD_MAX: u64 = 4096;

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
    pub(super) fn write_record(&self, slot: usize, parts: &[&[u8]]) -> Result<Written, LiveError> {
        let bytes = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.len() as u64));
        let most = self.ring.size();
        let length = u32::try_from(bytes).map_err(|_| LiveError::TooLarge { bytes, most })?;
        let checksum = || parts.iter().fold(0, |before, part| crc32c_append(before, part));
        // Lines of a large payload that have to reach memory go there past the caches, while the checksum is computed; else that comes first, since
        // others wait for what is reserved.
        let large = self.write_back == WriteBack::Lines && bytes >= STREAM_MIN;
        let computed = if large { 0 } else { checksum() };
        let reserved = self.take(slot, RecordHeader::span(bytes), RECORD_ALIGN)?;
        let Reserved { from, offset, end } = reserved;
        let how = if large { WriteBack::Stream } else { self.write_back };
        if offset > from {
            self.ring.zero(from, offset - from);
        }
        let mut filled = offset + RecordHeader::SIZE as u64;
        for (number, part) in parts.iter().enumerate() {
            let begin = filled;
            self.ring.write(begin, part, how);
            filled += part.len() as u64;
            if how == WriteBack::Stream && number > 0 {
                // The line in which two parts meet.
                self.ring.write_back(begin, 1);
            }
        }
        if end > filled {
            // The fill of a record is whatever; zeroes, so that nothing of an older turn stays.
            self.ring.zero(filled, end - filled);
        }
        let data_checksum = if large { checksum() } else { computed };
        let epoch = self.ring.header().epoch;
        let header = RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn: offset, epoch }.to_bytes();
        self.ring.write(offset, &header, WriteBack::None);
        self.settle(reserved, how);
        self.ring.writers().publish(slot);
        if how != WriteBack::Stream {
            // The next record is probably as large, and its lines were read by the device since they were written.
            self.ring.fetch_ahead(end, (end - offset).min(FETCH_AHEAD_MAX));
        }
        Ok(Written { lsn: offset, end })
    }

    /// Stores bytes by a slot.
    pub(super) fn write_raw(&self, slot: usize, bytes: &[u8]) -> Result<Written, LiveError> {
        if bytes.is_empty() {
            let end = self.end();
            return Ok(Written { lsn: end, end });
        }
        let reserved = self.take(slot, bytes.len() as u64, 1)?;
        self.ring.write(reserved.offset, bytes, self.write_back);
        self.settle(reserved, self.write_back);
        self.ring.writers().publish(slot);
        if self.write_back != WriteBack::None {
            self.ring.write_back_tail();
        }
        Ok(Written { lsn: reserved.offset, end: reserved.end })
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
    fn slot(&mut self) -> Result<usize, LiveError> {
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
    pub fn append(&mut self, payload: &[u8]) -> Result<Written, LiveError> {
        let slot = self.slot()?;
        self.claim.log.write_record(slot, &[payload])
    }

    /// Writes bytes at the end of the stream, as they are (`x_pwrite`).
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn x_pwrite(&mut self, bytes: &[u8]) -> Result<Written, LiveError> {
        let slot = self.slot()?;
        self.claim.log.write_raw(slot, bytes)
    }
}

/// A record that is being filled. It has a slot of its own, and belongs to the process that began it: in a child of it, nothing of it is stored.
#[derive(Debug)]
pub struct Begun<'l> {
    claim: Claim<'l>,
    reserved: Reserved,
    bytes: u32,
    over: bool,
}

impl<'l> Begun<'l> {
    pub(super) fn new(claim: Claim<'l>, bytes: u32) -> Result<Begun<'l>, LiveError> {
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
            self.claim.log.ring.write(offset, bytes, WriteBack::None);
        }
    }

    /// The record is whole (`x_free`).
    ///
    /// # Errors
    /// `Joined`: another process began it.
    pub fn commit(mut self) -> Result<Written, LiveError> {
        if !self.claim.is_mine() {
            return Err(LiveError::Joined);
        }
        let (log, lsn) = (self.claim.log, self.reserved.offset);
        let mut payload = vec![0; self.bytes as usize];
        log.ring.read(lsn + RecordHeader::SIZE as u64, &mut payload);
        let (length, epoch) = (self.bytes, log.ring.header().epoch);
        let data_checksum = crc32c(&payload);
        let header = RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn, epoch };
        self.end(&header.to_bytes());
        Ok(Written { lsn, end: self.reserved.end })
    }

    fn end(&mut self, header: &[u8]) {
        self.over = true;
        let (log, Reserved { from, offset, end }) = (self.claim.log, self.reserved);
        log.ring.write(offset, header, WriteBack::None);
        if log.write_back != WriteBack::None {
            log.ring.write_back(from, end - from);
            fence();
        }
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
