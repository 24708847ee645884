//! The place of a log: one device, or the primary of several, and from there the next one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use super::attached::Attached;
use super::ring::Recovered;
use crate::{Level, LogError};

/// How long a wait lasts before other devices are asked whether they are primary by now.
pub(super) const SLICE: Duration = Duration::from_secs(1);

/// The device, or devices, of a log.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "an append on one device follows no pointer")]
pub(super) enum Place {
    /// One, for good.
    One(Attached),
    /// The primary of several.
    Several(Moving),
}

/// A log's place on several devices.
#[derive(Debug)]
pub(super) struct Moving {
    /// Held by more than this field while a record is being filled, or a writer is there.
    on: RwLock<Arc<Attached>>,
    moves: AtomicU64,
    /// When other devices were asked last whether they are primary.
    asked: Mutex<Instant>,
}

impl Moving {
    pub(super) fn new(on: Attached) -> Moving {
        Moving { on: RwLock::new(Arc::new(on)), moves: AtomicU64::new(0), asked: Mutex::new(Instant::now()) }
    }

    pub(super) fn on(&self) -> RwLockReadGuard<'_, Arc<Attached>> {
        self.on.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Whether something keeps the log where it is.
    fn stays(&self) -> bool {
        let on = self.on();
        !on.may_move() || Arc::strong_count(&on) > 1
    }

    /// Moves to the primary, unless another thread has done so since.
    fn follow(&self, moves: u64, why: LogError) -> Result<(), LogError> {
        if self.moves() != moves {
            return Ok(());
        }
        // In a child of the process a thread that only its parent has may hold the lock for ever.
        if !self.on().may_move() {
            return Err(why);
        }
        let mut on = self.on.write().unwrap_or_else(PoisonError::into_inner);
        if self.moves() != moves {
            return Ok(());
        }
        let Some(on) = Arc::get_mut(&mut on).filter(|on| on.may_move()) else { return Err(why) };
        let is_disk = matches!(why, LogError::Store { .. });
        match on.move_to_primary() {
            Ok(_) => _ = self.moves.fetch_add(1, Ordering::AcqRel),
            // The disk is the cause, and that no other leads yet is none.
            Err(LogError::NoPrimary { .. } | LogError::Cluster { .. }) if is_disk => return Err(why),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether another device leads by now. They are asked once in a while.
    fn has_newer(&self) -> bool {
        if self.stays() {
            return false;
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.elapsed() < SLICE {
            return false;
        }
        *asked = Instant::now();
        drop(asked);
        self.on().has_newer()
    }

    fn reattach(&mut self) -> Result<Recovered, LogError> {
        let on = self.on.get_mut().unwrap_or_else(PoisonError::into_inner);
        let lane = on.ring.lane();
        let recovered = Arc::get_mut(on).ok_or(LogError::Busy { lane })?.move_to_primary()?;
        *self.moves.get_mut() += 1;
        Ok(recovered)
    }

    fn with<T>(&self, mut operation: impl FnMut(&Attached) -> Result<T, LogError>) -> Result<T, LogError> {
        self.again(|| {
            let on = self.on();
            match operation(&on) {
                // A ring that stays full may have no device any more; what has no connection does not know.
                Err(full @ LogError::Full { .. }) => match on.is_there() {
                    Ok(()) | Err(LogError::Joined) => Err(full),
                    Err(why) => Err(why),
                },
                result => result,
            }
        })
    }

    /// Does something that looks for the place itself, and once more after each move.
    fn again<T>(&self, mut operation: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
        loop {
            let moves = self.moves();
            match operation() {
                Err(why) if has_moved(&why) => self.follow(moves, why)?,
                result => return result,
            }
        }
    }

    fn wait(&self, end: u64, level: Level, timeout: Duration) -> Result<(), LogError> {
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            let moves = self.moves();
            match self.with(|on| on.wait(end, level, left.min(SLICE))) {
                Err(why) if is_late(&why) => {
                    let failed = if self.has_newer() { self.follow(moves, why).err() } else { Some(why) };
                    match failed {
                        // Something may keep the log where it is, and the device may still come back.
                        Some(why) if !is_late(&why) || start.elapsed() >= timeout => return Err(why),
                        _ => {}
                    }
                }
                result => return result,
            }
        }
    }
}

/// Whether the primary may be another device by now: one whose disk takes nothing leads no more.
fn has_moved(why: &LogError) -> bool {
    let is_disk = matches!(why, LogError::Store { .. });
    is_disk || matches!(why, LogError::Stale | LogError::Secondary | LogError::Gone | LogError::NoReply { .. })
}

/// Whether a wait ended before its device answered.
fn is_late(why: &LogError) -> bool {
    matches!(why, LogError::TimedOut { .. } | LogError::ReplicasLate { .. } | LogError::Frozen { .. })
}

impl Place {
    /// How often the log has moved to another primary.
    pub(super) fn moves(&self) -> u64 {
        match self {
            Place::One(_) => 0,
            Place::Several(moving) => moving.moves(),
        }
    }

    /// Does something where the log is.
    #[inline]
    pub(super) fn on<T>(&self, operation: impl FnOnce(&Attached) -> T) -> T {
        match self {
            Place::One(on) => operation(on),
            Place::Several(moving) => operation(&moving.on()),
        }
    }

    /// Does something with the log, on the next primary if this one is none any more.
    #[inline]
    pub(super) fn with<T>(&self, mut operation: impl FnMut(&Attached) -> Result<T, LogError>) -> Result<T, LogError> {
        match self {
            Place::One(on) => operation(on),
            Place::Several(moving) => moving.with(operation),
        }
    }

    /// Does something that looks for the place of the log itself, and once more where the log has moved.
    pub(super) fn again<T>(&self, mut operation: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
        match self {
            Place::One(_) => operation(),
            Place::Several(moving) => moving.again(operation),
        }
    }

    /// Waits until everything before a stream offset is at a level.
    #[inline]
    pub(super) fn wait(&self, end: u64, level: Level, timeout: Duration) -> Result<(), LogError> {
        match self {
            Place::One(on) => on.wait(end, level, timeout),
            Place::Several(moving) => moving.wait(end, level, timeout),
        }
    }

    /// Connects anew: on one device, also where the stream is another.
    pub(super) fn reattach(&mut self) -> Result<Recovered, LogError> {
        match self {
            Place::One(on) => on.reattach(),
            Place::Several(moving) => moving.reattach(),
        }
    }

    /// Connects anew, while the handle is used.
    pub(super) fn reconnect(&self) -> Result<Recovered, LogError> {
        let again = |on: &Attached| on.reconnect()?.0.ok_or(LogError::Stale);
        match self {
            Place::One(on) => again(on),
            Place::Several(moving) if moving.stays() => again(&moving.on()),
            Place::Several(moving) => {
                moving.with(Attached::is_there)?;
                Ok(moving.on().stands())
            }
        }
    }
}
