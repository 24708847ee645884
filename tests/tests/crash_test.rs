//! `tidewater crash-test` and `tidewater mount`: the guide as it is written, SQLite with and without its syncs, and
//! what a mount keeps of what.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use tidewater_tests::{root, run, run_refused, run_well, skipped, tidewater, wait};

#[path = "crash_test/drive.rs"]
mod drive;

/// Whether file systems can be mounted here; otherwise `cases` are left out, in words.
pub(crate) fn has_fuse(cases: usize) -> bool {
    // The kernel answers only where it has FUSE, and this user may use it.
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &opened {
        skipped(cases, &format!("/dev/fuse: {error}"));
    }
    opened.is_ok()
}

/// The interpreter itself: what is found in PATH may be a script that looks for it each time.
pub(crate) fn python(cases: usize) -> Option<PathBuf> {
    let found = Command::new("python3").args(["-c", "import sqlite3, sys; print(sys.executable)"]).output();
    let path = found.ok().filter(|found| found.status.success());
    let path = path.map(|found| String::from_utf8(found.stdout).expect("a path is UTF-8"));
    if path.is_none() {
        skipped(cases, "python3 with sqlite3 is not here");
    }
    path.map(|path| path.trim().into())
}

/// Runs a program with a check; both are files of `folder`, with arguments.
fn crash_test(folder: &Path, python: &Path, options: &[&str], check: &str, program: &[&str]) -> Output {
    // Without site packages it starts in half the time.
    let check = format!("{} -IS {}/{check}", python.display(), folder.display());
    let script = folder.join(program[0]);
    let mut command = tidewater(folder);
    command.arg("crash-test").args(options).args(["--check", &check, "--"]).arg(python).arg("-IS").arg(script);
    command.args(&program[1..]).output().expect("the binary starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The blocks of code of a kind in a page.
pub(crate) fn blocks(page: &str, kind: &str) -> Vec<String> {
    let fence = format!("```{kind}\n");
    page.split(&fence).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
}

#[test]
fn the_guide_finds_a_log_without_a_sync_and_accepts_it_with_its_syncs() {
    let (true, Some(python)) = (has_fuse(1), python(1)) else { return };
    let page = fs::read_to_string(root().join("docs/guide/crash-testing.md")).expect("the guide is there");
    let programs = blocks(&page, "python");
    let [log, check, synced] = programs.as_slice() else { panic!("three programs, not {}", programs.len()) };
    assert!(log.lines().count() <= 10 && check.lines().count() <= 10);
    let said = &blocks(&page, "text")[0];
    let home = TempDir::new().expect("a temporary folder");
    let folder = home.path();
    fs::write(folder.join("check.py"), check).expect("the folder is writable");
    let write = |text: &str| fs::write(folder.join("log.py"), text).expect("the folder is writable");
    let test = |options: &[&str]| crash_test(folder, &python, options, "check.py", &["log.py"]);

    write(log);
    let found = test(&["--junit", "crash.xml", "--jobs", "1"]);
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
    assert!(text(&found.stdout).ends_with(said.as_str()), "{}", text(&found.stdout));
    let junit = fs::read_to_string(folder.join("crash.xml")).expect("it was written");
    assert!(junit.contains("failures=\"1\"") && junit.contains("<failure message=\"the check ended"), "{junit}");

    // The file that was kept fails again, with another check too, and passes one that asks for nothing.
    for _ in 0..2 {
        let again = run(folder, &["crash-test", "--replay", "crash-test.failure"]);
        assert_eq!(again.status.code(), Some(1));
        assert!(text(&again.stdout).contains("1 operation lost:\n  #0 create log"), "{}", text(&again.stdout));
    }
    let passed = run_well(folder, &["crash-test", "--replay", "crash-test.failure", "--check", "test ! -e log"]);
    assert!(passed.ends_with("the state passes the check\n"), "{passed}");

    // With the bytes synced its name is what is missing, except on ext4.
    write(&log.replace("    os.write(3", "    os.fsync(log)\n    os.write(3"));
    let found = test(&[]);
    assert_eq!(found.status.code(), Some(1), "{}", text(&found.stderr));
    assert!(text(&found.stdout).contains("#0 create log (never made durable)"), "{}", text(&found.stdout));
    for durable in [["--rules", "ext4"], ["--setup", "touch log"]] {
        let passed = test(&[&durable[..], &["--cuts", "15"]].concat());
        assert_eq!(passed.status.code(), Some(0), "{durable:?} {}", text(&passed.stdout));
    }
    // A file of the set-up is in the file of a failure.
    write(log);
    assert_eq!(test(&["--setup", "echo before > log"]).status.code(), Some(1));
    let again = run(folder, &["crash-test", "--replay", "crash-test.failure", "--check", "cat log; exit 1"]);
    assert!(text(&again.stdout).ends_with("\nbefore\n"), "{}", text(&again.stdout));

    write(synced);
    let passed = test(&["--json", "--cuts", "40", "--tear", "sector"]);
    assert_eq!(passed.status.code(), Some(0), "{}{}", text(&passed.stdout), text(&passed.stderr));
    let json: Value = serde_json::from_slice(&passed.stdout).expect("JSON alone");
    let number = |key: &str| json[key].as_u64().expect("a number");
    assert_eq!((number("failed"), number("acknowledged"), number("planned")), (0, 20, 40), "{json}");
    assert_eq!(number("tried") + number("equal"), 40, "{json}");
    assert!(number("tried") >= 10 && json["smallest"].is_null(), "{json}");
}

/// A failure of version 1, as it was written then: later versions replay it.
const FAILURE_1: &str = r#"{"kind":"tidewater crash-test failure",
"version":1,"rules":"strict","tear":"page","check":"test -e log",
"said":"the check ended with exit status 1",

"state":{"cut":2,"lost":{"0":[]}},
"base":[{"do":"attributes","ino":1,"mode":16877,"uid":0,"gid":0}],
"operations":[
{"do":"create","at":{"folder":1,"name":"log"},"ino":2,"mode":33261,"uid":0,"gid":0,"rdev":0},
{"do":"write","ino":2,"offset":0,"data":"cmVjb3JkIDAK"}]}"#;

#[test]
fn a_failure_of_version_1_is_replayed_without_a_mount() {
    let home = TempDir::new().expect("a temporary folder");
    fs::write(home.path().join("old"), FAILURE_1).expect("the folder is writable");
    let again = run(home.path(), &["crash-test", "--replay", "old"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stdout).contains("1 operation lost:\n  #0 create log"), "{}", text(&again.stdout));
}

/// Transactions on SQLite: each row's id is acknowledged when its commit has returned.
pub(crate) const SQLITE: &str = "\
import os, sqlite3, sys
mode, sync, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect('app.db', isolation_level=None)
db.execute(f'PRAGMA journal_mode={mode}')
db.execute(f'PRAGMA synchronous={sync}')
db.execute('CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)')
for row in range(rows):
    db.execute('BEGIN')
    db.execute('INSERT INTO t VALUES (?, ?)', (row, 'x' * 3000))
    db.execute('UPDATE t SET text = text || ? WHERE id % 3 = ?', ('y', row % 3))
    db.execute('COMMIT')
    os.write(3, b'%d\\n' % row)
";

/// Exit status 2: the database is corrupt; 1: rows are gone.
pub(crate) const SQLITE_CHECK: &str = "\
import sqlite3, sys
ids = {int(line) for line in sys.stdin}
db = sqlite3.connect('app.db')
if db.execute('PRAGMA integrity_check').fetchone()[0] != 'ok': sys.exit(2)
made = db.execute('SELECT count(*) FROM sqlite_schema').fetchone()[0]
lost = ids - {row[0] for row in db.execute('SELECT id FROM t')} if made else ids
for row in sorted(lost): print('lost', row)
sys.exit(bool(lost))
";

/// Cuts SQLite in a mode, and returns its result.
fn sqlite(python: &Path, mode: &str, sync: &str, rows: &str, options: &[&str]) -> (Output, Value) {
    let home = TempDir::new().expect("a temporary folder");
    fs::write(home.path().join("load.py"), SQLITE).expect("the folder is writable");
    fs::write(home.path().join("check.py"), SQLITE_CHECK).expect("the folder is writable");
    let options = [&["--json"], options].concat();
    let done = crash_test(home.path(), python, &options, "check.py", &["load.py", mode, sync, rows]);
    let json = serde_json::from_slice(&done.stdout);
    let json = json.unwrap_or_else(|error| panic!("{mode} {sync}: {error}: {}", text(&done.stderr)));
    (done, json)
}

#[test]
fn sqlite_passes_with_its_syncs_and_is_found_without_them() {
    let (true, Some(python)) = (has_fuse(6), python(6)) else { return };
    for (mode, sync, rules) in [("WAL", "FULL", "strict"), ("DELETE", "EXTRA", "strict"), ("DELETE", "EXTRA", "ext4")] {
        let (done, json) = sqlite(&python, mode, sync, "3", &["--cuts", "20", "--rules", rules]);
        assert_eq!((done.status.code(), json["failed"].as_u64()), (Some(0), Some(0)), "{mode} {sync} {rules} {json}");
        assert!(json["tried"].as_u64() >= Some(8), "{json}");
    }
    for (mode, sync) in [("WAL", "OFF"), ("DELETE", "OFF"), ("DELETE", "FULL")] {
        let (done, json) = sqlite(&python, mode, sync, "3", &["--cuts", "20"]);
        assert_eq!(done.status.code(), Some(1), "{mode} {sync} {json}");
        let lost = json["smallest"]["lost_operations"][0].as_str().expect("an operation");
        // Its own documentation: the folder is synced behind the removal of the journal by EXTRA alone.
        let expected = if sync == "FULL" { "unlink app.db-journal" } else { "app.db" };
        assert!(lost.contains(expected), "{mode} {sync} {json}");
    }
}

#[test]
fn what_can_not_be_tested_is_said_in_words() {
    let home = TempDir::new().expect("a temporary folder");
    let refused = |arguments: &[&str]| run_refused(home.path(), &[&["crash-test"], arguments].concat());
    assert!(refused(&["--check", "true"]).contains("COMMAND"));
    assert!(refused(&["--", "true"]).contains("--check"));
    fs::write(home.path().join("other"), "{}").expect("the folder is writable");
    assert!(refused(&["--replay", "other"]).contains("no failure of a crash test"));
    let missing = run_refused(home.path(), &["fault", "stall", "--for", "1s", "--device", "other"]);
    assert!(missing.contains("is a device served there?"), "{missing}");
    assert!(run_refused(home.path(), &["mount", "nowhere"]).contains("nowhere"));
    if has_fuse(3) {
        let failing = refused(&["--check", "true", "--", "sh", "-c", "exit 3"]);
        assert!(failing.contains("exit status: 3 before any power cut"), "{failing}");
        assert!(refused(&["--check", "true", "--", "true"]).contains("wrote nothing in the mount"));
        let late = run(
            home.path(),
            &["crash-test", "--check", "sleep 600", "--check-time", "10ms", "--cuts", "1", "--", "touch", "file"],
        );
        assert!(text(&late.stdout).contains("the check took longer than 0.01 s"), "{}", text(&late.stdout));
    }
}

/// A mount. It is unmounted when this is dropped.
struct Mounted {
    child: Child,
    folder: PathBuf,
    /// Lines behind the first.
    said: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Mounted {
    /// Mounts `disk` in `home`, and waits until it is there.
    fn start(home: &Path, options: &[&str]) -> Mounted {
        fs::create_dir(home.join("disk")).ok();
        let mut command = tidewater(home);
        let mut child =
            command.args(["mount", "disk"]).args(options).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let first = lines.next().expect("it says that it is mounted").expect("it is UTF-8");
        assert!(first.starts_with("mounted on disk"), "{first}");
        // The rest is read so that it can write.
        let said = std::thread::spawn(move || lines.map_while(Result::ok).collect());
        Mounted { child, folder: home.join("disk"), said: Some(said) }
    }

    /// Its last line, once it has ended.
    fn last(&mut self) -> String {
        let said = self.said.take().expect("it is asked once").join().expect("it does not panic");
        said.last().cloned().unwrap_or_default()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file and syncs it and its name.
    fn keep(&self, name: &str, text: &str) {
        let mut file = File::create(self.path(name)).expect("the mount is writable");
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).expect("it is synced");
        File::open(&self.folder).and_then(|folder| folder.sync_all()).expect("it is synced");
    }

    fn listed(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).expect("it can be read");
        let name =
            |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name().into_string().expect("UTF-8");
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    fn fault(&self, arguments: &[&str]) -> String {
        let folder = self.folder.to_str().expect("UTF-8");
        run_well(Path::new("/"), &[&["fault"], arguments, &["--device", folder]].concat())
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(id, signal).expect("it can be signalled");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGKILL);
        self.child.wait().expect("it ends");
        // What the kernel still has of it goes when nothing uses it any more.
        Command::new("umount").arg("-l").arg(&self.folder).stderr(Stdio::null()).status().expect("umount starts");
    }
}

#[test]
fn a_killed_mount_loses_what_a_power_cut_loses_and_nothing_else() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let image = ["--image", "disk.img"];
    let write = |mounted: &Mounted| {
        mounted.keep("kept", "synced");
        fs::write(mounted.path("lost"), "never synced").expect("the mount is writable");
        fs::write(mounted.path("kept"), "overwritten").expect("the mount is writable");
        fs::hard_link(mounted.path("kept"), mounted.path("name")).expect("the mount is writable");
    };
    // What is its owner's alone in the mount is so in the image, and no link leads elsewhere.
    fs::write(home.path().join("other"), "another's").expect("there is room");
    std::os::unix::fs::symlink("other", home.path().join("disk.img.new")).expect("there is room");
    let mounted = Mounted::start(home.path(), &image);
    assert_eq!(fs::metadata(home.path().join("disk.img")).expect("it is there").mode() & 0o777, 0o600);
    assert_eq!(fs::read_to_string(home.path().join("other")).expect("it is there"), "another's");
    let before = std::time::SystemTime::now();
    write(&mounted);
    let made = fs::metadata(mounted.path("lost")).and_then(|file| file.accessed()).expect("files have times");
    assert!(made + std::time::Duration::from_secs(1) > before, "{made:?}");
    let refused = run_refused(home.path(), &["mount", ".", "--image", "disk.img"]);
    assert!(refused.contains("another mount uses this image"), "{refused}");
    let refused = run_refused(home.path(), &["mount", "disk"]);
    assert!(refused.contains("disk is mounted by another command"), "{refused}");
    let mut open = File::open(mounted.path("kept")).expect("it is there");
    assert!(mounted.fault(&["power-cut"]).contains("the power failed"));
    let after_cut = (mounted.listed(), fs::read_to_string(mounted.path("kept")).expect("it is there"));
    // A file that was open is not the one that came back.
    open.rewind().expect("it can seek");
    assert!(open.sync_all().is_err());
    drop(mounted);

    fs::remove_file(home.path().join("disk.img")).expect("it is there");
    let mounted = Mounted::start(home.path(), &image);
    write(&mounted);
    mounted.signal(nix::sys::signal::Signal::SIGKILL);
    let mut mounted = mounted;
    wait::end(&mut mounted.child);
    // Mounted over what the killed one left.
    let mounted_again = Mounted::start(home.path(), &image);
    let after_kill = (mounted_again.listed(), fs::read_to_string(mounted_again.path("kept")).expect("it is there"));
    assert_eq!(after_kill, after_cut);
    assert_eq!(after_kill, (vec!["kept".to_owned()], "synced".to_owned()));

    // An orderly end loses nothing.
    write(&mounted_again);
    mounted_again.signal(nix::sys::signal::Signal::SIGTERM);
    let mut mounted_again = mounted_again;
    assert!(wait::end(&mut mounted_again.child).success());
    let last = Mounted::start(home.path(), &image);
    assert_eq!(last.listed(), ["kept", "lost", "name"]);
    assert_eq!(fs::metadata(last.path("name")).expect("it is there").nlink(), 2);
    std::mem::forget(mounted);
    std::mem::forget(mounted_again);
}

