//! How values stand in a log: each kind of entry is one row, for writing and for reading.

use crate::border::{GroupCommand, LogInput};
use crate::content::Content;
use crate::host_memory::{Answer, HostFault, Stamp, Ticket};
use crate::memory::Use;
use crate::subsystem::interface::{Fault, Input, MoveError, Slot, StoreFault, Token};
use tidewater_base::{Duration, Instant};
use tidewater_wire::nvme::Sqe;
use tidewater_wire::replication::{Epoch, FRAME_BYTES_MAX, Frame, Group};

/// Something that a log has no place for, or no log at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The byte of the log.
    pub at: u64,
    /// The fault.
    pub what: &'static str,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "byte {}: {}", self.at, self.what)
    }
}

impl std::error::Error for Malformed {}

/// The bytes of a log, read one after the other.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    pub log: &'a [u8],
    pub at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn wrong(&self, what: &'static str) -> Malformed {
        Malformed { at: self.at as u64, what }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let rest = self.log.get(self.at..).unwrap_or_default();
        let Some(bytes) = rest.get(..len) else { return Err(self.wrong("the log ends within an entry")) };
        self.at += len;
        Ok(bytes)
    }

    pub(super) fn read<T: Coded<'a>>(&mut self) -> Result<T, Malformed> {
        T::read(self)
    }
}

/// A value with a place in a log.
pub(super) trait Coded<'a>: Sized {
    fn write(&self, log: &mut Vec<u8>);
    fn read(from: &mut Reader<'a>) -> Result<Self, Malformed>;
}

/// Values of several kinds: the number of the kind, and behind it the fields.
pub(super) trait Kinds<'a>: Sized {
    /// The reason why another number is wrong.
    const LACKS: &'static str;
    fn kind(&self) -> u8;
    fn write_fields(&self, log: &mut Vec<u8>);
    /// `None`: there is no such kind.
    fn read_fields(kind: u8, from: &mut Reader<'a>) -> Result<Option<Self>, Malformed>;
}

impl<'a, T: Kinds<'a>> Coded<'a> for T {
    #[inline]
    fn write(&self, log: &mut Vec<u8>) {
        self.kind().write(log);
        self.write_fields(log);
    }

    fn read(from: &mut Reader<'a>) -> Result<T, Malformed> {
        let kind = from.read()?;
        T::read_fields(kind, from)?.ok_or_else(|| from.wrong(T::LACKS))
    }
}

/// A row for each kind: its number, the variant, and the fields in their order. Behind a semicolon stands a field that
/// is `None` in this kind. Variants that follow `besides` are of no kind.
macro_rules! kinds {
    ($of:ty, $lacks:literal; $($kind:literal: $variant:ident
        $({ $($field:ident),* $(; $none:ident)? })? $(($inner:ident))?,)* $(besides $($other:ident)*)?) => {
        impl<'a> Kinds<'a> for $of {
            const LACKS: &'static str = $lacks;

            #[inline]
            fn kind(&self) -> u8 {
                match self {
                    $(Self::$variant { $($($none: None,)?)? .. } => $kind,)*
                    $($(Self::$other { .. })|* => unreachable!("has no kind"),)?
                }
            }

            #[inline]
            fn write_fields(&self, log: &mut Vec<u8>) {
                match self {
                    $(Self::$variant $({ $($field,)* $($none: None)? })? $(($inner))? => {
                        $($($field.write(log);)*)?
                        $($inner.write(log);)?
                    })*
                    $($(Self::$other { .. })|* => unreachable!("has no kind"),)?
                }
            }

            fn read_fields(kind: u8, from: &mut Reader<'a>) -> Result<Option<Self>, Malformed> {
                Ok(Some(match kind {
                    $($kind => Self::$variant
                        $({ $($field: from.read()?,)* $($none: None)? })? $(({ let $inner = from.read()?; $inner }))?,)*
                    _ => return Ok(None),
                }))
            }
        }
    };
}

