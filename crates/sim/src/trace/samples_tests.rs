use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use super::*;
use crate::trace::convert::{OutputFormat, convert};
use crate::trace::{Input, Options, Trace};
use crate::workload::{Op, Request, Source, Synth, SynthSpec};

/// The load of the demonstration.
fn oltp() -> SynthSpec {
    SynthSpec {
        requests: 20_000,
        mean_kib: 8.0,
        write_percent: 40.0,
        sequential_percent: 8.0,
        mean_interarrival_ms: 0.25,
        footprint_mib: 64.0,
        skew: 0.9,
        again_percent: 0.0,
        onward_percent: 0.0,
        shared_percent: 0.0,
        shape: None,
        untouched_exponent: 0.0,
        seed: 2014,
    }
}

/// 120 requests on three devices (one where the format has no devices), in units that every format can express.
fn small(devices: u64) -> Vec<(u64, Request)> {
    let spec =
        SynthSpec { requests: 120, footprint_mib: 0.5, mean_interarrival_ms: 2.0, seed: 7, ..SynthSpec::default() };
    let mut synth = Synth::new(&spec).unwrap();
    let mut all = Vec::new();
    while let Some(request) = synth.next() {
        let request = request.unwrap();
        let length = request.length.next_multiple_of(4096);
        let microseconds = request.arrival.as_ps() / 1_000_000;
        let arrival = tidewater_base::Instant::from_ns(microseconds * 1_000);
        all.push((all.len() as u64 % devices, Request { arrival, length, ..request }));
    }
    all
}

fn devices(name: &str) -> u64 {
    let one = ["flashsim", "flashnet", "wiscsee", "vscsi", "fio2", "fio3"];
    if one.iter().any(|format| name.contains(format)) { 1 } else { 3 }
}

/// Resolution of the format's time stamps, in picoseconds.
fn tick_ps(name: &str) -> u64 {
    if name.contains("tencent") { 1_000_000_000_000 } else { 1_000_000 }
}

