//! Relations between runs of drives that differ in a way whose effect is known.

use crate::relations::cases::{Case, Load};
use crate::relations::ledger::Ledger;
use crate::relations::rig::{Row, Run, difference, serve};
use tidewater_base::units::{format_duration, format_rate, parse_duration, parse_rate};
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::{Kind, Mapping, Profile};

/// The relations between two runs, some of them for each case in turn.
pub fn check(case: &Case, run: &Run, ledger: &mut Ledger) {
    unused_keys(case, run, ledger);
    match case.number / 15 % 3 {
        0 => doubled_times(case, ledger),
        1 => larger_buffers(case, ledger),
        _ => more_channels(case, ledger),
    }
    if case.number.is_multiple_of(16) {
        steady_is_where_writing_leads(case, ledger);
    }
}

/// Keys of what is off, each with a value that is not the default.
fn off(profile: &Profile) -> Vec<&'static str> {
    let mut keys = vec!["serve.timing=none", "serve.cmb_size=0B", "serve.interrupts=msi"];
    let mut when = |off: bool, settings: &[&'static str]| {
        if off {
            keys.extend(settings);
        }
    };
    let (buffer, ftl) = (&profile.buffer, &profile.ftl);
    when(buffer.write_policy == "none", &["buffer.write_size=333KiB", "buffer.write_watermark=12%"]);
    when(buffer.read_policy == "none", &["buffer.read_size=77KiB"]);
    let merges = ["buffer.cbm_threshold=3", "buffer.cbm_sequential=8KiB", "buffer.cbm_merge=off"];
    let beyond = ["buffer.cbm_runs=block", "buffer.cbm_keep=true", "buffer.cbm_padding=true", "buffer.cbm_age=0.5"];
    when(buffer.write_policy != "cbm", &beyond);
    when(buffer.write_policy != "cbm", &merges);
    when(buffer.write_policy != "bplru", &["buffer.bplru_padding=false"]);
    when(buffer.write_policy != "cflru", &["buffer.cflru_window=10%"]);
    let fast = ["fast.partial_after=3ms", "fast.release=transferred", "fast.priority=destage", "fast.lanes=2"];
    when(!profile.fast.is_enabled(), &fast);
    when(!profile.window.is_enabled(), &["window.entries=3", "window.gate=hold", "window.page_time=9us"]);
    when(ftl.map_memory == "all", &["ftl.map_size=48KiB", "ftl.map_prefetch=3", "ftl.map_updates=100"]);
    let cells = ["slc.when_full=fold", "slc.fold_after=3ms", "slc.read_time=9us", "slc.program_time=77us"];
    when(!profile.slc.is_enabled(), &cells);
    when(ftl.mapping != Mapping::Page, &["ftl.gc_victim=cost-benefit", "ftl.gc_stream=false"]);
    when(!profile.flash.suspend, &["flash.suspend_time=7us", "flash.resume_time=9us", "flash.suspend_max=2"]);
    keys
}

/// Keys of what is off change nothing.
fn unused_keys(case: &Case, run: &Run, ledger: &mut Ledger) {
    let keys = off(&case.profile);
    let Some(other) = case.with(&keys) else {
        return ledger.violation("keys of what is off are taken", case, &format!("{keys:?} are refused"));
    };
    let Some(changed) = serve(&other, ledger, |_| {}) else { return };
    let relation = "keys of what is off change nothing";
    let Some(different) = difference(run, &changed) else {
        return ledger.check(relation, &other, true, String::new);
    };
    // Which of them it is.
    let mut changes = |key: &&&str| {
        let alone = case.with(&[key]).and_then(|case| serve(&case, ledger, |_| {}));
        alone.is_some_and(|changed| difference(run, &changed).is_some())
    };
    let guilty: Vec<&&str> = keys.iter().filter(|key| changes(key)).collect();
    ledger.check(relation, &other, false, || format!("{different}, by {guilty:?}"));
}

/// The next lower rate that, as its half, takes whole picoseconds for each byte: times are whole, and one that was
/// rounded would not be half of the other.
fn whole(rate: u64) -> u64 {
    let decade = 10u64.pow(rate.ilog10());
    [8, 5, 4, 2, 1].map(|digit| digit * decade).into_iter().find(|&whole| whole <= rate).unwrap_or(rate)
}

/// Applies `change` to every setting of a drive but those of serving.
fn changed(profile: &Profile, change: impl Fn(&Kind, &str) -> Option<String>) -> Vec<String> {
    let mut settings = Vec::new();
    for info in Profile::keys().filter(|info| !matches!(info.section, "" | "serve")) {
        let names = profile.memories.iter().map(|memory| memory.name.as_str());
        let names: Vec<&str> = if info.section == "memory" { names.collect() } else { vec![""] };
        for name in names {
            let key = info.key().replace("NAME", name);
            let value = profile.get(&key).expect("a key of the table");
            settings.extend(change(&info.kind, &value).map(|value| format!("{key}={value}")));
        }
    }
    settings
}

/// A rate that takes whole picoseconds for each byte.
fn rounded(kind: &Kind, text: &str) -> Option<String> {
    matches!(kind, Kind::Rate { .. }).then(|| parse_rate(text).ok().map(|rate| format_rate(whole(rate))))?
}

/// A value of a time doubled, or of a rate halved.
fn slower(kind: &Kind, text: &str) -> Option<String> {
    match kind {
        Kind::Time { .. } => parse_duration(text).ok().map(|time| format_duration(time * 2)),
        Kind::Rate { .. } => parse_rate(text).ok().map(|rate| format_rate(rate / 2)),
        Kind::List { of, .. } => {
            let items = text.trim_matches(['[', ']']).split([',', '/']);
            let items: Option<Vec<String>> = items.map(|item| slower(of, item.trim().trim_matches('"'))).collect();
            items.map(|items| format!("[{}]", items.join(", ")))
        }
        _ => None,
    }
}

