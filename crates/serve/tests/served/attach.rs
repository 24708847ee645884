//! A driver that gives a controller up at the first register read that fails, as SPDK's does, on a machine that has
//! other work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tidewater_core::profile::Timing;
use tidewater_serve::engine::Backing;
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, blocks_of, setup, tiny};
use tidewater_wire::nvme::Sqe;

/// Ends the load when the attaches are over, however they end.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Attaches so often beside threads that want every processor: enables the controller, makes its queues, writes, reads
/// and detaches.
fn attaches(count: u64, load: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, 1));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&over);
        for _ in 0..load {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for round in 1..=count {
            let begin = Instant::now();
            let mut host = Host::attach(&drive, 0);
            host.write(8, &blocks_of(8, 16, round));
            assert_eq!(host.read(8, 16 * BLOCK), blocks_of(8, 16, round));
            println!("attach {round} of {count} beside {load} threads: {:?}", begin.elapsed());
        }
    });
    drive.stop();
}

#[test]
fn a_driver_attaches_beside_other_work() {
    attaches(3, 3);
}

#[test]
#[ignore = "long: make torture"]
fn torture_ten_attaches_beside_a_load_of_twelve() {
    attaches(10, 12);
}

/// How long a command takes that comes some time after the last has ended, and how much of a processor the device
/// needs.
#[test]
#[ignore = "measures: make torture"]
fn torture_latency_of_one_command_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, 1));
    let mut host = Host::attach(&drive, 0);
    host.write(0, &blocks_of(0, 1, 1));
    let sqe = host.buffer.attach(Sqe::read(1, 0, 0).with_nsid(1), BLOCK as u64);
    println!("| gap, us | p10, us | p50, us | p90, us | processor |");
    for gap in [0, 40, 60, 90, 120, 150, 180, 250, 1000] {
        let ((_, ran), start) = (drive.sleeps_and_time(), Instant::now());
        let mut times: Vec<Duration> = (0..3_000)
            .map(|_| {
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(gap) {
                    std::hint::spin_loop();
                }
                let begin = Instant::now();
                host.pair.run(&sqe, PATIENCE).expect("it is there");
                begin.elapsed()
            })
            .collect();
        let share = (drive.sleeps_and_time().1 - ran) as f64 / start.elapsed().as_nanos() as f64;
        times.sort_unstable();
        let us = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
        println!("| {gap} | {:.1} | {:.1} | {:.1} | {share:.2} |", us(10), us(50), us(90));
    }
    drive.stop();
}
