//! The device: wires the rooms together.
//!
//! Sans-IO: [`Device::handle`] takes what happens outside and the time, [`Device::poll`] gives what the device has to
//! say, [`Device::deadline`] tells when it wants to be woken. One thing happens at a time.

mod check;
mod interface;
mod plan;
mod route;

pub use interface::{Input, Output};
pub use plan::{plan, reserved, resolve};

use crate::block::Work;
use crate::buffer::{Buffer, Setting};
use crate::content::{PAST, Whereabouts};
use crate::cost::{Link, Rate, SharedServer, lane_bytes_per_second};
use crate::events::{Event, EventQueue, Kind, LANE_PLACES, lane};
use crate::fast::{self, Fast, LogRemains};
use crate::ftl::{Ftl, Plan, Precondition};
use crate::host::{Completion, Host, Namespace, Permit, Submission};
use crate::host_memory::{HostMemory, HostUses};
use crate::memory::{Note, Placed, Use, place};
use crate::profile::{MemoryKind, MemoryProfile, Profile};
use crate::window::{self, Window};
use std::collections::VecDeque;
use std::hint::cold_path;
use tidewater_base::{Duration, Instant};
use tidewater_nand::{Medium, Nand, Stamps};

/// How a device is run, besides its profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Seeds everything random: bad blocks, bit errors.
    pub seed: u64,
    /// Usable bytes; 0: what the profile says.
    pub capacity: u64,
    /// Versions and sequences in every page: needed to cut the power and to check what reads return.
    pub stamps: bool,
    /// Somebody keeps payload: [`Output::Taken`] tells of every page that is written. Needs stamps, and commands whose
    /// tags are versions that never come again.
    pub payload: bool,
    /// The write buffer is taken as volatile, whatever the profile says of its memory: whoever keeps payload keeps that
    /// of the buffer in ordinary memory. A flush then empties it to flash, and FUA goes through it.
    pub volatile_buffer: bool,
    /// Pages that are read before they were written were written before the run: they cost a flash read.
    pub premap: bool,
    /// What the drive has been through.
    pub precondition: Precondition,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            capacity: 0,
            stamps: false,
            payload: false,
            volatile_buffer: false,
            premap: false,
            precondition: Precondition::Fresh,
        }
    }
}

/// A memory that serves pages: latency overlaps, bandwidth does not.
#[derive(Clone, Debug)]
pub(crate) struct MemoryPort {
    rate: Rate,
    read_latency: Duration,
    write_latency: Duration,
    server: SharedServer,
    traffic: Traffic,
}

/// Bytes that crossed a memory's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read from it.
    pub read: u64,
    /// Written into it.
    pub written: u64,
}

impl MemoryPort {
    fn new(memory: &MemoryProfile) -> MemoryPort {
        MemoryPort {
            rate: Rate::per_second(memory.bandwidth),
            read_latency: memory.read_latency,
            write_latency: memory.write_latency,
            server: SharedServer::default(),
            traffic: Traffic::default(),
        }
    }

    pub(crate) fn read(&mut self, now: Instant, bytes: u64) -> Instant {
        self.traffic.read += bytes;
        self.server.serve(now, self.rate.time(bytes)) + self.read_latency
    }

    /// A read that nobody waits for, by a controller that shares the memory turn by turn.
    pub(crate) fn read_behind(&mut self, now: Instant, bytes: u64) {
        self.traffic.read += bytes;
        self.server.serve_behind(now, self.rate.time(bytes));
    }

    /// As [`MemoryPort::read_behind`], a write.
    pub(crate) fn write_behind(&mut self, now: Instant, bytes: u64) {
        self.traffic.written += bytes;
        self.server.serve_behind(now, self.rate.time(bytes));
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, now: Instant, bytes: u64) -> Instant {
        self.traffic.written += bytes;
        self.server.serve(now, self.rate.time(bytes)) + self.write_latency
    }
}

