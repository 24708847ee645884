//! Answers of a keeper to programs: metrics, and to load balancers whether its device is primary.

use crate::device::Role;
use crate::page::Seen;
use crate::program::{Report, State};
use std::fmt::Write as _;
use std::time::Instant;

impl Seen {
    /// A status of HTTP and a text for a path; `None`: nothing is there.
    pub(crate) fn answer(&self, path: &str, cluster: &str, now: Instant) -> Option<(u16, String)> {
        match path {
            "/metrics" => Some((200, self.metrics(cluster, now))),
            "/primary" => Some(match &self.device {
                Some(device) if self.is_primary(now) => (200, format!("primary of epoch {}\n", device.epoch)),
                Some(_) => (503, format!("not a primary that may acknowledge: {}\n", self.note)),
                None => (503, format!("its device does not answer: {}\n", self.note)),
            }),
            _ => None,
        }
    }

    /// Whether the device is primary and may acknowledge. Once its deadline has passed it may not, even if this keeper
    /// stands still: so of two keepers that answer, one alone says so.
    fn is_primary(&self, now: Instant) -> bool {
        self.acknowledges_until.is_some_and(|until| now < until)
    }

    fn metrics(&self, cluster: &str, now: Instant) -> String {
        let device = self.device.as_ref();
        let seconds = |since: Option<Instant>| since.map(|since| now.saturating_duration_since(since).as_secs_f64());
        let of = self.cluster.as_ref();
        let node = self.node;
        let leads = of.and_then(|of| of.leader.as_ref()).is_some_and(|(leader, _)| Some(leader.node) == node);
        let frozen = device.is_some_and(|device| device.role == Role::Primary && device.is_frozen());
        let members = of.and_then(|of| of.group.as_ref()).map_or(0, |group| group.members.len());
        let missing = of.map_or(0, |of| of.without_keeper().len());
        let flag = |is: bool| f64::from(u8::from(is));
        let program = self.program.as_ref().map(|report| report.clone().unwrap_or_default());
        let of_program = |value: fn(&Report) -> f64| program.as_ref().map(value);
        let cluster = cluster.replace('\\', "\\\\").replace('"', "\\\"");
        let mut page = String::new();
        for (kind, name, help, value) in [
            ("gauge", "device_answers", "1 while the device answers its keeper.", flag(device.is_some())),
            ("gauge", "primary", "1 while the device is primary and may acknowledge.", flag(self.is_primary(now))),
            ("gauge", "frozen", "1 while the device is primary and its deadline has passed.", flag(frozen)),
            ("gauge", "leads", "1 while this keeper leads, as etcd said last.", flag(leads)),
            (
                "gauge",
                "leaderless_seconds",
                "For how long no keeper has led, as etcd said; 0: one leads.",
                seconds(self.leaderless_since).unwrap_or(0.0),
            ),
            ("counter", "leader_changes_total", "How often another keeper came to lead.", self.leader_changes as f64),
            (
                "gauge",
                "etcd_silent_seconds",
                "Since the last word of etcd, or since the keeper began.",
                seconds(self.heard.or(self.begun)).unwrap_or(0.0),
            ),
            ("gauge", "members", "Members of the group, as etcd said last.", members as f64),
            ("gauge", "members_without_keeper", "Members of the group whose keepers do not live.", missing as f64),
            ("gauge", "paused", "1 while the cluster is paused.", flag(of.is_some_and(|of| of.paused))),
        ]
        .map(|(kind, name, help, value)| (kind, name, help, Some(value)))
        .into_iter()
        .chain([
            (
                "gauge",
                "program_running",
                "1 while the program that follows the primary runs here; absent without --program.",
                of_program(|report| f64::from(u8::from(report.state == State::Running))),
            ),
            (
                "gauge",
                "program_failures",
                "How often that program has ended by itself, one end soon after the other.",
                of_program(|report| f64::from(report.failures)),
            ),
            (
                "counter",
                "program_starts_total",
                "How often its supervisor has started that program.",
                of_program(|report| report.starts as f64),
            ),
        ])
        .filter_map(|(kind, name, help, value)| Some((kind, name, help, value?)))
        {
            let name = format!("tidewater_keeper_{name}");
            let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} {kind}");
            let _ = writeln!(page, "{name}{{cluster=\"{cluster}\"}} {value}");
        }
        if let Some(expires) = self.certificate.expires {
            for (name, help, value) in [
                (
                    "certificate_expires_timestamp_seconds",
                    "When the certificate expires that this keeper shows to etcd, in seconds since 1970.",
                    expires as f64,
                ),
                (
                    "certificate_refused",
                    "1 while the certificate's files were changed and can't be used: the one before stays in use.",
                    flag(self.certificate.refused.is_some()),
                ),
            ] {
                let name = format!("tidewater_keeper_{name}");
                let _ = writeln!(page, "# HELP {name} {help}\n# TYPE {name} gauge");
                let _ = writeln!(page, "{name}{{cluster=\"{cluster}\"}} {value}");
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::page::Page;
    use serde_json::json;
    use std::time::Duration;

    fn device(role: &str, frozen_ms: Option<u64>, has_deadline: bool) -> Device {
        let group = json!({
            "node": 0, "function": 0, "role": role, "mode": "eager", "members": [0, 1], "epoch": "4.0",
            "promised": "4.0", "synced": "4.0", "tail": [7], "has_deadline": has_deadline,
            "frozen_ms": frozen_ms, "stale": false, "primary_silent": false, "replicas": [],
        });
        let status = json!({ "peers": { "node": 0, "clock_ms": 5, "groups": [group] } });
        Device::from_status(status.as_object().unwrap(), 0).unwrap()
    }

    #[test]
    fn a_primary_that_may_acknowledge_and_no_other_is_one_for_load_balancers() {
        let (page, begin, ttl) = (Page::default(), Instant::now(), Duration::from_secs(10));
        let status = |after: u64| page.answer_at("/primary", begin + Duration::from_secs(after)).unwrap().0;
        assert_eq!(status(0), 503, "nothing is known yet");
        page.look(Some(&device("primary", None, false)), begin, ttl);
        assert_eq!((status(9), status(10)), (200, 503), "a keeper that stands still says so for a ttl at most");
        page.look(Some(&device("secondary", None, true)), begin, ttl);
        assert_eq!(status(0), 503);
        page.look(Some(&device("primary", None, true)), begin, ttl);
        assert_eq!(status(0), 503, "its deadline is not known");
        page.acknowledges_until(begin + Duration::from_secs(4));
        page.look(Some(&device("primary", None, true)), begin + Duration::from_secs(1), ttl);
        assert_eq!((status(3), status(4)), (200, 503));
        page.look(Some(&device("primary", Some(3), true)), begin, ttl);
        assert_eq!(status(0), 503, "frozen");
        page.acknowledges_until(begin + Duration::from_secs(4));
        page.look(None, begin, ttl);
        assert_eq!(status(0), 503, "it does not answer");
        let text = page.answer_at("/metrics", begin).unwrap().1;
        assert!(text.contains("tidewater_keeper_device_answers{cluster=\"c\"} 0\n"), "{text}");
        assert!(!text.contains("program"), "{text}");
        page.program(Some(&Report { state: State::Running, starts: 2, ..Report::default() }));
        let text = page.answer_at("/metrics", begin).unwrap().1;
        assert!(text.contains("tidewater_keeper_program_running{cluster=\"c\"} 1\n"), "{text}");
        assert!(text.contains("tidewater_keeper_program_starts_total{cluster=\"c\"} 2\n"), "{text}");
        assert!(page.answer_at("/", begin).is_none());
    }
}
