//! The status of a served device: keys in groups, once or again and again.

use crate::args::served::StatusOf;
use crate::failure::Failure;
use crate::socket::{control_socket, status_of};
use crate::{group, interrupt, output};
use console::Term;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::time::{Duration as WallDuration, Instant};
use tidewater_base::Duration;
use tidewater_base::units::{self, bytes, format_duration};

/// The keys of an answer to `status`, by what they are about; those that are not here come last.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Device",
        &[
            "state",
            "store_error",
            "disk",
            "profile",
            "capacity",
            "timing",
            "image",
            "control",
            "uptime_s",
            "power_cuts",
            "faults_struck",
        ],
    ),
    ("Peers", &["replication"]),
    ("Hosts", &["attached_functions", "nvme_tcp_connections", "nbd_connections", "outstanding_commands"]),
    (
        "Commands",
        &[
            "reads",
            "writes",
            "flushes",
            "other_commands",
            "errors",
            "bytes_to_hosts",
            "bytes_from_hosts",
            "syncs",
            "command_events_written",
            "command_events_dropped",
            "command_events_error",
        ],
    ),
    ("Flash", &["units_written_by_hosts", "units_collected", "pages_only_in_volatile_memory"]),
    (
        "Host memory",
        &[
            "host_memory_lent",
            "host_memory_reads",
            "host_memory_writes",
            "host_memory_failed_checks",
            "host_memory_refetches",
        ],
    ),
];
/// The group of lanes of the log: their keys have a number.
const LOG: &str = "Log";
/// Keys of a watch's line, where it does not go to a terminal.
const LINE: [&str; 10] = [
    "uptime_s",
    "state",
    "outstanding_commands",
    "reads",
    "writes",
    "flushes",
    "other_commands",
    "errors",
    "bytes_to_hosts",
    "bytes_from_hosts",
];
/// How long a watch may be deaf to Ctrl-C.
const DEAF: WallDuration = WallDuration::from_millis(50);

/// `tidewater status`.
///
/// # Errors
/// When no device answers, or answers no more while it is watched.
pub fn command(of: &StatusOf) -> Result<(), Failure> {
    let asked = || -> Result<Map<String, Value>, Failure> {
        let mut answer = status_of(&of.served)?;
        answer.insert("control".into(), control_socket(&of.served).display().to_string().into());
        if !of.json {
            answer.remove("ok");
            if let Some(peers) = answer.remove("peers") {
                answer.insert("replication".into(), group::in_a_line(&peers).into());
            }
            if let Some(disk) = answer.remove("disk") {
                answer.insert("disk".into(), disk_in_a_line(&disk).into());
            }
            log_in_lines(&mut answer);
        }
        Ok(answer)
    };
    if let Some(every) = of.watch {
        return watch(WallDuration::from_nanos(every.as_ps() / 1_000), of.json, asked);
    }
    let answer = asked()?;
    if of.json {
        let text = serde_json::to_string_pretty(&answer).map_err(Failure::run)?;
        return output::print(&(text + "\n"));
    }
    output::print(&grouped(&answer, None))
}

/// Whether it counts what happens, so that its change is a rate.
fn is_counter(key: &str) -> bool {
    let grouped = |name: &str| GROUPS.iter().find(|(heading, _)| *heading == name).map_or(&[][..], |(_, keys)| keys);
    let counts = grouped("Commands").contains(&key) || grouped("Flash").contains(&key);
    counts && key != "pages_only_in_volatile_memory"
}

