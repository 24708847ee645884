"""The record of a run, field by field, from docs/reference/record.schema.json (tests/test_record.py)."""

from __future__ import annotations

from tidewater_ssd._view import Map, View


class Profile(View):
    """The drive of a run."""

    __slots__ = ()
    #: Its name.
    name: str
    #: One line on what it models.
    description: str
    #: Every setting with its value, spelled as `--set KEY=VALUE` takes them.
    settings: Map[str]
    #: The settings that were changed from the named profile, in the order they were given, as `KEY=VALUE`.
    changed: list[str]


class Workload(View):
    """The drive's workload."""

    __slots__ = ()
    #: Where the requests came from: a recorded trace, a fio-like job, or a trace generated from statistics.
    kind: str
    #: The trace's file name, or the job as it was given.
    source: str
    #: One line on it: format, number of requests, footprint.
    description: str
    #: Options of the replay, named as on the command line without the dashes (`queue-depth`, `speedup`); an option
    #: without a value is `true`.
    options: Map[str]


class Bandwidth(View):
    """Bytes moved per simulated second, in MiB/s (2^20 bytes)."""

    __slots__ = ()
    #: By reads, MiB/s.
    read: float
    #: By writes, MiB/s.
    write: float


class Flash(View):
    """Operations of the flash. A unit is the data that one map entry covers (`unit_bytes`)."""

    __slots__ = ()
    #: Bytes of a unit.
    unit_bytes: int
    #: Units programmed with data of the host.
    units_host: int
    #: Units programmed with data that collection, merges, folding of an SLC cache or wear levelling moved.
    units_collected: int
    #: Units programmed with the map and its checkpoints.
    units_meta: int
    #: Units programmed with nothing, because a page or row could not wait to fill.
    units_padding: int
    #: Units programmed with what flash or the read cache had, beside pages of the write buffer that share their
    #: block.
    units_rewritten: int
    #: Program operations; one may program several planes.
    programs: int
    #: Merges of a hybrid mapping in which a full sequential log block became the data block as it was.
    merges_switch: int
    #: Merges in which the rest of the logical block was copied behind a sequential log block.
    merges_partial: int
    #: Merges in which a logical block was gathered in a free superblock. What merges copied is in
    #: `units_collected`.
    merges_full: int
    #: Units of random log blocks that got a second chance (FASTer): part of `units_collected`.
    second_chances: int
    #: Units of random log blocks that were cold and went to the isolation area (FASTer): part of `units_collected`.
    units_isolated: int
    #: Full merges that made room in the isolation area (FASTer): part of `merges_full`.
    merges_isolation: int
    #: Pages read for reads of the host, and for padding of the write buffer (`write_buffer.padding_reads` counts
    #: units of the latter).
    reads_host: int
    #: Pages read by collection, merges, folding of an SLC cache and wear levelling.
    reads_collected: int
    #: Pages of the map read.
    reads_meta: int
    #: Blocks erased.
    erases_total: int
    #: Blocks erased by static wear levelling: part of `erases_total`.
    erases_wear_levelling: int
    #: Blocks that went bad during the run.
    grown_bad_blocks: int
    #: Bytes of all blocks, spares and reserve included.
    raw_bytes: int
    #: Flash beyond the capacity that may hold data, as a share of the capacity: what `ftl.over_provisioning` came
    #: to.
    over_provisioning: float


class Latency(View):
    """The latency of one operation in microseconds, from submission to completion at the host. Count, mean, shortest
    and longest are exact. Percentiles and the points of `cdf` are within 0.1 %: latencies are counted in
    buckets of at most 1/512 of their value, and the middle of a bucket stands for all in it."""

    __slots__ = ()
    #: Requests measured.
    count: int
    #: Mean, µs.
    mean: float
    #: Shortest, µs.
    min: float
    #: Half of the requests took no longer, µs.
    p50: float
    #: 90 % took no longer, µs.
    p90: float
    #: 99 % took no longer, µs.
    p99: float
    #: 99.9 % took no longer, µs.
    p999: float
    #: 99.99 % took no longer, µs.
    p9999: float
    #: Longest, µs.
    max: float
    #: `[µs, share]`: the share of requests, 0 to 1, that took no longer. Both rise; a few hundred points.
    cdf: list[list[float]]


