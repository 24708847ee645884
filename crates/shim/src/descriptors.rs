//! Which descriptors are of files in the set. Each process has its own table; a fork copies it, and a program that is started finds out anew.

use std::sync::atomic::{AtomicU64, Ordering};

use tidewater_client::files::Place;

use crate::memory;

/// Descriptors that can be of the set: as many as a process may have by default at most (`fs.nr_open` is higher, and nobody's default).
pub const DESCRIPTORS: usize = 1 << 16;

/// Opened with O_SYNC: each write is a sync.
pub const SYNC: u16 = 1;
/// Opened with O_DSYNC.
pub const DSYNC: u16 = 2;
/// Opened with O_APPEND.
pub const APPEND: u16 = 4;

/// The shim's own: to the program it is none.
const OWN: u64 = u64::MAX;

static TABLE: [AtomicU64; DESCRIPTORS] = [const { AtomicU64::new(0) }; DESCRIPTORS];

/// A descriptor of a file in the set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Of {
    /// The file.
    pub place: Place,
    /// How it was opened.
    pub flags: u16,
}

/// What a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Nothing of ours.
    Other,
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

/// What a descriptor is.
#[inline]
pub fn kind(fd: i32) -> Kind {
    match slot(fd).map_or(0, |slot| slot.load(Ordering::Acquire)) {
        0 => Kind::Other,
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

/// Whether a descriptor can be of the set at all.
pub fn fits(fd: i32) -> bool {
    slot(fd).is_some()
}

/// Says what a descriptor is from now on. A child that borrows its parent's memory says nothing: it will soon be another program.
#[inline]
pub fn set(fd: i32, of: Option<Of>) {
    let Some(slot) = slot(fd) else { return };
    let word = of.map_or(0, Of::word);
    let before = slot.load(Ordering::Relaxed);
    if before != word && before != OWN && !memory::is_borrowed() {
        slot.store(word, Ordering::Release);
    }
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
