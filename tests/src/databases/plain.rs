//! A plain program: it appends lines to a file, and says so once they are synced.

use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use super::ledger::{Contents, Row, body};
use super::{Around, Client, Database, Flush, Lines, Place, Server, ended_well, program};

/// The program, in Python.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

const NAME: &str = "plain";
const PROGRAM: &str = r#"
import os, sys
log = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
print("ready", flush=True)
for line in sys.stdin:
    os.write(log, line.encode())
    if sys.argv[2] == "sync": os.fsync(log)
    print("done", flush=True)
"#;

impl Database for Plain {
    fn name(&self) -> &'static str {
        NAME
    }

    fn missing(&self) -> Vec<&'static str> {
        if program("python3").is_some() { vec![] } else { vec!["python3"] }
    }

    fn writers(&self) -> u32 {
        1
    }

    fn create(&self, _: &Place) -> Result<(), String> {
        Ok(())
    }

    fn globs(&self, place: &Place) -> Vec<String> {
        vec![place.data().join("*.log").display().to_string()]
    }

    fn start(&self, place: &Place, flush: Flush, around: Around) -> Result<Box<dyn Server>, String> {
        let python = program("python3").ok_or("python3 is not installed")?;
        let mut command = around.command(place, NAME, &python, &self.globs(place))?;
        command.args(["-c", PROGRAM]).arg(place.data().join("x.log"));
        command.arg(if flush == Flush::Real { "sync" } else { "none" });
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| error.to_string())?;
        let (Some(writer), Some(reader)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".to_owned());
        };
        let mut lines = Lines::new(writer, reader);
        match lines.hear() {
            Ok(ready) if ready == "ready" => {}
            other => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{NAME}: {other:?}: {}", place.said(NAME)));
            }
        }
        Ok(Box::new(Running { child, place: place.clone(), pipes: Some(Pipes(lines)) }))
    }
}

struct Pipes(Lines<ChildStdin, ChildStdout>);

struct Running {
    child: Child,
    place: Place,
    /// Gone to the client, once there is one.
    pipes: Option<Pipes>,
}

impl Server for Running {
    fn root(&mut self) -> &mut Child {
        &mut self.child
    }

    fn client(&mut self) -> Result<Box<dyn Client>, String> {
        Ok(Box::new(self.pipes.take().ok_or("it has its client")?))
    }

    /// Each whole line is a commit; the last one may be torn.
    fn contents(&mut self) -> Result<Contents, String> {
        let text = std::fs::read(self.place.data().join("x.log")).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&text);
        let mut contents = Contents::default();
        for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let wrong = || format!("a line '{line}'");
            let words: Vec<&str> = line.split(' ').collect();
            let [number, a, b] = words[..] else { return Err(wrong()) };
            let number = number.parse().map_err(|_| wrong())?;
            for (table, body) in contents.tables.iter_mut().zip([a, b]) {
                table.push(Row { writer: 0, number, body: body.to_owned() });
            }
            contents.last = vec![(0, number)];
        }
        Ok(contents)
    }

    fn check(&mut self) -> Result<(), String> {
        self.contents().map(drop)
    }

    fn stop(mut self: Box<Self>) -> Result<(), String> {
        // The end of its input.
        self.pipes = None;
        ended_well(&mut self.child, &self.place, NAME)
    }
}

impl Client for Pipes {
    fn commit(&mut self, writer: u32, number: u64) -> Result<(), String> {
        self.0.say(&format!("{number} {} {}\n", body(0, writer, number), body(1, writer, number)))?;
        match self.0.hear()? {
            done if done == "done" => Ok(()),
            other => Err(other),
        }
    }
}
