//! The markers of a run: made where a file comes into the set, brought up to date with each checkpoint, removed at the
//! end.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::Globs;
use crate::backing::Journal;
use crate::error::FilesError;
use crate::loss::Loss;
use crate::marker::{ALL, Folder, Marker, is_marked, name_of, remove, remove_by, split};
use crate::set::Files;
use crate::system::{Directly, Plain, Real};
use crate::table::{Counter, GONE, REAL};
use tidewater_client::LogError;

/// Names that a marker has, at most; beyond, it covers all of its folder.
const NAMES_MAX: usize = 24;
/// Bytes of these names, at most.
const NAME_BYTES_MAX: usize = 1 << 10;
/// So many digits of a name in a row count for any characters: a program numbers its files.
const DIGITS: usize = 6;

/// The pattern of names in its folder that a file's name stands for.
fn pattern_of(name: &[u8]) -> String {
    let Ok(name) = std::str::from_utf8(name) else { return "*".into() };
    if name.contains(['\n', '*', '?', '[']) {
        return "*".into();
    }
    let mut pattern = String::new();
    let mut rest = name;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let len = if digits > 0 { digits } else { rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len()) };
        let part;
        (part, rest) = rest.split_at(len);
        pattern.push_str(if digits >= DIGITS { "*" } else { part });
    }
    pattern
}

/// No more names than a marker has room for.
fn few(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names.dedup();
    let bytes: usize = names.iter().map(String::len).sum();
    if names.len() > NAMES_MAX || bytes > NAME_BYTES_MAX { vec!["*".into()] } else { names }
}

/// The names that patterns of a set have in a folder; none for a set of all files: there each file's name counts.
pub(crate) fn names_of(globs: &Globs) -> Vec<String> {
    let last = |pattern: &String| pattern.rsplit('/').next().map(str::to_owned);
    few(globs.patterns().iter().filter(|pattern| *pattern != ALL).filter_map(last).collect())
}

impl<J: Journal> Files<J> {
    /// Sees to it that the folder of a file that comes into the set has the run's marker, durably. `false`: it has not,
    /// since the program may not write there, or the table has none. `None`: the folder is not there yet. Under the
    /// table's lock, as all that makes and removes markers: until the file is in the table by that path.
    pub(crate) fn mark(&self, path: &[u8], real: &impl Real) -> Option<bool> {
        let (Some(marker), Some((folder, name))) = (self.table().marker(), split(path)) else { return Some(false) };
        // What comes after the files have left the log is not on it.
        if self.table().loss() >= Loss::Leaves {
            return Some(false);
        }
        match Folder::open(folder) {
            Ok(folder) => Some(match has_marker(&folder, &marker, name, real) {
                Ok(is_new) => {
                    self.table().count(Counter::Marked, u64::from(is_new));
                    true
                }
                Err(_) => false,
            }),
            Err(Errno::ENOENT) => None,
            Err(_) => Some(false),
        }
    }

    /// Whether a file whose last bytes may be on the log is in a folder. Under the table's lock.
    fn is_used(&self, folder: &Path) -> bool {
        let table = self.table();
        let is_in = |place| split(table.path(place).as_bytes()).is_some_and(|(of, _)| of == folder);
        table.entries().any(|place| table.flags(place) & (GONE | REAL) == 0 && is_in(place))
    }

    /// Does what only an empty folder allows: its removal, or a rename over it. Where the run's marker is all that is
    /// in it, that goes first: it is no file of the program's. `goes` is called under the table's lock.
    ///
    /// # Errors
    /// The log's: `goes` was not called.
    pub fn without_marker<T>(&self, folder: &[u8], goes: impl FnOnce() -> T) -> Result<T, FilesError> {
        let _all = self.for_good(self.table().lock_all())?;
        if let Some(marker) = self.table().marker()
            && let Ok(opened) = Folder::open(Path::new(OsStr::from_bytes(folder)))
            && opened.has_only(&name_of(&marker.run)).unwrap_or(false)
        {
            // Should it fail, so does what comes now.
            let _ = opened.remove(&name_of(&marker.run));
        }
        Ok(goes())
    }

    /// Removes the run's marker from a folder that has come where no file is of the set, and so is not looked for by
    /// the supervisor. One that is in use stays.
    ///
    /// # Errors
    /// The log's. Where the marker stays, starts are refused until it is removed.
    pub fn leave_folder(&self, folder: &[u8]) -> Result<(), FilesError> {
        let folder = Path::new(OsStr::from_bytes(folder));
        let _all = self.for_good(self.table().lock_all())?;
        let Some(marker) = self.table().marker().filter(|_| !self.is_used(folder)) else { return Ok(()) };
        if is_marked(folder, &marker.run) {
            let _ = remove_by(folder, &marker.run, |opened| Directly.sync(opened.as_fd()).map_err(Into::into));
        }
        Ok(())
    }
}

