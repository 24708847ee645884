//! The bytes of an image: `docs/reference/image.md` describes them.
//!
//! Numbers are little-endian. Each record carries a CRC-32C that is salted with the image's UUID and with the record's
//! own place, so that neither a record of another image nor one of another place is taken for it.

mod geometry;

pub use geometry::Geometry;
use tidewater_nand::{PageHeader, PageKind};

/// The version of the format that this program writes, and the newest that it reads.
pub const VERSION: u32 = 2;
/// The version that has no memories behind its pages: it is read, and raised when the first memory is given a place.
pub const VERSION_WITHOUT_MEMORIES: u32 = 1;
/// The first bytes of every image.
pub const MAGIC: [u8; 8] = *b"TIDEWATR";
/// Bytes that regions begin at multiples of.
pub const ALIGN: u64 = 4096;
/// Bytes of the superblock, without the profile's text that follows it.
pub const HEADER: usize = 4096;
/// Bytes of one of the two slots for the state.
pub const STATE_SLOT: u64 = 4096;
/// Bytes of one of the two records of a block.
pub const BLOCK_RECORD: usize = 32;
/// Bytes of a page's record before its units.
pub const PAGE_HEADER: usize = 32;
/// Bytes of a unit in a page's record.
pub const UNIT_RECORD: usize = 24;
/// Words of a page of the firmware's own that stand in its record; the rest is its payload.
pub const OWN_PREFIX: usize = 4;
/// Bytes of one of the two slots for the list of memories.
pub const LIST_SLOT: u64 = 4096;
/// Bytes of a memory in that list.
pub const LIST_ENTRY: usize = 32;
/// The most memories that a list has room for.
pub const LIST_MAX: usize = (LIST_SLOT as usize - Slot::HEADER) / LIST_ENTRY;
/// No epoch gets here: the record of a page has 48 bits for it.
pub const EPOCH_END: u64 = 1 << 47;
/// The longest text of a profile that is read back, in bytes.
pub const TEXT_MAX: u32 = 1 << 20;

/// CRC-32C of `bytes`, salted.
pub fn checksum(salt: u32, place: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(salt, &place.to_le_bytes()), bytes)
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a range of N bytes has N bytes")
}

/// A number of 32 bits.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(bytes, at))
}

/// A number of 64 bits.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(take(bytes, at))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The superblock: written once, when the image is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The version of its format.
    pub version: u32,
    /// The image's name for itself.
    pub uuid: [u8; 16],
    /// The drive's seed.
    pub seed: u64,
    /// The capacity that was asked for; 0: the profile's.
    pub capacity: u64,
    /// Usable units of the drive, the fast side's rings included.
    pub units: u64,
    /// Superblocks of a die.
    pub superblocks_per_die: u32,
    /// Pages read before they were written cost a flash read.
    pub premap: bool,
    /// The write buffer is taken as volatile.
    pub volatile_buffer: bool,
    /// The shape.
    pub geometry: Geometry,
    /// CRC-32C of the profile's text.
    pub text_sum: u32,
}

const PREMAP: u32 = 1;
const VOLATILE_BUFFER: u32 = 2;

/// What is wrong with a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It does not begin as an image does.
    Foreign,
    /// Its format is newer than [`VERSION`].
    Newer(u32),
    /// Its checksum is wrong, or its numbers make no sense.
    Damaged(&'static str),
}

