//! Files that come into the set, and leave it.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::stat::fstat;
use tidewater_wire::log::{FILE_PATH_BYTES_MAX, FileBind, FileChangeKind};

use crate::backing::Journal;
use crate::content::described;
use crate::error::FilesError;
use crate::handle::{identify, is_same, is_same_there};
use crate::loss::{Loss, is_loss};
use crate::set::{Files, change};
use crate::system::{Real, sync_folder};
use crate::table::{Counter, GONE, HELD, Place, REAL, SYNCS};
use crate::unrecorded::known;

/// How long a file waits for a place in the table: two checkpoints, and their syncs.
const PLACE: Duration = Duration::from_secs(5);

impl<J: Journal> Files<J> {
    /// A file comes into the set: what it is now is made durable by itself, and from here on its changes are recorded.
    /// `path`: absolute, without symbolic links. `None`: it has no name any more.
    ///
    /// # Errors
    /// The log's, those of the system, and too many files.
    pub fn enter(&self, file: BorrowedFd<'_>, path: &[u8], real: &impl Real) -> Result<Option<Place>, FilesError> {
        self.enter_by(file, path, true, real)
    }

    /// As [`Files::enter`], of a file that is about to be renamed into the set: the folder that it is in is none of it,
    /// and gets no marker, which would stay there.
    ///
    /// # Errors
    /// As [`Files::enter`].
    pub fn enter_from(&self, file: BorrowedFd<'_>, path: &[u8], real: &impl Real) -> Result<Option<Place>, FilesError> {
        self.enter_by(file, path, false, real)
    }

    fn enter_by(
        &self,
        file: BorrowedFd<'_>,
        path: &[u8],
        marks: bool,
        real: &impl Real,
    ) -> Result<Option<Place>, FilesError> {
        self.check()?;
        self.admit()?;
        let start = Instant::now();
        loop {
            match self.try_enter(file, path, marks, real) {
                // Checkpoints make room: of files that rest.
                Err(FilesError::TooMany) if self.check().is_ok() && start.elapsed() < PLACE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done,
            }
        }
    }

    fn try_enter(
        &self,
        file: BorrowedFd<'_>,
        path: &[u8],
        marks: bool,
        real: &impl Real,
    ) -> Result<Option<Place>, FilesError> {
        let all = self.for_good(self.table().lock_all())?;
        let about = fstat(file)?;
        if about.st_nlink == 0 {
            return Ok(None);
        }
        let is = identify(file)?;
        if let Some(place) = self.table().find(about.st_dev, about.st_ino) {
            if is_same(&is, &self.table().bind(place)) && self.table().flags(place) & GONE == 0 {
                // Another of its names, or renamed by who does not say so: by its last one it may not be found any
                // more. Looked at without its lock, which a program that opens it within a signal handler may have.
                let is_at = self.table().path(place).as_bytes() == path;
                drop(all);
                if !is_at {
                    self.record_path(place, path, false)?;
                }
                return Ok(Some(place));
            }
            self.table().remove(place); // Another file had the inode, or it was to go and stayed.
        }
        if !(1..=FILE_PATH_BYTES_MAX).contains(&path.len()) {
            return Err(FilesError::System(Errno::ENAMETOOLONG));
        }
        let is = FileBind { is_marked: marks && self.mark(path, real).unwrap_or(false), ..is };
        let place = self.table().reserve().ok_or(FilesError::TooMany)?;
        self.table().set_known(place, known(file)?);
        self.synced(real.sync(file))?;
        self.synced(sync_folder(path, real))?;
        let bind = self.table().set_path(place, &is, path);
        let bind = described(file, &bind, self.table().level().is_remote())?;
        self.put(change(FileChangeKind::Bind, place), &[&bind.to_bytes(), path])?;
        self.table().publish(place, about.st_dev, about.st_ino);
        drop(all);
        self.table().count(Counter::Entered, 1);
        Ok(Some(place))
    }

