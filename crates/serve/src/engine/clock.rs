//! Time: the wall's, or as fast as it goes.

use std::time::Instant as Wall;
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::Clock;
use tidewater_core::profile::Timing;

/// The clock of a served device.
///
/// It never lets an event of the device come late: what is due is handled at the instant it was due, however late the
/// thread is. So what a device says depends on what came in and when, and on nothing else, and can be repeated under
/// the virtual clock.
pub struct DeviceClock {
    timing: Timing,
    /// The device's time when the wall's was `wall`.
    from: Instant,
    wall: Wall,
    /// The last instant at which something was handled: time never runs backwards.
    last: Instant,
    /// When time was last let pass, while the device is not paced and something is due.
    looked: Option<Wall>,
}

impl DeviceClock {
    /// A clock that stands at `now`.
    pub fn new(timing: Timing, now: Instant) -> DeviceClock {
        DeviceClock { timing, from: now, wall: Wall::now(), last: now, looked: None }
    }

    /// Starts again at `now`: the device has been somewhere else.
    pub fn reset(&mut self, now: Instant) {
        self.from = now;
        self.wall = Wall::now();
        self.last = now;
    }

    /// Lets the wall's time pass for a device that is not paced, up to what is due at most. Returns the time then.
    /// `None`: nothing is due, and no time passes.
    pub fn pass(&mut self, due: Option<Instant>) -> Option<Instant> {
        let Some(due) = due else {
            self.looked = None;
            return None;
        };
        let wall = Wall::now();
        if let Some(before) = self.looked.replace(wall) {
            let passed = Duration::from_ps(((wall - before).as_nanos() as u64).saturating_mul(1_000));
            self.last = self.last.max(due.min(self.now() + passed));
        }
        Some(self.now())
    }

    fn reach(&mut self, now: Instant) -> Instant {
        self.last = self.last.max(now);
        self.last
    }

    fn elapsed(&self) -> Instant {
        self.from + Duration::from_ps((self.wall.elapsed().as_nanos() as u64).saturating_mul(1_000))
    }
}

impl Clock for DeviceClock {
    #[inline]
    fn now(&self) -> Instant {
        match self.timing {
            Timing::Model => self.elapsed().max(self.last),
            Timing::None => self.last,
        }
    }

    /// Reads the wall clock once: the engine polls its inputs between reads, and sleeps when no host waits.
    #[inline]
    fn wait(&mut self, until: Instant) -> Instant {
        if self.timing == Timing::None || until <= self.last {
            return self.reach(until);
        }
        let now = self.elapsed();
        if now >= until {
            return self.reach(until);
        }
        std::hint::spin_loop();
        // Input may have arrived meanwhile: the engine polls for it, and nothing is handled before it is due.
        now.max(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(timing: Timing) -> DeviceClock {
        DeviceClock::new(timing, Instant::ZERO)
    }

    #[test]
    fn an_event_that_is_overdue_is_handled_at_its_own_instant() {
        let mut clock = clock(Timing::Model);
        std::thread::sleep(std::time::Duration::from_millis(2));
        let due = Instant::ZERO + Duration::from_us(10);
        assert_eq!(clock.wait(due), due);
        assert!(clock.now() >= Instant::ZERO + Duration::from_ms(2));
    }

    #[test]
    fn the_model_is_waited_for_and_without_it_time_jumps() {
        // Before the clock's own start: the thread may be set aside between the two.
        let start = Wall::now();
        let (mut paced, due) = (clock(Timing::Model), Instant::ZERO + Duration::from_ms(3));
        while paced.wait(due) < due {}
        assert!(start.elapsed() >= std::time::Duration::from_millis(3));
        let mut free = clock(Timing::None);
        let far = Instant::ZERO + Duration::from_ms(1_000_000);
        assert_eq!((free.wait(far), free.now()), (far, far));
    }
}
