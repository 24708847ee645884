//! A device, by its control socket: one JSON object a line (docs/reference/control.md).

use crate::epoch::Epoch;
use crate::keys::Group;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Bytes of an answer.
const ANSWER_MAX: u64 = 1 << 20;

/// What a device is to its group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// In no group.
    Alone,
    /// Primary.
    Primary,
    /// A promotion is under way.
    Candidate,
    /// It follows a primary, or waits for one.
    Secondary,
}

/// A device as it stands.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Device {
    /// Its number.
    pub node: u8,
    /// What it is.
    pub role: Role,
    /// How replicas acknowledge, in the device's words.
    pub mode: String,
    /// Nodes of its group.
    pub members: Vec<u8>,
    /// The epoch of its log.
    pub epoch: Epoch,
    /// The highest that it has accepted.
    pub promised: Epoch,
    /// The newest that its log was complete in.
    pub synced: Epoch,
    /// Where each lane of its log ends.
    pub tail: Vec<u64>,
    /// It acknowledges as primary until a deadline only.
    pub has_deadline: bool,
    /// For how long it has been frozen, in milliseconds, if it is.
    #[serde(default)]
    pub frozen_ms: Option<u64>,
    /// Its log, or that of one that it sends to, has to be rebuilt.
    pub stale: bool,
    /// This secondary does not hear from a primary.
    pub primary_silent: bool,
    /// Those that it sends its log to.
    pub replicas: Vec<Replica>,
    /// Its version, if it says that.
    #[serde(skip)]
    pub version: Option<String>,
    /// Its clock, when it said so.
    #[serde(skip)]
    pub clock_ms: u64,
    /// The disk of its image.
    #[serde(skip)]
    pub disk: Disk,
}

/// The disk of a device's image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// Why the image can't be written: `full` or `failed`; `None`: it can.
    pub state: Option<String>,
    /// Writes that have ended.
    pub writes: u64,
    /// How long they took, together, in microseconds.
    pub write_us: u64,
    /// Syncs that have ended.
    pub syncs: u64,
    /// How long they took, together, in microseconds.
    pub sync_us: u64,
    /// For how long the sync has run that is under way, in microseconds; 0: none is.
    pub syncing_us: u64,
}

impl Disk {
    /// What is wrong with the disk in this state, in words.
    pub fn wrong(state: &str) -> &'static str {
        if state == "full" { "its disk is full" } else { "its disk can't be written" }
    }
}

/// A member that a primary sends its log to.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Replica {
    /// Its number.
    pub node: u8,
    /// It reports in this epoch, and in time.
    pub answers: bool,
    /// It holds what the epoch began with, and gets what is appended.
    pub in_step: bool,
    /// Bytes that it lacks.
    pub behind_bytes: u64,
}

impl Device {
    /// The device of a status.
    ///
    /// # Errors
    /// In words, when it has no peers, or the status makes no sense.
    pub fn from_status(status: &Map<String, Value>, function: u8) -> Result<Device, String> {
        let peers = status.get("peers").ok_or("the device has no peers: serve it with --node and --peer")?;
        let groups = peers["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
        let group = groups.iter().find(|group| group["function"] == function);
        let group = group.ok_or_else(|| format!("the device has no function {function}"))?;
        let mut device = Device::deserialize(group).map_err(|error| {
            format!("the device's status makes no sense ({error}): device and keeper must be of one version")
        })?;
        device.node = peers["node"].as_u64().and_then(|node| node.try_into().ok()).ok_or("the device has no number")?;
        device.clock_ms = peers["clock_ms"].as_u64().ok_or("the device does not say its clock")?;
        device.version = peers["version"].as_str().map(str::to_owned);
        // An older device does not say.
        device.disk = status.get("disk").and_then(|disk| Disk::deserialize(disk).ok()).unwrap_or_default();
        Ok(device)
    }

    /// The group that it is in.
    pub fn group(&self) -> Option<Group> {
        Group::from_words(&self.members, &self.mode)
    }

    /// Whether this primary acknowledges nothing: its deadline has passed, or its image can't be written.
    pub fn is_frozen(&self) -> bool {
        self.frozen_ms.is_some() || (self.role == Role::Primary && self.disk.state.is_some())
    }

    /// Members that do not report to this primary in its epoch.
    pub fn silent_members(&self) -> Vec<u8> {
        let answers = |node: &u8| self.replicas.iter().any(|replica| replica.node == *node && replica.answers);
        // In a chain a primary knows its next member alone, whose reports speak for all behind it.
        let known = |node: &u8| self.mode != "chain" || self.replicas.iter().any(|replica| replica.node == *node);
        self.members.iter().copied().filter(|node| *node != self.node && known(node) && !answers(node)).collect()
    }
}

/// What a keeper asks a device for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Its group.
    Form(Group),
    /// The same, as its first primary.
    FormAsPrimary(Group),
    /// To become primary, of another group if one is given.
    Promote {
        /// The group.
        group: Option<Group>,
        /// Its epoch's counter is to be above this.
        above: u64,
        /// It counts until the device's clock is here.
        before_ms: u64,
    },
    /// Not to be primary any longer.
    Demote,
    /// To acknowledge until `from_ms` + `for_ms` of its clock; with `for_ms` 0, nothing.
    Lead {
        /// Its epoch.
        epoch: Epoch,
        /// Its clock.
        from_ms: u64,
        /// Milliseconds.
        for_ms: u64,
    },
    /// To acknowledge without a deadline.
    Free,
    /// To discard its log, as far as that is needed to follow the primary.
    Rebuild,
}

