//! Job files (ini) and inline jobs.

use super::keys::{self, Kind};
use super::spec::{Access, Amount, BlockSizes, Distribution, JobError, JobSpec, Order, ThreadSpec};
use super::{units, values};
use crate::workload::Op;

/// A key with its value, and where it stands.
pub(super) struct Setting {
    pub key: String,
    pub value: String,
    pub place: String,
}

/// A section of a job: its name and place, its own settings, and how many global settings stand before it.
pub(super) struct Section {
    pub name: String,
    pub place: String,
    pub own: Vec<Setting>,
    pub before: usize,
}

impl Setting {
    fn error(&self, reason: String) -> JobError {
        JobError { place: self.place.clone(), reason: format!("{}: {reason}", self.key) }
    }
}

/// Looks up an environment variable.
pub(super) type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A job given inline.
pub(super) fn inline(text: &str, variable: Variable<'_>) -> Result<JobSpec, JobError> {
    let place = || "--job".to_owned();
    let text = &values::substituted(text, variable).map_err(|reason| JobError { place: place(), reason })?;
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
    Ok(JobSpec { threads: threads("job", &settings.iter().collect::<Vec<_>>(), "--job", true)? })
}

/// Whether a key needs no value.
pub(super) fn is_switch(word: &str) -> bool {
    let switches = "time_based norandommap group_reporting thread sync randrepeat stonewall end_fsync fsync_on_close";
    switches.split(' ').any(|switch| switch == word)
}

