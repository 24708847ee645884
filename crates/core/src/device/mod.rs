//! The device: wires the rooms together.
//!
//! Sans-IO: [`Device::handle`] takes what happens outside and the time, [`Device::poll`] gives what the device has to
//! say, [`Device::deadline`] tells when it wants to be woken. One thing happens at a time.

mod check;
mod outside;
mod plan;
mod power;
mod route;
mod views;

pub use crate::border::{Input, Output, SetupError};
pub use crate::context::Options;
pub use outside::{with_policy, write_policy};
pub use plan::{plan, reserved, resolve};

use crate::block::{Ahead, Block, Parts};
use crate::buffer::Outside;
use crate::caches::Caches;
use crate::content::PAST;
use crate::context::{Context, Shifts};
use crate::cost::{MemoryPort, lane_bytes_per_second};
use crate::events::{Event, EventQueue, LANE_PLACES};
use crate::fast::{self, Fast, LogRemains};
use crate::ftl::{Ftl, Plan};
use crate::host::{Completion, Host, Namespace, Permit, Submission};
use crate::host_memory::HostMemory;
use crate::memory::{Note, Placed, Placement, Use, place};
use crate::profile::{MemoryKind, Profile};
use crate::window::{self, Window};
use std::hint::cold_path;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand, Stamps};

/// A drive: its rooms, and what survived the last loss of power until they take it back.
#[derive(Clone, Debug)]
pub struct Device<M: Medium = Nand> {
    profile: Profile,
    plan: Plan,
    cx: Context,
    host: Host,
    block: Block,
    ftl: Ftl<M>,
    fast: Fast,
    window: Window,
    /// Logical pages that survived in the write buffer, until recovery can take them back.
    restored: Vec<(u32, u64)>,
    /// Pages that the dump at the last power loss lacked.
    dump_lost: u64,
    /// What survived of the fast side, until recovery can take it back.
    restored_log: Vec<Vec<LogRemains>>,
    /// A completion that is said before everything in the context's outputs: most are taken at once, and need no queue.
    completion: Option<Completion>,
    notes: Vec<Note>,
    /// The write buffer's policy, where it is none of the built-in ones.
    policy: Option<Outside>,
}

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

    fn assemble(
        profile: Profile,
        options: Options,
        plan: Plan,
        mut ftl: Ftl<M>,
        events: EventQueue,
        now: Instant,
    ) -> Result<Device<M>, SetupError> {
        let placement = place(&profile).map_err(|e| SetupError(e.to_string()))?;
        let unit = profile.ftl.unit_size.trailing_zeros();
        let block = profile.host.block_size.trailing_zeros();
        let shift = Shifts { unit, block, page: unit - block };
        let namespace = Namespace {
            id: 1,
            // The dump area is not addressable by LBA.
            blocks: (u64::from(ftl.units()) - 2 * window::dump_area_pages(&profile)) << shift.page,
            writable_blocks: u64::from(ftl.data_units()) << shift.page,
            block_shift: block as u8,
            read_only: ftl.is_read_only(),
        };
        let mut ports = Ports { profile: &profile, placement: &placement, names: Vec::new(), memories: Vec::new() };
        let (write_port, read_port) = (ports.of(Use::WriteBuffer), ports.of(Use::ReadCache));
        let fast_ports = (ports.of(Use::FastRing), ports.of(Use::IntakeQueue));
        let window_port = ports.of(Use::BaBuffer);
        let map_port = ports.of(Use::MapCache);
        let memories = ports.memories;
        let dump_first = ftl.data_units() + fast::log_pages(&profile) as u32;
        let memory = HostMemory::new(&profile, &placement, now);
        if options.payload {
            ftl.keep_sources();
        }
        let mut caches = Caches::new(&profile, &placement, (write_port, read_port), ftl.data_units(), options.stamps);
        caches.survives &= !options.volatile_buffer;
        let notes = match options.volatile_buffer {
            true => placement.notes_of_volatile_buffer(),
            false => placement.notes().to_vec(),
        };
        let parts = Parts {
            slots: profile.host.outstanding_max as usize,
            caches,
            memory,
            ahead: Ahead::new(&profile),
            watermark: profile.buffer.write_watermark,
            translates: ftl.map_cache().is_some(),
            map_port,
        };
        Ok(Device {
            host: Host::new(&profile.host, namespace),
            block: Block::new(parts),
            fast: Fast::new(&profile, ftl.data_units(), fast_ports, placement.survives(Use::FastRing), &options),
            window: Window::new(&profile, window_port, dump_first, options.stamps),
            cx: Context::new(now, events, (&profile.host, &profile.link), memories, shift, options),
            ftl,
            restored: Vec::new(),
            dump_lost: 0,
            restored_log: Vec::new(),
            completion: None,
            notes,
            policy: None,
            profile,
            plan,
        })
    }

    // Always inlined: the drive loop then has a path for each input, without moving a command through memory.
    /// Tells the device what happened. `now` must not run backwards, nor past a [`Device::deadline`] that was not kept.
    #[inline(always)]
    pub fn handle(&mut self, now: Instant, input: Input<'_>) -> Result<(), Submission> {
        self.advance_to(now);
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
            Input::Begin(request) => {
                if let Some(permit) = self.host.begin(request, self.is_recovering()) {
                    self.enter_pipeline(permit);
                }
            }
            Input::Timer => {
                if let Some(event) = self.cx.events.pop_due(now) {
                    self.on_event(event);
                }
            }
            other => self.on_input(other),
        }
        if self.block.lends_map() {
            self.go_on_mapping();
        }
        Ok(())
    }

    #[inline(always)]
    fn advance_to(&mut self, now: Instant) {
        assert!(now >= self.cx.now, "time runs backwards: {now:?} after {:?}", self.cx.now);
        self.cx.now = now;
    }

    /// As [`Device::handle`] with [`Input::Timer`] at a time when [`Device::deadline`] has come, which is not asked
    /// again: it panics where nothing waits.
    #[inline(always)]
    pub(crate) fn on_deadline(&mut self, now: Instant) {
        self.advance_to(now);
        debug_assert!(self.deadline().is_some_and(|at| at <= now), "nothing is due");
        let event = self.cx.events.pop();
        self.on_event(event);
        if self.block.lends_map() {
            self.go_on_mapping();
        }
    }

    /// The next thing that the device has to say.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        match self.completion.take() {
            Some(completion) => Some(Output::Complete(completion)),
            None => self.cx.outputs.pop_front(),
        }
    }

    /// Whether [`Device::poll`] has something.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.completion.is_some() || !self.cx.outputs.is_empty()
    }

    /// When the device wants to be woken.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        self.cx.events.next_at()
    }

    /// Whether anything is under way, beside bytes of the fast side that wait for a page to fill ([`Device::deadline`]
    /// counts those, too).
    #[inline]
    pub fn has_work(&self) -> bool {
        self.cx.events.len() > self.fast.waiting_to_destage()
    }

    /// Takes commands as far as permits allow, into the command pipeline.
    #[inline(always)]
    fn fetch(&mut self) {
        if self.host.has_waiting() && !self.is_recovering() {
            while let Some(permit) = self.host.fetch() {
                self.enter_pipeline(permit);
            }
        }
    }

    /// A command that was taken enters the command pipeline.
    #[inline(always)]
    fn enter_pipeline(&mut self, permit: Permit) {
        self.block.admit(&self.cx, &self.ftl, &self.host, permit);
        self.cx.enter_pipeline(Event::Command { slot: permit.index().into() });
    }

    #[inline(always)]
    fn complete(&mut self, slot: u16) {
        let completion = self.host.complete(Permit::from_index(slot), self.block.status(slot), 0);
        if self.has_output() {
            cold_path();
            self.cx.outputs.push_back(Output::Complete(completion));
        } else {
            self.completion = Some(completion);
        }
        if self.window.is_draining() {
            cold_path();
            self.go_on_draining();
        }
        self.fetch();
    }
}

