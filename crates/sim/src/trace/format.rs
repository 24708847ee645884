//! The formats: their names, and what one line of each means.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::columns::Columns;
use super::events::Action;
use super::field::{
    FILETIME, Field, Fields, MICROSECOND, MILLISECOND, NANOSECOND, Record, SECOND, SECTOR, Separator, Wrong, record,
};
use crate::request::Op;

/// A trace format. `docs/reference/traces.md` tells the columns and units of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Storage Performance Council (UMass Financial, WebSearch).
    Spc,
    /// MSR Cambridge csv.
    Msr,
    /// Microsoft production servers, Event Tracing for Windows as csv.
    Etw,
    /// DiskSim ascii.
    Disksim,
    /// MQSim ascii, 512-byte sectors.
    Mqsim,
    /// MQSim ascii with 64-byte sectors (addresses compacted).
    Mqsim64,
    /// SSDSim ascii: the same columns and units as MQSim.
    Ssdsim,
    /// FlashSim ascii: milliseconds, 512-byte addresses, 4 KiB sizes.
    Flashsim,
    /// huaicheng/replayer: milliseconds, addresses and sizes in bytes.
    Replayer,
    /// FlashNet csv.
    Flashnet,
    /// WiscSee text.
    Wiscsee,
    /// blkparse's default text.
    Blkparse,
    /// fio I/O log, version 2 or 3 by its first line.
    Fio,
    /// Systor'17 csv (Fujitsu VDI).
    Systor17,
    /// Tencent cloud block storage csv.
    Tencent,
    /// Alibaba block traces csv.
    Alibaba,
    /// The table that BCC's biosnoop prints, with its heading.
    Biosnoop,
    /// Linux block events as ftrace and `perf script` print them.
    Ftrace,
    /// CloudPhysics vscsi, version 1, binary.
    Vscsi,
    /// Text whose columns the user names ([`super::Options::columns`]), or its first line.
    Columns,
}

impl Format {
    /// Every format that has a name of its own.
    pub const ALL: [Format; 19] = [
        Format::Spc,
        Format::Msr,
        Format::Etw,
        Format::Disksim,
        Format::Mqsim,
        Format::Mqsim64,
        Format::Ssdsim,
        Format::Flashsim,
        Format::Replayer,
        Format::Flashnet,
        Format::Wiscsee,
        Format::Blkparse,
        Format::Fio,
        Format::Systor17,
        Format::Tencent,
        Format::Alibaba,
        Format::Biosnoop,
        Format::Ftrace,
        Format::Vscsi,
    ];

    /// The name for `--format`; `columns` for columns that the user names.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Spc => "spc",
            Format::Msr => "msr",
            Format::Etw => "etw",
            Format::Disksim => "disksim",
            Format::Mqsim => "mqsim",
            Format::Mqsim64 => "mqsim64",
            Format::Ssdsim => "ssdsim",
            Format::Flashsim => "flashsim",
            Format::Replayer => "replayer",
            Format::Flashnet => "flashnet",
            Format::Wiscsee => "wiscsee",
            Format::Blkparse => "blkparse",
            Format::Fio => "fio",
            Format::Systor17 => "systor17",
            Format::Tencent => "tencent",
            Format::Alibaba => "alibaba",
            Format::Biosnoop => "biosnoop",
            Format::Ftrace => "ftrace",
            Format::Vscsi => "vscsi",
            Format::Columns => "columns",
        }
    }

    /// Whether its lines hold numbers alone, with nothing that tells their units or which digit means write. Such a
    /// format is never chosen by content.
    pub(super) const fn is_bare(self) -> bool {
        matches!(
            self,
            Format::Disksim
                | Format::Mqsim
                | Format::Mqsim64
                | Format::Ssdsim
                | Format::Flashsim
                | Format::Replayer
                | Format::Tencent
        )
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    /// The format of this name, or a message with the nearest name and all others.
    fn from_str(name: &str) -> Result<Format, String> {
        let lower = name.to_ascii_lowercase();
        if let Some(format) = Format::ALL.into_iter().find(|f| f.name() == lower) {
            return Ok(format);
        }
        let names: Vec<&str> = Format::ALL.iter().map(|f| f.name()).collect();
        let nearest =
            names.iter().max_by(|a, b| strsim::jaro_winkler(a, &lower).total_cmp(&strsim::jaro_winkler(b, &lower)));
        Err(format!(
            "unknown trace format \"{name}\"; did you mean \"{}\"? Known formats: {}",
            nearest.copied().unwrap_or_default(),
            names.join(", ")
        ))
    }
}

