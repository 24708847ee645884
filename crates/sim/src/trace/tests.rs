use super::convert::{OutputFormat, convert};
use super::*;
use crate::workload::{Synth, SynthSpec};
use proptest::prelude::*;

/// A line that is bad, and the message it has to give.
fn error_of(format: Format, text: &str) -> String {
    let options = Options { format: Some(format), ..Options::default() };
    match Trace::open(&Input::from_bytes("t", text.as_bytes()), &options) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{format} accepts {text:?}"),
    }
}

fn read(text: &str, options: &Options) -> Vec<Request> {
    let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), options).unwrap();
    std::iter::from_fn(|| trace.next()).map(|request| request.unwrap()).collect()
}

#[test]
fn a_bad_line_names_file_line_column_and_what_was_expected() {
    for (format, text, message) in [
        (Format::Spc, "0,1,512,w,0.0\n0,1,512,x,0.0\n", "t:2:9: expected R or W, found \"x\""),
        (Format::Spc, "0,1,512\n", "t:1:8: expected R or W, found the end of the line"),
        (Format::Spc, "0,1,0,w,0\n", "t:1:5: expected a size above zero, found \"0\""),
        (
            Format::Spc,
            "0,99999999999999999999,512,w,0\n",
            "t:1:3: expected a number below 2^64, found \"99999999999999999999\"",
        ),
        (Format::Msr, "1,h,0,Red,0,512,1\n", "t:1:7: expected Read or Write, found \"Red\""),
        (
            Format::Etw,
            "DiskRead, 1, p ( 1), 1, 0x2, 0x0, zz, 1, 0\n",
            "t:1:35: expected a hexadecimal size in bytes, found \"zz\"",
        ),
        (
            Format::Etw,
            "DiskRead, 1, a, b, 1, 0x2, 0x0, 0x200, 1, 0\n",
            "t:1:14: expected a process and its number, as in name ( 12), found \"a\"",
        ),
        // Columns that have slipped.
        (
            Format::Etw,
            "DiskRead, 1, a ( 1), b, 0x2, 0x0, 0x200, 1, 0\n",
            "t:1:22: expected a thread, which is a number, found \"b\"",
        ),
        (Format::Replayer, "0.5 1 8 8 0\n", "t:1:7: expected an offset in bytes, a multiple of 512, found \"8\""),
        (
            Format::Biosnoop,
            "0.5 a 1 sda W 8 4096 0.1\n",
            "t:1:1: expected biosnoop's heading: TIME(s) COMM PID DISK T SECTOR BYTES, found \"0.5\"",
        ),
        (
            Format::Ftrace,
            "a-1 [0] d. 1.5: block_rq_issue: 8,0 WS 4096 () x + 8 [a]\n",
            "t:1:48: expected a sector, found \"x\"",
        ),
        (Format::Disksim, "1.5 0 1 8 q\n", "t:1:11: expected flags (hexadecimal), found \"q\""),
        (Format::Mqsim, "1.5 0 1 8 0\n", "t:1:1: expected an arrival in whole nanoseconds, found \"1.5\""),
        (Format::Ssdsim, "1 0 1 8 2\n", "t:1:9: expected 0 (write) or 1 (read), found \"2\""),
        (Format::Mqsim64, "1 0 1 8 0 7\n", "t:1:11: expected the end of the line, found \"7\""),
        (Format::Flashsim, "1.0\t3\t1\t8\t0\n", "t:1:5: expected device 0, found \"3\""),
        (
            Format::Flashnet,
            "0.0,1,1,4096,0,0.1\n",
            "t:1:19: expected a replayed size in bytes, found the end of the line",
        ),
        (Format::Wiscsee, "1 D erase 0 4096 0.0 0 False\n", "t:1:5: expected read, write or discard, found \"erase\""),
        (Format::Blkparse, "8,0 0 1 0.0 1 Q W x + 8 [a]\n", "t:1:19: expected a sector, found \"x\""),
        (
            Format::Fio,
            "fio version 9\n",
            "t:1:1: expected \"fio version 2 iolog\" or \"fio version 3 iolog\", found \"fio version 9\"",
        ),
        (
            Format::Fio,
            "fio version 3 iolog\n5 f wait 7\n",
            "t:2:5: expected an action: add, open, close, read, write, sync, datasync or trim, found \"wait\"",
        ),
        (Format::Systor17, "1.0,0.1,X,0,0,512\n", "t:1:9: expected R or W, found \"X\""),
        (Format::Tencent, "1,0,8,2,9\n", "t:1:7: expected 0 (read) or 1 (write), found \"2\""),
        (Format::Alibaba, "1,R,0,4096,-3\n", "t:1:12: expected a time stamp in microseconds, found \"-3\""),
        (Format::Vscsi, "short", "t: at byte 0: expected a record of 32 bytes, found 5 bytes"),
        (Format::Spc, "", "t: the trace holds no request"),
        (Format::Spc, "\n \n\r\n", "t: the trace holds no request"),
        (
            Format::Spc,
            "0,36028797018963968,512,r,0\n",
            "t:1:3: expected an address below 2^64 bytes, found \"36028797018963968\"",
        ),
        (
            Format::Spc,
            "0,18014398509481984,512,r,0\n",
            "t:1:3: expected an address that ends below 2^63 bytes, found \"18014398509481984\"",
        ),
    ] {
        assert_eq!(error_of(format, text), message);
    }
}

