//! From which size on something no longer holds: bracketed by doubling, then by halving what is between, each size
//! tried until most trials agree, both ends of the bracket verified at the end.

use crate::session::{Session, Stop};
use crate::stat::{chance_of_below, step};

/// Trials of a size: at least one less than this if all agree.
const TRIALS: usize = 3;
/// Trials of a size, at most.
const TRIALS_MAX: usize = 9;
/// Searches, at most.
const SEARCHES: usize = 3;
/// Trials of each end of the bracket, to verify it.
const VERIFIED: usize = 8;
/// A step is this part of the size, or one.
const STEP_PART: u64 = 64;
/// A chance below this is none.
const CHANCE: f64 = 0.01;
/// The share of trials at each end of the bracket that must agree.
const AGREE: f64 = 0.75;

/// Measurement at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trial {
    /// The size, in the search's own unit.
    pub size: u64,
    /// The share of requests that say that it still holds.
    pub holds: f64,
    /// Their cost relative to that of such requests at that time: it rises when it no longer holds.
    pub relative: f64,
    /// Seconds of a request of the first pass and of the second, for the plot.
    pub first: f64,
    pub again: f64,
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Knee {
    /// The largest size at which it holds, and the least at which it does not.
    pub bracket: Option<(u64, u64)>,
    /// Why there is no bracket.
    pub cannot: Option<String>,
    pub confidence: f64,
    pub trials: Vec<Trial>,
    /// It held at the largest size that was allowed.
    pub beyond: Option<u64>,
}

/// Searches for the knee from 1 to `most`. `trial` measures at a size; `None` when the target has no room for that.
pub(crate) fn knee(
    session: &mut Session<'_>,
    most: u64,
    mut trial: impl FnMut(&mut Session<'_>, u64) -> Result<Option<Trial>, Stop>,
) -> Result<Knee, Stop> {
    let mut knee = once(session, most, &mut trial)?;
    // A vote that noise has turned leads to a place that is none, and so does another one at random: a search that its
    // own verification contradicts is made anew.
    for _ in 1..SEARCHES {
        if knee.cannot.is_none() {
            break;
        }
        knee = once(session, most, &mut trial)?;
    }
    Ok(knee)
}

/// One search, and its verification.
fn once(
    session: &mut Session<'_>,
    most: u64,
    trial: &mut impl FnMut(&mut Session<'_>, u64) -> Result<Option<Trial>, Stop>,
) -> Result<Knee, Stop> {
    let mut knee = Knee::default();
    let most = most.max(1);
    let (mut low, mut high) = (0, None);
    let mut size = 1;
    let doublings = (most.max(2) as f64).log2();
    while low < most {
        match holds(session, size, &mut knee.trials, trial)? {
            Some(true) => low = size,
            Some(false) => {
                high = Some(size);
                break;
            }
            None => break,
        }
        session.progress(0.05 + 0.45 * (size as f64).log2() / doublings);
        size = (size * 2).min(most);
    }
    let Some(mut high) = high else {
        if low == 0 {
            knee.cannot = Some("the target has no room to try even the least size".into());
        } else {
            knee.beyond = Some(low);
        }
        return Ok(knee);
    };
    let gap = high - low;
    while high - low > (low / STEP_PART).max(1) {
        let middle = low + (high - low) / 2;
        match holds(session, middle, &mut knee.trials, trial)? {
            Some(true) => low = middle,
            _ => high = middle,
        }
        session.progress(0.9 - 0.4 * (high - low) as f64 / gap as f64);
    }
    if low == 0 {
        knee.cannot = Some("not even the least size holds".into());
        return Ok(knee);
    }
    verify(session, (low, high), &mut knee, trial)?;
    Ok(knee)
}

/// Whether it holds at this size, by the majority of trials. `None`: there is no room to try.
fn holds(
    session: &mut Session<'_>,
    size: u64,
    trials: &mut Vec<Trial>,
    trial: &mut impl FnMut(&mut Session<'_>, u64) -> Result<Option<Trial>, Stop>,
) -> Result<Option<bool>, Stop> {
    let mut votes = 0i32;
    for i in 1..=TRIALS_MAX {
        let Some(one) = trial(session, size)? else { return Ok(None) };
        trials.push(one);
        votes += if one.holds > 0.5 { 1 } else { -1 };
        let all = votes.unsigned_abs() as usize == i;
        if i + 1 >= TRIALS && (all || i >= TRIALS && votes.abs() >= 2) {
            break;
        }
    }
    Ok(Some(votes > 0))
}

/// Both ends of the bracket once more: they must differ beyond chance, each as it was; and all that was measured must
/// have its step there.
fn verify(
    session: &mut Session<'_>,
    (low, high): (u64, u64),
    knee: &mut Knee,
    trial: &mut impl FnMut(&mut Session<'_>, u64) -> Result<Option<Trial>, Stop>,
) -> Result<(), Stop> {
    let mut ends = [Vec::new(), Vec::new()];
    // In turns, so that what drifts drifts for both.
    for _ in 0..VERIFIED {
        for (end, size) in ends.iter_mut().zip([low, high]) {
            end.extend(trial(session, size)?);
        }
    }
    ends.iter().for_each(|end| knee.trials.extend(end));
    let [below, above] = ends;
    let relative = |trials: &[Trial]| trials.iter().map(|one| one.relative).collect::<Vec<_>>();
    let chance = chance_of_below(&relative(&below), &relative(&above), &mut session.rng);
    let agree = |trials: &[Trial], holds: bool| {
        trials.iter().filter(|one| (one.holds > 0.5) == holds).count() as f64 / trials.len().max(1) as f64
    };
    let (holding, failing) = (agree(&below, true), agree(&above, false));
    if chance > CHANCE || holding.min(failing) < AGREE {
        knee.cannot = Some(format!(
            "there is no clear knee: just below the place where it should be {:.0} % of the trials still hold, just \
             above {:.0} % do not",
            holding * 100.0,
            failing * 100.0
        ));
        return Ok(());
    }
    knee.trials.sort_by_key(|one| one.size);
    let levels: Vec<f64> = knee.trials.iter().map(|one| one.relative).collect();
    let fit = step(&levels, 2, &mut session.rng).filter(|step| step.chance < CHANCE && step.before < step.after);
    let at = fit.map(|step| knee.trials[step.at].size);
    if !at.is_some_and(|at| low < at && at <= high) {
        knee.cannot = Some(match at {
            Some(at) => format!(
                "two knees contradict each other: at {low} by bisection, and before {at} by all that was measured"
            ),
            None => "all that was measured has no step".into(),
        });
        return Ok(());
    }
    knee.bracket = Some((low, high));
    knee.confidence = (1.0 - chance) * holding.min(failing);
    Ok(())
}
