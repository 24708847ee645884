//! What nothing of the drive stands for any more goes from the image (sanitize, secure erase): pages that were
//! superseded or deallocated, what a life before has left in a block that was erased, and pages that were not written
//! whole.

use super::format::{OwnRecord, PageRecord};
use super::payload::Payload;
use super::store::Image;
use std::collections::HashMap;
use tidewater_core::Device;
use tidewater_core::content::Whereabouts;
use tidewater_core::subsystem::StoreFault;
use tidewater_nand::{Medium, PageKind, Place};

/// Write sequence and program sequence of a copy on flash: of several the highest counts after a loss of power.
type Age = (u64, u64);

impl Payload {
    /// Overwrites all that is stored and that no unit of the drive refers to, now or after a loss of power; the next
    /// sync makes that safe. It waits for the disk.
    ///
    /// # Errors
    /// [`StoreFault`]: now or before.
    pub fn purge<M: Medium>(&mut self, device: &Device<M>) -> Result<(), StoreFault> {
        let image = self.image_mut();
        // The first writes what was put off and makes all safe, the second the note that says so. Pages up to there are
        // not looked at when the image is opened: one of which a part is cleared would be taken for torn, with the rest
        // of it.
        image.sync()?;
        image.sync()?;
        let fallbacks = fallbacks(image, device);
        let (medium, units) = (device.medium(), image.geometry.units_per_page());
        let unit_size = u64::from(image.geometry.unit_size);
        let mut room = vec![0; image.geometry.page_size as usize];
        for block in (0..image.geometry.blocks()).filter(|&block| image.was_used(block)).collect::<Vec<_>>() {
            let at = image.geometry.block_at(block);
            for page in 0..image.geometry.pages_per_block {
                let header = medium.header(at, page).filter(|_| page < medium.programmed(at));
                match header.map(|header| header.kind) {
                    None => image.clear(image.page_at(block, page), &mut room)?,
                    Some(PageKind::Map | PageKind::Trim) => {
                        let content = image.own_bytes(block, page)?;
                        image.clear(image.page_at(block, page) + content as u64, &mut room[content..])?;
                    }
                    Some(PageKind::Data) => {
                        for unit in 0..units {
                            let place = Place { at, page, unit };
                            if !is_needed(device, &fallbacks, place) {
                                let first = image.page_at(block, page) + u64::from(unit) * unit_size;
                                image.clear(first, &mut room[..unit_size as usize])?;
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Of units whose content, or whose deallocation, is not on flash yet, the copy there that a loss of power falls back
/// to.
fn fallbacks<M: Medium>(image: &Image, device: &Device<M>) -> HashMap<u32, (Age, Place)> {
    let medium = device.medium();
    let deallocated: Vec<(u32, u32)> = device.staged_deallocations().collect();
    let falls_back = |lpn: u32| {
        matches!(device.locate(lpn), Whereabouts::Buffered { .. } | Whereabouts::Staged { .. })
            || deallocated.iter().any(|&(first, count)| lpn >= first && lpn - first < count.max(1))
    };
    let mut newest: HashMap<u32, (Age, Place)> = HashMap::new();
    for block in (0..image.geometry.blocks()).filter(|&block| image.was_used(block)) {
        let at = image.geometry.block_at(block);
        for page in 0..medium.programmed(at) {
            let Some(header) = medium.header(at, page).filter(|header| header.kind == PageKind::Data) else { continue };
            for unit in 0..image.geometry.units_per_page() {
                let Some(stamp) = medium.stamp(at, page, unit).filter(|stamp| falls_back(stamp.lpn)) else { continue };
                let found = ((stamp.sequence, header.program_sequence), Place { at, page, unit });
                let known = newest.entry(stamp.lpn).or_insert(found);
                if found.0 > known.0 {
                    *known = found;
                }
            }
        }
    }
    newest
}

fn is_needed<M: Medium>(device: &Device<M>, fallbacks: &HashMap<u32, (Age, Place)>, place: Place) -> bool {
    let Place { at, page, unit } = place;
    let Some(stamp) = device.medium().stamp(at, page, unit) else { return false };
    device.locate(stamp.lpn) == Whereabouts::Flash { version: stamp.version, at, page, unit }
        || fallbacks.get(&stamp.lpn).is_some_and(|(_, newest)| *newest == place)
}

impl Image {
    /// Something was ever programmed into a block, as far as is known.
    fn was_used(&self, block: u32) -> bool {
        let state = &self.blocks[block as usize];
        state.used || state.generation_max > 0 || state.record.generation > 0
    }

    fn page_at(&self, block: u32, page: u32) -> u64 {
        self.payload_at(self.geometry.page(block, page))
    }

    /// Bytes that a page of the firmware's own has as payload.
    fn own_bytes(&mut self, block: u32, page: u32) -> Result<usize, StoreFault> {
        let number = self.geometry.page(block, page);
        let mut record = vec![0; self.geometry.page_record()];
        let read = self.storage.read_at(self.geometry.record_of(number), &mut record);
        self.wrote(read)?;
        // One that is not there is not there after a loss of power either.
        let is_there = PageRecord::decode(self.salt, number, &record).is_some();
        Ok(if is_there { self.own_words(number, &OwnRecord::decode(&record)) as usize * 4 } else { 0 })
    }

    /// Overwrites as many bytes as `room` has with zeroes, unless they are zeroes: what takes no room on the disk still
    /// takes none then.
    fn clear(&mut self, at: u64, room: &mut [u8]) -> Result<(), StoreFault> {
        if room.is_empty() || self.storage.read_at(at, room).is_ok() && room.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        room.fill(0);
        let result = self.storage.write_at(at, room);
        self.wrote(result)
    }
}
