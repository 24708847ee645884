//! The figures that are compared.

use super::Labelled;
use crate::document::Cell;
use crate::page::{operation, operation_rank};
use crate::quantity::Quantity;
use crate::record::{Cache, Flash, Latency, Record, ratio};
use std::collections::BTreeSet;

/// Which of two values is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Better {
    Higher,
    Lower,
    Neither,
}

/// One figure of every record.
#[derive(Clone)]
pub(super) struct Metric {
    pub name: String,
    pub quantity: Quantity,
    pub better: Better,
    /// By record; `None` where the record has no such figure.
    pub values: Vec<Option<f64>>,
    /// By record: it reached its end. What a stopped run did not do yet is no merit.
    whole: Vec<bool>,
    /// Shown as bars on the page.
    pub bars: bool,
}

impl Metric {
    /// Whether the value of record `i` is the best of those that reached their end. What looks alike is alike: values
    /// that are written with the same digits are all the best, or none is. What most of them share is no distinction.
    pub(super) fn is_best(&self, i: usize) -> bool {
        let Some(value) = self.values[i].filter(|_| self.whole[i]) else { return false };
        let known = || self.values.iter().zip(&self.whole).filter_map(|(value, whole)| value.filter(|_| *whole));
        let best = match self.better {
            Better::Higher => known().fold(f64::NEG_INFINITY, f64::max),
            Better::Lower => known().fold(f64::INFINITY, f64::min),
            Better::Neither => return false,
        };
        let best = self.quantity.format(best);
        let alike = known().filter(|other| self.quantity.format(*other) == best).count();
        self.quantity.format(value) == best && 2 * alike <= known().count() + 1 && alike < known().count()
    }

    /// The value of record `i` in words, with a star where it is the best.
    pub(super) fn cell(&self, i: usize) -> Cell {
        let text = self.values[i].map(|value| self.quantity.format(value));
        Cell { is_best: self.is_best(i), ..Cell::maybe(text) }
    }

    /// By how much record `i` differs from the first, as a share of the first; 0 where both are written with the same
    /// digits.
    pub(super) fn change(&self, i: usize) -> Option<f64> {
        let (first, value) = (self.values.first().copied().flatten()?, self.values[i]?);
        if i == 0 || first == 0.0 {
            return None;
        }
        let alike = self.quantity.format(first) == self.quantity.format(value);
        Some(if alike { 0.0 } else { ratio(value - first, first) })
    }
}

/// Every operation that any record has, without `all`.
pub(super) fn operations(records: &[Labelled]) -> Vec<String> {
    let names: BTreeSet<&String> = records.iter().flat_map(|run| run.record.latency_us.keys()).collect();
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|name| *name != "all" && records.iter().any(|run| run.record.latency(name).is_some()))
        .cloned()
        .collect();
    names.sort_by_key(|name| operation_rank(name));
    names
}

