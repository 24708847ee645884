//! The commands that put the files of an unmodified program on a log, and recover them.

use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;

/// A lane of a served device.
#[derive(Clone, Debug, Args)]
pub struct LaneOf {
    /// The device that has the log: the folder of `tidewater log-device`, or vfio-user:SOCKET of `tidewater serve
    /// --ring`
    #[arg(long, value_name = "TARGET", value_parser = crate::log_device::target, help_heading = "Log")]
    pub device: String,
    /// The lane of the log
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..16),
        help_heading = "Log"
    )]
    pub lane: u8,
}

impl LaneOf {
    /// The device as `--device` takes it, quoted for a shell if need be.
    pub fn shown(&self) -> String {
        let device = crate::log_device::folder_of(&self.device);
        let text = device.map_or_else(|| self.device.clone(), |folder| folder.display().to_string());
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:+".contains(c);
        if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
    }
}

/// Whose files recovery may change.
#[derive(Clone, Debug, Args)]
pub struct Owners {
    /// Change only files owned by USER (name or uid), regardless of who wrote the log; may be given several times
    /// [default: your files; if the log's ring or device belongs to another user, only files of that user; if it
    /// belongs to root, all files that you may change]
    #[arg(long = "allow-owner", value_name = "USER", value_parser = user, help_heading = "Log")]
    pub allowed: Vec<u32>,
}

fn user(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    match nix::unistd::User::from_name(text) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err("no such user; give a name that `getent passwd` lists, or a number".into()),
        Err(errno) => Err(format!("users can't be looked up ({}); give a number", errno.desc())),
    }
}

/// What a sync waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LevelName {
    /// In the ring: survives a crash of the program or the device, and power loss only if the ring's memory does
    Ring,
    /// Synced on the device's backing store: survives power loss
    Destaged,
    /// In the rings of the device's replicas, as many as its group's mode asks for: survives the loss of the machine
    RemoteRing,
    /// Synced on the backing stores of the device and of its replicas: survives also power loss of all machines
    RemoteDestaged,
}

impl LevelName {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            LevelName::Ring => "ring",
            LevelName::Destaged => "destaged",
            LevelName::RemoteRing => "remote-ring",
            LevelName::RemoteDestaged => "remote-destaged",
        }
    }
}

/// `tidewater run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The device.
    #[command(flatten)]
    pub log: LaneOf,
    /// Files that go on the log: a quoted pattern such as 'pg_wal/*'; may be given several times. `*` and `?` match
    /// within a name, `**` also across directories
    #[arg(long = "log", value_name = "GLOB", required = true, help_heading = "Log")]
    pub globs: Vec<String>,
    /// What fsync of these files waits for [default: ring if the ring's memory survives power loss, else destaged]
    #[arg(long, value_name = "LEVEL", help_heading = "Log")]
    pub level: Option<LevelName>,
    /// Whose files an earlier run's log may change.
    #[command(flatten)]
    pub owners: Owners,
    /// Start even if recovery cannot find a file: its part of the log is lost
    #[arg(long, help_heading = "Log")]
    pub forget: bool,
    /// Print only errors on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Fail if --log matched no file, as `tidewater bench` needs it
    #[arg(long, hide = true)]
    pub must_match: bool,
    /// The program and its arguments
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// `tidewater bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// The device.
    #[command(flatten)]
    pub log: LaneOf,
    /// Files that go on the log, as for `tidewater run`; may be given several times
    #[arg(long = "log", value_name = "GLOB", required = true, help_heading = "Log")]
    pub globs: Vec<String>,
    /// What their syncs wait for, as for `tidewater run`
    #[arg(long, value_name = "LEVEL", help_heading = "Log")]
    pub level: Option<LevelName>,
    /// How often the program runs on each side
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// The program and its arguments: it has to do the same work each time
    #[arg(
        value_name = "CMD",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub command: Vec<OsString>,
}

/// `tidewater recover`.
#[derive(Debug, Args)]
pub struct Recover {
    /// The device.
    #[command(flatten)]
    pub log: LaneOf,
    /// Change only these files; may be given several times [default: all files on the log that you own]
    #[arg(long = "log", value_name = "GLOB", help_heading = "Log")]
    pub globs: Vec<String>,
    /// Whose files.
    #[command(flatten)]
    pub owners: Owners,
    /// Continue past a missing or refused file: its part of the log is lost
    #[arg(long)]
    pub forget: bool,
    /// Print what would be done, and change nothing
    #[arg(long, conflicts_with = "forget")]
    pub dry_run: bool,
}

/// `tidewater drain`.
#[derive(Debug, Args)]
pub struct Drain {
    /// The device.
    #[command(flatten)]
    pub log: LaneOf,
    /// Whose files.
    #[command(flatten)]
    pub owners: Owners,
    /// Continue past a missing or refused file: its part of the log is lost
    #[arg(long)]
    pub forget: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_by_number_or_by_name() {
        assert_eq!((user("70"), user("root")), (Ok(70), Ok(0)));
        for wrong in ["", "-1", "4294967296", "no such user"] {
            assert!(user(wrong).is_err_and(|why| why.contains("or a number")), "{wrong}");
        }
    }
}
