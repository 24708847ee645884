//! The live page of a sweep: what is under way, and what the runs that ended gave.

use crate::failure::Failure;
use crate::page::Page;
use crate::progress::Whole;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tidewater_base::units;
use tidewater_live::{Board, Cell, History, Level, Shown, Table};
use tidewater_report::compare::{GLANCE, Glance, glance};
use tidewater_report::{Quantity, Record, record};
use tidewater_study::sweep::{Folder, Named};
use tidewater_study::{self as study, Follow};

/// Rows of the table of runs that ended, and of the one of failures: the newest.
const ROWS_MAX: usize = 100;
/// An estimate from less than this is none.
const LEFT_AFTER_S: f64 = 0.5;

/// A sweep on its page, beside its progress on the terminal.
pub struct Watched {
    whole: Arc<Whole>,
    live: Option<Live>,
}

struct Live {
    folder: Folder,
    state: Arc<Mutex<State>>,
    shown: Shown,
}

/// One run.
struct Run {
    /// The name of its record.
    record: String,
    /// The varied values, the profile, the seed.
    words: [String; 3],
    is: Is,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    /// Not begun here: to do, or another process is at it.
    ToDo,
    UnderWay {
        since: Instant,
        share: f64,
    },
    /// It came to its end here, or was there.
    Done {
        was_there: bool,
    },
}

/// State of the sweep.
struct State {
    begun: Instant,
    runs: Vec<Run>,
    jobs: usize,
    /// Runs with a record in the order of their ends, with their figures.
    gave: Vec<(usize, Glance)>,
    /// Of each figure the values of these runs, sorted, with their runs.
    sorted: [Vec<(f64, usize)>; GLANCE.len()],
    /// Runs that failed, with their reasons.
    failed: Vec<(usize, String)>,
    events: History,
    doing: &'static str,
}

impl Watched {
    /// A sweep of these runs, on `page` if there is one.
    ///
    /// # Errors
    /// When the system has no room for the page's threads.
    pub fn begin(
        whole: &Arc<Whole>,
        page: Option<Page>,
        of: (&[Named], usize),
        (folder, path): (&Folder, &Path),
    ) -> Result<Watched, Failure> {
        let (runs, jobs) = of;
        let live = page.map(|page| {
            let state = Arc::new(Mutex::new(State::new(runs, jobs)));
            let title = format!("Sweep of {}: {}", units::plural_exact(runs.len() as u64, "run"), path.display());
            let of = Arc::clone(&state);
            let shown = page.of_board(&title, move || lock(&of).board(Instant::now()))?;
            Ok::<_, Failure>(Live { folder: folder.clone(), state, shown })
        });
        Ok(Watched { whole: Arc::clone(whole), live: live.transpose()? })
    }