impl Superblock {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        let g = &self.geometry;
        put(&mut bytes, 0, &MAGIC);
        put(&mut bytes, 8, &self.version.to_le_bytes());
        put(&mut bytes, 16, &self.uuid);
        put(&mut bytes, 32, &self.seed.to_le_bytes());
        put(&mut bytes, 40, &self.capacity.to_le_bytes());
        put(&mut bytes, 48, &self.units.to_le_bytes());
        put(&mut bytes, 56, &self.superblocks_per_die.to_le_bytes());
        let options = (u32::from(self.premap) * PREMAP) | (u32::from(self.volatile_buffer) * VOLATILE_BUFFER);
        put(&mut bytes, 60, &options.to_le_bytes());
        let shape = [
            g.unit_size,
            g.page_size,
            g.pages_per_block,
            g.blocks_per_plane,
            g.planes,
            g.dies,
            g.text_len,
            g.metadata_max,
            self.text_sum,
        ];
        for (i, number) in shape.iter().enumerate() {
            put(&mut bytes, 64 + 4 * i, &number.to_le_bytes());
        }
        let regions = [g.state_at(), g.metadata_at(), g.blocks_at(), g.oob_at(), g.data_at(), g.file_len()];
        for (i, number) in regions.iter().enumerate() {
            put(&mut bytes, 104 + 8 * i, &number.to_le_bytes());
        }
        let sum = checksum(0, 0, &bytes[16..]);
        put(&mut bytes, 12, &sum.to_le_bytes());
        bytes
    }

    /// Reads it back.
    ///
    /// # Errors
    /// [`Unreadable`]; never a panic, whatever the bytes.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Superblock, Unreadable> {
        if bytes[..8] != MAGIC {
            return Err(Unreadable::Foreign);
        }
        let version = u32_at(bytes, 8);
        if version > VERSION {
            return Err(Unreadable::Newer(version));
        }
        if u32_at(bytes, 12) != checksum(0, 0, &bytes[16..]) {
            return Err(Unreadable::Damaged("the superblock's checksum does not match"));
        }
        let number = |i: usize| u32_at(bytes, 64 + 4 * i);
        let geometry = Geometry {
            unit_size: number(0),
            page_size: number(1),
            pages_per_block: number(2),
            blocks_per_plane: number(3),
            planes: number(4),
            dies: number(5),
            text_len: number(6),
            metadata_max: number(7),
        };
        let options = u32_at(bytes, 60);
        let superblock = Superblock {
            version,
            uuid: take(bytes, 16),
            seed: u64_at(bytes, 32),
            capacity: u64_at(bytes, 40),
            units: u64_at(bytes, 48),
            superblocks_per_die: u32_at(bytes, 56),
            premap: options & PREMAP != 0,
            volatile_buffer: options & VOLATILE_BUFFER != 0,
            geometry,
            text_sum: number(8),
        };
        if version < VERSION_WITHOUT_MEMORIES || !geometry.is_sound() || superblock.encode() != bytes {
            return Err(Unreadable::Damaged("the superblock's numbers make no sense"));
        }
        Ok(superblock)
    }

    /// What salts the checksums of this image.
    pub fn salt(&self) -> u32 {
        crc32c::crc32c(&self.uuid)
    }
}

/// The block has turned bad.
pub const GROWN_BAD: u32 = 1;
/// The block was bad from the beginning.
pub const FACTORY_BAD: u32 = 2;

/// What is stored of a block. Two records of each are written in turn; the one with the higher `update` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRecord {
    /// Counts its updates.
    pub update: u32,
    /// Counts its erases as the image knows them: pages of another generation are from a life before.
    pub generation: u32,
    /// Its wear.
    pub erases: u32,
    /// [`GROWN_BAD`], [`FACTORY_BAD`].
    pub flags: u32,
}

impl BlockRecord {
    /// Its bytes.
    pub fn encode(&self, salt: u32, block: u32) -> [u8; BLOCK_RECORD] {
        let mut bytes = [0; BLOCK_RECORD];
        for (i, number) in [self.update, self.generation, self.erases, self.flags].iter().enumerate() {
            put(&mut bytes, 4 + 4 * i, &number.to_le_bytes());
        }
        let sum = checksum(salt, block.into(), &bytes[4..]);
        put(&mut bytes, 0, &sum.to_le_bytes());
        bytes
    }

    /// Reads the valid one of two that counts; `None`: the block is as it was made.
    pub fn decode(salt: u32, block: u32, pair: &[u8]) -> Option<BlockRecord> {
        let records = pair.chunks_exact(BLOCK_RECORD).filter_map(|bytes| {
            let is_valid = u32_at(bytes, 0) == checksum(salt, block.into(), &bytes[4..]);
            is_valid.then(|| BlockRecord {
                update: u32_at(bytes, 4),
                generation: u32_at(bytes, 8),
                erases: u32_at(bytes, 12),
                flags: u32_at(bytes, 16),
            })
        });
        records.max_by_key(|record| record.update)
    }
}

/// What a page record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// A page that was programmed, with its header.
    Programmed(PageHeader),
    /// A page that can't be read.
    Torn,
}

/// What is stored of a page, besides its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRecord {
    /// The generation of its block that it belongs to.
    pub generation: u32,
    /// The sync that makes it safe.
    pub epoch: u64,
    /// What it stands for.
    pub state: PageState,
}

