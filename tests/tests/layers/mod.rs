//! SQLite's VFS and RocksDB's FileSystem on a served drive: their logs go to the device, and what SQLite committed
//! comes back from there when the process is killed and its files lose what was never synced.

mod rocksdb;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tidewater_tests::capi::{Installed, said};
use tidewater_tests::databases::witness::Witness;
use tidewater_tests::ring::Device;
use tidewater_tests::wait;
use tidewater_tests::{PATIENCE, skipped};

fn installed() -> &'static Installed {
    Installed::at(env!("CARGO_TARGET_TMPDIR"))
}

/// A log that is large enough for a database, and keeps what was not trimmed.
const LOG: [&str; 4] = ["--set", "fast.log_size=8MiB", "--set", "fast.on_wrap=wait-for-trim"];

/// A byte window of two segments of 64 KiB.
const WINDOW: [&str; 10] = [
    "--set",
    "memory.ba.kind=dram",
    "--set",
    "memory.ba.size=128KiB",
    "--set",
    "memory.ba.survives=by-capacitors",
    "--set",
    "window.size=128KiB",
    "--set",
    "window.memory=ba",
];

/// Compiles a layer. `None`: what it needs is not installed.
fn layer(source: &str, header: &str, into: &Path) -> Option<PathBuf> {
    installed().layer(source, header, into)
}

/// SQLite's layer, where its shell is there as well; else it says what is skipped.
fn sqlite_layer(into: &Path) -> Option<PathBuf> {
    let layer = layer("sqlite/tidewater_vfs.c", "sqlite3ext.h", into);
    if layer.is_none() {
        skipped(1, "no sqlite3ext.h (libsqlite3-dev)");
    } else if Command::new("sqlite3").arg("--version").output().is_err() {
        skipped(1, "no sqlite3");
        return None;
    }
    layer
}

/// The sqlite3 shell, asked line by line.
struct Shell {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Shell {
    fn start(folder: &Path, layer: &Path) -> Shell {
        Shell::start_as(folder, layer, |_| ())
    }

    fn start_as(folder: &Path, layer: &Path, with: impl FnOnce(&mut Command)) -> Shell {
        let mut command = Command::new("sqlite3");
        command.arg("-batch").current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        with(&mut command);
        let mut child = command.spawn().expect("sqlite3 starts");
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let mut shell = Shell { child, stdin, stdout: BufReader::new(stdout) };
        shell.ask(".log stderr");
        shell.ask(&format!(".load {} sqlite3_tidewatervfs_init", layer.display()));
        shell
    }

    /// `how`: what the URI says beside the device.
    fn open(&mut self, device: &Device, database: &str, how: &str) {
        self.ask(&format!(".open 'file:{database}?vfs=tidewater&device={}&{how}'", device.target()));
    }

    /// Its output for a line, once it is done with it.
    fn ask(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}\n.print done").expect("the program reads its input");
        let mut said = String::new();
        loop {
            let before = said.len();
            assert!(self.stdout.read_line(&mut said).expect("it prints UTF-8") > 0, "it ended: {line}: {said}");
            if said[before..].trim_end() == "done" {
                said.truncate(before);
                return said.trim_end().to_owned();
            }
        }
    }

    /// Bytes that it has written by calls (proc(5), `io`).
    fn written(&self) -> u64 {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.child.id())).expect("the process runs");
        let line = io.lines().find_map(|line| line.strip_prefix("wchar: ")).expect("the kernel reports it");
        line.parse().expect("a number")
    }

    fn kill(mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process can be waited for");
    }

    fn end(mut self) {
        writeln!(self.stdin, ".quit").expect("the program reads its input");
        assert!(self.child.wait().expect("the process can be waited for").success());
    }
}

