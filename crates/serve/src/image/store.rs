//! An image that is in use: pages go to their places, erased blocks are given back when it is safe, and syncs are
//! shared.
//!
//! Three rules keep the image whole when the process or the machine goes down between any two writes:
//! 1. Nothing of a block's life is overwritten before all that was programmed until its erase is synced: its data has
//!    moved, and the copies must be safe first. Its new generation is written then, and not before; and only when that
//!    is synced, too, its pages are given back and written again. (Recovery may take either of two equal copies: as
//!    long as the block's old life may come back, it must be whole.)
//! 2. A page of the map's checkpoints is not written before all that was programmed before it is synced: recovery
//!    believes what a checkpoint names, and does not look for it elsewhere.
//! 3. Rule 1 counts a page that waits by rule 2 as not yet programmed: an erase behind it waits for it, too.

mod deferred;

use super::error::number_of;
use super::flaw::Flaw;
use super::format::{
    BLOCK_RECORD, BlockRecord, Geometry, MemoryEntry, OWN_PREFIX, OwnRecord, PageRecord, PageState, Slot, Superblock,
    UnitRecord,
};
use super::storage::Storage;
use super::stored_log::StoredLog;
use super::stored_window::StoredWindow;
use super::sync::{SyncMode, Syncs};
use super::{ImageError, format};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tidewater_core::flaw::Injected;
use tidewater_core::subsystem::{MoveError, StoreFault};
use tidewater_nand::{Block, Nand, PageHeader, PageKind, Place, StoredUnit};

/// Of a page whose row ends in another page: what the row holds, and the row's place in the order of programs.
type OwnRow = (u64, Arc<[u32]>);

/// Erases and checkpoints that may wait for a sync of another caller, before one is begun for them. They do
/// not hurry: a block that was erased is usually not used again for long.
const DEFERRED_MAX: usize = 64;

/// Syncs of rings between two notes of how far all is safe, since each costs the next sync a place on the disk. The
/// next start looks behind the last.
const NOTE_EVERY: u64 = 16;

/// How an image is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageOptions {
    /// Who does the work of a sync.
    pub sync: SyncMode,
    /// Erased blocks take no room in the file.
    pub punch: bool,
    /// A rule that is broken on purpose, to show that the campaigns notice.
    #[doc(hidden)]
    pub flaw: Injected<Flaw>,
}

