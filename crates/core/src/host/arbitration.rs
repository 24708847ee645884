//! Which submission queue is served next (NVM Express 1.4, section 4.13).

use crate::profile::{Arbitration, HostProfile, QueuePriority};

/// Queues that take turns among themselves, each for at most a burst of commands.
#[derive(Clone, Debug)]
struct RoundRobin {
    /// Bit `q` is set when queue `q` belongs here.
    members: u64,
    /// The queue that had the last turn.
    cursor: u32,
    /// Commands that it may still have in this turn.
    burst_left: u32,
}

impl RoundRobin {
    fn new(members: u64) -> RoundRobin {
        // The cursor stands before queue 0.
        RoundRobin { members, cursor: 63, burst_left: 0 }
    }

    /// The next of the `occupied` members.
    #[inline]
    fn pick(&mut self, occupied: u64, burst: u32) -> Option<u16> {
        let ready = occupied & self.members;
        if ready == 0 {
            return None;
        }
        if self.burst_left == 0 || ready >> self.cursor & 1 == 0 {
            let from = (self.cursor + 1) & 63;
            self.cursor = (from + ready.rotate_right(from).trailing_zeros()) & 63;
            self.burst_left = burst;
        }
        self.burst_left -= 1;
        Some(self.cursor as u16)
    }
}

/// Turns of the high, medium and low classes under weighted round robin (section 4.13.2).
#[derive(Clone, Debug)]
pub struct Turns {
    /// Commands in a turn of each class.
    weights: [u32; 3],
    /// The class whose turn it is.
    turn: usize,
    /// Commands left in its turn. A class that has nothing waiting loses the rest: what is not used is not saved up.
    left: u32,
}

impl Turns {
    /// The high class begins. Weights are at least 1.
    pub fn new(weights: [u32; 3]) -> Turns {
        Turns { weights, turn: 0, left: weights[0] }
    }

    /// Other weights, from the next turn on.
    pub fn set_weights(&mut self, weights: [u32; 3]) {
        self.weights = weights;
        self.left = self.left.min(weights[self.turn]);
    }

    /// The class to take from (0: high), and how many commands it may have now. `None`: none is ready.
    #[inline]
    pub fn next(&mut self, ready: [bool; 3]) -> Option<(usize, u32)> {
        if ready == [false; 3] {
            return None;
        }
        // Ends: some class is ready, and every weight is at least 1.
        while self.left == 0 || !ready[self.turn] {
            self.turn = (self.turn + 1) % 3;
            self.left = self.weights[self.turn];
        }
        Some((self.turn, self.left))
    }

    /// The class whose turn it is has had so many commands.
    #[inline]
    pub fn took(&mut self, commands: u32) {
        self.left = self.left.saturating_sub(commands);
    }
}

/// The arbiter. Each pick is a few operations on bit masks, whatever the number of queues.
#[derive(Clone, Debug)]
pub(super) struct Arbiter {
    /// Served before all others: every queue under plain round robin (section 4.13.1), the urgent ones under weighted
    /// round robin (section 4.13.2; the admin class above it is not ours: no admin queue is arbitrated here).
    first: RoundRobin,
    /// High, medium and low.
    classes: [RoundRobin; 3],
    turns: Turns,
    /// Commands from one queue before the next queue of its class. A burst that the end of its class's turn cuts goes
    /// on in the class's next turn, so that queues of one class stay equal when the weight is no multiple of the burst.
    burst: u32,
}

impl Arbiter {
    /// The arbiter of a checked profile. Asserts its ranges.
    pub(super) fn new(profile: &HostProfile) -> Arbiter {
        assert!((1..=64).contains(&profile.queues), "[host] queues = {} is not in 1..=64", profile.queues);
        assert!(profile.arbitration_burst >= 1, "[host] arbitration_burst is 0");
        assert!(profile.arbitration_weights.iter().all(|&weight| weight >= 1), "[host] an arbitration weight is 0");
        let members = |class: QueuePriority| {
            assert!(!profile.queue_priorities.is_empty(), "[host] queue_priorities is empty");
            let classes = profile.queue_priorities.iter().cycle().take(profile.queues as usize);
            classes
                .enumerate()
                .filter(|&(_, &of_queue)| of_queue == class)
                .fold(0, |mask, (queue, _)| mask | 1 << queue)
        };
        let (first, classes) = match profile.arbitration {
            Arbitration::RoundRobin => (u64::MAX, [0; 3]),
            Arbitration::Weighted => {
                let classes = [QueuePriority::High, QueuePriority::Medium, QueuePriority::Low];
                (members(QueuePriority::Urgent), classes.map(members))
            }
        };
        Arbiter {
            first: RoundRobin::new(first),
            classes: classes.map(RoundRobin::new),
            turns: Turns::new(profile.arbitration_weights),
            burst: profile.arbitration_burst,
        }
    }

    /// Chooses among the queues whose bits are set; `None` when there is none.
    #[inline(always)]
    pub(super) fn pick(&mut self, occupied: u64) -> Option<u16> {
        match self.first.pick(occupied, self.burst) {
            Some(queue) => Some(queue),
            None => self.pick_by_weight(occupied),
        }
    }

