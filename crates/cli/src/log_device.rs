//! `tidewater log-device`: a served drive for the logs of databases, with everything that it needs in one folder.

use crate::args::log_device::{CONTROL, LogDevice, RING_AT, SOCKET, is_one};
use crate::args::served::{NamespaceSize, Serve};
use crate::failure::{Failure, printable, reason};
use crate::{output, served};
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

/// The profile of a new device.
const PROFILE: &str = "log";
/// `tidewater log-device`.
///
/// # Errors
/// A device that cannot be served, and the error that ended it.
pub fn command(of: &LogDevice) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::usage(format_args!("{}: {}", of.folder.display(), reason(&error)))
            .help("the device keeps its files in this folder")
    };
    if of.folder.exists() && !of.folder.is_dir() {
        return Err(Failure::usage(format_args!("{}: exists and is not a folder", of.folder.display()))
            .help("name a folder for the device's files"));
    }
    is_free(&of.folder)?;
    // Like its sockets, it is for its owner alone.
    DirBuilder::new().recursive(true).mode(0o700).create(&of.folder).map_err(failed)?;
    let serve = line(of)?;
    if let Some(ring) = serve.ring.as_ref().filter(|ring| **ring != own_ring(&of.folder)) {
        let persistent = if serve.ring_persistent { "persistent\n" } else { "" };
        std::fs::write(of.folder.join(RING_AT), format!("{}\n{persistent}", ring.display())).map_err(failed)?;
    } else {
        // A start that failed may have left one.
        let _ = std::fs::remove_file(of.folder.join(RING_AT));
    }
    for (place, what) in
        [(Some(&of.folder), "this device"), (serve.ring.as_ref().filter(|_| serve.ring_persistent), "its ring")]
    {
        if let Some(place) = place.filter(|place| is_in_memory(place)) {
            let place = place.display();
            output::tell(&format!("note: {place} is in a file system in memory: {what} does not survive power loss\n"));
        }
    }
    served::serve(&serve)
}

/// Whether a path, or the folder that it would be in, is on a file system in memory.
fn is_in_memory(path: &Path) -> bool {
    let there = path.ancestors().find(|place| place.exists());
    let system = there.and_then(|place| nix::sys::statfs::statfs(place).ok());
    system.is_some_and(|system| system.filesystem_type() == nix::sys::statfs::TMPFS_MAGIC)
}

/// Where the ring of a device is, unless it is said otherwise.
fn own_ring(folder: &Path) -> PathBuf {
    let own = folder.join("ring");
    std::path::absolute(&own).unwrap_or(own)
}

/// The ring of a device that is there: records may be in it alone.
fn ring_of(folder: &Path) -> Option<(PathBuf, bool)> {
    if let Ok(text) = std::fs::read_to_string(folder.join(RING_AT)) {
        let mut lines = text.lines();
        return Some((lines.next()?.into(), lines.next() == Some("persistent")));
    }
    let own = own_ring(folder);
    own.exists().then_some((own, false))
}

/// The equivalent `tidewater serve` command.
fn line(of: &LogDevice) -> Result<Serve, Failure> {
    let image = of.folder.join("image");
    // A device that is there has its own profile.
    let is_there = served::is_there(&image)?;
    let given = of.ring.as_deref().map(|ring| std::path::absolute(ring).unwrap_or_else(|_| ring.to_owned()));
    let known = ring_of(&of.folder).filter(|_| is_there);
    if let (Some(given), Some((known, persistent))) = (&given, &known)
        && (given != known || of.ring_persistent != *persistent)
    {
        let persistent = if *persistent { " --ring-persistent" } else { "" };
        return Err(Failure::usage(format_args!("the ring of this device is {}{persistent}", known.display())).help(
            format_args!(
                "start it without --ring. To move the ring: end the programs on the device, run `tidewater drain \
                 --device {0}`, stop it, and remove {0}/{RING_AT} and the old ring",
                of.folder.display()
            ),
        ));
    }
    let default = || (own_ring(&of.folder), false);
    let (ring, persistent) = given.map(|ring| (ring, of.ring_persistent)).or(known).unwrap_or_else(default);
    Ok(Serve {
        profile: (!is_there).then(|| PROFILE.into()),
        set: of.set.clone(),
        capacity: None,
        namespaces: vec![NamespaceSize { bytes: None, block_shift: None }],
        seed: 1,
        vfio_user: vec![of.folder.join(SOCKET)],
        nvme_tcp: None,
        nbd: None,
        discovery_address: None,
        insecure_bind: false,
        allow_host: Vec::new(),
        allow_destructive: false,
        runtime_dir: None,
        control: Some(of.folder.join(CONTROL)),
        metrics: of.metrics,
        metrics_host: of.metrics_host.clone(),
        stop_with_stdin: false,
        page: of.page,
        page_host: of.page_host.clone(),
        trace: None,
        commands: None,
        verbose: 0,
        input_log: None,
        ring: Some(ring),
        ring_persistent: persistent,
        ring_copy: (!persistent).then(|| of.folder.join("ring-copy")),
        peers: of.peers.clone(),
        log_device: Some(of.folder.clone()),
        image,
    })
}

