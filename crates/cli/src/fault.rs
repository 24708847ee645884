//! `tidewater fault`: faults of a served drive, by its control socket, and of a mounted directory, by a file in it.

use crate::args::faults::{FaultArgs, FaultCommand};
use crate::args::served::Served;
use crate::failure::{Failure, printable, reason};
use crate::output;
use crate::socket::{ask, whose};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use tidewater_base::Duration;
use tidewater_base::faults::{At, Listed, On};
use tidewater_base::units::format_duration;
use tidewater_crash::control as mount;
use tidewater_crash::{CONTROL, Lose, Tear};
use tidewater_serve::control::{HostMemoryFault, Request};

/// Bytes of an answer of a mount at most.
const ANSWER_MAX: u64 = 1 << 20;

/// `tidewater fault`.
///
/// # Errors
/// When neither a device nor a mount answers, or it refuses.
pub fn command(args: &FaultArgs) -> Result<(), Failure> {
    match args.served.device.as_deref().filter(|device| is_mount(device)) {
        Some(folder) => of_mount(folder, &args.what),
        None => of_drive(&args.served, &args.what),
    }
}

/// Whether a directory is a mount.
pub fn is_mount(folder: &Path) -> bool {
    folder.join(CONTROL).is_file()
}

fn listed(lines: &[String]) -> String {
    if lines.is_empty() { "no faults are armed\n".into() } else { lines.join("\n") + "\n" }
}

fn as_json(value: &impl serde::Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value).map_err(Failure::run)? + "\n")
}

fn of_mount(folder: &Path, what: &FaultCommand) -> Result<(), Failure> {
    let request = match (what.armed(), what) {
        (Some(fault), _) => mount::Request::Fault { fault },
        (_, FaultCommand::PowerCut { off, .. }) if !off.is_zero() => {
            return Err(Failure::usage("the power of a mount is back at once").help("leave --off away"));
        }
        (_, FaultCommand::PowerCut { at: Some(At::Nth(On::Event, _)), .. }) => {
            return Err(Failure::usage("events are those of a served drive").help("give write:N, sync:N or time:T"));
        }
        (_, FaultCommand::PowerCut { lose, tear, seed, at, .. }) => {
            let (lose, tear) = (lose.unwrap_or(Lose::Unsynced), tear.unwrap_or(Tear::Page));
            mount::Request::PowerCut { lose, tear, seed: seed.unwrap_or(1), at: *at }
        }
        (_, FaultCommand::List { .. }) => mount::Request::List,
        (_, FaultCommand::Clear) => mount::Request::Clear,
        _ => {
            return Err(Failure::usage("a mount has no such fault").help(
                "it has power-cut, stall, slow, lost-write, misdirected-write, bit-flip, eio, enospc, list and clear",
            ));
        }
    };
    let name = folder.display();
    let answer = ask_mount(folder, &request);
    let answer = answer.map_err(|error| Failure::run(format_args!("{name}: {}", reason(&error))))?;
    match what {
        _ if !answer.done => Err(Failure::run(format_args!("{name}: {}", printable(&answer.text)))),
        FaultCommand::List { json: true } => output::print(&as_json(&answer.faults)?),
        FaultCommand::List { json: false } => {
            output::print(&listed(&answer.faults.iter().map(ToString::to_string).collect::<Vec<_>>()))
        }
        _ => output::print(&format!("{name}: {}\n", printable(&answer.text))),
    }
}

fn ask_mount(folder: &Path, request: &mount::Request) -> io::Result<mount::Answer> {
    let mut file = OpenOptions::new().read(true).write(true).open(folder.join(CONTROL))?;
    file.write_all(&serde_json::to_vec(request)?)?;
    // The answer begins at the first byte.
    let mut answer = Vec::new();
    io::Seek::rewind(&mut file)?;
    file.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}

