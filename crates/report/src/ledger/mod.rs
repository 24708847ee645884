//! The ledger of the papers: every statement of each source, what decides it here, and its verdict. A verdict is
//! written nowhere: it follows from the checks of experiments, from settings of profiles, and from what was fitted.

mod write;

pub(crate) use write::{counted, every};
pub use write::{headline, markdown, sentence, tally_table, text};

use crate::document::Remark;
use crate::experiment::Experiment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One source: its statements, in the order in which it makes them.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its name in commands and pages: `x-ssd`.
    #[serde(skip)]
    pub key: String,
    /// Its short name: `X-SSD`.
    pub name: String,
    /// Authors, title or venue, year.
    pub title: String,
    /// The part of it that was read: the text of a paper, slides.
    pub read: String,
    /// It is one of the papers that are repeated, and counts in the headline.
    #[serde(default)]
    pub is_paper: bool,
    /// Its statements.
    pub statements: Vec<Statement>,
}

/// One statement of a source.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// Its name within the source, by which it is cited: `dram-flat`. It stays when the words change.
    pub id: String,
    /// Where it stands: section, figure or slide.
    pub at: String,
    /// The kind of statement.
    pub kind: Kind,
    /// The source's statement, in its words or close to them.
    pub says: String,
    /// The source's value, range or trend, where the words do not give it.
    #[serde(default)]
    pub value: Option<String>,
    /// The part that follows here without a fit, and its premises.
    #[serde(default)]
    pub follows: Option<String>,
    /// Parameters fitted to this very statement, and their targets.
    #[serde(default)]
    pub fitted: Vec<String>,
    /// Checks of experiments that decide it: `x-ssd/fig9/dram-flat`.
    #[serde(default)]
    pub checks: Vec<String>,
    /// Settings of built-in profiles that have to be so: `2b-ssd window.entries = 8`.
    #[serde(default)]
    pub settings: Vec<String>,
    /// Tests that show it: file and function, `crates/core/src/fast/lane.rs a_gap_stops_the_counter`.
    #[serde(default)]
    pub tests: Vec<String>,
    /// The source leaves it to others, and it is here, as the evidence shows: how.
    #[serde(default)]
    pub beyond: Option<String>,
    /// Why it is not so here, where that is known without a measurement.
    #[serde(default)]
    pub differs: Option<String>,
    /// Why it was not measured.
    #[serde(default)]
    pub not_measured: Option<String>,
    /// Why it was not built.
    #[serde(default)]
    pub not_built: Option<String>,
    /// The source does not have it either: how far the two agree.
    #[serde(default)]
    pub in_neither: Option<String>,
    /// The statement of this source, by its `id`, that says the same already: both have its verdict, and count once.
    #[serde(default)]
    pub repeats: Option<String>,
    /// Remarks needed to read the verdict.
    #[serde(default)]
    pub note: Option<String>,
}

/// Kinds of statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A number.
    Value,
    /// From one number to another.
    Range,
    /// An order of quantities.
    Order,
    /// How one quantity goes with another.
    Trend,
    /// How something works.
    Mechanism,
    /// A property of a device, or the meaning of a call.
    Design,
    /// The set-up of the source's own experiments.
    Setup,
}

impl Kind {
    /// It is a result of the source, and not a mechanism, a design or a set-up.
    pub fn is_result(self) -> bool {
        matches!(self, Kind::Value | Kind::Range | Kind::Order | Kind::Trend)
    }
}

/// Verdict on a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is so here, and nothing was fitted to it.
    Shown,
    /// It is so here, because something was fitted to it.
    ByFit,
    /// The source leaves it to others, and it is here.
    Beyond,
    /// It is not so here.
    Differs,
    /// The mechanism may be there; no measurement or test decides it.
    NotMeasured,
    /// There is no such mechanism here.
    NotBuilt,
    /// Neither the source nor this drive has it.
    InNeither,
    /// An experiment decides it, and was not run.
    NotRun,
}

