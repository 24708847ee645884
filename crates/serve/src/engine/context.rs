//! Shared by all rooms of the engine: the time, inputs on their way to the firmware, buffers, and notes to the user.

use super::{Event, Firmware};
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_core::border::LogInput;
use tidewater_core::fast::Content;
use tidewater_core::subsystem::{Input, Slot, Token};
use tidewater_wire::replication::Frame;

/// Buffers kept for reuse, at most.
const SPARE_MAX: usize = 256;

/// An input that waits for its turn, with its bytes.
#[derive(Debug)]
pub(crate) enum Pending {
    Plain(Input<'static>),
    DmaRead(Token, Option<Vec<u8>>),
    Gathered(Slot, Option<Vec<u8>>),
    Store { function: u8, address: u64, bytes: Vec<u8> },
    Announce { function: u8, lane: u8, tail: u64, bytes: Vec<u8> },
    WindowFill { lpn: u32, bytes: Option<Vec<u8>> },
    Frame { frame: Box<Frame>, bytes: Vec<u8> },
}

/// Shared by the methods of all rooms.
#[derive(Debug)]
pub(crate) struct Context {
    /// The time of the last look at the clock: inputs are stamped with it.
    pub(crate) now: Instant,
    /// Inputs on their way to the firmware, in order.
    pub(crate) pending: VecDeque<(Instant, Pending)>,
    /// The bytes of the input that was handed in last: they are borrowed until the next.
    current: Vec<u8>,
    /// Buffers that come back after use.
    spare: Vec<Vec<u8>>,
    /// Notes for the user.
    pub(crate) notes: Vec<Event>,
}

/// The context beside the firmware, which rooms only look at.
pub(crate) struct Turn<'a> {
    pub(crate) cx: &'a mut Context,
    pub(crate) firmware: &'a Firmware,
}

impl Context {
    pub(crate) fn new() -> Context {
        Context {
            now: Instant::ZERO,
            pending: VecDeque::with_capacity(1_024),
            current: Vec::new(),
            spare: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, input: Input<'static>) {
        self.put(Pending::Plain(input));
    }

    /// An input for the log of a function.
    pub(crate) fn push_log(&mut self, function: u8, input: LogInput<'static>) {
        self.push(Input::Log { function, input });
    }

    #[inline]
    pub(crate) fn put(&mut self, pending: Pending) {
        self.pending.push_back((self.now, pending));
    }

    /// A buffer of zeroes.
    pub(crate) fn buffer(&mut self, len: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.resize(len, 0);
        buffer
    }

    /// Takes a buffer back.
    #[inline]
    pub(crate) fn spare(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && buffer.capacity() > 0 {
            self.spare.push(buffer);
        }
    }

    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(Event::Note(text));
    }

    pub(crate) fn warn(&mut self, text: String) {
        self.notes.push(Event::Warning(text));
    }

    /// The input of [`Context::pending`] that was taken from there, with its bytes until the next one.
    #[inline]
    pub(crate) fn hand_in(&mut self, pending: Pending) -> Input<'_> {
        let before = std::mem::take(&mut self.current);
        self.spare(before);
        let current = &mut self.current;
        let keep = move |bytes: Vec<u8>| -> &[u8] {
            let current = current;
            *current = bytes;
            current
        };
        match pending {
            Pending::Plain(input) => input,
            Pending::DmaRead(token, bytes) => Input::DmaRead { token, bytes: bytes.map(keep) },
            Pending::Gathered(slot, bytes) => Input::Gathered { slot, bytes: bytes.map(keep) },
            Pending::Store { function, address, bytes } => {
                Input::Store { function, address, content: Content::Bytes(keep(bytes)) }
            }
            Pending::Announce { function, lane, tail, bytes } => {
                let input = LogInput::Announce { lane, tail, content: Content::Bytes(keep(bytes)) };
                Input::Log { function, input }
            }
            Pending::WindowFill { lpn, bytes } => Input::WindowFill {
                lpn,
                content: bytes.map_or(Content::Absent(0), |bytes| Content::Bytes(keep(bytes))),
            },
            Pending::Frame { frame, bytes } => {
                let function = frame.function;
                Input::Log { function, input: LogInput::Frame { frame, content: Content::Bytes(keep(bytes)) } }
            }
        }
    }
}
