//! Three nodes, the links between them, and what may happen next.
//!
//! Each different node and parcel is kept once and known by its number, and what comes of a happening is computed once:
//! a state is a handful of numbers.

use super::super::*;
use super::node::{Defect, Happening, Node, Parcel, Timer};
use stateright::{Model, Property};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

const NODES: usize = 3;

/// How often each thing happens in a run, at most.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Budget {
    pub(super) writes: u8,
    pub(super) promotions: u8,
    pub(super) changes: u8,
    pub(super) crashes: u8,
    /// Crashes that cost a node its memory.
    pub(super) losses: u8,
}

/// What is wrong with a state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Broken {
    /// A primary lacks acknowledged bytes of its epoch or an earlier one.
    Lost,
    /// Two nodes acknowledge in one epoch, or one does in an epoch after which others have acknowledged.
    Deposed,
    /// Two logs of one epoch differ.
    Differ,
    /// The transport itself has noticed that it is in a state that can't be.
    Asserted,
}

/// An acknowledged unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Acknowledged {
    unit: Unit,
    node: u8,
    epoch: Epoch,
    version: Epoch,
}

/// A state: numbers of nodes and parcels.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    pub(super) nodes: [u32; NODES],
    /// What is on its way from node to node, the oldest first.
    links: [[Vec<u32>; NODES]; NODES],
    pub(super) ledger: Vec<Acknowledged>,
    left: Budget,
    pub(super) broken: Option<Broken>,
}

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Action {
    /// A frame comes in.
    Deliver {
        from: usize,
        to: usize,
        parcel: u32,
    },
    Timer(usize, Timer),
    Write(usize),
    Promote(usize),
    /// A node proposes another group.
    Change(usize),
    Sync(usize),
    Crash {
        node: usize,
        kept: bool,
    },
    /// A node loses its memory, and with it its links: nothing that was under way arrives.
    Lose(usize),
    /// Its peers learn of it, before anything else that it says.
    Restarted {
        node: usize,
        peer: u8,
    },
    Append(usize),
}

/// The next node, and the parcels that leave; `None`: an assertion failed.
type Outcome = Option<(u32, Arc<[u32]>)>;

#[derive(Default)]
struct Tables {
    nodes: Vec<Arc<Node>>,
    parcels: Vec<Arc<Parcel>>,
    node_numbers: HashMap<String, u32>,
    parcel_numbers: HashMap<String, u32>,
    /// By node, action, and the unit that is written.
    next: HashMap<(u32, Action, Unit), Outcome>,
}

impl Tables {
    fn node(&mut self, node: Node) -> u32 {
        let fresh = self.nodes.len() as u32;
        let number = *self.node_numbers.entry(format!("{node:?}")).or_insert(fresh);
        if number == fresh {
            self.nodes.push(Arc::new(node));
        }
        number
    }

    fn parcel(&mut self, parcel: Parcel) -> u32 {
        let fresh = self.parcels.len() as u32;
        let number = *self.parcel_numbers.entry(format!("{parcel:?}")).or_insert(fresh);
        if number == fresh {
            self.parcels.push(Arc::new(parcel));
        }
        number
    }
}

/// The model.
pub(super) struct World {
    /// Frames that a link holds from one node to another: a newer one takes the place of the oldest, which is lost.
    pub(super) in_flight: usize,
    pub(super) budget: Budget,
    pub(super) defect: Option<Defect>,
    /// What a change of the group proposes.
    pub(super) target: Group,
    start: State,
    tables: Mutex<Tables>,
}

impl World {
    /// A world whose nodes are in `group`, node 0 being primary.
    pub(super) fn new(group: Group, target: Group, flaw: Injected<Flaw>) -> World {
        let mut tables = Tables::default();
        let start = State {
            nodes: [(); NODES].map(|()| tables.node(Node::new(flaw))),
            links: Default::default(),
            ledger: Vec::new(),
            left: Budget::default(),
            broken: None,
        };
        let mut world =
            World { in_flight: 8, budget: Budget::default(), defect: None, target, start, tables: Mutex::new(tables) };
        for node in (0..NODES).rev() {
            let setup =
                Command::Setup { node: node as u8, group, primary: node == 0, epoch: Epoch::ZERO, force: false };
            world.prepare(node, Happening::Command(setup), &[0, 1, 2]);
        }
        world
    }