impl Verdict {
    /// Every verdict, in the order in which they are counted.
    pub const ALL: [Verdict; 8] = [
        Verdict::Shown,
        Verdict::ByFit,
        Verdict::Beyond,
        Verdict::Differs,
        Verdict::NotMeasured,
        Verdict::NotBuilt,
        Verdict::InNeither,
        Verdict::NotRun,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Shown => "shown",
            Verdict::ByFit => "shown by a fit",
            Verdict::Beyond => "beyond the paper",
            Verdict::Differs => "differs",
            Verdict::NotMeasured => "not measured",
            Verdict::NotBuilt => "not built",
            Verdict::InNeither => "in neither",
            Verdict::NotRun => "not run",
        }
    }
}

/// Result of a check of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether it holds.
    pub ok: bool,
    /// The expected result, in words.
    pub expected: String,
    /// The measured result, in words.
    pub measured: String,
    /// Why it does not hold, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// Evidence that decides statements.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    /// Checks, as `experiment/check`.
    pub checks: BTreeMap<String, Outcome>,
    /// Values of the settings that statements name, as `profile key`.
    pub settings: BTreeMap<String, String>,
}

impl Results {
    /// The checks of these experiments.
    pub fn of(experiments: &[Experiment]) -> BTreeMap<String, Outcome> {
        let checks = experiments.iter().flat_map(|one| one.checks.iter().map(move |check| (one, check)));
        let named = checks.filter(|(_, check)| !check.name.is_empty()).map(|(one, check)| {
            let outcome = Outcome {
                ok: check.ok,
                expected: check.expected.clone(),
                measured: check.measured.clone(),
                because: check.because.clone(),
            };
            (format!("{}/{}", one.name, check.name), outcome)
        });
        named.collect()
    }
}

/// A statement with its verdict.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<'a> {
    /// Its source.
    pub source: &'a Source,
    /// The statement.
    pub statement: &'a Statement,
    /// The verdict.
    pub verdict: Verdict,
    /// The finding here, in words.
    pub ours: String,
    /// Why it is not shown; nothing where it is, or where the reason is not known.
    pub because: Option<String>,
}

impl Line<'_> {
    /// The anchor of the statement on pages.
    pub fn anchor(&self) -> String {
        format!("ledger-{}-{}", self.source.key, self.statement.id)
    }

    /// Its remarks, in their order; with `one_fit` all that was fitted is one of them.
    fn remarks(&self, one_fit: bool) -> Vec<Remark> {
        let Statement { value, follows, fitted, beyond, repeats, note, .. } = self.statement;
        let ours = Some(&self.ours).filter(|ours| !ours.is_empty());
        let fitted = match one_fit {
            true if !fitted.is_empty() => vec![fitted.join("; ")],
            _ => fitted.clone(),
        };
        let before = [("value", value), ("follows", follows)];
        let because = ("because", &self.because);
        let after = [("ours", &ours.cloned()), ("beyond", beyond), because, ("repeats", repeats), ("note", note)];
        let some = |(name, text): (&'static str, &Option<String>)| Some((name, text.clone()?));
        let before = before.into_iter().filter_map(some);
        before
            .chain(fitted.into_iter().map(|text| ("fitted", text)))
            .chain(after.into_iter().filter_map(some))
            .collect()
    }
}

/// How many statements have each verdict, in the order of [`Verdict::ALL`], and how many say again what one of them
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally([usize; Verdict::ALL.len()], usize);

impl Tally {
    /// Of these lines.
    pub fn of<'l>(lines: impl IntoIterator<Item = &'l Line<'l>>) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            let counter =
                if line.statement.repeats.is_some() { &mut tally.1 } else { &mut tally.0[line.verdict as usize] };
            *counter += 1;
        }
        tally
    }

    /// How many have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.0[verdict as usize]
    }

    /// All that have a verdict of their own.
    pub fn sum(&self) -> usize {
        self.0.iter().sum()
    }

    /// How many repeat others.
    pub fn repeated(&self) -> usize {
        self.1
    }
}

/// A setting that a statement names: `profile key = value`.
///
/// # Errors
/// When it is not written so.
pub fn setting(text: &str) -> Result<(&str, &str, &str), String> {
    let parts = text.split_once(" = ").and_then(|(what, value)| {
        let (profile, key) = what.split_once(' ')?;
        Some((profile, key, value))
    });
    parts.ok_or_else(|| format!("`{text}` is not `profile key = value`"))
}

