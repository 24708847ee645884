//! Where sockets live, and who may come: a directory that only its owner enters, sockets that only its owner opens, and
//! peers whose user is checked.

use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::sys::stat::Mode;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use tidewater_ipc::{open_unfollowed, socket_error};

/// What [`listen`] says of a socket that another process listens on.
pub const IN_USE: &str = "already in use by another process";

/// Something of the environment that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

fn refused(path: &Path, why: impl std::fmt::Display) -> Refused {
    Refused(format!("{}: {why}", path.display()))
}

/// Makes a directory that only this user enters (0700), or checks that an existing one is like that.
///
/// # Errors
/// When it is a symbolic link, belongs to another user, or is open to others.
pub fn directory(path: &Path) -> Result<PathBuf, Refused> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(refused(path, error)),
    }
    let about = fs::symlink_metadata(path).map_err(|error| refused(path, error))?;
    if !about.is_dir() {
        return Err(refused(
            path,
            "is not a directory (symbolic links are not followed); name another with --runtime-dir",
        ));
    }
    if about.uid() != nix::unistd::geteuid().as_raw() {
        return Err(refused(path, "belongs to another user; name another with --runtime-dir"));
    }
    if about.mode() & 0o077 != 0 {
        return Err(refused(path, "is open to other users; use `chmod 700` on it, or name another with --runtime-dir"));
    }
    Ok(path.to_owned())
}

/// The directory that is used when none is named: in `$XDG_RUNTIME_DIR`, else under `/run` for root, else under the
/// system's folder for temporary files.
pub fn default_directory() -> PathBuf {
    let uid = nix::unistd::geteuid();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(base) if Path::new(&base).is_absolute() => Path::new(&base).join("tidewater"),
        _ if uid.is_root() => PathBuf::from("/run/tidewater"),
        _ => std::env::temp_dir().join(format!("tidewater-{uid}")),
    }
}

/// Listens on a socket that only this user opens (0600). One that is left over from a process that is gone is replaced.
///
/// # Errors
/// When another process listens there, or the path exists and is not a socket.
pub fn listen(path: &Path) -> Result<UnixListener, Refused> {
    if let Ok(about) = fs::symlink_metadata(path) {
        if !about.file_type().is_socket() {
            return Err(refused(path, "exists and is not a socket; name another path"));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(refused(path, format_args!("{IN_USE}; name another path")));
        }
        fs::remove_file(path).map_err(|error| refused(path, error))?;
    }
    // A peer that connects before the mode is set is refused by `is_allowed` all the same.
    let failed = |error| refused(path, socket_error(path, error, "; use a shorter path"));
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(|error| refused(path, error))?;
    Ok(listener)
}

/// Opens a file of records for writing from its start, as images and rings are opened: no symbolic link is followed,
/// only its owner may read it (0600), and one that is there already is taken only where it is ours alone. A character
/// device of root's, such as `/dev/null`, is taken as it is.
///
/// # Errors
/// In words that say what to do; the path is not in them.
pub(crate) fn private_file(path: &Path) -> io::Result<fs::File> {
    let no = |why: &str| io::Error::other(why.to_owned());
    let (flags, mode) = (OFlag::O_WRONLY | OFlag::O_CREAT, Mode::S_IRUSR | Mode::S_IWUSR);
    let file = open_unfollowed(AT_FDCWD, path, flags, mode)?;
    let about = file.metadata()?;
    if about.file_type().is_char_device() && about.uid() == 0 {
        return Ok(file);
    }
    if !about.is_file() {
        return Err(no("is not a file; name another place"));
    }
    if about.uid() != nix::unistd::geteuid().as_raw() {
        return Err(no("belongs to another user; name another place"));
    }
    if about.mode() & 0o077 != 0 || about.nlink() != 1 {
        return Err(no(
            "other users may open it, or it has a second name; remove it if it is yours, or name another place",
        ));
    }
    file.set_len(0)?;
    Ok(file)
}

/// Whether the peer is this process's user, or root.
pub fn is_allowed(stream: &UnixStream) -> bool {
    getsockopt(stream, PeerCredentials)
        .is_ok_and(|peer| peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_ipc::SOCKET_PATH_MAX;

    #[test]
    fn a_directory_that_others_enter_or_that_is_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("mine");
        directory(&mine).unwrap();
        assert_eq!(fs::metadata(&mine).unwrap().mode() & 0o777, 0o700);
        directory(&mine).unwrap();
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(directory(&mine).unwrap_err().0.contains("is open to other users"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(directory(&link).unwrap_err().0.contains("symbolic links"));
    }

    /// Trace and input log were readable by all, followed links, and filled files of other users.
    #[test]
    fn a_file_of_records_is_its_owners_alone_and_follows_no_link() {
        use std::io::Write;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        private_file(&path).unwrap().write_all(b"older and longer").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        private_file(&path).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");

        let refused = |path: &Path| private_file(path).unwrap_err().to_string();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(refused(&link).contains("symbolic link"));
        let dangling = folder.path().join("dangling");
        std::os::unix::fs::symlink(folder.path().join("made"), &dangling).unwrap();
        assert!(refused(&dangling).contains("symbolic link") && !folder.path().join("made").exists());
        let second = folder.path().join("second");
        fs::hard_link(&path, &second).unwrap();
        assert!(refused(&path).contains("a second name"));
        fs::remove_file(&second).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refused(&path).contains("other users may open it"));
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(private_file(Path::new("/dev/null")).is_ok(), "a device of root's is taken as it is");
        nix::unistd::mkfifo(&folder.path().join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(private_file(&folder.path().join("pipe")).is_err());
        if nix::unistd::geteuid().is_root() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert!(refused(&path).contains("belongs to another user"));
            assert_eq!(fs::read(&path).unwrap(), b"new");
        }
    }

    #[test]
    fn a_socket_that_is_left_over_is_replaced_and_one_in_use_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(listen(&path).unwrap_err().0.contains(IN_USE));
        drop(first);
        let second = listen(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        assert!(is_allowed(&client) && is_allowed(&second.accept().unwrap().0));
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(listen(&file).unwrap_err().0.contains("is not a socket"));
    }

    #[test]
    fn a_path_is_at_most_as_long_as_a_socket_takes() {
        let folder = tempfile::tempdir().unwrap();
        let of_bytes = |bytes: usize| folder.path().join("s".repeat(bytes - folder.path().as_os_str().len() - 1));
        listen(&of_bytes(SOCKET_PATH_MAX)).unwrap();
        let why = listen(&of_bytes(SOCKET_PATH_MAX + 1)).unwrap_err().0;
        assert!(why.contains("at most 107 bytes, this one has 108; use a shorter path"), "{why}");
    }
}
