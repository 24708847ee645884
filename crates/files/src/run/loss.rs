//! What a run does when its device is lost, and its files may leave the log.

use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::PoisonError;

use tidewater_wire::log::{FileChange, FileChangeKind};

use super::{Checkpoint, Plain, Run, State, file_error};
use crate::backing::Backing;
use crate::loss::{Loss, is_loss};
use crate::run_error::RunError;
use crate::set::{FilesError, Real, number_of, sync_folder};
use tidewater_client::LogError;

impl<J: Backing> Run<J> {
    /// When the device is lost, the files of the run leave the log and are synced by themselves from then on, instead
    /// of syncs that fail.
    ///
    /// # Errors
    /// Why that is not safe here, and what makes it so.
    pub fn leave_when_lost(&self) -> Result<(), &'static str> {
        self.files.journal().without_device()?;
        self.files.table().may_leave();
        Ok(())
    }

    /// Why all files have left the log: what became of the device. `None`: they have not.
    pub fn left_because(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// The outcome of something that the log was needed for. Where that is the loss of the device, the files leave it.
    pub(super) fn or_leave(&self, done: Result<Option<Checkpoint>, RunError>) -> Result<Option<Checkpoint>, RunError> {
        let lost = match &done {
            Err(RunError::Log(error) | RunError::File { error: FilesError::Log(error), .. }) if is_loss(error) => {
                FilesError::Failed(number_of(error)).to_string()
            }
            _ => return done,
        };
        if self.files.table().begin_to_leave() {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            self.leave_log(&mut state)?;
            let _ = self.lost.set(lost);
            return Ok(None);
        }
        done
    }

    /// Whether the log takes records: else what was said in it lately is not there.
    ///
    /// # Errors
    /// `Gone`: the files leave it.
    pub(super) fn is_recorded(&self) -> Result<(), RunError> {
        if self.files.table().loss() < Loss::Leaves { Ok(()) } else { Err(LogError::Gone.into()) }
    }

    /// Syncs all files, and ends the log with a mark that says so. From then on each file is synced by itself.
    pub(super) fn leave_log(&self, state: &mut State) -> Result<(), RunError> {
        let (log, table) = (self.files.journal(), self.files.table());
        let level = log.without_device().map_err(|why| LogError::Ring(why.into()))?;
        // Who is about to change a file waits until it has left.
        table.set_limit(0, table.piece() as u64);
        log.seal()?;
        // Each lock is taken once: what began before is over, and is recorded, or will not be.
        table.stop_deltas()?;
        let places: Vec<_> = {
            let _all = table.lock_all()?;
            table.entries().map(|place| (place, table.bind(place), table.path(place))).collect()
        };
        let mut folders: Vec<PathBuf> = Vec::new();
        for (place, bind, name) in places {
            state.marks.know(name.as_bytes());
            let Some((file, path)) = self.open(place).or_else(|| self.open_moved(place)) else {
                self.lost(place, &bind, &name)?;
                continue;
            };
            self.ready(place, file.as_fd(), None).map_err(file_error(&path))?;
            Plain.sync(file.as_fd()).map_err(FilesError::System).map_err(file_error(&path))?;
            state.marks.know(path.as_os_str().as_bytes());
            let folder = path.parent().unwrap_or(&path);
            if !folders.iter().any(|one| one == folder) {
                folders.push(folder.to_owned());
                let synced = sync_folder(path.as_os_str().as_bytes(), &Plain).map_err(FilesError::System);
                synced.map_err(file_error(folder))?;
            }
        }
        // As a checkpoint does: the markers say so before the log does. Then they go: a log that has not got the mark
        // must not be replayed, and is refused without them.
        let until = log.end();
        if !self.advance_marks(state, until) {
            let why = "a folder with files of the log was renamed while they left it";
            return Err(RunError::System { what: "leave the log", error: std::io::Error::other(why) });
        }
        let mark = FileChange { kind: FileChangeKind::Synced, offset: until, ..FileChange::default() };
        let written = log.append(&[&mark.to_bytes()])?;
        log.wait(written.end, level)?;
        self.leave_folders(state, true)?;
        state.checkpoints += 1;
        table.has_left();
        Ok(())
    }
}
