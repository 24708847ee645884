//! A power cut changes nothing before it, and loses nothing that was promised.

use crate::relations::cases::Case;
use crate::relations::ledger::Ledger;
use crate::relations::rig::{Run, serve};
use tidewater_base::{Duration, Rng};
use tidewater_core::memory::{Use, place};

/// Cuts the power in the midst of a run, for two cases in three.
pub fn check(case: &Case, run: &Run, ledger: &mut Ledger) {
    if case.number.is_multiple_of(3) {
        return;
    }
    let mut rng = Rng::new(case.number, b"cut");
    let whole_ps = run.rows.iter().map(|row| row.end_ps).max().unwrap_or(0);
    let at_ps = whole_ps / 10 + rng.below((whole_ps * 8 / 10).max(1));
    let Some(cut) = serve(case, ledger, |options| options.power_cut = Some(Duration::from_ps(at_ps))) else { return };
    let rest = &run.rows[cut.rows.len().min(run.rows.len())..];
    let same = run.rows.starts_with(&cut.rows) && rest.iter().all(|row| row.end_ps >= at_ps);
    ledger.check("what completed before a power cut keeps its latency", case, same, || {
        format!("cut after {at_ps} ps: the {} requests before it differ", cut.rows.len())
    });
    let Some(lost) = cut.record.recovery.as_ref().and_then(|recovery| recovery.pages_lost) else {
        return ledger.violation("a power cut is recovered from", case, "the record has no recovery");
    };
    let survives = place(&case.profile).is_ok_and(|placed| placed.survives(Use::WriteBuffer));
    if case.load.fua || survives || case.profile.buffer.write_policy == "none" {
        ledger.check("nothing is lost that is durable when it completes", case, lost == 0, || {
            format!("cut after {at_ps} ps: {lost} pages lost")
        });
    } else if case.load.flushed && !matches!(case.profile.buffer.write_policy.as_str(), "bplru" | "cbm") {
        // Those two rewrite pages that flash has, to complete a block, and such a page counts as lost on its way.
        // The last write of each job may have completed, and its flush not.
        let pages = |bytes: u64| bytes / u64::from(case.profile.ftl.unit_size) + 1;
        let most = case.load.jobs.len() as u64 * cut.rows.iter().map(|row| pages(row.bytes)).max().unwrap_or(0);
        ledger.check("a flush leaves no more to lose than came after it", case, lost <= most, || {
            format!("cut after {at_ps} ps: {lost} pages lost, {most} can have been")
        });
    }
    cut.device.ftl().assert_consistent();
}
