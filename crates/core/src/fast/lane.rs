//! A lane: one writer's stream, from the intake queue through the ring to its pages.

use super::pages::OFFSET_END;
use super::reassembly::Window;
use crate::content::Content;
use std::collections::VecDeque;
use tidewater_base::Instant;

/// A client that stores the same bytes repeatedly finds the queue full after so many times its size.
const QUEUES_MAX: u64 = 4;

/// A part of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Piece {
    fn end(self) -> u64 {
        self.offset + u64::from(self.len)
    }
}

/// Why bytes that the host stored were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They lie past the credit counter plus the queue size, or below the credit counter.
    BeyondCredit,
    /// There is no such lane, or the address is in no ring.
    Nowhere,
}

/// Bytes under their stream offsets, as far as the last `capacity` of them. Without capacity nothing is kept.
#[derive(Clone, Debug)]
struct Bytes(Box<[u8]>);

impl Bytes {
    fn new(capacity: u64, kept: bool) -> Bytes {
        Bytes(vec![0; if kept { capacity.next_power_of_two() as usize } else { 0 }].into_boxed_slice())
    }

    /// The two parts of the memory that `offset..offset + len` occupies.
    fn parts(&self, offset: u64, len: usize) -> (usize, usize) {
        let start = offset as usize & (self.0.len() - 1);
        (start, len.min(self.0.len() - start))
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        if !self.0.is_empty() {
            let (start, first) = self.parts(offset, bytes.len());
            self.0[start..start + first].copy_from_slice(&bytes[..first]);
            self.0[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        }
    }

    fn get(&self, offset: u64, bytes: &mut [u8]) {
        if !self.0.is_empty() {
            let (start, first) = self.parts(offset, bytes.len());
            let rest = bytes.len() - first;
            bytes[..first].copy_from_slice(&self.0[start..start + first]);
            bytes[first..].copy_from_slice(&self.0[..rest]);
        }
    }

    fn copy_from(&mut self, other: &Bytes, piece: Piece) {
        if self.0.is_empty() {
            return;
        }
        let (start, first) = other.parts(piece.offset, piece.len as usize);
        self.put(piece.offset, &other.0[start..start + first]);
        let rest = piece.len as usize - first;
        if rest > 0 {
            self.put(piece.offset + first as u64, &other.0[..rest]);
        }
    }
}

/// What a lane counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStatistics {
    /// Stores taken.
    pub stores: u64,
    /// Bytes taken.
    pub bytes: u64,
    /// Stores that were dropped because they were beyond the credit, or none were expected.
    pub dropped: u64,
    /// The offset of the first of them, as far as it is known.
    pub first_drop: u64,
    /// The most bytes that were in the intake queue at once.
    pub queue_bytes_max: u64,
    /// Pages destaged, and bytes of log in them.
    pub pages: u64,
    /// Bytes of log in these pages.
    pub bytes_destaged: u64,
    /// Of these, pages that filler completed.
    pub partial_pages: u64,
    /// Pages whose program failed, and that were written elsewhere.
    pub rewritten_pages: u64,
}

/// One writer's stream. Offsets: `durable <= placed <= released <= persisted`.
#[derive(Clone, Debug)]
pub struct Lane {
    ring_size: u64,
    queue_size: u64,
    ring: Bytes,
    staged: Bytes,
    window: Window,
    waiting: VecDeque<Piece>,
    moving: VecDeque<Piece>,
    queued_bytes: u64,
    persisted: u64,
    floor: u64,
    replicated: u64,
    /// Bytes from here on are stored nowhere: no replica makes up for that.
    withheld: u64,
    placed: u64,
    durable: u64,
    /// The ring's bytes below this are free.
    freed: u64,
    /// The first byte that this life of the lane has had, and the end of the highest that was written to the ring.
    start: u64,
    reached: u64,
    /// The end of the highest byte that arrived.
    arrived: u64,
    broken: bool,
    /// When the first byte that is not placed reached the ring.
    pub(crate) waits_since: Instant,
    /// Counters.
    pub statistics: LaneStatistics,
}

