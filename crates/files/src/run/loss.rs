//! Loss of the device during a run whose files may leave the log.

use std::sync::PoisonError;

use tidewater_wire::log::{FileChange, FileChangeKind};

use super::{Checkpoint, Run, State, Syncs};
use crate::backing::Backing;
use crate::error::{FilesError, RunError, number_of};
use crate::loss::{Loss, is_loss};
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
        let places = {
            let _all = table.lock_all()?;
            self.named()
        };
        self.sync_files(state, places, Syncs::Leaves)?;
        // As a checkpoint does: the markers say so before the log does. Then they go: a log that has not got the mark
        // must not be replayed, and is refused without them.
        let until = log.end();
        if let Some(error) = self.advance_marks(state, until)? {
            return Err(RunError::System { what: "leave the log", error });
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
