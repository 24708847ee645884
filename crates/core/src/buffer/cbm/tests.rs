use super::*;
use crate::buffer::tests::{Model, same_order, setting, victims};
use crate::buffer::{Buffer, BufferProfile, Part};
use std::collections::BTreeMap;

const THRESHOLD: u32 = 3;
const SEQUENTIAL: u32 = 6;

/// The rules over plain lists: dirty pages from the least recently written, and the blocks that have migrated.
#[derive(Default)]
struct Naive {
    pages: Vec<u32>,
    migrated: Vec<u32>,
    popularity: BTreeMap<u32, u32>,
    /// The run of writes: its first page, and the one that would continue it.
    run: (u32, u32),
}

impl Naive {
    fn of_block(&self, block: u32) -> Vec<u32> {
        self.pages.iter().copied().filter(|lpn| lpn / 8 == block).collect()
    }

    fn take(&mut self, block: u32) -> Vec<u32> {
        let mut pages = self.of_block(block);
        pages.sort_unstable();
        self.pages.retain(|lpn| lpn / 8 != block);
        self.migrated.retain(|&b| b != block);
        self.popularity.remove(&block);
        pages
    }
}

impl Model for Naive {
    fn write(&mut self, lpn: u32, run: Run) {
        let block = lpn / 8;
        self.pages.retain(|&l| l != lpn);
        self.pages.push(lpn);
        let continues = self.run.1 == lpn;
        self.run = (if continues { self.run.0 } else { lpn }, lpn + 1);
        let popularity = self.popularity.entry(block).or_default();
        if !continues || lpn.is_multiple_of(8) || *popularity == 0 {
            *popularity += 1;
        }
        let sequential = run.end - self.run.0 >= SEQUENTIAL;
        if (sequential || self.of_block(block).len() as u32 >= THRESHOLD) && !self.migrated.contains(&block) {
            self.migrated.push(block);
        }
    }
    fn remove(&mut self, lpn: u32) {
        self.pages.retain(|&l| l != lpn);
        if self.of_block(lpn / 8).is_empty() {
            self.take(lpn / 8);
        }
    }
    fn evict(&mut self) -> Vec<u32> {
        let order = |&block: &u32| (self.popularity[&block], usize::MAX - self.of_block(block).len(), block);
        let block = self.migrated.iter().copied().min_by_key(order).unwrap_or_else(|| self.pages[0] / 8);
        self.take(block)
    }
}

fn cbm(capacity: usize, block: u32, threshold: u32) -> Cbm {
    let mut setting = setting(capacity, block);
    setting.profile.cbm_threshold = threshold;
    setting.sequential = SEQUENTIAL;
    Cbm::new(&setting)
}

/// Dirty pages of the block region.
fn block_region(cbm: &Cbm) -> usize {
    cbm.regions.blocks.len() - cbm.regions.recency.len()
}

fn write(cbm: &mut Cbm, lpns: &[u32]) {
    for &lpn in lpns {
        cbm.write(lpn, Run::of_one(lpn), true);
    }
}

#[test]
fn blocks_leave_as_the_rules_say() {
    same_order(cbm(40, 8, THRESHOLD), Naive::default(), 40, 200);
}

#[test]
fn a_block_migrates_when_it_has_as_many_pages_as_the_threshold() {
    let mut cbm = cbm(40, 8, 3);
    write(&mut cbm, &[0, 8, 2, 10]);
    assert_eq!((cbm.regions.recency.len(), block_region(&cbm)), (4, 0));
    write(&mut cbm, &[4]);
    assert_eq!((cbm.regions.recency.len(), block_region(&cbm)), (2, 3), "all pages of block 0");
    write(&mut cbm, &[6]);
    assert_eq!(block_region(&cbm), 4, "a block of the block region takes its pages there");
}

#[test]
fn a_sequential_write_goes_to_the_block_region_at_once() {
    let mut cbm = cbm(40, 8, 8);
    let run = Run { first: 16, end: 22 };
    cbm.write(16, run, true);
    assert_eq!(block_region(&cbm), 1, "a command of six pages is sequential from its first on");
    // Commands that follow each other become sequential with the sixth page, and so do the pages before.
    write(&mut cbm, &[24, 25, 26, 27, 28]);
    assert_eq!(block_region(&cbm), 1);
    write(&mut cbm, &[29]);
    assert_eq!((block_region(&cbm), cbm.regions.recency.len()), (7, 0));
    // A gap ends the run.
    write(&mut cbm, &[31, 32, 33, 34, 35, 37]);
    assert_eq!(cbm.regions.recency.len(), 5, "page 31 joins its block; the others are random");
}

#[test]
fn a_sequential_access_counts_once_for_popularity() {
    let mut cbm = cbm(40, 8, 2);
    // Block 0: one access to four pages. Block 1: two accesses to two pages. Block 2: again and again to the same.
    write(&mut cbm, &[0, 1, 2, 3, 8, 10, 16, 18, 16, 18]);
    assert_eq!(victims(&mut cbm, 1), [0, 1, 2, 3], "popularity 1");
    assert_eq!(victims(&mut cbm, 1), [8, 10], "popularity 2");
    assert_eq!(victims(&mut cbm, 1), [16, 18], "popularity 4");
}

