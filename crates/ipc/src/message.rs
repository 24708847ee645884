//! Messages on a UNIX socket, with their descriptors.
//!
//! rustix receives here, because it hands out descriptors as owned ones; everything else of this module uses nix.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use tidewater_wire::vfio_user::Header;

/// Bytes of data in one message, at most: what both sides of this implementation offer.
pub const TRANSFER_MAX: u32 = 1 << 20;
/// Bytes of a message, at most: data with what stands before it, and padding.
pub const MESSAGE_MAX: u32 = TRANSFER_MAX + 4096;
/// Descriptors that a side says it takes with one message. QEMU 11.1 calls a server malformed that says more than 16.
pub const DESCRIPTORS_OFFERED: usize = 16;
/// Descriptors that come with a message, at most: more than a peer should send, so that it gets a reply and not an end.
pub const DESCRIPTORS_MAX: usize = 64;
/// Descriptors that Linux carries with one message, at most: all of them are received, and closed.
const SCM_MAX_FD: usize = 253;

/// How long a message may take to be sent to a peer that doesn't read.
pub const SEND_TIME: Duration = Duration::from_secs(5);

/// A message as it came.
#[derive(Debug)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// The bytes behind it.
    pub payload: Vec<u8>,
    /// The descriptors that came with it, in order.
    pub descriptors: Vec<OwnedFd>,
}

/// Result of a read from a socket.
#[derive(Debug)]
pub enum Received {
    /// A whole message.
    Message(Message),
    /// Nothing, or part of a message: poll the socket.
    Nothing,
    /// The peer has closed the connection.
    Closed,
}

/// Puts a message together from the pieces that it comes in.
#[derive(Debug, Default)]
pub struct Receiver {
    head: [u8; Header::SIZE],
    /// Bytes of the message that are there, the header's too.
    have: usize,
    payload: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Receiver {
    /// Takes what is on the socket, without waiting.
    ///
    /// # Errors
    /// EPROTO: a size that no message has, or more descriptors than any needs: where the next message begins is
    /// unknown; what the system says.
    pub fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Received, Errno> {
        while self.have < Header::SIZE {
            let mut head = self.head;
            match self.once(socket, &mut head[self.have..])? {
                Some(0) => return Ok(Received::Closed),
                Some(more) => self.have += more,
                None => return Ok(Received::Nothing),
            }
            self.head = head;
        }
        let header = Header::from_bytes(&self.head);
        if header.size < Header::SIZE as u32 || header.size > MESSAGE_MAX {
            return Err(Errno::EPROTO);
        }
        // Header and payload are received apart: descriptors of the next message would else be taken for this one's.
        self.payload.resize(header.size as usize - Header::SIZE, 0);
        while self.have < header.size as usize {
            let mut payload = std::mem::take(&mut self.payload);
            let got = self.once(socket, &mut payload[self.have - Header::SIZE..]);
            self.payload = payload;
            match got? {
                Some(0) => return Ok(Received::Closed),
                Some(more) => self.have += more,
                None => return Ok(Received::Nothing),
            }
        }
        self.have = 0;
        let (payload, descriptors) = (std::mem::take(&mut self.payload), std::mem::take(&mut self.descriptors));
        Ok(Received::Message(Message { header, payload, descriptors }))
    }

    /// Whether a message has begun and not ended.
    pub fn is_amid(&self) -> bool {
        self.have > 0
    }

    /// One system call. `None`: nothing there; `Some(0)`: closed.
    fn once(&mut self, socket: BorrowedFd<'_>, to: &mut [u8]) -> Result<Option<usize>, Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SCM_MAX_FD))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = loop {
            match recvmsg(socket, &mut [IoSliceMut::new(to)], &mut control, flags) {
                Ok(got) => break got,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::CONNRESET) => return Ok(Some(0)),
                Err(other) => return Err(Errno::from_raw(other.raw_os_error())),
            }
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        if got.flags.contains(ReturnFlags::CTRUNC) || self.descriptors.len() > DESCRIPTORS_MAX {
            self.descriptors.clear();
            return Err(Errno::EPROTO);
        }
        Ok(Some(got.bytes))
    }
}

/// Waits until the time is over for one of at most 32 descriptors to become readable. Bit by bit, which ones are or
/// have been closed.
///
/// # Errors
/// Those of the system; being interrupted counts as nothing.
pub fn readable(descriptors: &[BorrowedFd<'_>], time: Option<Duration>) -> Result<u32, Errno> {
    let timeout = match time {
        None => PollTimeout::NONE,
        Some(time) => {
            let millis = i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
            PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
        }
    };
    let mut polled: Vec<PollFd<'_>> = descriptors.iter().map(|one| PollFd::new(*one, PollFlags::POLLIN)).collect();
    match poll(&mut polled, timeout) {
        Ok(_) => {
            let ready = polled.iter().enumerate().filter(|(_, one)| one.any().unwrap_or(true));
            Ok(ready.fold(0, |bits, (at, _)| bits | 1 << at))
        }
        Err(Errno::EINTR) => Ok(0),
        Err(errno) => Err(errno),
    }
}

/// Sends a message, in one write if the socket takes it: some clients want a reply in one piece.
///
/// # Errors
/// ETIMEDOUT: the peer did not read in time; part of the message may have gone, so that nothing can follow. What the
/// system says.
pub fn send(
    socket: BorrowedFd<'_>,
    parts: &[&[u8]],
    descriptors: &[BorrowedFd<'_>],
    time: Duration,
) -> Result<(), Errno> {
    let mut left: VecDeque<&[u8]> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    let mut descriptors = descriptors;
    let mut until = None;
    while !left.is_empty() {
        let slices: Vec<IoSlice<'_>> = left.iter().map(|part| IoSlice::new(part)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::E2BIG);
        }
        match sendmsg(socket, &slices, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(mut sent) => {
                descriptors = &[];
                while let Some(first) = left.front_mut() {
                    if sent < first.len() {
                        *first = &first[sent..];
                        break;
                    }
                    sent -= first.len();
                    left.pop_front();
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let until = *until.get_or_insert_with(|| Instant::now() + time);
                let wait = until.checked_duration_since(Instant::now()).ok_or(Errno::ETIMEDOUT)?;
                let millis = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX).max(1);
                let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
                let mut polled = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
                if let Err(errno) = poll(&mut polled, timeout)
                    && errno != Errno::EINTR
                {
                    return Err(errno);
                }
            }
            Err(other) => return Err(Errno::from_raw(other.raw_os_error())),
        }
    }
    Ok(())
}
