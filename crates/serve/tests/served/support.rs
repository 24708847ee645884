//! A device that is served on a thread of this process, and a host that drives it.
#![allow(dead_code, reason = "each of the tests that use this uses a part of it")]

#[path = "limit.rs"]
mod limit;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidewater_core::profile::{Profile, Timing, builtin};
use tidewater_driver::vfio_user::{Buffer, Nvme, NvmeError, QueuePair};
use tidewater_driver::vfio_user::{Socket, SocketError};
use tidewater_serve::control::{Request, ask};
use tidewater_serve::engine::{Backing, Ended, Event, NamespaceSetup, Ready, SERVE_TIME, ServeError, Server, Setup};
use tidewater_wire::nvme::{Cqe, DsmRange, Sqe};
use tidewater_wire::vfio_user::region;

pub use limit::PATIENCE;

/// Bytes of a block of the namespaces made here.
pub const BLOCK: usize = 512;
/// Bytes of the largest transfer of the small drive.
pub const TRANSFER: usize = 128 << 10;
/// Blocks of a mapping unit.
pub const UNIT: u64 = 8;

/// The smallest profile.
pub fn tiny(timing: Timing) -> Profile {
    let mut profile = builtin("tiny").expect("there is a profile of this name");
    profile.serve.timing = timing;
    profile
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
        runtime_directory: None,
        control: folder.join("control"),
        metrics: None,
        trace: None,
        input_log: None,
        ring: None,
        stop: Arc::new(AtomicBool::new(false)),
        serve_time: SERVE_TIME,
    }
}

