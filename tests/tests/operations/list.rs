//! Lists of operations, drawn by a seed: few names and many links, renames and removals, so that files have several
//! names, lose them, and come back.

use tidewater_base::rng::Rng;

use crate::operations::model::{BYTES_MAX, Call, Model, Name, Operation, SLOTS};

/// Names of the set, and others.
pub const NAMES: [Name; 5] = ["set/a", "set/b", "set/c", "out/x", "out/y"];
const PROCESSES_MAX: usize = 4;

/// A list, and what is to be before each of its operations and behind the last.
pub struct List {
    pub operations: Vec<Operation>,
    pub models: Vec<Model>,
}

fn draw(rng: &mut Rng, below: usize) -> usize {
    rng.below(below as u64) as usize
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> Option<T> {
    (!from.is_empty()).then(|| from[draw(rng, from.len())])
}

fn len(rng: &mut Rng) -> usize {
    match draw(rng, 8) {
        0 => 4096,
        1 => 1 + draw(rng, 5000),
        _ => 1 + draw(rng, 300),
    }
}

/// Draws what a process may do now. `None`: what was drawn can't be done.
fn draw_call(rng: &mut Rng, model: &Model, process: usize) -> Option<Call> {
    let slots = &model.processes[process];
    let open: Vec<usize> = (0..SLOTS).filter(|slot| slots[*slot].is_some()).collect();
    let written: Vec<usize> = open.iter().copied().filter(|slot| model.may_write(process, *slot)).collect();
    let closed: Vec<usize> = (0..SLOTS).filter(|slot| slots[*slot].is_none()).collect();
    let there: Vec<Name> = model.names.keys().copied().collect();
    let free: Vec<Name> = NAMES.iter().copied().filter(|name| !model.names.contains_key(name)).collect();
    let fits = |end: usize| end <= BYTES_MAX;
    Some(match draw(rng, 100) {
        0..20 => {
            let name = pick(rng, &NAMES)?;
            let mut one_in = |of: usize| draw(rng, of) == 0;
            let (writes_only, appends, cuts, syncs) = (one_in(4), one_in(5), one_in(8), one_in(12));
            Call::Open { slot: pick(rng, &closed)?, name, writes_only, appends, cuts, syncs }
        }
        20..32 => {
            let (slot, len) = (pick(rng, &written)?, len(rng));
            fits(model.next(process, slot) + len).then_some(Call::Write { slot, len })?
        }
        32..50 => {
            let (slot, len) = (pick(rng, &written)?, len(rng));
            let is = model.files[model.opened(process, slot).file].bytes().len();
            let offset = draw(rng, is + 200);
            fits(offset.max(is) + len).then_some(Call::WriteAt { slot, offset, len })?
        }
        50..53 => Call::Cut { slot: pick(rng, &written)?, len: draw(rng, 6000) },
        53..55 => Call::CutName { name: pick(rng, &there)?, len: draw(rng, 6000) },
        55..70 => Call::Sync { slot: pick(rng, &open)?, data: draw(rng, 2) == 0 },
        70..74 => Call::Close { slot: pick(rng, &open)? },
        74..76 => Call::Copy { slot: pick(rng, &open)?, to: pick(rng, &closed)? },
        76..83 => Call::Link { from: pick(rng, &there)?, to: pick(rng, &free)? },
        83..90 => Call::Rename { from: pick(rng, &there)?, to: pick(rng, &NAMES)? },
        90..97 => Call::Remove { name: pick(rng, &there)? },
        97..98 => (model.processes.len() < PROCESSES_MAX).then_some(Call::Fork { child: model.processes.len() })?,
        _ => {
            let slot = pick(rng, &open)?;
            let file = model.opened(process, slot).file;
            let name = model.names.iter().find(|(_, of)| **of == file).map(|(name, _)| *name)?;
            let (is, len) = (model.files[file].bytes().len(), 1 + draw(rng, 300));
            let offset = draw(rng, is + 1);
            fits(offset + len).then_some(Call::Unseen { name, offset, len, slot })?
        }
    })
}

impl List {
    /// Of so many operations.
    pub fn new(seed: u64, count: usize) -> List {
        let mut rng = Rng::new(seed, b"operations");
        let mut list = List { operations: Vec::new(), models: vec![Model::new()] };
        while list.operations.len() < count {
            let model = &list.models[list.operations.len()];
            let process = draw(&mut rng, model.processes.len());
            let Some(call) = draw_call(&mut rng, model, process) else { continue };
            let operation = Operation { process, call };
            let mut next = model.clone();
            next.apply(list.operations.len(), &operation);
            list.operations.push(operation);
            list.models.push(next);
        }
        list
    }

    /// As the program reads it.
    pub fn text(&self) -> String {
        self.operations.iter().map(|operation| format!("{operation}\n")).collect()
    }
}
