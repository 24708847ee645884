//! The check of one state: a command that runs in a folder which holds that state.

use crate::failure::{Failure, printable, reason};
use crate::interrupt;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};
use tidewater_crash::{State, Tree, Volume, unpack};

/// Bytes and lines of what a check said that are kept: the last ones.
const SAID_MAX: usize = 64 << 10;
const LINES_MAX: usize = 12;
/// How often it is looked whether a check has ended, at first and later.
const LOOK: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(5));

/// How states are checked.
#[derive(Debug)]
pub struct Check {
    /// The command, for `sh`.
    pub text: String,
    /// It may take so long.
    pub time: Duration,
    /// Where states are unpacked.
    pub folder: PathBuf,
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// All is well.
    pub passed: bool,
    /// Acknowledged ids that it named as gone.
    pub lost: Vec<String>,
    /// How it ended, and the end of what it said.
    pub said: String,
}

impl Check {
    /// Checks a state. `worker`: one of those that check at once.
    ///
    /// # Errors
    /// When the state can't be unpacked, or the command can't be started.
    pub fn run(&self, volume: &Volume, state: &State, tree: &Tree, worker: usize) -> Result<Verdict, Failure> {
        let place = self.folder.join(worker.to_string());
        let wrong = |error: io::Error| Failure::run(format_args!("{}: {}", place.display(), reason(&error)));
        let (files, ids, said) = (place.join("files"), place.join("ids"), place.join("said"));
        // What a check that was stopped left is gone first.
        if let Err(error) = fs::remove_dir_all(&place)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(wrong(error));
        }
        fs::create_dir_all(&files).map_err(wrong)?;
        unpack(tree, &files).map_err(wrong)?;
        let known: String = volume.acknowledged(state.cut).map(|id| format!("{id}\n")).collect();
        fs::write(&ids, known).map_err(wrong)?;
        let (status, is_late) = self.start(&files, &ids, &said).map_err(wrong)?;
        let text = fs::read(&said).map_err(wrong)?;
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(SAID_MAX)..]).into_owned();
        let lost = text.lines().filter_map(|line| line.strip_prefix("lost ")).map(|id| printable(id.trim())).collect();
        let lines: Vec<String> = text.lines().map(printable).collect();
        let ended = match (is_late, status.code()) {
            (true, _) => format!("the check took longer than {} s", self.time.as_secs_f64()),
            (_, Some(code)) => format!("the check ended with exit status {code}"),
            _ => format!("the check ended with {status}"),
        };
        let said = [&[ended], &lines[lines.len().saturating_sub(LINES_MAX)..]].concat().join("\n");
        Ok(Verdict { passed: status.success() && !is_late, lost, said })
    }

    /// Runs the command, and says whether it took too long.
    fn start(&self, files: &Path, ids: &Path, said: &Path) -> io::Result<(ExitStatus, bool)> {
        let output = File::create(said)?;
        let mut child = Command::new("sh")
            .args(["-c", &self.text])
            .current_dir(files)
            .env("TIDEWATER_MOUNT", files)
            .stdin(File::open(ids)?)
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        let begun = Instant::now();
        let mut pause = LOOK.0;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok((status, false));
            }
            if begun.elapsed() > self.time || interrupt::requested() {
                return Ok((end(&mut child)?, true));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK.1);
        }
    }
}

/// Ends a check with all that it has started.
fn end(child: &mut Child) -> io::Result<ExitStatus> {
    let _ = killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL);
    child.wait()
}
