//! The keys of the byte window: what pins, reads and cuts do when each is turned.

use super::fast::{Knob, turn};
use tidewater_base::Instant;
use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::fast::Content;
use tidewater_core::host::Submission;
use tidewater_core::profile::Profile;
use tidewater_testkit::profile::BYTE_WINDOW;
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::{ANYWHERE, WindowCommand};

/// The keys that [`every_key_of_the_byte_window_does_what_it_says`] turns.
pub const KEYS: &[(&str, Knob)] = &[
    ("window.size", Knob { base: &[], to: "64KiB", measure: pages_that_fit, rises: true }),
    (
        "window.memory",
        Knob {
            base: &["memory.slow.kind=dram", "memory.slow.size=64KiB", "memory.slow.bandwidth=20MB/s"],
            to: "slow",
            measure: time_to_pin,
            rises: true,
        },
    ),
    ("window.entries", Knob { base: &[], to: "5", measure: entries_that_fit, rises: true }),
    ("window.gate", Knob { base: &[], to: "hold", measure: refused, rises: false }),
    ("window.page_time", Knob { base: &[], to: "20us", measure: time_to_pin, rises: true }),
    ("window.dma_time", Knob { base: &[], to: "80us", measure: time_to_read, rises: true }),
    (
        "window.flush_buffered",
        Knob { base: &["memory.dram.survives=by-capacitors"], to: "true", measure: time_to_flush, rises: false },
    ),
    ("window.energy", Knob { base: &[], to: "1", measure: buffer_that_it_lasts_for, rises: true }),
    ("window.power", Knob { base: &[], to: "9", measure: energy_of_a_cut, rises: true }),
    ("window.program_energy", Knob { base: &[], to: "0.0005", measure: energy_of_a_cut, rises: true }),
];

struct Rig {
    device: Device,
    now: Instant,
    cid: u16,
}

impl Rig {
    fn new(profile: &Profile) -> Rig {
        let device = Device::new(profile, Options { stamps: true, ..Options::default() });
        Rig { device: device.unwrap_or_else(|error| panic!("{error}")), now: Instant::ZERO, cid: 0 }
    }

    /// Runs a command; returns its status and the seconds that it took.
    fn run(&mut self, command: WindowCommand) -> (Status, f64) {
        self.cid += 1;
        let (began, sqe) = (self.now, command.emit(self.cid));
        assert!(self.device.handle(self.now, Input::Window { sqe, data: &[], tag: 1 }).is_ok());
        loop {
            while let Some(output) = self.device.poll() {
                if let Output::Reply { status, .. } = output {
                    return (status, self.now.since(began).as_secs_f64());
                }
            }
            self.now = self.device.deadline().expect("a command is under way");
            assert!(self.device.handle(self.now, Input::Timer).is_ok());
        }
    }

    fn pin(&mut self, entry: u16, first: u64, pages: u32) -> (Status, f64) {
        self.run(WindowCommand::Pin { entry, offset: ANYWHERE, lba: first * 8, blocks: pages * 8 })
    }
}

/// Pages that can be pinned, one entry for as many as fit.
fn pages_that_fit(profile: &Profile) -> f64 {
    let fits = |&pages: &u32| Rig::new(profile).pin(1, 0, pages).0.is_success();
    f64::from((1..64).take_while(fits).last().unwrap_or(0))
}

fn entries_that_fit(profile: &Profile) -> f64 {
    let mut rig = Rig::new(profile);
    f64::from((0..8u16).take_while(|&entry| rig.pin(entry, entry.into(), 1).0.is_success()).count() as u32)
}

fn time_to_pin(profile: &Profile) -> f64 {
    Rig::new(profile).pin(1, 0, 8).1
}

fn time_to_read(profile: &Profile) -> f64 {
    let mut rig = Rig::new(profile);
    assert!(rig.pin(1, 0, 1).0.is_success());
    rig.run(WindowCommand::ReadDma { entry: 1, offset: 0, bytes: 4096 }).1
}

fn time_to_flush(profile: &Profile) -> f64 {
    let mut rig = Rig::new(profile);
    assert!(rig.pin(1, 0, 1).0.is_success());
    rig.run(WindowCommand::Flush { entry: 1 }).1
}

/// Reads of pinned blocks that end with an error.
fn refused(profile: &Profile) -> f64 {
    let mut rig = Rig::new(profile);
    assert!(rig.pin(1, 0, 1).0.is_success());
    let submission = Submission::new(Sqe::read(99, 0, 7), 0);
    assert!(rig.device.handle(rig.now, Input::Submit { queue: 0, submission }).is_ok());
    while let Some(at) = rig.device.deadline() {
        assert!(rig.device.handle(at, Input::Timer).is_ok());
    }
    let outputs = std::iter::from_fn(|| rig.device.poll());
    outputs.filter(|o| matches!(o, Output::Complete(c) if !c.cqe.status.is_success())).count() as f64
}

fn energy_of_a_cut(profile: &Profile) -> f64 {
    let mut rig = Rig::new(profile);
    assert!(rig.pin(1, 0, 4).0.is_success());
    let address = rig.device.window().bar_offset();
    let store = Input::Store { function: 0, address, content: Content::Bytes(&[7; 64]) };
    assert!(rig.device.handle(rig.now, store).is_ok());
    rig.device.cut_power().energy()
}

/// Bytes of the largest buffer that the stored energy is taken to last for.
fn buffer_that_it_lasts_for(profile: &Profile) -> f64 {
    let mut profile = profile.clone();
    profile.set("memory.ba.size", "1GiB").unwrap();
    let lasts = |profile: &mut Profile, bytes: u64| {
        profile.set("window.size", &format!("{bytes}")).unwrap();
        profile.check().is_ok()
    };
    (15..28).map(|bits| 1u64 << bits).take_while(|&bytes| lasts(&mut profile, bytes)).last().unwrap_or(0) as f64
}

#[test]
fn every_key_of_the_byte_window_does_what_it_says() {
    turn(KEYS, BYTE_WINDOW);
}