#[test]
fn what_sqlite_committed_comes_back_from_the_device() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = Device::start(folder.path(), &LOG);
    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&device, "my.db", "level=ring");
    shell.ask("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;");
    shell.ask("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);");
    // What the files had when they were synced last, as a loss of power leaves them: the log is empty or nearly so.
    let wal = folder.path().join("my.db-wal");
    let before = std::fs::read(&wal).expect("SQLite made it");
    for i in 0..200 {
        shell.ask(&format!("INSERT INTO t VALUES ({i}, hex(randomblob({})));", i % 50));
    }
    assert_eq!(shell.ask("SELECT count(*) FROM t;"), "200");
    assert!(std::fs::read(&wal).expect("the file can be read").len() > before.len(), "others see what is written");
    shell.kill();

    // The control: without the device, the commits are gone.
    std::fs::write(&wal, &before).expect("it can be written");
    let _ = std::fs::remove_file(folder.path().join("my.db-shm"));
    std::fs::copy(folder.path().join("my.db"), folder.path().join("control.db")).expect("a copy");
    std::fs::copy(&wal, folder.path().join("control.db-wal")).expect("a copy");
    let control =
        said(Command::new("sqlite3").current_dir(folder.path()).args(["control.db", "SELECT count(*) FROM t"]));
    assert_eq!(control.trim(), "0");

    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&device, "my.db", "level=destaged");
    assert_eq!(shell.ask("SELECT count(*) FROM t;"), "200", "recovered when the log was opened");
    assert_eq!(shell.ask("PRAGMA integrity_check;"), "ok");
    // A rollback journal is a log too, and its end orders the rest.
    shell.ask("PRAGMA journal_mode = DELETE;");
    shell.ask("UPDATE t SET b = 'x' WHERE a < 100;");
    assert_eq!(shell.ask("SELECT count(*) FROM t WHERE b = 'x';"), "100");
    assert_eq!(shell.ask("PRAGMA integrity_check;"), "ok");
    // A checkpoint and an end as they should be leave files that need no device.
    shell.ask("PRAGMA journal_mode = WAL; INSERT INTO t VALUES (1000, 'y'); PRAGMA wal_checkpoint(TRUNCATE);");
    shell.end();
    drop(device);
    let after = said(Command::new("sqlite3").current_dir(folder.path()).args(["my.db", "SELECT count(*) FROM t"]));
    assert_eq!(after.trim(), "201");
}

/// The same with the log in the byte window, over a loss of the machine's power: the drive's image, too, is what was
/// synced of it.
#[test]
fn what_sqlite_committed_comes_back_from_the_window() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let witness = Witness::build(folder.path()).expect("a C compiler");
    let (shadows, drive) = (folder.path().join("shadows"), folder.path().join("d"));
    std::fs::create_dir(&shadows).expect("a folder");
    std::fs::create_dir(&drive).expect("a folder");
    let start = || Device::start_as(&drive, &WINDOW, |command| witness.attach_tracking(command, &shadows));
    let count = |shell: &mut Shell| shell.ask("SELECT count(*) FROM t;");
    let (wal, shm) = (folder.path().join("my.db-wal"), folder.path().join("my.db-shm"));

    let device = start();
    let mut shell = Shell::start(folder.path(), &layer);
    // What the window does not promise is not promised.
    shell.open(&device, "no.db", "window=0+4112&level=ring");
    assert!(!folder.path().join("no.db").exists(), "RING was taken for what the window confirms");
    shell.open(&device, "my.db", "window=0+4112");
    shell.ask("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;");
    shell.ask("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT);");
    let before = std::fs::read(&wal).expect("SQLite made it");
    for i in 0..60 {
        shell.ask(&format!("INSERT INTO t VALUES ({i}, hex(randomblob({})));", i % 50));
    }
    assert_eq!(count(&mut shell), "60");
    shell.kill();
    device.kill();
    witness.reset(&shadows, &[&drive.join("drive")]).expect("the image is there");
    std::fs::write(&wal, &before).expect("it can be written");
    let _ = std::fs::remove_file(&shm);
    // The control: without the drive, the commits are gone.
    for (from, to) in [("my.db", "control.db"), ("my.db-wal", "control.db-wal")] {
        std::fs::copy(folder.path().join(from), folder.path().join(to)).expect("a copy");
    }
    let control =
        said(Command::new("sqlite3").current_dir(folder.path()).args(["control.db", "SELECT count(*) FROM t"]));
    assert_eq!(control.trim(), "0");

    let device = start();
    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&device, "my.db", "window=0+4112&level=destaged");
    assert_eq!(count(&mut shell), "60", "recovered when the log was opened");
    assert_eq!(shell.ask("PRAGMA integrity_check;"), "ok");
    // More than the range holds: files are synced and the log is trimmed meanwhile.
    shell.ask("PRAGMA synchronous = FULL; CREATE TABLE u (b);");
    for _ in 0..30 {
        shell.ask("INSERT INTO u VALUES (randomblob(100000));");
    }
    assert_eq!(shell.ask("SELECT sum(length(b)) FROM u;"), "3000000");
    shell.kill();
    // The device goes alone, and SQLite with it: the file has what the page cache has, and the log may tell more of it
    // again.
    device.kill();
    let device = start();
    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&device, "my.db", "window=0+4112");
    assert_eq!(shell.ask("SELECT sum(length(b)) FROM u;"), "3000000");
    assert_eq!(shell.ask("PRAGMA integrity_check;"), "ok");
    shell.ask("PRAGMA wal_checkpoint(TRUNCATE);");
    shell.end();
    drop(device);
    let after = said(Command::new("sqlite3").current_dir(folder.path()).args(["my.db", "SELECT count(*) FROM t"]));
    assert_eq!(after.trim(), "60");
}

