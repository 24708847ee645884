//! Bytes that are written, as records: those that a file has already are left out, and what is much like bytes before
//! is recorded by what differs.

use std::os::fd::BorrowedFd;
use std::sync::MutexGuard;

use tidewater_wire::log::{FileChange, FileChangeKind};

use crate::backing::Journal;
use crate::compare::{same, same_at_end};
use crate::delta::{COPY, KEPT_MIN, Parts, Set, change, len};
use crate::error::FilesError;
use crate::set::Files;
use crate::system::read_at;
use crate::table::{Counter, Locked};
use tidewater_client::mapped::inode::size;

/// As [`COPY`], for what is small.
pub const COPY_SMALL: usize = 512;
/// Zeroes at the end of what is written that are worth a record of their own.
const ZEROES_MIN: usize = 512;

impl<J: Journal> Files<J> {
    /// Records that bytes are about to be written.
    ///
    /// # Errors
    /// The log's.
    #[inline]
    pub fn write(&self, locked: &Locked<'_>, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        self.table().count(Counter::Written, bytes.len() as u64);
        locked.reaches(offset.saturating_add(bytes.len() as u64));
        self.put_bytes(locked, offset, bytes)
    }

    /// As [`Files::write`], of bytes that do not change meanwhile.
    ///
    /// # Errors
    /// The log's.
    pub fn write_unshared(&self, locked: &Locked<'_>, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        self.table().count(Counter::Written, bytes.len() as u64);
        locked.reaches(offset.saturating_add(bytes.len() as u64));
        self.put_stable(locked, offset, bytes)
    }

