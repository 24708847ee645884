//! `tidewater report`: pages and tables from records of earlier runs, and from documents of experiments.

mod files;

use crate::args::{Report, TableName};
use crate::failure::Failure;
use crate::figure;
use crate::output::{self, Target, distinct};
use crate::text::{format_of, width};
use files::SourceFile;
use std::path::Path;
use tidewater_report::compare::{self, Axes, Labelled};
use tidewater_report::experiment::{self, Experiment};
use tidewater_report::figure::Figure;
use tidewater_report::log::{self, LogRecord};
use tidewater_report::probe::{self, ProbeRecord};
use tidewater_report::table::{self, Table};
use tidewater_report::{ReadError, Record, page, summary};
use tidewater_study::read;
use tidewater_tables as tables;

/// `tidewater report`.
///
/// # Errors
/// Files that are no records, and a page that cannot be written.
pub fn command(report: &Report) -> Result<(), Failure> {
    let target = Target::maybe(report.output.as_ref())?;
    let files = files::all(&report.records)?;
    let mut texts = Vec::new();
    for file in &files {
        distinct(&[target.as_ref()], Some(&file.path))?;
        texts.push(text(&file.path)?);
    }
    let kind = kind_of_all(&files, &texts)?;
    if let (Some(name), Some(target), Some(path)) = (report.table, &target, &report.output) {
        let format = if target.is_a_file() { format_of(path)? } else { tables::Format::Csv };
        let table = table_of(name, kind, &files, &texts)?;
        target.write_bytes(&tables::encode(&table, format).map_err(Failure::run)?)?;
        let rows = tidewater_base::units::plural(table.rows() as u64, "row");
        return if target.is_stdout() {
            Ok(())
        } else {
            output::print(&format!("table: {} ({rows})\n", target.name()))
        };
    }
    let axes = Axes { x: report.x.clone(), colour: report.colour.clone(), y: report.y.clone() };
    let documents = Documents::read(kind, &files, &texts)?;
    if !matches!(&documents, Documents::Runs(runs) if runs.len() > 1) {
        of_one(report, &axes)?;
    }
    if report.list_figures {
        return output::print(&figure::list(&documents.figures(&axes)?));
    }
    let Some((target, path)) = target.zip(report.output.as_ref()) else {
        return output::print(&documents.summary());
    };
    let drawn = target.is_a_file() && tidewater_figures::Format::of(path).is_ok();
    if drawn || report.figure.is_some() {
        let format = figure::format_of(&target, path)?;
        let figures = documents.figures(&axes)?;
        let figure = match (&report.figure, figures.first()) {
            (Some(name), _) => figure::find(&figures, name)?,
            // What --y names comes first.
            (None, Some(first)) if !axes.y.is_empty() => first,
            _ => {
                let failure = Failure::usage(format_args!("{}: name its --figure", path.display()));
                return Err(figure::among(&figures, failure));
            }
        };
        return figure::write(figure, report.width, format, &target);
    }
    output::page_ending(path)?;
    if report.pages {
        pages(&documents, &files)?;
    }
    write(&target, &documents.page(report, &axes, &files)?)
}

/// Writes the page of each run beside its record.
fn pages(documents: &Documents, files: &[SourceFile]) -> Result<(), Failure> {
    let Documents::Runs(runs) = documents else {
        return Err(Failure::usage("--pages writes pages of runs").help("leave --pages out"));
    };
    if runs.len() != files.len() {
        return Err(Failure::usage("--pages needs a file for each run, and some of these hold several")
            .help("give records that `replay --json` wrote, or the directory of a sweep"));
    }
    for (run, file) in runs.iter().zip(files) {
        Target::new(&file.page())?.write(&page(&run.record))?;
    }
    Ok(())
}

/// The runs of all files.
fn runs(files: &[SourceFile], texts: &[String]) -> Result<Vec<Labelled>, Failure> {
    let mut runs = Vec::new();
    for (file, text) in files.iter().zip(texts) {
        runs.extend(records(&file.path, text, &file.label)?);
    }
    Ok(runs)
}

