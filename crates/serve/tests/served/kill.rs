//! A process that serves is killed while a host writes: what was flushed is there when it is served again.

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use std::path::Path;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_core::profile::Timing;
use tidewater_driver::vfio_user::Socket;
use tidewater_driver::vfio_user::{Nvme, NvmeError};
use tidewater_serve::control::{Request, ask};
use tidewater_serve::engine::Backing;
use tidewater_testkit::served::{BLOCK, Drive, Host, Model, blocks_of, serve_in_child, setup, spawn_server, tiny};
use tidewater_wire::nvme::{Sqe, Status};

/// The folder that the child serves from.
const JOB: &str = "TIDEWATER_TEST_SERVE";
const BLOCKS: u64 = 4_096;

fn serve(folder: &Path) -> tidewater_serve::engine::Setup {
    setup(tiny(Timing::None), folder, Backing::File(folder.join("drive")), 1)
}

/// Serves from a disk on which files end at this byte.
const LIMIT: &str = "TIDEWATER_TEST_SERVE_LIMIT";

/// Serves until it is killed.
fn child(folder: &str) {
    if let Ok(limit) = std::env::var(LIMIT) {
        // Writes beyond it fail, as on a full disk, and no signal comes.
        SigSet::from(Signal::SIGXFSZ).thread_block().expect("a mask");
        let limit = limit.parse().expect("bytes");
        setrlimit(Resource::RLIMIT_FSIZE, limit, limit).expect("a limit");
    }
    serve_in_child(serve(Path::new(folder)));
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
        let mut process = spawn_server(test, &[(JOB, &folder.path().to_string_lossy())]);
        let client = Socket::connect(&serve(folder.path()).vfio_user[0]).expect("a client");
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
        Err(_) => lives("served::kill::what_was_flushed_outlives_the_process", 1, 20),
    }
}

#[test]
#[ignore = "long: make torture"]
fn torture_what_was_flushed_outlives_the_process() {
    match std::env::var(JOB) {
        Ok(folder) => child(&folder),
        Err(_) => lives("served::kill::torture_what_was_flushed_outlives_the_process", 2, 1_000),
    }
}

/// A store that takes nothing any more: writes and flushes fail, the drive only reads, and what was flushed before is
/// there.
#[test]
fn a_full_disk_makes_a_drive_that_only_reads() {
    if let Ok(folder) = std::env::var(JOB) {
        return child(&folder);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let served = serve(folder.path());
    let drive = Drive::start(&served);
    let mut host = Host::attach(&drive, 0);
    let kept = blocks_of(0, 64, 1);
    host.write(0, &kept);
    drop(host);
    drive.stop();
    let len = std::fs::metadata(folder.path().join("drive")).expect("an image").len();
    let mut process = spawn_server(
        "served::kill::a_full_disk_makes_a_drive_that_only_reads",
        &[(JOB, &folder.path().to_string_lossy()), (LIMIT, &(len / 2).to_string())],
    );
    let client = Socket::connect(&served.vfio_user[0]).expect("a client");
    let mut host = Host::over(Nvme::start(client, 8 << 20).expect("a controller"), false);
    let blocks = host.blocks();
    let mut failed = None;
    for first in (64..blocks).step_by(64).take_while(|first| first + 64 <= blocks) {
        let written = host.try_write(first, &blocks_of(first, 64, 2), false);
        if let Err(error) = written.and_then(|_| host.run(Sqe::flush(1))) {
            failed = Some(error);
            break;
        }
    }
    println!("the first error: {failed:?}");
    assert!(matches!(failed, Some(NvmeError::Status(status)) if status.same_code(Status::WRITE_FAULT)), "{failed:?}");
    assert!(host.try_write(0, &kept, false).is_err() && host.run(Sqe::flush(1)).is_err());
    assert!(host.read(0, kept.len()) == kept);
    let status = ask(&served.control, &Request::Status).expect("a status");
    assert_eq!(status["state"], "read-only");
    let why = status["store_error"].as_str().expect("why it only reads");
    assert!(why.contains("File too large"), "{why}");
    let page = ask(&served.control, &Request::Metrics).expect("metrics");
    assert!(page["text"].as_str().expect("a page").contains("\ntidewater_read_only 1\n"), "{page:?}");
    process.kill().expect("it is killed");
    process.wait().expect("it has ended");
    // With room again.
    let drive = Drive::start(&served);
    let mut host = Host::attach(&drive, 0);
    assert!(host.read(0, kept.len()) == kept);
    host.write(64, &blocks_of(64, 64, 3));
    host.flush();
}
