//! Result of `tidewater log`: for each place that a log went to, the times of transactions and commits, and of the fast
//! side the state of the log at the end. One document of JSON (`tidewater log --json`), and the page made from it.

mod page;
mod summary;

pub use page::{figures, page};
pub use summary::summary;

use crate::json::{self, Kind, ReadError};
use crate::record::Latency;
use serde::{Deserialize, Serialize};

/// The name and version of the schema; readers refuse others.
pub const SCHEMA: &str = "tidewater-log/1";

const KIND: Kind = Kind { name: "the document of a log", schema: SCHEMA, command: "tidewater log --json FILE" };

/// One log, on one side of a drive after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of the program.
    pub version: String,
    /// The command line that made it, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// The drive: a name or a file.
    pub profile: String,
    /// Description of the drive.
    pub description: String,
    /// The settings that were changed, as `KEY=VALUE`.
    pub set: Vec<String>,
    /// The workload, in words.
    pub workload: String,
    /// Workers.
    pub workers: u32,
    /// Bytes of a group that is committed as one.
    pub group_bytes: u64,
    /// The seed.
    pub seed: u64,
    /// Notes on the figures' validity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The places that the log went to.
    pub sides: Vec<Side>,
}

/// One place where the log went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// `none`, `memory`, `fast` or `conventional`.
    pub to: String,
    /// Transactions that were done.
    pub transactions: u64,
    /// The same a second.
    pub transactions_per_second: f64,
    /// Bytes of log made durable.
    pub log_bytes: u64,
    /// The same a second.
    pub log_bytes_per_second: f64,
    /// Simulated seconds that were measured.
    pub simulated_seconds: f64,
    /// From a transaction's start until its log is durable, in microseconds.
    pub latency_us: Latency,
    /// Of a group: from handing it over until it is durable, in microseconds.
    pub commit_us: Latency,
    /// Times that a worker found all log buffers full.
    pub stalls: u64,
    /// Pages of log that went to flash.
    pub pages_destaged: u64,
    /// Of these, those that filler completed.
    pub pages_partial: u64,
    /// Loads of the credit counter.
    pub credit_reads: u64,
    /// How the log stood at the end, on the fast side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

/// How a log on the fast side stands. Offsets are bytes of the stream; of the first four each is at most the one before
/// it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The end of what has arrived at the drive.
    pub arrived: u64,
    /// The end of what is credited: the host's counter, where it takes a commit for durable.
    pub credited: u64,
    /// The end of what has left the ring, whose room is free again: it is on flash, or in registers of dies on its way
    /// there.
    pub left_ring: u64,
    /// The end of what is on flash.
    pub destaged: u64,
    /// The oldest byte that is still in the ring's memory.
    pub in_ring_from: u64,
    /// The oldest byte that is still on flash: what is below was overwritten or trimmed.
    pub readable_from: u64,
    /// Bytes of the ring's memory.
    pub ring_bytes: u64,
    /// Bytes that may be stored beyond the credit.
    pub queue_bytes: u64,
    /// The most that were.
    pub queue_bytes_max: u64,
    /// Bytes of log that the ring of logical pages holds at most.
    pub log_bytes_max: u64,
    /// Whether what is credited outlives a loss of power.
    pub survives: bool,
    /// Energy that destaging a full ring takes, in joules.
    pub energy_needed_joules: f64,
    /// Energy that is stored for it, in joules.
    pub energy_stored_joules: f64,
    /// `[seconds, bytes, bytes]`: from time to time since measuring began, what was credited and had not left the ring,
    /// and what was credited and not on flash.
    pub backlog: Vec<(f64, u64, u64)>,
}

impl State {
    /// The end of what a loss of power at this instant leaves.
    pub fn survives_to(&self) -> u64 {
        if self.survives { self.credited } else { self.destaged }
    }

    /// Bytes that are credited and not on flash, on average over time.
    pub fn backlog_mean(&self) -> f64 {
        let parts = self.backlog.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[0].2 as f64));
        let (time, sum) = parts.fold((0.0, 0.0), |(time, sum), (lasts, bytes)| (time + lasts, sum + lasts * bytes));
        if time > 0.0 { sum / time } else { 0.0 }
    }
}

impl LogRecord {
    /// The document as JSON text, ending with a line feed.
    pub fn to_json(&self) -> String {
        json::text(self)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// When it is no JSON, no document of a log, or one of another schema.
    pub fn from_json(text: &str) -> Result<LogRecord, ReadError> {
        json::read(text, KIND)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn record() -> LogRecord {
        let latency = |p50: f64| Latency {
            count: 1_000,
            mean: p50 * 1.2,
            min: p50 / 2.0,
            p50,
            p90: p50 * 2.0,
            p99: p50 * 3.0,
            p999: p50 * 4.0,
            p9999: p50 * 5.0,
            max: p50 * 5.0,
            cdf: vec![(p50 / 2.0, 0.1), (p50, 0.5), (p50 * 5.0, 1.0)],
        };
        let side = |to: &str, commit: f64| Side {
            to: to.into(),
            transactions: 1_000,
            transactions_per_second: 5_000.0,
            log_bytes: 1 << 20,
            log_bytes_per_second: 5.0 * 1_048_576.0,
            simulated_seconds: 0.2,
            latency_us: latency(commit * 2.0),
            commit_us: latency(commit),
            ..Side::default()
        };
        let state = State {
            arrived: 1_000_400,
            credited: 1_000_000,
            left_ring: 950_000,
            destaged: 900_000,
            in_ring_from: 868_928,
            readable_from: 0,
            ring_bytes: 131_072,
            queue_bytes: 32_768,
            queue_bytes_max: 20_000,
            log_bytes_max: 1 << 26,
            survives: true,
            energy_needed_joules: 0.002,
            energy_stored_joules: 1.0,
            backlog: vec![(0.02, 20_000, 40_000), (0.1, 30_000, 60_000), (0.2, 50_000, 100_000)],
        };
        LogRecord {
            schema: SCHEMA.into(),
            version: "0.1.0".into(),
            profile: "villars".into(),
            workload: "tpcc on 8 workers".into(),
            workers: 8,
            group_bytes: 16_384,
            seed: 1,
            sides: vec![Side { state: Some(state), ..side("fast", 20.0) }, side("conventional", 300.0)],
            ..LogRecord::default()
        }
    }

    #[test]
    fn a_document_comes_back_as_it_was() {
        assert_eq!(LogRecord::from_json(&record().to_json()).unwrap(), record());
    }

    #[test]
    fn foreign_documents_are_refused_in_words() {
        let refused = |text: &str| LogRecord::from_json(text).unwrap_err().to_string();
        assert!(refused("{").contains("not the document of a log"));
        assert!(refused("{}").contains("`tidewater log --json FILE` writes"));
        assert!(refused(&format!("{{\"schema\": \"{SCHEMA}\"}}")).contains("missing field"));
    }

    #[test]
    fn what_survives_depends_on_the_memory_of_the_ring() {
        let state = record().sides[0].state.clone().unwrap();
        assert_eq!(state.survives_to(), 1_000_000);
        assert_eq!(State { survives: false, ..state.clone() }.survives_to(), 900_000);
        // 40,000 bytes for 0.08 s, 60,000 for 0.1 s.
        assert!((state.backlog_mean() - 51_111.1).abs() < 0.1, "{}", state.backlog_mean());
    }
}
