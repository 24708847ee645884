//! Crash tests from Rust, from Go and in a container: the guide's tests, as they fail and as they pass, tests of both
//! packages, the recipe of an image.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use tidewater_tests::{binary, root, skipped};

use crate::crash_test::{blocks, has_fuse, python, text};

/// The guide's test in a language, whose program lacks a sync, the same with `sync` before ids are acknowledged, and
/// the failure that the guide prints.
fn example(kind: &str, acknowledge: &str, sync: &str) -> (String, String, String) {
    let page = fs::read_to_string(root().join("docs/guide/crash-testing.md")).expect("the guide is there");
    let [unsynced] = blocks(&page, kind).try_into().expect("one test of this language");
    let (before, behind) = unsynced.split_once(acknowledge).expect("it acknowledges ids");
    let synced = format!("{before}{sync}{acknowledge}{behind}");
    let failures = blocks(&page, "text").into_iter().filter(|text| text.starts_with("power cut after 2 operations"));
    let [failure] = failures.collect::<Vec<_>>().try_into().expect("one failure, the same in each language");
    (unsynced, synced, failure)
}

/// Runs a command of a language's tools, or one that they have made.
fn output(command: &mut Command) -> Output {
    command.env("TIDEWATER_PROGRAM", binary()).output().expect("it starts")
}

fn assert_passed(done: &Output) {
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
}

/// Compiles a file of tests against the crate as it is built beside the binary.
fn rust(file: &Path) -> PathBuf {
    let built = binary().parent().expect("a profile's folder");
    let library = built.join("libtidewater_crash_test.rlib");
    let tests = file.with_extension("");
    let cargo = Path::new(env!("CARGO"));
    let mut rustc = Command::new(cargo.with_file_name("rustc"));
    rustc.args(["--test", "--edition=2024", "-Dwarnings", "-Cdebuginfo=0", "-o"]).arg(&tests).arg(file);
    rustc.arg("-L").arg(format!("dependency={}", built.join("deps").display()));
    rustc.arg("--extern").arg(format!("tidewater_crash_test={}", library.display()));
    assert_passed(&output(&mut rustc));
    tests
}

#[test]
fn the_guides_test_in_rust_fails_as_printed_and_passes_with_its_sync() {
    if !has_fuse(1) {
        return;
    }
    let (unsynced, synced, failure) = example("rust", "acknowledge(&number)", "log.sync_all().unwrap();\n");
    let home = TempDir::new().expect("a temporary folder");
    let file = home.path().join("log.rs");
    fs::write(&file, unsynced).expect("the folder is writable");
    let tests = rust(&file);
    for threads in ["2", "1"] {
        let found = output(Command::new(&tests).args(["--test-threads", threads]));
        assert_eq!(found.status.code(), Some(101), "{}{}", text(&found.stdout), text(&found.stderr));
        assert!(text(&found.stdout).contains(&failure), "{}", text(&found.stdout));
    }
    let kept = home.path().join("crash-tests/log.a_power_cut_loses_no_record.failure");
    let again = output(Command::new(binary()).args(["crash-test", "--replay"]).arg(&kept).current_dir(home.path()));
    assert!(again.status.code() == Some(1) && text(&again.stdout).contains(&failure), "{}", text(&again.stdout));

    fs::write(&file, synced).expect("the folder is writable");
    assert_passed(&output(&mut Command::new(rust(&file))));
    assert!(!kept.exists(), "the failure of an earlier run");
}

#[test]
fn commands_panics_and_mistakes_in_rust() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let file = home.path().join("crash_tests.rs");
    fs::copy(root().join("tests/programs/crash_tests.rs"), &file).expect("the folder is writable");
    let tests = rust(&file);
    assert_passed(&output(&mut Command::new(&tests)));
    let failed = output(Command::new(&tests).args(["--ignored", "a_state_that_fails"]));
    assert_eq!(failed.status.code(), Some(101), "{}", text(&failed.stdout));
    assert!(text(&failed.stdout).contains("#0 create it's (never made durable)"), "{}", text(&failed.stdout));
}

