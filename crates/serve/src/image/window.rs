//! What the byte window has in memory that survives: its table, and the pages of its entries.
//!
//! A page of the buffer is kept in sectors, each of which says to which entry it belongs: it is written as a whole or
//! not at all. The table is a record in one of three slots, as control blocks of the fast side are: neither the newest
//! nor the newest that a sync has made safe is overwritten. Three orders keep both together, whatever is lost of what
//! was not synced:
//!
//! 1. *An entry whose sectors are not all there is not there.* A host learns that blocks are pinned behind a
//!    sync; so it never was.
//! 2. *That a flush has begun is written before what it writes.*
//! 3. *An entry that was flushed is let go of when a sync has made its pages safe on flash*, and until then nothing
//!    takes its sectors.

use super::ImageError;
use super::format::MemoryKind;
use super::format::{LOG_CHUNK, LOG_HEADER, LOG_SECTOR, LogSector, Slot, u32_at, u64_at};
use super::store::Image;
use super::stored_window::{BEFORE, ENTRIES_MAX, SLOT, SLOTS, StoredEntry, StoredWindow};
use tidewater_core::profile::{Profile, Survives};
use tidewater_core::subsystem::StoreFault;
use tidewater_core::window::{Entry, EntryState, Kept, KeptEntry, Window};

/// Whether a drive has a window whose memory outlives a loss of power.
fn survives(profile: &Profile) -> bool {
    let memory = profile.memory(&profile.window.memory);
    profile.window.is_enabled() && memory.is_some_and(|memory| memory.survives != Survives::Nothing)
}

impl Image {
    /// Makes or finds the memory of the byte window, if the profile has one that survives, and reads what is left of
    /// it; and of how many entries something is missing.
    pub(super) fn open_window(&mut self, profile: &Profile) -> Result<(Option<Kept>, u32), ImageError> {
        if !survives(profile) {
            return Ok((None, 0));
        }
        let (unit, size) = (profile.ftl.unit_size as usize, profile.window.size as usize);
        let pages = size / unit;
        let sectors = unit.div_ceil(LOG_CHUNK) as u64;
        let bytes = SLOTS * SLOT + pages as u64 * sectors * LOG_SECTOR as u64;
        let memory = self.memory(MemoryKind::Window, 0, bytes)?;
        let mut window = StoredWindow {
            memory,
            unit,
            slots: [(0, 0); SLOTS as usize],
            number: 0,
            generation: 0,
            entries: Vec::new(),
            bytes: vec![0; size].into_boxed_slice(),
            seen: vec![0; pages].into_boxed_slice(),
            changes: None,
            needs: 0,
            run: Vec::with_capacity(unit.div_ceil(LOG_CHUNK) * LOG_SECTOR),
        };
        let mut newest: Option<(u64, u64, Vec<StoredEntry>)> = None;
        for slot in 0..SLOTS {
            let at = memory.at() + slot * SLOT;
            let mut bytes = vec![0; SLOT as usize];
            self.storage.read_at(at, &mut bytes).map_err(|error| self.io("read the window's table", error))?;
            let Some((number, content)) = Slot::decode(self.salt, at, &bytes) else { continue };
            window.slots[slot as usize] = (number, 0);
            window.number = window.number.max(number);
            let Some((head, rest)) = content.split_at_checked(BEFORE) else { continue };
            let entries: Vec<StoredEntry> = rest.as_chunks().0.iter().map(StoredEntry::decode).collect();
            let generation = entries.iter().map(|entry| entry.generation).max().unwrap_or(0);
            window.generation = window.generation.max(generation).max(u32_at(head, 8));
            if newest.as_ref().is_none_or(|(found, ..)| number > *found) {
                newest = Some((number, u64_at(head, 0), entries));
            }
        }
        self.read_generations(&mut window)?;
        let Some((_, sequence, entries)) = newest else {
            self.window = Some(window);
            return Ok((None, 0));
        };
        let (mut kept, mut lost) = (Kept { sequence, entries: Vec::new() }, 0);
        for entry in entries {
            let fits = entry.page.checked_add(entry.pages).is_some_and(|end| end as usize <= pages);
            match fits.then(|| self.read_entry(&mut window, &entry)).transpose()?.flatten() {
                Some(bytes) => {
                    let StoredEntry { name, flush_begun, page, first, .. } = entry;
                    kept.entries.push(KeptEntry { name, flush_begun, page, first, bytes });
                    window.entries.push(entry);
                }
                None => lost += 1,
            }
        }
        self.window = Some(window);
        Ok((Some(kept), lost))
    }

