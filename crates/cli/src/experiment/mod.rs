//! `tidewater experiment`: the experiments of papers, and whether what they say is what is measured.

mod ledger;

pub use ledger::page_of;

use crate::args::{ExperimentCommand, ExperimentRun};
use crate::failure::{Failure, Status};
use crate::interrupt;
use crate::output::{self, Delivery, Target, distinct};
use crate::progress::Whole;
use crate::text::width;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tidewater_papers::{self as papers, Folders};
use tidewater_report::experiment::{Experiment, array_to_json, summary};
use tidewater_sim::pool;
use tidewater_study::experiment::{Asked, Planned};
use tidewater_study::{Follow, How};

/// Marks a quick run, which must not be mistaken for a full one.
const QUICK: &str = "Run with --quick: a tenth was measured; some checks that hold in a full run may fail.";

/// The environment's folder of traces, for experiments that want some.
const TRACES: &str = "TIDEWATER_TRACES";

/// `tidewater experiment`.
///
/// # Errors
/// Experiments that cannot be run, results that cannot be written, and checks that do not hold.
pub fn command(command: &ExperimentCommand) -> Result<(), Failure> {
    match command {
        ExperimentCommand::List => output::print(&list()),
        ExperimentCommand::Ledger(given) => ledger::command(given),
        ExperimentCommand::Template => output::print(tidewater_study::experiment::TEMPLATE),
        ExperimentCommand::Run(given) => run(given),
    }
}

/// One line for each experiment, the name first.
fn list() -> String {
    let all = papers::all();
    let longest = all.iter().map(|info| info.name.len()).max().unwrap_or(0);
    all.iter().map(|info| format!("{:longest$}  {}\n", info.name, info.title)).collect()
}

fn run(given: &ExperimentRun) -> Result<(), Failure> {
    let json = Target::maybe(given.json.as_ref())?;
    let report = Target::page(given.report.as_ref())?;
    let targets = [json.as_ref(), report.as_ref()];
    distinct(&targets, None)?;
    let silent = targets.iter().flatten().any(|target| target.is_stdout());
    let names = names(given);
    let traces = given.traces.clone().or_else(|| std::env::var_os(TRACES).map(std::path::PathBuf::from));
    if let Some(folder) = given.traces.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Failure::usage(format_args!("--traces {}: no such directory", folder.display())));
    }
    if let Some(folder) = given.mqsim.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(Failure::usage(format_args!("--mqsim {}: no such directory", folder.display())));
    }
    let asked = Asked { seed: given.seed, quick: given.quick, full: given.full };
    let folders = Folders { traces: traces.as_deref(), mqsim: given.mqsim.as_deref(), set: &given.set };
    // What can be found before the first run is found before it.
    let planned = names.iter().map(|name| papers::find(name, asked, folders)).collect::<Result<Vec<Planned>, _>>()?;
    let whole = Arc::new(Whole::new("experiments", names.len(), "experiment"));
    let shown = Shown { names: &names, silent, so_far: Mutex::new(SoFar::default()) };
    let outcomes = pool::with_jobs(given.jobs.map_or_else(pool::default_jobs, usize::from), || {
        // The measurements of one of CBM's share the processors: begun last, they leave none idle at the end.
        let mut order: Vec<usize> = (0..names.len()).collect();
        order.sort_by_key(|&i| names[i].starts_with("cbm/"));
        let how = How::new(given.jobs.map(usize::from), interrupt::flag());
        let mut outcomes = pool::in_order(order, |_, i| {
            let shares = Mutex::new(vec![0.0; planned[i].runs()]);
            let follow: Arc<dyn Follow> = Arc::new(Shares { whole: Arc::clone(&whole), index: i, shares });
            let over = interrupt::requested() || shown.is_over();
            let mut outcome = if over { Ok(None) } else { papers::run(&planned[i], &how, &follow) };
            if let Ok(Some(experiment)) = &mut outcome
                && given.quick
            {
                experiment.differences.insert(0, QUICK.to_owned());
            }
            whole.one_ended(i, !matches!(outcome, Ok(Some(_))));
            if let Ok(Some(experiment)) = &outcome {
                // From the first result on there is something to keep.
                whole.keep();
                whole.suspend(|| shown.show(i, experiment));
            }
            (i, outcome)
        });
        outcomes.sort_by_key(|(i, _)| *i);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>()
    });
    whole.end();
    let shown = shown.outcome();
    if shown.is_err() && targets.iter().flatten().next().is_none() {
        return shown;
    }
    let mut done: Vec<Experiment> = Vec::new();
    let mut ended = Ok(());
    for outcome in outcomes {
        match outcome {
            Ok(experiment) => done.extend(experiment),
            Err(failure) => ended = ended.and(Err(failure.into())),
        }
    }
    if ended.is_ok() && done.len() < names.len() {
        ended = Err(Failure {
            message: format!("interrupted after {} of {} experiments", done.len(), names.len()),
            help: None,
            status: Status::Interrupted,
        });
    }
    if done.is_empty() {
        return ended;
    }
    let written = deliver(&done, names.len() > 1, json.as_ref(), report.as_ref());
    for outcome in [shown, written] {
        match outcome {
            // A reader that went away wants no more text; the files are there all the same.
            Err(failure) if failure.status != Status::Done => {
                if let Err(before) = std::mem::replace(&mut ended, Err(failure)) {
                    before.tell();
                }
            }
            _ => {}
        }
    }
    ended?;
    verdict(&done, given.quick)
}

