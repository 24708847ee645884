//! A generator of traces with given statistics, for when the trace itself cannot be had.

use std::collections::VecDeque;
use std::fmt;

use tidewater_base::{Instant, Rng};

use super::draws::{Gaps, Sizes, pages_mean, pages_reached, untouched_scale};
use super::permutation::Permutation;
use super::zipf::Zipf;
use super::{Op, Request, Source, SourceError};
use crate::trace::shape::{SECTOR_BYTES, Shape, begins_class};

pub(super) const PAGE: u64 = 4096;
/// Pages that are equally popular: 64 KiB, a common readahead and allocation unit, so that popular data have some
/// extent.
const GRANULE_PAGES: u64 = 16;
/// Places where untouched data is begun, in turn, as files that grow side by side.
const STREAMS: u64 = 16;
/// Requests over which a share that strayed is corrected.
const CORRECTION: f64 = 16.0;
/// Times that a request which must not be sequential is drawn anew, at most.
const REDRAWS: u32 = 8;
/// Requests of each kind that are recent. Their distance is drawn from a Zipf distribution of exponent 1 over so many:
/// of the heads of public traces that were looked at, a quarter to nearly all repetitions come within 64 requests, here
/// half.
const RECENT: usize = 4096;

/// Target statistics of a generated trace, as in [`crate::trace::Info`], and its popularity distribution.
#[derive(Clone, Debug, PartialEq)]
pub struct SynthSpec {
    /// Requests, at least 1.
    pub requests: u64,
    /// Mean size in KiB, 0.5 to 1,024.
    pub mean_kib: f64,
    /// Writes, 0 to 100 %.
    pub write_percent: f64,
    /// Requests that start where the previous one ended, 0 to 100 %.
    pub sequential_percent: f64,
    /// Mean time between arrivals in ms; intervals are exponentially distributed.
    pub mean_interarrival_ms: f64,
    /// Distinct 4 KiB pages that are touched by the end, in MiB.
    pub footprint_mib: f64,
    /// Exponent of the Zipf distribution of popularity over granules of 64 KiB, 0 (uniform) to 3.
    pub skew: f64,
    /// Of the requests to touched data that are not sequential, those that begin where a recent one of their kind (read
    /// or write) began, 0 to 100 %: temporal locality beyond popularity.
    pub again_percent: f64,
    /// Of the same, those that begin where a recent one of their kind ended, 0 to 100 % together with the former:
    /// streams that are interleaved, which no table counts as sequential.
    pub onward_percent: f64,
    /// Of the requests at the place of a recent one, those for which it is one of the other kind: reads of what was
    /// written lately, and writes of what was read; 0 to 100 %.
    pub shared_percent: f64,
    /// Sizes, times between requests and places in a page as those of a trace. Sizes that it has take the place of
    /// `mean_kib`, and intervals that of `mean_interarrival_ms`; without a shape a request begins at a page.
    pub shape: Option<Box<Shape>>,
    /// How much rather a large request goes to untouched data than a small one: with its number of pages to this power,
    /// 0 to 6. So much rather is untouched data also gone on with.
    pub untouched_exponent: f64,
    /// Seed.
    pub seed: u64,
}

impl Default for SynthSpec {
    /// A small on-line transaction processing load.
    fn default() -> SynthSpec {
        SynthSpec {
            requests: 20_000,
            mean_kib: 8.0,
            write_percent: 40.0,
            sequential_percent: 5.0,
            mean_interarrival_ms: 0.5,
            footprint_mib: 64.0,
            skew: 0.9,
            again_percent: 0.0,
            onward_percent: 0.0,
            shared_percent: 0.0,
            shape: None,
            untouched_exponent: 0.0,
            seed: 1,
        }
    }
}

