//! A log in the byte window: 2B-SSD's write-ahead log. It lives in a range of logical blocks, of which the end of the
//! log is pinned: appends are stores, a commit is a `BA_SYNC`, and what is filled is flushed to its blocks, where block
//! commands read it.
//!
//! Two segments of the range are pinned: while one is filled, the one before it is flushed, and the one behind it
//! pinned (double buffering). Records are those of the fast side ([`crate::encode_record`]): each tells its stream
//! offset and its writer's epoch, so that what an earlier turn of the range or an earlier writer has left is never
//! taken for the log. Recovery reads from the head to the first place where no such record is. ADR 23 says why.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use tidewater_base::checksum::crc32c_append;
use tidewater_wire::nvme::Sqe;
use tidewater_wire::vendor::{
    ANYWHERE, Epoch, RECORD_ALIGN, RecordHeader, RecordKind, WindowCommand, WindowLogHead, status,
};

use super::{DATA_MAX, Device, HardwareError, Queue, Window, WindowPlace};
use crate::lane::OFFSET_END;
use crate::live::{LiveError, Written};
use crate::{Entry, Records, WindowEntry, WindowError};

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

/// What was found when a log was opened.
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

/// What appends add to.
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

/// A segment that changes its place in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    None,
    /// This one is being flushed.
    Flush(u64),
    /// This one is being pinned.
    Pin(u64),
}

/// What stores go to: one at a time.
struct Drive {
    device: Device,
    window: WindowPlace,
    place: LogPlace,
    block_bytes: u32,
    /// Bytes of a logical page.
    page: u64,
    segment: u64,
    segments: u64,
    epoch: Epoch,
    sequence: u64,
    /// Segments that are pinned, each at the index that is its number's lowest bit.
    pinned: [Option<(u64, WindowEntry)>; 2],
    turn: Turn,
    /// What is being stored.
    bytes: Vec<u8>,
    /// Stream offset after what is stored.
    stored: u64,
    /// Parts of entries that were stored since the last sync.
    parts: Vec<(WindowEntry, u64, u64)>,
    /// The header of the last record that was stored, and its stream offset.
    last: Option<(u64, [u8; RecordHeader::SIZE])>,
    flushes: u64,
    syncs: u64,
}

