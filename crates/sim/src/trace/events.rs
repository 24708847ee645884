//! Formats in which a line tells of an event: Event Tracing for Windows, blkparse, ftrace and perf, biosnoop.

use super::field::{Field, Fields, MICROSECOND, Record, SECOND, SECTOR, Wrong, flush, record};
use super::format::LineParser;
use super::words::{Asked, asked};
use crate::request::Op;

/// Which event of a request stands for it. Of those that a recording has, the earliest in a request's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Queued (`Q`, `block_bio_queue`).
    Queued,
    /// Issued to the driver (`D`, `block_rq_issue`).
    Issued,
    /// Completed (`C`, `block_rq_complete`).
    Completed,
}

impl Action {
    /// Of one word: blkparse's letter, or the name of a block event with or without `block:` before it.
    fn of(word: &[u8]) -> Option<Action> {
        let name = word.strip_suffix(b":").unwrap_or(word);
        match name.strip_prefix(b"block:").unwrap_or(name) {
            b"Q" | b"block_bio_queue" => Some(Action::Queued),
            b"D" | b"block_rq_issue" => Some(Action::Issued),
            b"C" | b"block_rq_complete" => Some(Action::Completed),
            _ => None,
        }
    }

    /// The action that stands for a request in these lines of blkparse or ftrace.
    pub fn of_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Action {
        let of_line = |line: &'a [u8]| {
            let words = || line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
            // Of a device's `major,minor` first, the sixth word is the action; an event of ftrace has a longer name.
            let letter = words().next().is_some_and(|word| word.contains(&b',')).then(|| words().nth(5));
            match letter.flatten() {
                Some(word) if word.len() == 1 => Action::of(word),
                _ => words().filter(|word| word.len() > 1).find_map(Action::of),
            }
        };
        lines.filter_map(of_line).min().unwrap_or(Action::Queued)
    }
}

/// Whether a line of `trace-cmd report`, of the kernel's `trace` file or of `perf script` is none of an event: the
/// number of CPUs, a CPU without events, events that were lost, the name of a buffer or of a file, a line of a stack.
fn is_no_event(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    let number = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let text = |text: &str| line.strip_prefix(text.as_bytes());
    // The version of the file's format, and its CPUs.
    if line.strip_prefix(b"cpus=").or(line.strip_prefix(b"version = ")).is_some_and(number) {
        return true;
    }
    // `CPU 2 is empty`.
    if text("CPU ").and_then(|rest| rest.strip_suffix(b" is empty")).is_some_and(number) {
        return true;
    }
    // `CPU:2 [LOST 123 EVENTS]`, `CPU:2 [EVENTS DROPPED]`.
    if let Some(rest) = text("CPU:")
        && let Some(at) = rest.iter().position(|&byte| byte == b' ')
    {
        let words = rest[at..].trim_ascii();
        return number(&rest[..at])
            && words.starts_with(b"[")
            && words.ends_with(b"]")
            && (words.windows(6).any(|six| six == b"EVENTS"));
    }
    // Frames of a stack: `=> submit_bio (ffffffff81)` and `ffffffff81 submit_bio+0x5 ([kernel.kallsyms])`.
    let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
    let is_address = word.len() >= 8 && word.iter().all(u8::is_ascii_hexdigit) && line.ends_with(b")");
    let is_stack = text("=> ").is_some() || text("<stack trace").is_some() || text("<user stack trace").is_some();
    is_stack || is_address || text("Buffer: ").is_some() || text("file: ").is_some()
}

/// `DiskRead`'s columns up to the process, where a comma in the name of a process does not count.
const PROCESS: &str = "a process and its number, as in name ( 12)";

/// Passes over the process, whose name may hold commas: it ends with its number in brackets.
fn pass_process(fields: &mut Fields<'_>) -> Result<(), Wrong> {
    let first = fields.need(PROCESS)?;
    let mut field = first;
    loop {
        let number = field.bytes.strip_suffix(b")").and_then(|bytes| {
            let open = bytes.iter().rposition(|&byte| byte == b'(')?;
            Some(bytes[open + 1..].trim_ascii())
        });
        if number.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)) {
            return Ok(());
        }
        field = fields.next().ok_or_else(|| first.wrong(PROCESS))?;
    }
}