/// Go in a folder, without the network.
fn go(folder: &Path, arguments: &[&str]) -> Output {
    let mut go = Command::new("go");
    go.args(arguments).current_dir(folder).env("GOPROXY", "off").env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local");
    output(&mut go)
}

fn has_go(cases: usize) -> bool {
    let has = Command::new("go").arg("version").output().is_ok_and(|done| done.status.success());
    if !has {
        skipped(cases, "no Go here");
    }
    has
}

#[test]
fn the_guides_test_in_go_fails_as_printed_and_passes_with_its_sync() {
    if !has_fuse(1) || !has_go(1) {
        return;
    }
    let (unsynced, synced, failure) = example("go", "acknowledge(number)", "log.Sync()\n");
    let home = TempDir::new().expect("a temporary folder");
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text).expect("the folder is writable");
    let module = root().join("integrations/go/crashtest");
    let requires = format!("require tidewater/crashtest v0.0.0\nreplace tidewater/crashtest => {}\n", module.display());
    write("go.mod", &format!("module example\ngo 1.22\n{requires}"));
    write("log_test.go", &unsynced);
    let found = go(home.path(), &["test", "."]);
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
    // Lines of a failure are indented.
    let said: Vec<String> = text(&found.stdout).lines().map(|line| line.trim().to_owned()).collect();
    let expected: Vec<&str> = failure.lines().map(str::trim).collect();
    assert!(said.windows(expected.len()).any(|lines| lines == expected), "{said:#?}");

    write("log_test.go", &synced);
    assert_passed(&go(home.path(), &["test", "."]));
}

#[test]
fn the_package_for_go_passes_its_own_tests() {
    if !has_fuse(1) || !has_go(1) {
        return;
    }
    let module = root().join("integrations/go/crashtest");
    assert_passed(&go(&module, &["vet", "."]));
    assert_passed(&go(&module, &["test", "-count=1", "."]));
    let formatted = output(Command::new("gofmt").arg("-l").arg(&module));
    assert!(formatted.status.success() && formatted.stdout.is_empty(), "{}", text(&formatted.stdout));
}

/// The instructions of a Containerfile: each on one line, without comments.
fn instructions(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let joined = lines.join("\n").replace("\\\n", " ");
    let split = |line: &str| line.split_once(' ').map(|(name, rest)| (name.to_owned(), rest.trim().to_owned()));
    joined.lines().filter(|line| !line.is_empty()).map(|line| split(line).expect("a name and arguments")).collect()
}

/// No image is made here. The command of the recipe runs on the guide's log, in the folders of a container.
#[test]
fn the_containers_command_finds_the_guides_log() {
    let (true, Some(python)) = (has_fuse(1), python(1)) else { return };
    let recipe = fs::read_to_string(root().join("examples/Containerfile")).expect("the recipe is there");
    let instructions = instructions(&recipe);
    let names: Vec<&str> = instructions.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["FROM", "COPY", "RUN", "COPY", "WORKDIR", "CMD"]);
    assert!(instructions[2].1.contains("fuse3") && instructions[2].1.contains("/tmp/tidewater_*.deb"));
    assert_eq!(instructions[3..5], [("COPY", ". /tests"), ("WORKDIR", "/out")].map(|(a, b)| (a.into(), b.into())));

    let home = TempDir::new().expect("a temporary folder");
    let page = fs::read_to_string(root().join("docs/guide/crash-testing.md")).expect("the guide is there");
    let programs = blocks(&page, "python");
    for (name, program) in ["log.py", "check.py"].into_iter().zip(&programs) {
        fs::write(home.path().join(name), program).expect("the folder is writable");
    }
    let here = |word: String| {
        let word = word.replace("/tests", home.path().to_str().expect("UTF-8"));
        word.replace("python3", python.to_str().expect("UTF-8"))
    };
    let words: Vec<String> = serde_json::from_str(&instructions[5].1).expect("words as JSON");
    assert_eq!(words[0], "tidewater");
    let found = output(Command::new(binary()).args(words.into_iter().skip(1).map(here)).current_dir(home.path()));
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
    assert!(home.path().join("crash-test.xml").is_file() && home.path().join("crash-test.failure").is_file());
}
