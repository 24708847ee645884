//! Peers on loopback.

mod faulty;
mod secured;

use super::*;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use tidewater_wire::replication::{Body, Epoch};

const PATIENCE: Duration = Duration::from_secs(600);

fn hello(drive: u8) -> Hello {
    Hello { drive: [drive; 16], lanes: [2; 16], ..Hello::default() }
}

fn setup(node: u8, peers: &[(u8, String)]) -> PeersSetup {
    let listen = Some("127.0.0.1:0".parse().expect("an address"));
    PeersSetup {
        node,
        cluster: "test".into(),
        listen,
        peers: peers.to_vec(),
        identity: None,
        insecure: false,
        faults: None,
        catch_up_rate: None,
        holds_log: false,
    }
}

fn bind(setup: &PeersSetup, drive: u8) -> Peers {
    Peers::bind(setup, hello(drive), Arc::new(Waker::new().expect("an eventfd"))).expect("loopback can be had")
}

fn at(peers: &Peers) -> String {
    peers.address().expect("it listens").to_string()
}

fn frame(from: u8, to: u8, body: Body) -> Frame {
    Frame { function: 0, from, to, epoch: Epoch::ZERO, body }
}

/// Polls all until something holds.
fn until(peers: &mut [&mut Peers], mut is_so: impl FnMut(&mut [&mut Peers]) -> bool) {
    let start = Instant::now();
    while !is_so(peers) {
        assert!(
            start.elapsed() < PATIENCE,
            "{:?}",
            peers.iter().map(|p| p.links().collect::<Vec<_>>()).collect::<Vec<_>>()
        );
        for one in peers.iter_mut() {
            one.poll();
            one.flush();
        }
        std::thread::yield_now();
    }
}

fn is_up(peers: &Peers) -> bool {
    peers.links().all(|link| link.up)
}

fn pair() -> (Peers, Peers) {
    let one = bind(&setup(1, &[(0, "127.0.0.1:1".into())]), 1);
    let zero = bind(&setup(0, &[(1, at(&one))]), 2);
    (zero, one)
}

fn take_frame(peers: &mut Peers) -> Option<(Frame, Vec<u8>)> {
    while let Some(incoming) = peers.take() {
        if let Incoming::Frame(frame, log) = incoming {
            return Some((*frame, log));
        }
    }
    None
}

#[test]
fn frames_go_both_ways_and_the_round_trip_is_measured() {
    let (mut zero, mut one) = pair();
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    let log = vec![7; 100_000];
    let data = frame(0, 1, Body::Data { pulled: false, lane: 1, offset: 5, len: 100_000 });
    zero.send(&data, &log);
    one.send(&frame(1, 0, Body::KeepAlive), &[]);
    let (mut at_one, mut at_zero) = (None, None);
    until(&mut [&mut zero, &mut one], |all| {
        at_zero = at_zero.take().or_else(|| take_frame(all[0]));
        at_one = at_one.take().or_else(|| take_frame(all[1]));
        at_zero.is_some() && at_one.is_some() && all.iter().all(|it| it.links().all(|link| link.round_trip.is_some()))
    });
    assert_eq!(at_one, Some((data, log)));
    assert_eq!(at_zero.map(|(frame, _)| frame.body), Some(Body::KeepAlive));
}

#[test]
fn peers_learn_how_the_disk_of_a_device_is_now_and_when_they_connect() {
    let (mut zero, mut one) = pair();
    let disk = |peers: &Peers| peers.links().next().expect("one peer").disk;
    one.set_disk(Disk::Full);
    until(&mut [&mut zero, &mut one], |all| disk(all[0]) == Disk::Full);
    assert_eq!(disk(&one), Disk::Works, "a ping that comes back says how the other one is");
    one.set_disk(Disk::Failed);
    until(&mut [&mut zero, &mut one], |all| disk(all[0]) == Disk::Failed);
    zero.set_disk(Disk::Full);
    one.set_disk(Disk::Works);
    until(&mut [&mut zero, &mut one], |all| (disk(all[0]), disk(all[1])) == (Disk::Works, Disk::Full));
    zero.close(0, "a test");
    assert_eq!(disk(&zero), Disk::Works, "of a peer that is away nothing is known");
}

