//! Traces: found by name or path, described, converted and generated.

use crate::args::{Reading, Synth, TraceCommand};
use crate::failure::Failure;
use crate::output::{self, Target, distinct};
use crate::progress::Bar;
use std::fmt::Write as _;
use std::path::Path;
use tidewater_base::units;
use tidewater_sim::trace::convert::{ConvertError, Converted, OutputFormat, convert};
use tidewater_sim::trace::{self, Info, Input, Trace, info};
use tidewater_sim::workload::like::{self, Free};
use tidewater_sim::workload::{self, Slice, Source, SynthSpec, Workload};
use tidewater_study::meant;
use tidewater_study::trace::{COUNTS, empty_slice, find, options, refusal, sliced};

/// Message of a bar while a trace is read from end to end.
const READING: &str = "reading";

/// `tidewater trace`.
///
/// # Errors
/// Those of the subcommands.
pub fn command(command: &TraceCommand) -> Result<(), Failure> {
    match command {
        TraceCommand::Info { trace, reading, locality, json } => {
            let json = Target::maybe(json.as_ref())?;
            distinct(&[json.as_ref()], Some(trace))?;
            let info = describe(&find(trace)?, reading, *locality)?;
            if let Some(target) = &json {
                let text = serde_json::to_string_pretty(&info).map_err(Failure::run)? + "\n";
                target.write(&text)?;
            }
            if json.is_some_and(|target| target.is_stdout()) { Ok(()) } else { output::print(&lines(&info)) }
        }
        TraceCommand::Convert { trace, out, to, fio_file, reading } => {
            let target = Target::new(out)?;
            distinct(&[Some(&target)], Some(trace))?;
            let to = written_as(out, *to)?;
            let bar = Bar::working("trace", READING);
            let source = Trace::open(&find(trace)?, &options(&reading.spec(), true))
                .map_err(|error| Failure::from(refusal(&error)))?;
            drop(bar);
            let mut source = sliced(Workload::Trace(Box::new(source)), &reading.spec());
            write(&mut source, &target, to, fio_file)
        }
        TraceCommand::Synth(synth) => generate(synth),
    }
}

fn describe(input: &Input, reading: &Reading, with_locality: bool) -> Result<Info, Failure> {
    let _bar = Bar::working("trace", READING);
    // Where a file can be read twice, its address spaces follow each other, as they do in a replay.
    let mut trace =
        Trace::open(input, &options(&reading.spec(), true)).map_err(|error| Failure::from(refusal(&error)))?;
    let described = match &reading.slice {
        None => info(&mut trace, with_locality),
        Some(range) => {
            let format = trace.format().name();
            let mut slice = Slice::new(trace, range.start..range.end);
            trace::info::info_of(&input.name(), &mut slice, with_locality)
                .map(|info| Info { format: Some(format), ..info })
        }
    };
    let info = described.map_err(|error| Failure::from(refusal(&error)))?;
    if info.requests == 0 && reading.slice.is_some() { Err(empty_slice(COUNTS).into()) } else { Ok(info) }
}

/// Description of a trace as text.
fn lines(info: &Info) -> String {
    let mut out = String::new();
    let mut line = |what: &str, text: String| {
        let _ = writeln!(out, "{what:<18} {}", crate::failure::printable(&text));
    };
    line("trace", info.file.clone());
    line("format", info.format.unwrap_or("generated").to_owned());
    let operations: Vec<String> =
        info.operations.iter().map(|(name, n)| format!("{} {}", units::grouped(*n), name.replace('_', " "))).collect();
    line("requests", format!("{} ({})", units::grouped(info.requests), operations.join(", ")));
    let kib = |kib: f64| format!("{} KiB", units::significant(kib));
    let apart = info.write_percent > 0.0 && info.write_percent < 100.0;
    let (reads, writes) = (kib(info.mean_read_kib), kib(info.mean_write_kib));
    let of_each = if apart { format!(" (reads {reads}, writes {writes})") } else { String::new() };
    line("mean size", kib(info.mean_kib) + &of_each);
    line("writes", units::percent(info.write_percent / 100.0));
    line("sequential", units::percent(info.sequential_percent / 100.0));
    line("page-aligned", units::percent(info.aligned_percent / 100.0));
    line("skew", format!("{:.2} (exponent of Zipf's law over the places of 64 KiB that are touched)", info.skew));
    line("mean interarrival", units::micros(info.mean_interarrival_ms * 1000.0));
    line("duration", units::seconds(info.duration_seconds));
    line("footprint", size(info.footprint_mib));
    line("address range", size(info.extent_mib));
    line("moved", format!("{} read, {} written", units::bytes(info.read_bytes), units::bytes(info.written_bytes)));
    for (what, count) in [
        ("devices", u64::from(info.devices)),
        ("force unit access", info.fua),
        ("out of order", info.reordered),
        ("lines skipped", info.skipped),
    ] {
        if count > u64::from(what == "devices") {
            line(what, units::grouped(count));
        }
    }
    if let Some(why) = &info.cut_short {
        line("not whole", why.clone());
    }
    if !info.busiest.is_empty() {
        let more = u64::from(info.devices) - info.busiest.len() as u64;
        let rest = if more > 0 { format!("; {} more", units::grouped(more)) } else { String::new() };
        line(
            "busiest devices",
            format!("{:>12} {:>10} {:>12} {:>12}{rest}", "requests", "writes", "mean size", "footprint"),
        );
        for device in &info.busiest {
            let text = format!(
                "{:>12} {:>10} {:>12} {:>12}",
                units::grouped(device.requests),
                units::percent(device.write_percent / 100.0),
                format!("{} KiB", units::significant(device.mean_kib)),
                size(device.footprint_mib)
            );
            line(&format!("  {}", crate::failure::printable(&device.name)), text);
        }
    }
    if let Some(near) = &info.locality {
        let share = |percent: f64| units::percent(percent / 100.0);
        line("begins again", format!("{} where a recent request of its kind began", share(near.again_percent)));
        line("goes onward", format!("{} where a recent request of its kind ended", share(near.onward_percent)));
        for list in &near.written {
            let mut text =
                format!("{} of written pages are among the last {} MiB", share(list.again_percent), list.mib);
            if list.pages_per_block > 0.0 {
                let pages = units::significant(list.pages_per_block);
                text += &format!(", of which {pages} pages share a block of 256 KiB");
            }
            line("written again", text);
        }
    }
    out
}