impl Source {
    /// Checks that each statement can be decided and cited.
    ///
    /// # Errors
    /// In words, when one has no verdict, or none of its own name, or repeats one that is not there.
    pub fn check(&self) -> Result<(), String> {
        for (i, one) in self.statements.iter().enumerate() {
            one.check()?;
            let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if one.id.is_empty() || !one.id.chars().all(is_word) {
                return Err(format!("id `{}`: expected lower-case letters, digits and hyphens", one.id));
            }
            if self.statements[..i].iter().any(|other| other.id == one.id) {
                return Err(format!("two statements have the id `{}`", one.id));
            }
            let is_own = |other: &Statement| other.repeats.is_none() && Some(&other.id) == one.repeats.as_ref();
            if one.repeats.is_some() && !self.statements.iter().any(is_own) {
                return Err(format!("`{}` repeats no statement with a verdict of its own", one.id));
            }
        }
        Ok(())
    }
}

impl Statement {
    /// Checks that the statement can be decided: one kind of evidence, or the reason why there is none.
    ///
    /// # Errors
    /// In words, when nothing decides it, or more than one thing does.
    pub fn check(&self) -> Result<(), String> {
        let evidence = !(self.checks.is_empty() && self.settings.is_empty() && self.tests.is_empty());
        let without = [&self.differs, &self.not_measured, &self.not_built, &self.in_neither, &self.repeats];
        if usize::from(evidence) + without.into_iter().flatten().count() != 1 {
            return Err(format!(
                "`{}` needs checks, settings or tests, or one of differs, not_measured, not_built, in_neither and \
                 repeats",
                self.says
            ));
        }
        if self.beyond.is_some() && !evidence {
            return Err(format!("`{}` is beyond the source: what shows it?", self.says));
        }
        for text in &self.settings {
            setting(text)?;
        }
        Ok(())
    }

    fn decide(&self, results: &Results) -> (Verdict, String, Option<String>) {
        for (verdict, why) in [
            (Verdict::NotBuilt, &self.not_built),
            (Verdict::InNeither, &self.in_neither),
            (Verdict::NotMeasured, &self.not_measured),
            (Verdict::Differs, &self.differs),
        ] {
            if let Some(why) = why {
                return (verdict, String::new(), Some(why.clone()));
            }
        }
        let (mut holds, mut is_run) = (true, true);
        let (mut ours, mut reasons): (Vec<String>, Vec<(&str, &str)>) = (Vec::new(), Vec::new());
        let experiment = |name: &'_ String| name.rsplit_once('/').map_or(0, |(of, _)| of.len());
        let is_one = self.checks.windows(2).all(|two| two[0][..experiment(&two[0])] == two[1][..experiment(&two[1])]);
        for name in &self.checks {
            let of = &name[..experiment(name)];
            match results.checks.get(name) {
                Some(outcome) => {
                    holds &= outcome.ok;
                    let measured = &outcome.measured;
                    ours.push(if is_one { measured.clone() } else { format!("{of}: {measured}") });
                    reasons.extend(outcome.because.as_deref().filter(|_| !outcome.ok).map(|why| (of, why)));
                }
                None => is_run = false,
            }
        }
        for text in &self.settings {
            let (profile, key, wanted) = setting(text).unwrap_or(("", "", ""));
            match results.settings.get(&format!("{profile} {key}")) {
                Some(value) => {
                    holds &= value == wanted;
                    ours.push(format!("`{key}` of `{profile}` is {value}"));
                }
                None => is_run = false,
            }
        }
        for test in &self.tests {
            let name = test.rsplit([' ', ':']).next().unwrap_or(test);
            ours.push(format!("test `{name}`"));
        }
        let verdict = match (is_run, holds, self.fitted.is_empty()) {
            (false, ..) => Verdict::NotRun,
            (true, false, _) => Verdict::Differs,
            (true, true, _) if self.beyond.is_some() => Verdict::Beyond,
            (true, true, true) => Verdict::Shown,
            (true, true, false) => Verdict::ByFit,
        };
        (verdict, ours.join("; "), (!reasons.is_empty()).then(|| joined(&reasons)))
    }
}

