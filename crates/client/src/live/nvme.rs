//! The commands that a log needs (NVM Express Base Specification, revision 1.4): trim and status by the admin queue,
//! reads of what is on flash by one I/O queue. One command at a time; whoever appends never comes here.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tidewater_wire::nvme::register::offset as register;
use tidewater_wire::nvme::{Cqe, Sqe, Status};
use tidewater_wire::pci;
#[cfg(feature = "hardware")]
use tidewater_wire::vendor::Direction;
use tidewater_wire::vendor::{AdminCommand, FastStatus, IoCommand, ReadLogHeader, TrimTo, log_page};
use tidewater_wire::vfio_user::region;

use super::error::LiveError;
use super::memory::Mapping;
use super::socket::{REPLY_TIME, Socket};

const PAGE: u64 = 4096;
/// Entries of each queue: one command is under way, and a queue has two at least.
const ENTRIES: u16 = 4;
/// Where the memory is on the bus.
const BUS: u64 = 1 << 32;
/// Where in the memory: queues (admin SQ, CQ, I/O SQ, CQ), the list of data pages, the data.
const QUEUES: [u64; 4] = [0, PAGE, 2 * PAGE, 3 * PAGE];
const LIST: u64 = 4 * PAGE;
const DATA: u64 = 5 * PAGE;
/// Bytes of data that one command moves, at most.
pub(crate) const DATA_MAX: u64 = 128 << 10;
const MEMORY: u64 = DATA + DATA_MAX;
/// How long a command may take beyond what it is told to wait.
const TIME: Duration = REPLY_TIME;

/// A queue pair.
#[derive(Clone, Copy, Debug)]
struct Queue {
    id: u16,
    sq: u64,
    cq: u64,
    tail: u16,
    head: u16,
    phase: bool,
}

impl Queue {
    fn new(id: u16) -> Queue {
        let at = 2 * usize::from(id);
        Queue { id, sq: QUEUES[at], cq: QUEUES[at + 1], tail: 0, head: 0, phase: true }
    }
}

/// A command that nobody waits for at the moment.
#[derive(Clone, Copy, Debug)]
struct Begun {
    #[cfg_attr(not(feature = "hardware"), expect(dead_code))]
    queue: u16,
    cid: u16,
    done: Option<Cqe>,
}

/// An enabled controller with an I/O queue.
#[derive(Debug)]
pub(crate) struct Nvme {
    pub(crate) socket: Socket,
    memory: Mapping,
    /// Lent to the device as long as this is there.
    _file: OwnedFd,
    stride: u64,
    admin: Queue,
    io: Queue,
    cid: u16,
    begun: Option<Begun>,
}

fn status(what: &'static str, status: Status) -> LiveError {
    LiveError::Status { what, status: status.to_string() }
}

impl Nvme {
    /// Resets and enables the controller.
    pub(crate) fn start(mut socket: Socket) -> Result<Nvme, LiveError> {
        let file = memory()?;
        let mapping = Mapping::new(file.as_fd(), 0, MEMORY, true).map_err(LiveError::system("map queues"))?;
        socket.lend(BUS, MEMORY, file.as_fd())?;
        let command = pci::command::MEMORY | pci::command::BUS_MASTER;
        socket.write(region::CONFIG, pci::offset::COMMAND.into(), &command.to_le_bytes())?;
        let mut cap = [0; 8];
        socket.read(region::BAR0, register::CAP.into(), &mut cap)?;
        let stride = 4 << (u64::from_le_bytes(cap) >> 32 & 0xf);
        let (admin, io) = (Queue::new(0), Queue::new(1));
        let mut nvme = Nvme { socket, memory: mapping, _file: file, stride, admin, io, cid: 0, begun: None };
        nvme.enable()?;
        nvme.make_queue()?;
        Ok(nvme)
    }

    fn set(&mut self, offset: u32, value: &[u8]) -> Result<(), LiveError> {
        self.socket.write(region::BAR0, offset.into(), value)
    }

