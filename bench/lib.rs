//! What the benchmarks in `benches/` share: a drive that is served beside them, and medians. `make bench` runs them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidewater_core::profile::{Profile, Timing, builtin};
use tidewater_serve::engine::{Backing, Event, NamespaceSetup, Ready, SERVE_TIME, Server, Setup};

/// How long anything that is waited for may take.
pub const TIME: Duration = Duration::from_secs(20);

/// The drive of the X-SSD paper with these settings, as fast as this machine is.
///
/// # Panics
/// When a setting is none.
pub fn villars(settings: &[(&str, &str)]) -> Profile {
    let mut profile = builtin("villars").expect("it is built in");
    for (key, value) in settings {
        profile.set(key, value).unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    profile.serve.timing = Timing::None;
    profile
}

/// A drive with one namespace of blocks of `1 << block_shift` bytes, whose sockets are in `folder`. It is changed to
/// what else is wanted.
pub fn setup(profile: Profile, backing: Backing, bytes: u64, block_shift: u8, folder: &Path) -> Setup {
    Setup {
        profile,
        backing,
        size: Some(bytes),
        namespaces: vec![NamespaceSetup { bytes: None, block_shift }],
        seed: 1,
        vfio_user: vec![folder.join("vfio.sock")],
        nvme_tcp: None,
        runtime_directory: None,
        control: folder.join("control.sock"),
        metrics: None,
        trace: None,
        input_log: None,
        ring: None,
        stop: Arc::default(),
        serve_time: SERVE_TIME,
    }
}

/// A drive that is served by a thread of this process.
pub struct Served {
    /// What it told when it was ready.
    pub ready: Ready,
    /// How a client of its function names it.
    pub target: String,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Served {
    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(setup: Setup) -> Served {
        let (stop, target) = (Arc::clone(&setup.stop), format!("vfio-user:{}", setup.vfio_user[0].display()));
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || {
            let mut tell = |event: Event| {
                if let Event::Ready(ready) = event {
                    let _ = sender.send(ready);
                }
            };
            let server = Server::start(setup, &mut tell).expect("it starts");
            server.run(&mut tell).expect("it runs");
        });
        let ready = receiver.recv().expect("it gets ready");
        Served { ready, target, stop, thread }
    }

    /// Ends it in order.
    ///
    /// # Panics
    /// When it does not end so.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ends");
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
