//! Bit errors against ECC: how likely a page is to need a read retry, by wear.

use crate::Config;
use std::sync::Arc;
use tidewater_base::rng::probability_threshold;

/// Wear is looked up in steps of this share of the endurance.
const STEPS_PER_ENDURANCE: u32 = 64;
/// The table ends at this multiple of the endurance.
const ENDURANCES: u32 = 4;

/// Probability thresholds (of 2^64) that a page fails ECC, by wear step and retry.
#[derive(Clone, Debug)]
pub(crate) struct ErrorModel {
    thresholds: Arc<[u64]>,
    attempts: usize,
    endurance: u32,
    /// Below so many erases the first step holds; a look-up then takes no division.
    erases_of_first_step: u32,
}

impl ErrorModel {
    pub(crate) fn new(config: &Config) -> ErrorModel {
        let attempts = config.read_retries as usize + 1;
        let steps = (STEPS_PER_ENDURANCE * ENDURANCES) as usize;
        let codewords = f64::from(config.page_size.div_ceil(config.ecc_codeword.max(1)));
        let bits = f64::from(config.ecc_codeword.max(1)) * 8.0;
        let mut thresholds = Vec::with_capacity(steps * attempts);
        for step in 0..steps {
            let wear = step as f64 / f64::from(STEPS_PER_ENDURANCE);
            // Exponential growth with cycles: Cai et al., "Error patterns in MLC NAND flash memory", DATE 2012.
            let fresh = config.rber_fresh.max(f64::MIN_POSITIVE);
            let mut rber = (fresh * (config.rber_worn.max(fresh) / fresh).powf(wear)).min(0.5);
            for _ in 0..attempts {
                let codeword_fails = poisson_tail(bits * rber, config.ecc_bits);
                let page_fails = 1.0 - (1.0 - codeword_fails).powf(codewords);
                // Below one in 10^12 no run meets it; a zero threshold saves the draw.
                thresholds.push(if page_fails < 1e-12 { 0 } else { probability_threshold(page_fails) });
                rber *= config.retry_gain;
            }
        }
        let endurance = config.endurance.max(1);
        ErrorModel {
            thresholds: thresholds.into(),
            attempts,
            endurance,
            erases_of_first_step: endurance.div_ceil(STEPS_PER_ENDURANCE),
        }
    }

    /// Thresholds for a first read and each retry.
    #[inline]
    pub(crate) fn attempts(&self, erases: u32) -> &[u64] {
        if erases < self.erases_of_first_step {
            return &self.thresholds[..self.attempts];
        }
        let step = u64::from(erases) * u64::from(STEPS_PER_ENDURANCE) / u64::from(self.endurance);
        let step = (step as usize).min(self.thresholds.len() / self.attempts - 1);
        &self.thresholds[step * self.attempts..][..self.attempts]
    }
}

/// P(X > k) for a Poisson variable, the limit of the binomial for many bits with few errors. Tails that Chernoff's bound
/// puts below 10^-18 are given as 0.
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
            ecc_codeword: 2_048,
            ecc_bits: 120,
            read_retries: 2,
            retry_gain: 0.6,
        }
    }

    /// An endurance below the number of steps was taken for that number: wear counted too little.
    #[test]
    fn a_block_at_its_endurance_has_the_error_rate_of_a_worn_one() {
        for endurance in [1, 16, 64, 100, 3_000, 100_000] {
            let model = ErrorModel::new(&config(endurance));
            let worn = STEPS_PER_ENDURANCE as usize * model.attempts;
            assert_eq!(model.attempts(endurance), &model.thresholds[worn..worn + model.attempts], "{endurance}");
            assert_eq!(model.attempts(0), &model.thresholds[..model.attempts]);
            assert_eq!(model.attempts(u32::MAX), &model.thresholds[model.thresholds.len() - model.attempts..]);
        }
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
