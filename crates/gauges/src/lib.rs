//! State of a drive at one moment, as numbers: the same for a served device and for a simulation. Counters only grow
//! while the drive has power; rates follow from two moments.

mod drive;
mod latency;

pub use drive::{Drive, Entry, Fill, Lane, Units, Wear};
pub use latency::{KINDS, Latencies, Spread};

use serde::Serialize;
use std::collections::BTreeMap;

/// One moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Moment {
    /// Seconds on the clock that rates go by: the wall's for a served device, the drive's own for a simulation.
    pub time_s: f64,
    /// In a word or two: "serving", "without power".
    pub state: String,
    /// I/O commands that ended, in the order of [`KINDS`].
    pub commands: [u64; 4],
    /// Of these, with an error.
    pub errors: u64,
    /// Bytes moved to hosts, and from hosts.
    pub bytes: [u64; 2],
    /// Commands under way.
    pub outstanding: u64,
    /// Of these, those of the submission queue that has most.
    pub outstanding_in_a_queue: u64,
    /// How often the power was cut.
    pub power_cuts: u64,
    /// Faults that wait for their commands, in words.
    pub faults: Vec<String>,
    /// How often power cuts and faults on commands have struck, by kind.
    pub faults_struck: BTreeMap<String, u64>,
    /// Resets of controllers.
    pub resets: u64,
    /// The drive; none without power.
    pub drive: Option<Drive>,
    /// Its peers, as in `tidewater status`; null without any.
    pub peers: serde_json::Value,
    /// How far a simulation has got; none of a served device.
    pub progress: Option<Progress>,
    /// Latencies by kind: for what makes quantiles of them.
    #[serde(skip)]
    pub latencies: Latencies,
    /// How long programs waited for levels of a log's durability, in the order of [`LEVELS`].
    #[serde(skip)]
    pub waits: Latencies,
}

/// The state of a run during its warm-up.
pub const WARMING_UP: &str = "warming up";

/// Levels of a log's durability that a device sees programs wait for.
pub const LEVELS: [&str; 3] = ["destaged", "remote_ring", "remote_destaged"];

/// How far a simulation has got.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Progress {
    /// The share that is done, 0 to 1, where that is known.
    pub share: Option<f64>,
    /// Requests that ended.
    pub requests: u64,
    /// Requests that ended per second of wall-clock time.
    pub requests_per_s: f64,
    /// Seconds of wall-clock time until it ends, where that is known.
    pub left_s: Option<f64>,
    /// It has come to its end.
    pub ended: bool,
}
