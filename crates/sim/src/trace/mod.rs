//! Block traces: readers for the public formats, statistics, and writers.
//!
//! A trace is read as a stream, in memory that does not grow with its length. The formats, their columns and how they
//! are distinguished are in `docs/reference/traces.md`.

mod address;
mod columns;
pub mod convert;
mod detect;
mod doubts;
mod events;
pub(crate) mod field;
mod footprint;
mod format;
pub mod info;
pub(crate) mod input;
mod locality;
pub mod samples;
pub mod shape;
mod skew;
mod unpack;
mod whole;
mod words;

use std::sync::Arc;

use tidewater_base::Instant;

pub use columns::Columns;
pub use doubts::{DOUBT, doubts};
pub use format::Format;
pub use info::{Info, info};
pub use input::Input;
pub use locality::{Locality, WrittenPages};
pub use shape::Shape;
pub use whole::{Playback, Whole};

use address::{AddressMap, Devices, Extents};
use events::Action;
use field::{Record, Wrong};
use format::{LineParser, VSCSI_BYTES};
use input::Lines;

use crate::request::{Op, Request, Source, SourceError};

/// How to read a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The format; `None`: detected from content where that is unambiguous.
    pub format: Option<Format>,
    /// The columns of a text in none of the formats; a format is not looked for then.
    pub columns: Option<Arc<Columns>>,
    /// Only the requests of this device, volume or application storage unit, as the trace names it (`hm_0` for disk 0
    /// of host hm in the MSR format).
    pub device: Option<String>,
    /// Malformed lines are counted instead of ending the run, and of an archive that ends early what is there is used.
    pub skip_bad: bool,
    /// Leaves out address ranges of 1 MiB that no request touches, keeping the order of the others, so that a trace of
    /// thousands of large volumes fits on a drive of the size that it uses. Needs a file.
    pub compact: bool,
    /// Reads a file once before its requests are given, which finds malformed lines early and tells the extent and the
    /// number of requests. Without it, or for a pipe, each address space gets [`SLOT_BYTES`].
    pub scan: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { format: None, columns: None, device: None, skip_bad: false, compact: false, scan: true }
    }
}

pub use address::SLOT_BYTES;

/// A request with further fields of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The request, in the concatenated address space.
    pub request: Request,
    /// The number of its address space, in order of appearance.
    pub device: u32,
    /// First byte within its address space.
    pub device_offset: u64,
    /// Its time stamp before any correction, in picoseconds since the format's own epoch.
    pub stamp_ps: u128,
}

/// A trace that is being read.
pub struct Trace {
    file: String,
    /// Its input and format, to reopen it.
    from: (Input, Options),
    reader: Reader,
    devices: Devices,
    map: AddressMap,
    scanned: Option<Scanned>,
    epoch: Epoch,
    last: Instant,
    requests: u64,
    reordered: u64,
    failed: bool,
}

/// Result of the first pass over a file.
#[derive(Clone, Copy, Debug)]
struct Scanned {
    requests: u64,
    extent: u64,
}

impl Trace {
    /// Opens a trace. With [`Options::scan`] and a file, everything in it is read once to check it, to place its
    /// address spaces one after the other, and to learn its extent.
    pub fn open(input: &Input, options: &Options) -> Result<Trace, SourceError> {
        let file = input.name();
        let rereadable = input.rereadable();
        if options.compact && !(options.scan && rereadable) {
            let reason = "a compact address space needs a file that can be read twice; store the trace first";
            return Err(SourceError::Unfit { file, reason: reason.into() });
        }
        let mut epoch = Epoch::new(options.skip_bad);
        let mut from = (input.clone(), options.clone());
        let (reader, devices, map, scanned) = if options.scan && rereadable {
            let mut pass = Pass::over(input, options, epoch)?;
            if pass.epoch.moved {
                // Which of the first stamps are wrong is known by now.
                pass = Pass::over(input, options, pass.epoch.settled())?;
            }
            let Pass { reader, devices, extents, requests, .. } = pass;
            epoch = pass.epoch.settled();
            let format = reader.format;
            let action = reader.parser.action;
            let (map, extent) = extents
                .place(&devices)
                .map_err(|reason| SourceError::Unfit { file: file.clone(), reason: reason.to_owned() })?;
            from.1.format = Some(format);
            from.1.columns = reader.parser.columns().cloned();
            let mut again = Reader::open(input, &from.1)?;
            again.parser.action = action;
            (again, devices, map, Some(Scanned { requests, extent }))
        } else {
            let devices = Devices::new(options.device.as_deref());
            (Reader::open(input, options)?, devices, AddressMap::Slots, None)
        };
        Ok(Trace {
            file,
            from,
            reader,
            devices,
            map,
            scanned,
            epoch,
            last: Instant::ZERO,
            requests: 0,
            reordered: 0,
            failed: false,
        })
    }

    /// The name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The format, given or detected.
    pub fn format(&self) -> Format {
        self.reader.format
    }

    /// Requests whose time stamp was earlier than that of one before. They arrive with the latest one before them, so
    /// that the order of the trace is kept.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Address spaces seen so far.
    pub fn devices(&self) -> u32 {
        self.devices.len()
    }

