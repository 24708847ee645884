//! A log in the byte window: 2B-SSD's write-ahead log. It lives in a range of logical blocks, of which the end of the
//! log is pinned: appends are stores, a commit is a `BA_SYNC`, and what is filled is flushed to its blocks, where block
//! commands read it.
//!
//! Two segments of the range are pinned: while one is filled, the one before it is flushed, and the one behind it
//! pinned (double buffering). Records are those of the fast side ([`crate::encode_record`]): each tells its stream
//! offset and its writer's epoch, so that what an earlier turn of the range or an earlier writer has left is never
//! taken for the log. Recovery reads from the head to the first place where no such record is. ADR 23 says why.

mod segments;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use tidewater_base::checksum::crc32c_append;
use tidewater_driver::DATA_MAX;
use tidewater_wire::log::{RECORD_ALIGN, RecordHeader, RecordKind};
use tidewater_wire::vendor::Epoch;

use super::{Device, HardwareError};
use crate::lane::OFFSET_END;
use crate::{Entry, LogError, Records, Written};
use segments::{Drive, Turn};

/// Segments of a range, at least: two are pinned, and what is flushed has to stay somewhere.
const SEGMENTS_MIN: u64 = 4;
/// Where a head is: one logical page each.
const HEADS: u64 = 2;
/// Bytes of a segment that is chosen here, at most: what a flush writes at once.
const SEGMENT_MAX: u64 = 1 << 20;

/// Where a log in the byte window is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPlace {
    /// The namespace.
    pub nsid: u32,
    /// First logical block of the range; at a logical page's begin.
    pub lba: u64,
    /// Logical blocks of the range.
    pub blocks: u64,
    /// The entries of the mapping table that it uses: this name and the next.
    pub entry: u16,
}

/// State of a log when it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reopened {
    /// Stream offset of its first byte.
    pub head: u64,
    /// Stream offset of its end: new records come here.
    pub tail: u64,
    /// Entries that an earlier writer had left pinned, and that were flushed.
    pub flushed: u8,
    /// There was no log in the range before.
    pub is_new: bool,
}

/// The buffer that appends add to.
#[derive(Debug)]
struct Stage {
    /// Not stored yet.
    bytes: Vec<u8>,
    /// Stream offset of the last record.
    last: u64,
    /// Stream offset after it.
    end: u64,
    head: u64,
}

/// A log in the byte window. Threads share it: while one syncs, what others append gathers, and the next sync covers
/// all of it.
pub struct WindowLog {
    stage: Mutex<Stage>,
    drive: Mutex<Drive>,
    /// A sync is under way.
    syncing: Mutex<bool>,
    /// One has ended. A waiter looks again, with no lock that the next one holds: else the thread that has just
    /// synced, and commits again, would keep the others from seeing that they are done.
    ended: Condvar,
    synced: AtomicU64,
    broken: AtomicBool,
    epoch: Epoch,
    segment: u64,
    capacity: u64,
    reopened: Reopened,
}

impl std::fmt::Debug for WindowLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WindowLog").field("synced", &self.synced).field("reopened", &self.reopened).finish()
    }
}

/// A sync of this thread's, until it is dropped.
struct Syncing<'l>(&'l WindowLog);

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        *self.0.syncing.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.ended.notify_all();
    }
}

fn failed(why: impl Into<String>, errno: Errno) -> LogError {
    LogError::Window { errno, why: why.into() }
}

impl From<HardwareError> for LogError {
    fn from(error: HardwareError) -> LogError {
        match error {
            HardwareError::Served(error) => error,
            HardwareError::NoWindow => failed(HardwareError::NoWindow.to_string(), Errno::EOPNOTSUPP),
            HardwareError::Target(_) | HardwareError::Lacking(_) => failed(error.to_string(), Errno::EINVAL),
            other => failed(other.to_string(), Errno::EIO),
        }
    }
}