const TORN: u8 = 4;

fn code(kind: PageKind) -> u8 {
    match kind {
        PageKind::Data => 1,
        PageKind::Map => 2,
        PageKind::Trim => 3,
    }
}

impl PageRecord {
    /// Puts the beginning of a record down; its units come behind it, and [`PageRecord::seal`] at last.
    pub fn encode(&self, bytes: &mut [u8]) {
        bytes[..PAGE_HEADER].fill(0);
        put(bytes, 4, &self.generation.to_le_bytes());
        put(bytes, 24, &self.epoch.to_le_bytes()[..6]);
        match self.state {
            PageState::Torn => bytes[30] = TORN,
            PageState::Programmed(header) => {
                put(bytes, 8, &header.program_sequence.to_le_bytes());
                put(bytes, 16, &header.superblock.to_le_bytes());
                put(bytes, 20, &header.index.to_le_bytes());
                bytes[30] = code(header.kind);
            }
        }
    }

    /// Puts the checksum of a whole record down.
    pub fn seal(salt: u32, page: u64, bytes: &mut [u8]) {
        let sum = checksum(salt, page, &bytes[4..]);
        put(bytes, 0, &sum.to_le_bytes());
    }

    /// Reads the beginning of a record; `None`: there is none, or it is damaged.
    pub fn decode(salt: u32, page: u64, bytes: &[u8]) -> Option<PageRecord> {
        // Nearly all records of a new drive: not worth a checksum.
        if bytes[30] == 0 || u32_at(bytes, 0) != checksum(salt, page, &bytes[4..]) {
            return None;
        }
        let header = |kind| {
            PageState::Programmed(PageHeader {
                kind,
                program_sequence: u64_at(bytes, 8),
                superblock: u32_at(bytes, 16),
                index: u32_at(bytes, 20),
            })
        };
        let state = match bytes[30] {
            1 => header(PageKind::Data),
            2 => header(PageKind::Map),
            3 => header(PageKind::Trim),
            TORN => PageState::Torn,
            _ => return None,
        };
        Some(PageRecord { generation: u32_at(bytes, 4), epoch: u64_at(bytes, 24) & ((1 << 48) - 1), state })
    }
}

/// Set in the stored sequence of a unit whose content is lost: it was copied from a place that could not be read.
const POISONED: u64 = 1 << 63;

/// What is stored of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitRecord {
    /// The logical page.
    pub lpn: u32,
    /// CRC-32C of its payload.
    pub sum: u32,
    /// The version of its content.
    pub version: u64,
    /// The order of its host write.
    pub sequence: u64,
    /// Its content is lost, and a read of it fails.
    pub poisoned: bool,
}

impl UnitRecord {
    /// Puts unit `unit` of a page down.
    pub fn encode(&self, record: &mut [u8], unit: u32) {
        let bytes = &mut record[PAGE_HEADER + UNIT_RECORD * unit as usize..][..UNIT_RECORD];
        let sequence = self.sequence | if self.poisoned { POISONED } else { 0 };
        put(bytes, 0, &self.lpn.to_le_bytes());
        put(bytes, 4, &self.sum.to_le_bytes());
        put(bytes, 8, &self.version.to_le_bytes());
        put(bytes, 16, &sequence.to_le_bytes());
    }

    /// Reads unit `unit` of a page.
    pub fn decode(record: &[u8], unit: u32) -> UnitRecord {
        let bytes = &record[PAGE_HEADER + UNIT_RECORD * unit as usize..][..UNIT_RECORD];
        let sequence = u64_at(bytes, 16);
        UnitRecord {
            lpn: u32_at(bytes, 0),
            sum: u32_at(bytes, 4),
            version: u64_at(bytes, 8),
            sequence: sequence & !POISONED,
            poisoned: sequence & POISONED != 0,
        }
    }
}

/// What stands in place of units in the record of a page of the firmware's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnRecord {
    /// Words of the whole row; 0: it has no content.
    pub words: u32,
    /// CRC-32C of the part that is this page's payload.
    pub sum: u32,
    /// The first words of the row.
    pub prefix: [u32; OWN_PREFIX],
}