class Cache(View):
    """A write buffer or read cache. Hits and misses count pages of the host."""

    __slots__ = ()
    #: The replacement policy; `none` when there is no such cache. One from outside of the firmware has its origin
    #: before its name, as in `python:Lru`.
    policy: str
    #: The memory it lives in.
    memory: str
    #: Its size.
    size_bytes: int
    #: Pages found: of a write buffer, by writes that replaced a dirty page.
    hits: int
    #: Pages not found.
    misses: int
    #: `hits / (hits + misses)`, 0 to 1; 0 if it was never asked.
    hit_ratio: float
    #: Pages put in.
    insertions: int
    #: Pages that left to make room, or were destaged.
    evictions: int
    #: Pages of reads that a write buffer had; `hits` are of writes.
    read_hits: int
    #: Pages of the read cache that were written beside dirty ones of their block (merge-on-flush).
    pages_merged: int
    #: Pages asked of flash to be written beside dirty ones of their block (page padding). Those that the host
    #: overwrites or deallocates meanwhile, or that were never written, are not programmed: `flash.units_rewritten`
    #: counts what was.
    padding_reads: int
    #: The most pages it held at once.
    pages_max: int
    #: Time that commands waited for room in it, added up.
    wait_seconds: float


class MapCache(View):
    """The cache of the map, of which most lies on flash, and the flash work that it added."""

    __slots__ = ()
    #: The memory that it is placed on.
    memory: str
    #: Bytes of map that are read and programmed at once.
    page_bytes: int
    #: Mapping pages of the whole map.
    pages: int
    #: Mapping pages that the cache holds at most.
    pages_held: int
    #: Look-ups by commands: one for each mapping page that a command needs.
    lookups: int
    #: Of these, found in the cache.
    hits: int
    #: `hits / lookups`.
    hit_ratio: float
    #: Changes of mapping pages: one for each page and row of data that was programmed.
    updates: int
    #: Of these, made in the cache at once; the others waited for their page.
    update_hits: int
    #: Mapping pages read from flash into the cache.
    loads: int
    #: Of these, ahead of need.
    prefetches: int
    #: Mapping pages that left the cache.
    evictions: int
    #: Mapping pages programmed because they had changed.
    written: int
    #: Mapping pages read and programmed elsewhere to give their superblock back.
    moved: int
    #: Superblocks of mapping pages that were collected.
    collections: int
    #: Flash reads added for each read of the host's: `loads / flash.reads_host`.
    added_reads_ratio: float
    #: Units programmed for mapping pages for each unit of the host's: `(written + moved) / flash.units_host`.
    added_writes_ratio: float


class HostMemory(View):
    """Traffic on the link to memory that the host lends (host memory buffer)."""

    __slots__ = ()
    #: Bytes that were lent at the end.
    lent_bytes: int
    #: Units read.
    reads: int
    #: Units written.
    writes: int
    #: Bytes read, with the units' headers.
    bytes_read: int
    #: Bytes written, with the units' headers.
    bytes_written: int
    #: Units that were read and were not what they should be.
    failed_checks: int
    #: Accesses that found no memory.
    gone: int
    #: Units that were fetched from flash because their copy was not good or gone.
    refetches: int
    #: The most accesses under way at once.
    in_flight_max: int
    #: Accesses that waited for others to end.
    waited: int


class Distribution(View):
    """A distribution of lengths."""

    __slots__ = ()
    #: Samples.
    count: int
    #: Mean.
    mean: float
    #: Longest.
    max: float
    #: `[length, share]`: the share of samples, 0 to 1, that were no longer.
    cdf: list[list[float]]