/// The runs of one experiment, as its share of the whole.
struct Shares {
    whole: Arc<Whole>,
    index: usize,
    shares: Mutex<Vec<f64>>,
}

impl Follow for Shares {
    fn share(&self, index: usize, share: f64) {
        // Nothing that holds the lock can fail.
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares[index] = share;
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        drop(shares);
        self.whole.share(self.index, mean);
    }
}

/// The summaries, each as soon as it and those before it are there: all experiments may take minutes.
struct Shown<'a> {
    names: &'a [&'a str],
    silent: bool,
    so_far: Mutex<SoFar>,
}

#[derive(Default)]
struct SoFar {
    next: usize,
    waiting: BTreeMap<usize, String>,
    failed: Option<Failure>,
}

impl Shown<'_> {
    fn lock(&self) -> MutexGuard<'_, SoFar> {
        // Nothing that holds the lock can fail.
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no reader is left.
    fn is_over(&self) -> bool {
        self.lock().failed.is_some()
    }

    fn show(&self, index: usize, experiment: &Experiment) {
        let gap = if index == 0 { "" } else { "\n" };
        let mut so_far = self.lock();
        so_far.waiting.insert(index, format!("{gap}{}", summary(experiment, width())));
        while so_far.next < self.names.len() {
            let next = so_far.next;
            let Some(text) = so_far.waiting.remove(&next) else { break };
            so_far.next += 1;
            if !self.silent && so_far.failed.is_none() {
                so_far.failed = output::print(&text).err();
            }
        }
    }

    /// The first failed output; texts behind an experiment without a result are shown now.
    fn outcome(self) -> Result<(), Failure> {
        let so_far = self.so_far.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = so_far.failed {
            return Err(failure);
        }
        if self.silent { Ok(()) } else { so_far.waiting.values().try_for_each(|text| output::print(text)) }
    }
}

/// Says how many checks hold, and writes what is asked for.
fn deliver(done: &[Experiment], several: bool, json: Option<&Target>, report: Option<&Target>) -> Result<(), Failure> {
    let of = |what: &str| format!("{what:<7} ");
    let mut files: Vec<Delivery<'_>> = Vec::new();
    if let Some(target) = json {
        let text = || if several { array_to_json(done) } else { done.iter().map(Experiment::to_json).collect() };
        files.push((of("json"), target, Box::new(move || target.write(&text()))));
    }
    if let Some(target) = report {
        files.push((of("report"), target, Box::new(move || target.write(&page_of(done)))));
    }
    output::deliver(&ending(done), files)
}

