//! A plan carried out: names first, then bytes in the log's order, then syncs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use tidewater_client::LogError;
use tidewater_wire::log::{FileBind, FileRecord, FileSaid};

use super::plan::Plan;
use crate::access::{Access, Opened};
use crate::content::Content;
use crate::entries::read_by;
use crate::redo::{Key, changes, of_file, roomily};
use crate::report::{ReplayError, file_error};

/// Files that are open at once.
const OPEN_MAX: usize = 256;

/// A log that can be read.
pub trait Source {
    /// Stream offsets of the oldest byte, and after the newest.
    ///
    /// # Errors
    /// [`LogError`]: foremost `Cut`.
    fn extent(&mut self) -> Result<(u64, u64), LogError>;
    /// Fills a buffer.
    ///
    /// # Errors
    /// [`LogError`].
    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), LogError>;
    /// Users who can have written the log.
    ///
    /// # Errors
    /// [`LogError`].
    fn writers(&mut self) -> Result<Vec<u32>, LogError>;
}

/// Renames and removals, which the log has made already, and new files.
fn names(plan: &Plan<'_>) -> Result<(), ReplayError> {
    let mut renames: Vec<(u64, &Path, &Path)> = plan
        .files
        .values()
        .filter(|file| file.is_live())
        .filter_map(|file| Some((file.renamed_at(), file.renamed.as_deref()?, file.target.as_deref()?)))
        .collect();
    renames.sort_unstable();
    for (_, before, target) in renames {
        plan.access.move_onto(before, Some(target)).map_err(io::Error::other).map_err(file_error(target))?;
    }
    for file in plan.files.values().filter(|file| file.is_removed()) {
        let Some(target) = &file.target else { continue };
        plan.access.move_onto(target, None).map_err(io::Error::other).map_err(file_error(target))?;
    }
    for file in plan.files.values().filter(|file| file.is_live()) {
        let (Some(target), Some(len)) = (&file.target, file.created) else { continue };
        let opened = open(plan.access, target, true)?;
        opened.file.set_len(0).and_then(|()| opened.file.set_len(len)).map_err(file_error(target))?;
    }
    Ok(())
}

fn open(access: &Access<'_>, path: &Path, create: bool) -> Result<Opened, ReplayError> {
    let opened = access.open_onto(path, create).map_err(io::Error::other).map_err(file_error(path))?;
    opened.ok_or_else(|| file_error(path)(io::Error::from(io::ErrorKind::NotFound)))
}

/// Makes the changes of a log between two offsets, and syncs the files. `forget`: what can't be written is left out.
pub(super) fn apply(
    log: &mut impl Source,
    plan: &mut Plan<'_>,
    (from, to): (u64, u64),
    forget: bool,
) -> Result<(), ReplayError> {
    names(plan)?;
    let live: Vec<_> = plan.files.iter().filter(|(_, file)| file.is_live()).map(|(key, _)| *key).collect();
    roomily(&live, |only| bytes(log, plan, (from, to), forget, only))
}

/// As [`apply`], once names are right. `only`: to this file, in which zeroes take no room.
fn bytes(
    log: &mut impl Source,
    plan: &mut Plan<'_>,
    (from, to): (u64, u64),
    forget: bool,
    only: Option<Key>,
) -> Result<(), ReplayError> {
    plan.rewind(only);
    let position = plan.applied.unwrap_or(from);
    let mut files: BTreeMap<PathBuf, Opened> = BTreeMap::new();
    let mut touched: Vec<PathBuf> =
        plan.files.values().filter(|file| file.created.is_some()).filter_map(|file| file.target.clone()).collect();
    read_by(
        |at, bytes| log.read(at, bytes),
        from,
        to,
        |entry| {
            let Some((lsn, record)) = of_file(entry) else { return Ok(()) };
            if let FileRecord::Session { session, .. } = &record {
                plan.runs.begin(session.run);
            }
            let id = match &record {
                FileRecord::Bind { id, .. } => Some(*id),
                record => changes(record),
            };
            let key = id.map(|id| plan.key(id)).filter(|key| only.is_none_or(|only| only == *key));
            let Some(key) = key else { return Ok(()) };
            let (access, is_new) = (plan.access, plan.is_new(lsn));
            let Some(file) = plan.files.get_mut(&key) else { return Ok(()) };
            // Deltas go by bytes that may be older.
            let is_whole = file.redo.take_up(lsn, &record, true);
            let Some(target) = file.target.clone().filter(|_| file.is_live() && is_whole && is_new) else {
                return Ok(());
            };
            if !files.contains_key(&target) {
                if files.len() >= OPEN_MAX {
                    files.pop_first();
                }
                files.insert(target.clone(), open(access, &target, false)?);
                touched.push(target.clone());
            }
            let opened = &files[&target].file;
            match &record {
                // It was compared when all files were replayed, and has been changed since.
                FileRecord::Bind { .. } if only.is_some() => Ok(()),
                FileRecord::Bind { bind, .. } => compare(opened, bind, &target, file.created.is_some(), lsn, position),
                record => file.redo.apply(opened, record).map_err(file_error(&target)),
            }
        },
    )?;
    drop(files);
    for file in plan.files.values_mut() {
        if let Some(error) = file.redo.error(forget) {
            return Err(file_error(file.target.as_deref().unwrap_or(Path::new("")))(error));
        }
    }
    touched.sort_unstable();
    touched.dedup();
    for path in touched {
        if let Some(opened) =
            plan.access.open_onto(&path, false).map_err(io::Error::other).map_err(file_error(&path))?
        {
            opened.sync().map_err(file_error(&path))?;
        }
    }
    Ok(())
}

/// Holds the copy of a file, whose directory is at a position, against what the file was when it came into the set, at
/// an offset.
fn compare(
    copy: &File,
    bind: &FileBind,
    path: &Path,
    is_made: bool,
    entered: u64,
    position: u64,
) -> Result<(), ReplayError> {
    if bind.said != FileSaid::Entered || bind.len == 0 || is_made {
        return Ok(());
    }
    let content = Content::of(copy.as_fd()).map_err(io::Error::from).map_err(file_error(path))?;
    if bind.is_summed && (content.len, content.sum) == (bind.len, bind.sum) {
        return Ok(());
    }
    let why = format!(
        "its copy ({} bytes) differs from the file that came into the log set at offset {entered} ({} bytes), behind \
         the copy's position {position}; the log has what was written since, not what was there before. Copy it anew, \
         at a position of {entered} or more: `tidewater tail --position --at-least {entered}` waits for that",
        content.len, bind.len
    );
    Err(file_error(path)(io::Error::other(why)))
}
