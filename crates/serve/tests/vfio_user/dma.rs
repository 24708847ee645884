//! The client's memory: by descriptor, by file and by message, and when it is taken away.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use tidewater_driver::vfio_user::{Socket, SocketError};
use tidewater_ipc::SharedMemory;
use tidewater_serve::vfio_user::{DmaError, GuestMemory, Lent, RANGES_MAX, Reached};
use tidewater_wire::vfio_user::{DmaAccess, DmaMap, DmaUnmap, Header, command};

use crate::vfio_user::support::{Bench, Raw, eventually};
use tidewater_testkit::PATIENCE;

fn refused<T: std::fmt::Debug>(result: Result<T, SocketError>) -> Errno {
    match result {
        Err(SocketError::Refused { errno, .. }) => errno,
        other => panic!("{other:?} is no refusal"),
    }
}

/// A memfd that anybody can make shorter.
fn unsealed(len: u64) -> OwnedFd {
    let file = memfd_create(c"unsealed", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("a memfd");
    ftruncate(&file, len as i64).expect("a size");
    file
}

#[test]
fn bytes_span_ranges_of_every_kind() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let sealed = SharedMemory::new("client", 0x2000).expect("a memfd");
    let file = unsealed(0x3000);
    client.lend_file(0x1000, 0x1000, sealed.as_fd(), 0x1000).expect("its second page");
    client.lend_file(0x2000, 0x2000, file.as_fd(), 0x1000).expect("a file that is not sealed");
    client.lend_file(0x4000, 0x1000, sealed.as_fd(), 0).expect("its first page");
    let reached: Vec<Reached> = bench.memory.list().into_iter().map(|(_, _, reached)| reached).collect();
    assert_eq!(reached, [Reached::Mapped; 3]);

    let pattern: Vec<u8> = (0..0x4000u32).map(|at| (at % 251) as u8).collect();
    bench.memory.write(0x1000, &pattern).expect("all four pages");
    let mut back = vec![0; 0x4000];
    bench.memory.read(0x1000, &mut back).expect("all four pages");
    assert_eq!(back, pattern);
    let mut page = vec![0; 0x1000];
    assert!(sealed.read(0x1000, &mut page) && page == pattern[..0x1000]);
    assert!(sealed.read(0, &mut page) && page == pattern[0x3000..]);
    let mut odd = vec![0; 0x1FFF];
    bench.memory.read(0x1FFF, &mut odd).expect("across two borders");
    assert_eq!(odd, pattern[0xFFF..0x2FFE]);

    for (address, len, first) in
        [(0x0FFF, 2, 0x0FFF), (0x4FFF, 2, 0x5000), (0x6000, 1, 0x6000), (u64::MAX, 2, u64::MAX)]
    {
        let mut bytes = vec![0; len];
        assert_eq!(bench.memory.read(address, &mut bytes), Err(DmaError::Unmapped { address: first }));
        assert_eq!(bench.memory.write(address, &bytes), Err(DmaError::Unmapped { address: first }));
    }
    assert_eq!(bench.memory.read(u64::MAX, &mut []), Ok(()), "nothing is everywhere");
}

#[test]
fn words_and_entries_are_stored_at_once_or_not_at_all() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let sealed = SharedMemory::new("client", 0x1000).expect("a memfd");
    client.lend(0x1000, &sealed).expect("memory");
    client.lend_file(0x2000, 0x1000, unsealed(0x1000).as_fd(), 0).expect("a file");
    for base in [0x1000, 0x2000] {
        let mut transfers = bench.memory.enter();
        transfers.store_u32(base + 4, 0x0403_0201).expect("a word");
        assert_eq!(transfers.load_u32(base + 4), Ok(0x0403_0201));
        assert_eq!(transfers.load_u32(base + 0xFFC), Ok(0));
        for address in [base + 1, base + 2, base + 0xFFE] {
            assert_eq!(transfers.load_u32(address), Err(DmaError::Unmapped { address }));
            assert_eq!(transfers.store_u32(address, 0), Err(DmaError::Unmapped { address }));
        }
        let entry: [u8; 16] = std::array::from_fn(|at| at as u8);
        transfers.write_cqe(base + 0xFF0, &entry).expect("an entry");
        let mut back = [0; 16];
        transfers.read(base + 0xFF0, &mut back).expect("an entry");
        assert_eq!(back, entry);
    }
    assert!(bench.memory.enter().write_cqe(0x2FF8, &[0; 16]).is_err(), "half of it is nowhere");
}

