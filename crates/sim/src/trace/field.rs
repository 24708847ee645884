//! Fields of a line, and what a line can get wrong.

use std::fmt::Write;

use crate::request::Op;

pub(super) const SECOND: u64 = 1_000_000_000_000;
pub(super) const MILLISECOND: u64 = 1_000_000_000;
pub(super) const MICROSECOND: u64 = 1_000_000;
pub(super) const FILETIME: u64 = 100_000;
pub(super) const NANOSECOND: u64 = 1_000;
pub(super) const SECTOR: u64 = 512;

/// A request as one line of a trace tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Arrival in picoseconds since the format's own epoch.
    pub stamp: u128,
    /// Name of its address space.
    pub device: &'a [u8],
    /// The operation.
    pub op: Op,
    /// First byte within its address space.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Force Unit Access.
    pub fua: bool,
    /// Byte column of the time stamp, from 1.
    pub stamp_column: usize,
}

/// The fault of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Byte column, from 1.
    pub column: usize,
    /// The content that the format allows there.
    pub expected: &'static str,
    /// The content found there.
    pub found: String,
}

/// A field: its bytes without surrounding blanks, and where it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub bytes: &'a [u8],
    /// Byte column, from 1.
    pub column: usize,
}

impl<'a> Field<'a> {
    /// An error about this field.
    #[cold]
    pub fn wrong(self, expected: &'static str) -> Wrong {
        Wrong { column: self.column, expected, found: quote(self.bytes) }
    }

    /// A decimal number.
    pub fn number(self, expected: &'static str) -> Result<u64, Wrong> {
        let mut value = 0u64;
        if self.bytes.is_empty() {
            return Err(self.wrong(expected));
        }
        for &byte in self.bytes {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return Err(self.wrong(expected));
            }
            value = match value.checked_mul(10).and_then(|v| v.checked_add(u64::from(digit))) {
                Some(value) => value,
                None => return Err(self.wrong("a number below 2^64")),
            };
        }
        Ok(value)
    }

    /// A hexadecimal number, with or without `0x`.
    pub fn hex(self, expected: &'static str) -> Result<u64, Wrong> {
        let digits = match self.bytes {
            [b'0', b'x' | b'X', digits @ ..] => digits,
            digits => digits,
        };
        if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.wrong(expected));
        }
        Ok(digits.iter().fold(0, |value, &digit| value << 4 | u64::from((digit as char).to_digit(16).unwrap_or(0))))
    }

    /// A hexadecimal number that begins with `0x`, which no other column has.
    pub fn prefixed_hex(self, expected: &'static str) -> Result<u64, Wrong> {
        match self.bytes {
            [b'0', b'x' | b'X', ..] => self.hex(expected),
            _ => Err(self.wrong(expected)),
        }
    }

    /// A number times `unit` (512-byte sectors to bytes, say).
    pub fn scaled(self, unit: u64, expected: &'static str) -> Result<u64, Wrong> {
        let number = self.number(expected)?;
        number.checked_mul(unit).ok_or_else(|| self.wrong("an address below 2^64 bytes"))
    }

    /// A time in units of `unit_ps` picoseconds (at most 10^12), with an optional fraction, in picoseconds. Digits
    /// beyond the picosecond are dropped. An exponent (`5e-05`), which scripts print, is allowed.
    pub fn time(self, unit_ps: u64, expected: &'static str) -> Result<u128, Wrong> {
        let (mut whole, mut fraction, mut weight) = (0u128, 0u128, u128::from(unit_ps));
        let (mut digits, mut point) = (0usize, false);
        for (at, &byte) in self.bytes.iter().enumerate() {
            match byte {
                b'0'..=b'9' if !point => {
                    digits += 1;
                    // 20 digits of at most 10^12 ps each are far below 2^128.
                    if digits > 20 {
                        return Err(self.wrong(expected));
                    }
                    whole = whole * 10 + u128::from(byte - b'0');
                }
                b'0'..=b'9' => {
                    digits += 1;
                    // Units are powers of ten, so every weight above zero is exact.
                    weight /= 10;
                    fraction += weight * u128::from(byte - b'0');
                }
                b'.' if !point => point = true,
                b'e' | b'E' if digits > 0 && at > 0 => return self.time_with_exponent(unit_ps, expected),
                _ => return Err(self.wrong(expected)),
            }
        }
        if digits == 0 {
            return Err(self.wrong(expected));
        }
        Ok(whole * u128::from(unit_ps) + fraction)
    }

    #[cold]
    fn time_with_exponent(self, unit_ps: u64, expected: &'static str) -> Result<u128, Wrong> {
        let value: Option<f64> = std::str::from_utf8(self.bytes).ok().and_then(|text| text.parse().ok());
        match value {
            Some(value) if (0.0..1e20).contains(&value) => Ok((value * unit_ps as f64).round() as u128),
            _ => Err(self.wrong(expected)),
        }
    }

    /// Reads or writes of at most 4 GiB, deallocations of any size; never nothing. What is longer is a damaged line,
    /// and would be taken for 2^52 touched pages.
    pub fn check_length(self, op: Op, length: u64) -> Result<u64, Wrong> {
        if length == 0 {
            return Err(self.wrong("a size above zero"));
        }
        if length > 1 << 32 && !matches!(op, Op::Deallocate | Op::WriteZeroes) {
            return Err(self.wrong("a size of at most 4 GiB"));
        }
        Ok(length)
    }

    /// Refuses an offset whose request would pass the highest address.
    pub fn check_end(self, offset: u64, length: u64) -> Result<u64, Wrong> {
        match offset.checked_add(length) {
            // Half of the range is left for concatenating address spaces.
            Some(end) if end <= 1 << 63 => Ok(offset),
            _ => Err(self.wrong("an address that ends below 2^63 bytes")),
        }
    }
}

