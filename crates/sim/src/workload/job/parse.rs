//! Job files (ini) and inline jobs.

use super::{Access, Amount, BlockSizes, Distribution, JobError, JobSpec, ThreadSpec, units};

/// Keys that shape the requests; a second name follows where fio has one.
const KEYS: [&str; 32] = [
    "rw",
    "readwrite",
    "bs",
    "blocksize",
    "bssplit",
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
    "io_size",
    "io_limit",
    "number_ios",
    "runtime",
    "timeout",
    "time_based",
    "fsync",
    "fdatasync",
    "sync",
    "norandommap",
    "randseed",
    "randrepeat",
    "allrandrepeat",
    "random_generator",
    "softrandommap",
    "name",
];

/// Keys of fio that say how its process does its work or reports it: nothing here depends on them.
const IGNORED: [&str; 73] = [
    "ioengine",
    "direct",
    "buffered",
    "atomic",
    "filename",
    "directory",
    "opendir",
    "description",
    "group_reporting",
    "thread",
    "new_group",
    "stats",
    "invalidate",
    "create_serialize",
    "create_fsync",
    "create_on_open",
    "create_only",
    "pre_read",
    "unlink",
    "unlink_each_loop",
    "fallocate",
    "fadvise_hint",
    "overwrite",
    "file_service_type",
    "nrfiles",
    "openfiles",
    "allow_file_create",
    "allow_mounted_write",
    "refill_buffers",
    "scramble_buffers",
    "buffer_pattern",
    "buffer_compress_percentage",
    "buffer_compress_chunk",
    "dedupe_percentage",
    "zero_buffers",
    "mem",
    "iomem",
    "iomem_align",
    "mem_align",
    "hugepage-size",
    "lockmem",
    "cpus_allowed",
    "cpus_allowed_policy",
    "cpumask",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "nice",
    "prio",
    "prioclass",
    "cgroup",
    "uid",
    "gid",
    "ioscheduler",
    "userspace_reap",
    "hipri",
    "fixedbufs",
    "registerfiles",
    "sqthread_poll",
    "nonvectored",
    "cmd_type",
    "gtod_reduce",
    "gtod_cpu",
    "clocksource",
    "disable_lat",
    "disable_clat",
    "disable_slat",
    "lat_percentiles",
    "clat_percentiles",
    "slat_percentiles",
    "percentile_list",
    "log_avg_msec",
    "exitall",
    "continue_on_error",
];

/// The same, by how they begin.
const IGNORED_PREFIXES: [&str; 6] = ["verify", "write_", "log_", "iodepth_batch", "iodepth_low", "output"];

/// Keys of fio that would change the requests, and that we do not have.
const UNSUPPORTED: [(&str, &str); 14] = [
    ("stonewall", "all jobs of a file run at once; put the phases into files of their own"),
    ("wait_for", "all jobs of a file run at once; put the phases into files of their own"),
    ("wait_for_previous", "all jobs of a file run at once; put the phases into files of their own"),
    ("loops", "use number_ios or io_size"),
    ("ramp_time", "warm up with the options of replay instead"),
    ("bsrange", "use bssplit"),
    ("blocksize_range", "use bssplit"),
    ("thinktime", "use rate or rate_iops"),
    ("startdelay", "all jobs start at once"),
    ("filesize", "use size"),
    ("read_iolog", "use --trace"),
    ("include", "put everything into one file"),
    ("rate_process", "requests of a limited job arrive at equal distances"),
    ("zonemode", "zoned devices are not modelled"),
];

struct Setting {
    key: String,
    value: String,
    place: String,
}

impl Setting {
    fn error(&self, reason: String) -> JobError {
        JobError { place: self.place.clone(), reason: format!("{}: {reason}", self.key) }
    }
}

