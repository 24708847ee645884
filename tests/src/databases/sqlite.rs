//! SQLite, by its command-line program, with a write-ahead log.

use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::ledger::{Contents, Row, body};
use super::{Around, Client, Database, Flush, Lines, Place, Server, ended_well, program};

/// SQLite, with its log on the device, or its data file, too.
#[derive(Clone, Copy)]
pub enum Sqlite {
    /// The write-ahead log: data files are synced as they are.
    Log,
    /// The write-ahead log and the data file: no sync is one of a disk.
    Whole,
}

const NAME: &str = "sqlite";

impl Database for Sqlite {
    fn name(&self) -> &'static str {
        match self {
            Sqlite::Log => NAME,
            Sqlite::Whole => "sqlite-whole",
        }
    }

    fn missing(&self) -> Vec<&'static str> {
        if program("sqlite3").is_some() { vec![] } else { vec!["sqlite3"] }
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
            Sqlite::Whole => &["db-wal", "db"],
        };
        files.iter().map(|file| place.data().join(file).display().to_string()).collect()
    }

    fn start(&self, place: &Place, flush: Flush, around: Around) -> Result<Box<dyn Server>, String> {
        let sqlite = program("sqlite3").ok_or("sqlite3 is not installed")?;
        let mut command = around.command(place, NAME, &sqlite, &self.globs(place))?;
        command.arg("-batch").arg("-bail").arg(place.data().join("db")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (Some(writer), Some(reader)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".to_owned());
        };
        let mut lines = Lines::new(writer, reader);
        let synchronous = if flush == Flush::Real { "FULL" } else { "OFF" };
        let sql = format!(
            ".mode list\nPRAGMA journal_mode = WAL;\nPRAGMA synchronous = {synchronous};\nPRAGMA wal_autocheckpoint = 500;\n\
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
            "BEGIN;\nINSERT INTO a VALUES ({writer}, {number}, '{a}');\nINSERT INTO b VALUES ({writer}, {number}, '{b}');\n\
             INSERT INTO last VALUES ({writer}, {number}) ON CONFLICT DO UPDATE SET number = {number};\nCOMMIT;\n\
             SELECT 'done {number}';\n"
        ))?;
        match self.0.hear()? {
            done if done == format!("done {number}") => Ok(()),
            other => Err(other),
        }
    }
}