/// An id may come in pieces, and the last without an end of its line.
#[test]
fn an_acknowledged_id_may_come_in_several_writes() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let program = "printf 1 >&3; printf '2\\n3' >&3; printf '4\\n' >&3; printf 5 >&3; echo x > file";
    let options = ["--check", "true", "--cuts", "1", "--json"];
    let passed = run_well(home.path(), &[&["crash-test"], &options[..], &["--", "sh", "-c", program]].concat());
    let json: Value = serde_json::from_str(&passed).expect("JSON");
    assert_eq!(json["acknowledged"].as_u64(), Some(3), "12, 34 and 5: {json}");
}

#[test]
fn a_user_whom_fuse_refuses_is_told_so() {
    if !has_fuse(1) {
        return;
    }
    let is_open = fs::metadata("/dev/fuse").is_ok_and(|about| about.mode() & 0o006 == 0o006);
    if is_open || !nix::unistd::geteuid().is_root() {
        return skipped(1, "another user may open /dev/fuse, or can't be one");
    }
    let home = TempDir::new().expect("a temporary folder");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let done = tidewater(home.path()).args(["mount", "."]).uid(65_534).gid(65_534).output().expect("the binary starts");
    let said = text(&done.stderr);
    assert!(said.contains("/dev/fuse: Permission denied") && !said.contains("install"), "{said}");
}

