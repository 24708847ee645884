//! The device under test: what is attached to a guest, and what can be done to it from outside.

use std::io;
use std::path::{Path, PathBuf};

use crate::machine::Machine;

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// QEMU's own: shows that a job is right about the guest's tools and kernel.
    Emulated,
}

impl Kind {
    /// As in `--device` and in the guest's file `device`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Emulated => "emulated",
        }
    }

    /// The opposite of `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Emulated].into_iter().find(|kind| kind.name() == name)
    }
}

/// What a scenario asks of its device.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Namespaces, in MiB each.
    pub namespaces: &'static [u64],
    /// With controller memory buffer and persistent memory region.
    pub memory_buffers: bool,
    /// As a target of NVMe/TCP, and not as a PCI function.
    pub tcp: bool,
    /// An emulated device, which can't be told faults, fails reads of a place (`tests/guest/jobs/faults.sh`).
    pub unreadable: bool,
}

/// A device with its image, which outlives guests.
pub struct Device {
    kind: Kind,
    setup: Setup,
    folder: PathBuf,
}

impl Device {
    /// A new device with empty media. Its files are in `folder`.
    pub fn new(kind: Kind, setup: Setup, folder: &Path) -> io::Result<Self> {
        let device = Self { kind, setup, folder: folder.to_path_buf() };
        for (index, mib) in setup.namespaces.iter().enumerate() {
            let image = device.image(index);
            std::fs::File::create(image)?.set_len(mib << 20)?;
        }
        Ok(device)
    }

    fn image(&self, namespace: usize) -> PathBuf {
        self.folder.join(format!("namespace{}.img", namespace + 1))
    }

    /// Its kind's name.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// QEMU's arguments.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = [
            "-device",
            "nvme-subsys,id=subsystem,nqn=tidewater-guest",
            "-device",
            "pcie-root-port,id=port0,chassis=1,slot=1",
        ]
        .map(str::to_owned)
        .into();
        let mut controller = "nvme,id=controller,bus=port0,subsys=subsystem,serial=EMULATED1,mdts=7".to_owned();
        if self.setup.memory_buffers {
            let file = self.folder.join("persistent-memory-region");
            arguments.push("-object".to_owned());
            arguments.push(format!("memory-backend-file,id=region,share=on,mem-path={},size=16M", file.display()));
            controller.push_str(",cmb_size_mb=16,pmrdev=region");
        }
        arguments.push("-device".to_owned());
        arguments.push(controller);
        for index in 0..self.setup.namespaces.len() {
            arguments.push("-drive".to_owned());
            let file = self.image(index).display().to_string();
            arguments.push(if self.setup.unreadable {
                // 64 KiB from 2 MiB, in sectors of 512 bytes, one rule for each.
                let rules: String = (0..128)
                    .map(|rule| {
                        let rule_of = format!("file.inject-error.{rule}");
                        format!(",{rule_of}.event=none,{rule_of}.iotype=read,{rule_of}.sector={}", 4096 + rule)
                    })
                    .collect();
                format!("if=none,id=medium{index},format=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={file}{rules}")
            } else {
                format!("if=none,id=medium{index},file={file},format=raw,discard=unmap")
            });
            arguments.push("-device".to_owned());
            arguments.push(format!("nvme-ns,drive=medium{index},bus=controller,nsid={}", index + 1));
        }
        arguments
    }

    /// The guest's file `target`: address, port, and name of a target of NVMe/TCP.
    pub fn target(&self) -> String {
        match self.kind {
            // The kernel's own target, inside of the guest.
            Kind::Emulated => "127.0.0.1 4420 nqn.2026-01.test:emulated".to_owned(),
        }
    }

    /// Makes it ready for a guest.
    pub fn start(&mut self) -> Result<(), String> {
        match self.kind {
            // It lives in the guest's QEMU.
            Kind::Emulated => Ok(()),
        }
    }

    /// Kills device and guest at once, as a loss of the host would.
    pub fn kill(&mut self, machine: Machine) {
        drop(machine);
    }

    /// What it said.
    pub fn log(&self) -> String {
        String::new()
    }

    /// Carries out what a guest asks for.
    pub fn act(&mut self, words: &[String]) -> Result<String, String> {
        Err(format!("{} can't: {}", self.kind.name(), words.join(" ")))
    }
}
