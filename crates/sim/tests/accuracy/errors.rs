//! Read retries against the tail of the distribution of bit errors.

use super::drives::{one_die, request, serve_on};
use super::table::{Bound, Row, Section};
use tidewater_base::Rng;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_core::{Device, Options};
use tidewater_nand::{Block, Medium};
use tidewater_sim::Pacing;
use tidewater_sim::workload::Op;

const UNIT: u64 = 4_096;
const READS: u64 = 200_000;

/// P(X > k) for a Poisson variable, term by term from zero.
fn poisson_tail(mean: f64, k: u32) -> f64 {
    let mut term = (-mean).exp();
    let mut sum = term;
    for i in 1..=k {
        term *= mean / f64::from(i);
        sum += term;
    }
    1.0 - sum
}

/// Retries of a page read at `wear` times the endurance: a retry follows each attempt in which a code word fails.
fn retries(profile: &Profile, wear: f64) -> f64 {
    let nand = &profile.nand;
    let (bits, words) = (f64::from(nand.ecc_codeword) * 8.0, f64::from(nand.page_size / nand.ecc_codeword));
    let mut rber = nand.rber_fresh * (nand.rber_worn / nand.rber_fresh).powf(wear);
    let (mut reached, mut expected) = (1.0, 0.0);
    for _ in 0..nand.read_retries {
        reached *= 1.0 - (1.0 - poisson_tail(bits * rber, nand.ecc_bits)).powf(words);
        expected += reached;
        rber *= nand.retry_gain;
    }
    expected
}

fn measured(profile: &Profile, erases: u32) -> f64 {
    let options = Options { precondition: Precondition::Filled(1.0), ..Options::default() };
    let device = Device::over(profile, options, |mut nand| {
        let config = nand.config().clone();
        for plane in 0..config.planes {
            for block in 0..config.blocks_per_plane {
                nand.set_erase_count(Block { die: 0, plane, block }, erases);
            }
        }
        nand
    });
    let device = device.expect("the profile is valid");
    let units = device.capacity() / UNIT;
    let mut rng = Rng::new(5, b"retries");
    let reads = (0..READS).map(|_| request(Op::Read, rng.below(units) * UNIT, UNIT));
    let record = serve_on(device, Pacing::Depth(4), 0, reads).record;
    record.read_retries as f64 / READS as f64
}

pub fn section() -> Section {
    let profile = one_die(&["nand.cell=slc"]);
    let rows = [
        (1.0, Bound::Within(0.05)),
        (2_999.0 / 3_000.0, Bound::Within(0.05)),
        (1.125, Bound::Within(0.05)),
        (1.5, Bound::Within(0.05)),
    ];
    let rows = rows.map(|(wear, bound)| {
        let erases = (f64::from(profile.nand.endurance) * wear).round() as u32;
        Row {
            what: format!("retries a page read, {erases} erases ({wear:.4} of endurance)"),
            form: "sum of P(code word fails)".into(),
            expected: retries(&profile, wear),
            measured: measured(&profile, erases),
            unit: "",
            bound,
        }
    });
    Section { id: "errors", rows: rows.to_vec() }
}
