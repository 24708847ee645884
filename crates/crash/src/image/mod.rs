//! The durable part of a volume, in a file of this machine or on the blocks of a drive.
//!
//! Batches, each of them a line `batch LENGTH CHECKSUM` and so many bytes of lines, an operation with its number each.
//! A batch is written at once: one that the end of its process cut short is left out when the file is read. The
//! checksum is over a salt too, which in a file is nothing.

mod blocks;

pub use blocks::Blocks;

use crate::operation::Operation;
use crate::tree::{Fate, Tree};
use blocks::OnBlocks;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use tidewater_base::checksum::{crc32c, crc32c_append};

/// First line of the file.
const HEAD: &str = "tidewater volume 1\n";
/// How the first line of a batch begins.
const BATCH: &str = "batch ";
/// The file holds what may be its owner's alone in the mount.
const MODE: u32 = 0o600;

/// Why an image can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another mount has it.
    #[error("another mount uses this image")]
    InUse,
    /// The file holds something else.
    #[error("this is no image of a mount: it does not begin with `{}`", HEAD.trim_end())]
    NoImage,
    /// An operation can't be read, though its batch is whole.
    #[error("byte {at}: {why}")]
    Damaged {
        /// Where the batch begins.
        at: usize,
        /// The fault.
        why: String,
    },
}

/// An image that this process alone uses.
#[derive(Debug)]
pub struct Image {
    place: Place,
    /// Lines that could not be written: they go with the next.
    unwritten: Vec<u8>,
}

#[derive(Debug)]
enum Place {
    File { path: PathBuf, file: File, end: u64 },
    Drive(OnBlocks),
}

impl Image {
    /// Opens an image, or makes a new one of `empty`, and returns what is durable in it. The file is written anew:
    /// without what was overwritten since, and without a batch that was cut short.
    ///
    /// # Errors
    /// When it can't be read or written, or holds something else.
    pub fn open(path: &Path, empty: Tree) -> Result<(Image, Tree), ImageError> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE).open(path)?;
        lock(&file)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let tree = if bytes.is_empty() { empty } else { read(&bytes)? };
        let place = Place::File { path: path.to_path_buf(), file, end: 0 };
        let mut image = Image { place, unwritten: Vec::new() };
        image.replace(&tree)?;
        Ok((image, tree))
    }

    /// As [`Image::open`], on the blocks of a drive. Each batch is durable there before the next begins.
    ///
    /// # Errors
    /// As there.
    pub fn on_blocks(blocks: Box<dyn Blocks>, empty: Tree) -> Result<(Image, Tree), ImageError> {
        let (place, tree) = OnBlocks::open(blocks, empty)?;
        Ok((Image { place: Place::Drive(place), unwritten: Vec::new() }, tree))
    }

    /// Adds operations that have become durable: their `lines`. Those that could not be added before come first.
    ///
    /// # Errors
    /// When they can't be written: then none of them counts before a later call succeeds. `StorageFull`: a smaller tree
    /// makes room ([`Image::replace`]).
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let has_failed = !self.unwritten.is_empty();
        self.unwritten.extend_from_slice(lines);
        if self.unwritten.is_empty() {
            return Ok(());
        }
        match &mut self.place {
            Place::File { file, end, .. } => {
                let bytes = batch(&self.unwritten, &[], 1);
                // Behind what one that failed has left there nothing would be read.
                if has_failed {
                    file.set_len(*end)?;
                }
                file.write_all_at(&bytes, *end)?;
                *end += bytes.len() as u64;
            }
            Place::Drive(drive) => {
                drive.check().map_err(io::Error::other)?;
                drive.append(&self.unwritten)?;
            }
        }
        self.unwritten.clear();
        Ok(())
    }

    /// Makes the image that of `tree`.
    ///
    /// # Errors
    /// When it can't be written: then the old one stays.
    pub fn replace(&mut self, tree: &Tree) -> Result<(), ImageError> {
        match &mut self.place {
            Place::File { path, file, end } => (*file, *end) = new_file(path, tree)?,
            Place::Drive(drive) => drive.replace(tree)?,
        }
        self.unwritten.clear();
        Ok(())
    }
}

/// A file with this tree in the place of `path`, locked, and its length.
fn new_file(path: &Path, tree: &Tree) -> Result<(File, u64), ImageError> {
    let mut name = path.to_path_buf().into_os_string();
    name.push(".new");
    // A link that lies there may lead to another user's file.
    match fs::remove_file(&name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&name)?;
    lock(&file)?;
    let bytes = [HEAD.as_bytes(), &batch(&lines_of(tree)?, &[], 1)].concat();
    file.write_all(&bytes)?;
    std::fs::rename(&name, path)?;
    Ok((file, bytes.len() as u64))
}

