//! What can be wrong with an image.

use nix::libc::{EIO, ENOSPC};
use std::io;
use tidewater_core::SetupError;

/// Why an image can't be made, opened or used: the place and the fix are in its words.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The system refused something.
    #[error("{name}: can't {what}: {error}")]
    Io {
        /// The image.
        name: String,
        /// What was tried.
        what: &'static str,
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// There is a file already where one was to be made.
    #[error("{name}: the file exists; open it, or give another name for a new drive")]
    Exists {
        /// The image.
        name: String,
    },
    /// It is a symbolic link, a folder, a socket or the like.
    #[error("{name}: is {found}; give the path of a regular file or a block device itself")]
    Kind {
        /// The image.
        name: String,
        /// What it is.
        found: &'static str,
    },
    /// It is no image, or only the beginning of one.
    #[error(
        "{name}: is not a drive image: {why}; give another path (a new drive is created where no file exists, or on a \
         block device that starts with 4,096 zeroes)"
    )]
    NotAnImage {
        /// The image.
        name: String,
        /// What was found instead.
        why: String,
    },
    /// A newer version of the program made it.
    #[error(
        "{name}: has format {found}, but this program supports formats up to {}; use a newer tidewater",
        super::format::VERSION
    )]
    Newer {
        /// The image.
        name: String,
        /// The version of its format.
        found: u32,
    },
    /// Another process has it open.
    #[error("{name}: another process has it open; stop that one first")]
    Locked {
        /// The image.
        name: String,
    },
    /// What it is made of has been damaged.
    #[error("{name}: damaged at byte {at}: {what}; restore the image from a copy")]
    Damaged {
        /// The image.
        name: String,
        /// The byte of the file at which what is damaged begins.
        at: u64,
        /// What.
        what: String,
    },
    /// It is the image of another drive.
    #[error(
        "{name}: was created with {what} = {stored}, not {given}; leave out the profile to use the stored one, or \
         create a new image"
    )]
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
    #[error("{name}: {found} bytes are too few, the drive needs {needed}; use a larger device or a smaller drive")]
    TooSmall {
        /// The image.
        name: String,
        /// Bytes that there are.
        found: u64,
        /// Bytes that it takes.
        needed: u64,
    },
    /// A drive like this can't be stored.
    #[error("{why}")]
    Unsupported {
        /// Why.
        why: String,
    },
    /// The drive's profile or capacity is refused.
    #[error("{0}")]
    Setup(#[from] SetupError),
}

/// The number of the system's that an error stands for.
pub(super) fn number_of(error: &io::Error) -> i32 {
    let other = if error.kind() == io::ErrorKind::StorageFull { ENOSPC } else { EIO };
    error.raw_os_error().unwrap_or(other)
}
