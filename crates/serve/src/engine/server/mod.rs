//! The device's thread: takes in messages, runs the drive loop, and sleeps when it is idle.

mod control;
mod linger;
mod open;
mod power;
mod scheduling;
mod sleep;
mod start;

use self::linger::Linger;
use self::open::Drive;
use self::power::Power;
use super::{Came, Counters, DeviceClock, Engine, Event, Firmware, InputLog, ServeError, Setup, Turn, wrong};
use crate::control::Answer;
use crate::vfio_user::{self, PciMessage, Waker};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration as WallDuration, Instant as Wall};
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::{Clock as _, Machine as _, drive};
use tidewater_core::profile::Timing;
use tidewater_core::subsystem::{Fault, Input};
use tidewater_wire::nvme::register::{ShutdownStatus, offset};

/// A device with peers does so only for this time after clients or log bytes have come.
const BUSY: WallDuration = WallDuration::from_millis(2);
/// Turns in which nothing happens before the thread looks at a clock: a turn takes less than that.
const QUIET_TURNS: u32 = 8;
/// Turns after which the thread lets time pass for a host's timers.
const TIMED_TURNS: u32 = 4;

/// A device that is served.
pub struct Server {
    /// `None`: there is no power.
    firmware: Option<Firmware>,
    clock: DeviceClock,
    engine: Engine,
    waker: Arc<Waker>,
    /// Dropped to stop serving PCIe functions.
    sockets: Vec<vfio_user::Server>,
    setup: Setup,
    drive: Drive,
    power: Power,
    started: Wall,
    /// When clients or log bytes of peers came last; noted of devices with peers.
    busy_at: Wall,
    /// A stop was requested: the clients to answer once the device has ended.
    ending: Option<Vec<Sender<Answer>>>,
    /// Turns since the thread has slept.
    turns: u32,
}

/// How a served device ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Counts of its work.
    pub counters: Counters,
    /// Since it was started.
    pub wall: WallDuration,
    /// It is to be started anew: its disk was full, and has room again.
    pub again: bool,
    /// Faults that have struck, in words.
    pub struck: Option<String>,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [reads, writes, flushes, others] = self.counters.commands;
        writeln!(
            f,
            "clean shutdown after {:.1} s: {reads} reads, {writes} writes, {flushes} flushes, {others} other \
             commands, {} errors",
            self.wall.as_secs_f64(),
            self.counters.errors
        )?;
        self.struck.as_ref().map_or(Ok(()), |struck| writeln!(f, "faults that struck: {struck}"))
    }
}

impl Server {
    /// Serves until it is asked to end.
    ///
    /// # Errors
    /// When the drive can't be brought back after a power cut, or its end could not be stored.
    pub fn run(mut self, notify: &mut dyn FnMut(Event)) -> Result<Ended, ServeError> {
        scheduling::shorten();
        scheduling::end_sleeps_on_time();
        self.publish_registers();
        // Since `last` nothing has happened, in so many turns.
        let (mut last, mut quiet) = (Wall::now(), 0u32);
        let (mut linger, mut has_slept) = (Linger::new(), false);
        loop {
            let mut active = self.turn(notify)?;
            let is_over = self.engine.cx.now.since(Instant::ZERO) >= self.setup.serve_time;
            if (self.setup.stop.load(Ordering::Relaxed) || is_over) && self.ending.is_none() {
                if is_over && !self.setup.stop.load(Ordering::Relaxed) {
                    notify(Event::Note(format!(
                        "the device has been served for {} of its time, and its clock does not hold much more: it ends \
                         cleanly; start it again",
                        self.setup.serve_time
                    )));
                }
                self.begin_ending(None);
                active = true;
            }
            if self.ending.is_some() && self.has_ended() {
                return self.end();
            }
            if self.ending.is_none() && self.has_room_again() {
                notify(Event::Note("the disk of the image has room again: the device starts itself anew".into()));
                let ended = self.ended(true);
                // The next start finds what a crash would have left, and this process's files closed.
                let _ = self.engine.record.end();
                let _ = std::fs::remove_file(&self.setup.control);
                return Ok(ended);
            }
            if active || self.engine.rings.poll_doorbells() {
                if quiet >= QUIET_TURNS && self.engine.group.carrier().is_none() {
                    linger.came(last.elapsed(), has_slept);
                }
                (quiet, has_slept) = (0, false);
            } else {
                quiet = quiet.saturating_add(1);
                if self.engine.group.carrier().is_some() {
                    // What it waits for may be another process's turn: on a machine with few cores that turn comes now.
                    std::thread::yield_now();
                }
            }
            if quiet == QUIET_TURNS {
                last = Wall::now();
            } else if quiet > QUIET_TURNS
                && quiet.is_multiple_of(QUIET_TURNS)
                && (last.elapsed() > linger.time()
                    || self.engine.group.carrier().is_some() && self.busy_at.elapsed() > BUSY)
            {
                self.sleep(last);
                (self.turns, has_slept) = (0, true);
            }
        }
    }

