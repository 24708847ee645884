//! A function's vfio-user socket, as far as a log needs it: regions, and memory that is lent.

use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use tidewater_wire::vfio_user::{
    Area, DmaMap, Header, IoEventFd, MAJOR, MINOR, RegionAccess, RegionInfo, RegionIoFds, Version, command, parse_areas,
};

use super::error::LiveError;

/// How long a device may take for a reply, and for a command: what Linux gives an NVMe drive (`nvme_core.io_timeout`).
/// A machine that is busy, and a disk that stalls, are no device that has gone: that closes the connection.
pub(super) const REPLY_TIME: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// How long it may take until it tells its version: what listens at the path may be no device.
const GREETING_TIME: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 5 });
/// Bytes of a reply, at most.
const REPLY_MAX: usize = (1 << 20) + 4096;

/// A region that can be mapped.
#[derive(Debug)]
pub(super) struct Mappable {
    /// Where the region begins in the file.
    pub(super) offset: u64,
    pub(super) areas: Vec<Area>,
    pub(super) file: OwnedFd,
}

/// A connection to a function.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: UnixStream,
    /// Whose process has the other end.
    user: u32,
    id: u16,
}

fn malformed(command: u16) -> LiveError {
    LiveError::Malformed { what: format!("the reply to vfio-user command {command}") }
}

impl Socket {
    /// Connects, and agrees on a version.
    pub(crate) fn connect(path: &Path) -> Result<Socket, LiveError> {
        let failed = |error: io::Error| LiveError::Unreachable { path: path.to_owned(), error };
        let stream = UnixStream::connect(path).map_err(failed)?;
        let patience = |stream: &UnixStream, time| {
            stream.set_read_timeout(Some(time)).and_then(|()| stream.set_write_timeout(Some(time))).map_err(failed)
        };
        patience(&stream, GREETING_TIME)?;
        let peer = getsockopt(&stream, PeerCredentials).map_err(|errno| failed(errno.into()))?;
        let mut socket = Socket { stream, user: peer.uid(), id: 0 };
        let data = br#"{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":1048576}}"#;
        let offer = Version { major: MAJOR, minor: MINOR, data }.to_bytes();
        let (reply, _) = socket.ask(command::VERSION, &[&offer], None)?;
        match Version::parse(&reply) {
            Some(version) if version.major == MAJOR => patience(&socket.stream, REPLY_TIME)?,
            _ => return Err(malformed(command::VERSION)),
        }
        Ok(socket)
    }

    /// The user who made the socket: what comes by it can be anything that this one wrote.
    pub(crate) fn user(&self) -> u32 {
        self.user
    }

    /// Sends a command, and waits for its reply: payload, and the descriptor that came with it.
    fn ask(
        &mut self,
        command: u16,
        parts: &[&[u8]],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(Vec<u8>, Option<OwnedFd>), LiveError> {
        self.id = self.id.wrapping_add(1);
        let payload = parts.iter().map(|part| part.len()).sum();
        let mut message = Header::command(self.id, command, payload).to_bytes().to_vec();
        parts.iter().for_each(|part| message.extend_from_slice(part));
        self.send(&message, descriptor)?;
        let mut head = [0; Header::SIZE];
        let (got, mut file) = self.receive(&mut head)?;
        self.stream.read_exact(&mut head[got..]).map_err(LiveError::gone)?;
        let header = Header::from_bytes(&head);
        if !header.is_reply() || (header.id, header.command) != (self.id, command) {
            return Err(malformed(command));
        }
        let len = (header.size as usize).checked_sub(Header::SIZE).filter(|len| *len <= REPLY_MAX);
        let mut payload = vec![0; len.ok_or_else(|| malformed(command))?];
        if !payload.is_empty() {
            let (got, late) = self.receive(&mut payload)?;
            file = file.or(late);
            self.stream.read_exact(&mut payload[got..]).map_err(LiveError::gone)?;
        }
        if header.is_failure() {
            return Err(LiveError::Refused { command, error: io::Error::from_raw_os_error(header.error as i32) });
        }
        Ok((payload, file))
    }

    fn send(&self, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), LiveError> {
        let mut rest = message;
        let list = descriptor.as_slice();
        let mut first = true;
        while !rest.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if first && !list.is_empty() {
                assert!(control.push(SendAncillaryMessage::ScmRights(list)), "there is room for one");
            }
            match sendmsg(&self.stream, &[io::IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL) {
                Ok(sent) => (rest, first) = (&rest[sent..], false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(LiveError::gone(error.into())),
            }
        }
        Ok(())
    }

    /// Receives some bytes, and the first descriptor that comes with them; others are closed.
    fn receive(&self, to: &mut [u8]) -> Result<(usize, Option<OwnedFd>), LiveError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = loop {
            match recvmsg(&self.stream, &mut [IoSliceMut::new(to)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(got) if got.bytes == 0 => return Err(LiveError::Gone),
                Ok(got) => break got.bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(LiveError::gone(error.into())),
            }
        };
        let mut file = None;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                for one in descriptors {
                    file.get_or_insert(one);
                }
            }
        }
        Ok((got, file))
    }

