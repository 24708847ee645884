//! A sweep as a file: what every run has, what varies, what is sampled, and what is left out.

use crate::drive::DriveSpec;
use crate::load::{LoadSpec, SynthLoad};
use crate::trace::Reading;
use crate::vary::{Plan, combinations};
use crate::{Failure, Setting, Variation, factor};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tidewater_base::rng::Rng;
use tidewater_base::units;
use tidewater_core::ftl::Precondition;
use tidewater_sim::run::parse_precondition;
use toml::Spanned;

/// A sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The load.
    pub load: LoadSpec,
    /// The drive.
    pub drive: DriveSpec,
    /// The variations; the last changes fastest.
    pub vary: Vec<Variation>,
    /// A sampled design in place of every combination of some keys.
    pub sample: Option<Sample>,
    /// Combinations that are left out: each is one where all of its settings hold.
    pub skip: Vec<Vec<Condition>>,
}

/// Keys that are sampled together: each value of each key is drawn equally often (a Latin hypercube).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sample {
    /// Points.
    pub points: usize,
    /// Seed of the design; of the runs, `seed` is.
    #[serde(default)]
    pub seed: u64,
    /// The keys, each with a list of values or a range.
    pub vary: BTreeMap<String, Given>,
}

/// `KEY=VALUE` or `KEY!=VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    setting: Setting,
    equal: bool,
}

impl std::str::FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        let (text, equal) = match text.split_once("!=") {
            Some((key, value)) => (format!("{key}={value}"), false),
            None => (text.to_owned(), true),
        };
        Ok(Condition { setting: text.parse()?, equal })
    }
}

/// A value of a file: what `--set` takes, without quotes where TOML needs none; a list of them, or a range.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Given {
    /// One.
    One(Scalar),
    /// Several.
    Several(Vec<Scalar>),
}

/// A number, a word, or yes and no.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Scalar {
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Another number.
    Number(f64),
    /// A word.
    Word(String),
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Scalar::Flag(value) => value.fmt(f),
            Scalar::Whole(value) => value.fmt(f),
            Scalar::Number(value) => value.fmt(f),
            Scalar::Word(value) => f.write_str(value),
        }
    }
}

impl Given {
    /// The values; ranges are written out, but not in `job` and `trace`, which are lists of one text each.
    fn variation(&self, key: &str) -> Result<Variation, String> {
        let whole = ["job", "trace"].contains(&key);
        let values: Vec<String> = match self {
            Given::One(value) => vec![value.to_string()],
            Given::Several(values) => values.iter().map(ToString::to_string).collect(),
        };
        if values.is_empty() {
            return Err(format!("{key}: an empty list"));
        }
        if whole { Variation::of(key, values) } else { format!("{key}={}", values.join(",")).parse() }
    }
}

/// The load of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct LoadTable {
    trace: Option<Paths>,
    job: Option<String>,
    synth: Option<SynthLoad>,
    format: Option<String>,
    columns: Option<String>,
    slice: Option<String>,
    device: Option<String>,
    skip_bad: bool,
    compact: bool,
    repeat: Option<u64>,
    queue_depth: Option<u32>,
    speedup: Option<f64>,
    wrap: bool,
    power_cut: Option<String>,
    warm_up: u64,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Paths {
    One(PathBuf),
    Several(Vec<PathBuf>),
}

/// A plan as it stands in a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct PlanTable {
    profile: PathBuf,
    capacity: Option<String>,
    precondition: String,
    seed: u64,
    pub(crate) set: BTreeMap<String, Scalar>,
    pub(crate) load: LoadTable,
    pub(crate) vary: BTreeMap<Spanned<String>, Given>,
    sample: Option<Sample>,
    skip: Vec<String>,
}

impl Default for PlanTable {
    fn default() -> PlanTable {
        PlanTable {
            profile: "generic".into(),
            capacity: None,
            precondition: "fresh".into(),
            seed: 1,
            set: BTreeMap::new(),
            load: LoadTable::default(),
            vary: BTreeMap::new(),
            sample: None,
            skip: Vec::new(),
        }
    }
}

