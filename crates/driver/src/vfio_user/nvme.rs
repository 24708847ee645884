//! A minimal NVMe driver that polls: admin commands, I/O queue pairs, and doorbells that need no message.
//!
//! Sections are those of the NVM Express Base Specification, revision 1.4.

use std::io;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use tidewater_ipc::{Mapping, PAGE, SharedMemory};
use tidewater_wire::nvme::{
    AdminCommand, Cqe, CreateCq, CreateSq, QueuePriority, Sqe, Status, admin_opcode, feature,
    register::offset as register,
};
use tidewater_wire::pci;
use tidewater_wire::vfio_user::region;

use super::{Socket, SocketError};

/// Entries of the admin queues.
const ADMIN_ENTRIES: u16 = 32;
/// Where the driver's memory is on the bus.
const BUS_BASE: u64 = 1 << 32;
/// How long questions for memory are listened to, before the driver looks for a completion again.
const ANSWER_TIME: Duration = Duration::from_micros(100);
/// How often a wait for a completion looks whether the server is still there.
const LOOK_TIME: Duration = Duration::from_millis(20);
/// How long an admin command may take: what Linux gives a drive (`nvme_core.io_timeout`).
const ADMIN_TIME: Duration = Duration::from_secs(30);

/// How a driver reaches its controller.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options {
    /// Bytes of memory for queues and data.
    pub memory: u64,
    /// The controller gets no descriptor of the memory, and asks for its bytes. They are sent while a method of the
    /// driver, or of a queue pair, waits for something.
    pub memory_by_message: bool,
    /// Doorbells are messages even where they can be mapped, so that they are behind all messages before them.
    pub doorbells_by_message: bool,
    /// How long a wait for a completion sleeps between two looks; zero: it spins.
    pub pause: Duration,
    /// Weighted round robin with urgent priority class is selected (CC.AMS). The controller has to offer it.
    pub weighted: bool,
}

/// Why a controller did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum NvmeError {
    /// The connection failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The system refused memory.
    #[error("no memory for queues: {0}")]
    System(#[from] Errno),
    /// A command ended with a status.
    #[error("the command ended with status {0:?}")]
    Status(Status),
    /// This did not happen in time.
    #[error("{what} timed out after {waited:?}")]
    Timeout {
        /// The late event: a noun.
        what: &'static str,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A completion of a command that is not under way, or that was never begun.
    #[error("a completion without a matching command")]
    Unexpected,
    /// The controller says that it has failed (CSTS.CFS).
    #[error("the controller reports a fatal status")]
    Fatal,
    /// The driver's memory is used up, or a queue can't be that size.
    #[error("the driver ran out of memory")]
    Memory,
}

/// Memory that the controller reaches: pages, in a row, for data.
#[derive(Clone, Debug)]
pub struct Buffer {
    memory: Arc<SharedMemory>,
    /// Where it is in the memory.
    at: u64,
    len: u64,
    /// Bus address of the list of its pages behind the first, if there are more than two.
    list: u64,
}

impl Buffer {
    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing in it: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bus address of its first byte.
    pub fn address(&self) -> u64 {
        BUS_BASE + self.at
    }

    /// Copies bytes out. Asserts that they are inside.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        assert!(offset + to.len() as u64 <= self.len, "{offset} and {} bytes of {}", to.len(), self.len);
        assert!(self.memory.read(self.at + offset, to), "a buffer lies inside of its memory");
    }

    /// Copies bytes in. Asserts that they are inside.
    pub fn write(&self, offset: u64, from: &[u8]) {
        assert!(offset + from.len() as u64 <= self.len, "{offset} and {} bytes of {}", from.len(), self.len);
        assert!(self.memory.write(self.at + offset, from), "a buffer lies inside of its memory");
    }

    /// The command with the first `len` bytes as its data, by PRPs (section 4.3). Asserts that they are inside.
    pub fn attach(&self, sqe: Sqe, len: u64) -> Sqe {
        assert!(len <= self.len, "{len} bytes of {}", self.len);
        let second = match len.div_ceil(PAGE) {
            0 | 1 => 0,
            2 => self.address() + PAGE,
            _ => self.list,
        };
        with_prps(sqe, self.address(), second)
    }
}

