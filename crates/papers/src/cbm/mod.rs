//! CBM (Wei, Chen and Yang, *CBM: a cooperative buffer management for SSD*, MSST 2014): what its experiments have in
//! common.

pub(super) mod by_size;
pub(super) mod map;
pub(super) mod mechanisms;
pub(super) mod openssd;
pub(super) mod real;
pub(super) mod sanity;
pub(super) mod setups;
pub(super) mod threshold;

use super::setting::{ExperimentError, Setting};
use super::{Options, column};
use std::sync::{Mutex, PoisonError};
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_report::Record;
use tidewater_report::experiment::{Cell, Column};
use tidewater_sim::pool;
use tidewater_sim::run::{Pacing, RunError, RunOptions, run};
use tidewater_sim::workload::{Source, SourceError, SynthSpec};

/// The policies that the paper compares.
const PAPERS: [&str; 4] = ["cbm", "fab", "bplru", "bpac"];
/// Those, and others.
const POLICIES: [&str; 8] = ["cbm", "fab", "bplru", "bpac", "lb-clock", "cflru", "lru", "none"];
/// Ahead or equal: no more than this share behind the best.
const EQUAL: f64 = 0.02;

/// Figures of one run.
#[derive(Clone, Debug, PartialEq)]
struct Measured {
    requests: u64,
    response_us: f64,
    iops: f64,
    hit_ratio: f64,
    erases: f64,
    length: f64,
    lengths: Vec<(f64, f64)>,
    evictions: f64,
    merges: [u64; 3],
    copied: u64,
    padding_reads: u64,
    merged: u64,
    write_amplification: f64,
}

impl Measured {
    fn of(record: &Record) -> Measured {
        Measured {
            requests: record.requests,
            response_us: record.latency("all").map_or(0.0, |all| all.mean),
            iops: record.iops,
            hit_ratio: record.write_buffer.hit_ratio,
            erases: record.erases as f64,
            length: record.destage_length_pages.mean,
            lengths: record.destage_length_pages.cdf.clone(),
            evictions: record.destage_length_pages.count as f64,
            merges: [record.flash.merges_switch, record.flash.merges_partial, record.flash.merges_full],
            copied: record.flash.units_collected,
            padding_reads: record.write_buffer.padding_reads,
            merged: record.write_buffer.pages_merged,
            write_amplification: record.write_amplification,
        }
    }

    /// Cells of the columns of [`measured_columns`].
    fn cells(&self) -> Vec<Cell> {
        let [switch, partial, full] = self.merges.map(|n| n as f64);
        let numbers = [
            self.response_us,
            self.iops,
            self.hit_ratio,
            self.erases,
            self.length,
            self.evictions,
            switch,
            partial,
            full,
            self.copied as f64,
            self.padding_reads as f64,
            self.merged as f64,
            self.write_amplification,
        ];
        numbers.map(Cell::from).to_vec()
    }
}

/// The columns of what was measured, after those of what was run.
fn measured_columns() -> Vec<Column> {
    vec![
        column("response_us", "mean response time of all requests"),
        column("iops", "requests a simulated second"),
        column("hit_ratio", "pages written that the write buffer had, of all pages written"),
        column("erases", "blocks erased"),
        column("destage_pages", "mean of the pages that left the buffer together, with those that went along"),
        column("destages", "times that pages left together"),
        column("switch_merges", "merges without a copy"),
        column("partial_merges", "merges that copied the rest of a logical block"),
        column("full_merges", "merges that gathered a logical block"),
        column("pages_copied", "pages that merges copied"),
        column("padding_reads", "pages read to be written beside dirty ones (BPLRU)"),
        column("pages_merged", "pages of the read cache written beside dirty ones (CBM)"),
        column("write_amplification", "pages programmed for each page that the host or the buffer wrote"),
    ]
}

/// The profile of an experiment with a write buffer of its own.
fn profile(
    setting: &Setting,
    policy: &str,
    size_mib: u64,
    more: &[(&str, String)],
) -> Result<Profile, ExperimentError> {
    let mut settings = vec![
        // As large as the workload, not the paper's 320 GB, most of which nothing would touch.
        ("nand.blocks_per_plane", "0".to_owned()),
        ("memory.nvm.size", format!("{size_mib}MiB")),
        ("buffer.write_size", format!("{size_mib}MiB")),
        ("buffer.write_policy", policy.to_owned()),
    ];
    settings.extend_from_slice(more);
    setting.profile(&settings)
}

/// How a workload is run.
#[derive(Clone, Copy)]
struct How {
    pacing: Pacing,
    warm_up: u64,
    seed: u64,
}

/// Runs `source` on a drive on which every page was written once.
fn measure(profile: &Profile, source: impl Source, how: How) -> Result<Measured, ExperimentError> {
    let defaults = RunOptions::default();
    let device = tidewater_core::Options { seed: how.seed, precondition: Precondition::Filled(1.0), ..defaults.device };
    let options = RunOptions { device, pacing: how.pacing, warmup_requests: how.warm_up, ..defaults };
    let wrong = |error: RunError| ExperimentError::new(error.to_string());
    Ok(Measured::of(&run(profile, source, options).map_err(wrong)?.record))
}

