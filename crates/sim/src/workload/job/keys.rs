//! fio's keys: those that shape the requests, those that change none, and those that are refused with what to do
//! instead.

/// Keys that shape the requests; a second name follows where fio has one.
const KEYS: [&str; 46] = [
    "rw",
    "readwrite",
    "bs",
    "blocksize",
    "bssplit",
    "bsrange",
    "blocksize_range",
    "blockalign",
    "ba",
    "iodepth",
    "numjobs",
    "rwmixread",
    "rwmixwrite",
    "percentage_random",
    "random_distribution",
    "rate",
    "rate_iops",
    "size",
    "offset",
    "offset_increment",
    "offset_align",
    "io_size",
    "io_limit",
    "loops",
    "number_ios",
    "runtime",
    "timeout",
    "time_based",
    "fsync",
    "fdatasync",
    "end_fsync",
    "fsync_on_close",
    "sync",
    "readfua",
    "writefua",
    "write_mode",
    "filesize",
    "norandommap",
    "verify",
    "do_verify",
    "randseed",
    "randrepeat",
    "allrandrepeat",
    "random_generator",
    "softrandommap",
    "name",
];

/// Keys of fio that say how its process does its work or reports it: nothing here depends on them.
const IGNORED: &str = "
    ioengine direct buffered atomic filename directory opendir description group_reporting thread new_group stats
    invalidate create_serialize create_fsync create_on_open create_only pre_read unlink unlink_each_loop fallocate
    fadvise_hint overwrite file_service_type allow_file_create allow_mounted_write refill_buffers scramble_buffers
    buffer_pattern buffer_compress_percentage buffer_compress_chunk dedupe_percentage dedupe_mode dedupe_global
    dedupe_working_set_percentage zero_buffers mem iomem iomem_align mem_align hugepage-size lockmem cpus_allowed
    cpus_allowed_policy cpumask numa_cpu_nodes numa_mem_policy nice prio prioclass priohint cgroup cgroup_nodelete
    cgroup_weight uid gid ioscheduler userspace_reap hipri fixedbufs registerfiles sqthread_poll sqthread_poll_cpu
    nonvectored cmd_type gtod_reduce gtod_cpu clocksource disable_lat disable_clat disable_slat disable_bw
    disable_bw_measurement lat_percentiles clat_percentiles slat_percentiles percentile_list block_error_percentiles
    exitall exit_what exitall_on_error continue_on_error ignore_error error_dump per_job_logs unified_rw_reporting
    bwavgtime iopsavgtime disk_util significant_figures kb_base unit_base lockfile filetype filename_format
    unique_filename rate_ignore_thinktime rate_cycle ratecycle thinktime_spin thinktime_blocks thinktime_blocks_type
    thinktime_iotime io_submit_mode write_hint latency_window latency_percentile latency_run replay_no_stall
    replay_redirect replay_scale replay_align replay_time_scale replay_skip read_iolog_chunked rwmixcycle
    trim_verify_zero trim_backlog_batch experimental_verify exec_prerun exec_postrun comm cmdprio_percentage
    bs_unaligned blocksize_unaligned cmdprio_class cmdprio cmdprio_bssplit job_start_clock_id verifysort verifysort_nr
    flow_id flow_sleep flow_watermark openfiles output output-format iodepth_low iodepth_batch iodepth_batch_submit
    iodepth_batch_complete iodepth_batch_complete_min iodepth_batch_complete_max write_bw_log write_lat_log
    write_iops_log write_hist_log write_iolog log_avg_msec log_hist_msec log_hist_coarseness log_max_value
    log_window_value log_entries log_offset log_prio log_issue_time log_compression log_compression_cpus
    log_store_compressed log_unix_epoch log_alternate_epoch log_alternate_epoch_clock_id verify_interval verify_offset
    verify_pattern verify_pattern_interval verify_fatal verify_dump verify_async verify_async_cpus verify_state_save
    verify_write_sequence verify_header_seed";

