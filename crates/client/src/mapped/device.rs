//! The connection to the device: what is no append goes by it.

use std::path::Path;
use std::time::Duration;

use tidewater_driver::vfio_user::{Function, Patience, Socket, SocketError};
use tidewater_wire::vfio_user::region;

use super::lent::{Mappable, mappable};
use crate::LogError;

/// How long a command may take beyond what it is itself asked to wait; as long as a reply.
pub(super) const TIME: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// How long what listens at the path may take: a device that does not answer in time has gone.
pub(super) const PATIENCE: Patience =
    Patience { greeting: Duration::from_secs(if cfg!(test) { 1 } else { 5 }), reply: TIME };

#[derive(Debug)]
pub(super) enum Device {
    /// Regions are reached; no command was needed yet.
    Plain(Box<Socket>),
    /// Commands are run.
    Enabled(Box<Function>),
    Gone,
    /// It runs, and did not answer for so long.
    Silent(Duration),
}

impl Device {
    /// Does something with the socket.
    pub(super) fn socket<T>(
        &mut self,
        operation: impl FnOnce(&mut Socket) -> Result<T, SocketError>,
    ) -> Result<T, LogError> {
        let result = match self {
            Device::Plain(socket) => operation(socket),
            Device::Enabled(function) => operation(&mut function.socket()),
            Device::Gone => return Err(LogError::Gone),
            Device::Silent(waited) => return Err(LogError::NoReply { waited: *waited }),
        };
        Ok(result?)
    }

    /// The function, which is enabled for its first command.
    pub(super) fn function(&mut self) -> Result<&mut Function, LogError> {
        if let Device::Plain(_) = self {
            let Device::Plain(socket) = std::mem::replace(self, Device::Gone) else { return Err(LogError::Gone) };
            *self = Device::Enabled(Box::new(Function::start(*socket)?));
        }
        match self {
            Device::Enabled(function) => Ok(function),
            Device::Silent(waited) => Err(LogError::NoReply { waited: *waited }),
            _ => Err(LogError::Gone),
        }
    }

    /// An operation after which a device that has gone is known to have. So has one that did not answer, or not what it
    /// was asked: answers that come later would be taken for those of what it is asked next.
    pub(super) fn run<T>(&mut self, operation: impl FnOnce(&mut Device) -> Result<T, LogError>) -> Result<T, LogError> {
        let result = operation(self);
        match result {
            Err(LogError::Gone | LogError::Malformed { .. }) => *self = Device::Gone,
            Err(LogError::NoReply { waited }) => *self = Device::Silent(waited),
            _ => {}
        }
        result
    }
}

pub(super) fn connect(path: &Path, patience: Patience) -> Result<(Socket, Mappable), LogError> {
    let mut socket = Socket::connect_within(path, patience)?;
    let lent = mappable(&mut socket, region::BAR2)?.ok_or(LogError::NotMapped)?;
    Ok((socket, lent))
}

/// A device whose client has just gone may still be at it: it turns the next one away, and takes it a moment later.
pub(super) fn patiently<T>(mut connect: impl FnMut() -> Result<T, LogError>) -> Result<T, LogError> {
    for _ in 0..250 {
        match connect() {
            Err(LogError::Gone) => std::thread::sleep(Duration::from_millis(2)),
            other => return other,
        }
    }
    connect().map_err(LogError::turned_away)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use nix::errno::Errno;
    use tidewater_wire::vfio_user::{Header, MAJOR, MINOR, Version};

    /// Answers what version it speaks, and what is asked then as another request's, if at all.
    fn answer(stream: &mut UnixStream, wrongly: bool) {
        let version = Version { major: MAJOR, minor: MINOR, data: b"{}" }.to_bytes();
        for (answers, more, payload) in [(true, 0, version.as_slice()), (wrongly, 1, &[])] {
            let mut head = [0; Header::SIZE];
            stream.read_exact(&mut head).unwrap();
            let asked = Header::from_bytes(&head);
            stream.read_exact(&mut vec![0; asked.size as usize - Header::SIZE]).unwrap();
            if answers {
                let reply = Header { id: asked.id + more, ..asked }.reply(payload.len()).to_bytes();
                stream.write_all(&[&reply[..], payload].concat()).unwrap();
            }
        }
    }

    #[test]
    fn a_connection_on_which_an_answer_did_not_come_or_another_is_not_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        for wrongly in [false, true] {
            let (mut device, asked, _open) = std::thread::scope(|scope| {
                let server = scope.spawn(|| {
                    let (mut stream, _) = listener.accept().unwrap();
                    answer(&mut stream, wrongly);
                    stream
                });
                let mut device = Device::Plain(Box::new(Socket::connect_within(&path, PATIENCE).unwrap()));
                let asked =
                    device.run(|device| device.socket(|socket| socket.read(region::BAR2, 0, &mut [0; 4]))).unwrap_err();
                (device, asked, server.join().unwrap())
            });
            assert_eq!(matches!(asked, LogError::Malformed { .. }), wrongly, "{asked}");
            assert!(wrongly || asked.errno() == Errno::EHOSTDOWN as i32, "it did not answer: {asked}");
            let again =
                device.run(|device| device.socket(|socket| socket.read(region::BAR2, 0, &mut [0; 4]))).unwrap_err();
            let is_as_before = if wrongly { matches!(again, LogError::Gone) } else { again.errno() == asked.errno() };
            assert!(is_as_before, "{asked}, then {again}");
        }
    }
}
