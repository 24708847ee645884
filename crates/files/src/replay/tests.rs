//! Replay of logs in memory.

use super::*;
use crate::backing::Journal;
use crate::backing::Room;
use crate::{Globs, identify};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tidewater_base::checksum::crc32c;
use tidewater_client::{LogError, Written};
use tidewater_wire::log::{FileDelta, FilePatch, FileSession, RecordHeader, RecordKind};

/// A log in memory, of which everything can be read that was not trimmed. A clone is the same log.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
    trimmed: Arc<AtomicU64>,
    trims: bool,
    writers: Vec<u32>,
}

impl Journal for Memory {
    fn append(&self, parts: &[&[u8]]) -> Result<Written, LogError> {
        let (payload, mut log) = (parts.concat(), self.bytes.lock().expect("no thread panicked"));
        let lsn = log.len() as u64;
        let (length, data_checksum) = (payload.len() as u32, crc32c(&payload));
        let header = RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn, ..RecordHeader::default() };
        log.extend(header.to_bytes());
        log.extend(&payload);
        log.resize((lsn + RecordHeader::span(payload.len() as u64)) as usize, 0);
        Ok(Written { lsn, end: log.len() as u64 })
    }

    fn end(&self) -> u64 {
        self.bytes.lock().expect("no thread panicked").len() as u64
    }

    fn wait(&self, _: u64, _: Level) -> Result<(), LogError> {
        Ok(())
    }
}

impl Backing for Memory {
    fn level(&self) -> Level {
        Level::Ring
    }

    fn offers(&self, _: Level) -> Result<(), LogError> {
        Ok(())
    }

