//! Errors as the user reads them: one line for the fault, and one for the remedy.

use std::fmt;
use std::io;
use std::process::ExitCode;
use tidewater_study as study;
pub use tidewater_study::{reason, without_number};

/// Why a command ended without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The fault; one line. Empty: nothing is said.
    pub message: String,
    /// The remedy, where that is known; one line.
    pub help: Option<String>,
    /// The exit status.
    pub status: Status,
}

/// Exit status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 0: all went well. A reader that closes the pipe early wants no more, and that is no failure.
    Done = 0,
    /// 1: a run failed, or a result could not be written.
    Failed = 1,
    /// 2: the command line or the input is wrong.
    Usage = 2,
    /// 3: an experiment ran, and a check of it does not hold.
    Differs = 3,
    /// 130: ended by Ctrl-C, as shells count it (128 and the number of the signal).
    Interrupted = 130,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> ExitCode {
        ExitCode::from(status as u8)
    }
}

impl Failure {
    /// A wrong command line, or input that cannot be used.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), help: None, status: Status::Usage }
    }

    /// A run that failed.
    pub fn run(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), help: None, status: Status::Failed }
    }

    /// A result that could not be written. A pipe that was closed on the other side is no failure.
    pub fn write(name: &str, error: &io::Error) -> Failure {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure { message: String::new(), help: None, status: Status::Done };
        }
        let failure = Failure::run(format_args!("cannot write {name}: {}", reason(error)));
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                failure.help("free some space and run again")
            }
            _ => failure,
        }
    }

    /// Input that cannot be used, in words of another crate that may end with what to do about it.
    pub fn refused(error: impl fmt::Display) -> Failure {
        study::Failure::refused(error).into()
    }

    /// The same, with what to do about it.
    pub fn help(self, help: impl fmt::Display) -> Failure {
        Failure { help: Some(help.to_string()), ..self }
    }
}

impl From<study::Failure> for Failure {
    fn from(failure: study::Failure) -> Failure {
        let status = if failure.usage { Status::Usage } else { Status::Failed };
        Failure { message: failure.message, help: failure.help, status }
    }
}

pub use tidewater_base::units::printable;

/// A refusal of the parser of the command line, in our two lines.
pub fn from_clap(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let mut said: Vec<&str> = Vec::new();
    let mut help: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim) {
        let line = line.strip_prefix("error: ").unwrap_or(line);
        if let Some(tip) = line.strip_prefix("tip: ") {
            help.push(tip);
        } else if let Some(values) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            help.push(values);
        } else if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        } else if !line.is_empty() {
            said.push(line);
        }
    }
    let failure = Failure::usage(said.join(" "));
    if help.is_empty() {
        failure.help("see --help for the options and examples")
    } else {
        failure.help(help.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_pipe_is_no_failure_and_a_full_disk_is() {
        let closed = Failure::write("standard output", &io::ErrorKind::BrokenPipe.into());
        assert_eq!((closed.message.as_str(), closed.status), ("", Status::Done));
        let full = Failure::write("r.html", &io::Error::from_raw_os_error(28));
        assert_eq!(
            (full.message.as_str(), full.status),
            ("cannot write r.html: No space left on device", Status::Failed)
        );
        assert!(full.help.is_some());
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\u{fffd}c");
    }
}