class Wear(View):
    """Erase counts of all good blocks at the end of a run."""

    __slots__ = ()
    #: Erases of the least worn block.
    min: int
    #: Erases of the most worn block.
    max: int
    #: Mean of erases.
    mean: float
    #: Standard deviation of erases.
    stddev: float
    #: Erases that a block is specified for; 0 if not stated.
    endurance: int
    #: `[erases, blocks]`, in order of erases. Counts may be grouped: the first number is the group's least.
    histogram: list[list[int]]


class ChannelUse(View):
    """One channel."""

    __slots__ = ()
    #: Share of time in which commands or data were on its bus.
    busy_share: float


class DieUse(View):
    """One die. The shares add up to 1."""

    __slots__ = ()
    #: Its channel.
    channel: int
    #: Its number on the channel.
    die: int
    #: Share of time in which it sensed pages.
    read_share: float
    #: Share of time in which it programmed.
    program_share: float
    #: Share of time in which it erased.
    erase_share: float
    #: The rest.
    idle_share: float


class Utilization(View):
    """How busy the flash was, as shares (0 to 1) of the simulated time."""

    __slots__ = ()
    #: By channel number.
    channels: tuple[ChannelUse, ...]
    #: Every die, by channel, then by its number on the channel.
    dies: tuple[DieUse, ...]
    _parts = {"channels": ChannelUse, "dies": DieUse}


class Slc(View):
    """The SLC cache: blocks that store one bit in a cell, where host writes go first."""

    __slots__ = ()
    #: Units of the host that went there: part of `flash.units_host` and `flash.units_rewritten`. The others went
    #: past it.
    units_written: int
    #: Units that were moved from there to blocks in their own mode: part of `flash.units_collected`.
    units_folded: int
    #: Superblocks of it that were folded; not in `collections`.
    superblocks_folded: int
    #: Pages read for the host from there: part of `flash.reads_host`.
    reads_host: int
    #: Superblocks that are in single-level mode at the end.
    superblocks: int
    #: Superblocks that it could have at the end, those included: the dynamic part shrinks as the drive fills.
    superblocks_max: int
    #: Valid units in it at the end.
    units: int
    #: Bytes of valid data in it at the end, as a share of what it could hold then.
    fill: float


class Recovery(View):
    """How a drive came back after its power was cut."""

    __slots__ = ()
    #: Virtual time until it served again.
    seconds: float
    #: Flash pages read for it, out-of-band scan included.
    pages_read: int
    #: Pages (as large as a unit) that write commands had stored and completed, and that are lost: no flush had
    #: covered them, and the write buffer did not survive. Pages of writes that were under way do not count; pages
    #: that flash has and that `bplru` or `cbm` writes again to complete a block do, while they are on their way.
    #: Absent when not known.
    pages_lost: int | None


class Placement(View):
    """One use of one memory."""

    __slots__ = ()
    #: The memory's name.
    memory: str
    #: Its use: `write buffer`, `read cache`, `map`.
    use: str
    #: Bytes used.
    size_bytes: int
    #: The effect of this placement, downgraded promises included.
    note: str


class TimePoint(View):
    """One interval. Completions count."""

    __slots__ = ()
    #: Its start.
    t_seconds: float
    #: Reads per second.
    read_iops: float
    #: Writes per second.
    write_iops: float
    #: MiB/s read.
    read_mib_s: float
    #: MiB/s written.
    write_mib_s: float
    #: Mean latency of all requests that ended in it, whatever their operation; 0 if none did.
    mean_latency_us: float
    #: Mean latency of the reads among them; absent if there were none.
    read_latency_us: float | None
    #: Mean latency of the writes among them; absent if there were none.
    write_latency_us: float | None
    #: Their 99th percentile, when known.
    p99_latency_us: float | None
    #: Blocks erased.
    erases: int