/// Reads the lines of one text format, with what it has to remember between lines.
#[derive(Clone, Debug)]
pub(super) struct LineParser {
    format: Format,
    /// The columns, where the user names them.
    columns: Option<Arc<Columns>>,
    /// How those are separated: found by the first line that is long enough.
    pub(super) separator: Option<Separator>,
    /// ETW: within the header.
    pub(super) header: bool,
    /// Nothing was read yet.
    first: bool,
    /// No line was read yet that is no comment.
    fresh: bool,
    /// The names of the columns, where the first line holds them.
    heading: Option<Box<[u8]>>,
    /// blkparse and ftrace: the action that stands for a request.
    pub action: Action,
    /// blkparse: the summary after the events has begun.
    pub(super) summary: bool,
    /// biosnoop: columns behind the process, of which the first five are what is read; 0 before the heading.
    pub(super) tail: usize,
    /// fio: the version from the first line, 0 before.
    version: u8,
    /// fio version 2: the sum of the waits in picoseconds.
    clock: u128,
}

impl LineParser {
    pub fn new(format: Format, columns: Option<Arc<Columns>>) -> LineParser {
        LineParser {
            format,
            columns,
            separator: None,
            header: false,
            first: true,
            fresh: true,
            heading: None,
            action: Action::Queued,
            summary: false,
            tail: 0,
            version: 0,
            clock: 0,
        }
    }

    /// The columns, where the user or the first line names them.
    pub fn columns(&self) -> Option<&Arc<Columns>> {
        self.columns.as_ref()
    }

    /// fio: whether the first line was understood.
    pub fn has_version(&self) -> bool {
        self.version != 0
    }

