//! A disk that is full, a sync that fails, metadata that is interrupted, and bits that rot.

use crate::image::recording::{Disk, Event, Fate, Recording};
use crate::image::rig::{MIXED, OVERWRITE, Rig, tiny, wide};
use tidewater_base::Rng;
use tidewater_core::subsystem::MoveError;
use tidewater_nand::FaultPlan;
use tidewater_nand::Nand;
use tidewater_serve::image::Disk as State;
use tidewater_serve::image::format::{HEADER, Superblock};
use tidewater_serve::image::{Image, ImageError, ImageOptions, MemoryKind, SyncMode, Target};

fn how(sync: SyncMode) -> ImageOptions {
    ImageOptions { sync, ..ImageOptions::default() }
}

#[test]
fn a_full_disk_loses_nothing_that_was_promised() {
    let (mut refused, mut read) = (0, 0);
    for seed in 0..24 {
        let (storage, log) = Recording::new(Vec::new());
        let sync = if seed % 2 == 0 { SyncMode::Inline } else { SyncMode::Late(3) };
        let profile = if seed % 3 == 0 { wide() } else { tiny() };
        let target = Target::Storage(Box::new(storage), "test");
        let mut rig = Rig::create(target, &profile, seed, how(sync)).unwrap();
        rig.mix(if seed % 2 == 0 { MIXED } else { OVERWRITE });
        let mut disk = Disk::new(vec![0; rig.payload.image().file_len() as usize]);
        while rig.completed < 150 {
            rig.step();
        }
        if seed % 4 == 3 {
            log.lock().unwrap().fail_syncs = true;
        } else {
            log.lock().unwrap().fail_in = Some(seed * 5);
        }
        rig.faulty = true;
        // What was written stays readable, what was flushed is still flushed, and flushes fail from now on.
        while rig.completed < 450 && rig.step() {}
        assert!(rig.payload.image().is_faulted());
        let is = if seed % 4 == 3 { State::Failed } else { State::Full };
        assert_eq!(rig.payload.image().disk(), is);
        let found = rig.contents().unwrap();
        read += found.len();
        refused += rig.refused;
        assert!(rig.payload.image_mut().save_metadata(b"no").is_err());
        let events = std::mem::take(&mut log.lock().unwrap().events);
        events.iter().for_each(|event| disk.apply(event));
        for fate in [Fate::All, Fate::None, Fate::Random(seed), Fate::Random(seed + 100)] {
            let target = Target::Storage(Box::new(Recording::new(disk.crash(fate)).0), "test");
            let (mut after, _) = Rig::reopen(target, how(sync), FaultPlan::default(), seed).unwrap();
            after.check_after_crash(&rig.model).unwrap_or_else(|error| panic!("{fate:?}: {error}"));
        }
    }
    println!("{refused} commands refused, {read} blocks read from drives whose store had failed");
    assert!(refused > 100);
}

/// That is when a device may start anew: what it finds is what a crash would have left.
#[test]
fn a_full_disk_has_room_again_only_where_what_was_written_can_be_synced() {
    let (storage, log) = Recording::new(Vec::new());
    let target = Target::Storage(Box::new(storage), "test");
    let mut rig = Rig::create(target, &tiny(), 1, how(SyncMode::Late(3))).unwrap();
    let set = |room, fail_syncs| {
        let mut log = log.lock().unwrap();
        (log.fail_in, log.room, log.fail_syncs) = (Some(0), room, fail_syncs);
    };
    assert!(!rig.payload.image_mut().has_room(), "it works, and nothing is to be found out");
    set(false, false);
    rig.faulty = true;
    while rig.payload.image().disk() == State::Works {
        assert!(rig.step());
    }
    assert!(!rig.payload.image_mut().has_room(), "it is full");
    set(true, false);
    assert!(rig.payload.image_mut().has_room() && rig.payload.image().disk() == State::Full);
    set(true, true);
    assert!(!rig.payload.image_mut().has_room() && rig.payload.image().disk() == State::Failed);
    set(true, false);
    assert!(!rig.payload.image_mut().has_room(), "a sync that succeeds after one that failed proves nothing");
}

/// Memory for what is stored does not grow with payload: `docs/reference/image.md` names the figure.
#[test]
fn tables_take_a_mebibyte_for_each_gibibyte() {
    let mut profile = tidewater_core::profile::Profile::generic();
    profile.drive.capacity = 8 << 30;
    let made =
        Image::create(Target::Memory, &profile, crate::image::rig::options(), how(SyncMode::Inline), |nand| nand)
            .unwrap();
    let tables = made.image.table_bytes_per_gib();
    assert!((1 << 20..(1 << 20) + (16 << 10)).contains(&tables), "{tables}");
}

