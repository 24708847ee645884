//! `tidewater compare`: a sweep without a folder, whose runs are shown side by side.

use crate::args;
use crate::failure::Failure;
use crate::interrupt;
use crate::output::{self, Delivery, Target, distinct};
use crate::progress::Whole;
use crate::replay::interrupted;
use crate::text::{array, command_line, format_of, width};
use std::path::PathBuf;
use std::sync::Arc;
use tidewater_report::compare::{self, Labelled};
use tidewater_report::table::{self, Table};
use tidewater_study::sweep::Sweep;
use tidewater_study::{self as study, Follow, How, Plan};
use tidewater_tables::encode;

/// The most runs of one comparison: more are not readable side by side.
const RUNS_MAX: usize = 64;

/// `tidewater compare`.
///
/// # Errors
/// Runs that cannot be made or compared, and results that cannot be written.
pub fn command(given: &args::Compare) -> Result<(), Failure> {
    let json = Target::maybe(given.json.as_ref())?;
    let csv = Target::maybe(given.csv.as_ref())?;
    let report = Target::page(given.report.as_ref())?;
    let in_format = |path: &PathBuf| Ok::<_, Failure>((Target::new(path)?, format_of(path)?));
    let table = given.table.as_ref().map(in_format).transpose()?;
    let statistics = given.statistics.as_ref().map(in_format).transpose()?;
    let tables = [table.as_ref().map(|(target, _)| target), statistics.as_ref().map(|(target, _)| target)];
    let targets = [json.as_ref(), csv.as_ref(), report.as_ref(), tables[0], tables[1]];
    let plans = plans(given)?;
    for plan in &plans {
        for file in plan.load.input_files().chain([plan.drive.profile.as_path()]) {
            distinct(&targets, Some(file))?;
        }
    }
    // What can be found before the first run is found before it.
    let ready = study::ready(plans)?;
    let how = How::new(given.jobs.map(usize::from), interrupt::flag());
    let whole = Arc::new(Whole::new("compare", ready.len(), "run"));
    let follow: Arc<dyn Follow> = Arc::clone(&whole) as Arc<dyn Follow>;
    let outcomes = study::run_all(&ready, &how, &follow);
    whole.end();
    let mut runs: Vec<Labelled> = Vec::new();
    let mut failed = None;
    for (run, outcome) in ready.iter().zip(outcomes) {
        match outcome {
            Some(Ok(mut record)) => {
                record.command_line = Some(command_line(std::env::args_os().skip(1)));
                runs.push(Labelled { label: run.plan.label.clone(), record });
            }
            Some(Err(failure)) => failed = failed.or(Some(Failure::from(failure))),
            None => {}
        }
    }
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
        files.push(("figures: ".into(), target, Box::new(|| target.write(&table::runs(&runs).csv()))));
    }
    type Make = fn(&[Labelled]) -> Table;
    let made: [(_, _, Make); 2] = [("table: ", &table, table::runs), ("statistics: ", &statistics, table::statistics)];
    for (what, place, make) in made {
        if let Some((target, format)) = place {
            let runs = &runs;
            let write = move || target.write_bytes(&encode(&make(runs), *format).map_err(Failure::run)?);
            files.push((what.into(), target, Box::new(write)));
        }
    }
    if let Some(target) = &report {
        files.push(("report: ".into(), target, Box::new(|| target.write(&compare::page(&runs, &title)))));
    }
    let delivered = output::deliver(&compare::table(&runs, width()), files);
    if let Some(failure) = failed {
        if let Err(unwritten) = delivered {
            unwritten.tell();
        }
        let done = format!("{}; the results cover only {} of {} runs", failure.message, runs.len(), ready.len());
        return Err(Failure { message: done, ..failure });
    }
    delivered?;
    match runs.iter().find(|run| run.record.partial).or(runs.last()) {
        Some(run) if run.record.partial || runs.len() < ready.len() => {
            let whole = runs.iter().filter(|run| !run.record.partial).count();
            let failure = interrupted(&run.record);
            Err(Failure { message: format!("interrupted after {whole} of {} runs", ready.len()), ..failure })
        }
        _ => Ok(()),
    }
}

/// The runs of a comparison.
///
/// # Errors
/// A key that cannot be varied, and more runs than can be read side by side.
pub fn plans(given: &args::Compare) -> Result<Vec<Plan>, Failure> {
    let sweep = Sweep::of(given.load.spec(), given.drive.spec(), given.vary.clone());
    if let Some(runs) = sweep.too_many(RUNS_MAX) {
        return Err(Failure::usage(format_args!("these --vary make {runs} runs; at most {RUNS_MAX} can be compared"))
            .help("vary fewer keys, or fewer values of each; `tidewater sweep` makes any number of runs"));
    }
    Ok(sweep.plans()?)
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
