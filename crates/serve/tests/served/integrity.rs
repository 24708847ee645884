//! Every byte that a host has written, through commands of every kind, stops, starts and reconnects.

use std::time::Duration;
use tidewater_base::Rng;
use tidewater_core::profile::{Mapping, Timing};
use tidewater_driver::vfio_user::NvmeError;
use tidewater_serve::control::Request;
use tidewater_serve::engine::Backing;
use tidewater_testkit::served::{BLOCK, Drive, Host, Model, TRANSFER, UNIT, block_of, blocks_of, setup, tiny};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::pci::{command, offset};
use tidewater_wire::vfio_user::region;

/// Random commands against a copy of what the namespace must hold. Returns how many.
fn mix(host: &mut Host, copy: &mut [u8], seed: u64, rounds: u64) -> u64 {
    let mut rng = Rng::new(seed, b"served mix");
    let blocks = (copy.len() / BLOCK) as u64;
    let end = host.blocks();
    for round in 0..rounds {
        let count = match rng.below(4) {
            0 => 1 + rng.below(3),
            1 => UNIT,
            2 => 1 + rng.below(5 * UNIT),
            _ => 1 + rng.below((TRANSFER / BLOCK) as u64),
        };
        let mut first = rng.below(blocks - count + 1);
        if rng.below(10) < 3 {
            first &= !(UNIT - 1);
        }
        let range = first as usize * BLOCK..(first + count) as usize * BLOCK;
        match rng.below(16) {
            0..6 => {
                let data = blocks_of(first, count, seed << 32 | (round + 1));
                host.try_write(first, &data, rng.below(10) == 0).expect("a write");
                copy[range].copy_from_slice(&data);
            }
            6..11 => {
                assert!(host.read(first, range.len()) == copy[range], "round {round}: blocks {first} and {count}");
            }
            11 => {
                host.zero(first, count);
                copy[range].fill(0);
            }
            12 => {
                let mut data = copy[range].to_vec();
                host.compare(first, &data).expect("equal bytes");
                let at = rng.below(data.len() as u64) as usize;
                data[at] ^= 1 << rng.below(8);
                let differs = host.compare(first, &data);
                assert!(
                    matches!(differs, Err(NvmeError::Status(status)) if status.same_code(Status::COMPARE_FAILURE)),
                    "{differs:?}"
                );
            }
            13 => {
                host.trim(first, count as u32);
                // Each block is zeroes from now on, or as it was where the drive could not forget it.
                let now = host.read(first, range.len());
                for (i, (now, old)) in now.chunks(BLOCK).zip(copy[range.clone()].chunks(BLOCK)).enumerate() {
                    let unit = (first + i as u64) & !(UNIT - 1);
                    let is_whole = unit >= first && unit + UNIT <= first + count;
                    let zeroes = now.iter().all(|byte| *byte == 0);
                    assert!(zeroes || now == old && !is_whole, "block {} after deallocation", first + i as u64);
                }
                copy[range].copy_from_slice(&now);
            }
            14 => host.flush(),
            _ => {
                let beyond = host.try_read(end - count + 1, range.len());
                assert!(
                    matches!(beyond, Err(NvmeError::Status(status)) if status.same_code(Status::LBA_OUT_OF_RANGE)),
                    "{beyond:?}"
                );
            }
        }
    }
    rounds
}

fn check_all(host: &mut Host, copy: &[u8]) {
    for (i, piece) in copy.chunks(TRANSFER).enumerate() {
        let first = (i * TRANSFER / BLOCK) as u64;
        assert!(host.read(first, piece.len()) == piece, "blocks from {first}");
    }
}

#[test]
fn every_command_leaves_what_it_should_without_pacing() {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, 1));
    let mut host = Host::attach(&drive, 0);
    let mut copy = vec![0; host.blocks() as usize * BLOCK];
    mix(&mut host, &mut copy, 1, 2_500);
    check_all(&mut host, &copy);
    drop(host);
    let ended = drive.stop();
    assert!(ended.counters.errors > 100 && ended.counters.commands[1] > 800, "{ended:?}");
}

