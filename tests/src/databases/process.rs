//! Processes: as another user, and killed with all that they started.

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Who runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// Its group's.
    pub gid: u32,
}

impl User {
    /// The user of this name, where we are root and so can become it; `None` where we are not, and so run all
    /// ourselves.
    ///
    /// # Errors
    /// We are root, and there is no such user.
    pub fn instead_of_root(name: &str) -> Result<Option<User>, String> {
        if !nix::unistd::geteuid().is_root() {
            return Ok(None);
        }
        match nix::unistd::User::from_name(name) {
            Ok(Some(user)) => Ok(Some(User { uid: user.uid.as_raw(), gid: user.gid.as_raw() })),
            Ok(None) => Err(format!("there is no user {name}")),
            Err(error) => Err(format!("the user {name}: {error}")),
        }
    }
}

/// Has a command run as this user, who has no home that matters.
pub fn as_user(command: &mut Command, user: User) {
    command.uid(user.uid).gid(user.gid).env("HOME", "/nonexistent").env_remove("XDG_RUNTIME_DIR");
}

/// Sends a signal. A process that has gone is none of our business.
pub fn signal(process: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(process as i32), signal);
}

/// The state and the parent of a process.
fn stat(process: u32) -> Option<(char, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// The processes that these started, and those that they started.
pub fn descendants(roots: &[u32]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("a proc file system");
    let all: Vec<(u32, u32)> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|process| Some((process, stat(process)?.1)))
        .collect();
    let mut found: Vec<u32> = Vec::new();
    let mut parents = roots.to_vec();
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|(_, of)| *of == parent).map(|(process, _)| *process);
        for child in children {
            found.push(child);
            parents.push(child);
        }
    }
    found
}

/// SIGKILL for these and for all that they started, and waits until they are gone.
pub fn kill_tree(roots: &[u32]) {
    // Who is stopped starts no more.
    for root in roots {
        signal(*root, Signal::SIGSTOP);
    }
    let all: Vec<u32> = roots.iter().copied().chain(descendants(roots)).collect();
    for process in &all {
        signal(*process, Signal::SIGKILL);
    }
    gone(&all);
}

/// Makes this process the parent of orphans of its children, so that [`gone`] can reap them: PostgreSQL takes a zombie
/// for a running server.
///
/// # Errors
/// The system's.
pub fn adopt() -> Result<(), String> {
    nix::sys::prctl::set_child_subreaper(true).map_err(|error| error.to_string())
}

/// Waits until these processes do nothing more, and sees off those that are orphans.
pub fn gone(processes: &[u32]) {
    let us = std::process::id();
    let orphans = processes.get(1..).unwrap_or_default();
    let lives = |process: &u32| {
        let is_orphan = orphans.contains(process);
        match stat(*process) {
            None => false,
            // A child that we started is reaped by its owner here.
            Some(('Z', _)) if !is_orphan => false,
            Some(('Z', parent)) if parent == us => {
                let _ =
                    nix::sys::wait::waitpid(Pid::from_raw(*process as i32), Some(nix::sys::wait::WaitPidFlag::WNOHANG));
                true
            }
            Some(_) => true,
        }
    };
    crate::wait::until(|| format!("processes {processes:?} outlive SIGKILL"), || !processes.iter().any(lives));
}

/// The processor time that a process has used, in seconds: user and system. `None` when it has gone.
pub fn cpu_seconds(process: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace().skip(11);
    let ticks: f64 = fields.next()?.parse::<f64>().ok()? + fields.next()?.parse::<f64>().ok()?;
    // USER_HZ is 100 on Linux wherever the kernel reports it to user space.
    Some(ticks / 100.0)
}
