//! How much the drive takes before it makes the host wait for flash (the paper's figure 7: fill, flush, and see from
//! which size on a write is slow).
//!
//! Instead of one request of each size, a burst of small ones goes to an empty buffer: the one that has to wait tells
//! its size. What the flash drains meanwhile is measured at several rates, and taken off.

use crate::session::{Session, Stop};
use crate::stat::{chance_of_below, median};
use crate::target::{Request, Timed};
use tidewater_base::Duration;

/// A size that is not known within this part of it is not reported.
const SHARP: f64 = 0.0625;
/// Bursts of one kind.
const BURSTS: usize = 5;
/// Fast bursts: the size follows from them.
const FAST_BURSTS: usize = 9;
/// The first burst, in bytes.
const FIRST: u64 = 256 << 10;
/// A request waits for flash when it takes so many times what the first ones take.
const WAITS: f64 = 4.0;
/// A wait that takes less than the usual one by this factor is not one for flash.
const SHORT: f64 = 4.0;
/// A change that is more likely than none by less than this, as a natural logarithm, is none: one in 10,000 by chance
/// at one place.
const GAIN: f64 = 9.0;
/// The same for what follows the first hold-up: one in 50 by chance.
const GOES_ON: f64 = 4.0;
/// Requests at once in the faster bursts.
const FAST: u32 = 8;
/// Requests at once in bursts between those and single requests.
const MIDDLE: u32 = 2;
/// The part of the drive that bursts overwrite, at most.
const PART_MAX: u64 = 16 << 30;
/// It is deallocated in pieces of so many bytes.
const PIECE: u64 = 1 << 20;
/// Idle time of the drive after deallocations.
const REST_LONG: Duration = Duration::from_ms(200);
/// Idle time of the drive after a flush, so that its background work is done.
const REST: Duration = Duration::from_ms(20);

/// A burst size, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Burst {
    /// Bytes of a request, and how many of them at once.
    pub request: u64,
    pub depth: u32,
    /// Bytes that were taken before the host had to wait: of the bursts the largest but one, and from the median on.
    pub taken: f64,
    pub range: [f64; 2],
    /// Bytes a second before and after.
    pub before: f64,
    pub after: f64,
    /// By how much a change there is more likely than none, as a natural logarithm.
    pub gain: f64,
}

/// Result of the stage.
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
    /// Seconds of a request at the start of the last bursts.
    pub base: f64,
    /// Seconds of a single write of a page to an empty buffer, and of a read of a page from flash.
    pub write: f64,
    pub read: f64,
}

/// Looks for a write buffer of at most `most` bytes, [`FIRST`] at least. A part of the drive is deallocated first,
/// overwritten by the bursts, and written anew at the end: so nothing has to be collected while they run, and it is
/// left full.
pub(crate) fn measure(session: &mut Session<'_>, most: u64) -> Result<Found, Stop> {
    let capacity = session.about.capacity;
    let part = (capacity / 2).min(PART_MAX) / PIECE * PIECE;
    let first = (capacity - part) / PIECE * PIECE;
    let mut found = Found::default();
    let chance = single(session, &mut found)?;
    if session.about.deallocates {
        for piece in 0..part / PIECE {
            session.send(&[Request::deallocate(first + piece * PIECE, PIECE)], 1)?;
        }
        settle(session)?;
        session.idle(REST_LONG)?;
    }
    session.stay_within(first, first + part);
    // Of a target that can be probed at all, a part is four times the first burst and more.
    let done = search(session, most.max(FIRST).min(part / 4), chance, &mut found);
    session.stay_within(0, capacity);
    done?;
    let largest = session.about.largest.min(PIECE);
    let refill: Vec<Request> = (0..part / largest).map(|i| Request::write(first + i * largest, largest)).collect();
    session.send(&refill, 1)?;
    settle(session)?;
    Ok(found)
}