impl SynthSpec {
    /// The workloads of the table in "CBM: A Cooperative Buffer Management for SSD" (MSST 2014), by name: `financial`,
    /// `msnfs`, `exchange`, `camwebdev`. Size, write and sequential share and interval are the paper's; it does not
    /// tell footprint and length, which stay at moderate values, nor locality, which follows heads of public traces
    /// (`docs/papers.md`). Of the two Financial traces of UMass the table's has the share of writes of Financial2 (18
    /// %), which mostly reads; three of four requests of Financial1 are writes.
    pub fn cbm(name: &str) -> Option<SynthSpec> {
        let (mean_kib, write_percent, sequential_percent, mean_interarrival_ms) = match name {
            "financial" => (3.89, 18.0, 0.6, 11.08),
            "msnfs" => (9.81, 33.0, 6.1, 0.587),
            "exchange" => (12.01, 72.0, 10.5, 3.78),
            "camwebdev" => (8.14, 99.0, 0.2, 0.707),
            _ => return None,
        };
        let (skew, again_percent, onward_percent) = match name {
            // As in the head of UMass Financial1, the one of the pair that is at hand: hot pages, written again within
            // a few MiB.
            "financial" => (0.9, 75.0, 20.0),
            // MSR hm, a server too: the head of the workload itself has 167 writes and says little.
            "msnfs" => (0.9, 30.0, 20.0),
            // Exchange: wide passes over a database, and little that a buffer sees again.
            "exchange" => (0.2, 5.0, 40.0),
            // MSR wdev and rsrch, volumes of the same laboratory.
            _ => (0.9, 70.0, 15.0),
        };
        Some(SynthSpec {
            requests: 1_000_000,
            mean_kib,
            write_percent,
            sequential_percent,
            mean_interarrival_ms,
            footprint_mib: 512.0,
            skew,
            again_percent,
            onward_percent,
            shared_percent: 0.0,
            shape: None,
            untouched_exponent: 0.0,
            seed: 1,
        })
    }

