//! For every key of a profile: a drive and a load for which it matters, another value, and what that must do.

use crate::knobs::rig::*;

/// How a figure must answer to the changed value.
#[derive(Clone, Copy)]
pub enum Must {
    /// Be larger.
    Rise(Metric),
    /// Be smaller.
    Fall(Metric),
    /// Be another: whether larger or smaller depends on the load.
    Change(Metric),
}
use Must::{Change, Fall, Rise};

/// One key.
pub struct Knob {
    /// As [`tidewater_core::profile::KeyInfo::key`] gives it.
    pub key: &'static str,
    /// Settings on top of [`SMALL`].
    pub base: &'static [&'static str],
    /// Load of the host.
    pub load: Load,
    /// The other value. `NAME` in a key of memories stands for `dram`.
    pub to: &'static str,
    /// Expected effects.
    pub must: &'static [Must],
}

/// The keys that no run can depend on.
pub const LABELS: &[(&str, &str)] =
    &[("name", "a label: reports print it"), ("description", "a label: reports print it")];

/// The keys that a test of their own turns, and its name.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("memory.NAME.size", "a_memory_holds_what_fits"),
    ("memory.NAME.survives", "what_survives_is_there_after_a_power_cut"),
    ("buffer.energy", "capacitors_bound_the_write_buffer_that_they_back"),
];

/// The keys that only a served device has; `crates/serve/tests/knobs.rs` turns each.
pub const SERVED: &[&str] = &[
    "serve.timing",
    "serve.access",
    "serve.doorbells",
    "serve.interrupts",
    "serve.cmb_size",
    "serve.pmr_size",
    "serve.hmb_preferred",
    "serve.hmb_min",
];

// Random reads, a few at a time, so that a latency is a sum; and many, so that something is the bottleneck.
const READS: Load = load("rw=randread,bs=4k,iodepth=1,size=16m,number_ios=2000");
const MANY_READS: Load = load("rw=randread,bs=4k,iodepth=32,size=16m,number_ios=4000");
// Commands that lie beside each other on flash.
const STREAM_READS: Load = load("rw=read,bs=4k,iodepth=8,size=16m,number_ios=2000");
const LARGE_READS: Load = load("rw=read,bs=256k,iodepth=1,size=16m,number_ios=128");
const WRITES: Load = load("rw=randwrite,bs=4k,iodepth=1,size=16m,number_ios=2000");
const MANY_WRITES: Load = load("rw=randwrite,bs=4k,iodepth=32,size=16m,number_ios=16000,norandommap=1").steady();
const LARGE_WRITES: Load = load("rw=write,bs=256k,iodepth=4,size=16m,number_ios=60").fresh();
// Four of five writes go to a fifth of the drive, and more.
const SKEWED_WRITES: Load =
    load("rw=randwrite,bs=4k,iodepth=8,size=16m,number_ios=40000,random_distribution=zipf:1.1,norandommap=1");
// Random writes all over a drive whose log takes a part of them, now and then the first page of a logical block.
const HYBRID_WRITES: Load = load("rw=randwrite,bs=4k,iodepth=8,size=16m,number_ios=3000,norandommap=1");
const MIXED: Load = load("rw=randrw,rwmixread=50,bs=4k,iodepth=16,size=16m,number_ios=6000,norandommap=1").steady();
const SKEWED_MIX: Load =
    load("rw=randrw,rwmixread=50,bs=4k,iodepth=8,size=16m,number_ios=20000,random_distribution=zipf:1.1,norandommap=1");
// Four sequential streams in turn.
const STREAMS: Load = load("rw=write,bs=4k,iodepth=4,size=4m,numjobs=4,offset_increment=4m,number_ios=3000");
// Both queues are never empty, and few commands are worked on at once: the order of fetching decides.
const CLASSES: Load =
    load("rw=randrw,rwmixread=30,bs=4k,iodepth=64,size=16m,number_ios=6000,norandommap=1").queue_by_operation();
