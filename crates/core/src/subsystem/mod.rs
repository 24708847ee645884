//! An NVM subsystem: the drive with its controllers, as a host sees it (NVM Express Base Specification 1.4, section
//! 1.6).
//!
//! Registers, queues in the host's memory, admin commands and namespaces live here; what blocks mean is
//! [`crate::Device`]'s.
//!
//! Sans-IO, as the device is: [`Subsystem::handle`] takes what happens outside and the time, [`Subsystem::poll`] gives
//! what there is to do, [`Subsystem::deadline`] tells when it wants to be woken. It never holds payload.
mod admin;
mod admin_data;
mod admin_queues;
mod complete;
mod controller;
mod deadlines;
mod erase;
mod events;
mod faults;
pub mod features;
#[cfg(test)]
mod features_tests;
mod fetch;
mod host_memory;
pub mod identify;
pub mod input_log;
mod inspect;
mod interface;
mod io;
mod lifecycle;
pub mod logs;
pub mod namespaces;
#[cfg(test)]
mod namespaces_tests;
mod notify;
mod options;
mod pointers;
mod queues;
pub mod sanitize;
pub mod self_test;
mod share;
mod slots;
pub mod smart;
mod state;
#[cfg(test)]
mod tests;
mod timers;
mod vendor;
mod window;

pub use interface::*;
pub use options::{Bar2, Options, Queues, Region, ShadowDoorbells};

use crate::device::{self, Device, SetupError};
use crate::drive::Machine;
use controller::{Controller, Fixed};
use erase::Erase;
use faults::Faults;
use fetch::Line;
use host_memory::HostMemoryUse;
use options::OWN_SLOTS;
use pointers::{PAGE, Read};
use share::Shares;
use slots::Slots;
use state::State;
use std::collections::VecDeque;
use std::convert::Infallible;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand};
use tidewater_wire::nvme::Sqe;
use timers::{Timer, Timers};

/// Pieces of memory that a command's data may have, at least; one of the longest transfer needs more.
const SEGMENTS_MIN: usize = 256;

/// A command in a slot, for the carrier of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outstanding {
    /// The controller.
    pub function: u8,
    /// The submission queue; 0 is the admin queue.
    pub queue: u16,
    /// The entry, as it was read.
    pub sqe: Sqe,
    /// When it was read.
    pub begun: Instant,
}

/// A drive with its controllers.
#[derive(Clone, Debug)]
pub struct Subsystem<M: Medium = Nand> {
    device: Device<M>,
    options: Options,
    controllers: Box<[Controller]>,
    slots: Slots,
    /// Controllers whose admin queue, and whose I/O queues, have entries to read, in the order of their turns.
    admin_line: VecDeque<u8>,
    io_line: VecDeque<u8>,
    /// I/O queues with entries, by controller.
    lines: Box<[Line]>,
    /// Commands of the fast side under way.
    vendor_outstanding: u16,
    outputs: VecDeque<Output>,
    /// Interrupts, which are said when all outputs have been.
    interrupts: VecDeque<(u8, u16)>,
    timers: Timers,
    faults: Faults,
    now: Instant,
    next_version: u64,
    /// The device recovers: no controller is ready.
    recovering: bool,
    /// The backing store has failed.
    read_only: bool,
    /// Hosts know that the drive is read-only.
    told_end_of_life: bool,
    /// Hosts know that spare blocks are short.
    told_spare: bool,
    /// Programs and erases that had failed when spare blocks were counted last.
    failures_seen: u64,
    host_memory: HostMemoryUse,
    state: State,
    /// Blocks that are to be forgotten, and the commands that are waited for before the first of them are.
    erases: VecDeque<Erase>,
    erase_blockers: u32,
    block_shift: u32,
    unit_shift: u32,
    transfer_max: u64,
    segments_max: usize,
}