fn with_prps(sqe: Sqe, first: u64, second: u64) -> Sqe {
    sqe.with_dword(6, first as u32)
        .with_dword(7, (first >> 32) as u32)
        .with_dword(8, second as u32)
        .with_dword(9, (second >> 32) as u32)
}

/// Where doorbells are rung.
#[derive(Clone, Debug)]
struct Doorbells {
    socket: Arc<Mutex<Socket>>,
    /// The doorbells, where the function lets them be mapped.
    mapped: Option<Arc<Mapping>>,
    /// Bytes from one doorbell to the next (CAP.DSTRD).
    stride: u64,
    /// Shadow doorbells and event indices (section 7.13).
    shadow: Option<Shadow>,
    /// The driver's memory is reached by messages, which are to be answered.
    answers: bool,
    /// How long a wait sleeps between two looks.
    pause: Duration,
}

#[derive(Clone, Debug)]
struct Shadow {
    memory: Arc<SharedMemory>,
    doorbells: u64,
    events: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Doorbells {
    /// Tells the controller a new value. Whether it took a message.
    fn ring(&self, queue: u16, completion: bool, old: u16, new: u16) -> Result<bool, SocketError> {
        let at = (2 * u64::from(queue) + u64::from(completion)) * self.stride;
        if let Some(shadow) = self.shadow.as_ref().filter(|_| queue > 0) {
            assert!(shadow.memory.store_u32(shadow.doorbells + at, new.into()), "a page has room for the queues made");
            // The controller writes its event index first and then looks at the doorbell: one of both sees the other.
            fence(Ordering::SeqCst);
            let event = shadow.memory.load_u32(shadow.events + at).unwrap_or(0) as u16;
            if new.wrapping_sub(event).wrapping_sub(1) >= new.wrapping_sub(old) {
                return Ok(false);
            }
        }
        if self.mapped.as_ref().is_some_and(|mapped| mapped.store_u32(at, new.into())) {
            return Ok(false);
        }
        lock(&self.socket).write(region::BAR0, u64::from(register::DOORBELLS) + at, &u32::from(new).to_le_bytes())?;
        Ok(true)
    }
}

/// A submission queue and its completion queue. It belongs to one thread; others may have others.
#[derive(Debug)]
pub struct QueuePair {
    id: u16,
    memory: Arc<SharedMemory>,
    doorbells: Doorbells,
    sq: u64,
    cq: u64,
    entries: u16,
    tail: u16,
    /// The tail that the controller knows.
    rung: u16,
    /// The controller's head, from its last completion.
    sq_head: u16,
    head: u16,
    /// The head that the controller knows.
    freed: u16,
    phase: bool,
    messages: u64,
}

impl QueuePair {
    /// The number of both queues.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Messages that doorbells have taken so far.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Whether another command has no room.
    pub fn is_full(&self) -> bool {
        (self.tail + 1) % self.entries == self.sq_head
    }

    /// Puts a command in, as it is; [`QueuePair::ring`] tells the controller. `false`: there is no room.
    #[must_use]
    pub fn submit(&mut self, sqe: &Sqe) -> bool {
        if self.is_full() {
            return false;
        }
        let at = self.sq + u64::from(self.tail) * Sqe::SIZE as u64;
        assert!(self.memory.write(at, &sqe.to_bytes()), "a queue lies inside of its memory");
        self.tail = (self.tail + 1) % self.entries;
        true
    }

    /// Tells the controller of one of both, if it has changed.
    fn ring_one(&mut self, completion: bool) -> Result<(), SocketError> {
        let (old, new) = if completion { (self.freed, self.head) } else { (self.rung, self.tail) };
        if old != new {
            self.messages += u64::from(self.doorbells.ring(self.id, completion, old, new)?);
        }
        if completion {
            self.freed = new;
        } else {
            self.rung = new;
        }
        Ok(())
    }

