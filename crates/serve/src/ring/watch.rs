//! When the engine looks at mapped rings: at once when a client rings, and else after a pause that what it finds makes
//! shorter or longer.

use std::time::{Duration as WallDuration, Instant as Wall};

/// Pause between two looks while a client waits for what is in a ring.
const LOOK_MIN: WallDuration = WallDuration::from_micros(100);
/// Pause while much is found and no client waits: clients need the processor, and ring when theirs fills up.
const LOOK: WallDuration = WallDuration::from_millis(2);
/// So many bytes in one look are much: they are taken while they are still in the processor's caches. Of less than half
/// of them, finding takes more time than storing.
const MUCH: u64 = 256 << 10;
/// Pause between two looks, in the end, while nothing is found, or little.
const LOOK_MAX: WallDuration = WallDuration::from_millis(20);

/// When rings are looked at.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) next: Wall,
    pause: WallDuration,
    /// The last look has left something in a ring that could be taken.
    pub(crate) more: bool,
    /// Bytes that were found since there was a pause.
    pub(crate) bytes: u64,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { next: Wall::now(), pause: LOOK_MIN, more: false, bytes: 0 }
    }
}

impl Watch {
    /// The next look comes after a pause that what was found makes.
    pub(crate) fn found(&mut self, any: bool, waited_for: bool) {
        if std::mem::take(&mut self.more) {
            self.next = Wall::now();
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        self.pause = match any {
            true if waited_for => LOOK_MIN,
            true if bytes >= MUCH => (self.pause / 2).max(LOOK),
            true if bytes < MUCH / 2 => (self.pause * 2).clamp(LOOK, LOOK_MAX),
            true => self.pause.max(LOOK),
            false => (self.pause * 2).min(LOOK_MAX),
        };
        self.next = Wall::now() + self.pause;
    }

    /// The next look comes in the next turn.
    pub(crate) fn at_once(&mut self) {
        (self.next, self.pause) = (Wall::now(), LOOK_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_between_looks_follows_what_they_find() {
        let mut watch = Watch::default();
        let mut after = |bytes: u64, more: bool, waited_for: bool| {
            (watch.bytes, watch.more) = (watch.bytes + bytes, more);
            watch.found(bytes > 0, waited_for);
            watch.pause
        };
        assert_eq!((after(10, false, false), after(10, false, false)), (LOOK, LOOK * 2));
        assert_eq!((0..4).map(|_| after(10, false, false)).last(), Some(LOOK_MAX));
        // Much, although each piece of it is little: the intake queue takes no more at a time.
        assert_eq!(after(MUCH - 10, true, false), LOOK_MAX, "no pause yet");
        assert_eq!(after(10, false, false), LOOK_MAX / 2);
        assert_eq!(after(MUCH - 10, false, false), LOOK_MAX / 2, "neither");
        assert_eq!((0..4).map(|_| after(MUCH, false, false)).last(), Some(LOOK));
        assert_eq!(after(10, false, true), LOOK_MIN);
        assert_eq!(after(0, false, true), LOOK_MIN * 2);
        assert_eq!((0..10).map(|_| after(0, false, false)).last(), Some(LOOK_MAX));
        assert_eq!(after(10, false, false), LOOK_MAX);
    }
}
