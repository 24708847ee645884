//! Write amplification of uniform random writes against the published curve, the slow way and from a constructed past.

use super::drives::{one_die, request, serve_on, valid_counts};
use super::table::{Bound, Row, Section};
use std::sync::OnceLock;
use tidewater_base::{Instant, Rng};
use tidewater_core::device::Input;
use tidewater_core::drive::{VirtualClock, World, drive};
use tidewater_core::ftl::{Precondition, write_amplification};
use tidewater_core::host::Submission;
use tidewater_core::{Device, Options, Output};
use tidewater_report::Record;
use tidewater_sim::workload::Op;
use tidewater_sim::{Outcome, Pacing};
use tidewater_wire::nvme::Sqe;

const UNIT: u64 = 4_096;
/// Over-provisioning levels of the page.
pub const LEVELS: [f64; 3] = [0.07, 0.15, 0.28];
/// Drive writes before the drive that is aged by writing counts as steady.
const DRIVE_WRITES: u64 = 5;
/// Drive writes that are measured.
const MEASURED: u64 = 4;

/// One drive, aged twice.
pub struct Aged {
    /// Flash that holds data as the drive was sized, as a multiple of what the host can address.
    pub planned_alpha: f64,
    /// The same with the flash that was found to hold data.
    pub alpha: f64,
    /// Superblocks of a die that hold no data: planned, and found.
    pub held_back: (f64, f64),
    /// Overwritten at random for [`DRIVE_WRITES`] before the record begins.
    pub written: Record,
    /// Valid units of its superblocks at the end.
    pub written_valid: Vec<u32>,
    /// Constructed in its steady state.
    pub constructed: Record,
    /// Valid units of its superblocks before the run.
    pub constructed_valid: Vec<u32>,
    /// Units in a superblock.
    pub superblock: u32,
}

/// One die of 512 superblocks of 256 units and what comes on top: one superblock more or less is a fifth of a percent
/// of alpha. One die, because several drift in and out of step with each other: tails then differ by 5 % from one hour
/// of a drive's life to the next, and two drives can't be compared by them.
fn device(level: f64, past: Precondition) -> Device {
    device_with(level, past, 256)
}

/// The same with superblocks of so many units.
fn device_with(level: f64, past: Precondition, units: u32) -> Device {
    device_of("greedy", level, past, units)
}

/// The same with this way to choose victims.
fn device_of(victims: &str, level: f64, past: Precondition, units: u32) -> Device {
    let profile = one_die(&[
        &format!("drive.capacity={}", 512 * u64::from(units) * UNIT),
        &format!("nand.pages_per_block={}", units / 4),
        &format!("ftl.over_provisioning={level}"),
        &format!("ftl.gc_victim={victims}"),
    ]);
    Device::new(&profile, Options { precondition: past, ..Options::default() }).expect("the profile is valid")
}

fn overwrite(device: Device, warmup: u64, seed: u64) -> Outcome {
    let units = device.capacity() / UNIT;
    let mut rng = Rng::new(seed, b"uniform");
    let writes = (0..(warmup + MEASURED) * units).map(|_| request(Op::Write, rng.below(units) * UNIT, UNIT));
    serve_on(device, Pacing::Depth(32), warmup * units, writes)
}

/// Overwrites at random, and looks at the superblocks that hold nothing.
struct Sampler {
    ready: Vec<u16>,
    left: u64,
    units: u64,
    rng: Rng,
    vacant: f64,
    samples: f64,
}

impl World<Device> for Sampler {
    fn next_at(&self) -> Instant {
        if self.left > 0 && !self.ready.is_empty() { Instant::ZERO } else { Instant::NEVER }
    }

