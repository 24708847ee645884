//! A whole trace in memory, for runs that share it: it is unpacked and parsed once.

use super::{Format, Input, Options, Trace};
use crate::request::{Op, Request, Source, SourceError};
use std::sync::Arc;
use tidewater_base::Instant;

/// A request in 24 bytes.
#[derive(Clone, Copy)]
struct Packed {
    arrival: Instant,
    offset: u64,
    length: u32,
    op: Op,
    fua: bool,
}

/// Counts of the reader before it gave request number `at`.
#[derive(Clone, Copy, Default)]
struct Counts {
    at: usize,
    skipped: u64,
    reordered: u64,
}

/// The requests of a trace, with all that a run learns from its reader.
pub struct Whole {
    from: (Input, Options),
    format: Format,
    extent: u64,
    requests: Box<[Packed]>,
    /// Where the counts change, in rising order.
    counts: Vec<Counts>,
    cut_short: Option<String>,
}

impl Whole {
    /// Bytes of memory that a trace will take; `None`: it was not scanned, so that is not known.
    pub fn bytes_of(trace: &Trace) -> Option<u64> {
        trace.expected_requests()?.checked_mul(size_of::<Packed>() as u64)
    }

    /// Reads a scanned trace to its end. `None`: it has an error, or a request of 4 GiB or more; then it has to be read
    /// by each run.
    pub fn read(mut trace: Trace) -> Option<Whole> {
        let (extent, expected) = (trace.extent()?, trace.expected_requests()?);
        let mut requests = Vec::with_capacity(usize::try_from(expected).ok()?);
        let mut counts: Vec<Counts> = Vec::new();
        loop {
            let next = trace.next();
            let now = Counts { at: requests.len(), skipped: trace.skipped(), reordered: trace.reordered() };
            let last = counts.last().copied().unwrap_or_default();
            if (now.skipped, now.reordered) != (last.skipped, last.reordered) {
                counts.push(now);
            }
            let Some(next) = next else { break };
            let Request { arrival, op, offset, length, fua } = next.ok()?;
            requests.push(Packed { arrival, offset, length: u32::try_from(length).ok()?, op, fua });
        }
        Some(Whole {
            format: trace.format(),
            extent,
            requests: requests.into_boxed_slice(),
            counts,
            cut_short: trace.cut_short(),
            from: trace.from,
        })
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }
}

/// The requests of a [`Whole`], from its first on: a source as its [`Trace`] is.
pub struct Playback {
    whole: Arc<Whole>,
    at: usize,
    /// The next of the places where the counts change.
    change: usize,
    /// Counts of this pass.
    counts: Counts,
    /// Lines that an earlier pass has skipped: those of every pass, counted once.
    skipped_before: u64,
    /// Requests that earlier passes have reordered.
    reordered_before: u64,
    ended: bool,
}

impl Playback {
    /// From the first request on.
    pub fn new(whole: Arc<Whole>) -> Playback {
        Playback {
            whole,
            at: 0,
            change: 0,
            counts: Counts::default(),
            skipped_before: 0,
            reordered_before: 0,
            ended: false,
        }
    }
}

impl Source for Playback {
    #[inline]
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        if let Some(counts) = self.whole.counts.get(self.change).filter(|counts| counts.at == self.at) {
            self.counts = *counts;
            self.change += 1;
        }
        let Some(&Packed { arrival, offset, length, op, fua }) = self.whole.requests.get(self.at) else {
            self.ended = true;
            return None;
        };
        self.at += 1;
        Some(Ok(Request { arrival, op, offset, length: length.into(), fua }))
    }

    fn expected_requests(&self) -> Option<u64> {
        Some(self.whole.requests.len() as u64)
    }

    fn progress(&self) -> Option<f64> {
        Some(self.at as f64 / self.whole.requests.len() as f64)
    }

    fn skipped(&self) -> u64 {
        self.counts.skipped.max(self.skipped_before)
    }

    fn reordered(&self) -> u64 {
        self.reordered_before + self.counts.reordered
    }

    fn extent(&self) -> Option<u64> {
        Some(self.whole.extent)
    }

    fn cut_short(&self) -> Option<String> {
        self.whole.cut_short.clone().filter(|_| self.ended)
    }

    fn rewind(&mut self) -> Result<bool, SourceError> {
        (self.skipped_before, self.reordered_before) = (self.skipped(), self.reordered());
        (self.at, self.change, self.counts, self.ended) = (0, 0, Counts::default(), false);
        Ok(true)
    }

    /// For a message: read once more, up to there.
    #[cold]
    fn place(&self) -> Option<String> {
        let mut trace = Trace::open(&self.whole.from.0, &self.whole.from.1).ok()?;
        for _ in 0..self.at {
            trace.next()?.ok()?;
        }
        trace.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a line that is none, stamps that go back, and no end of its last line.
    const TEXT: &str = "0,0,4096,W,0.0\n0,8,512,r,0.5\nnot a line\n0,16,512,w,0.4\n0,4000,4096,W,0.9\n0,1,512,r,0.8";

    fn trace() -> Trace {
        let options = Options { format: "spc".parse().ok(), skip_bad: true, ..Options::default() };
        Trace::open(&Input::from_bytes("t", TEXT.as_bytes()), &options).unwrap()
    }

    /// All that is seen of a source while it is read `passes` times.
    fn seen(source: &mut impl Source, passes: usize) -> Vec<String> {
        let mut seen = Vec::new();
        for _ in 0..passes {
            loop {
                let next = source.next();
                seen.push(format!(
                    "{next:?} {} {} {:?} {:?} {:?} {:?}",
                    source.skipped(),
                    source.reordered(),
                    source.progress(),
                    source.cut_short(),
                    source.place(),
                    source.extent(),
                ));
                if next.is_none() {
                    break;
                }
            }
            assert!(source.rewind().unwrap());
        }
        seen
    }

    #[test]
    fn a_run_sees_of_a_kept_trace_what_it_sees_of_its_reader() {
        let whole = Arc::new(Whole::read(trace()).unwrap());
        assert_eq!(Whole::bytes_of(&trace()), Some(5 * 24));
        let (kept, read) = (seen(&mut Playback::new(whole), 3), seen(&mut trace(), 3));
        assert_eq!(kept.len(), 18);
        for (kept, read) in kept.iter().zip(&read) {
            assert_eq!(kept, read);
        }
    }

    #[test]
    fn a_request_too_long_to_keep_is_read_by_each_run() {
        let text = format!("0,deallocate,0,{}\n", 1u64 << 33);
        let columns: super::super::Columns = "time_us,op,offset,bytes".parse().unwrap();
        let options = Options { columns: Some(Arc::new(columns)), ..Options::default() };
        let trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &options).unwrap();
        assert!(Whole::read(trace).is_none());
    }
}
