//! The submission queues: bounded rings in one pool.

use tidewater_wire::nvme::{DsmRange, Sqe};

/// A command as the front end hands it in.
///
/// A run without payload still has to know what was written where. `tag` stands for the content: for a write, of the
/// blocks that are written; for a compare, of the blocks that the host expects. Other commands do not use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submission {
    /// The submission queue entry.
    pub sqe: Sqe,
    /// Identifies the content that comes with the command.
    pub tag: u64,
    /// The range list of Dataset Management, which the front end has fetched from the host; `None` for other commands.
    pub ranges: Option<Box<[DsmRange]>>,
}

impl Submission {
    /// A command without a range list.
    pub const fn new(sqe: Sqe, tag: u64) -> Submission {
        Submission { sqe, tag, ranges: None }
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node {
    submission: Submission,
    /// The next node of the same queue or of the free list, or `NONE`.
    next: u32,
}

#[derive(Clone, Debug)]
struct Ring {
    /// First and last node; meaningless when the ring is empty.
    first: u32,
    last: u32,
    len: u32,
    /// The submission queue head pointer: 0 to entries - 1.
    head: u32,
}

/// All submission queues. Their nodes come from one pool that is reserved at the start and used last in, first out:
/// what a run touches is as large as the most commands it had waiting, not as all rings together. A clone reserves only
/// what it holds.
#[derive(Clone, Debug)]
pub(super) struct SubmissionQueues {
    nodes: Vec<Node>,
    free: u32,
    rings: Box<[Ring]>,
    /// Entries of each ring.
    entries: u32,
    /// Bit `q` is set when queue `q` is not empty.
    occupied: u64,
    waiting: usize,
}

impl SubmissionQueues {
    /// `queues` rings (1 to 64) of `entries` (2 to 65,536). A ring holds one command less than it has entries: a full
    /// one must differ from an empty one (NVM Express 1.4, section 4.1.2).
    pub(super) fn new(queues: u32, entries: u32) -> SubmissionQueues {
        assert!((1..=64).contains(&queues), "[host] queues = {queues} is not in 1..=64");
        assert!((2..=65_536).contains(&entries), "[host] queue_entries = {entries} is not in 2..=65536");
        SubmissionQueues {
            nodes: Vec::with_capacity(queues as usize * (entries as usize - 1)),
            free: NONE,
            rings: vec![Ring { first: NONE, last: NONE, len: 0, head: 0 }; queues as usize].into_boxed_slice(),
            entries,
            occupied: 0,
            waiting: 0,
        }
    }

    /// Appends to a queue, or gives the command back when its ring is full.
    #[inline]
    pub(super) fn push(&mut self, queue: u16, submission: Submission) -> Result<(), Submission> {
        let ring = &mut self.rings[usize::from(queue)];
        if ring.len == self.entries - 1 {
            return Err(submission);
        }
        let index = self.free;
        let index = if index == NONE {
            self.nodes.push(Node { submission, next: NONE });
            self.nodes.len() as u32 - 1
        } else {
            let node = &mut self.nodes[index as usize];
            self.free = node.next;
            node.submission = submission;
            node.next = NONE;
            index
        };
        if ring.len == 0 {
            ring.first = index;
            self.occupied |= 1 << queue;
        } else {
            self.nodes[ring.last as usize].next = index;
        }
        ring.last = index;
        ring.len += 1;
        self.waiting += 1;
        Ok(())
    }

    /// Takes the oldest command of a queue and advances its head pointer. Asserts that there is one.
    #[inline]
    pub(super) fn pop(&mut self, queue: u16) -> Submission {
        let ring = &mut self.rings[usize::from(queue)];
        assert!(ring.len > 0, "submission queue {queue} was chosen although it is empty");
        let index = ring.first;
        let node = &mut self.nodes[index as usize];
        let Submission { sqe, tag, ref mut ranges } = node.submission;
        let submission = Submission { sqe, tag, ranges: ranges.take() };
        ring.first = node.next;
        node.next = self.free;
        self.free = index;
        ring.len -= 1;
        ring.head = if ring.head + 1 == self.entries { 0 } else { ring.head + 1 };
        if ring.len == 0 {
            self.occupied &= !(1 << queue);
        }
        self.waiting -= 1;
        submission
    }

    /// A command goes past an empty queue: as if it were appended and taken at once.
    #[inline]
    pub(super) fn pass(&mut self, queue: u16) {
        let ring = &mut self.rings[usize::from(queue)];
        debug_assert_eq!(ring.len, 0, "submission queue {queue} was passed although commands wait in it");
        ring.head = if ring.head + 1 == self.entries { 0 } else { ring.head + 1 };
    }

    /// Bit `q` is set when queue `q` is not empty.
    pub(super) fn occupied(&self) -> u64 {
        self.occupied
    }

    /// The head pointer of a queue.
    pub(super) fn head(&self, queue: u16) -> u16 {
        self.rings[usize::from(queue)].head as u16
    }

    /// Number of queues.
    pub(super) fn count(&self) -> usize {
        self.rings.len()
    }

    /// Commands in all queues.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Commands in one queue.
    pub(super) fn waiting_in(&self, queue: u16) -> usize {
        self.rings[usize::from(queue)].len as usize
    }

    /// The commands in one queue, oldest first.
    pub(super) fn iter(&self, queue: u16) -> impl Iterator<Item = &Submission> {
        let ring = &self.rings[usize::from(queue)];
        let first = (ring.len > 0).then_some(ring.first);
        std::iter::successors(first, |&index| Some(self.nodes[index as usize].next).filter(|&next| next != NONE))
            .map(|index| &self.nodes[index as usize].submission)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission(tag: u64) -> Submission {
        Submission::new(Sqe::flush(0), tag)
    }

    #[test]
    fn a_full_ring_gives_the_command_back_and_the_head_wraps() {
        let mut queues = SubmissionQueues::new(2, 3);
        for round in 0..5 {
            assert_eq!(queues.push(1, submission(1)), Ok(()));
            assert_eq!(queues.push(1, submission(2)), Ok(()));
            assert_eq!(queues.push(1, submission(3)), Err(submission(3)));
            assert_eq!((queues.waiting(), queues.waiting_in(0), queues.waiting_in(1)), (2, 0, 2));
            assert_eq!(queues.iter(1).map(|s| s.tag).collect::<Vec<_>>(), [1, 2]);
            assert_eq!(queues.occupied(), 0b10);
            assert_eq!((queues.pop(1).tag, queues.pop(1).tag), (1, 2));
            assert_eq!((queues.occupied(), queues.head(0), queues.head(1)), (0, 0, (round * 2 + 2) % 3));
        }
        assert_eq!(queues.nodes.len(), 2, "nodes are used again");
    }

    #[test]
    fn rings_are_reserved_at_the_start() {
        let mut queues = SubmissionQueues::new(4, 100);
        let reserved = queues.nodes.capacity();
        for queue in 0..4 {
            while queues.push(queue, submission(0)).is_ok() {}
        }
        assert_eq!((queues.waiting(), queues.nodes.capacity()), (4 * 99, reserved));
    }

    #[test]
    #[should_panic(expected = "although it is empty")]
    fn taking_from_an_empty_queue_asserts() {
        SubmissionQueues::new(1, 2).pop(0);
    }
}
