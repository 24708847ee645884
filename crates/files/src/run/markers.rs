//! The markers of a run: what they say, and when they go (ADR 38).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use tidewater_wire::log::FileBind;

use super::{Run, State};
use crate::backing::Backing;
use crate::error::RunError;
use crate::interlock::folders_of;
use crate::marker::{Marker, is_marked, remove, split};
use crate::marks::{Advanced, names_of};
use crate::table::{Counter, GONE, REAL};

/// How often markers are brought up to date while folders are renamed, before the log goes on without trimming.
const ADVANCES_MAX: usize = 10;
/// How long a rename that is under way is waited for each time.
const MOVES: Duration = Duration::from_millis(1);
/// Instead of a target that no marker has room for.
const TOO_LONG: &str = "a device whose name is too long";

impl<J: Backing> Run<J> {
    /// A checkpoint, as the second of a run brings it.
    #[cfg(test)]
    pub(crate) fn checkpoint_now(&self) {
        let mut state = self.state.lock().expect("no thread panicked");
        self.checkpoint(&mut state, false).expect("the checkpoint succeeds");
    }

    /// The end of a checkpoint.
    #[cfg(test)]
    pub(crate) fn leave_unused(&self) {
        let mut state = self.state.lock().expect("no thread panicked");
        self.leave_folders(&mut state, false).expect("the markers can be removed");
    }

    /// Makes the marker for folders of files that come onto the log. A log that has not got this run is not the one
    /// that has their last bytes: so the run is on it first, durably.
    pub(super) fn make_marker(&self) -> Result<(), RunError> {
        let (log, table) = (self.files.journal(), self.files.table());
        let end = log.end();
        log.wait(end, table.outside())?;
        let ((drive, epoch), run, lane) = (log.identity(), table.run(), self.lane);
        let (names, target) = (names_of(&self.globs), absolute(&self.target));
        let seen = if table.level().is_remote() { 0 } else { end };
        let folder = FileBind::default();
        let marker = Marker { run, drive, lane, epoch, seen, synced: self.begin, names, target, folder };
        // A target too long to be named is left out.
        let made =
            table.set_marker(&marker).or_else(|_| table.set_marker(&Marker { target: TOO_LONG.into(), ..marker }));
        made.map_err(|errno| RunError::System { what: "make the marker of the run", error: errno.into() })
    }

    /// Whether files are this log's whatever markers say.
    pub(crate) fn adopts(&self) -> bool {
        self.adopts
    }

    /// Up to where a log that goes on with this one has to have come. Replicas may be behind what only this machine's
    /// flash was waited for.
    pub(super) fn seen(&self, state: &State) -> u64 {
        if self.files.table().level().is_remote() { 0 } else { state.seen }
    }

    /// The files have the log up to here, durably: their folders' markers say so before the log does. `Some`: not all
    /// do, and why, since folders are being renamed, or a disk is full. Then the log must not say so yet: it would say
    /// more than a marker, as where the folder was restored from a backup.
    pub(super) fn advance_marks(&self, state: &mut State, synced: u64) -> Result<Option<io::Error>, RunError> {
        let table = self.files.table();
        let Some(marker) = table.marker() else { return Ok(None) };
        let marker = Marker { synced, ..marker };
        let folders = || table.lock_all().map(|_all| self.folders());
        // Files came to folders, and may have left them since.
        let marked = table.counted(Counter::Marked);
        if state.marked != marked {
            let all = folders_of(self.globs.patterns().iter().map(String::as_str));
            state.marks.know_all(&all.into_iter().filter(|folder| is_marked(folder, &marker.run)).collect());
            state.marked = marked;
        }
        for _ in 0..ADVANCES_MAX {
            // Where a file or its folder is amid a rename, its marker may be at either path.
            if table.entries().any(|place| self.is_moving(place)) {
                std::thread::sleep(MOVES);
                continue;
            }
            let before = folders()?;
            state.marks.know_all(&before);
            let Advanced { notes, missed, stale } = state.marks.advance(&marker, || table.lock_all())?;
            self.notes().extend(notes);
            if let Some((folder, error)) = stale {
                let why = format!("{}: its marker can't be brought up to date ({error})", folder.display());
                return Ok(Some(io::Error::new(error.kind(), why)));
            }
            let is_as_before = folders()?.is_subset(&before) && before.is_disjoint(&missed);
            if is_as_before && !table.entries().any(|place| self.is_moving(place)) {
                return Ok(None);
            }
        }
        Ok(Some(io::Error::other("folders with files of the log are renamed again and again")))
    }

