//! No keeper leads: the one whose device has most takes leadership, the others give it time to.

use super::{Action, Decision, Memory, Of, rank};
use crate::device::Role;
use crate::keys::Member;

impl Of<'_> {
    pub(super) fn elect(&self, memory: &mut Memory) -> Decision {
        let (device, now, keep) = (self.device, self.view.now_ms, self.view.keep);
        let since = *memory.vacant_since.get_or_insert(now);
        let vacant_for = now.saturating_sub(since);
        // What stands in the way of the best one is not waited for longer than this.
        let grace = 2 * keep.loop_wait_ms;
        let take = |why: &str| Decision::act(vec![Action::Acquire], why);
        if let Some(state) = &device.disk.state {
            return Decision::wait(self.with_bad_disk(state));
        }
        match device.role {
            Role::Primary => return take("takes leadership: its device is primary"),
            Role::Candidate => return Decision::wait("the device is being promoted by hand"),
            _ => {}
        }
        if !self.is_member() {
            return Decision::wait(format!("node {} is no member of the group ({})", device.node, self.group));
        }
        if self.wants_reinit() {
            return self.reinit();
        }
        if device.stale {
            return Decision::wait(self.stale());
        }
        if now < memory.stands_back_until {
            return Decision::wait("stands back for the other members, since its device could not be promoted");
        }
        match self.cluster.intent.as_ref().and_then(|intent| intent.to) {
            Some(node) if node == device.node => return take("takes leadership, as the switchover says"),
            Some(node) if vacant_for < keep.ttl_ms && self.cluster.members.get(&node).is_some_and(can_lead) => {
                return Decision::wait(format!("no keeper leads: node {node} is to take over"));
            }
            _ => {}
        }
        if vacant_for < grace {
            if let Some(better) = self.better() {
                return Decision::wait(format!(
                    "no keeper leads: node {better} has more, or as much and a lower number"
                ));
            }
            let primary = self.cluster.members.get(&device.epoch.node);
            let is_heard = !device.primary_silent && primary.is_none_or(|primary| primary.disk.is_none());
            if is_heard && device.promised == device.epoch && device.epoch.node != device.node {
                return Decision::wait(format!("no keeper leads: node {} is primary still", device.epoch.node));
            }
        }
        take("takes leadership: its device has most")
    }

    /// A member that has more, and can be made primary.
    fn better(&self) -> Option<u8> {
        let members = self.cluster.members.values();
        let own = rank(self.cluster.members.get(&self.device.node)?);
        let rivals = members
            .filter(|member| can_lead(member) && self.group.members.contains(&member.node) && rank(member) > own);
        rivals.max_by_key(|member| rank(member)).map(|member| member.node)
    }
}

/// Whether a member's device can be made primary.
fn can_lead(member: &Member) -> bool {
    member.role.is_some_and(|role| role != Role::Alone) && !member.stale && member.disk.is_none()
}
