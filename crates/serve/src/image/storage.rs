//! Where bytes are kept: a file, a block device, or memory. The seam at which faults are injected.

use super::ImageError;
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use nix::sys::statvfs::fstatvfs;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewater_base::table::Bytes;

/// How long opening an image waits for its lock.
const LOCK_TIME: Duration = Duration::from_millis(500);

/// Makes safe what was written before it was asked for; it may run on another thread.
pub type Syncing = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// Bytes at offsets. What was never written, or was cut off, reads as zeroes.
pub trait Storage: Send {
    /// Reads all of `into` from `at`.
    ///
    /// # Errors
    /// Of the system, or when it ends before.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `at`. It is safe from the end of this process at once, and from a loss of power once a
    /// sync has ended that was begun later.
    ///
    /// # Errors
    /// Of the system; then any of the bytes may have been written.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Begins to make safe what has been written so far.
    fn begin_sync(&mut self) -> Syncing;
    /// Bytes that there are.
    ///
    /// # Errors
    /// Of the system.
    fn size(&self) -> io::Result<u64>;
    /// Makes room for so many bytes, of which those that are new read as zeroes.
    ///
    /// # Errors
    /// Of the system, and where there is less.
    fn set_size(&mut self, len: u64) -> io::Result<()>;
    /// These bytes are not needed any more: they may read as anything, and need take no room. A hint.
    ///
    /// # Errors
    /// Of the system.
    fn punch(&mut self, at: u64, len: u64) -> io::Result<()>;
    /// Whether [`Storage::begin_sync`] does nothing worth another thread.
    fn syncs_at_once(&self) -> bool {
        false
    }
    /// The bytes themselves, where they are in this process's memory anyhow and all there.
    fn view(&self, at: u64, len: usize) -> Option<&[u8]> {
        let _ = (at, len);
        None
    }
    /// The user whose file it is; `None`: it is none.
    fn owner(&self) -> Option<u32> {
        None
    }
    /// Writes that have ended, and how long they took together, where that is measured.
    fn pace(&self) -> (u64, Duration) {
        (0, Duration::ZERO)
    }
    /// Whether [`Storage::has_room`] can tell anything: nothing says how full what is below a block device is.
    fn knows_room(&self) -> bool {
        false
    }
    /// Where a write was refused for want of room: whether there is enough again for a while.
    fn has_room(&self) -> bool {
        false
    }
    /// Whether a checksum could tell nothing: this process alone has written what there is, into its own memory.
    fn is_own_memory(&self) -> bool {
        false
    }
}

/// Ordinary memory, in huge pages where there are any: gone with the process.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    /// One after the other. Room is added behind them: to move what there is would touch each of its pages, of which
    /// a new drive has gigabytes that were never written.
    parts: Vec<Bytes>,
    /// What it held at first came from elsewhere.
    is_foreign: bool,
}

impl MemoryStorage {
    /// Memory that holds this.
    pub fn from_bytes(bytes: Vec<u8>) -> MemoryStorage {
        MemoryStorage { parts: vec![bytes.into()], is_foreign: true }
    }

    /// The part that has all of these bytes, and where they are in it.
    #[inline]
    fn within_one(&self, at: u64, len: usize) -> Option<(usize, Range<usize>)> {
        let mut at = usize::try_from(at).ok()?;
        for (index, part) in self.parts.iter().enumerate() {
            if at < part.len() {
                let end = at.checked_add(len).filter(|&end| end <= part.len())?;
                return Some((index, at..end));
            }
            at -= part.len();
        }
        None
    }

    /// The pieces that these bytes consist of: of each its part, and where it is in there.
    fn pieces(&self, at: u64, len: usize) -> io::Result<Vec<(usize, Range<usize>)>> {
        let (mut pieces, mut begin, mut end) = (Vec::new(), at, at.saturating_add(len as u64));
        for (index, part) in self.parts.iter().enumerate() {
            let bytes = part.len() as u64;
            if begin < end && begin < bytes {
                // Both are within the part.
                pieces.push((index, begin as usize..end.min(bytes) as usize));
            }
            (begin, end) = (begin.saturating_sub(bytes), end.saturating_sub(bytes));
        }
        if end > 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(pieces) }
    }
}

impl Storage for MemoryStorage {
    #[inline]
    fn read_at(&self, at: u64, mut into: &mut [u8]) -> io::Result<()> {
        if let Some((part, range)) = self.within_one(at, into.len()) {
            into.copy_from_slice(&self.parts[part][range]);
            return Ok(());
        }
        for (part, range) in self.pieces(at, into.len())? {
            let (piece, rest) = into.split_at_mut(range.len());
            piece.copy_from_slice(&self.parts[part][range]);
            into = rest;
        }
        Ok(())
    }

