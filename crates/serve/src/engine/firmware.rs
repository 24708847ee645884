//! What the drive loop runs when a device is served: the subsystem, and a log of what comes in.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use tidewater_base::Instant;
use tidewater_core::drive::Machine;
use tidewater_core::profile::Timing;
use tidewater_core::subsystem::input_log::{MAGIC, Outputs, Sum, write_check, write_cut, write_input};
use tidewater_core::subsystem::{Input, Output, Outstanding, ShadowDoorbells, Slot, Subsystem};
use tidewater_nand::{Nand, Recorder};
use tidewater_wire::nvme::register::offset::DOORBELLS;

use crate::runtime;

/// Doorbells of a function, of both kinds, at most.
pub(super) const DOORBELLS_MAX: usize = 2 * 128;

/// The subsystem as it is served.
pub(super) struct Firmware {
    /// The controllers and the drive.
    pub(super) subsystem: Subsystem<Recorder<Nand>>,
    pub(super) timing: Timing,
    pub(super) log: Option<InputLog>,
    /// Without pacing: up to where time has passed that a host's timers wait for.
    pub(super) passed: Instant,
    /// A client waits for bytes that wait for a page to fill.
    pub(super) hurries: bool,
    /// After so many events of the device nothing happens any more: the power is cut then.
    pub(super) halt_at: u64,
}

impl Firmware {
    /// The subsystem at some pace: the model's, or none.
    pub(super) fn new(subsystem: Subsystem<Recorder<Nand>>, timing: Timing, log: Option<InputLog>) -> Firmware {
        Firmware { subsystem, timing, log, passed: Instant::ZERO, hurries: false, halt_at: u64::MAX }
    }

    /// The command in a slot: what the subsystem says of a slot is about the command in it.
    #[inline]
    pub(super) fn command(&self, slot: Slot) -> Outstanding {
        self.subsystem.command(slot).expect("a slot that the subsystem names has a command")
    }

    /// Whether a register write is a doorbell that only says that its shadow has changed (Doorbell Buffer Config). Its
    /// value may be older than the shadow's, and is not looked at.
    pub(super) fn is_shadowed(&self, function: u8, offset: u64) -> bool {
        let Some(index) = offset.checked_sub(u64::from(DOORBELLS)).map(|from| from / 4) else { return false };
        let shadow = self.subsystem.shadow_doorbells(function).filter(|_| index < DOORBELLS_MAX as u64);
        let of = |shadow: ShadowDoorbells| if index % 2 == 1 { shadow.completion } else { shadow.submission };
        shadow.is_some_and(|shadow| of(shadow) >> (index / 2) & 1 == 1)
    }

    /// Whether anything is due that need not take its time: the drive itself has something to do. A host's timer is
    /// nothing like that, and neither are bytes of the log that wait for a page to fill, unless a client waits for
    /// them: a page that filler completes at once would be one for each commit.
    fn has_work(&self) -> bool {
        let device = self.subsystem.device();
        device.has_work() || (self.hurries || self.subsystem.outstanding() > 0) && device.deadline().is_some()
    }
}

impl Machine for Firmware {
    type Input<'a> = Input<'a>;
    type Output = Output;
    type Refused = Infallible;

    #[inline]
    fn handle(&mut self, now: Instant, input: Input<'_>) -> Result<(), Infallible> {
        if let Some(log) = &mut self.log {
            log.input(now, &input);
        }
        self.subsystem.handle(now, input);
        Ok(())
    }

    #[inline]
    fn on_deadline(&mut self, now: Instant) {
        if let Some(log) = &mut self.log {
            log.timers += 1;
        }
        self.subsystem.handle(now, Input::Timer);
    }

    #[inline]
    fn poll(&mut self) -> Option<Output> {
        let output = self.subsystem.poll();
        if let (Some(log), Some(output)) = (&mut self.log, &output) {
            log.outputs.add(output);
            if matches!(output, Output::Complete { .. }) {
                log.write_out();
            }
        }
        output
    }

    #[inline]
    fn has_output(&self) -> bool {
        self.subsystem.has_output()
    }

    /// An unpaced drive does at once what it would do later, but for what only waits comes in its time.
    #[inline]
    fn deadline(&self) -> Option<Instant> {
        match self.timing {
            _ if self.subsystem.device().events_handled() >= self.halt_at => None,
            Timing::None if !self.has_work() => self.subsystem.deadline().filter(|at| *at <= self.passed),
            _ => self.subsystem.deadline(),
        }
    }
}

/// The log of what comes in. A host gets no answer before the file has the inputs that led to it, and the thread does
/// not sleep before the file has all.
pub(super) struct InputLog {
    file: BufWriter<File>,
    entry: Vec<u8>,
    sum: Sum,
    outputs: Outputs,
    /// Events of the device since the last input.
    pub(super) timers: u64,
    /// The first error of the file: nothing is written behind it.
    failed: Option<io::Error>,
}

impl InputLog {
    /// A new log, which begins with `setup` and only its owner may read: what hosts stored into the fast side is in it.
    pub(super) fn create(path: &Path, setup: &str) -> io::Result<InputLog> {
        let mut file = BufWriter::with_capacity(1 << 20, runtime::private_file(path)?);
        let mut header = [&MAGIC[..], &(setup.len() as u32).to_le_bytes(), setup.as_bytes()].concat();
        let mut sum = Sum::default();
        sum.seal(&mut header, 0);
        file.write_all(&header)?;
        Ok(InputLog { file, entry: Vec::new(), sum, outputs: Outputs::default(), timers: 0, failed: None })
    }

    fn write(&mut self) {
        if self.failed.is_none() {
            self.failed = self.file.write_all(&self.entry).err();
        }
        self.entry.clear();
    }

    /// Gives the file all that came in: it has it, even if this process is killed.
    pub(super) fn write_out(&mut self) {
        if self.failed.is_none() && !self.file.buffer().is_empty() {
            self.failed = self.file.flush().err();
        }
    }

    /// Ends the entry that begins at byte `from`; a time out has none.
    fn seal(&mut self, from: usize) {
        if self.entry.len() > from {
            self.sum.seal(&mut self.entry, from);
        }
    }

    fn check(&mut self) {
        if !self.outputs.is_empty() {
            let from = self.entry.len();
            write_check(&mut self.entry, self.outputs.take());
            self.seal(from);
        }
    }

    fn input(&mut self, now: Instant, input: &Input<'_>) {
        self.check();
        let from = self.entry.len();
        write_input(&mut self.entry, now, input);
        self.seal(from);
        self.timers = 0;
        self.write();
    }

    /// The power is cut.
    pub(super) fn cut(&mut self, now: Instant) {
        self.check();
        let from = self.entry.len();
        write_cut(&mut self.entry, now, self.timers);
        self.seal(from);
        self.write();
    }

    /// Ends the log.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.check();
        self.write();
        match self.failed {
            Some(error) => Err(error),
            None => self.file.flush(),
        }
    }
}
