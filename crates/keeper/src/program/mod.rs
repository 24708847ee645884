//! A program that follows the primary: it runs beside the device that is primary, and on no other machine.
//!
//! Its *supervisor* (`tidewater cluster keeper program`) is a process of its own, the parent of the program. The keeper
//! grants it time, up to a deadline on the machine's clock that is never beyond the keeper's lease. A supervisor whose
//! deadline comes near stops the program, and kills it, whatever has become of the keeper. A keeper that was started
//! anew finds the program running. [`policy`] is all that a supervisor decides, without I/O.

pub mod client;
pub mod policy;
mod process;
pub mod supervisor;

pub use process::become_command;

use crate::epoch::Epoch;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Bytes of a request or an answer, at most.
const LINE_MAX: u64 = 64 << 10;
/// Ends of a program, one soon after the other, after which its keeper gives leadership up.
pub const FAILURES_MAX: u32 = 3;

/// A keeper's word to the supervisor: one JSON object a line, which is answered by a [`Report`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// The program is to run, and to be gone by `until_ms` of the machine's monotonic clock. `None`: without a
    /// deadline, while the cluster is paused.
    Run {
        /// This machine's node.
        node: u8,
        /// The epoch that its device is primary of.
        epoch: Epoch,
        /// The deadline, in milliseconds.
        until_ms: Option<u64>,
        /// How long before the deadline the program is stopped, in milliseconds. It is killed after two thirds of that.
        stop_ms: u64,
    },
    /// The program is not to run. The standby command is, if another node leads; `None`: it goes on if it runs.
    Standby {
        /// This machine's node.
        node: u8,
        /// The node that leads.
        primary: Option<u8>,
        /// How long the program has to end, in milliseconds. It is killed after two thirds of that.
        stop_ms: u64,
    },
    /// Neither is to run.
    Stop {
        /// As for a standby.
        stop_ms: u64,
    },
    /// All stays as it is.
    Look,
}

/// State of a supervisor's command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Nothing.
    #[default]
    Stopped,
    /// The standby command.
    Standby,
    /// The program.
    Running,
    /// The program, which was asked to end.
    Stopping,
    /// Nothing: the program has ended by itself, and is started again soon.
    Ended,
}

/// How a program stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The state.
    pub state: State,
    /// Starts of the program by this supervisor.
    pub starts: u64,
    /// How often the program has ended by itself, one end soon after the other.
    pub failures: u32,
    /// How it ended last, in words; empty: it has not.
    #[serde(default)]
    pub last: String,
}

impl Report {
    /// Whether no process of the program is there.
    pub fn is_gone(&self) -> bool {
        matches!(self.state, State::Stopped | State::Standby | State::Ended)
    }

    /// The state in words.
    pub fn in_words(&self) -> String {
        match self.state {
            State::Stopped => "the program is stopped".into(),
            State::Standby => "the program's standby command runs".into(),
            State::Running => "the program runs".into(),
            State::Stopping => "the program is being stopped".into(),
            State::Ended => format!("the program has ended by itself ({}), and is started again", self.last),
        }
    }
}

/// Milliseconds of the machine's monotonic clock, the same for each process, and the one that devices count by.
pub fn clock_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or_else(|_| nix::sys::time::TimeSpec::new(0, 0));
    (now.tv_sec() as u64).saturating_mul(1_000).saturating_add(now.tv_nsec() as u64 / 1_000_000)
}
