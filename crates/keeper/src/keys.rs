//! What is in etcd of a cluster: keys below `/tidewater/CLUSTER/`, JSON values.

use crate::device::Role;
use crate::epoch::Epoch;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tidewater_base::units::printable;

/// Numbers of nodes, from 0 on.
pub const NODES: u8 = 16;
/// Longest value of a key that is taken. A member's, with 16 lanes and a note, has less than 2 KiB.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Longest note or address of a member that is kept, in characters; one without an end could fill a terminal.
const TEXT_MAX: usize = 1_000;
/// Epochs between the newest that a device knows and one that etcd names, from which on that is not taken for true. A
/// device refuses a jump of 2^32 alone: one that was away while etcd was believed many times follows all the same.
pub const EPOCHS_AHEAD_MAX: u64 = 1 << 20;

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

impl Keys {
    /// All keys that are read, and whether their values are: of the others it matters whether they are there.
    pub fn known(&self) -> Vec<(String, bool)> {
        let alone = [(self.group(), true), (self.leader(), true), (self.intent(), true), (self.identity(), true)];
        let members = (0..NODES).map(|node| (self.member(node), true));
        let reinit = (0..NODES).map(|node| (self.reinit(node), false));
        alone.into_iter().chain([(self.paused(), false)]).chain(members).chain(reinit).collect()
    }

    /// Whether a key is one of these.
    pub fn is_known(&self, key: &str) -> bool {
        self.known().iter().any(|(known, _)| known == key)
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
    /// The version of its keeper, and of its device if that is another one.
    #[serde(default)]
    pub version: String,
    /// Why its device's image can't be written: `full` or `failed`; `None`: it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Its disk has been slow for a ttl, by the threshold of its keeper.
    #[serde(default)]
    pub slow: bool,
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
        self.tail.iter().fold(0, |sum, end| sum.saturating_add(*end))
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
    /// Keys that say nothing that counts, and why, in words.
    pub ignored: Vec<String>,
}

impl Cluster {
    /// Members of the group whose keepers do not live.
    pub fn without_keeper(&self) -> Vec<u8> {
        let members = self.group.as_ref().map_or(&[][..], |group| &group.members);
        members.iter().copied().filter(|node| !self.members.contains_key(node)).collect()
    }

    /// Bytes of the longest log of the group's members.
    pub fn longest(&self) -> u64 {
        self.members.values().filter(|member| self.is_member(member.node)).map(Member::end).max().unwrap_or(0)
    }

    /// Whether a node is a member of the group, once there is one.
    pub fn is_member(&self, node: u8) -> bool {
        self.group.as_ref().is_none_or(|group| group.members.contains(&node))
    }

    /// Keys that say nothing that counts, and what members say that does not, in words.
    pub fn foreign(&self) -> Vec<String> {
        let mut all = self.ignored.clone();
        let known = self.leader.as_ref().map_or(u64::MAX, |(leader, _)| leader.epoch.counter);
        for member in self.members.values() {
            let node = member.node;
            let far = member.epoch.counter.max(member.promised.counter);
            if !self.is_member(node) {
                all.push(format!(
                    "members/{node}: it is no member of the group, so its epochs and its log do not count"
                ));
            } else if known > 0 && far > known.saturating_add(EPOCHS_AHEAD_MAX) {
                all.push(format!("members/{node}: epoch {far} is far above the leader's, and does not count"));
            }
        }
        all
    }

    /// Takes in a key and its value. Others than [`Keys::known`] are of a later version, or a stranger's.
    ///
    /// # Errors
    /// In words, that group, leader or identity make no sense: without them nothing can be decided. Of other keys that
    /// is noted in [`Cluster::ignored`].
    pub fn take(&mut self, keys: &Keys, (key, value, lease): (&str, &[u8], i64), own: i64) -> Result<(), String> {
        fn of<T: for<'a> Deserialize<'a>>(value: &[u8]) -> Result<T, String> {
            serde_json::from_slice(value).map_err(|error| error.to_string())
        }
        let Some(name) = key.strip_prefix(&keys.prefix) else { return Ok(()) };
        if value.len() > VALUE_BYTES_MAX {
            return self.leave_out(keys, key, &format!("its value has {} bytes", value.len()));
        }
        let taken = match name.split_once('/') {
            None => match name {
                "group" => of(value).map(|group| self.group = Some(group)),
                "leader" => of(value).map(|leader| self.leader = Some((leader, lease != 0 && lease == own))),
                "intent" => of(value).map(|intent| self.intent = Some(intent)),
                "paused" => {
                    self.paused = true;
                    Ok(())
                }
                "identity" => {
                    self.identity = Some(String::from_utf8_lossy(value).into_owned());
                    Ok(())
                }
                _ => Ok(()),
            },
            Some(("members", of_node)) => of(value).and_then(|member| self.take_member(of_node, member)),
            Some(("reinit", node)) => match number(node) {
                Some(node) => {
                    self.reinit.insert(node);
                    Ok(())
                }
                None => Err("it names no node".to_owned()),
            },
            Some(_) => Ok(()),
        };
        taken.or_else(|why| self.leave_out(keys, key, &why))
    }

