//! What is wrong with a profile, where, and what would do.

use std::fmt;

/// A profile, or a setting, that does not do.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileError {
    /// The file that it was read from.
    pub file: Option<String>,
    /// Line and column in the file, both from 1. Columns count characters.
    pub at: Option<(usize, usize)>,
    /// The key in question, as `--set` takes it: `nand.channels`.
    pub key: Option<String>,
    /// What is wrong with it.
    pub problem: Box<Problem>,
}

/// What is wrong with a profile.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// It is no TOML.
    Syntax(String),
    /// There is no such section.
    UnknownSection {
        /// One that was perhaps meant.
        meant: Option<String>,
    },
    /// There is no such key.
    UnknownKey {
        /// One that was perhaps meant.
        meant: Option<String>,
    },
    /// No memory has that name.
    UnknownMemory {
        /// One that was perhaps meant.
        meant: Option<String>,
    },
    /// No built-in profile has that name.
    UnknownBase {
        /// The name given.
        name: String,
        /// One that was perhaps meant.
        meant: Option<String>,
    },
    /// The value is of another kind, or out of range.
    Value {
        /// What would do.
        expected: String,
        /// What was there.
        found: String,
        /// A word that was perhaps meant.
        meant: Option<String>,
    },
    /// Something is missing.
    Missing(String),
    /// Two values cannot stand together.
    Conflict(String),
    /// A use does not fit the memory it is placed on.
    Placement(String),
}

impl ProfileError {
    pub(crate) fn new(key: impl Into<String>, problem: Problem) -> ProfileError {
        ProfileError { file: None, at: None, key: Some(key.into()), problem: Box::new(problem) }
    }

    /// What was perhaps meant.
    pub fn meant(&self) -> Option<&str> {
        match &*self.problem {
            Problem::UnknownSection { meant }
            | Problem::UnknownKey { meant }
            | Problem::UnknownMemory { meant }
            | Problem::UnknownBase { meant, .. }
            | Problem::Value { meant, .. } => meant.as_deref(),
            Problem::Syntax(_) | Problem::Missing(_) | Problem::Conflict(_) | Problem::Placement(_) => None,
        }
    }
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            if let Some((line, column)) = self.at {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        if let Some(key) = &self.key {
            match key.rsplit_once('.') {
                Some((section, name)) => write!(f, "[{section}] {name}: ")?,
                None => write!(f, "{key}: ")?,
            }
        }
        let meant = match &*self.problem {
            Problem::Syntax(message) => return write!(f, "{message}"),
            Problem::Missing(text) | Problem::Conflict(text) | Problem::Placement(text) => return f.write_str(text),
            Problem::UnknownSection { meant } => {
                f.write_str("there is no such section")?;
                meant
            }
            Problem::UnknownKey { meant } => {
                f.write_str("there is no such key")?;
                meant
            }
            Problem::UnknownMemory { meant } => {
                f.write_str("there is no memory of that name (a new one begins with its `kind`)")?;
                meant
            }
            Problem::UnknownBase { name, meant } => {
                write!(f, "expected the name of a built-in profile, found {}", super::value::quote(name))?;
                meant
            }
            Problem::Value { expected, found, meant } => {
                write!(f, "expected {expected}, found {found}")?;
                meant
            }
        };
        match meant {
            Some(meant) => write!(f, "; did you mean `{meant}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ProfileError {}

/// A promise that a profile makes weaker than a reader may expect, or a setting that has no effect, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downgrade {
    /// The key it is about.
    pub key: String,
    /// What to expect.
    pub text: String,
}

impl fmt::Display for Downgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

/// The candidate that is closest to what was written, when one is close enough to be a slip of the hand.
pub(super) fn meant<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let written: String = written.chars().take(64).collect::<String>().to_ascii_lowercase().replace('-', "_");
    candidates
        .map(|candidate| (strsim::jaro_winkler(&written, &candidate.replace('-', "_")), candidate))
        .filter(|(likeness, _)| *likeness >= 0.78)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}
