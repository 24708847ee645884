//! The panels and the alerts.

use super::{Alert, Panel, Row};

/// The rows of the dashboard.
pub const ROWS: &[Row] = &[
    Row { title: "Hosts", panels: HOSTS },
    Row { title: "Flash", panels: FLASH },
    Row { title: "Memories", panels: MEMORIES },
    Row { title: "Log", panels: LOG },
    Row { title: "Image", panels: IMAGE },
    Row { title: "Peers", panels: PEERS },
    Row { title: "Keepers", panels: KEEPERS },
];

const HOSTS: &[Panel] = &[
    Panel {
        title: "I/O operations",
        description: "I/O commands completed per second, by kind.",
        unit: "iops",
        queries: &[("rate(tidewater_commands_total{$i}[$r])", "{{instance}} {{kind}}")],
        moves: true,
    },
    Panel {
        title: "Bandwidth",
        description: "Bytes that I/O commands moved per second: to the host are reads, to the device writes.",
        unit: "Bps",
        queries: &[("rate(tidewater_bytes_total{$i}[$r])", "{{instance}} to {{to}}")],
        moves: true,
    },
    Panel {
        title: "Outstanding commands",
        description: "I/O commands in progress, of all queues.",
        unit: "none",
        queries: &[("tidewater_outstanding_commands{$i}", "{{instance}}")],
        moves: false,
    },
    Panel {
        title: "Outstanding commands by queue",
        description: "Commands in progress of each submission queue; queue 0 is the admin queue.",
        unit: "none",
        queries: &[("tidewater_queue_outstanding_commands{$i}", "{{instance}} {{function}}/{{queue}}")],
        moves: false,
    },
    // Of a kind without commands in the time of the rate, a quantile is NaN.
    Panel {
        title: "Latency, median",
        description: "Half of the commands took at most this, from reading the command to its completion.",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.5, rate(tidewater_command_duration_seconds_bucket{$i}[$r]))",
            "{{instance}} {{kind}}",
        )],
        moves: true,
    },
    Panel {
        title: "Latency, 99 %",
        description: "99 of 100 commands took at most this.",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, rate(tidewater_command_duration_seconds_bucket{$i}[$r]))",
            "{{instance}} {{kind}}",
        )],
        moves: true,
    },
    Panel {
        title: "Latency, 99.9 %",
        description: "999 of 1,000 commands took at most this.",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.999, rate(tidewater_command_duration_seconds_bucket{$i}[$r]))",
            "{{instance}} {{kind}}",
        )],
        moves: true,
    },
    Panel {
        title: "Errors",
        description: "Commands per second that completed with an error.",
        unit: "ops",
        queries: &[("rate(tidewater_errors_total{$i}[$r])", "{{instance}}")],
        moves: false,
    },
    Panel {
        title: "State",
        description: "Powered: 0 after a power cut. Read-only: 1 when flash or image take no writes any more.",
        unit: "none",
        queries: &[
            ("tidewater_powered{$i}", "{{instance}} powered"),
            ("tidewater_read_only{$i}", "{{instance}} read-only"),
        ],
        moves: false,
    },
];

