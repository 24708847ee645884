//! `tidewater replay`, and one run of it, which `compare` uses too.

use crate::args;
use crate::drive::{self, Drive};
use crate::failure::{Failure, Status};
use crate::interrupt::{self, Running};
use crate::load::{self, Origin};
use crate::output::{self, Delivery, Target, Writer, distinct};
use crate::progress::Bar;
use crate::trace;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use tidewater_base::units;
use tidewater_core::Options;
use tidewater_report::{Record, page, summary};
use tidewater_sim::run::{self, RunError, RunOptions};

/// `tidewater replay`.
///
/// # Errors
/// What cannot be replayed, a run that failed or was interrupted, results that cannot be written.
pub fn command(replay: &args::Replay) -> Result<(), Failure> {
    let json = Target::maybe(replay.json.as_ref())?;
    let report = Target::maybe(replay.report.as_ref())?;
    let requests = Target::maybe(replay.requests.as_ref())?;
    let targets = [json.as_ref(), report.as_ref(), requests.as_ref()];
    for file in load::input_files(&replay.load) {
        distinct(&targets, Some(file))?;
    }
    distinct(&targets, Some(&replay.drive.profile))?;
    let drive = prepare(&replay.drive)?;
    let origin = Origin::find(&replay.load)?;
    let lines = requests.as_ref().map(Shared::open).transpose()?;

    let run = One { origin: &origin, load: &replay.load, drive: &drive, given: &replay.drive };
    let record = run.run("replay", lines.as_ref())?;

    let of = |what: &str| format!("{what:<20} ");
    let mut files: Vec<Delivery<'_>> = Vec::new();
    if let Some(target) = &json {
        files.push((of("record"), target, Box::new(|| target.write(&record.to_json()))));
    }
    if let Some(target) = &report {
        files.push((of("report"), target, Box::new(|| target.write(&page(&record)))));
    }
    if let (Some(target), Some(lines)) = (&requests, lines) {
        files.push((of("requests"), target, Box::new(|| lines.finish())));
    }
    output::deliver(&summary(&record), files)?;
    if record.partial { Err(interrupted(&record)) } else { Ok(()) }
}

/// What is said after a run that Ctrl-C ended.
pub fn interrupted(record: &Record) -> Failure {
    Failure {
        message: format!("interrupted: the results cover only {}", units::plural(record.requests, "request")),
        help: None,
        status: Status::Interrupted,
    }
}

/// The drive that the command line asks for.
///
/// # Errors
/// As [`drive::settings`] and [`drive::prepare`].
pub fn prepare(given: &args::Drive) -> Result<Drive, Failure> {
    drive::prepare(&given.profile, &drive::settings(&given.set, given.capacity.as_ref())?)
}

/// One run.
pub struct One<'a> {
    /// The load.
    pub origin: &'a Origin,
    /// The options of the load.
    pub load: &'a args::Load,
    /// The drive.
    pub drive: &'a Drive,
    /// The options of the drive.
    pub given: &'a args::Drive,
}

impl One<'_> {
    /// Runs it, under a progress bar that begins with `what`.
    ///
    /// # Errors
    /// When the load cannot be opened or served.
    pub fn run(&self, what: &str, lines: Option<&Shared>) -> Result<Record, Failure> {
        let seed = self.given.seed;
        // A long trace is read once before it is replayed.
        let bar = Bar::working(what, "reading the load");
        let load = self.origin.open(self.load, &self.drive.profile, seed)?;
        bar.preparing();
        // What comes before the drive is ready may be broken off at any time: there is no result yet.
        let running = Arc::new(Mutex::new(None));
        let ready = {
            let (running, served) = (Arc::clone(&running), bar.served());
            move || {
                // Nothing that holds the lock can fail.
                *running.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(Running::begin());
                served();
            }
        };
        let defaults = RunOptions::default();
        let options = RunOptions {
            device: Options { seed, precondition: self.given.precondition, ..defaults.device },
            pacing: load.pacing,
            speedup: self.load.speedup.unwrap_or(1.0),
            warmup_requests: self.load.warm_up,
            runtime: load.runtime,
            power_cut: self.load.power_cut,
            wrap: self.load.wrap,
            record_requests: lines.map(|lines| Box::new(lines.clone()) as Box<dyn Write + Send>),
            cancelled: interrupt::flag(),
            progress: Some(bar.listener()),
            ready: Some(Box::new(ready)),
            workload: load.described,
            changed: self.drive.changed.clone(),
            ..defaults
        };
        let outcome = run::run(&self.drive.profile, load.source, options);
        drop(bar);
        drop(running);
        let mut record = outcome.map_err(|error| refusal(&error, lines, self.load))?.record;
        // Of a drive from a file, the file is what makes the run again.
        record.profile.name.clone_from(&self.drive.name);
        record.profile.description.clone_from(&self.drive.about);
        record.command_line = Some(command_line(std::env::args_os().skip(1)));
        record.warnings.extend(load.warnings);
        Ok(record)
    }
}

