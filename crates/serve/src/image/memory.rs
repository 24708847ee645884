//! Memories of the controller whose content is in the image, behind the pages: persistent memory regions, and what the
//! fast side has in memory that survives. A list says where they are; a memory gets its place on first use
//! first.

use super::ImageError;
use super::format::{
    self, ALIGN, LIST_ENTRY, LIST_MAX, LIST_SLOT, Memory, MemoryEntry, MemoryKind, Slot, Superblock, VERSION,
    VERSION_WITHOUT_MEMORIES,
};
use super::store::Image;
use std::io;
use tidewater_core::subsystem::StoreFault;

impl Image {
    /// Reads the list of memories. What is wrong with it is an error; an image of version 1 has none.
    pub(super) fn read_memories(&mut self) -> Result<(), ImageError> {
        if self.superblock.version == VERSION_WITHOUT_MEMORIES {
            return Ok(());
        }
        let (salt, list_at) = (self.salt, self.geometry.list_at());
        let size = self.storage.size().map_err(|error| self.io("measure it", error))?;
        for slot in 0..2 {
            let at = list_at + slot * LIST_SLOT;
            let mut bytes = vec![0; LIST_SLOT as usize];
            self.storage.read_at(at, &mut bytes).map_err(|error| self.io("read its list of memories", error))?;
            if let Some((number, content)) = Slot::decode(salt, at, &bytes)
                && number > self.list_number
            {
                let (entries, rest) = content.as_chunks::<LIST_ENTRY>();
                let entries: Vec<MemoryEntry> = entries.iter().map(MemoryEntry::decode).collect();
                let fits = |entry: &MemoryEntry| {
                    entry.at >= self.geometry.memories_at()
                        && entry.at.is_multiple_of(ALIGN)
                        && entry.at.checked_add(entry.room).is_some_and(|end| end <= size)
                };
                if !rest.is_empty() || !entries.iter().all(fits) {
                    let what = "the list of memories names what is not there".into();
                    return Err(ImageError::Damaged { name: self.name.clone(), at, what });
                }
                (self.list_number, self.memories) = (number, entries);
            }
        }
        Ok(())
    }

    pub(super) fn io(&self, what: &'static str, error: io::Error) -> ImageError {
        ImageError::Io { name: self.name.clone(), what, error }
    }

    pub(super) fn find_memory(&self, kind: MemoryKind, function: u8) -> Option<Memory> {
        let is_it = |entry: &&MemoryEntry| entry.kind == kind as u32 && entry.function == u32::from(function);
        let &MemoryEntry { at, room, .. } = self.memories.iter().find(is_it)?;
        Some(Memory { at, room })
    }

    /// A memory of at least `bytes`: as it was found, or new and full of zeroes. One that was smaller keeps what it
    /// held. Only before the image is used: it waits for the disk.
    ///
    /// # Errors
    /// [`ImageError`]: a disk without room for it, foremost.
    pub fn memory(&mut self, kind: MemoryKind, function: u8, bytes: u64) -> Result<Memory, ImageError> {
        let old = self.find_memory(kind, function);
        if let Some(memory) = old.filter(|memory| memory.room >= bytes) {
            return Ok(memory);
        }
        let room = bytes.next_multiple_of(ALIGN);
        let ends = self.memories.iter().map(|entry| entry.at + entry.room);
        let at = ends.max().unwrap_or(0).max(self.geometry.memories_at()).next_multiple_of(ALIGN);
        if self.memories.len() >= LIST_MAX {
            let why = "it has no room for another memory in its list".into();
            return Err(ImageError::Unsupported { why });
        }
        let size = self.storage.size().map_err(|error| self.io("measure it", error))?;
        let needed = at + room;
        if size < needed {
            self.storage.set_size(needed).map_err(|error| match error.kind() {
                io::ErrorKind::StorageFull => ImageError::TooSmall { name: self.name.clone(), found: size, needed },
                _ => self.io("make room for a memory", error),
            })?;
        }
        let mut piece = vec![0; 1 << 16];
        // What was there already, on a device, need not be zeroes.
        for offset in (at..size.min(needed)).step_by(1 << 16) {
            let piece = &piece[..(needed - offset).min(1 << 16) as usize];
            self.storage.write_at(offset, piece).map_err(|error| self.io("clear a memory", error))?;
        }
        if let Some(old) = old {
            for offset in (0..old.room).step_by(1 << 16) {
                let piece = &mut piece[..(old.room - offset).min(1 << 16) as usize];
                self.storage.read_at(old.at + offset, piece).map_err(|error| self.io("read a memory", error))?;
                let written = self.storage.write_at(at + offset, piece);
                written.map_err(|error| self.io("move a memory", error))?;
            }
        }
        let entry = MemoryEntry { kind: kind as u32, function: function.into(), at, room };
        let mut entries = self.memories.clone();
        entries.retain(|other| (other.kind, other.function) != (entry.kind, entry.function));
        entries.push(entry);
        self.write_memories(entries)?;
        Ok(Memory { at, room })
    }

    /// Replaces the list: after a crash the old one is there or the new one, and what it names before it.
    fn write_memories(&mut self, entries: Vec<MemoryEntry>) -> Result<(), ImageError> {
        self.sync_now()?;
        let number = self.list_number + 1;
        let at = self.geometry.list_at() + number % 2 * LIST_SLOT;
        let content: Vec<u8> = entries.iter().flat_map(MemoryEntry::encode).collect();
        let mut bytes = Slot::encode(self.salt, at, number, &content).to_vec();
        bytes.extend(content);
        self.storage.write_at(at, &bytes).map_err(|error| self.io("write its list of memories", error))?;
        self.sync_now()?;
        if self.superblock.version < VERSION {
            // One byte of one sector: it is there or not.
            let raised = Superblock { version: VERSION, ..self.superblock.clone() };
            let first = &raised.encode()[..format::LOG_SECTOR];
            self.storage.write_at(0, first).map_err(|error| self.io("raise its version", error))?;
            self.sync_now()?;
            self.superblock = raised;
        }
        (self.list_number, self.memories) = (number, entries);
        Ok(())
    }

    fn sync_now(&mut self) -> Result<(), ImageError> {
        let sync = self.storage.begin_sync();
        sync().map_err(|error| self.io("sync it", error))
    }

    /// Reads bytes of a memory.
    ///
    /// # Errors
    /// [`StoreFault`]: they can't be read, or are not all inside.
    pub fn read_memory(&self, memory: Memory, offset: u64, into: &mut [u8]) -> Result<(), StoreFault> {
        let end = offset.checked_add(into.len() as u64).filter(|&end| end <= memory.room);
        end.ok_or(StoreFault)?;
        self.storage.read_at(memory.at + offset, into).map_err(|_| StoreFault)
    }

    /// Writes bytes of a memory. The next sync makes them safe from a loss of the machine's power.
    ///
    /// # Errors
    /// [`StoreFault`]: now or before; or they are not all inside, and nothing was written.
    pub fn write_memory(&mut self, memory: Memory, offset: u64, bytes: &[u8]) -> Result<(), StoreFault> {
        let end = offset.checked_add(bytes.len() as u64).filter(|&end| end <= memory.room);
        if end.is_none() || self.is_faulted() {
            return Err(StoreFault);
        }
        let result = self.storage.write_at(memory.at + offset, bytes);
        self.wrote(result)
    }
}