    /// Says once that a marker can't be brought up to date, and what follows.
    pub(super) fn note_stale(&self, state: &mut State, error: &io::Error) {
        if !std::mem::replace(&mut state.is_stale, true) {
            self.notes().push(format!("{error}: until it can, the log is not trimmed, and fills"));
        }
    }

    /// Takes up the folder of a file of a layer, or one that a layer gives another name.
    pub(crate) fn comes_to(&self, path: &[u8]) {
        if let Some((folder, _)) = split(path) {
            self.folders.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned());
        }
    }

    /// A layer gives a folder another name: so do those below it.
    pub(crate) fn folder_moves(&self, from: &Path, to: &Path) {
        let mut all = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = |folder: &PathBuf| folder.strip_prefix(from).ok().map(|below| to.join(below));
        let moved: Vec<PathBuf> = all.iter().filter_map(moved).collect();
        all.extend(moved);
    }

    /// Folders that have files whose last bytes are on the log.
    fn folders(&self) -> BTreeSet<PathBuf> {
        let table = self.files.table();
        let folder = |place| split(table.path(place).as_bytes()).map(|(folder, _)| folder.to_owned());
        table.entries().filter(|&place| table.flags(place) & (GONE | REAL) == 0).filter_map(folder).collect()
    }

    /// Removes markers of folders without files of the set; `last`: of all.
    pub(super) fn leave_folders(&self, state: &mut State, last: bool) -> Result<(), RunError> {
        let table = self.files.table();
        let Some(marker) = table.marker() else { return Ok(()) };
        // None comes meanwhile.
        let _all = table.lock_all()?;
        // A file that is being renamed may be at either name.
        if !last && table.entries().any(|place| self.is_moving(place)) {
            return Ok(());
        }
        let mut used = if last { BTreeSet::new() } else { self.folders() };
        // A removal may fail yet.
        let going = table.entries().filter(|&place| !last && table.flags(place) & GONE != 0);
        let going = going.filter_map(|place| self.open(place).map(|(_, path)| path));
        used.extend(going.filter_map(|path| path.parent().map(Path::to_owned)));
        {
            let mut own = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            state.marks.know_all(&own);
            own.retain(|folder| used.contains(folder));
        }
        let failed = |error| RunError::System { what: "remove a marker", error };
        state.marks.leave(&marker, &used).map_err(failed)?;
        if last {
            // Those of files that came and left between two checkpoints, too.
            let folders = folders_of(self.globs.patterns().iter().map(String::as_str));
            folders.iter().try_for_each(|folder| remove(folder, &marker.run)).map_err(failed)?;
        }
        Ok(())
    }
}

/// The device as `--device` takes it, from wherever it is named.
fn absolute(target: &str) -> String {
    const SCHEME: &str = "vfio-user:";
    let Some(rest) = target.strip_prefix(SCHEME) else { return one_line(target) };
    let whole = |path: &str| std::path::absolute(path).map_or_else(|_| path.to_owned(), |at| at.display().to_string());
    let all: Vec<String> = rest.split(&format!(",{SCHEME}")).map(whole).collect();
    one_line(&format!("{SCHEME}{}", all.join(&format!(",{SCHEME}"))))
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, "?")
}
