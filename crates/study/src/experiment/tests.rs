//! The template and what is made of it.

use super::sheet::rounded;
use super::*;
use std::sync::atomic::AtomicUsize;
use tidewater_report::experiment::Cell;

#[derive(Default)]
struct Begun(AtomicUsize);

impl Follow for Begun {
    fn started(&self, _index: usize) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The experiment of a text, run with so many jobs, and how many runs it made.
fn run(text: &str, jobs: usize) -> (Result<Option<Experiment>, Failure>, usize) {
    let asked = Asked { seed: 1, quick: true, full: false };
    let own = match Planned::own(text, Path::new("folder/mine.toml"), asked) {
        Ok(own) => own,
        Err(failure) => return (Err(failure), 0),
    };
    let begun = Arc::new(Begun::default());
    let how = How::new(Some(jobs), Arc::new(AtomicBool::new(false)));
    let outcome = pool::with_jobs(jobs, || own.run(&how, &(Arc::clone(&begun) as Arc<dyn Follow>)));
    (outcome, begun.0.load(Ordering::Relaxed))
}

#[test]
fn the_template_runs_its_checks_hold_and_jobs_make_no_difference() {
    let (outcome, runs) = run(TEMPLATE, 1);
    let experiment = outcome.unwrap().unwrap();
    assert_eq!((runs, experiment.rows.len(), experiment.name.as_str()), (3, 3, "mine"));
    assert!(experiment.holds(), "{:?}", experiment.checks);
    let names: Vec<&str> = experiment.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["over_provisioning", "waf", "write_p99_ms"]);
    let [ours, theirs] = &experiment.figures[0].series[..] else { panic!("{:?}", experiment.figures) };
    assert_eq!(ours.points.iter().map(|point| point.x).collect::<Vec<_>>(), [7.0, 14.0, 28.0]);
    assert!(theirs.from_paper && theirs.points[0].y == 6.0);
    assert_eq!(run(TEMPLATE, 3).0.unwrap().unwrap(), experiment);
}

#[test]
fn a_row_is_the_median_over_seeds() {
    let with = |seeds: &str| {
        let text = TEMPLATE.replace("seed = [1]", &format!("seed = {seeds}"));
        run(&text, 2).0.unwrap().unwrap().rows.into_iter().map(|row| row[1].clone()).collect::<Vec<_>>()
    };
    let each: Vec<Vec<Cell>> = (1..=3).map(|seed| with(&format!("[{seed}]"))).collect();
    for (at, middle) in with("\"1..3\"").into_iter().enumerate() {
        let mut values: Vec<f64> =
            each.iter().map(|rows| if let Cell::Number(number) = rows[at] { number } else { f64::NAN }).collect();
        values.sort_by(f64::total_cmp);
        assert_eq!(middle, Cell::Number(values[1]));
    }
}

#[test]
fn what_is_wrong_is_found_before_the_runs_or_after_the_first() {
    for (part, wrong, expected, runs) in [
        ("write_amplification\"", "write_amplificatio\"", "did you mean `write_amplification`?", 1),
        ("measured is falling", "measured is fallin", "test fallin is unknown", 3),
        ("value = \"write_amplification\"", "value = \"(\"", "columns.waf: `(`", 0),
        ("name = \"write_p99_ms\"", "name = \"waf\"", "`waf` is there twice", 0),
        ("y = \"waf\"", "y = \"wav\"", "there is no column `wav`", 0),
        ("x = \"ftl.over_provisioning\"", "x = \"seed\"", "`seed` does not vary", 0),
        ("seed = [1]", "channels = [1]", "quick.vary: channels does not vary", 0),
        ("[run]\n", "[ran]\n", "unknown field `ran`", 0),
        ("\"ftl.over_provisioning\" =", "\"ftl.over_provisionin\" =", "over_provisioning", 0),
    ] {
        assert!(TEMPLATE.contains(part), "{part}");
        let (outcome, made) = run(&TEMPLATE.replace(part, wrong), 1);
        let failure = outcome.unwrap_err();
        assert!(failure.to_string().contains(expected), "{part}: {failure}");
        assert_eq!(made, runs, "{part}");
    }
    let quick = TEMPLATE.find("# What `--quick`").unwrap()..TEMPLATE.find("# Of each run").unwrap();
    let mut without = TEMPLATE.to_owned();
    without.replace_range(quick, "");
    assert!(run(&without, 1).0.unwrap_err().to_string().contains("has no [quick]"));
}

#[test]
fn numbers_are_rounded_for_a_reader() {
    for (value, expected) in
        [(0.0, "0"), (1.0, "1"), (2.34567, "2.346"), (12_345.6, "12346"), (0.000_123_46, "0.0001235")]
    {
        assert_eq!(rounded(&Value::from(value)), expected);
    }
    assert_eq!(rounded(&Value::from(vec![1.5, 2.0])), "1.5, 2");
    assert_eq!(rounded(&Value::from("word")), "word");
}
