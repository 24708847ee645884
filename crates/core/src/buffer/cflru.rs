//! `cflru`: one list of clean and dirty pages, from whose old end clean pages leave first (Park et al., *CFLRU: a
//! replacement algorithm for flash memory*, CASES 2006).

use super::policy::{Policy, Run, Setting, Victim};
use super::structure::{List, Pages};

#[derive(Clone, Copy, Debug, Default)]
struct State {
    clean: bool,
    /// In the clean-first region, not in the working region.
    old: bool,
}

/// LRU in two regions: the working region, and the oldest pages, the clean-first region (the *window*). Clean pages of
/// the window leave before all others; dirty pages leave least recent first. O(1) for a page.
#[derive(Clone, Debug)]
pub struct Cflru {
    pages: Pages,
    states: Vec<State>,
    working: List,
    window: List,
    /// Most pages of the window.
    window_max: usize,
    /// Dirty pages; and clean pages of the window. A page is in one of them at most.
    dirty: List,
    clean: List,
}

impl Cflru {
    pub(super) fn new(setting: &Setting) -> Cflru {
        let capacity = setting.capacity;
        Cflru {
            pages: Pages::new(capacity),
            states: Vec::with_capacity(capacity),
            working: List::new(capacity),
            window: List::new(capacity),
            window_max: ((capacity as f64 * setting.profile.cflru_window) as usize).max(1),
            dirty: List::new(capacity),
            clean: List::new(capacity),
        }
    }

    /// Takes a page out of its region; and out of the list of its kind.
    fn unlink(&mut self, n: u32) -> State {
        let state = self.states[n as usize];
        if state.old {
            self.window.remove(n)
        } else {
            self.working.remove(n)
        };
        match state {
            State { clean: false, .. } => self.dirty.remove(n),
            State { clean: true, old: true } => self.clean.remove(n),
            State { clean: true, old: false } => {}
        }
        state
    }

    /// Puts a page in as the most recent.
    fn link(&mut self, n: u32, clean: bool) {
        let state = State { clean, old: false };
        match self.states.get_mut(n as usize) {
            Some(place) => *place = state,
            None => self.states.push(state),
        }
        self.working.push_newest(n);
        if !clean {
            self.dirty.push_newest(n);
        }
        self.fill_window();
    }

    /// The window is as large as it may be, or there is no other region.
    fn fill_window(&mut self) {
        while self.window.len() < self.window_max {
            // The page that was used just now stays in the working region.
            let Some(n) = self.working.oldest().filter(|_| self.working.len() > 1) else { return };
            self.working.remove(n);
            self.window.push_newest(n);
            self.states[n as usize].old = true;
            if self.states[n as usize].clean {
                self.clean.push_newest(n);
            }
        }
    }

    fn let_go(&mut self, n: u32) -> State {
        let state = self.unlink(n);
        self.pages.remove(n);
        self.fill_window();
        state
    }
}

impl Policy for Cflru {
    fn contains(&self, lpn: u32) -> bool {
        self.pages.find(lpn).is_some()
    }

    fn read(&mut self, lpn: u32) -> bool {
        let Some(n) = self.pages.find(lpn) else { return false };
        let State { clean, .. } = self.states[n as usize];
        self.unlink(n);
        self.link(n, clean);
        true
    }

    fn write(&mut self, lpn: u32, _run: Run, room: bool) -> bool {
        match self.pages.find(lpn) {
            Some(n) => {
                self.unlink(n);
                self.link(n, false);
                true
            }
            None if room => {
                let n = self.pages.insert(lpn);
                self.link(n, false);
                false
            }
            None => false,
        }
    }

    fn remove(&mut self, lpn: u32) -> bool {
        self.pages.find(lpn).map(|n| self.let_go(n)).is_some()
    }

    fn evict(&mut self, most: usize, victim: &mut Victim) {
        for _ in 0..most.max(1) {
            let Some(n) = self.dirty.oldest() else { return };
            victim.push(self.pages.lpn(n));
            self.let_go(n);
        }
    }

    fn len(&self) -> usize {
        self.pages.len()
    }

