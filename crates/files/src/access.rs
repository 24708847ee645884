//! Access of recovery to files: which of them a log may change, and how they are opened.
//!
//! The log itself names its files, so any user with write access to the log chooses them: a `stat` of a file gives all
//! that a record of it needs. Recovery must not lend that user the caller's rights. So a file has to belong to each
//! user who can have written the log, root apart; it has to be the caller's, or, for root, its folder's owner's; and
//! the file that is checked is the file that is opened.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::libc;
use nix::sys::stat::{FileStat, Mode};
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::{UnlinkatFlags, unlinkat};
use tidewater_wire::log::FileBind;

use crate::Globs;
use crate::handle::{identify, is_same, is_same_there};
use crate::report::Rules;

/// FUSE_SUPER_MAGIC (linux/magic.h), TMPFS_MAGIC, RAMFS_MAGIC: file systems that may not tell how many blocks they
/// have.
const UNCOUNTED: [i64; 3] = [0x6573_5546, 0x0102_1994, 0x8584_58f6];

/// Bits of a set-group-ID program; the first alone is none.
const SET_GROUP: u32 = libc::S_ISGID | libc::S_IXGRP;

/// Whose files, and which, a log may change.
#[derive(Debug)]
pub(crate) struct Access<'r> {
    globs: Option<&'r Globs>,
    owners: &'r [u32],
    /// Beside root and the caller.
    others: Vec<u32>,
    caller: u32,
}

/// A file that may be changed.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    folder: OwnedFd,
}

/// Result of opening a file by a name from the log.
enum Found {
    /// The file.
    Opened(Opened),
    /// The file, by a name that is not of the set.
    Outside,
    /// Nothing, or another.
    Nothing,
}

