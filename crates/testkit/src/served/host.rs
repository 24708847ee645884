//! A host with one queue pair.

use super::{BLOCK, Drive, TRANSFER};
use crate::PATIENCE;
use tidewater_driver::vfio_user::{Buffer, Nvme, NvmeError, QueuePair, SocketError};
use tidewater_wire::nvme::{Cqe, DsmRange, Sqe};
use tidewater_wire::vfio_user::region;

/// A host: a controller with one queue pair and a buffer.
pub struct Host {
    /// Its controller.
    pub nvme: Nvme,
    /// Its I/O queues.
    pub pair: QueuePair,
    /// The data of the command under way.
    pub buffer: Buffer,
    /// The namespace that its commands are for.
    pub nsid: u32,
}

impl Host {
    /// The host of a function.
    pub fn attach(drive: &Drive, function: usize) -> Host {
        let nvme = Nvme::start(drive.client(function), 8 << 20).expect("a controller");
        Host::over(nvme, false)
    }

    /// The same, with shadow doorbells.
    pub fn attach_with_shadow_doorbells(drive: &Drive, function: usize) -> Host {
        let nvme = Nvme::start(drive.client(function), 8 << 20).expect("a controller");
        Host::over(nvme, true)
    }

    /// With an I/O queue pair and a buffer.
    pub fn over(mut nvme: Nvme, shadow: bool) -> Host {
        if shadow {
            nvme.use_shadow_doorbells().expect("shadow doorbells");
        }
        let pair = nvme.queue_pair(64, None).expect("a queue pair");
        let buffer = nvme.buffer(TRANSFER as u64).expect("memory");
        Host { nvme, pair, buffer, nsid: 1 }
    }

    /// Goes, and comes again.
    pub fn attach_again(host: Host, drive: &Drive) -> Host {
        drop(host);
        Host::attach(drive, 0)
    }

    /// Enables the controller once more, and makes the queue pair again.
    ///
    /// # Errors
    /// As for [`Host::run`].
    pub fn restart(&mut self) -> Result<(), NvmeError> {
        self.nvme.restart()?;
        self.pair = self.nvme.queue_pair(64, None)?;
        Ok(())
    }

    /// Runs a command without data.
    ///
    /// # Errors
    /// Its status, or the device has gone.
    pub fn run(&mut self, sqe: Sqe) -> Result<Cqe, NvmeError> {
        self.pair.run(&sqe.with_nsid(self.nsid), PATIENCE)
    }

    /// Runs a command with `len` bytes of the buffer as its data.
    ///
    /// # Errors
    /// As for [`Host::run`].
    pub fn run_with_data(&mut self, sqe: Sqe, len: usize) -> Result<Cqe, NvmeError> {
        self.run(self.buffer.attach(sqe, len as u64))
    }

    /// Writes whole blocks.
    ///
    /// # Errors
    /// As for [`Host::run`].
    pub fn try_write(&mut self, block: u64, bytes: &[u8], fua: bool) -> Result<Cqe, NvmeError> {
        self.buffer.write(0, bytes);
        let sqe = Sqe::write(3, block, zero_based(bytes.len()));
        self.run_with_data(if fua { sqe.with_fua() } else { sqe }, bytes.len())
    }

    /// Writes whole blocks, successfully.
    pub fn write(&mut self, block: u64, bytes: &[u8]) {
        self.try_write(block, bytes, false).expect("a write");
    }

    /// Reads whole blocks.
    ///
    /// # Errors
    /// As for [`Host::run`].
    pub fn try_read(&mut self, block: u64, bytes: usize) -> Result<Vec<u8>, NvmeError> {
        let mut data = vec![0xA5; bytes];
        self.buffer.write(0, &data);
        self.run_with_data(Sqe::read(4, block, zero_based(bytes)), bytes)?;
        self.buffer.read(0, &mut data);
        Ok(data)
    }

    /// Reads whole blocks, successfully.
    pub fn read(&mut self, block: u64, bytes: usize) -> Vec<u8> {
        self.try_read(block, bytes).expect("a read")
    }

    /// Compares whole blocks.
    ///
    /// # Errors
    /// As for [`Host::run`].
    pub fn compare(&mut self, block: u64, bytes: &[u8]) -> Result<Cqe, NvmeError> {
        self.buffer.write(0, bytes);
        self.run_with_data(Sqe::compare(5, block, zero_based(bytes.len())), bytes.len())
    }

    /// Zeroes blocks.
    pub fn zero(&mut self, block: u64, blocks: u64) {
        self.run(Sqe::write_zeroes(6, block, (blocks - 1) as u16, false)).expect("zeroes");
    }

    /// Deallocates.
    pub fn trim(&mut self, block: u64, blocks: u32) {
        let range = DsmRange { attributes: 0, blocks, first_block: block };
        self.buffer.write(0, &range.to_bytes());
        self.run_with_data(Sqe::dataset_management(7, 0, true), 16).expect("ranges");
    }

    /// Flushes.
    pub fn flush(&mut self) {
        self.run(Sqe::flush(8)).expect("a flush");
    }

    /// Blocks of the namespace.
    pub fn blocks(&mut self) -> u64 {
        let page = self.nvme.buffer(4096).expect("memory");
        let data = self.nvme.identify(0, self.nsid, &page).expect("a namespace");
        u64::from_le_bytes(data[..8].try_into().expect("8 bytes"))
    }

    /// Reads a register of 32 bits.
    ///
    /// # Errors
    /// The device has gone.
    pub fn register(&self, offset: u32) -> Result<u32, SocketError> {
        self.nvme.socket().read_u32(region::BAR0, offset.into())
    }

    /// Writes a register of 32 bits.
    pub fn set_register(&self, offset: u32, value: u32) {
        self.nvme.socket().write(region::BAR0, offset.into(), &value.to_le_bytes()).expect("a register");
    }
}

/// The number of blocks of a command, as it is written there.
pub fn zero_based(bytes: usize) -> u16 {
    assert!(bytes.is_multiple_of(BLOCK) && bytes > 0);
    (bytes / BLOCK - 1) as u16
}
