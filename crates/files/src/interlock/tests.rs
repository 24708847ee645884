//! Files over a crash, on every other device, copied, moved and restored: refused in words, or right.

use super::*;
use crate::backing::AnyLog;
use crate::embedded::{Changed, EmbeddedFiles};
use crate::error::RunError;
use crate::replay::tests::Memory;
use crate::run::{Run, Setup};
use crate::system::Plain;
use crate::{Fate, ReplayError, Rules};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use tempfile::TempDir;
use tidewater_client::Level;

/// The files of a program, as its log set has them.
struct Program {
    name: &'static str,
    /// The folder of its data, and that of the file within it.
    data: &'static str,
    below: &'static str,
    file: &'static str,
    /// The pattern of `--log`, from the folder of all; `None`: it is a layer's.
    pattern: Option<&'static str>,
    /// Where it writes: pages of a log that is filled, or what is appended.
    at: u64,
}

const PROGRAMS: [Program; 5] = [
    Program {
        name: "PostgreSQL",
        data: "main",
        below: "pg_wal",
        file: "000000010000000000000001",
        pattern: Some("main/pg_wal/0*"),
        at: 8192,
    },
    Program {
        name: "Redis",
        data: "redis",
        below: "appendonlydir",
        file: "appendonly.aof.1.incr.aof",
        pattern: Some("redis/appendonlydir/*"),
        at: 0,
    },
    Program { name: "SQLite", data: "app", below: "", file: "app.db-wal", pattern: None, at: 32 },
    Program { name: "RocksDB", data: "rocks", below: "db", file: "000004.log", pattern: None, at: 0 },
    Program { name: "a plain program", data: "work", below: "", file: "data.log", pattern: Some("work/*.log"), at: 0 },
];

/// The device of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum On {
    /// The one that has the last bytes.
    Right,
    /// One with another program's log.
    Wrong,
    /// One that was just made.
    New,
    /// The right one, from a copy of before the run.
    Older,
    /// The right one, from a copy amid the run.
    Restored,
}

/// Fate of the files since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Have {
    Stayed,
    Copied,
    Moved,
    /// From a backup of before the last checkpoint: the folder is another.
    Restored,
    /// The same, into the folder that was there, by files of the same names.
    RestoredInPlace,
    /// The folder is behind a symbolic link by now.
    Symlinked,
    Removed,
    MarkerDamaged,
    MarkerRemoved,
    MarkerOfAnother,
}

const ON: [On; 5] = [On::Right, On::Wrong, On::New, On::Older, On::Restored];
const HAVE: [Have; 10] = [
    Have::Stayed,
    Have::Copied,
    Have::Moved,
    Have::Restored,
    Have::RestoredInPlace,
    Have::Symlinked,
    Have::Removed,
    Have::MarkerDamaged,
    Have::MarkerRemoved,
    Have::MarkerOfAnother,
];

/// A run of either kind.
enum Running {
    Preloaded(Box<Run<Memory>>),
    Layer(EmbeddedFiles),
}

struct Trial {
    folder: TempDir,
    program: &'static Program,
}

impl Trial {
    fn new(program: &'static Program) -> Trial {
        let trial = Trial { folder: tempfile::tempdir_in("/dev/shm").expect("a folder in memory"), program };
        fs::create_dir_all(trial.file().parent().expect("the file has a folder")).expect("a new folder");
        fs::write(trial.file(), [0; 16 << 10]).expect("a new file");
        trial
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("the folder exists")
    }

    fn data(&self) -> PathBuf {
        self.root().join(self.program.data)
    }

    fn file(&self) -> PathBuf {
        self.data().join(self.program.below).join(self.program.file)
    }

    fn marker(&self) -> PathBuf {
        let folder = self.file().parent().expect("the file has a folder").to_owned();
        let (markers, _) = Folder::open(&folder).expect("the folder exists").names().expect("the folder can be read");
        folder.join(markers.first().expect("the run has left one"))
    }

    /// Starts the program on a device.
    fn start(&self, log: &Memory, adopt: bool) -> Result<Running, RunError> {
        let patterns = self.program.pattern.map(|pattern| vec![pattern.to_owned()]);
        let globs = patterns.map_or(Globs::from_text(ALL), |all| Globs::new(&all, &self.root()).expect("a pattern"));
        let (level, owners) = (Some(Level::Ring), Vec::new());
        let target = "vfio-user:log/vfio.sock".to_owned();
        let setup = Setup { target, lane: 0, level, globs, owners, forget: false, adopt };
        if self.program.pattern.is_some() {
            return Run::over(&setup, log.clone()).map(|(run, _)| Running::Preloaded(Box::new(run)));
        }
        let log: AnyLog = Box::new(log.clone());
        let (run, _) = Run::over(&setup, log)?;
        EmbeddedFiles::of(run).map(Running::Layer)
    }

