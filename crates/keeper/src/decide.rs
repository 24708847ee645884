//! What a keeper does, from what it sees: the whole policy, without I/O.
//!
//! Who holds the key `leader` may ask its device to promote itself, and extends the device's leader deadline. Whether
//! the promotion succeeds, the members of the group decide by epochs. So a wrong choice here costs time, and no bytes.

mod begin;
mod disk;
mod elect;
mod lead;

use crate::device::{Device, Disk, Order, Role};
use crate::epoch::Epoch;
use crate::job::Keep;
use crate::keys::{Cluster, EPOCHS_AHEAD_MAX, Group, Member, list};

/// What a keeper sees.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Milliseconds of the keeper's own monotonic clock.
    pub now_ms: u64,
    /// Its device, or why that does not answer.
    pub device: Result<&'a Device, &'a str>,
    /// What is in etcd, or why that does not answer or can't be trusted.
    pub cluster: Result<&'a Cluster, &'a str>,
    /// Its times.
    pub keep: &'a Keep,
    /// Why the program that follows the primary does not run here, if that has been tried for a while.
    pub program: Option<&'a str>,
}

/// What a keeper remembers from one look to the next. Without it a decision takes longer.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// Since when the device has not answered.
    away_since: Option<u64>,
    /// Whether this keeper led when etcd was last read.
    led: bool,
    /// Since when no keeper has led.
    vacant_since: Option<u64>,
    /// The same, also while this keeper has no part in an election.
    leaderless_since: Option<u64>,
    /// When its device was asked to promote itself in this lease.
    asked_at: Option<u64>,
    /// It hands leadership over: whether the device has stepped down or that is not known, the lease is to go.
    hands_over: bool,
    /// When its device was asked for another group.
    change_asked_at: Option<u64>,
    /// It does not compete before.
    stands_back_until: u64,
    /// How slow the disk of its device is.
    slow: disk::Slow,
    /// When leadership was last given up since the program does not run here.
    program_gave_up_at: Option<u64>,
}

impl Memory {
    /// Whether the disk of its device has been slow for a whole ttl.
    pub fn is_slow(&self, now_ms: u64, keep: &Keep) -> bool {
        self.slow.is_lasting(now_ms, keep)
    }

    /// For how long no keeper has led, in milliseconds, as far as etcd was read.
    pub fn leaderless_ms(&self, now_ms: u64) -> Option<u64> {
        self.leaderless_since.map(|since| now_ms.saturating_sub(since))
    }
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// An order to the device.
    Device(Order),
    /// Takes the key `leader`, if no keeper has it.
    Acquire,
    /// Gives the key `leader` back.
    Release,
    /// Notes in the key `leader` which epoch the device is primary of.
    NoteEpoch(Epoch),
    /// Notes the group, if none is noted.
    NoteGroup(Group),
    /// Notes who is to lead next.
    Intend(u8),
    /// The switchover is done.
    EndIntent,
    /// The device has discarded its log.
    EndReinit,
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// In this order; the rest is left out when one fails.
    pub actions: Vec<Action>,
    /// What the keeper makes of it, in words.
    pub note: String,
    /// It is about to change: look again at once.
    pub soon: bool,
}

impl Decision {
    fn wait(note: impl Into<String>) -> Decision {
        Decision { actions: Vec::new(), note: note.into(), soon: false }
    }

    fn act(actions: Vec<Action>, note: impl Into<String>) -> Decision {
        Decision { actions, note: note.into(), soon: true }
    }
}

/// What a keeper does.
pub fn decide(view: &View<'_>, memory: &mut Memory) -> Decision {
    if let Ok(cluster) = view.cluster {
        memory.led = cluster.leader.as_ref().is_some_and(|(_, is_own)| *is_own);
        if cluster.leader.is_some() {
            (memory.vacant_since, memory.leaderless_since) = (None, None);
        } else {
            memory.leaderless_since.get_or_insert(view.now_ms);
        }
        if !memory.led {
            (memory.asked_at, memory.change_asked_at, memory.hands_over) = (None, None, false);
        }
    }
    let device = match view.device {
        Ok(device) => device,
        Err(why) => return without_device(view, memory, why),
    };
    memory.away_since = None;
    memory.slow.look(view.now_ms, &device.disk, view.keep);
    let cluster = match view.cluster {
        Ok(cluster) => cluster,
        Err(why) => return without_etcd(view, device, why),
    };
    if cluster.paused {
        return paused(cluster, device);
    }
    let Some(group) = &cluster.group else {
        return match device.group().filter(|_| device.role == Role::Primary) {
            Some(group) => {
                Decision::act(vec![Action::NoteGroup(group)], "keeps the group that the device is primary of")
            }
            None => Decision::wait(
                "waits for a group: set it with tidewater cluster keeper group --members LIST --mode MODE",
            ),
        };
    };
    let of = Of { view, cluster, device, group };
    match (&cluster.leader, device.role) {
        (_, Role::Alone) => of.begin(),
        (Some((_, true)), _) => of.lead(memory),
        (Some((leader, false)), _) => of.follow(leader.node),
        (None, _) => of.elect(memory),
    }
}

/// All that a keeper sees when nothing is missing.
struct Of<'a> {
    view: &'a View<'a>,
    cluster: &'a Cluster,
    device: &'a Device,
    group: &'a Group,
}