/// The name of a key in text.
fn name_of(key: &str) -> String {
    match key {
        "uptime_s" => "uptime (s)".to_owned(),
        "units_collected" => "units garbage collected".to_owned(),
        key => key.replace('_', " "),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Object(of) => of.iter().map(|(name, of)| format!("{name} {of}")).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}

/// How the disk of an image is, in a line: a threshold for a slow one is chosen by it.
pub fn disk_in_a_line(disk: &Value) -> String {
    let mean = |count: &str, us: &str| {
        let (count, us) = (disk[count].as_u64()?, disk[us].as_u64()?);
        Some(format_duration(Duration::from_us(us.checked_div(count)?)))
    };
    let none = || "not measured".to_owned();
    let state = disk["state"].as_str().map_or_else(String::new, |state| format!("{state}; "));
    format!(
        "{state}mean time of a write {}, of a sync {}",
        mean("writes", "write_us").unwrap_or_else(none),
        mean("syncs", "sync_us").unwrap_or_else(none)
    )
}

/// The lanes of a log in a line each, behind whether they have a program; and waits in one.
pub fn log_in_lines(answer: &mut Map<String, Value>) {
    for lane in answer.remove("lanes").as_ref().and_then(Value::as_array).into_iter().flatten() {
        let number = |name: &str| lane[name].as_u64().unwrap_or_default();
        let key = match (number("function"), number("lane")) {
            (0, lane) => format!("lane_{lane}"),
            (function, lane) => format!("function_{function}_lane_{lane}"),
        };
        let program = answer.get(&key).map_or_else(String::new, |program| format!("{}; ", plain(program)));
        let text = format!(
            "{program}{} appended, {} acknowledged, {} on flash; {} of a ring of {} in use",
            bytes(number("tail")),
            bytes(number("credit")),
            bytes(number("destaged")),
            bytes(number("ring_used")),
            bytes(number("ring")),
        );
        answer.insert(key, text.into());
    }
    if let Some(Value::Object(waits)) = answer.remove("log_waits") {
        let text = waits.iter().filter_map(|(level, of)| {
            let (count, sum) = (of["count"].as_u64()?, of["sum_us"].as_u64()?);
            let mean = Some(format_duration(Duration::from_us(sum.checked_div(count)?)));
            mean.map(|mean| format!("{} for {}, mean {mean}", units::plural(count, "wait"), level.replace('_', "-")))
        });
        let text = text.collect::<Vec<_>>().join("; ");
        answer.insert("log_waits".into(), if text.is_empty() { "none yet".into() } else { text.into() });
    }
}

/// The status as text, in groups. `before`: an earlier answer and the seconds since, for rates.
pub fn grouped(answer: &Map<String, Value>, before: Option<(&Map<String, Value>, f64)>) -> String {
    let is_known = |key: &str| GROUPS.iter().any(|(_, keys)| keys.contains(&key));
    let others = answer.keys().map(String::as_str).filter(|key| !is_known(key));
    let (lanes, others): (Vec<&str>, Vec<&str>) =
        others.partition(|key| key.contains("lane_") || key.starts_with("log_"));
    let width = answer.keys().map(|key| name_of(key).len()).max().unwrap_or(0);
    let rate = |key: &str, value: &Value| {
        let (earlier, seconds) = before.filter(|_| is_counter(key))?;
        let (now, then) = (value.as_u64()?, earlier.get(key)?.as_u64()?);
        Some(format!("  ({:.0}/s)", now.saturating_sub(then) as f64 / seconds.max(1e-3)))
    };
    let mut text = String::new();
    for (heading, keys) in GROUPS.into_iter().chain([(LOG, lanes.as_slice()), ("Other", others.as_slice())]) {
        let values: Vec<_> = keys.iter().filter_map(|key| Some((key, answer.get(*key)?))).collect();
        if !values.is_empty() {
            let _ = writeln!(text, "{heading}");
        }
        for (key, value) in values {
            let rate = rate(key, value).unwrap_or_default();
            let _ = writeln!(text, "  {:width$}  {}{rate}", name_of(key), plain(value));
        }
    }
    text
}

/// The status in a line of keys and values.
fn line(answer: &Map<String, Value>) -> String {
    let values = LINE.iter().filter_map(|key| Some(format!("{key}={}", plain(answer.get(*key)?).replace(' ', "-"))));
    values.collect::<Vec<_>>().join(" ") + "\n"
}

/// Shows the status every so often, until Ctrl-C: redrawn on a terminal, a line each time elsewhere. `ask`: the answer,
/// ready to be shown; `json`: an object in a line.
///
/// # Errors
/// When the device does not answer any more, or nothing can be printed.
pub fn watch(
    every: WallDuration,
    json: bool,
    mut ask: impl FnMut() -> Result<Map<String, Value>, Failure>,
) -> Result<(), Failure> {
    let _running = interrupt::Running::silent();
    let term = Term::stdout();
    let redraws = term.is_term() && !json;
    let mut before: Option<(Map<String, Value>, Instant)> = None;
    while !interrupt::requested() {
        let (answer, now) = (ask()?, Instant::now());
        if redraws {
            let earlier = before.as_ref().map(|(answer, at)| (answer, now.duration_since(*at).as_secs_f64()));
            redraw(&term, &grouped(&answer, earlier))?;
        } else if json {
            output::print(&format!("{}\n", Value::Object(answer.clone())))?;
        } else {
            output::print(&line(&answer))?;
        }
        before = Some((answer, now));
        while now.elapsed() < every && !interrupt::requested() {
            std::thread::sleep(DEAF.min(every.saturating_sub(now.elapsed())));
        }
    }
    Ok(())
}

/// Puts a text where the one before was, as far as the terminal has lines.
fn redraw(term: &Term, text: &str) -> Result<(), Failure> {
    let rows = usize::from(term.size().0).saturating_sub(2).max(1);
    let mut shown: String = text.lines().take(rows).map(|line| format!("{line}\n")).collect();
    shown += &match text.lines().count().saturating_sub(rows) {
        0 => "Ctrl-C ends\n".to_owned(),
        left => format!("{left} more lines in a higher window; Ctrl-C ends\n"),
    };
    let drawn = term.clear_screen().and_then(|()| term.write_str(&shown));
    drawn.map_err(|error| Failure::write("standard output", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn keys_stand_in_groups_in_one_column_with_rates_of_what_counts() {
        let before = answer(r#"{"state": "serving", "reads": 100, "uptime_s": 1, "lane_0": "free"}"#);
        let now = answer(
            r#"{"state": "serving", "reads": 300, "uptime_s": 3, "lane_0": "free", "new_key": 7,
               "pages_only_in_volatile_memory": 4}"#,
        );
        let text = grouped(&now, Some((&before, 2.0)));
        let headings: Vec<&str> = text.lines().filter(|line| !line.starts_with(' ')).collect();
        assert_eq!(headings, ["Device", "Commands", "Flash", "Log", "Other"], "{text}");
        assert!(text.contains("  300  (100/s)\n") && text.contains("  4\n") && text.contains("  3\n"), "{text}");
        let mut values = text.lines().filter(|line| line.starts_with(' '));
        let width = "pages only in volatile memory".len();
        assert!(values.all(|line| line.as_bytes()[width + 3] == b' ' && line.as_bytes()[width + 4] != b' '), "{text}");
    }

    #[test]
    fn a_log_has_a_line_for_each_lane_and_one_for_waits() {
        let mut now = answer(
            r#"{"lane_0": "free", "lanes": [{"function": 0, "lane": 0, "tail": 4096, "credit": 2048, "destaged": 1024,
                "trimmed": 0, "ring": 65536, "ring_used": 512}, {"function": 1, "lane": 2, "tail": 0, "credit": 0,
                "destaged": 0, "trimmed": 0, "ring": 65536, "ring_used": 0}], "log_waits": {"destaged": {"count": 2,
                "sum_us": 3000}, "remote_ring": {"count": 0, "sum_us": 0}}}"#,
        );
        log_in_lines(&mut now);
        let text = grouped(&now, None);
        assert!(text.starts_with("Log\n"), "{text}");
        assert!(text.contains("function 1 lane 2  0 B appended"), "{text}");
        let all = ["free; 4", " appended, 2", " acknowledged, 1", " on flash; 512 B of a ring of ", " in use"];
        assert!(all.iter().all(|part| text.contains(part)), "{text}");
        assert!(text.contains("2 waits for destaged, mean 1.5ms"), "{text}");
    }

    #[test]
    fn a_line_has_keys_and_values_without_blanks_in_them() {
        let text = line(&answer(r#"{"state": "shutting down", "reads": 3, "uptime_s": 1, "image": "memory"}"#));
        assert_eq!(text, "uptime_s=1 state=shutting-down reads=3\n");
    }
}