    /// One look around, and what follows from it. True: something happened.
    fn turn(&mut self, notify: &mut dyn FnMut(Event)) -> Result<bool, ServeError> {
        if self.power.off_until().is_some_and(|until| Wall::now() >= until) {
            self.restore_power(notify)?;
        }
        let mut active = self.take_mail();
        if self.firmware.is_none() {
            self.engine.hosts.drop_transfers();
            self.engine.hosts.refuse_messages();
            return Ok(active);
        }
        if self.turns.is_multiple_of(TIMED_TURNS) {
            self.pass_time();
        }
        self.turns = self.turns.wrapping_add(1);
        self.engine.cx.now = self.clock.now();
        active |= self.engine.take_transfers(powered(&self.firmware));
        active |= self.take_messages();
        let wall = self.wall();
        active |= self.engine.poll_connections(powered(&self.firmware), wall);
        let (any, came) = self.engine.poll(powered(&self.firmware), wall);
        active |= any;
        self.engine.cx.notes.drain(..).for_each(&mut *notify);
        // Signs of life come all the time: they are no reason to stay awake.
        let is_busy = active || came == Came::Log;
        active |= came != Came::Nothing || !self.engine.cx.pending.is_empty();
        let firmware = self.firmware.as_mut().expect("looked at above");
        firmware.hurries = self.engine.rings.wait(firmware.subsystem.device().fast(), true);
        if !self.is_quiet() {
            active |= self.run_firmware();
            active |= self.engine.ends_soon(powered(&self.firmware));
        }
        self.engine.housekeeping(powered(&self.firmware));
        if is_busy && self.engine.group.carrier().is_some() {
            self.busy_at = Wall::now();
        }
        if let Some(off) = self.engine.faults.take_cut(powered(&self.firmware)) {
            self.cut_power(off)?;
        }
        Ok(active)
    }

    /// Lets time pass for a drive that is not paced: it does its work at once, but what a host's timers wait for comes
    /// in its time.
    fn pass_time(&mut self) {
        let firmware = self.firmware.as_mut().expect("there is power");
        let due = firmware.subsystem.deadline().filter(|_| firmware.timing == Timing::None);
        if let Some(now) = self.clock.pass(due) {
            firmware.passed = now;
        }
    }

    /// Whether the drive loop would find nothing to do: on a drive that has neither a log nor a byte window, whose
    /// stores follow from it.
    fn is_quiet(&self) -> bool {
        let firmware = powered(&self.firmware);
        let device = firmware.subsystem.device();
        // At the model's pace, what a command waits for is waited for in the loop.
        let is_early = firmware.deadline().is_none_or(|at| {
            firmware.timing == Timing::Model && firmware.subsystem.outstanding() == 0 && at > self.engine.cx.now
        });
        self.engine.cx.pending.is_empty()
            && !firmware.has_output()
            && is_early
            && !device.fast().is_enabled()
            && !device.window().is_enabled()
    }

    /// Runs the drive loop until nothing is due. True: it did something.
    fn run_firmware(&mut self) -> bool {
        let firmware = self.firmware.as_mut().expect("there is power");
        let before = firmware.subsystem.device().events_handled();
        self.engine.before_drive();
        drive(firmware, &mut self.clock, &mut self.engine);
        self.engine.after_drive(firmware);
        let any = firmware.subsystem.device().events_handled() != before;
        self.publish_registers();
        any
    }

    /// Publishes the registers that drivers poll, unless inputs wait that may change them.
    fn publish_registers(&self) {
        if self.engine.cx.pending.is_empty() {
            self.engine.hosts.publish_registers(self.firmware.as_ref());
        }
    }

    /// Takes the messages of clients of PCIe functions, in order.
    fn take_messages(&mut self) -> bool {
        let mut any = false;
        for function in 0..self.engine.hosts.functions.all().len() {
            while let Some(message) = self.engine.hosts.functions.all_mut()[function].mailbox.take() {
                any = true;
                self.on_message(function, message);
            }
        }
        any
    }

    fn on_message(&mut self, function: usize, message: PciMessage) {
        let Engine { cx, hosts, .. } = &mut self.engine;
        hosts.look_before_message(&mut Turn { cx, firmware: powered(&self.firmware) }, function);
        match message {
            PciMessage::Read { region, offset, len, reply } => {
                // Behind all that was written before.
                if !cx.pending.is_empty() {
                    self.run_firmware();
                }
                let mut bytes = vec![0; len as usize];
                self.engine.region_read(powered(&self.firmware), function, (region, offset), &mut bytes);
                reply.send(Ok(&bytes));
            }
            PciMessage::Write { region, offset, bytes } => {
                self.engine.region_write(powered(&self.firmware), function, (region, offset), &bytes);
            }
            PciMessage::Reset { reply } => {
                hosts.reset(cx, function);
                self.run_firmware();
                reply.send(Ok(&[]));
            }
            PciMessage::Connected(connection) => {
                tracing::debug!(function, "a client is attached");
                hosts.functions.all_mut()[function].connection = Some(connection);
            }
            PciMessage::Disconnected => {
                tracing::debug!(function, "the client is gone");
                hosts.functions.all_mut()[function].connection = None;
                hosts.reset(cx, function);
            }
        }
    }

