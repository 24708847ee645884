//! `tidewater cluster group`: the replication group of a served device's log.

use crate::args::peers::{GroupArgs, GroupCommand, GroupModeName, GroupOf};
use crate::failure::Failure;
use crate::{output, socket};
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use tidewater_base::units::format_bytes;
use tidewater_serve::control::{GroupMode, Request};

/// How long a promotion is waited for.
const PROMOTION_TIME: Duration = Duration::from_secs(20);

/// A mode, as a request has it, and how many members its quorum has.
pub fn mode_of(mode: GroupModeName, quorum: Option<u8>, members: usize) -> (GroupMode, u8) {
    match mode {
        GroupModeName::Lazy => (GroupMode::Lazy, 0),
        GroupModeName::Eager => (GroupMode::Eager, 0),
        GroupModeName::Chain => (GroupMode::Chain, 0),
        GroupModeName::Quorum => (GroupMode::Quorum, quorum.unwrap_or(members as u8 / 2 + 1)),
    }
}

/// `tidewater cluster group`.
///
/// # Errors
/// When no device answers, it refuses, or a promotion does not come to its end.
pub fn command(of: &GroupArgs) -> Result<(), Failure> {
    let function = of.function;
    let (request, waits) = match &of.what {
        GroupCommand::Status { log_end: true, .. } => {
            let end = state(of)?.0.get("tail").and_then(|lanes| lanes.get(0)).and_then(Value::as_u64);
            let end = end.ok_or_else(|| Failure::run("the device does not say where its log ends: it is too old"))?;
            return output::print(&format!("{end}\n"));
        }
        GroupCommand::Status { json, .. } => return status(of, *json),
        GroupCommand::Form { group, primary } => {
            let GroupOf { members, mode, quorum } = group.clone();
            let (mode, k) = mode_of(mode, quorum, members.len());
            (Request::GroupForm { function, members, mode, k, primary: *primary }, *primary)
        }
        GroupCommand::Promote { group, force } => {
            let group = group.group();
            let (mode, k) = group.as_ref().map(|of| mode_of(of.mode, of.quorum, of.members.len())).unzip();
            let members = group.map(|group| group.members).unwrap_or_default();
            (
                Request::GroupPromote {
                    function,
                    members,
                    mode,
                    k: k.unwrap_or(0),
                    force: *force,
                    above: 0,
                    before_ms: None,
                },
                true,
            )
        }
        GroupCommand::Demote => (Request::GroupDemote { function }, false),
        GroupCommand::Leave => (Request::GroupLeave { function }, false),
        GroupCommand::Rebuild => (Request::GroupRebuild { function }, false),
        GroupCommand::Deadline { lasts, .. } => {
            let epoch = text(&state(of)?.0["epoch"]).to_owned();
            let for_ms = lasts.map(|lasts| lasts.as_ns() / 1_000_000);
            (Request::GroupLead { function, epoch, for_ms, from_ms: None }, false)
        }
    };
    socket::ask(&of.served, &request)?;
    if waits {
        return wait_for_promotion(of);
    }
    let said = match of.what {
        GroupCommand::Form { .. } => match text(&state(of)?.0["epoch"]) {
            "0.0" => "this device is in the group and waits for its primary",
            _ => "this device is in the group and follows its primary",
        },
        GroupCommand::Demote => "this device is a secondary and waits for the next primary",
        GroupCommand::Leave => "this device has left its group and keeps its log",
        GroupCommand::Deadline { lasts: Some(_), .. } => "this primary acknowledges until that deadline",
        GroupCommand::Deadline { .. } => "this device acknowledges without a deadline while it is primary",
        _ => "this device may discard its log to follow the primary",
    };
    output::print(&format!("{said}\n"))
}

/// A function's group, its links, and all that the status has of peers.
type State = (Map<String, Value>, Vec<Value>, Value);

/// The state of the function's group, by the device's status.
fn state(of: &GroupArgs) -> Result<State, Failure> {
    let answer = socket::status_of(&of.served)?;
    let peers = answer.get("peers").and_then(Value::as_object).ok_or_else(|| {
        Failure::run("the device has no peers").help("serve it with --node, --peer-listen and --peer")
    })?;
    let groups = peers.get("groups").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = groups.into_iter().find(|group| group["function"] == of.function);
    let group = ours.and_then(|group| group.as_object().cloned());
    let links = peers.get("links").and_then(Value::as_array).cloned().unwrap_or_default();
    let group = group.ok_or_else(|| Failure::usage(format_args!("there is no function {}", of.function)))?;
    Ok((group, links, peers.clone().into()))
}

fn text(of: &Value) -> &str {
    of.as_str().unwrap_or_default()
}

fn list(of: &Value, between: &str) -> String {
    let items = of.as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
        .collect::<Vec<_>>()
        .join(between)
}

fn wait_for_promotion(of: &GroupArgs) -> Result<(), Failure> {
    let begin = Instant::now();
    loop {
        let (group, links, _) = state(of)?;
        let flags = list(&group["flags"], ", ");
        match text(&group["role"]) {
            "primary" => {
                let (mode, members) = (text(&group["mode"]), list(&group["members"], ", "));
                return output::print(&format!(
                    "this device is primary of epoch {} ({mode}, members {members})\n",
                    text(&group["epoch"])
                ));
            }
            "candidate" if begin.elapsed() < PROMOTION_TIME => std::thread::sleep(Duration::from_millis(20)),
            "candidate" => {
                let away: Vec<String> =
                    links.iter().filter(|link| link["up"] == false).map(|link| link["node"].to_string()).collect();
                let away = if away.is_empty() { "none".to_owned() } else { away.join(", ") };
                return Err(Failure::run(format_args!(
                    "no answer from enough members within {} s (not connected: {away}); the promotion goes on",
                    PROMOTION_TIME.as_secs()
                ))
                .help("start the members, or say with --force that those who do not answer are dead"));
            }
            role => {
                return Err(Failure::run(format_args!("the promotion was refused: this device is {role} ({flags})"))
                    .help("see `tidewater cluster group status` on the other members: one of them may be primary"));
            }
        }
    }
}

