//! Many writers of one lane without a lock: each takes the next bytes of the stream, fills them, and the credit goes on
//! over all that is filled.
//!
//! A writer owns a slot. Before it reserves, it stores there where what it will get begins; so the computation
//! of the credit knows that nothing below the least of all slots is being written. Reserving is one
//! compare-and-swap, publishing one maximum. A writer that is held up keeps the credit at its bytes, and stops no other
//! from writing behind them.
//!
//! The words may lie in memory that other processes share, each of which writes (ADR 18). A process may die between any
//! two stores here, and what it had reserved must be known to the byte, since what lies behind is others': its slot
//! tells from where. Whether the swap came about, and up to where, tells the word itself, which names the slot; and
//! the next to swap notes it in that slot before.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use tidewater_wire::log::{RECORD_ALIGN, RING_IDLE, RING_RESERVE_BITS, RING_SLOTS, RingSlot};

const _: () = assert!(RingSlot::OWNER_OFFSET == 8 && RingSlot::END_OFFSET == 16, "the order of a slot's words");

/// No stream offset is as far as this: the bits above tell who reserved last.
pub const OFFSETS: u64 = 1 << RING_RESERVE_BITS;

/// There is no room for as many bytes now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// Where the bytes would have ended: room is there when the limit is no less.
    pub end: u64,
}

/// Bytes of the stream that a writer has for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// First byte that no other writer has: what lies before `offset` is fill.
    pub from: u64,
    /// Where the writer's bytes begin.
    pub offset: u64,
    /// Where they end.
    pub end: u64,
}

/// The words of one writer.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// The first byte that it may be writing; [`RING_IDLE`]: nothing.
    pub first: &'a AtomicU64,
    /// Its owner; 0: free.
    pub owner: &'a AtomicU64,
    /// Where its newest reservation ends. It never falls, so one that is no more than `first` is of an older one.
    pub end: &'a AtomicU64,
}

/// The words of a lane's writers.
#[derive(Clone, Copy, Debug)]
pub struct Writers<'a> {
    /// End of what is reserved, and above [`OFFSETS`] 1 + the slot that reserved last.
    pub reserve: &'a AtomicU64,
    /// The credit: end of what is filled without a gap.
    pub tail: &'a AtomicU64,
    /// Slots that were ever claimed.
    pub used: &'a AtomicU64,
    /// The slots, as [`RingSlot`] says.
    pub slots: &'a [[AtomicU64; RingSlot::SIZE / 8]; RING_SLOTS],
}

/// Stream offset and slot of the word `reserve`. A slot that is none comes from damage, and has no owner.
#[inline]
fn unpack(word: u64) -> (u64, Option<usize>) {
    let slot = (word >> RING_RESERVE_BITS) as usize;
    (word & (OFFSETS - 1), slot.checked_sub(1).filter(|slot| *slot < RING_SLOTS))
}

#[inline]
fn pack(offset: u64, slot: usize) -> u64 {
    offset | (slot as u64 + 1) << RING_RESERVE_BITS
}

