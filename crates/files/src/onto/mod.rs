//! A log replayed onto a copy of its files: in other directories, on another machine, whose files have other inodes.
//!
//! Instead of the identity of files, what is known of the copy counts. A directory has a [`Position`]: what matters of
//! the log before it is in the files. It comes from the replay before, or is that of the log when the copy was begun. A
//! file that came into the set empty needs no copy. What is not whole is refused by name before anything is changed.

mod apply;
mod plan;

use tidewater_base::checksum::crc32c;
use tidewater_client::mapped::{Log, Reader};
use tidewater_client::{Entry, Level, LogError};
use tidewater_wire::log::{FileChange, FileChangeKind, FileRecord, FileSaid, RecordHeader};

use crate::access::Access;
use crate::backing::{Backing, Journal};
use crate::entries::read_by;
use crate::interlock::forget_copies;
use crate::position::{POSITION_FILE, Position};
use crate::redo::of_file;
use crate::report::{ReplayError, Report, file_error};
pub use apply::Source;
use plan::Plan;
pub use plan::{Onto, OntoRules};

/// Bytes before a position that are summed, at most.
const SUMMED: u64 = 64 << 10;

impl Source for Reader {
    fn extent(&mut self) -> Result<(u64, u64), LogError> {
        Reader::extent(self).map(|extent| (extent.oldest, extent.end))
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), LogError> {
        Reader::read(self, offset, to)
    }

    fn writers(&mut self) -> Result<Vec<u32>, LogError> {
        self.user().map(|user| vec![user])
    }
}

impl Source for &Log {
    fn extent(&mut self) -> Result<(u64, u64), LogError> {
        let (oldest, end) = (Backing::room(*self, self.lane())?.readable, Backing::tail(*self));
        Ok((oldest.min(end), end))
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), LogError> {
        Backing::read(*self, offset, to)
    }

    fn writers(&mut self) -> Result<Vec<u32>, LogError> {
        Backing::writers(*self)
    }
}

/// Result of a replay onto a copy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Replayed {
    /// As of any replay; paths are those of the copy.
    pub report: Report,
    /// Up to where the files have the log now. Nothing before `from` is needed any more.
    pub position: Option<Position>,
}

/// Position of a copy that is begun now, from a log that is read while it arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyPosition {
    /// The log's files were synced up to here, so that a copy which is begun now has all that the log has before it.
    pub position: u64,
    /// The log arrived up to here.
    pub end: u64,
    /// A file came into the set last at this offset, with bytes that are not in the log; 0: none.
    pub entered: u64,
}

impl CopyPosition {
    /// Whether a copy can be taken for this position, if the primary's log had come to an offset when it was asked for:
    /// a file that came into the set between the two, and has changed since, is in the copy as it is now, and in the
    /// log as it was then.
    pub fn is_settled(&self, at_least: u64) -> bool {
        self.end >= at_least && self.entered < self.position.max(1)
    }
}

/// The offset that a copy which is begun now can be taken for, and what else the log says of it.
///
/// # Errors
/// The log's.
pub fn copy_position(log: &mut impl Source) -> Result<CopyPosition, ReplayError> {
    let (oldest, end) = log.extent()?;
    let mut found = CopyPosition { position: oldest, end, entered: 0 };
    read_by(
        |at, bytes| log.read(at, bytes),
        oldest,
        end,
        |entry| {
            match of_file(entry) {
                Some((lsn, FileRecord::Synced { from })) => found.position = found.position.max(from.min(lsn)),
                Some((lsn, FileRecord::Bind { bind, .. })) if bind.said == FileSaid::Entered && bind.len > 0 => {
                    found.entered = lsn;
                }
                _ => {}
            }
            Ok(())
        },
    )?;
    Ok(found)
}

/// The position that all directories have.
fn position_of(rules: &OntoRules) -> Result<Option<Position>, ReplayError> {
    let mut lowest: Option<Position> = None;
    for Onto { to, .. } in &rules.onto {
        let file = to.join(POSITION_FILE);
        let own = Position::load(to).map_err(file_error(&file))?;
        let Some(own) = own.or(rules.copied_at.map(Position::of_copy)) else { return Ok(None) };
        // One that is behind is brought up to the others.
        lowest = Some(lowest.map_or(own, |lowest| if own.applied < lowest.applied { own } else { lowest }));
    }
    Ok(lowest)
}

