//! Serving the drive as a real device, and talking to one that is served.

use crate::args::peers::CLUSTER;
use crate::args::served::{Serve, Served};
use crate::failure::{Failure, reason};
use crate::page::Page;
use crate::socket::whose;
use crate::{interrupt, logging, notify, output};
use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewater_base::units::{self, format_bytes, format_duration};
use tidewater_core::profile::Profile;
use tidewater_driver::vfio_user::SOCKET_PATH_MAX;
use tidewater_live::{About, Kind};
use tidewater_serve::commands::{self, Form};
use tidewater_serve::engine::{
    Backing, Event, MetricsSetup, NamespaceSetup, Ready, SERVE_TIME, Server, Setup, TcpSetup,
};
use tidewater_serve::image::Image;
use tidewater_serve::nbd;
use tidewater_serve::peers::PeersSetup;
use tidewater_serve::ring::RingSetup;
use tidewater_serve::runtime::{self, IN_USE};
use tidewater_study as study;
use tracing::{info, warn};

/// `tidewater serve`.
///
/// # Errors
/// A device that cannot be served, and the error that ended it.
pub fn serve(serve: &Serve) -> Result<(), Failure> {
    logging::begin(serve.verbose)?;
    let (setup, notes) = arrange(serve)?;
    let mut page = Page::open(serve.page, &serve.page_host)?;
    let control = setup.control.clone();
    let _running = interrupt::Running::begin();
    let mut tell = |event: Event| {
        let page = match &event {
            Event::Ready(ready) => page.take().and_then(|page| show(page, ready, serve)),
            _ => None,
        };
        say(event, serve, &control, &notes, page.as_deref());
    };
    if serve.stop_with_stdin {
        stop_with_stdin(&setup);
    }
    let server = Server::start(setup, &mut tell).map_err(|refused| {
        let failure = Failure::refused(&refused);
        let is_control = failure.message.starts_with(&*control.to_string_lossy());
        if serve.control.is_none() && is_control && control.as_os_str().len() > SOCKET_PATH_MAX {
            return failure.help("give a shorter folder for the control socket: --runtime-dir DIR");
        }
        // Two devices of one user meet at the default socket.
        if serve.control.is_none() && failure.message == format!("{}: {IN_USE}", control.display()) {
            let other = whose(&Served { device: Some(control.clone()) });
            return Failure { message: format!("the control socket is in use by {other}"), ..failure }
                .help("give this device a control socket of its own: --control PATH");
        }
        failure
    })?;
    let end = server.run(&mut tell).map_err(|refused| Failure::run(&refused))?;
    match end.again {
        false => output::print(&end.to_string()),
        true if interrupt::settled() => output::print(
            "ended before the device started itself anew: the next start recovers it, as after a crash; nothing \
             acknowledged is lost\n",
        ),
        true => Err(start_anew()),
    }
}

/// Becomes this program with the same arguments: all that a start by hand does, without the hand. Returns only when the
/// system refuses that.
fn start_anew() -> Failure {
    let mut command = std::process::Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    let refused = command.exec();
    Failure::run(format_args!("can't start the device anew: {refused}")).help("start it again")
}

