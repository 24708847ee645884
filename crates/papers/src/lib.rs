//! The papers: the experiments that repeat their figures, each described by a file in `experiments/` and run here.
//! The code of each figure stands in one file; its parameters, the statements of the paper and what was fitted, in its
//! TOML.

mod cbm;
mod fig10;
mod fig11;
mod fig11_rings;
mod fig12;
mod fig13;
mod fig9;
mod fig9_dram;
mod hmb;
pub mod ledger;
mod movements;
mod mqsim;
mod setting;
mod window;

pub use setting::ExperimentError;
use setting::Setting;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tidewater_report::experiment::{Cell, Check, Column, Experiment, Figure, Form, SCHEMA, Series};

use tidewater_sim::pool;
use tidewater_study::experiment::{Asked, Names, Paper, Point};
use tidewater_study::{Failure, How};

/// Description of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// One line on what it shows.
    pub title: &'static str,
    /// The published original: paper, section, figure.
    pub source: &'static str,
}

/// How to run it.
pub struct Options<'a> {
    /// Seeds everything random.
    pub seed: u64,
    /// A tenth of the measurement, for tests: checks may fail.
    pub quick: bool,
    /// All of what takes many minutes, of experiments that have such a part.
    pub full: bool,
    /// A folder of traces, for experiments that take some.
    pub traces: Option<&'a Path>,
    /// A folder with the results of MQSim, for the experiment that compares with it.
    pub mqsim: Option<&'a Path>,
    /// Called now and then with the share that is done.
    pub progress: &'a mut (dyn FnMut(f64) + Send),
    /// Asked now and then whether the experiment shall end without a result.
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Options<'_> {
    /// So much of the experiment is done.
    ///
    /// # Errors
    /// When it shall end.
    fn done(&mut self, share: f64) -> Result<(), ExperimentError> {
        (self.progress)(share);
        if (self.cancelled)() { Err(ExperimentError::Cancelled) } else { Ok(()) }
    }
}

/// Results of a run; the rest of the document follows from its file.
#[derive(Default)]
struct Findings {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    checks: Vec<Check>,
    found: Vec<String>,
    figures: Vec<Figure>,
}

type Run = fn(&Setting, &mut Options<'_>) -> Result<Findings, ExperimentError>;

/// How an experiment is made.
enum Made {
    By(Run),
    /// Each of its runs by a function, and all else by its file, which ends in these.
    Runs(Measure, &'static [&'static str]),
}

/// The figures of a run; `None`: it was asked to end.
type Measure = fn(&Point, &How) -> Result<Option<Names>, Failure>;

struct Entry {
    name: &'static str,
    file: &'static str,
    made: Made,
}

/// The common part of the experiments with CBM.
const CBM: &str = include_str!("../experiments/shared/cbm.toml");
const CBM_BY_SIZE: &str = include_str!("../experiments/shared/cbm-by-size.toml");

macro_rules! entries {
    ($($name:literal => $made:expr;)*) => {
        &[$(Entry {
            name: $name,
            file: include_str!(concat!("../experiments/", $name, ".toml")),
            made: $made,
        },)*]
    };
}

const ENTRIES: &[Entry] = entries! {
    "x-ssd/fig9" => Made::By(fig9::run);
    "x-ssd/fig9-dram" => Made::By(fig9_dram::run);
    "x-ssd/fig10" => Made::By(fig10::run);
    "x-ssd/fig11" => Made::By(fig11::run);
    "x-ssd/fig11-rings" => Made::By(fig11_rings::run);
    "x-ssd/fig12" => Made::By(fig12::run);
    "x-ssd/fig13" => Made::By(fig13::run);
    "x-ssd/movements" => Made::By(movements::run);
    "cbm/financial" => Made::Runs(records, &[CBM_BY_SIZE, CBM]);
    "cbm/msnfs" => Made::Runs(records, &[CBM_BY_SIZE, CBM]);
    "cbm/exchange" => Made::Runs(records, &[CBM_BY_SIZE, CBM]);
    "cbm/camwebdev" => Made::Runs(records, &[CBM_BY_SIZE, CBM]);
    "cbm/threshold" => Made::Runs(records, &[CBM]);
    "cbm/map" => Made::Runs(records, &[CBM]);
    "cbm/mechanisms" => Made::Runs(records, &[CBM]);
    "cbm/openssd" => Made::Runs(records, &[CBM]);
    "cbm/real" => Made::Runs(records, &[CBM]);
    "cbm/sanity" => Made::Runs(records, &[CBM]);
    "cbm/setups" => Made::Runs(records, &[CBM]);
    "2b-ssd/write-latency" => Made::By(window::latency::write);
    "2b-ssd/read-latency" => Made::By(window::latency::read);
    "2b-ssd/write-bandwidth" => Made::By(window::bandwidth::write);
    "2b-ssd/read-bandwidth" => Made::By(window::bandwidth::read);
    "2b-ssd/databases" => Made::By(window::databases::run);
    "byte-sides" => Made::By(window::sides::run);
    "hmb/fig2" => Made::By(hmb::loads::run);
    "hmb/fig5" => Made::By(hmb::caches::read);
    "hmb/fig8" => Made::By(hmb::caches::write);
    "hmb/fig10" => Made::By(hmb::mapping::run);
    "mqsim" => Made::By(mqsim::run);
};

