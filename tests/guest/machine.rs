//! A guest: QEMU under plain emulation, its serial lines, and its end.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::archive::Archive;

/// Memory of a guest, in MiB.
const MEMORY_MIB: u32 = 1024;

/// A machine that is busy, or was stopped for a while, makes emulated timers late and processors stand still: no reason
/// for a kernel to panic, or to complain.
const BUSY: &str = "no_timer_check nosoftlockup rcupdate.rcu_cpu_stall_suppress=1";

/// Files made by `scripts/guest-kit.sh`.
#[derive(Clone, Debug)]
pub struct Kit {
    /// Its folder.
    pub folder: PathBuf,
}

/// Work of a guest.
pub struct Task<'a> {
    /// Jobs of `tests/guest/jobs`, and their arguments.
    pub jobs: &'a [String],
    /// Lines that an earlier guest kept with `keep`.
    pub kept: &'a [String],
    /// Which device is attached: the guest's checks differ.
    pub device: &'a str,
    /// The file `target`.
    pub target: &'a str,
    /// QEMU's arguments for the device.
    pub arguments: &'a [String],
    /// More of the kernel's command line.
    pub kernel: &'a str,
    /// A folder for `/run/guest`.
    pub folder: Option<&'a Path>,
    /// Programs for `/run/guest`.
    pub programs: &'a [PathBuf],
}

/// A guest that runs. It is killed when this is dropped.
pub struct Machine {
    process: Child,
    lines: Receiver<String>,
    console: PathBuf,
}

/// Result of waiting for a line.
pub enum Heard {
    /// A line.
    Line(String),
    /// The machine has ended.
    Gone,
    /// Nothing, within the time.
    Nothing,
}

/// A command that is killed when this process ends, however it ends, where `setpriv` can arrange that.
pub fn tethered(program: &Path) -> Command {
    let has_setpriv = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("setpriv").is_file()));
    if has_setpriv {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    }
}

impl Machine {
    /// Starts a guest. `folder` holds its disks and its console, in files that begin with `name`.
    pub fn start(kit: &Kit, task: &Task<'_>, folder: &Path, name: &str) -> std::io::Result<Self> {
        let jobs = folder.join(format!("{name}.jobs"));
        let mut archive = Archive::new();
        archive.scripts(&tidewater_tests::root().join("tests/guest"), "")?;
        archive.file("job", format!("{}\n", task.jobs.join("\n")).as_bytes());
        archive.file("device", format!("{}\n", task.device).as_bytes());
        archive.file("target", format!("{}\n", task.target).as_bytes());
        archive.file("kept", task.kept.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes());
        for program in task.programs {
            let file = program.file_name().and_then(|name| name.to_str()).expect("a program has a name");
            archive.file(file, &std::fs::read(program)?);
        }
        if let Some(folder) = task.folder {
            archive.folder(folder, folder.file_name().and_then(|name| name.to_str()).unwrap_or("folder"))?;
        }
        archive.write(&jobs)?;

        let console = folder.join(format!("{name}.console"));
        let file = |part: &str| kit.folder.join(part).display().to_string();
        // Shared memory, or a vfio-user server gets no descriptors of it. iomem=relaxed: BARs of a bound device can be
        // mapped.
        let mut command = tethered(&kit.folder.join("qemu"));
        command
            .args(["-accel", "tcg,thread=multi", "-machine", "q35,memory-backend=memory", "-cpu", "max", "-smp", "2"])
            .args(["-m", &MEMORY_MIB.to_string()])
            .args(["-object", &format!("memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on")])
            .args(["-nodefaults", "-no-reboot", "-display", "none"])
            .args(["-serial", &format!("file:{}", console.display()), "-serial", "stdio"])
            .args(["-kernel", &file("vmlinux"), "-initrd", &file("initrd")])
            .args(["-append", &format!("console=ttyS0 panic=-1 iomem=relaxed {BUSY} {}", task.kernel)])
            .args(["-drive", &format!("if=none,id=root,file={},format=raw,readonly=on", file("root.img"))])
            .args(["-device", "virtio-blk-pci,drive=root"])
            .args(["-drive", &format!("if=none,id=jobs,file={},format=raw,readonly=on", jobs.display())])
            .args(["-device", "virtio-blk-pci,drive=jobs"])
            .args(task.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.join(format!("{name}.qemu")))?);
        let mut process = command.spawn()?;
        let output = process.stdout.take().expect("the standard output is a pipe");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            // Bytes that are no text come from a broken guest: they make a line that does not parse.
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { break };
                if send.send(String::from_utf8_lossy(&line).trim_end().to_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, lines, console })
    }

    /// The guest's next line, until `deadline`.
    pub fn hear(&self, deadline: Instant) -> Heard {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Heard::Line(line),
            Err(RecvTimeoutError::Timeout) => Heard::Nothing,
            Err(RecvTimeoutError::Disconnected) => Heard::Gone,
        }
    }

    /// Says a line to the guest. A guest that is gone doesn't hear it.
    pub fn say(&mut self, line: &str) {
        if let Some(input) = self.process.stdin.as_mut() {
            // The next `hear` tells of an end.
            let _ = input.write_all(format!("{line}\n").as_bytes()).and_then(|()| input.flush());
        }
    }

    /// Waits for the machine to switch itself off. Returns whether it did, by itself and well.
    pub fn end(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < deadline => {
                    // Its lines end with it: wait for that.
                    if !matches!(self.hear(deadline), Heard::Line(_)) {
                        std::thread::yield_now();
                    }
                }
                _ => return false,
            }
        }
    }

    /// Output of QEMU, and the last lines of the console.
    pub fn console(&self, lines: usize) -> String {
        let read = |path: &Path| {
            std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
        };
        let console = read(&self.console);
        let all: Vec<&str> = console.lines().collect();
        let from = all.len().saturating_sub(lines);
        let mut text = all[from..].join("\n");
        let qemu = read(&self.console.with_extension("qemu"));
        if !qemu.trim().is_empty() {
            text.push_str(&format!("\nQEMU said: {}", qemu.trim()));
        }
        text
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
