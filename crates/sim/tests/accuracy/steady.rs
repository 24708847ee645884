//! The constructed steady state against the written one, and what a drive that collects makes of its latencies.

use super::amplification::{Aged, LEVELS, aged};
use super::drives::{request, serve_on, us};
use super::table::{Bound, Row, Section};
use tidewater_base::Rng;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_core::{Device, Options};
use tidewater_report::record::Latency;
use tidewater_sim::Pacing;
use tidewater_sim::workload::Op;
use tidewater_testkit::profile::with;

const UNIT: u64 = 4_096;
/// Figures that are taken of a latency distribution, and how far the two may differ.
type Quantile = (&'static str, fn(&Latency) -> f64, f64);
const QUANTILES: [Quantile; 4] =
    [("mean", |l| l.mean, 0.03), ("p50", |l| l.p50, 0.03), ("p99", |l| l.p99, 0.03), ("p99.9", |l| l.p999, 0.03)];

pub fn section() -> Section {
    let mut rows = Vec::new();
    for i in [0, 2] {
        let (level, Aged { written, constructed, superblock, .. }) = (format!("{:.0} %", LEVELS[i] * 100.0), aged(i));
        let mut row = |what: String, form: &str, expected: f64, measured: f64, unit, bound| {
            rows.push(Row { what: format!("{level}: {what}"), form: form.into(), expected, measured, unit, bound });
        };
        row(
            "write amplification".into(),
            "of the overwritten drive",
            written.write_amplification,
            constructed.write_amplification,
            "",
            Bound::Within(0.03),
        );
        for quarter in [1, 2, 3] {
            let at = |valid: &[u32]| f64::from(valid[valid.len() * quarter / 4]) / f64::from(*superblock);
            row(
                format!("valid share of a superblock, {}. quartile", quarter),
                "of the overwritten drive",
                at(&aged(i).written_valid),
                at(&aged(i).constructed_valid),
                "",
                Bound::Within(0.03),
            );
        }
        let write = |record: &tidewater_report::Record| record.latency("write").expect("the record has writes").clone();
        for (name, of, bound) in QUANTILES {
            row(
                format!("write latency, {name}"),
                "of the overwritten drive",
                of(&write(written)),
                of(&write(constructed)),
                "us",
                Bound::Within(bound),
            );
        }
    }
    Section { id: "steady", rows }
}

/// `generic` as it is, full and collecting, at queue depth 32.
pub fn collecting() -> Section {
    let profile = with(Profile::generic(), &["drive.capacity=16GiB"]);
    let device = Device::new(&profile, Options { precondition: Precondition::Steady, ..Options::default() });
    let device = device.expect("the profile is valid");
    let units = device.capacity() / UNIT;
    let mut rng = Rng::new(3, b"collecting");
    let writes = (0..500_000).map(|_| request(Op::Write, rng.below(units) * UNIT, UNIT));
    let record = serve_on(device, Pacing::Depth(32), 100_000, writes).record;
    assert!(record.collections > 500, "it collects: {}", record.collections);
    let latency = record.latency("write").expect("the record has writes").clone();
    let erase = us(profile.nand.erase_time);
    let row = |what: &str, erases: f64, measured: f64| Row {
        what: what.into(),
        form: format!("{erases} tBERS"),
        expected: erases,
        measured: measured / erase,
        unit: "tBERS",
        bound: Bound::AtMost,
    };
    Section {
        id: "collecting",
        rows: vec![
            row("write latency, p99", 1.0, latency.p99),
            row("write latency, p99.9", 2.0, latency.p999),
            row("write latency, longest", 3.0, latency.max),
        ],
    }
}
