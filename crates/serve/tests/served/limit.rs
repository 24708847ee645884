//! How long the tests of this package wait.

use std::time::Duration;

/// The one limit for everything that a test waits for, on any machine: only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(600);
