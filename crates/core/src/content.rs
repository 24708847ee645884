//! What pages and stores hold, and where: terms that every room shares.

use tidewater_base::checksum::crc32c;
use tidewater_nand::Block;
use tidewater_wire::vendor::{Epoch, PageHeader, StampVersion};

/// The version of content that was on the drive before the run.
pub const PAST: u64 = 0;

/// The content of a store: bytes, or only how many when none are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// The bytes.
    Bytes(&'a [u8]),
    /// So many bytes.
    Absent(u32),
}

impl Content<'_> {
    /// How many bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        match self {
            Content::Bytes(bytes) => bytes.len() as u32,
            Content::Absent(len) => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where the content of a logical page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Nowhere: never written, or deallocated. It reads as zeroes.
    Zeroes,
    /// Lost to a flash error; a read of it fails.
    Lost,
    /// In the write buffer.
    Buffered {
        /// Its version.
        version: u64,
    },
    /// In the controller's memory, on its way to flash.
    Staged {
        /// Its version.
        version: u64,
    },
    /// In host memory, where a read of it found it good.
    Host {
        /// Its version.
        version: u64,
        /// The access that found it ([`Access::serial`](crate::host_memory::Access::serial)).
        serial: u64,
    },
    /// On flash.
    Flash {
        /// Its version.
        version: u64,
        /// The block.
        at: Block,
        /// The page of the block.
        page: u32,
        /// The unit of the page.
        unit: u32,
    },
}

impl Whereabouts {
    /// The version that is there.
    pub fn version(self) -> Option<u64> {
        match self {
            Whereabouts::Zeroes | Whereabouts::Lost => None,
            Whereabouts::Buffered { version }
            | Whereabouts::Staged { version }
            | Whereabouts::Host { version, .. }
            | Whereabouts::Flash { version, .. } => Some(version),
        }
    }
}

/// What a page of the log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The lane.
    pub lane: u8,
    /// Stream offset of its first byte.
    pub offset: u64,
    /// Bytes of log in it; the rest is filler. 0: none, since the log was cut.
    pub len: u32,
    /// The write sequence of its stamp: the name of its content.
    pub sequence: u64,
}

impl LogPage {
    /// The version that its stamp carries.
    pub fn version(&self) -> u64 {
        StampVersion { lane: self.lane, offset: self.offset, valid: self.len as u16 }.pack()
    }

    /// What the stamp of a page says.
    pub fn from_stamp(version: u64, sequence: u64) -> LogPage {
        let StampVersion { lane, offset, valid } = StampVersion::unpack(version);
        LogPage { lane, offset, len: valid.into(), sequence }
    }

    /// What it begins with on flash, as page `number` of a function's log: its `bytes` follow.
    pub fn header(&self, function: u8, number: u64, epoch: Epoch, bytes: &[u8]) -> PageHeader {
        PageHeader {
            function: function.into(),
            lane: self.lane,
            epoch,
            offset: self.offset,
            page: number,
            valid: self.len,
            data_checksum: crc32c(bytes),
        }
    }

    /// The stream offset behind its last byte.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// Where the bytes of a piece of log are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the ring's memory, until something else happens.
    Ring,
    /// In a page on flash.
    Page {
        /// The page's sequence.
        sequence: u64,
        /// Bytes of log in the page before the piece.
        skip: u32,
    },
}
