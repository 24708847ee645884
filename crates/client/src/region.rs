//! `x_alloc`, `x_free` and `x_abort` (the paper's section 5.2): several writers fill parts of one stream in any order,
//! and the device destages them in the order in which they were given out.
//!
//! The floor, which the client stores into the lane page, is the end of the oldest prefix of released regions: credit
//! never passes it. A store has to lie within credit + queue size, so all open regions together fit the queue: a region
//! larger than it can never be given out.
//!
//! **What this needs of a device.** Sealing rewrites bytes that may have reached memory before. A byte that is
//! rewritten must not count as persisted between the store's entry into the intake queue and its arrival in memory, and
//! stores to the same bytes must stay in order; else the credit could cover what was there before, as soon as the floor
//! is past it. For the same reason neither destage nor a mirror flow may take bytes at or past the floor.

use std::ops::Range;

use tidewater_base::Instant;
use tidewater_wire::log::RECORD_ALIGN;

use crate::lane::State;
use crate::watch::Watch;
use crate::{Action, Answer, Error, Lane, Operation, Outcome, Region};

/// Gives out the next region of the stream, as soon as there is room for it (`x_alloc`).
///
/// ```
/// use tidewater_base::Instant;
/// use tidewater_client::{Action, Alloc, Fill, Free, Lane, Operation, Outcome, Setup};
///
/// let setup = Setup { queue_bytes: 1024, ring_bytes: 4096, ..Setup::default() };
/// let mut lane = Lane::regions(setup, 0);
/// let mut alloc = Alloc::new(&lane, 7, 128, Instant::ZERO);
/// // The device has to know first that nothing is released.
/// assert_eq!(alloc.poll(&mut lane), Some(Action::StoreFloor { lane: 0, floor: 0 }));
/// let Some(Action::Done(Ok(Outcome::Allocated(region)))) = alloc.poll(&mut lane) else { panic!("there is room") };
///
/// // Any part of the region, at any time.
/// let mut fill = Fill::new(region, 0, 64);
/// assert_eq!(fill.poll(&mut lane), Some(Action::Store { lane: 0, offset: 0, bytes: 0..64 }));
/// assert_eq!(fill.poll(&mut lane), Some(Action::Fence));
/// assert!(matches!(fill.poll(&mut lane), Some(Action::Done(Ok(_)))));
///
/// // Half of it is enough: the other half becomes a void record.
/// let mut free = Free::new(region, 64);
/// assert!(matches!(free.poll(&mut lane), Some(Action::Seal { offset: 64, bytes: 64, .. })));
/// assert_eq!(free.poll(&mut lane), Some(Action::Fence));
/// assert_eq!(free.poll(&mut lane), Some(Action::StoreFloor { lane: 0, floor: 128 }));
/// assert_eq!(free.poll(&mut lane), Some(Action::Done(Ok(Outcome::Released { floor: 128 }))));
/// ```
#[derive(Clone, Debug)]
pub struct Alloc {
    owner: u64,
    bytes: u64,
    step: AllocStep,
    watch: Watch,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum AllocStep {
    Try,
    Wait,
    End(Result<Outcome, Error>),
    Over,
}

impl Alloc {
    /// Asks for at least `bytes` (rounded up to whole lines of 64) for `owner`, a number that tells the caller whose
    /// region is open.
    pub fn new(lane: &Lane, owner: u64, bytes: u64, now: Instant) -> Alloc {
        let most = lane.queue_bytes() / RECORD_ALIGN * RECORD_ALIGN;
        let whole = bytes.max(1).checked_next_multiple_of(RECORD_ALIGN).unwrap_or(u64::MAX);
        let step = match lane.can_hold(whole) {
            _ if !lane.gives_regions() => AllocStep::End(Err(Error::WrongUse)),
            _ if whole > most => AllocStep::End(Err(Error::TooLarge { bytes, most })),
            Err(error) => AllocStep::End(Err(error)),
            Ok(()) => AllocStep::Try,
        };
        Alloc { owner, bytes: whole, step, watch: Watch::new(lane, 0, now) }
    }
}

impl Operation for Alloc {
    type On = Lane;