impl Order {
    fn to_json(&self, function: u8) -> Value {
        let with = |name: &str, group: &Group| {
            let Group { members, mode, k } = group;
            json!({ "do": name, "members": members, "mode": mode, "k": k })
        };
        let mut order = match self {
            Order::Form(group) => with("group-form", group),
            Order::FormAsPrimary(group) => {
                let mut order = with("group-form", group);
                order["primary"] = true.into();
                order
            }
            Order::Promote { group, above, before_ms } => {
                let mut order =
                    group.as_ref().map_or_else(|| json!({ "do": "group-promote" }), |it| with("group-promote", it));
                order["above"] = (*above).into();
                order["before_ms"] = (*before_ms).into();
                order
            }
            Order::Demote => json!({ "do": "group-demote" }),
            Order::Lead { epoch, from_ms, for_ms } => {
                json!({ "do": "group-lead", "epoch": epoch, "from_ms": from_ms, "for_ms": for_ms })
            }
            Order::Free => json!({ "do": "group-lead" }),
            Order::Rebuild => json!({ "do": "group-rebuild" }),
        };
        order["function"] = function.into();
        order
    }
}

/// The socket of a device.
#[derive(Clone, Debug)]
pub struct Control {
    /// Its path.
    pub path: PathBuf,
    /// The function whose log is kept.
    pub function: u8,
    /// How long an answer may take.
    pub patience: Duration,
}

impl Control {
    /// How the device stands.
    ///
    /// # Errors
    /// In words, when it does not answer, or makes no sense.
    pub async fn status(&self) -> Result<Device, String> {
        let answer = self.ask(&json!({ "do": "status" })).await?;
        Device::from_status(&answer, self.function)
    }

    /// Has the device carry out an order.
    ///
    /// # Errors
    /// In words, when it does not answer, or refuses.
    pub async fn order(&self, order: &Order) -> Result<(), String> {
        self.ask(&order.to_json(self.function)).await.map(drop)
    }

    async fn ask(&self, request: &Value) -> Result<Map<String, Value>, String> {
        let path = self.path.display();
        let answer = timeout(self.patience, exchange(&self.path, request)).await;
        let answer = answer.map_err(|_| format!("{path}: no answer within {} ms", self.patience.as_millis()))?;
        let answer = answer.map_err(|error| format!("{path}: {error}"))?;
        let answer: Map<String, Value> =
            serde_json::from_str(&answer).map_err(|error| format!("{path}: invalid answer: {error}"))?;
        match answer.get("error").and_then(Value::as_str) {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }
}

async fn exchange(path: &Path, request: &Value) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(path).await?;
    stream.write_all(format!("{request}\n").as_bytes()).await?;
    let mut answer = String::new();
    BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut answer).await?;
    Ok(answer)
}
