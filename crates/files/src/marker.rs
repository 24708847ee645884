//! The marker of a folder: a small file beside files of a log set that says which log may hold their last bytes (ADR
//! 38).
//!
//! It is there before the first sync of a file there is answered by the log, and goes once the files are whole without
//! it. Others may write in the folder: nothing of a marker is trusted. It can only make recovery and starts refuse.

use std::ffi::OsStr;
use std::fmt;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use rustix::fs::{AtFlags, Mode, OFlags};
use tidewater_base::checksum::crc32c;
use tidewater_wire::log::{FILE_HANDLE_BYTES_MAX, FileBind};

use crate::glob::{PREFIX, is_finished, matches};
use crate::handle::{identify, is_same};
use crate::system::Real;

/// Bytes of a marker, at most.
const BYTES_MAX: usize = 8 << 10;
/// First line, for a reader who does not know the file.
const HEAD: &str = "# The last bytes of files here may be on a log: `tidewater check` tells more.\n";

/// Which log may hold the last bytes of files in a folder.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Marker {
    /// The run that wrote the files: a log that has it is the one, on whichever device.
    pub run: [u8; 16],
    /// The drive that had the log: the identifier of its image; zeroes: a log in a byte window.
    pub drive: [u8; 16],
    /// The lane.
    pub lane: u8,
    /// The epoch that the device was in.
    pub epoch: u64,
    /// Stream offset up to which the log was durable: one that ends before is an older copy. 0: not known.
    pub seen: u64,
    /// Stream offset up to which changes are in the files, durably: a log that says that more is belongs to newer
    /// files.
    pub synced: u64,
    /// Patterns of names in the folder that may be of the set.
    pub names: Vec<String>,
    /// The device as `--device` takes it.
    pub target: String,
    /// The folder, which a copy of it is not.
    pub folder: FileBind,
}

/// Bytes in hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// The end of the name of a marker that is being written.
const NEW: &str = ".new";

/// The name of a run's marker.
pub(crate) fn name_of(run: &[u8; 16]) -> String {
    format!("{PREFIX}{}", hex(&run[..8]))
}

/// Whether a name in a folder is what a writer of a marker has left.
fn is_left_of(marker: &str, name: &[u8]) -> bool {
    let rest = name.strip_prefix(marker.as_bytes());
    rest.is_some_and(|rest| rest.starts_with(b".") && rest.ends_with(NEW.as_bytes()))
}

impl Marker {
    /// How its device is named in messages.
    pub fn device(&self) -> String {
        let drive = if self.drive == [0; 16] { String::new() } else { format!(" (drive {})", hex(&self.drive[..4])) };
        format!("{}{drive}, lane {}", self.target, self.lane)
    }

    /// The file's content. What changes later has a fixed width, and lies within its first 512 bytes.
    pub(crate) fn to_text(&self) -> String {
        let Marker { run, drive, lane, epoch, seen, synced, .. } = self;
        let folder = &self.folder;
        let handle: Vec<u8> = folder.handle.iter().flat_map(|word| word.to_le_bytes()).collect();
        let handle = hex(&handle[..usize::from(folder.handle_bytes).min(FILE_HANDLE_BYTES_MAX)]);
        let front = format!(
            "run {} drive {} lane {lane:02}\nepoch {epoch:020} seen {seen:020} synced {synced:020}\n",
            hex(run),
            hex(drive)
        );
        let mut rest = format!(
            "folder {} {} {} {} {handle}\ndevice {}\n",
            hex(&folder.file_system),
            folder.inode,
            folder.birth_ns,
            folder.handle_type,
            self.target
        );
        for name in &self.names {
            let _ = writeln!(rest, "names {name}");
        }
        let sum = crc32c(format!("{front}{rest}").as_bytes());
        format!("{HEAD}{front}sum {sum:08x}\n{rest}")
    }

    /// Reads what [`Marker::to_text`] made.
    pub(crate) fn parse(text: &str) -> Option<Marker> {
        let body = text.strip_prefix(HEAD)?;
        let (front, rest) = body.split_once("sum ")?;
        let (sum, rest) = rest.split_once('\n')?;
        if u32::from_str_radix(sum, 16).ok()? != crc32c(format!("{front}{rest}").as_bytes()) {
            return None;
        }
        let mut words = front.split_whitespace();
        let mut value = |name: &str| if words.next()? == name { words.next() } else { None };
        let mut marker = Marker {
            run: from_hex(value("run")?)?.try_into().ok()?,
            drive: from_hex(value("drive")?)?.try_into().ok()?,
            lane: value("lane")?.parse().ok()?,
            epoch: value("epoch")?.parse().ok()?,
            seen: value("seen")?.parse().ok()?,
            synced: value("synced")?.parse().ok()?,
            ..Marker::default()
        };
        for line in rest.lines() {
            match line.split_once(' ')? {
                ("folder", folder) => marker.folder = folder_of(folder)?,
                ("device", target) => marker.target = target.to_owned(),
                ("names", name) if is_finished(name.as_bytes()) => marker.names.push(name.to_owned()),
                _ => return None,
            }
        }
        Some(marker)
    }

