//! Status and metrics of a device's peers, and of the groups that its functions are in.

use super::known;
use crate::clock;
use crate::engine::{Engine, Firmware};
use crate::image::Disk;
use crate::metrics::Page;
use crate::peers::PeerLink;
use serde_json::{Value, json};
use tidewater_base::Instant;
use tidewater_core::fast::Function;
use tidewater_core::fast::transport::{Leadership, PeerStatus, Status, flag};
use tidewater_wire::replication::Mode;
use tidewater_wire::vendor::Role;

/// State of peers, for the status.
pub(crate) fn status(engine: &Engine, firmware: &Firmware, wall: Instant) -> Option<Value> {
    let (group, rings) = (&engine.group, &engine.rings);
    let peers = group.carrier()?;
    let links = peers.links();
    let functions = firmware.subsystem.device().fast().functions().iter().enumerate();
    let of_group = |(number, of): (usize, &Function)| {
        let (transport, status) = (of.transport(), of.transport().status());
        let flows = transport.peers().zip(transport.shadows()).map(|(peer, (_, shadow))| {
            let disk = links.iter().find(|link| link.node == peer.node).map_or(Disk::Works, |it| it.disk);
            let up = links.iter().any(|link| link.node == peer.node && link.up);
            let hears = peer.attached && !peer.data_failed && !peer.counter_failed && !peer.stale;
            let answers = hears && disk == Disk::Works;
            known(json!({
                "node": peer.node,
                "state": state_of(&peer, up, disk),
                "disk": disk.word(),
                "answers": answers,
                "in_step": answers && peer.synced,
                "behind_bytes": behind(&rings.appended(number, of), shadow),
                "behind_ms": group.lag(number, shadow).as_millis() as u64,
                "shadow": shadow,
            }))
        });
        let (leads_for_ms, frozen_ms) = match transport.leadership() {
            Leadership::Free => (None, None),
            Leadership::Until(at) => (Some(at.since(wall).as_ns() / 1_000_000), None),
            Leadership::Frozen(at) => (None, Some(wall.since(at).as_ns() / 1_000_000)),
        };
        known(json!({
            "function": number,
            "role": role_of(&status),
            "node": transport.persistent().node,
            "mode": mode_of(status.group.mode()),
            "members": status.group.members(),
            "epoch": status.epoch.to_string(),
            "promised": status.promised.to_string(),
            "synced": transport.persistent().synced.to_string(),
            "leads_for_ms": leads_for_ms,
            "frozen_ms": frozen_ms,
            "has_deadline": transport.persistent().led,
            "stale": status.flags & flag::STALE != 0,
            "primary_silent": status.flags & flag::PRIMARY_SILENT != 0,
            "flags": flags_of(&status, transport.persistent().lost, engine.storage.disk()),
            "tail": of.lanes().iter().map(|lane| lane.released()).collect::<Vec<_>>(),
            "oldest": (0..of.lanes().len()).map(|lane| of.oldest(lane)).collect::<Vec<_>>(),
            "replicas": flows.collect::<Vec<Value>>(),
        }))
    };
    let of_link = |link: &PeerLink| {
        known(json!({
            "node": link.node,
            "address": link.address,
            "up": link.up,
            "version": link.release,
            "encrypted": link.encrypted,
            "since_ms": link.since.as_millis() as u64,
            "round_trip_us": link.round_trip.map(|time| time.as_micros() as u64),
            "waiting_bytes": link.waiting,
            "dropped_frames": link.dropped,
            "disk": link.disk.word(),
            "why": link.why,
        }))
    };
    let certificate = peers.identity().map(|identity| {
        known(json!({
            "expires": identity.expires_on(),
            "renewals": identity.renewals,
            "refused": identity.refused,
        }))
    });
    Some(known(json!({
        "node": peers.node(),
        "clock_ms": clock::milliseconds(),
        "version": env!("CARGO_PKG_VERSION"),
        "certificate": certificate,
        "links": links.iter().map(of_link).collect::<Vec<_>>(),
        "groups": functions.map(of_group).collect::<Vec<_>>(),
    })))
}

