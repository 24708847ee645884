//! The C library as it is installed: compiled by cc, linked both ways, run against a served device.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidewater_tests::capi::{Installed, said};
use tidewater_tests::ring::{Device, RING};
use tidewater_tests::{root, skipped, tidewater, wait, without_package};
use tidewater_wire::log::RING_FILE_BAR2;
use tidewater_wire::vendor::LanePage;

fn installed() -> &'static Installed {
    Installed::at(env!("CARGO_TARGET_TMPDIR"))
}

/// Compiles a C program of the crate.
fn compile(source: &str, into: &Path, is_static: bool) -> PathBuf {
    let program = into.join(Path::new(source).file_stem().expect("a file"));
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program);
    cc.arg(root().join("crates/capi").join(source));
    cc.args(installed().flags(&["--cflags"]));
    if is_static {
        // All but the system's libraries.
        cc.arg(installed().prefix.join("lib/libtidewater.a"));
        cc.args(installed().flags(&["--libs", "--static"]).iter().filter(|flag| *flag != "-ltidewater"));
    } else {
        cc.args(installed().flags(&["--libs"])).arg(format!("-Wl,-rpath,{}", installed().prefix.join("lib").display()));
    }
    said(&mut cc);
    program
}

#[test]
fn the_abi_holds_as_c_sees_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut device = Device::start(folder.path(), &["--set", "fast.log_size=8MiB"]);
    let program = compile("tests/abi.c", folder.path(), false);
    let mut child = Command::new(program)
        .args([device.target(), device.child.id().to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut next = || lines.next().and_then(Result::ok);
    let killed = next();
    if killed.as_deref() == Some("killed") {
        device.child.wait().expect("the process can be waited for");
        device = Device::start(folder.path(), &["--set", "fast.log_size=8MiB"]);
        child.stdin.take().expect("it is piped").write_all(b"\n").expect("the program reads its input");
    }
    let last = next();
    let output = child.wait_with_output().expect("the process can be waited for");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((killed.as_deref(), last.as_deref()), (Some("killed"), Some("ok")), "{errors}");
    assert!(output.status.success(), "{errors}");
    drop(device);
}

#[test]
fn c_hears_of_a_full_log_a_lane_that_is_taken_and_a_broken_stream() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &["--set", "fast.on_wrap=wait-for-trim"]);
    let program = compile("tests/errors.c", folder.path(), false);
    // Where the client locks lane 0, and where BAR2's lane page begins in the ring's file (docs/reference/vendor.md).
    let (lock, tail) = (1u64 << 40, RING_FILE_BAR2 + 4096 + LanePage::TAIL_OFFSET as u64);
    let mut run = Command::new(program);
    run.arg(device.target()).arg(folder.path().join("ring")).args([lock, tail, RING].map(|number| number.to_string()));
    assert_eq!(said(&mut run), "ok\n");
}

/// A device with a byte window.
fn with_window(folder: &Path) -> Device {
    let set = ["memory.ba.kind=dram", "memory.ba.size=128KiB", "memory.ba.survives=by-capacitors"];
    let set = set.into_iter().chain(["window.size=128KiB", "window.memory=ba"]).flat_map(|set| ["--set", set]);
    Device::start(folder, &set.collect::<Vec<_>>())
}

#[test]
fn c_pins_stores_syncs_and_flushes_in_the_byte_window() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = with_window(folder.path());
    let program = compile("tests/window.c", folder.path(), false);
    assert_eq!(said(Command::new(program).arg(device.target())), "ok\n");
}

#[test]
fn the_example_of_the_byte_window_appends_to_a_block() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = with_window(folder.path());
    let program = compile("examples/window.c", folder.path(), false);
    let append = |lines: &[&str]| said(Command::new(&program).args([&device.target(), "4096"]).args(lines));
    let pinned = "4096 bytes from block 4096 on are pinned\n";
    assert_eq!(append(&["one", "two"]), format!("{pinned}committed: one\ncommitted: two\n"));
    // What fits behind it, to the byte, shows where it went on.
    let rest = "x".repeat(4096 - 8 - 1);
    assert_eq!(append(&[&rest]), format!("{pinned}committed: {rest}\n"));
    let full = Command::new(&program).args([&device.target(), "4096", "more"]).output().expect("the program starts");
    assert!(!full.status.success() && String::from_utf8_lossy(&full.stderr).contains("the block is full"), "{full:?}");
}

