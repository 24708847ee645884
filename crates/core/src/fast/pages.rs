//! The LBA ring: pages of the log in the order in which they were destaged.

use crate::content::LogPage;
use std::collections::VecDeque;
use tidewater_wire::vendor::{OFFSET_BITS, PageHeader};

/// Bytes of header in every destaged page (ADR 7).
pub const PAGE_HEADER: u32 = PageHeader::SIZE as u32;

/// The end of every stream: 16 TiB.
pub const OFFSET_END: u64 = 1 << OFFSET_BITS;

/// A page that is in its die's register.
const WHOLE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: LogPage,
    /// Bytes of it in a die's register, or further; [`WHOLE`]: all that it will ever have.
    crossed: u32,
    on_flash: bool,
}

/// The ring of logical pages. Page `n` of the log is at logical page `first + n % count`.
#[derive(Clone, Debug)]
pub struct LbaRing {
    first: u32,
    count: u32,
    /// Pages that must stay free for what is in the ring's memory when the power fails.
    reserve: u32,
    head: u64,
    slots: VecDeque<Slot>,
    /// All pages below are on flash.
    settled: u64,
    /// All pages below are in dies' registers, or further.
    loaded: u64,
}

impl LbaRing {
    pub(super) fn new(first: u32, count: u32, reserve: u32) -> LbaRing {
        assert!(reserve < count, "a checked set-up");
        LbaRing { first, count, reserve, head: 0, slots: VecDeque::new(), settled: 0, loaded: 0 }
    }

    /// The first logical page of the ring.
    pub fn first_lpn(&self) -> u32 {
        self.first
    }

    /// Logical pages of the ring.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Pages that must stay free for what is in the ring's memory when the power fails.
    pub fn reserve(&self) -> u32 {
        self.reserve
    }

    /// The number of the oldest page.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The number that the next page gets.
    pub fn tail(&self) -> u64 {
        self.head + self.slots.len() as u64
    }

    /// All pages below this one are on flash.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// The logical page of a page of the log.
    #[inline]
    pub fn lpn(&self, number: u64) -> u32 {
        self.first + (number % u64::from(self.count)) as u32
    }

