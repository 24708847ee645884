//! Measurements of each stage, and the verdicts and plots made of them.

use crate::run::Options;
use crate::search::{Knee, Trial};
use crate::session::{Session, Stop};
use crate::stat::median;
use crate::target::{HostMemory, Lend};
use crate::{map_cache, read_cache, stripe, sustained, write_buffer};
use tidewater_base::units::{format_bytes, setting};
use tidewater_report::experiment::{Figure, Form, Point, Series};
use tidewater_report::probe::{Answer, Stage, Verdict, ask};

/// The size found, for the question of whose memory it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    /// Bytes, and the least and the most of them.
    Size(u64, [u64; 2]),
    /// There is none; of the map: all of it is at hand.
    None,
    /// It could not be determined.
    Untold,
}

/// Sizes found by earlier stages, with the host's memory as it was.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Known {
    pub read_cache: Option<Seen>,
    pub write_buffer: Option<Seen>,
    pub map: Option<Seen>,
}

fn us(seconds: f64) -> String {
    format!("{:.1} us", seconds * 1e6)
}

/// An answer that is not given.
fn unknown(what: &str, why: &str) -> Verdict {
    Verdict {
        what: what.into(),
        answer: Answer::CannotTell,
        bytes: None,
        range_bytes: None,
        place: None,
        confidence: 0.0,
        because: why.into(),
    }
}

fn absent(what: &str, confidence: f64, because: String) -> Verdict {
    Verdict { answer: Answer::Absent, confidence, because, ..unknown(what, "") }
}

fn sized(what: &str, bytes: u64, range: [u64; 2], confidence: f64, because: String) -> Verdict {
    Verdict {
        answer: Answer::Found,
        bytes: Some(bytes),
        range_bytes: Some(range),
        confidence,
        because,
        ..unknown(what, "")
    }
}

/// The size in a verdict.
fn seen(verdict: &Verdict) -> Seen {
    match (verdict.answer, verdict.bytes) {
        (Answer::Found, Some(size)) => Seen::Size(size, verdict.range_bytes.unwrap_or([size; 2])),
        (Answer::Absent, _) => Seen::None,
        _ => Seen::Untold,
    }
}

/// The same of the map: where no number of sections is too many, all of it is at hand once it was brought in.
fn map_seen(found: &map_cache::Found, verdict: &Verdict) -> Seen {
    match &found.knee {
        Some(Knee { beyond: Some(_), .. }) => Seen::None,
        _ => seen(verdict),
    }
}

/// The read cache.
pub(crate) fn read_cache(
    session: &mut Session<'_>,
    options: &Options,
    stage: &mut Stage,
    known: &mut Known,
) -> Result<(), Stop> {
    let found = read_cache::measure(session, options.largest_cache)?;
    let page = session.page();
    let verdict = read_verdict(&found, page);
    known.read_cache = Some(seen(&verdict));
    stage.verdicts.push(verdict);
    if let Some(knee) = &found.knee {
        let (unit, name) = axis_unit(knee.trials.iter().map(|trial| trial.size * page));
        let label = format!("{name} that are read");
        stage.figures.push(passes("Read, and read again", &label, &knee.trials, page as f64 / unit));
    }
    Ok(())
}

fn read_verdict(found: &read_cache::Found, page: u64) -> Verdict {
    let times = format!("a page takes {} when it was just read, {} when not", us(found.hit), us(found.miss));
    let what = ask::READ_CACHE;
    if let Some(why) = &found.cannot {
        return unknown(what, &format!("{why}; {times}"));
    }
    let Some(knee) = &found.knee else { return absent(what, found.absent, times) };
    match knee {
        Knee { bracket: Some((low, high)), confidence, .. } => sized(
            what,
            low * page,
            [low * page, high * page],
            *confidence,
            format!(
                "{} that were read are found again, {} are not; {times}",
                spelled(low * page),
                spelled(high * page)
            ),
        ),
        Knee { beyond: Some(size), .. } => {
            unknown(what, &format!("all of {} was found again, and more was not tried; {times}", spelled(size * page)))
        }
        Knee { cannot, .. } => unknown(what, &format!("{}; {times}", cannot.as_deref().unwrap_or("there is no knee"))),
    }
}

