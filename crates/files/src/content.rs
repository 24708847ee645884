//! Content of a file as it comes into the set: no record has it, and a copy of the file elsewhere is compared with it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use tidewater_base::checksum::crc32c_append;
use tidewater_client::mapped::inode::size;
use tidewater_wire::log::{FileBind, FileSaid};

use crate::system::read_at;

/// Bytes that are read at once.
const STEP: usize = 64 << 10;
/// A file with more bytes is not summed: the program waits meanwhile.
pub(crate) const SUMMED_MAX: u64 = 256 << 20;

/// Length and sum of the bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Content {
    pub(crate) len: u64,
    pub(crate) is_zero: bool,
    pub(crate) sum: u32,
}

impl Content {
    /// Reads a file.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn of(file: BorrowedFd<'_>) -> Result<Content, Errno> {
        let mut content = Content { len: 0, is_zero: true, sum: 0 };
        let mut bytes = vec![0; STEP];
        loop {
            let got = read_at(file, &mut bytes, content.len)?;
            if got == 0 {
                return Ok(content);
            }
            content.is_zero &= bytes[..got].iter().all(|byte| *byte == 0);
            content.sum = crc32c_append(content.sum, &bytes[..got]);
            content.len += got as u64;
        }
    }
}

/// A file that comes into the set, with its length, and where another machine is to have it, the sum of its bytes.
///
/// # Errors
/// Those of the system.
pub(crate) fn described(file: BorrowedFd<'_>, bind: &FileBind, is_summed: bool) -> Result<FileBind, Errno> {
    let len = size(file)?;
    let mut bind = FileBind { said: FileSaid::Entered, len, is_zero: len == 0, ..*bind };
    // Its own descriptor may be for writing alone, or past the page cache. What can't be read is not summed.
    if is_summed
        && (1..=SUMMED_MAX).contains(&len)
        && let Ok(other) = File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        && let Ok(content) = Content::of(other.as_fd())
    {
        (bind.len, bind.is_zero, bind.sum, bind.is_summed) = (content.len, content.is_zero, content.sum, true);
    }
    Ok(bind)
}
