//! A mounted volume between two calls: open files, times, faults, the image.

use crate::control::{Answer, ErrorKind, On, Request};
use crate::image::Image;
use crate::operation::{INO_BITS, Ino, Operation, ROOT};
use crate::tree::Node;
use crate::volume::Volume;
use fuser::{Errno, FileAttr, FileType, INodeNo};
use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime};
use tidewater_base::Rng;

/// Bits of the kernel's number of a file above these count power cuts: a file from before a cut is not the one behind
/// it.
const EPOCH_SHIFT: u32 = INO_BITS;

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

/// An armed error.
#[derive(Clone, Debug)]
struct Armed {
    error: ErrorKind,
    on: On,
    /// 0: until cleared.
    left: u32,
    keep_dirty: bool,
}

#[derive(Debug)]
pub(super) struct Live {
    pub volume: Volume,
    image: Option<Image>,
    pub keep_log: bool,
    pub log_max: u64,
    /// Power cuts so far.
    epoch: u64,
    begun: SystemTime,
    times: HashMap<Ino, Times>,
    /// How often each file is open.
    open: HashMap<Ino, u32>,
    errors: Vec<Armed>,
    stalled: Option<Instant>,
    /// Handles: listings of folders, and answers of the control file.
    pub listings: HashMap<u64, Vec<(Ino, FileType, Vec<u8>)>>,
    pub answers: HashMap<u64, Vec<u8>>,
    next_handle: u64,
}

impl Live {
    pub fn new(volume: Volume, image: Option<Image>, keep_log: bool, log_max: u64) -> Live {
        Live {
            volume,
            image,
            keep_log,
            log_max,
            epoch: 0,
            begun: SystemTime::now(),
            times: HashMap::new(),
            open: HashMap::new(),
            errors: Vec::new(),
            stalled: None,
            listings: HashMap::new(),
            answers: HashMap::new(),
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

    /// Carries out an operation; the image has what becomes durable by it before this returns.
    pub fn record(&mut self, operation: Operation) -> Result<u64, Errno> {
        if self.volume.logged() > self.log_max {
            if self.keep_log {
                return Err(Errno::ENOSPC);
            }
            self.volume.record(Operation::SyncAll);
        }
        let number = self.volume.record(operation);
        let durable = self.volume.take_durable();
        let written = self.image.as_mut().map_or(Ok(()), |image| image.append(&durable));
        if !self.keep_log {
            self.volume.fold();
        }
        written.map(|()| number).map_err(|_| Errno::EIO)
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
            nlink: if node.is_folder() { 1 } else { node.links },
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

    /// How long syncs still wait.
    pub fn stall(&mut self) -> Option<Duration> {
        let left = self.stalled?.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        if left.is_none() {
            self.stalled = None;
        }
        left
    }

    /// The error that a call of this kind ends with, and whether a file stays dirty then.
    pub fn fails(&mut self, on: On) -> Option<(Errno, bool)> {
        let index = self.errors.iter().position(|armed| armed.on == on)?;
        let armed = &mut self.errors[index];
        let error = match armed.error {
            ErrorKind::Eio => Errno::EIO,
            ErrorKind::Enospc => Errno::ENOSPC,
        };
        let keep_dirty = armed.keep_dirty;
        if armed.left == 1 {
            self.errors.remove(index);
        } else if armed.left > 1 {
            armed.left -= 1;
        }
        Some((error, keep_dirty))
    }

    /// Fails where an error is armed for calls of this kind.
    pub fn check(&mut self, on: On) -> Result<(), Errno> {
        self.fails(on).map_or(Ok(()), |(error, _)| Err(error))
    }

    /// Does what a control request asks for.
    pub fn control(&mut self, request: &[u8]) -> Answer {
        let request = match serde_json::from_slice(request) {
            Ok(request) => request,
            Err(error) => return Answer { done: false, text: format!("this request can't be read: {error}") },
        };
        let text = match request {
            Request::PowerCut { lose, tear, seed } => return self.cut_power(lose, tear, seed),
            Request::Stall { ms } => {
                let until = Instant::now().checked_add(Duration::from_millis(ms));
                let Some(until) = until else { return Answer { done: false, text: "the time is too long".into() } };
                self.stalled = Some(until);
                format!("syncs wait for {} s", ms as f64 / 1e3)
            }
            Request::Error { error, on, count, keep_dirty } => {
                let armed = Armed { error, on, left: count, keep_dirty };
                let text = described(&armed);
                self.errors.push(armed);
                text
            }
            Request::List => {
                let stall = self.stall().map(|left| format!("syncs wait for another {:.1} s", left.as_secs_f64()));
                let armed = stall.into_iter().chain(self.errors.iter().map(described)).collect::<Vec<_>>();
                if armed.is_empty() { "no faults are armed".into() } else { armed.join("\n") }
            }
            Request::Clear => {
                self.errors.clear();
                self.stalled = None;
                "all faults cleared".into()
            }
        };
        Answer { done: true, text }
    }

    fn cut_power(&mut self, lose: crate::Lose, tear: crate::Tear, seed: u64) -> Answer {
        if self.keep_log {
            return Answer { done: false, text: "`crash-test` records here, and cuts the power by itself".into() };
        }
        let state = self.volume.state(self.volume.end(), lose, tear, &mut Rng::new(seed, b"fault"));
        let tree = self.volume.build(&state, tear);
        if let Some(Err(error)) = self.image.as_mut().map(|image| image.replace(&tree)) {
            return Answer { done: false, text: format!("the image can't be written: {error}") };
        }
        let lost = state.lost.len();
        self.volume = Volume::of(tree, self.volume.rules());
        self.epoch += 1;
        self.open.clear();
        self.times.clear();
        self.begun = SystemTime::now();
        let operations = tidewater_base::units::plural_exact(lost as u64, "operation");
        Answer {
            done: true,
            text: format!("the power failed and is back: {operations} lost, files that were open fail"),
        }
    }
}

fn described(armed: &Armed) -> String {
    let calls = match armed.on {
        On::Sync => "syncs",
        On::Write => "writes",
        On::Read => "reads",
    };
    let error = match armed.error {
        ErrorKind::Eio => "EIO",
        ErrorKind::Enospc => "ENOSPC",
    };
    match armed.left {
        0 => format!("{calls} fail with {error} until cleared"),
        1 => format!("the next of the {calls} fails with {error}"),
        left => format!("the next {left} {calls} fail with {error}"),
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