/// Documents of the given files.
enum Documents {
    Runs(Vec<Labelled>),
    Experiments(Vec<Experiment>),
    Probe(Box<ProbeRecord>),
    Log(Box<LogRecord>),
}

impl Documents {
    fn read(kind: Kind, files: &[SourceFile], texts: &[String]) -> Result<Documents, Failure> {
        let refused = |error: ReadError| Failure::refused(format_args!("{}: {error}", files[0].path.display()));
        match kind {
            Kind::Experiment => experiments(files, texts).map(Documents::Experiments),
            Kind::Probe => {
                ProbeRecord::from_json(&texts[0]).map(|record| Documents::Probe(Box::new(record))).map_err(refused)
            }
            Kind::Log => {
                LogRecord::from_json(&texts[0]).map(|record| Documents::Log(Box::new(record))).map_err(refused)
            }
            Kind::Run => match runs(files, texts)? {
                runs if runs.is_empty() => Err(Failure::usage("these files hold no record")),
                runs => Ok(Documents::Runs(runs)),
            },
        }
    }

    /// Every figure of their page.
    fn figures(&self, axes: &Axes) -> Result<Vec<Figure<'_>>, Failure> {
        Ok(match self {
            Documents::Runs(runs) if runs.len() > 1 => compare::figures(runs, axes).map_err(Failure::usage)?,
            Documents::Runs(runs) => tidewater_report::figures(&runs[0].record),
            Documents::Experiments(experiments) => experiment::figures(experiments),
            Documents::Probe(record) => probe::figures(record),
            Documents::Log(record) => log::figures(record),
        })
    }

    /// Their summary on a terminal.
    fn summary(&self) -> String {
        match self {
            Documents::Runs(runs) if runs.len() > 1 => compare::table(runs, width()),
            Documents::Runs(runs) => summary(&runs[0].record),
            Documents::Experiments(experiments) => {
                let all: Vec<String> = experiments.iter().map(|one| experiment::summary(one, width())).collect();
                all.join("\n")
            }
            Documents::Probe(record) => probe::summary(record, width()),
            Documents::Log(record) => log::summary(record),
        }
    }

    fn page(&self, report: &Report, axes: &Axes, files: &[SourceFile]) -> Result<String, Failure> {
        Ok(match self {
            Documents::Runs(runs) if runs.len() > 1 => {
                let title = report.title.clone().unwrap_or_else(|| format!("{} runs compared", runs.len()));
                let pages = files::links(files, runs.len(), report.output.as_deref());
                compare::page_over(runs, &title, axes, &pages).map_err(Failure::usage)?
            }
            Documents::Runs(runs) => page(&runs[0].record),
            Documents::Experiments(experiments) => crate::experiment::page_of(experiments),
            Documents::Probe(record) => probe::page(record),
            Documents::Log(record) => log::page(record),
        })
    }
}

