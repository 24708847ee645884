//! The device's thread: takes in messages, runs the drive loop, and sleeps when it is idle.

mod regions;
mod scheduling;
mod sleep;
mod start;

use self::sleep::Linger;
use self::start::{peers, recover, target};
use crate::control::{Answer, Request};
use crate::engine::clock::DeviceClock;
use crate::engine::events::{Event, ServeError, wrong};
use crate::engine::firmware::{Firmware, InputLog};
use crate::engine::group::Came;
use crate::engine::hosts::function::Port;
use crate::engine::mail::Message;
use crate::engine::record::Counters;
use crate::engine::route::World;
use crate::engine::setup::{DriveSetup, Setup, TcpSetup};
use crate::engine::views::live::moment;
use crate::engine::views::status;
use crate::nvme_tcp::Border;
use crate::peers::PeersSetup;
use crate::vfio_user;
use crate::vfio_user::Waker;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration as WallDuration, Instant as Wall};
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::{Clock as _, Machine as _, drive};
use tidewater_core::profile::{Profile, Timing};
use tidewater_core::subsystem::{Fault, Input, Slot, Subsystem};
use tidewater_core::{Device, Remains};
use tidewater_nand::{Nand, Recorder};
use tidewater_wire::nvme::register::{ShutdownStatus, offset};

/// A device with peers does so only for this time after clients or log bytes have come.
const BUSY: WallDuration = WallDuration::from_millis(2);
/// Turns in which nothing happens before the thread looks at a clock: a turn takes less than that.
const QUIET_TURNS: u32 = 8;
/// Turns after which the thread lets time pass for a host's timers.
const TIMED_TURNS: u32 = 4;
/// How often the drive loop goes on with log bytes that no client waits for, before the engine polls its inputs.
const UNPACED_TURNS: u32 = 256;
/// The longest time without power.
const OFF_MAX: WallDuration = WallDuration::from_secs(86_400);

/// A device that is served.
pub struct Server {
    pub(crate) firmware: Option<Firmware>,
    pub(crate) clock: DeviceClock,
    pub(crate) world: World<Message>,
    pub(crate) waker: Arc<Waker>,
    /// Dropped to stop serving PCIe functions.
    sockets: Vec<vfio_user::Server>,
    pub(crate) setup: Setup,
    drive_setup: DriveSetup,
    pub(crate) profile: Profile,
    started: Wall,
    /// When clients or log bytes of peers came last; noted of devices with peers.
    busy_at: Wall,
    /// A stop was requested: the clients to answer once the device has ended.
    ending: Option<Vec<Sender<Answer>>>,
    /// Makes serial number and NQN.
    identity: u64,
    /// There is no power: what is left of the drive.
    pub(crate) powered_off: Option<PoweredOff>,
    tcp_address: Option<SocketAddr>,
    /// Where peers reached it before a power cut.
    peers_address: Option<SocketAddr>,
    power_cuts: u64,
    /// When time was last let pass, while the drive is not paced and something is due.
    looked: Option<Wall>,
    /// Turns since the thread has slept.
    turns: u32,
}

/// A drive without power.
pub(crate) struct PoweredOff {
    pub(crate) until: Wall,
    remains: Remains<Recorder<Nand>>,
    state: Vec<u8>,
    next_version: u64,
    log: Option<InputLog>,
}

/// How a served device ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What it has done.
    pub counters: Counters,
    /// Since it was started.
    pub wall: WallDuration,
    /// It is to be started anew: its disk was full, and has room again.
    pub again: bool,
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
        )
    }
}