impl<M: Medium> Subsystem<M> {
    /// Controllers in front of a device that keeps stamps and payload.
    ///
    /// # Errors
    /// When the options contradict each other or the device, or the saved state is not one of this device.
    pub fn new(device: Device<M>, options: Options) -> Result<Subsystem<M>, SetupError> {
        options.check(&device)?;
        let bar2 = Bar2::of(&device, &options);
        let (functions, fabrics) = (usize::from(options.functions), usize::from(options.fabrics));
        let pcie = Controller::new(Fixed::of(&options, bar2, Transport::Pcie), Transport::Pcie, options.privileged);
        let fabric = Controller::new(Fixed::of(&options, bar2, Transport::Fabrics), Transport::Fabrics, false);
        let controllers: Box<[Controller]> =
            std::iter::repeat_n(pcie, functions).chain(std::iter::repeat_n(fabric, fabrics)).collect();
        let queues = controllers.len() * (usize::from(options.queues) + 1);
        let segments_max = SEGMENTS_MIN.max(options.transfer_max as usize / PAGE as usize + 1);
        let state = State::new(&device, &options)?;
        let mut subsystem = Subsystem {
            controllers,
            slots: Slots::new(
                options.slots,
                OWN_SLOTS,
                segments_max,
                Shares::new(options.slots, options.functions, options.fabrics),
            ),
            admin_line: VecDeque::with_capacity(functions + fabrics),
            io_line: VecDeque::with_capacity(functions + fabrics),
            lines: (0..functions + fabrics).map(|_| Line::new(options.queues)).collect(),
            vendor_outstanding: 0,
            outputs: VecDeque::with_capacity(4 * usize::from(options.slots)),
            interrupts: VecDeque::with_capacity(queues),
            timers: Timers::default(),
            faults: Faults::default(),
            now: device.now(),
            next_version: options.first_version,
            recovering: device.is_recovering(),
            read_only: false,
            told_end_of_life: false,
            told_spare: false,
            failures_seen: 0,
            host_memory: HostMemoryUse::default(),
            state,
            erases: VecDeque::new(),
            erase_blockers: 0,
            block_shift: device.profile().host.block_size.trailing_zeros(),
            unit_shift: device.profile().ftl.unit_size.trailing_zeros(),
            transfer_max: options.transfer_max.into(),
            segments_max,
            options,
            device,
        };
        for function in 0..subsystem.controllers.len() {
            subsystem.look_up_features(function as u8);
        }
        // What a power cut has interrupted goes on.
        subsystem.await_self_test();
        if subsystem.state.sanitize.is_running() {
            subsystem.erase_all();
        }
        // A drive that had nothing to recover may have found something in its rings.
        subsystem.take_from_device();
        Ok(subsystem)
    }

    /// Tells the subsystem what happened. `now` must not run backwards, nor past a [`Subsystem::deadline`] that was not
    /// kept.
    ///
    /// # Panics
    /// When an answer was not asked for, or time runs backwards: faults of the driver of the loop. Nothing that a host
    /// does leads here.
    #[inline]
    pub fn handle(&mut self, now: Instant, input: Input<'_>) {
        assert!(now >= self.now, "time runs backwards: {now:?} after {:?}", self.now);
        self.now = now;
        match input {
            Input::Timer => self.on_timer(),
            Input::Moved { slot, result } => self.on_moved(slot, result),
            Input::Register { function, offset, len, value } => self.write_register(function, offset, len, value),
            Input::DmaRead { token, bytes } => match Read::of(token) {
                Read::Queue { function, queue } => self.on_entries(function, queue, bytes),
                Read::List(slot) => self.on_list(slot, bytes),
            },
            Input::Capsule { function, queue, sqe } => self.on_capsule(function, queue, sqe),
            Input::Synced { slot, result } => self.on_synced(slot, result),
            Input::Doorbell { function, queue, completion, value } => {
                self.on_shadow(function, queue, completion, value);
            }
            other => self.handle_rare(other),
        }
        self.fetch();
    }

