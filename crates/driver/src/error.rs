//! Why a controller could not be reached, or a command not be run.

use std::fmt;
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::{nvme_tcp, vfio_user};

/// Why a transport failed. A command that ended with a status did not fail.
#[derive(Debug)]
pub enum Error {
    /// The target has no valid form.
    Target(String),
    /// A file of the system could not be used.
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// What this needs of the system is not there: in words, with what to do.
    Lacking(String),
    /// The kernel's driver can't run the command.
    Kernel(Errno),
    /// The controller behind a vfio-user socket, or the connection to it, failed.
    Function(vfio_user::NvmeError),
    /// The controller behind NVMe/TCP, or the connection to it, failed.
    Tcp(nvme_tcp::Error),
    /// The device said what makes no sense.
    Malformed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Target(target) => write!(f, "`{target}` is not a valid target"),
            Error::File { path, error } => write!(f, "{}: {error}", path.display()),
            Error::Lacking(what) => f.write_str(what),
            Error::Kernel(errno) => write!(f, "the kernel driver failed the command: {errno}"),
            Error::Function(error) => write!(f, "{error}"),
            Error::Tcp(error) => write!(f, "NVMe/TCP: {error}"),
            Error::Malformed(what) => write!(f, "invalid reply from the device: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<vfio_user::NvmeError> for Error {
    fn from(error: vfio_user::NvmeError) -> Error {
        Error::Function(error)
    }
}

impl From<vfio_user::SocketError> for Error {
    fn from(error: vfio_user::SocketError) -> Error {
        Error::Function(error.into())
    }
}

impl From<nvme_tcp::Error> for Error {
    fn from(error: nvme_tcp::Error) -> Error {
        Error::Tcp(error)
    }
}
