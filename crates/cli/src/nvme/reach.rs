//! A drive whose fast side and byte window are used: `pci:` and `vfio-user:` as the client library has them, `tcp:` by
//! the initiator.

use super::connect::{self, Target, by_tcp, told};
use crate::args::hardware::Reached;
use crate::failure::{Failure, reason};
use std::io::Read;
use std::path::Path as FilePath;
use tidewater_client::hardware::{BarAccess, Completion, Device, HardwareError, Path, Queue};
use tidewater_driver::nvme_tcp::{self as initiator, Controller, Transfer};
use tidewater_wire::nvme::Sqe;
use tidewater_wire::vendor::Direction;

/// Entries of the I/O queue: one command is under way.
const ENTRIES: u16 = 4;

/// Opens a drive.
///
/// # Errors
/// When it can't be reached, or somebody else uses it.
pub fn open(reached: &Reached) -> Result<Device, Failure> {
    match Target::parse(&reached.target)? {
        Target::Tcp(address) => {
            let controller = by_tcp(&address, reached.host_nqn.as_deref())?;
            Device::over(Box::new(Remote { controller, io: None })).map_err(told)
        }
        _ if reached.host_nqn.is_some() => Err(connect::no_name()),
        Target::VfioUser(_) | Target::Pci(_) => Device::open(&reached.target).map_err(told),
    }
}

/// A controller by NVMe/TCP: no BARs, so that bytes go by commands.
struct Remote {
    controller: Controller,
    io: Option<initiator::Queue>,
}

impl Path for Remote {
    fn command(&mut self, queue: Queue, sqe: &Sqe, data: &mut [u8]) -> Result<Completion, HardwareError> {
        let failed = |error: initiator::Error| HardwareError::Carrier(connect::lost(&error).message);
        if queue == Queue::Io && self.io.is_none() {
            self.controller.set_queues(1).map_err(failed)?;
            self.io = Some(self.controller.queue(1, ENTRIES).map_err(failed)?);
        }
        let transfer = match Direction::of(sqe.opcode()) {
            _ if data.is_empty() => Transfer::None,
            Some(Direction::ToDevice) => Transfer::Out(data.to_vec()),
            _ => Transfer::In(data.len() as u32),
        };
        let taken = match (&mut self.io, queue) {
            (Some(io), Queue::Io) => io.call(*sqe, transfer),
            _ => self.controller.admin.call(*sqe, transfer),
        };
        let done = taken.map_err(failed)?;
        if done.status.is_success() && Direction::of(sqe.opcode()) == Some(Direction::ToHost) {
            // A command may bring less than it was given room for, and says so itself.
            let len = done.data.len().min(data.len());
            data[..len].copy_from_slice(&done.data[..len]);
        }
        Ok(Completion { status: done.status, result: done.value as u32 })
    }

    fn bar(&mut self) -> Option<&mut dyn BarAccess> {
        None
    }
}

/// All bytes of a file, or of standard input.
///
/// # Errors
/// When they can't be read.
pub fn bytes_of(file: &FilePath) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    read.map_err(|error| Failure::run(format_args!("{}: {}", file.display(), reason(&error))))?;
    Ok(bytes)
}