#[test]
fn of_equally_popular_blocks_the_one_with_most_dirty_pages_leaves() {
    let mut cbm = cbm(40, 8, 2);
    write(&mut cbm, &[0, 1, 8, 9, 10, 16, 17]);
    assert_eq!(victims(&mut cbm, 1), [8, 9, 10]);
    assert_eq!(victims(&mut cbm, 1), [0, 1], "of equals in all, the first");
}

#[test]
fn the_page_region_gives_victims_only_when_the_block_region_is_empty() {
    let mut cbm = cbm(40, 8, 3);
    write(&mut cbm, &[0, 8, 16, 18, 20, 2, 0]);
    assert_eq!(victims(&mut cbm, 1), [16, 18, 20], "block 2 has migrated, though it was written after block 1");
    assert_eq!(victims(&mut cbm, 1), [8], "the least recently written page");
    write(&mut cbm, &[8]);
    assert_eq!(victims(&mut cbm, 1), [0, 2], "page 2 is the oldest, and the rest of its block goes with it");
    assert_eq!(victims(&mut cbm, 1), [8]);
    assert!(victims(&mut cbm, 1).is_empty() && cbm.is_empty());
}

/// The slides' example: W(0), R(2), W(1), R(3). Alone, pages 0 and 1 leave, and 2 and 3 have to be copied when their
/// block is merged; together with what the read cache has, the whole block is written in order.
#[test]
fn merge_on_flush_completes_a_block_from_the_read_cache() {
    for rule in [CbmMerge::Always, CbmMerge::Run, CbmMerge::Whole, CbmMerge::Off] {
        let merge = rule != CbmMerge::Off;
        let mut setting = setting(8, 4);
        setting.profile.cbm_merge = rule;
        let mut buffer = Buffer::new("cbm", &setting, true);
        assert_eq!(buffer.cooperates(), merge);
        buffer.write(0, 1, Run::of_one(0));
        buffer.cached(2);
        buffer.write(1, 2, Run::of_one(1));
        buffer.cached(3);
        buffer.cached(5);
        buffer.choose(1);
        let leaving: Vec<_> = buffer.leaving().iter().map(|page| (page.lpn, page.part)).collect();
        let together = [(0, Part::Dirty), (1, Part::Dirty), (2, Part::Cached), (3, Part::Cached)];
        assert_eq!(leaving, together[..if merge { 4 } else { 2 }]);
        buffer.count_leaving();
        while buffer.is_leaving() {
            buffer.take_leaving(true);
        }
        let counts = &buffer.statistics;
        assert_eq!((counts.evictions, counts.departures, counts.pages_merged), (2, 1, if merge { 2 } else { 0 }));
        assert_eq!(buffer.lengths.iter().position(|&n| n > 0), Some(leaving.len()));
    }
}

/// What leaves of a block of eight pages of which some are dirty and some in the read cache: dirty pages, merged ones
/// and padding, as letters; a dot stays behind.
fn leaves(dirty: &[u32], cached: &[u32], change: impl FnOnce(&mut BufferProfile)) -> String {
    let mut setting = Setting { cached: 16, units: 29, ..setting(16, 8) };
    change(&mut setting.profile);
    setting.profile.cbm_threshold = 1;
    let mut cbm = Cbm::new(&setting);
    cached.iter().for_each(|&lpn| cbm.cached(lpn));
    write(&mut cbm, dirty);
    let mut victim = Victim::default();
    cbm.evict(1, &mut victim);
    let first = dirty[0] / 8 * 8;
    let letter = |lpn| match victim.rest().iter().find(|page| page.lpn == lpn).map(|page| page.part) {
        Some(Part::Dirty) => 'd',
        Some(Part::Cached) => 'c',
        Some(Part::Padding) => 'p',
        None => '.',
    };
    assert!(
        victim.rest().is_sorted_by_key(|page| page.lpn) && victim.rest().iter().all(|page| page.lpn / 8 * 8 == first)
    );
    (first..first + 8).map(letter).collect()
}

#[test]
fn a_reading_of_merge_on_flush_says_which_clean_pages_go_along() {
    use CbmMerge::{Always, Off, Run, Whole};
    let of = |rule: CbmMerge, dirty: &[u32], cached: &[u32]| leaves(dirty, cached, |profile| profile.cbm_merge = rule);
    let gap: (&[u32], &[u32]) = (&[9, 11], &[8, 10, 14]);
    let found = [Always, Run, Whole, Off].map(|rule| of(rule, gap.0, gap.1));
    assert_eq!(found, ["cdcd..c.", "cdcd....", ".d.d....", ".d.d...."]);
    // The run from the first page has no dirty one: nothing is won by writing it again.
    let apart = [Always, Run, Whole, Off].map(|rule| of(rule, &[12], &[8, 9, 13]));
    assert_eq!(apart, ["cc..dc..", "....d...", "....d...", "....d..."]);
    let whole = [Always, Run, Whole, Off].map(|rule| of(rule, &[3, 5], &[0, 1, 2, 4, 6, 7]));
    assert_eq!(whole, ["cccdcdcc", "cccdcdcc", "cccdcdcc", "...d.d.."]);
    // Without its first page a block has no run that could be written in place.
    assert_eq!(of(Run, &[1, 2, 3], &[4]), ".ddd....");
}

