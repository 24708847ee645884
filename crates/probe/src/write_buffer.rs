//! How much the drive takes before it makes the host wait for flash (the paper's figure 7: fill, flush, and see from which size on
//! a write is slow).
//!
//! Instead of one request of each size, a burst of small ones goes to an empty buffer: the one that has to wait tells its size. What the
//! flash drains meanwhile is measured at two rates, and taken off.

use crate::session::{Session, Stop};
use crate::stat::{chance_of_below, median};
use crate::target::{Request, Timed};
use tidewater_base::Duration;

/// Bursts of one kind.
const BURSTS: usize = 5;
/// The first burst, in bytes.
const FIRST: u64 = 256 << 10;
/// A request waits for flash when it takes so many times what the first ones take.
const WAITS: f64 = 4.0;
/// Requests at once in the faster bursts.
const FAST: u32 = 8;
/// What the drive is left alone after a flush, so that what it does behind is done.
const REST: Duration = Duration::from_ms(20);

/// A burst size, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Burst {
    /// Bytes of a request, and how many of them at once.
    pub request: u64,
    pub depth: u32,
    /// Bytes that were taken before the host had to wait: the median of the bursts, the lowest and the highest.
    pub taken: f64,
    pub spread: [f64; 2],
    /// Bytes a second before and after.
    pub before: f64,
    pub after: f64,
    /// The chance that there is no difference before and after.
    pub chance: f64,
    /// The share of bursts that waited at all.
    pub waiting: f64,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Bytes: the best estimate, the least and the most.
    pub size: Option<(u64, [u64; 2])>,
    pub confidence: f64,
    pub cannot: Option<String>,
    /// How sure it is that nothing is buffered.
    pub absent: f64,
    pub bursts: Vec<Burst>,
    /// Latencies of one burst, for the plot: bytes written before, seconds.
    pub course: Vec<(f64, f64)>,
    /// Seconds of a single write of a page to an empty buffer, and of a read of a page from flash.
    pub write: f64,
    pub read: f64,
}

/// Looks for a write buffer of at most `most` bytes. What is on the drive is overwritten.
pub(crate) fn measure(session: &mut Session<'_>, most: u64) -> Result<Found, Stop> {
    let mut found = Found::default();
    let most = most.min(session.about.capacity / 4);
    single(session, &mut found)?;
    // A write that takes as long as flash takes is not buffered: at least a page is programmed while the host waits.
    let mut bytes = FIRST.min(most);
    let rough = loop {
        let request = (bytes / 64).next_power_of_two().clamp(session.page(), session.about.largest.min(64 << 10));
        let burst = bursts(session, bytes, (request, 1), 3, &mut found)?;
        session.progress(0.4 * (bytes as f64 / FIRST as f64).log2() / (most as f64 / FIRST as f64).log2().max(1.0));
        match burst {
            Some(burst) if burst.waiting > 0.6 => break burst,
            _ if bytes >= most => {
                found.cannot = Some(format!(
                    "{} MiB were written without having to wait: the flash keeps pace with a host that sends one request at a time",
                    bytes >> 20
                ));
                return Ok(found);
            }
            _ => bytes = (bytes * 2).min(most),
        }
    };
    if rough.taken <= rough.request as f64 {
        // The very first waits already.
        let slow = found.write > 2.0 * found.read;
        found.absent = if slow { 0.95 } else { 0.0 };
        found.cannot = (!slow).then(|| "the first write waits already, and takes no longer than a read".into());
        return Ok(found);
    }
    // Two rates, with requests so small that the place is told well: one at a time, and several.
    let request =
        ((rough.taken / 128.0) as u64).next_power_of_two().clamp(session.page(), session.about.largest.min(16 << 10));
    let bytes = ((rough.taken * 1.5) as u64).max(rough.taken as u64 + (1 << 20)).next_multiple_of(request);
    let mut pair = Vec::new();
    for (i, depth) in [FAST, 1].into_iter().enumerate() {
        pair.extend(bursts(session, bytes.min(session.about.capacity / 2), (request, depth), BURSTS, &mut found)?);
        session.progress(0.6 + 0.2 * i as f64);
    }
    conclude(session, &pair, &mut found);
    Ok(found)
}

/// What one write and one read take when nothing else goes on.
fn single(session: &mut Session<'_>, found: &mut Found) -> Result<(), Stop> {
    let page = session.page();
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        settle(session)?;
        let Some(place) = session.fresh(64 * page, 16 * page) else { return Ok(()) };
        reads.push(session.latencies(&[Request::read(place, page)])?[0]);
        writes.push(session.latencies(&[Request::write(place + 32 * page, page)])?[0]);
    }
    (found.write, found.read) = (median(&writes), median(&reads));
    Ok(())
}

/// The buffer is empty and the flash idle.
fn settle(session: &mut Session<'_>) -> Result<(), Stop> {
    session.latencies(&[Request::flush()])?;
    session.idle(REST)
}

