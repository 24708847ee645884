//! The table and the page.

use std::collections::BTreeMap;

use tidewater_bench::gains::Gain;
use tidewater_report::experiment::{Cell, Check, Column, Experiment, Figure, Form, Parameter, Point, SCHEMA, Series};

use crate::{Idle, Mode, Sample};

/// A group of measurements: a database, a workload, and a count of clients.
type Key = (&'static str, &'static str, u32);

/// The rates of each mode of each key, in the order of the samples.
type Groups = Vec<(Key, BTreeMap<Mode, Vec<f64>>)>;

fn groups(samples: &[Sample]) -> Groups {
    let mut groups = Groups::new();
    for Sample { database, mode, rate } in samples {
        let key = (*database, rate.workload, rate.clients);
        let at = groups.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
            groups.push((key, BTreeMap::new()));
            groups.len() - 1
        });
        groups[at].1.entry(*mode).or_default().push(rate.per_second);
    }
    groups
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

fn of(group: &BTreeMap<Mode, Vec<f64>>, mode: Mode) -> f64 {
    group.get(&mode).map_or(f64::NAN, |values| median(values))
}

/// How many times as fast a mode is as another, over the rounds, in each of which both were measured within a minute:
/// the machine's own pace, which changes by a third, meets both of them more alike than it does two medians.
struct Ratio {
    median: f64,
    /// The least and the greatest of the rounds.
    range: (f64, f64),
}

/// The rates of a mode are one for each round, in order.
fn ratio(group: &BTreeMap<Mode, Vec<f64>>, mode: Mode, to: Mode) -> Ratio {
    let rates = |mode| group.get(&mode).map_or(&[][..], Vec::as_slice);
    let ratios: Vec<f64> = rates(mode).iter().zip(rates(to)).map(|(one, other)| one / other).collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Ratio { median: median(&ratios), range: (least, greatest) }
}

/// A table of medians, in Markdown.
pub fn table(samples: &[Sample]) -> String {
    let mut text = String::from(
        "| database | workload | clients | own flush /s | no flush /s | empty flush /s | RING /s | of no flush | of \
         empty flush | RING, persistent /s | of no flush | DESTAGED /s | of own flush | RING, layer /s | of no flush \
         |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for ((database, workload, clients), group) in groups(samples) {
        let [own, none, empty, ring, persistent, destaged, layer] = Mode::ALL.map(|mode| of(&group, mode));
        // What was not measured has no figure.
        let cell = |value: f64, digits: usize, unit: &str| {
            if value.is_nan() { String::new() } else { format!("{value:.digits$}{unit}") }
        };
        let percent = |mode, to| cell(100.0 * ratio(&group, mode, to).median, 0, " %");
        let cells = [
            cell(own, 0, ""),
            cell(none, 0, ""),
            cell(empty, 0, ""),
            cell(ring, 0, ""),
            percent(Mode::Ring, Mode::None),
            percent(Mode::Ring, Mode::Empty),
            cell(persistent, 0, ""),
            percent(Mode::Persistent, Mode::None),
            cell(destaged, 0, ""),
            cell(ratio(&group, Mode::Destaged, Mode::Flushes).median, 2, " x"),
            cell(layer, 0, ""),
            percent(Mode::Layer, Mode::None),
        ];
        text += &format!("| {database} | {workload} | {clients} | {} |\n", cells.join(" | "));
    }
    text
}

/// Rows of the guide's table: database, workload, and both as the table names them.
const SHOWN: [(&str, &str, &str); 4] = [
    ("postgresql", "pgbench -N", "PostgreSQL, `pgbench -N`"),
    ("redis", "redis-benchmark SET", "Redis, `redis-benchmark` SET"),
    ("sqlite", "commits of one row", "SQLite, commits of one row"),
    ("rocksdb", "fillsync, 64 B", "RocksDB, synced puts of 64 B"),
];

/// The rows of the guide's table.
///
/// # Errors
/// When a measurement is missing.
pub fn gains(samples: &[Sample]) -> Result<Vec<Gain>, String> {
    let groups = groups(samples);
    let mut gains = Vec::new();
    for (database, load, workload) in SHOWN {
        let before = gains.len();
        for ((_, _, clients), group) in groups.iter().filter(|((d, w, _), _)| (*d, *w) == (database, load)) {
            let [own, destaged, ring, none] = Mode::SHOWN.map(|mode| of(group, mode));
            if [own, destaged, ring, none].iter().any(|rate| rate.is_nan()) {
                return Err(format!("{workload}: the table needs {}", Mode::SHOWN.map(Mode::name).join(", ")));
            }
            let destaged_of_own = ratio(group, Mode::Destaged, Mode::Flushes).median;
            gains.push(Gain { workload, clients: *clients, own, destaged, destaged_of_own, ring, none });
        }
        if gains.len() == before {
            return Err(format!("{workload}: not measured"));
        }
    }
    Ok(gains)
}