/// Why a file that is there must not be changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Its name is not of the set that was given.
    OutsideOfSet,
    /// In words.
    Why(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::OutsideOfSet => f.write_str(
                "the file is there by this name, which is not of the log set (--log): \
                 rename it back, or recover without --log",
            ),
            Refused::Why(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Refused {}

impl Opened {
    /// Syncs the file, and its name.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()?;
        sync_names(&self.folder);
        Ok(())
    }
}

impl<'r> Access<'r> {
    /// For this process, and a log that these users can have written.
    pub(crate) fn new(rules: &'r Rules, writers: &[u32]) -> Access<'r> {
        let caller = nix::unistd::geteuid().as_raw();
        let mut others: Vec<u32> = writers.iter().copied().filter(|user| ![0, caller].contains(user)).collect();
        others.sort_unstable();
        others.dedup();
        Access { globs: rules.globs.as_ref(), owners: &rules.owners, others, caller }
    }

    /// Users beside root and the caller who can have written the log.
    pub(crate) fn others(&self) -> &[u32] {
        &self.others
    }

    /// Opens a file of the log. `None`: it is not there, or another is.
    ///
    /// # Errors
    /// Why it must not be changed, in words, or what the system said.
    pub(crate) fn open(&self, name: &Path, bind: &FileBind) -> Result<Option<Opened>, Refused> {
        let is_of_set = self.globs.is_none_or(|globs| globs.matches(name.as_os_str().as_bytes()));
        // By a name outside of the set it is only looked for: the log has such names of files that came into the set by
        // a rename.
        match self.try_open(name, bind, is_of_set) {
            Err(_) if !is_of_set => Ok(None),
            Ok(Found::Outside) => Err(Refused::OutsideOfSet),
            Ok(Found::Opened(opened)) => Ok(Some(opened)),
            Ok(Found::Nothing) => Ok(None),
            Err(why) => Err(Refused::Why(why)),
        }
    }

    fn try_open(&self, name: &Path, bind: &FileBind, is_of_set: bool) -> Result<Found, String> {
        // A set is one of names: `..` leads out of it.
        let (Some(parent), Some(last), true) = (name.parent(), name.file_name(), is_plain(name)) else {
            return Err("its name is no absolute path without `.` and `..`".into());
        };
        let how = |flags: OFlag, more: ResolveFlag| {
            let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | flags;
            OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | more)
        };
        let in_folder = openat2(AT_FDCWD, parent, how(OFlag::O_DIRECTORY, ResolveFlag::empty())).and_then(|folder| {
            // Looked at before it is opened: to open a device may do something.
            let path = openat2(&folder, last, how(OFlag::O_NOFOLLOW, ResolveFlag::RESOLVE_BENEATH))?;
            Ok((folder, File::from(path)))
        });
        let (folder, path) = match in_folder {
            Ok(both) => both,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(Found::Nothing),
            Err(Errno::ELOOP) => return Err("a symbolic link stands in its way, and none is followed".into()),
            Err(errno) => return Err(errno.desc().into()),
        };
        let system = |errno: Errno| errno.desc().to_owned();
        let about = path.metadata().map_err(|error| error.to_string())?;
        if about.file_type().is_symlink() {
            return Err("a symbolic link has its name, and none is followed".into());
        }
        if !about.file_type().is_file() {
            return Err("it is no regular file".into());
        }
        if !is_same_there(&identify(path.as_fd()).map_err(system)?, bind) {
            return Ok(Found::Nothing);
        }
        if !is_of_set {
            return Ok(Found::Outside);
        }
        if is_of_the_kernel(&path).map_err(system)? {
            return Err("it is one of the system's own (proc, sys), and no place for bytes".into());
        }
        self.may_change(&about, nix::sys::stat::fstat(&folder).map_err(system)?.st_uid)?;
        // This very file, whatever has its name by now.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(format!("/proc/self/fd/{}", path.as_raw_fd()))
            .map_err(|error| self.not_opened(name, &about, &error))?;
        let found = identify(file.as_fd()).map_err(system)?;
        Ok(if is_same(&found, bind) { Found::Opened(Opened { file, folder }) } else { Found::Nothing })
    }

    /// Opens a file of a directory that a log is replayed onto, whichever file has the name there. `None`: there is
    /// none.
    /// `create`: it is made, for the user alone whose directory it is.
    ///
    /// # Errors
    /// Why it must not be changed, in words, or what the system said.
    pub(crate) fn open_onto(&self, name: &Path, create: bool) -> Result<Option<Opened>, String> {
        let Some((folder, last)) = self.folder_onto(name)? else {
            return if create { Err(missing(name)) } else { Ok(None) };
        };
        let no_links = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_BENEATH;
        let flags = OFlag::O_RDWR | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let how = OpenHow::new().resolve(no_links);
        let of_folder = nix::sys::stat::fstat(&folder).map_err(in_words)?;
        let mut opened = openat2(&folder, last, how.flags(flags));
        if create && matches!(opened, Err(Errno::ENOENT)) {
            self.may_create_in(&of_folder)?;
            let new = how.flags(flags | OFlag::O_CREAT | OFlag::O_EXCL).mode(Mode::S_IRUSR | Mode::S_IWUSR);
            opened = openat2(&folder, last, new);
            if let Ok(file) = &opened
                && of_folder.st_uid != self.caller
                && self.caller == 0
            {
                nix::unistd::fchown(file, Some(of_folder.st_uid.into()), Some(of_folder.st_gid.into()))
                    .map_err(in_words)?;
            }
        }
        let file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::ENOENT) => return Ok(None),
            Err(errno) => return Err(in_words(errno)),
        };
        let about = file.metadata().map_err(|error| error.to_string())?;
        if !about.file_type().is_file() || is_of_the_kernel(&file).map_err(in_words)? {
            return Err("it is no regular file".into());
        }
        self.may_replace(about.uid(), of_folder.st_uid)?;
        self.may_change(&about, of_folder.st_uid)?;
        Ok(Some(Opened { file, folder }))
    }

    /// The directory of a file that a log is replayed onto, and the file's name there. `None`: it is missing.
    fn folder_onto<'n>(&self, name: &'n Path) -> Result<Option<(OwnedFd, &'n OsStr)>, String> {
        let (Some(parent), Some(last), true) = (name.parent(), name.file_name(), is_plain(name)) else {
            return Err("its name is no absolute path without `.` and `..`".into());
        };
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
        match openat2(AT_FDCWD, parent, how) {
            Ok(folder) => Ok(Some((folder, last))),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(in_words(errno)),
        }
    }

    /// Whether a file that a log is replayed onto, and that is missing, may be made.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn may_create(&self, name: &Path) -> Result<(), String> {
        let (folder, _) = self.folder_onto(name)?.ok_or_else(|| missing(name))?;
        self.may_create_in(&nix::sys::stat::fstat(&folder).map_err(in_words)?)
    }

    fn may_create_in(&self, folder: &FileStat) -> Result<(), String> {
        let owner = if self.caller == 0 { folder.st_uid } else { self.caller };
        self.may_replace(owner, folder.st_uid)?;
        self.may_be_written(owner)
    }

    /// Gives a file of a directory that a log is replayed onto another name, or with `to` none, and syncs the names.
    ///
    /// # Errors
    /// As [`Access::open_onto`].
    pub(crate) fn move_onto(&self, name: &Path, to: Option<&Path>) -> Result<(), String> {
        // What must not be changed must not be moved either.
        let (Some(opened), Some(last)) = (self.open_onto(name, false)?, name.file_name()) else { return Ok(()) };
        match to {
            None => unlinkat(&opened.folder, last, UnlinkatFlags::NoRemoveDir).map_err(in_words)?,
            Some(to) => {
                let (folder, new) = self.folder_onto(to)?.ok_or_else(|| missing(to))?;
                renameat(&opened.folder, last, &folder, new).map_err(in_words)?;
                sync_names(&folder);
            }
        }
        sync_names(&opened.folder);
        Ok(())
    }

    /// A replay onto a copy takes a file by its name alone. In another user's directory, this user may have put any
    /// file there by a hard link: only that user's own files are taken then.
    fn may_replace(&self, owner: u32, folder: u32) -> Result<(), String> {
        if folder == owner || folder == self.caller || folder == 0 && self.caller != 0 {
            return Ok(());
        }
        Err(format!("it belongs to user {owner}, and its folder to user {folder}, who may have put it there"))
    }

    /// Whether a file may be changed, by what it is and by its folder's owner.
    fn may_change(&self, about: &Metadata, folder: u32) -> Result<(), String> {
        let owner = about.uid();
        match self.caller {
            caller if owner == caller => {}
            0 if owner == folder => {}
            // A hard link in another user's folder would bring this file under that user's log.
            0 => return Err(format!("it belongs to user {owner}, and its folder to another")),
            _ => return Err(format!("it belongs to user {owner}: recover as that user")),
        }
        // What root writes keeps these bits, where the system takes them from a file that anybody else writes.
        if about.mode() & libc::S_ISUID != 0 || about.mode() & SET_GROUP == SET_GROUP {
            return Err("it is set-user-ID or set-group-ID, and no file of a log is".into());
        }
        self.may_be_written(owner)
    }

    /// Whether those who can have written the log may change files of this owner.
    fn may_be_written(&self, owner: u32) -> Result<(), String> {
        if !self.owners.is_empty() {
            return match self.owners.contains(&owner) {
                true => Ok(()),
                false => Err(format!("it belongs to user {owner}, and to none of those that --allow-owner names")),
            };
        }
        match self.others.iter().find(|user| **user != owner) {
            None => Ok(()),
            Some(user) => Err(format!(
                "it belongs to user {owner}, and the log is user {user}'s, who may change files of that user alone; \
                 if it is to be changed all the same: --allow-owner {owner}"
            )),
        }
    }

    /// Why a file that may be changed was not opened.
    fn not_opened(&self, name: &Path, about: &Metadata, error: &io::Error) -> String {
        if error.kind() == io::ErrorKind::PermissionDenied
            && about.uid() == self.caller
            && about.mode() & libc::S_IWUSR == 0
        {
            // The mode is not changed here: a user took the right to write on purpose, and has to give it back.
            let name = name.display();
            return format!(
                "its mode {:04o} allows no user to write it: `chmod u+w {name}`, then recover again",
                about.mode() & 0o7777
            );
        }
        error.raw_os_error().map_or_else(|| error.to_string(), |errno| Errno::from_raw(errno).desc().to_owned())
    }
}

