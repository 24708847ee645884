//! RocksDB, by its tools and behind a socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tidewater_tests::capi::said;
use tidewater_tests::databases::witness::Witness;
use tidewater_tests::ring::Device;
use tidewater_tests::{root, skipped, wait};

use super::{LOG, WINDOW, layer};

#[test]
fn rocksdb_commits_through_the_device() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = layer("rocksdb/tidewater_fs.cc", "rocksdb/file_system.h", folder.path()) else {
        return skipped(1, "no rocksdb/file_system.h (librocksdb-dev)");
    };
    if Command::new("ldb").arg("--version").output().is_err() {
        return skipped(1, "no ldb (rocksdb-tools)");
    }
    let device = Device::start(folder.path(), &LOG);
    let uri = format!("--fs_uri=tidewater://{}", device.target());
    let tool = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.current_dir(folder.path()).env("LD_PRELOAD", &layer).env("TIDEWATER_LEVEL", "ring");
        command.arg(&uri).args(arguments);
        command
    };
    let mut bench =
        tool("db_bench", &["--db=r", "--benchmarks=fillsync", "--num=3000", "--value_size=64", "--threads=2"]);
    let said_by = said(bench.stderr(Stdio::null()));
    assert!(said_by.contains("fillsync"), "{said_by}");

    // Another process goes on with it, and a third finds what both wrote.
    let mut writer = tool("ldb", &["--db=r", "--create_if_missing", "batchput"]);
    for i in 0..50 {
        writer.arg(format!("key{i}")).arg(format!("value{i}"));
    }
    assert!(said(&mut writer).contains("OK"));
    let mut check = tool("ldb", &["--db=r", "checkconsistency"]);
    assert!(said(&mut check).contains("OK"));
    let value = said(tool("ldb", &["--db=r", "get", "key49"]).stderr(Stdio::null()));
    assert_eq!(value.trim(), "value49");
}

/// RocksDB behind a socket (`tests/databases/rocksdb.cc`).
struct Rocks {
    child: Child,
    stream: UnixStream,
}

impl Rocks {
    /// Compiles it.
    fn compile(into: &Path) -> PathBuf {
        let server = into.join("server");
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O1", "-o"]).arg(&server).arg(root().join("tests/databases/rocksdb.cc"));
        said(compiler.args(["-lrocksdb", "-pthread"]));
        server
    }

    /// Starts one on the folder `r`, and waits until it answers. `with`: for its environment.
    fn start(folder: &Path, server: &Path, preload: &str, uri: &str, with: &[(&str, &str)]) -> Rocks {
        let socket = folder.join("rocks.sock");
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(server);
        command.current_dir(folder).arg("r").arg(&socket).args(["sync", uri]).envs(with.iter().copied());
        let mut child = command.env("LD_PRELOAD", preload).spawn().expect("it starts");
        let stream = wait::success("the server listens", || {
            let ended = child.try_wait().expect("the process can be polled");
            UnixStream::connect(&socket).inspect_err(|error| assert!(ended.is_none(), "it ended: {error}"))
        });
        Rocks { child, stream }
    }

    /// The lines that answer a line, less the last, which must be `ok`.
    fn ask(&mut self, line: &str) -> Vec<String> {
        self.stream.write_all(format!("{line}\n").as_bytes()).expect("the program reads its input");
        let mut lines = Vec::new();
        for answer in BufReader::new(&self.stream).lines() {
            match answer.expect("the program answers").as_str() {
                "ok" => return lines,
                error if error.starts_with("error ") => panic!("{line}: {error}"),
                other => lines.push(other.to_owned()),
            }
        }
        panic!("{line}: it ended");
    }

