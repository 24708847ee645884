//! Why a controller could not be reached, or a command not be run.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use crate::{nvme_tcp, vfio_user};

/// Why a transport failed. A command that ended with a status did not fail.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The target has no valid form.
    #[error("`{0}` is not a valid target")]
    Target(String),
    /// A file of the system could not be used.
    #[error("{}: {error}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A prerequisite is missing on this system: in words, with the remedy.
    #[error("{0}")]
    Lacking(String),
    /// The kernel's driver can't run the command.
    #[error("the kernel driver failed the command: {0}")]
    Kernel(Errno),
    /// The controller behind a vfio-user socket, or the connection to it, failed.
    #[error(transparent)]
    Function(#[from] vfio_user::NvmeError),
    /// The controller behind NVMe/TCP, or the connection to it, failed.
    #[error("NVMe/TCP: {0}")]
    Tcp(#[from] nvme_tcp::Error),
    /// The device said what makes no sense.
    #[error("invalid reply from the device: {0}")]
    Malformed(String),
}

impl From<vfio_user::SocketError> for Error {
    fn from(error: vfio_user::SocketError) -> Error {
        Error::Function(error.into())
    }
}
