//! A core that uses the byte window: the client's calls, carried out by stores and loads over PCIe and by commands.

use crate::pcie::{Mapping, Op, PcieSpec, RootComplex, Tlp, TlpKind};
use std::collections::VecDeque;
use tidewater_base::{Duration, Instant};
use tidewater_client::{Carrier, WindowAction, WindowAnswer, WindowCall, WindowEntry, WindowError, WindowOutcome};
use tidewater_core::device::Input;
use tidewater_core::fast::Content;
use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::{ANYWHERE, WindowCommand};

/// Tag of loads of the window.
pub(super) const LOAD_TAG: u64 = 1;
const CORE: u32 = 0;

/// Host costs of the window's calls, besides stores, loads and fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSpec {
    /// Time in the library for each call that stores, syncs or loads. Default 533 ns, a fit: with a fence a write of 8
    /// bytes takes 630 ns (2B-SSD).
    pub call_time: Duration,
    /// Time of the core to flush one cache line (`clflush`). Default 18 ns, a fit: a sync of 4 KB takes 2 us (2B-SSD).
    pub line_flush_time: Duration,
    /// From the call to the doorbell of a command: system call and driver. Default 1.3 us, a fit of the host's share of
    /// a block command (2B-SSD).
    pub submit_time: Duration,
    /// From the interrupt to the caller. Default 0.7 us, likewise.
    pub return_time: Duration,
}

impl Default for CallSpec {
    fn default() -> CallSpec {
        CallSpec {
            call_time: Duration::from_ns(533),
            line_flush_time: Duration::from_ns(18),
            submit_time: Duration::from_ns(1_300),
            return_time: Duration::from_ns(700),
        }
    }
}

/// Requests to the window, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowRequest {
    /// Store bytes into an entry, from its byte `at` on.
    Store {
        /// The entry's name.
        entry: u16,
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
    },
    /// Sync them (`BA_SYNC`).
    Sync {
        /// The entry's name.
        entry: u16,
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
    },
    /// Load them.
    Load {
        /// The entry's name.
        entry: u16,
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
    },
    /// Give a command, and wait for its end.
    Run(WindowCommand),
    /// Flush an entry and pin other blocks under its name, behind the caller's back.
    Roll {
        /// The entry's name.
        entry: u16,
        /// The first block that comes next.
        lba: u64,
        /// Blocks.
        blocks: u32,
    },
    /// Wait until what goes on behind the caller's back of an entry has ended.
    Await {
        /// The entry's name.
        entry: u16,
    },
}

/// A command under way.
#[derive(Clone, Copy, Debug)]
struct Order {
    cid: u16,
    command: WindowCommand,
    /// The command that follows it.
    next: Option<WindowCommand>,
    /// The caller waits.
    waited: bool,
}

/// A core with entries of the window.
#[derive(Debug)]
pub struct WindowClient {
    root: RootComplex,
    spec: CallSpec,
    bar_offset: u64,
    block_bytes: u64,
    entries: Vec<WindowEntry>,
    call: Option<WindowCall>,
    ops: VecDeque<Op>,
    arrivals: VecDeque<Tlp>,
    orders: Vec<Order>,
    /// Commands on their way to the doorbell.
    submissions: VecDeque<(Instant, u16, WindowCommand)>,
    /// Completions on their way to the caller.
    returns: VecDeque<(Instant, Order)>,
    awaited: Option<u16>,
    cid: u16,
    finished: Option<Instant>,
    failure: Option<WindowError>,
}

impl WindowClient {
    /// A client of a window that begins at `bar_offset`, over blocks of `block_bytes`.
    pub fn new(pcie: &PcieSpec, spec: CallSpec, bar_offset: u64, block_bytes: u32) -> WindowClient {
        WindowClient {
            root: RootComplex::new(pcie),
            spec,
            bar_offset,
            block_bytes: block_bytes.into(),
            entries: Vec::new(),
            call: None,
            ops: VecDeque::new(),
            arrivals: VecDeque::new(),
            orders: Vec::new(),
            submissions: VecDeque::new(),
            returns: VecDeque::new(),
            awaited: None,
            cid: 0,
            finished: None,
            failure: None,
        }
    }

