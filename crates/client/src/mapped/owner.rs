//! Who owns a slot: a process, identified by its number and its start, so that one that has the number later is
//! another.
//!
//! Numbers are those of one PID namespace: a lane is shared within one.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;

use super::memory::zeroed_by_fork;
use crate::LogError;

/// Bits of a process's number: the kernel's PID_MAX_LIMIT on 64-bit machines is 2^22.
const PID_BITS: u32 = 22;

/// Fields of `/proc/PID/stat` (proc(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stat {
    pid: u64,
    state: u8,
    parent: u64,
    threads: u64,
    /// Clock ticks from the machine's boot to the process's start.
    start: u64,
}

fn parse(line: &[u8]) -> Option<Stat> {
    // The name may hold anything, a bracket too: fields are counted behind the last one.
    let bracket = line.iter().rposition(|byte| *byte == b')')?;
    let number = |field: &[u8]| std::str::from_utf8(field).ok()?.parse().ok();
    let pid = number(line.split(|byte| *byte == b' ').next()?)?;
    let mut fields = line.get(bracket + 2..)?.split(|byte| byte.is_ascii_whitespace());
    let state = *fields.next()?.first()?;
    // State is field 3, the parent field 4; threads are field 20, the start is field 22.
    let parent = number(fields.next()?)?;
    let threads = number(fields.nth(15)?)?;
    Some(Stat { pid, state, parent, threads, start: number(fields.nth(1)?)? })
}

fn stat(process: &str) -> std::io::Result<Option<Stat>> {
    // On the stack: a writer may be within a signal handler, or short of memory.
    let mut bytes = [0; 1024];
    let len = File::open(process)?.read(&mut bytes)?;
    Ok(parse(&bytes[..len]))
}

/// The PID namespace of this process; 0: the system does not tell.
pub(super) fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// This process, as an owner.
///
/// # Errors
/// `/proc/self/stat` is not there, or is of another PID namespace.
#[inline]
pub fn me() -> Result<u64, LogError> {
    /// Where a fork can't be noticed otherwise, each call asks for the number.
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    match zeroed_by_fork() {
        Some(word) => match word.load(Ordering::Relaxed) {
            0 => find_me(word),
            owner => Ok(owner),
        },
        None => match KNOWN.load(Ordering::Relaxed) {
            owner if owner & ((1 << PID_BITS) - 1) == u64::from(std::process::id()) => Ok(owner),
            _ => find_me(&KNOWN),
        },
    }
}

#[cold]
fn find_me(known: &AtomicU64) -> Result<u64, LogError> {
    let failed = |why: &str| LogError::Ring(format!("a writer is identified by /proc/self/stat, and {why}"));
    let stat = stat("/proc/self/stat").map_err(|error| failed(&error.to_string()))?;
    let stat = stat.ok_or_else(|| failed("it is not as proc(5) says"))?;
    if stat.pid != u64::from(std::process::id()) || stat.pid >> PID_BITS != 0 || stat.start >> (64 - PID_BITS) != 0 {
        return Err(failed("it is of another PID namespace"));
    }
    let owner = stat.start << PID_BITS | stat.pid;
    known.store(owner, Ordering::Relaxed);
    Ok(owner)
}

/// Whether a process is no more, for certain: it stores nothing from now on.
pub fn is_dead(owner: u64) -> bool {
    let (pid, start) = ((owner & ((1 << PID_BITS) - 1)) as i32, owner >> PID_BITS);
    let is_gone = || kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH);
    if pid == 0 || is_gone() {
        return true;
    }
    let mut path = [0; 32];
    match stat(path_of(pid, &mut path)) {
        Ok(Some(stat)) if stat.start != start => true,
        // Killed, and not waited for by its parent. A first thread that ended alone is Z too, beside others.
        Ok(Some(stat)) => matches!(stat.state, b'Z' | b'X' | b'x') && stat.threads <= 1,
        // What can't be looked at (hidepid) counts as alive; what went just now does not.
        _ => is_gone(),
    }
}

/// Who started a process, or whose it has become since. `None`: it has ended.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = stat(path_of(i32::try_from(pid).ok()?, &mut [0; 32])).ok()??;
    u32::try_from(stat.parent).ok()
}

/// `/proc/PID/stat`, without memory of the heap.
fn path_of(pid: i32, buffer: &mut [u8; 32]) -> &str {
    use std::io::Write;
    let mut rest = &mut buffer[..];
    let written = write!(rest, "/proc/{pid}/stat");
    let left = rest.len();
    debug_assert!(written.is_ok());
    std::str::from_utf8(&buffer[..32 - left]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_line_of_stat_is_read_behind_the_last_bracket() {
        let line = b"77 (a) S 1) Z 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 3 0 998877 1 2";
        assert_eq!(parse(line), Some(Stat { pid: 77, state: b'Z', parent: 1, threads: 3, start: 998_877 }));
        for len in 0..line.len() - 5 {
            let cut = parse(&line[..len]);
            assert!(cut.is_none_or(|stat| stat.start != 998_877), "{len}");
        }
        assert_eq!(parse(b"\xff \xff) \xff"), None);
    }

    #[test]
    fn the_living_the_dead_and_those_of_the_same_number_are_told_apart() {
        let me = me().unwrap();
        assert!(!is_dead(me));
        assert!(is_dead(me + (1 << PID_BITS)), "another start is another process");
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let started = |pid: u32| {
            let stat = stat(&format!("/proc/{pid}/stat")).unwrap().unwrap();
            stat.start << PID_BITS | stat.pid
        };
        let owner = started(child.id());
        assert!(!is_dead(owner));
        child.kill().unwrap();
        // It is a zombie until it is waited for.
        let start = std::time::Instant::now();
        while !is_dead(owner) {
            assert!(start.elapsed().as_secs() < 10);
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_dead(owner));
    }
}