    /// The program opens its file, and writes to it; the page cache may lose that.
    fn write(&self, running: &Running, bytes: &[u8]) -> Result<(), RunError> {
        let path = self.file();
        let at = self.program.at;
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.expect("the file can be opened");
        match running {
            Running::Preloaded(run) => {
                let files = run.files();
                let place =
                    files.enter(file.as_fd(), path.as_os_str().as_bytes(), &Plain)?.expect("the file is in the set");
                let locked = files.lock(place, file.as_fd(), false)?.expect("it is of the set");
                locked.begin(at, at + bytes.len() as u64);
                files.write(&locked, at, bytes)?;
                file.write_all_at(bytes, at).expect("there is room");
                locked.end();
                drop(locked);
                files.sync(place)?;
            }
            Running::Layer(files) => {
                let number = files.enter(&path)?;
                let real = || file.write_all_at(bytes, at).is_ok();
                assert_eq!(files.write(number, at, bytes, real)?, Changed::Done);
                files.sync(number)?;
            }
        }
        Ok(())
    }

    fn checkpoint(running: &Running) {
        match running {
            Running::Preloaded(run) => run.checkpoint_now(),
            Running::Layer(files) => files.run().checkpoint_now(),
        }
    }

    fn has(&self, bytes: &[u8]) -> bool {
        let mut has = vec![0; bytes.len()];
        let file = File::open(self.file());
        file.is_ok_and(|file| file.read_exact_at(&mut has, self.program.at).is_ok()) && has == bytes
    }
}

fn copy(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp starts");
    assert!(done.success());
}

/// Acknowledged last, before the crash.
const LAST: &[u8] = b"acknowledged";

/// Result of a start after a crash. `Ok`: the program began to write.
fn outcome(program: &'static Program, on: On, have: Have) -> (Trial, Result<bool, String>) {
    let trial = Trial::new(program);
    let (data, aside) = (trial.data(), trial.root().join("aside"));
    let log = Memory::that_trims();
    // An earlier run, of which nothing is left.
    let before = trial.start(&log, false).expect("no marker refuses the start");
    trial.write(&before, b"at first").expect("the write is recorded");
    Trial::finish(before);
    let older = log.copied();
    let run = trial.start(&log, false).expect("no marker refuses the start");
    trial.write(&run, b"then").expect("the write is recorded");
    copy(&data, &aside);
    let restored = log.copied();
    Trial::checkpoint(&run);
    trial.write(&run, b"and then").expect("the write is recorded");
    Trial::checkpoint(&run);
    trial.write(&run, LAST).expect("the write is recorded");
    // A crash, which takes the page cache along.
    drop(run);
    let file = OpenOptions::new().write(true).open(trial.file()).expect("the file can be opened");
    file.write_all_at(&[0; LAST.len()], program.at).expect("there is room");
    let marker = trial.marker();
    let away = trial.root().join("away");
    match have {
        Have::Stayed => {}
        // The copy is used in place of the original, which is put aside.
        Have::Copied => {
            fs::rename(&data, &away).expect("the rename succeeds");
            copy(&away, &data);
        }
        Have::Moved => {
            fs::rename(&data, &away).expect("the rename succeeds");
            fs::create_dir(&data).expect("the folder can be made");
            for entry in fs::read_dir(&away).expect("the folder can be read") {
                let entry = entry.expect("the entry can be read");
                fs::rename(entry.path(), data.join(entry.file_name())).expect("the rename succeeds");
            }
        }
        Have::Restored => {
            fs::remove_dir_all(&data).expect("the folder can be removed");
            fs::rename(&aside, &data).expect("the rename succeeds");
        }
        Have::RestoredInPlace => {
            let folder = trial.file().parent().expect("the file has a folder").to_owned();
            for entry in fs::read_dir(&folder).expect("the folder can be read") {
                fs::remove_file(entry.expect("the entry can be read").path()).expect("the file can be removed");
            }
            for entry in fs::read_dir(aside.join(program.below)).expect("the folder can be read") {
                copy(&entry.expect("the entry can be read").path(), &folder);
            }
        }
        Have::Symlinked => {
            fs::rename(&data, &away).expect("the rename succeeds");
            std::os::unix::fs::symlink(&away, &data).expect("the link can be made");
        }
        Have::Removed => fs::remove_file(trial.file()).expect("the file can be removed"),
        Have::MarkerDamaged => fs::write(&marker, "run away").expect("the file can be written"),
        Have::MarkerRemoved => fs::remove_file(&marker).expect("the file can be removed"),
        Have::MarkerOfAnother => {
            fs::remove_file(&marker).expect("the file can be removed");
            let folder = Folder::open(marker.parent().expect("the file has a folder")).expect("the folder exists");
            let names = vec!["*".to_owned()];
            let another =
                Marker { run: [9; 16], names, target: "vfio-user:other/vfio.sock".into(), ..Marker::default() };
            folder.write(&another, &Plain).expect("the file can be written");
        }
    }
    let device = match on {
        On::Right => log.clone(),
        On::Wrong => {
            let other = Trial::new(&PROGRAMS[4]);
            let wrong = Memory::that_trims();
            let run = other.start(&wrong, false).expect("no marker refuses the start");
            other.write(&run, b"of another").expect("the write is recorded");
            Trial::finish(run);
            wrong
        }
        On::New => Memory::that_trims(),
        On::Older => older,
        On::Restored => restored,
    };
    let started = trial.start(&device, false).map_err(|error| said(&error));
    // Who removes a marker by hand adopts the files; the older log is no danger to them from then on.
    if have == Have::MarkerRemoved && on != On::Right && started.is_ok() {
        assert!(trial.start(&log, false).is_err(), "the older log is refused");
        return (trial, Err("adopted by hand, and the log that had the last bytes is not replayed any more".into()));
    }
    let begun = started.and_then(|running| {
        // What a program reads when it opens its file.
        let is_whole = trial.has(LAST);
        trial.write(&running, b"x").map_err(|error| said(&error)).map(|()| is_whole)
    });
    (trial, begun)
}