/// The bursts. `chance`: that a write takes no longer than a read.
fn search(session: &mut Session<'_>, most: u64, chance: f64, found: &mut Found) -> Result<(), Stop> {
    if found.write > 1.5 * found.read && chance < 0.01 {
        // At least a page is programmed while the host waits, and a program takes longer than a read.
        found.absent = 1.0 - chance;
        return Ok(());
    }
    let mut bytes = FIRST;
    let (rough, request, enough, fast) = loop {
        let request = (bytes / 64).next_power_of_two().clamp(session.page(), session.about.largest.min(64 << 10));
        let burst = bursts(session, bytes, (request, 1), found)?;
        session.progress(0.4 * (bytes as f64 / FIRST as f64).log2() / (most as f64 / FIRST as f64).log2().max(1.0));
        if let Some(rough) = burst {
            // At several rates, with requests so small that the place is found well.
            let request = ((rough.taken / 128.0) as u64)
                .next_power_of_two()
                .clamp(session.page(), session.about.largest.min(16 << 10));
            let enough = ((rough.taken * 1.5) as u64).max(rough.taken as u64 + (1 << 20)).min(4 * most);
            let enough = enough.next_multiple_of(request);
            let fast = bursts(session, enough, (request, FAST), found)?;
            // What held up the slow burst was not flash if a faster one does not have to wait there.
            if fast.is_some() || bytes >= most {
                break (rough, request, enough, fast);
            }
        } else if bytes >= most {
            found.cannot = Some(format!(
                "{} were written without having to wait, and more was not tried: the buffer is larger, or the flash \
                 keeps pace with a host that sends one request at a time",
                tidewater_base::units::bytes(bytes)
            ));
            return Ok(());
        }
        bytes = (bytes * 2).min(most);
    };
    session.progress(0.6);
    let slower = [bursts(session, enough, (request, MIDDLE), found)?, bursts(session, enough, (request, 1), found)?];
    session.progress(0.8);
    // Requests so small may come slowly enough for flash to keep pace.
    let slower: Vec<Burst> = slower.into_iter().flatten().collect();
    conclude(session, fast, if slower.is_empty() { std::slice::from_ref(&rough) } else { &slower }, found);
    Ok(())
}

/// Times one write and one read on an idle drive. Returns the chance that writes do not take longer.
fn single(session: &mut Session<'_>, found: &mut Found) -> Result<f64, Stop> {
    let page = session.page();
    let (mut writes, mut reads) = (Vec::new(), Vec::new());
    for _ in 0..15 {
        settle(session)?;
        let Some(place) = session.fresh(64 * page, 16 * page) else { return Ok(1.0) };
        // The first read may have to bring in the map.
        reads.push(session.latencies(&[Request::read(place + 16 * page, page), Request::read(place, page)])?[1]);
        writes.push(session.latencies(&[Request::write(place + 32 * page, page)])?[0]);
    }
    (found.write, found.read) = (median(&writes), median(&reads));
    Ok(chance_of_below(&reads, &writes, &mut session.rng))
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
    found: &mut Found,
) -> Result<Option<Burst>, Stop> {
    let n = (bytes / request) as usize;
    let mut courses: Vec<Vec<f64>> = Vec::new();
    let count = if depth == 1 { BURSTS } else { FAST_BURSTS };
    for _ in 0..count {
        settle(session)?;
        let Some(start) = session.fresh(n as u64 * request, 64 << 10) else { return Ok(None) };
        let requests: Vec<Request> = (0..n as u64).map(|i| Request::write(start + i * request, request)).collect();
        let times = session.send(&requests, depth)?;
        courses.push(times.iter().map(Timed::seconds).collect());
    }
    let of = |i: usize| courses.iter().map(move |course| course[i]);
    let early: Vec<f64> = (0..(n / 16).max(4).min(n)).flat_map(of).collect();
    let base = median(&early);
    let middle = |i: usize| median(&of(i).collect::<Vec<_>>());
    found.course = (0..n).map(|i| ((i as u64 * request) as f64, middle(i))).collect();
    found.base = base;
    // Where the drive's memory is busy with a group of pages that leaves at once, it holds up what is under way for a
    // while, but not for as long as flash does: what counts is near to what waiting takes at the end of the bursts.
    let late: Vec<f64> =
        courses.iter().flat_map(|course| &course[n - n / 4..]).copied().filter(|time| *time > WAITS * base).collect();
    let limit = if late.is_empty() { WAITS * base } else { (median(&late) / SHORT).max(WAITS * base) };
    // Something else on the host holds requests up too, but now and then; a full buffer does so again and again. Of all
    // bursts together, how many had to wait at each place.
    let waits = |course: &[f64]| course.iter().map(|time| u32::from(*time > limit)).collect::<Vec<_>>();
    let mut together = vec![0; n];
    courses.iter().for_each(|course| together.iter_mut().zip(waits(course)).for_each(|(sum, one)| *sum += one));
    // A group of pages that leaves the buffer's memory at once holds up what is under way, and is over: near the end of
    // a burst that looks like an edge. So enough of the burst must follow that it would show.
    let follows = (n / 8).max(2 * depth as usize);
    let clear = |change: &Change| change.gain > GAIN && change.after > change.before + 0.05 && n - change.at >= follows;
    let Some(change) = denser(&together, count as u32).filter(clear) else { return Ok(None) };
    if !goes_on(&together, count as u32, change.at, 2 * depth as usize) {
        return Ok(None);
    }
    let mut alone: Vec<usize> =
        courses.iter().filter_map(|course| denser(&waits(course), 1).filter(clear)).map(|one| one.at).collect();
    alone.sort_unstable();
    let (at, range) = match alone[..] {
        // What the drive does besides (an erase, a part of the map that is written) lets it take less, and nothing lets
        // it take more: the largest but one, as a single burst may be mistaken.
        [.., second, _] if 3 * alone.len() > 2 * count => (second, (alone[alone.len() / 2], second)),
        _ => (change.at, (change.at, change.at)),
    };
    let rate = |seconds: f64| f64::from(depth) * request as f64 / seconds;
    let rates = courses.iter().map(|course| rate(course[at..].iter().sum::<f64>() / (n - at) as f64));
    let bytes_at = |index: usize| (index as u64 * request) as f64;
    let burst = Burst {
        request,
        depth,
        taken: bytes_at(at),
        range: [bytes_at(range.0), bytes_at(range.1)],
        before: rate(base),
        after: median(&rates.collect::<Vec<_>>()),
        gain: change.gain,
    };
    found.bursts.push(burst);
    Ok(Some(burst))
}

