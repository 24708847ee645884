//! A subsystem that is only what a target can see of one: registers, an array of blocks, and a bit of Identify.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant as Wall;
use tidewater_base::{Duration, Instant};
use tidewater_core::subsystem::{Input, MoveError, Slot};
use tidewater_driver::nvme_tcp::{Controller, Host};
use tidewater_serve::nvme_tcp::{Border, CommandId, Options, Statistics, Target};
use tidewater_testkit::PATIENCE;
use tidewater_wire::fabrics::{Nqn, property};
use tidewater_wire::nvme::{Cqe, Sqe, Status, opcode};

pub const BLOCK: usize = 4_096;
pub const SUBSYSTEM: &str = "nqn.2026-01.io.example:tidewater";
/// Commands that the mock's controllers know, beside those of the NVM command set.
pub const IDENTIFY: u8 = 0x06;
pub const SET_FEATURES: u8 = 0x09;
pub const ASYNC_EVENT_REQUEST: u8 = 0x0C;
/// A read whose medium fails at its second block.
pub const VENDOR_READ_FAILS: u8 = 0xC2;
/// A read whose blocks come last first.
pub const VENDOR_READ_BACKWARDS: u8 = 0xC6;
/// Resets the subsystem, as far as its own controller is concerned: that is gone.
pub const VENDOR_RESETS: u8 = 0xC4;
/// Says nothing until its controller is reset.
pub const VENDOR_SILENT: u8 = 0xC0;

pub fn nqn(name: &str) -> Nqn {
    Nqn::new(name).unwrap()
}

pub fn subsystem() -> Nqn {
    nqn(SUBSYSTEM)
}

pub fn host() -> Host {
    Host { time_out: PATIENCE, ..Host::new(nqn("nqn.2026-01.io.example:host"), [7; 16]) }
}

pub fn options() -> Options {
    Options::new(subsystem(), 4..8)
}

#[derive(Default)]
struct Function {
    connected: bool,
    privileged: bool,
    configuration: u32,
    queues: Vec<u16>,
}

/// A write whose data is on the way.
struct Write {
    command: CommandId,
    sqe: Sqe,
    staging: Vec<u8>,
}

/// The mock; what the target says goes into `inbox`, as if the firmware would take its time.
#[derive(Default)]
pub struct Mock {
    blocks: Vec<u8>,
    functions: HashMap<u8, Function>,
    writes: HashMap<u16, Write>,
    inbox: VecDeque<(CommandId, Sqe)>,
    moved: VecDeque<(Slot, Result<(), MoveError>)>,
    gone: Vec<u8>,
    gone_queues: Vec<(u8, u16)>,
    next_slot: u16,
    /// Moves that failed because the host was gone.
    pub lost: u64,
    /// Reads that were carried out.
    pub reads: u64,
    /// Of these, those of more than a block.
    pub long_reads: u64,
}

impl Border for Mock {
    fn input(&mut self, input: Input<'_>) {
        match input {
            Input::Capsule { function, queue, sqe } => {
                let known = &self.functions[&function];
                assert!(known.connected && (queue == 0 || known.queues.contains(&queue)));
                self.inbox.push_back((CommandId { function, queue, cid: sqe.cid() }, sqe));
            }
            Input::Connect { function, entries, privileged, .. } => {
                assert!(entries >= 2);
                let known = self.functions.entry(function).or_default();
                assert!(!known.connected, "a function has one host");
                *known = Function { connected: true, privileged, ..Function::default() };
            }
            Input::ConnectQueue { function, queue, entries } => {
                assert!(entries >= 2);
                let known = self.functions.get_mut(&function).unwrap();
                assert!(known.connected && !known.queues.contains(&queue) && queue > 0);
                known.queues.push(queue);
            }
            Input::DisconnectQueue { function, queue } => {
                let known = self.functions.get_mut(&function).unwrap();
                assert!(known.connected && queue > 0 && known.queues.contains(&queue), "a queue is lost once");
                known.queues.retain(|&other| other != queue);
                self.inbox.retain(|(command, _)| (command.function, command.queue) != (function, queue));
                self.gone_queues.push((function, queue));
            }
            Input::Disconnect { function } => {
                let known = self.functions.get_mut(&function).unwrap();
                assert!(std::mem::take(&mut known.connected), "a host leaves once");
                self.inbox.retain(|(command, _)| command.function != function);
                self.gone.push(function);
            }
            Input::Register { function, offset, len, value } => {
                assert_eq!(len, 4);
                if offset == property::CC {
                    let known = self.functions.get_mut(&function).unwrap();
                    known.configuration = value as u32;
                    if value & 1 == 0 {
                        known.queues.clear();
                    }
                }
            }
            Input::Moved { slot, result } => self.moved.push_back((slot, result)),
            _ => panic!("a target does not say {input:?}"),
        }
    }

