//! Work beside the interpreter: it runs on a thread of its own while other Python threads run, the caller's signals are
//! looked at meanwhile, and a panic becomes an exception.

use crate::errors;
use pyo3::prelude::*;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How often signals are looked at: Ctrl-C is to be answered within 50 ms.
const LOOK: Duration = Duration::from_millis(15);
/// How long work that was asked to end is waited for, before its caller goes on without it.
const END: Duration = Duration::from_millis(20);
/// The same for a run that serves requests: it ends within milliseconds, unless the machine is busy.
const RUN_ENDS: Duration = Duration::from_secs(1);
/// Looks between two reports of progress.
const LOOKS_BETWEEN_REPORTS: u32 = 6;

/// State shared by work and its caller.
#[derive(Clone, Default)]
pub struct Shared {
    /// Set when the caller wants it to end.
    pub cancelled: Arc<AtomicBool>,
    /// Progress, in millionths of a run, summed over all runs.
    done: Arc<AtomicU64>,
    /// A single run serves requests, and looks at `cancelled` every few milliseconds.
    serves: Arc<AtomicBool>,
}

impl Shared {
    /// A run went on by this share of it.
    pub fn add(&self, share: f64) {
        self.done.fetch_add((share * 1e6) as u64, Ordering::Relaxed);
    }

    /// This share is done of a single run.
    pub fn set(&self, share: f64) {
        self.done.store((share * 1e6) as u64, Ordering::Relaxed);
        self.serves.store(true, Ordering::Relaxed);
    }

    fn runs(&self) -> f64 {
        self.done.load(Ordering::Relaxed) as f64 / 1e6
    }
}

/// Does the work, and waits for it. `progress` is called with the runs done so far, a fraction of them included.
///
/// # Errors
/// The exception of a signal's handler or of `progress`, which end the work early; a panic of the work.
pub fn wait<T: Send + 'static>(
    py: Python<'_>,
    shared: &Shared,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    wait_or_part(py, shared, progress, work).map_err(|(error, _)| error)
}

/// The same; what ends the work early comes with what the work still gave.
///
/// # Errors
/// As [`wait`].
pub fn wait_or_part<T: Send + 'static>(
    py: Python<'_>,
    shared: &Shared,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, (PyErr, Option<T>)> {
    let (send, receive) = sync_channel(1);
    let thread = std::thread::Builder::new().name("tidewater".into()).spawn(move || {
        // A caller that went on without it takes no result.
        let _ = send.send(std::panic::catch_unwind(AssertUnwindSafe(work)));
    });
    thread.map_err(|error| (errors::run(py, &format!("no thread can be started: {error}")), None))?;
    let receive = Mutex::new(receive);
    let next = |time| {
        py.detach(|| {
            let receive = receive.lock().unwrap_or_else(PoisonError::into_inner);
            receive.recv_timeout(time)
        })
    };
    let mut looks = 0;
    loop {
        match next(LOOK) {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(panic)) => return Err((errors::internal(py, words(&*panic)), None)),
            Err(RecvTimeoutError::Disconnected) => {
                return Err((errors::internal(py, "a thread ended without a result"), None));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        looks += 1;
        let reported = match progress {
            Some(report) if looks % LOOKS_BETWEEN_REPORTS == 0 => report.call1((shared.runs(),)).map(drop),
            _ => Ok(()),
        };
        if let Err(error) = py.check_signals().and(reported) {
            shared.cancelled.store(true, Ordering::Relaxed);
            // What can't be broken off, such as filling the drive, ends by itself, and its result is dropped.
            let part = next(if shared.serves.load(Ordering::Relaxed) { RUN_ENDS } else { END });
            return Err((error, part.ok().and_then(Result::ok)));
        }
    }
}

/// Does work on the caller's thread, without the interpreter's lock. The work takes it by [`attach`].
///
/// # Errors
/// A panic of the work.
pub fn here<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    let done = py.detach(|| {
        let done = std::panic::catch_unwind(AssertUnwindSafe(work));
        let inside = Inside::enter();
        (done.map_err(|panic| words(&*panic).to_owned()), inside)
    });
    done.0.map_err(|words| errors::internal(py, &words))
}

/// Threads that have the interpreter's lock or wait for it, and the thread that ends the interpreter, once one does.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static ENDED_BY: OnceLock<ThreadId> = OnceLock::new();
/// How long an interpreter that ends waits for calls under way.
const CALLS_END: Duration = Duration::from_secs(1);

/// A thread in the interpreter, or on its way there.
struct Inside;

impl Inside {
    /// Enters, for good: a thread that waits for the lock of an interpreter that ends is ended amid Rust's frames,
    /// which aborts the process. A daemon thread that comes too late sleeps until the process ends.
    fn enter() -> Inside {
        INSIDE.fetch_add(1, Ordering::SeqCst);
        if ENDED_BY.get().is_some_and(|thread| *thread != std::thread::current().id()) {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
            loop {
                std::thread::park();
            }
        }
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Takes the interpreter's lock for a call from work that is done [`here`].
pub fn attach<T>(call: impl FnOnce(Python<'_>) -> T) -> T {
    let _inside = Inside::enter();
    Python::attach(call)
}

/// The interpreter is about to end: threads other than the caller's do not enter it any more.
#[pyfunction]
pub fn interpreter_ends(py: Python<'_>) {
    ENDED_BY.get_or_init(|| std::thread::current().id());
    py.detach(|| {
        let begun = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && begun.elapsed() < CALLS_END {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic without words")
}

/// The version of the package.
#[pyfunction]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Panics with this message, as a bug would: for tests of what callers see.
///
/// # Errors
/// Always.
#[pyfunction]
pub fn fail(py: Python<'_>, message: String) -> PyResult<()> {
    wait(py, &Shared::default(), None, move || -> () { std::panic::panic_any(message) })
}
