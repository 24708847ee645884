//! What operators ask of a cluster: they write keys, and the keepers do the rest.

use crate::device::{Disk, Role};
use crate::job::At;
use crate::kept::Known;
use crate::keys::{Cluster, Group, Intent, Member, list};
use crate::store::Store;
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};
use tidewater_base::units::printable;
use tokio::time::sleep;

/// How long etcd may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks whether a switchover has come about.
const LOOK: Duration = Duration::from_millis(50);

/// A cluster, for an operator.
pub struct Operator {
    store: Store,
    name: String,
}

impl Operator {
    /// Of this cluster.
    pub fn new(at: &At) -> Operator {
        Operator { store: Store::new(at, PATIENCE), name: at.cluster.clone() }
    }

    /// What there is, by the first member of etcd that answers: later requests go there, too.
    async fn read(&mut self) -> Result<Cluster, String> {
        self.store.read_any(0).await.map(|(cluster, _)| cluster)
    }

    /// How the cluster is, in words or as JSON. `state`: the file that a keeper remembers etcd by.
    ///
    /// # Errors
    /// In words.
    pub async fn status(&mut self, as_json: bool, state: Option<&Path>) -> Result<String, String> {
        let read = self.store.read_any(0).await;
        let mut ailments = self.store.ailments().await;
        let mut cluster = match read {
            Ok((cluster, seen)) => {
                // Keepers that refuse an etcd write nothing to it: it does not say so itself.
                ailments.extend(state.and_then(Known::of).and_then(|mut known| known.check(seen, &cluster).err()));
                cluster
            }
            Err(why) if ailments.is_empty() => return Err(why),
            Err(why) => return Err(format!("{why}; {}", ailments.join("; "))),
        };
        if let Ok((names, count)) = self.store.strangers().await
            && !names.is_empty()
        {
            let more = if count > names.len() as i64 { format!(", of {count} keys in all") } else { String::new() };
            let names = names.iter().map(|name| printable(&name.chars().take(80).collect::<String>()));
            let names = names.take(5).collect::<Vec<_>>().join(", ");
            cluster.ignored.push(format!("{names}{more}: no keeper of this version reads them"));
        }
        if !as_json {
            return Ok(shown(&self.name, &cluster, &ailments));
        }
        let leader = cluster.leader.as_ref().map(|(leader, _)| leader);
        let members: Vec<&Member> = cluster.members.values().collect();
        let all = json!({
            "cluster": self.name, "group": cluster.group, "leader": leader, "paused": cluster.paused,
            "switchover": cluster.intent, "reinit": cluster.reinit, "members": members,
            "ignored": cluster.foreign(), "etcd": ailments,
        });
        serde_json::to_string_pretty(&all).map(|text| text + "\n").map_err(|error| error.to_string())
    }

    /// Makes another member primary, and waits until it is.
    ///
    /// # Errors
    /// In words: there is none to switch from or to, or it took too long.
    pub async fn switchover(&mut self, to: Option<u8>, wait: Duration) -> Result<String, String> {
        let cluster = self.read().await?;
        if cluster.paused {
            return Err("the cluster is paused: resume it first, or use tidewater cluster group promote".into());
        }
        let Some((leader, _)) = cluster.leader else {
            return Err("no keeper leads: there is nothing to switch over from".into());
        };
        if to == Some(leader.node) {
            return Err(format!("node {} is primary already", leader.node));
        }
        if let Some(node) = to.filter(|node| !cluster.members.contains_key(node)) {
            return Err(format!("the keeper of node {node} does not run"));
        }
        let lease = self.store.lease_once(wait.max(Duration::from_secs(1))).await?;
        self.store.put(self.store.keys.intent(), &Intent { to }, lease).await?;
        let begin = Instant::now();
        loop {
            let cluster = self.read().await?;
            if let Some((now, _)) = &cluster.leader
                && now.node != leader.node
                && now.epoch > leader.epoch
            {
                let ms = begin.elapsed().as_millis();
                return Ok(format!("node {} is primary of epoch {}, after {ms} ms\n", now.node, now.epoch));
            }
            if begin.elapsed() >= wait {
                let note = cluster.members.get(&leader.node).map_or("its keeper does not run", |member| &member.note);
                return Err(format!("no switchover within {} s; node {}: {note}", wait.as_secs(), leader.node));
            }
            sleep(LOOK).await;
        }
    }

