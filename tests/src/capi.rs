//! The C library, installed as `make install` does, for tests that compile against it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::root;

/// The installed library.
#[derive(Debug)]
pub struct Installed {
    /// Where.
    pub prefix: PathBuf,
}

impl Installed {
    /// The library, installed in this folder once for all tests of a process.
    pub fn at(folder: &str) -> &'static Installed {
        static INSTALLED: OnceLock<Installed> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let prefix = Path::new(folder).join("capi");
            let mut install = Command::new(root().join("scripts/install.sh"));
            said(install.env("PREFIX", &prefix).env("CAPI_PROFILE", "dev").env("CARGO", env!("CARGO")));
            Installed { prefix }
        })
    }

    /// What pkg-config says for it.
    pub fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(arguments).arg("tidewater").env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        said(&mut command).split_whitespace().map(str::to_owned).collect()
    }
}

/// Runs a command that must succeed. Returns what it printed.
pub fn said(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("it is UTF-8")
}