/// Gives a folder the run's marker, or has the one that it has cover another name. Whether it was written.
fn has_marker(folder: &Folder, run: &Marker, name: &[u8], real: &impl Real) -> Result<bool, Errno> {
    let own = folder.read(&name_of(&run.run)).ok().flatten();
    let own = own.filter(|own| own.run == run.run && folder.is_of(own));
    if own.as_ref().is_some_and(|own| own.covers(name)) {
        return Ok(false);
    }
    let mut marker = run.clone();
    marker.names.extend(own.into_iter().flat_map(|own| own.names));
    if !marker.covers(name) {
        marker.names.push(pattern_of(name));
    }
    marker.names = few(marker.names);
    folder.write(&marker, real).map(|()| true)
}

/// The outcome of bringing markers up to date.
#[derive(Debug, Default)]
pub(crate) struct Advanced {
    /// On folders that have no marker.
    pub(crate) notes: Vec<String>,
    /// Folders that are not there: without files, or renamed.
    pub(crate) missed: BTreeSet<PathBuf>,
    /// A folder whose marker still says what it said before, and why. The log must not say more than that: the device
    /// that wrote the files would be refused.
    pub(crate) stale: Option<(PathBuf, io::Error)>,
}

/// The supervisor's list of the run's markers.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Folders that have one, or should.
    folders: BTreeSet<PathBuf>,
    /// Folders of which it was said that they have none.
    noted: BTreeSet<PathBuf>,
}

impl Marks {
    /// Takes up the folder of a file of the set.
    pub(crate) fn know(&mut self, path: &[u8]) {
        if let Some((folder, _)) = split(path)
            && !self.folders.contains(folder)
        {
            self.folders.insert(folder.to_owned());
        }
    }

    /// Takes up folders of files of the set.
    pub(crate) fn know_all(&mut self, folders: &BTreeSet<PathBuf>) {
        self.folders.extend(folders.iter().cloned());
    }

    /// The files have all changes before an offset of the log, durably: says so in each marker, before the log does.
    /// `lock` takes the table's lock.
    pub(crate) fn advance<L>(
        &mut self,
        marker: &Marker,
        lock: impl Fn() -> Result<L, LogError>,
    ) -> Result<Advanced, LogError> {
        let mut done = Advanced::default();
        for path in &self.folders {
            let all = lock()?;
            let folder = match Folder::open(path) {
                Ok(folder) => folder,
                Err(Errno::ENOENT | Errno::ENOTDIR) => {
                    done.missed.insert(path.clone());
                    continue;
                }
                Err(_) => continue,
            };
            let change = |own: &mut Marker| {
                (own.epoch, own.seen, own.synced) = (marker.epoch, marker.seen, marker.synced);
            };
            match folder.advance(&marker.run, change) {
                Ok(Some(file)) => {
                    // Another that is put in its place meanwhile is synced by who does it.
                    drop(all);
                    if let Err(errno) = nix::unistd::fdatasync(&file) {
                        done.stale = Some((path.clone(), errno.into()));
                    }
                }
                Ok(None) => {
                    if let Err(error) = self.made_anew(&folder, marker)
                        && self.noted.insert(path.clone())
                    {
                        done.notes.push(format!(
                            "{}: no marker can be written there ({error}): nothing keeps its files from being used \
                             without this log",
                            path.display()
                        ));
                    }
                }
                Err(error) => done.stale = Some((path.clone(), error)),
            }
        }
        Ok(done)
    }

    /// A marker that the program could not write, or that was removed.
    fn made_anew(&self, folder: &Folder, marker: &Marker) -> io::Result<()> {
        let all = Marker { names: vec!["*".into()], ..marker.clone() };
        let marker = if marker.names.is_empty() { &all } else { marker };
        Ok(folder.write(marker, &Plain)?)
    }

    /// Removes the markers of folders that no file of the set is in any more.
    pub(crate) fn leave(&mut self, marker: &Marker, used: &BTreeSet<PathBuf>) -> io::Result<()> {
        let unused: Vec<PathBuf> = self.folders.difference(used).cloned().collect();
        for path in unused {
            remove(&path, &marker.run)?;
            self.folders.remove(&path);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stands_for_those_that_its_program_numbers() {
        let is = |name: &str, pattern: &str| assert_eq!(pattern_of(name.as_bytes()), pattern, "{name}");
        is("app.db-wal", "app.db-wal");
        is("app2.db-wal", "app2.db-wal");
        is("000012.log", "*.log");
        is("MANIFEST-000004", "MANIFEST-*");
        is("000000010000000000000001", "*");
        is("a*b", "*");
        is("two\nlines", "*");
        assert_eq!(pattern_of(&[0xFF]), "*");
    }

    #[test]
    fn names_are_those_of_the_patterns_and_no_more_than_have_room() {
        let globs = |patterns: &[&str]| Globs::from_text(&patterns.join("\n"));
        assert_eq!(names_of(&globs(&["/srv/data/*.log", "/srv/x/*.log", "/srv/**"])), ["**", "*.log"]);
        assert_eq!(names_of(&globs(&[ALL])), [""; 0]);
        let many: Vec<String> = (0..=NAMES_MAX).map(|number| format!("/srv/{number}")).collect();
        assert_eq!(names_of(&Globs::from_text(&many.join("\n"))), ["*"]);
    }
}
