//! Which guests there are.

use crate::device::Setup;

/// A guest's life on a device.
pub struct Step {
    /// Jobs of `tests/guest/jobs`, with their arguments, one after another.
    pub jobs: &'static [&'static str],
    /// More of the kernel's command line.
    pub kernel: &'static str,
    /// Seconds after which the guest is given up, beyond its start: several times what it takes on a busy machine.
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
        setup: Setup { namespaces: &[256], memory_buffers: false, tcp: false, unreadable: false },
        steps: &[Step { jobs: &["bind"], kernel: "", time_max_s: 400 }],
    },
    Scenario {
        name: "manage",
        what: "format, namespace management, self-test, sanitize, and resets",
        long: false,
        setup: Setup { namespaces: &[256], memory_buffers: false, tcp: false, unreadable: false },
        steps: &[Step { jobs: &["manage"], kernel: "", time_max_s: 400 }],
    },
    Scenario {
        name: "bars",
        what: "registers, queues in the controller memory buffer, the persistent memory region, and the fast side, by mapped BARs",
        long: false,
        setup: Setup { namespaces: &[64], memory_buffers: true, tcp: false, unreadable: false },
        steps: &[Step { jobs: &["bars"], kernel: "", time_max_s: 400 }],
    },
    Scenario {
        name: "fio",
        what: "writes, trims, flushes and forced unit access over all queues, verified by fio",
        long: false,
        setup: Setup { namespaces: &[256], memory_buffers: false, tcp: false, unreadable: false },
        steps: &[Step { jobs: &["fio 16"], kernel: "", time_max_s: 400 }],
    },
    Scenario {
        name: "ext4",
        what: "ext4: synced files outlive a kill of drive and guest, and a power cut of the drive",
        long: false,
        setup: Setup { namespaces: &[256], memory_buffers: false, tcp: false, unreadable: false },
        steps: &[
            Step { jobs: &["files-write ext4 fresh kill"], kernel: "", time_max_s: 400 },
            Step {
                jobs: &["files-check ext4", "files-write ext4 again power-cut"],
                kernel: "nvme_core.io_timeout=3 nvme_core.admin_timeout=3",
                time_max_s: 400,
            },
            Step { jobs: &["files-check ext4"], kernel: "", time_max_s: 400 },
        ],
    },
    Scenario {
        name: "xfs",
        what: "xfs: synced files outlive a kill of drive and guest, and a power cut of the drive",
        long: false,
        setup: Setup { namespaces: &[512], memory_buffers: false, tcp: false, unreadable: false },
        steps: &[
            Step { jobs: &["files-write xfs fresh kill"], kernel: "", time_max_s: 400 },
            Step {
                jobs: &["files-check xfs", "files-write xfs again power-cut"],
                kernel: "nvme_core.io_timeout=3 nvme_core.admin_timeout=3",
                time_max_s: 400,
            },
            Step { jobs: &["files-check xfs"], kernel: "", time_max_s: 400 },
        ],
    },
    Scenario {
        name: "journal",
        what: "ext4 with an external journal on a second namespace: synced files outlive a kill of drive and guest, and a power cut of the drive",
        long: false,
        setup: Setup { namespaces: &[192, 64], memory_buffers: false, tcp: false, unreadable: false },
        steps: &[
            Step { jobs: &["files-write journal fresh kill"], kernel: "", time_max_s: 400 },
            Step {
                jobs: &["files-check journal", "files-write journal again power-cut"],
                kernel: "nvme_core.io_timeout=3 nvme_core.admin_timeout=3",
                time_max_s: 400,
            },
            Step { jobs: &["files-check journal"], kernel: "", time_max_s: 400 },
        ],
    },
    Scenario {
        name: "tcp",
        what: "NVMe/TCP: discovery, connection, digests, files, and a restart of the target",
        long: false,
        setup: Setup { namespaces: &[128], memory_buffers: false, tcp: true, unreadable: false },
        steps: &[Step { jobs: &["tcp"], kernel: "", time_max_s: 400 }],
    },
    Scenario {
        name: "faults",
        what: "what the driver makes of a failing range, of late, doubled and lost completions, and of a fatal status",
        long: false,
        setup: Setup { namespaces: &[64], memory_buffers: false, tcp: false, unreadable: true },
        steps: &[Step {
            jobs: &["faults"],
            kernel: "nvme_core.io_timeout=3 nvme_core.admin_timeout=3 nvme_core.shutdown_timeout=3",
            time_max_s: 400,
        }],
    },
];