    /// The names that [`SynthSpec::cbm`] knows.
    pub const CBM: [&'static str; 4] = ["financial", "msnfs", "exchange", "camwebdev"];
}

/// Why a trace with such statistics cannot be generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynthError(pub(super) String);

impl fmt::Display for SynthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SynthError {}

/// Generates the requests of a [`SynthSpec`].
///
/// Sizes follow a lognormal over powers of two whose mean is the one that is asked for, drawn in strata so that the
/// mean of the generated trace is close to it too, or are those of a [`Shape`]. A request continues the previous one
/// with the sequential share. Others go to touched data, at the place of a recent request or by popularity, or to
/// untouched data, with the share that makes the touched pages reach the footprint by the end. Reads and writes do not
/// change within a sequential run.
pub struct Synth {
    spec: SynthSpec,
    emitted: u64,
    sequential: u64,
    writes: u64,
    now_ps: u64,
    rng: Rng,
    sizes: Sizes,
    gaps: Gaps,
    /// Pages that a request is expected to add when it goes to untouched data.
    pages_mean: f64,
    /// Scale that offsets [`SynthSpec::untouched_exponent`], so that as many pages are touched.
    untouched_scale: f64,
    /// The share of requests that have to go to untouched data, as it is at the start.
    untouched_share: f64,
    pages: u64,
    touched: Vec<u64>,
    touched_pages: u64,
    /// The next page of each stream, and where the stream ends.
    streams: Vec<(u64, u64)>,
    next_stream: usize,
    zipf: Zipf,
    scatter: Permutation,
    probe: Permutation,
    /// Offset and end of recent reads and of recent writes; of a [`Shape`], of those of whole pages and of the others,
    /// so that the ones do not begin amid a page where the others do.
    recent: [[VecDeque<(u64, u64)>; 2]; 2],
    distance: Zipf,
    previous: Option<(u64, Op)>,
}

impl Synth {
    /// A generator, or why there cannot be one.
    pub fn new(spec: &SynthSpec) -> Result<Synth, SynthError> {
        let within = |name: &str, value: f64, low: f64, high: f64| {
            if value >= low && value <= high {
                return Ok(());
            }
            Err(SynthError(format!("{name} is {value}; it has to be {low} to {high}")))
        };
        let own_sizes = spec.shape.as_ref().filter(|shape| shape.has_sizes());
        if own_sizes.is_none() {
            within("the mean size in KiB", spec.mean_kib, 0.5, 1024.0)?;
        }
        within("the percentage of writes", spec.write_percent, 0.0, 100.0)?;
        within("the percentage of sequential requests", spec.sequential_percent, 0.0, 100.0)?;
        within("the mean interval in ms", spec.mean_interarrival_ms, 0.0, 1e9)?;
        within("the footprint in MiB", spec.footprint_mib, PAGE as f64 / 1_048_576.0, 16_777_216.0)?;
        within("the skew", spec.skew, 0.0, 3.0)?;
        within("the exponent of untouched data", spec.untouched_exponent, 0.0, 6.0)?;
        within("the percentage of requests that begin where a recent one began", spec.again_percent, 0.0, 100.0)?;
        within(
            "the percentage of requests that begin where a recent one ended",
            spec.onward_percent,
            0.0,
            100.0 - spec.again_percent,
        )?;
        within("the percentage of recent places that are of the other kind", spec.shared_percent, 0.0, 100.0)?;
        if spec.requests == 0 {
            return Err(SynthError("the number of requests is 0; it has to be at least 1".into()));
        }
        // 213 days of picoseconds, with some reserve for chance.
        let days = spec.requests as f64 * spec.mean_interarrival_ms / 86_400_000.0;
        within("the length of the trace in days (requests x mean interval)", days, 0.0, 200.0)?;
        let pages = ((spec.footprint_mib * 256.0).round() as u64).max(1);
        let sizes = match own_sizes {
            Some(shape) => Sizes::of_shape(spec, shape, pages * PAGE)?,
            None => Sizes::lognormal(spec, pages * PAGE)?,
        };
        let pages_mean = pages_mean(spec, &sizes);
        let reach = pages_reached(spec, pages_mean);
        if pages as f64 > reach && pages > 1 {
            return Err(SynthError(format!(
                "{} requests of {} KiB on average touch at most {:.1} MiB, less than the footprint of {} MiB: ask for \
                 more requests or a smaller footprint",
                spec.requests,
                sizes.mean_kib(spec),
                reach / 256.0,
                spec.footprint_mib
            )));
        }
        let stride = pages.div_ceil(STREAMS);
        let streams = (0..STREAMS).map(|s| ((s * stride).min(pages), ((s + 1) * stride).min(pages))).collect();
        let granules = pages.div_ceil(GRANULE_PAGES);
        Ok(Synth {
            spec: spec.clone(),
            emitted: 0,
            sequential: 0,
            writes: 0,
            now_ps: 0,
            rng: Rng::new(spec.seed, b"synth"),
            untouched_scale: untouched_scale(spec, &sizes),
            untouched_share: pages as f64 / (spec.requests as f64 * pages_mean),
            sizes,
            gaps: Gaps::of(spec),
            pages_mean,
            pages,
            touched: vec![0; pages.div_ceil(64) as usize],
            touched_pages: 0,
            streams,
            next_stream: 0,
            zipf: Zipf::new(granules, spec.skew),
            scatter: Permutation::new(granules, spec.seed),
            probe: Permutation::new(pages, spec.seed ^ 1),
            recent: Default::default(),
            distance: Zipf::new(RECENT as u64, 1.0),
            previous: None,
        })
    }

    /// The specification of the trace.
    pub fn spec(&self) -> &SynthSpec {
        &self.spec
    }

    /// A choice with this probability, corrected by how far the share strayed so far.
    fn choose(&mut self, share: f64, chosen: u64) -> bool {
        self.choose_rather(share, share, chosen)
    }

    /// A choice with probability `now`, corrected by how far the share strayed from `share` so far.
    fn choose_rather(&mut self, now: f64, share: f64, chosen: u64) -> bool {
        let behind = share * self.emitted as f64 - chosen as f64;
        // A share of 0 or 1 stays exact.
        let corrected = if share <= 0.0 || share >= 1.0 { share } else { now + behind / CORRECTION };
        self.rng.unit_f64() < corrected
    }

