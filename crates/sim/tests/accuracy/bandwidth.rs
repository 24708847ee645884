//! Sequential bandwidth: the narrowest of array, bus, link and firmware.

use super::drives::{bus_us, one_die, request, serve, us, wire_us};
use super::table::{Bound, Row, Section};
use tidewater_core::ftl::Precondition::{Filled, Fresh};
use tidewater_core::profile::Profile;
use tidewater_sim::workload::Op;
use tidewater_sim::{Outcome, Pacing};

const PAGE: u64 = 16_384;
const REQUESTS: u64 = 4_096;

/// MB/s of one page in so many microseconds.
fn rate(page_us: f64) -> f64 {
    PAGE as f64 / page_us
}

fn sequential(profile: &Profile, op: Op) -> f64 {
    let requests = (0..REQUESTS).map(|i| request(op, i * PAGE, PAGE));
    let past = if op == Op::Read { Filled(1.0) } else { Fresh };
    let record = serve(profile, past, Pacing::Depth(32), requests).record;
    (REQUESTS * PAGE) as f64 / record.simulated_seconds * 1e-6
}

fn row(what: &str, form: &str, page_us: f64, measured: f64) -> Row {
    let bound = Bound::Within(0.02);
    Row { what: what.into(), form: form.into(), expected: rate(page_us), measured, unit: "MB/s", bound }
}

pub fn section() -> Section {
    let slc = |settings: &[&str]| one_die(&[&["nand.cell=slc"], settings].concat());
    let mut rows = Vec::new();
    let array = |p: &Profile| us(p.nand.command_time) + us(p.nand.read_time[0]);
    let inward = |p: &Profile| us(p.nand.command_time) + bus_us(p, PAGE);
    let program = |p: &Profile| us(p.nand.program_time[0]);

    let p = slc(&[]);
    let form = "page / max(tCA + tR, bus)";
    rows.push(row(
        "read, one die, cache commands, slow array",
        form,
        array(&p).max(bus_us(&p, PAGE)),
        sequential(&p, Op::Read),
    ));
    let p = slc(&["nand.read_time=8us"]);
    rows.push(row(
        "read, one die, cache commands, fast array",
        form,
        array(&p).max(bus_us(&p, PAGE)),
        sequential(&p, Op::Read),
    ));
    let p = slc(&["nand.cache=false"]);
    let form = "page / (tCA + tR + bus)";
    rows.push(row("read, one die, no cache commands", form, array(&p) + bus_us(&p, PAGE), sequential(&p, Op::Read)));
    let p = one_die(&[]);
    let kinds = p.nand.read_time.iter().map(|&t| us(t)).sum::<f64>() / 3.0;
    let form = "page / (tCA + mean tR)";
    rows.push(row("read, one TLC die", form, us(p.nand.command_time) + kinds, sequential(&p, Op::Read)));
    let p = slc(&["nand.ways=4"]);
    rows.push(row("read, 4 dies on one channel", "page / bus", bus_us(&p, PAGE), sequential(&p, Op::Read)));
    let p = slc(&["nand.ways=4", "nand.channels=2", "link.generation=1", "link.lanes=1"]);
    rows.push(row("read, 8 dies behind PCIe Gen1 x1", "page / link", wire_us(&p, PAGE), sequential(&p, Op::Read)));

    let p = slc(&[]);
    let form = "page / max(tPROG, tCA + bus)";
    rows.push(row("write, one die, cache commands", form, program(&p).max(inward(&p)), sequential(&p, Op::Write)));
    let p = slc(&["nand.cache=false"]);
    let form = "page / (tCA + bus + tPROG)";
    rows.push(row("write, one die, no cache commands", form, inward(&p) + program(&p), sequential(&p, Op::Write)));
    let p = one_die(&[]);
    let kinds = p.nand.program_time.iter().map(|&t| us(t)).sum::<f64>() / 3.0;
    rows.push(row("write, one TLC die", "page / mean tPROG", kinds, sequential(&p, Op::Write)));
    let p = slc(&["nand.ways=4"]);
    rows.push(row("write, 4 dies on one channel", "4 page / tPROG", program(&p) / 4.0, sequential(&p, Op::Write)));
    let p = slc(&["nand.ways=4", "nand.program_time=40us"]);
    rows.push(row("write, 4 fast dies on one channel", "page / (tCA + bus)", inward(&p), sequential(&p, Op::Write)));
    let p = slc(&["nand.ways=8", "nand.channels=4", "link.generation=1", "link.lanes=1"]);
    rows.push(row("write, 32 dies behind PCIe Gen1 x1", "page / link", wire_us(&p, PAGE), sequential(&p, Op::Write)));
    rows.push(firmware());
    rows.push(erase());
    Section { id: "bandwidth", rows }
}

/// Reads of one unwritten block need neither flash nor much of the link.
fn firmware() -> Row {
    let profile = one_die(&[]);
    let mut options = tidewater_sim::RunOptions { pacing: Pacing::Depth(64), ..tidewater_sim::RunOptions::default() };
    options.device.premap = false;
    let job = "rw=randread,bs=512,size=64m,number_ios=100000";
    let source = tidewater_sim::workload::JobSpec::from_inline(job).and_then(|job| job.source(Some(64 << 20), 1));
    let Outcome { record, .. } = tidewater_sim::run(&profile, source.expect("a job"), options).expect("the run ends");
    Row {
        what: "reads of 512 B that need no flash".into(),
        form: "1 / command interval".into(),
        expected: 1e3 / us(profile.host.command_interval),
        measured: record.iops * 1e-3,
        unit: "kIOPS",
        bound: Bound::Within(0.02),
    }
}

/// A drive that is overwritten in order copies nothing: beyond its programs the die spends its time on erases.
fn erase() -> Row {
    let profile = one_die(&["nand.cell=slc"]);
    let pages = profile.drive.capacity / PAGE;
    let device = {
        let past = Filled(1.0);
        let options = tidewater_core::Options { precondition: past, ..tidewater_core::Options::default() };
        tidewater_core::Device::new(&profile, options).expect("the profile is valid")
    };
    let requests = (0..5 * pages).map(|i| request(Op::Write, i % pages * PAGE, PAGE));
    let Outcome { record, .. } = super::drives::serve_on(device, Pacing::Depth(32), pages, requests);
    assert_eq!(record.flash.units_collected, 0, "nothing is copied");
    // Those that were still outstanding when the warm-up ended count too: their time is within what is measured.
    let programs = record.flash.programs as f64 * us(profile.nand.program_time[0]);
    Row {
        what: "erase: one die overwritten in order, time beside programs, an erase".into(),
        form: "tCA + tBERS".into(),
        expected: us(profile.nand.command_time) + us(profile.nand.erase_time),
        measured: (record.simulated_seconds * 1e6 - programs) / record.erases as f64,
        unit: "us",
        bound: Bound::Within(0.02),
    }
}
