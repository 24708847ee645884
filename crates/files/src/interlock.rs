//! Agreement between a log and the markers of folders: a log is replayed onto the files that its run left, and no
//! program starts on files whose last bytes another log may hold (ADR 38).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use tidewater_wire::vendor::Epoch;

use crate::Globs;
use crate::glob::PREFIX;
use crate::marker::{ALL, Folder, Marker, Unusable, name_of, remove, split};
use crate::position::POSITION_FILE;
use crate::report::ReplayError;

/// Names that are looked at for folders of a set, at most.
const NAMES_MAX: usize = 1 << 20;
/// Levels of folders behind the first special character, at most.
const LEVELS_MAX: usize = 64;

/// A marker that keeps a program from being started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Foreign {
    /// The marker's file.
    pub path: PathBuf,
    /// Its content, if it can be trusted.
    pub marker: Option<Marker>,
    /// It is of another folder: this one is a copy, or was restored.
    pub is_copy: bool,
    /// The reason, in words.
    pub why: String,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.parent().unwrap_or(&self.path).display(), self.why)
    }
}

impl Foreign {
    fn of(folder: &Path, name: &str, opened: &Folder, read: Result<Marker, Unusable>) -> Foreign {
        let path = folder.join(name);
        let mut is_copy = false;
        let (marker, why) = match read {
            Err(why) => (None, format!("its marker {name} can't be trusted: {why}")),
            Ok(marker) if !opened.is_of(&marker) => {
                is_copy = true;
                let why = format!(
                    "it is a copy of a folder, or was restored from one, whose files had their last bytes on the log \
                     of {}: the copy may be without them",
                    marker.device()
                );
                (Some(marker), why)
            }
            Ok(marker) => {
                let why = format!("its files have their last bytes on the log of {}", marker.device());
                (Some(marker), why)
            }
        };
        Foreign { path, marker, is_copy, why }
    }

    /// Says what is different where a start is on the very device that the marker names.
    pub(crate) fn on(mut self, drive: [u8; 16], lane: u8) -> Foreign {
        let is_this = |marker: &Marker| drive != [0; 16] && (marker.drive, marker.lane) == (drive, lane);
        if !self.is_copy && self.marker.as_ref().is_some_and(is_this) {
            self.why += ". This is that drive, but without that run: it is an older copy, or its log was lost";
        }
        self
    }
}

/// Folders that files of a set can be in, as far as they are there.
pub(crate) fn folders_of<'p>(patterns: impl Iterator<Item = &'p str>) -> BTreeSet<PathBuf> {
    let (mut folders, mut names) = (BTreeSet::new(), NAMES_MAX);
    for pattern in patterns.filter(|pattern| *pattern != ALL && pattern.starts_with('/')) {
        let parts: Vec<&str> = pattern.split('/').collect();
        let parts = &parts[..parts.len() - 1];
        let is_special = |part: &&&str| part.contains(['*', '?', '[']);
        // Brackets around a special character are its own name.
        let fixed = parts.iter().take_while(|part| !is_special(part)).count();
        let levels = if pattern.contains("**") { LEVELS_MAX } else { parts.len() - fixed };
        let base = format!("/{}", parts[1.min(fixed)..fixed].join("/"));
        walk(Path::new(&base), levels, &mut names, &mut folders);
    }
    folders
}

/// The folders at and below a path, until `names` were looked at.
fn walk(path: &Path, levels: usize, names: &mut usize, folders: &mut BTreeSet<PathBuf>) {
    if !path.symlink_metadata().is_ok_and(|about| about.is_dir()) {
        return;
    }
    folders.insert(path.to_owned());
    if levels == 0 {
        return;
    }
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let Some(left) = names.checked_sub(1) else { return };
        *names = left;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), levels - 1, names, folders);
        }
    }
}

/// Whether a marker is about files that a set has, or would have.
fn concerns(globs: &Globs, folder: &Path, marker: Option<&Marker>, names: &[Vec<u8>]) -> bool {
    let is_of_set = |name: &[u8]| {
        let mut path = folder.as_os_str().as_bytes().to_vec();
        path.push(b'/');
        path.extend(name);
        globs.matches(&path)
    };
    if names.iter().any(|name| is_of_set(name) && marker.is_none_or(|marker| marker.covers(name))) {
        return true;
    }
    // Files that are not there: by a name that both give, or by the same pattern.
    let last = |pattern: &String| {
        let (folders, last) = pattern.rsplit_once('/').unwrap_or_default();
        Globs::from_text(folders).matches(folder.as_os_str().as_bytes()).then(|| last.to_owned())
    };
    let own: Vec<String> = globs.patterns().iter().filter_map(last).collect();
    marker.is_some_and(|marker| marker.names.iter().any(|name| is_of_set(name.as_bytes()) || own.contains(name)))
}