impl Server {
    #[allow(clippy::too_many_arguments, reason = "called once, by what makes all of them")]
    pub(crate) fn new(
        firmware: Firmware,
        clock: DeviceClock,
        world: World<Message>,
        waker: Arc<Waker>,
        sockets: Vec<vfio_user::Server>,
        setup: Setup,
        drive_setup: DriveSetup,
        profile: Profile,
        identity: u64,
    ) -> Server {
        Server {
            firmware: Some(firmware),
            clock,
            world,
            waker,
            sockets,
            setup,
            drive_setup,
            profile,
            started: Wall::now(),
            busy_at: Wall::now(),
            ending: None,
            identity,
            powered_off: None,
            tcp_address: None,
            peers_address: None,
            power_cuts: 0,
            looked: None,
            turns: 0,
        }
    }

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
            let is_over = self.world.cx.now.since(Instant::ZERO) >= self.setup.serve_time;
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
                let ended = Ended { counters: self.world.record.counters, wall: self.started.elapsed(), again: true };
                // The next start finds what a crash would have left, and this process's files closed.
                let _ = self.world.record.end();
                let _ = std::fs::remove_file(&self.setup.control);
                return Ok(ended);
            }
            if active || self.world.poll_doorbells() {
                if quiet >= QUIET_TURNS && self.world.peers.is_none() {
                    linger.came(last.elapsed(), has_slept);
                }
                (quiet, has_slept) = (0, false);
            } else {
                quiet = quiet.saturating_add(1);
                if self.world.peers.is_some() {
                    // What it waits for may be another process's turn: on a machine with few cores that turn comes now.
                    std::thread::yield_now();
                }
            }
            if quiet == QUIET_TURNS {
                last = Wall::now();
            } else if quiet > QUIET_TURNS
                && quiet.is_multiple_of(QUIET_TURNS)
                && (last.elapsed() > linger.time() || self.world.peers.is_some() && self.busy_at.elapsed() > BUSY)
            {
                self.sleep(last);
                (self.turns, has_slept) = (0, true);
            }
        }
    }

    /// One look around, and what follows from it. True: something happened.
    fn turn(&mut self, notify: &mut dyn FnMut(Event)) -> Result<bool, ServeError> {
        if self.powered_off.as_ref().is_some_and(|powered_off| Wall::now() >= powered_off.until) {
            self.power_on(notify)?;
        }
        let mut active = self.take_mail();
        if self.firmware.is_none() {
            self.world.drop_transfers();
            self.refuse_messages();
            return Ok(active);
        }
        if self.turns.is_multiple_of(TIMED_TURNS) {
            self.pass_time();
        }
        self.turns = self.turns.wrapping_add(1);
        self.world.cx.now = self.clock.now();
        active |= self.world.take_transfers(self.firmware.as_ref().expect("looked at above"));
        active |= self.take_messages();
        active |= self.poll_target();
        let now = self.wall();
        let came = self.world.poll_peers(now, self.firmware.as_ref().expect("looked at above"));

        self.world.storage.resume_synced(&mut self.world.cx);
        active |= self.world.look_at_doorbells(self.firmware.as_ref().expect("looked at above"));
        active |= self.world.look_at_rings(self.firmware.as_ref().expect("looked at above"));
        self.world.cx.notes.drain(..).for_each(&mut *notify);
        // Signs of life come all the time: they are no reason to stay awake.
        let is_busy = active || came == Came::Log;
        active |= came != Came::Nothing || !self.world.cx.pending.is_empty();
        let firmware = self.firmware.as_mut().expect("looked at above");
        firmware.hurries = self.world.rings_wait(firmware, true);
        if !self.is_quiet() {
            active |= self.drive();
            active |= self.world.ends_soon(self.firmware.as_ref().expect("looked at above"));
        }
        self.housekeeping();
        if is_busy && self.world.peers.is_some() {
            self.busy_at = Wall::now();
        }
        Ok(active)
    }

    /// Whether the disk of the image was full and has room again.
    fn has_room_again(&mut self) -> bool {
        let has_room = self.world.storage.has_room_again();
        self.world.tell_of_disk();
        has_room
    }

    /// A drive that is not paced does its work at once, but what a host's timers wait for comes in its time: the
    /// wall's, up to the next thing that is due.
    fn pass_time(&mut self) {
        let firmware = self.firmware.as_mut().expect("there is power");
        let due = firmware.subsystem.deadline().filter(|_| self.profile.serve.timing == Timing::None);
        let Some(due) = due else {
            self.looked = None;
            return;
        };
        let wall = Wall::now();
        if let Some(before) = self.looked.replace(wall) {
            let passed = Duration::from_ps(((wall - before).as_nanos() as u64).saturating_mul(1_000));
            self.clock.skip_to(due.min(self.clock.now() + passed));
        }
        firmware.passed = self.clock.now();
    }

    /// Whether the drive loop would find nothing to do: on a drive that has neither a log nor a byte window, whose
    /// stores follow from it.
    fn is_quiet(&self) -> bool {
        let firmware = self.firmware.as_ref().expect("there is power");
        let device = firmware.subsystem.device();
        // At the model's pace, what a command waits for is waited for in the loop.
        let is_early = firmware.deadline().is_none_or(|at| {
            firmware.timing == Timing::Model && firmware.subsystem.outstanding() == 0 && at > self.world.cx.now
        });
        self.world.cx.pending.is_empty()
            && !firmware.has_output()
            && is_early
            && !device.fast().is_enabled()
            && !device.window().is_enabled()
    }

    /// Runs the drive loop until nothing is due. True: it did something.
    fn drive(&mut self) -> bool {
        let firmware = self.firmware.as_mut().expect("there is power");
        let before = firmware.subsystem.device().events_handled();
        self.world.unpaced_turns = UNPACED_TURNS;
        drive(firmware, &mut self.clock, &mut self.world);
        self.world.store_logs(firmware);
        self.world.follow_epochs(firmware);
        self.world.flush_for_peers(firmware);
        self.world.note_ends(firmware);
        self.world.publish_rings(firmware);
        let any = firmware.subsystem.device().events_handled() != before;
        self.publish_registers();
        any
    }

    /// Housekeeping of a turn: versions of pages that are not needed any more, bytes for connections.
    fn housekeeping(&mut self) {
        let firmware = self.firmware.as_ref().expect("there is power");
        if self.world.storage.payload.needs_sweep() {
            self.world.storage.payload.sweep(firmware.subsystem.device().unprogrammed());
        }
        if let Some(target) = &mut self.world.target {
            target.flush();
        }
        if let Some(peers) = &mut self.world.peers {
            peers.flush();
        }
        self.answer_groups();
    }

    // --- what comes from outside ---

    fn take_mail(&mut self) -> bool {
        let mut any = false;
        while let Some(message) = self.world.mail.take() {
            match message {
                Message::Control(request, answer) => {
                    any = true;
                    // What is asked next finds the fault armed.
                    let is_fault = request.fault().is_some();
                    let _ = match self.control(&request, &answer) {
                        Some(said) => answer.send(said),
                        None => Ok(()), // Answered later.
                    };
                    if is_fault {
                        break;
                    }
                }
                // To look is no reason to stay awake.
                Message::Moment(answer) => {
                    let _ = answer.send(moment(self.firmware.as_ref(), &self.world, &self.about()));
                }
            }
        }
        any
    }

    /// Carries a request out. `None`: the answer comes when the device has ended.
    fn control(&mut self, request: &Request, answer: &Sender<Answer>) -> Option<Answer> {
        if !matches!(request, Request::Status | Request::Metrics) {
            tracing::debug!(?request, "request of the control socket");
        }
        let text = |text: String| Ok(serde_json::Map::from_iter([("text".to_owned(), text.into())]));
        if let Some(fault) = request.fault() {
            let Some(firmware) = &self.firmware else { return Some(Err("the power is off".into())) };
            if let Err(why) = can_happen(&fault, firmware) {
                return Some(Err(why));
            }
            self.world.cx.now = self.clock.now();
            self.world.cx.push(Input::Inject(fault));
            return Some(Ok(Default::default()));
        }
        match *request {
            Request::Status => Some(Ok(status::status(self.firmware.as_ref(), &self.world, self.about()))),
            Request::Metrics => Some(text(status::metrics(self.firmware.as_ref(), &self.world, self.about()))),
            Request::GroupForm { .. }
            | Request::GroupPromote { .. }
            | Request::GroupDemote { .. }
            | Request::GroupLeave { .. }
            | Request::GroupRebuild { .. }
            | Request::GroupLead { .. } => self.group(request, answer),
            Request::FaultList => Some(match &self.firmware {
                Some(firmware) => {
                    let armed: Vec<Request> =
                        firmware.subsystem.armed_faults().into_iter().map(Request::from).collect();
                    let faults = serde_json::to_value(armed).map_err(|error| error.to_string());
                    faults.map(|faults| serde_json::Map::from_iter([("faults".to_owned(), faults)]))
                }
                None => Err("the power is off".into()),
            }),
            Request::Stop => {
                self.begin_ending(Some(answer.clone()));
                None
            }
            Request::PowerCut { .. } if self.firmware.is_none() => Some(Err("the power is off already".into())),
            Request::PowerCut { off_ms } if WallDuration::from_millis(off_ms) > OFF_MAX => {
                Some(Err(format!("{off_ms} ms without power: the maximum is a day (86400000 ms)")))
            }
            Request::PowerCut { off_ms } => Some(self.cut_power(WallDuration::from_millis(off_ms)).map_or_else(
                |error| Err(error.to_string()),
                |lost| {
                    text(format!(
                        "the power was cut; {lost} pages held only in volatile memory are lost; power returns in \
                         {off_ms} ms"
                    ))
                },
            )),
            Request::LinkLoss { function } => Some(match self.world.ports.get(usize::from(function)) {
                Some(Port { connection: Some(connection), .. }) => {
                    connection.close();
                    Ok(Default::default())
                }
                Some(_) => Err(format!("no client is attached to function {function}")),
                None => Err(format!("there is no function {function}")),
            }),
            _ => Some(Err("internal error: this fault was not injected".into())),
        }
    }

    /// The wall's time, for connections: they are of this world, whatever the drive's clock says.
    pub(crate) fn wall(&self) -> Instant {
        Instant::ZERO + Duration::from_ps((self.started.elapsed().as_nanos() as u64).saturating_mul(1_000))
    }

    fn about(&self) -> status::About {
        status::About {
            name: self.profile.name.clone(),
            timing: self.profile.serve.timing,
            wall: self.started.elapsed(),
            power_cuts: self.power_cuts,
            ending: self.ending.is_some(),
            now: self.clock.now(),
        }
    }

    /// Lets the NVMe/TCP target take in what came over its connections.
    fn poll_target(&mut self) -> bool {
        let Some(mut target) = self.world.target.take() else { return false };
        let now = self.wall();
        let mut border = Engine { firmware: self.firmware.as_mut().expect("there is power"), world: &mut self.world };
        let active = target.poll(now, &mut border);
        while let Some(note) = target.take_note() {
            self.world.cx.notes.push(Event::Note(note));
        }
        self.world.target = Some(target);
        active
    }

    // --- power ---

    /// Cuts the power: the pages that were only in volatile memory are gone, and how many those were.
    fn cut_power(&mut self, off: WallDuration) -> Result<usize, ServeError> {
        let firmware = self.firmware.take().expect("looked at by the caller");
        // What recovery is left with is what the image has.
        self.world.store_logs_and_rings(&firmware);
        let Firmware { subsystem, mut log, .. } = firmware;
        if let Some(log) = &mut log {
            log.cut(subsystem.device().now());
        }
        self.power_cuts += 1;
        let state = subsystem.state();
        let next_version = subsystem.next_version();
        self.world.power_lost();
        if let Some(target) = self.world.target.take() {
            // Where it was, hosts look for it again.
            self.tcp_address = target.addresses().first().copied();
        }
        if let Some(peers) = self.world.peers.take() {
            self.peers_address = peers.address();
        }
        let remains = subsystem.into_device().cut_power();
        let mut changes = Default::default();
        remains.medium().take_changes(&mut changes);
        for page in remains.destaged() {
            let header = page.page.header(page.function, page.number, page.epoch, &page.bytes);
            self.world.storage.payload.keep_log(page.lpn, &header, &page.bytes);
        }
        for page in remains.dumped() {
            self.world.storage.payload.keep_window(page.lpn, page.version, &page.bytes);
        }
        let stored = self.world.storage.payload.apply(&changes);
        let left = self.world.storage.image_mut().store_log_remains(remains.log());
        let lost = self.world.storage.payload.held();
        let forgotten = self.world.storage.payload.power_lost();
        self.world.storage.image_mut().window_power_lost();
        let mut pmrs = self.world.ports.iter().filter_map(|port| port.pmr.as_ref());
        let pmrs = pmrs.try_for_each(|pmr| pmr.power_lost(self.world.storage.image()));
        tracing::info!("the power was cut: {lost} pages held only in volatile memory are lost");
        stored.and(left).and(forgotten).and(pmrs).map_err(|_| wrong("the image could not be written"))?;
        self.powered_off = Some(PoweredOff { until: Wall::now() + off, remains, state, next_version, log });
        self.publish_registers();
        Ok(lost)
    }

    fn power_on(&mut self, notify: &mut dyn FnMut(Event)) -> Result<(), ServeError> {
        let Some(PoweredOff { remains, state, next_version, log, .. }) = self.powered_off.take() else { return Ok(()) };
        let device = Device::power_on(&self.profile, remains).map_err(wrong)?;
        let options = {
            let capacity = device.capacity();
            self.drive_setup.subsystem_options(&self.profile, capacity, self.identity, next_version, state)
        };
        let subsystem = Subsystem::new(device, options).map_err(wrong)?;
        let mut firmware = Firmware { subsystem, timing: Timing::None, log, passed: Instant::ZERO, hurries: false };
        recover(&mut firmware, &mut self.world.storage.payload, notify)?;
        if let Some(log) = &mut firmware.log {
            log.timers = 0; // Recovery follows from the cut.
        }
        firmware.timing = self.profile.serve.timing;
        self.clock.reset(firmware.subsystem.device().now());
        if let Some(tcp) = &self.setup.nvme_tcp {
            let address = self.tcp_address.unwrap_or(tcp.address);
            let tcp = TcpSetup { address, ..tcp.clone() };
            self.world.target = Some(target(&tcp, firmware.subsystem.options())?);
        }
        if let Some(setup) = &self.setup.peers {
            let setup = PeersSetup { listen: self.peers_address.or(setup.listen), ..setup.clone() };
            let image = self.world.storage.image();
            self.world.peers = Some(peers(&setup, image, &firmware, &self.waker)?);
            self.world.storage.repeat_news();
            self.world.tell_of_disk();
        }
        self.world.resume_rings(&firmware, &mut |text| notify(Event::Note(text)));
        tracing::info!("the power is back");
        self.firmware = Some(firmware);
        Ok(())
    }

    // --- the end ---

    fn begin_ending(&mut self, answer: Option<Sender<Answer>>) {
        if self.ending.is_none() {
            // No host comes any more, and what those that are there had asked for is dropped with their connections.
            self.sockets.clear();
            self.world.target = None;
            self.world.peers = None;
            // What clients still wanted comes too late, and that they have gone must not reset what begins now.
            self.refuse_messages();
            if let Some(firmware) = &self.firmware {
                self.world.cx.now = self.clock.now();
                let functions = firmware.subsystem.options().functions;
                for function in 0..functions + firmware.subsystem.options().fabrics {
                    self.world.cx.push(if function < functions {
                        Input::FunctionReset { function }
                    } else {
                        Input::Disconnect { function }
                    });
                }
                // A shutdown that is to be stuck is one of a host's.
                self.world.cx.push(Input::Inject(Fault::Clear));
                // A shutdown empties the write buffer, by whatever way it was requested.
                let value = 1 << 14;
                self.world.cx.push(Input::Register { function: 0, offset: offset::CC, len: 4, value });
            }
        }
        self.ending.get_or_insert_default().extend(answer);
    }

    fn has_ended(&self) -> bool {
        match &self.firmware {
            Some(firmware) => {
                // SHST, bits 3:2 of CSTS, is 2 when the shutdown is complete.
                let status = firmware.subsystem.register(0, offset::CSTS, 4);
                status >> 2 & 3 == ShutdownStatus::Complete as u64 && self.world.cx.pending.is_empty()
            }
            None => true,
        }
    }

    fn end(mut self) -> Result<Ended, ServeError> {
        let ended = Ended { counters: self.world.record.counters, wall: self.started.elapsed(), again: false };
        let mut result = Ok(ended);
        let mut input_log = None;
        if let Some(firmware) = self.firmware.take() {
            self.world.store_logs_and_rings(&firmware);
            let stored = self.world.window_barrier(&firmware) && self.world.window_barrier(&firmware);
            let Firmware { subsystem, log, .. } = firmware;
            let state = subsystem.state();
            let image = self.world.storage.image_mut();
            let mut pmrs = self.world.ports.iter().filter_map(|port| port.pmr.as_ref());
            let pmrs = pmrs.try_for_each(|pmr| pmr.store(image).map(drop));
            if pmrs.and_then(|()| image.save_metadata(&state)).and_then(|()| image.sync()).is_err() || !stored {
                result = Err(wrong("the image could not be written: data flushed before is safe"));
            }
            input_log = log;
        } else if let Some(powered_off) = self.powered_off.take() {
            input_log = powered_off.log;
        }
        if let Some(Err(error)) = input_log.map(InputLog::end) {
            result = Err(wrong(format!("the input log: {error}")));
        }
        if let Err(why) = self.world.record.end() {
            result = Err(wrong(why));
        }
        for answer in self.ending.take().unwrap_or_default() {
            let _ = answer.send(result.as_ref().map(|_| Default::default()).map_err(ToString::to_string));
        }
        let _ = std::fs::remove_file(&self.setup.control);
        result
    }
}

