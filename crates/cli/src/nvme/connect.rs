//! Devices that are reached from here: by the socket of a function, or by NVMe/TCP.

use crate::failure::{Failure, reason, without_number};
use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use tidewater_client::WindowError;
use tidewater_client::hardware::{self, HardwareError};
use tidewater_driver::nvme_tcp::{self as initiator, Controller, Host, Transfer};
use tidewater_driver::vfio_user::{Buffer, Nvme, NvmeError};
use tidewater_driver::vfio_user::{Socket, SocketError};
use tidewater_wire::fabrics::{self, Nqn, SubsystemKind};
use tidewater_wire::nvme::{AdminCommand, Status};
use tidewater_wire::vendor;

/// This command's name as a host, where the user gives none.
const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:74696465-7761-4765-b220-6e766d650000";
/// And its identifier.
const HOST_ID: [u8; 16] = *b"tidewater nvme\0\0";
/// Memory for a controller's queues and what it says, in bytes: the longest page is 16 KiB of errors.
const MEMORY: u64 = 256 << 10;
/// Bytes of it for what it says.
const DATA: u64 = 64 << 10;

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A function's vfio-user socket.
    VfioUser(PathBuf),
    /// A host's name or address, and a port.
    Tcp(String),
    /// A PCI function of this machine, as `pci:ADDRESS`.
    Pci(String),
}

impl Target {
    /// From `vfio-user:SOCKET`, `tcp:HOST:PORT` or `pci:ADDRESS`.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn parse(text: &str) -> Result<Target, Failure> {
        match text.split_once(':') {
            Some(("vfio-user", path)) if !path.is_empty() => Ok(Target::VfioUser(path.into())),
            Some(("tcp", address)) if is_host_and_port(address) => Ok(Target::Tcp(address.to_owned())),
            Some(("tcp", address)) => Err(Failure::usage(format_args!("`{address}` is no host and port"))
                .help("give both, as in tcp:127.0.0.1:4420 or tcp:[::1]:4420")),
            Some(("pci", address)) if !address.is_empty() => Ok(Target::Pci(text.to_owned())),
            _ => Err(Failure::usage(format_args!("`{text}` is no device")).help(
                "give vfio-user:SOCKET or tcp:HOST:PORT, as `tidewater serve` printed them, or pci:ADDRESS, as lspci \
                 lists it",
            )),
        }
    }
}

fn is_host_and_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// A controller that is enabled.
pub enum Device {
    /// By NVMe/TCP.
    Tcp(Box<Controller>),
    /// A PCIe function, and memory for what it says.
    VfioUser(Box<Nvme>, Buffer),
    /// A function of this machine, which the kernel's driver has.
    Pci(Box<hardware::Device>),
}

impl Device {
    /// Connects, and enables the controller.
    ///
    /// # Errors
    /// When it can't be reached, or somebody else uses it.
    pub fn connect(target: &Target, host_nqn: Option<&str>) -> Result<Device, Failure> {
        match target {
            Target::VfioUser(_) | Target::Pci(_) if host_nqn.is_some() => Err(no_name()),
            Target::VfioUser(path) => by_vfio_user(path),
            Target::Tcp(address) => Ok(Device::Tcp(Box::new(by_tcp(address, host_nqn)?))),
            Target::Pci(target) => {
                hardware::Device::open(target).map(|device| Device::Pci(Box::new(device))).map_err(told)
            }
        }
    }

    /// Whether it is a PCIe function.
    pub fn is_pcie(&self) -> bool {
        !matches!(self, Device::Tcp(_))
    }

    /// Runs an admin command that brings `len` bytes; `what` names it.
    ///
    /// # Errors
    /// When the command or the connection fails.
    pub fn read(&mut self, command: &AdminCommand, len: u32, what: &str) -> Result<Vec<u8>, Failure> {
        let sqe = command.emit(0);
        match self {
            Device::Tcp(controller) => {
                let done = controller.admin.call(sqe, Transfer::In(len)).map_err(|error| lost(&error))?;
                if !done.status.is_success() {
                    return Err(refused(what, done.status));
                }
                let complete = done.data.len() == len as usize;
                if complete { Ok(done.data) } else { Err(Failure::run(format_args!("{what} came short"))) }
            }
            Device::VfioUser(nvme, data) => {
                nvme.admin(data.attach(sqe, len.into())).map_err(|error| match error {
                    NvmeError::Status(status) => refused(what, status),
                    other => Failure::run(format_args!("{what}: {other}")),
                })?;
                let mut bytes = vec![0; len as usize];
                data.read(0, &mut bytes);
                Ok(bytes)
            }
            Device::Pci(device) => {
                let mut bytes = vec![0; len as usize];
                let done = device.path().command(hardware::Queue::Admin, &sqe, &mut bytes).map_err(told)?;
                if done.status.is_success() { Ok(bytes) } else { Err(refused(what, done.status)) }
            }
        }
    }

