//! The device's own future: timers in one first-in first-out lane per constant latency, with a heap for the rest.
//!
//! Most latencies of a drive are constants (a page transfer, a program), so events of one latency fall due in the order
//! they were made, and a queue does a heap's work. Which lane is only a hint: an event that would break a lane's order
//! goes to the heap, so a wrong hint costs time, never order. Events of one instant come in the order of their lanes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::marker::PhantomData;
use tidewater_base::Instant;

/// Lanes, the heap's place included.
pub const LANES: usize = 16;
const HEAP: usize = LANES - 1;
/// Lanes whose earliest head is kept together.
const GROUP: usize = 4;

/// The low bits of a key: the lane. Above them is when its head is due, in picoseconds since a base: one comparison of
/// keys tells which lane goes first, and of one instant the lower.
const LANE_BITS: u32 = LANES.trailing_zeros();
/// The key of a lane without events.
const NEVER: u64 = u64::MAX;
/// The key of the heap when its head is due so late (13 days after the base) that no key can tell.
const FAR: u64 = NEVER - LANES as u64;

/// Events that a lane of a device holds before it allocates again. Few, since a ring is used all around: what the usual
/// depths need should stay in the nearest cache.
pub const LANE_PLACES: usize = 64;

/// What a queue holds: an event that is kept as 64 bits.
pub trait Packed: Copy {
    /// The event as bits.
    fn pack(self) -> u64;
    /// The event that these bits stand for.
    fn unpack(bits: u64) -> Self;
}

/// A first-in first-out ring that grows when it must. `VecDeque` takes twice the instructions for the few operations
/// that every event needs.
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

    #[inline(always)]
    fn take(&mut self) -> Option<(u64, u64)> {
        (self.taken != self.put).then(|| {
            self.taken += 1;
            self.at(self.taken - 1)
        })
    }

    #[cold]
    fn grow(&mut self) {
        let all: Vec<_> = (self.taken..self.put).map(|i| self.at(i)).collect();
        let mut larger = Lane::new(2 * self.items.len());
        all.into_iter().for_each(|item| larger.push(item));
        *self = larger;
    }
}

/// A queue of events, packed into 64 bits each.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    /// The key of each lane: when its first event is due.
    heads: [u64; LANES],
    /// These events themselves. Apart from the lanes' rings, which many lanes need no place in then.
    first_events: [u64; HEAP],
    /// The least key of each group of lanes.
    groups: [u64; LANES / GROUP],
    /// The least of them.
    first: u64,
    /// What keys count from, and the first time that they can't tell.
    base: u64,
    far_from: u64,
    /// The key of the event that was taken last: nothing is scheduled before it was due.
    taken: u64,
    /// When the event that was put last into each lane is due, whether it has been taken or not.
    lasts: [u64; HEAP],
    /// All events of each lane but its first.
    lanes: [Lane; HEAP],
    heap: BinaryHeap<Reverse<(u64, u64, u64)>>,
    /// Breaks ties in the heap by age.
    order: u64,
    popped: u64,
    of: PhantomData<E>,
}

impl<E: Packed> EventQueue<E> {
    /// An empty queue that holds `capacity` events in each lane before it allocates again.
    pub fn new(capacity: usize) -> EventQueue<E> {
        EventQueue {
            heads: [NEVER; LANES],
            first_events: [0; HEAP],
            groups: [NEVER; LANES / GROUP],
            first: NEVER,
            base: 0,
            far_from: FAR >> LANE_BITS,
            taken: 0,
            lasts: [0; HEAP],
            lanes: std::array::from_fn(|_| Lane::new(capacity)),
            heap: BinaryHeap::with_capacity(capacity),
            order: 0,
            popped: 0,
            of: PhantomData,
        }
    }

    /// Schedules `event` for `at`, which is not before what was taken last. `lane` groups events of one constant
    /// latency.
    // Always inlined: lane and kind are constants at nearly every call, and then a third of the instructions is left.
    #[inline(always)]
    pub fn push(&mut self, at: Instant, lane: usize, event: E) {
        let (at, event) = (at.as_ps(), event.pack());
        if lane < HEAP && self.lasts[lane] <= at && self.is_near(at) {
            self.lasts[lane] = at;
            if self.heads[lane] == NEVER {
                self.first_events[lane] = event;
                self.new_head(self.key(at, lane));
            } else {
                self.lanes[lane].push((at, event));
            }
        } else {
            self.push_heap(at, event);
        }
    }

    #[inline(never)]
    fn push_heap(&mut self, at: u64, event: u64) {
        self.order += 1;
        self.heap.push(Reverse((at, self.order, event)));
        if !self.is_near(at) {
            self.count_from(self.time_of(self.taken));
        }
        let key = self.heap_key();
        if key < self.heads[HEAP] {
            self.new_head(key);
        }
    }

    /// Whether a key can tell this time.
    #[inline]
    fn is_near(&self, at: u64) -> bool {
        at < self.far_from
    }

    #[inline]
    fn key(&self, at: u64, lane: usize) -> u64 {
        (at - self.base) << LANE_BITS | lane as u64
    }

