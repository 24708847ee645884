//! One run, with the line of every request.

use crate::relations::cases::{Case, Load};
use crate::relations::ledger::Ledger;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use tidewater_core::Device;
use tidewater_core::profile::Profile;
use tidewater_report::Record;
use tidewater_sim::workload::Source;
use tidewater_sim::{Pacing, RunError, RunOptions, run};

/// Changes settings, `KEY=VALUE`. False: a value is outside of its range.
pub fn set(profile: &mut Profile, settings: &[&str]) -> bool {
    settings.iter().all(|setting| {
        let (key, value) = setting.split_once('=').expect("KEY=VALUE");
        profile.set(key, value).is_ok()
    })
}

/// One line of the requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// When its latency begins to count, in picoseconds.
    pub begin_ps: u64,
    /// When it ended.
    pub end_ps: u64,
    /// The operation.
    pub operation: String,
    /// Bytes.
    pub bytes: u64,
    /// It ended well.
    pub success: bool,
}

/// A run that came to its end.
pub struct Run {
    /// Every figure.
    pub record: Record,
    /// Every request, in the order of completion.
    pub rows: Vec<Row>,
    /// The same as it was written.
    pub csv: String,
    /// The drive that it leaves behind.
    pub device: Device,
}

/// A writer that is still there after the run.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no thread panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Microseconds with six decimals, as picoseconds.
fn ps(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{part:0<6}").parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn row(line: &str) -> Row {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, arrival, operation, _, length, latency, status] = fields[..] else { panic!("{line}: not seven fields") };
    let begin_ps = ps(arrival);
    Row {
        begin_ps,
        end_ps: begin_ps + ps(latency),
        operation: operation.into(),
        bytes: length.parse().expect("the length is a number"),
        success: status == "success",
    }
}

/// Serves a source on the drive of a case, with the options changed.
pub fn serve_source(
    profile: &Profile,
    load: &Load,
    source: impl Source,
    change: impl FnOnce(&mut RunOptions),
) -> Result<Run, RunError> {
    let lines = Shared::default();
    let mut options = RunOptions {
        requests: Some(Box::new(tidewater_report::requests::CsvRequests::new(lines.clone()))),
        ..RunOptions::default()
    };
    options.device.precondition = load.past;
    change(&mut options);
    let outcome = run(profile, source, options)?;
    let csv = String::from_utf8(std::mem::take(&mut *lines.0.lock().expect("no thread panicked"))).expect("UTF-8");
    let rows = csv.lines().skip(1).map(row).collect();
    Ok(Run { record: outcome.record, rows, csv, device: outcome.device })
}

/// Serves the load of a case in a closed loop. `None`: it broke off, which is a violation.
pub fn serve(case: &Case, ledger: &mut Ledger, change: impl FnOnce(&mut RunOptions)) -> Option<Run> {
    ledger.runs += 1;
    let source = case.load.source(case.profile.drive.capacity);
    let depth = source.iodepth();
    let ended = serve_source(&case.profile, &case.load, source, |options| {
        options.pacing = Pacing::Depth(depth);
        change(options);
    });
    let relation = "a run comes to its end";
    match ended {
        Ok(run) => {
            ledger.check(relation, case, true, String::new);
            Some(run)
        }
        Err(error) => {
            ledger.check(relation, case, false, || error.to_string());
            None
        }
    }
}

/// The first lines in which two runs differ. `None`: they have the same result and the same requests.
pub fn difference(a: &Run, b: &Run) -> Option<String> {
    let texts = [a, b].map(|run| format!("{:#?}\n{}", result(&run.record), run.csv));
    let [a, b] = &texts;
    let differ = a.lines().zip(b.lines()).find(|(a, b)| a != b);
    differ
        .map(|(a, b)| format!("`{}` and `{}`", a.trim(), b.trim()))
        .or((a != b).then(|| "their lengths differ".into()))
}

/// The record without what names the drive, for runs on drives that must not differ in anything else.
fn result(record: &Record) -> Record {
    Record { profile: Default::default(), workload: Default::default(), ..record.without_wall_time() }
}
