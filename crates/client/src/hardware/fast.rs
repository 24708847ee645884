//! A lane of a drive's fast side, carried out: what the operations say, by BAR2 or by commands.

use std::ops::Range;
use std::time::Instant as WallInstant;

use tidewater_base::Instant;
use tidewater_driver::{DATA_MAX, Queue};
use tidewater_wire::log::RECORD_ALIGN;
use tidewater_wire::vendor::{ANYWHERE, ControlPage, IoCommand, LanePage, LanePlace, ReadLogHeader, status};

use super::{Device, HardwareError};
use crate::{
    Abort, Action, Answer, Fsync, Health, Lane, Operation, Outcome, Patience, Pread, Pwrite, Reader, Region, Setup,
    fill_void,
};

/// Who the leavings of an earlier client are given to, until they are sealed.
const EARLIER: u64 = ANYWHERE;
/// How long a read of the log waits in the drive before the client looks itself, in nanoseconds.
const READ_WAIT_NS: u64 = 20_000_000;

/// A lane of the fast side: one writer's stream, and its log.
pub struct Fast<'d> {
    device: &'d mut Device,
    lane: Lane,
    /// Where its parts are in BAR2; `None`: bytes go by commands.
    place: Option<Place>,
    settled: Option<Settled>,
    begin: WallInstant,
}

#[derive(Clone, Copy)]
struct Place {
    control: u64,
    lane: LanePlace,
}

/// A region that an earlier client had left open, and that was filled with a void record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Stream offset of its first byte.
    pub from: u64,
    /// Stream offset after its last.
    pub to: u64,
}

impl<'d> Fast<'d> {
    pub(super) fn open(device: &'d mut Device, lane: u8, patience: Patience) -> Result<Fast<'d>, HardwareError> {
        let mut place = None;
        if device.has_bars() {
            let layout = device.layout()?;
            let known = layout.lane.get(usize::from(lane)).filter(|_| u16::from(lane) < layout.lanes);
            let of_lane = *known.ok_or(crate::Error::NoLane { lane })?;
            if of_lane.window_bytes == 0 {
                return Err(HardwareError::Malformed(format!("lane {lane} has a window of no bytes")));
            }
            place = Some(Place { control: layout.control_page_offset, lane: of_lane });
        }
        let page = match place {
            Some(place) => device.control_page_at(place.control)?,
            None => device.control_page()?,
        };
        let setup = Setup { patience, ..Setup::attach(&page, lane)? };
        if place.is_some_and(|place| place.lane.window_bytes != u64::from(setup.ring_bytes)) {
            return Err(HardwareError::Malformed(format!("lane {lane} has a ring and a window of different sizes")));
        }
        let mut fast =
            Fast { device, lane: Lane::regions(setup, EARLIER), place, settled: None, begin: WallInstant::now() };
        fast.settle(&setup)?;
        Ok(fast)
    }

    /// Makes a stream of the lane, once what an earlier client left is sealed.
    fn settle(&mut self, setup: &Setup) -> Result<(), HardwareError> {
        let left = setup.left();
        if left.is_empty() {
            self.lane = Lane::stream(*setup)?;
            return Ok(());
        }
        let open: Vec<Region> = self.lane.open_regions().collect();
        for region in open {
            let mut abort = Abort::new(&mut self.lane, region);
            self.run(&mut abort, &[])?;
            self.settled = Some(Settled { from: region.offset, to: region.end() });
        }
        let fresh = Lane::regions(Setup::default(), EARLIER);
        self.lane = std::mem::replace(&mut self.lane, fresh).into_stream()?;
        Ok(())
    }

    /// The region of an earlier client that was sealed when the lane was taken up.
    pub fn settled(&self) -> Option<Settled> {
        self.settled
    }

    /// End of what was written.
    pub fn written(&self) -> u64 {
        self.lane.written()
    }

    /// The credit last seen.
    pub fn credit(&self) -> u64 {
        self.lane.credit()
    }

    fn now(&self) -> Instant {
        Instant::from_ns(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX / 1_000))
    }