/// Bytes as a message can show them.
pub(crate) fn quote(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    let mut text = String::from("\"");
    for &byte in bytes.iter().take(40) {
        match byte {
            b' '..=b'~' => text.push(byte as char),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push_str(if bytes.len() > 40 { "...\"" } else { "\"" });
    text
}

/// How a line is cut into fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// A comma; blanks around a field do not count.
    Comma,
    /// A semicolon; blanks around a field do not count.
    Semicolon,
    /// A tab; spaces around a field do not count.
    Tab,
    /// A run of blanks and tabs.
    Blank,
}

impl Separator {
    /// Whether a byte may stand around a field without being of it.
    fn pads(self, byte: u8) -> bool {
        blank(byte) && !(self == Separator::Tab && byte == b'\t')
    }
}

/// The fields of a line, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    line: &'a [u8],
    at: usize,
    separator: Separator,
    /// With commas: whether another field follows, perhaps empty.
    more: bool,
}

const fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

impl<'a> Fields<'a> {
    pub fn new(line: &'a [u8], separator: Separator) -> Fields<'a> {
        Fields { line, at: 0, separator, more: true }
    }

    /// The next field, or `None` at the end of the line.
    pub fn next(&mut self) -> Option<Field<'a>> {
        while self.at < self.line.len() && self.separator.pads(self.line[self.at]) {
            self.at += 1;
        }
        let start = self.at;
        let sign = match self.separator {
            Separator::Semicolon => b';',
            Separator::Tab => b'\t',
            _ => b',',
        };
        match self.separator {
            Separator::Blank => {
                if start == self.line.len() {
                    return None;
                }
                while self.at < self.line.len() && !blank(self.line[self.at]) {
                    self.at += 1;
                }
                Some(Field { bytes: &self.line[start..self.at], column: start + 1 })
            }
            Separator::Comma | Separator::Semicolon | Separator::Tab => {
                if !self.more {
                    return None;
                }
                while self.at < self.line.len() && self.line[self.at] != sign {
                    self.at += 1;
                }
                let mut end = self.at;
                while end > start && self.separator.pads(self.line[end - 1]) {
                    end -= 1;
                }
                self.more = self.at < self.line.len();
                self.at += usize::from(self.more);
                Some(Field { bytes: &self.line[start..end], column: start + 1 })
            }
        }
    }