    fn is_touched(&self, page: u64) -> bool {
        self.touched[(page / 64) as usize] >> (page % 64) & 1 == 1
    }

    fn touch(&mut self, offset: u64, length: u64) {
        for page in offset / PAGE..=(offset + length - 1) / PAGE {
            if !self.is_touched(page) {
                self.touched[(page / 64) as usize] |= 1 << (page % 64);
                self.touched_pages += 1;
            }
        }
    }

    /// The next untouched page, of the streams in turn. `apart`: not the one where the last request ended, as long as
    /// there is another; where only that stream has any left, one amid those.
    fn untouched_page(&mut self, apart: bool) -> Option<u64> {
        let mut next = None;
        for _ in 0..self.streams.len() {
            let at = self.next_stream;
            self.next_stream = (at + 1) % self.streams.len();
            let (mut page, end) = self.streams[at];
            while page < end && self.is_touched(page) {
                page += 1;
            }
            self.streams[at].0 = page;
            if page < end {
                if !(apart && self.continues_last(page * PAGE)) {
                    return Some(page);
                }
                next = Some((page, end));
            }
        }
        let (page, end) = next?;
        let amid = page + (end - page) / 2;
        (amid..end).chain(page + 1..amid).find(|&page| !self.is_touched(page)).or(Some(page))
    }

    /// Whether a request that begins there is sequential to the last one.
    fn continues_last(&self, offset: u64) -> bool {
        self.previous.is_some_and(|(end, _)| end == offset)
    }

    /// Where a request to untouched data begins; `apart` as in [`Synth::untouched_page`].
    fn untouched_offset(&mut self, op: Op, size: u64, apart: bool) -> Option<u64> {
        let phase = self.phase(op, size);
        // What grows upwards begins where the last request to its stream ended. With a shape only as many requests as
        // should go onward do so, and the others are put below what their stream has at its upper end.
        if self.spec.shape.is_some() && self.rng.unit_f64() >= self.spec.onward_percent / 100.0 {
            let pages = (phase + size).div_ceil(PAGE);
            return self.untouched_below(pages).map(|page| page * PAGE + phase);
        }
        self.untouched_page(apart).map(|page| page * PAGE + phase)
    }

    /// A page so that `pages` from it on end at the last untouched one of a stream, of the streams in turn.
    fn untouched_below(&mut self, pages: u64) -> Option<u64> {
        for _ in 0..self.streams.len() {
            let at = self.next_stream;
            self.next_stream = (at + 1) % self.streams.len();
            let (first, mut end) = self.streams[at];
            while first < end && self.is_touched(end - 1) {
                end -= 1;
            }
            self.streams[at].1 = end;
            if first < end {
                return Some(end.saturating_sub(pages).max(first));
            }
        }
        None
    }

    /// A touched page by popularity. While little is touched, the page that popularity chooses may be untouched; then a
    /// few others that depend on it alone are tried, so that what is popular stays so.
    fn popular_page(&mut self) -> u64 {
        let granule = self.scatter.get(self.zipf.draw(&mut self.rng));
        let mut page = (granule * GRANULE_PAGES + self.rng.below(GRANULE_PAGES)).min(self.pages - 1);
        for _ in 0..8 {
            if self.is_touched(page) {
                return page;
            }
            page = self.probe.get(page);
        }
        // The touched parts of the stream that the page belongs to, or else wherever the last request was.
        let stride = self.pages.div_ceil(STREAMS);
        let start = page / stride * stride;
        let (low, high) = self.streams[(page / stride) as usize];
        let (below, above) = (low - start, (start + stride).min(self.pages) - high);
        match (page.checked_rem(below + above), self.previous) {
            (Some(at), _) if at < below => start + at,
            (Some(at), _) => high + at - below,
            (None, previous) => previous.map_or(0, |(end, _)| (end - 1) / PAGE),
        }
    }