    /// `x_pwrite`: writes bytes at the end of the stream, as far as there is credit, and waits for more. Returns where
    /// they are. They are durable after [`Fast::x_fsync`].
    ///
    /// # Errors
    /// [`HardwareError::Fast`], or that the device could not be reached.
    pub fn x_pwrite(&mut self, bytes: &[u8]) -> Result<Range<u64>, HardwareError> {
        let now = self.now();
        let mut pwrite = Pwrite::new(&mut self.lane, bytes.len(), now);
        match self.run(&mut pwrite, bytes)? {
            Outcome::Written { offset, end } => Ok(offset..end),
            other => Err(HardwareError::Malformed(format!("{other:?} as the outcome of x_pwrite"))),
        }
    }

    /// Writes a payload as one record. Returns its log sequence number and its end.
    ///
    /// # Errors
    /// As [`Fast::x_pwrite`].
    pub fn append(&mut self, payload: &[u8]) -> Result<Range<u64>, HardwareError> {
        let (now, mut buffer) = (self.now(), Vec::new());
        let (lsn, mut pwrite) = Pwrite::append(&mut self.lane, payload, &mut buffer, now)?;
        self.run(&mut pwrite, &buffer)?;
        Ok(lsn..self.lane.written())
    }

    /// `x_fsync`: waits until the credit covers all that was written. Returns where that ends.
    ///
    /// # Errors
    /// As [`Fast::x_pwrite`].
    pub fn x_fsync(&mut self) -> Result<u64, HardwareError> {
        let mut fsync = Fsync::new(&self.lane, self.now());
        self.run(&mut fsync, &[])?;
        Ok(self.lane.written())
    }

    /// `x_pread`: fills a buffer with bytes of the stream from `offset` on, and waits until they are on flash.
    ///
    /// # Errors
    /// As [`Fast::x_pwrite`]: Released for bytes that are trimmed, NoMoreLog for those that do not come.
    pub fn x_pread(&mut self, offset: u64, to: &mut [u8]) -> Result<(), HardwareError> {
        let (lane, patience) = (self.lane.setup().lane, self.lane.setup().patience);
        let mut reader = Reader::at(lane, offset, patience);
        let mut pread = Pread::new(to.len(), self.now());
        while let Some(action) = pread.poll(&mut reader) {
            let answer = match action {
                Action::ReadLog { lane, offset, into } => self.read_log(lane, offset, &mut to[into])?,
                Action::Wait { until } => self.wait(until),
                Action::Done(outcome) => return Ok(outcome.map(drop)?),
                other => return Err(HardwareError::Malformed(format!("{other:?} in x_pread"))),
            };
            let now = self.now();
            pread.on(&mut reader, now, answer);
        }
        Err(HardwareError::Malformed("a read that does not end".into()))
    }

    /// Does what an operation says.
    fn run<O: Operation<On = Lane>>(&mut self, operation: &mut O, buffer: &[u8]) -> Result<Outcome, HardwareError> {
        while let Some(action) = operation.poll(&mut self.lane) {
            let answer = match action {
                Action::Store { offset, bytes, .. } => {
                    self.store(offset, &buffer[bytes])?;
                    continue;
                }
                Action::Seal { offset, bytes, epoch, .. } => {
                    self.seal(offset, bytes, epoch)?;
                    continue;
                }
                Action::Fence => {
                    if let Some(bar) = self.device.transport.bar() {
                        bar.fence();
                    }
                    continue;
                }
                Action::StoreFloor { floor, .. } => {
                    self.store_floor(floor)?;
                    continue;
                }
                Action::ReadCredit { .. } => Answer::Credit(self.read_credit()?),
                Action::ReadStatus => Answer::Health(self.health()?),
                Action::Wait { until } => self.wait(until),
                Action::Done(outcome) => return Ok(outcome?),
                // Windows here are never mapped, and reads of the log have a loop of their own.
                Action::AnnounceTail { .. } | Action::ReadLog { .. } => {
                    return Err(HardwareError::Malformed("an action that this transport does not know".into()));
                }
            };
            let now = self.now();
            operation.on(&mut self.lane, now, answer);
        }
        Err(HardwareError::Malformed("an operation that does not end".into()))
    }

    fn wait(&self, until: Instant) -> Answer {
        let left = until.as_ps().saturating_sub(self.now().as_ps());
        std::thread::sleep(std::time::Duration::from_nanos(left / 1_000));
        Answer::Time
    }

