//! The commands that are worked on: one slot for each, from when its entry was read until it has ended.

use super::interface::{Outstanding, Segment, Slot};
use super::options::{OWN_SLOTS, Options};
use super::share::Shares;
use tidewater_base::Instant;
use tidewater_wire::nvme::{DsmRange, Sqe, Status};

/// Whom a command is for when it is the subsystem's own.
pub(super) const OWN: u8 = u8::MAX;
const NONE: u16 = u16::MAX;
/// Which of the subsystem's own slots flushes for a shutdown, and which forgets blocks.
pub(super) const SHUTDOWN_FLUSH: u16 = 0;
pub(super) const ERASE: u16 = 1;
/// Bytes of a memory page: CAP.MPSMIN and CAP.MPSMAX allow no other.
pub(super) const PAGE: u32 = 4096;
/// Pieces of memory that a command's data may have, at least; one of the longest transfer needs more.
const SEGMENTS_MIN: usize = 256;

/// What a command waits for. All but `Free`, `Parked` and `Done` end by an input, or by the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Free.
    #[default]
    Free,
    /// It has just been read.
    Begun,
    /// Its PRP or SGL list is being read.
    Pointers,
    /// Its data is on its way from the host, into its staging area.
    Fetch,
    /// Its data is on its way from the host, to the firmware.
    Gather,
    /// The device works on it.
    Device,
    /// The fast side works on it, or waits.
    Vendor,
    /// What it wrote is being made safe.
    Sync,
    /// Data for the host is on its way.
    Send,
    /// Something in the subsystem itself: a queue that empties, blocks that are forgotten.
    Parked,
    /// It has ended, but data is still on its way.
    Done,
}

/// What a command is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Work {
    /// Read, and Compare once its data is there.
    Read,
    Compare,
    Write,
    Verify,
    WriteZeroes,
    Flush,
    /// Dataset Management with ranges.
    Ranges,
    /// A vendor command, admin or I/O.
    Vendor,
    /// Data for an admin command.
    AdminIn,
    /// Data of an admin command, for the host.
    AdminOut,
    /// A feature with a list elsewhere in the host's memory.
    HostMemory,
    /// An admin command that needs no data.
    #[default]
    Admin,
}

/// Where in a PRP or SGL list a command stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walk {
    /// Where the part of the list is that is being read, and its bytes.
    pub at: u64,
    pub len: u32,
    /// Bytes of the part behind it, of an SGL segment.
    pub rest: u32,
    /// Descriptors read so far.
    pub read: u32,
    /// Bytes of data that have no place yet.
    pub left: u32,
    pub is_sgl: bool,
    /// This is the last SGL segment.
    pub is_last: bool,
    /// Data goes to the device.
    pub is_source: bool,
}

/// A command that is worked on.
#[derive(Clone, Debug, Default)]
pub(super) struct Command {
    pub stage: Stage,
    pub work: Work,
    pub function: u8,
    pub queue: u16,
    /// Its controller was reset, or is gone: no host waits for it.
    pub orphan: bool,
    /// Its controller does not wait for it any more: it will touch neither host memory nor blocks.
    pub detached: bool,
    /// It ends when what was stored is safe.
    pub durable: bool,
    pub status: Status,
    pub dw0: u32,
    /// It waits for data that its connection asks the host for.
    pub is_transfer: bool,
    /// Outputs that were not answered by `Moved`.
    pub moving: u32,
    /// First byte on the device, and bytes of data.
    pub start: u64,
    pub len: u32,
    /// First block and blocks on the device, of the part that the device works on.
    pub first_block: u64,
    pub blocks: u32,
    /// Blocks behind these, for which the device gets a command of their own.
    pub more: u32,
    pub version: u64,
    /// Bytes that it reads or writes.
    pub bytes: u64,
    pub walk: Walk,
    pub sqe: Sqe,
    /// When its entry was read.
    pub begun: Instant,
    pub segments: Vec<Segment>,
    /// Of Dataset Management, on the device.
    pub ranges: Box<[DsmRange]>,
    /// A command of the fast side, and whether its data comes from the host.
    pub is_vendor: bool,
    /// Blocks that are to be forgotten wait until it has ended.
    pub blocks_erase: bool,
    /// What it makes safe includes that nothing of what is forgotten is left.
    pub purge: bool,
    pub from_host: bool,
    /// When what was stored is safe, more follows from that, and is to be made safe as well.
    pub sync_again: bool,
    /// What goes to the host, or came from it.
    pub data: Box<[u8]>,
    next: u16,
}

impl Command {
    /// What the carrier of its data knows of it.
    #[inline]
    pub fn outstanding(&self) -> Outstanding {
        Outstanding { function: self.function, queue: self.queue, sqe: self.sqe, begun: self.begun }
    }
}

/// All slots: those of hosts' commands, and behind them a few for the subsystem's own.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    commands: Box<[Command]>,
    free: u16,
    free_count: u16,
    /// Free slots that entries on their way from the host will take.
    reserved: u16,
    hosts: u16,
    shares: Shares,
    /// Pieces of memory that a command's data may have.
    pub segments_max: usize,
    /// Commands of the fast side under way.
    pub vendor_outstanding: u16,
    /// The version that the next write gets.
    pub next_version: u64,
    /// Bytes of a block and of a unit of the device, as powers of two.
    pub block_shift: u32,
    pub unit_shift: u32,
}

