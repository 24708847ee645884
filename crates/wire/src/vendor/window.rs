//! The byte window (2B-SSD): commands, what they carry, and what an emergency dump leaves on media (ADR 12).

use super::{Epoch, command, opcode};
use crate::layout::layout;
use crate::nvme::{Sqe, Status};

/// Entries of the mapping table, at most: a dump's table has to fit into a logical page of 4 KiB.
pub const WINDOW_ENTRIES_MAX: usize = 32;
/// As the offset of Pin: the device chooses the place.
pub const ANYWHERE: u64 = u64::MAX;

/// A command of the byte window whose own fields are valid. Entries are named by the host; whether one exists, and
/// whether ranges fit, is for the firmware to check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowCommand {
    /// Pin a range of logical blocks (the paper's `BA_PIN`). Double word 0 of the completion: the entry's first byte in
    /// the window.
    Pin {
        /// The entry's name.
        entry: u16,
        /// First byte in the buffer, or [`ANYWHERE`].
        offset: u64,
        /// First logical block.
        lba: u64,
        /// Logical blocks, at least 1.
        blocks: u32,
    },
    /// Write an entry to its logical blocks, and let go of it (`BA_FLUSH`).
    Flush {
        /// The entry's name.
        entry: u16,
    },
    /// Wait until all that was stored into an entry before is safe (`BA_SYNC`, for carriers without BARs).
    Sync {
        /// The entry's name.
        entry: u16,
    },
    /// Let go of an entry, and of what was stored into it.
    Unpin {
        /// The entry's name.
        entry: u16,
    },
    /// Tell where an entry is (`BA_GET_ENTRY_INFO`).
    EntryInfo {
        /// The entry's name.
        entry: u16,
    },
    /// Store bytes into an entry, for carriers without BARs.
    Write {
        /// The entry's name.
        entry: u16,
        /// First byte, from the start of the entry.
        offset: u64,
        /// Bytes, at least 1; NDT is rounded up to whole double words.
        bytes: u32,
    },
    /// Read bytes of an entry by the device's DMA engine (`BA_READ_DMA`).
    ReadDma {
        /// The entry's name.
        entry: u16,
        /// First byte, from the start of the entry.
        offset: u64,
        /// Bytes, at least 1; NDT is rounded up to whole double words.
        bytes: u32,
    },
}

impl WindowCommand {
    /// Reads an entry. Opcodes of other commands give Invalid Command Opcode.
    pub fn parse(sqe: &Sqe) -> Result<WindowCommand, Status> {
        let entry = sqe.cdw12() as u16;
        let (place, number, at) = (command::pair(sqe, 2), sqe.cdw13(), command::pair(sqe, 14));
        let parsed = match sqe.opcode() {
            opcode::BA_PIN => WindowCommand::Pin { entry, offset: place, lba: at, blocks: number },
            opcode::BA_FLUSH => WindowCommand::Flush { entry },
            opcode::BA_SYNC => WindowCommand::Sync { entry },
            opcode::BA_UNPIN => WindowCommand::Unpin { entry },
            opcode::BA_ENTRY_INFO => WindowCommand::EntryInfo { entry },
            opcode::BA_WRITE => WindowCommand::Write { entry, offset: at, bytes: number },
            opcode::BA_READ_DMA => WindowCommand::ReadDma { entry, offset: at, bytes: number },
            _ => return Err(Status::INVALID_OPCODE),
        };
        let sized = matches!(sqe.opcode(), opcode::BA_PIN | opcode::BA_WRITE | opcode::BA_READ_DMA);
        if sized && number == 0 {
            return Err(Status::INVALID_FIELD);
        }
        command::checked(sqe, command::dwords(parsed.data_bytes() as usize))?;
        Ok(parsed)
    }

    /// Whether an opcode of an I/O queue is one of these commands'.
    pub const fn has(opcode: u8) -> bool {
        matches!(
            opcode,
            opcode::BA_PIN
                | opcode::BA_FLUSH
                | opcode::BA_SYNC
                | opcode::BA_UNPIN
                | opcode::BA_WRITE
                | opcode::BA_READ_DMA
                | opcode::BA_ENTRY_INFO
        )
    }