/// In root's mount others have what permissions allow them; its faults are for root alone.
#[test]
fn faults_of_a_mount_are_for_its_owner_and_files_as_permitted() {
    if !has_fuse(1) {
        return;
    }
    if !nix::unistd::geteuid().is_root() {
        return skipped(1, "another user's view takes root");
    }
    let home = TempDir::new().expect("a temporary folder");
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    let mounted = Mounted::start(home.path(), &[]);
    mounted.keep("secret", "root's");
    mounted.keep("open", "everyone's");
    fs::set_permissions(mounted.path("secret"), fs::Permissions::from_mode(0o600)).expect("it is ours");
    let other = |line: &str| {
        let mut shell = Command::new("sh");
        let done = shell.args(["-c", line]).current_dir(&mounted.folder).uid(65_534).gid(65_534).output();
        let done = done.expect("the shell starts");
        (done.status.success(), text(&done.stdout))
    };
    assert_eq!(other("cat open"), (true, "everyone's".into()));
    for refused in ["cat secret", "touch new", "echo '{\"do\":\"list\"}' >.tidewater-control", "cat .tidewater-control"]
    {
        assert_eq!(other(refused), (false, String::new()), "{refused}");
    }
    let mounts = fs::read_to_string("/proc/mounts").expect("it can be read");
    let folder = mounted.folder.to_str().expect("UTF-8");
    let options = mounts.lines().find(|line| line.contains(folder)).expect("it is mounted");
    let has = |name: &str| options.split([' ', ',']).any(|option| option == name);
    assert!(["nosuid", "nodev", "default_permissions"].into_iter().all(has), "{options}");
}