#[test]
fn directions_are_kept() {
    let bench = Bench::new();
    let mut raw = Raw::agreed(&bench);
    let sealed = SharedMemory::new("client", 0x1000).expect("a memfd");
    for (flags, address) in [(0, 0x1000), (DmaMap::READABLE, 0x2000), (DmaMap::WRITABLE, 0x3000)] {
        let map = DmaMap { argsz: 32, flags, offset: 0, address, size: 0x1000 };
        assert_eq!(raw.errno(command::DMA_MAP, &map.to_bytes(), &[sealed.as_fd()]), 0);
        let mut bytes = [0; 4];
        let unmapped = Err(DmaError::Unmapped { address });
        let expected = |good: bool| if good { Ok(()) } else { unmapped };
        assert_eq!(bench.memory.read(address, &mut bytes), expected(flags & DmaMap::READABLE != 0));
        assert_eq!(bench.memory.write(address, &bytes), expected(flags & DmaMap::WRITABLE != 0));
    }
}

/// Mapped or read and written by system calls: its memory fails, and the process goes on.
#[test]
fn a_file_that_is_made_shorter_ends_in_an_error() {
    let bench = Bench::new();
    let mut raw = Raw::agreed(&bench);
    for (file_io, reached) in [(0, Reached::Mapped), (DmaMap::FILE_IO, Reached::File)] {
        let file = unsealed(0x4000);
        let flags = DmaMap::READABLE | DmaMap::WRITABLE | file_io;
        let map = DmaMap { argsz: DmaMap::SIZE as u32, flags, offset: 0, address: 0x10000, size: 0x4000 };
        assert_eq!(raw.errno(command::DMA_MAP, &map.to_bytes(), &[file.as_fd()]), 0);
        assert_eq!(bench.memory.list()[0].2, reached);
        let mut bytes = vec![1; 0x4000];
        bench.memory.write(0x10000, &bytes).expect("before");
        ftruncate(&file, 0x1000).expect("it can be made shorter");
        assert_eq!(bench.memory.write(0x10000, &bytes[..0x1000]), Ok(()), "what is left");
        assert_eq!(bench.memory.read(0x10000, &mut bytes[..0x1000]), Ok(()), "what is left");
        let lost = |result| matches!(result, Err(DmaError::Io { errno: Errno::ENXIO, .. }));
        assert!(lost(bench.memory.read(0x10000, &mut bytes)), "{reached:?}");
        assert!(lost(bench.memory.write(0x10000, &bytes)), "{reached:?}");
        ftruncate(&file, 0).expect("it can be made empty");
        assert!(bench.memory.read(0x10000, &mut bytes[..1]).is_err());
        assert!(bench.memory.enter().load_u32(0x10000).is_err());
        assert!(bench.memory.enter().write_cqe(0x10000, &[0; 16]).is_err());
        let unmap = DmaUnmap { argsz: DmaUnmap::SIZE as u32, flags: 0, address: 0x10000, size: 0x4000 };
        assert_eq!(raw.errno(command::DMA_UNMAP, &unmap.to_bytes(), &[file.as_fd()]), 0, "with its descriptor");
        assert!(bench.memory.is_empty(), "{reached:?}");
    }
    drop(raw);

    // Sealed against it, it is mapped, and can't be.
    let mut client = Socket::connect(&bench.path).expect("a client");
    let bytes = vec![1; 0x4000];
    let sealed = unsealed(0x4000);
    fcntl(&sealed, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).expect("a seal");
    client.lend_file(0x20000, 0x4000, sealed.as_fd(), 0).expect("memory");
    assert_eq!(ftruncate(&sealed, 0), Err(Errno::EPERM));
    assert_eq!(bench.memory.write(0x20000, &bytes), Ok(()));
    assert_eq!(refused(client.lend_file(0x30000, 0x5000, sealed.as_fd(), 0)), Errno::EINVAL, "more than it has");
}

