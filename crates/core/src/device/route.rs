//! Where inputs, events and ends of flash operations go: the one place that knows all rooms. What one room has come to
//! that concerns another is returned to here.

use super::Device;
use crate::border::{Input, Output};
use crate::events::{Event, Kind};
use crate::flash::{Operation, Source};
use crate::owner::Owner;
use crate::window::{Gated, Progress};
use std::hint::cold_path;
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::status as vendor_status;

impl<M: Medium> Device<M> {
    /// An input that is neither a block command nor the timer.
    pub(super) fn on_input(&mut self, input: Input<'_>) {
        let Device { cx, ftl, fast, window, .. } = self;
        match input {
            Input::Store { function, address, content } if window.is_at(function, address) => {
                window.store(cx, ftl, address, content);
            }
            Input::Store { function, address, content } => {
                let _ = fast.store(cx, ftl, function.into(), address, content); // Posted: the counters tell.
            }
            Input::Load { function, address, len, tag } if window.is_at(function, address) => {
                window.load(cx, address, len, tag);
            }
            Input::Load { function, address, len, tag } => {
                let value = fast.load(ftl, function.into(), address, len.into());
                cx.outputs.push_back(Output::Loaded { tag, value });
            }
            Input::Window { sqe, data, tag } => window.command(cx, ftl, &sqe, data, tag),
            Input::WindowFill { lpn, content } => {
                let progress = window.fill(cx, ftl, lpn, content);
                self.on_progress(progress);
            }
            Input::Log { function, input } => fast.on_input(cx, ftl, function, input),
            Input::PeersTime { now } => fast.on_peers_time(cx, ftl, now),
            Input::Capsule { function, sqe, data } => fast.capsule(cx, ftl, function.into(), &sqe, data),
            Input::HostMemory { ticket, answer } => self.block.on_host_answer(cx, ftl, &self.host, ticket, answer),
            Input::Lending(lending) => self.block.on_lending(cx, ftl, &self.host, lending),
            Input::Submit { .. } | Input::Begin(_) | Input::Timer => unreachable!("handled before"),
        }
    }

    #[inline(always)]
    pub(super) fn on_event(&mut self, event: Event) {
        let Device { cx, ftl, host, block, fast, window, .. } = self;
        match event {
            Event::Command { slot } => self.begin(slot as u16),
            Event::Data { slot } => block.go_on(cx, ftl, host, slot as u16),
            Event::Complete { slot } => self.complete(slot as u16),
            Event::Bus { channel, inward: true } => {
                if let Some(row) = ftl.flash.on_loaded(cx.now, &mut cx.events, channel) {
                    fast.on_log_row_loaded(cx, ftl, row);
                }
            }
            Event::Crossed { channel } => fast.on_log_row_crossing(cx, ftl, channel),
            Event::Bus { channel, inward: false } => {
                let done = ftl.flash.on_unloaded(cx.now, &mut cx.events, channel);
                self.on_flash_read(done);
            }
            Event::Cell { die, generation, kind: Kind::Read } => self.on_cell(die, generation, Kind::Read),
            Event::Cell { die, generation, kind: Kind::Program } => self.on_cell(die, generation, Kind::Program),
            Event::Cell { die, generation, kind: Kind::Erase } => self.on_cell(die, generation, Kind::Erase),
            Event::Persist { lane } => fast.on_persist(cx, ftl, lane),
            Event::Destage { function } => fast.on_destage_timer(cx, ftl, function as usize),
            Event::Transport { function } => fast.on_transport_timer(cx, ftl, function as usize),
            Event::LogWait { place, generation } => fast.on_wait_timeout(cx, ftl, place as usize, generation),
            Event::Window { place, generation } => {
                let progress = window.on_event(cx, ftl, &mut block.caches, host, (place, generation));
                self.on_progress(progress);
            }
            Event::Fold => {
                ftl.on_fold_timer(cx.now, &mut cx.events);
                self.after_flash();
            }
            Event::HostMemory { place } => block.on_host_event(cx, ftl, host, place),
            Event::Fill { row, generation } => {
                ftl.on_fill_timeout(cx.now, &mut cx.events, row, generation);
                self.after_flash();
            }
        }
    }

