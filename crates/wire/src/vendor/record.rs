//! Records in a lane's stream. A device does not know of them, except that it can seal a dead writer's region with a
//! void one.

use super::Epoch;
use super::layout::{codes, layout};

/// Records start at stream offsets that are multiples of this: a reader that lost its place tries the next one.
pub const RECORD_ALIGN: u64 = 64;

codes! {
    /// What a record is.
    pub enum RecordKind {
        /// The bytes of a writer.
        Data = 1 "data",
        /// Nothing: the region of a writer that died, sealed so that the stream stays readable.
        Void = 2 "void",
    }
}

layout! {
    /// The header of a record in a record stream, at a stream offset that is a multiple of 64. The payload follows,
    /// then zeroes to the next multiple of 64.
    pub struct RecordHeader [40] {
        fixed 0 magic: u32 = u32::from_le_bytes(*b"TREC"), " `TREC` in ASCII.";
        /// What it is.
        4 kind: RecordKind,
        /// Bytes of the payload; of a void record, bytes of the region after the header.
        8 length: u32,
        /// CRC-32C of the payload; 0 for a void record, whose bytes nobody reads.
        12 data_checksum: u32,
        /// Log sequence number: the stream offset of the header, so that bytes of an older turn of a ring, or of
        /// another place, are not taken for a record.
        16 lsn: u64,
        /// Epoch of the writer.
        24 epoch: Epoch,
        crc 32;
    }
}

impl RecordHeader {
    /// Bytes that a record with this payload takes in the stream. Saturates.
    pub const fn span(payload_bytes: u64) -> u64 {
        let bytes = (RecordHeader::SIZE as u64).saturating_add(payload_bytes);
        match bytes.checked_next_multiple_of(RECORD_ALIGN) {
            Some(span) => span,
            None => u64::MAX,
        }
    }
}
