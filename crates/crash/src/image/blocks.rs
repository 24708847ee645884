//! An image on the blocks of a drive.
//!
//! Two heads, then two halves. A head names a generation, an even one the first half and an odd one the second; the
//! valid head with the highest generation counts. A half holds batches, each from a block of its own on, with a
//! checksum over the generation too: what an older one has left there is none of it. A half that is full is written
//! anew into the other one, and counts once its head is durable.

use super::{HEAD, ImageError, batch, read_batches, whole};
use crate::tree::Tree;
use std::fmt;
use std::io;

/// Bytes of a head and from one to the other.
const HEAD_ROOM: u64 = 4096;
/// Bytes that are moved at once.
const PIECE: usize = 64 << 10;
/// Bytes behind the last whole batch that are searched for others.
const BEHIND: usize = 1 << 20;
/// Bytes of the first line of a batch at most.
const LINE_MAX: usize = 64;

/// A drive's blocks. Reads and writes are of whole blocks.
pub trait Blocks: fmt::Debug + Send {
    /// Bytes of a block: a power of two, 4096 at most.
    fn block(&self) -> u64;

    /// Bytes of all blocks.
    fn size(&self) -> u64;

    /// Reads blocks from byte `at` on.
    ///
    /// # Errors
    /// When the drive can't.
    fn read(&mut self, at: u64, to: &mut [u8]) -> io::Result<()>;

    /// Writes blocks from byte `at` on. They may be lost, or torn at blocks, until [`Blocks::sync`].
    ///
    /// # Errors
    /// When the drive can't.
    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// When the drive can't.
    fn sync(&mut self) -> io::Result<()>;
}

/// The image on them.
#[derive(Debug)]
pub(super) struct OnBlocks {
    blocks: Box<dyn Blocks>,
    /// 0: there is none yet.
    generation: u64,
    /// Bytes of the half that are in use.
    end: u64,
}

impl OnBlocks {
    /// Opens the image, or makes a new one of `empty` on blocks that hold nothing.
    pub fn open(blocks: Box<dyn Blocks>, empty: Tree) -> Result<(OnBlocks, Tree), ImageError> {
        let block = blocks.block();
        let mut image = OnBlocks { blocks, generation: 0, end: 0 };
        if !block.is_power_of_two() || block > HEAD_ROOM || image.half() < PIECE as u64 {
            return Err(io::Error::other("the namespace is too small for an image").into());
        }
        let tree = match image.newest()? {
            None => empty,
            Some(generation) => {
                image.generation = generation;
                let bytes = image.batches()?;
                read_batches(&bytes, 0, &generation.to_le_bytes())?
            }
        };
        image.write_anew(&tree)?;
        Ok((image, tree))
    }

    /// Bytes of a half.
    fn half(&self) -> u64 {
        let block = self.blocks.block();
        self.blocks.size().saturating_sub(2 * HEAD_ROOM) / 2 / block * block
    }

    /// Where the half of a generation begins.
    fn start(&self, generation: u64) -> u64 {
        2 * HEAD_ROOM + generation % 2 * self.half()
    }

    /// The generation that counts; `None`: the blocks hold nothing.
    fn newest(&mut self) -> Result<Option<u64>, ImageError> {
        let mut heads = vec![0; 2 * HEAD_ROOM as usize];
        self.blocks.read(0, &mut heads)?;
        let is_empty = heads.iter().all(|byte| *byte == 0);
        let found = heads.chunks(HEAD_ROOM as usize).filter_map(generation_of).max();
        if found.is_none() && !is_empty { Err(ImageError::NoImage) } else { Ok(found) }
    }

    /// All whole batches of the half, and some of what is behind them.
    fn batches(&mut self) -> io::Result<Vec<u8>> {
        let (start, half, block) = (self.start(self.generation), self.half(), self.blocks.block());
        let salt = self.generation.to_le_bytes();
        let (mut bytes, mut good) = (Vec::new(), 0);
        loop {
            let line = LINE_MAX.next_multiple_of(block as usize);
            self.read_to(start, &mut bytes, good + line)?;
            let length = bytes.get(good..).and_then(super::length).filter(|length| good as u64 + length <= half);
            let Some(length) = length.filter(|length| length % block == 0) else { break };
            self.read_to(start, &mut bytes, good + length as usize)?;
            if whole(&bytes[good..], &salt).is_none() {
                break;
            }
            good += length as usize;
        }
        self.read_to(start, &mut bytes, good + BEHIND)?;
        self.end = good as u64;
        Ok(bytes)
    }

