//! How far a run has got, on a terminal.

use crate::interrupt::Running;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidewater_base::units;
use tidewater_report::{Record, record};
use tidewater_sim::run::Progress;
use tidewater_study::{self as study, Follow};

/// Steps of the bar.
const STEPS: u64 = 10_000;

/// The bar of a load whose length is known.
const SHARE: &str = "{prefix} [{bar:28}] {percent:>3} %  {msg}{left}";
/// An estimate from less than this is none.
const LEFT_AFTER: Duration = Duration::from_millis(500);
/// Template of a bar while no progress is reported.
const WORKING: &str = "{prefix} {spinner} {elapsed}  {msg}";
/// Message before a drive serves.
const PREPARING: &str = "preparing the drive";
/// Template of a bar whose length is not known.
const ENDLESS: &str = "{prefix} {spinner} {elapsed}  {msg}";

/// A bar on standard error; nothing where that is no terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar that begins with `what`, while a drive is made.
    pub fn new(what: &str) -> Bar {
        Bar::working(what, PREPARING)
    }

    /// A bar that begins with `what`, while something is done that does not tell how far it is.
    pub fn working(what: &str, doing: &'static str) -> Bar {
        // Hidden until it has its style, because the default one would flash up.
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        // The templates are constants that a test tries.
        if let Ok(style) = ProgressStyle::with_template(WORKING) {
            bar.set_style(style);
        }
        bar.set_message(doing);
        bar.set_prefix(crate::failure::printable(what));
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        bar.enable_steady_tick(std::time::Duration::from_millis(200));
        Bar(bar)
    }

    /// The drive is made now.
    pub fn preparing(&self) {
        self.0.set_message(PREPARING);
    }

    /// Callback for the moment that the drive is there and begins to serve.
    pub fn served(&self) -> impl FnOnce() + Send + use<> {
        let bar = self.0.clone();
        move || {
            bar.disable_steady_tick();
            bar.set_message("");
            if let Ok(style) = ProgressStyle::with_template(SHARE) {
                bar.set_style(style.progress_chars("=> ").with_key("left", left));
            }
            bar.reset();
        }
    }

    /// Callback that takes the share that is done.
    pub fn share(&self) -> impl FnMut(f64) + use<> {
        let bar = self.0.clone();
        let mut begun = Some(self.served());
        move |share| {
            if let Some(begin) = begun.take() {
                begin();
            }
            bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64);
        }
    }

    /// Callback that takes each report of progress.
    pub fn listener(&self) -> Box<dyn FnMut(&Progress) + Send> {
        let bar = self.0.clone();
        let mut endless = false;
        Box::new(move |progress| {
            match progress.share {
                Some(share) => bar.set_position((share.clamp(0.0, 1.0) * STEPS as f64) as u64),
                None if !endless => {
                    endless = true;
                    if let Ok(style) = ProgressStyle::with_template(ENDLESS) {
                        bar.set_style(style);
                    }
                }
                None => bar.tick(),
            }
            bar.set_message(format!(
                "{} requests, {}/s",
                units::count(progress.requests as f64),
                units::count(record::ratio(progress.requests as f64, bar.elapsed().as_secs_f64()))
            ));
        })
    }
}

/// How far many runs have got together: a bar on a terminal; elsewhere a line now and then, so that a log shows that it
/// goes on.
pub struct Whole {
    bar: ProgressBar,
    what: &'static str,
    said: Mutex<Said>,
}

struct Said {
    begun: Instant,
    last: Instant,
    shares: Vec<f64>,
    ended: usize,
    failed: usize,
    running: Option<Running>,
}

/// Between two lines where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(30);

impl Whole {
    /// A bar that begins with `prefix`, of so many: `what` is what each is called.
    pub fn new(prefix: &str, count: usize, what: &'static str) -> Whole {
        let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(SHARE) {
            bar.set_style(style.progress_chars("=> ").with_key("left", left));
        }
        bar.set_prefix(prefix.to_owned());
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let now = Instant::now();
        let said = Said { begun: now, last: now, shares: vec![0.0; count], ended: 0, failed: 0, running: None };
        let whole = Whole { bar, what, said: Mutex::new(said) };
        whole.bar.set_message(whole.state(&whole.lock()));
        whole
    }

    /// From now on there is something to keep: the first Ctrl-C ends it early, and not at once.
    pub fn keep(&self) {
        self.lock().running.get_or_insert_with(Running::begin);
    }

    fn tell(&self, index: usize, share: f64) {
        let mut said = self.lock();
        said.shares[index] = share.clamp(0.0, 1.0);
        let share = record::ratio(said.shares.iter().sum(), said.shares.len() as f64);
        self.bar.set_position((share * STEPS as f64) as u64);
        if self.bar.is_hidden() && said.last.elapsed() >= LINE_EVERY {
            said.last = Instant::now();
            let left = said.begun.elapsed().mul_f64(record::ratio(1.0 - share, share).clamp(0.0, 1e6));
            let text = format!("{}, {:.0} %, {:#} left\n", self.state(&said), share * 100.0, HumanDuration(left));
            crate::output::tell(&text);
        }
    }

    /// One of them has ended.
    pub fn one_ended(&self, index: usize, failed: bool) {
        self.tell(index, 1.0);
        let mut said = self.lock();
        said.ended += 1;
        said.failed += usize::from(failed);
        self.bar.set_message(self.state(&said));
    }

    /// Does what writes to the terminal while the bar is away.
    pub fn suspend(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }

    /// The bar goes, and Ctrl-C ends the program at once again.
    pub fn end(&self) {
        self.lock().running = None;
        self.bar.finish_and_clear();
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        // Nothing that holds the lock can fail.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self, said: &Said) -> String {
        let failed = if said.failed > 0 { format!(", {} failed", said.failed) } else { String::new() };
        format!("{} of {}{failed}", said.ended, units::plural(said.shares.len() as u64, self.what))
    }
}

impl Follow for Whole {
    fn begun(&self) {
        self.keep();
    }

    fn share(&self, index: usize, share: f64) {
        self.tell(index, share);
    }

    fn found(&self, index: usize) {
        self.one_ended(index, false);
    }

    fn ended(&self, index: usize, outcome: &Result<Record, study::Failure>) {
        self.one_ended(index, outcome.is_err());
    }
}

/// How long it will take from here, as soon as anything tells that.
fn left(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 && state.elapsed() >= LEFT_AFTER {
        // A bar that cannot be drawn is drawn without it.
        let _ = write!(out, "  {:#} left", HumanDuration(state.eta()));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_takes_every_report() {
        drop(Bar::working("info", "reading the trace"));
        let bar = Bar::new("replay");
        bar.preparing();
        let mut share = bar.share();
        for part in [0.0, 0.5, 2.0, f64::NAN] {
            share(part);
        }
        bar.served()();
        let mut tell = bar.listener();
        for share in [Some(0.0), Some(0.5), Some(2.0), None] {
            tell(&Progress {
                requests: 5,
                expected: None,
                share,
                simulated: tidewater_base::Duration::ZERO,
                requests_per_second: 1e6,
            });
        }
        assert!(SHARE.contains("{left}") && !SHARE.contains("{eta}"), "no estimate before there is one");
        assert!(ProgressStyle::with_template(WORKING).is_ok());
        assert!(ProgressStyle::with_template(SHARE).is_ok());
        assert!(ProgressStyle::with_template(ENDLESS).is_ok());
    }
}
