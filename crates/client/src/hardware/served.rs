//! A function of a served drive, by its vfio-user socket: a carrier that needs neither a machine nor rights.

use std::path::Path as FilePath;
use std::time::Duration;

use tidewater_driver::vfio_user::{Function as Driver, NvmeError, Socket, SocketError};
use tidewater_wire::nvme::Sqe;
use tidewater_wire::vfio_user::region;

use super::{BarAccess, Completion, HardwareError, Path, Queue};
use crate::live::LiveError;

/// Bytes that one message moves, at most: a device takes a mebibyte, and a page is enough to be quick.
const MESSAGE_MAX: usize = 64 << 10;
/// How long a command may take: what Linux gives an NVMe drive (`nvme_core.io_timeout`).
const TIME: Duration = Duration::from_secs(30);

/// A function with queues of our own.
pub(super) struct Function {
    driver: Driver,
}

impl From<SocketError> for HardwareError {
    fn from(error: SocketError) -> HardwareError {
        HardwareError::Served(error.into())
    }
}

impl From<NvmeError> for HardwareError {
    fn from(error: NvmeError) -> HardwareError {
        HardwareError::Served(error.into())
    }
}

impl Function {
    /// Connects, and resets and enables the controller.
    pub(super) fn open(path: &FilePath) -> Result<Function, HardwareError> {
        let start = || -> Result<Driver, LiveError> { Ok(Driver::start(Socket::connect(path)?)?) };
        Ok(Function { driver: start().map_err(LiveError::turned_away)? })
    }
}

impl BarAccess for Function {
    fn load(&mut self, offset: u64, to: &mut [u8]) -> Result<(), HardwareError> {
        for (piece, at) in to.chunks_mut(MESSAGE_MAX).zip((offset..).step_by(MESSAGE_MAX)) {
            self.driver.socket().read(region::BAR2, at, piece)?;
        }
        Ok(())
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), HardwareError> {
        for (piece, at) in bytes.chunks(MESSAGE_MAX).zip((offset..).step_by(MESSAGE_MAX)) {
            self.driver.socket().post(region::BAR2, at, piece)?;
        }
        Ok(())
    }

    // Messages arrive in their order, so what is asked for later is behind all stores.
    fn fence(&mut self) {}

    fn flush_lines(&mut self, _: u64, _: u64) -> Result<(), HardwareError> {
        Ok(())
    }
}

impl Path for Function {
    fn command(&mut self, queue: Queue, sqe: &Sqe, data: &mut [u8]) -> Result<Completion, HardwareError> {
        Ok(self.driver.command(queue, *sqe, data, TIME)?)
    }

    fn begin(&mut self, queue: Queue, sqe: &Sqe) -> Result<Option<Completion>, HardwareError> {
        self.driver.begin(queue, *sqe)?;
        Ok(None)
    }

    fn poll(&mut self, wait: bool) -> Result<Option<Completion>, HardwareError> {
        Ok(self.driver.poll(wait.then_some(TIME))?)
    }

    fn bar(&mut self) -> Option<&mut dyn BarAccess> {
        Some(self)
    }

    fn user(&self) -> Option<u32> {
        Some(self.driver.socket().user())
    }
}
