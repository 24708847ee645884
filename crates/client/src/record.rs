//! Records in a stream: how they are made, and how they are found again after a crash.

use std::fmt;

use tidewater_base::checksum::crc32c;
use tidewater_wire::log::{RECORD_ALIGN, RecordHeader, RecordKind};
use tidewater_wire::vendor::Epoch;

use crate::Error;
use crate::lane::OFFSET_END;

const LINE: usize = RECORD_ALIGN as usize;

/// Appends a record to `out`: header, payload, and zeroes to the next multiple of 64. `lsn` is the stream offset that
/// it will be stored at, a multiple of 64 (asserted: a reader would not find it).
///
/// # Errors
/// [`Error::TooLarge`] beyond 4 GiB.
pub fn encode_record(lsn: u64, epoch: Epoch, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
    assert!(lsn.is_multiple_of(RECORD_ALIGN), "a record starts at a multiple of 64, not at {lsn}");
    let most = u64::from(u32::MAX);
    let length = u32::try_from(payload.len()).map_err(|_| Error::TooLarge { bytes: payload.len() as u64, most })?;
    let header = RecordHeader { kind: RecordKind::Data, length, data_checksum: crc32c(payload), lsn, epoch };
    let end = out.len() + RecordHeader::span(u64::from(length)) as usize;
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(payload);
    out.resize(end, 0);
    Ok(())
}

/// Bytes of the stream that a record of so many bytes takes: header, payload, and fill to the next multiple of 64.
pub fn span(bytes: u64) -> u64 {
    RecordHeader::span(bytes)
}

/// Fills a part of a stream that begins at `offset` so that readers pass over it: zeroes to the next multiple of 64,
/// then one void record over the rest. What [`crate::Action::Seal`] asks for.
pub fn fill_void(offset: u64, epoch: Epoch, out: &mut [u8]) {
    out.fill(0);
    let Some(lsn) = offset.checked_next_multiple_of(RECORD_ALIGN) else { return };
    let skip = (lsn - offset) as usize;
    if let Some(region) = out.get_mut(skip..).filter(|region| region.len() >= RecordHeader::SIZE) {
        let length = u32::try_from(region.len() - RecordHeader::SIZE).unwrap_or(u32::MAX);
        let header = RecordHeader { kind: RecordKind::Void, length, data_checksum: 0, lsn, epoch };
        region[..RecordHeader::SIZE].copy_from_slice(&header.to_bytes());
    }
}

/// Why bytes were skipped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Damage {
    /// The stream begins inside of a record: what was before is trimmed.
    Beginning,
    /// No record begins here: zeroes, a hole, or other bytes.
    NoHeader,
    /// A header is damaged, or of another version.
    Header,
    /// A whole record of another place in the stream: left from an older turn of a ring.
    Misplaced,
    /// A record of an epoch below that of the records before it: a deposed writer's.
    StaleEpoch,
    /// The payload does not match its checksum.
    Payload,
}

/// An entry of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'s> {
    /// A record.
    Record {
        /// Log sequence number: the stream offset that it begins at.
        lsn: u64,
        /// Epoch of its writer.
        epoch: Epoch,
        /// The appended bytes.
        payload: &'s [u8],
    },
    /// A region that was given up.
    Void {
        /// Stream offset of its first byte.
        lsn: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// Bytes without a record.
    Skipped {
        /// Stream offset of the first of them.
        from: u64,
        /// Stream offset after the last.
        to: u64,
        /// The first fault.
        damage: Damage,
    },
}

/// Why there are no more entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// The last record ends where the bytes end.
    Complete,
    /// The last record is whole as far as it goes, but the bytes end within it: its writer was cut.
    Torn {
        /// Stream offset of the record.
        lsn: u64,
        /// Bytes of its header and payload.
        need: u64,
        /// Bytes of it that are there.
        have: u64,
    },
    /// After this offset there is no record any more: [`Entry::Skipped`] said why.
    NoMoreRecords {
        /// Stream offset.
        from: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Damage::Beginning => "the stream begins inside of a record",
            Damage::NoHeader => "no record begins here",
            Damage::Header => "a header is damaged",
            Damage::Misplaced => "a record of another place",
            Damage::StaleEpoch => "a record of a deposed writer",
            Damage::Payload => "a payload is damaged",
        })
    }
}

/// Iterates over what a recovered stream holds. After a hole or damage it goes on at the next multiple of 64 at which a
/// valid record begins, and reports what it passed over.
///
/// ```
/// use tidewater_client::{End, Entry, Records, encode_record};
/// use tidewater_wire::vendor::Epoch;
///
/// let mut stream = Vec::new();
/// encode_record(0, Epoch::ZERO, b"begin", &mut stream).unwrap();
/// encode_record(64, Epoch::ZERO, b"commit", &mut stream).unwrap();
/// stream[50] ^= 1; // within the fill of the first record: harmless
/// stream.extend([0; 64]); // a hole
/// encode_record(192, Epoch::ZERO, b"next", &mut stream).unwrap();
///
/// let mut records = Records::new(&stream, 0);
/// let payloads: Vec<_> = records
///     .by_ref()
///     .filter_map(|entry| if let Entry::Record { payload, .. } = entry { Some(payload) } else { None })
///     .collect();
/// assert_eq!(payloads, [&b"begin"[..], b"commit", b"next"]);
/// assert_eq!(records.end(), Some(End::Complete));
/// ```
#[derive(Clone, Debug)]
pub struct Records<'s> {
    bytes: &'s [u8],
    /// Stream offset of `bytes[0]`.
    start: u64,
    /// Where to look next in `bytes`.
    at: usize,
    /// Highest epoch of a record so far.
    epoch: Epoch,
    /// A record that was found behind what had to be reported first.
    found: Option<Entry<'s>>,
    /// Where in `bytes` a whole record is known to begin, at or after `at`: each line is looked at once more at most.
    whole: usize,
    end: Option<End>,
}

