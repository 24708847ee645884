//! Bytes that reached a file of the set and no record: by a call that no library stands before, or from a process that
//! is not of the run (ADR 34).
//!
//! No sync may be answered from the log for such a file. What its records make of it is known: its length, and when the
//! last recorded change was over. A change that no record has gives it another length, or a later stamp. Lengths are
//! compared at each sync; stamps once in a tick of the system's clock, since to ask for them costs the next change of
//! the file a stamp of its own (`mapped::inode`), and changes within one tick can have the same.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use crate::backing::Journal;
use crate::error::FilesError;
use crate::set::Files;
use crate::system::{now_ns, tick_ns};
use crate::table::{Known, Locked, Place, REAL, TIMED, UNRECORDED, UNTIMED};
use tidewater_client::mapped::inode::{Stamped, stamped};

/// Result of comparing a file with its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Nothing but what is recorded.
    Recorded,
    /// Bytes that no record has.
    Unrecorded,
    /// Its stamps were set by hand (utimensat(2)), or the clock was: what came before that is not known.
    Unknown,
    /// The descriptor is another file's by now.
    Another,
}

/// State of a file that comes into the set, before it is made durable.
pub(crate) fn known(file: BorrowedFd<'_>) -> Result<Known, Errno> {
    let now = now_ns();
    let is = stamped(file, true)?;
    let changed = is.changed_ns.map_or(0, |(bytes, _)| bytes);
    Ok(Known { size: is.size, low_ns: changed, high_ns: changed, checked_ns: now })
}

/// Whether a file is what its records say. `times`: its stamps tell.
fn judge(known: Known, is: Stamped, now: u64) -> Seen {
    if is.size != known.size {
        return Seen::Unrecorded;
    }
    match is.changed_ns {
        None => Seen::Recorded,
        Some((bytes, _)) if (known.low_ns..=known.high_ns).contains(&bytes) => Seen::Recorded,
        // A change of bytes gives both the same. One that lies before what was seen, or after now, is none that the
        // system made.
        Some((bytes, any)) if bytes == any && bytes > known.high_ns && bytes <= now && known.high_ns <= now => {
            Seen::Unrecorded
        }
        Some(_) => Seen::Unknown,
    }
}

impl<J: Journal> Files<J> {
    /// Before a recorded change that begins at an offset, under its lock: what came before it without a record would
    /// have a stamp that this change covers. The next sync sees to it.
    ///
    /// # Errors
    /// Those of the system.
    #[inline]
    pub fn look_before(&self, locked: &Locked<'_>, file: BorrowedFd<'_>, from: u64) -> Result<(), FilesError> {
        let known = self.table().known(locked.place);
        if tick_ns() > known.high_ns.max(known.checked_ns) || from > known.size {
            self.look(locked, file, from)
        } else {
            Ok(())
        }
    }

    #[cold]
    fn look(&self, locked: &Locked<'_>, file: BorrowedFd<'_>, _from: u64) -> Result<(), FilesError> {
        if locked.is_nested()
            || locked.pending().is_some()
            || !matches!(self.compare(locked.place, file)?, Seen::Unrecorded)
        {
            return Ok(());
        }
        self.table().flag(locked.place, UNRECORDED);
        Ok(())
    }

    /// After the first recorded change of a file, under its lock and before it is over: whether its stamps are of use.
    ///
    /// # Errors
    /// Those of the system.
    #[inline]
    pub fn look_behind(&self, locked: &Locked<'_>, file: BorrowedFd<'_>) -> Result<(), FilesError> {
        let is_known = self.table().flags(locked.place) & (TIMED | UNTIMED) != 0;
        if is_known || locked.is_nested() { Ok(()) } else { self.try_stamps(locked, file) }
    }

    #[cold]
    fn try_stamps(&self, locked: &Locked<'_>, file: BorrowedFd<'_>) -> Result<(), FilesError> {
        let before = self.table().known(locked.place);
        let is = stamped(file, true)?;
        let now = now_ns();
        let changed = is.changed_ns.map_or(0, |(bytes, _)| bytes);
        // Of this file, which may have lost its number to another meanwhile, and not long ago.
        if is.which != self.table().which(locked.place) {
            return Ok(());
        }
        let is_timed = changed >= before.low_ns && changed <= now && now - changed < 1_000_000_000;
        self.table().flag(locked.place, if is_timed { TIMED } else { UNTIMED });
        Ok(())
    }