/// The mapping cache.
pub(crate) fn map_cache(session: &mut Session<'_>, stage: &mut Stage, known: &mut Known) -> Result<(), Stop> {
    let found = map_cache::measure(session)?;
    let verdicts = map_verdicts(&found, session.about.capacity);
    known.map = Some(map_seen(&found, &verdicts[0]));
    stage.verdicts.extend(verdicts);
    if let Some(knee) = &found.knee {
        stage.figures.push(passes("Reads spread over the drive", "sections, a read in each", &knee.trials, 1.0));
        if let Some((low, _)) = knee.bracket {
            stage.notes.push(format!("reads of {low} sections find their map entries, one each, again"));
        }
    }
    Ok(())
}

fn map_verdicts(found: &map_cache::Found, capacity: u64) -> Vec<Verdict> {
    let times = format!(
        "a read takes {} where its part of the map was just used, {} where not",
        us(found.warm),
        us(found.cold)
    );
    if let Some(why) = &found.cannot {
        return vec![unknown(ask::MAP_REACH, &format!("{why}; {times}"))];
    }
    let Some(knee) = &found.knee else {
        return vec![if found.absent > 0.8 {
            let because = format!("no part of the map has to be brought in: {times}");
            absent(ask::MAP_REACH, found.absent, because)
        } else {
            unknown(ask::MAP_REACH, &format!("some places are slower at first, too few to tell why; {times}"))
        }];
    };
    let mut verdicts = Vec::new();
    let unit = match (found.unit, &found.unit_cannot) {
        (Some((low, high)), _) => {
            verdicts.push(sized(
                ask::MAP_UNIT,
                high,
                [low, high],
                found.unit_confidence,
                format!("a read helps the next up to {} away, and not from {} on", spelled(low), spelled(high)),
            ));
            Some(high)
        }
        (None, why) => {
            verdicts.push(unknown(ask::MAP_UNIT, why.as_deref().unwrap_or("no edge was found")));
            None
        }
    };
    let reach = match (knee, unit) {
        (Knee { bracket: Some((low, high)), confidence, .. }, Some(unit)) => sized(
            ask::MAP_REACH,
            (low * unit).min(capacity),
            [(low * unit).min(capacity), (high * unit).min(capacity)],
            *confidence,
            format!("{low} sections of {} are found again, {high} are not; {times}", spelled(unit)),
        ),
        (Knee { bracket: Some((low, high)), .. }, None) => unknown(
            ask::MAP_REACH,
            &format!(
                "{low} places are found again, {high} are not, but how much each brings in could not be determined; \
                 {times}"
            ),
        ),
        (Knee { beyond: Some(d), .. }, _) => unknown(
            ask::MAP_REACH,
            &format!("{d} sections are all found again, as many as the drive has, yet single places are slow; {times}"),
        ),
        (Knee { cannot, .. }, _) => {
            unknown(ask::MAP_REACH, &format!("{}; {times}", cannot.as_deref().unwrap_or("there is no knee")))
        }
    };
    verdicts.insert(0, reach);
    verdicts
}

/// The write buffer.
pub(crate) fn write_buffer(
    session: &mut Session<'_>,
    options: &Options,
    stage: &mut Stage,
    known: &mut Known,
) -> Result<(), Stop> {
    let found = write_buffer::measure(session, options.largest_cache)?;
    let verdict = write_verdict(&found);
    known.write_buffer = Some(seen(&verdict));
    stage.verdicts.push(verdict);
    for burst in &found.bursts {
        stage.notes.push(format!(
            "bursts of {} requests, {} at once, are taken at {:.0} MB/s up to {:.0} KiB, and at {:.0} MB/s after that",
            spelled(burst.request),
            burst.depth,
            burst.before / 1e6,
            burst.taken / 1024.0,
            burst.after / 1e6
        ));
    }
    if !found.course.is_empty() {
        let (unit, name) = axis_unit(found.course.iter().map(|(bytes, _)| *bytes as u64));
        let points = thinned(&found.course).map(|(bytes, time)| Point { x: bytes / unit, y: time * 1e6, spread: None });
        stage.figures.push(figure(
            "A burst of writes to an empty buffer",
            &format!("{name} that were written before"),
            "µs for a request, median",
            vec![Series { name: "write".into(), from_paper: false, points: points.collect() }],
        ));
    }
    Ok(())
}

/// At most 600 points of a course, each the slowest of those that it stands for: waiting comes in peaks.
fn thinned(course: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    course.chunks(course.len().div_ceil(600).max(1)).map(|part| {
        let slowest = part.iter().map(|one| one.1).fold(0.0, f64::max);
        (part[0].0, slowest)
    })
}