    #[inline(never)]
    fn handle_rare(&mut self, input: Input<'_>) {
        match input {
            Input::Gathered { slot, bytes } => self.on_gathered(slot, bytes),
            Input::PostFailed { function } => {
                if usize::from(function) < self.controllers.len() {
                    self.fail(function);
                }
            }
            Input::StoreFailed => self.on_store_failed(),
            Input::Connect { function, entries, privileged, keep_alive_ms } => {
                self.connect(function, entries, privileged, keep_alive_ms);
            }
            Input::ConnectQueue { function, queue, entries } => self.connect_queue(function, queue, entries),
            Input::DisconnectQueue { function, queue } => self.disconnect_queue(function, queue),
            Input::Disconnect { function } => self.disconnect(function),
            Input::FunctionReset { function } => {
                let pcie = self.controllers.get(usize::from(function)).map(|c| c.transport) == Some(Transport::Pcie);
                if pcie {
                    self.reset_function(function);
                }
            }
            Input::Store { function, address, content } => {
                self.tell_device(device::Input::Store { function, address, content });
            }
            Input::Announce { function, lane, tail, content } => {
                self.tell_device(device::Input::Announce { function, lane, tail, content });
            }
            Input::Skip { function, lane, to } => self.tell_device(device::Input::Skip { function, lane, to }),
            Input::Withhold { function, lane, from } => {
                self.tell_device(device::Input::Withhold { function, lane, from });
            }
            Input::Frame { function, frame, content } => {
                self.tell_device(device::Input::Frame { function, frame, content });
            }
            Input::Link { function, peer, up, restarted } => {
                self.tell_device(device::Input::Link { function, peer, up, restarted });
            }
            Input::PeersTime { now } => self.tell_device(device::Input::PeersTime { now }),
            Input::RoundTrip { function, peer, time } => {
                self.tell_device(device::Input::RoundTrip { function, peer, time });
            }
            Input::CatchUpRate { function, bytes_per_second } => {
                self.tell_device(device::Input::CatchUpRate { function, bytes_per_second });
            }
            Input::Flush { function, lane, to } => self.tell_device(device::Input::Flush { function, lane, to }),
            Input::Flushed { function, lane, to, version } => {
                self.tell_device(device::Input::Flushed { function, lane, to, version });
            }
            Input::Group { function, command } => self.tell_device(device::Input::Group { function, command }),
            Input::HostMemory { ticket, answer } => self.on_host_answer(ticket, answer),
            Input::Inject(fault) => self.inject(fault),
            Input::LoadedOutside { function } => {
                if usize::from(function) < self.controllers.len() {
                    self.device.window_loaded_outside();
                }
            }
            Input::WindowFill { lpn, content } => {
                self.tell_device(device::Input::WindowFill { lpn, content });
                if self.recovering && !self.device.is_recovering() {
                    self.on_recovered(); // It was the last thing that the way back waited for.
                }
            }
            Input::Timer
            | Input::Moved { .. }
            | Input::Register { .. }
            | Input::DmaRead { .. }
            | Input::Capsule { .. }
            | Input::Synced { .. }
            | Input::Doorbell { .. } => unreachable!("handled above"),
        }
    }

    fn tell_device(&mut self, input: device::Input<'_>) {
        let taken = self.device.handle(self.now, input);
        debug_assert!(taken.is_ok(), "only Submit is refused");
        self.take_from_device();
    }

    /// One event that is due: the device's, or one of the subsystem's own.
    #[inline]
    fn on_timer(&mut self) {
        let own = self.timers.next_at();
        if own.is_some_and(|at| at <= self.now && self.device.deadline().is_none_or(|device| at <= device)) {
            return self.on_own_timer();
        }
        let taken = self.device.handle(self.now, device::Input::Timer);
        debug_assert!(taken.is_ok(), "only Submit is refused");
        if self.device.has_output() {
            self.take_from_device();
        }
        let statistics = &self.device.ftl().statistics;
        if statistics.program_failures + statistics.erase_failures != self.failures_seen {
            self.on_flash_failed();
        }
        if self.recovering && !self.device.is_recovering() {
            self.on_recovered();
        }
    }

    #[cold]
    fn on_own_timer(&mut self) {
        let Some(timer) = self.timers.pop_due(self.now) else { return };
        let current = |function: u8, generation| self.controllers[usize::from(function)].generation == generation;
        match timer {
            Timer::Coalesced { function, queue, generation } if current(function, generation) => {
                self.on_coalesced(function, queue);
            }
            Timer::Late { function, posting, generation } if current(function, generation) => {
                self.on_late(function, posting);
            }
            Timer::HostMemory { ticket, answer } => self.on_late_host_answer(ticket, answer),
            Timer::SelfTest => self.on_self_test(),
            Timer::KeepAlive { function, generation } => self.on_keep_alive(function, generation),
            Timer::Coalesced { .. } | Timer::Late { .. } => {} // A reset came before it.
        }
    }