/// The bytes of a frame's head in a write-ahead log, and of a page.
const FRAME: [u64; 2] = [24, 4096];

/// A head is held back for its page: what the log gets is a frame as one record, and what others find is what SQLite
/// has written, whatever it does next.
#[test]
fn a_frame_of_sqlites_log_is_one_record_and_others_find_it_at_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = Device::start(folder.path(), &LOG);
    let wal = folder.path().join("my.db-wal");
    // With its index in shared memory, and without any; synced at each commit, and not.
    for (how, settings) in [
        ("", "PRAGMA synchronous = FULL;"),
        ("&data=log", "PRAGMA synchronous = NORMAL;"),
        ("&data=log", "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = NORMAL;"),
    ] {
        let _ = std::fs::remove_file(folder.path().join("my.db"));
        let mut shell = Shell::start(folder.path(), &layer);
        shell.open(&device, "my.db", &format!("level=ring{how}"));
        shell.ask(settings);
        shell.ask(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (a INTEGER PRIMARY KEY, b);",
        );
        for i in 0..20 {
            let before = std::fs::metadata(&wal).expect("SQLite made it").len();
            shell.ask(&format!("INSERT INTO t VALUES ({i}, 'row {i}');"));
            let bytes = std::fs::read(&wal).expect("the file can be read");
            assert_eq!(bytes.len() as u64, before + FRAME[0] + FRAME[1], "{how} {settings}");
            let head = &bytes[before as usize..][..8];
            assert!(head[4..] != [0; 4], "its last frame is a commit's: {head:?}");
        }
        // Another process reads what was committed, as far as the first one lets it.
        if !settings.contains("EXCLUSIVE") {
            let other =
                said(Command::new("sqlite3").current_dir(folder.path()).args(["my.db", "SELECT count(*) FROM t"]));
            assert_eq!(other.trim(), "20");
        }
        // What it rolls back is written over, and a page that it changes twice within a transaction is read from the
        // log.
        shell.ask(
            "PRAGMA cache_size = 10; BEGIN; INSERT INTO t SELECT a + 100, zeroblob(3000) FROM t; UPDATE t SET b \
                   = a WHERE a >= 100; ROLLBACK;",
        );
        shell.ask(
            "BEGIN; INSERT INTO t SELECT a + 100, zeroblob(3000) FROM t; UPDATE t SET b = hex(a) WHERE a >= 100; \
                   COMMIT;",
        );
        assert_eq!(shell.ask("SELECT count(*), sum(b = hex(a)) FROM t;"), "40|20");
        shell.kill();

        let mut shell = Shell::start(folder.path(), &layer);
        shell.open(&device, "my.db", "level=ring");
        assert_eq!(shell.ask("SELECT count(*), sum(b = hex(a)) FROM t;"), "40|20");
        assert_eq!(shell.ask("PRAGMA integrity_check;"), "ok");
        shell.end();
    }
}

