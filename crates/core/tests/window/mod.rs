//! The byte window through the front door: commands, stores and loads, as a front end brings them, beside block
//! commands.

mod counts;
mod power_cut;
mod rig;

use rig::{BLOCKS, PAGE, Rig, pattern, profile};
use tidewater_core::device::Device;
use tidewater_core::window::energy_needed;
use tidewater_wire::nvme::{DsmRange, Sqe, Status};
use tidewater_wire::vendor::{ANYWHERE, EntryInfo, WindowCommand, status as vendor_status};

const WORD: [u8; 8] = *b"tideword";

#[test]
fn what_is_stored_is_loaded_and_after_a_flush_read_as_blocks() {
    let mut rig = Rig::new(&[]);
    assert!(rig.write(5).is_success());
    let before = rig.read(5).unwrap();
    let at = rig.pin(9, 4, 2);
    assert_eq!(rig.load(at + PAGE + 8).to_le_bytes(), before[8..16], "page 5 is the entry's second");
    assert_eq!(rig.load(at), 0, "page 4 was never written");
    rig.store(at + PAGE + 8, &WORD);
    assert_eq!(rig.load(at + PAGE + 8).to_le_bytes(), WORD);
    assert!(rig.status(WindowCommand::Sync { entry: 9 }).is_success());
    let (status, _, bytes) = rig.run(WindowCommand::ReadDma { entry: 9, offset: PAGE, bytes: 20 }, &[]);
    assert!(status.is_success());
    assert_eq!(bytes[..8], before[..8]);
    assert_eq!(bytes[8..16], WORD);
    assert_eq!(bytes.len(), 20);
    let (status, ..) = rig.run(WindowCommand::Write { entry: 9, offset: 3, bytes: 8 }, &WORD);
    assert!(status.is_success());
    assert!(rig.status(WindowCommand::Flush { entry: 9 }).is_success());
    assert_eq!(rig.names(), [0_u16; 0]);
    let after = rig.read(5).unwrap();
    assert_eq!((&after[..8], &after[8..16], &after[16..24]), (&before[..8], &WORD[..], &before[16..24]));
    assert_eq!(rig.read(4).unwrap()[3..11], WORD);
    assert_eq!(rig.load(at + PAGE + 8), u64::MAX, "nothing is there any more");
    rig.store(at, &WORD);
    let statistics = rig.device.window().statistics;
    assert_eq!((statistics.loads_outside, statistics.stores_dropped), (1, 1));
}

#[test]
fn stores_that_are_not_flushed_go_with_an_unpin() {
    let mut rig = Rig::new(&[]);
    assert!(rig.write(5).is_success());
    let before = rig.read(5).unwrap();
    let at = rig.pin(9, 5, 1);
    rig.store(at, &WORD);
    assert!(rig.status(WindowCommand::Unpin { entry: 9 }).is_success());
    assert!(rig.read(5).unwrap() == before);
}

#[test]
fn a_store_over_the_end_of_an_entry_is_cut_there() {
    let mut rig = Rig::new(&[]);
    let at = rig.pin(1, 3, 1);
    rig.store(at + PAGE - 4, &WORD);
    assert_eq!(rig.load(at + PAGE - 8).to_le_bytes(), *b"\0\0\0\0tide");
    assert_eq!(rig.device.window().statistics.stores_dropped, 1);
}

