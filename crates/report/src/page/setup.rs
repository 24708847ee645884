//! Inputs of the run, and how to repeat it.

use crate::html::escape;
use crate::record::{Record, Workload, WorkloadKind};
use std::fmt::Write;
use tidewater_base::units::{bytes, plural, plural_exact, seconds, setting, significant};

pub(super) fn section(out: &mut String, record: &Record) {
    out.push_str("<h2 id=\"again\">How to run it again</h2>\n");
    if let Some(command) = command(record) {
        let _ = writeln!(
            out,
            "<p class=\"muted\">The same command with the same version gives the same figures, except \
             wall-clock time.</p>\n<pre>{}</pre>",
            escape(&command)
        );
    }
    memory(out, record);
    options(out, record);
    let settings = &record.profile.settings;
    if !settings.is_empty() {
        let _ = writeln!(
            out,
            "<details><summary>All {} settings of the drive</summary>\n<dl class=\"settings\">",
            settings.len()
        );
        for (key, value) in settings {
            let changed = record.profile.changed.iter().any(|set| set.split('=').next() == Some(key));
            let (open, close) = if changed { ("<b>", "</b> (changed)") } else { ("", "") };
            let _ =
                writeln!(out, "<div><dt>{}</dt><dd>{open}{}{close}</dd></div>", escape(key), escape(&setting(value)));
        }
        out.push_str("</dl></details>\n");
    }
    footer(out, record);
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

fn memory(out: &mut String, record: &Record) {
    if record.memory.is_empty() {
        return;
    }
    out.push_str(
        "<h3>Memories of the controller, and what they hold</h3>\n<div \
         class=\"scroll\"><table><thead><tr><th>memory</th>\
         <th class=\"words\">use</th><th>size</th><th class=\"words\">note</th></tr></thead>\n<tbody>\n",
    );
    for placement in &record.memory {
        let _ = writeln!(
            out,
            "<tr><th>{}</th><td class=\"words\">{}</td><td>{}</td><td class=\"words\">{}</td></tr>",
            escape(&placement.memory),
            escape(&placement.r#use),
            bytes(placement.size_bytes),
            escape(&placement.note)
        );
    }
    out.push_str("</tbody></table></div>\n");
}

fn options(out: &mut String, record: &Record) {
    let workload = &record.workload;
    if workload.source.is_empty() && workload.options.is_empty() {
        return;
    }
    let kind = match workload.kind {
        WorkloadKind::Trace => "trace",
        WorkloadKind::Job => "job",
        WorkloadKind::Synth => "generated trace",
    };
    let _ = writeln!(
        out,
        "<h3>Workload</h3>\n<dl class=\"settings\">\n<div><dt>{kind}</dt><dd>{}</dd></div>\n\
         <div><dt>seed</dt><dd>{}</dd></div>",
        escape(&workload.source),
        record.seed
    );
    for (name, value) in &workload.options {
        let _ = writeln!(out, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    out.push_str("</dl>\n");
}

fn footer(out: &mut String, record: &Record) {
    let _ = write!(
        out,
        "<footer>tidewater {}, record schema {}. {}, {} of the virtual clock ({} per request), \
         simulated in {} ({} of processor time)",
        escape(&record.tool_version),
        record.schema,
        plural_exact(record.commands, "NVMe command"),
        plural_exact(record.timing_events, "event"),
        significant(record.events_per_request),
        seconds(record.wall_seconds),
        seconds(record.user_cpu_seconds)
    );
    if record.user_cpu_seconds > 0.0 {
        let _ = write!(
            out,
            ", {} per second of processor time",
            plural((record.requests as f64 / record.user_cpu_seconds).round() as u64, "request")
        );
    }
    if let Some(memory) = record.bytes_per_touched_page {
        let _ = write!(out, ", {} bytes of memory per touched page", significant(memory));
    }
    out.push_str(".</footer>\n");
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
