//! The copy of a mapped ring on a disk (ADR 26). The client writes and syncs it itself, so that its commits do not wait
//! for the device.
//!
//! The file's first page is [`RingCopyHeader`]. Behind it, each lane has as many sectors as hold its ring and two more.
//! A sector says which bytes of the stream it holds: it is written as a whole or not at all, and bytes are only added
//! to the last one. So what can be read from any place of the stream on is what was there, without a gap.

use tidewater_base::checksum::crc32c;

use super::ring::RING_GENERATION_END;
use crate::layout::layout;
use crate::vendor::LANES_MAX;

/// Bytes of a sector.
pub const COPY_SECTOR: usize = 512;
/// Bytes of the stream in a sector.
pub const COPY_CHUNK: usize = COPY_SECTOR - CopySector::SIZE;

layout! {
    /// The head of the copy of a mapped ring. It says whose ring it is: a file of another drive, or of another shape,
    /// is refused.
    pub struct RingCopyHeader [512] {
        fixed 0 magic: u64 = u64::from_le_bytes(*b"TIDECOPY"), " `TIDECOPY` in ASCII.";
        fixed 8 version: u32 = 1, " Version of the file's layout.";
        /// Function.
        12 function: u16,
        /// Lanes, 1 to 16.
        14 lanes: u16,
        /// Bytes of each lane's ring.
        16 ring_bytes: u64,
        /// Identifier of the drive: that of its image.
        32 drive: [u8; 16],
        /// For each lane the generation whose sectors count: those of others are of a stream that went on elsewhere.
        128 generation: [u64; LANES_MAX],
        crc 508;
    }
    check |header| {
        if header.generation.iter().any(|&generation| generation >= RING_GENERATION_END) {
            Err(("generation", "below 2^62: none ever gets there"))
        } else {
            Ok(())
        }
    };
}

layout! {
    /// Header of a sector. The checksum is that of all 512 bytes but its own.
    pub struct CopySector [32] {
        /// CRC-32C.
        0 checksum: u32,
        /// The first of its bytes that is there.
        4 skip: u16,
        /// The one behind the last; at most 480.
        6 len: u16,
        /// The generation of the lane's stream.
        8 generation: u64,
        /// Stream offset of the first of its 480 bytes, a multiple of that.
        16 offset: u64,
        /// The lane.
        24 lane: u64,
    }
}

impl CopySector {
    fn seal(mut self, sector: &mut [u8; COPY_SECTOR]) {
        self.checksum = 0;
        sector[..CopySector::SIZE].copy_from_slice(&self.to_bytes());
        self.checksum = crc32c(&sector[4..]);
        sector[..4].copy_from_slice(&self.checksum.to_le_bytes());
    }

    /// Reads it from a sector; `None`: there is none, or it is damaged.
    pub fn of(sector: &[u8; COPY_SECTOR]) -> Option<CopySector> {
        let found = CopySector::parse(&sector[..CopySector::SIZE]).ok()?;
        let is_good = found.skip < found.len
            && usize::from(found.len) <= COPY_CHUNK
            && found.offset.is_multiple_of(COPY_CHUNK as u64)
            && found.checksum == crc32c(&sector[4..]);
        is_good.then_some(found)
    }
}

/// Room for sectors that are written at once, at the head of a page: also a file that is written past the page cache
/// takes them from there.
#[derive(Debug)]
pub struct CopyBuffer {
    bytes: Vec<u8>,
    first: usize,
}

impl CopyBuffer {
    /// Address of the first sector, a multiple of this.
    pub const ALIGN: usize = 4096;

    /// Room for so many. What has never held one takes no memory, where the system gives zeroed pages when they are
    /// touched.
    pub fn new(sectors: usize) -> CopyBuffer {
        let bytes = vec![0u8; CopyBuffer::ALIGN + sectors * COPY_SECTOR];
        let begin = bytes.as_ptr().addr();
        CopyBuffer { first: begin.next_multiple_of(CopyBuffer::ALIGN) - begin, bytes }
    }

    fn sectors(&mut self) -> &mut [[u8; COPY_SECTOR]] {
        let end = self.bytes.len() - CopyBuffer::ALIGN + self.first;
        self.bytes[self.first..end].as_chunks_mut().0
    }
}

/// Where the copy of a lane's ring is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyPlace {
    lane: u8,
    sectors: u64,
}