impl<'a> Writers<'a> {
    /// A slot, 0 to [`RING_SLOTS`].
    #[inline(always)]
    pub fn slot(&self, at: usize) -> Slot<'a> {
        let [first, owner, end, ..] = &self.slots[at];
        Slot { first, owner, end }
    }

    /// End of what is reserved.
    #[inline]
    pub fn end(&self) -> u64 {
        unpack(self.reserve.load(Ordering::SeqCst)).0
    }

    /// Slots that may hold anything.
    #[inline]
    pub fn used(&self) -> usize {
        (self.used.load(Ordering::SeqCst) as usize).min(RING_SLOTS)
    }

    /// Takes a free slot, the one named first if it is free. `None`: all are taken.
    #[inline]
    pub fn claim(&self, owner: u64, first: usize) -> Option<usize> {
        self.claim_one(owner, first).or_else(|| (0..RING_SLOTS).find_map(|slot| self.claim_one(owner, slot)))
    }

    #[inline]
    fn claim_one(&self, owner: u64, at: usize) -> Option<usize> {
        let slot = self.slot(at);
        if slot.owner.load(Ordering::Relaxed) != 0
            || slot.owner.compare_exchange(0, owner, Ordering::SeqCst, Ordering::Relaxed).is_err()
        {
            return None;
        }
        if self.used.load(Ordering::Relaxed) <= at as u64 {
            self.used.fetch_max(at as u64 + 1, Ordering::SeqCst);
        }
        Some(at)
    }

    /// Gives back a slot that writes nothing.
    #[inline]
    pub fn release(&self, slot: usize) {
        self.slot(slot).owner.store(0, Ordering::Release);
    }

    /// Reserves `bytes`, 1 or more, at the next multiple of `align` (1, or [`RECORD_ALIGN`]), if they end at `limit` or
    /// before. The slot is the caller's.
    ///
    /// # Errors
    /// [`Full`]: nothing is reserved.
    #[inline]
    pub fn reserve(&self, slot: usize, bytes: u64, align: u64, limit: u64) -> Result<Reserved, Full> {
        debug_assert!(align == 1 || align == RECORD_ALIGN);
        debug_assert!(bytes > 0 && limit < OFFSETS);
        let mine = self.slot(slot);
        let mut word = self.reserve.load(Ordering::SeqCst);
        loop {
            let (from, last) = unpack(word);
            // Before the swap, which releases it: a reader of the swap's value sees this one.
            mine.first.store(from, Ordering::Relaxed);
            let offset = (from + (align - 1)) & !(align - 1);
            let end = offset.saturating_add(bytes);
            if end > limit {
                // Others may have waited for the lower bound.
                self.publish(slot);
                return Err(Full { end });
            }
            // The word forgets who reserved up to `from`: noted before, for the one that finds that writer dead.
            if let Some(last) = last.filter(|last| *last != slot) {
                self.note(last, from);
            }
            match self.reserve.compare_exchange_weak(word, pack(end, slot), Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    mine.end.store(end, Ordering::Release);
                    return Ok(Reserved { from, offset, end });
                }
                Err(now) => word = now,
            }
        }
    }

    #[inline]
    fn note(&self, slot: usize, end: u64) {
        let slot = self.slot(slot);
        if slot.end.load(Ordering::Acquire) < end {
            slot.end.fetch_max(end, Ordering::SeqCst);
        }
    }

    /// The writer of a slot has filled what it had, or had nothing: the credit goes on as far as others let it. Returns
    /// it.
    ///
    /// Everything that the writer stored must be ordered before (a fence, where its stores were not ordinary ones).
    #[inline(always)]
    pub fn publish(&self, slot: usize) -> u64 {
        self.slot(slot).first.store(RING_IDLE, Ordering::Release);
        self.advance()
    }

    /// Computes the credit anew. Returns it.
    #[inline(always)]
    pub fn advance(&self) -> u64 {
        let mut tail = self.tail.load(Ordering::Relaxed);
        let mut settled = false;
        loop {
            let filled = self.filled();
            if filled > tail {
                tail = self.tail.fetch_max(filled, Ordering::SeqCst).max(filled);
                // On x86-64 a locked instruction is a full fence.
                if !cfg!(target_arch = "x86_64") {
                    fence(Ordering::SeqCst);
                }
            } else if settled {
                return tail;
            } else {
                fence(Ordering::SeqCst);
            }
            // Two who publish at once may each have seen the other's slot as it was: from here on what this thread
            // stored is seen by all, so that one of the two sees both.
            settled = true;
        }
    }

    /// Up to where everything is filled.
    #[inline(always)]
    fn filled(&self) -> u64 {
        // What is reserved first, then who is writing: who reserved before has its slot set.
        let reserved = self.end();
        let used = &self.slots[..self.used()];
        used.iter().fold(reserved, |least, slot| least.min(slot[0].load(Ordering::SeqCst)))
    }

    /// Takes the slot of an owner that is no more. `None`: another process has. Else what is left of it, if anything:
    /// bytes that no other writer has, and that the caller fills before it publishes and releases the slot. Until then
    /// the credit stays before them, and should the caller die amid it, the next one does it again.
    pub fn take_over(&self, at: usize, dead: u64, owner: u64) -> Option<Option<Reserved>> {
        let slot = self.slot(at);
        slot.owner.compare_exchange(dead, owner, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        if let (end, Some(last)) = unpack(self.reserve.load(Ordering::SeqCst))
            && last == at
        {
            self.note(at, end);
        }
        let (from, end) = (slot.first.load(Ordering::SeqCst), slot.end.load(Ordering::SeqCst));
        let offset = from.checked_next_multiple_of(RECORD_ALIGN).unwrap_or(from);
        Some((from != RING_IDLE && end > from).then_some(Reserved { from, offset: offset.min(end), end }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;

    /// The words of a lane.
    #[derive(Debug)]
    struct Words {
        reserve: AtomicU64,
        tail: AtomicU64,
        used: AtomicU64,
        slots: [[AtomicU64; 8]; RING_SLOTS],
    }

    fn words(begin: u64) -> Words {
        let word = AtomicU64::new;
        let slots = std::array::from_fn(|_| std::array::from_fn(|at| word(if at == 0 { RING_IDLE } else { 0 })));
        Words { reserve: word(begin), tail: word(begin), used: word(0), slots }
    }

    impl Words {
        fn writers(&self) -> Writers<'_> {
            Writers { reserve: &self.reserve, tail: &self.tail, used: &self.used, slots: &self.slots }
        }
    }

    #[test]
    fn a_writer_that_is_held_up_keeps_the_credit_and_stops_no_other() {
        let words = words(100);
        let writers = words.writers();
        assert_eq!((writers.claim(7, 0), writers.claim(7, 0)), (Some(0), Some(1)));
        let one = writers.reserve(0, 64, RECORD_ALIGN, 1_000).unwrap();
        assert_eq!(one, Reserved { from: 100, offset: 128, end: 192 });
        let other = writers.reserve(1, 10, 1, 1_000).unwrap();
        assert_eq!(other, Reserved { from: 192, offset: 192, end: 202 });
        assert_eq!(writers.publish(1), 100);
        assert_eq!(writers.reserve(1, 799, 1, 1_000), Err(Full { end: 1_001 }));
        assert_eq!(writers.publish(0), 202);
        assert_eq!((writers.advance(), writers.end()), (202, 202));
        writers.release(0);
        assert_eq!(writers.claim(8, 1), Some(0), "the one that was asked for is taken");
    }

    /// Wherever a writer dies, what it leaves is known to the byte.
    #[test]
    fn what_a_dead_writer_had_reserved_is_known_wherever_it_died() {
        const DEAD: u64 = 7;
        let left = |die: &dyn Fn(&Words), others: bool| {
            let words = words(100);
            let writers = words.writers();
            // An earlier life of the slot.
            let slot = writers.claim(DEAD, 0).unwrap();
            writers.reserve(slot, 20, 1, 1_000).unwrap();
            writers.publish(slot);
            die(&words);
            if others {
                let other = writers.claim(9, 1).unwrap();
                writers.reserve(other, 30, 1, 1_000).unwrap();
                writers.publish(other);
            }
            let end = writers.end();
            let left = writers.take_over(slot, DEAD, 9).unwrap();
            assert_eq!(writers.take_over(slot, DEAD, 9), None, "once");
            assert_eq!(writers.publish(slot), end, "the credit goes on");
            left
        };
        let bound = |words: &Words| words.slots[0][0].store(120, Ordering::SeqCst);
        let swapped = |words: &Words| {
            bound(words);
            words.reserve.store(pack(170, 0), Ordering::SeqCst);
        };
        let noted = |words: &Words| {
            swapped(words);
            words.slots[0][2].store(170, Ordering::SeqCst);
        };
        for others in [false, true] {
            assert_eq!(left(&|_| (), others), None, "it was writing nothing");
            assert_eq!(left(&bound, others), None, "its swap had not come about");
            let hole = Some(Reserved { from: 120, offset: 128, end: 170 });
            assert_eq!((left(&swapped, others), left(&noted, others)), (hole, hole));
        }
    }

    /// Every byte below the credit has been written, whatever the threads do, and at the end all have.
    #[test]
    fn the_credit_covers_no_byte_that_is_not_there() {
        const THREADS: usize = 4;
        const EACH: usize = 3_000;
        let words = words(0);
        let bytes: Vec<AtomicU8> = (0..THREADS * EACH * 8).map(|_| AtomicU8::new(0)).collect();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (words, bytes) = (&words, &bytes);
                scope.spawn(move || {
                    let writers = words.writers();
                    for i in 0..EACH {
                        let len = 1 + (i * 7 + thread) as u64 % 8;
                        // Claimed for each, as by processes; anybody may have it next.
                        let slot = writers.claim(1 + thread as u64, i % THREADS).expect("more slots than threads");
                        let reserved = loop {
                            // A window that is often full.
                            let limit = words.tail.load(Ordering::Acquire) + 24;
                            if let Ok(it) = writers.reserve(slot, len, 1, limit) {
                                break it;
                            }
                        };
                        for byte in &bytes[reserved.from as usize..reserved.end as usize] {
                            assert_eq!(byte.swap(1, Ordering::Relaxed), 0, "no other writer has it");
                        }
                        let credit = writers.publish(slot);
                        writers.release(slot);
                        let first = credit.saturating_sub(64) as usize;
                        for byte in &bytes[first..credit as usize] {
                            assert_eq!(byte.load(Ordering::Relaxed), 1, "below the credit {credit}");
                        }
                    }
                });
            }
        });
        assert_eq!(words.writers().end(), words.tail.load(Ordering::Relaxed));
    }
}
