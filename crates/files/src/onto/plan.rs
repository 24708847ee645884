//! Plan of the changes that a part of a log makes to a copy of its files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidewater_client::Entry;
use tidewater_wire::log::{FileBind, FileRecord, FileSaid};

use crate::access::Access;
use crate::handle::is_same;
use crate::redo::{Key, Redo, Runs, changes, of_file};
use crate::report::{BINDS_MAX, Fate, FileReport, ReplayError, Report, Rules};

/// A directory of the log's files, and the one that has their copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Onto {
    /// As the log names it: absolute.
    pub from: PathBuf,
    /// The directory that is changed: absolute, without symbolic links.
    pub to: PathBuf,
}

/// Where a log is replayed onto, and how.
#[derive(Clone, Debug, Default)]
pub struct OntoRules {
    /// Directories. A file of the log has to be below one of them.
    pub onto: Vec<Onto>,
    /// The stream offset at which the copy was begun, where its directories have no position yet.
    pub copied_at: Option<u64>,
    /// Which files, and what of them may be lost.
    pub rules: Rules,
}

/// A file as a run's id stands for it.
#[derive(Debug, Default)]
pub(super) struct Known {
    first: FileBind,
    /// Where it was said first.
    first_at: u64,
    /// Its names, and where each was said last, oldest first.
    names: Vec<(u64, PathBuf)>,
    left: Option<u64>,
    gone: bool,
    records: u64,
    /// Range of bytes written before its first name: from the lowest to the highest.
    unnamed: Option<(u64, u64)>,
    /// It was made shorter.
    is_cut: bool,
    pub(super) redo: Redo,
    fate: Option<Fate>,
    /// Where its copy is.
    pub(super) target: Option<PathBuf>,
    /// Where it was before, if it was renamed.
    pub(super) renamed: Option<PathBuf>,
    /// It is made, with so many zeroes.
    pub(super) created: Option<u64>,
}

/// The changes of a log to files.
#[derive(Debug)]
pub(super) struct Plan<'r> {
    rules: &'r OntoRules,
    pub(super) access: &'r Access<'r>,
    /// Changes before this are in the files; `None`: nothing is known of the copy.
    pub(super) applied: Option<u64>,
    /// The log's own files were synced up to here.
    pub(super) synced: u64,
    pub(super) runs: Runs,
    pub(super) files: BTreeMap<Key, Known>,
    /// Who had a name last.
    holders: BTreeMap<PathBuf, (u64, Key)>,
    report: Report,
}