/// Every experiment, in the order of the papers.
pub fn all() -> &'static [Info] {
    use std::sync::OnceLock;
    static ALL: OnceLock<Vec<Info>> = OnceLock::new();
    ALL.get_or_init(|| {
        let info = |entry: &'static Entry| {
            let setting = Setting::parse(entry.name, entry.file).expect("built-in files are tested");
            // Built once for the life of the program.
            let (title, source) = (setting.title.clone().leak(), setting.source.clone().leak());
            Info { name: entry.name, title, source }
        };
        ENTRIES.iter().map(info).collect()
    })
}

/// Runs an experiment.
///
/// # Errors
/// When there is no such experiment, its file asks for what can't be, or it was cancelled.
pub fn run(name: &str, mut options: Options<'_>) -> Result<Experiment, ExperimentError> {
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else {
        return Err(ExperimentError::unknown(name, ENTRIES.iter().map(|entry| entry.name)));
    };
    let run = match &entry.made {
        Made::By(run) => run,
        Made::Runs(measure, endings) => {
            let mut experiment = runs(entry, endings, *measure, &mut options)?;
            ledger::spell(name, &mut experiment.checks)?;
            return Ok(experiment);
        }
    };
    let setting = Setting::parse(entry.name, entry.file)?;
    let Findings { columns, rows, mut checks, found, mut figures } = run(&setting, &mut options)?;
    // Nothing left the buffers of a quick run, or no trace was there.
    figures.retain(|figure| figure.series.iter().any(|series| !series.points.is_empty()));
    setting.check_losses(checks.iter().map(|check| check.name.as_str()))?;
    ledger::spell(name, &mut checks)?;
    for check in checks.iter_mut().filter(|check| !check.ok) {
        check.because = setting.loss(&check.name);
    }
    Ok(Experiment {
        schema: SCHEMA.into(),
        name: name.into(),
        title: setting.title.clone(),
        source: setting.source.clone(),
        description: setting.description.trim().into(),
        version: env!("CARGO_PKG_VERSION").into(),
        seed: options.seed,
        parameters: setting.parameters(),
        columns,
        rows,
        checks,
        found,
        differences: setting.differences.clone(),
        fitted: setting.fitted.clone(),
        figures,
    })
}

/// The figures of a run's record.
fn records(point: &Point, how: &How) -> Result<Option<Names>, Failure> {
    point.run(how)
}

/// An experiment whose file says all but how a run is measured.
fn parsed(entry: &Entry, endings: &[&str], options: &Options<'_>) -> Result<Paper, Failure> {
    let text = endings.iter().fold(entry.file.to_owned(), |text, ending| text + "\n" + ending);
    let asked = Asked { seed: options.seed, quick: options.quick, full: options.full };
    Paper::parse(entry.name, &text, asked, |parameters| {
        let mut more = cbm::stand_ins()?;
        if let Some(listed) = parameters.get("traces") {
            more.extend(cbm::traces(listed, options.traces)?);
        }
        Ok(more)
    })
}

/// Makes all runs, on all threads that are at hand. Cancelled, it begins no further one.
fn runs(
    entry: &Entry,
    endings: &[&str],
    measure: Measure,
    options: &mut Options<'_>,
) -> Result<Experiment, ExperimentError> {
    let paper = parsed(entry, endings, options)?;
    let how = How::new(None, Arc::default());
    let cancelled = options.cancelled;
    let told = Mutex::new((&mut *options.progress, 0));
    let points = paper.points();
    let measured = pool::in_order(points.iter().collect(), |_, point: &Point| {
        if cancelled() {
            return Err(ExperimentError::Cancelled);
        }
        let figures = measure(point, &how)?.ok_or(ExperimentError::Cancelled)?;
        // Nothing that holds the lock can fail.
        let (progress, done) = &mut *told.lock().unwrap_or_else(PoisonError::into_inner);
        *done += 1;
        progress(f64::from(*done) / points.len() as f64);
        Ok(paper.fields(point, figures)?)
    });
    let measured = measured.into_iter().collect::<Result<_, _>>()?;
    if cancelled() { Err(ExperimentError::Cancelled) } else { Ok(paper.document(measured)?) }
}

