//! Stores of records by what the processor has for it: bytes are copied and their CRC-32C is computed in one go.
//!
//! A CRC of one chain takes three cycles for 8 bytes. Three chains over three parts of the bytes take one, and are put
//! together by a carry-less multiplication each (V. Gopal et al., "Fast CRC Computation for iSCSI Polynomial Using
//! CRC32 Instruction", Intel 2011; P. Cawley, "Faster CRC32-C on x86"). While they are computed, the same bytes are on
//! their way into the ring.
#![allow(unsafe_code)]
// Other processors have what `memory` does without it.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

use tidewater_base::checksum::crc32c_append;
use tidewater_wire::log::RecordHeader;

/// The polynomial of CRC-32C, its highest power in the lowest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Words of 8 bytes in a chain at most: three of them are as good as 4 KiB.
const CHAIN_MAX: usize = 170;

/// For `n` words that follow a CRC: what to multiply it with, so that the CRC instruction makes of the product what the
/// CRC is behind these words. It is x^(64 n - 33): the instruction multiplies by x^32, and the product of two values
/// that are written backwards is one bit short.
static BEHIND: [u32; 2 * CHAIN_MAX + 2] = {
    let mut powers = [1; 2 * CHAIN_MAX + 2];
    let mut n = 1;
    while n + 1 < powers.len() {
        let mut value: u32 = powers[n];
        let mut bit = 0;
        while bit < 64 {
            value = value >> 1 ^ (POLYNOMIAL & (value & 1).wrapping_neg());
            bit += 1;
        }
        powers[n + 1] = value;
        n += 1;
    }
    powers
};

/// How bytes are stored.
pub(super) mod how {
    /// By the caches.
    pub const CACHED: u8 = 1;
    /// Past the caches: to a multiple of 16, a multiple of 16 bytes.
    pub const PAST: u8 = 2;
}

/// Whether this processor has what the functions here need.
#[inline]
pub(super) fn are_there() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::arch::is_x86_feature_detected!("sse4.2") && std::arch::is_x86_feature_detected!("pclmulqdq")
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        false
    }
}

/// Bytes of the payload that are in the header's line.
pub(super) const FIRST: usize = 64 - RecordHeader::SIZE;

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{copy_summed, store_header, store_past, store_record};

