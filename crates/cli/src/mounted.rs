//! Faults of a mounted directory (`tidewater mount`): asked for through a file in it.

use crate::args::served::FaultCommand;
use crate::failure::{Failure, printable, reason};
use crate::output;
use std::fs::OpenOptions;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use tidewater_crash::control::{Answer, ErrorKind, Request};
use tidewater_crash::{CONTROL, Lose, Tear};

/// Bytes of an answer at most.
const ANSWER_MAX: u64 = 1 << 20;

/// Whether a directory is one.
pub fn is_mount(folder: &Path) -> bool {
    folder.join(CONTROL).is_file()
}

/// Injects a fault into it.
///
/// # Errors
/// A fault that a mount does not have, and one that it refuses.
pub fn fault(folder: &Path, what: &FaultCommand) -> Result<(), Failure> {
    let error = |error, of: &crate::args::crash::MountError| Request::Error {
        error,
        on: of.on,
        count: of.count,
        keep_dirty: of.keep_dirty,
    };
    let request = match what {
        FaultCommand::PowerCut { off, .. } if !off.is_zero() => {
            return Err(Failure::usage("the power of a mount is back at once").help("leave --off away"));
        }
        FaultCommand::PowerCut { lose, tear, seed, .. } => {
            let (lose, tear) = (lose.unwrap_or(Lose::Unsynced), tear.unwrap_or(Tear::Page));
            Request::PowerCut { lose, tear, seed: seed.unwrap_or(1) }
        }
        FaultCommand::Stall { time } => Request::Stall { ms: time.as_ps().div_ceil(1_000_000_000) },
        FaultCommand::Eio(of) => error(ErrorKind::Eio, of),
        FaultCommand::Enospc(of) => error(ErrorKind::Enospc, of),
        FaultCommand::List { json: false } => Request::List,
        FaultCommand::List { json: true } => {
            return Err(Failure::usage("the faults of a mount are listed as text alone").help("leave --json away"));
        }
        FaultCommand::Clear => Request::Clear,
        _ => {
            return Err(Failure::usage("a mount has no such fault")
                .help("it has power-cut, stall, eio, enospc, list and clear"));
        }
    };
    let name = folder.display();
    let answer = ask(folder, &request).map_err(|error| Failure::run(format_args!("{name}: {}", reason(&error))))?;
    match answer.done {
        true => {
            output::print(&format!("{name}: {}\n", answer.text.lines().map(printable).collect::<Vec<_>>().join("\n")))
        }
        false => Err(Failure::run(format_args!("{name}: {}", printable(&answer.text)))),
    }
}

fn ask(folder: &Path, request: &Request) -> io::Result<Answer> {
    let mut file = OpenOptions::new().read(true).write(true).open(folder.join(CONTROL))?;
    file.write_all(&serde_json::to_vec(request)?)?;
    // The answer begins at the first byte.
    let mut answer = Vec::new();
    io::Seek::rewind(&mut file)?;
    file.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(serde_json::from_slice(&answer)?)
}