#[test]
fn every_command_leaves_what_it_should_at_the_models_pace() {
    let folder = tempfile::tempdir().expect("a folder");
    let backing = Backing::File(folder.path().join("drive"));
    let drive = Drive::start(&setup(tiny(Timing::Model), folder.path(), backing, 1));
    let mut host = Host::attach(&drive, 0);
    // Part of it: what is collected takes time.
    let mut copy = vec![0; 4 << 20];
    mix(&mut host, &mut copy, 2, 500);
    check_all(&mut host, &copy);
}

/// What merges copied and what moved within the log is still what was written, in every life of the drive.
#[test]
fn every_command_leaves_what_it_should_on_hybrid_mapping() {
    let folder = tempfile::tempdir().expect("a folder");
    for mapping in [Mapping::Fast, Mapping::Faster] {
        let mut profile = tiny(Timing::None);
        profile.ftl.mapping = mapping;
        profile.ftl.log_blocks = 12;
        profile.ftl.log_write_points = 2;
        profile.buffer.write_policy = "cbm".into();
        let backing = Backing::File(folder.path().join(format!("drive-{mapping:?}")));
        let setup = setup(profile, folder.path(), backing, 1);
        let mut copy = Vec::new();
        for life in 0..3 {
            let drive = Drive::start(&setup);
            let mut host = Host::attach(&drive, 0);
            copy.resize(host.blocks() as usize * BLOCK, 0);
            check_all(&mut host, &copy);
            mix(&mut host, &mut copy, 40 + life, 150);
            check_all(&mut host, &copy);
            host.flush();
            drop(host);
            drive.stop();
        }
    }
}

#[test]
fn a_stop_loses_nothing_flushed_or_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let backing = Backing::File(folder.path().join("drive"));
    let setup = setup(tiny(Timing::None), folder.path(), backing, 1);
    let mut copy = Vec::new();
    for life in 0..6 {
        let drive = Drive::start(&setup);
        let mut host = Host::attach(&drive, 0);
        copy.resize(host.blocks() as usize * BLOCK, 0);
        check_all(&mut host, &copy);
        mix(&mut host, &mut copy, 10 + life, 300);
        match life % 3 {
            // As the driver of a machine that is turned off.
            0 => host.nvme.shut_down().expect("a shutdown"),
            1 => host.flush(),
            _ => {}
        }
        if life % 2 == 0 {
            let answer = drive.try_ask(&Request::Stop).expect("an orderly stop");
            assert_eq!(answer["ok"], true);
            assert!(drive.join().expect("an orderly stop").counters.commands[1] > 0);
        } else {
            drive.stop();
        }
        assert!(!setup.control.exists(), "the control socket is left over");
    }
}

#[test]
fn a_stop_with_commands_under_way_ends_and_keeps_what_was_flushed() {
    let folder = tempfile::tempdir().expect("a folder");
    for timing in [Timing::None, Timing::Model] {
        let backing = Backing::File(folder.path().join(format!("drive{}", timing as u8)));
        let setup = setup(tiny(timing), folder.path(), backing, 1);
        let mut model = Model::default();
        for life in 0..4u64 {
            let drive = Drive::start(&setup);
            let mut host = Host::attach(&drive, 0);
            model.check_all(&mut host, 2_048);
            for first in (0..2_048).step_by(64) {
                let tag = model.begin(first, 64);
                host.write(first, &blocks_of(first, 64, tag));
            }
            host.flush();
            model.all_durable();
            // Commands that no host waits for.
            for i in 0..16 {
                let first = (i + life) * 16;
                let tag = model.begin(first, 8);
                let buffer = host.nvme.buffer(8 * BLOCK as u64).expect("memory");
                buffer.write(0, &blocks_of(first, 8, tag));
                let sqe = buffer.attach(Sqe::write(100 + i as u16, first, 7).with_nsid(1), 8 * BLOCK as u64);
                assert!(host.pair.submit(&sqe));
            }
            host.pair.ring().expect("a doorbell");
            drive.stop();
        }
    }
}

