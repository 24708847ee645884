//! A file system with a log of its operations, and the rules by which these become durable.

use crate::operation::{Entry, Ino, Operation};
use crate::tree::{Fate, Tree};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Rules of durability: the effect of a sync, and the order in which changes survive a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Rules {
    /// The promises of POSIX and no more: a file's name by fsync of its directory, no order
    ///
    /// `fsync` of a file: its bytes and attributes, not its name; of a folder: the names in it. All else may be lost,
    /// or survive in any order.
    ///
    /// Sources: POSIX.1-2024, `fsync`; Linux, `fsync(2)`: "Calling fsync() does not necessarily ensure that the entry
    /// in the directory containing the file has also reached disk"; Pillai et al., "All File Systems Are Not Created
    /// Equal" (OSDI 2014), table 1: directory operations reordered (btrfs), appends reordered with what follows (ext4,
    /// btrfs), overwrites not atomic beyond a sector; renames atomic in all but ext2.
    #[default]
    Strict,
    /// As ext4 does by default: names and sizes in order, a new file's name by its own fsync
    ///
    /// `data=ordered`, delayed allocation. Names, sizes and attributes go to one journal: they survive in order, and a
    /// sync of anything whose metadata changed makes all metadata before it durable, a new file's own name included. A
    /// rename onto a file that is there comes with the bytes of the renamed file (`auto_da_alloc`). Bytes that a file
    /// grows by survive only with the metadata before them, since the size is metadata, and perhaps later than metadata
    /// behind them (delayed allocation). Bytes are otherwise ordered by nothing.
    ///
    /// Sources: Linux, `Documentation/admin-guide/ext4.rst`: `data=ordered`, `auto_da_alloc`; `fs/ext4/fsync.c`; the
    /// same table of Pillai et al., ext4-ordered.
    Ext4,
}

/// Operations between two trees that are kept.
pub(crate) const STEP: usize = 256;

/// An operation in the log.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub operation: Operation,
    /// Earlier operations without which it can't survive.
    pub needs: Vec<u64>,
    /// It survives only with all metadata before it: its own is in the same journal.
    pub is_journaled: bool,
    /// Number of the operation that made it durable.
    pub durable: Option<u64>,
    /// A sync of it failed, and the system will not write it again.
    pub dropped: bool,
}

/// A file system in memory: what is seen now, and the log of operations.
#[derive(Debug, Default)]
pub struct Volume {
    rules: Rules,
    seen: Tree,
    /// The tree that the log begins with.
    pub(crate) base: Tree,
    /// Number of the first operation in the log.
    pub(crate) first: u64,
    pub(crate) log: Vec<Logged>,
    /// The tree after each [`STEP`] operations, from the base on; none before [`Volume::prepare`].
    pub(crate) steps: Vec<Tree>,
    next: Ino,
    /// Bytes that the log holds.
    logged: u64,
    /// Numbers of operations that became durable since they were last taken.
    newly: Vec<u64>,
    /// Changes of bytes and sizes, of attributes, and of names by folder, that no sync covered yet.
    bytes: HashMap<Ino, Vec<u64>>,
    attributes: HashMap<Ino, Vec<u64>>,
    names: HashMap<Ino, Vec<u64>>,
    /// The last change of each name, and the last change of each file's size.
    named: HashMap<Entry, u64>,
    resized: HashMap<Ino, u64>,
    /// The last operation that took a name from each file.
    unnamed: HashMap<Ino, u64>,
    /// The journal's open transaction: metadata, whose it is, and whose of it `fdatasync` waits for.
    journal: Vec<u64>,
    changed: HashSet<Ino>,
    changed_data: HashSet<Ino>,
}

impl Volume {
    /// An empty file system.
    pub fn new(rules: Rules) -> Volume {
        Volume::of(Tree::default(), rules)
    }

    /// A file system that begins with `tree`, all of it durable.
    pub fn of(tree: Tree, rules: Rules) -> Volume {
        Volume { rules, next: tree.last().saturating_add(1), base: tree.clone(), seen: tree, ..Volume::default() }
    }

    /// The rules by which operations become durable.
    pub fn rules(&self) -> Rules {
        self.rules
    }

    /// The tree as programs see it now.
    pub fn seen(&self) -> &Tree {
        &self.seen
    }