/// The CRC-32C of bytes that follow others, whose CRC-32C is `before` (0 for none).
#[inline]
pub(super) fn sum(before: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if are_there() {
        // SAFETY: the processor has what it takes.
        return unsafe { x86_64::sum(before, bytes) };
    }
    crc32c_append(before, bytes)
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::{
        __m128i, _mm_clmulepi64_si128, _mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi32_si128,
        _mm_cvtsi128_si64, _mm_loadu_si128, _mm_set_epi64x, _mm_setzero_si128, _mm_storeu_si128, _mm_stream_si128,
        _mm_xor_si128,
    };

    use tidewater_wire::log::RecordHeader;

    use super::super::memory::LINE;
    use super::{BEHIND, CHAIN_MAX, FIRST, how};

    /// From so many words on three chains are faster than one.
    const CHAINS_MIN: usize = 13;

    /// Loads a word.
    ///
    /// # Safety
    /// 8 bytes are there.
    #[inline(always)]
    unsafe fn word(from: *const u8, at: usize) -> u64 {
        // SAFETY: the caller's promise; any alignment will do.
        unsafe { from.add(at).cast::<u64>().read_unaligned() }
    }

    /// Stores 16 bytes.
    ///
    /// # Safety
    /// 16 bytes may be stored at `to`, which is a multiple of 16 where they go past the caches.
    #[inline(always)]
    unsafe fn put<const HOW: u8>(to: *mut u8, value: __m128i) {
        // SAFETY: the caller's promise; both are part of SSE2.
        unsafe {
            match HOW {
                how::CACHED => _mm_storeu_si128(to.cast(), value),
                _ => _mm_stream_si128(to.cast(), value),
            }
        }
    }

    /// Copies 16 bytes at an offset.
    ///
    /// # Safety
    /// As [`put`], and 16 bytes are there.
    #[inline(always)]
    unsafe fn copy_16<const HOW: u8>(to: *mut u8, from: *const u8, at: usize) {
        // SAFETY: the caller's promise.
        unsafe { put::<HOW>(to.add(at), _mm_loadu_si128(from.add(at).cast())) };
    }

    /// Bytes to copy while a checksum is computed.
    #[derive(Clone, Copy)]
    struct Bytes {
        to: *mut u8,
        from: *const u8,
        len: usize,
    }

    /// Copies what is left from an offset on.
    ///
    /// # Safety
    /// `len` bytes are at `from`, and may be stored at `to` as [`how`] says; they do not overlap.
    #[inline(always)]
    unsafe fn copy_rest<const HOW: u8>(bytes: Bytes, mut at: usize) {
        let Bytes { to, from, len } = bytes;
        // SAFETY: all is below `len`.
        unsafe {
            while at + 64 <= len {
                for part in [0, 16, 32, 48] {
                    copy_16::<HOW>(to, from, at + part);
                }
                at += 64;
            }
            if len - at >= 32 {
                copy_16::<HOW>(to, from, at);
                copy_16::<HOW>(to, from, at + 16);
                at += 32;
            }
            if len - at >= 16 {
                copy_16::<HOW>(to, from, at);
                at += 16;
            }
            if HOW == how::CACHED && at < len {
                match len {
                    // Some bytes once more, which are the same.
                    16.. => copy_16::<HOW>(to, from, len - 16),
                    _ => std::ptr::copy_nonoverlapping(from.add(at), to.add(at), len - at),
                }
            }
        }
    }

    /// Continues the CRC of state `state` over `len` bytes, and copies others or the same meanwhile.
    ///
    /// # Safety
    /// The processor has SSE4.2 and PCLMULQDQ. `len` bytes are at `from`; of `copy` as [`copy_rest`].
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    #[inline]
    unsafe fn summed<const HOW: u8>(from: *const u8, len: usize, state: u32, copy: Bytes) -> u32 {
        let (mut words, mut copied, mut at) = (len / 8, 0, 0);
        let mut crc = u64::from(state);
        // SAFETY: chains cover as many words as there are, and copying stops at its end.
        unsafe {
            while words >= CHAINS_MIN {
                // Three chains, and one word in which they meet.
                let n = ((words - 1) / 3).min(CHAIN_MAX);
                let (mut second, mut third) = (0u64, 0u64);
                let (one, two, three) = (from.add(at), from.add(at + 8 * n), from.add(at + 16 * n));
                let mut i = 0;
                while i + 4 <= n {
                    // As many bytes as the chains go on, one after another.
                    if copied + 96 <= copy.len {
                        let mut part = 0;
                        while part < 96 {
                            copy_16::<HOW>(copy.to, copy.from, copied + part);
                            part += 16;
                        }
                        copied += 96;
                    }
                    let mut step = 0;
                    while step < 4 {
                        let here = 8 * (i + step);
                        crc = _mm_crc32_u64(crc, word(one, here));
                        second = _mm_crc32_u64(second, word(two, here));
                        third = _mm_crc32_u64(third, word(three, here));
                        step += 1;
                    }
                    i += 4;
                }
                while i < n {
                    crc = _mm_crc32_u64(crc, word(one, 8 * i));
                    second = _mm_crc32_u64(second, word(two, 8 * i));
                    third = _mm_crc32_u64(third, word(three, 8 * i));
                    i += 1;
                }
                let behind = |crc: u64, words: usize| {
                    let (crc, power) = (_mm_cvtsi32_si128(crc as i32), _mm_cvtsi32_si128(BEHIND[words] as i32));
                    _mm_clmulepi64_si128::<0>(crc, power)
                };
                let both = _mm_xor_si128(behind(crc, 2 * n + 1), behind(second, n + 1));
                crc = _mm_crc32_u64(third, word(from, at + 24 * n) ^ _mm_cvtsi128_si64(both) as u64);
                at += 24 * n + 8;
                words -= 3 * n + 1;
            }
            copy_rest::<HOW>(copy, copied);
            // Bit by bit of what is left, since loops over so little cost more than what they do.
            if words & 8 != 0 {
                for step in 0..8 {
                    crc = _mm_crc32_u64(crc, word(from, at + 8 * step));
                }
                at += 64;
            }
            if words & 4 != 0 {
                for step in 0..4 {
                    crc = _mm_crc32_u64(crc, word(from, at + 8 * step));
                }
                at += 32;
            }
            if words & 2 != 0 {
                crc = _mm_crc32_u64(_mm_crc32_u64(crc, word(from, at)), word(from, at + 8));
                at += 16;
            }
            if words & 1 != 0 {
                crc = _mm_crc32_u64(crc, word(from, at));
                at += 8;
            }
            let mut crc = crc as u32;
            if len & 4 != 0 {
                crc = _mm_crc32_u32(crc, from.add(at).cast::<u32>().read_unaligned());
                at += 4;
            }
            if len & 2 != 0 {
                crc = _mm_crc32_u16(crc, from.add(at).cast::<u16>().read_unaligned());
                at += 2;
            }
            if len & 1 != 0 { _mm_crc32_u8(crc, *from.add(at)) } else { crc }
        }
    }

    /// As [`super::sum`].
    ///
    /// # Safety
    /// The processor has SSE4.2 and PCLMULQDQ.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) unsafe fn sum(before: u32, bytes: &[u8]) -> u32 {
        let nothing = Bytes { to: std::ptr::null_mut(), from: std::ptr::null(), len: 0 };
        // SAFETY: the caller's promise; nothing is stored.
        unsafe { !summed::<{ how::CACHED }>(bytes.as_ptr(), bytes.len(), !before, nothing) }
    }

    /// Copies bytes by the caches. Returns the CRC-32C of those that follow others, whose CRC-32C is `before` (0 for
    /// none).
    ///
    /// # Safety
    /// The processor has SSE4.2 and PCLMULQDQ. As many bytes may be stored at `to`, and `bytes` are not there.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    #[inline]
    pub(in super::super) unsafe fn copy_summed(to: *mut u8, before: u32, bytes: &[u8]) -> u32 {
        let (from, len) = (bytes.as_ptr(), bytes.len());
        // SAFETY: the caller's promise.
        unsafe { !summed::<{ how::CACHED }>(from, len, !before, Bytes { to, from, len }) }
    }

    /// The CRC-32C of a record's header, of which this is what lies before it; behind it are zeroes.
    #[target_feature(enable = "sse4.2")]
    #[inline]
    fn sum_header(header: [u64; 4]) -> u32 {
        let state = header.into_iter().fold(u64::from(u32::MAX), |state, word| _mm_crc32_u64(state, word));
        !(_mm_crc32_u64(state, 0) as u32)
    }

    /// Stores a record's header.
    ///
    /// # Safety
    /// The processor has SSE4.2. 40 bytes may be stored at `to`.
    #[target_feature(enable = "sse4.2")]
    #[inline]
    pub(in super::super) unsafe fn store_header(to: *mut u8, header: [u64; 4]) {
        let words = [header[0], header[1], header[2], header[3], u64::from(sum_header(header))];
        // SAFETY: the caller's promise; any alignment will do.
        unsafe { to.cast::<[u64; 5]>().write_unaligned(words) };
    }

    /// Stores a record by the caches: header, payload, and zeroes to the end of a line of 64 bytes. `header` makes what
    /// lies before the header's own checksum of that of the payload.
    ///
    /// # Safety
    /// The processor has SSE4.2 and PCLMULQDQ. All lines may be stored at `to`, and `payload` is not there.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(in super::super) unsafe fn store_record(to: *mut u8, payload: &[u8], header: impl FnOnce(u32) -> [u64; 4]) {
        let (from, len) = (payload.as_ptr(), payload.len());
        // SAFETY: the caller's promise: the last line ends where the record does.
        unsafe {
            // A whole line, before the payload comes over it, is zeroed faster than what it does not fill.
            let last = to.add((RecordHeader::SIZE + len - 1) / LINE * LINE);
            for at in (0..LINE).step_by(16) {
                put::<{ how::CACHED }>(last.add(at), _mm_setzero_si128());
            }
            let bytes = Bytes { to: to.add(RecordHeader::SIZE), from, len };
            let checksum = !summed::<{ how::CACHED }>(from, len, u32::MAX, bytes);
            store_header(to, header(checksum));
        }
    }

    /// Stores a record past the caches: header, payload of 24 bytes or more, and zeroes to the end of a line of 64
    /// bytes. `header` makes what lies before the header's own checksum of that of the payload.
    ///
    /// # Safety
    /// The processor has SSE4.2 and PCLMULQDQ. All lines may be stored at `to`, a multiple of 64, and `payload` is not
    /// there, and is 24 bytes or more.
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    #[inline]
    pub(in super::super) unsafe fn store_past(to: *mut u8, payload: &[u8], header: impl FnOnce(u32) -> [u64; 4]) {
        const PAST: u8 = how::PAST;
        let (from, len) = (payload.as_ptr(), payload.len());
        // SAFETY: offsets are below `len`, of which there are 24 or more; stores end with the line in which the payload
        // does.
        unsafe {
            // Of the last line, what the payload fills, and zeroes.
            let whole = (len - FIRST) / 64 * 64;
            let last = len - FIRST - whole;
            if last > 0 {
                let (line, filled) = (to.add(64 + whole), from.add(FIRST + whole));
                // A word that is filled in part: the last bytes of the payload, moved down.
                let part = if last.is_multiple_of(8) { 0 } else { word(from, len - 8) >> (64 - last % 8 * 8) };
                for at in (0..64).step_by(16) {
                    let value = match last.saturating_sub(at) {
                        16.. => _mm_loadu_si128(filled.add(at).cast()),
                        8.. => _mm_set_epi64x(part as i64, word(filled, at) as i64),
                        1.. => _mm_set_epi64x(0, part as i64),
                        0 => _mm_setzero_si128(),
                    };
                    put::<PAST>(line.add(at), value);
                }
            }
            let lines = Bytes { to: to.add(64), from: from.add(FIRST), len: whole };
            let header = header(!summed::<PAST>(from, len, u32::MAX, lines));
            let checksum = u64::from(sum_header(header));
            let pair = |low: u64, high: u64| _mm_set_epi64x(high as i64, low as i64);
            put::<PAST>(to, pair(header[0], header[1]));
            put::<PAST>(to.add(16), pair(header[2], header[3]));
            put::<PAST>(to.add(32), pair(checksum, word(from, 0)));
            put::<PAST>(to.add(48), _mm_loadu_si128(from.add(8).cast()));
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use tidewater_base::checksum::crc32c;
    use tidewater_wire::log::RecordKind;
    use tidewater_wire::vendor::Epoch;

    /// Lines of memory.
    #[repr(align(64))]
    #[derive(Clone)]
    struct Lines([u8; 16 << 10]);

    fn noise(len: usize) -> Vec<u8> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    /// Lengths at which the ways change, and those around them.
    fn lengths() -> impl Iterator<Item = usize> {
        (0..700).chain(1_000..1_050).chain(4_060..4_200).chain([8_191, 8_192, 9_001, 12_345])
    }

    #[test]
    fn bytes_that_are_copied_and_summed_are_those_that_came() {
        if !are_there() {
            return;
        }
        let bytes = noise(13_000);
        for len in lengths() {
            for (skip, to) in [(0, 0), (1, 40), (3, 9)] {
                let mut lines = Lines([0xee; 16 << 10]);
                let from = &bytes[skip..][..len];
                for before in [0, 0x1234_5678] {
                    // SAFETY: the processor has it, and there is room.
                    let sum = unsafe { copy_summed(lines.0.as_mut_ptr().add(to), before, from) };
                    assert_eq!([sum, super::sum(before, from)], [crc32c_append(before, from); 2], "{len}");
                }
                assert_eq!(&lines.0[to..to + len], from);
                assert!(lines.0[..to].iter().chain(&lines.0[to + len..]).all(|byte| *byte == 0xee), "{len} at {to}");
            }
        }
    }

    #[test]
    fn a_record_that_is_stored_at_once_is_the_one_that_is_encoded() {
        if !are_there() {
            return;
        }
        let bytes = noise(13_000);
        let (lsn, epoch) = (0x1234_5678_9ac0, Epoch::new(77, 3));
        for (n, len) in lengths().enumerate() {
            let payload = &bytes[n % 17..][..len];
            let mut record = Vec::new();
            crate::encode_record(lsn, epoch, payload, &mut record).unwrap();
            let header = |data_checksum| {
                assert_eq!(data_checksum, crc32c(payload));
                RecordHeader { kind: RecordKind::Data, length: len as u32, data_checksum, lsn, epoch }.before_checksum()
            };
            for past in [false, true] {
                if past && len < FIRST {
                    continue;
                }
                let mut lines = Lines([0xee; 16 << 10]);
                let to = lines.0[64..].as_mut_ptr();
                // SAFETY: the processor has it, there is room, and lines begin at a line.
                unsafe { if past { store_past(to, payload, header) } else { store_record(to, payload, header) } };
                super::super::memory::fence();
                assert_eq!(&lines.0[64..][..record.len()], record, "{len} {past}");
                let around = lines.0[..64].iter().chain(&lines.0[64 + record.len()..]);
                assert!(around.into_iter().all(|byte| *byte == 0xee), "{len} {past}");
            }
        }
    }
}
