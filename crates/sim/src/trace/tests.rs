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
            "DiskRead, 1, p, 1, 2, 0x0, zz, 1, 0\n",
            "t:1:28: expected a hexadecimal size in bytes, found \"zz\"",
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
    // Flags beyond bit 0, or a device other than 0 with a fraction of a millisecond, are DiskSim's alone.
    for text in ["1.5 0 1 8 3\n", "1.5 2 1 8 1\n"] {
        assert_eq!(
            Trace::open(&Input::from_bytes("t", text.as_bytes()), &Options::default()).unwrap().format(),
            Format::Disksim
        );
    }
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
    let two = "fio version 2 iolog\nf add\nf open\nf write 0 4096\nf wait 150 0\nf sync 0 0\nf wait 50\nf trim 4096 8192\nf close\n";
    let three = "fio version 3 iolog\n0 f add\n3 f open\n10 f write 0 4096\n160 f datasync 0 0\n210 f trim 4096 8192\n300 f close\n";
    for text in [two, three] {
        let all = read(text, &Options::default());
        let seen: Vec<_> = all.iter().map(|r| (r.op, r.arrival.as_ps() / 1_000_000, r.offset, r.length)).collect();
        assert_eq!(seen, [(Op::Write, 0, 0, 4096), (Op::Flush, 150, 0, 0), (Op::Deallocate, 200, 4096, 8192)]);
    }
}

#[test]
fn blkparse_uses_queued_events_or_else_issued_ones() {
    let text = "  8,0    1        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n  8,0    1        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n  8,0    1        3     0.000002197   697  D   W 223490 + 8 [kjournald]\n  8,0    1        4     0.5   697  Q WFS 8 + 16 [a]\n  8,0    1        5     0.6   697  Q FWS [a]\n  8,0    1        6     0.7   697  Q  DS 64 + 1024 [a]\n  8,0    1        6     0.7   697  Q   N [a]\nCPU0 (sda):\n Reads Queued:           0,        0KiB\n\nTotal (sda):\n Reads Queued: 1\n";
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
            "Input file sda.blktrace.0 added\nInput file sda.blktrace.1 added\n  8,0    1        1     {at}.0   697  Q   W 64 + 8 [a]\nCPU0 (sda):\n \
             Reads Queued: 0, 0KiB\n\nThroughput (R/W): 0KiB/s / 4KiB/s\nEvents (sda): 1 entries\nSkips: 0 forward (0 -   0.0%)\n"
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
    assert_eq!(all(&text), all(&gz.finish().unwrap()));
    assert_eq!(all(&text), all(&zst));
    // Cut in the middle, both say so.
    let cut = Trace::open(&Input::from_bytes("t", &zst[..zst.len() / 2]), &Options::default());
    assert!(cut.is_err());
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
        exhaust(&bytes, &Options { format, skip_bad, scan, compact, device: None });
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
        fields in proptest::collection::vec("[0-9]{1,22}|0x[0-9a-f]{1,17}|[0-9]{1,22}\\.[0-9]{0,30}|R|W|Read|Write|1e[0-9]{1,3}", 3..9),
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
