//! An association: a controller with its admin queue, and discovery.

use super::queue::{Completion, Error, Host, Queue};
use super::session::Transfer;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tidewater_wire::fabrics::{
    CONTROLLER_ANY, DISCOVERY_LOG_PAGE, DISCOVERY_NQN, DiscoveryEntry, DiscoveryHeader, Fabrics, Nqn, PropertyGet,
    PropertySet, property,
};
use tidewater_wire::nvme::identify::IDENTIFY_BYTES;
use tidewater_wire::nvme::{Sqe, admin_opcode, feature};
use tidewater_wire::nvme_tcp::ADMIN_CAPSULE_DATA_BYTES;

/// Controller Configuration: enable, entries of 64 and 16 bytes; and normal shutdown.
const CC_ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
const CC_SHUTDOWN: u32 = 1 << 14;
/// Controller Status: ready, fatal, shutdown complete.
const CSTS_RDY: u32 = 1;
const CSTS_CFS: u32 = 1 << 1;
const CSTS_SHST: u32 = 3 << 2;
const CSTS_SHST_COMPLETE: u32 = 2 << 2;
/// Entries of the admin queue.
const ADMIN_ENTRIES: u16 = 32;
/// Offset of IOCCSZ in Identify Controller: 16 bytes each, the command's 64 included.
const IOCCSZ: usize = 1_792;

/// A controller that this host has.
pub struct Controller {
    address: SocketAddr,
    host: Host,
    subsystem: Nqn,
    id: u16,
    capsule_data_max: u32,
    /// Its admin queue.
    pub admin: Queue,
}

impl Controller {
    /// Connects an admin queue. The controller is not enabled yet.
    ///
    /// # Errors
    /// The connection, or Connect, failed.
    pub fn connect(address: SocketAddr, host: &Host, subsystem: &Nqn) -> Result<Controller, Error> {
        let (admin, id) =
            Queue::connect(address, host, subsystem, CONTROLLER_ANY, 0, ADMIN_ENTRIES, ADMIN_CAPSULE_DATA_BYTES)?;
        Ok(Controller { address, host: host.clone(), subsystem: subsystem.clone(), id, capsule_data_max: 0, admin })
    }

    /// The controller's identifier.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Reads a property of 4 or 8 bytes.
    ///
    /// # Errors
    /// The connection or the command failed.
    pub fn property(&mut self, offset: u32, len: u8) -> Result<u64, Error> {
        let sqe = Fabrics::PropertyGet(PropertyGet { offset, len }).emit(0);
        Ok(self.admin.call(sqe, Transfer::None)?.good()?.value)
    }

    /// Sets a property of 4 bytes.
    ///
    /// # Errors
    /// The connection or the command failed.
    pub fn set_property(&mut self, offset: u32, value: u32) -> Result<(), Error> {
        let set = PropertySet { offset, len: 4, value: value.into() };
        self.admin.call(Fabrics::PropertySet(set).emit(0), Transfer::None)?.good().map(|_| ())
    }

    /// Enables the controller, waits until it is ready, and learns how much data commands may bring along.
    ///
    /// # Errors
    /// The connection or a command failed, or the controller is not ready within the time that CAP.TO tells.
    pub fn enable(&mut self) -> Result<(), Error> {
        let capabilities = self.property(property::CAP, 8)?;
        let time_out = Duration::from_millis(500) * ((capabilities >> 24) as u32 & 0xFF).max(1);
        self.set_property(property::CC, CC_ENABLE)?;
        self.wait_status(time_out, |status| status & CSTS_RDY != 0)?;
        let identify = self.identify(1, 0)?;
        let entry = u32::from_le_bytes(*identify[IOCCSZ..].first_chunk().expect("Identify has 4,096 bytes"));
        self.capsule_data_max = entry.saturating_mul(16).saturating_sub(64).min(1 << 20);
        Ok(())
    }

    /// Shuts the controller down, so that all it has taken is safe.
    ///
    /// # Errors
    /// The connection or a command failed, or the controller does not come to an end.
    pub fn shutdown(&mut self) -> Result<(), Error> {
        self.set_property(property::CC, CC_ENABLE | CC_SHUTDOWN)?;
        self.wait_status(self.host.time_out, |status| status & CSTS_SHST == CSTS_SHST_COMPLETE)
    }