/// Several bursts of `bytes` in requests of `request` bytes, `depth` at once, each to an empty buffer.
fn bursts(
    session: &mut Session<'_>,
    bytes: u64,
    (request, depth): (u64, u32),
    count: usize,
    found: &mut Found,
) -> Result<Option<Burst>, Stop> {
    let n = (bytes / request) as usize;
    let mut courses: Vec<Vec<f64>> = Vec::new();
    for _ in 0..count {
        settle(session)?;
        let Some(start) = session.fresh(n as u64 * request, 64 << 10) else { return Ok(None) };
        let requests: Vec<Request> = (0..n as u64).map(|i| Request::write(start + i * request, request)).collect();
        let times = session.send(&requests, depth)?;
        courses.push(times.iter().map(Timed::seconds).collect());
    }
    // Place by place over all bursts: an outlier is in one of them.
    let middle: Vec<f64> =
        (0..n).map(|i| median(&courses.iter().map(|course| course[i]).collect::<Vec<_>>())).collect();
    let base = median(&middle[..(n / 16).max(4).min(n)]);
    let limit = WAITS * base;
    let rate = |seconds: f64| f64::from(depth) * request as f64 / seconds;
    // In each burst, the first request that waits and is not alone in that: what follows takes long on the whole.
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let window = ((128 << 10) / request).clamp(2, 64) as usize;
    let stalls: Vec<usize> = courses
        .iter()
        .filter_map(|course| {
            (0..n).find(|&i| {
                let waits = course[i] > limit;
                // What comes next has to wait again and again, in this burst and in the others.
                let next = &course[(i + 1).min(n)..(i + 1 + 4 * window).min(n)];
                let all = &middle[i.saturating_sub(1)..(i + 1 + 4 * window).min(n)];
                waits && mean(next).max(mean(all)) > limit && mean(all) > limit / 2.0
            })
        })
        .collect();
    found.course = middle.iter().enumerate().map(|(i, time)| ((i as u64 * request) as f64, *time)).collect();
    let waiting = stalls.len() as f64 / count as f64;
    if stalls.is_empty() {
        return Ok(Some(Burst {
            request,
            depth,
            taken: 0.0,
            spread: [0.0; 2],
            before: rate(base),
            after: rate(base),
            chance: 1.0,
            waiting,
        }));
    }
    let places: Vec<f64> = stalls.iter().map(|at| (*at as u64 * request) as f64).collect();
    let at = median(&stalls.iter().map(|at| *at as f64).collect::<Vec<_>>()) as usize;
    let rates: Vec<f64> = courses.iter().map(|course| rate(mean(&course[at..]))).collect();
    // Sums over windows: waiting comes in bunches, as flash takes rows.
    let sums = |part: &[f64]| part.chunks(window).filter(|chunk| chunk.len() == window).map(mean).collect::<Vec<_>>();
    let (before, after) = (sums(&middle[..at]), sums(&middle[at..]));
    let chance = if at < 2 * window { 0.0 } else { chance_of_below(&before, &after, &mut session.rng) };
    let burst = Burst {
        request,
        depth,
        taken: median(&places),
        spread: [places.iter().copied().fold(f64::INFINITY, f64::min), places.iter().copied().fold(0.0, f64::max)],
        before: rate(base),
        after: median(&rates),
        chance,
        waiting,
    };
    found.bursts.push(burst);
    Ok(Some(burst))
}

/// From bursts at two rates: what would be taken by a buffer that nothing leaves meanwhile.
///
/// What leaves does so in time: a burst that takes longer finds more room. How much by the time the faster one waits cannot be told
/// from where the drive begins to let pages go: between nothing, and what the difference of both bursts says for all of its time.
fn conclude(session: &mut Session<'_>, pair: &[Burst], found: &mut Found) {
    let clear: Vec<&Burst> = pair.iter().filter(|one| one.waiting > 0.75 && one.chance < 0.01).collect();
    let [fast, slow] = clear[..] else {
        found.cannot = Some("not all bursts have to wait, or waiting is no different from what came before".into());
        return;
    };
    let time = |one: &Burst| one.taken / one.before;
    let drains = ((slow.taken - fast.taken) / (time(slow) - time(fast)).max(1e-9)).clamp(0.0, fast.after);
    let left = if time(slow) > 1.1 * time(fast) { drains * time(fast) } else { fast.after * time(fast) };
    let best = fast.taken - left / 2.0;
    // What repeats scatter by, and a request: one that waits has been taken in part.
    let scatter = (fast.spread[1] - fast.spread[0]).max(fast.request as f64);
    if scatter > 0.25 * fast.taken || left > 0.25 * fast.taken {
        found.cannot = Some(format!(
            "the edge is not sharp: bursts are held up after {:.0} to {:.0} KiB, and up to {:.0} KiB may have left meanwhile",
            fast.spread[0] / 1024.0,
            fast.spread[1] / 1024.0,
            left / 1024.0
        ));
        return;
    }
    let page = session.page();
    let round = |bytes: f64| (bytes / page as f64).round() as u64 * page;
    let half = left / 2.0 + scatter;
    found.size = Some((round(best), [round((best - half).max(0.0)), round(best + half)]));
    found.confidence = (1.0 - fast.chance.max(slow.chance)) * fast.waiting.min(slow.waiting);
}
