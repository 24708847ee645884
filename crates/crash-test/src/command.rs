//! One run of the command `tidewater crash-test`.

use crate::again::Role;
use crate::{CrashTest, Error, Outcome, Step};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, io, thread};

/// The variable with the path of the command.
const BINARY: &str = "TIDEWATER_PROGRAM";
/// In the name of a closure's type, behind the function that it is in.
const CLOSURE: &str = "::{{closure}}";
/// Set by the command for a program and a check.
const MOUNT: &str = "TIDEWATER_MOUNT";

/// Runs the command, and reads its result.
pub(crate) fn run(test: CrashTest<'_>) -> Result<Outcome, Error> {
    if env::var_os(MOUNT).is_some() {
        return Err(Error("a crash test in a crash test".into()));
    }
    let name = test_name(test.place)?;
    once(&name)?;
    let executable = env::current_exe().map_err(|error| Error(format!("the test's executable: {error}")))?;
    let stem = executable.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = executable.with_file_name("crash-tests");
    let wrong = |path: &Path, error: io::Error| Error(format!("{}: {error}", path.display()));
    fs::create_dir_all(&folder).map_err(|error| wrong(&folder, error))?;
    let kept = folder.join(format!("{stem}.{}", name.replace("::", ".")));
    let (json, failure) = (kept.with_added_extension("json"), kept.with_added_extension("failure"));
    let failure = std::path::absolute(test.failure.unwrap_or(failure)).map_err(|error| wrong(&kept, error))?;
    for old in [&json, &failure] {
        if let Err(error) = fs::remove_file(old)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(wrong(old, error));
        }
    }

    fn line<F>(step: Step<F>, role: Role, executable: &Path, name: &str) -> String {
        match step {
            Step::Here(_) => role.line(executable, name),
            Step::Command(words) => quoted(&words),
        }
    }
    let check = test.check.ok_or_else(|| Error("the crash test has no check".into()))?;
    let program = test.program.ok_or_else(|| Error("the crash test has no program".into()))?;
    let binary = test.binary.or_else(|| env::var_os(BINARY).map(PathBuf::from)).unwrap_or("tidewater".into());
    let mut command = Command::new(&binary);
    command.arg("crash-test").arg("--json").arg(&json).arg("--failure").arg(&failure);
    command.arg("--check").arg(line(check, Role::Check, &executable, &name));
    if let Some(setup) = test.setup {
        command.arg("--setup").arg(line(setup, Role::Setup, &executable, &name));
    }
    command.args(&test.options).args(["--", "sh", "-c"]).arg(line(program, Role::Program, &executable, &name));
    let done = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error(format!(
            "{} is not here: install Tidewater, or set {BINARY} to the path of its command",
            binary.display()
        )),
        _ => wrong(&binary, error),
    })?;
    let text = String::from_utf8_lossy(&done.stdout).trim_end().to_owned();
    let record = match done.status.code() {
        Some(0 | 1) => fs::read(&json).ok(),
        _ => None,
    };
    let Some(record) = record else {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Error(format!("{} crash-test ended with {}\n{}", binary.display(), done.status, said.trim_end())));
    };
    let record: serde_json::Value =
        serde_json::from_slice(&record).map_err(|error| Error(format!("{}: {error}", json.display())))?;
    let number = |key: &str| record[key].as_u64().ok_or_else(|| Error(format!("{}: no {key}", json.display())));
    let failures = number("failed")?;
    // Behind the counts and the line that names the file.
    let smallest = text.split_once("\n\n").and_then(|(_, rest)| rest.split_once(":\n")).map(|(_, it)| it.to_owned());
    let file = smallest.is_some().then_some(failure);
    Ok(Outcome { states: number("tried")?, failures, text, smallest, file })
}

/// The name of a closure's type; `None`: it is a function.
pub(crate) fn closure<F>() -> Option<&'static str> {
    Some(std::any::type_name::<F>()).filter(|name| name.contains(CLOSURE))
}

/// The name of the running test. Its thread has it, unless tests run one after another on the first thread; a closure
/// in it has it in its type: `crate::module::name::{{closure}}`.
fn test_name(place: Option<&str>) -> Result<String, Error> {
    let of_thread = thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    let of_closure = || Some(place?.split_once(CLOSURE)?.0.split_once("::")?.1.to_owned());
    of_thread.or_else(of_closure).ok_or_else(|| {
        Error("the name of this test is unknown: run it without --test-threads=1, or give it a closure".into())
    })
}

/// A process that runs a closure takes the first crash test that it comes to: there may be no other.
fn once(name: &str) -> Result<(), Error> {
    static RUN: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    let mut run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = run.get_or_insert_default().insert(name.to_owned());
    is_first.then_some(()).ok_or_else(|| Error(format!("{name} runs a second crash test: a test may have one")))
}

/// Words as `sh` reads them.
pub(crate) fn quoted(words: &[impl AsRef<str>]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.as_ref().replace('\'', "'\\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_the_shell() {
        let words = ["a b", "it's", "$HOME", "\"\\", ""];
        let done = Command::new("sh").args(["-c", &format!("printf '%s\\n' {}", quoted(&words))]).output().unwrap();
        assert_eq!(String::from_utf8(done.stdout).unwrap(), words.join("\n") + "\n");
    }

    #[test]
    fn the_test_is_named_by_its_thread_or_its_closure() {
        assert_eq!(test_name(None).as_deref(), Ok("command::tests::the_test_is_named_by_its_thread_or_its_closure"));
        // A check that is a function does not hide the program's closure.
        let place = CrashTest::new().program(|_| ()).check(checks_nothing).place;
        let on_main = thread::Builder::new().name("main".into());
        let named = on_main.spawn(move || test_name(place)).unwrap().join().unwrap();
        assert_eq!(named.as_deref(), Ok("command::tests::the_test_is_named_by_its_thread_or_its_closure"));
        assert_eq!(CrashTest::new().check(checks_nothing).place, None);
        assert!(thread::spawn(|| test_name(None)).join().unwrap().is_err());
    }

    fn checks_nothing(_: &[String]) -> Vec<String> {
        Vec::new()
    }

    #[test]
    fn what_is_missing_is_said_in_words() {
        assert!(CrashTest::new().run().unwrap_err().to_string().contains("no check"));
        let twice = CrashTest::new().run().unwrap_err().to_string();
        assert!(twice.contains("what_is_missing_is_said_in_words runs a second crash test"), "{twice}");
    }

    #[test]
    fn a_command_that_is_not_there_is_named() {
        let test = CrashTest::new().check_command(["true"]).program_command(["true"]).binary("/nowhere/tidewater");
        let error = test.run().unwrap_err().to_string();
        assert_eq!(
            error,
            "/nowhere/tidewater is not here: install Tidewater, or set TIDEWATER_PROGRAM to the path of its command"
        );
    }
}
