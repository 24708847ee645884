//! A core that writes a log to the fast side: the client's algorithms, carried out by stores and loads over PCIe.

use crate::pcie::{Mapping, Op, PcieSpec, RootComplex, Tlp, TlpKind};
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_client::{Action, Answer, Fsync, Health, Lane, Operation, Outcome, Pwrite, Setup};
use tidewater_core::device::Input;
use tidewater_core::fast::Content;
use tidewater_wire::vendor::{BarLayout, ControlPage, LanePage, LanePlace};

/// The operation under way.
#[derive(Clone, Debug)]
enum Call {
    Write(Pwrite),
    Sync(Fsync),
}

/// Purpose of an outstanding load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Credit,
    Status,
}

/// When a writer reads the credit counter during a write, besides when its credit is used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checks {
    /// At no other time: the best of what the X-SSD paper tried (section 5.1).
    #[default]
    UsedUp,
    /// After so many bytes each, until it has moved.
    Each(u64),
    /// After so many bytes each, until all of them are credited.
    Drained(u64),
}

/// One writer on one core, with one lane.
#[derive(Debug)]
pub struct LogClient {
    /// When it reads the counter.
    pub checks: Checks,
    /// Bytes that are left of a write which is cut for such checks.
    left: u64,
    root: RootComplex,
    lane: Lane,
    /// Where the control page and the lane are, as the device publishes it.
    control: u64,
    place: LanePlace,
    function: u8,
    mapping: Mapping,
    /// Bytes after which an eviction parts a store from the next; `None`: only where the processor does.
    piece: Option<u64>,
    call: Option<Call>,
    /// Operations that the core still has to do for the last action.
    ops: VecDeque<Op>,
    load: Option<Load>,
    /// Value of the last load, until the core has it.
    found: Option<Answer>,
    waits_until: Option<Instant>,
    arrivals: VecDeque<Tlp>,
    finished: Option<Instant>,
    failure: Option<tidewater_client::Error>,
    loads: u64,
    now: Instant,
}

const CORE: u32 = 0;

impl LogClient {
    /// Attaches to a lane of a function whose control page and layout these are.
    ///
    /// # Panics
    /// When there is no such lane, or an earlier client has left something there.
    pub fn attach(
        spec: &PcieSpec,
        page: &ControlPage,
        layout: &BarLayout,
        lane: u8,
        mapping: Mapping,
        piece: Option<u64>,
    ) -> LogClient {
        let setup = Setup::attach(page, lane).expect("the function has the lane");
        LogClient {
            checks: Checks::default(),
            left: 0,
            root: RootComplex::new(spec),
            lane: Lane::stream(setup).expect("the lane is unused"),
            control: layout.control_page_offset,
            place: layout.lane[usize::from(lane)],
            function: page.function as u8,
            mapping,
            piece,
            call: None,
            ops: VecDeque::new(),
            load: None,
            found: None,
            waits_until: None,
            arrivals: VecDeque::new(),
            finished: None,
            failure: None,
            loads: 0,
            now: Instant::ZERO,
        }
    }

    /// Begins `x_pwrite` of so many bytes. Asserts that nothing is under way.
    pub fn write(&mut self, now: Instant, bytes: u64) {
        assert!(self.call.is_none(), "one call at a time");
        self.left = bytes;
        self.write_piece(now);
        self.resume(now);
    }

    /// Begins the next piece of a write, up to where the counter is checked.
    fn write_piece(&mut self, now: Instant) {
        let piece = match self.checks {
            Checks::UsedUp => self.left,
            Checks::Each(bytes) | Checks::Drained(bytes) => bytes.max(1).min(self.left),
        };
        self.left -= piece;
        self.call = Some(Call::Write(Pwrite::new(&mut self.lane, piece as usize, now)));
    }

    /// Begins `x_fsync`. Asserts that nothing is under way.
    pub fn sync(&mut self, now: Instant) {
        assert!(self.call.is_none(), "one call at a time");
        self.call = Some(Call::Sync(Fsync::new(&self.lane, now)));
        self.resume(now);
    }

    /// When the last call ended, once.
    pub fn poll_finished(&mut self) -> Option<Instant> {
        self.finished.take()
    }

    /// Why the last call failed, if it did.
    pub fn failure(&self) -> Option<&tidewater_client::Error> {
        self.failure.as_ref()
    }

    /// Loads of the control page so far.
    pub fn loads(&self) -> u64 {
        self.loads
    }

    /// When something happens by itself next.
    pub fn deadline(&self) -> Option<Instant> {
        let arrival = self.arrivals.front().map(|tlp| tlp.at);
        self.root.deadline().into_iter().chain(arrival).chain(self.waits_until).min()
    }

