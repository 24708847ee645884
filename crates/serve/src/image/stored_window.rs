//! The byte window as it is stored: its table, and where the pages of its entries are.

use super::format::{LOG_CHUNK, LOG_SECTOR, LogSector, Memory, Slot, u32_at};
use tidewater_core::window::Entry;

/// Bytes of a slot for the table.
pub(super) const SLOT: u64 = 4096;
pub(super) const SLOTS: u64 = 3;
/// Bytes of a record before its entries: the write sequence, how many entries follow, zeroes.
pub(super) const BEFORE: usize = 16;
/// Entries that a record has room for, those included that are about to leave.
pub(super) const ENTRIES_MAX: usize = (SLOT as usize - Slot::HEADER - BEFORE) / ENTRY;
/// Bytes of an entry: name (2), flags (2: bit 0 a flush has begun), generation (4), first page of the buffer (4), pages
/// (4), first logical page (4), zeroes.
pub(super) const ENTRY: usize = 32;

/// An entry as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredEntry {
    pub(super) name: u16,
    pub(super) flush_begun: bool,
    /// What its sectors are marked with.
    pub(super) generation: u32,
    pub(super) page: u32,
    pub(super) pages: u32,
    pub(super) first: u32,
    /// Which of the firmware's it is; `None`: it is of a life before.
    pub(super) serial: Option<u64>,
    /// It was flushed, and goes when this sync has ended.
    pub(super) leaves: Option<u64>,
}

impl StoredEntry {
    pub(super) fn encode(&self) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        bytes[..2].copy_from_slice(&self.name.to_le_bytes());
        bytes[2] = self.flush_begun.into();
        bytes[4..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.page.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.pages.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.first.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ENTRY]) -> StoredEntry {
        StoredEntry {
            name: u16::from_le_bytes([bytes[0], bytes[1]]),
            flush_begun: bytes[2] & 1 == 1,
            generation: u32_at(bytes, 4),
            page: u32_at(bytes, 8),
            pages: u32_at(bytes, 12),
            first: u32_at(bytes, 16),
            serial: None,
            leaves: None,
        }
    }

    /// Whether it is the same as one of the firmware's. After power-on only what it is about tells.
    pub(super) fn is(&self, entry: &Entry) -> bool {
        self.serial.is_none_or(|serial| serial == entry.serial)
            && (self.name, self.page, self.pages, self.first) == (entry.name, entry.page, entry.pages, entry.first)
    }

    pub(super) fn has(&self, page: u32) -> bool {
        (self.page..self.page + self.pages).contains(&page)
    }
}

/// The window as it is stored.
#[derive(Debug)]
pub(super) struct StoredWindow {
    pub(super) memory: Memory,
    pub(super) unit: usize,
    /// Of each slot the number of its record, and the sync that makes it safe.
    pub(super) slots: [(u64, u64); SLOTS as usize],
    pub(super) number: u64,
    /// The highest that was given.
    pub(super) generation: u32,
    pub(super) entries: Vec<StoredEntry>,
    /// The buffer as it is stored, as far as entries have it, and how often each page had changed then.
    pub(super) bytes: Box<[u8]>,
    pub(super) seen: Box<[u32]>,
    /// How often the window had changed when all of it was stored; `None`: that is not known.
    pub(super) changes: Option<u64>,
    /// What was written since is not safe before this sync.
    pub(super) needs: u64,
    /// Sectors that are written at once.
    pub(super) run: Vec<u8>,
}

impl StoredWindow {
    pub(super) fn sectors(&self) -> u64 {
        self.unit.div_ceil(LOG_CHUNK) as u64
    }

    /// Where a sector of a page of the buffer is.
    pub(super) fn sector(&self, page: u32, sector: usize) -> u64 {
        self.memory.at() + SLOTS * SLOT + (u64::from(page) * self.sectors() + sector as u64) * LOG_SECTOR as u64
    }

    /// The bytes of the buffer that a sector of a page holds.
    pub(super) fn range(&self, page: u32, sector: usize) -> std::ops::Range<usize> {
        let first = page as usize * self.unit;
        first + sector * LOG_CHUNK..first + ((sector + 1) * LOG_CHUNK).min(self.unit)
    }

    pub(super) fn header(&self, generation: u32, page: u32, sector: usize) -> LogSector {
        let len = self.range(page, sector).len() as u16;
        let offset = (u64::from(page) * self.sectors() + sector as u64) * LOG_CHUNK as u64;
        LogSector { generation, offset, skip: 0, len }
    }
}