    fn wait_ready(&mut self, ready: bool) -> Result<(), LiveError> {
        let until = Instant::now() + TIME;
        loop {
            let mut csts = [0; 4];
            self.socket.read(region::BAR0, register::CSTS.into(), &mut csts)?;
            let csts = u32::from_le_bytes(csts);
            if csts & 2 != 0 && ready {
                return Err(LiveError::Malformed { what: "a controller with a fatal status (CSTS.CFS)".into() });
            }
            if (csts & 1 == 1) == ready {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(LiveError::Malformed { what: "a controller that does not get ready".into() });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Section 7.6.1.
    fn enable(&mut self) -> Result<(), LiveError> {
        self.set(register::CC, &0u32.to_le_bytes())?;
        self.wait_ready(false)?;
        let entries = u32::from(ENTRIES - 1);
        self.set(register::AQA, &(entries << 16 | entries).to_le_bytes())?;
        self.set(register::ASQ, &(BUS + self.admin.sq).to_le_bytes())?;
        self.set(register::ACQ, &(BUS + self.admin.cq).to_le_bytes())?;
        // Entries of 64 and 16 bytes, pages of 4 KiB, the NVM command set.
        self.set(register::CC, &(4u32 << 20 | 6 << 16 | 1).to_le_bytes())?;
        self.wait_ready(true)
    }

    fn make_queue(&mut self) -> Result<(), LiveError> {
        let (sq, cq) = (self.io.sq, self.io.cq);
        let size = u32::from(ENTRIES - 1) << 16 | 1;
        let make = |opcode: u32, at: u64, cdw11: u32| {
            let sqe = Sqe::from_dwords([0; 16]).with_dword(0, opcode).with_dword(10, size).with_dword(11, cdw11);
            sqe.with_dword(6, (BUS + at) as u32).with_dword(7, ((BUS + at) >> 32) as u32)
        };
        // Set Features, Number of Queues (5.21.1.7); Create I/O Completion Queue (5.3), Submission Queue (5.4):
        // contiguous.
        let queues = Sqe::from_dwords([0; 16]).with_dword(0, 0x09).with_dword(10, 0x07);
        self.run(0, queues, "Set Features", TIME)?;
        self.run(0, make(0x05, cq, 1), "Create I/O Completion Queue", TIME)?;
        self.run(0, make(0x01, sq, 1 << 16 | 1), "Create I/O Submission Queue", TIME).map(drop)
    }

    /// Runs one command, which has to end well.
    fn run(&mut self, queue: u16, sqe: Sqe, what: &'static str, time: Duration) -> Result<Cqe, LiveError> {
        let cqe = self.complete(queue, sqe, what, time)?;
        if cqe.status == Status::SUCCESS { Ok(cqe) } else { Err(status(what, cqe.status)) }
    }

    #[cfg(feature = "hardware")]
    /// Runs any command of the admin queue (0) or of the I/O queue (1), whatever its status, and moves its data, which
    /// way its opcode tells: at most [`DATA_MAX`] bytes.
    pub(crate) fn command(&mut self, queue: u16, sqe: Sqe, data: &mut [u8]) -> Result<Cqe, LiveError> {
        let len = data.len() as u64;
        assert!(len <= DATA_MAX, "{len} bytes do not fit");
        let direction = Direction::of(sqe.opcode());
        if direction == Some(Direction::ToDevice) {
            self.memory.write(DATA, data);
        }
        let sqe = if len > 0 { self.with_data(sqe, len) } else { sqe };
        let cqe = self.complete(queue, sqe, "a command", TIME)?;
        if direction == Some(Direction::ToHost) && cqe.status == Status::SUCCESS {
            self.memory.read(DATA, data);
        }
        Ok(cqe)
    }

    /// Begins a command without data; one at a time is under way beside those that are waited for.
    #[cfg(feature = "hardware")]
    pub(crate) fn begin(&mut self, queue: u16, sqe: Sqe) -> Result<(), LiveError> {
        assert!(self.begun.is_none(), "one at a time");
        let cid = self.submit(queue, sqe)?;
        self.begun = Some(Begun { queue, cid, done: None });
        Ok(())
    }

    /// How the command that was begun has ended; `None`: it has not. `wait`: until it has.
    #[cfg(feature = "hardware")]
    pub(crate) fn poll(&mut self, wait: bool) -> Result<Option<Cqe>, LiveError> {
        let until = Instant::now() + TIME;
        loop {
            let begun = self.begun.ok_or(LiveError::Malformed { what: "an answer that nobody waits for".into() })?;
            if let Some(cqe) = begun.done {
                self.begun = None;
                return Ok(Some(cqe));
            }
            match self.reap(begun.queue)? {
                Some(cqe) => self.keep(cqe, "what was begun")?,
                None if !wait => return Ok(None),
                None => self.pause(until, "what was begun")?,
            }
        }
    }

    /// Runs one command, whatever its status.
    fn complete(&mut self, queue: u16, sqe: Sqe, what: &'static str, time: Duration) -> Result<Cqe, LiveError> {
        let cid = self.submit(queue, sqe)?;
        let until = Instant::now() + time;
        loop {
            match self.reap(queue)? {
                Some(cqe) if cqe.cid == cid => return Ok(cqe),
                Some(cqe) => self.keep(cqe, what)?,
                None => self.pause(until, what)?,
            }
        }
    }

    /// Keeps a completion that is not the one that is waited for: that of the command that was begun.
    fn keep(&mut self, cqe: Cqe, what: &'static str) -> Result<(), LiveError> {
        match &mut self.begun {
            Some(begun) if begun.cid == cqe.cid && begun.done.is_none() => {
                begun.done = Some(cqe);
                Ok(())
            }
            _ => Err(LiveError::Malformed { what: format!("the completion of another command than {what}") }),
        }
    }

    fn pause(&mut self, until: Instant, what: &'static str) -> Result<(), LiveError> {
        let late = Instant::now() > until;
        if !late {
            std::thread::sleep(Duration::from_micros(20));
        }
        if self.socket.is_gone() {
            return Err(LiveError::Gone);
        }
        if late { Err(LiveError::Malformed { what: format!("no completion of {what}") }) } else { Ok(()) }
    }

    fn submit(&mut self, queue: u16, sqe: Sqe) -> Result<u16, LiveError> {
        self.cid = self.cid.wrapping_add(1);
        let sqe = sqe.with_dword(0, sqe.dwords()[0] & 0xffff | u32::from(self.cid) << 16);
        let q = if queue == 0 { &mut self.admin } else { &mut self.io };
        self.memory.write(q.sq + u64::from(q.tail) * Sqe::SIZE as u64, &sqe.to_bytes());
        q.tail = (q.tail + 1) % ENTRIES;
        let (id, tail) = (q.id, q.tail);
        self.ring(id, false, tail)?;
        Ok(self.cid)
    }

    /// Takes the next completion of a queue, if there is one.
    fn reap(&mut self, queue: u16) -> Result<Option<Cqe>, LiveError> {
        let q = if queue == 0 { &mut self.admin } else { &mut self.io };
        let at = q.cq + u64::from(q.head) * Cqe::SIZE as u64;
        // The half with the phase tag is stored last.
        if (self.memory.load(at + 8) >> 48 & 1 == 1) != q.phase {
            return Ok(None);
        }
        let mut bytes = [0; Cqe::SIZE];
        self.memory.read(at, &mut bytes);
        q.head += 1;
        if q.head == ENTRIES {
            (q.head, q.phase) = (0, !q.phase);
        }
        let (id, head) = (q.id, q.head);
        self.ring(id, true, head)?;
        Ok(Some(Cqe::from_bytes(&bytes)))
    }

    fn ring(&mut self, queue: u16, completion: bool, value: u16) -> Result<(), LiveError> {
        let at = u64::from(register::DOORBELLS) + (2 * u64::from(queue) + u64::from(completion)) * self.stride;
        self.socket.write(region::BAR0, at, &u32::from(value).to_le_bytes())
    }

    /// The command with the first `len` bytes of the data area, by PRPs (section 4.3).
    fn with_data(&self, sqe: Sqe, len: u64) -> Sqe {
        let pages = len.div_ceil(PAGE);
        let second = match pages {
            0 | 1 => 0,
            2 => BUS + DATA + PAGE,
            _ => {
                for page in 1..pages {
                    self.memory.write(LIST + (page - 1) * 8, &(BUS + DATA + page * PAGE).to_le_bytes());
                }
                BUS + LIST
            }
        };
        let first = BUS + DATA;
        sqe.with_dword(6, first as u32)
            .with_dword(7, (first >> 32) as u32)
            .with_dword(8, second as u32)
            .with_dword(9, (second >> 32) as u32)
    }

    /// Log page C0h of a function.
    pub(super) fn fast_status(&mut self, function: u16) -> Result<FastStatus, LiveError> {
        let len = FastStatus::SIZE as u32;
        // Get Log Page (5.14): NUMDL, LID; LSI.
        let sqe = Sqe::from_dwords([0; 16])
            .with_dword(0, 0x02)
            .with_dword(1, u32::MAX)
            .with_dword(10, (len / 4 - 1) << 16 | u32::from(log_page::FAST_STATUS))
            .with_dword(11, u32::from(function) << 16);
        let sqe = self.with_data(sqe, len.into());
        self.run(0, sqe, "Get Log Page", TIME)?;
        let mut bytes = [0; FastStatus::SIZE];
        self.memory.read(DATA, &mut bytes);
        FastStatus::parse(&bytes).map_err(|error| LiveError::Malformed { what: error.to_string() })
    }

    /// Trim Log.
    pub(super) fn trim(&mut self, function: u16, lane: u8, offset: u64) -> Result<(), LiveError> {
        let command = AdminCommand::TrimLog { function, to: TrimTo::Stream { lane, offset } };
        self.run(0, command.emit(0), "Trim Log", TIME).map(drop)
    }

    /// Read Log: bytes on flash from a stream offset on, at most what fits; waits for the first of them. Returns where
    /// they begin.
    pub(super) fn read_log(
        &mut self,
        lane: u8,
        offset: u64,
        to: &mut [u8],
        wait: Duration,
    ) -> Result<(u64, usize), LiveError> {
        let bytes = (to.len() as u64).min(DATA_MAX - ReadLogHeader::SIZE as u64) as u32;
        let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX - 1);
        let command = IoCommand::ReadLog { lane, offset, bytes, wait_ns };
        let sqe = self.with_data(command.emit(0), command.data_bytes());
        self.run(1, sqe, "Read Log", wait.saturating_add(TIME))?;
        let mut header = [0; ReadLogHeader::SIZE];
        self.memory.read(DATA, &mut header);
        let header = ReadLogHeader::parse(&header).map_err(|error| LiveError::Malformed { what: error.to_string() })?;
        let len = (header.bytes as usize).min(bytes as usize);
        self.memory.read(DATA + ReadLogHeader::SIZE as u64, &mut to[..len]);
        Ok((header.offset, len))
    }
}

/// Memory that nobody can truncate.
fn memory() -> Result<OwnedFd, LiveError> {
    let failed = LiveError::system("make memory for queues");
    let name = CString::new("tidewater-log").map_err(|_| failed(nix::errno::Errno::EINVAL))?;
    let file = memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).map_err(failed)?;
    let failed = LiveError::system("make memory for queues");
    nix::unistd::ftruncate(&file, MEMORY as i64).map_err(&failed)?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL))
        .map_err(&failed)?;
    Ok(file)
}
