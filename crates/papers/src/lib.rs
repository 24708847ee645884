//! The papers: the experiments that repeat their figures. All of an experiment stands in its file in `experiments/`, but
//! how a run is measured where that is no replay of a load.

mod appends;
mod cbm;
mod fig12;
mod fig13;
mod hmb;
pub mod ledger;
mod logs;
mod movements;
mod mqsim;
mod window;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tidewater_base::{Duration, Instant};
use tidewater_core::profile::Profile;
use tidewater_core::{Device, device};
use tidewater_report::experiment::Experiment;
use tidewater_sim::pool;
use tidewater_study::experiment::{Asked, Names, Paper, Point, Value};
use tidewater_study::{Failure, How};

/// Why an experiment came to no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExperimentError {
    /// It can't be run: why, in words.
    Refused(String),
    /// It was asked to end ([`Options::cancelled`]).
    Cancelled,
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExperimentError::Refused(why) => f.write_str(why),
            ExperimentError::Cancelled => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for ExperimentError {}

impl From<Failure> for ExperimentError {
    fn from(failure: Failure) -> ExperimentError {
        ExperimentError::Refused(failure.to_string())
    }
}

/// Description of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its name.
    pub name: &'static str,
    /// One line on what it shows.
    pub title: String,
    /// The published original: paper, section, figure.
    pub source: String,
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

/// Rows of the figures of a run; `None`: it was asked to end.
type Measured = Result<Option<Vec<Names>>, Failure>;

struct Entry {
    name: &'static str,
    file: &'static str,
    /// Measures a run.
    measure: fn(&Point, &How) -> Measured,
    /// What several have in common, read as the end of their files.
    endings: &'static [&'static str],
}

macro_rules! entries {
    ($($name:literal => $measure:path $(, $ending:literal)*;)*) => {
        &[$(Entry {
            name: $name,
            file: include_str!(concat!("../experiments/", $name, ".toml")),
            measure: $measure,
            endings: &[$(include_str!(concat!("../experiments/shared/", $ending, ".toml"))),*],
        },)*]
    };
}

const ENTRIES: &[Entry] = entries! {
    "x-ssd/fig9" => logs::measure;
    "x-ssd/fig9-dram" => logs::measure;
    "x-ssd/fig10" => appends::measure;
    "x-ssd/fig11" => appends::measure;
    "x-ssd/fig11-rings" => appends::measure;
    "x-ssd/fig12" => fig12::measure;
    "x-ssd/fig13" => fig13::measure;
    "x-ssd/movements" => movements::measure;
    "cbm/financial" => replays, "cbm-by-size", "cbm";
    "cbm/msnfs" => replays, "cbm-by-size", "cbm";
    "cbm/exchange" => replays, "cbm-by-size", "cbm";
    "cbm/camwebdev" => replays, "cbm-by-size", "cbm";
    "cbm/threshold" => replays, "cbm";
    "cbm/map" => replays, "cbm";
    "cbm/mechanisms" => replays, "cbm";
    "cbm/openssd" => replays, "cbm";
    "cbm/real" => replays, "cbm";
    "cbm/sanity" => replays, "cbm";
    "cbm/setups" => replays, "cbm";
    "2b-ssd/write-latency" => window::latency::measure;
    "2b-ssd/read-latency" => window::latency::measure;
    "2b-ssd/write-bandwidth" => window::bandwidth::measure;
    "2b-ssd/read-bandwidth" => window::bandwidth::measure;
    "2b-ssd/databases" => window::logs::measure;
    "byte-sides" => window::logs::measure;
    "hmb/fig2" => replays;
    "hmb/fig5" => hmb::caches::measure, "hmb-caches";
    "hmb/fig8" => hmb::caches::measure, "hmb-caches";
    "hmb/fig10" => hmb::mapping::measure;
    "mqsim" => replays;
};

/// A run that is a load on a drive: the figures of its record.
fn replays(point: &Point, how: &How) -> Measured {
    point.run(how)
}

