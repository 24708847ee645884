//! Helpers of the black-box tests: the checkout, its files, and the built binary.
//!
//! These helpers panic when something is wrong: a panic is how a test fails.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

pub mod block;
pub mod capi;
pub mod databases;
pub mod forged;
pub mod grafana;
pub mod html;
pub mod markdown;
#[cfg(test)]
mod markdown_tests;
pub mod ring;
pub mod source;
pub mod spy;
pub mod wait;

/// The one limit for everything that a test waits for, on any machine: only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// The root of the checkout.
pub fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests package lies in the checkout").to_path_buf()
}

/// Says that `cases` cases were left out and why. `make test` adds these lines up, so that nothing is skipped in
/// silence.
pub fn skipped(cases: usize, why: &str) {
    println!("SKIPPED ({cases}): {why}");
}

/// An address of this process alone, so that its servers can take fixed ports: all of 127/8 is loopback, and the id of
/// a process has at most 22 bits. Ports in use: clusters of devices from 20,000, groups below databases from 24,000,
/// pairs with metrics from 28,000, etcd from 30,000.
pub fn own_address() -> Ipv4Addr {
    let id = std::process::id();
    Ipv4Addr::new(127, 1 + (id >> 15 & 127) as u8, (id >> 7 & 255) as u8, 1 + (id & 127) as u8)
}

/// Every file of the checkout that is, or with the next commit could be, under version control, relative to [`root`].
/// In an unpacked archive without `.git`: every file outside `target` and hidden folders.
pub fn files() -> Vec<PathBuf> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let mut files = match listed {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout)
            .expect("file names are UTF-8")
            .split_terminator('\0')
            .map(PathBuf::from)
            // Removed, and not yet committed so.
            .filter(|file| root().join(file).is_file())
            .collect(),
        _ => {
            let mut found = Vec::new();
            walk(&root(), &mut found);
            found
        }
    };
    files.sort();
    files.dedup();
    files
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the checkout can be read") {
        let path = entry.expect("a folder entry can be read").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && !(name.starts_with('.') && name != ".ci") {
                walk(&path, found);
            }
        } else {
            found.push(path.strip_prefix(root()).expect("found under the root").to_path_buf());
        }
    }
}

/// The Rust files among [`files`], with their text.
pub fn rust_files() -> Vec<(PathBuf, String)> {
    files()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .map(|file| {
            let text =
                std::fs::read_to_string(root().join(&file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            (file, text)
        })
        .collect()
}

/// A command that builds, without what cargo says of the package whose test runs: scripts that build a dependency would
/// run again for it, and all that depends on them be built again.
pub fn without_package(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// The binary, of the profile that the running test was built with: normally `dev`, with assertions and overflow checks
/// on. Builds it on the first call, in the test's target folder, with all that lies beside it: the keeper, the library
/// that `tidewater run` preloads, the examples. `build_tested` in `scripts/toolchain.sh` has the reason for the
/// arguments.
pub fn binary() -> &'static Path {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    // TARGET/PROFILE/deps/TEST-HASH
    let test = std::env::current_exe().expect("a running test has a path");
    let folder = test.ancestors().nth(2).expect("a test lies in TARGET/PROFILE/deps").to_path_buf();
    let target = folder.parent().expect("a profile's folder lies in TARGET");
    let profile = if folder.ends_with("release") { "release" } else { "dev" };
    // A failure is kept as well: one attempt tells enough.
    let built = BUILT.get_or_init(|| {
        // Built by scripts/test.sh, which sets this for all the test binaries it runs.
        if profile == "dev" && std::env::var_os("TIDEWATER_BUILT").is_some() {
            return Ok(folder.join(format!("tidewater{}", std::env::consts::EXE_SUFFIX)));
        }
        let mut cargo = without_package(Command::new(env!("CARGO")));
        cargo.current_dir(root()).args(["build", "--locked", "--workspace", "--lib", "--bins", "--examples"]);
        cargo.args(["--profile", profile]).arg("--target-dir").arg(target);
        let output = cargo.output().expect("cargo starts");
        if !output.status.success() {
            return Err(end_of(&output.stderr));
        }
        Ok(folder.join(format!("tidewater{}", std::env::consts::EXE_SUFFIX)))
    });
    match built {
        Ok(binary) => binary,
        Err(why) => panic!("the binary does not build:\n{why}"),
    }
}

/// The end of what a build said, without the long line in which a linker's command is repeated.
fn end_of(errors: &[u8]) -> String {
    let errors = String::from_utf8_lossy(errors);
    let lines: Vec<&str> = errors.lines().filter(|line| line.len() < 1_000).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Builds a C program or library of `tests/programs`. `None`: there is no C compiler.
pub fn compile(name: &str, to: &Path, more: &[&str]) -> Option<PathBuf> {
    let output = to.join(name.replace(".c", ""));
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-o"]).arg(&output).arg(root().join("tests/programs").join(name)).args(more);
    match cc.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("cc: {error}"),
        Ok(done) => {
            assert!(done.status.success(), "{name}:\n{}", String::from_utf8_lossy(&done.stderr));
            Some(output)
        }
    }
}

/// Copies a file that a test runs then. Another process does it: a program that another thread of this one starts
/// meanwhile would inherit the open copy, and until its `exec` the copy could not be run ("Text file busy").
pub fn install(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).args([from, to]).status().expect("install starts");
    assert!(status.success(), "{} could not be copied to {}", from.display(), to.display());
}

/// Writes a program as [`install`] copies one.
pub fn install_bytes(bytes: &[u8], to: &Path) {
    let mut from = tempfile::NamedTempFile::new().expect("a temporary file");
    std::io::Write::write_all(&mut from, bytes).expect("there is room");
    install(from.path(), to);
}

/// A `tidewater` command in `folder`, with nothing on standard input and no terminal.
pub fn tidewater(folder: &Path) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(folder).stdin(std::process::Stdio::null());
    command
}

/// Runs `tidewater` with `arguments` in `folder`.
pub fn run(folder: &Path, arguments: &[&str]) -> Output {
    tidewater(folder).args(arguments).output().expect("the binary starts")
}

/// Runs `tidewater` and expects success; returns standard output.
pub fn run_well(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8(output.stdout).expect("standard output is UTF-8");
    assert!(output.status.success(), "tidewater {arguments:?} ended with {}:\n{said}{errors}", output.status);
    said
}

/// Runs `tidewater` and expects it to refuse: a non-zero exit, nothing on standard output, a message that is no panic.
/// Returns the message.
pub fn run_refused(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "tidewater {arguments:?} should have failed");
    assert!(output.status.code().is_some(), "tidewater {arguments:?} died of a signal: {}\n{message}", output.status);
    assert!(!message.contains("panicked"), "tidewater {arguments:?} panicked:\n{message}");
    assert!(!message.trim().is_empty(), "tidewater {arguments:?} failed without a message");
    message
}

/// The numbers, strings and flags of a JSON value, by `path` such as `latency_us.read.mean`.
pub fn at<'a>(value: &'a serde_json::Value, path: &str) -> &'a serde_json::Value {
    path.split('.').fold(value, |inner, key| &inner[key])
}
