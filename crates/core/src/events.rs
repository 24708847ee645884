//! The device's own future: timers in one first-in first-out lane per constant latency, with a heap for the rest.
//!
//! Most latencies of a drive are constants (a page transfer, a program), so events of one latency fall due in the order
//! they were made, and a queue does a heap's work. Which lane is only a hint: an event that would break a lane's order
//! goes to the heap, so a wrong hint costs time, never order. Events of one instant come in the order of their lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidewater_base::Instant;

/// Lanes, the heap's place included.
pub const LANES: usize = 16;
const HEAP: usize = LANES - 1;
const NEVER: u64 = u64::MAX;
/// Lanes whose earliest head is kept together.
const GROUP: usize = 4;

/// What each lane is for: one constant latency each.
pub mod lane {
    /// Array reads, by page kind (3 lanes).
    pub const READ: usize = 0;
    /// Array programs, by page kind (3 lanes).
    pub const PROGRAM: usize = 3;
    /// Erases.
    pub const ERASE: usize = 6;
    /// Bus transfers of a whole program row.
    pub const BUS_IN: usize = 7;
    /// Bus transfers of one unit that was read; and of as many as are most common beside (2 lanes).
    pub const BUS_OUT: usize = 8;
    /// The command pipeline.
    pub const COMMAND: usize = 10;
    /// Data from the host over the link.
    pub const DATA_IN: usize = 11;
    /// Completions behind data to the host.
    pub const COMPLETE_READ: usize = 12;
    /// Completions without data.
    pub const COMPLETE: usize = 13;
    /// Suspensions of programs and erases, and rows that wait to be filled.
    pub const SUSPEND: usize = 14;
    /// Whatever has no constant latency: the heap.
    pub const OTHER: usize = 15;
}

/// An event: what fell due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The array of a die has finished, unless its generation has moved on (a suspension).
    Cell {
        /// The die.
        die: u32,
        /// The die's generation when this was scheduled.
        generation: u32,
    },
    /// A bus transfer has ended.
    Bus {
        /// The channel.
        channel: u32,
    },
    /// A command has left the command pipeline.
    Command {
        /// Its slot.
        slot: u32,
    },
    /// A command's data has arrived from the host, or was read from a buffer.
    Data {
        /// Its slot.
        slot: u32,
    },
    /// A command's completion has reached the host.
    Complete {
        /// Its slot.
        slot: u32,
    },
    /// A piece of log bytes has reached the ring's memory.
    Persist {
        /// The lane: 16 times its function, and its number there.
        lane: u32,
    },
    /// A deadline of a function's transport has come.
    Transport {
        /// The function.
        function: u32,
    },
    /// A command of the fast side has waited long enough.
    LogWait {
        /// Its place.
        place: u32,
        /// The place's generation when this was scheduled.
        generation: u32,
    },
    /// Log bytes may have waited long enough to be destaged with filler.
    Destage {
        /// The function.
        function: u32,
    },
    /// A row has waited long enough to be filled.
    Fill {
        /// The row.
        row: u32,
        /// The row's generation when this was scheduled.
        generation: u32,
    },
}

impl Event {
    // Always inlined: nearly every caller makes one kind of event, for which this is a shift.
    #[inline(always)]
    fn pack(self) -> u64 {
        let (kind, index, generation) = match self {
            Event::Cell { die, generation } => (0, die, generation),
            Event::Bus { channel } => (1, channel, 0),
            Event::Command { slot } => (2, slot, 0),
            Event::Data { slot } => (3, slot, 0),
            Event::Complete { slot } => (4, slot, 0),
            Event::Fill { row, generation } => (5, row, generation),
            Event::Persist { lane } => (6, lane, 0),
            Event::Destage { function } => (7, function, 0),
            Event::Transport { function } => (8, function, 0),
            Event::LogWait { place, generation } => (9, place, generation),
        };
        debug_assert!(index < 1 << 24);
        u64::from(generation) << 32 | u64::from(index) << 8 | kind
    }

    #[inline]
    fn unpack(bits: u64) -> Event {
        let (index, generation) = ((bits as u32) >> 8, (bits >> 32) as u32);
        match bits & 0xff {
            0 => Event::Cell { die: index, generation },
            1 => Event::Bus { channel: index },
            2 => Event::Command { slot: index },
            3 => Event::Data { slot: index },
            4 => Event::Complete { slot: index },
            5 => Event::Fill { row: index, generation },
            6 => Event::Persist { lane: index },
            7 => Event::Destage { function: index },
            8 => Event::Transport { function: index },
            _ => Event::LogWait { place: index, generation },
        }
    }
}

/// A first-in first-out ring that grows when it must. `VecDeque` takes twice the instructions for the few operations that
/// every event needs.
#[derive(Clone, Debug)]
struct Lane {
    /// A power of two of them.
    items: Box<[(u64, u64)]>,
    /// Items taken and put since the start; their difference is the length.
    taken: usize,
    put: usize,
}

impl Lane {
    fn new(capacity: usize) -> Lane {
        Lane { items: vec![(0, 0); capacity.next_power_of_two()].into_boxed_slice(), taken: 0, put: 0 }
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.taken == self.put
    }

    #[inline]
    fn at(&self, i: usize) -> (u64, u64) {
        self.items[i & (self.items.len() - 1)]
    }

    #[inline(always)]
    fn push(&mut self, item: (u64, u64)) {
        if self.put - self.taken == self.items.len() {
            self.grow();
        }
        let mask = self.items.len() - 1;
        self.items[self.put & mask] = item;
        self.put += 1;
    }

    #[cold]
    fn grow(&mut self) {
        let all: Vec<_> = (self.taken..self.put).map(|i| self.at(i)).collect();
        let mut larger = Lane::new(2 * self.items.len());
        all.into_iter().for_each(|item| larger.push(item));
        *self = larger;
    }
}

