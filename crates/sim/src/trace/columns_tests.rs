use std::sync::Arc;

use super::*;
use crate::request::{Request, Source};
use crate::trace::{Format, Input, Options, Trace, info};
use proptest::prelude::*;

fn options(columns: &str) -> Options {
    Options { columns: Some(Arc::new(columns.parse().unwrap())), ..Options::default() }
}

fn open(columns: &str, text: &str) -> Result<Trace, String> {
    Trace::open(&Input::from_bytes("t", text.as_bytes()), &options(columns)).map_err(|error| error.to_string())
}

fn read(columns: &str, text: &str) -> Vec<(Op, u64, u64, u64)> {
    let mut trace = open(columns, text).unwrap();
    let all: Vec<Request> = std::iter::from_fn(|| trace.next()).map(|request| request.unwrap()).collect();
    all.iter().map(|r| (r.op, r.offset, r.length, r.arrival.as_ps() / 1_000)).collect()
}

/// The example of each recorder in `docs/reference/traces.md`, as the page has it.
fn documented(recorder: &str) -> String {
    let page = include_str!("../../../../docs/reference/traces.md");
    let row = page.lines().find(|line| line.starts_with(&format!("| {recorder} |"))).unwrap();
    let columns = row.split('|').nth(2).unwrap();
    columns.trim().trim_matches('`').to_owned()
}

#[test]
fn what_other_recorders_print_is_read_by_the_columns_of_the_reference() {
    let events = "dbwriter-3012 [001] d..1. 1234.567890: block_rq_issue: 259,0 WS 4096 () 81920 + 8 [dbwriter]\n\
                  dbwriter-3012 [001] d..1. 1234.568890: block_rq_issue: 259,0 R 16384 () 2048 + 32 [dbwriter]\n";
    let of_events = [(Op::Write, 81_920 * 512, 4_096, 0), (Op::Read, 2_048 * 512, 16_384, 1_000_000)];
    assert_eq!(read(&documented("ftrace"), &format!("# tracer: nop\n#\n{events}")), of_events);
    let perf = events.replace("dbwriter-3012 [001] d..1.", "dbwriter 3012 [001]").replace("block_rq", "block:block_rq");
    assert_eq!(read(&documented("perf script"), &perf), of_events);

    let biosnoop = "TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)\n\
                    0.000000    dbwriter       4311    nvme0n1   W 2048       8192      0.21\n\
                    0.004100    kworker/u16:4  912     nvme0n1   R 113638304  425984    5.49\n";
    let of_biosnoop = [(Op::Write, 1_048_576, 8_192, 0), (Op::Read, 113_638_304 * 512, 425_984, 4_100_000)];
    assert_eq!(read(&documented("biosnoop"), biosnoop), of_biosnoop);

    let iosnoop = "Tracing block I/O. Ctrl-C to end.\n\
                   STARTs          ENDs            COMM         PID    TYPE DEV      BLOCK        BYTES     LATms\n\
                   5982800.302061  5982800.302679  supervise    1809   W    202,1    17039600     4096       0.62\n\
                   5982800.302423  5982800.302842  supervise    1809   RM   202,1    17039608     8192       0.42\n";
    let (_, iosnoop) = iosnoop.split_once('\n').unwrap();
    let of_iosnoop = [(Op::Write, 17_039_600 * 512, 4_096, 0), (Op::Read, 17_039_608 * 512, 8_192, 362_000)];
    assert_eq!(read(&documented("iosnoop -s"), iosnoop), of_iosnoop);

    let simplessd = "1 0 48 W\n200 80 8 W\n15000 80 8 R\n";
    let of_simplessd =
        [(Op::Write, 0, 24_576, 0), (Op::Write, 40_960, 4_096, 199_000), (Op::Read, 40_960, 4_096, 14_999_000)];
    assert_eq!(read(&documented("SimpleSSD"), simplessd), of_simplessd);
}