    /// Tells the controller of all commands put in, and of all completions taken. With shadow doorbells that takes a
    /// message only when one of them passes its event index: never, if a controller that polls keeps it half a queue
    /// ahead of what it has seen. (One behind, it can be passed by the very store that the controller has just seen.)
    ///
    /// # Errors
    /// As [`SocketError`] says, where doorbells take messages.
    pub fn ring(&mut self) -> Result<(), SocketError> {
        self.ring_one(true)?;
        self.ring_one(false)
    }

    /// Takes a completion, if there is one. Its entry is free for the controller after the next [`QueuePair::ring`].
    pub fn poll(&mut self) -> Option<Cqe> {
        let at = self.cq + u64::from(self.head) * Cqe::SIZE as u64;
        // The half with the phase tag first: it is stored last.
        let second = self.memory.load_u64(at + 8)?;
        if (second >> 48 & 1 == 1) != self.phase {
            return None;
        }
        let first = self.memory.load_u64(at)?;
        let mut bytes = [0; Cqe::SIZE];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        let cqe = Cqe::from_bytes(&bytes);
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        if cqe.sq_head < self.entries {
            self.sq_head = cqe.sq_head;
        }
        Some(cqe)
    }

    /// Puts a command in, and waits for its completion while it polls. No other command may be under way.
    ///
    /// # Errors
    /// As [`NvmeError`] says, a status other than success included.
    pub fn run(&mut self, sqe: &Sqe, time: Duration) -> Result<Cqe, NvmeError> {
        if !self.submit(sqe) {
            return Err(NvmeError::Memory);
        }
        self.ring()?;
        let cqe = self.wait(time)?;
        if cqe.status == Status::SUCCESS { Ok(cqe) } else { Err(NvmeError::Status(cqe.status)) }
    }

    /// Takes a completion, if there is one, and frees its entry.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn take(&mut self) -> Result<Option<Cqe>, SocketError> {
        let cqe = self.poll();
        if cqe.is_some() {
            self.ring()?;
        }
        Ok(cqe)
    }

    /// Waits for a completion while it polls, and frees its entry.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn wait(&mut self, time: Duration) -> Result<Cqe, NvmeError> {
        let mut now = Instant::now();
        let (until, mut look_at) = (now + time, now + LOOK_TIME);
        loop {
            if let Some(cqe) = self.take()? {
                return Ok(cqe);
            }
            now = Instant::now();
            if now > until {
                return Err(NvmeError::Timeout { what: "a completion", waited: time });
            }
            if now > look_at {
                look_at = now + LOOK_TIME;
                if lock(&self.doorbells.socket).is_closed() {
                    return Err(SocketError::Io(io::ErrorKind::ConnectionReset.into()).into());
                }
            }
            if self.doorbells.answers {
                lock(&self.doorbells.socket).serve_memory(ANSWER_TIME)?;
            }
            match self.doorbells.pause {
                Duration::ZERO => std::hint::spin_loop(),
                pause => std::thread::sleep(pause),
            }
        }
    }
}

/// An enabled controller.
#[derive(Debug)]
pub struct Nvme {
    socket: Arc<Mutex<Socket>>,
    memory: Arc<SharedMemory>,
    used: u64,
    pub(super) admin: QueuePair,
    doorbells: Doorbells,
    cap: u64,
    cid: u16,
    queues: u16,
    weighted: bool,
}

