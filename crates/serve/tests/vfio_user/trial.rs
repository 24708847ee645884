//! A trial controller: enough of NVMe to carry commands between a client and some memory, without any firmware.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use tempfile::TempDir;
use tidewater_ipc::SharedMemory;
use tidewater_serve::vfio_user::{
    Connection, GuestMemory, Interrupts, Mailbox, Pci, PciMessage, Region, Server, Waker, mailbox,
};
use tidewater_wire::nvme::register::offset;
use tidewater_wire::nvme::{Cqe, Sqe, Status};
use tidewater_wire::pci::{ConfigSpace, Options};
use tidewater_wire::vfio_user::region;

use tidewater_testkit::PATIENCE;

/// MSI-X vectors.
pub const VECTORS: u16 = 5;
/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Blocks.
pub const BLOCKS: u64 = 1024;
const QUEUES: usize = 5;
const PAGE: u64 = 4096;
/// Rounds without work before the thread sleeps.
pub const IDLE_ROUNDS: u32 = 20_000;

/// A served trial controller.
pub struct Trial {
    pub server: Option<Server>,
    pub folder: TempDir,
    pub memory: Arc<GuestMemory>,
    /// The client that is connected.
    pub connection: Arc<Mutex<Option<Arc<Connection>>>>,
    /// Whether the engine sleeps.
    pub sleeping: Arc<AtomicBool>,
    waker: Arc<Waker>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Trial {
    /// `mapped`: the doorbell page can be mapped.
    pub fn new(mapped: bool) -> Trial {
        Trial::sleeping_after(mapped, IDLE_ROUNDS)
    }

    /// One that sleeps after so many rounds without work.
    pub fn sleeping_after(mapped: bool, idle_rounds: u32) -> Trial {
        let memory = GuestMemory::default();
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { vectors: VECTORS, msi: true, ..Options::default() };
        let waker = Arc::new(Waker::new().expect("a waker"));
        let (slot, mailbox) = mailbox(Arc::clone(&waker), 64, PATIENCE);
        let pci = Pci::new(&options, slot);
        let memory = Arc::new(memory);
        let size = ConfigSpace::new(&options).bar_bytes(0);
        let doorbells = mapped.then(|| Arc::new(SharedMemory::new("doorbells", size).expect("a memfd")));
        let device = pci.device(Arc::clone(&memory), doorbells.clone(), Region::NONE, Region::NONE);
        let connection = Arc::new(Mutex::new(None));
        let (sleeping, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut engine = Engine {
            mailbox,
            waker: Arc::clone(&waker),
            memory: Arc::clone(&memory),
            interrupts: pci.interrupts(),
            connection: Arc::clone(&connection),
            doorbells,
            registers: [0; 0x1000],
            sq: std::array::from_fn(|_| None),
            cq: std::array::from_fn(|_| None),
            shadow: None,
            data: vec![0; (BLOCK * BLOCKS) as usize],
        };
        let theirs = (Arc::clone(&sleeping), Arc::clone(&over));
        let thread = std::thread::spawn(move || engine.run(&theirs.0, &theirs.1, idle_rounds));
        let server = Server::start(&folder.path().join("cntrl"), device, pci).expect("a server");
        Trial { server: Some(server), folder, memory, connection, sleeping, waker, over, thread: Some(thread) }
    }

    pub fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("cntrl")
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.server = None;
        self.over.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            // A test that fails has said why already.
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy)]
struct Submission {
    address: u64,
    entries: u16,
    head: u16,
    tail: u16,
    cq: u16,
}

#[derive(Clone, Copy)]
struct Completion {
    address: u64,
    entries: u16,
    tail: u16,
    phase: bool,
    vector: Option<u16>,
}

struct Engine {
    mailbox: Mailbox,
    waker: Arc<Waker>,
    memory: Arc<GuestMemory>,
    interrupts: Arc<Interrupts>,
    connection: Arc<Mutex<Option<Arc<Connection>>>>,
    doorbells: Option<Arc<SharedMemory>>,
    registers: [u8; 0x1000],
    sq: [Option<Submission>; QUEUES],
    cq: [Option<Completion>; QUEUES],
    /// Shadow doorbells and event indices.
    shadow: Option<(u64, u64)>,
    data: Vec<u8>,
}

impl Engine {
    fn run(&mut self, sleeping: &AtomicBool, over: &AtomicBool, idle_rounds: u32) {
        self.put(offset::CAP, &(1023u64 | 1 << 16 | 10 << 24 | 1 << 37).to_le_bytes());
        self.put(offset::VS, &0x0001_0400u32.to_le_bytes());
        let mut idle = 0;
        while !over.load(Ordering::SeqCst) {
            idle = if self.round(false) { 0 } else { (idle + 1).min(idle_rounds) };
            if idle < idle_rounds {
                std::hint::spin_loop();
                continue;
            }
            self.waker.doze();
            // Doorbells from now on take messages; mapped ones are looked at every millisecond.
            if self.round(true) || over.load(Ordering::SeqCst) {
                self.waker.rouse();
            } else {
                sleeping.store(true, Ordering::SeqCst);
                self.waker.sleep(self.doorbells.as_ref().map(|_| Duration::from_millis(1)));
                sleeping.store(false, Ordering::SeqCst);
            }
            idle = 0;
        }
    }

