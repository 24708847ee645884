//! Calls of the kernel.

use super::live::{Live, Times, kind};
use super::{ACKNOWLEDGE, CONTROL, Shared};
use crate::operation::{Entry, Ino, Operation, ROOT};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tidewater_base::faults::On;

/// How long the kernel keeps a name: not at all, since a power cut changes what it stands for.
const NAME_TIME: Duration = Duration::ZERO;
/// How long it keeps attributes, which only its own calls change.
const ATTRIBUTE_TIME: Duration = Duration::from_secs(1);
/// Numbers of the two files in no listing.
const ACKNOWLEDGE_INO: u64 = u64::MAX - 1;
const CONTROL_INO: u64 = u64::MAX - 2;
/// Bytes that `statfs` names; the memory of this machine is the limit.
const SIZE: u64 = 1 << 40;
/// `O_DSYNC`, which `O_SYNC` includes.
const O_DSYNC: i32 = 0o10_000;
/// `FALLOC_FL_` of `fallocate`.
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;
/// The bit by which what is made in a folder gets its group.
const SET_GID: u32 = 0o2_000;

/// The file system that the kernel talks to.
#[derive(Debug)]
pub(super) struct Files(pub Arc<Shared>);

type Outcome<T> = Result<T, Errno>;

impl Live {
    /// A name that is to be made: it must be free, and one that a folder can have.
    fn free(&mut self, parent: INodeNo, name: &OsStr) -> Outcome<Entry> {
        self.check(On::Write)?;
        let at = self.entry(parent, name)?;
        if self.volume.seen().find(&at).is_some() { Err(Errno::EEXIST) } else { Ok(at) }
    }

    fn entry(&self, parent: INodeNo, name: &OsStr) -> Outcome<Entry> {
        let folder = self.inner(parent)?;
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        match self.node(folder)?.is_folder() {
            true => Ok(Entry::new(folder, name.as_bytes())),
            false => Err(Errno::ENOTDIR),
        }
    }

    fn make(
        &mut self,
        who: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        rdev: u32,
        target: &[u8],
    ) -> Outcome<Ino> {
        let at = self.free(parent, name)?;
        let folder = self.node(at.folder)?;
        let inherits = folder.mode & SET_GID != 0;
        let gid = if inherits { folder.gid } else { who.gid() };
        let mode = if inherits && kind(mode) == FileType::Directory { mode | SET_GID } else { mode };
        let (ino, parent) = (self.volume.new_ino(), at.folder);
        self.record(Operation::Create { at, ino, mode, uid: who.uid(), gid, rdev, target: target.to_vec() })?;
        self.modified(parent);
        self.touch(ino, |times, now| *times = Times::all(now));
        Ok(ino)
    }

    fn remove(&mut self, parent: INodeNo, name: &OsStr, folder: bool) -> Outcome<()> {
        self.check(On::Write)?;
        let at = self.entry(parent, name)?;
        let ino = self.volume.seen().find(&at).ok_or(Errno::ENOENT)?;
        let node = self.node(ino)?;
        match (folder, node.is_folder()) {
            (true, false) => return Err(Errno::ENOTDIR),
            (false, true) => return Err(Errno::EISDIR),
            _ if node.entries().next().is_some() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let parent = at.folder;
        self.record(Operation::Remove { at })?;
        self.modified(parent);
        self.touch(ino, |times, now| times.changed = now);
        self.forget(ino);
        Ok(())
    }

    fn rename(&mut self, from: Entry, to: Entry, flags: RenameFlags) -> Outcome<()> {
        self.check(On::Write)?;
        let moved = self.volume.seen().find(&from).ok_or(Errno::ENOENT)?;
        let other = self.volume.seen().find(&to);
        let exchange = flags.contains(RenameFlags::RENAME_EXCHANGE);
        if flags.intersects(!(RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_NOREPLACE)) {
            return Err(Errno::EINVAL);
        }
        match other {
            None if exchange => return Err(Errno::ENOENT),
            Some(_) if flags.contains(RenameFlags::RENAME_NOREPLACE) => return Err(Errno::EEXIST),
            Some(other) if !exchange => {
                let (one, two) = (self.node(moved)?, self.node(other)?);
                match (one.is_folder(), two.is_folder()) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    _ if two.entries().next().is_some() => return Err(Errno::ENOTEMPTY),
                    _ => {}
                }
            }
            _ => {}
        }
        let folders = [from.folder, to.folder];
        self.record(Operation::Rename { from, to, exchange })?;
        folders.into_iter().for_each(|folder| self.modified(folder));
        other.into_iter().chain([moved]).for_each(|ino| self.touch(ino, |times, now| times.changed = now));
        if let Some(other) = other {
            self.forget(other);
        }
        Ok(())
    }