/// A drive.
#[derive(Clone, Debug)]
pub struct Device<M: Medium = Nand> {
    pub(crate) profile: Profile,
    pub(crate) options: Options,
    pub(crate) plan: Plan,
    pub(crate) now: Instant,
    pub(crate) events: EventQueue,
    pub(crate) host: Host,
    pub(crate) write_buffer: Buffer,
    pub(crate) read_cache: Buffer,
    /// What is in the write buffer outlives a power loss.
    pub(crate) buffer_survives: bool,
    pub(crate) ftl: Ftl<M>,
    pub(crate) fast: Fast,
    pub(crate) window: Window,
    pub(crate) host_memory: HostMemory,
    pub(crate) host_uses: HostUses,
    /// The power has failed, and stored energy is used up.
    pub(crate) power_fails: bool,
    pub(crate) link_in: Link,
    pub(crate) link_out: Link,
    pub(crate) memories: Vec<MemoryPort>,
    /// The memory of the write buffer, and of the read cache, in `memories`; used only where there is one.
    pub(crate) write_port: usize,
    pub(crate) read_port: usize,
    /// The memory of the mapping cache; `usize::MAX`: the whole map is at hand, or what is not is in host memory.
    pub(crate) map_port: usize,
    /// There is a mapping cache: commands look their entries up in it.
    pub(crate) translates: bool,
    pub(crate) pipeline_free_at: Instant,
    pub(crate) work: Vec<Work>,
    /// Commands that wait for room in the buffer or on flash, oldest first.
    pub(crate) stalled: VecDeque<u16>,
    /// The oldest of them could not go on, and no page has been taken out of the buffer since but to be written.
    pub(crate) is_stuck: bool,
    /// Commands that wait until what came before them is on flash.
    pub(crate) flushing: Vec<u16>,
    /// Flash reads under way for pages that leave the write buffer beside dirty ones, and whether one has failed.
    pub(crate) padding_reads: u32,
    pub(crate) padding_failed: bool,
    pub(crate) destage_above: usize,
    pub(crate) unit_shift: u32,
    pub(crate) block_shift: u32,
    /// Blocks of a page as a power of two.
    pub(crate) page_shift: u32,
    /// Logical pages that survived in the write buffer, until recovery can take them back.
    pub(crate) restored: Vec<(u32, u64)>,
    /// Pages that the dump at the last power loss lacked.
    pub(crate) dump_lost: u64,
    /// What survived of the fast side, until recovery can take it back.
    pub(crate) restored_log: Vec<Vec<LogRemains>>,
    /// A completion that is said before everything in `outputs`: most are taken at once, and need no queue.
    completion: Option<Completion>,
    pub(crate) outputs: VecDeque<Output>,
    notes: Vec<Note>,
}

/// Why there can be no such device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupError(pub String);

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SetupError {}

impl Device<Nand> {
    /// A new drive.
    ///
    /// # Errors
    /// In words, when the profile contradicts itself or the capacity does not fit.
    pub fn new(profile: &Profile, options: Options) -> Result<Device<Nand>, SetupError> {
        Device::over(profile, options, |nand| nand)
    }
}

impl<M: Medium> Device<M> {
    /// A new drive over a medium that wraps the production one, for faults.
    ///
    /// # Errors
    /// As for [`Device::new`].
    pub fn over(profile: &Profile, options: Options, wrap: impl FnOnce(Nand) -> M) -> Result<Device<M>, SetupError> {
        let (profile, plan) = resolve(profile, &options)?;
        let stamps = if options.stamps { Stamps::Full } else { Stamps::LpnOnly };
        let medium = wrap(Nand::new(&profile.nand, profile.ftl.unit_size, stamps, options.seed));
        let mut ftl = Ftl::new(&profile, medium, &plan, stamps);
        if ftl.is_read_only() {
            return Err(SetupError(format!(
                "too few good blocks for {} bytes: factory-bad blocks took more than [ftl] spare_blocks keeps back",
                plan.units * u64::from(profile.ftl.unit_size)
            )));
        }
        ftl.precondition(options.precondition, options.seed, PAST).map_err(SetupError)?;
        if options.premap {
            // What is read before it is written was there before the run, and so was its map.
            ftl.place_mapping_pages(true, PAST);
        }
        Device::assemble(profile, options, plan, ftl, EventQueue::new(LANE_PLACES), Instant::ZERO)
    }

