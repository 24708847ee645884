//! The control socket of a served device: one request a line, one answer a line, both JSON objects.
//!
//! `tidewater fault` and `tidewater status` speak it; docs/reference/control.md lists it for others.

use crate::runtime;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use tidewater_base::Duration;
use tidewater_base::faults::{At, Fault as CommandFault};
use tidewater_core::host_memory::HostFault;
use tidewater_core::subsystem::Fault;
use tidewater_ipc::socket_error;

/// Bytes of a request.
const LINE_MAX: u64 = 64 << 10;
/// Bytes of an answer.
const ANSWER_MAX: u64 = 16 << 20;
/// How long no connection is taken after the system had no descriptor, or no memory, for one.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Connections at once; one more waits.
const CONNECTIONS_MAX: usize = 16;

/// What can be asked of a served device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The device's state: an object.
    Status,
    /// Metrics in Prometheus' text format, in `text`.
    Metrics,
    /// Flushes, shuts down cleanly, and ends the process.
    Stop,
    /// Cuts the power inside the engine: what was only in volatile memory is gone. After `off_ms` it comes back.
    PowerCut {
        /// Milliseconds without power.
        #[serde(default)]
        off_ms: u64,
    },
    /// As `power-cut`, later.
    PowerCutAt {
        /// When, as `write:100`.
        at: At,
        /// Milliseconds without power.
        #[serde(default)]
        off_ms: u64,
    },
    /// Commands of hosts are late, fail, or have their data lost, misplaced or changed.
    Fault {
        /// The fault.
        fault: CommandFault,
    },
    /// The link of a function goes down: its client is disconnected.
    LinkLoss {
        /// The function.
        #[serde(default)]
        function: u8,
    },
    /// Commands that touch these blocks end with a status.
    FaultStatus {
        /// Namespace.
        #[serde(default = "one")]
        nsid: u32,
        /// First block.
        first: u64,
        /// The block behind the last.
        end: u64,
        /// Status code type and status code, as 0x281.
        status: u16,
        /// How many commands; 0: until cleared.
        #[serde(default)]
        count: u32,
    },
    /// The next completions come late.
    FaultDelay {
        /// The function.
        #[serde(default)]
        function: u8,
        /// By so many nanoseconds.
        by_ns: u64,
        /// How many.
        #[serde(default = "one")]
        count: u32,
    },
    /// The next completions never come.
    FaultLose {
        /// The function.
        #[serde(default)]
        function: u8,
        /// How many.
        #[serde(default = "one")]
        count: u32,
    },
    /// The next completions come twice.
    FaultDuplicate {
        /// The function.
        #[serde(default)]
        function: u8,
        /// How many.
        #[serde(default = "one")]
        count: u32,
    },
    /// Controller Fatal Status is set.
    FaultFatal {
        /// The function.
        #[serde(default)]
        function: u8,
    },
    /// The next shutdown does not end.
    FaultStuckShutdown {
        /// The function.
        #[serde(default)]
        function: u8,
    },
    /// The host memory buffer fails at the next accesses.
    FaultHostMemory {
        /// What.
        what: HostMemoryFault,
        /// Of `slow`: by so many nanoseconds.
        #[serde(default)]
        by_ns: u64,
        /// At how many accesses.
        #[serde(default = "one")]
        count: u32,
    },
    /// The armed faults, in `faults`: each as the request that arms what is left of it.
    FaultList,
    /// Clears all armed faults.
    FaultClear,
    /// Puts a function that is alone into a group with its peers.
    GroupForm {
        /// The function.
        #[serde(default)]
        function: u8,
        /// Nodes of the group, this one included: the same on each member.
        members: Vec<u8>,
        /// How replicas acknowledge.
        mode: GroupMode,
        /// Of a quorum: how many members, the primary counted, must have a byte.
        #[serde(default)]
        k: u8,
        /// Whether this node becomes primary.
        #[serde(default)]
        primary: bool,
    },
    /// Makes a member primary; with members and mode, of a new group.
    GroupPromote {
        /// The function.
        #[serde(default)]
        function: u8,
        /// Nodes of the new group.
        #[serde(default)]
        members: Vec<u8>,
        /// How replicas of the new group acknowledge; without it, the group stays.
        #[serde(default)]
        mode: Option<GroupMode>,
        /// As in `group-form`.
        #[serde(default)]
        k: u8,
        /// Members that do not answer are dead: bytes that only they had are lost.
        #[serde(default)]
        force: bool,
        /// The counter of its epoch is to be above this.
        #[serde(default)]
        above: u64,
        /// It is refused once the device's clock (`clock_ms` of an earlier answer) is here: what a stopped process has
        /// to say is of no use later.
        #[serde(default)]
        before_ms: Option<u64>,
    },
    /// Sets the leader deadline of a primary: it acknowledges nothing behind it.
    GroupLead {
        /// The function.
        #[serde(default)]
        function: u8,
        /// The primary's epoch, as `3.0`. Of no use without `for_ms`, and with 0.
        #[serde(default)]
        epoch: String,
        /// The deadline, in milliseconds from `from_ms` on, at most a day; 0: it has passed. Without it the function
        /// acknowledges without a deadline.
        #[serde(default)]
        for_ms: Option<u64>,
        /// The device's clock, as `clock_ms` of an earlier answer said; without it: now.
        #[serde(default)]
        from_ms: Option<u64>,
    },
    /// Makes a primary a secondary, which waits for the next primary.
    GroupDemote {
        /// The function.
        #[serde(default)]
        function: u8,
    },
    /// Takes a function out of its group; it keeps its log.
    GroupLeave {
        /// The function.
        #[serde(default)]
        function: u8,
    },
    /// Allows a secondary to discard its log as far as that is needed to follow the primary.
    GroupRebuild {
        /// The function.
        #[serde(default)]
        function: u8,
    },
}