#[test]
fn metadata_is_old_or_new_and_whole() {
    let (storage, log) = Recording::new(Vec::new());
    let target = Target::Storage(Box::new(storage), "test");
    let mut rig = Rig::create(target, &tiny(), 1, how(SyncMode::Late(1))).unwrap();
    let mut disk = Disk::new(vec![0; rig.payload.image().file_len() as usize]);
    let drain = || std::mem::take(&mut log.lock().unwrap().events);
    drain().iter().for_each(|event| disk.apply(event));
    let mut rng = Rng::new(1, b"metadata");
    let (mut crashes, mut old, mut new) = (0, 0, 0);
    let mut before = Vec::new();
    for round in 0..20u64 {
        for _ in 0..20 {
            rig.step();
        }
        drain().iter().for_each(|event| disk.apply(event));
        let blob: Vec<u8> = (0..1 + rng.below(9_000)).map(|i| (i ^ round) as u8).collect();
        rig.payload.image_mut().save_metadata(&blob).unwrap();
        let events = drain();
        for (i, event) in events.iter().enumerate() {
            disk.apply(event);
            for fate in [Fate::All, Fate::None, Fate::Random(rng.next_u64()), Fate::Random(rng.next_u64())] {
                let target = Target::Storage(Box::new(Recording::new(disk.crash(fate)).0), "test");
                let (after, _) = Rig::reopen(target, how(SyncMode::Inline), FaultPlan::default(), 1).unwrap();
                let found = after.payload.image().metadata();
                crashes += 1;
                old += u64::from(found == before);
                new += u64::from(found == blob);
                assert!(found == blob || i + 1 < events.len() && found == before, "{fate:?} at {i}");
            }
        }
        assert_eq!(rig.payload.image().metadata(), blob);
        before = blob;
    }
    println!("{crashes} crashes while metadata was saved: {old} found the old, {new} the new");
    assert!(old > 50 && new > 50);
}

