//! The load of a run: a trace or a job, as a stream of requests and in words.

use crate::Failure;
use crate::shared::{Opened, SharedTraces, alone};
use crate::trace::{self, Reading};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tidewater_base::{Duration, units};
use tidewater_core::device;
use tidewater_core::profile::Profile;
use tidewater_report::record::{self, WorkloadKind};
use tidewater_sim::run::Pacing;
use tidewater_sim::trace::{self as sim, Input, Options};
use tidewater_sim::workload::job::{Access, Amount, Distribution, Order, ThreadSpec};
use tidewater_sim::workload::{JobSpec, Op, Repeat, Source, Synth, SynthSpec, Together, Workload};

/// A load as it is asked for, and the options that it is run with: traces, or a job.
#[derive(Clone, Debug, Default)]
pub struct LoadSpec {
    /// Traces, each a file, `-` for standard input, or a bundled sample's name. Several run at once, each in a region
    /// of its own.
    pub traces: Vec<PathBuf>,
    /// A fio job: a file, or the job itself.
    pub job: Option<String>,
    /// A trace that is made while it runs, with the statistics of a paper's.
    pub synth: Option<SynthLoad>,
    /// How traces are read.
    pub reading: Reading,
    /// Passes over a trace.
    pub repeat: Option<u64>,
    /// So many requests are kept outstanding, 1 to 65,535, whatever the load says.
    pub queue_depth: Option<u32>,
    /// Arrivals come so many times faster; above 0.
    pub speedup: Option<f64>,
    /// Addresses past the end of the drive wrap around.
    pub wrap: bool,
    /// The power is cut at this time of the drive's clock.
    pub power_cut: Option<Duration>,
    /// Requests that are served before the measurement begins.
    pub warm_up: u64,
}

/// A synthesized trace.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SynthLoad {
    /// The workload whose statistics it has.
    like: String,
    /// Requests.
    requests: u64,
    /// Its footprint is so many times smaller than that workload's.
    #[serde(default = "once")]
    smaller: f64,
    /// As [`SynthSpec::shared_percent`].
    #[serde(default)]
    shared_percent: f64,
}

fn once() -> f64 {
    1.0
}

impl SynthLoad {
    fn spec(&self) -> Result<SynthSpec, Failure> {
        let spec = SynthSpec::cbm(&self.like)
            .ok_or_else(|| Failure::usage(format_args!("synth: there is no workload `{}`", self.like)))?;
        let footprint_mib = spec.footprint_mib / self.smaller;
        Ok(SynthSpec { requests: self.requests, footprint_mib, shared_percent: self.shared_percent, ..spec })
    }
}

/// A drive's load.
pub struct Load {
    /// The requests.
    pub source: Workload,
    /// When they are issued.
    pub pacing: Pacing,
    /// The simulated time after which none is issued.
    pub runtime: Option<Duration>,
    /// Its description in the record.
    pub described: record::Workload,
    /// Warnings for readers of the results.
    pub warnings: Vec<String>,
}

/// A load that can be opened, once for each run.
pub enum Origin {
    /// A trace, or several at once.
    Traces(Vec<Input>),
    /// A job, and how it was given.
    Job(JobSpec, String),
    /// A synthesized trace, and whose statistics it has.
    Synth(SynthSpec, String),
}

