//! Small drives, and settings of them.

use tidewater_base::Duration;
use tidewater_core::profile::{Profile, builtin};
use tidewater_nand::Cell;

/// A byte window of eight pages and three entries, whose buffer is written to flash on stored energy.
pub const BYTE_WINDOW: &[&str] = &[
    "memory.ba.kind=dram",
    "memory.ba.size=64KiB",
    "memory.ba.survives=by-capacitors",
    "window.memory=ba",
    "window.size=32KiB",
    "window.entries=3",
];

/// A setting: `KEY=VALUE`, or key and value apart.
pub trait Setting {
    /// Key and value.
    fn parts(&self) -> (&str, &str);
}

impl Setting for str {
    fn parts(&self) -> (&str, &str) {
        self.split_once('=').expect("KEY=VALUE")
    }
}

impl Setting for String {
    fn parts(&self) -> (&str, &str) {
        self.as_str().parts()
    }
}

impl Setting for (&str, &str) {
    fn parts(&self) -> (&str, &str) {
        *self
    }
}

impl<T: Setting + ?Sized> Setting for &T {
    fn parts(&self) -> (&str, &str) {
        (*self).parts()
    }
}

/// Applies settings.
#[track_caller]
pub fn set(profile: &mut Profile, settings: &[impl Setting]) {
    for (key, value) in settings.iter().map(Setting::parts) {
        if let Err(error) = profile.set(key, value) {
            panic!("{key}={value}: {error}");
        }
    }
}

/// A profile with settings changed.
#[track_caller]
pub fn with(mut profile: Profile, settings: &[impl Setting]) -> Profile {
    set(&mut profile, settings);
    profile
}

/// The built-in profile for tests: a few MiB.
pub fn tiny() -> Profile {
    builtin("tiny").expect("`tiny` is a built-in profile")
}

/// A drive that collects all the time: a few hundred pages on four dies, units of 4 KiB, cells as fast as single-level
/// ones.
pub fn few_pages() -> Profile {
    let mut p = Profile::generic();
    p.name = "tiny".into();
    p.host.queues = 2;
    p.host.queue_entries = 64;
    p.host.outstanding_max = 16;
    p.buffer.write_size = 64 << 10;
    p.buffer.write_watermark = 0.5;
    p.ftl.over_provisioning = 0.2;
    p.ftl.spare_blocks = 0.0;
    p.ftl.gc_start = 2;
    p.ftl.gc_reserve = 1;
    p.ftl.wear_gap = 2;
    p.ftl.checkpoint_interval = 4;
    p.ftl.fill_timeout = Duration::from_us(150);
    let n = &mut p.nand;
    (n.channels, n.ways, n.planes) = (2, 2, 1);
    (n.blocks_per_plane, n.pages_per_block, n.page_size, n.oob_size) = (12, 8, 4 << 10, 448);
    n.cell = Cell::Slc;
    n.read_time = [Duration::from_us(25); 3];
    n.program_time = [Duration::from_us(200); 3];
    n.erase_time = Duration::from_us(1_500);
    n.endurance = 100_000;
    (n.factory_bad_rate, n.program_fail_rate, n.erase_fail_rate) = (0.0, 0.0, 0.0);
    p
}
