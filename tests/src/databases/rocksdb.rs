//! RocksDB, by a small server that is compiled against the distribution's library (`tests/databases/rocksdb.cc`).

use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

use super::ledger::{Contents, Row, body};
use super::process::signal;
use super::witness::Witness;
use super::{Around, Client, Database, Flush, Level, Lines, Place, Server, ended_well, patiently, program};
use crate::capi::Installed;
use crate::root;
use nix::sys::signal::Signal;

/// RocksDB.
pub struct RocksDb {
    /// Its log goes on the device by a FileSystem of its own (`integrations/rocksdb`), instead of by `tidewater run`.
    by_layer: bool,
    /// The server: compiled when the first database is made.
    server: OnceLock<Result<PathBuf, String>>,
    layer: OnceLock<Option<PathBuf>>,
}

const NAME: &str = "rocksdb";

impl RocksDb {
    /// Nothing is compiled yet.
    pub fn new(by_layer: bool) -> Self {
        Self { by_layer, server: OnceLock::new(), layer: OnceLock::new() }
    }

    /// The server, with the layer between it and its files.
    fn with_layer(&self, place: &Place, level: Level, witness: Option<&Witness>) -> Result<Command, String> {
        let folder = place.folder().parent().unwrap_or(place.folder());
        let compile = || Installed::at(folder).layer("rocksdb/tidewater_fs.cc", "rocksdb/file_system.h", folder);
        let layer = self.layer.get_or_init(compile).as_ref().ok_or("no rocksdb/file_system.h")?;
        let mut command = place.command(self.name(), self.server(place)?)?;
        let mut preload = layer.clone().into_os_string();
        if let Some(witness) = witness {
            witness.attach(&mut command, &place.shadows());
            preload = [witness.library().as_os_str(), &preload].join(OsStr::new(":"));
        }
        command.env("LD_PRELOAD", preload).env("TIDEWATER_LEVEL", level.name());
        Ok(command)
    }

    fn server(&self, place: &Place) -> Result<&Path, String> {
        let folder = place.folder().parent().unwrap_or(place.folder());
        let server = self.server.get_or_init(|| {
            let target = folder.join("rocksdb-server");
            let mut compiler = Command::new("g++");
            compiler.args(["-std=c++17", "-O1", "-Wall", "-Wextra"]).arg(root().join("tests/databases/rocksdb.cc"));
            let output = compiler.arg("-o").arg(&target).args(["-lrocksdb", "-lpthread"]).output();
            let output = output.map_err(|error| format!("g++: {error}"))?;
            if output.status.success() { Ok(target) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
        });
        server.as_deref().map_err(Clone::clone)
    }
}

impl Database for RocksDb {
    fn name(&self) -> &'static str {
        if self.by_layer { "rocksdb-layer" } else { NAME }
    }

    fn missing(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if !Path::new("/usr/include/rocksdb/db.h").is_file() {
            missing.push("librocksdb-dev");
        }
        if program("g++").is_none() {
            missing.push("g++");
        }
        // The guide's page begins with it.
        if program("db_bench").is_none() {
            missing.push("rocksdb-tools");
        }
        missing
    }

    fn writers(&self) -> u32 {
        4
    }

    fn create(&self, place: &Place) -> Result<(), String> {
        self.server(place).map(|_| ())
    }

    fn globs(&self, place: &Place) -> Vec<String> {
        vec![place.data().join("*.log").display().to_string()]
    }

    fn start(&self, place: &Place, flush: Flush, around: Around) -> Result<Box<dyn Server>, String> {
        let mut command = match around.device.filter(|_| self.by_layer) {
            Some((_, level)) => self.with_layer(place, level, around.witness)?,
            None => around.command(place, self.name(), self.server(place)?, &self.globs(place))?,
        };
        command.arg(place.data()).arg(place.sockets().join(NAME));
        command.arg(if flush == Flush::Real { "sync" } else { "none" });
        if let Some((device, _)) = around.device.filter(|_| self.by_layer) {
            command.arg(format!("tidewater://{}", device.target()));
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        patiently(&mut child, place, self.name(), || Connection::open(place)?.ask("ping").map(|_| ()))?;
        Ok(Box::new(Running { child, place: place.clone(), name: self.name() }))
    }
}

struct Running {
    child: Child,
    place: Place,
    name: &'static str,
}

impl Server for Running {
    fn root(&mut self) -> &mut Child {
        &mut self.child
    }

    fn client(&mut self) -> Result<Box<dyn Client>, String> {
        Ok(Box::new(Connection::open(&self.place)?))
    }

    fn contents(&mut self) -> Result<Contents, String> {
        let mut connection = Connection::open(&self.place)?;
        let mut contents = Contents::default();
        for line in connection.ask("scan")? {
            let (key, value) = line.split_once(' ').ok_or(format!("a pair '{line}'"))?;
            let parts: Vec<&str> = key.split(':').collect();
            let number = |at: usize| parts.get(at).and_then(|part: &&str| part.parse::<u64>().ok());
            match (parts[0], number(1), number(2)) {
                ("last", Some(writer), None) => contents.last.push((writer as u32, value.parse().unwrap_or(0))),
                (table @ ("a" | "b"), Some(writer), Some(number)) => {
                    let row = Row { writer: writer as u32, number, body: value.to_owned() };
                    contents.tables[usize::from(table == "b")].push(row);
                }
                _ => return Err(format!("the key {key} is unknown")),
            }
        }
        Ok(contents)
    }

    fn check(&mut self) -> Result<(), String> {
        Connection::open(&self.place)?.ask("check").map(|_| ())
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        signal(self.child.id(), Signal::SIGTERM);
        ended_well(&mut self.child, &self.place, self.name)
    }
}

struct Connection(Lines<UnixStream, UnixStream>);

impl Connection {
    fn open(place: &Place) -> Result<Connection, String> {
        let writer = UnixStream::connect(place.sockets().join(NAME)).map_err(|error| error.to_string())?;
        let reader = writer.try_clone().map_err(|error| error.to_string())?;
        Ok(Connection(Lines::new(writer, reader)))
    }

    /// A question in one line; the lines of the answer before its last, `ok`.
    fn ask(&mut self, line: &str) -> Result<Vec<String>, String> {
        self.0.say(&format!("{line}\n"))?;
        let mut answer = Vec::new();
        loop {
            let line = self.0.hear()?;
            if line == "ok" {
                return Ok(answer);
            }
            if let Some(why) = line.strip_prefix("error ") {
                return Err(why.to_owned());
            }
            answer.push(line);
        }
    }
}

impl Client for Connection {
    fn commit(&mut self, writer: u32, number: u64) -> Result<(), String> {
        let (a, b) = (body(0, writer, number), body(1, writer, number));
        self.ask(&format!("commit a:{writer}:{number} {a} b:{writer}:{number} {b} last:{writer} {number}")).map(|_| ())
    }
}