impl Origin {
    /// Finds the load of the command line.
    ///
    /// # Errors
    /// When there is no such trace, or the job is wrong.
    pub fn find(given: &LoadSpec) -> Result<Origin, Failure> {
        match (&given.traces[..], &given.job) {
            ([_, ..], _) => {
                let inputs: Vec<Input> = given.traces.iter().map(|path| trace::find(path)).collect::<Result<_, _>>()?;
                if let Some(once) = inputs.iter().find(|input| !input.rereadable()) {
                    let why = match (inputs.len(), given.repeat) {
                        (2.., _) => "several traces at once need to be placed side by side",
                        (_, Some(2..)) => "--repeat reads the trace again for each pass",
                        _ => return Ok(Origin::Traces(inputs)),
                    };
                    return Err(Failure::usage(format_args!(
                        "{}: {why}, and this one can be read only once",
                        once.name()
                    ))
                    .help("store the trace in a file first"));
                }
                Ok(Origin::Traces(inputs))
            }
            ([], Some(job)) => {
                let spec = JobSpec::from_argument(job).map_err(Failure::refused)?;
                let paced = spec.threads.iter().any(is_paced);
                if given.speedup.is_some() && !paced {
                    return Err(Failure::usage("--speedup has no effect on a job without a rate")
                        .help("give the job a rate_iops, or leave --speedup out"));
                }
                Ok(Origin::Job(spec, job.clone()))
            }
            ([], None) => match &given.synth {
                Some(synth) => Ok(Origin::Synth(synth.spec()?, synth.like.clone())),
                None => Err(Failure::usage("neither --trace nor --job was given")),
            },
        }
    }

    /// Whether it can be opened again, for another run.
    pub fn is_repeatable(&self) -> bool {
        match self {
            Origin::Traces(inputs) => inputs.iter().all(Input::rereadable),
            Origin::Job(..) | Origin::Synth(..) => true,
        }
    }

    /// Opens it for a run on this drive; with `shared`, traces are read once for all runs.
    ///
    /// # Errors
    /// When the trace cannot be read, or the job does not fit the drive.
    pub fn open(
        &self,
        given: &LoadSpec,
        profile: &Profile,
        seed: u64,
        shared: Option<&SharedTraces>,
    ) -> Result<Load, Failure> {
        match self {
            Origin::Traces(inputs) => open_traces(inputs, given, profile, shared),
            Origin::Job(spec, text) => open_job(spec, text, given, profile, seed),
            Origin::Synth(spec, like) => open_synth(&SynthSpec { seed, ..spec.clone() }, like, given),
        }
    }

    /// Signs before a run that its traces are misread: columns or units in doubt. Records have them as warnings.
    pub fn doubts(&self, given: &LoadSpec) -> Vec<String> {
        match self {
            Origin::Traces(inputs) => doubts(inputs, given),
            Origin::Job(..) | Origin::Synth(..) => Vec::new(),
        }
    }
}

impl LoadSpec {
    /// The files of the traces or of the job, which no result may overwrite.
    pub fn input_files(&self) -> impl Iterator<Item = &Path> {
        self.traces.iter().map(PathBuf::as_path).chain(self.job.as_deref().map(Path::new))
    }
}

/// The traces, read as `reader` says, and in all: their extent, where it is known.
fn read_all(
    inputs: &[Input],
    reader: &Options,
    shared: Option<&SharedTraces>,
) -> Result<(Vec<Opened>, Option<u64>), Failure> {
    let open = |input| {
        let opened = shared.map_or_else(|| alone(input, reader), |shared| shared.open(input, reader));
        opened.map_err(|error| trace::refusal(&error))
    };
    let traces: Vec<Opened> = inputs.iter().map(open).collect::<Result<_, _>>()?;
    // As they will lie: each begins at a multiple of 1 MiB.
    let extent = traces
        .iter()
        .try_fold(0u64, |sum, trace| sum.checked_next_multiple_of(1 << 20)?.checked_add(trace.source.extent()?));
    Ok((traces, extent))
}

/// Signs that these traces are misread.
fn doubts(inputs: &[Input], given: &LoadSpec) -> Vec<String> {
    let options = trace::options(&given.reading, false);
    inputs.iter().flat_map(|input| sim::doubts(input, &options, given.queue_depth.is_none())).collect()
}