/// How replicas acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupMode {
    /// They do not: the primary alone does.
    Lazy,
    /// All of them.
    Eager,
    /// All of them, each forwarding to the next.
    Chain,
    /// A number of members.
    Quorum,
}

/// What happens to the memory that a host lends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostMemoryFault {
    /// It is gone, until the host lends again.
    Withdrawn,
    /// What is read has been changed.
    Corrupted,
    /// It answers late.
    Slow,
}

fn one() -> u32 {
    1
}

impl Request {
    /// The fault that the firmware injects, if it is one of those.
    pub fn fault(&self) -> Option<Fault> {
        Some(match *self {
            Request::FaultStatus { nsid, first, end, status, count } => {
                Fault::Status { nsid, blocks: (first, end), status, count }
            }
            Request::FaultDelay { function, by_ns, count } => {
                // A day is longer than any driver waits.
                Fault::Delay { function, by: Duration::from_ns(by_ns.min(86_400_000_000_000)), count }
            }
            Request::FaultLose { function, count } => Fault::Lose { function, count },
            Request::FaultDuplicate { function, count } => Fault::Duplicate { function, count },
            Request::FaultFatal { function } => Fault::Fatal { function },
            Request::FaultStuckShutdown { function } => Fault::StuckShutdown { function },
            Request::FaultHostMemory { what, by_ns, count } => {
                let fault = match what {
                    HostMemoryFault::Withdrawn => HostFault::Withdrawn,
                    HostMemoryFault::Corrupted => HostFault::Corrupted,
                    HostMemoryFault::Slow => HostFault::Slow(Duration::from_ns(by_ns.min(86_400_000_000_000))),
                };
                Fault::HostMemory { fault, count }
            }
            Request::FaultClear => Fault::Clear,
            Request::Status
            | Request::Fault { .. }
            | Request::FaultList
            | Request::Metrics
            | Request::Stop
            | Request::PowerCut { .. }
            | Request::PowerCutAt { .. }
            | Request::GroupForm { .. }
            | Request::GroupPromote { .. }
            | Request::GroupDemote { .. }
            | Request::GroupLeave { .. }
            | Request::GroupRebuild { .. }
            | Request::GroupLead { .. }
            | Request::LinkLoss { .. } => {
                return None;
            }
        })
    }
}

impl From<Fault> for Request {
    /// The request that arms a fault.
    fn from(fault: Fault) -> Request {
        let ns = |time: Duration| time.as_ps() / 1_000;
        match fault {
            Fault::Status { nsid, blocks: (first, end), status, count } => {
                Request::FaultStatus { nsid, first, end, status, count }
            }
            Fault::Delay { function, by, count } => Request::FaultDelay { function, by_ns: ns(by), count },
            Fault::Lose { function, count } => Request::FaultLose { function, count },
            Fault::Duplicate { function, count } => Request::FaultDuplicate { function, count },
            Fault::Fatal { function } => Request::FaultFatal { function },
            Fault::StuckShutdown { function } => Request::FaultStuckShutdown { function },
            Fault::HostMemory { fault, count } => {
                let (what, by_ns) = match fault {
                    HostFault::Withdrawn => (HostMemoryFault::Withdrawn, 0),
                    HostFault::Corrupted | HostFault::Stale => (HostMemoryFault::Corrupted, 0),
                    HostFault::Slow(by) => (HostMemoryFault::Slow, ns(by)),
                };
                Request::FaultHostMemory { what, by_ns, count }
            }
            Fault::Clear => Request::FaultClear,
        }
    }
}