    fn take_member(&mut self, of_node: &str, mut member: Member) -> Result<(), String> {
        if number(of_node) != Some(member.node) {
            return Err(format!("its value is of node {}", member.node));
        }
        for text in [&mut member.note, &mut member.address, &mut member.version] {
            *text = short(text);
        }
        self.members.insert(member.node, member);
        Ok(())
    }

    /// A key can't be used, for this reason.
    ///
    /// # Errors
    /// In words, where nothing can be decided without it.
    pub fn leave_out(&mut self, keys: &Keys, key: &str, why: &str) -> Result<(), String> {
        if [keys.group(), keys.leader(), keys.identity()].iter().any(|needed| needed == key) {
            return Err(format!("etcd's key {key} makes no sense: {why}"));
        }
        let name = key.strip_prefix(&keys.prefix).unwrap_or(key);
        self.ignored.push(short(&format!("{name}: {why}")));
        Ok(())
    }
}

/// Foreign text for people, not without end.
fn short(text: &str) -> String {
    printable(&text.chars().take(TEXT_MAX).collect::<String>())
}

/// A node's number, as keys have it.
fn number(text: &str) -> Option<u8> {
    let node: u8 = text.parse().ok().filter(|node| *node < NODES)?;
    (node.to_string() == text).then_some(node)
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

    fn member(node: u8) -> String {
        format!(
            r#"{{"node":{node},"address":"/b","role":null,"epoch":"0.0","synced":"0.0","promised":"5.1","tail":[],
               "stale":true,"frozen":false,"note":"a\u001b]0;own\u0007b"}}"#
        )
    }

    #[test]
    fn a_key_that_makes_no_sense_is_named_and_hides_no_other() {
        let keys = Keys::new("c", 0);
        let mut cluster = Cluster::default();
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        for (key, value, why) in [
            (keys.member(1), member(0), "members/1: its value is of node 0"),
            (keys.member(16), member(16), "members/16: its value is of node 16"),
            ("/tidewater/c/members/01".to_owned(), member(1), "members/01: its value is of node 1"),
            (keys.member(2), "{".repeat(100_000), "members/2: its value has 100000 bytes"),
            (keys.member(2), "[".repeat(60_000), "members/2: invalid type"),
            (keys.member(3), "\0".to_owned(), "members/3: expected value"),
            (keys.intent(), "{}\u{1b}[2J".to_owned(), "intent: "),
            (keys.reinit(4), long.clone(), "reinit/4: its value has 65537 bytes"),
            ("/tidewater/c/reinit/\u{1b}[2J".to_owned(), String::new(), "reinit/\u{fffd}[2J: it names no node"),
        ] {
            cluster.take(&keys, (&key, value.as_bytes(), 0), 7).unwrap();
            let said = cluster.ignored.last().unwrap();
            assert!(said.starts_with(why) && !said.contains('\u{1b}'), "{said}");
        }
        assert!(cluster.members.is_empty() && cluster.reinit.is_empty() && cluster.intent.is_none());
        for key in [keys.group(), keys.leader(), keys.identity()] {
            let why = cluster.take(&keys, (&key, long.as_bytes(), 0), 7).unwrap_err();
            assert!(why.contains(&key), "nothing can be decided without it: {why}");
        }
        cluster.take(&keys, (&keys.member(1), member(1).as_bytes(), 0), 7).unwrap();
        assert_eq!(cluster.members[&1].note, "a\u{fffd}]0;own\u{fffd}b");
    }

    #[test]
    fn sums_of_lanes_end_at_the_largest_number() {
        let mut all: Member = serde_json::from_str(&member(1)).unwrap();
        all.tail = vec![u64::MAX, u64::MAX];
        assert_eq!(all.end(), u64::MAX);
    }
}
