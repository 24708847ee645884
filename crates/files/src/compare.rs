//! Where bytes differ, and how far they are alike.
#![allow(unsafe_code)]

use std::ops::Range;

/// Bytes that are compared at once, while they are alike, and where they differ.
const STEP: usize = 64;
const WORD: usize = 8;
/// Bytes of which a mask tells which words differ.
const BLOCK: usize = 64 * WORD;
type Block = [u8; BLOCK];

/// Bytes that two begin with alike.
pub(crate) fn same(one: &[u8], other: &[u8]) -> usize {
    let steps = STEP * same_steps(one, other);
    let alike = one[steps..].iter().zip(&other[steps..]).take_while(|(one, other)| one == other);
    steps + alike.count()
}

/// Bytes that two end with alike.
pub(crate) fn same_at_end(one: &[u8], other: &[u8]) -> usize {
    let steps = one.rchunks_exact(STEP).zip(other.rchunks_exact(STEP)).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[..one.len() - steps * STEP], &other[..other.len() - steps * STEP]);
    steps * STEP + one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

/// The runs of bytes in which two of a length differ, in order, each begun and ended by a byte that does. A run has no
/// more bytes alike in a row than `gap` and those of two words, and between two are `gap` at least. `then` may change
/// the bytes of the run that it is passed. `None`: it has stopped the search.
#[inline]
pub(crate) fn each_difference(
    one: &mut [u8],
    other: &[u8],
    gap: usize,
    then: impl FnMut(&mut [u8], Range<usize>) -> Option<()>,
) -> Option<()> {
    assert_eq!(one.len(), other.len(), "two of a length");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        let differing = |one: &Block, other: &Block| unsafe { differing_by_avx2(one, other) };
        return each(one, other, gap, differing, then);
    }
    each(one, other, gap, differing, then)
}

#[inline(always)]
fn each(
    one: &mut [u8],
    other: &[u8],
    gap: usize,
    differing: impl Fn(&Block, &Block) -> u64,
    mut then: impl FnMut(&mut [u8], Range<usize>) -> Option<()>,
) -> Option<()> {
    // In whole words: what is alike at its ends is cut off when it is over.
    let (mut at, mut run) = (0, 0..0);
    while at < one.len() {
        let mut words = match (one[at..].first_chunk(), other[at..].first_chunk()) {
            (Some(one), Some(other)) => differing(one, other),
            _ => differing_of_rest(&one[at..], &other[at..]),
        };
        while words != 0 {
            let first = words.trailing_zeros();
            let behind = first + (words >> first).trailing_ones();
            let (from, to) = (at + WORD * first as usize, at + WORD * behind as usize);
            if run.is_empty() {
                run.start = from;
            } else if from - run.end >= gap {
                let over = cut(one, other, std::mem::replace(&mut run, from..to));
                then(one, over)?;
            }
            run.end = to;
            // By a carry through the ones that have been looked at.
            words &= words.wrapping_add(1 << first);
        }
        at += BLOCK;
    }
    if run.is_empty() { Some(()) } else { then(one, cut(one, other, run)) }
}

/// Which words of a block differ: a bit for each, the lowest is the first.
#[inline(always)]
fn differing(one: &Block, other: &Block) -> u64 {
    differing_of_rest(one, other)
}

/// As [`differing`], of at most as many bytes; of the last word only some may be there.
#[inline(always)]
fn differing_of_rest(one: &[u8], other: &[u8]) -> u64 {
    let ((words, rest), (others, other_rest)) = (one.as_chunks::<WORD>(), other.as_chunks::<WORD>());
    let words = words.iter().zip(others).map(|(one, other)| one != other);
    let all = words.chain((!rest.is_empty()).then(|| rest != other_rest));
    all.enumerate().fold(0, |differing, (at, differs)| differing | u64::from(differs) << at)
}

/// As [`differing`], on four words at a time, and without a branch.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn differing_by_avx2(one: &Block, other: &Block) -> u64 {
    use std::arch::x86_64::{_mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_loadu_si256, _mm256_movemask_pd};
    const LANES: usize = 4;
    // SAFETY: as many bytes are there, and any alignment will do.
    let load = |bytes: &[u8; LANES * WORD]| unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    let alike = one.as_chunks().0.iter().zip(other.as_chunks().0).enumerate().fold(0, |alike, (at, (one, other))| {
        let lanes = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(load(one), load(other))));
        alike | (lanes as u64) << (LANES * at)
    });
    !alike
}

