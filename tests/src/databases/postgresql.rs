//! PostgreSQL, spoken to by its own protocol (version 3, the simple query).

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;

use nix::sys::signal::Signal;

use super::ledger::{Contents, Row, body};
use super::process::{User, descendants, signal};
use super::{Around, Client, Database, Flush, Place, Server, ended_well, patiently};

/// PostgreSQL, of the newest version that is installed.
pub struct PostgreSql {
    /// Segments of 1 MB and a buffer of 4 MB: a second of load then comes to new and recycled segments, to pages that
    /// leave the buffer, and to checkpoints. Else its settings are as shipped.
    pub small: bool,
}

const NAME: &str = "postgresql";

/// A program of PostgreSQL: Debian keeps each version's in a folder of its own.
pub fn tool(name: &str) -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions
        .filter_map(|entry| {
            let version: u32 = entry.file_name().to_str()?.parse().ok()?;
            let file = entry.path().join("bin").join(name);
            file.is_file().then_some((version, file))
        })
        .max();
    newest.map(|(_, file)| file).or_else(|| super::program(name))
}

fn need(name: &str) -> Result<PathBuf, String> {
    tool(name).ok_or(format!("{name} is not installed"))
}

impl Database for PostgreSql {
    fn name(&self) -> &'static str {
        NAME
    }

    fn missing(&self) -> Vec<&'static str> {
        let all = ["postgres", "initdb", "pg_amcheck", "pgbench"].iter().all(|name| tool(name).is_some());
        if all { vec![] } else { vec!["postgresql"] }
    }

    fn writers(&self) -> u32 {
        4
    }

    fn user(&self) -> Result<Option<User>, String> {
        User::instead_of_root("postgres")
    }

    fn create(&self, place: &Place) -> Result<(), String> {
        let data = place.data();
        let data = data.to_str().ok_or("a path in UTF-8")?;
        let segments = if self.small { "--wal-segsize=1" } else { "--wal-segsize=16" };
        let arguments =
            ["-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-k", segments, "--no-locale", "-E", "UTF8"];
        place.run("initdb", &need("initdb")?, &arguments)?;
        let server = self.start(place, Flush::None, Around::default())?;
        let mut connection = Connection::open(place)?;
        connection.query(
            "CREATE EXTENSION amcheck; \
             CREATE TABLE a (writer int, number bigint, body text, PRIMARY KEY (writer, number)); \
             CREATE TABLE b (writer int, number bigint, body text, PRIMARY KEY (writer, number)); \
             CREATE TABLE last (writer int PRIMARY KEY, number bigint); \
             INSERT INTO last SELECT n, 0 FROM generate_series(0, 63) n",
        )?;
        drop(connection);
        server.stop()?;
        // Segments that wait to be used again hold what no log has: a copy that is taken while they come into use is
        // refused.
        place.run("pg_resetwal", &need("pg_resetwal")?, &["-D", data])
    }

    fn globs(&self, place: &Place) -> Vec<String> {
        vec![place.data().join("pg_wal/0*").display().to_string()]
    }

    fn is_copyable(&self) -> bool {
        true
    }

    fn copy(&self, place: &Place, other: &Place) -> Result<(), String> {
        let mut connection = Connection::open(place)?;
        connection.query("SELECT pg_backup_start('copy', fast => true)")?;
        place.copy_to(other)?;
        let label = connection.query("SELECT labelfile FROM pg_backup_stop(wait_for_archive => false)")?;
        let label = label.into_iter().flatten().next().ok_or("a backup without a label")?;
        let data = other.data();
        let postmaster = data.join("postmaster.pid");
        std::fs::remove_file(&postmaster).map_err(|error| format!("{}: {error}", postmaster.display()))?;
        let path = data.join("backup_label");
        std::fs::write(&path, label).map_err(|error| format!("{}: {error}", path.display()))?;
        other.give(&path)
    }

    fn start(&self, place: &Place, flush: Flush, around: Around) -> Result<Box<dyn Server>, String> {
        // As docs/guide/postgresql-machines.md says: the log has all of each segment.
        let globs = if around.is_copied {
            vec![place.data().join("pg_wal/**").display().to_string()]
        } else {
            self.globs(place)
        };
        let copied: &[&str] = if around.is_copied { &["wal_keep_size=1GB", "wal_recycle=off"] } else { &[] };
        let mut command = around.command(place, NAME, &need("postgres")?, &globs)?;
        command.arg("-D").arg(place.data()).arg("-k").arg(place.sockets());
        let small: &[&str] =
            if self.small { &["shared_buffers=4MB", "max_wal_size=8MB", "min_wal_size=2MB"] } else { &[] };
        let fsync = if flush == Flush::Real { "fsync=on" } else { "fsync=off" };
        for setting in ["listen_addresses=", fsync].iter().chain(small).chain(copied) {
            command.args(["-c", setting]);
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        patiently(&mut child, place, NAME, || Connection::open(place).map(|_| ()))?;
        Ok(Box::new(Running { child, place: place.clone(), wrapped: around.device.is_some() }))
    }
}