/// Files in a folder, which is no log device's, that are of another device. A new device there would be taken for it.
fn others_in(folder: &Path) -> Vec<String> {
    const KINDS: [([u8; 8], &str); 3] =
        [(*b"TIDEWATR", "an image"), (*b"TIDERING", "a ring"), (*b"TIDECOPY", "a ring's copy")];
    let kind = |path: &Path| {
        let about = std::fs::symlink_metadata(path).ok()?;
        if about.file_type().is_socket() {
            return Some("a socket");
        }
        let mut magic = [0; 8];
        let file = about.is_file().then(|| std::fs::File::open(path).ok()).flatten();
        file?.read_exact(&mut magic).ok()?;
        KINDS.iter().find(|(begin, _)| *begin == magic).map(|(_, kind)| *kind)
    };
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
    // Its ring was in memory, and a loss of power has taken that: it is the log device of this folder.
    let own = ["image", "ring", "ring-copy", SOCKET, CONTROL];
    let is_own = |name: &OsStr| folder.join("image").is_file() && own.iter().any(|one| name == *one);
    let names = names.filter(|entry| !is_own(&entry.file_name()));
    let known = names.filter_map(|entry| Some((entry.file_name(), kind(&entry.path())?)));
    let mut known: Vec<String> = known.map(|(name, kind)| format!("{} ({kind})", name.to_string_lossy())).collect();
    known.sort();
    known
}

/// That nothing in the folder is of another device.
fn is_free(folder: &Path) -> Result<(), Failure> {
    if is_one(folder) {
        return Ok(());
    }
    let others = others_in(folder);
    if others.is_empty() {
        return Ok(());
    }
    let shown = folder.display();
    Err(Failure::usage(format_args!("{shown}: holds files of another device: {}", printable(&others.join(", ")))).help(
        "start that device as it was started before (`tidewater serve --image … --ring …`): its log may hold last \
             bytes of files. A new device needs another folder",
    ))
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
        let (setup, _) = served::arrange(&line_of(&[])).unwrap();
        assert_eq!(setup.control, device.join("control.sock"));
        let ring = setup.ring.unwrap();
        assert_eq!((ring.path, ring.copy), (device.join("ring"), Some(device.join("ring-copy"))));
        let (setup, _) = served::arrange(&line_of(&["--ring", "/dev/shm/r", "--ring-persistent"])).unwrap();
        let ring = setup.ring.unwrap();
        assert!(ring.persistent && ring.copy.is_none());
    }

    #[test]
    fn a_device_keeps_its_ring() {
        let folder = tempfile::tempdir().unwrap();
        let line_of = |ring: Option<&str>, ring_persistent| {
            let (ring, folder) = (ring.map(PathBuf::from), folder.path().into());
            line(&LogDevice { folder, ring, ring_persistent, ..LogDevice::default() })
        };
        // What is there: the log of an image may be in that ring alone.
        std::fs::write(folder.path().join("image"), "an image").unwrap();
        std::fs::write(folder.path().join(RING_AT), "/mnt/pmem/r\npersistent\n").unwrap();
        for ring in [None, Some("/mnt/pmem/r")] {
            let serve = line_of(ring, ring.is_some()).unwrap();
            assert_eq!((serve.ring, serve.ring_persistent), (Some("/mnt/pmem/r".into()), true));
        }
        for (ring, persistent) in [("/mnt/pmem/r", false), ("/dev/shm/other", true)] {
            let refused = line_of(Some(ring), persistent).unwrap_err();
            assert!(refused.message.contains("the ring of this device is /mnt/pmem/r --ring-persistent"));
        }
        std::fs::remove_file(folder.path().join(RING_AT)).unwrap();
        std::fs::write(folder.path().join("ring"), "a ring").unwrap();
        assert!(line_of(Some("/dev/shm/r"), false).is_err());
    }
}