    fn poll(&mut self, lane: &mut Lane) -> Option<Action> {
        loop {
            match self.step {
                AllocStep::Try => {
                    // The device has to know the floor before any byte past it arrives.
                    if let Some(action) = lane.publish_floor() {
                        return Some(action);
                    }
                    if lane.room() < self.bytes {
                        self.watch.want((lane.written + self.bytes).saturating_sub(lane.queue_bytes()));
                        self.step = AllocStep::Wait;
                        continue;
                    }
                    let region = Region { offset: lane.written, bytes: self.bytes, owner: self.owner };
                    lane.written = region.end();
                    lane.regions.push_back((region, State::Open));
                    self.step = AllocStep::End(Ok(Outcome::Allocated(region)));
                }
                AllocStep::Wait => return self.watch.poll(lane),
                AllocStep::End(result) => {
                    self.step = AllocStep::Over;
                    return Some(Action::Done(result));
                }
                AllocStep::Over => return None,
            }
        }
    }

    fn on(&mut self, lane: &mut Lane, now: Instant, answer: Answer) {
        if self.step == AllocStep::Wait {
            match self.watch.on(lane, now, answer) {
                Ok(true) => self.step = AllocStep::Try,
                Ok(false) => {}
                Err(error) => self.step = AllocStep::End(Err(error)),
            }
        }
    }
}

/// Stores a buffer of the caller's into a region, and fences it. Never waits.
#[derive(Clone, Debug)]
pub struct Fill {
    region: Region,
    at: u64,
    bytes: usize,
    left: Range<usize>,
    step: FillStep,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FillStep {
    Store,
    Fence,
    End(Result<Outcome, Error>),
    Over,
}

impl Fill {
    /// Stores a buffer of `bytes` at byte `at` of the region.
    pub fn new(region: Region, at: u64, bytes: usize) -> Fill {
        let end = at.saturating_add(bytes as u64);
        let outside = Err(Error::OutsideRegion { bytes: region.bytes, end });
        let step = if end > region.bytes { FillStep::End(outside) } else { FillStep::Store };
        Fill { region, at, bytes, left: 0..bytes, step }
    }
}

impl Operation for Fill {
    type On = Lane;

    fn poll(&mut self, lane: &mut Lane) -> Option<Action> {
        loop {
            match self.step {
                FillStep::Store => {
                    let open = lane.find(&self.region).is_ok_and(|state| *state == State::Open);
                    if !open {
                        self.step = FillStep::End(Err(Error::NoSuchRegion { offset: self.region.offset }));
                    } else if self.left.is_empty() {
                        self.step = FillStep::Fence;
                    } else {
                        let offset = self.region.offset + self.at + self.left.start as u64;
                        let (action, left) = lane.store(offset, self.left.clone());
                        self.left = left;
                        return Some(action);
                    }
                }
                FillStep::Fence => {
                    let offset = self.region.offset + self.at;
                    self.step = FillStep::End(Ok(Outcome::Written { offset, end: offset + self.bytes as u64 }));
                    return Some(Action::Fence);
                }
                FillStep::End(result) => {
                    self.step = FillStep::Over;
                    return Some(Action::Done(result));
                }
                FillStep::Over => return None,
            }
        }
    }

    fn on(&mut self, _: &mut Lane, _: Instant, answer: Answer) {
        if answer == Answer::Gone && self.step != FillStep::Over {
            self.step = FillStep::End(Err(Error::Gone));
        }
    }
}

/// Common part of [`Free`] and [`Abort`]: seal a part, release the region, and tell the floor.
#[derive(Clone, Debug)]
struct Close {
    region: Region,
    /// The state that the region has to be in.
    state: State,
    /// Bytes at its start that are kept; the rest is sealed.
    used: u64,
    step: CloseStep,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CloseStep {
    Seal,
    Fence,
    Release,
    Announce,
    TellFloor,
    End(Result<Outcome, Error>),
    Over,
}

impl Close {
    fn in_state(&self, lane: &mut Lane) -> bool {
        lane.find(&self.region).is_ok_and(|state| *state == self.state)
    }

