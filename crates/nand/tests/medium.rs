//! Rules and persistence of a flash medium.

use std::sync::Arc;
use tidewater_base::{Duration, Instant};
use tidewater_nand::{
    Block, Cell, Change, Changes, Config, Failed, Fault, FaultPlan, FaultyNand, Medium, Nand, Origin, Page, PageHeader,
    PageKind, Place, Read, Recorder, Stamps, StoredUnit,
};

const AT: Block = Block { die: 1, plane: 0, block: 2 };

fn config() -> Config {
    let us = Duration::from_us;
    Config {
        channels: 1,
        ways: 2,
        dies_per_way: 1,
        planes: 2,
        blocks_per_plane: 4,
        pages_per_block: 6,
        page_size: 16_384,
        oob_size: 1_024,
        cell: Cell::Tlc,
        read_time: [us(45), us(60), us(75)],
        program_time: [us(400), us(600), us(950)],
        erase_time: us(3_500),
        bus_rate: 1_200_000_000,
        command_time: Duration::from_ns(200),
        multi_plane: true,
        cache: true,
        endurance: 10,
        factory_bad_rate: 0.0,
        program_fail_rate: 0.0,
        erase_fail_rate: 0.0,
        rber_fresh: 0.0,
        rber_worn: 0.0,
        rber_disturb: [0.0; 3],
        rber_retention: [0.0; 3],
        ecc_codeword: 2_048,
        ecc_bits: 120,
        read_retries: 4,
        retry_gain: 0.6,
    }
}

fn nand() -> Nand {
    Nand::new(&config(), 4_096, Stamps::Full, 1)
}

fn header(program_sequence: u64) -> PageHeader {
    PageHeader { kind: PageKind::Data, program_sequence, superblock: 2, index: 0 }
}

fn program<M: Medium>(nand: &mut M, page: u32) -> Result<(), Failed> {
    let lpns = [10 + page, 20 + page, 30 + page, Nand::NO_LPN];
    let stamps = [(7, 1), (8, 2), (9, 3), (0, 0)];
    let content =
        Page { header: header(u64::from(page)), lpns: &lpns, stamps: &stamps, origins: &[], own_payload: None };
    nand.program(AT, page, &content)
}

#[test]
fn a_page_gives_back_what_was_programmed_and_nothing_after_an_erase() {
    let mut nand = nand();
    program(&mut nand, 0).unwrap();
    assert_eq!((nand.lpn(AT, 0, 1), nand.lpn(AT, 0, 3)), (20, Nand::NO_LPN));
    let stamp = nand.stamp(AT, 0, 1).unwrap();
    assert_eq!((stamp.lpn, stamp.version, stamp.sequence), (20, 8, 2));
    assert_eq!(nand.stamp(AT, 0, 3), None, "filler has no stamp");
    assert_eq!(nand.header(AT, 0), Some(header(0)));
    assert_eq!(nand.read(AT, 0), Read { retries: 0, uncorrectable: false });
    nand.erase(AT).unwrap();
    assert_eq!(
        (nand.lpn(AT, 0, 1), nand.header(AT, 0), nand.programmed(AT), nand.erase_count(AT)),
        (Nand::NO_LPN, None, 0, 1)
    );
    program(&mut nand, 0).unwrap();
}

#[test]
#[should_panic(expected = "out of order")]
fn programming_out_of_order_asserts() {
    let mut nand = nand();
    program(&mut nand, 0).unwrap();
    let _ = program(&mut nand, 2);
}

#[test]
#[should_panic(expected = "out of order")]
fn programming_a_page_twice_asserts() {
    let mut nand = nand();
    program(&mut nand, 0).unwrap();
    let _ = program(&mut nand, 0);
}

#[test]
#[should_panic(expected = "has no page 6")]
fn programming_past_the_last_page_asserts() {
    let mut nand = nand();
    (0..6).for_each(|page| program(&mut nand, page).unwrap());
    let _ = program(&mut nand, 6);
}

#[test]
fn a_torn_page_can_not_be_read_and_its_neighbours_can() {
    let mut nand = nand();
    program(&mut nand, 0).unwrap();
    nand.tear_program(AT, 1);
    assert!(!nand.read(AT, 0).uncorrectable && nand.read(AT, 1).uncorrectable);
    assert_eq!((nand.programmed(AT), nand.header(AT, 1), nand.stamp(AT, 1, 0)), (2, None, None));
    program(&mut nand, 2).unwrap();
}