    /// Parses a line (without its line feed): a request, nothing, or a violation of the format.
    pub fn parse<'a>(&mut self, line: &'a [u8]) -> Result<Option<Record<'a>>, Wrong> {
        let first = std::mem::replace(&mut self.first, false);
        let line = match line {
            // A byte order mark, which Windows tools write.
            [0xef, 0xbb, 0xbf, rest @ ..] if first => rest,
            line => line,
        };
        if is_comment(line) {
            return Ok(None);
        }
        let fresh = std::mem::replace(&mut self.fresh, false);
        if self.format.may_have_heading() && (fresh || self.heading.is_some()) {
            // Several files that were put together have the same heading again.
            let again = self.heading.as_deref().is_some_and(|heading| heading == line.trim_ascii());
            if again || fresh && is_heading(line) {
                self.heading = Some(line.trim_ascii().into());
                return Ok(None);
            }
        }
        let comma = Fields::new(line, Separator::Comma);
        let blank = Fields::new(line, Separator::Blank);
        match self.format {
            Format::Spc => spc(comma).map(Some),
            Format::Msr => msr(comma).map(Some),
            Format::Etw => self.etw(comma),
            Format::Disksim => disksim(blank).map(Some),
            Format::Mqsim | Format::Ssdsim => mqsim(blank, SECTOR).map(Some),
            Format::Mqsim64 => mqsim(blank, 64).map(Some),
            Format::Flashsim => flashsim(blank).map(Some),
            Format::Replayer => replayer(blank).map(Some),
            Format::Flashnet => flashnet(comma).map(Some),
            Format::Wiscsee => wiscsee(blank),
            Format::Blkparse => self.blkparse(blank),
            Format::Fio => self.fio(line, blank),
            Format::Systor17 => systor17(comma).map(Some),
            Format::Tencent => tencent(comma).map(Some),
            Format::Alibaba => alibaba(comma).map(Some),
            Format::Biosnoop => self.biosnoop(line, blank),
            Format::Ftrace => self.ftrace(line, blank),
            Format::Columns => match self.columns.clone() {
                Some(columns) => columns.parse(line, &mut self.separator),
                None => Err(Wrong { column: 1, expected: "columns that are named", found: "none".into() }),
            },
            Format::Vscsi => Err(Wrong { column: 1, expected: "binary records", found: "text".into() }),
        }
    }

    fn fio<'a>(&mut self, line: &'a [u8], mut fields: Fields<'a>) -> Result<Option<Record<'a>>, Wrong> {
        if self.version == 0 {
            self.version = match line.trim_ascii_end() {
                b"fio version 2 iolog" => 2,
                b"fio version 3 iolog" => 3,
                _ => {
                    let whole = Field { bytes: line.trim_ascii_end(), column: 1 };
                    return Err(whole.wrong("\"fio version 2 iolog\" or \"fio version 3 iolog\""));
                }
            };
            return Ok(None);
        }
        // Another log behind the first.
        if matches!((self.version, line.trim_ascii_end()), (2, b"fio version 2 iolog") | (3, b"fio version 3 iolog")) {
            return Ok(None);
        }
        const STAMP: &str = "a time stamp in microseconds";
        let mut stamp_column = 1;
        if self.version == 3 {
            let stamp = fields.need(STAMP)?;
            stamp_column = stamp.column;
            self.clock = u128::from(stamp.number(STAMP)?) * u128::from(MICROSECOND);
        }
        let file = fields.need("a file name")?;
        let action = fields.need("an action such as read")?;
        let op = match action.bytes {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Deallocate,
            b"sync" | b"datasync" => {
                let request = Record {
                    stamp: self.clock,
                    device: file.bytes,
                    op: Op::Flush,
                    offset: 0,
                    length: 0,
                    fua: false,
                    stamp_column,
                };
                return Ok(Some(request));
            }
            b"add" | b"open" | b"close" => return Ok(None),
            b"wait" if self.version == 2 => {
                let wait = fields.need("microseconds to wait")?;
                self.clock += u128::from(wait.number("microseconds to wait")?) * u128::from(MICROSECOND);
                return Ok(None);
            }
            _ => {
                return Err(action.wrong(if self.version == 2 {
                    "an action: add, open, close, wait, read, write, sync, datasync or trim"
                } else {
                    "an action: add, open, close, read, write, sync, datasync or trim"
                }));
            }
        };
        let at = fields.need("an offset in bytes")?;
        let offset = at.number("an offset in bytes")?;
        let size = fields.need("a length in bytes")?;
        let length = size.check_length(op, size.number("a length in bytes")?)?;
        fields.end()?;
        let offset = at.check_end(offset, length)?;
        Ok(Some(Record { stamp: self.clock, device: file.bytes, op, offset, length, fua: false, stamp_column }))
    }
}

impl Format {
    /// Whether a line of names may stand before the first request.
    const fn may_have_heading(self) -> bool {
        !matches!(
            self,
            Format::Etw | Format::Blkparse | Format::Fio | Format::Biosnoop | Format::Ftrace | Format::Vscsi
        )
    }
}

/// Whether a line says nothing: it is empty, or begins with `#`.
pub(super) fn is_comment(line: &[u8]) -> bool {
    line.iter().find(|byte| !byte.is_ascii_whitespace()).is_none_or(|&byte| byte == b'#')
}

/// Whether a line holds the names of columns: words, of which none is a number. No request is like that.
fn is_heading(line: &[u8]) -> bool {
    let words = || {
        let pieces = line.split(|byte| matches!(byte, b',' | b';' | b' ' | b'\t' | b'\r'));
        pieces.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty())
    };
    let named = |word: &[u8]| word.iter().any(u8::is_ascii_alphabetic) && !word[0].is_ascii_digit();
    words().count() >= 3 && words().all(|word| named(word) || !word.iter().any(u8::is_ascii_alphanumeric))
}

