//! Writes requests as a trace for another simulator or for fio.

use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use crate::request::{Op, Request, Source, SourceError};

/// Formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// MQSim ascii, 512-byte sectors, device 0.
    Mqsim,
    /// fio I/O log version 2: `wait` actions carry the time.
    FioV2,
    /// fio I/O log version 3 (fio 3.31 and later): every line has a time stamp.
    FioV3,
    /// Storage Performance Council, unit 0. Its lines are recognized without `--format`.
    Spc,
}

impl OutputFormat {
    /// Every format that can be written.
    pub const ALL: [OutputFormat; 4] =
        [OutputFormat::Mqsim, OutputFormat::FioV2, OutputFormat::FioV3, OutputFormat::Spc];

    /// The name: `mqsim`, `fio2`, `fio3`, `spc`.
    pub const fn name(self) -> &'static str {
        match self {
            OutputFormat::Mqsim => "mqsim",
            OutputFormat::FioV2 => "fio2",
            OutputFormat::FioV3 => "fio3",
            OutputFormat::Spc => "spc",
        }
    }
}

impl FromStr for OutputFormat {
    type Err = String;

    /// The format of this name (`fio` is version 3), or a message with all names.
    fn from_str(name: &str) -> Result<OutputFormat, String> {
        let lower = name.to_ascii_lowercase();
        let wanted = if lower == "fio" { "fio3" } else { &lower };
        OutputFormat::ALL.into_iter().find(|f| f.name() == wanted).ok_or_else(|| {
            let names: Vec<&str> = OutputFormat::ALL.iter().map(|f| f.name()).collect();
            format!("cannot write traces as \"{name}\"; formats: {}", names.join(", "))
        })
    }
}

/// Counts of a conversion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Converted {
    /// Requests written.
    pub requests: u64,
    /// Requests that the format cannot express, left out.
    pub left_out: u64,
    /// Requests whose addresses were widened to whole sectors.
    pub widened: u64,
}

/// Why a conversion stopped.
#[derive(Debug)]
pub enum ConvertError {
    /// The source failed.
    Source(SourceError),
    /// The output failed.
    Output(io::Error),
}

impl fmt::Display for ConvertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConvertError::Source(error) => error.fmt(f),
            ConvertError::Output(error) => write!(f, "cannot write the trace: {error}"),
        }
    }
}

impl std::error::Error for ConvertError {}

impl From<SourceError> for ConvertError {
    fn from(error: SourceError) -> ConvertError {
        ConvertError::Source(error)
    }
}

impl From<io::Error> for ConvertError {
    fn from(error: io::Error) -> ConvertError {
        ConvertError::Output(error)
    }
}

/// Writes all requests of `source` to `out`, which is buffered and flushed.
///
/// MQSim and SPC have reads and writes only; fio also has syncs (flush) and trims (deallocate). Force Unit Access is
/// lost in all of them. `file_name` is the file or device that a fio log names.
pub fn convert(
    source: &mut impl Source,
    out: impl Write,
    format: OutputFormat,
    file_name: &str,
) -> Result<Converted, ConvertError> {
    let mut writer = Writer { out: io::BufWriter::new(out), format, file_name, waited_us: 0, last_us: 0 };
    let mut converted = Converted::default();
    writer.begin()?;
    while let Some(request) = source.next() {
        let request = request?;
        let aligned = (request.offset | request.length) % 512 == 0;
        if writer.request(&request)? {
            converted.requests += 1;
            converted.widened += u64::from(writer.has_sectors() && !aligned);
        } else {
            converted.left_out += 1;
        }
    }
    writer.end()?;
    Ok(converted)
}

struct Writer<'a, W: Write> {
    out: io::BufWriter<W>,
    format: OutputFormat,
    file_name: &'a str,
    /// The sum of the waits written so far, so that rounding to microseconds does not add up.
    waited_us: u64,
    last_us: u64,
}