#[test]
fn it_links_statically_and_the_same_holds() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let device = Device::start(folder.path(), &["--set", "fast.log_size=8MiB"]);
    let program = compile("tests/abi.c", folder.path(), true);
    let needs = said(Command::new("ldd").arg(&program));
    assert!(!needs.contains("libtidewater"), "{needs}");
    assert_eq!(said(Command::new(program).arg(device.target())), "ok\n");
}

#[test]
fn what_is_installed_is_whole_and_a_program_asks_for_its_version() {
    let lib = installed().prefix.join("lib");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = compile("examples/tail.c", folder.path(), false);
    let needs = said(Command::new("ldd").arg(&program));
    assert!(needs.contains("libtidewater.so.0"), "{needs}");
    let version = installed().flags(&["--modversion"]);
    assert_eq!(version, [env!("CARGO_PKG_VERSION")]);
    assert!(lib.join(format!("libtidewater.so.{}", version[0])).is_file());
    // Nothing but what the header has is offered.
    let names = said(Command::new("nm").args(["-D", "--defined-only"]).arg(lib.join("libtidewater.so")));
    let names: Vec<&str> = names.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert!(names.len() >= 20 && names.iter().all(|name| name.starts_with("tidewater_")), "{names:?}");
    let functions = ["append", "eventfd", "moves", "window", "ba_pin"].map(|name| format!("tidewater_{name}.3"));
    for page in functions.iter().map(String::as_str).chain(["tidewater.3"]) {
        assert!(installed().prefix.join("share/man/man3").join(page).is_file(), "{page}");
    }
}

/// The commands of docs/guide/log-library.md, as they stand there, in one folder.
#[test]
fn the_guide_works_as_it_is_written() {
    let text = std::fs::read_to_string(root().join("docs/guide/log-library.md")).expect("the guide is there");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let blocks: Vec<&str> =
        text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n")).collect();
    assert!(blocks.len() >= 4, "{blocks:?}");
    // The sources' folder, and a home in which the library is installed.
    std::os::unix::fs::symlink(root().join("crates"), folder.path().join("crates")).expect("a new folder");
    std::os::unix::fs::symlink(&installed().prefix, folder.path().join(".local")).expect("a new folder");
    let (mut variables, mut is_said) = (String::new(), false);
    let mut served = None;
    let mut all = String::new();
    for block in blocks {
        let mut shell = Command::new("bash");
        shell.current_dir(folder.path()).args(["-euo", "pipefail", "-c", &format!("{variables}{block}")]);
        shell.env("HOME", folder.path()).env_remove("PKG_CONFIG_PATH").env_remove("LD_LIBRARY_PATH");
        if block.starts_with("export") {
            (variables, is_said) = (block.to_owned(), true);
            continue;
        }
        if block.contains("make install") {
            // Done above, in a folder of its own.
            continue;
        }
        if block.contains("tidewater log-device") {
            let errors = std::fs::File::create(folder.path().join("errors")).expect("the folder is writable");
            let child = shell.stdout(Stdio::null()).stderr(errors).process_group_of_its_own().spawn().expect("bash");
            let served = served.insert(Served(child));
            let errors = || std::fs::read_to_string(folder.path().join("errors")).unwrap_or_default();
            wait::until(errors, || {
                let ended = served.0.try_wait().expect("the process can be polled");
                assert!(ended.is_none(), "it has ended with {ended:?}: {}", errors());
                folder.path().join("log/vfio.sock").exists()
            });
        } else {
            all += &said(&mut shell);
        }
    }
    assert!(served.is_some() && is_said);
    for expected in ["committed", "first commit", "second commit", "neither power loss", "provided the disk honours"] {
        assert!(all.contains(expected), "`{expected}` is not in {all}");
    }
}

/// Ends what the guide has started, with its children.
struct Served(std::process::Child);

impl Drop for Served {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.0.wait();
    }
}

trait OwnGroup {
    fn process_group_of_its_own(&mut self) -> &mut Command;
}

impl OwnGroup for Command {
    fn process_group_of_its_own(&mut self) -> &mut Command {
        use std::os::unix::process::CommandExt;
        self.process_group(0)
    }
}

