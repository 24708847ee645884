//! A small device with one lane: an intake queue that drains in any order, a floor, a destage, stalls and power cuts.
//! It asserts what a client must keep to.

use tidewater_base::{Duration, Instant, Rng};
use tidewater_client::{Action, Answer, Error, Health, Lane, Operation, Outcome, Reader, Setup, fill_void};
use tidewater_wire::vendor::{ControlPage, Epoch, LaneRecord, NO_FLOOR, Role, TAIL, TransportStatus};

pub const QUEUE: u32 = 1024;
pub const RING: u32 = 4096;

pub struct Model {
    pub rng: Rng,
    pub now: Instant,
    /// Every byte of the stream, and whether it is in memory.
    bytes: Vec<u8>,
    landed: Vec<bool>,
    /// Stores in the host's write-combining buffers: stream offset, bytes of one line.
    combining: Vec<(u64, Vec<u8>)>,
    /// Stores in the intake queue.
    queued: Vec<(u64, Vec<u8>)>,
    persisted: u64,
    floor: u64,
    /// Mapped windows: bytes past it are not looked at.
    tail: u64,
    pub destaged: u64,
    /// The oldest byte that can be read.
    pub head: u64,
    /// The credit that was last reported to the client.
    reported: u64,
    pub mapped: bool,
    /// Nothing drains.
    pub frozen: bool,
    pub health: Health,
    pub gone: bool,
    /// Most bytes outstanding past the reported credit.
    pub most_outstanding: u64,
}

impl Model {
    pub fn new(seed: u64) -> Model {
        Model {
            rng: Rng::new(seed, b"model"),
            now: Instant::ZERO,
            bytes: Vec::new(),
            landed: Vec::new(),
            combining: Vec::new(),
            queued: Vec::new(),
            persisted: 0,
            floor: NO_FLOOR,
            tail: 0,
            destaged: 0,
            head: 0,
            reported: 0,
            mapped: false,
            frozen: false,
            health: Health { status: TransportStatus::OK, epoch: Epoch::new(1, 1), role: Role::Primary },
            gone: false,
            most_outstanding: 0,
        }
    }

    pub fn setup(&self) -> Setup {
        let epoch = self.health.epoch;
        Setup { epoch, queue_bytes: QUEUE, ring_bytes: RING, mapped: self.mapped, ..Setup::default() }
    }

    /// The setup that a client gets when it attaches.
    pub fn attach(&mut self) -> Setup {
        self.reported = self.credit();
        let record = LaneRecord {
            credit: self.credit(),
            persisted: self.persisted,
            ring_tail: self.bytes.len() as u64,
            floor: self.floor,
            queue_bytes: QUEUE,
            ring_bytes: RING,
            ..LaneRecord::default()
        };
        let mut page = ControlPage { lanes: 1, epoch: self.health.epoch, ..ControlPage::default() };
        page.lane[0] = record;
        Setup::attach(&page, 0).expect("the model does not contradict itself")
    }

    pub fn credit(&self) -> u64 {
        self.persisted.min(self.floor)
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        let reported = self.reported;
        assert!(end <= reported + u64::from(QUEUE), "{offset}..{end} passes the credit {reported} and the queue");
        assert!(offset >= self.credit(), "{offset} is released: the credit is {}", self.credit());
        assert!(offset / u64::from(RING) == (end - 1) / u64::from(RING), "{offset}..{end} crosses the end of the ring");
        self.most_outstanding = self.most_outstanding.max(end - reported);
        // Write-combining buffers of 64 bytes leave in any order.
        let mut at = offset;
        while at < end {
            let next = ((at / 64 + 1) * 64).min(end);
            self.combining.push((at, bytes[(at - offset) as usize..(next - offset) as usize].to_vec()));
            at = next;
        }
    }

