//! What is in etcd of a cluster: keys below `/tidewater/CLUSTER/`, JSON values.

use crate::device::Role;
use crate::epoch::Epoch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The keys of a cluster.
#[derive(Clone, Debug)]
pub struct Keys {
    /// What all of them begin with.
    pub prefix: String,
}

impl Keys {
    /// Of the logs of a function of this cluster.
    pub fn new(cluster: &str, function: u8) -> Keys {
        let prefix = match function {
            0 => format!("/tidewater/{cluster}/"),
            function => format!("/tidewater/{cluster}:{function}/"),
        };
        Keys { prefix }
    }

    fn of(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The members and their mode: [`Group`].
    pub fn group(&self) -> String {
        self.of("group")
    }

    /// The keeper that leads, bound to its lease: [`Leader`].
    pub fn leader(&self) -> String {
        self.of("leader")
    }

    /// A member as its keeper sees it, bound to its lease: [`Member`].
    pub fn member(&self, node: u8) -> String {
        self.of(&format!("members/{node}"))
    }

    /// A switchover that is under way: [`Intent`].
    pub fn intent(&self) -> String {
        self.of("intent")
    }

    /// There while the keepers promote nothing.
    pub fn paused(&self) -> String {
        self.of("paused")
    }

    /// A member that is to discard its log.
    pub fn reinit(&self, node: u8) -> String {
        self.of(&format!("reinit/{node}"))
    }

    /// A random text by which keepers know this cluster's data again.
    pub fn identity(&self) -> String {
        self.of("identity")
    }
}

/// How replicas acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// They do not: the primary alone does.
    Lazy,
    /// All of them.
    Eager,
    /// All of them, each forwarding to the next.
    Chain,
    /// [`Group::k`] members.
    Quorum,
}

/// The group that the cluster is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Nodes of all members.
    pub members: Vec<u8>,
    /// How replicas acknowledge.
    pub mode: Mode,
    /// Of a quorum: how many members, the primary counted; else 0.
    #[serde(default)]
    pub k: u8,
}

impl Group {
    /// The mode as devices print it.
    pub fn mode_in_words(&self) -> String {
        match self.mode {
            Mode::Lazy => "lazy".into(),
            Mode::Eager => "eager".into(),
            Mode::Chain => "chain".into(),
            Mode::Quorum => format!("quorum of {}", self.k),
        }
    }

    /// The group of a device's status.
    pub fn from_words(members: &[u8], mode: &str) -> Option<Group> {
        let (mode, k) = match mode {
            "lazy" => (Mode::Lazy, 0),
            "eager" => (Mode::Eager, 0),
            "chain" => (Mode::Chain, 0),
            other => (Mode::Quorum, other.strip_prefix("quorum of ")?.parse().ok()?),
        };
        Some(Group { members: members.to_vec(), mode, k })
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, members {}", self.mode_in_words(), list(&self.members))
    }
}

/// Numbers in words.
pub fn list(nodes: &[u8]) -> String {
    nodes.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

/// The keeper that leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its node.
    pub node: u8,
    /// The epoch that its device is primary of; the zeroth while it is being promoted.
    pub epoch: Epoch,
}

/// A member, as its keeper sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its node.
    pub node: u8,
    /// Where programs on its machine find the device.
    pub address: String,
    /// What it is; `None`: the device does not answer.
    pub role: Option<Role>,
    /// The epoch of its log.
    pub epoch: Epoch,
    /// The newest epoch that its log was complete in.
    pub synced: Epoch,
    /// The highest epoch that it has accepted.
    pub promised: Epoch,
    /// For each lane, where its log ends: that is what acknowledgements are based on.
    pub tail: Vec<u64>,
    /// It can't be made primary without being rebuilt.
    pub stale: bool,
    /// The leader deadline of this primary has passed.
    pub frozen: bool,
    /// For how long no keeper has led, as this one sees it, in milliseconds; `None`: one leads.
    #[serde(default)]
    pub leaderless_ms: Option<u64>,
    /// Why its keeper does not do more, in words.
    pub note: String,
}