/// Libraries beside the library: each is loaded by the program that it is for.
#[test]
fn the_preload_library_and_the_layers_are_installed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let own = installed().prefix.join("lib/tidewater");
    let device = Device::start(folder.path(), &["--set", "fast.log_size=8MiB", "--set", "fast.on_wrap=wait-for-trim"]);
    let shim = own.join("libtidewater_shim.so");
    let mut run = tidewater(folder.path());
    run.env("TIDEWATER_SHIM", &shim).args([
        "run",
        "--device",
        &device.target(),
        "--level",
        "ring",
        "--log",
        "*.log",
        "--",
    ]);
    said(run.args(["sh", "-c", "grep -q libtidewater_shim /proc/self/maps && echo commit > a.log"]));
    assert_eq!(std::fs::read(folder.path().join("a.log")).expect("the file was written"), b"commit\n");

    for (library, source, header) in [
        ("tidewater_vfs.so", "tidewater_vfs.c", "sqlite3ext.h"),
        ("libtidewater_rocksdb.so", "tidewater_fs.cc", "rocksdb/file_system.h"),
    ] {
        let sources = installed().prefix.join("share/tidewater");
        assert!(sources.join(source).is_file() && sources.join("wal_mapping.h").is_file(), "{source}");
        let can = Path::new("/usr/include").join(header).exists();
        assert_eq!(own.join(library).is_file(), can, "{library}, where {header} is there: {can}");
    }
    let vfs = own.join("tidewater_vfs.so");
    if !vfs.exists() || Command::new("sqlite3").arg("--version").output().is_err() {
        return skipped(1, "no sqlite3 (sqlite3, libsqlite3-dev)");
    }
    let mut shell = Command::new("sqlite3");
    shell.current_dir(folder.path()).args(["-cmd", &format!(".load {} sqlite3_tidewatervfs_init", vfs.display())]);
    let open = format!(".open 'file:my.db?vfs=tidewater&device={}&level=ring'", device.target());
    let wrote =
        said(shell.args(["-cmd", &open, ":memory:", "CREATE TABLE t (a); INSERT INTO t VALUES (7); SELECT a FROM t;"]));
    assert_eq!(wrote.trim(), "7");
}

/// `make uninstall` removes what `make install` put there and the folders that it leaves empty, and nothing else; a
/// second installation removes what it no longer has.
#[test]
fn what_is_installed_is_removed_again() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let prefix = folder.path().join("prefix");
    let script = |arguments: &[&str]| {
        let mut command = without_package(Command::new(root().join("scripts/install.sh")));
        command.args(arguments).env("PREFIX", &prefix).env("CAPI_PROFILE", "dev").env("CARGO", env!("CARGO"));
        command
    };
    let nothing = script(&["--uninstall"]).output().expect("it starts");
    assert!(!nothing.status.success() && String::from_utf8_lossy(&nothing.stderr).contains("nothing was installed"));

    let of_others = [prefix.join("bin/other"), prefix.join("share/man/man1/other.1")];
    for file in &of_others {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("the folder can be made");
        std::fs::write(file, "other").expect("it is written");
    }
    said(&mut script(&[]));
    let manifest = prefix.join("share/tidewater/manifest");
    let listed = std::fs::read_to_string(&manifest).expect("the file can be read");
    for file in ["bin/tidewater", "bin/tidewater-keeper", "lib/libtidewater.so", "share/man/man1/tidewater.1"] {
        assert!(listed.lines().any(|line| line == file) && prefix.join(file).exists(), "{file}");
    }
    assert!(!listed.contains("other"), "{listed}");
    let older = prefix.join("lib/tidewater/older.so");
    std::fs::write(&older, "of an older version").expect("it is written");
    std::fs::write(&manifest, listed + "lib/tidewater/older.so\n").expect("it is written");
    said(&mut script(&[]));
    assert!(!older.exists());

    let said = said(&mut script(&["--uninstall"]));
    assert!(said.starts_with("removed "), "{said}");
    let left = files_below(&prefix);
    assert_eq!(left, of_others.map(|file| file.strip_prefix(&prefix).expect("below").to_owned()));
}

/// Every file and empty folder below a folder, in order.
fn files_below(folder: &Path) -> Vec<std::path::PathBuf> {
    let list =
        said(Command::new("find").arg(folder).args(["(", "!", "-type", "d", "-o", "-empty", ")", "-printf", "%P\\n"]));
    let mut files: Vec<std::path::PathBuf> = list.lines().map(Into::into).collect();
    files.sort();
    files
}
