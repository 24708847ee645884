//! A device that is served by a thread of this process, and a host that drives it.

mod blocks;
mod host;
mod nbd;

pub use blocks::{Model, block_of, blocks_of, tag_of};
pub use host::{Host, zero_based};
pub use nbd::NbdClient;

use crate::{PATIENCE, profile};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidewater_core::profile::{Profile, Timing};
use tidewater_driver::vfio_user::{Socket, SocketError};
use tidewater_serve::control::{Request, ask};
use tidewater_serve::engine::{Backing, Ended, Event, NamespaceSetup, Ready, SERVE_TIME, ServeError, Server, Setup};

/// Bytes of a block of the namespaces made here.
pub const BLOCK: usize = 512;
/// Bytes of the largest transfer of the small drive.
pub const TRANSFER: usize = 128 << 10;
/// Blocks of a mapping unit.
pub const UNIT: u64 = 8;

/// The smallest profile, with this timing.
pub fn tiny(timing: Timing) -> Profile {
    let mut tiny = profile::tiny();
    tiny.serve.timing = timing;
    tiny
}

/// One namespace with blocks of 512 bytes, `functions` sockets in `folder`.
pub fn setup(profile: Profile, folder: &Path, backing: Backing, functions: usize) -> Setup {
    Setup {
        profile,
        backing,
        size: None,
        namespaces: vec![NamespaceSetup { bytes: None, block_shift: 9 }],
        seed: 7,
        vfio_user: (0..functions).map(|i| folder.join(format!("vfio{i}"))).collect(),
        nvme_tcp: None,
        nbd: None,
        runtime_directory: None,
        control: folder.join("control"),
        metrics: None,
        trace: None,
        commands: None,
        input_log: None,
        ring: None,
        stop: Arc::new(AtomicBool::new(false)),
        peers: None,
        serve_time: SERVE_TIME,
    }
}

/// A device that is served.
pub struct Drive {
    /// How hosts reach it.
    pub ready: Ready,
    /// Its messages before that, in no fixed words.
    pub notes: Vec<String>,
    control: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Ended, ServeError>>>,
    thread_id: i32,
}

impl Drive {
    /// Serves until [`Drive::stop`].
    pub fn start(setup: &Setup) -> Drive {
        let mut setup = setup.clone();
        setup.stop = Arc::new(AtomicBool::new(false));
        let (stop, control) = (Arc::clone(&setup.stop), setup.control.clone());
        let (tell, events) = channel();
        let (say_id, id) = channel();
        let thread = std::thread::spawn(move || {
            let _ = say_id.send(nix::unistd::gettid().as_raw());
            let mut tell = |event| drop(tell.send(event));
            Server::start(setup, &mut tell)?.run(&mut tell)
        });
        let mut notes = Vec::new();
        let ready = loop {
            match events.recv_timeout(PATIENCE) {
                Ok(Event::Ready(ready)) => break ready,
                Ok(event) => notes.push(format!("{event:?}")),
                Err(_) => panic!("it is not served: {:?}", thread.join().expect("no panic")),
            }
        };
        let thread_id = id.recv().expect("the thread has begun");
        Drive { ready, notes, control, stop, thread: Some(thread), thread_id }
    }

    /// How often its thread has gone to sleep, and for how many nanoseconds it has run.
    pub fn sleeps_and_time(&self) -> (u64, u64) {
        let read = |name: &str| {
            let path = format!("/proc/self/task/{}/{name}", self.thread_id);
            std::fs::read_to_string(path).expect("the thread runs")
        };
        let status = read("status");
        let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok()).expect("a number");
        (number(sleeps), number(read("schedstat").split(' ').next()))
    }

    /// The client of a function.
    pub fn client(&self, function: usize) -> Socket {
        let until = Instant::now() + PATIENCE;
        loop {
            match Socket::connect(&self.ready.vfio_user[function]) {
                Ok(client) => return client,
                // A function has one client. The last one's socket may be open for a moment longer, in a process that
                // another test is just making out of this one.
                Err(SocketError::Unreachable { error, .. } | SocketError::Io(error)) => {
                    assert!(Instant::now() < until, "no client: {error}");
                }
                Err(error) => panic!("no client: {error}"),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The control socket's answer.
    pub fn try_ask(&self, request: &Request) -> Result<serde_json::Map<String, serde_json::Value>, String> {
        ask(&self.control, request)
    }

    /// Its answer to a request that must succeed.
    pub fn ask(&self, request: &Request) -> serde_json::Map<String, serde_json::Value> {
        self.try_ask(request).unwrap_or_else(|why| panic!("{request:?}: {why}"))
    }

    /// A number of its status.
    pub fn count(&self, name: &str) -> u64 {
        let status = self.ask(&Request::Status);
        status[name].as_u64().unwrap_or_else(|| panic!("{name} of {status:?}"))
    }

    /// Waits until it is in this state.
    pub fn wait_for(&self, state: &str) {
        let until = Instant::now() + PATIENCE;
        while self.ask(&Request::Status)["state"] != state {
            assert!(Instant::now() < until, "it is not {state}: {:?}", self.ask(&Request::Status));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits for its end.
    pub fn join(mut self) -> Result<Ended, ServeError> {
        self.thread.take().expect("joined once").join().expect("the device's thread does not panic")
    }

    /// As SIGTERM does.
    pub fn stop(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        self.join().expect("it ends without an error")
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && !std::thread::panicking()
        {
            let _ = thread.join();
        }
    }
}

/// Serves in a child of a test, until it is killed, and says when hosts may come.
pub fn serve_in_child(setup: Setup) {
    let mut tell = |event: Event| {
        if matches!(event, Event::Ready(_)) {
            println!("@ready");
            std::io::stdout().flush().expect("the parent listens");
        }
    };
    let server = Server::start(setup, &mut tell).expect("the drive can be served");
    let _ = server.run(&mut tell);
}

/// Runs a test once more as a process that serves, with these variables of the environment, for [`serve_in_child`].
pub fn spawn_server(test: &str, variables: &[(&str, &str)]) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args([test, "--exact", "--include-ignored", "--nocapture"])
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let mut said = BufReader::new(child.stdout.as_mut().expect("a pipe"));
    let mut line = String::new();
    while line.trim() != "@ready" {
        line.clear();
        assert!(said.read_line(&mut line).expect("the pipe works") > 0, "the child has ended");
    }
    child
}

/// Kills a process while something goes on.
pub fn kill_after(process: &mut Child, after: Duration, meanwhile: impl FnOnce()) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(after);
            process.kill().expect("the process can be killed");
        });
        meanwhile();
    });
}
