//! The rules of the house that no compiler checks: who may depend on whom, under which licences, and what a file may
//! hold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tidewater_tests::source::{code_only, has_word};
use tidewater_tests::{files, root, rust_files, skipped};

/// Which crates of the workspace a crate may use, in any kind of dependency (ARCHITECTURE.md, "Who may use whom").
/// `None`: all of them. `sim` uses `report` because the run record is `report`'s schema
/// (docs/adr/0001-run-record-in-report.md).
const DIRECTION: &[(&str, Option<&[&str]>)] = &[
    ("base", Some(&[])),
    ("wire", Some(&["base"])),
    ("nand", Some(&["base", "wire"])),
    ("core", Some(&["base", "wire", "nand", "testkit"])),
    ("ipc", Some(&["wire"])),
    ("driver", Some(&["wire", "ipc"])),
    ("client", Some(&["base", "wire", "driver"])),
    ("files", Some(&["base", "wire", "client"])),
    ("capi", Some(&["base", "client", "files"])),
    ("report", Some(&["base"])),
    ("probe", Some(&["base", "report"])),
    ("gauges", Some(&["base", "nand", "core"])),
    ("live", Some(&["gauges"])),
    ("sim", Some(&["base", "wire", "nand", "core", "gauges", "client", "report", "probe", "testkit"])),
    ("tables", Some(&["report"])),
    ("figures", Some(&["report"])),
    ("study", Some(&["base", "core", "ipc", "report", "sim"])),
    ("papers", Some(&["base", "wire", "core", "report", "sim", "study"])),
    ("serve", Some(&["base", "wire", "nand", "core", "gauges", "ipc", "live", "driver", "testkit"])),
    ("testkit", Some(&["base", "wire", "nand", "core", "driver", "sim", "serve"])),
    ("shim", Some(&["client", "files"])),
    ("keeper", Some(&["base", "live"])),
    ("crash", Some(&["base"])),
    ("crash-test", Some(&[])),
    (
        "tidewater",
        Some(&[
            "base", "wire", "nand", "core", "driver", "client", "files", "report", "probe", "sim", "study", "papers",
            "serve", "tables", "figures", "gauges", "live", "crash",
        ]),
    ),
    ("python", Some(&["client", "core", "report", "sim", "study", "tables"])),
    ("bench", None),
    ("tests", None),
];

/// Uses that only tests have: a server has no client in what is shipped, and nothing that is shipped has the test kit.
const TESTS_ONLY: &[(&str, &str)] =
    &[("serve", "driver"), ("core", "testkit"), ("sim", "testkit"), ("serve", "testkit")];

/// Licences of dependencies that go together with Apache-2.0 OR MIT in one binary.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Tools of tests that are in nothing that is shipped, each with its licence.
const TOOLS: &[(&str, &str)] = &[("cbindgen", "MPL-2.0")];