#[test]
fn files_of_other_kinds_are_for_trusted_clients() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder on a disk");
    let file = std::fs::File::create_new(folder.path().join("memory")).expect("a file");
    file.set_len(0x1000).expect("a size");
    let zero = std::fs::File::options().read(true).write(true).open("/dev/zero").expect("a device");
    let lent = |file: OwnedFd| Lent {
        address: 0x1000,
        size: 0x1000,
        readable: true,
        writable: false,
        file: Some((file, 0)),
        file_io: false,
    };
    let careful = GuestMemory::default();
    let on_disk =
        nix::sys::statfs::fstatfs(&file).expect("a file system").filesystem_type() != nix::sys::statfs::TMPFS_MAGIC;
    if on_disk {
        assert_eq!(careful.add(lent(file.try_clone().expect("a copy").into())), Err(Errno::EPERM));
    }
    assert_eq!(careful.add(lent(zero.try_clone().expect("a copy").into())), Err(Errno::EINVAL));
    let trusting = GuestMemory::trusting(1);
    let read_only = std::fs::File::open(folder.path().join("memory")).expect("a file");
    assert_eq!(trusting.add(lent(read_only.into())), Ok(()));
    assert_eq!(trusting.add(Lent { address: 0x9000, ..lent(file.into()) }), Err(Errno::ENOSPC), "one is all");
    let writable =
        Lent { writable: true, ..lent(std::fs::File::open(folder.path().join("memory")).expect("a file").into()) };
    assert_eq!(GuestMemory::trusting(1).add(writable), Err(Errno::EACCES), "a descriptor that can't be written");
}

#[test]
fn ranges_are_bounded_and_all_of_them_go_with_the_client() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let sealed = SharedMemory::new("client", 0x1000).expect("a memfd");
    let before = bench.memory.generation();
    for at in 0..RANGES_MAX as u64 {
        // Every second page, from the last to the first.
        client.lend((RANGES_MAX as u64 - at) * 0x2000, &sealed).expect("memory");
    }
    assert_eq!(refused(client.lend(0, &sealed)), Errno::ENOSPC);
    assert!(bench.memory.generation() >= before + RANGES_MAX as u64);
    let mut transfers = bench.memory.enter();
    for at in 0..=RANGES_MAX as u64 + 1 {
        let good = (1..=RANGES_MAX as u64).contains(&at);
        assert_eq!(transfers.write(at * 0x2000, &[1]).is_ok(), good, "{at}");
        assert!(transfers.write(at * 0x2000 + 0x1000, &[1]).is_err(), "{at}");
    }
    drop(transfers);
    client.take_back(0x2000, 0x2000 * 99).expect("99 of them");
    assert_eq!(bench.memory.len(), RANGES_MAX - 99);
    client.lend(0x2000, &sealed).expect("there is room again");
    client.take_back_all().expect("all of them");
    assert!(bench.memory.is_empty());
    client.lend(0x2000, &sealed).expect("memory");
    drop(client);
    eventually("the loss of memory", || bench.memory.is_empty());
}

