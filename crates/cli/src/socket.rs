//! Sockets of served devices: where they are, what is asked there, and advice where this user can't connect.

use crate::args::log_device::{CONTROL, SOCKET, folders_of};
use crate::args::served::Served;
use crate::failure::{Failure, printable, without_number};
use nix::errno::Errno;
use nix::unistd::{AccessFlags, Uid, User, access};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidewater_driver::vfio_user::SOCKET_PATH_MAX;
use tidewater_serve::control::{self, Request};
use tidewater_serve::runtime;

/// How long a command waits for a device that is starting.
const START_TIME: Duration = Duration::from_secs(3);

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

/// Waits for a device that was started just before.
pub fn wait_for(target: &str) {
    let begin = Instant::now();
    let there = |folders: &[&Path]| folders.iter().any(|folder| folder.join(SOCKET).exists());
    while let Some(folders) = folders_of(target)
        && !there(&folders)
        && begin.elapsed() < START_TIME
    {
        std::thread::sleep(START_TIME / 100);
    }
}

/// The control socket of a served device.
pub fn control_socket(served: &Served) -> PathBuf {
    match &served.device {
        // The folder of a log device.
        Some(folder) if folder.is_dir() => {
            let target = format!("vfio-user:{}", folder.join(SOCKET).display());
            wait_for(&target);
            folder.join(CONTROL)
        }
        Some(socket) => socket.clone(),
        None => runtime::default_directory().join("control.sock"),
    }
}

/// Asks a served device. Its texts go to a terminal, and the socket may be another user's: they are cleaned.
///
/// # Errors
/// When none answers, or it refuses.
pub fn ask(served: &Served, request: &Request) -> Result<Map<String, Value>, Failure> {
    let path = control_socket(served);
    control::ask(&path, request).map(cleaned).map_err(|why| {
        let help = "give the folder of a log device, or the socket that `tidewater serve` printed, by --device";
        let failure = Failure::run(without_number(&why));
        // What the device itself refuses has nothing to do with its socket.
        if !why.starts_with(&*path.to_string_lossy()) {
            return failure;
        }
        failure.help(advice(&path).as_deref().unwrap_or(help))
    })
}

/// An answer without control characters.
fn cleaned(answer: Map<String, Value>) -> Map<String, Value> {
    fn clean(value: Value) -> Value {
        match value {
            Value::String(text) => printable(&text).into(),
            Value::Array(all) => all.into_iter().map(clean).collect(),
            Value::Object(all) => cleaned(all).into(),
            other => other,
        }
    }
    answer.into_iter().map(|(key, value)| (printable(&key), clean(value))).collect()
}

/// Asks a served device for its status.
///
/// # Errors
/// As [`ask`].
pub fn status_of(served: &Served) -> Result<Map<String, Value>, Failure> {
    ask(served, &Request::Status)
}

/// Which drive is behind a control socket: with the default socket, the one served last.
pub fn whose(served: &Served) -> String {
    let socket = control_socket(served);
    let answer = control::ask(&socket, &Request::Status).unwrap_or_default();
    match answer.get("image").and_then(|image| image.as_str()) {
        Some("memory") => format!("the drive in memory behind {}", socket.display()),
        Some(image) => format!("the drive in {} behind {}", printable(image), socket.display()),
        None => format!("the drive behind {}", socket.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_another_users_device_do_not_steer_a_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let text = "\u{1b}]0;own\u{7}\n";
        let answer = serde_json::json!({ "state": text, text: [{ "why": text }, 7] });
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            std::io::Write::write_all(&mut stream, format!("{answer}\n").as_bytes()).unwrap();
            // Until its request was read, its end would be an error.
            std::io::Read::read_to_end(&mut stream, &mut Vec::new()).unwrap();
        });
        let found = ask(&Served { device: Some(path) }, &Request::Status).unwrap();
        answers.join().unwrap();
        let clean = "\u{fffd}]0;own\u{fffd}\u{fffd}";
        let wanted = serde_json::json!({ "state": clean, clean: [{ "why": clean }, 7] });
        assert_eq!(Value::Object(found), wanted);
    }
}
