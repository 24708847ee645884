//! The log: what a handle does.

mod moves;
mod wait;

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use tidewater_driver::vfio_user::Socket;
use tidewater_wire::log::RingLanePage;
use tidewater_wire::vendor::LANE_PAGES_OFFSET;
use tidewater_wire::vfio_user::region;

use super::copy::{Copy, Disk, System};
use super::device::{Device, Mappable, connect};
use super::event::Watcher;
use super::memory::{WriteBack, fence};
use super::options::Options;
use super::ring::{Recovered, Ring};
use super::targets::{self, Devices};
use super::writer::{Begun, Claim, Writer};
use super::{cut, device, owner};
use crate::lane::OFFSET_END;
use crate::writers::{Full, Reserved};
use crate::{Level, LogError, Written};

/// How long the credit is held up before writers are checked for being alive.
const SEAL_AFTER: Duration = Duration::from_millis(1);
/// How long nothing may come of a wish for a sync before the device gets it again, and asked whether it is there.
const NOTIFY_AGAIN: Duration = Duration::from_millis(50);
/// Bytes of the ring that are mapped into a process at a time.
const MAPPED_AT_ONCE: u64 = 64 << 10;

/// Descriptors and numbers for another process that writes an open lane.
#[derive(Debug)]
pub struct Shared {
    /// The ring's file. The lock of the lane is its open file description's.
    pub ring: OwnedFd,
    /// An eventfd: adding to it wakes the device.
    pub doorbell: OwnedFd,
    /// The ring's copy on a disk, where it has one.
    pub copy: Option<OwnedFd>,
    /// The lane.
    pub lane: u8,
    /// The generation that it is written in.
    pub generation: u64,
}

/// A log with its ring mapped. Threads share it, and processes do.
#[derive(Debug)]
pub struct Log {
    /// Where the device is; `None`: another process has the connection.
    socket: Option<PathBuf>,
    /// It, and others that can be primary in its place.
    devices: Devices,
    pub(super) options: Options,
    pub(super) level: Level,
    pub(super) write_back: WriteBack,
    pub(super) ring: Ring,
    /// Where what is waited for at DESTAGED is written; `None`: the device does it.
    pub(super) copy: Option<Copy>,
    /// Everything that is not an append.
    device: Mutex<Device>,
    doorbell: Option<OwnedFd>,
    /// That of the device that was connected to last: for those with whom the lane is shared from now on.
    newest: Mutex<Option<OwnedFd>>,
    pub(super) watcher: Mutex<Option<Watcher>>,
    /// Others have been given the lane.
    is_shared: AtomicBool,
    /// The process that made the handle: the connection is its alone, and the mutex may be anybody's in a child of it.
    home: u64,
    /// The process that was last found to be of the lane's PID namespace.
    known: AtomicU64,
    /// Reservations may end here.
    limit: AtomicU64,
    /// From here on the device learns that the ring fills up.
    nudge: AtomicU64,
    /// Up to here the ring's pages were mapped into this process, or into one that it was forked from.
    mapped: AtomicU64,
    /// The stream did not go on from what was published, when the log was opened.
    pub(super) began_anew: bool,
}

/// Where a word of a lane's page is in BAR2.
fn word_at(lane: u8, offset: usize) -> u64 {
    LANE_PAGES_OFFSET + u64::from(lane) * RingLanePage::SIZE as u64 + offset as u64
}

/// A device whose client has just gone may still be at it: it turns the next one away, and takes it a moment later.
pub(super) fn patiently<T>(mut connect: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
    for _ in 0..250 {
        match connect() {
            Err(LogError::Gone) => std::thread::sleep(Duration::from_millis(2)),
            other => return other,
        }
    }
    connect().map_err(LogError::turned_away)
}

fn doorbell(socket: &mut Socket, lane: u8) -> Result<Option<OwnedFd>, LogError> {
    Ok(socket.doorbell(region::BAR2, word_at(lane, RingLanePage::WANTED_OFFSET))?)
}