    /// The next thing that there is to do.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        match self.outputs.pop_front() {
            Some(output) => Some(output),
            None => self.next_interrupt(),
        }
    }

    /// Whether [`Subsystem::poll`] has something.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.outputs.is_empty() || !self.interrupts.is_empty()
    }

    /// When it wants to be woken.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match (self.device.deadline(), self.timers.next_at()) {
            (Some(device), Some(own)) => Some(device.min(own)),
            (device, own) => device.or(own),
        }
    }

    /// What the host reads of a controller's BAR0 (or by Property Get): `len` bytes, 1 to 8, little-endian, at any
    /// offset.
    pub fn register(&self, function: u8, offset: u32, len: u8) -> u64 {
        self.controllers.get(usize::from(function)).map_or(u64::MAX, |c| c.register(offset, len))
    }

    /// What the host reads of a function's BAR2 outside of the slice for queues: `len` bytes, 1 to 8.
    pub fn load(&self, function: u8, address: u64, len: u8) -> u64 {
        match self.device.window_peek(function, address, len) {
            Some((value, _)) => value,
            None => self.device.load(function.into(), address, len.into()),
        }
    }

    /// Where a command's data is at the host, from [`Output::Fetch`], [`Output::Gather`], [`Output::Data`] or
    /// [`Output::Send`] until it is answered.
    #[inline]
    pub fn segments(&self, slot: Slot) -> Segments<'_> {
        let command = &self.slots[slot];
        match self.controllers[usize::from(command.function)].transport {
            Transport::Pcie => Segments::Host(&command.segments),
            Transport::Fabrics => Segments::Connection,
        }
    }

    /// The command of a slot, from its first output until its [`Output::Complete`]. `None`: the slot is free, or the
    /// subsystem's own.
    pub fn command(&self, slot: Slot) -> Option<Outstanding> {
        let command = self.slots.get(slot).filter(|command| command.function != slots::OWN)?;
        Some(command.outstanding())
    }

    /// Slots, the subsystem's own included: [`Output::Sync`] may name any, all others only those of commands.
    pub fn slots(&self) -> u16 {
        self.options.slots + OWN_SLOTS
    }

    /// Where a function's shadow doorbells are, if the host has set them (Doorbell Buffer Config).
    pub fn shadow_doorbells(&self, function: u8) -> Option<ShadowDoorbells> {
        let c = self.controllers.get(usize::from(function))?;
        let (address, _) = c.shadow.filter(|_| c.is_running())?;
        // The admin queue, number 0, has no shadow.
        let Queues { submission, completion, .. } = self.queues(function);
        Some(ShadowDoorbells { address, submission: submission & !1, completion: completion & !1 })
    }

    /// The memory that a function's host lends (host memory buffer), from Set Features until it is taken back.
    pub fn host_memory(&self, function: u8) -> &[Segment] {
        self.controllers.get(usize::from(function)).map_or(&[], |c| &c.host_memory)
    }

    /// What bus addresses of a function mean: its controller memory buffer and persistent memory region lie where the
    /// host has put them (CMBMSC, PMRMSC), and everything else is the host's memory.
    #[inline]
    pub fn region(&self, function: u8, address: u64, len: u32) -> Region {
        self.controllers.get(usize::from(function)).map_or(Region::Host, |c| c.region(address, len))
    }

    /// What is where in every function's BAR2.
    pub fn bar2(&self) -> Bar2 {
        Bar2::of(&self.device, &self.options)
    }

    /// How it was made.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The version that the next write gets.
    pub fn next_version(&self) -> u64 {
        self.next_version
    }

    /// The drive.
    pub fn device(&self) -> &Device<M> {
        &self.device
    }

    /// The drive, for what no host does.
    pub fn device_mut(&mut self) -> &mut Device<M> {
        &mut self.device
    }

    /// The drive alone, for a power cut: what the controllers held is gone.
    pub fn into_device(self) -> Device<M> {
        self.device
    }

    /// What of the subsystem's own state outlives a power cut: namespaces, saved features, health. After each
    /// [`Output::SaveState`], and at a clean end, it is stored beside the drive's content, for [`Options::state`].
    pub fn state(&self) -> Vec<u8> {
        self.state.to_bytes(self.now)
    }

    /// The namespaces.
    pub fn namespaces(&self) -> &namespaces::Namespaces {
        &self.state.namespaces
    }

    /// A sanitize operation runs: what is purged ([`Output::Purge`]) is all that hosts have stored, whatever holds it.
    pub fn is_sanitizing(&self) -> bool {
        self.state.sanitize.is_running()
    }

    /// The health log of the subsystem, as Get Log Page tells it.
    pub fn health(&self) -> tidewater_wire::nvme::log::SmartLog {
        self.state.smart.log(self.now, &state::flash_of(&self.device, self.read_only), false)
    }
}

impl<M: Medium> Machine for Subsystem<M> {
    type Input<'a> = Input<'a>;
    type Output = Output;
    type Refused = Infallible;

    #[inline]
    fn handle(&mut self, now: Instant, input: Input<'_>) -> Result<(), Infallible> {
        Subsystem::handle(self, now, input);
        Ok(())
    }

    #[inline]
    fn on_deadline(&mut self, now: Instant) {
        Subsystem::handle(self, now, Input::Timer);
    }

    #[inline]
    fn poll(&mut self) -> Option<Output> {
        Subsystem::poll(self)
    }

    #[inline]
    fn has_output(&self) -> bool {
        Subsystem::has_output(self)
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        Subsystem::deadline(self)
    }
}
