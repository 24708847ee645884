//! Traces in memory, for runs that share them: each is unpacked and parsed once.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tidewater_sim::trace::{Format, Input, Options, Playback, Trace, Whole};
use tidewater_sim::workload::{SourceError, Workload};

/// Traces that were read, as many as fit. Those that no run uses any more make room for others, the oldest first.
#[derive(Default)]
pub struct SharedTraces {
    /// Bytes that they may take.
    most: u64,
    shelf: Mutex<Vec<Book>>,
}

/// A trace from its first request on.
pub struct Opened {
    /// Its requests.
    pub source: Workload,
    /// Its format.
    pub format: Format,
}

/// A trace as it was read: the same file read otherwise is another.
struct Book {
    name: String,
    options: Options,
    bytes: u64,
    /// None within: it is read by each run.
    whole: Arc<OnceLock<Option<Arc<Whole>>>>,
}

impl Book {
    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.whole) == 1
            && self.whole.get().is_some_and(|whole| whole.as_ref().is_none_or(|whole| Arc::strong_count(whole) == 1))
    }
}

impl SharedTraces {
    /// Takes at most so many bytes of memory.
    pub fn new(most: u64) -> SharedTraces {
        SharedTraces { most, shelf: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Book>> {
        // Nothing that holds the lock can fail.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The trace. Runs that ask for it while it is read wait.
    ///
    /// # Errors
    /// When it can't be read.
    pub fn open(&self, input: &Input, options: &Options) -> Result<Opened, SourceError> {
        if !options.scan || !input.rereadable() {
            return alone(input, options);
        }
        let name = input.name();
        let slot = {
            let mut shelf = self.lock();
            match shelf.iter().find(|book| book.name == name && book.options == *options) {
                Some(book) => Arc::clone(&book.whole),
                None => {
                    let whole = Arc::<OnceLock<_>>::default();
                    shelf.push(Book { name, options: options.clone(), bytes: 0, whole: Arc::clone(&whole) });
                    whole
                }
            }
        };
        let mut failure = None;
        let whole = slot.get_or_init(|| match Trace::open(input, options) {
            Ok(trace) if self.make_room(&slot, Whole::bytes_of(&trace)) => Whole::read(trace).map(Arc::new),
            Ok(_) => None,
            Err(error) => {
                failure = Some(error);
                None
            }
        });
        match (whole, failure) {
            (Some(whole), _) => {
                let source = Workload::Playback(Playback::new(Arc::clone(whole)));
                Ok(Opened { source, format: whole.format() })
            }
            (None, Some(failure)) => Err(failure),
            (None, None) => alone(input, options),
        }
    }

    /// Sets so many bytes apart for `slot`; false: there are not as many.
    fn make_room(&self, slot: &Arc<OnceLock<Option<Arc<Whole>>>>, bytes: Option<u64>) -> bool {
        let Some(bytes) = bytes.filter(|&bytes| bytes <= self.most) else { return false };
        let mut shelf = self.lock();
        let taken = |shelf: &[Book]| shelf.iter().map(|book| book.bytes).sum::<u64>();
        while taken(&shelf) > self.most - bytes {
            match shelf.iter().position(|book| book.bytes > 0 && book.is_unused()) {
                Some(oldest) => drop(shelf.remove(oldest)),
                None => return false,
            }
        }
        if let Some(book) = shelf.iter_mut().find(|book| Arc::ptr_eq(&book.whole, slot)) {
            book.bytes = bytes;
        }
        true
    }
}

/// A trace that one run reads for itself.
pub(crate) fn alone(input: &Input, options: &Options) -> Result<Opened, SourceError> {
    let trace = Trace::open(input, options)?;
    let format = trace.format();
    Ok(Opened { source: Workload::Trace(Box::new(trace)), format })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, requests: usize) -> Input {
        let lines: String = (0..requests).map(|i| format!("0,{i},512,W,{i}.0\n")).collect();
        Input::from_bytes(name, lines.as_bytes())
    }

    fn opened(traces: &SharedTraces, input: &Input) -> Workload {
        traces.open(input, &Options { format: "spc".parse().ok(), ..Options::default() }).unwrap().source
    }

    fn is_kept(workload: &Workload) -> bool {
        matches!(workload, Workload::Playback(_))
    }

    #[test]
    fn what_is_unused_makes_room_and_what_is_in_use_stays() {
        let traces = SharedTraces::new(24 * 10);
        let (first, second) = (opened(&traces, &input("a", 6)), opened(&traces, &input("b", 6)));
        assert!(is_kept(&first) && !is_kept(&second), "there is room for one");
        drop(first);
        assert!(is_kept(&opened(&traces, &input("c", 6))), "in place of the first, which is not used any more");
        assert!(!is_kept(&opened(&traces, &input("d", 11))), "too large for all the room");
        assert!(is_kept(&opened(&traces, &input("c", 6))));
    }

    #[test]
    fn an_error_is_told_to_every_run() {
        let (traces, wrong) = (SharedTraces::new(1 << 20), Input::from_bytes("w", b"0,0,512,W,0.0\nx\n"));
        for _ in 0..2 {
            let error = traces.open(&wrong, &Options { format: "spc".parse().ok(), ..Options::default() }).err();
            assert!(error.unwrap().to_string().starts_with("w:2:1: expected"));
        }
    }
}