impl OwnRecord {
    /// Puts it down.
    pub fn encode(&self, record: &mut [u8]) {
        let bytes = &mut record[PAGE_HEADER..][..UNIT_RECORD];
        put(bytes, 0, &self.words.to_le_bytes());
        put(bytes, 4, &self.sum.to_le_bytes());
        for (i, word) in self.prefix.iter().enumerate() {
            put(bytes, 8 + 4 * i, &word.to_le_bytes());
        }
    }

    /// Reads it.
    pub fn decode(record: &[u8]) -> OwnRecord {
        let bytes = &record[PAGE_HEADER..][..UNIT_RECORD];
        OwnRecord {
            words: u32_at(bytes, 0),
            sum: u32_at(bytes, 4),
            prefix: std::array::from_fn(|i| u32_at(bytes, 8 + 4 * i)),
        }
    }
}

/// A record that is written in two slots in turn: the valid one with the higher number counts. Used for the state and
/// for metadata.
pub struct Slot;

impl Slot {
    /// Bytes before its content.
    pub const HEADER: usize = 32;
    /// No number gets here: what has it is not ours.
    const NUMBER_END: u64 = 1 << 62;

    /// The bytes of a slot's beginning, before `content`.
    pub fn encode(salt: u32, at: u64, number: u64, content: &[u8]) -> [u8; Slot::HEADER] {
        let mut bytes = [0; Slot::HEADER];
        put(&mut bytes, 4, &(content.len() as u32).to_le_bytes());
        put(&mut bytes, 8, &number.to_le_bytes());
        let sum = crc32c::crc32c_append(checksum(salt, at, &bytes[4..]), content);
        put(&mut bytes, 0, &sum.to_le_bytes());
        bytes
    }

    /// Bytes of content that a slot's beginning tells of: any number, before its checksum was looked at.
    pub fn content_len(bytes: &[u8]) -> usize {
        u32_at(bytes, 4) as usize
    }

    /// Reads a slot: its number and its content.
    pub fn decode(salt: u32, at: u64, bytes: &[u8]) -> Option<(u64, &[u8])> {
        let len = u32_at(bytes, 4) as usize;
        let content = bytes.get(Slot::HEADER..)?.get(..len)?;
        let sum = crc32c::crc32c_append(checksum(salt, at, &bytes[4..Slot::HEADER]), content);
        let number = u64_at(bytes, 8);
        (sum == u32_at(bytes, 0) && number < Slot::NUMBER_END).then_some((number, content))
    }
}

/// Content of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The persistent memory region of a function: its bytes as they are.
    Pmr = 1,
    /// Control block and rings of a function of the fast side.
    Log = 2,
    /// Table and buffer of the byte window.
    Window = 3,
}

/// The place of a memory in an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    pub(super) at: u64,
    pub(super) room: u64,
}

impl Memory {
    /// Its first byte in the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }
}

/// A memory in the list of memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryEntry {
    /// What is in it.
    pub kind: u32,
    /// The function that it belongs to.
    pub function: u32,
    /// Where it begins.
    pub at: u64,
    /// Its bytes.
    pub room: u64,
}

impl MemoryEntry {
    /// Its bytes.
    pub fn encode(&self) -> [u8; LIST_ENTRY] {
        let mut bytes = [0; LIST_ENTRY];
        put(&mut bytes, 0, &self.kind.to_le_bytes());
        put(&mut bytes, 4, &self.function.to_le_bytes());
        put(&mut bytes, 8, &self.at.to_le_bytes());
        put(&mut bytes, 16, &self.room.to_le_bytes());
        bytes
    }

    /// Reads it.
    pub fn decode(bytes: &[u8; LIST_ENTRY]) -> MemoryEntry {
        MemoryEntry {
            kind: u32_at(bytes, 0),
            function: u32_at(bytes, 4),
            at: u64_at(bytes, 8),
            room: u64_at(bytes, 16),
        }
    }
}

/// Bytes of a sector of a ring's memory: it is written as a whole or not at all.
pub const LOG_SECTOR: usize = 512;
/// Bytes of it before those of the log.
pub const LOG_HEADER: usize = 32;
/// Bytes of the log in it.
pub const LOG_CHUNK: usize = LOG_SECTOR - LOG_HEADER;
/// No stream gets here.
const LOG_END: u64 = 1 << 48;

/// What stands in front of a sector of a ring's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSector {
    /// The generation of the ring's memory that it belongs to.
    pub generation: u32,
    /// Stream offset of the first of its [`LOG_CHUNK`] bytes, a multiple of that.
    pub offset: u64,
    /// The first of its bytes that is there.
    pub skip: u16,
    /// The one behind the last.
    pub len: u16,
}