impl Log {
    /// Opens the log at `vfio-user:SOCKET`, or on the primary of several devices, which is waited for up to 5 seconds,
    /// and takes up its stream: what an earlier writer had published is there, and whole records beyond it are too;
    /// holes between them are sealed. Several devices are `vfio-user:SOCKET,vfio-user:SOCKET`, or, with the feature
    /// `etcd`, `cluster:etcd=HOST:PORT,HOST:PORT/NAME`: etcd then says which device of the cluster is primary.
    ///
    /// # Errors
    /// [`LogError`]: foremost `Unreachable`, `NotMapped`, `Busy`, `NotReplicated`, `Secondary`, `NoPrimary`, `Cluster`.
    pub fn open(target: &str, options: Options) -> Result<Log, LogError> {
        Log::open_reporting(target, options).map(|(log, _)| log)
    }

    /// As [`Log::open`], and reports what was recovered.
    ///
    /// # Errors
    /// As there.
    pub fn open_reporting(target: &str, options: Options) -> Result<(Log, Recovered), LogError> {
        let devices = Devices::of(target)?;
        match devices.single() {
            Some(path) => Log::open_one(path, &devices, options),
            None => targets::open(&devices, options),
        }
    }

    /// Opens the log on one device of several.
    pub(super) fn open_one(path: &Path, devices: &Devices, options: Options) -> Result<(Log, Recovered), LogError> {
        let patience = devices.patience();
        let (mut socket, doorbell, lent) = patiently(|| {
            let (mut socket, lent) = connect(path, patience)?;
            devices.check_user(path, socket.user(), options.owners)?;
            let doorbell = doorbell(&mut socket, options.lane)?;
            Ok((socket, doorbell, lent))
        })?;
        let (ring, recovered) = Ring::attach(&lent, options.lane)?;
        if let Some(errno) = ring.store_error().filter(|_| devices.are_several()) {
            // Its page is what it was when the disk failed: another may lead.
            return Err(LogError::Store { errno });
        }
        if let Some(level) = options.level.filter(|level| level.is_remote()) {
            ring.peers().acknowledge(level)?;
        }
        let copy = if ring.header().copied { device::copy(&mut socket)? } else { None };
        let copy = copy.map(|file| Copy::new(file, &ring, &System));
        let mut log = Log::of(Some(path.to_owned()), options, ring, copy, Device::Plain(Box::new(socket)), doorbell)?;
        log.devices = devices.clone();
        log.began_anew = recovered.is_new;
        Ok((log, recovered))
    }

    fn of(
        socket: Option<PathBuf>,
        options: Options,
        ring: Ring,
        copy: Option<Copy>,
        device: Device,
        doorbell: Option<OwnedFd>,
    ) -> Result<Log, LogError> {
        let persistent = ring.header().persistent;
        let write_back = options.write_back.unwrap_or(if persistent { WriteBack::Lines } else { WriteBack::None });
        if write_back == WriteBack::Lines && !ring.writes_back() {
            return Err(LogError::Ring("this processor has no instruction that writes a line back".into()));
        }
        let level = options.level.unwrap_or(if persistent { Level::Ring } else { Level::Destaged });
        let home = owner::me()?;
        let log = Log {
            devices: Devices::one(socket.as_deref()),
            socket,
            options,
            level,
            write_back,
            ring,
            copy,
            device: Mutex::new(device),
            doorbell,
            newest: Mutex::new(None),
            watcher: Mutex::new(None),
            is_shared: AtomicBool::new(false),
            home,
            known: AtomicU64::new(home),
            limit: AtomicU64::new(0),
            nudge: AtomicU64::new(0),
            mapped: AtomicU64::new(0),
            began_anew: false,
        };
        log.look();
        Ok(log)
    }

