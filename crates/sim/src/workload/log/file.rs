//! A log that a user recorded: lines of `time,size` or `time,size,worker`; plain, gzip or zstd.
//!
//! The unit of time stands in a header (`time_us,size`) or is given. Lines that are empty or start with `#` do not
//! count. The first write arrives at zero; one that is stamped earlier than one before it arrives with that one.

use super::write::{LogWrite, Pace};
use crate::trace::Input;
use crate::trace::field::{Field, Fields, Separator, Wrong};
use crate::trace::input::Lines;
use crate::workload::SourceError;
use std::fmt;
use tidewater_base::Instant;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

impl TimeUnit {
    const ALL: [TimeUnit; 4] =
        [TimeUnit::Seconds, TimeUnit::Milliseconds, TimeUnit::Microseconds, TimeUnit::Nanoseconds];

    /// `s`, `ms`, `us` or `ns`.
    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Milliseconds => "ms",
            TimeUnit::Microseconds => "us",
            TimeUnit::Nanoseconds => "ns",
        }
    }

    /// The unit of that name.
    pub fn from_name(name: &str) -> Option<TimeUnit> {
        TimeUnit::ALL.into_iter().find(|unit| unit.name() == name)
    }

    const fn ps(self) -> u64 {
        match self {
            TimeUnit::Seconds => 1_000_000_000_000,
            TimeUnit::Milliseconds => 1_000_000_000,
            TimeUnit::Microseconds => 1_000_000,
            TimeUnit::Nanoseconds => 1_000,
        }
    }
}

impl fmt::Display for TimeUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A line of the log.
struct Line {
    stamp: u128,
    stamp_column: usize,
    worker: u32,
    bytes: u64,
}

/// A recorded log that is being read, in memory that does not grow with its length.
pub struct LogFile {
    file: String,
    lines: Lines,
    unit: Option<TimeUnit>,
    first_stamp: Option<u128>,
    last: Instant,
    writes: u64,
    reordered: u64,
    failed: bool,
}

/// The greatest bytes of one write; more is a damaged line.
const BYTES_MAX: u64 = 1 << 32;
const WORKERS_MAX: u64 = 1 << 16;

impl LogFile {
    /// Opens a log. `unit` is the unit of time where no header tells it.
    ///
    /// # Errors
    /// A file that cannot be opened. Errors within it are reported when they are reached.
    pub fn open(input: &Input, unit: Option<TimeUnit>) -> Result<LogFile, SourceError> {
        Ok(LogFile {
            file: input.name(),
            lines: input.open()?,
            unit,
            first_stamp: None,
            last: Instant::ZERO,
            writes: 0,
            reordered: 0,
            failed: false,
        })
    }

    /// Writes whose stamp was earlier than that of one before.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// The share of the (compressed) input that was read, where that is known.
    pub fn progress(&self) -> Option<f64> {
        self.lines.progress()
    }

    fn read(&mut self) -> Result<Option<LogWrite>, SourceError> {
        loop {
            let line = match self.lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => {
                    let file = self.file.clone();
                    return match self.lines.broken() {
                        Some(reason) => Err(SourceError::CutShort { file, lines: self.lines.line(), reason }),
                        None if self.writes == 0 => Err(SourceError::Empty { file, skipped: 0 }),
                        None => Ok(None),
                    };
                }
                Err(error) => return Err(SourceError::Io { file: self.file.clone(), reason: error.to_string() }),
            };
            // A byte order mark is no part of the first field.
            let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            let start = line.iter().find(|byte| !byte.is_ascii_whitespace());
            let parsed = match start {
                None | Some(b'#') => continue,
                Some(byte) if self.writes == 0 && self.first_stamp.is_none() && byte.is_ascii_alphabetic() => {
                    match header(line, self.unit) {
                        Ok(unit) => {
                            self.unit = Some(unit);
                            continue;
                        }
                        Err(wrong) => Err(wrong),
                    }
                }
                Some(_) => match self.unit {
                    None => {
                        let reason = "the unit of time is neither in a header (as in `time_us,size`) nor given; it is \
                                      one of s, ms, us and ns";
                        return Err(SourceError::Unfit { file: self.file.clone(), reason: reason.into() });
                    }
                    Some(unit) => parse(line, unit),
                },
            };
            let first = &mut self.first_stamp;
            let arrival = parsed.and_then(|line| Ok((since_first(first, &line)?, line)));
            let wrong = match arrival {
                Ok((arrival, line)) => {
                    if arrival < self.last || Some(line.stamp) < self.first_stamp {
                        self.reordered += 1;
                    }
                    self.last = self.last.max(arrival);
                    self.writes += 1;
                    let Line { worker, bytes, .. } = line;
                    return Ok(Some(LogWrite { pace: Pace::At(self.last), worker, kind: 0, bytes }));
                }
                Err(_) if self.lines.was_too_long() => {
                    Wrong { column: 1, expected: "a line of less than 64 KiB", found: "a longer one".into() }
                }
                Err(wrong) => wrong,
            };
            return Err(SourceError::Malformed {
                file: self.file.clone(),
                line: self.lines.line(),
                column: wrong.column,
                expected: wrong.expected.into(),
                found: wrong.found,
            });
        }
    }
}