fn of_drive(served: &Served, what: &FaultCommand) -> Result<(), Failure> {
    let ns = |time: &Duration| time.as_ps() / 1_000;
    let request = match what {
        FaultCommand::Error { lba, nsid, code, count } => {
            Request::FaultStatus { nsid: *nsid, first: lba.start, end: lba.end, status: *code, count: *count }
        }
        FaultCommand::Delay { by, next } => {
            Request::FaultDelay { function: next.function, by_ns: ns(by), count: next.count }
        }
        FaultCommand::Lose { next } => Request::FaultLose { function: next.function, count: next.count },
        FaultCommand::Duplicate { next } => Request::FaultDuplicate { function: next.function, count: next.count },
        FaultCommand::Fatal { function } => Request::FaultFatal { function: *function },
        FaultCommand::StuckShutdown { function } => Request::FaultStuckShutdown { function: *function },
        FaultCommand::HostMemory { what, by, count } => {
            let what = match what.as_str() {
                "withdrawn" => HostMemoryFault::Withdrawn,
                "corrupted" => HostMemoryFault::Corrupted,
                _ => HostMemoryFault::Slow,
            };
            Request::FaultHostMemory { what, by_ns: ns(by), count: *count }
        }
        FaultCommand::LinkLoss { function } => Request::LinkLoss { function: *function },
        FaultCommand::PowerCut { off, at, lose: None, tear: None, seed: None } => {
            let off_ms = ns(off) / 1_000_000;
            at.map_or(Request::PowerCut { off_ms }, |at| Request::PowerCutAt { at, off_ms })
        }
        FaultCommand::PowerCut { .. } => {
            return Err(Failure::usage(format_args!(
                "{}: a drive's own flash says what a power cut loses and tears",
                whose(served)
            ))
            .help("leave out --lose, --tear and --seed, which are for mounts; --at event:N chooses another moment"));
        }
        FaultCommand::List { .. } => Request::FaultList,
        FaultCommand::Clear => Request::FaultClear,
        common => match common.armed() {
            Some(fault) if fault.keep_dirty => {
                return Err(Failure::usage("a drive has no dirty files").help("--keep-dirty is for mounts"));
            }
            Some(fault) => Request::Fault { fault },
            None => return Err(Failure::usage("this is no fault of a drive")),
        },
    };
    let answer = ask(served, &request)?;
    if let FaultCommand::List { json } = what {
        let faults = answer.get("faults").cloned().unwrap_or_default();
        if *json {
            return output::print(&as_json(&faults)?);
        }
        let faults: Vec<Value> = serde_json::from_value(faults).map_err(Failure::run)?;
        let lines = faults.into_iter().map(line).collect::<Result<Vec<_>, _>>().map_err(Failure::run)?;
        return output::print(&listed(&lines));
    }
    let whose = whose(served);
    let done = match (answer.get("text").and_then(|text| text.as_str()), what) {
        (Some(text), _) => text,
        (None, FaultCommand::Clear) => "all faults cleared",
        (None, FaultCommand::LinkLoss { .. }) => "the link went down",
        (None, _) => "the fault is set",
    };
    output::print(&format!("{whose}: {done}\n"))
}

/// An armed fault of a drive as a line.
fn line(fault: Value) -> Result<String, serde_json::Error> {
    if fault.get("do").is_some_and(|kind| kind == "fault") {
        return serde_json::from_value::<Listed>(fault).map(|listed| listed.to_string());
    }
    let left = |count: u32| if count == 0 { "until cleared".into() } else { format!("{count} left") };
    let time = |ns: u64| format_duration(Duration::from_ns(ns));
    Ok(match serde_json::from_value(fault)? {
        Request::FaultStatus { nsid, first, end, status, count } => {
            format!("status {status:#05x} on blocks {first}..{end} of namespace {nsid}, {}", left(count))
        }
        Request::FaultDelay { function, by_ns, count } => {
            format!("delay completions of function {function} by {}, {}", time(by_ns), left(count))
        }
        Request::FaultLose { function, count } => format!("lose completions of function {function}, {}", left(count)),
        Request::FaultDuplicate { function, count } => {
            format!("duplicate completions of function {function}, {}", left(count))
        }
        Request::FaultStuckShutdown { function } => format!("stuck shutdown of function {function}"),
        Request::FaultHostMemory { what, count, .. } => {
            let accesses = if count == 1 { "access" } else { "accesses" };
            format!("host memory {}, {count} {accesses} left", format!("{what:?}").to_lowercase())
        }
        other => format!("{other:?}"),
    })
}
