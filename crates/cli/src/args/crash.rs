//! `tidewater mount` and `tidewater crash-test`: files across a power cut.

use super::values;
use clap::{ArgAction, Args, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use tidewater_base::Duration;
use tidewater_crash::{At, Lose, Rules, Tear};

/// `tidewater mount`.
#[derive(Debug, Args)]
pub struct Mount {
    /// Where to mount it: a directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// File that keeps what is durable, or a drive whose namespace 1 does: tcp:HOST:PORT or vfio-user:SOCKET, as
    /// `tidewater serve` prints them. Without it, an end of the command loses everything
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub image: Option<PathBuf>,
    /// Rules by which changes become durable
    #[arg(long, value_enum, default_value_t = Rules::Strict)]
    pub rules: Rules,
}

/// `tidewater crash-test`.
#[derive(Debug, Args)]
pub struct CrashTest {
    /// Command and arguments of the program, run in the mount
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "replay", conflicts_with = "replay")]
    pub command: Vec<OsString>,
    /// Shell command that runs in the mount first; what it makes is durable before the program starts
    #[arg(long, value_name = "COMMAND", conflicts_with = "replay")]
    pub setup: Option<String>,
    /// Shell command that checks what a cut left, in a directory that holds it. Acknowledged ids come on standard
    /// input; exit status 0 says that all is well; a line `lost ID` names an acknowledged id that is gone
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
    #[arg(long, value_enum, default_value_t = At::Sync, help_heading = "Cuts")]
    pub at: At,
    /// Changes that a cut loses of those that are not durable; several choices, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "unsynced,all-but,one,random",
        help_heading = "Cuts"
    )]
    pub lose: Vec<Lose>,
    /// Where writes are torn
    #[arg(long, value_enum, default_value_t = Tear::Page, help_heading = "Cuts")]
    pub tear: Tear,
    /// Rules by which changes become durable
    #[arg(long, value_enum, default_value_t = Rules::Strict, help_heading = "Cuts")]
    pub rules: Rules,
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
