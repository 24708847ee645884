//! `tidewater log-device`: a served drive for the logs of databases, with everything that it needs in one folder.

use crate::args::log_device::LogDevice;
use crate::args::served::{NamespaceSize, Serve};
use crate::failure::{Failure, reason};
use crate::served;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// The profile of a new device.
const PROFILE: &str = "log";
/// Ring of one lane there, in MiB.
const RING_MIB: u32 = 64;
/// The socket for programs, in the device's folder.
pub const SOCKET: &str = "vfio.sock";
/// The socket for `tidewater status`, in the device's folder.
pub const CONTROL: &str = "control.sock";

/// `tidewater log-device`.
///
/// # Errors
/// What cannot be served, and what ended it.
pub fn command(of: &LogDevice) -> Result<(), Failure> {
    // Like its sockets, it is for its owner alone.
    DirBuilder::new().recursive(true).mode(0o700).create(&of.folder).map_err(|error| {
        Failure::usage(format_args!("{}: {}", of.folder.display(), reason(&error)))
            .help("the device keeps its files in this folder")
    })?;
    served::serve(&line(of)?)
}

/// What `tidewater serve` would be given.
fn line(of: &LogDevice) -> Result<Serve, Failure> {
    let image = of.folder.join("image");
    // A device that is there has its own profile.
    let is_there = served::is_there(&image)?;
    let mut set = Vec::new();
    if let Some(lanes) = of.lanes {
        set.push(format!("fast.lanes={lanes}"));
        // Each lane has as much of the ring as the one of the profile.
        if !is_there {
            set.push(format!("fast.size={}MiB", RING_MIB * u32::from(lanes)));
        }
    }
    let own = set.iter().map(|pair| pair.parse().expect("a key and a value"));
    let set = own.chain(of.set.iter().cloned()).collect();
    Ok(Serve {
        profile: (!is_there).then(|| PROFILE.into()),
        set,
        size: None,
        namespaces: vec![NamespaceSize { bytes: None, block_shift: None }],
        seed: 1,
        vfio_user: vec![of.folder.join(SOCKET)],
        nvme_tcp: None,
        insecure_bind: false,
        allow_host: Vec::new(),
        allow_destructive: false,
        runtime_dir: None,
        control: Some(of.folder.join(CONTROL)),
        metrics: None,
        metrics_host: Vec::new(),
        trace: None,
        input_log: None,
        ring: Some(of.ring.clone().unwrap_or_else(|| of.folder.join("ring"))),
        ring_persistent: of.ring_persistent,
        ring_copy: (!of.ring_persistent).then(|| of.folder.join("ring-copy")),
        log_device: Some(of.folder.clone()),
        image,
    })
}

/// How to use the device, when it is ready.
pub fn how_to_use(folder: &Path, is_persistent: bool) -> String {
    let folder = folder.display();
    let level = if is_persistent {
        "A sync returns when the record is in the ring, which survives a power loss."
    } else {
        "A sync returns when the record is in the ring's copy on this disk, synced."
    };
    format!(
        "Run a program with its log files on this device:\n  \
         tidewater run --device {folder} --log PATTERN -- PROGRAM\n{level}\n\
         Status: tidewater status --control {folder}\nCtrl-C or SIGTERM shuts the device down.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    #[test]
    fn a_folder_is_all_that_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let device = folder.path().join("log");
        let line_of = |more: &[&str]| {
            let fixed = ["tidewater", "log-device", device.to_str().unwrap()];
            match Cli::try_parse_from(fixed.iter().chain(more)).unwrap().command {
                Command::LogDevice(of) => line(&of).unwrap(),
                other => panic!("{other:?}"),
            }
        };
        let (setup, _) = served::arrange(&line_of(&["--lanes", "3"])).unwrap();
        assert_eq!((setup.profile.fast.lanes, setup.profile.fast.size), (3, 192 << 20));
        assert_eq!(setup.control, device.join("control.sock"));
        let ring = setup.ring.unwrap();
        assert_eq!((ring.path, ring.copy), (device.join("ring"), Some(device.join("ring-copy"))));
        let (setup, _) = served::arrange(&line_of(&["--ring", "/dev/shm/r", "--ring-persistent"])).unwrap();
        let ring = setup.ring.unwrap();
        assert!(ring.persistent && ring.copy.is_none());
    }
}