enum Look<'s> {
    /// An entry and the bytes that it takes.
    Found(Entry<'s>, usize),
    Torn(End),
    Bad(Damage),
}

impl<'s> Records<'s> {
    /// Over bytes of a stream, the first of which has the stream offset `start`. Asserts that it is within 44 bits, as
    /// headers of destaged pages are checked to be.
    pub fn new(bytes: &'s [u8], start: u64) -> Records<'s> {
        assert!(start <= OFFSET_END, "a stream offset passes 44 bits");
        Records { bytes, start, at: 0, epoch: Epoch::ZERO, found: None, whole: 0, end: None }
    }

    /// Why the iteration ended; `None` before it did.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    fn look(&self, at: usize) -> Look<'s> {
        let rest = &self.bytes[at..];
        let lsn = self.start + at as u64;
        let line = &rest[..rest.len().min(RecordHeader::SIZE)];
        if line.len() < RecordHeader::SIZE {
            // Too little for a header: whether it was one is unknown, unless there is nothing in it.
            let empty = line.iter().all(|byte| *byte == 0);
            let torn = End::Torn { lsn, need: RecordHeader::SIZE as u64, have: line.len() as u64 };
            return if empty { Look::Bad(Damage::NoHeader) } else { Look::Torn(torn) };
        }
        let Ok(header) = RecordHeader::parse(line) else {
            let magic = RecordHeader::default().to_bytes();
            return Look::Bad(if line[..4] == magic[..4] { Damage::Header } else { Damage::NoHeader });
        };
        if header.lsn != lsn {
            return Look::Bad(Damage::Misplaced);
        }
        if header.epoch < self.epoch {
            return Look::Bad(Damage::StaleEpoch);
        }
        // A record is whole when its payload is: the fill after it may be cut.
        let need = RecordHeader::SIZE as u64 + u64::from(header.length);
        if need > rest.len() as u64 {
            return Look::Torn(End::Torn { lsn, need, have: rest.len() as u64 });
        }
        let bytes = RecordHeader::span(u64::from(header.length)).min(rest.len() as u64);
        let span = bytes as usize;
        if header.kind == RecordKind::Void {
            return Look::Found(Entry::Void { lsn, bytes }, span);
        }
        let payload = &rest[RecordHeader::SIZE..][..header.length as usize];
        if crc32c(payload) != header.data_checksum {
            return Look::Bad(Damage::Payload);
        }
        Look::Found(Entry::Record { lsn, epoch: header.epoch, payload }, span)
    }

    fn take(&mut self, at: usize, entry: Entry<'s>, span: usize) {
        self.at = at + span;
        if let Entry::Record { epoch, .. } = entry {
            self.epoch = epoch;
        }
    }

    /// From `self.at` on: the next record, and what was wrong before it.
    fn scan(&mut self) -> Option<Entry<'s>> {
        let from = self.at;
        let mut damage = None;
        // Where lines begin in `bytes`: the stream may begin within one.
        let shift = (self.start.next_multiple_of(RECORD_ALIGN) - self.start) as usize;
        let mut at = from;
        if at == 0 && shift > 0 && !self.bytes.is_empty() {
            damage = Some(Damage::Beginning);
            at = shift;
        }
        let found = loop {
            if at >= self.bytes.len() {
                break None;
            }
            match self.look(at) {
                Look::Found(entry, span) => {
                    self.take(at, entry, span);
                    break Some(entry);
                }
                Look::Torn(end) => {
                    // A damaged header cannot claim a length: its checksum matched. But whole records may follow a torn
                    // one that a hole cut off, so the end is only torn when none does.
                    if !self.any_after(at) {
                        self.end = Some(end);
                        break None;
                    }
                    damage.get_or_insert(Damage::Payload);
                }
                Look::Bad(bad) => {
                    damage.get_or_insert(bad);
                }
            }
            at += LINE;
        };
        if found.is_none() {
            at = at.min(self.bytes.len());
            self.at = self.bytes.len();
            let from = self.start + from as u64;
            let end = if damage.is_some() { End::NoMoreRecords { from } } else { End::Complete };
            self.end.get_or_insert(end);
        }
        let (from, to) = (self.start + from as u64, self.start + at as u64);
        match damage {
            Some(damage) if to > from => {
                self.found = found;
                Some(Entry::Skipped { from, to, damage })
            }
            _ => found,
        }
    }

    /// Whether a whole record begins in a line after this one.
    fn any_after(&mut self, at: usize) -> bool {
        if self.whole <= at {
            let mut lines = (at + LINE..self.bytes.len()).step_by(LINE);
            self.whole = lines.find(|at| matches!(self.look(*at), Look::Found(..))).unwrap_or(0);
        }
        self.whole > at
    }
}

impl<'s> Iterator for Records<'s> {
    type Item = Entry<'s>;

    fn next(&mut self) -> Option<Entry<'s>> {
        if let Some(entry) = self.found.take() {
            return Some(entry);
        }
        if self.end.is_some() {
            return None;
        }
        self.scan()
    }
}
