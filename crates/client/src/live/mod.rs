//! A log on a device that is served, with its ring mapped: an append is a few stores, and nobody else is in its path.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidewater_client::live::{Level, Log, Options};
//!
//! let log = Log::open("vfio-user:/run/tidewater/vfio.sock", Options { level: Level::Ring, ..Options::default() })?;
//! let mut writer = log.writer()?;
//! let commit = writer.append(b"commit 17")?;
//! log.wait(commit.end, Level::Ring, Duration::from_secs(1))?; // survives a crash of this process and of the device's
//! log.wait(commit.end, Level::Destaged, Duration::from_secs(1))?; // is on the backing store, synced
//! # Ok::<(), tidewater_client::live::LiveError>(())
//! ```
//!
//! The device serves rings with `tidewater serve --ring FILE`. A lane has one handle at a time, in one process; its threads take a [`Writer`] each
//! and write without a lock. Do not use a handle on both sides of a fork. Whoever truncates the ring's file under a handle ends its process (SIGBUS).

#[cfg(target_endian = "big")]
compile_error!("the words of a mapped ring are little-endian");

mod error;
mod memory;
mod nvme;
mod ring;
mod socket;

pub use error::LiveError;
pub use memory::WriteBack;
pub use ring::Recovered;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidewater_base::checksum::crc32c;
use tidewater_wire::vendor::{
    ControlPage, FastStatus, RECORD_ALIGN, RING_SLOTS, RecordHeader, RecordKind, RingLanePage, TransportStatus,
};
use tidewater_wire::vfio_user::region;

use self::memory::fence;
use self::nvme::Nvme;
use self::ring::Ring;
use self::socket::{Mappable, Socket};
use crate::fill_void;
use crate::writers::{Full, Reserved};

/// How long bytes last that an operation has waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// In the ring: they survive the end of this process and of the device's; a loss of power only where the ring's memory does.
    Ring,
    /// On the backing store, and synced: they survive a loss of power too, as far as the disk below keeps what it promises.
    Destaged,
    /// In the rings of replicas. Not available yet.
    RemoteRing,
    /// On the backing stores of replicas. Not available yet.
    RemoteDestaged,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Ring => "RING",
            Level::Destaged => "DESTAGED",
            Level::RemoteRing => "REMOTE_RING",
            Level::RemoteDestaged => "REMOTE_DESTAGED",
        })
    }
}

/// How a log is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The lane, 0 to 15.
    pub lane: u8,
    /// What [`Log::x_fsync`] waits for. [`Level::Ring`] on memory that survives no loss of power must be asked for.
    pub level: Level,
    /// How stores get to memory. `None`: lines are written back where the ring's memory survives a loss of power, and not elsewhere.
    pub write_back: Option<WriteBack>,
    /// How long an append waits for a ring that is full.
    pub full: Duration,
    /// How long [`Log::x_fsync`] waits.
    pub timeout: Duration,
}

impl Default for Options {
    /// Lane 0, DESTAGED, a second for a full ring, ten for a sync.
    fn default() -> Options {
        let (full, timeout) = (Duration::from_secs(1), Duration::from_secs(10));
        Options { lane: 0, level: Level::Destaged, write_back: None, full, timeout }
    }
}

/// Where something was written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Written {
    /// Stream offset of the first byte: a record's log sequence number.
    pub lsn: u64,
    /// Stream offset after the last: what to wait for.
    pub end: u64,
}

/// How a log is doing.
#[derive(Clone, Debug)]
pub struct Status {
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// End of what writers have reserved.
    pub reserved: u64,
    /// End of what is at RING.
    pub ring: u64,
    /// End of what the device has taken.
    pub taken: u64,
    /// End of what is at DESTAGED, as far as it was asked for.
    pub destaged: u64,
    /// The device takes from the ring.
    pub open: bool,
    /// Its stream is broken.
    pub broken: bool,
    /// What RING survives, in words.
    pub ring_survives: &'static str,
    /// What DESTAGED survives, in words.
    pub destaged_survives: &'static str,
    /// What the device says (log page C0h); `None`: it has gone.
    pub device: Option<Box<FastStatus>>,
}

