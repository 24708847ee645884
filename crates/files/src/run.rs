//! The supervisor of `tidewater run`: it recovers first, hands the ring over, trims the log behind files that are
//! synced, and drains it when the program has ended.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use tidewater_wire::log::{FileChangeKind, FileSession};
use tidewater_wire::vendor::PAGE_BYTES;

use crate::backing::{AnyLog, Backing, Room};
use crate::deferred::Deferred;
use crate::error::{FilesError, RunError, number_of};
use crate::fcntl_locks::FcntlLocked;
use crate::interlock::{adopt, markers_of};
use crate::loss::Loss;
use crate::marks::Marks;
use crate::replay::recover;
use crate::report::{Report, Rules};
use crate::set::Files;
use crate::table::{Counter, FILES_MAX, Place, Table};
use crate::{Globs, PATIENCE, hand_over};
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};

/// Files are synced and the log is trimmed this often while something is written.
const EVERY: Duration = Duration::from_secs(1);
/// How often a run is looked after ([`Run::tick`]).
pub const TICK: Duration = Duration::from_millis(20);
/// And while nothing is written.
const TICK_IDLE: Duration = Duration::from_millis(200);
/// The device is asked this often how full its log is; before that only when the log has come a good part of the way to
/// where that matters.
const ASK: Duration = Duration::from_millis(200);
/// Files are synced as well once such a part of the ring was filled since the last time, where what it holds is left in
/// it: half of that.
const FILLED_PARTS: u64 = 4;
/// But no more often: else files were synced for nearly each write of a program that fills a small ring.
const FILLED_EVERY: Duration = Duration::from_millis(50);
/// From so many files on, a checkpoint removes unchanged files to make room; and from the second number on, a
/// checkpoint is due for that alone.
const CROWD: usize = FILES_MAX / 2;
const CROWD_DUE: usize = FILES_MAX - FILES_MAX / 8;
/// In rings that are smaller nothing is left: they are full before files are synced.
const LEFT_MIN: u64 = 4 << 20;
/// Configuration of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The device: vfio-user:SOCKET, or several of a group with commas between them. For the files of one process
    /// ([`crate::EmbeddedFiles`]) also a log in a byte window: window:LBA+BLOCKS:TARGET.
    pub target: String,
    /// The lane.
    pub lane: u8,
    /// Level that syncs wait for. `None`: RING where the ring's memory survives a loss of power, DESTAGED elsewhere.
    pub level: Option<Level>,
    /// The log set.
    pub globs: Globs,
    /// Only files of these users come back from an earlier run ([`Rules::owners`]).
    pub owners: Vec<u32>,
    /// Go on where recovery misses a file.
    pub forget: bool,
    /// The files are this log's from now on, whatever markers say of other logs.
    pub adopt: bool,
}

fn file_error(path: &Path) -> impl Fn(FilesError) -> RunError {
    move |error| RunError::File { path: path.to_owned(), error }
}

/// Result of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Checkpoint {
    /// Files that were synced.
    pub files: usize,
    /// The log before this offset was trimmed.
    pub trimmed: u64,
}

/// Totals of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ended {
    /// Files that came into the set.
    pub entered: u64,
    /// Files that left it: what happened to them could not be recorded.
    pub left: u64,
    /// Records.
    pub records: u64,
    /// Bytes that were written to files of the set.
    pub written: u64,
    /// Bytes that the log has grown by.
    pub logged: u64,
    /// Syncs that were a wait for the log.
    pub waits: u64,
    /// Syncs, renames, removals outside of the set that waited for the log.
    pub ordered: u64,
    /// Changes of processes that died amid them, and that were recorded anew.
    pub taken_over: u64,
    /// Checkpoints.
    pub checkpoints: u64,
}

