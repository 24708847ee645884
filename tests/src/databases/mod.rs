//! Databases as a distribution ships them, started in a folder of their own, loaded with commits that are recorded when
//! they are acknowledged, and read back: shared by the crash campaigns (`make test-databases`) and by `make
//! bench-databases`.
//!
//! Nothing of a database is changed. Every server listens on a socket in its folder and nowhere else.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub mod device;
pub mod group;
pub mod ledger;
pub mod plain;
pub mod postgresql;
pub mod process;
pub mod redis;
pub mod rocksdb;
pub mod sqlite;
pub mod witness;

use crate::{PATIENCE, wait};
pub use ledger::{Contents, Ledger, Row, Verdict};
use process::User;

/// The flush that a commit of the database waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// Its own flush, as shipped: `fdatasync` of its log.
    Real,
    /// Nothing: the database's own switch for that (`fsync=off` and its likes).
    None,
}

/// A level of `tidewater run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// In the ring.
    Ring,
    /// On the device's store, synced.
    Destaged,
    /// In the rings of replicas, too.
    RemoteRing,
    /// On the stores of replicas, too.
    RemoteDestaged,
}

impl Level {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Ring => "ring",
            Level::Destaged => "destaged",
            Level::RemoteRing => "remote-ring",
            Level::RemoteDestaged => "remote-destaged",
        }
    }
}

/// A scratch folder of one database: its data, its sockets, what it said, and what a disk would have kept of it.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
    user: Option<User>,
}

impl Place {
    /// Makes it. Its files belong to `user`, if one is given.
    ///
    /// # Errors
    /// Those of the file system, in words.
    pub fn new(folder: &Path, user: Option<User>) -> Result<Self, String> {
        let place = Self { folder: folder.to_owned(), user };
        for one in [folder.to_owned(), place.data(), place.sockets(), place.shadows(), place.device()] {
            std::fs::create_dir_all(&one).map_err(|error| format!("{}: {error}", one.display()))?;
            place.give(&one)?;
        }
        Ok(place)
    }

