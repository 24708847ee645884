//! The table that a run's processes share: which files are on the log, and a lock for each.
//!
//! It lies in memory that the supervisor made and sealed against truncation. Everything in it is an atomic word, or
//! bytes that are only touched under the lock of their entry. A lock tells its owner, so that the next one takes it
//! over from a process that has died; what that one was about to change is noted beside it, and is recorded anew
//! ([`crate::Files`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tidewater_wire::log::{DELTA_BASES, FILE_PATH_BYTES_MAX, FileBind};

use crate::system::now_ns;
use tidewater_client::mapped::Mapping;
use tidewater_client::mapped::owner;
use tidewater_client::{Level, LogError};

mod mark;

const MAGIC: u64 = u64::from_le_bytes(*b"TIDEFILE");
const VERSION: u64 = 7;
/// Files that are on the log at once, at most.
pub const FILES_MAX: usize = 1024;
const HEAD: u64 = 4096;
/// An entry: words, the file, more words, its path.
const ENTRY: u64 = 384 + FILE_PATH_BYTES_MAX as u64;
const BYTES: u64 = HEAD + FILES_MAX as u64 * ENTRY;

/// Words of the head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Word {
    Magic = 0,
    Version = 8,
    Level = 16,
    Outside = 24,
    Failed = 32,
    Chunk = 40,
    NextId = 48,
    Piece = 56,
    Lock = 64,
    Used = 128,
    Limit = 136,
    Anew = 144,
    Loss = 152,
    Said = 160,
    Epoch = 168,
    Seen = 176,
    Synced = 184,
    Counters = 192,
    Run = 512,
    MarkerBytes = 1024,
    Marker = 1032,
}

/// Counters of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum Counter {
    /// Records made.
    Records,
    /// Bytes that programs wrote to files of the set.
    Written,
    /// Syncs that became a wait.
    Waits,
    /// Syncs, renames, removals outside of the set that waited for the log before.
    Ordered,
    /// Files that came into the set.
    Entered,
    /// Files that left it.
    Left,
    /// Locks that were taken over from processes that had died.
    TakenOver,
    /// Markers that processes have written.
    Marked,
}

/// Words of an entry.
mod word {
    pub(crate) const LOCK: u64 = 0;
    pub(crate) const ID: u64 = 8;
    pub(crate) const DEVICE: u64 = 16;
    pub(crate) const INODE: u64 = 24;
    pub(crate) const PENDING: u64 = 32;
    pub(crate) const FLAGS: u64 = 48;
    pub(crate) const CHANGED: u64 = 56;
    pub(crate) const BIND: u64 = 64;
    pub(crate) const LAST: u64 = 256;
    pub(crate) const BASES: u64 = 272;
    pub(crate) const SIZE: u64 = 320;
    pub(crate) const LOW: u64 = 328;
    pub(crate) const HIGH: u64 = 336;
    pub(crate) const CHECKED: u64 = 344;
    pub(crate) const PATH: u64 = 384;
}

/// A descriptor of the file was opened with O_SYNC or O_DSYNC, and went to a program that can't tell.
pub const SYNCS: u64 = 1;
/// O_APPEND was changed on a descriptor: each write asks.
pub const ASKS: u64 = 2;
/// Changes of the file can't be recorded: its syncs are real.
pub const REAL: u64 = 4;
/// Its last name was removed: the entry may be another file's.
pub const GONE: u64 = 8;
/// A layer changes the file by a number that it was given: the file stays.
pub(crate) const HELD: u64 = 16;
/// It was renamed within the set, and no sync has made that durable since.
pub const RENAMED: u64 = 32;
/// It has bytes that no record has: the next sync makes it real.
pub(crate) const UNRECORDED: u64 = 64;
/// Its file system stamps changes by the system's clock.
pub(crate) const TIMED: u64 = 128;
/// It is being renamed: it may not be at its path yet.
pub(crate) const MOVES: u64 = 256;
/// It does not, or in other steps: its change times tell nothing.
pub(crate) const UNTIMED: u64 = 512;

/// In the end of what is about to change, which is below it: a signal handler has changed the file meanwhile.
const INTERRUPTED: u64 = 1 << 63;

/// Which entry, and which file it is as long as the id is the entry's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The entry.
    pub entry: u16,
    /// The file's id, from 1.
    pub id: u32,
}