    /// The part of a region that can be mapped; `None`: nothing of it.
    pub(super) fn mappable(&mut self, region: u32) -> Result<Option<Mappable>, LiveError> {
        let asked = RegionInfo { argsz: 4096, flags: 0, index: region, cap_offset: 0, size: 0, offset: 0 };
        let (reply, file) = self.ask(command::DEVICE_GET_REGION_INFO, &[&asked.to_bytes()], None)?;
        let wrong = || malformed(command::DEVICE_GET_REGION_INFO);
        let info = RegionInfo::parse(&reply).ok_or_else(wrong)?;
        let areas = parse_areas(&reply).ok_or_else(wrong)?;
        // Without a list, all of it can.
        let areas = areas.unwrap_or_else(|| vec![Area { offset: 0, size: info.size }]);
        Ok(file.map(|file| Mappable { offset: info.offset, areas, file }))
    }

    /// The descriptor that stands for a write to the region at this offset; `None`: there is none.
    pub(super) fn doorbell(&mut self, region: u32, offset: u64) -> Result<Option<OwnedFd>, LiveError> {
        let asked = RegionIoFds { argsz: 4096, flags: 0, index: region, count: 0 };
        let (reply, file) = self.ask(command::DEVICE_GET_REGION_IO_FDS, &[&asked.to_bytes()], None)?;
        let all = IoEventFd::parse_all(&reply).ok_or_else(|| malformed(command::DEVICE_GET_REGION_IO_FDS))?;
        // The first descriptor of a message is the one that is kept.
        Ok(file.filter(|_| all.iter().any(|one| one.offset == offset && one.descriptor == 0)))
    }

    /// Reads bytes of a region.
    pub(crate) fn read(&mut self, region: u32, offset: u64, to: &mut [u8]) -> Result<(), LiveError> {
        let access = RegionAccess { offset, region, count: to.len() as u32 };
        let (reply, _) = self.ask(command::REGION_READ, &[&access.to_bytes()], None)?;
        match RegionAccess::parse(&reply, true) {
            Some((got, data)) if got == access => {
                to.copy_from_slice(data);
                Ok(())
            }
            _ => Err(malformed(command::REGION_READ)),
        }
    }

    /// Writes bytes of a region.
    pub(crate) fn write(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), LiveError> {
        let access = RegionAccess { offset, region, count: from.len() as u32 };
        self.ask(command::REGION_WRITE, &[&access.to_bytes(), from], None).map(drop)
    }

    /// Writes bytes of a region and asks for no reply, as a bus posts writes: a later read of the function is behind
    /// it, and tells when it has gone.
    pub(crate) fn post(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), LiveError> {
        let access = RegionAccess { offset, region, count: from.len() as u32 };
        self.id = self.id.wrapping_add(1);
        let header = Header::command(self.id, command::REGION_WRITE, RegionAccess::SIZE + from.len());
        let header = Header { flags: header.flags | Header::NO_REPLY, ..header };
        let message = [&header.to_bytes()[..], &access.to_bytes(), from].concat();
        self.send(&message, None)
    }

    /// Lends memory, readable and writable.
    pub(super) fn lend(&mut self, address: u64, size: u64, file: BorrowedFd<'_>) -> Result<(), LiveError> {
        let flags = DmaMap::READABLE | DmaMap::WRITABLE;
        let map = DmaMap { argsz: DmaMap::SIZE as u32, flags, offset: 0, address, size };
        self.ask(command::DMA_MAP, &[&map.to_bytes()], Some(file)).map(drop)
    }

    /// As [`Socket::post`] of what is told again anyway: left out while a device that does not read has its socket
    /// full, since nobody has to wait for that.
    pub(super) fn tell(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), LiveError> {
        match self.poll(PollFlags::POLLOUT) {
            PollFlags::POLLOUT => self.post(region, offset, from),
            events if events.is_empty() => Ok(()),
            _ => Err(LiveError::Gone),
        }
    }

    /// Whether the device has closed the connection.
    pub(super) fn is_gone(&self) -> bool {
        !self.poll(PollFlags::empty()).is_empty()
    }

    /// What is true at the moment of what is asked for; that the connection is closed is told in any case.
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
}
