//! Drives that are reached from here: by the socket of a function, by NVMe/TCP, or as a function of this machine.

use crate::args::hardware::Reached;
use crate::failure::{Failure, reason, without_number};
use crate::socket;
use std::io::{ErrorKind, Read as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use tidewater_client::WindowError;
use tidewater_client::hardware::{Device, HardwareError};
use tidewater_driver::nvme_tcp::{self, Host, Remote};
use tidewater_driver::vfio_user::{Function, Socket, SocketError};
use tidewater_driver::{Transport, pci};
use tidewater_wire::fabrics::{self, Nqn};
use tidewater_wire::nvme::Status;
use tidewater_wire::vendor;

/// This command's name as a host, where the user gives none.
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:74696465-7761-4765-b220-6e766d650000";
/// And its identifier.
const HOST_ID: [u8; 16] = *b"tidewater nvme\0\0";

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// A function's vfio-user socket.
    VfioUser(PathBuf),
    /// A host's name or address, and a port.
    Tcp(String),
    /// The address of a PCI function of this machine.
    Pci(String),
}

impl Target {
    /// From `vfio-user:SOCKET`, `tcp:HOST:PORT` or `pci:ADDRESS`.
    ///
    /// # Errors
    /// When it is none of them.
    fn parse(text: &str) -> Result<Target, Failure> {
        match text.split_once(':') {
            Some(("vfio-user", path)) if !path.is_empty() => Ok(Target::VfioUser(path.into())),
            Some(("tcp", address)) if is_host_and_port(address) => Ok(Target::Tcp(address.to_owned())),
            Some(("tcp", address)) => Err(Failure::usage(format_args!("`{address}` is not a host and port"))
                .help("give both, as in tcp:127.0.0.1:4420 or tcp:[::1]:4420")),
            Some(("pci", address)) if !address.is_empty() => Ok(Target::Pci(address.to_owned())),
            _ => Err(Failure::usage(format_args!("`{text}` is not a valid target")).help(
                "give vfio-user:SOCKET or tcp:HOST:PORT, as `tidewater serve` prints them, or pci:ADDRESS, as lspci \
                 prints it",
            )),
        }
    }
}

fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// As [`open`], of a drive whose fast side or byte window is used.
///
/// # Errors
/// As there.
pub fn open_reached(reached: &Reached) -> Result<Device, Failure> {
    open(&reached.target, reached.host_nqn.as_deref())
}

/// Opens a drive: `vfio-user:SOCKET`, `tcp:HOST:PORT` or `pci:ADDRESS`.
///
/// # Errors
/// When it can't be reached, or another client has it.
pub fn open(target: &str, host_nqn: Option<&str>) -> Result<Device, Failure> {
    Device::over(transport(target, host_nqn)?).map_err(explain)
}

/// As [`open`], for commands alone.
///
/// # Errors
/// As there.
pub fn transport(target: &str, host_nqn: Option<&str>) -> Result<Box<dyn Transport>, Failure> {
    Ok(match Target::parse(target)? {
        Target::VfioUser(_) | Target::Pci(_) if host_nqn.is_some() => {
            return Err(Failure::usage("--host-nqn applies to NVMe/TCP only").help("leave --host-nqn out"));
        }
        Target::VfioUser(path) => Box::new(by_vfio_user(&path)?),
        Target::Tcp(address) => Box::new(by_tcp(&address, host_nqn)?),
        Target::Pci(address) => Box::new(pci::Function::open(&address).map_err(|error| explain(error.into()))?),
    })
}

/// A drive's error for the user, with the remedy where that is known.
pub fn explain(error: HardwareError) -> Failure {
    match error {
        HardwareError::Status { what, status } => refused(what, status),
        HardwareError::Target(_) => {
            Failure::usage(error).help("give pci:ADDRESS as lspci lists it, such as pci:0000:01:00.0")
        }
        HardwareError::Window(WindowError::Refused(status)) => refused("the byte window", status),
        error => Failure::run(without_number(&error.to_string())),
    }
}

/// A command that ended with a status.
fn refused(what: &str, status: Status) -> Failure {
    let own = vendor::status::NAMED.iter().find(|(known, ..)| known.same_code(status)).map(|(_, name, _)| *name);
    let name = status.name().or(own).unwrap_or("an unnamed status");
    let failure = Failure::run(format_args!("{what}: {name} (type {}, code {:02X}h)", status.sct(), status.sc()));
    if status.same_code(Status::OPERATION_DENIED) {
        failure.help("remote hosts may read vendor log pages only from `tidewater serve --allow-destructive`")
    } else if status.same_code(Status::INVALID_LOG_PAGE) {
        failure.help(
            "the drive does not support this log page; those of the fast side need a fast side (--set fast.size=64KiB)",
        )
    } else if status.same_code(vendor::status::NOT_SET_UP) {
        failure.help("serve a drive with a fast side (--set fast.size=64KiB), or let a host set it up")
    } else {
        failure
    }
}