#[test]
fn a_stamp_213_days_after_the_first_is_refused_where_it_stands() {
    let text = "0,1,512,w,0.0\n0,1,512,w,99999999.0\n";
    let message = "t:2:11: expected a time stamp within 213 days of the first, found one 1157 days later";
    assert_eq!(error_of(Format::Spc, text), message);
    let options = Options { scan: false, ..Options::default() };
    let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &options).unwrap();
    assert_eq!(trace.place(), None);
    assert!(trace.next().unwrap().is_ok());
    assert_eq!(trace.place().unwrap(), "t:1");
    assert_eq!(trace.next().unwrap().unwrap_err().to_string(), message);
    assert!(trace.next().is_none());
}

/// Everything behind a first line with a wrong stamp was skipped, or arrived at once.
#[test]
fn a_wrong_stamp_is_skipped_wherever_it_stands() {
    let good = |i: u64| format!("{},h,0,Write,{},512,1\n", 128_166_385_295_514_663 + 10_000 * i, i * 4_096);
    for (wrong, at) in [("1", 0), ("1", 1), ("1", 3), ("999999999999999999", 0), ("999999999999999999", 1)] {
        let mut all: Vec<String> = (0..4).map(good).collect();
        all.insert(at, format!("{wrong},h,0,Write,4096,512,1\n"));
        let text = all.concat();
        for scan in [true, false] {
            let options = Options { skip_bad: true, scan, ..Options::default() };
            let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &options).unwrap();
            let found: Vec<Request> = std::iter::from_fn(|| trace.next()).map(|request| request.unwrap()).collect();
            let times: Vec<u64> = found.iter().map(|request| request.arrival.as_ps() / 1_000_000_000).collect();
            if scan {
                assert_eq!((times, trace.skipped(), trace.reordered()), (vec![0, 1, 2, 3], 1, 0), "{wrong} at {at}");
            } else {
                // A pipe cannot be read again: where one of the first two is wrong, both have been given by then.
                assert!(
                    times.is_sorted() && times.len() >= 4 && times.last() >= Some(&2),
                    "{wrong} at {at}: {times:?}"
                );
            }
        }
    }
}

#[test]
fn a_very_long_line_is_refused_and_can_be_skipped() {
    let text = format!("0,1,512,w,0.0\n{}\n0,2,512,w,0.0\n", "x".repeat(200_000));
    let options = Options { format: Some(Format::Spc), ..Options::default() };
    assert_eq!(error_of(Format::Spc, &text), "t:2:1: expected a line of less than 64 KiB, found a longer one");
    assert_eq!(read(&text, &Options { skip_bad: true, ..options }).len(), 2);
}