    /// Reads on until there are so many bytes of the half, or all.
    fn read_to(&mut self, start: u64, bytes: &mut Vec<u8>, length: usize) -> io::Result<()> {
        let length = length.next_multiple_of(self.blocks.block() as usize).min(self.half() as usize);
        while bytes.len() < length {
            let from = bytes.len();
            bytes.resize(length.min(from + PIECE), 0);
            self.blocks.read(start + from as u64, &mut bytes[from..])?;
        }
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        for (piece, at) in bytes.chunks(PIECE).zip((at..).step_by(PIECE)) {
            self.blocks.write(at, piece)?;
        }
        self.blocks.sync()
    }

    /// Whether another mount has written here since: then nothing of this one counts.
    pub fn check(&mut self) -> Result<(), ImageError> {
        let is_ours = self.newest()?.unwrap_or(0) == self.generation;
        if is_ours { Ok(()) } else { Err(ImageError::InUse) }
    }

    /// Adds lines. They are durable when this returns.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let bytes = batch(lines, &self.generation.to_le_bytes(), self.blocks.block());
        if self.end + bytes.len() as u64 > self.half() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.write_at(self.start(self.generation) + self.end, &bytes)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Writes `tree` into the other half.
    pub fn replace(&mut self, tree: &Tree) -> Result<(), ImageError> {
        self.check()?;
        self.write_anew(tree)
    }

    fn write_anew(&mut self, tree: &Tree) -> Result<(), ImageError> {
        let generation = self.generation + 1;
        let bytes = batch(&super::lines_of(tree)?, &generation.to_le_bytes(), self.blocks.block());
        if bytes.len() as u64 > self.half() {
            return Err(io::Error::from(io::ErrorKind::StorageFull).into());
        }
        self.write_at(self.start(generation), &bytes)?;
        let mut head = head_of(generation).into_bytes();
        head.resize(HEAD_ROOM as usize, 0);
        self.write_at(generation % 2 * HEAD_ROOM, &head)?;
        (self.generation, self.end) = (generation, bytes.len() as u64);
        Ok(())
    }
}

fn head_of(generation: u64) -> String {
    let sum = tidewater_base::checksum::crc32c(&generation.to_le_bytes());
    format!("{HEAD}generation {generation} {sum:08x}\n")
}