    /// Names of the address spaces in the trace, in order of appearance: [`TraceRequest::device`] indexes these.
    pub fn device_names(&self) -> Vec<String> {
        self.devices.names()
    }

    /// The next request with what the trace tells besides; `None` at the end, and after an error.
    pub fn next_request(&mut self) -> Option<Result<TraceRequest, SourceError>> {
        if self.failed {
            return None;
        }
        let (map, epoch) = (&self.map, &mut self.epoch);
        let next = self.reader.next(&mut self.devices, |device, record| {
            let arrival = epoch.since_first(record)?;
            let (offset, length) = map.place(device, record.offset, record.length).map_err(|expected| Wrong {
                column: 1,
                expected,
                found: format!("a request that ends at byte {}", record.offset.saturating_add(record.length)),
            })?;
            let offset = if record.op == Op::Flush { 0 } else { offset };
            let request =
                Request { arrival: Instant::from_ps(arrival), op: record.op, offset, length, fua: record.fua };
            Ok(TraceRequest { request, device, device_offset: record.offset, stamp_ps: record.stamp })
        });
        match next {
            Some(Ok(mut next)) => {
                if next.request.arrival < self.last || Some(next.stamp_ps) < self.epoch.first {
                    self.reordered += 1;
                    next.request.arrival = self.last;
                }
                self.last = next.request.arrival;
                self.requests += 1;
                Some(Ok(next))
            }
            Some(Err(error)) => {
                self.failed = true;
                Some(Err(error))
            }
            None if self.requests == 0 => {
                self.failed = true;
                Some(Err(nothing(&self.file, &self.devices, self.reader.skipped)))
            }
            None => None,
        }
    }
}

/// From when the requests of a trace are counted.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// The stamp of the first request.
    first: Option<u128>,
    /// Wrong stamps are passed over. Which ones are wrong, the first two in sequence say that are near each other.
    passes_over: bool,
    near: Option<u128>,
    found: u64,
    /// Another stamp than the first was taken for `near`.
    moved: bool,
}

impl Epoch {
    fn new(passes_over: bool) -> Epoch {
        Epoch { first: None, passes_over, near: None, found: 0, moved: false }
    }

    /// The same for another pass over the trace: which stamps are wrong is known from its begin on.
    fn settled(self) -> Epoch {
        Epoch { first: None, found: 2, moved: false, ..self }
    }

    /// Picoseconds from the first request to this one; 0 for one that is stamped earlier.
    fn since_first(&mut self, record: &Record<'_>) -> Result<u64, Wrong> {
        if self.passes_over {
            self.judge(record)?;
        }
        let since = record.stamp.saturating_sub(*self.first.get_or_insert(record.stamp));
        u64::try_from(since).map_err(|_| far(record, since, "later"))
    }

    /// Whether a stamp is near those before it. Of two that are not near each other the second is believed until there
    /// is a third.
    fn judge(&mut self, record: &Record<'_>) -> Result<(), Wrong> {
        let near = *self.near.get_or_insert(record.stamp);
        let apart = near.abs_diff(record.stamp);
        if apart <= u64::MAX.into() {
            self.found += 1;
        } else if self.found > 1 {
            return Err(far(record, apart, if record.stamp > near { "later" } else { "earlier" }));
        } else {
            (self.first, self.near, self.moved) = (None, Some(record.stamp), true);
        }
        Ok(())
    }
}

#[cold]
fn far(record: &Record<'_>, apart_ps: u128, where_to: &str) -> Wrong {
    Wrong {
        column: record.stamp_column,
        expected: "a time stamp within 213 days of the first",
        found: format!("one {} days {where_to}", apart_ps / 86_400_000_000_000_000),
    }
}

/// State of one pass over a file.
struct Pass {
    reader: Reader,
    devices: Devices,
    extents: Extents,
    epoch: Epoch,
    requests: u64,
}

impl Pass {
    fn over(input: &Input, options: &Options, mut epoch: Epoch) -> Result<Pass, SourceError> {
        let mut devices = Devices::new(options.device.as_deref());
        let mut reader = Reader::open(input, options)?;
        let mut extents = Extents::new(options.compact);
        let mut requests = 0;
        while let Some(next) = reader.next(&mut devices, |device, record| {
            epoch.since_first(record)?;
            extents.add(device, record.offset, record.length);
            Ok(())
        }) {
            next?;
            requests += 1;
        }
        if requests == 0 {
            return Err(nothing(&input.name(), &devices, reader.skipped));
        }
        Ok(Pass { reader, devices, extents, epoch, requests })
    }
}

/// The error for a trace without requests.
fn nothing(file: &str, devices: &Devices, skipped: u64) -> SourceError {
    match devices.left_out() {
        Some(reason) => SourceError::Unfit { file: file.to_owned(), reason },
        None => SourceError::Empty { file: file.to_owned(), skipped },
    }
}

