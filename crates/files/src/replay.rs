//! From the log back to the files. What a log says is taken for what a stranger may have written: nothing is followed,
//! nothing is touched whose identity or owner is another, and what could not be done is said.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use tidewater_wire::log::{FileBind, FileChange, FileChangeKind, FileRecord};

use crate::Backing;
use crate::access::{Access, Refused};
use crate::delta::Recorded;
use crate::entries::read;
use crate::handle::is_same;
pub use crate::report::{Fate, FileReport, ReplayError, Report, Rules};
use tidewater_client::{Entry, Level};

/// Files that a log may name.
pub(crate) const BINDS_MAX: usize = 1 << 20;
/// Names of one file that are tried.
const NAMES_MAX: usize = 64;
/// Files that are open at once.
const OPEN_MAX: usize = 256;

/// A file that the log is about.
#[derive(Debug, Default)]
struct Known {
    bind: FileBind,
    /// Oldest first.
    names: Vec<PathBuf>,
    /// Records before this are of no use.
    left: Option<u64>,
    gone: bool,
    /// Records that are to be applied.
    live: u64,
    records: u64,
    bytes: u64,
    fate: Option<Fate>,
    /// Where it was found.
    found: Option<PathBuf>,
    /// Where it was found and must not be changed.
    found_refused: Option<PathBuf>,
    /// What deltas go by.
    recorded: Recorded,
    /// Of the changes that the system refused the one that would have begun first, and where.
    refused: Option<(u64, std::io::Error)>,
}

impl Known {
    fn failed(&self, error: std::io::Error) -> ReplayError {
        ReplayError::File { path: self.found.clone().unwrap_or_default(), error }
    }

    /// Takes up what became of a change that begins at a place, or gave the file a length (`cut`). What the system
    /// refuses it refused the program, too: behind that the log says where the file ended, and what would have come
    /// behind it is of no use. Any other change behind it tells that the file had it.
    fn applied(&mut self, done: std::io::Result<()>, from: u64, cut: Option<u64>) -> Result<(), ReplayError> {
        match done {
            Err(error) => {
                let from = if cut.is_some() { u64::MAX } else { from };
                // The log has to go back on all that is refused, and so on what begins first.
                if self.refused.as_ref().is_none_or(|(first, _)| from < *first) {
                    self.refused = Some((from, error));
                }
            }
            Ok(()) => {
                if let Some((from, error)) = self.refused.take()
                    && cut.is_none_or(|len| len > from)
                {
                    return Err(self.failed(error));
                }
            }
        }
        Ok(())
    }
}

/// The run that is said first. Records before that are its own: a checkpoint trims up to where the log ended when it
/// began, and others write while it says again which run it is.
const FIRST: u32 = 1;

/// Everything the first passes find.
#[derive(Debug, Default)]
struct Found {
    /// Numbered in the order in which runs began; the same run said again is the same.
    run: u32,
    runs: Vec<[u8; 16]>,
    files: BTreeMap<(u32, u32), Known>,
    synced: u64,
}

