//! Commands of the fast side: vendor specific ones (`wire::vendor`), and the log pages that tell how it is doing. A
//! front end brings each with its data, as a capsule, and carries the reply.

use super::waits::{Wait, What};
use super::{Content, Fast, Function, Lane, Setup, bar, pages::LbaRing, status};
use crate::border::Output;
use crate::content::Place;
use crate::context::Context;
use crate::events::{Event, lane as event_lane};
use crate::ftl::Ftl;
use crate::owner::Owner;
use tidewater_base::Duration;
use tidewater_nand::Medium;
use tidewater_wire::log::{RecordHeader, RecordKind};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::status as vendor_status;
use tidewater_wire::vendor::{AdminCommand, Epoch, FastSetup, IoCommand, ReadLogHeader, TAIL, TrimTo, opcode};

/// Fifty days: no host waits longer.
const TIME_MAX_NS: u64 = 50 * 86_400 * 1_000_000_000;
/// Commands that may wait at once, in equal shares of the functions; one more is asked to retry.
const WAITS_MAX: usize = 256;
/// Get Log Page (NVMe Base 1.4, 5.14).
const GET_LOG_PAGE: u8 = 0x02;
/// Invalid Log Page (figure 126).
const INVALID_LOG_PAGE: Status = Status::new(1, 0x09, true);