#[test]
fn faults_of_a_mount_end_calls_as_the_system_would() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let mounted = Mounted::start(home.path(), &[]);
    mounted.keep("file", "old");
    let file = File::options().read(true).write(true).open(mounted.path("file")).expect("it is there");
    let errno = |done: std::io::Result<()>| done.expect_err("it fails").raw_os_error();

    // Clean after a failed sync: the next one succeeds, and a cut loses the bytes all the same.
    mounted.fault(&["eio", "--on", "sync"]);
    file.write_all_at(b"new", 0).expect("it is writable");
    assert_eq!(errno(file.sync_all()), Some(5));
    file.sync_all().expect("the fault was for one sync");
    mounted.fault(&["power-cut"]);
    assert_eq!(fs::read_to_string(mounted.path("file")).expect("it is there"), "old");

    // Dirty: the next one writes them.
    let file = File::options().read(true).write(true).open(mounted.path("file")).expect("it is there");
    mounted.fault(&["eio", "--on", "sync", "--keep-dirty"]);
    file.write_all_at(b"new", 0).expect("it is writable");
    assert_eq!(errno(file.sync_all()), Some(5));
    file.sync_all().expect("the fault was for one sync");
    mounted.fault(&["power-cut"]);
    assert_eq!(fs::read_to_string(mounted.path("file")).expect("it is there"), "new");

    mounted.fault(&["enospc", "--count", "0"]);
    assert_eq!(errno(fs::write(mounted.path("more"), "x")), Some(28));
    assert_eq!(errno(fs::create_dir(mounted.path("folder"))), Some(28));
    assert!(mounted.fault(&["list"]).contains("enospc on write, until cleared; struck 2 times"));
    mounted.fault(&["clear"]);
    fs::write(mounted.path("more"), "x").expect("the fault is cleared");
    assert!(mounted.fault(&["list"]).contains("no faults are armed"));

    // A sync waits for the end of a stall; what needs no drive goes on, the word that ends it too.
    mounted.fault(&["stall", "--for", "3600s"]);
    let path = mounted.path("file");
    let waiting = std::thread::spawn(move || File::open(path).and_then(|file| file.sync_all()));
    fs::write(mounted.path("while"), "x").expect("writes go on");
    assert!(mounted.fault(&["list"]).contains("stall on sync, 3"));
    assert!(!waiting.is_finished());
    mounted.fault(&["clear"]);
    waiting.join().expect("it does not panic").expect("the sync succeeds");

    let folder = mounted.folder.to_str().expect("UTF-8");
    let refused = run_refused(home.path(), &["fault", "lose", "--device", folder]);
    assert!(refused.contains("a mount has no such fault"), "{refused}");
}

