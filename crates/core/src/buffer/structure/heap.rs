//! A binary heap over numbers, whose keys may change.

use super::NONE;

/// Numbers in the order of keys that are kept elsewhere: the least comes first. Every operation is O(log n), with the
/// keys given by a function, so that they need no second place.
#[derive(Clone, Debug)]
pub(in crate::buffer) struct Heap {
    order: Vec<u32>,
    /// Where each number is in `order`.
    places: Vec<u32>,
}

impl Heap {
    pub fn new(capacity: usize) -> Heap {
        Heap { order: Vec::with_capacity(capacity), places: Vec::with_capacity(capacity) }
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    #[inline]
    pub fn contains(&self, n: u32) -> bool {
        self.places.get(n as usize).is_some_and(|&place| place != NONE)
    }

    /// The number with the least key.
    #[inline]
    pub fn first(&self) -> Option<u32> {
        self.order.first().copied()
    }

    /// The number with the least key but one.
    pub fn second<K: Ord>(&self, key: impl Fn(u32) -> K) -> Option<u32> {
        let children = self.order.get(1..self.order.len().min(3)).unwrap_or_default();
        children.iter().copied().min_by_key(|&n| key(n))
    }

    /// Takes in a number that is not in.
    pub fn push<K: Ord>(&mut self, n: u32, key: impl Fn(u32) -> K) {
        if n as usize >= self.places.len() {
            self.places.resize(n as usize + 1, NONE);
        }
        self.places[n as usize] = self.order.len() as u32;
        self.order.push(n);
        self.rise(self.order.len() - 1, &key);
    }

    /// The key of a number that is in has changed.
    #[inline]
    pub fn update<K: Ord>(&mut self, n: u32, key: impl Fn(u32) -> K) {
        let at = self.places[n as usize] as usize;
        let at = self.rise(at, &key);
        self.sink(at, &key);
    }

    /// Keys have changed, of any of the numbers.
    pub fn update_all<K: Ord>(&mut self, key: impl Fn(u32) -> K) {
        (0..self.order.len() / 2).rev().for_each(|at| self.sink(at, &key));
    }

    /// Takes out a number that is in.
    pub fn remove<K: Ord>(&mut self, n: u32, key: impl Fn(u32) -> K) {
        let at = self.places[n as usize] as usize;
        self.places[n as usize] = NONE;
        let last = self.order.pop().expect("the number is in");
        if last != n {
            self.order[at] = last;
            self.places[last as usize] = at as u32;
            let at = self.rise(at, &key);
            self.sink(at, &key);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.order.swap(a, b);
        self.places[self.order[a] as usize] = a as u32;
        self.places[self.order[b] as usize] = b as u32;
    }

    fn rise<K: Ord>(&mut self, mut at: usize, key: &impl Fn(u32) -> K) -> usize {
        while at > 0 {
            let above = (at - 1) / 2;
            if key(self.order[above]) <= key(self.order[at]) {
                break;
            }
            self.swap(at, above);
            at = above;
        }
        at
    }

    fn sink<K: Ord>(&mut self, mut at: usize, key: &impl Fn(u32) -> K) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let Some(&first) = self.order.get(left) else { return };
            let least = match self.order.get(right) {
                Some(&second) if key(second) < key(first) => right,
                _ => left,
            };
            if key(self.order[at]) <= key(self.order[least]) {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::Rng;

    #[test]
    fn numbers_come_in_the_order_of_their_keys_however_these_change() {
        let mut rng = Rng::new(5, b"heap");
        let mut keys = vec![0u64; 50];
        let (mut heap, mut within) = (Heap::new(50), std::collections::BTreeSet::new());
        for _ in 0..20_000 {
            let n = rng.below(50) as u32;
            match (within.contains(&n), rng.below(3)) {
                (false, _) => {
                    keys[n as usize] = rng.below(1_000) << 8 | u64::from(n);
                    heap.push(n, |n| keys[n as usize]);
                    within.insert(n);
                }
                (true, 0) => {
                    heap.remove(n, |n| keys[n as usize]);
                    within.remove(&n);
                }
                (true, _) => {
                    keys[n as usize] = rng.below(1_000) << 8 | u64::from(n);
                    heap.update(n, |n| keys[n as usize]);
                }
            }
            if rng.below(100) == 0 {
                keys.iter_mut().zip(0..).for_each(|(key, n)| *key = rng.below(1_000) << 8 | n);
                heap.update_all(|n| keys[n as usize]);
            }
            let mut sorted: Vec<u32> = within.iter().copied().collect();
            sorted.sort_by_key(|&n| keys[n as usize]);
            assert_eq!(heap.first(), sorted.first().copied());
            assert_eq!(heap.second(|n| keys[n as usize]), sorted.get(1).copied());
            assert_eq!((heap.is_empty(), heap.contains(n)), (within.is_empty(), within.contains(&n)));
        }
    }
}