fn write_verdict(found: &write_buffer::Found) -> Verdict {
    let what = ask::WRITE_BUFFER;
    let times = format!("a single write takes {}, a read {}", us(found.write), us(found.read));
    match (found.size, &found.cannot) {
        (Some((size, range)), _) => sized(
            what,
            size,
            range,
            found.confidence,
            format!("so much is taken from the host before it has to wait for flash; {times}"),
        ),
        (None, Some(why)) => unknown(what, &format!("{why}; {times}")),
        (None, None) => absent(what, found.absent, format!("every write waits for flash: {times}")),
    }
}

/// Pages and stripes.
pub(crate) fn stripe(session: &mut Session<'_>, stage: &mut Stage) -> Result<(), Stop> {
    let found = stripe::measure(session)?;
    let times = format!("two reads at once end {} apart on one die, {} at random", us(found.same), us(found.apart));
    match (found.page, &found.cannot) {
        (Some((low, high)), _) => {
            stage.verdicts.push(sized(
                ask::PAGE,
                high,
                [low, high],
                found.confidence,
                format!(
                    "reads less than {} apart get in each other's way, further apart they do not; {times}",
                    spelled(high)
                ),
            ));
            stage.verdicts.push(match found.stripe {
                Some(stripe) => sized(
                    ask::STRIPE,
                    stripe,
                    [stripe; 2],
                    found.confidence,
                    format!("reads so far apart, and twice as far, meet again: {} dies take turns", stripe / high),
                ),
                None => unknown(ask::STRIPE, "at no distance that was tried do reads meet again"),
            });
        }
        (None, why) => {
            // Of pairs that could not be distinguished, none is known to be on one die.
            let why = why.as_deref().unwrap_or("no edge was found");
            stage.verdicts.extend([ask::PAGE, ask::STRIPE].map(|what| unknown(what, why)));
        }
    }
    let mut course = found.course;
    let (unit, name) = axis_unit(course.iter().map(|one| one.0));
    course.sort_unstable_by_key(|one| one.0);
    let points = course
        .chunk_by(|a, b| a.0 == b.0)
        .map(|same| Point {
            x: same[0].0 as f64 / unit,
            y: median(&same.iter().map(|one| one.1).collect::<Vec<_>>()) * 1e6,
            spread: None,
        })
        .collect();
    stage.figures.push(figure(
        "Two reads at once",
        &format!("{name} from one to the other"),
        "µs from one end to the other, median",
        vec![Series { name: "pair".into(), from_paper: false, points }],
    ));
    Ok(())
}

/// Measures a long write.
pub(crate) fn sustained(
    session: &mut Session<'_>,
    options: &Options,
    stage: &mut Stage,
    known: &Known,
) -> Result<(), Stop> {
    // The end of a write buffer that is not known looks like that of a small SLC cache.
    let (buffered, perhaps_buffer) = match &known.write_buffer {
        Some(Seen::Size(size, _)) => (2 * size, 0),
        Some(Seen::None) => (0, 0),
        _ => (0, options.largest_cache.saturating_mul(2)),
    };
    let found = sustained::measure(session, buffered)?;
    let parts = [
        (ask::SLC_CACHE, &found.empty, "Written in order, empty before"),
        (ask::COLLECTION, &found.full, "Written at random, full before"),
    ];
    for (what, part, title) in parts {
        let course = format!("{} were written at {:.0} MB/s on the whole", spelled(part.written), part.speed / 1e6);
        stage.verdicts.push(match part.fall {
            Some(fall) if what == ask::SLC_CACHE && fall.at < perhaps_buffer => unknown(
                what,
                &format!(
                    "after {} the drive takes {:.0} MB/s instead of {:.0}, which may be the end of a write buffer: how \
                     large that is, is not known; {course}",
                    spelled(fall.at),
                    fall.after / 1e6,
                    fall.before / 1e6
                ),
            ),
            Some(fall) => sized(
                what,
                fall.at,
                [fall.at, fall.at + fall.piece],
                1.0 - fall.chance,
                format!(
                    "after so much the drive takes {:.0} MB/s instead of {:.0}; {course}",
                    fall.after / 1e6,
                    fall.before / 1e6
                ),
            ),
            None if part.course.len() < sustained::PIECES_MIN => {
                unknown(what, &format!("the target is too small to tell a fall from chance: {course}"))
            }
            None => absent(what, 0.99, format!("the speed does not fall: {course}")),
        });
        let points = part.course.iter().map(|(at, speed)| Point { x: *at as f64 / 1e6, y: speed / 1e6, spread: None });
        let series = vec![Series { name: "write".into(), from_paper: false, points: points.collect() }];
        stage.figures.push(figure(title, "MB that were written before", "MB/s", series));
    }
    Ok(())
}