impl Trial {
    fn finish(running: Running) {
        match running {
            Running::Preloaded(run) => run.finish().map(drop),
            Running::Layer(files) => files.finish().map(drop),
        }
        .expect("the files are there");
    }
}

/// A refusal as a user reads it.
fn said(error: &RunError) -> String {
    let mut text = error.to_string();
    if let RunError::Replay(ReplayError::Refused(report)) = error {
        for file in &report.files {
            if let Fate::Refused(why) = &file.fate {
                text += &format!("; {why}");
            }
        }
    }
    text
}

/// The table: 5 devices, 10 states of the files, 5 programs.
#[test]
fn after_a_crash_a_program_starts_with_its_last_bytes_or_is_refused_in_words() {
    let (mut right, mut refused) = (0, 0);
    let mut silent = Vec::new();
    for program in &PROGRAMS {
        for on in ON {
            for have in HAVE {
                let (_trial, begun) = outcome(program, on, have);
                match begun {
                    Ok(true) => right += 1,
                    Ok(false) => silent.push(format!("{} on {on:?}, files {have:?}", program.name)),
                    Err(why) => {
                        refused += 1;
                        assert!(why.len() > 40, "{}: {on:?} {have:?}: {why}", program.name);
                        let is_known = on == On::Right && have == Have::Stayed;
                        assert!(!is_known, "{}: the right device is refused: {why}", program.name);
                    }
                }
            }
        }
    }
    assert!(silent.is_empty(), "{} started without last bytes: {silent:#?}", silent.len());
    assert_eq!(right + refused, 250);
    assert!(right >= 5, "{right}");
}

#[test]
fn a_replica_with_all_of_the_log_goes_on_and_its_old_primary_is_refused_then() {
    for program in &PROGRAMS {
        let trial = Trial::new(program);
        let primary = Memory::that_trims();
        let run = trial.start(&primary, false).expect("no marker refuses the start");
        trial.write(&run, LAST).expect("the write is recorded");
        drop(run);
        let lost = OpenOptions::new().write(true).open(trial.file()).expect("the file can be opened");
        lost.write_all_at(&[0; LAST.len()], program.at).expect("there is room");
        let replica = primary.copied();
        let run = trial.start(&replica, false).unwrap_or_else(|error| panic!("{}: {}", program.name, said(&error)));
        assert!(trial.has(LAST), "{}", program.name);
        trial.write(&run, b"newer, synced").expect("the write is recorded");
        drop(run);
        let refused = trial.start(&primary, false).map(drop).expect_err("its bytes are older");
        assert!(said(&refused).contains("this log's bytes are older"), "{}: {}", program.name, said(&refused));
        assert!(trial.has(b"newer, synced"), "{}", program.name);
    }
}

/// How many markers are at and below a folder.
fn markers_below(folder: &Path) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let entry = entry.expect("the entry can be read");
        let is_folder = entry.file_type().expect("the entry has a type").is_dir();
        count += usize::from(entry.file_name().to_string_lossy().starts_with(PREFIX));
        count += if is_folder { markers_below(&entry.path()) } else { 0 };
    }
    count
}