/// Markers in a folder that keep files of a set from being used, but for that of a run itself.
///
/// # Errors
/// The folder can't be read.
pub(crate) fn foreign_in(path: &Path, globs: &Globs, own: Option<&[u8; 16]>) -> Result<Vec<Foreign>, Errno> {
    let folder = Folder::open(path)?;
    let (markers, names) = folder.names().map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
    let mut found = Vec::new();
    for name in markers.iter().filter(|name| own.is_none_or(|own| **name != name_of(own))) {
        let Some(read) = folder.read(name).transpose() else { continue };
        if concerns(globs, path, read.as_ref().ok(), &names) {
            found.push(Foreign::of(path, name, &folder, read));
        }
    }
    Ok(found)
}

/// Markers that keep a program from being started on the files of a set.
pub fn markers_of(globs: &Globs) -> Vec<Foreign> {
    let folders = folders_of(globs.patterns().iter().map(String::as_str));
    folders.iter().filter_map(|folder| foreign_in(folder, globs, None).ok()).flatten().collect()
}

/// The markers in a folder and below it, of whichever set: files there have their last bytes on a log, or may. Folders
/// are followed where a symbolic link in the folder itself leads to one.
///
/// # Errors
/// A folder, by its path, that can't be read.
pub fn markers(folder: &Path) -> Result<Vec<Foreign>, (PathBuf, std::io::Error)> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut left = vec![folder.canonicalize().map_err(|error| (folder.to_owned(), error))?];
    let first = left[0].clone();
    while let Some(path) = left.pop() {
        let failed = |error: std::io::Error| (path.clone(), error);
        if !seen.insert(path.clone()) {
            continue;
        }
        let opened = match Folder::open(&path) {
            // Removed meanwhile.
            Err(Errno::ENOENT | Errno::ENOTDIR) if path != first => continue,
            opened => opened.map_err(|errno| failed(errno.into()))?,
        };
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let kind = entry.file_type().map_err(failed)?;
            let leads = kind.is_symlink() && path == first && entry.path().is_dir();
            if kind.is_dir() || leads {
                left.push(entry.path().canonicalize().map_err(failed)?);
            }
        }
        let (markers, _) = opened.names().map_err(failed)?;
        for name in &markers {
            let Some(read) = opened.read(name).transpose() else { continue };
            found.push(Foreign::of(&path, name, &opened, read));
        }
        if path.join(POSITION_FILE).exists() {
            let why = "it is a copy that follows a log (`tidewater recover --onto`), and not complete yet".to_owned();
            found.push(Foreign { path: path.join(POSITION_FILE), marker: None, is_copy: false, why });
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

/// Removes markers from a copy that is whole by now: they came with it, and are of other folders.
///
/// # Errors
/// `File`, with a folder or marker.
pub(crate) fn forget_copies(folder: &Path) -> Result<(), ReplayError> {
    let all = markers(folder).map_err(|(path, error)| ReplayError::File { path, error })?;
    let copies: Vec<Foreign> = all.into_iter().filter(|one| one.is_copy).collect();
    adopt(&copies).map_err(|error| ReplayError::File { path: folder.to_owned(), error })
}

/// Removes markers: the files are another log's from now on.
///
/// # Errors
/// Those of the system.
pub(crate) fn adopt(foreign: &[Foreign]) -> std::io::Result<()> {
    for one in foreign {
        let (Some(folder), Some(name)) = (one.path.parent(), one.path.file_name()) else { continue };
        let folder = Folder::open(folder)?;
        folder.remove(&name.to_string_lossy())?;
        folder.sync()?;
    }
    Ok(())
}

/// Runs and offsets of a log.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    /// Its runs.
    pub(crate) runs: Vec<[u8; 16]>,
    /// Where it ends.
    pub(crate) end: u64,
    /// Up to where its files have it, by its own word.
    pub(crate) synced: u64,
    /// The epoch that its device is in.
    pub(crate) epoch: u64,
}

/// Why a marker does not go with a log.
#[derive(Debug)]
struct Amiss {
    why: String,
    /// Another device has what the marker is of: it is not for this one to remove.
    is_newer: bool,
}

impl From<String> for Amiss {
    fn from(why: String) -> Amiss {
        Amiss { why, is_newer: false }
    }
}