kinds! {
    Input<'a>, "no such kind of entry";
    1: Register { function, offset, len, value },
    2: Doorbell { function, queue, completion, value },
    3: DmaRead { token, bytes },
    4: Gathered { slot, bytes },
    5: Moved { slot, result },
    6: Synced { slot, result },
    7: StoreFailed,
    8: Capsule { function, queue, sqe },
    9: Connect { function, entries, privileged, keep_alive_ms },
    10: ConnectQueue { function, queue, entries },
    11: Disconnect { function },
    12: FunctionReset { function },
    13: Store { function, address, content },
    15: Inject(fault),
    16: PostFailed { function },
    19: HostMemory { ticket, answer },
    32: LoadedOutside { function },
    33: WindowFill { lpn, content },
    36: DisconnectQueue { function, queue },
    38: PeersTime { now },
    besides Log Timer
}

kinds! {
    LogInput<'a>, "no such kind of entry";
    14: Announce { lane, tail, content },
    17: Frame { frame, content },
    20: Link { peer, up, restarted },
    34: Skip { lane, to },
    35: Withhold { lane, from },
    39: Group(command),
    40: RoundTrip { peer, time },
    41: Flush { lane, to },
    42: Flushed { lane, to, version },
    43: CatchUpRate { bytes_per_second },
}

kinds! {
    GroupCommand, "no such wish for a group";
    0: Setup { node, group, primary, epoch, force },
    1: Promote { target, epoch, force },
    2: Demote,
    3: StandAlone,
    4: Rebuild,
    6: Lead { epoch; lasts },
    5: Lead { epoch, lasts },
    7: LostMemory,
}

kinds! {
    Fault, "no such fault";
    0: Status { nsid, blocks, status, count },
    1: Delay { function, by, count },
    2: Lose { function, count },
    3: Duplicate { function, count },
    4: Fatal { function },
    5: StuckShutdown { function },
    6: Clear,
    7: HostMemory { fault, count },
}

kinds! {
    Answer, "no such answer of host memory";
    0: Written,
    1: Damaged,
    2: Gone,
    3: Found { stamp, content },
}

kinds! {
    Content<'a>, "a flag is 0 or 1";
    0: Absent(len),
    1: Bytes(bytes),
}

/// Values that stand in a log as another: how that is made of them, and they of it. An error says why it stands for
/// none.
macro_rules! coded_as {
    ($($of:ty: $as:ty, $to:expr, $back:expr;)*) => {$(
        impl<'a> Coded<'a> for $of {
            #[inline]
            fn write(&self, log: &mut Vec<u8>) {
                let to: fn(&$of) -> $as = $to;
                to(self).write(log);
            }

            fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
                let back: fn($as) -> Result<$of, &'static str> = $back;
                back(from.read()?).map_err(|what| from.wrong(what))
            }
        }
    )*};
}