    /// Pages from the oldest to the newest that are on flash in order, and their numbers.
    pub fn pages(&self) -> impl Iterator<Item = (u64, LogPage)> + '_ {
        let settled = (self.settled - self.head) as usize;
        (self.head..).zip(self.slots.range(..settled)).map(|(number, slot)| (number, slot.page))
    }

    /// Whether there is a place for another page. On stored energy the reserve is there to be used.
    #[inline]
    pub(super) fn has_room(&self, emergency: bool) -> bool {
        let reserve = if emergency { 0 } else { self.reserve };
        (self.slots.len() as u32) < self.count - reserve
    }

    /// Whether all of the reserve is there, so that full rings would find a place. An emergency takes from it, and then
    /// it is not until the host trims.
    #[inline]
    pub(super) fn reserve_is_free(&self) -> bool {
        self.free() >= self.reserve
    }

    /// Pages that are neither taken nor needed.
    #[inline]
    pub(super) fn free(&self) -> u32 {
        self.count - self.slots.len() as u32
    }

    /// The number of the next page, which is then on its way to flash.
    pub(super) fn push(&mut self, page: LogPage) -> u64 {
        self.slots.push_back(Slot { page, crossed: 0, on_flash: false });
        self.tail() - 1
    }

    /// The sequence of the oldest page, on flash or on its way there.
    pub(super) fn oldest_sequence(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.page.sequence)
    }

    /// A page that is not settled yet.
    pub(super) fn in_flight(&self, number: u64) -> Option<LogPage> {
        Some(self.slots.get(number.checked_sub(self.head)? as usize)?.page)
    }

    pub(super) fn set_sequence(&mut self, number: u64, sequence: u64) {
        self.slots[(number - self.head) as usize].page.sequence = sequence;
    }

    /// A page is in a die's register. Calls `free` with a lane and the end of its bytes that have, like all pages
    /// before theirs, got there or further.
    pub(super) fn load(&mut self, number: u64, free: impl FnMut(u8, u64)) {
        self.cross(number, WHOLE, free);
    }

    /// The first `bytes` of a page are in a die's register. Calls `free` as [`LbaRing::load`] does.
    pub(super) fn cross(&mut self, number: u64, bytes: u32, mut free: impl FnMut(u8, u64)) {
        if let Some(place) = number.checked_sub(self.head)
            && let Some(slot) = self.slots.get_mut(place as usize)
        {
            slot.crossed = slot.crossed.max(bytes);
        }
        self.loaded = self.loaded.max(self.head);
        while let Some(slot) = self.slots.get((self.loaded - self.head) as usize) {
            let there = if slot.on_flash { WHOLE } else { slot.crossed };
            // A page that was voided meanwhile lies behind where its log was cut.
            if slot.page.len > 0 {
                free(slot.page.lane, slot.page.offset + u64::from(there.min(slot.page.len)));
            }
            if there < WHOLE {
                return;
            }
            self.loaded += 1;
        }
    }

    /// A page is on flash. Calls `each` for every page that now has all pages before it on flash too.
    pub(super) fn finish(&mut self, number: u64, mut each: impl FnMut(LogPage)) {
        self.slots[(number - self.head) as usize].on_flash = true;
        while let Some(slot) = self.slots.get((self.settled - self.head) as usize)
            && slot.on_flash
        {
            each(slot.page);
            self.settled += 1;
        }
        self.drop_void_tail();
    }

    /// Takes back the newest pages if they hold nothing, as far as none is on its way to flash: their numbers are given
    /// again.
    fn drop_void_tail(&mut self) {
        while self.settled == self.tail() && self.slots.back().is_some_and(|slot| slot.page.len == 0) {
            self.slots.pop_back();
            self.settled -= 1;
        }
        self.loaded = self.loaded.min(self.tail());
    }

    /// Releases pages up to `number`, as far as they are on flash. Returns their numbers.
    pub(super) fn trim(&mut self, number: u64) -> std::ops::Range<u64> {
        let until = number.min(self.settled).max(self.head);
        let from = std::mem::replace(&mut self.head, until);
        self.slots.drain(..(until - from) as usize);
        from..until
    }

    /// The oldest page of a lane that is on flash.
    pub fn oldest(&self, lane: u8) -> Option<LogPage> {
        self.pages().map(|(_, page)| page).find(|page| page.lane == lane && page.len > 0)
    }

    /// The page that holds a byte of a lane, on flash or on its way there.
    pub fn find(&self, lane: u8, offset: u64) -> Option<(u64, LogPage)> {
        // Pages of one lane are in order, but others lie between them.
        let end = self.slots.len();
        let (mut low, mut high) = (0, end);
        let of_lane = |i: usize| (i..end).find(|&j| self.slots[j].page.lane == lane && self.slots[j].page.len > 0);
        while low < high {
            let middle = (low + high) / 2;
            match of_lane(middle) {
                Some(i) if self.slots[i].page.end() <= offset => low = i + 1,
                _ => high = middle,
            }
        }
        let i = of_lane(low)?;
        let page = self.slots[i].page;
        (page.offset <= offset).then_some((self.head + i as u64, page))
    }

    /// Cuts a lane's log: pages hold nothing from `end` on. Returns whether one did.
    pub(super) fn cut(&mut self, lane: u8, end: u64) -> bool {
        let mut any = false;
        let beyond = |slot: &&mut Slot| slot.page.lane == lane && slot.page.len > 0 && slot.page.end() > end;
        for slot in self.slots.iter_mut().filter(beyond) {
            slot.page.len = end.saturating_sub(slot.page.offset) as u32;
            any = true;
        }
        self.drop_void_tail();
        any
    }

    /// The ring as a control block says it was: pages from `head` on, all of them on flash.
    pub(super) fn restore(&mut self, head: u64, pages: Vec<LogPage>) {
        self.head = head;
        self.slots = pages.into_iter().map(|page| Slot { page, crossed: WHOLE, on_flash: true }).collect();
        self.settled = self.tail();
        self.loaded = self.tail();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(lane: u8, offset: u64, len: u32) -> LogPage {
        LogPage { lane, offset, len, sequence: 0 }
    }

    #[test]
    fn a_stamp_says_what_a_page_holds() {
        let page = LogPage { lane: 15, offset: OFFSET_END - 1, len: 65_535, sequence: 77 };
        assert_eq!(LogPage::from_stamp(page.version(), 77), page);
    }

    #[test]
    fn pages_settle_in_order_and_are_found_by_lane_and_offset() {
        let mut ring = LbaRing::new(100, 8, 2);
        for i in 0..6u64 {
            assert!(ring.has_room(false));
            ring.push(page((i % 2) as u8, i / 2 * 10, 10));
        }
        assert!(!ring.has_room(false) && ring.has_room(true));
        let mut order = Vec::new();
        for number in [1, 2, 0, 4, 3] {
            ring.finish(number, |page| order.push((page.lane, page.offset)));
        }
        assert_eq!(order, [(0, 0), (1, 0), (0, 10), (1, 10), (0, 20)]);
        assert_eq!(ring.find(1, 19).unwrap().0, 3);
        assert_eq!(ring.find(0, 20).unwrap().0, 4);
        assert_eq!(ring.find(1, 20).unwrap().0, 5, "on its way");
        assert_eq!(ring.find(1, 30), None);
        assert_eq!(ring.trim(100), 0..5);
        assert_eq!((ring.find(0, 0), ring.head(), ring.lpn(9)), (None, 5, 101));
    }

    #[test]
    fn bytes_are_freed_as_far_as_all_before_them_are_in_registers() {
        let mut ring = LbaRing::new(0, 8, 0);
        (0..4).for_each(|i| assert_eq!(ring.push(page((i / 3) as u8, i % 3 * 100, 100)), i));
        let cross = |ring: &mut LbaRing, number, bytes| {
            let mut ends = [0, 0];
            ring.cross(number, bytes, |lane, end| ends[usize::from(lane)] = ends[usize::from(lane)].max(end));
            ends
        };
        assert_eq!(cross(&mut ring, 1, 60), [0, 0], "the page before it has not begun");
        assert_eq!(cross(&mut ring, 0, 30), [30, 0]);
        assert_eq!(cross(&mut ring, 0, 10), [30, 0], "what has crossed stays there");
        assert_eq!(cross(&mut ring, 0, WHOLE), [160, 0], "and a part of the next");
        assert_eq!(cross(&mut ring, 1, 150), [200, 0], "filler frees nothing");
        assert_eq!(cross(&mut ring, 3, WHOLE), [200, 0], "the page before ends only with its transfer");
        ring.cut(0, 120);
        assert_eq!(cross(&mut ring, 1, WHOLE), [120, 0], "a page that was cut, and no void one behind it");
        assert_eq!(cross(&mut ring, 2, WHOLE), [0, 100]);
    }

    #[test]
    fn a_void_page_on_its_way_to_flash_is_free_once_it_is_there() {
        let mut ring = LbaRing::new(0, 8, 0);
        for (number, lane) in [(0, 0), (1, 1), (2, 0)] {
            ring.push(page(lane, 0, 10));
            if number < 2 {
                ring.finish(number, |_| {});
            }
        }
        ring.cut(1, 0);
        assert_eq!((ring.tail(), ring.free()), (3, 5), "one is on its way");
        ring.cut(0, 10);
        ring.finish(2, |_| {});
        assert_eq!(ring.tail(), 3, "its last page holds something");
        ring.cut(0, 0);
        assert_eq!((ring.tail(), ring.settled(), ring.free()), (0, 0, 8));
    }

    #[test]
    fn a_cut_voids_what_lies_behind_it() {
        let mut ring = LbaRing::new(0, 8, 0);
        for i in 0..3 {
            ring.push(page(0, i * 10, 10));
            ring.finish(i, |_| {});
        }
        assert!(ring.cut(0, 15) && !ring.cut(0, 15) && !ring.cut(1, 0));
        let lens: Vec<u32> = ring.pages().map(|(_, page)| page.len).collect();
        assert_eq!((lens, ring.settled()), (vec![10, 5], 2), "a void page at the end is free again");
        assert_eq!(ring.find(0, 14).unwrap().0, 1);
        assert_eq!(ring.find(0, 15), None);
    }
}