impl<'r> Plan<'r> {
    pub(super) fn new(rules: &'r OntoRules, access: &'r Access<'r>, applied: Option<u64>) -> Plan<'r> {
        let (files, holders) = (BTreeMap::new(), BTreeMap::new());
        let (runs, report) = (Runs::default(), Report::default());
        Plan { rules, access, applied, synced: 0, runs, files, holders, report }
    }

    /// Reading begins anew; `only`: for this file, in which zeroes take no room.
    pub(super) fn rewind(&mut self, only: Option<Key>) {
        self.runs = Runs::default();
        for (_, file) in self.files.iter_mut().filter(|(key, _)| only.is_none_or(|only| only == **key)) {
            file.redo = Redo::new(only.is_some());
        }
    }

    pub(super) fn key(&self, id: u32) -> Key {
        self.runs.key(id)
    }

    /// Whether a change is behind what the files have.
    pub(super) fn is_new(&self, lsn: u64) -> bool {
        self.applied.is_none_or(|applied| lsn >= applied)
    }

    pub(super) fn take_up(&mut self, entry: Entry<'_>) -> Result<(), ReplayError> {
        if let Entry::Skipped { from, to, .. } = entry {
            self.report.skipped += to - from;
        }
        let is_record = matches!(entry, Entry::Record { .. });
        let Some((lsn, record)) = of_file(entry) else {
            self.report.foreign += u64::from(is_record);
            return Ok(());
        };
        self.report.records += 1;
        self.report.new += u64::from(self.is_new(lsn));
        match record {
            FileRecord::Session { session, .. } => {
                if self.runs.all.len() >= BINDS_MAX {
                    return Err(ReplayError::TooMany);
                }
                self.runs.begin(session.run);
            }
            FileRecord::Bind { id, bind, path } => self.bind(lsn, id, bind, path)?,
            FileRecord::Leave { id } => {
                let key = self.key(id);
                if let Some(file) = self.files.get_mut(&key) {
                    file.left = Some(lsn);
                }
            }
            FileRecord::Gone { id } => {
                let key = self.key(id);
                if let Some(file) = self.files.get_mut(&key) {
                    file.gone = true;
                }
            }
            FileRecord::Synced { from } => self.synced = self.synced.max(from.min(lsn)),
            _ => self.count(lsn, &record),
        }
        Ok(())
    }

    fn bind(&mut self, lsn: u64, id: u32, bind: FileBind, path: &[u8]) -> Result<(), ReplayError> {
        if self.files.len() >= BINDS_MAX {
            return Err(ReplayError::TooMany);
        }
        let (key, path) = (self.key(id), PathBuf::from(OsStr::from_bytes(path)));
        let file = self.files.entry(key).or_default();
        // Changes of it were counted before its name came.
        if file.names.is_empty() {
            (file.first, file.first_at) = (bind, lsn);
        }
        if is_same(&file.first, &bind) {
            file.names.retain(|(_, name)| *name != path);
            file.names.push((lsn, path.clone()));
            self.holders.insert(path, (lsn, key));
        }
        Ok(())
    }

    fn count(&mut self, lsn: u64, record: &FileRecord<'_>) {
        let Some(id) = changes(record) else { return };
        let (key, is_new) = (self.key(id), self.is_new(lsn));
        let file = self.files.entry(key).or_default();
        let is_whole = file.redo.take_up(lsn, record, false);
        file.records += u64::from(is_new);
        file.is_cut |= matches!(record, FileRecord::Truncate { .. });
        if let (true, Some((from, to))) = (file.names.is_empty(), written(record)) {
            let before = file.unnamed.unwrap_or((from, to));
            file.unnamed = Some((before.0.min(from), before.1.max(to)));
        }
        self.report.unbound += u64::from(is_new && !is_whole);
    }

    /// Where the copy of a file is.
    fn place(&self, name: &Path) -> Option<PathBuf> {
        self.rules.onto.iter().find_map(|Onto { from, to }| name.strip_prefix(from).ok().map(|rest| to.join(rest)))
    }

    /// Decides on each file.
    pub(super) fn decide(&mut self) {
        let keys: Vec<Key> = self.files.keys().copied().collect();
        // Of the files that are made: later runs find them.
        let mut made: Vec<PathBuf> = Vec::new();
        for key in keys {
            let Some(mut file) = self.files.remove(&key) else { continue };
            file.fate = Some(match file.names.last().cloned() {
                None => {
                    self.report.unbound += file.records;
                    Fate::Left
                }
                Some((_, name)) => self.decide_one(key, &mut file, &name, &mut made),
            });
            self.files.insert(key, file);
        }
    }

    fn decide_one(&self, key: Key, file: &mut Known, name: &Path, made: &mut Vec<PathBuf>) -> Fate {
        let globs = self.rules.rules.globs.as_ref();
        if globs.is_some_and(|globs| !globs.matches(name.as_os_str().as_bytes())) {
            return Fate::Left;
        }
        let Some(target) = self.place(name) else {
            if file.records == 0 {
                return Fate::Left;
            }
            return Fate::Refused("no --onto names a directory that it is in".into());
        };
        let is_last = self.holders.get(name).is_none_or(|(_, holder)| *holder == key);
        if file.gone {
            // Another has the name by now: it is not to be removed.
            file.target = is_last.then_some(target);
            return Fate::Removed;
        }
        file.target = Some(target.clone());
        if let Some(left) = file.left.filter(|_| is_last) {
            return Fate::Refused(format!(
                "it left the log at offset {left}: what was written to it since is not in the log; copy it anew"
            ));
        }
        let entered_new = file.first.said == FileSaid::Entered && self.is_new(file.first_at);
        if entered_new && (file.first.len == 0 || file.first.is_zero) {
            file.created = Some(file.first.len);
            if let (Err(why), _) | (_, Fate::Refused(why)) = (self.access.may_create(&target), self.look(&target)) {
                return Fate::Refused(why);
            }
            made.push(target);
            return Fate::Created;
        }
        if file.records == 0 && self.was_at(file) == Some(name) {
            return Fate::Left;
        }
        if self.applied.is_none() {
            return Fate::Refused(
                "its copy may be older than the log: say with --copied-at where the log was when the copy was begun"
                    .into(),
            );
        }
        let there = |path: &Path| made.iter().any(|one| one == path) || path.symlink_metadata().is_ok();
        // Where it was before, if that is not here any more.
        if let Some((before, old)) =
            self.was_at(file).filter(|old| *old != name).and_then(|old| Some((self.place(old)?, old)))
            && there(&before)
            && (!there(&target) || self.is_taken_from_another(key, name))
            && (!self.is_anothers(key, old) || !there(&target))
        {
            file.renamed = Some(before.clone());
            return self.look(&before);
        }
        if made.contains(&target) {
            return Fate::UpToDate;
        }
        let len = target.metadata().map_or(u64::MAX, |about| about.len());
        if let Some(had) = file.length().filter(|had| len < *had && self.is_new(file.first_at)) {
            return Fate::Refused(format!(
                "it has {len} bytes where the log's file had {had}: the copy is older than the log; copy it anew"
            ));
        }
        match self.look(&target) {
            Fate::Missing if file.first.said == FileSaid::Entered && file.first.len > 0 => Fate::Refused(format!(
                "it came into the set with {} bytes that are not in the log: copy it anew, or name in --log what it \
                 was written as",
                file.first.len
            )),
            fate => fate,
        }
    }

    /// The name that a file had where the copy is.
    fn was_at<'f>(&self, file: &'f Known) -> Option<&'f Path> {
        let applied = self.applied.unwrap_or(0);
        let before = file.names.iter().rev().find(|(lsn, _)| *lsn < applied);
        before.or(file.names.first()).map(|(_, name)| name.as_path())
    }

    /// Whether another file of the log has a name by now.
    fn is_anothers(&self, key: Key, name: &Path) -> bool {
        self.holders.get(name).is_some_and(|(_, holder)| *holder != key)
    }

    /// Whether a name was another file's until this one got it.
    fn is_taken_from_another(&self, key: Key, name: &Path) -> bool {
        self.files.iter().any(|(other, file)| *other != key && file.names.last().is_some_and(|(_, last)| last == name))
    }

    fn look(&self, target: &Path) -> Fate {
        match self.access.open_onto(target, false) {
            Ok(Some(_)) => Fate::UpToDate,
            Ok(None) => Fate::Missing,
            Err(why) => Fate::Refused(why),
        }
    }

    pub(super) fn report(&self, from: u64, to: u64) -> Report {
        let mut report = Report { from, to, ..self.report.clone() };
        let is_shown = |file: &&Known| {
            file.records > 0 || !matches!(file.fate, None | Some(Fate::Left | Fate::Removed | Fate::UpToDate))
        };
        report.files = self
            .files
            .values()
            .filter(is_shown)
            .map(|file| {
                let name = || file.names.last().map(|(_, name)| name.clone());
                let path = file.target.clone().or_else(name).unwrap_or_default();
                FileReport {
                    path,
                    fate: file.fate.clone().unwrap_or(Fate::Left),
                    records: file.records,
                    bytes: file.redo.bytes,
                }
            })
            .collect();
        report.files.sort_by(|one, other| one.path.cmp(&other.path));
        report
    }
}

/// The bytes that a record writes.
fn written(record: &FileRecord<'_>) -> Option<(u64, u64)> {
    match record {
        FileRecord::Write { offset, bytes, .. } => Some((*offset, offset + bytes.len() as u64)),
        FileRecord::Delta { offset, len, .. } => Some((*offset, offset + len)),
        _ => None,
    }
}

impl Known {
    /// Bytes that it had where the log begins; `None`: that is not known.
    fn length(&self) -> Option<u64> {
        if self.first.said != FileSaid::Again || self.is_cut {
            return None;
        }
        match self.unnamed {
            // It ends where the records before its name do: it had what is before them.
            Some((from, to)) if to >= self.first.len => Some(from),
            _ => Some(self.first.len),
        }
    }

    /// Whether its changes are made in the copy.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.fate, Some(Fate::UpToDate | Fate::Created)) && self.target.is_some()
    }

    pub(super) fn is_removed(&self) -> bool {
        self.fate == Some(Fate::Removed)
    }

    pub(super) fn renamed_at(&self) -> u64 {
        self.names.last().map_or(0, |(lsn, _)| *lsn)
    }
}