fn status(of: &GroupArgs, json: bool) -> Result<(), Failure> {
    if json {
        let answer = socket::status_of(&of.served)?;
        let peers = answer.get("peers").cloned().unwrap_or_default();
        return output::print(&format!("{}\n", serde_json::to_string_pretty(&peers).map_err(Failure::run)?));
    }
    let (group, links, peers) = state(of)?;
    output::print(&(shown(&group, &links) + &certificate(&peers["certificate"])))
}

/// A line on the certificate that the device shows to its peers, if it has one.
fn certificate(of: &Value) -> String {
    let Some(expires) = of["expires"].as_str() else { return String::new() };
    let refused = of["refused"].as_str().map_or_else(String::new, |why| format!("; its new files are not used: {why}"));
    format!("this device's certificate expires on {expires}{refused}\n")
}

/// Roles and connections in one line, for `tidewater status`.
pub fn in_a_line(peers: &Value) -> String {
    let items = |key: &str| peers[key].as_array().cloned().unwrap_or_default();
    let role = |group: &Value| {
        let frozen = if group.get("frozen_ms").is_some() { " (frozen)" } else { "" };
        format!("{}{frozen}", text(&group["role"]))
    };
    let mut roles: Vec<String> = items("groups").iter().map(role).collect();
    roles.dedup();
    let links = items("links");
    let up = links.iter().filter(|link| link["up"] == true).count();
    format!("{}, {up} of {} peers connected (tidewater cluster group status)", roles.join("/"), links.len())
}

fn shown(group: &Map<String, Value>, links: &[Value]) -> String {
    let mut out = String::new();
    let (role, node) = (text(&group["role"]), &group["node"]);
    let _ = match role {
        "alone" => writeln!(out, "alone: in no group yet; see `tidewater cluster group form --help`"),
        _ => writeln!(
            out,
            "{role}: node {node} of {} ({}), epoch {}",
            list(&group["members"], ", "),
            text(&group["mode"]),
            text(&group["epoch"])
        ),
    };
    if let Some(ms) = group.get("leads_for_ms").and_then(Value::as_u64) {
        let _ = writeln!(out, "leader for {:.1} s more", ms as f64 / 1_000.0);
    } else if let Some(ms) = group.get("frozen_ms").and_then(Value::as_u64) {
        let _ = writeln!(
            out,
            "frozen for {:.1} s: the leader deadline has passed, and nothing is acknowledged; its keeper extends it, \
             or tidewater cluster group deadline --none",
            ms as f64 / 1_000.0
        );
    }
    for flag in group["flags"].as_array().into_iter().flatten() {
        let _ = writeln!(out, "  {}", text(flag));
    }
    let empty = Vec::new();
    let replicas = group["replicas"].as_array().unwrap_or(&empty);
    for link in links {
        let node = &link["node"];
        let since = Duration::from_millis(link["since_ms"].as_u64().unwrap_or(0)).as_secs();
        let _ = match link["up"] == true {
            true => {
                let rtt = link["round_trip_us"].as_u64().map_or_else(String::new, |us| format!(", round trip {us} us"));
                let how = if link["encrypted"] == true { ", encrypted" } else { "" };
                let version = link.get("version").map_or_else(String::new, |it| format!(", version {}", text(it)));
                write!(out, "peer {node} at {}: connected for {since} s{how}{rtt}{version}", text(&link["address"]))
            }
            false => {
                let why = link.get("why").map_or("not connected yet", text);
                write!(out, "peer {node} at {}: away for {since} s: {why}", text(&link["address"]))
            }
        };
        if let Some(replica) = replicas.iter().find(|replica| &replica["node"] == node) {
            let behind = replica["behind_bytes"].as_u64().unwrap_or(0);
            let _ = write!(out, "; {}, {} behind", text(&replica["state"]), format_bytes(behind));
            if let Some(ms) = replica["behind_ms"].as_u64().filter(|ms| *ms > 0) {
                let _ = write!(out, ", by {:.1} s", ms as f64 / 1e3);
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_names_each_peer_with_its_state() {
        let group = serde_json::json!({
            "function": 0, "role": "primary", "node": 0, "mode": "eager", "members": [0, 1, 2], "epoch": "3.0",
            "flags": ["a replica is silent"],
            "replicas": [{"node": 1, "state": "catching up", "behind_bytes": 4096, "behind_ms": 1300}],
        });
        let links = [
            serde_json::json!({
                "node": 1, "address": "a:1", "up": true, "encrypted": true, "since_ms": 4000, "round_trip_us": 40,
            }),
            serde_json::json!({"node": 2, "address": "b:1", "up": false, "since_ms": 9000, "why": "it was silent"}),
        ];
        let text = shown(group.as_object().unwrap(), &links);
        assert_eq!(
            text,
            "primary: node 0 of 0, 1, 2 (eager), epoch 3.0\n  a replica is silent\npeer 1 at a:1: connected for \
             4 s, encrypted, round trip 40 us; catching up, 4KiB behind, by 1.3 s\npeer 2 at b:1: away for \
             9 s: it was silent\n"
        );
    }
}
