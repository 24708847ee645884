//! Log of a served device while it runs: events of levels, a line each, on standard error.

use crate::failure::Failure;
use crate::output;
use std::fmt::{self, Write as _};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry};

/// The variable that chooses levels, in the form of `tracing-subscriber`: `info`, `tidewater_serve=trace`, `off`.
const VARIABLE: &str = "RUST_LOG";

/// Shows events from here on: notes and worse, with `verbose` details (1) or everything (2); where the variable is set,
/// what it asks for.
///
/// # Errors
/// A value of the variable that asks for nothing known.
pub fn begin(verbose: u8) -> Result<(), Failure> {
    let asked = std::env::var(VARIABLE).unwrap_or_default();
    let levels = match (asked.trim(), verbose) {
        ("", 0) => "tidewater=info,tidewater_serve=info",
        ("", 1) => "tidewater=debug,tidewater_serve=debug",
        ("", _) => "tidewater=trace,tidewater_serve=trace",
        (asked, _) => asked,
    };
    let filter = EnvFilter::try_new(levels).map_err(|error| {
        Failure::usage(format_args!("{VARIABLE}={levels}: {error}"))
            .help("give a level: error, warn, info, debug, trace or off; or TARGET=LEVEL, separated by commas")
    })?;
    let lines = Lines { start: (verbose > 0 || !asked.is_empty()).then(Instant::now) };
    // A second device of this process, as tests have it, goes on with the first one's.
    let _ = Registry::default().with(lines.with_filter(filter)).try_init();
    Ok(())
}

/// Prints events.
struct Lines {
    /// The begin of times in front of lines; `None`: there are none.
    start: Option<Instant>,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = String::new();
        if let Some(start) = self.start {
            let _ = write!(line, "[{:11.6}] ", start.elapsed().as_secs_f64());
        }
        line += match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "note: ",
            Level::DEBUG => "debug: ",
            Level::TRACE => "trace: ",
        };
        event.record(&mut Text(&mut line));
        // What hosts and peers say is in some: it makes no second line, and moves no cursor.
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        output::tell(&(line + "\n"));
    }
}

/// The message of an event, and its other fields behind it.
struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value}"),
            name => write!(self.0, " {name}={value}"),
        };
    }
}