/// The table of that name.
fn table_of(name: TableName, kind: Kind, files: &[SourceFile], texts: &[String]) -> Result<Table, Failure> {
    let unfit = |help: &str| {
        let what = files[0].path.display();
        Failure::usage(format_args!("{what}: is {}, and has no such table", kind.words())).help(help)
    };
    let refused = |error: ReadError| Failure::refused(format_args!("{}: {error}", files[0].path.display()));
    match (name, kind) {
        (TableName::Log, Kind::Log) => {
            LogRecord::from_json(&texts[0]).map(|record| table::log(&record)).map_err(refused)
        }
        (TableName::Probe, Kind::Probe) => {
            ProbeRecord::from_json(&texts[0]).map(|record| table::probe(&record)).map_err(refused)
        }
        (_, Kind::Log) => Err(unfit("ask for --table log")),
        (_, Kind::Probe) => Err(unfit("ask for --table probe")),
        (_, Kind::Experiment) => Err(unfit("its rows are in the document itself, under `rows`")),
        (TableName::Log | TableName::Probe, Kind::Run) => {
            Err(unfit("ask for runs, statistics, time-series, latencies, dies or wear"))
        }
        (TableName::Runs, Kind::Run) => Ok(table::runs(&runs(files, texts)?)),
        (TableName::Statistics, Kind::Run) => Ok(table::statistics(&runs(files, texts)?)),
        (name, Kind::Run) => {
            let of_one = match name {
                TableName::TimeSeries => table::time_series,
                TableName::Latencies => table::latencies,
                TableName::Dies => table::dies,
                _ => table::wear,
            };
            let runs = runs(files, texts)?;
            match &runs[..] {
                [run] => Ok(of_one(&run.record)),
                _ => Ok(Table::of_each(runs.iter().map(|run| (run.label.as_str(), of_one(&run.record))))),
            }
        }
    }
}

/// Writes a page, and says where it is.
fn write(target: &Target, page: &str) -> Result<(), Failure> {
    target.write(page)?;
    if target.is_stdout() { Ok(()) } else { output::print(&format!("report: {}\n", target.name())) }
}

/// The documents of experiments.
fn experiments(files: &[SourceFile], texts: &[String]) -> Result<Vec<Experiment>, Failure> {
    let mut experiments = Vec::new();
    for (file, text) in files.iter().zip(texts) {
        let read = Experiment::all_from_json(text);
        experiments.extend(read.map_err(|error| Failure::refused(format_args!("{}: {error}", file.path.display())))?);
    }
    Ok(experiments)
}

/// Kind of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Run,
    Experiment,
    Probe,
    Log,
}

impl Kind {
    /// Kind by a text's schema, whatever its version and however it is laid out: its reader says which version it has
    /// to be. The schema of a run's record is a number.
    fn of(text: &str) -> Kind {
        const FIELD: &str = "\"schema\"";
        let values = text.split(FIELD).skip(1).filter_map(|rest| rest.trim_start().strip_prefix(':'));
        let named = values.filter_map(|value| value.trim_start().strip_prefix('"')).next();
        let is_of = |name: &str, schema: &str| name.starts_with(schema.split_inclusive('/').next().unwrap_or(schema));
        match named {
            Some(name) if is_of(name, probe::SCHEMA) => Kind::Probe,
            Some(name) if is_of(name, log::SCHEMA) => Kind::Log,
            Some(_) => Kind::Experiment,
            None => Kind::Run,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Kind::Run => "no document of an experiment, a probe or a log",
            Kind::Experiment => "the document of an experiment",
            Kind::Probe => "the document of a probe",
            Kind::Log => "the document of a log",
        }
    }
}

/// Common kind of all these documents.
fn kind_of_all(files: &[SourceFile], texts: &[String]) -> Result<Kind, Failure> {
    let kinds: Vec<Kind> = texts.iter().map(|text| Kind::of(text)).collect();
    let first = kinds.first().copied().unwrap_or(Kind::Run);
    if let Some(at) = kinds.iter().position(|kind| *kind != first) {
        let words = format!(
            "{}: is {}, and {} is {}",
            files[at].path.display(),
            kinds[at].words(),
            files[0].path.display(),
            first.words()
        );
        return Err(Failure::usage(words).help("they make different pages: give only one kind"));
    }
    if matches!(first, Kind::Probe | Kind::Log) && texts.len() > 1 {
        return Err(Failure::usage(format_args!(
            "{}: is {}, which makes a page of its own",
            files[1].path.display(),
            first.words()
        ))
        .help("give one at a time"));
    }
    Ok(first)
}