impl Lane {
    /// A lane whose stream has come to `start`. `kept`: bytes are kept, and not only counted.
    pub(super) fn new(ring_size: u64, queue_size: u64, start: u64, kept: bool) -> Lane {
        assert!(ring_size.is_power_of_two() && queue_size <= ring_size && queue_size > 0, "a checked set-up");
        Lane {
            ring_size,
            queue_size,
            ring: Bytes::new(ring_size, kept),
            staged: Bytes::new(queue_size, kept),
            window: Window::new(queue_size),
            waiting: VecDeque::with_capacity((queue_size / 64) as usize + 1),
            moving: VecDeque::with_capacity((queue_size / 64) as usize + 1),
            queued_bytes: 0,
            persisted: start,
            floor: u64::MAX,
            replicated: u64::MAX,
            withheld: u64::MAX,
            placed: start,
            durable: start,
            freed: start,
            start,
            reached: start,
            arrived: start,
            broken: false,
            waits_since: Instant::ZERO,
            statistics: LaneStatistics::default(),
        }
    }

    /// A new lane finds in its ring what was released and not on flash when its predecessor ended, as far as there is
    /// room.
    pub(super) fn take_back(&mut self, now: Instant, bytes: &[u8]) {
        debug_assert!(self.is_idle() && self.persisted == self.start);
        let room = self.ring_size.min(OFFSET_END.saturating_sub(self.start));
        let bytes = &bytes[..bytes.len().min(room as usize)];
        self.ring.put(self.start, bytes);
        let end = self.start + bytes.len() as u64;
        (self.persisted, self.reached, self.arrived) = (end, end, end);
        self.waits_since = now;
    }

    /// Bytes of its part of the ring's memory.
    pub fn ring_size(&self) -> u64 {
        self.ring_size
    }

    /// Bytes that may be stored beyond the credit.
    pub fn queue_size(&self) -> u64 {
        self.queue_size
    }

    /// The end of the contiguous bytes in the ring's memory: the local credit counter.
    #[inline]
    pub fn persisted(&self) -> u64 {
        self.persisted
    }

    /// The end of the regions that the client has released; [`u64::MAX`] without regions.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The end of what may be destaged and shipped.
    #[inline]
    pub fn released(&self) -> u64 {
        self.persisted.min(self.floor)
    }

    /// The end of what is in pages, on flash or on their way.
    #[inline]
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// The end of what is on flash.
    #[inline]
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The oldest byte that the ring still holds, on flash or not.
    pub fn in_ring_from(&self) -> u64 {
        self.reached.saturating_sub(self.ring_size).max(self.start)
    }

    /// The credit counter as the host reads it.
    #[inline]
    pub fn credit(&self) -> u64 {
        self.released().min(self.replicated)
    }

    /// The end of what has left the ring, whose room is free again: it is on flash, or in registers of dies on its way
    /// there.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// Bytes in the intake queue.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Takes what the replicas have. Credit never goes back.
    pub(crate) fn set_replicated(&mut self, replicated: u64) {
        self.replicated = replicated.min(self.withheld);
    }

    /// Nothing from here on is credited any more.
    pub(super) fn withhold(&mut self, from: u64) {
        self.withheld = self.withheld.min(from);
        self.set_replicated(self.replicated);
    }

    /// Whether no credit will ever get to this offset.
    pub(super) fn withholds(&self, offset: u64) -> bool {
        offset > self.withheld
    }

    /// Takes the end of the client's released regions. It never falls, but from [`u64::MAX`], which is no use of
    /// regions.
    pub(crate) fn set_floor(&mut self, floor: u64) {
        if self.floor == u64::MAX || floor > self.floor {
            self.floor = floor.max(self.released());
        }
    }

    /// The stream offset of a store at byte `at` of the ring's window: the one that lies within the credit.
    ///
    /// # Errors
    /// [`Refusal::BeyondCredit`]: there is none. The store is counted as dropped.
    #[inline]
    pub(crate) fn locate(&mut self, at: u64, len: u32) -> Result<u64, Refusal> {
        let credit = self.credit();
        let offset = credit + (at.wrapping_sub(credit) & (self.ring_size - 1));
        self.admit(offset, len)
    }

