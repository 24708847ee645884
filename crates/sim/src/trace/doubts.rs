//! Whether a trace looks as if its columns or their units were mistaken: such a trace runs, and its figures are of
//! another one.

use super::{Input, Options, Trace};
use crate::request::Op;
use tidewater_base::units::{bytes, grouped, plural_exact, seconds};

/// Prefix of every doubt.
pub const DOUBT: &str = "the trace may be misread: ";

/// Requests that are looked at, from the first on.
const LOOKED_AT: u64 = 4096;
/// Fewer requests than this show no pattern.
const REQUESTS_MIN: u64 = 32;
/// Fewer than this are a burst, not the rate of a trace.
const RATE_REQUESTS_MIN: u64 = 1000;
/// Every block device is addressed in multiples of this.
const SECTOR: u64 = 512;
/// Block layers split larger requests: Linux at 1,280 KiB (`max_sectors_kb`) unless it is raised.
const LARGE: u64 = 1 << 20;
/// So many times the range of offsets, lengths are in the place of offsets.
const BEYOND_RANGE: u64 = 4;
/// No more come in a second, over a thousand requests and more, from one drive's host of today.
const RATE_MAX: f64 = 1e6;
/// Seconds between two requests, on average, of a drive that is hardly in use.
const GAP_MAX: f64 = 60.0;

/// Statistics of a trace's first requests.
#[derive(Default)]
struct Look {
    requests: u64,
    /// Lengths and offsets that are no multiples of a sector.
    odd_lengths: u64,
    odd_offsets: u64,
    /// The shortest and the longest, and their sum.
    shortest: u64,
    longest: u64,
    total: u64,
    /// The first byte that is asked for, and the last offset.
    lowest: u64,
    highest: u64,
    /// Seconds from the first request to the last.
    lasted: f64,
}

/// Signs in the first requests that a trace is misread; none where it can be read only once or not at all, which is an
/// error of its own. `timed`: requests come at the times of the trace.
pub fn doubts(input: &Input, options: &Options, timed: bool) -> Vec<String> {
    if !input.rereadable() {
        return Vec::new();
    }
    let options = Options { scan: false, compact: false, ..options.clone() };
    let Ok(mut trace) = Trace::open(input, &options) else { return Vec::new() };
    let mut look = Look { shortest: u64::MAX, lowest: u64::MAX, ..Look::default() };
    for _ in 0..LOOKED_AT {
        let Some(Ok(found)) = trace.next_request() else { break };
        look.see(found.request.op, found.device_offset, found.request.length, found.request.arrival.as_secs_f64());
    }
    look.doubts(timed)
}

impl Look {
    fn see(&mut self, op: Op, offset: u64, length: u64, at: f64) {
        self.lasted = at;
        // A flush has no place, and file systems deallocate gigabytes at once.
        if op == Op::Flush || op == Op::Deallocate {
            return;
        }
        self.requests += 1;
        self.odd_lengths += u64::from(!length.is_multiple_of(SECTOR));
        self.odd_offsets += u64::from(!offset.is_multiple_of(SECTOR));
        self.shortest = self.shortest.min(length);
        self.longest = self.longest.max(length);
        self.total = self.total.saturating_add(length);
        self.lowest = self.lowest.min(offset);
        self.highest = self.highest.max(offset);
    }

    fn doubts(&self, timed: bool) -> Vec<String> {
        if self.requests < REQUESTS_MIN {
            return Vec::new();
        }
        let words = self.place().into_iter().chain(self.pace().filter(|_| timed));
        words.map(|words| format!("{DOUBT}{words}")).collect()
    }

    /// Offsets and lengths.
    fn place(&self) -> Option<String> {
        let (mean, range) = (self.total / self.requests, self.highest - self.lowest);
        let share = |count: u64| format!("{:.0} %", count as f64 / self.requests as f64 * 100.0);
        let many = |count: u64| count * 2 > self.requests;
        if self.longest >= LARGE && self.longest > self.shortest && mean > range.saturating_mul(BEYOND_RANGE) {
            return Some(format!(
                "requests have {} on average, and all begin within {}: are offset and length swapped, or in other \
                 units than their columns say?",
                bytes(mean),
                bytes(range)
            ));
        }
        if many(self.odd_lengths) {
            return Some(format!(
                "the lengths of {} of the requests are no multiples of 512 bytes (the shortest has {}): are they in \
                 sectors or KiB (columns `sectors`, `kib`), or is another column the length?",
                share(self.odd_lengths),
                plural_exact(self.shortest, "byte")
            ));
        }
        many(self.odd_offsets).then(|| {
            format!(
                "the offsets of {} of the requests are no multiples of 512 bytes: are they in sectors or other blocks \
                 (columns `sector`, `lba`, `lba_4k`), or is another column the offset?",
                share(self.odd_offsets)
            )
        })
    }

