//! Which rows are under way, in the order in which they were opened.

use std::collections::VecDeque;

/// Rows of one kind, in the order they were opened: which was the last before which all are done?
#[derive(Clone, Debug, Default)]
pub(in crate::ftl) struct Outstanding {
    opened: u64,
    /// The last row before which all are done, itself included.
    first: u64,
    /// Which of the rows behind it are done, as far as one is: most often none.
    done: VecDeque<bool>,
    /// Rows whose program failed, and the last row that their units went to instead.
    rewritten: Vec<(u64, u64)>,
}

impl Outstanding {
    pub fn open(&mut self) -> u64 {
        self.opened += 1;
        self.opened
    }

    #[inline]
    pub fn finish(&mut self, number: u64) {
        if number == self.first + 1 && self.done.is_empty() {
            self.first = number;
        } else {
            self.finish_out_of_turn(number);
        }
    }

    /// As [`Outstanding::finish`], where rows are not done in their order.
    #[inline(never)]
    fn finish_out_of_turn(&mut self, number: u64) {
        let place = (number - self.first - 1) as usize;
        if place >= self.done.len() {
            self.done.resize(place + 1, false);
        }
        self.done[place] = true;
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.first += 1;
        }
    }

    /// Whether what all rows up to this number held is programmed, there or elsewhere.
    #[inline]
    pub fn is_settled(&self, number: u64) -> bool {
        self.first >= number
            && (self.rewritten.is_empty() || self.rewritten.iter().all(|&(from, to)| from > number || self.first >= to))
    }

    /// The row `from` failed, and its units went to rows up to `to`.
    pub fn rewrite(&mut self, from: u64, to: u64) {
        let first = self.first;
        // A chain of failures: what may have gone to `from` now waits for `to`.
        self.rewritten.iter_mut().filter(|r| (r.0..=r.1).contains(&from)).for_each(|r| r.1 = r.1.max(to));
        self.rewritten.retain(|&(_, to)| to > first);
        self.rewritten.push((from, to));
    }

    /// The number of the last row that was opened.
    pub fn last(&self) -> u64 {
        self.opened
    }
}

#[cfg(test)]
mod tests {
    use super::Outstanding;

    /// Its units went to two rows: only the failure of the last of them was waited for.
    #[test]
    fn a_row_that_failed_is_settled_when_all_that_its_units_went_to_is_programmed() {
        for again in [2, 3] {
            let mut rows = Outstanding::default();
            (1..=4).for_each(|number| assert_eq!(rows.open(), number));
            rows.rewrite(1, 3);
            rows.finish(1);
            rows.rewrite(again, 4);
            rows.finish(2);
            rows.finish(3);
            assert!(!rows.is_settled(1), "what row {again} held is not on flash");
            rows.finish(4);
            assert!(rows.is_settled(1));
        }
    }
}