    fn pages(&self) -> Vec<u32> {
        self.window.iter().chain(self.working.iter()).map(|n| self.pages.lpn(n)).collect()
    }

    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(self.clone())
    }

    fn keeps_clean(&self) -> bool {
        true
    }

    fn fill(&mut self, lpn: u32) {
        let n = self.pages.insert(lpn);
        self.link(n, true);
    }

    fn is_clean(&self, lpn: u32) -> bool {
        self.pages.find(lpn).is_some_and(|n| self.states[n as usize].clean)
    }

    fn drop_clean(&mut self) -> Option<u32> {
        let n = match self.clean.oldest() {
            Some(n) => n,
            // A buffer of one page is all working region.
            None => self.working.oldest().filter(|&n| self.window.len() == 0 && self.states[n as usize].clean)?,
        };
        let lpn = self.pages.lpn(n);
        self.let_go(n);
        Some(lpn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::tests::{Model, same_order, setting, victims};

    /// Dirty pages, the oldest first.
    #[derive(Default)]
    struct Naive(Vec<u32>);

    impl Model for Naive {
        fn write(&mut self, lpn: u32, _run: Run) {
            self.0.retain(|&l| l != lpn);
            self.0.push(lpn);
        }
        fn remove(&mut self, lpn: u32) {
            self.0.retain(|&l| l != lpn);
        }
        fn evict(&mut self) -> Vec<u32> {
            vec![self.0.remove(0)]
        }
    }

    fn cflru(capacity: usize, window: f64) -> Cflru {
        let mut setting = setting(capacity, 8);
        setting.profile.cflru_window = window;
        Cflru::new(&setting)
    }

    #[test]
    fn without_reads_it_is_lru() {
        same_order(cflru(40, 0.3), Naive::default(), 40, 200);
    }

    #[test]
    fn clean_pages_of_the_window_leave_first() {
        let mut cflru = cflru(8, 0.5);
        for lpn in 0..8 {
            if lpn % 3 == 1 { cflru.fill(lpn) } else { assert!(!cflru.write(lpn, Run::of_one(lpn), true)) }
        }
        // From the oldest: 0, 1 clean, 2, 3 in the window; 4 clean, 5, 6, 7 clean in the working region.
        assert_eq!(cflru.drop_clean(), Some(1));
        assert_eq!(cflru.drop_clean(), Some(4), "the window has grown over page 4");
        assert_eq!(cflru.drop_clean(), None, "page 7 was used too lately");
        assert!(cflru.is_clean(7) && !cflru.is_clean(6));
        assert_eq!(victims(&mut cflru, 2), [0, 2]);
        assert!(cflru.read(3) && cflru.write(7, Run::of_one(7), true) && !cflru.is_clean(7));
        assert_eq!(victims(&mut cflru, 4), [5, 6, 3, 7]);
        assert!(cflru.is_empty() && cflru.drop_clean().is_none());
    }

    /// Over random operations: what leaves is what a walk over one list would find.
    #[test]
    fn the_window_is_the_old_end_of_one_list() {
        let mut rng = tidewater_base::Rng::new(2, b"cflru");
        let mut cflru = cflru(20, 0.4);
        let mut list: Vec<(u32, bool)> = Vec::new();
        for _ in 0..20_000 {
            let lpn = rng.below(50) as u32;
            let at = list.iter().position(|&(l, _)| l == lpn);
            let (write, was_clean) = (rng.below(2) == 0, at.map(|at| list.remove(at).1));
            if list.len() >= 20 {
                let window = list.len().min(8);
                let clean = list[..window].iter().position(|&(_, clean)| clean);
                let dropped = cflru.drop_clean();
                assert_eq!(dropped, clean.map(|at| list.remove(at).0));
                if dropped.is_none() {
                    let dirty = list.iter().position(|&(_, clean)| !clean).expect("the window is dirty");
                    assert_eq!(victims(&mut cflru, 1), [list.remove(dirty).0]);
                }
            }
            match (write, was_clean) {
                (true, was) => {
                    assert_eq!(cflru.write(lpn, Run::of_one(lpn), true), was.is_some());
                    list.push((lpn, false));
                }
                (false, Some(clean)) => {
                    assert!(cflru.read(lpn));
                    list.push((lpn, clean));
                }
                (false, None) => {
                    cflru.fill(lpn);
                    list.push((lpn, true));
                }
            }
            assert_eq!(cflru.len(), list.len());
        }
    }
}