/// Reasons by experiment as one text: a sentence that several give stands once, and names them unless all give it.
fn joined(reasons: &[(&str, &str)]) -> String {
    let mut experiments: Vec<&str> = reasons.iter().map(|(of, _)| *of).collect();
    experiments.dedup();
    let mut sentences: Vec<(&str, Vec<&str>)> = Vec::new();
    for (of, why) in reasons {
        for sentence in why.split_inclusive(". ").map(str::trim) {
            match sentences.iter_mut().find(|(known, _)| *known == sentence) {
                Some((_, by)) if by.contains(of) => {}
                Some((_, by)) => by.push(of),
                None => sentences.push((sentence, vec![of])),
            }
        }
    }
    let mut out: Vec<String> = Vec::new();
    let mut before = &experiments;
    for (sentence, by) in &sentences {
        match by == before {
            true => out.push((*sentence).to_owned()),
            false if *by == experiments => out.push(format!("All: {sentence}")),
            false => out.push(format!("{}: {sentence}", by.join(", "))),
        }
        before = by;
    }
    out.join(" ")
}

/// The statements of `sources` as `results` decide them, in their order.
pub fn decide<'a>(sources: impl IntoIterator<Item = &'a Source>, results: &Results) -> Vec<Line<'a>> {
    let of_source = |source: &'a Source| {
        let line = move |statement: &'a Statement| {
            let first = source.statements.iter().find(|first| statement.repeats.as_ref() == Some(&first.id));
            let (verdict, ours, because) = first.unwrap_or(statement).decide(results);
            match first {
                Some(_) => Line { source, statement, verdict, ours: String::new(), because: None },
                None => Line { source, statement, verdict, ours, because },
            }
        };
        source.statements.iter().map(line).collect::<Vec<_>>()
    };
    sources.into_iter().flat_map(of_source).collect()
}

/// The two groups in which statements are counted: what a source measured, and what it built and ran.
const GROUPS: [(&str, bool); 2] = [("results", true), ("mechanisms and set-up", false)];

/// How many statements of each source and group have which verdict; groups without statements are left out.
fn tallies<'a>(lines: &[Line<'a>]) -> Vec<(&'a Source, &'static str, Tally)> {
    let of_source = |(source, of): (&'a Source, &[Line<'a>])| {
        let of_group = |(name, is_result): (&'static str, bool)| {
            let tally = Tally::of(of.iter().filter(|line| line.statement.kind.is_result() == is_result));
            (tally != Tally::default()).then_some((source, name, tally))
        };
        GROUPS.into_iter().filter_map(of_group).collect::<Vec<_>>()
    };
    by_source(lines).flat_map(of_source).collect()
}

