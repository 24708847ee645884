//! An image with memories behind its pages: a fast side's control blocks and rings, and a byte window's table and
//! sectors; and changes of them that bring the right checksums.

use super::reader::Reader;
use tidewater_core::device::{Input, Output};
use tidewater_core::fast::{Content, bar};
use tidewater_core::profile::{Profile, builtin};
use tidewater_core::subsystem::Unit;
use tidewater_core::{Device, Options};
use tidewater_nand::{Changes, Nand, Recorder};
use tidewater_serve::image::format::{
    self, LIST_ENTRY, LIST_SLOT, LOG_SECTOR, LogSector, MemoryEntry, Slot, Superblock,
};
use tidewater_serve::image::{Image, ImageOptions, Payload, SyncMode, Target};
use tidewater_wire::vendor::{ANYWHERE, WindowCommand};

const PAGE: usize = 4096;
/// Bytes of a slot for a control block, and for a window's table (docs/reference/image.md).
const BLOCK_SLOT: u64 = 16 << 10;
const TABLE_SLOT: u64 = 4096;
/// Events of the drive that made it.
const EVENTS: u32 = 3_000;

/// Something with a checksum of its own.
#[derive(Clone, Copy, Debug)]
enum Sealed {
    Slot { at: usize, len: usize },
    Sectors { at: usize, len: usize },
}

/// The bytes of an image with memories.
#[derive(Debug)]
pub struct Rich {
    pub bytes: Vec<u8>,
    salt: u32,
    parts: Vec<Sealed>,
}

