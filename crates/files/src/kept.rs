//! What layers keep of files for a while, instead of writing it at once: it is on the log, and goes to the file before
//! that is synced, and so before the log is trimmed.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::table::Place;

/// Brings to its file what a layer has kept of it. Returns whether all of it is there.
pub type Bring = dyn Fn() -> bool + Send + Sync;

/// Who keeps something of which file, under the number that the layer tells its changes by.
#[derive(Default)]
pub(crate) struct Kept(Mutex<Vec<(Place, usize, Arc<Bring>)>>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().iter().map(|(place, number, _)| (place, number))).finish()
    }
}

impl Kept {
    fn all(&self) -> MutexGuard<'_, Vec<(Place, usize, Arc<Bring>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn add(&self, place: Place, number: usize, bring: Arc<Bring>) {
        self.all().push((place, number, bring));
    }

    pub fn remove(&self, number: usize) {
        self.all().retain(|(_, of, _)| *of != number);
    }

    /// Whether something may be kept of a file.
    pub fn has(&self, place: Place) -> bool {
        self.all().iter().any(|(of, ..)| *of == place)
    }

    /// Brings what is kept of a file. Returns whether all of it is there.
    pub fn bring(&self, place: Place) -> bool {
        // Not under the lock: a layer takes its time.
        let of_file = |(of, _, bring): &(Place, usize, Arc<Bring>)| (*of == place).then(|| Arc::clone(bring));
        let of_file: Vec<_> = self.all().iter().filter_map(of_file).collect();
        of_file.iter().all(|bring| bring())
    }
}