    /// Raises the generation to the highest that a sector has. A crash may have left sectors of entries whose table it
    /// took: if their generation were given again, an entry whose own sectors are lost in part would be made whole by
    /// theirs.
    fn read_generations(&self, window: &mut StoredWindow) -> Result<(), ImageError> {
        let mut bytes = vec![0; window.sectors() as usize * LOG_SECTOR];
        for page in 0..window.seen.len() as u32 {
            let at = window.sector(page, 0);
            self.storage.read_at(at, &mut bytes).map_err(|error| self.io("read the window", error))?;
            let sectors = bytes.chunks_exact(LOG_SECTOR).zip((at..).step_by(LOG_SECTOR));
            let found = sectors.filter_map(|(sector, at)| LogSector::decode(self.salt, at, sector));
            window.generation = found.map(|found| found.generation).fold(window.generation, u32::max);
        }
        Ok(())
    }

    /// The pages of an entry. `None`: they are not all there.
    fn read_entry(&self, window: &mut StoredWindow, entry: &StoredEntry) -> Result<Option<Box<[u8]>>, ImageError> {
        let mut sector = [0; LOG_SECTOR];
        for page in entry.page..entry.page + entry.pages {
            for number in 0..window.sectors() as usize {
                let at = window.sector(page, number);
                self.storage.read_at(at, &mut sector).map_err(|error| self.io("read the window", error))?;
                let found = LogSector::decode(self.salt, at, &sector);
                if found != Some(window.header(entry.generation, page, number)) {
                    return Ok(None);
                }
                let range = window.range(page, number);
                window.bytes[range.clone()].copy_from_slice(&sector[LOG_HEADER..LOG_HEADER + range.len()]);
            }
        }
        let (first, end) = (entry.page as usize * window.unit, (entry.page + entry.pages) as usize * window.unit);
        Ok(Some(Box::from(&window.bytes[first..end])))
    }

    /// Stores that flushes have begun: to be called before what they write is stored.
    ///
    /// # Errors
    /// [`StoreFault`]: now or before.
    #[inline]
    pub fn store_window_marks(&mut self, window: &Window, sequence: u64) -> Result<(), StoreFault> {
        match &self.window {
            Some(stored) if stored.changes != Some(window.changes()) => {}
            _ => return Ok(()),
        }
        let Some(mut stored) = self.window.take() else { return Ok(()) };
        let mut marked = false;
        for (_, entry) in window.table().entries().filter(|(_, entry)| entry.flush_begun) {
            for there in stored.entries.iter_mut().filter(|there| there.is(entry) && !there.flush_begun) {
                (there.flush_begun, marked) = (true, true);
            }
        }
        let result = if marked { self.write_table(&mut stored, sequence) } else { Ok(()) };
        self.window = Some(stored);
        result
    }

    /// Stores what has changed of the window, before it becomes visible: to be called when all that was done to flash
    /// is stored. `sequence`: the drive's write sequence.
    ///
    /// # Errors
    /// [`StoreFault`]: now or before.
    #[inline]
    pub fn store_window(&mut self, window: &Window, sequence: u64) -> Result<(), StoreFault> {
        match &self.window {
            None => Ok(()),
            Some(stored)
                if stored.changes == Some(window.changes())
                    && stored.entries.iter().all(|entry| entry.leaves.is_none_or(|sync| sync > self.synced())) =>
            {
                Ok(())
            }
            Some(_) => self.store_changed_window(window, sequence),
        }
    }

