//! Drives in the state that a run begins with, for runs that differ in their load alone: a large one in its steady
//! state takes seconds to make, and a fraction of that to copy.

use crate::one::memory_needed;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_core::{Device, Options, SetupError};

/// Drives that were made, as many as fit. Those that no run to come needs make room for others.
#[derive(Default)]
pub struct SharedDrives {
    /// Bytes that they may take.
    most: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Runs to come of each drive, whatever size it has.
    expected: HashMap<String, usize>,
    kept: Vec<Kept>,
}

struct Kept {
    drive: String,
    /// The size follows from the load, where the profile does not tell.
    capacity: u64,
    bytes: u64,
    made: Arc<Mutex<Option<Device>>>,
}

/// Parameters that determine a drive, besides its size.
fn key(profile: &Profile, options: &Options) -> String {
    format!("{:?} {:?}", profile.settings(), Options { capacity: 0, ..*options })
}

impl SharedDrives {
    /// Takes at most so many bytes of memory.
    pub fn new(most: u64) -> SharedDrives {
        SharedDrives { most, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds the lock can fail.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run with this drive will come: without others of the same, its drive is not kept.
    pub fn expect(&self, profile: &Profile, options: &Options) {
        *self.lock().expected.entry(key(profile, options)).or_default() += 1;
    }

    /// The drive, as [`Device::new`] makes it.
    ///
    /// # Errors
    /// As there.
    pub fn make(&self, profile: &Profile, options: Options) -> Result<Device, SetupError> {
        let Some(made) = self.place(profile, &options) else { return Device::new(profile, options) };
        // Others that need it wait. One that panicked left none behind.
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        match &*made {
            Some(drive) => Ok(drive.clone()),
            None => Ok(made.insert(Device::new(profile, options)?).clone()),
        }
    }

    /// Where the drive is or will be; `None`: it is not worth keeping, or there is no room.
    fn place(&self, profile: &Profile, options: &Options) -> Option<Arc<Mutex<Option<Device>>>> {
        if options.precondition == Precondition::Fresh {
            return None;
        }
        let drive = key(profile, options);
        let mut state = self.lock();
        let left = state.expected.get_mut(&drive)?;
        *left = left.saturating_sub(1);
        let is_last = *left == 0;
        let same = |kept: &Kept| kept.drive == drive && kept.capacity == options.capacity;
        if let Some(at) = state.kept.iter().position(same) {
            let made = Arc::clone(&state.kept[at].made);
            if is_last {
                state.kept.remove(at);
            }
            return Some(made);
        }
        let bytes = memory_needed(profile, options.capacity, options.stamps);
        let taken: u64 = state.kept.iter().map(|kept| kept.bytes).sum();
        if is_last || taken.saturating_add(bytes) > self.most {
            return None;
        }
        let made = Arc::default();
        state.kept.push(Kept { drive, capacity: options.capacity, bytes, made: Arc::clone(&made) });
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(seed: u64) -> Options {
        Options { seed, precondition: Precondition::Steady, ..Options::default() }
    }

    fn tiny() -> Profile {
        tidewater_core::profile::builtin("tiny").unwrap()
    }

    fn kept(drives: &SharedDrives) -> usize {
        drives.lock().kept.len()
    }

    #[test]
    fn a_drive_is_kept_while_runs_of_it_are_to_come() {
        let (drives, tiny) = (SharedDrives::new(1 << 30), tiny());
        for seed in [1, 1, 1, 2] {
            drives.expect(&tiny, &steady(seed));
        }
        let written = |device: &Device| format!("{:?}", device.ftl());
        let fresh = written(&Device::new(&tiny, steady(1)).unwrap());
        for (seed, after) in [(1, 1), (2, 1), (1, 1), (1, 0)] {
            let drive = drives.make(&tiny, steady(seed)).unwrap();
            assert_eq!((written(&drive) == fresh, kept(&drives)), (seed == 1, after), "{seed}");
        }
        drives.make(&tiny, steady(3)).unwrap();
        assert_eq!(kept(&drives), 0, "one that was not expected");
    }

    #[test]
    fn what_does_not_fit_or_is_fresh_is_made_for_each() {
        let tiny = tiny();
        for (most, options) in [(1 << 20, steady(1)), (1 << 30, Options::default())] {
            let drives = SharedDrives::new(most);
            for _ in 0..2 {
                drives.expect(&tiny, &options);
            }
            drives.make(&tiny, options).unwrap();
            assert_eq!(kept(&drives), 0);
        }
    }

    #[test]
    fn an_error_is_told_to_every_run() {
        let (drives, tiny) = (SharedDrives::new(u64::MAX), tiny());
        let wrong = Options { capacity: 1 << 50, ..steady(1) };
        for _ in 0..3 {
            drives.expect(&tiny, &wrong);
        }
        let error = Device::new(&tiny, wrong).err().unwrap();
        for _ in 0..2 {
            assert_eq!(drives.make(&tiny, wrong).err().unwrap().to_string(), error.to_string());
        }
    }
}
