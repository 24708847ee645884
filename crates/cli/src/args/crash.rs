//! `tidewater mount` and `tidewater crash-test`: files across a power cut.

use super::values;
use clap::{ArgAction, Args, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use tidewater_base::Duration;
use tidewater_crash as crash;

/// `tidewater mount`.
#[derive(Debug, Args)]
pub struct Mount {
    /// Where to mount it: a directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// File that keeps what is durable; without it, an end of the command loses everything
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub image: Option<PathBuf>,
    /// Rules by which changes become durable
    #[arg(long, value_enum, default_value_t = RulesName::Strict)]
    pub rules: RulesName,
}

/// `tidewater crash-test`.
#[derive(Debug, Args)]
pub struct CrashTest {
    /// Command and arguments of the program, run in the mount
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "replay", conflicts_with = "replay")]
    pub command: Vec<OsString>,
    /// Shell command that checks what a cut left, in a directory that holds it: acknowledged ids come on standard input,
    /// exit status 0 says that all is well, and a line `lost ID` names an acknowledged id that is gone
    #[arg(long, value_name = "COMMAND", required_unless_present = "replay", help_heading = "Check")]
    pub check: Option<String>,
    /// A check that takes longer has failed
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "60s", help_heading = "Check")]
    pub check_time: Duration,
    /// States that are tried at most
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000),
        help_heading = "Cuts")]
    pub cuts: u32,
    /// Seed of every random choice: the same seed gives the same cuts of the same run
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Cuts")]
    pub seed: u64,
    /// Where the power is cut
    #[arg(long, value_enum, default_value_t = AtName::Sync, help_heading = "Cuts")]
    pub at: AtName,
    /// Changes that a cut loses of those that are not durable; several choices, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "unsynced,all-but,one,random",
        help_heading = "Cuts"
    )]
    pub lose: Vec<LoseName>,
    /// Where writes are torn
    #[arg(long, value_enum, default_value_t = TearName::Page, help_heading = "Cuts")]
    pub tear: TearName,
    /// Rules by which changes become durable
    #[arg(long, value_enum, default_value_t = RulesName::Strict, help_heading = "Cuts")]
    pub rules: RulesName,
    /// Checks that run at once [default: the number of processors]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), help_heading = "Check")]
    pub jobs: Option<u16>,
    /// Go on after a failure, and count all of them
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Cuts")]
    pub keep_going: bool,
    /// Run the check on the state that this file holds: what --failure wrote
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub replay: Option<PathBuf>,
    /// Where the smallest failing state goes, for --replay
    #[arg(long, value_name = "FILE", default_value = "crash-test.failure", value_hint = ValueHint::FilePath,
        conflicts_with = "replay", help_heading = "Results")]
    pub failure: PathBuf,
    /// Write the result as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Results")]
    pub junit: Option<PathBuf>,
    /// Write the result as JSON; without FILE, on standard output alone
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "-",
        value_hint = ValueHint::FilePath,
        help_heading = "Results"
    )]
    pub json: Option<PathBuf>,
}

/// Rules by which changes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RulesName {
    /// The promises of POSIX and no more: a file's name by fsync of its directory, no order
    Strict,
    /// As ext4 does by default: names and sizes in order, a new file's name by its own fsync
    Ext4,
}

impl From<RulesName> for crash::Rules {
    fn from(name: RulesName) -> crash::Rules {
        match name {
            RulesName::Strict => crash::Rules::Strict,
            RulesName::Ext4 => crash::Rules::Ext4,
        }
    }
}

/// Where the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AtName {
    /// Before and after each sync and each acknowledged id
    Sync,
    /// After each change
    Write,
    /// After each operation
    Every,
}

impl From<AtName> for crash::At {
    fn from(name: AtName) -> crash::At {
        match name {
            AtName::Sync => crash::At::Sync,
            AtName::Write => crash::At::Write,
            AtName::Every => crash::At::Every,
        }
    }
}

/// Changes that a cut loses of those that are not durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoseName {
    /// All
    Unsynced,
    /// None, as a crash of the program alone
    Nothing,
    /// All but one, drawn by the seed
    AllBut,
    /// One, drawn by the seed
    One,
    /// Each, or pieces of it, by the seed
    Random,
}

impl From<LoseName> for crash::Lose {
    fn from(name: LoseName) -> crash::Lose {
        match name {
            LoseName::Unsynced => crash::Lose::Unsynced,
            LoseName::Nothing => crash::Lose::Nothing,
            LoseName::AllBut => crash::Lose::AllBut,
            LoseName::One => crash::Lose::One,
            LoseName::Random => crash::Lose::Random,
        }
    }
}

/// Where writes are torn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TearName {
    /// Nowhere
    None,
    /// At sectors of 512 bytes
    Sector,
    /// At pages of 4 KiB
    Page,
}

impl From<TearName> for crash::Tear {
    fn from(name: TearName) -> crash::Tear {
        match name {
            TearName::None => crash::Tear::None,
            TearName::Sector => crash::Tear::Sector,
            TearName::Page => crash::Tear::Page,
        }
    }
}

/// Calls on a mount that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnName {
    /// fsync, fdatasync, msync, and writes with O_SYNC
    Sync,
    /// Writes, new names and sizes
    Write,
    /// Reads that the page cache does not answer
    Read,
}

impl From<OnName> for crash::control::On {
    fn from(name: OnName) -> crash::control::On {
        match name {
            OnName::Sync => crash::control::On::Sync,
            OnName::Write => crash::control::On::Write,
            OnName::Read => crash::control::On::Read,
        }
    }
}

/// An error of calls on a mount.
#[derive(Clone, Debug, Args)]
pub struct MountError {
    /// Which calls fail
    #[arg(long, value_enum, default_value_t = OnName::Write)]
    pub on: OnName,
    /// Number of calls; 0: until cleared
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// After a failed sync the file stays dirty, and the next sync writes it; otherwise it is taken for clean, as Linux
    /// does since 4.13
    #[arg(long)]
    pub keep_dirty: bool,
}