impl Default for ImageOptions {
    fn default() -> ImageOptions {
        ImageOptions { sync: SyncMode::Threaded, punch: true, flaw: Injected::NONE }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlockState {
    pub(super) record: BlockRecord,
    /// The highest generation that any record of its pages was found with: a crash may have lost the block's record and
    /// not those of its pages, and they must not count again in a later life.
    pub(super) generation_max: u32,
    /// Erases that the image does not know of for certain yet.
    pub(super) waiting: u32,
    /// Of these, erases that are written and not synced.
    pub(super) written: u32,
    /// Something was programmed since the last erase, or ever: there is room to give back.
    pub(super) used: bool,
}

/// What waits for a sync.
enum Deferred {
    Erase { block: u32, erases: u32 },
    Reuse { block: u32, used: bool },
    Own { at: Block, page: u32, header: PageHeader, row: Option<OwnRow> },
}

/// What an image has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageStatistics {
    /// Pages written.
    pub pages: u64,
    /// Units that were copied within the image.
    pub copied: u64,
    /// Syncs that have ended.
    pub syncs: u64,
    /// Times that a page had to wait until its block could be reused.
    pub waits: u64,
}

/// The backing store of a drive's flash. Its owner hands it every change of the flash ([`super::Payload::apply`]).
pub struct Image {
    pub(super) storage: Box<dyn Storage>,
    pub(super) name: String,
    pub(super) superblock: Superblock,
    pub(super) geometry: Geometry,
    pub(super) salt: u32,
    /// Planes among which pages are dealt out in turn, and the pages of each; 1: a block's pages lie behind each other.
    dealt: (u64, u64),
    /// Units have checksums that tell something.
    has_sums: bool,
    /// Units whose content is lost have been stored.
    pub(super) has_lost: bool,
    pub(super) options: ImageOptions,
    pub(super) blocks: Vec<BlockState>,
    /// The checksum ([`Image::sum`]) of each unit that is stored.
    pub(super) sums: Vec<u32>,
    /// What the epochs of this session are counted from.
    pub(super) epoch: u64,
    pub(super) syncs: Syncs,
    /// Syncs that have ended.
    synced: u64,
    /// Of these, how many the last note tells of.
    noted: u64,
    /// A caller waits for a sync that has not begun.
    wanted: bool,
    /// Something was written since the last sync began.
    dirty: bool,
    /// So much may wait before a sync is begun for it alone.
    deferred_max: usize,
    /// What waits, and for which sync.
    deferred: VecDeque<(u64, Deferred)>,
    /// Pages of checkpoints among them.
    deferred_own: usize,
    /// The row of the firmware's own whose pages are being reported.
    own_row: Option<OwnRow>,
    faulted: bool,
    /// What the system said when a write or a sync failed first.
    fault: Option<String>,
    /// The same, as a number of the system's.
    fault_number: Option<i32>,
    /// A sync has failed: what was written since the last good one may be anywhere.
    pub(super) sync_failed: bool,
    record: Vec<u8>,
    pub(super) metadata: Vec<u8>,
    pub(super) metadata_number: u64,
    pub(super) state_number: u64,
    /// Where memories of the controller are, and the number of the list that says so.
    pub(super) memories: Vec<MemoryEntry>,
    pub(super) list_number: u64,
    /// What is stored of the fast side.
    pub(super) logs: Vec<StoredLog>,
    pub(super) window: Option<StoredWindow>,
    statistics: ImageStatistics,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image").field("name", &self.name).field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl Image {
    /// An image over storage that holds `superblock` already; its tables are still empty.
    pub(super) fn over(
        storage: Box<dyn Storage>,
        name: String,
        superblock: Superblock,
        options: ImageOptions,
    ) -> Result<Image, ImageError> {
        let geometry = superblock.geometry;
        let options =
            ImageOptions { sync: if storage.syncs_at_once() { SyncMode::Inline } else { options.sync }, ..options };
        let syncs = Syncs::new(options.sync).map_err(|error| ImageError::Io {
            name: name.clone(),
            what: "start the thread that syncs it",
            error,
        })?;
        let units = geometry.page(geometry.blocks(), 0) as usize * geometry.units_per_page() as usize;
        Ok(Image {
            // What is written in one go goes to all dies: in memory, where nothing is punched out, that may as well lie
            // together.
            dealt: match storage.is_own_memory() {
                true => (u64::from(geometry.dies * geometry.planes), geometry.page(geometry.blocks_per_plane, 0)),
                false => (1, geometry.page(geometry.blocks(), 0)),
            },
            has_sums: !storage.is_own_memory(),
            has_lost: false,
            storage,
            name,
            salt: superblock.salt(),
            options,
            blocks: vec![BlockState::default(); geometry.blocks() as usize],
            sums: vec![0; units],
            epoch: 0,
            syncs,
            synced: 0,
            noted: 0,
            wanted: false,
            dirty: true,
            deferred_max: ((geometry.dies * geometry.planes) as usize).min(DEFERRED_MAX),
            deferred: VecDeque::new(),
            deferred_own: 0,
            own_row: None,
            faulted: false,
            fault: None,
            fault_number: None,
            sync_failed: false,
            record: vec![0; geometry.page_record()],
            metadata: Vec::new(),
            metadata_number: 0,
            state_number: 0,
            memories: Vec::new(),
            list_number: 0,
            logs: Vec::new(),
            window: None,
            statistics: ImageStatistics::default(),
            geometry,
            superblock,
        })
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The image's name for itself, given when it was made.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// The user whose file it is, and who can have written what it holds; `None`: it is no file.
    pub fn owner(&self) -> Option<u32> {
        self.storage.owner()
    }

    /// Bytes of a unit.
    pub fn unit_size(&self) -> u32 {
        self.geometry.unit_size
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> u32 {
        self.geometry.page_size
    }

    /// Bytes of the file, holes included.
    pub fn file_len(&self) -> u64 {
        let memories = self.memories.iter().map(|entry| entry.at + entry.room);
        let has_list = self.superblock.version > format::VERSION_WITHOUT_MEMORIES;
        let fixed = if has_list { self.geometry.memories_at() } else { self.geometry.file_len() };
        memories.fold(fixed, u64::max)
    }

    /// The version of its format.
    pub fn version(&self) -> u32 {
        self.superblock.version
    }

    /// What it has done since it was opened.
    pub fn statistics(&self) -> ImageStatistics {
        self.statistics
    }

    /// A write or a sync has failed: nothing is written any more.
    pub fn is_faulted(&self) -> bool {
        self.faulted
    }

    /// Why nothing is written any more, in words.
    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The same, as a number of the system's (errno(3)).
    pub fn fault_number(&self) -> Option<i32> {
        self.fault_number
    }

    /// Bytes of memory that its tables take for each GiB (2^30 bytes) of flash; the flash's own tables come on top.
    pub fn table_bytes_per_gib(&self) -> u64 {
        let tables = self.sums.len() * size_of::<u32>() + self.blocks.len() * size_of::<BlockState>();
        let flash = self.geometry.file_len() - self.geometry.data_at();
        (u128::from(tables as u64) * (1 << 30) / u128::from(flash.max(1))) as u64
    }

    /// The result of a write that may have to be durable.
    #[inline]
    pub(super) fn wrote(&mut self, result: io::Result<()>) -> Result<(), StoreFault> {
        self.dirty = true;
        self.fail(result)
    }

    /// Notes that a sync has failed, if it has. Another that succeeds later says nothing of what this one was to make
    /// safe: the system has reported the error, and may hold the bytes for written.
    pub(super) fn note_sync(&mut self, result: &io::Result<()>) {
        if let Err(error) = result {
            (self.faulted, self.sync_failed) = (true, true);
            self.fault = Some(format!("can't be written or synced: {error}"));
            self.fault_number = Some(number_of(error));
        }
    }

    #[inline]
    fn fail<T>(&mut self, result: io::Result<T>) -> Result<T, StoreFault> {
        result.map_err(|error| {
            self.faulted = true;
            self.fault.get_or_insert_with(|| format!("can't be written or synced: {error}"));
            self.fault_number.get_or_insert(number_of(&error));
            StoreFault
        })
    }

    /// The number of a unit among all.
    #[inline]
    pub(super) fn unit(&self, place: Place) -> u64 {
        self.find(place).1
    }

    /// What stands for a unit's content: its CRC-32C, where that can tell anything. Inverted, that the content is lost.
    #[inline]
    pub(super) fn sum(&self, bytes: &[u8]) -> u32 {
        if self.has_sums { crc32c::crc32c(bytes) } else { 0 }
    }

    /// Where a page's payload is.
    #[inline]
    pub(super) fn payload_at(&self, page: u64) -> u64 {
        let (planes, pages) = self.dealt;
        self.geometry.data_of(page % pages * planes + page / pages)
    }

    /// Where a unit's payload is, and the unit's number.
    #[inline]
    fn find(&self, place: Place) -> (u64, u64) {
        let page = self.geometry.page(self.geometry.block(place.at), place.page);
        let unit = page * u64::from(self.geometry.units_per_page()) + u64::from(place.unit);
        (self.payload_at(page) + u64::from(place.unit) * u64::from(self.geometry.unit_size), unit)
    }

    /// The bytes of units that follow each other on a page: of the memory where they are, or brought to `room`, which
    /// is as long.
    ///
    /// # Errors
    /// [`MoveError::Medium`]: one of them can't be read, or is not what was stored.
    #[inline]
    pub fn read_units<'a>(&'a self, first: Place, room: &'a mut [u8]) -> Result<&'a [u8], MoveError> {
        let (at, unit) = self.find(first);
        let Some(bytes) = self.storage.view(at, room.len()) else {
            self.copy_units(first, room)?;
            return Ok(room);
        };
        if self.are_whole(unit, bytes) { Ok(bytes) } else { Err(MoveError::Medium) }
    }

    /// As [`Image::read_units`], but always copied.
    ///
    /// # Errors
    /// [`MoveError::Medium`].
    #[inline]
    pub fn copy_units(&self, first: Place, into: &mut [u8]) -> Result<(), MoveError> {
        let (at, unit) = self.find(first);
        self.storage.read_at(at, into).map_err(|_| MoveError::Medium)?;
        if self.are_whole(unit, into) { Ok(()) } else { Err(MoveError::Medium) }
    }

    /// Whether these bytes are what was stored as the units from this one on.
    #[inline]
    fn are_whole(&self, unit: u64, bytes: &[u8]) -> bool {
        if !self.has_sums && !self.has_lost {
            return true;
        }
        let mut units = bytes.chunks_exact(self.geometry.unit_size as usize).zip(&self.sums[unit as usize..]);
        units.all(|(bytes, &sum)| self.sum(bytes) == sum) || self.options.flaw.is(Flaw::NoChecksums)
    }

    /// Stores a page of data: `units` with their payload in `bytes`, one behind the other. `poisoned` has a bit for
    /// each unit whose payload is lost.
    ///
    /// # Errors
    /// [`StoreFault`]: nothing is stored from now on.
    pub fn program(
        &mut self,
        at: Block,
        page: u32,
        header: PageHeader,
        units: &[StoredUnit],
        bytes: &[u8],
        poisoned: u64,
    ) -> Result<(), StoreFault> {
        if self.faulted {
            return Err(StoreFault);
        }
        let block = self.geometry.block(at);
        self.free_for_reuse(block)?;
        let number = self.geometry.page(block, page);
        let size = self.geometry.unit_size as usize;
        let used = units.iter().rposition(|unit| unit.lpn != Nand::NO_LPN).map_or(0, |last| last + 1);
        let first = number * u64::from(self.geometry.units_per_page());
        let mut record = std::mem::take(&mut self.record);
        record.fill(0);
        let state = PageState::Programmed(header);
        PageRecord { generation: self.blocks[block as usize].record.generation, epoch: self.epoch(), state }
            .encode(&mut record);
        for (i, unit) in units.iter().enumerate() {
            let is_poisoned = poisoned >> i & 1 == 1;
            let mut sum = if i < used { self.sum(&bytes[i * size..(i + 1) * size]) } else { 0 };
            if is_poisoned {
                self.has_lost = true;
                sum = !sum;
            }
            self.sums[first as usize + i] = sum;
            let &StoredUnit { lpn, version, sequence, .. } = unit;
            UnitRecord { lpn, sum, version, sequence, poisoned: is_poisoned }.encode(&mut record, i as u32);
        }
        PageRecord::seal(self.salt, number, &mut record);
        self.blocks[block as usize].used = true;
        self.statistics.pages += 1;
        let mut result = Ok(());
        if used > 0 {
            result = self.storage.write_at(self.payload_at(number), &bytes[..used * size]);
        }
        let result = result.and_then(|()| self.storage.write_at(self.geometry.record_of(number), &record));
        self.record = record;
        self.wrote(result)
    }

    /// Stores a page of the firmware's own. Of a row only the first page comes with its content.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn program_own(
        &mut self,
        at: Block,
        page: u32,
        header: PageHeader,
        content: Option<Arc<[u32]>>,
    ) -> Result<(), StoreFault> {
        if self.faulted {
            return Err(StoreFault);
        }
        if let Some(content) = content {
            self.own_row = Some((header.program_sequence, content));
        }
        let row = self.own_row.clone().filter(|row| row.0 == header.program_sequence);
        if header.kind == PageKind::Map && !self.options.flaw.is(Flaw::EagerMap) {
            self.defer(0, Deferred::Own { at, page, header, row });
            self.deferred_own += 1;
            return self.advance();
        }
        self.free_for_reuse(self.geometry.block(at))?;
        self.write_own(at, page, header, row.as_ref())
    }

    fn write_own(&mut self, at: Block, page: u32, header: PageHeader, row: Option<&OwnRow>) -> Result<(), StoreFault> {
        let block = self.geometry.block(at);
        let number = self.geometry.page(block, page);
        let mut own = OwnRecord { words: 0, sum: 0, prefix: [0; OWN_PREFIX] };
        let mut part = Vec::new();
        if let Some((_, words)) = row {
            let (prefix, rest) = words.split_at(words.len().min(OWN_PREFIX));
            let per_page = self.geometry.page_size as usize / 4;
            let mine = rest.chunks(per_page).nth(at.plane as usize).unwrap_or(&[]);
            part = mine.iter().flat_map(|word| word.to_le_bytes()).collect();
            own.words = words.len() as u32;
            own.sum = crc32c::crc32c(&part);
            own.prefix[..prefix.len()].copy_from_slice(prefix);
        }
        let mut record = std::mem::take(&mut self.record);
        record.fill(0);
        let state = PageState::Programmed(header);
        PageRecord { generation: self.blocks[block as usize].record.generation, epoch: self.epoch(), state }
            .encode(&mut record);
        own.encode(&mut record);
        PageRecord::seal(self.salt, number, &mut record);
        self.blocks[block as usize].used = true;
        self.statistics.pages += 1;
        let result = self.storage.write_at(self.payload_at(number), &part);
        let result = result.and_then(|()| self.storage.write_at(self.geometry.record_of(number), &record));
        self.record = record;
        self.wrote(result)
    }

    /// A block was erased `erases` times by now.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn erase(&mut self, at: Block, erases: u32) -> Result<(), StoreFault> {
        if self.faulted {
            return Err(StoreFault);
        }
        let block = self.geometry.block(at);
        self.blocks[block as usize].waiting += 1;
        if self.options.flaw.is(Flaw::NoSyncBeforeReuse) {
            self.write_erase(block, erases)?;
            return self.allow_reuse(block, true);
        }
        // The sync that makes a waiting checkpoint safe is the one behind the one that it waits for.
        self.defer(u64::from(self.deferred_own > 0), Deferred::Erase { block, erases });
        self.advance()
    }