impl Slots {
    pub(super) fn new(options: &Options, block_shift: u32, unit_shift: u32) -> Slots {
        let (hosts, own) = (options.slots, OWN_SLOTS);
        let segments_max = SEGMENTS_MIN.max(options.transfer_max as usize / PAGE as usize + 1);
        let command = |i: u16| Command {
            function: OWN,
            segments: Vec::with_capacity(segments_max),
            next: if i + 1 < hosts { i + 1 } else { NONE },
            ..Command::default()
        };
        let commands = (0..hosts + own).map(command).collect();
        Slots {
            commands,
            free: 0,
            free_count: hosts,
            reserved: 0,
            hosts,
            shares: Shares::new(options.slots, options.functions, options.fabrics),
            segments_max,
            vendor_outstanding: 0,
            next_version: options.first_version,
            block_shift,
            unit_shift,
        }
    }

    /// Free slots without a claim.
    #[inline]
    pub(super) fn available(&self) -> u16 {
        self.free_count - self.reserved
    }

    /// Slots of hosts' commands.
    pub(super) fn hosts(&self) -> u16 {
        self.hosts
    }

    /// Free slots that I/O commands of a controller may take.
    #[inline]
    pub(super) fn allowance(&self, function: u8) -> u16 {
        self.shares.allowance(function, self.available())
    }

    #[inline]
    pub(super) fn reserve(&mut self, function: u8, queue: u16, count: u16) {
        assert!(count <= self.available(), "{count} slots are wanted, and {} are free", self.available());
        self.reserved += count;
        if queue > 0 {
            self.shares.hold(function, count);
        }
    }

    #[inline]
    pub(super) fn give_back(&mut self, function: u8, queue: u16, count: u16) {
        self.reserved -= count;
        if queue > 0 {
            self.shares.release(function, count);
        }
    }

    /// Whether one more command of a controller may wait for data from its connection.
    pub(super) fn admits_transfer(&self, function: u8) -> bool {
        self.shares.admits_transfer(function)
    }

    /// A command begins to wait for data from its connection.
    pub(super) fn begin_transfer(&mut self, slot: Slot) {
        let command = &mut self.commands[usize::from(slot.0)];
        command.is_transfer = true;
        self.shares.begin_transfer(command.function);
    }

    /// The command does not wait for data any more. Says whether it did.
    #[inline]
    pub(super) fn end_transfer(&mut self, slot: Slot) -> bool {
        let command = &mut self.commands[usize::from(slot.0)];
        let was = std::mem::take(&mut command.is_transfer);
        if was {
            self.shares.end_transfer(command.function);
        }
        was
    }

    /// Slots of hosts' commands, free ones too.
    pub(super) fn of_hosts(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.hosts).map(Slot)
    }

    /// A version that no write before has had.
    #[inline]
    pub(super) fn take_version(&mut self) -> u64 {
        self.next_version += 1;
        self.next_version - 1
    }

    /// A slot for a command. There is one.
    #[inline]
    pub(super) fn take(&mut self, function: u8, queue: u16, sqe: &Sqe, now: Instant) -> Slot {
        let slot = self.free;
        assert!(slot != NONE, "a command without a slot");
        let command = &mut self.commands[usize::from(slot)];
        self.free = command.next;
        self.free_count -= 1;
        begin(command, function, queue, sqe);
        command.begun = now;
        if queue > 0 {
            self.shares.hold(function, 1);
        }
        Slot(slot)
    }

    /// One of the subsystem's own slots, from 0, if it is free.
    pub(super) fn take_own(&mut self, which: u16) -> Option<Slot> {
        let slot = self.hosts + which;
        let command = &mut self.commands[usize::from(slot)];
        (command.stage == Stage::Free).then(|| {
            begin(command, OWN, 0, &Sqe::default());
            Slot(slot)
        })
    }

    /// Whether a command of the subsystem's own is under way.
    pub(super) fn own_is_taken(&self, which: u16) -> bool {
        self.commands[usize::from(self.hosts + which)].stage != Stage::Free
    }

    /// A command has ended.
    #[inline]
    pub(super) fn release(&mut self, slot: Slot) {
        let command = &mut self.commands[usize::from(slot.0)];
        assert!(command.stage != Stage::Free, "slot {} was freed although it is free", slot.0);
        assert!(command.moving == 0, "slot {} was freed with data on its way", slot.0);
        command.stage = Stage::Free;
        if !command.data.is_empty() {
            command.data = Box::default();
        }
        if slot.0 < self.hosts {
            command.next = self.free;
            self.free = slot.0;
            self.free_count += 1;
            if command.queue > 0 {
                self.shares.release(command.function, 1);
            }
        }
    }

    /// The slot's command, if it has one.
    pub(super) fn get(&self, slot: Slot) -> Option<&Command> {
        self.commands.get(usize::from(slot.0)).filter(|command| command.stage != Stage::Free)
    }

    /// Every command of hosts that is worked on.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Command)> {
        let hosts = self.commands[..usize::from(self.hosts)].iter();
        (0..).map(Slot).zip(hosts).filter(|(_, command)| command.stage != Stage::Free)
    }
}

#[inline]
fn begin(command: &mut Command, function: u8, queue: u16, sqe: &Sqe) {
    command.stage = Stage::Begun;
    command.function = function;
    command.queue = queue;
    command.orphan = false;
    command.detached = false;
    command.is_vendor = false;
    command.blocks_erase = false;
    command.purge = false;
    command.sync_again = false;
    command.moving = 0;
    command.version = 0;
    command.more = 0;
    command.bytes = 0;
    command.work = Work::Admin;
    command.durable = false;
    command.status = Status::SUCCESS;
    command.dw0 = 0;
    command.sqe = *sqe;
    command.segments.clear();
}

impl std::ops::Index<Slot> for Slots {
    type Output = Command;

    #[inline]
    fn index(&self, slot: Slot) -> &Command {
        &self.commands[usize::from(slot.0)]
    }
}

impl std::ops::IndexMut<Slot> for Slots {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Command {
        &mut self.commands[usize::from(slot.0)]
    }
}