    /// Does what is due by `now`.
    pub fn advance(&mut self, now: Instant) {
        self.now = now;
        self.root.advance(now);
        while let Some(tlp) = self.root.poll_tlp() {
            self.arrivals.push_back(tlp);
        }
        while let Some(done) = self.root.poll_done() {
            if let Some(answer) = self.found.take_if(|_| self.ops.is_empty()) {
                self.answer(done.at, answer);
            }
            self.resume(done.at);
        }
        if self.waits_until.is_some_and(|until| until <= now) {
            self.waits_until = None;
            self.answer(now, Answer::Time);
            self.resume(now);
        }
    }

    /// A TLP that has reached the device by `now`.
    pub fn poll_arrival(&mut self, now: Instant) -> Option<Input<'static>> {
        let tlp = self.arrivals.pop_front_if(|tlp| tlp.at <= now)?;
        match tlp.kind {
            TlpKind::Write => {
                // The intake queue takes it at once: it has room for all that the client's credit allows.
                self.root.release(now, tlp.offset, tlp.length);
                let content = Content::Absent(tlp.length);
                Some(Input::Store { function: self.function, address: tlp.offset, content })
            }
            TlpKind::Read => {
                let (address, len) = (tlp.offset, tlp.length.min(8) as u8);
                Some(Input::Load { function: self.function, address, len, tag: 0 })
            }
        }
    }

    /// The device has answered the load, and this is its control page.
    pub fn loaded(&mut self, now: Instant, value: u64, health: impl FnOnce() -> Health) {
        self.found = Some(match self.load.take() {
            Some(Load::Credit) => Answer::Credit(value),
            Some(Load::Status) => Answer::Health(health()),
            None => unreachable!("a load that was never issued"),
        });
        self.root.complete_read(now, CORE);
    }

    fn answer(&mut self, now: Instant, answer: Answer) {
        match &mut self.call {
            Some(Call::Write(call)) => call.on(&mut self.lane, now, answer),
            Some(Call::Sync(call)) => call.on(&mut self.lane, now, answer),
            None => {}
        }
    }

    /// Gives the idle core what comes next.
    fn resume(&mut self, now: Instant) {
        while self.root.is_idle(CORE) && self.waits_until.is_none() && self.found.is_none() {
            if let Some(op) = self.ops.pop_front() {
                self.root.start(now, CORE, op);
                return;
            }
            let action = match &mut self.call {
                Some(Call::Write(call)) => call.poll(&mut self.lane),
                Some(Call::Sync(call)) => call.poll(&mut self.lane),
                None => None,
            };
            let Some(action) = action else { return };
            match action {
                Action::Store { offset, bytes, .. } => self.plan_stores(offset, bytes.len() as u64),
                Action::StoreFloor { .. } => {
                    let offset = self.place.lane_page_offset + LanePage::FLOOR_OFFSET as u64;
                    self.ops.push_back(Op::Write { offset, length: 8, mapping: Mapping::Uncached });
                }
                Action::Fence => self.ops.push_back(Op::Fence),
                Action::ReadCredit { lane } => {
                    self.load = Some(Load::Credit);
                    self.loads += 1;
                    let offset = self.control + ControlPage::lane_offset(lane) as u64;
                    self.ops.push_back(Op::Read { offset, length: 8 });
                }
                Action::ReadStatus => {
                    self.load = Some(Load::Status);
                    self.loads += 1;
                    let offset = self.control + ControlPage::STATUS_OFFSET as u64;
                    self.ops.push_back(Op::Read { offset, length: 8 });
                }
                Action::Wait { until } => self.waits_until = Some(until),
                Action::Done(Ok(Outcome::Written { end, .. })) if self.left > 0 => {
                    let end =
                        if matches!(self.checks, Checks::Each(_)) { self.lane.credit() + 1 } else { end }.min(end);
                    self.call = Some(Call::Sync(Fsync::to(&self.lane, end, now)));
                }
                Action::Done(Ok(Outcome::Durable { .. })) if self.left > 0 => self.write_piece(now),
                Action::Done(Ok(Outcome::Written { .. } | Outcome::Durable { .. })) => {
                    self.call = None;
                    self.finished = Some(now);
                }
                Action::Done(Err(error)) => {
                    self.call = None;
                    self.failure = Some(error);
                }
                other => unreachable!("unexpected event of a stream's writer: {other:?}"),
            }
        }
    }

    fn plan_stores(&mut self, offset: u64, length: u64) {
        let mapping = self.mapping;
        let piece = self.piece.unwrap_or(length);
        let mut at = 0;
        while at < length {
            let part = piece.min(length - at);
            let address = self.place.address(offset + at);
            self.ops.push_back(Op::Write { offset: address, length: part, mapping });
            if self.piece.is_some() && mapping == Mapping::WriteCombining {
                self.ops.push_back(Op::Evict);
            }
            at += part;
        }
    }
}
