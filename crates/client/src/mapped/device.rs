//! The connection to the device: what is no append goes by it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tidewater_driver::vfio_user::{Function, Patience, Socket, SocketError};
use tidewater_wire::log::{COPY_SECTOR, CopyBuffer};
use tidewater_wire::vendor::Epoch;
use tidewater_wire::vfio_user::{Area, region};

use super::inode::takes_direct;
use super::log::Log;
use super::ring::reopen;
use crate::LogError;

/// How long a command may take beyond what it is itself asked to wait; as long as a reply.
pub(super) const TIME: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// How long what listens at the path may take: a device that does not answer in time has gone.
pub(super) const PATIENCE: Patience =
    Patience { greeting: Duration::from_secs(if cfg!(test) { 1 } else { 5 }), reply: TIME };

/// A region that can be mapped.
#[derive(Debug)]
pub(super) struct Mappable {
    /// Where the region begins in the file.
    pub(super) offset: u64,
    pub(super) areas: Vec<Area>,
    pub(super) file: OwnedFd,
}

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

impl Log {
    /// Whether the stream did not go on from what was published when the log was opened ([`Recovered::is_new`]): the
    /// ring's memory was lost since, its file was replaced, or there was none before.
    ///
    /// [`Recovered::is_new`]: super::Recovered::is_new
    pub fn began_anew(&self) -> bool {
        self.began_anew
    }

    /// The drive that has the log: the identifier of its image; and the epoch that it was in when the log was opened.
    pub fn identity(&self) -> ([u8; 16], Epoch) {
        let header = self.ring.header();
        (header.drive, header.epoch)
    }

    /// Who can have written what the log says, beside whom they have shared it with: the owner of the ring's file, and
    /// the user of the device, from which comes what is not in the ring.
    ///
    /// # Errors
    /// `Gone`, `Joined`, or that the ring's file can't be looked at.
    pub fn writers(&self) -> Result<[u32; 2], LogError> {
        let device = self.device()?.run(|device| device.socket(|socket| Ok(socket.user())))?;
        Ok([self.ring.user()?, device])
    }
}

pub(super) fn connect(path: &Path, patience: Patience) -> Result<(Socket, Mappable), LogError> {
    let mut socket = Socket::connect_within(path, patience)?;
    let lent = mappable(&mut socket, region::BAR2)?.ok_or(LogError::NotMapped)?;
    Ok((socket, lent))
}

/// The part of a region that can be mapped; `None`: nothing of it.
fn mappable(socket: &mut Socket, region: u32) -> Result<Option<Mappable>, LogError> {
    let found = socket.region_info(region)?;
    Ok(found.file.map(|file| Mappable { offset: found.info.offset, areas: found.areas, file }))
}

/// The ring's copy on a disk, which a device lends whose ring's header says that there is one.
///
/// The description is this handle's own: an error of the disk is reported to each description once, and not to another
/// lane instead.
pub(super) fn copy(socket: &mut Socket) -> Result<Option<OwnedFd>, LogError> {
    let lent = mappable(socket, region::RING_COPY)?;
    lent.map(|lent| reopen(&lent.file).map(|file| past_the_cache(file.into()))).transpose()
}

/// Has the copy written past the page cache where its file system takes single sectors so: a sync is left with the
/// flush then, and seldom has an inode to write in front of it.
fn past_the_cache(file: OwnedFd) -> OwnedFd {
    if takes_direct(file.as_fd(), COPY_SECTOR as u32, CopyBuffer::ALIGN as u32)
        && let Ok(flags) = fcntl(&file, FcntlArg::F_GETFL)
    {
        // What won't be written so after all is written as any file is.
        let _ = fcntl(&file, FcntlArg::F_SETFL(OFlag::from_bits_retain(flags) | OFlag::O_DIRECT));
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;
    use std::os::unix::net::{UnixListener, UnixStream};

    use nix::errno::Errno;
    use tidewater_wire::log::CopyPlace;
    use tidewater_wire::vfio_user::{Header, MAJOR, MINOR, Version};

    #[test]
    fn what_a_device_cannot_write_itself_it_cannot_have_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "precious").unwrap();
        let open = |flags: OFlag| nix::fcntl::open(&path, flags, nix::sys::stat::Mode::empty()).unwrap();
        for flags in [OFlag::O_PATH, OFlag::O_RDONLY, OFlag::O_WRONLY] {
            assert!(matches!(reopen(&open(flags)), Err(LogError::Ring(_))), "{flags:?}");
        }
        let place = nix::fcntl::open(folder.path(), OFlag::O_RDONLY, nix::sys::stat::Mode::empty()).unwrap();
        assert!(matches!(reopen(&place), Err(LogError::Ring(_))));
        reopen(&open(OFlag::O_RDWR)).unwrap();
    }

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

    #[test]
    fn a_copy_is_written_past_the_cache_where_single_sectors_are_taken_and_read_by_any_descriptor() {
        const RING: u64 = 4096;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        fs::write(&path, vec![0; CopyPlace::file_bytes(1, RING) as usize]).unwrap();
        let open = || fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (plain, file) = (open(), fs::File::from(past_the_cache(open().into())));
        let is_direct = fcntl(&file, FcntlArg::F_GETFL).unwrap() & OFlag::O_DIRECT.bits() != 0;
        assert_eq!(is_direct, takes_direct(file.as_fd(), 512, 4096));

        let place = CopyPlace::new(0, RING);
        let mut saved = 0;
        for to in [100, 479, 481, 3_000] {
            let read = |at: u64, to: &mut [u8]| {
                to.iter_mut().zip(at..).for_each(|(to, at)| *to = at as u8);
                0
            };
            let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at);
            place.write(1, (saved, to), &mut CopyBuffer::new(3), read, write).unwrap();
            let found = place.read(1, 0, RING, |at, sector| plain.read_exact_at(sector, at)).unwrap();
            assert_eq!(found, (0..to).map(|at| at as u8).collect::<Vec<_>>());
            saved = to;
        }
    }
}
