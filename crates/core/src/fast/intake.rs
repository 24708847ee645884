//! What happens when on the fast side: from a store to its page on flash.

use super::transport::{self, Transport};
use super::{Content, ControlBlock, Fast, Function, LbaRing, LogPage, LogRemains, PAGE_HEADER, Refusal, bar};
use crate::border::Output;
use crate::context::Context;
use crate::events::{Event, lane as event_lane};
use crate::ftl::Ftl;
use crate::owner::{LOG_NUMBER_BITS, Owner};
use crate::profile::{OnWrap, Release};
use tidewater_base::Instant;
use tidewater_nand::Medium;
use tidewater_wire::vendor::{LANES_MAX, Role};

/// The number of the page of which an owner keeps the low bits: the first with these bits that is not settled.
fn page_number(log: &LbaRing, number: u32) -> u64 {
    let low = (1u64 << LOG_NUMBER_BITS) - 1;
    log.settled() + (u64::from(number).wrapping_sub(log.settled()) & low)
}

impl Fast {
    /// A store into a function's BAR2 has arrived: one TLP.
    ///
    /// # Errors
    /// Why it was dropped. The host sees no error, stores being posted: only counters tell.
    pub(crate) fn store<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        address: u64,
        content: Content<'_>,
    ) -> Result<(), Refusal> {
        let Some(f) = self.functions.get_mut(function).filter(|_| !ftl.is_recovering()) else {
            return Err(Refusal::Nowhere);
        };
        match bar::decode(&f.setup, address) {
            bar::Target::Ring { lane, at } => {
                if at + u64::from(content.len()) > f.setup.ring_size || content.is_empty() || !f.transport.writable() {
                    f.lanes[lane].drop_store(at);
                    return Err(Refusal::Nowhere);
                }
                let offset = f.lanes[lane].locate(at, content.len())?;
                f.lanes[lane].arrive(offset, content);
                self.drain_intake(cx, function, lane);
                Ok(())
            }
            bar::Target::LanePage { lane, at: 0 } => {
                if let Content::Bytes(bytes) = content
                    && let Ok(floor) = bytes.try_into()
                {
                    self.set_floor(cx, ftl, function, lane, u64::from_le_bytes(floor));
                }
                Ok(())
            }
            bar::Target::LanePage { .. } => Ok(()),
            bar::Target::Control(_) | bar::Target::Nothing => Err(Refusal::Nowhere),
        }
    }

    /// A mapped client has stored up to `tail`.
    pub(crate) fn announce<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        lane: usize,
        tail: u64,
        content: Content<'_>,
    ) {
        let recovering = ftl.is_recovering();
        let Some(f) = self.functions.get_mut(function).filter(|f| !recovering && f.transport.writable()) else {
            return;
        };
        if f.lanes.get_mut(lane).is_some_and(|l| l.announce(tail, content)) {
            self.drain_intake(cx, function, lane);
        }
    }

    /// A mapped client has no use for what it stored before `to`, and the device has not read it: the stream continues
    /// at `to`, and nothing before is destaged. Like a trim, but exact: no page holds bytes on both sides. A stream
    /// with peers, with regions, or that has already reached `to`, is left unchanged.
    pub(crate) fn skip<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        lane: usize,
        to: u64,
    ) {
        let recovering = ftl.is_recovering();
        let functions = &mut self.functions;
        let Some(f) = functions.get_mut(function).filter(|f| !recovering && f.may_skip(lane, to)) else { return };
        f.lanes[lane].skip(to);
        self.trim_log(cx, ftl, function, lane, to);
        self.on_released(cx, ftl, function, lane);
    }

    /// The backing store takes nothing any more, and has a lane up to `from`: no credit goes further, whatever comes.
    pub(crate) fn withhold<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        lane: usize,
        from: u64,
    ) {
        let f = self.functions.get_mut(function);
        let Some(l) = f.and_then(|f| f.lanes.get_mut(lane)) else { return };
        l.withhold(from);
        self.fail_destage(cx, ftl, function);
        self.go_on_waiting(cx, ftl, function);
    }

    /// The client has released its regions up to here.
    pub(crate) fn set_floor<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        lane: usize,
        floor: u64,
    ) {
        let f = &mut self.functions[function];
        if !f.transport.writable() {
            return; // A replica's log has the floor of its primary.
        }
        let l = &mut f.lanes[lane];
        let nothing_waited = l.released() == l.placed();
        l.set_floor(floor);
        if nothing_waited {
            l.waits_since = cx.now;
        }
        self.on_released(cx, ftl, function, lane);
    }

    /// Moves what is in the intake queue into the ring's memory, as far as there is room.
    pub(super) fn drain_intake(&mut self, cx: &mut Context, function: usize, lane: usize) {
        let (ring, queue) = (self.port, self.queue_port);
        let f = &mut self.functions[function];
        if f.destage_failed {
            return; // What has no way to flash is not credited.
        }
        loop {
            if !f.log.reserve_is_free() && !f.finds_place(lane, self.payload) {
                f.waits_for_trim = true;
                return;
            }
            let Some(piece) = f.lanes[lane].next_to_drain() else { return };
            // It passes through the queue's memory on its way to the ring's; the slower of the two sets the pace.
            let len = u64::from(piece.len);
            let there = cx.memories[queue].write(cx.now, len).max(cx.memories[ring].write(cx.now, len));
            let index = (function * LANES_MAX + lane) as u32;
            cx.events.push(there, event_lane::DATA_IN, Event::Persist { lane: index });
        }
    }

    /// As [`Fast::drain_intake`], for all lanes: a function has found room.
    pub(super) fn drain_intakes(&mut self, cx: &mut Context, function: usize) {
        for lane in 0..self.functions[function].lanes.len() {
            self.drain_intake(cx, function, lane);
        }
    }

    /// A piece has reached the ring's memory.
    pub(crate) fn on_persist<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, index: u32) {
        let (function, lane) = (index as usize / LANES_MAX, index as usize % LANES_MAX);
        self.functions[function].lanes[lane].persist(cx.now);
        self.on_released(cx, ftl, function, lane);
    }

    /// A lane may have more to destage, to ship and to acknowledge.
    fn on_released<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize, lane: usize) {
        self.destage_log(cx, ftl, function, false);
        self.arm_destage(cx, ftl, function);
        if self.functions[function].is_replicated() {
            self.tell_transport(cx, ftl, function, transport::Event::Persisted { lane });
        } else {
            self.go_on_waiting(cx, ftl, function);
        }
    }

    /// Puts log bytes into pages: full ones, and with `partial` what is left of a lane too once it has waited long
    /// enough.
    pub(super) fn destage_log<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        partial: bool,
    ) {
        let payload = u64::from(self.payload);
        let f = &self.functions[function];
        let (lanes, partial_after, half) = (f.lanes.len(), f.setup.partial_after, f.setup.ring_size / 2);
        let mut idle = 0;
        while idle < lanes {
            let f = &mut self.functions[function];
            let lane = f.next_lane;
            f.next_lane = if lane + 1 == lanes { 0 } else { lane + 1 };
            let l = &f.lanes[lane];
            let waiting = l.released() - l.placed();
            let due = partial && l.waits_since + partial_after <= cx.now || self.power_fails;
            // A ring smaller than two pages would fill up before a page is full.
            if waiting == 0 || waiting < payload && waiting < half && !due {
                idle += 1;
                continue;
            }
            if !self.place_page(cx, ftl, function, lane, waiting.min(payload)) {
                return;
            }
            idle = 0;
        }
    }

    /// Sends the next page of a lane to flash. False: there is no room now.
    fn place_page<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        lane: usize,
        len: u64,
    ) -> bool {
        if !self.functions[function].log.has_room(self.power_fails)
            && (self.functions[function].setup.on_wrap == OnWrap::WaitForTrim || !self.drop_oldest(function))
        {
            let f = &mut self.functions[function];
            f.waits_for_trim = f.setup.on_wrap == OnWrap::WaitForTrim;
            return false;
        }
        if !ftl.can_write_log() {
            return false;
        }
        if ftl.log_row_fill() == 0 {
            self.row_since = self.functions[function].lanes[lane].waits_since;
        }
        let f = &mut self.functions[function];
        let offset = f.lanes[lane].place(cx.now, len);
        f.lanes[lane].statistics.pages += 1;
        f.lanes[lane].statistics.partial_pages += u64::from(len < u64::from(self.payload));
        let mut page = LogPage { lane: lane as u8, offset, len: len as u32, sequence: 0 };
        let number = f.log.push(page);
        f.lanes[lane].statistics.bytes_destaged += len;
        f.waits_for_trim = false;
        let (lpn, epoch) = (f.log.lpn(number), f.epoch());
        // No command waits for this read of the memory, but it takes bandwidth.
        cx.memories[self.port].read_behind(cx.now, len);
        page.sequence = ftl.write_log(cx.now, &mut cx.events, lpn, page.version(), Owner::log_page(function, number));
        let f = &mut self.functions[function];
        f.log.set_sequence(number, page.sequence);
        if cx.options.stamps {
            cx.outputs.push_back(Output::Store { function: function as u8, lpn, number, epoch, page });
        }
        true
    }

    /// Overwrites the oldest page, if it is on flash.
    fn drop_oldest(&mut self, function: usize) -> bool {
        let f = &mut self.functions[function];
        let oldest = f.log.head();
        let dropped = !f.log.trim(oldest + 1).is_empty();
        f.forget_cuts();
        dropped
    }

    /// Sees to it that what waits in a ring, or in a row of the log, is not forgotten.
    pub(super) fn arm_destage<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize) {
        self.arm_destage_after(cx, ftl, function, Instant::ZERO);
    }

    /// As [`Fast::arm_destage`], but for bytes that are due after this instant.
    fn arm_destage_after<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize, after: Instant) {
        let row_waits = ftl.log_row_fill() > 0;
        let f = &mut self.functions[function];
        if f.timer_at != Instant::NEVER {
            return;
        }
        let partial_after = f.setup.partial_after;
        let due = |since: &Instant| *since + partial_after > after;
        let waiting = f.lanes.iter().filter(|l| l.released() > l.placed()).map(|l| l.waits_since).filter(due);
        let Some(since) = waiting.chain(row_waits.then_some(self.row_since)).min() else { return };
        f.timer_at = (since + partial_after).max(cx.now);
        cx.events.push(f.timer_at, event_lane::SUSPEND, Event::Destage { function: function as u32 });
    }

    /// A function's bytes may have waited too long.
    pub(crate) fn on_destage_timer<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize) {
        let f = &mut self.functions[function];
        f.timer_at = Instant::NEVER;
        let partial_after = f.setup.partial_after;
        self.destage_log(cx, ftl, function, true);
        if ftl.log_row_fill() > 0 && self.row_since + partial_after <= cx.now {
            ftl.pad_log_row(cx.now, &mut cx.events);
        }
        // Bytes that found no room have waited too long already: they go when flash or the host has made some.
        let now = cx.now;
        self.arm_destage_after(cx, ftl, function, now);
    }

    /// Flash has made progress.
    #[inline(never)]
    pub(crate) fn go_on<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        while let Some(owner) = ftl.take_rewritten() {
            if let Owner::Log { function, number } = owner {
                self.on_page_rewritten(function.into(), number);
            }
        }
        self.go_on_destaging(cx, ftl);
    }

    /// Flash can take more: functions whose pages wait for it resume destaging.
    fn go_on_destaging<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) {
        for function in 0..self.functions.len() {
            self.destage_log(cx, ftl, function, true);
            self.arm_destage(cx, ftl, function);
        }
    }

    /// A row of the log is in its die's register.
    pub(crate) fn on_log_row_loaded<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, row: u32) {
        // A payload store keeps the bytes of the rings, too, but not those of a die's register: with one, bytes stay
        // in the ring until they are on flash.
        if self.profile.release == Release::Programmed || cx.options.payload {
            return;
        }
        self.free_row(cx, ftl, row, u32::MAX);
    }

    /// Another codeword of a row of the log has crossed a bus. Power that fails now does not end the transfer: with the
    /// stored energy that programs the row, the rest of it goes over the bus before.
    pub(crate) fn on_log_row_crossing<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, channel: u32) {
        let (row, bytes) = ftl.flash.on_crossed(cx.now, &mut cx.events, channel);
        if !cx.options.payload {
            self.free_row(cx, ftl, row, bytes);
        }
    }

    /// The first `bytes` of a row are in its die's register ([`u32::MAX`]: all).
    fn free_row<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, row: u32, bytes: u32) {
        let unit = self.payload + PAGE_HEADER;
        let mut touched = 0u32;
        for (place, owner) in (0u32..).zip(ftl.owners_of_row(row)) {
            let Owner::Log { function, number } = owner else { continue };
            let function = usize::from(function);
            let Function { log, lanes, .. } = &mut self.functions[function];
            let number = page_number(log, number);
            let free = |lane: u8, end| lanes[usize::from(lane)].free_until(end);
            match bytes {
                u32::MAX => log.load(number, free),
                _ => log.cross(number, bytes.saturating_sub(place * unit).min(unit).saturating_sub(PAGE_HEADER), free),
            }
            touched |= 1 << function;
        }
        for function in (0..self.functions.len()).filter(|f| touched >> f & 1 == 1) {
            self.drain_intakes(cx, function);
        }
    }

    /// A page of the log is on flash.
    pub(crate) fn on_page_destaged<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        number: u32,
    ) {
        let Function { log, lanes, .. } = &mut self.functions[function];
        let number = page_number(log, number);
        let before = log.settled();
        let mut moved = 0_u16;
        log.finish(number, |page| {
            if page.len == 0 {
                return; // The log was cut meanwhile.
            }
            let lane = &mut lanes[usize::from(page.lane)];
            lane.set_durable(lane.durable().max(page.end()));
            moved |= 1 << page.lane;
        });
        if log.settled() > before && !self.power_fails {
            self.drain_intakes(cx, function);
            if self.functions[function].reports_destaged() {
                for lane in (0..LANES_MAX).filter(|lane| moved & 1 << lane != 0) {
                    self.tell_transport(cx, ftl, function, transport::Event::Destaged { lane });
                }
            }
        }
    }

    /// A page of the log could not be written: no block is left.
    pub(crate) fn on_page_rejected<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize) {
        self.fail_destage(cx, ftl, function);
    }

    /// What a function takes finds no place any more: it takes nothing.
    fn fail_destage<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize) {
        self.functions[function].destage_failed = true;
        if self.functions[function].is_replicated() {
            self.tell_transport(cx, ftl, function, transport::Event::Destage { failed: true });
        }
    }

    /// A page of the log whose program failed is written elsewhere.
    pub(crate) fn on_page_rewritten(&mut self, function: usize, number: u32) {
        let f = &mut self.functions[function];
        let number = page_number(&f.log, number);
        if let Some(page) = f.log.in_flight(number) {
            f.lanes[usize::from(page.lane)].statistics.rewritten_pages += 1;
        }
    }

    /// The host has no use for a lane's log before this offset: pages of which nothing is needed any more, and nothing
    /// of the pages before them, are let go of.
    pub(crate) fn trim_log<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        lane: usize,
        offset: u64,
    ) {
        let Some(f) = self.functions.get_mut(function) else { return };
        let Some(trimmed) = f.trimmed.get_mut(lane) else { return };
        // What is not there yet can't be trimmed.
        let wanted = offset.min(f.lanes[lane].released()).max(*trimmed);
        // Peers that follow get what is to go first, unless the log has no room for more.
        let shipped = if f.waits_for_trim { u64::MAX } else { f.transport.on_all_reachable(lane) };
        *trimmed = wanted.min(shipped).max(*trimmed);
        if wanted > *trimmed {
            f.trims.retain(|&(other, _)| other != lane);
            f.trims.push((lane, wanted));
        }
        let needed = f.log.pages().find(|(_, page)| page.len > 0 && page.end() > f.trimmed[usize::from(page.lane)]);
        let first_needed = needed.map_or(f.log.settled(), |(number, _)| number);
        self.trim_log_pages(cx, ftl, function, first_needed);
    }

    /// The host has no use for pages of the log before this one.
    pub(crate) fn trim_log_pages<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        first_needed: u64,
    ) {
        let log = &mut self.functions[function].log;
        let gone = log.trim(first_needed);
        if gone.is_empty() {
            return;
        }
        for number in gone {
            ftl.deallocate(log.lpn(number), 1);
        }
        ftl.log_deallocations(cx.now, &mut cx.events);
        ftl.wake_collection(cx.now, &mut cx.events);
        let f = &mut self.functions[function];
        f.forget_cuts();
        f.waits_for_trim &= !f.log.has_room(false);
        self.drain_intakes(cx, function);
        self.go_on_destaging(cx, ftl);
    }

    /// On stored energy: destages all that was released, and nothing else happens. Returns joules used.
    pub(crate) fn destage_on_stored_energy<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>) -> f64 {
        let (began, programs) = (cx.now, ftl.programs_done());
        self.power_fails = true;
        ftl.begin_emergency();
        loop {
            for function in 0..self.functions.len() {
                self.destage_log(cx, ftl, function, true);
            }
            ftl.pad_log_row(cx.now, &mut cx.events);
            // Where a page found no block, those that are under way end all the same.
            let all_ended = (0..ftl.layout().dies).all(|die| ftl.flash.log_programs(die) == 0);
            if self.functions.iter().all(|f| f.is_destaged() || f.destage_failed && all_ended) {
                break;
            }
            // Only flash goes on: host, link and intake are gone.
            let Some(at) = cx.events.next_at() else { break };
            cx.now = cx.now.max(at);
            match cx.events.pop_due(cx.now) {
                Some(Event::Bus { channel, inward: true }) => {
                    ftl.flash.on_loaded(cx.now, &mut cx.events, channel);
                }
                Some(Event::Bus { channel, inward: false }) => {
                    let done = ftl.flash.on_unloaded(cx.now, &mut cx.events, channel);
                    self.on_flash_done_on_stored_energy(cx, ftl, done);
                }
                Some(Event::Cell { die, generation, kind }) => {
                    if let Some(done) = ftl.on_cell(cx.now, &mut cx.events, die, generation, kind) {
                        self.on_flash_done_on_stored_energy(cx, ftl, done);
                    }
                }
                _ => {}
            }
        }
        let fast = &self.profile;
        let pages = (ftl.programs_done() - programs) * self.planes;
        pages as f64 * fast.program_energy + (cx.now - began).as_secs_f64() * fast.power
    }

    /// As a flash operation's end at other times, but only pages of the log matter.
    fn on_flash_done_on_stored_energy<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, done: u32) {
        use crate::flash::Source;
        let source = ftl.flash.operation(done).source;
        if !matches!(source, Source::HostRead | Source::CollectRead | Source::Recovery) {
            ftl.on_done(cx.now, &mut cx.events, source.kind(), done);
        }
        while let Some(owner) = ftl.take_acknowledged() {
            if let Owner::Log { function, number } = owner {
                self.on_page_destaged(cx, ftl, function.into(), number);
            }
        }
    }

    /// Recovery has brought the map back: the log's pages are found again where the control blocks say, and what was in
    /// rings is there again.
    pub(crate) fn take_back_log<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, log: Vec<Vec<LogRemains>>) {
        for (function, stored) in log.into_iter().enumerate() {
            let (mut found, mut released) = (None, 0);
            for (place, one) in stored.iter().enumerate() {
                let pages = self.find_log_pages(ftl, &one.block);
                // What the oldest of them knew of is safe, and what a newer one knew to be released may be gone.
                let oldest = stored.last().filter(|_| place + 1 < stored.len());
                if oldest.is_none_or(|oldest| is_whole(&one.block, &pages, &oldest.block, released)) {
                    found = Some((place, pages, released));
                    break;
                }
                let next = stored.get(place + 1).map(|next| (next.block.range, next.block.setup));
                released =
                    if next == Some((one.block.range, one.block.setup)) { one.block.head.max(released) } else { 0 };
            }
            let Some((place, pages, released)) = found else { continue };
            let Some(LogRemains { block, rings }) = stored.into_iter().nth(place) else { continue };
            self.take_back_function(cx, ftl, function, block, pages, (place > 0).then_some(released));
            self.take_back_rings(cx, function, &rings);
            self.tell_transport(cx, ftl, function, transport::Event::Timer);
            self.destage_log(cx, ftl, function, false);
            self.arm_destage(cx, ftl, function);
        }
    }

    /// What the log's pages hold, by their stamps. A page that flash has lost is empty here: a reader finds the gap.
    fn find_log_pages<M: Medium>(&self, ftl: &Ftl<M>, block: &ControlBlock) -> Vec<LogPage> {
        let (first, count, _) = block.range;
        let pages = (block.head..block.settled).map(|number| {
            let stamp = ftl.stamp(first + (number % u64::from(count)) as u32);
            let lost = LogPage { lane: 0, offset: 0, len: 0, sequence: 0 };
            let mut page = stamp.map_or(lost, |stamp| LogPage::from_stamp(stamp.version, stamp.sequence));
            if u32::from(page.lane) >= block.setup.lanes || page.len > self.payload {
                return lost; // No page of this log.
            }
            for &(lane, end, sequence) in &block.cuts {
                if page.lane == lane && page.sequence <= sequence {
                    page.len = end.saturating_sub(page.offset).min(page.len.into()) as u32;
                }
            }
            page
        });
        pages.collect()
    }

    /// `fell_back`: a newer control block is there, of whose pages some are not, and those before this number were
    /// released when it was written.
    fn take_back_function<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        block: ControlBlock,
        mut pages: Vec<LogPage>,
        fell_back: Option<u64>,
    ) {
        let (first, count, reserve) = block.range;
        let mut head = block.head;
        if cx.options.payload {
            // Where what was stored last is lost, an older control block counts, and its first pages may have been
            // trimmed since, and their places used again. Pages are released in their order: with one that was, all
            // before it were, though flash may have some. One that flash has lost tells nothing of those before it,
            // unless a newer control block is there.
            let was_released = |(i, page): (usize, &LogPage)| {
                let lpn = first + ((head + i as u64) % u64::from(count)) as u32;
                page.sequence == 0 && (fell_back.is_some() || !ftl.is_lost(lpn))
            };
            let released = pages.iter().enumerate().rposition(was_released).map_or(0, |last| last + 1);
            let known = fell_back.unwrap_or(0).saturating_sub(head).min(pages.len() as u64) as usize;
            let lost = pages.iter().take_while(|page| page.sequence == 0).count();
            let gone = released.max(known).max(lost);
            pages.drain(..gone);
            head += gone as u64;
            let known: Vec<(usize, u64)> = pages
                .iter()
                .enumerate()
                .filter(|(_, page)| page.sequence > 0)
                .map(|(i, page)| (i, page.sequence))
                .collect();
            let newer = known.windows(2).rev().find(|pair| pair[0].1 > pair[1].1).map_or(0, |pair| pair[0].0 + 1);
            pages.drain(..newer);
            head += newer as u64;
        }
        let mut log = LbaRing::new(first, count, reserve);
        log.restore(head, pages);
        // Sequences that went with the power are given again, and a cut does not concern those who get them.
        let newest = ftl.write_sequence();
        let cuts = block.cuts.into_iter().map(|(lane, end, sequence)| (lane, end, sequence.min(newest))).collect();
        let fresh = Function::new(function as u8, block.setup, &block.ends, log, &cx.options, self.survives);
        // How frames travel now counts, unless peers rely on what they were set up with.
        let alone = block.transport.role == Role::StandAlone;
        let transport_config = if alone { fresh.transport_config } else { block.transport_config };
        let transport = Transport::resume(transport_config, block.transport, self.network.unwrap_or(cx.now));
        let destage_failed = block.destage_failed;
        self.functions[function] =
            Function { transport, transport_config, cuts, trimmed: block.trimmed, destage_failed, ..fresh };
    }

    /// What was released and not on flash yet is in the rings again, if their memory survives.
    fn take_back_rings(&mut self, cx: &mut Context, function: usize, rings: &[Vec<u8>]) {
        if !self.survives {
            return;
        }
        let now = cx.now;
        for (lane, bytes) in self.functions[function].lanes.iter_mut().zip(rings) {
            lane.take_back(now, bytes);
        }
    }
}

