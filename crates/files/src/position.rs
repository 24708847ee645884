//! How far a directory has the log: a small file in it, which the next replay goes by.

use nix::libc;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The file's name in the directory.
pub const POSITION_FILE: &str = ".tidewater-position";

/// How far a directory has the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Stream offset that a replay reads from: all that matters before it is in the files.
    pub from: u64,
    /// Stream offset up to which changes are in the files.
    pub applied: u64,
    /// Bytes before `applied` that `sum` is of; 0: it is not known.
    pub summed: u64,
    /// Their CRC-32C, by which another log and a cut one are found.
    pub sum: u32,
}

impl Position {
    /// Of a copy that was begun when the log's files were synced up to an offset.
    pub fn of_copy(offset: u64) -> Position {
        Position { from: offset, applied: offset, summed: 0, sum: 0 }
    }

    fn parse(text: &str) -> Option<Position> {
        let mut words = text.lines().find(|line| !line.starts_with('#'))?.split_whitespace();
        let mut value = |name: &str| {
            let is_next = words.next()? == name;
            is_next.then(|| words.next()?.parse().ok()).flatten()
        };
        let position = Position {
            from: value("from")?,
            applied: value("applied")?,
            summed: value("summed")?,
            sum: value("sum")?.try_into().ok()?,
        };
        (position.from <= position.applied && position.summed <= position.applied).then_some(position)
    }

    fn text(&self) -> String {
        let Position { from, applied, summed, sum } = self;
        format!(
            "# How far this directory has a log: written by `tidewater recover --onto`.\n\
             from {from} applied {applied} summed {summed} sum {sum}\n"
        )
    }

    /// That of a directory; `None`: it has none.
    ///
    /// # Errors
    /// Those of the system, and a file that says no position.
    pub fn load(folder: &Path) -> io::Result<Option<Position>> {
        // The folder may be another user's, who put a link or a pipe there.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let read = |mut file: File| {
            if !file.metadata()?.is_file() {
                return Err(io::Error::other("it is no regular file"));
            }
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| text)
        };
        match options.open(folder.join(POSITION_FILE)).and_then(read) {
            Ok(text) => Position::parse(&text).map(Some).ok_or_else(|| io::Error::other("it says no position")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives it to a directory, durably.
    ///
    /// # Errors
    /// Those of the system.
    pub fn store(&self, folder: &Path) -> io::Result<()> {
        let new: PathBuf = folder.join(format!("{POSITION_FILE}.new"));
        // What an earlier attempt left, or another user put there, is not written through.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = File::create_new(&new)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, folder.join(POSITION_FILE))?;
        File::open(folder)?.sync_all()
    }

    /// The directory follows no log any more.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join(POSITION_FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(folder)?.sync_all(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written_and_other_text_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Position::load(folder.path()).expect("a missing position is no error"), None);
        let position = Position { from: 64, applied: 640, summed: 576, sum: u32::MAX };
        position.store(folder.path()).expect("the file can be written");
        assert_eq!(Position::load(folder.path()).expect("the position can be read"), Some(position));
        for wrong in ["", "from 1", "from 9 applied 8 summed 0 sum 0", "from 1 applied 8 summed 9 sum 0"] {
            fs::write(folder.path().join(POSITION_FILE), wrong).expect("the file can be written");
            assert!(Position::load(folder.path()).is_err(), "{wrong}");
        }
        Position::remove(folder.path()).expect("the file can be removed");
        Position::remove(folder.path()).expect("removing it again is no error");
    }
}
