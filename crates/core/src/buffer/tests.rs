//! The conformance suite on each built-in policy, and on some that break a rule. And a frame in which a policy's order
//! is held against a naive model of it.

use super::conformance::{self, Failure, Operation, built_in};
use super::{Buffer, BufferProfile, CbmMerge, CbmRuns, Fault, Outside, POLICIES, Part, Policy, Run, Setting, Victim};
use crate::profile::Profile;
use std::collections::BTreeSet;
use tidewater_base::Rng;

/// A buffer of `capacity` pages over blocks of `block`.
pub(super) fn setting(capacity: usize, block: u32) -> Setting {
    let profile = Profile::generic();
    let sequential = (profile.buffer.cbm_sequential / u64::from(profile.ftl.unit_size)) as u32;
    Setting { capacity, block, units: 1 << 20, cached: 8, sequential, profile: profile.buffer }
}

/// The dirty pages that leave next.
pub(super) fn victims(policy: &mut dyn Policy, most: usize) -> Vec<u32> {
    let mut victim = Victim::default();
    policy.evict(most, &mut victim);
    victim.rest().iter().filter(|page| page.part == Part::Dirty).map(|page| page.lpn).collect()
}

/// A policy as its rules tell it, in the simplest way.
pub(super) trait Model {
    /// A page is written.
    fn write(&mut self, lpn: u32, run: Run);
    /// A page is taken away.
    fn remove(&mut self, lpn: u32);
    /// What leaves next.
    fn evict(&mut self) -> Vec<u32>;
}

/// Lets a policy and its model do the same at random: what leaves must be the same, in the same order.
pub(super) fn same_order(mut policy: impl Policy, mut model: impl Model, capacity: usize, pages: u64) {
    let mut rng = Rng::new(17, b"order");
    for step in 0..30_000 {
        if rng.below(40) == 0 {
            let lpn = rng.below(pages) as u32;
            if policy.remove(lpn) {
                model.remove(lpn);
            }
            continue;
        }
        // Skewed, so that blocks differ; a few long runs among many short ones.
        let first = (rng.below(pages) * rng.below(pages) / pages) as u32;
        let len = if rng.below(8) == 0 { 1 + rng.below(12) } else { 1 };
        let run = Run { first, end: (first + len as u32).min(pages as u32) };
        for lpn in run.first..run.end {
            while !policy.contains(lpn) && policy.len() >= capacity {
                assert_eq!(victims(&mut policy, 1), model.evict(), "in step {step}");
            }
            let held = policy.contains(lpn);
            assert_eq!(policy.write(lpn, run, true), held, "in step {step}");
            model.write(lpn, run);
        }
    }
    while !policy.is_empty() {
        assert_eq!(victims(&mut policy, 1), model.evict(), "at the end");
    }
}

#[test]
fn policies_conform() {
    let profile = Profile::generic().buffer;
    for &name in POLICIES.iter().filter(|&&name| name != "none") {
        // Both ways of each switch.
        for on in [true, false] {
            let profile = BufferProfile { bplru_padding: on, ..profile.clone() };
            conformance::check(&built_in(name), &profile).unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }
}

#[test]
fn every_reading_of_cbm_conforms() {
    use CbmMerge::{Always, Off, Pad, Run, Whole};
    for (at, cbm_merge) in [Always, Run, Whole, Pad, Off].into_iter().cycle().take(40).enumerate() {
        let others = at / 5;
        let (cbm_keep, cbm_padding) = (others & 1 > 0, others & 2 > 0);
        let cbm_runs = if others & 4 > 0 { CbmRuns::Block } else { CbmRuns::All };
        for (cbm_threshold, cbm_age) in [(0, 0.0), (2, 0.1), (3, 4.0)] {
            let profile = Profile::generic().buffer;
            let profile =
                BufferProfile { cbm_merge, cbm_runs, cbm_keep, cbm_padding, cbm_age, cbm_threshold, ..profile };
            conformance::check(&built_in("cbm"), &profile).unwrap_or_else(|failure| panic!("{profile:?}: {failure}"));
        }
    }
}

/// Restored pages were held before, whatever the capacity is now.
#[test]
fn what_survived_a_power_loss_goes_back_even_into_a_smaller_buffer() {
    for &name in POLICIES.iter().filter(|&&name| name != "none") {
        let mut buffer = Buffer::new(name, &setting(4, 8), true);
        for lpn in 0..20 {
            buffer.restore(lpn * 3, u64::from(lpn));
        }
        buffer.restore(0, 99);
        assert_eq!((buffer.len(), buffer.version(0), buffer.version(57)), (20, Some(99), Some(19)), "{name}");
        assert!(!buffer.write(7, 100, Run::of_one(7)), "{name}: there is no room");
        let mut left = BTreeSet::new();
        while buffer.dirty() > 0 {
            if !buffer.is_leaving() {
                buffer.choose(3);
            }
            let page = buffer.leaving()[0];
            buffer.take_leaving(true);
            left.extend((page.part == Part::Dirty).then_some(page.lpn));
        }
        assert!(left.into_iter().eq((0..20).map(|lpn| lpn * 3)), "{name}");
    }
}

#[test]
fn no_buffer_holds_nothing() {
    let mut buffer = Buffer::new("none", &setting(32, 8), true);
    assert!(!buffer.is_enabled() && !buffer.write(1, 1, Run::of_one(1)));
    assert!(!buffer.read(1) && !buffer.look_up(1) && buffer.contents().is_empty());
}

/// What a policy does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Nothing,
    GivesAnother,
    GivesTwice,
    GivesNone,
    GivesPadding,
    GivesCached,
    Forgets,
    KeepsWhatItGave,
    LiesOfAWrite,
    LiesOfARemoval,
    LiesOfAPage,
    Miscounts,
    ListsLess,
    CopiesNothing,
    CopiesInAnotherOrder,
    DropsADirtyPage,
    CallsAllClean,
    FailsAtThree,
    IsNotEmpty,
}