/// The experiments that are asked for, each once.
fn names(given: &ExperimentRun) -> Vec<&str> {
    if given.all {
        return papers::names().collect();
    }
    let mut names: Vec<&str> = Vec::new();
    for name in &given.names {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// Totals shown after the last of several experiments.
fn ending(done: &[Experiment]) -> String {
    if done.len() < 2 {
        return String::new();
    }
    let holding: usize = done.iter().map(Experiment::holding).sum();
    let of: usize = done.iter().map(|one| one.checks.len()).sum();
    let failures: usize = done.iter().map(Experiment::failures).sum();
    let by_fit = match done.iter().map(Experiment::by_fit).sum() {
        0 => String::new(),
        some => format!(", {some} of them by a fit"),
    };
    let losses = match of - holding - failures {
        0 => String::new(),
        losses => format!(" {losses} of the others have a documented explanation."),
    };
    let ledger = ledger::counts(done);
    format!("\n{} experiments: {holding} of {of} checks hold{by_fit}.{losses}\n{ledger}", done.len())
}

/// A failure when a check does not hold and has no explanation.
fn verdict(done: &[Experiment], quick: bool) -> Result<(), Failure> {
    let broken = Experiment::failures;
    let wrong: Vec<&Experiment> = done.iter().filter(|one| broken(one) > 0).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let where_: Vec<String> = wrong.iter().map(|one| format!("{} ({})", one.name, broken(one))).collect();
    let sum: usize = wrong.iter().map(|one| broken(one)).sum();
    let message = format!("{sum} check{} not hold: {}", if sum == 1 { " does" } else { "s do" }, where_.join(", "));
    let help = if quick {
        "a quick run measures too little for some checks: run without --quick"
    } else {
        "each check shows the expected and the measured value; docs/papers.md describes the experiment"
    };
    Err(Failure { message, help: Some(help.to_owned()), status: Status::Differs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;
    use tidewater_report::experiment::{Check, SCHEMA};

    fn parsed(line: &str) -> Result<ExperimentRun, clap::Error> {
        let cli = Cli::try_parse_from(format!("tidewater experiment run {line}").split_whitespace())?;
        match cli.command {
            Command::Experiment(ExperimentCommand::Run(run)) => Ok(run),
            other => panic!("{other:?}"),
        }
    }

    fn experiment(name: &str, checks: &[bool]) -> Experiment {
        let check = |ok: &bool| Check {
            name: String::new(),
            fitted: Vec::new(),
            statement: "s".into(),
            expected: "e".into(),
            measured: "m".into(),
            ok: *ok,
            because: None,
        };
        Experiment {
            schema: SCHEMA.into(),
            name: name.into(),
            title: "t".into(),
            source: String::new(),
            description: String::new(),
            version: "1".into(),
            seed: 1,
            parameters: Vec::new(),
            columns: Vec::new(),
            rows: Vec::new(),
            checks: checks.iter().map(check).collect(),
            found: Vec::new(),
            differences: Vec::new(),
            fitted: Vec::new(),
            figures: Vec::new(),
        }
    }

    #[test]
    fn each_is_run_once_in_the_order_given() {
        assert_eq!(names(&parsed("x-ssd/fig10 x-ssd/fig9 x-ssd/fig10").unwrap()), ["x-ssd/fig10", "x-ssd/fig9"]);
        assert_eq!(names(&parsed("--all").unwrap()).len(), papers::all().len());
    }

    #[test]
    fn what_cannot_be_run_is_refused_before_the_first_run() {
        let refused = |line: &str| crate::failure::from_clap(&parsed(line).unwrap_err());
        assert!(refused("").message.contains("required"));
        assert!(refused("--all x-ssd/fig9").message.contains("cannot be used with"));
        let unknown = refused("x-ssd/fig9 x-ssd/fig8");
        assert!(unknown.message.contains("x-ssd/fig8"), "{unknown:?}");
        assert!(unknown.help.is_some_and(|help| help.contains("x-ssd/fig9") && help.contains("x-ssd/movements")));
    }

    #[test]
    fn the_list_begins_with_names() {
        let list = list();
        assert_eq!(list.lines().count(), papers::all().len());
        for (line, info) in list.lines().zip(papers::all()) {
            assert_eq!(line.split_whitespace().next(), Some(info.name));
            assert!(line.ends_with(&info.title));
        }
    }

    #[test]
    fn a_check_that_does_not_hold_has_a_status_of_its_own() {
        let good = experiment("a/b", &[true, true]);
        let bad = experiment("a/c", &[true, false]);
        assert_eq!(verdict(std::slice::from_ref(&good), false), Ok(()));
        let failure = verdict(&[good.clone(), bad.clone()], false).unwrap_err();
        assert_eq!((failure.message.as_str(), failure.status), ("1 check does not hold: a/c (1)", Status::Differs));
        let failure = verdict(&[bad.clone(), bad.clone()], true).unwrap_err();
        assert_eq!(failure.message, "2 checks do not hold: a/c (1), a/c (1)");
        assert!(failure.help.unwrap().contains("--quick"));
        assert!(ending(&[good.clone(), bad.clone()]).contains("2 experiments: 3 of 4 checks hold.\n"));
        let mut explained = bad;
        explained.checks[1].because = Some("it is".into());
        assert_eq!(verdict(std::slice::from_ref(&explained), false), Ok(()));
        let text = ending(&[good, explained]);
        assert!(text.contains("3 of 4 checks hold. 1 of the others have a documented explanation."), "{text}");
    }

    #[test]
    fn a_single_check_is_no_part_of_others() {
        let ending = |experiment: &Experiment| summary(experiment, 120).lines().last().map(str::to_owned).unwrap();
        assert_eq!(ending(&experiment("a/b", &[true])), "The check holds.");
        let mut bad = experiment("a/b", &[false]);
        assert_eq!(ending(&bad), "The check does not hold.");
        bad.checks[0].because = Some("it is".into());
        assert_eq!(ending(&bad), "The check does not hold; it has a documented explanation.");
    }
}