#[test]
fn a_layer_leaves_no_marker_where_its_files_were_and_none_keeps_folders_from_being_renamed_or_removed() {
    let trial = Trial::new(&PROGRAMS[2]);
    let log = Memory::that_trims();
    let Ok(Running::Layer(files)) = trial.start(&log, false) else { panic!("it is a layer's") };
    let root = trial.root();
    let at = |name: &str| root.join(name);
    for name in ["a", "b", "c", "c/d", "e"] {
        fs::create_dir(at(name)).expect("a new folder");
    }
    fs::write(at("a/file"), "old").expect("a new file");
    let number = files.enter(&at("a/file")).expect("the file can be put on the log");
    let rename = |from: &str, to: &str| {
        let real = || fs::rename(at(from), at(to)).is_ok();
        assert_eq!(files.rename(&at(from), &at(to), real).expect("the log accepts it"), Changed::Done, "{from} {to}");
    };
    // All between two checkpoints, so that no one sees where it was.
    rename("a/file", "b/file");
    assert_eq!(markers_below(&root), 2);
    let gone = files.remove(&at("a"), || fs::remove_dir(at("a")).is_ok()).expect("the log accepts it");
    assert_eq!(gone, Changed::Done, "the marker is no file of the program");
    rename("b", "e");
    rename("e/file", "c/d/file");
    rename("c", "f");
    let file = OpenOptions::new().write(true).open(at("f/d/file")).expect("the file was moved");
    let real = || file.write_all_at(b"new", 0).is_ok();
    assert_eq!(files.write(number, 0, b"new", real).expect("the log accepts it"), Changed::Done);
    assert!(fs::read_dir(at("f/d")).expect("the folder was moved").count() == 2, "a marker is beside the file");
    files.finish().expect("every file can be synced");
    assert_eq!(markers_below(&root), 0);
}

#[test]
fn a_file_that_says_it_is_marked_has_a_marker_beside_it_whenever_markers_go() {
    let trial = Trial::new(&PROGRAMS[2]);
    let Ok(Running::Layer(files)) = trial.start(&Memory::that_trims(), false) else { panic!("it is a layer's") };
    let root = trial.root();
    let at = |name: &str| root.join(name);
    for name in ["a", "b"] {
        fs::create_dir(at(name)).expect("a new folder");
    }
    fs::write(at("a/file"), "old").expect("a new file");
    files.enter(&at("a/file")).expect("the file can be put on the log");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Acquire) {
                files.run().leave_unused();
            }
        });
        let run = files.run();
        let place = run.files().table().entries().next().expect("it is of the set");
        let mut wrong = None;
        for turn in 0..1_000 {
            let to = at(["b/file", "a/file"][turn % 2]);
            run.comes_to(to.as_os_str().as_bytes());
            // As a link makes it another name: no rename is under way.
            run.files().record_path(place, to.as_os_str().as_bytes(), false).expect("the log accepts it");
            assert!(run.files().table().bind(place).is_marked);
            if markers_below(to.parent().expect("the file has a folder")) != 1 {
                wrong = Some(turn);
                break;
            }
        }
        over.store(true, std::sync::atomic::Ordering::Release);
        assert_eq!(wrong, None);
    });
}

#[test]
fn an_older_device_whose_log_is_forgotten_leaves_the_marker_of_the_newer_one() {
    let trial = Trial::new(&PROGRAMS[4]);
    let log = Memory::that_trims();
    let run = trial.start(&log, false).expect("no marker refuses the start");
    trial.write(&run, b"then").expect("the write is recorded");
    let older = log.copied();
    Trial::checkpoint(&run);
    trial.write(&run, LAST).expect("the write is recorded");
    // Says in the marker how far the log has come.
    Trial::checkpoint(&run);
    trial.write(&run, b"newer").expect("the write is recorded");
    drop(run);
    let lost = OpenOptions::new().write(true).open(trial.file()).expect("the file can be opened");
    lost.write_all_at(&[0; LAST.len()], 0).expect("there is room");
    let rules = Rules { forget: true, ..Rules::default() };
    crate::recover(&older, 0, &rules).expect("it discards");
    assert_eq!(markers_below(&trial.root()), 1, "the files depend on the other device");
    assert!(trial.start(&older, false).is_err());
    crate::recover(&log, 0, &Rules::default()).expect("the log is the files' own");
    assert!(trial.has(b"newer") && markers_below(&trial.root()) == 0);
}