/// The same drive with these settings, and a link of this generation.
fn with_link(case: &Case, settings: &[String], generation: &str) -> Option<Case> {
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain([generation]).collect();
    case.with(&settings)
}

/// Where every part takes twice the time, every request begins and ends at twice the time.
fn doubled_times(case: &Case, ledger: &mut Ledger) {
    // Of these two generations one has exactly half the rate of the other, in whole picoseconds.
    let Some(base) = with_link(case, &changed(&case.profile, rounded), "link.generation=2") else { return };
    // Times that are as long as they may be already, or rates that cannot be halved: not this drive.
    let Some(slow) = with_link(&base, &changed(&base.profile, slower), "link.generation=1") else { return };
    let (Some(once), Some(twice)) = (serve(&base, ledger, |_| {}), serve(&slow, ledger, |_| {})) else { return };
    let doubled = |row: &Row| Row { begin_ps: 2 * row.begin_ps, end_ps: 2 * row.end_ps, ..row.clone() };
    let expected = once.rows.iter().map(doubled);
    let different = expected.zip(&twice.rows).position(|(expected, found)| expected != *found);
    let same = different.is_none() && once.rows.len() == twice.rows.len();
    ledger.check("twice the time of every part is twice the time", &slow, same, || match different {
        Some(i) => format!("request {i} of {}: {:?} became {:?}", once.rows.len(), once.rows[i], twice.rows[i]),
        None => format!("{} requests, and {} of them in twice the time", once.rows.len(), twice.rows.len()),
    });
}

/// The same drive under another load.
fn under(case: &Case, load: Load) -> Case {
    Case { load, ..case.clone() }
}

/// A larger LRU memory holds all that a smaller one holds.
fn larger_buffers(case: &Case, ledger: &mut Ledger) {
    let unit = case.profile.ftl.unit_size >> 10;
    let job = |rw: &str| format!("rw={rw},bs={unit}k,norandommap=1,random_distribution=zipf:1.1");
    let reads = Load::one(Precondition::Filled(1.0), &job("randread"), 1_000);
    let writes = Load::one(Precondition::Filled(1.0), &job("randwrite"), 1_000);
    let reads = under(case, reads).with(&["buffer.read_policy=lru", "buffer.write_policy=none"]);
    let writes = under(case, writes).with(&["buffer.write_policy=lru", "buffer.write_watermark=100%"]);
    for (case, size) in
        reads.map(|c| (c, "buffer.read_size")).into_iter().chain(writes.map(|c| (c, "buffer.write_size")))
    {
        let mut least = 0;
        for kib in [128, 256, 512] {
            let Some(case) = case.with(&[&format!("{size}={kib}KiB")]) else { return };
            let Some(run) = serve(&case, ledger, |_| {}) else { return };
            let hits = run.record.read_cache.hits + run.record.write_buffer.hits;
            ledger.check("a larger LRU memory has no fewer hits", &case, hits >= least, || {
                format!("{hits} hits with {kib} KiB, {least} with half of it")
            });
            least = hits;
        }
    }
}

/// Twice the channels do not slow random reads down.
fn more_channels(case: &Case, ledger: &mut Ledger) {
    let unit = case.profile.ftl.unit_size >> 10;
    let job = format!("rw=randread,bs={unit}k,iodepth=64,norandommap=1");
    let case = under(case, Load::one(Precondition::Filled(1.0), &job, 2_000));
    let channels = case.profile.nand.channels;
    let Some(more) = case.with(&[&format!("nand.channels={}", 2 * channels)]) else { return };
    let (Some(few), Some(many)) = (serve(&case, ledger, |_| {}), serve(&more, ledger, |_| {})) else { return };
    let (few, many) = (few.record.iops, many.record.iops);
    ledger.check("twice the channels read no slower", &more, many >= 0.97 * few, || format!("{many} from {few} per s"));
}

/// A drive that is constructed steady is like one that was overwritten until it was.
fn steady_is_where_writing_leads(case: &Case, ledger: &mut Ledger) {
    // What the curve that it is constructed from is of: one unit at a time, at random, by the oldest or least valid.
    let plain = [
        "drive.capacity=64MiB",
        "nand.channels=1",
        "nand.ways=1",
        "nand.pages_per_block=48",
        "nand.program_fail_rate=0",
        "ftl.mapping=page",
        "ftl.map_memory=all",
        "ftl.gc_stream=true",
        "ftl.gc_victim=greedy",
        "ftl.wear_gap=0",
        "ftl.checkpoint_interval=0",
        "slc.size=0",
        "slc.dynamic=0%",
        "buffer.write_policy=none",
    ];
    let Some(case) = case.with(&plain) else { return };
    let unit = case.profile.ftl.unit_size;
    let units = case.profile.drive.capacity / u64::from(unit);
    let job = format!("rw=randwrite,bs={unit},iodepth=32,norandommap=1");
    let steady = under(&case, Load::one(Precondition::Steady, &job, 2 * units));
    let written = under(&case, Load::one(Precondition::Filled(1.0), &job, 6 * units));
    let constructed = serve(&steady, ledger, |_| {});
    let overwritten = serve(&written, ledger, |options| options.warmup_requests = 4 * units);
    let (Some(constructed), Some(overwritten)) = (constructed, overwritten) else { return };
    let (found, expected) = (constructed.record.write_amplification, overwritten.record.write_amplification);
    ledger.near("a constructed past is as a written one", &steady, found, expected, 0.05);
}