/// A device that is served.
pub struct Drive {
    pub ready: Ready,
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
        let (tell, told) = channel();
        let (say_id, id) = channel();
        let thread = std::thread::spawn(move || {
            let _ = say_id.send(nix::unistd::gettid().as_raw());
            let mut tell = |event| drop(tell.send(event));
            Server::start(setup, &mut tell)?.run(&mut tell)
        });
        let mut notes = Vec::new();
        let ready = loop {
            match told.recv_timeout(PATIENCE) {
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

    /// What the control socket answers.
    pub fn try_ask(&self, request: &Request) -> Result<serde_json::Map<String, serde_json::Value>, String> {
        ask(&self.control, request)
    }

    /// What it answers when it does as it is told.
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

    /// Waits for its end, whoever has asked for it.
    pub fn join(mut self) -> Result<Ended, ServeError> {
        self.thread.take().expect("joined once").join().expect("the device's thread does not panic")
    }

    /// As SIGTERM does.
    pub fn stop(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        self.join().expect("it ends in good order")
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

/// A host: a controller with one queue pair and a buffer.
pub struct Host {
    pub nvme: Nvme,
    pub pair: QueuePair,
    pub buffer: Buffer,
    pub nsid: u32,
}

impl Host {
    pub fn attach(drive: &Drive, function: usize) -> Host {
        let nvme = Nvme::start(drive.client(function), 8 << 20).expect("a controller");
        Host::over(nvme, false)
    }

    pub fn attach_with_shadow_doorbells(drive: &Drive, function: usize) -> Host {
        let nvme = Nvme::start(drive.client(function), 8 << 20).expect("a controller");
        Host::over(nvme, true)
    }

    /// With an I/O queue pair and a buffer.
    pub fn over(mut nvme: Nvme, shadow: bool) -> Host {
        if shadow {
            nvme.use_shadow_doorbells().expect("shadow doorbells");
        }
        let pair = nvme.queue_pair(64, None).expect("a queue pair");
        let buffer = nvme.buffer(TRANSFER as u64).expect("memory");
        Host { nvme, pair, buffer, nsid: 1 }
    }

    /// Goes, and comes again.
    pub fn attach_again(host: Host, drive: &Drive) -> Host {
        drop(host);
        Host::attach(drive, 0)
    }

    /// Enables the controller once more, and makes the queue pair again.
    pub fn restart(&mut self) -> Result<(), NvmeError> {
        self.nvme.restart()?;
        self.pair = self.nvme.queue_pair(64, None)?;
        Ok(())
    }

    pub fn run(&mut self, sqe: Sqe) -> Result<Cqe, NvmeError> {
        self.pair.run(&sqe.with_nsid(self.nsid), PATIENCE)
    }

    /// Runs a command with `len` bytes of the buffer as its data.
    pub fn run_with_data(&mut self, sqe: Sqe, len: usize) -> Result<Cqe, NvmeError> {
        self.run(self.buffer.attach(sqe, len as u64))
    }

    pub fn try_write(&mut self, block: u64, bytes: &[u8], fua: bool) -> Result<Cqe, NvmeError> {
        self.buffer.write(0, bytes);
        let sqe = Sqe::write(3, block, zero_based(bytes.len()));
        self.run_with_data(if fua { sqe.with_fua() } else { sqe }, bytes.len())
    }

    pub fn write(&mut self, block: u64, bytes: &[u8]) {
        self.try_write(block, bytes, false).expect("a write");
    }

    pub fn try_read(&mut self, block: u64, bytes: usize) -> Result<Vec<u8>, NvmeError> {
        let mut data = vec![0xA5; bytes];
        self.buffer.write(0, &data);
        self.run_with_data(Sqe::read(4, block, zero_based(bytes)), bytes)?;
        self.buffer.read(0, &mut data);
        Ok(data)
    }

    pub fn read(&mut self, block: u64, bytes: usize) -> Vec<u8> {
        self.try_read(block, bytes).expect("a read")
    }

    pub fn compare(&mut self, block: u64, bytes: &[u8]) -> Result<Cqe, NvmeError> {
        self.buffer.write(0, bytes);
        self.run_with_data(Sqe::compare(5, block, zero_based(bytes.len())), bytes.len())
    }

    pub fn zero(&mut self, block: u64, blocks: u64) {
        self.run(Sqe::write_zeroes(6, block, (blocks - 1) as u16, false)).expect("zeroes");
    }

    /// Deallocates.
    pub fn trim(&mut self, block: u64, blocks: u32) {
        let range = DsmRange { attributes: 0, blocks, first_block: block };
        self.buffer.write(0, &range.to_bytes());
        self.run_with_data(Sqe::dataset_management(7, 0, true), 16).expect("ranges");
    }

    pub fn flush(&mut self) {
        self.run(Sqe::flush(8)).expect("a flush");
    }

    /// Blocks of the namespace.
    pub fn blocks(&mut self) -> u64 {
        let page = self.nvme.buffer(4096).expect("memory");
        let data = self.nvme.identify(0, self.nsid, &page).expect("a namespace");
        u64::from_le_bytes(data[..8].try_into().expect("8 bytes"))
    }

    pub fn register(&self, offset: u32) -> Result<u32, SocketError> {
        self.nvme.socket().read_u32(region::BAR0, offset.into())
    }

    pub fn set_register(&self, offset: u32, value: u32) {
        self.nvme.socket().write(region::BAR0, offset.into(), &value.to_le_bytes()).expect("a register");
    }
}

pub fn zero_based(bytes: usize) -> u16 {
    assert!(bytes.is_multiple_of(BLOCK) && bytes > 0);
    (bytes / BLOCK - 1) as u16
}

/// What a block holds after the write `tag`, which is never 0: both can be told from any part of it.
pub fn block_of(block: u64, tag: u64) -> Vec<u8> {
    let words = (0..BLOCK as u64 / 16).flat_map(|i| [block ^ i << 48, tag]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Blocks from `first` after the write `tag`.
pub fn blocks_of(first: u64, count: u64, tag: u64) -> Vec<u8> {
    (first..first + count).flat_map(|block| block_of(block, tag)).collect()
}

/// Which write a block holds; 0: none.
///
/// # Errors
/// It holds neither one whole write nor zeroes.
pub fn tag_of(block: u64, bytes: &[u8]) -> Result<u64, String> {
    let tag = u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes"));
    let whole = if tag == 0 { vec![0; BLOCK] } else { block_of(block, tag) };
    if bytes == whole {
        Ok(tag)
    } else {
        Err(format!("block {block} is no whole write, perhaps of {tag}: {:x?}", &bytes[..32]))
    }
}

/// What blocks may hold: per block all writes since the last that is durable, that one first.
#[derive(Clone, Debug, Default)]
pub struct Model {
    may_hold: HashMap<u64, Vec<u64>>,
    pub last_tag: u64,
}

impl Model {
    /// A new write of these blocks begins: its tag.
    pub fn begin(&mut self, first: u64, count: u64) -> u64 {
        self.last_tag += 1;
        for block in first..first + count {
            self.may_hold.entry(block).or_insert_with(|| vec![0]).push(self.last_tag);
        }
        self.last_tag
    }

    /// All writes have ended, and are durable.
    pub fn all_durable(&mut self) {
        for tags in self.may_hold.values_mut() {
            tags.drain(..tags.len() - 1);
        }
    }

    /// This write has ended, and is durable. No other write of these blocks is under way.
    pub fn durable(&mut self, first: u64, count: u64) {
        for block in first..first + count {
            let tags = self.may_hold.get_mut(&block).expect("it was begun");
            tags.drain(..tags.len() - 1);
        }
    }

    /// Checks all blocks below `blocks`, and takes what is found as what is there. Returns how many blocks were found
    /// that do not hold the last write.
    pub fn check_all(&mut self, host: &mut Host, blocks: u64) -> u64 {
        let (step, mut lost) = ((TRANSFER / BLOCK) as u64, 0);
        for first in (0..blocks).step_by(step as usize) {
            let count = step.min(blocks - first);
            let data = host.read(first, count as usize * BLOCK);
            for (block, bytes) in (first..).zip(data.chunks(BLOCK)) {
                let tag = tag_of(block, bytes).unwrap_or_else(|error| panic!("{error}"));
                let may = self.may_hold.entry(block).or_insert_with(|| vec![0]);
                assert!(may.contains(&tag), "block {block} holds write {tag}, and may hold {may:?}");
                lost += u64::from(may.last() != Some(&tag));
                *may = vec![tag];
            }
        }
        lost
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
    let server = Server::start(setup, &mut tell).expect("it is served");
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
            process.kill().expect("it is killed");
        });
        meanwhile();
    });
}