    pub(crate) fn assemble(
        profile: Profile,
        options: Options,
        plan: Plan,
        mut ftl: Ftl<M>,
        events: EventQueue,
        now: Instant,
    ) -> Result<Device<M>, SetupError> {
        let placement = place(&profile).map_err(|e| SetupError(e.to_string()))?;
        let unit_shift = profile.ftl.unit_size.trailing_zeros();
        let block_shift = profile.host.block_size.trailing_zeros();
        let namespace = Namespace {
            id: 1,
            // Nobody reads dumps as blocks.
            blocks: (u64::from(ftl.units()) - 2 * window::dump_area_pages(&profile)) << (unit_shift - block_shift),
            writable_blocks: u64::from(ftl.data_units()) << (unit_shift - block_shift),
            block_shift: block_shift as u8,
            read_only: ftl.is_read_only(),
        };
        let pages = |placed: Option<&Placed>| placed.map_or(0, |p| (p.size >> unit_shift) as usize);
        // Uses of one memory share its bandwidth.
        let mut names: Vec<&str> = Vec::new();
        let mut memories = Vec::new();
        let mut port = |used| {
            // Host memory has its own way there, over the link.
            let lent = |placed: &Placed| placed.memory.kind == MemoryKind::Host;
            let placed = placement.of(used).filter(|placed| !(lent(placed) && used.is_carried()));
            let Some(placed) = placed else { return usize::MAX };
            names.iter().position(|&n| n == placed.memory.name).unwrap_or_else(|| {
                names.push(&placed.memory.name);
                let mut memory = placed.memory.clone();
                if lent(placed) {
                    // The way there, without the competition of other traffic.
                    memory.read_latency += profile.link.latency * 2;
                    memory.write_latency += profile.link.latency;
                    let lane = lane_bytes_per_second(profile.link.generation);
                    memory.bandwidth = memory.bandwidth.min(lane * u64::from(profile.link.lanes));
                }
                memories.push(MemoryPort::new(&memory));
                memories.len() - 1
            })
        };
        let (write_port, read_port) = (port(Use::WriteBuffer), port(Use::ReadCache));
        let fast_ports = (port(Use::FastRing), port(Use::IntakeQueue));
        let window_port = port(Use::BaBuffer);
        let map_port = port(Use::MapCache);
        let translates = ftl.map_cache().is_some();
        let dump_first = ftl.data_units() + fast::log_pages(&profile) as u32;
        let (buffered, cached) = (pages(placement.of(Use::WriteBuffer)), pages(placement.of(Use::ReadCache)));
        let setting = |capacity| Setting::of(&profile, capacity, ftl.data_units(), cached);
        let mut write_buffer = Buffer::new(&profile.buffer.write_policy, &setting(buffered), options.stamps);
        let mut read_cache = Buffer::new(&profile.buffer.read_policy, &setting(cached), false);
        let host_memory = HostMemory::new(&profile, &placement, now);
        let host_uses = HostUses::new(&host_memory);
        if host_uses.cache {
            read_cache.set_capacity(0); // Until the host lends memory.
        }
        if host_memory.has(Use::WriteBuffer) {
            write_buffer.set_capacity(0);
        }
        let slots = profile.host.outstanding_max as usize;
        if options.payload {
            ftl.keep_sources();
        }
        let mut notes = placement.notes().to_vec();
        let buffer_survives = placement.survives(Use::WriteBuffer) && !options.volatile_buffer;
        if !buffer_survives && placement.survives(Use::WriteBuffer) {
            notes.retain(|note| note.placed != Use::WriteBuffer || note.downgrade);
            let text =
                "its payload is kept in ordinary memory: what it holds is lost with power, whatever [memory] says; \
                        a flush writes it to flash"
                    .into();
            notes.push(Note { placed: Use::WriteBuffer, downgrade: true, text });
        }
        Ok(Device {
            host: Host::new(&profile.host, namespace),
            destage_above: (write_buffer.capacity() as f64 * profile.buffer.write_watermark) as usize,
            write_buffer,
            read_cache,
            buffer_survives,
            fast: Fast::new(&profile, ftl.data_units(), fast_ports, placement.survives(Use::FastRing), options.stamps),
            window: Window::new(&profile, window_port, dump_first, options.stamps),
            host_memory,
            host_uses,
            power_fails: false,
            ftl,
            link_in: Link::new(&profile.link),
            link_out: Link::new(&profile.link),
            memories,
            write_port,
            read_port,
            map_port,
            translates,
            pipeline_free_at: now,
            work: vec![Work::default(); slots],
            stalled: VecDeque::with_capacity(slots),
            is_stuck: false,
            flushing: Vec::with_capacity(slots),
            padding_reads: 0,
            padding_failed: false,
            unit_shift,
            block_shift,
            page_shift: unit_shift - block_shift,
            restored: Vec::new(),
            dump_lost: 0,
            restored_log: Vec::new(),
            completion: None,
            outputs: VecDeque::with_capacity(slots),
            notes,
            profile,
            options,
            plan,
            now,
            events,
        })
    }

