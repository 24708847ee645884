//! Files of this process on a log, without a preload: for a layer within a program that all of its writes go through,
//! such as a VFS.

use std::cell::{Cell, OnceCell};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions, canonicalize};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::sys::stat::fstat;

use crate::Globs;
use crate::backing::AnyLog;
use crate::deferred::Flush;
use crate::error::{FilesError, RunError};
use crate::interlock::{adopt, foreign_in};
use crate::marker::split;
use crate::paths::Moving;
use crate::report::Report;
use crate::run::{Ended, Run, Setup, TICK};
use crate::set::{Files, Sync};
use crate::system::{Plain, Real, errno};
use crate::table::{GONE, HELD, Locked, Place, REAL};
use tidewater_client::mapped::inode::{size, which_of};
use tidewater_client::mapped::thread;

/// Result of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// It is on the log and in the file.
    Done,
    /// The real call failed; what the file has now is on the log.
    Failed,
}

impl From<bool> for Changed {
    fn from(done: bool) -> Changed {
        if done { Changed::Done } else { Changed::Failed }
    }
}

/// A file that is written to, with a descriptor of this process's own: its length is asked by it, and what a change has
/// left is read back.
#[derive(Debug)]
struct Open {
    file: Arc<File>,
    place: Place,
}

/// The files of this process on a log.
#[derive(Debug)]
pub struct EmbeddedFiles {
    run: Arc<Run<AnyLog>>,
    open: Mutex<Vec<Option<Arc<Open>>>>,
    /// Instead of their locks, held by who changes files that have left the set.
    left: Mutex<()>,
    over: Arc<AtomicBool>,
    keeper: Option<JoinHandle<()>>,
    /// The process that opened them. A child of a fork has no thread that looks after them, and a log that is not its
    /// own.
    owner: u32,
}

/// Real syncs of files to which layers may defer writes.
struct Flushing<'r>(&'r Run<AnyLog>, Place);

impl Real for Flushing<'_> {
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        // Its lock is held, where the file leaves the set.
        self.0.flush(self.1).map_err(|_| Errno::EIO)?;
        Plain.sync(file)
    }
}

impl EmbeddedFiles {
    /// Opens the log, applies what an earlier process left in it to its files, and looks after it in a thread: it syncs
    /// the files in the background and trims the log behind them.
    ///
    /// # Errors
    /// As [`Run::start`].
    pub fn open(setup: &Setup) -> Result<(EmbeddedFiles, Report), RunError> {
        let (run, report) = Run::start_own(setup)?;
        EmbeddedFiles::of(run).map(|files| (files, report))
    }

    /// The files of a run that has begun.
    pub(crate) fn of(run: Run<AnyLog>) -> Result<EmbeddedFiles, RunError> {
        let (run, over) = (Arc::new(run), Arc::new(AtomicBool::new(false)));
        let (its_run, its_over) = (Arc::clone(&run), Arc::clone(&over));
        let keep = move || {
            while !its_over.load(Ordering::Acquire) {
                // An error is one for good but a log that others fill: syncs and changes tell it.
                match its_run.tick() {
                    Ok(_) | Err(RunError::Held) => std::thread::park_timeout(TICK),
                    Err(_) => break,
                }
            }
        };
        let keeper = thread::spawn("tidewater-files", keep);
        let keeper = keeper.map_err(|error| RunError::System { what: "start a thread", error })?;
        let (open, left, keeper, owner) = (Mutex::default(), Mutex::default(), Some(keeper), std::process::id());
        Ok(EmbeddedFiles { run, open, left, over, keeper, owner })
    }

    /// The run: the level that syncs wait for, and the failures it survives, as for `tidewater run`.
    pub fn run(&self) -> &Run<AnyLog> {
        &self.run
    }

    fn files(&self) -> &Files<AnyLog> {
        self.run.files()
    }

