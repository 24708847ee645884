//! The log: one handle, on one device or on the primary of several.

mod event;
mod room;
mod writer;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use tidewater_wire::vendor::Epoch;

use self::event::Watcher;
use super::attached::Attached;
use super::copy::Copy;
use super::device::Device;
use super::disk::{Disk, System};
use super::options::Options;
use super::place::{Moving, Place};
use super::ring::{Recovered, Ring};
use super::targets::{self, Devices};
use crate::{Level, LogError, Written};

pub use writer::{Begun, Writer};

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

/// A log with its ring mapped. Threads share it; on one device processes do, too.
///
/// On several devices it moves: when the primary has gone or is deposed, or its disk takes nothing, a call finds the
/// next one, appends there what it has not got, and goes on: offsets stay what they were. A log does not move while it
/// is shared, has a [`Writer`] or a [`Begun`] record, or in a child of the process that opened it: calls then fail with
/// the reason why it would.
#[derive(Debug)]
pub struct Log {
    place: Place,
    options: Options,
    watcher: Mutex<Option<Watcher>>,
}

impl Log {
    /// Opens the log at `vfio-user:SOCKET`, or on the primary of several devices, which is waited for up to 5 seconds,
    /// and takes up its stream: what an earlier writer had published is there, and whole records beyond it are too;
    /// holes between them are sealed. Several devices are `vfio-user:SOCKET,vfio-user:SOCKET`, or, with the feature
    /// `etcd`, `cluster:etcd=HOST:PORT,HOST:PORT/NAME`: etcd then says which device of the cluster is primary.
    ///
    /// # Errors
    /// [`LogError`]: foremost `Unreachable`, `NotMapped`, `Busy`, `NotReplicated`, `Secondary`; of several devices
    /// `NoPrimary`, which names every device and why it is not the one, and `Cluster`.
    pub fn open(target: &str, options: Options) -> Result<Log, LogError> {
        Log::open_reporting(target, options).map(|(log, _)| log)
    }

    /// As [`Log::open`], and reports what was recovered.
    ///
    /// # Errors
    /// As there.
    pub fn open_reporting(target: &str, options: Options) -> Result<(Log, Recovered), LogError> {
        let devices = Devices::of(target)?;
        let (place, recovered) = match devices.single() {
            Some(path) => {
                let (on, recovered) = Attached::open(path, &devices, options)?;
                (Place::One(on), recovered)
            }
            None => {
                let open = |path: &_| Attached::open(path, &devices, options);
                let (on, recovered) = targets::first(&devices, targets::FOUND_WITHIN, open)?;
                (Place::Several(Moving::new(on)), recovered)
            }
        };
        Ok((Log { place, options, watcher: Mutex::new(None) }, recovered))
    }

    /// Whether the log is on one of several devices.
    pub fn has_others(&self) -> bool {
        matches!(self.place, Place::Several(_))
    }

    /// How often the log has moved to another primary.
    pub fn moves(&self) -> u64 {
        self.place.moves()
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
        self.place.reattach()
    }

    /// As [`Log::reattach`], while other threads and processes use the handle. On one device only the same stream can
    /// be gone on with so.
    ///
    /// # Errors
    /// `Stale`: it goes on elsewhere. Reattach, or close the handle and open another. `Joined`, `Gone`, `Unreachable`;
    /// of several devices as [`Log::append`].
    pub fn reconnect(&self) -> Result<Recovered, LogError> {
        self.place.reconnect()
    }