    fn write(&mut self, ino: Ino, offset: u64, data: Vec<u8>, through: bool) -> Outcome<u32> {
        let length = data.len() as u32;
        self.check(On::Write)?;
        if !self.node(ino)?.is_file() {
            return Err(Errno::EBADF);
        }
        if through {
            self.cut_at(On::Sync)?;
            self.check(On::Sync)?;
        }
        for (offset, data) in self.as_written(ino, offset, data) {
            let write = self.record(Operation::Write { ino, offset, data })?;
            if through {
                self.record(Operation::WrittenThrough { write })?;
            }
        }
        self.modified(ino);
        Ok(length)
    }

    fn sync(&mut self, ino: Ino, data_only: bool) -> Outcome<()> {
        self.cut_at(On::Sync)?;
        if let Some((error, keep_dirty)) = self.fails(On::Sync) {
            if !keep_dirty {
                self.record(Operation::SyncFailed { ino })?;
            }
            return Err(error);
        }
        self.record(Operation::Sync { ino, data_only }).map(drop)
    }

    fn allocate(&mut self, ino: Ino, offset: u64, length: u64, mode: i32) -> Outcome<()> {
        self.check(On::Write)?;
        let size = self.node(ino)?.bytes().ok_or(Errno::EISDIR)?.size();
        let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EFBIG)?;
        if mode & !(KEEP_SIZE | PUNCH_HOLE | ZERO_RANGE) != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 && offset < size {
            self.record(Operation::Zero { ino, offset, length })?;
        }
        if mode & KEEP_SIZE == 0 && end > size {
            self.record(Operation::Resize { ino, size: end })?;
        }
        self.modified(ino);
        Ok(())
    }

    /// Attributes of one of the files in no listing.
    fn special(&self, ino: u64) -> Outcome<FileAttr> {
        let root = self.attributes(ROOT)?;
        let perm = if ino == CONTROL_INO { 0o600 } else { 0o622 };
        let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        Ok(FileAttr { ino: INodeNo(ino), size: 0, blocks: 0, kind: FileType::RegularFile, perm, uid, gid, ..root })
    }
}

/// The number of a file in no listing.
fn special(parent: INodeNo, name: &OsStr) -> Option<u64> {
    match name.to_str().filter(|_| parent.0 == ROOT)? {
        ACKNOWLEDGE => Some(ACKNOWLEDGE_INO),
        CONTROL => Some(CONTROL_INO),
        _ => None,
    }
}

fn is_special(ino: INodeNo) -> bool {
    [ACKNOWLEDGE_INO, CONTROL_INO].contains(&ino.0)
}

fn entry(reply: ReplyEntry, made: Outcome<FileAttr>) {
    match made {
        Ok(found) => reply.entry_with_ttls(&ATTRIBUTE_TIME, &NAME_TIME, &found, Generation(0)),
        Err(error) => reply.error(error),
    }
}

