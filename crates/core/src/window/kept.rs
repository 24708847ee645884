//! Window state saved when the process exits, restored without an emergency dump.
//!
//! A dump on flash may be there, too. Which of both is newer, write sequences say: a dump's generation is one that no
//! write before it had, and what is kept names the last write that it knew of.

use super::{EntryState, Kept, KeptEntry, Window};
use crate::border::SetupError;

impl Window {
    /// Goes on with what was stored, once the map has recovered: then the table is looked at, too.
    ///
    /// # Errors
    /// When it is not of this window. `units`: logical pages that blocks have.
    pub(crate) fn keep(&mut self, kept: Kept, units: u32) -> Result<(), SetupError> {
        let mut table = super::Table::new(self.table.places() as u32, self.table.pages(), self.table.page_shift());
        let fits = |entry: &KeptEntry| {
            let (bytes, shift) = (entry.bytes.len(), self.table.page_shift());
            let pages = u32::try_from(bytes >> shift).unwrap_or(u32::MAX);
            let is_whole =
                bytes.is_multiple_of(1 << shift) && entry.first.checked_add(pages).is_some_and(|end| end <= units);
            is_whole.then_some(pages)
        };
        for entry in &kept.entries {
            let taken =
                fits(entry).and_then(|pages| table.insert(entry.name, Some(entry.page), entry.first, pages).ok());
            if taken.is_none() {
                let text = "what was kept of the byte window is not of this drive: its [window] size or entries differ";
                return Err(SetupError(text.into()));
            }
        }
        self.kept = Some(Box::new(kept));
        Ok(())
    }

    /// The entries are there again.
    pub(super) fn take_kept(&mut self, kept: &Kept) {
        for entry in &kept.entries {
            let shift = self.table.page_shift();
            let pages = (entry.bytes.len() >> shift) as u32;
            let place = self.table.insert(entry.name, Some(entry.page), entry.first, pages);
            let place = place.expect("it was looked at when it was taken over");
            let there = self.table.get_mut(place).expect("it was inserted");
            (there.state, there.flush_begun) = (EntryState::Pinned, entry.flush_begun);
            self.put(u64::from(entry.page) << shift, entry.bytes.len(), Some(&entry.bytes));
        }
    }

    /// What was kept and is not in the table yet: all there is of the window.
    pub(crate) fn still_kept(&mut self) -> Option<Box<Kept>> {
        let restoring = self.restoring.as_mut().and_then(|restoring| restoring.kept.take());
        self.kept.take().or(restoring)
    }
}
