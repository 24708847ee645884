//! Noise: whatever a client sends, the server serves the next one.

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::{LazyLock, Mutex};

use proptest::prelude::*;
use tidewater_serve::vfio_user::SharedMemory;
use tidewater_serve::vfio_user::client::Client;
use tidewater_wire::vfio_user::Header;

use crate::support::{Bench, Raw};

/// One server for all of it, one client at a time.
static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| Mutex::new(Bench::new()));

/// The server still serves, and holds nothing of whoever was there before.
fn check(bench: &Bench) {
    let mut client = Client::connect(&bench.path).expect("the next one");
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