/// Where a file system writes over what a file has, the log is mapped once it begins anew, and frames are stores.
#[test]
fn a_log_that_begins_anew_is_written_by_stores_and_may_be_cut_meanwhile() {
    for base in [std::env::temp_dir(), "/dev/shm".into()] {
        let folder = tempfile::tempdir_in(&base).expect("a temporary folder");
        let Some(layer) = sqlite_layer(folder.path()) else { return };
        let device = Device::start(folder.path(), &LOG);
        let witness = Witness::build(folder.path()).expect("a C compiler");
        let kind = said(Command::new("stat").args(["-f", "-c", "%t"]).arg(folder.path()));
        for maps in [["ef53", "1021994"].contains(&kind.trim()), false] {
            let (data, shadows) = (folder.path().join("data"), folder.path().join("shadows"));
            std::fs::create_dir(&data).and_then(|()| std::fs::create_dir(&shadows)).expect("a folder");
            let wal = data.join("my.db-wal");
            let length = || std::fs::metadata(&wal).expect("SQLite made it").len();
            let other = |statement: &str| {
                said(Command::new("sqlite3").current_dir(&data).args(["my.db", statement])).trim().to_owned()
            };
            let mut shell = Shell::start_as(&data, &layer, |command| witness.attach(command, &shadows));
            shell.open(&device, "my.db", if maps { "level=destaged&data=log" } else { "data=log&map=off" });
            shell.ask(
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; CREATE \
                       TABLE t (a INTEGER PRIMARY KEY, b);",
            );
            let mut rows = 0;
            // Commits of a frame each. Bytes that they wrote by calls.
            let mut insert = |shell: &mut Shell, commits: u64| {
                let before = shell.written();
                for _ in 0..commits {
                    shell.ask(&format!("INSERT INTO t VALUES ({rows}, 'row {rows}');"));
                    rows += 1;
                }
                assert_eq!(shell.ask("SELECT count(*) FROM t;"), rows.to_string());
                assert_eq!(other("SELECT count(*) FROM t;"), rows.to_string(), "others find it at once");
                shell.written() - before
            };
            let frames = |commits: u64| commits * (FRAME[0] + FRAME[1]);
            assert!(insert(&mut shell, 30) >= frames(30), "the file gets longer");
            let full = length();
            shell.ask("PRAGMA wal_checkpoint;");
            let written = insert(&mut shell, 20);
            assert!(if maps { written < frames(3) } else { written >= frames(20) }, "{kind}: {maps}: {written}");
            assert_eq!(length(), full);
            // Beyond what there is, by calls; from the begin, with more mapped than before.
            assert!(insert(&mut shell, 30) >= frames(15));
            shell.ask("PRAGMA wal_checkpoint;");
            let written = insert(&mut shell, 40);
            assert!(!maps || written < frames(3), "{kind}: {written} bytes by calls, {} in the file", length());
            // It is truncated by its own connection between two commits and at the end of one, and by another program.
            shell.ask("PRAGMA wal_checkpoint(TRUNCATE);");
            assert_eq!(length(), 0);
            insert(&mut shell, 20);
            shell.ask("PRAGMA wal_checkpoint; PRAGMA journal_size_limit = 8300;");
            insert(&mut shell, 20);
            shell.ask("PRAGMA wal_checkpoint;");
            insert(&mut shell, 3);
            assert!(length() < full);
            shell.ask("PRAGMA wal_checkpoint;");
            other("PRAGMA wal_checkpoint(TRUNCATE);");
            assert_eq!(length(), 0);
            insert(&mut shell, 10);
            shell.ask("PRAGMA wal_checkpoint;");
            insert(&mut shell, 5);
            // In this mode no lock is given back, and none is taken.
            shell.ask("BEGIN; INSERT INTO t VALUES (1000, 'row 1000'); PRAGMA locking_mode = EXCLUSIVE; COMMIT;");
            shell.ask("PRAGMA wal_checkpoint(TRUNCATE); INSERT INTO t VALUES (1001, 'row 1001');");
            rows += 2;
            shell.kill();

            // What the disk has is what was synced; all else is on the log.
            witness.reset(&shadows, &[&data]).expect("the files are there");
            let mut shell = Shell::start(&data, &layer);
            shell.open(&device, "my.db", "data=log");
            assert_eq!(shell.ask("SELECT count(*), sum(b = 'row ' || a) FROM t;"), format!("{rows}|{rows}"));
            assert_eq!(shell.ask("PRAGMA integrity_check;"), "ok");
            shell.end();
            std::fs::remove_dir_all(&data)
                .and_then(|()| std::fs::remove_dir_all(&shadows))
                .expect("the folders can be removed");
        }
    }
}

