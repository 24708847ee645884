//! `tidewater compare`: one load on several drives.

use crate::args::{self, Setting, Variation};
use crate::drive;
use crate::failure::Failure;
use crate::interrupt::{self, Running};
use crate::load::{self, Origin};
use crate::output::{self, Delivery, Target, distinct};
use crate::replay::{One, interrupted, prepare};
use crate::report::{array, width};
use tidewater_core::profile;
use tidewater_report::compare::{self, Labelled};
use tidewater_sim::run::parse_precondition;

/// The most runs of one comparison: more are not readable side by side.
const RUNS_MAX: usize = 64;

/// Options of `replay` that can be varied besides the keys of a profile.
pub const OPTIONS: [&str; 6] = ["profile", "queue-depth", "speedup", "precondition", "power-cut", "seed"];

/// `tidewater compare`.
///
/// # Errors
/// What cannot be run or compared, and results that cannot be written.
pub fn command(given: &args::Compare) -> Result<(), Failure> {
    let json = Target::maybe(given.json.as_ref())?;
    let csv = Target::maybe(given.csv.as_ref())?;
    let report = Target::maybe(given.report.as_ref())?;
    let targets = [json.as_ref(), csv.as_ref(), report.as_ref()];
    for file in load::input_files(&given.load) {
        distinct(&targets, Some(file))?;
    }
    let plans = plans(given)?;
    for plan in &plans {
        distinct(&targets, Some(&plan.drive.profile))?;
    }
    // What can be found before the first run is found before it.
    let mut prepared = Vec::new();
    for plan in &plans {
        let drive = prepare(&plan.drive).map_err(|failure| within(plan, failure))?;
        let origin = Origin::find(&plan.load)?;
        if !origin.is_repeatable() && plans.len() > 1 {
            return Err(Failure::usage(
                "a comparison reads its trace several times, but this one can be read only once",
            )
            .help("store the trace in a file first"));
        }
        prepared.push((plan, drive, origin));
    }
    let mut runs: Vec<Labelled> = Vec::new();
    // From the first result on there is something to keep; before that, a run says itself when there is.
    let (mut running, mut failed) = (None, None);
    for (plan, drive, origin) in &prepared {
        let what = format!("{}/{} {}", runs.len() + 1, plans.len(), plan.label);
        let run = One { origin, load: &plan.load, drive, given: &plan.drive };
        let record = match run.run(&what, None) {
            Ok(record) => record,
            Err(failure) => {
                failed = Some(within(plan, failure));
                break;
            }
        };
        running.get_or_insert_with(Running::begin);
        runs.push(Labelled { label: plan.label.clone(), record });
        if interrupt::requested() {
            break;
        }
    }
    drop(running);
    if let Some(failure) = failed.take_if(|_| runs.is_empty()) {
        return Err(failure);
    }

    let title = given.vary.iter().map(|vary| vary.key.as_str()).collect::<Vec<_>>().join(" and ");
    let title = format!("What {title} change{}", if given.vary.len() == 1 { "s" } else { "" });
    let mut files: Vec<Delivery<'_>> = Vec::new();
    if let Some(target) = &json {
        files.push(("records: ".into(), target, Box::new(|| target.write(&array(&runs)))));
    }
    if let Some(target) = &csv {
        files.push(("figures: ".into(), target, Box::new(|| target.write(&compare::csv(&runs)))));
    }
    if let Some(target) = &report {
        files.push(("report: ".into(), target, Box::new(|| target.write(&compare::page(&runs, &title)))));
    }
    let delivered = output::deliver(&compare::table(&runs, width()), files);
    if let Some(failure) = failed {
        if let Err(unwritten) = delivered {
            unwritten.tell();
        }
        let done = format!("{}; the results cover only {} of {} runs", failure.message, runs.len(), plans.len());
        return Err(Failure { message: done, ..failure });
    }
    delivered?;
    match runs.last() {
        Some(last) if last.record.partial || runs.len() < plans.len() => {
            let failure = interrupted(&last.record);
            Err(Failure { message: format!("interrupted after {} of {} runs", runs.len(), plans.len()), ..failure })
        }
        _ => Ok(()),
    }
}

