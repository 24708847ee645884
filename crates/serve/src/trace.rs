//! Every command as a trace: fio's I/O log, version 3, which `tidewater replay` and fio read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use tidewater_wire::nvme::{Sqe, opcode};

/// Writes commands as they come.
#[derive(Debug)]
pub struct TraceWriter {
    file: BufWriter<File>,
    lines: u64,
}

impl TraceWriter {
    /// A new trace.
    ///
    /// # Errors
    /// When the file can't be made or written.
    pub fn create(path: &Path) -> io::Result<TraceWriter> {
        let mut file = BufWriter::new(File::create(path)?);
        writeln!(file, "fio version 3 iolog")?;
        Ok(TraceWriter { file, lines: 0 })
    }

    /// A command of an I/O queue, `micros` after the device was started, on a namespace with blocks of `block` bytes. Commands
    /// that an I/O log has no word for are left out.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn command(&mut self, micros: u64, sqe: &Sqe, block: u64) -> io::Result<()> {
        let blocks = u64::from(sqe.cdw12() & 0xffff) + 1;
        let (word, first, blocks) = match sqe.opcode() {
            opcode::READ => ("read", sqe.slba(), blocks),
            opcode::WRITE => ("write", sqe.slba(), blocks),
            opcode::WRITE_ZEROES => ("trim", sqe.slba(), blocks),
            opcode::FLUSH => ("sync", 0, 0),
            _ => return Ok(()),
        };
        self.line(micros, sqe.nsid(), word, first.saturating_mul(block), blocks.saturating_mul(block))
    }

    /// A range that was deallocated.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn trim(&mut self, micros: u64, nsid: u32, first: u64, bytes: u64) -> io::Result<()> {
        self.line(micros, nsid, "trim", first, bytes)
    }

    fn line(&mut self, micros: u64, nsid: u32, word: &str, first: u64, bytes: u64) -> io::Result<()> {
        self.lines += 1;
        writeln!(self.file, "{micros} /dev/nvme0n{nsid} {word} {first} {bytes}")
    }

    /// Lines written.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Lets all that was written go to the file.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_become_lines_of_an_io_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.iolog");
        let mut trace = TraceWriter::create(&path).unwrap();
        trace.command(5, &Sqe::write(1, 8, 7).with_nsid(1), 512).unwrap();
        trace.command(9, &Sqe::read(2, 1, 0).with_nsid(2), 4096).unwrap();
        trace.command(10, &Sqe::compare(2, 1, 0).with_nsid(2), 4096).unwrap();
        trace.command(11, &Sqe::flush(3).with_nsid(1), 512).unwrap();
        trace.trim(12, 1, 4096, 8192).unwrap();
        assert_eq!(trace.lines(), 4);
        trace.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "fio version 3 iolog\n5 /dev/nvme0n1 write 4096 4096\n9 /dev/nvme0n2 read 4096 4096\n\
             11 /dev/nvme0n1 sync 0 0\n12 /dev/nvme0n1 trim 4096 8192\n"
        );
    }
}