/// The system says in every turn that a connection takes more, as long as it is asked to.
#[test]
fn a_connection_that_was_full_once_is_quiet_when_all_is_sent() {
    let (mut zero, mut one) = pair();
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    let log = vec![7; 100_000];
    let data = frame(0, 1, Body::Data { pulled: false, lane: 1, offset: 5, len: 100_000 });
    let is_full = |peers: &Peers| peers.peers[0].open.as_ref().is_some_and(|open| open.blocked);
    // Nothing is read meanwhile.
    let mut sent = 0;
    while !is_full(&zero) {
        zero.send(&data, &log);
        zero.flush();
        sent += 1;
        assert!(sent < 640, "the system takes all");
    }
    let mut came = 0;
    until(&mut [&mut zero, &mut one], |all| {
        came += u64::from(take_frame(all[1]).is_some());
        let open = all[0].peers[0].open.as_ref().expect("it is connected");
        came + open.connection.dropped == sent && !open.has_output() && !open.blocked
    });
    let mut turns = 0;
    until(&mut [&mut zero, &mut one], |all| {
        let waits = |peers: &Peers| {
            let mut poll = [nix::poll::PollFd::new(peers.as_fd(), nix::poll::PollFlags::POLLIN)];
            nix::poll::poll(&mut poll, nix::poll::PollTimeout::ZERO).expect("it can be polled") == 0
        };
        turns = if waits(all[0]) { turns + 1 } else { 0 };
        turns > 100
    });
}

#[test]
fn a_peer_that_was_started_anew_is_known_as_such() {
    let (mut zero, mut one) = pair();
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    let address = one.address();
    drop(one);
    until(&mut [&mut zero], |all| !is_up(all[0]));
    let mut again = bind(&PeersSetup { listen: address, ..setup(1, &[(0, "127.0.0.1:1".into())]) }, 1);
    until(&mut [&mut zero, &mut again], |all| all.iter().all(|peers| is_up(peers)));
    let mut seen = Vec::new();
    while let Some(incoming) = zero.take() {
        if let Incoming::Link { up, restarted, .. } = incoming {
            seen.push((up, restarted));
        }
    }
    assert_eq!(seen, [(true, false), (false, false), (true, true)]);
}

#[test]
fn each_side_says_why_it_refuses_the_other() {
    let mut one = bind(&setup(1, &[(0, "127.0.0.1:1".into())]), 1);
    let foreign = PeersSetup { cluster: "other".into(), ..setup(0, &[(1, at(&one))]) };
    let mut zero = bind(&foreign, 2);
    until(&mut [&mut zero, &mut one], |all| {
        all.iter().all(|peers| peers.links().all(|link| link.why.is_some_and(|why| why.contains("--cluster"))))
    });
    // A third device that takes node 0's place with node 1's image.
    let mut copy = bind(&setup(0, &[(1, at(&one))]), 1);
    until(&mut [&mut copy, &mut one], |all| {
        all[0].links().all(|link| link.why.is_some_and(|why| why.contains("same drive identifier")))
    });
    assert!(!is_up(&one) && !is_up(&copy));
}

#[test]
fn what_is_no_peer_is_closed_and_disturbs_no_connection() {
    let (mut zero, mut one) = pair();
    let address = one.address().expect("it listens");
    let mut browsers: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).expect("it listens")).collect();
    for browser in &mut browsers {
        browser.write_all(&[b'G'; Hello::SIZE]).expect("it is open");
    }
    until(&mut [&mut zero, &mut one], |all| all.iter().all(|peers| is_up(peers)));
    let mut closed = 0;
    until(&mut [&mut zero, &mut one], |_| {
        browsers.retain_mut(|browser| {
            browser.set_nonblocking(true).expect("a socket");
            let is_open = matches!(browser.read(&mut [0; 16]), Err(error) if error.kind() == ErrorKind::WouldBlock);
            closed += usize::from(!is_open);
            is_open
        });
        closed == 40
    });
    assert!(is_up(&zero) && is_up(&one));
}

#[test]
fn addresses_beyond_loopback_and_impossible_nodes_are_refused() {
    let refused = |setup: &PeersSetup| {
        let waker = Arc::new(Waker::new().expect("an eventfd"));
        Peers::bind(setup, hello(1), waker).map(drop).expect_err("it is refused").to_string()
    };
    let open = PeersSetup { listen: Some("0.0.0.0:0".parse().expect("an address")), ..setup(0, &[]) };
    assert!(refused(&open).contains("--insecure-peers"));
    assert!(refused(&setup(16, &[])).contains("node 16"));
    assert!(refused(&setup(1, &[(1, String::new())])).contains("node 1"));
    assert!(refused(&PeersSetup { cluster: String::new(), ..setup(0, &[]) }).contains("1 to 32 bytes"));
    let mut zero = bind(&setup(0, &[(1, "192.0.2.1:7".into())]), 1);
    until(&mut [&mut zero], |all| all[0].links().all(|link| link.why.is_some_and(|why| why.contains("--insecure"))));
}