/// A path, copied out of the table.
#[derive(Clone)]
pub struct PathBytes {
    bytes: [u8; FILE_PATH_BYTES_MAX],
    len: usize,
}

impl PathBytes {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The table.
#[derive(Debug)]
pub struct Table {
    memory: Mapping,
}

/// An entry's lock, held.
#[derive(Debug)]
pub struct Locked<'t> {
    table: &'t Table,
    /// Which.
    pub place: Place,
    nested: bool,
}

/// State of a file by its records. Instants are nanoseconds of the system's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known {
    /// Its length.
    pub size: u64,
    /// Its bytes changed last at this instant or later: they had when it was looked at.
    pub low_ns: u64,
    /// The last recorded change was over at this instant.
    pub high_ns: u64,
    /// It was looked at last at this instant.
    pub checked_ns: u64,
}

/// Why a run's files can't be put on the log any more; kept in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failed(pub u64);

impl Table {
    /// A new table in memory of its own, and the memory. `chunk`: bytes of a record, at most.
    ///
    /// # Errors
    /// Those of the system.
    pub fn new(run: [u8; 16], level: Level, outside: Level, chunk: u64) -> Result<(Table, OwnedFd), LogError> {
        let failed = LogError::system("make the table of files");
        let file =
            memfd_create(c"tidewater-files", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).map_err(&failed)?;
        nix::unistd::ftruncate(&file, BYTES as i64).map_err(&failed)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(&failed)?;
        let table = Table { memory: Mapping::sparse(file.as_fd(), BYTES).map_err(&failed)? };
        table.set(Word::Level, level as u64);
        table.set(Word::Outside, u64::from(outside == Level::Destaged));
        table.set(Word::Chunk, chunk);
        table.set(Word::NextId, 1);
        table.memory.write(Word::Run as u64, &run);
        table.set(Word::Version, VERSION);
        table.set(Word::Magic, MAGIC);
        Ok((table, file))
    }

    /// Maps a table that the supervisor handed over.
    ///
    /// # Errors
    /// When it is none.
    pub fn join(file: BorrowedFd<'_>) -> Result<Table, LogError> {
        let memory = Mapping::sparse(file, BYTES).map_err(LogError::system("map the table of files"))?;
        let table = Table { memory };
        if table.get(Word::Magic) != MAGIC || table.get(Word::Version) != VERSION {
            return Err(LogError::Ring("the table of files is of another version".into()));
        }
        Ok(table)
    }

    /// Gives back the locks that this process has taken as another program, before it became this one (execve(2)): what
    /// was about to change is still pending. For who has just joined, and has no locks yet.
    ///
    /// # Errors
    /// As [`Table::lock`].
    pub fn release_locks(&self) -> Result<(), LogError> {
        let me = owner::me()?;
        let used = self.get(Word::Used).min(FILES_MAX as u64) as u16;
        let locks = (0..used).map(|entry| self.word(entry, word::LOCK));
        for lock in locks.chain([self.memory.word(Word::Lock as u64)]) {
            if lock.compare_exchange(me, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.count(Counter::TakenOver, 1);
            }
        }
        Ok(())
    }

    fn get(&self, word: Word) -> u64 {
        self.memory.load(word as u64)
    }

    fn set(&self, word: Word, value: u64) {
        self.memory.word(word as u64).store(value, Ordering::Release);
    }

    /// Level that syncs of files in the set wait for.
    #[inline]
    pub fn level(&self) -> Level {
        match self.get(Word::Level) {
            0 => Level::Ring,
            2 => Level::RemoteRing,
            3 => Level::RemoteDestaged,
            // What is most of one machine, should the word be none.
            _ => Level::Destaged,
        }
    }

    /// Level to reach before something outside of the set becomes durable.
    pub fn outside(&self) -> Level {
        if self.get(Word::Outside) == 0 { Level::Ring } else { Level::Destaged }
    }

    /// Bytes of a record, at most.
    #[inline]
    pub fn chunk(&self) -> usize {
        self.get(Word::Chunk) as usize
    }

    /// The run.
    pub fn run(&self) -> [u8; 16] {
        let mut run = [0; 16];
        self.memory.read(Word::Run as u64, &mut run);
        run
    }

