//! Faults on hosts' commands: they are late, fail, or have their data lost, misplaced or changed; and power cuts at one
//! of them.
//!
//! They strike between hosts and firmware, which knows nothing of them: an answer is held back, an entry has another
//! first block, a status is set on its way out. A re-run of the input log needs nothing else.

use super::{Context, Firmware, Pending, Turn};
use crate::control::{Answer, Request};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::{Duration as WallDuration, Instant as Wall};
use tidewater_base::faults::{At, Fault, Faults, Kind, Listed, On};
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::subsystem::{Fault as FirmwareFault, Input, Outstanding, Slot, Unit};
use tidewater_wire::nvme::{Cqe, Sqe, Status, opcode};

/// Bit 30 of double word 12: Force Unit Access.
const FUA: u32 = 1 << 30;
/// Blocks of 512 bytes between which a write is misdirected: pages of 4 KiB.
const PAGE_BLOCKS: u64 = 8;
/// Places that are drawn for a write, until one is clear of its own.
const PLACES: u32 = 16;

/// Faults on commands.
pub(crate) struct CommandFaults {
    faults: Faults,
    begun: Wall,
    /// Answers that the firmware gets later, each with its time by [`CommandFaults::now`].
    late: Vec<(Instant, Pending)>,
    /// Commands under way that were looked at.
    commands: HashMap<Slot, Struck>,
    /// The next input was looked at.
    has_looked: bool,
    /// How long the power is off after the armed cut.
    off: WallDuration,
    cut_is_due: bool,
}

/// Decisions on a command.
struct Struck {
    command: Outstanding,
    /// It ends with this status.
    status: Option<Status>,
    /// Its data is dropped.
    drops: bool,
    /// The bit of its data that is wrong; `None`: not decided.
    flip: Option<Option<u64>>,
    /// Whether its data, and its sync, were held back already.
    was_late: [bool; 2],
}

impl CommandFaults {
    pub(crate) fn new() -> CommandFaults {
        CommandFaults {
            faults: Faults::default(),
            begun: Wall::now(),
            late: Vec::new(),
            commands: HashMap::new(),
            has_looked: false,
            off: WallDuration::ZERO,
            cut_is_due: false,
        }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + Duration::from_ns(self.begun.elapsed().as_nanos() as u64)
    }

    fn wall(&self, at: Instant) -> Wall {
        self.begun + WallDuration::from_nanos((at - Instant::ZERO).as_ns())
    }

    // --- requests ---

    /// Answers a request that is about faults; `None`: it is about none.
    pub(crate) fn answer(
        &mut self,
        cx: &mut Context,
        mut firmware: Option<&mut Firmware>,
        request: &Request,
    ) -> Option<Answer> {
        let injected = request.fault();
        if let Some(FirmwareFault::Clear) = injected {
            self.faults.clear();
            self.release(cx, true);
            self.cut_is_due = false;
            if let Some(firmware) = &mut firmware {
                firmware.halt_at = u64::MAX;
            }
        }
        let is_own = matches!(request, Request::Fault { .. } | Request::FaultList | Request::PowerCutAt { .. });
        (is_own || injected.is_some()).then(|| {
            let firmware = firmware.ok_or("the power is off")?;
            match *request {
                Request::Fault { fault } => self.arm(fault),
                Request::PowerCutAt { at, off_ms } => self.arm_cut(at, off_ms, firmware),
                Request::FaultList => {
                    let faults = self.listed(firmware);
                    return Ok(Map::from_iter([("faults".to_owned(), Value::Array(faults))]));
                }
                _ => injected.map_or(Ok(()), |fault| inject(fault, cx, firmware)),
            }
            .map(|()| Map::new())
        })
    }

    fn arm(&mut self, fault: Fault) -> Result<(), String> {
        match fault.kind {
            Kind::PowerCut => return Err("a power cut is armed by `power-cut-at`".into()),
            _ if fault.keep_dirty => return Err("a drive has no dirty files: only a mount keeps them".into()),
            _ => {}
        }
        self.faults.arm(fault, self.now())
    }

    fn arm_cut(&mut self, at: At, off_ms: u64, firmware: &mut Firmware) -> Result<(), String> {
        let off = off_of(off_ms)?;
        self.faults.arm(at.fault(), self.now())?;
        self.off = off;
        firmware.halt_at = match at {
            At::Nth(On::Event, nth) => firmware.subsystem.device().events_handled().saturating_add(nth),
            _ => u64::MAX,
        };
        Ok(())
    }

