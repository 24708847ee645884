//! Why an operation on a drive failed.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::{LayoutError, status};

use crate::{Error, LogError, WindowError};

/// Why an operation on a drive failed.
#[derive(Debug, thiserror::Error)]
pub enum HardwareError {
    /// The target is of no kind that is known.
    #[error("`{0}` is not a valid target: give pci:ADDRESS or vfio-user:SOCKET")]
    Target(String),
    /// A file of the system could not be used.
    #[error("{}: {error}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A prerequisite is missing on this system: in words, with the remedy.
    #[error("{0}")]
    Lacking(String),
    /// The transport of commands failed: in words.
    #[error("{0}")]
    Carrier(String),
    /// A served device, or the connection to it, failed.
    #[error(transparent)]
    Served(#[from] LogError),
    /// A command ended with a status.
    #[error("{what} ended with {}", words(*status))]
    Status {
        /// The command.
        what: &'static str,
        /// Its status.
        status: Status,
    },
    /// The device said what makes no sense.
    #[error("invalid reply from the device: {0}")]
    Malformed(String),
    /// The drive has no byte window, or this transport does not reach it.
    #[error("the drive has no byte window, or this transport cannot reach it")]
    NoWindow,
    /// An operation on the fast side failed.
    #[error(transparent)]
    Fast(#[from] Error),
    /// The byte window refused.
    #[error("{}", of_window(.0))]
    Window(#[from] WindowError),
}

impl HardwareError {
    /// The error as a number of the system: EEXIST entry, place or blocks pinned already, ENOENT no such entry, EBUSY
    /// in use, ENOSPC buffer or table full, ERANGE a range that is none, EROFS write protected, ENOTSUP what the drive
    /// or this machine has not, EIO else.
    pub fn errno(&self) -> i32 {
        let errno = match self {
            HardwareError::Target(_) => Errno::EINVAL,
            HardwareError::File { error, .. } => error.raw_os_error().map_or(Errno::EIO, Errno::from_raw),
            HardwareError::Lacking(_) | HardwareError::NoWindow => Errno::EOPNOTSUPP,
            HardwareError::Served(error) => return error.errno(),
            HardwareError::Window(WindowError::OutOfRange) => Errno::ERANGE,
            HardwareError::Window(WindowError::Refused(refused)) | HardwareError::Status { status: refused, .. } => {
                errno_of(*refused)
            }
            HardwareError::Carrier(_)
            | HardwareError::Malformed(_)
            | HardwareError::Fast(_)
            | HardwareError::Window(WindowError::Malformed) => Errno::EIO,
        };
        errno as i32
    }
}

fn errno_of(refused: Status) -> Errno {
    let numbers: &[(&[Status], Errno)] = &[
        (&[status::ENTRY_EXISTS, status::BUFFER_OVERLAP, status::LBA_OVERLAP], Errno::EEXIST),
        (&[status::ENTRY_UNKNOWN], Errno::ENOENT),
        (&[status::ENTRY_BUSY, status::BUSY, status::LBA_PINNED, status::FLUSH_BEGUN], Errno::EBUSY),
        (&[status::BUFFER_FULL, status::TABLE_FULL], Errno::ENOSPC),
        (&[status::WINDOW_RANGE, Status::LBA_OUT_OF_RANGE], Errno::ERANGE),
        (&[status::WINDOW_ABSENT], Errno::EOPNOTSUPP),
        (&[Status::NAMESPACE_WRITE_PROTECTED], Errno::EROFS),
        (&[Status::INVALID_FIELD, Status::INVALID_NAMESPACE], Errno::EINVAL),
    ];
    let found = numbers.iter().find(|(statuses, _)| statuses.iter().any(|known| known.same_code(refused)));
    found.map_or(Errno::EIO, |(_, errno)| *errno)
}

fn of_window(error: &WindowError) -> String {
    match error {
        WindowError::Refused(status) => format!("the drive refused it: {}", words(*status)),
        error => error.to_string(),
    }
}

/// A status by its name: of the specification, or of this vendor.
fn words(status: Status) -> String {
    let own = status::NAMED.iter().find(|(known, ..)| known.same_code(status)).map(|(_, name, _)| *name);
    match status.name().or(own) {
        Some(name) => format!("{name} (type {}, code {:02X}h)", status.sct(), status.sc()),
        None => format!("an unnamed status (type {}, code {:02X}h)", status.sct(), status.sc()),
    }
}

impl From<LayoutError> for HardwareError {
    fn from(error: LayoutError) -> HardwareError {
        HardwareError::Malformed(error.to_string())
    }
}

impl From<tidewater_driver::Error> for HardwareError {
    fn from(error: tidewater_driver::Error) -> HardwareError {
        use tidewater_driver::Error;
        match error {
            Error::Target(target) => HardwareError::Target(target),
            Error::File { path, error } => HardwareError::File { path, error },
            Error::Lacking(what) => HardwareError::Lacking(what),
            Error::Function(error) => HardwareError::Served(error.into()),
            Error::Malformed(what) => HardwareError::Malformed(what),
            Error::Kernel(_) | Error::Tcp(_) => HardwareError::Carrier(error.to_string()),
        }
    }
}