/// Keys of fio that would change the requests, and that we do not have: the values at which they ask for nothing, and
/// what to do instead of the others.
const UNSUPPORTED: [(&str, &[&str], &str); 45] = [
    ("wait_for", &[""], PHASES),
    ("ramp_time", &["0", "0s"], "warm up with the options of replay instead"),
    ("ramp_size", &["0"], "warm up with the options of replay instead"),
    ("thinktime", &["0"], "use rate or rate_iops"),
    ("startdelay", &["0", "0s"], "all jobs start at once"),
    ("file_append", &["0"], "use offset"),
    ("fill_device", &["0"], "leave size out, which is the rest of the drive"),
    ("fill_fs", &["0"], "leave size out, which is the rest of the drive"),
    ("nrfiles", &["1"], "a thread has one region; give it more threads with numjobs and offset_increment"),
    ("nr_files", &["1"], "a thread has one region; give it more threads with numjobs and offset_increment"),
    ("read_iolog", &[], "use --trace"),
    ("merge_blktrace_file", &[], "give each trace with --trace"),
    ("include", &[], "put everything into one file"),
    ("rate_process", &["linear"], "requests of a limited job arrive at equal distances"),
    ("rate_min", &["0"], "a run does not end because it is slow; leave it out"),
    ("ratemin", &["0"], "a run does not end because it is slow; leave it out"),
    ("rate_iops_min", &["0"], "a run does not end because it is slow; leave it out"),
    ("max_latency", &["0"], "a run does not end because it is slow; leave it out"),
    ("latency_target", &["0"], "vary the queue depth with `compare --vary queue-depth=1..32`"),
    ("steadystate", &[], "give a runtime or number_ios"),
    ("ss", &[], "give a runtime or number_ios"),
    ("steadystate_duration", &["0"], "give a runtime or number_ios"),
    ("ss_dur", &["0"], "give a runtime or number_ios"),
    ("zonemode", &["none"], "zoned devices are not modelled"),
    ("zonesize", &["0"], "zoned devices are not modelled"),
    ("zonerange", &["0"], "zoned devices are not modelled"),
    ("zonecapacity", &["0"], "zoned devices are not modelled"),
    ("zoneskip", &["0"], "zoned devices are not modelled"),
    ("zone_reset_threshold", &["0"], "zoned devices are not modelled"),
    ("max_open_zones", &["0"], "zoned devices are not modelled"),
    ("read_beyond_wp", &["0"], "zoned devices are not modelled"),
    ("rw_sequencer", &["sequential"], "the same place again is not a load of a drive; use random_distribution"),
    ("bs_is_seq_rand", &["0"], "put sequential and random requests into sections of their own"),
    ("percentage_sequential", &["0", "0,0,0"], "use percentage_random"),
    ("serialize_overlap", &["0"], "requests that overlap are issued as they come"),
    ("write_barrier", &["0"], "use fsync, or sync for Force Unit Access"),
    ("barrier", &["0"], "use fsync, or sync for Force Unit Access"),
    ("sync_file_range", &[], "use fsync"),
    ("trim_percentage", &["0"], "put trims into a section of their own, with rw=trim or rw=trimwrite"),
    ("trim_backlog", &["0"], "put trims into a section of their own, with rw=trim or rw=trimwrite"),
    ("flow", &["0"], "use rate, which keeps sections in proportion"),
    ("fdp", &["0"], "placement by the host is not modelled"),
    ("sg_write_mode", &["write"], "plain writes are issued; write_mode has Write Zeroes and Verify"),
    ("write_zone_remainder", &["0"], "zoned devices are not modelled"),
    ("profile", &[], "write out what the profile does"),
];

/// Message for keys that put jobs into an order.
pub(super) const PHASES: &str = "all jobs of a file run at once; put the phases into files of their own";

