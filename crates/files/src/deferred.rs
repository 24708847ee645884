//! Writes to files that layers defer: their bytes are on the log, and go to the file before that is synced, and so
//! before the log is trimmed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::table::Place;

/// Writes to its file what a layer has deferred. Returns whether all of it is there.
pub type Flush = dyn Fn() -> bool + Send + Sync;

/// The files that layers may defer writes to, each with the layer's number of it and the call that writes them.
#[derive(Default)]
pub(crate) struct Deferred(Mutex<Vec<(Place, usize, Arc<Flush>)>>);

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|(place, number, _)| (place, number))).finish()
    }
}

impl Deferred {
    fn all(&self) -> MutexGuard<'_, Vec<(Place, usize, Arc<Flush>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, place: Place, number: usize, flush: Arc<Flush>) {
        self.all().push((place, number, flush));
    }

    pub fn remove(&self, number: usize) {
        self.all().retain(|(_, of, _)| *of != number);
    }

    /// Whether writes to a file may be deferred.
    pub fn has(&self, place: Place) -> bool {
        self.all().iter().any(|(of, ..)| *of == place)
    }

    /// Writes to a file what was deferred. Returns whether all of it is there.
    pub fn flush(&self, place: Place) -> bool {
        // Not under the lock: a layer takes its time.
        let of_file = |(of, _, flush): &(Place, usize, Arc<Flush>)| (*of == place).then(|| Arc::clone(flush));
        let of_file: Vec<_> = self.all().iter().filter_map(of_file).collect();
        of_file.iter().all(|flush| flush())
    }
}
