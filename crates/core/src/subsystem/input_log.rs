//! The log of what came in from outside: enough to run a served device again under the virtual clock, output for
//! output.
//!
//! A log is a header and entries, little-endian. An entry is the instant (8 bytes, picoseconds), a kind (1 byte) and
//! the fields of that kind. Time outs of the device itself are not logged: they follow from what is. Between inputs
//! stand checks: how many outputs there were since the last, and a checksum over them. The header and each entry are
//! followed by the CRC-32C of all of these so far: most bytes that are stored or fetched are in no output, and a change
//! of one would be noticed nowhere else. Logs of version 1 have no such sums.

use super::{Fault, Input, MoveError, Output, Slot, StoreFault, Token};
use crate::border::GroupCommand;
use crate::content::Content;
use crate::host_memory::{Answer, HostFault, Stamp, Ticket};
use crate::memory::Use;
use tidewater_base::{Duration, Instant};
use tidewater_wire::nvme::Sqe;
use tidewater_wire::replication::{Epoch, FRAME_BYTES_MAX, Frame, Group};

/// What a log begins with.
pub const MAGIC: [u8; 8] = *b"TWINPUT2";
/// The same of version 1, without sums.
pub const MAGIC_1: [u8; 8] = *b"TWINPUT1";

/// Something that a log has no place for, or no log at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The byte of the log.
    pub at: u64,
    /// What is wrong.
    pub what: &'static str,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {}: {}", self.at, self.what)
    }
}

impl std::error::Error for Malformed {}

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

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }
    fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self
    }
    fn content(&mut self, content: &Content<'_>) -> &mut Self {
        match content {
            Content::Bytes(bytes) => self.u8(1).bytes(bytes),
            Content::Absent(len) => self.u8(0).u32(*len),
        }
    }
}

fn write_fault(w: &mut Writer<'_>, fault: &Fault) {
    match *fault {
        Fault::Status { nsid, blocks: (first, end), status, count } => {
            w.u8(0).u32(nsid).u64(first).u64(end).u16(status).u32(count)
        }
        Fault::Delay { function, by, count } => w.u8(1).u8(function).u64(by.as_ps()).u32(count),
        Fault::Lose { function, count } => w.u8(2).u8(function).u32(count),
        Fault::Duplicate { function, count } => w.u8(3).u8(function).u32(count),
        Fault::Fatal { function } => w.u8(4).u8(function),
        Fault::StuckShutdown { function } => w.u8(5).u8(function),
        Fault::Clear => w.u8(6),
        Fault::HostMemory { fault, count } => {
            let (code, by) = match fault {
                HostFault::Withdrawn => (0, Duration::ZERO),
                HostFault::Corrupted => (1, Duration::ZERO),
                HostFault::Stale => (2, Duration::ZERO),
                HostFault::Slow(by) => (3, by),
            };
            w.u8(7).u8(code).u64(by.as_ps()).u32(count)
        }
    };
}

fn write_answer(w: &mut Writer<'_>, answer: Answer) {
    match answer {
        Answer::Written => w.u8(0),
        Answer::Damaged => w.u8(1),
        Answer::Gone => w.u8(2),
        Answer::Found { stamp: Stamp { used, key, version, generation }, content } => {
            w.u8(3).u8(used as u8).u64(key).u64(version).u64(generation).u64(content)
        }
    };
}

