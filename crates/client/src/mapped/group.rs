//! The log of a group of devices, as one: calls go to its primary, and on to the next one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use super::log::Log;
use super::options::{Options, Status};
use super::ring::Recovered;
use crate::{Level, LogError, Written};
use tidewater_wire::vendor::Epoch;
use tidewater_wire::vendor::FastStatus;

/// How long a wait lasts before other devices are asked whether they are primary by now.
const SLICE: Duration = Duration::from_secs(1);

/// A log on several devices of this machine, for the threads of one process. When the primary has gone or is deposed,
/// a call finds the next one, appends there what it has not got, and goes on: offsets stay what they were.
#[derive(Debug)]
pub struct GroupLog {
    log: RwLock<Log>,
    /// How often it moved.
    moves: AtomicU64,
    timeout: Duration,
}

impl From<Log> for GroupLog {
    fn from(log: Log) -> GroupLog {
        let timeout = log.options.timeout;
        GroupLog { log: RwLock::new(log), moves: AtomicU64::new(0), timeout }
    }
}

/// Whether the primary may be another device by now: one whose disk takes nothing leads no more.
fn has_moved(why: &LogError) -> bool {
    let is_disk = matches!(why, LogError::Store { .. });
    is_disk || matches!(why, LogError::Stale | LogError::Secondary | LogError::Gone | LogError::NoReply { .. })
}

impl GroupLog {
    /// Opens the log on the primary of several devices: `vfio-user:SOCKET,vfio-user:SOCKET`, or
    /// `cluster:etcd=HOST:PORT/NAME`. A primary is waited for up to 5 seconds.
    ///
    /// # Errors
    /// As [`Log::open`]; `NoPrimary`, which names every device and why it is not the one; `Cluster`.
    pub fn open(target: &str, options: Options) -> Result<(GroupLog, Recovered), LogError> {
        let (log, recovered) = Log::open_reporting(target, options)?;
        Ok((GroupLog::from(log), recovered))
    }

