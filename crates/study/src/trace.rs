//! Traces by name, and how they are read.

use crate::drive::meant;
use crate::{Failure, Range, Subject};
use std::path::Path;
use std::sync::Arc;
use tidewater_sim::trace::{Columns, Format, Input, Options, samples};
use tidewater_sim::workload::{Slice, SourceError, Workload};

/// The command that counts a trace's requests.
pub const COUNTS: &str = "`tidewater trace info`";

/// How to read a trace, and which part of it.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Its format; `None`: by its content.
    pub format: Option<Format>,
    /// The columns of a text in no known format.
    pub columns: Option<Columns>,
    /// The part of it.
    pub slice: Option<Range>,
    /// Malformed lines are skipped and counted.
    pub skip_bad: bool,
    /// The device or volume of it.
    pub device: Option<String>,
    /// Ranges that it never touches are left out.
    pub compact: bool,
}

/// The trace of that name: `sample` is the bundled one, `-` standard input; then a file; then any other bundled sample.
///
/// # Errors
/// When there is nothing of that name.
pub fn find(given: &Path) -> Result<Input, Failure> {
    let name = given.display().to_string();
    if name == "-" {
        return Ok(Input::Stdin);
    }
    let bundled = |sample: &str| samples::find(sample).map(|bytes| Input::from_bytes(sample, bytes));
    if name == "sample" {
        return bundled(samples::DEMO).ok_or_else(|| Failure::run("the bundled sample is missing from this build"));
    }
    if !given.exists()
        && let Some(input) = bundled(&name)
    {
        return Ok(input);
    }
    if !given.exists() {
        let failure = Failure::usage(format_args!("{name}: no such file, and no bundled sample of that name"))
            .of(Subject::Trace { line: None });
        let names = samples::FORMATS.iter().map(|(name, ..)| *name).chain(["sample", samples::DEMO]);
        return Err(match meant(&name, names).filter(|_| given.components().count() == 1) {
            Some(meant) => failure.help(format_args!("did you mean the bundled `{meant}`?")),
            None => failure.help("give the path of a trace, `-` for standard input, or `sample` for the bundled one"),
        });
    }
    Ok(Input::Path(given.to_owned()))
}

/// How the readers of traces take it.
pub fn options(reading: &Reading, scan: bool) -> Options {
    Options {
        format: reading.format,
        columns: reading.columns.clone().map(Arc::new),
        device: reading.device.clone(),
        skip_bad: reading.skip_bad,
        compact: reading.compact,
        scan,
    }
}

/// The failure for a source's error, with its fix.
pub fn refusal(error: &SourceError) -> Failure {
    let line = match error {
        SourceError::Malformed { line, .. } => Some(*line),
        _ => None,
    };
    let failure = Failure::refused(error).of(Subject::Trace { line });
    match error {
        SourceError::Malformed { .. } | SourceError::MalformedRecord { .. } => {
            failure.help("--skip-bad counts and skips such lines; --format NAME reads the trace in another format")
        }
        SourceError::CutShort { lines: 1.., .. } => failure.help("--skip-bad uses the readable part"),
        SourceError::Empty { skipped: 1.., .. } => failure.help("if it is in another format, name it with --format"),
        _ => failure,
    }
}

/// The part of a load that `--slice` asks for.
pub fn sliced(workload: Workload, reading: &Reading) -> Workload {
    match &reading.slice {
        Some(range) => Workload::Slice(Box::new(Slice::new(workload, range.start..range.end))),
        None => workload,
    }
}

/// A slice that begins after the last request.
pub fn empty_slice(of: &str) -> Failure {
    Failure::usage("the slice is empty")
        .help(format_args!("it starts after the last request; {of} prints the number of requests"))
}