coded_as! {
    u8: [u8; 1], |value| [*value], |[value]| Ok(value);
    u16: [u8; 2], |value| value.to_le_bytes(), |bytes| Ok(u16::from_le_bytes(bytes));
    u32: [u8; 4], |value| value.to_le_bytes(), |bytes| Ok(u32::from_le_bytes(bytes));
    u64: [u8; 8], |value| value.to_le_bytes(), |bytes| Ok(u64::from_le_bytes(bytes));
    Slot: u16, |slot| slot.0, |number| Ok(Slot(number));
    Token: u32, |token| token.0, |number| Ok(Token(number));
    Ticket: u32, |ticket| ticket.0, |number| Ok(Ticket(number));
    Epoch: u64, |epoch| epoch.0, |number| Ok(Epoch(number));
    Instant: u64, |at| at.as_ps(), |ps| Ok(Instant::from_ps(ps));
    Duration: u64, |time| time.as_ps(), |ps| Ok(Duration::from_ps(ps));
    // `None` has a kind of its own.
    Option<Duration>: Duration, |time| time.unwrap_or_default(), |time| Ok(Some(time));
    Sqe: [u8; Sqe::SIZE], |sqe| sqe.to_bytes(), |bytes| Ok(Sqe::from_bytes(&bytes));
    bool: u8, |flag| u8::from(*flag), |code| match code {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err("a flag is 0 or 1"),
    };
    Option<&'a [u8]>: (bool, &'a [u8]),
        |bytes| (bytes.is_some(), bytes.unwrap_or_default()), |(found, bytes)| Ok(found.then_some(bytes));
    Result<(), StoreFault>: bool, |result| result.is_err(), |failed| Ok(if failed { Err(StoreFault) } else { Ok(()) });
    Result<(), MoveError>: u8, |result| match result {
        Ok(()) => 0,
        Err(MoveError::Host) => 1,
        Err(MoveError::Medium) => 2,
        Err(MoveError::Differs) => 3,
    }, |code| match code {
        0 => Ok(Ok(())),
        1 => Ok(Err(MoveError::Host)),
        2 => Ok(Err(MoveError::Medium)),
        3 => Ok(Err(MoveError::Differs)),
        _ => Err("no such result of a move"),
    };
    HostFault: (u8, Duration), |fault| match *fault {
        HostFault::Withdrawn => (0, Duration::ZERO),
        HostFault::Corrupted => (1, Duration::ZERO),
        HostFault::Stale => (2, Duration::ZERO),
        HostFault::Slow(by) => (3, by),
    }, |(code, by)| match code {
        0 => Ok(HostFault::Withdrawn),
        1 => Ok(HostFault::Corrupted),
        2 => Ok(HostFault::Stale),
        3 => Ok(HostFault::Slow(by)),
        _ => Err("no such fault of host memory"),
    };
    Stamp: ((Use, u64), (u64, u64)), |stamp| ((stamp.used, stamp.key), (stamp.version, stamp.generation)),
        |((used, key), (version, generation))| Ok(Stamp { used, key, version, generation });
    Use: u8, |used| *used as u8, |code| {
        Use::ALL.into_iter().find(|used| *used as u8 == code).ok_or("no such use of host memory")
    };
    Group: Option<Group>, |group| Some(*group), |group| group.ok_or(NO_GROUP);
}

const NO_GROUP: &str = "no replication group";

impl<'a, const N: usize> Coded<'a> for [u8; N] {
    #[inline]
    fn write(&self, log: &mut Vec<u8>) {
        log.extend_from_slice(self);
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(from.take(N)?);
        Ok(bytes)
    }
}

impl<'a, A: Coded<'a>, B: Coded<'a>> Coded<'a> for (A, B) {
    #[inline]
    fn write(&self, log: &mut Vec<u8>) {
        self.0.write(log);
        self.1.write(log);
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok((from.read()?, from.read()?))
    }
}

fn write_bytes(bytes: &[u8], log: &mut Vec<u8>) {
    (bytes.len() as u32).write(log);
    log.extend_from_slice(bytes);
}

impl<'a> Coded<'a> for &'a [u8] {
    fn write(&self, log: &mut Vec<u8>) {
        write_bytes(self, log);
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let len: u32 = from.read()?;
        from.take(len as usize)
    }
}

impl<'a> Coded<'a> for Option<Group> {
    fn write(&self, log: &mut Vec<u8>) {
        write_bytes(self.map(|group| group.to_bytes()).as_ref().map_or(&[], |bytes| bytes), log);
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let bytes: &[u8] = from.read()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let group = bytes.try_into().ok().and_then(Group::from_bytes);
        group.map(Some).ok_or_else(|| from.wrong(NO_GROUP))
    }
}

impl<'a> Coded<'a> for Box<Frame> {
    fn write(&self, log: &mut Vec<u8>) {
        let mut bytes = [0; FRAME_BYTES_MAX];
        let len = self.encode(&mut bytes);
        write_bytes(&bytes[..len], log);
    }

    fn read(from: &mut Reader<'a>) -> Result<Self, Malformed> {
        let frame = Frame::parse(from.read()?).map_err(|_| from.wrong("no frame of a peer"))?;
        Ok(Box::new(frame))
    }
}
