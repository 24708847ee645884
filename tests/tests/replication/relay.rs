//! Devices whose bytes pass a relay that delays, stalls, cuts off and changes them by seed: a changed byte reaches no
//! log, plain or over TLS, and connections come back by themselves.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::cluster::{Cluster, PATIENCE, append, numbers};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tidewater_base::Rng;
use tidewater_tests::wait;

/// How often a pump looks whether the relay has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Faults that a relay makes, and has made.
#[derive(Default)]
pub struct Weather {
    seed: u64,
    /// Pieces of which something happens to one.
    one_of: u64,
    stopped: AtomicBool,
    connections: AtomicU64,
    flipped: AtomicU64,
    cut_off: AtomicU64,
    delayed: AtomicU64,
    dribbled: AtomicU64,
    stalled: AtomicU64,
}

impl Weather {
    fn fired(&self) -> [u64; 5] {
        [&self.flipped, &self.cut_off, &self.delayed, &self.dribbled, &self.stalled].map(|count| count.load(Relaxed))
    }
}

/// Passes connections on to another address, until it is dropped: that cuts them.
pub struct Relay {
    weather: Arc<Weather>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// One that does nothing to what passes.
    pub fn clear(at: &str, to: String) -> Relay {
        Relay::start(at, to, &Arc::new(Weather { one_of: u64::MAX, ..Weather::default() }))
    }

    fn start(at: &str, to: String, weather: &Arc<Weather>) -> Relay {
        // A program that another test starts meanwhile has a copy of the last relay's socket until its `exec`.
        let listener = wait::success("loopback can be had", || TcpListener::bind(at));
        listener.set_nonblocking(true).expect("a socket");
        let of = Arc::clone(weather);
        let thread = std::thread::spawn(move || {
            let mut pumps: Vec<JoinHandle<()>> = Vec::new();
            while !of.stopped.load(Relaxed) {
                let asked = &mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                let _ = poll(asked, PollTimeout::try_from(LOOK).expect("it is short"));
                let Ok((near, _)) = listener.accept() else { continue };
                pumps.retain(|pump| !pump.is_finished());
                let Ok(far) = TcpStream::connect(&to) else { continue };
                for (from, to, way) in [(&near, &far, 0), (&far, &near, 1)] {
                    let rng = Rng::new(of.seed + 2 * of.connections.load(Relaxed) + way, b"relay");
                    let (from, to) = (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
                    from.set_nonblocking(false).expect("a socket");
                    from.set_read_timeout(Some(LOOK)).expect("a socket");
                    let _ = to.set_nodelay(true);
                    let of = Arc::clone(&of);
                    pumps.push(std::thread::spawn(move || pump(from, to, rng, &of)));
                }
                of.connections.fetch_add(1, Relaxed);
            }
            pumps.into_iter().for_each(|pump| pump.join().expect("a pump does not panic"));
        });
        Relay { weather: Arc::clone(weather), thread: Some(thread) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.weather.stopped.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One direction of a connection, until its end.
fn pump(mut from: TcpStream, mut to: TcpStream, mut rng: Rng, weather: &Weather) {
    let (mut bytes, mut stalled) = (vec![0; 64 << 10], false);
    while !weather.stopped.load(Relaxed) {
        let count = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => continue,
            Err(_) => break,
        };
        if stalled {
            continue;
        }
        let (piece, mut dribbles) = (&mut bytes[..count], false);
        if rng.below(weather.one_of) == 0 {
            let at = rng.below(count as u64) as usize;
            match rng.below(10) {
                0..3 => {
                    weather.flipped.fetch_add(1, Relaxed);
                    piece[at] ^= 1 << rng.below(8);
                }
                3..5 => {
                    weather.cut_off.fetch_add(1, Relaxed);
                    let _ = to.write_all(&piece[..at]);
                    break;
                }
                5..7 => {
                    weather.delayed.fetch_add(1, Relaxed);
                    wait::pass(Duration::from_millis(rng.below(40)));
                }
                7..9 => {
                    weather.dribbled.fetch_add(1, Relaxed);
                    dribbles = true;
                }
                _ => {
                    weather.stalled.fetch_add(1, Relaxed);
                    stalled = true;
                    continue;
                }
            }
        }
        let step = if dribbles { 1 + rng.below(7) as usize } else { count };
        if piece.chunks(step).any(|part| to.write_all(part).is_err()) {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Records that are appended while the network does this, and what it did.
fn live(seed: u64, secured: bool, records: u64) -> [u64; 5] {
    let mut cluster = Cluster::prepare(3);
    if secured {
        cluster.secure_all();
    }
    let weather = Arc::new(Weather { seed: seed << 32, one_of: 60, ..Weather::default() });
    // The lower number dials: none dials node 0.
    let relays: Vec<Relay> = (1..3)
        .map(|node| {
            let (at, to) = (cluster.at(node + 8), cluster.at(node));
            cluster.relay(node, at.clone());
            Relay::start(&at, to, &weather)
        })
        .collect();
    (0..3).for_each(|node| cluster.start(node));
    cluster.form("quorum");
    let log = cluster.log(0);
    for number in 0..records {
        append(&log, number, PATIENCE)
            .unwrap_or_else(|error| panic!("seed {seed}, record {number}: {error}: {}", cluster.status(0)));
    }
    drop(log);
    cluster.promoted(1);
    let found = numbers(&cluster.log(1));
    assert_eq!(found, (0..records).collect::<Vec<_>>(), "seed {seed}");
    drop(relays);
    weather.fired()
}

fn lives(seeds: std::ops::Range<u64>, records: u64) {
    let mut all = [0; 5];
    for seed in seeds {
        for secured in [false, true] {
            let fired = live(seed, secured, records);
            println!("seed {seed}, TLS {secured}: {fired:?}");
            all = std::array::from_fn(|i| all[i] + fired[i]);
        }
    }
    let [flipped, cut_off, delayed, dribbled, stalled] = all;
    println!("{flipped} bits flipped, {cut_off} cut off, {delayed} late, {dribbled} in small parts, {stalled} stalled");
    assert!(all[..4].iter().all(|count| *count > 0), "{all:?}");
}

#[test]
fn changed_and_cut_bytes_reach_no_log_and_connections_come_back() {
    lives(1..2, 400);
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_changed_and_cut_bytes_reach_no_log_and_connections_come_back() {
    lives(100..130, 3_000);
}
