//! How far a run has got, on a terminal.

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::fmt::Write;
use std::time::Duration;
use tidewater_base::units;
use tidewater_report::record;
use tidewater_sim::run::Progress;

/// Steps of the bar.
const STEPS: u64 = 10_000;

/// The bar of a load whose length is known.
const SHARE: &str = "{prefix} [{bar:28}] {percent:>3} %  {msg}{left}";
/// An estimate from less than this is none.
const LEFT_AFTER: Duration = Duration::from_millis(500);
/// What stands for it while nothing tells how far it is: what is done first.
const WORKING: &str = "{prefix} {spinner} {elapsed}  {msg}";
/// What is done before a drive serves.
const PREPARING: &str = "preparing the drive";
/// What stands for a bar where the length is not known.
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

    /// What is to be called when the drive is there and begins to serve.
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

    /// What is to be called with the share that is done.
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

    /// What is to be called with each report of progress.
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
