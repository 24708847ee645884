//! The syncs of a checkpoint: each file is found by its path, and synced with its folder.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::libc;
use tidewater_wire::log::FileBind;

use super::{CROWD, Run, State, Syncs, file_error};
use crate::backing::Backing;
use crate::error::{FilesError, RunError};
use crate::handle::{identify, is_same};
use crate::system::{Plain, Real, sync_folder};
use crate::table::{GONE, MOVES, PathBytes, Place};
use crate::unrecorded::Seen;

/// How long a checkpoint waits for a file that is being renamed: as long as what is on the log before takes.
const MOVES_WITHIN: Duration = Duration::from_secs(2);

/// A file, as the table had it when a checkpoint began.
pub(super) type Named = (Place, FileBind, PathBytes);

impl<J: Backing> Run<J> {
    /// The files. Under the table's lock.
    pub(super) fn named(&self) -> Vec<Named> {
        let table = self.files.table();
        table.entries().map(|place| (place, table.bind(place), table.path(place))).collect()
    }

    /// Syncs files, and the folders that they are in. How many.
    pub(super) fn sync_files(&self, state: &mut State, places: Vec<Named>, syncs: Syncs) -> Result<usize, RunError> {
        let goes_on = syncs == Syncs::Checkpoint;
        let is_crowded = goes_on && places.len() >= CROWD;
        let mut folders: Vec<PathBuf> = Vec::new();
        let mut files = 0;
        for (place, bind, name) in places {
            state.marks.know(name.as_bytes());
            let Some((file, path)) = self.open(place).or_else(|| self.open_moved(place)) else {
                self.lost(place, &bind, &name)?;
                continue;
            };
            let failed = file_error(&path);
            let rests = self.ready(place, file.as_fd(), goes_on.then_some((&bind, &name))).map_err(&failed)?;
            Plain.sync(file.as_fd()).map_err(FilesError::System).map_err(&failed)?;
            if self.looks && goes_on {
                self.look_at(place, file.as_fd(), &path).map_err(&failed)?;
            }
            if rests && is_crowded {
                self.files.give_way(place, file.as_fd()).map_err(&failed)?;
            }
            files += 1;
            state.marks.know(path.as_os_str().as_bytes());
            let folder = path.parent().unwrap_or(&path);
            if !folders.iter().any(|one| one == folder) {
                folders.push(folder.to_owned());
                let synced = sync_folder(path.as_os_str().as_bytes(), &Plain).map_err(FilesError::System);
                synced.map_err(file_error(folder))?;
            }
        }
        Ok(files)
    }

    /// Opens a file of the table by its path, if it is still there.
    pub(super) fn open(&self, place: Place) -> Option<(Arc<File>, PathBuf)> {
        let path = self.files.table().path(place);
        let path = PathBuf::from(OsStr::from_bytes(path.as_bytes()));
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let open = || OpenOptions::new().read(true).custom_flags(flags).open(&path).ok().map(Arc::new);
        let file = self.locks.find(&path).or_else(open)?;
        let is = identify(file.as_fd()).ok()?;
        is_same(&is, &self.files.table().bind(place)).then_some((file, path))
    }

    /// Whether a file is being renamed, by itself or with its folder: it is not there yet where it will be. Of a
    /// process that died amid it a checkpoint finds that out.
    pub(super) fn is_moving(&self, place: Place) -> bool {
        let flags = self.files.table().flags(place);
        flags & MOVES != 0 && flags & GONE == 0 && self.open(place).is_none()
    }

    /// As [`Run::open`], of a file that is being renamed: once that is done. It must not be taken for one that is gone:
    /// it would come into the set anew, with bytes that a copy of it elsewhere may not have.
    pub(super) fn open_moved(&self, place: Place) -> Option<(Arc<File>, PathBuf)> {
        let start = Instant::now();
        loop {
            // In this order: what has ended since has moved it.
            let moves = self.files.table().flags(place) & MOVES != 0 && start.elapsed() < MOVES_WITHIN;
            if let Some(opened) = self.open(place) {
                return Some(opened);
            }
            if !moves {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether a file that was just synced has bytes that no record has: then recovery must not bring older ones back
    /// over them.
    fn look_at(&self, place: Place, file: BorrowedFd<'_>, path: &Path) -> Result<(), FilesError> {
        if self.files.look_at(place, file, false)? == Seen::Unrecorded {
            self.files.leave(place, file, true, &Plain)?;
            self.notes().push(format!(
                "{}: a process that is not seen has written it (a static program, or one that is not of the run): \
                 it is synced by itself from now on",
                path.display()
            ));
        }
        Ok(())
    }

    /// Prepares the sync of a file. Once its lock is free, each change that was recorded of it is made. `again`: its
    /// identity and path are recorded anew, so that the older records of them can be trimmed. Returns whether the file
    /// is unchanged since the last time.
    pub(super) fn ready(
        &self,
        place: Place,
        file: BorrowedFd<'_>,
        again: Option<(&FileBind, &PathBytes)>,
    ) -> Result<bool, FilesError> {
        match (self.files.lock(place, file, false)?, again) {
            (Some(locked), again) => {
                self.flush(place)?;
                // Of one that is real, too: it may have left just now, behind records that are not trimmed.
                again.map_or(Ok(()), |_| self.files.record_path_again(&locked))?;
                Ok(locked.rests())
            }
            (None, Some((bind, name))) => self.files.record_bind(place, bind, name).map(|()| false),
            (None, None) => Ok(false),
        }
    }

    /// A file that is not at its path any more: removed, moved by another program, or being renamed right now. Its
    /// bytes are made durable by a sync of its file system, and replay leaves it alone. If it is written to again, it
    /// enters the set as a new file.
    fn lost(&self, place: Place, bind: &FileBind, name: &PathBytes) -> Result<(), RunError> {
        let table = self.files.table();
        // Said anew, both: records of it may be behind what is trimmed, and what was said before is not.
        match table.lock(place, false)? {
            Some(locked) => {
                let was_gone = table.flags(place) & GONE != 0;
                self.files.went(place);
                self.files.record_path_again(&locked)?;
                if !was_gone {
                    // Under its lock: what is recorded is in the file, and nothing more is recorded.
                    self.flush(place)?;
                    let path = table.path(place);
                    let folder = Path::new(OsStr::from_bytes(path.as_bytes())).parent().map(File::open);
                    match folder {
                        Some(Ok(folder)) => nix::unistd::syncfs(&folder).map_err(FilesError::System)?,
                        _ => nix::unistd::sync(),
                    }
                    self.files.left(place)?;
                }
            }
            None => self.files.record_bind(place, bind, name)?,
        }
        table.remove(place);
        Ok(())
    }
}
