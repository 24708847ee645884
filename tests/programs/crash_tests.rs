//! Crash tests by the crate `tidewater-crash-test`, as a user's own: compiled by a test, for whose one they are.

use std::fs;
use tidewater_crash_test::{CrashTest, Error, Outcome};

fn touched<'a>() -> CrashTest<'a> {
    CrashTest::new().program_command(["touch", "it's"])
}

#[test]
fn commands_are_programs_and_checks() {
    let test = CrashTest::new().program_command(["sh", "-c", "echo 1 >it\\'s"]).setup_command(["touch", "it's"]);
    let outcome = test.check_command(["test", "-e", "it's"]).options(["--cuts=30", "--at=every"]).passes();
    assert!(outcome.states > 0 && outcome.text.contains("0 failed"), "{outcome:?}");
    assert_eq!((outcome.failures, outcome.smallest, outcome.file), (0, None, None));
}

#[test]
#[ignore = "run by name alone: it fails"]
fn a_state_that_fails_fails_the_test() {
    touched().check_command(["test", "-e", "it's"]).passes();
}

mod inner {
    use super::*;

    #[test]
    fn a_check_that_panics_fails_its_state() {
        let file = std::env::temp_dir().join(format!("tidewater-crash-tests-{}", std::process::id()));
        let outcome = touched().check(|_| panic!("this is why")).failure(&file).run().unwrap();
        let smallest = outcome.smallest.unwrap();
        assert!(outcome.failures > 0 && smallest.contains("this is why"), "{smallest}");
        assert_eq!(outcome.file.as_ref(), Some(&file));
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_program_that_panics_is_no_failing_state() {
    let test = CrashTest::new().program(|_| panic!("this is why")).check(|_| Vec::new());
    let error = test.run().unwrap_err().to_string();
    assert!(error.contains("this is why") && error.contains("before any power cut"), "{error}");
}

#[test]
fn options_that_there_are_not_are_named() {
    let test = touched().check_command(["true"]).options(["--rules=ext5"]);
    let error = test.run().unwrap_err().to_string();
    assert!(error.contains("ext5"), "{error}");
}

#[test]
fn a_test_has_one_crash_test() {
    let run = || -> Result<Outcome, Error> { touched().check(|_| Vec::new()).run() };
    assert_eq!(run().unwrap().failures, 0);
    assert!(run().unwrap_err().to_string().contains("a_test_has_one_crash_test runs a second crash test"));
}
