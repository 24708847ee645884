//! A keeper that leads: its device is promoted, kept primary, changed to another group, or handed over.

use super::disk::LEASES_BETWEEN;
use super::{Action, Decision, Memory, Of, View, end_of_leadership, extension};
use crate::device::{Disk, Order, Role};
use crate::keys::{Member, list};

impl Memory {
    /// Whether leadership may be given up since the program does not run here; from then on, not for a while.
    fn may_give_up_for_program(&mut self, view: &View<'_>) -> bool {
        let rests = LEASES_BETWEEN * view.keep.ttl_ms;
        let may = self.program_gave_up_at.is_none_or(|at| view.now_ms.saturating_sub(at) >= rests);
        if may {
            self.program_gave_up_at = Some(view.now_ms);
        }
        may
    }
}

impl Of<'_> {
    pub(super) fn lead(&self, memory: &mut Memory) -> Decision {
        let (device, now) = (self.device, self.view.now_ms);
        if let Some(state) = &device.disk.state {
            // No order to the device: it would have to store what it is ordered. It acknowledges nothing by itself.
            let note = self.with_bad_disk(state);
            return self.give_up(memory, vec![Action::Release], &note);
        }
        match device.role {
            Role::Primary => self.keep_primary(memory),
            Role::Candidate => {
                let since = *memory.asked_at.get_or_insert(now);
                if now.saturating_sub(since) < self.view.keep.ttl_ms {
                    return Decision::act(Vec::new(), "the device is being promoted");
                }
                let actions = vec![Action::Device(Order::Demote), Action::Release];
                self.give_up(memory, actions, "gives leadership up: not enough members answer the device's promotion")
            }
            _ if memory.hands_over => {
                self.give_up(memory, vec![Action::Release], "hands leadership over: its device has stepped down")
            }
            _ if memory.asked_at.is_some() => {
                self.give_up(memory, vec![Action::Release], "gives leadership up: the device's promotion was refused")
            }
            _ if device.stale => self.give_up(memory, vec![Action::Release], &self.stale()),
            _ => {
                memory.asked_at = Some(now);
                Decision::act(vec![self.promote(None)], "leads: has the device promoted")
            }
        }
    }

    fn give_up(&self, memory: &mut Memory, actions: Vec<Action>, note: &str) -> Decision {
        memory.asked_at = None;
        memory.stands_back_until = self.view.now_ms + 2 * self.view.keep.loop_wait_ms;
        Decision::act(actions, note)
    }

    fn keep_primary(&self, memory: &mut Memory) -> Decision {
        let device = self.device;
        (memory.asked_at, memory.hands_over) = (None, false);
        let mut actions = Vec::new();
        let mut note = format!("leads in epoch {}", device.epoch);
        if self.cluster.leader.as_ref().is_some_and(|(leader, _)| leader.epoch != device.epoch) {
            actions.push(Action::NoteEpoch(device.epoch));
        }
        match &self.cluster.intent {
            Some(intent) if intent.to == Some(device.node) => actions.push(Action::EndIntent),
            Some(intent) => match self.successor(intent.to, false) {
                Ok(next) => return self.hand_over(memory, next, intent.to.is_none()),
                Err(why) => note = format!("{note}; can't switch over: {why}"),
            },
            None if memory.slow.is_reason(self.view.now_ms, self.view.keep) => match self.successor(None, true) {
                Ok(next) => {
                    memory.slow.gave_up(self.view.now_ms);
                    let decision = self.hand_over(memory, next, true);
                    return Decision { note: format!("{}: its disk is slow", decision.note), ..decision };
                }
                Err(why) => note = format!("{note}; its disk is slow, and {why}"),
            },
            None => {
                if let Some(trouble) = self.view.program {
                    match self.successor(None, false) {
                        Ok(next) if memory.may_give_up_for_program(self.view) => {
                            let decision = self.hand_over(memory, next, true);
                            return Decision { note: format!("{}: {trouble}", decision.note), ..decision };
                        }
                        Ok(_) => note = format!("{note}; {trouble}, and leadership was given up for that not long ago"),
                        Err(why) => note = format!("{note}; {trouble}, and {why}"),
                    }
                }
            }
        }
        if device.group().as_ref() != Some(self.group) {
            match self.change(memory) {
                Ok(decision) => return decision,
                Err(why) => note = format!("{note}; can't change the group: {why}"),
            }
        } else {
            memory.change_asked_at = None;
        }
        actions.push(Action::Device(extension(device, self.view.keep)));
        Decision { actions, note, soon: false }
    }

    /// The member that takes over: it follows without a gap, its keeper lives, and its disk takes what is written;
    /// `fast`: in time.
    fn successor(&self, to: Option<u8>, fast: bool) -> Result<u8, String> {
        let can = |node: u8| match self.cluster.members.get(&node) {
            None => Err(format!("the keeper of node {node} does not run")),
            Some(member) if member.role != Some(Role::Secondary) => Err(format!("node {node} is no secondary")),
            Some(Member { disk: Some(state), .. }) => Err(format!("node {node}: {}", Disk::wrong(state))),
            Some(member) if fast && member.slow => Err(format!("the disk of node {node} is slow, too")),
            Some(_) => {
                let replica = self.device.replicas.iter().find(|replica| replica.node == node);
                // A chain's primary knows its next member alone.
                let in_step = replica.map_or(self.device.mode == "chain", |replica| replica.in_step);
                if in_step { Ok(node) } else { Err(format!("node {node} is not in step with the primary")) }
            }
        };
        match to {
            Some(node) if !self.group.members.contains(&node) => Err(format!("node {node} is no member of the group")),
            Some(node) => can(node),
            None => {
                let others = self.group.members.iter().copied().filter(|node| *node != self.device.node);
                let behind = |node: &u8| {
                    let replica = self.device.replicas.iter().find(|replica| replica.node == *node);
                    (replica.map_or(0, |replica| replica.behind_bytes), *node)
                };
                let best = others.filter(|node| can(*node).is_ok()).min_by_key(behind);
                best.ok_or_else(|| match fast {
                    true => "no other member is in step and has a better disk".into(),
                    false => "no other member is in step with the primary".into(),
                })
            }
        }
    }

    /// Ends this leadership for another's. What programs append meanwhile waits, and is acknowledged by the next
    /// primary, or not at all. A device on a slow disk may step down only after the keeper has stopped waiting for it.
    fn hand_over(&self, memory: &mut Memory, next: u8, names_it: bool) -> Decision {
        memory.hands_over = true;
        let mut actions = Vec::new();
        if names_it {
            actions.push(Action::Intend(next));
        }
        actions.extend([Action::Device(end_of_leadership()), Action::Device(Order::Demote), Action::Release]);
        Decision::act(actions, format!("hands leadership over to node {next}"))
    }

    /// The device's group is not the one that it is to be.
    fn change(&self, memory: &mut Memory) -> Result<Decision, String> {
        let (now, keep) = (self.view.now_ms, self.view.keep);
        let waiting = self.group.members.iter().copied().filter(|node| {
            let role = self.cluster.members.get(node).and_then(|member| member.role);
            *node != self.device.node && role != Some(Role::Secondary)
        });
        let waiting: Vec<u8> = waiting.collect();
        if !waiting.is_empty() {
            return Err(format!("node {} has not joined: start its device and its keeper", list(&waiting)));
        }
        if !self.is_member() {
            return self.successor(None, false).map(|next| self.hand_over(memory, next, true));
        }
        if memory.change_asked_at.is_some_and(|at| now.saturating_sub(at) < keep.ttl_ms) {
            return Err("the device's promotion to the new group was refused: it is tried again".into());
        }
        memory.change_asked_at = Some(now);
        let promote = self.promote(Some(self.group.clone()));
        Ok(Decision::act(vec![promote], format!("changes the group: {}", self.group)))
    }
}