/// The part of a field that stands behind `[cpu]`.
fn behind_bracket(field: Field<'_>) -> Field<'_> {
    match field.bytes.iter().position(|&byte| byte == b']') {
        Some(at) if field.bytes.starts_with(b"[") => {
            Field { bytes: &field.bytes[at + 1..], column: field.column + at + 1 }
        }
        _ => field,
    }
}

fn is_bracket(field: Field<'_>) -> bool {
    field.bytes.starts_with(b"(")
}

/// `sector + count`, behind what is asked for; `None` where a SCSI command stands in brackets instead.
fn blocks<'a>(fields: &mut Fields<'a>, sector: Field<'a>) -> Result<Option<(Field<'a>, Field<'a>)>, Wrong> {
    if is_bracket(sector) {
        return Ok(None);
    }
    sector.number("a sector")?;
    let plus = fields.need("+")?;
    if is_bracket(plus) {
        return Ok(None);
    }
    if plus.bytes != b"+" {
        return Err(plus.wrong("+"));
    }
    Ok(Some((sector, fields.need("a number of sectors")?)))
}

fn request<'a>(
    asked: Asked,
    device: &'a [u8],
    stamp: Field<'a>,
    (sector, count): (Field<'a>, Field<'a>),
) -> Result<Record<'a>, Wrong> {
    let time = (stamp, SECOND, "a time stamp in seconds");
    let length = count.scaled(SECTOR, "a number of sectors")?;
    if asked.flush_first && length == 0 {
        return flush(device, time);
    }
    let offset = sector.scaled(SECTOR, "a sector")?;
    let request = record(asked.op, device, time, (sector, offset), (count, length))?;
    Ok(Record { fua: asked.fua, ..request })
}

fn is_device(word: &[u8]) -> bool {
    let numbers = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    word.iter().position(|&b| b == b',').is_some_and(|at| numbers(&word[..at]) && numbers(&word[at + 1..]))
}

