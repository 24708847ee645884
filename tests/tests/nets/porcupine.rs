//! The second judge of histories: Porcupine, in a program of its own (`tests/porcupine`), where Go is installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tidewater_tests::root;

use crate::nets::history::{Call, lines};

/// Its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The calls can have come about one after the other.
    Linearizable,
    /// They can't.
    Impossible,
    /// It was not found out in time.
    Undecided,
}

/// The program, built once.
///
/// # Errors
/// Why there is none here, in words.
fn program() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let go = |line: &[&str]| Command::new("go").args(line).current_dir(root().join("tests/porcupine")).output();
        go(&["version"]).map_err(|_| "no Go here: a second judge of histories (Porcupine) is left out".to_owned())?;
        let had = go(&["mod", "download"]).expect("Go is installed");
        if !had.status.success() {
            return Err(format!("Porcupine can't be had: {}", String::from_utf8_lossy(&had.stderr).trim()));
        }
        let test = std::env::current_exe().expect("a running test has a path");
        // Each test binary has its own: two of them may build at once.
        let to = test.with_extension("porcupine");
        let output = go(&["build", "-o", to.to_str().expect("UTF-8"), "."]).expect("Go is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(to)
    });
    built.as_deref().map_err(String::as_str)
}

/// Has a history judged.
///
/// # Errors
/// Why it can't be, in words.
pub fn judge(calls: &[Call]) -> Result<Judgement, &'static str> {
    let program = program()?;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("history");
    std::fs::write(&path, lines(calls)).expect("a folder");
    let status = Command::new(program).arg(&path).stdout(Stdio::null()).status().expect("it was built");
    match status.code() {
        Some(0) => Ok(Judgement::Linearizable),
        Some(1) => Ok(Judgement::Impossible),
        Some(2) => Ok(Judgement::Undecided),
        _ => panic!("Porcupine ended with {status}"),
    }
}
