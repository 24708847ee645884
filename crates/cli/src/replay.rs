//! `tidewater replay`.

use crate::args;
use crate::failure::{Failure, Status};
use crate::interrupt::{self, Running};
use crate::output::{self, Delivery, Target, Writer, distinct};
use crate::page::Page;
use crate::progress::Bar;
use crate::text::{command_line, format_of};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tidewater_base::units;
use tidewater_report::requests::RequestSink;
use tidewater_report::{Record, page, summary};
use tidewater_study::{Listeners, LoadSpec, One, Origin, RunFailure};
use tidewater_tables::{Format, Requests};

/// `tidewater replay`.
///
/// # Errors
/// A load that cannot be replayed, a run that failed or was interrupted, results that cannot be written.
pub fn command(replay: &args::Replay) -> Result<(), Failure> {
    let json = Target::maybe(replay.json.as_ref())?;
    let report = Target::page(replay.report.as_ref())?;
    let requests = Target::maybe(replay.requests.as_ref())?;
    let targets = [json.as_ref(), report.as_ref(), requests.as_ref()];
    let (load, given) = (replay.load_spec(), replay.drive.spec());
    for file in load.input_files() {
        distinct(&targets, Some(file))?;
    }
    distinct(&targets, Some(&replay.drive.profile))?;
    let drive = given.prepare()?;
    let origin = Origin::find(&load)?;
    let lines = requests.as_ref().map(|target| Shared::open(target, replay.requests.as_deref())).transpose()?;

    let live = Page::open(replay.watch.page, &[])?.map(|page| page.of_run(title(&drive.name, &load))).transpose()?;
    let one = One { origin: &origin, load: &load, drive: &drive, given: &given };
    let record = run(&one, lines.as_ref(), live.as_ref())?;
    drop(live);

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

/// Failure of a run that Ctrl-C ended.
pub fn interrupted(record: &Record) -> Failure {
    Failure {
        message: format!("interrupted: the results cover only {}", units::plural(record.requests, "request")),
        help: None,
        status: Status::Interrupted,
    }
}

/// Title of the page.
fn title(drive: &str, load: &LoadSpec) -> String {
    let named = |trace: &Path| trace.display().to_string();
    let traces =
        load.traces.iter().map(|trace| if trace == Path::new("-") { "standard input".into() } else { named(trace) });
    let of = load.job.clone().into_iter().chain(traces).collect::<Vec<_>>().join(", ");
    format!("{drive} under {of}")
}

/// One run, under a progress bar.
///
/// # Errors
/// When the load cannot be opened or served.
fn run(run: &One<'_>, lines: Option<&Shared>, live: Option<&crate::page::Run>) -> Result<Record, Failure> {
    // A long trace is read once before it is replayed.
    let bar = Bar::working("replay", "reading the load");
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
    let outcome = run.run(Listeners {
        opened: Some(Box::new(|| bar.preparing())),
        ready: Some(Box::new(ready)),
        progress: Some(bar.listener()),
        watch: live.map(crate::page::Run::listener),
        cancelled: interrupt::flag(),
        requests: lines.map(Shared::sink).transpose()?,
        ..Listeners::default()
    });
    drop(bar);
    drop(running);
    let mut record = outcome.map_err(|failure| match (failure, lines) {
        (RunFailure::Run(failure), _) => failure.into(),
        (RunFailure::Output(error), Some(lines)) => lines.target.unwritten(&error),
        (RunFailure::Output(error), None) => Failure::write("the requests", &error),
    })?;
    record.command_line = Some(command_line(std::env::args_os().skip(1)));
    Ok(record)
}

/// The rows of requests: the run writes them, we complete the file.
#[derive(Clone)]
pub struct Shared {
    target: Target,
    format: Format,
    writer: Arc<Mutex<Option<Writer>>>,
}

impl Shared {
    fn open(target: &Target, path: Option<&Path>) -> Result<Shared, Failure> {
        // A pipe has no name that says how it is written.
        let format = match path.filter(|_| target.is_a_file()) {
            Some(path) => format_of(path)?,
            None => Format::Csv,
        };
        Ok(Shared { target: target.clone(), format, writer: Arc::new(Mutex::new(Some(target.open()?))) })
    }

    fn sink(&self) -> Result<Box<dyn RequestSink + Send>, Failure> {
        let sink = Requests::new(self.clone(), self.format).map_err(|error| self.target.unwritten(&error))?;
        Ok(Box::new(sink))
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