impl LogPlace {
    /// Splits `window:LBA+BLOCKS:TARGET` into the place, in namespace 1 and with the entries 0 and 1, and the target.
    /// `None`: it is no such text.
    pub fn parse(text: &str) -> Option<(LogPlace, &str)> {
        let (range, target) = text.strip_prefix("window:")?.split_once(':')?;
        let (lba, blocks) = range.split_once('+')?;
        let place = LogPlace { nsid: 1, lba: lba.parse().ok()?, blocks: blocks.parse().ok()?, entry: 0 };
        Some((place, target))
    }
}

impl WindowLog {
    /// Opens the log at `window:LBA+BLOCKS:TARGET`, where TARGET is what [`Device::open`] takes.
    ///
    /// # Errors
    /// As [`WindowLog::over`], and that the device can't be reached.
    pub fn open(target: &str) -> Result<WindowLog, LogError> {
        let (place, device) = LogPlace::parse(target)
            .ok_or_else(|| failed(format!("`{target}` is not window:LBA+BLOCKS:TARGET"), Errno::EINVAL))?;
        WindowLog::over(Device::open(device)?, place)
    }

    /// Opens the log in a range of a device's blocks: one writer at a time. A range that holds nothing but zeroes
    /// becomes an empty log. What an earlier writer left pinned is flushed, and the end is looked for.
    ///
    /// # Errors
    /// [`LogError::Window`]: the device has no byte window; its memory survives nothing (ENOTSUP); the range holds
    /// something else (EEXIST) or is too small (EINVAL); the entries belong to another process (EBUSY). Else what the
    /// device said.
    pub fn over(mut device: Device, place: LogPlace) -> Result<WindowLog, LogError> {
        let about = device.window_status()?;
        if about.bytes == 0 {
            return Err(HardwareError::NoWindow.into());
        }
        if !about.survives {
            return Err(failed(
                "the window's memory is volatile, so a sync of it makes nothing durable (memory.NAME.survives)",
                Errno::EOPNOTSUPP,
            ));
        }
        let (block_bytes, window) = {
            let window = device.window(place.nsid)?;
            (window.block_bytes(), window.place())
        };
        let page = u64::from(about.granularity);
        let range = place.blocks.checked_mul(block_bytes.into()).filter(|bytes| *bytes <= OFFSET_END).unwrap_or(0);
        let is_odd = page == 0 || page > DATA_MAX as u64 || !page.is_multiple_of(block_bytes.into());
        let aligned = !is_odd && place.lba.is_multiple_of(page / u64::from(block_bytes));
        let room = range.saturating_sub(HEADS * page);
        let segment = (about.bytes / 2).min(room / SEGMENTS_MIN).min(SEGMENT_MAX);
        let segment = if is_odd { 0 } else { segment / page * page };
        if !aligned || segment == 0 || place.entry == u16::MAX {
            let why = format!(
                "it takes whole logical pages of {page} bytes: two, and {SEGMENTS_MIN} segments of one at least"
            );
            return Err(failed(why, Errno::EINVAL));
        }
        let mut drive = Drive {
            device,
            window,
            place,
            block_bytes,
            page,
            segment,
            segments: room / segment,
            epoch: Epoch::ZERO,
            sequence: 0,
            pinned: [None; 2],
            turn: Turn::None,
            bytes: Vec::new(),
            stored: 0,
            parts: Vec::new(),
            last: None,
            flushes: 0,
            syncs: 0,
        };
        let flushed = drive.flush_left()?;
        let mut head = 0;
        let found = drive.read_head()?;
        if let Some(found) = &found {
            let segments = u64::from(found.segments);
            let fits = found.segment_bytes.checked_mul(segments).is_some_and(|bytes| bytes <= room);
            let pins = found.segment_bytes > 0
                && found.segment_bytes <= about.bytes / 2
                && found.segment_bytes.is_multiple_of(page);
            if !fits || !pins || segments < SEGMENTS_MIN || found.head > OFFSET_END - range {
                let why = format!(
                    "it was made of {segments} segments of {} bytes, which is not what fits here",
                    found.segment_bytes
                );
                return Err(failed(why, Errno::EINVAL));
            }
            (drive.segment, drive.segments, head) = (found.segment_bytes, segments, found.head);
            (drive.sequence, drive.epoch) = (found.sequence, found.epoch);
        }
        let tail = if found.is_some() { drive.find_tail(head)? } else { 0 };
        drive.stored = tail;
        drive.epoch = drive.epoch.next(0).ok_or_else(|| failed("its epochs are used up", Errno::EOVERFLOW))?;
        // Before the first record of this epoch: another opening, after a crash, must not take the same.
        drive.write_head(head)?;
        let (epoch, segment, capacity) = (drive.epoch, drive.segment, drive.segment * drive.segments);
        Ok(WindowLog {
            stage: Mutex::new(Stage { bytes: Vec::with_capacity(segment as usize), last: tail, end: tail, head }),
            drive: Mutex::new(drive),
            syncing: Mutex::new(false),
            ended: Condvar::new(),
            synced: AtomicU64::new(tail),
            broken: AtomicBool::new(false),
            epoch,
            segment,
            capacity,
            reopened: Reopened { head, tail, flushed, is_new: found.is_none() },
        })
    }

