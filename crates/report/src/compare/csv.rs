//! The comparison as CSV, for plots of one's own.

use super::metrics::metrics;
use super::{Labelled, header};
use std::fmt::Write;

/// A line for each run: what it is called, what tells it from the others, and every figure of the comparison,
/// unrounded. The first line names the columns, with the unit last; a figure that a run does not have is empty, and one
/// that none has is left out.
pub fn csv(records: &[Labelled]) -> String {
    let varies = header::varies(records);
    let metrics = metrics(records);
    let mut out = String::from("run");
    for (name, _) in &varies {
        let _ = write!(out, ",{}", field(&name.replace(' ', "_")));
    }
    for metric in &metrics {
        let _ = write!(out, ",{}{}", column(&metric.name), metric.quantity.column_suffix());
    }
    out.push('\n');
    for (i, run) in records.iter().enumerate() {
        out.push_str(&field(&run.label));
        for (_, values) in &varies {
            let _ = write!(out, ",{}", field(values[i].as_deref().unwrap_or_default()));
        }
        for metric in &metrics {
            out.push(',');
            if let Some(value) = metric.values[i] {
                let _ = write!(out, "{value}");
            }
        }
        out.push('\n');
    }
    out
}

/// A name that programs take for a column: `read p99.9` is `read_p99_9`.
fn column(name: &str) -> String {
    let words: Vec<String> =
        name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    words.join("_")
}

/// A field, in quotes where it needs them (RFC 4180, section 2).
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Latency, Record};

    #[test]
    fn a_line_for_each_run_with_what_varies_and_every_figure() {
        let run = |label: &str, size: &str, seed: u64, iops: f64| {
            let mut record = Record { seed, iops, ..Record::default() };
            record.profile.settings.insert("buffer.write_size".into(), size.into());
            record.profile.description = format!("a drive, with {size}");
            let latency = Latency { count: 1, p999: 1.5, ..Latency::default() };
            record.latency_us.insert("read".into(), latency);
            Labelled { label: label.into(), record }
        };
        let text = csv(&[run("a", "1MiB", 1, 0.25), run("b, \"c\"", "2MiB", 2, 1e9)]);
        let lines: Vec<&str> = text.lines().collect();
        let names: Vec<&str> = lines[0].split(',').collect();
        assert_eq!(names[..4], ["run", "seed", "buffer.write_size", "iops"]);
        assert!(names.contains(&"read_p99_9_us") && names.contains(&"simulated_time_seconds"), "{names:?}");
        assert!(lines[1].starts_with("a,1,1MiB,0.25,"), "{}", lines[1]);
        assert!(lines[2].starts_with("\"b, \"\"c\"\"\",2,2MiB,1000000000,"), "{}", lines[2]);
        assert_eq!((lines.len(), lines[1].split(',').count()), (3, names.len()));
    }
}