/// Appends an input. Time outs are left out.
pub fn write_input(log: &mut Vec<u8>, now: Instant, input: &Input<'_>) {
    if matches!(input, Input::Timer) {
        return;
    }
    let mut w = Writer(log);
    w.u64(now.as_ps());
    match *input {
        Input::Timer => unreachable!("left out"),
        Input::Register { function, offset, len, value } => {
            w.u8(1).u8(function).u32(offset).u8(len).u64(value);
        }
        Input::Doorbell { function, queue, completion, value } => {
            w.u8(2).u8(function).u16(queue).u8(completion.into()).u16(value);
        }
        Input::DmaRead { token, bytes } => {
            w.u8(3).u32(token.0).u8(bytes.is_some().into()).bytes(bytes.unwrap_or_default());
        }
        Input::Gathered { slot, bytes } => {
            w.u8(4).u16(slot.0).u8(bytes.is_some().into()).bytes(bytes.unwrap_or_default());
        }
        Input::Moved { slot, result } => {
            let code = match result {
                Ok(()) => 0,
                Err(MoveError::Host) => 1,
                Err(MoveError::Medium) => 2,
                Err(MoveError::Differs) => 3,
            };
            w.u8(5).u16(slot.0).u8(code);
        }
        Input::Synced { slot, result } => {
            w.u8(6).u16(slot.0).u8(result.is_err().into());
        }
        Input::StoreFailed => {
            w.u8(7);
        }
        Input::Capsule { function, queue, sqe } => {
            w.u8(8).u8(function).u16(queue);
            w.0.extend(sqe.to_bytes());
        }
        Input::Connect { function, entries, privileged, keep_alive_ms } => {
            w.u8(9).u8(function).u16(entries).u8(privileged.into()).u32(keep_alive_ms);
        }
        Input::ConnectQueue { function, queue, entries } => {
            w.u8(10).u8(function).u16(queue).u16(entries);
        }
        Input::Disconnect { function } => {
            w.u8(11).u8(function);
        }
        Input::DisconnectQueue { function, queue } => {
            w.u8(36).u8(function).u16(queue);
        }
        Input::FunctionReset { function } => {
            w.u8(12).u8(function);
        }
        Input::Store { function, address, ref content } => {
            w.u8(13).u8(function).u64(address).content(content);
        }
        Input::Announce { function, lane, tail, ref content } => {
            w.u8(14).u8(function).u8(lane).u64(tail).content(content);
        }
        Input::Skip { function, lane, to } => {
            w.u8(34).u8(function).u8(lane).u64(to);
        }
        Input::Withhold { function, lane, from } => {
            w.u8(35).u8(function).u8(lane).u64(from);
        }
        Input::Inject(ref fault) => write_fault(w.u8(15), fault),
        Input::LoadedOutside { function } => {
            w.u8(32).u8(function);
        }
        Input::WindowFill { lpn, ref content } => {
            w.u8(33).u32(lpn).content(content);
        }
        Input::PostFailed { function } => {
            w.u8(16).u8(function);
        }
        Input::HostMemory { ticket, answer } => write_answer(w.u8(19).u32(ticket.0), answer),
        Input::Frame { function, ref frame, ref content } => {
            let mut bytes = [0; FRAME_BYTES_MAX];
            let len = frame.encode(&mut bytes);
            w.u8(17).u8(function).bytes(&bytes[..len]).content(content);
        }
        Input::Link { function, peer, up, restarted } => {
            w.u8(20).u8(function).u8(peer).u8(up.into()).u8(restarted.into());
        }
        Input::PeersTime { now } => {
            w.u8(38).u64(now.as_ps());
        }
        Input::RoundTrip { function, peer, time } => {
            w.u8(40).u8(function).u8(peer).u64(time.as_ps());
        }
        Input::CatchUpRate { function, bytes_per_second } => {
            w.u8(43).u8(function).u64(bytes_per_second);
        }
        Input::Flush { function, lane, to } => {
            w.u8(41).u8(function).u8(lane).u64(to);
        }
        Input::Flushed { function, lane, to, version } => {
            w.u8(42).u8(function).u8(lane).u64(to).u64(version);
        }
        Input::Group { function, command } => write_group(w.u8(39).u8(function), &command),
    }
}

fn write_group(w: &mut Writer<'_>, command: &GroupCommand) {
    match *command {
        GroupCommand::Setup { node, group, primary, epoch, force } => {
            w.u8(0).u8(node).bytes(&group.to_bytes()).u8(primary.into()).u64(epoch.0).u8(force.into());
        }
        GroupCommand::Promote { target, epoch, force } => {
            let target = target.map(|group| group.to_bytes());
            w.u8(1).bytes(target.as_ref().map_or(&[], |bytes| &bytes[..])).u64(epoch.0).u8(force.into());
        }
        GroupCommand::Demote => {
            w.u8(2);
        }
        GroupCommand::LostMemory => {
            w.u8(7);
        }
        GroupCommand::StandAlone => {
            w.u8(3);
        }
        GroupCommand::Rebuild => {
            w.u8(4);
        }
        GroupCommand::Lead { epoch, lasts: Some(lasts) } => {
            w.u8(5).u64(epoch.0).u64(lasts.as_ps());
        }
        GroupCommand::Lead { epoch, lasts: None } => {
            w.u8(6).u64(epoch.0);
        }
    }
}

/// Appends a check.
pub fn write_check(log: &mut Vec<u8>, (count, checksum): (u64, u32)) {
    Writer(log).u64(0).u8(0).u64(count).u32(checksum);
}

/// Appends a power cut, `timers` events of the device after the last input.
pub fn write_cut(log: &mut Vec<u8>, now: Instant, timers: u64) {
    Writer(log).u64(now.as_ps()).u8(18).u64(timers);
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
    log: &'a [u8],
    at: usize,
    /// The sum so far, where the log has sums.
    sum: Option<Sum>,
    /// Where that begins which the next sum adds.
    unsummed: usize,
}

