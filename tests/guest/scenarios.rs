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
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "bind",
        what: "the kernel's driver binds, and what nvme-cli asks is answered",
        long: false,
        setup: Setup { namespaces: &[256], memory_buffers: false },
        steps: &[Step { job: "bind", kernel: "", time_max_s: 60 }],
    },
    Scenario {
        name: "manage",
        what: "format, namespace management, self-test, sanitize, and resets",
        long: false,
        setup: Setup { namespaces: &[256], memory_buffers: false },
        steps: &[Step { job: "manage", kernel: "", time_max_s: 90 }],
    },
    Scenario {
        name: "bars",
        what: "registers, queues in the controller memory buffer, the persistent memory region, and the fast side, by mapped BARs",
        long: false,
        setup: Setup { namespaces: &[64], memory_buffers: true },
        steps: &[Step { job: "bars", kernel: "", time_max_s: 60 }],
    },
    Scenario {
        name: "fio",
        what: "writes, trims, flushes and forced unit access over all queues, verified by fio",
        long: false,
        setup: Setup { namespaces: &[256], memory_buffers: false },
        steps: &[Step { job: "fio 16", kernel: "", time_max_s: 120 }],
    },
];