const FLASH: &[Panel] = &[
    // Without writes in the time of the rate, it is NaN.
    Panel {
        title: "Write amplification by source",
        description: "Units programmed per unit that hosts and logs wrote; the sum of all is the write amplification.",
        unit: "none",
        queries: &[(
            "sum by (instance, by) (rate(tidewater_flash_units_total{$i}[$r])) / on (instance) group_left () \
             sum by (instance) (rate(tidewater_flash_units_total{$i,by=~\"host|log\"}[$r]))",
            "{{instance}} {{by}}",
        )],
        moves: true,
    },
    Panel {
        title: "Collections and erases",
        description: "Superblocks that garbage collection emptied, and blocks erased, per second.",
        unit: "ops",
        queries: &[
            ("rate(tidewater_collections_total{$i}[$r])", "{{instance}} collections"),
            ("rate(tidewater_erases_total{$i}[$r])", "{{instance}} erases"),
        ],
        moves: false,
    },
    Panel {
        title: "Busy dies by work",
        description: "Share of their time that dies were busy; near 100 %, flash limits the drive.",
        unit: "percentunit",
        queries: &[(
            "rate(tidewater_die_busy_seconds_total{$i}[$r]) / on (instance) group_left () tidewater_dies{$i}",
            "{{instance}} {{work}}",
        )],
        moves: true,
    },
    Panel {
        title: "Free superblocks",
        description: "Superblocks that hold no data, and all that are not bad.",
        unit: "none",
        queries: &[
            ("tidewater_free_superblocks{$i}", "{{instance}} free"),
            ("tidewater_superblocks{$i}", "{{instance}} good"),
        ],
        moves: true,
    },
    Panel {
        title: "Erasures of superblocks",
        description: "Least, mean and most: far apart, wear is uneven.",
        unit: "none",
        queries: &[("tidewater_superblock_erases{$i}", "{{instance}} {{of}}")],
        moves: false,
    },
    Panel {
        title: "Endurance used",
        description: "Mean erasures of a superblock, as a share of what its flash is made for.",
        unit: "percentunit",
        queries: &[("tidewater_endurance_used_ratio{$i}", "{{instance}}")],
        moves: false,
    },
    Panel {
        title: "Suspensions and failures",
        description: "Programs and erases suspended for reads, and programs that failed, per second.",
        unit: "ops",
        queries: &[
            ("rate(tidewater_suspensions_total{$i}[$r])", "{{instance}} suspensions"),
            ("rate(tidewater_program_failures_total{$i}[$r])", "{{instance}} failed programs"),
        ],
        moves: false,
    },
];

const MEMORIES: &[Panel] = &[
    Panel {
        title: "Write buffer",
        description: "Share of the write buffer that holds pages, and pages not yet on flash.",
        unit: "percentunit",
        queries: &[
            (
                "tidewater_memory_used_pages{$i,memory=\"write_buffer\"} / (tidewater_memory_pages{$i} > 0)",
                "{{instance}} used",
            ),
            (
                "tidewater_memory_dirty_pages{$i,memory=\"write_buffer\"} / (tidewater_memory_pages{$i} > 0)",
                "{{instance}} dirty",
            ),
        ],
        moves: false,
    },
    Panel {
        title: "Read cache",
        description: "Pages that the read cache holds, and its size; 0 if the drive has none.",
        unit: "none",
        queries: &[
            ("tidewater_memory_used_pages{$i,memory=\"read_cache\"}", "{{instance}} used"),
            ("tidewater_memory_pages{$i,memory=\"read_cache\"}", "{{instance}} size"),
        ],
        moves: false,
    },
    Panel {
        title: "Volatile pages",
        description: "Pages that a power loss would take: they are in volatile memory only.",
        unit: "none",
        queries: &[("tidewater_volatile_pages{$i}", "{{instance}}")],
        moves: false,
    },
    Panel {
        title: "Host memory buffer",
        description: "Bytes that the host lends; 0 if none.",
        unit: "bytes",
        queries: &[("tidewater_host_memory_bytes{$i}", "{{instance}}")],
        moves: false,
    },
    Panel {
        title: "Host memory traffic",
        description: "Bytes moved to and from the host memory buffer per second.",
        unit: "Bps",
        queries: &[("rate(tidewater_host_memory_moved_bytes_total{$i}[$r])", "{{instance}} {{by}}")],
        moves: false,
    },
    Panel {
        title: "Byte window",
        description: "Bytes pinned into the byte window.",
        unit: "bytes",
        queries: &[("tidewater_window_pinned_bytes{$i}", "{{instance}}")],
        moves: false,
    },
];