class Record(View):
    """Every figure of one run, and all that reproduces it."""

    __slots__ = ()
    #: Version of this schema. It rises when a field changes its meaning or goes away, not when one is added.
    schema: int
    #: Version of the program that made the run.
    tool_version: str
    #: The run was stopped before its end: every figure covers only what had been done by then.
    partial: bool
    #: Why it was stopped (`interrupted by Ctrl-C`); only when `partial`.
    partial_reason: str | None
    #: The command line that made the record, when there was one.
    command_line: str | None
    #: The drive.
    profile: Profile
    #: Usable bytes of the drive, after it was sized to its workload.
    capacity_bytes: int
    #: The drive's workload.
    workload: Workload
    #: Seed of every random choice.
    seed: int
    #: Requests of the workload that were completed.
    requests: int
    #: The same by operation: `read`, `write`, `flush`, `write_zeroes`, `compare`, `deallocate`, `verify`.
    requests_by_operation: Map[int]
    #: NVMe commands completed: more than the requests when large requests were split at the drive's transfer limit.
    commands: int
    #: Commands that ended with another status than success.
    commands_failed: int
    #: Bytes of the reads that succeeded: of a request of which any command failed, none.
    bytes_read: int
    #: Bytes of the writes that succeeded, in the same way.
    bytes_written: int
    #: Virtual time from the first submission to the last completion, warm-up and preconditioning not included.
    simulated_seconds: float
    #: Real time of the run. Not the same on two runs.
    wall_seconds: float
    #: Processor time of the run in user mode. Not the same on two runs.
    user_cpu_seconds: float
    #: Requests per simulated second, those that failed too.
    iops: float
    #: Bytes moved per simulated second.
    bandwidth_mib_s: Bandwidth
    #: Units programmed, whatever their reason, per unit of the host's that left the write buffer for flash
    #: (`flash.units_host`); 0 if none did. What the buffer absorbs is on neither side.
    write_amplification: float
    #: Bytes programmed into flash, whatever their reason, per byte that write commands of the host brought
    #: (`bytes_written`): below 1 where the write buffer absorbs more than the drive adds. Write zeroes and
    #: deallocations bring no bytes; what they make the drive program counts. Absent if the host wrote nothing, and
    #: in records of older builds.
    flash_written_per_host_byte: float | None
    #: Operations of the flash.
    flash: Flash
    #: Blocks erased: the same as `flash.erases_total`.
    erases: int
    #: Superblocks collected; random log blocks reclaimed, where the mapping is hybrid.
    collections: int
    #: Latency by operation as in `requests_by_operation`, and `all`. Operations that did not happen are absent.
    latency_us: Map[Latency]
    #: The write buffer.
    write_buffer: Cache
    #: The read cache.
    read_cache: Cache
    #: The mapping cache, where not the whole map is at hand.
    map_cache: MapCache | None
    #: Memory that the host lends, where something is placed on it.
    host_memory: HostMemory | None
    #: Pages that were chosen to leave the write buffer for flash together, those that only complete a block
    #: included: of these, some may not have to be written.
    destage_length_pages: Distribution
    #: Erase counts of all good blocks at the end.
    wear: Wear
    #: How busy channels and dies were.
    utilization: Utilization
    #: The SLC cache, when the drive has one.
    slc: Slc | None
    #: Programs and erases suspended for a read.
    suspends: int
    #: Reads repeated because the error correction failed.
    read_retries: int
    #: Pages that stayed unreadable after all retries.
    uncorrectable: int
    #: Recovery after a power cut, when the run had one.
    recovery: Recovery | None
    #: Placement of data in the memories.
    memory: tuple[Placement, ...]
    #: Warnings about the figures' validity.
    warnings: list[str]
    #: Events of the virtual clock.
    timing_events: int
    #: `timing_events / requests`.
    events_per_request: float
    #: Bytes of the simulator's memory per 4 KiB page that the run touched, when measured. Not the same on two runs.
    bytes_per_touched_page: float | None
    _part = {
        "profile": Profile, "workload": Workload, "bandwidth_mib_s": Bandwidth, "flash": Flash,
        "write_buffer": Cache, "read_cache": Cache, "map_cache": MapCache, "host_memory": HostMemory,
        "destage_length_pages": Distribution, "wear": Wear, "utilization": Utilization, "slc": Slc,
        "recovery": Recovery,
    }
    _parts = {"latency_us": Latency, "memory": Placement}