    /// Begins a request. Asserts that none is under way.
    pub fn begin(&mut self, now: Instant, request: WindowRequest) {
        assert!(self.call.is_none() && self.awaited.is_none(), "one request at a time");
        match request {
            WindowRequest::Store { entry, at, length } => {
                let entry = self.entry(entry);
                self.call(now, WindowCall::write(Carrier::Bar, &entry, at, length as usize));
            }
            WindowRequest::Sync { entry, at, length } => {
                let entry = self.entry(entry);
                self.call(now, WindowCall::sync(Carrier::Bar, &entry, at, length));
            }
            WindowRequest::Load { entry, at, length } => {
                let entry = self.entry(entry);
                self.call(now, WindowCall::load(&entry, at, length));
            }
            WindowRequest::Run(command) => self.order(now, command, None, true),
            WindowRequest::Roll { entry, lba, blocks } => {
                let pin = WindowCommand::Pin { entry, offset: ANYWHERE, lba, blocks };
                self.order(now, WindowCommand::Flush { entry }, Some(pin), false);
                self.finished = Some(now);
            }
            WindowRequest::Await { entry } if self.is_busy(entry) => {
                self.awaited = Some(entry);
            }
            WindowRequest::Await { .. } => self.finished = Some(now),
        }
    }

    /// Whether something goes on of an entry.
    fn is_busy(&self, entry: u16) -> bool {
        let returning = self.returns.iter().map(|(_, order)| order);
        self.orders.iter().chain(returning).any(|order| order.command.entry() == entry)
    }

    /// An entry that was pinned; one that was not has no bytes, so that every use of it is refused.
    fn entry(&self, name: u16) -> WindowEntry {
        let none = WindowEntry { name, offset: 0, bytes: 0 };
        self.entries.iter().find(|entry| entry.name == name).copied().unwrap_or(none)
    }

    fn call(&mut self, now: Instant, call: WindowCall) {
        self.call = Some(call);
        self.ops.push_back(Op::Compute(self.spec.call_time));
        self.resume(now);
    }

    fn order(&mut self, now: Instant, command: WindowCommand, next: Option<WindowCommand>, waited: bool) {
        self.cid = self.cid.wrapping_add(1);
        self.orders.push(Order { cid: self.cid, command, next, waited });
        self.submissions.push_back((now + self.spec.submit_time, self.cid, command));
    }

    /// When the last request ended, once.
    pub fn poll_finished(&mut self) -> Option<Instant> {
        self.finished.take()
    }

    /// Why a request failed, if one did.
    pub fn failure(&self) -> Option<WindowError> {
        self.failure
    }

    /// When something happens by itself next.
    pub fn deadline(&self) -> Option<Instant> {
        let arrival = self.arrivals.front().map(|tlp| tlp.at);
        let submission = self.submissions.iter().map(|&(at, ..)| at).min();
        let returned = self.returns.front().map(|&(at, _)| at);
        self.root.deadline().into_iter().chain(arrival).chain(submission).chain(returned).min()
    }

    /// Does what is due by `now`.
    pub fn advance(&mut self, now: Instant) {
        self.root.advance(now);
        while let Some(tlp) = self.root.poll_tlp() {
            self.arrivals.push_back(tlp);
        }
        while let Some(done) = self.root.poll_done() {
            if self.ops.is_empty()
                && let Some(call) = &mut self.call
            {
                call.on(WindowAnswer::Verified);
            }
            self.resume(done.at);
        }
        while let Some((at, order)) = self.returns.pop_front_if(|returned| returned.0 <= now) {
            match order.next {
                Some(command) => self.order(at, command, None, order.waited),
                None if order.waited => self.finished = Some(at),
                None => {}
            }
            if let Some(entry) = self.awaited
                && !self.is_busy(entry)
            {
                self.awaited = None;
                self.finished = Some(at);
            }
        }
    }

