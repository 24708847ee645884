//! Units in the memory that a host has lent (host memory buffer): real bytes at the host's own descriptors, each with a
//! header that tells what it is and a checksum over all of it.

use super::dma_messages::{Direction, Far};
use super::functions::{Carried, Functions};
use crate::engine::Firmware;
use crate::image::Payload;
use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use tidewater_base::checksum::crc32c_append;
use tidewater_core::ftl::{ENTRY_BYTES, Entry};
use tidewater_core::host_memory::{Access, Answer, HEADER, Operation, Stamp};
use tidewater_core::memory::Use;
use tidewater_core::subsystem::Unit;

/// Units that were read and whose bytes are kept until the command that wanted them has them, at most.
const FOUND_MAX: usize = 1_024;
/// Bytes of the checksum, the first field of the header.
const CHECKSUM: usize = 4;

/// The units of a host's memory, from the drive's side.
#[derive(Debug)]
pub(crate) struct LentMemory {
    /// Goes into every checksum, so that what another run has left in the same memory is never taken for good.
    salt: u32,
    /// What reads have found, by the serial number of the access, in its order.
    found: VecDeque<(u64, Box<[u8]>)>,
    unit: Vec<u8>,
}

impl LentMemory {
    pub(crate) fn new() -> LentMemory {
        LentMemory { salt: RandomState::new().hash_one(HEADER) as u32, found: VecDeque::new(), unit: Vec::new() }
    }

    /// Carries an access out. An error: what only messages carry is left, with the unit's bytes.
    pub(crate) fn access(
        &mut self,
        firmware: &Firmware,
        functions: &Functions,
        payload: &mut Payload,
        function: u8,
        access: &Access,
    ) -> Result<Answer, (Direction, Vec<Far>, Vec<u8>)> {
        let mut unit = std::mem::take(&mut self.unit);
        unit.clear();
        unit.resize(access.len as usize, 0);
        let (direction, carried) = match access.operation {
            // A page that has changed since has no copy that is good: what is not written fails its check.
            Operation::Write { content } if !fill(firmware, payload, access, content, &mut unit[HEADER as usize..]) => {
                (Direction::ToHost, Carried::Done)
            }
            Operation::Write { content } => {
                self.seal(access.stamp, content, &mut unit);
                (
                    Direction::ToHost,
                    functions.carry_lent(firmware, function, access.offset, Direction::ToHost, &mut unit),
                )
            }
            Operation::Read => (
                Direction::FromHost,
                functions.carry_lent(firmware, function, access.offset, Direction::FromHost, &mut unit),
            ),
        };
        let answer = match carried {
            Carried::Far(far) => return Err((direction, far, unit)),
            Carried::Done => self.carried(access, Some(&unit)),
            Carried::Failed => self.carried(access, None),
        };
        self.unit = unit;
        Ok(answer)
    }

    /// The answer to an access, when its bytes have been carried. `None`: they could not be.
    pub(crate) fn carried(&mut self, access: &Access, unit: Option<&Vec<u8>>) -> Answer {
        let Some(unit) = unit else { return Answer::Gone };
        if let Operation::Write { .. } = access.operation {
            return Answer::Written;
        }
        let answer = self.open(unit);
        if matches!(answer, Answer::Found { stamp, .. } if stamp == access.stamp) {
            if self.found.len() == FOUND_MAX {
                self.found.pop_front();
            }
            // Some accesses overtake those that take messages.
            let at = self.found.partition_point(|(serial, _)| *serial < access.serial);
            self.found.insert(at, (access.serial, Box::from(&unit[HEADER as usize..])));
        }
        answer
    }

    /// The bytes that an access has found, once.
    pub(crate) fn take(&mut self, serial: u64) -> Option<Box<[u8]>> {
        let at = self.found.binary_search_by_key(&serial, |(of, _)| *of).ok()?;
        self.found.remove(at).map(|(_, bytes)| bytes)
    }

    fn checksum(&self, unit: &[u8]) -> u32 {
        crc32c_append(self.salt, &unit[CHECKSUM..])
    }

    fn seal(&self, stamp: Stamp, content: u64, unit: &mut [u8]) {
        unit[CHECKSUM..8].copy_from_slice(&(stamp.used as u32).to_le_bytes());
        for (i, field) in [stamp.key, stamp.version, stamp.generation, content].into_iter().enumerate() {
            unit[8 + 8 * i..16 + 8 * i].copy_from_slice(&field.to_le_bytes());
        }
        let checksum = self.checksum(unit);
        unit[..CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }

    fn open(&self, unit: &[u8]) -> Answer {
        let word = |at: usize| u32::from_le_bytes(unit[at..at + 4].try_into().expect("four bytes"));
        let field = |i: usize| u64::from_le_bytes(unit[8 + 8 * i..16 + 8 * i].try_into().expect("eight bytes"));
        let used = Use::ALL.into_iter().find(|used| *used as u32 == word(CHECKSUM));
        match used {
            Some(used) if word(0) == self.checksum(unit) => {
                let stamp = Stamp { used, key: field(0), version: field(1), generation: field(2) };
                Answer::Found { stamp, content: field(3) }
            }
            _ => Answer::Damaged,
        }
    }
}

/// What a unit holds. False: it can't be had any more.
fn fill(firmware: &Firmware, payload: &mut Payload, access: &Access, content: u64, to: &mut [u8]) -> bool {
    let device = firmware.subsystem.device();
    let Ok(key) = u32::try_from(access.stamp.key) else { return false };
    if access.stamp.used == Use::MapCache {
        // A page of the map, as it stands: 4 bytes for each entry.
        let first = key.saturating_mul(to.len() as u32 / ENTRY_BYTES);
        for (lpn, entry) in (first..).zip(to.chunks_exact_mut(4)) {
            let place = if lpn < device.ftl().units() { device.ftl().map().get(lpn) } else { Entry::Unmapped };
            let number = if let Entry::At(ppn) = place { ppn } else { u32::MAX };
            entry.copy_from_slice(&number.to_le_bytes());
        }
        return true;
    }
    let place = device.locate(key);
    let unit = Unit { lpn: key, skip: 0, len: to.len() as u32, at: 0 };
    place.version() == Some(content) && payload.read(unit, place, to).is_ok()
}