#[test]
fn a_torn_erase_leaves_nothing_and_must_be_repeated() {
    let mut nand = nand();
    program(&mut nand, 0).unwrap();
    nand.tear_erase(AT);
    assert!(nand.is_torn(AT) && nand.header(AT, 0).is_none() && nand.read(AT, 3).uncorrectable);
    nand.erase(AT).unwrap();
    assert!(!nand.is_torn(AT));
    program(&mut nand, 0).unwrap();
}

#[test]
#[should_panic(expected = "torn erase")]
fn programming_after_a_torn_erase_asserts() {
    let mut nand = nand();
    nand.tear_erase(AT);
    let _ = program(&mut nand, 0);
}

#[test]
fn what_the_firmware_writes_for_itself_comes_back() {
    let mut nand = nand();
    let payload: Arc<[u32]> = vec![1, 2, 3].into();
    let content = Page {
        header: PageHeader { kind: PageKind::Map, ..header(5) },
        lpns: &[Nand::NO_LPN; 4],
        stamps: &[(0, 0); 4],
        origins: &[],
        own_payload: Some(payload.clone()),
    };
    nand.program(AT, 0, &content).unwrap();
    assert_eq!(nand.own_payload(AT, 0), Some(payload));
    nand.erase(AT).unwrap();
    assert_eq!(nand.own_payload(AT, 0), None);
}

#[test]
fn pages_of_three_kinds_alternate() {
    let nand = nand();
    let times: Vec<_> = (0..4).map(|page| (nand.read_time(page), nand.program_time(page))).collect();
    let us = Duration::from_us;
    assert_eq!(times, [(us(45), us(400)), (us(60), us(600)), (us(75), us(950)), (us(45), us(400))]);
}

#[test]
fn factory_bad_blocks_come_at_their_rate_and_from_the_seed() {
    let config = Config { blocks_per_plane: 2_000, factory_bad_rate: 0.05, ..config() };
    let bad = |seed| {
        let nand = Nand::new(&config, 4_096, Stamps::LpnOnly, seed);
        (0..2_000).filter(|&block| nand.is_factory_bad(Block { die: 0, plane: 1, block })).collect::<Vec<_>>()
    };
    assert!((60..140).contains(&bad(1).len()), "{}", bad(1).len());
    assert_eq!(bad(1), bad(1));
    assert_ne!(bad(1), bad(2));
}

#[test]
fn failures_come_at_their_rate_and_turn_the_block_bad() {
    let config = Config { program_fail_rate: 1.0, ..config() };
    let mut nand = Nand::new(&config, 4_096, Stamps::Full, 1);
    assert_eq!(program(&mut nand, 0), Err(Failed));
    assert!(nand.is_bad(AT) && !nand.is_factory_bad(AT) && nand.header(AT, 0).is_none());
    assert_eq!(nand.erase(AT), Err(Failed), "a bad block stays bad");
    let config = Config { erase_fail_rate: 1.0, ..config };
    assert_eq!(Nand::new(&config, 4_096, Stamps::Full, 1).erase(AT), Err(Failed));
}

#[test]
fn erases_fail_more_and_more_often_past_the_endurance() {
    let mut nand = nand();
    let survived = (0..1_000).take_while(|_| nand.erase(AT).is_ok()).count();
    assert!((10..25).contains(&survived), "{survived} erases of a block with an endurance of 10");
}

#[test]
fn worn_blocks_need_retries() {
    let config = Config { rber_fresh: 1e-4, rber_worn: 7e-3, endurance: 1_000, ..config() };
    let mut nand = Nand::new(&config, 4_096, Stamps::LpnOnly, 1);
    let retries = |nand: &mut Nand| (0..2_000).map(|_| u64::from(nand.read(AT, 0).retries)).sum::<u64>();
    assert_eq!(retries(&mut nand), 0, "a fresh block needs none");
    nand.set_erase_count(AT, 1_100);
    assert!(retries(&mut nand) > 100);
}

