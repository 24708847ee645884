//! Each change of a file in the set: first its record, then the real call, both under the file's lock, so that the
//! order in the ring is that of the page cache.
//!
//! The promise rests on one invariant: **under its lock, a file is what its records say**. A real call that failed or
//! was short, and an owner of the lock that died amid a change, leave a file of which that is not known; so the bytes
//! in question are read back and recorded anew ([`Files::reread`]). Only then may a later write leave out what it does
//! not change ([`Files::write_stable`]), and only where the system was given the very bytes that were recorded:
//! programs go on storing into what they write.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::uio::pread;
use tidewater_wire::log::{FileChange, FileChangeKind};

use crate::PATIENCE;
use crate::compare::{same, same_at_end};
use crate::delta::{Bases, KEPT_MIN};
use crate::interlock::Foreign;
use crate::loss::{Loss, is_loss};
use crate::table::{Counter, Locked, Place, REAL, Table};
use tidewater_client::mapped::inode::size;
use tidewater_client::{Level, LogError, Written};

/// Where records go.
pub trait Journal {
    /// Appends one record, whose payload are the parts one after another.
    ///
    /// # Errors
    /// Nothing was appended.
    fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError>;
    /// End of what is appended.
    fn end(&self) -> u64;
    /// Waits until everything before a stream offset is at a level.
    ///
    /// # Errors
    /// It is not, or that is not known.
    fn wait(&self, end: u64, level: Level) -> Result<(), LogError>;
}

/// Why a change of a file could not be recorded, or not be promised.
#[derive(Debug)]
pub enum FilesError {
    /// The log said so, just now: from now on nothing is promised.
    Log(LogError),
    /// It was said before, with this number of the system.
    Failed(u64),
    /// The system refused a call on the file.
    System(Errno),
    /// All places of the table are in use.
    TooMany,
    /// The file's last bytes may be on another log.
    Foreign(Box<Foreign>),
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilesError::Log(error @ LogError::TimedOut { at, wanted }) => {
                let what = FilesError::Failed(number_of(error));
                write!(f, "{what} (the log is synced to {at} of {wanted})")
            }
            FilesError::Log(error) => error.fmt(f),
            FilesError::Failed(number) => match Errno::from_raw(*number as i32) {
                Errno::EPIPE => f.write_str("the device has disconnected"),
                _ if number & UNANSWERED != 0 => {
                    write!(f, "the device has not answered for {} s", PATIENCE.as_secs())
                }
                _ if number & UNREPLICATED != 0 => {
                    write!(f, "too few replicas have acknowledged within {} s", PATIENCE.as_secs())
                }
                errno if number & OF_STORE != 0 => LogError::Store { errno }.fmt(f),
                errno => write!(f, "the log has failed: {}", errno.desc()),
            },
            FilesError::System(errno) => f.write_str(errno.desc()),
            FilesError::Foreign(foreign) => foreign.fmt(f),
            FilesError::TooMany => write!(f, "more than {} files on the log", crate::FILES_MAX),
        }
    }
}

impl From<Errno> for FilesError {
    fn from(errno: Errno) -> FilesError {
        FilesError::System(errno)
    }
}

/// How a sync of a file is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// It is done: the log was waited for.
    Waited,
    /// The log is in order: the real call is to be made.
    Real,
}

/// Bytes that are copied or read back at once: on the stack, since nothing on this way takes memory.
pub const COPY: usize = 8 << 10;
/// As [`COPY`], for what is small.
pub const COPY_SMALL: usize = 512;
/// Zeroes at the end of what is written that are worth a record of their own.
pub(crate) const ZEROES_MIN: usize = 512;

/// A file that something real is to be done with.
pub trait Real {
    /// `fsync`.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&self, file: BorrowedFd<'_>) -> Result<(), Errno>;
}

/// In the number of what has failed: it is the device's backing store that has.
const OF_STORE: u64 = 1 << 32;

/// It is that the device does not answer.
const UNANSWERED: u64 = 1 << 33;
/// It is that replicas do not.
const UNREPLICATED: u64 = 1 << 34;