/// The memories of a device, each with one port: uses of one memory share its bandwidth.
struct Ports<'a> {
    profile: &'a Profile,
    placement: &'a Placement,
    names: Vec<&'a str>,
    memories: Vec<MemoryPort>,
}

impl Ports<'_> {
    /// The port of a use; `usize::MAX`: it has none here.
    fn of(&mut self, used: Use) -> usize {
        // Host memory has its own way there, over the link.
        let lent = |placed: &Placed| placed.memory.kind == MemoryKind::Host;
        let placed = self.placement.of(used).filter(|placed| !(lent(placed) && used.is_carried()));
        let Some(placed) = placed else { return usize::MAX };
        if let Some(known) = self.names.iter().position(|&name| name == placed.memory.name) {
            return known;
        }
        self.names.push(&placed.memory.name);
        let mut memory = placed.memory.clone();
        if lent(placed) {
            // The way there, without the competition of other traffic.
            let link = &self.profile.link;
            memory.read_latency += link.latency * 2;
            memory.write_latency += link.latency;
            memory.bandwidth = memory.usable().min(lane_bytes_per_second(link.generation) * u64::from(link.lanes));
            memory.efficiency = 1.0;
        }
        self.memories.push(MemoryPort::new(&memory));
        self.memories.len() - 1
    }
}
