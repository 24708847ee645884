//! A supervisor at work: it listens for its keeper's word, and starts, stops and kills the program.

use super::policy::{Policy, Step, What};
use super::process::{kill_all, reap, start};
use super::{LINE_MAX, Order, Report, clock_ms};
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tidewater_base::units::printable;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// How long a keeper may take for its order, and for taking the answer.
const EXCHANGE: Duration = Duration::from_secs(1);
/// How often the lock of an earlier supervisor's processes is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Longest sleep between two looks.
const WAIT_MAX: Duration = Duration::from_secs(3_600);
/// Orders that wait.
const ORDERS: usize = 16;
/// Lines that wait to be written, at most: further ones are left out.
const LINES: usize = 64;

/// A program and where its supervisor listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Supervise {
    /// The socket, in the device's folder.
    pub socket: PathBuf,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Shell command that runs where the primary is not.
    #[serde(default)]
    pub standby: Option<String>,
    /// The signal that stops the program, such as `TERM`.
    pub signal: String,
}

/// A line for standard error, or who waits until all before it are written.
enum Line {
    Words(String),
    Written(SyncSender<()>),
}

/// Writes lines. A reader that is gone, or takes nothing, is no reason to leave the program alone.
fn writer() -> &'static SyncSender<Line> {
    static WRITER: OnceLock<SyncSender<Line>> = OnceLock::new();
    WRITER.get_or_init(|| {
        let (lines, taken) = sync_channel(LINES);
        std::thread::spawn(move || {
            for line in taken {
                match line {
                    Line::Words(words) => _ = writeln!(std::io::stderr(), "program: {words}"),
                    Line::Written(waits) => _ = waits.try_send(()),
                }
            }
        });
        lines
    })
}

fn say(text: &str) {
    let _ = writer().try_send(Line::Words(printable(text).to_string()));
}

/// Waits until all that was said is written, for a while.
fn finish_saying() {
    let (written, waits) = sync_channel(1);
    if writer().try_send(Line::Written(written)).is_ok() {
        let _ = waits.recv_timeout(EXCHANGE);
    }
}

/// Supervises a program until it is ended by a signal.
///
/// # Errors
/// In words, when it can't begin.
pub async fn supervise(of: Supervise) -> Result<(), String> {
    let number: Result<Signal, _> = format!("SIG{}", of.signal.trim_start_matches("SIG")).parse();
    let number = number.map_err(|_| format!("`{}` is no signal, such as TERM or INT", of.signal))?;
    let failed = |error: std::io::Error| format!("can't wait for signals: {error}");
    let mut child = signal(SignalKind::child()).map_err(failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let folder = of.socket.parent().unwrap_or(Path::new("/"));
    if !folder.exists() {
        say(&format!("waits for the device, whose folder is {}", folder.display()));
    }
    while !folder.exists() {
        tokio::select! {
            () = sleep(LOOK) => {}
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        }
    }
    let _lock = tokio::select! {
        lock = lock(&of.socket) => lock?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    // Processes whose parents have ended become children of this one, which finds and kills them.
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| format!("can't take orphans: {}", errno.desc()))?;
    let listener = listen(&of.socket)?;
    let (heard, mut orders) = mpsc::channel(ORDERS);
    let mut supervisor = Supervisor { policy: Policy::new(of.standby.is_some()), of, number, main: None, said: None };
    loop {
        supervisor.act();
        if supervisor.policy.is_closed() {
            break;
        }
        let wait = Duration::from_millis(supervisor.policy.wait_ms(clock_ms())).min(WAIT_MAX);
        tokio::select! {
            stream = listener.accept() => if let Ok((stream, _)) = stream {
                let heard = heard.clone();
                // One that says nothing delays no deadline.
                tokio::spawn(async move { heard.send(hear(stream).await).await });
            },
            heard = orders.recv() => if let Some(Some((order, stream))) = heard {
                supervisor.answer(order, stream);
            },
            _ = child.recv() => {}
            () = sleep(wait) => {}
            _ = terminate.recv() => supervisor.policy.close(),
            _ = interrupt.recv() => supervisor.policy.close(),
        }
    }
    say("ends; the program runs no more");
    finish_saying();
    Ok(())
}

/// Waits for the lock that the processes of an earlier supervisor hold while they live: each inherits its descriptor.
async fn lock(socket: &Path) -> Result<Flock<File>, String> {
    let path = socket.with_extension("lock");
    let at = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(|error| at(&error))?;
    let mut is_said = false;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => {
                fcntl(&*lock, FcntlArg::F_SETFD(FdFlag::empty())).map_err(|errno| at(&errno.desc()))?;
                return Ok(lock);
            }
            Err((back, _)) => file = back,
        }
        if !std::mem::replace(&mut is_said, true) {
            say(&at(
                &"another supervisor of this device, or a program that one has left, runs still: waits for its end",
            ));
        }
        sleep(LOOK).await;
    }
}

