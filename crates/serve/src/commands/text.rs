//! Lines in the form of the kernel's trace events `nvme_setup_cmd` and `nvme_complete_rq`.

use super::describe;
use super::sink::Sink;
use std::io::{self, Write};
use tidewater_wire::fabrics;
use tidewater_wire::nvme::{Cqe, Sqe};

/// Writes lines.
pub(super) struct Text<W> {
    out: W,
    dropped: u64,
}

impl<W: Write> Text<W> {
    pub(super) fn begin(mut out: W) -> io::Result<Text<W>> {
        let version = env!("CARGO_PKG_VERSION");
        writeln!(out, "# NVMe commands of Tidewater {version}. Unix time in seconds: event: fields")?;
        Ok(Text { out, dropped: 0 })
    }
}

/// Unix time in seconds, to the microsecond.
fn seconds(nanos: u64) -> String {
    format!("{}.{:06}", nanos / 1_000_000_000, nanos % 1_000_000_000 / 1_000)
}

impl<W: Write + Send> Sink for Text<W> {
    fn begun(&mut self, nanos: u64, function: u8, queue: u16, sqe: &Sqe) -> io::Result<()> {
        let (at, flags) = (seconds(nanos), sqe.dwords()[0] >> 8 & 0xff);
        let (cid, nsid, command) = (sqe.cid(), sqe.nsid(), describe::command(queue, sqe));
        writeln!(
            self.out,
            "{at}: nvme_setup_cmd: function={function}, qid={queue}, cmdid={cid}, nsid={nsid}, flags={flags:#x}, \
             cmd=({command})"
        )
    }

    fn ended(&mut self, nanos: u64, function: u8, queue: u16, cqe: &Cqe, begun: Option<(&Sqe, u64)>) -> io::Result<()> {
        let (at, cid, res) = (seconds(nanos), cqe.cid, cqe.dw0);
        let status = cqe.status;
        let name = status.name().or_else(|| fabrics::status::name(status)).unwrap_or("unnamed status");
        write!(self.out, "{at}: nvme_complete_rq: function={function}, qid={queue}, cmdid={cid}, ")?;
        if let Some((sqe, _)) = begun {
            write!(self.out, "cmd=({}), ", describe::named(queue, sqe))?;
        }
        write!(self.out, "res={res:#x}, status={:#x} ({name})", status.bits())?;
        match begun {
            Some((_, took)) => writeln!(self.out, ", took_us={}.{:03}", took / 1_000, took % 1_000),
            None => writeln!(self.out),
        }
    }

    fn gone(&mut self, nanos: u64, function: u8, queue: Option<u16>, open: usize) -> io::Result<()> {
        let what = queue.map_or_else(|| "all queues".to_owned(), |queue| format!("qid={queue}"));
        writeln!(self.out, "{}: gone: function={function}, {what}, {open} commands without an end", seconds(nanos))
    }

    fn dropped(&mut self, count: u64) -> io::Result<()> {
        self.dropped += count;
        writeln!(self.out, "# {count} events dropped here: the writer was too slow")
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn end(&mut self, nanos: u64) -> io::Result<()> {
        writeln!(self.out, "# end at {}, {} events dropped", seconds(nanos), self.dropped)
    }
}