    /// Stores bytes at a stream offset; they do not cross the end of the ring.
    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), HardwareError> {
        let (lane, epoch) = (self.lane.setup().lane, self.lane.setup().epoch);
        if let (Some(place), Some(bar)) = (self.place, self.device.transport.bar()) {
            return Ok(bar.store(place.lane.address(offset), bytes)?);
        }
        for (piece, at) in bytes.chunks(DATA_MAX).zip((offset..).step_by(DATA_MAX)) {
            let command = IoCommand::Append { lane, epoch, offset: at, bytes: piece.len() as u32 };
            let mut data = piece.to_vec();
            data.resize(piece.len().next_multiple_of(4), 0);
            self.device.run(Queue::Io, &command.emit(0), &mut data, "Append")?;
        }
        Ok(())
    }

    /// Fills a part of the stream that has lost its writer.
    fn seal(&mut self, offset: u64, bytes: u64, epoch: tidewater_wire::vendor::Epoch) -> Result<(), HardwareError> {
        if self.place.is_none() && offset.is_multiple_of(RECORD_ALIGN) && bytes.is_multiple_of(RECORD_ALIGN) {
            let bytes = u32::try_from(bytes).map_err(|_| HardwareError::Malformed("a hole past 4 GiB".into()))?;
            let command = IoCommand::SealRegion { lane: self.lane.setup().lane, epoch, offset, bytes };
            return self.device.run(Queue::Io, &command.emit(0), &mut [], "Seal Region").map(drop);
        }
        // Holes fit the queue, which fits the ring.
        let mut void = vec![0; bytes as usize];
        fill_void(offset, epoch, &mut void);
        let ring = u64::from(self.lane.setup().ring_bytes);
        let first = (ring - offset % ring).min(bytes) as usize;
        self.store(offset, &void[..first])?;
        if first < void.len() { self.store(offset + first as u64, &void[first..]) } else { Ok(()) }
    }

    fn store_floor(&mut self, floor: u64) -> Result<(), HardwareError> {
        if let (Some(place), Some(bar)) = (self.place, self.device.transport.bar()) {
            bar.store(place.lane.lane_page_offset + LanePage::FLOOR_OFFSET as u64, &floor.to_le_bytes())?;
            bar.fence();
            return Ok(());
        }
        let command = IoCommand::WriteLanePage { lane: self.lane.setup().lane, floor };
        self.device.run(Queue::Io, &command.emit(0), &mut [], "Write Lane Page").map(drop)
    }

    fn read_credit(&mut self) -> Result<u64, HardwareError> {
        let lane = self.lane.setup().lane;
        if let (Some(place), Some(bar)) = (self.place, self.device.transport.bar()) {
            let mut credit = [0; 8];
            bar.load(place.control + ControlPage::lane_offset(lane) as u64, &mut credit)?;
            return Ok(u64::from_le_bytes(credit));
        }
        Ok(self.device.control_page()?.lane[usize::from(lane)].credit)
    }

    fn health(&mut self) -> Result<Health, HardwareError> {
        let page = match self.place {
            Some(place) => self.device.control_page_at(place.control)?,
            None => self.device.control_page()?,
        };
        Ok(Health::from(&page))
    }

    fn read_log(&mut self, lane: u8, offset: u64, to: &mut [u8]) -> Result<Answer, HardwareError> {
        let bytes = to.len().min(DATA_MAX - ReadLogHeader::SIZE);
        let command = IoCommand::ReadLog { lane, offset, bytes: bytes as u32, wait_ns: READ_WAIT_NS };
        let mut data = vec![0; (command.data_bytes() as usize).next_multiple_of(4)];
        let done = self.device.transport.command(Queue::Io, &command.emit(0), &mut data)?;
        if done.status.same_code(status::OFFSET_RELEASED) {
            let head = self.device.fast_status()?.lane[usize::from(lane)].readable;
            return Ok(Answer::Released { head });
        }
        if !done.status.is_success() {
            return Err(HardwareError::Status { what: "Read Log", status: done.status });
        }
        let header = ReadLogHeader::parse(&data)?;
        let found = (header.bytes as usize).min(bytes);
        to[..found].copy_from_slice(&data[ReadLogHeader::SIZE..][..found]);
        Ok(Answer::Data { offset: header.offset, bytes: found })
    }
}