/// Markers of a log's runs, by run and folder.
#[derive(Debug, Default)]
pub(crate) struct Found(BTreeMap<([u8; 16], PathBuf), Result<(), Amiss>>);

impl Found {
    /// Looks for them in folders.
    pub(crate) fn look(log: &Extent, folders: &BTreeSet<PathBuf>) -> Found {
        let mut found = BTreeMap::new();
        for path in folders {
            let Ok(folder) = Folder::open(path) else { continue };
            for run in &log.runs {
                let name = name_of(run);
                let why = match folder.read(&name).transpose() {
                    None => continue,
                    Some(Err(why)) => Err(format!("its folder's marker {name} can't be trusted: {why}").into()),
                    Some(Ok(marker)) => log.judge(&folder, &marker),
                };
                found.insert((*run, path.clone()), why);
            }
        }
        Found(found)
    }

    /// Why a file of a run that has changes on the log must not be touched. `is_marked`: its folder had a marker.
    pub(crate) fn refuses(&self, run: &[u8; 16], file: &Path, is_marked: bool) -> Option<String> {
        let (folder, _) = split(file.as_os_str().as_bytes())?;
        match self.0.get(&(*run, folder.to_owned())) {
            Some(Ok(())) => None,
            Some(Err(amiss)) => Some(amiss.why.clone()),
            None if is_marked => Some(without(folder)),
            None => None,
        }
    }

    /// Those that say that log and files do not go together.
    pub(crate) fn bad(&self) -> impl Iterator<Item = (PathBuf, &str)> {
        let path = |(run, folder): &([u8; 16], PathBuf)| folder.join(name_of(run));
        self.0.iter().filter_map(move |(key, why)| Some((path(key), why.as_ref().err()?.why.as_str())))
    }

    /// But for those of a log that is newer than this one.
    pub(crate) fn without_newer(mut self) -> Found {
        self.0.retain(|_, found| !found.as_ref().is_err_and(|amiss| amiss.is_newer));
        self
    }

    /// The files have all of the log up to here, durably: says so, before the log does.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn advance(&self, synced: u64) -> std::io::Result<()> {
        for (run, path) in self.0.keys() {
            let Ok(folder) = Folder::open(path) else { continue };
            if let Some(file) = folder.advance(run, |marker| marker.synced = synced)? {
                nix::unistd::fdatasync(&file)?;
            }
        }
        Ok(())
    }

    /// Removes them: the files are whole without the log.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn remove(&self) -> std::io::Result<()> {
        self.0.keys().try_for_each(|(run, path)| remove(path, run))
    }
}

/// Why a file is refused whose folder has lost its marker.
fn without(path: &Path) -> String {
    let names =
        Folder::open(path).and_then(|folder| folder.names().map_err(|_| Errno::EIO).map(|names| (folder, names)));
    let newer = names.ok().and_then(|(folder, (markers, _))| markers.iter().find_map(|name| folder.read(name).ok()?));
    match newer {
        Some(marker) => format!(
            "its folder has no marker of this log any more: its files went on on the log of {}, and this log's bytes \
             are older",
            marker.device()
        ),
        None => format!(
            "its folder has no marker of this log ({PREFIX}…) any more: its files were taken to another device, or \
             restored, or the marker was removed, and this log's bytes may be older"
        ),
    }
}

impl Extent {
    /// Whether a marker of one of the runs says that the files are those that the log left.
    fn judge(&self, folder: &Folder, marker: &Marker) -> Result<(), Amiss> {
        if !self.runs.contains(&marker.run) {
            return Err("its folder's marker is of another run than its name says".to_owned().into());
        }
        if !folder.is_of(marker) {
            let why = "its folder is a copy, or was restored: the marker in it is of another folder";
            return Err(why.to_owned().into());
        }
        let newer = |why| Err(Amiss { why, is_newer: true });
        if marker.seen > self.end {
            return newer(format!(
                "the log ends at offset {}, and the one that wrote the file had come to {}: this device is an older \
                 copy of it, or a replica without all of it",
                self.end, marker.seen
            ));
        }
        if marker.epoch > self.epoch {
            return newer(format!(
                "the log went on in epoch {}, and this device is in {}: another of its group has the newer log",
                Epoch(marker.epoch),
                Epoch(self.epoch)
            ));
        }
        if marker.synced < self.synced {
            return Err(format!(
                "its folder was restored from a backup: its files have the log up to offset {}, and what comes before \
                 {} is not on the log any more",
                marker.synced, self.synced
            )
            .into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
