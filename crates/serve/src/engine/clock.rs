//! Time: the wall's, or as fast as it goes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant as Wall;
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::Clock;
use tidewater_core::profile::Timing;

/// Waits of the model that are shorter than this are spent looking around: a sleep would take longer.
const SPIN: Duration = Duration::from_us(100);

/// How a thread sleeps until something happens outside, or for so long.
pub type Sleep = Box<dyn Fn(std::time::Duration)>;

/// The clock of a served device.
///
/// It never lets an event of the device come late: what is due is handled at the instant it was due, however late the thread is.
/// So what a device says depends on what came in and when, and on nothing else, and can be repeated under the virtual clock.
pub struct DeviceClock {
    timing: Timing,
    /// The device's time when the wall's was `wall`.
    from: Instant,
    wall: Wall,
    /// The last instant at which something was handled: time never runs backwards.
    last: Instant,
    /// Somebody waits for a command: then the thread stays awake.
    busy: Rc<Cell<bool>>,
    sleep: Sleep,
}

impl DeviceClock {
    /// A clock that stands at `now`.
    pub fn new(timing: Timing, now: Instant, busy: Rc<Cell<bool>>, sleep: Sleep) -> DeviceClock {
        DeviceClock { timing, from: now, wall: Wall::now(), last: now, busy, sleep }
    }

    /// Starts again at `now`: the device has been somewhere else.
    pub fn reset(&mut self, now: Instant) {
        self.from = now;
        self.wall = Wall::now();
        self.last = now;
    }

    /// Lets a time pass that only the host's timers wait for, when the device itself has nothing to do and is not paced.
    pub fn skip_to(&mut self, until: Instant) {
        self.last = self.last.max(until);
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

    #[inline]
    fn wait(&mut self, until: Instant) -> Instant {
        if self.timing == Timing::None || until <= self.last {
            return self.reach(until);
        }
        let now = self.elapsed();
        if now >= until {
            return self.reach(until);
        }
        let left = until - now;
        if !self.busy.get() && left > SPIN {
            (self.sleep)(std::time::Duration::from_nanos((left - SPIN).as_ps() / 1_000));
        } else {
            std::hint::spin_loop();
        }
        // Something may have come meanwhile: whoever drives looks around, and nothing is handled before it is due.
        self.elapsed().min(until).max(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(timing: Timing) -> DeviceClock {
        DeviceClock::new(timing, Instant::ZERO, Rc::default(), Box::new(std::thread::sleep))
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
        let mut paced = clock(Timing::Model);
        let (due, start) = (Instant::ZERO + Duration::from_ms(3), Wall::now());
        while paced.wait(due) < due {}
        assert!(start.elapsed() >= std::time::Duration::from_millis(3) - std::time::Duration::from_micros(1));
        let mut free = clock(Timing::None);
        let far = Instant::ZERO + Duration::from_ms(1_000_000);
        assert_eq!((free.wait(far), free.now()), (far, far));
    }
}
