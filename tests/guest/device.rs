//! The device under test: what is attached to a guest, and what can be done to it from outside.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tidewater_tests::{binary, wait};

use crate::machine::{Machine, tethered};

/// How long the served device may take until it listens: it may have an image to recover.
const START_MAX: Duration = tidewater_tests::PATIENCE;
/// How long it may take to end in order.
const STOP_MAX: Duration = tidewater_tests::PATIENCE;

/// The NQN of the kit's guests (`scripts/guest-kit.sh`): the only one that may connect over NVMe/TCP.
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:6b8d1f7a-7c3e-4d5e-9a51-0c1f6f2d9c11";

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// QEMU's own: shows that a job is right about the guest's tools and kernel.
    Emulated,
    /// `tidewater serve`.
    Tidewater,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Emulated, Self::Tidewater];

    /// As in `--device` and in the guest's file `device`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Emulated => "emulated",
            Self::Tidewater => "tidewater",
        }
    }

    /// The opposite of `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A scenario's requirements of its device.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The profile that is served.
    pub profile: &'static str,
    /// Settings of the profile, as of `--set`.
    pub settings: &'static [&'static str],
    /// Namespaces, in MiB each.
    pub namespaces: &'static [u64],
    /// An emulated device has a controller memory buffer and a persistent memory region: a served one as its profile
    /// says.
    pub memory_buffers: bool,
    /// As a target of NVMe/TCP, and not as a PCI function.
    pub tcp: bool,
    /// As a server of NBD, and not as a PCI function: an emulated device is none.
    pub nbd: bool,
    /// An emulated device, which has no control socket for faults, fails reads of a place
    /// (`tests/guest/jobs/faults.sh`).
    pub unreadable: bool,
    /// A served device writes the guest's commands as a capture, which is judged at the end (`capture.rs`).
    pub capture: bool,
}

/// A PCI function with one namespace of 256 MiB.
pub const PLAIN: Setup = Setup {
    profile: "generic",
    settings: &[],
    namespaces: &[256],
    memory_buffers: false,
    tcp: false,
    nbd: false,
    unreadable: false,
    capture: false,
};

/// A device with its image, which outlives guests.
pub struct Device {
    kind: Kind,
    setup: Setup,
    folder: PathBuf,
    /// Of the target of NVMe/TCP, or the server of NBD.
    port: u16,
    server: Option<Child>,
}

impl Device {
    /// A new device with empty media. Its files are in `folder`.
    pub fn new(kind: Kind, setup: Setup, folder: &Path) -> io::Result<Self> {
        // A free port.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let device = Self { kind, setup, folder: folder.to_path_buf(), port, server: None };
        if kind == Kind::Emulated {
            for (index, mib) in setup.namespaces.iter().enumerate() {
                File::create(device.image(index))?.set_len(mib << 20)?;
            }
        }
        Ok(device)
    }

    fn image(&self, namespace: usize) -> PathBuf {
        self.folder.join(format!("namespace{}.img", namespace + 1))
    }

    /// Where the served function listens.
    fn socket(&self) -> PathBuf {
        self.folder.join("cntrl")
    }

    /// Its control socket, for faults.
    fn control(&self) -> PathBuf {
        self.folder.join("control.sock")
    }

    /// Where it writes the guest's commands.
    pub fn capture(&self) -> Option<PathBuf> {
        let is_wanted = self.setup.capture && self.kind == Kind::Tidewater;
        is_wanted.then(|| self.folder.join("commands.pcapng"))
    }

    /// Its kind's name.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// QEMU's arguments.
    pub fn arguments(&self) -> Vec<String> {
        match self.kind {
            Kind::Emulated => self.emulated(),
            Kind::Tidewater if self.setup.tcp || self.setup.nbd => {
                // The host's loopback is 10.0.2.2 to the guest.
                ["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"].map(str::to_owned).into()
            }
            Kind::Tidewater => {
                let function = format!(
                    r#"{{"driver":"vfio-user-pci","bus":"port0","socket":{{"type":"unix","path":"{}"}}}}"#,
                    self.socket().display()
                );
                let port = "pcie-root-port,id=port0,chassis=1,slot=1".to_owned();
                vec!["-device".to_owned(), port, "-device".to_owned(), function]
            }
        }
    }

