//! A served run once more, under the virtual clock.

use super::{DriveSetup, Firmware};
use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use tidewater_base::{Duration, Instant};
use tidewater_core::Device;
use tidewater_core::drive::{Machine as _, VirtualClock, World, drive};
use tidewater_core::fast::Content;
use tidewater_core::host_memory::Ticket;
use tidewater_core::profile::{Profile, Timing};
use tidewater_core::subsystem::input_log::{Entries, Entry, MAGIC, MAGIC_1, Outputs};
use tidewater_core::subsystem::{Input, Output, Slot, Subsystem, Token};
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RerunError(pub String);

/// A log's instants are before this, about a hundred days: what the drive does then still has an instant.
const TIME_MAX: Instant = Instant::from_ps(1 << 63);

/// Requests of the drive that are not answered yet: an answer in a log counts only if there was a request. Of reads and
/// gathers, the bytes; of moves and syncs, how many.
#[derive(Debug, Default)]
struct Asked {
    reads: HashMap<Token, u32>,
    gathers: HashMap<Slot, u32>,
    moves: HashMap<Slot, u32>,
    syncs: HashMap<Slot, u32>,
    accesses: HashSet<Ticket>,
    /// Pages for the byte window.
    loads: HashMap<u32, u32>,
}

impl Asked {
    fn by(&mut self, output: &Output) {
        match *output {
            Output::DmaRead { token, len, .. } => {
                self.reads.insert(token, len);
            }
            Output::Gather { slot, len } => {
                self.gathers.insert(slot, len);
            }
            Output::Fetch { slot, .. } | Output::Data { slot, .. } | Output::Send { slot, .. } => {
                *self.moves.entry(slot).or_default() += 1;
            }
            Output::LoadWindow { lpn, .. } => *self.loads.entry(lpn).or_default() += 1,
            Output::Sync { slot } | Output::Purge { slot } => *self.syncs.entry(slot).or_default() += 1,
            Output::HostMemory { access, .. } => {
                self.accesses.insert(access.ticket);
            }
            _ => {}
        }
    }

    /// Whether an input answers a question, or needs none.
    fn answered(&mut self, input: &Input<'_>, functions: u8) -> bool {
        fn one<K: std::hash::Hash + Eq>(asked: &mut HashMap<K, u32>, key: K) -> bool {
            asked.get_mut(&key).filter(|left| **left > 0).map(|left| *left -= 1).is_some()
        }
        let fits = |len: u32, bytes: Option<&[u8]>| bytes.is_none_or(|bytes| bytes.len() == len as usize);
        match *input {
            Input::DmaRead { token, bytes } => self.reads.remove(&token).is_some_and(|len| fits(len, bytes)),
            Input::Gathered { slot, bytes } => self.gathers.remove(&slot).is_some_and(|len| fits(len, bytes)),
            Input::HostMemory { ticket, .. } => self.accesses.remove(&ticket),
            Input::Moved { slot, .. } => one(&mut self.moves, slot),
            Input::Synced { slot, .. } => one(&mut self.syncs, slot),
            Input::WindowFill { lpn, .. } => one(&mut self.loads, lpn),
            Input::Register { function, .. }
            | Input::Doorbell { function, .. }
            | Input::PostFailed { function }
            | Input::Capsule { function, .. }
            | Input::Connect { function, .. }
            | Input::ConnectQueue { function, .. }
            | Input::Disconnect { function }
            | Input::DisconnectQueue { function, .. }
            | Input::FunctionReset { function }
            | Input::LoadedOutside { function }
            | Input::Store { function, .. }
            | Input::Log { function, .. } => function < functions,
            Input::StoreFailed | Input::Inject(_) | Input::PeersTime { .. } | Input::Timer => true,
        }
    }
}

/// What is in a log, as the world of the drive loop.
struct Recorded<'a> {
    entries: Entries<'a>,
    next: Option<Next<'a>>,
    outputs: Outputs,
    asked: Asked,
    functions: u8,
    /// Changes of the media, which are dropped.
    changes: Changes,
    result: Rerun,
    /// The power is cut now: after so many events, with what must have been said by then.
    cut: Option<(u64, (u64, u32))>,
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
                Ok(Entry::Cut { timers }) => {
                    self.cut = Some((timers, said));
                    return;
                }
                Ok(Entry::Input(at, _)) if at >= TIME_MAX => {
                    self.wrong = Some(format!("an input is at {at:?}, later than any run lasts"));
                    return;
                }
                Ok(Entry::Input(at, input)) => {
                    self.next = Some(Next { at, input, said });
                    return;
                }
                Err(error) => {
                    let inputs = self.result.inputs;
                    self.wrong = Some(format!("{error}; the {inputs} inputs before it gave the same outputs"));
                    return;
                }
            }
        }
    }
}

