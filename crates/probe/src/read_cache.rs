//! How much data is read again without flash (the paper's figure 4: read, read again, and see from which size on it is slow).

use crate::session::{Session, Stop};
use crate::stat::{chance_of_below, median};
use crate::target::Request;

/// Pages between two that no flash page and no unit of a cache holds together.
const APART: u64 = 16;
/// Pages that are read twice at once to see what a hit is.
const TRIED: u64 = 48;
/// Reads of pages nearby, before each trial: they warm the map, and are the measure of what a miss is now.
const REFERENCES: u64 = 10;
/// Pages that follow each other in the order of a trial, so that units larger than a page are asked for together.
const GROUP: u64 = 4;
/// A hit is at most this share of a miss: what saves less is another part of the way, as a look-up in the map.
const GAIN: f64 = 0.8;
/// Pages of the second pass, at least: the first to be read again are the first to be gone.
const AGAIN: u64 = 64;
/// Trials of a size: so many, then more until most agree.
const TRIALS: usize = 3;
/// Trials of a size, at most.
const TRIALS_MAX: usize = 9;
/// Of the size that is told, a step is this part, or a page.
const STEP_PART: u64 = 64;

/// What was measured at one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trial {
    pub bytes: u64,
    /// Median seconds of a page at the first pass, and at the second.
    pub first: f64,
    pub again: f64,
    /// The share of pages that the second pass found.
    pub hits: f64,
    /// Median of the second pass against what a miss is now.
    pub relative: f64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// The largest size that stays, and the least that does not.
    pub bracket: Option<(u64, u64)>,
    /// Why there is no bracket although hits were seen.
    pub cannot: Option<String>,
    /// Seconds of a hit and of a miss.
    pub hit: f64,
    pub miss: f64,
    pub confidence: f64,
    pub trials: Vec<Trial>,
    /// The largest size that was tried.
    pub tried: u64,
}

/// Looks for a read cache of at most `most` bytes.
pub(crate) fn measure(session: &mut Session<'_>, most: u64) -> Result<Found, Stop> {
    let page = session.page();
    let mut found = Found::default();
    let Some((hits, misses)) = calibrate(session)? else {
        found.cannot = Some("the target is too small to find pages that were not read before".into());
        return Ok(found);
    };
    (found.hit, found.miss) = (median(&hits), median(&misses));
    let chance = chance_of_below(&hits, &misses, &mut session.rng);
    // Page by page: pages of one kind are read faster than those of another.
    let gains: Vec<f64> = hits.iter().zip(&misses).map(|(hit, miss)| hit / miss).collect();
    if chance > 0.01 || median(&gains) > GAIN {
        found.confidence = gains.iter().filter(|gain| **gain > GAIN).count() as f64 / gains.len() as f64;
        return Ok(found);
    }
    // Half-way between a hit and a miss, as ratios go: what drifts, drifts with the references of each trial.
    let limit = (found.hit / found.miss).sqrt();
    let most = most.min(session.about.capacity / 4) / page;
    let (mut low, mut high) = (0, None);
    let mut pages = 1;
    while pages <= most {
        found.tried = pages * page;
        if stays(session, pages, limit, &mut found.trials)? {
            low = pages;
        } else {
            high = Some(pages);
            break;
        }
        pages *= 2;
        session.progress(0.05 + 0.3 * (pages as f64).log2() / (most as f64).log2().max(1.0));
    }
    let Some(mut high) = high else {
        found.cannot = Some("whatever was read was found again, up to the largest size that was tried".into());
        return Ok(found);
    };
    if low == 0 {
        found.cannot =
            Some("a page that is read twice at once is found, one that is read a little later is not".into());
        return Ok(found);
    }
    while high - low > (low / STEP_PART).max(1) {
        let middle = low + (high - low) / 2;
        if stays(session, middle, limit, &mut found.trials)? {
            low = middle;
        } else {
            high = middle;
        }
        session.progress(0.9 - 0.5 * (high - low) as f64 / low as f64);
    }
    verify(session, (low, high), limit, &mut found)?;
    Ok(found)
}