    fn opened(&self) -> MutexGuard<'_, Vec<Option<Arc<Open>>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_owner(&self) -> bool {
        self.owner == std::process::id()
    }

    fn find(&self, number: usize) -> Result<Arc<Open>, FilesError> {
        self.opened().get(number).cloned().flatten().ok_or(FilesError::System(Errno::EBADF))
    }

    /// Puts a file that was opened or created onto the log, before the first write to it. Its present state is made
    /// durable.
    ///
    /// # Errors
    /// The log's, and those of the system.
    pub fn enter(&self, path: &Path) -> Result<usize, FilesError> {
        let path = canonicalize(path).map_err(errno)?;
        let file = match self.run.fcntl_locked().find(&path) {
            Some(file) => file,
            // Not waited for, should it be a pipe.
            None => Arc::new(OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&path).map_err(errno)?),
        };
        self.entered(file, &path)
    }

    /// As [`EmbeddedFiles::enter`], of a file that this process may have locks of (fcntl(2), F_SETLK), such as a
    /// database itself. The system gives up a process's locks of a file when any descriptor of it is closed: so the
    /// file is opened once, and closed when the log is.
    ///
    /// # Errors
    /// As [`EmbeddedFiles::enter`].
    pub fn enter_locked(&self, path: &Path) -> Result<usize, FilesError> {
        let path = canonicalize(path).map_err(errno)?;
        let file = self.run.fcntl_locked().open(&path).map_err(errno)?;
        self.entered(file, &path)
    }

    fn entered(&self, file: Arc<File>, path: &Path) -> Result<usize, FilesError> {
        if !file.metadata().map_err(errno)?.is_file() {
            return Err(FilesError::System(Errno::EINVAL)); // Nothing that could come back.
        }
        self.check_folder(path)?;
        self.run.comes_to(path.as_os_str().as_bytes());
        let (place, mut opened) = loop {
            let place = self.files().enter(file.as_fd(), path.as_os_str().as_bytes(), &Plain)?;
            let place = place.ok_or(FilesError::System(Errno::ENOENT))?;
            let opened = self.opened();
            // It may just have given way to another.
            if let Some(_locked) = self.files().lock(place, file.as_fd(), false)? {
                self.files().table().flag(place, HELD);
                break (place, opened);
            }
        };
        let number = opened.iter().position(Option::is_none).unwrap_or(opened.len());
        if number == opened.len() {
            opened.push(None);
        }
        opened[number] = Some(Arc::new(Open { file, place }));
        Ok(number)
    }

    /// That no other log may hold the file's last bytes.
    fn check_folder(&self, path: &Path) -> Result<(), FilesError> {
        let Some((folder, name)) = split(path.as_os_str().as_bytes()) else { return Ok(()) };
        let run = self.files().table().run();
        let mut foreign = foreign_in(folder, &Globs::only(path), Some(&run))?;
        foreign.retain(|one| one.marker.as_ref().is_none_or(|marker| marker.covers(name)));
        if self.run.adopts() {
            return adopt(&foreign).map_err(|error| errno(error).into());
        }
        foreign.pop().map_or(Ok(()), |one| Err(FilesError::Foreign(Box::new(one))))
    }

    /// Nothing is written to a file any more by this number; deferred writes to it are done. What the log has of it
    /// stays there until it is synced.
    ///
    /// # Errors
    /// `EBADF`, and as [`EmbeddedFiles::catch_up`].
    pub fn close(&self, number: usize) -> Result<(), FilesError> {
        let closed = self.find(number)?;
        let flushed = self.flush(&closed, || self.run.deferred().remove(number));
        let mut opened = self.opened();
        opened[number] = None;
        if !opened.iter().flatten().any(|open| open.place == closed.place) && self.files().table().is(closed.place) {
            self.files().table().unflag(closed.place, HELD);
        }
        flushed
    }

    /// From now on the layer may defer writes to a file: `flush` does those that it has deferred.
    /// It is called under the file's lock, as the real calls are, by any thread: before the file is synced, gets
    /// another length, or is closed, and by [`EmbeddedFiles::catch_up`].
    ///
    /// # Errors
    /// `EBADF`.
    pub fn defer(&self, number: usize, flush: Arc<Flush>) -> Result<(), FilesError> {
        let open = self.find(number)?;
        self.run.deferred().add(open.place, number, flush);
        Ok(())
    }

    /// Does the deferred writes to a file that is about to be read; `None`: to all files.
    ///
    /// # Errors
    /// `EBADF`; `EIO`, where a layer could not: the log alone has that from now on, and fails.
    pub fn catch_up(&self, number: Option<usize>) -> Result<(), FilesError> {
        if let Some(number) = number {
            return self.flush(&*self.find(number)?, || ());
        }
        let opened: Vec<Arc<Open>> = self.opened().iter().flatten().map(Arc::clone).collect();
        opened.iter().filter(|open| self.run.deferred().has(open.place)).try_for_each(|open| self.flush(open, || ()))
    }

    /// Does the deferred writes to a file, and then something else, both under its lock. This is done, too,
    /// where the log has failed: what programs see of their files is to be right until the end.
    fn flush(&self, open: &Open, then: impl FnOnce()) -> Result<(), FilesError> {
        let locked = self.files().lock(open.place, open.file.as_fd(), false);
        let _left = matches!(locked, Ok(None)).then(|| self.of_left());
        let flushed = self.run.flush(open.place);
        then();
        flushed
    }

    fn of_left(&self) -> MutexGuard<'_, ()> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes a file: `record` puts the change on the log, `real` makes it, and returns whether all of it was done.
    /// `may_defer`: the layer may have deferred it.
    fn change(
        &self,
        number: usize,
        may_defer: bool,
        record: impl FnOnce(&Files<AnyLog>, &Locked<'_>, BorrowedFd<'_>) -> Result<(), FilesError>,
        real: impl FnOnce() -> bool,
    ) -> Result<Changed, FilesError> {
        let (open, files) = (self.find(number)?, self.files());
        files.admit()?;
        let file = open.file.as_fd();
        let mut locked = files.lock(open.place, file, false)?;
        // It has left the set with the name that the log had, and came back by another of its names.
        if locked.is_none()
            && let Some(place) = files.find(file)?.filter(|place| files.table().flags(*place) & GONE == 0)
        {
            locked = files.lock(place, file, false)?;
        }
        let Some(locked) = locked else {
            let _left = self.of_left();
            return Ok(real().into()); // It has no name any more, and nothing to come back to.
        };
        if files.table().flags(locked.place) & REAL != 0 {
            return Ok(real().into());
        }
        record(files, &locked, file)?;
        let done = real();
        if done {
            locked.end()
        } else if may_defer && self.run.deferred().has(locked.place) {
            // The file's bytes do not show those that were deferred.
            files.table().fail(Errno::EIO as u64);
            return Err(FilesError::System(Errno::EIO));
        } else {
            files.reread(&locked, file)?
        }
        Ok(done.into())
    }

    /// Writes bytes to a file: on the log, then by `real`, which returns whether all of them were written, or deferred
    /// ([`EmbeddedFiles::defer`]). The bytes must not change meanwhile.
    ///
    /// # Errors
    /// The log's: nothing was written. `EIO`, for good: it was not, and earlier writes to the file are deferred.
    pub fn write(
        &self,
        number: usize,
        offset: u64,
        bytes: &[u8],
        real: impl FnOnce() -> bool,
    ) -> Result<Changed, FilesError> {
        let record = |files: &Files<AnyLog>, locked: &Locked<'_>, _: BorrowedFd<'_>| {
            locked.begin(offset, offset.saturating_add(bytes.len() as u64));
            files.write_unshared(locked, offset, bytes)
        };
        self.change(number, true, record, real)
    }

    /// As [`EmbeddedFiles::write`], of bytes in two parts, which lie in the file one after the other, such as a head
    /// and its page. `real` gets them as one, from where it may write them.
    ///
    /// # Errors
    /// As [`EmbeddedFiles::write`].
    pub fn write_frame(
        &self,
        number: usize,
        offset: u64,
        parts: [&[u8]; 2],
        real: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Changed, FilesError> {
        let (real, done, whole) = (Cell::new(Some(real)), Cell::new(None), OnceCell::new());
        let really = |bytes: &[u8]| real.take().is_some_and(|real| real(bytes));
        // Where no base is kept that they could be put together in.
        let whole = || whole.get_or_init(|| parts.concat()).as_slice();
        let record = |files: &Files<AnyLog>, locked: &Locked<'_>, _: BorrowedFd<'_>| {
            done.set(files.write_frame(locked, offset, parts, really)?);
            if done.get().is_none() {
                locked.begin(offset, offset.saturating_add(whole().len() as u64));
                files.write_unshared(locked, offset, whole())?;
            }
            Ok(())
        };
        self.change(number, true, record, || done.get().unwrap_or_else(|| really(whole())))
    }

    /// Gives a file a length.
    ///
    /// # Errors
    /// As [`EmbeddedFiles::write`].
    pub fn truncate(&self, number: usize, len: u64, real: impl FnOnce() -> bool) -> Result<Changed, FilesError> {
        let record = |files: &Files<AnyLog>, locked: &Locked<'_>, file: BorrowedFd<'_>| {
            self.run.flush(locked.place)?;
            let size = size(file)?;
            locked.begin(len.min(size), len.max(size));
            files.truncate(locked, len)
        };
        self.change(number, false, record, real)
    }

    /// Removes a file by its name, of the log or not, or an empty folder, by `real`, which returns whether it did.
    ///
    /// # Errors
    /// The log's: nothing was removed.
    pub fn remove(&self, path: &Path, real: impl FnOnce() -> bool) -> Result<Changed, FilesError> {
        let files = self.files();
        let found = self.look(path);
        if found.as_deref().is_some_and(is_folder) {
            let done = files.without_marker(whole(path)?.as_os_str().as_bytes(), real)?;
            return Ok(done.into());
        }
        let goes = match &found {
            Some(file) => self.loses_name(file, path)?,
            None => None,
        };
        files.order()?;
        let done = real();
        if let Some(place) = goes.filter(|_| !done) {
            files.table().unflag(place, GONE);
        }
        Ok(done.into())
    }

    /// The file of a name, if it can be opened.
    fn look(&self, path: &Path) -> Option<Arc<File>> {
        let open = || OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path).ok().map(Arc::new);
        self.run.fcntl_locked().find(path).or_else(open)
    }

    /// Before a file loses a name. `Some`: it is the last one of a file of the log. One that has others leaves the set,
    /// unless the log knows it by another.
    fn loses_name(&self, file: &File, path: &Path) -> Result<Option<Place>, FilesError> {
        let files = self.files();
        let (Some(place), names) = (files.find(file.as_fd())?, fstat(file)?.st_nlink) else { return Ok(None) };
        if names == 1 {
            files.going(place)?;
            return Ok(Some(place));
        }
        if files.is_at(place, whole(path)?.as_os_str().as_bytes())? {
            files.leave(place, file.as_fd(), false, &Flushing(&self.run, place))?;
        }
        Ok(None)
    }

    /// Before a folder gets another name: so do the files of the log that are below it. Or, where it did not, they have
    /// the old one again.
    fn moves_folder(&self, from: &Path, to: &Path) -> Result<Vec<Moving<'_>>, FilesError> {
        let (from, to, files) = (whole(from)?, whole(to)?, self.files());
        let mut moving = Vec::new();
        self.run.folder_moves(&from, &to);
        for place in files.table().entries() {
            let path = files.table().path(place);
            if let Ok(below) = Path::new(OsStr::from_bytes(path.as_bytes())).strip_prefix(&from) {
                moving.push(files.record_move(place, to.join(below).as_os_str().as_bytes(), true)?);
            }
        }
        Ok(moving)
    }

    /// Gives a file or a folder another name, be it of the log or not, by `real`, which returns whether it did.
    /// Deferred writes to it are done first.
    ///
    /// # Errors
    /// The log's: nothing was renamed.
    pub fn rename(&self, from: &Path, to: &Path, real: impl FnOnce() -> bool) -> Result<Changed, FilesError> {
        let files = self.files();
        let (file, over) = (self.look(from), self.look(to));
        if file.as_deref().is_some_and(is_folder) {
            let _moving = self.moves_folder(from, to)?;
            files.order()?;
            let done = files.without_marker(whole(to)?.as_os_str().as_bytes(), real)?;
            if !done {
                drop(self.moves_folder(to, from)?);
            }
            return Ok(done.into());
        }
        let is_same = match (&file, &over) {
            (Some(one), Some(other)) => which_of(one.as_fd())? == which_of(other.as_fd())?,
            _ => false,
        };
        let mut goes = None;
        if let Some(over) = over.filter(|_| !is_same) {
            goes = self.loses_name(&over, to)?;
        }
        let mut moving = None;
        if let Some(file) = file.filter(|_| !is_same)
            && let Some(place) = files.find(file.as_fd())?
        {
            let locked = files.lock(place, file.as_fd(), false)?;
            self.run.flush(place)?;
            drop(locked);
            let (was, is) = (files.table().path(place), whole(to)?);
            for path in [was.as_bytes(), is.as_os_str().as_bytes()] {
                self.run.comes_to(path);
            }
            moving = Some((files.record_move(place, is.as_os_str().as_bytes(), false)?, place, was));
        }
        files.order()?;
        let done = real();
        if !done {
            // Else it would be looked for where it is not.
            if let Some(place) = goes {
                files.table().unflag(place, GONE);
            }
            if let Some((_moving, place, was)) = &moving {
                files.record_path(*place, was.as_bytes(), false)?;
            }
        }
        drop(moving);
        Ok(done.into())
    }

    /// Waits until all that was written to files of the log is at its level.
    ///
    /// # Errors
    /// The log's: it is not, or that is not known. For good.
    pub fn sync(&self, number: usize) -> Result<(), FilesError> {
        let open = self.find(number)?;
        match self.files().sync(open.place)? {
            Sync::Waited => Ok(()),
            Sync::Real => {
                self.flush(&open, || ())?;
                Ok(nix::unistd::fdatasync(&open.file)?)
            }
        }
    }

    /// Before anything else may become durable (a sync, a rename, a removal of another file), what is on the log has to
    /// be.
    ///
    /// # Errors
    /// As [`EmbeddedFiles::sync`].
    pub fn order(&self) -> Result<(), FilesError> {
        self.files().order()
    }

    fn stop(&mut self) {
        if !self.is_owner() {
            // The thread is its parent's, and what is known of it here is of no use.
            std::mem::forget(self.keeper.take());
            return;
        }
        self.over.store(true, Ordering::Release);
        if let Some(keeper) = self.keeper.take() {
            keeper.thread().unpark();
            let _ = keeper.join();
        }
    }

    /// Syncs all files, and empties the log. In a child of a fork it only closes them: the log is its parent's.
    ///
    /// # Errors
    /// As [`Run::finish`]: the log keeps what it has.
    pub fn finish(mut self) -> Result<Ended, RunError> {
        self.stop();
        if !self.is_owner() {
            return Ok(Ended::default());
        }
        self.run.finish()
    }
}

fn is_folder(file: &File) -> bool {
    file.metadata().is_ok_and(|about| about.is_dir())
}

/// The path of a name, whether there is anything or not, without symbolic links before it.
fn whole(path: &Path) -> Result<PathBuf, FilesError> {
    let name = path.file_name().ok_or(FilesError::System(Errno::EINVAL))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(canonicalize(folder).map_err(errno)?.join(name))
}

impl Drop for EmbeddedFiles {
    /// Leaves the log as it is: the next open applies it.
    fn drop(&mut self) {
        self.stop();
    }
}