/// A failure of one run, with the run's name, unless it names the varied setting itself.
fn within(plan: &Plan, failure: Failure) -> Failure {
    if failure.message.is_empty() {
        return failure;
    }
    for Setting { key, value } in &plan.drive.set {
        let Some((section, name)) = key.rsplit_once('.') else { continue };
        if let Some(why) = failure.message.strip_prefix(&format!("[{section}] {name}: ")) {
            return Failure { message: format!("{key}={value}: {why}"), ..failure };
        }
    }
    Failure { message: format!("{}: {}", plan.label, failure.message), ..failure }
}

/// One run of a comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is varied, as `KEY=VALUE`.
    label: String,
    load: args::Load,
    /// The options of its drive.
    pub drive: args::Drive,
}

/// Every combination; the last `--vary` changes fastest.
///
/// # Errors
/// What cannot be varied, and more runs than can be read side by side.
pub fn plans(given: &args::Compare) -> Result<Vec<Plan>, Failure> {
    let runs = given.vary.iter().try_fold(1usize, |runs, vary| runs.checked_mul(vary.values.len()));
    if runs.is_none_or(|runs| runs > RUNS_MAX) {
        let runs = runs.map_or_else(|| "too many".to_owned(), |runs| runs.to_string());
        return Err(Failure::usage(format_args!("these --vary make {runs} runs; at most {RUNS_MAX} can be compared"))
            .help("vary fewer keys, or fewer values of each"));
    }
    let vary_names = |key: &str| given.vary.iter().any(|vary| vary.key == key);
    for (i, vary) in given.vary.iter().enumerate() {
        if given.vary[..i].iter().any(|other| other.key == vary.key) {
            return Err(Failure::usage(format_args!("--vary {} was given twice", vary.key))
                .help(format_args!("give all its values at once: --vary {}=V1,V2,...", vary.key)));
        }
    }
    for vary in &given.vary {
        if let Some(flag) = given_besides(given, &vary.key) {
            return Err(Failure::usage(format_args!("{} is varied, and given by {flag} too", vary.key))
                .help("leave one of them out"));
        }
    }
    // As for one run: --queue-depth ignores the times that --speedup divides.
    let asked = |key: &str, given: bool| given || vary_names(key);
    if asked("queue-depth", given.load.queue_depth.is_some()) && asked("speedup", given.load.speedup.is_some()) {
        return Err(Failure::usage("a queue depth and a speedup cannot be used together, neither given nor varied")
            .help("a queue depth ignores the times that a speedup divides: leave one of them out"));
    }
    let first = Plan { label: String::new(), load: given.load.clone(), drive: given.drive.clone() };
    given.vary.iter().try_fold(vec![first], |plans, vary| {
        let mut more = Vec::new();
        // Side by side, full keys are too long for a heading; where two end alike, both are given in full.
        let short = vary.key.rsplit('.').next().unwrap_or_default();
        let alike = given.vary.iter().filter(|other| other.key.rsplit('.').next() == Some(short)).count() > 1;
        let name = if alike { vary.key.as_str() } else { short };
        let several = given.vary.len() > 1;
        for plan in plans {
            for value in &vary.values {
                // Of several, a word speaks for itself.
                let word =
                    vary.key == "profile" || several && !alike && !value.starts_with(|c: char| c.is_ascii_digit());
                let label = if word { value.clone() } else { format!("{name}={value}") };
                more.push(varied(&plan, vary, &label, value)?);
            }
        }
        Ok(more)
    })
}