/// Whether a lane's log may continue at `to` behind a page that ends at `end`: without a gap, or with one that lies in
/// what was trimmed.
fn leads_to(end: u64, to: u64, trimmed: u64) -> bool {
    end == to || end < to && to <= trimmed
}

/// Whether all pages are there that a control block names beyond those of an older one and beyond those that were
/// `released` since, and lead to where it says that each lane ends.
fn is_whole(block: &ControlBlock, pages: &[LogPage], older: &ControlBlock, released: u64) -> bool {
    let same = block.range == older.range && block.setup == older.setup;
    let safe = if same { older.settled } else { 0 };
    let known = safe.max(released).saturating_sub(block.head).min(pages.len() as u64) as usize;
    // A log that was cut has pages that hold less than was written, and others in place of those that were cut.
    if !block.cuts.is_empty() {
        return pages[known..].iter().all(|page| page.sequence > 0);
    }
    // Each lane goes on where the older block says, unless pages between them were released. Pages of a life that a
    // crash has taken back may still be in the places of those that are lost, and follow each other as well.
    let follows = same && released.max(block.head) <= safe;
    let mut ends: Vec<Option<u64>> = older.ends.iter().map(|&end| follows.then_some(end)).collect();
    ends.resize(block.ends.len(), None);
    let mut newest = pages[..known].iter().map(|page| page.sequence).max().unwrap_or(0);
    for page in &pages[known..] {
        let (end, trimmed) = (&mut ends[usize::from(page.lane)], block.trimmed[usize::from(page.lane)]);
        // A page that was under way when its stream skipped past it has no successor, and is not needed.
        let was_passed = end.is_some_and(|end| page.end() <= end) && page.end() <= trimmed;
        let follows = was_passed || end.is_none_or(|end| leads_to(end, page.offset, trimmed));
        if page.sequence <= newest || !follows {
            return false;
        }
        newest = page.sequence;
        if !was_passed {
            *end = Some(page.end());
        }
    }
    // Of these a newer block, which does not count, had no use: they may be gone, and with them where a lane ends.
    let unseen = released > safe.max(block.head);
    ends.iter().enumerate().all(|(lane, found)| {
        let (end, trimmed) = (block.ends[lane], block.trimmed[lane]);
        match found {
            Some(found) => leads_to(*found, end, trimmed),
            // A lane that went on since the older block ends with a page. That one is named as long as it is needed: a
            // page of long ago that stands in its place is of another lane.
            None => !same || unseen || end <= trimmed || older.ends.get(lane) == Some(&end),
        }
    })
}