/// Replays a log onto its files, syncs them, and empties it. Doing it twice does no harm.
///
/// # Errors
/// [`ReplayError`]. Unless [`Rules::forget`] is set, nothing is touched when a file is missing or refused.
pub fn recover(log: &impl Backing, lane: u8, rules: &Rules) -> Result<Report, ReplayError> {
    let to = log.tail();
    // A ring that was cut just now would say that there is nothing.
    log.is_there()?;
    let from = log.room(lane)?.readable.min(to);
    let access = Access::new(rules, &log.writers()?);
    let mut report = Report { from, to, others: access.others().to_vec(), ..Report::default() };
    let mut found = Found { run: FIRST, ..Found::default() };
    read(log, from, to, |entry| {
        if let Some((lsn, FileRecord::Synced { from })) = of_file(entry) {
            found.synced = found.synced.max(from.min(lsn));
        }
        Ok(())
    })?;
    read(log, from, to, |entry| first_pass(&mut found, &mut report, entry))?;
    found.run = FIRST;
    found.runs.clear();
    read(log, from, to, |entry| {
        if let Some((lsn, record)) = of_file(entry) {
            count(&mut found, &mut report, lsn, &record);
        }
        Ok(())
    })?;
    for file in found.files.values_mut() {
        file.fate = Some(match file.live {
            0 => Fate::Left,
            _ => look(file, &access),
        });
    }
    // Records whose file is named by no record: the begin of the log was overwritten.
    let bad = report.unbound > 0 || found.files.values().any(|file| file.fate.as_ref().is_some_and(Fate::is_bad));
    if !rules.dry && (!bad || rules.forget) {
        apply(log, &mut found, &access, from, to, rules.forget)?;
        if report.new > 0 {
            let head = FileChange { kind: FileChangeKind::Synced, offset: to, ..FileChange::default() };
            let end = log.append(&[&head.to_bytes()])?.end;
            log.wait(end, Level::Destaged)?;
            // With the mark itself: a page that is kept would be in the way of other lanes. Where it still can be read,
            // so can the mark.
            log.trim(end)?;
        }
    }
    report.files = found.files.into_values().filter(|file| file.records > 0).map(report_of).collect();
    report.files.sort_by(|one, other| one.path.cmp(&other.path));
    if bad && !rules.forget && !rules.dry {
        return Err(ReplayError::Refused(Box::new(report)));
    }
    Ok(report)
}

fn report_of(file: Known) -> FileReport {
    let path = file.found.or(file.found_refused).or_else(|| file.names.last().cloned()).unwrap_or_default();
    FileReport { path, fate: file.fate.unwrap_or(Fate::Left), records: file.records, bytes: file.bytes }
}

pub(crate) fn of_file(entry: Entry<'_>) -> Option<(u64, FileRecord<'_>)> {
    match entry {
        Entry::Record { lsn, payload, .. } => FileRecord::parse(payload).ok().map(|record| (lsn, record)),
        _ => None,
    }
}

impl Found {
    fn begin(&mut self, run: [u8; 16]) {
        let known = self.runs.iter().position(|one| *one == run);
        self.run = FIRST
            + known.unwrap_or_else(|| {
                self.runs.push(run);
                self.runs.len() - 1
            }) as u32;
    }

    fn file(&mut self, id: u32) -> Option<&mut Known> {
        self.files.get_mut(&(self.run, id))
    }
}