    // Always inlined: the drive loop then has a path for each input, without moving a command through memory.
    /// Tells the device what happened. `now` must not run backwards, nor past a [`Device::deadline`] that was not kept.
    #[inline(always)]
    pub fn handle(&mut self, now: Instant, input: Input<'_>) -> Result<(), Submission> {
        assert!(now >= self.now, "time runs backwards: {now:?} after {:?}", self.now);
        self.now = now;
        match input {
            Input::Submit { queue, submission } => {
                if self.is_recovering() {
                    cold_path();
                    self.host.submit(queue, submission)?;
                } else if let Some(permit) = self.host.submit_and_fetch(queue, submission)? {
                    self.enter_pipeline(permit);
                    self.fetch();
                }
            }
            Input::Store { function, address, content } if self.is_window(function, address) => {
                self.window_store(address, content);
            }
            Input::Load { function, address, len, tag } if self.is_window(function, address) => {
                self.window_load(address, len, tag);
            }
            Input::Window { sqe, data, tag } => self.window_command(&sqe, data, tag),
            Input::WindowFill { lpn, content } => self.window_fill(lpn, content),
            Input::Store { function, address, content } => {
                let _ = self.store(function.into(), address, content); // A store is posted: the counters tell.
            }
            Input::Load { function, address, len, tag } => {
                let value = self.load(function.into(), address, len.into());
                self.outputs.push_back(Output::Loaded { tag, value });
            }
            Input::Announce { function, lane, tail, content } => {
                self.announce(function.into(), lane.into(), tail, content);
            }
            Input::Skip { function, lane, to } => self.skip_log(function.into(), lane.into(), to),
            Input::Withhold { function, lane, from } => self.withhold_log(function.into(), lane.into(), from),
            Input::Capsule { function, sqe, data } => self.capsule(function.into(), &sqe, data),
            Input::Frame { function, frame, content } => self.on_frame(function.into(), *frame, content),
            Input::HostMemory { ticket, answer } => self.on_host_answer(ticket, answer),
            Input::Lending(lending) => self.on_lending(lending),
            Input::Timer => {
                if let Some(event) = self.events.pop_due(now) {
                    self.on_event(event);
                }
            }
        }
        if self.host_uses.map {
            self.go_on_mapping();
        }
        Ok(())
    }

    /// As [`Device::handle`] with [`Input::Timer`] at a time when [`Device::deadline`] has come, which is not asked
    /// again: it panics where nothing waits.
    #[inline(always)]
    pub(crate) fn on_deadline(&mut self, now: Instant) {
        assert!(now >= self.now, "time runs backwards: {now:?} after {:?}", self.now);
        debug_assert!(self.deadline().is_some_and(|at| at <= now), "nothing is due");
        self.now = now;
        let event = self.events.pop();
        self.on_event(event);
        if self.host_uses.map {
            self.go_on_mapping();
        }
    }

    /// A hint that a command for this byte will come soon: it changes nothing but speed.
    #[inline]
    pub fn expect(&self, offset: u64) {
        self.ftl.prefetch((offset >> self.unit_shift) as u32);
    }

