//! Records in a lane's stream. A device does not know of them, except that it can seal a dead writer's region with a
//! void one.

use crate::layout::{codes, layout};
use crate::vendor::Epoch;

/// Records start at stream offsets that are multiples of this: a reader that lost its place tries the next one.
pub const RECORD_ALIGN: u64 = 64;

codes! {
    /// Kind of a record.
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
        /// The kind.
        4 kind: RecordKind,
        /// Bytes of the payload; of a void record, bytes of the region after the header.
        8 length: u32,
        /// CRC-32C of the payload; 0 for a void record, whose bytes are never read.
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
        match payload_bytes.checked_add(RecordHeader::SIZE as u64 + RECORD_ALIGN - 1) {
            Some(end) => end & !(RECORD_ALIGN - 1),
            None => u64::MAX,
        }
    }

    /// The bytes before the header's own checksum, as little-endian words: for a writer that computes it with the
    /// payload's. The checksum is of these and of 8 zero bytes in its own place.
    pub fn before_checksum(&self) -> [u64; 4] {
        let magic = u32::from_le_bytes(*b"TREC");
        let kind = self.kind as u32;
        let pair = |low: u32, high: u32| low as u64 | (high as u64) << 32;
        [pair(magic, kind), pair(self.length, self.data_checksum), self.lsn, self.epoch.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::checksum::crc32c;

    #[test]
    fn what_lies_before_a_headers_checksum_is_what_the_layout_says() {
        for kind in RecordKind::ALL {
            let header = RecordHeader {
                kind: *kind,
                length: 0x0102_0304,
                data_checksum: 0x8796_a5b4,
                lsn: 0x1122_3344_5566_7780,
                epoch: Epoch(0xfedc_ba98_7654_3210),
            };
            let mut bytes: Vec<u8> = header.before_checksum().into_iter().flat_map(u64::to_le_bytes).collect();
            bytes.extend([0; 8]);
            let checksum = crc32c(&bytes);
            bytes[32..36].copy_from_slice(&checksum.to_le_bytes());
            assert_eq!(bytes, header.to_bytes());
        }
    }
}
