//! A client that reads a lane's log on whatever node, while it arrives: the paper's second data path.

use std::rc::Rc;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_wire::vendor::IoCommand;

/// A piece of log that was read.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) node: usize,
    pub(super) lane: usize,
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

/// One reader. It has one command under way at most.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    rng: Rng,
    lane: u8,
    /// The next byte that it wants.
    offset: u64,
    waits: bool,
    read: Vec<u8>,
    pub(super) next_at: Instant,
}

impl Reader {
    pub(super) fn new(lane: usize, now: Instant, seed: u64) -> Reader {
        let rng = Rng::new(seed, b"log reader");
        Reader { rng, lane: lane as u8, offset: 0, waits: false, read: Vec::new(), next_at: now }
    }

    /// Its next command, when it has none under way.
    pub(super) fn act(&mut self, now: Instant, able: bool) -> Option<IoCommand> {
        self.next_at = now + Duration::from_us(1 + self.rng.below(80));
        if self.waits || !able {
            return None;
        }
        self.waits = true;
        self.read.clear();
        let (bytes, wait_ns) = (1 + self.rng.below(900) as u32, self.rng.below(200_000));
        Some(IoCommand::ReadLog { lane: self.lane, offset: self.offset, bytes, wait_ns })
    }

    /// Bytes for its command have come.
    pub(super) fn take(&mut self, bytes: &Rc<[u8]>) {
        self.read.extend(&bytes[..]);
    }

    /// Its command has ended with bytes from an offset on.
    pub(super) fn end(&mut self, node: usize, offset: u64) -> Piece {
        self.waits = false;
        self.offset = offset + self.read.len() as u64;
        Piece { node, lane: self.lane.into(), offset, bytes: std::mem::take(&mut self.read) }
    }

    /// Its command was lost with the power, or refused: it goes on at `offset`.
    pub(super) fn begin_anew(&mut self, offset: Option<u64>) {
        self.waits = false;
        self.offset = offset.unwrap_or(self.offset);
    }
}