fn open_traces(
    inputs: &[Input],
    given: &LoadSpec,
    profile: &Profile,
    shared: Option<&SharedTraces>,
) -> Result<Load, Failure> {
    let reading = &given.reading;
    let mut reader = trace::options(reading, true);
    let (mut traces, mut extent) = read_all(inputs, &reader, shared)?;
    let mut warnings = doubts(inputs, given);
    // A trace of many volumes can span more than any drive while it touches little: no drive of that size is meant.
    if let Some(all) = extent
        && usable(profile).is_none()
        && !reader.compact
        && device::plan(profile, all).is_err()
    {
        reader.compact = true;
        (traces, extent) = read_all(inputs, &reader, shared)?;
        warnings.push(format!(
            "the addresses of the trace span {}, more than a drive of this profile can have: ranges that no request \
             touches were left out, as with --compact, and {} remain; give a capacity and --wrap to do otherwise",
            units::bytes(all),
            extent.map_or_else(|| "less".to_owned(), units::bytes)
        ));
    }
    let several = |one: &str| if traces.len() == 1 { format!("{one} trace") } else { format!("{one} traces") };
    let mut formats: Vec<&str> = traces.iter().map(|trace| trace.format.name()).collect();
    formats.dedup();
    let mut words = vec![several(&formats.join(" and "))];
    let requests = traces.iter().try_fold(0u64, |sum, trace| Some(sum + trace.source.expected_requests()?));
    words.extend(requests.map(|requests| units::plural_exact(requests, "request")));
    words.extend(extent.map(|extent| format!("addresses up to {}", units::bytes(extent))));
    if traces.len() > 1 {
        words.push(format!("{} at once", traces.len()));
    }
    words.extend(reading.slice.as_ref().map(|slice| format!("only requests {slice}")));
    let passes = given.repeat.unwrap_or(1);
    if passes > 1 {
        words.push(format!("{passes} times"));
    }
    let mut options = BTreeMap::from([("format".to_owned(), formats.join(","))]);
    let mut option = |name: &str, value: Option<String>| options.extend(value.map(|value| (name.to_owned(), value)));
    option("columns", reading.columns.as_ref().map(ToString::to_string));
    option("slice", reading.slice.as_ref().map(ToString::to_string));
    option("device", reading.device.clone());
    option("skip_bad", reading.skip_bad.then(|| "true".to_owned()));
    option("compact", reader.compact.then(|| "true".to_owned()));
    option("repeat", (passes > 1).then(|| passes.to_string()));
    let described = record::Workload {
        kind: WorkloadKind::Trace,
        source: inputs.iter().map(Input::name).collect::<Vec<_>>().join(", "),
        description: words.join(", "),
        options,
    };
    let mut sources: Vec<Workload> = traces
        .into_iter()
        .map(|opened| {
            let source = trace::sliced(opened.source, reading);
            if passes > 1 { Workload::Repeat(Box::new(Repeat::new(source, passes))) } else { source }
        })
        .collect();
    let source = if sources.len() == 1 { sources.remove(0) } else { together(sources)? };
    let pacing = given.queue_depth.map_or(Pacing::Arrival, Pacing::Depth);
    Ok(Load { source, pacing, runtime: None, described, warnings })
}

fn together(sources: Vec<Workload>) -> Result<Workload, Failure> {
    let together = Together::new(sources).ok_or_else(|| {
        Failure::usage("the traces have more addresses together than 2^63 bytes")
            .help("--compact leaves out what they do not touch")
    })?;
    Ok(Workload::Together(Box::new(together)))
}

fn open_synth(spec: &SynthSpec, like: &str, given: &LoadSpec) -> Result<Load, Failure> {
    let source = Workload::Synth(Box::new(Synth::new(spec).map_err(Failure::refused)?));
    let described = record::Workload {
        kind: WorkloadKind::Synth,
        source: like.to_owned(),
        description: format!("synthesized, {}", units::plural_exact(spec.requests, "request")),
        options: BTreeMap::new(),
    };
    let pacing = given.queue_depth.map_or(Pacing::Arrival, Pacing::Depth);
    Ok(Load { source, pacing, runtime: None, described, warnings: Vec::new() })
}

