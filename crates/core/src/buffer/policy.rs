//! What a policy is asked, and what it answers with.

use super::BufferProfile;
use std::fmt;

/// The fault of a policy from outside, in words: from then on its answers count for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(String);

impl Fault {
    /// A fault, in words that name the call and the page.
    pub fn new(what: impl fmt::Display) -> Fault {
        Fault(what.to_string())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// The pages that one command writes, which a policy gets one by one: from `first` up to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first page.
    pub first: u32,
    /// The page after the last.
    pub end: u32,
}

impl Run {
    /// A command of one page.
    pub fn of_one(lpn: u32) -> Run {
        Run { first: lpn, end: lpn.saturating_add(1) }
    }
}

/// Why a page goes to flash with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The host wrote it, and flash does not have it.
    Dirty,
    /// The read cache has it: written again beside the dirty pages of its block (CBM, merge-on-flush).
    Cached,
    /// It is on flash only: read, and written again beside the dirty pages of its block (BPLRU, page padding).
    Padding,
}

/// A page on its way from the buffer to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The page.
    pub lpn: u32,
    /// Why it goes.
    pub part: Part,
}

/// Pages that leave the buffer together, in the order in which they go to flash. Until then they are in the buffer
/// still.
#[derive(Clone, Debug, Default)]
pub struct Victim {
    pages: Vec<Leaving>,
    /// Of these, how many are gone.
    gone: usize,
    /// What is left is in the order of pages.
    sorted: bool,
}

impl Victim {
    pub(super) fn with_capacity(pages: usize) -> Victim {
        Victim { pages: Vec::with_capacity(pages), gone: 0, sorted: false }
    }

    /// A dirty page leaves.
    #[inline]
    pub fn push(&mut self, lpn: u32) {
        self.pages.push(Leaving { lpn, part: Part::Dirty });
    }

    /// A clean page goes along.
    #[inline]
    pub fn push_clean(&mut self, lpn: u32, part: Part) {
        self.pages.push(Leaving { lpn, part });
    }

    /// Puts all pages into the order of their numbers, in which a block is written sequentially.
    pub fn sort(&mut self) {
        self.pages.sort_unstable_by_key(|page| page.lpn);
        self.sorted = true;
    }

    /// The pages were pushed in the order of their numbers.
    pub fn set_sorted(&mut self) {
        debug_assert!(self.pages.is_sorted_by_key(|page| page.lpn));
        self.sorted = true;
    }

    /// Forgets everything.
    #[inline]
    pub fn clear(&mut self) {
        self.pages.clear();
        self.gone = 0;
        self.sorted = false;
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.gone == self.pages.len()
    }

    /// What is left.
    #[inline]
    pub fn rest(&self) -> &[Leaving] {
        &self.pages[self.gone..]
    }

    /// What is missing of the pages from `first` up to `end`, among which all that leave are, goes along as padding.
    /// `held`: room for the numbers of those that leave.
    pub(super) fn pad(&mut self, first: u32, end: u32, held: &mut Vec<Leaving>) {
        held.clear();
        held.extend_from_slice(self.rest());
        self.clear();
        let mut held = held.iter().copied().peekable();
        for lpn in first..end {
            let leaving = held.next_if(|page| page.lpn == lpn);
            self.pages.push(leaving.unwrap_or(Leaving { lpn, part: Part::Padding }));
        }
        self.set_sorted();
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&Leaving) -> bool) {
        debug_assert_eq!(self.gone, 0, "a victim is trimmed before its first page goes");
        self.pages.retain(keep);
    }

    #[inline]
    pub(super) fn take(&mut self) {
        self.gone += 1;
        if self.is_empty() {
            self.clear();
        }
    }

    /// The place of a page in what is left.
    pub(super) fn find(&self, lpn: u32) -> Option<usize> {
        let rest = self.rest();
        if self.sorted {
            rest.binary_search_by_key(&lpn, |page| page.lpn).ok()
        } else {
            rest.iter().position(|page| page.lpn == lpn)
        }
    }

    pub(super) fn part(&self, at: usize) -> Part {
        self.rest()[at].part
    }

    pub(super) fn set_dirty(&mut self, at: usize) {
        self.pages[self.gone + at].part = Part::Dirty;
    }

    pub(super) fn remove(&mut self, at: usize) {
        self.pages.remove(self.gone + at);
        if self.is_empty() {
            self.clear();
        }
    }
}