/// That this log goes on where the files are.
fn check(
    log: &mut impl Source,
    rules: &OntoRules,
    position: &Position,
    oldest: u64,
    end: u64,
) -> Result<(), ReplayError> {
    let Position { from, applied, summed, sum } = *position;
    if from < oldest {
        let folder = rules.onto.first().map(|onto| onto.to.clone()).unwrap_or_default();
        return Err(ReplayError::Older { folder, has: from, oldest });
    }
    if applied > end {
        return Err(LogError::Cut { at: end, read: applied }.into());
    }
    let begin = (applied - summed).max(oldest);
    if summed > 0 && begin == applied - summed {
        let mut bytes = vec![0; summed as usize];
        log.read(begin, &mut bytes)?;
        if crc32c(&bytes) != sum {
            return Err(LogError::Cut { at: begin, read: applied }.into());
        }
    }
    Ok(())
}

/// Replays what a log has behind the position of its files onto them, and syncs them. Doing it twice does no harm.
///
/// # Errors
/// [`ReplayError`]. Nothing is touched when a file is missing or refused, or the copy is older than the log. `File`: of
/// one that is found to differ later, what came before is in the files, and the position is as it was.
pub fn replay_onto(log: &mut impl Source, rules: &OntoRules) -> Result<Replayed, ReplayError> {
    let writers = log.writers()?;
    let (oldest, end) = log.extent()?;
    let position = position_of(rules)?;
    if let Some(position) = &position {
        check(log, rules, position, oldest, end)?;
    }
    let from = position.map_or(oldest, |position| position.from);
    let access = Access::new(&rules.rules, &writers);
    let mut plan = Plan::new(rules, &access, position.map(|position| position.applied));
    let mut last = from;
    read_by(
        |at, bytes| log.read(at, bytes),
        from,
        end,
        |entry| {
            last = match entry {
                Entry::Record { lsn, payload, .. } => lsn + RecordHeader::span(payload.len() as u64),
                Entry::Void { lsn, bytes } => lsn + bytes,
                Entry::Skipped { .. } => last,
            };
            plan.take_up(entry)
        },
    )?;
    let to = last.max(position.map_or(from, |position| position.applied)).min(end);
    plan.decide();
    let mut report = plan.report(from, to);
    report.others = access.others().to_vec();
    let is_bad = report.unbound > 0 || report.files.iter().any(|file| file.fate.is_bad());
    if rules.rules.dry || is_bad && !rules.rules.forget {
        return match rules.rules.dry {
            true => Ok(Replayed { report, position }),
            false => Err(ReplayError::Refused(Box::new(report))),
        };
    }
    if to > position.map_or(0, |position| position.applied) || position.is_none() {
        apply::apply(log, &mut plan, (from, to), rules.rules.forget)?;
        report.files = plan.report(from, to).files;
    }
    let summed = SUMMED.min(to - from.min(to));
    let mut bytes = vec![0; summed as usize];
    log.read(to - summed, &mut bytes)?;
    let position = Position { from: plan.synced.clamp(from, to), applied: to, summed, sum: crc32c(&bytes) };
    for Onto { to, .. } in &rules.onto {
        position.store(to).map_err(file_error(to))?;
    }
    Ok(Replayed { report, position: Some(position) })
}

/// As [`replay_onto`], of a log that ends there: the device is primary, and its log is emptied. The directories are
/// where the files are from now on.
///
/// # Errors
/// As there.
pub fn recover_onto(log: &Log, rules: &OntoRules) -> Result<Report, ReplayError> {
    let mut source = log;
    let Replayed { report, .. } = replay_onto(&mut source, rules)?;
    if rules.rules.dry {
        return Ok(report);
    }
    let head = FileChange { kind: FileChangeKind::Synced, offset: log.tail(), ..FileChange::default() };
    let end = Journal::append(log, &[&head.to_bytes()])?.end;
    Journal::wait(log, end, Level::Destaged)?;
    Backing::trim(log, end)?;
    for Onto { to, .. } in &rules.onto {
        forget_copies(to)?;
        Position::remove(to).map_err(file_error(to))?;
    }
    Ok(report)
}
