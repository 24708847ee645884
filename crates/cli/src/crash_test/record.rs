//! One run of the program in a mount that records it, and folders for the time of a test.

use crate::args::crash::CrashTest;
use crate::failure::{Failure, Status, reason};
use crate::{interrupt, mount};
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tidewater_crash::{ACKNOWLEDGE, Mount, Options, Volume};

/// Bytes of changes that a run may record.
const LOG_MAX: u64 = 1 << 30;
/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(2);
/// Memory of this machine as a folder: states are made and forgotten there without a disk.
const MEMORY: &str = "/dev/shm";

/// A folder of this process alone, removed when it is dropped.
fn folder(parent: &Path, name: &str) -> Result<TempDir, Failure> {
    let made = tempfile::Builder::new().prefix(&format!("tidewater-{name}-")).tempdir_in(parent);
    made.map_err(|error| Failure::run(format_args!("{}: {}", parent.display(), reason(&error))))
}

/// A folder for states, in memory where that can be.
///
/// # Errors
/// When none can be made.
pub fn for_states() -> Result<TempDir, Failure> {
    folder(Path::new(MEMORY), "states").or_else(|_| folder(&std::env::temp_dir(), "states"))
}

/// Runs the program in a fresh mount, and returns the volume with its log.
///
/// # Errors
/// When there is no mount, or the program does not end well.
pub fn record(of: &CrashTest) -> Result<Volume, Failure> {
    let folder = folder(&std::env::temp_dir(), "mount")?;
    let options =
        Options { folder: folder.path().to_path_buf(), rules: of.rules, image: None, keep_log: true, log_max: LOG_MAX };
    // Dropped before the folder that it is mounted on.
    let mounted = Mount::new(options).map_err(mount::refused)?;
    let _running = interrupt::Running::begin();
    if let Some(setup) = &of.setup {
        run(&mounted, "--setup", &["sh".into(), "-c".into(), setup.into()])?;
        mounted.settle();
    }
    let program = of.command.first().map(|program| program.display().to_string()).unwrap_or_default();
    let ended = run(&mounted, &program, &of.command);
    if mounted.is_full() {
        return Err(Failure::run(format_args!("{program} wrote more than 1 GiB: that is more than a run records"))
            .help("give it less to do"));
    }
    ended?;
    let place = mounted.folder().to_path_buf();
    let mut volume = mounted.end().map_err(|error| Failure::run(format_args!("{}: {error}", place.display())))?;
    if volume.operations().next().is_none() {
        return Err(Failure::run(format_args!("{program} wrote nothing in the mount"))
            .help("it has to work in its current directory, which is also in TIDEWATER_MOUNT"));
    }
    volume.prepare();
    Ok(volume)
}

/// Runs a command in the mount until it ends.
///
/// # Errors
/// When it does not end well, or Ctrl-C ends it.
fn run(mounted: &Mount, name: &str, command: &[OsString]) -> Result<(), Failure> {
    let place = mounted.folder();
    // The shell opens descriptor 3, and becomes the program.
    let mut child = Command::new("sh")
        .args(["-c", "exec \"$@\" 3>>\"$TIDEWATER_ACK\"", "sh"])
        .args(command)
        .current_dir(place)
        .env("TIDEWATER_MOUNT", place)
        .env("TIDEWATER_ACK", place.join(ACKNOWLEDGE))
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .spawn()
        .map_err(|error| Failure::run(format_args!("sh: {}", reason(&error))))?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                return Err(Failure::run(format_args!("{name} ended with {status} before any power cut")).help(
                    "run in an empty directory, it has to succeed; it starts in the mount, so give its path in full",
                ));
            }
            Ok(None) if interrupt::requested() => {
                let _ = child.kill();
                let _ = child.wait();
                let failure = Failure::run(format_args!("ended early: {name} was still running"));
                return Err(Failure { status: Status::Interrupted, ..failure });
            }
            Ok(None) => std::thread::sleep(LOOK),
            Err(error) => return Err(Failure::run(format_args!("{name}: {}", reason(&error)))),
        }
    }
}