/// All samples, what was expected of them, and a figure for each workload.
pub fn document(samples: &[Sample], idle: Option<Idle>, rounds: usize, seconds: f64) -> Experiment {
    let groups = groups(samples);
    let mut checks = Vec::new();
    for ((database, workload, clients), group) in &groups {
        let [own, none, _, ring, persistent, destaged, layer] = Mode::ALL.map(|mode| of(group, mode));
        if [own, none, ring, persistent, destaged].iter().any(|rate| rate.is_nan()) {
            continue;
        }
        let rings = [(ring, Mode::Ring), (persistent, Mode::Persistent), (layer, Mode::Layer)];
        // Most have no layer.
        for (rate, mode) in rings.into_iter().filter(|(rate, _)| !rate.is_nan()) {
            let Ratio { median, range } = ratio(group, mode, Mode::None);
            let mode = mode.name();
            let [median_percent, least, greatest] = [median, range.0, range.1].map(|ratio| 100.0 * ratio);
            checks.push(Check {
                name: String::new(),
                statement: format!(
                    "{database}, {workload}, {clients} clients: {mode} is near the ceiling without flushes"
                ),
                expected: "at least 90 %".into(),
                measured: format!(
                    "{median_percent:.0} % (rounds: {least:.0} to {greatest:.0} %); {rate:.0} and {none:.0} /s"
                ),
                ok: median >= 0.9,
                fitted: Vec::new(),
                because: None,
            });
        }
        let Ratio { median, range } = ratio(group, Mode::Destaged, Mode::Flushes);
        let least = if *clients >= 8 { 1.0 } else { 0.8 };
        checks.push(Check {
            name: String::new(),
            statement: format!("{database}, {workload}, {clients} clients: DESTAGED is not slower than its own flush"),
            expected: format!("at least {least:.1} times as fast"),
            measured: format!(
                "{median:.2} times (rounds: {:.2} to {:.2}); {destaged:.0} and {own:.0} /s",
                range.0, range.1
            ),
            ok: median >= least,
            fitted: Vec::new(),
            because: None,
        });
    }
    if let Some(idle) = idle {
        checks.push(Check {
            name: String::new(),
            statement: "A device without load leaves the processor alone".into(),
            expected: "under 2 % of a core".into(),
            measured: format!("device {:.2} %, tidewater run {:.2} %", idle.device * 100.0, idle.supervisor * 100.0),
            ok: idle.device < 0.02,
            fitted: Vec::new(),
            because: None,
        });
    }
    let column = |name: &str, doc: &str| Column { name: name.into(), doc: doc.into() };
    let parameter = |name: &str, value: String, doc: &str| Parameter { name: name.into(), value, doc: doc.into() };
    Experiment {
        schema: SCHEMA.into(),
        name: "databases".into(),
        title: "What commits cost: own flushes, none, and a device's ring".into(),
        source: "bench/databases, on this machine".into(),
        description: "Databases as a distribution ships them, on one machine with their clients. Own flush: as \
                      shipped, each commit waits for fdatasync. No flush: the database's switch that gives durability \
                      up, which is the ceiling. Empty flush: as shipped, with a preloaded library whose flushes do \
                      nothing, so that what lies between is the database's own. RING and DESTAGED: the \
                      log files on a served device by `tidewater run`, at these levels, with a copy of the ring on the \
                      disk (`serve --ring-copy`). RING in this run lies in memory that does not survive a loss of \
                      power: it survives a crash of any process, and is no equal of a flush. RING, persistent: the \
                      same memory, taken to survive (`serve --ring-persistent`): lines are written back, and the \
                      database's other files don't wait for the log. RING, layer: RING by a layer within the database, \
                      which gathers what goes to its log files."
            .into(),
        version: env!("CARGO_PKG_VERSION").into(),
        seed: 0,
        parameters: vec![
            parameter(
                "rounds",
                rounds.to_string(),
                "Rounds, with the modes in turns; medians of rates count, and of \
                                                     the ratios within each round.",
            ),
            parameter("seconds", seconds.to_string(), "How long each measurement takes."),
        ],
        columns: vec![
            column("database", "Which."),
            column("workload", "What was run."),
            column("clients", "Clients at the same time."),
            column("mode", "What a commit waits for."),
            column("per_second", "Transactions or operations per second."),
        ],
        rows: samples
            .iter()
            .map(|Sample { database, mode, rate }| {
                let clients = Cell::Number(f64::from(rate.clients));
                vec![(*database).into(), rate.workload.into(), clients, mode.name().into(), rate.per_second.into()]
            })
            .collect(),
        checks,
        found: Vec::new(),
        differences: Vec::new(),
        fitted: Vec::new(),
        figures: figures(&groups),
    }
}

fn figures(groups: &Groups) -> Vec<Figure> {
    let mut workloads: Vec<(&str, &str)> = Vec::new();
    for ((database, workload, _), _) in groups {
        if !workloads.contains(&(database, workload)) {
            workloads.push((database, workload));
        }
    }
    let figure = |(database, workload): (&str, &str)| {
        let series = |mode: Mode| {
            let of_workload = groups
                .iter()
                .filter(|((d, w, _), modes)| (*d, *w) == (database, workload) && modes.contains_key(&mode));
            let point = |((_, _, clients), group): &(Key, _)| Point {
                x: f64::from(*clients),
                y: of(group, mode),
                spread: None,
            };
            Series { name: mode.name().into(), from_paper: false, points: of_workload.map(point).collect() }
        };
        Figure {
            title: format!("{database}: {workload}"),
            form: Form::Bars,
            x_label: "clients".into(),
            y_label: "per second".into(),
            x_log: false,
            y_log: true,
            series: Mode::ALL.map(series).into_iter().filter(|series| !series.points.is_empty()).collect(),
        }
    };
    workloads.into_iter().map(figure).collect()
}