fn by_vfio_user(path: &Path) -> Result<Function, Failure> {
    let name = path.display();
    // A client that is attached there is not disturbed: the server closes the newer connection before it says anything.
    let socket = Socket::connect(path).map_err(|error| match error {
        SocketError::Io(error)
            if matches!(
                error.kind(),
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ) =>
        {
            Failure::run(format_args!(
                "{name} is in use: another client is attached, and a function takes one at a time"
            ))
            .help("detach the other client, or give tcp:HOST:PORT, which many hosts share")
        }
        SocketError::Unreachable { error, .. } if error.kind() == ErrorKind::NotFound => {
            Failure::run(format_args!("{name}: {}", reason(&error)))
                .help("give the socket that `tidewater serve --vfio-user` made")
        }
        SocketError::Unreachable { error, .. } if error.kind() == ErrorKind::ConnectionRefused => {
            Failure::run(format_args!("{name}: no device is served on this socket"))
                .help("start `tidewater serve` with it")
        }
        SocketError::Unreachable { error, .. } | SocketError::Io(error) => {
            let failure = Failure::run(format_args!("{name}: {}", reason(&error)));
            Failure { help: socket::advice(path), ..failure }
        }
        other => Failure::run(format_args!("{name}: {other}")),
    })?;
    Function::start(socket).map_err(|error| Failure::run(format_args!("{name}: {error}")))
}

/// Connects to the first subsystem with namespaces that an address names.
fn by_tcp(address: &str, host_nqn: Option<&str>) -> Result<Remote, Failure> {
    let host_nqn = host_nqn.unwrap_or(HOST_NQN);
    let name = Nqn::new(host_nqn).ok_or_else(|| {
        Failure::usage(format_args!("`{host_nqn}` is not an NQN"))
            .help("give a name that starts with nqn. and has at most 223 bytes")
    })?;
    let host = Host::new(name, HOST_ID);
    let found: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| Failure::run(format_args!("{address}: {}", reason(&error))))?
        .collect();
    let mut last = Failure::run(format_args!("{address}: the name has no address"));
    for one in found {
        match Remote::connect(one, &host) {
            Ok(remote) => return Ok(remote),
            Err(error) => last = no_remote(one, &error),
        }
    }
    Err(last)
}

fn no_remote(address: SocketAddr, error: &nvme_tcp::Error) -> Failure {
    let failure = Failure::run(without_number(&format!("{address}: {error}")));
    match error {
        nvme_tcp::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            failure.help("give the address that `tidewater serve --nvme-tcp` printed")
        }
        nvme_tcp::Error::Status(status, _) if status.same_code(fabrics::status::INVALID_HOST) => {
            failure.help("give a name that the server allows (--allow-host) with --host-nqn")
        }
        nvme_tcp::Error::Status(status, _) if status.same_code(fabrics::status::CONTROLLER_BUSY) => {
            failure.help("all controllers are in use: disconnect a host and try again")
        }
        _ => failure,
    }
}

/// All bytes of a file, or of standard input.
///
/// # Errors
/// When they can't be read.
pub fn bytes_of(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if file.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    read.map_err(|error| Failure::run(format_args!("{}: {}", file.display(), reason(&error))))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read() {
        assert_eq!(Target::parse("vfio-user:/run/a:b.sock"), Ok(Target::VfioUser("/run/a:b.sock".into())));
        for good in ["127.0.0.1:4420", "[::1]:4420", "host.example:1"] {
            assert_eq!(Target::parse(&format!("tcp:{good}")), Ok(Target::Tcp(good.to_owned())));
        }
        for bad in
            ["", "nvme0", "tcp", "tcp:", "tcp:host", "tcp:host:", "tcp::1", "tcp:h:0", "tcp:h:70000", "vfio-user:"]
        {
            let failure = Target::parse(bad).expect_err(bad);
            assert!(failure.help.is_some(), "{bad}: {failure:?}");
        }
    }

    #[test]
    fn the_hosts_own_name_is_one() {
        assert!(Nqn::new(HOST_NQN).is_some());
    }
}