    /// Armed faults, those of the firmware first.
    fn listed(&self, firmware: &Firmware) -> Vec<Value> {
        let armed = firmware.subsystem.armed_faults().into_iter();
        let of_firmware = armed.map(|fault| json!(Request::from(fault)));
        let own = self.list().into_iter().map(
            |Listed { fault, struck, over }| json!({ "do": "fault", "fault": fault, "struck": struck, "over": over }),
        );
        of_firmware.chain(own).collect()
    }

    /// Faults that are remembered.
    pub(crate) fn list(&self) -> Vec<Listed> {
        self.faults.list(self.now())
    }

    /// How often faults of each kind have struck.
    pub(crate) fn struck(&self) -> impl Iterator<Item = (Kind, u64)> {
        self.faults.struck()
    }

    /// The kinds that have struck, by name.
    pub(crate) fn struck_by_name(&self) -> impl Iterator<Item = (String, u64)> {
        self.struck().filter(|(_, count)| *count > 0).map(|(kind, count)| (kind.name().to_owned(), count))
    }

    /// The kinds that have struck, in words.
    pub(crate) fn tally(&self) -> Option<String> {
        self.faults.tally()
    }

    // --- time ---

    /// When there is something to do next.
    pub(crate) fn next_at(&self) -> Option<Wall> {
        let late = self.late.iter().map(|(at, _)| *at);
        late.chain(self.faults.cut_at()).min().map(|at| self.wall(at))
    }

    /// Gives the firmware answers whose time has come, or all of them. True: there were some.
    pub(crate) fn release(&mut self, cx: &mut Context, all: bool) -> bool {
        if self.late.is_empty() {
            return false;
        }
        let now = if all { Instant::NEVER } else { self.now() };
        self.late.sort_by_key(|(at, _)| *at);
        let due = self.late.partition_point(|(at, _)| *at <= now);
        self.late.drain(..due).for_each(|(_, pending)| cx.put(pending));
        due > 0
    }

    /// Whether the power is to be cut now.
    #[inline]
    pub(crate) fn cut_is_due(&self) -> bool {
        self.cut_is_due
    }

    /// Whether the power is to be cut now, and for how long it is off.
    pub(crate) fn take_cut(&mut self, firmware: &Firmware) -> Option<WallDuration> {
        if self.faults.is_empty() {
            return None;
        }
        // A firmware that has halted asks for nothing any more.
        self.cut_is_due |= has_halted(firmware) || self.faults.cut_at().is_some_and(|at| at <= self.now());
        std::mem::take(&mut self.cut_is_due).then_some(self.off)
    }

    /// The power has failed: what was under way is gone. Faults stay armed, but for a power cut.
    pub(crate) fn power_lost(&mut self) {
        self.faults.cut();
        self.late.clear();
        self.commands.clear();
        (self.cut_is_due, self.has_looked) = (false, false);
    }

    // --- commands ---

    /// Looks at the next input before the firmware gets it, and at the events of the drive.
    #[inline]
    pub(crate) fn look(&mut self, t: &mut Turn) {
        if !self.faults.is_empty() {
            self.look_at_input(t);
        }
    }

    /// The firmware gets the input that was looked at.
    #[inline]
    pub(crate) fn handed_in(&mut self) {
        self.has_looked = false;
    }

    #[cold]
    fn look_at_input(&mut self, t: &mut Turn) {
        let firmware = t.firmware;
        self.cut_is_due |= has_halted(firmware);
        while !self.has_looked {
            let Some((_, pending)) = t.cx.pending.front_mut() else { return };
            self.has_looked = true;
            match pending {
                Pending::DmaRead(token, Some(bytes))
                    if token.submission_queue().is_some_and(|(_, queue)| queue > 0) =>
                {
                    for entry in bytes.as_chunks_mut().0 {
                        *entry = self.entry(firmware, Sqe::from_bytes(entry)).to_bytes();
                    }
                }
                Pending::Plain(Input::Capsule { queue: 1.., sqe, .. }) => *sqe = self.entry(firmware, *sqe),
                &mut Pending::Plain(Input::Moved { slot, result: Ok(()) }) => self.hold_back(t, slot, false),
                &mut Pending::Plain(Input::Synced { slot, result: Ok(()) }) => self.hold_back(t, slot, true),
                _ => {}
            }
        }
    }

