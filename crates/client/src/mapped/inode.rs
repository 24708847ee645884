//! Queries about a file amid a program's writes: its size, its names, or its access mode, and nothing else.
//!
//! `fstat` tells the times as well. A system with fine-grained time stamps (Linux since 6.13) then gives the file's
//! next change a stamp of its own, and all files whatever changes after it; each of them has its inode written anew by
//! its next sync: another trip to the disk, in front of the flush.

use std::os::fd::BorrowedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{fstat, lstat};
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, StatxTimestamp, statx};

/// Bytes of a file.
///
/// # Errors
/// Those of the system.
pub fn size(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    match ask(file, StatxFlags::SIZE) {
        Some(about) => Ok(about.stx_size),
        None => Ok(fstat(file)?.st_size as u64),
    }
}

/// Identity and size of a file, and when its bytes changed last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamped {
    /// Which it is.
    pub which: Which,
    /// Its length in bytes.
    pub size: u64,
    /// When its bytes changed last, and when anything of it did, in nanoseconds of the system's clock; `None`: not
    /// asked.
    pub changed_ns: Option<(u64, u64)>,
}

/// Length of a file, and with `times` its stamps. See above what it costs to ask for these.
///
/// # Errors
/// Those of the system.
pub fn stamped(file: BorrowedFd<'_>, times: bool) -> Result<Stamped, Errno> {
    let ns = |seconds: i64, ns: i64| (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(ns as u64);
    let more = if times { StatxFlags::MTIME | StatxFlags::CTIME } else { StatxFlags::empty() };
    if let Some(about) = ask(file, StatxFlags::SIZE | StatxFlags::INO | more) {
        let stamp = |time: &StatxTimestamp| ns(time.tv_sec, time.tv_nsec.into());
        let changed_ns = times.then(|| (stamp(&about.stx_mtime), stamp(&about.stx_ctime)));
        return Ok(Stamped { which: device_and_inode(&about), size: about.stx_size, changed_ns });
    }
    let about = fstat(file)?;
    let both = (ns(about.st_mtime, about.st_mtime_nsec), ns(about.st_ctime, about.st_ctime_nsec));
    Ok(Stamped { which: (about.st_dev, about.st_ino), size: about.st_size as u64, changed_ns: times.then_some(both) })
}

/// Names that a file has.
///
/// # Errors
/// Those of the system.
pub fn names(file: BorrowedFd<'_>) -> Result<u64, Errno> {
    match ask(file, StatxFlags::NLINK) {
        Some(about) => Ok(about.stx_nlink.into()),
        None => Ok(fstat(file)?.st_nlink),
    }
}

/// Which file it is, as long as it is there or open: its file system's device and its inode.
pub type Which = (u64, u64);

/// Of a name, which may be a symbolic link.
///
/// # Errors
/// Those of the system.
pub fn which(path: &Path) -> Result<Which, Errno> {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::INO) {
        Ok(about) if about.stx_mask & StatxFlags::INO.bits() != 0 => Ok(device_and_inode(&about)),
        _ => lstat(path).map(|about| (about.st_dev, about.st_ino)),
    }
}

/// Of a descriptor.
///
/// # Errors
/// Those of the system.
pub fn which_of(file: BorrowedFd<'_>) -> Result<Which, Errno> {
    match ask(file, StatxFlags::INO) {
        Some(about) => Ok(device_and_inode(&about)),
        None => fstat(file).map(|about| (about.st_dev, about.st_ino)),
    }
}

fn device_and_inode(about: &Statx) -> Which {
    (rustix::fs::makedev(about.stx_dev_major, about.stx_dev_minor), about.stx_ino)
}

/// Whether a file can be written past the page cache, in pieces of so many bytes, from memory that begins at a multiple
/// of so many.
pub(super) fn takes_direct(file: BorrowedFd<'_>, piece: u32, memory: u32) -> bool {
    let fits = |align: u32, of: u32| align != 0 && of.is_multiple_of(align);
    ask(file, StatxFlags::DIOALIGN)
        .is_some_and(|about| fits(about.stx_dio_offset_align, piece) && fits(about.stx_dio_mem_align, memory))
}

/// `None`: not so, by an old system or under a filter of system calls.
fn ask(file: BorrowedFd<'_>, what: StatxFlags) -> Option<Statx> {
    let about = statx(file, c"", AtFlags::EMPTY_PATH, what).ok()?;
    (about.stx_mask & what.bits() == what.bits()).then_some(about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    #[test]
    fn size_and_names_are_those_of_fstat_also_when_there_is_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        fs::write(&one, [7; 4711]).unwrap();
        fs::hard_link(&one, &other).unwrap();
        let file = fs::File::open(&one).unwrap();
        let about = fstat(file.as_fd()).unwrap();
        assert_eq!(which_of(file.as_fd()), Ok((about.st_dev, about.st_ino)));
        assert_eq!((which(&one), which(&other)), (which_of(file.as_fd()), which_of(file.as_fd())));
        assert_ne!(which(folder.path()), which(&one));
        assert_eq!((size(file.as_fd()), names(file.as_fd())), (Ok(4711), Ok(2)));
        fs::remove_file(one).unwrap();
        fs::remove_file(other).unwrap();
        assert_eq!((size(file.as_fd()), names(file.as_fd())), (Ok(4711), Ok(0)));
    }
}
