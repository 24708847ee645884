//! State that all operations on one lane share.

use std::collections::VecDeque;
use std::ops::Range;

use tidewater_base::Duration;
use tidewater_wire::log::RECORD_ALIGN;
use tidewater_wire::vendor::{ControlPage, Epoch, NO_FLOOR, OFFSET_BITS};

use crate::{Action, Error, Region};

/// How long an operation waits, and what it does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Pause between two looks at a counter that did not suffice. Zero looks again at once, as the paper does: the read
    /// itself takes about a microsecond.
    pub poll: Duration,
    /// A counter that has not moved for this long is suspected: the status register is looked at, and again after as
    /// long.
    pub suspect: Duration,
    /// A counter that has not moved for this long ends the operation.
    pub timeout: Duration,
}

impl Default for Patience {
    /// No pause; suspicion after 100 us, some twenty times what a shadow counter takes (the paper's figure 13); an end
    /// after a second.
    fn default() -> Patience {
        Patience { poll: Duration::ZERO, suspect: Duration::from_us(100), timeout: Duration::from_ms(1_000) }
    }
}

/// How a lane is set up: what the control page says when a client attaches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// Lane, 0 to 15.
    pub lane: u8,
    /// The epoch that the client writes in.
    pub epoch: Epoch,
    /// Where the stream goes on: end of the contiguous bytes that the device has.
    pub start: u64,
    /// The credit counter.
    pub credit: u64,
    /// End of the highest byte that arrived, behind a gap or not.
    pub tail: u64,
    /// The floor that the device goes by.
    pub floor: u64,
    /// Bytes that may be outstanding past the credit.
    pub queue_bytes: u32,
    /// Bytes of the lane's window.
    pub ring_bytes: u32,
    /// The window is mapped: the device learns of bytes by an announced tail.
    pub mapped: bool,
    /// How long operations wait.
    pub patience: Patience,
}

impl Default for Setup {
    /// An unwritten lane, without queue and ring: to be completed.
    fn default() -> Setup {
        Setup {
            lane: 0,
            epoch: Epoch::ZERO,
            start: 0,
            credit: 0,
            tail: 0,
            floor: NO_FLOOR,
            queue_bytes: 0,
            ring_bytes: 0,
            mapped: false,
            patience: Patience::default(),
        }
    }
}

impl Setup {
    /// Range left by an earlier client: bytes that are not released, or lie behind a gap. Empty if nothing.
    pub fn left(&self) -> Range<u64> {
        self.floor.min(self.start)..self.tail.max(self.start)
    }

    /// Reads the set-up of a lane from a control page.
    ///
    /// # Errors
    /// [`Error::NoLane`] when the lane is not in use; [`Error::OutOfStep`] when its counters contradict each other or
    /// pass what the media format can name.
    pub fn attach(page: &ControlPage, lane: u8) -> Result<Setup, Error> {
        let lanes = page.lane.get(..usize::from(page.lanes)).unwrap_or_default();
        let record = lanes.get(usize::from(lane)).ok_or(Error::NoLane { lane })?;
        let (credit, written) = (record.credit, record.persisted);
        if credit > written || written > OFFSET_END || record.queue_bytes == 0 || record.ring_bytes == 0 {
            return Err(Error::OutOfStep { credit, before: credit, written });
        }
        Ok(Setup {
            lane,
            epoch: page.epoch,
            start: record.persisted,
            credit: record.credit,
            tail: record.ring_tail,
            floor: record.floor,
            queue_bytes: record.queue_bytes,
            ring_bytes: record.ring_bytes,
            ..Setup::default()
        })
    }
}

/// End of what a stream can hold: the media format names 44 bits of bytes.
pub const OFFSET_END: u64 = 1 << OFFSET_BITS;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Its owner may fill and free it.
    Open,
    /// It is being sealed, for the n-th time: only the last sealer can release it.
    Sealing(u32),
    /// It is released as soon as all before it are.
    Freed,
}

/// One writer's stream, as the client sees it. Either one operation after the other writes to it ([`Lane::stream`]), or
/// several writers fill regions of it ([`Lane::regions`]).
#[derive(Clone, Debug)]
pub struct Lane {
    pub(crate) setup: Setup,
    /// End of what was written or given out: what `x_pwrite` and `x_fsync` share.
    pub(crate) written: u64,
    /// The highest credit seen.
    pub(crate) credit: u64,
    /// End of the regions released; [`NO_FLOOR`] in a stream.
    pub(crate) floor: u64,
    /// The floor that the device knows.
    pub(crate) floor_published: u64,
    /// Regions from the floor on, in the order of the stream, without gaps. Bounded: together they fit the queue, each
    /// has 64 bytes.
    pub(crate) regions: VecDeque<(Region, State)>,
}

impl Lane {
    fn new(mut setup: Setup) -> Lane {
        assert!(setup.start <= OFFSET_END, "a stream offset passes 44 bits");
        setup.queue_bytes = setup.queue_bytes.min(setup.ring_bytes);
        let (written, credit) = (setup.start, setup.credit.min(setup.start));
        Lane { setup, written, credit, floor: NO_FLOOR, floor_published: setup.floor, regions: VecDeque::new() }
    }

