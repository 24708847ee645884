//! How much data is read again without flash (the paper's figure 4: read, read again, and see from which size on it is
//! slow).

use crate::search::{Knee, Trial, knee};
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

/// Result of the stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Seconds of a page that was just read, and of one that was not.
    pub hit: f64,
    pub miss: f64,
    /// How sure it is that there are no hits: 0 when there are, or when it stays unknown.
    pub absent: f64,
    /// The search, in pages, when there are hits.
    pub knee: Option<Knee>,
    /// Why nothing could be measured.
    pub cannot: Option<String>,
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
    let none = gains.iter().filter(|gain| **gain > GAIN).count() as f64 / gains.len() as f64;
    if none > 0.8 {
        found.absent = none;
        return Ok(found);
    }
    if chance > 0.01 || none > 0.2 {
        found.cannot = Some(format!(
            "of pages that were just read, {:.0} % are read faster: neither all nor none",
            (1.0 - none) * 100.0
        ));
        return Ok(found);
    }
    // Half-way between a hit and a miss, as ratios go: what drifts, drifts with the references of each trial.
    let limit = (found.hit / found.miss).sqrt();
    let most = most.min(session.about.capacity / 4) / page;
    found.knee = Some(knee(session, most, |session, pages| trial(session, pages, limit))?);
    Ok(found)
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

/// Reads `pages` that were not read for long, then again in the same order: a cache that is too small for all of them
/// has let go of each before its turn comes.
fn trial(session: &mut Session<'_>, pages: u64, limit: f64) -> Result<Option<Trial>, Stop> {
    let page = session.page();
    let around = (REFERENCES + 1) * APART;
    let Some(start) = session.fresh((pages + around) * page, APART * page) else { return Ok(None) };
    let after = start + pages.next_multiple_of(APART) * page;
    let references: Vec<Request> =
        session.shuffled(REFERENCES, 1).iter().map(|i| Request::read(after + i * APART * page, page)).collect();
    let reference = median(&session.latencies(&references)?[1..]);
    let order = session.shuffled(pages, GROUP.min(pages));
    let requests: Vec<Request> = order.iter().map(|i| Request::read(start + i * page, page)).collect();
    let first = session.latencies(&requests)?;
    let again = session.latencies(&requests[..requests.len().min((AGAIN + pages / 16) as usize)])?;
    let hits = again.iter().filter(|time| **time < limit * reference).count();
    Ok(Some(Trial {
        size: pages,
        holds: hits as f64 / again.len() as f64,
        relative: median(&again) / reference,
        first: median(&first),
        again: median(&again),
    }))
}
