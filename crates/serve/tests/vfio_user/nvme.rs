//! The whole way of a command: driver, socket, mailbox, memory and interrupts, with a trial controller at its end.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Instant;

use nix::sys::eventfd::{EfdFlags, EventFd};
use tidewater_driver::vfio_user::Socket;
use tidewater_driver::vfio_user::{Nvme, NvmeError, QueuePair};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vfio_user::{IrqIndex, region};

use crate::vfio_user::support::eventually;
use crate::vfio_user::trial::{BLOCKS, Trial, VECTORS};
use tidewater_testkit::PATIENCE;

fn start(trial: &Trial) -> Nvme {
    let client = Socket::connect(&trial.path()).expect("a client");
    Nvme::start(client, 32 << 20).expect("an enabled controller")
}

/// Writes and reads blocks of every size that PRPs tell apart, more often than the queue is long.
fn exercise(nvme: &mut Nvme, pair: &mut QueuePair) {
    let (out, back) = (nvme.buffer(64 << 10).expect("memory"), nvme.buffer(64 << 10).expect("memory"));
    for round in 0..100u64 {
        let blocks = [1, 2, 3, 16][round as usize % 4];
        let data: Vec<u8> = (0..blocks * 4096).map(|at| (at * 7 + round) as u8).collect();
        out.write(0, &data);
        let slba = round * 9;
        let zero_based = (blocks - 1) as u16;
        pair.run(&out.attach(Sqe::write(round as u16, slba, zero_based), blocks * 4096), PATIENCE).expect("a write");
        let cqe = pair
            .run(&back.attach(Sqe::read(!round as u16, slba, zero_based), blocks * 4096), PATIENCE)
            .expect("a read");
        assert_eq!((cqe.cid, cqe.sq_id), (!round as u16, pair.id()));
        let mut read = vec![0; data.len()];
        back.read(0, &mut read);
        assert_eq!(read, data, "round {round}");
    }
    pair.run(&Sqe::flush(1), PATIENCE).expect("a flush");
    let beyond = pair.run(&back.attach(Sqe::read(2, BLOCKS, 0), 4096), PATIENCE);
    assert!(matches!(beyond, Err(NvmeError::Status(Status::LBA_OUT_OF_RANGE))), "{beyond:?}");
}

#[test]
fn a_driver_reads_what_it_has_written_by_messages_alone() {
    let trial = Trial::new(false);
    let mut nvme = start(&trial);
    let data = nvme.buffer(4096).expect("memory");
    let controller = nvme.identify(1, 0, &data).expect("a controller");
    assert_eq!(&controller[4..9], b"TRIAL");
    let namespace = nvme.identify(0, 1, &data).expect("a namespace");
    assert_eq!(namespace[..8], BLOCKS.to_le_bytes());
    let mut pair = nvme.queue_pair(16, None).expect("a queue pair");
    exercise(&mut nvme, &mut pair);
    // Each command rings two doorbells, but the doorbell of the last completion waits for the next command.
    assert_eq!(pair.messages(), 2 * 202);
    nvme.shut_down().expect("a shutdown");
    nvme.disable().expect("a disabled controller");
}

#[test]
fn doorbells_in_memory_take_no_message_while_the_engine_polls() {
    let trial = Trial::sleeping_after(false, u32::MAX);
    let mut nvme = start(&trial);
    nvme.use_shadow_doorbells().expect("shadow doorbells");
    let mut pair = nvme.queue_pair(16, None).expect("a queue pair");
    exercise(&mut nvme, &mut pair);
    let messages = pair.messages();
    assert!(
        messages <= 2,
        "{messages} messages for 202 commands: only the first may come before the engine has looked"
    );
}

#[test]
fn an_engine_that_sleeps_is_woken_by_a_doorbell() {
    let trial = Trial::new(false);
    let mut nvme = start(&trial);
    nvme.use_shadow_doorbells().expect("shadow doorbells");
    let mut pair = nvme.queue_pair(16, None).expect("a queue pair");
    exercise(&mut nvme, &mut pair);
    for _ in 0..3 {
        eventually("the engine's sleep", || trial.sleeping.load(Ordering::SeqCst));
        let before = pair.messages();
        pair.run(&Sqe::flush(7), PATIENCE).expect("a flush");
        assert!(pair.messages() > before, "it was woken by a message");
    }
}

#[test]
fn doorbells_that_are_mapped_take_no_message_at_all() {
    let trial = Trial::new(true);
    let mut nvme = start(&trial);
    let mut pair = nvme.queue_pair(16, None).expect("a queue pair");
    exercise(&mut nvme, &mut pair);
    assert_eq!(pair.messages(), 0);
}

#[test]
fn completions_raise_the_interrupt_of_their_queue() {
    let trial = Trial::new(false);
    let mut nvme = start(&trial);
    let events: Vec<EventFd> =
        (0..VECTORS).map(|_| EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).expect("an event")).collect();
    let fds: Vec<BorrowedFd<'_>> = events.iter().map(|event| event.as_fd()).collect();
    nvme.socket().set_events(IrqIndex::MsiX, &fds).expect("descriptors");
    let mut pair = nvme.queue_pair(16, Some(3)).expect("a queue pair");
    for _ in 0..5 {
        pair.run(&Sqe::flush(1), PATIENCE).expect("a flush");
    }
    let until = Instant::now() + PATIENCE;
    let mut count = 0;
    while count < 5 {
        assert!(Instant::now() < until, "{count} interrupts");
        count += events[3].read().unwrap_or(0);
    }
    assert!(events[2].read().is_err() && events[4].read().is_err());
}

