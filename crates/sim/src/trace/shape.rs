//! Distributions of a trace: sizes of reads and of writes, times between requests, and their offsets within a page,
//! each in a bounded number of buckets.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::footprint::PAGE_BYTES;

/// Unit of addresses and sizes in nearly every trace.
pub const SECTOR_BYTES: u64 = 512;
/// Places in a page where a request can begin.
pub const PHASES: usize = (PAGE_BYTES / SECTOR_BYTES) as usize;
/// Sizes that are kept as they are: the most frequent ones. Block traces have a handful, and a tail.
const SIZES_KEPT: usize = 64;
/// Sizes that are counted one by one while a trace is read. A file that has more, such as one of bytes, gets the rest
/// in octaves.
const SIZES_COUNTED: usize = 4096;

/// A value, and how often there is one like it. In JSON: `[value, count]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "[u64; 2]")]
pub struct Bucket {
    /// The value, or the mean of those in the bucket.
    pub value: u64,
    /// How many there are.
    pub count: u64,
}

impl From<Bucket> for [u64; 2] {
    fn from(bucket: Bucket) -> [u64; 2] {
        [bucket.value, bucket.count]
    }
}

/// Distributions of a trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Shape {
    /// Sizes of reads in bytes, the 64 most frequent as they are, the others by octave.
    pub read_sizes: Vec<Bucket>,
    /// The same of writes.
    pub write_sizes: Vec<Bucket>,
    /// Times between requests in picoseconds, by octave.
    pub intervals_ps: Vec<Bucket>,
    /// Requests that are not sequential by the sector of a page in which they begin: of reads and of writes, first
    /// those of whole pages, then the others.
    #[serde(skip)]
    pub begins: [[[u64; PHASES]; 2]; 2],
}

impl Shape {
    /// Whether there is any size.
    pub fn has_sizes(&self) -> bool {
        !(self.read_sizes.is_empty() && self.write_sizes.is_empty())
    }

    /// Sizes of writes, or of reads.
    pub fn sizes(&self, is_write: bool) -> &[Bucket] {
        if is_write { &self.write_sizes } else { &self.read_sizes }
    }
}

/// Which half of [`Shape::begins`] a size belongs to: 0 where it is of whole pages.
pub fn begins_class(bytes: u64) -> usize {
    usize::from(!bytes.is_multiple_of(PAGE_BYTES))
}

/// Values, counted in bounded memory.
struct Tally {
    exact: HashMap<u64, u64>,
    exact_max: usize,
    /// Count and sum of the others.
    octaves: BTreeMap<Octave, (u64, u128)>,
}

/// Values of one leading bit, those of whole pages apart: their mean is to be one of whole pages, too.
type Octave = (u32, usize);

impl Tally {
    fn new(exact_max: usize) -> Tally {
        Tally { exact: HashMap::new(), exact_max, octaves: BTreeMap::new() }
    }

    fn add(&mut self, value: u64) {
        if let Some(count) = self.exact.get_mut(&value) {
            *count += 1;
        } else if self.exact.len() < self.exact_max {
            self.exact.insert(value, 1);
        } else {
            add_to_octave(&mut self.octaves, value, 1);
        }
    }

    /// The `kept` most frequent values, and the means of the others by octave, each as a multiple of `unit`.
    fn finish(&self, kept: usize, unit: u64) -> Vec<Bucket> {
        let mut exact: Vec<Bucket> =
            self.exact.iter().map(|(&value, &count)| Bucket { value: value.next_multiple_of(unit), count }).collect();
        exact.sort_by_key(|bucket| (std::cmp::Reverse(bucket.count), bucket.value));
        let mut octaves = self.octaves.clone();
        for rare in exact.drain(kept.min(exact.len())..) {
            add_to_octave(&mut octaves, rare.value, rare.count);
        }
        let mean = |((_, class), (count, sum)): (Octave, (u64, u128))| {
            let unit = if unit == SECTOR_BYTES && class == 0 { PAGE_BYTES } else { unit };
            let units = (sum + u128::from(count * unit / 2)) / u128::from(count * unit);
            Bucket { value: units as u64 * unit, count }
        };
        let mut merged = BTreeMap::<u64, u64>::new();
        for bucket in exact.into_iter().chain(octaves.into_iter().map(mean)) {
            *merged.entry(bucket.value).or_default() += bucket.count;
        }
        merged.into_iter().map(|(value, count)| Bucket { value, count }).collect()
    }
}