impl LogSector {
    /// Puts it before the bytes of a sector, with the checksum of the whole; the sector is at byte `at` of the file.
    pub fn seal(&self, salt: u32, at: u64, sector: &mut [u8]) {
        sector[..LOG_HEADER].fill(0);
        put(sector, 4, &self.generation.to_le_bytes());
        put(sector, 8, &self.offset.to_le_bytes());
        put(sector, 16, &self.skip.to_le_bytes());
        put(sector, 18, &self.len.to_le_bytes());
        let sum = checksum(salt, at, &sector[4..]);
        put(sector, 0, &sum.to_le_bytes());
    }

    /// Reads it; `None`: there is none, or it is damaged.
    pub fn decode(salt: u32, at: u64, sector: &[u8]) -> Option<LogSector> {
        let found = LogSector {
            generation: u32_at(sector, 4),
            offset: u64_at(sector, 8),
            skip: u16::from_le_bytes(take(sector, 16)),
            len: u16::from_le_bytes(take(sector, 18)),
        };
        let is_good = found.skip < found.len
            && usize::from(found.len) <= LOG_CHUNK
            && found.offset.is_multiple_of(LOG_CHUNK as u64)
            && found.offset < LOG_END
            && u32_at(sector, 0) == checksum(salt, at, &sector[4..]);
        is_good.then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        Geometry {
            unit_size: 4_096,
            page_size: 16_384,
            pages_per_block: 256,
            blocks_per_plane: 100,
            planes: 2,
            dies: 4,
            text_len: 5_000,
            metadata_max: 1 << 18,
        }
    }

    fn superblock() -> Superblock {
        Superblock {
            version: VERSION_WITHOUT_MEMORIES,
            uuid: *b"0123456789abcdef",
            seed: 7,
            capacity: 1 << 30,
            units: 262_144,
            superblocks_per_die: 98,
            premap: false,
            volatile_buffer: true,
            geometry: geometry(),
            text_sum: 0x1234_5678,
        }
    }

    /// Version 1 stays as it is: these are the checksums of what the first release wrote.
    #[test]
    fn the_bytes_of_version_1_never_change() {
        let superblock = superblock();
        let bytes = superblock.encode();
        assert_eq!(Superblock::decode(bytes[..].try_into().unwrap()), Ok(superblock.clone()));
        let salt = superblock.salt();
        let block = BlockRecord { update: 5, generation: 3, erases: 4, flags: GROWN_BAD }.encode(salt, 17);
        let header = PageHeader { kind: PageKind::Trim, program_sequence: 1 << 40, superblock: 9, index: 2 };
        let mut data = vec![0; geometry().page_record()];
        let record = PageRecord { generation: 3, epoch: 1 << 33, state: PageState::Programmed(header) };
        record.encode(&mut data);
        let mut own = data.clone();
        let unit = UnitRecord { lpn: 6, sum: 0xABCD, version: 1 << 50, sequence: 77, poisoned: true };
        unit.encode(&mut data, 2);
        let part = OwnRecord { words: 4_100, sum: 99, prefix: [1, 2, 3, 4] };
        part.encode(&mut own);
        PageRecord::seal(salt, 4_000, &mut data);
        PageRecord::seal(salt, 4_001, &mut own);
        assert_eq!(PageRecord::decode(salt, 4_000, &data), Some(record));
        assert_eq!(PageRecord::decode(salt, 4_001, &data), None, "it belongs elsewhere");
        assert_eq!((UnitRecord::decode(&data, 2), OwnRecord::decode(&own)), (unit, part));
        let slot = Slot::encode(salt, 12_288, 3, b"blob");
        let sums = [&bytes[..], &block, &data, &own, &slot].map(crc32c::crc32c);
        assert_eq!(sums, [2_266_052_757, 3_003_548_179, 3_307_657_455, 1_419_215_362, 58_767_622]);
        let g = geometry();
        let regions = [g.state_at(), g.metadata_at(), g.blocks_at(), g.oob_at(), g.data_at(), g.file_len()];
        assert_eq!(regions, [12_288, 20_480, 552_960, 606_208, 26_820_608, 3_382_263_808]);
        assert_eq!((g.page_record(), g.metadata_slot()), (128, 266_240));
    }

