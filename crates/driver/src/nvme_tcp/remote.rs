//! A subsystem with namespaces that a discovery service names: no BAR, so that bytes go by commands.

use std::net::SocketAddr;

use tidewater_wire::fabrics::SubsystemKind;
use tidewater_wire::nvme::Sqe;
use tidewater_wire::vendor::Direction;

use super::controller::{Controller, discover};
use super::queue::{self, Host};
use super::session::Transfer;
use crate::{BarAccess, Completion, Error, Queue, Transport};

/// Entries of the I/O queue: one command is under way.
const ENTRIES: u16 = 4;

/// A controller with one I/O queue, which is connected for its first command.
pub struct Remote {
    controller: Controller,
    io: Option<queue::Queue>,
}

impl Remote {
    /// Asks the discovery service at an address, and connects to the first subsystem with namespaces that it names.
    ///
    /// # Errors
    /// The connection or a command failed, or no such subsystem is named.
    pub fn connect(address: SocketAddr, host: &Host) -> Result<Remote, queue::Error> {
        let entries = discover(address, host)?;
        let entry = entries.into_iter().find(|entry| entry.kind == SubsystemKind::Nvm);
        let entry = entry.ok_or(queue::Error::Unexpected("discovery lists no subsystem with namespaces"))?;
        let there = entry.address.parse().map(|ip| SocketAddr::new(ip, entry.port));
        let there = there.map_err(|_| queue::Error::Unexpected("the subsystem's address is invalid"))?;
        let mut controller = Controller::connect(there, host, &entry.subsystem)?;
        controller.enable()?;
        Ok(Remote { controller, io: None })
    }
}

impl Transport for Remote {
    fn command(&mut self, queue: Queue, sqe: &Sqe, data: &mut [u8]) -> Result<Completion, Error> {
        if queue == Queue::Io && self.io.is_none() {
            self.controller.set_queues(1)?;
            self.io = Some(self.controller.queue(1, ENTRIES)?);
        }
        let transfer = match Direction::of(sqe.opcode()) {
            _ if data.is_empty() => Transfer::None,
            Some(Direction::ToDevice) => Transfer::Out(data.to_vec()),
            _ => Transfer::In(data.len() as u32),
        };
        let done = match (&mut self.io, queue) {
            (Some(io), Queue::Io) => io.call(*sqe, transfer)?,
            _ => self.controller.admin.call(*sqe, transfer)?,
        };
        if done.status.is_success() && Direction::of(sqe.opcode()) == Some(Direction::ToHost) {
            // An I/O command may bring less than it was given room for, and says so itself.
            if queue == Queue::Admin && done.data.len() < data.len() {
                return Err(queue::Error::Unexpected("the command returned too little data").into());
            }
            let len = done.data.len().min(data.len());
            data[..len].copy_from_slice(&done.data[..len]);
        }
        Ok(Completion { status: done.status, result: done.value as u32 })
    }

    fn bar(&mut self) -> Option<&mut dyn BarAccess> {
        None
    }

    fn shut_down(&mut self) -> Result<(), Error> {
        Ok(self.controller.shutdown()?)
    }
}