impl Of<'_> {
    fn is_member(&self) -> bool {
        self.group.members.contains(&self.device.node)
    }

    fn wants_reinit(&self) -> bool {
        self.cluster.reinit.contains(&self.device.node)
    }

    /// An order for a promotion that counts as long as this keeper's lease.
    fn promote(&self, group: Option<Group>) -> Action {
        let before_ms = self.device.clock_ms + self.view.keep.ttl_ms;
        Action::Device(Order::Promote { group, above: self.highest(), before_ms })
    }

    /// The highest counter of an epoch that members of the group know. One that no promotions can have come to since
    /// the newest that the device knows is wrong, and refused by the device: any client of etcd may have written it.
    fn highest(&self) -> u64 {
        let own = self.device.epoch.max(self.device.promised).counter;
        let is_member = |node: u8| self.group.members.contains(&node) || self.device.members.contains(&node);
        let members = self.cluster.members.values().filter(|member| is_member(member.node));
        let leader = self.cluster.leader.iter().map(|(leader, _)| leader).filter(|leader| is_member(leader.node));
        let known = members.flat_map(|member| [member.epoch, member.promised]).chain(leader.map(|leader| leader.epoch));
        let near = known.map(|epoch| epoch.counter).filter(|counter| *counter < own.saturating_add(EPOCHS_AHEAD_MAX));
        near.max().unwrap_or(0).max(own)
    }

    /// Leadership is another's.
    fn follow(&self, leader: u8) -> Decision {
        let device = self.device;
        if let Some(state) = &device.disk.state {
            return Decision::wait(self.with_bad_disk(state));
        }
        match device.role {
            Role::Primary if device.frozen_ms.is_none() => Decision::act(
                vec![Action::Device(end_of_leadership())],
                format!("node {leader} leads: this primary acknowledges nothing more"),
            ),
            Role::Primary => Decision::wait(format!("node {leader} leads: this primary waits to be deposed")),
            Role::Candidate => {
                Decision::wait(format!("node {leader} leads, and this device is being promoted by hand"))
            }
            _ if self.wants_reinit() => self.reinit(),
            _ if !device.has_deadline => {
                Decision::act(vec![Action::Device(end_of_leadership())], format!("follows node {leader}"))
            }
            _ if device.stale => Decision::wait(self.stale()),
            _ => Decision::wait(format!("follows node {leader}")),
        }
    }

    fn reinit(&self) -> Decision {
        let actions = vec![Action::Device(Order::Rebuild), Action::EndReinit];
        Decision::act(actions, "discards the log of this device, and takes the primary's")
    }

    fn stale(&self) -> String {
        let node = self.device.node;
        format!("its log is stale: tidewater cluster keeper reinit --node {node} discards it for the primary's")
    }
}

/// From now on, a primary acknowledges nothing.
fn end_of_leadership() -> Order {
    Order::Lead { epoch: Epoch::default(), from_ms: 0, for_ms: 0 }
}

/// As long as the lease that was renewed after the device said its clock.
fn extension(device: &Device, keep: &Keep) -> Order {
    Order::Lead { epoch: device.epoch, from_ms: device.clock_ms, for_ms: keep.leads_for_ms() }
}

fn without_device(view: &View<'_>, memory: &mut Memory, why: &str) -> Decision {
    let since = *memory.away_since.get_or_insert(view.now_ms);
    let is_over = view.now_ms.saturating_sub(since) >= view.keep.retry_timeout_ms;
    match view.cluster {
        // Pausing is for such moments.
        Ok(cluster) if memory.led && is_over && !cluster.paused => Decision::act(
            vec![Action::Release],
            format!("gives leadership up, since the device does not answer: {why}"),
        ),
        _ => Decision::wait(format!("the device does not answer: {why}")),
    }
}

/// Fail-safe mode: a primary to which all members report can't have been replaced, because a member that has accepted
/// a higher epoch refuses its frames.
fn without_etcd(view: &View<'_>, device: &Device, why: &str) -> Decision {
    if device.role != Role::Primary || !device.has_deadline {
        return Decision::wait(format!("no word from etcd: {why}"));
    }
    if let Some(state) = &device.disk.state {
        return Decision::wait(format!("{}, and no word from etcd: {why}", Disk::wrong(state)));
    }
    match &device.silent_members()[..] {
        [] => Decision {
            actions: vec![Action::Device(extension(device, view.keep))],
            note: format!("fail-safe: goes on as primary, since all members report to it; no word from etcd: {why}"),
            soon: false,
        },
        silent => Decision::wait(format!(
            "no word from etcd, nor from node {}: this primary acknowledges nothing behind its deadline ({why})",
            list(silent)
        )),
    }
}

fn paused(cluster: &Cluster, device: &Device) -> Decision {
    let mut actions = Vec::new();
    if device.role == Role::Primary {
        match &cluster.leader {
            None => actions.push(Action::Acquire),
            Some((leader, true)) if leader.epoch != device.epoch => actions.push(Action::NoteEpoch(device.epoch)),
            Some(_) => {}
        }
        // What can't be stored can't be ordered, either.
        if device.has_deadline && device.disk.state.is_none() {
            actions.push(Action::Device(Order::Free));
        }
    }
    let note = "paused: promotes nothing; tidewater cluster keeper resume ends that".into();
    Decision { actions, note, soon: false }
}

/// How much a member has: the newest epoch that it was complete in, and bytes of the kind that acknowledgements were
/// based on. A byte on flash was in the ring before, so the ring's end counts for both levels.
fn rank(member: &Member) -> (Epoch, u64, std::cmp::Reverse<u8>) {
    (member.synced, member.end(), std::cmp::Reverse(member.node))
}

#[cfg(test)]
pub(crate) mod tests;