/// Retries of so many reads of a page.
fn retries_of(nand: &mut Nand, at: Block, reads: u32) -> u32 {
    (0..reads).map(|_| nand.read(at, 0).retries).sum()
}

#[test]
fn reads_of_a_block_add_bit_errors_until_its_erase() {
    let disturbed = |rber_disturb| {
        let config = Config { rber_fresh: 1e-4, rber_worn: 1e-4, endurance: 1_000, rber_disturb, ..config() };
        Nand::new(&config, 4_096, Stamps::LpnOnly, 1)
    };
    let mut off = disturbed([0.0, 1.0, 1.0]);
    assert!(off.reads_cleanly() && retries_of(&mut off, AT, 10_000) == 0);

    // 120 of 16,384 bits are corrected: 7.3e-3.
    let mut nand = disturbed([1e-6, 0.0, 1.0]);
    assert!(!nand.reads_cleanly());
    assert_eq!(retries_of(&mut nand, AT, 3_000), 0);
    assert!(retries_of(&mut nand, AT, 7_000) > 1_000);
    assert_eq!(retries_of(&mut nand, Block { block: 1, ..AT }, 3_000), 0, "reads of another block do not count");
    nand.erase(AT).unwrap();
    assert_eq!(retries_of(&mut nand, AT, 3_000), 0);

    let mut worn = disturbed([1e-9, 1.0, 1.0]);
    assert_eq!(retries_of(&mut worn, AT, 10_000), 0);
    worn.set_erase_count(AT, 1_000);
    assert!(retries_of(&mut worn, AT, 1_000) > 100, "10,000 reads came before");
}

#[test]
fn time_since_its_program_adds_bit_errors_to_a_page() {
    let day = |days: u64| Instant::from_ps(days * 86_400_000_000_000_000);
    let config = Config { rber_fresh: 1e-4, rber_worn: 1e-4, ..config() };
    for (rber_retention, ages) in [([0.0, 0.0, 0.5], false), ([1e-3, 0.0, 0.5], true)] {
        let mut nand = Nand::new(&Config { rber_retention, ..config.clone() }, 4_096, Stamps::Full, 1);
        program(&mut nand, 0).unwrap();
        let mut old = nand.clone();
        nand.set_time(day(100));
        assert_eq!(retries_of(&mut nand, AT, 1_000) >= 1_000, ages, "1e-2 after 100 days");
        old.set_time(day(25));
        assert_eq!(retries_of(&mut old, AT, 1_000), 0, "5e-3 after 25 days");
        program(&mut nand, 1).unwrap();
        let retries = (0..1_000).map(|_| nand.read(AT, 1).retries).sum::<u32>();
        assert_eq!(retries, 0, "a page of the same block is as old as its own program");
        nand.erase(AT).unwrap();
        program(&mut nand, 0).unwrap();
        assert_eq!(retries_of(&mut nand, AT, 1_000), 0);
    }
}

#[test]
fn reads_are_clean_until_one_block_is_worn_or_stamps_tell_more() {
    let config = Config { rber_fresh: 1e-4, rber_worn: 7e-3, endurance: 1_000, ..config() };
    let mut nand = Nand::new(&config, 4_096, Stamps::LpnOnly, 1);
    for _ in 0..100 {
        nand.erase(AT).unwrap();
        assert!(nand.reads_cleanly());
    }
    let worn = Block { block: 3, ..AT };
    nand.set_erase_count(worn, 1_100);
    assert!(!nand.reads_cleanly() && !nand.clone().reads_cleanly());
    nand.set_erase_count(worn, 0);
    assert!(!nand.reads_cleanly(), "worn blocks are not counted: it errs on the safe side");
    assert!(!Nand::new(&config, 4_096, Stamps::Full, 1).reads_cleanly(), "pages may be torn");
    let worse = Config { rber_fresh: 7e-3, ..config };
    assert!(!Nand::new(&worse, 4_096, Stamps::LpnOnly, 1).reads_cleanly());
    let nand = FaultyNand::new(Nand::new(&config, 4_096, Stamps::LpnOnly, 1), FaultPlan::default());
    assert!(!nand.reads_cleanly(), "faults strike reads by their number");
}