    /// Where a recent request, of the same kind or of the other, began or ended, if this one shall begin there.
    fn recent_offset(&mut self, op: Op, size: u64) -> Option<u64> {
        let (again, onward) = (self.spec.again_percent / 100.0, self.spec.onward_percent / 100.0);
        if !self.has_recent() {
            return None;
        }
        // Without a share no random number is drawn: what was generated before stays the same.
        let other = self.spec.shared_percent > 0.0 && self.rng.unit_f64() < self.spec.shared_percent / 100.0;
        let recent = &self.recent[usize::from((op == Op::Write) != other)][self.class(size)];
        let draw = self.rng.unit_f64();
        if draw >= again + onward || recent.is_empty() {
            return None;
        }
        let (offset, end) = recent[self.distance.draw(&mut self.rng) as usize % recent.len()];
        let at = if draw < again { offset } else { end };
        (at < self.pages * PAGE && !self.continues_last(at)).then_some(at)
    }

    /// Whether any request begins at the place of a recent one. If none does, no random number is drawn for it.
    fn has_recent(&self) -> bool {
        self.spec.again_percent + self.spec.onward_percent > 0.0
    }

    /// Of requests of this size, which are remembered together.
    fn class(&self, size: u64) -> usize {
        if self.spec.shape.is_some() { begins_class(size) } else { 0 }
    }

    fn remember(&mut self, op: Op, offset: u64, end: u64) {
        if !self.has_recent() {
            return;
        }
        let class = self.class(end - offset);
        let recent = &mut self.recent[usize::from(op == Op::Write)][class];
        if recent.len() == RECENT {
            recent.pop_back();
        }
        recent.push_front((offset, end));
    }

    fn fresh_offset(&mut self, op: Op, size: u64, apart: bool) -> u64 {
        let remaining = (self.spec.requests - self.emitted) as f64;
        let missing = (self.pages - self.touched_pages) as f64;
        let share = missing / (remaining * self.pages_mean);
        let pages = size.div_ceil(PAGE) as f64;
        let mut rather = pages.powf(self.spec.untouched_exponent) * self.untouched_scale;
        if self.spec.untouched_exponent > 0.0 {
            // No request is chosen more than always: where the large ones do not suffice, the others go there the
            // sooner.
            rather *= (share / self.untouched_share).max(1.0).powi(4);
        }
        let offset = if self.touched_pages == 0 || self.rng.unit_f64() < share * rather {
            self.untouched_offset(op, size, apart)
        } else {
            None
        };
        offset.or_else(|| self.recent_offset(op, size)).unwrap_or_else(|| {
            let page = self.popular_page() * PAGE;
            match self.spec.shape {
                Some(_) => page + self.phase(op, size),
                // Small requests lie anywhere in the page, aligned to their size.
                None if size < PAGE => page + self.rng.below(PAGE / size) * size,
                None => page,
            }
        })
    }

    /// Where in a page a request begins, as those of its kind in the trace do.
    fn phase(&mut self, op: Op, size: u64) -> u64 {
        let Some(shape) = &self.spec.shape else { return 0 };
        let begins = &shape.begins[usize::from(op == Op::Write)][begins_class(size)];
        let all: u64 = begins.iter().sum();
        if all == 0 {
            return 0;
        }
        let mut draw = self.rng.below(all);
        let mut phase = 0;
        while draw >= begins[phase] {
            draw -= begins[phase];
            phase += 1;
        }
        phase as u64 * SECTOR_BYTES
    }
}

impl Source for Synth {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        if self.emitted == self.spec.requests {
            return None;
        }
        if self.emitted > 0 {
            self.now_ps += self.gaps.draw_ps(self.spec.mean_interarrival_ms);
        }
        let space = self.pages * PAGE;
        let sequential = self.spec.sequential_percent / 100.0;
        let grows = self.spec.untouched_exponent > 0.0
            && self.previous.is_some_and(|(end, _)| end < space && !self.is_touched(end / PAGE));
        let now = if grows { sequential.powf(1.0 / (1.0 + self.spec.untouched_exponent)) } else { sequential };
        let continues = self.choose_rather(now, sequential, self.sequential);
        let sizes = &mut self.sizes;
        let (offset, op) = match self.previous.filter(|&(end, op)| continues && end + sizes.peek(op) <= space) {
            Some(previous) => {
                self.sequential += 1;
                previous
            }
            None => {
                let op = if self.choose(self.spec.write_percent / 100.0, self.writes) { Op::Write } else { Op::Read };
                let size = self.sizes.peek(op);
                let mut offset = self.fresh_offset(op, size, false).min(space - size);
                for redraw in 0..REDRAWS {
                    if continues || !self.continues_last(offset) {
                        break;
                    }
                    // The first time by chance; then what is left of the footprint is split.
                    offset = self.fresh_offset(op, size, redraw > 0).min(space - size);
                }
                (offset, op)
            }
        };
        let size = self.sizes.take(op);
        self.touch(offset, size);
        self.remember(op, offset, offset + size);
        self.previous = Some((offset + size, op));
        self.writes += u64::from(op == Op::Write);
        self.emitted += 1;
        Some(Ok(Request { arrival: Instant::from_ps(self.now_ps), op, offset, length: size, fua: false }))
    }

