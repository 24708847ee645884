//! Block devices of this machine's kernel, for tests that need a real one.

use std::fs::File;
use std::path::Path;
use std::process::Command;

/// A block device of so many bytes, over a file. It goes when this is dropped.
#[derive(Debug)]
pub struct Loop(
    /// Its path.
    pub String,
);

impl Loop {
    /// Makes the file and the device.
    ///
    /// # Errors
    /// Why there is none here: no `losetup`, or no permission.
    ///
    /// # Panics
    /// When the file cannot be made.
    pub fn new(file: &Path, bytes: u64) -> Result<Loop, String> {
        File::create(file).and_then(|file| file.set_len(bytes)).expect("the folder is writable");
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let made = made.map_err(|error| format!("losetup: {error}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
        }
        Ok(Loop(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}
