//! A log on a terminal.

use super::LogRecord;
use crate::compare::printable;
use std::fmt::Write;
use tidewater_base::units::{bytes, count, mib_per_second, micros};

/// A line for each side.
pub fn summary(record: &LogRecord) -> String {
    let mut text = format!(
        "{}, groups of {}\ndrive {}: {}\n\n{:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}\n",
        printable(&record.workload),
        bytes(record.group_bytes),
        printable(&record.profile),
        printable(&record.description),
        "log to",
        "txn/s",
        "log/s",
        "mean",
        "p99",
        "p99.9",
        "commit",
        "stalls"
    );
    for side in &record.sides {
        let _ = writeln!(
            text,
            "{:<13} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
            printable(&side.to),
            count(side.transactions_per_second),
            mib_per_second(side.log_bytes_per_second / 1_048_576.0),
            micros(side.latency_us.mean),
            micros(side.latency_us.p99),
            micros(side.latency_us.p999),
            micros(side.commit_us.mean),
            side.stalls
        );
    }
    for note in &record.notes {
        let _ = writeln!(text, "\nnote: {}", printable(note));
    }
    text.push_str(
        "\nmean, p99 and p99.9: from a transaction's start until its log is durable; commit: of a group, on average; \
         stalls:\n\
         times that a worker found all log buffers full. `none` keeps no log.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn each_side_has_its_line() {
        let text = summary(&record());
        assert!(text.starts_with("tpcc on 8 workers, groups of 16 KiB\n"), "{text}");
        let line = |side: &str| text.lines().find(|line| line.starts_with(side)).unwrap_or_default().to_owned();
        assert!(line("fast").contains("20 µs") || line("fast").contains("24 µs"), "{text}");
        assert!(line("conventional").contains("5 MiB/s"), "{text}");
    }
}
