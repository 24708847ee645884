//! What can be due in a device, room by room, and the queue that it waits in.

mod queue;

pub use queue::{LANE_PLACES, LANES, Packed};

/// The device's own future.
pub type EventQueue = queue::EventQueue<Event>;

/// What each lane is for: one constant latency each.
pub mod lane {
    /// Array reads, by page kind (3 lanes).
    pub const READ: usize = 0;
    /// Array programs, by page kind (3 lanes).
    pub const PROGRAM: usize = 3;
    /// Erases.
    pub const ERASE: usize = 6;
    /// Bus transfers of a whole program row.
    pub const BUS_IN: usize = 7;
    /// Bus transfers of one unit that was read; and of as many as are most common beside (2 lanes).
    pub const BUS_OUT: usize = 8;
    /// The command pipeline.
    pub const COMMAND: usize = 10;
    /// Data from the host over the link.
    pub const DATA_IN: usize = 11;
    /// Map entries that were looked up in a memory: beside data from the host, since few commands have both.
    pub const TRANSLATE: usize = DATA_IN;
    /// Completions behind data to the host.
    pub const COMPLETE_READ: usize = 12;
    /// Completions without data.
    pub const COMPLETE: usize = 13;
    /// Suspensions of programs and erases, and rows that wait to be filled.
    pub const SUSPEND: usize = 14;
    /// Whatever has no constant latency: the heap.
    pub const OTHER: usize = 15;
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Units of one row to the controller.
    Read,
    /// A whole row from the controller.
    Program,
    /// A superblock.
    Erase,
}

/// An event: what fell due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The array of a die has finished, unless its generation has moved on (a suspension).
    Cell {
        /// The die.
        die: u32,
        /// The die's generation when this was scheduled.
        generation: u32,
        /// What its operation does: each kind ends in a way of its own, which is chosen together with what happened.
        kind: Kind,
    },
    /// A bus transfer has ended.
    Bus {
        /// The channel.
        channel: u32,
        /// Whether it went to a die.
        inward: bool,
    },
    /// Another codeword of a log row has crossed a bus.
    Crossed {
        /// The channel.
        channel: u32,
    },
    /// A command has left the command pipeline.
    Command {
        /// Its slot.
        slot: u32,
    },
    /// A command's data has arrived from the host, or was read from a buffer.
    Data {
        /// Its slot.
        slot: u32,
    },
    /// A command's completion has reached the host.
    Complete {
        /// Its slot.
        slot: u32,
    },
    /// A piece of log bytes has reached the ring's memory.
    Persist {
        /// The lane: 16 times its function, and its number there.
        lane: u32,
    },
    /// A deadline of a function's transport has come.
    Transport {
        /// The function.
        function: u32,
    },
    /// A command of the fast side has waited long enough.
    LogWait {
        /// Its place.
        place: u32,
        /// The place's generation when this was scheduled.
        generation: u32,
    },
    /// A stage of an access to host memory is over.
    HostMemory {
        /// The place of the access.
        place: u32,
    },
    /// Something of the byte window is due.
    Window {
        /// What: see `window::jobs`.
        place: u32,
        /// The place's generation when this was scheduled.
        generation: u32,
    },
    /// Log bytes may have waited long enough to be destaged with filler.
    Destage {
        /// The function.
        function: u32,
    },
    /// A row has waited long enough to be filled.
    Fill {
        /// The row.
        row: u32,
        /// The row's generation when this was scheduled.
        generation: u32,
    },
    /// The host may have been quiet long enough to fold the SLC cache.
    Fold,
}

impl Packed for Event {
    // Always inlined: nearly every caller makes one kind of event, for which this is a shift.
    #[inline(always)]
    fn pack(self) -> u64 {
        let (kind, index, generation) = match self {
            Event::Cell { die, generation, kind: Kind::Read } => (0, die, generation),
            Event::Bus { channel, inward: false } => (1, channel, 0),
            Event::Cell { die, generation, kind: Kind::Program } => (13, die, generation),
            Event::Cell { die, generation, kind: Kind::Erase } => (14, die, generation),
            Event::Bus { channel, inward: true } => (15, channel, 0),
            Event::Command { slot } => (2, slot, 0),
            Event::Data { slot } => (3, slot, 0),
            Event::Complete { slot } => (4, slot, 0),
            Event::Fill { row, generation } => (5, row, generation),
            Event::Persist { lane } => (6, lane, 0),
            Event::Destage { function } => (7, function, 0),
            Event::Transport { function } => (8, function, 0),
            Event::LogWait { place, generation } => (9, place, generation),
            Event::Window { place, generation } => (10, place, generation),
            Event::Fold => (12, 0, 0),
            Event::HostMemory { place } => (11, place, 0),
            Event::Crossed { channel } => (16, channel, 0),
        };
        debug_assert!(index < 1 << 24);
        u64::from(generation) << 32 | u64::from(index) << 8 | kind
    }

    #[inline]
    fn unpack(bits: u64) -> Event {
        let (index, generation) = ((bits as u32) >> 8, (bits >> 32) as u32);
        match bits & 0xff {
            0 => Event::Cell { die: index, generation, kind: Kind::Read },
            1 => Event::Bus { channel: index, inward: false },
            2 => Event::Command { slot: index },
            3 => Event::Data { slot: index },
            4 => Event::Complete { slot: index },
            5 => Event::Fill { row: index, generation },
            6 => Event::Persist { lane: index },
            7 => Event::Destage { function: index },
            8 => Event::Transport { function: index },
            9 => Event::LogWait { place: index, generation },
            10 => Event::Window { place: index, generation },
            11 => Event::HostMemory { place: index },
            13 => Event::Cell { die: index, generation, kind: Kind::Program },
            14 => Event::Cell { die: index, generation, kind: Kind::Erase },
            15 => Event::Bus { channel: index, inward: true },
            16 => Event::Crossed { channel: index },
            _ => Event::Fold,
        }
    }
}
