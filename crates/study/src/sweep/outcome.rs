//! Files of a sweep's folder besides its runs: the index, and the tables of all runs.

use super::{Kept, Named};
use serde::Serialize;
use tidewater_report::compare::Labelled;
use tidewater_report::table::{self, Column, Table, Values};

/// The table of a sweep, in its folder.
pub const TABLE: &str = "table.parquet";
/// Its figures over seeds.
pub const STATISTICS: &str = "statistics.parquet";

/// Index of a sweep's folder.
#[derive(Serialize)]
pub struct Index<'a> {
    version: &'a str,
    runs: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    label: &'a str,
    record: String,
}

impl Index<'_> {
    /// The index of these runs.
    pub fn of(runs: &[Named]) -> Index<'_> {
        let entry = |run| {
            let Named { name, plan, .. }: &Named = run;
            Entry { label: &plan.label, record: format!("runs/{name}.json") }
        };
        Index { version: env!("CARGO_PKG_VERSION"), runs: runs.iter().map(entry).collect() }
    }
}

/// A row for each run in the order of the sweep (those that failed have their reason and no figures), and the figures
/// over seeds.
pub fn tables(kept: Vec<Kept>) -> (Table, Table) {
    let failures: Vec<Option<String>> = kept.iter().map(|run| run.failure.clone()).collect();
    let labels: Vec<String> = kept.iter().map(|run| run.label.clone()).collect();
    let with_figures: Vec<bool> = kept.iter().map(|run| run.record.is_some()).collect();
    let records: Vec<Labelled> = kept
        .into_iter()
        .filter_map(|Kept { label, record, .. }| record.map(|record| Labelled { label, record }))
        .collect();
    let mut table = table::runs(&records).spread(&with_figures);
    if let Some(Column { values, .. }) = table.columns.first_mut() {
        *values = Values::Text(labels.into_iter().map(Some).collect());
    }
    table.columns.push(Column { name: "failure".into(), values: Values::Text(failures) });
    (table, table::statistics(&records))
}
