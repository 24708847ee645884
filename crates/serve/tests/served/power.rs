//! The power is cut inside of the engine while a host writes.

use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_core::profile::{Profile, Timing};
use tidewater_driver::vfio_user::Buffer;
use tidewater_serve::control::Request;
use tidewater_serve::engine::{Backing, Event, Server, Setup};
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, Model, blocks_of, setup, tiny};
use tidewater_wire::nvme::Sqe;

const BLOCKS: u64 = 4_096;
const DEPTH: u64 = 8;
const MOST: u64 = 32;

/// Writes with eight commands under way, and flushes at times, until nothing is answered for a while. The cut comes
/// from another thread after `before_cut`.
fn write_until_dark(
    drive: &Drive,
    host: &mut Host,
    model: &mut Model,
    rng: &mut Rng,
    before_cut: Duration,
    off_ms: u64,
) -> u64 {
    let buffers: Vec<Buffer> = (0..DEPTH).map(|_| host.nvme.buffer(MOST * BLOCK as u64).expect("memory")).collect();
    let mut completed = 0;
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| {
            std::thread::sleep(before_cut);
            drive.ask(&Request::PowerCut { off_ms })
        });
        let mut silent = false;
        while !silent {
            let mut ranges = [(0, 0); DEPTH as usize];
            let fua = rng.below(5) == 0;
            for (slot, buffer) in buffers.iter().enumerate() {
                // Places of their own, so that each of them may be durable or not.
                let share = BLOCKS / DEPTH;
                let count = 1 + rng.below(MOST);
                let first = slot as u64 * share + rng.below(share - count + 1);
                ranges[slot] = (first, count);
                let tag = model.begin(first, count);
                buffer.write(0, &blocks_of(first, count, tag));
                let sqe = Sqe::write(slot as u16, first, count as u16 - 1).with_nsid(1);
                let sqe = if fua { sqe.with_fua() } else { sqe };
                assert!(host.pair.submit(&buffer.attach(sqe, count * BLOCK as u64)));
            }
            let mut under_way = DEPTH;
            let ring = |host: &mut Host| host.pair.ring().expect("doorbells are taken also without power");
            ring(host);
            let mut last = Instant::now();
            while under_way > 0 && !silent {
                while let Some(cqe) = host.pair.poll() {
                    assert!(cqe.status.is_success(), "{cqe:?}");
                    under_way -= 1;
                    completed += 1;
                    last = Instant::now();
                    if fua {
                        let (first, count) = ranges[usize::from(cqe.cid)];
                        model.durable(first, count);
                    }
                }
                ring(host);
                silent = cut.is_finished() && last.elapsed() > Duration::from_millis(50);
            }
            if !silent && rng.below(10) < 3 {
                assert!(host.pair.submit(&Sqe::flush(99).with_nsid(1)));
                ring(host);
                let begin = Instant::now();
                loop {
                    if let Some(cqe) = host.pair.poll() {
                        assert!(cqe.status.is_success() && cqe.cid == 99, "{cqe:?}");
                        model.all_durable();
                        completed += 1;
                        ring(host);
                        break;
                    }
                    silent = cut.is_finished() && begin.elapsed() > Duration::from_millis(50);
                    if silent {
                        break;
                    }
                }
            }
        }
        cut.join().expect("the cut is answered");
    });
    completed
}

fn cuts(setup: &Setup, seed: u64, number: u64) {
    let mut rng = Rng::new(seed, b"power cuts");
    let drive = Drive::start(setup);
    let mut host = Host::attach(&drive, 0);
    let mut model = Model::default();
    let (mut completed, mut lost) = (0, 0);
    for cut in 0..number {
        let before = Duration::from_micros(rng.below(30_000));
        completed += write_until_dark(&drive, &mut host, &mut model, &mut rng, before, rng_off(cut));
        drive.wait_for("serving");
        if cut % 2 == 0 {
            host.restart().expect("the controller is there again");
        } else {
            host = Host::attach_again(host, &drive);
        }
        lost += model.check_all(&mut host, BLOCKS);
        assert_eq!(drive.count("power_cuts"), cut + 1);
    }
    drop(host);
    drive.stop();
    println!("{number} cuts, {completed} commands completed, {lost} blocks fell back to an older write");
    assert!(completed > number && lost > 0);
}

fn rng_off(cut: u64) -> u64 {
    [0, 5, 60][cut as usize % 3]
}

/// The clock of a device ends some day. What was written is there when it is started again.
#[test]
fn a_device_ends_in_good_order_before_its_clock_does() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut setup = setup(tiny(Timing::Model), folder.path(), Backing::File(folder.path().join("drive")), 1);
    setup.serve_time = tidewater_base::Duration::from_ms(300);
    let server = Server::start(setup, &mut |_| {}).expect("it starts");
    let (begin, mut notes) = (Instant::now(), Vec::new());
    let mut hear = |event| {
        if let Event::Note(note) = event {
            notes.push(note);
        }
    };
    server.run(&mut hear).expect("it ends well");
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    assert!(matches!(&notes[..], [one] if one.contains("has been served for 300")), "{notes:?}");
}

#[test]
fn what_was_flushed_outlives_power_cuts_on_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let backing = Backing::File(folder.path().join("drive"));
    cuts(&setup(tiny(Timing::None), folder.path(), backing, 1), 1, 12);
}

#[test]
fn what_was_flushed_outlives_power_cuts_in_memory_at_the_models_pace() {
    let folder = tempfile::tempdir().expect("a folder");
    let profile: Profile = tiny(Timing::Model);
    cuts(&setup(profile, folder.path(), Backing::Memory, 1), 2, 12);
}

#[test]
#[ignore = "long: make torture"]
fn torture_power_cuts() {
    let folder = tempfile::tempdir().expect("a folder");
    for (i, timing) in [Timing::None, Timing::Model].into_iter().enumerate() {
        let backing = Backing::File(folder.path().join(format!("drive{i}")));
        cuts(&setup(tiny(timing), folder.path(), backing, 1), 100 + i as u64, 300);
    }
}

#[test]
fn without_power_reads_find_ones_and_a_stop_still_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let backing = Backing::File(folder.path().join("drive"));
    let setup = setup(tiny(Timing::None), folder.path(), backing, 1);
    let drive = Drive::start(&setup);
    let mut host = Host::attach(&drive, 0);
    host.write(8, &blocks_of(8, 8, 5));
    host.flush();
    drive.ask(&Request::PowerCut { off_ms: 3_600_000 });
    assert_eq!(host.register(0x1C).expect("an answer"), u32::MAX);
    assert_eq!(drive.ask(&Request::Status)["state"], "without power");
    for refused in [Request::PowerCut { off_ms: 0 }, Request::FaultClear] {
        assert!(drive.try_ask(&refused).expect_err("there is no power").contains("the power is off"));
    }
    let begin = Instant::now();
    drive.stop();
    assert!(begin.elapsed() < PATIENCE);
    drop(host);
    let drive = Drive::start(&setup);
    let mut host = Host::attach(&drive, 0);
    assert!(host.read(8, 8 * BLOCK) == blocks_of(8, 8, 5));
}