    /// Makes the place's user the owner of a file.
    ///
    /// # Errors
    /// Those of the file system, in words.
    pub fn give(&self, path: &Path) -> Result<(), String> {
        let Some(user) = self.user else { return Ok(()) };
        std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The whole of it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The database's files.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// The database's sockets.
    pub fn sockets(&self) -> PathBuf {
        self.folder.join("s")
    }

    /// The witness's copies.
    pub fn shadows(&self) -> PathBuf {
        self.folder.join("shadows")
    }

    /// The device's image, ring and sockets.
    pub fn device(&self) -> PathBuf {
        self.folder.join("device")
    }

    /// A program that runs here, as the place's user, with nothing on its standard input; what it says is added to
    /// `NAME.log`.
    ///
    /// # Errors
    /// The log can't be opened.
    pub fn command(&self, name: &str, program: &Path) -> Result<Command, String> {
        let mut command = Command::new(program);
        let log = self.log(name)?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(log).stderr(errors);
        // A database speaks its users' language; what is read here is English.
        command.env("LC_ALL", "C").env("TZ", "UTC");
        if let Some(user) = self.user {
            process::as_user(&mut command, user);
        }
        Ok(command)
    }

    fn log(&self, name: &str) -> Result<File, String> {
        let path = self.folder.join(format!("{name}.log"));
        OpenOptions::new().create(true).append(true).open(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The last lines of what a program said.
    pub fn said(&self, name: &str) -> String {
        let path = self.folder.join(format!("{name}.log"));
        let text = std::fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join(" | ")
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// It doesn't start, or fails: what it said.
    pub fn run(&self, name: &str, program: &Path, arguments: &[&str]) -> Result<(), String> {
        let mut command = self.command(name, program)?;
        let status = command.args(arguments).status().map_err(|error| format!("{}: {error}", program.display()))?;
        if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}: {}", self.said(name))) }
    }

    /// A copy of the data, in a place of its own.
    ///
    /// # Errors
    /// The message of `cp`.
    pub fn copy(&self, folder: &Path) -> Result<Place, String> {
        let copy = Place::new(folder, self.user)?;
        self.copy_to(&copy)?;
        Ok(copy)
    }

    /// Copies the data to another place. A file that its program removes meanwhile is left out.
    ///
    /// # Errors
    /// The message of `cp`.
    pub fn copy_to(&self, other: &Place) -> Result<(), String> {
        let mut cp = Command::new("cp");
        cp.arg("-a").arg(self.data().join(".")).arg(other.data()).env("LC_ALL", "C");
        let output = cp.output().map_err(|error| format!("cp: {error}"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        let is_gone = |line: &str| line.ends_with("No such file or directory");
        if output.status.success() || errors.lines().all(is_gone) { Ok(()) } else { Err(errors.into_owned()) }
    }

    /// A place beside this one, of the same user.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn beside(&self, name: &str) -> Result<Place, String> {
        Place::new(&self.folder.with_file_name(name), self.user)
    }
}

/// Layers below and above a database's program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Around<'a> {
    /// Keeps what the program syncs.
    pub witness: Option<&'a witness::Witness>,
    /// Puts its log on a device.
    pub device: Option<(&'a device::Device, Level)>,
    /// A library to preload, where there is no witness.
    pub preload: Option<&'a Path>,
    /// Another machine has a copy of the files, which is brought up to date from the log alone.
    pub is_copied: bool,
}

impl Around<'_> {
    /// A server's command: `tidewater run ... -- PROGRAM` where there is a device.
    ///
    /// # Errors
    /// A log file can't be opened.
    pub fn command(&self, place: &Place, name: &str, program: &Path, globs: &[String]) -> Result<Command, String> {
        let mut command = match self.device {
            None => place.command(name, program)?,
            Some((device, level)) => {
                let mut command = place.command(name, device.binary())?;
                command.arg("run").args(["--device", &device.target()]).args(["--level", level.name()]);
                for glob in globs {
                    command.args(["--log", glob]);
                }
                command.arg("--").arg(program);
                command
            }
        };
        if let Some(library) = self.preload {
            command.env("LD_PRELOAD", library);
        }
        if let Some(witness) = self.witness {
            witness.attach(&mut command, &place.shadows());
        }
        Ok(command)
    }
}

/// A database that can be started.
pub trait Database: Sync {
    /// Its name: `postgresql`.
    fn name(&self) -> &'static str;

    /// Under which it says what it has to say ([`Place::said`]).
    fn speaks_as(&self) -> &'static str {
        self.name()
    }

    /// The packages (Debian's names) that aren't there; empty when it can run.
    fn missing(&self) -> Vec<&'static str>;

    /// How many clients commit at the same time.
    fn writers(&self) -> u32;

    /// Who runs it, when we may not.
    ///
    /// # Errors
    /// There is no such user.
    fn user(&self) -> Result<Option<User>, String> {
        Ok(None)
    }

    /// Makes an empty database in a new place. Nothing runs afterwards.
    ///
    /// # Errors
    /// The message of its programs.
    fn create(&self, place: &Place) -> Result<(), String>;

    /// Its log files, as `tidewater run --log` takes them.
    fn globs(&self, place: &Place) -> Vec<String>;

    /// Whether a copy of its files can be brought up to date from the log alone.
    fn is_copyable(&self) -> bool {
        false
    }

    /// Copies its files to another place, while it runs and writers commit.
    ///
    /// # Errors
    /// The message of the database or of `cp`.
    fn copy(&self, place: &Place, other: &Place) -> Result<(), String> {
        place.copy_to(other)
    }

    /// Starts it, which recovers what is there, and waits until it answers.
    ///
    /// # Errors
    /// It ends, or doesn't answer in time: what it said.
    fn start(&self, place: &Place, flush: Flush, around: Around) -> Result<Box<dyn Server>, String>;
}

/// A database that runs.
pub trait Server: Send {
    /// The process that was started: the database, or `tidewater run`.
    fn root(&mut self) -> &mut Child;

    /// A connection for one writer.
    ///
    /// # Errors
    /// It can't be had.
    fn client(&mut self) -> Result<Box<dyn Client>, String>;

    /// All that is in it. Called without writers, before the first client.
    ///
    /// # Errors
    /// The message of the database.
    fn contents(&mut self) -> Result<Contents, String>;

    /// The database's own check of its integrity. Called without writers, before the first client.
    ///
    /// # Errors
    /// The fault.
    fn check(&mut self) -> Result<(), String>;

    /// Ends it in order.
    ///
    /// # Errors
    /// It doesn't end, or not well.
    fn stop(self: Box<Self>) -> Result<(), String>;
}

/// A connection.
pub trait Client: Send {
    /// Commits number `number` of `writer`: two rows, and a counter that is set. Returns when the database says that it
    /// is done.
    ///
    /// # Errors
    /// It isn't known whether it is.
    fn commit(&mut self, writer: u32, number: u64) -> Result<(), String>;
}

/// All four, SQLite and RocksDB in both ways.
pub fn all() -> Vec<Box<dyn Database>> {
    vec![
        Box::new(postgresql::PostgreSql { small: true }),
        Box::new(redis::Redis { small: true }),
        Box::new(sqlite::Sqlite::Log),
        Box::new(sqlite::Sqlite::Whole),
        Box::new(sqlite::Sqlite::Layer),
        Box::new(rocksdb::RocksDb::new(false)),
        Box::new(rocksdb::RocksDb::new(true)),
    ]
}

/// A program of this name in PATH.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Tries until it works, the process has ended, or the time is over.
pub(crate) fn patiently<T>(
    child: &mut Child,
    place: &Place,
    name: &str,
    mut attempt: impl FnMut() -> Result<T, String>,
) -> Result<T, String> {
    let mut last = String::new();
    let found = wait::within(PATIENCE, || {
        last = match attempt() {
            Ok(it) => return Some(Ok(it)),
            Err(why) => why,
        };
        let status = child.try_wait().transpose()?;
        Some(Err(status.map_or_else(|error| error.to_string(), |status| format!("ended with {status}"))))
    });
    let why = match found {
        Some(Ok(it)) => return Ok(it),
        Some(Err(why)) => why,
        None => {
            process::kill_tree(&[child.id()]);
            let _ = child.wait();
            format!("does not answer ({last})")
        }
    };
    Err(format!("{name} {why}: {}", place.said(name)))
}

/// Waits for its end.
pub(crate) fn ended_well(child: &mut Child, place: &Place, name: &str) -> Result<(), String> {
    let why = match wait::within(PATIENCE, || child.try_wait().transpose()) {
        Some(Ok(status)) if status.success() => return Ok(()),
        Some(Ok(status)) => format!("ended with {status}"),
        Some(Err(error)) => error.to_string(),
        None => {
            process::kill_tree(&[child.id()]);
            let _ = child.wait();
            "does not end".to_owned()
        }
    };
    Err(format!("{name} {why}: {}", place.said(name)))
}

/// A program that is spoken to in lines.
pub(crate) struct Lines<W: Write, R: Read> {
    writer: W,
    reader: BufReader<R>,
}

impl<W: Write, R: Read> Lines<W, R> {
    pub(crate) fn new(writer: W, reader: R) -> Self {
        Self { writer, reader: BufReader::new(reader) }
    }

    pub(crate) fn say(&mut self, text: &str) -> Result<(), String> {
        self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.flush()).map_err(|error| error.to_string())
    }

    /// The next line, without its end.
    pub(crate) fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err("it has gone".to_owned()),
            Ok(_) => {
                line.truncate(line.trim_end_matches(['\r', '\n']).len());
                Ok(line)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}