/// Encodes a failure for its word in the table.
pub(crate) fn number_of(error: &LogError) -> u64 {
    let kind = match error {
        LogError::Store { .. } => OF_STORE,
        LogError::NoReply { .. } | LogError::TimedOut { .. } => UNANSWERED,
        LogError::ReplicasLate { .. } | LogError::Frozen { .. } => UNREPLICATED,
        _ => 0,
    };
    kind | u64::from(error.errno().unsigned_abs())
}

impl FilesError {
    /// `errno` for the program's call.
    pub fn errno(&self) -> Errno {
        match self {
            FilesError::System(errno) | FilesError::Log(LogError::Store { errno }) => *errno,
            FilesError::Failed(number) if number & OF_STORE != 0 => Errno::from_raw(*number as i32),
            FilesError::TooMany => Errno::ENFILE,
            FilesError::Foreign(_) => Errno::EBUSY,
            FilesError::Log(_) | FilesError::Failed(_) => Errno::EIO,
        }
    }
}

/// The files of a run, and where their changes go.
#[derive(Debug)]
pub struct Files<J> {
    table: Table,
    journal: J,
    bases: Bases,
}

impl<J: Journal> Files<J> {
    /// Files of a table, on a log.
    pub fn new(table: Table, journal: J) -> Files<J> {
        Files { table, journal, bases: Bases::new() }
    }

    /// The memory that the processes share.
    #[inline]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Where records go.
    #[inline]
    pub fn journal(&self) -> &J {
        &self.journal
    }

    /// This process's newest records: the bases of deltas.
    pub(crate) fn bases(&self) -> &Bases {
        &self.bases
    }

    /// An error of the log is one for good, and for all.
    pub(crate) fn for_good<T>(&self, result: Result<T, LogError>) -> Result<T, FilesError> {
        result.map_err(|error| {
            self.table.fail(number_of(&error));
            FilesError::Log(error)
        })
    }

    /// Whether anything may still be promised.
    ///
    /// # Errors
    /// The failure of the run.
    #[inline]
    pub fn check(&self) -> Result<(), FilesError> {
        self.table.failed().map_or(Ok(()), |failed| Err(FilesError::Failed(failed.0)))
    }