impl Iterator for LogFile {
    type Item = Result<LogWrite, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.read().transpose();
        self.failed = !matches!(next, Some(Ok(_)));
        next
    }
}

fn since_first(first: &mut Option<u128>, line: &Line) -> Result<Instant, Wrong> {
    let since = line.stamp.saturating_sub(*first.get_or_insert(line.stamp));
    match u64::try_from(since) {
        Ok(ps) => Ok(Instant::from_ps(ps)),
        Err(_) => Err(Wrong {
            column: line.stamp_column,
            expected: "a time within 213 days of the first",
            found: format!("one {} days later", since / 86_400_000_000_000_000),
        }),
    }
}

fn parse(line: &[u8], unit: TimeUnit) -> Result<Line, Wrong> {
    const TIME: &str = "a time, a number of the file's unit";
    const SIZE: &str = "a size of 1 byte to 4 GiB";
    const WORKER: &str = "the number of a worker, below 65536";
    let mut fields = Fields::new(line, Separator::Comma);
    let time = fields.need(TIME)?;
    let stamp = time.time(unit.ps(), TIME)?;
    let size = fields.need(SIZE)?;
    let bytes = size.number(SIZE)?;
    if bytes == 0 || bytes > BYTES_MAX {
        return Err(size.wrong(SIZE));
    }
    let worker = match fields.next() {
        None => 0,
        Some(field) => match field.number(WORKER)? {
            worker if worker < WORKERS_MAX => worker as u32,
            _ => return Err(field.wrong(WORKER)),
        },
    };
    fields.end()?;
    Ok(Line { stamp, stamp_column: time.column, worker, bytes })
}

/// The unit that a header tells.
fn header(line: &[u8], given: Option<TimeUnit>) -> Result<TimeUnit, Wrong> {
    const TIME: &str = "`time_s`, `time_ms`, `time_us` or `time_ns`";
    let mut fields = Fields::new(line, Separator::Comma);
    let named = |field: Field<'_>, name: &str| field.bytes.eq_ignore_ascii_case(name.as_bytes());
    let time = fields.need(TIME)?;
    let unit = if named(time, "time") {
        given.ok_or_else(|| time.wrong("the unit of time in the header, as in `time_us`, where it is not given"))?
    } else {
        let unit = TimeUnit::ALL.into_iter().find(|unit| named(time, &format!("time_{unit}")));
        let unit = unit.ok_or_else(|| time.wrong(TIME))?;
        if given.is_some_and(|given| given != unit) {
            return Err(time.wrong("the unit of time that was given"));
        }
        unit
    };
    let size = fields.need("`size`")?;
    if !named(size, "size") && !named(size, "bytes") {
        return Err(size.wrong("`size`"));
    }
    if let Some(worker) = fields.next()
        && !named(worker, "worker")
    {
        return Err(worker.wrong("`worker`, or the end of the line"));
    }
    fields.end()?;
    Ok(unit)
}
