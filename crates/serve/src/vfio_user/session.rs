//! What a client's commands do, and its replies.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use serde_json::{Value, json};
use tidewater_wire::vfio_user::{
    Area, DeviceInfo, DmaMap, DmaUnmap, IoEventFd, IrqIndex, IrqInfo, MAJOR, MINOR, RegionAccess, RegionInfo,
    RegionIoFds, SetIrqs, TRANSFER_DEFAULT, Version, WriteMulti, areas_to_bytes, command, irq_info_flag, region,
    region_info_flag,
};

use super::connection::Connection;
use super::device::{Device, Function};
use super::guest::Lent;
use super::mailbox::PATIENCE;
use tidewater_ipc::{DESCRIPTORS_OFFERED, Message, TRANSFER_MAX};

/// What a command is answered with.
#[derive(Debug, Default)]
struct Answer<'a> {
    head: Vec<u8>,
    descriptor: Option<BorrowedFd<'a>>,
}

impl From<&[u8]> for Answer<'_> {
    fn from(bytes: &[u8]) -> Self {
        Answer { head: bytes.to_vec(), descriptor: None }
    }
}

/// One client's stay.
pub(super) struct Session<'a> {
    device: &'a Device,
    function: &'a dyn Function,
    connection: Arc<Connection>,
    /// A version has been agreed on.
    agreed: bool,
    /// The function knows of the client.
    known: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(device: &'a Device, function: &'a dyn Function, connection: Arc<Connection>) -> Session<'a> {
        Session { device, function, connection, agreed: false, known: false }
    }

    /// Whether the function knows of the client.
    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// Handles a command and replies.
    ///
    /// # Errors
    /// The reply could not be sent: the connection is of no use any more.
    pub(super) fn handle(&mut self, message: Message) -> Result<(), Errno> {
        let header = message.header;
        let first = header.command == command::VERSION && !self.agreed;
        let result = self.answer(message);
        if first && result.is_ok() {
            // The client gets the version before the function may ask it for anything.
            self.agreed = true;
        }
        if header.wants_reply() {
            match &result {
                Ok(answer) => {
                    let reply = header.reply(answer.head.len()).to_bytes();
                    self.connection.send(&[&reply, &answer.head], answer.descriptor.as_slice())?;
                }
                Err(errno) => {
                    log_failure(header.command, *errno);
                    self.connection.send(&[&header.failure(*errno as u32).to_bytes()], &[])?;
                }
            }
        }
        if first && self.agreed {
            self.known = true;
            self.function.connected(&self.connection);
        }
        Ok(())
    }

    /// Does what a command says. Descriptors that it has no use for are closed: SPDK's client sends that of the
    /// memory with DMA_UNMAP.
    fn answer(&mut self, message: Message) -> Result<Answer<'a>, Errno> {
        let Message { header, payload, descriptors } = message;
        // The version comes first, and once.
        if (header.command == command::VERSION) == self.agreed {
            return Err(Errno::EINVAL);
        }
        match header.command {
            command::VERSION => self.version(&payload),
            command::DMA_MAP => self.dma_map(&payload, descriptors),
            command::DMA_UNMAP => self.dma_unmap(&payload),
            command::DEVICE_GET_INFO => device_info(&payload),
            command::DEVICE_GET_REGION_INFO => self.region_info(&payload),
            command::DEVICE_GET_REGION_IO_FDS => self.region_io_fds(&payload),
            command::DEVICE_GET_IRQ_INFO => self.irq_info(&payload),
            command::DEVICE_SET_IRQS => {
                let set = SetIrqs::parse(&payload).ok_or(Errno::EINVAL)?;
                self.device.interrupts.set(&set, descriptors)?;
                Ok(Answer::default())
            }
            command::REGION_READ => self.region_read(&payload),
            command::REGION_WRITE => self.region_write(&payload),
            command::REGION_WRITE_MULTI => self.region_write_multi(&payload),
            command::DEVICE_RESET => {
                self.function.reset()?;
                Ok(Answer::default())
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Agrees on a version: the major one is the client's, the minor one at most the client's ("VFIO_USER_VERSION").
    fn version(&self, payload: &[u8]) -> Result<Answer<'a>, Errno> {
        let version = Version::parse(payload).filter(|version| version.major == MAJOR).ok_or(Errno::EINVAL)?;
        let offer = if version.data.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(version.data).map_err(|_| Errno::EINVAL)?
        };
        let offered = &offer["capabilities"];
        let number = |name: &str| match &offered[name] {
            Value::Null => Ok(None),
            value => value.as_u64().map(Some).ok_or(Errno::EINVAL),
        };
        // A client that takes no descriptor could not map regions, which it need not.
        number("max_msg_fds")?;
        let transfer_max = number("max_data_xfer_size")?.unwrap_or(u64::from(TRANSFER_DEFAULT));
        if transfer_max == 0 {
            return Err(Errno::EINVAL);
        }
        self.connection.set_transfer_max(u32::try_from(transfer_max).unwrap_or(u32::MAX));
        let mut capabilities = json!({
            "max_msg_fds": DESCRIPTORS_OFFERED,
            "max_data_xfer_size": TRANSFER_MAX,
            "max_dma_maps": self.device.memory.ranges_max(),
            "pgsizes": tidewater_ipc::PAGE,
        });
        if offered["write_multiple"] == Value::Bool(true) {
            capabilities["write_multiple"] = Value::Bool(true);
        }
        let data = json!({ "capabilities": capabilities }).to_string();
        let agreed = Version { major: MAJOR, minor: version.minor.min(MINOR), data: data.as_bytes() };
        Ok(agreed.to_bytes().as_slice().into())
    }

    fn dma_map(&self, payload: &[u8], mut descriptors: Vec<OwnedFd>) -> Result<Answer<'a>, Errno> {
        const KNOWN: u32 = DmaMap::READABLE | DmaMap::WRITABLE | DmaMap::MAP | DmaMap::FILE_IO;
        let map = DmaMap::parse(payload).map_err(|_| Errno::EINVAL)?;
        if (map.argsz as usize) < DmaMap::SIZE || map.flags & !KNOWN != 0 || descriptors.len() > 1 {
            return Err(Errno::EINVAL);
        }
        let file = descriptors.pop().map(|file| (file, map.offset));
        self.device.memory.add(Lent {
            address: map.address,
            size: map.size,
            readable: map.flags & DmaMap::READABLE != 0,
            writable: map.flags & DmaMap::WRITABLE != 0,
            file,
            file_io: map.flags & DmaMap::FILE_IO != 0,
        })?;
        Ok(Answer::default())
    }

    fn dma_unmap(&self, payload: &[u8]) -> Result<Answer<'a>, Errno> {
        let unmap = DmaUnmap::parse(payload).map_err(|_| Errno::EINVAL)?;
        if (unmap.argsz as usize) < DmaUnmap::SIZE {
            return Err(Errno::EINVAL);
        }
        match unmap.flags {
            0 => {
                self.device.memory.remove(unmap.address, unmap.size)?;
            }
            DmaUnmap::ALL if unmap.address == 0 && unmap.size == 0 => {
                self.device.memory.clear();
            }
            DmaUnmap::ALL => return Err(Errno::EINVAL),
            // Dirty pages are for migration, which there is none of.
            flags if flags & DmaUnmap::DIRTY_BITMAP != 0 => return Err(Errno::EOPNOTSUPP),
            _ => return Err(Errno::EINVAL),
        }
        Ok(unmap.to_bytes().as_slice().into())
    }

    fn region_info(&self, payload: &[u8]) -> Result<Answer<'a>, Errno> {
        let asked = RegionInfo::parse(payload).map_err(|_| Errno::EINVAL)?;
        if (asked.argsz as usize) < RegionInfo::SIZE {
            return Err(Errno::EINVAL);
        }
        let region = self.device.region(asked.index)?;
        let mut info = RegionInfo {
            argsz: RegionInfo::SIZE as u32,
            flags: 0,
            index: asked.index,
            cap_offset: 0,
            size: region.size,
            offset: 0,
        };
        if region.size == 0 {
            return Ok(info.to_bytes().as_slice().into());
        }
        info.flags = region_info_flag::READ | region_info_flag::WRITE;
        let shared = region.descriptor();
        let mut capabilities = Vec::new();
        if let Some((_, offset)) = shared {
            info.offset = offset;
            info.flags |= region_info_flag::MMAP;
            if !region.is_whole() {
                info.flags |= region_info_flag::CAPS;
                info.cap_offset = RegionInfo::SIZE as u32;
                capabilities = areas_to_bytes(&region.areas);
                info.argsz += capabilities.len() as u32;
            }
        }
        let mut answer = Answer::from(info.to_bytes().as_slice());
        // Without room for the list, the client asks again: for the descriptor too.
        if info.argsz <= asked.argsz {
            answer.head.extend_from_slice(&capabilities);
            answer.descriptor = shared.map(|(descriptor, _)| descriptor);
        }
        Ok(answer)
    }

    /// Descriptors that stand for region writes. Doorbells of queues have none: they are mapped, or trapped.
    fn region_io_fds(&self, payload: &[u8]) -> Result<Answer<'a>, Errno> {
        let asked = RegionIoFds::parse(payload).map_err(|_| Errno::EINVAL)?;
        if (asked.argsz as usize) < RegionIoFds::SIZE || asked.flags != 0 || asked.count != 0 {
            return Err(Errno::EINVAL);
        }
        let doorbell = self.device.region(asked.index)?.doorbell.as_ref();
        let writes = doorbell.map_or(&[][..], |doorbell| &doorbell.writes);
        let argsz = (RegionIoFds::SIZE + writes.len() * IoEventFd::SIZE) as u32;
        let head = RegionIoFds { argsz, flags: 0, index: asked.index, count: writes.len() as u32 };
        let mut answer = Answer::from(head.to_bytes().as_slice());
        // Without room for the list, the client asks again: for the descriptor too.
        if argsz <= asked.argsz {
            let list = writes.iter().map(|&(offset, size)| IoEventFd { offset, size, descriptor: 0 });
            list.for_each(|one| answer.head.extend_from_slice(&one.to_bytes()));
            answer.descriptor = doorbell.map(|doorbell| doorbell.lent());
        }
        Ok(answer)
    }

    fn irq_info(&self, payload: &[u8]) -> Result<Answer<'a>, Errno> {
        let asked = IrqInfo::parse(payload).map_err(|_| Errno::EINVAL)?;
        let index = IrqIndex::from_number(asked.index).filter(|_| asked.index < IRQ_KINDS).ok_or(Errno::EINVAL)?;
        if (asked.argsz as usize) < IrqInfo::SIZE {
            return Err(Errno::EINVAL);
        }
        let count = self.device.interrupts.count(index);
        let flags = if count > 0 { irq_info_flag::EVENTFD | irq_info_flag::MASKABLE } else { 0 };
        let info = IrqInfo { argsz: IrqInfo::SIZE as u32, flags, index: asked.index, count };
        Ok(info.to_bytes().as_slice().into())
    }

    fn region_read(&self, payload: &[u8]) -> Result<Answer<'a>, Errno> {
        let (access, _) = RegionAccess::split(payload, false).ok_or(Errno::EINVAL)?;
        if access.count > TRANSFER_MAX {
            return Err(Errno::EINVAL);
        }
        let mut answer = Answer::from(access.to_bytes().as_slice());
        answer.head.resize(RegionAccess::SIZE + access.count as usize, 0);
        let to = &mut answer.head[RegionAccess::SIZE..];
        self.device.read(self.function, access.region, access.offset, to)?;
        Ok(answer)
    }

    fn region_write(&self, payload: &[u8]) -> Result<Answer<'a>, Errno> {
        let (access, data) = RegionAccess::split(payload, true).ok_or(Errno::EINVAL)?;
        self.device.write(self.function, access.region, access.offset, data)?;
        Ok(access.to_bytes().as_slice().into())
    }

    fn region_write_multi(&self, payload: &[u8]) -> Result<Answer<'a>, Errno> {
        let multi = WriteMulti::parse(payload).ok_or(Errno::EINVAL)?;
        for write in multi.writes() {
            self.device.write(self.function, write.region, write.offset, write.data)?;
        }
        Ok(multi.count().to_le_bytes().as_slice().into())
    }
}

