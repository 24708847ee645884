//! Recovery of a ring that is taken up: whole records stay, holes are sealed.

use super::{Recovered, Ring, look_at, wrong};
use crate::LogError;
use crate::lane::OFFSET_END;
use crate::mapped::memory::fence;
use crate::mapped::owner;
use crate::writers::Reserved;
use crate::{Entry, Records, fill_void};
use std::sync::atomic::Ordering;
use tidewater_wire::log::{RECORD_ALIGN, RING_IDLE, RING_SLOTS, RecordHeader, RingLane, RingLanePage, RingPage};

impl Ring {
    /// Seals what dead writers have left: a record that is whole stays, everything else becomes void. How many holes
    /// there were. Bytes are written back as `settle` does it.
    pub(in crate::mapped) fn seal(&self, me: u64, settle: impl Fn(Reserved)) -> usize {
        let writers = self.writers();
        let mut sealed = 0;
        for at in 0..writers.used() {
            let dead = writers.slot(at).owner.load(Ordering::SeqCst);
            if dead == 0 || dead == me || !owner::is_dead(dead) {
                continue;
            }
            let Some(left) = writers.take_over(at, dead, me) else { continue };
            // More than a ring can only come from damage: the credit goes on, and readers find no record there.
            if let Some(hole) = left.filter(|hole| hole.end - hole.from <= self.size()) {
                if !self.holds_record(hole) {
                    let mut void = vec![0; (hole.end - hole.from) as usize];
                    fill_void(hole.from, self.header.epoch, &mut void);
                    self.write(hole.from, &void);
                    sealed += 1;
                }
                settle(hole);
            }
            writers.publish(at);
            writers.release(at);
        }
        sealed
    }

    /// Whether a reservation is just one whole record.
    fn holds_record(&self, hole: Reserved) -> bool {
        let mut bytes = vec![0; (hole.end - hole.offset) as usize];
        self.read(hole.offset, &mut bytes);
        let span = |payload: &[u8]| RecordHeader::span(payload.len() as u64);
        hole.offset.is_multiple_of(RECORD_ALIGN)
            && matches!(Records::new(&bytes, hole.offset).next(),
                Some(Entry::Record { lsn, payload, .. }) if lsn == hole.offset && lsn + span(payload) == hole.end)
    }

    /// Takes up the stream: this handle is its only writer now.
    pub(in crate::mapped) fn take_up(&mut self) -> Result<Recovered, LogError> {
        const GENERATION: u64 = RingLanePage::GENERATION_OFFSET as u64;
        if !RingPage::parse(&self.page()).is_ok_and(|page| page.open) {
            return Err(wrong("the device takes nothing from it: its function was set up anew, or it was damaged"));
        }
        if self.is_broken() {
            return Err(LogError::Broken);
        }
        let (generation, taken) = (self.counter(RingLane::GENERATION_OFFSET), self.taken());
        (self.generation, self.begin) = (generation, taken);
        // The device stores a generation's epoch before it publishes the generation. What this handle has read before
        // may be of an epoch that has ended since, and readers take records of one for a deposed writer's.
        self.header.epoch = look_at(&self.file, self.lane)?.0.epoch;
        let mut recovered = Recovered::default();
        let is_new = self.mine.load(GENERATION) != generation;
        let tail = if is_new { self.counter(RingLane::START_OFFSET) } else { self.tail() };
        if let Some(stands) = [taken, tail].into_iter().find(|stands| *stands > OFFSET_END) {
            return Err(wrong(format!("its stream stands at {stands}, which is more than a lane can have")));
        }
        let end = if is_new {
            self.begin = tail;
            tail
        } else {
            // Bytes before the begin of this generation were never in the ring, whatever the device has taken since.
            self.begin = taken.max(self.mine.load(RingLanePage::BEGIN_OFFSET as u64));
            self.recover(taken, &mut recovered)?
        };
        let writers = self.writers();
        for slot in (0..RING_SLOTS).map(|at| writers.slot(at)) {
            slot.first.store(RING_IDLE, Ordering::Relaxed);
            slot.owner.store(0, Ordering::Relaxed);
            slot.end.store(0, Ordering::Relaxed);
        }
        for (at, value) in [
            (RingLanePage::WANTED_OFFSET, 0),
            (RingLanePage::UNNEEDED_OFFSET, 0),
            (RingLanePage::LEFT_OFFSET, 0),
            (RingLanePage::USED_OFFSET, 0),
            (RingLanePage::NAMESPACE_OFFSET, owner::namespace()),
            (RingLanePage::BEGIN_OFFSET, self.begin),
            (RingLanePage::SAVER_OFFSET, 0),
            (RingLanePage::SAVED_OFFSET, taken),
            (RingLanePage::WAITING_OFFSET, 0),
            (RingLanePage::UNSAVED_OFFSET, 0),
            (RingLanePage::RESERVE_OFFSET, end),
        ] {
            self.mine.word(at as u64).store(value, Ordering::Relaxed);
        }
        self.mine.word(RingLanePage::TAIL_OFFSET as u64).store(end, Ordering::Release);
        self.mine.word(GENERATION).store(generation, Ordering::Release);
        Ok(Recovered { tail: end, in_ring: end.saturating_sub(taken), is_new, ..recovered })
    }

    fn page(&self) -> [u8; RingPage::SIZE] {
        let mut bytes = [0; RingPage::SIZE];
        self.device.read(0, &mut bytes);
        bytes
    }

    /// Recovers bytes beyond the tail of the writer before: whole records count, holes between them become void, and
    /// the rest is cut off. None of it was acknowledged.
    fn recover(&self, taken: u64, recovered: &mut Recovered) -> Result<u64, LogError> {
        let limit = (taken + self.size()).min(OFFSET_END);
        let (tail, reserve) = (self.tail(), self.reserved());
        if !(taken..=limit).contains(&tail) {
            return Err(wrong(format!("it was filled up to {tail}, and only {taken} to {limit} can be in it")));
        }
        // After a loss of power, what was reserved may be an old value too.
        let until = if self.header.persistent { limit } else { reserve.clamp(tail, limit) };
        let mut bytes = vec![0; (until - tail) as usize];
        self.read(tail, &mut bytes);
        let (mut end, mut hole) = (tail, None);
        for entry in Records::new(&bytes, tail) {
            let (from, to) = match entry {
                Entry::Skipped { from, to, .. } => {
                    hole = Some((from, to));
                    continue;
                }
                Entry::Void { lsn, bytes } => (lsn, lsn + bytes),
                Entry::Record { lsn, payload, .. } => {
                    recovered.records += 1;
                    (lsn, lsn + tidewater_wire::log::RecordHeader::span(payload.len() as u64))
                }
            };
            if to > until {
                break; // Its fill was not reserved.
            }
            if let Some((first, last)) = hole.take() {
                debug_assert_eq!(last, from);
                let mut void = vec![0; (last - first) as usize];
                fill_void(first, self.header.epoch, &mut void);
                self.write(first, &void);
                recovered.sealed += 1;
            }
            end = to;
        }
        fence();
        Ok(end)
    }
}
