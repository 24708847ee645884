//! What outlives a power cut, and the count of its changes.

use super::Persistent;
use std::ops::Deref;

/// What outlives a power cut. It is read as it is, and changed through [`Kept::change`] alone, so that no change goes
/// uncounted.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    now: Persistent,
    /// As it was when the count was last up to date; `None`: nothing was written since.
    before: Option<Box<Persistent>>,
    version: u64,
}

impl Kept {
    /// What the last life left, counted from `version` on.
    pub(super) fn new(persistent: Persistent, version: u64) -> Kept {
        Kept { now: persistent, before: None, version }
    }

    /// Gives access for a change. A value that was written and is as before is none.
    pub(super) fn change(&mut self) -> &mut Persistent {
        if self.before.is_none() {
            self.before = Some(Box::new(self.now.clone()));
        }
        &mut self.now
    }

    /// The log was cut, or started over: where, is kept too.
    pub(super) fn log_cut(&mut self) {
        self.version += 1;
    }

    /// Counts what has changed. Called at the end of all that may change something.
    pub(super) fn settle(&mut self) {
        if let Some(before) = self.before.take()
            && *before != self.now
        {
            self.version += 1;
        }
    }

    /// How often it has changed.
    pub(super) fn version(&self) -> u64 {
        debug_assert!(self.before.is_none(), "a change has not been counted");
        self.version
    }
}

impl Deref for Kept {
    type Target = Persistent;

    fn deref(&self) -> &Persistent {
        &self.now
    }
}
