//! A served drive that lends its ring, for databases' logs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::{Place, process, witness::Witness};

/// The drive: the board of the X-SSD paper with a ring in its DRAM, as fast as this machine is. A small ring wraps
/// around often.
pub const SETTINGS: &[&str] = &[
    "serve.timing=none",
    "fast.memory=fast-dram",
    "fast.log_size=256MiB",
    "fast.on_wrap=wait-for-trim",
    "fast.partial_after=100ms",
];

/// Memory of a device's ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Memory that survives no loss of power.
    Volatile,
    /// Memory that counts as persistent.
    Persistent,
    /// Memory that survives none, with a copy on a disk.
    Copied,
}

/// A device with its image and its ring, which outlive it.
#[derive(Debug)]
pub struct Device {
    binary: PathBuf,
    place: Place,
    ring: PathBuf,
    ring_size: String,
    memory: Memory,
    /// Further options of its start.
    more: Vec<String>,
    /// Other devices that the log may be on.
    others: Vec<String>,
    child: Option<Child>,
}

impl Device {
    /// A new one, in the place's folder; its ring is the file `ring`. It doesn't run yet.
    pub fn new(binary: &Path, place: &Place, ring: &Path, ring_size: &str, memory: Memory) -> Device {
        Device {
            binary: binary.to_owned(),
            place: place.clone(),
            ring: ring.to_owned(),
            ring_size: ring_size.to_owned(),
            memory,
            more: Vec::new(),
            others: Vec::new(),
            child: None,
        }
    }

    /// The same, started with more.
    #[must_use]
    pub fn with(mut self, more: Vec<String>) -> Device {
        self.more = more;
        self
    }

    /// Another device that the log may be on.
    pub fn add(&mut self, other: &Device) {
        self.others.push(other.target());
    }

    /// The program that is device, supervisor and recovery.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// Its address, and those of others that the log may be on.
    pub fn target(&self) -> String {
        let own = format!("vfio-user:{}", self.place.device().join("v").display());
        [&[own], &self.others[..]].concat().join(",")
    }

    /// Its control socket.
    pub fn control(&self) -> PathBuf {
        self.place.device().join("c")
    }

    /// The drive's image.
    pub fn image(&self) -> PathBuf {
        self.place.device().join("drive")
    }

    /// The copy of its ring.
    pub fn copy(&self) -> PathBuf {
        self.place.device().join("copy")
    }

    /// Its process; 0 when it doesn't run.
    pub fn process(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Starts it, and waits until it listens.
    ///
    /// # Errors
    /// It ends: what it said.
    pub fn start(&mut self, witness: Option<&Witness>) -> Result<(), String> {
        let folder = self.place.device();
        let mut command = self.place.command("device", &self.binary)?;
        command.args(["serve", "--profile", "villars", "--size", "2GiB", "--image"]).arg(self.image());
        command
            .arg("--vfio-user")
            .arg(folder.join("v"))
            .arg("--control")
            .arg(self.control())
            .arg("--ring")
            .arg(&self.ring);
        for setting in SETTINGS {
            command.args(["--set", setting]);
        }
        command.arg("--set").arg(format!("fast.size={}", self.ring_size));
        match self.memory {
            Memory::Volatile => {}
            Memory::Persistent => drop(command.arg("--ring-persistent")),
            Memory::Copied => drop(command.arg("--ring-copy").arg(self.copy())),
        }
        command.args(&self.more);
        if let Some(witness) = witness {
            witness.attach_tracking(&mut command, &self.place.shadows());
        }
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut said = String::new();
        // Its last line of greeting names the signal that ends it.
        while !said.contains("SIGTERM") {
            if !matches!(stdout.read_line(&mut said), Ok(1..)) {
                let status = child.wait().map_err(|error| error.to_string())?;
                return Err(format!("the device ended with {status}: {said} {}", self.place.said("device")));
            }
        }
        // Whatever it says from here on goes nowhere, and must not stop it.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        self.child = Some(child);
        Ok(())
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill_tree(&[child.id()]);
            let _ = child.wait();
        }
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// It doesn't end, or not well.
    pub fn stop(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        process::signal(child.id(), nix::sys::signal::Signal::SIGTERM);
        super::ended_well(&mut child, &self.place, "device")
    }

    /// The ring's memory has lost what it held.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn discard_ring(&self) -> Result<(), String> {
        std::fs::remove_file(&self.ring).map_err(|error| format!("{}: {error}", self.ring.display()))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.kill();
    }
}
