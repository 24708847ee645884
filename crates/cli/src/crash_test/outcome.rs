//! Results of a crash test: for the terminal, as JSON, as JUnit XML.

use super::check::Verdict;
use crate::failure::Failure;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use tidewater_base::units::plural_exact;
use tidewater_crash::{Lose, Operation, State, Volume};

/// Lost operations that are listed.
const LISTED: usize = 20;

/// A state that was checked.
#[derive(Debug)]
pub struct Tried {
    /// Its place in the plan.
    pub index: usize,
    /// Operations before the cut.
    pub cut: u64,
    /// Its kind of loss.
    pub lose: Lose,
    /// Result of the check.
    pub verdict: Verdict,
}

/// A failing state.
#[derive(Debug)]
pub struct Found {
    /// The state.
    pub state: State,
    /// Result of its check.
    pub verdict: Verdict,
}

/// A whole test.
#[derive(Debug)]
pub struct Outcome {
    /// States that were planned.
    pub planned: usize,
    /// States that were equal to one before them.
    pub equal: usize,
    /// The others, in the plan's order.
    pub tried: Vec<Tried>,
    /// Time of the program's run, and of the checks.
    pub recorded: Duration,
    /// The latter.
    pub seconds: Duration,
    /// The smallest failure.
    pub smallest: Option<Found>,
}

impl Found {
    fn lines(&self, volume: &Volume) -> Vec<String> {
        let described = |(number, pieces): (&u64, &Vec<u32>)| {
            let torn = if pieces.is_empty() { "" } else { ", torn" };
            let by = volume.durable_by(*number).map_or("never made durable".into(), |by| format!("durable by #{by}"));
            format!("{}{torn} ({by})", volume.described(*number))
        };
        self.state.lost.iter().take(LISTED).map(described).collect()
    }

    /// For the terminal.
    pub fn text(&self, volume: &Volume) -> String {
        let cut = self.state.cut;
        let ids: Vec<&str> = volume.acknowledged(cut).collect();
        let mut text = format!("power cut after {}", plural_exact(cut, "operation"));
        if let Some(last) = cut.checked_sub(1) {
            let _ = write!(text, ", the last: {}", volume.described(last));
        }
        let _ = write!(text, "\n{} acknowledged", plural_exact(ids.len() as u64, "id"));
        if let Some(last) = ids.last() {
            let _ = write!(text, ", the last: {}", crate::failure::printable(last));
        }
        let lost = self.state.lost.len();
        let _ = writeln!(text, "\n{} lost{}", plural_exact(lost as u64, "operation"), if lost > 0 { ":" } else { "" });
        self.lines(volume).iter().for_each(|line| _ = writeln!(text, "  {line}"));
        if lost > LISTED {
            let _ = writeln!(text, "  and {} more", lost - LISTED);
        }
        let _ = writeln!(text, "{}", self.verdict.said);
        text
    }
}

impl Outcome {
    /// States that failed.
    pub fn failed(&self) -> usize {
        self.tried.iter().filter(|one| !one.verdict.passed).count()
    }

    /// For the terminal. `failure`: where the smallest failure is.
    pub fn text(&self, volume: &Volume, failure: &Path) -> String {
        let count = |is: fn(&Operation) -> bool| volume.operations().filter(|(_, one)| is(one)).count() as u64;
        let syncs = count(|one| matches!(one, Operation::Sync { .. } | Operation::WrittenThrough { .. }));
        let mut text = format!(
            "recorded {} ({}, {}) in {:.1} s, {} acknowledged\n\
             {} checked in {:.1} s, {} equal to one of them, {} failed\n",
            plural_exact(volume.end(), "operation"),
            plural_exact(count(Operation::is_change), "change"),
            plural_exact(syncs, "sync"),
            self.recorded.as_secs_f64(),
            plural_exact(volume.acknowledged(volume.end()).count() as u64, "id"),
            plural_exact(self.tried.len() as u64, "state"),
            self.seconds.as_secs_f64(),
            self.equal,
            self.failed()
        );
        if let Some(found) = &self.smallest {
            let _ = write!(text, "\nThe smallest failure, in {}:\n{}", failure.display(), found.text(volume));
        }
        text
    }

    /// As JSON.
    ///
    /// # Errors
    /// When it can't be written as JSON.
    pub fn json(&self, volume: &Volume) -> Result<String, Failure> {
        let smallest = self.smallest.as_ref().map(|found| {
            serde_json::json!({
                "cut": found.state.cut,
                "acknowledged": volume.acknowledged(found.state.cut).collect::<Vec<_>>(),
                "lost_operations": found.lines(volume),
                "lost_operations_count": found.state.lost.len(),
                "lost_ids": found.verdict.lost,
                "said": found.verdict.said,
            })
        });
        let value = serde_json::json!({
            "operations": volume.end(),
            "acknowledged": volume.acknowledged(volume.end()).count(),
            "planned": self.planned,
            "tried": self.tried.len(),
            "equal": self.equal,
            "failed": self.failed(),
            "recorded_seconds": self.recorded.as_secs_f64(),
            "seconds": self.seconds.as_secs_f64(),
            "smallest": smallest,
        });
        Ok(serde_json::to_string_pretty(&value).map_err(Failure::run)? + "\n")
    }

    /// As JUnit XML: a test case for each state.
    pub fn junit(&self) -> String {
        let seconds = self.seconds.as_secs_f64();
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <testsuite name=\"crash-test\" tests=\"{}\" failures=\"{}\" time=\"{seconds:.3}\">\n",
            self.tried.len(),
            self.failed()
        );
        for one in &self.tried {
            let name = format!("cut after {}, state {}: {:?}", plural_exact(one.cut, "operation"), one.index, one.lose);
            let _ = write!(text, "  <testcase classname=\"crash-test\" name=\"{}\"", escaped(&name));
            if one.verdict.passed {
                text += "/>\n";
                continue;
            }
            let (first, rest) = one.verdict.said.split_once('\n').unwrap_or((&one.verdict.said, ""));
            let _ = writeln!(text, "><failure message=\"{}\">{}</failure></testcase>", escaped(first), escaped(rest));
        }
        text + "</testsuite>\n"
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