    fn wait_status(&mut self, time_out: Duration, reached: impl Fn(u32) -> bool) -> Result<(), Error> {
        let until = Instant::now() + time_out;
        loop {
            let status = self.property(property::CSTS, 4)? as u32;
            if reached(status) {
                return Ok(());
            }
            if status & CSTS_CFS != 0 {
                return Err(Error::Unexpected("the controller has a fatal status"));
            }
            if Instant::now() >= until {
                return Err(Error::Unexpected("the controller did not change state in time"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Identify: 4,096 bytes.
    ///
    /// # Errors
    /// The connection or the command failed.
    pub fn identify(&mut self, cns: u8, nsid: u32) -> Result<Vec<u8>, Error> {
        let sqe = admin(admin_opcode::IDENTIFY).with_nsid(nsid).with_dword(10, cns.into());
        let data = self.admin.call(sqe, Transfer::In(IDENTIFY_BYTES as u32))?.good()?.data;
        if data.len() == IDENTIFY_BYTES { Ok(data) } else { Err(Error::Unexpected("Identify came short")) }
    }

    /// Asks for a number of I/O queues, 1 to 65,535; tells how many there may be.
    ///
    /// # Errors
    /// The connection or the command failed.
    pub fn set_queues(&mut self, queues: u16) -> Result<u16, Error> {
        let count = u32::from(queues - 1);
        let sqe = admin(admin_opcode::SET_FEATURES)
            .with_dword(10, feature::NUMBER_OF_QUEUES.into())
            .with_dword(11, count | count << 16);
        let granted = self.admin.call(sqe, Transfer::None)?.good()?.value;
        Ok((granted as u16).min((granted >> 16) as u16).saturating_add(1).min(queues))
    }

    /// Connects an I/O queue, from 1.
    ///
    /// # Errors
    /// The connection, or Connect, failed.
    pub fn queue(&self, queue: u16, entries: u16) -> Result<Queue, Error> {
        let (queue, _) =
            Queue::connect(self.address, &self.host, &self.subsystem, self.id, queue, entries, self.capsule_data_max)?;
        Ok(queue)
    }

    /// Tells the controller that the host is there: at least once in each Keep Alive Timeout.
    ///
    /// # Errors
    /// The connection or the command failed.
    pub fn keep_alive(&mut self) -> Result<Completion, Error> {
        self.admin.call(admin(admin_opcode::KEEP_ALIVE), Transfer::None)?.good()
    }

    /// A log page: `len` bytes, a multiple of 4, from `offset`, one too.
    ///
    /// # Errors
    /// The connection or the command failed.
    pub fn log_page(&mut self, id: u8, offset: u64, len: u32) -> Result<Vec<u8>, Error> {
        let dwords = len / 4 - 1;
        let sqe = admin(admin_opcode::GET_LOG_PAGE)
            .with_dword(10, u32::from(id) | dwords << 16)
            .with_dword(11, dwords >> 16)
            .with_dword(12, offset as u32)
            .with_dword(13, (offset >> 32) as u32);
        let data = self.admin.call(sqe, Transfer::In(len))?.good()?.data;
        if data.len() == len as usize { Ok(data) } else { Err(Error::Unexpected("the log page is too short")) }
    }
}

fn admin(opcode: u8) -> Sqe {
    Sqe::default().with_dword(0, opcode.into())
}

/// Asks a discovery service which subsystems there are.
///
/// # Errors
/// The connection or a command failed, or the log page makes no sense.
pub fn discover(address: SocketAddr, host: &Host) -> Result<Vec<DiscoveryEntry>, Error> {
    let name = Nqn::new(DISCOVERY_NQN).expect("the discovery name is a name");
    let mut controller = Controller::connect(address, host, &name)?;
    controller.enable()?;
    let header = controller.log_page(DISCOVERY_LOG_PAGE, 0, DiscoveryHeader::SIZE as u32)?;
    let header = DiscoveryHeader::parse(&header);
    let header = header.map_err(|_| Error::Unexpected("unknown format of the discovery log"))?;
    let mut entries = Vec::new();
    for record in 0..header.records.min(1_024) {
        let offset = DiscoveryHeader::SIZE as u64 + record * DiscoveryEntry::SIZE as u64;
        let bytes = controller.log_page(DISCOVERY_LOG_PAGE, offset, DiscoveryEntry::SIZE as u32)?;
        // Entries of other transports are none of ours.
        entries.extend(bytes.first_chunk().and_then(DiscoveryEntry::from_bytes));
    }
    controller.shutdown()?;
    Ok(entries)
}