    /// Bytes that move between host and device.
    pub const fn data_bytes(&self) -> u64 {
        match *self {
            WindowCommand::Write { bytes, .. } | WindowCommand::ReadDma { bytes, .. } => bytes as u64,
            WindowCommand::EntryInfo { .. } => EntryInfo::SIZE as u64,
            WindowCommand::Pin { .. }
            | WindowCommand::Flush { .. }
            | WindowCommand::Sync { .. }
            | WindowCommand::Unpin { .. } => 0,
        }
    }

    /// The entry of the mapping table that it is about.
    pub const fn entry(&self) -> u16 {
        match *self {
            WindowCommand::Pin { entry, .. }
            | WindowCommand::Flush { entry }
            | WindowCommand::Sync { entry }
            | WindowCommand::Unpin { entry }
            | WindowCommand::EntryInfo { entry }
            | WindowCommand::Write { entry, .. }
            | WindowCommand::ReadDma { entry, .. } => entry,
        }
    }

    /// The entry of a submission queue that parses to this command, without its data pointer.
    pub fn emit(&self, cid: u16) -> Sqe {
        let ndt = command::dwords(self.data_bytes() as usize);
        let sqe = |opcode, number, place, at| {
            let sqe = command::bare(opcode, cid, ndt).with_dword(12, self.entry().into()).with_dword(13, number);
            command::with_pair(command::with_pair(sqe, 2, place), 14, at)
        };
        match *self {
            WindowCommand::Pin { offset, lba, blocks, .. } => sqe(opcode::BA_PIN, blocks, offset, lba),
            WindowCommand::Flush { .. } => sqe(opcode::BA_FLUSH, 0, 0, 0),
            WindowCommand::Sync { .. } => sqe(opcode::BA_SYNC, 0, 0, 0),
            WindowCommand::Unpin { .. } => sqe(opcode::BA_UNPIN, 0, 0, 0),
            WindowCommand::EntryInfo { .. } => sqe(opcode::BA_ENTRY_INFO, 0, 0, 0),
            WindowCommand::Write { offset, bytes, .. } => sqe(opcode::BA_WRITE, bytes, 0, offset),
            WindowCommand::ReadDma { offset, bytes, .. } => sqe(opcode::BA_READ_DMA, bytes, 0, offset),
        }
    }
}

layout! {
    /// Data that Entry Info returns.
    pub struct EntryInfo [64] {
        fixed 0 version: u32 = 1, " Version of this layout.";
        /// The entry's name.
        4 entry: u16,
        /// A Flush of it has begun and was cut short: it can only be flushed.
        6 flush_begun: bool,
        /// First byte in the window, from its start.
        8 offset: u64,
        /// First logical block.
        16 lba: u64,
        /// Bytes.
        24 bytes: u64,
        /// First byte of the entry in BAR2.
        32 bar_offset: u64,
        /// The namespace of the logical block.
        40 nsid: u32,
    }
}

layout! {
    /// Log page C3h, Window: where the byte window is, and how it is doing. All zero but for the version: there is
    /// none.
    pub struct WindowStatus [128] {
        fixed 0 version: u32 = 1, " Version of this layout.";
        /// Entries of the mapping table.
        4 entries: u16,
        /// Of these, in use.
        6 pinned: u16,
        /// Whether block commands that touch pinned blocks wait (1) or are refused (0).
        8 holds: bool,
        /// Whether what was stored outlives a power loss.
        9 survives: bool,
        /// First byte of the window in BAR2.
        16 bar_offset: u64,
        /// Bytes of the buffer.
        24 bytes: u64,
        /// Bytes that ranges and offsets are multiples of: a logical page.
        32 granularity: u32,
        /// Block commands that wait for entries to be let go of.
        36 held: u32,
        /// Stores that were dropped because they lay outside of every entry.
        40 stores_dropped: u64,
        /// Loads outside of every entry; they got ones.
        48 loads_outside: u64,
        /// Emergency dumps that were found cut short at power-on: what was stored since the entries were pinned is
        /// lost.
        56 dumps_lost: u64,
        /// Energy that an emergency dump of a full buffer takes, in nanojoules.
        64 energy_needed_nj: u64,
        /// Energy that is stored for it, in nanojoules.
        72 energy_stored_nj: u64,
    }
}