    fn register(&mut self, function: u8, offset: u32, len: u8) -> u64 {
        let known = &self.functions[&function];
        match (offset, len) {
            (property::CAP, 8) => 255 | 1 << 16 | 4 << 24 | 1 << 37,
            (property::VS, 4) => 0x0001_0400,
            (property::CC, 4) => known.configuration.into(),
            (property::CSTS, 4) => {
                let shutdown = if known.configuration >> 14 & 3 != 0 { 2 << 2 } else { 0 };
                u64::from(known.configuration & 1 | shutdown)
            }
            (property::NSSR, 4) => 0,
            _ => panic!("a target does not read {len} bytes at {offset:X}h"),
        }
    }

    fn controller_id(&self, function: u8) -> u16 {
        u16::from(function) + 1
    }

    fn stage(&mut self, slot: Slot, at: u32, bytes: &[u8]) {
        let write = self.writes.get_mut(&slot.0).expect("bytes come for a slot that waits");
        assert_eq!(write.staging.len(), at as usize, "in order and without gaps");
        write.staging.extend_from_slice(bytes);
    }
}

impl Mock {
    pub fn new(blocks: usize) -> Mock {
        Mock { blocks: vec![0; blocks * BLOCK], ..Mock::default() }
    }

    fn complete(&self, target: &mut Target, command: CommandId, status: Status, dw0: u32) {
        let cqe = Cqe { dw0, cid: command.cid, sq_id: command.queue, status, ..Cqe::default() };
        target.complete(command.function, command.queue, &cqe);
    }

    /// Carries out what has come.
    pub fn work(&mut self, target: &mut Target) {
        while let Some((slot, result)) = self.moved.pop_front() {
            let write = self.writes.remove(&slot.0).expect("a slot is moved once");
            self.lost += u64::from(result.is_err());
            let status = match result {
                Ok(()) => self.store(&write.sqe, &write.staging),
                Err(_) => Status::DATA_TRANSFER_ERROR,
            };
            self.complete(target, write.command, status, 0);
        }
        while let Some((command, sqe)) = self.inbox.pop_front() {
            if let Some((status, dw0)) = self.execute(target, command, &sqe) {
                self.complete(target, command, status, dw0);
            }
        }
        let writes = &self.writes;
        let has_ended = |function: u8, queue: u16| {
            !writes.values().any(|write| (write.command.function, write.command.queue) == (function, queue))
        };
        self.gone_queues.retain(|&(function, queue)| {
            if has_ended(function, queue) {
                target.queue_gone(function, queue);
            }
            !has_ended(function, queue)
        });
        for function in self.gone.drain(..) {
            self.gone_queues.retain(|&(other, _)| other != function);
            target.gone(function);
        }
    }

    fn range(&self, sqe: &Sqe) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(sqe.slba()).ok()?.checked_mul(BLOCK)?;
        let end = start.checked_add(((sqe.cdw12() & 0xFFFF) as usize + 1) * BLOCK)?;
        (end <= self.blocks.len()).then_some(start..end)
    }

    fn store(&mut self, sqe: &Sqe, data: &[u8]) -> Status {
        let range = self.range(sqe).expect("it was checked");
        self.blocks[range].copy_from_slice(data);
        Status::SUCCESS
    }

    fn execute(&mut self, target: &mut Target, command: CommandId, sqe: &Sqe) -> Option<(Status, u32)> {
        if command.queue == 0 {
            return self.execute_admin(target, command, sqe);
        }
        let Some(range) = self.range(sqe) else { return Some((Status::LBA_OUT_OF_RANGE, 0)) };
        Some((
            match sqe.opcode() {
                opcode::FLUSH => Status::SUCCESS,
                opcode::WRITE => {
                    let slot = Slot(self.next_slot);
                    self.next_slot = self.next_slot.wrapping_add(1);
                    match target.fetch(command, slot, range.len() as u32) {
                        Ok(Some(bytes)) => {
                            self.blocks[range].copy_from_slice(bytes);
                            Status::SUCCESS
                        }
                        Ok(None) => {
                            let write = Write { command, sqe: *sqe, staging: Vec::with_capacity(range.len()) };
                            assert!(self.writes.insert(slot.0, write).is_none());
                            return None;
                        }
                        Err(_) => Status::DATA_TRANSFER_ERROR,
                    }
                }
                opcode::READ | VENDOR_READ_FAILS | VENDOR_READ_BACKWARDS => {
                    self.reads += 1;
                    self.long_reads += u64::from(range.len() > BLOCK);
                    let (mut status, mut units) =
                        (Status::SUCCESS, (0..range.len()).step_by(BLOCK).collect::<Vec<_>>());
                    if sqe.opcode() == VENDOR_READ_BACKWARDS {
                        units.reverse();
                    }
                    for at in units {
                        let unit = &self.blocks[range.start + at..][..BLOCK];
                        let fails = sqe.opcode() == VENDOR_READ_FAILS && at > 0;
                        let sent = target.data(command, at as u32, BLOCK as u32, |out| {
                            out.copy_from_slice(unit);
                            if fails { Err(MoveError::Medium) } else { Ok(()) }
                        });
                        match sent {
                            Ok(()) => {}
                            Err(MoveError::Medium) => status = Status::UNRECOVERED_READ_ERROR,
                            Err(_) => status = Status::DATA_TRANSFER_ERROR,
                        }
                    }
                    status
                }
                code if code & !1 == VENDOR_SILENT => return None,
                _ => Status::INVALID_OPCODE,
            },
            0,
        ))
    }

    fn execute_admin(&mut self, target: &mut Target, command: CommandId, sqe: &Sqe) -> Option<(Status, u32)> {
        Some(match sqe.opcode() {
            IDENTIFY => {
                let mut data = vec![0; 4_096];
                data[78..80].copy_from_slice(&self.controller_id(command.function).to_le_bytes());
                // IOCCSZ: 8 KiB of data, and the command.
                data[1_792..1_796].copy_from_slice(&((8_192_u32 + 64) / 16).to_le_bytes());
                data[4] = u8::from(self.functions[&command.function].privileged);
                let sent = target.data(command, 0, 4_096, |out| {
                    out.copy_from_slice(&data);
                    Ok(())
                });
                (if sent.is_ok() { Status::SUCCESS } else { Status::DATA_TRANSFER_ERROR }, 0)
            }
            SET_FEATURES => (Status::SUCCESS, sqe.cdw11()),
            ASYNC_EVENT_REQUEST | VENDOR_SILENT => return None,
            VENDOR_RESETS => {
                self.functions.entry(command.function).or_default().connected = false;
                self.gone.push(command.function);
                return None;
            }
            _ => (Status::INVALID_OPCODE, 0),
        })
    }
}

