//! Made-up experiments with every form of figure.

use tidewater_report::experiment::*;

fn point(x: f64, y: f64) -> Point {
    Point { x, y, spread: None }
}

fn series(name: &str, from_paper: bool, points: &[(f64, f64)]) -> Series {
    Series { name: name.into(), from_paper, points: points.iter().map(|(x, y)| point(*x, *y)).collect() }
}

fn check(statement: &str, expected: &str, measured: &str, ok: bool) -> Check {
    Check {
        name: String::new(),
        statement: statement.into(),
        expected: expected.into(),
        measured: measured.into(),
        ok,
        fitted: Vec::new(),
        because: None,
    }
}

/// An experiment without rows, checks and figures.
pub fn bare(name: &str, title: &str) -> Experiment {
    Experiment {
        schema: SCHEMA.into(),
        name: name.into(),
        title: title.into(),
        source: "A paper, section 1, figure 2".into(),
        description:
            "What it does, in a paragraph of some length: so many workers append so many bytes to so many logs, and \
                      each waits until its bytes are where a power cut cannot reach them."
                .into(),
        version: "0.1.0".into(),
        seed: 1,
        parameters: Vec::new(),
        columns: Vec::new(),
        rows: Vec::new(),
        checks: Vec::new(),
        found: Vec::new(),
        differences: Vec::new(),
        fitted: Vec::new(),
        figures: Vec::new(),
    }
}

/// Lines over powers of two, on a linear and on a logarithmic axis, with the paper's values.
pub fn lines() -> Experiment {
    let mut one = bare("sample/lines", "Latency falls and throughput rises with the number of workers");
    let workers = [1.0, 2.0, 4.0, 8.0];
    let line =
        |name: &str, paper, values: [f64; 4]| series(name, paper, &workers.into_iter().zip(values).collect::<Vec<_>>());
    let latency = vec![
        line("no log", false, [27.0, 27.0, 27.0, 27.0]),
        line("memory", false, [132.0, 85.0, 61.0, 51.0]),
        line("SRAM", false, [132.0, 84.0, 61.0, 50.0]),
        line("DRAM", false, [140.0, 93.0, 70.0, 100.0]),
        line("conventional", false, [141.0, 94.0, 71.0, 75.0]),
    ];
    let mut throughput = vec![
        line("no log", false, [37_700.0, 74_900.0, 150_000.0, 301_000.0]),
        line("SRAM", false, [37_600.0, 74_800.0, 150_000.0, 300_000.0]),
        line("DRAM", false, [37_600.0, 74_800.0, 150_000.0, 259_000.0]),
        line("conventional", false, [37_600.0, 74_800.0, 148_000.0, 199_000.0]),
    ];
    throughput.push(series("conventional", true, &[(8.0, 200_000.0)]));
    throughput.push(series("No log", true, &[(1.0, 40_000.0), (8.0, 300_000.0)]));
    let figure = |title: &str, y_label: &str, y_log, series| Figure {
        title: title.into(),
        form: Form::Lines,
        x_label: "workers".into(),
        y_label: y_label.into(),
        x_log: true,
        y_log,
        series,
    };
    one.figures = vec![
        figure("Latency", "mean latency of a transaction, µs", true, latency),
        figure("Throughput", "transactions per second", false, throughput),
    ];
    one.checks = vec![
        check(
            "With more workers the latency of a transaction falls, because the log fills 16 KiB sooner",
            "each sink: less at 4 workers than at 1",
            "memory 132 to 61 µs, SRAM 132 to 61 µs, DRAM 140 to 70 µs, conventional 141 to 71 µs",
            true,
        ),
        check(
            "Logging against NVDIMM or against SRAM yields similar results",
            "within 10 % of each other at each number of workers",
            "at most 1.2 % apart",
            true,
        ),
        check("The conventional side stops at about 200 ktxn/s", "180 to 220 ktxn/s at 8 workers", "243 ktxn/s", false),
    ];
    one.differences = vec!["The paper's DRAM is flat from 1 to 4 workers; ours falls by half as the others do.".into()];
    one.fitted = vec![
        "The time of a transaction, 26.7 µs: 8 workers without a log commit 300 ktxn/s.".into(),
        "Assumed: 12 write-combining buffers, as other processors of the family have.".into(),
    ];
    one.parameters = vec![
        Parameter {
            name: "group".into(),
            value: "16 KiB".into(),
            doc: "A group commit; the paper, section 6.1.".into(),
        },
        Parameter { name: "workers".into(), value: "1, 2, 4, 8".into(), doc: "Threads of the database.".into() },
    ];
    one.columns = vec![
        Column { name: "sink".into(), doc: "Where the log goes.".into() },
        Column { name: "workers".into(), doc: "Threads of the database.".into() },
        Column { name: "latency_us".into(), doc: "Mean time from begin to durable.".into() },
    ];
    one.rows = one.figures[0]
        .series
        .iter()
        .flat_map(|line| line.points.iter().map(|p| vec![Cell::from(&*line.name), Cell::from(p.x), Cell::from(p.y)]))
        .collect();
    one
}

