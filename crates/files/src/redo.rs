//! Records of a log, made again in files: common to a replay onto the files themselves and to one onto their copy.

use std::fs::File;
use std::io;

use tidewater_client::Entry;
use tidewater_wire::log::FileRecord;

use crate::delta::Recorded;
use crate::report::ReplayError;
use crate::unwritten::Unwritten;

/// A file of a log: the number of its run, and its id there.
pub(crate) type Key = (u32, u32);

/// The runs of a log, numbered in the order in which they began; the same run said again is the same. Records before
/// the first are its own: a checkpoint trims up to where the log ended when it began, and others write while it says
/// again which run it is.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    run: u32,
    pub(crate) all: Vec<[u8; 16]>,
}

impl Runs {
    /// Takes up a run that begins, or goes on.
    pub(crate) fn begin(&mut self, run: [u8; 16]) {
        let known = self.all.iter().position(|one| *one == run);
        self.run = known.unwrap_or(self.all.len()) as u32;
        self.all.extend(known.is_none().then_some(run));
    }

    /// The file of an id in this run.
    pub(crate) fn key(&self, id: u32) -> Key {
        (self.run, id)
    }
}

/// The changes of one file.
#[derive(Debug, Default)]
pub(crate) struct Redo {
    /// Bases of deltas.
    recorded: Recorded,
    /// Changes that the system refused.
    unwritten: Unwritten,
    /// Bytes that were written.
    pub(crate) bytes: u64,
}

impl Redo {
    /// None yet. `punches`: zeroes are to take no room.
    pub(crate) fn new(punches: bool) -> Redo {
        Redo { unwritten: Unwritten::new(punches), ..Redo::default() }
    }

    /// As [`Recorded::take_up`].
    pub(crate) fn take_up(&mut self, lsn: u64, record: &FileRecord<'_>, keep: bool) -> bool {
        self.recorded.take_up(lsn, record, keep)
    }

    /// Makes a change that was taken up with its bytes.
    ///
    /// # Errors
    /// The file can't be read.
    pub(crate) fn apply(&mut self, file: &File, record: &FileRecord<'_>) -> io::Result<()> {
        let (bytes, offset) = match *record {
            FileRecord::Write { offset, bytes, .. } => (bytes, offset),
            FileRecord::Delta { offset, base, .. } => (self.recorded.bytes(base), offset),
            FileRecord::Zero { offset, len, .. } => return self.unwritten.zero(file, offset, len),
            FileRecord::Truncate { len, .. } => {
                self.unwritten.cut(file, len);
                return Ok(());
            }
            _ => return Ok(()),
        };
        self.bytes += bytes.len() as u64;
        self.unwritten.write(file, bytes, offset)
    }

    /// Why the file is not as its log says. `forget`: only where the disk is full.
    pub(crate) fn error(&mut self, forget: bool) -> Option<io::Error> {
        self.unwritten.error().filter(|error| !forget || is_full(error))
    }
}

/// The record of a file that an entry has, and its offset.
pub(crate) fn of_file(entry: Entry<'_>) -> Option<(u64, FileRecord<'_>)> {
    match entry {
        Entry::Record { lsn, payload, .. } => FileRecord::parse(payload).ok().map(|record| (lsn, record)),
        _ => None,
    }
}

/// The id of a record that changes a file.
pub(crate) fn changes(record: &FileRecord<'_>) -> Option<u32> {
    match record {
        FileRecord::Write { id, .. }
        | FileRecord::Delta { id, .. }
        | FileRecord::Truncate { id, .. }
        | FileRecord::Zero { id, .. } => Some(*id),
        _ => None,
    }
}

/// Whether a disk, or a user's part of it, is full.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::ENOSPC | nix::libc::EDQUOT))
}

/// Applies a log to all its files at once; where there is too little room for that, to one file after another, so that
/// none takes what another will give back later in the log. `apply`: to one of them, or to all.
///
/// # Errors
/// Those of `apply`.
pub(crate) fn roomily(
    all: &[Key],
    mut apply: impl FnMut(Option<Key>) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    match apply(None) {
        Err(ReplayError::File { error, .. }) if is_full(&error) => {}
        done => return done,
    }
    let mut before = all.len() + 1;
    loop {
        let (mut refused, mut last) = (0, None);
        for key in all {
            match apply(Some(*key)) {
                Err(error @ ReplayError::File { .. }) => (refused, last) = (refused + 1, Some(error)),
                done => done?,
            }
        }
        match last {
            None => return Ok(()),
            // Those behind it may have given room. All of them again: two may be one file, which left and came back.
            Some(_) if refused < before => before = refused,
            Some(error) => return Err(error),
        }
    }
}