    /// As [`Lane::locate`], for bytes that come with their stream offset. Bytes that were released stay as they are,
    /// also before they are credited: pages and peers may have them.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(crate) fn admit(&mut self, offset: u64, len: u32) -> Result<u64, Refusal> {
        let credit = self.credit();
        let end = offset.saturating_add(len.into());
        let room = self.queued_bytes + u64::from(len) <= QUEUES_MAX * self.queue_size;
        if offset < self.released() || end > (credit + self.queue_size).min(OFFSET_END) || !room {
            self.drop_store(offset);
            return Err(Refusal::BeyondCredit);
        }
        Ok(offset)
    }

    /// Counts a store that is dropped.
    #[cold]
    pub(crate) fn drop_store(&mut self, offset: u64) {
        if self.statistics.dropped == 0 {
            self.statistics.first_drop = offset;
        }
        self.statistics.dropped += 1;
    }

    /// Takes bytes that a peer sends. False: they are beyond the window, which begins at what is persisted.
    pub(super) fn accept_from_peer(&mut self, offset: u64, content: Content<'_>) -> bool {
        let len = u64::from(content.len());
        let fits = offset >= self.persisted
            && offset.saturating_add(len) <= (self.persisted + self.queue_size).min(OFFSET_END)
            && self.queued_bytes + len <= QUEUES_MAX * self.queue_size;
        if fits {
            self.arrive(offset, content);
        }
        fits
    }

    /// A mapped client has stored up to `tail`, and `content` is what it stored since it last said so. False: it has
    /// not kept to its credit, and the stream is broken.
    pub(crate) fn announce(&mut self, tail: u64, content: Content<'_>) -> bool {
        let offset = tail.wrapping_sub(content.len().into());
        let kept_to_it = offset == self.arrived && tail <= (self.credit() + self.queue_size).min(OFFSET_END);
        if self.broken || !kept_to_it {
            self.broken = true;
            return false;
        }
        self.arrive(offset, content);
        true
    }

    /// Whether a mapped client has not kept to its credit: nothing more is taken from it.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether nothing of it waits anywhere.
    pub(super) fn is_idle(&self) -> bool {
        self.durable == self.persisted && self.queued_bytes == 0 && self.moving.is_empty() && self.window.is_empty()
    }

    /// The end of the highest byte that was written to the ring.
    pub fn reached(&self) -> u64 {
        self.reached
    }

    /// The end of the highest byte that arrived: where a mapped client's next bytes begin.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// How far the replicas let credit go.
    pub fn replicated(&self) -> u64 {
        self.replicated
    }

    /// Puts bytes into the intake queue.
    #[inline]
    pub(crate) fn arrive(&mut self, offset: u64, content: Content<'_>) {
        let piece = Piece { offset, len: content.len() };
        if offset < self.arrived {
            self.expect_again(piece);
        }
        self.waiting.push_back(piece);
        self.arrived = self.arrived.max(piece.end());
        self.queued_bytes += u64::from(piece.len);
        self.statistics.stores += 1;
        self.statistics.bytes += u64::from(piece.len);
        self.statistics.queue_bytes_max = self.statistics.queue_bytes_max.max(self.queued_bytes);
        if let Content::Bytes(bytes) = content {
            self.staged.put(offset, bytes);
        }
    }

    /// Bytes of an open region are written again: they count as there only when the new ones are, or the region could
    /// be released with the old ones.
    #[cold]
    fn expect_again(&mut self, piece: Piece) {
        if piece.end() < self.persisted {
            self.window.mark(piece.end(), self.persisted - piece.end());
        }
        self.persisted = self.persisted.min(piece.offset);
        self.window.unmark(piece.offset, piece.len.into());
    }

    /// The end of the piece that leaves the queue next.
    pub(super) fn next_end(&self) -> Option<u64> {
        self.waiting.front().map(|piece| piece.end())
    }

    /// The next piece that leaves the queue for the ring. `None`: none waits, or the ring has no room for it.
    #[inline]
    pub(crate) fn next_to_drain(&mut self) -> Option<Piece> {
        let piece = *self.waiting.front()?;
        if piece.end() > self.freed + self.ring_size {
            return None;
        }
        self.waiting.pop_front();
        self.reached = self.reached.max(piece.end());
        self.moving.push_back(piece);
        Some(piece)
    }

    /// The oldest piece on its way has reached the ring's memory.
    pub(crate) fn persist(&mut self, now: Instant) {
        let piece = self.moving.pop_front().expect("a piece was on its way");
        self.queued_bytes -= u64::from(piece.len);
        // What came twice may have waited so long that its place in the queue has gone to later bytes.
        let from = piece.offset.max(self.released());
        if piece.end() > from {
            self.ring.copy_from(&self.staged, Piece { offset: from, len: (piece.end() - from) as u32 });
        }
        let nothing_waited = self.released() == self.placed;
        if piece.offset == self.persisted && self.window.is_empty() {
            self.persisted = piece.end(); // Nearly always.
        } else if piece.end() > self.persisted {
            let from = piece.offset.max(self.persisted);
            self.window.mark(from, piece.end() - from);
            self.persisted += self.window.take(self.persisted);
        }
        if nothing_waited {
            self.waits_since = now;
        }
    }

    /// The next `len` bytes go to a page.
    pub(crate) fn place(&mut self, now: Instant, len: u64) -> u64 {
        let offset = self.placed;
        self.placed += len;
        debug_assert!(self.placed <= self.released());
        self.waits_since = now;
        offset
    }

    /// Everything below is on flash: its part of the ring is free.
    pub(crate) fn set_durable(&mut self, durable: u64) {
        self.durable = durable;
        self.free_until(durable);
    }

    /// The ring's bytes below are elsewhere, where no power loss reaches them.
    pub(crate) fn free_until(&mut self, end: u64) {
        self.freed = self.freed.max(end);
    }

    /// Copies bytes that are in the ring.
    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) {
        debug_assert!(offset >= self.in_ring_from() && offset + bytes.len() as u64 <= self.persisted);
        self.ring.get(offset, bytes);
    }

    /// Up to 8 bytes as a load from this place of the ring's window finds them: each is the newest that has reached the
    /// ring's memory there. Ones where none has, and past the window's end.
    pub(crate) fn load(&self, at: u64, len: usize) -> [u8; 8] {
        let mut bytes = [0xff; 8];
        for (byte, at) in bytes[..len.min(8)].iter_mut().zip(at..self.ring_size) {
            let behind = self.persisted.wrapping_sub(at + 1) & (self.ring_size - 1);
            let offset = self.persisted.checked_sub(behind + 1);
            if let Some(offset) = offset.filter(|&offset| offset >= self.in_ring_from()) {
                self.ring.get(offset, std::slice::from_mut(byte));
            }
        }
        bytes
    }

    /// A lane that has forgotten everything goes on at `at`.
    pub(crate) fn restart(&mut self, at: u64) {
        for offset in [
            &mut self.persisted,
            &mut self.placed,
            &mut self.durable,
            &mut self.freed,
            &mut self.start,
            &mut self.reached,
            &mut self.arrived,
        ] {
            *offset = at;
        }
        self.floor = u64::MAX;
    }

    /// Continues at `to`, behind all that has arrived. What is before is dropped, wherever it is.
    pub(crate) fn skip(&mut self, to: u64) {
        debug_assert!(to >= self.arrived);
        self.truncate(self.persisted);
        self.restart(to);
    }

    /// Its host does not write any more: regions that it had not released are void, and a primary's bytes have no floor
    /// here.
    pub(super) fn void_regions(&mut self) {
        if self.floor != u64::MAX {
            self.truncate(self.released());
            self.floor = u64::MAX;
        }
    }

    /// Forgets everything from `end` on, in the queue too.
    pub(crate) fn truncate(&mut self, end: u64) {
        self.window.clear();
        self.waiting.clear();
        // Pieces under way still arrive, and are dropped then: they have no bytes any more.
        self.moving.iter_mut().for_each(|piece| *piece = Piece { offset: 0, len: 0 });
        self.queued_bytes = 0;
        self.persisted = self.persisted.min(end);
        self.placed = self.placed.min(end);
        self.durable = self.durable.min(end);
        self.freed = self.freed.min(end);
        // Bytes past the end have taken the places of older ones: those are in pages only.
        self.start = self.in_ring_from().min(end);
        self.reached = self.reached.min(end);
        self.arrived = self.persisted;
        if self.floor != u64::MAX {
            self.floor = self.floor.min(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::Rng;

    fn drain(lane: &mut Lane) {
        while lane.next_to_drain().is_some() {
            lane.persist(Instant::ZERO);
        }
    }

    #[test]
    fn only_contiguous_bytes_are_credited_and_a_gap_stops_the_counter() {
        let mut lane = Lane::new(4096, 1024, 0, true);
        for (at, len) in [(64, 64u32), (200, 56), (128, 64)] {
            let offset = lane.locate(at, len).unwrap();
            lane.arrive(offset, Content::Bytes(&vec![at as u8; len as usize]));
        }
        drain(&mut lane);
        assert_eq!(lane.credit(), 0);
        let offset = lane.locate(0, 64).unwrap();
        lane.arrive(offset, Content::Bytes(&[7; 64]));
        drain(&mut lane);
        assert_eq!(lane.credit(), 192, "up to the gap from 192 to 200");
        let mut bytes = [0; 192];
        lane.read(0, &mut bytes);
        assert_eq!((bytes[0], bytes[64], bytes[191]), (7, 64, 128));
    }

    #[test]
    fn stores_beyond_the_credit_are_dropped_and_counted() {
        let mut lane = Lane::new(4096, 1024, 0, true);
        assert_eq!(lane.locate(1000, 25), Err(Refusal::BeyondCredit));
        assert_eq!(lane.locate(4095, 1), Err(Refusal::BeyondCredit), "below the credit is a turn of the ring ahead");
        assert_eq!(lane.locate(1000, 24), Ok(1000));
        assert_eq!(lane.statistics.dropped, 2);
    }

    #[test]
    fn a_full_ring_pushes_back_until_its_bytes_are_on_flash() {
        let mut lane = Lane::new(1024, 512, 0, false);
        for i in 0..3 {
            let offset = lane.locate(i * 512 % 1024, 512).unwrap();
            lane.arrive(offset, Content::Absent(512));
            drain(&mut lane);
        }
        assert_eq!((lane.credit(), lane.queued_bytes()), (1024, 512));
        lane.place(Instant::ZERO, 1024);
        lane.set_durable(600);
        drain(&mut lane);
        assert_eq!((lane.credit(), lane.queued_bytes()), (1536, 0));
    }

    #[test]
    fn credit_never_passes_the_oldest_open_region_and_open_bytes_can_be_written_again() {
        let mut lane = Lane::new(4096, 1024, 0, true);
        lane.set_floor(0);
        lane.arrive(0, Content::Bytes(&[1; 256]));
        drain(&mut lane);
        assert_eq!((lane.credit(), lane.persisted()), (0, 256));
        let offset = lane.locate(10, 4).unwrap();
        lane.arrive(offset, Content::Bytes(&[9; 4]));
        assert_eq!(lane.persisted(), 10, "the new bytes are not there yet");
        lane.set_floor(256);
        assert_eq!(lane.credit(), 10, "a released region counts with its new bytes");
        drain(&mut lane);
        assert_eq!((lane.credit(), lane.persisted()), (256, 256));
        let mut bytes = [0; 128];
        lane.read(0, &mut bytes);
        assert_eq!((bytes[9], bytes[10], bytes[14]), (1, 9, 1));
        lane.set_floor(100);
        assert_eq!(lane.credit(), 256, "what was released stays released");
    }

    #[test]
    fn bytes_that_come_twice_do_not_overwrite_the_ring_with_what_came_after_them() {
        let mut lane = Lane::new(1024, 512, 0, true);
        for _ in 0..2 {
            assert!(lane.accept_from_peer(0, Content::Bytes(&[7; 64])));
        }
        lane.next_to_drain().unwrap();
        lane.persist(Instant::ZERO);
        assert!(lane.accept_from_peer(512, Content::Bytes(&[9; 64])), "the same place in the queue");
        drain(&mut lane);
        let mut bytes = [0; 64];
        lane.read(0, &mut bytes);
        assert_eq!((lane.persisted(), bytes), (64, [7; 64]));
    }

    #[test]
    fn released_bytes_that_wait_for_replicas_can_not_be_written_again() {
        let mut lane = Lane::new(4096, 1024, 0, true);
        lane.set_replicated(0);
        lane.arrive(0, Content::Bytes(&[1; 128]));
        drain(&mut lane);
        assert_eq!((lane.credit(), lane.persisted()), (0, 128));
        assert_eq!(lane.locate(64, 64), Err(Refusal::BeyondCredit));
        assert_eq!((lane.locate(128, 64), lane.statistics.dropped), (Ok(128), 1));
    }

    #[test]
    fn a_lane_that_was_cut_below_its_ring_goes_on_there() {
        let mut lane = Lane::new(1024, 512, 0, true);
        for i in 0..8 {
            lane.arrive(i * 512, Content::Bytes(&[i as u8; 512]));
            drain(&mut lane);
            lane.place(Instant::ZERO, 512);
            lane.set_durable((i + 1) * 512);
        }
        lane.truncate(1000);
        assert_eq!((lane.in_ring_from(), lane.persisted()), (1000, 1000), "the ring has no older bytes");
        lane.arrive(1000, Content::Bytes(&[99; 64]));
        drain(&mut lane);
        let mut bytes = [0; 64];
        lane.read(1000, &mut bytes);
        assert_eq!(bytes, [99; 64]);
        lane.truncate(1032);
        assert_eq!(lane.in_ring_from(), 1000, "what lies before the cut is still there");
    }

    #[test]
    fn regions_of_a_host_that_may_not_write_any_more_are_void() {
        let mut lane = Lane::new(1024, 512, 0, true);
        lane.set_floor(0);
        lane.arrive(0, Content::Bytes(&[1; 200]));
        drain(&mut lane);
        lane.set_floor(128);
        lane.void_regions();
        assert_eq!((lane.persisted(), lane.released(), lane.floor()), (128, 128, u64::MAX));
        assert!(lane.accept_from_peer(128, Content::Bytes(&[2; 64])));
        drain(&mut lane);
        assert_eq!(lane.released(), 192);
    }

    #[test]
    fn what_comes_out_is_what_went_in_whatever_the_order() {
        let mut rng = Rng::new(9, b"lane");
        let mut lane = Lane::new(2048, 512, 0, true);
        let truth: Vec<u8> = (0..100_000u32).map(|i| (i * 31 % 251) as u8).collect();
        let mut checked = 0;
        while checked < truth.len() {
            let credit = lane.credit() as usize;
            let end = (credit + 512).min(truth.len());
            let mut pieces = Vec::new();
            let mut at = credit;
            while at < end {
                let len = (1 + rng.below(90) as usize).min(end - at);
                pieces.push((at, len));
                at += len;
            }
            while !pieces.is_empty() {
                let (at, len) = pieces.swap_remove(rng.below(pieces.len() as u64) as usize);
                let offset = lane.admit(at as u64, len as u32).unwrap();
                lane.arrive(offset, Content::Bytes(&truth[at..at + len]));
            }
            drain(&mut lane);
            let now = lane.credit() as usize;
            let mut bytes = vec![0; now - checked];
            lane.read(checked as u64, &mut bytes);
            assert_eq!(bytes, truth[checked..now]);
            lane.place(Instant::ZERO, (now - checked) as u64);
            lane.set_durable(now as u64);
            checked = now;
        }
    }
}
