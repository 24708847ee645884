//! The file of a mapped ring (ADR 13): memory that a client stores into, and that outlives both processes.
//!
//! The device never touches a mapping of it. A client that may open the file may truncate it, and an access would end
//! this process then (SIGBUS); reads and writes by system calls end with an error. Its own page is mapped all the same,
//! since the address is how clients that wait for a word of it are woken. Everything that is read is untrusted.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, fcntl};
use tidewater_core::fast::bar;
use tidewater_wire::log::{
    RING_DEVICE_LOCK, RING_FILE_BAR2, RING_LOCKS, RING_PAGE_OFFSET, RingHeader, RingLane, RingLanePage, RingPage,
    RingReplicas,
};
use tidewater_wire::vendor::{Epoch, LayoutError};
use tidewater_wire::vfio_user::Area;

use tidewater_ipc::Mapping;

const OPTION: &str = "--ring";
/// How often a word that its writer changes meanwhile is read again.
const READS_MAX: u32 = 64;
/// Bytes that are written at once where much is.
const PIECE: usize = 1 << 20;

/// Whose ring it is, and its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Identifier of the drive.
    pub drive: [u8; 16],
    /// Function.
    pub function: u16,
    /// Lanes, 1 to 16.
    pub lanes: u16,
    /// Bytes of each lane's ring.
    pub ring_bytes: u64,
    /// The epoch that the device is in: a new ring's.
    pub epoch: Epoch,
    /// The file lies in memory that survives a loss of power.
    pub persistent: bool,
    /// It has a copy on a disk, which clients write.
    pub copied: bool,
}

/// Why a ring's file can't be used, in words that name the place and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RingError(pub String);

/// The file is not what it was when it was opened: it was truncated, or can't be read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// The words of a lane's page that its client writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientWords {
    /// Its generation.
    pub generation: u64,
    /// How far the ring is filled.
    pub tail: u64,
    /// Up to where it wants to be synced.
    pub wanted: u64,
    /// Up to where the copy has it: of use to guess by.
    pub saved: u64,
    /// What it has no use for before.
    pub unneeded: u64,
    /// Bytes before the tail that may stay where they are.
    pub left: u64,
    /// Up to where it wants to be replicated.
    pub replicate: u64,
    /// Up to where it wants its replicas to be synced.
    pub replicate_synced: u64,
}

impl ClientWords {
    /// From the words of a lane's page, the generation first.
    fn of(word: impl Fn(usize) -> Result<u64, Lost>) -> Result<ClientWords, Lost> {
        Ok(ClientWords {
            generation: word(RingLanePage::GENERATION_OFFSET)?,
            tail: word(RingLanePage::TAIL_OFFSET)?,
            wanted: word(RingLanePage::WANTED_OFFSET)?,
            saved: word(RingLanePage::SAVED_OFFSET)?,
            unneeded: word(RingLanePage::UNNEEDED_OFFSET)?,
            left: word(RingLanePage::LEFT_OFFSET)?,
            replicate: word(RingLanePage::REPLICATE_OFFSET)?,
            replicate_synced: word(RingLanePage::REPLICATE_SYNCED_OFFSET)?,
        })
    }
}

/// A lock of one byte of the file, to write.
fn byte(at: i64) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: at,
        l_len: 1,
        l_pid: 0,
    }
}

/// Reads until it is the same twice: the kernel copies bytes, and no word of it was caught half-written then. `None`:
/// its writer changes it all the time.
fn twice<T: PartialEq>(read: impl Fn() -> Result<T, Lost>) -> Result<Option<T>, Lost> {
    let mut before = read()?;
    for _ in 0..READS_MAX {
        let now = read()?;
        if now == before {
            return Ok(Some(now));
        }
        before = now;
    }
    Ok(None)
}

/// What was found at a ring's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing: the file is new.
    Nothing,
    /// The ring, as its client left it.
    Ring,
    /// The ring of another boot of the machine, in memory that does not outlive one: its generations have ended.
    Old,
}

/// The open file of a mapped ring. One process serves it at a time.
#[derive(Debug)]
pub struct RingFile {
    path: PathBuf,
    /// The descriptor that holds the lock; never given to a client.
    file: File,
    /// The one that clients are given: another description of the same file, so that the lock ends with this process.
    lent: Arc<File>,
    header: RingHeader,
    /// It had a copy when it was served last.
    had_copy: bool,
    /// It was used in this boot of the machine before it was opened, and the image's disk has not failed since.
    is_of_this_boot: bool,
    /// Its own page, never accessed: where clients wait.
    page: Mapping,
}

