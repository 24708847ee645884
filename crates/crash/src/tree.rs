//! Files and folders at one moment.

use crate::content::Content;
use crate::operation::{Entry, FILE, FOLDER, Ino, Operation, ROOT, SYMLINK, TYPE};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// Bytes of the target of a symbolic link at most (`PATH_MAX`).
const TARGET_MAX: usize = 4096;

/// A file, a folder, a symbolic link or a special file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Type and permissions, as `st_mode` has them.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file.
    pub rdev: u32,
    /// Names that it has.
    pub links: u32,
    /// Its bytes, or its entries.
    pub body: Body,
}

/// Bytes or entries of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Bytes of a file, or the target of a symbolic link.
    Bytes(Content),
    /// Entries of a folder.
    Folder(BTreeMap<Vec<u8>, Ino>),
}

impl Node {
    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        matches!(self.body, Body::Folder(_))
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & TYPE == FILE
    }

    /// Its bytes; `None`: it is a folder.
    pub fn bytes(&self) -> Option<&Content> {
        match &self.body {
            Body::Bytes(content) => Some(content),
            Body::Folder(_) => None,
        }
    }

    /// Target of a symbolic link.
    pub fn target(&self) -> Vec<u8> {
        self.bytes().map_or_else(Vec::new, |content| content.read(0, TARGET_MAX))
    }

    /// Entries of a folder; of other nodes none.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], Ino)> {
        let entries = match &self.body {
            Body::Folder(entries) => Some(entries),
            Body::Bytes(_) => None,
        };
        entries.into_iter().flatten().map(|(name, ino)| (name.as_slice(), *ino))
    }
}

/// How much of an operation takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate<'a> {
    /// All of it.
    Kept,
    /// Nothing.
    Lost,
    /// A write without these of its pieces, at boundaries of so many bytes.
    Torn(u64, &'a [u32]),
}

/// Files and folders. A copy shares what is not changed.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<Ino, Arc<Node>>,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::of(0, 0)
    }
}

impl Tree {
    /// An empty tree whose topmost folder is this user's and group's.
    pub fn of(uid: u32, gid: u32) -> Tree {
        let body = Body::Folder(BTreeMap::new());
        let root = Node { mode: FOLDER | 0o755, uid, gid, rdev: 0, links: 1, body };
        Tree { nodes: BTreeMap::from([(ROOT, Arc::new(root))]) }
    }

