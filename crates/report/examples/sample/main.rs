//! Writes a made-up record, its page, a comparison and experiments into a folder, to look at them:
//! `cargo run -p tidewater-report --example sample -- FOLDER`.

mod experiment;
mod record;

use std::path::PathBuf;
use tidewater_report::compare::{self, Labelled};

fn main() -> std::io::Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).unwrap_or_else(|| ".".into()));
    std::fs::create_dir_all(&folder)?;
    let rich = record::rich();
    std::fs::write(folder.join("record.json"), rich.to_json())?;
    std::fs::write(folder.join("report.html"), tidewater_report::page(&rich))?;
    let mut partial = record::small();
    partial.partial = true;
    partial.partial_reason = Some("interrupted by Ctrl-C".into());
    std::fs::write(folder.join("partial.html"), tidewater_report::page(&partial))?;
    std::fs::write(folder.join("empty.html"), tidewater_report::page(&tidewater_report::Record::default()))?;
    let labelled: Vec<Labelled> = [("greedy", 1.0), ("cost-benefit", 0.86), ("greedy, no write buffer at all", 1.45)]
        .into_iter()
        .map(|(label, slower)| Labelled { label: label.into(), record: record::scaled(slower) })
        .collect();
    std::fs::write(folder.join("compare.html"), compare::page(&labelled, "ftl.gc_victim"))?;
    let experiments = experiment::all();
    std::fs::write(folder.join("experiments.json"), tidewater_report::experiment::array_to_json(&experiments))?;
    std::fs::write(folder.join("experiments.html"), tidewater_report::experiment::page(&experiments))?;
    std::fs::write(folder.join("experiment.html"), tidewater_report::experiment::page(&experiments[1..2]))?;
    println!("{}", tidewater_report::experiment::summary(&experiments[0], 100));
    println!("{}", tidewater_report::summary(&rich));
    println!("{}", compare::table(&labelled, 100));
    Ok(())
}
