//! Programs of others: with one of their syncs taken out each is found by a crash test, as they are made none fails.
//!
//! Installed ones are tried in their versions; those of registries (Go's modules, npm) are fetched into a temporary
//! folder. A program that is not here is left out, and counted.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;
use tidewater_tests::capi::said;
use tidewater_tests::{compile, install, root, run, skipped, tidewater};

use crate::crash_test::{SQLITE, SQLITE_CHECK, has_fuse, python, text};

/// A sync that is taken out of a program.
struct Fault {
    /// The program: a name that [`Kit::program`] knows.
    program: &'static str,
    /// How it is to write.
    how: &'static str,
    /// Pattern of the files whose syncs do nothing; none: `how` says it all.
    unsynced: &'static str,
    /// The sync that is missing, for the table.
    missing: &'static str,
    /// Further options of the command.
    options: &'static [&'static str],
    /// Whether every `cargo test` tries it: it is found at the same cut each time, and built in no time.
    is_short: bool,
}

const STRICT: &[&str] = &["--rules=strict"];
const EXT4: &[&str] = &["--rules=ext4"];
/// Where the order of writes between two syncs is what counts.
const BETWEEN: &[&str] = &["--rules=strict", "--at=write", "--lose=random"];

const fn fault(
    program: &'static str,
    how: &'static str,
    unsynced: &'static str,
    missing: &'static str,
    options: &'static [&'static str],
    is_short: bool,
) -> Fault {
    Fault { program, how, unsynced, missing, options, is_short }
}

const FAULTS: &[Fault] = &[
    fault("sqlite-wal", "FULL", "*-wal", "of the log", STRICT, true),
    fault("sqlite-wal", "FULL", "*.db", "of the database, at a checkpoint", STRICT, true),
    fault("sqlite-wal", "FULL", "*/", "of the folder", STRICT, true),
    fault("sqlite-delete", "EXTRA", "*-journal", "of the journal", BETWEEN, true),
    fault("sqlite-delete", "EXTRA", "*.db", "of the database", STRICT, true),
    fault("sqlite-delete", "EXTRA", "*/", "of the folder", EXT4, true),
    fault("lmdb", "sync", "*/store", "of the pages", STRICT, true),
    fault("lmdb", "nosync", "", "all: `MDB_NOSYNC`", STRICT, true),
    fault("lmdb", "nometasync", "", "of the meta page: `MDB_NOMETASYNC`", STRICT, true),
    fault("bbolt", "nosync", "", "all: `NoSync`", STRICT, true),
    fault("bbolt-data", "sync", "", "of the pages, before the meta page", BETWEEN, false),
    fault("leveldb", "nosync", "", "of the log: `sync = false`", EXT4, true),
    fault("leveldb", "sync", "*/MANIFEST*", "of the manifest", EXT4, false),
    fault("leveldb", "sync", "*.dbtmp", "of `CURRENT`, before its rename", EXT4, false),
    fault("leveldb", "sync", "*.ldb", "of a table", EXT4, false),
    fault("leveldb-1.17", "sync", "", "its own: of the first manifest (google/leveldb#189)", EXT4, false),
    fault("rocksdb", "nosync", "", "of the log: `sync = false`", EXT4, true),
    fault("rocksdb", "sync", "*/MANIFEST*", "of the manifest", EXT4, false),
    fault("rocksdb", "sync", "*.sst", "of a table", EXT4, false),
    fault("goleveldb", "nosync", "", "of the log: `Sync: false`", EXT4, false),
    fault("goleveldb-1.0.0", "sync", "", "its own: of the manifest (syndtr/goleveldb#351)", EXT4, false),
    fault("redis", "everysec", "", "of the log: `appendfsync everysec`", EXT4, true),
    fault("redis", "no", "", "of the log: `appendfsync no`", EXT4, false),
    fault("etcd", "nosync", "", "of the log: `--unsafe-no-fsync`", STRICT, false),
    fault("git", "none", "", "all: `core.fsync=none`", EXT4, true),
    fault("git", "default", "", "its own: of loose objects", EXT4, true),
    fault("git", "committed,loose-object", "", "of the index", EXT4, false),
];

