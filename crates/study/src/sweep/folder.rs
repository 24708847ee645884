//! The folder of a sweep: a file for each run, locks of those that are under way.
//!
//! Other users may write the folder, too. Its directories are therefore opened once and used by descriptor, no
//! symbolic link in it is followed, and files of other users are refused.

use super::Kept;
use crate::{Failure, reason};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, renameat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::{self, File, TryLockError};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidewater_ipc::open_trusted;

/// The folder.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    /// The open directories: itself, and that of the records.
    top: Arc<File>,
    runs: Arc<File>,
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It was made now.
    Made {
        /// It has no record, but a reason.
        failed: bool,
    },
    /// It was there.
    There {
        /// It has no record, but a reason.
        failed: bool,
    },
    /// Another process makes it.
    Busy,
    /// It was not made.
    Missing,
}

/// The right to make a run: dropped, or when its process goes away, another may.
#[derive(Debug)]
pub struct Claim {
    /// The lock goes with it.
    _locked: File,
    claims: File,
    name: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // While it is still locked: a process that has opened it before finds the record once the lock is free. A file
        // that stays does no harm.
        let _ = unlinkat(&self.claims, self.name.as_str(), UnlinkatFlags::NoRemoveDir);
    }
}

/// The folder of records.
const RUNS: &str = "runs";
/// The folder of locks.
const CLAIMS: &str = "claims";
/// The file by which the folder is known.
const INDEX: &str = "sweep.json";
/// Ending of a record's name; of a run without one, [`FAILED`].
const RECORD: &str = "json";
const FAILED: &str = "failed.json";
/// Times that a file is made anew because others tidied it away; each of them does so once, as it ends.
const TRIES: u32 = 1000;

impl Folder {
    /// Opens it, and makes it where there is none.
    ///
    /// # Errors
    /// When it can't be made, or has files that are no sweep's.
    pub fn open(root: &Path) -> Result<Folder, Failure> {
        let wrong = |error: io::Error| cannot("open", root, &error);
        if let Ok(mut entries) = fs::read_dir(root)
            && !root.join(INDEX).exists()
            && !root.join(RUNS).is_dir()
            && entries.next().is_some()
        {
            return Err(Failure::usage(format_args!("{}: has files, and none of a sweep", root.display()))
                .help("give an empty directory, or one that a sweep has made"));
        }
        fs::create_dir_all(root).map_err(wrong)?;
        let top = File::open(root).map_err(wrong)?;
        let inside = |name: &str| directory(&top, name).map_err(|error| cannot("open", &root.join(name), &error));
        let (runs, _) = (inside(RUNS)?, inside(CLAIMS)?);
        Ok(Folder { root: root.to_owned(), top: Arc::new(top), runs: Arc::new(runs) })
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The names of the runs that it keeps, in their order.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn names(&self) -> Result<Vec<String>, Failure> {
        let entries = names_in(&self.runs).map_err(|error| cannot("read", &self.root.join(RUNS), &error))?;
        let mut names: Vec<String> =
            entries.iter().filter_map(|entry| entry.split_once('.').map(|(name, _)| name.to_owned())).collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// A record, open; `None`: it is not there.
    fn record(&self, file: &str) -> Result<Option<File>, Failure> {
        match open_trusted(&self.runs, Path::new(file), OFlag::O_RDONLY, Mode::empty()) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot("read", &self.root.join(RUNS).join(file), &error)),
        }
    }