/// Refuses what only several runs have.
fn of_one(report: &Report, axes: &Axes) -> Result<(), Failure> {
    if report.title.is_some() {
        return Err(Failure::usage("--title applies to the page of a comparison only")
            .help("leave --title out, or give several records"));
    }
    if *axes != Axes::default() || report.pages {
        return Err(Failure::usage("--x, --colour, --y and --pages apply to several runs only")
            .help("leave them out, or give several records, or the directory of a sweep"));
    }
    Ok(())
}

/// The text of one file, or of standard input.
fn text(path: &Path) -> Result<String, Failure> {
    if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
            .map_err(|error| Failure::usage(format_args!("standard input: {}", crate::failure::reason(&error))))
    } else {
        Ok(read(path)?)
    }
}

/// The records of one file: a record, one that a sweep keeps, or an array of them as `compare --json` writes it.
fn records(path: &Path, text: &str, name: &str) -> Result<Vec<Labelled>, Failure> {
    let wrong = |why: &dyn std::fmt::Display| Failure::usage(format_args!("{}: {why}", path.display()));
    if !text.trim_start().starts_with('[') {
        // A sweep keeps with each record what decides it.
        let kept = serde_json::from_str::<Run>(text).ok();
        let record = kept.as_ref().map_or(text, |kept| kept.record.get());
        let record = Record::from_json(record).map_err(|error| wrong(&error))?;
        return Ok(vec![Labelled { label: name.to_owned(), record }]);
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

/// One run of a comparison or a sweep.
#[derive(serde::Deserialize)]
struct Run {
    label: String,
    record: Box<serde_json::value::RawValue>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::array;

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
        assert_eq!([Kind::of(&written), Kind::of(&runs[0].record.to_json())], [Kind::Run; 2]);
        assert_eq!(records(&file, &written, "x").unwrap(), runs);
        let kept = format!("{{\"label\": \"b\", \"point\": {{}}, \"record\": {}}}", runs[1].record.to_json());
        assert_eq!(records(&file, &kept, "a=2").unwrap(), runs[1..]);
        assert!(records(&file, "[1]", "x").unwrap_err().message.contains("not a comparison"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn documents_are_told_apart_however_they_are_laid_out() {
        for (text, kind) in [
            ("{\"schema\":\"tidewater-experiment/9\"}", Kind::Experiment),
            (" [{\"schema\": \"tidewater-experiment/1\"}, {}]", Kind::Experiment),
            ("{\"schema\":\"tidewater-probe/1\"}", Kind::Probe),
            ("{\"seed\":1,\n\"schema\" :\n\"tidewater-log/7\",", Kind::Log),
        ] {
            assert_eq!(Kind::of(text), kind, "{text}");
        }
        for other in
            ["", "[]", "{}", "[{}]", "{\"schema\": 1}", "3", "[{\"label\": \"a\", \"record\": {}}]", "\"schema\""]
        {
            assert_eq!(Kind::of(other), Kind::Run, "{other}");
        }
    }

    #[test]
    fn documents_that_make_no_page_together_are_refused() {
        let refused = |texts: &[&str]| {
            let file = |i| SourceFile { path: format!("{i}.json").into(), label: String::new() };
            let files: Vec<SourceFile> = (0..texts.len()).map(file).collect();
            kind_of_all(&files, &texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        let (run, probe, experiment) =
            ("{\"schema\": 1}", "{\"schema\": \"tidewater-probe/1\"}", "{\"schema\": \"tidewater-experiment/1\"}");
        let mixed = refused(&[probe, probe, run]).unwrap_err().message;
        assert!(mixed.starts_with("2.json: ") && mixed.ends_with("0.json is the document of a probe"), "{mixed}");
        assert!(refused(&[experiment, probe]).unwrap_err().message.starts_with("1.json: is the document of a probe"));
        assert!(refused(&[probe, probe]).unwrap_err().help.unwrap().contains("one at a time"));
        assert_eq!(refused(&[run, run]), Ok(Kind::Run));
        assert_eq!(refused(&[experiment, experiment]), Ok(Kind::Experiment));
    }
}
