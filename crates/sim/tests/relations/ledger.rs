//! Cases drawn, run and checked, and the violations.

use crate::relations::cases::Case;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use tidewater_core::buffer::POLICIES;
use tidewater_core::profile::names;

/// Violations that are kept in words; the others are only counted.
const KEPT: usize = 20;

/// The counts of a campaign.
#[derive(Default)]
pub struct Ledger {
    /// Drives that were there.
    pub drives: u64,
    /// Draws that no drive could be made of.
    pub refused: u64,
    /// Runs.
    pub runs: u64,
    /// Checks by relation.
    checks: BTreeMap<&'static str, u64>,
    /// Settings drawn, as `key=value`.
    drawn: BTreeSet<String>,
    violations: u64,
    kept: Vec<String>,
}

impl Ledger {
    /// A relation was looked at: `holds`, or `what` is kept.
    pub fn check(&mut self, relation: &'static str, case: &Case, holds: bool, what: impl FnOnce() -> String) {
        *self.checks.entry(relation).or_default() += 1;
        if !holds {
            self.violation(relation, case, &what());
        }
    }

    /// Two figures are the same to a share.
    pub fn near(&mut self, relation: &'static str, case: &Case, found: f64, expected: f64, share: f64) {
        let holds = (found - expected).abs() <= share * expected.abs() + 1e-9;
        self.check(relation, case, holds, || format!("{found} is not {expected}"));
    }

    /// Something does not hold.
    pub fn violation(&mut self, relation: &str, case: &Case, what: &str) {
        self.violations += 1;
        if self.kept.len() < KEPT {
            self.kept.push(format!("{relation}: {what}\n  drive {}: {}", case.number, case.command_line()));
        }
    }

    /// A drive was made of these choices.
    pub fn draw(&mut self, choices: impl Iterator<Item = String>) {
        self.drives += 1;
        self.drawn.extend(choices);
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: Ledger) {
        self.drives += other.drives;
        self.refused += other.refused;
        self.runs += other.runs;
        other.checks.into_iter().for_each(|(relation, n)| *self.checks.entry(relation).or_default() += n);
        self.drawn.extend(other.drawn);
        self.violations += other.violations;
        self.kept.extend(other.kept);
        self.kept.truncate(KEPT);
    }

    /// So many drives were checked, by every relation, and all of it held.
    ///
    /// # Panics
    /// With the violations.
    pub fn assert_whole(&self, drives: u64) {
        assert_eq!(self.violations, 0, "{} relations are broken:\n{}", self.violations, self.kept.join("\n"));
        assert_eq!(self.drives, drives, "{self}");
        assert!(self.checks.len() >= 20 && self.checks.values().all(|&n| n > 0), "{self}");
    }

    /// Every profile, policy, mapping and SLC setting was there.
    ///
    /// # Panics
    /// With what is missing.
    pub fn assert_all_drawn(&self) {
        let profiles = names().map(|name| format!("profile={name}"));
        let policies = POLICIES.iter().map(|name| format!("buffer.write_policy={name}"));
        let others = [
            "ftl.mapping=page",
            "ftl.mapping=fast",
            "ftl.mapping=faster",
            "slc.when_full=fold",
            "slc.when_full=direct",
            "ftl.gc_stream=false",
        ];
        let missing: Vec<String> = profiles
            .chain(policies)
            .chain(others.map(String::from))
            .filter(|choice| !self.drawn.contains(choice))
            .collect();
        assert!(missing.is_empty(), "never drawn: {missing:?}");
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks: u64 = self.checks.values().sum();
        writeln!(
            f,
            "{} drives x loads ({} draws refused), {} runs, {checks} checks, {} violations",
            self.drives, self.refused, self.runs, self.violations
        )?;
        for (relation, n) in &self.checks {
            writeln!(f, "  {n:>8} {relation}")?;
        }
        Ok(())
    }
}