#[test]
fn bad_lines_are_counted_when_they_may_be() {
    let text = "0,1,512,w,0.0\ngarbage\n0,2,512,r,1.0\n0,3,512\n";
    let options = Options { skip_bad: true, ..Options::default() };
    let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &options).unwrap();
    let info = info(&mut trace, false).unwrap();
    assert_eq!((info.requests, info.skipped, trace.skipped(), trace.expected_requests()), (2, 2, 2, Some(2)));
    let options = Options { skip_bad: true, format: Some(Format::Msr), ..Options::default() };
    let error = Trace::open(&Input::from_bytes("t", text.as_bytes()), &options).err().unwrap().to_string();
    assert_eq!(error, "t: the trace holds no request; 4 malformed lines were skipped");
}

#[test]
fn formats_that_differ_in_units_only_have_to_be_named() {
    let refuse = |text: &str| match Trace::open(&Input::from_bytes("t", text.as_bytes()), &Options::default()) {
        Err(SourceError::Ambiguous { candidates, .. }) => candidates,
        Err(other) => panic!("{other}"),
        Ok(trace) => panic!("taken for {}", trace.format()),
    };
    assert_eq!(refuse("938513000 4 264719034 16 0\n"), ["disksim", "mqsim", "mqsim64", "ssdsim"]);
    assert_eq!(refuse("0 0 264719034 16 0\n"), ["disksim", "mqsim", "mqsim64", "ssdsim", "flashsim"]);
    assert_eq!(refuse("26.214000\t0\t303574\t1\t0\n"), ["disksim", "flashsim"]);
    // A fraction of a millisecond with a device other than 0, or other flags, are no proof either: other recorders
    // write them too.
    assert_eq!(refuse("1.5 2 1 8 1\n"), ["disksim"]);
    assert_eq!(refuse("1.5 0 1 8 3\n"), ["disksim"]);
    // Bytes, taken for DiskSim's blocks before.
    assert_eq!(refuse("0.034 1 1048576 4096 1\n1.934 1 8192 65536 0\n3.101 2 65536 8192 1\n"), ["disksim", "replayer"]);
    // Five numbers with commas, in which a digit may mean one thing or the other.
    assert_eq!(refuse("1538323200,4247200,128,1,1058\n"), ["tencent"]);
}

#[test]
fn numbers_alone_are_refused_with_the_ways_to_name_them() {
    let input = Input::from_bytes("t", b"0.034 1 1048576 4096 1\n");
    let error = Trace::open(&input, &Options::default()).err().unwrap().to_string();
    assert!(error.contains("--format: disksim, replayer") && error.contains("--columns"), "{error}");
}

#[test]
fn what_is_no_trace_is_said_to_be_none() {
    let error =
        |bytes: &[u8]| Trace::open(&Input::from_bytes("t", bytes), &Options::default()).err().unwrap().to_string();
    assert!(error(b"hello, world\n").starts_with("t: not a trace in a known format (found \"hello, world\")"));
    assert!(error(&[0x93, 1, 2, 0xff, 0, 7]).contains("found binary data"));
    assert_eq!(error(b""), "t: the trace holds no request");
    assert_eq!(error(b"\n\n"), "t: the trace holds no request");
    let missing = Trace::open(&Input::from_argument("/no/such/file"), &Options::default()).err().unwrap();
    assert!(missing.to_string().starts_with("/no/such/file: "));
    assert!(Trace::open(&Input::from_argument("/tmp"), &Options::default()).is_err());
}

#[test]
fn arrivals_start_at_zero_and_never_decrease() {
    let text = "0,1,512,w,5.0\n0,2,512,w,7.0\n0,3,512,w,6.0\n0,4,512,w,4.0\n0,5,512,w,8.0\n";
    let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &Options::default()).unwrap();
    let arrivals: Vec<u64> =
        std::iter::from_fn(|| trace.next()).map(|r| r.unwrap().arrival.as_ps() / 1_000_000_000_000).collect();
    assert_eq!(arrivals, [0, 2, 2, 2, 3]);
    assert_eq!(trace.reordered(), 2);
}

