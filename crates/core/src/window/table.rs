//! The mapping table, and the address translation unit that follows from it.

use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::status as vendor_status;

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Its blocks come into the buffer: nothing can be stored yet.
    Pinning,
    /// The host stores into it.
    Pinned,
    /// It is written to flash: it takes no stores any more.
    Flushing,
}

/// A range of logical blocks in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name that the host gave it.
    pub name: u16,
    /// Which one it is: no other of this window has it, since power-on.
    pub serial: u64,
    /// Where it stands.
    pub state: EntryState,
    /// A Flush has begun: some of its pages may be newer on flash than others.
    pub flush_begun: bool,
    /// First page of the buffer.
    pub page: u32,
    /// First logical page.
    pub first: u32,
    /// Logical pages.
    pub pages: u32,
}

impl Entry {
    /// The first logical page after it.
    pub fn end(&self) -> u32 {
        self.first + self.pages
    }

    /// Whether it has some of the logical pages `first..end`.
    #[inline]
    pub fn touches(&self, first: u32, end: u32) -> bool {
        first < self.end() && self.first < end
    }
}

/// No entry has this page of the buffer.
const NO_OWNER: u8 = u8::MAX;

/// The mapping table.
#[derive(Clone, Debug)]
pub struct Table {
    entries: Vec<Option<Entry>>,
    /// The address translation unit: for each page of the buffer, whose it is.
    owners: Vec<u8>,
    used: usize,
    page_shift: u32,
    /// Entries that were taken in.
    serials: u64,
    /// Changes so far.
    changes: u64,
}

impl Table {
    /// An empty table with so many places over a buffer of so many pages of `1 << page_shift` bytes.
    pub(crate) fn new(places: u32, pages: u32, page_shift: u32) -> Table {
        assert!(places < NO_OWNER.into(), "{places} entries");
        Table {
            entries: vec![None; places as usize],
            owners: vec![NO_OWNER; pages as usize],
            used: 0,
            page_shift,
            serials: 0,
            changes: 0,
        }
    }

    /// How often it has changed.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Entries that are pinned, or are about to be.
    #[inline]
    pub fn used(&self) -> usize {
        self.used
    }

    /// How many there can be.
    pub fn places(&self) -> usize {
        self.entries.len()
    }

    /// Pages of the buffer.
    pub fn pages(&self) -> u32 {
        self.owners.len() as u32
    }

    /// Bytes of a page as a power of two.
    pub fn page_shift(&self) -> u32 {
        self.page_shift
    }

    /// The entries with their places.
    pub fn entries(&self) -> impl Iterator<Item = (usize, &Entry)> {
        self.entries.iter().enumerate().filter_map(|(place, entry)| Some((place, entry.as_ref()?)))
    }

    /// The place of the entry with this name.
    pub fn find(&self, name: u16) -> Option<usize> {
        self.entries().find(|(_, entry)| entry.name == name).map(|(place, _)| place)
    }

    /// The entry at a place.
    pub fn get(&self, place: usize) -> Option<&Entry> {
        self.entries.get(place)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, place: usize) -> Option<&mut Entry> {
        self.changes += 1;
        self.entries.get_mut(place)?.as_mut()
    }

    /// The place of the entry whose part of the buffer this page is: the address translation.
    #[inline]
    pub fn owner(&self, page: u32) -> Option<usize> {
        self.owners.get(page as usize).filter(|&&owner| owner != NO_OWNER).map(|&owner| owner.into())
    }

    /// The place of an entry that has some of these logical pages.
    pub fn touching(&self, first: u32, end: u32) -> Option<usize> {
        self.entries().find(|(_, entry)| entry.touches(first, end)).map(|(place, _)| place)
    }

