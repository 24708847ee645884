//! Doorbells that a host stores into the mapped page of BAR0.

use std::time::Instant;
use tempfile::TempDir;
use tidewater_core::profile::Timing;
use tidewater_ipc::Mapping;
use tidewater_serve::engine::Backing;
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, blocks_of, setup, tiny};
use tidewater_wire::nvme::Sqe;
use tidewater_wire::vfio_user::region;

fn start(functions: usize) -> (TempDir, Drive) {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(tiny(Timing::None), folder.path(), Backing::Memory, functions));
    (folder, drive)
}

/// The doorbell page, as another part of the same client has it.
fn page(host: &Host) -> Mapping {
    let bar0 = host.nvme.socket().region_info(region::BAR0).expect("BAR0");
    bar0.map(bar0.areas[0]).expect("a mapping")
}

/// Where a doorbell is in its page.
fn doorbell(queue: u64, completion: bool) -> u64 {
    4 * (2 * queue + u64::from(completion))
}

/// Entries of the error log so far: the health log has their number.
fn errors(host: &mut Host) -> u64 {
    let sqe = Sqe::from_dwords([0; 16]).with_dword(0, 2).with_dword(1, u32::MAX).with_dword(10, 127 << 16 | 2);
    host.nvme.admin(host.buffer.attach(sqe, 512)).expect("the health log");
    let mut bytes = [0; 8];
    host.buffer.read(176, &mut bytes);
    u64::from_le_bytes(bytes)
}

fn wait_for_errors(host: &mut Host, count: u64) {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = errors(host);
        assert!(found <= count, "{found} errors, for {count} doorbells that were wrong");
        if found == count {
            return;
        }
        assert!(Instant::now() < until, "{found} errors of {count}");
    }
}

fn write_and_read(host: &mut Host, round: u64) {
    let data = blocks_of(8 * round, 8, round + 1);
    host.write(8 * round, &data);
    assert!(host.read(8 * round, data.len()) == data, "round {round}");
}

/// The first command of a new queue rings the same value as the first of the last one: that is a ring, and what the
/// page held is none.
#[test]
fn a_page_holds_nothing_of_queues_that_are_gone() {
    let (_folder, drive) = start(1);
    let host = Host::attach(&drive, 0);
    let page = page(&host);
    let Host { mut nvme, mut pair, buffer, .. } = host;
    let sqe = buffer.attach(Sqe::read(1, 0, 0).with_nsid(1), BLOCK as u64);
    for round in 0..10 {
        pair.run(&sqe, PATIENCE).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let words = [false, true].map(|completion| page.load_u32(doorbell(1, completion)));
        assert_eq!(words, [Some(1); 2], "round {round}");
        nvme.delete(pair).expect("it is deleted");
        let words = [false, true].map(|completion| page.load_u32(doorbell(1, completion)));
        assert_eq!(words, [Some(0); 2], "round {round}");
        pair = nvme.queue_pair(8 + round, None).expect("a queue pair");
        assert_eq!(pair.id(), 1);
    }
    assert_eq!(drive.count("errors"), 0);
}

#[test]
fn a_page_holds_nothing_of_the_time_before_a_reset() {
    let (_folder, drive) = start(1);
    let mut host = Host::attach(&drive, 0);
    let page = page(&host);
    for round in 0..5 {
        write_and_read(&mut host, round);
        // A tail that is in range, and was never meant for what comes: the commands it would name are zeroes.
        host.nvme.disable().expect("a disabled controller");
        assert!(page.store_u32(doorbell(1, false), 40) && page.store_u32(doorbell(0, false), 30));
        host.nvme.socket().reset().expect("a reset");
        host.restart().expect("an enabled controller");
        host.read(0, BLOCK);
        assert_eq!(page.load_u32(doorbell(1, false)), Some(1), "round {round}");
    }
    drop(host);
    let mut host = Host::attach(&drive, 0);
    write_and_read(&mut host, 9);
    assert_eq!(errors(&mut host), 0);
}

/// What a client scribbles is checked as what it writes by message, each value once.
#[test]
fn values_that_can_not_be_are_refused_once_each() {
    let (_folder, drive) = start(2);
    let mut other = Host::attach(&drive, 1);
    let mut host = Host::attach(&drive, 0);
    let page = page(&host);
    write_and_read(&mut host, 0);
    let mut count = 0;
    for value in [64, 65, 0xFFFF, 0x1_0000, u32::MAX] {
        for completion in [false, true] {
            assert!(page.store_u32(doorbell(1, completion), value));
            count += 1;
            wait_for_errors(&mut host, count);
            write_and_read(&mut host, count);
            wait_for_errors(&mut host, count);
        }
    }
    // A head beyond the tail, a queue that is not there, and the last word of the page.
    for (queue, completion) in [(1, true), (2, false), (2, true), (511, true)] {
        assert!(page.store_u32(doorbell(queue, completion), 60));
        count += 1;
        wait_for_errors(&mut host, count);
    }
    // The same by message: it is stored where the page is.
    let at = 0x1000 + doorbell(3, false);
    host.nvme.socket().write(region::BAR0, at, &7u32.to_le_bytes()).expect("a message");
    assert_eq!(page.load_u32(doorbell(3, false)), Some(7));
    count += 1;
    wait_for_errors(&mut host, count);
    write_and_read(&mut host, 1);
    write_and_read(&mut other, 2);
    assert_eq!(self::page(&other).load_u32(doorbell(3, false)), Some(0), "a page is one function's");
    wait_for_errors(&mut host, count);
}

/// Register accesses by message come behind what was rung before, and before what is rung after.
#[test]
fn messages_and_mapped_doorbells_keep_their_order() {
    let (_folder, drive) = start(1);
    let mut host = Host::attach(&drive, 0);
    let sqe = host.buffer.attach(Sqe::read(1, 0, 0).with_nsid(1), BLOCK as u64);
    for round in 0..200 {
        // The function may not read memory: what is rung now would fail. Then it may, and the doorbell is next.
        let client = |value: u16| host.nvme.socket().write(region::CONFIG, 4, &value.to_le_bytes()).expect("a message");
        client(2);
        client(6);
        host.pair.run(&sqe, PATIENCE).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}
