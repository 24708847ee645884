//! Weighted round robin as a host sees it: which of its queues is served first.

use std::time::{Duration, Instant};

use tidewater_core::profile::Timing;
use tidewater_driver::vfio_user::{Buffer, Nvme, Options, QueuePair};
use tidewater_serve::engine::Backing;
use tidewater_wire::nvme::register::Cap;
use tidewater_wire::nvme::{QueuePriority, Sqe, Status};

use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{Drive, setup, tiny};

const COMMANDS: usize = 60;

/// Takes completions, and says how many there were.
fn take(pair: &mut QueuePair) -> usize {
    let mut done = 0;
    while let Some(cqe) = pair.poll() {
        assert_eq!(cqe.status, Status::SUCCESS);
        done += 1;
    }
    pair.ring().expect("a doorbell");
    done
}

/// Fills both queues at once, and says how many commands of the low class had ended when the last of the high one had.
fn round(low: &mut QueuePair, high: &mut QueuePair, buffer: &Buffer) -> usize {
    for pair in [&mut *low, &mut *high] {
        for cid in 0..COMMANDS as u16 {
            assert!(pair.submit(&buffer.attach(Sqe::read(cid, u64::from(cid) * 8, 7), 4096)));
        }
        pair.ring().expect("a doorbell");
    }
    let (begin, mut of_low, mut of_high) = (Instant::now(), 0, 0);
    while of_high < COMMANDS {
        assert!(begin.elapsed() < PATIENCE, "{of_high} and {of_low} commands have ended");
        of_low += take(low);
        of_high += take(high);
        std::thread::sleep(Duration::from_micros(100));
    }
    let before = of_low;
    while of_low < COMMANDS {
        assert!(begin.elapsed() < PATIENCE, "{of_low} commands of the low class have ended");
        of_low += take(low);
    }
    before
}

#[test]
fn a_host_weights_its_queues_where_the_profile_offers_it() {
    let folder = tempfile::tempdir().expect("a folder");
    // Slow enough that both queues wait all the time.
    let mut profile = tiny(Timing::Model);
    profile.set("host.arbitration", "weighted").expect("it may be set");
    profile.set("host.arbitration_weights", "[16, 8, 1]").expect("they may be set");
    profile.nand.read_time = [tidewater_base::Duration::from_ms(50); 3];
    let drive = Drive::start(&setup(profile, folder.path(), Backing::Memory, 1));
    let options = Options { memory: 8 << 20, weighted: true, ..Options::default() };
    let mut nvme = Nvme::start_with(drive.client(0), options).expect("a controller");
    assert!(Cap::from_bits(nvme.capabilities()).weighted_round_robin);
    let mut low = nvme.queue_pair_of(64, None, QueuePriority::Low).expect("a queue pair");
    let mut high = nvme.queue_pair_of(64, None, QueuePriority::High).expect("a queue pair");
    let buffer = nvme.buffer(4096).expect("memory");
    buffer.write(0, &[7; 4096]);
    for page in 0..COMMANDS as u64 {
        low.run(&buffer.attach(Sqe::write(0, page * 8, 7), 4096), PATIENCE).expect("a write");
    }
    low.run(&Sqe::flush(0), PATIENCE).expect("a flush");
    // It had all slots while it stood alone, and one command for sixteen since; in turn it would have ended beside. A
    // thread that is late, between the doorbells or at the end, only ever sees more of the low class: so one round in
    // which it was not late is enough.
    let begin = Instant::now();
    let mut seen = Vec::new();
    while seen.iter().all(|low| *low >= COMMANDS - 8) {
        assert!(begin.elapsed() < PATIENCE, "of {COMMANDS} of the low class, {seen:?} had ended before the high one");
        seen.push(round(&mut low, &mut high, &buffer));
    }
}