/// What a policy is made for.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Pages that the buffer takes.
    pub capacity: usize,
    /// Pages of a logical block: what the translation layer merges or erases as one, 1 to 65,535.
    pub block: u32,
    /// Logical pages of the drive.
    pub units: u32,
    /// Pages of the read cache beside it.
    pub cached: usize,
    /// Pages of a run of writes that is sequential.
    pub sequential: u32,
    /// `[buffer]`: thresholds and switches of single policies.
    pub profile: BufferProfile,
}

/// A replacement policy over logical pages. The buffer keeps to its capacity, knows what the pages hold, and takes what
/// leaves to flash; the policy keeps the order. None takes longer than O(log n) for a page, a sweep that is paid for by
/// earlier accesses apart.
pub trait Policy: fmt::Debug + Send {
    /// Whether the page is held.
    fn contains(&self, lpn: u32) -> bool;
    /// The page is read: false when it is not held.
    fn read(&mut self, lpn: u32) -> bool {
        self.contains(lpn)
    }
    /// The page is written by a command that writes `run`. When it is not held, it is taken in if there is `room`.
    /// False: it was not held.
    fn write(&mut self, lpn: u32, run: Run, room: bool) -> bool;
    /// Removes a page: false when it is not held.
    fn remove(&mut self, lpn: u32) -> bool;
    /// Takes out the dirty pages that leave together next, at least one if any is held. Policies that know no blocks
    /// give about `most`.
    fn evict(&mut self, most: usize, victim: &mut Victim);
    /// Names up to `most` pages that would leave next as things stand, so that what their leaving needs can be fetched
    /// before. Nothing depends on it but speed: a policy that would have to search names none.
    fn outlook(&self, _most: usize, _see: &mut dyn FnMut(u32)) {}
    /// Pages held.
    fn len(&self) -> usize;
    /// Whether no page is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Every page held, in no particular order.
    fn pages(&self) -> Vec<u32>;
    /// A copy.
    fn boxed_clone(&self) -> Box<dyn Policy>;

    /// Whether it holds clean pages beside dirty ones: then what is read from flash is offered to it.
    fn keeps_clean(&self) -> bool {
        false
    }
    /// Takes in a clean page that is not held. Only for a read cache, or a policy that [`Policy::keeps_clean`].
    fn fill(&mut self, lpn: u32) {
        unreachable!("clean page {lpn} for a policy that keeps none")
    }
    /// Whether the page is held and clean; always false in a read cache, which has no other.
    fn is_clean(&self, _lpn: u32) -> bool {
        false
    }
    /// Evicts the clean page that leaves before any dirty one, if there is such a page.
    fn drop_clean(&mut self) -> Option<u32> {
        None
    }

    /// Whether it wants to know what the read cache holds.
    fn cooperates(&self) -> bool {
        false
    }
    /// Whether a page that was destaged stays as a clean page of the read cache.
    fn keeps_destaged(&self) -> bool {
        false
    }
    /// The read cache has taken in a page that is not dirty here.
    fn cached(&mut self, _lpn: u32) {}
    /// The read cache has let go of a page.
    fn uncached(&mut self, _lpn: u32) {}

    /// Why its answers count for nothing. Only a policy from outside ever has a fault: see [`Outside`](super::Outside).
    fn fault(&self) -> Option<&Fault> {
        None
    }
}

impl Clone for Box<dyn Policy> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
