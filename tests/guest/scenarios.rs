//! Which guests there are.

use crate::device::{PLAIN, Setup};

/// Seconds that guests may be silent: between two checks, however slow the machine is. The sum says nothing: with no
/// more than a tenth of a processor, a guest that goes on takes ten times as long.
const SILENCE_MAX_S: u64 = 600;
const LONG_SILENCE_MAX_S: u64 = 3600;

/// A guest's life on a device.
pub struct Step {
    /// Jobs of `tests/guest/jobs`, with their arguments, one after another.
    pub jobs: Vec<String>,
    /// More of the kernel's command line.
    pub kernel: &'static str,
}

/// A device, and guests on it one after another.
pub struct Scenario {
    /// Short.
    pub name: &'static str,
    /// Its claim.
    pub what: &'static str,
    /// Only in `make torture`.
    pub long: bool,
    /// Seconds without a word after which a guest is given up.
    pub silence_max_s: u64,
    /// A folder that the guest gets: a variable of the environment that names it, and where else it may be, beside the
    /// checkout.
    pub folder: Option<(&'static str, &'static str)>,
    /// The guest gets the `tidewater` command, with the libraries that it needs.
    pub tool: bool,
    /// The device.
    pub setup: Setup,
    /// The guests; none: that of `make guest-shell` (`shell.rs`).
    pub steps: Vec<Step>,
}

/// With commands that are given up after 3 s in place of 30: guests that lose their drive notice soon.
const IMPATIENT: &str = "nvme_core.io_timeout=3 nvme_core.admin_timeout=3 nvme_core.shutdown_timeout=3";

fn step(jobs: &[&str], kernel: &'static str) -> Step {
    Step { jobs: jobs.iter().map(|job| (*job).to_owned()).collect(), kernel }
}

fn scenario(name: &'static str, what: &'static str, setup: Setup, steps: Vec<Step>) -> Scenario {
    Scenario { name, what, long: false, silence_max_s: SILENCE_MAX_S, folder: None, tool: false, setup, steps }
}

/// A file system is made, and cut `cuts` times in turn: killed with its guest, and its drive's power cut.
fn file_system(name: &'static str, what: &'static str, kind: &str, setup: Setup, cuts: usize) -> Scenario {
    let check = format!("files-check {kind}");
    let mut steps = Vec::new();
    for cut in 0..cuts {
        let way = if cut % 2 == 0 { "kill" } else { "power-cut" };
        if cut == 0 {
            steps.push(step(&[&format!("files-write {kind} fresh {way}")], IMPATIENT));
        } else {
            steps.push(step(&[&check, &format!("files-write {kind} again {way}")], IMPATIENT));
        }
    }
    steps.push(step(&[&check], ""));
    scenario(name, what, setup, steps)
}

/// All of them, in the order in which they run.
pub fn scenarios() -> Vec<Scenario> {
    let two_namespaces = Setup { namespaces: &[192, 64], ..PLAIN };
    let large = Setup { namespaces: &[512], ..PLAIN };
    let mut all = vec![
        scenario(
            "bind",
            "the kernel's driver binds and lends memory, which is used, and what nvme-cli asks is answered",
            Setup {
                settings: &[
                    "serve.hmb_preferred=32MiB",
                    "memory.lent.kind=host",
                    "memory.lent.size=16MiB",
                    "buffer.read_policy=lru",
                    "buffer.read_memory=lent",
                    "buffer.read_size=16MiB",
                ],
                capture: true,
                ..PLAIN
            },
            vec![step(&["bind"], "")],
        ),
        scenario(
            "manage",
            "format, namespace management, self-test, sanitize, and resets",
            PLAIN,
            vec![step(&["manage"], "")],
        ),
        Scenario {
            tool: true,
            ..scenario(
                "bars",
                "registers, controller memory buffer, persistent memory region and fast side, by mapped BARs; a kill",
                Setup {
                    profile: "villars",
                    settings: &["serve.cmb_size=16MiB", "serve.pmr_size=16MiB"],
                    namespaces: &[64],
                    memory_buffers: true,
                    ..PLAIN
                },
                vec![step(&["bars"], ""), step(&["bars-after"], "")],
            )
        },
        Scenario {
            tool: true,
            ..scenario(
                "window",
                "blocks pinned into the byte window, stored into by a write-combining mapping, synced, flushed and \
                 read back; a kill",
                Setup { profile: "2b-ssd", settings: &["window.gate=refuse"], namespaces: &[64], ..PLAIN },
                vec![step(&["window"], ""), step(&["window-after"], "")],
            )
        },
        scenario(
            "fio",
            "writes, trims, flushes and forced unit access over all queues, verified by fio",
            PLAIN,
            vec![step(&["fio 16"], "")],
        ),
        scenario(
            "caches",
            "a probe that opens the block device with O_DIRECT finds the read cache of the HMB paper's drive A",
            // Flash that takes longer than an emulated machine's way to the drive.
            Setup { profile: "ssd-a", settings: &["nand.read_time=20ms"], ..PLAIN },
            vec![step(&["caches"], "")],
        ),
        file_system("ext4", "files that ext4 synced outlive a kill and a power cut", "ext4", PLAIN, 2),
        file_system("xfs", "files that xfs synced outlive a kill and a power cut", "xfs", large, 2),
        file_system(
            "journal",
            "files of ext4 with its journal on a second namespace outlive a kill and a power cut",
            "journal",
            two_namespaces,
            2,
        ),
        scenario(
            "tcp",
            "NVMe/TCP: discovery, connection, digests, files, and a restart of the target",
            Setup { namespaces: &[128], tcp: true, ..PLAIN },
            vec![step(&["tcp"], "")],
        ),
        scenario(
            "nbd",
            "the kernel's NBD driver: verified I/O, trims, and files of ext4 that outlive a power cut",
            Setup { nbd: true, ..PLAIN },
            vec![step(&["nbd"], "")],
        ),
        scenario("shell", "`make guest-shell` runs commands by a pipe on a drive", PLAIN, Vec::new()),
        scenario(
            "faults",
            "what the driver makes of a failing range, of late, doubled and lost completions, and of a fatal status",
            Setup { namespaces: &[64], unreadable: true, ..PLAIN },
            vec![step(&["faults"], IMPATIENT)],
        ),
        Scenario {
            silence_max_s: LONG_SILENCE_MAX_S,
            folder: Some(("TIDEWATER_BLKTESTS", "../shared/blktests")),
            // Disks that are named after a subsystem keep tests that pass commands through from running.
            ..scenario(
                "blktests",
                "those tests of blktests' block and nvme groups that run on a given device",
                large,
                vec![step(&["blktests"], "nvme_core.multipath=N")],
            )
        },
    ];
    let long = [
        scenario("fio-long", "the same as fio, over 384 MiB", large, vec![step(&["fio 96"], "")]),
        file_system("ext4-long", "twelve cuts of ext4", "ext4", PLAIN, 12),
        file_system("xfs-long", "twelve cuts of xfs", "xfs", large, 12),
        file_system(
            "journal-long",
            "twelve cuts of ext4 with its journal on a second namespace",
            "journal",
            Setup { namespaces: &[512, 64], ..PLAIN },
            12,
        ),
    ];
    all.extend(long.map(|scenario| Scenario { long: true, silence_max_s: LONG_SILENCE_MAX_S, ..scenario }));
    all
}