    #[inline(never)]
    fn pick_by_weight(&mut self, occupied: u64) -> Option<u16> {
        let ready = std::array::from_fn(|class| occupied & self.classes[class].members != 0);
        let (class, _) = self.turns.next(ready)?;
        self.turns.took(1);
        self.classes[class].pick(occupied, self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::tests::profile;

    fn weighted(classes: &[QueuePriority], weights: [u32; 3], burst: u32) -> Arbiter {
        Arbiter::new(&HostProfile {
            queues: classes.len() as u32,
            arbitration: Arbitration::Weighted,
            arbitration_burst: burst,
            arbitration_weights: weights,
            queue_priorities: classes.to_vec(),
            ..profile()
        })
    }

    fn picks(arbiter: &mut Arbiter, occupied: u64, count: usize) -> Vec<u16> {
        (0..count).map(|_| arbiter.pick(occupied).unwrap()).collect()
    }

    #[test]
    fn round_robin_takes_bursts_in_turn() {
        let cases: [(u32, u64, &[u16]); 5] = [
            (1, 0b111, &[0, 1, 2, 0, 1, 2, 0]),
            (2, 0b111, &[0, 0, 1, 1, 2, 2, 0]),
            (3, 0b101, &[0, 0, 0, 2, 2, 2, 0]),
            (2, 0b010, &[1, 1, 1, 1, 1, 1, 1]),
            (1, 1 << 63 | 1 << 5, &[5, 63, 5, 63, 5, 63, 5]),
        ];
        for (burst, occupied, expected) in cases {
            let mut arbiter = Arbiter::new(&HostProfile { queues: 64, arbitration_burst: burst, ..profile() });
            assert_eq!(picks(&mut arbiter, occupied, 7), expected, "burst {burst}, occupied {occupied:b}");
        }
    }

    #[test]
    fn a_queue_that_runs_dry_ends_its_burst() {
        let mut arbiter = Arbiter::new(&HostProfile { queues: 4, arbitration_burst: 4, ..profile() });
        assert_eq!(picks(&mut arbiter, 0b11, 2), [0, 0]);
        assert_eq!(picks(&mut arbiter, 0b10, 1), [1]);
        // Queue 0 is back, but queue 1 has three left.
        assert_eq!(picks(&mut arbiter, 0b11, 5), [1, 1, 1, 0, 0]);
        assert_eq!(arbiter.pick(0), None);
    }

    #[test]
    fn weights_are_exact_over_long_runs() {
        use QueuePriority::{High, Low, Medium};
        for weights in [[1, 1, 1], [8, 4, 1], [256, 3, 7]] {
            for burst in [1, 3, 128] {
                let mut arbiter = weighted(&[High, Medium, Low, High, Low], weights, burst);
                let rounds = 6 * burst as usize;
                let total = weights.iter().sum::<u32>() as usize;
                let taken = picks(&mut arbiter, 0b11111, rounds * total);
                let count = |queue: u16| taken.iter().filter(|&&q| q == queue).count();
                let expected = weights.map(|weight| weight as usize * rounds);
                assert_eq!(
                    [count(0) + count(3), count(1), count(2) + count(4)],
                    expected,
                    "{weights:?}, burst {burst}"
                );
                assert_eq!(
                    (count(0), count(2)),
                    (count(3), count(4)),
                    "queues of one class, {weights:?}, burst {burst}"
                );
            }
        }
    }

    #[test]
    fn urgent_comes_first_and_does_not_disturb_the_turn() {
        use QueuePriority::{High, Low, Medium, Urgent};
        let mut arbiter = weighted(&[High, Medium, Low, Urgent, Urgent], [3, 2, 1], 1);
        assert_eq!(picks(&mut arbiter, 0b00111, 2), [0, 0]);
        assert_eq!(picks(&mut arbiter, 0b11111, 4), [3, 4, 3, 4]);
        assert_eq!(picks(&mut arbiter, 0b00111, 7), [0, 1, 1, 2, 0, 0, 0]);
    }

    #[test]
    fn an_idle_class_gives_its_turn_away() {
        use QueuePriority::{High, Low, Medium};
        let mut arbiter = weighted(&[High, Medium, Low], [3, 2, 1], 1);
        assert_eq!(picks(&mut arbiter, 0b110, 6), [1, 1, 2, 1, 1, 2]);
        assert_eq!(picks(&mut arbiter, 0b100, 3), [2, 2, 2]);
        assert_eq!(arbiter.pick(0), None);
        assert_eq!(picks(&mut arbiter, 0b111, 6), [0, 0, 0, 1, 1, 2]);
    }

    #[test]
    fn priorities_repeat_over_all_queues() {
        use QueuePriority::{Low, Urgent};
        let mut arbiter = Arbiter::new(&HostProfile {
            queues: 4,
            arbitration: Arbitration::Weighted,
            queue_priorities: vec![Urgent, Low],
            ..profile()
        });
        assert_eq!(picks(&mut arbiter, 0b1111, 4), [0, 2, 0, 2]);
        assert_eq!(picks(&mut arbiter, 0b1010, 4), [1, 3, 1, 3]);
    }
}