/// The next program that opens a file sees its lost, misplaced and changed bytes, and none does after a clear.
#[test]
fn faults_of_a_mount_lose_misplace_and_change_bytes() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let mut mounted = Mounted::start(home.path(), &[]);
    let pages = |fill: u8| vec![fill; 4 * 4_096];
    mounted.keep("file", &String::from_utf8(pages(b'-')).expect("UTF-8"));
    let write = |offset: u64, bytes: &[u8]| {
        let file = File::options().write(true).open(mounted.path("file")).expect("it is there");
        file.write_all_at(bytes, offset).and_then(|()| file.sync_all()).expect("it is acknowledged");
    };
    let read = || fs::read(mounted.path("file")).expect("it is there");

    mounted.fault(&["lost-write", "--after", "1"]);
    write(0, b"first");
    write(4_096, b"second");
    let mut expected = pages(b'-');
    expected[..5].copy_from_slice(b"first");
    assert!(read() == expected, "the second is lost");
    mounted.fault(&["clear"]);
    write(4_096, b"second");
    expected[4_096..4_102].copy_from_slice(b"second");
    assert!(read() == expected);

    mounted.fault(&["misdirected-write", "--seed", "3"]);
    write(8_192, b"third");
    let found = read();
    let place = found.windows(5).position(|bytes| bytes == b"third").expect("it lies somewhere");
    assert!(place != 8_192 && place % 4_096 == 0, "{place}");
    expected[place..place + 5].copy_from_slice(b"third");
    assert!(found == expected, "nothing else has changed");

    mounted.fault(&["bit-flip", "--count", "1"]);
    let wrong: u32 = read().iter().zip(&expected).map(|(found, right)| (found ^ right).count_ones()).sum();
    assert_eq!(wrong, 1);
    assert!(read() == expected, "what is kept is right");

    let listed: Value = serde_json::from_str(&mounted.fault(&["list", "--json"])).expect("JSON");
    let struck = |at: usize| (listed[at]["fault"]["kind"].as_str(), listed[at]["struck"].as_u64());
    assert_eq!((struck(0), struck(1)), ((Some("misdirected-write"), Some(1)), (Some("bit-flip"), Some(1))));
    mounted.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(wait::end(&mut mounted.child).success());
    let last = mounted.last();
    assert!(last.contains("faults that struck: lost-write 1, misdirected-write 1, bit-flip 1"), "{last}");
    std::mem::forget(mounted);
}