    /// Next input that has reached the device by `now`.
    pub fn poll_arrival(&mut self, now: Instant) -> Option<Input<'static>> {
        if let Some(i) = self.submissions.iter().position(|&(at, ..)| at <= now)
            && let Some((_, cid, command)) = self.submissions.remove(i)
        {
            return Some(Input::Window { sqe: command.emit(cid), data: &[], tag: 0 });
        }
        let tlp = self.arrivals.pop_front_if(|tlp| tlp.at <= now)?;
        Some(match tlp.kind {
            TlpKind::Write => {
                // The buffer's memory is faster than the link: the receive buffer is empty at once.
                self.root.release(now, tlp.offset, tlp.length);
                Input::Store { function: 0, address: tlp.offset, content: Content::Absent(tlp.length) }
            }
            TlpKind::Read => {
                Input::Load { function: 0, address: tlp.offset, len: tlp.length.min(8) as u8, tag: LOAD_TAG }
            }
        })
    }

    /// The device has answered the load.
    pub fn loaded(&mut self, now: Instant) {
        self.root.complete_read(now, CORE);
    }

    /// The device has ended a command.
    pub fn replied(&mut self, now: Instant, cid: u16, status: Status, result: u32) {
        let Some(i) = self.orders.iter().position(|order| order.cid == cid) else { return };
        let order = self.orders.remove(i);
        if !status.is_success() {
            self.failure = Some(WindowError::Refused(status));
        }
        match order.command {
            WindowCommand::Pin { entry: name, blocks, .. } => {
                let bytes = u64::from(blocks) * self.block_bytes;
                self.entries.push(WindowEntry { name, offset: result.into(), bytes });
            }
            WindowCommand::Flush { entry } | WindowCommand::Unpin { entry } => {
                self.entries.retain(|other| other.name != entry);
            }
            _ => {}
        }
        self.returns.push_back((now + self.spec.return_time, order));
    }

    /// Gives the idle core what comes next.
    fn resume(&mut self, now: Instant) {
        while self.root.is_idle(CORE) {
            if let Some(op) = self.ops.pop_front() {
                self.root.start(now, CORE, op);
                return;
            }
            let Some(action) = self.call.as_mut().and_then(WindowCall::poll) else { return };
            match action {
                WindowAction::Store { offset, bytes } => self.ops.push_back(Op::Write {
                    offset: self.bar_offset + offset,
                    length: bytes.len() as u64,
                    mapping: Mapping::WriteCombining,
                }),
                WindowAction::FlushLines { offset, length } => {
                    let lines = (offset + length).div_ceil(crate::pcie::LINE) - offset / crate::pcie::LINE;
                    self.ops.push_back(Op::Compute(self.spec.line_flush_time * lines));
                }
                WindowAction::Fence => self.ops.push_back(Op::Fence),
                // A read of no byte asks for a double word with no byte enabled, and gets one (PCI Express Base 3.0,
                // 2.2.5): on the wire it is as a read of one byte.
                WindowAction::Verify { offset } => {
                    self.ops.push_back(Op::Read { offset: self.bar_offset + offset, length: 1 });
                }
                WindowAction::Load { offset, length } => {
                    self.ops.push_back(Op::Read { offset: self.bar_offset + offset, length });
                }
                WindowAction::Command { .. } => unreachable!("commands are given by orders"),
                WindowAction::Done(outcome) => {
                    self.call = None;
                    match outcome {
                        Ok(WindowOutcome::Done | WindowOutcome::Pinned(_) | WindowOutcome::Info(_)) => {
                            self.finished = Some(now);
                        }
                        Err(error) => self.failure = Some(error),
                    }
                    return;
                }
            }
        }
    }
}
