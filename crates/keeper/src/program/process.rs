//! Processes of a command: started, asked to end, killed with all that they have started, and waited for.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, getppid};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Becomes this command, which ends when its supervisor does.
///
/// # Errors
/// It can't be executed, in words.
pub fn become_command(supervisor: i32, command: &[String]) -> String {
    let Some((program, arguments)) = command.split_first() else { return "no command".into() };
    if let Err(errno) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        return format!("can't end with the supervisor: {}", errno.desc());
    }
    if getppid().as_raw() != supervisor {
        return "the supervisor has ended".into();
    }
    format!("{program}: {}", Command::new(program).args(arguments).exec())
}

/// Starts a command in a process group of its own.
///
/// # Errors
/// In words.
pub fn start(command: &[String], environment: &[(&str, String)]) -> Result<Pid, String> {
    let failed = |error: std::io::Error| format!("can't be started: {error}");
    let job = crate::job::Job::Exec { supervisor: getpid().as_raw(), command: command.to_vec() };
    let job = serde_json::to_string(&job).map_err(|error| error.to_string())?;
    // Its own file may have been replaced by a newer one.
    let mut this = Command::new("/proc/self/exe");
    this.arg(job).envs(environment.iter().map(|(name, value)| (name, value))).process_group(0);
    let child = this.spawn().map_err(failed)?;
    Ok(Pid::from_raw(child.id() as i32))
}

/// Takes the processes that have ended. What has become of `main`, if that is one of them, and whether any is left.
pub fn reap(main: Option<Pid>) -> (Option<String>, bool) {
    let mut how = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if Some(pid) == main => how = Some(format!("exit status {code}")),
            Ok(WaitStatus::Signaled(pid, signal, _)) if Some(pid) == main => how = Some(signal.to_string()),
            Ok(WaitStatus::StillAlive) => return (how, true),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return (how, false),
        }
    }
}

/// SIGKILL for all processes below this one. Orphans among them are its children, so none gets away. False: one is
/// another user's.
pub fn kill_all() -> bool {
    let mut parents = vec![getpid()];
    let all = parents_of_all();
    let mut may = true;
    while let Some(parent) = parents.pop() {
        for (pid, _) in all.iter().filter(|(_, of)| *of == parent) {
            may &= kill(*pid, Signal::SIGKILL) != Err(Errno::EPERM);
            parents.push(*pid);
        }
    }
    may
}

/// Each process and its parent.
fn parents_of_all() -> Vec<(Pid, Pid)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parent = |pid: i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may hold anything.
        let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
        Some((Pid::from_raw(pid), Pid::from_raw(fields.nth(1)?.parse().ok()?)))
    };
    pids.filter_map(parent).collect()
}