fn is_paced(thread: &ThreadSpec) -> bool {
    thread.rate.iter().chain(&thread.rate_iops).any(Option::is_some)
}

fn open_job(spec: &JobSpec, text: &str, given: &LoadSpec, profile: &Profile, seed: u64) -> Result<Load, Failure> {
    let capacity = usable(profile).or_else(|| spec.extent());
    let mut source = spec.source(capacity, seed).map_err(|error| {
        let failure = Failure::refused(error);
        if capacity.is_some() { failure } else { failure.help("give the job a size=, or the drive a --capacity") }
    })?;
    if let (Some(drive), Some(needed), false) = (usable(profile), source.extent(), given.wrap)
        && needed > drive
    {
        let place = source.largest().map_or_else(String::new, |name| format!(" (section \"{name}\")"));
        return Err(Failure::usage(format_args!(
            "{text}: the job reaches up to {}{place}, and the drive has {}",
            units::bytes(needed),
            units::bytes(drive)
        ))
        .help("give the job a smaller size=, or the drive a larger --capacity; --wrap brings addresses back into it"));
    }
    if given.queue_depth.is_some() {
        source.share_depth();
    }
    let depth = given.queue_depth.unwrap_or_else(|| spec.iodepth()).clamp(1, 65_535);
    let paced = spec.threads.iter().filter(|thread| is_paced(thread)).count();
    let pacing = if paced > 0 { Pacing::ArrivalAndDepth(depth) } else { Pacing::Depth(depth) };
    let mut warnings = Vec::new();
    if paced > 0 && paced < spec.threads.len() {
        warnings.push(
            "some threads of the job have a rate and some have none: they are issued in turn, so the rate limits all \
             of them; put them into jobs of their own to keep them apart"
                .to_owned(),
        );
    }
    let mut described = record::Workload {
        kind: WorkloadKind::Job,
        source: text.to_owned(),
        description: describe(spec, depth),
        options: BTreeMap::new(),
    };
    if let Some(slice) = &given.reading.slice {
        described.description += &format!(", only requests {slice}");
        described.options.insert("slice".into(), slice.to_string());
    }
    let runtime = source.runtime();
    Ok(Load {
        source: trace::sliced(Workload::Job(Box::new(source)), &given.reading),
        pacing,
        runtime,
        described,
        warnings,
    })
}

/// The usable bytes of a drive, where its profile tells.
fn usable(profile: &Profile) -> Option<u64> {
    match (profile.drive.capacity, profile.nand.blocks_per_plane) {
        (0, 0) => None,
        (0, _) => device::plan(profile, 0).ok().map(|plan| plan.units * u64::from(profile.ftl.unit_size)),
        (capacity, _) => Some(capacity),
    }
}