    /// The wear of a block, or its being bad, is stored.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn set_block(&mut self, at: Block, erases: Option<u32>, flags: u32) -> Result<(), StoreFault> {
        if self.faulted {
            return Err(StoreFault);
        }
        let block = self.geometry.block(at);
        let record = &mut self.blocks[block as usize].record;
        record.erases = erases.unwrap_or(record.erases);
        record.flags |= flags;
        self.write_block(block)
    }

    /// Writes the new generation of a block. True: something was programmed in the old one.
    fn write_erase(&mut self, block: u32, erases: u32) -> Result<bool, StoreFault> {
        let state = &mut self.blocks[block as usize];
        state.generation_max = state.generation_max.max(state.record.generation) + 1;
        state.record.generation = state.generation_max;
        state.record.erases = erases;
        state.written += 1;
        let used = std::mem::take(&mut state.used);
        self.write_block(block)?;
        Ok(used)
    }

    /// The new generation of a block is safe.
    fn allow_reuse(&mut self, block: u32, used: bool) -> Result<(), StoreFault> {
        let state = &mut self.blocks[block as usize];
        state.waiting -= 1;
        state.written -= 1;
        if used && self.options.punch && self.dealt.0 == 1 {
            let first = self.payload_at(self.geometry.page(block, 0));
            let len = u64::from(self.geometry.pages_per_block) * u64::from(self.geometry.page_size);
            let result = self.storage.punch(first, len);
            self.fail(result)?;
        }
        Ok(())
    }