/// The supervisor's side of a run.
#[derive(Debug)]
pub struct Run<J = Log> {
    files: Files<J>,
    table: OwnedFd,
    listener: UnixListener,
    name: String,
    globs: Globs,
    target: String,
    lane: u8,
    adopts: bool,
    deferred: Deferred,
    locks: FcntlLocked,
    /// Files are held against what their records say: no layer defers writes to them.
    looks: bool,
    /// Messages for the user.
    notes: Mutex<Vec<String>>,
    /// Where the log ended when the run began.
    begin: u64,
    /// Fate of the device, once all files have left the log.
    lost: OnceLock<String>,
    /// Folders that files of a layer were in.
    folders: Mutex<BTreeSet<PathBuf>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Where the log was when files were synced last.
    checked: u64,
    at: Instant,
    /// When the run was looked after last.
    looked: Instant,
    /// When the device was asked last.
    asked: Instant,
    /// The log's end at which it is asked again.
    ask_at: u64,
    checkpoints: u64,
    trimmed: u64,
    /// How many syncs outside of the set had waited for the log when that was looked at last, and since when it has
    /// been as many.
    ordered: (u64, Instant),
    /// The markers of folders.
    marks: Marks,
    /// Up to where the log is durable for certain.
    seen: u64,
    /// That a trim was of no use.
    is_noted: bool,
    /// That markers can't be brought up to date.
    is_stale: bool,
    /// How many markers processes had written when their folders were looked for last.
    marked: u64,
}

/// Why files are synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Syncs {
    /// Their records are trimmed: the log says again which files they are.
    Checkpoint,
    /// The program has ended.
    Last,
    /// They leave the log, which takes no records any more.
    Leaves,
}

/// All waits are as long as that of a sync: a device that stands still for a while (a snapshot, a machine that moves)
/// ends no run.
fn options_of(setup: &Setup) -> Options {
    let owners = setup.owners.clone().leak();
    Options { lane: setup.lane, full: PATIENCE, timeout: PATIENCE, owners, ..Options::default() }
}

fn ring(setup: &Setup) -> Result<Log, LogError> {
    Log::open(&setup.target, options_of(setup))
}

impl Run {
    /// Opens the log, recovers what an earlier run has left, and makes what the program's processes share.
    ///
    /// # Errors
    /// [`RunError`]: nothing is begun.
    pub fn start(setup: &Setup) -> Result<(Run, Report), RunError> {
        let (mut run, report) = Run::over(setup, ring(setup)?)?;
        run.looks = true;
        Ok((run, report))
    }

    /// Answers the program's processes, one after another, until the listener fails. For a thread of its own.
    pub fn hand_over(&self) {
        for stream in self.listener.incoming() {
            match stream {
                // An error is ignored: the process may not have the ring, or has ended meanwhile.
                Ok(stream) => drop(hand_over::answer(&stream, self.files.journal(), &self.table)),
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                    std::thread::sleep(Duration::from_millis(10))
                }
                Err(_) => {}
            }
        }
    }
}

impl Run<AnyLog> {
    /// As [`Run::start`], for the files of this process alone: they can be on a log in a byte window as well.
    pub(crate) fn start_own(setup: &Setup) -> Result<(Run<AnyLog>, Report), RunError> {
        #[cfg(feature = "hardware")]
        if setup.target.starts_with("window:") {
            return Run::over(setup, Box::new(tidewater_client::hardware::WindowLog::open(&setup.target)?));
        }
        Run::over(setup, Box::new(ring(setup)?))
    }
}