/// The tally of all papers together, by group.
fn totals(lines: &[Line<'_>]) -> [Tally; 2] {
    let of_group = |is_result: bool| {
        let is_here = |line: &&Line<'_>| line.source.is_paper && line.statement.kind.is_result() == is_result;
        Tally::of(lines.iter().filter(is_here))
    };
    GROUPS.map(|(_, is_result)| of_group(is_result))
}

/// The lines by source, in their order.
fn by_source<'l, 'a>(lines: &'l [Line<'a>]) -> impl Iterator<Item = (&'a Source, &'l [Line<'a>])> {
    lines.chunk_by(|a, b| a.source.key == b.source.key).map(|of| (of[0].source, of))
}

/// The lines as JSON: one array, an object for each statement.
pub fn to_json(lines: &[Line<'_>]) -> String {
    #[derive(Serialize)]
    struct Shown<'l> {
        source: &'l str,
        id: &'l str,
        at: &'l str,
        kind: Kind,
        says: &'l str,
        value: &'l Option<String>,
        follows: &'l Option<String>,
        fitted: &'l [String],
        checks: &'l [String],
        settings: &'l [String],
        tests: &'l [String],
        beyond: &'l Option<String>,
        repeats: &'l Option<String>,
        ours: &'l str,
        verdict: Verdict,
        because: &'l Option<String>,
        note: &'l Option<String>,
    }
    let shown = lines.iter().map(|line| {
        let (source, verdict, ours, because) = (&line.source.key, line.verdict, &line.ours, &line.because);
        let Statement { id, at, kind, says, value, follows, fitted, checks, settings, tests, .. } = line.statement;
        let (kind, Statement { beyond, repeats, note, .. }) = (*kind, line.statement);
        Shown {
            source,
            id,
            at,
            kind,
            says,
            value,
            follows,
            fitted,
            checks,
            settings,
            tests,
            beyond,
            repeats,
            ours,
            verdict,
            because,
            note,
        }
    });
    let mut text = serde_json::to_string_pretty(&shown.collect::<Vec<_>>()).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(checks: &[&str], fitted: &[&str]) -> Statement {
        Statement {
            id: "falls".into(),
            at: "figure 1".into(),
            kind: Kind::Trend,
            says: "It falls".into(),
            value: None,
            follows: None,
            fitted: fitted.iter().map(|text| (*text).to_owned()).collect(),
            checks: checks.iter().map(|text| (*text).to_owned()).collect(),
            settings: Vec::new(),
            tests: Vec::new(),
            beyond: None,
            differs: None,
            not_measured: None,
            not_built: None,
            in_neither: None,
            repeats: None,
            note: None,
        }
    }

    fn outcome(ok: bool) -> Outcome {
        let because = (!ok).then(|| "of that".to_owned());
        Outcome { ok, expected: "less".into(), measured: "3 us".into(), because }
    }

    fn results() -> Results {
        let checks = [("a/good".to_owned(), outcome(true)), ("a/bad".to_owned(), outcome(false))];
        let settings = [("drive window.entries".to_owned(), "8".to_owned())];
        Results { checks: checks.into(), settings: settings.into() }
    }

    #[test]
    fn the_verdict_follows_from_the_checks_and_the_fits() {
        let verdict = |statement: &Statement| statement.decide(&results()).0;
        assert_eq!(verdict(&statement(&["a/good"], &[])), Verdict::Shown);
        assert_eq!(verdict(&statement(&["a/good"], &["x: to 3 us"])), Verdict::ByFit);
        assert_eq!(verdict(&statement(&["a/good", "a/bad"], &["x: to 3 us"])), Verdict::Differs);
        assert_eq!(verdict(&statement(&["a/good", "a/other"], &[])), Verdict::NotRun);
        let (_, ours, because) = statement(&["a/good", "a/bad"], &[]).decide(&results());
        assert_eq!((ours.as_str(), because.as_deref()), ("3 us; 3 us", Some("of that")));
        let mut two = results();
        two.checks.insert("b/bad".to_owned(), Outcome { because: Some("of that. And more.".into()), ..outcome(false) });
        two.checks.insert("c/bad".to_owned(), Outcome { because: Some("of that. And less.".into()), ..outcome(false) });
        let (_, ours, because) = statement(&["b/bad", "c/bad"], &[]).decide(&two);
        assert_eq!(ours, "b: 3 us; c: 3 us");
        assert_eq!(because.as_deref(), Some("of that. b: And more. c: And less."));
        let mut one = statement(&[], &[]);
        one.settings = vec!["drive window.entries = 8".into()];
        assert_eq!(verdict(&one), Verdict::Shown);
        one.settings = vec!["drive window.entries = 9".into()];
        assert_eq!(verdict(&one), Verdict::Differs);
        one.settings = vec!["drive window.size = 9".into()];
        assert_eq!(verdict(&one), Verdict::NotRun);
        one.not_built = Some("no".into());
        assert_eq!(verdict(&one), Verdict::NotBuilt);
        let beyond = Some("and more".to_owned());
        assert_eq!(verdict(&Statement { beyond: beyond.clone(), ..statement(&["a/good"], &[]) }), Verdict::Beyond);
        assert_eq!(verdict(&Statement { beyond, ..statement(&["a/bad"], &[]) }), Verdict::Differs);
        let in_neither = Some("nor here".to_owned());
        assert_eq!(verdict(&Statement { in_neither, ..statement(&[], &[]) }), Verdict::InNeither);
    }

    #[test]
    fn what_is_said_again_counts_once_and_has_the_verdict_of_the_first() {
        let again = Statement { id: "again".into(), repeats: Some("falls".into()), ..statement(&[], &[]) };
        let mut source = source("a", true, vec![again, statement(&["a/bad"], &[])]);
        assert_eq!(source.check(), Ok(()));
        let sources = [source.clone()];
        let lines = decide(&sources, &results());
        assert_eq!([lines[0].verdict, lines[1].verdict], [Verdict::Differs; 2]);
        assert_eq!((lines[0].because.as_deref(), lines[0].anchor().as_str()), (None, "ledger-a-again"));
        assert!(text(&lines, false, 80).contains("1: 1 differs; 1 more says one of them again\n"));
        let (json, list) = (to_json(&lines), markdown(&lines));
        assert!(json.contains("\"id\": \"again\"") && json.contains("\"repeats\": \"falls\""), "{json}");
        let wanted = "<a id=\"ledger-a-again\"></a>**differs** (`again`), figure 1: It falls. *Repeats:* falls.\n";
        assert!(list.contains(wanted), "{list}");
        source.statements[0].repeats = Some("again".into());
        assert!(source.check().unwrap_err().contains("`again` repeats no statement"));
        source.statements[0] = Statement { repeats: None, ..statement(&["a/good"], &[]) };
        assert!(source.check().unwrap_err().contains("two statements"));
        source.statements[0].id = "It falls".into();
        assert!(source.check().unwrap_err().contains("`It falls`"));
    }

    fn source(key: &str, is_paper: bool, statements: Vec<Statement>) -> Source {
        let (name, title, read) = (key.to_uppercase(), format!("Paper {key}"), "slides".to_owned());
        Source { key: key.into(), name, title, read, is_paper, statements }
    }

    #[test]
    fn results_are_counted_apart_from_mechanisms_and_papers_from_what_is_beside_them() {
        let mut mechanism = statement(&[], &[]);
        (mechanism.kind, mechanism.not_built) = (Kind::Mechanism, Some("no".into()));
        let of_a = vec![statement(&["a/good"], &[]), statement(&["a/bad"], &[]), mechanism];
        let sources = [source("a", true, of_a), source("b", false, vec![statement(&["a/good"], &["x: to 3 us"])])];
        let lines = decide(&sources, &results());
        let wanted =
            "Of 2 results of 1 paper: 1 shown, 1 differs. Of 1 statement on mechanisms and set-ups: 1 not built.";
        assert_eq!(headline(&lines), wanted);
        let counted = text(&lines, false, 80);
        assert!(counted.starts_with("A, results                  2: 1 shown, 1 differs\n"), "{counted}");
        assert!(counted.ends_with("B, results                  1: 1 by a fit\n"), "{counted}");
        let table = tally_table(&lines);
        assert!(table.contains("| **all papers, results** | 2 | 1 | 0 | 1 | 0 | 0 |\n"), "{table}");
        assert!(table.ends_with("| B, results | 1 | 0 | 1 | 0 | 0 | 0 |\n"), "{table}");
        let list = markdown(&lines);
        assert!(
            list.contains("**differs** (`falls`), figure 1: It falls. *Ours:* 3 us. *Because:* of that.\n"),
            "{list}"
        );
        assert!(
            list.contains("**shown by a fit** (`falls`), figure 1: It falls. *Fitted:* x: to 3 us. *Ours:* 3 us.\n"),
            "{list}"
        );
        let whole = text(&lines, true, 80);
        assert!(whole.contains("differs           falls, figure 1: It falls\n"), "{whole}");
        let json: serde_json::Value = serde_json::from_str(&to_json(&lines)).unwrap();
        assert_eq!(json[3]["verdict"], "by-fit");
        assert_eq!(json[1]["because"], "of that");
    }

    #[test]
    fn a_statement_is_decided_once() {
        assert!(statement(&["a/good"], &[]).check().is_ok());
        assert!(statement(&[], &[]).check().unwrap_err().contains("It falls"));
        let mut one = statement(&["a/good"], &[]);
        one.not_measured = Some("why".into());
        assert!(one.check().is_err());
        one.checks.clear();
        assert!(one.check().is_ok());
        one.beyond = Some("more".into());
        assert!(one.check().unwrap_err().contains("what shows it"));
        (one.beyond, one.not_measured) = (None, None);
        one.settings = vec!["drive window.entries: 8".into()];
        assert!(one.check().unwrap_err().contains("profile key = value"));
    }
}
