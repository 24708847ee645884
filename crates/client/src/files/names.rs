//! What the log says of a file's names: an id stands for a file, which replay looks for by the paths that were said last.

use nix::errno::Errno;
use tidewater_wire::vendor::{FILE_PATH_BYTES_MAX, FileBind, FileChangeKind};

use super::set::{Files, FilesError, Journal, change};
use super::table::{GONE, Locked, PathBytes, Place, REAL};

impl<J: Journal> Files<J> {
    /// A file of the set has, or is about to have, another path. `moves`: this is where it is from now on.
    ///
    /// # Errors
    /// The log's.
    pub fn name(&self, place: Place, path: &[u8], moves: bool) -> Result<(), FilesError> {
        if !(1..=FILE_PATH_BYTES_MAX).contains(&path.len()) {
            return Err(FilesError::System(Errno::ENAMETOOLONG));
        }
        let Some(locked) = self.for_good(self.table().lock(place, false))? else { return Ok(()) };
        let mut bind = FileBind { path_bytes: path.len() as u16, ..self.table().bind(locked.place) };
        if moves {
            bind = self.table().set_path(locked.place, &bind, path);
        }
        self.put(change(FileChangeKind::Bind, place), &[&bind.to_bytes(), path]).map(drop)
    }

    /// Says again what an id stands for, which makes what was said before superfluous.
    ///
    /// # Errors
    /// The log's.
    pub fn say_again(&self, locked: &Locked<'_>) -> Result<(), FilesError> {
        let path = self.table().path(locked.place);
        let bind = self.table().bind(locked.place);
        self.say_name(locked.place, &bind, &path)
    }

    /// As [`Files::say_again`], from what the table had: the id may have been given up since, and records of it be behind what is trimmed. Whatever they say, the
    /// file was synced when it left.
    ///
    /// # Errors
    /// The log's.
    pub fn say_name(&self, place: Place, bind: &FileBind, path: &PathBytes) -> Result<(), FilesError> {
        self.put(change(FileChangeKind::Bind, place), &[&bind.to_bytes(), path.as_bytes()])?;
        let (flags, is) = (self.table().flags(place), self.table().is(place));
        if flags & GONE != 0 || !is {
            self.put(change(FileChangeKind::Gone, place), &[])?;
        }
        if flags & REAL != 0 || !is {
            self.put(change(FileChangeKind::Leave, place), &[])?;
        }
        Ok(())
    }

    /// Whether the log knows a file of the set by this path last.
    ///
    /// # Errors
    /// The log's.
    pub fn is_at(&self, place: Place, path: &[u8]) -> Result<bool, FilesError> {
        let locked = self.for_good(self.table().lock(place, false))?;
        Ok(locked.is_some() && self.table().path(place).as_bytes() == path)
    }
}
