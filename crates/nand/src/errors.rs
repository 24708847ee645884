//! Bit errors against ECC: how likely a page is to need a read retry, by wear.

use crate::Config;
use std::sync::Arc;
use tidewater_base::rng::probability_threshold;

/// The model ends at this multiple of the endurance: a block that is more worn errs no more often.
const ENDURANCES: u32 = 4;

/// Probability thresholds (of 2^64) that a page fails ECC, by erase count and retry. Near the end of life a few erases
/// in a thousand make the retries a tenth more, so every erase count has its own; they are worked out as wear gets
/// there.
#[derive(Clone, Debug)]
pub(crate) struct ErrorModel {
    thresholds: Arc<Vec<u64>>,
    attempts: usize,
    erases_max: u32,
    endurance: f64,
    rber_fresh: f64,
    rber_worn: f64,
    retry_gain: f64,
    ecc_bits: u32,
    codeword_bits: f64,
    codewords: f64,
}

impl ErrorModel {
    pub(crate) fn new(config: &Config) -> ErrorModel {
        let endurance = config.endurance.max(1);
        let rber_fresh = config.rber_fresh.max(f64::MIN_POSITIVE);
        let mut model = ErrorModel {
            thresholds: Arc::default(),
            attempts: config.read_retries as usize + 1,
            erases_max: endurance.saturating_mul(ENDURANCES),
            endurance: f64::from(endurance),
            rber_fresh,
            rber_worn: config.rber_worn.max(rber_fresh),
            retry_gain: config.retry_gain,
            ecc_bits: config.ecc_bits,
            codeword_bits: f64::from(config.ecc_codeword.max(1)) * 8.0,
            codewords: f64::from(config.page_size.div_ceil(config.ecc_codeword.max(1))),
        };
        model.reach(0);
        model
    }

    /// Thresholds for a first read and each retry.
    #[inline]
    pub(crate) fn attempts(&mut self, erases: u32) -> &[u64] {
        let erases = erases.min(self.erases_max);
        let first = erases as usize * self.attempts;
        if first >= self.thresholds.len() {
            self.reach(erases);
        }
        &self.thresholds[first..][..self.attempts]
    }

    /// Whether the first read of a page always succeeds.
    pub(crate) fn is_clean(&mut self, erases: u32) -> bool {
        self.attempts(erases)[0] == 0
    }

    /// Works out the thresholds up to this many erases.
    #[cold]
    fn reach(&mut self, erases: u32) {
        let known = (self.thresholds.len() / self.attempts) as u32;
        let more: Vec<u64> = (known..=erases).flat_map(|erases| self.thresholds_at(erases, 0.0)).collect();
        Arc::make_mut(&mut self.thresholds).extend(more);
    }

    /// Thresholds as of [`ErrorModel::attempts`], at a raw bit error rate that is so much above that of wear.
    pub(crate) fn thresholds_at(&self, erases: u32, above: f64) -> impl Iterator<Item = u64> {
        let erases = erases.min(self.erases_max);
        // Exponential growth with cycles: Cai et al., "Error patterns in MLC NAND flash memory", DATE 2012.
        let growth = (self.rber_worn / self.rber_fresh).powf(f64::from(erases) / self.endurance);
        let mut rber = (self.rber_fresh * growth + above).min(0.5);
        (0..self.attempts).map(move |_| {
            let codeword_fails = poisson_tail(self.codeword_bits * rber, self.ecc_bits);
            let page_fails = 1.0 - (1.0 - codeword_fails).powf(self.codewords);
            rber *= self.retry_gain;
            // Below one in 10^12 no run meets it; a zero threshold saves the draw.
            if page_fails < 1e-12 { 0 } else { probability_threshold(page_fails) }
        })
    }
}

/// P(X > k) for a Poisson variable, the limit of the binomial for many bits with few errors. Tails that Chernoff's
/// bound puts below 10^-18 are given as 0.
fn poisson_tail(mean: f64, k: u32) -> f64 {
    let n = f64::from(k) + 1.0;
    if mean <= 0.0 || n > mean && -mean + n - n * (n / mean).ln() < -41.5 {
        return 0.0;
    }
    // In logarithms up to the first term, which may be far below what a float holds.
    let log_first = -mean + n * mean.ln() - (1..=k + 1).map(|i| f64::from(i).ln()).sum::<f64>();
    let (mut p, mut i, mut sum) = (log_first.exp(), n, 0.0f64);
    if p == 0.0 {
        return 1.0; // The mean is far above k: all of the mass is in the tail.
    }
    while i <= mean || p > sum * 1e-15 {
        sum += p;
        i += 1.0;
        p *= mean / i;
    }
    sum.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(endurance: u32) -> Config {
        use tidewater_base::Duration;
        let time = Duration::from_us(1);
        Config {
            channels: 1,
            ways: 1,
            dies_per_way: 1,
            planes: 1,
            blocks_per_plane: 8,
            pages_per_block: 8,
            page_size: 16_384,
            oob_size: 0,
            cell: crate::Cell::Slc,
            read_time: [time; 3],
            program_time: [time; 3],
            erase_time: time,
            bus_rate: 1_000_000,
            command_time: time,
            multi_plane: true,
            cache: true,
            endurance,
            factory_bad_rate: 0.0,
            program_fail_rate: 0.0,
            erase_fail_rate: 0.0,
            rber_fresh: 1e-3,
            rber_worn: 1e-2,
            rber_disturb: [0.0; 3],
            rber_retention: [0.0; 3],
            ecc_codeword: 2_048,
            ecc_bits: 120,
            read_retries: 2,
            retry_gain: 0.6,
        }
    }

    /// Wear once was looked up in steps of 1/64 of the endurance: an endurance below that was taken for 64, and an
    /// erase before a step found an eighth of the retries.
    #[test]
    fn a_block_has_the_error_rate_of_its_erase_count() {
        for endurance in [1, 16, 64, 100, 3_000, 100_000] {
            let mut model = ErrorModel::new(&config(endurance));
            for erases in [0, endurance - 1, endurance, endurance + endurance / 3] {
                let rber = 1e-3 * 10f64.powf(f64::from(erases) / f64::from(endurance));
                let page = 1.0 - (1.0 - poisson_tail(16_384.0 * rber, 120)).powi(8);
                let found = model.attempts(erases)[0] as f64 / 2f64.powi(64);
                assert!((found - page).abs() <= 1e-9 * page + 1e-12, "{erases} of {endurance}: {found} for {page}");
            }
        }
    }

    #[test]
    fn wear_ends_somewhere_and_the_way_there_makes_no_difference() {
        let mut model = ErrorModel::new(&config(100));
        let first: Vec<u64> = (60..110).map(|erases| model.attempts(erases)[0]).collect();
        assert!(first.is_sorted(), "more wear, more errors");
        let end = model.attempts(400).to_vec();
        assert_eq!(model.attempts(u32::MAX), end);
        assert_eq!(ErrorModel::new(&config(100)).attempts(400), end);
    }

    #[test]
    fn the_tail_matches_closed_forms() {
        assert!((poisson_tail(1.0, 0) - (1.0 - (-1.0f64).exp())).abs() < 1e-12);
        assert!((poisson_tail(2.0, 1) - (1.0 - 3.0 * (-2.0f64).exp())).abs() < 1e-12);
        assert!(poisson_tail(1.0, 72) < 1e-18);
        assert_eq!(poisson_tail(5_000.0, 10), 1.0);
        assert!(poisson_tail(1_000.0, 10) > 0.999_999);
    }
}