#[test]
fn every_misuse_has_its_status() {
    let mut rig = Rig::new(&[]);
    rig.pin(1, 10, 2);
    let pages = (rig.device.capacity() / PAGE) as u32;
    let pin = |entry, offset, lba, blocks| WindowCommand::Pin { entry, offset, lba, blocks };
    for (command, status) in [
        (pin(1, ANYWHERE, 0, 8), vendor_status::ENTRY_EXISTS),
        (pin(2, ANYWHERE, 11 * BLOCKS, 8), vendor_status::LBA_OVERLAP),
        (pin(2, PAGE, 0, 8), vendor_status::BUFFER_OVERLAP),
        (pin(2, 8 * PAGE, 0, 8), vendor_status::WINDOW_RANGE),
        (pin(2, PAGE + 8, 0, 8), vendor_status::WINDOW_RANGE),
        (pin(2, ANYWHERE, 1, 8), vendor_status::WINDOW_RANGE),
        (pin(2, ANYWHERE, 0, 9), vendor_status::WINDOW_RANGE),
        (pin(2, ANYWHERE, 20 * BLOCKS, 7 * 8), vendor_status::BUFFER_FULL),
        (pin(2, ANYWHERE, 20 * BLOCKS, 9 * 8), vendor_status::WINDOW_RANGE),
        (pin(2, ANYWHERE, u64::from(pages) * BLOCKS, 8), Status::LBA_OUT_OF_RANGE),
        (pin(2, ANYWHERE, u64::MAX, 8), Status::LBA_OUT_OF_RANGE),
        (WindowCommand::Flush { entry: 2 }, vendor_status::ENTRY_UNKNOWN),
        (WindowCommand::Sync { entry: 2 }, vendor_status::ENTRY_UNKNOWN),
        (WindowCommand::Unpin { entry: 2 }, vendor_status::ENTRY_UNKNOWN),
        (WindowCommand::EntryInfo { entry: 2 }, vendor_status::ENTRY_UNKNOWN),
        (WindowCommand::ReadDma { entry: 1, offset: 2 * PAGE - 8, bytes: 9 }, vendor_status::WINDOW_RANGE),
        (WindowCommand::ReadDma { entry: 1, offset: u64::MAX, bytes: 9 }, vendor_status::WINDOW_RANGE),
    ] {
        assert_eq!(rig.status(command), status, "{command:?}");
    }
    let (status, _, data) = rig.run(WindowCommand::EntryInfo { entry: 1 }, &[]);
    assert!(status.is_success());
    let info = EntryInfo::parse(&data).unwrap();
    assert_eq!((info.entry, info.offset, info.lba, info.bytes), (1, 0, 80, 2 * PAGE));
    rig.pin(2, 0, 1);
    rig.pin(3, 2, 1);
    assert_eq!(rig.status(pin(4, ANYWHERE, 24, 8)), vendor_status::TABLE_FULL);
    // Busy: a second command while the first moves pages.
    let (flush, second) =
        (rig.give(WindowCommand::Flush { entry: 1 }, &[]), rig.give(WindowCommand::Sync { entry: 1 }, &[]));
    rig.settle();
    assert_eq!(rig.reply(second).unwrap().0, vendor_status::ENTRY_BUSY);
    assert!(rig.reply(flush).unwrap().0.is_success());
    let mut none = Rig::new(&[("window.size", "0")]);
    let cid = none.give(WindowCommand::Sync { entry: 1 }, &[]);
    assert_eq!(none.reply(cid).unwrap().0, vendor_status::WINDOW_ABSENT);
}

#[test]
fn block_commands_on_pinned_blocks_are_refused_and_others_are_not() {
    let mut rig = Rig::new(&[]);
    assert!(rig.write(6).is_success());
    rig.pin(1, 5, 2);
    assert_eq!(rig.write(5), vendor_status::LBA_PINNED);
    assert_eq!(rig.read(6), Err(vendor_status::LBA_PINNED));
    assert!(rig.write(4).is_success());
    assert!(rig.write(7).is_success());
    let deallocate = |rig: &mut Rig, first: u64| {
        let range = DsmRange { first_block: first * BLOCKS, blocks: BLOCKS as u32, ..DsmRange::default() };
        let (cid, _) = rig.submit(|cid| Sqe::dataset_management(cid, 0, true), Some(Box::new([range])));
        rig.settle();
        rig.completion(cid).expect("it has ended")
    };
    assert_eq!(deallocate(&mut rig, 6), vendor_status::LBA_PINNED);
    assert!(deallocate(&mut rig, 7).is_success());
    // Flush has nothing to do with pinned blocks.
    let (flush, _) = rig.submit(Sqe::flush, None);
    rig.settle();
    assert_eq!(rig.completion(flush), Some(Status::SUCCESS));
    assert_eq!(rig.names(), [1]);
    assert!(rig.status(WindowCommand::Unpin { entry: 1 }).is_success());
    assert!(rig.read(6).is_ok());
}

#[test]
fn held_commands_go_on_when_the_entry_is_let_go_of() {
    let mut rig = Rig::new(&[("window.gate", "hold")]);
    let at = rig.pin(1, 5, 1);
    rig.store(at, &WORD);
    let (read, _) = rig.submit(|cid| Sqe::read(cid, 5 * BLOCKS, 7), None);
    let write = rig.begin_write(5);
    rig.settle();
    assert_eq!((rig.completion(read), rig.completion(write), rig.device.window().held()), (None, None, 2));
    assert!(rig.status(WindowCommand::Flush { entry: 1 }).is_success());
    assert_eq!((rig.completion(read), rig.completion(write)), (Some(Status::SUCCESS), Some(Status::SUCCESS)));
    let newest = rig.read(5).unwrap();
    assert_ne!(newest[..8], WORD, "the write that was held came after the flush");
}

