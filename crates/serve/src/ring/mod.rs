//! Mapped rings (ADR 13): the [`mod@file`] that clients map and store into, its [`mod@copy`] on a disk, the ring of a
//! function with what its clients know of it ([`MappedRing`]), and when the engine looks at rings. What the engine does
//! with the bytes that it finds is in its own room (`engine::rings`).

pub mod copy;
pub mod file;
mod mapped;
mod watch;

use std::path::{Path, PathBuf};

pub use file::{Lost, RingError};
pub use mapped::MappedRing;
pub(crate) use mapped::{MappedLane, has_led, is_counted_on};
pub(crate) use watch::Watch;

/// Where the rings' files are, and what they lie in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingSetup {
    /// The file of function 0; that of function n is this and `.n`.
    pub path: PathBuf,
    /// It lies in memory that survives a loss of power.
    pub persistent: bool,
    /// Where the copy of that of function 0 is on a disk; of function n it is this and `.n`.
    pub copy: Option<PathBuf>,
}

impl RingSetup {
    /// The ring of a function.
    pub fn of(&self, function: usize) -> PathBuf {
        numbered(&self.path, function)
    }

    /// Where the copy of a function's ring is on a disk.
    pub fn copy_of(&self, function: usize) -> Option<PathBuf> {
        self.copy.as_ref().map(|path| numbered(path, function))
    }

    /// Whether places must be synced before they are reported as free to clients.
    pub(crate) fn needs_sync(&self) -> bool {
        self.persistent || self.copy.is_some()
    }
}

fn numbered(path: &Path, function: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if function > 0 {
        name.push(format!(".{function}"));
    }
    name.into()
}

/// Why a ring is not used any more, for the user.
pub(crate) fn lost(path: &Path) -> String {
    format!("{}: the ring's file was truncated, or can't be read or written", path.display())
}