    fn submit(&mut self, _now: Instant) -> Option<Input<'_>> {
        let cid = self.ready.pop()?;
        self.left -= 1;
        // Units of eight blocks.
        let submission = Submission::new(Sqe::write(cid, self.rng.below(self.units) * 8, 7), 0);
        Some(Input::Submit { queue: 0, submission })
    }

    fn refused(&mut self, _submission: Submission) {
        unreachable!("the queue is longer than what is outstanding");
    }

    fn take(&mut self, _now: Instant, output: Output, _device: &Device) {
        if let Output::Complete(completion) = output {
            self.ready.push(completion.cqe.cid);
        }
    }

    fn stop(&mut self, _now: Instant, device: &Device) -> bool {
        if self.left.is_multiple_of(16) && self.left > 0 {
            self.vacant += device.ftl().vacant_superblocks() as f64;
            self.samples += 1.0;
        }
        false
    }
}

/// Superblocks of the die that hold nothing, on average while the host writes one drive write: those that are erased,
/// and those that have been collected and wait for the rows that replace them, or for their erase. The smaller a
/// superblock, the more of its turn it waits: of 32 units about half a superblock does, which at 7 % is 1.5 % of the
/// amplification.
fn mean_vacant(mut device: Device) -> f64 {
    let units = device.capacity() / UNIT;
    let rng = Rng::new(3, b"sampler");
    let mut sampler = Sampler { ready: (0..32).collect(), left: units, units, rng, vacant: 0.0, samples: 0.0 };
    drive(&mut device, &mut VirtualClock::default(), &mut sampler);
    sampler.vacant / sampler.samples
}

fn age(level: f64) -> Aged {
    std::thread::scope(|scope| {
        let constructed = scope.spawn(|| {
            let device = device(level, Precondition::Steady);
            let valid = valid_counts(&device);
            (overwrite(device, 0, 2).record, valid, mean_vacant(self::device(level, Precondition::Steady)))
        });
        let Outcome { record, device } = overwrite(device(level, Precondition::Filled(1.0)), DRIVE_WRITES, 1);
        let (constructed, constructed_valid, vacant) = constructed.join().expect("the run does not panic");
        // The superblocks that are open for host and collected data are half empty on average, and half of the victim
        // has been copied. The plan reckons with one free superblock more than `gc_start`, and with the two that are
        // open.
        let held_back = (f64::from(device.profile().ftl.gc_start + 2), vacant + 1.5);
        let layout = device.ftl().layout();
        let alpha = |held_back: f64| {
            (f64::from(layout.superblocks_per_die) - held_back) * f64::from(layout.units_per_superblock * layout.dies)
                / f64::from(device.ftl().units())
        };
        Aged {
            planned_alpha: alpha(held_back.0),
            alpha: alpha(held_back.1),
            held_back,
            superblock: layout.units_per_superblock,
            written_valid: valid_counts(&device),
            written: record,
            constructed,
            constructed_valid,
        }
    })
}

/// Write amplification of greedy collection with superblocks of `units`: the curve of oldest-first collection for
/// `k alpha`, divided by `k = 1 + 1 / (2 units)` (Desnoyers, SYSTOR 2012).
pub fn greedy(alpha: f64, units: u32) -> f64 {
    let k = 1.0 + 0.5 / f64::from(units);
    write_amplification(k * alpha) / k
}

/// The drive of a level, aged once for all sections.
pub fn aged(level: usize) -> &'static Aged {
    static AGED: [OnceLock<Aged>; 3] = [const { OnceLock::new() }; 3];
    AGED[level].get_or_init(|| age(LEVELS[level]))
}