#[test]
fn the_next_driver_finds_the_data_of_the_last() {
    let trial = Trial::new(true);
    for round in 0..5u8 {
        let mut nvme = start(&trial);
        let data = nvme.buffer(4096).expect("memory");
        let mut pair = nvme.queue_pair(8, None).expect("a queue pair");
        pair.run(&data.attach(Sqe::read(1, 5, 0), 4096), PATIENCE).expect("a read");
        let mut byte = [0];
        data.read(4095, &mut byte);
        assert_eq!(byte, [round]);
        data.write(4095, &[round + 1]);
        pair.run(&data.attach(Sqe::write(2, 5, 0), 4096), PATIENCE).expect("a write");
        // It goes without a word.
    }
}

#[test]
fn the_configuration_space_is_answered_without_the_engine() {
    let trial = Trial::new(false);
    let mut client = Socket::connect(&trial.path()).expect("a client");
    let mut config = vec![0; 4096];
    client.read(region::CONFIG, 0, &mut config).expect("all of it");
    assert_eq!(config[9..12], [2, 8, 1], "an NVMe controller");
    client.write(region::CONFIG, 0x04, &[6, 0]).expect("memory and bus mastering");
    client.write(region::CONFIG, 0x10, &[0xFF; 8]).expect("the size of BAR0");
    let size = !(client.read_u64(region::CONFIG, 0x10).expect("a BAR") & !0xF) + 1;
    assert_eq!(size, client.region_info(region::BAR0).expect("BAR0").info.size);

    // The table is all masked, keeps what is written to it, and lies between registers and pending bits.
    let table = u64::from(client.read_u32(region::CONFIG, 0xA4).expect("the table's place") & !7);
    let pending = u64::from(client.read_u32(region::CONFIG, 0xA8).expect("the bits' place") & !7);
    let mut entry = [0; 16];
    client.read(region::BAR0, table + 16, &mut entry).expect("an entry");
    assert_eq!(entry, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    client.write(region::BAR0, table + 16, &[0xFF; 16]).expect("an entry");
    client.read(region::BAR0, table + 16, &mut entry).expect("an entry");
    assert_eq!(entry, [0xFC, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0]);
    client.write(region::BAR0, table + 16 * u64::from(VECTORS), &[1; 4]).expect("behind the last entry");
    assert_eq!(client.read_u32(region::BAR0, table + 16 * u64::from(VECTORS)).expect("a read"), 0);
    client.write(region::BAR0, pending, &[0xFF; 8]).expect("a write that does nothing");
    assert_eq!(client.read_u64(region::BAR0, pending).expect("a read"), 0);
    let mut across = [0; 12];
    client.read(region::BAR0, table - 4, &mut across).expect("registers and table");
    client.write(region::BAR0, table - 4, &across).expect("registers and table");

    // A function level reset.
    client.write(region::CONFIG, 0x68, &[0, 0x80]).expect("a reset");
    assert_eq!(client.read_u64(region::CONFIG, 0x10).expect("a BAR") & !0xF, 0);
    client.read(region::BAR0, table + 16, &mut entry).expect("an entry");
    assert_eq!(entry[0], 0);
}

/// Reads of 4 KiB per second: what memory, doorbells and completions cost without firmware. Not a promise, but a
/// figure.
#[test]
fn what_the_transport_alone_carries() {
    for (mapped, shadow) in [(false, true), (true, false)] {
        let trial = Trial::sleeping_after(mapped, u32::MAX);
        let mut nvme = start(&trial);
        if shadow {
            nvme.use_shadow_doorbells().expect("shadow doorbells");
        }
        let mut pair = nvme.queue_pair(256, None).expect("a queue pair");
        let buffers: Vec<_> = (0..32).map(|_| nvme.buffer(4096).expect("memory")).collect();
        let (total, mut sent, mut done) = (20_000u32, 0u32, 0u32);
        let begin = Instant::now();
        while done < total {
            while sent < total && sent - done < 32 {
                let buffer = &buffers[sent as usize % 32];
                let sqe = buffer.attach(Sqe::read(sent as u16, u64::from(sent) * 7 % BLOCKS, 0), 4096);
                assert!(pair.submit(&sqe));
                sent += 1;
            }
            pair.ring().expect("doorbells");
            while let Some(cqe) = pair.poll() {
                assert_eq!(cqe.status, Status::SUCCESS);
                done += 1;
            }
            assert!(begin.elapsed() < PATIENCE, "{done} of {total}");
        }
        let rate = f64::from(total) / begin.elapsed().as_secs_f64();
        println!("{rate:.0} reads of 4 KiB per second, {} messages, mapped: {mapped}", pair.messages());
    }
}