/// First in, first out, with a clean list, and with one thing wrong.
#[derive(Clone, Debug)]
struct Fifo {
    wrong: Wrong,
    pages: Vec<u32>,
    clean: Vec<u32>,
    fault: Option<Fault>,
}

impl Fifo {
    fn outside(wrong: Wrong) -> Outside {
        Outside::new("test", &format!("{wrong:?}"), move |_| {
            let pages = if wrong == Wrong::IsNotEmpty { vec![1] } else { Vec::new() };
            Ok(Box::new(Fifo { wrong, pages, clean: Vec::new(), fault: None }))
        })
    }
}

impl Policy for Fifo {
    fn contains(&self, lpn: u32) -> bool {
        (self.pages.contains(&lpn) || self.clean.contains(&lpn)) != (self.wrong == Wrong::LiesOfAPage && lpn == 7)
    }

    fn write(&mut self, lpn: u32, _run: Run, room: bool) -> bool {
        if self.wrong == Wrong::FailsAtThree && lpn == 3 {
            self.fault = Some(Fault::new("it fails at page 3"));
        }
        let held = self.pages.contains(&lpn);
        let clean = self.clean.len();
        self.clean.retain(|&l| l != lpn);
        let was_clean = self.clean.len() < clean;
        if was_clean || !held && room {
            self.pages.push(lpn);
        }
        (held || was_clean) != (self.wrong == Wrong::LiesOfAWrite && held)
    }

    fn remove(&mut self, lpn: u32) -> bool {
        let before = self.len();
        self.pages.retain(|&l| l != lpn);
        self.clean.retain(|&l| l != lpn);
        self.len() < before || self.wrong == Wrong::LiesOfARemoval
    }

    fn evict(&mut self, most: usize, victim: &mut Victim) {
        if self.wrong == Wrong::GivesNone && self.pages.len() == 3 {
            return;
        }
        let leave: Vec<u32> = self.pages.drain(..most.min(self.pages.len())).collect();
        leave.iter().for_each(|&lpn| victim.push(lpn));
        match self.wrong {
            Wrong::GivesAnother => victim.push(99),
            Wrong::GivesTwice => leave.iter().for_each(|&lpn| victim.push(lpn)),
            Wrong::GivesPadding => victim.push_clean(200, Part::Padding),
            Wrong::GivesCached => victim.push_clean(98, Part::Cached),
            Wrong::Forgets => _ = self.pages.pop(),
            Wrong::KeepsWhatItGave => self.pages.extend(leave),
            _ => {}
        }
    }

    fn len(&self) -> usize {
        self.pages.len() + self.clean.len() + usize::from(self.wrong == Wrong::Miscounts && self.pages.len() == 5)
    }

    fn pages(&self) -> Vec<u32> {
        let skip = usize::from(self.wrong == Wrong::ListsLess);
        self.pages.iter().skip(skip).chain(&self.clean).copied().collect()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        let mut copy = self.clone();
        match self.wrong {
            Wrong::CopiesNothing => copy.pages.clear(),
            // Each copy in another order than the one before.
            Wrong::CopiesInAnotherOrder => {
                use std::sync::atomic::{AtomicUsize, Ordering};
                static COPIES: AtomicUsize = AtomicUsize::new(0);
                let by = COPIES.fetch_add(1, Ordering::Relaxed) % copy.pages.len().max(1);
                copy.pages.rotate_left(by);
            }
            _ => {}
        }
        Box::new(copy)
    }

    fn keeps_clean(&self) -> bool {
        true
    }

    fn fill(&mut self, lpn: u32) {
        self.clean.push(lpn);
    }