impl<J: Backing> Run<J> {
    pub(crate) fn over(setup: &Setup, log: J) -> Result<(Run<J>, Report), RunError> {
        if let Some(level) = setup.level {
            log.offers(level)?;
        }
        let (globs, owners) = (Some(setup.globs.clone()), setup.owners.clone());
        let rules = Rules { globs, owners, forget: setup.forget, adopt: setup.adopt, dry: false };
        let report = recover(&log, setup.lane, &rules).map_err(RunError::Replay)?;
        let drive = log.identity().0;
        let foreign = markers_of(&setup.globs).into_iter().map(|one| one.on(drive, setup.lane)).collect::<Vec<_>>();
        if !foreign.is_empty() && !setup.adopt {
            return Err(RunError::Foreign(foreign));
        }
        adopt(&foreign).map_err(|error| RunError::System { what: "remove the marker of another log", error })?;
        // What a log waits for by itself tells whether its ring survives a loss of power.
        let outside = log.level();
        let level = setup.level.unwrap_or(outside);
        let mut run = [0; 16];
        let random = |error| RunError::System { what: "draw a number for the run", error };
        File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut run)).map_err(random)?;
        let (table, file) = Table::new(run, level, outside, log.chunk())?;
        let name = run.iter().fold("tidewater-run-".to_owned(), |name, byte| name + &format!("{byte:02x}"));
        let listener = hand_over::listen(&name);
        let listener = listener.map_err(|error| RunError::System { what: "listen for the program", error })?;
        let files = Files::new(table, log);
        let begin = files.journal().end();
        let now = Instant::now();
        let state = State {
            checked: begin,
            at: now,
            looked: now,
            asked: now,
            ask_at: begin,
            checkpoints: 0,
            trimmed: begin,
            ordered: (0, now.checked_sub(EVERY).unwrap_or(now)),
            marks: Marks::default(),
            seen: begin,
            is_noted: false,
            is_stale: false,
            marked: 0,
        };
        let globs = setup.globs.clone();
        let (lane, deferred, locks, state) =
            (setup.lane, Deferred::default(), FcntlLocked::default(), Mutex::new(state));
        let lost = OnceLock::new();
        let (notes, adopts, target) = (Mutex::default(), setup.adopt, setup.target.clone());
        let run = Run {
            files,
            table: file,
            listener,
            name,
            globs,
            target,
            lane,
            adopts,
            deferred,
            locks,
            looks: false,
            notes,
            begin,
            lost,
            folders: Mutex::default(),
            state,
        };
        run.say_session()?;
        run.make_marker()?;
        run.admit(&run.room()?);
        Ok((run, report))
    }

    fn say_session(&self) -> Result<(), RunError> {
        let table = self.files.table();
        let patterns: Vec<u8> =
            self.globs.patterns().iter().flat_map(|one| one.bytes().chain(std::iter::once(0))).collect();
        let destaged = table.level() == Level::Destaged;
        let session = FileSession { run: table.run(), destaged, pattern_bytes: patterns.len() as u32 };
        self.files.record(FileChangeKind::Session, 0, &[&session.to_bytes(), &patterns])?;
        Ok(())
    }

    /// Environment variables of the program, beside the preload.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        [(hand_over::SOCKET_VARIABLE, self.name.clone()), (hand_over::FILES_VARIABLE, self.globs.to_text())]
    }

    /// The files, and where their changes go.
    pub(crate) fn files(&self) -> &Files<J> {
        &self.files
    }

    /// Writes that layers defer.
    pub(crate) fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    /// The files that this process may have locks of.
    pub(crate) fn fcntl_locked(&self) -> &FcntlLocked {
        &self.locks
    }

    /// Does the deferred writes to a file. Its lock is held, unless it has left the set.
    ///
    /// # Errors
    /// `EIO`: a layer could not. The log alone has that, and is to keep it: for good.
    pub(crate) fn flush(&self, place: Place) -> Result<(), FilesError> {
        if self.deferred.flush(place) {
            return Ok(());
        }
        self.files.table().fail(Errno::EIO as u64);
        Err(FilesError::System(Errno::EIO))
    }

    /// Level that syncs wait for.
    pub fn level(&self) -> Level {
        self.files.table().level()
    }

    /// Failures that this level survives, in words.
    pub fn survives(&self) -> &'static str {
        self.files.journal().survives(self.level())
    }

    fn room(&self) -> Result<Room, LogError> {
        self.files.journal().room(self.lane)
    }

    /// Looks after the run; to be called each [`TICK`].
    ///
    /// # Errors
    /// The device has gone, or a file can't be synced: from now on the program's syncs fail. A device that has gone is
    /// none where the files leave the log then ([`Run::leave_when_lost`]).
    pub fn tick(&self) -> Result<Option<Checkpoint>, RunError> {
        let done = self.or_leave(self.try_tick());
        if let Err(error) = &done
            && !matches!(error, RunError::Held)
        {
            let number = match error {
                RunError::Log(error) => number_of(error),
                _ => libc::EIO as u64,
            };
            self.files.table().fail(number);
        }
        done
    }

    fn try_tick(&self) -> Result<Option<Checkpoint>, RunError> {
        let (log, table) = (self.files.journal(), self.files.table());
        self.files.check()?;
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match table.loss() {
            Loss::Left => return Ok(None),
            Loss::Leaves => {
                // A process has found it.
                log.is_there()?;
                return Err(LogError::NoReply { waited: PATIENCE }.into());
            }
            Loss::Fails | Loss::MayLeave => {}
        }
        let end = log.end();
        // Beyond the limit, writers wait for a trim, and so for this checkpoint.
        let is_short = end > table.limit();
        let is_new = end > state.checked;
        if state.looked.elapsed() < (if is_new { TICK } else { TICK_IDLE }) && !is_short {
            return Ok(None);
        }
        state.looked = Instant::now();
        log.is_there()?;
        log.seal()?;
        let mut files = 0;
        for place in table.entries() {
            files += 1;
            if table.is_orphaned(place)
                && let Some((file, _)) = self.open(place)
            {
                drop(self.files.lock(place, file.as_fd(), false)?);
            }
        }
        let fills_ring = self.leave(&mut state)
            && end - state.trimmed >= log.ring_bytes() / FILLED_PARTS
            && state.at.elapsed() >= FILLED_EVERY;
        let is_crowded = files >= CROWD_DUE;
        if !is_short && !fills_ring && end < state.ask_at && state.asked.elapsed() < ASK {
            return Ok(None);
        }
        state.asked = state.looked;
        let room = self.room()?;
        self.was_overwritten(&room, &state)?;
        self.admit(&room);
        state.ask_at = end + (room.bytes / 4).saturating_sub(room.used).min(table.limit().saturating_sub(end)) / 4;
        let is_full = room.used.saturating_mul(4) >= room.bytes;
        // Without anything new it is another lane that fills the pages, and what this one has may be in their way.
        let is_due = state.at.elapsed() >= EVERY && (is_new || is_full || is_crowded);
        if !is_due && !(is_new && (is_full || is_short || fills_ring)) {
            return Ok(None);
        }
        let done = self.checkpoint(&mut state, false)?;
        self.admit(&self.room()?);
        if log.end() > table.limit() && !state.is_noted {
            state.is_noted = true;
            return Err(RunError::Held);
        }
        Ok(Some(done))
    }

    /// Lets the device leave in the ring what it holds: files are synced before that is much, and nothing of it is
    /// needed then. `false`: it does not, since the ring is too small, or since programs sync files outside of the set
    /// and wait until the device has taken all of the log before.
    fn leave(&self, state: &mut State) -> bool {
        let log = self.files.journal();
        let ordered = self.files.table().counted(Counter::Ordered);
        if ordered != state.ordered.0 {
            state.ordered = (ordered, state.looked);
        }
        // Where the ring survives a loss of power they wait for nothing but the ring, and where it has a copy they
        // write that.
        let waits = self.files.table().outside() != Level::Ring && !log.has_copy() && state.ordered.1.elapsed() < EVERY;
        let leaves = log.ring_bytes() >= LEFT_MIN && !waits;
        log.leave(if leaves { log.ring_bytes() } else { 0 });
        leaves
    }

    /// Says how far programs may go: half of what is free, as lanes share it, is for what is under way and for the next
    /// checkpoint.
    fn admit(&self, room: &Room) {
        let free = (room.bytes / 2).saturating_sub(room.used);
        let share = free / u64::from(room.lanes.max(1));
        // Whole pages: a file may be written past the page cache (O_DIRECT).
        let piece = (room.bytes / 64).clamp(4 << 10, 1 << 20) & !0xfff;
        // Nothing is free: the limit is behind the log's end.
        let end = self.files.journal().end();
        let limit = if share == 0 { end.saturating_sub(1) } else { end + share };
        self.files.table().set_limit(limit, piece);
    }

    /// A device that overwrites its log instead of waiting for a trim would lose what was promised.
    fn was_overwritten(&self, room: &Room, state: &State) -> Result<(), RunError> {
        // A trim takes whole pages.
        if room.readable > state.trimmed + PAGE_BYTES as u64 {
            let why =
                "the device overwrote it before it was trimmed: its profile needs fast.on_wrap = \"wait-for-trim\"";
            return Err(LogError::Ring(why.into()).into());
        }
        Ok(())
    }

    /// Syncs all files, and trims what is before. `last`: the program has ended, and nothing is needed any more.
    fn checkpoint(&self, state: &mut State, last: bool) -> Result<Checkpoint, RunError> {
        let (log, table) = (self.files.journal(), self.files.table());
        table.stop_deltas()?;
        let (from, places) = {
            // No id is given up meanwhile: each that has a record behind `from` is named again below.
            let _all = table.lock_all()?;
            let places = self.named();
            let from = log.end();
            // Files that come from now on have nothing before it.
            table.has_come(log.identity().1, self.seen(state), from);
            (from, places)
        };
        table.allow_deltas(from);
        if !last {
            self.say_session()?;
        }
        let files = self.sync_files(state, places, if last { Syncs::Last } else { Syncs::Checkpoint })?;
        let done = Checkpoint { files, trimmed: from };
        // Names that were not recorded are no reason to trim.
        self.is_recorded()?;
        let until = if last { log.end() } else { from };
        if let Some(error) = self.advance_marks(state, until)? {
            if last {
                return Err(RunError::System { what: "empty the log", error });
            }
            // The next checkpoint says it, and trims; until then the log keeps what it has.
            self.note_stale(state, &error);
            return Ok(done);
        }
        state.is_stale = false;
        if last {
            log.leave(0);
        } else {
            // The names above are behind it: what can be read from there on tells all by itself, be the mark there or
            // not.
            log.skip(from)?;
        }
        let synced = self.files.record(FileChangeKind::Synced, until, &[])?;
        self.is_recorded()?;
        log.wait(synced.end, Level::Destaged)?;
        state.seen = synced.end;
        // With the mark itself, in the end: a page that is kept would be in the way of other lanes. Where it still can
        // be read, so can the mark.
        let until = if last { synced.end } else { until };
        log.trim(until)?;
        // Behind it: where the device is lost here, a replica has no word of the end, and is replayed by the marker.
        self.leave_folders(state, last)?;
        (state.checked, state.trimmed, state.at) = (log.end(), until, Instant::now());
        state.checkpoints += 1;
        Ok(done)
    }

    fn notes(&self) -> MutexGuard<'_, Vec<String>> {
        self.notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the messages since the last call.
    pub fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes())
    }

    /// The log set.
    pub fn globs(&self) -> &Globs {
        &self.globs
    }

    /// Whether a file is on the log, or was made real; by its device and inode.
    pub fn knows(&self, device: u64, inode: u64) -> bool {
        self.files.table().find(device, inode).is_some()
    }

    /// The program and all that it started have ended: every byte goes to its file, and the log is emptied.
    ///
    /// # Errors
    /// As [`Run::tick`]; the log keeps what it has, for `tidewater recover`.
    pub fn finish(&self) -> Result<Ended, RunError> {
        self.files.check()?;
        if self.left_because().is_none() {
            self.or_leave(self.empty())?;
        }
        Ok(self.so_far())
    }

    fn empty(&self) -> Result<Option<Checkpoint>, RunError> {
        self.is_recorded()?;
        self.files.journal().seal()?;
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.checkpoint(&mut state, true).map(Some)
    }

    /// Totals so far.
    pub fn so_far(&self) -> Ended {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.done(state.checkpoints)
    }

    fn done(&self, checkpoints: u64) -> Ended {
        let counted = |counter| self.files.table().counted(counter);
        Ended {
            entered: counted(Counter::Entered),
            left: counted(Counter::Left),
            records: counted(Counter::Records),
            written: counted(Counter::Written),
            logged: self.files.journal().end() - self.begin,
            waits: counted(Counter::Waits),
            ordered: counted(Counter::Ordered),
            taken_over: counted(Counter::TakenOver),
            checkpoints,
        }
    }
}

mod loss;
mod markers;
mod sync;
#[cfg(test)]
mod tests;
