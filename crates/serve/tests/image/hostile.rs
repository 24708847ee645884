//! Files that are no images, damaged images, and forged images: an error in words, never a panic.

use crate::image::recording::Recording;
use crate::image::rig::{Rig, options, tiny, wide};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use tidewater_base::{Duration, Rng};
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_core::{Device, Options};
use tidewater_nand::{FaultPlan, Medium, Nand};
use tidewater_serve::image::format::{self, Slot, Superblock};
use tidewater_serve::image::{Image, ImageError, ImageOptions, MemoryStorage, Opened, Target};

/// A drive that was used, as bytes.
fn used() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let mut rig = Rig::create(Target::Path(&path), &wide(), 1, ImageOptions::default()).unwrap();
    while rig.completed < 600 {
        rig.step();
    }
    rig.come_to_rest();
    rig.payload.image_mut().save_metadata(&[7; 5_000]).unwrap();
    drop(rig);
    std::fs::read(&path).unwrap()
}

fn open(bytes: Vec<u8>) -> Result<Opened, ImageError> {
    let storage = Box::new(MemoryStorage::from_bytes(bytes));
    Image::open(Target::Storage(storage, "test.tide"), None, ImageOptions::default(), |nand: Nand| nand)
}

/// Opens it, starts the drive, reads everything and goes on for a while. What comes out does not matter.
fn survive(bytes: Vec<u8>) -> bool {
    let target = Target::Storage(Box::new(Recording::new(bytes).0), "test.tide");
    let Ok((mut rig, _)) = Rig::reopen(target, ImageOptions::default(), FaultPlan::default(), 1) else { return false };
    for lpn in 0..(rig.model.blocks() / 8) as u32 {
        let _ = rig.read_unit(lpn);
    }
    for i in 0..20 {
        rig.write(i * 8..i * 8 + 8, false);
    }
    true
}

#[test]
fn damaged_bytes_are_an_error_in_words_or_do_no_harm() {
    let image = used();
    let mut rng = Rng::new(1, b"damage");
    let geometry = superblock(&image).geometry;
    let (mut opened, mut refused) = (0, 0);
    for round in 0..400 {
        let mut bytes = image.clone();
        match round % 4 {
            0 => bytes.truncate(rng.below(bytes.len() as u64) as usize),
            kind => {
                // Where the numbers are.
                let end = if kind == 1 { format::HEADER as u64 } else { geometry.data_at() };
                for _ in 0..1 + rng.below(40) {
                    let at = rng.below(end) as usize;
                    bytes[at] = rng.next_u64() as u8;
                }
            }
        }
        if survive(bytes) { opened += 1 } else { refused += 1 }
    }
    println!("{opened} opened, {refused} refused");
    assert!(opened > 50 && refused > 50);
}

fn superblock(image: &[u8]) -> Superblock {
    Superblock::decode(image[..format::HEADER].try_into().unwrap()).unwrap()
}

/// Checksums keep mistakes out, not forgers: a record with a right checksum gives an error or a drive, too.
#[test]
fn forged_records_are_an_error_or_a_drive() {
    let image = used();
    let superblock = superblock(&image);
    let (salt, geometry) = (superblock.salt(), superblock.geometry);
    let mut rng = Rng::new(2, b"forge");
    let (mut opened, mut refused) = (0, 0);
    for round in 0..300 {
        let mut bytes = image.clone();
        let forge = |bytes: &mut [u8], rng: &mut Rng| {
            let interesting = [0, 1, u64::MAX, u64::MAX >> 1, 1 << 32, 1 << 62, rng.next_u64(), rng.below(1 << 20)];
            let value = interesting[rng.below(8) as usize].to_le_bytes();
            let at = 4 + rng.below(bytes.len() as u64 - 12) as usize / 4 * 4;
            let len = [1, 4, 8][rng.below(3) as usize];
            bytes[at..at + len].copy_from_slice(&value[..len]);
        };
        if round % 5 == 0 {
            // The superblock itself.
            forge(&mut bytes[16..format::HEADER], &mut rng);
            let sum = format::checksum(0, 0, &bytes[16..format::HEADER]);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        } else if round % 5 == 1 {
            let block = rng.below(geometry.blocks().into());
            for slot in 0..2 {
                let at = geometry.blocks_at() as usize + (block as usize * 2 + slot) * format::BLOCK_RECORD;
                let record = &mut bytes[at..at + format::BLOCK_RECORD];
                forge(record, &mut rng);
                let sum = format::checksum(salt, block, &record[4..]);
                record[..4].copy_from_slice(&sum.to_le_bytes());
            }
        } else {
            // Pages that are there, some of them of the firmware's own.
            let pages = geometry.page(geometry.blocks(), 0);
            let mut left = 4;
            while left > 0 {
                let page = rng.below(pages);
                let at = geometry.record_of(page) as usize;
                let record = &mut bytes[at..at + geometry.page_record()];
                if record[30] == 0 {
                    continue;
                }
                left -= 1;
                forge(record, &mut rng);
                let data = geometry.data_of(page) as usize..geometry.data_of(page + 1) as usize;
                let is_own = matches!(record[30], 2 | 3);
                format::PageRecord::seal(salt, page, record);
                if is_own && rng.below(2) == 0 {
                    let own = format::OwnRecord::decode(record);
                    let part = (own.words as usize).saturating_sub(4).min(geometry.page_size as usize / 4) * 4;
                    if part > 16 {
                        forge(&mut bytes[data.clone()][..part], &mut rng);
                    }
                    let sum = crc32c(&bytes[data][..part]);
                    let record = &mut bytes[at..at + geometry.page_record()];
                    format::OwnRecord { sum, ..own }.encode(record);
                    format::PageRecord::seal(salt, page, record);
                }
            }
        }
        if survive(bytes) { opened += 1 } else { refused += 1 }
    }
    println!("{opened} opened, {refused} refused");
    assert!(opened > 50 && refused > 50);
}

