//! Files that a device lends its client: regions that can be mapped, and the copy of its ring.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use tidewater_driver::vfio_user::Socket;
use tidewater_wire::log::{COPY_SECTOR, CopyBuffer};
use tidewater_wire::vfio_user::{Area, region};

use super::inode::takes_direct;
use crate::LogError;

/// A region that can be mapped.
#[derive(Debug)]
pub(super) struct Mappable {
    /// Where the region begins in the file.
    pub(super) offset: u64,
    pub(super) areas: Vec<Area>,
    pub(super) file: OwnedFd,
}

/// Another description of the file that came with the socket: its locks are not the device's.
///
/// It is opened with this process's rights, which may be more than the device's: what the device itself can't write it
/// can't lend, or a descriptor that is a path alone (O_PATH, which checks no rights) would have any file of
/// this process's written.
pub(super) fn reopen(lent: &OwnedFd) -> Result<File, LogError> {
    let flags = fcntl(lent, FcntlArg::F_GETFL).map_err(LogError::system("look at what the device lends"))?;
    let is_lendable = flags & (libc::O_ACCMODE | libc::O_PATH) == libc::O_RDWR;
    let about = nix::sys::stat::fstat(lent).map_err(LogError::system("look at what the device lends"))?;
    if !is_lendable || about.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(LogError::Ring("the device lends what it can't write itself, or no file".into()));
    }
    let path = format!("/proc/self/fd/{}", lent.as_raw_fd());
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| LogError::Ring(format!("can't be opened again: {error}")))
}

/// The part of a region that can be mapped; `None`: nothing of it.
pub(super) fn mappable(socket: &mut Socket, region: u32) -> Result<Option<Mappable>, LogError> {
    let found = socket.region_info(region)?;
    Ok(found.file.map(|file| Mappable { offset: found.info.offset, areas: found.areas, file }))
}

/// The ring's copy on a disk, which a device lends whose ring's header says that there is one.
///
/// The description is this handle's own: an error of the disk is reported to each description once, and not to another
/// lane instead.
pub(super) fn copy(socket: &mut Socket) -> Result<Option<OwnedFd>, LogError> {
    let lent = mappable(socket, region::RING_COPY)?;
    lent.map(|lent| reopen(&lent.file).map(|file| past_the_cache(file.into()))).transpose()
}

/// Has the copy written past the page cache where its file system takes single sectors so: a sync is left with the
/// flush then, and seldom has an inode to write in front of it.
fn past_the_cache(file: OwnedFd) -> OwnedFd {
    if takes_direct(file.as_fd(), COPY_SECTOR as u32, CopyBuffer::ALIGN as u32)
        && let Ok(flags) = fcntl(&file, FcntlArg::F_GETFL)
    {
        // What won't be written so after all is written as any file is.
        let _ = fcntl(&file, FcntlArg::F_SETFL(OFlag::from_bits_retain(flags) | OFlag::O_DIRECT));
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::FileExt;

    use tidewater_wire::log::CopyPlace;

    #[test]
    fn what_a_device_cannot_write_itself_it_cannot_have_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "precious").unwrap();
        let open = |flags: OFlag| nix::fcntl::open(&path, flags, nix::sys::stat::Mode::empty()).unwrap();
        for flags in [OFlag::O_PATH, OFlag::O_RDONLY, OFlag::O_WRONLY] {
            assert!(matches!(reopen(&open(flags)), Err(LogError::Ring(_))), "{flags:?}");
        }
        let place = nix::fcntl::open(folder.path(), OFlag::O_RDONLY, nix::sys::stat::Mode::empty()).unwrap();
        assert!(matches!(reopen(&place), Err(LogError::Ring(_))));
        reopen(&open(OFlag::O_RDWR)).unwrap();
    }

    #[test]
    fn a_copy_is_written_past_the_cache_where_single_sectors_are_taken_and_read_by_any_descriptor() {
        const RING: u64 = 4096;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        fs::write(&path, vec![0; CopyPlace::file_bytes(1, RING) as usize]).unwrap();
        let open = || fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let (plain, file) = (open(), fs::File::from(past_the_cache(open().into())));
        let is_direct = fcntl(&file, FcntlArg::F_GETFL).unwrap() & OFlag::O_DIRECT.bits() != 0;
        assert_eq!(is_direct, takes_direct(file.as_fd(), 512, 4096));

        let place = CopyPlace::new(0, RING);
        let mut saved = 0;
        for to in [100, 479, 481, 3_000] {
            let read = |at: u64, to: &mut [u8]| {
                to.iter_mut().zip(at..).for_each(|(to, at)| *to = at as u8);
                0
            };
            let write = |at: u64, bytes: &[u8]| file.write_all_at(bytes, at);
            place.write(1, (saved, to), &mut CopyBuffer::new(3), read, write).unwrap();
            let found = place.read(1, 0, RING, |at, sector| plain.read_exact_at(sector, at)).unwrap();
            assert_eq!(found, (0..to).map(|at| at as u8).collect::<Vec<_>>());
            saved = to;
        }
    }
}
