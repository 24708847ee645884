//! A volume as a file system of this machine, by FUSE.
//!
//! The kernel's write-back cache is off: each `write` reaches the volume before it returns. Pages that are stored into
//! by `mmap` reach it when the kernel writes them back: at `msync`, `fsync`, the last `close`, or when it chooses.

mod files;
mod live;
mod writer;

use crate::image::{Blocks, Image, ImageError};
use crate::operation::Operation;
use crate::tree::Tree;
use crate::volume::{Rules, Volume};
use files::Files;
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use live::Live;
use nix::errno::Errno;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use writer::Writer;

/// A file in the topmost folder, in no listing: each line that is written to it is an acknowledged id.
pub const ACKNOWLEDGE: &str = ".tidewater-ack";
/// A file in the topmost folder, in no listing: it takes a [`crate::control::Request`], and gives the answer.
pub const CONTROL: &str = ".tidewater-control";

/// Where an image lies.
#[derive(Debug)]
pub enum Source {
    /// In a file.
    File(PathBuf),
    /// On blocks, with a name for messages.
    Blocks(String, Box<dyn Blocks>),
}

/// How a volume is mounted.
#[derive(Debug)]
pub struct Options {
    /// Where: a folder that is there.
    pub folder: PathBuf,
    /// Rules of the volume.
    pub rules: Rules,
    /// Where it keeps what is durable; `None`: in memory.
    pub image: Option<Source>,
    /// Keep the whole log, for [`Mount::end`]; otherwise its durable beginning is forgotten.
    pub keep_log: bool,
    /// Bytes that the log may hold, about. Beyond that, a volume that keeps its log is full, and another becomes
    /// durable as by `sync`.
    pub log_max: u64,
}

/// Why a volume can't be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The image.
    #[error("{0}: {1}")]
    Image(String, ImageError),
    /// There is no FUSE here.
    #[error("{0}")]
    NoFuse(&'static str),
    /// This user may not use FUSE.
    #[error("/dev/fuse: {0}")]
    Denied(io::Error),
    /// The system refused.
    #[error("{}: {}", .0.display(), .1)]
    Refused(PathBuf, io::Error),
}

/// A mounted volume. It is unmounted when this is dropped.
pub struct Mount {
    session: Option<BackgroundSession>,
    live: Arc<Shared>,
    folder: PathBuf,
}

/// Shared by the file system's thread and [`Mount`].
#[derive(Debug)]
struct Shared {
    live: Mutex<Live>,
    /// Faults are armed or cleared.
    moved: std::sync::Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the image anew without what was overwritten. All changes become durable by that, as by memory pressure:
    /// later ones would otherwise come before those that the new image begins with.
    fn make_room(&self, writer: &Writer) -> io::Result<()> {
        let mut live = self.lock();
        live.volume.record(Operation::SyncAll);
        let lines = live.take_lines();
        let replaced = writer.replace(live.volume.seen());
        live.volume.fold();
        replaced.map_err(|error| {
            // It goes with the next, when files have been removed.
            live.give_back(lines);
            match error {
                ImageError::Io(error) => error,
                other => io::Error::other(other),
            }
        })
    }