/// Why there was no run, and what to do about it.
fn refusal(error: &RunError, lines: Option<&Shared>, load: &args::Load) -> Failure {
    match error {
        RunError::Source(error) => trace::refusal(error),
        RunError::Output(error) => match lines {
            Some(lines) => lines.target.unwritten(error),
            None => Failure::write("the requests", error),
        },
        RunError::Stalled(state) => Failure::run(
            "internal error in Tidewater: the drive stopped with requests outstanding",
        )
        .help(format_args!("please report it with the command line and this: {}", state.trim().replace('\n', "; "))),
        RunError::OutOfRange { .. } if load.origin.trace.iter().any(|trace| trace.as_os_str() == "-") => {
            let message = Failure::refused(error).message;
            Failure::usage(message).help(
                "store the trace in a file first: a pipe is read once, which does not tell how large each of its units \
                 is; or use --wrap",
            )
        }
        RunError::OutOfRange { .. } if load.origin.job.is_some() => {
            let message = Failure::refused(error).message;
            Failure::usage(message)
                .help("give the job a smaller size=, or the drive a larger one; --wrap brings addresses back into it")
        }
        RunError::NoCapacity => Failure::usage(
            "the size of the drive is unknown: the load is read once, as a stream, so its highest address is not known \
             in advance",
        )
        .help("give the drive a size, as in --capacity 64GiB, or store the trace in a file first"),
        RunError::NoRequests { warmup: 0 } if load.reading.slice.is_some() => {
            trace::empty_slice(if load.origin.job.is_some() { "the job's number_ios" } else { trace::COUNTS })
        }
        RunError::NoRequests { warmup: 1.. } => Failure::usage(error).help("give a smaller --warm-up"),
        _ => Failure::refused(error),
    }
}

/// The lines of requests: the run writes them, we complete the file.
#[derive(Clone)]
pub struct Shared {
    target: Target,
    writer: Arc<Mutex<Option<Writer>>>,
}

impl Shared {
    fn open(target: &Target) -> Result<Shared, Failure> {
        Ok(Shared { target: target.clone(), writer: Arc::new(Mutex::new(Some(target.open()?))) })
    }

    fn finish(self) -> Result<(), Failure> {
        let writer = self.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        writer.map_or(Ok(()), Writer::finish)
    }

    fn with(&self, write: impl FnOnce(&mut Writer) -> io::Result<usize>) -> io::Result<usize> {
        let mut writer = self.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        writer.as_mut().map_or(Ok(0), write)
    }
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|writer| writer.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(|writer| writer.flush().map(|()| 0)).map(drop)
    }
}

/// The command line as a shell takes it, so that it can be copied from a report.
pub fn command_line(arguments: impl Iterator<Item = std::ffi::OsString>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:%+@~".contains(c);
    arguments.fold("tidewater".to_owned(), |line, argument| {
        let argument = argument.to_string_lossy();
        if !argument.is_empty() && argument.chars().all(plain) && !argument.starts_with('~') {
            format!("{line} {argument}")
        } else {
            format!("{line} '{}'", argument.replace('\'', "'\\''"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_copied_into_a_shell() {
        let line = |words: &[&str]| command_line(words.iter().map(std::ffi::OsString::from));
        assert_eq!(line(&["replay", "--trace", "my trace.csv"]), "tidewater replay --trace 'my trace.csv'");
        assert_eq!(line(&["--job", "rw=read,bs=4k"]), "tidewater --job rw=read,bs=4k");
        assert_eq!(line(&["it's", "", "~"]), "tidewater 'it'\\''s' '' '~'");
    }
}