/// The device's set-up by the command line, checked as far as can be before anything is made; and notes for the user.
///
/// # Errors
/// A device that cannot be served.
pub fn arrange(serve: &Serve) -> Result<(Setup, Vec<String>), Failure> {
    let backing = match serve.image.to_str() {
        Some("memory") => Backing::Memory,
        _ => Backing::File(serve.image.clone()),
    };
    let ring = serve.ring.clone().map(|path| RingSetup {
        path,
        persistent: serve.ring_persistent,
        copy: serve.ring_copy.clone(),
    });
    apart(serve, &backing, ring.as_ref())?;
    if let Some(path) = &serve.commands {
        Form::of(path).map_err(|why| {
            let help = "the ending chooses the form: FILE.pcapng for Wireshark, FILE.txt or - for text; a socket is \
                        unix:PATH";
            Failure::usage(format_args!("--commands {why}")).help(help)
        })?;
    }
    let drive = study::change(profile_of(serve, &backing)?, &serve.set)?;
    let nbd = serve.nbd.as_deref().map(nbd::Address::from_str).transpose();
    let nbd = nbd.map_err(|why| {
        let help = "give a socket (--nbd unix:PATH), or a loopback address (--nbd 127.0.0.1:10809)";
        Failure::usage(format_args!("--nbd {why}")).help(help)
    })?;
    if serve.vfio_user.is_empty() && serve.nvme_tcp.is_none() && nbd.is_none() {
        return Err(Failure::usage("no way to reach the drive was given").help(
            "give a socket for virtual machines (--vfio-user SOCKET), an address for remote hosts (--nvme-tcp \
             ADDRESS), a socket for programs that know no NVMe (--nbd unix:PATH), or several of them",
        ));
    }
    if let Some(address) = serve.discovery_address
        && (address.port() == 0 || address.ip().is_unspecified())
    {
        return Err(Failure::usage(format_args!("--discovery-address {address}: no host can connect to it"))
            .help("give the address and the port by which hosts reach the drive, such as 192.0.2.7:4420"));
    }
    let is_new = match &backing {
        Backing::File(path) => !is_there(path)?,
        Backing::Memory => true,
    };
    let profile = &drive.profile;
    if is_new && serve.capacity.is_none() && profile.drive.capacity == 0 && profile.nand.blocks_per_plane == 0 {
        return Err(Failure::usage("the size of the new drive is missing")
            .help("give --capacity, as in --capacity 64GiB, or set drive.capacity in the profile"));
    }
    let folder = runtime_directory(serve.runtime_dir.as_deref());
    let control = serve.control.clone().unwrap_or_else(|| folder.join("control.sock"));
    // A profile's blocks are the smallest that its drive takes.
    let profile_shift = drive.profile.host.block_size.ilog2() as u8;
    let setup = Setup {
        profile: drive.profile,
        backing,
        size: serve.capacity,
        namespaces: serve
            .namespaces
            .iter()
            .map(|namespace| NamespaceSetup {
                bytes: namespace.bytes,
                block_shift: namespace.block_shift.unwrap_or(profile_shift),
            })
            .collect(),
        seed: serve.seed,
        vfio_user: serve.vfio_user.clone(),
        nvme_tcp: serve.nvme_tcp.map(|address| TcpSetup {
            address,
            advertise: serve.discovery_address,
            insecure_bind: serve.insecure_bind,
            allowed_hosts: serve.allow_host.clone(),
            allow_destructive: serve.allow_destructive,
        }),
        nbd,
        runtime_directory: (serve.control.is_none() || serve.runtime_dir.is_some()).then_some(folder),
        control,
        metrics: serve.metrics.map(|address| MetricsSetup { address, names: serve.metrics_host.clone() }),
        trace: serve.trace.clone(),
        commands: serve.commands.clone(),
        input_log: serve.input_log.clone(),
        ring,
        peers: peers_of(serve),
        stop: interrupt::flag(),
        serve_time: SERVE_TIME,
    };
    // A served drive has its whole map in memory, whatever its profile says, and says so when it starts.
    let mut notes = drive.notes;
    notes.retain(|note| !note.starts_with("ftl.map_memory:"));
    Ok((setup, notes))
}

/// How the device reaches its peers.
fn peers_of(serve: &Serve) -> Option<PeersSetup> {
    let of = &serve.peers;
    Some(PeersSetup {
        node: of.node?,
        cluster: of.cluster.clone().unwrap_or_else(|| CLUSTER.into()),
        listen: of.peer_listen,
        peers: of.peers.iter().map(|peer| (peer.node, peer.address.clone())).collect(),
        identity: of.peer_identity.clone(),
        insecure: of.insecure_peers,
        catch_up_rate: of.catch_up_rate,
        faults: None,
        holds_log: of.hold_log,
    })
}

/// Whether there is a drive in an image.
///
/// # Errors
/// When the file can't be read.
pub fn is_there(image: &Path) -> Result<bool, Failure> {
    Image::is_there(image).map_err(|refused| Failure::refused(&refused))
}

/// Refuses files that would be written over each other: above all the image by a trace or a log.
fn apart(serve: &Serve, backing: &Backing, ring: Option<&RingSetup>) -> Result<(), Failure> {
    let mut files = Vec::new();
    if let Backing::File(path) = backing {
        files.push(("--image", path.clone()));
    }
    files.extend(serve.trace.clone().map(|path| ("--trace", path)));
    let commands = serve.commands.clone().filter(|path| path != Path::new("-"));
    files.extend(commands.map(|path| ("--commands", commands::socket(&path).unwrap_or(path))));
    files.extend(serve.input_log.clone().map(|path| ("--input-log", path)));
    let functions = 0..serve.vfio_user.len().max(1);
    if let Some(ring) = ring {
        files.extend(functions.clone().map(|function| ("--ring", ring.of(function))));
        files.extend(functions.filter_map(|function| Some(("--ring-copy", ring.copy_of(function)?))));
    }
    files.extend(serve.vfio_user.iter().map(|path| ("--vfio-user", path.clone())));
    let nbd = serve.nbd.as_deref().and_then(|address| address.strip_prefix("unix:"));
    files.extend(nbd.map(|path| ("--nbd", PathBuf::from(path))));
    files.extend(serve.control.clone().map(|path| ("--control", path)));
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in files {
        let place = output::place(&path);
        if let Some((other, _)) = seen.iter().find(|(_, taken)| *taken == place) {
            return Err(Failure::usage(format_args!("{other} and {flag} are the same file: {}", path.display()))
                .help("give each a file of its own"));
        }
        seen.push((flag, place));
    }
    Ok(())
}

