//! Several records side by side: as a table for the terminal, and as one page.
//!
//! The first record is the one that the others are compared with.

mod metrics;
mod page;
mod table;

pub use page::page;
pub(crate) use table::printable;
pub use table::table;

use crate::record::Record;

/// A record and what it is called in a comparison, such as `ftl.gc_victim=greedy`.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// Its name; any text.
    pub label: String,
    /// The record.
    pub record: Record,
}

/// What makes a comparison of `records` less than fair, in words: different work, seeds or versions, stopped runs.
pub fn caveats(records: &[Labelled]) -> Vec<String> {
    let mut caveats = Vec::new();
    for run in records.iter().filter(|run| run.record.partial) {
        caveats.push(format!("`{}` was stopped before its end: its figures cover only a part.", run.label));
    }
    let Some((first, others)) = records.split_first() else {
        return caveats;
    };
    let differs = |same: fn(&Record, &Record) -> bool| others.iter().any(|run| !same(&first.record, &run.record));
    if differs(|a, b| (a.workload.kind, &a.workload.source) == (b.workload.kind, &b.workload.source)) {
        caveats.push("The runs had different workloads.".to_owned());
    } else {
        if differs(|a, b| a.workload.options == b.workload.options) {
            caveats.push("The runs had different options of the replay.".to_owned());
        }
        if differs(|a, b| a.requests == b.requests) {
            caveats.push("The runs completed different numbers of requests.".to_owned());
        }
    }
    if differs(|a, b| a.seed == b.seed) {
        caveats.push("The runs had different seeds.".to_owned());
    }
    if differs(|a, b| a.tool_version == b.tool_version) {
        caveats.push("The runs were made by different versions.".to_owned());
    }
    caveats
}