impl CopyPlace {
    /// Bytes before the first lane's sectors.
    const BEFORE: u64 = 4096;

    /// That of a lane (0 to 15) with a ring of so many bytes (at most 1 TiB).
    pub const fn new(lane: u8, ring_bytes: u64) -> CopyPlace {
        // All of it, wherever in a sector it begins and ends, and one more.
        CopyPlace { lane, sectors: ring_bytes.div_ceil(COPY_CHUNK as u64) + 2 }
    }

    /// Bytes of the file of so many lanes.
    pub const fn file_bytes(lanes: u8, ring_bytes: u64) -> u64 {
        let end = CopyPlace::new(lanes, ring_bytes);
        CopyPlace::BEFORE + lanes as u64 * end.sectors * COPY_SECTOR as u64
    }

    /// Sectors of the lane.
    pub const fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Which of the lane's sectors holds a byte of the stream.
    pub const fn sector(&self, offset: u64) -> u64 {
        offset / COPY_CHUNK as u64 % self.sectors
    }

    /// Where one of the lane's sectors is in the file.
    pub const fn at(&self, sector: u64) -> u64 {
        CopyPlace::BEFORE + (self.lane as u64 * self.sectors + sector) * COPY_SECTOR as u64
    }

    /// Writes the bytes of the stream from one offset to another, and those before them in the same sector. `read`
    /// fills a buffer with those from an offset on, and tells then from which offset on the ring certainly held them:
    /// bytes before are safe elsewhere, or never were, and are left out. `write` writes whole sectors at a byte of the
    /// file.
    ///
    /// # Errors
    /// The errors of `write`.
    pub fn write<E>(
        &self,
        generation: u64,
        (from, to): (u64, u64),
        buffer: &mut CopyBuffer,
        mut read: impl FnMut(u64, &mut [u8]) -> u64,
        mut write: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        const CHUNK: u64 = COPY_CHUNK as u64;
        let sectors = buffer.sectors();
        // The sector that the stream ended in is written anew, with what was there before.
        let mut first = from - from % CHUNK;
        while first < to {
            let room = (self.sectors - self.sector(first)).min(sectors.len() as u64);
            let mut end = first;
            let mut count = 0;
            for sector in &mut sectors[..room as usize] {
                let (offset, len) = (end, (to - end).min(CHUNK));
                let (there, behind) = sector[CopySector::SIZE..].split_at_mut(len as usize);
                let still = read(offset, there);
                end += CHUNK;
                if still >= offset + len {
                    // This one and those before it are elsewhere as a whole, and need not be written.
                    (first, count) = (end, 0);
                    break;
                }
                let skip = still.saturating_sub(offset);
                there[..skip as usize].fill(0);
                behind.fill(0);
                let (lane, skip, len) = (self.lane.into(), skip as u16, len as u16);
                CopySector { skip, len, generation, offset, lane, ..CopySector::default() }.seal(sector);
                count += 1;
                if end >= to {
                    break;
                }
            }
            if count > 0 {
                write(self.at(self.sector(first)), sectors[..count].as_flattened())?;
                first = end;
            }
        }
        Ok(())
    }