/// The lines of a tree. What a tree begins with comes before all that is added.
fn lines_of(tree: &Tree) -> io::Result<Vec<u8>> {
    let operations = tree.operations();
    lines(&operations.iter().map(|operation| (0, operation)).collect::<Vec<_>>())
}

/// Operations as lines, each with its number.
///
/// # Errors
/// None that can come about.
pub fn lines(operations: &[(u64, &Operation)]) -> io::Result<Vec<u8>> {
    let mut lines = Vec::new();
    for one in operations {
        serde_json::to_writer(&mut lines, one)?;
        lines.push(b'\n');
    }
    Ok(lines)
}

fn lock(file: &File) -> Result<(), ImageError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => ImageError::InUse,
        TryLockError::Error(error) => error.into(),
    })
}

/// A batch of lines, with empty lines up to a multiple of `block` bytes.
fn batch(lines: &[u8], salt: &[u8], block: u64) -> Vec<u8> {
    let first = |length: usize, sum: u32| format!("batch {length} {sum:08x}\n");
    let is_aligned = |fill: &usize| {
        let length = lines.len() + fill;
        (first(length, 0).len() + length).is_multiple_of(block as usize)
    };
    // Where a longer first line steps over a boundary, the next one has it.
    let fill = (0..=2 * block as usize).find(is_aligned).unwrap_or(0);
    let lines = [lines, &vec![b'\n'; fill]].concat();
    let mut bytes = first(lines.len(), crc32c_append(crc32c(salt), &lines)).into_bytes();
    bytes.extend_from_slice(&lines);
    bytes
}

/// The tree in an image.
fn read(bytes: &[u8]) -> Result<Tree, ImageError> {
    let rest = bytes.strip_prefix(HEAD.as_bytes()).ok_or(ImageError::NoImage)?;
    read_batches(rest, HEAD.len(), &[])
}

/// The tree that batches make. Operations became durable in another order than they were made in. `at`: where the first
/// batch begins in the image.
fn read_batches(batches: &[u8], at: usize, salt: &[u8]) -> Result<Tree, ImageError> {
    let mut rest = batches;
    let mut operations: Vec<(u64, Operation)> = Vec::new();
    while let Some((lines, behind)) = whole(rest, salt) {
        let damaged = |why: String| ImageError::Damaged { at: at + batches.len() - rest.len(), why };
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let one: (u64, Operation) = serde_json::from_slice(line).map_err(|error| damaged(error.to_string()))?;
            if !one.1.is_sound() {
                return Err(damaged("a number, an offset or a size that no file has".into()));
            }
            operations.push(one);
        }
        rest = behind;
    }
    if is_damaged(rest, salt) {
        let why = "a batch is damaged, and whole ones follow".into();
        return Err(ImageError::Damaged { at: at + batches.len() - rest.len(), why });
    }
    operations.sort_by_key(|(number, _)| *number);
    let mut tree = Tree::default();
    operations.iter().for_each(|(_, operation)| tree.apply(operation, Fate::Kept));
    tree.prune();
    Ok(tree)
}

/// Whether a whole batch begins behind a place where none does: then it is damage, and not the end.
fn is_damaged(bytes: &[u8], salt: &[u8]) -> bool {
    let mut begins = bytes.windows(BATCH.len()).enumerate().skip(1).filter(|(_, word)| *word == BATCH.as_bytes());
    begins.any(|(at, _)| whole(&bytes[at..], salt).is_some())
}

/// Of a batch the bytes of its first line, those of its lines, and their checksum; `None`: none begins here.
fn head(bytes: &[u8]) -> Option<(usize, usize, u32)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let mut words = std::str::from_utf8(&bytes[..end]).ok()?.strip_prefix(BATCH)?.split(' ');
    let length = words.next()?.parse().ok()?;
    let sum = u32::from_str_radix(words.next()?, 16).ok()?;
    Some((end + 1, length, sum))
}

/// Bytes of the batch that begins here.
fn length(bytes: &[u8]) -> Option<u64> {
    let (first, length, _) = head(bytes)?;
    (first as u64).checked_add(length as u64)
}