pub(crate) fn wrong(path: &Path, why: impl fmt::Display) -> RingError {
    RingError(format!("{}: {why}", path.display()))
}

/// The identifier of this boot of the machine; zeroes where the system does not tell.
fn boot() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.bytes().filter_map(|byte| char::from(byte).to_digit(16));
    let mut id = [0; 16];
    for (at, digit) in digits.take(32).enumerate() {
        id[at / 2] |= (digit as u8) << (4 * (1 - at % 2));
    }
    id
}

pub(crate) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options
}

/// Takes the file for this process alone, if it is its owner's alone. `option`: what names it.
pub(crate) fn own(path: &Path, file: &File, option: &str) -> Result<(), RingError> {
    let about = file.metadata().map_err(|error| wrong(path, error))?;
    if !about.is_file() {
        return Err(wrong(path, format_args!("is not a file; name another place with {option}")));
    }
    if about.uid() != nix::unistd::geteuid().as_raw() || about.mode() & 0o077 != 0 {
        return Err(wrong(
            path,
            format_args!("other users may open it; `chmod 600` it if it is yours, or name another place with {option}"),
        ));
    }
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            wrong(path, format_args!("another process serves this ring; stop it, or name another place with {option}"))
        }
        TryLockError::Error(error) => wrong(path, error),
    })
}

/// Makes a file that is whole before it has its name: `fill` writes it. A file that exists by this name is not
/// replaced, and what an earlier attempt left is not taken.
pub(crate) fn make(
    path: &Path,
    option: &str,
    fill: impl FnOnce(&File) -> Result<(), RingError>,
) -> Result<File, RingError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let _ = fs::remove_file(&temporary);
    let failed = |error: io::Error| wrong(path, error);
    let file = options().create_new(true).mode(0o600).open(&temporary).map_err(failed)?;
    let made = own(path, &file, option)
        .and_then(|()| fill(&file))
        .and_then(|()| fs::hard_link(&temporary, path).map_err(failed));
    let _ = fs::remove_file(&temporary);
    made.map(|()| file)
}

/// Writes zeroes.
pub(crate) fn fill(file: &File, at: u64, len: u64) -> io::Result<()> {
    let zeroes = vec![0; PIECE.min(len as usize)];
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(PIECE as u64);
        file.write_all_at(&zeroes[..piece as usize], at + done)?;
        done += piece;
    }
    Ok(())
}

/// What a client is given: another description of the same file, so that the lock ends with this process.
pub(crate) fn lend(path: &Path, file: &File) -> Result<Arc<File>, RingError> {
    let lent = options().open(path).map_err(|error| wrong(path, error))?;
    let identity = |file: &File| file.metadata().map(|about| (about.dev(), about.ino()));
    let same = matches!((identity(file), identity(&lent)), (Ok(one), Ok(other)) if one == other);
    if same { Ok(Arc::new(lent)) } else { Err(wrong(path, "was replaced while it was opened")) }
}