impl World<Firmware> for Recorded<'_> {
    fn next_at(&self) -> Instant {
        self.next.as_ref().map_or(Instant::NEVER, |next| next.at)
    }

    fn submit(&mut self, now: Instant) -> Option<Input<'_>> {
        let Next { at, input, said } = self.next.take()?;
        let number = self.result.inputs + 1;
        let (count, checksum) = self.outputs.take();
        if at != now {
            self.wrong = Some(format!("input {number} is at {at:?}, but the drive is already at {now:?}"));
        } else if (count, checksum) != said {
            self.wrong = Some(format!(
                "before input {number} at {at:?} the log has {} outputs (checksum {:08x}), the rerun {count} \
                 ({checksum:08x})",
                said.0, said.1
            ));
        } else if !self.asked.answered(&input, self.functions) {
            self.wrong = Some(format!(
                "input {number} at {at:?} answers a request that the drive did not make, or has \
                 no recipient"
            ));
        }
        if self.wrong.is_some() {
            return None;
        }
        self.result.inputs = number;
        self.result.outputs += count;
        self.result.time = now - Instant::ZERO;
        Some(input)
    }

    fn refused(&mut self, refused: Infallible) {
        match refused {}
    }

    fn take(&mut self, _: Instant, output: Output, firmware: &Firmware) {
        firmware.subsystem.device().medium().take_changes(&mut self.changes);
        self.outputs.add(&output);
        self.asked.by(&output);
    }

    fn stop(&mut self, _: Instant, _: &Firmware) -> bool {
        if self.next.is_none() && self.wrong.is_none() && self.cut.is_none() {
            self.advance();
        }
        // Behind the last input there is nothing to compare with.
        self.wrong.is_some() || self.next.is_none()
    }
}

/// The drive goes on for so many events, loses its power, and comes back.
fn cut(
    mut firmware: Firmware,
    setup: &DriveSetup,
    world: &mut Recorded<'_>,
    timers: u64,
    said: (u64, u32),
) -> Result<Firmware, RerunError> {
    let wrong = |what: String| RerunError(what);
    for _ in 0..timers {
        let at = firmware.deadline().ok_or_else(|| {
            wrong(
                "the log has a power cut after more events than the rerun \
             has"
                .into(),
            )
        })?;
        firmware.on_deadline(at);
        while let Some(output) = firmware.poll() {
            world.take(at, output, &firmware);
        }
    }
    let (count, checksum) = world.outputs.take();
    if (count, checksum) != said {
        return Err(wrong(format!(
            "before a power cut the log has {} outputs (checksum {:08x}), the rerun {count} ({checksum:08x})",
            said.0, said.1
        )));
    }
    world.result.outputs += count;
    world.asked = Asked::default();
    let (state, next_version) = (firmware.subsystem.state(), firmware.subsystem.next_version());
    let profile = Profile::parse(&setup.profile, "the log's profile").map_err(|error| wrong(error.to_string()))?;
    let remains = firmware.subsystem.into_device().cut_power();
    let dumped: HashMap<(u32, u64), Box<[u8]>> =
        remains.dumped().iter().map(|page| ((page.lpn, page.version), page.bytes.clone())).collect();
    let device = Device::power_on(&profile, remains).map_err(|error| wrong(error.to_string()))?;
    let options = setup.subsystem_options(&profile, device.capacity(), setup.seed, next_version, state);
    let subsystem = Subsystem::new(device, options).map_err(|error| wrong(error.to_string()))?;
    let mut firmware = Firmware::new(subsystem, Timing::Model, None);
    while firmware.subsystem.device().is_recovering() {
        let at = firmware.deadline().ok_or_else(|| wrong("recovery stands still".into()))?;
        firmware.on_deadline(at);
        firmware.subsystem.device().medium().take_changes(&mut world.changes);
        while let Some((lpn, place)) = firmware.subsystem.take_window_load() {
            // Only dumps are read before the drive has recovered.
            let bytes = place.version().and_then(|version| dumped.get(&(lpn, version)));
            let content = bytes.map_or(Content::Absent(0), |bytes| Content::Bytes(bytes));
            firmware.subsystem.handle(at, Input::WindowFill { lpn, content });
        }
    }
    Ok(firmware)
}

/// Runs a log again and compares every output.
///
/// # Errors
/// When it is no log, or something is not as it was.
pub fn rerun(log: &[u8]) -> Result<Rerun, RerunError> {
    let wrong = |what: &str| RerunError(what.to_owned());
    let rest = [MAGIC, MAGIC_1].iter().find_map(|magic| log.strip_prefix(magic));
    let rest = rest.ok_or_else(|| wrong("not an input log of a served device, or of another version"))?;
    let (len, rest) = rest.split_first_chunk().ok_or_else(|| wrong("the log ends within its header"))?;
    let len = u32::from_le_bytes(*len) as usize;
    let setup = rest.get(..len).ok_or_else(|| wrong("the log ends within its header"))?;
    let setup: DriveSetup =
        serde_json::from_slice(setup).map_err(|error| RerunError(format!("its header: {error}")))?;
    let subsystem = setup.fresh_subsystem().map_err(RerunError)?;
    let functions = setup.functions.max(1) + setup.fabrics;
    let mut firmware = Firmware::new(subsystem, Timing::Model, None);
    let entries = Entries::new(log, MAGIC.len() + 4 + len);
    let result = Rerun { inputs: 0, outputs: 0, time: Duration::ZERO };
    let mut world = Recorded {
        entries,
        next: None,
        outputs: Outputs::default(),
        asked: Asked::default(),
        functions,
        changes: Changes::default(),
        result,
        cut: None,
        wrong: None,
    };
    let mut clock = VirtualClock::at(Instant::ZERO);
    drive(&mut firmware, &mut clock, &mut world);
    while let Some((timers, said)) = world.cut.take() {
        firmware = cut(firmware, &setup, &mut world, timers, said)?;
        clock = VirtualClock::at(firmware.subsystem.device().now());
        drive(&mut firmware, &mut clock, &mut world);
    }
    match world.wrong {
        Some(wrong) => Err(RerunError(wrong)),
        None => Ok(world.result),
    }
}