    /// A command has left the pipeline: it goes through the gate of the byte window.
    #[inline(always)]
    fn begin(&mut self, slot: u16) {
        if self.window.table().used() > 0 {
            cold_path();
            match self.window.gate(&self.host, self.cx.shift.page, slot) {
                Gated::Passes => {}
                Gated::Waits => return,
                Gated::Refused => return self.refuse(slot, vendor_status::LBA_PINNED),
            }
        }
        self.block.begin(&mut self.cx, &mut self.ftl, &self.host, slot);
    }

    fn refuse(&mut self, slot: u16, status: Status) {
        self.block.fail(slot, status);
        self.cx.finish(slot, self.cx.now);
    }

    /// Ends a command that waits at the gate: its host has aborted it, or is gone. False: it does not wait there.
    pub fn cancel_held(&mut self, cid: u16) -> bool {
        let slot = self.window.take_aborted(&self.host, cid);
        if let Some(slot) = slot {
            self.refuse(slot, Status::ABORT_REQUESTED);
        }
        slot.is_some()
    }

    /// Forgets a command that waits for credit or for log bytes: there will be no reply. False: it does not wait, and
    /// its reply comes soon.
    pub fn cancel(&mut self, cid: u16) -> bool {
        self.fast.cancel(cid)
    }

    /// The host has no use for a lane's log before this offset: pages of which nothing is needed any more, and nothing
    /// of the pages before them, are released.
    pub fn trim_log(&mut self, function: usize, lane: usize, offset: u64) {
        self.fast.trim_log(&mut self.cx, &mut self.ftl, function, lane, offset);
    }

    /// What the window has come to.
    pub(super) fn on_progress(&mut self, progress: Progress) {
        match progress {
            Progress::None => {}
            Progress::Drains => self.go_on_draining(),
            Progress::Buffered => self.block.background_destage(&mut self.cx, &mut self.ftl),
            Progress::Released(ending) => {
                for slot in self.window.take_held() {
                    self.begin(slot); // Through the gate again.
                }
                self.window.end(&mut self.cx, ending);
            }
            Progress::Restored => self.fetch(),
        }
    }

    pub(super) fn go_on_draining(&mut self) {
        let block = &self.block;
        self.window.go_on_draining(&mut self.cx, &self.host, |slot| block.has_begun(slot));
    }

    /// Goes on with pages of the map in host memory: what they want there, and which commands have waited for them.
    pub(super) fn go_on_mapping(&mut self) {
        if self.block.take_map_moved() {
            self.after_flash();
        }
        while self.block.go_on_mapping(&mut self.cx, &mut self.ftl, &self.host) {
            self.after_flash();
        }
    }

    // Always inlined: for each kind of operation what it does not do is left out.
    #[inline(always)]
    fn on_cell(&mut self, die: u32, generation: u32, kind: Kind) {
        // A program or an erase: no host command waits for the operation itself.
        if let Some(done) = self.ftl.on_cell(self.cx.now, &mut self.cx.events, die, generation, kind) {
            self.on_own_done(kind, done);
        }
    }

    /// A read has brought what it was to bring.
    #[inline(always)]
    fn on_flash_read(&mut self, done: u32) {
        let &Operation { source, tag, uncorrectable, mut shared, .. } = self.ftl.flash.operation(done);
        match source {
            Source::HostRead => self.on_owner_read(Owner::unpack(tag), uncorrectable != 0),
            _ => self.on_own_done(Kind::Read, done),
        }
        while let Some((tag, units)) = self.ftl.flash.take_shared(&mut shared) {
            cold_path();
            self.on_owner_read(Owner::unpack(tag), uncorrectable & units != 0);
        }
    }

