//! Advice about a socket that this user can't connect to.

use nix::errno::Errno;
use nix::unistd::{AccessFlags, Uid, User, access};
use std::path::Path;
use tidewater_driver::vfio_user::SOCKET_PATH_MAX;

/// Advice about a path that is too long for a socket, or a socket of another user. `None`: neither is the case.
pub fn advice(path: &Path) -> Option<String> {
    if path.as_os_str().len() > SOCKET_PATH_MAX {
        return Some("use a shorter path, such as a relative one".to_owned());
    }
    if access(path, AccessFlags::W_OK) != Err(Errno::EACCES) {
        return None;
    }
    use std::os::unix::fs::MetadataExt as _;
    // A directory that this user may not enter hides the socket: its owner is the socket's.
    let owner = path.ancestors().find_map(|place| std::fs::metadata(place).ok())?.uid();
    let name = User::from_uid(Uid::from_raw(owner)).ok().flatten().map(|user| user.name);
    Some(match (owner, name) {
        (0, _) => "it belongs to root: run this command as root, or serve the device as your user".to_owned(),
        (_, Some(name)) => format!("it belongs to {name}: run this command as that user (sudo -u {name} ...)"),
        (_, None) => format!("it belongs to user {owner}: run this command as that user (sudo -u '#{owner}' ...)"),
    })
}
