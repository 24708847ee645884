//! Three machines with a device each, in one group. The first has the database; the second follows the log into a copy
//! of its files, as `docs/guide/postgresql-machines.md` and its likes say.

use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use nix::sys::signal::Signal;

use super::device::{Device, Memory};
use super::{Place, ended_well, process};

/// The machines: their folders, each with its device.
#[derive(Debug)]
pub struct Group {
    machines: Vec<(Place, Device)>,
    follower: Option<Child>,
}

/// Each group of this process has ports of its own.
fn addresses() -> [String; 3] {
    static PORT: AtomicU16 = AtomicU16::new(24_000);
    let (host, port) = (crate::own_address(), PORT.fetch_add(3, Ordering::Relaxed));
    [port, port + 1, port + 2].map(|port| format!("{host}:{port}"))
}

impl Group {
    /// Starts the devices of three machines, the first of which is `place`'s, and forms a group of them.
    ///
    /// # Errors
    /// The message of a device.
    pub fn start(binary: &Path, place: &Place, is_lazy: bool) -> Result<Group, String> {
        let name = place.folder().file_name().unwrap_or_default().display().to_string();
        let places = [place.clone(), place.beside(&format!("{name}b"))?, place.beside(&format!("{name}c"))?];
        let at = addresses();
        let mut machines = Vec::new();
        for (node, place) in places.into_iter().enumerate() {
            let mut more = vec!["--node".to_owned(), node.to_string(), "--peer-listen".to_owned(), at[node].clone()];
            for (peer, address) in at.iter().enumerate().filter(|(peer, _)| *peer != node) {
                more.extend(["--peer".to_owned(), format!("{peer}={address}")]);
            }
            if node == 1 {
                more.push("--hold-log".to_owned());
            }
            let ring = place.device().join("ring");
            let mut device = Device::new(binary, &place, &ring, "4MiB", Memory::Volatile).with(more);
            device.start(None)?;
            machines.push((place, device));
        }
        let group = Group { machines, follower: None };
        let mode = if is_lazy { "lazy" } else { "quorum" };
        for node in [2, 1, 0] {
            let primary: &[&str] = if node == 0 { &["--primary"] } else { &[] };
            group.order(node, "form", &[&["--members", "0,1,2", "--mode", mode], primary].concat())?;
        }
        Ok(group)
    }

    /// The device of a machine.
    pub fn device(&self, node: usize) -> &Device {
        &self.machines[node].1
    }

    /// The folder of a machine.
    pub fn place(&self, node: usize) -> &Place {
        &self.machines[node].0
    }

    fn order(&self, node: usize, what: &str, more: &[&str]) -> Result<(), String> {
        let (place, device) = &self.machines[node];
        let control = device.control().display().to_string();
        place.run(what, device.binary(), &[&["group", what, "--control", &control], more].concat())
    }

    /// Copies the files of the first machine's database with `copy`, and has the second one follow from there.
    ///
    /// # Errors
    /// The message of a step that failed.
    pub fn follow(&mut self, copy: impl FnOnce(&Place, &Place) -> Result<(), String>) -> Result<(), String> {
        // The position comes first: the log has all that the copy lacks.
        let position = self.position()?;
        copy(self.place(0), self.place(1))?;
        let (place, device) = &self.machines[1];
        let mut command = place.command("follow", device.binary())?;
        command.args(["recover", "--device", &device.target(), "--onto", &self.onto()]);
        let mut child = command
            .args(["--copied-at", &position.to_string(), "--follow"])
            .spawn()
            .map_err(|error| format!("the follower: {error}"))?;
        super::patiently(&mut child, place, "follow", || {
            if place.said("follow").contains("following from") { Ok(()) } else { Err("it follows".to_owned()) }
        })?;
        self.follower = Some(child);
        Ok(())
    }

    /// The number that a command of a machine prints.
    fn number(&self, node: usize, line: &[&str]) -> Result<u64, String> {
        let (place, device) = &self.machines[node];
        let mut command = place.command("tail", device.binary())?;
        let output = command.args(line).stdout(Stdio::piped()).output().map_err(|error| format!("tail: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let number: Result<u64, _> = text.trim().parse();
        number.map_err(|_| format!("{line:?}: {text} {}", place.said("tail")))
    }

    /// Where the log of the first machine ends.
    ///
    /// # Errors
    /// The message of its device.
    pub fn log_end(&self) -> Result<u64, String> {
        let control = self.machines[0].1.control().display().to_string();
        self.number(0, &["group", "status", "--control", &control, "--log-end"])
    }

    fn position(&self) -> Result<u64, String> {
        let end = self.log_end()?.to_string();
        let target = self.machines[1].1.target();
        self.number(1, &["tail", "--device", &target, "--position", "--at-least", &end, "--timeout", "600s"])
    }

    fn onto(&self) -> String {
        format!("{}={}", self.place(0).data().display(), self.place(1).data().display())
    }

    /// Lets the replicas' devices stand still, or go on.
    pub fn signal_replicas(&self, signal: Signal) {
        self.machines[1..].iter().for_each(|(_, device)| process::signal(device.process(), signal));
    }

    /// SIGKILL for the first machine's device.
    pub fn kill_primary(&mut self) {
        self.machines[0].1.kill();
    }

    /// Removes what the first machine had, on disk and in memory. Nothing of it runs any more.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove_primary(&self) -> Result<(), String> {
        let folder = self.place(0).folder();
        std::fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
    }

    /// The second machine becomes primary, and brings its copy to the end of the log. From then on its device stands
    /// for the group.
    ///
    /// # Errors
    /// The message of a step that failed.
    pub fn recover(&mut self, is_forced: bool) -> Result<(), String> {
        self.order(1, "promote", if is_forced { &["--force"] } else { &[] })?;
        if let Some(mut follower) = self.follower.take() {
            ended_well(&mut follower, self.place(1), "follow")?;
        }
        let (place, device) = &self.machines[1];
        place.run("recover", device.binary(), &["recover", "--device", &device.target(), "--onto", &self.onto()])?;
        let [_, (_, b), (_, c)] = &mut self.machines[..] else { return Err("three machines".to_owned()) };
        b.add(c);
        Ok(())
    }

    /// Removes the folders of all machines.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove(mut self) -> Result<(), String> {
        for (place, device) in &mut self.machines {
            device.kill();
            let folder = place.folder();
            if folder.exists() {
                std::fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(mut follower) = self.follower.take() {
            process::kill_tree(&[follower.id()]);
            let _ = follower.wait();
        }
    }
}