/// The generation of a head; `None`: it is torn, or none.
fn generation_of(head: &[u8]) -> Option<u64> {
    let line = head.strip_prefix(HEAD.as_bytes())?.split(|byte| *byte == b'\n').next()?;
    let generation = std::str::from_utf8(line).ok()?.strip_prefix("generation ")?.split(' ').next()?.parse().ok()?;
    head.starts_with(head_of(generation).as_bytes()).then_some(generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Image;
    use crate::{Entry, Operation, ROOT, Rules, Volume};
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use tidewater_base::Rng;

    const BLOCK: usize = 512;

    /// A drive in memory: what is durable, and blocks that were written since.
    #[derive(Debug, Default)]
    struct Drive {
        durable: Vec<u8>,
        written: BTreeMap<u64, [u8; BLOCK]>,
        /// Accesses until none succeeds any more.
        left: u64,
    }

    #[derive(Clone, Debug)]
    struct Memory(Arc<Mutex<Drive>>);

    impl Memory {
        fn new(size: usize) -> Memory {
            let drive = Drive { durable: vec![0; size], left: u64::MAX, ..Drive::default() };
            Memory(Arc::new(Mutex::new(drive)))
        }

        fn access<T>(&self, of: impl FnOnce(&mut Drive) -> T) -> io::Result<T> {
            let mut drive = self.0.lock().unwrap();
            if drive.left == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            drive.left -= 1;
            Ok(of(&mut drive))
        }

        /// The power fails after so many more accesses.
        fn fail_after(&self, accesses: u64) {
            self.0.lock().unwrap().left = accesses;
        }

        /// It is back: of the blocks that were not durable each is lost or not.
        fn restore(&self, rng: &mut Rng) {
            let drive = &mut *self.0.lock().unwrap();
            for (at, block) in std::mem::take(&mut drive.written) {
                if rng.below(2) == 0 {
                    drive.durable[at as usize..at as usize + BLOCK].copy_from_slice(&block);
                }
            }
            drive.left = u64::MAX;
        }
    }

    impl Blocks for Memory {
        fn block(&self) -> u64 {
            BLOCK as u64
        }

        fn size(&self) -> u64 {
            self.0.lock().unwrap().durable.len() as u64
        }

        fn read(&mut self, at: u64, to: &mut [u8]) -> io::Result<()> {
            self.access(|drive| {
                for (to, at) in to.chunks_mut(BLOCK).zip((at..).step_by(BLOCK)) {
                    let durable = &drive.durable[at as usize..at as usize + BLOCK];
                    to.copy_from_slice(drive.written.get(&at).map_or(durable, |block| block));
                }
            })
        }

        fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
            // A part of the blocks may be there although the write fails.
            let count = if self.0.lock().unwrap().left == 1 { bytes.len() / BLOCK / 2 } else { bytes.len() / BLOCK };
            self.access(|drive| {
                for (block, at) in bytes.as_chunks().0.iter().zip((at..).step_by(BLOCK)).take(count) {
                    drive.written.insert(at, *block);
                }
            })
        }

        fn sync(&mut self) -> io::Result<()> {
            self.access(|drive| {
                for (at, block) in std::mem::take(&mut drive.written) {
                    drive.durable[at as usize..at as usize + BLOCK].copy_from_slice(&block);
                }
            })
        }
    }

    fn open(memory: &Memory) -> Result<(Image, Tree), ImageError> {
        Image::on_blocks(Box::new(memory.clone()), Tree::default())
    }

    fn text(tree: &Tree, name: &str) -> Option<String> {
        let content = tree.node(tree.find(&Entry::new(ROOT, name))?)?.bytes()?;
        String::from_utf8(content.read(0, 1 << 20)).ok()
    }

    /// Writes and syncs a file, and says whether that succeeded.
    fn write(image: &mut Image, volume: &mut Volume, name: &str, text: &str) -> io::Result<()> {
        let at = Entry::new(ROOT, name);
        let ino = volume.seen().find(&at).unwrap_or_else(|| {
            let ino = volume.new_ino();
            let create = Operation::Create { at, ino, mode: 0o100_644, uid: 0, gid: 0, rdev: 0, target: Vec::new() };
            volume.record(create);
            volume.record(Operation::Sync { ino: ROOT, data_only: false });
            ino
        });
        volume.record(Operation::Write { ino, offset: 0, data: text.into() });
        volume.record(Operation::Sync { ino, data_only: false });
        let lines = crate::image::lines(&volume.take_durable())?;
        volume.fold();
        image.append(&lines)
    }

    #[test]
    fn what_was_synced_is_there_wherever_the_power_fails() {
        let mut rng = Rng::new(1, b"blocks");
        let (mut failed, mut reopened) = (0, 0);
        for round in 0..80 {
            let memory = Memory::new(300 << 10);
            let mut known: BTreeMap<String, u32> = BTreeMap::new();
            let mut tried = known.clone();
            for _ in 0..4 {
                memory.fail_after(if rng.below(2) == 0 { rng.below(120) } else { u64::MAX });
                if let Ok((mut image, tree)) = open(&memory) {
                    reopened += 1;
                    let mut volume = Volume::of(tree, Rules::Strict);
                    for number in 1..40 {
                        let name = format!("file{}", rng.below(5));
                        let text = format!("{number} {}", "x".repeat(rng.below(3_000) as usize));
                        tried.insert(name.clone(), number);
                        match write(&mut image, &mut volume, &name, &text) {
                            Ok(()) => _ = known.insert(name, number),
                            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                                volume.record(Operation::SyncAll);
                                drop(volume.take_durable());
                                if image.replace(volume.seen()).is_err() {
                                    break;
                                }
                                volume.fold();
                                known.insert(name, number);
                            }
                            Err(_) => {
                                failed += 1;
                                break;
                            }
                        }
                    }
                }
                memory.restore(&mut rng);
                let (_, tree) = open(&memory).unwrap();
                for (name, number) in &known {
                    let found = text(&tree, name).unwrap_or_else(|| panic!("round {round}: {name} is gone"));
                    let found: u32 = found.split(' ').next().unwrap().parse().unwrap();
                    assert!(found == *number || found == tried[name], "round {round}: {name}: {found}, not {number}");
                }
                // What came through although it was not acknowledged counts from now on.
                for (name, number) in &tried {
                    let found = text(&tree, name).and_then(|text| text.split(' ').next()?.parse().ok());
                    if found == Some(*number) {
                        known.insert(name.clone(), *number);
                    }
                }
                tried = known.clone();
            }
        }
        assert!(failed > 30 && reopened > 150, "{failed} {reopened}");
    }

    #[test]
    fn a_write_that_failed_is_written_by_the_next_sync() {
        let memory = Memory::new(300 << 10);
        let (mut image, tree) = open(&memory).unwrap();
        let mut volume = Volume::of(tree, Rules::Strict);
        memory.fail_after(0);
        assert!(write(&mut image, &mut volume, "a", "first").is_err());
        memory.fail_after(u64::MAX);
        write(&mut image, &mut volume, "b", "second").unwrap();
        let (_, tree) = open(&memory).unwrap();
        assert_eq!((text(&tree, "a").as_deref(), text(&tree, "b").as_deref()), (Some("first"), Some("second")));
        // The image was opened again meanwhile: this one has lost it.
        memory.fail_after(0);
        assert!(write(&mut image, &mut volume, "a", "third").is_err());
        memory.fail_after(u64::MAX);
        let refused = write(&mut image, &mut volume, "a", "fourth").unwrap_err();
        assert!(refused.to_string().contains("another mount uses this image"), "{refused}");
    }

    #[test]
    fn a_second_mount_ends_the_first_and_damage_before_whole_batches_is_refused() {
        let memory = Memory::new(300 << 10);
        let (mut first, tree) = open(&memory).unwrap();
        let mut volume = Volume::of(tree, Rules::Strict);
        write(&mut first, &mut volume, "a", "one").unwrap();
        let (mut second, tree) = open(&memory).unwrap();
        let mut other = Volume::of(tree, Rules::Strict);
        write(&mut second, &mut other, "b", "two").unwrap();
        let refused = write(&mut first, &mut volume, "c", "three").unwrap_err();
        assert!(refused.to_string().contains("another mount uses this image"), "{refused}");
        write(&mut second, &mut other, "d", "four").unwrap();
        let whole = memory.0.lock().unwrap().durable.clone();
        let half = 2 * HEAD_ROOM as usize;
        let found = whole[half..][..100 << 10].windows(6).enumerate().filter(|(_, word)| *word == b"batch ");
        let batches: Vec<usize> = found.map(|(at, _)| half + at).collect();
        // The last alone may be torn.
        let last = batches.len() - 1;
        for (number, at) in batches.into_iter().enumerate() {
            memory.0.lock().unwrap().durable[at + 30] ^= 1;
            match open(&memory) {
                Err(ImageError::Damaged { .. }) if number < last => {}
                Ok((_, tree)) if number == last => {
                    assert_eq!((text(&tree, "b").as_deref(), text(&tree, "d")), (Some("two"), None));
                }
                other => panic!("batch {number}: {other:?}"),
            }
            memory.0.lock().unwrap().durable.clone_from(&whole);
        }
    }

    #[test]
    fn blocks_with_something_else_are_refused_and_a_full_half_says_so() {
        let memory = Memory::new(300 << 10);
        let (mut image, tree) = open(&memory).unwrap();
        let mut volume = Volume::of(tree, Rules::Strict);
        let full = write(&mut image, &mut volume, "a", &"x".repeat(200 << 10)).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        memory.0.lock().unwrap().durable[..16].copy_from_slice(b"another's format");
        memory.0.lock().unwrap().durable[HEAD_ROOM as usize..][..16].copy_from_slice(b"another's format");
        assert!(matches!(open(&memory), Err(ImageError::NoImage)));
        assert!(open(&Memory::new(100 << 10)).is_err());
    }
}