/// A log with its ring mapped. Threads share it.
#[derive(Debug)]
pub struct Log {
    socket: PathBuf,
    options: Options,
    write_back: WriteBack,
    ring: Ring,
    /// Everything that is not an append.
    device: Mutex<Device>,
    /// Reservations may end here.
    limit: AtomicU64,
    /// From here on the device is told that the ring fills up.
    nudge: AtomicU64,
    slots: AtomicU32,
    /// Slots that were ever used: those behind hold nothing.
    used: AtomicUsize,
}

#[derive(Debug)]
enum Device {
    /// Regions are reached; no command was needed yet.
    Plain(Socket),
    /// Commands are run.
    Enabled(Box<Nvme>),
    Gone,
}

impl Device {
    fn socket(&mut self) -> Result<&mut Socket, LiveError> {
        match self {
            Device::Plain(socket) => Ok(socket),
            Device::Enabled(nvme) => Ok(&mut nvme.socket),
            Device::Gone => Err(LiveError::Gone),
        }
    }

    fn nvme(&mut self) -> Result<&mut Nvme, LiveError> {
        if let Device::Plain(_) = self {
            let Device::Plain(socket) = std::mem::replace(self, Device::Gone) else { return Err(LiveError::Gone) };
            *self = Device::Enabled(Box::new(Nvme::start(socket)?));
        }
        match self {
            Device::Enabled(nvme) => Ok(nvme),
            _ => Err(LiveError::Gone),
        }
    }

    /// An operation after which a device that has gone is known to have.
    fn run<T>(&mut self, operation: impl FnOnce(&mut Device) -> Result<T, LiveError>) -> Result<T, LiveError> {
        let result = operation(self);
        if matches!(result, Err(LiveError::Gone)) {
            *self = Device::Gone;
        }
        result
    }
}

fn connect(path: &Path) -> Result<(Socket, Mappable), LiveError> {
    let mut socket = Socket::connect(path)?;
    let lent = socket.mappable(region::BAR2)?.ok_or(LiveError::NotMapped)?;
    Ok((socket, lent))
}

impl Log {
    /// Opens the log at `vfio-user:SOCKET`, and takes up its stream: what whoever wrote before had published is there, and whole records beyond it
    /// are too; holes between them are sealed.
    ///
    /// # Errors
    /// [`LiveError`]: foremost `Unreachable`, `NotMapped`, `Busy`, `NotAvailable`.
    pub fn open(target: &str, options: Options) -> Result<Log, LiveError> {
        Log::open_telling(target, options).map(|(log, _)| log)
    }

    /// As [`Log::open`], and tells what was found.
    ///
    /// # Errors
    /// As there.
    pub fn open_telling(target: &str, options: Options) -> Result<(Log, Recovered), LiveError> {
        let path = target.strip_prefix("vfio-user:").filter(|path| !path.is_empty());
        let path = PathBuf::from(path.ok_or_else(|| LiveError::Target(target.to_owned()))?);
        if !matches!(options.level, Level::Ring | Level::Destaged) {
            return Err(LiveError::NotAvailable(options.level));
        }
        let (socket, lent) = connect(&path)?;
        let (ring, recovered) = Ring::attach(&lent, options.lane)?;
        let write_back = match options.write_back {
            Some(how) => how,
            None if ring.header().persistent => WriteBack::Lines,
            None => WriteBack::None,
        };
        if write_back == WriteBack::Lines && !ring.writes_back() {
            return Err(LiveError::Ring(
                "this processor has no instruction that writes a line back: use WriteBack::Stream".into(),
            ));
        }
        let log = Log {
            socket: path,
            options,
            write_back,
            ring,
            device: Mutex::new(Device::Plain(socket)),
            limit: AtomicU64::new(0),
            nudge: AtomicU64::new(0),
            slots: AtomicU32::new(0),
            used: AtomicUsize::new(0),
        };
        log.look();
        Ok((log, recovered))
    }