/// Where events become denser.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Change {
    /// The first place of the denser part, the most likely one.
    at: usize,
    /// The share of events before and after.
    before: f64,
    after: f64,
    /// By how much a change there is more likely than none, as a natural logarithm.
    gain: f64,
}

/// The most likely place from which on events are denser than before, given how many of `most` happened at each place.
fn denser(events: &[u32], most: u32) -> Option<Change> {
    let (n, most) = (events.len(), f64::from(most));
    let all = f64::from(events.iter().sum::<u32>());
    let whole = likelihood(all, n as f64 * most);
    let mut sum = 0.0;
    let mut best: Option<Change> = None;
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            let places = (at as f64 * most, (n - at) as f64 * most);
            let (before, after) = (sum / places.0, (all - sum) / places.1);
            let gain = likelihood(sum, places.0) + likelihood(all - sum, places.1) - whole;
            if after > before && best.is_none_or(|best| gain > best.gain) {
                best = Some(Change { at, before, after, gain });
            }
        }
        sum += f64::from(*event);
    }
    best
}

/// Whether events are denser after a change even without the first `skip` places after it: a buffer that is full stays
/// so, while what holds up the requests that are under way once is over with them.
fn goes_on(events: &[u32], most: u32, at: usize, skip: usize) -> bool {
    let rest = (at + skip).min(events.len());
    denser_by(&events[..at], &events[rest..], most) > GOES_ON
}

/// By how much it is more likely that the second part has a share of events of its own, a higher one, than that both
/// have the same, as a natural logarithm; 0 when the second share is the lower one.
fn denser_by(first: &[u32], second: &[u32], most: u32) -> f64 {
    let sum = |part: &[u32]| (f64::from(part.iter().sum::<u32>()), (part.len() * most as usize) as f64);
    let ((a, a_of), (b, b_of)) = (sum(first), sum(second));
    if a_of == 0.0 || b_of == 0.0 || b / b_of <= a / a_of {
        return 0.0;
    }
    likelihood(a, a_of) + likelihood(b, b_of) - likelihood(a + b, a_of + b_of)
}

/// Logarithm of the likelihood of so many events in so many places, at their own share.
fn likelihood(events: f64, places: f64) -> f64 {
    let part = |count: f64| if count > 0.0 { count * (count / places).ln() } else { 0.0 };
    part(events) + part(places - events)
}

/// Upper bound of the bytes that may have left by the time the fastest burst waits, from bursts at several rates.
///
/// Bytes leave over time: a burst that takes longer finds more room. Flash frees nothing before its first program has
/// ended, and does not get slower after that: the rate that follows from the least difference to a slower burst, over
/// the whole time, is therefore a bound.
fn left_meanwhile(fast: &Burst, slower: &[Burst]) -> f64 {
    let time = |one: &Burst| one.taken / one.before;
    let most = fast.after * time(fast);
    let drained = |slow: &Burst| {
        let drains = ((slow.taken - fast.taken) / (time(slow) - time(fast)).max(1e-9)).clamp(0.0, fast.after);
        if time(slow) > 1.1 * time(fast) { drains * time(fast) } else { most }
    };
    slower.iter().map(drained).fold(most, f64::min)
}

