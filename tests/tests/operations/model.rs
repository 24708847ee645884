//! Expected files after a list of operations: names, their files, and contents over time.

use std::collections::BTreeMap;
use std::fmt;

/// A file has no more bytes than this.
pub const BYTES_MAX: usize = 24 << 10;

/// A name, in the folder `set`, which is on the log, or in `out`, which is not.
pub type Name = &'static str;

/// An operation of one process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Call {
    Open {
        slot: usize,
        name: Name,
        writes_only: bool,
        appends: bool,
        cuts: bool,
        syncs: bool,
    },
    Write {
        slot: usize,
        len: usize,
    },
    WriteAt {
        slot: usize,
        offset: usize,
        len: usize,
    },
    Cut {
        slot: usize,
        len: usize,
    },
    CutName {
        name: Name,
        len: usize,
    },
    Sync {
        slot: usize,
        data: bool,
    },
    Close {
        slot: usize,
    },
    Copy {
        slot: usize,
        to: usize,
    },
    Link {
        from: Name,
        to: Name,
    },
    Rename {
        from: Name,
        to: Name,
    },
    Remove {
        name: Name,
    },
    Fork {
        child: usize,
    },
    /// By a process that the log knows nothing of; then a sync by a descriptor.
    Unseen {
        name: Name,
        offset: usize,
        len: usize,
        slot: usize,
    },
}

/// An operation: which process, and what.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    pub process: usize,
    pub call: Call,
}

/// As `tests/programs/operations.c` reads it.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.process)?;
        match &self.call {
            Call::Open { slot, name, writes_only, appends, cuts, syncs } => {
                let letters = [(*writes_only, 'w'), (*appends, 'a'), (*cuts, 't'), (*syncs, 'd')];
                let flags: String = letters.iter().filter(|(is, _)| *is).map(|(_, letter)| letter).collect();
                write!(f, "open {slot} {name} -{flags}")
            }
            Call::Write { slot, len } => write!(f, "write {slot} {len}"),
            Call::WriteAt { slot, offset, len } => write!(f, "pwrite {slot} {offset} {len}"),
            Call::Cut { slot, len } => write!(f, "cut {slot} {len}"),
            Call::CutName { name, len } => write!(f, "cut_name {name} {len}"),
            Call::Sync { slot, data } => write!(f, "sync {slot} {}", u8::from(*data)),
            Call::Close { slot } => write!(f, "close {slot}"),
            Call::Copy { slot, to } => write!(f, "dup {slot} {to}"),
            Call::Link { from, to } => write!(f, "link {from} {to}"),
            Call::Rename { from, to } => write!(f, "rename {from} {to}"),
            Call::Remove { name } => write!(f, "unlink {name}"),
            Call::Fork { child } => write!(f, "fork {child}"),
            Call::Unseen { name, offset, len, slot } => write!(f, "unseen {name} {offset} {len} {slot}"),
        }
    }
}

/// A file, by whatever names.
#[derive(Clone, Default, Debug)]
pub struct File {
    /// Its contents, each with the operation after which it held it; the last one is the present one.
    pub states: Vec<(usize, Vec<u8>)>,
    /// The last operation that synced it.
    pub synced: Option<usize>,
}

impl File {
    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        self.states.last().map_or(&[], |(_, bytes)| bytes)
    }

    /// Whether it may hold these bytes after a loss of power: what it held when it was synced last, or later. Of a
    /// write that no sync came behind a beginning may be there, as on any disk: large ones are several records.
    pub fn may_be(&self, is: &[u8]) -> bool {
        let Some(synced) = self.synced else { return true };
        let first = self.states.iter().rposition(|(after, _)| *after <= synced).unwrap_or(0);
        let begun = |two: &[(usize, Vec<u8>)]| {
            let (old, new) = (&two[0].1, &two[1].1);
            let at = is.iter().zip(new).take_while(|(one, other)| one == other).count();
            new.len() >= old.len() && is.len() == at.max(old.len()) && is[at..] == old[at.min(old.len())..]
        };
        self.states[first..].iter().any(|(_, bytes)| bytes == is) || self.states[first..].windows(2).any(begun)
    }
}

/// An open file description (open(2)), which copies of a descriptor share.
#[derive(Clone, Debug)]
pub struct Opened {
    pub file: usize,
    offset: usize,
    appends: bool,
}

/// Descriptors that a process has.
pub const SLOTS: usize = 6;

/// All of it.
#[derive(Clone, Default, Debug)]
pub struct Model {
    pub files: Vec<File>,
    pub names: BTreeMap<Name, usize>,
    opened: Vec<Opened>,
    /// For each process its descriptors.
    pub processes: Vec<[Option<usize>; SLOTS]>,
    /// Which of them are known to be of a file in the set, when it is in it. One from before another process brought
    /// the file there is not: what is written by it is found at the next sync or trim, and until then a crash may undo
    /// it (ADR 34).
    known: Vec<[bool; SLOTS]>,
}

/// The bytes that the operation of a number writes.
fn content(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at * 7 + at / 251) as u8).collect()
}

impl Model {
    pub fn new() -> Model {
        Model { processes: vec![[None; SLOTS]], known: vec![[false; SLOTS]], ..Model::default() }
    }