const LOG: &[Panel] = &[
    Panel {
        title: "Appended",
        description: "Bytes appended to the log per second, by function and lane.",
        unit: "Bps",
        queries: &[("rate(tidewater_log_appended_bytes_total{$i}[$r])", "{{instance}} {{function}}/{{lane}}")],
        moves: true,
    },
    // A secondary acknowledges nothing by itself.
    Panel {
        title: "Acknowledged, not on flash",
        description: "Bytes that are acknowledged and only in the ring.",
        unit: "bytes",
        queries: &[(
            "clamp_min(tidewater_log_credited_bytes_total{$i} - tidewater_log_destaged_bytes_total{$i}, 0)",
            "{{instance}} {{function}}/{{lane}}",
        )],
        moves: false,
    },
    Panel {
        title: "Ring used",
        description: "Share of the ring whose bytes are not yet on their way to flash; at 100 %, appends wait.",
        unit: "percentunit",
        queries: &[(
            "tidewater_log_ring_used_bytes{$i} / tidewater_log_ring_bytes{$i}",
            "{{instance}} {{function}}/{{lane}}",
        )],
        moves: false,
    },
    // Of a level without waits in the time of the rate, a quantile is NaN.
    Panel {
        title: "Waits for the log, 99 %",
        description: "99 of 100 waits that the device saw programs make for a level of their log took at most this.",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (instance, level, le) (rate(tidewater_log_wait_seconds_bucket{$i}[$r])))",
            "{{instance}} {{level}}",
        )],
        moves: true,
    },
    Panel {
        title: "Log on flash",
        description: "Bytes of the log that can be read from flash: not trimmed yet.",
        unit: "bytes",
        queries: &[(
            "tidewater_log_destaged_bytes_total{$i} - tidewater_log_trimmed_bytes_total{$i}",
            "{{instance}} {{function}}/{{lane}}",
        )],
        moves: true,
    },
];

const IMAGE: &[Panel] = &[
    // Without syncs in the time of the rate, it is NaN.
    Panel {
        title: "Time of a sync",
        description: "Mean time that a sync of the image takes: what a flush waits for on the disk below.",
        unit: "s",
        queries: &[(
            "rate(tidewater_image_sync_seconds_total{$i}[$r]) / rate(tidewater_image_syncs_total{$i}[$r])",
            "{{instance}}",
        )],
        moves: true,
    },
    Panel {
        title: "Syncs",
        description: "Syncs of the image per second.",
        unit: "ops",
        queries: &[("rate(tidewater_image_syncs_total{$i}[$r])", "{{instance}}")],
        moves: true,
    },
    Panel {
        title: "Size of the image",
        description: "Bytes of the image's file, holes included.",
        unit: "bytes",
        queries: &[("tidewater_image_bytes{$i}", "{{instance}}")],
        moves: true,
    },
];

const PEERS: &[Panel] = &[
    Panel {
        title: "Connected",
        description: "1 while a peer is connected; in step: it answers and has all that the epoch began with.",
        unit: "none",
        queries: &[
            ("tidewater_peer_up{$i}", "{{instance}} peer {{peer}}"),
            ("tidewater_replica_in_step{$i}", "{{instance}} replica {{peer}} in step"),
        ],
        moves: true,
    },
    Panel {
        title: "Round trip",
        description: "Smoothed round trip to a peer.",
        unit: "s",
        queries: &[("tidewater_peer_round_trip_seconds{$i}", "{{instance}} peer {{peer}}")],
        moves: true,
    },
    Panel {
        title: "Replicas behind, bytes",
        description: "Bytes of the log that a replica lacks, and bytes that wait to be sent.",
        unit: "bytes",
        queries: &[
            ("tidewater_replica_behind_bytes{$i}", "{{instance}} replica {{peer}}"),
            ("tidewater_peer_waiting_bytes{$i}", "{{instance}} waiting for {{peer}}"),
        ],
        moves: false,
    },
    Panel {
        title: "Replicas behind, time",
        description: "Age of the oldest byte that a replica lacks, up to 60 s.",
        unit: "s",
        queries: &[("tidewater_replica_behind_seconds{$i}", "{{instance}} replica {{peer}}")],
        moves: false,
    },
    Panel {
        title: "Role",
        description: "1 for the role that a function has in its group.",
        unit: "none",
        queries: &[("tidewater_group_role{$i}", "{{instance}} function {{function}} {{role}}")],
        moves: true,
    },
    Panel {
        title: "Epoch",
        description: "Counter of the epoch of a function's log: each promotion adds one.",
        unit: "none",
        queries: &[("tidewater_group_epoch{$i}", "{{instance}} function {{function}}")],
        moves: true,
    },
];