#[test]
fn planned_faults_strike_the_operations_that_they_name() {
    let plan = FaultPlan {
        faults: vec![
            Fault::ProgramFails { nth: 1 },
            Fault::ReadRetries { nth: 0, retries: 2 },
            Fault::ReadUncorrectable { nth: 1 },
            Fault::EraseFails { nth: 0 },
        ],
    };
    let mut nand = FaultyNand::new(nand(), plan);
    assert_eq!((program(&mut nand, 0), program(&mut nand, 1)), (Ok(()), Err(Failed)));
    assert!(nand.is_bad(AT));
    assert_eq!(nand.read(AT, 0), Read { retries: 2, uncorrectable: false });
    assert!(nand.read(AT, 0).uncorrectable && !nand.read(AT, 0).uncorrectable);
    let other = Block { block: 3, ..AT };
    assert_eq!((nand.erase(other), nand.erase(other)), (Err(Failed), Err(Failed)));
    assert_eq!(FaultPlan::seeded(4, 10, 100), FaultPlan::seeded(4, 10, 100));
}

#[test]
fn a_recorder_tells_what_was_done_and_its_clone_tells_nothing() {
    let mut nand = Recorder::new(FaultyNand::new(nand(), FaultPlan { faults: vec![Fault::ProgramFails { nth: 1 }] }));
    let mut changes = Changes::default();
    nand.set_erase_count(AT, 3);
    let source = Place { at: Block { die: 0, plane: 1, block: 3 }, page: 5, unit: 2 };
    let content = Page {
        header: header(4),
        lpns: &[7, 8, Nand::NO_LPN, Nand::NO_LPN],
        stamps: &[(70, 1), (80, 2), (0, 0), (0, 0)],
        origins: &[Origin::Memory, Origin::Copy(source), Origin::Copy(source), Origin::Shared],
        own_payload: None,
    };
    assert!(nand.program(AT, 0, &content).is_ok());
    let mut clone = nand.clone();
    assert!(nand.program(AT, 1, &content).is_err());
    assert!(nand.erase(AT).is_err(), "the block is bad now");
    let other = Block { block: 3, ..AT };
    nand.tear_erase(other);
    assert!(nand.has_changes());
    nand.take_changes(&mut changes);
    assert_eq!(
        changes.list,
        [
            Change::Wear { at: AT, erases: 3 },
            Change::Program { at: AT, page: 0, header: header(4), units: 0..4, own_payload: None },
            Change::Failed { at: AT, page: 1, header: header(4) },
            Change::Erase { at: AT, erases: 3, failed: true },
            Change::TornErase { at: other },
        ]
    );
    let filler = StoredUnit { lpn: Nand::NO_LPN, version: 0, sequence: 0, origin: Origin::Memory };
    let units = [
        StoredUnit { lpn: 7, version: 70, sequence: 1, origin: Origin::Memory },
        StoredUnit { lpn: 8, version: 80, sequence: 2, origin: Origin::Copy(source) },
        filler,
        filler,
    ];
    assert_eq!(changes.units, units);
    nand.take_changes(&mut changes);
    assert!(changes.is_empty() && !nand.has_changes());

    assert_eq!(clone.stamp(AT, 0, 1), nand.stamp(AT, 0, 1));
    clone.tear_program(AT, 1);
    assert!(!clone.has_changes());
}

#[test]
fn a_restored_array_has_the_bad_blocks_it_is_told_of() {
    let config = Config { factory_bad_rate: 0.5, ..config() };
    let bad = Block { die: 1, plane: 1, block: 2 };
    let mut nand = Nand::restored(&config, 4_096, 1, |at| at == bad);
    let all = (0..2).flat_map(|die| (0..2).flat_map(move |plane| (0..4).map(move |block| Block { die, plane, block })));
    assert_eq!(all.filter(|&at| nand.is_factory_bad(at)).collect::<Vec<_>>(), [bad]);
    program(&mut nand, 0).unwrap();
    nand.mark_bad(AT);
    nand.mark_bad(bad);
    assert!(nand.is_bad(AT) && !nand.is_factory_bad(AT) && nand.is_factory_bad(bad));
    assert_eq!((nand.lpn(AT, 0, 0), nand.erase(AT)), (10, Err(Failed)));
}