    /// An entry of an I/O queue, as the firmware gets it.
    fn entry(&mut self, firmware: &Firmware, sqe: Sqe) -> Sqe {
        let is_write = sqe.opcode() == opcode::WRITE;
        self.cut_is_due |= is_write && self.faults.cuts(On::Write);
        self.cut_is_due |= is_sync(&sqe) && self.faults.cuts(On::Sync);
        match self.faults.strikes(Kind::MisdirectedWrite, On::Write).filter(|_| is_write) {
            Some(rng) => misdirected(firmware, sqe, rng),
            None => sqe,
        }
    }

    /// The answer that is next in line waits, if its command is to be late.
    fn hold_back(&mut self, t: &mut Turn, slot: Slot, of_sync: bool) {
        let now = self.now();
        let Some(struck) = of(&mut self.commands, t.firmware, slot) else { return };
        let on = match struck.command.sqe.opcode() {
            _ if of_sync => On::Sync,
            opcode::READ => On::Read,
            opcode::WRITE => On::Write,
            _ => return,
        };
        if std::mem::replace(&mut struck.was_late[usize::from(of_sync)], true) {
            return;
        }
        let by = self.faults.delay(on, now);
        if !by.is_zero() {
            self.late.extend(t.cx.pending.pop_front().map(|(_, pending)| (now + by, pending)));
            self.has_looked = false;
        }
    }

    /// Data of a write is brought.
    #[inline]
    pub(crate) fn fetching(&mut self, firmware: &Firmware, slot: Slot) {
        if !self.faults.is_empty() {
            self.decide_on_write(firmware, slot);
        }
    }

    #[cold]
    fn decide_on_write(&mut self, firmware: &Firmware, slot: Slot) {
        let Some(struck) = of(&mut self.commands, firmware, slot) else { return };
        if struck.command.sqe.opcode() != opcode::WRITE {
            return;
        }
        struck.status = self.faults.error(On::Write).map(|fault| status(&fault));
        struck.drops = struck.status.is_some() || self.faults.strikes(Kind::LostWrite, On::Write).is_some();
    }

    /// Whether what a command writes is dropped.
    #[inline]
    pub(crate) fn drops(&self, slot: Slot) -> bool {
        !self.commands.is_empty() && self.commands.get(&slot).is_some_and(|struck| struck.drops)
    }

    /// The bit of a part of a read's data that is wrong.
    #[inline]
    pub(crate) fn flips(&mut self, firmware: &Firmware, slot: Slot, unit: Unit) -> Option<u64> {
        if self.faults.is_empty() { None } else { self.decide_on_read(firmware, slot, unit) }
    }

    #[cold]
    fn decide_on_read(&mut self, firmware: &Firmware, slot: Slot, unit: Unit) -> Option<u64> {
        let struck = of(&mut self.commands, firmware, slot)?;
        let sqe = struck.command.sqe;
        if sqe.opcode() != opcode::READ {
            return None;
        }
        let bits = 8 * (u64::from(sqe.cdw12() & 0xFFFF) + 1) * firmware.subsystem.block_size(sqe.nsid());
        let mut decide = || self.faults.strikes(Kind::BitFlip, On::Read).map(|rng| rng.below(bits));
        let bit = (*struck.flip.get_or_insert_with(&mut decide))?;
        let first = 8 * u64::from(unit.at);
        (first..first + 8 * u64::from(unit.len)).contains(&bit).then(|| bit - first)
    }

    /// The completion of a command, as its host gets it.
    #[inline]
    pub(crate) fn ended(&mut self, firmware: &Firmware, slot: Option<Slot>, queue: u16, cqe: Cqe) -> Cqe {
        match slot {
            Some(slot) if queue > 0 && !(self.faults.is_empty() && self.commands.is_empty()) => {
                self.end(firmware, slot, cqe)
            }
            _ => cqe,
        }
    }

    #[cold]
    fn end(&mut self, firmware: &Firmware, slot: Slot, cqe: Cqe) -> Cqe {
        let command = firmware.subsystem.last_command(slot);
        let struck = self.commands.remove(&slot).filter(|struck| struck.command == command);
        if !cqe.status.is_success() {
            return cqe;
        }
        let mut error = |on: On| self.faults.error(on).map(|fault| status(&fault));
        let own = match command.sqe.opcode() {
            opcode::READ => error(On::Read),
            _ if is_sync(&command.sqe) => error(On::Sync),
            _ => None,
        };
        let status = struck.and_then(|struck| struck.status).or(own);
        Cqe { status: status.unwrap_or(cqe.status), ..cqe }
    }
}