fn empty(reply: ReplyEmpty, done: Outcome<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl Files {
    /// Carries out a call of this kind: now, or, if it is to be late, on a thread of its own.
    fn in_time(&self, on: On, job: impl FnOnce(&mut Live) + Send + 'static) {
        let mut live = self.0.lock();
        let delay = live.delay(on);
        if delay.is_zero() {
            return job(&mut live);
        }
        let (shared, cleared, until) = (Arc::clone(&self.0), live.cleared, Instant::now() + delay);
        std::thread::spawn(move || job(&mut shared.wait(until, |live| live.cleared != cleared)));
    }

    /// Does what a control request asks for. A power cut by the clock comes on a thread of its own.
    fn control(&self, handle: FileHandle, request: &[u8]) -> Outcome<()> {
        let mut live = self.0.lock();
        let answer = live.control(request);
        let cut_in = live.cut_in();
        self.0.moved.notify_all();
        if cut_in.is_some() {
            let shared = Arc::clone(&self.0);
            std::thread::spawn(move || {
                let mut live = shared.lock();
                while let Some(left) = live.cut_in() {
                    let cleared = live.cleared;
                    drop(live);
                    live = shared.wait(Instant::now() + left, |live| live.cleared != cleared);
                }
            });
        }
        let answer = serde_json::to_vec(&answer).map_err(|_| Errno::EIO)?;
        live.answers.insert(handle.0, answer);
        Ok(())
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let live = self.0.lock();
        let found = match special(parent, name) {
            Some(ino) => live.special(ino),
            None => live
                .entry(parent, name)
                .and_then(|at| live.attributes(live.volume.seen().find(&at).ok_or(Errno::ENOENT)?)),
        };
        entry(reply, found);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let live = self.0.lock();
        let found =
            if is_special(ino) { live.special(ino.0) } else { live.inner(ino).and_then(|it| live.attributes(it)) };
        match found {
            Ok(found) => reply.attr(&ATTRIBUTE_TIME, &found),
            Err(error) => reply.error(error),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut live = self.0.lock();
        if is_special(ino) {
            return match live.special(ino.0) {
                Ok(found) => reply.attr(&ATTRIBUTE_TIME, &found),
                Err(error) => reply.error(error),
            };
        }
        let mut set = || {
            let ino = live.inner(ino)?;
            live.node(ino)?;
            if let Some(size) = size {
                live.check(On::Write)?;
                if size > i64::MAX as u64 {
                    return Err(Errno::EFBIG);
                }
                // `O_TRUNC` of an empty file changes nothing.
                if live.node(ino)?.bytes().is_some_and(|content| content.size() != size) {
                    live.record(Operation::Resize { ino, size })?;
                }
                live.modified(ino);
            }
            if mode.or(uid).or(gid).is_some() {
                live.record(Operation::Attributes { ino, mode, uid, gid })?;
            }
            let time = |given: TimeOrNow, now| match given {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => now,
            };
            live.touch(ino, |times: &mut Times, now| {
                times.accessed = atime.map_or(times.accessed, |given| time(given, now));
                times.modified = mtime.map_or(times.modified, |given| time(given, now));
                times.changed = now;
            });
            live.attributes(ino)
        };
        match set() {
            Ok(found) => reply.attr(&ATTRIBUTE_TIME, &found),
            Err(error) => reply.error(error),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let live = self.0.lock();
        let target = live.inner(ino).and_then(|ino| Ok(live.node(ino)?.target()));
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(&self, who: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, rdev: u32, reply: ReplyEntry) {
        let mut live = self.0.lock();
        let made = live.make(who, parent, name, mode, rdev, b"");
        entry(reply, made.and_then(|ino| live.attributes(ino)));
    }

    fn mkdir(&self, who: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let mut live = self.0.lock();
        let made = live.make(who, parent, name, mode & 0o7_777 | crate::operation::FOLDER, 0, b"");
        entry(reply, made.and_then(|ino| live.attributes(ino)));
    }

    fn symlink(&self, who: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let mut live = self.0.lock();
        let mode = crate::operation::SYMLINK | 0o777;
        let made = live.make(who, parent, name, mode, 0, target.as_os_str().as_bytes());
        entry(reply, made.and_then(|ino| live.attributes(ino)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done =
            if special(parent, name).is_some() { Err(Errno::EPERM) } else { self.0.lock().remove(parent, name, false) };
        empty(reply, done);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.0.lock().remove(parent, name, true);
        empty(reply, done);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut live = self.0.lock();
        let is_special = special(parent, name).or(special(new_parent, new_name)).is_some();
        let names = if is_special { Err(Errno::EPERM) } else { live.entry(parent, name) };
        let names = names.and_then(|from| Ok((from, live.entry(new_parent, new_name)?)));
        empty(reply, names.and_then(|(from, to)| live.rename(from, to, flags)));
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut live = self.0.lock();
        let mut made = || {
            let ino = live.inner(ino)?;
            live.node(ino)?;
            let at = live.free(parent, name)?;
            let folder = at.folder;
            live.record(Operation::Link { ino, at })?;
            live.modified(folder);
            live.touch(ino, |times, now| times.changed = now);
            live.attributes(ino)
        };
        entry(reply, made());
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut live = self.0.lock();
        let handle = FileHandle(live.new_handle());
        if is_special(ino) {
            return reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO);
        }
        match live.inner(ino).and_then(|ino| live.node(ino).map(|_| ino)) {
            Ok(ino) => {
                live.opened(ino);
                reply.opened(handle, if live.is_doubtful { FopenFlags::empty() } else { FopenFlags::FOPEN_KEEP_CACHE });
            }
            Err(error) => reply.error(error),
        }
    }

    fn create(&self, who: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, _: i32, reply: ReplyCreate) {
        let mut live = self.0.lock();
        let mode = mode & 0o7_777 | crate::operation::FILE;
        let made = live.make(who, parent, name, mode, 0, b"").and_then(|ino| {
            live.opened(ino);
            live.attributes(ino)
        });
        match made {
            Ok(found) => {
                let handle = FileHandle(live.new_handle());
                reply.created(&NAME_TIME, &found, Generation(0), handle, FopenFlags::FOPEN_KEEP_CACHE);
            }
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let mut live = self.0.lock();
        if is_special(ino) {
            live.answers.remove(&handle.0);
            // A last line may have no end.
            let _ = live.acknowledge(handle.0, b"\n");
            live.begun_ids.remove(&handle.0);
        } else if let Ok(ino) = live.inner(ino) {
            live.closed(ino);
        }
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if is_special(ino) {
            let live = self.0.lock();
            let answer = live.answers.get(&handle.0).map_or(&[][..], Vec::as_slice);
            let from = (offset as usize).min(answer.len());
            return reply.data(&answer[from..(from + size as usize).min(answer.len())]);
        }
        self.in_time(On::Read, move |live| {
            let bytes = live.check(On::Read).and_then(|()| {
                let ino = live.inner(ino)?;
                Ok(live.node(ino)?.bytes().ok_or(Errno::EISDIR)?.read(offset, size as usize))
            });
            match bytes {
                Ok(bytes) => reply.data(&live.as_read(bytes)),
                Err(error) => reply.error(error),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let send = |reply: ReplyWrite, done: Outcome<u32>| match done {
            Ok(count) => reply.written(count),
            Err(error) => reply.error(error),
        };
        if ino.0 == CONTROL_INO {
            return send(reply, self.control(handle, data).map(|()| data.len() as u32));
        }
        if ino.0 == ACKNOWLEDGE_INO {
            let mut live = self.0.lock();
            let done = live.acknowledge(handle.0, data);
            return send(reply, done.map(|()| data.len() as u32));
        }
        let (through, data) = (flags.0 & O_DSYNC != 0, data.to_vec());
        self.in_time(if through { On::Sync } else { On::Write }, move |live| {
            match live.inner(ino).and_then(|ino| live.write(ino, offset, data, through)) {
                Ok(count) if through => live.commit(move |done| send(reply, done.map(|()| count))),
                done => send(reply, done),
            }
        });
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        if is_special(ino) {
            return reply.ok();
        }
        self.in_time(On::Sync, move |live| match live.inner(ino).and_then(|ino| live.sync(ino, data_only)) {
            Ok(()) => live.commit(move |done| empty(reply, done)),
            Err(error) => reply.error(error),
        });
    }

    fn fsyncdir(&self, who: &Request, ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.fsync(who, ino, handle, data_only, reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mut live = self.0.lock();
        empty(reply, live.inner(ino).and_then(|ino| live.allocate(ino, offset, length, mode)));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let mut live = self.0.lock();
        match live.inner(ino) {
            Ok(ino) => {
                // It stays while it is open, also without a name.
                live.opened(ino);
                reply.opened(FileHandle(live.new_handle()), FopenFlags::empty());
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut live = self.0.lock();
        // The listing is of the moment at which reading began: names that go meanwhile hide no others.
        if offset == 0 {
            let listing = live.inner(ino).and_then(|folder| {
                let names = live.node(folder)?.entries().map(|(name, ino)| (ino, name.to_vec()));
                let own = [(folder, b".".to_vec()), (folder, b"..".to_vec())];
                let listed = own
                    .into_iter()
                    .chain(names)
                    .filter_map(|(ino, name)| Some((ino, kind(live.volume.seen().node(ino)?.mode), name)));
                Ok(listed.collect())
            });
            match listing {
                Ok(listing) => _ = live.listings.insert(handle.0, listing),
                Err(error) => return reply.error(error),
            }
        }
        let listing = live.listings.get(&handle.0).map_or(&[][..], Vec::as_slice);
        for (index, (ino, kind, name)) in listing.iter().enumerate().skip(offset as usize) {
            if reply.add(live.outer(*ino), index as u64 + 1, *kind, OsStr::from_bytes(name)) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, ino: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let mut live = self.0.lock();
        live.listings.remove(&handle.0);
        if let Ok(ino) = live.inner(ino) {
            live.closed(ino);
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = SIZE / 4096;
        reply.statfs(blocks, blocks, blocks, 1 << 32, 1 << 32, 4096, 255, 4096);
    }
}