    /// Whether the run is there; `None`: it is not.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn state(&self, name: &str) -> Result<Option<State>, Failure> {
        for (end, failed) in [(RECORD, false), (FAILED, true)] {
            if self.record(&format!("{name}.{end}"))?.is_some() {
                return Ok(Some(State::There { failed }));
            }
        }
        Ok(None)
    }

    /// Takes the right to make a run; `None`: another process has it.
    ///
    /// # Errors
    /// When the folder can't be written, or its file system has no locks.
    pub fn claim(&self, name: &str) -> Result<Option<Claim>, Failure> {
        self.locked(name).map_err(|error| cannot("lock", &self.root.join(CLAIMS).join(name), &error))
    }

    /// Makes a file in the folder of locks, and locks it; `None`: another process has it. No process removes or
    /// renames such a file without its lock. A process that tidies up may come in between: then once
    /// more.
    fn locked(&self, name: &str) -> io::Result<Option<Claim>> {
        for _ in 0..TRIES {
            let claims = directory(&self.top, CLAIMS)?;
            // A user who can't open it can't hold its lock either.
            let (flags, mode) = (OFlag::O_WRONLY | OFlag::O_CREAT, Mode::S_IRUSR | Mode::S_IWUSR);
            let file = match open_trusted(&claims, Path::new(name), flags, mode) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, &claims, name) => {
                    return Ok(Some(Claim { _locked: file, claims, name: name.to_owned() }));
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::other("it is removed whenever it is made"))
    }

    /// Keeps what came of a run: whole, or not at all.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn keep(&self, name: &str, kept: &Kept) -> Result<(), Failure> {
        let end = if kept.record.is_some() { RECORD } else { FAILED };
        let text = serde_json::to_string_pretty(kept).map_err(Failure::run)?;
        let file = format!("{name}.{end}");
        let written = self.replace(&self.runs, &file, text.as_bytes());
        written.map_err(|error| cannot("write", &self.root.join(RUNS).join(file), &error))
    }

    /// Writes a file of the folder: whole, or not at all.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.replace(&self.top, name, bytes).map_err(|error| cannot("write", &self.root.join(name), &error))
    }

    /// Writes a file under a name that no other process uses or foresees, then gives it its own name in `folder`.
    fn replace(&self, folder: &File, name: &str, bytes: &[u8]) -> io::Result<()> {
        for _ in 0..TRIES {
            let new = format!("{name}.{:016x}.new", RandomState::new().hash_one(name));
            let claims = directory(&self.top, CLAIMS)?;
            let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
            let mut file = match open_trusted(&claims, Path::new(&new), flags, Mode::from_bits_truncate(0o666)) {
                // The folder of locks was removed since.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists) => {
                    continue;
                }
                opened => opened?,
            };
            // Another process that tidies up may have the lock, or have removed the file.
            match file.try_lock() {
                Ok(()) if is_at(&file, &claims, &new) => {}
                Ok(()) | Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // A record that is there is whole, also after the machine went away.
            let written = file.write_all(bytes).and_then(|()| file.sync_all());
            let placed = written.and_then(|()| Ok(renameat(&claims, new.as_str(), folder, name)?));
            if placed.is_err() {
                let _ = unlinkat(&claims, new.as_str(), UnlinkatFlags::NoRemoveDir);
            }
            return placed;
        }
        Err(io::Error::other("what is written for it is removed whenever it is made"))
    }

    /// The stored outcome of a run; `None`: there is none.
    ///
    /// # Errors
    /// When it can't be read, or is nothing of a sweep.
    pub fn read(&self, name: &str) -> Result<Option<Kept>, Failure> {
        for end in [RECORD, FAILED] {
            let file = format!("{name}.{end}");
            let Some(mut record) = self.record(&file)? else { continue };
            let path = self.root.join(RUNS).join(file);
            let mut text = String::new();
            record.read_to_string(&mut text).map_err(|error| cannot("read", &path, &error))?;
            return serde_json::from_str(&text).map(Some).map_err(|error| {
                Failure::usage(format_args!("{}: no record of a sweep: {error}", path.display()))
                    .help("remove the file, and its run is made again")
            });
        }
        Ok(None)
    }

    /// Forgets the runs that failed, so that they are tried again.
    ///
    /// # Errors
    /// When the folder can't be written.
    pub fn forget_failed(&self) -> Result<(), Failure> {
        let runs = self.root.join(RUNS);
        let names = names_in(&self.runs).map_err(|error| cannot("read", &runs, &error))?;
        for name in names.iter().filter(|name| name.ends_with(FAILED)) {
            unlinkat(&self.runs, name.as_str(), UnlinkatFlags::NoRemoveDir)
                .map_err(|errno| cannot("write", &runs.join(name), &errno.into()))?;
        }
        Ok(())
    }

    /// Removes what killed processes left half-written, and the folder of locks if nothing is under way.
    pub fn tidy(&self) {
        let Ok(claims) = directory(&self.top, CLAIMS) else { return };
        // What can't be removed is in use, or does no harm.
        for name in names_in(&claims).unwrap_or_default() {
            if let Ok(file) = open_trusted(&claims, Path::new(&name), OFlag::O_WRONLY, Mode::empty())
                && file.try_lock().is_ok()
                && is_at(&file, &claims, &name)
            {
                let _ = unlinkat(&claims, name.as_str(), UnlinkatFlags::NoRemoveDir);
            }
        }
        let _ = unlinkat(&self.top, CLAIMS, UnlinkatFlags::RemoveDir);
    }

    /// Writes the index: the sweep's plan, and its runs with their names.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write_index(&self, index: &impl serde::Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(index).map_err(Failure::run)? + "\n";
        self.write(INDEX, text.as_bytes())
    }
}