    /// The next field, or an error that says what is missing.
    pub fn need(&mut self, expected: &'static str) -> Result<Field<'a>, Wrong> {
        self.next().ok_or_else(|| Wrong { column: self.line.len() + 1, expected, found: "the end of the line".into() })
    }

    /// Nothing may follow.
    pub fn end(&mut self) -> Result<(), Wrong> {
        match self.next() {
            None => Ok(()),
            Some(field) => Err(field.wrong("the end of the line")),
        }
    }

    /// From the start of `first` to the end of `last`, both of this line.
    pub fn span(&self, first: Field<'a>, last: Field<'a>) -> &'a [u8] {
        &self.line[first.column - 1..last.column - 1 + last.bytes.len()]
    }
}

/// A field with its unit in picoseconds and its description.
pub(super) type Time<'a> = (Field<'a>, u64, &'static str);

pub(super) fn record<'a>(
    op: Op,
    device: &'a [u8],
    (stamp, unit_ps, expected): Time<'a>,
    (offset_field, offset): (Field<'a>, u64),
    (length_field, length): (Field<'a>, u64),
) -> Result<Record<'a>, Wrong> {
    let length = length_field.check_length(op, length)?;
    let offset = offset_field.check_end(offset, length)?;
    let time = stamp.time(unit_ps, expected)?;
    Ok(Record { stamp: time, device, op, offset, length, fua: false, stamp_column: stamp.column })
}

pub(super) fn flush<'a>(device: &'a [u8], (stamp, unit_ps, expected): Time<'a>) -> Result<Record<'a>, Wrong> {
    let time = stamp.time(unit_ps, expected)?;
    Ok(Record { stamp: time, device, op: Op::Flush, offset: 0, length: 0, fua: false, stamp_column: stamp.column })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Field<'_> {
        Field { bytes: text.as_bytes(), column: 1 }
    }

    #[test]
    fn times_are_exact() {
        assert_eq!(field("128166385295514663").time(100_000, "t"), Ok(12_816_638_529_551_466_300_000));
        assert_eq!(field("1456095145.133076000").time(1_000_000_000_000, "t"), Ok(1_456_095_145_133_076_000_000));
        assert_eq!(field("0.5").time(1_000, "t"), Ok(500));
        assert_eq!(field("7961.833").time(1_000_000_000, "t"), Ok(7_961_833_000_000));
        assert_eq!(field("5e-05").time(1_000_000_000_000, "t"), Ok(50_000_000));
        for bad in ["", ".", "-1", "1.2.3", "e5", "1e99", "nan", "inf", "999999999999999999999", "1,0"] {
            assert!(field(bad).time(1, "t").is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_refuse_what_they_cannot_hold() {
        assert_eq!(field("18446744073709551615").number("n"), Ok(u64::MAX));
        assert!(field("18446744073709551616").number("n").is_err());
        assert!(field("+1").number("n").is_err());
        assert_eq!(field("0x0ab0242000").hex("h"), Ok(0x0a_b024_2000));
        assert!(field("0x").hex("h").is_err());
        assert!(field("99999999999999999999").scaled(512, "n").is_err());
        assert!(field("18446744073709551615").scaled(512, "n").is_err());
    }

    #[test]
    fn fields_know_their_columns() {
        let mut csv = Fields::new(b"a, bb ,,c\r", Separator::Comma);
        let all: Vec<_> = std::iter::from_fn(|| csv.next()).map(|f| (f.bytes, f.column)).collect();
        assert_eq!(all, [(&b"a"[..], 1), (b"bb", 4), (b"", 8), (b"c", 9)]);
        let mut blanks = Fields::new(b"  a\tbb \r", Separator::Blank);
        let all: Vec<_> = std::iter::from_fn(|| blanks.next()).map(|f| (f.bytes, f.column)).collect();
        assert_eq!(all, [(&b"a"[..], 3), (b"bb", 5)]);
    }
}
