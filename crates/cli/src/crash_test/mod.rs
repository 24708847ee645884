//! `tidewater crash-test`: a program is run once, and every state that a power cut can leave of it is checked.

mod check;
mod outcome;
mod record;

use crate::args::crash::CrashTest;
use crate::failure::{Failure, Status, reason};
use crate::output::Target;
use crate::progress::Whole;
use crate::{interrupt, output};
use check::{Check, Verdict};
use outcome::{Found, Outcome, Tried};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_crash::{Kept, State, Tear, Volume, plan, shrink};

/// Checks that a failure may take to be shrunk, and the time for them.
const SHRINK_TRIES: usize = 200;
const SHRINK_TIME: Duration = Duration::from_secs(60);

/// `tidewater crash-test`.
///
/// # Errors
/// A program that can't be run or that fails, and a state that the check refuses.
pub fn command(of: &CrashTest) -> Result<(), Failure> {
    if let Some(file) = &of.replay {
        return replay(file, of);
    }
    let (json, junit) = (Target::maybe(of.json.as_ref())?, Target::maybe(of.junit.as_ref())?);
    let failure = Target::new(&of.failure)?;
    output::distinct(&[json.as_ref(), junit.as_ref(), Some(&failure)], None)?;
    let states = record::for_states()?;
    let text = of.check.clone().unwrap_or_default();
    let check =
        Check { text, time: Duration::from_nanos(of.check_time.as_ps() / 1_000), folder: states.path().to_path_buf() };
    let begun = Instant::now();
    let volume = record::record(of)?;
    let recorded = begun.elapsed();
    let outcome = try_states(of, &volume, &check)?;
    let outcome = Outcome { recorded, ..outcome };
    if let Some(found) = &outcome.smallest {
        let text = Kept::text(&volume, &found.state, of.tear, &check.text, &found.verdict.said);
        failure.write(&text.map_err(Failure::run)?)?;
    }
    if let Some(target) = junit {
        target.write(&outcome.junit())?;
    }
    let is_alone = json.as_ref().is_some_and(Target::is_stdout);
    if let Some(target) = json {
        target.write(&outcome.json(&volume)?)?;
    }
    if !is_alone {
        output::print(&outcome.text(&volume, &of.failure))?;
    }
    if interrupt::requested() {
        return Err(Failure { status: Status::Interrupted, ..Failure::run("ended early by a signal") });
    }
    match outcome.failed() {
        0 => Ok(()),
        failed => Err(Failure::run(format_args!("{failed} of {} states fail the check", outcome.tried.len()))
            .help(format_args!("tidewater crash-test --replay {}", of.failure.display()))),
    }
}

/// Checks the planned states on all processors, each tree once, and shrinks the first failure.
fn try_states(of: &CrashTest, volume: &Volume, check: &Check) -> Result<Outcome, Failure> {
    let begun = Instant::now();
    let cuts = plan(volume, of.at, &of.lose, of.cuts as usize, of.seed);
    let tear = of.tear;
    let progress = Whole::new("crash-test", cuts.len(), "state");
    progress.keep();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let shared = Mutex::new((HashSet::new(), Vec::<(Tried, State)>::new(), None::<Failure>));
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    let work = |worker: usize| {
        while !stop.load(Ordering::Relaxed) && !interrupt::requested() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(cut, lose)) = cuts.get(index) else { break };
            // A state follows from the seed and its place in the plan, whichever thread makes it.
            let mut rng = Rng::new(of.seed.wrapping_add((index as u64) << 20), b"state");
            let state = volume.state(cut, lose, tear, &mut rng);
            let tree = volume.build(&state, tear);
            let acknowledged = volume.acknowledged(cut).count();
            if !lock().0.insert((tree.digest(), acknowledged)) {
                progress.one_ended(index, false);
                continue;
            }
            match check.run(volume, &state, &tree, worker) {
                // The check was ended with the command.
                Ok(_) if interrupt::requested() => {}
                Ok(verdict) => {
                    progress.one_ended(index, !verdict.passed);
                    stop.fetch_or(!verdict.passed && !of.keep_going, Ordering::Relaxed);
                    lock().1.push((Tried { index, cut, lose, verdict }, state));
                }
                Err(failure) => {
                    stop.store(true, Ordering::Relaxed);
                    lock().2 = Some(failure);
                }
            }
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = of.jobs.map_or(processors, usize::from).min(cuts.len());
    std::thread::scope(|scope| (0..jobs).for_each(|worker| _ = scope.spawn(move || work(worker))));
    let seconds = begun.elapsed();
    let (_, mut tried, failure) = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(failure) = failure {
        progress.end();
        return Err(failure);
    }
    tried.sort_by_key(|(one, _)| one.index);
    let equal = next.load(Ordering::Relaxed).min(cuts.len()) - tried.len();
    let failing = tried.iter().filter(|(one, _)| !one.verdict.passed).min_by_key(|(one, _)| one.cut);
    let smallest = failing.map(|(one, state)| smallest(volume, state, &one.verdict, tear, check));
    progress.end();
    let tried = tried.into_iter().map(|(one, _)| one).collect();
    Ok(Outcome { planned: cuts.len(), equal, tried, seconds, recorded: Duration::ZERO, smallest })
}

/// The smallest failing state that is found from this one.
fn smallest(volume: &Volume, state: &State, verdict: &Verdict, tear: Tear, check: &Check) -> Found {
    let begun = Instant::now();
    let mut last = verdict.clone();
    let state = shrink(volume, state.clone(), SHRINK_TRIES, |state| {
        if begun.elapsed() > SHRINK_TIME || interrupt::requested() {
            return false;
        }
        let verdict = check.run(volume, state, &volume.build(state, tear), 0);
        let failed = verdict.ok().filter(|verdict| !verdict.passed);
        failed.is_some_and(|verdict| {
            last = verdict;
            true
        })
    });
    Found { state, verdict: last }
}

/// Runs the check on the state in a file again.
fn replay(file: &Path, of: &CrashTest) -> Result<(), Failure> {
    let name = file.display();
    let text =
        std::fs::read_to_string(file).map_err(|error| Failure::usage(format_args!("{name}: {}", reason(&error))))?;
    let kept = Kept::read(&text).map_err(|why| Failure::usage(format_args!("{name}: {why}")))?;
    let states = record::for_states()?;
    let text = of.check.clone().unwrap_or(kept.check);
    // The file may come from another user, and its command is run now.
    output::print(&format!("the check: {}\n", crate::failure::printable(&text)))?;
    let check =
        Check { text, time: Duration::from_nanos(of.check_time.as_ps() / 1_000), folder: states.path().to_path_buf() };
    let _running = interrupt::Running::begin();
    let tree = kept.volume.build(&kept.state, kept.tear);
    let verdict = check.run(&kept.volume, &kept.state, &tree, 0)?;
    let found = Found { state: kept.state, verdict };
    output::print(&found.text(&kept.volume))?;
    match found.verdict.passed {
        true => output::print("the state passes the check\n"),
        false => Err(Failure::run("the state fails the check")),
    }
}