impl Source for Trace {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        Some(self.next_request()?.map(|next| next.request))
    }

    fn expected_requests(&self) -> Option<u64> {
        self.scanned.map(|scanned| scanned.requests)
    }

    fn progress(&self) -> Option<f64> {
        match self.scanned {
            Some(scanned) if scanned.requests > 0 => Some(self.requests as f64 / scanned.requests as f64),
            _ => self.reader.lines.progress(),
        }
    }

    fn skipped(&self) -> u64 {
        self.reader.skipped.max(self.reader.skipped_before)
    }

    fn reordered(&self) -> u64 {
        self.reordered
    }

    fn extent(&self) -> Option<u64> {
        self.scanned.map(|scanned| scanned.extent)
    }

    fn cut_short(&self) -> Option<String> {
        self.reader.cut_short.clone()
    }

    fn rewind(&mut self) -> Result<bool, SourceError> {
        let (input, options) = &self.from;
        if self.scanned.is_none() {
            return Ok(false);
        }
        let mut reader = Reader::open(input, options)?;
        reader.parser.action = self.reader.parser.action;
        // What was skipped or missed is so each time, and counts once.
        reader.skipped_before = self.reader.skipped.max(self.reader.skipped_before);
        self.reader = reader;
        self.epoch = self.epoch.settled();
        (self.last, self.requests) = (Instant::ZERO, 0);
        Ok(true)
    }

    fn place(&self) -> Option<String> {
        if self.requests == 0 {
            return None;
        }
        Some(match self.format() {
            Format::Vscsi => {
                format!("{}: at byte {}", self.file, (self.reader.lines.line() - 1) * VSCSI_BYTES as u64)
            }
            _ => format!("{}:{}", self.file, self.reader.lines.line()),
        })
    }
}

/// One pass over the lines or records of a trace.
struct Reader {
    file: String,
    format: Format,
    lines: Lines,
    parser: LineParser,
    skip_bad: bool,
    skipped: u64,
    /// The same of an earlier pass over the same trace.
    skipped_before: u64,
    /// Why the trace ended before its end.
    cut_short: Option<String>,
}

impl Reader {
    fn open(input: &Input, options: &Options) -> Result<Reader, SourceError> {
        let mut lines = input.open()?;
        let (format, columns) = match (&options.columns, options.format) {
            (Some(columns), _) => (Format::Columns, Some(Arc::clone(columns))),
            (None, Some(format)) => (format, None),
            (None, None) => detect::detect(input, &mut lines)?,
        };
        let mut parser = LineParser::new(format, columns);
        if matches!(format, Format::Blkparse | Format::Ftrace) {
            let (head, _) = lines.head().map_err(|error| input.io_error(&error))?;
            parser.action = Action::of_lines(head.split(|&byte| byte == b'\n'));
        }
        Ok(Reader {
            file: input.name(),
            format,
            lines,
            parser,
            skip_bad: options.skip_bad,
            skipped: 0,
            skipped_before: 0,
            cut_short: None,
        })
    }

    /// The end of the stream: an error where it is not that of the trace.
    fn end(&mut self) -> Option<SourceError> {
        let reason = self.lines.broken()?;
        let lines = self.lines.line();
        if self.skip_bad {
            self.cut_short = Some(format!("{reason} after line {lines}"));
            return None;
        }
        Some(SourceError::CutShort { file: self.file.clone(), lines, reason })
    }

    /// The next request of the chosen devices, as `each` makes it of the device and the record. What
    /// `each` finds wrong counts as wrong in the line.
    fn next<T>(
        &mut self,
        devices: &mut Devices,
        mut each: impl FnMut(u32, &Record<'_>) -> Result<T, Wrong>,
    ) -> Option<Result<T, SourceError>> {
        loop {
            let binary = self.format == Format::Vscsi;
            let before = self.lines.offset();
            let next = if binary { self.lines.next_record(VSCSI_BYTES) } else { self.lines.next_line() };
            let bytes = match next {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return self.end().map(Err),
                Err(error) => {
                    return Some(Err(SourceError::Io { file: self.file.clone(), reason: error.to_string() }));
                }
            };
            let parsed = if binary { format::vscsi(bytes) } else { self.parser.parse(bytes) };
            let wrong = match parsed {
                Ok(None) => continue,
                Ok(Some(record)) => match devices.number(record.device) {
                    None => continue,
                    Some(device) => match each(device, &record) {
                        Ok(item) => return Some(Ok(item)),
                        Err(wrong) => wrong,
                    },
                },
                Err(wrong) => wrong,
            };
            let wrong = if self.lines.was_too_long() {
                Wrong { column: 1, expected: "a line of less than 64 KiB", found: "a longer one".into() }
            } else {
                wrong
            };
            // fio's first line says how to read all others, so it cannot be skipped.
            let essential = self.format == Format::Fio && !self.parser.has_version();
            if self.skip_bad && !essential {
                self.skipped += 1;
                continue;
            }
            let file = self.file.clone();
            let Wrong { column, expected, found } = wrong;
            return Some(Err(if binary {
                let offset = before + column as u64 - 1;
                SourceError::MalformedRecord { file, offset, expected: expected.into(), found }
            } else {
                SourceError::Malformed { file, line: self.lines.line(), column, expected: expected.into(), found }
            }));
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod shared_tests;
