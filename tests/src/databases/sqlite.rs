//! SQLite, by its command-line program, with a write-ahead log.

use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::device::Device;
use super::ledger::{Contents, Row, body};
use super::{Around, Client, Database, Flush, Level, Lines, Place, Server, ended_well, program};
use crate::capi::Installed;

/// SQLite, with its log on the device, or its data file, too.
#[derive(Clone, Copy)]
pub enum Sqlite {
    /// The write-ahead log: data files are synced as they are.
    Log,
    /// The write-ahead log and the data file: no sync is one of a disk.
    Whole,
    /// Both, by a VFS of this project's own (`integrations/sqlite`), instead of by `tidewater run`.
    Layer,
}

const NAME: &str = "sqlite";
/// Header that the VFS is compiled with.
const HEADER: &str = "sqlite3ext.h";

impl Sqlite {
    /// The shell on its database by the VFS, compiled in `layers`.
    ///
    /// # Errors
    /// Its log can't be opened.
    pub fn by_layer(
        &self,
        place: &Place,
        sqlite: &Path,
        layers: &Path,
        (device, level): (&Device, Level),
    ) -> Result<Command, String> {
        let mut command = place.command(NAME, sqlite)?;
        let load = format!(".load {} sqlite3_tidewatervfs_init", layers.join("tidewater_vfs.so").display());
        let data = if matches!(self, Sqlite::Log) { "" } else { "&data=log" };
        let database = place.data().join("db");
        let (database, target, level) = (database.display(), device.target(), level.name());
        let open = format!(".open 'file:{database}?vfs=tidewater&device={target}&level={level}{data}'");
        command.args(["-batch", "-bail", "-cmd", ".log stderr", "-cmd", &load, "-cmd", &open, ":memory:"]);
        Ok(command)
    }
}

impl Database for Sqlite {
    fn name(&self) -> &'static str {
        match self {
            Sqlite::Log => NAME,
            Sqlite::Whole => "sqlite-whole",
            Sqlite::Layer => "sqlite-layer",
        }
    }

    fn speaks_as(&self) -> &'static str {
        NAME
    }

    fn missing(&self) -> Vec<&'static str> {
        let mut missing = Vec::new();
        if program("sqlite3").is_none() {
            missing.push("sqlite3");
        }
        if matches!(self, Sqlite::Layer) && !Path::new("/usr/include").join(HEADER).is_file() {
            missing.push("libsqlite3-dev");
        }
        missing
    }

    fn writers(&self) -> u32 {
        1
    }

    fn create(&self, place: &Place) -> Result<(), String> {
        let mut server = self.start(place, Flush::None, Around::default())?;
        server.contents()?;
        server.stop()
    }

    fn globs(&self, place: &Place) -> Vec<String> {
        let files: &[&str] = match self {
            Sqlite::Log => &["db-wal"],
            Sqlite::Whole | Sqlite::Layer => &["db-wal", "db"],
        };
        files.iter().map(|file| place.data().join(file).display().to_string()).collect()
    }

    fn is_copyable(&self) -> bool {
        !matches!(self, Sqlite::Log)
    }

    fn start(&self, place: &Place, flush: Flush, around: Around) -> Result<Box<dyn Server>, String> {
        let sqlite = program("sqlite3").ok_or("sqlite3 is not installed")?;
        let mut command = match around.device.filter(|_| matches!(self, Sqlite::Layer)) {
            Some(device) => {
                let folder = place.folder().parent().unwrap_or(place.folder());
                // Compiled when the first database is started.
                if !folder.join("tidewater_vfs.so").is_file() {
                    let layer = Installed::at(folder).layer("sqlite/tidewater_vfs.c", HEADER, folder);
                    layer.ok_or("no sqlite3ext.h")?;
                }
                let mut command = self.by_layer(place, &sqlite, folder, device)?;
                if let Some(witness) = around.witness {
                    witness.attach(&mut command, &place.shadows());
                }
                command
            }
            None => {
                let mut command = around.command(place, NAME, &sqlite, &self.globs(place))?;
                command.arg("-batch").arg("-bail").arg(place.data().join("db"));
                command
            }
        };
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| error.to_string())?;
        let (Some(writer), Some(reader)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".to_owned());
        };
        let mut lines = Lines::new(writer, reader);
        let synchronous = if flush == Flush::Real { "FULL" } else { "OFF" };
        let sql = format!(
            ".mode list\nPRAGMA journal_mode = WAL;\nPRAGMA synchronous = {synchronous};\nPRAGMA wal_autocheckpoint = \
             500;\n\
             CREATE TABLE IF NOT EXISTS a (writer, number, body, PRIMARY KEY (writer, number));\n\
             CREATE TABLE IF NOT EXISTS b (writer, number, body, PRIMARY KEY (writer, number));\n\
             CREATE TABLE IF NOT EXISTS last (writer PRIMARY KEY, number);\nSELECT 'ready';\n"
        );
        let ready = lines.say(&sql).and_then(|()| {
            loop {
                if lines.hear()? == "ready" {
                    return Ok(());
                }
            }
        });
        if let Err(why) = ready {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{NAME}: {why}: {}", place.said(NAME)));
        }
        Ok(Box::new(Running { child, place: place.clone(), lines: Some(Shell(lines)) }))
    }
}

