//! Made-up records, with every part filled.

use std::collections::BTreeMap;
use tidewater_report::record::*;

/// A small deterministic generator, uniform in 0 to 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn latency(samples: u64, mut values: Vec<f64>) -> Latency {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    let at = |share: f64| values[(share * last as f64).round() as usize];
    let mut cdf: Vec<(f64, f64)> = (1..=300).map(|i| f64::from(i) / 300.0).map(|share| (at(share), share)).collect();
    let tail = [0.999, 0.9995, 0.9999, 0.99995].map(|share| (at(share), share));
    cdf.extend(tail);
    cdf.sort_by(|a, b| a.1.total_cmp(&b.1));
    Latency {
        count: samples,
        mean: values.iter().sum::<f64>() / values.len() as f64,
        min: values[0],
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: values[last],
        cdf,
    }
}

/// A drive that fills up and starts to collect.
pub fn rich() -> Record {
    scaled(1.0)
}

/// [`rich`], with flash that is `slower` times as slow.
pub fn scaled(slower: f64) -> Record {
    let mut noise = Noise(42);
    let reads: Vec<f64> = (0..60_000)
        .map(|_| {
            let (base, queue, suspended) = (noise.next(), noise.next(), noise.next());
            let wait = -(1.0 - queue).ln() * 24.0 + if suspended > 0.985 { 900.0 * noise.next() } else { 0.0 };
            (if base < 0.12 { 9.0 } else { 74.0 + 6.0 * base } + wait) * slower
        })
        .collect();
    let writes: Vec<f64> = (0..40_000)
        .map(|_| {
            let (buffered, wait) = (noise.next(), -(1.0 - noise.next()).ln());
            if buffered < 0.72 { 12.0 + 2.0 * wait } else { (180.0 + 420.0 * wait) * slower }
        })
        .collect();
    let flushes: Vec<f64> = (0..400).map(|_| (700.0 + 2_600.0 * noise.next()) * slower).collect();
    let mut all = reads.clone();
    all.extend(&writes);
    all.extend(&flushes);
    let (reads, writes, flushes, all) =
        (latency(2_412_330, reads), latency(1_608_220, writes), latency(4_020, flushes), latency(4_024_570, all));
    let seconds = 62.5 * slower;
    let points = (0..250)
        .filter(|i| !(150..158).contains(i))
        .map(|i| {
            let collecting = if i > 90 { 1.0 / (1.0 + (f64::from(i) - 90.0) / 30.0).min(2.2) } else { 1.0 };
            let wobble = 0.93 + 0.14 * noise.next();
            let rate = 64_000.0 / slower * wobble;
            TimePoint {
                t_seconds: f64::from(i) * 0.25 * slower,
                read_iops: rate * 0.6 * (0.5 + collecting / 2.0),
                write_iops: rate * 0.4 * collecting,
                read_mib_s: rate * 0.6 * (0.5 + collecting / 2.0) * 4.0 / 1024.0,
                write_mib_s: rate * 0.4 * collecting * 12.0 / 1024.0,
                mean_latency_us: 96.0 * slower * wobble / collecting,
                read_latency_us: Some(82.0 * slower * wobble),
                write_latency_us: Some(117.0 * slower * wobble / collecting / collecting),
                p99_latency_us: Some(900.0 * slower * (0.8 + 0.5 * noise.next()) / collecting / collecting),
                erases: if i > 90 { (30.0 * wobble * slower) as u64 } else { 0 },
            }
        })
        .collect();
    let dies: Vec<DieUse> = (0..64)
        .map(|i| {
            let hot = if i / 8 == 5 { 1.45 } else { 1.0 };
            let (read, program, erase) =
                (0.19 * hot * (0.9 + 0.2 * noise.next()), 0.28 * hot * (0.9 + 0.2 * noise.next()), 0.03);
            DieUse {
                channel: i / 8,
                die: i % 8,
                read_share: read,
                program_share: program,
                erase_share: erase,
                idle_share: 1.0 - read - program - erase,
            }
        })
        .collect();
    let histogram = (0..37u64)
        .map(|erases| {
            let away = (erases as f64 - 17.0) / 5.5;
            (erases, (620.0 * (-away * away).exp()) as u64)
        })
        .filter(|(_, blocks)| *blocks > 0)
        .collect();
    let settings = [
        ("drive.capacity", "64 GiB"),
        ("host.queues", "8"),
        ("host.command_time", "3 us"),
        ("link.generation", "4"),
        ("buffer.write_policy", "lru"),
        ("buffer.write_size", "16 MiB"),
        ("ftl.gc_victim", "greedy"),
        ("ftl.over_provisioning", "0.07"),
        ("flash.suspend", "true"),
        ("nand.channels", "8"),
        ("nand.dies_per_channel", "8"),
        ("nand.cell", "tlc"),
    ];
    Record {
        profile: Profile {
            name: "generic".into(),
            description: "page-mapped TLC drive, 8 channels of 8 dies, PCIe 4.0 x4".into(),
            settings: settings.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
            changed: vec!["ftl.over_provisioning=0.07".into()],
        },
        capacity_bytes: 64 << 30,
        workload: Workload {
            kind: WorkloadKind::Trace,
            source: "samples/mail-server.csv.zst".into(),
            description:
                "MSR trace of a mail server: 4.02 M requests, 60 % reads, 8.2 KiB on average, footprint 41 GiB".into(),
            options: BTreeMap::from([("queue-depth".into(), "32".into())]),
        },
        seed: 1,
        requests: 4_024_570,
        requests_by_operation: BTreeMap::from([
            ("read".into(), 2_412_330),
            ("write".into(), 1_608_220),
            ("flush".into(), 4_020),
        ]),
        commands: 4_101_118,
        bytes_read: 2_412_330 * 4096,
        bytes_written: 1_608_220 * 12_288,
        simulated_seconds: seconds,
        wall_seconds: 3.1,
        user_cpu_seconds: 2.9,
        iops: 4_024_570.0 / seconds,
        bandwidth_mib_s: Bandwidth { read: 9_423.0 / seconds, write: 18_846.0 / seconds },
        write_amplification: 1.0 + 1.31 * slower,
        flash_written_per_host_byte: Some(0.9 + 1.18 * slower),
        flash: Flash {
            unit_bytes: 4096,
            units_host: 4_310_000,
            units_collected: (5_420_000.0 * slower) as u64,
            units_meta: 96_000,
            units_padding: 41_000,
            units_rewritten: 212_300,
            programs: 205_500,
            merges_switch: 0,
            merges_partial: 0,
            merges_full: 0,
            second_chances: 0,
            units_isolated: 0,
            merges_isolation: 0,
            reads_host: 2_122_900,
            reads_collected: 1_355_000,
            reads_meta: 0,
            erases_total: 12_830,
            erases_wear_levelling: 212,
            grown_bad_blocks: 2,
            raw_bytes: 3 << 34,
            over_provisioning: 0.07,
        },
        erases: (12_830.0 * slower) as u64,
        collections: 6_415,
        latency_us: BTreeMap::from([
            ("read".into(), reads),
            ("write".into(), writes),
            ("flush".into(), flushes),
            ("all".into(), all),
        ]),
        time_series: TimeSeries { interval_seconds: 0.25 * slower, points },
        write_buffer: Cache {
            policy: "lru".into(),
            memory: "dram".into(),
            size_bytes: 16 << 20,
            hits: 514_630,
            misses: 4_310_030,
            hit_ratio: 0.1067,
            insertions: 4_310_030,
            evictions: 4_306_000,
            read_hits: 120_400,
            pages_merged: 190_200,
            padding_reads: 22_100,
            pages_max: 4096,
            wait_seconds: 11.4,
        },
        read_cache: Cache {
            policy: "lru".into(),
            memory: "dram".into(),
            size_bytes: 8 << 20,
            hits: 289_480,
            misses: 2_122_850,
            hit_ratio: 0.12,
            insertions: 2_122_850,
            evictions: 2_120_800,
            read_hits: 0,
            pages_merged: 0,
            padding_reads: 0,
            pages_max: 2048,
            wait_seconds: 0.0,
        },
        destage_length_pages: Distribution {
            count: 811_000,
            mean: 5.31,
            max: 64.0,
            cdf: vec![
                (1.0, 0.21),
                (2.0, 0.36),
                (3.0, 0.61),
                (4.0, 0.70),
                (8.0, 0.86),
                (16.0, 0.95),
                (32.0, 0.99),
                (64.0, 1.0),
            ],
        },
        wear: Wear { min: 3, max: 31, mean: 17.0, stddev: 3.9, endurance: 3000, histogram },
        utilization: Utilization {
            channels: (0..8).map(|i| ChannelUse { busy_share: if i == 5 { 0.61 } else { 0.42 } }).collect(),
            dies,
        },
        slc: Some(Slc {
            units_written: 3_100_000,
            units_folded: 1_240_000,
            superblocks_folded: 4_844,
            reads_host: 702_000,
            superblocks: 96,
            superblocks_max: 128,
            units: 19_300,
            fill: 0.59,
        }),
        suspends: 48_212,
        read_retries: 320,
        map_cache: Some(MapCache {
            memory: "sram".into(),
            page_bytes: 4_096,
            pages: 16_384,
            pages_held: 2_048,
            lookups: 900_000,
            hits: 810_000,
            hit_ratio: 0.9,
            updates: 120_000,
            update_hits: 96_000,
            loads: 114_000,
            prefetches: 4_000,
            evictions: 112_000,
            written: 61_000,
            moved: 9_000,
            collections: 12,
            added_reads_ratio: 0.13,
            added_writes_ratio: 0.07,
        }),
        recovery: Some(Recovery { seconds: 0.84 * slower, pages_read: 52_400, pages_lost: Some(312) }),
        memory: vec![
            Placement { memory: "dram".into(), r#use: "map".into(), size_bytes: 64 << 20, note: String::new() },
            Placement {
                memory: "dram".into(),
                r#use: "write buffer".into(),
                size_bytes: 16 << 20,
                note: "lost in a power cut: only flushed writes are durable".into(),
            },
            Placement { memory: "dram".into(), r#use: "read cache".into(), size_bytes: 8 << 20, note: String::new() },
        ],
        warnings: vec!["12 requests of the trace were longer than the drive's transfer limit and were split.".into()],
        timing_events: 14_890_900,
        events_per_request: 3.7,
        bytes_per_touched_page: Some(8.4),
        ..Record::default()
    }
}

/// One read and nothing else.
pub fn small() -> Record {
    let one = latency(1, vec![81.5]);
    Record {
        profile: Profile { name: "generic".into(), ..Profile::default() },
        workload: Workload { kind: WorkloadKind::Job, source: "rw=read,number_ios=1".into(), ..Workload::default() },
        requests: 1,
        requests_by_operation: BTreeMap::from([("read".into(), 1)]),
        commands: 1,
        bytes_read: 4096,
        simulated_seconds: 81.5e-6,
        iops: 1.0 / 81.5e-6,
        bandwidth_mib_s: Bandwidth { read: 47.9, write: 0.0 },
        latency_us: BTreeMap::from([("read".into(), one.clone()), ("all".into(), one)]),
        time_series: TimeSeries {
            interval_seconds: 0.001,
            points: vec![TimePoint {
                read_iops: 1000.0,
                read_mib_s: 3.9,
                mean_latency_us: 81.5,
                ..TimePoint::default()
            }],
        },
        wear: Wear { histogram: vec![(0, 4096)], ..Wear::default() },
        ..Record::default()
    }
}