impl Entry {
    fn paper(&self, asked: Asked, traces: Option<&Path>, mqsim: Option<&Path>) -> Result<Paper, Failure> {
        let text = self.endings.iter().fold(self.file.to_owned(), |text, ending| text + "\n" + ending);
        Paper::parse(self.name, &text, asked, |parameters| {
            let mut more = cbm::stand_ins()?;
            if let Some(listed) = parameters.get("traces") {
                more.extend(cbm::traces(listed, traces)?);
            }
            if let Some(loads) = parameters.get("loads").and_then(Value::len) {
                more.extend(mqsim::responses(loads, mqsim)?);
            }
            Ok(more)
        })
    }
}

/// The names of all experiments, in the order of the papers.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// Every experiment, in the order of the papers.
pub fn all() -> &'static [Info] {
    static ALL: OnceLock<Vec<Info>> = OnceLock::new();
    ALL.get_or_init(|| {
        let info = |entry: &Entry| {
            let asked = Asked { seed: 1, quick: false, full: false };
            let paper = entry.paper(asked, None, None).expect("built-in files are tested");
            Info { name: entry.name, title: paper.title().to_owned(), source: paper.source().to_owned() }
        };
        ENTRIES.iter().map(info).collect()
    })
}

/// Runs an experiment, on all threads that are at hand.
///
/// # Errors
/// When there is no such experiment, its file asks for what can't be, or it was cancelled.
pub fn run(name: &str, options: Options<'_>) -> Result<Experiment, ExperimentError> {
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else {
        let nearest = names().min_by_key(|other| strsim::damerau_levenshtein(name, other)).unwrap_or_default();
        return Err(ExperimentError::Refused(format!(
            "there is no experiment `{name}`; did you mean `{nearest}`? `tidewater experiment list` names all"
        )));
    };
    let Options { seed, quick, full, traces, mqsim, progress, cancelled } = options;
    let paper = entry.paper(Asked { seed, quick, full }, traces, mqsim)?;
    let (how, told) = (How::new(None, Arc::default()), Mutex::new((progress, 0)));
    let points = paper.points();
    let rows = pool::in_order(points.iter().collect(), |_, point: &Point| {
        if cancelled() {
            return Err(ExperimentError::Cancelled);
        }
        let figures = (entry.measure)(point, &how)?.ok_or(ExperimentError::Cancelled)?;
        // Nothing that holds the lock can fail.
        let (progress, done) = &mut *told.lock().unwrap_or_else(PoisonError::into_inner);
        *done += 1;
        progress(f64::from(*done) / points.len() as f64);
        Ok(paper.rows(point, figures)?)
    });
    let rows = rows.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    if cancelled() {
        return Err(ExperimentError::Cancelled);
    }
    let mut experiment = paper.document(rows)?;
    ledger::spell(name, &mut experiment.checks)?;
    Ok(experiment)
}

/// The figures of a run.
fn named(all: impl IntoIterator<Item = (&'static str, Value)>) -> Names {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Those of a run with one row.
fn figures<const N: usize>(all: [(&'static str, f64); N]) -> Option<Vec<Names>> {
    Some(vec![named(all.map(|(name, value)| (name, value.into())))])
}

fn refused(why: impl fmt::Display) -> Failure {
    Failure::usage(why)
}

/// The part of a measurement that is made: a tenth when it must be quick.
fn part(point: &Point) -> Result<f64, Failure> {
    Ok(if point.value("quick")?.is_true() { 0.1 } else { 1.0 })
}

/// Simulated time of measurement.
fn time(point: &Point, parameter: &str, unit: f64) -> Result<Duration, Failure> {
    Ok(Duration::from_secs_f64(point.number(parameter)? * unit * part(point)?))
}

/// A drive for an experiment: fresh, 8 GiB, without stamps.
fn device(profile: &Profile, seed: u64) -> Result<Device, Failure> {
    let options = device::Options { seed, capacity: 8 << 30, ..device::Options::default() };
    Device::new(profile, options).map_err(refused)
}

/// An instant after the start.
fn at(time: Duration) -> Instant {
    Instant::ZERO + time
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_report::experiment::Check;

    #[test]
    fn every_built_in_file_is_complete() {
        for (entry, info) in ENTRIES.iter().zip(all()) {
            assert!(!info.title.is_empty() && !info.source.is_empty(), "{}", entry.name);
            let asked = Asked { seed: 1, quick: false, full: true };
            assert!(entry.paper(asked, None, None).unwrap().is_documented(), "{}", entry.name);
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
