//! The commit that `tidewater --version` names: of a release build from a checkout, or as TIDEWATER_COMMIT says.
//! A debug build has none, so that a commit compiles nothing anew.

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TIDEWATER_COMMIT");
    let given = env::var("TIDEWATER_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_debug = env::var("PROFILE").is_ok_and(|profile| profile == "debug");
    let commit = given.or_else(|| if is_debug { None } else { checked_out() });
    let suffix = commit.map(|commit| format!(" ({})", commit.get(..8).unwrap_or(&commit))).unwrap_or_default();
    println!("cargo::rustc-env=TIDEWATER_VERSION={}{suffix}", env::var("CARGO_PKG_VERSION").unwrap_or_default());
}

/// The commit of the checkout that this crate lies in, if it lies in one.
fn checked_out() -> Option<String> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?).join("../..");
    let mut git = root.join(".git");
    // A worktree's `.git` is a file that names its folder, in which `commondir` names that of the branches.
    if let Ok(text) = fs::read_to_string(&git) {
        git = root.join(text.trim().strip_prefix("gitdir: ")?);
    }
    let common = fs::read_to_string(git.join("commondir")).map_or_else(|_| git.clone(), |at| git.join(at.trim()));
    let head = watched(&git.join("HEAD"))?;
    let Some(branch) = head.strip_prefix("ref: ") else { return hex(&head) };
    if let Some(commit) = watched(&common.join(branch)) {
        return hex(&commit);
    }
    let packed = watched(&common.join("packed-refs"))?;
    packed.lines().find_map(|line| hex(line.strip_suffix(branch)?.trim()))
}

/// A file's text, which is read again when it changes. One that is missing is not watched: it would always be new.
fn watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text.trim().to_owned())
}

fn hex(commit: &str) -> Option<String> {
    (commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| commit.to_owned())
}