    /// A lane that one writer writes as a stream. A queue larger than the ring counts as the ring. Asserts that the
    /// start is within 44 bits, as [`Setup::attach`] checks.
    ///
    /// # Errors
    /// [`Error::Unsettled`] when an earlier client left regions open, or bytes behind a gap, which would join this
    /// client's as soon as it fills the gap: take the lane with [`Lane::regions`], abort what is left, and go on with
    /// [`Lane::into_stream`].
    pub fn stream(setup: Setup) -> Result<Lane, Error> {
        let left = setup.left();
        if left.is_empty() { Ok(Lane::new(setup)) } else { Err(Error::Unsettled { from: left.start, to: left.end }) }
    }

    /// A lane that gives out regions. What an earlier client left ([`Setup::left`], but no more than a queue) becomes
    /// one region that belongs to `owner`: it has to be aborted before others are released. Asserts as [`Lane::stream`]
    /// does.
    pub fn regions(setup: Setup, owner: u64) -> Lane {
        let mut lane = Lane::new(setup);
        let most = lane.queue_bytes();
        lane.regions = VecDeque::with_capacity((most / RECORD_ALIGN) as usize + 1);
        // Regions start at whole lines: an odd start is filled up too.
        let left = setup.left();
        let end = left.end.min(lane.credit.saturating_add(most).max(lane.written)).next_multiple_of(RECORD_ALIGN);
        lane.floor = left.start;
        lane.written = end;
        if end > left.start {
            lane.regions.push_back((Region { offset: left.start, bytes: end - left.start, owner }, State::Open));
        }
        lane
    }

    /// The same lane as a stream.
    ///
    /// # Errors
    /// [`Error::Unsettled`] when a region is not released.
    pub fn into_stream(mut self) -> Result<Lane, Error> {
        if !self.regions.is_empty() {
            return Err(Error::Unsettled { from: self.floor, to: self.written });
        }
        self.floor = NO_FLOOR;
        Ok(self)
    }

    /// End of the bytes written or given out.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The credit last seen.
    pub fn credit(&self) -> u64 {
        self.credit
    }

    /// End of the oldest prefix of released regions; all ones in a stream.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// How the lane is set up.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Regions that are not released, oldest first.
    pub fn open_regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.regions.iter().filter(|(_, state)| *state != State::Freed).map(|(region, _)| *region)
    }

    /// Whether this region was given up and is being sealed.
    pub fn is_sealed(&self, region: &Region) -> bool {
        self.regions.iter().any(|(known, state)| known == region && matches!(state, State::Sealing(_)))
    }

    /// Bytes that may be outstanding: what a region can have at most.
    pub(crate) fn queue_bytes(&self) -> u64 {
        u64::from(self.setup.queue_bytes)
    }

    /// Bytes that may be stored at the end now.
    pub(crate) fn room(&self) -> u64 {
        (self.credit + self.queue_bytes()).saturating_sub(self.written)
    }

    pub(crate) fn gives_regions(&self) -> bool {
        self.floor != NO_FLOOR
    }

    /// Takes a counter that was read.
    pub(crate) fn take_credit(&mut self, credit: u64) -> Result<(), Error> {
        if credit == u64::MAX {
            return Err(Error::Gone);
        }
        // Another operation may have read a higher one since this one asked: only what is past the writes, or far
        // below, is wrong.
        if credit > self.written || credit + self.queue_bytes() < self.credit {
            return Err(Error::OutOfStep { credit, before: self.credit, written: self.written });
        }
        self.credit = self.credit.max(credit);
        Ok(())
    }

    /// Whether this many bytes more stay within what the media format can name.
    pub(crate) fn can_hold(&self, bytes: u64) -> Result<(), Error> {
        let left = OFFSET_END.saturating_sub(self.written);
        if bytes > left { Err(Error::StreamFull { left }) } else { Ok(()) }
    }

    pub(crate) fn find(&mut self, region: &Region) -> Result<&mut State, Error> {
        let known = self.regions.iter_mut().find(|(known, state)| known == region && *state != State::Freed);
        known.map(|(_, state)| state).ok_or(Error::NoSuchRegion { offset: region.offset })
    }

    /// Moves the floor over all regions at its end that are freed.
    pub(crate) fn release(&mut self) {
        while let Some((region, State::Freed)) = self.regions.front() {
            self.floor = region.end();
            self.regions.pop_front();
        }
    }

    /// The store that publishes the floor, if the device does not know it.
    pub(crate) fn publish_floor(&mut self) -> Option<Action> {
        if self.floor_published == self.floor {
            return None;
        }
        self.floor_published = self.floor;
        Some(Action::StoreFloor { lane: self.setup.lane, floor: self.floor })
    }

    /// The store of the first of these bytes up to the end of the ring, and what is left of them.
    pub(crate) fn store(&self, offset: u64, bytes: Range<usize>) -> (Action, Range<usize>) {
        let ring = u64::from(self.setup.ring_bytes.max(1));
        let piece = ((ring - offset % ring).min(bytes.len() as u64)) as usize;
        let cut = bytes.start + piece;
        (Action::Store { lane: self.setup.lane, offset, bytes: bytes.start..cut }, cut..bytes.end)
    }
}
