//! A purge: nothing is left of what no block holds any more, on whatever disk, and nothing is lost that a block holds.

use crate::image::model::{BLOCK, identify};
use crate::image::recording::{Disk, Fate, Log, Recording};
use crate::image::rig::{MIXED, OVERWRITE, Rig, tiny, wide};
use std::sync::{Arc, Mutex};
use tidewater_nand::FaultPlan;
use tidewater_serve::image::format::{HEADER, Superblock};
use tidewater_serve::image::{ImageOptions, SyncMode, Target};

fn rig(seed: u64, keeps_holes: bool) -> (Rig, Arc<Mutex<Log>>) {
    let (storage, log) = Recording::new(Vec::new());
    log.lock().unwrap().keeps_holes = keeps_holes;
    let profile = if seed.is_multiple_of(3) { wide() } else { tiny() };
    let sync = if seed.is_multiple_of(2) { SyncMode::Inline } else { SyncMode::Late(3) };
    let how = ImageOptions { sync, ..ImageOptions::default() };
    let mut rig = Rig::create(Target::Storage(Box::new(storage), "test"), &profile, seed, how).unwrap();
    rig.mix(if seed.is_multiple_of(2) { MIXED } else { OVERWRITE });
    (rig, log)
}

fn take(log: &Arc<Mutex<Log>>, disk: &mut Disk) {
    std::mem::take(&mut log.lock().unwrap().events).iter().for_each(|event| disk.apply(event));
}

/// What writes have left among the pages of an image: each sector's block and the write.
fn found(bytes: &[u8]) -> Vec<(u64, u64)> {
    let superblock = Superblock::decode(bytes[..HEADER].try_into().unwrap()).unwrap();
    let (first, end) = (superblock.geometry.data_at() as usize, superblock.geometry.file_len() as usize);
    let of = |sector: &[u8]| {
        let block = u64::from_le_bytes(sector[8..16].try_into().unwrap());
        identify(block, sector).filter(|&id| id != 0).map(|id| (block, id))
    };
    bytes[first..end].chunks_exact(BLOCK).filter_map(of).collect()
}

#[test]
fn nothing_is_left_of_what_no_block_holds() {
    let mut before = 0;
    for seed in 0..12 {
        for keeps_holes in [false, true] {
            let (mut rig, log) = rig(seed, keeps_holes);
            let mut disk = Disk::new(vec![0; rig.payload.image().file_len() as usize]);
            while rig.completed < 1_500 {
                rig.step();
            }
            rig.come_to_rest();
            rig.flush();
            take(&log, &mut disk);
            let mut held: Vec<(u64, u64)> = (0..).zip(rig.contents().unwrap()).filter(|&(_, id)| id != 0).collect();
            before += found(&disk.crash(Fate::All)).len() - held.len();
            rig.payload.purge(&rig.device).unwrap();
            rig.payload.image_mut().sync().unwrap();
            take(&log, &mut disk);
            for fate in [Fate::All, Fate::None] {
                let mut left = found(&disk.crash(fate));
                left.sort_unstable();
                held.sort_unstable();
                assert!(left == held, "seed {seed}: {} sectors, and {} are held", left.len(), held.len());
            }
        }
    }
    println!("{before} sectors of old writes before the purges");
    assert!(before > 10_000);
}

/// Whatever a crash leaves of a purge, blocks hold what they may: also those whose newest write is in memory alone.
#[test]
fn a_purge_loses_nothing_whenever_it_is_cut() {
    let mut crashes = 0;
    for seed in 0..16 {
        let (mut rig, log) = rig(seed, seed % 4 < 2);
        let mut disk = Disk::new(vec![0; rig.payload.image().file_len() as usize]);
        let how = ImageOptions { sync: SyncMode::Inline, ..ImageOptions::default() };
        for round in 1..6 {
            while rig.completed < round * 200 {
                rig.step();
            }
            take(&log, &mut disk);
            // In the middle of whatever the host and the drive do.
            rig.payload.purge(&rig.device).unwrap();
            let events = std::mem::take(&mut log.lock().unwrap().events);
            let every = events.len() / 6 + 1;
            for (i, event) in events.iter().enumerate() {
                disk.apply(event);
                if i % every != 0 && i + 1 != events.len() {
                    continue;
                }
                for fate in
                    [Fate::All, Fate::None, Fate::Random(seed << 16 | i as u64), Fate::Random(!seed << 16 | i as u64)]
                {
                    let target = Target::Storage(Box::new(Recording::new(disk.crash(fate)).0), "test");
                    let (mut after, _) = Rig::reopen(target, how, FaultPlan::default(), seed).unwrap();
                    let checked = after.check_after_crash(&rig.model);
                    checked.unwrap_or_else(|error| panic!("seed {seed}, round {round}, event {i}, {fate:?}: {error}"));
                    crashes += 1;
                }
            }
        }
        assert_eq!(rig.contents().unwrap().len() as u64, rig.model.blocks());
    }
    println!("{crashes} crashes");
}
