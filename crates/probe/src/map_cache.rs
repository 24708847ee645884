//! How much of the map is at hand (the paper's figure 9: read one place of each of d sections of the drive, and again,
//! and see from which d on it is slow).
//!
//! The second pass reads another page of the same part of the map: what is found then is the map's entry and not the
//! data.

use crate::search::{Knee, Trial, knee};
use crate::session::{Session, Stop};
use crate::stat::{chance_of_below, median};
use crate::target::Request;

/// From a place to one nearby: not in the same flash page, in the same part of the map. 4 KiB of map cover 4 MiB of
/// data.
const NEARBY: u64 = 64 << 10;
/// Pairs of a place and one nearby, to see whether look-ups make a difference.
const PAIRS: u64 = 96;
/// Reads nearby one place before each trial, as the measure of what a look-up that hits costs now.
const REFERENCES: u64 = 9;
/// A look-up that misses costs at least this much more of a read.
const LOSS: f64 = 1.25;
/// Places of the second pass, at least.
const AGAIN: u64 = 48;
/// Pairs for each distance when the unit is looked for.
const UNIT_PAIRS: u64 = 15;

/// Times that both sides of the unit's edge are tried again.
const RETRIES: u32 = 3;
/// A distance at which fewer of the pairs help contradicts the others, whatever is found at the edge.
const LEAST_HELP: f64 = 0.6;

/// Random reads between two pairs, at most.
const BETWEEN_MAX: u64 = 512;

/// Result of the stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Seconds of a read whose look-up hits, and of one that misses.
    pub warm: f64,
    pub cold: f64,
    /// How sure it is that look-ups make no difference.
    pub absent: f64,
    /// The bytes that one miss brings in: the most that is certainly brought in, the least that is not.
    pub unit: Option<(u64, u64)>,
    pub unit_confidence: f64,
    pub unit_cannot: Option<String>,
    /// The search, in sections.
    pub knee: Option<Knee>,
    /// Why nothing could be measured.
    pub cannot: Option<String>,
}

/// Looks for a mapping cache.
pub(crate) fn measure(session: &mut Session<'_>) -> Result<Found, Stop> {
    let mut found = Found::default();
    if session.about.capacity < 64 * NEARBY {
        found.cannot = Some("the target is too small".into());
        return Ok(found);
    }
    let (mut colds, mut warms) = (Vec::new(), Vec::new());
    let most = session.about.capacity - 2 * NEARBY;
    for _ in 0..PAIRS {
        let place = place(session, most, 2 * NEARBY);
        let times = session.latencies(&[read(place), read(place + NEARBY)])?;
        colds.push(times[0]);
        warms.push(times[1]);
    }
    (found.warm, found.cold) = (median(&warms), median(&colds));
    let chance = chance_of_below(&warms, &colds, &mut session.rng);
    let beyond = |times: &[f64]| times.iter().filter(|time| **time > LOSS * found.warm).count() as f64 / PAIRS as f64;
    // With half of the map at hand, half of the places would be slow.
    let more = (beyond(&colds) - beyond(&warms)).max(0.0);
    if more < 0.12 {
        found.absent = 1.0 - more;
        return Ok(found);
    }
    if chance > 0.01 {
        return Ok(found);
    }
    let slow: Vec<f64> = colds.iter().copied().filter(|time| *time > LOSS * found.warm).collect();
    if slow.len() < 12 {
        found.cannot = Some(format!("of {PAIRS} places, {} are slower at first: too few to tell why", slow.len()));
        return Ok(found);
    }
    found.cold = median(&slow);
    let limit = (found.cold / found.warm).sqrt();
    session.progress(0.05);
    unit(session, limit, &mut found)?;
    session.progress(0.3);
    // Sections of less than a unit would share entries: then there are as many as the drive has units, and no more.
    let least = found.unit.map_or(4 * NEARBY, |(_, high)| high.max(4 * NEARBY));
    let sections = session.about.capacity / least;
    found.knee = Some(knee(session, sections, |session, d| trial(session, d, limit))?);
    Ok(found)
}

/// The minimum that can be read and costs one look-up.
fn read(place: u64) -> Request {
    Request::read(place, 4_096)
}

/// A random place below `most`.
fn place(session: &mut Session<'_>, most: u64, align: u64) -> u64 {
    session.rng.below((most / align).max(1)) * align
}

/// Cost of a read now when its look-up hits: one place, then others nearby.
fn reference(session: &mut Session<'_>) -> Result<f64, Stop> {
    let most = session.about.capacity - NEARBY * (REFERENCES + 1);
    let first = place(session, most, 16 * NEARBY);
    let near: Vec<Request> = (0..REFERENCES).map(|i| read(first + i * NEARBY)).collect();
    Ok(median(&session.latencies(&near)?[1..]))
}