/// Bars in groups.
pub fn bars() -> Experiment {
    let mut one = bare("sample/bars", "Bandwidth by the size of a write");
    let sizes = [8.0, 16.0, 32.0, 64.0];
    let bars =
        |name: &str, paper, values: [f64; 4]| series(name, paper, &sizes.into_iter().zip(values).collect::<Vec<_>>());
    one.figures.push(Figure {
        title: "SRAM".into(),
        form: Form::Bars,
        x_label: "bytes of a write".into(),
        y_label: "bandwidth, share of the greatest".into(),
        x_log: true,
        y_log: false,
        series: vec![
            bars("write combining", false, [0.34, 0.55, 0.79, 1.0]),
            bars("write combining", true, [0.4, 0.6, 0.8, 1.0]),
            bars("uncached", false, [0.07, 0.07, 0.07, 0.07]),
        ],
    });
    one.checks.push(check("Write combining is faster in all sizes", "more at each size", "4.9 to 14 times", true));
    one
}

/// Candlesticks.
pub fn candles() -> Experiment {
    let mut one = bare("sample/candles", "How late the shadow counter is, by its period");
    let candle = |x: f64, spread: [f64; 4], y: f64| Point { x, y, spread: Some(spread) };
    let candles = |title: &str, y_log| Figure {
        title: title.into(),
        form: Form::Candles,
        x_label: "period, µs".into(),
        y_label: "latency, µs".into(),
        x_log: false,
        y_log,
        series: vec![
            Series {
                name: "measured".into(),
                from_paper: false,
                points: vec![
                    candle(0.4, [4.5, 4.7, 5.0, 5.2], 4.85),
                    candle(0.8, [4.5, 4.9, 5.6, 6.0], 5.2),
                    candle(1.2, [4.5, 5.1, 6.1, 6.7], 5.6),
                    candle(1.6, [4.6, 5.3, 6.6, 7.3], 5.95),
                ],
            },
            Series {
                name: "the paper's".into(),
                from_paper: true,
                points: vec![candle(0.4, [4.5, 4.6, 4.9, 5.2], 4.8), candle(1.6, [4.6, 5.2, 6.5, 7.3], 5.9)],
            },
        ],
    };
    one.figures = vec![
        candles("Latency", false),
        Figure {
            title: "Bandwidth".into(),
            form: Form::Bars,
            x_label: "period, µs".into(),
            y_label: "share of the link, %".into(),
            x_log: false,
            y_log: true,
            series: vec![series("measured", false, &[(0.4, 4.0), (0.8, 2.0), (1.2, 1.33), (1.6, 1.0), (2.0, 0.0)])],
        },
    ];
    one.checks.push(check(
        "The variance grows with the period",
        "wider at 1.6 µs than at 0.4 µs",
        "2.7 and 0.7 µs",
        true,
    ));
    one
}

/// All of them.
pub fn all() -> Vec<Experiment> {
    vec![lines(), bars(), candles(), bare("sample/nothing", "Nothing was measured")]
}