/// Syncs a folder by what was opened: a name may have become one that never opens. Some file systems have no sync of
/// folders, and need none.
fn sync_names(folder: &OwnedFd) {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let _ = openat(folder, ".", flags, Mode::empty()).and_then(|folder| nix::unistd::fsync(&folder));
}

fn in_words(errno: Errno) -> String {
    match errno {
        Errno::ELOOP => "a symbolic link stands in its way, and none is followed".to_owned(),
        errno => errno.desc().to_owned(),
    }
}

/// Why a file without its directory is not made.
fn missing(name: &Path) -> String {
    format!("the directory {} is missing", name.parent().unwrap_or(name).display())
}

/// Whether a path is absolute, and says nothing but names.
fn is_plain(path: &Path) -> bool {
    let names = path.as_os_str().as_bytes().strip_prefix(b"/");
    names.is_some_and(|names| names.split(|byte| *byte == b'/').all(|name| !matches!(name, b"" | b"." | b"..")))
}

/// Whether a file is of a file system that keeps none, and to which a write is an order (`/proc/PID/uid_map`): it
/// belongs to the process's user, and counts as a regular file. Such file systems have no blocks.
fn is_of_the_kernel(file: &File) -> Result<bool, Errno> {
    let about = fstatfs(file)?;
    Ok(about.blocks() == 0 && !UNCOUNTED.iter().any(|kind| about.filesystem_type() == FsType(*kind)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_changed_for_a_user_by_logs_that_he_or_root_wrote_and_by_others_where_it_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        File::create(&path).expect("a new file");
        let about = path.metadata().expect("the file exists");
        let owner = about.uid();
        let [other, third] = [owner + 1, owner + 2];
        let may = |caller: u32, folder: u32, others: &[u32], owners: &[u32]| {
            let access = Access { globs: None, owners, others: others.to_vec(), caller };
            access.may_change(&about, folder)
        };
        assert_eq!(may(owner, third, &[], &[]), Ok(()), "his own or root's log, in whatever folder");
        assert_eq!(may(owner, owner, &[], &[third, owner]), Ok(()));
        assert!(may(owner, owner, &[], &[third]).is_err_and(|why| why.contains("--allow-owner names")));
        let why = may(owner, owner, &[other], &[]).expect_err("his file, by another's log");
        assert!(
            why.contains(&format!("the log is user {other}'s")) && why.contains(&format!("--allow-owner {owner}")),
            "{why}"
        );
        assert_eq!(may(owner, owner, &[other], &[owner]), Ok(()));
        assert!(may(other, other, &[], &[]).is_err_and(|why| why.contains("recover as that user")));
        assert!(may(other, other, &[], &[owner]).is_err(), "what is said gives no rights");
        let replaces = |caller: u32, folder: u32| {
            let access = Access { globs: None, owners: &[], others: Vec::new(), caller };
            access.may_replace(caller, folder).is_ok()
        };
        assert!(replaces(0, 0) && replaces(owner, owner) && replaces(7, 0), "a copy in their own folder, or root's");
        assert!(!replaces(0, 7) && !replaces(7, 8), "by a hard link that the folder's owner made");
        if owner != 0 {
            assert_eq!(may(0, owner, &[owner], &[]), Ok(()), "root, for its owner");
            assert!(may(0, other, &[owner], &[owner]).is_err_and(|why| why.contains("its folder to another")));
            assert!(may(0, owner, &[owner, other], &[]).is_err(), "a device of one, with a ring of another");
        }
    }

    #[test]
    fn only_those_who_are_not_trusted_anyhow_count_as_others() {
        let me = nix::unistd::geteuid().as_raw();
        let rules = Rules::default();
        assert_eq!(Access::new(&rules, &[me + 2, 0, me, me + 1, me + 2]).others(), [me + 1, me + 2]);
    }

    #[test]
    fn names_are_names_and_nothing_else() {
        assert!(is_plain(Path::new("/a")) && is_plain(Path::new("/a/..b/.c/d.")));
        for path in ["", "/", "a", "a/b", "/a/", "//a", "/a//b", "/a/./b", "/./a", "/a/../b", "/..", "/a/.."] {
            assert!(!is_plain(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_set_user_id_program_is_refused_and_a_file_that_others_may_write_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        File::create(&path).expect("a new file");
        let rules = Rules::default();
        let access = Access::new(&rules, &[]);
        for (mode, is_fine) in [(0o666, true), (0o2644, true), (0o4600, false), (0o2710, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("the mode can be changed");
            let about = path.metadata().expect("the file exists");
            assert_eq!(access.may_change(&about, about.uid()).is_ok(), is_fine, "{mode:o}");
        }
    }
}
