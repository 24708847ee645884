//! The carrier of packets from machine to machine: it delays, loses, repeats and reorders them by seed, and cuts either
//! direction of a link. The kernel of this machine need have no netem for it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tidewater_base::Rng;

/// How often the relay looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// Bytes of a packet, at most.
const PACKET_MAX: usize = 65_536;

/// Faults of packets on their way from one machine to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// None arrives.
    pub cut: bool,
    /// Of a thousand, how many are lost.
    pub lost_permille: u32,
    /// Of a thousand, how many arrive twice.
    pub twice_permille: u32,
    /// How late each arrives.
    pub delay: Duration,
    /// How much later it may arrive than that: it may be overtaken.
    pub jitter: Duration,
    /// Bytes a second; 0: no limit.
    pub rate: u64,
    /// Longer packets are lost in silence; 0: no limit.
    pub length_max: usize,
}

impl Weather {
    /// A link that is cut.
    pub const CUT: Weather = Weather {
        cut: true,
        lost_permille: 0,
        twice_permille: 0,
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        rate: 0,
        length_max: 0,
    };
}

/// Faults that packets have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Sent by the kernel.
    pub sent: u64,
    /// Lost on a link that is cut.
    pub cut: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Passed on twice.
    pub twice: u64,
    /// Passed on late.
    pub late: u64,
    /// Passed on before one that was sent earlier.
    pub overtook: u64,
    /// Lost for their length.
    pub too_long: u64,
}

impl std::ops::AddAssign for Fired {
    fn add_assign(&mut self, other: Fired) {
        self.sent += other.sent;
        self.cut += other.cut;
        self.lost += other.lost;
        self.twice += other.twice;
        self.late += other.late;
        self.overtook += other.overtook;
        self.too_long += other.too_long;
    }
}

/// One direction between two machines.
struct Path {
    weather: Weather,
    fired: Fired,
    rng: Rng,
    /// When the last byte that was sent has passed, where bytes a second are limited.
    free_at: Instant,
    /// When the latest of the packets so far arrives.
    latest: Instant,
}

/// A packet on its way.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Instant,
    number: u64,
    to: usize,
    packet: Vec<u8>,
}

/// The relay of some machines, and what it does to each direction of each link.
pub struct Relay {
    machines: usize,
    paths: Mutex<Vec<Path>>,
    ends: AtomicBool,
}

impl Relay {
    /// A relay that passes all on.
    pub fn new(machines: usize, seed: u64) -> Relay {
        let now = Instant::now();
        let path = |place: usize| Path {
            weather: Weather::default(),
            fired: Fired::default(),
            rng: Rng::new(seed << 8 | place as u64, b"packets"),
            free_at: now,
            latest: now,
        };
        let paths = (0..machines * machines).map(path).collect();
        Relay { machines, paths: Mutex::new(paths), ends: AtomicBool::new(false) }
    }

    fn paths(&self) -> MutexGuard<'_, Vec<Path>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the faults of packets from one machine to another from now on.
    pub fn set(&self, from: u8, to: u8, weather: Weather) {
        let place = usize::from(from) * self.machines + usize::from(to);
        self.paths()[place].weather = weather;
    }

    /// Faults that packets from one machine to another have met.
    pub fn fired(&self, from: u8, to: u8) -> Fired {
        self.paths()[usize::from(from) * self.machines + usize::from(to)].fired
    }

    /// The relay comes to its end soon.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Passes on what the interfaces of the machines send, until it is to end. `receiver`: the machine that a packet is
    /// for.
    pub fn run(&self, interfaces: &[File], receiver: impl Fn(&[u8]) -> Option<usize>) {
        let (mut flights, mut number, mut bytes) = (BinaryHeap::new(), 0, vec![0; PACKET_MAX]);
        while !self.ends.load(Ordering::Relaxed) {
            let now = Instant::now();
            while flights.peek().is_some_and(|Reverse(first): &Reverse<Flight>| first.at <= now) {
                let Some(Reverse(Flight { to, packet, .. })) = flights.pop() else { break };
                deliver(&interfaces[to], &packet);
            }
            // One more millisecond, where a wait would end just before the packet is due.
            let next = flights.peek().map_or(LOOK, |Reverse(first)| {
                first.at.saturating_duration_since(now).min(LOOK) + Duration::from_micros(999)
            });
            let mut asked: Vec<PollFd> =
                interfaces.iter().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN)).collect();
            let _ = poll(&mut asked, PollTimeout::try_from(next).unwrap_or(PollTimeout::ZERO));
            let ready: Vec<bool> = asked.iter().map(|one| one.any().unwrap_or(false)).collect();
            for from in (0..interfaces.len()).filter(|&from| ready[from]) {
                while let Ok(len @ 1..) = (&interfaces[from]).read(&mut bytes) {
                    let packet = &bytes[..len];
                    let Some(to) = receiver(packet).filter(|&to| to < self.machines) else { continue };
                    let times = self.arrives(from, to, len);
                    for at in times.into_iter().flatten() {
                        if at <= Instant::now() {
                            deliver(&interfaces[to], packet);
                        } else {
                            number += 1;
                            flights.push(Reverse(Flight { at, number, to, packet: packet.to_vec() }));
                        }
                    }
                }
            }
        }
    }

    /// When a packet that has been sent now arrives, and when once more.
    fn arrives(&self, from: usize, to: usize, len: usize) -> [Option<Instant>; 2] {
        let path = &mut self.paths()[from * self.machines + to];
        let (weather, now) = (path.weather, Instant::now());
        path.fired.sent += 1;
        if weather.cut {
            path.fired.cut += 1;
            return [None; 2];
        }
        if weather.length_max != 0 && len > weather.length_max {
            path.fired.too_long += 1;
            return [None; 2];
        }
        if path.rng.below(1_000) < u64::from(weather.lost_permille) {
            path.fired.lost += 1;
            return [None; 2];
        }
        let mut at = now + weather.delay;
        if weather.rate != 0 {
            path.free_at = path.free_at.max(now) + Duration::from_secs_f64(len as f64 / weather.rate as f64);
            at += path.free_at - now;
        }
        let mut later = || Duration::from_micros(path.rng.below(weather.jitter.as_micros() as u64 + 1));
        let times = [Some(at + later()), Some(at + later())];
        let is_twice = path.rng.below(1_000) < u64::from(weather.twice_permille);
        path.fired.twice += u64::from(is_twice);
        path.fired.late += u64::from(times[0] > Some(now));
        path.fired.overtook += u64::from(times[0] < Some(path.latest));
        path.latest = path.latest.max(times[0].unwrap_or(now));
        if is_twice { times } else { [times[0], None] }
    }
}

/// An interface that takes no more loses what it is given, as one of hardware does.
fn deliver(mut interface: &File, packet: &[u8]) {
    let _ = interface.write(packet);
}
