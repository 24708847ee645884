//! What things cost: rates, links framed in TLPs, and resources that serve one after the other.

use crate::profile::{LinkProfile, MemoryProfile};
use tidewater_base::{Duration, Instant};

/// A bandwidth, as time per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Femtoseconds per byte: whole picoseconds would round PCIe 4.0 x4 by 0.4 %.
    fs_per_byte: u64,
}

impl Rate {
    /// A rate of `bytes` per second; 0 costs no time.
    pub fn per_second(bytes: u64) -> Rate {
        Rate { fs_per_byte: 1_000_000_000_000_000u64.checked_div(bytes).unwrap_or(0) }
    }

    /// The time for `bytes`.
    #[inline]
    pub fn time(self, bytes: u64) -> Duration {
        Duration::from_ps(bytes * self.fs_per_byte / 1_000)
    }
}

/// A resource that serves one request after the other, in the order in which they come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Server {
    free_at: Instant,
    busy: Duration,
}

impl Server {
    /// Takes the resource for `cost` from `now` or from when it is free; returns when it is done.
    #[inline]
    pub fn serve(&mut self, now: Instant, cost: Duration) -> Instant {
        self.free_at = self.free_at.max(now) + cost;
        self.busy += cost;
        self.free_at
    }

    /// Time spent serving.
    pub fn busy(&self) -> Duration {
        self.busy
    }
}

/// A resource that bursts of two classes share turn by turn: foreground work, which a host waits for, and background
/// work. While there is work of both, each gets every other turn; so a long transfer in the background slows others
/// down and does not stop them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedServer {
    free_at: Instant,
    /// Time that the background still needs.
    behind: Duration,
}

impl SharedServer {
    /// Takes the resource for `cost`; returns when it is done.
    #[inline(always)]
    pub fn serve(&mut self, now: Instant, cost: Duration) -> Instant {
        if self.behind.is_zero() {
            self.free_at = self.free_at.max(now) + cost;
            return self.free_at;
        }
        self.catch_up(now);
        let between = cost.min(self.behind);
        self.behind = self.behind.saturating_sub(between);
        self.free_at = self.free_at.max(now) + cost + between;
        self.free_at
    }

    /// Takes the resource for `cost` in the background.
    pub fn serve_behind(&mut self, now: Instant, cost: Duration) {
        self.catch_up(now);
        self.free_at = self.free_at.max(now);
        self.behind += cost;
    }

    /// The background has had the time in which the foreground left the resource idle.
    fn catch_up(&mut self, now: Instant) {
        if now > self.free_at {
            let idle = now.since(self.free_at).min(self.behind);
            self.behind = self.behind.saturating_sub(idle);
            self.free_at += idle;
        }
    }
}

/// One direction of a PCIe link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    rate: Rate,
    /// The maximum payload, as a power of two: a division would take longer than all else here.
    payload_shift: u32,
    tlp_overhead: u64,
    latency: Duration,
    wire: Server,
    bytes: u64,
}

impl Link {
    /// A direction of the profile's link. Asserts that its maximum payload is a power of two.
    pub fn new(profile: &LinkProfile) -> Link {
        assert!(profile.payload_max.is_power_of_two(), "[link] payload_max = {}", profile.payload_max);
        Link {
            rate: Rate::per_second(lane_bytes_per_second(profile.generation) * u64::from(profile.lanes)),
            payload_shift: profile.payload_max.trailing_zeros(),
            tlp_overhead: u64::from(profile.tlp_overhead),
            latency: profile.latency,
            wire: Server::default(),
            bytes: 0,
        }
    }

    /// Moves `bytes` as TLPs of at most the maximum payload; returns when the last has arrived.
    #[inline]
    pub fn transfer(&mut self, now: Instant, bytes: u64) -> Instant {
        let tlps = (bytes + (1 << self.payload_shift) - 1) >> self.payload_shift;
        self.bytes += bytes;
        self.wire.serve(now, self.rate.time(bytes + tlps * self.tlp_overhead)) + self.latency
    }

