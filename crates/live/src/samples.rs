//! Texts, taken from what is watched while there are viewers, and kept for later ones.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Between two texts.
pub(crate) const EVERY: Duration = Duration::from_millis(if cfg!(test) { 25 } else { 250 });
/// Without a viewer, it goes on for so long: ten minutes.
const PATIENCE: Duration = EVERY.saturating_mul(2_400);
/// Texts that a viewer may be behind: a quarter of a minute.
const BEHIND_MAX: usize = 64;
/// Viewers at once.
pub(crate) const VIEWERS_MAX: usize = 32;

/// A text for viewers, with its number.
pub(crate) type Sample = Arc<(u64, String)>;

/// Gives the next text, and may wait for it. True: those before are forgotten.
pub(crate) type Source = Box<dyn FnMut(bool) -> String + Send>;

/// Viewers, and what they have seen.
pub(crate) struct Samples {
    state: Mutex<State>,
    wake: Condvar,
    /// Texts that are kept for those who come later.
    kept: usize,
}

#[derive(Default)]
struct State {
    viewers: Vec<(Sender<Sample>, Arc<Notify>)>,
    kept: VecDeque<Sample>,
    /// Texts so far.
    handed_out: u64,
    /// The last viewer was there then.
    seen: Option<Instant>,
}

impl State {
    /// Viewers that are there; those that have gone are forgotten.
    fn viewers(&mut self) -> usize {
        self.viewers.retain(|(viewer, _)| !viewer.is_closed());
        self.viewers.len()
    }
}

impl Samples {
    /// With room for so many texts, at least one.
    pub(crate) fn new(kept: usize) -> Samples {
        Samples { state: Mutex::default(), wake: Condvar::new(), kept }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new viewer, who has seen all up to `seen`: what it has missed, and what comes. `closed` is notified when it is
    /// too far behind, or the oldest of too many.
    pub(crate) fn join(&self, seen: Option<u64>, closed: Arc<Notify>) -> (Vec<Sample>, Receiver<Sample>) {
        let mut state = self.state();
        if state.viewers() >= VIEWERS_MAX {
            state.viewers.remove(0).1.notify_one();
        }
        let missed = state.kept.iter().filter(|sample| seen.is_none_or(|seen| sample.0 > seen)).cloned().collect();
        let (sender, receiver) = channel(BEHIND_MAX);
        state.viewers.push((sender, closed));
        state.seen = Some(Instant::now());
        self.wake.notify_one();
        (missed, receiver)
    }

    /// Viewers that are there.
    pub(crate) fn viewers(&self) -> usize {
        self.state().viewers()
    }

    /// Waits, while there are viewers, until each has taken a text that was begun after this call, and all before it;
    /// for `limit` at most.
    pub(crate) fn wait_until_taken(&self, limit: Duration) {
        let begun = Instant::now();
        // One may be under way that knows less.
        let last = self.state().handed_out + 2;
        loop {
            let mut state = self.state();
            let is_taken = |(viewer, _): &(Sender<Sample>, _)| viewer.capacity() == BEHIND_MAX;
            let is_all = state.viewers() == 0 || state.handed_out >= last && state.viewers.iter().all(is_taken);
            drop(state);
            if is_all || begun.elapsed() >= limit {
                return;
            }
            std::thread::sleep(EVERY / 10);
        }
    }

    /// Takes texts for ever, while there are viewers.
    pub(crate) fn run(&self, mut next: Source) {
        // Numbers of another start are less: a viewer that comes again has seen none of these.
        let mut number = unix_ms();
        let mut anew = false;
        loop {
            let mut state = self.state();
            if state.viewers() > 0 {
                state.seen = Some(Instant::now());
            }
            while state.seen.is_none_or(|seen| seen.elapsed() > PATIENCE) {
                // What was kept is too old for the next viewer.
                state.kept.clear();
                anew = true;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            // The time without a viewer is no part of an interval.
            let begun = Instant::now();
            let text = next(std::mem::take(&mut anew));
            number = (number + 1).max(unix_ms());
            self.hand_out(&Arc::new((number, text)));
            std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
        }
    }

    fn hand_out(&self, sample: &Sample) {
        let mut state = self.state();
        state.handed_out += 1;
        if state.kept.len() == self.kept {
            state.kept.pop_front();
        }
        state.kept.push_back(Arc::clone(sample));
        state.viewers.retain(|(viewer, closed)| {
            let is_there = viewer.try_send(Arc::clone(sample)).is_ok();
            if !is_there {
                // It reads too slowly: its connection ends, and the browser makes another.
                closed.notify_one();
            }
            is_there
        });
    }
}

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_again_gets_what_it_has_missed_and_who_stalls_is_dropped() {
        const KEPT: usize = 300;
        let samples = Samples::new(KEPT);
        let closed = Arc::new(Notify::new());
        let (missed, mut stalls) = samples.join(None, Arc::clone(&closed));
        assert!(missed.is_empty());
        let many = KEPT as u64 + 100;
        (1..=many).for_each(|number| samples.hand_out(&Arc::new((number, String::new()))));
        assert_eq!(samples.state().kept.len(), KEPT, "what is kept is bounded");
        assert!(samples.state().viewers.is_empty(), "it was dropped");
        let got = std::iter::from_fn(|| stalls.try_recv().ok()).count();
        assert_eq!(got, BEHIND_MAX);
        let (missed, _) = samples.join(Some(many - 3), closed);
        assert_eq!(missed.iter().map(|sample| sample.0).collect::<Vec<_>>(), [many - 2, many - 1, many]);
    }

    #[test]
    fn an_end_waits_for_viewers_that_take_what_comes_and_for_no_others() {
        let samples = Arc::new(Samples::new(1));
        let long = Duration::from_secs(600);
        samples.wait_until_taken(long);
        let (_, mut takes) = samples.join(None, Arc::default());
        let of = Arc::clone(&samples);
        std::thread::spawn(move || of.run(Box::new(|_| String::new())));
        let taken = std::thread::spawn(move || std::iter::from_fn(|| takes.blocking_recv()).take(5).count());
        samples.wait_until_taken(long);
        assert!(samples.state().handed_out >= 2);
        assert_eq!(taken.join().unwrap(), 5);
        let (_, stalls) = samples.join(None, Arc::default());
        let begun = Instant::now();
        samples.wait_until_taken(EVERY * 4);
        assert!(begun.elapsed() >= EVERY * 4, "it stalls, and no longer than the limit is waited");
        drop(stalls);
        samples.wait_until_taken(long);
    }

    #[test]
    fn viewers_are_bounded_and_the_oldest_gives_way() {
        let samples = Samples::new(1);
        let mut all: VecDeque<_> = (0..VIEWERS_MAX).map(|_| samples.join(None, Arc::default()).1).collect();
        let (_, mut newest) = samples.join(None, Arc::default());
        assert_eq!(samples.viewers(), VIEWERS_MAX);
        samples.hand_out(&Arc::new((1, String::new())));
        let mut oldest = all.pop_front().expect("a sample is left");
        assert!(oldest.try_recv().is_err() && oldest.is_closed());
        assert!(newest.try_recv().is_ok() && all.iter_mut().all(|one| one.try_recv().is_ok()));
        drop(all);
        assert_eq!(samples.viewers(), 1);
    }
}