    /// Times.
    fn pace(&self) -> Option<String> {
        const UNITS: &str = "are the times in another unit than their column says (`time_s`, `time_ms`, `time_us`, \
                             `time_ns`)?";
        // Without times all come at once, which is no rate.
        if self.lasted <= 0.0 {
            return None;
        }
        let (rate, gap) = (self.requests as f64 / self.lasted, self.lasted / self.requests as f64);
        if self.requests >= RATE_REQUESTS_MIN && rate > RATE_MAX {
            let came = plural_exact(self.requests, "request");
            return Some(format!(
                "{came} came within {}, {} a second: {UNITS}",
                seconds(self.lasted),
                grouped(rate as u64)
            ));
        }
        (gap > GAP_MAX).then(|| format!("requests came {} apart on average: {UNITS}", seconds(gap)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// The doubts of a trace of a thousand random requests over 256 MiB, a line each of time, offset and length.
    fn of(columns: &str, line: impl Fn(u64, u64, u64) -> String) -> Vec<String> {
        let text: String = (0..1000).map(|i| line(i * 125, i * 7919 % 65_536 * 4096, 4096 << (i % 6)) + "\n").collect();
        let input = Input::from_bytes("t", text.as_bytes());
        let columns = columns.parse().expect("the columns are valid");
        let options = Options { columns: Some(Arc::new(columns)), ..Options::default() };
        let untimed = doubts(&input, &options, false);
        let timed = doubts(&input, &options, true);
        assert!(timed.iter().all(|text| text.starts_with(DOUBT)) && timed.starts_with(&untimed), "{timed:?}");
        timed
    }

    #[test]
    fn a_trace_that_is_what_it_says_raises_none() {
        let line = |time: u64, offset: u64, length: u64| format!("{time},write,{offset},{length}");
        assert!(of("time_us,op,offset,bytes", line).is_empty());
        // One place that is written again and again, and a trace without times.
        assert!(of("time_us,op,offset,bytes", |time, _, _| format!("{time},write,4096,8192")).is_empty());
        assert!(of("time_us,op,offset,bytes", |_, offset, length| format!("0,write,{offset},{length}")).is_empty());
        // Large deallocations of one place.
        let trim = |time: u64, offset: u64, length: u64| match time % 2 {
            0 => format!("{time},trim,0,{}", offset << 10 | 4096),
            _ => line(time, offset, length),
        };
        assert!(of("time_us,op,offset,bytes", trim).is_empty());
    }

    #[test]
    fn columns_that_are_swapped_or_in_other_units_raise_doubts() {
        let line = |time: u64, offset: u64, length: u64| format!("{time},write,{offset},{length}");
        let one = |found: Vec<String>, words: &str| {
            assert!(found.len() == 1 && found[0].contains(words), "{words}: {found:?}");
        };
        let swapped = |time: u64, offset: u64, length: u64| line(time, length, offset + 4096);
        one(of("time_us,op,offset,bytes", swapped), "offset and length swapped");
        let sectors = |time: u64, offset: u64, length: u64| line(time, offset, length / 512);
        one(of("time_us,op,offset,bytes", sectors), "the shortest has 8 bytes");
        let blocks = |time: u64, offset: u64, length: u64| line(time, offset / 4096, length);
        one(of("time_us,op,offset,bytes", blocks), "columns `sector`, `lba`");
        one(of("time_ns,op,offset,bytes", line), "came within 125 ");
        one(of("time_s,op,offset,bytes", line), "apart on average");
    }

    #[test]
    fn a_trace_that_can_not_be_read_raises_none() {
        let input = Input::from_bytes("t", b"nothing of a trace\n");
        assert!(doubts(&input, &Options::default(), true).is_empty());
    }

    #[test]
    fn bundled_samples_raise_none() {
        use crate::trace::samples;
        for &(name, format, bytes) in samples::FORMATS {
            let options = Options { format: Some(format), ..Options::default() };
            assert_eq!(doubts(&Input::from_bytes(name, bytes), &options, true), Vec::<String>::new(), "{name}");
        }
    }
}
