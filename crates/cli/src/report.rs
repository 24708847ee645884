//! `tidewater report`: pages and tables from records of earlier runs, and from documents of experiments.

use crate::args::Report;
use crate::drive::read;
use crate::failure::Failure;
use crate::output::{self, Target, distinct};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tidewater_report::compare::{self, Labelled};
use tidewater_report::experiment::{self, Experiment};
use tidewater_report::log::{self, LogRecord};
use tidewater_report::probe::{self, ProbeRecord};
use tidewater_report::{ReadError, Record, page, summary};

/// `tidewater report`.
///
/// # Errors
/// Files that are no records, and a page that cannot be written.
pub fn command(report: &Report) -> Result<(), Failure> {
    let target = Target::maybe(report.output.as_ref())?;
    let mut texts = Vec::new();
    for path in &report.records {
        distinct(&[target.as_ref()], Some(path))?;
        texts.push(text(path)?);
    }
    if let [text] = &texts[..] {
        // Of any version: whoever reads it says which one it has to be.
        let is_of = |schema: &str| {
            let kind = schema.split('/').next().unwrap_or(schema);
            text.contains(&format!("\"schema\": \"{kind}/"))
        };
        let path = &report.records[0];
        if is_of(probe::SCHEMA) {
            let summary = |record: &ProbeRecord| probe::summary(record, width());
            return single(ProbeRecord::from_json(text), path, target, probe::page, summary);
        }
        if is_of(log::SCHEMA) {
            return single(LogRecord::from_json(text), path, target, log::page, log::summary);
        }
    }
    if texts.iter().any(|text| is_experiment(text)) {
        return experiments(report, &texts, target);
    }
    let mut runs = Vec::new();
    for ((path, text), name) in report.records.iter().zip(&texts).zip(names(&report.records)) {
        runs.extend(records(path, text, name)?);
    }
    let Some(first) = runs.first() else {
        return Err(Failure::usage("there is no record in these files"));
    };
    let several = runs.len() > 1;
    let Some(target) = target else {
        let text = if several { compare::table(&runs, width()) } else { summary(&first.record) };
        return output::print(&text);
    };
    let title = report.title.clone().unwrap_or_else(|| format!("{} runs compared", runs.len()));
    let page = if several { compare::page(&runs, &title) } else { page(&first.record) };
    write(&target, &page)
}

/// What the records of these files are called: their file names, or, where those are not enough, their paths.
fn names(paths: &[PathBuf]) -> Vec<String> {
    let short = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let different: BTreeSet<String> = paths.iter().map(short).collect();
    let enough = different.len() == paths.len();
    paths.iter().map(|path| if enough { short(path) } else { path.display().to_string() }).collect()
}

/// A document that stands alone: its page, or what it comes to on a terminal.
fn single<R>(
    read: Result<R, ReadError>,
    path: &Path,
    target: Option<Target>,
    page: fn(&R) -> String,
    summary: impl Fn(&R) -> String,
) -> Result<(), Failure> {
    let record = read.map_err(|error| Failure::refused(format_args!("{}: {error}", path.display())))?;
    match target {
        None => output::print(&summary(&record)),
        Some(target) => write(&target, &page(&record)),
    }
}

/// Writes a page, and says where it is.
fn write(target: &Target, page: &str) -> Result<(), Failure> {
    target.write(page)?;
    if target.is_stdout() { Ok(()) } else { output::print(&format!("report: {}\n", target.name())) }
}

/// The documents of experiments: their page, or their checks.
fn experiments(report: &Report, texts: &[String], target: Option<Target>) -> Result<(), Failure> {
    let mut experiments = Vec::new();
    for (path, text) in report.records.iter().zip(texts) {
        if !is_experiment(text) {
            return Err(Failure::usage(format_args!("{}: not the document of an experiment", path.display()))
                .help("records of runs and documents of experiments make different pages: give only one kind"));
        }
        let read = Experiment::all_from_json(text);
        experiments.extend(read.map_err(|error| Failure::refused(format_args!("{}: {error}", path.display())))?);
    }
    let Some(target) = target else {
        let summaries: Vec<String> = experiments.iter().map(|one| experiment::summary(one, width())).collect();
        return output::print(&summaries.join("\n"));
    };
    write(&target, &experiment::page(&experiments))
}

