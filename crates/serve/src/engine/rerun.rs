//! A served run once more, under the virtual clock.

use super::served::Served;
use super::setup::DriveSetup;
use std::convert::Infallible;
use std::fmt;
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::{VirtualClock, World, drive};
use tidewater_core::profile::Timing;
use tidewater_core::subsystem::input_log::{Entries, Entry, MAGIC, Outputs};
use tidewater_core::subsystem::{Input, Output};
use tidewater_nand::Changes;

/// What was run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rerun {
    /// Inputs.
    pub inputs: u64,
    /// Outputs that were compared.
    pub outputs: u64,
    /// The drive's time.
    pub time: Duration,
}

/// Why a log could not be run again, or where it differed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RerunError(pub String);

impl fmt::Display for RerunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RerunError {}

/// What is in a log, as the world of the drive loop.
struct Recorded<'a> {
    entries: Entries<'a>,
    next: Option<Next<'a>>,
    outputs: Outputs,
    /// What nobody keeps.
    changes: Changes,
    result: Rerun,
    wrong: Option<String>,
}

/// The next input, and what must have been said by then.
struct Next<'a> {
    at: Instant,
    input: Input<'a>,
    said: (u64, u32),
}

impl Recorded<'_> {
    /// Reads on to the next input.
    fn advance(&mut self) {
        let mut said = (0, 0);
        for entry in self.entries.by_ref() {
            match entry {
                Ok(Entry::Check { count, checksum }) => said = (count, checksum),
                Ok(Entry::Input(at, input)) => {
                    self.next = Some(Next { at, input, said });
                    return;
                }
                Err(error) => {
                    self.wrong = Some(error.to_string());
                    return;
                }
            }
        }
    }
}

impl World<Served> for Recorded<'_> {
    fn next_at(&self) -> Instant {
        self.next.as_ref().map_or(Instant::NEVER, |next| next.at)
    }

    fn submit(&mut self, now: Instant) -> Option<Input<'_>> {
        let Next { at, input, said } = self.next.take()?;
        let number = self.result.inputs + 1;
        let (count, checksum) = self.outputs.take();
        if at != now {
            self.wrong = Some(format!("input {number} is from {at:?}, and the drive is at {now:?} already"));
        } else if (count, checksum) != said {
            self.wrong = Some(format!(
                "before input {number} at {at:?} the drive said {} things (checksum {:08x}), and now {count} ({checksum:08x})",
                said.0, said.1
            ));
        }
        self.result.inputs = number;
        self.result.outputs += count;
        self.result.time = now - Instant::ZERO;
        Some(input)
    }

    fn refused(&mut self, refused: Infallible) {
        match refused {}
    }

    fn take(&mut self, _: Instant, output: Output, machine: &Served) {
        machine.subsystem.device().medium().take_changes(&mut self.changes);
        self.outputs.add(&output);
    }

    fn stop(&mut self, _: Instant, _: &Served) -> bool {
        if self.next.is_none() && self.wrong.is_none() {
            self.advance();
        }
        // Behind the last input there is nothing to compare with.
        self.wrong.is_some() || self.next.is_none()
    }
}

/// Runs a log again and compares every output.
///
/// # Errors
/// When it is no log, or something is not as it was.
pub fn rerun(log: &[u8]) -> Result<Rerun, RerunError> {
    let wrong = |what: &str| RerunError(what.to_owned());
    let rest =
        log.strip_prefix(&MAGIC).ok_or_else(|| wrong("no input log of a served device, or of another version"))?;
    let (len, rest) = rest.split_first_chunk().ok_or_else(|| wrong("the log ends within its header"))?;
    let len = u32::from_le_bytes(*len) as usize;
    let setup = rest.get(..len).ok_or_else(|| wrong("the log ends within its header"))?;
    let setup: DriveSetup =
        serde_json::from_slice(setup).map_err(|error| RerunError(format!("its header: {error}")))?;
    let subsystem = setup.fresh_subsystem().map_err(RerunError)?;
    let mut machine = Served { subsystem, timing: Timing::Model, log: None, passed: Instant::ZERO };
    let entries = Entries::new(log, MAGIC.len() + 4 + len);
    let result = Rerun { inputs: 0, outputs: 0, time: Duration::ZERO };
    let mut world =
        Recorded { entries, next: None, outputs: Outputs::default(), changes: Changes::default(), result, wrong: None };
    let mut clock = VirtualClock::at(Instant::ZERO);
    drive(&mut machine, &mut clock, &mut world);
    match world.wrong {
        Some(wrong) => Err(RerunError(wrong)),
        None => Ok(world.result),
    }
}
