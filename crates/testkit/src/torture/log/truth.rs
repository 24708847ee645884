//! The record outside of the devices: which epoch wrote which bytes, and which credit clients received.

use super::writer;
use std::collections::BTreeMap;
use tidewater_core::fast::Function;
use tidewater_core::fast::transport::Role;
use tidewater_wire::replication::Mode;

/// An epoch, and where it starts in each lane.
type Start = (u64, Vec<u64>);

/// The oracle of a group's logs.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    lanes: usize,
    /// For each epoch all that came before it, itself last. Histories on devices forget; these do not.
    lineages: BTreeMap<u64, Vec<Start>>,
    /// The epoch of each node's log when it was last looked at.
    epochs: Vec<u64>,
    /// The credit that clients of a node were shown while it was alone or lazy: it holds on that node, until a rejoin
    /// cuts.
    shown: Vec<Vec<u64>>,
    /// For each lane what the group has acknowledged.
    acknowledged: Vec<Acknowledged>,
    /// Bytes of each lane from before the group: promised on their node only.
    base: Vec<u64>,
}

/// The highest credit of a lane that was shown in a mode that promises it on several nodes.
#[derive(Clone, Debug, Default)]
struct Acknowledged {
    offset: u64,
    epoch: u64,
    /// Who must hold it, how many of them.
    members: Vec<u8>,
    holders: usize,
}

impl Truth {
    pub(super) fn new(nodes: usize, lanes: usize) -> Truth {
        Truth {
            lanes,
            lineages: BTreeMap::from([(0, Vec::new())]),
            epochs: vec![0; nodes],
            shown: vec![vec![0; lanes]; nodes],
            acknowledged: vec![Acknowledged::default(); lanes],
            base: vec![0; lanes],
        }
    }

    /// A group begins with the log that its primary has.
    pub(super) fn begin_group(&mut self, primary: &Function) {
        self.base = primary.lanes().iter().map(|lane| lane.persisted()).collect();
    }

    /// The credit that a node's clients were shown in a mode that promises it on that node.
    pub(super) fn shown(&self, node: usize, lane: usize) -> u64 {
        self.shown[node][lane]
    }

    /// Looks at a node after something has happened to it.
    pub(super) fn observe(&mut self, node: usize, function: &Function) -> Result<(), String> {
        let transport = function.transport();
        let own = transport.persistent();
        let epoch = own.history.last().0;
        if epoch != self.epochs[node] {
            self.learn(node, function)?;
            self.epochs[node] = epoch;
            for (shown, lane) in self.shown[node].iter_mut().zip(function.lanes()) {
                *shown = (*shown).min(lane.released());
            }
        }
        if !transport.writable() {
            return Ok(());
        }
        let members = own.group.members();
        let holders = match own.group.mode() {
            _ if own.role == Role::StandAlone => 1,
            Mode::Lazy => 1,
            Mode::Eager | Mode::Chain => members.len(),
            Mode::Quorum(k) => usize::from(k),
        };
        for (lane, l) in function.lanes().iter().enumerate() {
            let credit = l.credit();
            self.shown[node][lane] = self.shown[node][lane].max(credit);
            let acknowledged = &mut self.acknowledged[lane];
            if holders > 1 && credit > acknowledged.offset.max(self.base[lane]) {
                *acknowledged = Acknowledged { offset: credit, epoch, members: members.to_vec(), holders };
            }
        }
        Ok(())
    }

    /// A node's log is in an epoch in which it was not before.
    fn learn(&mut self, node: usize, function: &Function) -> Result<(), String> {
        let own = function.transport().persistent();
        let starts = own.history.starts();
        let Some(last) = starts.last() else { return Ok(()) };
        let offsets = last.offsets[..self.lanes].to_vec();
        let epoch = last.epoch.0;
        if let Some(known) = self.lineages.get(&epoch) {
            let same = known.last().is_some_and(|(_, starts)| *starts == offsets);
            let other = || format!("node {node} has epoch {} start elsewhere than others have it", last.epoch);
            return if same { Ok(()) } else { Err(other()) };
        }
        let before = starts.len().checked_sub(2).map_or(0, |place| starts[place].epoch.0);
        let mut lineage = self.lineages.get(&before).ok_or("an epoch follows one that no node had")?.clone();
        lineage.push((epoch, offsets));
        self.lineages.insert(epoch, lineage);
        for lane in 0..self.lanes {
            self.holds(epoch, lane, function.lanes()[lane].released()).map_err(|what| {
                format!("node {node} is primary in epoch {} without all that was acknowledged: {what}", last.epoch)
            })?;
        }
        Ok(())
    }

    /// Which epochs wrote the first `end` bytes of a lane in the log of `epoch`: each with its first byte.
    fn segments(&self, epoch: u64, lane: usize, end: u64) -> Vec<(u64, u64)> {
        let mut segments = vec![(0, 0)];
        for (epoch, starts) in &self.lineages[&epoch] {
            while segments.last().is_some_and(|&(start, _)| start >= starts[lane]) {
                segments.pop();
            }
            segments.push((starts[lane], *epoch));
        }
        segments.retain(|&(start, _)| start < end);
        segments
    }

    /// Whether a log of `epoch` that ends at `end` holds all that was acknowledged.
    fn holds(&self, epoch: u64, lane: usize, end: u64) -> Result<(), String> {
        let acknowledged = &self.acknowledged[lane];
        if end < acknowledged.offset {
            return Err(format!("lane {lane} ends at {end}, {} bytes were acknowledged", acknowledged.offset));
        }
        let expected = self.segments(acknowledged.epoch, lane, acknowledged.offset);
        let found = self.segments(epoch, lane, acknowledged.offset);
        if found != expected {
            return Err(format!("lane {lane}: epochs {found:?}, where {expected:?} were acknowledged"));
        }
        Ok(())
    }

    /// Holds the group's logs, each of an epoch and with the end of each lane, against what was acknowledged.
    pub(super) fn check_group<'a>(&self, log: impl Fn(usize) -> Option<(u64, &'a [u64])>) -> Result<(), String> {
        for (lane, acknowledged) in self.acknowledged.iter().enumerate().filter(|(_, a)| a.offset > 0) {
            let mut lacking = Vec::new();
            for &member in &acknowledged.members {
                let Some((epoch, ends)) = log(member.into()) else { continue };
                if let Err(what) = self.holds(epoch, lane, ends[lane]) {
                    lacking.push(format!("node {member}: {what}"));
                }
            }
            if acknowledged.members.len() - lacking.len() < acknowledged.holders {
                return Err(format!("{} nodes must hold what was acknowledged; {lacking:?}", acknowledged.holders));
            }
        }
        Ok(())
    }

    /// Holds bytes of a lane from `start` on against what the epochs of a log wrote.
    pub(super) fn check_bytes(&self, epoch: u64, lane: usize, start: u64, bytes: &[u8]) -> Result<(), String> {
        let end = start + bytes.len() as u64;
        let segments = self.segments(epoch, lane, end);
        for (place, &(first, epoch)) in segments.iter().enumerate() {
            let last = segments.get(place + 1).map_or(end, |next| next.0);
            let (from, to) = (first.max(start), last.max(start));
            let part = &bytes[(from - start) as usize..(to - start) as usize];
            if let Some((at, _)) = (from..).zip(part).find(|&(at, &b)| b != writer::byte(lane, epoch, at)) {
                return Err(format!("lane {lane}: the byte at {at} of {from}..{to} is not what epoch {epoch} wrote"));
            }
        }
        Ok(())
    }
}