/// The first batch and what is behind it; `None`: there is none that is whole.
fn whole<'a>(bytes: &'a [u8], salt: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (first, length, sum) = head(bytes)?;
    let (lines, behind) = bytes[first..].split_at_checked(length)?;
    (crc32c_append(crc32c(salt), lines) == sum).then_some((lines, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, ROOT, Rules, Volume};

    fn write(volume: &mut Volume, name: &str, text: &str) -> u64 {
        let at = Entry::new(ROOT, name);
        let ino = volume.seen().find(&at).unwrap_or_else(|| {
            let ino = volume.new_ino();
            let create = Operation::Create { at, ino, mode: 0o100_644, uid: 1, gid: 2, rdev: 0, target: Vec::new() };
            volume.record(create);
            ino
        });
        volume.record(Operation::Write { ino, offset: 0, data: text.into() });
        ino
    }

    fn text(tree: &Tree, name: &str) -> Option<String> {
        let content = tree.node(tree.find(&Entry::new(ROOT, name))?)?.bytes()?;
        String::from_utf8(content.read(0, 100)).ok()
    }

    #[test]
    fn an_image_has_what_was_durable_and_a_torn_batch_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        let (mut image, tree) = Image::open(&path, Tree::default()).unwrap();
        assert!(matches!(Image::open(&path, Tree::default()), Err(ImageError::InUse)));
        let mut volume = Volume::of(tree, Rules::Strict);
        let a = write(&mut volume, "a", "one");
        volume.record(Operation::Sync { ino: a, data_only: false });
        image.append(&lines(&volume.take_durable()).unwrap()).unwrap();
        // Its name becomes durable behind its bytes.
        volume.record(Operation::Sync { ino: ROOT, data_only: false });
        image.append(&lines(&volume.take_durable()).unwrap()).unwrap();
        volume.fold();
        write(&mut volume, "b", "never synced");
        drop(image);
        let whole = std::fs::read(&path).unwrap();
        let (_, tree) = Image::open(&path, Tree::default()).unwrap();
        assert_eq!((text(&tree, "a").as_deref(), text(&tree, "b")), (Some("one"), None));
        assert_eq!(tree.node(a).map(|node| (node.uid, node.gid, node.links)), Some((1, 2, 1)));
        // Without its last byte the batch with the name is none.
        std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(text(&Image::open(&path, Tree::default()).unwrap().1, "a"), None);
        std::fs::write(&path, b"some other file").unwrap();
        assert!(matches!(Image::open(&path, Tree::default()), Err(ImageError::NoImage)));
    }

    /// An image of version 1, as it was written then: later versions open it.
    const VERSION_1: &str = r#"tidewater volume 1
batch 61 5ec1f028
[0,{"do":"attributes","ino":1,"mode":16877,"uid":0,"gid":0}]
batch 56 272f6b2c
[2,{"do":"write","ino":3,"offset":0,"data":"a2VwdAo="}]
batch 95 ecfa0dcc
[1,{"do":"create","at":{"folder":2,"name":"a"},"ino":3,"mode":33188,"uid":0,"gid":0,"rdev":0}]
batch 261 68ba447e
[0,{"do":"create","at":{"folder":1,"name":"d"},"ino":2,"mode":16877,"uid":0,"gid":0,"rdev":0}]
[3,{"do":"link","ino":3,"at":{"folder":1,"name":"h"}}]
[4,{"do":"create","at":{"folder":1,"name":"s"},"ino":4,"mode":41471,"uid":0,"gid":0,"rdev":0,"target":"ZC9h"}]
"#;

    #[test]
    fn an_image_of_version_1_is_opened() {
        assert!(VERSION_1.starts_with(HEAD), "a new version: keep this one, and add an image of the new one");
        let tree = read(VERSION_1.as_bytes()).unwrap();
        assert_eq!(text(&tree, "h").as_deref(), Some("kept\n"));
        assert_eq!(tree.node(3).map(|node| node.links), Some(2));
        assert_eq!(tree.node(4).map(crate::Node::target), Some(b"d/a".to_vec()));
    }

    #[test]
    fn foreign_operations_are_refused_by_words() {
        let create = |ino| {
            let (at, target) = (Entry::new(ROOT, "a"), Vec::new());
            let create = Operation::Create { at, ino, mode: 0o100_644, uid: 0, gid: 0, rdev: 0, target };
            serde_json::to_string(&(1, create)).unwrap()
        };
        // One more would be no number any more.
        let [last, beyond] = [create(u64::MAX), create(1 << 40)];
        let resize = "[0,{\"do\":\"resize\",\"ino\":1,\"size\":18446744073709551615}]";
        for line in ["[1,{}]", resize, "[1,{\"do\":\"x\"}]", &last, &beyond] {
            let line = format!("{line}\n");
            let bytes = format!("{HEAD}batch {} {:08x}\n{line}", line.len(), crc32c(line.as_bytes()));
            assert!(matches!(read(bytes.as_bytes()), Err(ImageError::Damaged { .. })), "{line}");
        }
        let name = |name: &str| {
            let line = format!("[1,{{\"do\":\"remove\",\"at\":{{\"folder\":1,\"name\":\"{name}\"}}}}]\n");
            let bytes = format!("{HEAD}batch {} {:08x}\n{line}", line.len(), crc32c(line.as_bytes()));
            read(bytes.as_bytes())
        };
        assert!(name("a").is_ok());
        for wrong in ["", ".", "..", "a/b", "\\u0000", "\\u0100"] {
            assert!(matches!(name(wrong), Err(ImageError::Damaged { .. })), "{wrong}");
        }
    }
}
