//! How long replicas are behind, and what metrics say of them.

use crate::engine::firmware::Firmware;
use crate::engine::group::role_of;
use crate::engine::route::World;
use crate::image::Disk;
use crate::metrics::Page;
use crate::peers::PeerLink;
use crate::ring::MappedRing;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tidewater_core::fast::{Function, Lane};
use tidewater_wire::vendor::Role;

/// How often the end of a log is noted: a lag is as exact as this.
const EVERY: Duration = Duration::from_millis(100);
/// Notes that are kept: a longer lag is as long as these.
const MARKS: usize = 600;

/// Where the lanes of a function ended, from time to time.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    marks: VecDeque<(Instant, Vec<u64>)>,
}

impl Marks {
    /// Notes where the lanes end now, if it is time.
    fn note_ends(&mut self, now: Instant, ends: impl FnOnce() -> Vec<u64>) {
        if self.marks.back().is_some_and(|(at, _)| now - *at < EVERY) {
            return;
        }
        if self.marks.len() == MARKS {
            self.marks.pop_front();
        }
        self.marks.push_back((now, ends()));
    }

    /// How old the oldest byte is that a replica with these counters lacks, as far as the notes reach.
    pub(crate) fn lag(&self, now: Instant, shadow: &[u64]) -> Duration {
        let lacks = |(_, ends): &&(Instant, Vec<u64>)| ends.iter().zip(shadow).any(|(end, at)| end > at);
        // Marks only grow: one that a replica lacks is followed by such.
        let first = self.marks.partition_point(|mark| !lacks(&mark));
        self.marks.get(first).map_or(Duration::ZERO, |(at, _)| now.saturating_duration_since(*at))
    }
}

impl<M> World<M> {
    /// Notes where the logs that this device sends to peers end.
    pub(crate) fn note_ends(&mut self, firmware: &Firmware) {
        if self.peers.is_none() {
            return;
        }
        let (now, functions) = (Instant::now(), firmware.subsystem.device().fast().functions());
        self.marks.resize_with(functions.len(), Marks::default);
        for (number, of) in functions.iter().enumerate() {
            let ring = self.ports.get(number).and_then(|port| port.ring.as_ref());
            let marks = &mut self.marks[number];
            if of.transport().persistent().role == Role::Primary {
                marks.note_ends(now, || appended(ring, of));
            } else if !marks.marks.is_empty() {
                *marks = Marks::default();
            }
        }
    }

    /// Where the lanes of a function end by what programs have appended.
    pub(crate) fn appended(&self, function: usize, of: &Function) -> Vec<u64> {
        appended(self.ports.get(function).and_then(|port| port.ring.as_ref()), of)
    }

    /// How long a replica is behind.
    pub(crate) fn lag(&self, function: usize, shadow: &[u64]) -> Duration {
        self.marks.get(function).map_or(Duration::ZERO, |marks| marks.lag(Instant::now(), shadow))
    }