/// Files that may hold the keyword `unsafe`, each with its reason.
const UNSAFE_HOMES: &[(&str, &str)] = &[
    (
        "crates/ipc/src/memory.rs",
        "mappings that two processes share: no reference may point into them, so bytes are copied by raw pointers",
    ),
    (
        "crates/ipc/src/guard.rs",
        "the handler of SIGBUS for mappings of files that a client can make shorter: it maps zeroes there",
    ),
    (
        "crates/client/src/mapped/memory.rs",
        "the mapped ring of a client: bytes that another process shares are copied by raw pointers, and lines are \
         written back",
    ),
    (
        "crates/client/src/mapped/cut.rs",
        "a signal that the system raises where a mapped file was cut: its handler gives the address other memory",
    ),
    (
        "crates/client/src/mapped/stores.rs",
        "records on their way into the mapped ring of a client, by instructions that are used where the processor \
         has them",
    ),
    (
        "crates/files/src/compare.rs",
        "a function that is compiled once more for wider words, and called where the processor has them",
    ),
    ("crates/capi/src/lib.rs", "the functions that C programs call: their names, and the pointers that those give"),
    ("crates/capi/src/convert.rs", "as lib.rs, where pointers become references"),
    ("crates/capi/src/files.rs", "as lib.rs, of the files on a log"),
    ("crates/capi/src/window.rs", "as lib.rs, of the byte window"),
    (
        "crates/files/src/handle.rs",
        "system calls that no library wraps: which file a descriptor stands for, so that it is known again after a \
         reboot",
    ),
    (
        "crates/shim/src/real.rs",
        "the C library's functions behind the shim's, found by dlsym and called with the caller's arguments",
    ),
    (
        "crates/shim/src/memory.rs",
        "a page that a fork empties: it tells a process from a child that borrows its memory",
    ),
    (
        "crates/shim/src/process.rs",
        "words that are leaked for good, and descriptors of the program's that a call borrows",
    ),
    ("crates/shim/src/paths.rs", "paths that the program hands over as C has them"),
    ("crates/shim/src/calls/mod.rs", "symbols of the C library that stand before its own: fstat into memory for it"),
    ("crates/shim/src/calls/begin.rs", "symbols of the C library that stand before its own: where the loader begins"),
    (
        "crates/shim/src/calls/children.rs",
        "symbols of the C library that stand before its own: posix_spawn and its kin",
    ),
    ("crates/shim/src/calls/open.rs", "symbols of the C library that stand before its own: open and its kin"),
    ("crates/shim/src/calls/members.rs", "which file has a name: fstatat with bytes that end with a zero"),
    ("crates/shim/src/calls/change.rs", "the real calls of a change: ftruncate"),
    ("crates/shim/src/calls/write.rs", "symbols of the C library that stand before its own: write and its kin"),
    ("crates/shim/src/calls/rewrite.rs", "symbols of the C library that stand before its own: pwrite from a copy"),
    ("crates/shim/src/calls/sync.rs", "symbols of the C library that stand before its own: fsync and its kin"),
    ("crates/shim/src/calls/names.rs", "symbols of the C library that stand before its own: rename and its kin"),
    ("crates/shim/src/calls/descriptors.rs", "symbols of the C library that stand before its own: dup, close, fcntl"),
    ("crates/shim/src/calls/mapped.rs", "symbols of the C library that stand before its own: mprotect"),
    (
        "crates/shim/src/calls/printed.rs",
        "symbols of the C library that stand before its own: dprintf, whatever its parameters",
    ),
    (
        "crates/shim/src/calls/raw.rs",
        "symbols of the C library that stand before its own: syscall, and io_submit of libaio",
    ),
    ("crates/shim/src/calls/refused.rs", "symbols of the C library that stand before its own: mmap and its kin"),
    (
        "crates/driver/src/pci/system.rs",
        "BARs that sysfs lets a process map, whose every access is one that is meant, and the kernel's passthrough of \
         NVMe commands",
    ),
    (
        "crates/serve/src/engine/server/scheduling.rs",
        "one system call that no library wraps: the scheduler's slice of the device's thread",
    ),
    (
        "python/src/capsules.rs",
        "tables that another library of Python hands over by a pointer in a capsule (Arrow PyCapsule interface)",
    ),
    (
        "tests/tests/cluster/tun.rs",
        "a system call that no library wraps: which interface a descriptor of /dev/net/tun stands for",
    ),
];

/// The crates of the sans-IO firmware.
const SANS_IO: &[&str] = &["base", "wire", "nand", "core"];

/// Paths that reach outside: a clock, a thread, a file, a socket, the environment, the process, ambient randomness.
const OUTSIDE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::io",
    "std::os",
    "std::time",
    "SystemTime",
    "RandomState",
    "println!",
    "eprintln!",
];

/// A file beyond this many lines is usually two rooms.
const LINES_MAX: usize = 700;

/// `cargo metadata` of what this machine builds, without the network.
fn metadata() -> Value {
    let version = Command::new(env!("CARGO")).arg("-vV").output().expect("cargo starts");
    let version = String::from_utf8(version.stdout).expect("cargo prints UTF-8");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo -vV names the host");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--format-version", "1", "--filter-platform", host])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// The packages of this workspace: short name -> short names of the workspace's packages that it uses.
fn uses(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let short = |name: &str| name.strip_prefix("tidewater-").unwrap_or(name).to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    // Only packages of the workspace have no source.
    let own: Vec<&Value> = packages.iter().filter(|package| package["source"].is_null()).collect();
    let names: BTreeSet<String> = own.iter().map(|package| short(text(package, "name"))).collect();
    let mut uses = BTreeMap::new();
    for package in own {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        let name = short(text(package, "name"));
        let used = dependencies.iter().map(|d| short(text(d, "name")));
        // A crate's own tests may use it with a feature that they alone turn on.
        let used = used.filter(|used| names.contains(used) && *used != name).collect();
        uses.insert(name, used);
    }
    uses
}

