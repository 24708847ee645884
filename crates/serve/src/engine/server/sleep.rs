//! How the device's thread sleeps, and what ends its sleep.

use crate::engine::firmware::Firmware;
use crate::engine::hosts::doorbell_page;
use crate::engine::route::World;
use crate::engine::server::Server;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration as WallDuration, Instant as Wall};
use tidewater_base::Duration;
use tidewater_core::drive::{Clock as _, Machine as _};
use tidewater_core::profile::{Doorbells, Timing};

/// The longest sleep: signals are seen by then at the latest.
const SLEEP_MAX: WallDuration = WallDuration::from_millis(200);

/// How long the thread keeps polling after the last event, before it sleeps: a host that has just been answered often
/// asks again, and a command that meets a sleeping thread takes longer.
///
/// A host that comes again within [`Linger::MAX`] is polled for twice as long as it last took. That is tried once:
/// where no longer polling meets the host, it may be waiting for this very processor, and the thread sleeps at once
/// from then on, with a new trial from time to time. Polling costs no more for hosts with longer gaps, and nothing on
/// an idle device.
#[derive(Debug)]
pub(crate) struct Linger {
    time: WallDuration,
    /// A longer time is being tried.
    on_trial: bool,
    /// Events in a row that met a sleeping thread, up to [`Linger::MISSES_MAX`].
    misses: u32,
    /// Events until the next trial, and after the next one that fails.
    pause: u32,
    next_pause: u32,
}

impl Linger {
    /// Where polling does not meet the host.
    const SHORT: WallDuration = WallDuration::from_micros(5);
    pub(crate) const MIN: WallDuration = WallDuration::from_micros(50);
    const MAX: WallDuration = WallDuration::from_micros(200);
    /// A host that comes so soon after the thread has gone to sleep may have waited for that.
    const BEHIND: WallDuration = WallDuration::from_micros(100);
    const MISSES_MAX: u32 = 8;
    const PAUSE_MIN: u32 = 16;
    const PAUSE_MAX: u32 = 256;

    pub(crate) fn new() -> Linger {
        Linger { time: Linger::MIN, on_trial: false, misses: 0, pause: 0, next_pause: Linger::PAUSE_MIN }
    }

    /// How long to poll.
    pub(crate) fn time(&self) -> WallDuration {
        self.time
    }

    /// Something came so long after the last event; `slept`: the thread slept meanwhile.
    pub(crate) fn came(&mut self, gap: WallDuration, slept: bool) {
        let had = self.time;
        let was_on_trial = std::mem::take(&mut self.on_trial);
        if !slept {
            (self.misses, self.next_pause) = (0, Linger::PAUSE_MIN);
            // Down slowly: one short gap among long ones says little.
            self.time = (2 * gap).max(had - had / 8).clamp(Linger::MIN, Linger::MAX);
            return;
        }
        self.misses = (self.misses + 1).min(Linger::MISSES_MAX);
        if was_on_trial && gap <= Linger::MAX + Linger::BEHIND {
            self.misses = Linger::MISSES_MAX;
            self.pause = self.next_pause;
            self.next_pause = (2 * self.next_pause).min(Linger::PAUSE_MAX);
        } else if self.pause > 0 {
            self.pause -= 1;
        } else if gap <= Linger::MAX {
            (self.time, self.on_trial) = (Linger::MAX, true);
            return;
        }
        self.time = if self.misses < Linger::MISSES_MAX { Linger::MIN } else { Linger::SHORT };
    }
}

/// How long before the end of a command the thread stays awake for it: a sleep ends late.
const SOON: Duration = Duration::from_ms(2);

impl<M> World<M> {
    /// Whether the device does nothing until its next event, at the model's pace, so that the loop returns: remote
    /// hosts get what has ended, and send more. Without any it returns where that event is far away.
    pub(crate) fn has_time(&self, firmware: &Firmware) -> bool {
        let first = if self.target.is_some() { self.cx.now } else { self.cx.now + SOON };
        firmware.timing == Timing::Model && firmware.deadline().is_some_and(|due| due > first)
    }

    /// Whether a command ends so soon that the thread stays awake for it.
    pub(crate) fn ends_soon(&self, firmware: &Firmware) -> bool {
        let soon = self.cx.now + SOON;
        self.target.is_some()
            && self.has_time(firmware)
            && firmware.subsystem.outstanding() > 0
            && firmware.deadline().is_some_and(|due| due < soon)
    }
}