/// A call is late by a distribution, and the power is cut at the n-th call or at a time.
#[test]
fn calls_on_a_mount_are_late_and_the_power_is_cut_at_one() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let mounted = Mounted::start(home.path(), &[]);
    mounted.keep("file", "old");
    let open = || File::options().write(true).open(mounted.path("file")).expect("it is there");
    let sync = |text: &str| {
        let file = open();
        file.write_all_at(text.as_bytes(), 0).and_then(|()| file.sync_all())
    };

    mounted.fault(&["slow", "--p50", "20ms", "--p99", "50ms", "--seed", "2"]);
    let begin = std::time::Instant::now();
    (0..10).for_each(|_| sync("old").expect("it is late, and succeeds"));
    assert!(begin.elapsed() > std::time::Duration::from_millis(50), "{:?}", begin.elapsed());
    assert!(mounted.fault(&["list"]).contains("p99 50ms, p99.9 50ms, p99.99 50ms, until cleared; struck 10 times"));
    mounted.fault(&["clear"]);

    for (at, lives) in [("write:2", 1), ("sync:3", 2)] {
        mounted.fault(&["power-cut", "--at", at]);
        (0..lives).for_each(|_| sync("new").expect("it is before the cut"));
        assert!(sync("not").is_err(), "{at}");
        assert_eq!(fs::read_to_string(mounted.path("file")).expect("it is there"), "new", "{at}");
        sync("old").expect("the power is back");
    }
    // By the clock it comes when no program calls. A file that is open tells.
    mounted.fault(&["power-cut", "--at", "time:20ms"]);
    let file = open();
    wait::until(|| "no cut".into(), || file.sync_all().is_err());
    mounted.fault(&["power-cut", "--at", "sync:1"]);
    mounted.fault(&["clear"]);
    sync("end").expect("the cut was cleared");
    let folder = mounted.folder.to_str().expect("UTF-8");
    let refused = run_refused(home.path(), &["fault", "power-cut", "--at", "event:3", "--device", folder]);
    assert!(refused.contains("events are those of a served drive"), "{refused}");
}

