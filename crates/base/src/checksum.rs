//! Checksums of what stays on media or crosses a wire.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C (Castagnoli), the checksum of NVMe/TCP digests and of our own media formats.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC-32C of bytes that follow others, whose CRC-32C is `before` (0 for none).
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    if before == 0 {
        // That of nothing: as from the beginning.
        return crc32c(bytes);
    }
    // The state of a CRC that is reflected and inverted at its end.
    let state = u64::from(!before);
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, state);
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32c_matches_the_check_value_of_rfc_3720() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
    }

    /// By the polynomial, bit for bit, over the lengths at which the implementation changes its ways.
    #[test]
    fn crc32c_of_any_length_in_any_pieces_is_that_of_the_polynomial() {
        let bytes: Vec<u8> = (0..5_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut state = u32::MAX;
        for (len, byte) in bytes.iter().enumerate() {
            assert_eq!(super::crc32c(&bytes[..len]), !state, "{len}");
            for cut in [0, 1, len / 3, len] {
                let first = super::crc32c(&bytes[..cut.min(len)]);
                assert_eq!(super::crc32c_append(first, &bytes[cut.min(len)..len]), !state, "{len} in two at {cut}");
            }
            state ^= u32::from(*byte);
            for _ in 0..8 {
                state = state >> 1 ^ (0x82f6_3b78 & (state & 1).wrapping_neg());
            }
        }
    }
}