    fn write_block(&mut self, block: u32) -> Result<(), StoreFault> {
        let record = &mut self.blocks[block as usize].record;
        record.update = record.update.wrapping_add(1);
        let slot = u64::from(block) * 2 + u64::from(record.update % 2);
        let bytes = record.encode(self.salt, block);
        let result = self.storage.write_at(self.geometry.blocks_at() + slot * BLOCK_RECORD as u64, &bytes);
        self.wrote(result)
    }

    /// What was saved last by [`Image::save_metadata`]; empty: nothing.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// Replaces the metadata blob, safely: after a crash the old one is there or the new one, whole.
    ///
    /// # Errors
    /// [`StoreFault`], when it could not be stored.
    ///
    /// # Panics
    /// When it is longer than the image has room for ([`Image::metadata_max`]).
    pub fn save_metadata(&mut self, bytes: &[u8]) -> Result<(), StoreFault> {
        assert!(bytes.len() <= self.metadata_max(), "a metadata blob of {} bytes does not fit", bytes.len());
        if self.faulted {
            return Err(StoreFault);
        }
        let number = self.metadata_number + 1;
        let at = self.geometry.metadata_at() + number % 2 * self.geometry.metadata_slot();
        let header = Slot::encode(self.salt, at, number, bytes);
        let result = self.storage.write_at(at + Slot::HEADER as u64, bytes);
        let result = result.and_then(|()| self.storage.write_at(at, &header));
        self.wrote(result)?;
        self.sync_what_is_written()?;
        self.metadata_number = number;
        self.metadata = bytes.to_vec();
        Ok(())
    }

    /// The most bytes of a metadata blob.
    pub fn metadata_max(&self) -> usize {
        self.geometry.metadata_max as usize
    }

    pub(super) fn count_copied(&mut self) {
        self.statistics.copied += 1;
    }
}