layout! {
    /// Where a log in the byte window goes on from (ADR 23): in the first block of its range, and of the logical page
    /// behind, written in turns so that one of them is whole. The valid one with the higher sequence counts.
    pub struct WindowLogHead [64] {
        fixed 0 magic: u32 = u32::from_le_bytes(*b"TWLG"), " `TWLG` in ASCII.";
        fixed 4 version: u32 = 1, " Version of this layout.";
        /// Rises with each that is written.
        8 sequence: u64,
        /// Epoch of the writer: rises each time that the log is opened.
        16 epoch: Epoch,
        /// Stream offset of the first byte that is not released.
        24 head: u64,
        /// Bytes that are pinned at once, twice: a segment.
        32 segment_bytes: u64,
        /// Segments behind both heads. The stream goes through them in turns.
        40 segments: u32,
        crc 60;
    }
}

layout! {
    /// An entry in the table of a dump.
    pub struct DumpEntry [32] {
        /// The entry's name.
        0 entry: u16,
        /// It is one.
        2 used: bool,
        /// A Flush of it had begun.
        3 flush_begun: bool,
        /// Logical pages.
        4 pages: u32,
        /// First byte in the buffer.
        8 offset: u64,
        /// First logical page.
        16 first_page: u64,
    }
}

layout! {
    /// The first page of an emergency dump: its mapping table. It is written when all other pages of the dump are on
    /// flash; these have the dump's generation as the `version` of their stamps.
    pub struct DumpTable [1152] {
        fixed 0 magic: u64 = u64::from_le_bytes(*b"TIDEDUMP"), " `TIDEDUMP` in ASCII.";
        fixed 8 version: u32 = 1, " Version of this layout.";
        /// Bytes of a logical page.
        12 page_bytes: u32,
        /// The dump's generation: no other has it.
        16 generation: u64,
        /// Bytes of the buffer.
        24 buffer_bytes: u64,
        /// The entries, in the order of the table.
        64 entry: [DumpEntry; WINDOW_ENTRIES_MAX],
        crc 1148;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_comes_back_as_it_was_given() {
        let entry = 7;
        for command in [
            WindowCommand::Pin { entry, offset: 8192, lba: 1 << 40, blocks: 9 },
            WindowCommand::Pin { entry, offset: ANYWHERE, lba: 0, blocks: u32::MAX },
            WindowCommand::Flush { entry },
            WindowCommand::Sync { entry },
            WindowCommand::Unpin { entry },
            WindowCommand::EntryInfo { entry },
            WindowCommand::Write { entry, offset: 5, bytes: 13 },
            WindowCommand::ReadDma { entry, offset: u64::MAX, bytes: 1 },
        ] {
            assert_eq!(WindowCommand::parse(&command.emit(3)), Ok(command));
            assert_eq!(command.emit(3).cid(), 3);
            let wrong = command.emit(3).with_dword(10, command.emit(3).cdw10() + 1);
            assert_eq!(WindowCommand::parse(&wrong), Err(Status::INVALID_FIELD));
        }
        let empty = WindowCommand::Pin { entry, offset: 0, lba: 0, blocks: 0 }.emit(1);
        assert_eq!(WindowCommand::parse(&empty), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn a_torn_table_is_none() {
        let mut table = DumpTable { page_bytes: 4096, generation: 9, buffer_bytes: 1 << 20, ..DumpTable::default() };
        table.entry[1] = DumpEntry { entry: 5, used: true, flush_begun: false, pages: 3, offset: 8192, first_page: 7 };
        let bytes = table.to_bytes();
        assert_eq!(DumpTable::parse(&bytes), Ok(table));
        for torn in [0, 20, 70, 100, 1000, 1150] {
            let mut bytes = bytes;
            bytes[torn] ^= 1;
            assert!(DumpTable::parse(&bytes).is_err(), "byte {torn}");
        }
    }
}
