//! Each change of a file in the set: first its record, then the real call, both under the file's lock, so that the
//! order in the ring is that of the page cache.
//!
//! The promise rests on one invariant: **under its lock, a file is what its records say**. A real call that failed or
//! was short, and an owner of the lock that died amid a change, leave a file of which that is not known; so the bytes
//! in question are read back and recorded anew ([`Files::reread`]). Only then may a later write leave out what it does
//! not change ([`Files::write_stable`]), and only where the system was given the very bytes that were recorded:
//! programs go on storing into what they write.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use tidewater_wire::log::{FileChange, FileChangeKind};

use crate::PATIENCE;
use crate::backing::Journal;
use crate::delta::Bases;
use crate::error::{FilesError, number_of};
use crate::loss::{Loss, is_loss};
use crate::table::{Counter, Locked, Place, REAL, Table};
use tidewater_client::{Level, LogError, Written};

/// How a sync of a file is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sync {
    /// It is done: the log was waited for.
    Waited,
    /// The log is in order: the real call is to be made.
    Real,
}

/// How long a program waits for the supervisor to sync all files, once the device is lost.
const LEFT_WITHIN: Duration = Duration::from_secs(300);

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

    /// Waits until everything on the log is at a level. `false`: the files have left the log, and are synced by
    /// themselves.
    ///
    /// # Errors
    /// The log's, and what failed before.
    #[inline]
    pub(crate) fn wait(&self, level: Level) -> Result<bool, FilesError> {
        self.check()?;
        if self.table().loss() < Loss::Leaves {
            match self.journal().wait(self.journal().end(), level) {
                Err(error) if is_loss(&error) && self.table().begin_to_leave() => {}
                result => return self.for_good(result).map(|()| true),
            }
        }
        self.wait_until_left().map(|()| false)
    }

    /// Waits until the supervisor has synced all files, and has said so in the log. Without a lock: it needs them.
    #[cold]
    pub(crate) fn wait_until_left(&self) -> Result<(), FilesError> {
        let start = Instant::now();
        while self.table().loss() != Loss::Left {
            self.check()?;
            // Syncs of many files take their time; a supervisor that was killed says nothing.
            if start.elapsed() >= LEFT_WITHIN {
                return self.for_good(Err(LogError::Gone));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        self.check()
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

#[cfg(test)]
pub(crate) mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    use std::sync::{Arc, Mutex};

    use nix::errno::Errno;
    use tidewater_wire::log::{DELTA_BASES, FileRecord};

    use super::*;
    use crate::delta::COPY;
    use crate::system::Real;
    use tidewater_client::mapped::inode::size;

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