struct Running {
    child: Child,
    place: Place,
    wrapped: bool,
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
        let mut rows = |table: &str| -> Result<Vec<Row>, String> {
            let rows = connection.query(&format!("SELECT writer, number, body FROM {table}"))?;
            rows.into_iter().map(row).collect()
        };
        let tables = [rows("a")?, rows("b")?];
        let last = connection.query("SELECT writer, number FROM last WHERE number > 0")?;
        let last = last.into_iter().map(|cells| row(cells).map(|row| (row.writer, row.number)));
        Ok(Contents { tables, last: last.collect::<Result<_, String>>()? })
    }

    fn check(&mut self) -> Result<(), String> {
        let sockets = self.place.sockets();
        let sockets = sockets.to_str().ok_or("a path in UTF-8")?;
        let arguments = ["-h", sockets, "-U", "postgres", "--heapallindexed", "-t", "public.*", "postgres"];
        self.place.run("pg_amcheck", &need("pg_amcheck")?, &arguments)?;
        // Every page that a scan of the catalogues reads has its checksum looked at.
        let mut connection = Connection::open(&self.place)?;
        connection.query("SELECT count(*) FROM pg_class, pg_attribute WHERE attrelid = pg_class.oid").map(|_| ())
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        let root = self.child.id();
        let postmaster = std::fs::read_to_string(self.place.data().join("postmaster.pid")).unwrap_or_default();
        let postmaster = postmaster.lines().next().and_then(|line| line.parse().ok()).unwrap_or(root);
        // Only what we started.
        let ours = postmaster == root || (self.wrapped && descendants(&[root]).contains(&postmaster));
        signal(if ours { postmaster } else { root }, Signal::SIGINT);
        ended_well(&mut self.child, &self.place, NAME)
    }
}

fn row(cells: Vec<String>) -> Result<Row, String> {
    let number = |at: usize| cells.get(at).and_then(|cell| cell.parse::<u64>().ok()).ok_or("a row without numbers");
    Ok(Row { writer: number(0)? as u32, number: number(1)?, body: cells.get(2).cloned().unwrap_or_default() })
}

/// A connection.
pub struct Connection {
    stream: UnixStream,
}

impl Connection {
    /// Connects to the server of this place.
    ///
    /// # Errors
    /// There is none, or it refuses.
    pub fn open(place: &Place) -> Result<Connection, String> {
        let stream = UnixStream::connect(place.sockets().join(".s.PGSQL.5432")).map_err(|error| error.to_string())?;
        let mut connection = Connection { stream };
        let mut hello = Vec::new();
        hello.extend(196_608_u32.to_be_bytes());
        hello.extend(b"user\0postgres\0database\0postgres\0\0");
        let mut message = (hello.len() as u32 + 4).to_be_bytes().to_vec();
        message.extend(hello);
        connection.stream.write_all(&message).map_err(|error| error.to_string())?;
        connection.answer()?;
        Ok(connection)
    }

    /// Runs statements, all in one transaction unless they say otherwise; the rows of all of them.
    ///
    /// # Errors
    /// The message of the server, or that it has gone.
    pub fn query(&mut self, text: &str) -> Result<Vec<Vec<String>>, String> {
        let mut message = vec![b'Q'];
        message.extend((text.len() as u32 + 5).to_be_bytes());
        message.extend(text.as_bytes());
        message.push(0);
        self.stream.write_all(&message).map_err(|error| error.to_string())?;
        self.answer()
    }

    /// Reads messages until the server is ready again.
    fn answer(&mut self) -> Result<Vec<Vec<String>>, String> {
        let mut rows = Vec::new();
        let mut failure = None;
        loop {
            let mut head = [0; 5];
            self.stream.read_exact(&mut head).map_err(|error| failure.take().unwrap_or(error.to_string()))?;
            let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let mut bytes = vec![0; len.saturating_sub(4)];
            self.stream.read_exact(&mut bytes).map_err(|error| error.to_string())?;
            match head[0] {
                b'Z' => return failure.map_or(Ok(rows), Err),
                b'D' => rows.push(cells(&bytes).ok_or("a row that is cut off")?),
                b'E' => failure = Some(String::from_utf8_lossy(&bytes).replace('\0', " ")),
                _ => {}
            }
        }
    }
}

/// The cells of a row: a count, then each with its length.
fn cells(bytes: &[u8]) -> Option<Vec<String>> {
    let mut rest = bytes.get(2..)?;
    let mut cells = Vec::new();
    while !rest.is_empty() {
        let (len, after) = rest.split_first_chunk::<4>()?;
        // -1: NULL.
        let len = usize::try_from(i32::from_be_bytes(*len)).unwrap_or(0);
        cells.push(String::from_utf8_lossy(after.get(..len)?).into_owned());
        rest = &after[len..];
    }
    Some(cells)
}

impl Client for Connection {
    fn commit(&mut self, writer: u32, number: u64) -> Result<(), String> {
        let (a, b) = (body(0, writer, number), body(1, writer, number));
        self.query(&format!(
            "INSERT INTO a VALUES ({writer}, {number}, '{a}'); INSERT INTO b VALUES ({writer}, {number}, '{b}'); \
             UPDATE last SET number = {number} WHERE writer = {writer}"
        ))
        .map(|_| ())
    }
}