/// Keys about verification that would change what is read.
const VERIFY: [(&str, &[&str], &str); 6] = [
    ("verify_policy", &["completed"], "all that was written is read"),
    ("verify_mode", &["read"], "what was written is read back"),
    ("verify_only", &["0"], "use rw=read"),
    ("verify_backlog", &["0"], "what was written is read at the end"),
    ("verify_backlog_batch", &["0"], "what was written is read at the end"),
    ("verify_state_load", &["0"], "what was written is read at the end"),
];

/// Engines of fio that do something else than read and write blocks.
const ENGINES: &str = "
    cpuio net netsplice exec filecreate filestat filedelete filesetattr dircreate dirstat dirdelete falloc ftruncate
    e4defrag http rdma librpma_apm_client librpma_apm_server librpma_gpspm_client librpma_gpspm_server libhdfs nfs
    gfapi gfapi_async dfs rados";

/// Effect of a key.
pub(super) enum Kind {
    /// It shapes the requests.
    Known,
    /// It changes none, here or with this value.
    Idle,
    /// It would change some: why it is refused.
    Refused(String),
}

/// Classifies a key with this value.
pub(super) fn kind(key: &str, value: &str) -> Kind {
    if KEYS.contains(&key) {
        return Kind::Known;
    }
    if key == "ioengine" && ENGINES.split_whitespace().any(|engine| engine == value) {
        return Kind::Refused(format!("fio's engine \"{value}\" does not read and write the blocks of a drive"));
    }
    // A colon parts files, and one behind a backslash is of a name.
    if key == "filename" && value.replace("\\:", "").contains(':') {
        let instead = "a thread has one region; give each file a section of its own, with size and offset";
        return Kind::Refused(format!("several files in \"filename\" are not supported: {instead}"));
    }
    if let Some((_, neutral, instead)) = UNSUPPORTED.iter().chain(&VERIFY).find(|(name, ..)| *name == key) {
        if neutral.contains(&value) || neutral.contains(&"0") && is_nought(value) {
            return Kind::Idle;
        }
        return Kind::Refused(format!("fio's \"{key}\" is not supported: {instead}"));
    }
    if IGNORED.split_whitespace().any(|name| name == key) {
        return Kind::Idle;
    }
    Kind::Refused(unknown(key))
}

/// Whether a value is zero in one of fio's ways: of a number, a size, a time, a share or a switch.
fn is_nought(value: &str) -> bool {
    let unit = value.trim_start_matches('0');
    let units = ["", "%", "us", "ms", "s", "m", "h", "d", "b", "k", "g", "kb", "mb", "gb", "kib", "mib", "gib"];
    matches!(value, "false" | "no") || unit.len() < value.len() && units.contains(&&*unit.to_ascii_lowercase())
}

fn unknown(key: &str) -> String {
    let distance = |name: &&str| strsim::damerau_levenshtein(name, key);
    let refused = UNSUPPORTED.iter().chain(&VERIFY).map(|(name, ..)| *name);
    let others: Vec<&str> = IGNORED.split_whitespace().chain(refused).collect();
    // A slip of the hand leaves most of a word as it was: of three letters, two. Of names that are of less use, more.
    let near = |names: &[&'static str], parts: usize| {
        let nearest = names.iter().copied().min_by_key(distance)?;
        let slips = distance(&nearest);
        (slips <= 3 && parts * slips <= nearest.len().max(key.len())).then_some((slips, nearest))
    };
    let nearest = near(&KEYS, 2).into_iter().chain(near(&others, 4)).min_by_key(|(slips, _)| *slips);
    let key: String = key.chars().take(60).collect();
    match nearest {
        Some((_, nearest)) => format!("unknown key \"{key}\"; did you mean \"{nearest}\"?"),
        None => format!("unknown key \"{key}\"; choose one of {}", KEYS.join(", ")),
    }
}

/// The names of keys that shape the requests, for tests.
#[cfg(test)]
pub(super) fn known() -> &'static [&'static str] {
    &KEYS
}
