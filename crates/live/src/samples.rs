//! Moments, taken from what is watched while there are viewers, and kept for later ones.

use crate::events::{Event, between};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidewater_gauges::{Drive, KINDS, Moment, Spread};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Between two moments.
pub(crate) const EVERY: Duration = Duration::from_millis(if cfg!(test) { 25 } else { 250 });
/// Moments that are kept: ten minutes.
const KEPT: usize = 2_400;
/// Moments that a viewer may be behind: a quarter of a minute.
const BEHIND_MAX: usize = 64;
/// Viewers at once.
pub(crate) const VIEWERS_MAX: usize = 32;

/// What a viewer gets: the number of the moment, and its text.
pub(crate) type Sample = Arc<(u64, String)>;

/// Gives a moment, or none while what is watched does not answer.
pub(crate) type Take = Box<dyn FnMut() -> Option<Moment> + Send>;

/// Viewers, and what they have seen.
#[derive(Default)]
pub(crate) struct Samples {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    viewers: Vec<(Sender<Sample>, Arc<Notify>)>,
    kept: VecDeque<Sample>,
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

/// What becomes of a moment on its way to a viewer.
#[derive(Serialize)]
struct Text<'a> {
    /// Milliseconds since 1970.
    at_ms: u64,
    /// Seconds since the moment before, by the clock that rates go by; 0: there was none.
    dt: f64,
    /// What is watched does not answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    silent: bool,
    #[serde(flatten)]
    moment: Option<&'a Moment>,
    /// Latencies of what ended since the moment before, by kind.
    spreads: [Option<Spread>; KINDS.len()],
    /// Four bytes a die, in base64: of 255 parts of the time, those on reads, programs, erases, suspensions.
    dies: String,
    events: Vec<Event>,
}

impl Samples {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new viewer, who has seen all up to `seen`: what it has missed, and what comes. `closed` is notified when it is
    /// too far behind. `None`: there are too many.
    pub(crate) fn join(&self, seen: Option<u64>, closed: Arc<Notify>) -> Option<(Vec<Sample>, Receiver<Sample>)> {
        let mut state = self.state();
        if state.viewers() >= VIEWERS_MAX {
            return None;
        }
        let missed = state.kept.iter().filter(|sample| seen.is_none_or(|seen| sample.0 > seen)).cloned().collect();
        let (sender, receiver) = channel(BEHIND_MAX);
        state.viewers.push((sender, closed));
        state.seen = Some(Instant::now());
        self.wake.notify_one();
        Some((missed, receiver))
    }

    /// Viewers that are there.
    pub(crate) fn viewers(&self) -> usize {
        self.state().viewers()
    }

    /// Takes moments for ever, while there are viewers.
    pub(crate) fn run(&self, mut take: Take) {
        // Numbers of another start are less: a viewer that comes again has seen none of these.
        let mut number = unix_ms();
        let mut before: Option<Moment> = None;
        loop {
            let begun = Instant::now();
            let patience = EVERY * KEPT as u32;
            let mut state = self.state();
            if state.viewers() > 0 {
                state.seen = Some(begun);
            }
            while state.seen.is_none_or(|seen| seen.elapsed() > patience) {
                // What was kept is too old for the next viewer.
                state.kept.clear();
                before = None;
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            let now = take();
            number = (number + 1).max(unix_ms());
            let sample = Arc::new((number, text(before.as_ref(), now.as_ref())));
            self.hand_out(&sample);
            before = now.or(before);
            std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
        }
    }

    fn hand_out(&self, sample: &Sample) {
        let mut state = self.state();
        if state.kept.len() == KEPT {
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

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The text of a moment behind another.
fn text(before: Option<&Moment>, now: Option<&Moment>) -> String {
    let dt = match (before, now) {
        (Some(before), Some(now)) => (now.time_s - before.time_s).max(0.0),
        _ => 0.0,
    };
    let spread = |kind| now.and_then(|now| now.latencies.since(&before?.latencies, kind));
    let drives = before.and_then(|moment| moment.drive.as_ref()).zip(now.and_then(|moment| moment.drive.as_ref()));
    let text = Text {
        at_ms: unix_ms(),
        dt,
        silent: now.is_none(),
        moment: now,
        spreads: std::array::from_fn(spread),
        dies: drives.map(|(before, now)| BASE64_STANDARD.encode(shares(before, now, dt))).unwrap_or_default(),
        events: match (before, now) {
            (Some(before), Some(now)) => between(before, now),
            _ => Vec::new(),
        },
    };
    serde_json::to_string(&text).unwrap_or_else(|_| "{}".to_owned())
}

/// Of 255 parts of the time between two moments, what each die has spent on what.
fn shares(before: &Drive, now: &Drive, seconds: f64) -> Vec<u8> {
    let share = |then: u64, now: u64| (now.saturating_sub(then) as f64 / 1e9 / seconds * 255.0).round() as u8;
    let of_die = |(then, now): (&[u64; 4], &[u64; 4])| std::array::from_fn::<u8, 4, _>(|at| share(then[at], now[at]));
    if seconds > 0.0 { before.dies.iter().zip(&now.dies).flat_map(of_die).collect() } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(time_s: f64, reads: u64) -> Moment {
        let dies = vec![[0, (time_s * 0.5e9) as u64, 0, 0], [0; 4]];
        Moment {
            time_s,
            commands: [reads, 0, 0, 0],
            drive: Some(Drive { dies, ..Drive::default() }),
            ..Moment::default()
        }
    }

    #[test]
    fn a_text_has_what_came_between_two_moments() {
        let value = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
        let first = value(text(None, Some(&moment(1.0, 5))));
        assert_eq!((&first["dt"], &first["dies"]), (&0.0.into(), &"".into()));
        let second = value(text(Some(&moment(1.0, 5)), Some(&moment(1.5, 9))));
        assert_eq!((&second["dt"], &second["commands"][0]), (&0.5.into(), &9.into()));
        assert_eq!(BASE64_STANDARD.decode(second["dies"].as_str().unwrap()).unwrap(), [0, 128, 0, 0, 0, 0, 0, 0]);
        let silent = value(text(Some(&moment(1.0, 5)), None));
        assert_eq!((&silent["silent"], &silent["commands"]), (&true.into(), &serde_json::Value::Null));
    }

    #[test]
    fn who_comes_again_gets_what_it_has_missed_and_who_stalls_is_dropped() {
        let samples = Samples::default();
        let closed = Arc::new(Notify::new());
        let (missed, mut stalls) = samples.join(None, Arc::clone(&closed)).unwrap();
        assert!(missed.is_empty());
        let many = KEPT as u64 + 100;
        (1..=many).for_each(|number| samples.hand_out(&Arc::new((number, String::new()))));
        assert_eq!(samples.state().kept.len(), KEPT, "what is kept is bounded");
        assert!(samples.state().viewers.is_empty(), "it was dropped");
        let got = std::iter::from_fn(|| stalls.try_recv().ok()).count();
        assert_eq!(got, BEHIND_MAX);
        let (missed, _) = samples.join(Some(many - 3), closed).unwrap();
        assert_eq!(missed.iter().map(|sample| sample.0).collect::<Vec<_>>(), [many - 2, many - 1, many]);
    }

    #[test]
    fn viewers_are_bounded() {
        let samples = Samples::default();
        let all: Vec<_> = (0..VIEWERS_MAX).map(|_| samples.join(None, Arc::default()).expect("room")).collect();
        assert!(samples.join(None, Arc::default()).is_none());
        drop(all);
        assert!(samples.join(None, Arc::default()).is_some());
    }
}