/// Opens a directory in the folder, and makes it where there is none. The folder itself stays away if it was removed.
fn directory(top: &File, name: &str) -> io::Result<File> {
    for _ in 0..TRIES {
        match mkdirat(top, name, Mode::from_bits_truncate(0o777)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        match open_trusted(top, Path::new(name), OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()) {
            // Another process that tidies up came in between.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
    }
    Err(io::Error::other("it is removed whenever it is made"))
}

/// The names in a directory, in no order. Those that are no UTF-8 are nothing of a sweep.
fn names_in(folder: &File) -> io::Result<Vec<String>> {
    let mut entries = Dir::openat(folder, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in entries.iter() {
        if let Ok(name) = entry?.file_name().to_str()
            && !matches!(name, "." | "..")
        {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Whether the open file is still the one that has this name.
fn is_at(file: &File, folder: impl AsFd, name: &str) -> bool {
    let named = fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW);
    file.metadata().is_ok_and(|open| named.is_ok_and(|named| (named.st_dev, named.st_ino) == (open.dev(), open.ino())))
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::run(format_args!("cannot {what} {}: {}", path.display(), reason(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Processes that end tidy up while others write and claim: each file is written, each claim has one holder.
    #[test]
    fn what_is_tidied_up_is_never_in_use() {
        let root = tempfile::tempdir().expect("the folder can be created");
        let folder = Folder::open(root.path()).expect("the folder can be opened");
        let (done, held) = (AtomicBool::new(false), Mutex::new(HashSet::new()));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        folder.tidy();
                    }
                });
            }
            let workers: Vec<_> = (0..3)
                .map(|worker| {
                    let (folder, held) = (&folder, &held);
                    scope.spawn(move || {
                        let mut had = 0;
                        for turn in 0..400_usize {
                            let (own, shared) = (format!("own-{worker}"), format!("shared-{}", turn % 2));
                            folder.write(&own, turn.to_string().as_bytes()).expect("the file can be written");
                            assert_eq!(fs::read_to_string(folder.file(&own)).expect("a text"), turn.to_string());
                            if let Some(claim) = folder.claim(&shared).expect("claims can be made") {
                                assert!(held.lock().unwrap().insert(shared.clone()), "{shared} has two holders");
                                std::thread::yield_now();
                                held.lock().unwrap().remove(&shared);
                                drop(claim);
                                had += 1;
                            }
                        }
                        had
                    })
                })
                .collect();
            let had: usize = workers.into_iter().map(|worker| worker.join().unwrap_or_default()).sum();
            done.store(true, Ordering::Relaxed);
            assert!(had > 100, "{had} claims");
        });
    }
}
