//! The C library, installed as `make install` does, for tests that compile against it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{root, without_package};

/// The installed library.
#[derive(Debug)]
pub struct Installed {
    /// Where.
    pub prefix: PathBuf,
}

impl Installed {
    /// The library, installed in this folder once for all tests of a process.
    pub fn at(folder: impl AsRef<Path>) -> &'static Installed {
        static INSTALLED: OnceLock<Installed> = OnceLock::new();
        INSTALLED.get_or_init(|| {
            let prefix = folder.as_ref().join("capi");
            let mut install = without_package(Command::new(root().join("scripts/install.sh")));
            said(install.env("PREFIX", &prefix).env("CAPI_PROFILE", "dev").env("CARGO", env!("CARGO")));
            Installed { prefix }
        })
    }

    /// Flags of pkg-config for it.
    pub fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(arguments).arg("tidewater").env("PKG_CONFIG_PATH", self.prefix.join("lib/pkgconfig"));
        said(&mut command).split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a layer (`integrations`), without a warning, into a folder. `None`: what it needs is not installed.
    pub fn layer(&self, source: &str, header: &str, into: &Path) -> Option<PathBuf> {
        if !Path::new("/usr/include").join(header).exists() {
            return None;
        }
        let source = root().join("integrations").join(source);
        let library = into.join(source.file_stem().expect("a file")).with_extension("so");
        let is_c = source.extension().is_some_and(|extension| extension == "c");
        let mut compiler = Command::new(if is_c { "cc" } else { "c++" });
        compiler.args(if is_c { ["-std=gnu11", "-O1"] } else { ["-std=c++17", "-O1"] });
        compiler.args(["-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread", "-o"]).arg(&library).arg(&source);
        compiler.args(self.flags(&["--cflags", "--libs"]));
        compiler.arg(format!("-Wl,-rpath,{}", self.prefix.join("lib").display()));
        said(&mut compiler);
        Some(library)
    }
}

/// Runs a command that must succeed. Returns what it printed.
pub fn said(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).expect("it is UTF-8")
}