/// Calls on a mount do what they do on the file system below this test, one after another.
#[test]
fn a_mount_is_a_file_system_like_any_other() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let plain = home.path().join("plain");
    fs::create_dir(&plain).expect("the folder is writable");
    let mounted = Mounted::start(home.path(), &[]);
    let names = ["a", "b", "d", "d/a", "d/e", "d/e/a"];
    let mut seed = 7_u64;
    let mut draw = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    for round in 0..800 {
        let (one, two) = (names[draw(6) as usize], names[draw(6) as usize]);
        let (what, offset, length) = (draw(12), draw(9_000), draw(9_000));
        let call = |folder: &Path| -> std::io::Result<String> {
            let (one, two) = (folder.join(one), folder.join(two));
            let open = || File::options().read(true).write(true).create(true).truncate(false).open(&one);
            match what {
                0 => fs::create_dir(&one)?,
                1 => fs::remove_dir(&one)?,
                2 => fs::remove_file(&one)?,
                3 | 4 => fs::rename(&one, &two)?,
                5 => fs::hard_link(&one, &two)?,
                6 => std::os::unix::fs::symlink("a", &one)?,
                7 => open()?.set_len(offset)?,
                8 => open()?.sync_all()?,
                _ => open()?.write_all_at(&vec![round as u8; length as usize], offset)?,
            }
            Ok(String::new())
        };
        let state = |folder: &Path| {
            let mut found = Vec::new();
            for name in names {
                let path = folder.join(name);
                let Ok(about) = fs::symlink_metadata(&path) else { continue };
                let mut bytes = Vec::new();
                if about.is_file() {
                    File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)).expect("it can be read");
                }
                let links = if about.is_dir() { 0 } else { about.nlink() };
                let size = if about.is_dir() { 0 } else { about.len() };
                found.push((name, about.mode(), links, size, bytes));
            }
            found
        };
        let errno = |done: std::io::Result<String>| done.map_err(|error| error.raw_os_error());
        let (ours, theirs) = (errno(call(&mounted.folder)), errno(call(&plain)));
        assert_eq!(ours, theirs, "round {round}: call {what} of {one}, {two}");
        assert!(state(&mounted.folder) == state(&plain), "round {round}: call {what} of {one}, {two}");
    }
}

