//! Block requests, and what gives them.

use std::fmt;

use tidewater_base::Instant;

/// Operation of a request, in NVMe's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Flush: every completed write becomes durable. Its offset and length are 0.
    Flush,
    /// Dataset Management with the Deallocate attribute (trim, discard).
    Deallocate,
    /// Write Zeroes.
    WriteZeroes,
    /// Compare.
    Compare,
    /// Verify.
    Verify,
}

impl Op {
    /// Every operation, in the order of [`Op::index`].
    pub const ALL: [Op; 7] = [Op::Read, Op::Write, Op::Flush, Op::Deallocate, Op::WriteZeroes, Op::Compare, Op::Verify];

    /// A dense number below `Op::ALL.len()`, for tables by operation.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name used in records: `read`, `write`, `flush`, `deallocate`, `write_zeroes`, `compare`, `verify`.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Deallocate => "deallocate",
            Op::WriteZeroes => "write_zeroes",
            Op::Compare => "compare",
            Op::Verify => "verify",
        }
    }
}

/// One block request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When the host issues it. The first request of a trace arrives at zero; arrivals never decrease. Zero throughout
    /// for a job without a rate: such a job is issued as fast as its queue depth allows.
    pub arrival: Instant,
    /// The operation.
    pub op: Op,
    /// First byte. Any value: traces are not always aligned to the drive's blocks.
    pub offset: u64,
    /// Bytes; 0 only for [`Op::Flush`]. `offset + length` fits in 64 bits.
    pub length: u64,
    /// Force Unit Access.
    pub fua: bool,
}

impl Request {
    /// The byte after the last. Cannot overflow: every source checks it.
    pub const fn end(&self) -> u64 {
        self.offset + self.length
    }
}

/// Why a source could not give the next request. Formats as `file:line:column: expected ..., found ...` where a place
/// is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// A line that its format does not allow.
    Malformed {
        /// The file, as the user named it.
        file: String,
        /// Line, counted from 1 after decompression.
        line: u64,
        /// Byte column, counted from 1.
        column: usize,
        /// The content that the format allows there.
        expected: String,
        /// The content found there.
        found: String,
    },
    /// A record of a binary format that the format does not allow.
    MalformedRecord {
        /// The file, as the user named it.
        file: String,
        /// Byte offset of the field, after decompression.
        offset: u64,
        /// The content that the format allows there.
        expected: String,
        /// The content found there.
        found: String,
    },
    /// The file cannot be read or decompressed.
    Io {
        /// The file, as the user named it.
        file: String,
        /// The system's error.
        reason: String,
    },
    /// The file ends, or cannot be decompressed further, before its end.
    CutShort {
        /// The file, as the user named it.
        file: String,
        /// Whole lines (or records) before that.
        lines: u64,
        /// The cause.
        reason: String,
    },
    /// No request in it.
    Empty {
        /// The file, as the user named it.
        file: String,
        /// Malformed lines that were skipped.
        skipped: u64,
    },
    /// The content fits several formats; the user has to choose.
    Ambiguous {
        /// The file, as the user named it.
        file: String,
        /// Names for `--format`.
        candidates: Vec<&'static str>,
    },
    /// The content fits no format.
    Unrecognized {
        /// The file, as the user named it.
        file: String,
        /// The format it resembles, or its first line.
        found: String,
        /// Names for `--format`.
        known: Vec<&'static str>,
    },
    /// The options do not fit the file.
    Unfit {
        /// The file, as the user named it.
        file: String,
        /// Why, and what to do instead.
        reason: String,
    },
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::Malformed { file, line, column, expected, found } => {
                write!(f, "{file}:{line}:{column}: expected {expected}, found {found}")
            }
            SourceError::MalformedRecord { file, offset, expected, found } => {
                write!(f, "{file}: at byte {offset}: expected {expected}, found {found}")
            }
            SourceError::Io { file, reason } => write!(f, "{file}: {reason}"),
            SourceError::CutShort { file, lines, reason } => {
                let lines = tidewater_base::units::plural_exact(*lines, "whole line");
                write!(f, "{file}: {reason} after {lines}")
            }
            SourceError::Empty { file, skipped: 0 } => write!(f, "{file}: the trace holds no request"),
            SourceError::Empty { file, skipped } => {
                let were = if *skipped == 1 { "was" } else { "were" };
                let lines = tidewater_base::units::plural_exact(*skipped, "malformed line");
                write!(f, "{file}: the trace holds no request; {lines} {were} skipped")
            }
            SourceError::Ambiguous { file, candidates } => write!(
                f,
                "{file}: its lines hold numbers alone, which tell neither their units nor which digit means write; \
                 choose the format with --format: {}; or name its columns, as in --columns \
                 time_ms,device,sector,sectors,op_1r",
                candidates.join(", ")
            ),
            SourceError::Unrecognized { file, found, known } => write!(
                f,
                "{file}: not a trace in a known format (found {found}); name its columns with --columns, as in \
                 time_us,op,offset,bytes,device, or its format with --format: {}",
                known.join(", ")
            ),
            SourceError::Unfit { file, reason } => write!(f, "{file}: {reason}"),
        }
    }
}

impl std::error::Error for SourceError {}

/// A stream of requests.
pub trait Source {
    /// The next request, `None` at the end. After an error the source is at its end.
    fn next(&mut self) -> Option<Result<Request, SourceError>>;

    /// How many requests there will be in all, where that is known.
    fn expected_requests(&self) -> Option<u64> {
        None
    }

    /// The share of the work that is done, 0 to 1, where that is known: bytes read of a trace, requests of a job.
    fn progress(&self) -> Option<f64> {
        None
    }

    /// Malformed lines that were counted and skipped.
    fn skipped(&self) -> u64 {
        0
    }

    /// Why the trace ended before its end, as far as it was read; `None`: it did not.
    fn cut_short(&self) -> Option<String> {
        None
    }

    /// Begins anew with the first request; false where it can be read only once.
    ///
    /// # Errors
    /// When what it is read from cannot be opened again.
    fn rewind(&mut self) -> Result<bool, SourceError> {
        Ok(false)
    }

    /// Requests so far that were stamped earlier than one before them, and arrive with it.
    fn reordered(&self) -> u64 {
        0
    }

    /// Bytes that the requests can address (the highest end of any), where that is known: the least usable size of a
    /// drive that serves them all.
    fn extent(&self) -> Option<u64> {
        None
    }

    /// Lets threads that are not alike keep to depths and run times of their own, from before the first request on.
    /// False where there are none; otherwise the driver of the requests asks [`Source::can_give`] before each, and
    /// tells what [`Source::ended`].
    fn part_threads(&mut self) -> bool {
        false
    }

    /// With parted threads: whether [`Source::next`] has an answer at this time. If not, one of the threads has as much
    /// outstanding as it may.
    fn can_give(&mut self, _now: Instant) -> bool {
        true
    }

    /// With parted threads: the one of the request that was given last.
    fn thread(&self) -> u16 {
        0
    }

    /// With parted threads: a request of this one ended.
    fn ended(&mut self, _thread: u16) {}

    /// Where the request that was given last stands, as `file:line`, for messages about it; `None` where it stands
    /// nowhere.
    fn place(&self) -> Option<String> {
        None
    }
}