    fn kill(mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process can be waited for");
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Commits, kills RocksDB and the device, takes all files and the image back to what was synced, and looks for the
/// commits.
fn rocksdb_is_killed(how: &str, settings: &[&str], ring: bool) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = folder.path();
    let Some(layer) = layer("rocksdb/tidewater_fs.cc", "rocksdb/file_system.h", here) else {
        return skipped(1, "no rocksdb/file_system.h (librocksdb-dev)");
    };
    if Command::new("ldb").arg("--version").output().is_err() {
        return skipped(1, "no ldb (rocksdb-tools)");
    }
    let server = Rocks::compile(here);
    let witness = Witness::build(here).expect("a C compiler");
    let (shadows, drive, data) = (here.join("shadows"), here.join("d"), here.join("r"));
    for path in [&shadows, &drive, &data] {
        std::fs::create_dir(path).expect("a folder");
    }
    let lent = if ring { &["--ring", "ring"][..] } else { &[] };
    let start =
        || Device::start_as(&drive, &[lent, settings].concat(), |command| witness.attach_tracking(command, &shadows));
    let preload = format!("{} {}", witness.library().display(), layer.display());
    let device = start();
    let shadowed = shadows.display().to_string();
    let watched = [("TIDEWATER_WITNESS", shadowed.as_str())];
    let uri = format!("tidewater://{how}{}", device.target());
    let mut rocks = Rocks::start(here, &server, &preload, &uri, &watched);
    for i in 0..300 {
        rocks.ask(&format!("commit key{i:04} {} also{i:04} {i}", "v".repeat(i % 700 + 1)));
    }
    rocks.kill();
    device.kill();
    witness.reset(&shadows, &[&data, &drive.join("drive")]).expect("the files are there");
    // The level is DESTAGED: the ring may go with the power.
    let _ = std::fs::remove_file(drive.join("ring"));

    // The control: what the files have without the device is not all of it.
    said(Command::new("cp").current_dir(here).args(["-r", "r", "control"]));
    let mut control = Command::new("ldb");
    control.current_dir(here).args(["--db=control", "scan"]);
    let left = control.output().map(|output| output.stdout.iter().filter(|byte| **byte == b'\n').count());
    assert!(left.is_ok_and(|left| left < 600), "nothing was lost, so nothing is shown");

    let _device = start();
    let mut rocks = Rocks::start(here, &server, &preload, &uri, &watched);
    let found = rocks.ask("scan");
    assert_eq!(found.len(), 600, "commits are lost");
    assert!(found.iter().any(|line| line == "also0299 299"), "{:?}", found.last());
    rocks.ask("check");
    rocks.kill();
}

#[test]
fn what_rocksdb_committed_comes_back_from_the_device() {
    rocksdb_is_killed("", &LOG, true);
}

#[test]
fn what_rocksdb_committed_comes_back_from_the_window() {
    rocksdb_is_killed("window:0+4112:", &WINDOW, false);
}

#[test]
fn what_the_layer_keeps_of_rocksdbs_log_is_there_for_its_readers_and_after_a_crash() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = folder.path();
    let Some(layer) = layer("rocksdb/tidewater_fs.cc", "rocksdb/file_system.h", here) else {
        return skipped(1, "no rocksdb/file_system.h (librocksdb-dev)");
    };
    let server = Rocks::compile(here);
    let preload = layer.display().to_string();
    std::fs::create_dir(here.join("r")).expect("a folder");
    let device = Device::start(here, &LOG);
    let uri = format!("tidewater://{}", device.target());
    let in_files = || -> u64 {
        let files = std::fs::read_dir(here.join("r")).expect("a folder").map(|file| file.expect("a file").path());
        let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        logs.map(|path| std::fs::metadata(path).expect("a file").len()).sum()
    };
    let start = |with: &[(&str, &str)]| Rocks::start(here, &server, &preload, &uri, with);
    let ring = ("TIDEWATER_LEVEL", "ring");

