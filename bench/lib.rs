//! Common parts of the benchmarks in `benches/`: a drive that is served beside them, and medians. `make bench` runs
//! them. And the table of `make bench-databases` in the guide.

use std::path::Path;
use std::time::{Duration, Instant};

use tidewater_core::profile::{Profile, Timing, builtin};
use tidewater_serve::control::Request;
use tidewater_serve::engine::{Backing, NamespaceSetup, Ready, Setup};
use tidewater_testkit::profile::with;
use tidewater_testkit::served::{self, Drive};

pub mod gains;

/// How long anything that is waited for may take.
pub const TIME: Duration = Duration::from_secs(20);

/// The drive of the X-SSD paper with these settings, as fast as this machine is.
///
/// # Panics
/// When a setting is none.
pub fn villars(settings: &[(&str, &str)]) -> Profile {
    let mut profile = with(builtin("villars").expect("the profile is built in"), settings);
    profile.serve.timing = Timing::None;
    profile
}

/// A drive with one namespace of blocks of `1 << block_shift` bytes, whose sockets are in `folder`. It is changed to
/// what else is wanted.
pub fn setup(profile: Profile, backing: Backing, bytes: u64, block_shift: u8, folder: &Path) -> Setup {
    let namespaces = vec![NamespaceSetup { bytes: None, block_shift }];
    Setup { size: Some(bytes), namespaces, seed: 1, ..served::setup(profile, folder, backing, 1) }
}

/// A drive that is served by a thread of this process.
pub struct Served {
    /// How its hosts reach it.
    pub ready: Ready,
    /// How a client of its function names it.
    pub target: String,
    drive: Drive,
}

impl Served {
    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(setup: Setup) -> Served {
        let drive = Drive::start(&setup);
        let target = format!("vfio-user:{}", setup.vfio_user[0].display());
        Served { ready: drive.ready.clone(), target, drive }
    }

    /// Has a request carried out.
    ///
    /// # Panics
    /// When it is refused.
    pub fn ask(&self, request: &Request) {
        self.drive.ask(request);
    }

    /// Whether all its replicas have what it has.
    pub fn in_step(&self) -> bool {
        let status = serde_json::Value::from(self.drive.ask(&Request::Status));
        let replicas = status["peers"]["groups"][0]["replicas"].as_array();
        replicas.is_some_and(|all| all.iter().all(|it| it["state"] == "in step" && it["behind_bytes"] == 0))
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// When it does not end so.
    pub fn end(self) {
        self.drive.stop();
    }
}

/// Opens what a device serves. The device may not have heard yet that the client before has gone.
///
/// # Panics
/// When it does not open in time.
pub fn until_open<T, E: std::fmt::Display>(open: impl Fn() -> Result<T, E>) -> T {
    let start = Instant::now();
    loop {
        match open() {
            Ok(opened) => return opened,
            Err(error) => assert!(start.elapsed() < TIME, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The median; of none, not a number.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