impl Sweep {
    /// Every combination of these variations.
    pub fn of(load: LoadSpec, drive: DriveSpec, vary: Vec<Variation>) -> Sweep {
        Sweep { load, drive, vary, sample: None, skip: Vec::new() }
    }

    /// How many runs it has, in words, where these are more than `most`.
    pub fn too_many(&self, most: usize) -> Option<String> {
        let runs = self.vary.iter().try_fold(1usize, |runs, vary| runs.checked_mul(vary.values.len()));
        match runs {
            Some(runs) if runs <= most => None,
            Some(runs) => Some(runs.to_string()),
            None => Some("too many".to_owned()),
        }
    }

    /// Reads the file of a sweep. Paths in it begin at the file's folder.
    ///
    /// # Errors
    /// When it can't be read, or is no plan.
    pub fn from_file(path: &Path) -> Result<Sweep, Failure> {
        let text = crate::read(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Sweep::parse(&text, folder).map_err(|failure| failure.within(path.display()))
    }

    /// Reads the text of a plan; paths in it begin at `folder`.
    ///
    /// # Errors
    /// When it is no plan.
    pub fn parse(text: &str, folder: &Path) -> Result<Sweep, Failure> {
        let table: PlanTable = toml::from_str(text).map_err(|error| Failure::usage(error.to_string().trim_end()))?;
        table.sweep(folder)
    }

    /// The runs.
    ///
    /// # Errors
    /// When a key cannot be varied.
    pub fn plans(&self) -> Result<Vec<Plan>, Failure> {
        if self.load.traces.is_empty()
            && self.load.job.is_none()
            && self.load.synth.is_none()
            && !self.vary.iter().any(|vary| ["trace", "job"].contains(&vary.key.as_str()))
        {
            return Err(Failure::usage("the sweep has no load")
                .help("give it a trace or a job: in [load], or several in [vary]"));
        }
        let mut plans = match &self.sample {
            None => combinations(&self.load, &self.drive, &self.vary)?,
            Some(sample) => {
                let mut plans = Vec::new();
                for point in sample.points()? {
                    let vary: Vec<Variation> = point.into_iter().chain(self.vary.clone()).collect();
                    plans.extend(combinations(&self.load, &self.drive, &vary)?);
                }
                plans
            }
        };
        for condition in self.skip.iter().flatten() {
            let key = &condition.setting.key;
            if let Some(plan) = plans.first()
                && !plan.point.iter().any(|setting| setting.key == *key)
            {
                return Err(Failure::usage(format_args!("skip: {key} does not vary"))
                    .help("name keys that stand in [vary] or [sample]"));
            }
        }
        plans.retain(|plan| !self.skip.iter().any(|all| all.iter().all(|one| one.holds(plan))));
        if plans.is_empty() {
            return Err(Failure::usage("the conditions in skip leave no run"));
        }
        Ok(plans)
    }
}

impl PlanTable {
    /// The sweep of the table; paths in it begin at `folder`.
    ///
    /// # Errors
    /// Of values that can't be.
    pub(crate) fn sweep(self, folder: &Path) -> Result<Sweep, Failure> {
        let file = self;
        let wrong = |key: &str, why: &dyn std::fmt::Display| Failure::usage(format_args!("{key}: {why}"));
        // A bundled sample and a built-in profile have no folder.
        let place = |path: PathBuf| if folder.join(&path).exists() { folder.join(path) } else { path };
        let load = file.load;
        let reading = Reading {
            format: load.format.map(|name| name.parse()).transpose().map_err(|why| wrong("load.format", &why))?,
            columns: load.columns.map(|names| names.parse()).transpose().map_err(|why| wrong("load.columns", &why))?,
            slice: load.slice.map(|range| range.parse()).transpose().map_err(|why| wrong("load.slice", &why))?,
            device: load.device,
            skip_bad: load.skip_bad,
            compact: load.compact,
        };
        let traces = match load.trace {
            None => Vec::new(),
            Some(Paths::One(path)) => vec![place(path)],
            Some(Paths::Several(paths)) => paths.into_iter().map(place).collect(),
        };
        if !traces.is_empty() && load.job.is_some() {
            return Err(Failure::usage("load: a trace and a job").help("leave one of them out"));
        }
        if load.synth.is_some() && (!traces.is_empty() || load.job.is_some()) {
            return Err(
                Failure::usage("load: a trace or a job, and one to be synthesized").help("leave one of them out")
            );
        }
        let power_cut = load
            .power_cut
            .map(|time| units::parse_duration(&time))
            .transpose()
            .map_err(|why| wrong("load.power-cut", &why))?;
        let speedup = load
            .speedup
            .map(|speedup| factor(&speedup.to_string()))
            .transpose()
            .map_err(|why| wrong("load.speedup", &why))?;
        if load.queue_depth.is_some_and(|depth| !(1..=65_535).contains(&depth)) {
            return Err(wrong("load.queue-depth", &"expected 1 to 65535"));
        }
        if load.queue_depth.is_some() && speedup.is_some() {
            return Err(wrong(
                "load",
                &"a queue depth ignores the times that a speedup divides; leave one of them out",
            ));
        }
        let job = load.job.map(|job| if job.contains('=') { job } else { place(job.into()).display().to_string() });
        let load = LoadSpec {
            traces,
            job,
            synth: load.synth,
            reading,
            repeat: load.repeat,
            queue_depth: load.queue_depth,
            speedup,
            wrap: load.wrap,
            power_cut,
            warm_up: load.warm_up,
        };
        let precondition: Precondition =
            parse_precondition(&file.precondition).map_err(|why| wrong("precondition", &why))?;
        let set = file.set.iter().map(|(key, value)| Setting { key: key.clone(), value: value.to_string() }).collect();
        let drive =
            DriveSpec { profile: place(file.profile), set, capacity: file.capacity, precondition, seed: file.seed };
        // In the order of the file: the last varies fastest.
        let mut vary = Vec::new();
        let mut given: Vec<(Spanned<String>, Given)> = file.vary.into_iter().collect();
        given.sort_by_key(|(key, _)| key.span().start);
        for (key, given) in given {
            let key = key.into_inner();
            let mut variation = given.variation(&key).map_err(|why| wrong(&format!("vary.{key}"), &why))?;
            if key == "trace" || key == "profile" {
                let placed = variation.values.into_iter().map(|value| place(value.into()).display().to_string());
                variation.values = placed.collect();
            }
            vary.push(variation);
        }
        let skip = file.skip.iter().map(|text| conditions(text).map_err(|why| wrong("skip", &why)));
        let skip = skip.collect::<Result<_, _>>()?;
        Ok(Sweep { load, drive, vary, sample: file.sample, skip })
    }
}

fn conditions(text: &str) -> Result<Vec<Condition>, String> {
    let all: Vec<Condition> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    if all.is_empty() { Err("an empty condition".into()) } else { Ok(all) }
}

impl Condition {
    fn holds(&self, plan: &Plan) -> bool {
        let same = |setting: &Setting| setting.key == self.setting.key && setting.value == self.setting.value;
        plan.point.iter().any(same) == self.equal
    }
}

impl Sample {
    /// The points, each a variation of one value for each key: of every key each value comes equally often, as far as
    /// their numbers allow, in an order of its own.
    fn points(&self) -> Result<Vec<Vec<Variation>>, Failure> {
        if self.points == 0 || self.vary.is_empty() {
            return Err(Failure::usage("[sample]: expected points above 0, and keys in [sample.vary]"));
        }
        let mut rng = Rng::new(self.seed, b"latin hypercube");
        let mut points = vec![Vec::new(); self.points];
        for (key, given) in &self.vary {
            let variation =
                given.variation(key).map_err(|why| Failure::usage(format_args!("sample.vary.{key}: {why}")))?;
            let mut order: Vec<usize> = (0..self.points).collect();
            for i in (1..order.len()).rev() {
                order.swap(i, rng.below(i as u64 + 1) as usize);
            }
            for (point, place) in points.iter_mut().zip(order) {
                let value = &variation.values[place * variation.values.len() / self.points];
                point.push(Variation { key: key.clone(), values: vec![value.clone()] });
            }
        }
        Ok(points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(text: &str) -> Result<Vec<Plan>, Failure> {
        Sweep::parse(text, Path::new(""))?.plans()
    }

    fn labels(text: &str) -> Vec<String> {
        plans(text).unwrap().into_iter().map(|plan| plan.label).collect()
    }

    #[test]
    fn lists_ranges_and_conditions_make_the_runs() {
        let labels = labels(
            "profile = \"generic\"\nskip = [\"nand.channels=1 buffer.write_policy!=none\"]\n[load]\njob = \
             \"rw=randwrite,size=1m\"\n[vary]\n\"nand.channels\" = \"1..4*2\"\n\"buffer.write_policy\" = [\"none\", \
             \"lru\"]\nseed = \"1..2\"\n",
        );
        assert_eq!(labels.len(), 3 * 2 * 2 - 2);
        assert_eq!((labels[0].as_str(), labels[9].as_str()), ("channels=1 none seed=1", "channels=4 lru seed=2"));
    }

    #[test]
    fn several_loads_vary_as_settings_do() {
        let plans = plans(
            "[vary]\njob = [\"rw=randwrite,size=1m,iodepth=4\", \"rw=randread,size=1m\"]\nprofile = [\"generic\", \
             \"tlc-client\"]\n",
        )
        .unwrap();
        assert_eq!(plans.len(), 4);
        assert_eq!(plans[3].load.job.as_deref(), Some("rw=randread,size=1m"));
        assert_eq!(plans[3].point[1], Setting { key: "profile".into(), value: "tlc-client".into() });
    }

    #[test]
    fn a_sample_takes_every_value_of_every_key_equally_often() {
        let text = "[load]\njob = \"rw=randwrite,size=1m\"\n[sample]\npoints = 12\nseed = 3\n[sample.vary]\n\
                    \"nand.channels\" = [1, 2, 4]\n\"ftl.over_provisioning\" = \"7%..28%+7%\"\n";
        let plans = plans(text).unwrap();
        assert_eq!(plans.len(), 12);
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for setting in plans.iter().flat_map(|plan| &plan.point) {
            *counts.entry(setting.to_string()).or_default() += 1;
        }
        let of =
            |key: &str| counts.iter().filter(|(name, _)| name.starts_with(key)).map(|(_, n)| *n).collect::<Vec<_>>();
        assert_eq!(of("nand.channels"), [4, 4, 4]);
        assert_eq!(of("ftl.over_provisioning"), [3, 3, 3, 3]);
        assert_ne!(labels(text), labels(&text.replace("seed = 3", "seed = 4")));
        assert_eq!(labels(text), labels(text));
    }

    #[test]
    fn what_is_no_plan_is_refused_by_name() {
        let job = "[load]\njob = \"rw=read,size=1m\"\n";
        for (text, part) in [
            ("", "no load"),
            ("[load]\njbo = \"x\"\n", "jbo"),
            ("[load]\ntrace = \"a\"\njob = \"b\"\n", "a trace and a job"),
            ("[load]\nqueue-depth = 0\n", "65535"),
            ("precondition = \"old\"\n", "precondition"),
            (&format!("{job}[vary]\n\"nand.channels\" = {{}}\n"), "line 4"),
            (&format!("{job}[vary]\nseed = []\n"), "empty list"),
            (&format!("skip = [\"seed=3\"]\n{job}[vary]\nprofile = \"generic\"\n"), "does not vary"),
            (&format!("skip = [\"seed=1\"]\n{job}[vary]\nseed = 1\n"), "leave no run"),
            (&format!("{job}[sample]\npoints = 0\n[sample.vary]\nseed = 1\n"), "points"),
        ] {
            let failure = plans(text).unwrap_err();
            assert!(failure.message.contains(part), "{text}: {failure}");
        }
    }
}