/// The uses of [`TESTS_ONLY`] that are not development dependencies alone.
fn beyond_tests(metadata: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    for (user, used) in TESTS_ONLY {
        let packages = metadata["packages"].as_array().expect("packages");
        let package = packages.iter().find(|package| text(package, "name") == format!("tidewater-{user}"));
        let dependencies = package.expect("a package of the workspace")["dependencies"].as_array();
        let mut of_used =
            dependencies.into_iter().flatten().filter(|one| text(one, "name") == format!("tidewater-{used}"));
        if of_used.any(|one| text(one, "kind") != "dev") {
            wrong.push(format!("{user} must not use {used} outside of its tests"));
        }
    }
    wrong
}

/// Uses that the table does not allow, in words.
fn against_direction(uses: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, used) in uses {
        match DIRECTION.iter().find(|(known, _)| known == name) {
            None => wrong.push(format!("{name} is not in the table of directions")),
            Some((_, None)) => {}
            Some((_, Some(allowed))) => {
                wrong.extend(
                    used.iter()
                        .filter(|one| !allowed.contains(&one.as_str()))
                        .map(|one| format!("{name} must not use {one}")),
                );
            }
        }
    }
    wrong
}

#[test]
fn crates_depend_in_one_direction() {
    let mut metadata = metadata();
    let uses = uses(&metadata);
    let mut wrong = against_direction(&uses);
    wrong.extend(beyond_tests(&metadata));
    assert!(wrong.is_empty(), "{wrong:#?}");
    for (name, _) in DIRECTION {
        assert!(uses.contains_key(*name), "{name} is in the table of directions, and not in the workspace");
    }

    // The check itself catches a dependency against the stream, and a crate that is missing from the table.
    let mut broken = uses.clone();
    broken.get_mut("base").expect("base exists").insert("core".to_owned());
    broken.insert("new".to_owned(), BTreeSet::new());
    assert_eq!(against_direction(&broken).len(), 2);

    // And one that tests alone may have, in what is shipped.
    for package in metadata["packages"].as_array_mut().expect("packages") {
        for dependency in package["dependencies"].as_array_mut().into_iter().flatten() {
            dependency["kind"] = Value::Null;
        }
    }
    assert_eq!(beyond_tests(&metadata).len(), TESTS_ONLY.len());
}

