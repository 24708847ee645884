//! A small client: drives a function from another process or thread, without a virtual machine.
//!
//! [`Nvme`](super::Nvme) is a driver on top of it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use tidewater_wire::vfio_user::{
    Area, DeviceInfo, DmaAccess, DmaMap, DmaUnmap, Header, IrqAction, IrqData, IrqIndex, IrqInfo, MAJOR, MINOR,
    RegionAccess, RegionInfo, SetIrqs, Version, command, parse_areas, region_info_flag,
};

use tidewater_ipc::{
    DESCRIPTORS_OFFERED, Mapping, Message, Received, Receiver, SEND_TIME, SharedMemory, TRANSFER_MAX, readable, send,
};

/// How long the server may take for a reply.
pub const REPLY_TIME: Duration = Duration::from_secs(5);

/// Why a server did not do as it was told.
#[derive(Debug)]
pub enum ClientError {
    /// It could not be reached, or the connection broke.
    Io(io::Error),
    /// It said so.
    Refused {
        /// The command: [`tidewater_wire::vfio_user::command`].
        command: u16,
        /// Its reason.
        errno: Errno,
    },
    /// It replied with something that is no reply to this.
    Malformed {
        /// The command.
        command: u16,
    },
    /// It did not reply in time.
    Timeout {
        /// The command.
        command: u16,
    },
}

impl std::fmt::Display for ClientError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClientError::Io(error) => write!(f, "the connection failed: {error}"),
            ClientError::Refused { command, errno } => write!(f, "vfio-user command {command} was refused: {errno}"),
            ClientError::Malformed { command } => write!(f, "the reply to vfio-user command {command} is malformed"),
            ClientError::Timeout { command } => write!(f, "vfio-user command {command} got no reply in time"),
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        ClientError::Io(error)
    }
}

impl From<Errno> for ClientError {
    fn from(errno: Errno) -> ClientError {
        ClientError::Io(errno.into())
    }
}

/// A region as the server describes it.
#[derive(Debug)]
pub struct Described {
    /// Flags and size.
    pub info: RegionInfo,
    /// Which parts can be mapped.
    pub areas: Vec<Area>,
    /// The file that holds them.
    pub file: Option<OwnedFd>,
}

impl Described {
    /// Maps a part that can be mapped.
    ///
    /// # Errors
    /// EINVAL: there is no descriptor, or the area passes the end of addresses; what mmap says.
    pub fn map(&self, area: Area) -> Result<Mapping, Errno> {
        let file = self.file.as_ref().ok_or(Errno::EINVAL)?;
        let offset = self.info.offset.checked_add(area.offset).ok_or(Errno::EINVAL)?;
        Mapping::new(file.as_fd(), offset, area.size, true)
    }
}

/// Memory that is lent without a descriptor: the server asks for its bytes.
#[derive(Clone, Debug)]
struct ByMessage {
    address: u64,
    size: u64,
    memory: Arc<SharedMemory>,
}

/// A connection to a function's socket.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    receiver: Receiver,
    id: u16,
    by_message: Vec<ByMessage>,
    capabilities: String,
}