struct Shell(Lines<ChildStdin, ChildStdout>);

struct Running {
    child: Child,
    place: Place,
    /// Gone to the client, once there is one.
    lines: Option<Shell>,
}

impl Running {
    fn ask(&mut self, sql: &str) -> Result<Vec<String>, String> {
        let Shell(lines) = self.lines.as_mut().ok_or("it has its client")?;
        lines.say(&format!("{sql}\nSELECT 'end';\n"))?;
        let mut answer = Vec::new();
        loop {
            match lines.hear().map_err(|why| format!("{why}: {}", self.place.said(NAME)))? {
                end if end == "end" => return Ok(answer),
                line => answer.push(line),
            }
        }
    }
}

impl Server for Running {
    fn root(&mut self) -> &mut Child {
        &mut self.child
    }

    fn client(&mut self) -> Result<Box<dyn Client>, String> {
        Ok(Box::new(self.lines.take().ok_or("it has its client")?))
    }

    fn contents(&mut self) -> Result<Contents, String> {
        let mut rows = |table: &str| -> Result<Vec<Row>, String> {
            let lines = self.ask(&format!("SELECT writer, number, body FROM {table};"))?;
            lines.iter().map(|line| row(line)).collect()
        };
        let tables = [rows("a")?, rows("b")?];
        let last = self.ask("SELECT writer, number, '' FROM last;")?;
        let last = last.iter().map(|line| row(line).map(|row| (row.writer, row.number)));
        Ok(Contents { tables, last: last.collect::<Result<_, String>>()? })
    }

    fn check(&mut self) -> Result<(), String> {
        match self.ask("PRAGMA integrity_check;")?.join(" ") {
            ok if ok == "ok" => Ok(()),
            wrong => Err(wrong),
        }
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        // The end of its input.
        self.lines = None;
        ended_well(&mut self.child, &self.place, NAME)
    }
}

fn row(line: &str) -> Result<Row, String> {
    let wrong = || format!("a row '{line}'");
    let mut cells = line.split('|');
    let mut number = || cells.next()?.parse::<u64>().ok();
    let (writer, number) = (number().ok_or_else(wrong)?, number().ok_or_else(wrong)?);
    Ok(Row { writer: writer as u32, number, body: cells.next().unwrap_or_default().to_owned() })
}

impl Client for Shell {
    fn commit(&mut self, writer: u32, number: u64) -> Result<(), String> {
        let (a, b) = (body(0, writer, number), body(1, writer, number));
        // With -bail, an error ends the program: the last line is answered only after the commit.
        self.0.say(&format!(
            "BEGIN;\nINSERT INTO a VALUES ({writer}, {number}, '{a}');\nINSERT INTO b VALUES ({writer}, {number}, \
             '{b}');\n\
             INSERT INTO last VALUES ({writer}, {number}) ON CONFLICT DO UPDATE SET number = {number};\nCOMMIT;\n\
             SELECT 'done {number}';\n"
        ))?;
        match self.0.hear()? {
            done if done == format!("done {number}") => Ok(()),
            other => Err(other),
        }
    }
}
