//! Where random requests go.

use tidewater_base::Rng;
use tidewater_base::rng::probability_threshold;

use super::spec::{Distribution, ThreadSpec, Zone};
use crate::workload::permutation::Permutation;
use crate::workload::zipf::Zipf;

/// Numbers that are added up for a bell curve, as in fio.
const BELL_DRAWS: u64 = 12;

/// Where random requests go, prepared. Places are counted in units of the region.
#[derive(Clone)]
pub(super) enum Scatter {
    /// Every block once in a pseudo-random order, then all again in another order.
    Map { order: Permutation, next: u64, passes: u64, key: u64 },
    /// Any block at any time.
    Uniform,
    /// Popular blocks more often; the permutation puts ranks anywhere.
    Zipf(Box<Zipf>, Permutation),
    /// The same by Pareto's law: the exponent of a uniform number.
    Pareto(f64, Permutation),
    /// The same by a bell curve over the ranks, widened by so many units.
    Bell(u64, Permutation),
    /// Zones: cumulative shares as thresholds of 64 random bits, the first unit of each and how many it has.
    Zones([Vec<(u64, u64, u64)>; 3]),
}

impl Scatter {
    /// For a region of `units` units of `unit` bytes; `seed` is that of the thread.
    ///
    /// # Errors
    /// When zones do not fit in the region.
    pub fn new(spec: &ThreadSpec, units: u64, unit: u64, seed: u64) -> Result<Scatter, String> {
        // The popular blocks are the same for every thread and clone.
        let anywhere = || Permutation::new(units, spec.seed.unwrap_or(0));
        Ok(match &spec.distribution {
            Distribution::Zipf(theta) => Scatter::Zipf(Box::new(Zipf::new(units, *theta)), anywhere()),
            Distribution::Pareto(power) => Scatter::Pareto(power.ln() / (1.0 - power).ln(), anywhere()),
            Distribution::Normal(deviation) => {
                let wide = (units as f64 * deviation / 100.0).ceil() as u64;
                Scatter::Bell(wide.min(units / 2), anywhere())
            }
            Distribution::Zoned(zones) => {
                let [reads, writes, trims] = zones;
                let placed = |zones| place(zones, units, unit);
                Scatter::Zones([placed(reads)?, placed(writes)?, placed(trims)?])
            }
            Distribution::Uniform if spec.random_map => {
                Scatter::Map { order: Permutation::new(units, seed), next: 0, passes: 0, key: seed }
            }
            Distribution::Uniform => Scatter::Uniform,
        })
    }

    /// The unit of the next request of this kind.
    #[inline(always)]
    pub fn draw(&mut self, units: u64, kind: usize, rng: &mut Rng) -> u64 {
        match self {
            Scatter::Uniform => rng.below(units),
            Scatter::Zipf(zipf, order) => order.get(zipf.draw(rng)),
            Scatter::Pareto(power, order) => {
                let rank = (units - 1) as f64 * rng.unit_f64().powf(*power);
                order.get((rank as u64).min(units - 1))
            }
            Scatter::Bell(wide, order) => {
                let sum: u128 = (0..BELL_DRAWS).map(|_| u128::from(rng.below(units))).sum();
                let middle = (sum / u128::from(BELL_DRAWS)) as u64 + if *wide > 0 { rng.below(*wide) } else { 0 };
                order.get(middle.saturating_sub(*wide / 2).min(units - 1))
            }
            Scatter::Map { order, next, passes, key } => {
                if *next == units {
                    *next = 0;
                    *passes += 1;
                    *order = Permutation::new(units, key.wrapping_add(*passes));
                }
                *next += 1;
                order.get(*next - 1)
            }
            Scatter::Zones(zones) => {
                let draw = rng.next_u64();
                let zone = zones[kind].iter().find(|(threshold, ..)| draw <= *threshold);
                zone.map_or(0, |&(_, first, count)| first + rng.below(count))
            }
        }
    }

    /// Whether each block is visited once before any is visited again.
    pub fn is_map(&self) -> bool {
        matches!(self, Scatter::Map { .. })
    }
}

/// The zones of one kind over a region.
fn place(zones: &[Zone], units: u64, unit: u64) -> Result<Vec<(u64, u64, u64)>, String> {
    let taken: u64 = zones.iter().fold(0, |sum, zone| match zone {
        Zone::Bytes { size: Some(size), .. } => sum.saturating_add(size / unit),
        _ => sum,
    });
    if taken > units {
        return Err("the zones of random_distribution are larger than the region".into());
    }
    let open = zones.iter().filter(|zone| matches!(zone, Zone::Bytes { size: None, .. })).count() as u64;
    let mut placed: Vec<(u64, u64, u64)> = Vec::with_capacity(zones.len());
    let (mut first, mut shares, mut sizes) = (0u64, 0.0, 0.0);
    for zone in zones {
        let (share, end) = match *zone {
            Zone::Percent { share, size } => {
                sizes += size;
                (share, (units as f64 * sizes / 100.0).round() as u64)
            }
            Zone::Bytes { share, size: Some(size) } => (share, first + size / unit),
            Zone::Bytes { share, size: None } => (share, first + (units - taken) / open.max(1)),
        };
        shares += share;
        let end = end.min(units);
        if share > 0.0 {
            if end <= first {
                return Err("a zone of random_distribution is smaller than a block".into());
            }
            placed.push((probability_threshold((shares / 100.0).min(1.0)), first, end - first));
        }
        first = end;
    }
    if let Some(last) = placed.last_mut() {
        last.0 = u64::MAX;
    }
    Ok(placed)
}
