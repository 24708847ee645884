//! Distributions from which a synthesizer draws sizes and times.

use tidewater_base::Rng;

use super::Op;
use super::deck::Deck;
use super::synth::{PAGE, SynthError, SynthSpec};
use crate::trace::shape::{PHASES, SECTOR_BYTES, Shape, begins_class};

/// Sizes of requests: 512 B to 1 MiB, powers of two.
const SIZES: usize = 12;
/// Standard deviation of the logarithm of the size. Block traces have one dominant size and a tail of a few doublings
/// either way.
const SIZE_SPREAD: f64 = 0.8;

/// Where sizes come from.
pub(super) enum Sizes {
    /// One distribution of powers of two for reads and writes: the cumulative probability of each, and the size that is
    /// next.
    Lognormal { strata: Box<Strata>, cumulative: [f64; SIZES], probabilities: [f64; SIZES], next: Option<u64> },
    /// Those of the reads and of the writes of a trace.
    Dealt([Deck; 2]),
}

impl Sizes {
    /// Powers of two around the mean.
    pub fn lognormal(spec: &SynthSpec, space: u64) -> Result<Sizes, SynthError> {
        let probabilities = size_distribution(spec.mean_kib * 1024.0, size_index_max(space)).ok_or_else(|| {
            SynthError(format!(
                "a mean size of {} KiB needs a larger footprint than {} MiB: no request is larger than a quarter of it",
                spec.mean_kib, spec.footprint_mib
            ))
        })?;
        let mut cumulative = [0.0; SIZES];
        let mut sum = 0.0;
        for (slot, p) in cumulative.iter_mut().zip(probabilities) {
            sum += p;
            *slot = sum;
        }
        Ok(Sizes::Lognormal {
            strata: Box::new(Strata::new(spec.seed, b"synth sizes")),
            cumulative,
            probabilities,
            next: None,
        })
    }

    /// Those of a trace.
    pub fn of_shape(spec: &SynthSpec, shape: &Shape, space: u64) -> Result<Sizes, SynthError> {
        let largest = shape.read_sizes.iter().chain(&shape.write_sizes).map(|bucket| bucket.value).max().unwrap_or(0);
        if largest > space {
            return Err(SynthError(format!(
                "the largest request has {} KiB, which is more than the footprint of {} MiB: ask for a larger \
                 footprint",
                largest as f64 / 1024.0,
                spec.footprint_mib
            )));
        }
        let deck = |is_write: bool, share: f64, stream: &[u8]| {
            // A trace without writes says nothing of their sizes.
            let own = shape.sizes(is_write);
            let buckets = if own.is_empty() { shape.sizes(!is_write) } else { own };
            Deck::new(buckets, (spec.requests as f64 * share).round() as u64, Rng::new(spec.seed, stream))
        };
        let writes = spec.write_percent / 100.0;
        Ok(Sizes::Dealt([deck(false, 1.0 - writes, b"synth reads"), deck(true, writes, b"synth writes")]))
    }

    /// The size of the next request, if it is an `op`.
    pub fn peek(&mut self, op: Op) -> u64 {
        match self {
            Sizes::Lognormal { strata, cumulative, next, .. } => *next.get_or_insert_with(|| {
                let draw = strata.draw();
                512u64 << cumulative.iter().position(|&sum| draw < sum).unwrap_or(SIZES - 1)
            }),
            Sizes::Dealt(decks) => decks[usize::from(op == Op::Write)].peek(),
        }
    }

    /// The same, and the next is another.
    pub fn take(&mut self, op: Op) -> u64 {
        let size = self.peek(op);
        match self {
            Sizes::Lognormal { next, .. } => *next = None,
            Sizes::Dealt(decks) => _ = decks[usize::from(op == Op::Write)].take(),
        }
        size
    }

    /// The mean of `figure`, which takes a size and whether it is a write's, over reads and writes in their shares.
    fn mean(&self, spec: &SynthSpec, figure: impl Fn(u64, bool) -> f64) -> f64 {
        let writes = spec.write_percent / 100.0;
        match self {
            Sizes::Lognormal { probabilities, .. } => {
                probabilities.iter().enumerate().map(|(i, p)| p * figure(512u64 << i, false)).sum()
            }
            Sizes::Dealt([reads, written]) => {
                (1.0 - writes) * reads.mean(|size| figure(size, false))
                    + writes * written.mean(|size| figure(size, true))
            }
        }
    }

    /// The mean size in KiB.
    pub fn mean_kib(&self, spec: &SynthSpec) -> f64 {
        match self {
            Sizes::Lognormal { .. } => spec.mean_kib,
            Sizes::Dealt(_) => self.mean(spec, |size, _| size as f64 / 1024.0),
        }
    }
}

