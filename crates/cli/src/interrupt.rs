//! Ctrl-C: the first ends a run early but cleanly, a second ends the program at once.

use crate::failure::Status;
use crate::output;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// A second signal within this time is the first one again: `timeout` sends one to the program and one to its group,
/// and a terminal's goes to a whole group that may pass it on. No user presses Ctrl-C twice so fast.
const SAME_SIGNAL: Duration = Duration::from_millis(200);

/// Runs, and series of runs, that are going on and can end early.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// The current run prints no message when it ends early.
static SILENT: AtomicBool = AtomicBool::new(false);
/// The user wants it to end.
static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Takes Ctrl-C, and the signals by which a terminal or a job scheduler asks a program to end.
pub fn install() {
    // Without the handler Ctrl-C still ends the program, only less gently: nothing to report.
    let requested = flag();
    let mut first = None;
    let _ = ctrlc::set_handler(move || {
        let same = first.get_or_insert_with(Instant::now).elapsed() < SAME_SIGNAL;
        let again = requested.swap(true, Ordering::SeqCst) && !same;
        if again || RUNNING.load(Ordering::SeqCst) == 0 {
            output::remove_unfinished();
            std::process::exit(Status::Interrupted as i32);
        }
        let mut terminal = std::io::stderr();
        if terminal.is_terminal() && !SILENT.load(Ordering::SeqCst) {
            let _ = terminal.write_all(b"\nstopping early; press Ctrl-C again to exit at once\n");
        }
    });
}

/// Set when the run should end.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&REQUESTED)
}

/// Whether the run should end.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// How long the thread that takes signals is given for one that has come.
const SIGNAL_TIME: Duration = Duration::from_millis(100);

/// Whether the run should end, also by a signal that has come just now and was not taken yet: the program is about to
/// become another, which would know nothing of it.
pub fn settled() -> bool {
    let begin = Instant::now();
    while !requested() && begin.elapsed() < SIGNAL_TIME {
        std::thread::sleep(SIGNAL_TIME / 20);
    }
    requested()
}

/// From now on, until it is dropped, the first Ctrl-C only asks the run to end.
pub struct Running(());

impl Running {
    /// A run begins.
    pub fn begin() -> Running {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        Running(())
    }

    /// The same of what shows something until Ctrl-C: that is how it ends.
    pub fn silent() -> Running {
        SILENT.store(true, Ordering::SeqCst);
        Running::begin()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::SeqCst);
    }
}