#[test]
fn address_spaces_follow_each_other_and_one_can_be_chosen() {
    let text = "1,0,512,w,0.0\n0,2048,1048576,w,0.0\n1,1,512,w,0.0\n";
    let offsets: Vec<u64> = read(text, &Options::default()).iter().map(|r| r.offset).collect();
    assert_eq!(offsets, [2 << 20, 1 << 20, (2 << 20) + 512]);
    let one = Options { device: Some("1".into()), ..Options::default() };
    assert_eq!(read(text, &one).iter().map(|r| r.offset).collect::<Vec<_>>(), [0, 512]);
    let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &one).unwrap();
    assert_eq!((trace.extent(), trace.expected_requests()), (Some(1024), Some(2)));
    assert_eq!(info(&mut trace, false).unwrap().sequential_percent, 50.0);
    let none = Options { device: Some("7".into()), ..Options::default() };
    let error = Trace::open(&Input::from_bytes("t", text.as_bytes()), &none).err().unwrap().to_string();
    assert_eq!(error, "t: no request for device \"7\"; the trace has 0, 1");
    let compact = Options { compact: true, ..Options::default() };
    assert_eq!(read(text, &compact).iter().map(|r| r.offset).collect::<Vec<_>>(), [1 << 20, 0, (1 << 20) + 512]);
    let unscanned = Options { scan: false, ..Options::default() };
    assert_eq!(read(text, &unscanned).iter().map(|r| r.offset).collect::<Vec<_>>(), [0, SLOT_BYTES + (1 << 20), 512]);
}

#[test]
fn msr_volumes_are_named_by_host_and_disk() {
    let text = "10,hm,0,Write,0,512,1\n20,hm,1,Read,0,512,1\n30,usr,0,Read,0,512,1\n";
    let options = Options { device: Some("hm_1".into()), ..Options::default() };
    assert_eq!(read(text, &options).len(), 1);
    let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &Options::default()).unwrap();
    let info = info(&mut trace, false).unwrap();
    let busiest: Vec<(&str, u64, f64)> =
        info.busiest.iter().map(|device| (device.name.as_str(), device.requests, device.write_percent)).collect();
    assert_eq!((info.devices, busiest), (3, vec![("hm_0", 1, 100.0), ("hm_1", 1, 0.0), ("usr_0", 1, 0.0)]));
    assert!(info.busiest.iter().all(|device| device.mean_kib == 0.5 && device.footprint_mib == 4.0 / 1024.0));
}

#[test]
fn of_many_devices_the_busiest_are_told() {
    let order: Vec<u64> = (0..30u64).flat_map(|device| (0..=device % 20).map(move |_| device)).collect();
    let text: String = order.iter().enumerate().map(|(at, device)| format!("{at} {device} {} 8 1\n", at * 8)).collect();
    let options = Options { format: Some(Format::Mqsim), ..Options::default() };
    let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &options).unwrap();
    let info = info(&mut trace, false).unwrap();
    let requests: Vec<u64> = info.busiest.iter().map(|device| device.requests).collect();
    assert_eq!((info.devices, requests), (30, vec![20, 19, 18, 17, 16, 15, 14, 13, 12, 11]));
    assert_eq!(info.busiest[0].name, "19");
}

#[test]
fn fio_logs_have_waits_or_stamps_syncs_and_trims() {
    let two = "fio version 2 iolog\nf add\nf open\nf write 0 4096\nf wait 150 0\nf sync 0 0\nf wait 50\nf trim 4096 \
               8192\nf close\n";
    let three = "fio version 3 iolog\n0 f add\n3 f open\n10 f write 0 4096\n160 f datasync 0 0\n210 f trim 4096 8192\n\
                 300 f close\n";
    for text in [two, three] {
        let all = read(text, &Options::default());
        let seen: Vec<_> = all.iter().map(|r| (r.op, r.arrival.as_ps() / 1_000_000, r.offset, r.length)).collect();
        assert_eq!(seen, [(Op::Write, 0, 0, 4096), (Op::Flush, 150, 0, 0), (Op::Deallocate, 200, 4096, 8192)]);
    }
}