    #[inline(always)]
    fn on_owner_read(&mut self, owner: Owner, failed: bool) {
        let Device { cx, ftl, host, block, fast, window, .. } = self;
        match owner {
            Owner::Command(slot) => block.on_read_done(cx, ftl, host, slot, failed),
            Owner::Ahead(place) => block.on_read_ahead(cx, ftl, place, failed),
            Owner::Padding if !block.on_padding_read(failed) => return,
            Owner::Padding => return self.after_flash(),
            Owner::LogRead(place) => return fast.on_read(cx, place as usize, failed),
            Owner::Window(_) | Owner::WindowRestore => {
                let place = if let Owner::Window(place) = owner { Some(place.into()) } else { None };
                let progress = window.on_read(cx, ftl, place, failed);
                return self.on_progress(progress);
            }
            Owner::None | Owner::Log { .. } | Owner::Dump => unreachable!("{owner:?} waits for no read"),
        }
        if ftl.flash.outstanding() == 0 {
            self.after_flash(); // No program or erase will come to do it.
        }
    }

    /// A unit is on flash, or could not be written.
    #[inline(always)]
    fn on_owner_programmed(&mut self, owner: Owner, failed: bool) {
        let Device { cx, ftl, block, fast, window, .. } = self;
        match owner {
            Owner::Command(slot) => {
                if failed {
                    block.fail(slot, Status::WRITE_FAULT);
                }
                block.on_unit_programmed(cx, slot);
            }
            Owner::Log { function, .. } if failed => fast.on_page_rejected(cx, ftl, function.into()),
            Owner::Log { function, number } => fast.on_page_destaged(cx, ftl, function.into(), number),
            Owner::Window(place) => window.on_programmed(cx, place.into(), failed),
            Owner::None | Owner::Padding | Owner::Ahead(_) | Owner::LogRead(_) | Owner::WindowRestore | Owner::Dump => {
                unreachable!("{owner:?} waits for no program")
            }
        }
    }

    /// An operation of this kind that no host command waits for is done.
    #[inline(always)]
    fn on_own_done(&mut self, kind: Kind, done: u32) {
        let recovering = self.ftl.is_recovering();
        self.ftl.on_done(self.cx.now, &mut self.cx.events, kind, done);
        while let Some(owner) = self.ftl.take_acknowledged() {
            self.on_owner_programmed(owner, false);
        }
        if recovering && !self.ftl.is_recovering() {
            self.take_back();
        }
        if self.block.translates() {
            self.block.charge_map_cache(&mut self.cx, &mut self.ftl, &self.host);
        }
        self.after_flash();
    }

    /// Flash has made progress: what waited for that goes on, in this order.
    #[inline(always)]
    pub(super) fn after_flash(&mut self) {
        if self.ftl.has_rejected() || self.block.has_flushing() {
            self.answer_waiting();
        }
        let Device { cx, ftl, host, block, window, .. } = self;
        block.go_on_stalled(cx, ftl, host);
        window.go_on_flushing(cx, ftl);
        if window.is_restoring() {
            cold_path();
            let progress = window.go_on_restoring(cx, ftl);
            self.on_progress(progress);
        }
        self.block.background_destage(&mut self.cx, &mut self.ftl);
        if self.fast.is_enabled() {
            self.fast.go_on(&mut self.cx, &mut self.ftl);
        }
        if self.ftl.is_read_only() && !self.host.namespace().read_only {
            cold_path();
            self.host.set_read_only(true);
        }
    }

    /// Ends what waits for units that can't be written, and flushes of which all is on flash.
    #[inline(never)]
    fn answer_waiting(&mut self) {
        while let Some(owner) = self.ftl.take_rejected() {
            self.on_owner_programmed(owner, true);
        }
        if self.block.has_flushing() {
            let Device { cx, ftl, block, .. } = self;
            if ftl.flash.outstanding() == 0 {
                // What they still wait for is the log of deallocations.
                ftl.log_deallocations(cx.now, &mut cx.events);
            }
            block.end_flushes(cx, ftl);
        }
    }
}
