//! A client of a function's socket: regions, interrupts, and memory that is lent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use tidewater_ipc::{
    DESCRIPTORS_OFFERED, Mapping, Message, Received, Receiver, SharedMemory, TRANSFER_MAX, readable, send, socket_error,
};
use tidewater_wire::vfio_user::{
    Area, DeviceInfo, DmaAccess, DmaMap, DmaUnmap, Header, IoEventFd, IrqAction, IrqData, IrqIndex, IrqInfo, MAJOR,
    MINOR, RegionAccess, RegionInfo, RegionIoFds, SetIrqs, Version, command, parse_areas, region_info_flag,
};

/// How long a server may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until it says its version: what listens at the path may be no device.
    pub greeting: Duration,
    /// Until it takes a message, and until it replies.
    pub reply: Duration,
}

impl Default for Patience {
    /// 5 s for the version, and then what Linux gives an NVMe drive (`nvme_core.io_timeout`): on a busy machine, or
    /// with a disk that stalls, a device is slow and not gone.
    fn default() -> Patience {
        Patience { greeting: Duration::from_secs(5), reply: Duration::from_secs(30) }
    }
}

/// Why a server did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It could not be reached.
    #[error("{}: {error}", .path.display())]
    Unreachable {
        /// Its socket.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The connection broke.
    #[error("the connection failed: {0}")]
    Io(#[source] io::Error),
    /// It refused.
    #[error("vfio-user command {command} was refused: {errno}")]
    Refused {
        /// The command: [`tidewater_wire::vfio_user::command`].
        command: u16,
        /// Its reason.
        errno: Errno,
    },
    /// It replied with something that is no reply to this.
    #[error("the reply to vfio-user command {command} is malformed")]
    Malformed {
        /// The command.
        command: u16,
    },
    /// It did not reply in time, or did not take the message.
    #[error("vfio-user command {command} got no reply within {waited:?}")]
    Timeout {
        /// The command.
        command: u16,
        /// How long it was waited for.
        waited: Duration,
    },
}

/// The error of a command whose system call failed; `waited` is its time-out.
fn failed(command: u16, waited: Duration) -> impl Fn(Errno) -> SocketError {
    move |errno| match errno {
        Errno::ETIMEDOUT => SocketError::Timeout { command, waited },
        Errno::EPROTO => SocketError::Malformed { command },
        errno => SocketError::Io(errno.into()),
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
pub struct Socket {
    stream: UnixStream,
    user: u32,
    /// How long the server may take to read a message, and to reply.
    time: Duration,
    receiver: Receiver,
    id: u16,
    by_message: Vec<ByMessage>,
    capabilities: String,
}

impl Socket {
    /// Connects and agrees on a version.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn connect(path: &Path) -> Result<Socket, SocketError> {
        Socket::connect_within(path, Patience::default())
    }

    /// As [`Socket::connect`], with other times.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn connect_within(path: &Path, patience: Patience) -> Result<Socket, SocketError> {
        let sizes = format!(r#""max_msg_fds":{DESCRIPTORS_OFFERED},"max_data_xfer_size":{TRANSFER_MAX}"#);
        let text = format!(r#"{{"capabilities":{{{sizes},"write_multiple":true}}}}"#);
        Socket::open(path, text.as_bytes(), patience)
    }

    /// As [`Socket::connect`], with these capabilities; none: without any text.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn connect_saying(path: &Path, capabilities: &[u8]) -> Result<Socket, SocketError> {
        Socket::open(path, capabilities, Patience::default())
    }

    fn open(path: &Path, capabilities: &[u8], patience: Patience) -> Result<Socket, SocketError> {
        let unreachable = |error| SocketError::Unreachable { path: path.to_owned(), error };
        let stream = UnixStream::connect(path).map_err(|error| unreachable(socket_error(path, error, "")))?;
        let user = getsockopt(&stream, PeerCredentials).map_err(|errno| unreachable(errno.into()))?.uid();
        let mut socket = Socket {
            stream,
            user,
            time: patience.greeting,
            receiver: Receiver::default(),
            id: 0,
            by_message: Vec::new(),
            capabilities: String::new(),
        };
        let offer = Version { major: MAJOR, minor: MINOR, data: capabilities }.to_bytes();
        let offer = if capabilities.is_empty() { &offer[..4] } else { &offer };
        let reply = socket.ask(command::VERSION, &[offer], &[])?;
        let malformed = SocketError::Malformed { command: command::VERSION };
        let version = Version::parse(&reply.payload).filter(|version| version.major == MAJOR).ok_or(malformed)?;
        socket.capabilities = String::from_utf8_lossy(version.data).into_owned();
        socket.time = patience.reply;
        Ok(socket)
    }

    /// The user whose process has the other end: what comes from there is what this one wrote.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// The server's capabilities, as JSON.
    pub fn capabilities(&self) -> &str {
        &self.capabilities
    }

    /// Sends a command and waits for its reply. Meanwhile the server may ask for memory.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn ask(
        &mut self,
        command: u16,
        parts: &[&[u8]],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Message, SocketError> {
        self.id = self.id.wrapping_add(1);
        let payload = parts.iter().map(|part| part.len()).sum();
        let header = Header::command(self.id, command, payload).to_bytes();
        let message = [&[header.as_slice()], parts].concat();
        let time = self.time;
        send(self.stream.as_fd(), &message, descriptors, time).map_err(failed(command, time))?;
        let until = Instant::now() + time;
        loop {
            let late = SocketError::Timeout { command, waited: time };
            let left = until.checked_duration_since(Instant::now()).ok_or(late)?;
            let Some(message) = self.receive(left).map_err(failed(command, time))? else { continue };
            if message.header.is_command() {
                self.serve(&message).map_err(failed(command, time))?;
                continue;
            }
            if !message.header.is_reply() || (message.header.id, message.header.command) != (self.id, command) {
                return Err(SocketError::Malformed { command });
            }
            if message.header.is_failure() {
                return Err(SocketError::Refused { command, errno: Errno::from_raw(message.header.error as i32) });
            }
            return Ok(message);
        }
    }

    fn receive(&mut self, time: Duration) -> Result<Option<Message>, Errno> {
        match self.receiver.receive(self.stream.as_fd())? {
            Received::Message(message) => Ok(Some(message)),
            Received::Closed => Err(Errno::ECONNRESET),
            Received::Nothing => {
                readable(&[self.stream.as_fd()], Some(time))?;
                Ok(None)
            }
        }
    }

    /// Whether the server has closed the connection. A client whose doorbells are mapped sends nothing that would fail.
    pub fn is_closed(&self) -> bool {
        !self.poll(PollFlags::empty()).is_empty()
    }

    /// Which of the events asked for there are; that the connection is closed is among them in any case.
    fn poll(&self, asked: PollFlags) -> PollFlags {
        let mut polled = [PollFd::new(self.stream.as_fd(), asked)];
        loop {
            match poll(&mut polled, PollTimeout::ZERO) {
                Ok(_) => return polled[0].revents().unwrap_or(PollFlags::POLLERR),
                // A signal can end even a call that does not wait.
                Err(Errno::EINTR) => {}
                Err(_) => return PollFlags::POLLERR,
            }
        }
    }

    /// Answers what the server asks for, for this long.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn serve_memory(&mut self, time: Duration) -> Result<(), SocketError> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if let Some(message) = self.receive(left).map_err(failed(command::DMA_READ, time))?
                && message.header.is_command()
            {
                self.serve(&message).map_err(failed(message.header.command, time))?;
            }
        }
        Ok(())
    }

    /// Answers one question of the server about memory.
    fn serve(&mut self, message: &Message) -> Result<(), Errno> {
        let writing = message.header.command == command::DMA_WRITE;
        let answer = self.access(message, writing);
        let socket = self.stream.as_fd();
        match answer {
            Some((access, data)) => {
                let header = message.header.reply(DmaAccess::SIZE + data.len()).to_bytes();
                send(socket, &[&header, &access.to_bytes(), &data], &[], self.time)?;
            }
            None => {
                let failure = message.header.failure(Errno::EINVAL as u32);
                send(socket, &[&failure.to_bytes()], &[], self.time)?;
            }
        }
        Ok(())
    }

    fn access(&self, message: &Message, writing: bool) -> Option<(DmaAccess, Vec<u8>)> {
        if !writing && message.header.command != command::DMA_READ {
            return None;
        }
        let (access, data) = DmaAccess::split(&message.payload, writing)?;
        let lent = self.by_message.iter().find(|lent| access.address.wrapping_sub(lent.address) < lent.size)?;
        let at = access.address - lent.address;
        if writing {
            return lent.memory.write(at, data).then_some((access, Vec::new()));
        }
        let count = usize::try_from(access.count).ok().filter(|count| *count <= TRANSFER_MAX as usize)?;
        let mut data = vec![0; count];
        lent.memory.read(at, &mut data).then_some((access, data))
    }

    /// Asks for the function's information (VFIO_USER_DEVICE_GET_INFO).
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn device_info(&mut self) -> Result<DeviceInfo, SocketError> {
        let asked = DeviceInfo { argsz: DeviceInfo::SIZE as u32, flags: 0, regions: 0, irqs: 0 };
        let reply = self.ask(command::DEVICE_GET_INFO, &[&asked.to_bytes()], &[])?;
        DeviceInfo::parse(&reply.payload).map_err(|_| SocketError::Malformed { command: command::DEVICE_GET_INFO })
    }

    /// Asks for a region's information; asks again if the reply needs more room.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn region_info(&mut self, index: u32) -> Result<Described, SocketError> {
        let malformed = || SocketError::Malformed { command: command::DEVICE_GET_REGION_INFO };
        let mut room = RegionInfo::SIZE as u32;
        loop {
            let asked = RegionInfo { argsz: room, flags: 0, index, cap_offset: 0, size: 0, offset: 0 };
            let reply = self.ask(command::DEVICE_GET_REGION_INFO, &[&asked.to_bytes()], &[])?;
            let info = RegionInfo::parse(&reply.payload).map_err(|_| malformed())?;
            if info.argsz > room {
                if info.argsz > 1 << 16 {
                    return Err(malformed());
                }
                room = info.argsz;
                continue;
            }
            let file = reply.descriptors.into_iter().next();
            let areas = match parse_areas(&reply.payload).ok_or_else(malformed)? {
                Some(areas) => areas,
                None if info.flags & region_info_flag::MMAP != 0 => vec![Area { offset: 0, size: info.size }],
                None => Vec::new(),
            };
            return Ok(Described { info, areas, file });
        }
    }

    /// Asks for the number of interrupts of a kind.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn irq_info(&mut self, index: IrqIndex) -> Result<IrqInfo, SocketError> {
        let asked = IrqInfo { argsz: IrqInfo::SIZE as u32, flags: 0, index: index.number(), count: 0 };
        let reply = self.ask(command::DEVICE_GET_IRQ_INFO, &[&asked.to_bytes()], &[])?;
        IrqInfo::parse(&reply.payload).map_err(|_| SocketError::Malformed { command: command::DEVICE_GET_IRQ_INFO })
    }

    /// Changes what interrupts do; with descriptors, where they go.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn set_irqs(&mut self, set: &SetIrqs<'_>, events: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
        self.ask(command::DEVICE_SET_IRQS, &[&set.to_bytes()], events).map(drop)
    }

    /// Sends the vectors of a kind, from the first, to event descriptors.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn set_events(&mut self, index: IrqIndex, events: &[BorrowedFd<'_>]) -> Result<(), SocketError> {
        let count = events.len() as u32;
        let set = SetIrqs { index, start: 0, count, data: IrqData::Event, action: IrqAction::Trigger };
        self.set_irqs(&set, events)
    }

    /// Reads bytes of a region.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn read(&mut self, region: u32, offset: u64, to: &mut [u8]) -> Result<(), SocketError> {
        let access = RegionAccess { offset, region, count: to.len() as u32 };
        let reply = self.ask(command::REGION_READ, &[&access.to_bytes()], &[])?;
        match RegionAccess::split(&reply.payload, true) {
            Some((got, data)) if got == access => {
                to.copy_from_slice(data);
                Ok(())
            }
            _ => Err(SocketError::Malformed { command: command::REGION_READ }),
        }
    }

    /// Writes bytes of a region.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn write(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), SocketError> {
        let access = RegionAccess { offset, region, count: from.len() as u32 };
        let reply = self.ask(command::REGION_WRITE, &[&access.to_bytes(), from], &[])?;
        match RegionAccess::split(&reply.payload, false) {
            Some((got, _)) if got == access => Ok(()),
            _ => Err(SocketError::Malformed { command: command::REGION_WRITE }),
        }
    }

    /// Writes bytes of a region and asks for no reply, as a bus posts writes: a later read of the function is behind
    /// it, and finds out when the server has gone.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn post(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), SocketError> {
        let access = RegionAccess { offset, region, count: from.len() as u32 };
        self.id = self.id.wrapping_add(1);
        let header = Header::command(self.id, command::REGION_WRITE, RegionAccess::SIZE + from.len());
        let header = Header { flags: header.flags | Header::NO_REPLY, ..header }.to_bytes();
        send(self.stream.as_fd(), &[&header, &access.to_bytes(), from], &[], self.time)
            .map_err(failed(command::REGION_WRITE, self.time))
    }

    /// As [`Socket::post`], for what is sent again later anyway: left out while a server that does not read has its
    /// socket full.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn post_if_room(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), SocketError> {
        match self.poll(PollFlags::POLLOUT) {
            PollFlags::POLLOUT => self.post(region, offset, from),
            events if events.is_empty() => Ok(()),
            _ => Err(SocketError::Io(io::ErrorKind::ConnectionReset.into())),
        }
    }

    /// The event descriptor that stands for a write to the region at this offset; `None`: there is none.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn doorbell(&mut self, region: u32, offset: u64) -> Result<Option<OwnedFd>, SocketError> {
        let asked = RegionIoFds { argsz: 4096, flags: 0, index: region, count: 0 };
        let reply = self.ask(command::DEVICE_GET_REGION_IO_FDS, &[&asked.to_bytes()], &[])?;
        let malformed = SocketError::Malformed { command: command::DEVICE_GET_REGION_IO_FDS };
        let all = IoEventFd::parse_all(&reply.payload).ok_or(malformed)?;
        // The first descriptor of the message is the one that is kept.
        let first = reply.descriptors.into_iter().next();
        Ok(first.filter(|_| all.iter().any(|one| one.offset == offset && one.descriptor == 0)))
    }

    /// Reads a register of 4 bytes.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn read_u32(&mut self, region: u32, offset: u64) -> Result<u32, SocketError> {
        let mut bytes = [0; 4];
        self.read(region, offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads a register of 8 bytes.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn read_u64(&mut self, region: u32, offset: u64) -> Result<u64, SocketError> {
        let mut bytes = [0; 8];
        self.read(region, offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Lends memory at a bus address, readable and writable, by its descriptor.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn lend(&mut self, address: u64, memory: &SharedMemory) -> Result<(), SocketError> {
        self.lend_file(address, memory.len(), memory.as_fd(), 0)
    }

    /// Lends part of a file at a bus address, readable and writable.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn lend_file(&mut self, address: u64, size: u64, file: BorrowedFd<'_>, offset: u64) -> Result<(), SocketError> {
        let flags = DmaMap::READABLE | DmaMap::WRITABLE;
        let map = DmaMap { argsz: DmaMap::SIZE as u32, flags, offset, address, size };
        self.ask(command::DMA_MAP, &[&map.to_bytes()], &[file]).map(drop)
    }

    /// Lends memory at a bus address without a descriptor: the server asks for its bytes.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn lend_by_message(&mut self, address: u64, memory: &Arc<SharedMemory>) -> Result<(), SocketError> {
        let (flags, size) = (DmaMap::READABLE | DmaMap::WRITABLE, memory.len());
        let map = DmaMap { argsz: DmaMap::SIZE as u32, flags, offset: 0, address, size };
        self.ask(command::DMA_MAP, &[&map.to_bytes()], &[])?;
        self.by_message.push(ByMessage { address, size, memory: Arc::clone(memory) });
        Ok(())
    }

    /// Takes memory back. When this returns, the server does not touch it any more.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn take_back(&mut self, address: u64, size: u64) -> Result<(), SocketError> {
        let unmap = DmaUnmap { argsz: DmaUnmap::SIZE as u32, flags: 0, address, size };
        let reply = self.ask(command::DMA_UNMAP, &[&unmap.to_bytes()], &[])?;
        self.by_message.retain(|lent| lent.address < address || lent.address - address >= size);
        match DmaUnmap::parse(&reply.payload) {
            Ok(got) if got == unmap => Ok(()),
            _ => Err(SocketError::Malformed { command: command::DMA_UNMAP }),
        }
    }

    /// Takes all memory back.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn take_back_all(&mut self) -> Result<(), SocketError> {
        let unmap = DmaUnmap { argsz: DmaUnmap::SIZE as u32, flags: DmaUnmap::ALL, address: 0, size: 0 };
        self.ask(command::DMA_UNMAP, &[&unmap.to_bytes()], &[])?;
        self.by_message.clear();
        Ok(())
    }

    /// Resets the function.
    ///
    /// # Errors
    /// As [`SocketError`] says.
    pub fn reset(&mut self) -> Result<(), SocketError> {
        self.ask(command::DEVICE_RESET, &[], &[]).map(drop)
    }
}