/// A head that is written anew, since a page of its transaction was written over in the log, has no page behind it.
/// Where the index is in no shared memory, nothing tells of the commit then.
#[test]
fn what_sqlite_committed_over_a_page_of_its_own_is_there_when_it_is_killed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = Device::start(folder.path(), &LOG);
    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&device, "my.db", "level=ring");
    shell.ask("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;");
    shell.ask("PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = 10; CREATE TABLE t (a INTEGER PRIMARY KEY, b);");
    shell.ask(
        "WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) INSERT INTO t SELECT i, \
               zeroblob(3000) FROM n;",
    );
    shell.ask("BEGIN; UPDATE t SET b = 'x'; UPDATE t SET b = hex(a); COMMIT;");
    shell.kill();
    let there = said(
        Command::new("sqlite3").current_dir(folder.path()).args(["my.db", "SELECT count(*) FROM t WHERE b = hex(a)"]),
    );
    assert_eq!(there.trim(), "40");
    drop(device);
}

/// With the database itself on the log no sync is one of a disk, and all of it comes back.
#[test]
fn a_database_on_the_log_comes_back_from_the_device() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = Device::start(folder.path(), &LOG);
    let witness = Witness::build(folder.path()).expect("a C compiler");
    let data = folder.path().join("data");
    for journal in ["WAL", "DELETE"] {
        let shadows = folder.path().join(journal);
        std::fs::create_dir(&data).and_then(|()| std::fs::create_dir(&shadows)).expect("a folder");
        let mut shell = Shell::start_as(&data, &layer, |command| witness.attach(command, &shadows));
        shell.open(&device, "my.db", "data=log");
        shell.ask(&format!(
            "PRAGMA journal_mode = {journal}; PRAGMA synchronous = FULL; CREATE TABLE t (a INTEGER PRIMARY KEY, b);"
        ));
        for i in 0..60 {
            shell.ask(&format!("INSERT INTO t VALUES ({i}, hex(randomblob({})));", i * 50));
        }
        shell.ask("PRAGMA wal_checkpoint(TRUNCATE); DELETE FROM t WHERE a >= 50; VACUUM;");
        shell.kill();
        // What the files had when they were synced last.
        let whole = std::fs::read(data.join("my.db")).expect("the file can be read");
        witness.reset(&shadows, &[&data]).expect("the files are there");
        assert!(
            std::fs::read(data.join("my.db")).expect("the file can be read") != whole,
            "nothing is lost, so nothing is shown"
        );
        let mut shell = Shell::start(&data, &layer);
        shell.open(&device, "my.db", "data=log");
        assert_eq!(shell.ask("SELECT count(*) FROM t;"), "50", "{journal}");
        assert_eq!(shell.ask("PRAGMA integrity_check;"), "ok", "{journal}");
        shell.end();
        let after = said(Command::new("sqlite3").current_dir(&data).args(["my.db", "SELECT count(*) FROM t"]));
        assert_eq!(after.trim(), "50");
        std::fs::remove_dir_all(&data).expect("the folder can be removed");
    }
}

