//! Room: what of a log is not needed any more, and how the log is doing.

use std::sync::atomic::Ordering;

use super::Log;
use crate::mapped::attached::Attached;
use crate::mapped::commands;
use crate::mapped::cut;
use crate::mapped::options::Status;
use crate::{Level, LogError};
use tidewater_wire::vendor::FastStatus;

impl Log {
    /// Whether the ring has a copy that is in use: who waits for DESTAGED writes that, and needs no device.
    pub fn has_copy(&self) -> bool {
        self.place.on(|on| on.copy.is_some() && on.ring.unsaved().load(Ordering::Acquire) == 0)
    }

    /// The level at which an append stays and is what the log ends with when the device is served again, though the
    /// device has gone: the ring's copy on a disk, or memory that survives a loss of power.
    ///
    /// # Errors
    /// Why there is none, and what offers one.
    pub fn without_device(&self) -> Result<Level, &'static str> {
        match () {
            () if self.has_others() || self.place.on(|on| on.ring.peers().role != 0) => {
                Err("the device is one of a group: the next primary would not have what is appended without this one")
            }
            () if self.has_copy() => Ok(Level::Destaged),
            () if self.is_persistent() => Ok(Level::Ring),
            () => {
                Err("a loss of power would take what is appended without the device: serve it with --ring-copy FILE, \
                       as `tidewater log-device` does, or with a ring in memory that survives one")
            }
        }
    }

    /// Lets the device leave as many bytes before the tail in the ring, half a ring at most, as long as none of
    /// them is waited for: they may be of no use before it takes them ([`Log::skip`]). A crash of the machine takes
    /// them, where the ring does not survive one and has no copy.
    pub fn leave(&self, bytes: u64) {
        self.place.on(|on| on.ring.left().store(bytes, Ordering::Relaxed));
    }

    /// The log before this offset is not needed any more, and what the device has not taken of it, it need not: its
    /// stream goes on there. When this returns, that is safe. [`Log::trim`] releases what it has taken.
    ///
    /// # Errors
    /// As [`Log::wait`] at DESTAGED.
    pub fn skip(&self, offset: u64) -> Result<(), LogError> {
        self.place.with(|on| {
            let offset = offset.min(on.ring.tail());
            on.ring.unneeded().fetch_max(offset, Ordering::AcqRel);
            on.wait_device(offset, self.options.timeout)
        })
    }

    /// The log before this offset is not needed any more.
    ///
    /// # Errors
    /// `Gone`, `Joined`, or what the device says.
    pub fn trim(&self, offset: u64) -> Result<(), LogError> {
        self.place.with(|on| {
            cut::check()?;
            let (function, lane) = (on.ring.header().function, on.ring.lane());
            if on.copy.is_some() && on.ring.synced() < offset {
                // What the device has not taken can't be trimmed, and DESTAGED does not tell that it has.
                on.wait_device(offset.min(on.ring.tail()), self.options.timeout)?;
            }
            on.device()?.run(|device| commands::trim(device.function()?, function, lane, offset))
        })
    }

    /// Bytes of the ring.
    pub fn ring_bytes(&self) -> u64 {
        self.place.on(|on| on.ring.size())
    }

    /// How it is doing. The device is asked, who may take 30 seconds to answer when it is stopped.
    pub fn status(&self) -> Status {
        self.place.on(|on| {
            let device = device_status(on).ok().map(Box::new);
            let ring_survives = match (on.ring.header().persistent, on.ring.survives()) {
                (true, _) => "a crash of this process or the device's, and power loss once lines are written back",
                (false, _) => {
                    "a crash of this process or the device's, but neither power loss nor a crash of the machine"
                }
            };
            Status {
                ring_bytes: on.ring.size(),
                reserved: on.ring.reserved(),
                ring: on.ring.tail(),
                taken: on.ring.taken(),
                destaged: on.ring.synced().max(on.ring.saved().load(Ordering::Acquire)),
                open: on.ring.is_open(),
                broken: on.ring.is_broken(),
                ring_survives,
                level: on.level,
                destaged_survives: "crashes and power loss, provided the disk honours fdatasync",
                remote_ring_survives: "the loss of this machine, but not that of all machines of the group at once",
                remote_destaged_survives: "the loss of this machine, and power loss of all, provided disks honour \
                                           fdatasync",
                device,
            }
        })
    }

    /// The device's fast-side status (log page C0h).
    ///
    /// # Errors
    /// `Gone`, `NoReply`, `Status`; in a process that has joined, `Joined`.
    pub fn device_status(&self) -> Result<FastStatus, LogError> {
        self.place.with(device_status)
    }
}

fn device_status(on: &Attached) -> Result<FastStatus, LogError> {
    let function = on.ring.header().function;
    on.device()?.run(|device| commands::fast_status(device.function()?, function))
}
