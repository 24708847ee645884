//! Content that a disk would keep over a loss of power (`tests/databases/witness.c`), and the loss itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::root;

/// The witness, compiled.
#[derive(Clone, Debug)]
pub struct Witness {
    library: PathBuf,
    program: PathBuf,
}

/// How many files a loss of power left as they were, set back, and emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reset {
    /// As they were.
    pub as_synced: u64,
    /// To what was synced last.
    pub set_back: u64,
    /// Never synced, and not empty.
    pub emptied: u64,
}

/// Compiles a library to preload.
///
/// # Errors
/// There is no C compiler, or it refuses.
pub fn compile_library(source: &Path, target: &Path) -> Result<(), String> {
    compile(source, &["-shared", "-fPIC"], target)
}

fn compile(source: &Path, how: &[&str], target: &Path) -> Result<(), String> {
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror"]).args(how).arg(source).arg("-o").arg(target);
    let output = compiler.args(["-ldl", "-lpthread"]).output().map_err(|error| format!("cc: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(format!("cc: {}", String::from_utf8_lossy(&output.stderr))) }
}

impl Witness {
    /// Compiles it into `folder`.
    ///
    /// # Errors
    /// There is no C compiler, or it refuses.
    pub fn build(folder: &Path) -> Result<Witness, String> {
        let witness = Witness { library: folder.join("witness.so"), program: folder.join("witness") };
        let source = root().join("tests/databases/witness.c");
        compile_library(&source, &witness.library)?;
        compile(&source, &["-DWITNESS_PROGRAM"], &witness.program)?;
        Ok(witness)
    }

    /// The preloaded library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Has a program keep in `shadows` what it syncs.
    pub fn attach(&self, command: &mut Command, shadows: &Path) {
        command.env("LD_PRELOAD", &self.library).env("TIDEWATER_WITNESS", shadows);
    }

    /// The same for a program that is the only writer of large files.
    pub fn attach_tracking(&self, command: &mut Command, shadows: &Path) {
        self.attach(command, shadows);
        command.env("TIDEWATER_WITNESS_TRACK", "1");
    }

    /// Takes what is below these folders now as durable.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn keep(&self, shadows: &Path, roots: &[&Path]) -> Result<(), String> {
        self.call("keep", shadows, roots).map(|_| ())
    }

    /// The loss of power, once every process is gone: sets every file below these folders, in place, to what was synced
    /// last.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn reset(&self, shadows: &Path, roots: &[&Path]) -> Result<Reset, String> {
        let words = self.call("reset", shadows, roots)?;
        let numbers: Vec<u64> = words.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [as_synced, set_back, emptied] => Ok(Reset { as_synced, set_back, emptied }),
            _ => Err(format!("witness: {words}")),
        }
    }

    fn call(&self, what: &str, shadows: &Path, roots: &[&Path]) -> Result<String, String> {
        let output = Command::new(&self.program).arg(what).arg(shadows).args(roots).output();
        let output = output.map_err(|error| format!("{}: {error}", self.program.display()))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}
