//! The marker that a run's processes put beside the files that they bring into the set.

use nix::errno::Errno;

use super::{HEAD, Table, Word};
use crate::marker::Marker;

impl Table {
    /// Sets the marker for folders of files, but for the folder itself. Before the table is shared.
    ///
    /// # Errors
    /// `E2BIG`: it is too long.
    pub(crate) fn set_marker(&self, marker: &Marker) -> Result<(), Errno> {
        let text = marker.to_text();
        if text.len() as u64 > HEAD - Word::Marker as u64 {
            return Err(Errno::E2BIG);
        }
        self.memory.write(Word::Marker as u64, text.as_bytes());
        self.set(Word::MarkerBytes, text.len() as u64);
        self.has_come(marker.epoch, marker.seen, marker.synced);
        Ok(())
    }

    /// The marker for folders of files now; `None`: none.
    pub(crate) fn marker(&self) -> Option<Marker> {
        let len = self.get(Word::MarkerBytes).min(HEAD - Word::Marker as u64);
        let mut text = vec![0; len as usize];
        self.memory.read(Word::Marker as u64, &mut text);
        let marker = Marker::parse(std::str::from_utf8(&text).ok()?)?;
        let [epoch, seen, synced] = [Word::Epoch, Word::Seen, Word::Synced].map(|word| self.get(word));
        Some(Marker { epoch, seen, synced, ..marker })
    }

    /// How far the log and the files have come, for markers that are made from now on.
    pub(crate) fn has_come(&self, epoch: u64, seen: u64, synced: u64) {
        for (word, value) in [(Word::Epoch, epoch), (Word::Seen, seen), (Word::Synced, synced)] {
            self.set(word, value);
        }
    }
}