/// The profile that is named, else that of the drive in the image, else `generic`.
fn profile_of(serve: &Serve, backing: &Backing) -> Result<Profile, Failure> {
    if let Some(given) = &serve.profile {
        return study::find(given).map_err(Failure::from);
    }
    let stored = match backing {
        Backing::File(path) => Image::is_there(path).and_then(|there| there.then(|| Image::profile(path)).transpose()),
        Backing::Memory => Ok(None),
    };
    match stored.map_err(|refused| Failure::refused(&refused))? {
        Some(profile) => Ok(profile),
        None => study::find(Path::new("generic")).map_err(Failure::from),
    }
}

fn runtime_directory(given: Option<&Path>) -> PathBuf {
    given.map_or_else(runtime::default_directory, Path::to_path_buf)
}

/// Asks the device to stop when standard input has ended.
fn stop_with_stdin(setup: &Setup) {
    let stop = Arc::clone(&setup.stop);
    let wait = move || {
        // What comes there is of no interest; an error is an end, too.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.store(true, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("stdin".into()).spawn(wait).is_err() {
        warn!("no thread waits for the end of standard input");
    }
}

/// Shows the device on its page; `None`: it can't be had, which has been said.
fn show(page: Page, ready: &Ready, serve: &Serve) -> Option<String> {
    let moments = ready.moments.clone()?;
    let image = serve.image.display();
    let title = match &serve.profile {
        Some(profile) => format!("{} in {image}", profile.display()),
        None => image.to_string(),
    };
    let about = About { kind: Kind::Device, title, promise: ready.survives.clone() };
    let shown = page.show(&about, move || moments.take());
    let shown = shown.map(|(address, _)| address);
    shown.inspect_err(|failure| warn!("no page: {}", failure.message)).ok()
}

/// Tells what happens, on standard error; how to attach goes to standard output. `notes`: what the profile's check has
/// found. `page`: where its page is.
fn say(event: Event, serve: &Serve, control: &Path, notes: &[String], page: Option<&str>) {
    match event {
        Event::Made { capacity } => info!("a new drive of {}", format_bytes(capacity)),
        Event::Opened { capacity, written } => {
            let (image, capacity) = (serve.image.display(), format_bytes(capacity));
            info!("the drive in {image}: {capacity}, {} stored", format_bytes(written));
        }
        Event::Recovering { reads } => info!("recovering: {reads} flash reads"),
        Event::Recovered { report, wall } => info!(
            "recovered {} logical pages in {} of the drive's time ({:.2} s of wall-clock time)",
            report.mapped,
            format_duration(report.time),
            wall.as_secs_f64()
        ),
        // A log device says once, when it is ready, what its syncs survive.
        Event::Ready(ready) if let Some(folder) = &serve.log_device => {
            let watch = how_to_watch(&ready, page);
            let _ = output::print(&how_to_use(folder, serve.ring_persistent, &watch));
            notify::ready();
        }
        Event::Ready(ready) => {
            // The check's notes have the key in front.
            let is_said = |note: &String| ready.memories.iter().any(|memory| note.ends_with(memory.as_str()));
            notes.iter().filter(|note| !is_said(note)).for_each(|note| info!("{note}"));
            let _ = output::print(&how_to_attach(&ready, serve, control, page));
            notify::ready();
        }
        Event::Note(text) => info!("{text}"),
        Event::Warning(text) => warn!("{text}"),
    }
}