    fn poll(&mut self, lane: &mut Lane) -> Option<Action> {
        loop {
            match self.step {
                CloseStep::Seal | CloseStep::Release if !self.in_state(lane) => {
                    self.step = CloseStep::End(Err(Error::NoSuchRegion { offset: self.region.offset }));
                }
                CloseStep::Seal if self.used == self.region.bytes => self.step = CloseStep::Release,
                CloseStep::Seal => {
                    // What an earlier client left may still be without a floor: else the credit could run over it
                    // half-sealed.
                    if let Some(action) = lane.publish_floor() {
                        return Some(action);
                    }
                    self.step = CloseStep::Fence;
                    let (offset, bytes) = (self.region.offset + self.used, self.region.bytes - self.used);
                    return Some(Action::Seal { lane: lane.setup.lane, offset, bytes, epoch: lane.setup.epoch });
                }
                CloseStep::Fence => {
                    self.step = CloseStep::Release;
                    return Some(Action::Fence);
                }
                CloseStep::Release => {
                    let before = lane.floor;
                    if let Ok(state) = lane.find(&self.region) {
                        *state = State::Freed;
                    }
                    lane.release();
                    let moved = lane.floor != before;
                    self.step = if moved && lane.setup.mapped { CloseStep::Announce } else { CloseStep::TellFloor };
                }
                CloseStep::Announce => {
                    self.step = CloseStep::TellFloor;
                    return Some(Action::AnnounceTail { lane: lane.setup.lane, tail: lane.floor });
                }
                CloseStep::TellFloor => {
                    self.step = CloseStep::End(Ok(Outcome::Released { floor: lane.floor }));
                    if let Some(action) = lane.publish_floor() {
                        return Some(action);
                    }
                }
                CloseStep::End(result) => {
                    self.step = CloseStep::Over;
                    return Some(Action::Done(result));
                }
                CloseStep::Over => return None,
            }
        }
    }

    fn on(&mut self, answer: Answer) {
        if answer == Answer::Gone && self.step != CloseStep::Over {
            self.step = CloseStep::End(Err(Error::Gone));
        }
    }
}

/// Releases a region (`x_free`). It counts towards the floor once all regions before it are released.
#[derive(Clone, Debug)]
pub struct Free(Close);

impl Free {
    /// Releases a region of which the first `used` bytes (a multiple of 64) were filled without a gap. What is left of
    /// it becomes a void record, since a gap would stop the counter for ever.
    pub fn new(region: Region, used: u64) -> Free {
        let wrong = used > region.bytes || !used.is_multiple_of(RECORD_ALIGN) && used != region.bytes;
        let outside = Err(Error::OutsideRegion { bytes: region.bytes, end: used });
        let step = if wrong { CloseStep::End(outside) } else { CloseStep::Seal };
        Free(Close { region, state: State::Open, used, step })
    }
}

impl Operation for Free {
    type On = Lane;

    fn poll(&mut self, lane: &mut Lane) -> Option<Action> {
        self.0.poll(lane)
    }

    fn on(&mut self, _: &mut Lane, _: Instant, answer: Answer) {
        self.0.on(answer);
    }
}

/// Gives a region up (`x_abort`): anybody may, when its owner is dead ([`Lane::open_regions`] and
/// [`crate::Stall::OpenRegion`] tell whose it is). All of it becomes one void record, so that the stream stays
/// readable, and it is released. From then on its owner can neither fill nor free it; that a store of its does not come
/// late is for the caller to be sure of.
#[derive(Clone, Debug)]
pub struct Abort(Close);

impl Abort {
    /// Gives the region up. While another does so, this fails: two sealers could not know when the other's last store
    /// is over.
    pub fn new(lane: &mut Lane, region: Region) -> Abort {
        Abort::seal(lane, region, |state| if state == State::Open { Some(0) } else { None })
    }

    /// Gives the region up though another began to, who is dead too: that one can no longer release it.
    pub fn take_over(lane: &mut Lane, region: Region) -> Abort {
        Abort::seal(lane, region, |state| match state {
            State::Sealing(turn) => turn.checked_add(1),
            _ => Some(0),
        })
    }

    fn seal(lane: &mut Lane, region: Region, turn: fn(State) -> Option<u32>) -> Abort {
        let sealed = match lane.find(&region) {
            Ok(state) => turn(*state).map(|turn| {
                *state = State::Sealing(turn);
                *state
            }),
            Err(_) => None,
        };
        let step = match sealed {
            Some(_) => CloseStep::Seal,
            None => CloseStep::End(Err(Error::NoSuchRegion { offset: region.offset })),
        };
        Abort(Close { region, state: sealed.unwrap_or(State::Open), used: 0, step })
    }
}

impl Operation for Abort {
    type On = Lane;

    fn poll(&mut self, lane: &mut Lane) -> Option<Action> {
        self.0.poll(lane)
    }

    fn on(&mut self, _: &mut Lane, _: Instant, answer: Answer) {
        self.0.on(answer);
    }
}