    /// Nothing can be promised any more. The first word stays.
    pub fn fail(&self, why: u64) {
        let word = self.memory.word(Word::Failed as u64);
        let _ = word.compare_exchange(0, why.max(1), Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether something has failed for good.
    #[inline]
    pub fn failed(&self) -> Option<Failed> {
        match self.get(Word::Failed) {
            0 => None,
            why => Some(Failed(why)),
        }
    }

    /// The word of [`Loss`](crate::loss::Loss).
    #[inline]
    pub(crate) fn loss_word(&self) -> &AtomicU64 {
        self.memory.word(Word::Loss as u64)
    }

    /// Where the log may end before a change begins: behind it, programs wait for a trim. What is under way may pass it
    /// by some pieces.
    #[inline]
    pub fn limit(&self) -> u64 {
        self.get(Word::Limit)
    }

    /// Says where the log may end, and how many bytes are written at once at most.
    pub fn set_limit(&self, limit: u64, piece: u64) {
        self.set(Word::Piece, piece);
        self.set(Word::Limit, limit);
    }

    /// A checkpoint is about to choose where the log will be trimmed: no delta goes by an earlier record any more, once
    /// this has returned. Every lock is taken once, since the owner of one may not have seen the word.
    ///
    /// # Errors
    /// As [`Table::lock`].
    pub fn stop_deltas(&self) -> Result<(), LogError> {
        self.set(Word::Anew, u64::MAX);
        for entry in 0..self.get(Word::Used).min(FILES_MAX as u64) as u16 {
            self.acquire(self.word(entry, word::LOCK))?;
            drop(Locked { table: self, place: Place { entry, id: 0 }, nested: false });
        }
        Ok(())
    }

    /// The log will be trimmed up to here: deltas go by what is recorded from here on.
    pub fn allow_deltas(&self, from: u64) {
        self.set(Word::Anew, from);
    }

    fn forget_bases(&self, entry: u16) {
        for number in 0..DELTA_BASES {
            self.base(entry, number).store(0, Ordering::Release);
        }
    }

    #[inline]
    fn base(&self, entry: u16, number: usize) -> &AtomicU64 {
        self.word(entry, word::BASES + 8 * number as u64)
    }

    /// Bytes that are written at once, at most.
    #[inline]
    pub fn piece(&self) -> usize {
        self.get(Word::Piece) as usize
    }

    /// Whether none of the run's processes has said this yet, as far as 64 bits tell.
    pub fn is_news(&self, what: &str) -> bool {
        let bit = 1 << (tidewater_base::checksum::crc32c(what.as_bytes()) % 64);
        self.memory.word(Word::Said as u64).fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Adds to a counter.
    #[inline]
    pub fn count(&self, counter: Counter, by: u64) {
        self.memory.word(Word::Counters as u64 + 8 * counter as u64).fetch_add(by, Ordering::Relaxed);
    }

    /// A counter.
    pub fn counted(&self, counter: Counter) -> u64 {
        self.memory.load(Word::Counters as u64 + 8 * counter as u64)
    }

    #[inline]
    fn word(&self, entry: u16, word: u64) -> &AtomicU64 {
        self.memory.word(HEAD + ENTRY * u64::from(entry) + word)
    }

    #[inline]
    fn load(&self, entry: u16, word: u64) -> u64 {
        self.word(entry, word).load(Ordering::Acquire)
    }

    /// Entries that may be in use.
    pub fn entries(&self) -> impl Iterator<Item = Place> {
        let used = self.get(Word::Used).min(FILES_MAX as u64) as u16;
        (0..used).filter_map(|entry| match self.load(entry, word::ID) as u32 {
            0 => None,
            id => Some(Place { entry, id }),
        })
    }

    /// The entry of a device and an inode, which may have been another file's.
    pub fn find(&self, device: u64, inode: u64) -> Option<Place> {
        self.entries().find(|place| {
            self.load(place.entry, word::INODE) == inode && self.load(place.entry, word::DEVICE) == device
        })
    }

    /// Whether an entry still is this file's.
    #[inline]
    pub fn is(&self, place: Place) -> bool {
        self.load(place.entry, word::ID) == u64::from(place.id)
    }

    /// Flags of an entry.
    #[inline]
    pub fn flags(&self, place: Place) -> u64 {
        self.load(place.entry, word::FLAGS)
    }

    /// Sets flags of an entry.
    pub fn flag(&self, place: Place, flags: u64) {
        self.word(place.entry, word::FLAGS).fetch_or(flags, Ordering::AcqRel);
    }

    /// Takes flags of an entry back.
    pub fn unflag(&self, place: Place, flags: u64) {
        self.word(place.entry, word::FLAGS).fetch_and(!flags, Ordering::AcqRel);
    }

    /// Which file an entry is, read under its lock or the table's.
    pub fn bind(&self, place: Place) -> FileBind {
        let mut bytes = [0; FileBind::SIZE];
        self.memory.read(HEAD + ENTRY * u64::from(place.entry) + word::BIND, &mut bytes);
        FileBind::parse(&bytes).unwrap_or_default()
    }

    /// Where it is, read under its lock or the table's.
    pub fn path(&self, place: Place) -> PathBytes {
        let mut path = PathBytes { bytes: [0; FILE_PATH_BYTES_MAX], len: 0 };
        path.len = usize::from(self.bind(place).path_bytes).min(FILE_PATH_BYTES_MAX);
        self.memory.read(HEAD + ENTRY * u64::from(place.entry) + word::PATH, &mut path.bytes[..path.len]);
        path
    }

    /// Says where it is, under its lock. Paths that are too long are the caller's to refuse (asserted).
    pub fn set_path(&self, place: Place, bind: &FileBind, path: &[u8]) -> FileBind {
        assert!((1..=FILE_PATH_BYTES_MAX).contains(&path.len()), "a path of {} bytes", path.len());
        let bind = FileBind { path_bytes: path.len() as u16, ..*bind };
        let at = HEAD + ENTRY * u64::from(place.entry);
        self.memory.write(at + word::PATH, path);
        self.memory.write(at + word::BIND, &bind.to_bytes());
        bind
    }

    /// Whether a change of a file is under way, or was when its process died.
    pub(crate) fn is_changing(&self, place: Place) -> bool {
        self.load(place.entry, word::PENDING + 8) != 0
    }

    /// Device and inode of an entry.
    pub(crate) fn which(&self, place: Place) -> (u64, u64) {
        (self.load(place.entry, word::DEVICE), self.load(place.entry, word::INODE))
    }

    /// State of a file by its records.
    #[inline]
    pub(crate) fn known(&self, place: Place) -> Known {
        let load = |word| self.load(place.entry, word);
        Known {
            size: load(word::SIZE),
            low_ns: load(word::LOW),
            high_ns: load(word::HIGH),
            checked_ns: load(word::CHECKED),
        }
    }

    /// A file was looked at: its bytes had changed last at `changed_ns`.
    pub(crate) fn was_looked_at(&self, place: Place, changed_ns: u64, now_ns: u64) {
        self.word(place.entry, word::LOW).store(changed_ns, Ordering::Release);
        self.word(place.entry, word::CHECKED).store(now_ns, Ordering::Release);
    }

    /// Sets the state of a file as it comes into the set, or once it was reread.
    pub(crate) fn set_known(&self, place: Place, known: Known) {
        self.word(place.entry, word::SIZE).store(known.size, Ordering::Release);
        self.word(place.entry, word::LOW).store(known.low_ns, Ordering::Release);
        self.word(place.entry, word::HIGH).store(known.high_ns, Ordering::Release);
        self.word(place.entry, word::CHECKED).store(known.checked_ns, Ordering::Release);
    }

    /// A place for a file, under the lock of the table: `None`, all are in use. It counts once [`Table::publish`] has
    /// said so.
    pub fn reserve(&self) -> Option<Place> {
        let used = self.get(Word::Used).min(FILES_MAX as u64) as u16;
        let free = |entry: &u16| self.load(*entry, word::ID) == 0;
        let gone = |entry: &u16| self.load(*entry, word::FLAGS) & GONE != 0 && self.load(*entry, word::LOCK) == 0;
        let entry = (0..used).find(free).or_else(|| (used < FILES_MAX as u16).then_some(used));
        let entry = entry.or_else(|| (0..used).find(gone))?;
        self.word(entry, word::ID).store(0, Ordering::Release);
        self.word(entry, word::FLAGS).store(0, Ordering::Release);
        self.word(entry, word::CHANGED).store(1, Ordering::Release);
        self.word(entry, word::PENDING).store(0, Ordering::Release);
        self.word(entry, word::PENDING + 8).store(0, Ordering::Release);
        self.word(entry, word::LAST + 8).store(0, Ordering::Release);
        self.forget_bases(entry);
        let id = self.memory.word(Word::NextId as u64).fetch_add(1, Ordering::AcqRel) as u32;
        Some(Place { entry, id })
    }

    /// The file is in the set from now on.
    pub fn publish(&self, place: Place, device: u64, inode: u64) {
        self.word(place.entry, word::DEVICE).store(device, Ordering::Release);
        self.word(place.entry, word::INODE).store(inode, Ordering::Release);
        self.word(place.entry, word::ID).store(place.id.into(), Ordering::Release);
        self.memory.word(Word::Used as u64).fetch_max(u64::from(place.entry) + 1, Ordering::AcqRel);
    }

    /// The file is not in the set any more.
    pub fn remove(&self, place: Place) {
        let id = self.word(place.entry, word::ID);
        let _ = id.compare_exchange(place.id.into(), 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Takes a file's lock. `held`: this thread has it already, within a signal handler that interrupted it: it goes on
    /// without. `None`: the file has left.
    ///
    /// # Errors
    /// When the system does not tell who this process is.
    #[inline]
    pub fn lock(&self, place: Place, held: bool) -> Result<Option<Locked<'_>>, LogError> {
        if !held {
            self.acquire(self.word(place.entry, word::LOCK))?;
        }
        let locked = Locked { table: self, place, nested: held };
        Ok(self.is(place).then_some(locked))
    }

    /// Takes the lock of the table, which orders what comes and goes.
    ///
    /// # Errors
    /// As [`Table::lock`].
    pub fn lock_all(&self) -> Result<AllLocked<'_>, LogError> {
        self.acquire(self.memory.word(Word::Lock as u64))?;
        Ok(AllLocked(self))
    }

    /// Takes a lock, from a process that has died if need be: what that one was about to change is still pending.
    #[inline]
    fn acquire(&self, lock: &AtomicU64) -> Result<(), LogError> {
        let me = owner::me()?;
        if lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.acquire_slowly(lock, me);
        }
        Ok(())
    }

    #[cold]
    fn acquire_slowly(&self, lock: &AtomicU64, me: u64) {
        let mut look_at = Instant::now() + std::time::Duration::from_millis(1);
        let mut turns = 0u32;
        loop {
            let holder = match lock.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return,
                Err(holder) => holder,
            };
            if Instant::now() >= look_at {
                if owner::is_dead(holder)
                    && lock.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    self.count(Counter::TakenOver, 1);
                    return;
                }
                look_at = Instant::now() + std::time::Duration::from_millis(5);
            }
            turns = turns.saturating_add(1);
            match turns {
                0..100 => std::hint::spin_loop(),
                100..1000 => std::thread::yield_now(),
                _ => std::thread::sleep(std::time::Duration::from_micros(50)),
            }
        }
    }

