//! Files that this process may have locks of (fcntl(2), F_SETLK). The system gives all of them up when the process
//! closes *any* descriptor of the file, be it one that a library had opened to sync it. So such a file is opened once,
//! and closed with the log.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewater_client::mapped::inode::{Which, names, which, which_of};

/// A descriptor for reading of each.
#[derive(Debug, Default)]
pub(crate) struct FcntlLocked(Mutex<Vec<(Which, Arc<File>)>>);

fn of(all: &[(Which, Arc<File>)], path: &Path) -> Option<Arc<File>> {
    if all.is_empty() {
        return None; // Most processes have none, and ask the system nothing.
    }
    let this = which(path).ok()?;
    all.iter().find(|(which, _)| *which == this).map(|(_, file)| Arc::clone(file))
}

impl FcntlLocked {
    fn all(&self) -> MutexGuard<'_, Vec<(Which, Arc<File>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of this name, if it is one of them. Symbolic links are not followed.
    pub fn find(&self, path: &Path) -> Option<Arc<File>> {
        of(&self.all(), path)
    }

    /// Opens a file, unless that was done, and keeps it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(&self, path: &Path) -> io::Result<Arc<File>> {
        let mut all = self.all();
        if let Some(file) = of(&all, path) {
            return Ok(file);
        }
        // No process waits for a lock of a file that has no name and no writer any more.
        all.retain(|(_, file)| Arc::strong_count(file) > 1 || names(file.as_fd()) != Ok(0));
        let file = Arc::new(File::open(path)?);
        // Kept before anything else is done with it: what fails later closes nothing.
        all.push((which_of(file.as_fd())?, Arc::clone(&file)));
        Ok(file)
    }
}
