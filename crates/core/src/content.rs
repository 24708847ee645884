//! What pages and stores hold, and where: terms that every room shares.

use tidewater_nand::Block;

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
