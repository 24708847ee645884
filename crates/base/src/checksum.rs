//! Checksums of what stays on media or crosses a wire.

/// CRC-32C (Castagnoli), the checksum of NVMe/TCP digests and of our own media formats.
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// The CRC-32C of bytes that follow others, whose CRC-32C is `before` (0 for none).
pub fn crc32c_append(before: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(before, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32c_matches_the_check_value_of_rfc_3720() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
    }
}