    fn store_changed_window(&mut self, window: &Window, sequence: u64) -> Result<(), StoreFault> {
        let Some(mut stored) = self.window.take() else { return Ok(()) };
        let result = self.store_all_of_window(&mut stored, window, sequence);
        if result.is_ok() {
            stored.changes = Some(window.changes());
        }
        self.window = Some(stored);
        result
    }

    fn store_all_of_window(
        &mut self,
        stored: &mut StoredWindow,
        window: &Window,
        sequence: u64,
    ) -> Result<(), StoreFault> {
        let there: Vec<Entry> = window
            .table()
            .entries()
            .map(|(_, entry)| *entry)
            .filter(|entry| entry.state != EntryState::Pinning)
            .collect();
        let mut changed = stored.changes.is_none();
        let (to_come, synced) = (self.sync_that_covers(), self.synced());
        stored.entries.retain_mut(|entry| {
            if let Some(same) = there.iter().find(|same| entry.leaves.is_none() && entry.is(same)) {
                entry.serial = Some(same.serial);
                changed |= entry.flush_begun != same.flush_begun;
                entry.flush_begun = same.flush_begun;
                return true;
            }
            let is_gone = !entry.flush_begun || *entry.leaves.get_or_insert(to_come) <= synced;
            changed |= is_gone;
            !is_gone
        });
        for entry in &there {
            if stored.entries.iter().any(|same| same.leaves.is_none() && same.is(entry)) {
                continue;
            }
            let taken = |leaving: &StoredEntry| {
                leaving.leaves.is_some() && (entry.page..entry.page + entry.pages).any(|page| leaving.has(page))
            };
            if stored.entries.iter().any(taken) || stored.entries.len() >= ENTRIES_MAX {
                // What was there was flushed a moment ago: its sectors are all that is safe of it until now.
                self.sync()?;
                stored.entries.retain(|entry| entry.leaves.is_none());
                self.write_table(stored, sequence)?;
                self.sync()?;
            }
            stored.generation = stored.generation.wrapping_add(1);
            let &Entry { name, flush_begun, page, pages, first, serial, .. } = entry;
            let new = StoredEntry {
                name,
                flush_begun,
                generation: stored.generation,
                page,
                pages,
                first,
                serial: Some(serial),
                leaves: None,
            };
            for page in page..page + pages {
                self.store_page(stored, window, new.generation, page, true)?;
            }
            stored.entries.push(new);
            changed = true;
        }
        for i in 0..stored.entries.len() {
            let StoredEntry { page, pages, generation, leaves, .. } = stored.entries[i];
            for page in page..page + pages {
                if leaves.is_none() && stored.seen[page as usize] != window.page_changes()[page as usize] {
                    self.store_page(stored, window, generation, page, false)?;
                }
            }
        }
        if changed { self.write_table(stored, sequence) } else { Ok(()) }
    }

    /// Stores a page of the buffer: all of it, or the sectors that have changed.
    fn store_page(
        &mut self,
        stored: &mut StoredWindow,
        window: &Window,
        generation: u32,
        page: u32,
        all: bool,
    ) -> Result<(), StoreFault> {
        let mut bytes = [0; LOG_CHUNK];
        // Sectors that lie side by side are one write: a pin stores all of its pages' sectors. A process that is killed
        // amid it leaves whole ones: the kernel stops between pages of its cache.
        let (mut run, mut begin) = (std::mem::take(&mut stored.run), 0);
        for number in 0..stored.sectors() as usize {
            let range = stored.range(page, number);
            let bytes = &mut bytes[..range.len()];
            window.read(range.start as u64, bytes);
            if !all && stored.bytes[range.clone()] == *bytes {
                self.put_run(stored, begin, &mut run)?;
                continue;
            }
            let mut sector = [0; LOG_SECTOR];
            sector[LOG_HEADER..LOG_HEADER + bytes.len()].copy_from_slice(bytes);
            let at = stored.sector(page, number);
            stored.header(generation, page, number).seal(self.salt, at, &mut sector);
            if run.is_empty() {
                begin = at;
            }
            run.extend_from_slice(&sector);
            stored.bytes[range].copy_from_slice(bytes);
        }
        self.put_run(stored, begin, &mut run)?;
        stored.run = run;
        stored.seen[page as usize] = window.page_changes()[page as usize];
        Ok(())
    }

