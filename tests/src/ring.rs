//! A small drive that is served with a mapped ring, for tests of its clients.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tidewater_client::Level;
use tidewater_files::{EmbeddedFiles, Globs, Setup};

use crate::tidewater;

/// Bytes of a lane's ring.
pub const RING: u64 = 16 << 10;

/// A device. It is killed (SIGKILL) when this is dropped.
#[derive(Debug)]
pub struct Device {
    /// Its process.
    pub child: Child,
    /// Where its files are.
    pub folder: PathBuf,
    /// Its output before it served.
    pub said: String,
}

impl Device {
    /// How one is started in a folder, without a ring.
    pub fn command(folder: &Path, more: &[&str]) -> Command {
        let mut command = tidewater(folder);
        command.args([
            "serve",
            "--profile",
            "tiny",
            "--image",
            "drive",
            "--control",
            "control.sock",
            "--vfio-user",
            "f0.sock",
        ]);
        for set in [
            "serve.timing=none",
            "memory.sram.size=96KiB",
            "memory.sram.survives=by-capacitors",
            "fast.size=32KiB",
            "fast.queue_size=4KiB",
            "fast.log_size=512KiB",
            "fast.lanes=2",
            "fast.partial_after=1ms",
            "fast.on_wrap=overwrite-oldest",
        ] {
            command.args(["--set", set]);
        }
        command.args(more);
        command
    }

    /// Starts one that lends its ring, the file `ring`.
    pub fn start(folder: &Path, more: &[&str]) -> Device {
        Device::start_plain(folder, &[&["--ring", "ring"], more].concat())
    }

    /// Starts one that lends no ring.
    pub fn start_plain(folder: &Path, more: &[&str]) -> Device {
        Device::start_as(folder, more, |_| {})
    }

    /// As [`Device::start_plain`]; `with` adds to how it is started.
    pub fn start_as(folder: &Path, more: &[&str], with: impl FnOnce(&mut Command)) -> Device {
        let errors = OpenOptions::new().create(true).append(true).open(folder.join("stderr")).expect("a folder");
        let mut command = Device::command(folder, more);
        with(&mut command);
        Device::served(command.stdout(Stdio::piped()).stderr(errors).spawn().expect("the binary starts"), folder)
    }

    /// One that was started in `folder` with its standard output piped and its errors in `stderr`, when hosts may come.
    pub fn served(mut child: Child, folder: &Path) -> Device {
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("SIGTERM") {
            let len = stdout.read_line(&mut said).expect("it prints UTF-8");
            let errors = || std::fs::read_to_string(folder.join("stderr")).unwrap_or_default();
            assert!(len > 0, "it does not serve: {}", errors());
        }
        Device { child, folder: folder.to_owned(), said }
    }

    /// The target of its log.
    pub fn target(&self) -> String {
        format!("vfio-user:{}", self.folder.join("f0.sock").display())
    }

    /// Files of this process on its log, at RING.
    pub fn files(&self) -> EmbeddedFiles {
        let (globs, level, owners) = (Globs::from_text("/**"), Some(Level::Ring), Vec::new());
        let setup = Setup { target: self.target(), lane: 0, level, globs, owners, forget: false, adopt: false };
        EmbeddedFiles::open(&setup).expect("a log").0
    }

    /// Ends it (SIGKILL).
    pub fn kill(mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process can be waited for");
    }

    /// A crash of the machine, as far as the ring is concerned: its memory is gone, and the device starts anew.
    pub fn restart_without_ring(self, more: &[&str]) -> Device {
        let folder = self.folder.clone();
        self.kill();
        std::fs::remove_file(folder.join("ring")).expect("the file can be removed");
        Device::start(&folder, more)
    }

    /// Its process.
    pub fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id() as i32)
    }

    /// Its standard error.
    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