    fn emulated(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add = |option: &str, value: String| arguments.extend([option.to_owned(), value]);
        add("-device", "nvme-subsys,id=subsystem,nqn=tidewater-guest".to_owned());
        add("-device", "pcie-root-port,id=port0,chassis=1,slot=1".to_owned());
        let mut controller = "nvme,id=controller,bus=port0,subsys=subsystem,serial=EMULATED1,mdts=7".to_owned();
        if self.setup.memory_buffers {
            let file = self.folder.join("persistent-memory-region");
            add("-object", format!("memory-backend-file,id=region,share=on,mem-path={},size=16M", file.display()));
            controller.push_str(",cmb_size_mb=16,pmrdev=region");
        }
        add("-device", controller);
        for index in 0..self.setup.namespaces.len() {
            let file = self.image(index).display().to_string();
            let medium = if self.setup.unreadable {
                // 64 KiB from 2 MiB, in sectors of 512 bytes, one rule for each.
                let rules: String = (0..128)
                    .map(|rule| {
                        let name = format!("file.inject-error.{rule}");
                        format!(",{name}.event=none,{name}.iotype=read,{name}.sector={}", 4096 + rule)
                    })
                    .collect();
                format!("format=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={file}{rules}")
            } else {
                format!("file={file},format=raw,discard=unmap")
            };
            add("-drive", format!("if=none,id=medium{index},{medium}"));
            add("-device", format!("nvme-ns,drive=medium{index},bus=controller,nsid={}", index + 1));
        }
        arguments
    }

    /// The guest's file `target`: address, port, and name of a target of NVMe/TCP (`-`: as discovery says); of NBD the
    /// first two count.
    pub fn target(&self) -> String {
        match self.kind {
            // The kernel's own target, inside of the guest.
            Kind::Emulated => "127.0.0.1 4420 nqn.2026-01.test:emulated".to_owned(),
            Kind::Tidewater => format!("10.0.2.2 {} -", self.port),
        }
    }

    /// Makes it ready for a guest. A served device that still runs is left as it is.
    pub fn start(&mut self) -> Result<(), String> {
        // An emulated one lives in the guest's QEMU.
        if self.kind == Kind::Emulated {
            return Ok(());
        }
        if let Some(server) = self.server.as_mut() {
            return match server.try_wait() {
                Ok(None) => Ok(()),
                ended => Err(format!("it ended without a stop: {ended:?}")),
            };
        }
        let sizes: Vec<String> = self.setup.namespaces.iter().map(|mib| format!("{mib}MiB")).collect();
        let total: u64 = self.setup.namespaces.iter().sum();
        let log = File::options().create(true).append(true).open(self.log_file()).map_err(|error| error.to_string())?;
        let said = self.ready();
        let mut command = tethered(binary());
        command.args(["serve", "--profile", self.setup.profile, "--size", &format!("{total}MiB")]);
        command.args(["--namespaces", &sizes.join(",")]).arg("--image").arg(self.folder.join("drive.img"));
        command.arg("--control").arg(self.control());
        for setting in self.setup.settings {
            command.args(["--set", setting]);
        }
        if let Some(capture) = self.capture() {
            command.arg("--commands").arg(capture);
        }
        if self.setup.tcp {
            command.args(["--nvme-tcp", &format!("127.0.0.1:{}", self.port), "--allow-host", HOST]);
        } else if self.setup.nbd {
            command.args(["--nbd", &format!("127.0.0.1:{}", self.port)]);
        } else {
            command.arg("--vfio-user").arg(self.socket());
        }
        let both = log.try_clone().map_err(|error| error.to_string())?;
        let mut server = command.stdin(Stdio::null()).stdout(both).stderr(log).spawn().map_err(|e| e.to_string())?;
        let ended = wait::within(START_MAX, || match server.try_wait() {
            Ok(Some(status)) => Some(Err(format!("it ended with {status}"))),
            _ => (self.ready() != said).then_some(Ok(())),
        });
        ended.unwrap_or_else(|| Err(format!("it does not listen after {} s", START_MAX.as_secs())))?;
        self.server = Some(server);
        Ok(())
    }

    /// How often it has said, in all its lives, that it can be attached.
    fn ready(&self) -> usize {
        std::fs::read(self.log_file()).map_or(0, |log| String::from_utf8_lossy(&log).matches("\nDurability: ").count())
    }