    fn survives(&self, _: Level) -> &'static str {
        "nothing"
    }

    fn chunk(&self) -> u64 {
        4096
    }

    fn writers(&self) -> Result<Vec<u32>, LogError> {
        Ok(self.writers.clone())
    }

    fn tail(&self) -> u64 {
        self.end()
    }

    fn room(&self, _: u8) -> Result<Room, LogError> {
        Ok(Room { bytes: 1 << 20, used: 0, lanes: 1, readable: self.trimmed.load(Ordering::Relaxed) })
    }

    fn seal(&self) -> Result<(), LogError> {
        Ok(())
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), LogError> {
        let log = self.bytes.lock().expect("no thread panicked");
        to.copy_from_slice(&log[offset as usize..][..to.len()]);
        Ok(())
    }

    fn trim(&self, offset: u64) -> Result<(), LogError> {
        if self.trims {
            self.trimmed.fetch_max(offset, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Memory {
    fn say(&self, kind: FileChangeKind, id: u32, offset: u64, rest: &[&[u8]]) {
        let rest = rest.concat();
        let head = FileChange { kind, id, offset, len: rest.len() as u64, ..FileChange::default() };
        self.append(&[&head.to_bytes(), &rest]).expect("the log accepts it");
    }

    fn say_run(&self, number: u8) {
        let session = FileSession { run: [number; 16], ..FileSession::default() };
        self.say(FileChangeKind::Session, 0, 0, &[&session.to_bytes()]);
    }

    fn say_bind(&self, id: u32, file: &File, path: &Path) {
        let path = path.as_os_str().as_bytes();
        let mut bind = identify(file.as_fd()).expect("the file has an identity");
        bind.path_bytes = path.len() as u16;
        self.say(FileChangeKind::Bind, id, 0, &[&bind.to_bytes(), path]);
    }

    /// A log of which no more can be read than of a device's.
    pub fn that_trims() -> Memory {
        Memory { trims: true, ..Memory::default() }
    }

    /// The log as it is now, as another one.
    pub fn copied(&self) -> Memory {
        let bytes = self.bytes.lock().expect("no thread panicked").clone();
        let trimmed = self.trimmed.load(Ordering::Relaxed);
        Memory { bytes: Arc::new(bytes.into()), trimmed: Arc::new(trimmed.into()), ..self.clone() }
    }

    pub fn recovered(&self, path: &Path) -> (Report, Vec<u8>) {
        let report = recover(self, 0, &Rules::default()).expect("every file can be replayed");
        (report, std::fs::read(path).expect("the file can be read"))
    }
}

pub fn new_file(folder: &Path, name: &str) -> (PathBuf, File) {
    let path = folder.canonicalize().expect("the folder exists").join(name);
    let file = File::create(&path).expect("a new file");
    (path, file)
}

#[test]
fn an_id_that_an_earlier_run_gave_to_a_file_that_went_is_the_later_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let ((old_path, old), (path, file)) = (new_file(folder.path(), "old"), new_file(folder.path(), "new"));
    let log = Memory::default();
    // A run's last words; its first ones are trimmed.
    log.say_bind(1, &old, &old_path);
    log.say(FileChangeKind::Gone, 1, 0, &[]);
    std::fs::remove_file(&old_path).expect("the file can be removed");
    log.say(FileChangeKind::Synced, 0, log.end(), &[]);
    log.say_run(2);
    log.say_bind(1, &file, &path);
    log.say(FileChangeKind::Write, 1, 0, &[b"promised"]);
    let (report, bytes) = log.recovered(&path);
    assert_eq!(bytes, b"promised");
    assert_eq!((report.files.len(), &report.files[0].fate, &report.files[0].path), (1, &Fate::UpToDate, &path));
}

#[test]
fn what_was_written_while_a_checkpoint_began_is_of_the_run_that_it_says_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = new_file(folder.path(), "file");
    let log = Memory::default();
    // The log was trimmed up to here.
    log.say(FileChangeKind::Write, 1, 0, &[b"one "]);
    log.say_run(1);
    log.say_bind(1, &file, &path);
    log.say(FileChangeKind::Synced, 0, 0, &[]);
    log.say(FileChangeKind::Write, 1, 4, &[b"two"]);
    assert_eq!(log.recovered(&path).1, b"one two");
    assert_eq!(log.recovered(&path).1, b"one two", "twice does no harm");
}

#[test]
fn a_change_that_the_system_refuses_is_passed_over_where_the_log_goes_back_on_it_and_nowhere_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = new_file(folder.path(), "file");
    let log = Memory::default();
    const FAR: u64 = 1 << 62;
    let cut = |len: u64| {
        let head = FileChange { kind: FileChangeKind::Truncate, id: 1, len, ..FileChange::default() };
        log.append(&[&head.to_bytes()]).expect("the log accepts it");
    };
    log.say_run(1);
    log.say_bind(1, &file, &path);
    log.say(FileChangeKind::Write, 1, 0, &[b"one"]);
    // In two records, as a long one is; and what is said of the file then.
    log.say(FileChangeKind::Write, 1, FAR, &[b"far"]);
    log.say(FileChangeKind::Write, 1, FAR + 3, &[b"far"]);
    cut(3);
    cut(FAR);
    cut(3);
    log.say(FileChangeKind::Write, 1, 3, &[b"two"]);
    assert_eq!(log.recovered(&path).1, b"onetwo");
    // No later cut takes it back: at the end of the log, and before other bytes.
    log.say_bind(1, &file, &path);
    log.say(FileChangeKind::Write, 1, FAR, &[b"far"]);
    for more in [0, 1] {
        let error = recover(&log, 0, &Rules::default()).expect_err("something of the log can't be applied");
        assert!(matches!(&error, ReplayError::File { path: of, .. } if *of == path), "{error} {more}");
        log.say(FileChangeKind::Write, 1, 0, &[b"ONE"]);
    }
}

#[test]
fn what_has_the_name_of_a_file_that_was_removed_is_another() {
    let folder = tempfile::tempdir().expect("a folder");
    for another in [true, false] {
        let (path, file) = new_file(folder.path(), "file");
        let log = Memory::default();
        log.say_run(1);
        log.say_bind(1, &file, &path);
        log.say(FileChangeKind::Write, 1, 0, &[b"bytes"]);
        log.say(FileChangeKind::Gone, 1, 0, &[]);
        std::fs::remove_file(&path).expect("the file can be removed");
        if another {
            std::os::unix::fs::symlink("/etc/hostname", &path).expect("a link");
        } else {
            std::fs::create_dir(&path).expect("a folder");
        }
        let report = recover(&log, 0, &Rules::default()).expect("every file can be replayed");
        assert_eq!((report.files.len(), &report.files[0].fate), (1, &Fate::Removed));
        if another {
            std::fs::remove_file(&path).expect("the file can be removed");
        }
    }
}

