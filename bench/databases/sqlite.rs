//! SQLite: commits of one row, by its command-line program, which gets a batch of statements at a time.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use tidewater_tests::databases::sqlite::Sqlite;
use tidewater_tests::databases::{Around, Database, Flush, Level, Place, program};

use crate::load::rate;
use crate::{Layer, Mode, Rate};

/// Which of its files are on the log.
pub struct Subject(pub Sqlite);

/// Commits in a batch.
const BATCH: u64 = 50;

impl crate::Subject for Subject {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn missing(&self) -> Vec<&'static str> {
        self.0.missing()
    }

    fn create(&self, place: &Place) -> Result<(), String> {
        self.0.create(place)
    }

    fn measure(&self, place: &Place, mode: Mode, around: Around, time: Duration) -> Result<Vec<Rate>, String> {
        let shell = program("sqlite3").ok_or("sqlite3 is not installed")?;
        let mut command = around.command(place, "sqlite", &shell, &self.0.globs(place))?;
        command.args(["-batch", "-bail"]).arg(place.data().join("db"));
        self.rates(place, mode.flush(), time, command)
    }

    fn measure_layer(&self, place: &Place, layer: Layer, time: Duration) -> Option<Result<Vec<Rate>, String>> {
        if !layer.folder.join("tidewater_vfs.so").is_file() {
            println!("{}: its layer is left out: apt-get install libsqlite3-dev", self.0.name());
            return None;
        }
        let shell = program("sqlite3").ok_or("sqlite3 is not installed".to_owned());
        let command = shell.and_then(|shell| self.0.by_layer(place, &shell, layer.folder, (layer.device, Level::Ring)));
        Some(command.and_then(|command| self.rates(place, Mode::Layer.flush(), time, command)))
    }
}

impl Subject {
    /// Commits by the shell, which has its database open.
    fn rates(&self, place: &Place, flush: Flush, time: Duration, mut command: Command) -> Result<Vec<Rate>, String> {
        let io = |error: std::io::Error| format!("sqlite3: {error}: {}", place.said("sqlite"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(io)?;
        let (Some(mut tell), Some(hear)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".into());
        };
        let mut hear = BufReader::new(hear).lines();
        let synchronous = if flush == Flush::Real { "FULL" } else { "OFF" };
        write!(
            tell,
            "PRAGMA journal_mode=WAL;\nPRAGMA synchronous={synchronous};\nCREATE TABLE IF NOT EXISTS t(n, body);\n"
        )
        .map_err(io)?;
        // 100 bytes of payload.
        let batch =
            format!("INSERT INTO t VALUES (1, '{}');\n", "x".repeat(100)).repeat(BATCH as usize) + "SELECT 'done';\n";
        let per_second = rate(time, || {
            tell.write_all(batch.as_bytes()).map_err(io)?;
            loop {
                match hear.next() {
                    Some(Ok(line)) if line == "done" => return Ok(BATCH),
                    Some(Ok(_)) => {}
                    _ => return Err(format!("sqlite3 has gone: {}", place.said("sqlite"))),
                }
            }
        });
        // It grows no further than a round's rows.
        let cleared = tell.write_all(b"DROP TABLE t;\n").map_err(io);
        drop(tell);
        let status = child.wait().map_err(io)?;
        cleared?;
        if !status.success() {
            return Err(format!("sqlite3 ended with {status}: {}", place.said("sqlite")));
        }
        let workload = match self.0 {
            Sqlite::Log => "commits of one row",
            Sqlite::Whole | Sqlite::Layer => "commits of one row, data on the log too",
        };
        Ok(vec![Rate { workload, clients: 1, per_second: per_second? }])
    }
}