    /// State when it was opened.
    pub fn reopened(&self) -> Reopened {
        self.reopened
    }

    /// The user of the drive's process, who can have written what the log says. `None`: the drive is the machine's.
    ///
    /// # Errors
    /// `Broken`.
    pub fn writer(&self) -> Result<Option<u32>, LogError> {
        self.drive(|drive| Ok(drive.device.user()))
    }

    /// Failures that a synced record survives, in words.
    pub fn survives(&self) -> &'static str {
        "the end of this process and of the device's; a loss of power too: the window's memory is kept, on a served \
         drive by a sync of its image"
    }

    /// Bytes that the log takes, at most, before it has to be trimmed.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of a segment: what a record takes with its header, at most.
    pub fn segment_bytes(&self) -> u64 {
        self.segment
    }

    /// Stream offset of the first byte that was not trimmed.
    pub fn head(&self) -> u64 {
        self.staged().head
    }

    /// End of what was appended.
    pub fn end(&self) -> u64 {
        self.staged().end
    }

    /// End of what is safe.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// How many segments were flushed to their blocks since it was opened, and how many `BA_SYNC`s there were.
    pub fn counted(&self) -> (u64, u64) {
        let drive = self.drive.lock().unwrap_or_else(PoisonError::into_inner);
        (drive.flushes, drive.syncs)
    }

    fn staged(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has something done by the drive. An error is one for good: what the drive has is not known any more.
    fn drive<T>(&self, act: impl FnOnce(&mut Drive) -> Result<T, LogError>) -> Result<T, LogError> {
        // A thread that panicked amid a change leaves a drive that must not be used.
        let mut drive = self.drive.lock().map_err(|_| LogError::Broken)?;
        self.check()?;
        let result = act(&mut drive);
        if result.is_err() {
            self.broken.store(true, Ordering::Release);
        }
        result
    }

    fn check(&self) -> Result<(), LogError> {
        if self.broken.load(Ordering::Acquire) {
            return Err(failed("it has failed before: open it anew", Errno::EIO));
        }
        Ok(())
    }

    /// Appends a record, whose payload are the parts one after another. It is safe after [`WindowLog::sync`].
    ///
    /// # Errors
    /// [`LogError::TooLarge`] for more than a segment, [`LogError::Untrimmed`] when the range is full; else what the
    /// device said: for good.
    pub fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let span = RecordHeader::span(length);
        let most = self.segment - RecordHeader::SIZE as u64;
        let data_checksum = parts.iter().fold(0, |before, part| crc32c_append(before, part));
        let length = u32::try_from(length).ok().filter(|_| span <= self.segment);
        let length = length.ok_or(LogError::TooLarge { bytes: span, most })?;
        loop {
            self.check()?;
            let mut stage = self.staged();
            let lsn = stage.end;
            if lsn + span - stage.head > self.capacity || lsn + span > OFFSET_END {
                return Err(LogError::Untrimmed);
            }
            if stage.bytes.len() as u64 + span > self.segment {
                drop(stage);
                self.drive(|drive| self.push(drive))?;
                continue;
            }
            let header = RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn, epoch: self.epoch };
            let end = stage.bytes.len() + span as usize;
            stage.bytes.extend_from_slice(&header.to_bytes());
            for part in parts {
                stage.bytes.extend_from_slice(part);
            }
            stage.bytes.resize(end, 0);
            (stage.last, stage.end) = (lsn, lsn + span);
            return Ok(Written { lsn, end: lsn + span });
        }
    }

    /// Stores what was appended.
    fn push(&self, drive: &mut Drive) -> Result<(), LogError> {
        {
            let mut stage = self.staged();
            if stage.bytes.is_empty() {
                return Ok(());
            }
            std::mem::swap(&mut stage.bytes, &mut drive.bytes);
            let at = (stage.last - drive.stored) as usize;
            let mut header = [0; RecordHeader::SIZE];
            header.copy_from_slice(&drive.bytes[at..at + RecordHeader::SIZE]);
            drive.last = Some((stage.last, header));
        }
        drive.store()
    }

    /// `BA_SYNC`: waits until everything before a stream offset is safe; all that was appended meanwhile becomes so
    /// with it.
    ///
    /// # Errors
    /// Those of the device: for good.
    pub fn sync(&self, end: u64) -> Result<(), LogError> {
        let Some(_turn) = self.turn(end)? else { return Ok(()) };
        self.drive(|drive| {
            self.push(drive)?;
            drive.sync()?;
            self.synced.store(drive.stored, Ordering::Release);
            drive.look_ahead()
        })
    }

    /// Waits until it is this thread that syncs. `None`: another one has, beyond `end`.
    fn turn(&self, end: u64) -> Result<Option<Syncing<'_>>, LogError> {
        if self.synced() >= end {
            return Ok(None);
        }
        let mut syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if self.synced() >= end {
                return Ok(None);
            }
            self.check()?;
            if !*syncing {
                *syncing = true;
                return Ok(Some(Syncing(self)));
            }
            syncing = self.ended.wait(syncing).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Fills a buffer with bytes of the stream from `offset` on.
    ///
    /// # Errors
    /// [`LogError::Released`], [`LogError::NoMoreLog`]; else what the device said.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), LogError> {
        let (head, end) = {
            let stage = self.staged();
            (stage.head, stage.end)
        };
        if offset < head {
            return Err(LogError::Released { offset });
        }
        if offset.saturating_add(to.len() as u64) > end {
            return Err(LogError::NoMoreLog { filled: 0 });
        }
        self.drive(|drive| {
            self.push(drive)?;
            drive.read(offset, to)
        })
    }

    /// Every record from the head on, in order, with its stream offset.
    ///
    /// # Errors
    /// Those of the device, and of `each`.
    pub fn records<E: From<LogError>>(&self, mut each: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let (mut at, end) = (self.head(), self.end());
        let mut bytes = Vec::new();
        while at < end {
            bytes.resize((end - at).min(2 * self.segment) as usize, 0);
            self.read(at, &mut bytes)?;
            let from = at;
            for entry in Records::new(&bytes, from) {
                let Entry::Record { lsn, payload, .. } = entry else { break };
                each(lsn, payload)?;
                at = lsn + RecordHeader::span(payload.len() as u64);
            }
            if at == from {
                return Err(failed(format!("no record begins at {from}"), Errno::EIO).into());
            }
        }
        Ok(())
    }

    /// Releases what is before a stream offset, the begin of a record or the end: it is used again for what comes.
    ///
    /// # Errors
    /// Those of the device: for good. [`LogError::NoMoreLog`] past the end.
    pub fn trim(&self, offset: u64) -> Result<(), LogError> {
        let (head, end) = {
            let stage = self.staged();
            (stage.head, stage.end)
        };
        if offset > end || !offset.is_multiple_of(RECORD_ALIGN) {
            return Err(LogError::NoMoreLog { filled: 0 });
        }
        if offset <= head {
            return Ok(());
        }
        // A head past what is safe would be the end of a log that an older writer's records follow.
        self.sync(offset)?;
        self.drive(|drive| {
            // Another thread may have come further meanwhile: what it released is written over already, perhaps, and a
            // head before that finds no log.
            if self.head() < offset {
                drive.write_head(offset)?;
                self.staged().head = offset;
            }
            Ok(())
        })
    }
}