    /// The open file of a descriptor.
    pub fn opened(&self, process: usize, slot: usize) -> &Opened {
        &self.opened[self.processes[process][slot].expect("lists use descriptors that are open")]
    }

    fn is_in_set(&self, file: usize) -> bool {
        self.names.iter().any(|(name, of)| *of == file && name.starts_with("set/"))
    }

    /// Whether what is written by a descriptor is on the log, if its file is in the set.
    pub fn may_write(&self, process: usize, slot: usize) -> bool {
        self.known[process][slot] || !self.is_in_set(self.opened(process, slot).file)
    }

    /// A file gets a name, by a process.
    fn name(&mut self, process: usize, file: usize, name: Name) {
        if name.starts_with("set/") && !self.is_in_set(file) {
            for slot in 0..SLOTS {
                let is_of = self.processes[process][slot].is_some_and(|which| self.opened[which].file == file);
                self.known[process][slot] |= is_of;
            }
        }
        self.names.insert(name, file);
    }

    fn put(&mut self, number: usize, file: usize, offset: usize, len: usize) {
        let mut bytes = self.files[file].bytes().to_vec();
        bytes.resize(bytes.len().max(offset + len), 0);
        bytes[offset..offset + len].copy_from_slice(&content(number, len));
        self.files[file].states.push((number, bytes));
    }

    fn cut(&mut self, number: usize, file: usize, len: usize) {
        let mut bytes = self.files[file].bytes().to_vec();
        bytes.resize(len, 0);
        self.files[file].states.push((number, bytes));
    }

    /// The operation of a number is done.
    pub fn apply(&mut self, number: usize, operation: &Operation) {
        let process = operation.process;
        match operation.call {
            Call::Open { slot, name, appends, cuts, .. } => {
                let next = self.files.len();
                let file = *self.names.entry(name).or_insert(next);
                if file == next {
                    self.files.push(File { states: vec![(number, Vec::new())], synced: None });
                }
                if cuts {
                    self.cut(number, file, 0);
                }
                self.opened.push(Opened { file, offset: 0, appends });
                self.processes[process][slot] = Some(self.opened.len() - 1);
                self.known[process][slot] = self.is_in_set(file);
            }
            Call::Write { slot, len } => {
                let is = self.opened(process, slot).clone();
                let from = if is.appends { self.files[is.file].bytes().len() } else { is.offset };
                self.put(number, is.file, from, len);
                let which = self.processes[process][slot].expect("the slot is open");
                self.opened[which].offset = from + len;
            }
            Call::WriteAt { slot, offset, len } => {
                let is = self.opened(process, slot).clone();
                // As Linux has it (pwrite(2), bugs): one that appends does so here as well.
                let from = if is.appends { self.files[is.file].bytes().len() } else { offset };
                self.put(number, is.file, from, len);
            }
            Call::Cut { slot, len } => self.cut(number, self.opened(process, slot).file, len),
            Call::CutName { name, len } => self.cut(number, self.names[name], len),
            Call::Sync { slot, .. } => {
                let file = self.opened(process, slot).file;
                self.files[file].synced = Some(number);
            }
            Call::Close { slot } => self.processes[process][slot] = None,
            Call::Copy { slot, to } => {
                self.processes[process][to] = self.processes[process][slot];
                self.known[process][to] = self.known[process][slot];
            }
            Call::Link { from, to } => self.name(process, self.names[from], to),
            Call::Rename { from, to } => {
                if self.names[from] != self.names.get(to).copied().unwrap_or(usize::MAX) {
                    self.name(process, self.names[from], to);
                    self.names.remove(from);
                }
            }
            Call::Remove { name } => drop(self.names.remove(name)),
            Call::Fork { child } => {
                assert_eq!(child, self.processes.len(), "processes are numbered in order");
                self.processes.push(self.processes[process]);
                self.known.push(self.known[process]);
            }
            Call::Unseen { name, offset, len, slot } => {
                self.put(number, self.names[name], offset, len);
                let file = self.opened(process, slot).file;
                self.files[file].synced = Some(number);
            }
        }
    }

    /// Where a descriptor of these writes next.
    pub fn next(&self, process: usize, slot: usize) -> usize {
        let is = self.opened(process, slot);
        if is.appends { self.files[is.file].bytes().len() } else { is.offset }
    }
}

#[test]
fn what_a_loss_of_power_may_leave_is_from_the_last_sync_on() {
    let states =
        [b"".to_vec(), b"abcdef".to_vec(), b"aBCDefgh".to_vec(), b"aB".to_vec()].into_iter().enumerate().collect();
    let file = File { states, synced: Some(1) };
    for may in ["abcdef", "aBcdef", "aBCDef", "aBCDefg", "aBCDefgh", "aB"] {
        assert!(file.may_be(may.as_bytes()), "{may}");
    }
    for may_not in ["", "abc", "abCdef", "abcdefgh", "aBCD", "aBCDefgx", "a"] {
        assert!(!file.may_be(may_not.as_bytes()), "{may_not}");
    }
    assert!(File { synced: None, ..file }.may_be(b"x"), "it was never synced");
}