fn size(mib: f64) -> String {
    units::bytes((mib * 1_048_576.0) as u64)
}

/// The format to write: the given one, or what the end of the file's name stands for.
///
/// # Errors
/// When the name promises what is not written: compression, or columns between commas.
fn written_as(out: &Path, given: Option<OutputFormat>) -> Result<OutputFormat, Failure> {
    let extension = out.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let refuse = |why: &str| Failure::usage(format_args!("{}: {why}", out.display()));
    match (extension.as_str(), given) {
        ("gz" | "zst", _) => Err(refuse("traces are written uncompressed, but the name ends as if compressed")
            .help("write it under a name without this ending, and compress the file")),
        (_, Some(format)) => Ok(format),
        ("csv", None) => Err(refuse("several trace formats use .csv, so the name is ambiguous")
            .help("give the format with --to spc, or another of its names")),
        ("iolog" | "fio", None) => Ok(OutputFormat::FioV3),
        ("spc", None) => Ok(OutputFormat::Spc),
        _ => Ok(OutputFormat::Mqsim),
    }
}

fn write(source: &mut impl Source, target: &Target, format: OutputFormat, fio_file: &str) -> Result<(), Failure> {
    if fio_file.is_empty() || fio_file.contains(char::is_whitespace) {
        return Err(Failure::usage("--fio-file: a fio log cannot name a file with blanks in its name"));
    }
    let mut out = target.open()?;
    // On a terminal that the trace is written to, nothing else is.
    let bar = (!target.is_stdout()).then(|| Bar::working("trace", "writing"));
    let converted = convert(source, &mut out, format, fio_file).map_err(|error| match error {
        ConvertError::Source(error) => Failure::from(refusal(&error)),
        ConvertError::Output(error) => target.unwritten(&error),
    })?;
    drop(bar);
    if converted.requests == 0 && converted.left_out == 0 {
        return Err(empty_slice(COUNTS).into());
    }
    out.finish()?;
    if target.is_stdout() {
        return Ok(());
    }
    let mut text = summary(&converted, source.skipped(), target, format);
    if let Some(why) = source.cut_short() {
        let _ = writeln!(text, "  the trace is not whole: {why}");
    }
    output::print(&text)
}

fn summary(converted: &Converted, skipped: u64, target: &Target, format: OutputFormat) -> String {
    // The lines of MQSim alone fit other formats too; those of the others tell what they are.
    let back = if format == OutputFormat::Mqsim { "; to read it, give --format mqsim" } else { "" };
    let mut text = format!(
        "{}: {}, format {}{back}\n",
        crate::failure::printable(target.name()),
        units::plural_exact(converted.requests, "request"),
        format.name()
    );
    for (count, what) in [
        (converted.left_out, "dropped: the format has no such operation"),
        (converted.widened, "rounded out to whole sectors of 512 bytes"),
        (skipped, "malformed lines skipped"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "  {} {what}", units::grouped(count));
        }
    }
    text
}