/// Instructions for an operator: how to attach hosts, what to watch, what survives what.
fn how_to_attach(ready: &Ready, serve: &Serve, control: &Path, page: Option<&str>) -> String {
    let mut text = String::new();
    let mut sockets = ready.vfio_user.iter().map(|socket| socket.display());
    if let Some(socket) = sockets.next() {
        let _ = writeln!(
            text,
            "PCIe function 0. Attach a virtual machine (QEMU 10.1 or newer; its memory must be shared):\n  \
             qemu-system-x86_64 -machine q35,memory-backend=mem -m 4G \\\n    -object \
             memory-backend-memfd,id=mem,size=4G,share=on \\\n    -device \
             '{{\"driver\":\"vfio-user-pci\",\"socket\":{{\"type\":\"unix\",\"path\":\"{socket}\"}}}}' ..."
        );
    }
    for (socket, function) in sockets.zip(1..) {
        let _ = writeln!(text, "PCIe function {function}: the same with \"path\":\"{socket}\"");
    }
    if let Some((address, nqn)) = &ready.nvme_tcp {
        let (ip, port) = (address.ip(), address.port());
        let _ = writeln!(text, "NVMe/TCP. Attach a remote host:\n  nvme connect -t tcp -a {ip} -s {port} -n {nqn}");
    }
    if let Some(address) = &ready.nbd {
        let _ = writeln!(text, "NBD, a block device for any program. Look at it:\n  nbdinfo --list '{address}'");
    }
    if let Some(address) = ready.peers {
        let _ = writeln!(text, "Peers reach it at {address}. Form a group: tidewater cluster group form --help");
    }
    text += &how_to_watch(ready, page);
    if let Some(file) = serve.commands.as_ref().filter(|file| *file != Path::new("-")) {
        let is_text = file.extension().is_some_and(|end| end == "txt");
        let how = match (commands::socket(file), is_text) {
            (Some(socket), true) => format!("nc -U {}", socket.display()),
            (Some(socket), false) => format!("nc -U {} | wireshark -k -i -", socket.display()),
            (None, true) => format!("tail -f {}", file.display()),
            (None, false) => format!("tshark -r {}", file.display()),
        };
        let _ = writeln!(text, "Commands: {how}");
    }
    let _ = writeln!(text, "Control: tidewater status --device {}", control.display());
    let _ = writeln!(text, "  with --watch again and again; faults: tidewater fault --help");
    let _ = writeln!(text, "Durability: {}", ready.survives);
    for memory in &ready.memories {
        let _ = writeln!(text, "  {memory}");
    }
    text + "Stop it with Ctrl-C or SIGTERM.\n"
}

/// How to use a log device, when it is ready.
fn how_to_use(folder: &Path, is_persistent: bool, watch: &str) -> String {
    let folder = folder.display();
    let level = if is_persistent {
        "A sync returns when the record is in the ring, which survives a power loss."
    } else {
        "A sync returns when the record is in the ring's copy on this disk, synced."
    };
    format!(
        "Run a program with its log files on this device:\n  \
         tidewater run --device {folder} --log PATTERN -- PROGRAM\n{level}\n\
         Status: tidewater status --device {folder}\n{watch}Ctrl-C or SIGTERM shuts the device down.\n"
    )
}

/// Where its metrics and its page are, a line each.
fn how_to_watch(ready: &Ready, page: Option<&str>) -> String {
    let metrics = ready.metrics.map(|address| format!("Metrics: http://{address}/metrics\n"));
    let page = page.map(|page| format!("Watch it: {page}\n"));
    metrics.into_iter().chain(page).collect()
}

/// `tidewater rerun`.
///
/// # Errors
/// When the log can't be read, or an output differs.
pub fn rerun(rerun: &crate::args::served::Rerun) -> Result<(), Failure> {
    let log = std::fs::read(&rerun.log)
        .map_err(|error| Failure::usage(format_args!("{}: {}", rerun.log.display(), reason(&error))))?;
    let result = tidewater_serve::engine::rerun(&log)
        .map_err(|error| Failure::run(format_args!("{}: {error}", rerun.log.display())))?;
    output::print(&format!(
        "{}: {} and {}, all identical in virtual time ({} of the drive's time)\n",
        rerun.log.display(),
        units::plural_exact(result.inputs, "input"),
        units::plural_exact(result.outputs, "output"),
        format_duration(result.time)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser as _;

    #[test]
    fn the_image_is_no_file_of_anything_else() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("drive");
        std::fs::write(&image, "a drive").unwrap();
        let refused = |more: &str| {
            let line =
                format!("tidewater serve --image {} --vfio-user {}/f0.sock ", image.display(), folder.path().display());
            let line = line + &more.replace("HERE", &folder.path().display().to_string());
            match Cli::try_parse_from(line.split_whitespace()).unwrap().command {
                Command::Serve(serve) => arrange(&serve).unwrap_err().message,
                other => panic!("{other:?}"),
            }
        };
        for (more, flags) in [
            ("--trace HERE/./drive", "--image and --trace"),
            ("--input-log HERE/drive", "--image and --input-log"),
            ("--ring HERE/drive", "--image and --ring"),
            ("--ring HERE/ring --ring-copy HERE/ring", "--ring and --ring-copy"),
            ("--vfio-user HERE/f1.sock --ring HERE/ring --ring-copy HERE/ring.1", "--ring and --ring-copy"),
            ("--trace HERE/new --input-log HERE/./new", "--trace and --input-log"),
            ("--trace HERE/seen.txt --commands HERE/./seen.txt", "--trace and --commands"),
            ("--trace HERE/seen --commands unix:HERE/./seen", "--trace and --commands"),
            ("--control HERE/drive", "--image and --control"),
            ("--vfio-user HERE/f0.sock", "--vfio-user and --vfio-user"),
            ("--nbd unix:HERE/./drive", "--image and --nbd"),
        ] {
            assert!(refused(more).starts_with(&format!("{flags} are the same file")), "{}", refused(more));
        }
        assert_eq!(std::fs::read_to_string(&image).unwrap(), "a drive");
    }
}