fn add_to_octave(octaves: &mut BTreeMap<Octave, (u64, u128)>, value: u64, count: u64) {
    let (all, sum) = octaves.entry((u64::BITS - value.leading_zeros(), begins_class(value))).or_default();
    *all += count;
    *sum += u128::from(value) * u128::from(count);
}

/// Counts a [`Shape`].
pub(super) struct Counter {
    sizes: [Tally; 2],
    intervals: Tally,
    begins: [[[u64; PHASES]; 2]; 2],
    last_ps: Option<u64>,
}

impl Default for Counter {
    fn default() -> Counter {
        Counter {
            sizes: [Tally::new(SIZES_COUNTED), Tally::new(SIZES_COUNTED)],
            intervals: Tally::new(0),
            begins: Default::default(),
            last_ps: None,
        }
    }
}

impl Counter {
    /// A read or write of `length` bytes at `offset`, which arrives at `arrival_ps`.
    pub fn add(&mut self, is_write: bool, offset: u64, length: u64, arrival_ps: u64, is_sequential: bool) {
        self.sizes[usize::from(is_write)].add(length);
        if let Some(last_ps) = self.last_ps.replace(arrival_ps) {
            self.intervals.add(arrival_ps.saturating_sub(last_ps));
        }
        if !is_sequential {
            let phase = offset % PAGE_BYTES / SECTOR_BYTES;
            self.begins[usize::from(is_write)][begins_class(length)][phase as usize] += 1;
        }
    }

    pub fn finish(&self) -> Shape {
        let [reads, writes] = &self.sizes;
        Shape {
            read_sizes: reads.finish(SIZES_KEPT, SECTOR_BYTES),
            write_sizes: writes.finish(SIZES_KEPT, SECTOR_BYTES),
            intervals_ps: self.intervals.finish(0, 1),
            begins: self.begins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_sizes_stay_and_rare_ones_share_a_bucket() {
        let mut counter = Counter::default();
        for i in 0..1_000u64 {
            counter.add(false, 0, 4096, 0, false);
            counter.add(true, 0, 4096 + 512 * i, 0, false);
        }
        let shape = counter.finish();
        assert_eq!(shape.read_sizes, [Bucket { value: 4096, count: 1_000 }]);
        assert!(shape.write_sizes.len() <= SIZES_KEPT + 65, "{}", shape.write_sizes.len());
        let sum = |of: fn(&Bucket) -> u64| shape.write_sizes.iter().map(of).sum::<u64>() as f64;
        let mean = sum(|bucket| bucket.value * bucket.count) / sum(|bucket| bucket.count);
        assert_eq!(sum(|bucket| bucket.count), 1_000.0);
        assert!((mean / (4096.0 + 512.0 * 499.5) - 1.0).abs() < 0.002, "{mean}");
    }

    #[test]
    fn more_sizes_than_are_counted_take_no_more_memory() {
        let mut tally = Tally::new(SIZES_COUNTED);
        (0..100_000u64).for_each(|i| tally.add(512 * (i + 1)));
        assert_eq!(tally.exact.len(), SIZES_COUNTED);
        let buckets = tally.finish(SIZES_KEPT, SECTOR_BYTES);
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 100_000);
    }

    #[test]
    fn intervals_keep_their_sum() {
        let mut counter = Counter::default();
        let mut now_ps = 0;
        for gap_ps in [0, 1_000, 1_500_000, 7, 1_000_000_000_000] {
            counter.add(true, 0, 512, now_ps, false);
            now_ps += gap_ps;
        }
        let intervals = counter.finish().intervals_ps;
        assert_eq!(intervals.iter().map(|bucket| bucket.value * bucket.count).sum::<u64>(), 1_501_007);
        assert_eq!(intervals[0], Bucket { value: 0, count: 1 });
    }

    #[test]
    fn a_request_begins_in_a_sector_of_its_page() {
        let mut counter = Counter::default();
        counter.add(false, 63 * 512, 4096, 0, false);
        counter.add(false, 63 * 512 + 4096, 4096, 0, true); // Sequential: where it begins follows from the one before.
        counter.add(true, 8192, 512, 0, false);
        let begins = counter.finish().begins;
        assert_eq!((begins[0][0][7], begins[1][1][0]), (1, 1));
        assert_eq!(begins.as_flattened().as_flattened().iter().sum::<u64>(), 2);
    }
}