    /// The node of this number.
    pub fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino).map(Arc::as_ref)
    }

    /// The node that a name stands for.
    pub fn find(&self, at: &Entry) -> Option<Ino> {
        match &self.node(at.folder)?.body {
            Body::Folder(entries) => entries.get(&at.name).copied(),
            Body::Bytes(_) => None,
        }
    }

    /// The highest number that is in use.
    pub fn last(&self) -> Ino {
        self.nodes.last_key_value().map_or(ROOT, |(ino, _)| *ino)
    }

    fn edit(&mut self, ino: Ino) -> Option<&mut Node> {
        self.nodes.get_mut(&ino).map(Arc::make_mut)
    }

    fn content(&mut self, ino: Ino) -> Option<&mut Content> {
        match &mut self.edit(ino)?.body {
            Body::Bytes(content) => Some(content),
            Body::Folder(_) => None,
        }
    }

    /// Carries out an operation, as far as `fate` says. Of a lost creation the node is there, without a name: a later
    /// operation that survives may give it one. What concerns a node that is not there does nothing.
    pub fn apply(&mut self, operation: &Operation, fate: Fate<'_>) {
        if let Operation::Create { ino, mode, uid, gid, rdev, target, .. } = operation {
            let mut content = Content::default();
            content.write(0, target);
            let is_folder = mode & TYPE == FOLDER;
            let body = if is_folder { Body::Folder(BTreeMap::new()) } else { Body::Bytes(content) };
            let node = Node { mode: *mode, uid: *uid, gid: *gid, rdev: *rdev, links: 0, body };
            self.nodes.entry(*ino).or_insert_with(|| Arc::new(node));
        }
        if fate == Fate::Lost {
            return;
        }
        match operation {
            Operation::Create { at, ino, .. } | Operation::Link { ino, at } => self.set(at, Some(*ino)),
            Operation::Remove { at } => self.set(at, None),
            Operation::Rename { from, to, exchange } => self.rename(from, to, *exchange),
            Operation::Write { ino, offset, data } => {
                let Some(content) = self.content(*ino) else { return };
                match fate {
                    Fate::Torn(grain, lost) => write_torn(content, *offset, data, grain, lost),
                    _ => content.write(*offset, data),
                }
            }
            Operation::Resize { ino, size } => {
                self.content(*ino).into_iter().for_each(|content| content.resize(*size));
            }
            Operation::Zero { ino, offset, length } => {
                self.content(*ino).into_iter().for_each(|content| content.zero(*offset, *length));
            }
            Operation::Attributes { ino, mode, uid, gid } => {
                if let Some(node) = self.edit(*ino) {
                    node.mode = mode.map_or(node.mode, |mode| node.mode & TYPE | mode & !TYPE);
                    node.uid = uid.unwrap_or(node.uid);
                    node.gid = gid.unwrap_or(node.gid);
                }
            }
            _ => {}
        }
    }

    /// Lets a name stand for a node, or for none.
    fn set(&mut self, at: &Entry, ino: Option<Ino>) {
        let is_there = ino.is_none_or(|ino| self.nodes.contains_key(&ino));
        let Some(Body::Folder(entries)) = self.edit(at.folder).filter(|_| is_there).map(|node| &mut node.body) else {
            return;
        };
        let before = match ino {
            Some(ino) => entries.insert(at.name.clone(), ino),
            None => entries.remove(&at.name),
        };
        if let Some(node) = before.and_then(|before| self.edit(before)) {
            node.links = node.links.saturating_sub(1);
        }
        if let Some(node) = ino.and_then(|ino| self.edit(ino)) {
            node.links += 1;
        }
    }

    fn rename(&mut self, from: &Entry, to: &Entry, exchange: bool) {
        let (Some(moved), other) = (self.find(from), self.find(to)) else { return };
        // Where an earlier move of a folder was lost, this one would make a circle: no file system leaves that.
        let is_circle = self.is_below(to.folder, moved) || other.is_some_and(|it| self.is_below(from.folder, it));
        if is_circle || self.node(to.folder).is_none_or(|folder| !folder.is_folder()) || exchange && other.is_none() {
            return;
        }
        self.set(from, other.filter(|_| exchange));
        self.set(to, Some(moved));
    }

    /// Whether `ino` is `top`, or lies below it.
    fn is_below(&self, ino: Ino, top: Ino) -> bool {
        let (mut entered, mut next) = (HashSet::new(), vec![top]);
        while let Some(at) = next.pop() {
            if at == ino {
                return true;
            }
            if let Some(node) = self.node(at).filter(|node| node.is_folder() && entered.insert(at)) {
                next.extend(node.entries().map(|(_, inner)| inner));
            }
        }
        false
    }

    /// Forgets a node that has no name.
    pub fn forget(&mut self, ino: Ino) {
        if ino != ROOT && self.node(ino).is_some_and(|node| node.links == 0) {
            self.nodes.remove(&ino);
        }
    }

    /// Forgets nodes that `other` has forgotten.
    pub(crate) fn forget_all_but(&mut self, other: &Tree) {
        self.nodes.retain(|ino, _| other.nodes.contains_key(ino));
    }

    /// Forgets every node that no path leads to, as a check of the file system after the cut does.
    pub fn prune(&mut self) {
        let reached: HashSet<Ino> = self.walk().into_iter().map(|(_, _, ino)| ino).chain([ROOT]).collect();
        self.nodes.retain(|ino, _| reached.contains(ino));
    }

    /// Every name, folders before what is in them: its folder, the name, the node. A folder is entered once.
    pub fn walk(&self) -> Vec<(Ino, &[u8], Ino)> {
        let (mut found, mut entered, mut next) = (Vec::new(), HashSet::new(), vec![ROOT]);
        while let Some(folder) = next.pop() {
            if let Some(node) = self.node(folder).filter(|_| entered.insert(folder)) {
                found.extend(node.entries().map(|(name, ino)| (folder, name, ino)));
                next.extend(
                    node.entries().map(|(_, ino)| ino).filter(|ino| self.node(*ino).is_some_and(Node::is_folder)),
                );
            }
        }
        found
    }

    /// Path of a node below the topmost folder, which is `.`; of a node without a name its number.
    pub fn path(&self, ino: Ino) -> String {
        let mut names: HashMap<Ino, (Ino, &[u8])> = HashMap::new();
        for (folder, name, ino) in self.walk() {
            names.entry(ino).or_insert((folder, name));
        }
        let (mut parts, mut at) = (Vec::new(), ino);
        while let Some((folder, name)) = names.remove(&at) {
            parts.push(String::from_utf8_lossy(name));
            at = folder;
        }
        match (ino, at) {
            (ROOT, _) => ".".into(),
            (_, ROOT) => parts.into_iter().rev().collect::<Vec<_>>().join("/"),
            _ => format!("(file {ino})"),
        }
    }

    /// A number that trees have in common if they hold the same.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (folder, name, ino) in self.walk() {
            (folder, name, ino).hash(&mut hasher);
        }
        self.nodes.hash(&mut hasher);
        hasher.finish()
    }

    /// Operations that make this tree from an empty one.
    pub fn operations(&self) -> Vec<Operation> {
        let (mut found, mut made) = (Vec::new(), HashSet::new());
        for (folder, name, ino) in self.walk() {
            let at = Entry::new(folder, name);
            let Some(node) = self.node(ino) else { continue };
            if !made.insert(ino) {
                found.push(Operation::Link { ino, at });
                continue;
            }
            let is_link = node.mode & TYPE == SYMLINK;
            let target = if is_link { node.target() } else { Vec::new() };
            let (mode, uid, gid, rdev) = (node.mode, node.uid, node.gid, node.rdev);
            found.push(Operation::Create { at, ino, mode, uid, gid, rdev, target });
            let Some(content) = node.bytes().filter(|content| !is_link && content.size() > 0) else { continue };
            let pages = content.pages();
            found.extend(pages.map(|(offset, data)| Operation::Write { ino, offset, data: data.to_vec() }));
            found.push(Operation::Resize { ino, size: content.size() });
        }
        if let Some(root) = self.node(ROOT) {
            let (mode, uid, gid) = (Some(root.mode), Some(root.uid), Some(root.gid));
            found.push(Operation::Attributes { ino: ROOT, mode, uid, gid });
        }
        found
    }
}

/// Writes the pieces that are not lost. Holes between them are zeroes.
fn write_torn(content: &mut Content, offset: u64, data: &[u8], grain: u64, lost: &[u32]) {
    let mut at = offset;
    let mut piece = 0;
    while at < offset + data.len() as u64 {
        let end = ((at / grain + 1) * grain).min(offset + data.len() as u64);
        if !lost.contains(&piece) {
            content.write(at, &data[(at - offset) as usize..(end - offset) as usize]);
        }
        (at, piece) = (end, piece + 1);
    }
}