/// Whether a text is the document of an experiment, or an array of them: a run record has a number as its schema.
fn is_experiment(text: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Header {
        schema: Option<serde_json::Value>,
    }
    let header = if text.trim_start().starts_with('[') {
        serde_json::from_str::<Vec<Header>>(text).ok().and_then(|headers| headers.into_iter().next())
    } else {
        serde_json::from_str::<Header>(text).ok()
    };
    header.and_then(|header| header.schema).is_some_and(|schema| schema.is_string())
}

/// The text of one file, or of standard input.
fn text(path: &Path) -> Result<String, Failure> {
    if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
            .map_err(|error| Failure::usage(format_args!("standard input: {}", crate::failure::reason(&error))))
    } else {
        read(path)
    }
}

/// The records of one file: a record, or an array of them as `compare --json` writes it.
fn records(path: &Path, text: &str, name: String) -> Result<Vec<Labelled>, Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {why}", path.display()));
    if !text.trim_start().starts_with('[') {
        let record = Record::from_json(text).map_err(|error| wrong(&error))?;
        return Ok(vec![Labelled { label: name, record }]);
    }
    let runs: Vec<Run> =
        serde_json::from_str(text).map_err(|error| wrong(&format_args!("not a comparison: {error}")))?;
    runs.into_iter()
        .map(|run| {
            let record = Record::from_json(run.record.get()).map_err(|error| wrong(&error))?;
            Ok(Labelled { label: run.label, record })
        })
        .collect()
}

/// One run of a comparison.
#[derive(serde::Deserialize)]
struct Run {
    label: String,
    record: Box<serde_json::value::RawValue>,
}

/// The records as `compare --json` writes them.
pub fn array(runs: &[Labelled]) -> String {
    let mut text = String::from("[\n");
    for (i, run) in runs.iter().enumerate() {
        let label = serde_json::Value::from(run.label.as_str());
        let comma = if i + 1 < runs.len() { "," } else { "" };
        text += &format!("{{\"label\": {label}, \"record\": {}}}{comma}\n", run.record.to_json().trim_end());
    }
    text + "]\n"
}

/// Columns of the terminal; 120 where there is none, as in a file.
pub fn width() -> usize {
    use std::io::IsTerminal as _;
    let terminal = std::io::stdout().is_terminal().then(terminal_columns).flatten();
    terminal.unwrap_or(120).max(60)
}

fn terminal_columns() -> Option<usize> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compare_writes_is_what_report_reads() {
        let run =
            |label: &str, requests| Labelled { label: label.into(), record: Record { requests, ..Record::default() } };
        let runs = vec![run("a=\"1\"", 1), run("a=2", u64::MAX)];
        let folder = std::env::temp_dir().join(format!("tidewater-report-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("runs.json");
        std::fs::write(&file, array(&runs)).unwrap();
        let written = text(&file).unwrap();
        assert!(!is_experiment(&written) && !is_experiment(&runs[0].record.to_json()));
        assert_eq!(records(&file, &written, "x".into()).unwrap(), runs);
        assert!(records(&file, "[1]", "x".into()).unwrap_err().message.contains("not a comparison"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn documents_of_experiments_are_told_from_records() {
        assert!(is_experiment("{\"schema\":\"tidewater-experiment/9\"}"));
        assert!(is_experiment(" [{\"schema\": \"tidewater-experiment/1\"}, {}]"));
        for other in ["", "[]", "{}", "[{}]", "{\"schema\": 1}", "3", "[{\"label\": \"a\", \"record\": {}}]"] {
            assert!(!is_experiment(other), "{other}");
        }
    }

    #[test]
    fn records_are_called_by_their_files() {
        let names = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(names(&["x/a.json", "b.json"]), ["a", "b"]);
        assert_eq!(names(&["x/a.json", "y/a.json"]), ["x/a.json", "y/a.json"]);
    }
}
