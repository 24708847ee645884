//! From the log back to the files. What a log says is taken for what a stranger may have written: nothing is followed,
//! nothing is touched whose identity or owner is another, and what could not be done is said.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidewater_wire::log::{FileBind, FileChange, FileChangeKind, FileRecord};

use crate::Backing;
use crate::access::{Access, Refused};
use crate::entries::read;
use crate::handle::is_same;
use crate::interlock::{Extent, Found as Markers, folders_of};
use crate::redo::{Key, Redo, Runs, changes, of_file, roomily};
use crate::report::{BINDS_MAX, Fate, FileReport, ReplayError, Report, Rules};
use tidewater_client::{Entry, Level};

/// Names of one file that are tried.
const NAMES_MAX: usize = 64;
/// Files that are open at once.
const OPEN_MAX: usize = 256;
/// Patterns of sets that are looked at for markers.
const PATTERNS_MAX: usize = 4096;

/// A file that the log is about.
#[derive(Debug, Default)]
struct Known {
    bind: FileBind,
    /// Oldest first.
    names: Vec<PathBuf>,
    /// Records before this are of no use.
    left: Option<u64>,
    gone: bool,
    /// Its folder had a marker when it was named last.
    marked: bool,
    /// Records that are to be applied.
    live: u64,
    records: u64,
    fate: Option<Fate>,
    /// Where it was found.
    found: Option<PathBuf>,
    /// Where it was found and must not be changed.
    found_refused: Option<PathBuf>,
    redo: Redo,
}

impl Known {
    fn failed(&self, error: std::io::Error) -> ReplayError {
        ReplayError::File { path: self.found.clone().unwrap_or_default(), error }
    }
}

/// Everything the first passes find.
#[derive(Debug, Default)]
struct Found {
    runs: Runs,
    /// Patterns of the runs' sets.
    patterns: BTreeSet<String>,
    files: BTreeMap<Key, Known>,
    synced: u64,
    /// A run's syncs returned once their bytes were in the ring.
    waits_for_ring: bool,
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
    let mut found = Found::default();
    read(log, from, to, |entry| {
        if let Some((lsn, FileRecord::Synced { from })) = of_file(entry) {
            found.synced = found.synced.max(from.min(lsn));
        }
        Ok(())
    })?;
    read(log, from, to, |entry| first_pass(&mut found, &mut report, entry))?;
    let runs = std::mem::take(&mut found.runs).all;
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
    let extent = Extent { runs, end: to, synced: found.synced, epoch: log.identity().1 };
    let markers = Markers::look(&extent, &found.folders());
    if !rules.adopt {
        found.ask(&extent.runs, &markers);
    }
    // Records whose file is named by no record: the begin of the log was overwritten.
    let strange = if rules.adopt { Vec::new() } else { found.strange(&markers) };
    // All that its run wrote may have been in the ring, so that no change of a file is left.
    report.ring_lost = found.waits_for_ring && log.has_lost_its_ring();
    let bad = !strange.is_empty()
        || report.unbound > 0
        || found.files.values().any(|file| file.fate.as_ref().is_some_and(Fate::is_bad));
    let failed = |error| ReplayError::Marker { error };
    // What is newer than this log stays where its own is not taken for it.
    let markers = if rules.adopt { markers } else { markers.without_newer() };
    if !rules.dry && (!bad || rules.forget) {
        let live = |(key, file): (&Key, &Known)| (file.live > 0 && file.found.is_some()).then_some(*key);
        let all: Vec<Key> = found.files.iter().filter_map(live).collect();
        roomily(&all, |only| apply(log, &mut found, &access, (from, to), rules.forget, only))?;
        if report.new > 0 {
            // In the order in which a checkpoint does it.
            markers.advance(to).map_err(failed)?;
            let head = FileChange { kind: FileChangeKind::Synced, offset: to, ..FileChange::default() };
            let end = log.append(&[&head.to_bytes()])?.end;
            log.wait(end, Level::Destaged)?;
            markers.remove().map_err(failed)?;
            // With the mark itself: a page that is kept would be in the way of other lanes. Where it still can be read,
            // so can the mark.
            log.trim(end)?;
        } else {
            markers.remove().map_err(failed)?;
        }
    }
    report.files = found.files.into_values().filter(|file| file.records > 0).map(report_of).collect();
    report.files.extend(strange);
    report.files.sort_by(|one, other| one.path.cmp(&other.path));
    if bad && !rules.forget && !rules.dry {
        return Err(ReplayError::Refused(Box::new(report)));
    }
    Ok(report)
}

fn report_of(file: Known) -> FileReport {
    let path = file.found.or(file.found_refused).or_else(|| file.names.last().cloned()).unwrap_or_default();
    FileReport { path, fate: file.fate.unwrap_or(Fate::Left), records: file.records, bytes: file.redo.bytes }
}

impl Found {
    fn file(&mut self, id: u32) -> Option<&mut Known> {
        self.files.get_mut(&self.runs.key(id))
    }