    /// And these are those of what version 2 adds.
    #[test]
    fn the_bytes_of_version_2_never_change() {
        let one = superblock();
        let two = Superblock { version: 2, ..one.clone() };
        let (bytes, old) = (two.encode(), one.encode());
        assert_eq!(Superblock::decode(bytes[..].try_into().unwrap()), Ok(two.clone()));
        let differ: Vec<usize> = (0..HEADER).filter(|&at| bytes[at] != old[at]).collect();
        assert_eq!(differ, [8], "one byte raises an image");
        let g = geometry();
        assert_eq!((g.list_at(), g.memories_at(), LIST_MAX), (3_382_263_808, 3_382_272_000, 127));
        let entry = MemoryEntry { kind: 2, function: 3, at: 3_382_272_000, room: 1 << 20 };
        assert_eq!(MemoryEntry::decode(&entry.encode()), entry);
        let mut bytes = vec![7; LOG_CHUNK];
        bytes.resize(LOG_SECTOR, 0);
        let sector = LogSector { generation: 9, offset: 480 * 77, skip: 3, len: 400 };
        sector.seal(two.salt(), 1 << 20, &mut bytes);
        assert_eq!(LogSector::decode(two.salt(), 1 << 20, &bytes), Some(sector));
        assert_eq!(LogSector::decode(two.salt(), (1 << 20) + 512, &bytes), None, "it belongs elsewhere");
        assert_eq!([&entry.encode()[..], &bytes].map(crc32c::crc32c), [2_397_110_202, 1_587_723_630]);
    }

    #[test]
    fn a_sector_of_a_log_that_makes_no_sense_is_none() {
        let mut bytes = [5; LOG_SECTOR];
        for (skip, len, offset) in [(0, 481, 0), (5, 5, 0), (6, 5, 0), (0, 4, 479), (0, 1, u64::MAX / 480 * 480)] {
            LogSector { generation: 1, offset, skip, len }.seal(1, 0, &mut bytes);
            assert_eq!(LogSector::decode(1, 0, &bytes), None, "{skip} {len} {offset}");
        }
        LogSector { generation: 1, offset: 480, skip: 0, len: 480 }.seal(1, 0, &mut bytes);
        for at in 0..LOG_SECTOR {
            bytes[at] ^= 4;
            assert_eq!(LogSector::decode(1, 0, &bytes), None, "{at}");
            bytes[at] ^= 4;
        }
        assert!(LogSector::decode(1, 0, &bytes).is_some());
    }

    #[test]
    fn of_two_block_records_the_newer_valid_one_counts() {
        let record = |update| BlockRecord { update, generation: update * 2, erases: 1, flags: 0 };
        let mut pair = [record(4).encode(1, 8), record(5).encode(1, 8)].concat();
        assert_eq!(BlockRecord::decode(1, 8, &pair), Some(record(5)));
        assert_eq!(BlockRecord::decode(1, 9, &pair), None);
        pair[40] ^= 1;
        assert_eq!(BlockRecord::decode(1, 8, &pair), Some(record(4)));
        assert_eq!(BlockRecord::decode(1, 8, &[0; 64]), None);
    }

    #[test]
    fn records_do_not_cross_sectors_unless_they_are_longer() {
        for units in [1, 2, 4, 8, 16, 64] {
            let size = Geometry { page_size: 4_096 * units, ..geometry() }.page_record();
            assert!(
                size >= PAGE_HEADER + UNIT_RECORD * units as usize
                    && (512_usize.is_multiple_of(size) || size.is_multiple_of(512)),
                "{size}"
            );
        }
    }

    #[test]
    fn a_foreign_newer_or_senseless_superblock_is_told_apart() {
        let good: [u8; HEADER] = superblock().encode().try_into().unwrap();
        assert_eq!(Superblock::decode(&[7; HEADER]), Err(Unreadable::Foreign));
        let mut newer = good;
        newer[8] = 3;
        assert_eq!(Superblock::decode(&newer), Err(Unreadable::Newer(3)));
        for at in (12..HEADER).step_by(7) {
            let mut flipped = good;
            flipped[at] ^= 0x10;
            assert!(matches!(Superblock::decode(&flipped), Err(Unreadable::Damaged(_))), "{at}");
        }
        let mut senseless = superblock();
        senseless.geometry.planes = 0;
        assert!(!senseless.geometry.is_sound());
    }
}
