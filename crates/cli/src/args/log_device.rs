//! `tidewater log-device`.

use super::peers::PeerArgs;
use clap::{Args, ValueHint};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tidewater_study::Setting;

/// The socket for programs, in the device's folder.
pub const SOCKET: &str = "vfio.sock";
/// The socket for `tidewater status`, in the device's folder.
pub const CONTROL: &str = "control.sock";

/// Where the ring is, in the device's folder: a path, and a second line `persistent` if its memory survives power loss.
pub const RING_AT: &str = "ring-at";
/// `tidewater log-device`.
#[derive(Debug, Default, Args)]
pub struct LogDevice {
    /// Folder of the device, created if missing: image, sockets, ring and the ring's copy
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Keep the ring in this file, such as one in /dev/shm, where the system never writes its pages to a disk [default:
    /// DIR/ring]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ring: Option<PathBuf>,
    /// The ring's file lies in memory that survives a power loss (a DAX file system): it needs no copy on the disk
    #[arg(long, requires = "ring")]
    pub ring_persistent: bool,
    /// Change a setting of a new device's profile, such as fast.size=256MiB; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other)]
    pub set: Vec<Setting>,
    /// Prometheus metrics at this loopback address, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Host name that metrics requests may use (`Host`), besides IP addresses and localhost; may be given several times
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub metrics_host: Vec<String>,
    /// A live page for browsers at this loopback address, such as 127.0.0.1:8080: what the device does, over time
    #[arg(long, value_name = "ADDRESS")]
    pub page: Option<SocketAddr>,
    /// Host name that requests for the page may use (`Host`), besides IP addresses and localhost; may be given several
    /// times
    #[arg(long, value_name = "NAME", requires = "page")]
    pub page_host: Vec<String>,
    /// Its peers.
    #[command(flatten)]
    pub peers: PeerArgs,
}

/// A target of the command line: a path without a scheme is the folder of a log device. Commas separate those of a
/// group; a folder with a comma in its name is given by its socket.
pub fn target(text: &str) -> Result<String, String> {
    let has_scheme =
        ["vfio-user:", "cluster:", "pci:", "window:", "tcp:"].iter().any(|scheme| text.starts_with(scheme));
    if has_scheme {
        return Ok(text.to_owned());
    }
    if text.split(',').any(str::is_empty) {
        return Err("a folder is missing; several devices are separated by single commas".into());
    }
    let sockets = text.split(',').map(|folder| format!("vfio-user:{}", Path::new(folder).join(SOCKET).display()));
    Ok(sockets.collect::<Vec<_>>().join(","))
}

/// The devices of a target.
fn each_of(target: &str) -> impl Iterator<Item = &str> {
    target.split(",vfio-user:").map(|one| one.strip_prefix("vfio-user:").unwrap_or(one))
}

/// The folders of the log devices that a target names, if all are such.
pub fn folders_of(target: &str) -> Option<Vec<&Path>> {
    target.strip_prefix("vfio-user:")?;
    let folder = |socket| Path::new(socket).parent().filter(|_| Path::new(socket).ends_with(SOCKET));
    each_of(target).map(folder).collect()
}

/// The folder of the log device that a target is in, if it is one.
pub fn folder_of(target: &str) -> Option<&Path> {
    match folders_of(target)?[..] {
        [folder] => Some(folder),
        _ => None,
    }
}

/// Whether the files of a log device are in a folder. An image by itself is not one's: its ring is elsewhere.
pub fn is_one(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).exists();
    !folder.as_os_str().is_empty() && has("image") && (has(RING_AT) || has("ring") || has("ring-copy"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_log_device_and_a_scheme_another_target() {
        assert_eq!(target("log").unwrap(), "vfio-user:log/vfio.sock");
        assert_eq!(target("/a:b/c").unwrap(), "vfio-user:/a:b/c/vfio.sock");
        for other in ["vfio-user:f0.sock", "cluster:etcd=a:1,b:2/c", "pci:0000:01:00.0", "window:0+8:vfio-user:s"] {
            assert_eq!(target(other).unwrap(), other);
        }
        assert_eq!(folder_of("vfio-user:log/vfio.sock"), Some(Path::new("log")));
        assert_eq!(folder_of("vfio-user:f0.sock"), None);
        let group = target("a,b/c").unwrap();
        assert_eq!(group, "vfio-user:a/vfio.sock,vfio-user:b/c/vfio.sock");
        assert_eq!(folders_of(&group), Some(vec![Path::new("a"), Path::new("b/c")]));
        assert_eq!((folder_of(&group), folders_of("vfio-user:a/vfio.sock,vfio-user:f0.sock")), (None, None));
        assert!(target("a,,b").is_err() && target("").is_err());
    }
}