#[test]
fn an_interrupted_making_leaves_no_image_or_a_whole_one() {
    let (storage, log) = Recording::new(Vec::new());
    let rig = Rig::create(Target::Storage(Box::new(storage), "test"), &wide(), 1, how(SyncMode::Inline)).unwrap();
    let mut disk = Disk::new(vec![0; rig.payload.image().file_len() as usize]);
    let events = std::mem::take(&mut log.lock().unwrap().events);
    let (mut none, mut whole) = (0, 0);
    for (i, event) in events.iter().enumerate() {
        disk.apply(event);
        for fate in [Fate::All, Fate::None, Fate::Random(i as u64), Fate::Random(i as u64 + 1_000)] {
            let target = Target::Storage(Box::new(Recording::new(disk.crash(fate)).0), "test");
            match Rig::reopen(target, how(SyncMode::Inline), FaultPlan::default(), 1) {
                Ok((mut rig, _)) => {
                    assert!(rig.contents().unwrap().iter().all(|&id| id == 0));
                    whole += 1;
                }
                Err(ImageError::NotAnImage { .. } | ImageError::Damaged { .. }) => none += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    println!("{} events: {none} found no image, {whole} a whole one", events.len());
    assert!(none > 10 && whole > 2);
}

/// An image without a list of memories is read as it is. It gets one when a memory needs a place, whole or not at all;
/// and a memory that grows keeps what it held.
#[test]
fn an_image_of_version_1_is_raised_when_a_memory_needs_a_place() {
    let (storage, log) = Recording::new(Vec::new());
    let rig = Rig::create(Target::Storage(Box::new(storage), "test"), &wide(), 1, how(SyncMode::Inline)).unwrap();
    let mut disk = Disk::new(vec![0; rig.payload.image().file_len() as usize]);
    log.lock().unwrap().events.iter().for_each(|event| disk.apply(event));
    let mut old = disk.crash(Fate::All);
    let superblock = Superblock::decode(old[..HEADER].try_into().unwrap()).unwrap();
    old.truncate(superblock.geometry.file_len() as usize);
    old[8] = 1;
    let open = |bytes: Vec<u8>| {
        let (storage, log) = Recording::new(bytes);
        let target = Target::Storage(Box::new(storage), "test");
        let opened = Image::open(target, None, how(SyncMode::Inline), |nand: Nand| nand).unwrap();
        (opened.image, opened.report, log)
    };
    let (mut image, report, log) = open(old.clone());
    assert_eq!((report.version, image.version()), (1, 1));
    log.lock().unwrap().events.clear();
    let small = image.memory(MemoryKind::Pmr, 3, 8_000).unwrap();
    assert!(image.write_memory(small, 8_190, b"xyz").is_err(), "it has two pages");
    image.write_memory(small, 100, b"stays").unwrap();
    image.sync().unwrap();
    let large = image.memory(MemoryKind::Pmr, 3, 100_000).unwrap();
    assert!(large != small && image.memory(MemoryKind::Pmr, 3, 5).unwrap() == large);
    assert_eq!(image.version(), 2);
    let mut disk = Disk::new(old);
    disk.resize(image.file_len() as usize);
    let events = std::mem::take(&mut log.lock().unwrap().events);
    let (mut raised, mut kept) = (0, 0);
    for (i, event) in events.iter().enumerate() {
        disk.apply(event);
        for fate in [Fate::All, Fate::None, Fate::Random(i as u64), Fate::Random(i as u64 + 1_000)] {
            let (mut image, report, _) = open(disk.crash(fate));
            raised += u64::from(report.version == 2);
            let memory = image.memory(MemoryKind::Pmr, 3, 8_000).unwrap();
            let mut bytes = [0; 5];
            image.read_memory(memory, 100, &mut bytes).unwrap();
            kept += u64::from(&bytes == b"stays");
            assert!(&bytes == b"stays" || bytes == [0; 5], "{bytes:?}");
        }
    }
    println!("{} events: raised {raised} times, content kept {kept} times", events.len());
    let (mut image, ..) = open(disk.crash(Fate::None));
    let memory = image.memory(MemoryKind::Pmr, 3, 8_000).unwrap();
    let mut bytes = [0; 5];
    image.read_memory(memory, 100, &mut bytes).unwrap();
    assert!(memory == large && &bytes == b"stays" && raised > 10 && kept > 5);
}

/// A unit that rots fails to read, also once collection has copied it; others do not, and a write makes it whole again.
#[test]
fn rotten_bits_are_never_returned() {
    let (storage, log) = Recording::new(Vec::new());
    let mut rig = Rig::create(Target::Storage(Box::new(storage), "test"), &wide(), 5, how(SyncMode::Inline)).unwrap();
    while rig.completed < 300 {
        rig.step();
    }
    rig.come_to_rest();
    // Cold data in the midst of hot: collection moves it.
    let units = (rig.model.blocks() / 8) as u32;
    let victim = units - 3;
    assert!(rig.write(u64::from(victim) * 8..u64::from(victim) * 8 + 8, false));
    rig.flush();
    let content = rig.read_unit(victim).unwrap();
    let mut bytes = vec![0; rig.payload.image().file_len() as usize];
    for event in &log.lock().unwrap().events {
        match event {
            Event::Write { at, bytes: written } => bytes[*at as usize..][..written.len()].copy_from_slice(written),
            Event::Punch { at, len } => bytes[*at as usize..][..*len as usize].fill(0),
            _ => {}
        }
    }
    let at = bytes.windows(content.len()).step_by(512).position(|window| window == content).expect("it is there") * 512;
    bytes[at + 3_000] ^= 4;
    let target = Target::Storage(Box::new(Recording::new(bytes).0), "test");
    // All pages were synced, so none is checked before it is read.
    let (mut rig, report) = Rig::reopen(target, how(SyncMode::Inline), FaultPlan::default(), 5).unwrap();
    assert_eq!(report.torn, 0);
    let before = rig.device.locate(victim);
    let check = |rig: &mut Rig| {
        for lpn in 0..units {
            let result = rig.read_unit(lpn);
            assert_eq!(result.err(), (lpn == victim).then_some(MoveError::Medium), "{lpn}");
        }
    };
    check(&mut rig);
    for round in 0..2_000u64 {
        let first = round * 31 % u64::from(victim) * 8;
        assert!(rig.write(first..first + 8, false));
        if rig.device.locate(victim) != before {
            break;
        }
    }
    assert_ne!(rig.device.locate(victim), before, "collection never came by");
    rig.flush();
    check(&mut rig);
    // A part of it that is written does not make it readable; all of it does.
    assert!(rig.write(u64::from(victim) * 8 + 2..u64::from(victim) * 8 + 5, true));
    check(&mut rig);
    assert!(rig.write(u64::from(victim) * 8..u64::from(victim) * 8 + 8, true));
    assert!(rig.read_unit(victim).is_ok());
}
