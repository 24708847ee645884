//! A mounted volume between two calls: open files, times, faults, the image.

use super::writer::{Job, Writer};
use crate::control::{Answer, Request};
use crate::operation::{INO_BITS, Ino, Operation, ROOT};
use crate::state::{Lose, Tear};
use crate::tree::Node;
use crate::volume::Volume;
use fuser::{Errno, FileAttr, FileType, INodeNo};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tidewater_base::Rng;
use tidewater_base::faults::{At, Faults, Kind, On};

/// Bits of the kernel's number of a file above these count power cuts: a file from before a cut is not the one behind
/// it.
const EPOCH_SHIFT: u32 = INO_BITS;

/// Bytes of an acknowledged id without an end of its line, at most.
const ID_MAX: usize = 4096;
/// Bytes of a page, by which a write is misdirected.
const PAGE: u64 = 4096;
/// Places that are drawn for a write, until one is clear of its own.
const PLACES: u32 = 16;

/// Times of a file. They are no part of the model: a power cut keeps none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub accessed: SystemTime,
    pub modified: SystemTime,
    pub changed: SystemTime,
}

impl Times {
    /// All of them this one.
    pub fn all(time: SystemTime) -> Times {
        Times { accessed: time, modified: time, changed: time }
    }
}

#[derive(Debug)]
pub(super) struct Live {
    pub volume: Volume,
    pub writer: Option<Arc<Writer>>,
    /// Lines of what is durable and was not given to the writer.
    unsent: Vec<u8>,
    pub keep_log: bool,
    pub log_max: u64,
    /// Power cuts so far.
    epoch: u64,
    begun: SystemTime,
    times: HashMap<Ino, Times>,
    /// How often each file is open.
    open: HashMap<Ino, u32>,
    faults: Faults,
    /// When the mount began, for its faults.
    started: Instant,
    /// The changes that the armed power cut loses, where it tears, and its seed.
    cut: (Lose, Tear, u64),
    /// Bytes that the kernel has of a file may be others than those that are there: it asks when the file is opened.
    pub is_doubtful: bool,
    /// How often faults were cleared: what waits since before then goes on.
    pub cleared: u64,
    /// Handles: listings of folders, and answers of the control file.
    pub listings: HashMap<u64, Vec<(Ino, FileType, Vec<u8>)>>,
    pub answers: HashMap<u64, Vec<u8>>,
    /// The line of each that has no end yet, of acknowledged ids.
    pub begun_ids: HashMap<u64, Vec<u8>>,
    next_handle: u64,
}

impl Live {
    pub fn new(volume: Volume, writer: Option<Arc<Writer>>, keep_log: bool, log_max: u64) -> Live {
        Live {
            volume,
            writer,
            unsent: Vec::new(),
            keep_log,
            log_max,
            epoch: 0,
            begun: SystemTime::now(),
            times: HashMap::new(),
            open: HashMap::new(),
            faults: Faults::default(),
            started: Instant::now(),
            cut: (Lose::Unsynced, Tear::Page, 1),
            is_doubtful: false,
            cleared: 0,
            listings: HashMap::new(),
            answers: HashMap::new(),
            begun_ids: HashMap::new(),
            next_handle: 0,
        }
    }

    /// The volume's number of a file that the kernel names; an error where it is from before a power cut.
    pub fn inner(&self, ino: INodeNo) -> Result<Ino, Errno> {
        match (ino.0, ino.0 >> EPOCH_SHIFT) {
            (ROOT, _) => Ok(ROOT),
            (ino, epoch) if epoch == self.epoch => Ok(ino & ((1 << EPOCH_SHIFT) - 1)),
            _ => Err(Errno::EIO),
        }
    }

    /// The kernel's number of a file.
    pub fn outer(&self, ino: Ino) -> INodeNo {
        INodeNo(if ino == ROOT { ROOT } else { ino | self.epoch << EPOCH_SHIFT })
    }

    pub fn node(&self, ino: Ino) -> Result<&Node, Errno> {
        self.volume.seen().node(ino).ok_or(Errno::ENOENT)
    }

    /// A number for a handle: those of before a power cut are not used again.
    pub fn new_handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// Carries out an operation. What becomes durable by it goes to the image with the next [`Live::commit`].
    pub fn record(&mut self, operation: Operation) -> Result<u64, Errno> {
        if self.volume.logged() > self.log_max {
            if self.keep_log {
                return Err(Errno::ENOSPC);
            }
            self.volume.record(Operation::SyncAll);
        }
        let is_change = operation.is_change();
        let number = self.volume.record(operation);
        if is_change {
            self.cut_at(On::Write)?;
        }
        let lines = self.take_lines();
        self.unsent.extend(lines);
        if !self.keep_log {
            self.volume.fold();
        }
        Ok(number)
    }

    /// Lines of what has become durable, and of what was not given to the writer.
    pub fn take_lines(&mut self) -> Vec<u8> {
        let mut lines = std::mem::take(&mut self.unsent);
        let durable = self.volume.take_durable();
        if self.writer.is_some() {
            // A `Vec` takes all, and numbers and names are JSON.
            lines.extend(crate::image::lines(&durable).unwrap_or_default());
        }
        lines
    }