    /// As [`Files::write`], of bytes that are private to the caller, and that go to the file from where they are: what
    /// the file has already since the last change is left out, and so are zeroes at the end of each [`COPY`] of them.
    /// Notes itself what will change.
    ///
    /// # Errors
    /// The log's.
    #[inline]
    pub fn write_stable(
        &self,
        locked: &Locked<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FilesError> {
        self.table().count(Counter::Written, bytes.len() as u64);
        let to = offset.saturating_add(bytes.len() as u64);
        // A second write to the same place most often has little that is new (PostgreSQL: the page of its log that
        // fills).
        let again = locked.last().filter(|(from, until)| (*from..*until).contains(&offset));
        locked.begin(offset, to);
        locked.reaches(to);
        let known = again.map_or(offset, |(_, until)| until.min(to));
        for (part, at) in bytes.chunks(COPY).zip((offset..).step_by(COPY)) {
            match known.saturating_sub(at) {
                0 => self.write_anew(locked, file, at, part)?,
                known => self.write_again(locked, file, at, part, known as usize)?,
            }
        }
        Ok(())
    }

    /// Records what is not yet in the file of at most [`COPY`] bytes, of which so many are known.
    fn write_again(
        &self,
        locked: &Locked<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: &[u8],
        known: usize,
    ) -> Result<(), FilesError> {
        let mut place = [0; COPY];
        // A descriptor that can't be read: all of it is new.
        let got = read_at(file, &mut place[..known.min(bytes.len())], offset).unwrap_or(0);
        let first = same(bytes, &place[..got]);
        let rest = &bytes[first..];
        let behind = if got < bytes.len() { 0 } else { same_at_end(rest, &place[first..got]) };
        self.put_stable(locked, offset + first as u64, &rest[..rest.len() - behind])
    }

    /// Records bytes of which nothing is known to be in the file.
    #[inline]
    fn write_anew(
        &self,
        locked: &Locked<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), FilesError> {
        let (bytes, zeroes) = match bytes {
            [.., 0] if bytes.len() > COPY_SMALL => {
                let used = bytes.len() - same_at_end(bytes, &[0; COPY]);
                // Only where they make the file no longer.
                let is_inside = bytes.len() - used >= ZEROES_MIN
                    && size(file).is_ok_and(|size| size >= offset + bytes.len() as u64);
                if is_inside { bytes.split_at(used) } else { (bytes, &[][..]) }
            }
            _ => (bytes, &[][..]),
        };
        self.put_stable(locked, offset, bytes)?;
        if !zeroes.is_empty() {
            let at = offset + bytes.len() as u64;
            self.zero(locked, at, zeroes.len() as u64)?;
        }
        Ok(())
    }

    fn put_stable(&self, locked: &Locked<'_>, mut offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        // No more at once than may be like what was before.
        for part in bytes.chunks(self.table().chunk().clamp(1, COPY)) {
            self.put_write(locked, offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Databases store into a buffer while another of their processes writes it: the record's checksum is of the bytes
    /// that go into it.
    pub(crate) fn put_bytes(&self, locked: &Locked<'_>, mut offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        if bytes.len() < KEPT_MIN.min(self.table().chunk()) {
            return self.put_write(locked, offset, bytes); // Which copies them itself.
        }
        let mut place = [0; COPY];
        for part in bytes.chunks(self.table().chunk().clamp(1, COPY)) {
            let stable = &mut place[..part.len()];
            stable.copy_from_slice(part);
            self.put_write(locked, offset, stable)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Appends a record of a few bytes, fewer than [`KEPT_MIN`], from a copy: who else reaches them may go on storing
    /// into them.
    #[inline]
    pub(crate) fn put_small(&self, change: &FileChange, bytes: &[u8]) -> Result<(), FilesError> {
        // Most are small, and a large place takes longer to make than they to copy.
        const SMALL: usize = 256;
        match FileChange::SIZE + bytes.len() {
            ..=SMALL => self.put_copied::<SMALL>(change, bytes),
            _ => self.put_copied::<{ FileChange::SIZE + KEPT_MIN }>(change, bytes),
        }
    }

    fn put_copied<const PLACE: usize>(&self, change: &FileChange, bytes: &[u8]) -> Result<(), FilesError> {
        let mut record = [0; PLACE];
        record[..FileChange::SIZE].copy_from_slice(&change.to_bytes());
        let record = &mut record[..FileChange::SIZE + bytes.len()];
        record[FileChange::SIZE..].copy_from_slice(bytes);
        self.put_parts(&[record]).map(drop)
    }

    /// Records that bytes are about to be written to a place of which nothing is known to be in the file, and has them
    /// written by `real`, which is passed the private copy that is kept for the next comparison. So they are copied
    /// once, and what other threads store into `bytes` meanwhile is in the record and in the file, or in neither. Notes
    /// itself what will change. `None`: the write is not suited, and nothing has been done.
    ///
    /// # Errors
    /// The log's.
    #[inline]
    pub fn write_kept<R>(
        &self,
        locked: &Locked<'_>,
        offset: u64,
        bytes: &[u8],
        real: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, FilesError> {
        // Zeroes at the end may be left out, and so may what the file has of it.
        let is_one = !bytes.ends_with(&[0; ZEROES_MIN])
            && locked.last().is_none_or(|(from, until)| !(from..until).contains(&offset));
        if is_one { self.write_frame(locked, offset, [bytes, &[]], real) } else { Ok(None) }
    }

    /// As [`Files::write_kept`], of bytes in two parts, which come to lie one after the other. All of them are
    /// recorded, as far as they are not as before.
    ///
    /// # Errors
    /// The log's.
    #[inline]
    pub(crate) fn write_frame<R>(
        &self,
        locked: &Locked<'_>,
        offset: u64,
        parts: Parts<'_>,
        real: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, FilesError> {
        let bytes = len(parts);
        let may_be_kept = (KEPT_MIN..=COPY.min(self.table().chunk())).contains(&bytes);
        let set = if may_be_kept { self.set_of(locked) } else { None };
        let Some(mut set) = set.filter(|set| !set.rests()) else { return Ok(None) };
        self.table().count(Counter::Written, bytes as u64);
        locked.begin(offset, offset.saturating_add(bytes as u64));
        locked.reaches(offset.saturating_add(bytes as u64));
        let number = set.record(locked, offset, parts, |parts| self.put_parts(parts))?;
        Ok(Some(real(set.kept(number, bytes))))
    }

    /// Records at most [`COPY`] bytes: by what differs, if they are much like what was recorded before. From
    /// [`KEPT_MIN`] on they must be private to the caller.
    pub(crate) fn put_write(&self, locked: &Locked<'_>, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        if bytes.len() < KEPT_MIN {
            return self.put_small(&change(locked, FileChangeKind::Write, 0, offset, bytes.len()), bytes);
        }
        let set = if bytes.len() <= COPY { self.set_of(locked) } else { None };
        match set {
            Some(mut set) if !set.rests() => {
                set.record(locked, offset, [bytes, &[]], |parts| self.put_parts(parts)).map(drop)
            }
            set => {
                if let Some(mut set) = set {
                    set.was_passed_by();
                }
                self.put(change(locked, FileChangeKind::Write, 0, offset, bytes.len()), &[bytes]).map(drop)
            }
        }
    }

    fn set_of(&self, locked: &Locked<'_>) -> Option<MutexGuard<'_, Set>> {
        // Within a signal handler, or interrupted by one, the interrupted code may be comparing.
        if locked.is_nested() { None } else { self.bases().of(locked.place) }
    }
}