/// Of a folder that another one replaces by a rename, or that is removed (xfstests, generic/035).
#[test]
fn an_open_folder_stays_without_its_name() {
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let mounted = Mounted::start(home.path(), &[]);
    for name in ["one", "two"] {
        fs::create_dir(mounted.path(name)).expect("the mount is writable");
    }
    let links = |folder: &File| folder.metadata().expect("it is open").nlink();
    let two = File::open(mounted.path("two")).expect("it is there");
    assert_eq!(links(&two), 1);
    fs::rename(mounted.path("one"), mounted.path("two")).expect("both are empty");
    assert_eq!(links(&two), 0);
    let one = File::open(mounted.path("two")).expect("it is there");
    fs::remove_dir(mounted.path("two")).expect("it is empty");
    assert_eq!(links(&one), 0);
}

/// Exchanges and ranges that the system has beside POSIX.
#[test]
fn names_change_places_and_ranges_are_punched_on_a_mount() {
    use nix::fcntl::{AT_FDCWD, FallocateFlags, RenameFlags, fallocate, renameat2};
    if !has_fuse(1) {
        return;
    }
    let home = TempDir::new().expect("a temporary folder");
    let mounted = Mounted::start(home.path(), &[]);
    mounted.keep("one", "first");
    mounted.keep("two", "second");
    let rename = |flags| renameat2(AT_FDCWD, &mounted.path("one"), AT_FDCWD, &mounted.path("two"), flags);
    assert_eq!(rename(RenameFlags::RENAME_NOREPLACE), Err(nix::errno::Errno::EEXIST));
    rename(RenameFlags::RENAME_EXCHANGE).expect("both are there");
    let read = |name: &str| fs::read_to_string(mounted.path(name)).expect("it is there");
    assert_eq!((read("one"), read("two")), ("second".to_owned(), "first".to_owned()));

    let file = File::options().read(true).write(true).open(mounted.path("one")).expect("it is there");
    let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, punch, 1, 3).expect("it can be punched");
    fallocate(&file, FallocateFlags::empty(), 0, 8).expect("it can grow");
    assert_eq!(read("one"), "s\0\0\0nd\0\0");
    let collapse = fallocate(&file, FallocateFlags::FALLOC_FL_COLLAPSE_RANGE, 0, 4_096);
    assert_eq!(collapse, Err(nix::errno::Errno::EOPNOTSUPP));
    mounted.fault(&["power-cut"]);
    // Neither was synced.
    assert_eq!((read("one"), read("two")), ("first".to_owned(), "second".to_owned()));
}

/// A page that is stored into by `mmap` is durable by `msync`; with O_DSYNC a write is durable at once; a hole is one.
#[test]
fn mapped_pages_and_synchronous_writes_are_durable_when_they_say_so() {
    let (true, Some(python)) = (has_fuse(1), python(1)) else { return };
    let home = TempDir::new().expect("a temporary folder");
    let mounted = Mounted::start(home.path(), &[]);
    mounted.keep("mapped", &"-".repeat(8_192));
    mounted.keep("through", "-----");
    mounted.keep("direct", &"-".repeat(8_192));
    let program = "\
import mmap, os
file = os.open('mapped', os.O_RDWR)
pages = mmap.mmap(file, 8192)
pages[0:6] = b'synced'
pages.flush(0, 4096)
through = os.open('through', os.O_WRONLY | os.O_DSYNC)
os.write(through, b'whole')
direct = os.open('direct', os.O_WRONLY | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
page[0:6] = b'direct'
os.write(direct, page)
os.fdatasync(direct)
plain = os.open('direct', os.O_WRONLY)
os.pwrite(plain, b'later', 4096)
";
    let done = Command::new(python).args(["-IS", "-c", program]).current_dir(&mounted.folder).output();
    let done = done.expect("python starts");
    assert!(done.status.success(), "{}", text(&done.stderr));
    mounted.fault(&["power-cut"]);
    let read = |name: &str| fs::read(mounted.path(name)).expect("it is there");
    assert_eq!(&read("mapped")[..7], b"synced-");
    assert_eq!(read("through"), b"whole");
    assert_eq!((&read("direct")[..7], &read("direct")[4_096..4_101]), (&b"direct\0"[..], &b"-----"[..]));
}