#[test]
fn a_pin_waits_for_writes_that_were_let_through() {
    let mut rig = Rig::new(&[("buffer.write_policy", "none")]);
    assert!(rig.write(5).is_success());
    let write = rig.begin_write(5);
    let command = WindowCommand::Pin { entry: 1, offset: ANYWHERE, lba: 5 * BLOCKS, blocks: 8 };
    let pin = rig.give(command, &[]);
    rig.settle();
    assert_eq!(rig.completion(write), Some(Status::SUCCESS));
    assert!(rig.reply(pin).unwrap().0.is_success());
    let tag = rig.tag - 1;
    assert_eq!(rig.load(0).to_le_bytes(), pattern(5, tag)[..8], "what the write brought");
}

#[test]
fn a_dirty_page_of_the_write_buffer_is_pinned_and_flushed_over() {
    let mut rig = Rig::new(&[]);
    let write = rig.begin_write(5);
    while rig.completion(write).is_none() {
        assert!(rig.step());
    }
    let at = rig.pin(1, 5, 1);
    rig.store(at, &WORD);
    assert!(rig.status(WindowCommand::Flush { entry: 1 }).is_success());
    let (flush, _) = rig.submit(Sqe::flush, None);
    rig.settle();
    assert_eq!(rig.completion(flush), Some(Status::SUCCESS));
    assert_eq!(rig.read(5).unwrap()[..8], WORD);
    rig.lose_power();
    assert_eq!(rig.read(5).unwrap()[..8], WORD);
}

#[test]
fn entries_come_back_with_what_was_stored_again_and_again() {
    for memory in [&[][..], &[("memory.ba.kind", "nvm"), ("memory.ba.size", "64KiB")]] {
        let mut rig = Rig::new(memory);
        assert!(rig.write(5).is_success());
        let before = rig.read(5).unwrap();
        let at = rig.pin(9, 5, 2);
        let other = rig.pin(4, 20, 1);
        for round in 0..4u64 {
            rig.store(at + 8 * round, &(round + 1).to_le_bytes());
            rig.store(other, &round.to_le_bytes());
            rig.lose_power();
            assert_eq!(rig.names(), [9, 4]);
            for word in 0..=round {
                assert_eq!(rig.load(at + 8 * word), word + 1);
            }
            assert_eq!(rig.load(at + 64).to_le_bytes(), before[64..72]);
            assert_eq!(rig.load(other), round);
            assert_eq!(rig.read(5), Err(vendor_status::LBA_PINNED));
        }
        assert!(rig.status(WindowCommand::Flush { entry: 9 }).is_success());
        assert_eq!(rig.read(5).unwrap()[8..16], 2u64.to_le_bytes());
        rig.lose_power();
        assert_eq!(rig.names(), [4], "what was flushed is not pinned again");
        assert_eq!(rig.read(5).unwrap()[8..16], 2u64.to_le_bytes());
        assert_eq!(rig.device.window().statistics.dumps_lost, 0);
    }
}

#[test]
fn a_dump_that_was_cut_short_is_never_taken_for_whole() {
    let mut rig = Rig::new(&[]);
    assert!(rig.write(5).is_success());
    let (flush, _) = rig.submit(Sqe::flush, None);
    rig.settle();
    assert_eq!(rig.completion(flush), Some(Status::SUCCESS));
    let before = rig.read(5).unwrap();
    // An older dump has been there.
    let at = rig.pin(9, 4, 6);
    rig.store(at + PAGE, &WORD);
    rig.lose_power();
    rig.store(at + PAGE, &[0xAB; 8]);
    let events = rig.device.clone().cut_power().dump_events();
    assert!(events > 4, "{events}");
    let device = rig.device.clone();
    for cut in 0..=events {
        rig.device = device.clone();
        let remains = rig.device.clone().cut_power_in_dump(cut);
        rig.power_on(remains);
        if cut == events {
            assert_eq!(rig.load(at + PAGE), 0xABAB_ABAB_ABAB_ABAB);
            assert_eq!(rig.names(), [9]);
        } else {
            assert_eq!(rig.names(), [0_u16; 0], "cut after event {cut} of {events}");
            assert!(rig.read(5).unwrap() == before, "the block is what it was when it was pinned");
        }
    }
}

