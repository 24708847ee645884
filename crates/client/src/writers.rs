//! Many writers of one lane without a lock: each takes the next bytes of the stream, fills them, and the credit goes on over all that is filled.
//!
//! A writer owns a slot. Before it reserves, it stores there a lower bound of what it will get, and while it fills, where that begins; so whoever
//! computes the credit knows that nothing below the least of all slots is being written. Reserving is one compare-and-swap, publishing one
//! maximum. A writer that is held up keeps the credit at its bytes, and stops nobody from writing behind them.
//!
//! The words may lie in memory that another process shares. One process writes them.

use std::sync::atomic::{AtomicU64, Ordering};

use tidewater_wire::vendor::{RECORD_ALIGN, RING_IDLE};

/// There is no room for as many bytes now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// Where the bytes would have ended: room is there when the limit is no less.
    pub end: u64,
}

/// Bytes of the stream that a writer has for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// First byte that nobody else writes: what lies before `offset` is fill.
    pub from: u64,
    /// Where the writer's bytes begin.
    pub offset: u64,
    /// Where they end.
    pub end: u64,
}

/// The words of a lane's writers.
#[derive(Clone, Copy, Debug)]
pub struct Writers<'a> {
    /// End of what is reserved.
    pub reserve: &'a AtomicU64,
    /// The credit: end of what is filled without a gap.
    pub tail: &'a AtomicU64,
}

impl Writers<'_> {
    /// Reserves `bytes` at the next multiple of `align` (1, or [`RECORD_ALIGN`]), if they end at `limit` or before. `slots`: those of all writers.
    ///
    /// # Errors
    /// [`Full`]: nothing is reserved.
    #[inline]
    pub fn reserve<'s>(
        &self,
        slot: &AtomicU64,
        slots: impl Iterator<Item = &'s AtomicU64>,
        bytes: u64,
        align: u64,
        limit: u64,
    ) -> Result<Reserved, Full> {
        debug_assert!(align == 1 || align == RECORD_ALIGN);
        let mut from = self.reserve.load(Ordering::Relaxed);
        // Before the swap, for all: whoever sees the swap's value sees this one.
        slot.store(from, Ordering::SeqCst);
        loop {
            let offset = (from + (align - 1)) & !(align - 1);
            let end = offset.saturating_add(bytes);
            if end > limit {
                // Others may have waited for the lower bound.
                self.publish(slot, slots);
                return Err(Full { end });
            }
            match self.reserve.compare_exchange_weak(from, end, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => {
                    slot.store(from, Ordering::Release);
                    return Ok(Reserved { from, offset, end });
                }
                Err(now) => from = now,
            }
        }
    }

    /// The writer of a slot has filled what it had, or had nothing: the credit goes on as far as others let it. Returns it.
    ///
    /// Everything that the writer stored must be ordered before (a fence, where its stores were not ordinary ones).
    #[inline]
    pub fn publish<'s>(&self, slot: &AtomicU64, slots: impl Iterator<Item = &'s AtomicU64>) -> u64 {
        slot.store(RING_IDLE, Ordering::SeqCst);
        self.advance(slots)
    }

    /// Computes the credit anew. Returns it.
    #[inline]
    pub fn advance<'s>(&self, slots: impl Iterator<Item = &'s AtomicU64>) -> u64 {
        // What is reserved first, then who is writing: who reserved before has its slot set.
        let reserved = self.reserve.load(Ordering::SeqCst);
        let filled = slots.fold(reserved, |least, slot| least.min(slot.load(Ordering::SeqCst)));
        let before = self.tail.load(Ordering::Relaxed);
        if before >= filled { before } else { self.tail.fetch_max(filled, Ordering::AcqRel).max(filled) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;

    #[test]
    fn a_writer_that_is_held_up_keeps_the_credit_and_stops_nobody() {
        let words = [AtomicU64::new(100), AtomicU64::new(100)];
        let slots = [AtomicU64::new(RING_IDLE), AtomicU64::new(RING_IDLE)];
        let writers = Writers { reserve: &words[0], tail: &words[1] };
        let one = writers.reserve(&slots[0], slots.iter(), 64, RECORD_ALIGN, 1_000).unwrap();
        assert_eq!(one, Reserved { from: 100, offset: 128, end: 192 });
        let other = writers.reserve(&slots[1], slots.iter(), 10, 1, 1_000).unwrap();
        assert_eq!(other, Reserved { from: 192, offset: 192, end: 202 });
        assert_eq!(writers.publish(&slots[1], slots.iter()), 100);
        assert_eq!(writers.reserve(&slots[1], slots.iter(), 799, 1, 1_000), Err(Full { end: 1_001 }));
        assert_eq!(writers.publish(&slots[0], slots.iter()), 202);
        assert_eq!(writers.advance(slots.iter()), 202);
    }

    /// Every byte below the credit has been written, whatever the threads do, and at the end all have.
    #[test]
    fn the_credit_covers_no_byte_that_is_not_there() {
        const THREADS: usize = 4;
        const EACH: usize = 3_000;
        let words = [AtomicU64::new(0), AtomicU64::new(0)];
        let slots: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(RING_IDLE)).collect();
        let bytes: Vec<AtomicU8> = (0..THREADS * EACH * 8).map(|_| AtomicU8::new(0)).collect();
        let writers = Writers { reserve: &words[0], tail: &words[1] };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (slots, bytes) = (&slots, &bytes);
                scope.spawn(move || {
                    for i in 0..EACH {
                        let len = 1 + (i * 7 + thread) as u64 % 8;
                        let reserved = loop {
                            // A window that is often full.
                            let limit = words_limit(writers);
                            if let Ok(it) = writers.reserve(&slots[thread], slots.iter(), len, 1, limit) {
                                break it;
                            }
                        };
                        for byte in &bytes[reserved.from as usize..reserved.end as usize] {
                            assert_eq!(byte.swap(1, Ordering::Relaxed), 0, "nobody else has it");
                        }
                        let credit = writers.publish(&slots[thread], slots.iter());
                        let first = credit.saturating_sub(64) as usize;
                        for byte in &bytes[first..credit as usize] {
                            assert_eq!(byte.load(Ordering::Relaxed), 1, "below the credit {credit}");
                        }
                    }
                });
            }
        });
        assert_eq!(words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed));
    }

    fn words_limit(writers: Writers<'_>) -> u64 {
        writers.tail.load(Ordering::Acquire) + 24
    }
}