/// Programs as they are made, with the rules that they are made for.
const WELL_MADE: &[(&str, &str, &[&str])] = &[
    ("sqlite-wal", "FULL", STRICT),
    ("sqlite-wal", "FULL", EXT4),
    ("sqlite-delete", "EXTRA", STRICT),
    ("sqlite-delete", "EXTRA", EXT4),
    ("lmdb", "sync", STRICT),
    ("lmdb", "sync", EXT4),
    ("lmdb", "writemap", STRICT),
    ("bbolt", "sync", STRICT),
    ("bbolt", "sync", EXT4),
    ("rocksdb", "sync", EXT4),
    ("leveldb", "sync", EXT4),
    ("goleveldb", "sync", EXT4),
    ("redis", "always", EXT4),
    ("etcd", "sync", STRICT),
    ("git", "all", EXT4),
];

/// Commits one after the other; no id is acknowledged, since a commit of git is not durable when it returns.
const GIT: &str = "
export HOME=/nonexistent GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
for number in $(seq $2); do
    echo $number >file && git -c core.fsync=$1 add file || exit
    git -c core.fsync=$1 -c gc.auto=0 commit -q -m $number || exit
done";
const GIT_CHECK: &str = "
export HOME=/nonexistent
said=$(git fsck --full 2>&1) || { echo \"$said\"; exit 1; }
git rev-parse -q --verify 'HEAD^{tree}' >/dev/null || test ! -e .git/refs/heads/main";

/// A program as the command takes it.
struct Program {
    write: Vec<String>,
    check: String,
    setup: Option<String>,
}

/// Programs and libraries that were compiled for this test.
struct Kit {
    folder: TempDir,
    python: PathBuf,
    unsynced: PathBuf,
    go: OnceCell<Result<(), String>>,
}

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

impl Kit {
    /// `None`: what all need is not here; `cases` are left out.
    fn new(cases: usize) -> Option<Kit> {
        let (true, Some(python)) = (has_fuse(cases), python(cases)) else { return None };
        let folder = TempDir::new().expect("a temporary folder");
        let Some(unsynced) = compile("unsynced.c", folder.path(), &["-shared", "-fPIC", "-ldl"]) else {
            skipped(cases, "no C compiler here");
            return None;
        };
        for (name, source) in [("load.py", SQLITE), ("check.py", SQLITE_CHECK), ("git.sh", GIT)] {
            fs::write(folder.path().join(name), source).expect("the folder is writable");
        }
        fs::write(folder.path().join("git-check.sh"), GIT_CHECK).expect("the folder is writable");
        Some(Kit { folder, python, unsynced, go: OnceCell::new() })
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A program by its name.
    ///
    /// # Errors
    /// Why it is not here, in words.
    fn program(&self, name: &str, how: &str) -> Result<Program, String> {
        let python = self.python.to_str().expect("UTF-8");
        match name {
            "sqlite-wal" | "sqlite-delete" => {
                let mode = if name == "sqlite-wal" { "WAL" } else { "DELETE" };
                let write = words(&[python, "-IS", &self.path("load.py"), mode, how, "12"]);
                Ok(Program { write, check: format!("{python} -IS {}", self.path("check.py")), setup: None })
            }
            "redis" | "etcd" => {
                let server = if name == "redis" { "redis-server" } else { "etcd" };
                let found = Command::new("sh").args(["-c", "command -v \"$1\"", "sh", server]).output();
                let binary = found.map(|found| text(&found.stdout)).unwrap_or_default();
                let binary = binary.lines().next().ok_or_else(|| format!("no {server} here"))?;
                let script = root().join("tests/programs/servers.py").display().to_string();
                let line = [python, "-IS", &script, name, binary];
                let write = words(&[&line[..], &["write", how, "30"]].concat());
                let line = line.join(" ");
                let durable = if name == "redis" { "always" } else { "sync" };
                // A member is one once it has run; the files of Redis are part of what is tried.
                let setup = (name == "etcd").then(|| format!("{line} write {durable} 0"));
                Ok(Program { write, check: format!("{line} check"), setup })
            }
            "git" => {
                let write = words(&["sh", &self.path("git.sh"), how, "4"]);
                let setup = Some("HOME=/nonexistent git init -q -b main .".to_owned());
                Ok(Program { write, check: format!("sh {}", self.path("git-check.sh")), setup })
            }
            "bbolt" | "bbolt-data" | "goleveldb" | "goleveldb-1.0.0" => {
                self.go.get_or_init(|| self.build_go()).clone()?;
                let store = name.split('-').next().unwrap_or(name);
                let good = format!("{} {store}", self.path("go"));
                let binary = if name == store { self.path("go") } else { self.path(name) };
                let write = words(&[&binary, store, "write", how, "40"]);
                Ok(Program { write, check: format!("{good} check"), setup: Some(format!("{good} write sync 0")) })
            }
            _ => self.store(name, how),
        }
    }

    /// A store of keys in C or C++.
    fn store(&self, name: &str, how: &str) -> Result<Program, String> {
        let place = self.folder.path().join(name);
        let binary = place.join("stores");
        if !binary.exists() {
            fs::create_dir_all(&place).expect("the folder is writable");
            let header = if name == "lmdb" { "lmdb.h".to_owned() } else { format!("{name}/c.h") };
            if name == "leveldb-1.17" {
                old_leveldb(&place)?;
            } else if !Path::new("/usr/include").join(&header).exists() {
                return Err(format!("no {header} here"));
            } else {
                let definition = format!("-D{}", name.to_uppercase());
                compile("stores.c", &place, &[&definition, &format!("-l{name}")]).ok_or("no C compiler here")?;
            }
        }
        let binary = binary.display().to_string();
        // A new LevelDB is part of what is tried. LMDB does not sync the folder, nor RocksDB that above its own.
        let setup = (!name.starts_with("leveldb")).then(|| format!("{binary} write sync 0"));
        let write = words(&[&binary, "write", how, "40"]);
        Ok(Program { write, check: format!("{binary} check"), setup })
    }

    /// The stores in Go: as they are, with goleveldb 1.0.0, and with bbolt's first sync of a transaction taken out.
    fn build_go(&self) -> Result<(), String> {
        let module = self.folder.path().join("module");
        fs::create_dir_all(&module).expect("the folder is writable");
        for file in ["main.go", "go.mod", "go.sum", "known.mod", "known.sum"] {
            install(&root().join("tests/stores").join(file), &module.join(file));
        }
        let go = |line: &[&str]| {
            let done = Command::new("go").args(line).current_dir(&module).env("GOFLAGS", "-mod=mod").output();
            let done = done.map_err(|_| "no Go here".to_owned())?;
            done.status.success().then_some(()).ok_or_else(|| text(&done.stderr))
        };
        go(&["version"])?;
        for file in ["go.mod", "known.mod"] {
            go(&["mod", "download", &format!("-modfile={file}")])
                .map_err(|why| format!("modules of Go can't be had: {}", why.trim()))?;
        }
        let built = (|| {
            go(&["build", "-o", &self.path("go"), "."])?;
            go(&["build", "-modfile=known.mod", "-o", &self.path("goleveldb-1.0.0"), "."])?;
            go(&["mod", "vendor"])?;
            let source = module.join("vendor/go.etcd.io/bbolt/tx.go");
            let whole = fs::read_to_string(&source).map_err(|error| error.to_string())?;
            let (before, behind) = whole.split_once("fdatasync(tx.db)").ok_or("bbolt syncs otherwise")?;
            fs::write(&source, format!("{before}error(nil){behind}")).map_err(|error| error.to_string())?;
            go(&["build", "-mod=vendor", "-o", &self.path("bbolt-data"), "."])
        })();
        built.unwrap_or_else(|why| panic!("{why}"));
        Ok(())
    }

    /// Runs a crash test in `home`, and returns its exit status, its result and its seconds.
    fn test(&self, home: &Path, of: &Program, unsynced: &str, options: &[&str]) -> (Option<i32>, Value, f64) {
        let mut command = tidewater(home);
        command.args(["crash-test", "--json"]).args(options).args(["--check", &of.check]);
        command.args(of.setup.iter().flat_map(|line| ["--setup", line])).arg("--");
        if !unsynced.is_empty() {
            command.arg("env").arg(format!("LD_PRELOAD={}", self.unsynced.display()));
            command.arg(format!("UNSYNCED={unsynced}"));
        }
        let begun = Instant::now();
        let done = command.args(&of.write).output().expect("the binary starts");
        let seconds = begun.elapsed().as_secs_f64();
        let json = serde_json::from_slice(&done.stdout);
        let json = json.unwrap_or_else(|error| panic!("{:?}: {error}: {}", of.write, text(&done.stderr)));
        (done.status.code(), json, seconds)
    }
}

/// LevelDB as the package of npm for it has it, which is older than what can be installed.
fn old_leveldb(place: &Path) -> Result<(), String> {
    let line = "npm pack --silent leveldown@1.0.0 >/dev/null && tar xzf leveldown-1.0.0.tgz";
    let had = Command::new("sh").args(["-c", line]).current_dir(place).output().expect("sh starts");
    if !had.status.success() {
        return Err(format!("LevelDB 1.17 can't be had from npm: {}", text(&had.stderr).trim()));
    }
    let source = place.join("package/deps/leveldb/leveldb-1.17.0");
    let stores = root().join("tests/programs/stores.c");
    let flags = "-O1 -w -DOS_LINUX -DLEVELDB_PLATFORM_POSIX -pthread -I. -Iinclude";
    let files = "$(ls db/*.cc table/*.cc util/*.cc port/port_posix.cc | grep -Ev 'test|_bench|leveldb_main')";
    let line = format!(
        "cc -DLEVELDB {flags} -c {} -o stores.o && c++ -std=gnu++11 {flags} -o ../../../../stores stores.o {files}",
        stores.display()
    );
    said(Command::new("sh").args(["-c", &line]).current_dir(source));
    Ok(())
}

/// Tries faults, and prints a row of the table for each. `cuts`: tried at most; `replays`: of each failure.
fn find(faults: &[&Fault], cuts: &str, replays: usize) {
    let Some(kit) = Kit::new(faults.len()) else { return };
    let mut wrong = Vec::new();
    for fault in faults {
        let program = match kit.program(fault.program, fault.how) {
            Ok(program) => program,
            Err(why) => {
                skipped(1, &why);
                continue;
            }
        };
        let home = TempDir::new().expect("a temporary folder");
        let options = [fault.options, &["--jobs=1", "--cuts", cuts]].concat();
        let (code, json, seconds) = kit.test(home.path(), &program, fault.unsynced, &options);
        let rules = fault.options.join(" ").replace("--rules=", "").replace("--", "");
        println!("| {} | {} | {rules} | {} | {seconds:.1} |", fault.program, fault.missing, json["tried"]);
        if code != Some(1) {
            wrong.push(format!("{} without the sync {}: {json}", fault.program, fault.missing));
            continue;
        }
        for _ in 0..replays {
            let again = run(home.path(), &["crash-test", "--replay", "crash-test.failure"]);
            assert_eq!(again.status.code(), Some(1), "{} {}", text(&again.stdout), text(&again.stderr));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn programs_without_one_of_their_syncs_are_found_within_twenty_cuts() {
    let faults: Vec<&Fault> = FAULTS.iter().filter(|fault| fault.is_short).collect();
    find(&faults, "20", 1);
}

/// All of them: some only by states in which a certain write is lost or torn. Each failure replays ten times of ten.
#[test]
#[ignore = "a campaign of minutes"]
fn torture_programs_without_one_of_their_syncs_are_found() {
    find(&FAULTS.iter().collect::<Vec<_>>(), "2000", 10);
}

/// 2,000 cuts of each, at every operation and torn at sectors: no false alarm. By strict rules RocksDB fails, whose
/// `CURRENT` may name a manifest that is not durable by name yet, and LevelDB and goleveldb, whose logs are not.
#[test]
#[ignore = "a campaign of many minutes"]
fn torture_well_made_programs_pass_two_thousand_cuts() {
    let Some(kit) = Kit::new(WELL_MADE.len()) else { return };
    let mut wrong = Vec::new();
    for (name, how, rules) in WELL_MADE {
        let program = match kit.program(name, how) {
            Ok(program) => program,
            Err(why) => {
                skipped(1, &why);
                continue;
            }
        };
        let home = TempDir::new().expect("a temporary folder");
        let options = [rules, &["--cuts=2000", "--at=every", "--tear=sector", "--keep-going"][..]].concat();
        let (code, json, seconds) = kit.test(home.path(), &program, "", &options);
        println!("| {name} {how} | {} | {} | {} | {seconds:.0} |", rules[0], json["tried"], json["failed"]);
        if code != Some(0) {
            wrong.push(format!("{name} {how} {}: {json}", rules[0]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
