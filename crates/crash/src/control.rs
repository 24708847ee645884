//! Faults of a mounted volume: a request is written to the file [`crate::CONTROL`] of the mount, and the answer read
//! from it.

use crate::state::{Lose, Tear};
use serde::{Deserialize, Serialize};
use tidewater_base::faults::{At, Fault, Listed};

/// A request, as one JSON object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The power fails and comes back: what was not durable is lost.
    PowerCut {
        /// Which of it.
        lose: Lose,
        /// Where writes are torn.
        tear: Tear,
        /// Seed of what is drawn.
        seed: u64,
        /// When; `None`: now.
        at: Option<At>,
    },
    /// Calls are late, fail, or have their data lost, misplaced or changed.
    Fault {
        /// The fault.
        fault: Fault,
    },
    /// The faults that are armed.
    List,
    /// Forgets all that are armed.
    Clear,
}

/// An answer: what was done, or why not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Whether it was done.
    pub done: bool,
    /// Words for the user.
    pub text: String,
    /// Of [`Request::List`]: the faults that are remembered.
    #[serde(default)]
    pub faults: Vec<Listed>,
}