    /// A store leaves the host and enters the queue. Bytes that it rewrites count again only when it has reached
    /// memory: else the credit could cover what was there before, as soon as the floor allows.
    fn enter(&mut self, i: usize) {
        let (offset, bytes) = self.combining.remove(i);
        assert!(offset >= self.credit(), "{offset} is released: the credit is {}", self.credit());
        let end = offset as usize + bytes.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0xEE);
            self.landed.resize(end, false);
        }
        self.landed[offset as usize..end].fill(false);
        self.persisted = self.persisted.min(offset);
        self.queued.push((offset, bytes));
    }

    /// A store reaches memory.
    fn land(&mut self, i: usize) {
        let (offset, bytes) = self.queued.remove(i);
        let end = offset as usize + bytes.len();
        self.bytes[offset as usize..end].copy_from_slice(&bytes);
        self.landed[offset as usize..end].fill(true);
        self.advance();
    }

    /// Any store in a list, but never one before an older one to the same line.
    fn pick(rng: &mut Rng, stores: &[(u64, Vec<u8>)]) -> Option<usize> {
        if stores.is_empty() {
            return None;
        }
        let line = stores[rng.below(stores.len() as u64) as usize].0 / 64;
        stores.iter().position(|(offset, _)| offset / 64 == line)
    }

    fn advance(&mut self) {
        let reach = if self.mapped { self.tail } else { u64::MAX };
        while self.persisted < reach && self.landed.get(self.persisted as usize) == Some(&true) {
            self.persisted += 1;
        }
    }

    /// A little time: some stores land, in any order but for those of the same line, and some bytes are destaged.
    pub fn tick(&mut self) {
        self.now += Duration::from_ns(1 + self.rng.below(200));
        if self.frozen {
            return;
        }
        for _ in 0..self.rng.below(4) {
            if let Some(i) = Model::pick(&mut self.rng, &self.combining) {
                self.enter(i);
            }
            if let Some(i) = Model::pick(&mut self.rng, &self.queued) {
                self.land(i);
            }
        }
        let left = self.credit() - self.destaged;
        self.destaged += self.rng.below(left + 1);
    }

    fn fence(&mut self) {
        while !self.combining.is_empty() {
            self.enter(0);
        }
    }

    /// Time enough for all that is on its way.
    pub fn settle(&mut self) {
        self.fence();
        while !self.queued.is_empty() {
            self.land(0);
        }
        self.destaged = self.credit();
    }

    /// Bytes on flash if power were lost now: those that persisted below the floor.
    pub fn cut(&self) -> &[u8] {
        &self.bytes[..self.credit() as usize]
    }

    /// Carries an action out. `None` when it has no answer.
    pub fn act(&mut self, action: &Action, out: &[u8], into: &mut [u8]) -> Option<Answer> {
        self.tick();
        let answer = match action {
            Action::Store { offset, bytes, .. } => {
                self.store(*offset, &out[bytes.clone()]);
                return None;
            }
            Action::Seal { offset, bytes, epoch, .. } => {
                let mut void = vec![0xAA; *bytes as usize];
                fill_void(*offset, *epoch, &mut void);
                let ring = u64::from(RING);
                let cut = (ring - offset % ring).min(*bytes) as usize;
                self.store(*offset, &void[..cut]);
                if cut < void.len() {
                    self.store(offset + cut as u64, &void[cut..]);
                }
                return None;
            }
            Action::Fence => {
                self.fence();
                return None;
            }
            Action::AnnounceTail { tail, .. } => {
                assert!(self.mapped && *tail >= self.tail, "a tail must not fall");
                self.tail = *tail;
                self.advance();
                return None;
            }
            Action::StoreFloor { floor, .. } => {
                assert!(self.floor == NO_FLOOR || *floor >= self.floor, "a floor must not fall");
                self.floor = *floor;
                return None;
            }
            Action::ReadCredit { .. } => {
                self.reported = self.reported.max(self.credit());
                Answer::Credit(self.credit())
            }
            Action::ReadStatus => Answer::Health(self.health),
            Action::ReadLog { offset, into: place, .. } => {
                let at = if *offset == TAIL { self.destaged } else { *offset };
                if at < self.head {
                    Answer::Released { head: self.head }
                } else {
                    let there = self.destaged.saturating_sub(at).min(place.len() as u64);
                    let bytes = self.rng.below(there + 1) as usize;
                    let from = &self.bytes.get(at as usize..at as usize + bytes).unwrap_or_default();
                    into[place.start..place.start + bytes].copy_from_slice(from);
                    Answer::Data { offset: at, bytes }
                }
            }
            Action::Wait { until } => {
                self.now = self.now.max(*until);
                Answer::Time
            }
            Action::Done(_) => unreachable!("the driver takes this"),
        };
        Some(if self.gone { Answer::Gone } else { answer })
    }

    /// Drives an operation on a lane to its end.
    pub fn drive(
        &mut self,
        lane: &mut Lane,
        operation: &mut impl Operation<On = Lane>,
        out: &[u8],
    ) -> Result<Outcome, Error> {
        self.run(lane, operation, out, &mut [])
    }

    /// Drives a read to its end.
    pub fn read(
        &mut self,
        reader: &mut Reader,
        operation: &mut impl Operation<On = Reader>,
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        self.run(reader, operation, &[], into)
    }

    fn run<O: Operation>(
        &mut self,
        on: &mut O::On,
        operation: &mut O,
        out: &[u8],
        into: &mut [u8],
    ) -> Result<Outcome, Error> {
        for _ in 0..1_000_000 {
            match operation.poll(on).expect("an operation that was answered goes on") {
                Action::Done(result) => {
                    assert_eq!(operation.poll(on), None, "an operation ends once");
                    return result;
                }
                action => {
                    if let Some(answer) = self.act(&action, out, into) {
                        operation.on(on, self.now, answer);
                    }
                }
            }
        }
        panic!("the operation does not end");
    }
}