    /// Connects anew, after the device has gone or the stream was found stale, and returns where the stream goes on: all below is in the ring, or where
    /// the device took it to. What was appended beyond is lost and may be appended again.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn reattach(&mut self) -> Result<Recovered, LiveError> {
        *self.device() = Device::Gone;
        let (socket, lent) = connect(&self.socket)?;
        if self.ring.is_of(&lent) && self.ring.is_current() && self.ring.is_open() {
            // The same stream: it went on while the device was away.
            *self.device() = Device::Plain(socket);
            self.look();
            let (tail, taken) = (self.ring.tail(), self.ring.taken());
            return Ok(Recovered { tail, in_ring: tail.saturating_sub(taken), ..Recovered::default() });
        }
        let (options, target) = (self.options, format!("vfio-user:{}", self.socket.display()));
        if self.ring.is_of(&lent) {
            // This handle has the lane's lock, and no writer is there: `self` is borrowed alone.
            let again = self.ring.take_up()?;
            *self.device() = Device::Plain(socket);
            self.look();
            return Ok(again);
        }
        drop(socket);
        let (log, recovered) = Log::open_telling(&target, options)?;
        *self = log;
        Ok(recovered)
    }

    fn device(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A writer, for one thread.
    ///
    /// # Errors
    /// [`LiveError::Writers`]: all 32 slots are in use.
    pub fn writer(&self) -> Result<Writer<'_>, LiveError> {
        let taken = self.slots.fetch_update(Ordering::AcqRel, Ordering::Acquire, |slots| {
            let free = (!slots).trailing_zeros();
            ((free as usize) < RING_SLOTS).then(|| slots | 1 << free)
        });
        let slot = (!taken.map_err(|_| LiveError::Writers)?).trailing_zeros() as usize;
        self.used.fetch_max(slot + 1, Ordering::SeqCst);
        Ok(Writer { log: self, slot })
    }

    #[inline]
    fn slots(&self) -> impl Iterator<Item = &AtomicU64> {
        self.ring.slots(self.used.load(Ordering::Relaxed))
    }

    /// Looks how far the device is.
    fn look(&self) -> u64 {
        let taken = self.ring.taken();
        let limit = taken + self.ring.size();
        self.limit.fetch_max(limit, Ordering::AcqRel);
        self.nudge.store(taken + self.ring.size() / 2, Ordering::Relaxed);
        limit
    }

    /// Tells the device that there is something, if nobody else is just talking to it.
    fn nudge(&self) {
        if let Ok(mut device) = self.device.try_lock() {
            let address = 4096 * (1 + u64::from(self.ring.lane())) + RingLanePage::TAIL_OFFSET as u64;
            let tail = self.ring.tail().to_le_bytes();
            let _ = device.run(|device| device.socket()?.write(region::BAR2, address, &tail));
        }
    }

    /// Reserves bytes, and waits while the ring is full.
    #[inline]
    fn take(&self, slot: usize, bytes: u64, align: u64) -> Result<Reserved, LiveError> {
        if !self.ring.is_current() {
            return Err(LiveError::Stale);
        }
        let limit = self.limit.load(Ordering::Relaxed);
        match self.ring.writers().reserve(self.ring.slot(slot), self.slots(), bytes, align, limit) {
            Ok(reserved) => {
                if reserved.end > self.nudge.load(Ordering::Relaxed) {
                    self.half_full(reserved.end);
                }
                Ok(reserved)
            }
            Err(Full { end }) => self.take_slowly(slot, bytes, align, end),
        }
    }

    #[cold]
    fn half_full(&self, end: u64) {
        self.look();
        if end > self.nudge.load(Ordering::Relaxed) {
            self.nudge.store(end + self.ring.size() / 4, Ordering::Relaxed);
            self.nudge();
        }
    }

    #[cold]
    fn take_slowly(&self, slot: usize, bytes: u64, align: u64, mut end: u64) -> Result<Reserved, LiveError> {
        // With the fill before it, it must fit at all.
        let most = self.ring.size() - align;
        if bytes > most {
            return Err(LiveError::TooLarge { bytes, most });
        }
        let start = Instant::now();
        let mut turns = 0u32;
        loop {
            if end <= self.look() {
                let limit = self.limit.load(Ordering::Relaxed);
                match self.ring.writers().reserve(self.ring.slot(slot), self.slots(), bytes, align, limit) {
                    Ok(reserved) => return Ok(reserved),
                    Err(Full { end: now }) => end = now,
                }
                continue;
            }
            self.check_stream()?;
            if turns.is_multiple_of(64) {
                self.nudge();
                if matches!(*self.device(), Device::Gone) {
                    return Err(LiveError::Gone);
                }
            }
            if start.elapsed() >= self.options.full {
                let stalled = self.control_status().is_ok_and(|status| status.has(TransportStatus::WAITS_FOR_TRIM));
                return Err(if stalled { LiveError::Untrimmed } else { LiveError::Full { waited: self.options.full } });
            }
            turns += 1;
            pause(turns);
        }
    }

    /// The status register, by message.
    fn control_status(&self) -> Result<TransportStatus, LiveError> {
        let mut bytes = [0; 4];
        let at = ControlPage::STATUS_OFFSET as u64;
        self.device().run(|device| device.socket()?.read(region::BAR2, at, &mut bytes))?;
        Ok(TransportStatus(u32::from_le_bytes(bytes)))
    }

    fn check_stream(&self) -> Result<(), LiveError> {
        match () {
            () if !self.ring.is_current() || !self.ring.is_open() => Err(LiveError::Stale),
            () if self.ring.is_broken() => Err(LiveError::Broken),
            () => Ok(()),
        }
    }

    /// Makes what a writer stored visible before its tail; persistent, too, where that is asked for.
    #[inline]
    fn settle(&self, reserved: Reserved) {
        match self.write_back {
            WriteBack::None => {}
            WriteBack::Lines => {
                self.ring.write_back(reserved.from, reserved.end - reserved.from);
                fence();
            }
            WriteBack::Stream => fence(),
        }
    }

    /// Waits until all that was written through this handle is at its level. Returns where that ends.
    ///
    /// # Errors
    /// As [`Log::wait`].
    pub fn x_fsync(&self) -> Result<u64, LiveError> {
        let end = self.ring.reserved();
        self.wait(end, self.options.level, self.options.timeout)?;
        Ok(end)
    }

    /// Waits until everything before a stream offset is at a level, or the time is over: then it may be waited for again.
    ///
    /// # Errors
    /// `TimedOut`, `Stale`, `Broken`; at DESTAGED `Gone`; `NotAvailable` for replicas.
    #[inline]
    pub fn wait(&self, end: u64, level: Level, timeout: Duration) -> Result<(), LiveError> {
        match level {
            Level::Ring if self.ring.tail() >= end => Ok(()),
            Level::Ring => self.wait_ring(end, timeout),
            Level::Destaged => self.wait_destaged(end, timeout),
            Level::RemoteRing | Level::RemoteDestaged => Err(LiveError::NotAvailable(level)),
        }
    }

    #[cold]
    fn wait_ring(&self, end: u64, timeout: Duration) -> Result<(), LiveError> {
        let start = Instant::now();
        let mut turns = 0u32;
        // Others have to finish what lies before.
        loop {
            let at = self.ring.writers().advance(self.slots());
            if at >= end {
                return Ok(());
            }
            self.check_stream()?;
            if start.elapsed() >= timeout {
                return Err(LiveError::TimedOut { at, wanted: end });
            }
            turns += 1;
            if turns < 32 { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
    }

    fn wait_destaged(&self, end: u64, timeout: Duration) -> Result<(), LiveError> {
        let start = Instant::now();
        if self.ring.synced() >= end {
            return Ok(());
        }
        self.wait_ring(end, timeout)?;
        // The device may have died with what it was told: it is told again now and then.
        let mut tell_at = start;
        if self.ring.wanted().fetch_max(end, Ordering::AcqRel) >= end {
            tell_at = start + Duration::from_millis(2);
        }
        let mut turns = 0u32;
        loop {
            let at = self.ring.synced();
            if at >= end {
                return Ok(());
            }
            self.check_stream()?;
            let now = Instant::now();
            if now - start >= timeout {
                return Err(LiveError::TimedOut { at, wanted: end });
            }
            if now >= tell_at {
                tell_at = now + Duration::from_millis(50);
                self.ask_for_sync(end)?;
            }
            turns += 1;
            pause(turns);
        }
    }

    fn ask_for_sync(&self, end: u64) -> Result<(), LiveError> {
        let address = 4096 * (1 + u64::from(self.ring.lane())) + RingLanePage::WANTED_OFFSET as u64;
        self.device().run(|device| device.socket()?.write(region::BAR2, address, &end.to_le_bytes()))
    }

    /// Reads the log from a stream offset on, until the buffer is full or the time is over: what is still in the ring from there, and what is not from
    /// flash.
    ///
    /// # Errors
    /// `Released`: the bytes were trimmed or overwritten; `NoMoreLog`: fewer came in time, and are in the buffer; `Gone`.
    pub fn x_pread(&self, offset: u64, to: &mut [u8], timeout: Duration) -> Result<(), LiveError> {
        let start = Instant::now();
        let mut filled = 0;
        let mut turns = 0u32;
        while filled < to.len() {
            let at = offset + filled as u64;
            let there = self.ring.tail().saturating_sub(at).min((to.len() - filled) as u64) as usize;
            if there > 0 && self.read_ring(at, &mut to[filled..filled + there]) {
                filled += there;
                continue;
            }
            if there > 0 {
                let left = timeout.saturating_sub(start.elapsed()).min(Duration::from_millis(100));
                filled += self.read_flash(at, &mut to[filled..filled + there], left)?;
            }
            if filled < to.len() && start.elapsed() >= timeout {
                return Err(LiveError::NoMoreLog { filled });
            }
            turns += 1;
            pause(turns);
        }
        Ok(())
    }

    /// Copies bytes that are still in the ring. False: they are not, or were overwritten meanwhile.
    fn read_ring(&self, at: u64, to: &mut [u8]) -> bool {
        let oldest = |reserved: u64| reserved.saturating_sub(self.ring.size()).max(self.ring.begin);
        if at < oldest(self.ring.reserved()) {
            return false;
        }
        self.ring.read(at, to);
        std::sync::atomic::fence(Ordering::SeqCst);
        at >= oldest(self.ring.reserved())
    }

    fn read_flash(&self, at: u64, to: &mut [u8], wait: Duration) -> Result<usize, LiveError> {
        let lane = self.ring.lane();
        match self.device().run(|device| device.nvme()?.read_log(lane, at, to, wait)) {
            Ok((from, len)) if from == at => Ok(len),
            Ok((from, _)) if from > at => Err(LiveError::Released { offset: at }),
            Ok(_) => Ok(0),
            Err(LiveError::Status { status, .. }) if status.starts_with("Offset Released") => {
                Err(LiveError::Released { offset: at })
            }
            Err(error) => Err(error),
        }
    }

    /// The log before this offset is not needed any more.
    ///
    /// # Errors
    /// `Gone`, or what the device says.
    pub fn trim(&self, offset: u64) -> Result<(), LiveError> {
        let (function, lane) = (self.ring.header().function, self.ring.lane());
        self.device().run(|device| device.nvme()?.trim(function, lane, offset))
    }

    /// How it is doing.
    pub fn status(&self) -> Status {
        let function = self.ring.header().function;
        let device = self.device().run(|device| device.nvme()?.fast_status(function)).ok().map(Box::new);
        let ring_survives = match (self.ring.header().persistent, self.ring.survives()) {
            (true, _) => "a crash of this process and of the device's; a loss of power, once lines are written back",
            (false, _) => "a crash of this process and of the device's; no loss of power, and no crash of the machine",
        };
        Status {
            ring_bytes: self.ring.size(),
            reserved: self.ring.reserved(),
            ring: self.ring.tail(),
            taken: self.ring.taken(),
            destaged: self.ring.synced(),
            open: self.ring.is_open(),
            broken: self.ring.is_broken(),
            ring_survives,
            destaged_survives: "crashes and a loss of power, as far as the disk below the image keeps what a sync promises",
            device,
        }
    }
}

/// Waits a little, and a little longer each time.
fn pause(turns: u32) {
    match turns {
        0..64 => std::hint::spin_loop(),
        64..128 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(u64::from(turns.min(512)))),
    }
}