fn make(name: &str) -> Vec<u8> {
    match name {
        DEMO => {
            let mut text = Vec::new();
            convert(&mut Synth::new(&oltp()).unwrap(), &mut text, OutputFormat::Spc, "").unwrap();
            return zstd::encode_all(&text[..], 19).unwrap();
        }
        "sample.msr.csv.gz" => {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            gz.write_all(&make("sample.msr.csv")).unwrap();
            return gz.finish().unwrap();
        }
        "bad-line.spc" => {
            let mut text = String::from_utf8(make("sample.spc")).unwrap();
            let second = text.find('\n').unwrap() + 1;
            text.insert_str(second, "0,4096,8192,?,0.000001\n");
            return text.into_bytes();
        }
        "empty.spc" => return Vec::new(),
        "noise.bin" => {
            let mut rng = tidewater_base::Rng::new(1, b"noise");
            return (0..512).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        }
        "sample.vscsi" => return vscsi(),
        _ => {}
    }
    let mut text = String::new();
    match name {
        "sample.etw.csv" => text.push_str(
            "BeginHeader\n               DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID,             \
             IrpPtr,   ByteOffset,     IOSize, ElapsedTime,  DiskNum, IrpFlags\nEndHeader\n",
        ),
        "sample.fio2" => text.push_str("fio version 2 iolog\n/dev/sda add\n/dev/sda open\n"),
        "sample.fio3" => text.push_str("fio version 3 iolog\n0 /dev/sda add\n0 /dev/sda open\n"),
        "sample.biosnoop" => {
            text.push_str("TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n");
        }
        "sample.ftrace" => text.push_str("# tracer: nop\n#\n# TASK-PID CPU# ||||| TIMESTAMP FUNCTION\n"),
        "sample.systor17.csv" => text.push_str("Timestamp,Response,IOType,LUN,Offset,Size\n"),
        _ => {}
    }
    let mut waited = 0;
    for (number, (device, request)) in small(devices(name)).into_iter().enumerate() {
        let us = request.arrival.as_ps() / 1_000_000;
        let (seconds, micros, ms, ms_part) = (us / 1_000_000, us % 1_000_000, us / 1_000, us % 1_000);
        let Request { op, offset, length, .. } = request;
        let (sector, sectors) = (offset / 512, length / 512);
        let read = op == Op::Read;
        let one_reads = u8::from(read);
        let letter = if read { 'R' } else { 'W' };
        let word = if read { "Read" } else { "Write" };
        let small_word = word.to_lowercase();
        match name {
            "sample.spc" => writeln!(text, "{device},{sector},{length},{letter},{seconds}.{micros:06}"),
            "sample.msr.csv" => {
                let stamp = 128_166_372_000_000_000 + us * 10;
                writeln!(text, "{stamp},demo,{device},{word},{offset},{length},1000")
            }
            "sample.etw.csv" => writeln!(
                text,
                "{:>23},{:>11}, p0 (2004),       3348, 0xfffffadf3ba0d930, {offset:#012x}, {length:#010x},         \
                 142, {device:>8}, 0x000a01",
                format!("Disk{word}"),
                1_803_278 + us
            ),
            "sample.disksim" => writeln!(text, "{ms}.{ms_part:03} {device} {sector} {sectors} {one_reads:x}"),
            "sample.mqsim" | "sample.ssdsim" => writeln!(text, "{}000 {device} {sector} {sectors} {one_reads}", us),
            "sample.mqsim64" => writeln!(text, "{}000 {device} {} {} {one_reads}", us, offset / 64, length / 64),
            "sample.flashsim" => writeln!(text, "{ms}.{ms_part:03}000\t0\t{sector}\t{}\t{one_reads}", length / 4096),
            "sample.replayer" => writeln!(text, "{ms}.{ms_part:03} {device} {offset} {length} {one_reads}"),
            "sample.biosnoop" => {
                writeln!(text, "{seconds}.{micros:06} demo 4311 nvme{device}n1 {letter} {sector:<10} {length:<6} 0.21")
            }
            "sample.ftrace" => writeln!(
                text,
                "   demo-3012  [001] d..1. {}.{micros:06}: block_rq_issue: 259,{device} {letter}S {length} () \
                 {sector} + {sectors} [demo]",
                1_234 + seconds
            ),
            "sample.flashnet.csv" => {
                writeln!(text, "{ms}.{ms_part:03},134,{one_reads},{length},{offset},{ms}.{ms_part:03},{length}")
            }
            "sample.wiscsee" => writeln!(
                text,
                "39949 D {small_word} {offset} {length} {seconds}.{micros:06}000 0 True\n0 C {small_word} {offset} \
                 {length} {seconds}.{micros:06}900 9e-07 True"
            ),
            "sample.blkparse" => {
                for action in ["Q", "D", "C"] {
                    let stamp = format!("{seconds}.{micros:06}000");
                    let _ = writeln!(
                        text,
                        "  8,{:<4} {:>2} {:>8} {stamp:>15} {:>5}  {action}   {letter} {sector} + {sectors} [demo]",
                        16 * device,
                        0,
                        number,
                        4020
                    );
                }
                Ok(())
            }
            "sample.fio2" => {
                if us > waited {
                    let _ = writeln!(text, "/dev/sda wait {} 0", us - waited);
                    waited = us;
                }
                writeln!(text, "/dev/sda {small_word} {offset} {length}")
            }
            "sample.fio3" => writeln!(text, "{us} /dev/sda {small_word} {offset} {length}"),
            "sample.systor17.csv" => {
                writeln!(
                    text,
                    "145609{:04}.{micros:06}000,0.000806000,{letter},{device},{offset},{length}",
                    5145 + seconds
                )
            }
            "sample.tencent.csv" => {
                writeln!(text, "{},{sector},{sectors},{},{}", 1_538_323_200 + seconds, 1 - one_reads, 1058 + device)
            }
            "sample.alibaba.csv" => {
                writeln!(text, "{},{letter},{offset},{length},{}", 4 + device, 1_577_808_000_000_000 + us)
            }
            _ => panic!("no generator for {name}"),
        }
        .unwrap();
    }
    if name == "sample.fio2" {
        text.push_str("/dev/sda close\n");
    }
    text.into_bytes()
}