    /// Sends so many TLPs without data (read requests); returns when the last has arrived.
    #[inline]
    pub fn request(&mut self, now: Instant, tlps: u64) -> Instant {
        self.wire.serve(now, self.rate.time(tlps * self.tlp_overhead)) + self.latency
    }

    /// Bytes moved so far, framing not counted.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time that the wire was busy.
    pub fn busy(&self) -> Duration {
        self.wire.busy()
    }
}

/// Bytes per second of one lane after line coding: 8b/10b to generation 2, 128b/130b from 3 (PCI Express Base 5.0,
/// 4.2).
pub fn lane_bytes_per_second(generation: u32) -> u64 {
    match generation {
        0 | 1 => 250_000_000,
        2 => 500_000_000,
        3 => 984_615_384,
        4 => 1_969_230_769,
        _ => 3_938_461_538,
    }
}

/// A memory that serves pages: latency overlaps, bandwidth does not.
#[derive(Clone, Debug)]
pub(crate) struct MemoryPort {
    rate: Rate,
    read_latency: Duration,
    write_latency: Duration,
    server: SharedServer,
    pub(crate) traffic: Traffic,
}

/// Bytes that crossed a memory's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read from it.
    pub read: u64,
    /// Written into it.
    pub written: u64,
}

impl MemoryPort {
    pub(crate) fn new(memory: &MemoryProfile) -> MemoryPort {
        MemoryPort {
            rate: Rate::per_second(memory.usable()),
            read_latency: memory.read_latency,
            write_latency: memory.write_latency,
            server: SharedServer::default(),
            traffic: Traffic::default(),
        }
    }

    pub(crate) fn read(&mut self, now: Instant, bytes: u64) -> Instant {
        self.traffic.read += bytes;
        self.server.serve(now, self.rate.time(bytes)) + self.read_latency
    }

    /// A read that is not waited for, by a controller that shares the memory turn by turn.
    pub(crate) fn read_behind(&mut self, now: Instant, bytes: u64) {
        self.traffic.read += bytes;
        self.server.serve_behind(now, self.rate.time(bytes));
    }

    /// As [`MemoryPort::read_behind`], a write.
    pub(crate) fn write_behind(&mut self, now: Instant, bytes: u64) {
        self.traffic.written += bytes;
        self.server.serve_behind(now, self.rate.time(bytes));
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, now: Instant, bytes: u64) -> Instant {
        self.traffic.written += bytes;
        self.server.serve(now, self.rate.time(bytes)) + self.write_latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_serves_in_order() {
        let mut server = Server::default();
        let ns = Duration::from_ns;
        assert_eq!(server.serve(Instant::from_ns(10), ns(5)), Instant::from_ns(15));
        assert_eq!(server.serve(Instant::from_ns(11), ns(5)), Instant::from_ns(20));
        assert_eq!(server.serve(Instant::from_ns(30), ns(5)), Instant::from_ns(35));
        assert_eq!(server.busy(), ns(15));
    }

    #[test]
    fn the_background_gets_every_other_turn_and_all_gaps() {
        let mut server = SharedServer::default();
        let ns = Duration::from_ns;
        server.serve_behind(Instant::from_ns(0), ns(100));
        // Ten of its own and ten of the background's.
        assert_eq!(server.serve(Instant::from_ns(0), ns(10)), Instant::from_ns(20));
        // 30 idle until 50: 60 are left.
        assert_eq!(server.serve(Instant::from_ns(50), ns(80)), Instant::from_ns(190));
        assert_eq!(server.serve(Instant::from_ns(190), ns(5)), Instant::from_ns(195), "nothing is behind any more");
        assert_eq!(server.serve(Instant::from_ns(190), ns(5)), Instant::from_ns(200));
    }

    #[test]
    fn generation_2_x4_moves_2_gb_per_second() {
        let profile =
            LinkProfile { generation: 2, lanes: 4, payload_max: 256, tlp_overhead: 0, latency: Duration::ZERO };
        let mut link = Link::new(&profile);
        assert_eq!(link.transfer(Instant::ZERO, 2_000_000), Instant::from_ns(1_000_000));
    }
}