/// One thread's way into a log.
#[derive(Debug)]
pub struct Writer<'l> {
    log: &'l Log,
    slot: usize,
}

impl Writer<'_> {
    /// Appends one record: header, payload, fill to the next multiple of 64, as [`crate::encode_record`] makes it. When this returns, the record is
    /// whole; [`Log::wait`] tells when all before it are.
    ///
    /// # Errors
    /// `Full`, `Untrimmed`, `TooLarge`, `Stale`, `Broken`, `Gone`: nothing was written.
    #[inline]
    pub fn append(&mut self, payload: &[u8]) -> Result<Written, LiveError> {
        let log = self.log;
        let span = RecordHeader::span(payload.len() as u64);
        let length = u32::try_from(payload.len())
            .map_err(|_| LiveError::TooLarge { bytes: payload.len() as u64, most: log.ring.size() })?;
        let data_checksum = crc32c(payload);
        let reserved = log.take(self.slot, span, RECORD_ALIGN)?;
        let Reserved { from, offset, end } = reserved;
        let epoch = log.ring.header().epoch;
        let header = RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn: offset, epoch }.to_bytes();
        let how = log.write_back;
        if offset > from {
            log.ring.zero(from, offset - from);
        }
        log.ring.write(offset, &header, how);
        log.ring.write(offset + header.len() as u64, payload, how);
        let filled = offset + (header.len() + payload.len()) as u64;
        if end > filled {
            // The fill of a record is whatever; zeroes, so that nothing of an older turn stays.
            log.ring.zero(filled, end - filled);
        }
        log.settle(reserved);
        log.ring.writers().publish(log.ring.slot(self.slot), log.slots());
        Ok(Written { lsn: offset, end })
    }

    /// Writes bytes at the end of the stream, as they are (`x_pwrite`).
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn x_pwrite(&mut self, bytes: &[u8]) -> Result<Written, LiveError> {
        let log = self.log;
        let reserved = log.take(self.slot, bytes.len() as u64, 1)?;
        log.ring.write(reserved.offset, bytes, log.write_back);
        log.settle(reserved);
        log.ring.writers().publish(log.ring.slot(self.slot), log.slots());
        if log.write_back != WriteBack::None {
            log.ring.write_back_tail();
        }
        Ok(Written { lsn: reserved.offset, end: reserved.end })
    }

    /// Reserves room for a record of so many bytes, which is filled piece by piece. Dropped before it is committed, it becomes a void record: what
    /// others write behind it is not lost.
    ///
    /// # Errors
    /// As [`Writer::append`].
    pub fn begin(&mut self, bytes: u32) -> Result<Begun<'_>, LiveError> {
        let reserved = self.log.take(self.slot, RecordHeader::span(bytes.into()), RECORD_ALIGN)?;
        self.log.ring.zero(reserved.from, reserved.end - reserved.from);
        Ok(Begun { log: self.log, slot: self.slot, reserved, bytes, over: false })
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.log.slots.fetch_and(!(1 << self.slot), Ordering::AcqRel);
    }
}