/// Whose memory what was found is: all of it once more, without the host's.
pub(crate) fn host_memory(
    session: &mut Session<'_>,
    options: &Options,
    stage: &mut Stage,
    known: &Known,
) -> Result<(), Stop> {
    let asked = [
        (ask::READ_CACHE_PLACE, &known.read_cache),
        (ask::WRITE_BUFFER_PLACE, &known.write_buffer),
        (ask::MAP_PLACE, &known.map),
    ];
    let asked: Vec<(&str, Seen)> = asked.iter().filter_map(|(what, seen)| Some((*what, (*seen).clone()?))).collect();
    if asked.is_empty() {
        stage.notes.push("no stage before it found anything whose memory could be asked for".into());
        return Ok(());
    }
    let mut sizes = None;
    let size = match session.target().host_memory() {
        HostMemory::Cannot(why) => {
            stage.verdicts.extend(
                asked
                    .iter()
                    .map(|(what, _)| unknown(what, &format!("whose memory it is could not be determined: {why}"))),
            );
            return Ok(());
        }
        HostMemory::None => {
            stage.verdicts.extend(asked.iter().map(|(what, with)| match with {
                Seen::Untold => unknown(what, "what was not found has no place"),
                Seen::None if *what != ask::MAP_PLACE => absent(what, 1.0, "there is none".into()),
                _ => placed(what, INSIDE, 1.0, "the drive borrows no memory from its host".into()),
            }));
            return Ok(());
        }
        HostMemory::Switch => "what the host lends".to_owned(),
        HostMemory::Sizes { size, .. } => {
            sizes = Some(size);
            format!("the {} that the host lends", spelled(size))
        }
    };
    session.target().set_host_memory(Lend::Nothing)?;
    stage.notes.push(format!("measured again without {size}"));
    let mut done = without(session, options, stage, &asked);
    let of_map = stage.verdicts.iter().any(|one| one.what == ask::MAP_PLACE && one.place.as_deref() != Some(INSIDE));
    if let (Ok(()), Some(lent), Some(map)) = (&done, sizes.filter(|size| *size > 0), &known.map)
        && (of_map || matches!(map, Seen::Size(..)))
    {
        done = resized(session, stage, lent, map);
    }
    // The drive gets back what it had, whatever happened.
    session.target().set_host_memory(Lend::AsFound)?;
    done
}

const INSIDE: &str = "inside the drive";
const HOST: &str = "host memory";

fn placed(what: &str, place: &str, confidence: f64, because: String) -> Verdict {
    Verdict { answer: Answer::Found, place: Some(place.into()), confidence, because, ..unknown(what, "") }
}

/// Measures without the host's memory what was measured with it.
fn without(
    session: &mut Session<'_>,
    options: &Options,
    stage: &mut Stage,
    asked: &[(&str, Seen)],
) -> Result<(), Stop> {
    for (i, (what, with)) in asked.iter().enumerate() {
        session.progress(i as f64 / asked.len() as f64);
        let verdict = match *what {
            ask::READ_CACHE_PLACE => {
                let found = read_cache::measure(session, options.largest_cache)?;
                if let Some(knee) = &found.knee {
                    let page = session.page();
                    let (unit, name) = axis_unit(knee.trials.iter().map(|trial| trial.size * page));
                    let label = format!("{name} that are read");
                    let title = "Read again, host memory off";
                    stage.figures.push(passes(title, &label, &knee.trials, page as f64 / unit));
                }
                read_verdict(&found, session.page())
            }
            ask::MAP_PLACE => {
                let found = map_cache::measure(session)?;
                if let Some(knee) = &found.knee {
                    stage.figures.push(passes(
                        "Reads spread over the drive, host memory off",
                        "sections, a read in each",
                        &knee.trials,
                        1.0,
                    ));
                }
                map_verdicts(&found, session.about.capacity).swap_remove(0)
            }
            _ => write_verdict(&write_buffer::measure(session, options.largest_cache)?),
        };
        let of_map = *what == ask::MAP_PLACE;
        stage.verdicts.push(compare(what, with, &seen(&verdict), verdict.confidence, of_map, &verdict.because));
    }
    Ok(())
}

