//! Where bytes differ, and how far they are alike.
#![allow(unsafe_code)]

use std::ops::Range;

/// Bytes that are compared at once, while they are alike, and where they differ.
const STEP: usize = 64;
const WORD: usize = 8;

/// Bytes that two begin with alike.
pub(super) fn same(one: &[u8], other: &[u8]) -> usize {
    let steps = STEP * same_steps(one, other);
    let alike = one[steps..].iter().zip(&other[steps..]).take_while(|(one, other)| one == other);
    steps + alike.count()
}

/// Bytes that two end with alike.
pub(super) fn same_at_end(one: &[u8], other: &[u8]) -> usize {
    let steps = one.rchunks_exact(STEP).zip(other.rchunks_exact(STEP)).take_while(|(one, other)| one == other).count();
    let (one, other) = (&one[..one.len() - steps * STEP], &other[..other.len() - steps * STEP]);
    steps * STEP + one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

/// The runs of bytes in which two of a length differ, in order, each begun and ended by a byte that does. A run has no more bytes alike in a row than `gap` and
/// those of two words, and between two are `gap` at least. `then` may change what it is told of. `None`: it wanted no more.
#[inline]
pub(super) fn each_difference(
    one: &mut [u8],
    other: &[u8],
    gap: usize,
    mut then: impl FnMut(&mut [u8], Range<usize>) -> Option<()>,
) -> Option<()> {
    let (mut at, end) = (0, one.len());
    // In whole words: what is alike at its ends is cut off when it is over.
    let mut run = 0..0;
    let mut over = |one: &mut [u8], run: Range<usize>| {
        let differs = |at: &usize| one[*at] != other[*at];
        let run = run.start..run.end.min(end);
        match (run.clone().find(differs), run.rev().find(differs)) {
            // Others may be storing into what is compared.
            (Some(first), Some(last)) if first <= last => then(one, first..last + 1),
            _ => Some(()),
        }
    };
    while at < end {
        at += STEP * same_steps(&one[at..], &other[at..]);
        for (word, other) in words(&one[at..]).into_iter().zip(words(&other[at..])) {
            if word != other {
                if at - run.end >= gap {
                    over(one, std::mem::replace(&mut run, at..at))?;
                }
                run.end = at + WORD;
            }
            at += WORD;
        }
    }
    over(one, run)
}

/// The words of the next step of some bytes; behind their end are zeroes.
#[inline]
fn words(bytes: &[u8]) -> [u64; STEP / WORD] {
    let step = bytes.first_chunk().copied().unwrap_or_else(|| {
        let mut step = [0; STEP];
        step[..bytes.len()].copy_from_slice(bytes);
        step
    });
    std::array::from_fn(|word| u64::from_ne_bytes(step.as_chunks().0[word]))
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

/// Steps that two begin with alike. The C library's comparison is a call for each; this is a few instructions on as many bytes as the processor takes.
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
    fn whoever_wants_no_more_is_asked_no_more() {
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
