//! How a drive writes when it goes on for long: where its speed falls on an empty drive (a cache of flash in
//! single-level mode is full), and where it falls on a full one (it has to collect before it can write).

use crate::session::{Session, Stop};
use crate::stat::{Step, median, step};
use crate::target::{Request, Timed};
use tidewater_base::Duration;

/// Bytes of a request of the first part, in order, and of the second, at random places; less where the target takes
/// less.
const IN_ORDER: u64 = 64 << 10;
const AT_RANDOM: u64 = 16 << 10;
/// Requests at once.
const DEPTH: u32 = 8;
/// Pieces of the drive's size: the speed of each is one value.
const PIECES: u64 = 512;
/// A fall is one to at most this share of the speed before.
const FALLS: f64 = 0.75;
/// Pieces after a fall that must have been seen, and pieces between two looks.
const AFTER: usize = 12;
/// Values without a fall that say that there is none: of fewer, two levels at one end are not beyond chance, whatever
/// they are.
pub(crate) const PIECES_MIN: usize = 2 * AFTER;
/// A chance below this is none.
const CHANCE: f64 = 0.01;
/// Idle time of an empty drive before it is written, so that its background work is done.
const REST: Duration = Duration::from_ms(2_000);

/// A fall of the speed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fall {
    /// Bytes that were written before it, and the size of a piece: it is known no better.
    pub at: u64,
    pub piece: u64,
    /// Bytes a second before and after.
    pub before: f64,
    pub after: f64,
    pub chance: f64,
}

/// Result of one part.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Part {
    pub fall: Option<Fall>,
    /// Bytes that were written in all.
    pub written: u64,
    /// Bytes a second on the whole.
    pub speed: f64,
    /// Bytes written before, and bytes a second of the piece.
    pub course: Vec<(u64, f64)>,
}

/// Both parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    pub empty: Part,
    pub full: Part,
}

/// Writes the whole drive, deallocated before, in order; then at random until it is slower. Nothing that was on it is
/// left. Falls before `buffered` bytes are those of the write buffer.
pub(crate) fn measure(session: &mut Session<'_>, buffered: u64) -> Result<Found, Stop> {
    // The largest power of two, so that requests fill pieces and the target.
    let largest = 1 << session.about.largest.ilog2();
    let (in_order, at_random) = (IN_ORDER.min(largest), AT_RANDOM.min(largest));
    let capacity = session.about.capacity / in_order * in_order;
    let piece = (capacity / PIECES).next_multiple_of(in_order).max(1 << 20);
    if session.about.deallocates {
        let step = 1 << 30;
        for first in (0..capacity).step_by(step) {
            session.send(&[Request::deallocate(first, (step as u64).min(capacity - first))], 1)?;
        }
    }
    session.send(&[Request::flush()], 1)?;
    session.idle(REST)?;
    let mut at = 0;
    let next = |_: &mut Session<'_>| {
        let request = Request::write(at, in_order);
        at += in_order;
        request
    };
    // All of it, so that the second part begins full.
    let mut empty = write(session, capacity, piece, (0.0, 0.5), false, next)?;
    let behind = empty.course.partition_point(|one| one.0 < buffered);
    empty.fall = fall(session, &empty.course[behind..], piece);
    let places = capacity / at_random;
    let next = |session: &mut Session<'_>| Request::write(session.rng.below(places) * at_random, at_random);
    let full = write(session, capacity, piece, (0.5, 1.0), true, next)?;
    session.send(&[Request::flush()], 1)?;
    Ok(Found { empty, full })
}

/// Writes up to `most` bytes piece by piece; to the end, or until a fall is certain.
fn write(
    session: &mut Session<'_>,
    most: u64,
    piece: u64,
    (from, to): (f64, f64),
    stops: bool,
    mut next: impl FnMut(&mut Session<'_>) -> Request,
) -> Result<Part, Stop> {
    let mut part = Part::default();
    let mut seconds = 0.0;
    while part.written < most {
        let mut requests = Vec::new();
        let mut bytes = 0;
        while bytes < piece && part.written + bytes < most {
            let request = next(session);
            bytes += request.length;
            requests.push(request);
        }
        let times = session.send(&requests, DEPTH)?;
        let time = times.iter().map(|one: &Timed| one.ended).max().unwrap_or_default().as_secs_f64();
        part.course.push((part.written, bytes as f64 / time.max(1e-9)));
        part.written += bytes;
        seconds += time;
        session.progress(from + (to - from) * part.written as f64 / most as f64);
        if stops && part.course.len() % AFTER == 0 {
            part.fall = fall(session, &part.course, piece);
            if part.fall.is_some_and(|fall| part.written - fall.at >= AFTER as u64 * piece) {
                break;
            }
        }
    }
    part.fall = fall(session, &part.course, piece);
    part.speed = part.written as f64 / seconds.max(1e-9);
    Ok(part)
}

/// Where the speed falls, if it does, beyond chance.
fn fall(session: &mut Session<'_>, course: &[(u64, f64)], piece: u64) -> Option<Fall> {
    let speeds: Vec<f64> = course.iter().map(|one| one.1).collect();
    let Step { at, before, after, chance } = step(&speeds, 2, &mut session.rng)?;
    let falls = after < FALLS * before && chance < CHANCE;
    falls.then(|| {
        // The fit weighs the whole of both levels; the fall begins with the first piece that leaves the upper one.
        let limit = (before * after).sqrt();
        let near = at.saturating_sub(2)..at + 1;
        let first = near.clone().find(|&i| speeds[i] < limit).unwrap_or(at);
        let before = median(&speeds[..first.max(1)]);
        Fall { at: course[first].0, piece, before, after, chance }
    })
}
