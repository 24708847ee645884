//! Which file a descriptor stands for, so that it is known again after a reboot: system calls that no library wraps.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use tidewater_wire::log::{FILE_HANDLE_BYTES_MAX, FileBind};

/// FS_IOC_GETFSUUID (linux/fs.h, since Linux 6.9): `_IOR(0x15, 0, struct fsuuid2)`, 17 bytes.
const GET_UUID: libc::c_ulong = 0x8011_1500;
/// XFS_SUPER_MAGIC. Its `f_fsid` is the device's number, which changes.
const XFS: u64 = 0x5846_5342;

/// `struct file_handle` (name_to_handle_at(2)) and its bytes.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u64; FILE_HANDLE_BYTES_MAX / 8],
}

/// The file of a descriptor: file system, inode, birth time, handle; no path. What the system does not tell stays zero.
///
/// # Errors
/// That of `fstat`.
pub fn identify(file: BorrowedFd<'_>) -> Result<FileBind, Errno> {
    let mut bind = FileBind::default();
    let fd = file.as_raw_fd();
    // SAFETY: all of it is plain integers, for which zero is a value.
    let mut about: libc::statx = unsafe { std::mem::zeroed() };
    let mask = libc::STATX_INO | libc::STATX_BTIME;
    // SAFETY: the path is an empty string with its end, and `about` is there for the call to fill.
    Errno::result(unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &raw mut about) })?;
    bind.inode = about.stx_ino;
    if about.stx_mask & libc::STATX_BTIME != 0 {
        bind.birth_ns =
            (about.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(about.stx_btime.tv_nsec.into());
    }
    let mut uuid = [0u8; 17];
    // SAFETY: the request fills 17 bytes at most (linux/fs.h), which are there.
    if unsafe { libc::ioctl(fd, GET_UUID, uuid.as_mut_ptr()) } == 0 && uuid[0] == 16 && uuid[1..] != [0; 16] {
        bind.file_system.copy_from_slice(&uuid[1..]);
    } else {
        // SAFETY: plain integers, as above.
        let mut system: libc::statfs = unsafe { std::mem::zeroed() };
        // SAFETY: `system` is there for the call to fill.
        Errno::result(unsafe { libc::fstatfs(fd, &raw mut system) })?;
        if system.f_type as u64 != XFS {
            // SAFETY: `f_fsid` is two integers of 32 bits (statfs(2)), whose names the library keeps to itself.
            let id: [u8; 8] = unsafe { std::mem::transmute(system.f_fsid) };
            bind.file_system[..8].copy_from_slice(&id);
            bind.file_system[8..].copy_from_slice(&(system.f_type as u64).to_le_bytes());
        }
    }
    let mut handle = Handle { bytes: FILE_HANDLE_BYTES_MAX as u32, kind: 0, handle: [0; FILE_HANDLE_BYTES_MAX / 8] };
    let mut mount = 0;
    // SAFETY: `Handle` begins as `struct file_handle` does (open_by_handle_at(2)), and has as many bytes behind as it
    // says.
    let result = unsafe {
        libc::name_to_handle_at(fd, c"".as_ptr(), (&raw mut handle).cast(), &raw mut mount, libc::AT_EMPTY_PATH)
    };
    if result == 0 && handle.bytes as usize <= FILE_HANDLE_BYTES_MAX {
        (bind.handle_type, bind.handle_bytes) = (handle.kind as u32, handle.bytes as u16);
        bind.handle = handle.handle.map(u64::from_le);
    }
    Ok(bind)
}

/// Whether two are the same file, whatever their paths.
pub fn is_same(one: &FileBind, other: &FileBind) -> bool {
    one.file_system == other.file_system && is_same_there(one, other)
}

/// As [`is_same`], of files that are known to be of one file system: a descriptor that is a path alone (O_PATH) does
/// not tell which that is.
pub fn is_same_there(one: &FileBind, other: &FileBind) -> bool {
    // Path and length are no part of what it is.
    let key = |bind: &FileBind| FileBind {
        inode: bind.inode,
        birth_ns: bind.birth_ns,
        handle_type: bind.handle_type,
        handle_bytes: bind.handle_bytes,
        handle: bind.handle,
        ..FileBind::default()
    };
    key(one) == key(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_is_known_by_what_it_is_and_not_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, renamed] = ["a", "b", "c"].map(|name| folder.path().join(name));
        let file = std::fs::File::create(&one).unwrap();
        let first = identify(file.as_fd()).unwrap();
        assert!(first.inode != 0 && first.file_system != [0; 16]);
        std::fs::rename(&one, &renamed).unwrap();
        assert!(is_same(&first, &identify(std::fs::File::open(&renamed).unwrap().as_fd()).unwrap()));
        let second = std::fs::File::create(&other).unwrap();
        assert!(!is_same(&first, &identify(second.as_fd()).unwrap()));
        // A new file that gets the inode of one that is gone is another.
        drop(file);
        std::fs::remove_file(&renamed).unwrap();
        for _ in 0..20 {
            let next = std::fs::File::create(&one).unwrap();
            assert!(!is_same(&first, &identify(next.as_fd()).unwrap()));
            std::fs::remove_file(&one).unwrap();
        }
    }
}