/// The packages and features that a build of the whole workspace takes; `edges`: kinds of dependencies.
fn build_graph(edges: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    let tree = cargo.args(["tree", "--offline", "--workspace", "--edges", edges]).current_dir(root()).output();
    let tree = tree.expect("cargo starts");
    assert!(tree.status.success(), "cargo tree: {}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).expect("cargo prints UTF-8")
}

#[test]
fn only_tests_have_deliberate_flaws() {
    let (core, flaws) = ("tidewater-core feature \"default\"", "tidewater-core feature \"flaws\"");
    // Neither what is shipped nor a benchmark, by a default feature or by a dependency.
    let without_tests = build_graph("normal,build,features");
    assert!(without_tests.contains(core) && !without_tests.contains(flaws), "{without_tests}");
    let with_tests = build_graph("normal,build,dev,features");
    assert!(with_tests.contains(flaws), "{with_tests}");
}

#[test]
fn the_command_line_uses_the_server_to_serve_alone() {
    let uses = |(file, source): &(PathBuf, String)| {
        file.starts_with("crates/cli/src") && has_word(&code_only(source), "tidewater_serve")
    };
    let found: Vec<PathBuf> = rust_files().into_iter().filter(uses).map(|(file, _)| file).collect();
    assert_eq!(
        found,
        ["cluster.rs", "dry.rs", "fault.rs", "group.rs", "served.rs", "socket.rs"]
            .map(|file| Path::new("crates/cli/src").join(file))
    );
}

/// Is an SPDX expression satisfied by the licences in `allowed`? AND needs both sides, OR needs one. Old manifests
/// write OR as `/`.
fn licence_allowed(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut tokens = spaced.split_whitespace().peekable();
    let result = any(&mut tokens, allowed);
    return result && tokens.next().is_none();

    type Tokens<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

    fn any(tokens: &mut Tokens<'_>, allowed: &[&str]) -> bool {
        let mut result = all(tokens, allowed);
        while tokens.next_if_eq(&"OR").is_some() {
            result |= all(tokens, allowed);
        }
        result
    }

    fn all(tokens: &mut Tokens<'_>, allowed: &[&str]) -> bool {
        let mut result = one(tokens, allowed);
        while tokens.next_if_eq(&"AND").is_some() {
            result &= one(tokens, allowed);
        }
        result
    }

    fn one(tokens: &mut Tokens<'_>, allowed: &[&str]) -> bool {
        if tokens.next_if_eq(&"(").is_some() {
            let inner = any(tokens, allowed);
            return tokens.next_if_eq(&")").is_some() && inner;
        }
        let Some(mut licence) = tokens.next().map(str::to_owned) else { return false };
        if tokens.next_if_eq(&"WITH").is_some() {
            licence = format!("{licence} WITH {}", tokens.next().unwrap_or_default());
        }
        allowed.contains(&licence.as_str())
    }
}

#[test]
fn licence_expressions_are_understood() {
    let allowed = &["MIT", "Apache-2.0", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"];
    for good in [
        "MIT",
        "MIT OR GPL-3.0",
        "MIT/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
    ] {
        assert!(licence_allowed(good, allowed), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "MIT Apache-2.0", "GPL-2.0 WITH LLVM-exception"] {
        assert!(!licence_allowed(bad, allowed), "{bad}");
    }
}

#[test]
fn dependencies_have_compatible_licences() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 10, "cargo metadata names the dependencies");
    let wrong: Vec<String> = packages
        .iter()
        .filter(|package| !licence_allowed(text(package, "license"), LICENCES))
        .filter(|package| !TOOLS.contains(&(text(package, "name"), text(package, "license"))))
        .map(|package| {
            format!("{} {}: '{}'", text(package, "name"), text(package, "version"), text(package, "license"))
        })
        .collect();
    assert!(wrong.is_empty(), "licences that are not on the list: {wrong:#?}");
    for own in packages.iter().filter(|package| package["source"].is_null()) {
        assert_eq!(text(own, "license"), "Apache-2.0 OR MIT", "{}", text(own, "name"));
    }
}

/// Packages of which `Cargo.lock` has several versions, and how many: our dependencies ask for these. The list only
/// shrinks.
const SEVERAL_VERSIONS: &[(&str, usize)] = &[
    ("base64", 2),
    ("bitflags", 2),
    ("getrandom", 3),
    ("hashbrown", 3),
    ("kurbo", 2),
    ("miniz_oxide", 2),
    ("num-bigint", 2),
    ("prettyplease", 2),
    ("r-efi", 2),
    ("rand", 2),
    ("rand_core", 2),
    ("syn", 2),
    ("toml", 2),
    ("toml_datetime", 2),
    ("windows-sys", 2),
    ("winnow", 2),
];

/// Name and version of each package that `Cargo.lock` has from elsewhere, all of them of crates.io, with their sums.
fn locked() -> Vec<(String, String)> {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("the file can be read");
    let mut found = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let value = |key: &str| {
            let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            line.map(|value| value.trim_matches('"').to_owned())
        };
        let name = value("name").expect("a name");
        let Some(source) = value("source") else { continue };
        assert_eq!(source, "registry+https://github.com/rust-lang/crates.io-index", "{name}");
        assert!(value("checksum").is_some_and(|sum| sum.len() == 64), "{name} has no checksum");
        found.push((name, value("version").expect("a version")));
    }
    assert!(found.len() > 100, "{} packages", found.len());
    found
}

#[test]
fn dependencies_are_of_one_source_and_few_come_in_several_versions() {
    let mut versions: BTreeMap<String, usize> = BTreeMap::new();
    for (name, _) in locked() {
        *versions.entry(name).or_default() += 1;
    }
    let several: Vec<(&str, usize)> =
        versions.iter().filter(|(_, count)| **count > 1).map(|(name, count)| (name.as_str(), *count)).collect();
    assert_eq!(several, SEVERAL_VERSIONS, "left: in Cargo.lock; a new one is avoided, and one that went off the list");
}

