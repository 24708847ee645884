//! Devices that are in no group yet: the first ones begin it, later ones join.

use super::{Action, Decision, Of};
use crate::device::{Order, Role};
use crate::keys::list;

impl Of<'_> {
    /// What is done with a device that is in no group.
    pub(super) fn begin(&self) -> Decision {
        if let Some(state) = &self.device.disk.state {
            let release = self.cluster.leader.as_ref().filter(|(_, is_own)| *is_own).map(|_| Action::Release);
            return Decision { actions: release.into_iter().collect(), note: self.with_bad_disk(state), soon: false };
        }
        let node = self.device.node;
        if !self.is_member() {
            return Decision::wait(format!("node {node} is no member of the group ({})", self.group));
        }
        let mut members = self.cluster.members.values().filter(|member| self.group.members.contains(&member.node));
        let has_begun = members.any(|member| member.role.is_some_and(|role| role != Role::Alone));
        let leader = self.cluster.leader.as_ref();
        match leader {
            Some((_, false)) => self.join(),
            _ if has_begun => self.join(),
            Some((_, true)) => Decision::act(
                vec![Action::Device(Order::FormAsPrimary(self.group.clone()))],
                format!("begins the group: {}", self.group),
            ),
            None => self.be_first(),
        }
    }

    fn join(&self) -> Decision {
        let node = self.device.node;
        let has_log = self.device.tail.iter().any(|&end| end > 0);
        if has_log && !self.wants_reinit() {
            return Decision::wait(format!(
                "this device is in no group and has a log of its own: tidewater cluster keeper reinit --node {node} \
                 discards that to join"
            ));
        }
        let mut actions = vec![Action::Device(Order::Form(self.group.clone()))];
        if self.wants_reinit() {
            actions.push(Action::EndReinit);
        }
        Decision::act(actions, "joins the group")
    }

    /// All are new: the one that has a log begins the group, else the one with the lowest number.
    fn be_first(&self) -> Decision {
        let members = &self.cluster.members;
        let missing: Vec<u8> = self.group.members.iter().copied().filter(|node| !members.contains_key(node)).collect();
        if !missing.is_empty() {
            return Decision::wait(format!("waits for the keeper of node {}, to begin the group", list(&missing)));
        }
        let ours = members.values().filter(|member| self.group.members.contains(&member.node));
        let with_log: Vec<u8> =
            ours.filter(|member| member.tail.iter().any(|&end| end > 0)).map(|member| member.node).collect();
        let first = match &with_log[..] {
            [] => {
                let can = |node: &&u8| members.get(node).is_some_and(|member| member.disk.is_none());
                self.group.members.iter().filter(can).min().copied().unwrap_or(0)
            }
            [one] => *one,
            several => {
                return Decision::wait(format!(
                    "can't begin the group: nodes {} have a log each; form it by hand (tidewater cluster group form), \
                     which keeps the primary's",
                    list(several)
                ));
            }
        };
        match first == self.device.node {
            true => Decision::act(vec![Action::Acquire], format!("begins the group: {}", self.group)),
            false => Decision::wait(format!("waits for node {first} to begin the group")),
        }
    }
}