/// Pages that a request is expected to touch first where it goes to untouched data.
pub(super) fn pages_mean(spec: &SynthSpec, sizes: &Sizes) -> f64 {
    let sequential = spec.sequential_percent / 100.0;
    sizes.mean(spec, |size, is_write| {
        let onward = size as f64 / PAGE as f64;
        let begins = spec.shape.as_ref().map(|shape| shape.begins[usize::from(is_write)][begins_class(size)]);
        let alone = match begins.filter(|begins| begins.iter().any(|&count| count > 0)) {
            None => onward.ceil(),
            Some(begins) => {
                let pages = |phase: usize| (size + phase as u64 * SECTOR_BYTES).div_ceil(PAGE) as f64;
                let sum: f64 = (0..PHASES).map(|phase| begins[phase] as f64 * pages(phase)).sum();
                sum / begins.iter().sum::<u64>() as f64
            }
        };
        sequential * onward + (1.0 - sequential) * alone
    })
}

/// By what a preference of large requests is to be multiplied so that the pages that they bring stay as many.
pub(super) fn untouched_scale(spec: &SynthSpec, sizes: &Sizes) -> f64 {
    let pages_to_the = |power: f64| sizes.mean(spec, |size, _| (size.div_ceil(PAGE) as f64).powf(power));
    pages_to_the(1.0) / pages_to_the(1.0 + spec.untouched_exponent)
}

/// Pages that the requests of a trace can touch, with some reserve for chance; `pages_mean`: by one that touches
/// untouched data.
pub(super) fn pages_reached(spec: &SynthSpec, pages_mean: f64) -> f64 {
    (pages_mean * spec.requests as f64 * 0.98).floor()
}

/// Where times between requests come from.
pub(super) enum Gaps {
    Exponential(Strata),
    Dealt(Deck),
}

impl Gaps {
    /// Those of the shape, if it has any.
    pub fn of(spec: &SynthSpec) -> Gaps {
        match spec.shape.as_ref().filter(|shape| !shape.intervals_ps.is_empty()) {
            Some(shape) => {
                let deck = Deck::new(&shape.intervals_ps, spec.requests - 1, Rng::new(spec.seed, b"synth intervals"));
                Gaps::Dealt(deck)
            }
            None => Gaps::Exponential(Strata::new(spec.seed, b"synth gaps")),
        }
    }

    /// The time to the next request.
    pub fn draw_ps(&mut self, mean_ms: f64) -> u64 {
        match self {
            Gaps::Exponential(strata) => (-mean_ms * (1.0 - strata.draw()).ln() * 1e9).round() as u64,
            Gaps::Dealt(deck) => deck.take(),
        }
    }
}

/// Uniform numbers in which each 256 consecutive ones fall into 256 different strata: sums stray far less than those of
/// independent numbers.
pub(super) struct Strata {
    rng: Rng,
    order: [u8; 256],
    at: usize,
}

impl Strata {
    fn new(seed: u64, stream: &[u8]) -> Strata {
        let mut order = [0; 256];
        for (slot, stratum) in order.iter_mut().zip(0..=255) {
            *slot = stratum;
        }
        Strata { rng: Rng::new(seed, stream), order, at: 256 }
    }

    fn draw(&mut self) -> f64 {
        if self.at == 256 {
            self.at = 0;
            for i in (1..256).rev() {
                self.order.swap(i, self.rng.below(i as u64 + 1) as usize);
            }
        }
        let stratum = f64::from(self.order[self.at]);
        self.at += 1;
        (stratum + self.rng.unit_f64()) / 256.0
    }
}

/// The largest size for a space: a quarter of it, and at least a page or the whole of it.
fn size_index_max(space: u64) -> usize {
    (0..SIZES).rev().find(|&i| 512u64 << i <= (space / 4).max(PAGE).min(space)).unwrap_or(0)
}

/// Probabilities of the sizes 512 B times powers of two, a discretized lognormal of the wanted mean.
fn size_distribution(mean: f64, largest: usize) -> Option<[f64; SIZES]> {
    let weights = |center: f64| {
        let mut p = [0.0f64; SIZES];
        let exponent = |i: usize| -((i as f64 * std::f64::consts::LN_2 - center) / SIZE_SPREAD).powi(2) / 2.0;
        // Far from the center all weights would vanish: relative to the largest they do not.
        let top = (0..=largest).map(exponent).fold(f64::NEG_INFINITY, f64::max);
        (0..=largest).for_each(|i| p[i] = (exponent(i) - top).exp());
        let sum: f64 = p.iter().sum();
        p.map(|weight| weight / sum)
    };
    let mean_of = |p: &[f64; SIZES]| p.iter().enumerate().map(|(i, p)| p * (512u64 << i) as f64).sum::<f64>();
    if mean > (512u64 << largest) as f64 {
        return None;
    }
    let (mut low, mut high) = (-60.0, 60.0);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if mean_of(&weights(middle)) < mean { low = middle } else { high = middle }
    }
    Some(weights(high))
}