    /// Waits until a time, or until this is so.
    fn wait(&self, until: Instant, is_over: impl Fn(&Live) -> bool) -> MutexGuard<'_, Live> {
        let mut live = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_over(&live) {
                return live;
            }
            live = self.moved.wait_timeout(live, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Mount {
    /// Mounts a volume. What an earlier mount left here, whose process was killed, is unmounted first.
    ///
    /// # Errors
    /// Where FUSE is missing, the folder or the image can't be used.
    pub fn new(options: Options) -> Result<Mount, MountError> {
        let folder = options.folder;
        let refused = |error: io::Error| MountError::Refused(folder.clone(), error);
        // What the kernel knows of a folder it says for a second after the process has gone; opening asks the process.
        if std::fs::File::open(&folder).is_err_and(|error| error.raw_os_error() == Some(Errno::ENOTCONN as i32)) {
            unmount_lazily(&folder).map_err(refused)?;
        }
        let folder = folder.canonicalize().map_err(refused)?;
        if !folder.is_dir() {
            return Err(MountError::Refused(folder, io::ErrorKind::NotADirectory.into()));
        }
        if !Path::new("/dev/fuse").exists() {
            return Err(MountError::NoFuse("/dev/fuse is not there: the kernel or the container has no FUSE"));
        }
        // `fusermount3` opens it as the user who calls it.
        match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(MountError::Denied(error)),
            _ => {}
        }
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        let empty = Tree::of(uid.as_raw(), gid.as_raw());
        let (name, opened) = match options.image {
            Some(Source::File(path)) => (path.display().to_string(), Image::open(&path, empty).map(Some)),
            Some(Source::Blocks(name, blocks)) => (name, Image::on_blocks(blocks, empty).map(Some)),
            None => (String::new(), Ok(None)),
        };
        let opened = opened.map_err(|error| MountError::Image(name, error))?;
        let (writer, tree) = match opened {
            Some((image, tree)) => (Some(Arc::new(Writer::new(image))), tree),
            None => (None, Tree::of(uid.as_raw(), gid.as_raw())),
        };
        let live = Live::new(Volume::of(tree, options.rules), writer.clone(), options.keep_log, options.log_max);
        let live = Arc::new(Shared { live: Mutex::new(live), moved: std::sync::Condvar::new() });
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("tidewater".into()),
            MountOption::Subtype("tidewater".into()),
            MountOption::DefaultPermissions,
        ];
        // A database's own user uses the mount of root, too; other users' mounts are theirs alone.
        config.acl = if uid.is_root() { SessionACL::All } else { SessionACL::Owner };
        let session =
            fuser::spawn_mount(Files(Arc::clone(&live)), &folder, &config).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    MountError::NoFuse("fusermount3 is missing, and only root mounts without it")
                }
                io::ErrorKind::PermissionDenied => {
                    MountError::NoFuse("this user may not mount: /dev/fuse or fusermount3 refuses it")
                }
                _ => MountError::Refused(folder.clone(), error),
            })?;
        if let Some(writer) = writer {
            let live = Arc::clone(&live);
            std::thread::spawn(move || writer.run(|| live.make_room(&writer)));
        }
        Ok(Mount { session: Some(session), live, folder })
    }

    /// Where it is mounted.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether it was unmounted from outside.
    pub fn is_gone(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Whether the log holds as much as it may.
    pub fn is_full(&self) -> bool {
        let live = self.live.lock();
        live.volume.logged() > live.log_max
    }

    /// Faults that have struck, in words; `None`: none has.
    pub fn struck(&self) -> Option<String> {
        self.live.lock().struck()
    }

    /// Makes everything durable, and begins the log anew with what is there.
    pub fn settle(&self) {
        let mut live = self.live.lock();
        live.volume = Volume::of(live.volume.seen().clone(), live.volume.rules());
    }

    /// Unmounts, and returns the volume. One that does not keep its log becomes durable first, as by any orderly
    /// unmount.
    ///
    /// # Errors
    /// When the system refuses the unmount, or the image can't be written.
    pub fn end(mut self) -> io::Result<Volume> {
        // The kernel writes back what is dirty in mapped pages.
        self.unmount()?;
        let mut live = self.live.lock();
        if !live.keep_log {
            let failed = |_| io::Error::other("the image can't be written: what was not synced is lost");
            live.record(Operation::SyncAll).map_err(failed)?;
            let (tell, told) = channel();
            // The receiver waits for it.
            live.commit(move |done| _ = tell.send(done));
            drop(live);
            told.recv().unwrap_or(Err(fuser::Errno::EIO)).map_err(failed)?;
            live = self.live.lock();
        }
        Ok(std::mem::take(&mut live.volume))
    }

    fn unmount(&mut self) -> io::Result<()> {
        let Some(session) = self.session.take().filter(|session| !session.guard.is_finished()) else { return Ok(()) };
        // A lazy unmount succeeds also while files are open; the session ends when the last is closed.
        unmount_lazily(&self.folder)?;
        drop(session);
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Its process ends; what can't be unmounted is said by the next mount there.
        let _ = self.unmount();
        if let Some(writer) = &self.live.lock().writer {
            writer.close();
        }
    }
}

/// Unmounts a folder even while files there are open.
///
/// # Errors
/// When the system refuses it.
pub fn unmount_lazily(folder: &Path) -> io::Result<()> {
    if nix::mount::umount2(folder, nix::mount::MntFlags::MNT_DETACH).is_ok() {
        return Ok(());
    }
    let done = Command::new("fusermount3").arg("-uz").arg("--").arg(folder).output()?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if done.status.success() { Ok(()) } else { Err(io::Error::other(said)) }
}
