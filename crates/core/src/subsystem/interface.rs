//! What crosses the border of a subsystem: inputs, outputs, and what they name.
//!
//! Nothing here moves payload. The subsystem says *from where to where* bytes go ([`Output::Fetch`], [`Output::Taken`],
//! [`Output::Data`]); the driver of the loop holds them, moves them, and answers with [`Input::Moved`].

use crate::border::{GroupError, LogInput};
use crate::content::Whereabouts;
use crate::fast::{Content, Place};
use crate::host_memory::{Access, Answer, HostFault, Ticket};
use tidewater_base::{Duration, Instant};
use tidewater_wire::nvme::{Cqe, Sqe};

/// A command that the subsystem has taken: its place in the table of commands, below
/// [`Subsystem::slots`](super::Subsystem::slots). It is free again after its [`Output::Complete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u16);

/// An access of the subsystem to control structures in the host's memory, which an input answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u32);

/// Why bytes could not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MoveError {
    /// The host's memory is not there, or the connection to it has gone: Data Transfer Error.
    Host,
    /// The backing store could not read what it had stored: Unrecovered Read Error.
    Medium,
    /// Of a compare: the bytes differ: Compare Failure.
    Differs,
}

/// The backing store failed: a write fault, and a drive that only reads from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreFault;

/// A command in a slot, for the carrier of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The controller.
    pub function: u8,
    /// The submission queue; 0 is the admin queue.
    pub queue: u16,
    /// The entry, as it was read.
    pub sqe: Sqe,
    /// When it was read.
    pub begun: Instant,
}

/// How a controller is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A PCI function: queues and data in the host's memory.
    #[default]
    Pcie,
    /// NVMe over Fabrics: commands come as capsules, and data moves by the connection.
    Fabrics,
}