#[test]
fn blkparse_uses_queued_events_or_else_issued_ones() {
    let text = "  8,0    1        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n  8,0    1        2     \
                0.000001829   697  G   W 223490 + 8 [kjournald]\n  8,0    1        3     0.000002197   697  D   W \
                223490 + 8 [kjournald]\n  8,0    1        4     0.5   697  Q WFS 8 + 16 [a]\n  8,0    1        5     \
                0.6   697  Q FWS [a]\n  8,0    1        6     0.7   697  Q  DS 64 + 1024 [a]\n  8,0    1        6     \
                0.7   697  Q   N [a]\nCPU0 (sda):\n Reads Queued:           0,        0KiB\n\nTotal (sda):\n Reads \
                Queued: 1\n";
    let all = read(text, &Options::default());
    let seen: Vec<_> = all.iter().map(|r| (r.op, r.offset / 512, r.length / 512, r.fua)).collect();
    assert_eq!(
        seen,
        [
            (Op::Write, 223490, 8, false),
            (Op::Write, 8, 16, true),
            (Op::Flush, 0, 0, false),
            (Op::Deallocate, 64, 1024, false)
        ]
    );
    let issued: String = text.lines().filter(|l| !l.contains(" Q ")).map(|l| format!("{l}\n")).collect();
    assert_eq!(read(&issued, &Options::default()).len(), 1);
}

#[test]
fn all_that_blkparse_prints_is_read_and_so_are_several_outputs_in_one() {
    let output = |at: u64| {
        format!(
            "Input file sda.blktrace.0 added\nInput file sda.blktrace.1 added\n  8,0    1        1     {at}.0   697  \
             Q   W 64 + 8 [a]\nCPU0 (sda):\n Reads Queued: 0, 0KiB\n\nThroughput (R/W): 0KiB/s / 4KiB/s\nEvents (sda): \
             1 entries\nSkips: 0 forward (0 -   0.0%)\n"
        )
    };
    let all = read(&(output(0) + &output(5)), &Options::default());
    assert_eq!(all.iter().map(|r| r.arrival.as_secs_f64()).collect::<Vec<_>>(), [0.0, 5.0]);
}

#[test]
fn times_of_statistics_are_what_the_trace_says() {
    let text = "fio version 3 iolog\n100 f write 0 512\n300 f read 512 512\n";
    let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &Options::default()).unwrap();
    let info = info(&mut trace, false).unwrap();
    assert_eq!((info.duration_seconds, info.mean_interarrival_ms), (0.0002, 0.2));
}

#[test]
fn a_name_close_to_a_format_is_suggested() {
    assert!("mqsmi".parse::<Format>().unwrap_err().contains("did you mean \"mqsim\"?"));
    assert_eq!("SPC".parse(), Ok(Format::Spc));
}

