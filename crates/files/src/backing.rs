//! The logs that files can be on: the ring of a served device's fast side, and a range of blocks in a drive's byte
//! window.

use std::fmt;

use tidewater_wire::vendor::PAGE_BYTES;

use crate::{CHUNK_MAX, PATIENCE};
use tidewater_client::mapped::Log;
use tidewater_client::{Level, LogError, Written};

/// Bytes of the stream in a page of the fast side's log (ADR 7).
const PAYLOAD: u64 = PAGE_BYTES as u64 - 64;

/// Where records go.
pub trait Journal {
    /// Appends one record, whose payload are the parts one after another.
    ///
    /// # Errors
    /// Nothing was appended.
    fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError>;
    /// End of what is appended.
    fn end(&self) -> u64;
    /// Waits until everything before a stream offset is at a level.
    ///
    /// # Errors
    /// It is not, or that is not known.
    fn wait(&self, end: u64, level: Level) -> Result<(), LogError>;
}

/// How full a log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Bytes that it takes.
    pub bytes: u64,
    /// Of these, not trimmed.
    pub used: u64,
    /// Streams that share them.
    pub lanes: u16,
    /// Stream offset of the first byte that can be read.
    pub readable: u64,
}

/// The log of a run: operations beside appending.
pub trait Backing: Journal + fmt::Debug + Send + Sync {
    /// Level that syncs wait for by default: one that survives a loss of power.
    fn level(&self) -> Level;
    /// That it can wait for this.
    ///
    /// # Errors
    /// [`LogError`] that says that nothing offers it.
    fn offers(&self, level: Level) -> Result<(), LogError>;
    /// Failures that a level survives, in words.
    fn survives(&self, level: Level) -> &'static str;
    /// Bytes of a record's data, at most.
    fn chunk(&self) -> u64;
    /// End of what can be read.
    fn tail(&self) -> u64;
    /// How full it is.
    ///
    /// # Errors
    /// The device has gone.
    fn room(&self, lane: u8) -> Result<Room, LogError>;
    /// Users who can have written what the log says; the same one may be there twice.
    ///
    /// # Errors
    /// The log's.
    fn writers(&self) -> Result<Vec<u32>, LogError>;
    /// The drive that has it, and the drive's epoch; zeroes: not known.
    fn identity(&self) -> ([u8; 16], u64) {
        ([0; 16], 0)
    }
    /// Whether what was appended last may be missing: it was in a ring alone, which is gone or another one.
    fn has_lost_its_ring(&self) -> bool {
        false
    }
    /// Whether it is still there, as far as that is known without asking it.
    ///
    /// # Errors
    /// The device has gone.
    fn is_there(&self) -> Result<(), LogError> {
        Ok(())
    }
    /// Gives up what writers that died have left open.
    ///
    /// # Errors
    /// The log's.
    fn seal(&self) -> Result<(), LogError>;
    /// Fills a buffer with bytes of the stream.
    ///
    /// # Errors
    /// The log's.
    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), LogError>;
    /// Bytes of memory before it, in which what is appended can be left for a while; 0: none.
    fn ring_bytes(&self) -> u64 {
        0
    }
    /// Whether who waits for DESTAGED puts the bytes there itself, wherever the device has come.
    fn has_copy(&self) -> bool {
        false
    }
    /// The level at which what is appended stays, and is what the log ends with, also without the device.
    ///
    /// # Errors
    /// Why there is none, and what offers one.
    fn without_device(&self) -> Result<Level, &'static str> {
        Err("this log is on no served device")
    }
    /// Leaves up to so many bytes in that memory while no process waits for them.
    fn leave(&self, _bytes: u64) {}
    /// Bytes before a stream offset need not be destaged if they are in that memory alone.
    ///
    /// # Errors
    /// The log's.
    fn skip(&self, _offset: u64) -> Result<(), LogError> {
        Ok(())
    }
    /// Releases what is before a stream offset.
    ///
    /// # Errors
    /// The log's.
    fn trim(&self, offset: u64) -> Result<(), LogError>;
}

/// A log of any kind.
pub type AnyLog = Box<dyn Backing>;