    /// Whether a name of the folder may be of the set.
    pub(crate) fn covers(&self, name: &[u8]) -> bool {
        let is = |pattern: &String| matches(pattern.as_bytes(), name);
        self.names.iter().any(is)
    }
}

fn folder_of(text: &str) -> Option<FileBind> {
    let mut words = text.split(' ');
    let mut folder = FileBind {
        file_system: from_hex(words.next()?)?.try_into().ok()?,
        inode: words.next()?.parse().ok()?,
        birth_ns: words.next()?.parse().ok()?,
        handle_type: words.next()?.parse().ok()?,
        ..FileBind::default()
    };
    let handle = from_hex(words.next()?)?;
    folder.handle_bytes = u16::try_from(handle.len()).ok().filter(|len| usize::from(*len) <= FILE_HANDLE_BYTES_MAX)?;
    for (word, bytes) in folder.handle.iter_mut().zip(handle.chunks(8)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    Some(folder)
}

/// Why a marker can't be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unusable(pub(crate) String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A folder of files of a set, open.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

impl Folder {
    /// Opens a folder by an absolute path without symbolic links.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn open(path: &Path) -> Result<Folder, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        openat2(AT_FDCWD, path, how).map(Folder)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Opens a marker, as a stranger may have made it: no link is followed, and no pipe or device waited for.
    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        Ok(File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?))
    }

    /// Reads a marker. `None`: there is none by this name.
    ///
    /// # Errors
    /// Why it is not to be trusted, or can't be read.
    pub(crate) fn read(&self, name: &str) -> Result<Option<Marker>, Unusable> {
        let file = match self.open_file(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(Errno::ELOOP as i32) => {
                return Err(Unusable("it is a symbolic link".into()));
            }
            Err(error) => return Err(Unusable(format!("it can't be opened ({error})"))),
        };
        self.read_file(file).map(Some)
    }

    fn read_file(&self, mut file: File) -> Result<Marker, Unusable> {
        let failed = |error: io::Error| Unusable(format!("it can't be read ({error})"));
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(Unusable("it is no regular file".into()));
        }
        let folder = nix::sys::stat::fstat(&self.0).map_err(|errno| failed(errno.into()))?;
        let owner = about.uid();
        if ![0, folder.st_uid, nix::unistd::geteuid().as_raw()].contains(&owner) {
            return Err(Unusable(format!("it belongs to user {owner}: neither root, nor you, nor the folder's owner")));
        }
        let mut text = String::new();
        let taken = (&mut file).take(BYTES_MAX as u64 + 1).read_to_string(&mut text);
        match taken {
            Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(failed(error)),
            Ok(bytes) if bytes <= BYTES_MAX => {
                Marker::parse(&text).ok_or_else(|| Unusable("it is damaged: it does not read as one".into()))
            }
            _ => Err(Unusable("it is damaged: it does not read as one".into())),
        }
    }

    /// Whether a marker is of this very folder: one that was copied, or restored, is not.
    pub(crate) fn is_of(&self, marker: &Marker) -> bool {
        identify(self.as_fd()).is_ok_and(|is| is_same(&is, &marker.folder))
    }

    /// Writes a marker, and syncs it and the folder. In a program's process the C library is asked for syncs alone: a
    /// library stands before it there.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn write(&self, marker: &Marker, real: &impl Real) -> Result<(), Errno> {
        let marker = Marker { folder: identify(self.as_fd())?, ..marker.clone() };
        let name = name_of(&marker.run);
        // Of this process alone: one that died amid its own leaves it to [`Folder::remove`].
        let new = format!("{name}.{}{NEW}", std::process::id());
        let system = |error: rustix::io::Errno| Errno::from_raw(error.raw_os_error());
        match rustix::fs::unlinkat(&self.0, &new, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(system(error)),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let file = rustix::fs::openat(&self.0, &new, flags, mode).map_err(system)?;
        let text = marker.to_text();
        let mut left = text.as_bytes();
        let written = loop {
            match rustix::io::write(&file, left) {
                Ok(done) if done == left.len() => break real.sync(file.as_fd()),
                Ok(done) => left = &left[done..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => break Err(system(error)),
            }
        };
        let renamed = || rustix::fs::renameat(&self.0, &new, &self.0, &name).map_err(system);
        let done = written.and_then(|()| renamed());
        if done.is_err() {
            let _ = rustix::fs::unlinkat(&self.0, &new, AtFlags::empty());
        }
        done?;
        match real.sync(self.as_fd()) {
            Err(Errno::EINVAL) => Ok(()),
            done => done,
        }
    }

    /// Brings a run's marker up to date in its place, durably once what it returns is synced (`fdatasync`). `None`:
    /// there is no such marker, or another.
    ///
    /// # Errors
    /// Those of the system: it may say what it said before.
    pub(crate) fn advance(&self, run: &[u8; 16], change: impl FnOnce(&mut Marker)) -> io::Result<Option<File>> {
        let file = match self.open_file(&name_of(run), OFlags::RDWR) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // A second name of it may be a file of any kind.
        let is_alone = file.metadata()?.nlink() == 1;
        let Ok(was) = self.read_file(file.try_clone()?) else { return Ok(None) };
        if was.run != *run || !is_alone {
            return Ok(None);
        }
        let mut marker = was.clone();
        change(&mut marker);
        if marker != was {
            file.write_all_at(marker.to_text().as_bytes(), 0)?;
        }
        Ok(Some(file))
    }

    /// Removes a marker, whatever it is, and what writers that died have left of it. The folder is not synced.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn remove(&self, name: &str) -> io::Result<bool> {
        let mut own = vec![name.as_bytes().to_vec()];
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            own.extend(Some(entry.file_name().to_bytes().to_vec()).filter(|other| is_left_of(name, other)));
        }
        let mut is_gone = false;
        for name in &own {
            match rustix::fs::unlinkat(&self.0, name.as_slice(), AtFlags::empty()) {
                Ok(()) => is_gone = true,
                Err(rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(is_gone)
    }

    /// Whether a marker, or what writers of it have left, is all that is in the folder.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn has_only(&self, name: &str) -> io::Result<bool> {
        let mut has_any = false;
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            match entry.file_name().to_bytes() {
                b"." | b".." => {}
                own if own == name.as_bytes() || is_left_of(name, own) => has_any = true,
                _ => return Ok(false),
            }
        }
        Ok(has_any)
    }

    /// Makes names durable. Some file systems have no sync of folders, and need none.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn sync(&self) -> io::Result<()> {
        match nix::unistd::fsync(&self.0) {
            Err(Errno::EINVAL) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Names in the folder: those of markers, and others that are no folders.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn names(&self) -> io::Result<(Vec<String>, Vec<Vec<u8>>)> {
        let (mut markers, mut others) = (Vec::new(), Vec::new());
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if entry.file_type() == rustix::fs::FileType::Directory {
                continue;
            }
            match std::str::from_utf8(name) {
                // One that was not finished promises nothing.
                Ok(name) if name.starts_with(PREFIX) && name.ends_with(NEW) => {}
                Ok(name) if name.starts_with(PREFIX) => markers.push(name.to_owned()),
                _ => others.push(name.to_vec()),
            }
        }
        markers.sort();
        Ok((markers, others))
    }
}

