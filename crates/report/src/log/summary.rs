//! A log on a terminal.

use super::LogRecord;
use crate::document::{Cell, Table};
use std::fmt::Write;
use tidewater_base::units::{bytes, count, mib_per_second, micros, printable};

/// A line for each side.
pub fn summary(record: &LogRecord) -> String {
    let mut table = Table::new("log to", ["txn/s", "log/s", "mean", "p99", "p99.9", "commit", "stalls"]);
    table.least = (13, 9);
    for side in &record.sides {
        let latency = &side.latency_us;
        let times = [latency.mean, latency.p99, latency.p999, side.commit_us.mean].map(micros);
        let log = mib_per_second(side.log_bytes_per_second / 1_048_576.0);
        let row = [side.to.clone(), count(side.transactions_per_second), log].into_iter().chain(times);
        table.row(row.chain([side.stalls.to_string()]).map(Cell::from));
    }
    let mut text = format!(
        "{}, groups of {}\ndrive {}: {}\n\n{}",
        printable(&record.workload),
        bytes(record.group_bytes),
        printable(&record.profile),
        printable(&record.description),
        table.text(usize::MAX)
    );
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
