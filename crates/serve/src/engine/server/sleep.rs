//! How the device's thread sleeps, and what ends its sleep.

use super::Server;
use crate::engine::{Engine, Turn, nap};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration as WallDuration, Instant as Wall};
use tidewater_core::drive::Clock as _;
use tidewater_core::profile::Doorbells;

/// The longest sleep: signals are seen by then at the latest.
const SLEEP_MAX: WallDuration = WallDuration::from_millis(200);

impl Server {
    /// Sleeps until there may be something to do. Nothing has happened since `last`.
    pub(super) fn sleep(&mut self, last: Wall) {
        let polls = self.firmware.as_ref().is_some_and(|firmware| self.engine.hosts.polls_pages(firmware));
        if polls && self.drive.profile.serve.doorbells == Doorbells::Polled {
            return std::hint::spin_loop();
        }
        if let Some(log) = self.firmware.as_mut().and_then(|firmware| firmware.log.as_mut()) {
            log.write_out();
        }
        self.waker.doze();
        // From now on, hosts that ring in memory are to ring by message; earlier rings are found by the look below.
        let firmware = self.firmware.as_ref();
        if let Some(firmware) = firmware {
            self.engine.hosts.write_event_indices(firmware);
        }
        fence(Ordering::SeqCst);
        let is_mail = self.engine.has_mail();
        let Engine { cx, hosts, .. } = &mut self.engine;
        let found = is_mail
            || firmware.is_some_and(|firmware| {
                let t = &mut Turn { cx, firmware };
                hosts.look_at_doorbells(t) || hosts.look_at_other_words(t)
            });
        if found {
            return self.waker.rouse();
        }
        let mut time = SLEEP_MAX;
        if let Some(until) = self.power.off_until() {
            time = time.min(until.saturating_duration_since(Wall::now()));
        }
        if let Some(at) = self.engine.faults.next_at().filter(|_| firmware.is_some()) {
            time = time.min(at.saturating_duration_since(Wall::now()));
        }
        // What only a host's timers wait for is due in its own time, also when the drive is not paced.
        let due = firmware.and_then(|firmware| firmware.subsystem.deadline());
        if let Some(due) = due {
            let now = self.clock.now();
            let left = if due > now { (due - now).as_ps() / 1_000 } else { 0 };
            time = time.min(WallDuration::from_nanos(left));
        }
        if let Some(at) = self.engine.rings.next_look().filter(|_| firmware.is_some()) {
            time = time.min(at.saturating_duration_since(Wall::now()));
        }
        if let Some(due) = self.engine.hosts.connections_due() {
            time = time.min(WallDuration::from_nanos(due.since(self.wall()).as_ps() / 1_000));
        }
        if let Some(peers) = self.engine.group.carrier() {
            time = time.min(peers.deadline().saturating_duration_since(Wall::now()));
            let due = firmware.and_then(|firmware| firmware.subsystem.device().fast().peers_deadline());
            let left = due.map_or(SLEEP_MAX, |due| WallDuration::from_nanos(due.since(self.wall()).as_ps() / 1_000));
            time = time.min(left);
        }
        let image = self.engine.storage.image().event();
        let [target, nbd] = self.engine.hosts.connections_watched();
        let peers = self.engine.group.carrier().map(|peers| peers.as_fd());
        let rung = self.engine.rings.doorbells().map(|doorbell| doorbell.watched());
        let fds: Vec<BorrowedFd<'_>> =
            [Some(self.waker.as_fd()), image, target, nbd, peers].into_iter().flatten().chain(rung).collect();
        let mut polled: Vec<PollFd<'_>> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Interrupted or not, the caller looks for work. Of doorbells in a page nothing else tells.
        let end = Wall::now() + time;
        let mut left = time;
        loop {
            let nap = if polls { left.min(nap(last.elapsed())) } else { left };
            let none_came = ppoll(&mut polled, Some(TimeSpec::from_duration(nap)), None) == Ok(0);
            left = end.saturating_duration_since(Wall::now());
            if !none_came || left.is_zero() || self.engine.hosts.page_has_rung() {
                break;
            }
        }
        self.waker.rouse();
        self.engine.storage.image().hush();
    }
}
