//! A probe on a terminal.

use super::{Answer, ProbeRecord, Stage, Verdict};
use crate::document::wrapped;
use std::fmt::Write;
use tidewater_base::units::{bytes, plural_exact, seconds};

/// Findings, at most `width` characters wide where their words allow it.
pub fn summary(record: &ProbeRecord, width: usize) -> String {
    let mut out = String::new();
    let target = &record.target;
    let head = format!("{}: {} of {}", target.name, target.kind, bytes(target.capacity_bytes));
    wrapped(&mut out, "", "    ", &head, width);
    for stage in &record.stages {
        one(&mut out, stage, width);
    }
    if let Some(why) = &record.ended_early {
        out.push('\n');
        wrapped(&mut out, "ENDED EARLY  ", "             ", why, width);
    }
    out
}

fn one(out: &mut String, stage: &Stage, width: usize) {
    out.push('\n');
    let cost = format!("{} ({}, {})", stage.title, plural_exact(stage.requests, "request"), seconds(stage.seconds));
    wrapped(out, "", "    ", if stage.requests > 0 { &cost } else { &stage.title }, width);
    if let Some(why) = &stage.skipped {
        wrapped(out, "  skipped  ", "           ", why, width);
    }
    for verdict in &stage.verdicts {
        wrapped(out, "  ", "    ", &headline(verdict), width);
        wrapped(out, "    ", "    ", &verdict.because, width);
    }
    for note in &stage.notes {
        wrapped(out, "  note  ", "        ", note, width);
    }
}

/// A verdict in a few words: what, the answer, how sure.
pub(super) fn headline(verdict: &Verdict) -> String {
    let mut text = format!("{}: ", verdict.what);
    match (verdict.answer, verdict.bytes, &verdict.place) {
        (Answer::CannotTell, ..) => text.push_str("cannot tell"),
        (Answer::Absent, ..) => text.push_str("none seen"),
        (Answer::Found, _, Some(place)) => text.push_str(place),
        (Answer::Found, Some(size), None) => text.push_str(&bytes(size)),
        (Answer::Found, None, None) => text.push_str("there"),
    }
    if let (Answer::Found, Some([low, high])) = (verdict.answer, verdict.range_bytes)
        && low < high
    {
        let _ = write!(text, ", within {} to {}", bytes(low), bytes(high));
    }
    if verdict.answer != Answer::CannotTell {
        let _ = write!(text, " (confidence {:.1} %)", verdict.confidence * 100.0);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn the_verdicts_stand_in_the_text() {
        let mut record = record();
        let text = summary(&record, 80);
        assert!(text.contains("read cache: 32 KiB, within 32 KiB to 36 KiB (confidence 99.0 %)"), "{text}");
        record.stages[0].verdicts[0].answer = Answer::CannotTell;
        record.ended_early = Some("interrupted".into());
        let text = summary(&record, 80);
        assert!(text.contains("read cache: cannot tell\n"), "{text}");
        assert!(text.contains("ENDED EARLY  interrupted"), "{text}");
    }
}