    fn expected_requests(&self) -> Option<u64> {
        Some(self.spec.requests)
    }

    fn progress(&self) -> Option<f64> {
        Some(self.emitted as f64 / self.spec.requests as f64)
    }

    fn extent(&self) -> Option<u64> {
        Some(self.pages * PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::info::info_of;

    fn check(spec: &SynthSpec) {
        let info = info_of("synth", &mut Synth::new(spec).unwrap(), false).unwrap();
        let near = |name: &str, wanted: f64, got: f64, absolute: f64| {
            let tolerance = (wanted * 0.01).max(absolute);
            assert!((got - wanted).abs() <= tolerance, "{name}: wanted {wanted}, got {got}, in {spec:?}");
        };
        assert_eq!(info.requests, spec.requests);
        near("mean size", spec.mean_kib, info.mean_kib, 0.0);
        near("writes", spec.write_percent, info.write_percent, 0.1);
        near("sequential", spec.sequential_percent, info.sequential_percent, 0.1);
        near("interval", spec.mean_interarrival_ms, info.mean_interarrival_ms, 0.0);
        near("footprint", spec.footprint_mib, info.footprint_mib, 0.01);
    }

    #[test]
    fn the_table_of_cbm_is_reached() {
        for name in SynthSpec::CBM {
            check(&SynthSpec { requests: 150_000, ..SynthSpec::cbm(name).unwrap() });
        }
        assert_eq!(SynthSpec::cbm("no such"), None);
    }

    #[test]
    fn the_corners_are_reached() {
        let base = SynthSpec { requests: 20_000, ..SynthSpec::default() };
        for spec in [
            SynthSpec { mean_kib: 0.5, footprint_mib: 8.0, ..base.clone() },
            SynthSpec { mean_kib: 1024.0, footprint_mib: 512.0, ..base.clone() },
            SynthSpec { mean_kib: 222.0, footprint_mib: 2_000.0, sequential_percent: 46.0, ..base.clone() },
            SynthSpec { write_percent: 0.0, skew: 0.0, ..base.clone() },
            SynthSpec { write_percent: 100.0, skew: 1.2, ..base.clone() },
            SynthSpec { sequential_percent: 0.0, ..base.clone() },
            SynthSpec { sequential_percent: 90.0, ..base.clone() },
            SynthSpec { footprint_mib: 140.0, ..base.clone() },
            SynthSpec { footprint_mib: 1.0, ..base },
        ] {
            check(&spec);
        }
    }

    /// The untouched rest of the footprint is not one sequence, and popular places do not make one either.
    #[test]
    fn the_sequential_share_is_reached_whatever_the_rest_is() {
        let base = SynthSpec { requests: 20_000, footprint_mib: 1_024.0, ..SynthSpec::default() };
        check(&SynthSpec { mean_kib: 64.0, write_percent: 72.0, skew: 0.0, seed: 12, ..base.clone() });
        for (sequential_percent, seed) in [(0.0, 1), (0.0, 2), (1.0, 3), (20.0, 4), (46.0, 5)] {
            for skew in [0.0, 0.9, 1.2, 2.0] {
                for (mean_kib, footprint_mib) in [(8.0, 16.0), (64.0, 1_024.0), (4.0, 64.0), (16.0, 4.0)] {
                    check(&SynthSpec { sequential_percent, skew, mean_kib, footprint_mib, seed, ..base.clone() });
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let base = SynthSpec { requests: 1_000, footprint_mib: 1.0, ..SynthSpec::default() };
        for (spec, words) in [
            (SynthSpec { footprint_mib: 1_000.0, ..base.clone() }, "more requests or a smaller footprint"),
            (SynthSpec { mean_kib: 1000.0, ..base.clone() }, "needs a larger footprint"),
            (SynthSpec { mean_kib: f64::NAN, ..base.clone() }, "0.5 to 1024"),
            (SynthSpec { write_percent: 101.0, ..base.clone() }, "0 to 100"),
            (SynthSpec { requests: 0, ..base.clone() }, "at least 1"),
            (SynthSpec { again_percent: 60.0, onward_percent: 41.0, ..base.clone() }, "0 to 40"),
            (SynthSpec { mean_interarrival_ms: 1e9, ..base }, "in days"),
        ] {
            let error = Synth::new(&spec).err().unwrap().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn a_seed_repeats_and_another_differs() {
        let draw = |seed| {
            let mut synth = Synth::new(&SynthSpec { seed, ..SynthSpec::default() }).unwrap();
            std::iter::from_fn(|| synth.next()).map(|r| r.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn locality_brings_requests_back() {
        let near = |again_percent, onward_percent| {
            let spec = SynthSpec { again_percent, onward_percent, requests: 40_000, ..SynthSpec::default() };
            check(&spec);
            let info = info_of("synth", &mut Synth::new(&spec).unwrap(), true).unwrap();
            info.locality.unwrap()
        };
        let (none, again, onward) = (near(0.0, 0.0), near(60.0, 0.0), near(0.0, 60.0));
        assert!(again.again_percent > 1.3 * none.again_percent, "{again:?} {none:?}");
        assert!(again.written[0].again_percent > 2.0 * none.written[0].again_percent, "{again:?} {none:?}");
        assert!(onward.onward_percent > 1.5 * none.onward_percent, "{onward:?} {none:?}");
    }

    #[test]
    fn reads_share_the_places_of_writes_as_far_as_is_asked_for() {
        let share = |shared_percent| {
            let locality = SynthSpec { skew: 0.0, again_percent: 80.0, requests: 40_000, ..SynthSpec::default() };
            let spec = SynthSpec { shared_percent, ..locality };
            check(&spec);
            let mut synth = Synth::new(&spec).unwrap();
            let (mut written, mut reads, mut of_written) = (std::collections::HashSet::new(), 0.0, 0.0);
            while let Some(Ok(request)) = synth.next() {
                if request.op == Op::Write {
                    written.insert(request.offset);
                } else {
                    reads += 1.0;
                    of_written += f64::from(u8::from(written.contains(&request.offset)));
                }
            }
            of_written / reads
        };
        let [none, half, all] = [0.0, 50.0, 100.0].map(share);
        assert!(half > 1.5 * none && all > half + 0.1, "{none} {half} {all}");
    }

    #[test]
    fn skew_makes_some_granules_popular() {
        let hottest = |skew| {
            let spec = SynthSpec { skew, sequential_percent: 0.0, ..SynthSpec::default() };
            let mut synth = Synth::new(&spec).unwrap();
            let mut counts = std::collections::HashMap::<u64, u32>::new();
            while let Some(request) = synth.next() {
                *counts.entry(request.unwrap().offset / 65_536).or_default() += 1;
            }
            counts.into_values().max().unwrap()
        };
        assert!(hottest(1.1) > 5 * hottest(0.0));
    }
}