fn listen(socket: &Path) -> Result<UnixListener, String> {
    let at = |error: std::io::Error| format!("{}: {error}", socket.display());
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(at(error)),
        _ => {}
    }
    let listener = UnixListener::bind(socket).map_err(at)?;
    std::fs::set_permissions(socket, Permissions::from_mode(0o600)).map_err(at)?;
    Ok(listener)
}

struct Supervisor {
    of: Supervise,
    number: Signal,
    policy: Policy,
    /// The process that was started, until it has ended.
    main: Option<Pid>,
    /// The state that was said last.
    said: Option<Report>,
}

impl Supervisor {
    /// Does what is to be done now.
    fn act(&mut self) {
        self.reap();
        while let Some(step) = self.policy.step(clock_ms()) {
            match step {
                Step::Start(what) => self.start(what),
                Step::End => {
                    if let Some(main) = self.main {
                        // One that has ended meanwhile is taken below.
                        let _ = kill(main, self.number);
                    }
                    say(&format!("asks it to end ({})", self.number.as_str()));
                }
                Step::Kill => {
                    if !kill_all() {
                        say("a process of the program is another user's: it can't be killed");
                    }
                    self.reap();
                    break;
                }
            }
        }
        let report = self.policy.report();
        if self.said.as_ref() != Some(&report) {
            if self.said.as_ref().map(|said| said.state) != Some(report.state) {
                say(&report.in_words());
            }
            self.said = Some(report);
        }
    }

    fn start(&mut self, what: What) {
        let (command, environment) = match what {
            What::Program { node, epoch } => {
                say(&format!("starts the program: node {node} is primary of epoch {epoch}"));
                let environment = [("TIDEWATER_NODE", node.to_string()), ("TIDEWATER_EPOCH", epoch.to_string())];
                (self.of.command.clone(), environment)
            }
            What::Standby { node, primary } => {
                say(&format!("starts the standby command: node {primary} leads"));
                let standby = self.of.standby.clone().unwrap_or_default();
                let environment = [("TIDEWATER_NODE", node.to_string()), ("TIDEWATER_PRIMARY", primary.to_string())];
                (vec!["/bin/sh".into(), "-c".into(), standby], environment)
            }
        };
        match start(&command, &environment) {
            Ok(pid) => self.main = Some(pid),
            Err(why) => {
                say(&why);
                self.policy.failed_to_start(clock_ms(), &why);
            }
        }
    }

    fn reap(&mut self) {
        let (how, is_left) = reap(self.main);
        if let Some(how) = how {
            say(&format!("it has ended: {how}"));
            self.main = None;
            self.policy.ended(clock_ms(), &how);
        }
        if !is_left && self.main.is_none() {
            self.policy.gone();
        }
    }

    /// Carries an order out, and answers how the program stands.
    fn answer(&mut self, order: Result<Order, String>, mut stream: UnixStream) {
        let answer = match order {
            Ok(order) => {
                self.policy.order(&order);
                self.act();
                serde_json::to_value(self.policy.report()).unwrap_or_default()
            }
            Err(why) => serde_json::json!({ "error": format!("{why}; keeper and supervisor must be of one version") }),
        };
        let line = format!("{answer}\n");
        tokio::spawn(async move { timeout(EXCHANGE, stream.write_all(line.as_bytes())).await });
    }
}

/// An order, and where its answer goes.
type Heard = Option<(Result<Order, String>, UnixStream)>;

async fn hear(mut stream: UnixStream) -> Heard {
    let mut line = String::new();
    let read = async { BufReader::new((&mut stream).take(LINE_MAX)).read_line(&mut line).await };
    timeout(EXCHANGE, read).await.ok()?.ok()?;
    Some((serde_json::from_str(&line).map_err(|error| error.to_string()), stream))
}
