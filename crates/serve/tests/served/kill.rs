//! A process that serves is killed while a host writes: what was flushed is there when it is served again.

use crate::support::{BLOCK, Drive, Host, Model, blocks_of, setup, tiny};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_core::profile::Timing;
use tidewater_serve::engine::{Backing, Event, Server};
use tidewater_serve::vfio_user::client::Client;
use tidewater_serve::vfio_user::client::nvme::Nvme;
use tidewater_wire::nvme::Sqe;

/// The folder that the child serves from.
const JOB: &str = "TIDEWATER_TEST_SERVE";
const BLOCKS: u64 = 4_096;

fn serve(folder: &Path) -> tidewater_serve::engine::Setup {
    setup(tiny(Timing::None), folder, Backing::File(folder.join("drive")), 1)
}

/// Serves until it is killed.
fn child(folder: &str) {
    let mut tell = |event: Event| {
        if matches!(event, Event::Ready(_)) {
            println!("@ready");
            std::io::stdout().flush().expect("the parent listens");
        }
    };
    let server = Server::start(serve(Path::new(folder)), &mut tell).expect("it is served");
    let _ = server.run(&mut tell);
}

fn spawn(test: &str, folder: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args([test, "--exact", "--include-ignored", "--nocapture"])
        .env(JOB, folder)
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

/// Writes until nothing is answered any more.
fn write_until_killed(host: &mut Host, model: &mut Model, rng: &mut Rng, is_over: impl Fn() -> bool) -> u64 {
    const DEPTH: u64 = 6;
    let buffers: Vec<_> = (0..DEPTH).map(|_| host.nvme.buffer(32 * BLOCK as u64).expect("memory")).collect();
    let mut completed = 0;
    loop {
        let flush = rng.below(4) == 0;
        let mut under_way = if flush { 1 } else { DEPTH };
        if flush {
            assert!(host.pair.submit(&Sqe::flush(99).with_nsid(1)));
        } else {
            for (slot, buffer) in buffers.iter().enumerate() {
                let (share, count) = (BLOCKS / DEPTH, 1 + rng.below(32));
                let first = slot as u64 * share + rng.below(share - count + 1);
                let tag = model.begin(first, count);
                buffer.write(0, &blocks_of(first, count, tag));
                let sqe = Sqe::write(slot as u16, first, count as u16 - 1).with_nsid(1);
                assert!(host.pair.submit(&buffer.attach(sqe, count * BLOCK as u64)));
            }
        }
        if host.pair.ring().is_err() {
            return completed;
        }
        let mut last = Instant::now();
        while under_way > 0 {
            match host.pair.poll() {
                Some(cqe) => {
                    assert!(cqe.status.is_success(), "{cqe:?}");
                    (under_way, completed, last) = (under_way - 1, completed + 1, Instant::now());
                }
                None if is_over() && last.elapsed() > Duration::from_millis(20) => return completed,
                None => std::hint::spin_loop(),
            }
        }
        if flush {
            model.all_durable();
        }
    }
}

fn lives(test: &str, seed: u64, number: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut model = Model::default();
    let mut rng = Rng::new(seed, b"served kill");
    let (mut completed, mut lost) = (0, 0);
    for life in 0..number {
        let mut process = spawn(test, folder.path());
        let client = Client::connect(&serve(folder.path()).vfio_user[0]).expect("a client");
        let mut host = Host::over(Nvme::start(client, 8 << 20).expect("a controller"), false);
        lost += model.check_all(&mut host, BLOCKS);
        let after = Duration::from_micros(rng.below(60_000));
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(after);
                process.kill().expect("it is killed");
            });
            completed += write_until_killed(&mut host, &mut model, &mut rng, || killer.is_finished());
        });
        let status = process.wait().expect("it has ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "life {life} ended by itself");
    }
    // In this process, and after that it is there as well.
    for _ in 0..2 {
        let drive = Drive::start(&serve(folder.path()));
        lost += model.check_all(&mut Host::attach(&drive, 0), BLOCKS);
        drive.stop();
    }
    println!("{number} processes killed, {completed} commands completed, {lost} blocks fell back to an older write");
    assert!(completed > number && lost > 0);
}

#[test]
fn what_was_flushed_outlives_the_process() {
    match std::env::var(JOB) {
        Ok(folder) => child(&folder),
        Err(_) => lives("kill::what_was_flushed_outlives_the_process", 1, 20),
    }
}

#[test]
#[ignore = "long: make torture"]
fn torture_what_was_flushed_outlives_the_process() {
    match std::env::var(JOB) {
        Ok(folder) => child(&folder),
        Err(_) => lives("kill::torture_what_was_flushed_outlives_the_process", 2, 1_000),
    }
}