/// A command is answered with an error. One that came too late for the device is its fault, not the client's.
#[cold]
fn log_failure(number: u16, errno: Errno) {
    if errno == Errno::ETIMEDOUT {
        let name = match number {
            command::REGION_READ => "REGION_READ",
            command::REGION_WRITE | command::REGION_WRITE_MULTI => "REGION_WRITE",
            command::DEVICE_RESET => "DEVICE_RESET",
            _ => "command",
        };
        tracing::warn!(
            "a client's {name} was answered with an error: the device had not answered within {PATIENCE:?} (a busy \
             machine, or a slow disk); drivers may give the controller up"
        );
    } else {
        tracing::debug!("command {number} of a vfio-user client was answered with an error: {errno}");
    }
}

/// Pins, MSI and MSI-X. Errors and requests are kinds that this has not; QEMU warns of one that has no vectors.
const IRQ_KINDS: u32 = 3;

fn device_info(payload: &[u8]) -> Result<Answer<'static>, Errno> {
    let asked = DeviceInfo::parse(payload).map_err(|_| Errno::EINVAL)?;
    if (asked.argsz as usize) < DeviceInfo::SIZE {
        return Err(Errno::EINVAL);
    }
    let info = DeviceInfo {
        argsz: DeviceInfo::SIZE as u32,
        flags: DeviceInfo::RESET | DeviceInfo::PCI,
        regions: region::COUNT,
        irqs: IRQ_KINDS,
    };
    Ok(info.to_bytes().as_slice().into())
}

/// The part of BAR0 where doorbells are, if there are at most 512 queue pairs: what clients map that map doorbells.
pub const DOORBELL_PAGE: Area = Area { offset: 0x1000, size: 0x1000 };
