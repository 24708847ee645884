//! Reports of a job, and whether they are complete.
//!
//! The guest's lines, on its second serial line (`tests/guest/README.md`): `ok NAME`, `not ok NAME: why`, `skip NAME:
//! why`, `absent NAME`, `note TEXT`, `keep TEXT`, `ask WORD...`, `end`. NAME may be followed by ` (TURN)`.

use std::collections::BTreeSet;

/// A line of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A check that holds.
    Ok(String),
    /// A check that doesn't, and why.
    NotOk(String, String),
    /// A check that this device or machine can't be held to, and why.
    Skip(String, String),
    /// A check that the job's arguments don't ask for.
    Absent(String),
    /// A figure for the reader.
    Note(String),
    /// A line to pass to the next guest on the same device.
    Keep(String),
    /// Something to do outside of the guest; answered with a line.
    Ask(Vec<String>),
    /// Nothing more will come.
    End,
    /// Of the guest's start; or a line that the protocol doesn't know.
    Other(String),
}

impl Line {
    /// Understands any line.
    pub fn parse(line: &str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let named = |rest: &str| {
            let (name, why) = rest.split_once(": ").unwrap_or((rest, "no reason given"));
            (name.to_owned(), why.to_owned())
        };
        match word {
            "ok" => Self::Ok(rest.to_owned()),
            "not" if rest.starts_with("ok ") => {
                let (name, why) = named(&rest[3..]);
                Self::NotOk(name, why)
            }
            "skip" => {
                let (name, why) = named(rest);
                Self::Skip(name, why)
            }
            "absent" => Self::Absent(rest.to_owned()),
            "note" => Self::Note(rest.to_owned()),
            "keep" => Self::Keep(rest.to_owned()),
            "ask" => Self::Ask(rest.split_whitespace().map(str::to_owned).collect()),
            "end" => Self::End,
            _ => Self::Other(line.to_owned()),
        }
    }
}

/// Names of the checks in a job's text, each of which must be reported: the literal words behind `check`.
pub fn checks(script: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in script.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            if word == "check"
                && let Some(name) = words.next()
            {
                names.insert(name.trim_end_matches(';').to_owned());
            }
        }
    }
    names
}

/// Reports so far.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Checks that hold.
    pub ok: Vec<String>,
    /// Checks that don't, with their reasons.
    pub not_ok: Vec<(String, String)>,
    /// Checks left out, with their reasons.
    pub skipped: Vec<(String, String)>,
    /// Checks that were not asked for.
    pub absent: Vec<String>,
    /// Figures.
    pub notes: Vec<String>,
    /// Lines to pass to the next guest.
    pub kept: Vec<String>,
}

impl Tally {
    /// Takes note of a line; those that say nothing of checks are passed over.
    pub fn take(&mut self, line: Line) {
        match line {
            Line::Ok(name) => self.ok.push(name),
            Line::NotOk(name, why) => self.not_ok.push((name, why)),
            Line::Skip(name, why) => self.skipped.push((name, why)),
            Line::Absent(name) => self.absent.push(name),
            Line::Note(text) => self.notes.push(text),
            Line::Keep(text) => self.kept.push(text),
            Line::Ask(_) | Line::End | Line::Other(_) => {}
        }
    }

    /// Fails what should have been reported and wasn't.
    pub fn missing(&mut self, expected: &BTreeSet<String>) {
        let names =
            self.ok.iter().chain(&self.absent).chain(self.not_ok.iter().chain(&self.skipped).map(|(name, _)| name));
        let reported: BTreeSet<String> =
            names.map(|name| name.split(' ').next().unwrap_or_default().to_owned()).collect();
        for name in expected.difference(&reported) {
            self.not_ok.push((name.clone(), "was never reported".to_owned()));
        }
    }

    /// Adds another guest's.
    pub fn add(&mut self, other: Self) {
        self.ok.extend(other.ok);
        self.not_ok.extend(other.not_ok);
        self.skipped.extend(other.skipped);
        self.notes.extend(other.notes);
        self.kept.extend(other.kept);
    }
}

/// The harness's own checks: whether it notices a failure. In every run of it, before any guest.
pub fn self_check() {
    assert_eq!(Line::parse("ok list"), Line::Ok("list".into()));
    assert_eq!(Line::parse("not ok a (x): b: c"), Line::NotOk("a (x)".into(), "b: c".into()));
    assert_eq!(Line::parse("not a line"), Line::Other("not a line".into()));
    assert_eq!(Line::parse("ask fault power-cut"), Line::Ask(vec!["fault".into(), "power-cut".into()]));
    let expected = checks("# check none\ncheck one true\nif a; then check two b; fi\nskip three why\n  check four x");
    assert_eq!(expected.iter().map(String::as_str).collect::<Vec<_>>(), ["four", "one", "two"]);
    let mut tally = Tally::default();
    for line in ["ok one (ext4)", "skip two: not here"] {
        tally.take(Line::parse(line));
    }
    tally.missing(&expected);
    assert_eq!(tally.not_ok, [("four".to_owned(), "was never reported".to_owned())]);
}