/// What happens outside of the subsystem. `function` numbers controllers: PCI functions first, then those of fabrics.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The host has written a register of BAR0, doorbells included, or set a property. Any offset, any length, any
    /// value.
    Register {
        /// The controller.
        function: u8,
        /// The byte in BAR0.
        offset: u32,
        /// Bytes: 1 to 8.
        len: u8,
        /// Little-endian.
        value: u64,
    },
    /// A shadow doorbell was found changed (Doorbell Buffer Config).
    Doorbell {
        /// The controller.
        function: u8,
        /// Its queue; 0 is the admin queue.
        queue: u16,
        /// The head of a completion queue, else the tail of a submission queue.
        completion: bool,
        /// The new value: any.
        value: u16,
    },
    /// Answers [`Output::DmaRead`].
    DmaRead {
        /// As the output had it.
        token: Token,
        /// As many bytes as were asked for; `None`: the host's memory is not there.
        bytes: Option<&'a [u8]>,
    },
    /// Answers [`Output::Gather`].
    Gathered {
        /// The command.
        slot: Slot,
        /// As many bytes as were asked for; `None`: the host's memory, or the connection, is not there.
        bytes: Option<&'a [u8]>,
    },
    /// A completion queue entry of a PCIe controller could not be written: its memory is not there. The controller
    /// stops with Controller Fatal Status.
    PostFailed {
        /// The controller.
        function: u8,
    },
    /// Answers each [`Output::Fetch`], each [`Output::Data`] and each [`Output::Send`].
    Moved {
        /// The command.
        slot: Slot,
        /// Whether all of its bytes arrived.
        result: Result<(), MoveError>,
    },
    /// Answers [`Output::Sync`] and [`Output::Purge`].
    Synced {
        /// The command.
        slot: Slot,
        /// Whether all that was stored before is safe.
        result: Result<(), StoreFault>,
    },
    /// The backing store has failed to take a page or to forget a block: from now on the drive only reads.
    StoreFailed,
    /// A command of a fabrics controller, that was found to be well-formed by its transport. Its data comes by
    /// [`Output::Fetch`].
    Capsule {
        /// The controller.
        function: u8,
        /// The queue that its connection stands for; 0 is the admin queue.
        queue: u16,
        /// The command.
        sqe: Sqe,
    },
    /// A host has connected over fabrics: `function`, which was free, is a controller from now on.
    Connect {
        /// The controller.
        function: u8,
        /// Entries of its admin queue.
        entries: u16,
        /// Commands that destroy, or change what other hosts see, are allowed
        /// ([`tidewater_wire::nvme::AdminCommand::is_privileged`]).
        privileged: bool,
        /// Keep Alive Timeout of the Connect command in milliseconds; 0: none.
        keep_alive_ms: u32,
    },
    /// Another queue of a fabrics controller has connected.
    ConnectQueue {
        /// The controller.
        function: u8,
        /// The queue, from 1.
        queue: u16,
        /// Its entries.
        entries: u16,
    },
    /// An I/O queue of a fabrics controller is gone: its host has disconnected it, or its connection has ended. Its
    /// number is free again after [`Output::QueueGone`].
    DisconnectQueue {
        /// The controller.
        function: u8,
        /// The queue, from 1.
        queue: u16,
    },
    /// The controller is gone: a fabrics host has left, or its connection has. Nothing is said to it any more, and
    /// [`Output::Gone`] tells when none of its commands is under way.
    Disconnect {
        /// The controller.
        function: u8,
    },
    /// A PCI function is reset (function level reset, or the front end's client has gone): as after power-on, though
    /// drive, namespaces and saved features stay.
    FunctionReset {
        /// The controller.
        function: u8,
    },
    /// The host stores into a function's BAR2, outside of the slice for queues: one TLP.
    Store {
        /// The controller.
        function: u8,
        /// The byte of its BAR2.
        address: u64,
        /// What was stored.
        content: Content<'a>,
    },
    /// Something happens to the log of a function of the fast side, or to its peers.
    Log {
        /// The function.
        function: u8,
        /// The input.
        input: LogInput<'a>,
    },
    /// Time as peers are judged by: the wall's, where the drive's own runs ahead of it or stands still. Counts for
    /// devices whose peers are reached by a network, and must not run backwards.
    PeersTime {
        /// The time, from any start.
        now: Instant,
    },
    /// Answers [`Output::HostMemory`].
    HostMemory {
        /// As the access had it.
        ticket: Ticket,
        /// What came of it.
        answer: Answer,
    },
    /// A load from a function's part of the byte window found no entry under some of its bytes: it is counted. Nothing
    /// else of loads is reported.
    LoadedOutside {
        /// The controller.
        function: u8,
    },
    /// Answers [`Output::LoadWindow`].
    WindowFill {
        /// The logical page.
        lpn: u32,
        /// Its content; absent: it can't be read.
        content: Content<'a>,
    },
    /// A fault is injected ([`Fault`]).
    Inject(Fault),
    /// The time that `deadline()` named has come: one event is handled.
    Timer,
}

/// A fault that is injected at run time, for people who write drivers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Commands that touch these blocks of a namespace end with a status.
    Status {
        /// Namespace.
        nsid: u32,
        /// First block and the one behind the last.
        blocks: (u64, u64),
        /// The status field: bits as in `wire::nvme::Status`.
        status: u16,
        /// How many commands; 0: until cleared.
        count: u32,
    },
    /// The next completions of a controller's I/O queues come late.
    Delay {
        /// The controller.
        function: u8,
        /// By how much.
        by: Duration,
        /// How many.
        count: u32,
    },
    /// The next completions of a controller's I/O queues never come.
    Lose {
        /// The controller.
        function: u8,
        /// How many.
        count: u32,
    },
    /// The next completions of a controller's I/O queues come twice.
    Duplicate {
        /// The controller.
        function: u8,
        /// How many.
        count: u32,
    },
    /// Controller Fatal Status is set, and the controller stops until it is reset.
    Fatal {
        /// The controller.
        function: u8,
    },
    /// Something happens to the memory that a host lends, at the next accesses to it.
    HostMemory {
        /// What; of [`HostFault::Stale`], as of [`HostFault::Corrupted`], reads only.
        fault: HostFault,
        /// At how many.
        count: u32,
    },
    /// The next shutdown does not end, until the host resets the controller.
    StuckShutdown {
        /// The controller.
        function: u8,
    },
    /// All of these are forgotten.
    Clear,
}

