//! A policy whose every answer is checked: results of a run never depend on a wrong one.

use super::policy::{Fault, Leaving, Part, Policy, Run, Victim};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use tidewater_base::units::plural_exact;

/// Keeps its own account of the pages that a policy holds, and asks the policy for their order alone. After the first
/// fault the policy is not asked again: the lowest pages leave first.
#[derive(Debug)]
pub(super) struct Guard {
    policy: Box<dyn Policy>,
    keeps_clean: bool,
    cooperates: bool,
    /// Logical pages of the drive.
    units: u32,
    /// Every page held, and whether it is clean.
    held: BTreeMap<u32, bool>,
    dirty: usize,
    /// What the read cache has, as far as the policy was informed of it.
    cached: BTreeSet<u32>,
    fault: OnceCell<Fault>,
}

/// As it stands in a sentence.
fn held_or_not(held: bool) -> &'static str {
    if held { "is held" } else { "is not held" }
}

impl Guard {
    /// Guards a new policy of a drive of so many logical pages.
    ///
    /// # Errors
    /// When it failed already, or holds pages.
    pub(super) fn new(policy: Box<dyn Policy>, units: u32) -> Result<Guard, Fault> {
        let guard = Guard {
            keeps_clean: policy.keeps_clean(),
            cooperates: policy.cooperates(),
            policy,
            units,
            held: BTreeMap::new(),
            dirty: 0,
            cached: BTreeSet::new(),
            fault: OnceCell::new(),
        };
        let len = guard.policy.len();
        guard.require(len == 0, || format!("a new policy holds {}", plural_exact(len as u64, "page")));
        match guard.fault.get() {
            Some(fault) => Err(fault.clone()),
            None => Ok(guard),
        }
    }

    fn is_trusted(&self) -> bool {
        self.fault.get().is_none()
    }

    /// After an answer of the policy: it has not failed, and the answer was right, or else that is the fault.
    fn require(&self, right: bool, words: impl FnOnce() -> String) {
        if let Some(failed) = self.policy.fault() {
            self.fault.get_or_init(|| failed.clone());
        } else if !right {
            self.fault.get_or_init(|| Fault::new(words()));
        }
    }

    /// The policy answered whether a page is held.
    fn require_held(&self, call: &str, lpn: u32, answer: bool) {
        let held = self.held.contains_key(&lpn);
        self.require(answer == held, || {
            format!(
                "{call} said that page {lpn} {}, and it {}",
                held_or_not(answer),
                if held { "is" } else { "is not" }
            )
        });
    }

    /// The policy holds as many pages as it should, after a call.
    fn check_len(&self, after: &str) {
        if self.is_trusted() {
            let (len, held) = (self.policy.len(), self.held.len());
            self.require(len == held, || {
                format!("after {after} its length is {len}, and it holds {}", plural_exact(held as u64, "page"))
            });
        }
    }

    /// The policy gave a page away, and must not hold it any more.
    fn check_gone(&self, call: &str, lpn: u32) {
        if self.is_trusted() {
            let kept = self.policy.contains(lpn);
            self.require(!kept, || format!("{call} gave page {lpn} away, and the policy still contains it"));
        }
    }

    fn hold(&mut self, lpn: u32, clean: bool) {
        let before = self.held.insert(lpn, clean);
        self.dirty += usize::from(!clean);
        self.dirty -= usize::from(before == Some(false));
    }

    fn release(&mut self, lpn: u32) -> bool {
        let before = self.held.remove(&lpn);
        self.dirty -= usize::from(before == Some(false));
        before.is_some()
    }

    /// What is wrong with pages that leave, if anything.
    fn wrong_victim(&self, victim: &Victim) -> Option<String> {
        let mut seen = BTreeSet::new();
        for &Leaving { lpn, part } in victim.rest() {
            if !seen.insert(lpn) {
                return Some(format!("gave page {lpn} twice"));
            }
            match (part, self.held.get(&lpn)) {
                (Part::Dirty, Some(false)) => {}
                (Part::Dirty, Some(true)) => return Some(format!("gave page {lpn}, which is clean, as a dirty one")),
                (Part::Dirty, None) => return Some(format!("gave page {lpn}, which is not held")),
                (Part::Cached | Part::Padding, Some(false)) => {
                    return Some(format!("gave page {lpn}, which is dirty, as a clean one"));
                }
                (Part::Cached, _) if !self.cached.contains(&lpn) => {
                    return Some(format!("gave page {lpn} from the read cache, which does not have it"));
                }
                (Part::Padding, _) if lpn >= self.units => {
                    return Some(format!("gave page {lpn} as padding, and the drive has {} pages", self.units));
                }
                (Part::Cached | Part::Padding, _) => {}
            }
        }
        let none = !victim.rest().iter().any(|page| page.part == Part::Dirty);
        (none && self.dirty > 0).then(|| format!("gave no dirty page, and {} are held", self.dirty))
    }
}

impl Policy for Guard {
    fn contains(&self, lpn: u32) -> bool {
        if self.is_trusted() {
            self.require_held("contains", lpn, self.policy.contains(lpn));
        }
        self.held.contains_key(&lpn)
    }

