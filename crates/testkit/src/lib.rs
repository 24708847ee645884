//! Helpers of tests and benchmarks. Nothing that is shipped uses it.
//!
//! Small drives ([`profile`]); with the feature `served`, drives that a thread of the test serves, and their hosts;
//! with `torture`, drives that lose their power after every event. Everything here panics where something is wrong: so
//! a test fails.

pub mod profile;
#[cfg(feature = "served")]
pub mod served;
#[cfg(feature = "torture")]
pub mod torture;

use std::time::Duration;

/// The one limit for everything that a test waits for, on any machine: only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// Bytes that tell where they belong.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
