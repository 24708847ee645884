//! `tidewater experiment`: the experiments of papers, and whether what they say is what is measured.

use crate::args::{ExperimentCommand, ExperimentRun};
use crate::failure::{Failure, Status, printable};
use crate::output::{self, Target, distinct};
use crate::progress::Bar;
use crate::report::width;
use tidewater_report::experiment::{Experiment, array_to_json, page, summary};
use tidewater_sim::experiments::{self, Options};

/// What a quick run says of itself, so that nobody takes it for a full one.
const QUICK: &str = "Run with --quick: a tenth was measured, and checks may fail that hold otherwise.";

/// The environment's folder of traces, for experiments that want some.
const TRACES: &str = "TIDEWATER_TRACES";

/// `tidewater experiment`.
///
/// # Errors
/// What cannot be run, results that cannot be written, and checks that do not hold.
pub fn command(command: &ExperimentCommand) -> Result<(), Failure> {
    match command {
        ExperimentCommand::List => output::print(&list()),
        ExperimentCommand::Run(given) => run(given),
    }
}

/// One line for each experiment, the name first.
fn list() -> String {
    let all = experiments::all();
    let longest = all.iter().map(|info| info.name.len()).max().unwrap_or(0);
    all.iter().map(|info| format!("{:longest$}  {}\n", info.name, info.title)).collect()
}

fn run(given: &ExperimentRun) -> Result<(), Failure> {
    let json = Target::maybe(given.json.as_ref())?;
    let report = Target::maybe(given.report.as_ref())?;
    let targets = [json.as_ref(), report.as_ref()];
    distinct(&targets, None)?;
    let silent = targets.iter().flatten().any(|target| target.is_stdout());
    let names = names(given);
    let traces = given.traces.clone().or_else(|| std::env::var_os(TRACES).map(std::path::PathBuf::from));
    let mut done: Vec<Experiment> = Vec::new();
    for name in &names {
        let bar = Bar::new(&format!("{}/{} {name}", done.len() + 1, names.len()));
        let mut progress = bar.share();
        let options =
            Options { seed: given.seed, quick: given.quick, traces: traces.as_deref(), progress: &mut progress };
        let mut experiment = experiments::run(name, options).map_err(|error| Failure::refused(&error))?;
        drop(bar);
        if given.quick {
            experiment.differences.insert(0, QUICK.to_owned());
        }
        // Each as soon as it is there: all of them may take minutes.
        if !silent {
            let gap = if done.is_empty() { "" } else { "\n" };
            output::print(&format!("{gap}{}", summary(&experiment, width())))?;
        }
        done.push(experiment);
    }
    if let Some(target) = &json {
        target.write(&match &done[..] {
            [one] => one.to_json(),
            several => array_to_json(several),
        })?;
    }
    if let Some(target) = &report {
        target.write(&page(&done))?;
    }
    if !silent {
        output::print(&ending(&done, &targets))?;
    }
    verdict(&done, given.quick)
}

/// The experiments that are asked for, each once.
fn names(given: &ExperimentRun) -> Vec<&str> {
    if given.all {
        return experiments::all().iter().map(|info| info.name).collect();
    }
    let mut names: Vec<&str> = Vec::new();
    for name in &given.names {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// What is said after the last experiment.
fn ending(done: &[Experiment], targets: &[Option<&Target>; 2]) -> String {
    let mut text = String::new();
    if done.len() > 1 {
        let holding: usize = done.iter().map(Experiment::holding).sum();
        let of: usize = done.iter().map(|one| one.checks.len()).sum();
        let failures: usize = done.iter().map(Experiment::failures).sum();
        let losses = match of - holding - failures {
            0 => String::new(),
            losses => format!(" {losses} of the others are losses that are explained."),
        };
        text += &format!("\n{} experiments: {holding} of {of} checks hold.{losses}\n", done.len());
    }
    for (what, target) in ["json", "report"].iter().zip(targets) {
        if let Some(target) = target {
            text += &format!("{what:<7} {}\n", printable(target.name()));
        }
    }
    text
}

/// A failure when a check does not hold and nobody knows why.
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
        "a quick run measures too little for some checks: run it without --quick"
    } else {
        "each check says what was expected and what was measured; docs/papers.md says what the experiment shows"
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
        assert_eq!(names(&parsed("--all").unwrap()).len(), experiments::all().len());
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
        assert_eq!(list.lines().count(), experiments::all().len());
        for (line, info) in list.lines().zip(experiments::all()) {
            assert_eq!(line.split_whitespace().next(), Some(info.name));
            assert!(line.ends_with(info.title));
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
        assert!(ending(&[good.clone(), bad.clone()], &[None, None]).contains("2 experiments: 3 of 4 checks hold.\n"));
        let mut explained = bad;
        explained.checks[1].because = Some("it is".into());
        assert_eq!(verdict(std::slice::from_ref(&explained), false), Ok(()));
        let text = ending(&[good, explained], &[None, None]);
        assert!(text.contains("3 of 4 checks hold. 1 of the others are losses that are explained."), "{text}");
    }
}
