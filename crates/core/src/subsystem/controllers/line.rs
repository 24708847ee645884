//! The line of a controller's I/O queues, and whose turn it is.

use crate::host::Turns;
use std::collections::VecDeque;

/// The I/O queues of a controller that have entries to read.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// By class: urgent, high, medium and low. All are urgent under plain round robin.
    pub queues: [VecDeque<u16>; 4],
    pub turns: Turns,
    /// The first command of each waits until fewer commands wait for data from the host.
    pub stalled: VecDeque<u16>,
    /// The controller stands in line.
    pub is_listed: bool,
}

impl Line {
    pub(crate) fn new(queues: u16) -> Line {
        let room = || VecDeque::with_capacity(queues.into());
        Line { queues: std::array::from_fn(|_| room()), turns: Turns::new([1; 3]), stalled: room(), is_listed: false }
    }

    /// Whether no queue stands in it.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// The next queue by arbitration, and how many commands it may have at most: the urgent ones first, `burst` of each
    /// in turn, then the other classes by their weights (section 4.13.2), and within a class `burst` of each queue.
    #[inline]
    pub(crate) fn pop(&mut self, burst: u32) -> Option<(u16, u32)> {
        if let Some(queue) = self.queues[0].pop_front() {
            return Some((queue, burst));
        }
        let [_, classes @ ..] = &mut self.queues;
        let (class, most) = self.turns.next(std::array::from_fn(|class| !classes[class].is_empty()))?;
        let queue = classes[class].pop_front()?;
        // What a queue that is alone in its class does not take now would be lost: its next entries take a while to
        // come.
        Some((queue, if classes[class].is_empty() { most } else { most.min(burst) }))
    }
}
