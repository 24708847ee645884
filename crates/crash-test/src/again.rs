//! The test's executable, started again for one of the closures.

use crate::{CrashTest, Error, Outcome, Step};
use std::fs::OpenOptions;
use std::io::{BufRead as _, Write as _};
use std::path::Path;
use std::{env, io, process};

/// The variable that says which closure this process is to run.
const ROLE: &str = "TIDEWATER_CRASH_TEST";
/// Exit status of a closure that has run, and found all well. The executable ends with 0 also where it found no test.
const DONE: i32 = 86;

/// Which of the closures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Program,
    Check,
    Setup,
}

impl Role {
    const ALL: [(Role, &str); 3] = [(Role::Program, "program"), (Role::Check, "check"), (Role::Setup, "setup")];

    /// A line for `sh` that has `executable` run this closure of the test `name`. What the harness prints is left out;
    /// panics come on standard error.
    pub(crate) fn line(self, executable: &Path, name: &str) -> String {
        let role = Role::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, word)| word);
        let words = [&*executable.to_string_lossy(), "--exact", name, "--include-ignored", "--nocapture"];
        // The last lines of a check are kept: traces would leave no room for the words of a panic.
        let trace = if self == Role::Check { "RUST_BACKTRACE=0 " } else { "" };
        format!("{trace}{ROLE}={role} {} >/dev/null; test $? = {DONE}", crate::command::quoted(&words))
    }
}

/// The closure that this process is to run; `None`: it runs the tests.
pub(crate) fn role() -> Option<Role> {
    let word = env::var(ROLE).ok()?;
    Role::ALL.iter().find(|(_, known)| *known == word).map(|(role, _)| *role)
}

/// Runs a closure, and ends the process.
pub(crate) fn play(test: CrashTest<'_>, role: Role) -> Result<Outcome, Error> {
    let missing = || Error(format!("this test has no closure for {role:?} when it is run again"));
    let is_well = match role {
        Role::Program => {
            let Some(Step::Here(program)) = test.program else { return Err(missing()) };
            let path = env::var_os("TIDEWATER_ACK").unwrap_or_default();
            let file = OpenOptions::new().append(true).create(true).open(&path);
            let file = file.map_err(|error| Error(format!("TIDEWATER_ACK: {}: {error}", path.display())))?;
            // An id in one write: ids of threads do not mix.
            program(&|id| (&file).write_all(format!("{id}\n").as_bytes()).expect("the mount takes an acknowledged id"));
            true
        }
        Role::Setup => {
            let Some(Step::Here(setup)) = test.setup else { return Err(missing()) };
            setup();
            true
        }
        Role::Check => {
            let Some(Step::Here(check)) = test.check else { return Err(missing()) };
            let ids: Result<Vec<String>, io::Error> = io::stdin().lock().lines().collect();
            let lost = check(&ids.map_err(|error| Error(format!("standard input: {error}")))?);
            let mut said = io::stderr().lock();
            lost.iter().try_for_each(|id| writeln!(said, "lost {id}")).expect("standard error takes lost ids");
            lost.is_empty()
        }
    };
    process::exit(if is_well { DONE } else { 1 })
}
