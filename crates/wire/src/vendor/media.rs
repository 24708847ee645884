//! The fast side's format on flash: the header of a destaged page, and its out-of-band stamp.

use std::fmt;

use super::{Epoch, LANES_MAX, OFFSET_BITS};
use crate::layout::layout;
use tidewater_base::checksum::crc32c;

layout! {
    /// The first bytes of a destaged page. Valid bytes of the stream follow, then filler.
    pub struct PageHeader [64] {
        fixed 0 magic: u64 = u64::from_le_bytes(*b"TIDELOG1"), " `TIDELOG1` in ASCII.";
        fixed 8 version: u16 = 1, " Version of this layout.";
        /// Function whose log it is.
        10 function: u16,
        /// Lane, 0 to 15.
        12 lane: u8,
        /// Epoch in which its last byte was written.
        16 epoch: Epoch,
        /// Stream offset of the first byte after the header: below 2^44.
        24 offset: u64,
        /// Number (it only grows) of the page in the ring of logical pages.
        32 page: u64,
        /// Bytes after the header that belong to the stream, 1 to 65,535. What follows is filler.
        40 valid: u32,
        /// CRC-32C of the valid bytes.
        44 data_checksum: u32,
        crc 60;
    }
    check |header| {
        if usize::from(header.lane) >= LANES_MAX {
            Err(("lane", "0 to 15"))
        } else if !(1..=0xFFFF).contains(&header.valid) {
            Err(("valid", "1 to 65,535"))
        } else if header.offset >= 1 << OFFSET_BITS {
            Err(("offset", "below 2^44"))
        } else {
            Ok(())
        }
    };
}

impl PageHeader {
    /// The valid bytes of a page that begins with this header, or `None` when the page ends before them or they do not
    /// match their checksum.
    pub fn valid_bytes<'p>(&self, page: &'p [u8]) -> Option<&'p [u8]> {
        let bytes = page.get(PageHeader::SIZE..)?.get(..self.valid as usize)?;
        (crc32c(bytes) == self.data_checksum).then_some(bytes)
    }

    /// The page's stamp.
    pub fn stamp(&self) -> StampVersion {
        StampVersion { lane: self.lane, offset: self.offset, valid: self.valid as u16 }
    }
}

/// The 64-bit `version` in the out-of-band stamp of a destaged page (ADR 7): lane (bits 63:60), stream offset (59:16),
/// valid length (15:0). Versions order by lane, offset and length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StampVersion {
    /// Lane, 0 to 15.
    pub lane: u8,
    /// Stream offset of the page's first byte, below 2^44.
    pub offset: u64,
    /// Bytes of the stream in the page.
    pub valid: u16,
}

impl StampVersion {
    /// The version. Asserts that lane and offset fit: the firmware checked them when it took the bytes.
    pub const fn pack(self) -> u64 {
        assert!((self.lane as usize) < LANES_MAX, "a function has lanes 0 to 15");
        assert!(self.offset < 1 << OFFSET_BITS, "a stream offset passes 44 bits");
        (self.lane as u64) << 60 | self.offset << 16 | self.valid as u64
    }

    /// Unpacks a version. Every value is valid.
    pub const fn unpack(version: u64) -> StampVersion {
        let offset = version >> 16 & ((1 << OFFSET_BITS) - 1);
        StampVersion { lane: (version >> 60) as u8, offset, valid: version as u16 }
    }

    /// End of the page's bytes in the stream.
    pub const fn end(self) -> u64 {
        self.offset + self.valid as u64
    }
}

impl fmt::Debug for StampVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StampVersion(lane {}, {}..{})", self.lane, self.offset, self.end())
    }
}