    fn is_clean(&self, lpn: u32) -> bool {
        self.clean.contains(&lpn) || self.wrong == Wrong::CallsAllClean
    }

    fn drop_clean(&mut self) -> Option<u32> {
        if self.wrong == Wrong::DropsADirtyPage && !self.pages.is_empty() {
            return Some(self.pages.remove(0));
        }
        (!self.clean.is_empty()).then(|| self.clean.remove(0))
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }
}

fn failure(wrong: Wrong) -> Failure {
    let checked = conformance::check(&Fifo::outside(wrong), &Profile::generic().buffer);
    *checked.expect_err(&format!("{wrong:?} is noticed"))
}

#[test]
fn a_policy_from_outside_that_keeps_to_the_contract_conforms() {
    conformance::check(&Fifo::outside(Wrong::Nothing), &Profile::generic().buffer).expect("nothing is wrong");
}

#[test]
fn whatever_a_policy_does_wrong_is_said_with_what_led_to_it() {
    let words = |wrong| failure(wrong).to_string();
    assert_eq!(
        words(Wrong::GivesAnother),
        "every answer is right: evict gave page 99, which is not held; in a buffer of 1 page, blocks of 1 page, \
         after: write 0, flush"
    );
    let expected = [
        (Wrong::GivesTwice, "evict gave page 0 twice"),
        (Wrong::GivesNone, "evict gave no dirty page, and 3 are held"),
        (Wrong::GivesPadding, "evict gave page 200 as padding, and the drive has 100 pages"),
        (Wrong::GivesCached, "evict gave page 98 from the read cache, which does not have it"),
        (Wrong::Forgets, "after an eviction its length is 0, and it holds 1 page"),
        (Wrong::KeepsWhatItGave, "evict gave page 0 away, and the policy still contains it"),
        (Wrong::LiesOfAWrite, "write without room said that page 0 is not held, and it is"),
        (Wrong::LiesOfARemoval, "remove said that page 0 is held, and it is not"),
        (Wrong::LiesOfAPage, "contains said that page 7 is not held, and it is"),
        (Wrong::Miscounts, "after a write its length is 6, and it holds 5 pages"),
        (Wrong::ListsLess, "its list of pages lacks page 0, which is held"),
        (Wrong::CopiesNothing, "after copying its length is 0, and it holds 1 page"),
        (Wrong::DropsADirtyPage, "drop_clean gave page 4, which is not held as a clean one"),
        (Wrong::CallsAllClean, "is_clean said that page 4 is clean, and it is not"),
        (Wrong::FailsAtThree, "it fails at page 3"),
        (Wrong::IsNotEmpty, "a new policy holds 1 page"),
    ];
    let other: Vec<_> = expected.iter().map(|&(wrong, what)| (what, words(wrong))).collect();
    let other: Vec<_> = other.iter().filter(|(what, said)| !said.contains(what)).collect();
    assert!(other.is_empty(), "{other:#?}");
    let copied = words(Wrong::CopiesInAnotherOrder);
    assert!(copied.starts_with("a copy goes on as the original: of one copy pages ["), "{copied}");
}

#[test]
fn what_led_to_a_failure_is_as_short_as_it_can_be() {
    let Failure { operations, capacity, .. } = failure(Wrong::GivesNone);
    let written: u32 = operations.iter().map(|o| if let Operation::Write { len, .. } = o { *len } else { 0 }).sum();
    assert_eq!((written, capacity), (3, 3), "{operations:?}");
    assert_eq!(failure(Wrong::FailsAtThree).operations, [Operation::Write { first: 3, len: 1 }]);
}

/// A run that went on would have results of no meaning; a drive that stopped amid a command would be inconsistent.
#[test]
fn a_buffer_stays_consistent_after_a_fault() {
    for wrong in
        [Wrong::GivesAnother, Wrong::KeepsWhatItGave, Wrong::FailsAtThree, Wrong::Forgets, Wrong::DropsADirtyPage]
    {
        let setting = setting(8, 4);
        let policy = Fifo::outside(wrong).make(&setting).expect("it can be made");
        let mut buffer = Buffer::of(policy, &setting, true);
        let mut left = Vec::new();
        for lpn in 0..50u32 {
            while !buffer.write(lpn, u64::from(lpn) + 1, Run::of_one(lpn)) {
                if !buffer.is_leaving() {
                    buffer.choose(3);
                }
                let page = buffer.leaving()[0].lpn;
                assert_eq!(buffer.take_leaving(true), u64::from(page) + 1, "{wrong:?}");
                left.push(page);
            }
        }
        assert_eq!((buffer.fault().is_some(), buffer.len()), (wrong != Wrong::DropsADirtyPage, 8), "{wrong:?}");
        left.extend(buffer.pages());
        left.sort_unstable();
        assert!(left.into_iter().eq(0..50), "{wrong:?}");
    }
}
