//! A core: its operation, its write-combining buffers, and the one uncached access it may have under way.

use super::port::Port;
use super::{CpuSpec, LINE, Mapping, Op, TlpKind};
use tidewater_base::{Duration, Instant};

/// A write-combining buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffer {
    /// Offset of the line, in lines.
    pub line: u64,
    /// Bytes that were stored and have not left.
    pub mask: u64,
    pub state: State,
    /// When it was opened or, once closed, when it was closed: lower is earlier.
    pub order: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    Open,
    /// On its way to the root port, which can send it from `ready` on.
    Closed {
        ready: Instant,
        /// How often another was sent while this one could have been.
        passed: u32,
    },
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
        let free = Buffer { line: 0, mask: 0, state: State::Free, order: 0 };
        Core {
            op: None,
            progress: 0,
            ready_at: Instant::ZERO,
            blocked: false,
            awaited: None,
            buffers: vec![free; buffers as usize].into(),
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
        self.access.is_none() && self.buffers.iter().all(|buffer| buffer.state == State::Free)
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
        let overlaps = |b: &Buffer| b.line == line && b.mask & bytes != 0 && matches!(b.state, State::Closed { .. });
        if self.buffers.iter().any(overlaps) {
            // An older store to the same bytes has to leave first.
            self.blocked = true;
            return false;
        }
        let open = self.buffers.iter().position(|b| b.state == State::Open && b.line == line);
        let Some(at) = open.or_else(|| self.buffers.iter().position(|b| b.state == State::Free)) else {
            let oldest = self.buffers.iter_mut().filter(|b| b.state == State::Open).min_by_key(|b| b.order);
            if let Some(buffer) = oldest {
                close(buffer, self.ready_at + cpu.accept_time, port);
            }
            self.blocked = true;
            return false;
        };
        let buffer = &mut self.buffers[at];
        if buffer.state == State::Free {
            *buffer = Buffer { line, mask: 0, state: State::Open, order: port.next_order() };
        }
        buffer.mask |= bytes;
        self.ready_at += cpu.store_time * accesses(offset, taken, cpu.width.into());
        if buffer.mask == u64::MAX {
            close(buffer, self.ready_at + cpu.accept_time, port);
        }
        self.progress += taken;
        false
    }

    /// Issues the next uncached access, once everything before it is on the wire (Intel SDM, volume 3, 11.3.1: an access
    /// to uncached memory drains the buffers).
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
        let ready = self.ready_at + cpu.accept_time;
        while let Some(buffer) =
            self.buffers.iter_mut().filter(|b| b.state == State::Open).min_by_key(|buffer| buffer.order)
        {
            close(buffer, ready, port);
        }
    }
}

fn close(buffer: &mut Buffer, ready: Instant, port: &mut Port) {
    (buffer.state, buffer.order) = (State::Closed { ready, passed: 0 }, port.next_order());
}
