//! A part of a source: requests A to B.

use std::ops::Range;

use tidewater_base::Instant;

use super::{Request, Source, SourceError};

/// Requests `range.start` up to, but not including, `range.end` of a source, counted from 0. Arrivals are counted from
/// the first request of the slice, so that a replay does not wait for what was left out.
pub struct Slice<S> {
    source: S,
    range: Range<u64>,
    position: u64,
    first: Option<Instant>,
}

impl<S: Source> Slice<S> {
    /// The slice `range` of `source`. A range that ends past the source's end is cut there.
    pub fn new(source: S, range: Range<u64>) -> Slice<S> {
        Slice { source, range, position: 0, first: None }
    }

    /// The first `count` requests of `source`.
    pub fn limit(source: S, count: u64) -> Slice<S> {
        Slice::new(source, 0..count)
    }

    /// The source that it is a part of.
    pub fn source(&self) -> &S {
        &self.source
    }
}

impl<S: Source> Source for Slice<S> {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        while self.position < self.range.start {
            match self.source.next()? {
                Ok(_) => {
                    self.position += 1;
                    // What is left out is outstanding for no time, so that there is always room for the next.
                    self.source.ended(self.source.thread());
                    self.source.can_give(Instant::ZERO);
                }
                Err(error) => return Some(Err(error)),
            }
        }
        if self.position >= self.range.end {
            return None;
        }
        Some(self.source.next()?.map(|request| {
            self.position += 1;
            let first = *self.first.get_or_insert(request.arrival);
            Request { arrival: Instant::ZERO + request.arrival.since(first), ..request }
        }))
    }

    fn expected_requests(&self) -> Option<u64> {
        let length = self.range.end.saturating_sub(self.range.start);
        match self.source.expected_requests() {
            Some(all) => Some(all.saturating_sub(self.range.start).min(length)),
            None => (self.range.end != u64::MAX).then_some(length),
        }
    }

    fn progress(&self) -> Option<f64> {
        let end = self.source.expected_requests().map_or(self.range.end, |all| all.min(self.range.end));
        (end != u64::MAX && end > 0).then(|| (self.position as f64 / end as f64).min(1.0))
    }

    fn skipped(&self) -> u64 {
        self.source.skipped()
    }

    fn cut_short(&self) -> Option<String> {
        self.source.cut_short()
    }

    fn rewind(&mut self) -> Result<bool, SourceError> {
        (self.position, self.first) = (0, None);
        self.source.rewind()
    }

    fn reordered(&self) -> u64 {
        self.source.reordered()
    }

    fn extent(&self) -> Option<u64> {
        self.source.extent()
    }

    fn part_threads(&mut self) -> bool {
        self.source.part_threads()
    }

    fn can_give(&mut self, now: Instant) -> bool {
        self.source.can_give(now)
    }

    fn thread(&self) -> u16 {
        self.source.thread()
    }

    fn ended(&mut self, thread: u16) {
        self.source.ended(thread);
    }

    fn place(&self) -> Option<String> {
        self.source.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::synth::{Synth, SynthSpec};

    fn synth(requests: u64) -> Synth {
        Synth::new(&SynthSpec { requests, footprint_mib: 8.0, ..SynthSpec::default() }).unwrap()
    }

    fn all(mut source: impl Source) -> Vec<Request> {
        std::iter::from_fn(|| source.next()).map(|r| r.unwrap()).collect()
    }

    #[test]
    fn a_slice_holds_the_same_requests_and_starts_at_time_zero() {
        let whole = all(synth(5_000));
        let slice = Slice::new(synth(5_000), 100..150);
        assert_eq!(slice.expected_requests(), Some(50));
        let part = all(slice);
        assert_eq!(part.len(), 50);
        assert_eq!(part[0].arrival, Instant::ZERO);
        for (a, b) in part.iter().zip(&whole[100..]) {
            assert_eq!((a.op, a.offset, a.length), (b.op, b.offset, b.length));
            assert_eq!(a.arrival.since(Instant::ZERO), b.arrival - whole[100].arrival);
        }
    }

    #[test]
    fn a_slice_past_the_end_is_cut_or_empty() {
        assert_eq!(all(Slice::new(synth(5_000), 4_990..u64::MAX)).len(), 10);
        assert_eq!(all(Slice::new(synth(5_000), 6_000..7_000)).len(), 0);
        assert_eq!(all(Slice::limit(synth(5_000), 7)).len(), 7);
        assert_eq!(Slice::limit(synth(5_000), 7).expected_requests(), Some(7));
    }
}
