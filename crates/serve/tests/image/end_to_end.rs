//! Random commands against a model, byte by byte, while the drive collects; over power cuts inside and restarts.

use crate::image::recording::{Disk, Fate, Log, Recording};
use crate::image::rig::{DEALLOCATE, MIXED, Mix, OVERWRITE, Rig, hybrid, tiny, wide};
use std::sync::{Arc, Mutex};
use tidewater_core::profile::Profile;
use tidewater_nand::FaultPlan;
use tidewater_serve::image::{ImageOptions, SyncMode, Target};

fn run(profile: &Profile, mix: Mix, sync: SyncMode, seed: u64, commands: u64) -> (Rig, Arc<Mutex<Log>>) {
    let how = ImageOptions { sync, ..ImageOptions::default() };
    let (storage, log) = Recording::new(Vec::new());
    let mut rig = Rig::create(Target::Storage(Box::new(storage), "test"), profile, seed, how).expect("it is made");
    rig.mix(mix);
    while rig.completed < commands {
        assert!(rig.step(), "the drive hangs");
    }
    rig.come_to_rest();
    rig.device.ftl().assert_consistent();
    (rig, log)
}

#[test]
fn what_is_read_is_what_was_written() {
    for (i, (profile, mix)) in
        [(tiny(), MIXED), (tiny(), OVERWRITE), (wide(), DEALLOCATE), (wide(), MIXED)].into_iter().enumerate()
    {
        for sync in [SyncMode::Inline, SyncMode::Threaded, SyncMode::Late(5)] {
            let (mut rig, _) = run(&profile, mix, sync, 7 + i as u64, 3_000);
            let found = rig.contents().unwrap();
            assert!((0..).zip(&found).all(|(block, &id)| id == rig.model.now(block)));
            rig.payload.sweep(rig.device.unprogrammed());
            assert!(rig.payload.held() <= 64, "{} units are held without need", rig.payload.held());
            let ftl = rig.device.ftl().statistics;
            let image = rig.payload.image().statistics();
            println!(
                "{} {sync:?}: {} commands, {} blocks read, {} collected, {} erases, {image:?}",
                profile.name, rig.completed, rig.read_blocks, ftl.collected, ftl.erases_total
            );
            assert!(rig.read_blocks > 500 && ftl.collected > 100 && ftl.erases_total > 100 && image.copied > 100);
        }
    }
}

/// Pages that merges copy, from flash and from the controller's memory, and those that move within the log, keep their
/// bytes.
#[test]
fn what_is_read_is_what_was_written_over_hybrid_mapping() {
    for i in 0..8 {
        let (mix, sync) =
            ([MIXED, OVERWRITE, DEALLOCATE][i as usize % 3], [SyncMode::Inline, SyncMode::Late(5)][i as usize % 2]);
        let (mut rig, _) = run(&hybrid(i), mix, sync, 70 + i, 3_000);
        let found = rig.contents().unwrap();
        assert!((0..).zip(&found).all(|(block, &id)| id == rig.model.now(block)));
        rig.payload.sweep(rig.device.unprogrammed());
        assert!(rig.payload.held() <= 64, "{} units are held without need", rig.payload.held());
        let ftl = rig.device.ftl().statistics;
        let image = rig.payload.image().statistics();
        println!("{} {sync:?}: {} commands, {ftl:?}, {image:?}", hybrid(i).name, rig.completed);
        assert!(ftl.merges_full > 50 && ftl.merges_partial > 5 && image.copied > 500, "{ftl:?}, {image:?}");
        assert_eq!(ftl.second_chances > 0 && ftl.units_isolated > 0, i % 2 == 1, "{ftl:?}");
    }
}

#[test]
fn a_power_cut_inside_keeps_what_was_flushed() {
    for seed in 0..24 {
        let profile = match seed {
            0..12 if seed % 2 == 0 => tiny(),
            0..12 => wide(),
            _ => hybrid(seed),
        };
        let (mut rig, log) = run(&profile, MIXED, SyncMode::Late(3), seed, 400);
        for life in 0..4 {
            for _ in 0..500 + 100 * seed + 37 * life {
                rig.step();
            }
            let (mut next, model) = rig.cut_power();
            next.check_after_crash(&model).unwrap();
            rig = next;
        }
        // What the cuts have torn is torn at the next open of the image, too.
        rig.flush();
        let model = rig.model.clone();
        let mut disk = Disk::new(vec![0; rig.payload.image().file_len() as usize]);
        log.lock().unwrap().events.iter().for_each(|event| disk.apply(event));
        for fate in [Fate::All, Fate::None, Fate::Random(seed)] {
            let target = Target::Storage(Box::new(Recording::new(disk.crash(fate)).0), "test");
            let (mut next, _) = Rig::reopen(target, ImageOptions::default(), FaultPlan::default(), seed).unwrap();
            next.check_after_crash(&model).unwrap_or_else(|error| panic!("seed {seed}, {fate:?}: {error}"));
        }
    }
}

#[test]
fn flash_that_fails_loses_no_payload() {
    for seed in 0..16 {
        let mut profile = if seed < 8 { wide() } else { hybrid(seed) };
        profile.ftl.spare_blocks = 0.12;
        // Merges program and erase a few times as much for what the host writes.
        profile.nand.program_fail_rate = if seed < 8 { 6e-4 } else { 2e-4 };
        profile.nand.erase_fail_rate = profile.nand.program_fail_rate;
        let (mut rig, _) =
            run(&profile, if seed % 2 == 0 { OVERWRITE } else { DEALLOCATE }, SyncMode::Late(2), seed, 2_500);
        let found = rig.contents().unwrap();
        assert!((0..).zip(&found).all(|(block, &id)| id == rig.model.now(block)));
        println!("{:?}", rig.device.ftl().statistics);
    }
}

#[test]
fn a_restart_finds_all_that_was_flushed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.tide");
    let how = ImageOptions::default();
    let mut rig = Rig::create(Target::Path(&path), &wide(), 3, how).unwrap();
    for life in 0..4 {
        while rig.completed < 1_000 {
            rig.step();
        }
        rig.come_to_rest();
        rig.flush();
        rig.payload.image_mut().sync().unwrap();
        let model = rig.model.clone();
        assert_eq!(model.unflushed(), 0);
        drop(rig);
        let (mut next, report) = Rig::reopen(Target::Path(&path), how, FaultPlan::default(), life).unwrap();
        assert_eq!(report.torn, 0, "{report:?}");
        assert!(report.pages > 50, "{report:?}");
        next.check_after_crash(&model).unwrap();
        rig = next;
    }
}
