//! What can be wrong with an image.

use nix::libc::{EIO, ENOSPC};
use std::fmt;
use std::io;
use tidewater_core::SetupError;

/// Why an image can't be made, opened or used: the place and the fix are in its words.
#[derive(Debug)]
pub enum ImageError {
    /// The system refused something.
    Io {
        /// The image.
        name: String,
        /// What was tried.
        what: &'static str,
        /// What it said.
        error: io::Error,
    },
    /// There is a file already where one was to be made.
    Exists {
        /// The image.
        name: String,
    },
    /// It is a symbolic link, a folder, a socket or the like.
    Kind {
        /// The image.
        name: String,
        /// What it is.
        found: &'static str,
    },
    /// It is no image, or only the beginning of one.
    NotAnImage {
        /// The image.
        name: String,
        /// What was found instead.
        why: String,
    },
    /// A newer version of the program made it.
    Newer {
        /// The image.
        name: String,
        /// The version of its format.
        found: u32,
    },
    /// Another process has it open.
    Locked {
        /// The image.
        name: String,
    },
    /// What it is made of has been damaged.
    Damaged {
        /// The image.
        name: String,
        /// The byte of the file at which what is damaged begins.
        at: u64,
        /// What.
        what: String,
    },
    /// It is the image of another drive.
    WrongProfile {
        /// The image.
        name: String,
        /// What differs.
        what: &'static str,
        /// Its value in the image.
        stored: String,
        /// The value asked for.
        given: String,
    },
    /// There is less room than the drive needs.
    TooSmall {
        /// The image.
        name: String,
        /// Bytes that there are.
        found: u64,
        /// Bytes that it takes.
        needed: u64,
    },
    /// A drive like this can't be stored.
    Unsupported {
        /// Why.
        why: String,
    },
    /// The drive's profile or capacity is refused.
    Setup(SetupError),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Io { name, what, error } => write!(f, "{name}: can't {what}: {error}"),
            ImageError::Exists { name } => {
                write!(f, "{name}: the file exists; open it, or give another name for a new drive")
            }
            ImageError::Kind { name, found } => {
                write!(f, "{name}: is {found}; give the path of a regular file or a block device itself")
            }
            ImageError::NotAnImage { name, why } => {
                write!(
                    f,
                    "{name}: is not a drive image: {why}; give another path (a new drive is created where no file \
                     exists, or on a block device that starts with 4,096 zeroes)"
                )
            }
            ImageError::Newer { name, found } => write!(
                f,
                "{name}: has format {found}, but this program supports formats up to {}; use a newer tidewater",
                super::format::VERSION
            ),
            ImageError::Locked { name } => write!(f, "{name}: another process has it open; stop that one first"),
            ImageError::Damaged { name, at, what } => {
                write!(f, "{name}: damaged at byte {at}: {what}; restore the image from a copy")
            }
            ImageError::WrongProfile { name, what, stored, given } => write!(
                f,
                "{name}: was created with {what} = {stored}, not {given}; leave out the profile to use the stored one, \
                 or create a new image"
            ),
            ImageError::TooSmall { name, found, needed } => {
                write!(
                    f,
                    "{name}: {found} bytes are too few, the drive needs {needed}; use a larger device or a smaller \
                     drive"
                )
            }
            ImageError::Unsupported { why } => f.write_str(why),
            ImageError::Setup(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ImageError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ImageError::Io { error, .. } => Some(error),
            ImageError::Setup(error) => Some(error),
            _ => None,
        }
    }
}

impl From<SetupError> for ImageError {
    fn from(error: SetupError) -> ImageError {
        ImageError::Setup(error)
    }
}

/// The number of the system's that an error stands for.
pub(super) fn number_of(error: &io::Error) -> i32 {
    let other = if error.kind() == io::ErrorKind::StorageFull { ENOSPC } else { EIO };
    error.raw_os_error().unwrap_or(other)
}