const KEEPERS: &[Panel] = &[
    Panel {
        title: "Primary",
        description: "1 for the keeper whose device is primary and may acknowledge; frozen: its deadline has passed.",
        unit: "none",
        queries: &[
            ("tidewater_keeper_primary{$i}", "{{instance}} primary"),
            ("tidewater_keeper_frozen{$i}", "{{instance}} frozen"),
        ],
        moves: false,
    },
    Panel {
        title: "Leadership",
        description: "For how long no keeper has led, and how often another one came to lead.",
        unit: "none",
        queries: &[
            ("tidewater_keeper_leaderless_seconds{$i}", "{{instance}} s without a leader"),
            ("tidewater_keeper_leader_changes_total{$i}", "{{instance}} changes"),
        ],
        moves: false,
    },
    Panel {
        title: "What keepers reach",
        description: "Seconds since the last word of etcd; 1 while the device answers.",
        unit: "none",
        queries: &[
            ("tidewater_keeper_etcd_silent_seconds{$i}", "{{instance}} s without etcd"),
            ("tidewater_keeper_device_answers{$i}", "{{instance}} device answers"),
        ],
        moves: true,
    },
];

/// The alerts.
pub const ALERTS: &[Alert] = &[
    Alert {
        name: "TidewaterDown",
        expression: "up{job=\"tidewater\"}",
        threshold: "== 0",
        lasts: "1m",
        severity: "critical",
        summary: "{{ $labels.instance }} does not answer",
        description: "Prometheus gets no metrics: the process ended, or it hangs. See its journal.",
    },
    Alert {
        name: "TidewaterNoPower",
        expression: "tidewater_powered",
        threshold: "== 0",
        lasts: "1m",
        severity: "warning",
        summary: "{{ $labels.instance }} has no power",
        description: "A power cut was injected, and power did not come back: end the fault, or restart the device.",
    },
    Alert {
        name: "TidewaterReadOnly",
        expression: "tidewater_read_only",
        threshold: "== 1",
        lasts: "0m",
        severity: "critical",
        summary: "{{ $labels.instance }} is read-only",
        description: "Flash has no spare blocks left, or the image cannot be written: `tidewater status` says which.",
    },
    Alert {
        name: "TidewaterErrors",
        expression: "rate(tidewater_errors_total[5m])",
        threshold: "> 0.1",
        lasts: "5m",
        severity: "warning",
        summary: "{{ $labels.instance }} completes commands with errors",
        description: "{{ $value | humanize }} commands per second fail. See the SMART log and armed faults.",
    },
    Alert {
        name: "TidewaterFreeSuperblocksLow",
        expression: "avg_over_time(tidewater_free_superblocks[5m])",
        threshold: "< 1",
        lasts: "5m",
        severity: "warning",
        summary: "{{ $labels.instance }} has hardly a free superblock",
        description: "Garbage collection does not keep up and writes wait: deallocate, or raise over-provisioning.",
    },
    Alert {
        name: "TidewaterWorn",
        expression: "tidewater_endurance_used_ratio",
        threshold: "> 0.9",
        lasts: "10m",
        severity: "warning",
        summary: "{{ $labels.instance }} has used {{ $value | humanizePercentage }} of its endurance",
        description: "The flash is near the end of the erasures that it is made for: move to a new image.",
    },
    Alert {
        name: "TidewaterRingFull",
        expression: "tidewater_log_ring_used_bytes / tidewater_log_ring_bytes",
        threshold: "> 0.9",
        lasts: "1m",
        severity: "warning",
        summary: "The ring of {{ $labels.instance }}, lane {{ $labels.lane }}, is full",
        description: "Programs append faster than flash takes the log, or the log is not trimmed: appends wait.",
    },
    Alert {
        name: "TidewaterDestageBehind",
        // A secondary acknowledges nothing by itself.
        expression: "clamp_min(tidewater_log_credited_bytes_total - tidewater_log_destaged_bytes_total, 0) / \
                     tidewater_log_ring_bytes",
        threshold: "> 0.75",
        lasts: "5m",
        severity: "warning",
        summary: "Destaging of {{ $labels.instance }}, lane {{ $labels.lane }}, is behind",
        description: "Acknowledged bytes that are not on flash take {{ $value | humanizePercentage }} of the ring.",
    },
    // Without a sync in five minutes, it is NaN, and no alert.
    Alert {
        name: "TidewaterImageSyncSlow",
        expression: "rate(tidewater_image_sync_seconds_total[5m]) / rate(tidewater_image_syncs_total[5m])",
        threshold: "> 0.1",
        lasts: "5m",
        severity: "warning",
        summary: "A sync of the image of {{ $labels.instance }} takes {{ $value | humanizeDuration }}",
        description: "Each flush waits that long for the disk below the image: see what else that disk does.",
    },
    Alert {
        name: "TidewaterPeerAway",
        expression: "tidewater_peer_up",
        threshold: "== 0",
        lasts: "1m",
        severity: "warning",
        summary: "{{ $labels.instance }} has no connection to peer {{ $labels.peer }}",
        description: "The peer's device or the network is down: `tidewater cluster group status` says since when.",
    },
    Alert {
        name: "TidewaterCertificateExpires",
        expression: "tidewater_peer_certificate_expires_timestamp_seconds - time()",
        threshold: "< 1209600",
        lasts: "0m",
        severity: "warning",
        summary: "The certificate of device {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
        description: "Copy a renewed one to where its files are: it is taken up without a restart.",
    },
    Alert {
        name: "TidewaterCertificateRefused",
        expression: "tidewater_peer_certificate_refused",
        threshold: "== 1",
        lasts: "1m",
        severity: "warning",
        summary: "The new certificate of device {{ $labels.instance }} can't be used",
        description: "The one before is in use until it expires: `tidewater cluster group status` says why.",
    },
    Alert {
        name: "TidewaterKeeperCertificateExpires",
        expression: "tidewater_keeper_certificate_expires_timestamp_seconds - time()",
        threshold: "< 1209600",
        lasts: "0m",
        severity: "warning",
        summary: "The certificate of keeper {{ $labels.instance }} expires in {{ $value | humanizeDuration }}",
        description: "Copy a renewed one to where its files are: it is taken up without a restart.",
    },
    Alert {
        name: "TidewaterKeeperCertificateRefused",
        expression: "tidewater_keeper_certificate_refused",
        threshold: "== 1",
        lasts: "1m",
        severity: "warning",
        summary: "The new certificate of keeper {{ $labels.instance }} can't be used",
        description: "The one before is in use until it expires: `tidewater cluster keeper status` says why.",
    },
    Alert {
        name: "TidewaterReplicaNotInStep",
        expression: "tidewater_replica_in_step",
        threshold: "== 0",
        lasts: "5m",
        severity: "warning",
        summary: "Replica {{ $labels.peer }} of {{ $labels.instance }} is not in step",
        description: "It does not count in a promotion until it has caught up: see `tidewater cluster group status`.",
    },
    Alert {
        name: "TidewaterReplicaBehind",
        expression: "tidewater_replica_behind_seconds",
        threshold: "> 5",
        lasts: "1m",
        severity: "warning",
        summary: "Replica {{ $labels.peer }} of {{ $labels.instance }} is {{ $value | humanizeDuration }} behind",
        description: "Bytes that it lacks are on the primary alone: the network or the replica is too slow.",
    },
    Alert {
        name: "TidewaterDiskFailed",
        expression: "tidewater_disk_failed",
        threshold: "== 1",
        lasts: "0m",
        severity: "critical",
        summary: "The disk of {{ $labels.instance }} can't be written ({{ $labels.why }})",
        description: "It acknowledges nothing more. Full: make room. Failed: repair it, and start the device again.",
    },
    Alert {
        name: "TidewaterNoPrimary",
        expression: "max by (cluster) (tidewater_keeper_primary)",
        threshold: "== 0",
        lasts: "30s",
        severity: "critical",
        summary: "No device of cluster {{ $labels.cluster }} is a primary that may acknowledge",
        description: "Programs wait: `tidewater cluster keeper status` says what each keeper waits for.",
    },
    Alert {
        name: "TidewaterEtcdSilent",
        expression: "tidewater_keeper_etcd_silent_seconds",
        threshold: "> 10",
        lasts: "0m",
        severity: "warning",
        summary: "{{ $labels.instance }} has had no word of etcd for {{ $value | humanizeDuration }}",
        description: "No member can be promoted meanwhile: `tidewater cluster keeper status` says what ails etcd.",
    },
    Alert {
        name: "TidewaterDeviceSilent",
        expression: "tidewater_keeper_device_answers",
        threshold: "== 0",
        lasts: "1m",
        severity: "warning",
        summary: "The device of {{ $labels.instance }} does not answer its keeper",
        description: "Its process ended, or its disk does not answer: see its journal.",
    },
];
