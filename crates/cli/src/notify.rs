//! Readiness for systemd (sd_notify(3)): what is ordered after a unit of `Type=notify` starts once hosts can attach.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports to the service manager, if one has started this process, that hosts can attach.
pub fn ready() {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET") {
        // A manager that misses the message reports its own time-out.
        let _ = send(&socket);
    }
}

fn send(socket: &OsStr) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1\n", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_listens_at_a_path_or_at_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("tidewater-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let managers = [UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&abstract_name).unwrap()];
        for (manager, socket) in managers.iter().zip([path.into_os_string(), format!("@{name}").into()]) {
            send(&socket).unwrap();
            let mut message = [0; 32];
            let len = manager.recv(&mut message).unwrap();
            assert_eq!(&message[..len], b"READY=1\n");
        }
        assert!(send(OsStr::new("/nonexistent/notify")).is_err());
    }
}
