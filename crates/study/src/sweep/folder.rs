//! The folder of a sweep: a file for each run, locks of those that are under way.

use super::Kept;
use crate::{Failure, reason};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder.
#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
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
    path: PathBuf,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // While it is still locked: a process that has opened it before finds the record once the lock is free. A file
        // that stays does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder of records.
const RUNS: &str = "runs";
/// The folder of locks.
const CLAIMS: &str = "claims";
/// The file by which the folder is known.
const INDEX: &str = "sweep.json";
/// What a record's name ends with; of a run without one, [`FAILED`].
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
        let folder = Folder { root: root.to_owned() };
        if let Ok(mut entries) = fs::read_dir(root)
            && !root.join(INDEX).exists()
            && !root.join(RUNS).is_dir()
            && entries.next().is_some()
        {
            return Err(Failure::usage(format_args!("{}: has files, and none of a sweep", root.display()))
                .help("give an empty directory, or one that a sweep has made"));
        }
        fs::create_dir_all(root.join(RUNS)).map_err(wrong)?;
        fs::create_dir_all(root.join(CLAIMS)).map_err(wrong)?;
        Ok(folder)
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
        let runs = self.root.join(RUNS);
        let entries = fs::read_dir(&runs).map_err(|error| cannot("read", &runs, &error))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.split_once('.').map(|(name, _)| name.to_owned()))
            .collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn of_run(&self, name: &str, end: &str) -> PathBuf {
        self.root.join(RUNS).join(format!("{name}.{end}"))
    }

    /// Whether the run is there; `None`: it is not.
    ///
    /// # Errors
    /// When the folder can't be read.
    pub fn state(&self, name: &str) -> Result<Option<State>, Failure> {
        for (end, failed) in [(RECORD, false), (FAILED, true)] {
            let path = self.of_run(name, end);
            if path.try_exists().map_err(|error| cannot("read", &path, &error))? {
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
        let path = self.root.join(CLAIMS).join(name);
        match self.locked(&path) {
            Ok(file) => Ok(file.map(|locked| Claim { _locked: locked, path })),
            Err(error) => Err(cannot("lock", &path, &error)),
        }
    }

    /// Makes a file in the folder of locks, and locks it; `None`: another process has it. No process removes or
    /// renames such a file without its lock. A process that tidies up may come in between: then once
    /// more.
    fn locked(&self, path: &Path) -> io::Result<Option<File>> {
        for _ in 0..TRIES {
            let file = match OpenOptions::new().create(true).truncate(false).write(true).open(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    // Not the folder itself: one that was removed stays away.
                    match fs::create_dir(self.root.join(CLAIMS)) {
                        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                        _ => continue,
                    }
                }
                opened => opened?,
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => return Ok(Some(file)),
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
        self.replace(&self.of_run(name, end), text.as_bytes())
    }

    /// Writes a file of the folder: whole, or not at all.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        self.replace(&self.root.join(name), bytes)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
        // One name for each process and target: what a killed process left is written over by the next of its number.
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = self.root.join(CLAIMS).join(format!("{name}.{}.new", std::process::id()));
        let write = || {
            let mut file = self.locked(&new)?;
            for _ in 0..TRIES {
                if file.is_some() {
                    break;
                }
                // Another process looks at it as it tidies up, and is done soon.
                std::thread::sleep(Duration::from_millis(1));
                file = self.locked(&new)?;
            }
            let mut file = file.ok_or(io::ErrorKind::WouldBlock)?;
            file.set_len(0)?;
            file.write_all(bytes)?;
            // A record that is there is whole, also after the machine went away.
            file.sync_all()?;
            fs::rename(&new, path)
        };
        write().map_err(|error| cannot("write", path, &error))
    }

    /// What came of a run; `None`: it is not there.
    ///
    /// # Errors
    /// When it can't be read, or is nothing of a sweep.
    pub fn read(&self, name: &str) -> Result<Option<Kept>, Failure> {
        for end in [RECORD, FAILED] {
            let path = self.of_run(name, end);
            match fs::read_to_string(&path) {
                Ok(text) => {
                    return serde_json::from_str(&text).map(Some).map_err(|error| {
                        Failure::usage(format_args!("{}: no record of a sweep: {error}", path.display()))
                            .help("remove the file, and its run is made again")
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(cannot("read", &path, &error)),
            }
        }
        Ok(None)
    }

    /// Forgets the runs that failed, so that they are tried again.
    ///
    /// # Errors
    /// When the folder can't be written.
    pub fn forget_failed(&self) -> Result<(), Failure> {
        let runs = self.root.join(RUNS);
        let entries = fs::read_dir(&runs).map_err(|error| cannot("read", &runs, &error))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(FAILED)) {
                fs::remove_file(&path).map_err(|error| cannot("write", &path, &error))?;
            }
        }
        Ok(())
    }

    /// Removes what killed processes left half-written, and the folder of locks if nothing is under way.
    pub fn tidy(&self) {
        let claims = self.root.join(CLAIMS);
        // What can't be removed is in use, or does no harm.
        for path in fs::read_dir(&claims).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if let Ok(file) = OpenOptions::new().write(true).open(&path)
                && file.try_lock().is_ok()
                && is_at(&file, &path)
            {
                let _ = fs::remove_file(&path);
            }
        }
        let _ = fs::remove_dir(&claims);
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

/// Whether the open file is still the one that the path names.
fn is_at(file: &File, path: &Path) -> bool {
    let which = |of: io::Result<fs::Metadata>| of.map(|of| (of.dev(), of.ino()));
    which(file.metadata()).is_ok_and(|open| which(fs::metadata(path)).is_ok_and(|named| named == open))
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
        let root = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(root.path()).expect("it opens");
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
                            folder.write(&own, turn.to_string().as_bytes()).expect("it is written");
                            assert_eq!(fs::read_to_string(folder.file(&own)).expect("it is read"), turn.to_string());
                            if let Some(claim) = folder.claim(&shared).expect("a claim or none") {
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
