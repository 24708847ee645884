//! Paths of sockets.

use std::io;
use std::path::Path;

/// Bytes of a socket's path at most: 108 with the terminating zero (unix(7)).
pub const SOCKET_PATH_MAX: usize = 107;

/// The error of a call for the socket at `path`. If the path is too long, it names the limit and ends with `advice`.
pub fn socket_error(path: &Path, error: io::Error, advice: &str) -> io::Error {
    let bytes = path.as_os_str().len();
    if bytes <= SOCKET_PATH_MAX {
        return error;
    }
    let text = format!("a socket's path has at most {SOCKET_PATH_MAX} bytes, this one has {bytes}{advice}");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