impl Fast {
    /// A command with its data. Its reply comes as [`Output::Reply`].
    pub(crate) fn capsule<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        sqe: &Sqe,
        data: &[u8],
    ) {
        let cid = sqe.cid();
        if !self.is_enabled() || function >= self.functions.len() {
            return cx.reply(cid, vendor_status::NOT_SET_UP, 0, Vec::new());
        }
        let done = match sqe.opcode() {
            GET_LOG_PAGE => self.log_page(cx, ftl, function, sqe).map(Some),
            opcode::APPEND..=opcode::SEAL_REGION => {
                IoCommand::parse(sqe).and_then(|command| self.io_command(cx, ftl, cid, function, command, data))
            }
            _ => AdminCommand::parse(sqe).and_then(|command| self.admin_command(cx, ftl, cid, function, command, data)),
        };
        match done {
            Ok(Some(data)) => cx.reply(cid, Status::SUCCESS, 0, data),
            Ok(None) => {} // It waits.
            Err(status) => cx.reply(cid, status, 0, Vec::new()),
        }
    }

    fn io_command<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        cid: u16,
        function: usize,
        command: IoCommand,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>, Status> {
        if ftl.is_recovering() {
            return Err(vendor_status::BUSY);
        }
        let lanes = self.functions[function].lanes.len();
        let known = |lane: u8| {
            if usize::from(lane) < lanes { Ok(usize::from(lane)) } else { Err(vendor_status::LANE_UNKNOWN) }
        };
        match command {
            IoCommand::Append { lane, epoch, offset, bytes } => {
                let lane = known(lane)?;
                self.may_write(function, epoch)?;
                let bytes = data.get(..bytes as usize).ok_or(Status::DATA_TRANSFER_ERROR)?;
                self.append(cx, function, lane, offset, bytes)?;
                Ok(Some(Vec::new()))
            }
            IoCommand::ReadLog { lane, offset, bytes, wait_ns } => {
                let lane = known(lane)?;
                let l = &self.functions[function].lanes[lane];
                let offset = if offset == TAIL { l.released() } else { offset };
                self.wait(cx, ftl, cid, (function, lane, offset), What::Bytes(bytes), wait_ns)
            }
            IoCommand::WaitCredit { lane, offset, timeout_ns } => {
                self.wait(cx, ftl, cid, (function, known(lane)?, offset), What::Credit, timeout_ns)
            }
            IoCommand::WriteLanePage { lane, floor } => {
                self.set_floor(cx, ftl, function, known(lane)?, floor);
                Ok(Some(Vec::new()))
            }
            IoCommand::ReadControlPage => Ok(Some(self.shown_control_page(ftl, function).to_vec())),
            IoCommand::SealRegion { lane, epoch, offset, bytes } => {
                let lane = known(lane)?;
                self.may_write(function, epoch)?;
                self.seal(cx, ftl, function, lane, offset, bytes)?;
                Ok(Some(Vec::new()))
            }
        }
    }

    /// Takes bytes that come with their stream offset.
    fn append(
        &mut self,
        cx: &mut Context,
        function: usize,
        lane: usize,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Status> {
        let l = &mut self.functions[function].lanes[lane];
        if bytes.len() as u64 > l.queue_size() {
            return Err(vendor_status::REQUEST_TOO_LARGE);
        }
        l.admit(offset, bytes.len() as u32).map_err(|_| vendor_status::BEYOND_CREDIT)?;
        l.arrive(offset, Content::Bytes(bytes));
        self.drain_intake(cx, function, lane);
        Ok(())
    }

    /// Overwrites the oldest open region, whose owner is dead, by a void record.
    fn seal<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        lane: usize,
        offset: u64,
        bytes: u32,
    ) -> Result<(), Status> {
        let f = &self.functions[function];
        let l = &f.lanes[lane];
        if offset != l.floor() {
            return Err(vendor_status::REGION_INVALID);
        }
        if u64::from(bytes) > l.queue_size() {
            return Err(vendor_status::REQUEST_TOO_LARGE);
        }
        let header = RecordHeader {
            kind: RecordKind::Void,
            length: bytes - RecordHeader::SIZE as u32,
            data_checksum: 0,
            lsn: offset,
            epoch: f.epoch(),
        };
        let mut region = vec![0; bytes as usize];
        region[..RecordHeader::SIZE].copy_from_slice(&header.to_bytes());
        self.append(cx, function, lane, offset, &region)?;
        // The bytes are in the queue, so they are there before any credit passes them.
        self.set_floor(cx, ftl, function, lane, offset + u64::from(bytes));
        Ok(())
    }

    fn wait<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        cid: u16,
        (function, lane, offset): (usize, usize, u64),
        what: What,
        timeout_ns: u64,
    ) -> Result<Option<Vec<u8>>, Status> {
        let share = WAITS_MAX / self.functions.len();
        let waits = &mut self.waits;
        let own = waits.iter().filter(|wait| wait.function == function && wait.what != What::Free).count();
        if own >= share {
            return Err(vendor_status::BUSY);
        }
        let place = match waits.iter().position(|wait| wait.what == What::Free) {
            Some(place) => place,
            None if waits.len() < WAITS_MAX => {
                let epoch = Epoch::ZERO;
                waits.push(Wait { cid, function, lane, offset, epoch, what: What::Free, generation: 0 });
                waits.len() - 1
            }
            None => return Err(vendor_status::BUSY),
        };
        let generation = waits[place].generation.wrapping_add(1);
        let epoch = self.functions[function].epoch();
        waits[place] = Wait { cid, function, lane, offset, epoch, what, generation };
        self.waiting += 1;
        if !self.try_end_wait(cx, ftl, place) {
            if timeout_ns == 0 {
                self.end_late_wait(cx, ftl, place);
            } else if timeout_ns < TIME_MAX_NS {
                let at = Duration::from_ns(timeout_ns);
                let event = Event::LogWait { place: place as u32, generation };
                cx.events.push(cx.now + at, event_lane::OTHER, event);
            }
        }
        Ok(None)
    }

    /// Something has changed: commands that wait for it go on.
    pub(super) fn go_on_waiting<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize) {
        if self.waiting > 0 {
            for place in 0..self.waits.len() {
                if self.waits[place].function == function {
                    self.try_end_wait(cx, ftl, place);
                }
            }
        }
    }

    /// A command's time is over.
    pub(crate) fn on_wait_timeout<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        place: usize,
        generation: u32,
    ) {
        if self.waits[place].generation == generation {
            self.end_late_wait(cx, ftl, place);
        }
    }

    /// Forgets a command that waits for credit or for log bytes: there will be no reply. False: it does not wait, and
    /// its reply comes soon.
    pub(crate) fn cancel(&mut self, cid: u16) -> bool {
        let waits = |wait: &Wait| wait.cid == cid && matches!(wait.what, What::Credit | What::Bytes(_));
        let place = self.waits.iter().position(waits);
        if let Some(place) = place {
            self.free_wait(place);
        }
        place.is_some()
    }

    fn free_wait(&mut self, place: usize) -> Wait {
        let wait = self.waits[place].clone();
        self.waits[place].what = What::Free;
        self.waiting -= 1;
        wait
    }

    /// Ends a wait whose condition holds. False: it does not.
    fn try_end_wait<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, place: usize) -> bool {
        let Wait { function, lane, offset, epoch, what, .. } = self.waits[place];
        // The waiting client stored its bytes in the epoch in which the command began. In a later epoch they may have
        // been cut, and the place may hold another primary's bytes.
        if what == What::Credit
            && let Err(status) = self.may_write(function, epoch)
        {
            let Wait { cid, .. } = self.free_wait(place);
            cx.reply(cid, status, 0, Vec::new());
            return true;
        }
        let l = &self.functions[function].lanes[lane];
        match what {
            What::Credit if l.credit() >= offset => {
                let beyond = l.credit() - offset;
                let Wait { cid, .. } = self.free_wait(place);
                cx.reply(cid, Status::SUCCESS, u32::try_from(beyond).unwrap_or(u32::MAX), Vec::new());
                true
            }
            What::Credit if l.withholds(offset) => {
                let Wait { cid, .. } = self.free_wait(place);
                cx.reply(cid, Status::WRITE_FAULT, 0, Vec::new());
                true
            }
            What::Bytes(bytes) if l.released() >= offset.saturating_add(bytes.into()) => {
                self.read_log(cx, ftl, place, bytes);
                true
            }
            _ => false,
        }
    }

    fn end_late_wait<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, place: usize) {
        let Wait { function, lane, offset, what, .. } = self.waits[place];
        match what {
            What::Credit => {
                let Wait { cid, .. } = self.free_wait(place);
                cx.reply(cid, vendor_status::TIMED_OUT, 0, Vec::new());
            }
            What::Bytes(_) => {
                let there = self.functions[function].lanes[lane].released().saturating_sub(offset);
                self.read_log(cx, ftl, place, there as u32);
            }
            What::Free | What::Flash { .. } => {}
        }
    }

    /// Brings log bytes that are there: from the ring as far as it holds them, else from flash.
    fn read_log<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, place: usize, bytes: u32) {
        let Wait { cid, function, lane, offset, .. } = self.waits[place];
        let f = &self.functions[function];
        let mut lpns = Vec::new();
        let (mut at, end) = (offset, offset + u64::from(bytes));
        while at < end.min(f.lanes[lane].in_ring_from()) {
            let Some((number, page)) = f.log.find(lane as u8, at) else {
                self.free_wait(place);
                return cx.reply(cid, vendor_status::OFFSET_RELEASED, 0, Vec::new());
            };
            lpns.push(f.log.lpn(number));
            at = page.end();
        }
        let owner = Owner::LogRead(place as u32);
        let (reads, failed) = match ftl.read(cx.now, &mut cx.events, lpns.into_iter(), owner) {
            Ok(reads) => (reads, false),
            Err(reads) => (reads, true),
        };
        self.waits[place].what = What::Flash { reads, bytes, failed };
        if reads == 0 {
            self.send_log(cx, place);
        }
    }

    /// A flash read for Read Log is done.
    pub(crate) fn on_read(&mut self, cx: &mut Context, place: usize, uncorrectable: bool) {
        if let What::Flash { reads, failed, .. } = &mut self.waits[place].what {
            *reads -= 1;
            *failed |= uncorrectable;
            if *reads == 0 {
                self.send_log(cx, place);
            }
        }
    }

    /// All bytes of a Read Log are at hand.
    fn send_log(&mut self, cx: &mut Context, place: usize) {
        let Wait { cid, function, lane, offset, what, .. } = self.free_wait(place);
        let What::Flash { bytes, failed, .. } = what else { unreachable!("it was read") };
        if failed {
            return cx.reply(cid, Status::UNRECOVERED_READ_ERROR, 0, Vec::new());
        }
        let f = &self.functions[function];
        // The log may have been cut while flash was read.
        let bytes = u64::from(bytes).min(f.lanes[lane].released().saturating_sub(offset)) as u32;
        let (mut at, end) = (offset, offset + u64::from(bytes));
        let mut from_ring = 0;
        while at < end {
            let (piece_end, from) = if at >= f.lanes[lane].in_ring_from() {
                from_ring += end - at;
                (end, Place::Ring)
            } else {
                match f.log.find(lane as u8, at) {
                    Some((_, page)) => {
                        let skip = (at - page.offset) as u32;
                        (page.end().min(end), Place::Page { sequence: page.sequence, skip })
                    }
                    None => return cx.reply(cid, vendor_status::OFFSET_RELEASED, 0, Vec::new()),
                }
            };
            let (function, lane, len) = (function as u8, lane as u8, (piece_end - at) as u32);
            cx.outputs.push_back(Output::Log { cid, function, lane, offset: at, len, from });
            at = piece_end;
        }
        cx.memories[self.port].read(cx.now, from_ring);
        let f = &self.functions[function];
        let header = ReadLogHeader { bytes, offset, epoch: f.epoch(), tail: f.lanes[lane].released() };
        cx.reply(cid, Status::SUCCESS, 0, header.to_bytes().to_vec());
    }

    fn admin_command<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        cid: u16,
        sender: usize,
        command: AdminCommand,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>, Status> {
        if ftl.is_recovering() {
            return Err(vendor_status::BUSY);
        }
        let function = usize::from(command.function());
        // The physical function may name any, a virtual one only itself.
        if sender != 0 && sender != function || function >= self.functions.len() {
            return Err(Status::INVALID_FIELD);
        }
        match command {
            AdminCommand::FastSetup { .. } => self.set_up(cx, ftl, function, FastSetup::parse(data)?)?,
            AdminCommand::TrimLog { to: TrimTo::Page(first), .. } => self.trim_log_pages(cx, ftl, function, first),
            AdminCommand::TrimLog { to: TrimTo::Stream { lane, offset }, .. } => {
                if usize::from(lane) >= self.functions[function].lanes.len() {
                    return Err(vendor_status::LANE_UNKNOWN);
                }
                self.trim_log(cx, ftl, function, lane.into(), offset);
            }
            _ => return self.replication_command(cx, ftl, cid, function, command, data).map(|()| None),
        }
        Ok(Some(Vec::new()))
    }

    /// Sets a function's rings up anew: its log must be empty.
    fn set_up<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        new: FastSetup,
    ) -> Result<(), Status> {
        let fast = &self.profile;
        let own_pages = (fast.log_size / u64::from(self.unit_size)) as u32;
        let own_first = ftl.data_units() + function as u32 * own_pages;
        let setup = Setup {
            lanes: new.lanes.into(),
            ring_size: new.ring_bytes.into(),
            queue_size: new.queue_bytes.into(),
            partial_after: Duration::from_ns(new.partial_page_ns.min(TIME_MAX_NS)),
            on_wrap: new.on_wrap,
        };
        let lanes = u64::from(setup.lanes);
        if !setup.ring_size.is_power_of_two() {
            return Err(Status::INVALID_FIELD);
        }
        if setup.ring_size * lanes > fast.size || setup.queue_size * lanes > fast.queue_size * u64::from(fast.lanes) {
            return Err(vendor_status::ENERGY_TOO_LITTLE);
        }
        let reckoned = super::reserve_pages(fast, self.unit_size);
        let reserve = super::reserve_of(setup.lanes.into(), setup.ring_size, self.unit_size);
        if reserve > reckoned {
            return Err(vendor_status::ENERGY_TOO_LITTLE); // Each lane's last page is partly filler.
        }
        let inside = new.lba_first >= u64::from(own_first)
            && new.lba_first + new.lba_count <= u64::from(own_first + own_pages)
            && new.lba_count >= 2 * reserve;
        if !inside {
            return Err(vendor_status::RANGE_INVALID);
        }
        let f = &self.functions[function];
        if f.is_replicated() {
            return Err(vendor_status::BUSY);
        }
        if f.destage_failed {
            // A new log would find a place no more than the old one does.
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        let empty = f.log.head() == f.log.tail() && f.lanes.iter().all(Lane::is_idle);
        if !empty || self.waits.iter().any(|wait| wait.function == function && wait.what != What::Free) {
            return Err(vendor_status::BUSY);
        }
        let log = LbaRing::new(new.lba_first as u32, new.lba_count as u32, reserve as u32);
        let starts = vec![0; lanes as usize];
        let version = f.transport.version();
        let mut fresh = Function::new(function as u8, setup, &starts, log, &cx.options, self.survives);
        fresh.transport.count_from(version + 1);
        self.functions[function] = fresh;
        ftl.flash.set_destage_priority(new.priority);
        Ok(())
    }

    fn log_page<M: Medium>(&self, cx: &Context, ftl: &Ftl<M>, sender: usize, sqe: &Sqe) -> Result<Vec<u8>, Status> {
        let function = (sqe.dwords()[11] >> 16) as usize;
        if sender != 0 && sender != function || function >= self.functions.len() {
            return Err(Status::INVALID_FIELD);
        }
        self.vendor_page(cx, ftl, function, sqe.cdw10() as u8).ok_or(INVALID_LOG_PAGE)
    }

    /// A load from a function's BAR2, of up to 8 bytes. What is nowhere reads as ones, as on a bus.
    pub(crate) fn load<M: Medium>(&self, ftl: &Ftl<M>, function: usize, address: u64, len: usize) -> u64 {
        let Some(f) = self.functions.get(function) else { return u64::MAX };
        let bytes = match bar::decode(&f.setup, address) {
            bar::Target::Control(at) => {
                if let Some(credit) = status::credit_at(f, at).filter(|_| len == 8) {
                    return credit;
                }
                let page = self.shown_control_page(ftl, function);
                let mut bytes = [0; 8];
                let part = page.get(at as usize..(at as usize + len.min(8)).min(page.len())).unwrap_or(&[]);
                bytes[..part.len()].copy_from_slice(part);
                bytes
            }
            bar::Target::LanePage { lane, at: 0 } => f.lanes[lane].floor().to_le_bytes(),
            bar::Target::LanePage { .. } => [0; 8],
            bar::Target::Ring { lane, at } => f.lanes[lane].load(at, len),
            bar::Target::Nothing => [0xff; 8],
        };
        u64::from_le_bytes(bytes)
    }
}

impl Fast {
    /// Commands that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }
}
