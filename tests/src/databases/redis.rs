//! Redis, with its append-only file.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Child;

use super::ledger::{Contents, Row, body};
use super::process::signal;
use super::{Around, Client, Database, Flush, Place, Server, ended_well, patiently, program};
use nix::sys::signal::Signal;

/// Redis.
pub struct Redis {
    /// The log is rewritten from 512 KB on, by a forked child and with renames; else as shipped, from 64 MB on.
    pub small: bool,
}

const NAME: &str = "redis";

impl Database for Redis {
    fn name(&self) -> &'static str {
        NAME
    }

    fn missing(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if program("redis-server").is_none() {
            missing.push("redis-server");
        }
        if program("redis-check-aof").is_none() || program("redis-benchmark").is_none() {
            missing.push("redis-tools");
        }
        missing
    }

    fn writers(&self) -> u32 {
        4
    }

    fn create(&self, _: &Place) -> Result<(), String> {
        Ok(())
    }

    fn globs(&self, place: &Place) -> Vec<String> {
        vec![place.data().join("appendonlydir/*.incr.aof").display().to_string()]
    }

    fn is_copyable(&self) -> bool {
        true
    }

    fn start(&self, place: &Place, flush: Flush, around: Around) -> Result<Box<dyn Server>, String> {
        let redis = program("redis-server").ok_or("redis-server is not installed")?;
        let mut command = around.command(place, NAME, &redis, &self.globs(place))?;
        command
            .arg("--port")
            .arg("0")
            .arg("--unixsocket")
            .arg(place.sockets().join("redis"))
            .arg("--dir")
            .arg(place.data());
        command.args(["--save", "", "--appendonly", "yes", "--aof-load-truncated", "yes"]);
        command.args(["--appendfsync", if flush == Flush::Real { "always" } else { "no" }]);
        if around.is_copied {
            // As docs/guide/redis-machines.md says: the log has no base file.
            command.args(["--auto-aof-rewrite-percentage", "0"]);
        } else if self.small {
            command.args(["--auto-aof-rewrite-percentage", "100", "--auto-aof-rewrite-min-size", "512kb"]);
        }
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        patiently(&mut child, place, NAME, || Connection::open(place)?.ask(&["PING"]).map(|_| ()))?;
        Ok(Box::new(Running { child, place: place.clone() }))
    }
}

struct Running {
    child: Child,
    place: Place,
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
        let keys = connection.ask(&["KEYS", "*"])?.all();
        let mut contents = Contents::default();
        for some in keys.chunks(1000) {
            let words: Vec<&str> = ["MGET"].into_iter().chain(some.iter().map(String::as_str)).collect();
            for (key, value) in some.iter().zip(connection.ask(&words)?.all()) {
                let parts: Vec<&str> = key.split(':').collect();
                let number = |at: usize| parts.get(at).and_then(|part: &&str| part.parse::<u64>().ok());
                match (parts[0], number(1), number(2)) {
                    ("last", Some(writer), None) => contents.last.push((writer as u32, value.parse().unwrap_or(0))),
                    (table @ ("a" | "b"), Some(writer), Some(number)) => {
                        let row = Row { writer: writer as u32, number, body: value };
                        contents.tables[usize::from(table == "b")].push(row);
                    }
                    _ => return Err(format!("the key {key} is unknown")),
                }
            }
        }
        Ok(contents)
    }

    fn check(&mut self) -> Result<(), String> {
        // Once a rewrite that goes on has ended, the files stand still.
        let mut connection = Connection::open(&self.place)?;
        let stands =
            |info: String| info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrite_scheduled:0");
        let look = || match connection.ask(&["INFO", "persistence"]) {
            Ok(info) => stands(info.all().concat()).then_some(Ok(())),
            Err(why) => Some(Err(why)),
        };
        crate::wait::some(|| "a rewrite goes on".into(), look)?;
        let manifest = self.place.data().join("appendonlydir/appendonly.aof.manifest");
        let checker = program("redis-check-aof").ok_or("redis-check-aof is not installed")?;
        self.place.run("redis-check-aof", &checker, &[manifest.to_str().ok_or("a path in UTF-8")?])
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        // `tidewater run` passes it on.
        signal(self.child.id(), Signal::SIGTERM);
        ended_well(&mut self.child, &self.place, NAME)
    }
}

/// A reply of Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A text; empty for nothing.
    Text(String),
    /// Several answers.
    Many(Vec<Answer>),
}

impl Answer {
    /// All its texts.
    pub fn all(self) -> Vec<String> {
        match self {
            Answer::Text(text) => vec![text],
            Answer::Many(answers) => answers.into_iter().flat_map(Answer::all).collect(),
        }
    }
}

/// A connection, in RESP2.
pub struct Connection {
    writer: UnixStream,
    reader: BufReader<UnixStream>,
}

impl Connection {
    /// Connects to the server of this place.
    ///
    /// # Errors
    /// There is none.
    pub fn open(place: &Place) -> Result<Connection, String> {
        let writer = UnixStream::connect(place.sockets().join("redis")).map_err(|error| error.to_string())?;
        let reader = BufReader::new(writer.try_clone().map_err(|error| error.to_string())?);
        Ok(Connection { writer, reader })
    }

    /// One command.
    ///
    /// # Errors
    /// The message of Redis, or that it has gone.
    pub fn ask(&mut self, words: &[&str]) -> Result<Answer, String> {
        self.send(&[words])?;
        self.answer()
    }

    /// Sends commands; their answers are read by [`Connection::answer`].
    fn send(&mut self, commands: &[&[&str]]) -> Result<(), String> {
        let mut bytes = Vec::new();
        for words in commands {
            bytes.extend(format!("*{}\r\n", words.len()).bytes());
            for word in *words {
                bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
            }
        }
        self.writer.write_all(&bytes).map_err(|error| error.to_string())
    }

    fn answer(&mut self) -> Result<Answer, String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).map_err(|error| error.to_string())?;
        let line = line.strip_suffix("\r\n").ok_or("it has gone")?;
        let (kind, rest) = line.split_at_checked(1).ok_or("an empty answer")?;
        match kind {
            "+" | ":" => Ok(Answer::Text(rest.to_owned())),
            "-" => Err(rest.to_owned()),
            "$" => {
                let Ok(len) = rest.parse::<usize>() else { return Ok(Answer::Text(String::new())) };
                let mut bytes = vec![0; len + 2];
                self.reader.read_exact(&mut bytes).map_err(|error| error.to_string())?;
                bytes.truncate(len);
                String::from_utf8(bytes).map(Answer::Text).map_err(|error| error.to_string())
            }
            "*" => {
                let count = rest.parse::<usize>().unwrap_or(0);
                (0..count).map(|_| self.answer()).collect::<Result<_, _>>().map(Answer::Many)
            }
            _ => Err(format!("an answer of the kind {kind}")),
        }
    }
}

impl Client for Connection {
    fn commit(&mut self, writer: u32, number: u64) -> Result<(), String> {
        let (a, b) = (format!("a:{writer}:{number}"), format!("b:{writer}:{number}"));
        let (last, text) = (format!("last:{writer}"), number.to_string());
        let (in_a, in_b) = (body(0, writer, number), body(1, writer, number));
        self.send(&[&["MULTI"], &["SET", &a, &in_a], &["SET", &b, &in_b], &["SET", &last, &text], &["EXEC"]])?;
        let mut done = String::new();
        for _ in 0..5 {
            done = self.answer()?.all().concat();
        }
        if done == "OKOKOK" { Ok(()) } else { Err(done) }
    }
}
