//! The writes of a log, and the headers that they have.

use tidewater_base::{Duration, Instant};

/// When a log write is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At this instant, whatever became of the writes before it (open loop). Never decreases.
    At(Instant),
    /// When its worker has computed for this long since it was free (closed loop).
    After(Duration),
}

/// Log write of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogWrite {
    /// When.
    pub pace: Pace,
    /// By whom, from 0. Synthesized mixes deal workers in turn; a closed loop may give the transaction to
    /// any worker that is free.
    pub worker: u32,
    /// Its type: an index into the kinds of its source.
    pub kind: u8,
    /// Bytes of log, record headers included; 0 for a transaction that only reads.
    pub bytes: u64,
}

/// A type of transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// The name that its benchmark gives it.
    pub name: &'static str,
    /// Its share of all transactions, 0 to 1.
    pub share: f64,
}

/// Headers of log records, in addition to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFormat {
    /// Bytes before each row. Default 24, ERMIA's record: type, table, row, size (4 bytes each), commit number (8).
    pub record_header: u32,
    /// Bytes for each transaction that writes. Default 16, a block header with a length and a checksum; an assumption.
    pub transaction_header: u32,
}

impl Default for RecordFormat {
    fn default() -> RecordFormat {
        RecordFormat { record_header: 24, transaction_header: 16 }
    }
}

impl RecordFormat {
    /// Bytes of a transaction that writes `records` with `row_bytes` of rows in all.
    pub(super) fn transaction(self, records: u64, row_bytes: u64) -> u64 {
        u64::from(self.transaction_header) + records * u64::from(self.record_header) + row_bytes
    }
}