/// The option that gives one value to what is varied, if one does: all runs would have that value, or none.
fn given_besides(given: &args::Compare, key: &str) -> Option<&'static str> {
    let options = [
        ("queue-depth", given.load.queue_depth.is_some(), "--queue-depth"),
        ("speedup", given.load.speedup.is_some(), "--speedup"),
        ("power-cut", given.load.power_cut.is_some(), "--power-cut"),
        ("drive.capacity", given.drive.capacity.is_some(), "--capacity"),
        (key, given.drive.set.iter().any(|set| set.key == key), "--set"),
    ];
    options.into_iter().find(|(name, is_given, _)| *name == key && *is_given).map(|(.., flag)| flag)
}

/// The plan with one more key set, which its label calls `label`.
fn varied(plan: &Plan, vary: &Variation, label: &str, value: &str) -> Result<Plan, Failure> {
    let mut plan = plan.clone();
    let key = vary.key.as_str();
    let gap = if plan.label.is_empty() { "" } else { " " };
    plan.label = format!("{}{gap}{label}", plan.label);
    let wrong = |expected: &str| Failure::usage(format_args!("--vary {key}: expected {expected}, found `{value}`"));
    match key {
        "profile" => plan.drive.profile = value.into(),
        "queue-depth" => {
            let depth = value.parse().ok().filter(|depth| (1..=65_535).contains(depth));
            plan.load.queue_depth = Some(depth.ok_or_else(|| wrong("1 to 65535"))?);
        }
        "speedup" => {
            plan.load.speedup = Some(args::factor(value).map_err(|_| wrong("a number above 0"))?);
        }
        "precondition" => {
            plan.drive.precondition =
                parse_precondition(value).map_err(|error| Failure::usage(format_args!("--vary {key}: {error}")))?;
        }
        "power-cut" => {
            let time = tidewater_base::units::parse_duration(value).ok().filter(|time| !time.is_zero());
            plan.load.power_cut = Some(time.ok_or_else(|| wrong("a time above 0 with its unit, as in 2s"))?);
        }
        "seed" => plan.drive.seed = value.parse().map_err(|_| wrong("a whole number"))?,
        // A key of the profile, or one that the profile will refuse.
        _ if key.contains('.') => plan.drive.set.push(Setting { key: key.into(), value: value.into() }),
        _ => {
            let failure = Failure::usage(format_args!("--vary {key}: there is no such key"));
            let meant = drive::meant(key, OPTIONS.into_iter()).map(str::to_owned);
            return Err(match meant.or_else(|| profile::suggestion(key)) {
                Some(meant) => failure.help(format_args!("did you mean `{meant}`?")),
                None => failure.help(format_args!(
                    "give a key of the profile, such as nand.channels, or one of {}",
                    OPTIONS.join(", ")
                )),
            });
        }
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn given(vary: &[&str]) -> args::Compare {
        let flags = vary.iter().flat_map(|vary| ["--vary", vary]);
        let line = ["tidewater", "compare", "--trace", "sample"].into_iter().chain(flags);
        match args::Cli::try_parse_from(line).unwrap().command {
            args::Command::Compare(compare) => *compare,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn several_knobs_make_every_combination() {
        let plans = plans(&given(&["profile=generic,tlc-client", "nand.channels=2,4", "queue-depth=1,8"])).unwrap();
        let labels: Vec<&str> = plans.iter().map(|plan| plan.label.as_str()).collect();
        assert_eq!(labels.len(), 8);
        assert_eq!(labels[0], "generic channels=2 queue-depth=1");
        assert_eq!(labels[7], "tlc-client channels=4 queue-depth=8");
        assert_eq!((plans[7].load.queue_depth, plans[7].drive.set[0].value.as_str()), (Some(8), "4"));
    }

    #[test]
    fn a_run_is_called_by_what_tells_it_from_the_others() {
        let labels = |vary: &[&str]| plans(&given(vary)).unwrap().into_iter().map(|p| p.label).collect::<Vec<_>>();
        assert_eq!(labels(&["buffer.write_policy=none,lru"]), ["write_policy=none", "write_policy=lru"]);
        assert_eq!(labels(&["buffer.write_policy=none,lru", "seed=1"]), ["none seed=1", "lru seed=1"]);
        assert_eq!(
            labels(&["memory.dram.size=1MiB,2MiB", "memory.sram.size=1MiB"]),
            ["memory.dram.size=1MiB memory.sram.size=1MiB", "memory.dram.size=2MiB memory.sram.size=1MiB"]
        );
    }

    #[test]
    fn what_cannot_be_varied_is_refused() {
        let refused = |vary: &[&str]| plans(&given(vary)).unwrap_err();
        assert!(refused(&["nand.channels=1,2,3,4,5,6,7,8", "seed=1,2,3,4,5,6,7,8,9"]).message.contains("72"));
        assert!(refused(&["seed=1", "seed=2"]).message.contains("twice"));
        assert!(refused(&["xyzzy=1,2"]).help.unwrap().contains("queue-depth"));
        for (key, meant) in
            [("chanels", "nand.channels"), ("capacity", "drive.capacity"), ("queue_depth", "queue-depth")]
        {
            let help = refused(&[&format!("{key}=1,2")]).help.unwrap();
            assert_eq!(help, format!("did you mean `{meant}`?"));
        }
        assert!(refused(&["queue-depth=1,2", "speedup=1,2"]).message.contains("together"));
        assert!(refused(&["queue-depth=0"]).message.contains("65535"));
        assert!(refused(&["speedup=-1"]).message.contains("above 0"));
        assert!(refused(&["precondition=full"]).message.contains("steady"));
        assert!(refused(&["power-cut=2"]).message.contains("as in 2s"));
    }

    #[test]
    fn what_is_varied_is_not_given_besides() {
        let refused = |more: &str, vary: &str| {
            let line = format!("tidewater compare --trace sample {more} --vary {vary}");
            match args::Cli::try_parse_from(line.split_whitespace()).unwrap().command {
                args::Command::Compare(compare) => plans(&compare).err().map(|failure| failure.message),
                other => panic!("{other:?}"),
            }
        };
        for (more, vary, flag) in [
            ("--capacity 4GiB", "drive.capacity=1GiB,2GiB", "--capacity"),
            ("--set ftl.gc_victim=greedy", "ftl.gc_victim=greedy,cost-benefit", "--set"),
            ("--queue-depth 8", "queue-depth=1,2", "--queue-depth"),
            ("--speedup 3", "speedup=1,2", "--speedup"),
            ("--power-cut 1s", "power-cut=1s,2s", "--power-cut"),
        ] {
            let key = vary.split('=').next().unwrap();
            assert_eq!(refused(more, vary), Some(format!("{key} is varied, and given by {flag} too")));
        }
        assert_eq!(refused("--capacity 4GiB --set nand.ways=2", "nand.channels=2,4"), None);
    }

    #[test]
    fn a_speedup_is_varied_as_it_is_given() {
        let plans = plans(&given(&["speedup=2x,3"])).unwrap();
        assert_eq!(plans.iter().map(|plan| plan.load.speedup).collect::<Vec<_>>(), [Some(2.0), Some(3.0)]);
    }

    #[test]
    fn seeds_can_be_a_range_and_cuts_vary() {
        let plans = plans(&given(&["seed=1..3,9", "power-cut=1s,2s"])).unwrap();
        let labels: Vec<&str> = plans.iter().map(|plan| plan.label.as_str()).collect();
        assert_eq!(labels[..3], ["seed=1 power-cut=1s", "seed=1 power-cut=2s", "seed=2 power-cut=1s"]);
        assert_eq!((plans.len(), plans[7].drive.seed), (8, 9));
        assert_eq!(plans[7].load.power_cut, Some(tidewater_base::Duration::from_ms(2_000)));
    }
}