/// Whether a fault can happen.
///
/// # Errors
/// In words.
fn can_happen(fault: &Fault, firmware: &Firmware) -> Result<(), String> {
    match (*fault, fault.function()) {
        (_, Some(function)) if !firmware.subsystem.has_controller(function) => Err(format!(
            "there is no controller {function}: PCIe functions are numbered first, from 0, then hosts connected by \
             NVMe/TCP"
        )),
        (Fault::Status { blocks: (first, end), .. }, _) if first >= end => {
            Err(format!("the range {first}..{end} of blocks is empty"))
        }
        // A fault that can never come about is a mistake.
        (Fault::Status { nsid, blocks: (first, _), .. }, _) => match firmware.subsystem.namespaces().at(nsid) {
            Err(_) => Err(format!("there is no namespace {nsid}")),
            Ok(found) if first >= found.blocks => {
                Err(format!("namespace {nsid} has blocks 0..{}, and {first} is beyond them", found.blocks))
            }
            Ok(_) => Ok(()),
        },
        _ => Ok(()),
    }
}

/// The engine, as the NVMe/TCP target sees it.
struct Engine<'a> {
    firmware: &'a mut Firmware,
    world: &'a mut World<Message>,
}

impl Border for Engine<'_> {
    fn input(&mut self, input: Input<'_>) {
        self.world.on_target_input(input);
    }

    fn register(&mut self, function: u8, offset: u32, len: u8) -> u64 {
        self.firmware.subsystem.register(function, offset, len)
    }

    fn controller_id(&self, function: u8) -> u16 {
        self.firmware.subsystem.controller_id(function)
    }

    fn stage(&mut self, slot: Slot, at: u32, bytes: &[u8]) {
        self.world.stage(slot, at, bytes);
    }
}