    fn put_run(&mut self, stored: &mut StoredWindow, begin: u64, run: &mut Vec<u8>) -> Result<(), StoreFault> {
        if !run.is_empty() {
            self.put_window(stored, begin, run)?;
            run.clear();
        }
        Ok(())
    }

    fn put_window(&mut self, stored: &mut StoredWindow, at: u64, bytes: &[u8]) -> Result<(), StoreFault> {
        if self.is_faulted() {
            return Err(StoreFault);
        }
        let result = self.storage.write_at(at, bytes);
        self.wrote(result)?;
        stored.needs = self.sync_to_come();
        Ok(())
    }

    /// Writes the table over one that is neither the newest nor the newest of those that are safe.
    fn write_table(&mut self, stored: &mut StoredWindow, sequence: u64) -> Result<(), StoreFault> {
        let mut content = vec![0; BEFORE];
        content[..8].copy_from_slice(&sequence.to_le_bytes());
        content[8..12].copy_from_slice(&stored.generation.to_le_bytes());
        content.extend(stored.entries.iter().flat_map(StoredEntry::encode));
        assert!(Slot::HEADER + content.len() <= SLOT as usize, "{} entries", stored.entries.len());
        let newest_of = |until: u64| {
            let numbers = stored.slots.iter().enumerate().filter(|(_, (_, needs))| *needs <= until);
            numbers.max_by_key(|(_, (number, _))| *number).map(|(slot, _)| slot)
        };
        let (newest, safe) = (newest_of(u64::MAX), newest_of(self.synced()));
        let free = (0..stored.slots.len()).filter(|&slot| Some(slot) != newest && Some(slot) != safe);
        let slot = free.min_by_key(|&slot| stored.slots[slot].0).expect("two of three are kept at most");
        stored.number += 1;
        let at = stored.memory.at() + slot as u64 * SLOT;
        let mut bytes = Slot::encode(self.salt, at, stored.number, &content).to_vec();
        bytes.extend(content);
        self.put_window(stored, at, &bytes)?;
        stored.slots[slot] = (stored.number, stored.needs);
        Ok(())
    }

    /// Whether something of the window is stored that no sync has made safe.
    #[inline]
    pub fn window_needs_sync(&self) -> bool {
        self.window.as_ref().is_some_and(|stored| stored.needs > self.synced())
    }

    /// Clears what is stored of the window and belongs to no entry any more.
    ///
    /// # Errors
    /// [`StoreFault`]: now or before.
    pub fn purge_window(&mut self) -> Result<(), StoreFault> {
        let Some(mut stored) = self.window.take() else { return Ok(()) };
        let mut result = Ok(());
        for page in 0..stored.seen.len() as u32 {
            if stored.entries.iter().any(|entry| entry.has(page)) || result.is_err() {
                continue;
            }
            let zeroes = vec![0; stored.sectors() as usize * LOG_SECTOR];
            let at = stored.sector(page, 0);
            result = self.put_window(&mut stored, at, &zeroes);
            let range = page as usize * stored.unit..(page as usize + 1) * stored.unit;
            stored.bytes[range].fill(0);
        }
        self.window = Some(stored);
        result
    }

    /// The drive has lost its power and was brought back: its entries have other serials now.
    pub fn window_power_lost(&mut self) {
        if let Some(stored) = &mut self.window {
            stored.changes = None;
            stored.seen.fill(u32::MAX);
            stored.entries.iter_mut().for_each(|entry| entry.serial = None);
        }
    }
}