impl Member {
    /// What it is, in words.
    pub fn role_in_words(&self) -> &'static str {
        match self.role {
            None => "does not answer",
            Some(Role::Alone) => "alone",
            Some(Role::Primary) if self.frozen => "primary, frozen",
            Some(Role::Primary) => "primary",
            Some(Role::Candidate) => "candidate",
            Some(Role::Secondary) if self.stale => "secondary, stale",
            Some(Role::Secondary) => "secondary",
        }
    }

    /// Bytes of its log, all lanes together.
    pub fn end(&self) -> u64 {
        self.tail.iter().sum()
    }
}

/// A switchover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The next primary; `None`: the one that has most.
    pub to: Option<u8>,
}

/// What is in etcd.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The group, if one was set.
    pub group: Option<Group>,
    /// Who leads, and whether that key is bound to this keeper's lease.
    pub leader: Option<(Leader, bool)>,
    /// Members whose keepers live.
    pub members: BTreeMap<u8, Member>,
    /// A switchover that was asked for.
    pub intent: Option<Intent>,
    /// The keepers promote nothing.
    pub paused: bool,
    /// Members that are to discard their logs.
    pub reinit: BTreeSet<u8>,
    /// What the cluster's data is known by.
    pub identity: Option<String>,
}

impl Cluster {
    /// Members of the group whose keepers do not live.
    pub fn without_keeper(&self) -> Vec<u8> {
        let members = self.group.as_ref().map_or(&[][..], |group| &group.members);
        members.iter().copied().filter(|node| !self.members.contains_key(node)).collect()
    }

    /// Takes in a key. What it does not know is of a later version.
    ///
    /// # Errors
    /// A value that is none, in words.
    pub fn take(&mut self, keys: &Keys, (key, value, lease): (&str, &[u8], i64), own: i64) -> Result<(), String> {
        fn of<T: for<'a> Deserialize<'a>>(key: &str, value: &[u8]) -> Result<T, String> {
            serde_json::from_slice(value).map_err(|error| format!("etcd's key {key} makes no sense: {error}"))
        }
        let Some(name) = key.strip_prefix(&keys.prefix) else { return Ok(()) };
        match name.split_once('/') {
            None => match name {
                "group" => self.group = Some(of(key, value)?),
                "leader" => self.leader = Some((of(key, value)?, lease != 0 && lease == own)),
                "intent" => self.intent = Some(of(key, value)?),
                "paused" => self.paused = true,
                "identity" => self.identity = Some(String::from_utf8_lossy(value).into_owned()),
                _ => {}
            },
            Some(("members", _)) => {
                let member: Member = of(key, value)?;
                self.members.insert(member.node, member);
            }
            Some(("reinit", node)) => {
                let node = node.parse().map_err(|_| format!("etcd's key {key} names no node"))?;
                self.reinit.insert(node);
            }
            Some(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_and_foreign_ones_are_left_or_refused_by_name() {
        let keys = Keys::new("c", 0);
        let mut cluster = Cluster::default();
        let mut take = |key: &str, value: &str, lease| cluster.take(&keys, (key, value.as_bytes(), lease), 7);
        take(&keys.leader(), r#"{"node":1,"epoch":"4.1"}"#, 7).unwrap();
        take(&keys.group(), r#"{"members":[0,1],"mode":"quorum","k":2}"#, 0).unwrap();
        take(&keys.paused(), "", 0).unwrap();
        take(&keys.reinit(3), "", 0).unwrap();
        take("/tidewater/c/later/thing", "?", 0).unwrap();
        take("/tidewater/other/leader", "?", 0).unwrap();
        take(&Keys::new("c", 1).leader(), "?", 0).unwrap();
        let wrong = take(&keys.group(), "{}", 0).unwrap_err();
        assert!(wrong.contains("/tidewater/c/group"), "{wrong}");
        assert_eq!(cluster.leader, Some((Leader { node: 1, epoch: Epoch { counter: 4, node: 1 } }, true)));
        let group = cluster.group.unwrap();
        assert_eq!(Group::from_words(&group.members, &group.mode_in_words()), Some(group));
        assert!(cluster.paused && cluster.reinit.contains(&3));
    }
}