    /// Number that the next operation gets: a cut there is a cut now.
    pub fn end(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// The tree that the log begins with.
    pub fn base(&self) -> &Tree {
        &self.base
    }

    /// Bytes that the log holds, about.
    pub fn logged(&self) -> u64 {
        self.logged
    }

    /// The operations in the log, each with its number.
    pub fn operations(&self) -> impl Iterator<Item = (u64, &Operation)> {
        (self.first..).zip(self.log.iter().map(|logged| &logged.operation))
    }

    /// The operation of this number, if the log has it.
    pub fn operation(&self, number: u64) -> Option<&Operation> {
        self.logged_at(number).map(|logged| &logged.operation)
    }

    pub(crate) fn logged_at(&self, number: u64) -> Option<&Logged> {
        self.log.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn logged_at_mut(&mut self, number: u64) -> Option<&mut Logged> {
        self.log.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// A number for a new file or folder.
    pub fn new_ino(&mut self) -> Ino {
        self.next += 1;
        self.next - 1
    }

    /// Forgets a file without a name, once no program has it open.
    pub fn forget(&mut self, ino: Ino) {
        self.seen.forget(ino);
    }

    /// Carries out an operation, which gets the next number. It must be one that [`Volume::seen`] allows: whether names
    /// are there or in the way is for the caller to check.
    pub fn record(&mut self, operation: Operation) -> u64 {
        let number = self.end();
        let needs = if operation.is_change() { self.enlist(number, &operation) } else { Vec::new() };
        let is_journaled = self.rules == Rules::Ext4 && self.has_metadata(&operation);
        self.seen.apply(&operation, Fate::Kept);
        if let Operation::Create { ino, .. } = operation {
            self.next = self.next.max(ino.saturating_add(1));
        }
        self.logged += operation.weight();
        match &operation {
            Operation::Sync { ino, data_only } => self.sync(*ino, *data_only, number),
            Operation::SyncFailed { ino } => self.drop_bytes(*ino),
            Operation::WrittenThrough { write } => self.written_through(*write, number),
            Operation::SyncAll => {
                self.commit();
                self.settle((self.first..number).collect(), number);
            }
            _ => {}
        }
        self.log.push(Logged { operation, needs, is_journaled, durable: None, dropped: false });
        number
    }

    /// Enters a change in the lists of what is not durable, and returns what it needs.
    fn enlist(&mut self, number: u64, change: &Operation) -> Vec<u64> {
        let mut needs = Vec::new();
        for name in change.names() {
            needs.extend(self.named.insert(name.clone(), number));
            self.names.entry(name.folder).or_default().push(number);
            // Names are the data of a folder: `fdatasync` covers them.
            self.changed_data.insert(name.folder);
        }
        match change {
            // What fills a file that was cut lies in blocks that it got after the cut.
            Operation::Write { ino, offset, data } => {
                needs.extend(self.resized.get(ino));
                self.bytes.entry(*ino).or_default().push(number);
                let size = self.seen.node(*ino).and_then(|node| node.bytes()).map_or(0, crate::Content::size);
                if offset + data.len() as u64 > size {
                    self.changed_data.insert(*ino);
                }
            }
            Operation::Resize { ino, .. } | Operation::Zero { ino, .. } => {
                needs.extend(self.resized.insert(*ino, number));
                self.bytes.entry(*ino).or_default().push(number);
                self.changed_data.insert(*ino);
            }
            Operation::Attributes { ino, .. } => {
                self.attributes.entry(*ino).or_default().push(number);
                self.changed.insert(*ino);
            }
            Operation::Rename { from, to, exchange } => {
                let (moved, other) = (self.seen.find(from), self.seen.find(to));
                self.changed.extend(moved.into_iter().chain(other));
                self.unnamed.extend(other.filter(|_| !exchange).map(|other| (other, number)));
                if self.rules == Rules::Ext4 && other.is_some() && !exchange {
                    needs.extend(moved.and_then(|moved| self.bytes.get(&moved)).into_iter().flatten());
                }
            }
            Operation::Create { ino, .. } => _ = self.changed_data.insert(*ino),
            Operation::Link { ino, .. } => _ = self.changed.insert(*ino),
            Operation::Remove { at } => {
                let gone = self.seen.find(at);
                self.changed.extend(gone);
                self.unnamed.extend(gone.map(|gone| (gone, number)));
            }
            _ => {}
        }
        if change.is_metadata() {
            self.journal.push(number);
        }
        needs.retain(|need| self.is_pending(*need));
        needs
    }

    /// Whether a change is one of metadata, or of bytes of a file whose size the journal has still to get.
    fn has_metadata(&self, change: &Operation) -> bool {
        change.is_metadata() || matches!(change, Operation::Write { ino, .. } if self.changed_data.contains(ino))
    }

    fn is_pending(&self, number: u64) -> bool {
        self.logged_at(number).is_some_and(|logged| logged.durable.is_none())
    }

    fn sync(&mut self, ino: Ino, data_only: bool, number: u64) {
        let mut durable = self.bytes.remove(&ino).unwrap_or_default();
        match self.rules {
            Rules::Strict => {
                durable.extend(self.names.remove(&ino).unwrap_or_default());
                if !data_only {
                    durable.extend(self.attributes.remove(&ino).unwrap_or_default());
                }
            }
            Rules::Ext4 if self.changed_data.contains(&ino) || !data_only && self.changed.contains(&ino) => {
                durable.append(&mut self.commit());
            }
            Rules::Ext4 => {}
        }
        self.settle(durable, number);
    }

    /// A write with O_DSYNC commits the journal where `fdatasync` does.
    fn written_through(&mut self, write: u64, number: u64) {
        let mut durable = vec![write];
        if let (Rules::Ext4, Some(Operation::Write { ino, .. })) = (self.rules, self.operation(write))
            && self.changed_data.contains(ino)
        {
            durable.append(&mut self.commit());
        }
        self.settle(durable, number);
    }

    /// Ends the journal's open transaction, and returns the metadata in it.
    fn commit(&mut self) -> Vec<u64> {
        self.changed.clear();
        self.changed_data.clear();
        std::mem::take(&mut self.journal)
    }

    /// Bytes of a file that a failed sync left are never written.
    fn drop_bytes(&mut self, ino: Ino) {
        for number in self.bytes.remove(&ino).unwrap_or_default() {
            if let Some(logged) = self.logged_at_mut(number) {
                logged.dropped = logged.durable.is_none();
            }
        }
    }

    /// Marks operations as durable, with all that they need.
    fn settle(&mut self, mut durable: Vec<u64>, by: u64) {
        while let Some(number) = durable.pop() {
            let Some(logged) = self.logged_at_mut(number) else { continue };
            if logged.durable.is_none() && !logged.dropped && logged.operation.is_change() {
                logged.durable = Some(by);
                durable.extend(&logged.needs);
                self.newly.push(number);
            }
        }
    }

    /// Changes that have become durable since this was last asked, in their order.
    pub fn take_durable(&mut self) -> Vec<(u64, &Operation)> {
        let mut newly = std::mem::take(&mut self.newly);
        newly.sort_unstable();
        let this = &*self;
        newly.into_iter().filter_map(|number| Some((number, this.operation(number)?))).collect()
    }

    /// Keeps trees along the log, from which [`Volume::build`] begins. Called once the log is complete.
    pub fn prepare(&mut self) {
        let mut tree = self.base.clone();
        self.steps.clear();
        for logged in self.log.chunks(STEP) {
            self.steps.push(tree.clone());
            logged.iter().for_each(|logged| tree.apply(&logged.operation, Fate::Kept));
        }
    }

    /// Shortens the log by its durable beginning, which no cut can lose. Bytes of a file that is gone for good count as
    /// durable.
    pub fn fold(&mut self) {
        let is_gone = |ino: &Ino| {
            let by = self.unnamed.get(ino);
            self.seen.node(*ino).is_none() && by.is_none_or(|by| !self.is_pending(*by))
        };
        let is_moot = |operation: &Operation| match operation {
            Operation::Write { ino, .. }
            | Operation::Resize { ino, .. }
            | Operation::Zero { ino, .. }
            | Operation::Attributes { ino, .. } => is_gone(ino),
            other => !other.is_change(),
        };
        let is_settled = |logged: &&Logged| logged.durable.is_some() || logged.dropped || is_moot(&logged.operation);
        let count = self.log.iter().take_while(is_settled).count();
        for logged in self.log.drain(..count) {
            self.logged -= logged.operation.weight();
            self.base.apply(&logged.operation, if logged.dropped { Fate::Lost } else { Fate::Kept });
        }
        self.first += count as u64;
        self.steps.clear();
        if self.log.is_empty() {
            self.base.forget_all_but(&self.seen);
            for list in [&mut self.bytes, &mut self.attributes, &mut self.names] {
                list.clear();
            }
            self.named.clear();
            self.resized.clear();
            self.unnamed.clear();
            self.journal.clear();
            self.changed.clear();
            self.changed_data.clear();
        }
    }

    /// The ids that were acknowledged before a cut, in their order.
    pub fn acknowledged(&self, cut: u64) -> impl Iterator<Item = &str> {
        self.operations().take_while(move |(number, _)| *number < cut).filter_map(|(_, operation)| match operation {
            Operation::Acknowledge { id } => Some(id.as_str()),
            _ => None,
        })
    }

    /// Number of the operation that made a change durable; `None`: none did.
    pub fn durable_by(&self, number: u64) -> Option<u64> {
        self.logged_at(number)?.durable
    }

    /// A line on an operation, with paths as they were then.
    pub fn described(&self, number: u64) -> String {
        let Some(operation) = self.operation(number) else { return format!("#{number}") };
        let mut tree = self.base.clone();
        // A file that the operation makes has its name only behind it.
        for logged in self.log.iter().take((number - self.first) as usize) {
            if !matches!(logged.operation, Operation::Write { .. }) {
                tree.apply(&logged.operation, Fate::Kept);
            }
        }
        format!("#{number} {}", operation.described(|ino| tree.path(ino)))
    }
}
