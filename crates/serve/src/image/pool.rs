//! Payload of units that are not on flash yet, in buffers that are used again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Units of a chunk of memory.
const CHUNK: usize = 256;

/// A fast hash of two numbers, without a defence against chosen collisions: logical pages and versions are the drive's
/// own numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let mixed = u128::from(self.0.rotate_left(29) ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }
}

/// A table whose keys are mixed by [`Mixer`].
pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// A version of a logical page.
pub(super) type Key = (u32, u64);

/// A buffer of the pool, and whether what it should hold is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) buffer: u32,
    pub(super) poisoned: bool,
    /// Programs that will want it; nearly always one.
    pub(super) programs: u32,
}

impl Held {
    pub(super) fn new(buffer: u32, poisoned: bool) -> Held {
        Held { buffer, poisoned, programs: 1 }
    }
}

/// Buffers of a unit each, by version.
#[derive(Debug)]
pub(super) struct Pool {
    unit_size: usize,
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
    held: Table<Key, Held>,
}

impl Pool {
    pub(super) fn new(unit_size: usize) -> Pool {
        Pool { unit_size, chunks: Vec::new(), free: Vec::new(), held: Table::default() }
    }

    /// Units held.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// A buffer whose content is anything.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        if self.free.is_empty() {
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push(vec![0; CHUNK * self.unit_size].into_boxed_slice());
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        self.free.pop().expect("a chunk was just added")
    }

    pub(super) fn give_back(&mut self, buffer: u32) {
        self.free.push(buffer);
    }

    #[inline]
    pub(super) fn bytes(&self, buffer: u32) -> &[u8] {
        let at = buffer as usize % CHUNK * self.unit_size;
        &self.chunks[buffer as usize / CHUNK][at..at + self.unit_size]
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self, buffer: u32) -> &mut [u8] {
        let at = buffer as usize % CHUNK * self.unit_size;
        &mut self.chunks[buffer as usize / CHUNK][at..at + self.unit_size]
    }

    /// Files a buffer under a version. What was there under it before is forgotten.
    #[inline]
    pub(super) fn hold(&mut self, key: Key, held: Held) {
        if let Some(old) = self.held.insert(key, held) {
            self.free.push(old.buffer);
        }
    }

    #[inline]
    pub(super) fn get(&self, key: Key) -> Option<Held> {
        self.held.get(&key).copied()
    }

    /// Takes a version out; its buffer is the caller's.
    #[inline]
    pub(super) fn remove(&mut self, key: Key) -> Option<Held> {
        self.held.remove(&key)
    }

    /// One more program will want a version; false: it is not held.
    pub(super) fn add_program(&mut self, key: Key) -> bool {
        self.held.get_mut(&key).map(|held| held.programs += 1).is_some()
    }

    /// A version was programmed: its buffer is free when no other program wants it.
    #[inline]
    pub(super) fn programmed(&mut self, key: Key) {
        let Some(held) = self.held.get_mut(&key) else { return };
        held.programs -= 1;
        if held.programs == 0
            && let Some(held) = self.held.remove(&key)
        {
            self.free.push(held.buffer);
        }
    }

    /// Forgets every version that `keep` does not want.
    pub(super) fn retain(&mut self, keep: impl Fn(Key) -> bool) {
        let free = &mut self.free;
        self.held.retain(|&key, held| {
            let kept = keep(key);
            if !kept {
                free.push(held.buffer);
            }
            kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_none_is_given_twice() {
        let mut pool = Pool::new(512);
        for round in 0..3u64 {
            for lpn in 0..600 {
                let buffer = pool.take();
                pool.bytes_mut(buffer).fill(lpn as u8);
                pool.hold((lpn, round), Held::new(buffer, false));
            }
            for lpn in 0..600 {
                let held = pool.get((lpn, round)).unwrap();
                assert!(pool.bytes(held.buffer).iter().all(|&byte| byte == lpn as u8));
            }
            pool.retain(|key| key.0 % 2 == 0);
            for lpn in (0..600).step_by(2) {
                let held = pool.remove((lpn, round)).unwrap();
                pool.give_back(held.buffer);
            }
            assert_eq!((pool.len(), pool.chunks.len(), pool.free.len()), (0, 3, 768));
        }
    }
}