    #[inline]
    fn write_at(&mut self, at: u64, mut bytes: &[u8]) -> io::Result<()> {
        if let Some((part, range)) = self.within_one(at, bytes.len()) {
            self.parts[part][range].copy_from_slice(bytes);
            return Ok(());
        }
        for (part, range) in self.pieces(at, bytes.len())? {
            let (piece, rest) = bytes.split_at(range.len());
            self.parts[part][range].copy_from_slice(piece);
            bytes = rest;
        }
        Ok(())
    }

    fn begin_sync(&mut self) -> Syncing {
        Box::new(|| Ok(()))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.parts.iter().map(|part| part.len() as u64).sum())
    }

    fn set_size(&mut self, len: u64) -> io::Result<()> {
        let size = self.size()?;
        let too_much = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        if len > size {
            // Zeroed pages come from the system, and only when they are touched.
            self.parts.push(Bytes::zeroed(usize::try_from(len - size).map_err(too_much)?, true));
            return Ok(());
        }
        let kept = usize::try_from(len).map_err(too_much)?;
        let mut bytes = Bytes::zeroed(kept, true);
        self.read_at(0, &mut bytes)?;
        self.parts = vec![bytes];
        Ok(())
    }

    fn punch(&mut self, _at: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    fn syncs_at_once(&self) -> bool {
        true
    }

    #[inline]
    fn view(&self, at: u64, len: usize) -> Option<&[u8]> {
        self.within_one(at, len).map(|(part, range)| &self.parts[part][range])
    }

    fn is_own_memory(&self) -> bool {
        !self.is_foreign
    }
}

/// A regular file or a block device, locked for this process.
#[derive(Debug)]
pub struct FileStorage {
    file: Arc<File>,
    name: String,
    is_device: bool,
    /// Writes that have ended, and how long they took.
    pace: (u64, Duration),
}