    /// What the page of metrics says of peers.
    pub(crate) fn peers_metrics(&self, firmware: &Firmware, page: &mut Page) {
        let Some(peers) = &self.peers else { return };
        let links: Vec<_> = peers.links().into_iter().map(|link| (link.node.to_string(), link)).collect();
        page.family("gauge", "tidewater_peer_up", "1 while a peer is connected.");
        for (node, link) in &links {
            page.sample("tidewater_peer_up", &[("peer", node)], f64::from(link.up));
        }
        page.family("gauge", "tidewater_peer_round_trip_seconds", "Round trip to a peer, smoothed.");
        for (node, link) in &links {
            if let Some(time) = link.round_trip {
                page.sample("tidewater_peer_round_trip_seconds", &[("peer", node)], time.as_secs_f64());
            }
        }
        page.family("gauge", "tidewater_peer_waiting_bytes", "Bytes that wait to be sent to a peer.");
        for (node, link) in &links {
            page.sample("tidewater_peer_waiting_bytes", &[("peer", node)], link.waiting as f64);
        }
        page.family(
            "counter",
            "tidewater_peer_dropped_frames_total",
            "Data frames not sent because too many bytes waited.",
        );
        for (node, link) in &links {
            page.sample("tidewater_peer_dropped_frames_total", &[("peer", node)], link.dropped as f64);
        }
        let functions = firmware.subsystem.device().fast().functions();
        let numbered: Vec<_> = functions.iter().enumerate().map(|(at, of)| (at, at.to_string(), of)).collect();
        page.family("gauge", "tidewater_group_role", "1 for the role that a function has in its group.");
        for (_, function, of) in &numbered {
            let role = role_of(&of.transport().status());
            page.sample("tidewater_group_role", &[("function", function), ("role", role)], 1.0);
        }
        page.family("gauge", "tidewater_group_epoch", "Counter of the epoch of a function's log.");
        for (_, function, of) in &numbered {
            let epoch = of.transport().epoch().counter();
            page.sample("tidewater_group_epoch", &[("function", function)], epoch as f64);
        }
        let flows: Vec<_> = numbered
            .iter()
            .flat_map(|(at, function, of)| {
                let flows = of.transport().peers().zip(of.transport().shadows());
                flows.map(move |(peer, (_, shadow))| (*at, function, *of, peer, shadow.to_vec()))
            })
            .collect();
        for (name, help) in [
            ("tidewater_replica_in_step", "1 while a replica answers and has all that the epoch began with."),
            ("tidewater_replica_behind_bytes", "Bytes of the log that a replica lacks."),
            ("tidewater_replica_behind_seconds", "Age of the oldest byte that a replica lacks, to 0.1 s, up to 60 s."),
        ] {
            page.family("gauge", name, help);
            for (at, function, of, peer, shadow) in &flows {
                let value = match name {
                    "tidewater_replica_in_step" => {
                        let is_late = peer.stale || peer.data_failed || peer.counter_failed || !peer.attached;
                        let works = |(_, it): &(String, PeerLink)| it.node != peer.node || it.disk == Disk::Works;
                        f64::from(peer.synced && !is_late && links.iter().all(works))
                    }
                    "tidewater_replica_behind_bytes" => behind(&self.appended(*at, of), shadow) as f64,
                    _ => self.lag(*at, shadow).as_secs_f64(),
                };
                let node = peer.node.to_string();
                page.sample(name, &[("function", function), ("peer", &node)], value);
            }
        }
    }
}

/// Where the lanes of a function end by what programs have appended: the device may not have taken all of it.
fn appended(ring: Option<&MappedRing>, of: &Function) -> Vec<u64> {
    let ring = ring.filter(|ring| ring.fits(of));
    let end = |(lane, of): (usize, &Lane)| ring.map_or(0, |ring| ring.lanes[lane].tail).max(of.released());
    of.lanes().iter().enumerate().map(end).collect()
}

/// Bytes that a replica with these counters lacks of lanes that end there.
pub(crate) fn behind(ends: &[u64], shadow: &[u64]) -> u64 {
    ends.iter().zip(shadow).fold(0, |sum, (end, at)| sum.saturating_add(end.saturating_sub(*at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_the_age_of_the_oldest_byte_that_is_lacking() {
        let (start, mut marks) = (Instant::now(), Marks::default());
        assert_eq!(marks.lag(start, &[0, 0]), Duration::ZERO, "nothing is known");
        for (step, ends) in [[0, 0], [10, 0], [10, 5], [10, 5], [20, 5]].into_iter().enumerate() {
            marks.note_ends(start + EVERY * step as u32, || ends.to_vec());
        }
        let now = start + EVERY * 4;
        for (shadow, steps) in [([20, 5], 0), ([10, 5], 0), ([9, 5], 3), ([10, 4], 2), ([0, 0], 3)] {
            assert_eq!(marks.lag(now, &shadow), EVERY * steps, "{shadow:?}");
        }
    }

    #[test]
    fn what_is_lacking_is_counted_for_each_lane_and_ends_at_the_largest_number() {
        for (ends, shadow, bytes) in [([10, 5], [4, 9], 6), ([u64::MAX, 5], [0, 0], u64::MAX), ([7, 7], [7, 7], 0)] {
            assert_eq!(behind(&ends, &shadow), bytes);
        }
    }

    #[test]
    fn notes_are_seldom_and_bounded() {
        let (start, mut marks) = (Instant::now(), Marks::default());
        for step in 0..20_000 {
            marks.note_ends(start + EVERY / 10 * step, || vec![u64::from(step)]);
        }
        assert_eq!(marks.marks.len(), MARKS);
        assert!(marks.marks.iter().zip(marks.marks.iter().skip(1)).all(|(a, b)| b.0 - a.0 >= EVERY));
    }
}
