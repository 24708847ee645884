//! Values dealt like cards: each as often as its bucket says, in a random order.

use tidewater_base::Rng;

use crate::trace::shape::Bucket;

/// Deals the values of buckets without putting them back, so that after as many draws as there are cards their mean is
/// that of the buckets to the digit, however rare the large ones are. A deck that has run out begins anew.
pub(super) struct Deck {
    values: Vec<u64>,
    cards: Vec<u64>,
    left: Vec<u64>,
    left_sum: u64,
    next: Option<usize>,
    rng: Rng,
}

impl Deck {
    /// A deck of so many cards (one at least) in the proportions of `buckets`, which are not empty.
    pub fn new(buckets: &[Bucket], cards: u64, rng: Rng) -> Deck {
        let all: u128 = buckets.iter().map(|bucket| u128::from(bucket.count)).sum();
        let cards = u128::from(cards.max(1));
        let mut before = 0;
        // Rounded in sums, so that the cards are as many as they should be.
        let dealt = buckets.iter().map(|bucket| {
            let from = (before * cards + all / 2) / all;
            before += u128::from(bucket.count);
            ((before * cards + all / 2) / all - from) as u64
        });
        let dealt = dealt.collect();
        let values = buckets.iter().map(|bucket| bucket.value).collect();
        Deck { values, cards: dealt, left: vec![0; buckets.len()], left_sum: 0, next: None, rng }
    }

    /// The value that is drawn next.
    pub fn peek(&mut self) -> u64 {
        let at = match self.next {
            Some(at) => at,
            None => self.draw(),
        };
        self.next = Some(at);
        self.values[at]
    }

    /// Draws it.
    pub fn take(&mut self) -> u64 {
        let value = self.peek();
        if let Some(at) = self.next.take() {
            self.left[at] -= 1;
            self.left_sum -= 1;
        }
        value
    }

    fn draw(&mut self) -> usize {
        if self.left_sum == 0 {
            self.left.copy_from_slice(&self.cards);
            self.left_sum = self.cards.iter().sum();
        }
        let mut card = self.rng.below(self.left_sum);
        let holds = |left: &u64| {
            let found = card < *left;
            card = card.saturating_sub(*left);
            found
        };
        self.left.iter().position(holds).expect("the card is one of those that are left")
    }

    /// The mean of `figure` over the values of the deck.
    pub fn mean(&self, figure: impl Fn(u64) -> f64) -> f64 {
        let all: u64 = self.cards.iter().sum();
        let sum: f64 = self.values.iter().zip(&self.cards).map(|(&value, &cards)| figure(value) * cards as f64).sum();
        sum / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(value: u64, count: u64) -> Bucket {
        Bucket { value, count }
    }

    #[test]
    fn a_deck_is_dealt_to_its_end() {
        let buckets = [bucket(4096, 90), bucket(65_536, 9), bucket(1 << 20, 1)];
        let mut deck = Deck::new(&buckets, 100, Rng::new(1, b"deck"));
        for _ in 0..3 {
            let mut dealt: Vec<u64> = (0..100).map(|_| deck.take()).collect();
            assert_ne!(dealt[..90], [4096; 90], "they are shuffled");
            dealt.sort_unstable();
            assert_eq!((dealt[89], dealt[98], dealt[99]), (4096, 65_536, 1 << 20));
        }
    }

    #[test]
    fn a_deck_of_another_size_keeps_the_proportions() {
        let deck = Deck::new(&[bucket(1, 1), bucket(2, 1), bucket(3, 1)], 1_000, Rng::new(1, b"deck"));
        assert_eq!(deck.cards, [333, 334, 333]);
        assert_eq!(deck.mean(|value| value as f64), 2.0);
        assert_eq!(Deck::new(&[bucket(7, 1_000)], 0, Rng::new(1, b"deck")).take(), 7);
    }

    #[test]
    fn to_look_at_a_card_does_not_deal_it() {
        let mut deck = Deck::new(&[bucket(1, 1), bucket(2, 1)], 2, Rng::new(1, b"deck"));
        let first = deck.peek();
        assert_eq!((deck.peek(), deck.take()), (first, first));
        assert_eq!(deck.take(), 3 - first);
    }
}
