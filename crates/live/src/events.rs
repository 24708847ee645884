//! Events between two moments, as marks on a time axis.

use crate::Level;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use tidewater_gauges::{Moment, WARMING_UP};

/// A mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// Bad, or only good to know.
    pub level: Level,
    /// One line.
    pub what: String,
}

/// Events between two moments.
pub(crate) fn between(before: &Moment, now: &Moment) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |level, what: String| events.push(Event { level, what });
    let cuts = now.power_cuts.saturating_sub(before.power_cuts);
    if cuts > 0 {
        add(Level::Bad, if cuts == 1 { "the power was cut".into() } else { format!("the power was cut {cuts} times") });
    }
    match (&before.drive, &now.drive) {
        // Without a cut it was being prepared.
        (None, Some(_)) if before.power_cuts > 0 => {
            add(Level::Note, "the power is back, the drive has recovered".into())
        }
        (Some(before), Some(after)) => {
            if after.is_read_only && !before.is_read_only {
                add(Level::Bad, "the drive takes no more writes".into());
            }
            // After a power cut the counters begin anew.
            let failures = after.program_failures.saturating_sub(before.program_failures);
            if failures > 0 && cuts == 0 {
                add(Level::Note, format!("{failures} programs failed; the data was written elsewhere"));
            }
        }
        _ => {}
    }
    let resets = now.resets.saturating_sub(before.resets);
    if resets > 0 {
        add(Level::Note, if resets == 1 { "a controller was reset".into() } else { format!("{resets} resets") });
    }
    for fault in now.faults.iter().filter(|fault| !before.faults.contains(fault)) {
        add(Level::Note, format!("fault: {fault}"));
    }
    for (kind, count) in now.faults_struck.iter().filter(|(kind, _)| *kind != "power-cut") {
        let strikes = count.saturating_sub(before.faults_struck.get(kind).copied().unwrap_or(0));
        if strikes > 0 {
            add(
                Level::Bad,
                format!("{kind} struck {}", if strikes == 1 { "once".into() } else { format!("{strikes} times") }),
            );
        }
    }
    let errors = now.errors.saturating_sub(before.errors);
    if errors > 0 {
        add(
            Level::Bad,
            format!("{errors} {} with an error", if errors == 1 { "command ended" } else { "commands ended" }),
        );
    }
    let (roles_before, roles) = (roles(&before.peers), roles(&now.peers));
    for (function, (role, epoch)) in &roles {
        match roles_before.get(function) {
            Some((was, _)) if was != role => {
                add(Level::Note, format!("function {function} is {role} now, epoch {epoch}"))
            }
            Some((_, was)) if was != epoch => add(Level::Note, format!("function {function}: epoch {epoch}")),
            _ => {}
        }
    }
    let links_before = links(&before.peers);
    for (node, (is_up, why)) in links(&now.peers) {
        match (links_before.get(&node), is_up) {
            (Some((true, _)), false) => add(Level::Bad, format!("node {node} is gone: {why}")),
            (Some((false, _)), true) => add(Level::Note, format!("node {node} is back")),
            _ => {}
        }
    }
    if before.state == WARMING_UP && now.state != WARMING_UP {
        add(Level::Note, "the warm-up is over: results count from here".into());
    }
    if let Some(run) = now.progress.filter(|run| run.ended && before.progress.is_none_or(|before| !before.ended)) {
        add(
            Level::Note,
            match run.share {
                Some(share) if share >= 1.0 => "the run has ended".into(),
                Some(share) => format!("the run was stopped at {:.1} %", 100.0 * share),
                None => "the run was stopped".into(),
            },
        );
    }
    events
}

/// Role and epoch of each function.
fn roles(peers: &Value) -> BTreeMap<u64, (String, String)> {
    let groups = peers["groups"].as_array().into_iter().flatten();
    groups
        .map(|group| (group["function"].as_u64().unwrap_or(0), (word(&group["role"]), word(&group["epoch"]))))
        .collect()
}

/// Whether each peer is connected, and why not.
fn links(peers: &Value) -> BTreeMap<u64, (bool, String)> {
    let links = peers["links"].as_array().into_iter().flatten();
    let why = |link: &Value| if link["why"].is_string() { word(&link["why"]) } else { "it does not answer".into() };
    links.map(|link| (link["node"].as_u64().unwrap_or(0), (link["up"] == true, why(link)))).collect()
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tidewater_gauges::{Drive, Progress};

    fn told(before: &Moment, now: &Moment) -> Vec<String> {
        between(before, now).into_iter().map(|event| event.what).collect()
    }

    #[test]
    fn what_happens_is_told_once() {
        let quiet = Moment { drive: Some(Drive::default()), ..Moment::default() };
        assert!(told(&quiet, &quiet).is_empty());
        let cut = Moment { power_cuts: 1, drive: None, ..quiet.clone() };
        assert_eq!(told(&quiet, &cut), ["the power was cut"]);
        let back = Moment { power_cuts: 1, ..quiet.clone() };
        assert_eq!(told(&cut, &back), ["the power is back, the drive has recovered"]);
        let broken = Moment { errors: 2, resets: 1, faults: vec!["delay".into()], ..quiet.clone() };
        assert_eq!(told(&quiet, &broken), ["a controller was reset", "fault: delay", "2 commands ended with an error"]);
        assert!(told(&broken, &broken).is_empty());
        let struck = |eio, cuts| Moment {
            faults_struck: [("eio".to_owned(), eio), ("power-cut".to_owned(), cuts)].into(),
            ..quiet.clone()
        };
        assert_eq!(told(&quiet, &struck(1, 1)), ["eio struck once"]);
        assert_eq!(told(&struck(1, 1), &struck(4, 2)), ["eio struck 3 times"]);
        let full = Moment { drive: Some(Drive { is_read_only: true, ..Drive::default() }), ..quiet.clone() };
        assert_eq!(told(&quiet, &full), ["the drive takes no more writes"]);
        let run =
            |ended, share| Moment { progress: Some(Progress { ended, share, ..Progress::default() }), ..quiet.clone() };
        assert_eq!(told(&run(false, None), &run(true, Some(1.0))), ["the run has ended"]);
        assert_eq!(told(&run(false, None), &run(true, Some(0.161))), ["the run was stopped at 16.1 %"]);
        let preparing = Moment { state: "preparing the drive".into(), ..Moment::default() };
        assert!(told(&preparing, &run(false, None)).is_empty(), "no power came back");
        assert_eq!(told(&preparing, &run(true, Some(1.0))), ["the run has ended"]);
        let warm = Moment { state: WARMING_UP.into(), ..run(false, None) };
        assert_eq!(told(&warm, &run(false, None)), ["the warm-up is over: results count from here"]);
    }

    #[test]
    fn peers_that_go_and_roles_that_change_are_told() {
        let of = |role: &str, epoch: &str, up: bool| Moment {
            peers: json!({
                "groups": [{"function": 0, "role": role, "epoch": epoch}],
                "links": [{"node": 2, "up": up, "why": "connection refused"}],
            }),
            ..Moment::default()
        };
        let (before, lost) = (of("secondary", "3@1", true), of("secondary", "3@1", false));
        assert_eq!(told(&before, &lost), ["node 2 is gone: connection refused"]);
        assert_eq!(told(&lost, &before), ["node 2 is back"]);
        assert_eq!(told(&before, &of("primary", "4@2", true)), ["function 0 is primary now, epoch 4@2"]);
        assert!(told(&Moment::default(), &before).is_empty(), "what was there from the start is no event");
    }
}