/// `0` is a write and `1` a read, as in MQSim, SSDSim, FlashSim and FlashNet.
fn zero_writes(field: Field<'_>) -> Result<Op, Wrong> {
    match field.bytes {
        b"0" => Ok(Op::Write),
        b"1" => Ok(Op::Read),
        _ => Err(field.wrong("0 (write) or 1 (read)")),
    }
}

fn letter(field: Field<'_>) -> Result<Op, Wrong> {
    match field.bytes {
        b"R" | b"r" => Ok(Op::Read),
        b"W" | b"w" => Ok(Op::Write),
        _ => Err(field.wrong("R or W")),
    }
}

fn spc(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let unit = fields.need("an application storage unit (a number)")?;
    unit.number("an application storage unit (a number)")?;
    let address = fields.need("a logical block address")?;
    let size = fields.need("a size in bytes")?;
    let op = fields.need("R or W")?;
    let stamp = fields.need("a time stamp in seconds")?;
    // Optional fields may follow.
    let offset = address.scaled(SECTOR, "a logical block address")?;
    let length = size.number("a size in bytes")?;
    record(letter(op)?, unit.bytes, (stamp, SECOND, "a time stamp in seconds"), (address, offset), (size, length))
}

fn msr(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let stamp = fields.need("a Windows file time")?;
    let host = fields.need("a host name")?;
    let disk = fields.need("a disk number")?;
    disk.number("a disk number")?;
    let kind = fields.need("Read or Write")?;
    let op = match kind.bytes {
        b"Read" | b"read" => Op::Read,
        b"Write" | b"write" => Op::Write,
        _ => return Err(kind.wrong("Read or Write")),
    };
    let at = fields.need("an offset in bytes")?;
    let size = fields.need("a size in bytes")?;
    fields.need("a response time")?.number("a response time")?;
    fields.end()?;
    stamp.number("a Windows file time")?;
    let offset = at.number("an offset in bytes")?;
    let length = size.number("a size in bytes")?;
    let device = fields.span(host, disk);
    record(op, device, (stamp, FILETIME, "a Windows file time"), (at, offset), (size, length))
}

fn disksim(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let stamp = fields.need("a time in milliseconds")?;
    let device = fields.need("a device number")?;
    device.number("a device number")?;
    let block = fields.need("a block number")?;
    let count = fields.need("a number of blocks")?;
    let flags = fields.need("flags (hexadecimal)")?;
    fields.end()?;
    let op = if flags.hex("flags (hexadecimal)")? & 1 == 1 { Op::Read } else { Op::Write };
    let offset = block.scaled(SECTOR, "a block number")?;
    let length = count.scaled(SECTOR, "a number of blocks")?;
    record(op, device.bytes, (stamp, MILLISECOND, "a time in milliseconds"), (block, offset), (count, length))
}