    /// The wall's time, for connections: they are of this world, whatever the drive's clock says.
    fn wall(&self) -> Instant {
        Instant::ZERO + Duration::from_ps((self.started.elapsed().as_nanos() as u64).saturating_mul(1_000))
    }

    // --- power ---

    fn cut_power(&mut self, off: WallDuration) -> Result<usize, ServeError> {
        let firmware = self.firmware.take().expect("looked at by the caller");
        let lost = self.power.cut(&mut self.engine, firmware, Wall::now() + off)?;
        self.publish_registers();
        Ok(lost)
    }

    fn restore_power(&mut self, notify: &mut dyn FnMut(Event)) -> Result<(), ServeError> {
        self.firmware = self.power.restore(&mut self.engine, (&self.setup, &self.drive), &self.waker, notify)?;
        if let Some(firmware) = &self.firmware {
            self.clock.reset(firmware.subsystem.device().now());
        }
        Ok(())
    }

    // --- the end ---

    fn begin_ending(&mut self, answer: Option<Sender<Answer>>) {
        if self.ending.is_none() {
            // No host comes any more, and what those that are there had asked for is dropped with their connections.
            self.sockets.clear();
            self.engine.hosts.close_connections();
            self.engine.group.set_carrier(None);
            // What clients still wanted comes too late, and that they have gone must not reset what begins now.
            self.engine.hosts.refuse_messages();
            if let Some(firmware) = &self.firmware {
                let cx = &mut self.engine.cx;
                cx.now = self.clock.now();
                let functions = firmware.subsystem.options().functions;
                for function in 0..functions + firmware.subsystem.options().fabrics {
                    cx.push(if function < functions {
                        Input::FunctionReset { function }
                    } else {
                        Input::Disconnect { function }
                    });
                }
                // A shutdown that is to be stuck is one of a host's.
                cx.push(Input::Inject(Fault::Clear));
                // A shutdown empties the write buffer, by whatever way it was requested.
                let value = 1 << 14;
                cx.push(Input::Register { function: 0, offset: offset::CC, len: 4, value });
            }
        }
        self.ending.get_or_insert_default().extend(answer);
    }

    fn has_ended(&self) -> bool {
        match &self.firmware {
            Some(firmware) => {
                // SHST, bits 3:2 of CSTS, is 2 when the shutdown is complete.
                let status = firmware.subsystem.register(0, offset::CSTS, 4);
                status >> 2 & 3 == ShutdownStatus::Complete as u64 && self.engine.cx.pending.is_empty()
            }
            None => true,
        }
    }

    /// Whether the disk of the image was full and has room again.
    fn has_room_again(&mut self) -> bool {
        let has_room = self.engine.storage.has_room_again();
        self.engine.tell_of_disk();
        has_room
    }

    fn ended(&self, again: bool) -> Ended {
        let (counters, struck) = (self.engine.record.counters, self.engine.faults.tally());
        Ended { counters, wall: self.started.elapsed(), again, struck }
    }

    fn end(mut self) -> Result<Ended, ServeError> {
        let mut result = Ok(self.ended(false));
        let input_log;
        if let Some(firmware) = self.firmware.take() {
            self.engine.store_logs_and_rings(&firmware);
            let stored = self.engine.window_barrier(&firmware) && self.engine.window_barrier(&firmware);
            let Firmware { subsystem, log, .. } = firmware;
            let state = subsystem.state();
            let Engine { hosts, storage, .. } = &mut self.engine;
            let image = storage.image_mut();
            let pmrs = hosts.functions.pmrs().try_for_each(|pmr| pmr.store(image).map(drop));
            if pmrs.and_then(|()| image.save_metadata(&state)).and_then(|()| image.sync()).is_err() || !stored {
                result = Err(wrong("the image could not be written: data flushed before is safe"));
            }
            input_log = log;
        } else {
            input_log = self.power.take_log();
        }
        if let Some(Err(error)) = input_log.map(InputLog::end) {
            result = Err(wrong(format!("the input log: {error}")));
        }
        if let Err(why) = self.engine.record.end() {
            result = Err(wrong(why));
        }
        for answer in self.ending.take().unwrap_or_default() {
            let _ = answer.send(result.as_ref().map(|_| Default::default()).map_err(ToString::to_string));
        }
        let _ = std::fs::remove_file(&self.setup.control);
        result
    }
}

/// The firmware, where the caller has looked that there is power.
#[inline]
fn powered(firmware: &Option<Firmware>) -> &Firmware {
    firmware.as_ref().expect("there is power")
}
