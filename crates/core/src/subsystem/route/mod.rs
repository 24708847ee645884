//! Inputs, and results of rooms, go to the rooms that they concern: the one place that knows all of them.

mod admin;
mod entries;
mod erases;
mod io;
mod lifecycle;
mod vendor;
mod views;

use super::admin_data::erase_all;
use super::context::Context;
use super::controllers::Controllers;
use super::erase::Erases;
use super::health::Health;
use super::host_memory::HostMemoryUse;
use super::interface::{Input, Output, Transport};
use super::options::{Bar2, Options};
use super::slots::Slots;
use super::state::State;
use super::timers::{Timer, Timers};
use super::tokens::Read;
use crate::device::{self, Device, SetupError};
use std::collections::VecDeque;
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand};

/// A drive with its controllers.
#[derive(Clone, Debug)]
pub struct Subsystem<M: Medium = Nand> {
    device: Device<M>,
    options: Options,
    cx: Context,
    controllers: Controllers,
    slots: Slots,
    /// Blocks that are to be forgotten.
    erases: Erases,
    host_memory: HostMemoryUse,
    health: Health,
    /// The device recovers: no controller is ready.
    recovering: bool,
}

impl<M: Medium> Subsystem<M> {
    /// Controllers in front of a device that keeps stamps and payload.
    ///
    /// # Errors
    /// When the options contradict each other or the device, or the saved state is not one of this device.
    pub fn new(device: Device<M>, options: Options) -> Result<Subsystem<M>, SetupError> {
        options.check(&device)?;
        let profile = device.profile();
        let shifts = (profile.host.block_size.trailing_zeros(), profile.ftl.unit_size.trailing_zeros());
        let mut subsystem = Subsystem {
            cx: Context {
                now: device.now(),
                outputs: VecDeque::with_capacity(4 * usize::from(options.slots)),
                timers: Timers::default(),
                state: State::new(&device, &options)?,
            },
            controllers: Controllers::new(&options, Bar2::of(&device, &options)),
            slots: Slots::new(&options, shifts.0, shifts.1),
            erases: Erases::default(),
            host_memory: HostMemoryUse::default(),
            health: Health::default(),
            recovering: device.is_recovering(),
            options,
            device,
        };
        for function in subsystem.controllers.numbers() {
            subsystem.controllers.look_up_features(&subsystem.cx, function);
        }
        // What a power cut has interrupted goes on.
        subsystem.cx.await_self_test();
        if subsystem.cx.state.sanitize.is_running() {
            subsystem.erase(erase_all(&subsystem.device));
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
        assert!(now >= self.cx.now, "time runs backwards: {now:?} after {:?}", self.cx.now);
        self.cx.now = now;
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
                self.controllers.on_shadow(&mut self.cx, function, queue, completion, value);
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
                if self.controllers.get(function).is_some() {
                    self.controllers.fail(function);
                }
            }
            Input::StoreFailed => self.on_store_failed(),
            Input::Connect { function, entries, privileged, keep_alive_ms } => {
                self.controllers.connect(&mut self.cx, function, entries, privileged, keep_alive_ms);
            }
            Input::ConnectQueue { function, queue, entries } => {
                self.controllers.connect_queue(function, queue, entries)
            }
            Input::DisconnectQueue { function, queue } => self.disconnect_queue(function, queue),
            Input::Disconnect { function } => {
                if self.controllers.disconnect(function) {
                    self.reset_function(function);
                }
            }
            Input::FunctionReset { function } => {
                if self.controllers.get(function).is_some_and(|c| c.transport == Transport::Pcie) {
                    self.reset_function(function);
                }
            }
            Input::Store { function, address, content } => {
                self.tell_device(device::Input::Store { function, address, content });
            }
            Input::Log { function, input } => self.tell_device(device::Input::Log { function, input }),
            Input::PeersTime { now } => self.tell_device(device::Input::PeersTime { now }),
            Input::HostMemory { ticket, answer } => {
                if let Some(answer) = self.host_memory.answer(&mut self.cx, ticket, answer) {
                    self.tell_device(device::Input::HostMemory { ticket, answer });
                }
            }
            Input::Inject(fault) => self.inject(fault),
            Input::LoadedOutside { function } => {
                if self.controllers.get(function).is_some() {
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

    /// An input for the device, whose outputs are taken at once.
    fn tell_device(&mut self, input: device::Input<'_>) {
        let taken = self.device.handle(self.cx.now, input);
        debug_assert!(taken.is_ok(), "only Submit is refused");
        self.take_from_device();
    }

    fn on_recovered(&mut self) {
        self.recovering = false;
        self.controllers.on_recovered(&mut self.cx);
    }

    /// One event that is due: the device's, or one of the subsystem's own.
    #[inline]
    fn on_timer(&mut self) {
        let own = self.cx.timers.next_at();
        if own.is_some_and(|at| at <= self.cx.now && self.device.deadline().is_none_or(|device| at <= device)) {
            return self.on_own_timer();
        }
        let taken = self.device.handle(self.cx.now, device::Input::Timer);
        debug_assert!(taken.is_ok(), "only Submit is refused");
        if self.device.has_output() {
            self.take_from_device();
        }
        if self.health.has_news(&self.device) {
            self.health.look_for_short_spares(&mut self.cx, &mut self.controllers, &self.device);
        }
        if self.recovering && !self.device.is_recovering() {
            self.on_recovered();
        }
    }

    #[cold]
    fn on_own_timer(&mut self) {
        let Some(timer) = self.cx.timers.pop_due(self.cx.now) else { return };
        let controllers = &mut self.controllers;
        let current = |function: u8, generation| controllers[function].generation == generation;
        match timer {
            Timer::Coalesced { function, queue, generation } if current(function, generation) => {
                controllers.on_coalesced(function, queue);
            }
            Timer::Late { function, posting, generation } if current(function, generation) => {
                controllers.on_late(&mut self.cx, function, posting);
            }
            Timer::HostMemory { ticket, answer } => self.tell_device(device::Input::HostMemory { ticket, answer }),
            Timer::SelfTest => self.on_self_test(),
            Timer::KeepAlive { function, generation } => controllers.on_keep_alive(&mut self.cx, function, generation),
            Timer::Coalesced { .. } | Timer::Late { .. } => {} // A reset came before it.
        }
    }

    /// The next thing that there is to do.
    #[inline]
    pub fn poll(&mut self) -> Option<Output> {
        match self.cx.outputs.pop_front() {
            Some(output) => Some(output),
            None => self.controllers.next_interrupt(),
        }
    }

    /// Whether [`Subsystem::poll`] has something.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.cx.outputs.is_empty() || self.controllers.has_interrupt()
    }

    /// When it wants to be woken.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match (self.device.deadline(), self.cx.timers.next_at()) {
            (Some(device), Some(own)) => Some(device.min(own)),
            (device, own) => device.or(own),
        }
    }
}