impl Nvme {
    /// Resets and enables the controller, with so many bytes of memory for queues and data; and asks for as many I/O
    /// queues as it has.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn start(socket: Socket, memory: u64) -> Result<Nvme, NvmeError> {
        Nvme::start_with(socket, Options { memory, ..Options::default() })
    }

    /// As [`Nvme::start`], reached as the options say.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn start_with(mut socket: Socket, options: Options) -> Result<Nvme, NvmeError> {
        let memory = Arc::new(SharedMemory::new("nvme-driver", options.memory)?);
        if options.memory_by_message {
            socket.lend_by_message(BUS_BASE, &memory)?;
        } else {
            socket.lend(BUS_BASE, &memory)?;
        }
        let mapped = if options.doorbells_by_message { None } else { map_doorbells(&mut socket)? };
        // The function answers to its BARs and may reach memory.
        let command = pci::command::MEMORY | pci::command::BUS_MASTER;
        socket.write(region::CONFIG, pci::offset::COMMAND.into(), &command.to_le_bytes())?;
        let cap = socket.read_u64(region::BAR0, u64::from(register::CAP))?;
        let stride = 4 << (cap >> 32 & 0xF);
        let socket = Arc::new(Mutex::new(socket));
        let Options { memory_by_message: answers, pause, weighted, .. } = options;
        let doorbells = Doorbells { socket: Arc::clone(&socket), mapped, stride, shadow: None, answers, pause };
        let mut used = 0;
        let entries = ADMIN_ENTRIES;
        let admin = queue_pair(&memory, &mut used, &doorbells, 0, entries).ok_or(NvmeError::Memory)?;
        let mut nvme = Nvme { socket, memory, used, admin, doorbells, cap, cid: 0, queues: 0, weighted };
        nvme.enable()?;
        nvme.ask_for_queues()?;
        Ok(nvme)
    }

    /// The socket, for accesses to regions.
    pub fn socket(&self) -> MutexGuard<'_, Socket> {
        lock(&self.socket)
    }

    /// The Controller Capabilities register.
    pub fn capabilities(&self) -> u64 {
        self.cap
    }

    /// Time that enabling and disabling may take: what the controller says (CAP.TO, in 500 ms), or a command's.
    fn patience(&self) -> Duration {
        Duration::from_millis(500 * (self.cap >> 24 & 0xFF)).max(ADMIN_TIME)
    }

    fn wait_ready(&self, ready: bool) -> Result<(), NvmeError> {
        let until = Instant::now() + self.patience();
        loop {
            let csts = self.socket().read_u32(region::BAR0, u64::from(register::CSTS))?;
            if csts & 2 != 0 && ready {
                return Err(NvmeError::Fatal);
            }
            if (csts & 1 == 1) == ready {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(NvmeError::Timeout { what: "a change of CSTS.RDY", waited: self.patience() });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Section 7.6.1.
    fn enable(&mut self) -> Result<(), NvmeError> {
        self.write_u32(u64::from(register::CC), 0)?;
        self.wait_ready(false)?;
        let entries = u32::from(ADMIN_ENTRIES - 1);
        self.write_u32(u64::from(register::AQA), entries << 16 | entries)?;
        self.write_u64(u64::from(register::ASQ), BUS_BASE + self.admin.sq)?;
        self.write_u64(u64::from(register::ACQ), BUS_BASE + self.admin.cq)?;
        // Entries of 64 and 16 bytes, pages of 4 KiB, the NVM command set.
        self.write_u32(u64::from(register::CC), 4 << 20 | 6 << 16 | u32::from(self.weighted) << 11 | 1)?;
        self.wait_ready(true)
    }

    /// Resets the controller and enables it once more, as drivers do after a fatal status or a loss of power. Queue
    /// pairs that were made before are of no use afterwards, and doorbells are no longer rung in memory; buffers stay.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn restart(&mut self) -> Result<(), NvmeError> {
        self.doorbells.shadow = None;
        self.queues = 0;
        let command = pci::command::MEMORY | pci::command::BUS_MASTER;
        self.socket().write(region::CONFIG, pci::offset::COMMAND.into(), &command.to_le_bytes())?;
        self.write_u32(u64::from(register::CC), 0)?;
        self.wait_ready(false)?;
        // Old completions must not be taken for new ones.
        self.admin = queue_pair(&self.memory, &mut { self.admin.sq }, &self.doorbells, 0, ADMIN_ENTRIES)
            .ok_or(NvmeError::Memory)?;
        self.enable()?;
        self.ask_for_queues()
    }

    /// Asks for as many I/O queues as there are.
    fn ask_for_queues(&mut self) -> Result<(), NvmeError> {
        let asked = Sqe::default().with_dword(0, admin_opcode::SET_FEATURES.into());
        self.admin(asked.with_dword(10, feature::NUMBER_OF_QUEUES.into()).with_dword(11, 0xFFFE_FFFE)).map(drop)
    }

    fn write_u32(&self, offset: u64, value: u32) -> Result<(), SocketError> {
        self.socket().write(region::BAR0, offset, &value.to_le_bytes())
    }

    fn write_u64(&self, offset: u64, value: u64) -> Result<(), SocketError> {
        self.socket().write(region::BAR0, offset, &value.to_le_bytes())
    }

    /// Disables the controller (CC.EN). Its queues are of no use afterwards.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn disable(&mut self) -> Result<(), NvmeError> {
        self.write_u32(u64::from(register::CC), 0)?;
        self.wait_ready(false)
    }

    /// Shuts the controller down in the normal way (CC.SHN, section 7.6.2), and waits.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn shut_down(&mut self) -> Result<(), NvmeError> {
        let cc = self.socket().read_u32(region::BAR0, u64::from(register::CC))?;
        self.write_u32(u64::from(register::CC), cc & !(3 << 14) | 1 << 14)?;
        let until = Instant::now() + self.patience();
        while self.socket().read_u32(region::BAR0, u64::from(register::CSTS))? >> 2 & 3 != 2 {
            if Instant::now() > until {
                return Err(NvmeError::Timeout { what: "a shutdown", waited: self.patience() });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Memory for data: whole pages.
    ///
    /// # Errors
    /// [`NvmeError::Memory`]: there is none left, or more is asked for than one list of PRPs names (2 MiB and a page).
    pub fn buffer(&mut self, len: u64) -> Result<Buffer, NvmeError> {
        let pages = len.div_ceil(PAGE).max(1);
        if pages > 513 {
            return Err(NvmeError::Memory);
        }
        let at = allocate(&self.memory, &mut self.used, pages).ok_or(NvmeError::Memory)?;
        let mut list = 0;
        if pages > 2 {
            let place = allocate(&self.memory, &mut self.used, 1).ok_or(NvmeError::Memory)?;
            for page in 1..pages {
                let address = BUS_BASE + at + page * PAGE;
                assert!(self.memory.store_u64(place + (page - 1) * 8, address), "a list is a page");
            }
            list = BUS_BASE + place;
        }
        Ok(Buffer { memory: Arc::clone(&self.memory), at, len: pages * PAGE, list })
    }

    /// Runs an admin command; its identifier is chosen here.
    ///
    /// # Errors
    /// As [`NvmeError`] says, a status other than success included.
    pub fn admin(&mut self, sqe: Sqe) -> Result<Cqe, NvmeError> {
        self.cid = self.cid.wrapping_add(1);
        self.admin.run(&sqe.with_cid(self.cid), ADMIN_TIME)
    }

    /// Identify (section 5.15): 4,096 bytes.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn identify(&mut self, cns: u8, nsid: u32, data: &Buffer) -> Result<Vec<u8>, NvmeError> {
        let sqe = Sqe::default().with_dword(0, admin_opcode::IDENTIFY.into()).with_nsid(nsid);
        self.admin(data.attach(sqe.with_dword(10, cns.into()), PAGE))?;
        let mut bytes = vec![0; PAGE as usize];
        data.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Rings doorbells in memory from now on (Doorbell Buffer Config, section 5.7): for queue pairs that are made
    /// afterwards.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn use_shadow_doorbells(&mut self) -> Result<(), NvmeError> {
        let doorbells = allocate(&self.memory, &mut self.used, 1).ok_or(NvmeError::Memory)?;
        let events = allocate(&self.memory, &mut self.used, 1).ok_or(NvmeError::Memory)?;
        let (shadow, event_index) = (BUS_BASE + doorbells, BUS_BASE + events);
        self.admin(AdminCommand::DoorbellBufferConfig { shadow, event_index }.emit(0))?;
        self.doorbells.shadow = Some(Shadow { memory: Arc::clone(&self.memory), doorbells, events });
        Ok(())
    }

    /// Makes the next I/O queue pair, with interrupts on `vector` if there is one.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn queue_pair(&mut self, entries: u16, vector: Option<u16>) -> Result<QueuePair, NvmeError> {
        self.queue_pair_of(entries, vector, QueuePriority::Urgent)
    }

    /// As [`Nvme::queue_pair`], in a priority class, which counts under weighted round robin ([`Options::weighted`]).
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn queue_pair_of(
        &mut self,
        entries: u16,
        vector: Option<u16>,
        priority: QueuePriority,
    ) -> Result<QueuePair, NvmeError> {
        let id = self.queues + 1;
        let (memory, used) = (&self.memory, &mut self.used);
        let pair = queue_pair(memory, used, &self.doorbells, id, entries).ok_or(NvmeError::Memory)?;
        let (queue, entries) = (id, entries.into());
        let (cq, sq) = (BUS_BASE + pair.cq, BUS_BASE + pair.sq);
        self.admin(AdminCommand::CreateIoCq(CreateCq { queue, entries, address: cq, vector }).emit(0))?;
        let create = CreateSq { queue, entries, address: sq, completion_queue: id, priority };
        self.admin(AdminCommand::CreateIoSq(create).emit(0))?;
        self.queues = id;
        Ok(pair)
    }
}

