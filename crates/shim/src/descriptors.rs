//! Which descriptors are of files in the set, and where some of them stand. Each process has its own table; a fork
//! copies it, and a program that is started finds out anew.
//!
//! Where a descriptor stands is a question to the system, a sixth of what a short write takes. It is known without one
//! where no other process can move it: it was opened only for writing, and close-on-exec, has no copy, and the process
//! has not forked since.

use std::sync::atomic::{AtomicU64, Ordering};

use tidewater_files::Place;

use crate::memory;

/// Descriptors that can be of the set: as many as a process may have by default at most (`fs.nr_open` is higher, and
/// no program's default).
pub const DESCRIPTORS: usize = 1 << 16;

/// Opened with O_SYNC: each write is a sync.
pub const SYNC: u16 = 1;
/// Opened with O_DSYNC.
pub const DSYNC: u16 = 2;
/// Opened with O_APPEND.
pub const APPEND: u16 = 4;
/// Opened with O_WRONLY.
pub const WRITES_ONLY: u16 = 8;
/// Opened with O_DIRECT: what is written has to come from where the program has it, aligned as it is.
pub const DIRECT: u16 = 16;

/// The shim's own: to the program it is none.
const OWN: u64 = u64::MAX;
/// Of something outside of the set, of which each write is a sync.
const SYNCED: u64 = u64::MAX - 1;

static TABLE: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

/// Where descriptors stand: [`FORKS`] when it was opened, if no other process can move it, else 0; below that, in so
/// many bits, the offset at which this process left it and one more, or 0: not known.
static STANDS: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];
const OFFSET_BITS: u32 = 44;
const OFFSETS: u64 = 1 << OFFSET_BITS;

/// How often this process has begun or ended to fork, and one more. Whatever was open before has another process that
/// can move it.
static FORKS: AtomicU64 = AtomicU64::new(1);
/// From so many on no more is counted, and nothing known.
const FORKS_MAX: u64 = (1 << (u64::BITS - OFFSET_BITS)) - 1;

/// A descriptor of a file in the set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Of {
    /// The file.
    pub place: Place,
    /// How it was opened.
    pub flags: u16,
}

/// Kind of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing of ours.
    Other,
    /// Nothing of ours, and opened with O_SYNC or O_DSYNC.
    Synced,
    /// Of a file in the set.
    File(Of),
    /// The shim's own.
    Own,
}

impl Of {
    fn word(self) -> u64 {
        u64::from(self.place.id) << 32 | u64::from(self.place.entry) << 16 | u64::from(self.flags)
    }

    fn from_word(word: u64) -> Of {
        Of { place: Place { id: (word >> 32) as u32, entry: (word >> 16) as u16 }, flags: word as u16 }
    }
}

#[inline]
fn slot(fd: i32) -> Option<&'static AtomicU64> {
    usize::try_from(fd).ok().and_then(|fd| TABLE.get(fd))
}

/// Kind of a descriptor.
#[inline]
pub fn kind(fd: i32) -> Kind {
    match slot(fd).map_or(0, |slot| slot.load(Ordering::Acquire)) {
        0 => Kind::Other,
        SYNCED => Kind::Synced,
        OWN => Kind::Own,
        word => Kind::File(Of::from_word(word)),
    }
}

/// The file of a descriptor, if it is of the set.
#[inline]
pub fn of(fd: i32) -> Option<Of> {
    match kind(fd) {
        Kind::File(of) => Some(of),
        _ => None,
    }
}

/// Whether a descriptor is of this file of the set. It is not any more where it was closed meanwhile.
#[inline]
pub fn is(fd: i32, place: Place) -> bool {
    of(fd).is_some_and(|of| of.place == place)
}

/// Whether a descriptor can be of the set at all.
pub fn fits(fd: i32) -> bool {
    slot(fd).is_some()
}

/// Says what a descriptor is from now on, which is none of the shim's own. A child that borrows its parent's memory
/// says nothing: it will soon be another program.
#[inline]
pub fn set(fd: i32, kind: Kind) {
    let Some(slot) = slot(fd) else { return };
    let word = match kind {
        Kind::Other | Kind::Own => 0,
        Kind::Synced => SYNCED,
        Kind::File(of) => {
            share(fd);
            of.word()
        }
    };
    let before = slot.load(Ordering::Relaxed);
    if before != word && before != OWN && !memory::is_borrowed() {
        slot.store(word, Ordering::Release);
    }
}

/// As [`FORKS`], while it counts.
#[inline]
fn forks() -> Option<u64> {
    Some(FORKS.load(Ordering::Acquire)).filter(|forks| *forks < FORKS_MAX)
}

/// The process forks, or has forked.
pub extern "C" fn fork() {
    let count = |forks: u64| Some((forks + 1).min(FORKS_MAX));
    let _ = FORKS.fetch_update(Ordering::AcqRel, Ordering::Acquire, count);
}

fn stand(fd: i32) -> Option<&'static AtomicU64> {
    usize::try_from(fd).ok().and_then(|fd| STANDS.get(fd))
}

/// A descriptor that was opened just now, and that no other process can move. A child that borrows its parent's memory
/// says nothing.
pub fn alone(fd: i32) {
    if !memory::is_borrowed()
        && let Some((stand, forks)) = stand(fd).zip(forks())
    {
        stand.store(forks << OFFSET_BITS, Ordering::Release);
    }
}

/// From now on others can move it: it is copied, or left to another program. Or it is moved.
pub fn share(fd: i32) {
    if let Some(stand) = stand(fd) {
        stand.store(0, Ordering::Release);
    }
}

/// Where a descriptor stands, if that is known.
#[inline]
pub fn stands(fd: i32) -> Option<u64> {
    let (word, forks) = (stand(fd)?.load(Ordering::Acquire), forks()?);
    (word >> OFFSET_BITS == forks).then(|| (word & (OFFSETS - 1)).checked_sub(1)).flatten()
}

/// Where this process left a descriptor, which others may have moved since. `None`: it has not moved it.
#[inline]
pub fn left(fd: i32) -> Option<u64> {
    let word = stand(fd)?.load(Ordering::Acquire);
    (word & (OFFSETS - 1)).checked_sub(1)
}

/// A descriptor has been moved by a write: to there, or it is not known where to. The caller has the lock of its
/// file.
#[inline]
pub fn moved(fd: i32, to: Option<u64>) {
    let Some(stand) = stand(fd) else { return };
    let word = stand.load(Ordering::Acquire);
    let alone = forks().filter(|forks| word >> OFFSET_BITS == *forks).unwrap_or(0);
    let offset = to.and_then(|to| to.checked_add(1)).filter(|offset| *offset < OFFSETS).unwrap_or(0);
    // Not where it has been shared meanwhile.
    let _ = stand.compare_exchange(word, alone << OFFSET_BITS | offset, Ordering::AcqRel, Ordering::Relaxed);
}

/// The shim's own.
pub fn own(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.store(OWN, Ordering::Release);
    }
}

/// The shim's own descriptors between two numbers, in order.
pub fn owned(first: u32, last: u32) -> impl Iterator<Item = u32> {
    (first..=last.min(DESCRIPTORS as u32 - 1)).filter(|fd| TABLE[*fd as usize].load(Ordering::Relaxed) == OWN)
}