// Two to four mapping pages of 32 are at hand.
const SMALL_MAP: &[&str] = &["ftl.map_memory=sram", "ftl.map_size=2KiB", "ftl.map_page=512"];
// More than the write buffer holds and the cache folds meanwhile, on a drive of which a part is erased.
const SLC_WRITES: Load = load("rw=write,bs=64k,iodepth=8,size=8m,number_ios=128").fresh();
const SLC: &[&str] = &["slc.size=16MiB"];
const CBM: &[&str] = &["buffer.write_policy=cbm", "buffer.read_policy=lru", "buffer.write_watermark=100%"];
const FEW_READS: Load = load("rw=randread,bs=4k,iodepth=1,size=128k,number_ios=1000,norandommap=1");
const LENT: &[&str] =
    &["memory.hmb.kind=host", "memory.hmb.size=1MiB", "buffer.read_policy=lru", "buffer.read_memory=hmb"];
// Two mapping pages of the controller's own, and no memory of the host.
const LENT_MAP: &[&str] = &[
    "memory.hmb.kind=host",
    "memory.hmb.size=1MiB",
    "hmb.enabled=false",
    "ftl.map_memory=hmb",
    "ftl.map_floor=1KiB",
    "ftl.map_page=512",
];
const CROWDED: &[&str] = &["host.queues=2", "host.outstanding_max=4", "buffer.write_policy=none"];
const CROWDED_WEIGHTED: &[&str] = &[
    "host.queues=2",
    "host.outstanding_max=4",
    "buffer.write_policy=none",
    "host.arbitration=weighted",
    "host.arbitration_burst=1",
    "host.queue_priorities=[high, low]",
];
// Bit errors where the code just holds, on flash that wears out within the run.
const WORN: &[&str] = &["nand.endurance=16", "nand.rber_worn=5.5e-3", "ftl.wear_gap=0"];
const WEAR_OUT: Load = load("rw=randrw,rwmixread=30,bs=4k,iodepth=16,size=16m,number_ios=60000,norandommap=1").steady();

macro_rules! knobs {
    ($($key:literal, $base:expr, $load:expr => $to:literal: $($must:expr),+;)*) => {
        &[$(Knob { key: $key, base: $base, load: $load, to: $to, must: &[$($must),+] },)*]
    };
}