    /// They go with the next commit.
    pub fn give_back(&mut self, lines: Vec<u8>) {
        self.unsent.splice(0..0, lines);
    }

    /// Answers a call once the image has all that is durable.
    pub fn commit(&mut self, done: impl FnOnce(Result<(), Errno>) + Send + 'static) {
        let lines = std::mem::take(&mut self.unsent);
        match &self.writer {
            Some(writer) => writer.add(Job { lines, done: Box::new(done) }),
            None => done(Ok(())),
        }
    }

    /// Takes ids that a program acknowledges, a line each. A line may come in several writes.
    pub fn acknowledge(&mut self, handle: u64, data: &[u8]) -> Result<(), Errno> {
        let mut text = self.begun_ids.remove(&handle).unwrap_or_default();
        text.extend_from_slice(data);
        let end = match text.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None if text.len() > ID_MAX => text.len(),
            None => 0,
        };
        self.begun_ids.insert(handle, text.split_off(end));
        let text = String::from_utf8_lossy(&text);
        let mut ids = text.lines().map(str::trim).filter(|id| !id.is_empty());
        ids.try_for_each(|id| self.record(Operation::Acknowledge { id: id.into() }).map(drop))
    }

    pub fn touch(&mut self, ino: Ino, set: impl FnOnce(&mut Times, SystemTime)) {
        let times = self.times.entry(ino).or_insert(Times::all(self.begun));
        set(times, SystemTime::now());
    }

    /// Bytes or entries of a file have changed.
    pub fn modified(&mut self, ino: Ino) {
        self.touch(ino, |times, now| (times.modified, times.changed) = (now, now));
    }

    pub fn attributes(&self, ino: Ino) -> Result<FileAttr, Errno> {
        let node = self.node(ino)?;
        let size = node.bytes().map_or(4096, crate::Content::size);
        let times = self.times.get(&ino).copied().unwrap_or(Times::all(self.begun));
        Ok(FileAttr {
            ino: self.outer(ino),
            size,
            blocks: node.bytes().map_or(8, crate::Content::allocated).div_ceil(512),
            atime: times.accessed,
            mtime: times.modified,
            ctime: times.changed,
            crtime: self.begun,
            kind: kind(node.mode),
            perm: (node.mode & 0o7777) as u16,
            // As btrfs says of folders: names below are not counted.
            nlink: if node.is_folder() { node.links.min(1) } else { node.links },
            uid: node.uid,
            gid: node.gid,
            rdev: node.rdev,
            blksize: 4096,
            flags: 0,
        })
    }

    pub fn opened(&mut self, ino: Ino) {
        *self.open.entry(ino).or_default() += 1;
    }

    pub fn closed(&mut self, ino: Ino) {
        if let Some(count) = self.open.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&ino);
                self.forget(ino);
            }
        }
    }

    /// Forgets a file that has neither a name nor a program that has it open.
    pub fn forget(&mut self, ino: Ino) {
        if !self.open.contains_key(&ino) {
            self.volume.forget(ino);
            if self.volume.seen().node(ino).is_none() {
                self.times.remove(&ino);
            }
        }
    }

    fn now(&self) -> tidewater_base::Instant {
        tidewater_base::Instant::from_ns(self.started.elapsed().as_nanos() as u64)
    }

    /// Time that a call of this kind waits.
    pub fn delay(&mut self, on: On) -> Duration {
        let now = self.now();
        Duration::from_nanos(self.faults.delay(on, now).as_ns())
    }

    /// The error that a call of this kind ends with, and whether a file stays dirty then.
    pub fn fails(&mut self, on: On) -> Option<(Errno, bool)> {
        let fault = self.faults.error(on)?;
        Some((if fault.kind == Kind::Enospc { Errno::ENOSPC } else { Errno::EIO }, fault.keep_dirty))
    }

    /// Fails where an error is armed for calls of this kind.
    pub fn check(&mut self, on: On) -> Result<(), Errno> {
        self.fails(on).map_or(Ok(()), |(error, _)| Err(error))
    }

    /// Bytes that were read, as a program gets them.
    pub fn as_read(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if !bytes.is_empty()
            && let Some(rng) = self.faults.strikes(Kind::BitFlip, On::Read)
        {
            let bit = rng.below(8 * bytes.len() as u64);
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
        }
        bytes
    }

    /// Where a write lands, and what it writes: for one that is lost or misdirected what was there before, and, of the
    /// latter, its bytes at another place of the file.
    pub fn as_written(&mut self, ino: Ino, offset: u64, data: Vec<u8>) -> Vec<(u64, Vec<u8>)> {
        let Some(content) = self.volume.seen().node(ino).and_then(Node::bytes) else { return vec![(offset, data)] };
        let old = |offset: u64, length: usize| {
            let mut old = content.read(offset, length);
            old.resize(length, 0);
            old
        };
        if self.faults.strikes(Kind::LostWrite, On::Write).is_some() {
            return vec![(offset, old(offset, data.len()))];
        }
        let Some(rng) = self.faults.strikes(Kind::MisdirectedWrite, On::Write) else { return vec![(offset, data)] };
        let kept = (offset, old(offset, data.len()));
        // Whole pages away, so that it lies as it would have lain there.
        let (within, pages) = (offset % PAGE, content.size().div_ceil(PAGE));
        let places = (0..PLACES).map(|_| PAGE * rng.below(pages.max(1)) + within);
        let is_free = |place: &u64| place.abs_diff(offset) >= data.len() as u64 && *place < content.size();
        let Some(place) = places.into_iter().find(is_free) else { return vec![kept] };
        let length = data.len().min((content.size() - place) as usize);
        vec![kept, (place, data[..length].to_vec())]
    }

    /// Cuts the power if it is to be cut at this call, which fails then.
    pub fn cut_at(&mut self, on: On) -> Result<(), Errno> {
        if self.faults.cuts(on) { self.cut_now() } else { Ok(()) }
    }

    fn cut_now(&mut self) -> Result<(), Errno> {
        let (lose, tear, seed) = self.cut;
        if !self.cut_power(lose, tear, seed).done {
            // An image that can't be written stays as it was.
            self.faults.cut();
        }
        Err(Errno::EIO)
    }

    /// Time until the armed power cut by the clock; it comes if that is over.
    pub fn cut_in(&mut self) -> Option<Duration> {
        let at = self.faults.cut_at()?;
        let left = at.since(self.now());
        if left.is_zero() {
            let _ = self.cut_now();
            return None;
        }
        Some(Duration::from_nanos(left.as_ns()))
    }

    /// Faults that have struck, in words.
    pub fn struck(&self) -> Option<String> {
        self.faults.tally()
    }

    /// Does what a control request asks for.
    pub fn control(&mut self, request: &[u8]) -> Answer {
        self.answer(request).unwrap_or_else(|text| Answer { text, ..Answer::default() })
    }

    fn answer(&mut self, request: &[u8]) -> Result<Answer, String> {
        let request =
            serde_json::from_slice(request).map_err(|error| format!("this request can't be read: {error}"))?;
        let now = self.now();
        let done = |text: String| Ok(Answer { done: true, text, faults: Vec::new() });
        match request {
            Request::PowerCut { .. } if self.keep_log => {
                Err("`crash-test` records here, and cuts the power by itself".into())
            }
            Request::PowerCut { lose, tear, seed, at: None } => Ok(self.cut_power(lose, tear, seed)),
            Request::PowerCut { at: Some(At::Nth(On::Event, _)), .. } => {
                Err("events are those of a served drive: a mount counts writes and syncs".into())
            }
            Request::PowerCut { lose, tear, seed, at: Some(at) } => {
                self.faults.arm(at.fault(), now)?;
                self.cut = (lose, tear, seed);
                done(format!("the power is cut at {at}, counted from now"))
            }
            Request::Fault { fault } if fault.kind == Kind::PowerCut => {
                Err("a power cut is a request of its own".into())
            }
            Request::Fault { mut fault } => {
                // Reads and writes are those of memory: a sync is what waits for a drive.
                if matches!(fault.kind, Kind::Stall | Kind::Slow) {
                    fault.on = fault.on.or(Some(On::Sync));
                }
                self.faults.arm(fault, now)?;
                self.is_doubtful |= matches!(fault.kind, Kind::LostWrite | Kind::MisdirectedWrite | Kind::BitFlip);
                done(format!("armed: {fault}"))
            }
            Request::List => Ok(Answer { done: true, text: String::new(), faults: self.faults.list(now) }),
            Request::Clear => {
                self.faults.clear();
                self.cleared += 1;
                done("all faults cleared".into())
            }
        }
    }

    fn cut_power(&mut self, lose: Lose, tear: Tear, seed: u64) -> Answer {
        let state = self.volume.state(self.volume.end(), lose, tear, &mut Rng::new(seed, b"fault"));
        let tree = self.volume.build(&state, tear);
        if let Some(Err(error)) = self.writer.as_ref().map(|writer| writer.replace(&tree)) {
            let text = format!("the image can't be written: {error}");
            return Answer { text, ..Answer::default() };
        }
        self.faults.cut();
        // Calls that a fault keeps waiting end now: they are about files of before.
        self.cleared += 1;
        let lost = state.lost.len();
        self.unsent.clear();
        self.volume = Volume::of(tree, self.volume.rules());
        self.epoch += 1;
        self.open.clear();
        self.times.clear();
        self.begun = SystemTime::now();
        let operations = tidewater_base::units::plural_exact(lost as u64, "operation");
        Answer {
            done: true,
            text: format!("the power failed and is back: {operations} lost, files that were open fail"),
            faults: Vec::new(),
        }
    }
}

pub(super) fn kind(mode: u32) -> FileType {
    match mode & 0o170_000 {
        0o040_000 => FileType::Directory,
        0o120_000 => FileType::Symlink,
        0o010_000 => FileType::NamedPipe,
        0o020_000 => FileType::CharDevice,
        0o060_000 => FileType::BlockDevice,
        0o140_000 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}