    /// Lets this happen, before what is explored: all frames between the nodes of `reach` arrive, in their order.
    pub(super) fn prepare(&mut self, node: usize, happening: Happening, reach: &[usize]) {
        let mut state = self.start.clone();
        let (next, sent) = {
            let mut tables = self.tables.lock().unwrap();
            let (next, sent) = tables.nodes[state.nodes[node] as usize].clone().after(&happening, None);
            (tables.node(next), sent.into_iter().map(|parcel| tables.parcel(parcel)).collect::<Vec<_>>())
        };
        self.apply(&mut state, node, next, &sent);
        loop {
            let undurable = (0..NODES).find(|&node| !self.node(&state, node).is_durable());
            let pairs = (0..NODES).flat_map(|from| (0..NODES).map(move |to| (from, to)));
            let mut pairs = pairs.filter(|&(from, to)| !state.links[from][to].is_empty());
            let action = match (undurable, pairs.next()) {
                (Some(node), _) => Action::Sync(node),
                (None, Some((from, to))) => Action::Deliver { from, to, parcel: state.links[from][to][0] },
                (None, None) => break,
            };
            match action {
                Action::Deliver { from, to, .. } if !reach.contains(&from) || !reach.contains(&to) => {
                    state.links[from][to].clear();
                }
                action => state = self.next(&state, action),
            }
        }
        assert_eq!(state.broken, None);
        self.start = state;
    }

    pub(super) fn node(&self, state: &State, node: usize) -> Arc<Node> {
        self.tables.lock().unwrap().nodes[state.nodes[node] as usize].clone()
    }

    /// The different nodes that were met.
    pub(super) fn nodes_met(&self) -> usize {
        self.tables.lock().unwrap().nodes.len()
    }

    /// A node has become another, and sends.
    fn apply(&self, state: &mut State, node: usize, next: u32, sent: &[u32]) {
        state.nodes[node] = next;
        let tables = self.tables.lock().unwrap();
        for &parcel in sent {
            let to = usize::from(tables.parcels[parcel as usize].frame.to);
            let link = &mut state.links[node][to];
            if !link.contains(&parcel) {
                link.push(parcel);
                if link.len() > self.in_flight {
                    link.remove(0);
                }
            }
        }
    }

    fn step(&self, state: &mut State, node: usize, action: Action, unit: Unit) {
        let key = (state.nodes[node], action, unit);
        let known = self.tables.lock().unwrap().next.get(&key).cloned();
        let outcome = known.unwrap_or_else(|| {
            let mut tables = self.tables.lock().unwrap();
            let happening = match action {
                Action::Deliver { parcel, .. } => Happening::Frame(Parcel::clone(&tables.parcels[parcel as usize])),
                Action::Timer(_, timer) => Happening::Timer(timer),
                Action::Write(_) => Happening::Write(unit),
                Action::Promote(_) => promote(None),
                Action::Change(_) => promote(Some(self.target)),
                Action::Sync(_) => Happening::Sync,
                Action::Crash { kept, .. } => Happening::Crash { kept },
                Action::Lose(_) => Happening::Lose,
                Action::Restarted { peer, .. } => Happening::Restarted(peer),
                Action::Append(_) => Happening::Append,
            };
            let before = tables.nodes[key.0 as usize].clone();
            let after = catch_unwind(AssertUnwindSafe(|| before.after(&happening, self.defect)));
            let outcome = after.ok().map(|(next, sent)| {
                let next = tables.node(next);
                (next, sent.into_iter().map(|parcel| tables.parcel(parcel)).collect())
            });
            tables.next.insert(key, outcome.clone());
            outcome
        });
        match outcome {
            Some((next, sent)) => self.apply(state, node, next, &sent),
            None => state.broken = Some(Broken::Asserted),
        }
    }

    fn next(&self, state: &State, action: Action) -> State {
        let mut next = state.clone();
        let (node, unit) = match action {
            Action::Deliver { from, to, parcel } => {
                next.links[from][to].retain(|&other| other != parcel);
                (to, 0)
            }
            Action::Write(node) => {
                next.left.writes -= 1;
                (node, Unit::from(next.left.writes))
            }
            Action::Promote(node) => {
                next.left.promotions -= 1;
                (node, 0)
            }
            Action::Change(node) => {
                next.left.changes -= 1;
                (node, 0)
            }
            Action::Crash { node, .. } => {
                next.left.crashes -= 1;
                (node, 0)
            }
            Action::Lose(node) => {
                next.left.losses -= 1;
                for peer in 0..NODES {
                    next.links[node][peer].clear();
                    next.links[peer][node].clear();
                }
                for other in (0..NODES).filter(|&other| other != node) {
                    self.step(&mut next, other, Action::Restarted { node: other, peer: node as u8 }, 0);
                }
                (node, 0)
            }
            Action::Timer(node, _) | Action::Sync(node) | Action::Append(node) | Action::Restarted { node, .. } => {
                (node, 0)
            }
        };
        self.step(&mut next, node, action, unit);
        // Without a crash to come it makes no difference but time.
        if next.left.crashes == 0 && !self.node(&next, node).is_durable() {
            self.step(&mut next, node, Action::Sync(node), 0);
        }
        if next.broken.is_none() {
            self.look(&mut next);
        }
        next
    }