/// Every other key.
pub const KNOBS: &[Knob] = knobs! {
    // A larger drive has room for the same footprint without collecting it.
    "drive.capacity", &[], load("rw=randwrite,bs=4k,iodepth=8,size=16m,number_ios=12000,norandommap=1").fresh()
        => "32MiB": Rise(CAPACITY), Fall(COLLECTIONS);

    // In one queue, reads wait behind the writes that were submitted before them.
    "host.queues", &["host.queues=1", "host.outstanding_max=4", "buffer.write_policy=none"], CLASSES
        => "2": Fall(READ_MEAN);
    // A full queue of writes keeps the host from submitting the reads behind it.
    "host.queue_entries",
        &["host.queues=2", "host.outstanding_max=2", "host.queue_entries=4", "buffer.write_policy=none"],
        load("rw=randrw,rwmixread=10,bs=4k,rate_iops=3000,size=16m,number_ios=1000").queue_by_operation().open_loop()
        => "1024": Fall(READ_MEAN);
    "host.outstanding_max", &["host.outstanding_max=1"], MANY_READS => "32": Rise(IOPS);
    "host.arbitration", &["host.queues=2", "host.outstanding_max=4", "buffer.write_policy=none",
        "host.queue_priorities=[urgent, low]"], CLASSES => "weighted": Fall(READ_MEAN), Rise(WRITE_MEAN);
    "host.arbitration_burst", CROWDED, CLASSES => "64": Rise(READ_MAX);
    "host.arbitration_weights", CROWDED_WEIGHTED, CLASSES => "[1, 1, 256]": Rise(READ_MEAN), Fall(WRITE_MEAN);
    "host.queue_priorities", CROWDED_WEIGHTED, CLASSES => "[low, high]": Rise(READ_MEAN), Fall(WRITE_MEAN);
    "host.command_time", &[], READS => "50us": Rise(READ_MEAN);
    "host.command_interval", &[], MANY_READS => "100us": Fall(IOPS);
    "host.completion_time", &[], READS => "50us": Rise(READ_MEAN);
    "host.transfer_max", &[], LARGE_READS => "32KiB": Rise(COMMANDS);
    // 512 bytes of a unit of 4 KiB are merged with what is on flash; a block of 4 KiB is written wholly.
    "host.block_size", &[], load("rw=randwrite,bs=512,iodepth=1,size=16m,number_ios=1000") => "4096": Fall(FLASH_READS);

    "link.generation", &[], LARGE_READS => "1": Rise(READ_MEAN);
    "link.lanes", &[], LARGE_READS => "1": Rise(READ_MEAN);
    "link.payload_max", &[], LARGE_READS => "4KiB": Fall(READ_MEAN);
    "link.tlp_overhead", &[], LARGE_READS => "64": Rise(READ_MEAN);
    "link.latency", &[], READS => "20us": Rise(READ_MEAN);

    "buffer.read_ahead", &["buffer.read_policy=lru"], load("rw=read,bs=4k,iodepth=1,size=16m,number_ios=2000")
        => "128KiB": Fall(READ_MEAN);
    "buffer.write_policy", &[], WRITES => "none": Rise(WRITE_MEAN);
    "buffer.write_memory", &["memory.sram.write_latency=1ms"], WRITES => "sram": Rise(WRITE_MEAN);
    "buffer.write_size", &[], SKEWED_WRITES => "4MiB": Rise(WRITE_HITS);
    // Flash keeps up, so that the watermark alone says how long a page may wait to be written again.
    "buffer.write_watermark", &["buffer.write_watermark=10%"],
        load("rw=randwrite,bs=4k,rate_iops=4000,size=16m,number_ios=10000,random_distribution=zipf:1.1,norandommap=1")
        .open_loop() => "100%": Rise(WRITE_HITS);
    "buffer.read_policy", &[], load("rw=randread,bs=4k,iodepth=1,size=128k,number_ios=1000,norandommap=1") => "lru":
        Rise(READ_HITS), Fall(READ_MEAN);
    "buffer.read_memory", &["buffer.read_policy=lru", "memory.sram.read_latency=1ms"],
        load("rw=randread,bs=4k,iodepth=1,size=128k,number_ios=1000,norandommap=1") => "sram": Rise(READ_MEAN);
    "buffer.read_size", &["buffer.read_policy=lru"],
        load("rw=randread,bs=4k,iodepth=1,size=1m,number_ios=2000,norandommap=1") => "1MiB": Rise(READ_HITS);
    // A threshold of two pages puts nearly every block into the block region, by popularity instead of least recent
    // use.
    "buffer.cbm_threshold", CBM, SKEWED_WRITES => "2": Change(WRITE_HITS), Change(DESTAGE_LENGTH);
    "buffer.cbm_sequential", &["buffer.write_policy=cbm", "buffer.write_size=1MiB", "buffer.cbm_threshold=64"],
        load("rw=randwrite,bs=64k,iodepth=1,size=16m,number_ios=4000,random_distribution=zipf:1.1,norandommap=1")
        => "64MiB": Change(WRITE_HITS);
    "buffer.cbm_merge", CBM, SKEWED_MIX => "off": Fall(PAGES_MERGED), Fall(DESTAGE_LENGTH);
    "buffer.cbm_runs", &["buffer.write_policy=cbm", "buffer.write_size=1MiB", "buffer.cbm_threshold=64",
        "buffer.cbm_sequential=16KiB"], STREAMS => "block": Change(DESTAGE_LENGTH);
    "buffer.cbm_keep", CBM, SKEWED_MIX => "true": Rise(READ_HITS);
    "buffer.cbm_padding", &["buffer.write_policy=cbm", "buffer.write_size=1MiB"],
        load("rw=randwrite,bs=128k,iodepth=1,size=16m,number_ios=200")
        => "true": Rise(PADDING_READS), Rise(DESTAGE_LENGTH);
    "buffer.cbm_age", &["buffer.write_policy=cbm", "buffer.write_size=1MiB", "buffer.cbm_threshold=2"], SKEWED_WRITES
        => "0.25": Change(WRITE_HITS);
    "buffer.bplru_padding", &["buffer.write_policy=bplru"], WRITES
        => "false": Fall(PADDING_READS), Fall(DESTAGE_LENGTH);
    // What is read is let go sooner, and leaves room for what is written.
    "buffer.cflru_window", &["buffer.write_policy=cflru"], SKEWED_MIX => "100%": Rise(WRITE_HITS);

    // A random write of 4 KiB into a unit of 16 KiB reads and writes the rest of it.
    "hmb.enabled", LENT, FEW_READS => "false": Rise(READ_MEAN), Fall(HOST_MEMORY_READS);
    "hmb.size", LENT, FEW_READS => "64KiB": Rise(READ_MEAN), Fall(READ_HITS);
    "hmb.in_flight", LENT, load("rw=randread,bs=4k,iodepth=32,size=128k,number_ios=4000,norandommap=1")
        => "1": Fall(IOPS);

    "ftl.unit_size", &[], WRITES => "16KiB": Rise(FLASH_READS);
    "ftl.over_provisioning", &[], MANY_WRITES => "28%": Fall(WRITE_AMPLIFICATION);
    // Without spares the drive goes read-only early, with spares it serves on.
    "ftl.spare_blocks", &["ftl.spare_blocks=0", "ftl.over_provisioning=0", "nand.program_fail_rate=3e-3"], MANY_WRITES
        => "20%": Fall(COMMANDS_FAILED);
    "ftl.mapping", &[], HYBRID_WRITES => "fast": Rise(WRITE_AMPLIFICATION), Rise(MERGES);
    "ftl.log_blocks", &["ftl.mapping=fast", "ftl.log_blocks=8"], HYBRID_WRITES
        => "64": Fall(WRITE_AMPLIFICATION), Fall(MERGES);
    // Few enough writes that none has to wait for a merge.
    "ftl.log_write_points", &["ftl.mapping=fast", "ftl.log_blocks=32", "ftl.log_write_points=1"],
        load("rw=randwrite,bs=4k,iodepth=32,size=16m,number_ios=900,norandommap=1") => "4": Rise(WRITE_BANDWIDTH);
    "ftl.isolation_share", &["ftl.mapping=faster", "ftl.log_blocks=16", "ftl.log_write_points=1"], HYBRID_WRITES
        => "0%": Fall(UNITS_ISOLATED);
    "ftl.merges_max", &["ftl.mapping=fast", "ftl.merges_max=1"], HYBRID_WRITES => "4": Rise(IOPS);
    "ftl.gc_victim", &[], SKEWED_WRITES => "cost-benefit": Fall(WRITE_AMPLIFICATION);
    "ftl.gc_start", &["nand.blocks_per_plane=40"], MANY_WRITES => "9": Rise(WRITE_AMPLIFICATION);
    "ftl.gc_reserve", &[], MANY_WRITES => "2": Change(WRITE_P999);
    "ftl.gc_stream", &[], SKEWED_WRITES => "false": Rise(WRITE_AMPLIFICATION);
    "ftl.wear_gap", &["ftl.wear_gap=0"], SKEWED_WRITES => "2": Rise(WEAR_MOVES), Fall(WEAR_SPREAD);
    "ftl.wear_aware_allocation", &["ftl.wear_gap=0"], SKEWED_WRITES => "false": Rise(WEAR_SPREAD);
    "ftl.checkpoint_interval", &[], MANY_WRITES => "8": Rise(MAP_UNITS);
    "ftl.map_memory", &["memory.sram.read_latency=5us"], READS => "sram": Rise(READ_MEAN), Rise(MAP_LOOKUPS);
    "ftl.map_size", SMALL_MAP, READS => "8KiB": Rise(MAP_HITS), Fall(READ_MEAN);
    "ftl.map_floor", LENT_MAP, READS => "8KiB": Rise(MAP_HITS), Fall(READ_MEAN);
    "ftl.map_page", SMALL_MAP, LARGE_READS => "1KiB": Fall(MAP_LOADS);
    "ftl.map_prefetch", SMALL_MAP, LARGE_READS => "4": Rise(MAP_HITS);
    "ftl.map_updates",
        &["ftl.map_memory=sram", "ftl.map_size=1KiB", "ftl.map_page=512", "ftl.map_updates=64"], MANY_WRITES
        => "4096": Rise(WRITE_BANDWIDTH);
    "ftl.fill_timeout", &["buffer.write_policy=none"], WRITES => "5ms": Rise(WRITE_MEAN);

    "slc.size", SLC, SLC_WRITES => "0": Rise(WRITE_MEAN), Fall(SLC_WRITTEN);
    "slc.dynamic", &["drive.capacity=64MiB"], SLC_WRITES => "100%": Fall(WRITE_MEAN);
    // Who waits for folding pays for a read and a program more.
    "slc.when_full", &["slc.size=1MiB", "slc.fold_after=1s"], SLC_WRITES => "fold": Rise(WRITE_MEAN), Rise(SLC_WRITTEN);
    "slc.fold_after", &["slc.size=8MiB", "slc.fold_after=1s"],
        load("rw=randwrite,bs=4k,rate_iops=400,size=16m,number_ios=800").open_loop()
        => "1ms": Rise(SLC_FOLDED);
    "slc.read_time", &["slc.size=8MiB", "slc.fold_after=1s"],
        load("rw=randrw,rwmixread=50,bs=4k,iodepth=1,size=2m,number_ios=2000,norandommap=1").fresh()
        => "150us": Rise(READ_MEAN);
    "slc.program_time", SLC, SLC_WRITES => "700us": Rise(WRITE_MEAN);

    "flash.programs_per_die", &["flash.programs_per_die=1", "nand.bus_rate=50MB/s"], LARGE_WRITES => "2":
        Rise(WRITE_BANDWIDTH);
    "flash.read_priority", &["flash.suspend=false"], MIXED => "false": Rise(READ_MEAN);
    "flash.suspend", &[], MIXED => "false": Rise(READ_MEAN), Fall(SUSPENSIONS);
    "flash.suspend_time", &[], MIXED => "200us": Rise(READ_MEAN);
    "flash.resume_time", &["flash.resume_time=0"], MIXED => "200us": Fall(SUSPENSIONS), Rise(WRITE_MEAN);
    "flash.suspend_max", &[], MIXED => "0": Rise(READ_MEAN), Fall(SUSPENSIONS);
    "flash.share_senses", &[], STREAM_READS => "true": Rise(IOPS), Fall(FLASH_READS);

    "nand.channels", &[], LARGE_WRITES => "4": Rise(WRITE_BANDWIDTH);
    "nand.ways", &[], MANY_READS => "4": Rise(IOPS);
    "nand.dies_per_way", &[], MANY_READS => "2": Rise(IOPS);
    "nand.planes", &[], LARGE_WRITES => "2": Rise(WRITE_BANDWIDTH);
    // More flash for the same capacity.
    "nand.blocks_per_plane", &["nand.blocks_per_plane=32"], MANY_WRITES => "64": Fall(WRITE_AMPLIFICATION);
    "nand.pages_per_block", &[], MANY_WRITES => "32": Fall(ERASES);
    "nand.page_size", &[], LARGE_WRITES => "4KiB": Fall(WRITE_BANDWIDTH);
    "nand.oob_size", &["nand.bus_rate=50MB/s"], LARGE_READS => "0": Fall(READ_MEAN);
    "nand.cell", &[], LARGE_WRITES => "slc": Rise(WRITE_BANDWIDTH);
    "nand.read_time", &[], READS => "[100us, 100us, 100us]": Rise(READ_MEAN), Rise(READ_SHARE);
    "nand.program_time", &[], LARGE_WRITES => "[2ms, 2ms, 2ms]": Fall(WRITE_BANDWIDTH);
    "nand.erase_time", &[], MANY_WRITES => "10ms": Rise(ERASE_SHARE), Rise(WRITE_P999);
    "nand.bus_rate", &[], LARGE_READS => "50MB/s": Rise(READ_MEAN);
    "nand.command_time", &[], READS => "20us": Rise(READ_MEAN);
    "nand.multi_plane", &["nand.planes=2"], LARGE_WRITES => "false": Fall(WRITE_BANDWIDTH);
    "nand.cache", &["nand.bus_rate=50MB/s"], LARGE_WRITES => "false": Fall(WRITE_BANDWIDTH);
    "nand.endurance", WORN, WEAR_OUT => "100000": Fall(RETRIES);
    "nand.factory_bad_rate", &["nand.blocks_per_plane=40", "ftl.spare_blocks=0"], MANY_WRITES => "5%":
        Rise(WRITE_AMPLIFICATION);
    "nand.program_fail_rate", &[], MANY_WRITES => "1e-3": Rise(GROWN_BAD);
    "nand.erase_fail_rate", &[], MANY_WRITES => "2e-2": Rise(GROWN_BAD);
    "nand.rber_fresh", &[], MANY_READS => "5.5e-3": Rise(RETRIES), Rise(READ_MEAN);
    "nand.rber_worn", WORN, WEAR_OUT => "3e-2": Rise(RETRIES);
    // A thousandth for each read of the block; and ten for the root of a day, of which a run is a tiny part.
    "nand.rber_disturb", &[], MANY_READS => "1e-3/0/1": Rise(RETRIES), Rise(READ_MEAN);
    "nand.rber_retention", &[], MANY_READS => "10/0/0.5": Rise(RETRIES), Rise(READ_MEAN);
    // As many correctable bits for a quarter of the data.
    "nand.ecc_codeword", &["nand.rber_fresh=5.5e-3"], MANY_READS => "512": Fall(RETRIES);
    "nand.ecc_bits", &["nand.rber_fresh=5.5e-3"], MANY_READS => "60": Rise(RETRIES);
    "nand.read_retries", &["nand.rber_fresh=1e-2", "nand.rber_worn=1e-2"], MANY_READS => "0": Rise(UNCORRECTABLE);
    "nand.retry_gain", &["nand.rber_fresh=1e-2", "nand.rber_worn=1e-2"], MANY_READS => "0.95": Rise(RETRIES);

    // What survives by itself needs no flush to flash.
    "memory.NAME.kind", &[], load("rw=randwrite,bs=4k,iodepth=1,size=16m,number_ios=1000,fsync=10") => "nvm":
        Fall(FLUSH_MEAN);
    "memory.NAME.read_latency", &["buffer.read_policy=lru"],
        load("rw=randread,bs=4k,iodepth=1,size=128k,number_ios=1000,norandommap=1") => "100us": Rise(READ_MEAN);
    "memory.NAME.write_latency", &[], WRITES => "100us": Rise(WRITE_MEAN);
    "memory.NAME.bandwidth", &[], WRITES => "10MB/s": Rise(WRITE_MEAN);
    "memory.NAME.efficiency", &["memory.dram.bandwidth=20MB/s"], WRITES => "50%": Rise(WRITE_MEAN);
};