#[test]
fn units_and_separators_are_what_the_names_and_the_text_say() {
    for (columns, text) in [
        ("time_us,op,offset,bytes,device", "10,R,8192,4096,sda\n15,W,0,8192,sda\n"),
        ("time_ms,op,sector,sectors,device", "0.010\tread\t16\t8\tsda\n0.015\twrite\t0\t16\tsda\n"),
        ("time_s,op,lba,blocks", "1e-5;RA;16;8\n1.5e-5;WS;0;16\n"),
        ("time_ns,op_1w,lba_4k,blocks_4k", "10000 0 2 1\n15000 1 0 2\n"),
        ("time_100ns,op_1r,offset,kib", "100, 1, 0x2000, 4\n150, 0, 0x0, 8\n"),
        (
            "_,time_us,_,op,offset,bytes",
            "\"a b\",\"10\",x,\"Read\",\"8192\",\"4096\",rest\n\"c\",15,y,Write,0,8192,rest\n",
        ),
        ("time_us,op,offset,bytes", "# a comment\n\ntime op offset bytes\n10 R 8192 4096\n15 W 0 8192\n"),
    ] {
        let wanted = [(Op::Read, 8_192, 4_096, 0), (Op::Write, 0, 8_192, 5_000)];
        assert_eq!(read(columns, text), wanted, "{columns}");
    }
    // A comma within a column separated by tabs is of it, and so is a blank.
    let tabs = "1\tmy, program\tR\t0\t512\n2\tother\tF\t0\t0\n3\tthird one\tD\t512\t512\n";
    let wanted = [(Op::Read, 0, 512, 0), (Op::Flush, 0, 0, 1_000), (Op::Deallocate, 512, 512, 2_000)];
    assert_eq!(read("time_us,_,op,offset,bytes", tabs), wanted);
    // Without a time all arrive at once; a device is an address space.
    let mut trace = open("op,offset,bytes,device", "R 0 512 a\nW 0 512 b\n").unwrap();
    let info = info(&mut trace, false).unwrap();
    assert_eq!((info.devices, info.duration_seconds, info.format), (2, 0.0, Some("columns")));
}

