//! The page of moments: a served device, or a run under the virtual clock.

use crate::About;
use crate::events::{Event, between};
use crate::pages::{COMMON, File, Pages, Shown, serve_pages};
use crate::samples::unix_ms;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;
use std::io;
use std::net::TcpListener;
use tidewater_gauges::{Drive, KINDS, LEVELS, Moment, Spread};

/// Moments that are kept: ten minutes.
const KEPT: usize = 2_400;

/// Files of the page, besides those common to all pages.
pub(crate) const FILES: [File; 4] = [
    ("/", "text/html; charset=utf-8", include_str!("../assets/live.html")),
    ("/live.js", "text/javascript; charset=utf-8", include_str!("../assets/live.js")),
    ("/uplot.css", "text/css; charset=utf-8", include_str!("../assets/uplot.css")),
    ("/uplot.js", "text/javascript; charset=utf-8", include_str!("../assets/uplot.js")),
];

/// Serves the page from now on. `names`: those that requests may name besides addresses and localhost. `take` gives a
/// moment, and may wait for it; `None`: what is watched does not answer.
///
/// # Errors
/// When the system has no room for two threads.
pub fn serve(
    listener: TcpListener,
    names: Vec<String>,
    about: &About,
    mut take: impl FnMut() -> Option<Moment> + Send + 'static,
) -> io::Result<Shown> {
    let files = FILES.into_iter().chain(COMMON).collect();
    let pages = Pages { files, about: serde_json::to_string(about)?, names, kept: KEPT };
    let mut before: Option<Moment> = None;
    let next = move |anew| {
        if anew {
            before = None;
        }
        let now = take();
        let text = text(before.as_ref(), now.as_ref());
        before = now.or(before.take());
        text
    };
    serve_pages(listener, pages, Box::new(next))
}

/// A moment as it is sent to viewers.
#[derive(Serialize)]
struct Text<'a> {
    /// Milliseconds since 1970.
    at_ms: u64,
    /// Seconds since the moment before, by the clock that rates go by; 0: there was none.
    dt: f64,
    /// The watched system does not answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    silent: bool,
    #[serde(flatten)]
    moment: Option<&'a Moment>,
    /// Latencies of what ended since the moment before, by kind.
    spreads: [Option<Spread>; KINDS.len()],
    /// Waits for levels of logs that ended since the moment before, in the order of [`LEVELS`].
    waits: [Option<Spread>; LEVELS.len()],
    /// Four bytes a die, in base64: of 255 parts of the time, those on reads, programs, erases, suspensions.
    dies: String,
    events: Vec<Event>,
}

/// The text of a moment behind another.
fn text(before: Option<&Moment>, now: Option<&Moment>) -> String {
    let dt = match (before, now) {
        (Some(before), Some(now)) => (now.time_s - before.time_s).max(0.0),
        _ => 0.0,
    };
    let spread = |kind| now.and_then(|now| now.latencies.since(&before?.latencies, kind));
    let waited = |level| now.and_then(|now| now.waits.since(&before?.waits, level));
    let drives = before.and_then(|moment| moment.drive.as_ref()).zip(now.and_then(|moment| moment.drive.as_ref()));
    let text = Text {
        at_ms: unix_ms(),
        dt,
        silent: now.is_none(),
        moment: now,
        spreads: std::array::from_fn(spread),
        waits: std::array::from_fn(waited),
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
}