impl FileStorage {
    /// Opens and locks what is there. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`ImageError::Kind`], [`ImageError::Locked`], [`ImageError::Io`].
    pub fn open(path: &Path) -> Result<FileStorage, ImageError> {
        let name = path.display().to_string();
        let io = |what| {
            let name = name.clone();
            move |error| ImageError::Io { name, what, error }
        };
        let kind = path.symlink_metadata().map_err(io("open it"))?.file_type();
        if kind.is_symlink() || kind.is_dir() {
            let found = if kind.is_dir() { "a folder" } else { "a symbolic link" };
            return Err(ImageError::Kind { name, found });
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(path)
            .map_err(io("open it"))?;
        let kind = file.metadata().map_err(io("look at it"))?.file_type();
        let is_device = kind.is_block_device();
        if !is_device && !kind.is_file() {
            return Err(ImageError::Kind { name, found: "neither a file nor a block device" });
        }
        Self::lock(file, name, is_device)
    }

    fn lock(file: File, name: String, is_device: bool) -> Result<FileStorage, ImageError> {
        let begin = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => {
                    // What a sync failed for may be in memory still, and on no disk: no later sync would tell. Only
                    // what is on the disk counts; what has yet to be written there stays.
                    let _ = posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
                    return Ok(FileStorage { file: Arc::new(file), name, is_device, pace: (0, Duration::ZERO) });
                }
                // A child of who had it last has its files as well, until it has become another program.
                Err(TryLockError::WouldBlock) if begin.elapsed() < LOCK_TIME => std::thread::sleep(LOCK_TIME / 100),
                Err(TryLockError::WouldBlock) => return Err(ImageError::Locked { name }),
                Err(TryLockError::Error(error)) => return Err(ImageError::Io { name, what: "lock it", error }),
            }
        }
    }

    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Storage for FileStorage {
    #[inline]
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, at)
    }

    #[inline]
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let begin = Instant::now();
        let result = self.file.write_all_at(bytes, at);
        self.pace = (self.pace.0 + 1, self.pace.1 + begin.elapsed());
        result
    }

    fn begin_sync(&mut self) -> Syncing {
        let file = self.file.clone();
        Box::new(move || file.sync_data())
    }

    fn owner(&self) -> Option<u32> {
        self.file.metadata().ok().map(|about| about.uid())
    }

    fn pace(&self) -> (u64, Duration) {
        self.pace
    }

    fn knows_room(&self) -> bool {
        !self.is_device
    }

    /// Tries with a file beside the image: free space says nothing of quotas.
    fn has_room(&self) -> bool {
        if self.is_device {
            return false;
        }
        // Others need what is left of a full disk: it is taken for a moment only where there is enough.
        let room = room_of(&self.file);
        let is_free = fstatvfs(&*self.file)
            .is_ok_and(|about| about.blocks_available().saturating_mul(about.fragment_size()) >= room as u64);
        if !is_free {
            return false;
        }
        let path = PathBuf::from(format!("{}.room-{}", self.name, std::process::id()));
        let tried = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let _ = std::fs::remove_file(&path);
        let taken = tried.and_then(|file| {
            match fallocate(&file, FallocateFlags::empty(), 0, room) {
                Ok(()) | Err(nix::errno::Errno::EOPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
            file.write_all_at(&[1; 4096], 0)?;
            file.sync_data()
        });
        taken.is_ok()
    }

    fn size(&self) -> io::Result<u64> {
        if self.is_device { (&*self.file).seek(SeekFrom::End(0)) } else { Ok(self.file.metadata()?.len()) }
    }

    fn set_size(&mut self, len: u64) -> io::Result<()> {
        match self.is_device {
            false => self.file.set_len(len),
            true if self.size()? >= len => Ok(()),
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
        }
    }

    fn punch(&mut self, at: u64, len: u64) -> io::Result<()> {
        if self.is_device {
            return Ok(());
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        match fallocate(&*self.file, flags, at as i64, len as i64) {
            Ok(()) => Ok(()),
            // A file system without holes: the room stays taken.
            Err(nix::errno::Errno::EOPNOTSUPP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Bytes that a device takes before it counts as having room: what its log brings within seconds, and no more than a
/// part of a small file system.
fn room_of(file: &File) -> i64 {
    const ROOM: u64 = 128 << 20;
    let size = fstatvfs(file).map_or(u64::MAX, |about| about.blocks().saturating_mul(about.fragment_size()));
    ROOM.min(size / 16) as i64
}

/// A new file that is invisible under its name before it is whole.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    unfinished: PathBuf,
    name: String,
    file: Arc<File>,
}

impl NewFile {
    /// Makes an empty file beside `path`, which must not exist, for its owner alone (mode 0600), and locks it.
    ///
    /// # Errors
    /// [`ImageError::Exists`], [`ImageError::Locked`] (another process is creating it), [`ImageError::Io`].
    pub fn begin(path: &Path) -> Result<(NewFile, FileStorage), ImageError> {
        let name = path.display().to_string();
        if path.symlink_metadata().is_ok() {
            return Err(ImageError::Exists { name });
        }
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let io = |what| {
            let name = name.clone();
            move |error| ImageError::Io { name, what, error }
        };
        let make = || {
            let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).custom_flags(flags).open(&unfinished)
        };
        let file = match make() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // What an interrupted attempt left, unless another process is at it now. It is not used: who made it
                // may read it.
                FileStorage::open(&unfinished)?;
                std::fs::remove_file(&unfinished).map_err(io("remove what an interrupted attempt left"))?;
                make()
            }
            result => result,
        };
        let storage = FileStorage::lock(file.map_err(io("make it"))?, name.clone(), false)?;
        Ok((NewFile { path: path.into(), unfinished, name, file: storage.file.clone() }, storage))
    }

    /// Gives the file its name, for good.
    ///
    /// # Errors
    /// [`ImageError::Exists`], [`ImageError::Io`].
    pub fn finish(self) -> Result<(), ImageError> {
        let io = |what| {
            let name = self.name.clone();
            move |error| ImageError::Io { name, what, error }
        };
        self.file.sync_all().map_err(io("sync it"))?;
        // Unlike a rename a link does not replace a file that appeared there meanwhile.
        match std::fs::hard_link(&self.unfinished, &self.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(ImageError::Exists { name: self.name });
            }
            Err(error) => return Err(io("give it its name")(error)),
        }
        std::fs::remove_file(&self.unfinished).map_err(io("remove its unfinished name"))?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(io("sync its folder"))
    }
}

/// Random bytes from the system.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says that this process has in memory, in bytes.
    fn resident() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }

    #[test]
    fn memory_grows_without_being_touched() {
        let mut storage = MemoryStorage::default();
        storage.set_size(4 << 30).unwrap();
        storage.write_at(100, b"first").unwrap();
        let before = resident();
        for more in 1..4 {
            storage.set_size((4 << 30) + (more << 16)).unwrap();
        }
        // It held 4 GiB more where growth moved what there was.
        assert!(resident() < before + (1 << 30), "{} MiB", resident() >> 20);
        let mut found = [0; 5];
        storage.read_at(100, &mut found).unwrap();
        assert_eq!(&found, b"first");
    }

    #[test]
    fn memory_of_several_parts_reads_as_one() {
        let mut storage = MemoryStorage::from_bytes((0..100).collect());
        storage.set_size(150).unwrap();
        storage.set_size(151).unwrap();
        assert_eq!(storage.size().unwrap(), 151);
        storage.write_at(95, &[7; 56]).unwrap();
        let mut found = [1; 58];
        storage.read_at(93, &mut found).unwrap();
        assert_eq!((&found[..2], &found[2..]), (&[93, 94][..], &[7; 56][..]));
        assert_eq!((storage.view(0, 100).map(<[u8]>::len), storage.view(99, 2)), (Some(100), None));
        let outside =
            [storage.read_at(94, &mut found), storage.read_at(152, &mut [0]), storage.write_at(u64::MAX, b"a")];
        assert!(outside.iter().all(|outcome| outcome.is_err()));
        storage.set_size(97).unwrap();
        assert_eq!((storage.size().unwrap(), storage.view(94, 3)), (97, Some(&[94, 7, 7][..])));
        assert!(storage.read_at(151, &mut []).is_err() && storage.read_at(97, &mut []).is_ok());
    }
}