    /// Appends a record.
    pub(crate) fn put(&self, change: FileChange, data: &[&[u8]]) -> Result<Written, FilesError> {
        let head = change.to_bytes();
        let none: &[u8] = &[];
        let (one, other) = (data.first().unwrap_or(&none), data.get(1).unwrap_or(&none));
        self.put_parts(&[&head, one, other])
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

    /// Appends a record, whose parts begin with the bytes of a [`FileChange`].
    pub(crate) fn put_parts(&self, parts: &[&[u8]]) -> Result<Written, FilesError> {
        self.check()?;
        if self.table.loss() < Loss::Leaves {
            match self.journal.append(parts) {
                Err(error) if is_loss(&error) && self.table.begin_to_leave() => {}
                result => {
                    let written = self.for_good(result)?;
                    self.table.count(Counter::Records, 1);
                    return Ok(written);
                }
            }
        }
        // Not recorded: no sync returns before the log says that all files are synced.
        let end = self.journal.end();
        Ok(Written { lsn: end, end })
    }

    /// Waits while the log is so full that only the supervisor, who trims it, may append. Before a lock is taken: the
    /// supervisor needs it.
    ///
    /// # Errors
    /// The failure of the run; the log is full when it takes too long.
    #[inline]
    pub fn admit(&self) -> Result<(), FilesError> {
        if self.journal.end() <= self.table.limit() { Ok(()) } else { self.wait_for_trim() }
    }

    #[cold]
    fn wait_for_trim(&self) -> Result<(), FilesError> {
        let start = Instant::now();
        while self.journal.end() > self.table.limit() {
            self.check()?;
            if self.table.loss() >= Loss::Leaves {
                return self.wait_until_left();
            }
            if start.elapsed() >= PATIENCE {
                return self.for_good(Err(LogError::Untrimmed));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Takes a file's lock. A file that a dead process was changing is reread first. `None`: the file has left the
    /// set.
    ///
    /// # Errors
    /// The log's, and those of reading the file.
    #[inline]
    pub fn lock(&self, place: Place, file: BorrowedFd<'_>, held: bool) -> Result<Option<Locked<'_>>, FilesError> {
        let locked = self.for_good(self.table.lock(place, held))?;
        if let Some(locked) = locked.as_ref().filter(|_| !held) {
            self.reread(locked, file)?;
        }
        Ok(locked)
    }

    /// Records that bytes are about to be written.
    ///
    /// # Errors
    /// The log's.
    #[inline]
    pub fn write(&self, locked: &Locked<'_>, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        self.table.count(Counter::Written, bytes.len() as u64);
        locked.reaches(offset.saturating_add(bytes.len() as u64));
        self.put_bytes(locked, offset, bytes)
    }

    /// As [`Files::write`], of bytes that do not change meanwhile.
    ///
    /// # Errors
    /// The log's.
    pub fn write_unshared(&self, locked: &Locked<'_>, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        self.table.count(Counter::Written, bytes.len() as u64);
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
        self.table.count(Counter::Written, bytes.len() as u64);
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
        for part in bytes.chunks(self.table.chunk().clamp(1, COPY)) {
            self.put_write(locked, offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Databases store into a buffer while another of their processes writes it: the record's checksum is of the bytes
    /// that go into it.
    pub(crate) fn put_bytes(&self, locked: &Locked<'_>, mut offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
        if bytes.len() < KEPT_MIN.min(self.table.chunk()) {
            return self.put_write(locked, offset, bytes); // Which copies them itself.
        }
        let mut place = [0; COPY];
        for part in bytes.chunks(self.table.chunk().clamp(1, COPY)) {
            let stable = &mut place[..part.len()];
            stable.copy_from_slice(part);
            self.put_write(locked, offset, stable)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Records that the file is about to get a length.
    ///
    /// # Errors
    /// The log's.
    pub fn truncate(&self, locked: &Locked<'_>, len: u64) -> Result<(), FilesError> {
        locked.has_length(len);
        self.put(FileChange { len, ..change(FileChangeKind::Truncate, locked.place) }, &[]).map(drop)
    }

    /// Records that a part of the file is about to be zero.
    ///
    /// # Errors
    /// The log's.
    pub fn zero(&self, locked: &Locked<'_>, offset: u64, len: u64) -> Result<(), FilesError> {
        self.put(FileChange { offset, len, ..change(FileChangeKind::Zero, locked.place) }, &[]).map(drop)
    }

    /// Records the session a program runs in, or that all files are synced up to an offset.
    ///
    /// # Errors
    /// The log's.
    pub fn record(&self, kind: FileChangeKind, offset: u64, data: &[&[u8]]) -> Result<Written, FilesError> {
        self.put(FileChange { kind, offset, ..FileChange::default() }, data)
    }

    /// A sync of a file of the set: waits for everything that is on the log.
    ///
    /// # Errors
    /// The log's, and what failed before.
    #[inline]
    pub fn sync(&self, place: Place) -> Result<Sync, FilesError> {
        self.check()?;
        if self.table.flags(place) & REAL != 0 || !self.table.is(place) {
            self.order()?;
            return Ok(Sync::Real);
        }
        if !self.wait(self.table.level())? {
            return Ok(Sync::Real);
        }
        self.table.count(Counter::Waits, 1);
        Ok(Sync::Waited)
    }

    /// Before something outside of the set may become durable, what is on the log has to be: else data could be ahead
    /// of its log.
    ///
    /// # Errors
    /// The log's, and what failed before.
    pub fn order(&self) -> Result<(), FilesError> {
        if self.wait(self.table.outside())? {
            self.table.count(Counter::Ordered, 1);
        }
        Ok(())
    }
}

/// A record's head that says nothing but what it is and of which file.
pub(crate) fn change(kind: FileChangeKind, place: Place) -> FileChange {
    FileChange { kind, id: place.id, ..FileChange::default() }
}

pub(crate) fn system(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO))
}

/// Makes a name durable.
pub(crate) fn sync_folder(path: &[u8], real: &impl Real) -> Result<(), Errno> {
    let folder = Path::new(OsStr::from_bytes(path)).parent().ok_or(Errno::ENOENT)?;
    let folder = File::open(folder).map_err(|error| system(&error))?;
    match real.sync(folder.as_fd()) {
        // Some file systems have no sync of folders, and need none.
        Err(Errno::EINVAL) => Ok(()),
        result => result,
    }
}

/// Reads until the bytes are there or the file ends.
pub(crate) fn read_at(file: BorrowedFd<'_>, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < to.len() {
        match pread(file, &mut to[filled..], (offset + filled as u64) as i64) {
            Ok(0) => break,
            Ok(got) => filled += got,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::{Arc, Mutex};

    use tidewater_wire::log::{DELTA_BASES, FileRecord};

    use super::*;

    /// Records, and their offsets.
    pub type Logged = Vec<(u64, Vec<u8>)>;

    /// A log in memory, which several processes may have.
    #[derive(Clone, Debug, Default)]
    pub struct Kept(Arc<Mutex<Logged>>);

    impl Kept {
        /// The records appended.
        pub fn records(&self) -> Logged {
            self.0.lock().expect("no thread panicked").clone()
        }
    }

    fn end_of(records: &[(u64, Vec<u8>)]) -> u64 {
        records.last().map_or(0, |(lsn, record)| lsn + record.len() as u64)
    }

    impl Journal for Kept {
        fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError> {
            let mut records = self.0.lock().expect("no thread panicked");
            let lsn = end_of(&records);
            records.push((lsn, parts.concat()));
            Ok(Written { lsn, end: end_of(&records) })
        }

        fn end(&self) -> u64 {
            end_of(&self.0.lock().expect("no thread panicked"))
        }

        fn wait(&self, _end: u64, _level: Level) -> Result<(), LogError> {
            Ok(())
        }
    }

    /// Syncs that do nothing.
    pub struct Nothing;

    impl Real for Nothing {
        fn sync(&self, _file: BorrowedFd<'_>) -> Result<(), Errno> {
            Ok(())
        }
    }

    /// Content of a file after replay of a log.
    pub fn replayed(base: &[u8], log: &[(u64, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = base.to_vec();
        let mut bases: [(u64, Vec<u8>); DELTA_BASES] = Default::default();
        for (lsn, record) in log {
            let mut write = |offset: u64, new: &[u8]| {
                let end = offset as usize + new.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(new);
            };
            match FileRecord::parse(record).expect("a record") {
                FileRecord::Write { offset, bytes: new, base, .. } => {
                    write(offset, new);
                    if base > 0 {
                        bases[usize::from(base) - 1] = (*lsn, new.to_vec());
                    }
                }
                FileRecord::Delta { offset, len, base, lsn: of, patches, .. } => {
                    let base = &mut bases[usize::from(base) - 1];
                    assert_eq!((base.0, base.1.len() as u64), (of, len), "the base that {lsn} goes by");
                    patches.for_each(|(at, patch)| base.1[at..at + patch.len()].copy_from_slice(patch));
                    base.0 = *lsn;
                    write(offset, &base.1);
                }
                FileRecord::Zero { offset, len, .. } => {
                    let end = ((offset + len) as usize).min(bytes.len());
                    bytes[offset as usize..end].fill(0);
                }
                FileRecord::Truncate { len, .. } => bytes.resize(len as usize, 0),
                _ => {}
            }
        }
        bytes
    }

    #[test]
    fn what_is_left_out_of_a_write_is_in_the_file_and_the_log_leads_to_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("log");
        let base: Vec<u8> = (0..40_000u32).map(|i| (i * 7 + i / 256) as u8 | 1).collect();
        std::fs::write(&path, &base).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let (table, _memory) = Table::new([7; 16], Level::Ring, Level::Destaged, CHUNK).unwrap();
        const CHUNK: u64 = 3000;
        let files = Files::new(table, Kept::default());
        // What is like earlier records is another matter (`delta`).
        files.table().stop_deltas().unwrap();
        let place = files.enter(file.as_fd(), path.as_os_str().as_bytes(), &Nothing).unwrap().unwrap();
        let appended = || files.journal().end();
        let write = |offset: u64, bytes: &[u8], known: bool| {
            let before = appended();
            let locked = files.lock(place, file.as_fd(), false).unwrap().unwrap();
            if known {
                files.write_stable(&locked, file.as_fd(), offset, bytes).unwrap();
            } else {
                locked.begin(offset, offset + bytes.len() as u64);
                files.write(&locked, offset, bytes).unwrap();
            }
            file.write_all_at(bytes, offset).unwrap();
            if known {
                locked.end_known(offset, offset + bytes.len() as u64)
            } else {
                locked.end()
            }
            drop(locked);
            assert_eq!(replayed(&base, &files.journal().records()), std::fs::read(&path).unwrap());
            appended() - before
        };
        let head = FileChange::SIZE as u64;
        // A page that fills: first as a whole, without the zeroes at its end; then only what is new.
        let mut page = [0; 8192];
        page[..300].fill(9);
        assert_eq!(write(8192, &page, true), head + 300 + head);
        page[300..700].fill(8);
        assert_eq!(write(8192, &page, true), head + 400);
        assert_eq!(write(8192, &page, true), 0, "nothing is new");
        (page[40], page[8191]) = (1, 1);
        assert_eq!(write(8192, &page, true), 3 * head + (8192 - 40), "in pieces, from the first to the last change");
        // Several at once: of the first what is new, of the others all but their zeroes.
        let mut pages = [0; 3 * COPY];
        pages[..8_000].fill(4);
        write(8192, &pages[..COPY], true);
        pages[8_000..COPY + 500].fill(5);
        assert_eq!(write(8192, &pages, true), (head + 192) + (head + 500 + head) + head);
        pages[2 * COPY] = 6;
        assert_eq!(write(8192 + COPY as u64, &pages[COPY..], true), head + 1);
        assert_eq!(write(8192, &pages[..COPY], true), COPY as u64 + 3 * head, "before it, and nothing is known");
        // The next one overlaps only in part.
        page[4000..].fill(3);
        assert!(write(8192 + 4096, &page, true) > 4096);
        // A buffer that the program can still store into is not kept for comparison.
        page[5] = 77;
        assert!(write(20_000, &page, false) > 8192);
        assert!(write(20_000, &page, true) > 8192);
        assert_eq!(write(20_000, &page, true), 0);
        // Zeroes that make the file longer are written; elsewhere the file's end moves with them.
        page[100..].fill(0);
        assert!(write(39_000, &page, true) > 8192 + head);
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 39_000 + 8192);
        // After anything else, nothing is known.
        let locked = files.lock(place, file.as_fd(), false).unwrap().unwrap();
        assert_eq!(locked.last(), Some((39_000, 39_000 + 8192)));
        locked.begin(10, 20);
        locked.end();
        assert_eq!(locked.last(), None);
        // Every length and place, around the steps of the comparison.
        drop(locked);
        for (at, len) in (0..200u64).map(|i| (i * 37 % 1500, 1 + i * i % 700)) {
            page[(at as usize * 3) % 1400] ^= 0x55;
            write(at, &page[..len as usize], true);
            page[(at as usize * 5) % len as usize] ^= 0x11;
            write(at, &page[..len as usize], true);
        }
    }

    #[test]
    fn what_a_signal_handler_has_changed_meanwhile_is_recorded_anew_and_no_more_than_that() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("log");
        let base = vec![7; 500_000];
        std::fs::write(&path, &base).unwrap();
        let file = File::options().read(true).append(true).open(&path).unwrap();
        let (table, _memory) = Table::new([7; 16], Level::Ring, Level::Destaged, 4096).unwrap();
        let files = Files::new(table, Kept::default());
        let place = files.enter(file.as_fd(), path.as_os_str().as_bytes(), &Nothing).unwrap().unwrap();
        let record = |locked: &Locked<'_>, bytes: &[u8]| {
            let at = size(file.as_fd()).unwrap();
            locked.begin(at, at + bytes.len() as u64);
            files.write(locked, at, bytes).unwrap();
        };
        let append = |bytes: &[u8]| std::io::Write::write_all(&mut &file, bytes).unwrap();
        let before = files.journal().end();
        let locked = files.lock(place, file.as_fd(), false).unwrap().unwrap();
        record(&locked, &[1; 100]);
        let handler = files.lock(place, file.as_fd(), true).unwrap().unwrap();
        record(&handler, &[2; 200]);
        append(&[2; 200]);
        assert!(!handler.was_interrupted());
        handler.end();
        drop(handler);
        append(&[1; 100]);
        assert!(locked.was_interrupted());
        files.reread(&locked, file.as_fd()).unwrap();
        assert!(locked.pending().is_none() && !locked.was_interrupted());
        drop(locked);
        assert!(replayed(&base, &files.journal().records()) == std::fs::read(&path).unwrap());
        assert!(files.journal().end() - before < 1000, "what was there before is not read");
    }
}
