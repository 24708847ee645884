//! fio-like jobs: what a job file or an inline job asks for, and the requests it makes.
//!
//! The keys, their units and where we differ from fio are in `docs/reference/jobs.md`.

mod command_line;
mod generate;
mod keys;
mod pace;
mod parse;
mod read_back;
mod scatter;
mod sizes;
mod spec;
mod units;
mod values;

pub use generate::{JobSource, ThreadSource};
pub use spec::{Access, Amount, BlockSizes, Distribution, JobError, JobSpec, Order, ThreadSpec, Zone};

impl JobSpec {
    /// Reads what a command line gives: a job inline (`rw=randwrite,bs=4k,iodepth=32,size=16g`), fio's own command line
    /// (`fio --name=a --rw=randwrite --bs=4k`), or else the path of a job file.
    pub fn from_argument(argument: &str) -> Result<JobSpec, JobError> {
        let path = std::path::Path::new(argument);
        if argument.starts_with(command_line::PROGRAM) && !path.exists() {
            return command_line::read(argument, &variable);
        }
        if argument.contains('=') && !path.exists() {
            return JobSpec::from_inline(argument);
        }
        let text = std::fs::read_to_string(path)
            .map_err(|error| JobError { place: argument.to_owned(), reason: error.to_string() })?;
        JobSpec::from_file(argument, &text)
    }

    /// fio's command line of these words, as [`JobSpec::from_argument`] takes it.
    pub fn command_line(words: &[String]) -> String {
        command_line::line(words)
    }

    /// Reads a job that is given inline, as `key=value` pairs separated by commas. A comma within a value
    /// (`bs=4k,8k`) is understood.
    pub fn from_inline(text: &str) -> Result<JobSpec, JobError> {
        parse::inline(text, &variable)
    }

    /// Reads the text of a fio job file; `name` is for messages.
    pub fn from_file(name: &str, text: &str) -> Result<JobSpec, JobError> {
        parse::file(name, text, &variable)
    }

    /// Requests outstanding at once, over all threads.
    pub fn iodepth(&self) -> u32 {
        self.threads.iter().fold(0, |sum: u32, thread| sum.saturating_add(thread.iodepth))
    }

    /// Bytes from address 0 that the job needs, where that does not depend on the drive's size.
    pub fn extent(&self) -> Option<u64> {
        self.threads
            .iter()
            .map(|thread| match (thread.offset, thread.increment, thread.size) {
                (Amount::Bytes(offset), Amount::Bytes(increment), Some(Amount::Bytes(size))) => {
                    offset.checked_add(increment.checked_mul(thread.clone)?)?.checked_add(size)
                }
                _ => None,
            })
            .try_fold(0, |most: u64, end| end.map(|end| most.max(end)))
    }

    /// Whether any thread is limited by time alone, so that its driver has to stop it.
    pub fn is_endless(&self) -> bool {
        self.threads.iter().any(|thread| thread.time_based)
    }

    /// The requests of the job on a drive of `capacity` usable bytes, which percentages and a missing `size` refer to.
    /// `seed` is used by threads that have no `randseed`.
    pub fn source(&self, capacity: Option<u64>, seed: u64) -> Result<JobSource, JobError> {
        let mut threads = Vec::with_capacity(self.threads.len());
        for (number, thread) in self.threads.iter().enumerate() {
            threads.push(ThreadSource::new(thread, number, capacity, seed)?);
        }
        // Clones of a section differ in where they are at most.
        let unmoved = |thread: &ThreadSpec| ThreadSpec { clone: 0, ..thread.clone() };
        let alike = self.threads.windows(2).all(|pair| unmoved(&pair[0]) == unmoved(&pair[1]));
        Ok(JobSource::new(threads, alike))
    }
}

/// Value of an environment variable.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
