//! A function with one I/O queue, for a host that runs one command at a time and may have begun another.

use std::sync::MutexGuard;
use std::time::Duration;

use tidewater_wire::nvme::{Cqe, Sqe};
use tidewater_wire::vendor::Direction;
use tidewater_wire::vfio_user::region;

use super::{Buffer, Nvme, NvmeError, Options, QueuePair, Socket};
use crate::{BarAccess, Completion, Error, Queue, Transport};

/// Bytes of data that one command moves, at most.
pub const DATA_MAX: u64 = 128 << 10;
/// Bytes of memory: queues, data, and the list of its pages.
const MEMORY: u64 = DATA_MAX + (32 << 10);
/// Entries of the I/O queue: two commands are under way, and one entry of a queue stays free.
const ENTRIES: u16 = 4;
/// Bytes that one message moves, at most: a device takes a mebibyte, and a page is enough to be quick.
const MESSAGE_MAX: usize = 64 << 10;
/// How long a command may take: what Linux gives an NVMe drive (`nvme_core.io_timeout`).
const TIME: Duration = Duration::from_secs(30);
/// How long a wait sleeps between two looks: commands wait for flash or a disk, and the processor is for others.
const PAUSE: Duration = Duration::from_micros(20);

/// The command that was begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    queue: Queue,
    cid: u16,
    done: Option<Cqe>,
}

/// An enabled controller with an I/O queue and room for one command's data.
#[derive(Debug)]
pub struct Function {
    nvme: Nvme,
    io: QueuePair,
    data: Buffer,
    cid: u16,
    begun: Option<Begun>,
}

fn completion(cqe: Cqe) -> Completion {
    Completion { status: cqe.status, result: cqe.dw0 }
}

impl Function {
    /// Resets and enables the controller. Doorbells are messages: a command is behind the stores that were posted
    /// before it.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn start(socket: Socket) -> Result<Function, NvmeError> {
        let options = Options { memory: MEMORY, doorbells_by_message: true, pause: PAUSE, ..Options::default() };
        let mut nvme = Nvme::start_with(socket, options)?;
        let (io, data) = (nvme.queue_pair(ENTRIES, None)?, nvme.buffer(DATA_MAX)?);
        Ok(Function { nvme, io, data, cid: 0, begun: None })
    }

    /// The socket, for accesses to regions.
    pub fn socket(&self) -> MutexGuard<'_, Socket> {
        self.nvme.socket()
    }

    /// The data of a command, from its first byte on.
    pub fn data(&self) -> &Buffer {
        &self.data
    }

    /// Runs a command with the first `len` bytes of [`Function::data`], whatever its status. Asserts that they are
    /// inside.
    ///
    /// # Errors
    /// As [`NvmeError`] says.
    pub fn run(&mut self, queue: Queue, sqe: Sqe, len: u64, time: Duration) -> Result<Completion, NvmeError> {
        let sqe = if len > 0 { self.data.attach(sqe, len) } else { sqe };
        let cid = self.submit(queue, sqe)?;
        loop {
            let cqe = self.pair(queue).wait(time)?;
            if cqe.cid == cid {
                return Ok(completion(cqe));
            }
            self.keep(queue, cqe)?;
        }
    }

    fn pair(&mut self, queue: Queue) -> &mut QueuePair {
        match queue {
            Queue::Admin => &mut self.nvme.admin,
            Queue::Io => &mut self.io,
        }
    }

    fn submit(&mut self, queue: Queue, sqe: Sqe) -> Result<u16, NvmeError> {
        self.cid = self.cid.wrapping_add(1);
        let cid = self.cid;
        let pair = self.pair(queue);
        if !pair.submit(&sqe.with_cid(cid)) {
            return Err(NvmeError::Memory);
        }
        pair.ring()?;
        Ok(cid)
    }

    /// Keeps a completion that is not the one that is waited for: that of the command that was begun.
    fn keep(&mut self, queue: Queue, cqe: Cqe) -> Result<(), NvmeError> {
        match &mut self.begun {
            Some(begun) if (begun.queue, begun.cid) == (queue, cqe.cid) && begun.done.is_none() => {
                begun.done = Some(cqe);
                Ok(())
            }
            _ => Err(NvmeError::Unexpected),
        }
    }
}

impl BarAccess for Function {
    fn load(&mut self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        for (piece, at) in to.chunks_mut(MESSAGE_MAX).zip((offset..).step_by(MESSAGE_MAX)) {
            self.socket().read(region::BAR2, at, piece)?;
        }
        Ok(())
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        for (piece, at) in bytes.chunks(MESSAGE_MAX).zip((offset..).step_by(MESSAGE_MAX)) {
            self.socket().post(region::BAR2, at, piece)?;
        }
        Ok(())
    }

    // Messages arrive in their order, so what is asked for later is behind all stores.
    fn fence(&mut self) {}

    fn flush_lines(&mut self, _: u64, _: u64) -> Result<(), Error> {
        Ok(())
    }
}

impl Transport for Function {
    fn command(&mut self, queue: Queue, sqe: &Sqe, data: &mut [u8]) -> Result<Completion, Error> {
        let direction = Direction::of(sqe.opcode());
        if direction == Some(Direction::ToDevice) {
            self.data.write(0, data);
        }
        let done = self.run(queue, *sqe, data.len() as u64, TIME)?;
        if direction == Some(Direction::ToHost) && done.status.is_success() {
            self.data.read(0, data);
        }
        Ok(done)
    }

    fn begin(&mut self, queue: Queue, sqe: &Sqe) -> Result<Option<Completion>, Error> {
        assert!(self.begun.is_none(), "one at a time");
        let cid = self.submit(queue, *sqe)?;
        self.begun = Some(Begun { queue, cid, done: None });
        Ok(None)
    }

    fn poll(&mut self, wait: bool) -> Result<Option<Completion>, Error> {
        loop {
            let begun = self.begun.ok_or(NvmeError::Unexpected)?;
            if let Some(cqe) = begun.done {
                self.begun = None;
                return Ok(Some(completion(cqe)));
            }
            let pair = self.pair(begun.queue);
            match if wait { Some(pair.wait(TIME)?) } else { pair.take()? } {
                Some(cqe) => self.keep(begun.queue, cqe)?,
                None => return Ok(None),
            }
        }
    }

    fn bar(&mut self) -> Option<&mut dyn BarAccess> {
        Some(self)
    }

    fn user(&self) -> Option<u32> {
        Some(self.socket().user())
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        self.nvme.shut_down()?;
        Ok(self.nvme.disable()?)
    }
}