/// Concludes the buffer's size: the bytes taken less half of those that may have left, which also widens its range.
fn conclude(session: &mut Session<'_>, fast: Option<Burst>, slower: &[Burst], found: &mut Found) {
    let Some(fast) = fast else {
        found.cannot = Some("a faster burst does not have to wait where a slower one had to".into());
        return;
    };
    let left = left_meanwhile(&fast, slower);
    let best = fast.taken - left / 2.0;
    // And a request: one that waits has been taken in part.
    let scatter = (fast.range[1] - fast.range[0]).max(fast.request as f64);
    let half = left / 2.0 + scatter;
    if half > SHARP * best {
        found.cannot = Some(format!(
            "the edge is not sharp: bursts are held up after {:.0} to {:.0} KiB, and up to {:.0} KiB may have left \
             meanwhile",
            fast.range[0] / 1024.0,
            fast.range[1] / 1024.0,
            left / 1024.0
        ));
        return;
    }
    let page = session.page();
    let round = |bytes: f64| (bytes / page as f64).round() as u64 * page;
    found.size = Some((round(best), [round((best - half).max(0.0)), round(best + half)]));
    let gain = slower.iter().map(|one| one.gain).fold(fast.gain, f64::min);
    found.confidence = 1.0 - (-gain).exp();
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_base::Rng;

    #[test]
    fn events_become_denser_where_they_do() {
        let mut rng = Rng::new(1, b"denser");
        for at in [10usize, 100, 180] {
            // Something on the host holds up 3 %; from `at` on every other waits, first of all the one there.
            let mut events: Vec<u32> = (0..200).map(|_| u32::from(rng.below(33) == 0)).collect();
            (at..200).step_by(2).for_each(|i| events[i] = 1);
            let change = denser(&events, 1).unwrap();
            assert!(change.at.abs_diff(at) <= 2 && (at != 100 || change.gain > GAIN), "{at}: {change:?}");
        }
    }

    #[test]
    fn a_hold_up_that_is_over_at_once_does_not_go_on() {
        // Five bursts, eight requests at once: all that are under way at 100 are held up, once, or from there on every
        // other.
        let once: Vec<u32> = (0..200).map(|i| if (100..108).contains(&i) { 5 } else { 0 }).collect();
        let full: Vec<u32> = (0..200).map(|i| if i >= 100 && i % 2 == 0 { 5 } else { 0 }).collect();
        for (events, goes) in [(once, false), (full, true)] {
            let change = denser(&events, 5).unwrap();
            assert!(change.gain > GAIN && change.at == 100, "{change:?}");
            assert_eq!(goes_on(&events, 5, change.at, 16), goes);
        }
        assert!(!goes_on(&[0, 0, 5, 5], 5, 2, 16), "nothing follows");
    }

    #[test]
    fn what_left_meanwhile_is_bounded_by_the_nearest_rate() {
        let burst = |depth: u32, taken: f64, before: f64| Burst {
            request: 4_096,
            depth,
            taken,
            range: [taken; 2],
            before,
            after: 1e8,
            gain: 20.0,
        };
        // 1 MiB at 1 GB/s takes 1 ms. Nothing more was taken in the 2 ms of the next burst, and much more in the 9 ms
        // of the slowest.
        let mib = f64::from(1 << 20);
        let (fast, middle, slow) = (burst(8, mib, 1e9), burst(2, mib, 5e8), burst(1, 1.5 * mib, 1.7e8));
        assert_eq!(left_meanwhile(&fast, &[middle, slow]), 0.0);
        let by_slow = left_meanwhile(&fast, &[slow]);
        assert!((0.05 * mib..0.07 * mib).contains(&by_slow), "{by_slow}");
        // Without a slower one: all that flash takes afterwards.
        assert!((left_meanwhile(&fast, &[fast]) - 0.1 * mib).abs() < 1.0);
    }

    #[test]
    fn what_is_even_has_no_change() {
        let mut rng = Rng::new(2, b"denser");
        let false_ones = (0..200).filter(|_| {
            let events: Vec<u32> = (0..200).map(|_| u32::from(rng.below(33) == 0)).collect();
            denser(&events, 1).is_some_and(|change| change.gain > GAIN)
        });
        assert!(false_ones.count() <= 2);
        assert_eq!(denser(&[0; 50], 5), None);
    }
}
