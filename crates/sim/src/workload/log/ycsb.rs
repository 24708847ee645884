//! YCSB workload A: half reads, half updates of one field (Cooper et al., SoCC 2010).
//!
//! A record has 10 fields of 100 bytes under a key of about 24 (`user` and a hash of up to 20 digits); an update writes
//! one field, as `workloads/workloada` and the default `writeallfields=false` say. What of it reaches the log is the
//! database's choice: [`Image`].

use super::write::{Kind, RecordFormat};

pub(super) const KINDS: [Kind; 2] = [Kind { name: "read", share: 0.5 }, Kind { name: "update", share: 0.5 }];

/// Content of an update's log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// The key and the new field: 124 bytes. Key-value stores with partial updates.
    Field,
    /// The key and the new record: 1,024 bytes. Stores that log whole values or rows.
    Record,
    /// So many bytes: 64 in the 2B-SSD paper's runs of RocksDB and Redis.
    Bytes(u32),
}

/// The mix of YCSB's workload A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YcsbA {
    /// Headers of log records.
    pub format: RecordFormat,
    /// Content of an update's log record. Default [`Image::Record`].
    pub image: Image,
}

impl Default for YcsbA {
    fn default() -> YcsbA {
        YcsbA { format: RecordFormat::default(), image: Image::Record }
    }
}

impl YcsbA {
    pub(super) fn draw(&self, kind: usize) -> u64 {
        const KEY: u64 = 24;
        let row = match self.image {
            Image::Field => KEY + 100,
            Image::Record => KEY + 1000,
            Image::Bytes(bytes) => bytes.into(),
        };
        if kind == 1 { self.format.transaction(1, row) } else { 0 }
    }
}