    /// Sets the current activity besides runs; "ended" is the last.
    pub fn doing(&self, what: &'static str) {
        if let Some(live) = &self.live {
            lock(&live.state).doing = what;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        if let Some(live) = &self.live {
            change(&mut lock(&live.state));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        lock(&self.state).end();
        self.shown.finish();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Follow for Watched {
    fn begun(&self) {
        self.whole.begun();
    }

    fn started(&self, index: usize) {
        self.change(|state| state.runs[index].is = Is::UnderWay { since: Instant::now(), share: 0.0 });
    }

    fn share(&self, index: usize, share: f64) {
        self.whole.share(index, share);
        self.change(|state| state.share(index, share));
    }

    fn found(&self, index: usize) {
        self.whole.found(index);
        let Some(live) = &self.live else { return };
        let name = lock(&live.state).runs[index].record.clone();
        // One that can't be read ends the sweep when its table is made, with the reason.
        let Ok(Some(kept)) = live.folder.read(&name) else { return };
        let mut state = lock(&live.state);
        match kept.record {
            Some(record) => state.gave(index, &record),
            None => state.failed.push((index, kept.failure.unwrap_or_default())),
        }
        state.runs[index].is = Is::Done { was_there: true };
    }

    fn ended(&self, index: usize, outcome: &Result<Record, study::Failure>) {
        self.whole.ended(index, outcome);
        self.change(|state| state.ended(index, outcome.as_ref().map_err(ToString::to_string)));
    }
}

impl State {
    fn new(runs: &[Named], jobs: usize) -> State {
        let run = |run: &Named| {
            let drive = &run.plan.drive;
            let words = [run.plan.label.clone(), drive.profile.display().to_string(), drive.seed.to_string()];
            Run { record: run.name.clone(), words, is: Is::ToDo }
        };
        State {
            begun: Instant::now(),
            runs: runs.iter().map(run).collect(),
            jobs,
            gave: Vec::new(),
            sorted: Default::default(),
            failed: Vec::new(),
            events: History::default(),
            doing: "running",
        }
    }

    fn share(&mut self, index: usize, now: f64) {
        if let Is::UnderWay { share, .. } = &mut self.runs[index].is {
            *share = now.clamp(0.0, 1.0);
        }
    }

    fn ended(&mut self, index: usize, outcome: Result<&Record, String>) {
        self.runs[index].is = Is::Done { was_there: false };
        match outcome {
            // A part of a run is no result of it: it is to be made again.
            Ok(record) if record.partial => {
                self.runs[index].is = Is::ToDo;
                self.events.add(Level::Note, format!("{} was interrupted", self.name(index)));
            }
            Ok(record) => self.gave(index, record),
            Err(why) => {
                self.events.add(Level::Bad, format!("{} failed: {why}", self.name(index)));
                self.failed.push((index, why));
            }
        }
    }

    fn gave(&mut self, index: usize, record: &Record) {
        let figures = glance(record);
        for (sorted, value) in self.sorted.iter_mut().zip(&figures) {
            if let Some(value) = value {
                let at = sorted.partition_point(|(other, _)| other <= value);
                sorted.insert(at, (*value, index));
            }
        }
        self.gave.push((index, figures));
    }

    /// It has come to its end, for whatever reason.
    fn end(&mut self) {
        if self.doing != "ended" {
            self.doing = "ended";
            self.events.add(Level::Note, "the sweep has ended");
        }
    }

    /// Name of a run.
    fn name(&self, index: usize) -> &str {
        let [label, profile, _] = &self.runs[index].words;
        if label.is_empty() { profile } else { label }
    }

    fn words(&self, index: usize) -> [Cell; 3] {
        let [_, profile, seed] = &self.runs[index].words;
        [Cell::text(self.name(index)), Cell::text(profile), Cell::text(seed)]
    }

    fn count(&self, is: impl Fn(Is) -> bool) -> usize {
        self.runs.iter().filter(|run| is(run.is)).count()
    }

    fn board(&self, now: Instant) -> Board {
        let all = self.runs.len();
        let done = self.count(|is| matches!(is, Is::Done { .. }));
        let was_there = self.count(|is| is == Is::Done { was_there: true });
        let under_way = self.count(|is| matches!(is, Is::UnderWay { .. }));
        let shares = self.runs.iter().map(|run| match run.is {
            Is::ToDo => 0.0,
            Is::UnderWay { share, .. } => share,
            Is::Done { .. } => 1.0,
        });
        let share: f64 = shares.sum();
        let elapsed = now.saturating_duration_since(self.begun).as_secs_f64();
        // What was there took no time, and says nothing of what is left.
        let left = left(elapsed, share - was_there as f64, (all - was_there) as f64);
        let far = [Some(units::percent(record::ratio(share, all as f64))), Some(format!("{} so far", time(elapsed)))];
        let left = left.filter(|_| done < all && self.doing != "ended").map(|left| format!("{} left", time(left)));
        let tile = |what: &str, count: usize, more: String| [what.to_owned(), units::grouped(count as u64), more];
        Board {
            state: self.doing.to_owned(),
            share: Some(record::ratio(share, all as f64)),
            far: far.into_iter().chain([left]).flatten().collect::<Vec<_>>().join(" · "),
            tiles: vec![
                tile("Done", done, format!("of {}; {was_there} were there", units::grouped(all as u64))),
                tile("Under way", under_way, format!("up to {} at once", self.jobs)),
                tile("Failed", self.failed.len(), "of those done".to_owned()),
                tile("To do", all - done - under_way, "or made by another process".to_owned()),
            ],
            tables: vec![self.under_way(now), self.failures(), self.over_all(), self.newest()],
            events: self.events.clone(),
            ..Board::default()
        }
    }

    fn under_way(&self, now: Instant) -> Table {
        let row = |(index, run): (usize, &Run)| {
            let Is::UnderWay { since, share } = run.is else { return None };
            let for_s = now.saturating_duration_since(since).as_secs_f64();
            let more = left(for_s, share, 1.0).map_or_else(|| "–".to_owned(), time);
            let rest = [Cell::bar(units::percent(share), share), Cell::text(time(for_s)), Cell::text(more)];
            Some(self.words(index).into_iter().chain(rest).collect::<Vec<Cell>>())
        };
        let rows: Vec<_> = self.runs.iter().enumerate().filter_map(row).collect();
        Table {
            title: "Under way".into(),
            note: if rows.is_empty() { "No run is under way.".into() } else { String::new() },
            columns: columns(&["Run", "Profile", "Seed", "Done", "For", "Left"]),
            rows,
        }
    }

    /// Of each figure the least, the median and the most, and the runs that have them.
    fn over_all(&self) -> Table {
        let row = |at: usize, sorted: &Vec<(f64, usize)>| {
            let (name, quantity) = GLANCE[at];
            let (least, most) = (sorted.first()?, sorted.last()?);
            let texts = [
                name.to_owned(),
                quantity.format(least.0),
                self.name(least.1).to_owned(),
                quantity.format(sorted[(sorted.len() - 1) / 2].0),
                quantity.format(most.0),
                self.name(most.1).to_owned(),
            ];
            Some(texts.map(Cell::text).to_vec())
        };
        Table {
            title: "Figures of all runs that are done".into(),
            note: "Of an even number of runs, the lower one of the two in the middle is the median.".into(),
            columns: columns(&["Figure", "Least", "by", "Median", "Most", "by"]),
            rows: self.sorted.iter().enumerate().filter_map(|(at, sorted)| row(at, sorted)).collect(),
        }
    }

    /// Results of the newest runs, each figure with a bar up to the most of all runs.
    fn newest(&self) -> Table {
        let known: Vec<usize> = (0..GLANCE.len()).filter(|at| !self.sorted[*at].is_empty()).collect();
        let cell = |figures: &Glance, at: usize| {
            let most = self.sorted[at].last().map_or(0.0, |(most, _)| *most);
            let quantity: Quantity = GLANCE[at].1;
            figures[at]
                .map_or_else(|| Cell::text("–"), |value| Cell::bar(quantity.format(value), record::ratio(value, most)))
        };
        let rows = self.gave.iter().rev().take(ROWS_MAX).map(|(index, figures)| {
            self.words(*index).into_iter().chain(known.iter().map(|at| cell(figures, *at))).collect::<Vec<Cell>>()
        });
        let of = units::plural_exact(self.gave.len() as u64, "run");
        Table {
            title: "What runs gave".into(),
            note: format!("The newest of {of} first; a bar is a share of the largest of them all."),
            columns: ["Run", "Profile", "Seed"]
                .into_iter()
                .chain(known.iter().map(|at| GLANCE[*at].0))
                .map(str::to_owned)
                .collect(),
            rows: rows.collect(),
        }
    }

    fn failures(&self) -> Table {
        let row = |(index, why): &(usize, String)| vec![Cell::text(self.name(*index)), Cell::bad(why.clone())];
        Table {
            title: "Failures".into(),
            note: if self.failed.is_empty() { "No run has failed." } else { "The newest first." }.into(),
            columns: columns(&["Run", "Reason"]),
            rows: self.failed.iter().rev().take(ROWS_MAX).map(row).collect(),
        }
    }
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Seconds until all of `whole` is done, of which `done` took so many.
fn left(seconds: f64, done: f64, whole: f64) -> Option<f64> {
    (seconds >= LEFT_AFTER_S && done > 0.0).then(|| seconds / done * (whole - done).max(0.0))
}

/// Seconds as people say them.
fn time(seconds: f64) -> String {
    units::seconds(seconds.round().max(1.0))
}