impl Nvme {
    /// Deletes an I/O queue pair (sections 5.4 and 5.6). Behind the last one, the next is made with its number again.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn delete(&mut self, pair: QueuePair) -> Result<(), NvmeError> {
        let queue = pair.id;
        for command in [AdminCommand::DeleteIoSq { queue }, AdminCommand::DeleteIoCq { queue }] {
            self.admin(command.emit(0))?;
        }
        if queue == self.queues {
            self.queues -= 1;
        }
        Ok(())
    }
}

/// The doorbells, where the function lets them be mapped: not all of a region need be.
fn map_doorbells(socket: &mut Socket) -> Result<Option<Arc<Mapping>>, NvmeError> {
    let bar0 = socket.region_info(region::BAR0)?;
    // They are in one page, if there are not too many.
    let area = bar0.areas.iter().find(|area| area.offset == u64::from(register::DOORBELLS));
    Ok(area.map(|area| bar0.map(*area)).transpose()?.map(Arc::new))
}

/// Takes whole pages.
fn allocate(memory: &SharedMemory, used: &mut u64, pages: u64) -> Option<u64> {
    let (at, end) = (*used, *used + pages * PAGE);
    if end > memory.len() {
        return None;
    }
    *used = end;
    memory.fill(at, pages * PAGE, 0).then_some(at)
}

fn queue_pair(
    memory: &Arc<SharedMemory>,
    used: &mut u64,
    doorbells: &Doorbells,
    id: u16,
    entries: u16,
) -> Option<QueuePair> {
    // A doorbell must have its place in a page of them, and a queue at least two entries.
    if entries < 2 || (2 * u64::from(id) + 2) * doorbells.stride > PAGE {
        return None;
    }
    let sq = allocate(memory, used, (u64::from(entries) * Sqe::SIZE as u64).div_ceil(PAGE))?;
    let cq = allocate(memory, used, (u64::from(entries) * Cqe::SIZE as u64).div_ceil(PAGE))?;
    Some(QueuePair {
        id,
        memory: Arc::clone(memory),
        doorbells: doorbells.clone(),
        sq,
        cq,
        entries,
        tail: 0,
        rung: 0,
        sq_head: 0,
        head: 0,
        freed: 0,
        phase: true,
        messages: 0,
    })
}