#[test]
fn a_block_that_is_half_full_is_completed_from_flash() {
    let pad = |dirty: &[u32], cached: &[u32]| {
        leaves(dirty, cached, |profile| {
            (profile.cbm_merge, profile.cbm_padding) = (CbmMerge::Run, true);
        })
    };
    assert_eq!(pad(&[8, 11, 13], &[]), "d..d.d..", "three of eight");
    assert_eq!(pad(&[8, 11, 13], &[9]), "dcpdpdpp", "and one that is merged");
    assert_eq!(pad(&[8, 11, 13], &[15]), "d..d.d..", "one that is not merged does not count");
    assert_eq!(pad(&[24, 25, 26, 28], &[]), "dddpd...", "the drive ends within the block");
}

#[test]
fn padded_the_block_leaves_whole_and_in_order() {
    let pad = |dirty: &[u32], cached: &[u32]| leaves(dirty, cached, |profile| profile.cbm_merge = CbmMerge::Pad);
    assert_eq!(pad(&[11], &[]), "pppdpppp", "one of eight is enough");
    assert_eq!(pad(&[9, 13], &[8, 14, 15]), "cdpppdcc", "of what the read cache has, nothing is read");
    assert_eq!(pad(&[24], &[27]), "dppcp...", "the drive ends within the block");
}

#[test]
fn a_run_may_be_looked_for_in_each_block() {
    for (runs, at_once) in [(CbmRuns::All, false), (CbmRuns::Block, true)] {
        let mut setting = Setting { sequential: 4, ..setting(40, 8) };
        (setting.profile.cbm_threshold, setting.profile.cbm_runs) = (8, runs);
        let mut cbm = Cbm::new(&setting);
        // Two streams in turn, of which each is one.
        write(&mut cbm, &[0, 8, 1, 9, 2, 10]);
        assert_eq!(block_region(&cbm), 0);
        write(&mut cbm, &[3, 11]);
        assert_eq!(block_region(&cbm), if at_once { 8 } else { 0 });
        // One access each, or four.
        let popular = [0, 1].map(|block| {
            let number = cbm.regions.blocks.number(block).unwrap();
            cbm.regions.blocks.mark(number)
        });
        assert_eq!(popular, if at_once { [1, 1] } else { [4, 4] });
        // What a block did before it left says nothing of the next that has its number.
        (0..2).for_each(|_| _ = victims(&mut cbm, 1));
        (0..12).for_each(|_| _ = victims(&mut cbm, 1));
        write(&mut cbm, &[20]);
        assert_eq!(block_region(&cbm), 0);
    }
}

/// The same rules, with a count that is halved of all blocks.
#[derive(Default)]
struct Ageing {
    naive: Naive,
    written: u32,
}

impl Model for Ageing {
    fn write(&mut self, lpn: u32, run: Run) {
        self.written += 1;
        if self.written.is_multiple_of(10) {
            self.naive.popularity.values_mut().for_each(|count| *count = count.div_ceil(2));
        }
        self.naive.write(lpn, run);
    }
    fn remove(&mut self, lpn: u32) {
        self.naive.remove(lpn);
    }
    fn evict(&mut self) -> Vec<u32> {
        self.naive.evict()
    }
}

#[test]
fn popularity_ages() {
    let mut setting = setting(40, 8);
    (setting.profile.cbm_threshold, setting.sequential, setting.profile.cbm_age) = (THRESHOLD, SEQUENTIAL, 0.25);
    same_order(Cbm::new(&setting), Ageing::default(), 40, 200);
}

#[test]
fn what_the_read_cache_let_go_or_the_host_wrote_is_not_merged() {
    let mut cbm = cbm(8, 4, 2);
    write(&mut cbm, &[0]);
    (1..4).for_each(|lpn| cbm.cached(lpn));
    cbm.uncached(1);
    // A drive lets the read cache go of a page before it is written; even if it did not, the page would be dirty.
    write(&mut cbm, &[2]);
    cbm.uncached(2);
    let mut victim = Victim::default();
    cbm.evict(1, &mut victim);
    let leaving: Vec<_> = victim.rest().iter().map(|page| (page.lpn, page.part)).collect();
    assert_eq!(leaving, [(0, Part::Dirty), (2, Part::Dirty), (3, Part::Cached)]);
    // The read cache has page 3 still: the block is known, and begins anew.
    write(&mut cbm, &[0, 1]);
    victim.clear();
    cbm.evict(1, &mut victim);
    assert_eq!(victim.rest().len(), 3);
}
