//! `tidewater bench`: one's own workload with its log files on their disk, and on a device.

use crate::args::files::{Bench, LevelName};
use crate::failure::{Failure, Status, reason};
use crate::{interrupt, output};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// `tidewater bench`.
///
/// # Errors
/// When the program can't be started, or fails.
pub fn command(of: &Bench) -> Result<(), Failure> {
    let (name, arguments) = of.command.split_first().ok_or_else(|| Failure::usage("which program?"))?;
    let itself = std::env::current_exe().map_err(|error| Failure::usage(reason(&error)))?;
    let mut place: Vec<OsString> = vec!["--device".into(), of.log.device.clone().into()];
    place.extend(["--lane".into(), of.log.lane.to_string().into()]);
    for glob in &of.globs {
        place.extend(["--log".into(), glob.into()]);
    }
    // What an earlier run has left comes before anything is written: a later recovery would put older bytes over it.
    let mut recover = Command::new(&itself);
    let status = recover.arg("recover").args(&place).stdin(Stdio::null()).stdout(Stdio::null()).status();
    if !status.is_ok_and(|status| status.success()) {
        return Err(Failure::run("the device is not ready for a benchmark; nothing was run"));
    }
    let mut on_log: Vec<OsString> = vec!["run".into(), "--quiet".into(), "--must-match".into()];
    on_log.extend(place);
    if let Some(level) = of.level {
        on_log.extend(["--level".into(), level.name().into()]);
    }
    on_log.push("--".into());

    // Ctrl-C reaches the program too, and ends it.
    let _running = interrupt::Running::begin();
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..of.rounds {
        for turn in 0..2 {
            // The one that is second finds the disk's caches warm: they take turns at that.
            let side = (round + turn) % 2;
            output::tell(&format!("round {} of {}, {}\n", round + 1, of.rounds, SIDES[side as usize]));
            let mut command = if side == 0 { Command::new(name) } else { Command::new(&itself) };
            if side == 1 {
                command.args(&on_log).arg(name);
            }
            let begin = Instant::now();
            let status = command.args(arguments).stdin(Stdio::null()).status();
            let time = begin.elapsed();
            let status = status.map_err(|error| {
                Failure::usage(format_args!("{}: {}", name.display(), reason(&error)))
                    .help("CMD is a program in PATH; quote patterns of --log, or the shell expands them")
            })?;
            if interrupt::requested() {
                let message = format!("interrupted in round {} of {}", round + 1, of.rounds);
                return Err(Failure { status: Status::Interrupted, ..Failure::run(message) });
            }
            check(status, SIDES[side as usize])?;
            times[side as usize].push(time);
        }
    }
    let level = of.level.map_or("the level of the device", LevelName::name);
    output::print(&table(&times[0], &times[1], level))
}

/// The two sides of the comparison.
const SIDES: [&str; 2] = ["files on their disk", "log files on the device"];

fn check(status: ExitStatus, side: &str) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    Err(Failure::run(format_args!("with its {side} the program ended with {status}"))
        .help("it runs several times in one folder: let it remove what an earlier run has left"))
}

fn median(times: &[Duration]) -> f64 {
    let mut seconds: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.len() / 2;
    if seconds.len() % 2 == 1 { seconds[middle] } else { (seconds[middle - 1] + seconds[middle]) / 2.0 }
}

/// Medians, and the least and the greatest.
fn table(plain: &[Duration], on_log: &[Duration], level: &str) -> String {
    let mut text = format!("{:26}{:>12}{:>12}{:>12}\n", "seconds", "median", "least", "greatest");
    for (side, times) in SIDES.iter().zip([plain, on_log]) {
        let (least, greatest) = range(times.iter().map(Duration::as_secs_f64));
        let _ = writeln!(text, "{side:26}{:>12.3}{least:>12.3}{greatest:>12.3}", median(times));
    }
    let ratio = median(plain) / median(on_log);
    // The two sides of a round ran one after the other: what slows the machine down for long slows both.
    let rounds: Vec<f64> = plain.iter().zip(on_log).map(|(a, b)| a.as_secs_f64() / b.as_secs_f64()).collect();
    let (least, greatest) = range(rounds.iter().copied());
    let by_round = format!("{ratio:.2} times as fast in the median, {least:.2} to {greatest:.2} times by round");
    if differ(plain, on_log, &rounds) {
        let _ = writeln!(text, "On the log ({level}) it runs {by_round}.");
    } else {
        let more = 7.max(3 * rounds.len());
        let _ = writeln!(
            text,
            "Cannot tell: on the log ({level}) it runs {by_round}. Give --rounds {more}, or make a round longer."
        );
    }
    text
}

/// Rounds that say as much as one could by chance: of three against three, all of one side are below all of the other
/// in one of ten arrangements.
const ROUNDS_MIN: usize = 3;
/// Rounds after which it is enough that each says the same: chance does that once in 32 times.
const ROUNDS_ALIKE: usize = 6;

/// Whether the rounds bear a verdict: every time of one side is below every time of the other, or all of many rounds
/// agree.
fn differ(plain: &[Duration], on_log: &[Duration], rounds: &[f64]) -> bool {
    let seconds = |times: &[Duration]| range(times.iter().map(Duration::as_secs_f64));
    let ((fast, slow), (fast_log, slow_log)) = (seconds(plain), seconds(on_log));
    let apart = slow < fast_log || slow_log < fast;
    let alike = rounds.iter().all(|&ratio| ratio > 1.0) || rounds.iter().all(|&ratio| ratio < 1.0);
    rounds.len() >= ROUNDS_MIN && apart || rounds.len() >= ROUNDS_ALIKE && alike
}

/// The least and the greatest.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    (values.clone().fold(f64::INFINITY, f64::min), values.fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_medians_and_their_ratio() {
        let of = |seconds: &[u64]| seconds.iter().copied().map(Duration::from_secs).collect::<Vec<_>>();
        let text = table(&of(&[8, 4, 30]), &of(&[2, 1, 3]), "ring");
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][4..], ["8.000", "4.000", "30.000"]);
        assert_eq!(lines[2][5..], ["2.000", "1.000", "3.000"]);
        let verdict = "On the log (ring) it runs 4.00 times as fast in the median, 4.00 to 10.00 times by round.\n";
        assert!(text.ends_with(verdict), "{text}");
        assert_eq!(median(&of(&[1, 2, 3, 10])), 2.5);
    }

    /// Rounds of 1.26 s and 2.34 s had made "0.71 times as fast".
    #[test]
    fn rounds_that_bear_no_verdict_give_none() {
        let of = |ms: &[u64]| ms.iter().copied().map(Duration::from_millis).collect::<Vec<_>>();
        let said = |plain: &[u64], on_log: &[u64]| table(&of(plain), &of(on_log), "ring");
        for (plain, on_log) in [
            (&[1_260, 1_300][..], &[1_770, 2_340][..]),
            (&[1_260, 2_340, 1_500], &[1_770, 1_900, 1_800]),
            (&[2_000, 1_000, 2_000], &[1_500, 1_200, 1_500]),
        ] {
            let text = said(plain, on_log);
            assert!(text.contains("\nCannot tell: on the log (ring) it runs "), "{text}");
            assert!(text.contains("Give --rounds "), "{text}");
        }
        // The machine grows slower, and every round agrees.
        let drifting = said(&[100, 200, 300, 400, 500, 600], &[90, 190, 290, 390, 490, 590]);
        assert!(drifting.contains("\nOn the log (ring) it runs 1.0"), "{drifting}");
    }
}
