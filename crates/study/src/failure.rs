//! Failures, as a user reads them: one line for the fault, and one for the fix.

use std::fmt;
use std::io;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The fault; one line.
    pub message: String,
    /// The fix, where it is known; one line.
    pub help: Option<String>,
    /// The request is invalid; otherwise the work was begun, and failed.
    pub usage: bool,
    /// The object at fault, for programs.
    pub subject: Subject,
}

/// The object at fault, where it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Subject {
    /// Nothing of these.
    #[default]
    Other,
    /// A profile.
    Profile {
        /// The key in question, such as `nand.channels`.
        key: Option<String>,
        /// The key that was probably meant.
        suggestion: Option<String>,
    },
    /// A write policy from outside.
    Policy {
        /// The rule of the conformance suite that it broke.
        rule: Option<&'static str>,
    },
    /// A trace.
    Trace {
        /// The line, counted from 1 after decompression.
        line: Option<u64>,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.help {
            Some(help) => write!(f, "{}; {help}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    /// An invalid request.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), help: None, usage: true, subject: Subject::Other }
    }

    /// A failure of work that was begun.
    pub fn run(message: impl fmt::Display) -> Failure {
        Failure { message: message.to_string(), help: None, usage: false, subject: Subject::Other }
    }

    /// Input that cannot be used, in words of another crate that may end with what to do about it.
    pub fn refused(error: impl fmt::Display) -> Failure {
        const ADVICE: [&str; 11] = [
            "give ",
            "choose ",
            "use ",
            "name ",
            "ask ",
            "did you mean ",
            "store ",
            "stop ",
            "leave ",
            "restore ",
            "allow ",
        ];
        let text = without_number(&error.to_string());
        match text.rsplit_once("; ") {
            Some((message, help)) if ADVICE.iter().any(|verb| help.starts_with(verb)) => {
                Failure::usage(message).help(help)
            }
            _ => Failure::usage(text),
        }
    }

    /// The same, with what to do about it.
    pub fn help(self, help: impl fmt::Display) -> Failure {
        Failure { help: Some(help.to_string()), ..self }
    }

    /// The same, with its place before the message: a file, or a part of one.
    pub fn within(self, place: impl fmt::Display) -> Failure {
        Failure { message: format!("{place}: {}", self.message), ..self }
    }

    /// The same, with what it is about.
    pub fn of(self, subject: Subject) -> Failure {
        Failure { subject, ..self }
    }
}

/// The system's message, without its error number.
pub fn reason(error: &io::Error) -> String {
    without_number(&error.to_string())
}

/// An error of another crate in the system's words, without the system's error number.
pub fn without_number(text: &str) -> String {
    match text.split_once(" (os error ") {
        Some((words, rest)) => words.to_owned() + rest.split_once(')').map_or("", |(_, rest)| rest),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_goes_into_a_line_of_its_own() {
        let failure = Failure::refused("job.fio: No such file or directory (os error 2)");
        assert_eq!((failure.message.as_str(), failure.help), ("job.fio: No such file or directory", None));
        let failure = Failure::refused("no such key; did you mean `a`?");
        assert_eq!((failure.message.as_str(), failure.help.as_deref()), ("no such key", Some("did you mean `a`?")));
        let failure = Failure::refused("one; two");
        assert_eq!((failure.message.as_str(), failure.help), ("one; two", None));
    }
}