impl LineParser {
    pub(super) fn etw<'a>(&mut self, mut fields: Fields<'a>) -> Result<Option<Record<'a>>, Wrong> {
        let kind = fields.need("an event name")?;
        // Another may stand further down, where several recordings are in one file.
        if self.header || kind.bytes == b"BeginHeader" {
            self.header = kind.bytes != b"EndHeader";
            return Ok(None);
        }
        let op = match kind.bytes {
            b"DiskRead" => Op::Read,
            b"DiskWrite" => Op::Write,
            // Everything else that was traced: processes, threads, files. An event name is a word.
            name if name.first().is_some_and(u8::is_ascii_alphabetic) => return Ok(None),
            _ => return Err(kind.wrong("an event name such as DiskRead")),
        };
        let stamp = fields.need("a time stamp in microseconds")?;
        pass_process(&mut fields)?;
        fields.need("a thread")?.number("a thread, which is a number")?;
        fields.need("an I/O request packet")?.prefixed_hex("an I/O request packet such as 0x8b2f1a10")?;
        let offset = fields.need("a byte offset")?;
        let size = fields.need("a size")?;
        fields.need("an elapsed time")?.number("an elapsed time")?;
        let disk = fields.need("a disk number")?;
        disk.number("a disk number")?;
        let at = offset.prefixed_hex("a hexadecimal byte offset")?;
        let length = size.prefixed_hex("a hexadecimal size in bytes")?;
        record(op, disk.bytes, (stamp, MICROSECOND, "a time stamp in microseconds"), (offset, at), (size, length))
            .map(Some)
    }

    pub(super) fn blkparse<'a>(&mut self, mut fields: Fields<'a>) -> Result<Option<Record<'a>>, Wrong> {
        let device = fields.need("a device (major,minor)")?;
        match device.bytes {
            // Events may follow a summary: those of another output, where several stand one after the other.
            word if is_device(word) => self.summary = false,
            word if self.summary || word.starts_with(b"CPU") || word == b"Total" => {
                self.summary = true;
                return Ok(None);
            }
            // blkparse begins with the names of the files that it reads.
            b"Input" if fields.next().is_some_and(|word| word.bytes == b"file") => return Ok(None),
            _ => return Err(device.wrong("a device (major,minor)")),
        }
        fields.need("a CPU")?.number("a CPU")?;
        fields.need("a sequence number")?.number("a sequence number")?;
        let stamp = fields.need("a time stamp in seconds")?;
        fields.need("a process identifier")?;
        let action = fields.need("an action such as Q")?;
        if action.bytes.len() != 1 || Action::of(action.bytes) != Some(self.action) {
            return Ok(None);
        }
        let kind = fields.need("what is asked for, such as R or WS")?;
        let Some(asked) = asked(kind)? else { return Ok(None) };
        let sector = fields.next();
        if asked.flush_first && !sector.is_some_and(|s| s.bytes.iter().all(u8::is_ascii_digit)) {
            return flush(device.bytes, (stamp, SECOND, "a time stamp in seconds")).map(Some);
        }
        let Some(sector) = sector else {
            let column = kind.column + kind.bytes.len();
            return Err(Wrong { column, expected: "a sector", found: "the end of the line".into() });
        };
        match blocks(&mut fields, sector)? {
            Some(blocks) => request(asked, device.bytes, stamp, blocks).map(Some),
            None => Ok(None),
        }
    }

    /// `task-pid [cpu] flags time: event: device RWBS bytes (command) sector + count [task]`, as ftrace prints it, or
    /// `perf script` with `block:` before the event. `block_bio_queue` has neither bytes nor command.
    pub(super) fn ftrace<'a>(&mut self, line: &'a [u8], mut fields: Fields<'a>) -> Result<Option<Record<'a>>, Wrong> {
        const EVENT: &str = "a time stamp in seconds and a block event, as in 12.5: block_rq_issue:";
        let mut before: Option<Field<'a>> = None;
        let stamp = loop {
            let field = match fields.need(EVENT) {
                Ok(field) => field,
                Err(_) if is_no_event(line) => return Ok(None),
                Err(wrong) => return Err(wrong),
            };
            let stamp = before.and_then(|field| Some(Field { bytes: field.bytes.strip_suffix(b":")?, ..field }));
            // A long time may touch the CPU before it: `[000]1819.5:`.
            let stamp = stamp.map(behind_bracket);
            // The name of an event ends with a colon, and so does the time before it.
            if let Some(stamp) = stamp
                && field.bytes.ends_with(b":")
                && stamp.time(SECOND, EVENT).is_ok()
            {
                if Action::of(field.bytes) != Some(self.action) {
                    return Ok(None);
                }
                break stamp;
            }
            before = Some(field);
        };
        let device = fields.need("a device (major,minor)")?;
        if !is_device(device.bytes) {
            return Err(device.wrong("a device (major,minor)"));
        }
        let Some(asked) = asked(fields.need("what is asked for, such as R or WS")?)? else { return Ok(None) };
        let mut sector = fields.need("a sector")?;
        // A request of a SCSI command of its own moves `bytes`, and has the command in its brackets.
        let mut passes_through = false;
        if self.action == Action::Issued {
            sector.number("a number of bytes")?;
            sector = fields.need("a command in brackets")?;
        }
        if is_bracket(sector) {
            passes_through = sector.bytes != b"()";
            while !sector.bytes.ends_with(b")") {
                sector = fields.need("the end of a command in brackets")?;
            }
            sector = fields.need("a sector")?;
        }
        match blocks(&mut fields, sector)? {
            Some(blocks) if !passes_through => request(asked, device.bytes, stamp, blocks).map(Some),
            _ => Ok(None),
        }
    }

    /// biosnoop's table: `TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)`, with more columns behind BYTES by its options.
    /// The name of a process may hold blanks, so that columns are counted from the end.
    pub(super) fn biosnoop<'a>(&mut self, line: &'a [u8], mut fields: Fields<'a>) -> Result<Option<Record<'a>>, Wrong> {
        const HEADING: &str = "biosnoop's heading: TIME(s) COMM PID DISK T SECTOR BYTES";
        let mut words = fields;
        let count = std::iter::from_fn(|| words.next()).count();
        let stamp = fields.need(HEADING)?;
        // What BCC's tools print around the table.
        if line.starts_with(b"Tracing ") || line.starts_with(b"Possibly lost ") || line.trim_ascii() == b"^C" {
            return Ok(None);
        }
        if self.tail == 0 || stamp.bytes == b"TIME(s)" {
            let mut names = [&b""[..]; 6];
            names.iter_mut().for_each(|name| *name = fields.next().map_or(&b""[..], |field| field.bytes));
            if stamp.bytes != b"TIME(s)" || names != [&b"COMM"[..], b"PID", b"DISK", b"T", b"SECTOR", b"BYTES"] {
                return Err(stamp.wrong(HEADING));
            }
            self.tail = count - 2;
            return Ok(None);
        }
        if count < self.tail + 2 {
            return Err(Wrong {
                column: line.len() + 1,
                expected: "as many columns as the heading has",
                found: format!("{count}"),
            });
        }
        for _ in 0..count - 1 - self.tail {
            fields.need("the name of a process")?;
        }
        fields.need("a process identifier")?.number("a process identifier")?;
        let disk = fields.need("a disk")?;
        let kind = fields.need("R or W")?;
        let sector = fields.need("a sector")?;
        let size = fields.need("a size in bytes")?;
        let Some(asked) = asked(kind)? else { return Ok(None) };
        let time = (stamp, SECOND, "a time in seconds");
        let length = size.number("a size in bytes")?;
        if length == 0 {
            return if asked.flush_first { flush(disk.bytes, time).map(Some) } else { Ok(None) };
        }
        let offset = sector.scaled(SECTOR, "a sector")?;
        let request = record(asked.op, disk.bytes, time, (sector, offset), (size, length))?;
        Ok(Some(Record { fua: asked.fua, ..request }))
    }
}