fn tiny_with(settings: &[(&str, &str)]) -> Profile {
    let mut profile = builtin("tiny").expect("there is a profile of this name");
    for (key, value) in settings {
        profile.set(key, value).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    profile
}

/// A drive that is smaller still: an image of it is copied for each input.
pub fn smaller(settings: &[(&str, &str)]) -> Profile {
    let smaller = [("nand.page_size", "4KiB"), ("nand.pages_per_block", "8")];
    tiny_with(&[&smaller, settings].concat())
}

/// The smallest drive, with a fast side and a byte window.
pub fn profile() -> Profile {
    smaller(&[
        ("memory.sram.size", "96KiB"),
        ("memory.sram.survives", "by-capacitors"),
        ("fast.size", "32KiB"),
        ("fast.queue_size", "4KiB"),
        ("fast.log_size", "512KiB"),
        ("fast.lanes", "2"),
        ("fast.partial_after", "300us"),
        ("memory.ba.kind", "dram"),
        ("memory.ba.size", "64KiB"),
        ("memory.ba.survives", "by-capacitors"),
        ("window.size", "64KiB"),
        ("window.memory", "ba"),
    ])
}

/// The smallest drive, with a read cache and a mapping cache in memory that the host lends.
pub fn on_lent_memory() -> Profile {
    tiny_with(&[
        ("memory.host.kind", "host"),
        ("memory.host.size", "256KiB"),
        ("buffer.read_policy", "lru"),
        ("buffer.read_memory", "host"),
        ("buffer.read_size", "128KiB"),
        ("ftl.map_memory", "host"),
        ("ftl.map_floor", "8KiB"),
    ])
}

/// A drive that did something.
struct Maker {
    device: Device<Recorder<Nand>>,
    payload: Payload,
    changes: Changes,
}

impl Maker {
    fn keep(&mut self) {
        self.device.medium().take_changes(&mut self.changes);
        self.payload.apply(&self.changes).expect("memory takes it");
        let image = self.payload.image_mut();
        image.store_window(self.device.window(), self.device.ftl().write_sequence()).expect("memory takes it");
        image.store_logs(self.device.fast(), |_, _| false).expect("memory takes it");
    }

    fn give(&mut self, input: Input<'_>) {
        let now = self.device.now();
        let now = if matches!(input, Input::Timer) { self.device.deadline().unwrap_or(now) } else { now };
        self.device.handle(now, input).expect("its own profile allows it");
        self.keep();
        while let Some(output) = self.device.poll() {
            match output {
                Output::WindowLoad { lpn, place } => {
                    let mut page = vec![0; PAGE];
                    let unit = Unit { lpn, skip: 0, len: PAGE as u32, at: 0 };
                    self.payload.read(unit, place, &mut page).expect("memory gives it");
                    let fill = Input::WindowFill { lpn, content: Content::Bytes(&page) };
                    self.device.handle(now, fill).expect("it asked");
                }
                Output::Store { function, lpn, number, page, epoch } => {
                    let mut bytes = vec![0; page.len as usize];
                    self.device.fast().read_ring(function.into(), page.lane.into(), page.offset, &mut bytes);
                    self.payload.keep_log(lpn, &page.header(function, number, epoch, &bytes), &bytes);
                }
                _ => {}
            }
        }
    }

    /// Pins two entries, and stores into them and into both lanes, until pages are on flash.
    fn run(&mut self) {
        for entry in 0..2 {
            let lba = 64 * u64::from(entry);
            let pin = WindowCommand::Pin { entry, offset: ANYWHERE, lba, blocks: 16 };
            self.give(Input::Window { sqe: pin.emit(entry), data: &[], tag: u64::from(entry) + 1 });
        }
        let mut ends = [0; 2];
        for event in 0..EVENTS {
            if event % 40 == 0 {
                let function = &self.device.fast().functions()[0];
                let (setup, lane) = (*function.setup(), event as usize / 40 % 2);
                let credit = function.lanes()[lane].credit();
                let len = (credit + setup.queue_size - ends[lane])
                    .min(900)
                    .min(setup.ring_size - ends[lane] % setup.ring_size);
                let bytes = vec![event as u8; len as usize];
                let address = bar::ring_address(&setup, lane, ends[lane]);
                self.give(Input::Store { function: 0, address, content: Content::Bytes(&bytes) });
                ends[lane] += len;
                let address = self.device.window().bar_offset() + u64::from(event % 97) * 8;
                self.give(Input::Store { function: 0, address, content: Content::Bytes(&[event as u8; 64]) });
            }
            if self.device.deadline().is_some() {
                self.give(Input::Timer);
            }
        }
        self.payload.image_mut().sync().expect("memory takes it");
    }
}

impl Rich {
    /// Makes one.
    pub fn new() -> Rich {
        let folder = std::env::temp_dir().join(format!("tidewater-fuzz-rich-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let path = folder.join("drive");
        let options = Options { stamps: true, payload: true, volatile_buffer: true, ..Options::default() };
        let how = ImageOptions { sync: SyncMode::Inline, ..ImageOptions::default() };
        let made =
            Image::create(Target::Path(&path), &profile(), options, how, |nand: Nand| nand).expect("a new image");
        let payload = Payload::new(made.image, 4, 64 << 10, PAGE as u32);
        let mut maker = Maker { device: made.device, payload, changes: Changes::default() };
        maker.run();
        drop(maker);
        let bytes = std::fs::read(&path).expect("it was made");
        std::fs::remove_dir_all(&folder).expect("it is ours");
        Rich::of(bytes)
    }

    /// Finds its parts.
    fn of(bytes: Vec<u8>) -> Rich {
        let head = bytes.first_chunk().expect("an image has a superblock");
        let superblock = Superblock::decode(head).expect("it is a good one");
        let (salt, list) = (superblock.salt(), superblock.geometry.list_at());
        let slots = |at: u64, len: u64, count: u64| {
            (0..count).map(move |slot| Sealed::Slot { at: (at + slot * len) as usize, len: len as usize })
        };
        let mut parts: Vec<Sealed> = slots(list, LIST_SLOT, 2).collect();
        let newest = (0..2)
            .filter_map(|slot| {
                let at = list + slot * LIST_SLOT;
                Slot::decode(salt, at, &bytes[at as usize..][..LIST_SLOT as usize])
            })
            .max_by_key(|(number, _)| *number);
        let (_, entries) = newest.expect("it has memories");
        for entry in entries.as_chunks::<LIST_ENTRY>().0.iter().map(MemoryEntry::decode) {
            let slot = if entry.kind == 2 { BLOCK_SLOT } else { TABLE_SLOT };
            parts.extend(slots(entry.at, slot, 3));
            let (at, len) = ((entry.at + 3 * slot) as usize, (entry.room - 3 * slot) as usize);
            parts.push(Sealed::Sectors { at, len });
        }
        assert!(parts.len() == 2 + 2 * 4, "a log and a window: {parts:?}");
        Rich { salt, parts, bytes }
    }

    /// Changes some bytes of a part, behind its checksum, and seals what they are in.
    pub fn change(&self, bytes: &mut [u8], reader: &mut Reader<'_>) {
        let part = self.parts[usize::from(reader.byte()) % self.parts.len()];
        let place = reader.number(3) as usize;
        let len = usize::from(reader.byte() % 16) + 1;
        let change = reader.bytes(len);
        let (at, len) = match part {
            Sealed::Slot { at, len } => (at, len),
            Sealed::Sectors { at, len } => (at + place / LOG_SECTOR % (len / LOG_SECTOR) * LOG_SECTOR, LOG_SECTOR),
        };
        let whole = &mut bytes[at..at + len];
        // Most of a slot is empty: its first bytes say more.
        let bound = if matches!(part, Sealed::Slot { .. }) && place & 1 == 0 { 1024 } else { len };
        let first = 4 + place % (bound - 4);
        let change = &change[..change.len().min(len - first)];
        whole[first..first + change.len()].copy_from_slice(change);
        match part {
            Sealed::Slot { .. } => {
                let content = Slot::content_len(whole);
                if let Some(content) = whole[Slot::HEADER..].get(..content) {
                    let head = Slot::encode(self.salt, at as u64, format::u64_at(whole, 8), content);
                    whole[..Slot::HEADER].copy_from_slice(&head);
                }
            }
            Sealed::Sectors { .. } => {
                let found = LogSector {
                    generation: format::u32_at(whole, 4),
                    offset: format::u64_at(whole, 8),
                    skip: format::u32_at(whole, 16) as u16,
                    len: (format::u32_at(whole, 16) >> 16) as u16,
                };
                found.seal(self.salt, at as u64, whole);
            }
        }
    }
}
