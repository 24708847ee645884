//! The log of what came in from outside: enough to run a served device again under the virtual clock, output for
//! output.
//!
//! A log is a header and entries, little-endian. An entry is the instant (8 bytes, picoseconds), a kind (1 byte) and
//! the fields of that kind. Time outs of the device itself are not logged: they follow from what is. Between inputs
//! stand checks: how many outputs there were since the last, and a checksum over them. The header and each entry are
//! followed by the CRC-32C of all of these so far: most bytes that are stored or fetched are in no output, and a change
//! of one would be noticed nowhere else. Logs of version 1 have no such sums.

mod coded;

pub use coded::Malformed;

use super::interface::{Input, Output};
use crate::border::LogInput;
use coded::{Coded as _, Kinds as _, Reader};
use tidewater_base::Instant;

/// What a log begins with.
pub const MAGIC: [u8; 8] = *b"TWINPUT2";
/// The same of version 1, without sums.
pub const MAGIC_1: [u8; 8] = *b"TWINPUT1";

/// An entry.
#[derive(Clone, Debug)]
pub enum Entry<'a> {
    /// An input, and when.
    Input(Instant, Input<'a>),
    /// The power was cut, and came back.
    Cut {
        /// Events of the device that were handled since the last input.
        timers: u64,
    },
    /// The outputs since the last check: how many, and [`Outputs`]' checksum.
    Check {
        /// How many.
        count: u64,
        /// Their checksum.
        checksum: u32,
    },
}

/// A running checksum of outputs.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    count: u64,
    checksum: u32,
    text: String,
}

impl Outputs {
    /// Takes the next output into account.
    pub fn add(&mut self, output: &Output) {
        use std::fmt::Write as _;
        self.text.clear();
        let _ = write!(self.text, "{output:?}");
        self.checksum = tidewater_base::checksum::crc32c_append(self.checksum, self.text.as_bytes());
        self.count += 1;
    }

    /// How many there were, and their checksum, since this was asked last.
    pub fn take(&mut self) -> (u64, u32) {
        let taken = (self.count, self.checksum);
        (self.count, self.checksum) = (0, 0);
        taken
    }

    /// Whether there were any.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Kinds of entries that are no inputs.
const CHECK: u8 = 0;
const CUT: u8 = 18;

/// Appends an input. Time outs are left out.
pub fn write_input(log: &mut Vec<u8>, now: Instant, input: &Input<'_>) {
    match input {
        Input::Timer => {}
        // The kind stands before the function, as in all entries that have one.
        Input::Log { function, input } => {
            (now, (input.kind(), *function)).write(log);
            input.write_fields(log);
        }
        input => {
            now.write(log);
            input.write(log);
        }
    }
}

/// Appends a check.
pub fn write_check(log: &mut Vec<u8>, check: (u64, u32)) {
    ((Instant::ZERO, CHECK), check).write(log);
}

/// Appends a power cut, `timers` events of the device after the last input.
pub fn write_cut(log: &mut Vec<u8>, now: Instant, timers: u64) {
    ((now, CUT), timers).write(log);
}

/// The sum behind a header, or behind entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u32);

impl Sum {
    /// Appends the sum of all so far, of which what is in `log` from its byte `from` on is the last part.
    pub fn seal(&mut self, log: &mut Vec<u8>, from: usize) {
        self.add(&log[from..]);
        log.extend(self.0.to_le_bytes());
    }

    fn add(&mut self, part: &[u8]) {
        self.0 = tidewater_base::checksum::crc32c_append(self.0, part);
    }
}

/// Reads entries, one after the other.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    from: Reader<'a>,
    /// The sum so far, where the log has sums.
    sum: Option<Sum>,
    /// Where that begins which the next sum adds.
    unsummed: usize,
}

impl<'a> Entries<'a> {
    /// The entries behind the header of `log`, from its byte `from` on.
    pub fn new(log: &'a [u8], from: usize) -> Entries<'a> {
        let sum = log.starts_with(&MAGIC).then(Sum::default);
        Entries { from: Reader { log, at: from }, sum, unsummed: 0 }
    }

    /// Checks the sum that stands here, where the log has sums.
    fn check_sum(&mut self) -> Result<(), Malformed> {
        let Some(sum) = &mut self.sum else { return Ok(()) };
        let begin = self.unsummed;
        sum.add(self.from.log.get(begin..self.from.at).unwrap_or_default());
        if self.from.read::<u32>()? != sum.0 {
            let what = if begin == 0 {
                "the header is damaged: its checksum does not fit"
            } else {
                "the entry is damaged: its checksum does not fit"
            };
            return Err(Malformed { at: begin as u64, what });
        }
        self.unsummed = self.from.at;
        Ok(())
    }

    fn entry(&mut self) -> Result<Entry<'a>, Malformed> {
        let from = &mut self.from;
        let (now, kind) = from.read()?;
        let input = match kind {
            CHECK => return Ok(Entry::Check { count: from.read()?, checksum: from.read()? }),
            CUT => return Ok(Entry::Cut { timers: from.read()? }),
            kind => Input::read_fields(kind, from)?,
        };
        let input = match input {
            Some(input) => input,
            None => {
                let function = from.read()?;
                let input = LogInput::read_fields(kind, from)?.ok_or_else(|| from.wrong(LogInput::LACKS))?;
                Input::Log { function, input }
            }
        };
        Ok(Entry::Input(now, input))
    }

    /// Nothing is read behind what is wrong.
    fn end<T>(&mut self, error: Malformed) -> Option<Result<T, Malformed>> {
        self.from.at = self.from.log.len();
        Some(Err(error))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.sum.is_some()
            && self.unsummed == 0
            && let Err(error) = self.check_sum()
        {
            return self.end(error);
        }
        if self.from.at >= self.from.log.len() {
            return None;
        }
        match self.entry().and_then(|entry| self.check_sum().map(|()| entry)) {
            Ok(entry) => Some(Ok(entry)),
            Err(error) => self.end(error),
        }
    }
}

#[cfg(test)]
#[path = "input_log_tests.rs"]
mod tests;
