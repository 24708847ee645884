//! Latencies of single commands on one die: sums of their parts, to the picosecond.

use super::drives::{bus_us, command_us, link_us, one_die, only_latency, request, serve, us};
use super::table::{Bound, Row, Section};
use tidewater_base::Instant;
use tidewater_core::ftl::Precondition::{Filled, Fresh};
use tidewater_core::profile::Profile;
use tidewater_sim::Pacing;
use tidewater_sim::workload::{Op, Request};

const UNIT: u64 = 4_096;
const PAGE: u64 = 16_384;

fn exact(what: &str, form: &str, expected: f64, measured: f64) -> Row {
    Row { what: what.into(), form: form.into(), expected, measured, unit: "us", bound: Bound::Exact }
}

/// Reads of `length` bytes at the start of every page row of one kind, one at a time.
fn read_us(profile: &Profile, kind: u64, kinds: u64, length: u64) -> f64 {
    let row = PAGE * u64::from(profile.nand.planes);
    let rows = (0..u64::from(profile.nand.pages_per_block)).filter(|row| row % kinds == kind);
    let reads = rows.map(|r| request(Op::Read, r * row, length));
    only_latency(&serve(profile, Filled(1.0), Pacing::Depth(1), reads).record, Op::Read)
}

fn write_us(profile: &Profile, length: u64) -> f64 {
    let writes = (0..200).map(|i| request(Op::Write, i * length, length));
    only_latency(&serve(profile, Fresh, Pacing::Depth(1), writes).record, Op::Write)
}

/// A read of one unit beyond the array: command, bus, link, completion.
fn read_path_us(profile: &Profile, bytes: u64) -> f64 {
    command_us(profile) + us(profile.nand.command_time) + bus_us(profile, bytes) + link_us(profile, bytes)
}

fn write_path_us(profile: &Profile, bytes: u64) -> f64 {
    // In the other order, and the same sum: link, command cycles, bus.
    read_path_us(profile, bytes)
}

pub fn section() -> Section {
    let mut rows = Vec::new();
    let read_form = "tCMD + tCA + tR + bus + link + tCQE";
    let slc = one_die(&["nand.cell=slc"]);
    rows.push(exact(
        "read of 4 KiB, SLC",
        read_form,
        read_path_us(&slc, UNIT) + us(slc.nand.read_time[0]),
        read_us(&slc, 0, 1, UNIT),
    ));
    let tlc = one_die(&[]);
    for (kind, name) in ["lower", "middle", "upper"].iter().enumerate() {
        rows.push(exact(
            &format!("read of 4 KiB, TLC {name} page"),
            read_form,
            read_path_us(&tlc, UNIT) + us(tlc.nand.read_time[kind]),
            read_us(&tlc, kind as u64, 3, UNIT),
        ));
    }
    let small = one_die(&["nand.cell=slc", "nand.page_size=4KiB", "nand.oob_size=468"]);
    rows.push(exact(
        "write of 4 KiB, SLC, 4 KiB pages",
        "tCMD + link + tCA + bus + tPROG + tCQE",
        write_path_us(&small, UNIT) + us(small.nand.program_time[0]),
        write_us(&small, UNIT),
    ));
    rows.push(exact(
        "the same, a row of 16 KiB not full",
        "as above, the row's bus, fill timeout",
        command_us(&slc)
            + link_us(&slc, UNIT)
            + us(slc.ftl.fill_timeout)
            + us(slc.nand.command_time)
            + bus_us(&slc, PAGE)
            + us(slc.nand.program_time[0]),
        write_us(&slc, UNIT),
    ));
    let buffered = one_die(&["buffer.write_policy=lru"]);
    let dram = buffered.memories.iter().find(|m| m.name == "dram").expect("generic has DRAM");
    rows.push(exact(
        "write of 4 KiB into the DRAM buffer",
        "tCMD + link + DRAM + tCQE",
        command_us(&buffered)
            + link_us(&buffered, UNIT)
            + UNIT as f64 / dram.bandwidth as f64 * 1e6
            + us(dram.write_latency),
        write_us(&buffered, UNIT),
    ));
    planes(&mut rows);
    suspension(&mut rows);
    Section { id: "latency", rows }
}

/// Four planes at once, and one after the other.
fn planes(rows: &mut Vec<Row>) {
    for (multi, text, turns) in [("true", "multi-plane", 1.0), ("false", "planes in turn", 4.0)] {
        let profile = one_die(&["nand.cell=slc", "nand.planes=4", &format!("nand.multi_plane={multi}")]);
        let row = 4 * PAGE;
        let times = if turns > 1.0 { "4 " } else { "" };
        rows.push(exact(
            &format!("read of 4 x 16 KiB, {text}"),
            &format!("tCMD + tCA + {times}tR + bus + link + tCQE"),
            read_path_us(&profile, row) + turns * us(profile.nand.read_time[0]),
            read_us(&profile, 0, 1, row),
        ));
        rows.push(exact(
            &format!("write of 4 x 16 KiB, {text}"),
            &format!("tCMD + link + tCA + bus + {times}tPROG + tCQE"),
            write_path_us(&profile, row) + turns * us(profile.nand.program_time[0]),
            write_us(&profile, row),
        ));
    }
}

/// A read that arrives 200 us after a write, while its page is programmed.
fn suspension(rows: &mut Vec<Row>) {
    let after_us = 200;
    let both = |profile: &Profile| {
        let arrives = |mut request: Request, us: u64| {
            request.arrival = Instant::from_ns(us * 1_000);
            request
        };
        let end = profile.drive.capacity - PAGE;
        let requests = [arrives(request(Op::Write, end, PAGE), 0), arrives(request(Op::Read, 0, UNIT), after_us)];
        let record = serve(profile, Filled(0.5), Pacing::Arrival, requests.into_iter()).record;
        (only_latency(&record, Op::Read), only_latency(&record, Op::Write), record.suspends)
    };
    let profile = one_die(&["nand.cell=slc"]);
    let (t_read, t_program) = (us(profile.nand.read_time[0]), us(profile.nand.program_time[0]));
    let (suspend, resume) = (us(profile.flash.suspend_time), us(profile.flash.resume_time));
    let (read, write, suspensions) = both(&profile);
    assert_eq!(suspensions, 1);
    rows.push(exact(
        "read of 4 KiB while the die programs, suspended",
        "as an idle read, and tSUS",
        read_path_us(&profile, UNIT) + t_read + suspend,
        read,
    ));
    rows.push(exact(
        "the suspended write of 16 KiB",
        "as an idle write, and tSUS + tCA + tR + tRES",
        write_path_us(&profile, PAGE) + t_program + suspend + us(profile.nand.command_time) + t_read + resume,
        write,
    ));
    let profile = one_die(&["nand.cell=slc", "flash.suspend=false"]);
    let (read, write, suspensions) = both(&profile);
    assert_eq!(suspensions, 0);
    let idle_write = write_path_us(&profile, PAGE) + t_program;
    // The program ends where the write's completion begins; the read reaches the die after its command time.
    let waits = idle_write - us(profile.host.completion_time) - (after_us as f64 + us(profile.host.command_time));
    rows.push(exact(
        "the same read without suspension",
        "as an idle read, and the rest of tPROG",
        read_path_us(&profile, UNIT) + t_read + waits,
        read,
    ));
    rows.push(exact("the write of 16 KiB, not suspended", "as an idle write", idle_write, write));
}