/// A run of whole words, the first and the last of which differ, without what is alike at its ends and what is behind
/// the end of all bytes.
#[inline(always)]
fn cut(one: &[u8], other: &[u8], run: Range<usize>) -> Range<usize> {
    let differs = |at: usize| {
        let word = |bytes: &[u8]| {
            let bytes = &bytes[at..];
            u64::from_le_bytes(bytes.first_chunk().copied().unwrap_or_else(|| {
                let mut word = [0; WORD];
                word[..bytes.len()].copy_from_slice(bytes);
                word
            }))
        };
        word(one) ^ word(other)
    };
    // Others may be storing into what is compared: a word is looked at once, and one that is alike by now is not cut.
    let first = differs(run.start);
    let last = if run.len() == WORD { first } else { differs(run.end - WORD) };
    let alike = |bits: u32| if bits == u64::BITS { 0 } else { bits as usize / 8 };
    run.start + alike(first.trailing_zeros())..(run.end - alike(last.leading_zeros())).min(one.len())
}

/// Whole steps that two begin with alike.
#[inline]
fn same_steps(one: &[u8], other: &[u8]) -> usize {
    let (one, other) = (one.as_chunks::<STEP>().0, other.as_chunks::<STEP>().0);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe { count_by_avx2(one, other) };
    }
    count(one, other)
}

/// As [`count`], on 32 bytes at a time.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn count_by_avx2(one: &[[u8; STEP]], other: &[[u8; STEP]]) -> usize {
    count(one, other)
}

/// Steps that two begin with alike. The C library's comparison is a call for each; this is a few instructions on as
/// many bytes as the processor takes.
#[inline(always)]
fn count(one: &[[u8; STEP]], other: &[[u8; STEP]]) -> usize {
    const LANES: usize = 4;
    let is_same = |(one, other): &(&[u8; STEP], &[u8; STEP])| {
        let mut differs = [0; LANES];
        for (one, other) in one.as_chunks::<{ LANES * WORD }>().0.iter().zip(other.as_chunks::<{ LANES * WORD }>().0) {
            for (differs, (one, other)) in
                differs.iter_mut().zip(one.as_chunks::<WORD>().0.iter().zip(other.as_chunks::<WORD>().0))
            {
                *differs |= u64::from_ne_bytes(*one) ^ u64::from_ne_bytes(*other);
            }
        }
        differs == [0; LANES]
    };
    one.iter().zip(other).take_while(is_same).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::rng::Rng;

    #[test]
    fn runs_are_what_differs_and_little_else() {
        const GAP: usize = 16;
        let mut rng = Rng::new(7, b"differences");
        for turn in 0..4000 {
            let len = rng.below(700) as usize;
            let one: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
            let mut other = one.clone();
            for _ in 0..rng.below(8) {
                let at = rng.below(len.max(1) as u64) as usize;
                let to = (at + rng.below(30) as usize).min(len);
                other[at.min(to)..to].iter_mut().for_each(|byte| *byte = !*byte);
            }
            let differs = |at: usize| one[at] != other[at];
            let (mut behind, mut runs) = (0, 0);
            let whole = each_difference(&mut one.clone(), &other, GAP, |is, run| {
                is[run.clone()].fill(0); // Is looked at no more.
                assert!((behind..run.start).all(|at| !differs(at)), "turn {turn}: {run:?} comes too late");
                assert!(runs == 0 || run.start - behind >= GAP, "turn {turn}: {run:?} is too near");
                assert!(differs(run.start) && differs(run.end - 1), "turn {turn}: {run:?}");
                let alike = run.clone().collect::<Vec<_>>();
                let alike = alike.chunk_by(|one, other| differs(*one) == differs(*other));
                let longest = alike.filter(|part| !differs(part[0])).map(<[usize]>::len).max();
                assert!(longest.unwrap_or(0) < GAP + 2 * WORD, "turn {turn}: {run:?} has too much");
                (behind, runs) = (run.end, runs + 1);
                Some(())
            });
            assert_eq!(whole, Some(()));
            assert!((behind..len).all(|at| !differs(at)), "turn {turn}: one is missing");
            let alike = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
            assert_eq!(same(&one, &other), alike);
            let alike = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
            assert_eq!(same_at_end(&one, &other), alike);
        }
    }

    #[test]
    fn a_search_that_is_stopped_finds_no_more_runs() {
        let (mut one, mut other) = ([0; 300], [0; 300]);
        (other[10], other[100], other[299]) = (1, 1, 1);
        let mut runs = 0;
        let stopped = each_difference(&mut one, &other, 16, |_, _| {
            runs += 1;
            (runs < 2).then_some(())
        });
        assert_eq!((stopped, runs), (None, 2));
    }
}
