//! The socket of a function, and the thread that serves it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::connection::Connection;
use super::device::{Device, Function};
use super::session::Session;
use tidewater_ipc::readable;

/// How long a client may take from the start of a message to its end.
const MESSAGE_TIME: Duration = Duration::from_secs(5);

/// Why a socket could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another process serves it.
    #[error("{} is served by another process; stop it, or choose another place", .0.display())]
    InUse(PathBuf),
    /// There is something at that place that is no socket.
    #[error("{} exists and is not a socket; choose another place", .0.display())]
    NoSocket(PathBuf),
    /// The system said no, while doing this at this place.
    #[error("can't {0} {path}: {2}", path = .1.display())]
    Io(&'static str, PathBuf, #[source] io::Error),
}

/// A function that is served on a UNIX socket, by a thread of its own: one client at a time, one after the other.
///
/// While a client is connected, others are turned away. When it goes, its memory and its interrupts go; everything else
/// stays for the next one. Dropping the server ends the connection and removes the socket.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
    stop: Arc<Stop>,
}

#[derive(Debug)]
struct Stop {
    event: EventFd,
    asked: AtomicBool,
    /// The connected client: closing it ends a send that the client does not read.
    connection: Mutex<Option<Arc<Connection>>>,
}

impl Stop {
    fn connection(&self) -> MutexGuard<'_, Option<Arc<Connection>>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Serves `function` at `path`, which lies in a directory that only its owner may enter. A socket that is there and
    /// without a server is replaced; the new one is for its owner only.
    ///
    /// # Errors
    /// As [`ServerError`] says.
    pub fn start(path: &Path, device: Device, function: impl Function + 'static) -> Result<Server, ServerError> {
        let failed = |what: &'static str| move |error: io::Error| ServerError::Io(what, path.to_owned(), error);
        let listener = listen(path)?;
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_value_and_flags(0, flags).map_err(io::Error::from).map_err(failed("watch"))?;
        let stop = Arc::new(Stop { event, asked: AtomicBool::new(false), connection: Mutex::new(None) });
        let theirs = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("vfio-user".to_owned())
            .spawn(move || serve(&listener, &device, &function, &theirs))
            .map_err(failed("start a thread for"))?;
        Ok(Server { path: path.to_owned(), thread: Some(thread), stop })
    }

    /// Where it is served.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.asked.store(true, Ordering::Release);
        let _ = self.stop.event.write(1);
        if let Some(connection) = self.stop.connection().as_ref() {
            connection.close();
        }
        // A socket without a server is removed.
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the socket.
fn listen(path: &Path) -> Result<UnixListener, ServerError> {
    let failed = |what: &'static str| move |error: io::Error| ServerError::Io(what, path.to_owned(), error);
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let there = std::fs::symlink_metadata(path).map_err(failed("look at"))?;
            if !there.file_type().is_socket() {
                return Err(ServerError::NoSocket(path.to_owned()));
            }
            match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Ok(_) => return Err(ServerError::InUse(path.to_owned())),
                Err(error) => return Err(failed("connect to")(error)),
            }
            std::fs::remove_file(path).map_err(failed("replace"))?;
            UnixListener::bind(path).map_err(failed("bind"))?
        }
        other => {
            other.map_err(|error| failed("bind")(tidewater_ipc::socket_error(path, error, "; use a shorter path")))?
        }
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed("protect"))?;
    listener.set_nonblocking(true).map_err(failed("set up"))?;
    Ok(listener)
}

/// Takes the next client, if there is one that may come.
fn accept(listener: &UnixListener) -> Option<UnixStream> {
    let (stream, _) = listener.accept().ok()?;
    crate::runtime::is_allowed(&stream).then_some(stream)
}

/// The server's thread.
fn serve(listener: &UnixListener, device: &Device, function: &dyn Function, stop: &Stop) {
    while !stop.asked.load(Ordering::Acquire) {
        match readable(&watched(listener, stop), None) {
            Ok(ready) if ready & 2 != 0 => {}
            Ok(_) => continue,
            // Out of memory, for a moment: nothing else can fail here.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
        let Some(stream) = accept(listener) else {
            // Out of descriptors, or a client that may not come: no reason to run hot.
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        let Ok(connection) = Connection::new(stream, Arc::clone(&device.memory)) else { continue };
        let connection = Arc::new(connection);
        *stop.connection() = Some(Arc::clone(&connection));
        let mut session = Session::new(device, function, Arc::clone(&connection));
        // However it ends, the connection is of no use afterwards.
        let _ = stay(listener, &mut session, &connection, stop);
        connection.close();
        *stop.connection() = None;
        device.interrupts.clear();
        device.memory.clear();
        if session.is_known() {
            function.disconnected();
        }
    }
}

/// What the thread waits for: that it is to stop, clients. Doorbells are heard by the thread that looks at rings.
fn watched<'a>(listener: &'a UnixListener, stop: &'a Stop) -> [BorrowedFd<'a>; 2] {
    [stop.event.as_fd(), listener.as_fd()]
}

/// Handles a client's commands until it goes.
fn stay(listener: &UnixListener, session: &mut Session<'_>, connection: &Connection, stop: &Stop) -> Result<(), Errno> {
    let watched = watched(listener, stop);
    while !stop.asked.load(Ordering::Acquire) {
        match connection.next(&watched, MESSAGE_TIME)? {
            Some(message) => session.handle(message)?,
            // Another client: one at a time.
            None => drop(listener.accept()),
        }
    }
    Ok(())
}
