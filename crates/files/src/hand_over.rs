//! How the processes of a run get its ring: from a socket of the supervisor's, which answers its own descendants only.
//! Descriptors are close-on-exec, and a program that was started by another asks anew.

use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use tidewater_client::LogError;
use tidewater_client::mapped::{Log, Shared, owner};

/// The variable that names the socket.
pub const SOCKET_VARIABLE: &str = "TIDEWATER_RUN";
/// The variable with the patterns of the log set, one a line.
pub const FILES_VARIABLE: &str = "TIDEWATER_LOG_SET";

/// Ring, doorbell, table of files, and the ring's copy where it has one.
const DESCRIPTORS: usize = 4;
/// Bytes of the message beside them: lane and generation.
const MESSAGE: usize = 16;
const TIME: Duration = Duration::from_secs(10);

/// Where a run's processes ask.
///
/// # Errors
/// Those of the system.
pub fn listen(name: &str) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Answers one that asks, if it descends from this process. `false`: it does not, and got nothing.
///
/// # Errors
/// Those of the system.
pub fn answer(stream: &UnixStream, log: &Log, table: &OwnedFd) -> io::Result<bool> {
    // 0: of another PID namespace, and so no descendant.
    let peer = getsockopt(stream, PeerCredentials)?.pid();
    if !u32::try_from(peer).is_ok_and(|peer| descends(peer, std::process::id())) {
        return Ok(false);
    }
    stream.set_write_timeout(Some(TIME))?;
    let shared = log.share().map_err(io::Error::other)?;
    let mut message = [0; MESSAGE];
    message[0] = shared.lane;
    message[8..].copy_from_slice(&shared.generation.to_le_bytes());
    let mut list = vec![shared.ring.as_fd(), shared.doorbell.as_fd(), table.as_fd()];
    list.extend(shared.copy.as_ref().map(AsFd::as_fd));
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&list)), "there is room for them");
    sendmsg(stream, &[IoSlice::new(&message)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(true)
}

/// Asks. The descriptors are close-on-exec, and have the lowest numbers that are free.
///
/// # Errors
/// `Gone`: no supervisor answers, or it refuses.
pub fn ask(name: &str) -> Result<(Shared, OwnedFd), LogError> {
    try_to_ask(name).ok().flatten().ok_or(LogError::Gone)
}

fn try_to_ask(name: &str) -> io::Result<Option<(Shared, OwnedFd)>> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    stream.set_read_timeout(Some(TIME))?;
    let mut message = [0; MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(&stream, &mut [IoSliceMut::new(&mut message)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            got => break got?,
        }
    };
    let mut found: [Option<OwnedFd>; DESCRIPTORS] = [const { None }; DESCRIPTORS];
    for one in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = one {
            for (place, descriptor) in found.iter_mut().zip(descriptors) {
                *place = Some(descriptor);
            }
        }
    }
    let [Some(ring), Some(doorbell), Some(table), copy] = found else { return Ok(None) };
    if got.bytes != MESSAGE {
        return Ok(None);
    }
    let generation = message[8..].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    Ok(Some((Shared { ring, doorbell, copy, lane: message[0], generation }, table)))
}

/// Whether a process was started by another, or by one that was.
fn descends(mut pid: u32, from: u32) -> bool {
    // The chain ends at process 1, or at one that has ended: its children are their reaper's, which a supervisor is.
    for _ in 0..4096 {
        if pid == from {
            return true;
        }
        let Some(parent) = owner::parent(pid).filter(|parent| *parent > 1 || from == 1) else { return false };
        pid = parent;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_descends_is_known() {
        let me = std::process::id();
        assert!(descends(me, me));
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(descends(child.id(), me) && !descends(me, child.id()) && !descends(1, me));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