fn vscsi() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, (_, request)) in small(1).into_iter().enumerate() {
        let command: u16 = if request.op == Op::Read { 0x28 } else { 0x2a };
        bytes.extend((number as u32).to_le_bytes());
        bytes.extend((request.length as u32).to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(command.to_le_bytes());
        bytes.extend((1u16 << 8).to_le_bytes());
        bytes.extend((request.offset / 512).to_le_bytes());
        bytes.extend((5_632_500_000 + request.arrival.as_ps() / 1_000_000).to_le_bytes());
    }
    bytes
}

#[test]
fn samples_are_what_the_generator_makes() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "traces"].iter().collect();
    for (name, bytes) in SAMPLES {
        let made = make(name);
        if std::env::var_os("TIDEWATER_BLESS").is_some() {
            std::fs::write(folder.join(name), made).unwrap();
        } else if name.ends_with("zst") || name.ends_with("gz") {
            // Another version of a compressor may give other bytes.
            let text = |bytes: &[u8]| {
                let mut lines = Input::from_bytes(name, bytes).open().unwrap();
                std::iter::from_fn(|| lines.next_line().unwrap().map(<[u8]>::to_vec)).collect::<Vec<_>>()
            };
            assert!(text(bytes) == text(&made), "{name} differs: run with TIDEWATER_BLESS=1");
        } else {
            assert!(*bytes == made, "{name} differs: run with TIDEWATER_BLESS=1");
        }
    }
}

#[test]
fn every_format_reads_back_what_was_written() {
    for &(name, format, bytes) in FORMATS {
        let options = Options { format: Some(format), ..Options::default() };
        let mut trace = Trace::open(&Input::from_bytes(name, bytes), &options).unwrap();
        let wanted = small(devices(name));
        let first = wanted[0].1.arrival.as_ps() / tick_ps(name);
        for (number, (device, wanted)) in wanted.iter().enumerate() {
            let got = trace.next_request().unwrap().unwrap();
            let request = got.request;
            assert_eq!(
                (request.op, got.device_offset, request.length),
                (wanted.op, wanted.offset, wanted.length),
                "{name} {number}"
            );
            assert_eq!(u64::from(got.device), *device, "{name} {number}");
            assert_eq!(
                request.arrival.as_ps() / tick_ps(name),
                wanted.arrival.as_ps() / tick_ps(name) - first,
                "{name} {number}"
            );
            assert!(request.end() <= trace.extent().unwrap());
        }
        assert!(trace.next_request().is_none());
        assert_eq!((trace.reordered(), trace.progress()), (0, Some(1.0)), "{name}");
    }
}

#[test]
fn samples_are_detected_or_refused_with_choices() {
    for &(name, format, bytes) in FORMATS {
        match Trace::open(&Input::from_bytes(name, bytes), &Options::default()) {
            Ok(trace) => assert_eq!((trace.format(), format.is_bare()), (format, false), "{name}"),
            Err(error) => {
                assert!(format.is_bare(), "{name}: {error}");
                assert!(error.to_string().contains(format.name()), "{error}");
            }
        }
    }
    let error = |name: &str| {
        let input = Input::from_bytes(name, find(name).unwrap());
        Trace::open(&input, &Options::default()).err().unwrap().to_string()
    };
    assert_eq!(error("bad-line.spc"), "bad-line.spc:2:13: expected R or W, found \"?\"");
    assert_eq!(error("empty.spc"), "empty.spc: the trace holds no request");
    assert!(error("noise.bin").contains("not a trace in a known format (found binary data)"));
}

#[test]
fn the_demonstration_is_small_and_looks_as_ordered() {
    let bytes = find(DEMO).unwrap();
    assert!(bytes.len() < 300_000, "{}", bytes.len());
    let mut trace = Trace::open(&Input::from_bytes(DEMO, bytes), &Options::default()).unwrap();
    let info = crate::trace::info(&mut trace, false).unwrap();
    assert_eq!((trace.format(), info.requests), (Format::Spc, 20_000));
    assert!((info.mean_kib - 8.0).abs() < 0.1 && (info.write_percent - 40.0).abs() < 0.4, "{info:?}");
    assert!((info.footprint_mib - 64.0).abs() < 0.1 && (info.sequential_percent - 8.0).abs() < 0.2, "{info:?}");
}