/// A record that is being filled.
#[derive(Debug)]
pub struct Begun<'w> {
    log: &'w Log,
    slot: usize,
    reserved: Reserved,
    bytes: u32,
    over: bool,
}

impl Begun<'_> {
    /// Its log sequence number.
    pub fn lsn(&self) -> u64 {
        self.reserved.offset
    }

    /// Stores bytes at a place of its payload. Asserts that they are inside.
    pub fn fill(&mut self, at: u32, bytes: &[u8]) {
        let inside = u64::from(at) + bytes.len() as u64 <= u64::from(self.bytes);
        assert!(inside, "{at} and {} bytes of {}", bytes.len(), self.bytes);
        let offset = self.reserved.offset + RecordHeader::SIZE as u64 + u64::from(at);
        self.log.ring.write(offset, bytes, WriteBack::None);
    }

    /// The record is whole.
    pub fn commit(mut self) -> Written {
        let lsn = self.reserved.offset;
        let mut payload = vec![0; self.bytes as usize];
        self.log.ring.read(lsn + RecordHeader::SIZE as u64, &mut payload);
        let (length, epoch) = (self.bytes, self.log.ring.header().epoch);
        let data_checksum = crc32c(&payload);
        let header = RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn, epoch };
        self.end(&header.to_bytes());
        Written { lsn, end: self.reserved.end }
    }

    fn end(&mut self, header: &[u8]) {
        self.over = true;
        self.log.ring.write(self.reserved.offset, header, WriteBack::None);
        if self.log.write_back != WriteBack::None {
            self.log.ring.write_back(self.reserved.from, self.reserved.end - self.reserved.from);
            fence();
        }
        self.log.ring.writers().publish(self.log.ring.slot(self.slot), self.log.slots());
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.over {
            let mut void = vec![0; (self.reserved.end - self.reserved.offset) as usize];
            fill_void(self.reserved.offset, self.log.ring.header().epoch, &mut void);
            self.end(&void);
        }
    }
}
