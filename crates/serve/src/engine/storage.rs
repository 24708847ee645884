//! A device whose image can't be written: it freezes, says so, and starts anew once that is safe.

use crate::engine::route::World;
use crate::engine::server::Server;
use crate::image::Disk;
use nix::libc::{EDQUOT, EIO, ENOSPC};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};
use tidewater_core::subsystem::Input;

/// How often a device whose disk was full looks for room.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl<M> World<M> {
    pub(crate) fn fail_store(&mut self) {
        if std::mem::replace(&mut self.store_failed, true) {
            return;
        }
        self.cx.push(Input::StoreFailed);
        let image = self.payload.image();
        let next = match image.disk() {
            Disk::Full if self.can_start_anew() => "make room: the device starts itself anew then",
            Disk::Full => "make room, and start the device again",
            _ => "repair the disk and serve the drive again",
        };
        self.cx.warn(format!(
            "{}: {}: the drive is read-only from now on, and flushed data is safe; {next}",
            image.name(),
            image.fault().unwrap_or("cannot be read or written"),
        ));
        self.tell_of_disk();
    }

    /// What is wrong with the disk of the image.
    pub(crate) fn disk(&self) -> Disk {
        match (self.store_failed, self.payload.image().disk()) {
            (false, _) => Disk::Works,
            (true, Disk::Works) => Disk::Failed,
            (true, disk) => disk,
        }
    }

    /// Clients and peers learn what is wrong with the disk, though nothing else is sent to them any more.
    pub(crate) fn tell_of_disk(&mut self) {
        let disk = self.disk();
        if let Some(peers) = &mut self.peers {
            peers.set_disk(disk);
        }
        let number = match (disk, self.payload.image().fault_number()) {
            (Disk::Works, _) => return,
            (Disk::Full, Some(number)) => number,
            // ENOSPC tells a program that room is all that is missing.
            (_, Some(number)) if ![ENOSPC, EDQUOT].contains(&number) => number,
            _ => EIO,
        };
        let rings = self.ports.iter_mut().filter_map(|port| port.ring.as_mut());
        rings.for_each(|ring| ring.publish_store_error(number, disk == Disk::Failed));
    }

    /// Whether it starts itself anew once a full disk has room. It leaves its clients then: programs open a log again,
    /// but virtual machines would have lost their disk. An input log would begin anew, and nothing says when there is
    /// room below a block device.
    fn can_start_anew(&self) -> bool {
        let has_rings = self.ports.iter().any(|port| port.ring.is_some());
        has_rings && !self.is_recorded && self.payload.image().knows_room()
    }

    /// How fast the disk is, for the status.
    pub(crate) fn disk_status(&self) -> Value {
        let pace = self.payload.image().pace();
        let mut all = Map::new();
        if let Some(word) = self.disk().word() {
            all.insert("state".into(), word.into());
        }
        all.insert("writes".into(), pace.writes.into());
        all.insert("write_us".into(), (pace.write_time.as_micros() as u64).into());
        all.insert("syncs".into(), pace.syncs.into());
        all.insert("sync_us".into(), (pace.sync_time.as_micros() as u64).into());
        all.insert("syncing_us".into(), (pace.syncing.as_micros() as u64).into());
        all.into()
    }
}

impl Server {
    /// Whether the disk was full and has room again: then the image is as after a crash, with all that was
    /// acknowledged.
    pub(crate) fn is_to_start_anew(&mut self) -> bool {
        if !self.world.store_failed || !self.world.can_start_anew() {
            return false;
        }
        let now = Instant::now();
        if self.looks_for_room_at.is_some_and(|at| now < at) {
            return false;
        }
        let is_first = self.looks_for_room_at.replace(now + LOOK_EVERY).is_none();
        if is_first || self.world.disk() != Disk::Full {
            return false;
        }
        let has_room = self.world.payload.image_mut().has_room();
        // A sync that failed meanwhile leaves no way but a start by hand.
        self.world.tell_of_disk();
        has_room
    }

    /// Leaves everything as it is: the next start finds what a crash would have left, and this process's files closed.
    pub(crate) fn leave(mut self) {
        let _ = self.world.record.end();
        let _ = std::fs::remove_file(&self.setup.control);
    }
}
