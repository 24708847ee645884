//! Which access to control structures in the host's memory a token stands for.

use super::interface::{Slot, Token};

/// Which read of control structures a token stands for: a command's list, or entries of a submission queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    List(Slot),
    Queue { function: u8, queue: u16 },
}

impl Read {
    const QUEUE: u32 = 1 << 31;

    pub(super) fn token(self) -> Token {
        match self {
            Read::List(slot) => Token(slot.0.into()),
            Read::Queue { function, queue } => Token(Read::QUEUE | u32::from(function) << 16 | u32::from(queue)),
        }
    }

    pub(super) fn of(token: Token) -> Read {
        if token.0 & Read::QUEUE == 0 {
            Read::List(Slot(token.0 as u16))
        } else {
            Read::Queue { function: (token.0 >> 16) as u8, queue: token.0 as u16 }
        }
    }
}

impl Token {
    /// The controller and the submission queue whose entries are read; `None`: a command's list is.
    pub fn submission_queue(self) -> Option<(u8, u16)> {
        match Read::of(self) {
            Read::Queue { function, queue } => Some((function, queue)),
            Read::List(_) => None,
        }
    }
}