    /// When an event with this key is due, unless the key is [`FAR`] or [`NEVER`].
    #[inline]
    fn time_of(&self, key: u64) -> u64 {
        (key >> LANE_BITS) + self.base
    }

    fn heap_key(&self) -> u64 {
        match self.heap.peek() {
            None => NEVER,
            Some(&Reverse((at, ..))) if self.is_near(at) => self.key(at, HEAP),
            Some(_) => FAR,
        }
    }

    /// Keys count from `base` from now on, before which no event waits nor will be scheduled.
    #[cold]
    fn count_from(&mut self, base: u64) {
        let passed = (base - self.base) << LANE_BITS;
        self.heads[..HEAP].iter_mut().filter(|key| **key != NEVER).for_each(|key| *key -= passed);
        self.base = base;
        self.far_from = base.saturating_add(FAR >> LANE_BITS);
        self.taken = 0;
        self.heads[HEAP] = self.heap_key();
        for lane in (0..LANES).step_by(GROUP) {
            self.first = self.find_first(lane);
        }
    }

    /// A lane's head has become earlier, or the lane has one at last.
    #[inline]
    fn new_head(&mut self, key: u64) {
        let lane = key as usize % LANES;
        self.heads[lane] = key;
        let group = &mut self.groups[lane / GROUP];
        *group = key.min(*group);
        self.first = key.min(self.first);
    }

    /// When the next event is due.
    #[inline]
    pub fn next_at(&self) -> Option<Instant> {
        if self.first >= FAR {
            return self.far_at();
        }
        Some(Instant::from_ps(self.time_of(self.first)))
    }

    #[cold]
    fn far_at(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, ..))| Instant::from_ps(*at))
    }

    /// The least key: first within the group whose keys have changed, then among the groups.
    #[inline(always)]
    fn find_first(&mut self, changed: usize) -> u64 {
        let group = changed / GROUP % self.groups.len();
        let (heads, _) = self.heads.as_chunks::<GROUP>();
        let [a, b, c, d] = heads[group];
        self.groups[group] = a.min(b).min(c.min(d));
        let [a, b, c, d] = self.groups;
        a.min(b).min(c.min(d))
    }

    /// Takes the next event if it is due by `now`.
    #[inline(always)]
    pub fn pop_due(&mut self, now: Instant) -> Option<E> {
        if self.next_at()? > now {
            return None;
        }
        Some(self.pop())
    }

    /// Takes the next event, for a caller that has asked when it is due: there must be one.
    #[inline(always)]
    pub fn pop(&mut self) -> E {
        debug_assert!(self.first != NEVER, "no event waits");
        self.popped += 1;
        self.taken = self.first;
        let lane = self.first as usize % LANES;
        let event = match self.lanes.get_mut(lane) {
            Some(queue) => {
                let event = self.first_events[lane];
                self.heads[lane] = NEVER;
                if let Some((at, next)) = queue.take() {
                    self.first_events[lane] = next;
                    self.heads[lane] = (at - self.base) << LANE_BITS | lane as u64;
                }
                event
            }
            None => self.pop_heap(),
        };
        self.first = self.find_first(lane);
        E::unpack(event)
    }

    // Not inlined: it is rare, and long.
    #[inline(never)]
    fn pop_heap(&mut self) -> u64 {
        let Reverse((at, _, event)) = self.heap.pop().expect("an event waits, and in no lane");
        if !self.is_near(at) {
            self.count_from(at); // Nothing else waits that is due before.
        }
        self.heads[HEAP] = self.heap_key();
        event
    }

    /// Events taken so far.
    pub fn popped(&self) -> u64 {
        self.popped
    }

    /// Events waiting.
    pub fn len(&self) -> usize {
        let first = self.heads[..HEAP].iter().filter(|&&key| key != NEVER).count();
        first + self.lanes.iter().map(|l| l.put - l.taken).sum::<usize>() + self.heap.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Event;
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

    /// Keys count from a base, which moves as time does: up to a jump of half of all time, to and fro over many bases.
    #[test]
    fn events_come_in_order_over_all_of_time() {
        let mut rng = Rng::new(4, b"far events");
        for spread in [40, 58, 59, 60, 61, 62] {
            let mut queue = EventQueue::new(4);
            let mut due = std::collections::BTreeSet::new();
            let (mut now, mut slot) = (0u64, 0u32);
            while now < 1 << 63 && slot < 20_000 {
                for _ in 0..rng.below(4) {
                    let at = now + (rng.next_u64() >> rng.below(40) >> (64 - spread)).min(u64::MAX - now - 1);
                    queue.push(Instant::from_ps(at), rng.below(LANES as u64) as usize, Event::Command { slot });
                    due.insert((at, slot));
                    slot += 1;
                }
                assert_eq!(queue.next_at(), due.first().map(|&(at, _)| Instant::from_ps(at)));
                assert_eq!(queue.len(), due.len());
                let Some(at) = queue.next_at() else { continue };
                let Some(Event::Command { slot }) = queue.pop_due(at) else { panic!("nothing is due at {at:?}") };
                assert!(due.remove(&(at.as_ps(), slot)), "event {slot} is not due at {at:?}");
                now = at.as_ps();
            }
        }
    }
}