#[test]
fn taking_memory_back_waits_for_copies_under_way() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let sealed = SharedMemory::new("client", 0x1000).expect("a memfd");
    client.lend(0x1000, &sealed).expect("memory");
    let taken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut transfers = bench.memory.enter();
        scope.spawn(|| {
            client.take_back(0x1000, 0x1000).expect("memory back");
            taken.store(true, Ordering::SeqCst);
        });
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            transfers.write(0x1000, &[1]).expect("it is still lent");
            assert!(!taken.load(Ordering::SeqCst), "it is still in use");
        }
        drop(transfers);
    });
    assert!(taken.load(Ordering::SeqCst));
    assert_eq!(bench.memory.write(0x1000, &[1]), Err(DmaError::Unmapped { address: 0x1000 }));
}

#[test]
fn copies_go_on_while_other_memory_comes_and_goes() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let (stays, goes) =
        (SharedMemory::new("a", 0x4000).expect("a memfd"), SharedMemory::new("b", 0x4000).expect("a memfd"));
    client.lend(0x10000, &stays).expect("memory");
    let over = AtomicBool::new(false);
    let (mut good, mut bad) = (0u64, 0u64);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                client.lend(0x14000, &goes).expect("memory");
                client.take_back(0x14000, 0x4000).expect("memory back");
            }
            over.store(true, Ordering::SeqCst);
        });
        let mut bytes = vec![7; 0x8000];
        while !over.load(Ordering::SeqCst) {
            match bench.memory.write(0x10000, &bytes) {
                Ok(()) => good += 1,
                Err(error) => {
                    assert_eq!(error, DmaError::Unmapped { address: 0x14000 });
                    bad += 1;
                }
            }
            bench.memory.read(0x10000, &mut bytes[..0x4000]).expect("it stays");
        }
    });
    assert!(bad > 0, "{good} copies found everything, {bad} did not");
}

#[test]
fn memory_without_descriptors_is_reached_by_messages() {
    let bench = Bench::new();
    let capabilities = br#"{"capabilities":{"max_data_xfer_size":1000}}"#;
    let mut client = Socket::connect_saying(&bench.path, capabilities).expect("a client");
    let (far, near) =
        (SharedMemory::new("far", 0x3000).expect("a memfd"), SharedMemory::new("near", 0x1000).expect("a memfd"));
    let far = Arc::new(far);
    client.lend(0x1000, &near).expect("by descriptor");
    client.lend_by_message(0x2000, &far).expect("by message");
    client.lend_file(0x5000, 0x1000, unsealed(0x1000).as_fd(), 0).expect("by file");
    let connection = bench.connection();
    let pattern: Vec<u8> = (0..0x5000u32).map(|at| (at % 241) as u8).collect();
    assert_eq!(bench.memory.write(0x1000, &pattern), Err(DmaError::ByMessage { address: 0x2000 }));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            connection.write(0x1000, &pattern, PATIENCE).expect("a write");
            let mut back = vec![0; 0x5000];
            connection.read(0x1000, &mut back, PATIENCE).expect("a read");
            assert_eq!(back, pattern);
            assert_eq!(connection.read(0x5FFF, &mut back[..2], PATIENCE), Err(DmaError::Unmapped { address: 0x6000 }));
            // The client doesn't know that address.
            let unknown = connection.dma_read(0x9000, &mut back[..8], PATIENCE);
            assert_eq!(unknown, Err(DmaError::Client { address: 0x9000 }));
            let beyond = connection.dma_write(0x4FFF, &back[..2], PATIENCE);
            assert_eq!(beyond, Err(DmaError::Client { address: 0x4FFF }));
        });
        while !worker.is_finished() {
            client.serve_memory(Duration::from_millis(1)).expect("the server's questions");
        }
    });
    let mut bytes = vec![0; 0x3000];
    assert!(far.read(0, &mut bytes));
    assert_eq!(bytes, pattern[0x1000..0x4000]);
}