/// A job given inline.
pub(super) fn inline(text: &str) -> Result<JobSpec, JobError> {
    let place = || "--job".to_owned();
    let mut settings: Vec<Setting> = Vec::new();
    for piece in text.split(',') {
        match piece.split_once('=') {
            Some((key, value)) => {
                settings.push(Setting { key: key.trim().into(), value: value.trim().into(), place: place() });
            }
            // A switch, or the next part of a value that has commas.
            None => match settings.last_mut() {
                Some(last) if !is_switch(piece.trim()) => last.value = format!("{},{}", last.value, piece.trim()),
                _ => settings.push(Setting { key: piece.trim().into(), value: String::new(), place: place() }),
            },
        }
    }
    Ok(JobSpec { threads: threads("job", &settings.iter().collect::<Vec<_>>(), "--job")? })
}

fn is_switch(word: &str) -> bool {
    matches!(word, "time_based" | "norandommap" | "group_reporting" | "thread" | "sync" | "randrepeat" | "stonewall")
}

/// A job file.
pub(super) fn file(name: &str, text: &str) -> Result<JobSpec, JobError> {
    let mut global: Vec<Setting> = Vec::new();
    // Name, place, own settings, and how many global settings stood before it.
    let mut sections: Vec<(String, String, Vec<Setting>, usize)> = Vec::new();
    let mut in_global = None;
    for (index, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", index + 1);
        let line = line.trim().trim_start_matches('\u{feff}');
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let Some(section) = rest.strip_suffix(']') else {
                return Err(JobError { place, reason: format!("expected [section], found \"{}\"", shorten(line)) });
            };
            in_global = Some(section == "global");
            if section != "global" {
                sections.push((section.to_owned(), place, Vec::new(), global.len()));
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let setting = Setting { key: key.trim().into(), value: value.trim().into(), place };
        match (in_global, sections.last_mut()) {
            (Some(true), _) => global.push(setting),
            (Some(false), Some((_, _, own, _))) => own.push(setting),
            _ => {
                let reason = format!("expected a [section] first, found \"{}\"", shorten(line));
                return Err(JobError { place: setting.place, reason });
            }
        }
    }
    if sections.is_empty() {
        let reason = "no job: expected a section such as [job] besides [global]".to_owned();
        return Err(JobError { place: name.to_owned(), reason });
    }
    let mut all = Vec::new();
    for (section, place, own, before) in &sections {
        let settings: Vec<&Setting> = global[..*before].iter().chain(own).collect();
        all.extend(threads(section, &settings, place)?);
        if all.len() > THREADS_MAX {
            let reason = format!("more than {THREADS_MAX} threads in all");
            return Err(JobError { place: place.clone(), reason });
        }
    }
    Ok(JobSpec { threads: all })
}

const THREADS_MAX: usize = 4_096;

fn shorten(text: &str) -> String {
    text.chars().take(60).collect()
}

/// The threads of one section.
fn threads(name: &str, settings: &[&Setting], place: &str) -> Result<Vec<ThreadSpec>, JobError> {
    let block = || BlockSizes(vec![(4096, 100.0)]);
    let mut thread = ThreadSpec {
        name: name.to_owned(),
        access: Access::Read,
        random: false,
        read_percent: 50,
        random_percent: 100,
        distribution: Distribution::Uniform,
        random_map: true,
        blocks: [block(), block(), block()],
        iodepth: 1,
        offset: Amount::Bytes(0),
        offset_shift: 0,
        size: None,
        io_size: None,
        number_ios: None,
        runtime: None,
        time_based: false,
        rate: None,
        rate_iops: None,
        flush_intervals: [0; 2],
        fua: false,
        seed: None,
    };
    let (mut numjobs, mut increment) = (1, 0);
    for setting in settings {
        let wrong = |reason| setting.error(reason);
        let value = setting.value.as_str();
        match setting.key.as_str() {
            "rw" | "readwrite" => (thread.access, thread.random) = access(value).map_err(wrong)?,
            "bs" | "blocksize" => thread.blocks = block_sizes(value).map_err(wrong)?,
            "bssplit" => thread.blocks = block_split(value).map_err(wrong)?,
            "iodepth" => thread.iodepth = units::number(value, 1, 65_535).map_err(wrong)? as u32,
            "numjobs" => numjobs = units::number(value, 1, THREADS_MAX as u64).map_err(wrong)?,
            "rwmixread" => thread.read_percent = units::number(value, 0, 100).map_err(wrong)? as u32,
            "rwmixwrite" => thread.read_percent = 100 - units::number(value, 0, 100).map_err(wrong)? as u32,
            "percentage_random" => thread.random_percent = units::number(value, 0, 100).map_err(wrong)? as u32,
            "random_distribution" => thread.distribution = distribution(value).map_err(wrong)?,
            "rate" => thread.rate = Some(units::number(value, 1, 1 << 62).map_err(wrong)?),
            "rate_iops" => thread.rate_iops = Some(units::number(value, 1, 1 << 40).map_err(wrong)?),
            "size" => thread.size = Some(units::amount(value).map_err(wrong)?),
            "offset" => thread.offset = units::amount(value).map_err(wrong)?,
            "offset_increment" => increment = units::bytes(value).map_err(wrong)?,
            "io_size" | "io_limit" => thread.io_size = Some(units::amount(value).map_err(wrong)?),
            "number_ios" => thread.number_ios = Some(units::number(value, 1, 1 << 62).map_err(wrong)?),
            "runtime" | "timeout" => thread.runtime = Some(units::time(value).map_err(wrong)?),
            "time_based" => thread.time_based = units::switch(value).map_err(wrong)?,
            key @ ("fsync" | "fdatasync") => {
                let interval = units::number(value, 0, 1 << 32).map_err(wrong)?;
                thread.flush_intervals[usize::from(key == "fdatasync")] = interval;
            }
            "sync" => {
                thread.fua = match value {
                    "none" => false,
                    "sync" | "dsync" => true,
                    _ => units::switch(value).map_err(wrong)?,
                }
            }
            "norandommap" => thread.random_map = !units::switch(value).map_err(wrong)?,
            "randseed" => {
                let seed = value.parse().map_err(|_| wrong(format!("\"{value}\" is not a number below 2^64")))?;
                thread.seed = Some(seed);
            }
            // A run always repeats, and the map of visited blocks costs nothing: nothing to choose.
            "randrepeat" | "allrandrepeat" | "random_generator" | "softrandommap" => {}
            "name" => thread.name = value.to_owned(),
            key if IGNORED.contains(&key) || IGNORED_PREFIXES.iter().any(|prefix| key.starts_with(prefix)) => {}
            key => return Err(JobError { place: setting.place.clone(), reason: unknown(key) }),
        }
    }
    let wrong = |reason: &str| JobError { place: place.to_owned(), reason: format!("job \"{name}\": {reason}") };
    if thread.time_based && thread.runtime.is_none() {
        return Err(wrong("time_based needs a runtime"));
    }
    if thread.runtime.is_some_and(|runtime| runtime.is_zero()) {
        return Err(wrong("runtime is 0"));
    }
    if thread.size == Some(Amount::Bytes(0)) || thread.size == Some(Amount::Percent(0.0)) {
        return Err(wrong("size is 0"));
    }
    let mut all = Vec::new();
    for clone in 0..numjobs {
        let shift = increment.checked_mul(clone).filter(|&shift| shift <= 1 << 62);
        let offset_shift = shift.ok_or_else(|| wrong("offset_increment passes 4 EiB"))?;
        all.push(ThreadSpec { offset_shift, ..thread.clone() });
    }
    Ok(all)
}

fn unknown(key: &str) -> String {
    if let Some((_, instead)) = UNSUPPORTED.iter().find(|(name, _)| *name == key) {
        return format!("fio's \"{key}\" is not supported: {instead}");
    }
    let distance = |name: &&str| strsim::damerau_levenshtein(name, key);
    // A slip of the hand leaves most of a word as it was: of three letters, two.
    let near = |name: &&&str| distance(name) <= 3 && 2 * distance(name) <= name.len().max(key.len());
    match KEYS.iter().min_by_key(|name| distance(name)).filter(near) {
        Some(nearest) => format!("unknown key \"{}\"; did you mean \"{nearest}\"?", shorten(key)),
        None => format!("unknown key \"{}\"; choose one of {}", shorten(key), KEYS.join(", ")),
    }
}

fn access(value: &str) -> Result<(Access, bool), String> {
    Ok(match value {
        "read" => (Access::Read, false),
        "write" => (Access::Write, false),
        "trim" => (Access::Trim, false),
        "rw" | "readwrite" => (Access::Mixed, false),
        "randread" => (Access::Read, true),
        "randwrite" => (Access::Write, true),
        "randtrim" => (Access::Trim, true),
        "randrw" => (Access::Mixed, true),
        _ => {
            return Err(format!(
                "\"{value}\" is not one of read, write, randread, randwrite, rw, readwrite, randrw, trim, randtrim"
            ));
        }
    })
}

fn distribution(value: &str) -> Result<Distribution, String> {
    if value == "random" {
        return Ok(Distribution::Uniform);
    }
    match value.strip_prefix("zipf:").map(str::parse::<f64>) {
        Some(Ok(theta)) if theta > 0.0 && theta <= 10.0 => Ok(Distribution::Zipf(theta)),
        Some(_) => Err(format!("\"{value}\": the exponent of zipf has to be above 0 and at most 10")),
        None => Err(format!("\"{value}\" is not random or zipf:EXPONENT")),
    }
}

/// Three values for reads, writes and trims from one to three, as fio fills them: the last one given serves the rest.
fn three<T: Clone>(value: &str, parse: impl Fn(&str) -> Result<T, String>) -> Result<[T; 3], String> {
    let given = value.split(',').map(|part| parse(part.trim())).collect::<Result<Vec<T>, String>>()?;
    match &given[..] {
        [all] => Ok([all.clone(), all.clone(), all.clone()]),
        [read, rest] => Ok([read.clone(), rest.clone(), rest.clone()]),
        [read, write, trim] => Ok([read.clone(), write.clone(), trim.clone()]),
        _ => Err(format!("\"{value}\" has more than three parts (reads, writes, trims)")),
    }
}

/// Sizes of one request: what an NVMe command with 512-byte blocks can express, up to 1 GiB for trims.
fn block_size(text: &str) -> Result<u64, String> {
    let bytes = units::bytes(text)?;
    if bytes == 0 || bytes % 512 != 0 || bytes > 1 << 30 {
        return Err(format!("\"{text}\" is not a multiple of 512 bytes up to 1g"));
    }
    Ok(bytes)
}

fn block_sizes(value: &str) -> Result<[BlockSizes; 3], String> {
    three(value, |part| Ok(BlockSizes(vec![(block_size(part)?, 100.0)])))
}

/// `4k/60:64k/40`; percentages that are left out share what remains.
fn block_split(value: &str) -> Result<[BlockSizes; 3], String> {
    three(value, |part| {
        let mut sizes = Vec::new();
        for entry in part.split(':') {
            let (size, share) = entry.split_once('/').unwrap_or((entry, ""));
            let share = match share.trim() {
                "" => None,
                text => match text.parse::<f64>() {
                    Ok(share) if (0.0..=100.0).contains(&share) => Some(share),
                    _ => return Err(format!("\"{text}\" is not a percentage of 0 to 100")),
                },
            };
            sizes.push((block_size(size)?, share));
        }
        let sum: f64 = sizes.iter().filter_map(|(_, share)| *share).sum();
        let open = sizes.iter().filter(|(_, share)| share.is_none()).count();
        if sum > 100.0 + 1e-9 || (open == 0 && (sum - 100.0).abs() > 1e-9) {
            return Err(format!("the percentages of \"{part}\" add up to {sum}, not 100"));
        }
        let rest = (100.0 - sum) / open.max(1) as f64;
        let sizes: Vec<_> = sizes.into_iter().map(|(size, share)| (size, share.unwrap_or(rest))).collect();
        Ok(BlockSizes(sizes.into_iter().filter(|(_, share)| *share > 0.0).collect()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::Duration;

    #[test]
    fn an_inline_job_with_commas_in_values() {
        let job =
            JobSpec::from_inline("rw=randrw,bs=4k,8k,time_based,runtime=10,bssplit=4k/60:64k/,16k,size=16g").unwrap();
        let thread = &job.threads[0];
        assert_eq!((thread.access, thread.random, thread.size), (Access::Mixed, true, Some(Amount::Bytes(16 << 30))));
        assert_eq!(thread.blocks[0].0, [(4096, 60.0), (65536, 40.0)]);
        assert_eq!(thread.blocks[1].0, [(16384, 100.0)]);
        assert!(thread.time_based);
        assert_eq!(thread.runtime, Some(Duration::from_ms(10_000)));
    }

    #[test]
    fn a_job_file_with_globals_and_clones() {
        let text = "; a comment\n[global]\nioengine=libaio\ndirect=1\nbs=8k\nsize=1g\n\n[reader]\nrw=randread\niodepth=16\nnumjobs=2\noffset_increment=1g\n[global]\nbs=64k\n# another\n[log]\nrw=write\nfsync=1\nrandom_distribution=zipf:1.2\n";
        let job = JobSpec::from_file("a.fio", text).unwrap();
        assert_eq!(job.threads.len(), 3);
        assert_eq!((job.threads[1].offset_shift, job.threads[1].blocks[0].0[0].0), (1 << 30, 8192));
        assert_eq!((job.threads[2].flush_intervals, job.threads[2].blocks[1].0[0].0), ([1, 0], 65536));
        assert_eq!(job.threads[2].distribution, Distribution::Zipf(1.2));
        assert_eq!((job.iodepth(), job.extent()), (33, Some(2 << 30)));
    }

    #[test]
    fn mistakes_name_their_place_and_the_fix() {
        for (text, words) in [
            ("[a]\niodpeth=3\n", "a.fio:2: unknown key \"iodpeth\"; did you mean \"iodepth\"?"),
            ("[a]\nbs=5\n", "a.fio:2: bs: \"5\" is not a multiple of 512"),
            ("[a]\nrw=randwrit\n", "a.fio:2: rw: \"randwrit\" is not one of"),
            ("rw=read\n", "a.fio:1: expected a [section] first"),
            ("[global]\nrw=read\n", "a.fio: no job"),
            ("[a\n", "a.fio:1: expected [section]"),
            ("[a]\nstonewall\n", "a.fio:2: fio's \"stonewall\" is not supported"),
            ("[a]\ntime_based\n", "a.fio:1: job \"a\": time_based needs a runtime"),
            ("[a]\nbssplit=4k/60:8k/60\n", "add up to 120"),
            ("[a]\nxyzzyxyzzy=1\n", "a.fio:2: unknown key \"xyzzyxyzzy\"; choose one of rw"),
            ("[a]\nfoo=1\n", "a.fio:2: unknown key \"foo\"; choose one of rw"),
            ("[a]\nbz=4k\n", "a.fio:2: unknown key \"bz\"; did you mean \"bs\"?"),
            ("[a]\nrandom_distribution=zipf:0\n", "above 0"),
            ("[a]\nnumjobs=999999\n", "1 to 4096"),
            ("[a]\nbs=4k,4k,4k,4k\n", "more than three"),
            ("[a]\nsize=0\n", "size is 0"),
            ("", "no job"),
        ] {
            let error = JobSpec::from_file("a.fio", text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(
            JobSpec::from_inline("rw=randwrite,iodepht=3").unwrap_err().to_string().starts_with("--job: unknown key")
        );
        assert!(JobSpec::from_argument("/no/such.fio").unwrap_err().to_string().starts_with("/no/such.fio: "));
    }

    use proptest::prelude::*;
    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ -~\n]{0,200}") {
            let _ = JobSpec::from_file("a", &text);
            let _ = JobSpec::from_inline(&text);
        }

        #[test]
        fn any_value_is_read_or_refused(key in 0..KEYS.len(), value in "[0-9a-z.,:/%]{0,20}") {
            if let Ok(job) = JobSpec::from_inline(&format!("{}={value}", KEYS[key]))
                && let Ok(mut source) = job.source(Some(1 << 30), 1)
            {
                for _ in 0..100 {
                    let _ = crate::workload::Source::next(&mut source);
                }
            }
        }
    }
}