impl<W: Write> Writer<'_, W> {
    fn has_sectors(&self) -> bool {
        matches!(self.format, OutputFormat::Mqsim | OutputFormat::Spc)
    }

    fn begin(&mut self) -> io::Result<()> {
        let name = self.file_name;
        match self.format {
            OutputFormat::Mqsim | OutputFormat::Spc => Ok(()),
            OutputFormat::FioV2 => write!(self.out, "fio version 2 iolog\n{name} add\n{name} open\n"),
            OutputFormat::FioV3 => write!(self.out, "fio version 3 iolog\n0 {name} add\n0 {name} open\n"),
        }
    }

    /// Writes a request; false when the format has no such operation.
    fn request(&mut self, request: &Request) -> io::Result<bool> {
        let ps = request.arrival.as_ps();
        let Request { op, offset, length, .. } = *request;
        // What overlaps a sector touches all of it.
        let sector = offset / 512;
        let sectors = request.end().div_ceil(512) - sector;
        match (self.format, op) {
            (OutputFormat::Mqsim, Op::Read | Op::Write) => {
                let kind = u8::from(op == Op::Read);
                writeln!(self.out, "{} 0 {sector} {sectors} {kind}", ps / 1_000)?;
            }
            (OutputFormat::Spc, Op::Read | Op::Write) => {
                let kind = if op == Op::Read { 'r' } else { 'w' };
                let us = ps / 1_000_000;
                let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
                let bytes = sectors * 512;
                writeln!(self.out, "0,{sector},{bytes},{kind},{seconds}.{fraction:06}")?;
            }
            (OutputFormat::FioV2 | OutputFormat::FioV3, Op::Read | Op::Write | Op::Deallocate | Op::Flush) => {
                let action = match op {
                    Op::Read => "read",
                    Op::Write => "write",
                    Op::Deallocate => "trim",
                    _ => "sync",
                };
                let (name, us) = (self.file_name, ps / 1_000_000);
                self.last_us = us;
                if self.format == OutputFormat::FioV3 {
                    write!(self.out, "{us} ")?;
                } else if us > self.waited_us {
                    writeln!(self.out, "{name} wait {} 0", us - self.waited_us)?;
                    self.waited_us = us;
                }
                writeln!(self.out, "{name} {action} {offset} {length}")?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn end(&mut self) -> io::Result<()> {
        match self.format {
            OutputFormat::Mqsim | OutputFormat::Spc => {}
            OutputFormat::FioV2 => writeln!(self.out, "{} close", self.file_name)?,
            OutputFormat::FioV3 => writeln!(self.out, "{} {} close", self.last_us, self.file_name)?,
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Format, Input, Options, Trace};
    use crate::workload::{Synth, SynthSpec};

    fn requests(mut source: impl Source) -> Vec<Request> {
        std::iter::from_fn(|| source.next()).map(|request| request.unwrap()).collect()
    }

    fn synth() -> Synth {
        Synth::new(&SynthSpec { requests: 3_000, footprint_mib: 8.0, ..SynthSpec::default() }).unwrap()
    }

    #[test]
    fn what_is_written_reads_back() {
        for (output, format, tick_ps) in [
            (OutputFormat::Mqsim, Some(Format::Mqsim), 1_000),
            (OutputFormat::FioV2, None, 1_000_000),
            (OutputFormat::FioV3, None, 1_000_000),
            (OutputFormat::Spc, None, 1_000_000),
        ] {
            let mut text = Vec::new();
            let converted = convert(&mut synth(), &mut text, output, "/dev/nvme0n1").unwrap();
            assert_eq!(converted, Converted { requests: 3_000, left_out: 0, widened: 0 });
            let options = Options { format, ..Options::default() };
            let trace = Trace::open(&Input::from_bytes("converted", &text), &options).unwrap();
            let (before, after) = (requests(synth()), requests(trace));
            assert_eq!(before.len(), after.len());
            for (a, b) in before.iter().zip(&after) {
                assert_eq!((a.op, a.offset, a.length), (b.op, b.offset, b.length));
                assert_eq!(a.arrival.as_ps() / tick_ps, b.arrival.as_ps() / tick_ps);
            }
        }
    }

    #[test]
    fn what_a_format_lacks_is_counted() {
        let log = "fio version 2 iolog\nf add\nf write 100 4096\nf sync\nf trim 0 4096\nf close\n";
        let open = || Trace::open(&Input::from_bytes("log", log.as_bytes()), &Options::default()).unwrap();
        let mut text = Vec::new();
        let converted = convert(&mut open(), &mut text, OutputFormat::Mqsim, "f").unwrap();
        assert_eq!(converted, Converted { requests: 1, left_out: 2, widened: 1 });
        assert_eq!(text, b"0 0 0 9 0\n");
        let mut text = Vec::new();
        assert_eq!(convert(&mut open(), &mut text, OutputFormat::FioV2, "f").unwrap().requests, 3);
    }

    #[test]
    fn a_full_disk_is_an_error() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = convert(&mut synth(), Full, OutputFormat::Mqsim, "f").unwrap_err();
        assert!(error.to_string().starts_with("cannot write the trace: "), "{error}");
    }
}
