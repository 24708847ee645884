//! A source several times over.

use tidewater_base::Instant;

use super::{Request, Source, SourceError};

/// A source `passes` times, each pass behind the last: its first request arrives with the last one before it, as with
/// MQSim's `Relay_Count`, so that ten passes take ten times as long.
pub struct Repeat<S> {
    source: S,
    passes: u64,
    /// Passes that are done.
    done: u64,
    /// When the current pass began.
    begin: Instant,
    last: Instant,
}

impl<S: Source> Repeat<S> {
    /// `source` as often as `passes` says, at least once.
    pub fn new(source: S, passes: u64) -> Repeat<S> {
        Repeat { source, passes: passes.max(1), done: 0, begin: Instant::ZERO, last: Instant::ZERO }
    }
}

impl<S: Source> Source for Repeat<S> {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        loop {
            match self.source.next() {
                Some(Ok(request)) => {
                    // Beyond what the clock holds, 213 days, nothing arrives.
                    let ps = self.begin.as_ps().checked_add(request.arrival.as_ps()).filter(|&ps| ps < u64::MAX / 2);
                    let Some(ps) = ps else {
                        self.done = self.passes;
                        return None;
                    };
                    self.last = Instant::from_ps(ps);
                    return Some(Ok(Request { arrival: self.last, ..request }));
                }
                Some(Err(error)) => return Some(Err(error)),
                None if self.done + 1 >= self.passes => return None,
                None => {}
            }
            match self.source.rewind() {
                Ok(true) => (self.done, self.begin) = (self.done + 1, self.last),
                Ok(false) => return None,
                Err(error) => {
                    self.done = self.passes;
                    return Some(Err(error));
                }
            }
        }
    }

    fn expected_requests(&self) -> Option<u64> {
        self.source.expected_requests().map(|each| each.saturating_mul(self.passes))
    }

    fn progress(&self) -> Option<f64> {
        self.source.progress().map(|part| (self.done as f64 + part) / self.passes as f64)
    }

    fn skipped(&self) -> u64 {
        self.source.skipped()
    }

    fn cut_short(&self) -> Option<String> {
        self.source.cut_short()
    }

    fn rewind(&mut self) -> Result<bool, SourceError> {
        (self.done, self.begin, self.last) = (0, Instant::ZERO, Instant::ZERO);
        self.source.rewind()
    }

    fn reordered(&self) -> u64 {
        self.source.reordered()
    }

    fn extent(&self) -> Option<u64> {
        self.source.extent()
    }

    fn place(&self) -> Option<String> {
        self.source.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Format, Input, Options, Trace};
    use crate::workload::{Slice, Workload};

    const TEXT: &[u8] = b"0 0 264719034 16 0\n315000 0 197570570 16 0\n900000 0 81920 8 1\n";

    fn trace(options: Options) -> Workload {
        let options = Options { format: Some(Format::Mqsim), ..options };
        Workload::Trace(Box::new(Trace::open(&Input::from_bytes("t", TEXT), &options).unwrap()))
    }

    #[test]
    fn ten_passes_take_ten_times_as_long() {
        let mut repeat = Repeat::new(trace(Options::default()), 10);
        assert_eq!(repeat.expected_requests(), Some(30));
        let all: Vec<Request> = std::iter::from_fn(|| repeat.next()).map(|r| r.unwrap()).collect();
        assert_eq!((all.len(), all[29].arrival, repeat.progress()), (30, Instant::from_ns(9_000_000), Some(1.0)));
        assert!(all.is_sorted_by_key(|request| request.arrival));
        for (at, request) in all.iter().enumerate() {
            let first = all[at % 3];
            assert_eq!((request.op, request.offset, request.length), (first.op, first.offset, first.length));
            assert_eq!(request.arrival.as_ps(), first.arrival.as_ps() + at as u64 / 3 * 900_000_000);
        }
        assert_eq!(repeat.rewind(), Ok(true));
        assert_eq!(std::iter::from_fn(|| repeat.next()).count(), 30);
    }

    #[test]
    fn a_slice_is_repeated_as_it_is_and_what_can_be_read_once_is_read_once() {
        let mut repeat = Repeat::new(Workload::Slice(Box::new(Slice::new(trace(Options::default()), 1..3))), 3);
        let places: Vec<u64> = std::iter::from_fn(|| repeat.next()).map(|r| r.unwrap().arrival.as_ps()).collect();
        let gap = 585_000_000;
        assert_eq!(places, [0, gap, gap, 2 * gap, 2 * gap, 3 * gap]);
        let mut once = Repeat::new(trace(Options { scan: false, ..Options::default() }), 3);
        assert_eq!(std::iter::from_fn(|| once.next()).count(), 3);
    }
}