fn first_pass(found: &mut Found, report: &mut Report, entry: Entry<'_>) -> Result<(), ReplayError> {
    if let Entry::Skipped { from, to, .. } = entry {
        report.skipped += to - from;
    }
    let is_record = matches!(entry, Entry::Record { .. });
    let Some((lsn, record)) = of_file(entry) else {
        report.foreign += u64::from(is_record);
        return Ok(());
    };
    report.records += 1;
    match record {
        // Older than the last sync of all files: what still matters was said again. A run before this one may have had
        // the same ids, and what it said last is still there where a loss of power has taken its trim back.
        FileRecord::Bind { .. } | FileRecord::Leave { .. } | FileRecord::Gone { .. } if lsn < found.synced => {}
        FileRecord::Session { session, .. } => {
            if found.runs.len() >= BINDS_MAX {
                return Err(ReplayError::TooMany);
            }
            found.begin(session.run);
        }
        FileRecord::Bind { id, bind, path } => {
            if found.files.len() >= BINDS_MAX {
                return Err(ReplayError::TooMany);
            }
            let file = found.files.entry((found.run, id)).or_default();
            let path = PathBuf::from(OsStr::from_bytes(path));
            if file.names.is_empty() {
                file.bind = bind;
            }
            // An id is one file's: a record that says otherwise is forged or ours by mistake, and its path leads
            // nowhere.
            if is_same(&file.bind, &bind) {
                file.names.retain(|name| *name != path);
                if file.names.len() == NAMES_MAX {
                    file.names.remove(0);
                }
                file.names.push(path);
            }
        }
        FileRecord::Leave { id } => {
            if let Some(file) = found.file(id) {
                file.left = Some(lsn);
            }
        }
        FileRecord::Gone { id } => {
            if let Some(file) = found.file(id) {
                file.gone = true;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The id of a record that changes a file.
pub(crate) fn changes(record: &FileRecord<'_>) -> Option<u32> {
    match record {
        FileRecord::Write { id, .. }
        | FileRecord::Delta { id, .. }
        | FileRecord::Truncate { id, .. }
        | FileRecord::Zero { id, .. } => Some(*id),
        _ => None,
    }
}

fn count(found: &mut Found, report: &mut Report, lsn: u64, record: &FileRecord<'_>) {
    if let FileRecord::Session { session, .. } = record {
        found.begin(session.run);
    }
    let synced = found.synced;
    if lsn >= synced && !matches!(record, FileRecord::Synced { .. }) {
        report.new += 1;
    }
    let Some(id) = changes(record) else { return };
    match found.file(id) {
        _ if lsn < synced => report.stale += 1,
        None => report.unbound += 1,
        Some(file) => {
            file.records += 1;
            if !file.recorded.take_up(lsn, record, false) {
                report.unbound += 1;
            }
            if file.left.is_none_or(|left| lsn > left) {
                file.live += 1;
            }
        }
    }
}

/// Whether a file is there and may be touched. Nothing is kept open: there may be many.
fn look(file: &mut Known, access: &Access<'_>) -> Fate {
    let mut refused = None;
    // One that was removed is not what has its name by now, be that a link or a folder.
    let is_another = |name: &Path| file.gone && name.symlink_metadata().is_ok_and(|about| !about.is_file());
    for name in file.names.iter().rev().filter(|name| !is_another(name)) {
        match access.open(name, &file.bind) {
            Ok(Some(_)) => {
                file.found = Some(name.clone());
                return Fate::UpToDate;
            }
            Ok(None) => {}
            // It was removed by its last name: what is left of an older one, where a loss of power took a rename back,
            // goes as well.
            Err(Refused::OutsideOfSet) if file.gone => {}
            Err(why) => {
                if refused.is_none() {
                    file.found_refused = Some(name.clone());
                    refused = Some(Fate::Refused(why.to_string()));
                }
            }
        }
    }
    match refused {
        Some(refused) => refused,
        None if file.gone => Fate::Removed,
        None => Fate::Missing,
    }
}

/// Applies what is live, in order, and syncs.
fn apply(
    log: &impl Backing,
    found: &mut Found,
    access: &Access<'_>,
    from: u64,
    to: u64,
    forget: bool,
) -> Result<(), ReplayError> {
    let synced = found.synced;
    let mut open_files: BTreeMap<(u32, u32), File> = BTreeMap::new();
    let mut touched: Vec<(u32, u32)> = Vec::new();
    found.run = FIRST;
    found.runs.clear();
    found.files.values_mut().for_each(|file| file.recorded = Recorded::default());
    read(log, from, to, |entry| {
        let Some((lsn, record)) = of_file(entry) else { return Ok(()) };
        if let FileRecord::Session { session, .. } = &record {
            found.begin(session.run);
        }
        let Some(id) = changes(&record) else { return Ok(()) };
        let run = found.run;
        let Some(known) = found.file(id) else { return Ok(()) };
        // Forgotten, where it goes by what is lost: it was counted as such, and would have been refused.
        let is_whole = lsn < synced || known.recorded.take_up(lsn, &record, true);
        let is_live = lsn >= synced && known.left.is_none_or(|left| lsn > left);
        let Some(path) = known.found.as_ref().filter(|_| is_live && is_whole) else { return Ok(()) };
        let failed = |error| ReplayError::File { path: path.clone(), error };
        if !open_files.contains_key(&(run, id)) {
            if open_files.len() >= OPEN_MAX {
                open_files.pop_first();
            }
            let opened = access.open(path, &known.bind).map_err(std::io::Error::other).map_err(failed)?;
            let opened = opened.ok_or_else(|| failed(std::io::Error::other("it became another file meanwhile")))?;
            open_files.insert((run, id), opened.file);
            touched.push((run, id));
        }
        let file = &open_files[&(run, id)];
        match record {
            FileRecord::Write { offset, bytes, .. } => {
                known.bytes += bytes.len() as u64;
                known.applied(file.write_all_at(bytes, offset), offset, None)
            }
            FileRecord::Delta { offset, base, .. } => {
                let bytes = known.recorded.bytes(base);
                known.bytes += bytes.len() as u64;
                known.applied(file.write_all_at(bytes, offset), offset, None)
            }
            FileRecord::Truncate { len, .. } => known.applied(file.set_len(len), len, Some(len)),
            FileRecord::Zero { offset, len, .. } => known.applied(zero(file, offset, len), offset, None),
            _ => Ok(()),
        }
    })?;
    drop(open_files);
    for known in found.files.values_mut() {
        // The last that its log says, before anybody could say where it ended.
        if let Some((_, error)) = known.refused.take().filter(|_| !forget) {
            return Err(known.failed(error));
        }
    }
    touched.sort_unstable();
    touched.dedup();
    for key in touched {
        let known = &found.files[&key];
        let Some(path) = &known.found else { continue };
        let failed = |error| ReplayError::File { path: path.clone(), error };
        if let Some(opened) = access.open(path, &known.bind).map_err(std::io::Error::other).map_err(failed)? {
            opened.sync().map_err(failed)?;
        }
    }
    Ok(())
}

/// Zeroes a part of a file as far as it goes.
pub(crate) fn zero(file: &File, offset: u64, len: u64) -> std::io::Result<()> {
    let end = (offset + len).min(file.metadata()?.size());
    let zeroes = [0; 16 << 10];
    let mut at = offset;
    while at < end {
        let part = (end - at).min(zeroes.len() as u64);
        file.write_all_at(&zeroes[..part as usize], at)?;
        at += part;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::backing::Room;
    use crate::set::Journal;
    use crate::{Globs, identify};
    use nix::errno::Errno;
    use nix::libc;
    use std::os::fd::AsFd;
    use std::sync::Mutex;
    use tidewater_base::checksum::crc32c;
    use tidewater_client::{LogError, Written};
    use tidewater_wire::log::{FileDelta, FilePatch, FileSession, RecordHeader, RecordKind};

    /// A log in memory, of which everything can be read.
    #[derive(Debug, Default)]
    pub struct Memory {
        bytes: Mutex<Vec<u8>>,
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
            Ok(Room { bytes: 1 << 20, used: 0, lanes: 1, readable: 0 })
        }

        fn seal(&self) -> Result<(), LogError> {
            Ok(())
        }

        fn read(&self, offset: u64, to: &mut [u8]) -> Result<(), LogError> {
            let log = self.bytes.lock().expect("no thread panicked");
            to.copy_from_slice(&log[offset as usize..][..to.len()]);
            Ok(())
        }

        fn trim(&self, _: u64) -> Result<(), LogError> {
            Ok(())
        }
    }

    impl Memory {
        fn say(&self, kind: FileChangeKind, id: u32, offset: u64, rest: &[&[u8]]) {
            let rest = rest.concat();
            let head = FileChange { kind, id, offset, len: rest.len() as u64, ..FileChange::default() };
            self.append(&[&head.to_bytes(), &rest]).expect("memory takes it");
        }

        fn say_run(&self, number: u8) {
            let session = FileSession { run: [number; 16], ..FileSession::default() };
            self.say(FileChangeKind::Session, 0, 0, &[&session.to_bytes()]);
        }

        fn say_bind(&self, id: u32, file: &File, path: &Path) {
            let path = path.as_os_str().as_bytes();
            let mut bind = identify(file.as_fd()).expect("it is a file");
            bind.path_bytes = path.len() as u16;
            self.say(FileChangeKind::Bind, id, 0, &[&bind.to_bytes(), path]);
        }

        pub fn recovered(&self, path: &Path) -> (Report, Vec<u8>) {
            let report = recover(self, 0, &Rules::default()).expect("nothing is missing");
            (report, std::fs::read(path).expect("it is there"))
        }
    }

    pub fn new_file(folder: &Path, name: &str) -> (PathBuf, File) {
        let path = folder.canonicalize().expect("it is there").join(name);
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
        std::fs::remove_file(&old_path).expect("it is there");
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
            log.append(&[&head.to_bytes()]).expect("memory takes it");
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
    fn of_changes_that_the_system_refuses_each_has_to_be_gone_back_on() {
        let refused = |error: Errno| Err(std::io::Error::from(error));
        let mut known = Known::default();
        known.applied(refused(Errno::EFBIG), 8192, None).expect("it may be gone back on");
        // Nothing of this one comes behind where the file is cut.
        known.applied(refused(Errno::ENOSPC), 4096, None).expect("it may be gone back on");
        let error = known.applied(Ok(()), 8192, Some(8192)).expect_err("bytes before that are not there");
        assert!(matches!(error, ReplayError::File { error, .. } if error.raw_os_error() == Some(libc::ENOSPC)));
        known.applied(refused(Errno::ENOSPC), 4096, None).expect("it may be gone back on");
        known.applied(refused(Errno::EFBIG), 8192, None).expect("it may be gone back on");
        known.applied(Ok(()), 4096, Some(4096)).expect("both are");
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
            std::fs::remove_file(&path).expect("it is there");
            if another {
                std::os::unix::fs::symlink("/etc/hostname", &path).expect("a link");
            } else {
                std::fs::create_dir(&path).expect("a folder");
            }
            let report = recover(&log, 0, &Rules::default()).expect("nothing is missing");
            assert_eq!((report.files.len(), &report.files[0].fate), (1, &Fate::Removed));
            if another {
                std::fs::remove_file(&path).expect("it is there");
            }
        }
    }

    #[test]
    fn an_older_name_outside_of_the_set_stops_nothing_unless_the_file_is_there_by_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let rules = |dry| {
            let globs = Globs::new(&["*.log".to_owned()], &folder.path().canonicalize().expect("it is there"));
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
        std::fs::rename(&before, &after).expect("it is there");
        recover(&log, 0, &rules(false)).expect("it is of the set again");
        assert_eq!(std::fs::read(&after).expect("it is there"), b"bytes");
    }

    #[test]
    fn a_delta_goes_by_a_record_that_is_there_or_nothing_is_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, file) = new_file(folder.path(), "file");
        let log = Memory::default();
        let delta = |offset: u64, lsn: u64, patches: &[(u16, &[u8])]| {
            let head = FileChange { kind: FileChangeKind::Delta, id: 1, base: 2, offset, len: 600 };
            let rest = FileDelta { lsn, patches: patches.len() as u16 }.to_bytes();
            let patches = patches.iter().flat_map(|(at, bytes)| {
                [&FilePatch { at: *at, len: bytes.len() as u16 }.to_bytes()[..], bytes].concat()
            });
            let patches: Vec<u8> = patches.collect();
            log.append(&[&head.to_bytes(), &rest, &patches]).expect("memory takes it").lsn
        };
        let write = |base: u8, byte: u8| {
            let head = FileChange { kind: FileChangeKind::Write, id: 1, base, offset: 0, len: 600 };
            log.append(&[&head.to_bytes(), &[byte; 600]]).expect("memory takes it").lsn
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
        assert!(std::fs::read(&path).expect("it is there") == pages.concat());
        assert!(log.end() > recorded, "kept as it was");
        let forgetting = Rules { forget: true, ..Rules::default() };
        let report = recover(&log, 0, &forgetting).expect("it may forget");
        assert_eq!(report.unbound, 1);
        assert!(std::fs::read(&path).expect("it is there") == pages.concat());
    }
}