/// Both sides of the bracket once more, fresh: they must differ beyond chance, each as it was.
fn verify(session: &mut Session<'_>, (low, high): (u64, u64), limit: f64, found: &mut Found) -> Result<(), Stop> {
    let page = session.page();
    let mut of_size = |pages: u64, found: &mut Found| -> Result<Vec<Trial>, Stop> {
        let mut trials = Vec::new();
        for _ in 0..8 {
            let Some(trial) = trial(session, pages, limit)? else { break };
            trials.push(trial);
        }
        found.trials.extend(&trials);
        Ok(trials)
    };
    let (below, above) = (of_size(low, found)?, of_size(high, found)?);
    let relative = |trials: &[Trial]| trials.iter().map(|one| one.relative).collect::<Vec<_>>();
    let agree = |trials: &[Trial], stays: bool| {
        trials.iter().filter(|one| (one.hits > 0.5) == stays).count() as f64 / trials.len().max(1) as f64
    };
    let chance = chance_of_below(&relative(&below), &relative(&above), &mut session.rng);
    let agreement = agree(&below, true).min(agree(&above, false));
    if chance > 0.01 || agreement < 0.75 {
        found.cannot = Some(format!(
            "hits end gradually: at {} KiB {:.0} % of the trials still find the data, at {} KiB {:.0} % do not",
            (low * page) >> 10,
            agree(&below, true) * 100.0,
            (high * page) >> 10,
            agree(&above, false) * 100.0
        ));
        return Ok(());
    }
    found.bracket = Some((low * page, high * page));
    found.confidence = (1.0 - chance) * agreement;
    Ok(())
}

/// Seconds of second reads and of first ones.
type Twice = (Vec<f64>, Vec<f64>);

/// Pages that are read twice at once: seconds of the second reads, and of the first.
fn calibrate(session: &mut Session<'_>) -> Result<Option<Twice>, Stop> {
    let page = session.page();
    let region = (TRIED + 1) * APART * page;
    let Some(start) = session.fresh(region, APART * page) else { return Ok(None) };
    let order = session.shuffled(TRIED + 1, 1);
    let twice: Vec<Request> = order.iter().flat_map(|i| [Request::read(start + i * APART * page, page); 2]).collect();
    let times = session.latencies(&twice)?;
    // The very first read may have to bring in the map.
    let (misses, hits) = times[2..].chunks_exact(2).map(|pair| (pair[0], pair[1])).unzip();
    Ok(Some((hits, misses)))
}

/// Whether `pages` that were read are found again, by the majority of trials.
fn stays(session: &mut Session<'_>, pages: u64, limit: f64, trials: &mut Vec<Trial>) -> Result<bool, Stop> {
    let mut votes = 0i32;
    for i in 0..TRIALS_MAX {
        let Some(trial) = trial(session, pages, limit)? else { return Ok(false) };
        trials.push(trial);
        votes += if trial.hits > 0.5 { 1 } else { -1 };
        let clear = votes.unsigned_abs() as usize == i + 1 && i + 1 >= TRIALS - 1;
        if clear || i + 1 >= TRIALS && votes.abs() >= 2 {
            break;
        }
    }
    Ok(votes > 0)
}

/// Reads `pages` that were not read for long, then again in the same order: a cache that is too small for all of them has let go
/// of each before its turn comes.
fn trial(session: &mut Session<'_>, pages: u64, limit: f64) -> Result<Option<Trial>, Stop> {
    let page = session.page();
    let group = GROUP.min(pages);
    let around = (REFERENCES + 1) * APART;
    let Some(start) = session.fresh((pages + around) * page, APART * page) else { return Ok(None) };
    let references: Vec<Request> = session
        .shuffled(REFERENCES, 1)
        .iter()
        .map(|i| Request::read(start + (pages.next_multiple_of(APART) + i * APART) * page, page))
        .filter(|request| request.offset + page <= start + (pages + around) * page)
        .collect();
    let reference = median(&session.latencies(&references)?[1..]);
    let order = session.shuffled(pages, group);
    let requests: Vec<Request> = order.iter().map(|i| Request::read(start + i * page, page)).collect();
    let first = session.latencies(&requests)?;
    let again = session.latencies(&requests[..requests.len().min((AGAIN + pages / 16) as usize)])?;
    let limit = limit * reference;
    Ok(Some(Trial {
        bytes: pages * page,
        first: median(&first),
        again: median(&again),
        hits: again.iter().filter(|time| **time < limit).count() as f64 / again.len() as f64,
        relative: median(&again) / reference,
    }))
}
