//! How data is spread over flash: two reads at once take longer when one die has to serve both (after Kim et al., ICCD
//! 2011, and Kim, Seo et al. 2012, whose clustered pages these are).
//!
//! Of a drive that was written in order, two places less than a page apart share a die; from the next page on they do
//! not, until all dies have had their turn.

use crate::session::{Session, Stop};
use crate::stat::{chance_of_below, median, quantile};
use crate::target::Request;

/// Pairs for each distance.
const PAIRS: u64 = 12;
/// Pages are looked for up to this distance.
const PAGE_MAX: u64 = 4 << 20;
/// Dies are looked for up to this many.
const DIES_MAX: u64 = 512;
/// From a place to one whose map entry is in the same part of the map, and which no flash page holds as well.
const NEARBY: u64 = 640 << 10;
/// The share of pairs at random that are not on one die, at least.
const APART: f64 = 0.3;

/// Result of the stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Bytes that follow each other on one die: the most that certainly do, the least that do not.
    pub page: Option<(u64, u64)>,
    /// Bytes after which the first die comes again.
    pub stripe: Option<u64>,
    pub confidence: f64,
    pub cannot: Option<String>,
    /// Distance, and seconds from one end to the other: for the plot.
    pub course: Vec<(u64, f64)>,
    /// Seconds from one end to the other, of pairs on one die, and of pairs at random.
    pub same: f64,
    pub apart: f64,
}

/// Looks for pages and stripes.
pub(crate) fn measure(session: &mut Session<'_>) -> Result<Found, Stop> {
    let mut found = Found::default();
    let read = session.page();
    // The reference of two dies: places at random, most of which do not share one. Of one die: the same place twice
    // would be cached; a page and the one behind it.
    let near = pairs(session, read, 4 * PAIRS)?;
    let mut far = Vec::new();
    for _ in 0..4 * PAIRS {
        far.extend(pair_at_random(session)?);
    }
    (found.same, found.apart) = (median(&near), median(&far));
    found.course.push((read, found.same));
    let chance = chance_of_below(&far, &near, &mut session.rng);
    // Below nearly all pairs on one die. Of pairs at random, some are on one die too.
    let limit = 0.8 * quantile(&near, 0.1);
    let apart = far.iter().filter(|time| **time < limit).count() as f64 / far.len().max(1) as f64;
    if chance > 0.01 || apart < APART {
        found.cannot = Some(format!(
            "two pages that follow each other, read at once, end {:.1} us apart, two at random {:.1} us: they are on \
             different dies, or cached together, or what lies between hides it",
            found.same * 1e6,
            found.apart * 1e6
        ));
        return Ok(found);
    }
    let conflict = |session: &mut Session<'_>, found: &mut Found, distance: u64| -> Result<f64, Stop> {
        let times = pairs(session, distance, PAIRS)?;
        found.course.push((distance, median(&times)));
        Ok(times.iter().filter(|time| **time > limit).count() as f64 / times.len().max(1) as f64)
    };
    let (mut low, mut high) = (read, None);
    let mut distance = 2 * read;
    while distance <= PAGE_MAX {
        if conflict(session, &mut found, distance)? > 0.5 {
            low = distance;
        } else {
            high = Some(distance);
            break;
        }
        distance *= 2;
    }
    session.progress(0.2);
    let Some(mut high) = high else {
        found.cannot = Some("two reads get in each other's way at every distance up to 4 MiB".into());
        return Ok(found);
    };
    while high - low > read {
        let middle = (low + (high - low) / 2) / read * read;
        if conflict(session, &mut found, middle)? > 0.5 { low = middle } else { high = middle }
    }
    let (below, above) = (pairs(session, low, 4 * PAIRS)?, pairs(session, high, 4 * PAIRS)?);
    let chance = chance_of_below(&above, &below, &mut session.rng);
    if chance > 0.01 {
        found.cannot = Some("where the page should end, repeats contradict each other".into());
        return Ok(found);
    }
    found.page = Some((low, high));
    found.confidence = 1.0 - chance;
    session.progress(0.4);
    // The first die's next turn: pages one by one.
    let mut dies = 2;
    while dies <= DIES_MAX && (dies + 1) * high < session.about.capacity / 4 {
        if conflict(session, &mut found, dies * high)? > 0.5 {
            // Once more, and the turn after it.
            let again = conflict(session, &mut found, dies * high)?;
            let twice = conflict(session, &mut found, 2 * dies * high)?;
            if again > 0.5 && twice > 0.5 {
                found.stripe = Some(dies * high);
                break;
            }
        }
        dies += 1;
        session.progress(0.4 + 0.6 * dies as f64 / DIES_MAX as f64);
    }
    Ok(found)
}

/// Places begin at multiples of a large power of two, at which pages of that size begin too.
fn pairs(session: &mut Session<'_>, distance: u64, count: u64) -> Result<Vec<f64>, Stop> {
    let read = session.page();
    let align = 1 << 20;
    let mut times = Vec::new();
    for _ in 0..count {
        let Some(start) = session.fresh(distance + read, align) else { break };
        // The map of both places is at hand, whatever keeps it.
        let last = session.about.capacity - read;
        let warm = [start + NEARBY, start + distance + NEARBY].map(|at| Request::read(at.min(last), read));
        session.latencies(&warm)?;
        times.push(both(session, start, start + distance)?);
    }
    Ok(times)
}

fn pair_at_random(session: &mut Session<'_>) -> Result<Option<f64>, Stop> {
    let read = session.page();
    let distance = (session.rng.below(1 << 12) + 257) * 33 * (16 << 10);
    let distance = distance % (session.about.capacity / 4) / read * read;
    let Some(start) = session.fresh(distance.max(read) + read, 64 << 10) else { return Ok(None) };
    let last = session.about.capacity - read;
    let warm = [start + NEARBY, start + distance + NEARBY].map(|at| Request::read(at.min(last), read));
    session.latencies(&warm)?;
    both(session, start, start + distance).map(Some)
}

/// Two reads at once: seconds from the end of the first to the end of the second. On one die it is what the second
/// takes there; on two, what pages of different kinds differ by.
fn both(session: &mut Session<'_>, a: u64, b: u64) -> Result<f64, Stop> {
    let read = session.page();
    let times = session.send(&[Request::read(a, read), Request::read(b, read)], 2)?;
    Ok((times[0].seconds() - times[1].seconds()).abs())
}
