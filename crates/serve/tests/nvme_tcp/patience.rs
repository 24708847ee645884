//! Hosts that keep the target waiting, or come in numbers: each that has nothing to wait for is given up, and the
//! others go on.

use crate::nvme_tcp::hostile::{roomy, still_works};
use crate::nvme_tcp::mock::{BLOCK, Mock, Served, host, options};
use crate::nvme_tcp::raw::{PLAIN, Raw, Reply, connect_command, connect_data};
use nix::sys::resource::{Resource, setrlimit};
use std::fs::File;
use std::net::TcpStream;
use std::process::Command;
use std::time::Instant;
use tidewater_base::Duration as Time;
use tidewater_driver::nvme_tcp::Transfer;
use tidewater_serve::nvme_tcp::Target;
use tidewater_testkit::PATIENCE;
use tidewater_wire::fabrics::{self, CONTROLLER_ANY, DataPointer};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::{IcReq, Pdu};

/// Set in a process of its own, which may use up its descriptors.
const ALONE: &str = "TIDEWATER_TEST_ALONE";

/// Data that a host was asked for late, and does not send: a command may have waited for long before it was its turn.
#[test]
fn a_transfer_that_begins_late_comes_to_an_end_too() {
    let mut options = options();
    options.stall_time_max = Time::from_ms(2_000);
    let (mut target, mut mock) = (Target::bind(options).unwrap(), Mock::new(8));
    let address = target.addresses()[0];
    let mut now = tidewater_base::Instant::ZERO;
    let host = std::thread::spawn(move || {
        let (admin, mut raw) = Raw::queue(address, PLAIN);
        raw.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: 8_192 }.put(Sqe::write(1, 1, 1))), &[]);
        (admin, raw)
    });
    // Icreq, Connect, Property Set; Connect; and the write, whose turn has not come.
    while target.statistics().commands < 4 {
        target.poll(now, &mut mock);
        if target.statistics().commands < 4 {
            mock.work(&mut target);
        }
        target.flush();
    }
    let (_admin, mut raw) = host.join().unwrap();
    now += Time::from_ms(60_000);
    target.poll(now, &mut mock);
    assert_eq!(target.deadline(), None, "nothing is waited for");
    mock.work(&mut target);
    target.flush();
    assert!(matches!(raw.receive(), Reply::Pdu(Pdu::R2t(_), _)));
    while let Some(at) = target.deadline() {
        now = at;
        target.poll(now, &mut mock);
        mock.work(&mut target);
    }
    let waited = now.since(tidewater_base::Instant::ZERO) - Time::from_ms(60_000);
    assert_eq!(waited, Time::from_ms(2_125), "and 8 KiB at 64 KiB a second");
    assert_eq!((target.statistics().stalled, mock.lost), (1, 1));
    assert_eq!(raw.receive(), Reply::End);
}

/// A connection that waits to be let in and can't be is no work for a thread that has nothing else to do.
#[test]
fn a_target_without_descriptors_waits_and_goes_on() {
    if std::env::var_os(ALONE).is_none() {
        let test = "nvme_tcp::patience::a_target_without_descriptors_waits_and_goes_on";
        let mut alone = Command::new(std::env::current_exe().unwrap());
        assert!(alone.args([test, "--exact", "--nocapture"]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    let (mut target, mut mock) = (Target::bind(options()).unwrap(), Mock::new(1));
    let _host = TcpStream::connect(target.addresses()[0]).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 64, 64).unwrap();
    let taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let mut now = tidewater_base::Instant::ZERO;
    let came = (0..1_000).filter(|_| target.poll(now, &mut mock)).count();
    assert!(came < 3, "it came {came} times");
    assert_eq!(target.statistics().accepted, 0);
    drop(taken);
    now += Time::from_ms(200);
    let came = (0..3).filter(|_| target.poll(now, &mut mock)).count();
    assert_eq!((came, target.statistics().accepted), (1, 1));
}

#[test]
fn half_a_handshake_half_a_pdu_and_half_a_transfer_come_to_an_end() {
    let mut options = roomy();
    options.handshake_time_max = Time::from_ms(1_500);
    options.stall_time_max = Time::from_ms(2_000);
    let served = Served::start(options, 64);
    let start = Instant::now();
    let mut patient = Vec::new();
    // Nothing at all, half an ICReq, no Connect.
    patient.push((Raw::open(served.address), Raw::open(served.address)));
    let mut half = Raw::open(served.address);
    half.send_bytes(&[0, 0, 128]);
    patient.push((half, Raw::initialized(served.address, PLAIN)));
    // Half a capsule in every part, and half a transfer.
    let write = DataPointer::Capsule { offset: 0, len: BLOCK as u32 }.put(Sqe::write(1, 1, 0));
    for cut in [1, 8, 9, 71, 72, 73, 4_000] {
        let (admin, mut raw) = Raw::queue(served.address, PLAIN);
        let bytes = raw.bytes(&Pdu::CapsuleCmd(write), &[3; BLOCK]);
        raw.send_bytes(&bytes[..cut]);
        patient.push((admin, raw));
    }
    let (admin, mut raw) = Raw::queue(served.address, PLAIN);
    raw.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: 8_192 }.put(Sqe::write(1, 1, 1))), &[]);
    assert!(matches!(raw.receive(), Reply::Pdu(Pdu::R2t(_), _)));
    patient.push((admin, raw));
    let quiet = Raw::queue(served.address, PLAIN);
    for (i, (_, raw)) in patient.iter_mut().enumerate() {
        assert_eq!(raw.receive(), Reply::End, "{i}");
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    // A connection in the middle of nothing stays, for longer than one that stalls from here on.
    let (_late_admin, mut late) = Raw::queue(served.address, PLAIN);
    let bytes = late.bytes(&Pdu::CapsuleCmd(write), &[3; BLOCK]);
    late.send_bytes(&bytes[..9]);
    assert_eq!(late.receive(), Reply::End);
    let (_admin, mut quiet) = quiet;
    still_works(&mut quiet);
    let (statistics, mock) = served.stop();
    assert_eq!((statistics.stalled, statistics.fatal), (4 + 7 + 1 + 1, 0));
    assert_eq!(mock.lost, 1);
}

