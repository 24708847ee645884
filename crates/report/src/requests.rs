//! The requests of a run, one after the other as they complete: millions of them, so nothing keeps them.

use std::fmt::Write as _;
use std::io;

/// A request that has completed. Times are in picoseconds of the drive's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDone {
    /// Its number in the load, from 0.
    pub index: u64,
    /// From when its latency counts: its arrival, or its submission where arrivals are ignored.
    pub start_ps: u64,
    /// Its operation, as in `requests_by_operation` of the record.
    pub operation: &'static str,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// From then to its completion.
    pub latency_ps: u64,
    /// `success`, or the name of its status.
    pub status: &'static str,
}

/// Takes the requests of a run.
pub trait RequestSink {
    /// Takes the next that has completed.
    ///
    /// # Errors
    /// When it can't be written; the run ends with that.
    fn take(&mut self, request: &RequestDone) -> io::Result<()>;

    /// There are no more.
    ///
    /// # Errors
    /// When what is left can't be written.
    fn finish(&mut self) -> io::Result<()>;
}

/// The first line of the requests as CSV. `index` counts the requests of the load from 0; lines come in the order of
/// completion. `arrival_us` is the simulated time from which the latency counts. Times are in microseconds, to a
/// picosecond. `status` is `success`, or the name that the NVMe specification gives the first thing that went wrong.
pub const CSV_HEADING: &str = "index,arrival_us,operation,offset_bytes,length_bytes,latency_us,status";

/// Requests as lines of CSV.
pub struct CsvRequests<W> {
    out: W,
    line: String,
    begun: bool,
}

impl<W: io::Write> CsvRequests<W> {
    /// Lines that go to `out`, the first of them [`CSV_HEADING`].
    pub fn new(out: W) -> CsvRequests<W> {
        CsvRequests { out, line: String::new(), begun: false }
    }

    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) { Ok(()) } else { writeln!(self.out, "{CSV_HEADING}") }
    }
}

impl<W: io::Write> RequestSink for CsvRequests<W> {
    fn take(&mut self, request: &RequestDone) -> io::Result<()> {
        self.begin()?;
        let us = |ps: u64| (ps / 1_000_000, ps % 1_000_000);
        let (start, latency) = (us(request.start_ps), us(request.latency_ps));
        self.line.clear();
        let RequestDone { index, operation, offset, length, status, .. } = request;
        let written = writeln!(
            self.line,
            "{index},{}.{:06},{operation},{offset},{length},{}.{:06},{status}",
            start.0, start.1, latency.0, latency.1
        );
        debug_assert!(written.is_ok());
        self.out.write_all(self.line.as_bytes())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.begin()?;
        self.out.flush()
    }
}