/// A log in the byte window. Threads share it: while one syncs, what others append gathers, and the next sync covers
/// all of it.
pub struct WindowLog {
    stage: Mutex<Stage>,
    drive: Mutex<Drive>,
    /// A sync is under way.
    syncing: Mutex<bool>,
    /// One has ended. Whoever waits looks again, with no lock that the next one holds: else the thread that has just
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

fn told(why: impl Into<String>, errno: Errno) -> LiveError {
    LiveError::Window { errno, why: why.into() }
}

impl From<HardwareError> for LiveError {
    fn from(error: HardwareError) -> LiveError {
        match error {
            HardwareError::Served(error) => error,
            HardwareError::NoWindow => told(HardwareError::NoWindow.to_string(), Errno::EOPNOTSUPP),
            HardwareError::Target(_) | HardwareError::Lacking(_) => told(error.to_string(), Errno::EINVAL),
            other => told(other.to_string(), Errno::EIO),
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

impl Drive {
    /// First block of a segment.
    fn lba(&self, segment: u64) -> u64 {
        let bytes = HEADS * self.page + segment % self.segments * self.segment;
        self.place.lba + bytes / u64::from(self.block_bytes)
    }

    fn window(&mut self) -> Window<'_> {
        self.device.window_at(self.window)
    }

    fn name(&self, segment: u64) -> u16 {
        self.place.entry + (segment & 1) as u16
    }

    /// Reads or writes whole blocks: [`DATA_MAX`] bytes at most.
    fn blocks(&mut self, make: fn(u16, u64, u16) -> Sqe, lba: u64, data: &mut [u8]) -> Result<(), LiveError> {
        let blocks = data.len() as u64 / u64::from(self.block_bytes);
        let sqe = make(0, lba, (blocks - 1) as u16).with_nsid(self.place.nsid);
        self.device.run(Queue::Io, &sqe, data, "a command on the log's blocks")?;
        Ok(())
    }

    /// The valid head with the higher sequence; `None`: there is none, and nothing else either.
    fn read_head(&mut self) -> Result<Option<WindowLogHead>, LiveError> {
        let mut best: Option<WindowLogHead> = None;
        let mut is_empty = true;
        for at in 0..HEADS {
            let mut page = vec![0; self.page as usize];
            let lba = self.place.lba + at * self.page / u64::from(self.block_bytes);
            self.blocks(Sqe::read, lba, &mut page)?;
            is_empty &= page.iter().all(|byte| *byte == 0);
            let head = WindowLogHead::parse(&page[..WindowLogHead::SIZE]).ok();
            if let Some(head) = head.filter(|head| best.is_none_or(|best| head.sequence > best.sequence)) {
                best = Some(head);
            }
        }
        if best.is_none() && !is_empty {
            return Err(told("its blocks hold something else: clear them, or give other blocks", Errno::EEXIST));
        }
        Ok(best)
    }

    /// Writes where the log goes on from, durably, over the older of both heads.
    fn write_head(&mut self, head: u64) -> Result<(), LiveError> {
        let sequence = self.sequence + 1;
        let told = WindowLogHead {
            sequence,
            epoch: self.epoch,
            head,
            segment_bytes: self.segment,
            segments: self.segments as u32,
        };
        let mut page = vec![0; self.page as usize];
        page[..WindowLogHead::SIZE].copy_from_slice(&told.to_bytes());
        let lba = self.place.lba + sequence % HEADS * self.page / u64::from(self.block_bytes);
        self.blocks(|cid, lba, blocks| Sqe::write(cid, lba, blocks).with_fua(), lba, &mut page)?;
        self.sequence = sequence;
        Ok(())
    }

    /// Flushes what an earlier writer has left pinned in the range. Returns how many entries.
    fn flush_left(&mut self) -> Result<u8, LiveError> {
        let mut flushed = 0;
        let blocks = self.place.lba..self.place.lba + self.place.blocks;
        for name in [self.place.entry, self.place.entry + 1] {
            let mut window = self.device.window_at(self.window);
            let info = match window.info(name) {
                Err(HardwareError::Window(WindowError::Refused(refused)))
                    if refused.same_code(status::ENTRY_UNKNOWN) =>
                {
                    continue;
                }
                other => other?,
            };
            if info.nsid != self.place.nsid || !blocks.contains(&info.lba) {
                return Err(told(format!("entry {name} of the window is somebody else's"), Errno::EBUSY));
            }
            window.flush(&WindowEntry { name, offset: info.offset, bytes: info.bytes })?;
            flushed += 1;
        }
        Ok(flushed)
    }

    /// Goes on with what is under way. `wait`: until nothing is.
    fn go_on(&mut self, wait: bool) -> Result<(), LiveError> {
        while self.turn != Turn::None {
            let Some(result) = self.window().poll(wait)? else { break };
            self.ended(result)?;
        }
        Ok(())
    }

    /// What was under way has ended.
    fn ended(&mut self, result: u32) -> Result<(), LiveError> {
        match std::mem::replace(&mut self.turn, Turn::None) {
            Turn::None => Ok(()),
            Turn::Flush(segment) => {
                self.pinned[(segment & 1) as usize] = None;
                self.flushes += 1;
                self.begin_pin(segment + 2)
            }
            Turn::Pin(segment) => {
                let entry = WindowEntry { name: self.name(segment), offset: result.into(), bytes: self.segment };
                self.pinned[(segment & 1) as usize] = Some((segment, entry));
                Ok(())
            }
        }
    }

    fn begin(&mut self, turn: Turn, command: WindowCommand) -> Result<(), LiveError> {
        self.turn = turn;
        match self.window().begin(&command)? {
            Some(result) => self.ended(result),
            None => Ok(()),
        }
    }

    fn begin_pin(&mut self, segment: u64) -> Result<(), LiveError> {
        let blocks = (self.segment / u64::from(self.block_bytes)) as u32;
        let (entry, lba) = (self.name(segment), self.lba(segment));
        self.begin(Turn::Pin(segment), WindowCommand::Pin { entry, offset: ANYWHERE, lba, blocks })
    }

    fn entry(&self, segment: u64) -> Option<WindowEntry> {
        self.pinned[(segment & 1) as usize].filter(|(one, _)| *one == segment).map(|(_, entry)| entry)
    }

    /// Begins to bring a segment into the window, unless it is there, or something is under way.
    fn begin_turn(&mut self, segment: u64) -> Result<(), LiveError> {
        if self.turn != Turn::None || self.entry(segment).is_some() {
            return Ok(());
        }
        match self.pinned[(segment & 1) as usize] {
            Some((other, entry)) => self.begin(Turn::Flush(other), WindowCommand::Flush { entry: entry.name }),
            None => self.begin_pin(segment),
        }
    }

    /// A segment that is needed now.
    fn pin(&mut self, segment: u64) -> Result<WindowEntry, LiveError> {
        loop {
            if let Some(entry) = self.entry(segment) {
                return Ok(entry);
            }
            self.go_on(true)?;
            self.begin_turn(segment)?;
        }
    }

    /// Stores what is staged.
    fn store(&mut self) -> Result<(), LiveError> {
        let bytes = std::mem::take(&mut self.bytes);
        let mut from = 0;
        while from < bytes.len() {
            let (segment, at) = (self.stored / self.segment, self.stored % self.segment);
            let len = (bytes.len() - from).min((self.segment - at) as usize);
            let entry = self.pin(segment)?;
            self.window().write(&entry, at, &bytes[from..from + len])?;
            self.parts.push((entry, at, len as u64));
            from += len;
            self.stored += len as u64;
        }
        self.bytes = bytes;
        self.bytes.clear();
        Ok(())
    }

    /// `BA_SYNC` of all that was stored since the last one.
    fn sync(&mut self) -> Result<(), LiveError> {
        let Some((at, header)) = self.last.filter(|_| !self.parts.is_empty()) else { return Ok(()) };
        let parts = std::mem::take(&mut self.parts);
        let entry = self.pin(at / self.segment)?;
        let at = at % self.segment;
        let is_safe = self.window().sync_and_verify(&parts, (&entry, at), &header)?;
        self.parts = parts;
        self.parts.clear();
        self.syncs += 1;
        if is_safe { Ok(()) } else { Err(told("the device can't make it safe any more", Errno::EIO)) }
    }

    /// Beside: once the end is in a segment, the one before is flushed and the next is pinned.
    fn look_ahead(&mut self) -> Result<(), LiveError> {
        self.go_on(false)?;
        let segment = self.stored / self.segment;
        if self.entry(segment).is_some() { self.begin_turn(segment + 1) } else { Ok(()) }
    }

    /// Fills a buffer with bytes of the stream, wherever they are.
    fn read(&mut self, mut offset: u64, to: &mut [u8]) -> Result<(), LiveError> {
        // What is being flushed is in neither place for block commands and stores.
        self.go_on(true)?;
        let mut to = to;
        while !to.is_empty() {
            let (segment, at) = (offset / self.segment, offset % self.segment);
            let len = to.len().min((self.segment - at) as usize).min(DATA_MAX - 2 * self.block_bytes as usize);
            let (piece, rest) = to.split_at_mut(len);
            // A turn ahead, the same blocks are another segment, which may be pinned already: with what is in them.
            let is = |one: u64| one % self.segments == segment % self.segments;
            let pinned = self.pinned.iter().flatten().find(|(one, _)| is(*one)).map(|(_, entry)| *entry);
            match pinned {
                Some(entry) => self.window().read_dma(&entry, at, piece)?,
                None => {
                    let block = u64::from(self.block_bytes);
                    let skip = (at % block) as usize;
                    let mut blocks = vec![0; (skip + len).next_multiple_of(block as usize)];
                    let lba = self.lba(segment) + at / block;
                    self.blocks(Sqe::read, lba, &mut blocks)?;
                    piece.copy_from_slice(&blocks[skip..skip + len]);
                }
            }
            to = rest;
            offset += len as u64;
        }
        Ok(())
    }

    /// Where the log ends that begins at `head`: at the first place where no record of it is. Records of an earlier
    /// turn of the range tell another stream offset, and those that a writer stored behind its end, and that were lost
    /// in between, an epoch that is too old.
    fn find_tail(&mut self, head: u64) -> Result<u64, LiveError> {
        let capacity = self.segment * self.segments;
        let (mut tail, mut epoch) = (head, Epoch::ZERO);
        let mut bytes = Vec::new();
        loop {
            let len = (head + capacity - tail).min(2 * self.segment);
            bytes.resize(len as usize, 0);
            self.read(tail, &mut bytes)?;
            let from = tail;
            for entry in Records::new(&bytes, from) {
                match entry {
                    Entry::Record { lsn, epoch: its, payload } if its >= epoch => {
                        (tail, epoch) = (lsn + RecordHeader::span(payload.len() as u64), its);
                    }
                    _ => break,
                }
            }
            if tail == from || tail >= head + capacity {
                return Ok(tail.min(head + capacity));
            }
        }
    }
}

impl WindowLog {
    /// Opens the log at `window:LBA+BLOCKS:TARGET`, where TARGET is what [`Device::open`] takes.
    ///
    /// # Errors
    /// As [`WindowLog::over`], and that the device can't be reached.
    pub fn open(target: &str) -> Result<WindowLog, LiveError> {
        let (place, device) = LogPlace::parse(target)
            .ok_or_else(|| told(format!("`{target}` is no window:LBA+BLOCKS:TARGET"), Errno::EINVAL))?;
        WindowLog::over(Device::open(device)?, place)
    }

    /// Opens the log in a range of a device's blocks: one writer at a time. A range that holds nothing but zeroes
    /// becomes an empty log. What an earlier writer left pinned is flushed, and the end is looked for.
    ///
    /// # Errors
    /// [`LiveError::Window`]: the device has no byte window; its memory survives nothing (ENOTSUP); the range holds
    /// something else (EEXIST) or is too small (EINVAL); the entries are somebody else's (EBUSY). Else what the device
    /// said.
    pub fn over(mut device: Device, place: LogPlace) -> Result<WindowLog, LiveError> {
        let about = device.window_status()?;
        if about.bytes == 0 {
            return Err(HardwareError::NoWindow.into());
        }
        if !about.survives {
            return Err(told(
                "the window's memory survives nothing, so a sync of it promises nothing (memory.NAME.survives)",
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
            return Err(told(why, Errno::EINVAL));
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
                return Err(told(why, Errno::EINVAL));
            }
            (drive.segment, drive.segments, head) = (found.segment_bytes, segments, found.head);
            (drive.sequence, drive.epoch) = (found.sequence, found.epoch);
        }
        let tail = if found.is_some() { drive.find_tail(head)? } else { 0 };
        drive.stored = tail;
        drive.epoch = drive.epoch.next(0).ok_or_else(|| told("its epochs are used up", Errno::EOVERFLOW))?;
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

    /// What was found when it was opened.
    pub fn reopened(&self) -> Reopened {
        self.reopened
    }

    /// The user of the drive's process, who can have written what the log says. `None`: the drive is the machine's.
    ///
    /// # Errors
    /// `Broken`.
    pub fn writer(&self) -> Result<Option<u32>, LiveError> {
        self.drive(|drive| Ok(drive.device.user()))
    }

    /// What a sync survives, in words.
    pub fn survives(&self) -> &'static str {
        "the end of this process and of the device's; a loss of power too: the window's memory is kept, on a served drive by a sync of its image"
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
    fn drive<T>(&self, act: impl FnOnce(&mut Drive) -> Result<T, LiveError>) -> Result<T, LiveError> {
        // A thread that panicked amid a change leaves a drive that must not be used.
        let mut drive = self.drive.lock().map_err(|_| LiveError::Broken)?;
        self.check()?;
        let result = act(&mut drive);
        if result.is_err() {
            self.broken.store(true, Ordering::Release);
        }
        result
    }

    fn check(&self) -> Result<(), LiveError> {
        if self.broken.load(Ordering::Acquire) {
            return Err(told("it has failed before: open it anew", Errno::EIO));
        }
        Ok(())
    }

    /// Appends a record, whose payload are the parts one after another. It is safe after [`WindowLog::sync`].
    ///
    /// # Errors
    /// [`LiveError::TooLarge`] for more than a segment, [`LiveError::Untrimmed`] when the range is full; else what the
    /// device said: for good.
    pub fn append(&self, parts: &[&[u8]]) -> Result<Written, LiveError> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let span = RecordHeader::span(length);
        let most = self.segment - RecordHeader::SIZE as u64;
        let data_checksum = parts.iter().fold(0, |before, part| crc32c_append(before, part));
        let length = u32::try_from(length).ok().filter(|_| span <= self.segment);
        let length = length.ok_or(LiveError::TooLarge { bytes: span, most })?;
        loop {
            self.check()?;
            let mut stage = self.staged();
            let lsn = stage.end;
            if lsn + span - stage.head > self.capacity || lsn + span > OFFSET_END {
                return Err(LiveError::Untrimmed);
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
    fn push(&self, drive: &mut Drive) -> Result<(), LiveError> {
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
    /// What the device said: for good.
    pub fn sync(&self, end: u64) -> Result<(), LiveError> {
        let Some(_turn) = self.turn(end)? else { return Ok(()) };
        self.drive(|drive| {
            self.push(drive)?;
            drive.sync()?;
            self.synced.store(drive.stored, Ordering::Release);
            drive.look_ahead()
        })
    }

    /// Waits until it is this thread that syncs. `None`: another one has, beyond `end`.
    fn turn(&self, end: u64) -> Result<Option<Syncing<'_>>, LiveError> {
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
    /// [`LiveError::Released`], [`LiveError::NoMoreLog`]; else what the device said.
    pub fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), LiveError> {
        let (head, end) = {
            let stage = self.staged();
            (stage.head, stage.end)
        };
        if offset < head {
            return Err(LiveError::Released { offset });
        }
        if offset.saturating_add(to.len() as u64) > end {
            return Err(LiveError::NoMoreLog { filled: 0 });
        }
        self.drive(|drive| {
            self.push(drive)?;
            drive.read(offset, to)
        })
    }

    /// Every record from the head on, in order, with its stream offset.
    ///
    /// # Errors
    /// What the device said, and what `each` did.
    pub fn records<E: From<LiveError>>(&self, mut each: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
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
                return Err(told(format!("no record begins at {from}"), Errno::EIO).into());
            }
        }
        Ok(())
    }

    /// Releases what is before a stream offset, the begin of a record or the end: it is used again for what comes.
    ///
    /// # Errors
    /// What the device said: for good. [`LiveError::NoMoreLog`] past the end.
    pub fn trim(&self, offset: u64) -> Result<(), LiveError> {
        let (head, end) = {
            let stage = self.staged();
            (stage.head, stage.end)
        };
        if offset > end || !offset.is_multiple_of(RECORD_ALIGN) {
            return Err(LiveError::NoMoreLog { filled: 0 });
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
