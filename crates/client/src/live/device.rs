//! The connection to the device: what is no append goes by it.

use std::os::fd::OwnedFd;
use std::path::Path;

use tidewater_wire::vfio_user::region;

use super::error::LiveError;
use super::nvme::Nvme;
use super::ring::reopen;
use super::socket::{Mappable, Socket};

#[derive(Debug)]
pub(super) enum Device {
    /// Regions are reached; no command was needed yet.
    Plain(Socket),
    /// Commands are run.
    Enabled(Box<Nvme>),
    Gone,
}

impl Device {
    pub(super) fn socket(&mut self) -> Result<&mut Socket, LiveError> {
        match self {
            Device::Plain(socket) => Ok(socket),
            Device::Enabled(nvme) => Ok(&mut nvme.socket),
            Device::Gone => Err(LiveError::Gone),
        }
    }

    pub(super) fn nvme(&mut self) -> Result<&mut Nvme, LiveError> {
        if let Device::Plain(_) = self {
            let Device::Plain(socket) = std::mem::replace(self, Device::Gone) else { return Err(LiveError::Gone) };
            *self = Device::Enabled(Box::new(Nvme::start(socket)?));
        }
        match self {
            Device::Enabled(nvme) => Ok(nvme),
            _ => Err(LiveError::Gone),
        }
    }

    /// An operation after which a device that has gone is known to have.
    pub(super) fn run<T>(
        &mut self,
        operation: impl FnOnce(&mut Device) -> Result<T, LiveError>,
    ) -> Result<T, LiveError> {
        let result = operation(self);
        if matches!(result, Err(LiveError::Gone)) {
            *self = Device::Gone;
        }
        result
    }
}

pub(super) fn connect(path: &Path) -> Result<(Socket, Mappable), LiveError> {
    let mut socket = Socket::connect(path)?;
    let lent = socket.mappable(region::BAR2)?.ok_or(LiveError::NotMapped)?;
    Ok((socket, lent))
}

/// The ring's copy on a disk, which a device lends whose ring's header says that there is one.
///
/// The description is this handle's own: an error of the disk is told to each description once, and not to another lane instead.
pub(super) fn copy(socket: &mut Socket) -> Result<Option<OwnedFd>, LiveError> {
    let lent = socket.mappable(region::RING_COPY)?;
    lent.map(|lent| reopen(&lent.file).map(OwnedFd::from)).transpose()
}