impl<'a> Entries<'a> {
    /// The entries behind the header of `log`, from its byte `from` on.
    pub fn new(log: &'a [u8], from: usize) -> Entries<'a> {
        let sum = log.starts_with(&MAGIC).then(Sum::default);
        Entries { log, at: from, sum, unsummed: 0 }
    }

    /// Checks the sum that stands here, where the log has sums.
    fn check_sum(&mut self) -> Result<(), Malformed> {
        let Some(mut sum) = self.sum else { return Ok(()) };
        let from = self.unsummed;
        sum.add(self.log.get(from..self.at).unwrap_or_default());
        if u32::from_le_bytes(self.array()?) != sum.0 {
            let what = if from == 0 {
                "the header is damaged: its checksum does not fit"
            } else {
                "the entry is damaged: its checksum does not fit"
            };
            return Err(Malformed { at: from as u64, what });
        }
        (self.sum, self.unsummed) = (Some(sum), self.at);
        Ok(())
    }

    fn wrong(&self, what: &'static str) -> Malformed {
        Malformed { at: self.at as u64, what }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let rest = self.log.get(self.at..).unwrap_or_default();
        let Some(bytes) = rest.get(..len) else { return Err(self.wrong("the log ends within an entry")) };
        self.at += len;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }
    fn group(&mut self) -> Result<Option<Group>, Malformed> {
        let bytes = self.bytes()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let group = bytes.try_into().ok().and_then(Group::from_bytes);
        group.map(Some).ok_or_else(|| self.wrong("no replication group"))
    }

    fn group_command(&mut self) -> Result<GroupCommand, Malformed> {
        Ok(match self.u8()? {
            0 => GroupCommand::Setup {
                node: self.u8()?,
                group: self.group()?.ok_or_else(|| self.wrong("no replication group"))?,
                primary: self.flag()?,
                epoch: Epoch(self.u64()?),
                force: self.flag()?,
            },
            1 => GroupCommand::Promote { target: self.group()?, epoch: Epoch(self.u64()?), force: self.flag()? },
            2 => GroupCommand::Demote,
            7 => GroupCommand::LostMemory,
            3 => GroupCommand::StandAlone,
            4 => GroupCommand::Rebuild,
            5 => GroupCommand::Lead { epoch: Epoch(self.u64()?), lasts: Some(Duration::from_ps(self.u64()?)) },
            6 => GroupCommand::Lead { epoch: Epoch(self.u64()?), lasts: None },
            _ => return Err(self.wrong("no such wish for a group")),
        })
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("a flag is 0 or 1")),
        }
    }
    fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()?;
        self.take(len as usize)
    }
    fn content(&mut self) -> Result<Content<'a>, Malformed> {
        Ok(if self.flag()? { Content::Bytes(self.bytes()?) } else { Content::Absent(self.u32()?) })
    }

    fn fault(&mut self) -> Result<Fault, Malformed> {
        Ok(match self.u8()? {
            0 => Fault::Status {
                nsid: self.u32()?,
                blocks: (self.u64()?, self.u64()?),
                status: self.u16()?,
                count: self.u32()?,
            },
            1 => Fault::Delay { function: self.u8()?, by: Duration::from_ps(self.u64()?), count: self.u32()? },
            2 => Fault::Lose { function: self.u8()?, count: self.u32()? },
            3 => Fault::Duplicate { function: self.u8()?, count: self.u32()? },
            4 => Fault::Fatal { function: self.u8()? },
            5 => Fault::StuckShutdown { function: self.u8()? },
            6 => Fault::Clear,
            7 => {
                let (code, by) = (self.u8()?, Duration::from_ps(self.u64()?));
                let fault = match code {
                    0 => HostFault::Withdrawn,
                    1 => HostFault::Corrupted,
                    2 => HostFault::Stale,
                    3 => HostFault::Slow(by),
                    _ => return Err(self.wrong("no such fault of host memory")),
                };
                Fault::HostMemory { fault, count: self.u32()? }
            }
            _ => return Err(self.wrong("no such fault")),
        })
    }

    fn answer(&mut self) -> Result<Answer, Malformed> {
        Ok(match self.u8()? {
            0 => Answer::Written,
            1 => Answer::Damaged,
            2 => Answer::Gone,
            3 => {
                let code = self.u8()?;
                let used = Use::ALL.into_iter().find(|used| *used as u8 == code);
                let used = used.ok_or_else(|| self.wrong("no such use of host memory"))?;
                let stamp = Stamp { used, key: self.u64()?, version: self.u64()?, generation: self.u64()? };
                Answer::Found { stamp, content: self.u64()? }
            }
            _ => return Err(self.wrong("no such answer of host memory")),
        })
    }

    fn entry(&mut self) -> Result<Entry<'a>, Malformed> {
        let now = Instant::from_ps(self.u64()?);
        let input = match self.u8()? {
            0 => return Ok(Entry::Check { count: self.u64()?, checksum: self.u32()? }),
            18 => return Ok(Entry::Cut { timers: self.u64()? }),
            1 => Input::Register { function: self.u8()?, offset: self.u32()?, len: self.u8()?, value: self.u64()? },
            2 => Input::Doorbell {
                function: self.u8()?,
                queue: self.u16()?,
                completion: self.flag()?,
                value: self.u16()?,
            },
            3 => {
                let token = Token(self.u32()?);
                let found = self.flag()?;
                let bytes = self.bytes()?;
                Input::DmaRead { token, bytes: found.then_some(bytes) }
            }
            4 => {
                let slot = Slot(self.u16()?);
                let found = self.flag()?;
                let bytes = self.bytes()?;
                Input::Gathered { slot, bytes: found.then_some(bytes) }
            }
            5 => {
                let slot = Slot(self.u16()?);
                let result = match self.u8()? {
                    0 => Ok(()),
                    1 => Err(MoveError::Host),
                    2 => Err(MoveError::Medium),
                    3 => Err(MoveError::Differs),
                    _ => return Err(self.wrong("no such result of a move")),
                };
                Input::Moved { slot, result }
            }
            6 => {
                let slot = Slot(self.u16()?);
                Input::Synced { slot, result: if self.flag()? { Err(StoreFault) } else { Ok(()) } }
            }
            7 => Input::StoreFailed,
            8 => Input::Capsule { function: self.u8()?, queue: self.u16()?, sqe: Sqe::from_bytes(&self.array()?) },
            9 => Input::Connect {
                function: self.u8()?,
                entries: self.u16()?,
                privileged: self.flag()?,
                keep_alive_ms: self.u32()?,
            },
            10 => Input::ConnectQueue { function: self.u8()?, queue: self.u16()?, entries: self.u16()? },
            11 => Input::Disconnect { function: self.u8()? },
            36 => Input::DisconnectQueue { function: self.u8()?, queue: self.u16()? },
            12 => Input::FunctionReset { function: self.u8()? },
            13 => Input::Store { function: self.u8()?, address: self.u64()?, content: self.content()? },
            14 => {
                Input::Announce { function: self.u8()?, lane: self.u8()?, tail: self.u64()?, content: self.content()? }
            }
            34 => Input::Skip { function: self.u8()?, lane: self.u8()?, to: self.u64()? },
            35 => Input::Withhold { function: self.u8()?, lane: self.u8()?, from: self.u64()? },
            15 => Input::Inject(self.fault()?),
            16 => Input::PostFailed { function: self.u8()? },
            19 => Input::HostMemory { ticket: Ticket(self.u32()?), answer: self.answer()? },
            32 => Input::LoadedOutside { function: self.u8()? },
            33 => Input::WindowFill { lpn: self.u32()?, content: self.content()? },
            17 => {
                let function = self.u8()?;
                let frame = Frame::parse(self.bytes()?).map_err(|_| self.wrong("no frame of a peer"))?;
                Input::Frame { function, frame: Box::new(frame), content: self.content()? }
            }
            20 => Input::Link { function: self.u8()?, peer: self.u8()?, up: self.flag()?, restarted: self.flag()? },
            38 => Input::PeersTime { now: Instant::from_ps(self.u64()?) },
            40 => Input::RoundTrip { function: self.u8()?, peer: self.u8()?, time: Duration::from_ps(self.u64()?) },
            43 => Input::CatchUpRate { function: self.u8()?, bytes_per_second: self.u64()? },
            41 => Input::Flush { function: self.u8()?, lane: self.u8()?, to: self.u64()? },
            42 => Input::Flushed { function: self.u8()?, lane: self.u8()?, to: self.u64()?, version: self.u64()? },
            39 => Input::Group { function: self.u8()?, command: self.group_command()? },
            _ => return Err(self.wrong("no such kind of entry")),
        };
        Ok(Entry::Input(now, input))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.sum.is_some()
            && self.unsummed == 0
            && let Err(error) = self.check_sum()
        {
            self.at = self.log.len();
            return Some(Err(error));
        }
        if self.at >= self.log.len() {
            return None;
        }
        let entry = self.entry().and_then(|entry| self.check_sum().map(|()| entry));
        if entry.is_err() {
            self.at = self.log.len();
        }
        Some(entry)
    }
}

#[cfg(test)]
#[path = "input_log_tests.rs"]
mod tests;
