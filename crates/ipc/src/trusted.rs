//! Files in directories that other users may write: no symbolic link is followed, no pipe is waited for, and only
//! regular files of this user or of root are used.

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Opens `name` in a directory without following a link or waiting for a pipe's other end. `mode` is that of a file
/// that `flags` create.
///
/// # Errors
/// The system's. A link and a pipe have words that follow the file's name.
pub fn open_unfollowed(folder: impl AsFd, name: &Path, flags: OFlag, mode: Mode) -> io::Result<File> {
    let always = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    match openat(folder, name, flags | always, mode) {
        Ok(file) => Ok(file.into()),
        Err(Errno::ELOOP) => Err(io::Error::other("is a symbolic link, which is not followed")),
        // A pipe without a reader, or a socket.
        Err(Errno::ENXIO) => Err(io::Error::other("is not a regular file")),
        // Of a link, too.
        Err(Errno::ENOTDIR) if flags.contains(OFlag::O_DIRECTORY) => {
            Err(io::Error::other("is not a directory, and symbolic links are not followed"))
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Opens a regular file, or with `O_DIRECTORY` a directory, whose owner is this user or root.
///
/// # Errors
/// As [`open_unfollowed`], and for what is of another kind or owner.
pub fn open_trusted(folder: impl AsFd, name: &Path, flags: OFlag, mode: Mode) -> io::Result<File> {
    let file = open_unfollowed(folder, name, flags, mode)?;
    let about = file.metadata()?;
    if !about.is_file() && !flags.contains(OFlag::O_DIRECTORY) {
        return Err(io::Error::other("is not a regular file"));
    }
    trusted_owner(&about)?;
    Ok(file)
}

/// Whether the owner of a file is this user or root.
///
/// # Errors
/// In words that follow the file's name.
pub fn trusted_owner(about: &Metadata) -> io::Result<()> {
    match about.uid() {
        0 => Ok(()),
        owner if owner == nix::unistd::geteuid().as_raw() => Ok(()),
        owner => Err(io::Error::other(format!("belongs to user {owner}, and only files of yours or root's are used"))),
    }
}

/// Refuses a directory in which other users can replace files, or that they can replace by another: each directory on
/// its way has to be this user's or root's, and not open to all for writing unless it is sticky, as `/tmp` is; the
/// directory itself not to a group either.
///
/// # Errors
/// The directory at fault, and what is wrong in words that follow its name.
pub fn trusted_folder(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    /// Bits of a mode: users of the group, or all, may write.
    const GROUP_WRITES: u32 = 0o020;
    const ALL_WRITE: u32 = 0o002;
    let at = |folder: &Path| {
        let folder = folder.to_owned();
        move |error| (folder, error)
    };
    let real = path.canonicalize().map_err(at(path))?;
    for folder in real.ancestors() {
        let about = folder.metadata().map_err(at(folder))?;
        trusted_owner(&about).map_err(at(folder))?;
        let writers = if folder == real { GROUP_WRITES | ALL_WRITE } else { ALL_WRITE };
        let mode = about.mode() & 0o7777;
        if mode & writers != 0 && mode & Mode::S_ISVTX.bits() == 0 {
            return Err(at(folder)(io::Error::other(format!(
                "mode {mode:04o} lets other users write it: use `chmod go-w`, or another folder"
            ))));
        }
    }
    Ok(())
}
