//! Text of any kind whose columns the user names: `time_us,op,offset,bytes,device`.

use std::fmt;
use std::str::FromStr;

use super::field::{
    FILETIME, Field, Fields, MICROSECOND, MILLISECOND, NANOSECOND, Record, SECOND, SECTOR, Separator, Wrong,
};
use super::words::{Asked, Words, asked};
use crate::request::Op;

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    /// Arrival, in units of so many picoseconds.
    Time(u64),
    /// The operation in words, as a letter or as blkparse writes it.
    Op,
    /// The operation as a digit: whether 1 is a write.
    Digit(bool),
    /// The first byte, in units of so many bytes.
    Place(u64),
    /// The size, in units of so many bytes.
    Size(u64),
    /// The address space.
    Device,
    /// Not read.
    Skipped,
}

/// The names of columns, in the order in which messages list them.
const NAMES: [(&str, Column); 19] = [
    ("time_s", Column::Time(SECOND)),
    ("time_ms", Column::Time(MILLISECOND)),
    ("time_us", Column::Time(MICROSECOND)),
    ("time_ns", Column::Time(NANOSECOND)),
    ("time_100ns", Column::Time(FILETIME)),
    ("op", Column::Op),
    ("op_1w", Column::Digit(true)),
    ("op_1r", Column::Digit(false)),
    ("offset", Column::Place(1)),
    ("sector", Column::Place(SECTOR)),
    ("lba", Column::Place(SECTOR)),
    ("lba_4k", Column::Place(4_096)),
    ("bytes", Column::Size(1)),
    ("sectors", Column::Size(SECTOR)),
    ("blocks", Column::Size(SECTOR)),
    ("blocks_4k", Column::Size(4_096)),
    ("kib", Column::Size(1_024)),
    ("device", Column::Device),
    ("_", Column::Skipped),
];

impl Column {
    /// The expected field, for messages.
    const fn expected(self) -> &'static str {
        match self {
            Column::Time(SECOND) => "a time in seconds",
            Column::Time(MILLISECOND) => "a time in milliseconds",
            Column::Time(MICROSECOND) => "a time in microseconds",
            Column::Time(NANOSECOND) => "a time in nanoseconds",
            Column::Time(_) => "a time in units of 100 ns",
            Column::Op => "an operation such as R, write, WS or trim (of digits, name the column op_1w or op_1r)",
            Column::Digit(true) => "0 (read) or 1 (write)",
            Column::Digit(false) => "0 (write) or 1 (read)",
            Column::Place(1) => "an offset in bytes",
            Column::Place(_) => "the number of a block",
            Column::Size(1) => "a size in bytes",
            Column::Size(_) => "a size in whole units",
            Column::Device => "a device",
            Column::Skipped => "a column that is passed over",
        }
    }

    /// Of columns of which one is enough, which it is.
    const fn kind(self) -> Option<usize> {
        match self {
            Column::Time(_) => Some(0),
            Column::Op | Column::Digit(_) => Some(1),
            Column::Place(_) => Some(2),
            Column::Size(_) => Some(3),
            Column::Device => Some(4),
            Column::Skipped => None,
        }
    }
}

/// The columns of a text trace, from the left. Those behind the last one named are not read.
///
/// Columns are separated by tabs, commas, semicolons or blanks: by the first of these that divides the first line into
/// enough of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    all: Vec<Column>,
    /// The meanings of the trace's own words, before all others.
    words: Words,
}

impl FromStr for Columns {
    type Err = String;

    /// The columns of names separated by commas; one each for the operation, the place and the size has to be there.
    /// Without a time all requests arrive at once.
    fn from_str(text: &str) -> Result<Columns, String> {
        let mut columns = Vec::new();
        let mut words = Words::default();
        let mut seen = [false; 5];
        for name in text.split(',').map(str::trim) {
            let name = match name.split_once(':') {
                Some(("op", text)) => {
                    words = text.parse()?;
                    "op"
                }
                _ => name,
            };
            let Some((_, column)) = NAMES.iter().find(|(known, _)| *known == name) else {
                let near = |known: &str| strsim::jaro_winkler(known, name);
                let nearest = NAMES.iter().map(|(known, _)| *known).max_by(|a, b| near(a).total_cmp(&near(b)));
                return Err(format!(
                    "there is no column \"{}\"; did you mean \"{}\"? Columns: {}",
                    name.chars().take(40).collect::<String>(),
                    nearest.unwrap_or("_"),
                    NAMES.map(|(known, _)| known).join(", ")
                ));
            };
            if let Some(kind) = column.kind()
                && std::mem::replace(&mut seen[kind], true)
            {
                let what = ["time", "operation", "place", "size", "device"][kind];
                return Err(format!(
                    "\"{name}\" is a second column for the {what}; name the one to read, and _ the other"
                ));
            }
            columns.push(*column);
        }
        for (kind, missing) in [
            (1, "an operation: op, op_1w (1 writes) or op_1r (1 reads)"),
            (2, "a place: offset (bytes), sector, lba or lba_4k"),
            (3, "a size: bytes, sectors, blocks, blocks_4k or kib"),
        ] {
            if !seen[kind] {
                return Err(format!("a request needs {missing}"));
            }
        }
        Ok(Columns { all: columns, words })
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, column) in self.all.iter().enumerate() {
            let name = NAMES.iter().find(|(_, known)| known == column).map_or("_", |(name, _)| name);
            write!(f, "{}{name}", if at > 0 { "," } else { "" })?;
            if *column == Column::Op {
                write!(f, "{}", self.words)?;
            }
        }
        Ok(())
    }
}