/// Decisions on the command in a slot, which may be a new one. `None`: it is none of an I/O queue.
fn of<'a>(commands: &'a mut HashMap<Slot, Struck>, firmware: &Firmware, slot: Slot) -> Option<&'a mut Struck> {
    let command = firmware.subsystem.command(slot).filter(|command| command.queue > 0)?;
    let new = || Struck { command, status: None, drops: false, flip: None, was_late: [false; 2] };
    let struck = commands.entry(slot).or_insert_with(new);
    // One that was there before has ended without a word, by a reset.
    if struck.command != command {
        *struck = new();
    }
    Some(struck)
}

/// Whether the event has come at which the power is cut.
fn has_halted(firmware: &Firmware) -> bool {
    firmware.subsystem.device().events_handled() >= firmware.halt_at
}

/// Whether a command makes something durable.
fn is_sync(sqe: &Sqe) -> bool {
    sqe.opcode() == opcode::FLUSH || sqe.opcode() == opcode::WRITE && sqe.cdw12() & FUA != 0
}

/// The status of an error: Linux makes EIO and ENOSPC of these two. A host is not to try again.
fn status(fault: &Fault) -> Status {
    match fault.kind {
        Kind::Enospc => Status::CAPACITY_EXCEEDED.with_dnr(true),
        _ => Status::INTERNAL_ERROR.with_dnr(true),
    }
}

/// A write that goes to another place of its namespace. One that would be refused stays as it is.
fn misdirected(firmware: &Firmware, sqe: Sqe, rng: &mut Rng) -> Sqe {
    let Ok(namespace) = firmware.subsystem.namespaces().at(sqe.nsid()) else { return sqe };
    let blocks = u64::from(sqe.cdw12() & 0xFFFF) + 1;
    let step = if namespace.block_shift == 9 { PAGE_BLOCKS } else { 1 };
    let within = sqe.slba() % step;
    let writable = namespace.writable_blocks(firmware.subsystem.device().host().namespace().writable_blocks);
    let Some(places) = writable.checked_sub(blocks + within).map(|last| last / step + 1) else { return sqe };
    let is_inside = sqe.slba().checked_add(blocks).is_some_and(|end| end <= writable);
    let other = (0..PLACES).map(|_| step * rng.below(places) + within);
    match other.filter(|_| is_inside).find(|other| other.abs_diff(sqe.slba()) >= blocks) {
        Some(other) => sqe.with_dword(10, other as u32).with_dword(11, (other >> 32) as u32),
        None => sqe,
    }
}

/// How long the power is off.
///
/// # Errors
/// More than a day.
pub(crate) fn off_of(off_ms: u64) -> Result<WallDuration, String> {
    if off_ms > 86_400_000 {
        return Err(format!("{off_ms} ms without power: the maximum is a day (86400000 ms)"));
    }
    Ok(WallDuration::from_millis(off_ms))
}

/// Injects a fault of the firmware.
///
/// # Errors
/// In words, when it can't happen.
fn inject(fault: FirmwareFault, cx: &mut Context, firmware: &Firmware) -> Result<(), String> {
    match (fault, fault.function()) {
        (_, Some(function)) if !firmware.subsystem.has_controller(function) => {
            return Err(format!(
                "there is no controller {function}: PCIe functions are numbered first, from 0, then hosts connected by \
                 NVMe/TCP, and NBD last"
            ));
        }
        (FirmwareFault::Status { blocks: (first, end), .. }, _) if first >= end => {
            return Err(format!("the range {first}..{end} of blocks is empty"));
        }
        // A fault that can never come about is a mistake.
        (FirmwareFault::Status { nsid, blocks: (first, _), .. }, _) => match firmware.subsystem.namespaces().at(nsid) {
            Err(_) => return Err(format!("there is no namespace {nsid}")),
            Ok(found) if first >= found.blocks => {
                let blocks = found.blocks;
                return Err(format!("namespace {nsid} has blocks 0..{blocks}, and {first} is beyond them"));
            }
            Ok(_) => {}
        },
        _ => {}
    }
    cx.push(Input::Inject(fault));
    Ok(())
}