    /// Pauses or resumes.
    ///
    /// # Errors
    /// In words.
    pub async fn pause(&mut self, paused: bool) -> Result<String, String> {
        let key = self.store.keys.paused();
        self.read().await?;
        if paused {
            self.store.put(key, &json!({}), 0).await?;
            return Ok(
                "paused: no member is promoted, and the primary acknowledges without a deadline as soon as its \
                       keeper has seen this\n"
                    .into(),
            );
        }
        self.store.remove(key).await?;
        Ok("resumed\n".into())
    }

    /// Has a member discard its log.
    ///
    /// # Errors
    /// In words: it is primary, or unknown.
    pub async fn reinit(&mut self, node: u8) -> Result<String, String> {
        let cluster = self.read().await?;
        match cluster.members.get(&node) {
            None => return Err(format!("the keeper of node {node} does not run")),
            Some(member) if member.role == Some(Role::Primary) => {
                return Err(format!("node {node} is primary: switch over first (tidewater cluster keeper switchover)"));
            }
            Some(_) => {}
        }
        self.store.put(self.store.keys.reinit(node), &json!({}), 0).await?;
        Ok(format!("node {node} discards its log as far as that is needed, and takes the primary's\n"))
    }

    /// Sets the group, or says it.
    ///
    /// # Errors
    /// In words: a group that can't be.
    pub async fn group(&mut self, group: Option<Group>) -> Result<String, String> {
        let cluster = self.read().await?;
        let Some(group) = group else {
            return Ok(cluster.group.map_or_else(
                || "no group yet: tidewater cluster keeper group --members LIST --mode MODE\n".to_owned(),
                |group| format!("{group}\n"),
            ));
        };
        // Members that are all new know of nothing that was acknowledged.
        let shares = |before: &Group| before.members.iter().any(|node| group.members.contains(node));
        if let Some(before) = cluster.group.filter(|before| !shares(before)) {
            return Err(format!(
                "{group} shares no member with {before}: change it in steps, or what it holds is lost"
            ));
        }
        self.store.put(self.store.keys.group(), &group, 0).await?;
        Ok(format!("the group is to be: {group}\n"))
    }
}

fn shown(name: &str, cluster: &Cluster, ailments: &[String]) -> String {
    let mut out = String::new();
    let group = cluster.group.as_ref().map_or_else(|| "no group yet".to_owned(), Group::to_string);
    let _ = writeln!(out, "cluster {name}: {group}");
    if cluster.paused {
        let _ = writeln!(out, "paused: no member is promoted; tidewater cluster keeper resume ends that");
    }
    match &cluster.leader {
        Some((leader, _)) if leader.epoch.counter > 0 => {
            _ = writeln!(out, "leader: node {}, epoch {}", leader.node, leader.epoch);
        }
        Some((leader, _)) => _ = writeln!(out, "leader: node {}, which is being promoted", leader.node),
        None => match cluster.members.values().filter_map(|member| member.leaderless_ms).max() {
            Some(ms) => _ = writeln!(out, "no leader for {} s", ms.div_ceil(1000)),
            None => _ = writeln!(out, "no leader"),
        },
    }
    if let Some(Intent { to }) = &cluster.intent {
        let to = to.map_or_else(|| "the member with most".to_owned(), |node| format!("node {node}"));
        let _ = writeln!(out, "switchover to {to}");
    }
    let most = cluster.longest();
    for member in cluster.members.values() {
        let role = member.role_in_words();
        let behind = most.saturating_sub(member.end());
        let version = if member.version.is_empty() { "not known" } else { &member.version };
        let disk = member.disk.as_deref().map_or(String::new(), |state| format!("{}; ", Disk::wrong(state)));
        let _ = writeln!(
            out,
            "node {} at {}: {role}, epoch {}, {} bytes, {behind} behind, version {version}; {disk}{}",
            member.node,
            member.address,
            member.epoch,
            member.end(),
            member.note
        );
    }
    let away = cluster.without_keeper();
    if !away.is_empty() {
        let _ = writeln!(out, "no keeper: node {}", list(&away));
    }
    for ailment in ailments {
        let _ = writeln!(out, "etcd: {}", printable(ailment));
    }
    for why in cluster.foreign() {
        let _ = writeln!(out, "ignored: {why}");
    }
    out
}