fn column(name: &str, doc: &str) -> Column {
    Column { name: name.into(), doc: doc.into() }
}

/// Result of a check; the ledger has its statement in words.
fn check(name: &str, expected: impl Into<String>, measured: impl Into<String>, ok: bool) -> Check {
    Check {
        name: name.into(),
        statement: String::new(),
        expected: expected.into(),
        measured: measured.into(),
        ok,
        fitted: Vec::new(),
        because: None,
    }
}

/// A figure of lines or bars over logarithmic places.
fn figure(title: &str, form: Form, (x_label, x_log): (&str, bool), (y_label, y_log): (&str, bool)) -> Figure {
    Figure {
        title: title.into(),
        form,
        x_label: x_label.into(),
        y_label: y_label.into(),
        x_log,
        y_log,
        series: Vec::new(),
    }
}

fn series(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    let points = points.into_iter().map(|(x, y)| tidewater_report::experiment::Point { x, y, spread: None }).collect();
    Series { name: name.into(), from_paper: false, points }
}

/// Values that the paper gives, drawn beside ours of the same name.
fn paper(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    Series { from_paper: true, ..series(name, points) }
}

/// A place on the x axis that the paper gives: a line as high as what `figure` shows.
fn paper_place(name: impl Into<String>, x: f64, figure: &Figure) -> Series {
    let top = figure.series.iter().flat_map(|series| &series.points).map(|point| point.y).fold(0.0, f64::max);
    paper(name, [(x, 0.0), (x, top)])
}

/// Figures with so many digits as say something.
fn list(values: impl IntoIterator<Item = f64>, unit: &str) -> String {
    let digits = |x: f64| if x >= 100.0 { format!("{x:.0}") } else { format!("{x:.1}") };
    let words: Vec<String> = values.into_iter().map(digits).collect();
    format!("{} {unit}", words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_file_is_complete() {
        assert_eq!(all().len(), ENTRIES.len());
        for entry in ENTRIES {
            let setting = Setting::parse(entry.name, entry.file).unwrap();
            assert!(!setting.title.is_empty() && !setting.description.trim().is_empty(), "{}", entry.name);
            assert!(setting.parameters().iter().all(|p| !p.doc.is_empty()), "{}", entry.name);
        }
    }

    fn quick(name: &str) -> Result<Experiment, ExperimentError> {
        run(
            name,
            Options {
                seed: 1,
                quick: true,
                full: false,
                traces: None,
                mqsim: None,
                progress: &mut |_| {},
                cancelled: &|| false,
            },
        )
    }

    #[test]
    fn the_latencies_of_the_byte_window_are_those_of_its_paper() {
        for name in ["2b-ssd/write-latency", "2b-ssd/read-latency"] {
            let experiment = quick(name).unwrap();
            for check in &experiment.checks {
                let Check { statement, expected, measured, .. } = check;
                assert!(!check.is_failure(), "{name}: {statement}: {expected}, measured {measured}");
            }
        }
    }

    #[test]
    fn what_a_paper_gives_is_drawn_beside_ours() {
        for (name, least) in [
            ("x-ssd/fig9", 1),
            ("x-ssd/fig11", 1),
            ("x-ssd/movements", 2),
            ("2b-ssd/write-latency", 3),
            ("2b-ssd/read-latency", 3),
            ("hmb/fig5", 6),
            ("hmb/fig8", 2),
        ] {
            let figures = quick(name).unwrap().figures;
            let given = figures.iter().flat_map(|figure| &figure.series).filter(|series| series.from_paper);
            assert!(given.count() >= least, "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_by_the_nearest() {
        let text = quick("x-ssd/fig8").unwrap_err().to_string();
        assert!(text.contains("x-ssd/fig8") && text.contains("did you mean"), "{text}");
    }

    #[test]
    fn a_cancelled_experiment_ends_at_its_next_measurement() {
        for name in ["x-ssd/movements", "x-ssd/fig11", "hmb/fig5", "cbm/threshold"] {
            let mut shares = Vec::new();
            let options = Options {
                seed: 1,
                quick: true,
                full: false,
                traces: None,
                mqsim: None,
                progress: &mut |share| shares.push(share),
                cancelled: &|| true,
            };
            assert_eq!(run(name, options), Err(ExperimentError::Cancelled), "{name}");
            assert!(shares.first().is_none_or(|share| *share < 0.6), "{name}: {shares:?}");
        }
    }

    #[test]
    fn every_seed_is_one() {
        let last = Options {
            seed: u64::MAX,
            quick: true,
            full: false,
            traces: None,
            mqsim: None,
            progress: &mut |_| {},
            cancelled: &|| false,
        };
        assert!(run("x-ssd/fig13", last).is_ok());
    }
}