impl Server {
    /// Sleeps until there may be something to do. Nothing has happened since `last`.
    pub(crate) fn sleep(&mut self, last: Wall) {
        let polls = self.firmware.as_ref().is_some_and(|firmware| self.world.polls_pages(firmware));
        if polls && self.profile.serve.doorbells == Doorbells::Polled {
            return std::hint::spin_loop();
        }
        if let Some(log) = self.firmware.as_mut().and_then(|firmware| firmware.log.as_mut()) {
            log.write_out();
        }
        self.waker.doze();
        // From now on, hosts that ring in memory are to ring by message; earlier rings are found by the look below.
        let firmware = self.firmware.as_ref();
        if let Some(firmware) = firmware {
            self.world.write_event_indices(firmware);
        }
        fence(Ordering::SeqCst);
        let found = self.world.has_mail()
            || firmware.is_some_and(|firmware| {
                self.world.look_at_doorbells(firmware) || self.world.look_at_other_words(firmware)
            });
        if found {
            return self.waker.rouse();
        }
        let mut time = SLEEP_MAX;
        if let Some(powered_off) = &self.powered_off {
            time = time.min(powered_off.until.saturating_duration_since(Wall::now()));
        }
        // What only a host's timers wait for is due in its own time, also when the drive is not paced.
        let due = firmware.and_then(|firmware| firmware.subsystem.deadline());
        if let Some(due) = due {
            let now = self.clock.now();
            let left = if due > now { (due - now).as_ps() / 1_000 } else { 0 };
            time = time.min(WallDuration::from_nanos(left));
        }
        if let Some(at) = self.world.rings_at().filter(|_| firmware.is_some()) {
            time = time.min(at.saturating_duration_since(Wall::now()));
        }
        if let Some(peers) = &self.world.peers {
            time = time.min(peers.deadline().saturating_duration_since(Wall::now()));
            let due = firmware.and_then(|firmware| firmware.subsystem.device().fast().peers_deadline());
            let left = due.map_or(SLEEP_MAX, |due| WallDuration::from_nanos(due.since(self.wall()).as_ps() / 1_000));
            time = time.min(left);
        }
        let image = self.world.storage.image().event();
        let target = self.world.target.as_ref().map(|target| target.as_fd());
        let peers = self.world.peers.as_ref().map(|peers| peers.as_fd());
        let rung = self.world.doorbells().map(|doorbell| doorbell.watched());
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(self.waker.as_fd()).chain(image).chain(target).chain(peers).chain(rung).collect();
        let mut polled: Vec<PollFd<'_>> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // Interrupted or not, the caller looks for work. Of doorbells in a page nothing else tells.
        let end = Wall::now() + time;
        let mut left = time;
        loop {
            let nap = if polls { left.min(doorbell_page::nap(last.elapsed())) } else { left };
            let none_came = ppoll(&mut polled, Some(TimeSpec::from_duration(nap)), None) == Ok(0);
            left = end.saturating_duration_since(Wall::now());
            if !none_came || left.is_zero() || self.world.page_has_rung() {
                break;
            }
        }
        self.waker.rouse();
        self.world.storage.image().hush();
    }
}

#[cfg(test)]
mod tests {
    use super::Linger;
    use std::time::Duration;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// Events, and how long the thread has polled in all of them. `gap`: until the host comes, once the thread polls
    /// for so long.
    fn polled(events: u32, gap: impl Fn(Duration) -> Duration) -> (Duration, u32) {
        let (mut linger, mut polled, mut met_asleep) = (Linger::new(), Duration::ZERO, 0);
        for _ in 0..events {
            let (time, gap) = (linger.time(), gap(linger.time()));
            polled += time.min(gap);
            let slept = gap > time;
            met_asleep += u32::from(slept);
            linger.came(gap, slept);
        }
        (polled, met_asleep)
    }

    #[test]
    fn a_host_that_comes_again_soon_meets_no_sleeping_thread() {
        for gap in [1, 30, 49, 51, 60, 99, 150, 199] {
            let (_, met_asleep) = polled(1000, |_| us(gap));
            assert!(met_asleep <= 1, "{gap} us: {met_asleep} of 1000");
        }
    }

    #[test]
    fn hosts_that_come_later_cost_no_more() {
        for gap in [201, 1_000, 1_000_000] {
            let (time, _) = polled(1000, |_| us(gap));
            assert!(time <= 1000 * Linger::MIN / 5, "{gap} us: {time:?}");
        }
    }

    /// A host that waits for the processor on which the thread polls comes only once it sleeps.
    #[test]
    fn polling_that_keeps_the_host_away_is_seldom() {
        let (time, met_asleep) = polled(10_000, |polled| polled + us(40));
        assert_eq!(met_asleep, 10_000);
        assert!(time < 10_000 * us(6), "{time:?}");
    }

    #[test]
    fn a_host_that_has_a_processor_again_is_soon_polled_for() {
        let mut linger = Linger::new();
        for _ in 0..10_000 {
            linger.came(linger.time() + us(40), true);
        }
        for gap in [20, 80] {
            let met = (0..1_000).position(|_| {
                let slept = us(gap) > linger.time();
                linger.came(us(gap), slept);
                !slept
            });
            assert!(met.is_some_and(|events| events <= 258), "{gap} us: {met:?}");
            assert!((Linger::MIN..=Linger::MAX).contains(&linger.time()), "{:?}", linger.time());
        }
        // One that was away for long has not waited for the processor.
        let mut linger = Linger::new();
        for _ in 0..100 {
            linger.came(us(20), us(20) > linger.time());
            (0..10).for_each(|_| linger.came(us(1_000_000), true));
        }
        linger.came(us(20), true);
        assert_eq!(linger.time(), Linger::MAX);
    }
}
