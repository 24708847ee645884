//! `tidewater completions` and `tidewater man`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `tidewater completions`.
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// `tidewater man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Write tidewater.1 and a page for each command into this existing directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
}
