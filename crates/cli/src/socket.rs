//! Sockets of devices that belong to another user.

use nix::errno::Errno;
use nix::unistd::{AccessFlags, Uid, User, access};
use std::path::Path;

/// Whose a socket is and what to do about it. `None`: this user may connect to it, or it is not there.
pub fn denied(path: &Path) -> Option<String> {
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
