//! A log of commands: entries of queues in order, those that have not ended, and the form in which they are written.

use super::capsules::Capsules;
use super::sink::Sink;
use super::text::Text;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tidewater_wire::nvme::{Cqe, Sqe, admin_opcode};

/// How commands are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A line for each entry.
    Text,
    /// A packet for each entry, for Wireshark.
    Pcapng,
}

/// The path of the socket that `unix:PATH` names; `None`: a file, or `-` for standard output.
pub fn socket(path: &Path) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes = path.as_os_str().as_bytes().strip_prefix(b"unix:")?;
    Some(std::ffi::OsStr::from_bytes(bytes).into())
}

impl Form {
    /// The form that a path's ending asks for: `.txt`, or `-` for standard output, and `.pcapng`. A socket has packets
    /// unless it ends in `.txt`.
    ///
    /// # Errors
    /// Another ending, in words.
    pub fn of(path: &Path) -> Result<Form, String> {
        if let Some(socket) = socket(path) {
            return match socket.extension() {
                _ if socket.as_os_str().is_empty() => Err("unix: needs the path of a socket behind it".into()),
                Some(end) if end == "txt" => Ok(Form::Text),
                _ => Ok(Form::Pcapng),
            };
        }
        match path.extension().and_then(|end| end.to_str()) {
            Some("pcapng") => Ok(Form::Pcapng),
            Some("txt") => Ok(Form::Text),
            None if path == Path::new("-") => Ok(Form::Text),
            _ => Err(format!("{}: the name ends neither in .pcapng nor in .txt", path.display())),
        }
    }
}

/// Events of queue entries, in order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The controller has read an entry of a submission queue.
    Begun { at: Instant, function: u8, queue: u16, sqe: Sqe },
    /// It has posted an entry to a completion queue; `queue`: the submission queue.
    Ended { at: Instant, function: u8, queue: u16, cqe: Cqe },
    /// A queue is gone; `None`: all of the controller. Commands without an end get none.
    Gone { at: Instant, function: u8, queue: Option<u16> },
    /// All queues of all controllers are gone.
    AllGone { at: Instant },
    /// So many events are missing here.
    Dropped(u64),
}

/// A command that has begun.
#[derive(Clone, Copy, Debug)]
struct Begun {
    at: Instant,
    sqe: Sqe,
}

/// The file, and the commands that have not ended.
pub(super) struct Log {
    sink: Box<dyn Sink>,
    open: HashMap<(u8, u16, u16), Begun>,
    /// Queues of which there were entries: only their end is written.
    queues: HashSet<(u8, u16)>,
    /// The same instant by two clocks.
    start: (Instant, u64),
}

impl Log {
    pub(super) fn begin(out: Box<dyn Write + Send>, form: Form, nqn: &str) -> io::Result<Log> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let out = BufWriter::with_capacity(1 << 16, out);
        let sink: Box<dyn Sink> = match form {
            Form::Text => Box::new(Text::begin(out)?),
            Form::Pcapng => Box::new(Capsules::begin(out, unix, nqn)?),
        };
        Ok(Log { sink, open: HashMap::new(), queues: HashSet::new(), start: (Instant::now(), unix) })
    }

    fn nanos(&self, at: Instant) -> u64 {
        self.start.1 + at.saturating_duration_since(self.start.0).as_nanos() as u64
    }

    pub(super) fn event(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Begun { at, function, queue, sqe } => {
                self.queues.insert((function, queue));
                self.open.insert((function, queue, sqe.cid()), Begun { at, sqe });
                self.sink.begun(self.nanos(at), function, queue, &sqe)
            }
            Event::Ended { at, function, queue, cqe } => {
                self.queues.insert((function, queue));
                let begun = self.open.remove(&(function, queue, cqe.cid));
                let took = |begun: &Begun| at.saturating_duration_since(begun.at).as_nanos() as u64;
                let known = begun.as_ref().map(|begun| (&begun.sqe, took(begun)));
                self.sink.ended(self.nanos(at), function, queue, &cqe, known)?;
                match begun.filter(|begun| queue == 0 && begun.sqe.opcode() == admin_opcode::DELETE_IO_SQ) {
                    Some(begun) if cqe.status.is_success() => self.gone(at, function, Some(begun.sqe.cdw10() as u16)),
                    _ => Ok(()),
                }
            }
            Event::Gone { at, function, queue } => self.gone(at, function, queue),
            Event::AllGone { at } => {
                let functions: BTreeSet<u8> = self.queues.iter().map(|&(function, _)| function).collect();
                functions.into_iter().try_for_each(|function| self.gone(at, function, None))
            }
            Event::Dropped(count) => self.sink.dropped(count),
        }
    }

    fn gone(&mut self, at: Instant, function: u8, queue: Option<u16>) -> io::Result<()> {
        let stays = |of: u8, number: u16| of != function || queue.is_some_and(|queue| queue != number);
        let before = self.queues.len();
        self.queues.retain(|&(of, number)| stays(of, number));
        if self.queues.len() == before {
            return Ok(());
        }
        let before = self.open.len();
        self.open.retain(|&(of, number, _), _| stays(of, number));
        self.sink.gone(self.nanos(at), function, queue, before - self.open.len())
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        let now = self.nanos(Instant::now());
        self.sink.end(now)?;
        self.sink.flush()
    }
}