    /// The lane for another process to write: descriptors to hand on, close-on-exec. A process that has them, or mapped
    /// what they are of, has the lane: the next [`Log::open`] of it is `Busy` until all have ended.
    ///
    /// # Errors
    /// `System`: no more descriptors. `NotMapped`: the device has no doorbell.
    pub fn share(&self) -> Result<Shared, LogError> {
        let failed = |error: std::io::Error| LogError::System {
            what: "copy a descriptor",
            errno: Errno::from_raw(error.raw_os_error().unwrap_or_default()),
        };
        let ring = self.ring.file().try_clone_to_owned().map_err(failed)?;
        let copy = self.copy.as_ref().map(|copy| copy.file().try_clone_to_owned()).transpose().map_err(failed)?;
        let newest = self.device().map(|_| self.newest.lock().unwrap_or_else(PoisonError::into_inner));
        let doorbell = newest.as_ref().ok().and_then(|newest| newest.as_ref()).or(self.doorbell.as_ref());
        let doorbell = doorbell.ok_or(LogError::NotMapped)?.try_clone().map_err(failed)?;
        self.is_shared.store(true, Ordering::Release);
        Ok(Shared { ring, doorbell, copy, lane: self.ring.lane(), generation: self.ring.generation })
    }

    /// Writes a lane that another process has opened and shares, within one PID namespace. `options.lane` does not
    /// count.
    ///
    /// # Errors
    /// `Stale`: the stream has gone on elsewhere since. `Ring`: the descriptor is none of a ring, or processes can't
    /// tell who has died.
    pub fn join(shared: Shared, options: Options) -> Result<Log, LogError> {
        Log::join_through(shared, options, &System)
    }

    /// As [`Log::join`], with another way to the disk that the ring's copy is on.
    ///
    /// # Errors
    /// As there.
    pub fn join_through(shared: Shared, options: Options, disk: &'static dyn Disk) -> Result<Log, LogError> {
        let Shared { ring, doorbell, copy, lane, generation } = shared;
        let ring = Ring::join(ring, lane, generation, disk)?;
        let copy = copy.map(|file| Copy::new(file, &ring, disk));
        Log::of(None, Options { lane, ..options }, ring, copy, Device::Gone, Some(doorbell))
    }

    /// That replicas acknowledge what is appended, as a level above DESTAGED asks for.
    ///
    /// # Errors
    /// `NotReplicated`, `Secondary`.
    pub fn acknowledges(&self, level: Level) -> Result<(), LogError> {
        self.ring.peers().acknowledge(level)
    }

    /// Level that [`Log::x_fsync`] waits for.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The lane.
    pub fn lane(&self) -> u8 {
        self.ring.lane()
    }

    /// Whether RING survives a loss of power: the ring's memory does.
    pub fn is_persistent(&self) -> bool {
        self.ring.header().persistent
    }

    /// End of what is reserved: waiting for it is waiting for all that was appended before, by any writer.
    #[inline]
    pub fn end(&self) -> u64 {
        self.ring.reserved()
    }