    /// The next thing that the device has to say.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        match self.completion.take() {
            Some(completion) => Some(Output::Complete(completion)),
            None => self.outputs.pop_front(),
        }
    }

    /// Whether [`Device::poll`] has something.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.completion.is_some() || !self.outputs.is_empty()
    }

    /// When the device wants to be woken.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.events.next_at()
    }

    /// Whether anything is under way, beside bytes of the fast side that wait for a page to fill ([`Device::deadline`]
    /// counts those, too).
    #[inline]
    pub fn has_work(&self) -> bool {
        self.events.len() > self.fast.waiting_to_destage()
    }

    #[inline(always)]
    fn on_event(&mut self, event: Event) {
        match event {
            Event::Command { slot } => self.begin(slot as u16),
            Event::Data { slot } => self.go_on(slot as u16),
            Event::Complete { slot } => self.complete(slot as u16),
            Event::Bus { channel, inward: true } => {
                if let Some(row) = self.ftl.flash.on_loaded(self.now, &mut self.events, channel) {
                    self.on_log_row_loaded(self.ftl.flash.operation(row).tag);
                }
            }
            Event::Bus { channel, inward: false } => {
                let done = self.ftl.flash.on_unloaded(self.now, &mut self.events, channel);
                self.on_flash_read(done);
            }
            Event::Cell { die, generation, kind: Kind::Read } => self.on_cell(die, generation, Kind::Read),
            Event::Cell { die, generation, kind: Kind::Program } => self.on_cell(die, generation, Kind::Program),
            Event::Cell { die, generation, kind: Kind::Erase } => self.on_cell(die, generation, Kind::Erase),
            Event::Persist { lane } => self.on_persist(lane),
            Event::Destage { function } => self.on_destage_timer(function as usize),
            Event::Transport { function } => self.on_transport_timer(function as usize),
            Event::LogWait { place, generation } => self.on_wait_timeout(place as usize, generation),
            Event::Window { place, generation } => self.on_window(place, generation),
            Event::Fold => {
                self.ftl.on_fold_timer(self.now, &mut self.events);
                self.after_flash();
            }
            Event::HostMemory { place } => self.on_host_event(place),
            Event::Fill { row, generation } => {
                self.ftl.on_fill_timeout(self.now, &mut self.events, row, generation);
                self.after_flash();
            }
        }
    }

    // Always inlined: for each kind of operation what it does not do is left out.
    #[inline(always)]
    fn on_cell(&mut self, die: u32, generation: u32, kind: Kind) {
        // A program or an erase: no host command waits for the operation itself.
        if let Some(done) = self.ftl.on_cell(self.now, &mut self.events, die, generation, kind) {
            self.on_own_done(kind, done);
        }
    }

    /// Takes commands as far as permits allow, into the command pipeline.
    #[inline(always)]
    pub(crate) fn fetch(&mut self) {
        if self.host.has_waiting() && !self.is_recovering() {
            while let Some(permit) = self.host.fetch() {
                self.enter_pipeline(permit);
            }
        }
    }

    /// A command that was taken enters the command pipeline.
    #[inline(always)]
    fn enter_pipeline(&mut self, permit: Permit) {
        let enters = self.pipeline_free_at.max(self.now);
        self.pipeline_free_at = enters + self.profile.host.command_interval;
        self.admit(permit);
        let slot = u32::from(permit.index());
        self.events.push(enters + self.profile.host.command_time, lane::COMMAND, Event::Command { slot });
    }

    #[inline(always)]
    fn complete(&mut self, slot: u16) {
        let status = self.work[slot as usize].status;
        let completion = self.host.complete(Permit::from_index(slot), status, 0);
        if self.has_output() {
            cold_path();
            self.outputs.push_back(Output::Complete(completion));
        } else {
            self.completion = Some(completion);
        }
        if self.is_draining() {
            cold_path();
            self.go_on_draining();
        }
        self.fetch();
    }

    /// When it was last told something.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// The profile, with the geometry that the capacity led to.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// How it is run.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Usable bytes; the LBA rings of the fast side and the byte window's dumps lie behind them.
    pub fn capacity(&self) -> u64 {
        u64::from(self.ftl.data_units()) << self.unit_shift
    }

    /// What a reader of the results should know of the placement of buffers.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Says that a placement does not keep what it promises.
    pub(crate) fn note(&mut self, placed: Use, text: String) {
        self.notes.push(Note { placed, downgrade: true, text });
    }

    /// The host room: queues and permits.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Bytes that commands have brought over the link, by DMA from the host's memory.
    pub fn link_bytes_in(&self) -> u64 {
        self.link_in.bytes()
    }

    /// What crossed the port of the memory that a use lives in: the write buffer, the read cache, the fast side's ring
    /// or the BA-buffer.
    pub fn traffic(&self, used: Use) -> Option<Traffic> {
        let port = match used {
            Use::WriteBuffer => self.write_port,
            Use::ReadCache => self.read_port,
            Use::FastRing => self.fast.port(),
            Use::BaBuffer => self.window.port(),
            Use::MapCache => self.map_port,
            Use::IntakeQueue => return None,
        };
        self.memories.get(port).map(|memory| memory.traffic)
    }

    /// The translation layer.
    pub fn ftl(&self) -> &Ftl<M> {
        &self.ftl
    }

    /// The medium.
    pub fn medium(&self) -> &M {
        &self.ftl.medium
    }

    /// Every version of a logical page that is in the controller's memory and may yet be read or programmed; needs
    /// stamps.
    pub fn unprogrammed(&self) -> impl Iterator<Item = (u32, u64)> {
        let buffered = self.write_buffer.contents().into_iter();
        buffered.chain(self.restored.iter().copied()).chain(self.ftl.unprogrammed())
    }

    /// The write buffer.
    pub fn write_buffer(&self) -> &Buffer {
        &self.write_buffer
    }

    /// The read cache.
    pub fn read_cache(&self) -> &Buffer {
        &self.read_cache
    }

    /// Events handled so far.
    pub fn events_handled(&self) -> u64 {
        self.events.popped()
    }

    /// Commands taken or waiting in queues.
    pub fn outstanding(&self) -> usize {
        self.host.outstanding() + self.host.waiting()
    }

    /// Forgets all counters, at the end of a warm-up.
    pub fn reset_statistics(&mut self) {
        self.ftl.flash.reset_statistics(self.now);
        self.ftl.statistics = Default::default();
        self.ftl.reset_map_statistics();
        self.write_buffer.reset_statistics(self.now);
        self.read_cache.reset_statistics(self.now);
        self.host_memory.statistics = Default::default();
    }

    /// The version of what a logical page holds, as a read would find it now; needs stamps.
    pub fn content(&self, lpn: u32) -> Option<u64> {
        self.locate(lpn).version()
    }

    /// Where the content of a logical page is, as a read would find it now; needs stamps.
    pub fn locate(&self, lpn: u32) -> Whereabouts {
        match self.write_buffer.version(lpn) {
            Some(version) => Whereabouts::Buffered { version },
            None => self.ftl.locate(lpn),
        }
    }

    /// Deallocations that a loss of power would undo, the drive having no capacitor: first page and pages. One of no
    /// pages is that flash has lost the page.
    pub fn staged_deallocations(&self) -> impl Iterator<Item = (u32, u32)> {
        self.ftl.staged_deallocations().into_iter().map(|(first, count, _)| (first, count))
    }

    /// A line for each command that is under way, for messages about a device that does not end.
    pub fn describe_outstanding(&self) -> String {
        let mut text = String::new();
        for (permit, slot) in self.host.outstanding_commands().take(8) {
            text += &format!(
                "  slot {} queue {} cid {}: {:?}, {:?}\n",
                permit.index(),
                slot.queue,
                slot.cid,
                slot.command,
                self.work[permit.index() as usize]
            );
        }
        text + &format!(
            "  {} outstanding, {} in queues, {} stalled, {} flash operations, {} events, free superblocks {:?}, next event {:?}",
            self.host.outstanding(),
            self.host.waiting(),
            self.stalled.len(),
            self.ftl.flash.outstanding(),
            self.events.len(),
            self.ftl.free_superblocks(),
            self.events.next_at()
        ) + &self.ftl.map_cache().map_or_else(String::new, |cache| cache.describe())
    }
}