fn unreadable(error: SourceError) -> ExperimentError {
    ExperimentError::new(error.to_string())
}

/// Runs every case, on all threads that are at hand; the results come in the order of the cases. Cancelled, it begins
/// no further case.
fn run_all<C: Sync>(
    cases: &[C],
    options: &mut Options<'_>,
    work: impl Fn(&C) -> Result<Measured, ExperimentError> + Sync,
) -> Result<Vec<Measured>, ExperimentError> {
    let told = Mutex::new((options, 0));
    let results = pool::in_order(cases.iter().collect(), |_, case: &C| {
        // Nothing that holds the lock can fail.
        let lock = || told.lock().unwrap_or_else(PoisonError::into_inner);
        if (lock().0.cancelled)() {
            return Err(ExperimentError::Cancelled);
        }
        let result = work(case);
        let (options, done) = &mut *lock();
        *done += 1;
        options.done(f64::from(*done) / cases.len() as f64)?;
        result
    });
    results.into_iter().collect()
}

/// The stand-in of one of the paper's workloads, and how many of its requests warm up.
fn stand_in(name: &str, requests: u64, warm_up: u64, options: &Options<'_>) -> Option<(SynthSpec, u64)> {
    let share = if options.quick { 10 } else { 1 };
    let spec = SynthSpec::cbm(name)?;
    // A tenth of the requests cannot touch all of the footprint.
    let footprint_mib = spec.footprint_mib / share as f64;
    Some((SynthSpec { requests: requests / share, footprint_mib, seed: options.seed, ..spec }, warm_up / share))
}

/// How much less than `other` this is, in percent of it.
fn gain(this: f64, other: f64) -> f64 {
    if other == 0.0 { 0.0 } else { (other - this) / other * 100.0 }
}

/// `12 to 30 %`; a single value alone.
fn percent_range(values: impl Iterator<Item = f64> + Clone) -> String {
    let (low, high) = (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max));
    let (low, high) = (format!("{low:.0}"), format!("{high:.0}"));
    if low == high { format!("{low} %") } else { format!("{low} to {high} %") }
}

/// Gains in percent, from the least to the greatest, of something of which less is better: `8 to 30 % below`, or
/// `3 % above to 30 % below`.
fn below_or_above(gains: impl Iterator<Item = f64> + Clone) -> String {
    let (low, high) = (gains.clone().fold(f64::INFINITY, f64::min), gains.clone().fold(f64::NEG_INFINITY, f64::max));
    match (low.round() < 0.0, high.round() < 0.0) {
        (false, _) => format!("{} below", percent_range(gains)),
        (true, true) => format!("{} above", percent_range(gains.map(|gain| -gain))),
        (true, false) => format!("{:.0} % above to {high:.0} % below", -low),
    }
}

/// `1st`, `2nd`, ...
fn ordinal(rank: usize) -> String {
    let ending = match rank {
        1 => "st",
        2 => "nd",
        3 => "rd",
        _ => "th",
    };
    format!("{rank}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_cases() {
        let cases: Vec<u64> = (0..40).collect();
        let measured = |requests| Measured {
            requests,
            response_us: 0.0,
            iops: 0.0,
            hit_ratio: 0.0,
            erases: 0.0,
            length: 0.0,
            lengths: Vec::new(),
            evictions: 0.0,
            merges: [0; 3],
            copied: 0,
            padding_reads: 0,
            merged: 0,
            write_amplification: 0.0,
        };
        let mut shares = Vec::new();
        let mut progress = |share| shares.push(share);
        let mut options = Options {
            seed: 1,
            quick: true,
            full: false,
            traces: None,
            mqsim: None,
            progress: &mut progress,
            cancelled: &|| false,
        };
        let all = run_all(&cases, &mut options, |&case| Ok(measured(case))).unwrap();
        assert_eq!(all.iter().map(|one| one.requests).collect::<Vec<_>>(), cases);
        let refused = run_all(&cases, &mut options, |&case| match case {
            7 => Err(ExperimentError::new("seven")),
            _ => Ok(measured(case)),
        });
        assert_eq!(refused.unwrap_err().to_string(), "seven");
        assert!(shares.is_sorted_by(|a, b| a < b || *a == 1.0) && shares[39] == 1.0);
        assert_eq!(measured(1).cells().len(), measured_columns().len());
    }

    #[test]
    fn words_for_figures() {
        assert_eq!([1, 2, 3, 4].map(ordinal), ["1st", "2nd", "3rd", "4th"]);
        assert_eq!(percent_range([12.4, -3.2, 29.6].into_iter()), "-3 to 30 %");
        assert_eq!(percent_range([5.0].into_iter()), "5 %");
        assert_eq!(below_or_above([12.4, 29.6].into_iter()), "12 to 30 % below");
        assert_eq!(below_or_above([-235.2, -8.0].into_iter()), "8 to 235 % above");
        assert_eq!(below_or_above([12.4, -3.2, 29.6].into_iter()), "3 % above to 30 % below");
        assert_eq!((gain(25.0, 100.0), gain(1.0, 0.0)), (75.0, 0.0));
    }
}
