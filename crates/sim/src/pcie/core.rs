//! A core: its operation, its write-combining buffers, and the one uncached access it may have under way.

use super::port::Port;
use super::spec::{CpuSpec, LINE, Mapping, Op, TlpKind};
use tidewater_base::{Duration, Instant};

/// A write-combining buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    /// Offset of the line, in lines.
    pub line: u64,
    /// Bytes that were stored and have not left.
    pub mask: u64,
    /// When it was opened or, once closed, when it was closed: lower is earlier.
    pub order: u64,
    /// Once closed: from when on the root port can send it.
    pub ready: Instant,
    /// Once closed: how often another was sent while this one could have been.
    pub passed: u32,
}

/// The bits of a set, from the lowest.
pub(super) fn slots(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let slot = (set != 0).then(|| set.trailing_zeros() as usize);
        set &= set.wrapping_sub(1);
        slot
    })
}

/// The uncached access under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub kind: TlpKind,
    pub offset: u64,
    pub length: u32,
    pub ready: Instant,
    pub order: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Core {
    op: Option<Op>,
    /// Bytes of the operation that are done; for operations without bytes, whether their time was taken.
    progress: u64,
    /// When the next instruction can issue.
    ready_at: Instant,
    /// Until something of this core leaves.
    blocked: bool,
    /// Bytes of the load whose completion is awaited.
    awaited: Option<u32>,
    pub buffers: Box<[Buffer]>,
    /// Buffers that take stores, a bit for each.
    open: u64,
    /// Buffers on their way to the root port.
    pub closed: u64,
    pub access: Option<Access>,
}

/// The bytes of a line from `low`, `length` of them.
fn mask(low: u64, length: u64) -> u64 {
    (u64::MAX >> (LINE - length)) << low
}

/// Accesses of `width` bytes, aligned to their width, that `length` bytes at `offset` take.
fn accesses(offset: u64, length: u64, width: u64) -> u64 {
    (offset + length).div_ceil(width) - offset / width
}

impl Core {
    pub fn new(buffers: u32) -> Core {
        let free = Buffer { line: 0, mask: 0, order: 0, ready: Instant::ZERO, passed: 0 };
        Core {
            op: None,
            progress: 0,
            ready_at: Instant::ZERO,
            blocked: false,
            awaited: None,
            buffers: vec![free; buffers as usize].into(),
            open: 0,
            closed: 0,
            access: None,
        }
    }

    pub fn start(&mut self, now: Instant, op: Op) {
        assert!(self.op.is_none(), "a core was given an operation while it has one");
        if let Op::Write { offset, length, .. } | Op::Read { offset, length } = op {
            assert!(length > 0 && offset.checked_add(length).is_some(), "{length} bytes at {offset}");
        }
        (self.op, self.progress, self.blocked) = (Some(op), 0, false);
        self.ready_at = self.ready_at.max(now);
    }

    pub fn is_idle(&self) -> bool {
        self.op.is_none()
    }

    /// No buffer and no access in use.
    pub fn is_empty(&self) -> bool {
        self.access.is_none() && self.open | self.closed == 0
    }

    /// When the next step is due, if none is waited for.
    pub fn next_step(&self) -> Option<Instant> {
        (self.op.is_some() && !self.blocked && self.awaited.is_none()).then_some(self.ready_at)
    }

    /// Something of this core went on the wire.
    pub fn departed(&mut self, at: Instant) {
        if self.blocked {
            self.blocked = false;
            self.ready_at = self.ready_at.max(at);
        }
    }

    /// The uncached access went on the wire.
    pub fn access_departed(&mut self, at: Instant) {
        let access = self.access.take().expect("an access that departs is under way");
        match access.kind {
            TlpKind::Write => self.progress += u64::from(access.length),
            TlpKind::Read => self.awaited = Some(access.length),
        }
        self.departed(at);
    }

    pub fn awaited(&self) -> u32 {
        self.awaited.expect("a read was completed that no core waits for")
    }

    pub fn completed(&mut self, at: Instant) {
        self.progress += u64::from(self.awaited());
        self.awaited = None;
        self.ready_at = self.ready_at.max(at);
    }