/// The figures, in the order of the table. What no record has is left out.
pub(super) fn metrics(records: &[Labelled]) -> Vec<Metric> {
    let mut metrics = Vec::new();
    let whole: Vec<bool> = records.iter().map(|run| !run.record.partial).collect();
    let mut add = |name: &str, quantity, better, bars, value: &dyn Fn(&Record) -> Option<f64>| {
        let values: Vec<Option<f64>> = records.iter().map(|run| value(&run.record).filter(|v| v.is_finite())).collect();
        if values.iter().any(Option::is_some) {
            metrics.push(Metric { name: name.to_owned(), quantity, better, values, whole: whole.clone(), bars });
        }
    };
    let positive = |value: f64| (value > 0.0).then_some(value);
    add("mean response", Quantity::Micros, Better::Lower, true, &|r| r.latency("all").map(|all| all.mean));
    add("IOPS", Quantity::Count, Better::Higher, true, &|r| Some(r.iops));
    add("read bandwidth", Quantity::MibPerSecond, Better::Higher, false, &|r| positive(r.bandwidth_mib_s.read));
    add("write bandwidth", Quantity::MibPerSecond, Better::Higher, false, &|r| positive(r.bandwidth_mib_s.write));
    for name in operations(records) {
        type Part = (&'static str, bool, fn(&Latency) -> f64);
        let parts: [Part; 5] = [
            ("mean", false, |l| l.mean),
            ("p50", true, |l| l.p50),
            ("p99", true, |l| l.p99),
            ("p99.9", true, |l| l.p999),
            ("max", false, |l| l.max),
        ];
        for (part, bars, value) in parts {
            let bars = bars && matches!(name.as_str(), "read" | "write");
            add(&format!("{} {part}", operation(&name)), Quantity::Micros, Better::Lower, bars, &|r| {
                r.latency(&name).map(value)
            });
        }
    }
    add("flash written per host byte", Quantity::Ratio, Better::Lower, true, &Record::written_per_host_byte);
    add("write amplification", Quantity::Ratio, Better::Lower, true, &|r| positive(r.write_amplification));
    add("blocks erased", Quantity::Count, Better::Lower, true, &|r| Some(r.erases as f64));
    add("collections", Quantity::Count, Better::Lower, false, &|r| Some(r.collections as f64));
    let merges =
        |count: fn(&Flash) -> u64| move |r: &Record| (r.flash.merges_total() > 0).then(|| count(&r.flash) as f64);
    add("switch merges", Quantity::Count, Better::Higher, false, &merges(|f| f.merges_switch));
    add("partial merges", Quantity::Count, Better::Lower, false, &merges(|f| f.merges_partial));
    add("full merges", Quantity::Count, Better::Lower, false, &merges(|f| f.merges_full));
    add("written to the SLC cache", Quantity::Share, Better::Higher, false, &|r| {
        r.slc.map(|slc| ratio(slc.units_written as f64, r.flash.units_host as f64))
    });
    add("units folded", Quantity::Count, Better::Lower, false, &|r| r.slc.map(|slc| slc.units_folded as f64));
    let hits = |cache: &Cache| cache.was_asked().then_some(cache.hit_ratio);
    add("write buffer hits", Quantity::Share, Better::Higher, false, &|r| hits(&r.write_buffer));
    add("read cache hits", Quantity::Share, Better::Higher, false, &|r| hits(&r.read_cache));
    let mapping = |r: &Record| r.map_cache.as_ref().filter(|cache| cache.lookups > 0).map(|cache| cache.hit_ratio);
    add("mapping cache hits", Quantity::Share, Better::Higher, false, &mapping);
    // Longer is no merit by itself: pages that only went along make it long, too.
    add("destage length", Quantity::Ratio, Better::Neither, true, &|r| positive(r.destage_length_pages.mean));
    add("pages merged on flush", Quantity::Count, Better::Neither, false, &|r| {
        positive(r.write_buffer.pages_merged as f64)
    });
    add("padding reads", Quantity::Count, Better::Lower, false, &|r| positive(r.write_buffer.padding_reads as f64));
    add("most worn block", Quantity::Count, Better::Lower, false, &|r| positive(r.wear.max as f64));
    add("die busy, mean", Quantity::Share, Better::Neither, false, &|r| {
        let dies = &r.utilization.dies;
        (!dies.is_empty()).then(|| ratio(dies.iter().map(|die| die.busy_share()).sum(), dies.len() as f64))
    });
    add("recovery time", Quantity::Seconds, Better::Lower, true, &|r| r.recovery.map(|recovery| recovery.seconds));
    add("pages read in recovery", Quantity::Count, Better::Lower, false, &|r| {
        r.recovery.map(|recovery| recovery.pages_read as f64)
    });
    add("pages lost unflushed", Quantity::Count, Better::Lower, false, &|r| {
        r.recovery.and_then(|recovery| recovery.pages_lost).map(|pages| pages as f64)
    });
    add("requests", Quantity::Count, Better::Neither, false, &|r| Some(r.requests as f64));
    add("simulated time", Quantity::Seconds, Better::Neither, false, &|r| Some(r.simulated_seconds));
    metrics
}
