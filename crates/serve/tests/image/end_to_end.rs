//! Random commands against a model, byte by byte, while the drive collects; over power cuts inside and restarts.

use crate::rig::{DEALLOCATE, MIXED, Mix, OVERWRITE, Rig, tiny, wide};
use tidewater_core::profile::Profile;
use tidewater_nand::FaultPlan;
use tidewater_serve::image::{ImageOptions, SyncMode, Target};

fn run(profile: &Profile, mix: Mix, sync: SyncMode, seed: u64, commands: u64) -> Rig {
    let how = ImageOptions { sync, ..ImageOptions::default() };
    let storage = crate::recording::Recording::new(Vec::new()).0;
    let mut rig = Rig::create(Target::Storage(Box::new(storage), "test"), profile, seed, how).expect("it is made");
    rig.mix(mix);
    while rig.completed < commands {
        assert!(rig.step(), "the drive hangs");
    }
    rig.come_to_rest();
    rig.device.ftl().assert_consistent();
    rig
}

#[test]
fn what_is_read_is_what_was_written() {
    for (i, (profile, mix)) in
        [(tiny(), MIXED), (tiny(), OVERWRITE), (wide(), DEALLOCATE), (wide(), MIXED)].into_iter().enumerate()
    {
        for sync in [SyncMode::Inline, SyncMode::Threaded, SyncMode::Late(5)] {
            let mut rig = run(&profile, mix, sync, 7 + i as u64, 3_000);
            let found = rig.contents().unwrap();
            assert!((0..).zip(&found).all(|(block, &id)| id == rig.model.now(block)));
            rig.payload.sweep(rig.device.unprogrammed());
            assert!(rig.payload.held() <= 64, "{} units are held by nobody", rig.payload.held());
            let ftl = rig.device.ftl().statistics;
            let image = rig.payload.image().statistics();
            println!(
                "{} {sync:?}: {} commands, {} blocks read, {} collected, {} erases, {image:?}",
                profile.name, rig.completed, rig.read_blocks, ftl.collected, ftl.erases
            );
            assert!(rig.read_blocks > 500 && ftl.collected > 100 && ftl.erases > 100 && image.copied > 100);
        }
    }
}

#[test]
fn a_power_cut_inside_keeps_what_was_flushed() {
    for seed in 0..6 {
        let mut rig = run(&if seed % 2 == 0 { tiny() } else { wide() }, MIXED, SyncMode::Late(3), seed, 400);
        for life in 0..4 {
            for _ in 0..500 + 100 * seed + 37 * life {
                rig.step();
            }
            let (mut next, model) = rig.cut_power();
            next.check_after_crash(&model).unwrap();
            rig = next;
        }
    }
}

#[test]
fn flash_that_fails_loses_no_payload() {
    for seed in 0..8 {
        let mut profile = wide();
        profile.nand.program_fail_rate = 6e-4;
        profile.nand.erase_fail_rate = 6e-4;
        let mut rig = run(&profile, if seed % 2 == 0 { OVERWRITE } else { DEALLOCATE }, SyncMode::Late(2), seed, 2_500);
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