fn mqsim(mut fields: Fields<'_>, sector_bytes: u64) -> Result<Record<'_>, Wrong> {
    let stamp = fields.need("an arrival in whole nanoseconds")?;
    stamp.number("an arrival in whole nanoseconds")?;
    let device = fields.need("a device number")?;
    device.number("a device number")?;
    let sector = fields.need("a start sector")?;
    let count = fields.need("a number of sectors")?;
    let kind = fields.need("0 (write) or 1 (read)")?;
    fields.end()?;
    let op = zero_writes(kind)?;
    let offset = sector.scaled(sector_bytes, "a start sector")?;
    let length = count.scaled(sector_bytes, "a number of sectors")?;
    record(op, device.bytes, (stamp, NANOSECOND, "an arrival in nanoseconds"), (sector, offset), (count, length))
}

fn flashsim(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let stamp = fields.need("a time in milliseconds")?;
    let device = fields.need("device 0")?;
    if device.bytes != b"0" {
        return Err(device.wrong("device 0"));
    }
    let sector = fields.need("a 512-byte address")?;
    let pages = fields.need("a number of 4 KiB pages")?;
    let kind = fields.need("0 (write) or 1 (read)")?;
    fields.end()?;
    let op = zero_writes(kind)?;
    let offset = sector.scaled(SECTOR, "a 512-byte address")?;
    let length = pages.scaled(4096, "a number of 4 KiB pages")?;
    record(op, device.bytes, (stamp, MILLISECOND, "a time in milliseconds"), (sector, offset), (pages, length))
}

fn replayer(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let stamp = fields.need("a time in milliseconds")?;
    let device = fields.need("a device number")?;
    device.number("a device number")?;
    let at = fields.need("an offset in bytes")?;
    let size = fields.need("a size in bytes")?;
    let kind = fields.need("0 (write) or 1 (read)")?;
    fields.end()?;
    let op = zero_writes(kind)?;
    // It was recorded from a disk: anything else is not bytes.
    let offset = at.number("an offset in bytes")?;
    if offset % SECTOR != 0 {
        return Err(at.wrong("an offset in bytes, a multiple of 512"));
    }
    let length = size.number("a size in bytes")?;
    if length % SECTOR != 0 {
        return Err(size.wrong("a size in bytes, a multiple of 512"));
    }
    record(op, device.bytes, (stamp, MILLISECOND, "a time in milliseconds"), (at, offset), (size, length))
}

fn flashnet(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let stamp = fields.need("a time in milliseconds")?;
    fields.need("a latency in microseconds")?.time(MICROSECOND, "a latency in microseconds")?;
    let op = zero_writes(fields.need("0 (write) or 1 (read)")?)?;
    let size = fields.need("a size in bytes")?;
    let at = fields.need("an offset in bytes")?;
    fields.need("a submission time in milliseconds")?.time(MILLISECOND, "a submission time in milliseconds")?;
    fields.need("a replayed size in bytes")?.number("a replayed size in bytes")?;
    fields.end()?;
    let length = size.number("a size in bytes")?;
    let offset = at.number("an offset in bytes")?;
    record(op, b"0", (stamp, MILLISECOND, "a time in milliseconds"), (at, offset), (size, length))
}

fn wiscsee(mut fields: Fields<'_>) -> Result<Option<Record<'_>>, Wrong> {
    fields.need("a process identifier")?.number("a process identifier")?;
    let action = fields.need("an action such as D")?;
    if action.bytes.len() != 1 || !action.bytes[0].is_ascii_uppercase() {
        return Err(action.wrong("an action such as D"));
    }
    let kind = fields.need("read, write or discard")?;
    let op = match kind.bytes {
        b"read" => Op::Read,
        b"write" => Op::Write,
        b"discard" => Op::Deallocate,
        _ => return Err(kind.wrong("read, write or discard")),
    };
    let at = fields.need("an offset in bytes")?;
    let size = fields.need("a size in bytes")?;
    let stamp = fields.need("a time in seconds")?;
    // Intervals and what else follows are not needed. D is the issue to the drive, C its completion.
    if action.bytes != b"D" {
        return Ok(None);
    }
    let offset = at.number("an offset in bytes")?;
    let length = size.number("a size in bytes")?;
    record(op, b"0", (stamp, SECOND, "a time in seconds"), (at, offset), (size, length)).map(Some)
}

fn systor17(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let stamp = fields.need("a time stamp in seconds")?;
    let response = fields.need("a response time in seconds")?;
    if !response.bytes.is_empty() {
        response.time(SECOND, "a response time in seconds")?;
    }
    let kind = fields.need("R or W")?;
    let unit = fields.need("a logical unit")?;
    unit.number("a logical unit")?;
    let at = fields.need("an offset in bytes")?;
    let size = fields.need("a size in bytes")?;
    fields.end()?;
    let offset = at.number("an offset in bytes")?;
    let length = size.number("a size in bytes")?;
    record(letter(kind)?, unit.bytes, (stamp, SECOND, "a time stamp in seconds"), (at, offset), (size, length))
}

fn tencent(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let stamp = fields.need("a time stamp in seconds")?;
    let sector = fields.need("an offset in sectors")?;
    let count = fields.need("a size in sectors")?;
    let kind = fields.need("0 (read) or 1 (write)")?;
    let volume = fields.need("a volume number")?;
    fields.end()?;
    volume.number("a volume number")?;
    let op = match kind.bytes {
        b"0" => Op::Read,
        b"1" => Op::Write,
        _ => return Err(kind.wrong("0 (read) or 1 (write)")),
    };
    let offset = sector.scaled(SECTOR, "an offset in sectors")?;
    let length = count.scaled(SECTOR, "a size in sectors")?;
    record(op, volume.bytes, (stamp, SECOND, "a time stamp in seconds"), (sector, offset), (count, length))
}

fn alibaba(mut fields: Fields<'_>) -> Result<Record<'_>, Wrong> {
    let device = fields.need("a device number")?;
    device.number("a device number")?;
    let kind = fields.need("R or W")?;
    let at = fields.need("an offset in bytes")?;
    let size = fields.need("a length in bytes")?;
    let stamp = fields.need("a time stamp in microseconds")?;
    fields.end()?;
    let offset = at.number("an offset in bytes")?;
    let length = size.number("a length in bytes")?;
    record(
        letter(kind)?,
        device.bytes,
        (stamp, MICROSECOND, "a time stamp in microseconds"),
        (at, offset),
        (size, length),
    )
}

/// Bytes in a vscsi record.
pub(super) const VSCSI_BYTES: usize = 32;
/// Version field of a version 1 record.
pub(super) const VSCSI_VERSION: u16 = 1 << 8;

/// A vscsi version 1 record; `None` for a command that moves no blocks. The column of an error is the byte within the
/// record, from 1.
pub(super) fn vscsi(bytes: &[u8]) -> Result<Option<Record<'static>>, Wrong> {
    let Ok(bytes) = <&[u8; VSCSI_BYTES]>::try_from(bytes) else {
        let found = format!("{} bytes", bytes.len());
        return Err(Wrong { column: 1, expected: "a record of 32 bytes", found });
    };
    let number = |at: usize, size: usize| bytes[at..at + size].iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    if number(14, 2) != u64::from(VSCSI_VERSION) {
        let found = format!("{:#06x}", number(14, 2));
        return Err(Wrong { column: 15, expected: "version 1 (0x0100)", found });
    }
    // SCSI Block Commands 3: the 6, 10, 12 and 16 byte forms. UNMAP names its blocks in a parameter list, which the
    // trace does not hold.
    let op = match number(12, 2) {
        0x08 | 0x28 | 0xa8 | 0x88 => Op::Read,
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Op::Write,
        0x35 | 0x91 => Op::Flush,
        0x41 | 0x93 => Op::WriteZeroes,
        0x2f | 0xaf | 0x8f => Op::Verify,
        code if code <= 0xff => return Ok(None),
        code => return Err(Wrong { column: 13, expected: "a SCSI operation code", found: format!("{code:#06x}") }),
    };
    let stamp = u128::from(number(24, 8)) * u128::from(MICROSECOND);
    let device = &b"0"[..];
    if op == Op::Flush {
        return Ok(Some(Record { stamp, device, op, offset: 0, length: 0, fua: false, stamp_column: 25 }));
    }
    let text = number(16, 8).to_string();
    let address = Field { bytes: text.as_bytes(), column: 17 };
    let size_text = number(4, 4).to_string();
    let size = Field { bytes: size_text.as_bytes(), column: 5 };
    let length = size.check_length(op, number(4, 4))?;
    let offset = address.scaled(SECTOR, "a block number")?;
    let offset = address.check_end(offset, length)?;
    Ok(Some(Record { stamp, device, op, offset, length, fua: false, stamp_column: 25 }))
}
