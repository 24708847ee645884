//! Cost of a simulated 64-byte append, through intake, credit and destage: processor time per append, one thread.
//!
//! The client stores lines as long as its credit lasts and then waits for more, as `x_pwrite` does; the drive runs at
//! speeds that let it keep up. Then the cost of a real one, in a ring that is mapped from a served device. These are
//! measurements, not tests: nothing fails for being slow. `simulated` or `live` as an argument measures one of them.

#[path = "append/live.rs"]
mod live;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tidewater_base::{Duration, Instant};
use tidewater_core::Output;
use tidewater_core::device::{Device, Input, Options};
use tidewater_core::drive::{VirtualClock, World, drive};
use tidewater_core::fast::{Content, bar};
use tidewater_core::profile::Profile;

const LINE: u32 = 64;
/// A line and its framing on PCIe 2.0 x4: 88 bytes at 2 GB/s.
const EVERY: Duration = Duration::from_ns(44);

struct Client {
    bytes: Option<[u8; LINE as usize]>,
    written: u64,
    end: u64,
    next_at: Instant,
    limit: u64,
}

impl World<Device> for Client {
    fn next_at(&self) -> Instant {
        if self.written == self.end { Instant::NEVER } else { self.next_at }
    }

    fn submit(&mut self, now: Instant) -> Option<Input<'_>> {
        self.next_at = now + EVERY;
        if self.written == self.limit {
            return Some(Input::Load { function: 0, address: bar::CONTROL + 128, len: 8, tag: 0 });
        }
        let content = self.bytes.as_ref().map_or(Content::Absent(LINE), |bytes| Content::Bytes(bytes));
        let address = bar::RINGS + self.written % RING;
        self.written += u64::from(LINE);
        Some(Input::Store { function: 0, address, content })
    }

    fn refused(&mut self, _: tidewater_core::host::Submission) {
        unreachable!("nothing is submitted");
    }

    fn take(&mut self, _now: Instant, output: Output, _device: &Device) {
        if let Output::Loaded { value, .. } = output {
            self.limit = (value + QUEUE).min(self.end);
        }
    }

    fn stop(&mut self, _now: Instant, _device: &Device) -> bool {
        false
    }
}

const RING: u64 = 128 << 10;
const QUEUE: u64 = 32 << 10;

fn measure(name: &str, appends: u64, stamps: bool) {
    let mut profile = Profile::generic();
    for (key, value) in [
        ("fast.size", "128KiB"),
        ("fast.queue_size", "32KiB"),
        ("fast.on_wrap", "overwrite-oldest"),
        ("fast.release", "transferred"),
    ] {
        profile.set(key, value).expect("a known key");
    }
    let options = Options { capacity: 1 << 30, stamps, ..Options::default() };
    let mut device = Device::new(&profile, options).expect("the profile makes a drive");
    let bytes = stamps.then_some([0x5a; LINE as usize]);
    let mut client = Client { bytes, written: 0, end: appends * u64::from(LINE), next_at: Instant::ZERO, limit: QUEUE };
    let usage = || getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.user_time().num_microseconds());
    let before = usage();
    drive(&mut device, &mut VirtualClock::default(), &mut client);
    let spent = (usage() - before) as f64 * 1e-6;
    let lane = &device.fast().function(0).expect("the drive has a fast side").lanes()[0];
    assert_eq!((lane.credit(), lane.durable()), (client.end, client.end), "all is credited and destaged");
    println!(
        "{name:<22} {:>6.1} ns/append  {:>5.2} events/append  {:>8} pages  {:>6.3} simulated seconds",
        spent / appends as f64 * 1e9,
        device.events_handled() as f64 / appends as f64,
        lane.statistics.pages,
        device.now().as_secs_f64(),
    );
}

fn main() {
    let appends = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(20_000_000);
    let only = |name: &str| std::env::args().any(|argument| argument == name);
    if !only("live") {
        measure("append, timing only", appends, false);
        measure("append, bytes kept", appends / 10, true);
    }
    if !only("simulated") {
        live::measure();
    }
}