/// How far from a place its look-up still helps. Places begin at multiples of a large power of two, at which units of
/// the map begin as well if they are powers of two; if they are not, the edge is not sharp, and is not reported.
fn unit(session: &mut Session<'_>, limit: f64, found: &mut Found) -> Result<(), Stop> {
    let capacity = session.about.capacity;
    let most = (capacity / 32).next_power_of_two();
    // Random places that are read in between, so that what was read before is at hand no more: as many as it takes.
    let mut between = 1;
    let mut share = |session: &mut Session<'_>, distance: u64| -> Result<Option<f64>, Stop> {
        // Many places, so that one is not asked for again while its entries are at hand.
        let align = (4 * distance).next_power_of_two().max(16 << 20).min(most);
        let (mut pairs, mut helped) = (0, 0);
        for _ in 0..6 * UNIT_PAIRS {
            // Away from the pair: with much of the map at hand, what lies at the distance would often be there by
            // chance.
            let first = place(session, capacity - distance - NEARBY, align);
            let (from, to) = (first.saturating_sub(capacity / 16), first + distance + capacity / 16);
            let rest = capacity.saturating_sub(NEARBY + (to - from)).max(NEARBY);
            let elsewhere: Vec<Request> = (0..between)
                .map(|_| {
                    let at = place(session, rest, NEARBY);
                    read(if at < from { at } else { (at + (to - from)).min(capacity - NEARBY) / NEARBY * NEARBY })
                })
                .collect();
            session.latencies(&elsewhere)?;
            let warm = reference(session)?;
            let times = session.latencies(&[read(first), read(first + distance)])?;
            if times[0] > limit * warm {
                pairs += 1;
                helped += u64::from(times[1] < limit * warm);
            } else {
                between = (between * 2).min(BETWEEN_MAX);
            }
            if pairs == UNIT_PAIRS {
                break;
            }
        }
        Ok((pairs >= UNIT_PAIRS / 2).then(|| helped as f64 / pairs as f64))
    };
    let (mut low, mut high) = (NEARBY, None);
    let mut worst: f64 = 1.0;
    let mut distance = 2 * NEARBY;
    while distance <= most / 4 {
        let Some(helped) = share(session, distance)? else { break };
        if helped > 0.5 {
            low = distance;
            worst = worst.min(helped);
            distance *= 2;
        } else {
            high = Some((distance, helped));
            break;
        }
    }
    let Some((mut high, mut rest)) = high else {
        found.unit_cannot = Some("no distance was found at which a look-up no longer helps the next".into());
        return Ok(());
    };
    while high - low > (low / 32).max(4_096) {
        let middle = (low + (high - low) / 2) / 4_096 * 4_096;
        let Some(helped) = share(session, middle)? else { break };
        if helped > 0.5 {
            (low, worst) = (middle, worst.min(helped));
        } else {
            (high, rest) = (middle, helped);
        }
    }
    // One bad draw among so many distances is no contradiction: both sides of the edge are tried again, in turns.
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for _ in 0..RETRIES {
        inside.extend(share(session, low)?);
        outside.extend(share(session, high)?);
    }
    let mean = |shares: &[f64], else_: f64| {
        if shares.is_empty() { else_ } else { shares.iter().sum::<f64>() / shares.len() as f64 }
    };
    if worst >= LEAST_HELP {
        (worst, rest) = (mean(&inside, worst), mean(&outside, rest));
    }
    // Chance hits: what is at hand anyway helps at any distance.
    if worst < 0.8 || worst - rest < 0.5 {
        found.unit_cannot = Some(format!(
            "the edge is not sharp: at {} KiB {:.0} % of the places help, at {} KiB {:.0} %",
            low >> 10,
            worst * 100.0,
            high >> 10,
            rest * 100.0
        ));
        return Ok(());
    }
    found.unit = Some((low, high));
    found.unit_confidence = worst.min(1.0 - rest * 0.5);
    Ok(())
}

/// Reads one place of each of `d` sections of the whole drive, then another place nearby, in the same order.
fn trial(session: &mut Session<'_>, d: u64, limit: f64) -> Result<Option<Trial>, Stop> {
    let section = session.about.capacity / d / NEARBY * NEARBY;
    if section < 2 * NEARBY {
        return Ok(None);
    }
    let warm = reference(session)?;
    let order = session.shuffled(d, 1);
    // Not always the same pages: a read cache would know them.
    let inset = session.rng.below(8) * 4_096;
    let first: Vec<Request> = order.iter().map(|i| read(i * section + inset)).collect();
    let count = order.len().min((AGAIN + d / 16) as usize);
    let again: Vec<Request> = order[..count].iter().map(|i| read(i * section + NEARBY + inset)).collect();
    let first = session.latencies(&first)?;
    let again = session.latencies(&again)?;
    Ok(Some(Trial {
        size: d,
        holds: again.iter().filter(|time| **time < limit * warm).count() as f64 / again.len() as f64,
        relative: median(&again) / warm,
        first: median(&first),
        again: median(&again),
    }))
}