    let mut rocks = start(&[ring]);
    let commit = |rocks: &mut Rocks, from: u32, to: u32| {
        for i in from..to {
            rocks.ask(&format!("commit key{i:04} {i} also{i:04} {}", "v".repeat(300)));
        }
    };
    commit(&mut rocks, 0, 50);
    assert_eq!(rocks.ask("updates"), ["100"]);
    assert!(in_files() >= 50 * 300, "who read them found them elsewhere");
    // More than is kept at a time, and than the ring holds.
    commit(&mut rocks, 50, 600);
    // Files are synced in between now and then.
    let kept = (600..610).filter(|&i| {
        let before = in_files();
        commit(&mut rocks, i, i + 1);
        in_files() == before
    });
    assert!(kept.count() > 0, "nothing is kept, so nothing is shown");
    rocks.kill();

    let mut rocks = start(&[ring]);
    assert_eq!(rocks.ask("scan").len(), 2 * 610, "commits are lost");
    rocks.ask("check");
    rocks.kill();

    // With TIDEWATER_KEEP=0 it keeps nothing.
    let mut rocks = start(&[ring, ("TIDEWATER_KEEP", "0")]);
    for i in 610..615 {
        let before = in_files();
        commit(&mut rocks, i, i + 1);
        assert!(in_files() >= before + 300);
    }
    rocks.kill();
}

/// Every cut of a log is on the device's: by an open file and by its name, of bytes kept by the layer or in the file.
#[test]
fn rocksdbs_logs_are_as_long_after_a_crash_as_they_were_cut_to() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let here = folder.path();
    let Some(layer) = layer("rocksdb/tidewater_fs.cc", "rocksdb/file_system.h", here) else {
        return skipped(1, "no rocksdb/file_system.h (librocksdb-dev)");
    };
    let program = here.join("cut");
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-o"]).arg(&program).arg(root().join("tests/programs/cut.cc"));
    said(compiler.arg("-lrocksdb"));
    let witness = Witness::build(here).expect("a C compiler");
    let [shadows, plain] = ["shadows", "plain"].map(|name| here.join(name));
    for path in [&shadows, &plain] {
        std::fs::create_dir(path).expect("a folder");
    }
    let logs = |folder: &Path| {
        [1, 2, 3, 4, 5]
            .map(|number| std::fs::read(folder.join(format!("00000{number}.log"))).expect("the file can be read"))
    };
    let answers = said(Command::new(&program).arg(&plain));
    let without = logs(&plain);
    assert_eq!(without[0].len(), 40);

    let mut is_shown = false;
    for keep in ["65536", "0"] {
        let data = here.join("logs").join(keep);
        std::fs::create_dir_all(&data).expect("a folder");
        let device = Device::start(here, &LOG);
        let mut command = Command::new(&program);
        command.arg(&data).arg(format!("tidewater://{}", device.target())).stdout(Stdio::piped());
        command.env("LD_PRELOAD", format!("{} {}", witness.library().display(), layer.display()));
        command.env("TIDEWATER_WITNESS", &shadows).env("TIDEWATER_LEVEL", "ring").env("TIDEWATER_KEEP", keep);
        let mut child = command.spawn().expect("it starts");
        let mut answered = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        while !answered.ends_with("done\n") && stdout.read_line(&mut answered).expect("UTF-8") > 0 {}
        assert_eq!(answered, answers);
        child.kill().expect("the process can be killed");
        child.wait().expect("the process can be waited for");
        device.kill();
        witness.reset(&shadows, &[&data]).expect("the files are there");
        is_shown |= logs(&data) != without;
        let device = Device::start(here, &LOG);
        let recovered = tidewater_tests::run(here, &["recover", "--device", &device.target()]);
        assert!(recovered.status.success(), "{recovered:?}");
        let found = logs(&data);
        for (found, without) in found.iter().zip(&without) {
            let (found, without) = (String::from_utf8_lossy(found), String::from_utf8_lossy(without));
            assert_eq!(found, without, "{keep} kept: {recovered:?}");
        }
        device.kill();
        for file in ["drive", "ring"] {
            std::fs::remove_file(here.join(file)).expect("the file can be removed");
        }
    }
    assert!(is_shown, "nothing was lost");
}
