//! A log on the device that it is attached to: the lane's ring as this handle writes it, and the connection.

mod moves;
mod wait;
mod write;

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use tidewater_driver::vfio_user::Socket;
use tidewater_wire::log::RingLanePage;
use tidewater_wire::vendor::LANE_PAGES_OFFSET;
use tidewater_wire::vfio_user::region;

use super::copy::Copy;
use super::device::{Device, connect, patiently};
use super::disk::System;
use super::lent::{self, Mappable};
use super::memory::{WriteBack, fence};
use super::options::Options;
use super::ring::{Recovered, Ring};
use super::targets::Devices;
use super::{cut, owner};
use crate::lane::OFFSET_END;
use crate::writers::{Full, Reserved};
use crate::{Level, LogError};
pub(super) use write::Claim;

/// How long the credit is held up before writers are checked for being alive.
const SEAL_AFTER: Duration = Duration::from_millis(1);
/// How long nothing may come of a wish for a sync before the device gets it again, and asked whether it is there.
const NOTIFY_AGAIN: Duration = Duration::from_millis(50);
/// Bytes of the ring that are mapped into a process at a time.
const MAPPED_AT_ONCE: u64 = 64 << 10;

/// A lane of a device, taken for this handle, or joined.
#[derive(Debug)]
pub(super) struct Attached {
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
    pub(super) doorbell: Option<OwnedFd>,
    /// That of the device that was connected to last: for those with whom the lane is shared from now on.
    pub(super) newest: Mutex<Option<OwnedFd>>,
    /// Others have been given the lane.
    pub(super) is_shared: AtomicBool,
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

fn doorbell(socket: &mut Socket, lane: u8) -> Result<Option<OwnedFd>, LogError> {
    Ok(socket.doorbell(region::BAR2, word_at(lane, RingLanePage::WANTED_OFFSET))?)
}

impl Attached {
    /// Opens the log on one device of several.
    pub(in crate::mapped) fn open(
        path: &Path,
        devices: &Devices,
        options: Options,
    ) -> Result<(Attached, Recovered), LogError> {
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
        let copy = if ring.header().copied { lent::copy(&mut socket)? } else { None };
        let copy = copy.map(|file| Copy::new(file, &ring, &System));
        let mut log =
            Attached::of(Some(path.to_owned()), options, ring, copy, Device::Plain(Box::new(socket)), doorbell)?;
        log.devices = devices.clone();
        log.began_anew = recovered.is_new;
        Ok((log, recovered))
    }

    pub(super) fn of(
        socket: Option<PathBuf>,
        options: Options,
        ring: Ring,
        copy: Option<Copy>,
        device: Device,
        doorbell: Option<OwnedFd>,
    ) -> Result<Attached, LogError> {
        let persistent = ring.header().persistent;
        let write_back = options.write_back.unwrap_or(if persistent { WriteBack::Lines } else { WriteBack::None });
        if write_back == WriteBack::Lines && !ring.writes_back() {
            return Err(LogError::Ring("this processor has no instruction that writes a line back".into()));
        }
        let level = options.level.unwrap_or(if persistent { Level::Ring } else { Level::Destaged });
        let home = owner::me()?;
        let log = Attached {
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

    /// Connects anew, to the same device or the one in its place, whose stream may be another.
    pub(super) fn reattach(&mut self) -> Result<Recovered, LogError> {
        let (same, lent, copy) = self.reconnect()?;
        if let Some(recovered) = same {
            return Ok(recovered);
        }
        if !self.ring.is_of(&lent) {
            *self.device()? = Device::Gone;
            let path = self.socket.as_ref().ok_or(LogError::Joined)?;
            let (log, recovered) = Attached::open(path, &self.devices, self.options)?;
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

    /// Connects anew. What was recovered, if it is the same stream.
    pub(super) fn reconnect(&self) -> Result<(Option<Recovered>, Mappable, Option<OwnedFd>), LogError> {
        let path = self.socket.as_ref().ok_or(LogError::Joined)?;
        let mut device = self.device()?;
        *device = Device::Gone;
        let (mut socket, doorbell, lent) = patiently(|| {
            let (mut socket, lent) = connect(path, self.devices.patience())?;
            let doorbell = doorbell(&mut socket, self.ring.lane())?;
            Ok((socket, doorbell, lent))
        })?;
        let lent_copy = if self.copy.is_some() { lent::copy(&mut socket)? } else { None };
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
        Ok((Some(self.stands()), lent, lent_copy))
    }

    /// Where a stream stands that was not interrupted.
    pub(super) fn stands(&self) -> Recovered {
        let (tail, taken) = (self.ring.tail(), self.ring.taken());
        Recovered { tail, in_ring: tail.saturating_sub(taken), ..Recovered::default() }
    }

    /// Whether the device still has the connection: it is not asked anything.
    ///
    /// # Errors
    /// `Gone`; in a process that has joined, `Joined`.
    pub(super) fn is_there(&self) -> Result<(), LogError> {
        cut::check()?;
        self.device()?
            .run(|device| if device.socket(|socket| Ok(socket.is_closed()))? { Err(LogError::Gone) } else { Ok(()) })
    }

    /// Whether the handle can go to another device and leave no writer behind: a child of its process is one.
    pub(super) fn may_move(&self) -> bool {
        !self.is_shared.load(Ordering::Acquire) && self.is_home().unwrap_or(false)
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
    pub(super) fn me(&self) -> Result<u64, LogError> {
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
    pub(super) fn claim(&self) -> Result<Claim<&Attached>, LogError> {
        let (slot, owner) = self.claim_slot()?;
        Ok(Claim { on: self, slot, owner })
    }

    /// As [`Attached::claim`]: the caller gives the slot back.
    #[inline]
    pub(super) fn claim_slot(&self) -> Result<(usize, u64), LogError> {
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
        Ok((slot, owner))
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

    /// Seals what writers have left that died, and lets the credit go on. Returns how many holes there were.
    pub(super) fn seal(&self) -> Result<usize, LogError> {
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
    pub(in crate::mapped) fn settle(&self, reserved: Reserved) {
        if self.write_back != WriteBack::None {
            self.ring.write_back(reserved.from, reserved.end - reserved.from);
            fence();
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