    /// Ends it in order, as its operator would (SIGTERM).
    pub fn stop(&mut self) -> Result<(), String> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        let sent = Command::new("kill").args(["-TERM", &server.id().to_string()]).status();
        if sent.is_ok_and(|status| status.success()) {
            match wait::within(STOP_MAX, || server.try_wait().ok().flatten()) {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("it ended with {status}")),
                None => {}
            }
        }
        let threads = threads_of(server.id());
        let _ = server.kill();
        let _ = server.wait();
        Err(format!("it did not end after SIGTERM; its threads:\n{threads}"))
    }

    /// State of a served device's threads, a line each.
    pub fn threads(&self) -> String {
        self.server.as_ref().map(|server| threads_of(server.id())).unwrap_or_default()
    }

    /// Kills device and guest at once, as a loss of the host would.
    pub fn kill(&mut self, machine: Machine) {
        if let Some(mut server) = self.server.take() {
            // Fails only when it is gone already.
            let _ = server.kill();
            drop(machine);
            let _ = server.wait();
        }
        // A socket without a listener would be taken for the next server's.
        let _ = std::fs::remove_file(self.socket());
    }

    fn log_file(&self) -> PathBuf {
        self.folder.join("serve.log")
    }

    /// Its output.
    pub fn log(&self) -> String {
        let text = std::fs::read(self.log_file()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        text.map(|text| format!("--- what the device said:\n{text}---")).unwrap_or_default()
    }

    /// Carries out what a guest asks for.
    pub fn act(&mut self, words: &[String]) -> Result<String, String> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match (self.kind, words.as_slice()) {
            (Kind::Tidewater, ["restart"]) => self.stop().and_then(|()| self.start()).map(|()| String::new()),
            (Kind::Tidewater, ["fault", fault @ ..]) => self.fault(fault),
            (Kind::Tidewater, ["figure", name]) => self.figure(name),
            _ => Err(format!("{} can't: {}", self.kind.name(), words.join(" "))),
        }
    }

    /// Tells a served device to have a fault. `words` are those of `tests/guest/README.md`.
    fn fault(&self, words: &[&str]) -> Result<String, String> {
        let options: Vec<String> = match words {
            ["status", nsid, first, end, code, count] => {
                let range = format!("{first}..{end}");
                let code = format!("0x{code}");
                ["status", "--nsid", *nsid, "--lba", &range, "--code", &code, "--count", *count]
                    .map(str::to_owned)
                    .into()
            }
            ["delay", function, ms, count] => {
                let by = format!("{ms}ms");
                ["delay", "--function", *function, "--by", &by, "--count", *count].map(str::to_owned).into()
            }
            [kind @ ("lose" | "duplicate"), function, count] => {
                [*kind, "--function", *function, "--count", *count].map(str::to_owned).into()
            }
            [kind @ ("fatal" | "stuck-shutdown"), function] => {
                [*kind, "--function", *function].map(str::to_owned).into()
            }
            [kind @ ("power-cut" | "clear")] => vec![(*kind).to_owned()],
            _ => return Err(format!("no such fault: {}", words.join(" "))),
        };
        self.control_call("fault", &options).map(|text| text.replace('\n', " "))
    }

    /// A figure of `tidewater status`.
    fn figure(&self, name: &str) -> Result<String, String> {
        let status = self.control_call("status", &["--json".to_owned()])?;
        let status: serde_json::Value = serde_json::from_str(&status).map_err(|error| error.to_string())?;
        find(&status, name).map(|value| value.to_string()).ok_or_else(|| format!("status has no figure '{name}'"))
    }

    /// A served device's answer to the program that controls it.
    fn control_call(&self, command: &str, options: &[String]) -> Result<String, String> {
        let mut program = Command::new(binary());
        program.arg(command).args(options).arg("--control").arg(self.control());
        let output = program.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).replace('\n', " "))
        }
    }
}

/// Name, state, place of rest in the kernel, and ticks of processor time of each thread: a device that hangs is killed,
/// and the log of the run is then all that is left to find out why.
fn threads_of(process: u32) -> String {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return String::new() };
    let lines = tasks.flatten().map(|task| {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default().trim().to_owned();
        let stat = read("stat");
        // Behind the name, which may have spaces: state, twelve more, ticks as the user and for the user.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |place: usize| fields.get(place).copied().unwrap_or("?");
        let (state, user, system) = (field(0), field(11), field(12));
        let (name, place, call) = (read("comm"), read("wchan"), read("syscall"));
        format!("{name}: {state}, {place}, call {call}, {user} and {system} ticks\n")
    });
    lines.collect()
}

/// The value of this name, wherever it stands.
fn find<'a>(value: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    match value {
        serde_json::Value::Object(map) => map.get(name).or_else(|| map.values().find_map(|inner| find(inner, name))),
        serde_json::Value::Array(items) => items.iter().find_map(|inner| find(inner, name)),
        _ => None,
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
