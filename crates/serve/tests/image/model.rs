//! What a drive may hold: block by block, now and after a crash.

use crate::image::log::LogModel;
use std::collections::{BTreeMap, BTreeSet};
use tidewater_base::Rng;

/// Bytes of a block.
pub const BLOCK: usize = 512;
/// The identity of a block of zeroes.
pub const ZEROES: u64 = 0;

/// The content of a block that a change with this identity left.
pub fn fill(id: u64, block: u64, into: &mut [u8]) {
    if id == ZEROES {
        return into.fill(0);
    }
    let mut rng = Rng::new(id, &block.to_le_bytes());
    for bytes in into[16..].chunks_mut(8) {
        let random = rng.next_u64().to_le_bytes();
        bytes.copy_from_slice(&random[..bytes.len()]);
    }
    into[..8].copy_from_slice(&id.to_le_bytes());
    into[8..16].copy_from_slice(&block.to_le_bytes());
}

/// Which change left this content; `None`: none did.
pub fn identify(block: u64, bytes: &[u8]) -> Option<u64> {
    let id = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let mut expected = [0; BLOCK];
    fill(id, block, &mut expected);
    (expected == bytes).then_some(id)
}

#[derive(Clone, Debug)]
struct Change {
    id: u64,
    command: u64,
    completed: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct State {
    durable: u64,
    /// What came later, oldest first.
    after: Vec<Change>,
}

/// The truth about a drive. No two commands that are under way touch one block.
#[derive(Clone, Debug)]
pub struct Model {
    blocks: Vec<State>,
    /// Blocks that have changes which are not durable.
    dirty: BTreeSet<u64>,
    step: u64,
    flushes: BTreeMap<u64, u64>,
    /// The log of the fast side.
    pub log: LogModel,
}

impl Model {
    pub fn new(blocks: u64) -> Model {
        let blocks = vec![State::default(); blocks as usize];
        Model { blocks, dirty: BTreeSet::new(), step: 0, flushes: BTreeMap::new(), log: LogModel::default() }
    }

    /// What a crash has left is durable now.
    pub fn after_crash(found: &[u64]) -> Model {
        let blocks = found.iter().map(|&durable| State { durable, after: Vec::new() }).collect();
        Model { blocks, dirty: BTreeSet::new(), step: 0, flushes: BTreeMap::new(), log: LogModel::default() }
    }

    pub fn blocks(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// A command begins that leaves `id` in these blocks.
    pub fn begin(&mut self, command: u64, blocks: std::ops::Range<u64>, id: u64) {
        for block in blocks {
            self.blocks[block as usize].after.push(Change { id, command, completed: None });
            self.dirty.insert(block);
        }
    }

    /// It has completed.
    pub fn complete(&mut self, command: u64, blocks: std::ops::Range<u64>, durable: bool) {
        self.step += 1;
        for block in blocks {
            let state = &mut self.blocks[block as usize];
            let Some(at) = state.after.iter().position(|change| change.command == command) else { continue };
            state.after[at].completed = Some(self.step);
            if durable {
                state.durable = state.after[at].id;
                state.after.drain(..=at);
            }
        }
    }

    pub fn begin_flush(&mut self, command: u64) {
        self.step += 1;
        self.flushes.insert(command, self.step);
    }

    /// A flush has completed: what had completed before it began is durable.
    pub fn complete_flush(&mut self, command: u64) {
        let began = self.flushes.remove(&command).expect("it began");
        self.log.complete_flush(command);
        let dirty: Vec<u64> = self.dirty.iter().copied().collect();
        for block in dirty {
            let state = &mut self.blocks[block as usize];
            if let Some(last) = state.after.iter().rposition(|c| c.completed.is_some_and(|step| step < began)) {
                state.durable = state.after[last].id;
                state.after.drain(..=last);
            }
            if state.after.is_empty() {
                self.dirty.remove(&block);
            }
        }
    }

    /// What a read finds, when nothing that is under way touches the block.
    pub fn now(&self, block: u64) -> u64 {
        let state = &self.blocks[block as usize];
        state.after.last().map_or(state.durable, |change| change.id)
    }

    /// Whether a block may hold this after a crash.
    pub fn may_hold(&self, block: u64, id: u64) -> bool {
        let state = &self.blocks[block as usize];
        state.durable == id || state.after.iter().any(|change| change.id == id)
    }

    /// For messages.
    pub fn describe(&self, block: u64) -> String {
        format!("{:?}", self.blocks[block as usize])
    }

    /// Blocks with changes that are not durable.
    pub fn unflushed(&self) -> usize {
        self.dirty.len()
    }
}
