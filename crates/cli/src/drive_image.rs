//! The image of a mount on a drive: its blocks, by any transport.

use crate::failure::Failure;
use crate::nvme::transport;
use std::fmt;
use std::io;
use tidewater_crash::Blocks;
use tidewater_driver::{Queue, Transport};
use tidewater_wire::nvme::identify::{IDENTIFY_BYTES, IdentifyNamespace};
use tidewater_wire::nvme::{Sqe, Status, admin_opcode};

/// The namespace that has the image.
const NSID: u32 = 1;

/// Blocks of the first namespace of a drive. When the drive has gone, each access looks for it again.
pub struct OnDrive {
    target: String,
    transport: Option<Box<dyn Transport>>,
    block_shift: u8,
    blocks: u64,
}

impl fmt::Debug for OnDrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target)
    }
}

impl OnDrive {
    /// Connects to a drive: `tcp:HOST:PORT`, `vfio-user:SOCKET` or `pci:ADDRESS`. `None`: this is no address, but the
    /// name of a file.
    ///
    /// # Errors
    /// When it can't be reached, or has no namespace 1.
    pub fn open(target: &str) -> Option<Result<OnDrive, Failure>> {
        let is_address = ["tcp:", "vfio-user:", "pci:"].iter().any(|way| target.starts_with(way));
        is_address.then(|| {
            let mut transport = transport(target, None)?;
            let mut page = vec![0; IDENTIFY_BYTES];
            let sqe = Sqe::default().with_dword(0, admin_opcode::IDENTIFY.into()).with_nsid(NSID);
            let done = transport.command(Queue::Admin, &sqe, &mut page);
            let done = done.map_err(|error| Failure::run(format_args!("{target}: {error}")))?;
            let namespace = IdentifyNamespace::parse(&page).ok().filter(|_| done.status.is_success());
            let found = namespace.and_then(|found| Some((found.nsze, found.block_shift()?)));
            let (blocks, block_shift) =
                found.ok_or_else(|| Failure::run(format_args!("{target}: the drive has no namespace {NSID}")))?;
            Ok(OnDrive { target: target.to_owned(), transport: Some(transport), block_shift, blocks })
        })
    }

    fn run(&mut self, sqe: Sqe, data: &mut [u8]) -> io::Result<()> {
        let transport = match &mut self.transport {
            Some(transport) => transport,
            None => self
                .transport
                .insert(transport(&self.target, None).map_err(|failure| io::Error::other(failure.message))?),
        };
        match transport.command(Queue::Io, &sqe.with_nsid(NSID), data) {
            Ok(done) if done.status.is_success() => Ok(()),
            // The drive is full, which a smaller image does not change.
            Ok(done) if done.status.same_code(Status::CAPACITY_EXCEEDED) => Err(io::ErrorKind::QuotaExceeded.into()),
            Ok(done) => Err(io::Error::other(done.status.name().unwrap_or("an unnamed status"))),
            Err(error) => {
                self.transport = None;
                Err(io::Error::other(error))
            }
        }
    }

    /// First block and zero-based count of a range.
    fn range(&self, at: u64, bytes: usize) -> (u64, u16) {
        (at >> self.block_shift, ((bytes >> self.block_shift) - 1) as u16)
    }
}

impl Blocks for OnDrive {
    fn block(&self) -> u64 {
        1 << self.block_shift
    }

    fn size(&self) -> u64 {
        self.blocks << self.block_shift
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let (first, count) = self.range(at, to.len());
        self.run(Sqe::read(0, first, count), to)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (first, count) = self.range(at, bytes.len());
        self.run(Sqe::write(0, first, count), &mut bytes.to_vec())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.run(Sqe::flush(0), &mut [])
    }
}