/// The mapping cache with half of the host's memory: one size says whose memory it is, a second one that it is for the
/// map.
fn resized(session: &mut Session<'_>, stage: &mut Stage, lent: u64, with: &Seen) -> Result<(), Stop> {
    let what = ask::MAP_GROWTH;
    session.progress(0.8);
    if let Err(why) = session.target().set_host_memory(Lend::Bytes(lent / 2)) {
        let why = format!("it cannot be concluded from one size of the host's memory that it is for the map: {why}");
        stage.verdicts.push(unknown(what, &why));
        return Ok(());
    }
    let Seen::Size(reach, _) = *with else {
        let how = if *with == Seen::None {
            "the whole mapping table is in memory"
        } else {
            "its reach could not be determined"
        };
        stage.verdicts.push(unknown(what, &format!("with {} of the host's memory {how}", spelled(lent))));
        return Ok(());
    };
    stage.notes.push(format!("measured again with {} of the host's memory", spelled(lent / 2)));
    let found = map_cache::measure(session)?;
    let verdict = map_verdicts(&found, session.about.capacity).swap_remove(0);
    let Seen::Size(half, _) = seen(&verdict) else {
        stage.verdicts.push(unknown(what, &format!("with half of the host's memory: {}", verdict.because)));
        return Ok(());
    };
    let both = format!(
        "{} with {} of the host's memory, {} with {}",
        spelled(reach),
        spelled(lent),
        spelled(half),
        spelled(lent / 2)
    );
    let share = half as f64 / reach as f64;
    stage.verdicts.push(if (share - 1.0).abs() < 0.05 {
        placed(what, INSIDE, verdict.confidence, both)
    } else if (share - 0.5).abs() < 0.1 {
        placed(what, HOST, verdict.confidence, both)
    } else {
        unknown(what, &format!("{both}: neither the same nor in proportion"))
    });
    Ok(())
}

/// Whose memory something is, by what is left of it without the host's.
fn compare(what: &str, with: &Seen, off: &Seen, confidence: f64, of_map: bool, because: &str) -> Verdict {
    // Of the map, none means that all of it is at hand: more than any size.
    let size = |seen: &Seen| match seen {
        Seen::Size(size, range) => Some((*size, *range)),
        Seen::None => Some(if of_map { (u64::MAX, [u64::MAX; 2]) } else { (0, [0; 2]) }),
        Seen::Untold => None,
    };
    let (Some((on, [on_low, on_high])), Some((off, [off_low, off_high]))) = (size(with), size(off)) else {
        return unknown(
            what,
            &format!("with or without the host's memory its size could not be determined: {because}"),
        );
    };
    let show = |size: u64| match size {
        0 => "none".to_owned(),
        u64::MAX => "all".to_owned(),
        size => spelled(size),
    };
    let both = format!("{} with the host's memory, {} without", show(on), show(off));
    let near = on_low <= off_high.saturating_add(off_high / 20) && off_low <= on_high.saturating_add(on_high / 20);
    if near && on == 0 {
        return absent(what, confidence, "there is none, with and without the host's memory".into());
    }
    if near {
        return placed(what, INSIDE, confidence, both);
    }
    if (off as f64) < 0.8 * on as f64 {
        return placed(what, HOST, confidence, both);
    }
    unknown(what, &format!("{both}: neither the same nor clearly less"))
}

/// A size as people read it, exactly: `16 MiB`.
fn spelled(bytes: u64) -> String {
    setting(&format_bytes(bytes))
}

/// The unit in which an axis with these bytes has names that can be read, and what it is called.
fn axis_unit(bytes: impl Iterator<Item = u64>) -> (f64, &'static str) {
    match bytes.max().unwrap_or(0) {
        large if large >= 8 << 20 => ((1u64 << 20) as f64, "MiB"),
        _ => (1024.0, "KiB"),
    }
}

/// The paper's plots: the first and the second pass against the size.
fn passes(title: &str, x_label: &str, trials: &[Trial], scale: f64) -> Figure {
    let mut sorted: Vec<Trial> = trials.to_vec();
    sorted.sort_by_key(|trial| trial.size);
    let series = |name: &str, y: fn(&Trial) -> f64| Series {
        name: name.into(),
        from_paper: false,
        points: sorted
            .chunk_by(|a, b| a.size == b.size)
            .map(|same| Point {
                x: same[0].size as f64 * scale,
                y: median(&same.iter().map(y).collect::<Vec<_>>()) * 1e6,
                spread: None,
            })
            .collect(),
    };
    let mut figure = figure(
        title,
        x_label,
        "µs for a request, median",
        vec![series("first pass", |trial| trial.first), series("second pass", |trial| trial.again)],
    );
    figure.x_log = true;
    figure
}

fn figure(title: &str, x_label: &str, y_label: &str, series: Vec<Series>) -> Figure {
    Figure {
        title: title.into(),
        form: Form::Lines,
        x_label: x_label.into(),
        y_label: y_label.into(),
        x_log: false,
        y_log: false,
        series,
    }
}
