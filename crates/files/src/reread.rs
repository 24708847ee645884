//! Records a file's bytes once more, read back from it, after a change that may not have come about as recorded.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use rustix::fs::OFlags;

use crate::backing::Journal;
use crate::delta::COPY;
use crate::error::FilesError;
use crate::handle::{identify, is_same};
use crate::set::Files;
use crate::system::{errno, read_at};
use crate::table::{Locked, Place};
use tidewater_client::mapped::inode::size;

impl<J: Journal> Files<J> {
    /// Records what the file has where a change was pending: it failed, was short, a signal handler changed the file
    /// amid it, or its process died. Within a signal handler that is left to the change that was interrupted, and where
    /// the file is not to be had, to the next owner of its lock.
    ///
    /// # Errors
    /// The log's, and those of reading the file.
    #[inline]
    pub fn reread(&self, locked: &Locked<'_>, file: BorrowedFd<'_>) -> Result<(), FilesError> {
        match locked.pending() {
            _ if locked.is_nested() => Ok(()),
            None => Ok(()),
            Some(pending) => self.reread_pending(locked, file, pending),
        }
    }

    #[cold]
    fn reread_pending(
        &self,
        locked: &Locked<'_>,
        file: BorrowedFd<'_>,
        (from, to): (u64, u64),
    ) -> Result<(), FilesError> {
        locked.forget_bases();
        // Another thread may have closed it meanwhile, and its number may be another file's.
        let named = if self.is_of(locked.place, file) { None } else { Some(self.by_name(locked.place)) };
        let file = match &named {
            None => file,
            Some(Some(named)) => named.as_fd(),
            Some(None) => return Ok(()),
        };
        let result = self.read_back(locked, file, from, to);
        if let Err(FilesError::System(errno)) = &result {
            // What the file is can't be known: nothing may be promised of it.
            self.table().fail(*errno as u64);
        }
        result?;
        locked.end();
        Ok(())
    }

    /// Whether a descriptor, open or not, is of a file whose lock is held.
    fn is_of(&self, place: Place, file: BorrowedFd<'_>) -> bool {
        identify(file).is_ok_and(|is| is_same(&is, &self.table().bind(place)))
    }

    /// A file of the set, by the name that the log has. `None`: it is not there.
    pub fn by_name(&self, place: Place) -> Option<File> {
        let path = self.table().path(place);
        let mut how = OpenOptions::new();
        let file = how.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(OsStr::from_bytes(path.as_bytes()));
        file.ok().filter(|file| self.is_of(place, file.as_fd()))
    }

    fn read_back(&self, locked: &Locked<'_>, file: BorrowedFd<'_>, from: u64, to: u64) -> Result<(), FilesError> {
        // Its own descriptor may be for writing alone, or past the page cache. Else it is read by that: where another
        // one is closed, the system gives up the process's locks of the file (fcntl(2)).
        let flags = rustix::fs::fcntl_getfl(file).map_err(|errno| Errno::from_raw(errno.raw_os_error()))?;
        let other = if flags.contains(OFlags::WRONLY) || flags.contains(OFlags::DIRECT) {
            Some(File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(errno)?)
        } else {
            None
        };
        let file = other.as_ref().map_or(file, File::as_fd);
        let size = size(file)?;
        self.truncate(locked, size)?;
        let (mut at, end) = (from, to.min(size));
        let mut bytes = [0; COPY];
        while at < end {
            let want = (end - at).min(COPY as u64) as usize;
            let got = read_at(file, &mut bytes[..want], at)?;
            if got == 0 {
                break;
            }
            self.put_bytes(locked, at, &bytes[..got])?;
            at += got as u64;
        }
        Ok(())
    }
}