    /// Before a sync of a file is answered from the log: what a look at it finds. `held`: this thread has its lock, and
    /// was interrupted by a signal.
    ///
    /// # Errors
    /// The log's, and those of the system.
    #[inline]
    pub fn look_at(&self, place: Place, file: BorrowedFd<'_>, held: bool) -> Result<Seen, FilesError> {
        let table = self.table();
        if !table.is(place) || table.flags(place) & REAL != 0 {
            return Ok(Seen::Recorded);
        }
        if table.flags(place) & UNRECORDED == 0 && !table.is_changing(place) {
            let known = table.known(place);
            let seen = self.compare(place, file)?;
            // A change that began meanwhile would be taken for one without a record.
            if matches!(seen, Seen::Recorded | Seen::Another)
                && !table.is_changing(place)
                && table.known(place).high_ns == known.high_ns
            {
                return Ok(seen);
            }
        }
        if held { Ok(Seen::Recorded) } else { self.look_under_lock(place, file) }
    }

    #[cold]
    fn look_under_lock(&self, place: Place, file: BorrowedFd<'_>) -> Result<Seen, FilesError> {
        let Some(locked) = self.lock(place, file, false)? else { return Ok(Seen::Recorded) };
        self.look_locked(&locked, file)
    }

    /// As [`Files::look_at`], under the file's lock.
    ///
    /// # Errors
    /// Those of the system.
    pub fn look_locked(&self, locked: &Locked<'_>, file: BorrowedFd<'_>) -> Result<Seen, FilesError> {
        if locked.pending().is_some() || self.table().flags(locked.place) & REAL != 0 {
            return Ok(Seen::Recorded); // Its file was not to be had: the next one rereads it.
        }
        if self.table().flags(locked.place) & UNRECORDED != 0 {
            return Ok(Seen::Unrecorded);
        }
        Ok(self.compare(locked.place, file)?)
    }

    /// A file of the set was written without a record, as far as is known: the next sync of it makes it real.
    pub fn was_passed_by(&self, place: Place) {
        self.table().flag(place, UNRECORDED);
    }

    /// Holds a file against what its records say.
    #[inline]
    fn compare(&self, place: Place, file: BorrowedFd<'_>) -> Result<Seen, Errno> {
        let table = self.table();
        let (known, flags) = (table.known(place), table.flags(place));
        // Nothing of the run has changed it before it was timed, so that its stamps are what they were.
        let times = flags & UNTIMED == 0 && tick_ns() > known.checked_ns;
        let is = stamped(file, times)?;
        if is.which != table.which(place) {
            return Ok(Seen::Another);
        }
        let now = now_ns();
        let seen = judge(known, is, now);
        if let (Seen::Recorded, Some((changed, _))) = (seen, is.changed_ns) {
            table.was_looked_at(place, changed, now);
        }
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_records_say_or_it_is_known_why_not() {
        let known = Known { size: 100, low_ns: 1000, high_ns: 2000, checked_ns: 1500 };
        let is = |size: u64, changed_ns| judge(known, Stamped { which: (1, 2), size, changed_ns }, 5000);
        assert_eq!(is(100, None), Seen::Recorded);
        assert_eq!(is(100, Some((1000, 1000))), Seen::Recorded);
        assert_eq!(is(100, Some((2000, 4000))), Seen::Recorded, "it was renamed, or has another mode");
        assert_eq!(is(101, None), Seen::Unrecorded);
        assert_eq!(is(99, Some((1500, 1500))), Seen::Unrecorded);
        assert_eq!(is(100, Some((2001, 2001))), Seen::Unrecorded);
        assert_eq!(is(100, Some((2001, 2002))), Seen::Unknown, "stamps that were set");
        assert_eq!(is(100, Some((999, 3000))), Seen::Unknown, "stamps that were set");
        assert_eq!(is(100, Some((5001, 5001))), Seen::Unknown, "the clock was set back");
    }
}