/// The earlier of two heads, or the first of them when both are due at one instant.
#[inline]
fn earlier(a: (u64, usize), b: (u64, usize)) -> (u64, usize) {
    if b.0 < a.0 { b } else { a }
}

/// A queue of events, packed into 64 bits each.
#[derive(Clone, Debug)]
pub struct EventQueue {
    /// When the first event of each lane is due; [`NEVER`] when it has none.
    heads: [u64; LANES],
    /// The earliest head of each group of lanes, and its lane.
    groups: [(u64, usize); LANES / GROUP],
    /// The earliest of them, and its lane.
    first: (u64, usize),
    /// When the event that was put last into each lane is due, whether it has been taken or not.
    lasts: [u64; HEAP],
    lanes: [Lane; HEAP],
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Breaks ties in the heap by age.
    order: u64,
    popped: u64,
}

impl EventQueue {
    /// An empty queue that holds `capacity` events in each lane before it allocates again.
    pub fn new(capacity: usize) -> EventQueue {
        EventQueue {
            heads: [NEVER; LANES],
            groups: [(NEVER, LANES); LANES / GROUP],
            first: (NEVER, LANES),
            lasts: [0; HEAP],
            lanes: std::array::from_fn(|_| Lane::new(capacity)),
            heap: BinaryHeap::with_capacity(capacity),
            order: 0,
            popped: 0,
        }
    }

    /// Schedules `event` for `at`, which is not before what was taken last. `lane` groups events of one constant latency.
    // Always inlined: lane and kind are constants at nearly every call, and then a third of the instructions is left.
    #[inline(always)]
    pub fn push(&mut self, at: Instant, lane: usize, event: Event) {
        let (at, event) = (at.as_ps(), event.pack());
        if lane < HEAP && self.lasts[lane] <= at {
            self.lasts[lane] = at;
            self.lanes[lane].push((at, event));
            if self.heads[lane] == NEVER {
                self.new_head(at, lane);
            }
        } else {
            self.push_heap(at, event);
        }
    }

    #[inline(never)]
    fn push_heap(&mut self, at: u64, event: u64) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, event)));
        if at < self.heads[HEAP] {
            self.new_head(at, HEAP);
        }
    }

    /// A lane's head has become earlier, or the lane has one at last.
    #[inline]
    fn new_head(&mut self, at: u64, lane: usize) {
        self.heads[lane] = at;
        // Of one instant the lower lane goes first, as in `find_first`.
        let group = &mut self.groups[lane / GROUP];
        if (at, lane) < *group {
            *group = (at, lane);
            if (at, lane) < self.first {
                self.first = (at, lane);
            }
        }
    }

    /// When the next event is due.
    #[inline]
    pub fn next_at(&self) -> Option<Instant> {
        (self.first.0 != NEVER).then(|| Instant::from_ps(self.first.0))
    }

    /// The earliest head and its lane: first within the group whose head has changed, then among the groups.
    #[inline]
    fn find_first(&mut self, changed: usize) -> (u64, usize) {
        let group = changed / GROUP % self.groups.len();
        let (heads, _) = self.heads.as_chunks::<GROUP>();
        let [a, b, c, d] = heads[group];
        let lane = group * GROUP;
        let best = earlier(earlier((a, lane), (b, lane + 1)), earlier((c, lane + 2), (d, lane + 3)));
        self.groups[group] = best;
        let [a, b, c, d] = self.groups;
        earlier(earlier(a, b), earlier(c, d))
    }

    /// Takes the next event if it is due by `now`.
    #[inline]
    pub fn pop_due(&mut self, now: Instant) -> Option<Event> {
        let (at, lane) = self.first;
        if at > now.as_ps() || at == NEVER {
            return None;
        }
        self.popped += 1;
        let event = match self.lanes.get_mut(lane) {
            Some(queue) => {
                debug_assert!(!queue.is_empty(), "the lane's head says that it has an event");
                let (_, event) = queue.at(queue.taken);
                queue.taken += 1;
                self.heads[lane] = if queue.is_empty() { NEVER } else { queue.at(queue.taken).0 };
                event
            }
            None => self.pop_heap(),
        };
        self.first = self.find_first(lane);
        Some(Event::unpack(event))
    }

    // Not inlined: it is rare, and long.
    #[inline(never)]
    fn pop_heap(&mut self) -> u64 {
        let Reverse((_, _, event)) = self.heap.pop().expect("the heap's head says that it has an event");
        self.heads[HEAP] = self.heap.peek().map_or(NEVER, |Reverse((at, ..))| *at);
        event
    }

    /// Events taken so far.
    pub fn popped(&self) -> u64 {
        self.popped
    }

    /// Events waiting.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|l| l.put - l.taken).sum::<usize>() + self.heap.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::Rng;

    #[test]
    fn events_come_in_order_of_time_whatever_their_lanes() {
        let mut rng = Rng::new(3, b"events");
        let mut queue = EventQueue::new(16);
        let mut due = Vec::new();
        for slot in 0..10_000u32 {
            let at = Instant::from_ps(rng.below(1_000_000));
            queue.push(at, rng.below(LANES as u64) as usize, Event::Command { slot });
            due.push(at);
        }
        let mut last = Instant::ZERO;
        for _ in 0..10_000 {
            let at = queue.next_at().unwrap();
            assert!(at >= last);
            last = at;
            assert_eq!(queue.pop_due(Instant::from_ps(at.as_ps().wrapping_sub(1))), None);
            let Some(Event::Command { slot }) = queue.pop_due(at) else { panic!("not what was pushed") };
            assert_eq!(due[slot as usize], at);
        }
        assert!(queue.is_empty());
    }
}