impl RingFile {
    /// Opens the ring at `path`, or makes one. The shape's lanes are 1 to 16, and its rings a power of two of at least
    /// a page: else it says so.
    ///
    /// # Errors
    /// [`RingError`]: the file is not this ring, is damaged, or belongs to another user. It is left unchanged then.
    pub fn open(path: &Path, shape: &Shape) -> Result<(RingFile, Found), RingError> {
        if !shape.ring_bytes.is_power_of_two() || shape.ring_bytes < 4096 {
            let bytes = shape.ring_bytes;
            return Err(wrong(
                path,
                format_args!("rings of {bytes} bytes cannot be mapped: set fast.size to at least 4 KiB per lane"),
            ));
        }
        let file = match options().open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return RingFile::create(path, shape),
            Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
                return Err(wrong(path, "is a symbolic link, which is not followed; name the file itself with --ring"));
            }
            Err(error) => return Err(wrong(path, error)),
        };
        own(path, &file, OPTION)?;
        let len = file.metadata().map_err(|error| wrong(path, error))?.len();
        let away = "; move it away to start a new one, after checking whether it holds bytes that the drive has not \
             taken";
        let mut bytes = [0; RingHeader::SIZE];
        if len < RingHeader::SIZE as u64 {
            return Err(wrong(
                path,
                format_args!("has {len} bytes, fewer than a ring's header: truncated, or not a ring{away}"),
            ));
        }
        file.read_exact_at(&mut bytes, 0).map_err(|error| wrong(path, error))?;
        let mut header = RingHeader::parse(&bytes).map_err(|error| {
            let what = match error {
                LayoutError::Foreign { .. } => "not a ring of this version",
                _ => "its header is damaged",
            };
            wrong(path, format_args!("{what}: {error}{away}"))
        })?;
        if header.drive != shape.drive {
            return Err(wrong(path, format_args!("belongs to another drive{away}")));
        }
        let (is, should) =
            ((header.function, header.lanes, header.ring_bytes), (shape.function, shape.lanes, shape.ring_bytes));
        if is != should {
            let what = format!(
                "is a ring of function {}, {} lanes of {} bytes, and the drive has function {}, {} lanes of {} bytes",
                is.0, is.1, is.2, should.0, should.1, should.2
            );
            return Err(wrong(path, what + away));
        }
        if len < header.file_bytes {
            return Err(wrong(path, format_args!("was truncated to {len} of {} bytes{away}", header.file_bytes)));
        }
        let boot = boot();
        let is_of_this_boot = header.boot == boot;
        let found = if is_of_this_boot || header.persistent { Found::Ring } else { Found::Old };
        if found == Found::Old {
            header.generation.iter_mut().for_each(|generation| *generation += 1);
        }
        let had_copy = header.copied;
        (header.persistent, header.copied) = (shape.persistent, shape.copied);
        let mut ring = RingFile::of(path, file, header)?;
        (ring.had_copy, ring.is_of_this_boot) = (had_copy, is_of_this_boot && !header.doubted);
        Ok((ring, found))
    }

    fn create(path: &Path, shape: &Shape) -> Result<(RingFile, Found), RingError> {
        let header = RingHeader {
            function: shape.function,
            lanes: shape.lanes,
            ring_bytes: shape.ring_bytes,
            file_bytes: RingHeader::file_bytes(shape.lanes.into(), shape.ring_bytes),
            drive: shape.drive,
            // None yet: it is confirmed when it holds what it has to.
            boot: [0; 16],
            persistent: shape.persistent,
            copied: shape.copied,
            doubted: false,
            epoch: shape.epoch,
            generation: [1; _],
        };
        let file = make(path, OPTION, |file| {
            // Room is taken now: a store into a mapping of a full disk would end the client (SIGBUS). And written: the
            // system maps pages that hold something many at a time, and others one by one, in the way of clients.
            nix::fcntl::posix_fallocate(file, 0, header.file_bytes as i64).map_err(|error| wrong(path, error))?;
            fill(file, 0, header.file_bytes).map_err(|error| wrong(path, error))?;
            file.write_all_at(&header.to_bytes(), 0).map_err(|error| wrong(path, error))
        })?;
        Ok((RingFile::of(path, file, header)?, Found::Nothing))
    }

    fn of(path: &Path, file: File, header: RingHeader) -> Result<RingFile, RingError> {
        let lent = lend(path, &file)?;
        let page = Mapping::new(file.as_fd(), RING_FILE_BAR2 + RING_PAGE_OFFSET, bar::PAGE, false);
        let page = page.map_err(|error| wrong(path, error))?;
        // Clients without a connection find out by it that this process has ended. Where the file system has no such
        // locks, they find out by their time-outs.
        let _ = fcntl(&file, FcntlArg::F_OFD_SETLK(&byte(RING_DEVICE_LOCK)));
        Ok(RingFile { path: path.to_owned(), file, lent, header, had_copy: false, is_of_this_boot: false, page })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a program has this lane open.
    pub fn has_writer(&self, lane: usize) -> bool {
        let mut lock = byte(RING_LOCKS + lane as i64);
        let asked = fcntl(&self.file, FcntlArg::F_OFD_GETLK(&mut lock));
        asked.is_ok() && lock.l_type != libc::F_UNLCK as libc::c_short
    }

    /// What its header says.
    pub fn header(&self) -> &RingHeader {
        &self.header
    }

    /// Whether it had a copy when it was served last: its clients may write that on.
    pub fn had_copy(&self) -> bool {
        self.had_copy
    }

    /// Whether it was used in this boot of the machine before it was opened, and the image's disk has not failed since:
    /// what was written to the image is there.
    pub fn is_of_this_boot(&self) -> bool {
        self.is_of_this_boot
    }

    /// What a client is given to map.
    pub fn lent(&self) -> &Arc<File> {
        &self.lent
    }

    /// Which parts of BAR2 a client may map.
    pub fn areas(&self) -> Vec<Area> {
        let lanes = u64::from(self.header.lanes);
        vec![
            Area { offset: bar::LANE_PAGES, size: lanes * bar::PAGE },
            Area { offset: RING_PAGE_OFFSET, size: bar::PAGE },
            Area { offset: bar::RINGS, size: lanes * self.header.ring_bytes },
        ]
    }

    /// Which stores of clients may be an event: that to the word `wanted` of each lane.
    pub fn doorbells(&self) -> Vec<(u64, u64)> {
        let lanes = 0..usize::from(self.header.lanes);
        lanes.map(|lane| (bar::lane_page_address(lane) + RingLanePage::WANTED_OFFSET as u64, 8)).collect()
    }

    /// What the header says holds from now on: the ring is of this boot of the machine. Until then, another start finds
    /// it as this one did.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn confirm(&mut self) -> Result<(), Lost> {
        (self.header.boot, self.header.doubted) = (boot(), false);
        self.write_header()
    }

    /// The image's disk has failed: the next start can't count on what was written to the image and not synced.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn doubt(&mut self) -> Result<(), Lost> {
        self.header.doubted = true;
        self.write_header()
    }

    fn write_header(&self) -> Result<(), Lost> {
        self.file.write_all_at(&self.header.to_bytes(), 0).map_err(|_| Lost)
    }

    /// A lane's stream does not go on from what its client has published. Returns the new generation.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn begin_generation(&mut self, lane: usize) -> Result<u64, Lost> {
        self.header.generation[lane] += 1;
        self.write_header()?;
        Ok(self.header.generation[lane])
    }

    /// Stores the epoch that clients stamp records with, behind the begin of a generation in each lane and before that
    /// is published: clients of the one before keep theirs.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn set_epoch(&mut self, epoch: Epoch) -> Result<(), Lost> {
        self.header.epoch = epoch;
        self.write_header()
    }

    /// Has a lane's ring hold bytes from a stream offset on, as if its client had published them in this generation:
    /// after a crash of the machine took what was there.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn restore(&mut self, lane: usize, generation: u64, begin: u64, bytes: &[u8]) -> Result<(), Lost> {
        let size = self.header.ring_bytes;
        assert!(bytes.len() as u64 <= size, "no more than a ring");
        let (ring, within, first) = self.parts(lane, begin, bytes.len());
        let (first, rest) = bytes.split_at(first);
        self.file.write_all_at(first, ring + within).map_err(|_| Lost)?;
        self.file.write_all_at(rest, ring).map_err(|_| Lost)?;
        // A lane without bytes has no client: its tail and generation are 0.
        let is_left = !bytes.is_empty();
        let (tail, said) = if is_left { (begin + bytes.len() as u64, generation) } else { (0, 0) };
        let page = RingLanePage { tail, generation: said, ..RingLanePage::default() };
        self.file.write_all_at(&page.to_bytes(), RING_FILE_BAR2 + bar::lane_page_address(lane)).map_err(|_| Lost)?;
        self.header.generation[lane] = generation;
        self.write_header()
    }

    /// Tells the clients of a lane that its copy is of no use in this generation: the device syncs for them.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn disuse_copy(&self, lane: usize) -> Result<(), Lost> {
        let at = RING_FILE_BAR2 + bar::lane_page_address(lane) + RingLanePage::UNSAVED_OFFSET as u64;
        self.file.write_all_at(&1u64.to_le_bytes(), at).map_err(|_| Lost)
    }

    fn word(&self, at: u64) -> Result<u64, Lost> {
        let word = twice(|| {
            let mut word = [0; 8];
            self.file.read_exact_at(&mut word, at).map_err(|_| Lost)?;
            Ok(u64::from_le_bytes(word))
        })?;
        // Whatever its client does there, the next look finds it.
        Ok(word.unwrap_or(0))
    }

    /// The words of a lane's page that its client writes.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn client_words(&self, lane: usize) -> Result<ClientWords, Lost> {
        const END: usize = RingLanePage::SAVED_OFFSET + 8;
        let page = RING_FILE_BAR2 + bar::lane_page_address(lane);
        let said = twice(|| {
            let mut bytes = [0; END];
            self.file.read_exact_at(&mut bytes, page).map_err(|_| Lost)?;
            ClientWords::of(|at| Ok(u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))))
        })?;
        match said {
            // The tail is no older than the generation, which is stored after it.
            Some(said) => Ok(said),
            // They change all the time: one by one.
            None => ClientWords::of(|at| self.word(page + at as u64)),
        }
    }

    /// Copies what a lane's ring holds under these stream offsets. Asserts that it is no more than a ring.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn read(&self, lane: usize, offset: u64, into: &mut [u8]) -> Result<(), Lost> {
        let size = self.header.ring_bytes;
        assert!(into.len() as u64 <= size, "no more than a ring");
        let (begin, within, first) = self.parts(lane, offset, into.len());
        let (first, rest) = into.split_at_mut(first);
        self.file.read_exact_at(first, begin + within).map_err(|_| Lost)?;
        self.file.read_exact_at(rest, begin).map_err(|_| Lost)
    }

    /// Where a lane's ring begins in the file, where in it a stream offset is, and how many of so many bytes lie before
    /// its end.
    fn parts(&self, lane: usize, offset: u64, len: usize) -> (u64, u64, usize) {
        let size = self.header.ring_bytes;
        let within = offset % size;
        (RING_FILE_BAR2 + bar::RINGS + lane as u64 * size, within, ((size - within) as usize).min(len))
    }

    /// Publishes the state of all lanes, and wakes all clients that wait for one.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn write_page(&self, page: &RingPage) -> Result<(), Lost> {
        self.file.write_all_at(&page.to_bytes(), RING_FILE_BAR2 + RING_PAGE_OFFSET).map_err(|_| Lost)?;
        for lane in 0..usize::from(self.header.lanes) {
            self.wake(lane);
            self.wake_for_replicas(lane, RingReplicas::RING_OFFSET);
            self.wake_for_replicas(lane, RingReplicas::DESTAGED_OFFSET);
        }
        Ok(())
    }

    /// Says that the backing store takes nothing more, by a number of the system's, and wakes who waits for it.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn write_store_error(&self, number: i32) -> Result<(), Lost> {
        let at = RING_FILE_BAR2 + RING_PAGE_OFFSET + RingPage::STORE_ERROR_OFFSET as u64;
        self.file.write_all_at(&number.unsigned_abs().to_le_bytes(), at).map_err(|_| Lost)?;
        (0..usize::from(self.header.lanes)).for_each(|lane| self.wake(lane));
        Ok(())
    }

    /// Wakes clients of a lane that wait for its word `synced`: behind having said what it is now.
    pub fn wake(&self, lane: usize) {
        self.page.wake((RingPage::lane_offset(lane as u8) + RingLane::SYNCED_OFFSET) as u64);
    }

    /// Says how far one lane's replicas are.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn write_replicas(&self, lane: usize, are: &RingReplicas) -> Result<(), Lost> {
        let at = RING_FILE_BAR2 + RING_PAGE_OFFSET + RingPage::replicas_offset(lane as u8) as u64;
        self.file.write_all_at(&are.to_bytes(), at).map_err(|_| Lost)
    }

    /// Wakes clients that wait for a counter of a lane's replicas.
    pub fn wake_for_replicas(&self, lane: usize, counter: usize) {
        self.page.wake((RingPage::replicas_offset(lane as u8) + counter) as u64);
    }

    /// Says how one lane is.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn write_lane(&self, lane: usize, is: &RingLane) -> Result<(), Lost> {
        let at = RING_FILE_BAR2 + RING_PAGE_OFFSET + RingPage::lane_offset(lane as u8) as u64;
        self.file.write_all_at(&is.to_bytes(), at).map_err(|_| Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn shape() -> Shape {
        Shape {
            drive: [7; 16],
            function: 0,
            lanes: 2,
            ring_bytes: 8192,
            epoch: Epoch::ZERO,
            persistent: false,
            copied: false,
        }
    }

    fn refused(path: &Path, shape: &Shape) -> String {
        RingFile::open(path, shape).expect_err("it is refused").0
    }

    #[test]
    fn a_ring_is_made_found_again_and_locked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        drop(RingFile::open(&path, &shape()).unwrap());
        let (mut ring, found) = RingFile::open(&path, &shape()).unwrap();
        assert_eq!((found, ring.header().generation[1]), (Found::Old, 2), "a start that was cut short");
        ring.confirm().unwrap();
        drop(ring);
        fs::remove_file(&path).unwrap();
        let (mut ring, found) = RingFile::open(&path, &shape()).unwrap();
        ring.confirm().unwrap();
        assert_eq!((found, ring.header().generation[1]), (Found::Nothing, 1));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(refused(&path, &shape()).contains("another process serves this ring"));
        // A client's store, over the end of the ring.
        let client = ring.lent();
        let begin = RING_FILE_BAR2 + bar::RINGS + 8192;
        client.write_all_at(b"cd", begin).unwrap();
        client.write_all_at(b"ab", begin + 8190).unwrap();
        client.write_all_at(&9u64.to_le_bytes(), RING_FILE_BAR2 + bar::lane_page_address(1) + 8).unwrap();
        let lent = Arc::clone(client);
        drop(ring);
        // A client that still has its descriptor does not hold the lock.
        let (mut ring, found) = RingFile::open(&path, &shape()).unwrap();
        assert_eq!(found, Found::Ring);
        assert_eq!(ring.client_words(1), Ok(ClientWords { tail: 9, ..ClientWords::default() }));
        let mut bytes = [0; 4];
        ring.read(1, 3 * 8192 - 2, &mut bytes).unwrap();
        assert_eq!(&bytes, b"abcd");
        // A start that comes before all lanes have begun a generation finds the epoch of before.
        let later = Shape { epoch: Epoch::new(9, 1), ..shape() };
        assert_eq!(ring.begin_generation(1), Ok(2));
        drop(ring);
        let (mut ring, _) = RingFile::open(&path, &later).unwrap();
        assert_eq!((&ring.header().generation[..2], ring.header().epoch), (&[1, 2][..], shape().epoch));
        ring.set_epoch(later.epoch).unwrap();
        drop(ring);
        let (ring, _) = RingFile::open(&path, &later).unwrap();
        assert_eq!(ring.header().epoch, later.epoch);
        // Truncated by a client: an error, and no signal.
        lent.set_len(100_000).unwrap();
        assert_eq!(ring.read(1, 0, &mut bytes), Err(Lost));
    }

    #[test]
    fn what_is_foreign_damaged_or_another_users_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        drop(RingFile::open(&path, &shape()).unwrap());
        assert!(refused(&path, &Shape { drive: [8; 16], ..shape() }).contains("another drive"));
        assert!(refused(&path, &Shape { lanes: 1, ..shape() }).contains("2 lanes of 8192"));
        assert!(refused(&path, &Shape { ring_bytes: 2048, ..shape() }).contains("cannot be mapped"));
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        damaged[140] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(refused(&path, &shape()).contains("its header is damaged"));
        assert_eq!(fs::read(&path).unwrap(), damaged, "it is as it was");
        // Checksums keep mistakes out, not people.
        let header = RingHeader::parse(&whole[..RingHeader::SIZE]).unwrap();
        let forged = RingHeader { generation: [u64::MAX; _], ..header }.to_bytes();
        fs::write(&path, [&forged, &whole[RingHeader::SIZE..]].concat()).unwrap();
        assert!(refused(&path, &shape()).contains("its header is damaged"));
        fs::write(&path, b"TIDERING").unwrap();
        assert!(refused(&path, &shape()).contains("fewer than a ring's header"));
        fs::write(&path, vec![b'x'; 9000]).unwrap();
        assert!(refused(&path, &shape()).contains("not a ring of this version"));
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert!(refused(&path, &shape()).contains("was truncated to"));
        fs::write(&path, &whole).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(refused(&path, &shape()).contains("other users may open it"));
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(refused(&link, &shape()).contains("symbolic link"));
        assert!(RingFile::open(folder.path(), &shape()).is_err());
    }

    #[test]
    fn the_ring_of_another_boot_counts_only_where_its_memory_survives() {
        let folder = tempfile::tempdir().unwrap();
        for persistent in [false, true] {
            let path = folder.path().join(format!("ring-{persistent}"));
            let shape = Shape { persistent, ..shape() };
            let (mut ring, _) = RingFile::open(&path, &shape).unwrap();
            ring.header.boot[3] ^= 1;
            ring.write_header().unwrap();
            drop(ring);
            let (ring, found) = RingFile::open(&path, &shape).unwrap();
            let expected = if persistent { (Found::Ring, 1) } else { (Found::Old, 2) };
            assert_eq!((found, ring.header().generation[0]), expected);
        }
    }
}
