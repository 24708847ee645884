//! The papers: the experiments that repeat their figures. All of an experiment stands in its file in `experiments/`,
//! except how a run is measured that is no load on a drive.

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
use std::sync::{Arc, OnceLock};
use tidewater_base::{Duration, Instant};
use tidewater_core::profile::Profile;
use tidewater_core::{Device, device};
use tidewater_report::experiment::Experiment;
use tidewater_study::experiment::{Asked, Measure, Names, Planned, Point, Value};
use tidewater_study::{Failure, Follow, How, Setting, meant};

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

/// Inputs of experiments besides their files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Folders<'a> {
    /// A folder of traces, for experiments that take some.
    pub traces: Option<&'a Path>,
    /// A folder with the results of MQSim, for the experiment that compares with it.
    pub mqsim: Option<&'a Path>,
    /// Values in place of the experiments' own: of parameters, and of the settings of their drives.
    pub set: &'a [Setting],
}

/// Rows of the figures of a run.
type Measured = Result<Vec<Names>, Failure>;

struct Entry {
    name: &'static str,
    file: &'static str,
    /// Measures a run; `None`: it is a load on a drive, and its figures those of the record.
    measure: Option<Measure>,
    /// Parts that several have in common, read as the end of their files.
    endings: &'static [&'static str],
}

macro_rules! entries {
    ($($name:literal => $measure:expr $(, $ending:literal)*;)*) => {
        &[$(Entry {
            name: $name,
            file: include_str!(concat!("../experiments/", $name, ".toml")),
            measure: $measure,
            endings: &[$(include_str!(concat!("../experiments/shared/", $ending, ".toml"))),*],
        },)*]
    };
}

const ENTRIES: &[Entry] = entries! {
    "x-ssd/fig9" => Some(logs::measure);
    "x-ssd/fig9-dram" => Some(logs::measure);
    "x-ssd/fig10" => Some(appends::measure);
    "x-ssd/fig11" => Some(appends::measure);
    "x-ssd/fig11-rings" => Some(appends::measure);
    "x-ssd/fig12" => Some(fig12::measure);
    "x-ssd/fig13" => Some(fig13::measure);
    "x-ssd/replicas" => Some(fig13::measure);
    "x-ssd/journal" => Some(logs::measure);
    "x-ssd/movements" => Some(movements::measure);
    "cbm/financial" => None, "cbm-by-size", "cbm";
    "cbm/msnfs" => None, "cbm-by-size", "cbm";
    "cbm/exchange" => None, "cbm-by-size", "cbm";
    "cbm/camwebdev" => None, "cbm-by-size", "cbm";
    "cbm/threshold" => None, "cbm";
    "cbm/map" => None, "cbm";
    "cbm/mechanisms" => None, "cbm";
    "cbm/openssd" => None, "cbm";
    "cbm/real" => None, "cbm";
    "cbm/sanity" => None, "cbm";
    "cbm/setups" => None, "cbm";
    "2b-ssd/write-latency" => Some(window::latency::measure);
    "2b-ssd/read-latency" => Some(window::latency::measure);
    "2b-ssd/write-bandwidth" => Some(window::bandwidth::measure);
    "2b-ssd/read-bandwidth" => Some(window::bandwidth::measure);
    "2b-ssd/databases" => Some(window::logs::measure);
    "byte-sides" => Some(window::logs::measure);
    "hmb/fig2" => None;
    "hmb/fig5" => Some(hmb::caches::measure), "hmb-caches";
    "hmb/fig8" => Some(hmb::caches::measure), "hmb-caches";
    "hmb/fig10" => Some(hmb::mapping::measure);
    "mqsim" => None;
};

