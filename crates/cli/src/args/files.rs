//! The commands that put the files of an unmodified program on a log, and recover them.

use super::values::time;
use clap::{Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A lane of a served device.
#[derive(Clone, Debug, Args)]
pub struct LaneOf {
    /// The device that has the log: the folder of `tidewater log-device`, or vfio-user:SOCKET of `tidewater serve
    /// --ring`; several of a group with commas between them, the primary of which is used; or
    /// cluster:etcd=HOST:PORT/CLUSTER, if keepers watch the group: etcd names the primary
    #[arg(long, value_name = "TARGET", value_parser = super::log_device::target, help_heading = "Log")]
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
        let devices = super::log_device::folders_of(&self.device);
        // A folder stands for the device in it. A socket by itself is named as it was given.
        let devices = devices.filter(|all| all.iter().all(|folder| super::log_device::is_one(folder)));
        let shown = |all: Vec<&Path>| all.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(",");
        let text = devices.map_or_else(|| self.device.clone(), shown);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:+,".contains(c);
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

/// Durability level that a sync waits for.
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

/// Behaviour of a program's syncs when its device is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnDeviceLoss {
    /// They fail (EIO) until the program is started again: what was acknowledged is recovered first
    #[default]
    Fail,
    /// All files are synced, and each is synced by itself from then on: the program goes on without the log. Needs a
    /// device whose log stays without it: a ring copy, which log devices have, or a persistent ring; no group
    Sync,
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
    /// Level that fsync waits for [default: ring if the ring's memory survives power loss, else destaged]
    #[arg(long, value_name = "LEVEL", help_heading = "Log")]
    pub level: Option<LevelName>,
    /// Behaviour of fsync when the device has gone, or has not answered for 30 s
    #[arg(long, value_name = "WHAT", default_value = "fail", help_heading = "Log")]
    pub on_device_loss: OnDeviceLoss,
    /// Whose files an earlier run's log may change.
    #[command(flatten)]
    pub owners: Owners,
    /// Start even if recovery cannot find a file: its part of the log is lost
    #[arg(long, help_heading = "Log")]
    pub forget: bool,
    /// Take the files to this device as they are, even if their last bytes are on another one's log: that one's bytes
    /// are lost
    #[arg(long, help_heading = "Log")]
    pub adopt: bool,
    /// Wait up to TIME for a device that is being started [default: 3s for that of a folder, none for others]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait: Option<tidewater_base::Duration>,
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
    /// Level that their fsync waits for, as for `tidewater run`
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
    /// Write what this log has even over files that were used without it since, or that another log has by now
    #[arg(long)]
    pub adopt: bool,
    /// Print what would be done, and change nothing
    #[arg(long, conflicts_with = "forget")]
    pub dry_run: bool,
    /// Replay onto a copy of the files, on another machine: those that the log has in OLD are in NEW here; may be
    /// given several times
    #[arg(long, value_name = "OLD=NEW", help_heading = "Copy")]
    pub onto: Vec<OntoDirectory>,
    /// Where the log was when the copy was begun, as `tidewater tail --position` printed it; later replays know
    #[arg(long, value_name = "OFFSET", requires = "onto", help_heading = "Copy")]
    pub copied_at: Option<u64>,
    /// On a replica: keep the copy up to date while the log arrives, until Ctrl-C or the replica's promotion
    #[arg(long, requires = "onto", conflicts_with_all = ["dry_run", "forget"], help_heading = "Copy")]
    pub follow: bool,
}

/// A directory of the log's files, and where its copy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OntoDirectory {
    /// As the log names it.
    pub old: PathBuf,
    /// Here.
    pub new: PathBuf,
}

impl std::str::FromStr for OntoDirectory {
    type Err = String;

    fn from_str(text: &str) -> Result<OntoDirectory, String> {
        let (old, new) = text.split_once('=').ok_or("expected OLD=NEW, such as /srv/data=/srv/copy")?;
        if !old.starts_with('/') {
            return Err(format!("`{old}`: give the directory as the log has it: an absolute path (see --dry-run)"));
        }
        if new.is_empty() {
            return Err("the directory behind `=` is missing".into());
        }
        // Without a slash at its end, and doubled ones.
        Ok(OntoDirectory { old: Path::new(old).components().collect(), new: new.into() })
    }
}

/// From where `tidewater tail` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailFrom {
    /// The oldest byte that is there.
    Oldest,
    /// The log's end.
    End,
    /// A stream offset.
    Offset(u64),
}

impl std::str::FromStr for TailFrom {
    type Err = String;

    fn from_str(text: &str) -> Result<TailFrom, String> {
        match text {
            "oldest" => Ok(TailFrom::Oldest),
            "end" => Ok(TailFrom::End),
            offset => offset.parse().map(TailFrom::Offset).map_err(|_| "expected oldest, end or an offset".to_owned()),
        }
    }
}

/// `tidewater tail`.
#[derive(Debug, Args)]
pub struct Tail {
    /// The device.
    #[command(flatten)]
    pub log: LaneOf,
    /// Where to begin: `oldest`, `end` or a stream offset
    #[arg(long, value_name = "OFFSET", default_value = "oldest")]
    pub from: TailFrom,
    /// Continue with what arrives, until Ctrl-C
    #[arg(long, short)]
    pub follow: bool,
    /// Write the log's bytes as they are, instead of one line a record
    #[arg(long)]
    pub raw: bool,
    /// Print the offset that a copy of the log's files which is begun now has for `tidewater recover --copied-at`
    #[arg(long, conflicts_with_all = ["follow", "raw", "from"])]
    pub position: bool,
    /// With --position: first wait until this device has the log up to OFFSET, as `tidewater group status --log-end` on
    /// the primary printed it, and until the files that came into the log set by then are synced
    #[arg(long, value_name = "OFFSET", requires = "position")]
    pub at_least: Option<u64>,
    /// How long --at-least waits before it fails, with exit status 1
    #[arg(long, value_name = "TIME", default_value = "60s", requires = "at_least", value_parser = time)]
    pub timeout: tidewater_base::Duration,
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
    /// Write what this log has even over files that were used without it since, or that another log has by now
    #[arg(long)]
    pub adopt: bool,
}

/// `tidewater check`.
#[derive(Debug, Args)]
pub struct Check {
    /// Folders of files, which are looked through with all below them
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    pub folders: Vec<PathBuf>,
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