    /// Keeps account of what is acknowledged, and says what is wrong.
    fn look(&self, state: &mut State) {
        let nodes: [Arc<Node>; NODES] = std::array::from_fn(|node| self.node(state, node));
        for (number, node) in nodes.iter().enumerate() {
            let own = node.transport.persistent();
            let (epoch, version) = (own.history.last(), own.group.version());
            for at in 0..node.credit(self.defect).unwrap_or(0) {
                let unit = node.log.get(0, at).expect("credit does not pass the log");
                match state.ledger.get(at as usize) {
                    Some(known) if known.unit != unit => state.broken = Some(Broken::Lost),
                    Some(_) => {}
                    None => {
                        let node = number as u8;
                        let deposed = |it: &Acknowledged| it.epoch > epoch || it.epoch == epoch && it.node != node;
                        if state.ledger.iter().any(deposed) {
                            state.broken = Some(Broken::Deposed);
                        }
                        state.ledger.push(Acknowledged { unit, node, epoch, version });
                    }
                }
            }
        }
        for (number, node) in nodes.iter().enumerate() {
            let own = node.transport.persistent();
            // A primary of a group that was replaced without its knowing may lack bytes of the newer one.
            let lost = |(at, it): (usize, &Acknowledged)| {
                it.epoch <= own.history.last()
                    && it.version <= own.group.version()
                    && at as u64 >= node.log.oldest(0)
                    && node.log.get(0, at as u64) != Some(it.unit)
            };
            if own.role == Role::Primary && state.ledger.iter().enumerate().any(lost) {
                state.broken = Some(Broken::Lost);
            }
            for other in &nodes[..number] {
                let same = own.history.last() == other.transport.epoch();
                let both = node.log.persisted(0).min(other.log.persisted(0));
                if same && (0..both).any(|at| node.log.get(0, at) != other.log.get(0, at)) {
                    state.broken = Some(Broken::Differ);
                }
            }
        }
    }

    /// Whether there is such a primary.
    fn leads(&self, state: &State, such: impl Fn(&Persistent) -> bool) -> bool {
        (0..NODES).any(|number| {
            let node = self.node(state, number);
            let own = node.transport.persistent();
            own.role == Role::Primary && such(own)
        })
    }
}

pub(super) const SAFE: &str = "acknowledged bytes are in the log of every later primary";
pub(super) const ONE: &str = "one primary acknowledges in an epoch, and none in an earlier one";
pub(super) const AGREE: &str = "logs of one epoch are the same as far as they go";
pub(super) const ASSERTS: &str = "what the transport asserts holds";
/// What must not be found.
pub(super) const NEVER: [&str; 4] = [SAFE, ONE, AGREE, ASSERTS];
pub(super) const ACKNOWLEDGES: &str = "bytes are acknowledged";
pub(super) const PROMOTES: &str = "a promotion succeeds";
pub(super) const CHANGES: &str = "a change of the group succeeds";
pub(super) const SECOND: &str = "two primaries acknowledge, one after the other";

fn promote(target: Option<Group>) -> Happening {
    Happening::Command(Command::Promote { target, epoch: Epoch::ZERO, force: false })
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State { left: self.budget, ..self.start.clone() }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for from in 0..NODES {
            for to in 0..NODES {
                actions.extend(state.links[from][to].iter().map(|&parcel| Action::Deliver { from, to, parcel }));
            }
        }
        for number in 0..NODES {
            let node = self.node(state, number);
            if !node.is_durable() {
                actions.push(Action::Sync(number));
            }
            if node.is_appending() {
                actions.push(Action::Append(number));
            }
            actions.extend(node.timers().into_iter().map(|timer| Action::Timer(number, timer)));
            if state.left.writes > 0 && node.takes_stores(self.defect) {
                actions.push(Action::Write(number));
            }
            if state.left.promotions > 0 {
                actions.push(Action::Promote(number));
            }
            if state.left.changes > 0 && self.target.contains(number as u8) {
                actions.push(Action::Change(number));
            }
            if state.left.crashes > 0 {
                actions.push(Action::Crash { node: number, kept: true });
                if !node.is_durable() {
                    actions.push(Action::Crash { node: number, kept: false });
                }
            }
            if state.left.losses > 0 {
                actions.push(Action::Lose(number));
            }
        }
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let next = self.next(state, action);
        (next.nodes != state.nodes || next.links != state.links || next.broken.is_some()).then_some(next)
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always(SAFE, |_, state: &State| state.broken != Some(Broken::Lost)),
            Property::always(ONE, |_, state: &State| state.broken != Some(Broken::Deposed)),
            Property::always(AGREE, |_, state: &State| state.broken != Some(Broken::Differ)),
            Property::always(ASSERTS, |_, state: &State| state.broken != Some(Broken::Asserted)),
            Property::sometimes(ACKNOWLEDGES, |_, state: &State| !state.ledger.is_empty()),
            Property::sometimes(PROMOTES, |world: &World, state: &State| {
                let first = world.node(&world.start, 0).transport.epoch();
                world.leads(state, |own| own.history.last() > first)
            }),
            Property::sometimes(CHANGES, |world: &World, state: &State| {
                world.leads(state, |own| own.group.same_as(&world.target))
            }),
            Property::sometimes(SECOND, |_, state: &State| {
                state.ledger.iter().any(|it| it.epoch != state.ledger[0].epoch)
            }),
        ]
    }
}