#[test]
fn gzip_and_zstd_read_like_plain_text() {
    let mut text = Vec::new();
    let spec = SynthSpec { requests: 2_000, footprint_mib: 4.0, ..SynthSpec::default() };
    convert(&mut Synth::new(&spec).unwrap(), &mut text, OutputFormat::Spc, "").unwrap();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, &text).unwrap();
    let zst = zstd::encode_all(&text[..], 3).unwrap();
    let all = |bytes: &[u8]| {
        let mut trace = Trace::open(&Input::from_bytes("t", bytes), &Options::default()).unwrap();
        std::iter::from_fn(|| trace.next()).map(|r| r.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(all(&text).len(), 2_000);
    let gz = gz.finish().unwrap();
    assert_eq!(all(&text), all(&gz));
    assert_eq!(all(&text), all(&zst));
    // Cut in the middle: how far it goes is said, and what is there can be used.
    let cut = Input::from_bytes("t", &gz[..gz.len() / 2]);
    let error = Trace::open(&cut, &Options::default()).err().unwrap().to_string();
    assert!(
        error.starts_with("t: the compressed data ends early, after ") && error.ends_with(" whole lines"),
        "{error}"
    );
    let lines: usize = error.split(' ').nth_back(2).unwrap().replace(',', "").parse().unwrap();
    let options = Options { skip_bad: true, ..Options::default() };
    let mut trace = Trace::open(&cut, &options).unwrap();
    let info = info(&mut trace, false).unwrap();
    assert_eq!((info.requests, info.skipped), (lines as u64, 0));
    assert_eq!(info.cut_short, Some(format!("the compressed data ends early, after line {lines}")));
    let piped = Options { scan: false, ..options };
    let mut trace = Trace::open(&cut, &piped).unwrap();
    assert_eq!(std::iter::from_fn(|| trace.next()).count(), lines);
    assert!(trace.cut_short().is_some());
}

#[test]
fn a_process_with_a_comma_in_its_name_moves_no_column() {
    let text = "BeginHeader\n DiskRead, TimeStamp, Process Name ( PID)\nEndHeader\n \
                DiskRead, 1000, index (  12), 34, 0x8b2f1a10, 0x0010000000, 0x00001000, 200, 0, 0x06, 200\n\
                DiskWrite, 2000, Backup, (x86), v2.exe (  13), 35, 0x8b2f1a20, 0x10001000, 0x00001000, 210, 0, 0x06, \
                1\n";
    let seen: Vec<_> = read(text, &Options::default()).iter().map(|r| (r.op, r.offset, r.length)).collect();
    assert_eq!(seen, [(Op::Read, 0x1000_0000, 4_096), (Op::Write, 0x1000_1000, 4_096)]);
}

#[test]
fn comments_and_headings_are_passed_over_in_every_text() {
    for &(name, format, bytes) in samples::FORMATS {
        if format == Format::Vscsi {
            continue;
        }
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.insert(0, "# recorded by hand");
        lines.insert(0, "");
        lines.insert(lines.len() / 2, "  # a pause");
        let own_heading = ["fio", "etw", "blkparse", "biosnoop", "ftrace", "systor17"];
        if !own_heading.iter().any(|format| name.contains(format)) {
            lines.insert(2, "device_id,opcode, offset length,timestamp");
        }
        let options = Options { format: Some(format), ..Options::default() };
        let count = |text: &str, options: &Options| read(text, options).len();
        let commented = lines.join("\n");
        assert_eq!(count(&commented, &options), count(&text, &options), "{name}");
        if !format.is_bare() {
            assert_eq!(count(&commented, &Options::default()), count(&text, &options), "{name}");
        }
    }
    // Two headings are one too many, and a number is no name.
    let heading = "0,0,512,a,0.0\n";
    assert!(
        Trace::open(
            &Input::from_bytes("t", heading.as_bytes()),
            &Options { format: Some(Format::Spc), ..Options::default() }
        )
        .is_err()
    );
    let twice = "a,b,c,d,e\na,b,c,d,f\n0,0,512,w,0.0\n";
    assert!(error_of(Format::Spc, twice).starts_with("t:2:1: "), "{}", error_of(Format::Spc, twice));
}

#[test]
fn wide_text_is_read_as_any_other() {
    let text =
        "128166372003061629,hm,0,Read,383496192,32768,413\r\n128166372016382155,hm,0,Write,2822144,65536,327\r\n";
    let wide: Vec<u8> = std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let mut trace = Trace::open(&Input::from_bytes("t", &wide), &Options::default()).unwrap();
    assert_eq!((trace.format(), trace.expected_requests()), (Format::Msr, Some(2)));
    assert_eq!(trace.next().unwrap().unwrap().offset, 383_496_192);
}

#[test]
fn commands_that_pass_through_are_no_requests() {
    let text = "  8,0 1 1 0.000000000 4022 Q R 36 (12 01 83 00 24 00 ..) [scsi_id]\n\
                  8,0 1 4 0.000210000    0 C R (12 01 83 00 24 00 ..) [0]\n\
                  8,0 1 5 0.001000000  611 Q WS 64 + 8 [dbwriter]\n\
                  8,0 1 7 0.001900000    0 C WS 64 + 8 [0]\n\
                  8,0 1 8 0.002000000  611 Q R 128 + 16 [dbwriter]\n\
                  8,0 1 9 0.002900000    0 C R 128 + 16 [0]\n";
    let seen = |text: &str| read(text, &Options::default()).iter().map(|r| (r.op, r.offset / 512)).collect::<Vec<_>>();
    assert_eq!(seen(text), [(Op::Write, 64), (Op::Read, 128)]);
    // Of completions alone, these are the requests.
    let completions: String =
        text.lines().filter(|line| line.contains(" C ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(seen(&completions), [(Op::Write, 64), (Op::Read, 128)]);
}

#[test]
fn block_events_of_ftrace_and_perf_are_read() {
    let ftrace = "# tracer: nop\n#\n#   TASK-PID CPU# ||||| TIMESTAMP  FUNCTION\n\
                  kworker/4 H-12 [001] d..1. 1234.567890: block_rq_issue: 259,0 WS 4096 () 81920 + 8 [kworker/4 H]\n\
                  a-3012 [001] d..1. 1234.567891: block_rq_issue: 8,0 R 36 (12 01 83 00) 0 + 0 [scsi_id]\n\
                  a-3012 [001] d..1. 1234.567892: block_rq_complete: 259,0 WS () 81920 + 8 [0]\n\
                  a-3012 [001] d..1. 1234.567893: sched_switch: prev_comm=a ==> next_comm=b\n\
                  a-3012 [001] d..1. 1234.568890: block_rq_issue: 259,0 RF 16384 () 2048 + 32 none,0,0 [dbwriter]\n\
                  a-3012 [001] d..1. 1234.568891: block_rq_issue: 259,0 FF 0 () 0 + 0 [dbwriter]\n";
    let seen = |text: &str| {
        let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &Options::default()).unwrap();
        assert_eq!(trace.format(), Format::Ftrace);
        let all: Vec<Request> = std::iter::from_fn(|| trace.next()).map(|r| r.unwrap()).collect();
        all.iter().map(|r| (r.op, r.offset / 512, r.length / 512, r.arrival.as_ps() / 1_000_000)).collect::<Vec<_>>()
    };
    let wanted = [(Op::Write, 81_920, 8, 0), (Op::Read, 2_048, 32, 1_000), (Op::Flush, 0, 0, 1_001)];
    assert_eq!(seen(ftrace), wanted);
    let perf =
        ftrace.replace("block_rq_issue:", "block:block_rq_issue:").replace("a-3012 [001] d..1.", "a  3012 [001]");
    assert_eq!(seen(&perf), wanted);
    let queued = "fio 7 [000] 5.000001: block:block_bio_queue: 8,16 W 64 + 8 [fio]\n\
                  fio 7 [000] 5.000002: block:block_rq_issue: 8,16 W 4096 () 64 + 8 [fio]\n";
    assert_eq!(seen(queued), [(Op::Write, 64, 8, 0)]);
    let completed = "fio-7 [000] d.. 5.000001: block_rq_complete: 8,16 W () 64 + 8 [0]\n";
    assert_eq!(seen(completed), [(Op::Write, 64, 8, 0)]);
}

/// The first line of every `trace-cmd report`, CPUs without events and lost events were malformed lines. A time that
/// touches its CPU was a trace in no known format.
#[test]
fn lines_of_ftrace_that_are_no_events_are_passed_over() {
    let event =
        |sector: u64| format!(" fio-7 [000] 1819.{sector:06}: block_rq_issue: 259,0 R 4096 () {sector} + 8 [fio]\n");
    let (one, other) = (event(8), event(16));
    let around = "version = 6\nCPU 2 is empty\ncpus=4\n";
    let between = "CPU:0 [LOST 123 EVENTS]\nCPU:11 [EVENTS DROPPED]\nCPU:3 [7 EVENTS DROPPED]\n\
                   => submit_bio\n => __submit_bio (ffffffffa1b2c3d4)\n\
                   \tffffffff8147b1a0 submit_bio+0x10 ([kernel.kallsyms])\n\
                   fio-7 [000] 1819.000012: kernel_stack: <stack trace >\n";
    let text = format!("{around}{one}{between}{other}");
    for text in [text.clone(), text.replace("[000] ", "[000]")] {
        let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &Options::default()).unwrap();
        assert_eq!(trace.format(), Format::Ftrace);
        let offsets: Vec<u64> = std::iter::from_fn(|| trace.next()).map(|r| r.unwrap().offset).collect();
        assert_eq!(offsets, [4_096, 8_192]);
    }
    // What is cut short or of another kind stays malformed.
    for bad in ["fio-7 [000] 1819.5", "cpus=x", "CPU x is empty", "CPU:1 [LOST]", "8,0 R 8 + 8"] {
        let error = error_of(Format::Ftrace, &format!("{one}{bad}\n"));
        assert!(error.starts_with("t:2:"), "{error}");
    }
}

/// Files that were put together have their headings in the middle, too.
#[test]
fn headings_of_files_that_were_put_together_are_passed_over() {
    for &(name, format, bytes) in samples::FORMATS {
        if format == Format::Vscsi || format == Format::Blkparse {
            continue;
        }
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let heading = "device_id,opcode, offset length,timestamp\n";
        let own = [Format::Fio, Format::Etw, Format::Biosnoop, Format::Ftrace, Format::Systor17].contains(&format);
        let text = if own { text } else { format!("{heading}{text}") };
        let options = Options { format: Some(format), ..Options::default() };
        let count = |text: &str| read(text, &options).len();
        assert_eq!(count(&format!("{text}{text}")), 2 * count(&text), "{name}");
    }
    let table = "Tracing block device I/O... Hit Ctrl-C to end.\n\
                 TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n0.1 a 7 sda R 8 4096 0.2\n^C\n";
    assert_eq!(read(table, &Options { format: Some(Format::Biosnoop), ..Options::default() }).len(), 1);
}

#[test]
fn biosnoop_is_read_by_its_heading() {
    for (more, last) in [("LAT(ms)", "0.21"), ("QUE(ms) LAT(ms)", "0.01 0.21")] {
        let text = format!(
            "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  {more}\n\
             0.000000    dbwriter       4311    nvme0n1   W 2048       8192   {last}\n\
             0.004100    my writer 2    912     nvme0n1   W 113638304  425984 {last}\n\
             0.005200    jbd2/nvme0n1-8 422     sda       RA 4565264   331776 {last}\n"
        );
        let mut trace = Trace::open(&Input::from_bytes("t", text.as_bytes()), &Options::default()).unwrap();
        assert_eq!((trace.format(), trace.devices()), (Format::Biosnoop, 2));
        let info = info(&mut trace, false).unwrap();
        assert_eq!((info.requests, info.read_bytes, info.written_bytes), (3, 331_776, 434_176));
    }
}

/// Reads to the end whatever it is; only a panic or a hang would fail.
fn exhaust(bytes: &[u8], options: &Options) {
    if let Ok(mut trace) = Trace::open(&Input::from_bytes("t", bytes), options) {
        let _ = info(&mut trace, false);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        format in 0..Format::ALL.len(),
        skip_bad: bool,
        scan: bool,
        compact: bool,
    ) {
        let format = Some(Format::ALL[format]);
        exhaust(&bytes, &Options { format, skip_bad, scan, compact, ..Options::default() });
        exhaust(&bytes, &Options { skip_bad, scan, compact, ..Options::default() });
    }

    #[test]
    fn any_change_of_a_sample_is_read_or_refused(
        sample in 0..samples::SAMPLES.len(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..8),
        length in any::<usize>(),
        skip_bad: bool,
        scan: bool,
    ) {
        let (_, format, bytes) = samples::FORMATS[sample % samples::FORMATS.len()];
        let mut bytes = bytes.to_vec();
        bytes.truncate(length % (2 * bytes.len()) + 1);
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        exhaust(&bytes, &Options { format: Some(format), skip_bad, scan, ..Options::default() });
        exhaust(&bytes, &Options { skip_bad, scan, ..Options::default() });
    }

    #[test]
    fn any_number_in_a_line_is_read_or_refused(
        fields in proptest::collection::vec(
            "[0-9]{1,22}|0x[0-9a-f]{1,17}|[0-9]{1,22}\\.[0-9]{0,30}|R|W|Read|Write|1e[0-9]{1,3}",
            3..9,
        ),
        format in 0..Format::ALL.len(),
        comma: bool,
        compact: bool,
    ) {
        let line = fields.join(if comma { "," } else { " " });
        let text = format!("{line}\n{line}\n");
        let format = Some(Format::ALL[format]);
        exhaust(text.as_bytes(), &Options { format, compact, ..Options::default() });
    }
}
