//! Records of a run: counters and latencies, the trace, and the file of commands. The input log is the
//! firmware's own.

use super::{Context, Firmware, Pending, ServeError, Setup, Turn, wrong};
use crate::commands::{Tap, socket};
use crate::trace::TraceWriter;
use std::io;
use std::path::PathBuf;
use tidewater_core::subsystem::{Input, Slot};
use tidewater_gauges::Latencies;
use tidewater_wire::nvme::register::{Cc, NSSR_RESET, offset};
use tidewater_wire::nvme::{Cqe, DsmRange, opcode};

/// Counts of a served device, beside those of the firmware.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands completed, by what they were: reads, writes, flushes, others.
    pub commands: [u64; 4],
    /// Of these, with an error.
    pub errors: u64,
    /// Bytes sent to hosts, and bytes that came from them.
    pub bytes: [u64; 2],
    /// Syncs of the backing store that were asked for.
    pub syncs: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// Records of what hosts do.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) counters: Counters,
    pub(crate) latencies: Latencies,
    trace: Option<TraceWriter>,
    /// Why the trace is not whole.
    trace_error: Option<io::Error>,
    /// Where commands are written as they come and end.
    pub(crate) commands: Option<Tap>,
    /// Why the file of commands is not whole.
    pub(crate) commands_error: Option<io::Error>,
}

impl Record {
    /// Opens the files that the user wants. `nqn`: the subsystem's name; `made`: gets the file of commands if it is
    /// new.
    ///
    /// # Errors
    /// When a file can't be made.
    pub(crate) fn open(setup: &Setup, nqn: &str, made: &mut Vec<PathBuf>) -> Result<Record, ServeError> {
        let mut record = Record::default();
        if let Some(path) = &setup.trace {
            let trace = TraceWriter::create(path);
            record.trace = Some(trace.map_err(|error| wrong(format!("{}: {error}", path.display())))?);
        }
        let Some(path) = &setup.commands else { return Ok(record) };
        // A socket goes with those who listen on it.
        let is_socket = socket(path).is_some();
        let is_new = !is_socket && path.symlink_metadata().is_err();
        let tap = Tap::start(path, nqn).map_err(|error| {
            // What goes wrong with a socket names its path.
            let what = if is_socket { String::new() } else { format!("{}: ", path.display()) };
            wrong(format!("--commands: {what}{error}"))
        })?;
        record.commands = Some(tap);
        made.extend(is_new.then(|| path.clone()));
        Ok(record)
    }

    /// Counts bytes that an I/O command moves to its host (`way` 0) or from it (1); `queue`: the command's.
    pub(crate) fn count_moved(&mut self, queue: u16, way: usize, len: u32) {
        if queue != 0 {
            self.counters.bytes[way] += u64::from(len);
        }
    }

    /// Counts a command of an I/O queue that has ended, and writes it to the trace if it ended well.
    pub(crate) fn ended(&mut self, t: &mut Turn, slot: Slot, is_good: bool) {
        let command = t.firmware.subsystem.last_command(slot);
        let kind = match command.sqe.opcode() {
            opcode::READ => 0,
            opcode::WRITE => 1,
            opcode::FLUSH => 2,
            _ => 3,
        };
        self.counters.commands[kind] += 1;
        self.latencies.record(kind, t.cx.now.since(command.begun));
        let Some(trace) = &mut self.trace else { return };
        if !is_good {
            trace.release(slot);
            return;
        }
        let block = t.firmware.subsystem.block_size(command.sqe.nsid());
        // Where there is no room for a line, the trace ends, and the device goes on.
        if let Err(error) = trace.command(t.cx.now.as_ps() / 1_000_000, &command.sqe, block, Some(slot)) {
            t.cx.warn(format!("the trace ends here, because it cannot be written: {error}"));
            (self.trace, self.trace_error) = (None, Some(error));
        }
    }

    /// Whether entries are written as they come and end.
    #[inline]
    pub(crate) fn has_commands(&self) -> bool {
        self.commands.is_some()
    }

    /// Ranges of a Dataset Management command that begins, for the trace.
    pub(crate) fn see_ranges(&mut self, firmware: &Firmware, slot: Slot, bytes: &[u8]) {
        let Some(trace) = &mut self.trace else { return };
        let Some(command) = firmware.subsystem.command(slot) else { return };
        if command.queue == 0 || command.sqe.opcode() != opcode::DATASET_MANAGEMENT || command.sqe.cdw11() & 4 == 0 {
            return;
        }
        let count = command.sqe.cdw10() as usize & 0xff;
        trace.hold(slot, bytes.as_chunks().0.iter().take(count + 1).map(DsmRange::from_bytes).collect());
    }

    /// An input on its way to the firmware: entries of queues, and what ends queues.
    #[cold]
    pub(crate) fn see_input(&mut self, cx: &mut Context, pending: &Pending) {
        let Some(tap) = &mut self.commands else { return };
        match pending {
            Pending::DmaRead(token, Some(bytes)) => {
                if let Some((function, queue)) = token.submission_queue() {
                    tap.entries(function, queue, bytes);
                }
            }
            Pending::Plain(Input::Capsule { function, queue, sqe }) => tap.capsule(*function, *queue, *sqe),
            Pending::Plain(Input::FunctionReset { function } | Input::Disconnect { function }) => {
                tap.gone(*function, None);
            }
            Pending::Plain(Input::DisconnectQueue { function, queue }) => tap.gone(*function, Some(*queue)),
            Pending::Plain(Input::Register { function, offset: offset::CC, value, .. })
                if !Cc(*value as u32).enable() =>
            {
                tap.gone(*function, None);
            }
            Pending::Plain(Input::Register { offset: offset::NSSR, value, .. }) if *value as u32 == NSSR_RESET => {
                tap.all_gone();
            }
            _ => {}
        }
        self.check_commands(cx);
    }

    /// A completion, for the file of commands.
    #[cold]
    pub(crate) fn see_end(&mut self, cx: &mut Context, function: u8, queue: u16, cqe: &Cqe) {
        if let Some(tap) = &mut self.commands {
            tap.ended(function, queue, *cqe);
        }
        self.check_commands(cx);
    }

    /// The file could not be written: that is said once, and the device goes on without it.
    fn check_commands(&mut self, cx: &mut Context) {
        if self.commands.as_ref().is_some_and(Tap::has_failed) && self.commands_error.is_none() {
            let error = self.end_commands().expect_err("a writer that ended early has failed");
            cx.warn(format!("the file of commands ends here, because it cannot be written: {error}"));
            self.commands_error = Some(error);
        }
    }

    fn end_commands(&mut self) -> io::Result<()> {
        self.commands.as_mut().map_or(Ok(()), Tap::end)
    }

    /// The power has failed: all queues are gone.
    pub(crate) fn power_lost(&mut self) {
        if let Some(tap) = &mut self.commands {
            tap.all_gone();
        }
    }

    /// Ends the files.
    ///
    /// # Errors
    /// In words, when one is not whole.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        let trace = self.trace.as_mut().map_or(Ok(()), TraceWriter::end);
        let commands = self.end_commands();
        if let Some(error) = self.commands_error.take().or(commands.err()) {
            return Err(format!("the file of commands is not whole: {error}"));
        }
        match self.trace_error.take().or(trace.err()) {
            Some(error) => Err(format!("the trace is not whole: {error}")),
            None => Ok(()),
        }
    }
}