    /// Whether a file's lock is held by a process that has died.
    pub fn is_orphaned(&self, place: Place) -> bool {
        let holder = self.load(place.entry, word::LOCK);
        holder != 0 && owner::is_dead(holder)
    }
}

impl Locked<'_> {
    /// Notes which bytes of the file are about to change. What was noted before and is not over stays in it.
    #[inline]
    pub fn begin(&self, from: u64, to: u64) {
        let word = |at| self.table.word(self.place.entry, word::PENDING + at);
        self.table.word(self.place.entry, word::LAST + 8).store(0, Ordering::Release);
        self.table.word(self.place.entry, word::CHANGED).store(1, Ordering::Release);
        let (from, to) = match self.pending() {
            None => (from, to.max(from + 1)),
            // One of them is a signal handler's. Where both append, each may be behind the other.
            Some((before, until)) => {
                let both =
                    to.max(until).saturating_add(to.saturating_sub(from)).saturating_add(until.saturating_sub(before));
                (from.min(before), both.min(INTERRUPTED - 1))
            }
        };
        let mark = if self.nested || self.was_interrupted() { INTERRUPTED } else { 0 };
        // The end says whether there is anything; it is stored last, and cleared first.
        word(0).store(from, Ordering::Release);
        word(8).store(to.min(INTERRUPTED - 1) | mark, Ordering::Release);
    }

    /// Whether nothing has changed the file since [`Locked::rests`].
    pub fn is_idle(&self) -> bool {
        self.table.load(self.place.entry, word::CHANGED) == 0
    }

    /// A recorded change reaches to here: the file is at least that long.
    #[inline]
    pub fn reaches(&self, end: u64) {
        self.table.word(self.place.entry, word::SIZE).fetch_max(end, Ordering::AcqRel);
    }

    /// A recorded change gives the file a length.
    pub fn has_length(&self, len: u64) {
        self.table.word(self.place.entry, word::SIZE).store(len, Ordering::Release);
    }

    /// From now on it counts whether the file is changed. Returns whether nothing has changed it since the last time.
    pub fn rests(&self) -> bool {
        self.table.word(self.place.entry, word::CHANGED).swap(0, Ordering::AcqRel) == 0
    }

    /// Whether a signal handler has changed the file amid this change: its record is behind this one's, and its bytes
    /// may have come before, or where these were meant to go.
    #[inline]
    pub fn was_interrupted(&self) -> bool {
        !self.nested && self.table.load(self.place.entry, word::PENDING + 8) & INTERRUPTED != 0
    }

    /// Range of the change under way; `None`: nothing.
    pub fn pending(&self) -> Option<(u64, u64)> {
        let load = |at| self.table.load(self.place.entry, word::PENDING + at);
        Some((load(0), load(8) & !INTERRUPTED)).filter(|(_, to)| *to != 0)
    }

    /// The bytes that the last change has made what their records say. `None`: not known, since its process could go on
    /// storing into them until the system had taken them.
    #[inline]
    pub fn last(&self) -> Option<(u64, u64)> {
        let load = |at| self.table.load(self.place.entry, word::LAST + at);
        Some((load(0), load(8))).filter(|(_, to)| *to != 0 && !self.nested)
    }

    /// Whether this thread has the lock already, and was interrupted by a signal.
    #[inline]
    pub fn is_nested(&self) -> bool {
        self.nested
    }

    /// Records before this offset are none that a delta may go by.
    #[inline]
    pub fn anew(&self) -> u64 {
        self.table.get(Word::Anew)
    }

    /// The newest record of the file's bytes under a number, less one, that deltas go by; 0: not known.
    #[inline]
    pub fn base(&self, number: usize) -> u64 {
        self.table.base(self.place.entry, number).load(Ordering::Acquire)
    }

    /// Says which it is.
    #[inline]
    pub fn set_base(&self, number: usize, lsn: u64) {
        self.table.base(self.place.entry, number).store(lsn, Ordering::Release);
    }

    /// Of none it is known: a process may have died between a record and this word.
    pub fn forget_bases(&self) {
        self.table.forget_bases(self.place.entry);
    }

    /// As [`Locked::end`], of a change of these bytes, which were written from where their record was made.
    #[inline]
    pub fn end_known(&self, from: u64, to: u64) {
        // Within a signal handler, or interrupted by one, the interrupted code may be changing them, too.
        if !self.nested && self.pending() == Some((from, to)) {
            let word = |at| self.table.word(self.place.entry, word::LAST + at);
            word(0).store(from, Ordering::Release);
            word(8).store(to, Ordering::Release);
        }
        self.end();
    }

    /// All of it is recorded and done. Within a signal handler it is the interrupted change that is over last.
    #[inline]
    pub fn end(&self) {
        if !self.nested {
            // The system has stamped it by now.
            self.table.word(self.place.entry, word::HIGH).store(now_ns(), Ordering::Release);
            self.table.word(self.place.entry, word::PENDING + 8).store(0, Ordering::Release);
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if !self.nested {
            self.table.word(self.place.entry, word::LOCK).store(0, Ordering::Release);
        }
    }
}

/// The lock of the table, held.
#[derive(Debug)]
pub struct AllLocked<'t>(&'t Table);

impl Drop for AllLocked<'_> {
    fn drop(&mut self) {
        self.0.memory.word(Word::Lock as u64).store(0, Ordering::Release);
    }
}