#[test]
fn a_line_that_does_not_fit_its_columns_is_refused() {
    let columns = "time_us,op,offset,bytes";
    for (text, message) in [
        ("1 R 0\n", "t:1:1: expected as many columns as --columns names, between tabs, commas, semicolons or blanks"),
        ("1 R 0 512\n2 R 0\n", "t:2:6: expected a size in bytes, found the end of the line"),
        ("1 my program R 0 512\n", "t:1:3: expected an operation such as R"),
        ("1 1 0 512\n", "(of digits, name the column op_1w or op_1r), found \"1\""),
        ("1 R 0 0\n", "t:1:7: expected a size above zero"),
        ("1 R 0 8g\n", "t:1:7: expected a size in bytes, found \"8g\""),
        ("x1 R 0 512\n", "t:1:1: expected a time in microseconds, found \"x1\""),
        ("1 R 0xffffffffffffffff 512\n", "ends below 2^63 bytes"),
    ] {
        let error = open(columns, text).err().unwrap_or_else(|| panic!("{text:?} is read"));
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn columns_are_refused_with_what_to_write_instead() {
    for (text, words) in [
        ("time_us,op,ofset,bytes", "there is no column \"ofset\"; did you mean \"offset\"?"),
        ("time_us,op,bytes", "a request needs a place: offset (bytes), sector"),
        ("op,offset", "a request needs a size: bytes, sectors"),
        ("time_us,offset,bytes", "a request needs an operation: op, op_1w (1 writes) or op_1r (1 reads)"),
        ("op,op_1w,offset,bytes", "\"op_1w\" is a second column for the operation"),
        ("op,offset,sector,bytes", "\"sector\" is a second column for the place"),
        ("", "there is no column \"\""),
    ] {
        let error = text.parse::<Columns>().unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let columns: Columns = " time_us, _,op ,lba_4k,kib,device".parse().unwrap();
    assert_eq!(columns.to_string(), "time_us,_,op,lba_4k,kib,device");
}

/// A file whose first line was exactly what `--columns` takes was a trace in no known format.
#[test]
fn a_heading_in_the_words_of_columns_is_taken_as_them() {
    let text =
        |sign: &str| ["time_us", "op", "offset", "bytes"].join(sign) + "\n" + &["5", "R", "0", "512"].join(sign) + "\n";
    for sign in [",", "\t", "  ", ";", " , "] {
        let bytes = format!("# recorded by hand\n{}", text(sign));
        let mut trace = Trace::open(&Input::from_bytes("t", bytes.as_bytes()), &Options::default()).unwrap();
        assert_eq!(trace.format(), Format::Columns, "{sign:?}");
        let read =
            |trace: &mut Trace| std::iter::from_fn(|| trace.next()).map(|r| r.unwrap().length).collect::<Vec<_>>();
        assert_eq!(read(&mut trace), [512]);
        assert!(trace.rewind().unwrap());
        assert_eq!(read(&mut trace), [512], "another pass");
    }
    // Words that are not of this vocabulary could mean anything.
    for other in ["time_us,op,offset,size", "time,op,offset,bytes", "time_us,op,offset", "op,sector,offset,bytes"] {
        let bytes = format!("{other}\n5,R,0,512\n");
        assert!(Trace::open(&Input::from_bytes("t", bytes.as_bytes()), &Options::default()).is_err(), "{other}");
    }
}

#[test]
fn words_of_a_trace_are_mapped_to_operations() {
    let columns = "time_us,op:getChunk*=read/+=write/R=skip/put=zeroes,offset,bytes";
    assert_eq!(columns.parse::<Columns>().unwrap().to_string(), columns);
    let text = "1 getChunkData 0 512\n2 + 512 512\n3 R 0 512\n4 write 0 512\n5 put 0 4096\n6 getChunk 9 512\n";
    let mut trace = open(columns, text).unwrap();
    let ops: Vec<Op> = std::iter::from_fn(|| trace.next()).map(|request| request.unwrap().op).collect();
    assert_eq!(ops, [Op::Read, Op::Write, Op::Write, Op::WriteZeroes, Op::Read]);
    for (text, words) in [
        ("op:,offset,bytes", "\"\" is no WORD=OPERATION"),
        ("op:get,offset,bytes", "\"get\" is no WORD=OPERATION"),
        ("op:get=reed,offset,bytes", "\"reed\" is no operation; choose one of read, write, trim"),
        ("op:=read,offset,bytes", "has no word before its ="),
        ("op:a=read,offset:b=write,bytes", "there is no column \"offset:b=write\""),
    ] {
        let error = text.parse::<Columns>().unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

proptest! {
    #[test]
    fn any_columns_are_read_or_refused(text in "[a-z0-9_, ]{0,60}|op:[a-z+*=/:]{0,40},offset,bytes") {
        let _ = text.parse::<Columns>();
    }

    #[test]
    fn any_text_is_read_or_refused_by_any_columns(
        kinds in proptest::collection::vec(0..NAMES.len(), 1..9),
        text in "([0-9]{1,20}|0x[0-9a-f]{1,17}|[RWDFN]{1,3}|[ ,;\t\n\"'.:x]){0,60}",
        skip_bad: bool,
    ) {
        let names: Vec<&str> = kinds.into_iter().map(|kind| NAMES[kind].0).collect();
        let Ok(columns) = names.join(",").parse::<Columns>() else { return Ok(()) };
        let options = Options { columns: Some(Arc::new(columns)), skip_bad, ..Options::default() };
        if let Ok(mut trace) = Trace::open(&Input::from_bytes("t", text.as_bytes()), &options) {
            let _ = info(&mut trace, false);
        }
    }
}
