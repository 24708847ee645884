//! What crosses the border of a device: inputs and outputs.

mod lent;

pub use lent::{Access, Answer, Lending, Operation, Stamp, Ticket};

mod group;
mod log;

pub use group::{GroupCommand, GroupError};
pub use log::LogInput;

use crate::content::{Content, LogPage, Place, Whereabouts};
use crate::host::{Completion, Request, Submission};
use tidewater_base::Instant;
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::replication::Frame;
use tidewater_wire::vendor::Epoch;

/// What happens outside.
#[derive(Debug)]
pub enum Input<'a> {
    /// The host has put a command into a submission queue and rung its doorbell.
    Submit {
        /// The queue, from 0.
        queue: u16,
        /// The command.
        submission: Submission,
    },
    /// A front end with queues of its own has parsed a command and checked it.
    Begin(Request),
    /// The host has stored into a function's BAR2: one TLP. Posted: nothing is answered, and what can't be taken is
    /// dropped and counted.
    Store {
        /// The function.
        function: u8,
        /// The byte of its BAR2.
        address: u64,
        /// What was stored.
        content: Content<'a>,
    },
    /// The host loads from a function's BAR2: answered by [`Output::Loaded`].
    Load {
        /// The function.
        function: u8,
        /// The byte of its BAR2.
        address: u64,
        /// Bytes, 1 to 8.
        len: u8,
        /// Comes back with what was found.
        tag: u64,
    },
    /// Something happens to a function's log, or to its peers.
    Log {
        /// The function.
        function: u8,
        /// The input.
        input: LogInput<'a>,
    },
    /// A command of the fast side, admin or I/O, with its data: answered by [`Output::Reply`].
    Capsule {
        /// The function of the controller that it came to.
        function: u8,
        /// The command.
        sqe: Sqe,
        /// Its data.
        data: &'a [u8],
    },
    /// A command of the byte window, with its data: answered by [`Output::Reply`].
    Window {
        /// The command.
        sqe: Sqe,
        /// Its data.
        data: &'a [u8],
        /// The version of what a Flush writes: as the tag of a [`Submission`].
        tag: u64,
    },
    /// What [`Output::WindowLoad`] asked for. Content that is not there says that it can't be had.
    WindowFill {
        /// The logical page.
        lpn: u32,
        /// Its content.
        content: Content<'a>,
    },
    /// Time as peers are judged by: the wall's, where the drive's own runs ahead of it or stands still. Counts for
    /// devices whose peers are reached by a network, and must not run backwards.
    PeersTime {
        /// The time, from any start.
        now: Instant,
    },
    /// The host lends memory, or wants it back, or has taken it.
    Lending(Lending),
    /// Answers [`Output::HostMemory`].
    HostMemory {
        /// As the output had it.
        ticket: Ticket,
        /// What came of it.
        answer: Answer,
    },
    /// The time that [`Device::deadline`](crate::Device::deadline) named has come: one event is handled.
    Timer,
}

/// What the device has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A completion queue entry.
    Complete(Completion),
    /// What a read found, unit by unit and before its completion; only when stamps are kept.
    Data {
        /// The command's queue.
        queue: u16,
        /// The command's identifier.
        cid: u16,
        /// The logical page.
        lpn: u32,
        /// Where it is, and which version.
        place: Whereabouts,
    },
    /// A page that a command writes counts from now on, in the order in which pages were taken; only with a
    /// payload store.
    Taken {
        /// The command's queue.
        queue: u16,
        /// The command's identifier.
        cid: u16,
        /// The logical page.
        lpn: u32,
        /// Where it was until now: what a command does not write of a page stays as it is.
        previous: Whereabouts,
    },
    /// A page of the log goes to flash: its bytes, which are in the ring until something else happens, are to be kept
    /// under its sequence; only when stamps are kept.
    Store {
        /// The function.
        function: u8,
        /// The logical page.
        lpn: u32,
        /// Its number in the log.
        number: u64,
        /// The epoch of its header.
        epoch: Epoch,
        /// What it holds.
        page: LogPage,
    },
    /// What a load found.
    Loaded {
        /// As the load had it.
        tag: u64,
        /// Up to 8 bytes, little-endian.
        value: u64,
    },
    /// Bytes of log for a command, before its reply: the carrier of the reply copies them from where they are.
    Log {
        /// The command's identifier.
        cid: u16,
        /// The function.
        function: u8,
        /// The lane.
        lane: u8,
        /// Stream offset of the first.
        offset: u64,
        /// How many.
        len: u32,
        /// Where they are.
        from: Place,
    },
    /// The byte window wants a page's bytes, answered by [`Input::WindowFill`]; only when stamps are kept.
    WindowLoad {
        /// The logical page.
        lpn: u32,
        /// Where they are.
        place: Whereabouts,
    },
    /// A page of the byte window goes to flash: its bytes, which are in the buffer
    /// ([`Window::read`](crate::window::Window::read)) until something else happens, are to be kept under its page and
    /// version; only when stamps are kept.
    WindowStore {
        /// The logical page.
        lpn: u32,
        /// Its version.
        version: u64,
        /// Where its bytes begin in the buffer.
        offset: u64,
    },
    /// Host memory is to be read or written: answered by [`Input::HostMemory`]. Accesses are carried out in the order
    /// in which they are said.
    HostMemory(Access),
    /// Nothing of the drive's is in host memory any more: answers [`Lending::Withdraw`].
    HostMemoryFree,
    /// A command of the fast side or of the byte window has ended.
    Reply {
        /// Its identifier.
        cid: u16,
        /// How.
        status: Status,
        /// Double word 0 of its completion.
        result: u32,
        /// Data for the host; [`Output::Log`] bytes come behind it.
        data: Vec<u8>,
    },
    /// A frame for a peer. Of a data frame, `from` says where its bytes are.
    Frame {
        /// The node.
        peer: u8,
        /// The frame.
        frame: Box<Frame>,
        /// Where the bytes of a data frame are.
        from: Option<Place>,
        /// The frame may leave once this version of the function's persistent state is durable
        /// ([`Transport::version`](crate::fast::transport::Transport::version)). A carrier of simulated frames needs
        /// not look: the control block is in memory that is not volatile, and durable at once.
        after: u64,
    },
    /// Answers [`LogInput::Group`].
    Grouped {
        /// The function.
        function: u8,
        /// Whether it was begun. How a promotion ends is seen in the transport's status.
        result: Result<(), GroupError>,
    },
}

/// Why there can be no such device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupError(pub String);

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SetupError {}
