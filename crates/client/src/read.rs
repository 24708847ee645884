//! `x_pread` (the paper's section 5.1): reads the log as it grows, on a primary or on a secondary.

use tidewater_base::Instant;
use tidewater_wire::vendor::TAIL;

use crate::{Action, Answer, Error, Operation, Outcome, Patience};

/// A place in a lane's log on flash. It moves only over what was read in full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reader {
    lane: u8,
    /// `None`: where the log ends, once it is known.
    position: Option<u64>,
    patience: Patience,
}

impl Reader {
    /// Reads from a stream offset on. A position past 2^63 counts as the tail.
    pub fn at(lane: u8, offset: u64, patience: Patience) -> Reader {
        Reader { lane, position: Some(offset).filter(|offset| *offset < 1 << 63), patience }
    }

    /// Reads what comes from now on.
    pub fn tail(lane: u8, patience: Patience) -> Reader {
        Reader { lane, position: None, patience }
    }

    /// Stream offset of the byte that is read next, once it is known.
    pub fn position(&self) -> Option<u64> {
        self.position
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Ask,
    Asked,
    Pause(Instant),
    Paused(Instant),
    End(Result<Outcome, Error>),
    Over,
}

/// Fills a buffer of the caller's with the next bytes of the log, and blocks until it is full. Filler never gets into
/// it: what drives the operation reads only valid bytes of pages ([`Action::ReadLog`]).
///
/// ```
/// use tidewater_base::Instant;
/// use tidewater_client::{Action, Answer, Operation, Outcome, Patience, Pread, Reader};
///
/// let (log, mut buffer) = (*b"a log on flash", [0; 5]);
/// let mut reader = Reader::at(0, 2, Patience::default());
/// let mut pread = Pread::new(buffer.len(), Instant::ZERO);
/// while let Some(action) = pread.poll(&mut reader) {
///     match action {
///         // This device gives no more than two bytes at once.
///         Action::ReadLog { offset, into, .. } => {
///             let bytes = into.len().min(2);
///             buffer[into.start..][..bytes].copy_from_slice(&log[offset as usize..][..bytes]);
///             pread.on(&mut reader, Instant::ZERO, Answer::Data { offset, bytes });
///         }
///         Action::Done(result) => assert_eq!(result, Ok(Outcome::Read { offset: 2 })),
///         other => unreachable!("{other:?}"),
///     }
/// }
/// assert_eq!((&buffer, reader.position()), (b"log o", Some(7)));
/// ```
#[derive(Clone, Debug)]
pub struct Pread {
    filled: usize,
    bytes: usize,
    /// When bytes last came.
    moved: Instant,
    step: Step,
}

impl Pread {
    /// Fills a buffer of `bytes`.
    pub fn new(bytes: usize, now: Instant) -> Pread {
        Pread { filled: 0, bytes, moved: now, step: Step::Ask }
    }

    /// Bytes came; the reader's position is known.
    fn take(&mut self, reader: &mut Reader, now: Instant, offset: u64, bytes: usize) {
        let start = *reader.position.get_or_insert(offset.min(1 << 63));
        let want = start.saturating_add(self.filled as u64);
        if offset > want && bytes > 0 {
            self.step = Step::End(Err(Error::Released { offset: want, head: offset }));
            return;
        }
        // Bytes from before the position would be an error of the transport: they are not taken.
        let bytes = if offset == want { bytes.min(self.bytes - self.filled) } else { 0 };
        if bytes > 0 {
            self.moved = now;
        }
        self.filled += bytes;
        self.step = if self.filled == self.bytes {
            reader.position = Some(want.saturating_add(bytes as u64));
            Step::End(Ok(Outcome::Read { offset: start }))
        } else if now.since(self.moved) >= reader.patience.timeout {
            Step::End(Err(Error::NoMoreLog { offset: start, filled: self.filled }))
        } else if reader.patience.poll.is_zero() || bytes > 0 {
            Step::Ask
        } else {
            Step::Pause(now + reader.patience.poll)
        };
    }
}

impl Operation for Pread {
    type On = Reader;

    fn poll(&mut self, reader: &mut Reader) -> Option<Action> {
        match self.step {
            Step::Ask => {
                self.step = Step::Asked;
                let offset = reader.position.map_or(TAIL, |start| start.saturating_add(self.filled as u64));
                Some(Action::ReadLog { lane: reader.lane, offset, into: self.filled..self.bytes })
            }
            Step::Pause(until) => {
                self.step = Step::Paused(until);
                Some(Action::Wait { until })
            }
            Step::End(result) => {
                self.step = Step::Over;
                Some(Action::Done(result))
            }
            Step::Asked | Step::Paused(_) | Step::Over => None,
        }
    }

    fn on(&mut self, reader: &mut Reader, now: Instant, answer: Answer) {
        match (self.step, answer) {
            (Step::Asked, Answer::Data { offset, bytes }) => self.take(reader, now, offset, bytes),
            (Step::Asked, Answer::Released { head }) => {
                let offset = reader.position.unwrap_or(TAIL).saturating_add(self.filled as u64);
                self.step = Step::End(Err(Error::Released { offset, head }));
            }
            (Step::Paused(until), Answer::Time) => {
                self.step = if now >= until { Step::Ask } else { Step::Pause(until) };
            }
            (Step::Asked | Step::Paused(_), Answer::Gone) => self.step = Step::End(Err(Error::Gone)),
            _ => {}
        }
    }
}
