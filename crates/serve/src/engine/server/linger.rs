//! How long the device's thread polls before it sleeps.

use std::time::Duration;

/// How long the thread keeps polling after the last event, before it sleeps: a host that has just been answered often
/// asks again, and a command that meets a sleeping thread takes longer.
///
/// A host that comes again within [`Linger::MAX`] is polled for twice as long as it last took. That is tried once:
/// where no longer polling meets the host, it may be waiting for this very processor, and the thread sleeps at once
/// from then on, with a new trial from time to time. Polling costs no more for hosts with longer gaps, and nothing on
/// an idle device.
#[derive(Debug)]
pub(super) struct Linger {
    time: Duration,
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
    const SHORT: Duration = Duration::from_micros(5);
    pub(super) const MIN: Duration = Duration::from_micros(50);
    const MAX: Duration = Duration::from_micros(200);
    /// A host that comes so soon after the thread has gone to sleep may have waited for that.
    const BEHIND: Duration = Duration::from_micros(100);
    const MISSES_MAX: u32 = 8;
    const PAUSE_MIN: u32 = 16;
    const PAUSE_MAX: u32 = 256;

    pub(super) fn new() -> Linger {
        Linger { time: Linger::MIN, on_trial: false, misses: 0, pause: 0, next_pause: Linger::PAUSE_MIN }
    }

    /// How long to poll.
    pub(super) fn time(&self) -> Duration {
        self.time
    }

    /// Something came so long after the last event; `slept`: the thread slept meanwhile.
    pub(super) fn came(&mut self, gap: Duration, slept: bool) {
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