    /// Takes one step of the operation at `ready_at`; returns whether the operation is done.
    pub fn step(&mut self, cpu: &CpuSpec, port: &mut Port) -> bool {
        let op = self.op.expect("only a core with an operation steps");
        let done = match op {
            Op::Write { offset, length, mapping: Mapping::WriteCombining } => {
                self.combine(cpu, port, offset + self.progress, length - self.progress)
            }
            Op::Write { offset, length, mapping: Mapping::Uncached } => {
                self.uncached(cpu, port, TlpKind::Write, offset + self.progress, length - self.progress)
            }
            Op::Read { offset, length } => {
                self.uncached(cpu, port, TlpKind::Read, offset + self.progress, length - self.progress)
            }
            Op::Evict => {
                self.evict(cpu, port);
                true
            }
            Op::Fence => {
                self.evict(cpu, port);
                self.blocked = !self.is_empty();
                !self.blocked && self.take_time(cpu.fence_time)
            }
            Op::Compute(time) => self.take_time(time),
        };
        if done {
            self.op = None;
        }
        done
    }

    /// Lets `time` pass once; true when it has passed.
    fn take_time(&mut self, time: Duration) -> bool {
        if self.progress > 0 {
            return true;
        }
        self.progress = 1;
        self.ready_at += time;
        false
    }

    /// Stores what of `length` bytes lies in the line of `offset`.
    fn combine(&mut self, cpu: &CpuSpec, port: &mut Port, offset: u64, length: u64) -> bool {
        if length == 0 {
            return true;
        }
        let (line, low) = (offset / LINE, offset % LINE);
        let taken = length.min(LINE - low);
        let bytes = mask(low, taken);
        let of_line = |slot: &usize| self.buffers[*slot].line == line;
        if slots(self.closed).filter(of_line).any(|slot| self.buffers[slot].mask & bytes != 0) {
            // An older store to the same bytes has to leave first.
            self.blocked = true;
            return false;
        }
        let free = (self.open | self.closed).trailing_ones() as usize;
        let slot = match slots(self.open).find(of_line) {
            Some(slot) => slot,
            None if free < self.buffers.len() => {
                let order = port.next_order();
                self.buffers[free] = Buffer { line, mask: 0, order, ready: Instant::NEVER, passed: 0 };
                self.open |= 1 << free;
                free
            }
            None => {
                if let Some(oldest) = self.oldest_open() {
                    self.close(oldest, cpu, port);
                }
                self.blocked = true;
                return false;
            }
        };
        self.buffers[slot].mask |= bytes;
        self.ready_at += cpu.store_time * accesses(offset, taken, cpu.width.into());
        if self.buffers[slot].mask == u64::MAX {
            self.close(slot, cpu, port);
        }
        self.progress += taken;
        false
    }

    /// Issues the next uncached access, once everything before it is on the wire (Intel SDM, volume 3, 11.3.1: an
    /// access to uncached memory drains the buffers).
    fn uncached(&mut self, cpu: &CpuSpec, port: &mut Port, kind: TlpKind, offset: u64, length: u64) -> bool {
        if length == 0 {
            return true;
        }
        self.evict(cpu, port);
        self.blocked = true;
        if self.is_empty() {
            let width = u64::from(cpu.width);
            let taken = length.min(width - offset % width);
            self.ready_at += cpu.store_time;
            let ready = self.ready_at + cpu.accept_time;
            self.access = Some(Access { kind, offset, length: taken as u32, ready, order: port.next_order() });
        }
        false
    }

    /// Closes what is open, the oldest first.
    fn evict(&mut self, cpu: &CpuSpec, port: &mut Port) {
        while let Some(oldest) = self.oldest_open() {
            self.close(oldest, cpu, port);
        }
    }

    fn oldest_open(&self) -> Option<usize> {
        slots(self.open).min_by_key(|&slot| self.buffers[slot].order)
    }

    fn close(&mut self, slot: usize, cpu: &CpuSpec, port: &mut Port) {
        self.open &= !(1 << slot);
        self.closed |= 1 << slot;
        let buffer = &mut self.buffers[slot];
        (buffer.order, buffer.ready, buffer.passed) = (port.next_order(), self.ready_at + cpu.accept_time, 0);
    }
}
