//! Records of the paths that files have: an id stands for a file, which replay looks for by its newest path.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use tidewater_wire::log::{FILE_PATH_BYTES_MAX, FileBind, FileChangeKind, FileSaid};

use crate::backing::Journal;
use crate::error::FilesError;
use crate::set::{Files, change};
use crate::system::{Directly, Real, sync_folder};
use crate::table::{GONE, Locked, MOVES, PathBytes, Place, REAL, RENAMED, Table};

/// A file that is being renamed, until this is dropped.
#[must_use]
#[derive(Debug)]
pub struct Moving<'f> {
    table: &'f Table,
    place: Place,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.table.unflag(self.place, MOVES);
    }
}

impl<J: Journal> Files<J> {
    /// As [`Files::record_path`], of a file that is about to be renamed, by itself or with its folder: a checkpoint
    /// that does not find it at its new path waits for that.
    ///
    /// # Errors
    /// The log's.
    pub fn record_move(&self, place: Place, path: &[u8], in_folder: bool) -> Result<Moving<'_>, FilesError> {
        self.table().flag(place, MOVES);
        let moving = Moving { table: self.table(), place };
        self.record_path(place, path, in_folder)?;
        Ok(moving)
    }

    /// A file of the set has, or is about to have, another path. `in_folder`: with its folder, which takes its marker
    /// along; what is at the new path of that may have to be empty.
    ///
    /// # Errors
    /// The log's.
    pub fn record_path(&self, place: Place, path: &[u8], in_folder: bool) -> Result<(), FilesError> {
        if !(1..=FILE_PATH_BYTES_MAX).contains(&path.len()) {
            return Err(FilesError::System(Errno::ENAMETOOLONG));
        }
        let Some(locked) = self.for_good(self.table().lock(place, false))? else { return Ok(()) };
        let bind = {
            // From the marker to the path at once: a marker goes when its folder has no file.
            let _all = self.for_good(self.table().lock_all())?;
            let was = self.table().bind(locked.place);
            let marked = if in_folder { None } else { self.mark(path, &Directly) };
            let is = FileBind { is_marked: marked.unwrap_or(was.is_marked), ..was };
            self.table().set_path(locked.place, &is, path)
        };
        self.put(change(FileChangeKind::Bind, place), &[&bind.to_bytes(), path]).map(drop)
    }

    /// Records again what an id stands for: earlier records of it may be trimmed.
    ///
    /// # Errors
    /// The log's.
    pub fn record_path_again(&self, locked: &Locked<'_>) -> Result<(), FilesError> {
        let path = self.table().path(locked.place);
        let len = self.table().known(locked.place).size;
        let bind = FileBind { said: FileSaid::Again, len, ..self.table().bind(locked.place) };
        self.record_bind(locked.place, &bind, &path)
    }

    /// As [`Files::record_path_again`], from what the table had: the id may have been given up since, and records of it
    /// be behind what is trimmed. Whatever they say, the file was synced when it left.
    ///
    /// # Errors
    /// The log's.
    pub fn record_bind(&self, place: Place, bind: &FileBind, path: &PathBytes) -> Result<(), FilesError> {
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

    /// Before a sync of a file that was renamed is answered: where the system syncs it, its new name comes with it
    /// (ext4, XFS), and programs count on that. So the first sync behind a rename is a real one as well.
    ///
    /// # Errors
    /// Those of the system.
    #[inline]
    pub fn sync_name(&self, place: Place, file: BorrowedFd<'_>, real: &impl Real) -> Result<(), FilesError> {
        if self.table().flags(place) & RENAMED == 0 { Ok(()) } else { self.sync_renamed(place, || real.sync(file)) }
    }

    /// Makes the name of a file durable that has just come into the set by it.
    ///
    /// # Errors
    /// The log's, and those of the system: the next sync of the file tries again.
    pub fn sync_folder(&self, place: Place, real: &impl Real) -> Result<(), FilesError> {
        let path = {
            let Some(_locked) = self.for_good(self.table().lock(place, false))? else { return Ok(()) };
            self.table().path(place)
        };
        self.sync_renamed(place, || sync_folder(path.as_bytes(), real))
    }

    #[cold]
    fn sync_renamed(&self, place: Place, sync: impl FnOnce() -> Result<(), Errno>) -> Result<(), FilesError> {
        // Before it: renamed anew meanwhile, it has the flag again.
        self.table().unflag(place, RENAMED);
        let done = sync();
        if done.is_err() {
            self.table().flag(place, RENAMED);
        }
        self.synced(done)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd, BorrowedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::sync::Mutex;

    use super::*;
    use crate::set::tests::{Kept, Nothing};
    use crate::table::Table;
    use tidewater_client::Level;

    /// Notes what was synced: files and folders.
    #[derive(Default)]
    struct Noted(Mutex<[u32; 2]>);

    impl Real for Noted {
        fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
            let mode = nix::sys::stat::fstat(file)?.st_mode;
            self.0.lock().expect("no panic")[usize::from(mode & nix::libc::S_IFMT == nix::libc::S_IFDIR)] += 1;
            Ok(())
        }
    }

    #[test]
    fn the_first_sync_behind_a_rename_makes_the_name_durable() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("the folder exists").join("log");
        let file = File::create(&path).expect("a new file");
        let (table, _memory) = Table::new([7; 16], Level::Ring, Level::Destaged, 4096).expect("memory");
        let files = Files::new(table, Kept::default());
        let place =
            files.enter(file.as_fd(), path.as_os_str().as_bytes(), &Nothing).expect("the file can join the set");
        let place = place.expect("the file is in the set");
        let noted = Noted::default();
        for (renames, synced) in [(false, 0), (true, 1), (false, 1), (true, 2)] {
            if renames {
                files.table().flag(place, RENAMED);
            }
            files.sync_name(place, file.as_fd(), &noted).expect("the folder can be synced");
            assert_eq!(*noted.0.lock().expect("no panic"), [synced, 0]);
        }
        files.table().flag(place, RENAMED);
        files.sync_folder(place, &noted).expect("the folder can be synced");
        files.sync_name(place, file.as_fd(), &noted).expect("the folder can be synced");
        assert_eq!(*noted.0.lock().expect("no panic"), [2, 1], "its name is durable already");
    }
}
