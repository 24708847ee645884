//! Inputs of the run, and how to repeat it.

use crate::document::{Cell, Kind, Table};
use crate::html::Page;
use crate::record::{Placement, Record, Workload, WorkloadKind};
use std::fmt::Write;
use tidewater_base::units::{bytes, plural, plural_exact, seconds, setting, significant};

/// How a command is introduced that makes a page's runs again.
pub(crate) const SAME: &str = "The same command with the same version gives the same figures, except wall-clock time.";

pub(super) fn section(page: &mut Page, record: &Record) {
    page.section("again", "How to run it again");
    if let Some(command) = command(record) {
        page.muted(SAME);
        page.command(&command);
    }
    memory(page, record);
    options(page, record);
    let settings = &record.profile.settings;
    if !settings.is_empty() {
        let value = |(key, value): (&String, &String)| {
            let is_changed = record.profile.changed.iter().any(|set| set.split('=').next() == Some(key));
            let (mark, class) = if is_changed { (" (changed)", "changed") } else { ("", "") };
            (key.clone(), Cell::from(setting(value) + mark).class(class))
        };
        let summary = format!("All {} settings of the drive", settings.len());
        page.details(&summary, |page| page.facts(settings.iter().map(value)));
    }
    page.footer(&footer(record));
}

/// The command that makes the run again: as it was given, or put together from the record. `None` where no command
/// does.
pub(crate) fn command(record: &Record) -> Option<String> {
    if let Some(line) = &record.command_line {
        return Some(line.clone());
    }
    let flag = match record.workload.kind {
        WorkloadKind::Trace => "--trace",
        WorkloadKind::Job => "--job",
        WorkloadKind::Synth => return None,
    };
    // A policy from outside of the firmware has the origin before its name, as in `python:Lru`.
    let is_outside = record.profile.settings.get("buffer.write_policy").is_some_and(|policy| policy.contains(':'));
    if record.workload.source.is_empty() || is_outside {
        return None;
    }
    let mut words = vec!["tidewater replay --profile".to_owned(), quoted(&record.profile.name)];
    for set in &record.profile.changed {
        words.extend(["--set".to_owned(), quoted(set)]);
    }
    words.extend([flag.to_owned(), quoted(&record.workload.source)]);
    for (name, value) in &record.workload.options {
        words.extend(option(name, value, &record.workload)?);
    }
    words.push(format!("--seed {}", record.seed));
    Some(words.join(" "))
}

/// The words by which `replay` takes an option, as a record names it. `None`: it has no such option.
fn option(name: &str, value: &str, workload: &Workload) -> Option<Vec<String>> {
    let given = |name: &str| workload.options.get(name).is_some_and(|value| value != "1");
    let name = name.replace('_', "-");
    let flag = format!("--{name}");
    match name.as_str() {
        // They follow from the other options, or from the job.
        "pacing" | "runtime" => Some(Vec::new()),
        // What `replay` does without a word.
        "premap" if value == "true" => Some(Vec::new()),
        "speedup" if value == "1" => Some(Vec::new()),
        // Both are only there when the depth is that of a job with a rate.
        "queue-depth" if given("speedup") => Some(Vec::new()),
        "warmup-requests" => Some(vec!["--warm-up".into(), quoted(value)]),
        "limit" if !given("slice") => Some(vec!["--slice".into(), quoted(&format!("..{value}"))]),
        "skip-bad" | "compact" | "wrap" => Some(if value == "true" { vec![flag] } else { Vec::new() }),
        "format" | "slice" | "device" | "queue-depth" | "speedup" | "precondition" | "power-cut" => {
            Some(vec![flag, quoted(value)])
        }
        _ => None,
    }
}

