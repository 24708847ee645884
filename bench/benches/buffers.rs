//! Cost of a page access in the write buffer, and memory that a policy needs for each page: every policy, a buffer of
//! 64 MiB with pages of 4 KiB and blocks of 64 pages, beside a read cache of 24 MiB. One thread, processor time.
//!
//! `cargo bench -p tidewater-bench --bench buffers` runs all, with a name after `--` one policy. `--threshold` compares
//! the fixed thresholds of `cbm` with its dynamic one instead. These are measurements, not tests: nothing fails for
//! being slow.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::process::Command;
use tidewater_base::Rng;
use tidewater_core::buffer::{Buffer, POLICIES, Part, Run, Setting};
use tidewater_core::profile::Profile;

/// Pages of the buffer, of the read cache and of the drive.
const BUFFER: usize = 16_384;
const CACHE: usize = 6_144;
const DRIVE: u32 = 80_000_000;
const ACCESSES: u64 = 4_000_000;
/// Accesses of the comparison of thresholds: a few dozen times what the buffer holds, as a day has.
const LONG: u64 = 6_000_000;

/// Pattern of reads and writes. All addresses are pages.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    /// Pages that random accesses spread over.
    spread: u64,
    /// Skew: how often a place is halved before it is used.
    skew: u32,
    /// Share of requests that continue one of a few sequential streams, in percent.
    sequential: u64,
    /// Share of requests that read, in percent.
    reads: u64,
    /// Most pages of a random request.
    longest: u64,
}

const LOADS: &[Load] = &[
    Load { name: "random, a block each", spread: 80_000_000, skew: 0, sequential: 0, reads: 0, longest: 1 },
    Load { name: "skewed", spread: 1 << 18, skew: 2, sequential: 0, reads: 30, longest: 4 },
    Load { name: "mixed", spread: 1 << 17, skew: 1, sequential: 40, reads: 30, longest: 8 },
];

/// Requests, one after another.
struct Source {
    load: Load,
    rng: Rng,
    streams: [u32; 4],
}

impl Source {
    fn new(load: Load) -> Source {
        Source { load, rng: Rng::new(7, b"buffers"), streams: [40_000_000, 50_000_000, 60_000_000, 70_000_000] }
    }

    fn next(&mut self) -> (Run, bool) {
        let Load { spread, skew, sequential, reads, longest, .. } = self.load;
        let read = self.rng.below(100) < reads;
        if self.rng.below(100) < sequential {
            let stream = &mut self.streams[self.rng.below(4) as usize];
            *stream += 8;
            return (Run { first: *stream - 8, end: *stream }, false);
        }
        let mut below = spread;
        for _ in 0..skew {
            below = 1 + self.rng.below(below);
        }
        // Spread over the drive by a multiplication, block by block, so that hot pages are not neighbours of others.
        let place = self.rng.below(below);
        let first = ((place / 16).wrapping_mul(0x9e37_79b1) % (u64::from(DRIVE) / 64) * 64 + place % 16 * 4) as u32;
        let len = 1 + self.rng.below(longest) as u32;
        (Run { first, end: (first + len).min(DRIVE) }, read)
    }
}

/// A write buffer and a read cache as a drive has them, over flash that takes everything at once.
struct Buffers {
    buffer: Buffer,
    cache: Buffer,
    accesses: u64,
    /// Pages that went to flash.
    programmed: u64,
}

impl Buffers {
    fn new(policy: &str, threshold: u32) -> Buffers {
        let mut profile = Profile::generic();
        profile.buffer.cbm_threshold = threshold;
        let sequential = (profile.buffer.cbm_sequential / u64::from(profile.ftl.unit_size)) as u32;
        let profile = profile.buffer;
        let setting = Setting { capacity: BUFFER, block: 64, units: DRIVE, cached: CACHE, sequential, profile };
        Buffers {
            buffer: Buffer::new(policy, &setting, false),
            cache: Buffer::new("lru", &Setting { capacity: CACHE, ..setting }, false),
            accesses: 0,
            programmed: 0,
        }
    }

    fn request(&mut self, run: Run, read: bool) {
        for lpn in run.first..run.end {
            self.accesses += 1;
            if read { self.read(lpn) } else { self.write(lpn, run) }
        }
    }

    fn write(&mut self, lpn: u32, run: Run) {
        if self.cache.remove(lpn) {
            self.buffer.uncached(lpn);
        }
        while !self.buffer.write(lpn, 0, run) {
            if !self.buffer.drop_clean() {
                self.destage();
            }
        }
    }

    fn read(&mut self, lpn: u32) {
        if self.buffer.read(lpn) || self.cache.look_up(lpn) {
            return;
        }
        if self.buffer.keeps_clean() {
            while !self.buffer.keep(lpn) {
                self.destage();
            }
        }
        let buffer = &mut self.buffer;
        if self.cache.fill(lpn, |gone| buffer.uncached(gone)) {
            self.buffer.cached(lpn);
        }
    }

