//! Several sources at once, each in a region of its own.

use tidewater_base::Instant;

use super::{Request, Source, SourceError};

/// Regions begin at multiples of this, so that no two share a page.
const ALIGN: u64 = 1 << 20;

/// Sources that begin at the same time, merged by arrival. Each has its own region of the drive, as a namespace would
/// be: they lie one after the other in the order given, each at a multiple of 1 MiB.
pub struct Together<S> {
    streams: Vec<Stream<S>>,
    /// The one that gave the last request.
    last: usize,
}

struct Stream<S> {
    source: S,
    base: u64,
    pending: Option<Request>,
    ended: bool,
}

impl<S: Source> Together<S> {
    /// The sources, placed one after the other. `None` where one does not tell its extent, or all pass 2^63 bytes.
    pub fn new(sources: Vec<S>) -> Option<Together<S>> {
        let mut base = 0u64;
        let mut streams = Vec::with_capacity(sources.len());
        for source in sources {
            let end = base.checked_add(source.extent()?)?.checked_next_multiple_of(ALIGN)?;
            if end > 1 << 63 {
                return None;
            }
            streams.push(Stream { source, base, pending: None, ended: false });
            base = end;
        }
        Some(Together { streams, last: 0 })
    }

    fn all<T>(&self, each: impl Fn(&S) -> T) -> impl Iterator<Item = T> {
        self.streams.iter().map(move |stream| each(&stream.source))
    }
}

impl<S: Source> Source for Together<S> {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        let mut earliest: Option<(Instant, usize)> = None;
        for (at, stream) in self.streams.iter_mut().enumerate() {
            if stream.pending.is_none() && !stream.ended {
                match stream.source.next() {
                    Some(Ok(request)) => stream.pending = Some(request),
                    Some(Err(error)) => {
                        self.last = at;
                        stream.ended = true;
                        return Some(Err(error));
                    }
                    None => stream.ended = true,
                }
            }
            if let Some(request) = stream.pending
                && earliest.is_none_or(|(arrival, _)| request.arrival < arrival)
            {
                earliest = Some((request.arrival, at));
            }
        }
        let (_, at) = earliest?;
        self.last = at;
        let stream = &mut self.streams[at];
        let request = stream.pending.take()?;
        let offset = if request.length == 0 { request.offset } else { stream.base + request.offset };
        Some(Ok(Request { offset, ..request }))
    }

    fn expected_requests(&self) -> Option<u64> {
        self.all(Source::expected_requests).try_fold(0u64, |sum, each| Some(sum.saturating_add(each?)))
    }

    fn progress(&self) -> Option<f64> {
        let parts: Option<f64> = self.all(Source::progress).sum();
        parts.map(|sum| sum / self.streams.len().max(1) as f64)
    }

    fn skipped(&self) -> u64 {
        self.all(Source::skipped).sum()
    }

    fn cut_short(&self) -> Option<String> {
        self.all(Source::cut_short).flatten().next()
    }

    fn rewind(&mut self) -> Result<bool, SourceError> {
        for stream in &mut self.streams {
            (stream.pending, stream.ended) = (None, false);
            if !stream.source.rewind()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn reordered(&self) -> u64 {
        self.all(Source::reordered).sum()
    }

    fn extent(&self) -> Option<u64> {
        let last = self.streams.last()?;
        Some(last.base + last.source.extent()?)
    }

    fn place(&self) -> Option<String> {
        self.streams.get(self.last)?.source.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Input, Options, Trace};

    fn trace(name: &str, text: &str) -> Trace {
        Trace::open(&Input::from_bytes(name, text.as_bytes()), &Options::default()).unwrap()
    }

    #[test]
    fn streams_begin_together_and_share_no_page() {
        let (a, b) = ("0,0,512,w,5.0\n0,16,512,r,7.0\n", "0,8,4096,r,100.0\n0,0,512,w,101.0\n0,0,512,w,103.0\n");
        let mut together = Together::new(vec![trace("a", a), trace("b", b)]).unwrap();
        assert_eq!((together.expected_requests(), together.extent()), (Some(5), Some((1 << 20) + 8_192)));
        let mut places = Vec::new();
        let seen: Vec<(u64, u64)> = std::iter::from_fn(|| {
            let request = together.next()?.unwrap();
            places.push(together.place().unwrap());
            Some((request.arrival.as_ps() / 1_000_000_000_000, request.offset))
        })
        .collect();
        let mib = 1 << 20;
        assert_eq!(seen, [(0, 0), (0, mib + 4_096), (1, mib), (2, 8_192), (3, mib)]);
        assert_eq!(places, ["a:1", "b:1", "b:2", "a:2", "b:3"]);
        assert_eq!(together.rewind(), Ok(true));
        assert_eq!(std::iter::from_fn(|| together.next()).count(), 5);
    }

    #[test]
    fn a_source_of_unknown_extent_cannot_be_placed() {
        let options = Options { scan: false, ..Options::default() };
        let piped = Trace::open(&Input::from_bytes("a", b"0,0,512,w,5.0\n"), &options).unwrap();
        assert!(Together::new(vec![piped]).is_none());
    }
}