    /// End of what is at RING, as it stands.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.ring.tail()
    }

    /// Connects anew, after the device has gone or the stream was found stale, and returns where the stream goes on:
    /// all below is in the ring, or where the device took it to. What was appended beyond is lost and may be appended
    /// again. Of several devices the primary is found, up to 30 seconds long, and what was appended beyond is appended
    /// there again, at the same offsets.
    ///
    /// # Errors
    /// As [`Log::open`]; `Busy` while other processes write a stream that is stale; of several devices `NoPrimary`,
    /// `Overtaken`, `Lost`.
    pub fn reattach(&mut self) -> Result<Recovered, LogError> {
        if self.has_others() {
            return self.move_to_primary();
        }
        let (same, lent, copy) = self.reconnect_to()?;
        if let Some(recovered) = same {
            return Ok(recovered);
        }
        if !self.ring.is_of(&lent) {
            *self.device()? = Device::Gone;
            let path = self.socket.as_ref().ok_or(LogError::Joined)?;
            let target = format!("vfio-user:{}", path.display());
            let (log, recovered) = Log::open_reporting(&target, self.options)?;
            *self = log;
            return Ok(recovered);
        }
        if *self.is_shared.get_mut() || self.ring.has_other_writers(self.home) {
            // They are of the generation before, and may be storing just now.
            return Err(LogError::Busy { lane: self.ring.lane() });
        }
        // This handle has the lane's lock, and no writer is there: `self` is borrowed alone.
        self.copy = copy.map(|file| Copy::new(file, &self.ring, &System));
        let recovered = self.ring.take_up()?;
        self.look();
        Ok(recovered)
    }

    /// As [`Log::reattach`], while other threads and processes use the handle. Only the same stream can be gone on with
    /// so.
    ///
    /// # Errors
    /// `Stale`: it goes on elsewhere. Reattach, or close the handle and open another. `Joined`, `Gone`, `Unreachable`.
    pub fn reconnect(&self) -> Result<Recovered, LogError> {
        self.reconnect_to()?.0.ok_or(LogError::Stale)
    }

    /// Connects anew. What was recovered, if it is the same stream.
    fn reconnect_to(&self) -> Result<(Option<Recovered>, Mappable, Option<OwnedFd>), LogError> {
        let path = self.socket.as_ref().ok_or(LogError::Joined)?;
        let mut device = self.device()?;
        *device = Device::Gone;
        let (mut socket, doorbell, lent) = patiently(|| {
            let (mut socket, lent) = connect(path, self.devices.patience())?;
            let doorbell = doorbell(&mut socket, self.ring.lane())?;
            Ok((socket, doorbell, lent))
        })?;
        let lent_copy = if self.copy.is_some() { device::copy(&mut socket)? } else { None };
        if self.copy.as_ref().is_some_and(|copy| !lent_copy.as_ref().is_some_and(|lent| copy.is_of(lent))) {
            // What is written to it leads nowhere.
            self.ring.unsaved().store(1, Ordering::Release);
        }
        *device = Device::Plain(Box::new(socket));
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = doorbell;
        drop(device);
        if !self.ring.is_of(&lent) || !self.ring.is_current() || !self.ring.is_open() {
            return Ok((None, lent, lent_copy));
        }
        // The same stream: it went on while the device was away.
        self.look();
        let (tail, taken) = (self.ring.tail(), self.ring.taken());
        Ok((Some(Recovered { tail, in_ring: tail.saturating_sub(taken), ..Recovered::default() }), lent, lent_copy))
    }

    /// Whether the device still has the connection: it is not asked anything.
    ///
    /// # Errors
    /// `Gone`; in a process that has joined, `Joined`.
    pub fn is_there(&self) -> Result<(), LogError> {
        cut::check()?;
        self.device()?
            .run(|device| if device.socket(|socket| Ok(socket.is_closed()))? { Err(LogError::Gone) } else { Ok(()) })
    }

    /// Whether this process opened the log, and has the connection.
    fn is_home(&self) -> Result<bool, LogError> {
        Ok(self.socket.is_some() && owner::me()? == self.home)
    }

    /// The connection, in the process that opened the log.
    pub(super) fn device(&self) -> Result<MutexGuard<'_, Device>, LogError> {
        if !self.is_home()? {
            return Err(LogError::Joined);
        }
        Ok(self.device.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// This process, as the owner of slots.
    #[inline]
    fn me(&self) -> Result<u64, LogError> {
        let me = owner::me()?;
        if self.known.load(Ordering::Relaxed) != me {
            // A child: of the same namespace?
            if !self.ring.knows_writers() {
                return Err(LogError::Ring("is written by a process of another PID namespace".into()));
            }
            self.known.store(me, Ordering::Relaxed);
        }
        Ok(me)
    }

    /// A slot for this process, and who that is.
    #[inline]
    pub(super) fn claim(&self) -> Result<Claim<'_>, LogError> {
        thread_local! {
            /// The slot that this thread had last.
            static LAST: Cell<usize> = const { Cell::new(0) };
        }
        let owner = self.me()?;
        let slot = match self.ring.writers().claim(owner, LAST.get()) {
            Some(slot) => slot,
            None => self.claim_slowly(owner)?,
        };
        LAST.set(slot);
        Ok(Claim { log: self, slot, owner })
    }

    #[cold]
    fn claim_slowly(&self, owner: u64) -> Result<usize, LogError> {
        let start = Instant::now();
        let mut turns = 0u32;
        loop {
            if let Some(slot) = self.ring.writers().claim(owner, 0) {
                return Ok(slot);
            }
            if turns.is_multiple_of(128) {
                self.seal()?;
            }
            if start.elapsed() >= self.options.full {
                return Err(LogError::Writers);
            }
            turns += 1;
            pause(turns);
        }
    }

    /// A writer, for one thread: it has its slot for good, which [`Log::append`] claims for each call.
    ///
    /// # Errors
    /// [`LogError::Writers`]: all 32 slots are in use.
    pub fn writer(&self) -> Result<Writer<'_>, LogError> {
        let owner = self.me()?;
        let claim = || self.ring.writers().claim(owner, 0);
        let slot = match claim() {
            Some(slot) => slot,
            None => {
                self.seal()?;
                claim().ok_or(LogError::Writers)?
            }
        };
        Ok(Writer { claim: Claim { log: self, slot, owner } })
    }

    /// Appends one record, whose payload is the parts one after another: header, payload, fill to the next multiple of
    /// 64. When this returns, the record is whole; [`Log::wait`] tells when all before it are. For any thread of any
    /// process that has the log.
    ///
    /// # Errors
    /// `Full`, `Untrimmed`, `TooLarge`, `Writers`, `Stale`, `Broken`, `Gone`: nothing was written.
    #[inline]
    pub fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError> {
        let claim = self.claim()?;
        self.write_record(claim.slot, parts)
    }

    /// Writes bytes at the end of the stream, as they are (`x_pwrite`). For any thread of any process that has the log.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn x_pwrite(&self, bytes: &[u8]) -> Result<Written, LogError> {
        let claim = self.claim()?;
        self.write_raw(claim.slot, bytes)
    }

    /// Reserves room for a record of so many bytes, which is filled piece by piece (`x_alloc`). Dropped before it is
    /// committed, it becomes a void record: what others write behind it is not lost.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn begin(&self, bytes: u32) -> Result<Begun<'_>, LogError> {
        Begun::new(self.claim()?, bytes)
    }

    /// Seals what writers have left that died, and lets the credit go on. A waiter does so by itself; a supervisor
    /// may do so when a child has ended. Returns how many holes there were.
    ///
    /// # Errors
    /// `Ring`: this process can't tell who has died.
    pub fn seal(&self) -> Result<usize, LogError> {
        let sealed = self.ring.seal(self.me()?, |hole| self.settle(hole));
        self.ring.writers().advance();
        Ok(sealed)
    }

    /// Looks how far the device is.
    fn look(&self) -> u64 {
        let taken = self.ring.taken();
        // A tail behind the end of all streams would be one that broke its own.
        let limit = taken.saturating_add(self.ring.size()).min(OFFSET_END);
        self.limit.fetch_max(limit, Ordering::AcqRel);
        self.nudge.store(limit - self.ring.size() / 2, Ordering::Relaxed);
        limit
    }

    /// Tells the device that there is something.
    fn nudge(&self) {
        let _ = self.notify(RingLanePage::TAIL_OFFSET, self.ring.tail());
    }

    /// Tells the device a word of the lane, if no other thread is just talking to it: a waiter for the outcome
    /// tells it again, and has a time of their own.
    ///
    /// # Errors
    /// `Gone`; in a process without a connection by the device's lock of the ring.
    fn notify(&self, offset: usize, word: u64) -> Result<(), LogError> {
        if !self.is_home()? {
            self.ring_doorbell();
            return if self.ring.is_abandoned() { Err(LogError::Gone) } else { Ok(()) };
        }
        let mut device = match self.device.try_lock() {
            Ok(device) => device,
            Err(TryLockError::Poisoned(device)) => device.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        let address = word_at(self.ring.lane(), offset);
        device.run(|device| device.socket(|socket| socket.post_if_room(region::BAR2, address, &word.to_le_bytes())))
    }

    /// The device looks at once, also without a connection of this process.
    fn ring_doorbell(&self) {
        if let Some(doorbell) = &self.doorbell {
            // One that is full was rung already; that of a device that has gone has no effect, and the next one
            // looks by itself.
            let _ = nix::unistd::write(doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Reserves bytes, and waits while the ring is full.
    #[inline]
    pub(super) fn take(&self, slot: usize, bytes: u64, align: u64) -> Result<Reserved, LogError> {
        if !self.ring.is_current() {
            cut::check()?;
            return Err(LogError::Stale);
        }
        let limit = self.limit.load(Ordering::Relaxed);
        match self.ring.writers().reserve(slot, bytes, align, limit) {
            Ok(reserved) => {
                if reserved.end > self.mapped.load(Ordering::Relaxed) {
                    self.map_in(reserved);
                }
                if reserved.end > self.nudge.load(Ordering::Relaxed) {
                    self.half_full(reserved.end);
                }
                Ok(reserved)
            }
            Err(Full { end }) => self.take_slowly(slot, bytes, align, end),
        }
    }

    /// Has the pages of what is reserved, and those behind, mapped into this process at once: a process that was forked
    /// has none of the ring's, and each would cost it a fault.
    #[cold]
    fn map_in(&self, reserved: Reserved) {
        let begin = self.mapped.load(Ordering::Relaxed).max(reserved.from) / MAPPED_AT_ONCE * MAPPED_AT_ONCE;
        let end = reserved.end.next_multiple_of(MAPPED_AT_ONCE);
        self.ring.touch(begin, end, MAPPED_AT_ONCE);
        self.mapped.store(end, Ordering::Relaxed);
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
    fn take_slowly(&self, slot: usize, bytes: u64, align: u64, mut end: u64) -> Result<Reserved, LogError> {
        // With the fill before it, it must fit at all.
        let most = self.ring.size() - align;
        if bytes > most {
            return Err(LogError::TooLarge { bytes, most });
        }
        if end > OFFSET_END {
            return Err(LogError::Ring("its stream offsets are used up: set the lane up anew".into()));
        }
        let start = Instant::now();
        let mut turns = 0u32;
        loop {
            if end <= self.look() {
                let limit = self.limit.load(Ordering::Relaxed);
                match self.ring.writers().reserve(slot, bytes, align, limit) {
                    Ok(reserved) => return Ok(reserved),
                    Err(Full { end: now }) => end = now,
                }
                continue;
            }
            self.check_stream()?;
            self.check_store()?;
            if turns.is_multiple_of(64) {
                self.notify(RingLanePage::TAIL_OFFSET, self.ring.tail())?;
            }
            if turns % 64 == 63 {
                // The device takes nothing behind what a dead writer left.
                self.seal()?;
            }
            if start.elapsed() >= self.options.full {
                let waited = self.options.full;
                return Err(if self.ring.waits_for_trim() { LogError::Untrimmed } else { LogError::Full { waited } });
            }
            turns += 1;
            pause(turns);
        }
    }

    fn check_stream(&self) -> Result<(), LogError> {
        cut::check()?;
        match () {
            () if self.ring.peers().role == 2 => Err(LogError::Secondary),
            () if !self.ring.is_current() || !self.ring.is_open() => Err(LogError::Stale),
            () if self.ring.is_broken() => Err(LogError::Broken),
            () => Ok(()),
        }
    }

    /// Whether the device can still take anything: where its disk is full, it never will, until it is served again.
    fn check_store(&self) -> Result<(), LogError> {
        self.ring.store_error().map_or(Ok(()), |errno| Err(LogError::Store { errno }))
    }

    /// Makes what a writer stored by the caches outlive a loss of power before it is visible, where that is asked for.
    #[inline]
    pub(super) fn settle(&self, reserved: Reserved) {
        if self.write_back != WriteBack::None {
            self.ring.write_back(reserved.from, reserved.end - reserved.from);
            fence();
        }
    }
}

/// Waits a little, and a little longer each time.
pub(super) fn pause(turns: u32) {
    match turns {
        0..64 => std::hint::spin_loop(),
        64..128 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(u64::from(turns.min(512)))),
    }
}