/// An answer: the fields of an object, or what is wrong.
pub type Answer = Result<serde_json::Map<String, serde_json::Value>, String>;

/// Takes requests, for ever. `ask` answers each; it is called on threads of its own.
pub fn serve(listener: &UnixListener, ask: impl Fn(Request) -> Answer + Sync) {
    let free = std::sync::Mutex::new(CONNECTIONS_MAX);
    let freed = std::sync::Condvar::new();
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of descriptors, or of memory, for a moment.
                std::thread::sleep(PAUSE);
                continue;
            };
            if !runtime::is_allowed(&stream) {
                continue;
            }
            let lock = free.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *freed.wait_while(lock, |free| *free == 0).unwrap_or_else(|poisoned| poisoned.into_inner()) -= 1;
            let (free, freed, ask) = (&free, &freed, &ask);
            scope.spawn(move || {
                let _ = talk(&stream, ask); // Who does not listen any more misses nothing.
                *free.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) += 1;
                freed.notify_one();
            });
        }
    });
}

fn talk(stream: &UnixStream, ask: &impl Fn(Request) -> Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        if reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let whole = line.last() == Some(&b'\n');
        let answer = match serde_json::from_slice::<Request>(&line) {
            _ if !whole => Err(format!("a request is one line of at most {LINE_MAX} bytes")),
            Ok(request) => ask(request),
            Err(error) => Err(format!("no such request: {error}")),
        };
        let answer = match answer {
            Ok(mut fields) => {
                fields.insert("ok".into(), true.into());
                serde_json::Value::Object(fields)
            }
            Err(why) => serde_json::json!({ "ok": false, "error": why }),
        };
        let mut stream = stream;
        stream.write_all(format!("{answer}\n").as_bytes())?;
        if !whole {
            return Ok(());
        }
    }
}

/// Asks a served device.
///
/// # Errors
/// In words: no device listens there, or the device refuses.
pub fn ask(socket: &Path, request: &Request) -> Answer {
    let wrong = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::InvalidInput => format!("{}: {}", socket.display(), socket_error(socket, error, "")),
        _ => format!("{}: {error}; is a device served there?", socket.display()),
    };
    let mut stream = UnixStream::connect(socket).map_err(wrong)?;
    let line = serde_json::to_string(request).expect("a request is an object of plain values");
    stream.write_all(format!("{line}\n").as_bytes()).map_err(wrong)?;
    let mut answer = String::new();
    BufReader::new((&stream).take(ANSWER_MAX)).read_line(&mut answer).map_err(wrong)?;
    if answer.is_empty() {
        return Err(format!("{}: the device closed the connection without an answer", socket.display()));
    }
    let answer: serde_json::Map<_, _> =
        serde_json::from_str(&answer).map_err(|error| format!("{}: invalid answer: {error}", socket.display()))?;
    match answer.get("error").and_then(|error| error.as_str()) {
        Some(error) => Err(error.to_owned()),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_and_nonsense_is_told_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let listener = runtime::listen(&path).unwrap();
        std::thread::spawn(move || {
            serve(&listener, |request| match request.fault() {
                Some(Fault::Delay { by, count, function }) => {
                    assert_eq!((by, count, function), (Duration::from_us(5), 1, 2));
                    Ok(Default::default())
                }
                _ => Err("not that".into()),
            });
        });
        let answer = ask(&path, &Request::FaultDelay { function: 2, by_ns: 5_000, count: 1 }).unwrap();
        assert_eq!(answer["ok"], true);
        assert_eq!(ask(&path, &Request::Stop).unwrap_err(), "not that");
        let mut stream = UnixStream::connect(&path).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for (line, wanted) in [
            ("{\"do\":\"fault-delay\",\"by_ns\":5000,\"function\":2}\n", "{\"ok\":true}\n"),
            ("{\"do\":\"dance\"}\n", "no such request"),
            ("\u{1}\n", "no such request"),
            ("{\"do\":\"power-cut\",\"for\":3}\n", "no such request"),
        ] {
            stream.write_all(line.as_bytes()).unwrap();
            let mut answer = String::new();
            reader.read_line(&mut answer).unwrap();
            assert!(answer.contains(wanted), "{line}: {answer}");
        }
        let refused = ask(&folder.path().join("none"), &Request::Status).unwrap_err();
        assert!(refused.contains("is a device served there?"), "{refused}");
    }
}