#[test]
fn an_older_name_outside_of_the_set_stops_nothing_unless_the_file_is_there_by_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let rules = |dry| {
        let globs = Globs::new(&["*.log".to_owned()], &folder.path().canonicalize().expect("the folder exists"));
        Rules { globs: Some(globs.expect("a pattern")), dry, ..Rules::default() }
    };
    let log_of = |gone: bool| {
        let (before, file) = new_file(folder.path(), "tmp.1");
        let after = before.with_file_name("a.log");
        let log = Memory::default();
        log.say_run(1);
        log.say_bind(1, &file, &before);
        log.say_bind(1, &file, &after);
        log.say(FileChangeKind::Write, 1, 0, &[b"bytes"]);
        if gone {
            log.say(FileChangeKind::Gone, 1, 0, &[]);
        }
        (log, before, after)
    };
    let (log, before, _) = log_of(true);
    // A loss of power took back rename and removal.
    for is_there in [true, false] {
        let report = recover(&log, 0, &rules(true)).expect("it was removed");
        assert_eq!(report.files[0].fate, Fate::Removed, "{is_there}");
        let _ = std::fs::remove_file(&before);
    }
    let (log, before, after) = log_of(false);
    let error = recover(&log, 0, &rules(false)).expect_err("it is by a name that is not of the set");
    let ReplayError::Refused(report) = error else { panic!("{error}") };
    let Fate::Refused(why) = &report.files[0].fate else { panic!("{report:?}") };
    assert!(why.contains("rename it back, or recover without --log") && report.files[0].path == before, "{why}");
    std::fs::rename(&before, &after).expect("the rename succeeds");
    recover(&log, 0, &rules(false)).expect("it is of the set again");
    assert_eq!(std::fs::read(&after).expect("the file can be read"), b"bytes");
}

#[test]
fn a_delta_goes_by_a_record_that_is_there_or_nothing_is_touched() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, file) = new_file(folder.path(), "file");
    let log = Memory::default();
    let delta = |offset: u64, lsn: u64, patches: &[(u16, &[u8])]| {
        let head = FileChange { kind: FileChangeKind::Delta, id: 1, base: 2, offset, len: 600 };
        let rest = FileDelta { lsn, patches: patches.len() as u16 }.to_bytes();
        let patches = patches
            .iter()
            .flat_map(|(at, bytes)| [&FilePatch { at: *at, len: bytes.len() as u16 }.to_bytes()[..], bytes].concat());
        let patches: Vec<u8> = patches.collect();
        log.append(&[&head.to_bytes(), &rest, &patches]).expect("the log accepts it").lsn
    };
    let write = |base: u8, byte: u8| {
        let head = FileChange { kind: FileChangeKind::Write, id: 1, base, offset: 0, len: 600 };
        log.append(&[&head.to_bytes(), &[byte; 600]]).expect("the log accepts it").lsn
    };
    log.say_run(1);
    // Of no use any more, and so is what it went by.
    delta(0, 4711, &[(0, b"old")]);
    log.say(FileChangeKind::Synced, 0, log.end(), &[]);
    log.say_run(1);
    log.say_bind(1, &file, &path);
    let base = write(2, b'a');
    write(1, b'b');
    write(0, b'c');
    let second = delta(600, base, &[(0, b"one"), (597, b"two")]);
    delta(1200, second, &[(1, b"N")]);
    let (report, bytes) = log.recovered(&path);
    let mut pages = [[b'c'; 600], [b'a'; 600], [b'a'; 600]];
    for page in &mut pages[1..] {
        page[..3].copy_from_slice(b"one");
        page[597..].copy_from_slice(b"two");
    }
    pages[2][1] = b'N';
    assert!(bytes == pages.concat(), "{:?}", String::from_utf8_lossy(&bytes));
    assert_eq!((report.unbound, report.files[0].bytes), (0, 5 * 600));
    let recorded = log.end();
    // By another record than the newest under the number; and by one of another length.
    delta(0, base, &[(0, b"forged")]);
    let refused = recover(&log, 0, &Rules::default()).expect_err("it goes by nothing");
    let text = refused.to_string();
    assert!(text.contains("1 record without a file or without earlier bytes"), "{text}");
    assert!(std::fs::read(&path).expect("the file can be read") == pages.concat());
    assert!(log.end() > recorded, "kept as it was");
    let forgetting = Rules { forget: true, ..Rules::default() };
    let report = recover(&log, 0, &forgetting).expect("recovery may skip the file");
    assert_eq!(report.unbound, 1);
    assert!(std::fs::read(&path).expect("the file can be read") == pages.concat());
}