/// A job file.
pub(super) fn file(name: &str, text: &str, variable: Variable<'_>) -> Result<JobSpec, JobError> {
    let mut global: Vec<Setting> = Vec::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut in_global = None;
    for (index, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", index + 1);
        // A comment may stand behind a value, as in fio.
        let line = line.trim_start_matches('\u{feff}').split(['#', ';']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let Some(section) = rest.strip_suffix(']') else {
                return Err(JobError { place, reason: format!("expected [section], found \"{}\"", shorten(line)) });
            };
            in_global = Some(section == "global");
            if section != "global" {
                sections.push(Section { name: section.to_owned(), place, own: Vec::new(), before: global.len() });
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let value = values::substituted(value.trim(), variable)
            .map_err(|reason| JobError { place: place.clone(), reason: format!("{}: {reason}", key.trim()) })?;
        let setting = Setting { key: key.trim().into(), value, place };
        match (in_global, sections.last_mut()) {
            (Some(true), _) => global.push(setting),
            (Some(false), Some(section)) => section.own.push(setting),
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
    all_threads(&global, &sections)
}

/// The threads of all sections.
pub(super) fn all_threads(global: &[Setting], sections: &[Section]) -> Result<JobSpec, JobError> {
    let mut all = Vec::new();
    for (number, Section { name, place, own, before }) in sections.iter().enumerate() {
        let settings: Vec<&Setting> = global[..*before].iter().chain(own).collect();
        all.extend(threads(name, &settings, place, number == 0)?);
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

/// A number; nothing for 0, as fio has it where that is the default.
fn above_zero(number: u64) -> Option<u64> {
    Some(number).filter(|&number| number > 0)
}

/// A size that places are multiples of; nothing for 0.
fn align(text: &str) -> Result<Option<u64>, String> {
    if units::bytes(text) == Ok(0) { Ok(None) } else { values::block_size(text).map(Some) }
}

/// The threads of one section; `first`: nothing stands before it in its file.
fn threads(name: &str, settings: &[&Setting], place: &str, first: bool) -> Result<Vec<ThreadSpec>, JobError> {
    let block = || BlockSizes(vec![(4096, 100.0)]);
    let mut thread = ThreadSpec {
        name: name.to_owned(),
        access: Access::Read,
        order: Order::Sequential { hole: 0 },
        read_percent: 50,
        random_percent: [100; 3],
        distribution: Distribution::Uniform,
        random_map: true,
        blocks: [block(), block(), block()],
        align: None,
        iodepth: 1,
        offset: Amount::Bytes(0),
        offset_align: None,
        increment: Amount::Bytes(0),
        clone: 0,
        size: None,
        io_size: None,
        loops: 1,
        number_ios: None,
        runtime: None,
        time_based: false,
        rate: [None; 3],
        rate_iops: [None; 3],
        rates_apart: false,
        flush_intervals: [0; 2],
        flush_at_end: false,
        fua: [false; 2],
        write_op: Op::Write,
        verify: false,
        seed: None,
    };
    let (mut numjobs, mut verify, mut do_verify) = (1, false, true);
    let (mut filesize, mut visits_once) = (None, false);
    // fio takes nothing of these for what it does by default.
    let some = |amount: Amount| Some(amount).filter(|&amount| amount != Amount::Bytes(0));
    for setting in settings {
        let wrong = |reason| setting.error(reason);
        let value = setting.value.as_str();
        match setting.key.as_str() {
            "rw" | "readwrite" => (thread.access, thread.order) = values::access(value).map_err(wrong)?,
            "bs" | "blocksize" => thread.blocks = values::block_sizes(value, &thread.blocks).map_err(wrong)?,
            "bssplit" => thread.blocks = values::block_split(value, &thread.blocks).map_err(wrong)?,
            "bsrange" | "blocksize_range" => {
                thread.blocks = values::block_range(value, &thread.blocks).map_err(wrong)?;
            }
            "blockalign" | "ba" => {
                let align = values::three(value, &[None; 3], align).map_err(wrong)?;
                if align.iter().any(|&bytes| bytes != align[0]) {
                    return Err(wrong("one value has to do for reads, writes and trims".into()));
                }
                thread.align = align[0];
            }
            "iodepth" => thread.iodepth = units::number(value, 1, 65_535).map_err(wrong)? as u32,
            "numjobs" => numjobs = units::number(value, 1, THREADS_MAX as u64).map_err(wrong)?,
            "rwmixread" => thread.read_percent = units::number(value, 0, 100).map_err(wrong)? as u32,
            "rwmixwrite" => thread.read_percent = 100 - units::number(value, 0, 100).map_err(wrong)? as u32,
            "percentage_random" => {
                let percent = |part: &str| units::number(part, 0, 100).map(|percent| percent as u32);
                thread.random_percent = values::three(value, &thread.random_percent, percent).map_err(wrong)?;
            }
            "random_distribution" => thread.distribution = values::distribution(value).map_err(wrong)?,
            "rate" => {
                let rate = |part: &str| units::number(part, 0, 1 << 62).map(above_zero);
                thread.rate = values::three(value, &[None; 3], rate).map_err(wrong)?;
                thread.rates_apart |= value.contains(',');
            }
            "rate_iops" => {
                let rate = |part: &str| units::number(part, 0, 1 << 40).map(above_zero);
                thread.rate_iops = values::three(value, &[None; 3], rate).map_err(wrong)?;
                thread.rates_apart |= value.contains(',');
            }
            "size" => thread.size = Some(units::amount(value).map_err(wrong)?),
            "offset" => thread.offset = units::amount(value).map_err(wrong)?,
            "offset_increment" => thread.increment = units::amount(value).map_err(wrong)?,
            "filesize" => filesize = some(units::amount(value).map_err(wrong)?).map(|amount| (amount, *setting)),
            "offset_align" => thread.offset_align = align(value).map_err(wrong)?,
            "io_size" | "io_limit" => thread.io_size = some(units::amount(value).map_err(wrong)?),
            "loops" => thread.loops = units::number(value, 1, 1 << 32).map_err(wrong)?,
            "number_ios" => thread.number_ios = above_zero(units::number(value, 0, 1 << 62).map_err(wrong)?),
            "runtime" | "timeout" => thread.runtime = Some(units::time(value).map_err(wrong)?),
            "time_based" => thread.time_based = units::switch(value).map_err(wrong)?,
            key @ ("fsync" | "fdatasync") => {
                let interval = units::number(value, 0, 1 << 32).map_err(wrong)?;
                thread.flush_intervals[usize::from(key == "fdatasync")] = interval;
            }
            "end_fsync" | "fsync_on_close" => thread.flush_at_end |= units::switch(value).map_err(wrong)?,
            "readfua" => thread.fua[0] = units::switch(value).map_err(wrong)?,
            "writefua" => thread.fua[1] = units::switch(value).map_err(wrong)?,
            "write_mode" => thread.write_op = values::write_mode(value).map_err(wrong)?,
            "random_generator" => visits_once = values::visits_once(value).map_err(wrong)?,
            "sync" => {
                thread.fua[1] = match value {
                    "none" => false,
                    "sync" | "dsync" => true,
                    _ => units::switch(value).map_err(wrong)?,
                }
            }
            "norandommap" => thread.random_map = !units::switch(value).map_err(wrong)?,
            "verify" => verify = values::verify(value).map_err(wrong)?,
            "do_verify" => do_verify = units::switch(value).map_err(wrong)?,
            "randseed" => {
                let seed = value.parse().map_err(|_| wrong(format!("\"{value}\" is not a number below 2^64")))?;
                thread.seed = Some(seed);
            }
            // A run always repeats, and the map of visited blocks costs nothing: nothing to choose.
            "randrepeat" | "allrandrepeat" | "softrandommap" => {}
            "name" => thread.name = value.to_owned(),
            // Nothing stands before the first section that it could wait for.
            key @ ("stonewall" | "wait_for_previous") => {
                if units::switch(value).map_err(wrong)? && !first {
                    let reason = format!("fio's \"{key}\" is not supported: {}", keys::PHASES);
                    return Err(JobError { place: setting.place.clone(), reason });
                }
            }
            key => match keys::kind(key, value) {
                Kind::Refused(reason) => return Err(JobError { place: setting.place.clone(), reason }),
                Kind::Known | Kind::Idle => {}
            },
        }
    }
    let wrong = |reason: &str| JobError { place: place.to_owned(), reason: format!("job \"{name}\": {reason}") };
    if thread.time_based && thread.runtime.is_none() {
        return Err(wrong("time_based needs a runtime"));
    }
    // fio takes a runtime of 0 for none.
    thread.runtime = thread.runtime.filter(|runtime| !runtime.is_zero());
    if thread.time_based && thread.runtime.is_none() {
        return Err(wrong("runtime is 0"));
    }
    if let Some((filesize, setting)) = filesize
        && *thread.size.get_or_insert(filesize) != filesize
    {
        return Err(setting.error("a thread has one region: give it the value of size, or leave it out".into()));
    }
    thread.random_map |= visits_once;
    if thread.size == Some(Amount::Bytes(0)) || thread.size == Some(Amount::Percent(0.0)) {
        return Err(wrong("size is 0"));
    }
    if thread.loops > 1 && thread.number_ios.is_some() {
        return Err(wrong("loops and number_ios together: leave loops out, and multiply number_ios by it"));
    }
    let kinds = match thread.access {
        Access::Mixed => Some([0, 1]),
        Access::TrimWrite => Some([1, 2]),
        _ => None,
    };
    let limited = |kind: usize| thread.rate[kind].is_some() || thread.rate_iops[kind].is_some();
    if kinds.is_some_and(|[one, other]| limited(one) != limited(other)) {
        return Err(wrong("of two kinds of requests one has a rate and the other none: give both one"));
    }
    thread.verify = verify && do_verify && matches!(thread.access, Access::Write | Access::Mixed | Access::TrimWrite);
    if thread.verify && thread.write_op != Op::Write {
        return Err(wrong("verify needs write_mode=write: give do_verify=0"));
    }
    if thread.verify && (thread.runtime.is_some() || (0..3).any(limited)) {
        return Err(wrong("verify with a runtime or a rate: give number_ios or size instead, or do_verify=0"));
    }
    Ok((0..numjobs).map(|clone| ThreadSpec { clone, ..thread.clone() }).collect())
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
        let order = Order::Random { run: 1 };
        assert_eq!((thread.access, thread.order, thread.size), (Access::Mixed, order, Some(Amount::Bytes(16 << 30))));
        assert_eq!(thread.blocks[0].0, [(4096, 60.0), (65536, 40.0)]);
        assert_eq!(thread.blocks[1].0, [(16384, 100.0)]);
        assert!(thread.time_based);
        assert_eq!(thread.runtime, Some(Duration::from_ms(10_000)));
    }

    #[test]
    fn a_job_file_with_globals_and_clones() {
        let text = "; a comment\n[global]\nioengine=libaio\ndirect=1\nbs=8k\nsize=1g\n\n[reader]\nrw=randread\n\
                    iodepth=16\nnumjobs=2\noffset_increment=1g\n[global]\nbs=64k\n# another\n[log]\nrw=write\nfsync=1\n\
                    random_distribution=zipf:1.2\n";
        let job = JobSpec::from_file("a.fio", text).unwrap();
        assert_eq!(job.threads.len(), 3);
        let second = &job.threads[1];
        assert_eq!((second.increment, second.clone, second.blocks[0].0[0].0), (Amount::Bytes(1 << 30), 1, 8192));
        assert_eq!((job.threads[2].flush_intervals, job.threads[2].blocks[1].0[0].0), ([1, 0], 65536));
        assert_eq!(job.threads[2].distribution, Distribution::Zipf(1.2));
        assert_eq!((job.iodepth(), job.extent()), (33, Some(2 << 30)));
    }

    #[test]
    fn mistakes_name_their_place_and_the_fix() {
        for (text, words) in [
            ("[a]\niodpeth=3\n", "a.fio:2: unknown key \"iodpeth\"; did you mean \"iodepth\"?"),
            ("[a]\nbs=2g\n", "a.fio:2: bs: \"2g\" is not a size of 1 byte to 1g"),
            ("[a]\nrw=randwrit\n", "a.fio:2: rw: \"randwrit\" is not one of"),
            ("rw=read\n", "a.fio:1: expected a [section] first"),
            ("[global]\nrw=read\n", "a.fio: no job"),
            ("[a\n", "a.fio:1: expected [section]"),
            ("[a]\nrw=read\n[b]\nstonewall\n", "a.fio:4: fio's \"stonewall\" is not supported"),
            ("[a]\nrw=randread:x\n", "a.fio:2: rw: \"x\" is not a number"),
            ("[a]\nrw=write:-4k\n", "does not go backwards"),
            ("[a]\nzonemode=zbd\n", "a.fio:2: fio's \"zonemode\" is not supported: zoned devices"),
            ("[a]\nthinktime=10\n", "a.fio:2: fio's \"thinktime\" is not supported: use rate"),
            ("[a]\nioengine=cpuio\n", "a.fio:2: fio's engine \"cpuio\" does not read and write"),
            ("[a]\nfilename=/dev/a:/dev/b\n", "a.fio:2: several files in \"filename\""),
            ("[a]\nverify_backlog=8\n", "fio's \"verify_backlog\" is not supported: what was written"),
            ("[a]\nverify=mdd5\n", "\"mdd5\" is not one of none, md5"),
            ("[a]\nrw=write\nverify=md5\nruntime=3\n", "verify with a runtime or a rate"),
            ("[a]\nrw=rw\nrate=,4m\n", "one has a rate and the other none"),
            ("[a]\nbs=${BLOCK}\n", "a.fio:2: bs: \"${BLOCK}\": the environment has no BLOCK"),
            ("[a]\nsize=8*$mb_memory\n", "\"$mb_memory\" is a figure of fio's machine"),
            ("[a]\nrandom_distribution=zoned:50/5:30/15\n", "the shares of requests in \"50/5:30/15\" add up to 80"),
            ("[a]\nrandom_distribution=zoned:50/5:50/15\n", "the shares of the region in \"50/5:50/15\" add up to 20"),
            ("[a]\nrandom_distribution=zipf:1.2:0.5\n", "a center is not supported"),
            ("[a]\nrandom_distribution=pareto:1\n", "the power of pareto has to be above 0 and below 1"),
            ("[a]\nblockalign=4k,8k\n", "one value has to do for reads, writes and trims"),
            ("[a]\nloops=2\nnumber_ios=3\n", "loops and number_ios together"),
            ("[a]\nnrfiles=4\n", "a thread has one region"),
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

    #[test]
    fn what_changes_no_request_is_passed_over() {
        let neutral = "[only]\nstonewall\nrw=randwrite\nbs=4k\nsize=16m\nloops=1\nramp_time=0\nstartdelay=0\n\
                       thinktime=0\nzonemode=none\nrate_process=linear\nnrfiles=1\nverify_backlog=0\n";
        let reporting = "[only]\nrw=randwrite\nbs=4k\nsize=16m\nper_job_logs=0\nunified_rw_reporting=1\nbwavgtime=500\n\
                         iopsavgtime=500\ndisk_util=0\nsignificant_figures=6\ndisable_bw_measurement=1\nthread\n\
                         exitall_on_error=1\nfilename=/dev/nvme0n1\nwrite_bw_log=x\nlog_avg_msec=10\n";
        let comments =
            "[only] ; the only one\nrw=randwrite   # writes\nbs=4k\t; block size\nsize=16m#16 MiB\n\t; alone\n";
        let plain = JobSpec::from_file("a", "[only]\nrw=randwrite\nbs=4k\nsize=16m\n");
        for text in [neutral, reporting, comments] {
            assert_eq!(JobSpec::from_file("a", text), plain);
        }
    }

    /// All that begins with `write_`, `verify_`, `log_`, `output`, `iodepth_low` or `iodepth_batch` was passed over:
    /// `write_mode=zeroes` gave plain writes and a slip of the hand was none.
    #[test]
    fn keys_are_taken_by_their_whole_names() {
        for key in
            ["write_barier=1", "verify_foo=1", "iodepth_lowx=3", "log_avg_msecs=1", "outputs=x", "iodepth_batchs=1"]
        {
            let error = JobSpec::from_file("a", &format!("[a]\n{key}\n")).unwrap_err().to_string();
            assert!(error.starts_with("a:2: unknown key "), "{key}: {error}");
        }
        let error = |text: &str| JobSpec::from_inline(text).unwrap_err().to_string();
        assert!(error("rw=write,write_barier=1").contains("did you mean \"write_barrier\"?"));
        assert!(error("rw=write,log_avg_msecs=1").contains("did you mean \"log_avg_msec\"?"));
        assert!(error("rw=write,write_mode=uncor").contains("\"uncor\" is not supported"));
        assert!(error("rw=write,write_mode=write/60:zeroes/40").contains("a section of its own"));
        assert!(error("rw=write,verify_mode=compare").contains("\"verify_mode\" is not supported"));
        assert!(error("rw=write,write_mode=zeroes,verify=md5").contains("verify needs write_mode=write"));
        let op = |text: &str| JobSpec::from_inline(text).unwrap().threads[0].write_op;
        assert_eq!(op("rw=write,write_mode=zeroes"), Op::WriteZeroes);
        assert_eq!(op("rw=write,write_mode=verify"), Op::Verify);
        assert_eq!(
            op("rw=write,write_mode=write,verify_mode=read,verify_policy=completed,verify_fatal=1,log_prio=1"),
            Op::Write
        );
        // Each of fio's own names that begins so is known.
        let names = "iodepth_batch iodepth_batch_submit iodepth_batch_complete_min iodepth_batch_complete \
                     iodepth_batch_complete_max iodepth_low verify_interval verify_offset verify_pattern \
                     verify_pattern_interval verify_fatal verify_dump verify_async verify_async_cpus verify_state_save \
                     verify_write_sequence verify_header_seed write_iolog write_hint write_bw_log write_lat_log \
                     write_iops_log write_hist_log log_entries log_avg_msec log_hist_msec log_hist_coarseness \
                     log_window_value log_max_value log_offset log_prio log_issue_time log_compression \
                     log_compression_cpus log_store_compressed log_alternate_epoch log_unix_epoch \
                     log_alternate_epoch_clock_id output output-format";
        for name in names.split_whitespace() {
            assert!(JobSpec::from_inline(&format!("rw=write,{name}=1")).is_ok(), "{name}");
        }
    }

    /// `filesize` equal to `size` was refused, and so were zeroes where fio's own default is zero.
    #[test]
    fn values_that_ask_for_nothing_change_nothing() {
        let plain = JobSpec::from_inline("rw=randwrite,bs=4k,size=16m");
        for more in [
            "filesize=16m",
            "filesize=16384k",
            "nr_files=1,openfiles=8",
            "io_size=0",
            "number_ios=0",
            "rate=0",
            "rate_iops=0",
            "blockalign=0",
            "offset_align=0",
            "ramp_time=0ms",
            "startdelay=00",
            "thinktime=0us",
            "zonesize=0k",
            "max_latency=0ms",
            "trim_percentage=0%",
            "fill_device=false",
            "fdp=no",
            "runtime=0",
            "random_generator=tausworthe64",
            "bs_unaligned=1",
            "readfua=0",
            "writefua=0",
            "write_mode=write",
        ] {
            assert_eq!(JobSpec::from_inline(&format!("rw=randwrite,bs=4k,size=16m,{more}")), plain, "{more}");
        }
        // Alone it is the size of the one file.
        assert_eq!(JobSpec::from_inline("rw=randwrite,bs=4k,filesize=16m"), plain);
        let other = JobSpec::from_inline("rw=randwrite,size=16m,filesize=8m").unwrap_err().to_string();
        assert!(other.contains("filesize: a thread has one region"), "{other}");
        assert!(
            JobSpec::from_inline("rw=write,thinktime=0x").is_err() && JobSpec::from_inline("ramp_time=us").is_err()
        );
    }

    #[test]
    fn the_environment_fills_values() {
        let variable = |name: &str| (name == "BS").then(|| "8k".to_owned());
        let job = file("a", "[a]\nbs=${BS}\nsize=1${BS}\n", &variable).unwrap();
        assert_eq!((job.threads[0].blocks[0].0[0].0, job.threads[0].size), (8_192, Some(Amount::Bytes(18 << 10))));
        assert_eq!(inline("bs=${BS}", &variable).unwrap().threads[0].blocks[0].0[0].0, 8_192);
    }

    #[test]
    fn values_by_kind_are_filled_as_in_fio() {
        let job = |text: &str| JobSpec::from_inline(text).unwrap().threads.remove(0);
        let sizes = |text: &str| job(text).blocks.map(|sizes| sizes.0[0].0 >> 10);
        assert_eq!(sizes("bs=8k"), [8; 3]);
        assert_eq!(sizes("bs=8k,16k"), [8, 16, 16]);
        assert_eq!(sizes("bs=4k,8k,16k"), [4, 8, 16]);
        assert_eq!(sizes("bs=,8k"), [4, 8, 8]);
        assert_eq!(sizes("bs=8k,"), [8, 4, 4]);
        assert_eq!(job("rw=randrw,percentage_random=90,10").random_percent, [90, 10, 10]);
        assert_eq!(job("rw=randrw,rate_iops=100,50").rate_iops, [Some(100), Some(50), Some(50)]);
        let range = job("rw=read,bsrange=4k-16k").blocks[0].0.clone();
        assert_eq!(range, [4, 8, 12, 16].map(|kib| (kib << 10, 25.0)));
    }

    use proptest::prelude::*;
    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ -~\n]{0,200}") {
            let _ = JobSpec::from_file("a", &text);
            let _ = JobSpec::from_inline(&text);
        }

        #[test]
        fn any_value_is_read_or_refused(
            key in 0..keys::known().len(),
            value in "[0-9a-z.,:/%$={}-]{0,20}|(zoned|zoned_abs|zipf|pareto|normal):[0-9k/:.,]{0,20}|\
                      (rand)?(write|read|rw):[0-9k]{1,4}",
            more in "(rw=randrw|rw=trimwrite,verify=md5|rw=write,verify=md5|size=70k,bssplit=4k/50:16k/50|\
                     rw=randwrite:3),",
        ) {
            if let Ok(job) = JobSpec::from_inline(&format!("{more}{}={value}", keys::known()[key]))
                && let Ok(mut source) = job.source(Some(1 << 30), 1)
            {
                for _ in 0..100 {
                    let _ = crate::workload::Source::next(&mut source);
                }
            }
        }
    }
}