    /// Reads the bytes of the stream from an offset on, as far as they are there, at most so many. `read` reads a
    /// sector at a byte of the file.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn read<E>(
        &self,
        generation: u64,
        from: u64,
        most: u64,
        mut read: impl FnMut(u64, &mut [u8; COPY_SECTOR]) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let mut stream = Vec::new();
        let mut sector = [0; COPY_SECTOR];
        while (stream.len() as u64) < most {
            let from = from + stream.len() as u64;
            read(self.at(self.sector(from)), &mut sector)?;
            let within = from % COPY_CHUNK as u64;
            let whose = (generation, from - within, u64::from(self.lane));
            let found = CopySector::of(&sector).filter(|found| (found.generation, found.offset, found.lane) == whose);
            let Some(found) = found.filter(|found| u64::from(found.skip) <= within && within < u64::from(found.len))
            else {
                break;
            };
            stream.extend_from_slice(
                &sector[CopySector::SIZE + within as usize..][..usize::from(found.len) - within as usize],
            );
            if usize::from(found.len) < COPY_CHUNK {
                break;
            }
        }
        stream.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn byte(generation: u64, offset: u64) -> u8 {
        (offset.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 ^ generation as u8
    }

    fn save(place: CopyPlace, disk: &mut [u8], generation: u64, range: (u64, u64), still: u64) {
        let read = |at: u64, to: &mut [u8]| {
            // What was overwritten meanwhile is anything.
            to.iter_mut().zip(at..).for_each(|(to, at)| *to = if at < still { 0xEE } else { byte(generation, at) });
            still
        };
        let result = place.write(generation, range, &mut CopyBuffer::new(5), read, |at, bytes| {
            // As a file asks for that is written past the page cache.
            assert!(
                at.is_multiple_of(512) && bytes.len().is_multiple_of(512) && bytes.as_ptr().addr().is_multiple_of(4096)
            );
            disk[at as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok::<(), Infallible>(())
        });
        assert!(result.is_ok());
    }

    fn load(place: CopyPlace, disk: &[u8], generation: u64, from: u64, most: u64) -> Vec<u8> {
        let read = |at: u64, to: &mut [u8; COPY_SECTOR]| {
            to.copy_from_slice(&disk[at as usize..][..COPY_SECTOR]);
            Ok::<(), Infallible>(())
        };
        place.read(generation, from, most, read).unwrap_or_default()
    }

    proptest! {
        /// A stream that is saved in steps, of which the disk keeps those that were synced and any of the sectors of
        /// the last: all that was synced is read back, and nothing that was never there.
        #[test]
        fn what_was_synced_is_read_back_whatever_became_of_the_rest(
            lane in 0u8..3,
            start in 0u64..100_000,
            steps in prop::collection::vec((1u64..6_000, 0u64..4_000, any::<u64>()), 1..40),
        ) {
            let ring = 8192;
            let place = CopyPlace::new(lane, ring);
            let mut disk = vec![0; CopyPlace::file_bytes(3, ring) as usize];
            let (mut free, mut saved) = (start, start);
            for (len, freed, lost) in steps {
                // What is elsewhere is let go, as the ring needs room.
                let to = saved + len;
                free = (free + freed).clamp(to.saturating_sub(ring).max(free), saved.max(to.saturating_sub(ring)));
                let before = disk.clone();
                save(place, &mut disk, 1, (saved, to), free);
                // A crash before this one was synced.
                let mut crashed = disk.clone();
                for n in 0..crashed.len() / COPY_SECTOR {
                    if lost >> (n % 64) & 1 == 1 {
                        let at = n * COPY_SECTOR;
                        crashed[at..at + COPY_SECTOR].copy_from_slice(&before[at..at + COPY_SECTOR]);
                    }
                }
                let found = load(place, &crashed, 1, free, ring);
                let safe = saved.max(free);
                prop_assert!(found.len() as u64 >= safe - free, "{} of {} to {}", found.len(), free, safe);
                prop_assert!(found.iter().zip(free..).all(|(found, at)| *found == byte(1, at)));
                let found = load(place, &disk, 1, free, ring);
                prop_assert_eq!(found.len() as u64, to - free);
                prop_assert!(load(place, &disk, 2, free, ring).is_empty());
                saved = to;
            }
        }
    }

    #[test]
    fn a_sector_that_is_damaged_or_elsewhere_ends_what_is_read() {
        let (place, other) = (CopyPlace::new(0, 4096), CopyPlace::new(1, 4096));
        let mut disk = vec![0; CopyPlace::file_bytes(2, 4096) as usize];
        save(place, &mut disk, 7, (100, 3_000), 100);
        assert_eq!(load(place, &disk, 7, 100, 4096).len(), 2_900);
        assert_eq!(load(place, &disk, 7, 100, 64).len(), 64);
        assert!(load(place, &disk, 7, 99, 4096).is_empty(), "that byte was not saved");
        let (from, to) = (place.at(0) as usize, other.at(0) as usize);
        let mut elsewhere = disk.clone();
        elsewhere.copy_within(from..to, to);
        assert!(load(other, &elsewhere, 7, 100, 4096).is_empty());
        for at in (0..COPY_SECTOR).step_by(3) {
            disk[from + COPY_SECTOR + at] ^= 8;
            assert_eq!(load(place, &disk, 7, 100, 4096).len(), COPY_CHUNK - 100, "{at}");
            disk[from + COPY_SECTOR + at] ^= 8;
        }
    }
}