/// Methods that another type has by the same names.
macro_rules! by_the_same_name {
    ($this:ident: $to:ty = $on:expr; $(fn $name:ident(&self $(, $arg:ident: $of:ty)*) $(-> $result:ty)?;)*) => {
        $(#[inline] fn $name(&$this $(, $arg: $of)*) $(-> $result)? { <$to>::$name($on $(, $arg)*) })*
    };
}

impl Journal for Log {
    by_the_same_name! {
        self: Log = self;
        fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError>;
        fn end(&self) -> u64;
    }

    #[inline]
    fn wait(&self, end: u64, level: Level) -> Result<(), LogError> {
        Log::wait(self, end, level, PATIENCE)
    }
}

impl Backing for Log {
    by_the_same_name! {
        self: Log = self;
        fn level(&self) -> Level;
        fn tail(&self) -> u64;
        fn is_there(&self) -> Result<(), LogError>;
        fn ring_bytes(&self) -> u64;
        fn has_copy(&self) -> bool;
        fn without_device(&self) -> Result<Level, &'static str>;
        fn leave(&self, bytes: u64);
        fn skip(&self, offset: u64) -> Result<(), LogError>;
        fn trim(&self, offset: u64) -> Result<(), LogError>;
    }

    fn offers(&self, level: Level) -> Result<(), LogError> {
        if level.is_remote() { self.acknowledges(level) } else { Ok(()) }
    }

    fn survives(&self, level: Level) -> &'static str {
        let status = self.status();
        match level {
            Level::Ring => status.ring_survives,
            Level::Destaged => status.destaged_survives,
            Level::RemoteRing => status.remote_ring_survives,
            Level::RemoteDestaged => status.remote_destaged_survives,
        }
    }

    fn chunk(&self) -> u64 {
        (Log::ring_bytes(self) / 8).clamp(256, CHUNK_MAX)
    }

    fn room(&self, lane: u8) -> Result<Room, LogError> {
        let status = self.device_status()?;
        let pages = status.lba_tail.saturating_sub(status.lba_head);
        let lane = status.lane.get(usize::from(lane)).copied().unwrap_or_default();
        // What is in the ring alone will need room, too.
        let left = Log::end(self).saturating_sub(lane.persisted);
        Ok(Room {
            bytes: status.lba_count * PAYLOAD,
            used: pages.saturating_mul(PAYLOAD) + left,
            lanes: status.lanes,
            readable: lane.readable,
        })
    }

    fn writers(&self) -> Result<Vec<u32>, LogError> {
        Log::writers(self).map(Vec::from)
    }

    fn identity(&self) -> ([u8; 16], u64) {
        let (drive, epoch) = Log::identity(self);
        (drive, epoch.0)
    }

    /// In a group the ring is that of whichever device was primary, and what is promised there is with replicas.
    fn has_lost_its_ring(&self) -> bool {
        self.began_anew() && Log::identity(self).1.0 == 0
    }

    fn seal(&self) -> Result<(), LogError> {
        Log::seal(self).map(drop)
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), LogError> {
        self.x_pread(offset, to, PATIENCE)
    }
}

#[cfg(feature = "hardware")]
mod window {
    use nix::errno::Errno;

    use crate::{Backing, CHUNK_MAX, Journal, Room};
    use tidewater_client::hardware::WindowLog;
    use tidewater_client::{Level, LogError, Written};

    impl Journal for WindowLog {
        fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError> {
            WindowLog::append(self, parts)
        }

        fn end(&self) -> u64 {
            WindowLog::end(self)
        }

        fn wait(&self, end: u64, level: Level) -> Result<(), LogError> {
            self.offers(level)?;
            self.sync(end)
        }
    }

    impl Backing for WindowLog {
        fn level(&self) -> Level {
            Level::Destaged
        }

        fn offers(&self, level: Level) -> Result<(), LogError> {
            if level == Level::Destaged {
                return Ok(());
            }
            let why = format!(
                "{level} is not available: it has one level, what a BA_SYNC confirms, and that is as good as DESTAGED"
            );
            Err(LogError::Window { errno: Errno::EOPNOTSUPP, why })
        }

        fn survives(&self, _: Level) -> &'static str {
            WindowLog::survives(self)
        }

        fn chunk(&self) -> u64 {
            (self.segment_bytes() / 4).clamp(256, CHUNK_MAX)
        }

        fn tail(&self) -> u64 {
            WindowLog::end(self)
        }

        fn room(&self, _: u8) -> Result<Room, LogError> {
            let head = self.head();
            let used = WindowLog::end(self).saturating_sub(head);
            Ok(Room { bytes: self.capacity(), used, lanes: 1, readable: head })
        }

        fn writers(&self) -> Result<Vec<u32>, LogError> {
            WindowLog::writer(self).map(|user| user.into_iter().collect())
        }

        // Its writers are threads of one process: what one began, it ended.
        fn seal(&self) -> Result<(), LogError> {
            Ok(())
        }

        fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), LogError> {
            WindowLog::read(self, offset, to)
        }

        fn trim(&self, offset: u64) -> Result<(), LogError> {
            WindowLog::trim(self, offset)
        }
    }
}

impl Journal for AnyLog {
    by_the_same_name! {
        self: dyn Backing = &**self;
        fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError>;
        fn end(&self) -> u64;
        fn wait(&self, end: u64, level: Level) -> Result<(), LogError>;
    }
}

impl Backing for AnyLog {
    by_the_same_name! {
        self: dyn Backing = &**self;
        fn level(&self) -> Level;
        fn offers(&self, level: Level) -> Result<(), LogError>;
        fn survives(&self, level: Level) -> &'static str;
        fn chunk(&self) -> u64;
        fn tail(&self) -> u64;
        fn room(&self, lane: u8) -> Result<Room, LogError>;
        fn writers(&self) -> Result<Vec<u32>, LogError>;
        fn identity(&self) -> ([u8; 16], u64);
        fn has_lost_its_ring(&self) -> bool;
        fn is_there(&self) -> Result<(), LogError>;
        fn seal(&self) -> Result<(), LogError>;
        fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), LogError>;
        fn ring_bytes(&self) -> u64;
        fn has_copy(&self) -> bool;
        fn without_device(&self) -> Result<Level, &'static str>;
        fn leave(&self, bytes: u64);
        fn skip(&self, offset: u64) -> Result<(), LogError>;
        fn trim(&self, offset: u64) -> Result<(), LogError>;
    }
}