/// Cargo takes a locked version that was withdrawn without a word. It keeps what it last read of the index, a line of
/// JSON for each version: `cargo update --dry-run` renews that.
#[test]
fn no_dependency_is_withdrawn() {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let indexes = home.and_then(|home| std::fs::read_dir(home.join("registry/index")).ok()).into_iter().flatten();
    let caches: Vec<PathBuf> = indexes.flatten().map(|index| index.path().join(".cache")).collect();
    let (mut withdrawn, mut unknown) = (Vec::new(), Vec::new());
    for (name, version) in locked() {
        let lower = name.to_lowercase();
        let place = match lower.len() {
            1 | 2 => format!("{}/{lower}", lower.len()),
            3 => format!("3/{}/{lower}", &lower[..1]),
            _ => format!("{}/{}/{lower}", &lower[..2], &lower[2..4]),
        };
        let texts = caches.iter().filter_map(|cache| std::fs::read(cache.join(&place)).ok());
        let is_withdrawn = texts.into_iter().find_map(|text| {
            let lines = text.split(|byte| *byte == 0).filter_map(|line| serde_json::from_slice::<Value>(line).ok());
            lines.filter(|line| line["vers"] == version.as_str()).find_map(|line| line["yanked"].as_bool())
        });
        match is_withdrawn {
            None => unknown.push(name),
            Some(true) => withdrawn.push(format!("{name} {version}")),
            Some(false) => {}
        }
    }
    if !unknown.is_empty() {
        skipped(unknown.len(), "cargo has no index of these packages here: cargo update --dry-run");
    }
    assert!(withdrawn.is_empty(), "withdrawn by their authors: {withdrawn:?}; cargo update -p NAME");
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for manifest in files().iter().filter(|file| file.ends_with("Cargo.toml") && *file != Path::new("Cargo.toml")) {
        let content = std::fs::read_to_string(root().join(manifest)).expect("a manifest is text");
        // A crate with homes of unsafe code denies it elsewhere, and keeps the other lints: `forbid` has no exceptions.
        let has_home = |(home, _): &(&str, &str)| Path::new(home).starts_with(manifest.parent().expect("a folder"));
        let lints = if UNSAFE_HOMES.iter().any(has_home) {
            "[lints.rust]\nunsafe_code = \"deny\"\nmissing_docs = \"warn\"\n\n\
             [lints.clippy]\nall = { level = \"warn\", priority = -1 }"
        } else {
            "[lints]\nworkspace = true"
        };
        assert!(content.contains(lints), "{}", manifest.display());
    }
}

#[test]
fn unsafe_code_stays_in_its_homes() {
    let found: BTreeSet<PathBuf> = rust_files()
        .into_iter()
        .filter(|(_, source)| has_word(&code_only(source), "unsafe"))
        .map(|(file, _)| file)
        .collect();
    let homes: BTreeSet<PathBuf> = UNSAFE_HOMES.iter().map(|(file, _)| PathBuf::from(file)).collect();
    assert_eq!(found, homes, "files with unsafe code (left), files that may have it (right)");
}

#[test]
fn the_firmware_does_no_io() {
    let mut wrong = Vec::new();
    for (file, source) in rust_files() {
        let firmware = SANS_IO.iter().any(|name| file.starts_with(format!("crates/{name}/src")));
        let tests = file.file_stem().is_some_and(|stem| stem == "tests") || file.iter().any(|part| part == "tests");
        if !firmware || tests {
            continue;
        }
        // Unit tests stand at the end of their file, and may read files.
        let code = code_only(&source);
        let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        wrong.extend(
            OUTSIDE.iter().filter(|word| code.contains(**word)).map(|word| format!("{}: {word}", file.display())),
        );
    }
    assert!(wrong.is_empty(), "sans-IO crates reach outside: {wrong:#?}");
}

#[test]
fn files_are_one_room() {
    let is_source = |file: &PathBuf| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| ["rs", "c", "h", "cc", "py", "sh"].contains(&extension))
    };
    let long: Vec<String> = files()
        .into_iter()
        .filter(is_source)
        .map(|file| {
            let source = std::fs::read_to_string(root().join(&file)).expect("a source is text");
            (file, source.lines().count())
        })
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(file, lines)| format!("{}: {lines} lines", file.display()))
        .collect();
    assert!(long.is_empty(), "more than {LINES_MAX} lines: {long:#?}");
}

