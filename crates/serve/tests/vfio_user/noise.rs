//! Noise: whatever a client sends, the server serves the next one.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{LazyLock, Mutex};

use nix::errno::Errno;
use proptest::prelude::*;
use tidewater_driver::vfio_user::Socket;
use tidewater_ipc::PAGE;
use tidewater_ipc::SharedMemory;
use tidewater_serve::vfio_user::{DmaError, GuestMemory, Lent};
use tidewater_wire::vfio_user::Header;

use crate::vfio_user::support::{Bench, Raw};

/// One server for all of it, one client at a time.
static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| Mutex::new(Bench::new()));

/// The server still serves, and holds nothing of earlier clients.
fn check(bench: &Bench) {
    let mut client = Socket::connect(&bench.path).expect("the next one");
    assert!(bench.memory.is_empty());
    client.reset().expect("a reset");
    assert_eq!(client.read_u64(0, 0).expect("a read"), 0);
}

/// Numbers that matter, and any others.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        0u32..40,
        any::<u32>(),
        Just(0x1000),
        Just(0x2000),
        Just(u32::MAX),
        Just(1 << 20),
        (0u32..32).prop_map(|bit| 1 << bit)
    ]
}

/// A message that looks like one.
#[derive(Clone, Debug)]
struct Like {
    command: u16,
    flags: u32,
    words: Vec<u32>,
    /// Bytes more or less than the header says.
    lie: i8,
    descriptors: usize,
    cut: usize,
}

fn like() -> impl Strategy<Value = Like> {
    let command = prop_oneof![9 => 1u16..19, 1 => any::<u16>()];
    let flags = prop_oneof![8 => Just(0u32), 1 => Just(16u32), 1 => any::<u32>()];
    let lie = prop_oneof![9 => Just(0i8), 1 => any::<i8>()];
    let parts = (command, flags, prop::collection::vec(number(), 0..24), lie, 0usize..3, 1usize..200);
    parts.prop_map(|(command, flags, words, lie, descriptors, cut)| Like {
        command,
        flags,
        words,
        lie,
        descriptors,
        cut,
    })
}

/// A change of what is lent: addresses and sizes are pages of a small space, so that they meet.
#[derive(Clone, Copy, Debug)]
enum Change {
    Add(u64, u64),
    Remove(u64, u64),
    Clear,
}

fn change() -> impl Strategy<Value = Change> {
    let span = || (0u64..40, 1u64..12);
    prop_oneof![
        6 => span().prop_map(|(first, pages)| Change::Add(first, pages)),
        6 => span().prop_map(|(first, pages)| Change::Remove(first, pages)),
        1 => Just(Change::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_come_and_go_as_in_a_plain_list(changes in prop::collection::vec(change(), 1..60)) {
        let memory = GuestMemory::new(6, false);
        // First page and the one behind the last.
        let mut model: Vec<(u64, u64)> = Vec::new();
        for change in changes {
            match change {
                Change::Add(first, pages) => {
                    let end = first + pages;
                    let lent = Lent {
                        address: first * PAGE,
                        size: pages * PAGE,
                        readable: true,
                        writable: true,
                        file: None,
                        file_io: false,
                    };
                    let overlaps = model.iter().any(|(a, b)| *a < end && first < *b);
                    let expected = match (overlaps, model.len()) {
                        (true, _) => Err(Errno::EEXIST),
                        (false, 6) => Err(Errno::ENOSPC),
                        _ => Ok(()),
                    };
                    prop_assert_eq!(memory.add(lent), expected);
                    if expected.is_ok() {
                        model.push((first, end));
                    }
                }
                Change::Remove(first, pages) => {
                    let end = first + pages;
                    let hit = model.iter().filter(|(a, b)| *a < end && first < *b).count();
                    let whole = model.iter().filter(|(a, b)| first <= *a && *b <= end).count();
                    let expected = match (hit, whole) {
                        (0, _) => Err(Errno::ENOENT),
                        _ if hit != whole => Err(Errno::EINVAL),
                        _ => Ok(whole),
                    };
                    prop_assert_eq!(memory.remove(first * PAGE, pages * PAGE), expected);
                    if expected.is_ok() {
                        model.retain(|(a, b)| !(first <= *a && *b <= end));
                    }
                }
                Change::Clear => {
                    prop_assert_eq!(memory.clear(), model.len());
                    model.clear();
                }
            }
            for page in 0..52 {
                let lent = model.iter().any(|(a, b)| (*a..*b).contains(&page));
                let address = page * PAGE + 8;
                let expected = if lent { DmaError::ByMessage { address } } else { DmaError::Unmapped { address } };
                prop_assert_eq!(memory.read(address, &mut [0]), Err(expected));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_end_at_most_their_own_connection(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        agreed in any::<bool>(),
    ) {
        let bench = BENCH.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut raw = if agreed { Raw::agreed(&bench) } else { Raw::connect(&bench) };
        // The server may close the connection before it has read all.
        let _ = raw.0.write_all(&bytes);
        drop(raw);
        check(&bench);
    }

    #[test]
    fn messages_of_random_fields_end_at_most_their_own_connection(likes in prop::collection::vec(like(), 1..12)) {
        let bench = BENCH.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let memory = SharedMemory::new("noise", 0x2000).expect("a memfd");
        let mut raw = Raw::agreed(&bench);
        for one in likes {
            let payload: Vec<u8> = one.words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut header = Header::command(1, one.command, payload.len());
            header.flags = one.flags;
            header.size = header.size.wrapping_add_signed(one.lie.into());
            let bytes = [header.to_bytes().as_slice(), &payload].concat();
            let descriptors = vec![memory.as_fd(); one.descriptors];
            if raw.try_send(&bytes[..one.cut.min(bytes.len())], &descriptors).is_err() {
                break;
            }
            let _ = raw.0.write_all(&bytes[one.cut.min(bytes.len())..]);
        }
        drop(raw);
        check(&bench);
    }
}