#[test]
fn a_question_and_a_command_don_t_wait_for_each_other() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let far = Arc::new(SharedMemory::new("far", 0x10000).expect("a memfd"));
    client.lend_by_message(0x10000, &far).expect("by message");
    let connection = bench.connection();
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for worker in 0..3u8 {
            let (connection, done) = (&connection, &done);
            scope.spawn(move || {
                let address = 0x10000 + u64::from(worker) * 0x1000;
                let mut bytes = [0; 512];
                for round in 0..200u32 {
                    let pattern = [worker.wrapping_add(round as u8); 512];
                    connection.write(address, &pattern, PATIENCE).expect("a write");
                    connection.read(address, &mut bytes, PATIENCE).expect("a read");
                    assert_eq!(bytes, pattern);
                }
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        // Commands of the client all the while: it answers questions only while it waits for their replies.
        let mut commands = 0;
        while done.load(Ordering::SeqCst) < 3 {
            client.write(0, 8, &[1; 8]).expect("a write");
            assert_eq!(client.read_u64(0, 8).expect("a read"), 0x0101_0101_0101_0101);
            commands += 2;
        }
        assert!(commands > 100, "{commands} commands");
    });
}

#[test]
fn a_client_that_does_not_answer_ends_in_an_error_in_time() {
    let bench = Bench::new();
    let mut raw = Raw::agreed(&bench);
    let map = DmaMap { argsz: 32, flags: 3, offset: 0, address: 0x1000, size: 0x1000 };
    assert_eq!(raw.errno(command::DMA_MAP, &map.to_bytes(), &[]), 0);
    let connection = bench.connection();
    let mut bytes = [0; 8];
    let start = Instant::now();
    let client = Err(DmaError::Client { address: 0x1000 });
    assert_eq!(connection.read(0x1000, &mut bytes, Duration::from_millis(50)), client);
    assert!((Duration::from_millis(50)..PATIENCE).contains(&start.elapsed()), "{:?}", start.elapsed());

    // Its answer comes late, and the next question is not confused by it.
    let (late, _) = raw.reply().expect("the question");
    assert_eq!(late.command, command::DMA_READ);
    let answer = |header: &Header, count: u64, data: &[u8]| {
        let access = DmaAccess { address: 0x1000, count };
        [header.reply(16 + data.len()).to_bytes().as_slice(), &access.to_bytes(), data].concat()
    };
    raw.send(&answer(&late, 8, &[1; 8]), &[]);
    let wrong: [(u64, &[u8]); 4] = [(7, &[2; 7]), (9, &[2; 9]), (8, &[2; 7]), (u64::MAX, &[2; 8])];
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            for _ in 0..wrong.len() + 1 {
                let mut bytes = [0; 8];
                assert_eq!(connection.read(0x1000, &mut bytes, PATIENCE), client, "malformed or refused");
            }
            let mut bytes = [0; 8];
            connection.read(0x1000, &mut bytes, PATIENCE).expect("an answer");
            assert_eq!(bytes, [3; 8]);
            // And now the client goes while it is waited for.
            assert_eq!(connection.read(0x1000, &mut bytes, PATIENCE), client);
        });
        for (count, data) in wrong {
            let (question, _) = raw.reply().expect("a question");
            raw.send(&answer(&question, count, data), &[]);
        }
        let (question, _) = raw.reply().expect("a question");
        raw.send(&question.failure(5).to_bytes(), &[]);
        let (question, payload) = raw.reply().expect("a question");
        assert_eq!(DmaAccess::split(&payload, false).map(|(access, _)| access.count), Some(8));
        raw.send(&[answer(&question, 8, &[3; 8])].concat(), &[]);
        raw.reply().expect("the last question");
        raw.0.shutdown(std::net::Shutdown::Both).expect("gone");
        worker.join().expect("no assertion fails");
    });
    eventually("the loss of the client", || !connection.is_open());
    assert_eq!(connection.dma_write(0x1000, &[0; 8], PATIENCE), client, "a connection that is over");
}