    fn put(&mut self, at: u32, bytes: &[u8]) {
        self.registers[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn get(&self, at: u32) -> u64 {
        u64::from_le_bytes(*self.registers[at as usize..].first_chunk().expect("a register"))
    }

    /// All the work that there is. Whether there was any.
    fn round(&mut self, sleepy: bool) -> bool {
        let mut worked = false;
        while let Some(message) = self.mailbox.take() {
            self.on_message(message);
            worked = true;
        }
        for queue in 0..QUEUES {
            self.look(queue, sleepy);
            worked |= self.work(queue);
        }
        worked
    }

    fn on_message(&mut self, message: PciMessage) {
        match message {
            PciMessage::Read { region, offset, len, reply } => {
                assert_eq!(region, region::BAR0);
                let mut bytes = vec![0; len as usize];
                for (at, byte) in (offset as usize..).zip(&mut bytes) {
                    *byte = self.registers.get(at).copied().unwrap_or(0);
                }
                reply.send(Ok(&bytes));
            }
            PciMessage::Write { offset, bytes, .. } if offset >= u64::from(offset::DOORBELLS) => {
                let index = ((offset - u64::from(offset::DOORBELLS)) / 4) as usize;
                let value = bytes.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
                if index.is_multiple_of(2)
                    && let Some(sq) = self.sq.get_mut(index / 2).and_then(Option::as_mut)
                {
                    sq.tail = value % sq.entries;
                }
            }
            PciMessage::Write { offset, bytes, .. } => {
                self.put(offset as u32, &bytes);
                if offset == u64::from(offset::CC) {
                    self.control();
                }
            }
            PciMessage::Reset { reply } => {
                self.put(offset::CC, &[0; 4]);
                self.control();
                reply.send(Ok(&[]));
            }
            PciMessage::Connected(connection) => self.connect(Some(connection)),
            // The queues of a driver that is gone must not be touched any more.
            PciMessage::Disconnected => {
                self.connect(None);
                self.put(offset::CC, &[0; 4]);
                self.control();
            }
        }
    }

    fn connect(&self, connection: Option<Arc<Connection>>) {
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = connection;
    }

    fn control(&mut self) {
        let cc = self.get(offset::CC) as u32;
        let ready = cc & 1;
        let shutdown = if cc >> 14 & 3 != 0 { 2 } else { 0 };
        self.put(offset::CSTS, &(ready | shutdown << 2).to_le_bytes());
        if ready == 1 && self.sq[0].is_none() {
            let aqa = self.get(offset::AQA) as u32;
            let (sq, cq) = (aqa as u16 & 0xFFF, (aqa >> 16) as u16 & 0xFFF);
            self.create_sq(0, self.get(offset::ASQ), sq + 1, 0);
            self.create_cq(0, self.get(offset::ACQ), cq + 1, Some(0));
        } else if ready == 0 {
            (self.sq, self.cq, self.shadow) = (std::array::from_fn(|_| None), std::array::from_fn(|_| None), None);
            if let Some(doorbells) = &self.doorbells {
                assert!(doorbells.fill(u64::from(offset::DOORBELLS), PAGE, 0));
            }
        }
    }

    fn create_sq(&mut self, id: u16, address: u64, entries: u16, cq: u16) {
        self.sq[usize::from(id)] = Some(Submission { address, entries, head: 0, tail: 0, cq });
    }

    fn create_cq(&mut self, id: u16, address: u64, entries: u16, vector: Option<u16>) {
        self.cq[usize::from(id)] = Some(Completion { address, entries, tail: 0, phase: true, vector });
    }

    /// Looks at the doorbell of a submission queue where no message tells of it.
    fn look(&mut self, queue: usize, sleepy: bool) {
        let Some(sq) = &mut self.sq[queue] else { return };
        let at = queue as u64 * 8;
        if let Some((doorbells, events)) = self.shadow.filter(|_| queue > 0) {
            let mut transfers = self.memory.enter();
            // While it looks anyhow, an event is half a queue ahead. One behind what was seen would do for a driver
            // that has read it before it stores its doorbell, but it stores first. When it sleeps, the next command is
            // an event.
            let event = if sleepy { sq.tail } else { (sq.tail + sq.entries / 2) % sq.entries };
            let _ = transfers.store_u32(events + at, event.into());
            if let Some(cq) = &self.cq[queue] {
                let head = transfers.load_u32(doorbells + at + 4).unwrap_or(0) as u16;
                let _ = transfers.store_u32(events + at + 4, ((head + cq.entries / 2) % cq.entries).into());
            }
            fence(Ordering::SeqCst);
            if let Ok(tail) = transfers.load_u32(doorbells + at) {
                sq.tail = tail as u16 % sq.entries;
            }
        } else if let Some(doorbells) = &self.doorbells {
            let tail = doorbells.load_u32(u64::from(offset::DOORBELLS) + at).expect("a doorbell");
            sq.tail = tail as u16 % sq.entries;
        }
    }

    fn work(&mut self, queue: usize) -> bool {
        let mut worked = false;
        while let Some(sq) = self.sq[queue].filter(|sq| sq.head != sq.tail) {
            let mut bytes = [0; 64];
            if self.memory.read(sq.address + u64::from(sq.head) * 64, &mut bytes).is_err() {
                return worked;
            }
            let sqe = Sqe::from_bytes(&bytes);
            let head = (sq.head + 1) % sq.entries;
            if let Some(sq) = &mut self.sq[queue] {
                sq.head = head;
            }
            let result = if queue == 0 { self.admin(&sqe) } else { self.io(&sqe) };
            let (dw0, status) = result.map_or((0, Status::DATA_TRANSFER_ERROR), |(dw0, status)| (dw0, status));
            let Some(cq) = &mut self.cq[usize::from(sq.cq)] else { return true };
            let cqe = Cqe { dw0, sq_head: head, sq_id: queue as u16, cid: sqe.cid(), phase: cq.phase, status };
            let _ = self.memory.enter().write_cqe(cq.address + u64::from(cq.tail) * 16, &cqe.to_bytes());
            cq.tail += 1;
            if cq.tail == cq.entries {
                (cq.tail, cq.phase) = (0, !cq.phase);
            }
            if let Some(vector) = cq.vector {
                self.interrupts.raise(vector);
            }
            worked = true;
        }
        worked
    }

    fn admin(&mut self, sqe: &Sqe) -> Result<(u32, Status), Errno> {
        let (id, size) = (sqe.cdw10() as u16, (sqe.cdw10() >> 16) as u16);
        match sqe.opcode() {
            0x01 | 0x05 if usize::from(id) >= QUEUES || id == 0 => return Ok((0, Status::INVALID_FIELD)),
            0x01 => self.create_sq(id, sqe.prp1(), size + 1, (sqe.cdw11() >> 16) as u16),
            0x05 => {
                let vector = (sqe.cdw11() & 2 != 0).then_some((sqe.cdw11() >> 16) as u16);
                self.create_cq(id, sqe.prp1(), size + 1, vector);
            }
            0x06 => {
                let mut data = [0; 4096];
                match sqe.cdw10() & 0xFF {
                    0 => {
                        for at in [0, 8, 16] {
                            data[at..at + 8].copy_from_slice(&BLOCKS.to_le_bytes());
                        }
                        data[130] = 12;
                    }
                    1 => {
                        data[4..24].copy_from_slice(b"TRIAL               ");
                        data[512..514].copy_from_slice(&[0x66, 0x44]);
                        data[516] = 1;
                    }
                    _ => return Ok((0, Status::INVALID_FIELD)),
                }
                self.memory.write(sqe.prp1(), &data).map_err(|_| Errno::EFAULT)?;
            }
            0x09 => return Ok((0x0003_0003, Status::SUCCESS)),
            0x7C => self.shadow = Some((sqe.prp1(), sqe.prp2())),
            _ => return Ok((0, Status::INVALID_OPCODE)),
        }
        Ok((0, Status::SUCCESS))
    }

    fn io(&mut self, sqe: &Sqe) -> Result<(u32, Status), Errno> {
        let writing = match sqe.opcode() {
            0 => return Ok((0, Status::SUCCESS)),
            1 => true,
            2 => false,
            _ => return Ok((0, Status::INVALID_OPCODE)),
        };
        let pages = u64::from(sqe.cdw12() & 0xFFFF) + 1;
        if sqe.slba() + pages > BLOCKS {
            return Ok((0, Status::LBA_OUT_OF_RANGE));
        }
        let mut list = vec![0; if pages > 2 { (pages as usize - 1) * 8 } else { 0 }];
        let mut transfers = self.memory.enter();
        transfers.read(sqe.prp2(), &mut list).map_err(|_| Errno::EFAULT)?;
        for page in 0..pages {
            let address = match (page, pages) {
                (0, _) => sqe.prp1(),
                (_, 2) => sqe.prp2(),
                _ => u64::from_le_bytes(*list[(page as usize - 1) * 8..].first_chunk().expect("an entry")),
            };
            let block = &mut self.data[((sqe.slba() + page) * BLOCK) as usize..][..BLOCK as usize];
            let moved = if writing { transfers.read(address, block) } else { transfers.write(address, block) };
            moved.map_err(|_| Errno::EFAULT)?;
        }
        Ok((0, Status::SUCCESS))
    }
}