impl Entry {
    fn planned(&self, asked: Asked, folders: Folders<'_>) -> Result<Planned, Failure> {
        let text = self.endings.iter().fold(self.file.to_owned(), |text, ending| text + "\n" + ending);
        Planned::of_paper(self.name, &text, asked, folders.set, self.measure, |parameters| {
            let mut more = cbm::stand_ins()?;
            if let Some(listed) = parameters.get("traces") {
                more.extend(cbm::traces(listed, folders.traces)?);
            }
            if let Some(loads) = parameters.get("loads").and_then(Value::len) {
                more.extend(mqsim::responses(loads, folders.mqsim)?);
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
            let planned = entry.planned(asked, Folders::default()).expect("built-in files are tested");
            Info { name: entry.name, title: planned.title().to_owned(), source: planned.source().to_owned() }
        };
        ENTRIES.iter().map(info).collect()
    })
}

/// The experiment of this name; of a name that ends with `.toml`, that of the file.
///
/// # Errors
/// When there is no such experiment, or its file asks for what can't be.
pub fn find(name: &str, asked: Asked, folders: Folders<'_>) -> Result<Planned, Failure> {
    if name.ends_with(".toml") {
        if !folders.set.is_empty() {
            return Err(Failure::usage("--set is for built-in experiments").help("change the values in the file"));
        }
        return Planned::from_file(Path::new(name), asked);
    }
    match ENTRIES.iter().find(|entry| entry.name == name) {
        Some(entry) => entry.planned(asked, folders),
        None => Err(Failure::usage(format_args!(
            "there is no experiment `{name}`; did you mean `{}`? `tidewater experiment list` names all",
            meant(name, names()).unwrap_or_default()
        ))),
    }
}

/// Runs an experiment as [`Planned::run`] does; a paper's checks get their statements from the ledger.
///
/// # Errors
/// As there.
pub fn run(planned: &Planned, how: &How, follow: &Arc<dyn Follow>) -> Result<Option<Experiment>, Failure> {
    let mut experiment = planned.run(how, follow)?;
    if let Some(Experiment { name, checks, .. }) = experiment.as_mut().filter(|_| !planned.is_own()) {
        ledger::spell(name, checks, planned.is_changed())?;
    }
    Ok(experiment)
}

/// The figures of a run.
fn named(all: impl IntoIterator<Item = (&'static str, Value)>) -> Names {
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Those of a run with one row.
fn figures<const N: usize>(all: [(&'static str, f64); N]) -> Vec<Names> {
    vec![named(all.map(|(name, value)| (name, value.into())))]
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
            assert!(entry.planned(asked, Folders::default()).unwrap().is_documented(), "{}", entry.name);
        }
    }

    pub(crate) struct Silent;

    impl Follow for Silent {}

    fn made(name: &str, seed: u64, how: &How) -> Result<Option<Experiment>, Failure> {
        let planned = find(name, Asked { seed, quick: true, full: false }, Folders::default())?;
        run(&planned, how, &(Arc::new(Silent) as Arc<dyn Follow>))
    }

    fn quick(name: &str) -> Experiment {
        made(name, 1, &How::new(None, Arc::default())).unwrap().expect("it was not asked to end")
    }

    #[test]
    fn the_latencies_of_the_byte_window_are_those_of_its_paper() {
        for name in ["2b-ssd/write-latency", "2b-ssd/read-latency"] {
            let experiment = quick(name);
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
            let figures = quick(name).figures;
            let given = figures.iter().flat_map(|figure| &figure.series).filter(|series| series.from_paper);
            assert!(given.count() >= least, "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_by_the_nearest() {
        let asked = Asked { seed: 1, quick: true, full: false };
        let text = find("x-ssd/fig8", asked, Folders::default()).err().unwrap().to_string();
        assert!(text.contains("x-ssd/fig8") && text.contains("did you mean `x-ssd/fig"), "{text}");
    }

    #[test]
    fn a_cancelled_experiment_ends_at_its_next_measurement() {
        let how = How::new(None, Arc::new(true.into()));
        for name in ["x-ssd/movements", "x-ssd/fig11", "hmb/fig5", "cbm/threshold"] {
            assert_eq!(made(name, 1, &how), Ok(None), "{name}");
        }
    }

    #[test]
    fn a_value_of_an_experiment_can_be_another() {
        let planned = |name: &str, set: &[&str]| {
            let set: Vec<Setting> = set.iter().map(|one| one.parse().unwrap()).collect();
            let asked = Asked { seed: 1, quick: true, full: false };
            let planned = find(name, asked, Folders { set: &set, ..Folders::default() });
            planned.map(|planned| {
                let how = How::new(None, Arc::default());
                run(&planned, &how, &(Arc::new(Silent) as Arc<dyn Follow>)).unwrap().expect("it was not asked to end")
            })
        };
        let of = |name: &str, set: &[&str]| planned(name, set).unwrap();
        let plain = of("2b-ssd/read-latency", &["sizes=[8, 4096]"]);
        assert!(
            plain.rows.len() == 10 && plain.differences[0].contains("`sizes=[8, 4096]`"),
            "{:?}",
            plain.differences
        );
        let slow = of("2b-ssd/read-latency", &["sizes=[8, 4096]", "host.command_time=1ms"]);
        assert_ne!(plain.rows, slow.rows);
        let refused = |set| planned("2b-ssd/read-latency", &[set]).err().unwrap().to_string();
        assert!(refused("size=8").contains("it has: sizes"), "{}", refused("size=8"));
        assert!(refused("sizes=8").contains("expected a value such as [8, 64"), "{}", refused("sizes=8"));
        assert!(refused("host.comand_time=8us").contains("host.command_time"), "{}", refused("host.comand_time=8us"));
        assert!(planned("mine.toml", &["a=1"]).is_err());
    }

    #[test]
    fn every_seed_is_one() {
        assert!(made("x-ssd/fig13", u64::MAX, &How::new(None, Arc::default())).is_ok());
    }
}