    fn log(&self) -> RwLockReadGuard<'_, Log> {
        self.log.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the log has moved to another primary.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Moves to the primary, unless another thread has done so since.
    fn follow(&self, moves: u64, why: LogError) -> Result<(), LogError> {
        let mut log = self.log.write().unwrap_or_else(PoisonError::into_inner);
        if self.moves() != moves {
            return Ok(());
        }
        let is_disk = matches!(why, LogError::Store { .. });
        match log.reattach() {
            Ok(_) => self.moves.fetch_add(1, Ordering::AcqRel),
            // The disk is the cause, and that no other leads yet is none.
            Err(LogError::NoPrimary { .. } | LogError::Cluster { .. }) if is_disk => return Err(why),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Does something with the log, on the next primary if this one is none any more.
    fn with<T>(&self, mut operation: impl FnMut(&Log) -> Result<T, LogError>) -> Result<T, LogError> {
        loop {
            let moves = self.moves();
            let result = {
                let log = self.log();
                match operation(&log) {
                    // A ring that stays full has no device any more.
                    Err(LogError::Full { waited }) => Err(log.is_there().err().unwrap_or(LogError::Full { waited })),
                    result => result,
                }
            };
            match result {
                // A device alone stays the one, whatever its disk does.
                Err(why @ LogError::Store { .. }) if !self.log().has_others() => return Err(why),
                Err(why) if has_moved(&why) => self.follow(moves, why)?,
                result => return result,
            }
        }
    }

    /// As [`Log::append`].
    ///
    /// # Errors
    /// As there; those of a primary that has gone, or whose disk takes nothing (`Store`), only when no other is found
    /// within 30 seconds, or something of the log is lost: `NoPrimary`, `Cluster`, `Overtaken`, `Lost`.
    pub fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError> {
        self.with(|log| log.append(parts))
    }

    /// As [`Log::x_pwrite`].
    ///
    /// # Errors
    /// As [`GroupLog::append`].
    pub fn x_pwrite(&self, bytes: &[u8]) -> Result<Written, LogError> {
        self.with(|log| log.x_pwrite(bytes))
    }

    /// As [`Log::wait`].
    ///
    /// # Errors
    /// As there, and as [`GroupLog::append`].
    pub fn wait(&self, end: u64, level: Level, timeout: Duration) -> Result<(), LogError> {
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            let moves = self.moves();
            match self.with(|log| log.wait(end, level, left.min(SLICE))) {
                Err(why @ (LogError::TimedOut { .. } | LogError::ReplicasLate { .. } | LogError::Frozen { .. })) => {
                    let newer = self.log().has_newer();
                    if newer {
                        self.follow(moves, why)?;
                    } else if start.elapsed() >= timeout {
                        return Err(why);
                    }
                }
                result => return result,
            }
        }
    }

    /// As [`Log::x_fsync`].
    ///
    /// # Errors
    /// As [`GroupLog::wait`].
    pub fn x_fsync(&self) -> Result<u64, LogError> {
        let (end, level) = (self.end(), self.level());
        self.wait(end, level, self.timeout)?;
        Ok(end)
    }

    /// As [`Log::x_pread`].
    ///
    /// # Errors
    /// As there, and as [`GroupLog::append`].
    pub fn x_pread(&self, offset: u64, to: &mut [u8], timeout: Duration) -> Result<(), LogError> {
        self.with(|log| log.x_pread(offset, to, timeout))
    }

    /// As [`Log::trim`].
    ///
    /// # Errors
    /// As there, and as [`GroupLog::append`].
    pub fn trim(&self, offset: u64) -> Result<(), LogError> {
        self.with(|log| log.trim(offset))
    }

    /// As [`Log::skip`].
    ///
    /// # Errors
    /// As there, and as [`GroupLog::append`].
    pub fn skip(&self, offset: u64) -> Result<(), LogError> {
        self.with(|log| log.skip(offset))
    }

    /// As [`Log::seal`].
    ///
    /// # Errors
    /// As there, and as [`GroupLog::append`].
    pub fn seal(&self) -> Result<usize, LogError> {
        self.with(Log::seal)
    }

    /// That a primary is there, and is the one that the log is on.
    ///
    /// # Errors
    /// As [`GroupLog::append`].
    pub fn is_there(&self) -> Result<(), LogError> {
        self.with(Log::is_there)
    }

    /// As [`Log::acknowledges`].
    ///
    /// # Errors
    /// As there.
    pub fn acknowledges(&self, level: Level) -> Result<(), LogError> {
        self.log().acknowledges(level)
    }

    /// As [`Log::writers`].
    ///
    /// # Errors
    /// As there, and as [`GroupLog::append`].
    pub fn writers(&self) -> Result<[u32; 2], LogError> {
        self.with(Log::writers)
    }

    /// As [`Log::identity`].
    pub fn identity(&self) -> ([u8; 16], Epoch) {
        self.log().identity()
    }

    /// As [`Log::end`].
    pub fn end(&self) -> u64 {
        self.log().end()
    }

    /// As [`Log::tail`].
    pub fn tail(&self) -> u64 {
        self.log().tail()
    }

    /// As [`Log::level`].
    pub fn level(&self) -> Level {
        self.log().level()
    }

    /// As [`Log::lane`].
    pub fn lane(&self) -> u8 {
        self.log().lane()
    }

    /// As [`Log::is_persistent`].
    pub fn is_persistent(&self) -> bool {
        self.log().is_persistent()
    }

    /// As [`Log::status`].
    pub fn status(&self) -> Status {
        self.log().status()
    }

    /// As [`Log::device_status`].
    ///
    /// # Errors
    /// As there: no other primary is looked for.
    pub fn device_status(&self) -> Result<FastStatus, LogError> {
        self.log().device_status()
    }

    /// As [`Log::ring_bytes`].
    pub fn ring_bytes(&self) -> u64 {
        self.log().ring_bytes()
    }

    /// As [`Log::has_copy`].
    pub fn has_copy(&self) -> bool {
        self.log().has_copy()
    }

    /// As [`Log::leave`].
    pub fn leave(&self, bytes: u64) {
        self.log().leave(bytes);
    }
}