/// The log's files are synced in the background, by this process: its locks of the database outlive that.
#[test]
fn a_database_on_the_log_stays_locked_and_is_written_by_the_log_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = Device::start(folder.path(), &LOG);
    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&device, "my.db", "level=ring&data=log");
    shell.ask("PRAGMA synchronous = FULL; CREATE TABLE t (a);");
    // One more connection comes and goes, and files are synced each second, or when the log fills.
    let others = |statement: &str| {
        let mut other = Command::new("sqlite3");
        let output = other.current_dir(folder.path()).args(["my.db", statement]).output().expect("sqlite3 starts");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    shell.ask(&format!("ATTACH 'file:my.db?vfs=tidewater&device={}' AS again; DETACH again;", device.target()));
    shell.ask("INSERT INTO t VALUES (randomblob(2000000)); INSERT INTO t VALUES (randomblob(2000000));");
    assert!(!others("BEGIN IMMEDIATE; ROLLBACK;").contains("locked"), "it is locked without an owner");
    shell.ask("BEGIN IMMEDIATE; INSERT INTO t VALUES (1);");
    let lost = || (!others("BEGIN IMMEDIATE;").contains("locked")).then_some(());
    assert!(wait::within(std::time::Duration::from_millis(1500), lost).is_none(), "the lock was lost");
    shell.ask("COMMIT;");
    shell.end();

    // The log would undo what one connection wrote beside it: no connection may.
    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&device, "my.db", "level=ring");
    let again =
        |how: &str| format!("ATTACH 'file:my.db?vfs=tidewater&device={}&data={how}' AS again;", device.target());
    shell.ask(&again("log"));
    shell.ask(&again("nowhere"));
    assert!(!shell.ask("PRAGMA database_list;").contains("again"), "it is beside the log, and on it");
    shell.kill();
}

/// A process has one log: a database that asks for another, or for more than it promises, does not get what it did not
/// ask for.
#[test]
fn a_database_that_asks_for_another_log_than_its_process_has_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = Device::start(folder.path(), &LOG);
    let mut shell = Shell::start_as(folder.path(), &layer, |command| {
        command.env_remove("TIDEWATER_DEVICE");
    });
    shell.open(&device, "my.db", "level=ring");
    shell.ask("CREATE TABLE t (a);");
    let attach = |how: &str| format!("ATTACH 'file:other.db?vfs=tidewater{how}' AS other;");
    let target = device.target();
    for how in [
        "&device=vfio-user:elsewhere",
        "&level=destaged",
        "&level=neither",
        "&lane=1",
        "&lane=16",
        "&lane=-1",
        "&window=0+4112",
        &format!("&window=0+4112&device={target}"),
    ] {
        shell.ask(&attach(how));
        assert!(!shell.ask("PRAGMA database_list;").contains("other"), "{how}");
        assert!(!folder.path().join("other.db").exists(), "{how}");
    }
    for how in ["", "&level=ring", &format!("&lane=0&level=ring&device={target}")] {
        shell.ask(&attach(how));
        shell.ask("CREATE TABLE IF NOT EXISTS other.u (b); INSERT INTO other.u VALUES (7);");
        assert!(shell.ask("PRAGMA database_list;").contains("other"), "{how}");
        shell.ask("DETACH other;");
    }
    // It counts what it was refused.
    shell.kill();
    drop(device);
}

/// Where the VFS below has no index in shared memory (unix-none), the layer reports none to SQLite, which then calls
/// none of the functions that are missing.
#[test]
fn a_vfs_below_without_shared_memory_has_no_write_ahead_log() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = Device::start(folder.path(), &LOG);
    let mut shell = Shell::start_as(folder.path(), &layer, |command| {
        command.args(["-vfs", "unix-none"]);
    });
    shell.open(&device, "my.db", "level=ring");
    assert_eq!(shell.ask("PRAGMA journal_mode = WAL;"), "delete");
    shell.ask("CREATE TABLE t (a); INSERT INTO t VALUES (7);");
    assert_eq!(shell.ask("SELECT a FROM t;"), "7");
    shell.end();
    drop(device);
}

