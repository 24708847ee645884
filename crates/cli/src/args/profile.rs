//! The commands of profiles.

use super::examples;
use clap::{Subcommand, ValueHint};
use std::path::PathBuf;
use tidewater_study::Setting;

/// `tidewater profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// List the profiles that are compiled in, one a line, the name first
    #[command(after_help = examples::PROFILE_LIST)]
    List,
    /// Print a profile as TOML: every setting with its meaning, range and the reason for its default
    #[command(after_help = examples::PROFILE_SHOW)]
    Show {
        /// A name from `tidewater profile list`, or a TOML file
        #[arg(value_name = "PROFILE", default_value = "generic", value_hint = ValueHint::FilePath)]
        profile: PathBuf,
        /// Change one setting before it is shown; may be given several times
        #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other)]
        set: Vec<Setting>,
    },
    /// Print the JSON schema of profiles, with which an editor checks and completes them
    #[command(after_help = examples::PROFILE_SCHEMA)]
    Schema,
    /// Check profile files: keys, units, ranges, and whether the settings can stand together
    #[command(after_help = examples::PROFILE_CHECK)]
    Check {
        /// TOML files, or names from `tidewater profile list`
        #[arg(value_name = "PROFILE", required = true, value_hint = ValueHint::FilePath)]
        profiles: Vec<PathBuf>,
        /// Change one setting before the check; may be given several times
        #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other)]
        set: Vec<Setting>,
    },
    /// Show the settings in which two profiles differ
    #[command(after_help = examples::PROFILE_DIFF)]
    Diff {
        /// A name from `tidewater profile list`, or a TOML file
        #[arg(value_name = "A", value_hint = ValueHint::FilePath)]
        from: PathBuf,
        /// The other one
        #[arg(value_name = "B", value_hint = ValueHint::FilePath)]
        to: PathBuf,
    },
}