/// The set of a layer, which says itself which files are of it.
pub(crate) const ALL: &str = "/**";

/// The folder of a file, and its name in it.
pub(crate) fn split(path: &[u8]) -> Option<(&Path, &[u8])> {
    let path = Path::new(OsStr::from_bytes(path));
    Some((path.parent()?, path.file_name()?.as_bytes()))
}

/// Whether a folder has a run's marker.
pub(crate) fn is_marked(folder: &Path, run: &[u8; 16]) -> bool {
    Folder::open(folder).is_ok_and(|opened| opened.read(&name_of(run)) != Ok(None))
}

/// Removes a run's marker from a folder, durably. A folder that is gone has none.
///
/// # Errors
/// Those of the system.
pub(crate) fn remove(path: &Path, run: &[u8; 16]) -> io::Result<()> {
    remove_by(path, run, Folder::sync)
}

/// As [`remove`], with a sync of the folder as the process makes it.
pub(crate) fn remove_by(path: &Path, run: &[u8; 16], sync: impl FnOnce(&Folder) -> io::Result<()>) -> io::Result<()> {
    let failed = |error: io::Error| {
        let why = format!("{}: its marker {} can't be removed ({error})", path.display(), name_of(run));
        io::Error::new(error.kind(), why)
    };
    match Folder::open(path) {
        Ok(folder) => match folder.remove(&name_of(run)) {
            Ok(true) => sync(&folder).map_err(failed),
            done => done.map(drop).map_err(failed),
        },
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Ok(()),
        Err(errno) => Err(failed(errno.into())),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::system::Plain;

    pub(crate) fn a_marker() -> Marker {
        Marker {
            run: *b"a run of 16 byte",
            drive: [0xAB; 16],
            lane: 3,
            epoch: 257,
            seen: 4_096,
            synced: 192,
            names: vec!["*.log".into(), "a b[c]".into()],
            target: "vfio-user:/srv/log/vfio.sock".into(),
            folder: FileBind::default(),
        }
    }

    #[test]
    fn a_marker_is_read_as_it_was_written_and_is_of_its_folder_alone() {
        let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let open = |folder: &tempfile::TempDir| Folder::open(&folder.path().canonicalize().expect("the folder exists"));
        let [here, there] = [&one, &other].map(|folder| open(folder).expect("it opens"));
        let marker = a_marker();
        let name = name_of(&marker.run);
        assert_eq!(here.read(&name), Ok(None));
        here.write(&marker, &Plain).expect("the file can be written");
        let read = here.read(&name).expect("the marker is whole").expect("the marker exists");
        assert_eq!(Marker { folder: FileBind::default(), ..read.clone() }, marker);
        assert!(here.is_of(&read) && !there.is_of(&read));
        assert!(read.covers(b"x.log") && read.covers(b"a bc") && !read.covers(b"x.lo"));
        std::fs::write(one.path().join("file"), "").expect("the file can be written");
        assert_eq!(here.names().expect("the folder can be read"), (vec![name.clone()], vec![b"file".to_vec()]));
        let done = here.advance(&marker.run, |marker| marker.synced = u64::MAX).expect("the marker can be written");
        assert!(done.is_some());
        assert_eq!(
            here.read(&name).expect("the marker is whole").expect("the marker exists"),
            Marker { synced: u64::MAX, ..read }
        );
        let first = marker.to_text().find("sum ").expect("the marker has a checksum");
        assert!(first + 12 < 512, "what changes is within one sector");
        // A writer that was killed, in another process.
        std::fs::write(one.path().join(format!("{name}.1.new")), "half").expect("the file can be written");
        assert!(!here.has_only(&name).expect("the folder can be read"), "there is a file");
        std::fs::remove_file(one.path().join("file")).expect("the file can be removed");
        assert!(here.has_only(&name).expect("the folder can be read"));
        assert!(
            here.remove(&name).expect("the file can be removed")
                && !here.remove(&name).expect("a missing file is no error")
        );
        assert_eq!(std::fs::read_dir(one.path()).expect("the folder can be read").count(), 0);
        assert!(!here.has_only(&name).expect("the folder can be read"), "there is no marker");
    }

    #[test]
    fn what_is_no_marker_is_refused_and_never_written_to() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("the folder exists");
        let here = Folder::open(&path).expect("it opens");
        let marker = a_marker();
        let name = name_of(&marker.run);
        let text =
            Marker { folder: identify(here.as_fd()).expect("the folder has an identity"), ..marker.clone() }.to_text();
        let own = path.join(&name);
        let refused = |why: &str| {
            let said = here.read(&name).expect_err(why).to_string();
            assert!(said.contains(why), "{said}");
            let done = here.advance(&marker.run, |marker| marker.seen += 1);
            assert!(!done.is_ok_and(|file| file.is_some()), "{why}");
        };
        for wrong in ["", "run", &text[..text.len() - 2], &text.replace("lane 03", "lane 04"), &"x".repeat(BYTES_MAX)] {
            std::fs::write(&own, wrong).expect("the file can be written");
            refused("damaged");
        }
        std::fs::write(&own, [0xFF; 64]).expect("the file can be written");
        refused("damaged");
        std::fs::remove_file(&own).expect("the file can be removed");
        std::fs::write(path.join("file"), &text).expect("the file can be written");
        std::os::unix::fs::symlink(path.join("file"), &own).expect("a link");
        refused("symbolic link");
        std::fs::remove_file(&own).expect("the file can be removed");
        nix::unistd::mkfifo(&own, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        refused("no regular file");
        std::fs::remove_file(&own).expect("the file can be removed");
        // A second name of another file.
        std::fs::hard_link(path.join("file"), &own).expect("a link");
        assert!(here.advance(&marker.run, |marker| marker.seen += 1).expect("the marker can be written").is_none());
        assert_eq!(std::fs::read_to_string(path.join("file")).expect("the file can be read"), text);
        if nix::unistd::geteuid().is_root() {
            std::fs::remove_file(&own).expect("the file can be removed");
            here.write(&marker, &Plain).expect("the file can be written");
            std::os::unix::fs::chown(&own, Some(4711), None).expect("root can change the owner");
            refused("belongs to user 4711");
        }
        assert!(Folder::open(&path.join(&name)).is_err());
    }
}