impl Client {
    /// Connects and agrees on a version.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn connect(path: &Path) -> Result<Client, ClientError> {
        let text = format!(
            r#"{{"capabilities":{{"max_msg_fds":{DESCRIPTORS_OFFERED},"max_data_xfer_size":{TRANSFER_MAX},{}}}}}"#,
            r#""write_multiple":true"#
        );
        Client::connect_saying(path, text.as_bytes())
    }

    /// Connects and agrees on a version with these capabilities; none: without any text.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn connect_saying(path: &Path, capabilities: &[u8]) -> Result<Client, ClientError> {
        let stream = UnixStream::connect(path)?;
        let receiver = Receiver::default();
        let mut client = Client { stream, receiver, id: 0, by_message: Vec::new(), capabilities: String::new() };
        let offer = Version { major: MAJOR, minor: MINOR, data: capabilities }.to_bytes();
        let offer = if capabilities.is_empty() { &offer[..4] } else { &offer };
        let reply = client.ask(command::VERSION, &[offer], &[])?;
        let malformed = ClientError::Malformed { command: command::VERSION };
        let version = Version::parse(&reply.payload).filter(|version| version.major == MAJOR).ok_or(malformed)?;
        client.capabilities = String::from_utf8_lossy(version.data).into_owned();
        Ok(client)
    }

    /// The server's capabilities, as JSON.
    pub fn capabilities(&self) -> &str {
        &self.capabilities
    }

    /// Sends a command and waits for its reply. Meanwhile the server may ask for memory.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn ask(
        &mut self,
        command: u16,
        parts: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Message, ClientError> {
        self.id = self.id.wrapping_add(1);
        let payload = parts.iter().map(|part| part.len()).sum();
        let header = Header::command(self.id, command, payload);
        send(self.stream.as_fd(), &[&[header.to_bytes().as_slice()], parts].concat(), descriptors, SEND_TIME)?;
        let until = Instant::now() + REPLY_TIME;
        loop {
            let left = until.checked_duration_since(Instant::now()).ok_or(ClientError::Timeout { command })?;
            let Some(message) = self.receive(left)? else { continue };
            if message.header.is_command() {
                self.serve(&message)?;
                continue;
            }
            if !message.header.is_reply() || (message.header.id, message.header.command) != (self.id, command) {
                return Err(ClientError::Malformed { command });
            }
            if message.header.is_failure() {
                return Err(ClientError::Refused { command, errno: Errno::from_raw(message.header.error as i32) });
            }
            return Ok(message);
        }
    }

    fn receive(&mut self, time: Duration) -> Result<Option<Message>, ClientError> {
        match self.receiver.receive(self.stream.as_fd())? {
            Received::Message(message) => Ok(Some(message)),
            Received::Closed => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Received::Nothing => {
                readable(&[self.stream.as_fd()], Some(time))?;
                Ok(None)
            }
        }
    }

    /// Whether the server has closed the connection. A client whose doorbells are mapped sends nothing that would fail.
    pub fn is_closed(&self) -> bool {
        let mut byte = [0];
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recv(self.stream.as_raw_fd(), &mut byte, flags) {
            Ok(bytes) => bytes == 0,
            Err(error) => !matches!(error, Errno::EAGAIN | Errno::EINTR),
        }
    }

    /// Answers what the server asks for, for this long.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn serve_memory(&mut self, time: Duration) -> Result<(), ClientError> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if let Some(message) = self.receive(left)?
                && message.header.is_command()
            {
                self.serve(&message)?;
            }
        }
        Ok(())
    }

    /// Answers one question of the server about memory.
    fn serve(&mut self, message: &Message) -> Result<(), ClientError> {
        let writing = message.header.command == command::DMA_WRITE;
        let answer = self.access(message, writing);
        let socket = self.stream.as_fd();
        match answer {
            Some((access, data)) => {
                let header = message.header.reply(DmaAccess::SIZE + data.len()).to_bytes();
                send(socket, &[&header, &access.to_bytes(), &data], &[], SEND_TIME)?;
            }
            None => {
                let failure = message.header.failure(Errno::EINVAL as u32);
                send(socket, &[&failure.to_bytes()], &[], SEND_TIME)?;
            }
        }
        Ok(())
    }

    fn access(&self, message: &Message, writing: bool) -> Option<(DmaAccess, Vec<u8>)> {
        if !writing && message.header.command != command::DMA_READ {
            return None;
        }
        let (access, data) = DmaAccess::parse(&message.payload, writing)?;
        let lent = self.by_message.iter().find(|lent| access.address.wrapping_sub(lent.address) < lent.size)?;
        let at = access.address - lent.address;
        if writing {
            return lent.memory.write(at, data).then_some((access, Vec::new()));
        }
        let count = usize::try_from(access.count).ok().filter(|count| *count <= TRANSFER_MAX as usize)?;
        let mut data = vec![0; count];
        lent.memory.read(at, &mut data).then_some((access, data))
    }

    /// What the function is.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn device_info(&mut self) -> Result<DeviceInfo, ClientError> {
        let asked = DeviceInfo { argsz: DeviceInfo::SIZE as u32, flags: 0, regions: 0, irqs: 0 };
        let reply = self.ask(command::DEVICE_GET_INFO, &[&asked.to_bytes()], &[])?;
        DeviceInfo::parse(&reply.payload).ok_or(ClientError::Malformed { command: command::DEVICE_GET_INFO })
    }

    /// What a region is; asks again if the reply needs more room.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn region_info(&mut self, index: u32) -> Result<Described, ClientError> {
        let malformed = || ClientError::Malformed { command: command::DEVICE_GET_REGION_INFO };
        let mut room = RegionInfo::SIZE as u32;
        loop {
            let asked = RegionInfo { argsz: room, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
            let mut reply = self.ask(command::DEVICE_GET_REGION_INFO, &[&asked.to_bytes()], &[])?;
            let info = RegionInfo::parse(&reply.payload).ok_or_else(malformed)?;
            if info.argsz > room {
                if info.argsz > 1 << 16 {
                    return Err(malformed());
                }
                room = info.argsz;
                continue;
            }
            let file = reply.descriptors.pop();
            let areas = match parse_areas(&reply.payload).ok_or_else(malformed)? {
                Some(areas) => areas,
                None if info.flags & region_info_flag::MMAP != 0 => vec![Area { offset: 0, size: info.size }],
                None => Vec::new(),
            };
            return Ok(Described { info, areas, file });
        }
    }

    /// What interrupts of a kind there are.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn irq_info(&mut self, index: IrqIndex) -> Result<IrqInfo, ClientError> {
        let asked = IrqInfo { argsz: IrqInfo::SIZE as u32, flags: 0, index: index.number(), count: 0 };
        let reply = self.ask(command::DEVICE_GET_IRQ_INFO, &[&asked.to_bytes()], &[])?;
        IrqInfo::parse(&reply.payload).ok_or(ClientError::Malformed { command: command::DEVICE_GET_IRQ_INFO })
    }

    /// Changes what interrupts do; with descriptors, where they go.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn set_irqs(&mut self, set: &SetIrqs<'_>, events: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        self.ask(command::DEVICE_SET_IRQS, &[&set.to_bytes()], events).map(drop)
    }

    /// Sends the vectors of a kind, from the first, to event descriptors.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn set_events(&mut self, index: IrqIndex, events: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let count = events.len() as u32;
        let set = SetIrqs { index, start: 0, count, data: IrqData::Event, action: IrqAction::Trigger };
        self.set_irqs(&set, events)
    }

    /// Reads bytes of a region.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn read(&mut self, region: u32, offset: u64, to: &mut [u8]) -> Result<(), ClientError> {
        let access = RegionAccess { offset, region, count: to.len() as u32 };
        let reply = self.ask(command::REGION_READ, &[&access.to_bytes()], &[])?;
        match RegionAccess::parse(&reply.payload, true) {
            Some((got, data)) if got == access => {
                to.copy_from_slice(data);
                Ok(())
            }
            _ => Err(ClientError::Malformed { command: command::REGION_READ }),
        }
    }

    /// Writes bytes of a region.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn write(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), ClientError> {
        let access = RegionAccess { offset, region, count: from.len() as u32 };
        let reply = self.ask(command::REGION_WRITE, &[&access.to_bytes(), from], &[])?;
        match RegionAccess::parse(&reply.payload, false) {
            Some((got, _)) if got == access => Ok(()),
            _ => Err(ClientError::Malformed { command: command::REGION_WRITE }),
        }
    }

    /// Reads a register of 4 bytes.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn read_u32(&mut self, region: u32, offset: u64) -> Result<u32, ClientError> {
        let mut bytes = [0; 4];
        self.read(region, offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads a register of 8 bytes.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn read_u64(&mut self, region: u32, offset: u64) -> Result<u64, ClientError> {
        let mut bytes = [0; 8];
        self.read(region, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Lends memory at a bus address, readable and writable, by its descriptor.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn lend(&mut self, address: u64, memory: &SharedMemory) -> Result<(), ClientError> {
        self.lend_file(address, memory.len(), memory.as_fd(), 0)
    }

    /// Lends part of a file at a bus address, readable and writable.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn lend_file(&mut self, address: u64, size: u64, file: BorrowedFd<'_>, offset: u64) -> Result<(), ClientError> {
        let flags = DmaMap::READABLE | DmaMap::WRITABLE;
        let map = DmaMap { argsz: DmaMap::SIZE as u32, flags, offset, address, size };
        self.ask(command::DMA_MAP, &[&map.to_bytes()], &[file]).map(drop)
    }

    /// Lends memory at a bus address without a descriptor: the server asks for its bytes.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn lend_by_message(&mut self, address: u64, memory: &Arc<SharedMemory>) -> Result<(), ClientError> {
        let (flags, size) = (DmaMap::READABLE | DmaMap::WRITABLE, memory.len());
        let map = DmaMap { argsz: DmaMap::SIZE as u32, flags, offset: 0, address, size };
        self.ask(command::DMA_MAP, &[&map.to_bytes()], &[])?;
        self.by_message.push(ByMessage { address, size, memory: Arc::clone(memory) });
        Ok(())
    }

    /// Takes memory back. When this returns, the server does not touch it any more.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn take_back(&mut self, address: u64, size: u64) -> Result<(), ClientError> {
        let unmap = DmaUnmap { argsz: DmaUnmap::SIZE as u32, flags: 0, address, size };
        let reply = self.ask(command::DMA_UNMAP, &[&unmap.to_bytes()], &[])?;
        self.by_message.retain(|lent| lent.address < address || lent.address - address >= size);
        match DmaUnmap::parse(&reply.payload) {
            Some(got) if got == unmap => Ok(()),
            _ => Err(ClientError::Malformed { command: command::DMA_UNMAP }),
        }
    }

    /// Takes all memory back.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn take_back_all(&mut self) -> Result<(), ClientError> {
        let unmap = DmaUnmap { argsz: DmaUnmap::SIZE as u32, flags: DmaUnmap::ALL, address: 0, size: 0 };
        self.ask(command::DMA_UNMAP, &[&unmap.to_bytes()], &[])?;
        self.by_message.clear();
        Ok(())
    }

    /// Resets the function.
    ///
    /// # Errors
    /// As [`ClientError`] says.
    pub fn reset(&mut self) -> Result<(), ClientError> {
        self.ask(command::DEVICE_RESET, &[], &[]).map(drop)
    }
}
