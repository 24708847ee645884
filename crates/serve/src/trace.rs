//! Every command as a trace: fio's I/O log, version 3, which `tidewater replay` and fio read.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use tidewater_core::subsystem::Slot;
use tidewater_wire::nvme::{DsmRange, Sqe, opcode};

use crate::runtime;

/// Writes commands as they end.
#[derive(Debug)]
pub struct TraceWriter {
    file: BufWriter<File>,
    lines: u64,
    /// Namespaces that the log has opened.
    opened: Vec<u32>,
    /// Ranges of deallocations that have not ended, each with its command.
    held: Vec<(Slot, Vec<DsmRange>)>,
    /// The stamp of the last line.
    micros: u64,
}

impl TraceWriter {
    /// A new trace, which only its owner may read.
    ///
    /// # Errors
    /// When the file can't be made or written, or is not ours alone.
    pub fn create(path: &Path) -> io::Result<TraceWriter> {
        let mut file = BufWriter::new(runtime::private_file(path)?);
        writeln!(file, "fio version 3 iolog")?;
        Ok(TraceWriter { file, lines: 0, opened: Vec::new(), held: Vec::new(), micros: 0 })
    }

    /// A command of an I/O queue that ended well, `micros` after the device was started, on a namespace with blocks of
    /// `block` bytes. Commands that an I/O log has no word for are left out.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn command(&mut self, micros: u64, sqe: &Sqe, block: u64, slot: Option<Slot>) -> io::Result<()> {
        let blocks = u64::from(sqe.cdw12() & 0xffff) + 1;
        let (word, first, blocks) = match sqe.opcode() {
            opcode::READ => ("read", sqe.slba(), blocks),
            opcode::WRITE => ("write", sqe.slba(), blocks),
            opcode::WRITE_ZEROES => ("trim", sqe.slba(), blocks),
            opcode::FLUSH => ("sync", 0, 0),
            opcode::DATASET_MANAGEMENT => {
                let ranges = slot.and_then(|slot| self.release(slot)).unwrap_or_default();
                return ranges.iter().filter(|range| range.blocks > 0).try_for_each(|range| {
                    let (first, bytes) = (range.first_block.saturating_mul(block), u64::from(range.blocks) * block);
                    self.line(micros, sqe.nsid(), "trim", first, bytes)
                });
            }
            _ => return Ok(()),
        };
        self.line(micros, sqe.nsid(), word, first.saturating_mul(block), blocks.saturating_mul(block))
    }

    /// The ranges of a deallocation that has begun: they are written when it has ended well.
    pub fn hold(&mut self, slot: Slot, ranges: Vec<DsmRange>) {
        self.release(slot);
        self.held.push((slot, ranges));
    }

    /// Takes back the ranges of a command: it has ended, well or not.
    pub fn release(&mut self, slot: Slot) -> Option<Vec<DsmRange>> {
        let at = self.held.iter().position(|(of, _)| *of == slot)?;
        Some(self.held.swap_remove(at).1)
    }

    fn line(&mut self, micros: u64, nsid: u32, word: &str, first: u64, bytes: u64) -> io::Result<()> {
        self.micros = micros;
        // fio takes no request to a file that the log has not added and opened.
        if !self.opened.contains(&nsid) {
            self.opened.push(nsid);
            write!(self.file, "{micros} /dev/nvme0n{nsid} add\n{micros} /dev/nvme0n{nsid} open\n")?;
        }
        self.lines += 1;
        writeln!(self.file, "{micros} /dev/nvme0n{nsid} {word} {first} {bytes}")
    }

    /// Requests written.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Closes the namespaces, and lets all that was written go to the file.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn end(&mut self) -> io::Result<()> {
        for nsid in self.opened.drain(..) {
            writeln!(self.file, "{} /dev/nvme0n{nsid} close", self.micros)?;
        }
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
        let (begun, refused) = (Slot(3), Slot(4));
        let ranges = vec![DsmRange { attributes: 0, blocks: 16, first_block: 8 }, DsmRange::default()];
        let deallocate = Sqe::dataset_management(8, 2, true).with_nsid(1);
        trace.command(5, &Sqe::write(1, 8, 7).with_nsid(1), 512, None).unwrap();
        trace.command(9, &Sqe::read(2, 1, 0).with_nsid(2), 4096, None).unwrap();
        trace.command(10, &Sqe::compare(2, 1, 0).with_nsid(2), 4096, None).unwrap();
        trace.command(11, &Sqe::flush(3).with_nsid(1), 512, None).unwrap();
        trace.hold(begun, ranges.clone());
        trace.hold(refused, ranges);
        trace.release(refused);
        trace.command(12, &deallocate, 512, Some(begun)).unwrap();
        trace.command(12, &deallocate, 512, Some(refused)).unwrap();
        assert_eq!(trace.lines(), 4);
        trace.end().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "fio version 3 iolog\n5 /dev/nvme0n1 add\n5 /dev/nvme0n1 open\n5 /dev/nvme0n1 write 4096 4096\n\
             9 /dev/nvme0n2 add\n9 /dev/nvme0n2 open\n9 /dev/nvme0n2 read 4096 4096\n\
             11 /dev/nvme0n1 sync 0 0\n12 /dev/nvme0n1 trim 4096 8192\n12 /dev/nvme0n1 close\n12 /dev/nvme0n2 close\n"
        );
    }
}