impl Columns {
    /// The columns that the first line of a text names in the words of [`Columns::from_str`], and in no others.
    pub(super) fn of_heading(line: &[u8]) -> Option<Columns> {
        let line = std::str::from_utf8(line).ok()?.trim();
        let names: Vec<&str> = line.split([',', ';', '\t', ' ']).map(|name| name.trim_matches('"')).collect();
        // Blanks around another separator, or several blanks, are none of a name.
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.join(",").parse().ok()
    }

    /// Parses a line; `None`: neither read nor write. `separator` is set by the first line that has enough columns.
    pub(super) fn parse<'a>(
        &self,
        line: &'a [u8],
        separator: &mut Option<Separator>,
    ) -> Result<Option<Record<'a>>, Wrong> {
        let separator = match *separator {
            Some(separator) => separator,
            None => *separator.insert(self.separator(line)?),
        };
        let mut fields = Fields::new(line, separator);
        let (mut stamp, mut stamp_column) = (0, 1);
        let mut device = &b"0"[..];
        let mut what = None;
        let (mut place, mut size) = (None, None);
        for &column in &self.all {
            let field = unquoted(fields.need(column.expected())?);
            match column {
                Column::Time(unit_ps) => {
                    // A colon ends it where the name of an event follows.
                    let bytes = field.bytes.strip_suffix(b":").unwrap_or(field.bytes);
                    stamp = Field { bytes, ..field }.time(unit_ps, column.expected())?;
                    stamp_column = field.column;
                }
                Column::Op => {
                    let asked = match self.words.of(field.bytes) {
                        Some(op) => op.map(|op| Asked { op, fua: false, flush_first: false }),
                        None => operation(field, column.expected())?,
                    };
                    what = asked.map(|asked| (asked, field));
                }
                Column::Digit(one_writes) => {
                    let op = match field.bytes {
                        b"0" | b"1" if (field.bytes == b"1") == one_writes => Op::Write,
                        b"0" | b"1" => Op::Read,
                        _ => return Err(field.wrong(column.expected())),
                    };
                    what = Some((Asked { op, fua: false, flush_first: false }, field));
                }
                Column::Place(unit) => place = Some((field, unit, column)),
                Column::Size(unit) => size = Some((field, unit, column)),
                Column::Device => device = field.bytes,
                Column::Skipped => {}
            }
        }
        let (Some((asked, _)), Some(place), Some(size)) = (what, place, size) else { return Ok(None) };
        let amount = |(field, unit, column): (Field<'a>, u64, Column)| match field.bytes {
            [b'0', b'x' | b'X', ..] => field
                .hex(column.expected())?
                .checked_mul(unit)
                .ok_or_else(|| field.wrong("an address below 2^64 bytes")),
            _ => field.scaled(unit, column.expected()),
        };
        let nothing = Record { stamp, device, op: Op::Flush, offset: 0, length: 0, fua: false, stamp_column };
        // A flush has no place, and may have anything in its columns.
        if asked.op == Op::Flush {
            return Ok(Some(nothing));
        }
        let (offset, length) = (amount(place)?, amount(size)?);
        if asked.flush_first && length == 0 {
            return Ok(Some(nothing));
        }
        let length = size.0.check_length(asked.op, length)?;
        let offset = place.0.check_end(offset, length)?;
        Ok(Some(Record { stamp, device, op: asked.op, offset, length, fua: asked.fua, stamp_column }))
    }

    fn separator(&self, line: &[u8]) -> Result<Separator, Wrong> {
        let count = |separator| {
            let mut fields = Fields::new(line, separator);
            std::iter::from_fn(|| fields.next()).count()
        };
        let all = [Separator::Tab, Separator::Comma, Separator::Semicolon, Separator::Blank];
        all.into_iter().find(|&separator| count(separator) >= self.all.len()).ok_or_else(|| Wrong {
            column: 1,
            expected: "as many columns as --columns names, between tabs, commas, semicolons or blanks",
            found: super::field::quote(line.trim_ascii()),
        })
    }
}

fn unquoted(field: Field<'_>) -> Field<'_> {
    match field.bytes {
        [b'"', bytes @ .., b'"'] | [b'\'', bytes @ .., b'\''] => Field { bytes, column: field.column + 1 },
        _ => field,
    }
}

/// `None`: neither read nor write.
fn operation(field: Field<'_>, expected: &'static str) -> Result<Option<Asked>, Wrong> {
    let plain = |op| Ok(Some(Asked { op, fua: false, flush_first: false }));
    let mut word = [0; 12];
    let Some(lower) = word.get_mut(..field.bytes.len()) else { return Err(field.wrong(expected)) };
    lower.copy_from_slice(field.bytes);
    lower.make_ascii_lowercase();
    match &*lower {
        b"r" | b"rd" | b"read" | b"reads" | b"diskread" => plain(Op::Read),
        b"w" | b"wr" | b"write" | b"writes" | b"diskwrite" => plain(Op::Write),
        b"d" | b"t" | b"trim" | b"discard" | b"deallocate" | b"unmap" => plain(Op::Deallocate),
        b"f" | b"flush" | b"sync" | b"fsync" | b"datasync" | b"fdatasync" => plain(Op::Flush),
        _ if !field.bytes.is_empty() && field.bytes.iter().all(|byte| b"RWDFSAMNEV".contains(byte)) => asked(field),
        _ => Err(field.wrong(expected)),
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