    /// Takes an entry in. `page`: its place in the buffer; `None`: the first gap that is large enough. The caller has
    /// checked that its logical pages exist.
    ///
    /// # Errors
    /// A name that is taken, a full table, logical pages or bytes of the buffer that another entry has, a place outside
    /// of the buffer, no gap.
    pub(super) fn insert(&mut self, name: u16, page: Option<u32>, first: u32, pages: u32) -> Result<usize, Status> {
        if let Some(place) = self.find(name) {
            let busy = self.get(place).is_some_and(|entry| entry.state != EntryState::Pinned);
            return Err(if busy { vendor_status::ENTRY_BUSY } else { vendor_status::ENTRY_EXISTS });
        }
        if pages == 0 || pages > self.pages() || page.is_some_and(|page| page > self.pages() - pages) {
            return Err(vendor_status::WINDOW_RANGE);
        }
        if self.touching(first, first + pages).is_some() {
            return Err(vendor_status::LBA_OVERLAP);
        }
        let place = self.entries.iter().position(Option::is_none).ok_or(vendor_status::TABLE_FULL)?;
        let page = match page {
            Some(page) if self.is_free(page, pages) => page,
            Some(_) => return Err(vendor_status::BUFFER_OVERLAP),
            None => self.gap(pages).ok_or(vendor_status::BUFFER_FULL)?,
        };
        (self.serials, self.changes) = (self.serials + 1, self.changes + 1);
        let (serial, state) = (self.serials, EntryState::Pinning);
        self.entries[place] = Some(Entry { name, serial, state, flush_begun: false, page, first, pages });
        self.owners[page as usize..(page + pages) as usize].fill(place as u8);
        self.used += 1;
        Ok(place)
    }

    /// Frees an entry's place and pages.
    pub(super) fn remove(&mut self, place: usize) {
        let entry = self.entries[place].take().expect("an entry that is freed is there");
        self.owners[entry.page as usize..(entry.page + entry.pages) as usize].fill(NO_OWNER);
        self.used -= 1;
        self.changes += 1;
    }

    fn is_free(&self, page: u32, pages: u32) -> bool {
        self.owners[page as usize..(page + pages) as usize].iter().all(|&owner| owner == NO_OWNER)
    }

    /// The first run of so many free pages.
    fn gap(&self, pages: u32) -> Option<u32> {
        let mut run = 0;
        self.owners.iter().zip(1..).find_map(|(&owner, end)| {
            run = if owner == NO_OWNER { run + 1 } else { 0 };
            (run == pages).then(|| end - pages)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_overlap_neither_in_the_buffer_nor_among_blocks() {
        let mut table = Table::new(3, 8, 12);
        let a = table.insert(7, None, 100, 3).unwrap();
        assert_eq!(table.get(a).unwrap().page, 0);
        assert_eq!(table.insert(7, None, 200, 1), Err(vendor_status::ENTRY_BUSY));
        table.get_mut(a).unwrap().state = EntryState::Pinned;
        assert_eq!(table.insert(7, None, 200, 1), Err(vendor_status::ENTRY_EXISTS));
        assert_eq!(table.insert(8, None, 102, 1), Err(vendor_status::LBA_OVERLAP));
        assert_eq!(table.insert(8, None, 98, 3), Err(vendor_status::LBA_OVERLAP));
        assert_eq!(table.insert(8, Some(2), 103, 1), Err(vendor_status::BUFFER_OVERLAP));
        assert_eq!(table.insert(8, Some(6), 103, 3), Err(vendor_status::WINDOW_RANGE));
        assert_eq!(table.insert(8, Some(u32::MAX), 103, 1), Err(vendor_status::WINDOW_RANGE));
        assert_eq!(table.insert(8, None, 103, 9), Err(vendor_status::WINDOW_RANGE));
        assert_eq!(table.insert(8, None, 103, 6), Err(vendor_status::BUFFER_FULL));
        let b = table.insert(8, Some(4), 103, 2).unwrap();
        assert_eq!(table.insert(9, None, 0, 3), Err(vendor_status::BUFFER_FULL), "the gaps are one page and two");
        table.insert(9, None, 0, 2).unwrap();
        assert_eq!(table.insert(10, None, 50, 1), Err(vendor_status::TABLE_FULL));
        assert_eq!((table.owner(5), table.owner(3)), (Some(b), None));
        table.remove(b);
        assert_eq!((table.owner(5), table.used(), table.touching(104, 105)), (None, 2, None));
    }
}