#[test]
fn a_client_that_is_lost_leaves_its_data_to_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, 1));
    let mut model = Model::default();
    for life in 0..25 {
        let mut host =
            if life % 2 == 0 { Host::attach(&drive, 0) } else { Host::attach_with_shadow_doorbells(&drive, 0) };
        model.check_all(&mut host, 512);
        let first = life * 16;
        let tag = model.begin(first, 16);
        host.write(first, &blocks_of(first, 16, tag));
        // Not flushed, but the power is on.
        model.durable(first, 16);
        let tag = model.begin(0, 1);
        host.buffer.write(0, &block_of(0, tag));
        let sqe = host.buffer.attach(Sqe::write(9, 0, 0).with_nsid(1), BLOCK as u64);
        assert!(host.pair.submit(&sqe));
        host.pair.ring().expect("a doorbell");
        // It goes with a command under way, in the middle of what it says or not.
    }
    let mut host = Host::attach(&drive, 0);
    model.check_all(&mut host, 512);
    assert_eq!(drive.count("attached_functions"), 1);
}

#[test]
fn functions_share_a_namespace_and_are_reset_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, 4));
    let mut hosts: Vec<Host> = (0..4).map(|function| Host::attach(&drive, function)).collect();
    let mut rng = Rng::new(4, b"functions");
    let mut model = Model::default();
    for _ in 0..400 {
        let first = rng.below(1_000);
        let tag = model.begin(first, 8);
        let [writer, reader] = [0; 2].map(|_| rng.below(4) as usize);
        hosts[writer].write(first, &blocks_of(first, 8, tag));
        model.durable(first, 8);
        assert!(hosts[reader].read(first, 8 * BLOCK) == blocks_of(first, 8, tag));
        if rng.below(20) == 0 {
            hosts[reader].restart().expect("a reset");
        }
    }
    assert_eq!(drive.count("attached_functions"), 4);
    let mut identifiers: Vec<u16> = hosts
        .iter_mut()
        .map(|host| {
            let page = host.nvme.buffer(4096).expect("memory");
            let data = host.nvme.identify(1, 0, &page).expect("a controller");
            u16::from_le_bytes([data[78], data[79]])
        })
        .collect();
    identifiers.sort_unstable();
    identifiers.dedup();
    assert_eq!(identifiers.len(), 4, "controllers have numbers of their own");
    drop(hosts.remove(1));
    model.check_all(&mut hosts[2], 1_024);
}

#[test]
fn a_function_that_is_no_bus_master_leaves_its_hosts_memory_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, 1));
    let mut host = Host::attach(&drive, 0);
    host.write(0, &blocks_of(0, UNIT, 1));
    let command = |host: &Host, value: u16| {
        let mut client = host.nvme.socket();
        client.write(region::CONFIG, offset::COMMAND.into(), &value.to_le_bytes()).expect("the configuration space");
    };
    for round in 0..3 {
        // As a kernel does before it starts another one in its place (kexec): what the device was given may be
        // anybody's then.
        host.buffer.write(0, &[0xA5; BLOCK]);
        command(&host, command::MEMORY);
        let read = host.buffer.attach(Sqe::read(4, 0, 0).with_nsid(host.nsid), BLOCK as u64);
        let ended = host.pair.run(&read, Duration::from_millis(200));
        assert!(ended.is_err(), "round {round}: {ended:?}");
        let mut found = vec![0; BLOCK];
        host.buffer.read(0, &mut found);
        assert_eq!(found, [0xA5; BLOCK]);
        // A driver that comes then resets the controller.
        host.restart().expect("a reset");
        assert!(host.read(0, UNIT as usize * BLOCK) == blocks_of(0, UNIT, 1));
    }
    drop(host);
    drive.stop();
}