#[test]
fn sqlite_says_what_is_missing_and_fails_when_the_device_goes() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let run = |database: &str, statement: &str| {
        let mut command = Command::new("sqlite3");
        command.current_dir(folder.path()).env_remove("TIDEWATER_DEVICE");
        command.args(["-cmd", &format!(".load {} sqlite3_tidewatervfs_init", layer.display())]);
        command.args(["-cmd", &format!(".open '{database}'"), ":memory:", statement]);
        let output = command.output().expect("sqlite3 starts");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(run("file:a.db?vfs=tidewater", "CREATE TABLE t (a)").contains("unable to open"));
    assert!(run("file:a.db?vfs=tidewater&device=vfio-user:/none", "CREATE TABLE t (a)").contains("unable to open"));
    assert!(!folder.path().join("a.db").exists(), "nothing was made");

    let device = Device::start(folder.path(), &LOG);
    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&device, "b.db", "level=ring");
    shell.ask("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (a);");
    device.kill();
    // Within a moment the loss is seen, and never turned into a sync of the file.
    let begin = std::time::Instant::now();
    for i in 0.. {
        shell.ask(&format!("INSERT INTO t VALUES ({i});"));
        let there: u32 = shell.ask("SELECT count(*) FROM t;").parse().unwrap_or(0);
        if there <= i {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "commits go on without a device");
        wait::pass(std::time::Duration::from_millis(20));
    }
    shell.kill();
}

/// A program that ends well after the loss of its device has files that are not drained: a message says so.
#[test]
fn a_log_that_could_not_be_emptied_at_the_end_of_a_program_is_reported() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = Device::start(folder.path(), &LOG);
    let mut shell = Shell::start_as(folder.path(), &layer, |command| {
        command.stderr(Stdio::piped());
    });
    shell.open(&device, "my.db", "level=ring");
    shell.ask("CREATE TABLE t (a);");
    device.kill();
    writeln!(shell.stdin, ".quit").expect("the program reads its input");
    let output = shell.child.wait_with_output().expect("the process can be waited for");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("the log keeps what is not synced of its files"), "{errors}");
}

/// A database that a layer opens by its URI, after a crash, on another device: refused, until that is meant.
#[test]
fn a_database_that_is_opened_on_another_device_is_refused_until_it_is_adopted() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let Some(layer) = sqlite_layer(folder.path()) else { return };
    let device = |name: &str| {
        let own = folder.path().join(name);
        std::fs::create_dir_all(&own).expect("a folder");
        Device::start(&own, &LOG)
    };
    let (right, other) = (device("right"), device("other"));
    let mut shell = Shell::start(folder.path(), &layer);
    shell.open(&right, "my.db", "level=ring");
    shell.ask("PRAGMA journal_mode = WAL; CREATE TABLE t (a); INSERT INTO t VALUES (1);");
    shell.kill();
    let opened = |device: &Device, adopts: bool| {
        let errors = folder.path().join("errors");
        let mut shell = Shell::start_as(folder.path(), &layer, |command| {
            command.stderr(std::fs::File::create(&errors).expect("a folder"));
            if adopts {
                command.env("TIDEWATER_ADOPT", "1");
            }
        });
        shell.open(device, "my.db", "level=ring");
        let count = shell.ask("INSERT INTO t VALUES (2); SELECT count(*) FROM t;");
        shell.kill();
        (count, std::fs::read_to_string(errors).expect("the file can be read"))
    };
    let (count, said) = opened(&other, false);
    assert!(count.is_empty() && said.contains("right/f0.sock"), "{count}: {said}");
    // The files as they are: nothing was lost from the page cache here.
    let (count, said) = opened(&other, true);
    assert_eq!(count, "2", "{said}");
    // And the log that they were taken from is refused from then on.
    let (count, said) = opened(&right, false);
    assert!(count.is_empty() && said.contains("its files went on"), "{count}: {said}");
    let (count, said) = opened(&other, false);
    assert_eq!(count, "3", "{said}");
}