/// Records that are written in two slots in turn, with numbers and epochs that nothing ever gets to.
#[test]
fn forged_slots_are_an_error_or_a_drive() {
    let image = used();
    let superblock = superblock(&image);
    let (salt, geometry) = (superblock.salt(), superblock.geometry);
    let kinds = [
        (geometry.state_at(), format::STATE_SLOT),
        (geometry.metadata_at(), geometry.metadata_slot()),
        (geometry.list_at(), format::LIST_SLOT),
    ];
    let put = |bytes: &mut [u8], at: u64, number: u64, content: &[u8]| {
        let place = &mut bytes[at as usize..][..Slot::HEADER + content.len()];
        place[..Slot::HEADER].copy_from_slice(&Slot::encode(salt, at, number, content));
        place[Slot::HEADER..].copy_from_slice(content);
    };
    for (first, size) in kinds {
        for at in [first, first + size] {
            for number in [1 << 62, 1 << 63, u64::MAX - 1, u64::MAX] {
                let mut bytes = image.clone();
                let len = Slot::content_len(&bytes[at as usize..]);
                let content = bytes[at as usize + Slot::HEADER..][..len].to_vec();
                put(&mut bytes, at, number, &content);
                survive(bytes);
            }
        }
    }
    for epoch in [(1 << 47) - 1, 1 << 47, 1 << 48, u64::MAX] {
        let mut bytes = image.clone();
        for slot in 0..2 {
            put(&mut bytes, geometry.state_at() + slot * format::STATE_SLOT, 1 << 40, &u64::to_le_bytes(epoch));
        }
        assert_eq!(survive(bytes), epoch < 1 << 47, "{epoch:#x}");
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    tidewater_base::checksum::crc32c(bytes)
}

fn refusal(result: Result<Opened, ImageError>) -> String {
    match result {
        Ok(_) => panic!("it was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_its_fix() {
    let image = used();
    let says = |bytes: Vec<u8>, words: &[&str]| {
        let said = refusal(open(bytes));
        assert!(said.starts_with("test.tide: ") && words.iter().all(|word| said.contains(word)), "{said}");
    };
    says(Vec::new(), &["not a drive image", "0 bytes"]);
    says(vec![0; 8_192], &["zeroes", "give another path"]);
    says(b"#!/bin/sh\n".repeat(1_000), &["not a drive image", "another path"]);
    says(image[..image.len() - 1].to_vec(), &["damaged at byte", "copy"]);
    let mut newer = image.clone();
    newer[8..12].copy_from_slice(&9u32.to_le_bytes());
    says(newer, &["format 9", "newer tidewater"]);
    let mut flipped = image.clone();
    flipped[50] ^= 1;
    says(flipped, &["damaged at byte 0", "checksum"]);
    let mut text = image.clone();
    text[format::HEADER + 20] ^= 1;
    says(text, &["damaged at byte 4096", "profile"]);
    assert!(open(image).is_ok());
}

#[test]
fn an_image_is_for_one_process_one_owner_and_one_shape() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let how = ImageOptions::default();
    fn open(path: &Path, given: Option<&Profile>) -> Result<Opened, ImageError> {
        Image::open(Target::Path(path), given, ImageOptions::default(), |nand: Nand| nand)
    }
    let made = Image::create(Target::Path(&path), &tiny(), options(), how, |nand| nand).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(refusal(open(&path, None)).contains("another process"));
    let again = Image::create(Target::Path(&path), &tiny(), options(), how, |nand| nand);
    assert!(matches!(again, Err(ImageError::Exists { .. })));
    drop(made);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(refusal(open(&link, None)).contains("symbolic link"));
    assert!(refusal(open(folder.path(), None)).contains("folder"));
    assert!(matches!(open(&folder.path().join("none"), None), Err(ImageError::Io { .. })));

    let with = |change: &dyn Fn(&mut Profile)| {
        let mut profile = tiny();
        change(&mut profile);
        profile
    };
    let wrong = with(&|p| p.nand.page_size = 8 << 10);
    let said = refusal(open(&path, Some(&wrong)));
    assert!(said.contains("nand.page_size") && said.contains("4KiB") && said.contains("8KiB"), "{said}");
    let said = refusal(open(&path, Some(&with(&|p| p.ftl.over_provisioning = 0.5))));
    assert!(said.contains("usable units") || said.contains("superblocks"), "{said}");
    // What does not say where things are may change.
    let faster = with(&|p| p.nand.read_time = [Duration::from_us(1); 3]);
    let opened = open(&path, Some(&faster)).unwrap();
    assert_eq!(opened.profile, faster);
    assert!(Device::power_on(&opened.profile, opened.remains).is_ok());
    drop(opened.image);
    assert_eq!(open(&path, None).unwrap().profile, tiny());

    let past = Options { precondition: Precondition::Steady, ..options() };
    let said = Image::create(Target::Memory, &tiny(), past, how, |nand| nand).err().unwrap().to_string();
    assert!(said.contains("starts fresh"), "{said}");
}

/// A drive that was being made when the process ended is made anew.
#[test]
fn what_an_interrupted_making_left_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let how = ImageOptions::default();
    std::fs::write(folder.path().join("drive.unfinished"), [7; 10_000]).unwrap();
    let made = Image::create(Target::Path(&path), &tiny(), options(), how, |nand| nand).unwrap();
    drop(made);
    assert!(Image::open(Target::Path(&path), None, how, |nand: Nand| nand).is_ok());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// A crash may keep the pages of a block's new life and lose the record of its erase. Its next erase once gave it the
/// very generation of those pages, and they counted again.
#[test]
fn pages_that_outlive_the_record_of_their_block_never_come_back() {
    let mut bytes = used();
    let superblock = superblock(&bytes);
    let (salt, geometry) = (superblock.salt(), superblock.geometry);
    let medium = open(bytes.clone()).unwrap().remains;
    let mut tried = 0;
    let mut chosen = Vec::new();
    for block in 0..geometry.blocks() {
        let records = geometry.blocks_at() as usize + block as usize * 2 * format::BLOCK_RECORD;
        let pair = &mut bytes[records..records + 2 * format::BLOCK_RECORD];
        let Some(record) = format::BlockRecord::decode(salt, block, pair) else { continue };
        if record.generation == 0 || medium.medium().programmed(geometry.block_at(block)) == 0 {
            continue;
        }
        let older = format::BlockRecord { generation: record.generation - 1, ..record };
        pair[..format::BLOCK_RECORD].copy_from_slice(&older.encode(salt, block));
        pair[format::BLOCK_RECORD..].fill(0);
        chosen.push(geometry.block_at(block));
        tried += 1;
    }
    // How many depends on when syncs end, which threads do.
    assert!(tried > 8, "{tried}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    std::fs::write(&path, bytes).unwrap();
    let open = || Image::open(Target::Path(&path), None, ImageOptions::default(), |nand: Nand| nand).unwrap();
    let mut opened = open();
    for &at in &chosen {
        opened.image.erase(at, 9).unwrap();
    }
    opened.image.sync().unwrap();
    drop(opened);
    let opened = open();
    assert!(chosen.iter().all(|&at| opened.remains.medium().programmed(at) == 0));
    assert!(chosen.iter().all(|&at| opened.remains.medium().erase_count(at) == 9));
}
