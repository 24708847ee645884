//! Which guests there are.

use crate::device::Setup;

/// A guest's life on a device.
pub struct Step {
    /// A job of `tests/guest/jobs`, and its arguments.
    pub job: &'static str,
    /// More of the kernel's command line.
    pub kernel: &'static str,
    /// Seconds after which the guest is given up, beyond its start.
    pub time_max_s: u64,
}

/// A device, and guests on it one after another.
pub struct Scenario {
    /// Short.
    pub name: &'static str,
    /// What it shows.
    pub what: &'static str,
    /// Only in `make torture`.
    pub long: bool,
    /// The device.
    pub setup: Setup,
    /// The guests.
    pub steps: &'static [Step],
}

/// All of them, in the order in which they run.
pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "bind",
    what: "the kernel's driver binds, and nvme-cli's commands work",
    long: false,
    setup: Setup { namespaces: &[256] },
    steps: &[Step { job: "bind", kernel: "", time_max_s: 60 }],
}];