#[test]
fn a_second_loss_at_any_event_of_the_way_back_changes_nothing() {
    let mut rig = Rig::new(&[]);
    let at = rig.pin(9, 4, 3);
    rig.store(at + PAGE, &WORD);
    let remains = rig.device.clone().cut_power();
    rig.power_on(remains.clone());
    // Again, event by event, with the power gone after each.
    let mut events = 0;
    for page in remains.dumped() {
        rig.content.insert((page.lpn, page.version), page.bytes.to_vec());
    }
    let mut way = Rig { content: rig.content.clone(), ..Rig::blank(&rig) };
    way.now = remains.at();
    way.device = Device::power_on(&way.profile, remains).unwrap();
    way.handle_outputs();
    loop {
        let mut again = Rig { content: way.content.clone(), ..Rig::blank(&rig) };
        again.power_on(way.device.clone().cut_power());
        assert_eq!((again.names(), again.load(at + PAGE)), (vec![9], u64::from_le_bytes(WORD)), "event {events}");
        if !way.device.is_recovering() {
            break;
        }
        assert!(way.step());
        events += 1;
    }
    assert!(events > 10, "{events}");
}

#[test]
fn a_flush_that_was_cut_short_can_only_be_flushed_again() {
    let mut rig = Rig::new(&[]);
    let at = rig.pin(9, 4, 4);
    rig.store(at, &WORD);
    let flush = rig.give(WindowCommand::Flush { entry: 9 }, &[]);
    for _ in 0..6 {
        assert!(rig.step());
    }
    assert!(rig.reply(flush).is_none());
    rig.lose_power();
    assert_eq!(rig.load(at).to_le_bytes(), WORD);
    assert_eq!(rig.status(WindowCommand::Unpin { entry: 9 }), vendor_status::FLUSH_BEGUN);
    assert!(rig.status(WindowCommand::Flush { entry: 9 }).is_success());
    assert_eq!(rig.read(4).unwrap()[..8], WORD);
}

#[test]
fn a_buffer_that_survives_nothing_says_so_and_leaves_blocks_as_they_were() {
    let mut rig = Rig::new(&[("memory.ba.survives", "nothing")]);
    assert!(rig.device.notes().iter().any(|note| note.downgrade && note.text.contains("not yet flushed are lost")));
    assert!(rig.write(5).is_success());
    let (flush, _) = rig.submit(Sqe::flush, None);
    rig.settle();
    assert_eq!(rig.completion(flush), Some(Status::SUCCESS));
    let before = rig.read(5).unwrap();
    let at = rig.pin(9, 5, 1);
    rig.store(at, &WORD);
    rig.lose_power();
    assert_eq!(rig.names(), [0_u16; 0]);
    assert!(rig.read(5).unwrap() == before);
}

#[test]
fn capacitors_that_hold_too_little_are_refused_with_what_is_needed() {
    let good = profile(&[]);
    let needed = energy_needed(&good);
    let too_little = profile(&[("window.energy", &format!("{}", needed * 0.99))]);
    let error = too_little.check().unwrap_err().to_string();
    assert!(error.contains("[window] energy") && error.contains(&format!("{needed:.4} J are needed")), "{error}");
    profile(&[("window.energy", &format!("{}", needed * 1.01))]).check().unwrap();
    // What a cut takes is within what is reckoned with.
    let mut rig = Rig::new(&[]);
    rig.pin(1, 8, 8);
    let used = rig.device.clone().cut_power().energy();
    assert!(used > 0.0 && used < needed, "{used} of {needed}");
}

/// A dump on flash is what an image holds, and anybody may have written that.
#[test]
fn a_dump_of_pages_that_are_not_there_is_no_dump() {
    use tidewater_wire::vendor::DumpTable;
    for first_page in [u64::MAX, u64::MAX - 1, 1 << 32, u64::from(u32::MAX)] {
        let mut rig = Rig::new(&[]);
        rig.pin(1, 3, 2);
        let remains = rig.device.clone().cut_power();
        let pages: Vec<_> = remains.dumped().iter().map(|page| (page.lpn, page.version)).collect();
        rig.resume_with(remains, |rig| {
            for page in pages {
                let bytes = rig.content.get_mut(&page).expect("it was dumped");
                if let Ok(table) = DumpTable::parse(bytes) {
                    let mut foreign = table;
                    foreign.entry[0].first_page = first_page;
                    let table = foreign.to_bytes();
                    bytes[..table.len()].copy_from_slice(&table);
                }
            }
        });
        assert_eq!((rig.names(), rig.device.window().statistics.dumps_lost), (vec![], 1), "{first_page:#x}");
    }
}