    /// Folders that may have markers of the log's runs.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let mut folders = folders_of(self.patterns.iter().map(String::as_str));
        let names = self.files.values().flat_map(|file| &file.names);
        folders.extend(names.filter_map(|name| name.parent()).map(Path::to_owned));
        folders
    }

    /// Refuses files that markers do not name this log for.
    fn ask(&mut self, runs: &[[u8; 16]], markers: &Markers) {
        for ((run, _), file) in &mut self.files {
            let (Some(run), Some(path)) = (runs.get(*run as usize), &file.found) else { continue };
            if let Some(why) = markers.refuses(run, path, file.marked) {
                file.fate = Some(Fate::Refused(why));
                file.found_refused = file.found.take();
            }
        }
    }

    /// Markers that do not go with the log, of folders in which no file was refused for it.
    fn strange(&self, markers: &Markers) -> Vec<FileReport> {
        let is_said = |path: &Path| {
            let refused = self.files.values().filter_map(|file| file.found_refused.as_deref());
            refused.filter_map(Path::parent).any(|folder| path.parent() == Some(folder))
        };
        let report = |(path, why): (PathBuf, &str)| FileReport {
            path,
            fate: Fate::Refused(why.to_owned()),
            records: 0,
            bytes: 0,
        };
        markers.bad().filter(|(path, _)| !is_said(path)).map(report).collect()
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
        FileRecord::Session { session, patterns } => {
            if found.runs.all.len() >= BINDS_MAX {
                return Err(ReplayError::TooMany);
            }
            if !found.runs.all.contains(&session.run) && found.patterns.len() < PATTERNS_MAX {
                let all = patterns.split(|byte| *byte == 0).filter_map(|one| std::str::from_utf8(one).ok());
                found.patterns.extend(all.map(str::to_owned));
            }
            found.waits_for_ring |= !session.destaged;
            found.runs.begin(session.run);
        }
        FileRecord::Bind { id, bind, path } => {
            if found.files.len() >= BINDS_MAX {
                return Err(ReplayError::TooMany);
            }
            let file = found.files.entry(found.runs.key(id)).or_default();
            let path = PathBuf::from(OsStr::from_bytes(path));
            if file.names.is_empty() {
                file.bind = bind;
            }
            // An id is one file's: a record that says otherwise is forged or ours by mistake, and its path leads
            // nowhere.
            if is_same(&file.bind, &bind) {
                file.marked = bind.is_marked;
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

fn count(found: &mut Found, report: &mut Report, lsn: u64, record: &FileRecord<'_>) {
    if let FileRecord::Session { session, .. } = record {
        found.runs.begin(session.run);
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
            if !file.redo.take_up(lsn, record, false) {
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

/// Applies what is live, in order, and syncs. `only`: to this file, in which zeroes take no room, since there is too
/// little of it. Else they do: a program may have taken it for what it writes next.
fn apply(
    log: &impl Backing,
    found: &mut Found,
    access: &Access<'_>,
    (from, to): (u64, u64),
    forget: bool,
    only: Option<Key>,
) -> Result<(), ReplayError> {
    let synced = found.synced;
    let mut open_files: BTreeMap<Key, File> = BTreeMap::new();
    let mut touched: Vec<Key> = Vec::new();
    found.runs = Runs::default();
    for (_, file) in found.files.iter_mut().filter(|(key, _)| only.is_none_or(|only| only == **key)) {
        file.redo = Redo::new(only.is_some());
    }
    read(log, from, to, |entry| {
        let Some((lsn, record)) = of_file(entry) else { return Ok(()) };
        if let FileRecord::Session { session, .. } = &record {
            found.runs.begin(session.run);
        }
        let Some(id) = changes(&record) else { return Ok(()) };
        let key = found.runs.key(id);
        if only.is_some_and(|only| only != key) {
            return Ok(());
        }
        let Some(known) = found.file(id) else { return Ok(()) };
        // Forgotten, where it goes by what is lost: it was counted as such, and would have been refused.
        let is_whole = lsn < synced || known.redo.take_up(lsn, &record, true);
        let is_live = lsn >= synced && known.left.is_none_or(|left| lsn > left);
        let Some(path) = known.found.as_ref().filter(|_| is_live && is_whole) else { return Ok(()) };
        let failed = |error| ReplayError::File { path: path.clone(), error };
        if !open_files.contains_key(&key) {
            if open_files.len() >= OPEN_MAX {
                open_files.pop_first();
            }
            let opened = access.open(path, &known.bind).map_err(std::io::Error::other).map_err(failed)?;
            let opened = opened.ok_or_else(|| failed(std::io::Error::other("it became another file meanwhile")))?;
            open_files.insert(key, opened.file);
            touched.push(key);
        }
        known.redo.apply(&open_files[&key], &record).map_err(failed)
    })?;
    drop(open_files);
    for known in found.files.values_mut() {
        if let Some(error) = known.redo.error(forget) {
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

#[cfg(test)]
pub(crate) mod tests;