fn generate(synth: &Synth) -> Result<(), Failure> {
    let target = Target::new(&synth.out)?;
    let to = written_as(&synth.out, synth.to)?;
    let mut like = None;
    let mut spec = match &synth.like {
        None => SynthSpec::default(),
        Some(path) => match path.to_str().and_then(SynthSpec::cbm) {
            Some(_) if synth.format.is_some() => {
                return Err(Failure::usage("--format is that of a trace, and --like names a workload of a paper")
                    .help("leave --format out, or give --like the path of a trace"));
            }
            Some(spec) => spec,
            None => {
                distinct(&[Some(&target)], Some(path))?;
                like::spec_of(like.insert(like_trace(path, synth)?))
            }
        },
    };
    let set = |place: &mut f64, value: Option<f64>| *place = value.unwrap_or(*place);
    spec.requests = synth.requests.unwrap_or(spec.requests);
    set(&mut spec.mean_kib, synth.mean_kib);
    set(&mut spec.write_percent, synth.write_percent);
    set(&mut spec.sequential_percent, synth.sequential_percent);
    set(&mut spec.mean_interarrival_ms, synth.mean_interarrival_ms);
    set(&mut spec.footprint_mib, synth.footprint_mib);
    set(&mut spec.skew, synth.skew);
    set(&mut spec.again_percent, synth.again_percent);
    set(&mut spec.onward_percent, synth.onward_percent);
    spec.seed = synth.seed;
    // A mean that is given is that of the generator's own distribution.
    if let Some(shape) = &mut spec.shape {
        if synth.mean_kib.is_some() {
            (shape.read_sizes, shape.write_sizes) = Default::default();
        }
        if synth.mean_interarrival_ms.is_some() {
            shape.intervals_ps.clear();
        }
    }
    let Some(like) = like else {
        let mut source = workload::Synth::new(&spec).map_err(Failure::usage)?;
        return write(&mut source, &target, to, "/dev/nvme0n1");
    };
    let free = Free {
        skew: synth.skew.is_none(),
        again: synth.again_percent.is_none(),
        onward: synth.onward_percent.is_none(),
    };
    if synth.footprint_mib.is_none() && synth.requests.is_none() {
        spec.footprint_mib = like::footprint_mib(&spec);
    }
    let bar = Bar::working("trace", "measuring skew and locality");
    let made = like::fit(&mut spec, &like, free).map_err(Failure::usage)?;
    drop(bar);
    let mut source = workload::Synth::new(&spec).map_err(Failure::usage)?;
    write(&mut source, &target, to, "/dev/nvme0n1")?;
    if target.is_stdout() { Ok(()) } else { output::print(&side_by_side(&like, &made)) }
}

/// The figures of a trace and of its stand-in.
fn side_by_side(like: &Info, made: &Info) -> String {
    let mut text = format!("\n{:<18} {:>12} {:>12}\n", "", "the trace", "written");
    let mut row = |what: &str, figure: &dyn Fn(&Info) -> String| {
        let _ = writeln!(text, "{what:<18} {:>12} {:>12}", figure(like), figure(made));
    };
    let kib = |kib: f64| format!("{} KiB", units::significant(kib));
    let percent = |percent: f64| units::percent(percent / 100.0);
    let near =
        |info: &Info| info.locality.as_ref().map_or((0.0, 0.0), |near| (near.again_percent, near.onward_percent));
    row("requests", &|info| units::grouped(info.requests));
    row("mean size", &|info| kib(info.mean_kib));
    row("  of reads", &|info| kib(info.mean_read_kib));
    row("  of writes", &|info| kib(info.mean_write_kib));
    row("writes", &|info| percent(info.write_percent));
    row("sequential", &|info| percent(info.sequential_percent));
    row("page-aligned", &|info| percent(info.aligned_percent));
    row("mean interarrival", &|info| units::micros(info.mean_interarrival_ms * 1000.0));
    row("footprint", &|info| size(info.footprint_mib));
    row("skew", &|info| format!("{:.2}", info.skew));
    row("begins again", &|info| percent(near(info).0));
    row("goes onward", &|info| percent(near(info).1));
    text
}

/// The statistics of a trace, for a stand-in.
fn like_trace(like: &Path, synth: &Synth) -> Result<Info, Failure> {
    let input = find(like).map_err(|failure| {
        let name = like.display().to_string();
        if let Some(meant) = meant(&name, SynthSpec::CBM.into_iter()).filter(|_| like.components().count() == 1) {
            return failure.help(format_args!("did you mean `--like {meant}`?"));
        }
        let help = format!("--like takes one of {}, or the path of a trace", SynthSpec::CBM.join(", "));
        failure.help(help)
    })?;
    let reading =
        Reading { format: synth.format, columns: None, slice: None, skip_bad: false, volume: None, compact: false };
    describe(&input, &reading, true)
}