impl Fault {
    /// The controller that it is about; `None`: it is about none.
    pub fn function(&self) -> Option<u8> {
        match *self {
            Fault::Status { .. } | Fault::HostMemory { .. } | Fault::Clear => None,
            Fault::Delay { function, .. }
            | Fault::Lose { function, .. }
            | Fault::Duplicate { function, .. }
            | Fault::Fatal { function }
            | Fault::StuckShutdown { function } => Some(function),
        }
    }
}

/// What the subsystem has to say.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Control structures are needed from the memory of a PCIe controller's host, or from its CMB
    /// (`Subsystem::region`): submission queue entries, PRP and SGL lists, descriptors of the host memory buffer. At
    /// most 4,096 bytes.
    DmaRead {
        /// Comes back with the answer.
        token: Token,
        /// Whose memory.
        function: u8,
        /// Bus address.
        address: u64,
        /// Bytes.
        len: u32,
    },
    /// The command's data is to be brought from the host (`Subsystem::segments`) and handed in by [`Input::Gathered`]:
    /// the firmware itself reads it (ranges, admin data, vendor commands).
    Gather {
        /// The command.
        slot: Slot,
        /// Bytes.
        len: u32,
    },
    /// A double word for the host's memory: an event index (Doorbell Buffer Config). Not answered. When it is written,
    /// the shadow doorbells are to be looked at once more before the device sleeps.
    EventIndex {
        /// Whose memory.
        function: u8,
        /// Bus address.
        address: u64,
        /// What.
        value: u32,
    },
    /// The command's data is to be brought from the host (`Subsystem::segments`) into the staging area of its slot.
    Fetch {
        /// The command.
        slot: Slot,
        /// Bytes, at most `[host] transfer_max`.
        len: u32,
    },
    /// A unit that a command writes counts from now on: bytes of the slot's staging area (or zeroes, of Write Zeroes)
    /// over what the unit held. They are kept as this version of this unit until [`crate::Device`]'s medium stores
    /// them. Not answered: it can't fail.
    Taken {
        /// The command.
        slot: Slot,
        /// What is written of the unit.
        unit: Unit,
        /// Its new version.
        version: u64,
        /// No data of the slot: zeroes.
        zeroes: bool,
        /// What it held before and where.
        previous: Whereabouts,
    },
    /// A unit of data for the host, or several that follow each other both in the drive and on one page of flash: from
    /// their place to `at` bytes behind the start of the slot's segments; or, of Compare, to be compared with the
    /// slot's staging area.
    Data {
        /// The command.
        slot: Slot,
        /// What is read of the unit; if that is more than the unit has, of those behind it too.
        unit: Unit,
        /// Where the first is.
        place: Whereabouts,
        /// Compare it.
        compare: bool,
    },
    /// All that was stored so far must be safe before this command ends.
    Sync {
        /// The command.
        slot: Slot,
    },
    /// As [`Output::Sync`], and answered alike; besides, nothing that was stored for pages which no unit refers to any
    /// more may be readable in the backing store afterwards (sanitize, secure erase).
    Purge {
        /// The command.
        slot: Slot,
    },
    /// Data that the firmware itself has for the command's segments: data of admin commands, replies of vendor
    /// commands. Bytes of log are to be copied at once: they may be in a ring that moves on.
    Send {
        /// The command.
        slot: Slot,
        /// Where it goes in the command's data.
        at: u32,
        /// What.
        bytes: Box<[u8]>,
        /// Bytes of log that come behind it.
        log: Option<LogPiece>,
    },
    /// What of the subsystem's own state outlives a power cut (`Subsystem::state`) has changed, and is to be stored, so
    /// that the next [`Output::Sync`] makes it safe. Not answered.
    SaveState,
    /// A unit of the memory that a function's host lends ([`Subsystem::host_memory`](super::Subsystem::host_memory)) is
    /// to be read or written: answered by [`Input::HostMemory`]. Accesses are carried out in the order in which they
    /// are said.
    HostMemory {
        /// Whose memory.
        function: u8,
        /// What to do.
        access: Access,
    },
    /// A command has ended. Of a PCIe controller the entry goes to `address` in the host's memory, and then an
    /// interrupt by [`Output::Interrupt`].
    Complete {
        /// The controller.
        function: u8,
        /// The submission queue that it came from.
        queue: u16,
        /// The entry.
        cqe: Cqe,
        /// Where it goes; `None` over fabrics.
        address: Option<u64>,
        /// The command's slot, which is free now; `None` if it never got one, or gave it up while the entry waited for
        /// its time or for room.
        slot: Option<Slot>,
    },
    /// An interrupt of a PCIe controller, behind the entries that it is about.
    Interrupt {
        /// The controller.
        function: u8,
        /// The vector.
        vector: u16,
    },
    /// No command of an I/O queue of a fabrics controller is under way any more, after [`Input::DisconnectQueue`]: it
    /// may be connected again.
    QueueGone {
        /// The controller.
        function: u8,
        /// The queue.
        queue: u16,
    },
    /// A fabrics controller is free again. A host that is still connected to it has lost it: its connections are to be
    /// closed.
    Gone {
        /// A controller whose last command has ended, after [`Input::Disconnect`] or a reset of the subsystem.
        function: u8,
    },
    /// The host of a fabrics controller has not been heard of for as long as its Keep Alive Timeout: its connections
    /// are to be closed, then [`Input::Disconnect`].
    KeepAliveExpired {
        /// The controller.
        function: u8,
    },
    /// A page of the fast side's log goes to flash: its bytes are to be kept as this unit's content.
    StoreLog {
        /// The function.
        function: u8,
        /// The logical page.
        lpn: u32,
        /// Its number in the log.
        number: u64,
        /// What it holds.
        page: crate::fast::LogPage,
        /// The epoch of its header.
        epoch: tidewater_wire::vendor::Epoch,
    },
    /// The byte window wants the bytes of a logical page: answered by [`Input::WindowFill`].
    LoadWindow {
        /// The logical page.
        lpn: u32,
        /// Where they are.
        place: Whereabouts,
    },
    /// A page of the byte window's buffer goes to flash: its bytes there are to be kept as this version of this unit,
    /// at once, until the medium stores them.
    StoreWindow {
        /// The logical page.
        lpn: u32,
        /// Its version.
        version: u64,
        /// Where its bytes begin in the buffer.
        offset: u64,
    },
    /// A frame for a peer of the fast side. Of a data frame, `from` says where its bytes are.
    Frame {
        /// The node.
        peer: u8,
        /// The frame.
        frame: Box<tidewater_wire::replication::Frame>,
        /// Where the bytes of a data frame are.
        from: Option<Place>,
        /// The frame may leave once this version of the function's control block is durable
        /// ([`Transport::version`](crate::fast::transport::Transport::version)).
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

/// Part of a unit (a logical page of the translation layer) that a command is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The logical page.
    pub lpn: u32,
    /// First byte of the unit.
    pub skip: u32,
    /// Bytes of the unit.
    pub len: u32,
    /// Where they are in the command's data.
    pub at: u32,
}

/// A piece of the fast side's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPiece {
    /// The function.
    pub function: u8,
    /// The lane.
    pub lane: u8,
    /// Stream offset of the first byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
    /// Where they are.
    pub from: Place,
}

/// Where a command's data is at the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments<'a> {
    /// Pieces of the host's memory: bus address and bytes, in order; neighbours that touch are one. `true`: a hole of
    /// an SGL (bit bucket), where nothing is moved.
    Host(&'a [Segment]),
    /// The connection carries it.
    Connection,
}

/// A piece of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bus address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Nothing is moved here (SGL bit bucket).
    pub bit_bucket: bool,
}