pub fn section() -> Section {
    let mut rows = Vec::new();
    for (i, level) in LEVELS.iter().enumerate() {
        let aged = aged(i);
        let level = format!("{:.0} %", level * 100.0);
        let mut row = |what: &str, form: String, expected: f64, measured: f64, unit: &'static str, bound: Bound| {
            rows.push(Row { what: format!("{level}: {what}"), form, expected, measured, unit, bound });
        };
        for (how, record) in [("overwritten", &aged.written), ("constructed", &aged.constructed)] {
            assert_eq!(record.flash.units_padding, 0, "rows fill at this depth");
            let oldest_first = |alpha: f64, of: &str| (format!("A({alpha:.4}), {of}"), write_amplification(alpha));
            let (form, expected) = oldest_first(aged.planned_alpha, "alpha as sized");
            row(how, form, expected, record.write_amplification, "", Bound::Within(0.05));
            let (form, expected) = oldest_first(aged.alpha, "alpha as found");
            row(how, form, expected, record.write_amplification, "", Bound::Within(0.05));
            let form = format!("A({:.4}, {}), greedy, alpha as found", aged.alpha, aged.superblock);
            let expected = greedy(aged.alpha, aged.superblock);
            row(how, form, expected, record.write_amplification, "", Bound::Within(0.01));
        }
        let (planned, found) = aged.held_back;
        row("held back on each die", "gc_start + 2".into(), planned, found, "superblocks", Bound::AtMost);
    }
    // Of cost-benefit there is no curve for uniform writes. It weighs valid units by age: it can do no better than
    // greedy, which chooses by valid units alone, and no worse than oldest first, which chooses by age alone.
    let (last, level) = (LEVELS.len() - 1, LEVELS[LEVELS.len() - 1]);
    let aged = aged(last);
    let device = device_of("cost-benefit", level, Precondition::Filled(1.0), aged.superblock);
    let amplification = overwrite(device, DRIVE_WRITES, 1).record.write_amplification;
    let what = format!("{:.0} %: cost-benefit, overwritten", level * 100.0);
    let mut row = |form: String, expected: f64, bound: Bound| {
        let what = what.clone();
        rows.push(Row { what, form, expected, measured: amplification, unit: "", bound });
    };
    row(format!("A({:.4}), oldest first", aged.alpha), write_amplification(aged.alpha), Bound::AtMost);
    row(
        format!("A({:.4}, {}), greedy", aged.alpha, aged.superblock),
        greedy(aged.alpha, aged.superblock),
        Bound::AtLeast,
    );
    Section { id: "amplification", rows }
}

#[test]
fn the_greedy_curve_solves_the_flow_of_superblocks_between_counts_of_valid_units() {
    // Under greedy collection a superblock of N units loses one valid unit after the other until it is a victim with v.
    // In the steady state as many superblocks enter each count as leave it, at a rate of count / U for each write, so
    // that U / (N - v) * (1/N + ... + 1/(v + 1)) superblocks are under way: all there are, alpha U / N.
    for (alpha, units) in [(1.07, 256), (1.15, 64), (1.28, 1_024)] {
        let amplification = greedy(alpha, units);
        let n = f64::from(units);
        let v = n - n / amplification;
        let whole = v.floor() as u32;
        let mut sum: f64 = (whole + 1..=units).map(|i| 1.0 / f64::from(i)).sum();
        sum -= (v - v.floor()) / f64::from(whole + 1);
        assert!((n * sum / (n - v) / alpha - 1.0).abs() < 2e-4, "{alpha} {units}: {}", n * sum / (n - v));
    }
}

#[test]
#[ignore = "takes a minute"]
fn the_greedy_curve_holds_for_superblocks_of_any_size() {
    for units in [32, 64, 128, 512, 1_024, 2_048] {
        for level in LEVELS {
            let record = overwrite(device_with(level, Precondition::Steady, units), 1, 4).record;
            let device = device_with(level, Precondition::Steady, units);
            let (total, logical) = (device.ftl().layout().superblocks_per_die, device.ftl().units());
            let held_back = mean_vacant(device) + 1.5;
            let alpha = (f64::from(total) - held_back) * f64::from(units) / f64::from(logical);
            let (measured, expected) = (record.write_amplification, greedy(alpha, units));
            println!(
                "{units} units, {level}: {measured:.3} for {expected:.3}, oldest first {:.3}",
                write_amplification(alpha)
            );
            assert!((measured / expected - 1.0).abs() < 0.01, "{units} units, {level}: {measured} for {expected}");
        }
    }
}