/// A target with a mock, on a thread.
pub struct Served {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    /// [`Statistics::stalled`] and [`Statistics::keep_alive_expired`], as the thread saw them last.
    given_up: Arc<[AtomicU64; 2]>,
    /// [`Statistics::commands`] and [`Mock::reads`], likewise.
    done: Arc<[AtomicU64; 2]>,
    thread: Option<JoinHandle<(Target, Mock)>>,
}

impl Served {
    pub fn start(options: Options, blocks: usize) -> Served {
        Served::run(options, blocks, false)
    }

    /// `spin`: the thread never sleeps.
    pub fn run(options: Options, blocks: usize, spin: bool) -> Served {
        let mut target = Target::bind(options).unwrap();
        let address = target.addresses()[0];
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let given_up = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let counts = Arc::clone(&given_up);
        let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let progress = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            let mut mock = Mock::new(blocks);
            let start = Wall::now();
            let now = || Instant::ZERO + Duration::from_ns(start.elapsed().as_nanos() as u64);
            while !stopped.load(Ordering::Relaxed) {
                if !spin {
                    let wait = target.deadline().map_or(20, |at| at.since(now()).as_ns() / 1_000_000 + 1).min(20);
                    let mut fds = [nix::poll::PollFd::new(target.as_fd(), nix::poll::PollFlags::POLLIN)];
                    nix::poll::poll(&mut fds, wait as u16).unwrap();
                }
                target.poll(now(), &mut mock);
                mock.work(&mut target);
                target.flush();
                let Statistics { stalled, keep_alive_expired, .. } = target.statistics();
                counts[0].store(stalled, Ordering::Relaxed);
                counts[1].store(keep_alive_expired, Ordering::Relaxed);
                progress[0].store(target.statistics().commands, Ordering::Relaxed);
                progress[1].store(mock.reads, Ordering::Relaxed);
            }
            (target, mock)
        });
        Served { address, stop, given_up, done, thread: Some(thread) }
    }

    /// A controller that is enabled.
    pub fn controller(&self, host: &Host) -> Controller {
        let mut controller = Controller::connect(self.address, host, &subsystem()).unwrap();
        controller.enable().unwrap();
        controller
    }

    /// Connections that were given up because they stalled.
    pub fn stalled(&self) -> u64 {
        self.given_up[0].load(Ordering::Relaxed)
    }

    /// Commands that have come.
    pub fn commands(&self) -> u64 {
        self.done[0].load(Ordering::Relaxed)
    }

    /// Reads that were carried out.
    pub fn reads(&self) -> u64 {
        self.done[1].load(Ordering::Relaxed)
    }

    /// Controllers that ended because their hosts did not keep them alive.
    pub fn keep_alive_expired(&self) -> u64 {
        self.given_up[1].load(Ordering::Relaxed)
    }

    /// Stops the thread, which must not have panicked.
    pub fn stop(mut self) -> (Statistics, Mock) {
        self.stop.store(true, Ordering::Relaxed);
        let (target, mock) = self.thread.take().unwrap().join().expect("the target's thread does not panic");
        (target.statistics(), mock)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the target's thread does not panic");
            }
        }
    }
}