    fn destage(&mut self) {
        self.buffer.choose(8);
        self.buffer.count_leaving();
        while let Some(page) = self.buffer.leaving().first() {
            self.programmed += u64::from(page.part != Part::Padding);
            self.buffer.take_leaving(true);
        }
    }
}

fn cpu_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| usage.user_time().num_microseconds() as f64 * 1e-6)
}

fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()).map_or(0.0, |kib| kib * 1024.0)
}

/// The resident memory of full buffers, for each page: of many, so that what else the process has does not count.
fn bytes_per_page(policy: &str, load: Load) -> f64 {
    let mut full = Vec::new();
    let before = resident_bytes();
    for _ in 0..16 {
        let (mut buffers, mut source) = (Buffers::new(policy, 0), Source::new(load));
        while buffers.buffer.statistics.departures == 0 {
            let (run, _) = source.next();
            buffers.request(run, false);
        }
        full.push(buffers.buffer);
    }
    (resident_bytes() - before) / full.iter().map(Buffer::len).sum::<usize>() as f64
}

fn measure(policy: &str) {
    // First, and for the load that needs most: later, memory that was freed would be used again.
    let bytes = bytes_per_page(policy, LOADS[0]);
    println!("{policy:<9} {bytes:>5.0} bytes/page");
    for load in LOADS {
        let (mut buffers, mut source) = (Buffers::new(policy, 0), Source::new(*load));
        while buffers.accesses < ACCESSES / 4 {
            let (run, read) = source.next();
            buffers.request(run, read);
        }
        // Requests are made before, so that their random numbers do not count.
        let requests: Vec<_> = std::iter::repeat_with(|| source.next()).take(ACCESSES as usize / 4).collect();
        let (start, begun) = (buffers.accesses, cpu_seconds());
        requests.iter().for_each(|&(run, read)| buffers.request(run, read));
        let (n, cpu) = ((buffers.accesses - start) as f64, cpu_seconds() - begun);
        println!("{policy:<9} {:<22} {:>6.2} M accesses/s {:>6.0} ns/access", load.name, n / cpu / 1e6, cpu / n * 1e9);
    }
}

/// Effect of a threshold on a load: cost of its victims, hits, pages of a victim.
fn thresholds() {
    let workloads = [
        ("small random, flat", Load { name: "", spread: 1 << 20, skew: 0, sequential: 0, reads: 0, longest: 2 }),
        ("small random, skewed", Load { name: "", spread: 1 << 18, skew: 3, sequential: 0, reads: 0, longest: 2 }),
        ("larger random, skewed", Load { name: "", spread: 1 << 18, skew: 2, sequential: 0, reads: 0, longest: 16 }),
        ("a tenth sequential", Load { name: "", spread: 1 << 18, skew: 2, sequential: 10, reads: 30, longest: 4 }),
        ("half sequential", Load { name: "", spread: 1 << 17, skew: 2, sequential: 50, reads: 30, longest: 4 }),
        ("mostly reads", Load { name: "", spread: 1 << 17, skew: 2, sequential: 5, reads: 80, longest: 4 }),
    ];
    println!("pages that victims cost for each page written (hit ratio, dirty pages of a victim), by threshold\n");
    print!("{:<22}", "workload");
    let columns = [1, 2, 4, 8, 16, 32, 64, 0];
    columns.iter().for_each(|&t| print!(" {:>18}", if t == 0 { "dynamic".to_owned() } else { t.to_string() }));
    println!();
    for (name, load) in workloads {
        print!("{name:<22}");
        for threshold in columns {
            let (mut buffers, mut source) = (Buffers::new("cbm", threshold), Source::new(load));
            while buffers.accesses < LONG {
                let (run, read) = source.next();
                buffers.request(run, read);
                if buffers.accesses < LONG / 10 {
                    buffers.buffer.reset_statistics(tidewater_base::Instant::ZERO);
                }
            }
            let s = &buffers.buffer.statistics;
            let written = (s.hits + s.misses) as f64;
            // Its own pages and, for the merge of its block, as many as a block has: what the dynamic threshold counts.
            let cost = (64 * s.departures + s.evictions) as f64 / written;
            print!(" {cost:>6.1} ({:.3}, {:>4.1})", s.hits as f64 / written, s.evictions as f64 / s.departures as f64);
        }
        println!();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if arguments.iter().any(|a| a == "--threshold") {
        return thresholds();
    }
    let policies = || POLICIES.iter().filter(|&&name| name != "none");
    match arguments.first() {
        Some(name) if POLICIES.contains(&name.as_str()) => measure(name),
        Some(name) => println!("no policy is named {name}; there are {}", POLICIES.join(", ")),
        // A process for each, so that one's memory is not counted for the next.
        None => policies().for_each(|name| {
            let me = std::env::current_exe().expect("the program's path is known");
            let status = Command::new(me).arg(name).status().expect("the program can be run again");
            assert!(status.success(), "{name} failed");
        }),
    }
}