/// Metrics of peers.
pub(crate) fn metrics(engine: &Engine, firmware: &Firmware, page: &mut Page) {
    let Some(peers) = engine.group.carrier() else { return };
    let links: Vec<_> = peers.links().into_iter().map(|link| (link.node.to_string(), link)).collect();
    type Of = fn(&PeerLink) -> Option<f64>;
    let of_links: [(&str, &str, &str, Of); 4] = [
        ("gauge", "tidewater_peer_up", "1 while a peer is connected.", |it| Some(f64::from(it.up))),
        ("gauge", "tidewater_peer_round_trip_seconds", "Round trip to a peer, smoothed.", |it| {
            Some(it.round_trip?.as_secs_f64())
        }),
        ("gauge", "tidewater_peer_waiting_bytes", "Bytes that wait to be sent to a peer.", |it| {
            Some(it.waiting as f64)
        }),
        (
            "counter",
            "tidewater_peer_dropped_frames_total",
            "Data frames not sent because too many bytes waited.",
            |it| Some(it.dropped as f64),
        ),
    ];
    for (kind, name, help, of) in of_links {
        page.family(kind, name, help);
        for (node, link) in &links {
            of(link).into_iter().for_each(|value| page.sample(name, &[("peer", node)], value));
        }
    }
    if let Some(identity) = peers.identity() {
        for (kind, name, help, value) in [
            (
                "gauge",
                "tidewater_peer_certificate_expires_timestamp_seconds",
                "When the certificate expires that this device shows to its peers, in seconds since 1970.",
                identity.expires as f64,
            ),
            (
                "counter",
                "tidewater_peer_certificate_renewals_total",
                "Renewed certificates that were taken up without a new start.",
                identity.renewals as f64,
            ),
            (
                "gauge",
                "tidewater_peer_certificate_refused",
                "1 while the certificate's files were changed and can't be used: the one before stays in use.",
                f64::from(identity.refused.is_some()),
            ),
        ] {
            page.family(kind, name, help);
            page.sample(name, &[], value);
        }
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
                "tidewater_replica_behind_bytes" => behind(&engine.rings.appended(*at, of), shadow) as f64,
                _ => engine.group.lag(*at, shadow).as_secs_f64(),
            };
            let node = peer.node.to_string();
            page.sample(name, &[("function", function), ("peer", &node)], value);
        }
    }
}

/// How a replica follows. `up`: there is a connection to it.
fn state_of(peer: &PeerStatus, up: bool, disk: Disk) -> &'static str {
    match () {
        () if disk != Disk::Works => disk.wrong().unwrap_or_default(),
        () if peer.stale => "stale: it has to be rebuilt",
        () if peer.data_failed => "unreachable",
        // Its network is well. A device that can't store what it takes reports nothing of it.
        () if peer.counter_failed && up => {
            "connected and reports nothing: see tidewater cluster group status there, and its disk"
        }
        () if peer.counter_failed => "silent",
        () if !peer.attached => "attaching",
        () if !peer.synced => "catching up",
        () => "in step",
    }
}

fn role_of(status: &Status) -> &'static str {
    match status.role {
        _ if status.flags & flag::PROMOTING != 0 => "candidate",
        Role::StandAlone => "alone",
        Role::Primary => "primary",
        Role::Secondary => "secondary",
    }
}

fn mode_of(mode: Mode) -> String {
    match mode {
        Mode::Lazy => "lazy".into(),
        Mode::Eager => "eager".into(),
        Mode::Chain => "chain".into(),
        Mode::Quorum(k) => format!("quorum of {k}"),
    }
}

/// Flags in words. `is_lacking`: it may lack bytes that it, or a device of its number, had.
fn flags_of(status: &Status, is_lacking: bool, disk: Disk) -> Vec<&'static str> {
    let words = [
        (flag::DESTAGE_FAILED, "a destage failed"),
        (flag::DATA_FAILED, "data does not reach a replica"),
        (flag::COUNTER_FAILED, "a replica is silent"),
        (flag::DEPOSED, "another node is primary"),
        (flag::STALE, "a log is stale: rebuild it"),
        (flag::CATCHING_UP, "a log is catching up"),
        (flag::PROMOTING, "a promotion is under way"),
        (flag::REFUSED, "the last promotion was refused"),
        (flag::MISMATCH, "a peer has another group or other lanes"),
        (flag::CUT, "bytes of the log were cut"),
        (flag::PRIMARY_SILENT, "the primary is silent"),
        (flag::PENDING, "a change of the group is not finished"),
        (
            flag::FAR_EPOCH,
            "a peer names an epoch far above all that is known here: it is ignored; if the group has it: keeper reinit",
        ),
    ];
    let said = words.iter().filter_map(|&(bit, words)| (status.flags & bit != 0).then_some(words));
    let said = said.chain(is_lacking.then_some("it may lack bytes that it had, and counts for no promotion"));
    said.chain(match disk {
        Disk::Works => None,
        Disk::Full => Some("its disk is full: it acknowledges nothing, and counts for no promotion"),
        Disk::Failed => Some("its disk can't be written: it acknowledges nothing, and counts for no promotion"),
    })
    .collect()
}

/// Bytes that a replica with these counters lacks of lanes that end there.
fn behind(ends: &[u64], shadow: &[u64]) -> u64 {
    ends.iter().zip(shadow).fold(0, |sum, (end, at)| sum.saturating_add(end.saturating_sub(*at)))
}

#[cfg(test)]
mod tests {
    use super::behind;

    #[test]
    fn what_is_lacking_is_counted_for_each_lane_and_ends_at_the_largest_number() {
        for (ends, shadow, bytes) in [([10, 5], [4, 9], 6), ([u64::MAX, 5], [0, 0], u64::MAX), ([7, 7], [7, 7], 0)] {
            assert_eq!(behind(&ends, &shadow), bytes);
        }
    }
}