/// A word as a POSIX shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+%@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn memory(page: &mut Page, record: &Record) {
    if record.memory.is_empty() {
        return;
    }
    page.heading("Memories of the controller, and what they hold");
    let columns = [(Kind::Name, "memory"), (Kind::Words, "use"), (Kind::Value, "size"), (Kind::Words, "note")];
    let row = |placement: &Placement| {
        let Placement { memory, r#use, size_bytes, note } = placement.clone();
        [memory, r#use, bytes(size_bytes), note].map(Cell::from).to_vec()
    };
    page.table(&Table::of("", columns).with(record.memory.iter().map(row)));
}

fn options(page: &mut Page, record: &Record) {
    let workload = &record.workload;
    if workload.source.is_empty() && workload.options.is_empty() {
        return;
    }
    page.heading("Workload");
    let options = workload.options.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let load = [(words_of(workload.kind), workload.source.clone()), ("seed", record.seed.to_string())];
    page.facts(load.into_iter().chain(options));
}

/// A kind of workload, in words.
pub(crate) fn words_of(kind: WorkloadKind) -> &'static str {
    match kind {
        WorkloadKind::Trace => "trace",
        WorkloadKind::Job => "job",
        WorkloadKind::Synth => "generated trace",
    }
}

fn footer(record: &Record) -> String {
    let mut text = format!(
        "tidewater {}, record schema {}. {}, {} of the virtual clock ({} per request), simulated in {} ({} of \
         processor time)",
        record.tool_version,
        record.schema,
        plural_exact(record.commands, "NVMe command"),
        plural_exact(record.timing_events, "event"),
        significant(record.events_per_request),
        seconds(record.wall_seconds),
        seconds(record.user_cpu_seconds)
    );
    if record.user_cpu_seconds > 0.0 {
        let rate = plural((record.requests as f64 / record.user_cpu_seconds).round() as u64, "request");
        let _ = write!(text, ", {rate} per second of processor time");
    }
    if let Some(memory) = record.bytes_per_touched_page {
        let _ = write!(text, ", {} bytes of memory per touched page", significant(memory));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_put_together_from_the_record_and_quoted_for_the_shell() {
        let mut record = Record { seed: 7, ..Record::default() };
        record.profile.name = "generic".into();
        record.profile.changed.push("nand.channels=4".into());
        record.workload.source = "a trace; rm 'x'.csv".into();
        record.workload.options.insert("queue-depth".into(), "32".into());
        record.workload.options.insert("wrap".into(), "true".into());
        assert_eq!(
            command(&record).unwrap(),
            "tidewater replay --profile generic --set nand.channels=4 --trace 'a trace; rm '\\''x'\\''.csv' \
             --queue-depth 32 --wrap --seed 7"
        );
        record.profile.settings.insert("buffer.write_policy".into(), "lru".into());
        assert!(command(&record).is_some());
        record.profile.settings.insert("buffer.write_policy".into(), "python:Lru".into());
        assert_eq!(command(&record), None, "no command has the policy");
    }

    /// Records of runs through the bindings have no command line.
    #[test]
    fn a_command_has_only_options_that_replay_takes() {
        let made = |options: &[(&str, &str)]| {
            let mut record = Record::default();
            (record.profile.name, record.workload.source) = ("tiny".into(), "t.csv".into());
            let owned = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            record.workload.options.extend(owned);
            command(&record)
        };
        let with = |options: &str| Some(format!("tidewater replay --profile tiny --trace t.csv{options} --seed 0"));
        let plain = [("pacing", "at arrival"), ("precondition", "steady"), ("premap", "true"), ("speedup", "1")];
        assert_eq!(made(&plain), with(" --precondition steady"));
        let closed =
            [("pacing", "closed loop"), ("queue_depth", "8"), ("warmup_requests", "100"), ("skip_bad", "true")];
        assert_eq!(made(&closed), with(" --queue-depth 8 --skip-bad --warm-up 100"));
        assert_eq!(made(&[("queue_depth", "8"), ("speedup", "2")]), with(" --speedup 2"));
        assert_eq!(made(&[("limit", "50"), ("power-cut", "2s")]), with(" --slice ..50 --power-cut 2s"));
        assert_eq!(made(&[("queue_of", "operation")]), None);
        assert_eq!(made(&[("premap", "false")]), None);
    }
}