    fn read(&mut self, lpn: u32) -> bool {
        if self.is_trusted() {
            let answer = self.policy.read(lpn);
            self.require_held("read", lpn, answer);
            self.check_len("a read");
        }
        self.held.contains_key(&lpn)
    }

    fn write(&mut self, lpn: u32, run: Run, room: bool) -> bool {
        let held = self.held.contains_key(&lpn);
        if self.is_trusted() {
            let answer = self.policy.write(lpn, run, room);
            self.require_held(if room { "write" } else { "write without room" }, lpn, answer);
        }
        if held || room {
            self.hold(lpn, false);
        }
        self.check_len(if held || room { "a write" } else { "a write without room" });
        held
    }

    fn remove(&mut self, lpn: u32) -> bool {
        if self.is_trusted() {
            let answer = self.policy.remove(lpn);
            self.require_held("remove", lpn, answer);
        }
        let held = self.release(lpn);
        self.check_len("a removal");
        held
    }

    fn evict(&mut self, most: usize, victim: &mut Victim) {
        if self.is_trusted() {
            self.policy.evict(most, victim);
            let wrong = self.wrong_victim(victim);
            self.require(wrong.is_none(), || format!("evict {}", wrong.unwrap_or_default()));
        }
        if !self.is_trusted() {
            victim.clear();
            let dirty = self.held.iter().filter(|&(_, clean)| !clean);
            dirty.take(most.max(1)).for_each(|(&lpn, _)| victim.push(lpn));
        }
        for page in victim.rest().iter().filter(|page| page.part == Part::Dirty) {
            self.release(page.lpn);
            self.check_gone("evict", page.lpn);
        }
        self.check_len("an eviction");
    }

    fn outlook(&self, most: usize, see: &mut dyn FnMut(u32)) {
        if self.is_trusted() {
            self.policy.outlook(most, see);
        }
    }

    fn len(&self) -> usize {
        self.held.len()
    }

    fn pages(&self) -> Vec<u32> {
        if self.is_trusted() {
            let mut pages = self.policy.pages();
            pages.sort_unstable();
            self.require(self.held.keys().eq(&pages), || {
                let lacks = self.held.keys().find(|lpn| pages.binary_search(lpn).is_err());
                let twice = pages.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
                match (lacks, twice, pages.iter().find(|lpn| !self.held.contains_key(lpn))) {
                    (Some(lpn), ..) => format!("its list of pages lacks page {lpn}, which is held"),
                    (_, Some(lpn), _) => format!("its list of pages has page {lpn} twice"),
                    (.., more) => format!("its list of pages has page {}, which is not held", more.unwrap_or(&0)),
                }
            });
        }
        self.held.keys().copied().collect()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        let copy = Guard {
            policy: self.policy.boxed_clone(),
            held: self.held.clone(),
            cached: self.cached.clone(),
            fault: self.fault.clone(),
            ..*self
        };
        copy.check_len("copying");
        Box::new(copy)
    }

    fn keeps_clean(&self) -> bool {
        self.keeps_clean
    }

    fn fill(&mut self, lpn: u32) {
        if self.is_trusted() {
            self.policy.fill(lpn);
        }
        self.hold(lpn, true);
        self.check_len("taking in a clean page");
    }

    fn is_clean(&self, lpn: u32) -> bool {
        let clean = self.held.get(&lpn) == Some(&true);
        if self.is_trusted() {
            let answer = self.policy.is_clean(lpn);
            let word = |clean| if clean { "is clean" } else { "is not clean" };
            self.require(answer == clean, || {
                format!(
                    "is_clean said that page {lpn} {}, and it {}",
                    word(answer),
                    if clean { "is" } else { "is not" }
                )
            });
        }
        clean
    }

    fn drop_clean(&mut self) -> Option<u32> {
        let mut dropped = None;
        if self.is_trusted() {
            dropped = self.policy.drop_clean();
            if let Some(lpn) = dropped {
                let clean = self.held.get(&lpn) == Some(&true);
                self.require(clean, || format!("drop_clean gave page {lpn}, which is not held as a clean one"));
            } else {
                self.require(true, String::new);
            }
        }
        if !self.is_trusted() {
            dropped = self.held.iter().find(|&(_, clean)| *clean).map(|(&lpn, _)| lpn);
        }
        if let Some(lpn) = dropped {
            self.release(lpn);
            self.check_gone("drop_clean", lpn);
        }
        self.check_len("drop_clean");
        dropped
    }

    fn cooperates(&self) -> bool {
        self.cooperates
    }

    fn keeps_destaged(&self) -> bool {
        self.policy.keeps_destaged()
    }

    fn cached(&mut self, lpn: u32) {
        self.cached.insert(lpn);
        if self.cooperates && self.is_trusted() {
            self.policy.cached(lpn);
            self.check_len("a page came into the read cache");
        }
    }

    fn uncached(&mut self, lpn: u32) {
        self.cached.remove(&lpn);
        if self.cooperates && self.is_trusted() {
            self.policy.uncached(lpn);
            self.check_len("a page left the read cache");
        }
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }
}