#[test]
fn a_host_that_does_not_read_is_given_up_and_others_go_on() {
    let mut options = roomy();
    options.stall_time_max = Time::from_ms(1_500);
    let served = Served::start(options, 1_024);
    let (_admin, mut raw) = Raw::queue(served.address, PLAIN);
    // 15 reads of 4 MiB: more than any socket buffers.
    for cid in 0..15 {
        let sqe = DataPointer::Transport { len: 4 << 20 }.put(Sqe::read(cid, 0, 1_023));
        raw.send(&Pdu::CapsuleCmd(sqe), &[]);
    }
    let controller = served.controller(&host());
    let mut queue = controller.queue(1, 8).unwrap();
    let until = Instant::now() + PATIENCE;
    while served.stalled() == 0 {
        assert!(Instant::now() < until, "it is never given up");
        queue.call(Sqe::read(0, 5, 0), Transfer::In(BLOCK as u32)).unwrap().good().unwrap();
    }
    let (statistics, _) = served.stop();
    assert_eq!((statistics.stalled, statistics.fatal), (1, 0));

    // And one whose backlog grows beyond what is kept for it, however patient the target is.
    let mut options = roomy();
    options.stall_time_max = Time::from_ms(3_600_000);
    options.backlog_bytes_max = 3 << 20;
    let served = Served::start(options, 1_024);
    let (_admin, mut raw) = Raw::queue(served.address, PLAIN);
    for cid in 0..15 {
        let sqe = DataPointer::Transport { len: 4 << 20 }.put(Sqe::read(cid, 0, 1_023));
        raw.send(&Pdu::CapsuleCmd(sqe), &[]);
    }
    // Nothing is read before it was given up: what its socket holds comes then, and no more.
    let until = Instant::now() + PATIENCE;
    while served.stalled() == 0 {
        assert!(Instant::now() < until, "it is never given up");
        std::thread::yield_now();
    }
    let mut bytes = 0;
    while let Reply::Pdu(_, data) = raw.receive() {
        bytes += data.len();
    }
    assert!(bytes < 60 << 20, "{bytes}");
}

#[test]
fn hosts_that_do_not_read_share_one_bound() {
    let mut options = roomy();
    options.stall_time_max = Time::from_ms(3_600_000);
    options.backlog_bytes_max = 10 << 20;
    let served = Served::start(options, 1_024);
    let slow: Vec<_> = (0..3)
        .map(|_| {
            let (admin, mut raw) = Raw::queue(served.address, PLAIN);
            // The drive works on up to 8 MiB of each: less than the bound, and all of them more.
            for cid in 0..8 {
                let sqe = DataPointer::Transport { len: 4 << 20 }.put(Sqe::read(cid, 0, 1_023));
                raw.send(&Pdu::CapsuleCmd(sqe), &[]);
            }
            (admin, raw)
        })
        .collect();
    let (_admin, mut good) = Raw::queue(served.address, PLAIN);
    let until = Instant::now() + PATIENCE;
    while served.stalled() == 0 {
        assert!(Instant::now() < until, "all of them are kept");
        still_works(&mut good);
    }
    still_works(&mut good);
    drop(slow);
    let (statistics, _) = served.stop();
    assert!((1..3).contains(&statistics.stalled) && statistics.fatal == 0, "{statistics:?}");
}

#[test]
fn a_byte_at_a_time_is_slow_and_right() {
    let served = Served::start(options(), 64);
    let ask = IcReq { header_digest: true, data_digest: true, ..PLAIN };
    let (_admin, mut raw) = Raw::queue(served.address, ask);
    let write = DataPointer::Capsule { offset: 0, len: BLOCK as u32 }.put(Sqe::write(1, 1, 0));
    for byte in raw.bytes(&Pdu::CapsuleCmd(write), &[3; BLOCK]) {
        raw.send_bytes(&[byte]);
    }
    assert_eq!(raw.response().status, Status::SUCCESS);
    still_works(&mut raw);
}

#[test]
fn controllers_are_bounded() {
    // Controllers: four functions.
    let served = Served::start(crate::nvme_tcp::mock::options(), 1);
    let held: Vec<_> = (0..4).map(|_| Raw::admin(served.address, PLAIN)).collect();
    let mut raw = Raw::initialized(served.address, PLAIN);
    raw.send(&Pdu::CapsuleCmd(connect_command(0)), &connect_data(CONTROLLER_ANY).to_bytes());
    assert_eq!(raw.response().status, fabrics::status::CONTROLLER_BUSY);
    drop(held);
}