/// A job in one line.
fn describe(spec: &JobSpec, depth: u32) -> String {
    let Some(thread) = spec.threads.first() else { return String::new() };
    let mut words = Vec::new();
    let what = match thread.access {
        Access::Read => "reads",
        Access::Write => "writes",
        Access::Trim => "deallocations",
        Access::Mixed => "reads and writes",
        Access::TrimWrite => "deallocations and writes",
    };
    let order = if matches!(thread.order, Order::Random { .. }) { "random" } else { "sequential" };
    let used = match thread.access {
        Access::Read | Access::Mixed => 0,
        Access::Write => 1,
        Access::Trim | Access::TrimWrite => 2,
    };
    let size = match thread.blocks[used].0[..] {
        [(bytes, _)] => units::bytes(bytes),
        _ => "mixed sizes".to_owned(),
    };
    let what = match thread.write_op {
        Op::WriteZeroes => what.replace("writes", "writes of zeroes"),
        Op::Verify => what.replace("writes", "verifications"),
        _ => what.to_owned(),
    };
    words.push(format!("{order} {what} of {size}"));
    if thread.access == Access::Mixed {
        words[0] += &format!(", {} % reads", thread.read_percent);
    }
    words.extend(match &thread.distribution {
        Distribution::Uniform => None,
        Distribution::Zipf(exponent) => Some(format!("zipf {exponent}")),
        Distribution::Pareto(power) => Some(format!("pareto {power}")),
        Distribution::Normal(deviation) => Some(format!("normal {deviation} %")),
        Distribution::Zoned(_) => Some("zoned".to_owned()),
    });
    if thread.verify {
        words.push("read back at the end".to_owned());
    }
    if let Some(Amount::Bytes(bytes)) = thread.size {
        words.push(format!("over {}", units::bytes(bytes)));
    }
    if spec.threads.len() > 1 {
        words.push(format!("and {}", units::plural(spec.threads.len() as u64 - 1, "more thread")));
    }
    words.push(format!("queue depth {depth}"));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(name: &str) -> LoadSpec {
        LoadSpec { traces: vec![name.into()], ..LoadSpec::default() }
    }

    fn job(text: &str) -> LoadSpec {
        LoadSpec { job: Some(text.into()), ..LoadSpec::default() }
    }

    fn load(given: &LoadSpec, profile: &Profile) -> Result<Load, Failure> {
        Origin::find(given)?.open(given, profile, 1, None)
    }

    #[test]
    fn the_pace_follows_trace_job_and_options() {
        let pacing = |given: LoadSpec| load(&given, &Profile::generic()).unwrap().pacing;
        assert_eq!(pacing(trace("sample")), Pacing::Arrival);
        assert_eq!(pacing(LoadSpec { queue_depth: Some(4), ..trace("sample") }), Pacing::Depth(4));
        assert_eq!(pacing(job("rw=randread,size=1g,iodepth=8,numjobs=2")), Pacing::Depth(16));
        assert_eq!(pacing(LoadSpec { queue_depth: Some(3), ..job("rw=randread,size=1g,iodepth=8") }), Pacing::Depth(3));
        assert_eq!(pacing(job("rw=randread,size=1g,rate_iops=100")), Pacing::ArrivalAndDepth(1));
    }

    #[test]
    fn a_job_takes_the_size_of_its_drive_or_asks_for_one() {
        let tiny = tidewater_core::profile::builtin("tiny").unwrap();
        let all = load(&job("rw=read"), &tiny).unwrap().source.extent();
        assert_eq!(all, usable(&tiny));
        let failure = load(&job("rw=read"), &Profile::generic()).err().unwrap();
        assert!(failure.help.unwrap().contains("--capacity"));
        assert!(load(&LoadSpec { speedup: Some(2.0), ..job("rw=read,size=1m") }, &tiny).is_err());
    }

    #[test]
    fn a_sparse_trace_beyond_any_drive_is_compacted_and_says_so() {
        let far = 1u64 << 37;
        let text = format!("0,0,4096,W,0.0\n0,{far},4096,W,0.1\n");
        let input = Input::from_bytes("far.spc", text.as_bytes());
        let mut line = trace("far.spc");
        line.reading.format = "spc".parse().ok();
        let inputs = [input];
        let load = open_traces(&inputs, &line, &Profile::generic(), None).unwrap();
        assert!(load.source.extent().unwrap() <= 2 << 20);
        assert!(load.warnings[0].contains("64 TiB") && load.warnings[0].contains("--compact"), "{:?}", load.warnings);
        // On a drive of given size the addresses are what they are, and the run refuses or wraps them.
        let mut given_size = Profile::generic();
        given_size.set("drive.capacity", "1GiB").unwrap();
        let load = open_traces(&inputs, &line, &given_size, None).unwrap();
        assert!(load.source.extent().unwrap() > 1 << 40 && load.warnings.is_empty());
    }
}
