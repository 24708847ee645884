//! `tidewater sweep`: any number of runs, kept in a folder, and their table.

mod live;

use crate::args::sweep::{Shard, Sweep as Given};
use crate::failure::{Failure, Status};
use crate::interrupt;
use crate::output;
use crate::page::Page;
use crate::progress::Whole;
use live::Watched;
use std::fmt::Write as _;
use std::sync::Arc;
use tidewater_base::units::{self, plural};
use tidewater_study::sweep::{self, Folder, Named, STATISTICS, Sweep, TABLE};
use tidewater_study::{Follow, How};
use tidewater_tables::{Format, encode};

/// `tidewater sweep`.
///
/// # Errors
/// Runs that can't be made, a folder that can't be written, and an early end.
pub fn command(given: &Given) -> Result<(), Failure> {
    let plan = match &given.plan {
        Some(path) => Sweep::from_file(path)?,
        None => Sweep::of(given.load.spec(), given.drive.spec(), given.vary.clone()),
    };
    let runs = sweep::named(plan.plans()?, &build()?)?;
    let names: Vec<(String, String)> = runs.iter().map(|run| (run.name.clone(), run.plan.label.clone())).collect();
    if given.dry_run {
        return output::print(&list(&runs, given)?);
    }
    let page = Page::open(given.watch.page, &[])?;
    let folder = Folder::open(&given.out)?;
    sweep::begin(&runs, &folder)?;
    if given.retry_failed {
        folder.forget_failed()?;
    }
    let mine: Vec<Named> = match given.shard {
        Some(Shard { index, count }) => {
            runs.into_iter().enumerate().filter(|(i, _)| i % count == index).map(|(_, run)| run).collect()
        }
        None => runs,
    };
    let how = How::new(given.jobs.map(usize::from), interrupt::flag());
    let whole = Arc::new(Whole::new("sweep", mine.len(), "run"));
    let watched = Arc::new(Watched::begin(&whole, page, (&mine[..], how.jobs), (&folder, given.out.as_path()))?);
    let follow: Arc<dyn Follow> = Arc::clone(&watched) as Arc<dyn Follow>;
    // Between two runs a signal has the sweep say what is missing, too.
    let _running = interrupt::Running::begin();
    let done = sweep::run(mine, &folder, &how, &follow);
    whole.end();
    let done = done?;
    watched.doing("writing the table");
    let there = sweep::kept(&names, &folder)?;
    let reasons: Vec<String> = there.iter().filter_map(|run| run.failure.clone()).collect();
    let mut text = format!("{} made, {} found", plural(done.made as u64, "run"), done.found);
    if there.len() == names.len() {
        let (table, statistics) = sweep::tables(there);
        folder.write(TABLE, &encode(&table, Format::Parquet).map_err(Failure::run)?)?;
        if statistics.rows() > 0 {
            folder.write(STATISTICS, &encode(&statistics, Format::Parquet).map_err(Failure::run)?)?;
        }
        folder.tidy();
        let _ = writeln!(
            text,
            "\ntable   {} ({}, {})",
            folder.file(TABLE).display(),
            plural(table.rows() as u64, "row"),
            plural(table.columns.len() as u64, "column")
        );
    } else {
        let missing = names.len() - there.len();
        let _ = writeln!(text, "\n{} of {} missing: no table yet", missing, plural(names.len() as u64, "run"));
    }
    output::print(&text)?;
    if done.missing > 0 {
        return Err(Failure {
            message: format!("interrupted: {} of this sweep are missing", plural(done.missing as u64, "run")),
            help: Some("start it again, and it makes those".into()),
            status: Status::Interrupted,
        });
    }
    if done.failed > 0 {
        const SHOWN: usize = 3;
        let more = reasons.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!("; {more} more are in the column `failure`") } else { String::new() };
        let shown = reasons[..reasons.len().min(SHOWN)].join("; ");
        return Err(Failure::run(format_args!("{} failed: {shown}{more}", plural(done.failed as u64, "run")))
            .help("--retry-failed runs them again"));
    }
    Ok(())
}

/// The runs, and which of them are there.
fn list(runs: &[Named], given: &Given) -> Result<String, Failure> {
    let folder = given.out.is_dir().then(|| Folder::open(&given.out)).transpose()?;
    let how = How::new(given.jobs.map(usize::from), interrupt::flag());
    let mut most = 0;
    let mut text = String::new();
    for run in runs {
        // What it has no answer to is the reason why it can't be run, or fails.
        most = most.max(run.run.as_ref().ok().and_then(|ready| ready.memory(&how.traces).ok()).unwrap_or(0));
        let there = folder.as_ref().map(|folder| folder.state(&run.name)).transpose()?.flatten().is_some();
        let failure = run.run.as_ref().err().map(|failure| format!("  can't be run: {failure}")).unwrap_or_default();
        let state = if there { "there  " } else { "missing" };
        let _ = writeln!(text, "{state}  {}  {}{failure}", run.name, run.plan.label);
    }
    let at_once = how.memory.total().checked_div(most).unwrap_or(u64::MAX).clamp(1, how.jobs as u64);
    let _ = writeln!(
        text,
        "{} of up to {} of memory: {at_once} at once, by {} and {}",
        plural(runs.len() as u64, "run"),
        units::bytes(most.next_multiple_of(1 << 20)),
        plural(how.jobs as u64, "job"),
        units::bytes(how.memory.total() >> 20 << 20),
    );
    Ok(text)
}

/// Digest of this build: records of another one are not taken for its own.
fn build() -> Result<String, Failure> {
    Ok(sweep::digest_of_file(&std::env::current_exe().map_err(Failure::run)?)?)
}