/// Columns of a line at most.
const COLUMNS: usize = 120;

/// Is a line of this file one that can't be broken? A link or an address as its only word.
fn may_be_wide(line: &str) -> bool {
    let text = line.trim_start_matches([' ', '\t', '/', '*', '#', '!', '-', '>']).trim_end();
    let is_definition = text.starts_with('[') && text.contains("]: ") && text.split_whitespace().count() == 2;
    is_definition || !text.contains(char::is_whitespace) && text.contains("://")
}

#[test]
fn lines_end_at_120_columns() {
    let is_ours = |file: &PathBuf| {
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let is_fetched = file.file_stem().is_some_and(|name| name == "uplot");
        ["rs", "md", "toml", "sh", "c", "h", "cc", "py", "yml", "css", "js", "mjs", "html"].contains(&extension)
            && !is_fetched
            || ["Makefile", ".ci/run"].iter().any(|name| file == Path::new(name))
    };
    let mut wide = Vec::new();
    for file in files().into_iter().filter(is_ours) {
        let text = std::fs::read_to_string(root().join(&file)).expect("a file of ours is text");
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > COLUMNS && !may_be_wide(line) {
                wide.push(format!("{}:{}", file.display(), number + 1));
            }
        }
    }
    assert!(wide.is_empty(), "wider than {COLUMNS} columns: {wide:#?}");

    let address = format!("https://example.org/{}", "a".repeat(COLUMNS));
    for narrow in [format!("[1]: {address}"), format!("/// {address}")] {
        assert!(may_be_wide(&narrow), "{narrow}");
    }
    for broken in [format!("See {address} for it"), "word ".repeat(30), "x".repeat(COLUMNS + 1)] {
        assert!(!may_be_wide(&broken), "{broken}");
    }
}

/// Targets of `[text](target)` and `![text](target)` outside of code, with their line numbers.
fn links(markdown: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in markdown.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced || line.starts_with("    ") {
            continue;
        }
        // Every second piece between backticks is code.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in prose.split("](").skip(1) {
            if let Some(end) = piece.find(')') {
                let target = piece[..end].split_whitespace().next().unwrap_or_default();
                found.push((index + 1, target.trim_matches(['<', '>']).to_owned()));
            }
        }
    }
    found
}

/// The anchors that a page's headings get, as code forges make them: lower case, spaces to hyphens, other signs gone.
fn anchors(markdown: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in markdown.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced || !line.starts_with('#') {
            continue;
        }
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        found.insert(
            heading
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect(),
        );
    }
    found
}

#[test]
fn links_between_documents_resolve() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    let read = |path: &Path| std::fs::read_to_string(root().join(path)).unwrap_or_default();
    for file in files().iter().filter(|file| file.extension().is_some_and(|e| e == "md")) {
        let content = read(file);
        for (line, link) in links(&content) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            checked += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let mut target = file.clone();
            if !path.is_empty() {
                target = file.parent().expect("a file has a folder").join(path);
            }
            let place = format!("{}:{line}: {link}", file.display());
            let Ok(real) = root().join(&target).canonicalize() else {
                wrong.push(format!("{place}: no such file"));
                continue;
            };
            if !real.starts_with(root().canonicalize().expect("the checkout exists")) {
                wrong.push(format!("{place}: outside of the repository"));
            } else if !anchor.is_empty() && real.extension().is_some_and(|e| e == "md") {
                let headings = anchors(&std::fs::read_to_string(&real).unwrap_or_default());
                if !headings.contains(anchor) {
                    wrong.push(format!("{place}: no such heading"));
                }
            }
        }
    }
    assert!(checked > 0, "no link was found: the reader of links is broken");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    // Put together here, so that this file does not find itself.
    let places = ["work", "root"].map(|folder| format!("/{folder}/"));
    let mut wrong = Vec::new();
    for file in files() {
        // Binary files are no text, and name nothing.
        let Ok(content) = std::fs::read_to_string(root().join(&file)) else { continue };
        for (index, line) in content.lines().enumerate() {
            if places.iter().any(|place| line.contains(place.as_str())) {
                wrong.push(format!("{}:{}", file.display(), index + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