    /// The lane for another process to write: descriptors to hand on, close-on-exec. A process that has them, or mapped
    /// what they are of, has the lane: the next [`Log::open`] of it is `Busy` until all have ended. From then on the
    /// log stays on its device.
    ///
    /// # Errors
    /// `System`: no more descriptors. `NotMapped`: the device has no doorbell.
    pub fn share(&self) -> Result<Shared, LogError> {
        let clone = |file: BorrowedFd<'_>| {
            file.try_clone_to_owned().map_err(|error| LogError::System {
                what: "copy a descriptor",
                errno: Errno::from_raw(error.raw_os_error().unwrap_or_default()),
            })
        };
        self.place.on(|on| {
            let ring = clone(on.ring.file())?;
            let copy = on.copy.as_ref().map(|copy| clone(copy.file())).transpose()?;
            let newest = on.device().map(|_| on.newest.lock().unwrap_or_else(PoisonError::into_inner));
            let doorbell = newest.as_ref().ok().and_then(|newest| newest.as_ref()).or(on.doorbell.as_ref());
            let doorbell = clone(doorbell.ok_or(LogError::NotMapped)?.as_fd())?;
            on.is_shared.store(true, Ordering::Release);
            Ok(Shared { ring, doorbell, copy, lane: on.ring.lane(), generation: on.ring.generation })
        })
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
        let options = Options { lane, ..options };
        let on = Attached::of(None, options, ring, copy, Device::Gone, Some(doorbell))?;
        Ok(Log { place: Place::One(on), options, watcher: Mutex::new(None) })
    }

    /// That replicas acknowledge what is appended, as a level above DESTAGED asks for.
    ///
    /// # Errors
    /// `NotReplicated`, `Secondary`.
    pub fn acknowledges(&self, level: Level) -> Result<(), LogError> {
        self.place.on(|on| on.ring.peers().acknowledge(level))
    }

    /// Level that [`Log::x_fsync`] waits for.
    pub fn level(&self) -> Level {
        self.place.on(|on| on.level)
    }

    /// The lane.
    pub fn lane(&self) -> u8 {
        self.place.on(|on| on.ring.lane())
    }

    /// Whether RING survives a loss of power: the ring's memory does.
    pub fn is_persistent(&self) -> bool {
        self.place.on(|on| on.ring.header().persistent)
    }

    /// End of what is reserved: waiting for it is waiting for all that was appended before, by any writer.
    #[inline]
    pub fn end(&self) -> u64 {
        self.place.on(|on| on.ring.reserved())
    }

    /// End of what is at RING, as it stands.
    #[inline]
    pub fn tail(&self) -> u64 {
        self.place.on(|on| on.ring.tail())
    }

    /// Whether the device still has the connection: it is not asked anything. Of several, that a primary is there and
    /// the log is on it.
    ///
    /// # Errors
    /// `Gone`; in a process that has joined, `Joined`.
    pub fn is_there(&self) -> Result<(), LogError> {
        self.place.with(Attached::is_there)
    }

    /// Whether the stream did not go on from what was published when the log was opened ([`Recovered::is_new`]): the
    /// ring's memory was lost since, its file was replaced, or there was none before.
    pub fn began_anew(&self) -> bool {
        self.place.on(|on| on.began_anew)
    }

    /// The drive that has the log: the identifier of its image; and the epoch that it was in when the log was opened.
    pub fn identity(&self) -> ([u8; 16], Epoch) {
        self.place.on(|on| {
            let header = on.ring.header();
            (header.drive, header.epoch)
        })
    }

    /// Who can have written what the log says, beside whom they have shared it with: the owner of the ring's file, and
    /// the user of the device, from which comes what is not in the ring.
    ///
    /// # Errors
    /// `Gone`, `Joined`, or that the ring's file can't be looked at.
    pub fn writers(&self) -> Result<[u32; 2], LogError> {
        self.place.with(|on| {
            let device = on.device()?.run(|device| device.socket(|socket| Ok(socket.user())))?;
            Ok([on.ring.user()?, device])
        })
    }

    /// Appends one record, whose payload is the parts one after another: header, payload, fill to the next multiple of
    /// 64. When this returns, the record is whole; [`Log::wait`] tells when all before it are. For any thread of any
    /// process that has the log.
    ///
    /// # Errors
    /// `Full`, `Untrimmed`, `TooLarge`, `Writers`, `Stale`, `Broken`, `Gone`: nothing was written. On several devices
    /// those of a primary that has gone, or whose disk takes nothing, only when no other is found within 30 seconds, or
    /// something of the log is lost: `NoPrimary`, `Cluster`, `Overtaken`, `Lost`.
    #[inline]
    pub fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError> {
        self.place.with(|on| on.write_record(on.claim()?.slot, parts))
    }

    /// Writes bytes at the end of the stream, as they are (`x_pwrite`). For any thread of any process that has the log.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn x_pwrite(&self, bytes: &[u8]) -> Result<Written, LogError> {
        self.place.with(|on| on.x_pwrite(bytes))
    }

    /// Waits until all that was appended before, by anybody who has the lane, is at the handle's level. Returns where
    /// that ends.
    ///
    /// # Errors
    /// As [`Log::wait`].
    #[inline]
    pub fn x_fsync(&self) -> Result<u64, LogError> {
        let (end, level) = (self.end(), self.level());
        if level != Level::Ring || self.tail() < end {
            self.wait(end, level, self.options.timeout)?;
        }
        Ok(end)
    }

    /// Waits until everything before a stream offset is at a level, or the time is over: then it may be waited for
    /// again. On several devices others are asked once a second whether they lead by now.
    ///
    /// # Errors
    /// `TimedOut`, `Stale`, `Broken`; at DESTAGED `Gone`, within 50 ms of the end of the device's process; at remote
    /// levels `Gone` so as well, `NotReplicated`, `Secondary`, and `ReplicasLate` or `Frozen` instead of `TimedOut`. On
    /// several devices as [`Log::append`].
    #[inline]
    pub fn wait(&self, end: u64, level: Level, timeout: Duration) -> Result<(), LogError> {
        self.place.wait(end, level, timeout)
    }

    /// Reads the log from a stream offset on, until the buffer is full or the time is over: what is still in the ring
    /// from there, and what is not from flash.
    ///
    /// # Errors
    /// `Released`: the bytes were trimmed or overwritten; `NoMoreLog`: fewer came in time, and are in the buffer;
    /// `Gone`; `Ring`: it was cut meanwhile. On several devices as [`Log::append`].
    pub fn x_pread(&self, offset: u64, to: &mut [u8], timeout: Duration) -> Result<(), LogError> {
        self.place.with(|on| on.x_pread(offset, to, timeout))
    }

    /// Seals what writers have left that died, and lets the credit go on. A waiter does so by itself; a supervisor
    /// may do so when a child has ended. Returns how many holes there were.
    ///
    /// # Errors
    /// `Ring`: this process can't tell who has died.
    pub fn seal(&self) -> Result<usize, LogError> {
        self.place.with(Attached::seal)
    }
}
