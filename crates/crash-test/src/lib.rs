//! Crash tests in `#[test]`: every state that a power cut can leave of a program's files, and a check of each.
//!
//! A [`CrashTest`] runs the command `tidewater crash-test`. Program and check are closures in the test function: the
//! command starts the test's own executable again for them, with this one test chosen.
//!
//! ```no_run
//! use std::{fs, io::Write};
//! use tidewater_crash_test::CrashTest;
//!
//! // In a function with #[test]:
//! CrashTest::new()
//!     .setup(|| fs::write("log", "").unwrap())
//!     .program(|acknowledge| {
//!         let mut log = fs::File::options().append(true).open("log").unwrap();
//!         for number in 0..20 {
//!             writeln!(log, "{number}").unwrap();
//!             log.sync_all().unwrap();
//!             acknowledge(&number);
//!         }
//!     })
//!     .check(|acknowledged| {
//!         let log = fs::read_to_string("log").unwrap();
//!         acknowledged.iter().filter(|id| !log.lines().any(|line| line == *id)).cloned().collect()
//!     })
//!     .passes();
//! ```

mod again;
mod command;

use std::fmt::{Debug, Display};
use std::path::{Path, PathBuf};

/// The program of a test; it is passed a function that acknowledges an id.
type Program<'a> = Box<dyn FnOnce(&dyn Fn(&dyn Display)) + 'a>;
/// The check of a test: of the ids acknowledged before the cut, those that are lost.
type Check<'a> = Box<dyn FnOnce(&[String]) -> Vec<String> + 'a>;
/// The set-up of a test.
type Setup<'a> = Box<dyn FnOnce() + 'a>;

/// Runs in the test's executable, or is a command.
enum Step<F> {
    Here(F),
    Command(Vec<String>),
}

/// A crash test. A test function may run one.
///
/// Program, check and set-up work in the current directory. What a test function does before it runs the crash test is
/// done again for each of them.
#[derive(Default)]
pub struct CrashTest<'a> {
    program: Option<Step<Program<'a>>>,
    check: Option<Step<Check<'a>>>,
    setup: Option<Step<Setup<'a>>>,
    options: Vec<String>,
    failure: Option<PathBuf>,
    binary: Option<PathBuf>,
    /// Type of a closure in the test function: it has that function's path.
    place: Option<&'static str>,
}

/// The result of a crash test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// States that were checked, each once.
    pub states: u64,
    /// How many of them failed: at most one or two, without `--keep-going`.
    pub failures: u64,
    /// The result in words.
    pub text: String,
    /// The smallest failure in words; `None`: every state passed.
    pub smallest: Option<String>,
    /// The file that holds it, for `tidewater crash-test --replay FILE`.
    pub file: Option<PathBuf>,
}

/// Why nothing was tested, in words: no command, no FUSE, an option that the command does not have, a program that
/// fails without a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl Display for Error {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl Debug for CrashTest<'_> {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("CrashTest").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<'a> CrashTest<'a> {
    /// A test that still needs a program and a check.
    pub fn new() -> CrashTest<'a> {
        CrashTest::default()
    }

    /// The program: a closure, which is passed a function that acknowledges an id. From then on a power cut must not
    /// lose what the id stands for.
    #[must_use]
    pub fn program<F: FnOnce(&dyn Fn(&dyn Display)) + 'a>(mut self, program: F) -> CrashTest<'a> {
        self.place = command::closure::<F>().or(self.place);
        self.program = Some(Step::Here(Box::new(program)));
        self
    }

    /// The program: a command with its arguments. It writes a line with each acknowledged id to descriptor 3, or to the
    /// end of the file that the variable `TIDEWATER_ACK` names.
    #[must_use]
    pub fn program_command<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> CrashTest<'a> {
        self.program = Some(Step::Command(command.into_iter().map(Into::into).collect()));
        self
    }

    /// The check of a state: a closure, which gets the ids acknowledged before the cut, and returns those that are
    /// lost. If it panics, the state fails, too.
    #[must_use]
    pub fn check<F: FnOnce(&[String]) -> Vec<String> + 'a>(mut self, check: F) -> CrashTest<'a> {
        self.place = command::closure::<F>().or(self.place);
        self.check = Some(Step::Here(Box::new(check)));
        self
    }

    /// The check of a state: a command with its arguments, which gets the ids on standard input, and ends with 0 when
    /// all is well.
    #[must_use]
    pub fn check_command<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> CrashTest<'a> {
        self.check = Some(Step::Command(command.into_iter().map(Into::into).collect()));
        self
    }

    /// Runs before the program; what it makes is durable.
    #[must_use]
    pub fn setup(mut self, setup: impl FnOnce() + 'a) -> CrashTest<'a> {
        self.setup = Some(Step::Here(Box::new(setup)));
        self
    }

    /// The same, as a command with its arguments.
    #[must_use]
    pub fn setup_command<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> CrashTest<'a> {
        self.setup = Some(Step::Command(command.into_iter().map(Into::into).collect()));
        self
    }

    /// Options of the command, such as `["--cuts=500", "--rules=ext4"]`.
    #[must_use]
    pub fn options<S: Into<String>>(mut self, options: impl IntoIterator<Item = S>) -> CrashTest<'a> {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Where the smallest failure goes; by default beside the test's executable, in the folder `crash-tests`.
    #[must_use]
    pub fn failure(mut self, file: impl AsRef<Path>) -> CrashTest<'a> {
        self.failure = Some(file.as_ref().to_path_buf());
        self
    }

    /// Path of the command `tidewater`; by default that in the variable `TIDEWATER_PROGRAM`, or what PATH has.
    #[must_use]
    pub fn binary(mut self, path: impl AsRef<Path>) -> CrashTest<'a> {
        self.binary = Some(path.as_ref().to_path_buf());
        self
    }

    /// Runs the test. A state that fails is no error.
    ///
    /// # Errors
    /// When nothing can be tested.
    ///
    /// # Panics
    /// Where this process runs the check, and that panics.
    pub fn run(self) -> Result<Outcome, Error> {
        match again::role() {
            Some(role) => again::play(self, role),
            None => command::run(self),
        }
    }

    /// Runs the test, and returns when no state fails.
    ///
    /// # Panics
    /// With the smallest failure in words, or the reason why nothing was tested.
    #[track_caller]
    pub fn passes(self) -> Outcome {
        match self.run() {
            Ok(outcome) if outcome.failures == 0 => outcome,
            Ok(outcome) => panic!("{}", outcome.text),
            Err(error) => panic!("{error}"),
        }
    }
}