    /// Shuts the controller down, and goes.
    ///
    /// # Errors
    /// When it can't be shut down.
    pub fn leave(self) -> Result<(), Failure> {
        match self {
            Device::Tcp(mut controller) => controller.shutdown().map_err(|error| lost(&error)),
            Device::VfioUser(mut nvme, _) => {
                let done = nvme.shut_down().and_then(|()| nvme.disable());
                done.map_err(|error| Failure::run(format_args!("the controller does not shut down: {error}")))
            }
            // The kernel's driver goes on with it.
            Device::Pci(_) => Ok(()),
        }
    }
}

pub fn lost(error: &initiator::Error) -> Failure {
    Failure::run(format_args!("NVMe/TCP: {}", words(error)))
}

fn words(error: &initiator::Error) -> String {
    match error {
        initiator::Error::Io(error) => reason(error),
        other => other.to_string(),
    }
}

/// A host's name for what asks for none.
pub fn no_name() -> Failure {
    Failure::usage("a PCIe function knows no names of hosts").help("leave --host-nqn out")
}

/// What went wrong with a drive, and what to do where that is known.
pub fn told(error: HardwareError) -> Failure {
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
pub fn refused(what: &str, status: Status) -> Failure {
    let own = vendor::status::NAMED.iter().find(|(known, ..)| known.same_code(status)).map(|(_, name, _)| *name);
    let name = status.name().or(own).unwrap_or("a status without name");
    let failure = Failure::run(format_args!("{what}: {name} (type {}, code {:02X}h)", status.sct(), status.sc()));
    if status.same_code(Status::OPERATION_DENIED) {
        failure.help("remote hosts get pages of this vendor from `tidewater serve --allow-destructive` alone")
    } else if status.same_code(Status::INVALID_LOG_PAGE) {
        failure.help("this drive has no such page; those of the fast side need one (--set fast.size=64KiB)")
    } else if status.same_code(vendor::status::NOT_SET_UP) {
        failure.help("serve a drive with a fast side (--set fast.size=64KiB), or let a host set it up")
    } else {
        failure
    }
}

fn by_vfio_user(path: &Path) -> Result<Device, Failure> {
    let name = path.display();
    // Somebody else who is attached there is not disturbed: the server closes the newer connection before it has said
    // anything.
    let client = Socket::connect(path).map_err(|error| match error {
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
            Failure::run(format_args!("{name}: nobody serves this socket")).help("start `tidewater serve` there")
        }
        SocketError::Unreachable { error, .. } | SocketError::Io(error) => {
            Failure::run(format_args!("{name}: {}", reason(&error)))
        }
        other => Failure::run(format_args!("{name}: {other}")),
    })?;
    let failed = |error: NvmeError| Failure::run(format_args!("{name}: {error}"));
    let mut nvme = Nvme::start(client, MEMORY).map_err(failed)?;
    let data = nvme.buffer(DATA).map_err(failed)?;
    Ok(Device::VfioUser(Box::new(nvme), data))
}

/// Connects to the first subsystem with namespaces that an address names.
pub fn by_tcp(address: &str, host_nqn: Option<&str>) -> Result<Controller, Failure> {
    let host_nqn = host_nqn.unwrap_or(HOST_NQN);
    let name = Nqn::new(host_nqn).ok_or_else(|| {
        Failure::usage(format_args!("`{host_nqn}` is no NQN"))
            .help("give a name that begins with nqn. and has at most 223 bytes")
    })?;
    let host = Host::new(name, HOST_ID);
    let found: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| Failure::run(format_args!("{address}: {}", reason(&error))))?
        .collect();
    let mut last = Failure::run(format_args!("{address}: no address"));
    for one in found {
        match by_address(one, &host) {
            Ok(controller) => return Ok(controller),
            Err(failure) => last = failure,
        }
    }
    Err(last)
}

/// Asks the discovery service at an address, and connects to the first subsystem that it names.
fn by_address(address: SocketAddr, host: &Host) -> Result<Controller, Failure> {
    let failed = |error: initiator::Error| {
        let failure = Failure::run(format_args!("{address}: {}", words(&error)));
        match error {
            initiator::Error::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
                failure.help("give the address that `tidewater serve --nvme-tcp` printed")
            }
            initiator::Error::Status(status, _) if status.same_code(fabrics::status::INVALID_HOST) => {
                failure.help("give a name that the server allows (--allow-host) with --host-nqn")
            }
            initiator::Error::Status(status, _) if status.same_code(fabrics::status::CONTROLLER_BUSY) => {
                failure.help("every controller has a host: wait until one goes")
            }
            _ => failure,
        }
    };
    let entries = initiator::discover(address, host).map_err(failed)?;
    let entry = entries.into_iter().find(|entry| entry.kind == SubsystemKind::Nvm);
    let entry = entry.ok_or_else(|| Failure::run(format_args!("{address} names no subsystem with namespaces")))?;
    let there = entry.address.parse().map(|ip| SocketAddr::new(ip, entry.port));
    let there = there.map_err(|_| Failure::run(format_args!("{address} names a place that is no address")))?;
    let mut controller = Controller::connect(there, host, &entry.subsystem).map_err(failed)?;
    controller.enable().map_err(failed)?;
    Ok(controller)
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
