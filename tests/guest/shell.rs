//! `make guest-shell` by a pipe: its guest runs the commands, sees the drive, and ends with their status.

use crate::device::Kind;
use crate::job::Tally;
use crate::machine::Kit;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use tidewater_tests::{binary, root, wait};

/// The name of its one check.
const CHECK: &str = "commands";

/// Boots one. Its files are in `folder`.
pub fn run(kit: &Kit, kind: Kind, folder: &Path) -> Tally {
    let mut tally = Tally::default();
    if kind == Kind::Emulated {
        tally.skipped.push((CHECK.to_owned(), "the shell's drive is a served one".to_owned()));
    } else {
        match boot(kit, folder) {
            Ok(()) => tally.ok.push(CHECK.to_owned()),
            Err(why) => tally.not_ok.push((CHECK.to_owned(), why)),
        }
    }
    tally
}

fn boot(kit: &Kit, folder: &Path) -> Result<(), String> {
    let path = |name: &str| folder.join(name);
    let started = std::fs::write(path("commands"), "nvme list -o json\nexit 5\n").and_then(|()| {
        let mut command = Command::new(root().join("scripts/guest-shell.sh"));
        command.args(["--capacity", "64MiB"]).env("TIDEWATER", binary()).env("TIDEWATER_GUEST_KIT", &kit.folder);
        command.env("TMPDIR", folder).stdin(File::open(path("commands"))?);
        command.stdout(File::create(path("said"))?).stderr(File::create(path("errors"))?).spawn()
    });
    let mut child = started.map_err(|error| error.to_string())?;
    let status = wait::end(&mut child);
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
    let listed: Result<serde_json::Value, _> = serde_json::from_str(&read("said"));
    let is_drive = listed.is_ok_and(|list| list["Devices"].to_string().contains("Tidewater generic"));
    let left = std::fs::read_dir(folder).map_or(0, |files| files.flatten().filter(|file| file.path().is_dir()).count());
    match (status.code(), is_drive, left) {
        (Some(5), true, 0) => Ok(()),
        found => Err(format!("{found:?}; {}{}", read("said"), read("errors"))),
    }
}