    /// Stops recording a file. `stays`: its name is of the set, and it is not taken in again; its syncs are real.
    ///
    /// # Errors
    /// The log's, and those of the system.
    pub fn leave(&self, place: Place, file: BorrowedFd<'_>, stays: bool, real: &impl Real) -> Result<(), FilesError> {
        if self.table().flags(place) & REAL != 0 && stays {
            return Ok(());
        }
        let Some(_locked) = self.lock(place, file, false)? else { return Ok(()) };
        if self.table().flags(place) & REAL == 0 {
            self.synced(real.sync(file))?;
            self.left(place)?;
        }
        if stays {
            self.table().flag(place, REAL);
        } else {
            self.table().remove(place);
        }
        Ok(())
    }

    /// Gives the place of a file to another, if it was not changed since [`Locked::rests`], and it was synced since:
    /// what is written to it next brings it back. What else becomes durable by then waits for the log.
    ///
    /// # Errors
    /// The log's, and those of the system.
    pub(crate) fn give_way(&self, place: Place, file: BorrowedFd<'_>) -> Result<(), FilesError> {
        let Some(locked) = self.lock(place, file, false)? else { return Ok(()) };
        // A program that gets the descriptor by execve(2) learns from the place alone that its writes are syncs.
        if locked.is_idle() && self.table().flags(place) & (REAL | GONE | HELD | SYNCS) == 0 {
            self.put(change(FileChangeKind::Leave, place), &[])?;
            self.table().remove(place);
        }
        Ok(())
    }

    /// A file that was synced for real, and whose lock is held, is not replayed any more.
    ///
    /// # Errors
    /// The log's.
    pub(crate) fn left(&self, place: Place) -> Result<(), FilesError> {
        let left = self.put(change(FileChangeKind::Leave, place), &[])?;
        // Its next bytes are durable whenever the system likes: the record has to be first. Where all files leave,
        // the log will say so of all.
        if self.table().loss() < Loss::Leaves {
            match self.journal().wait(left.end, self.table().outside()) {
                Err(error) if is_loss(&error) && self.table().begin_to_leave() => {}
                result => self.for_good(result)?,
            }
        }
        self.table().count(Counter::Left, 1);
        Ok(())
    }

    /// Takes up what came of a sync of a file, or of its folder. Where bytes did not get to the disk, the system may
    /// take them for clean from then on, and a later sync, of the supervisor too, would return without them: so nothing
    /// more is promised, and the log keeps what it has for recovery, which writes it anew.
    ///
    /// # Errors
    /// That it failed.
    pub(crate) fn synced(&self, done: Result<(), Errno>) -> Result<(), FilesError> {
        // The others are not of the disk (fsync(2)).
        if let Err(Errno::EIO | Errno::ENOSPC | Errno::EDQUOT) = done {
            self.table().fail(Errno::EIO as u64);
        }
        Ok(done?)
    }

    /// The place of a file, if it is of the set, or was and has no name any more.
    ///
    /// # Errors
    /// Those of the system.
    pub fn find(&self, file: BorrowedFd<'_>) -> Result<Option<Place>, FilesError> {
        let about = fstat(file)?;
        let Some(place) = self.table().find(about.st_dev, about.st_ino) else { return Ok(None) };
        let is = identify(file)?;
        // Its device is the place's.
        Ok(is_same_there(&is, &self.table().bind(place)).then_some(place))
    }

    /// The last name of a file of the set is about to be removed. It is said first, and has come as far as names may:
    /// else recovery would miss a file that was removed on purpose, and refuse.
    ///
    /// # Errors
    /// The log's: the file is not to be removed.
    pub fn going(&self, place: Place) -> Result<(), FilesError> {
        if let Some(_locked) = self.for_good(self.table().lock(place, false))? {
            // The flag first: a checkpoint that says the file's name again from now on says this again, too.
            self.went(place);
            self.put(change(FileChangeKind::Gone, place), &[])?;
        }
        self.order()
    }

    /// It was removed.
    pub fn went(&self, place: Place) {
        self.table().flag(place, GONE);
    }
}
