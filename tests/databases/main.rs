//! Crash campaigns with databases as a distribution ships them: `make test-databases` (`scripts/databases.sh`).
//!
//! Processes killed, data lost with the power, and the duty of each cell: `tests/databases/README.md`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use tidewater_base::Rng;
use tidewater_tests::databases::plain::Plain;
use tidewater_tests::databases::{Database, all};
use tidewater_tests::skipped;

mod campaign;
mod deaths;
mod exchanged;
mod machines;
mod pages;
mod witnessed;

use campaign::{Campaign, Cell, How, Outcome, cells};

struct Options {
    rounds: usize,
    seed: u64,
    list: bool,
    filters: Vec<String>,
}

impl Options {
    /// Parts of names choose; without any, all are run.
    fn wants(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}

/// The pages of a database that are wanted: `postgresql/page`, and the page's own name.
fn wanted_pages(database: &dyn Database, options: &Options) -> Vec<(String, String)> {
    let name =
        |page: &String| format!("{}/page{}", database.name(), page.strip_prefix(database.name()).unwrap_or_default());
    let named = pages::of(database).into_iter().map(|page| (name(&page), page));
    named.filter(|(name, _)| options.wants(name)).collect()
}

fn options() -> Result<Options, String> {
    let mut options = Options { rounds: 2, seed: 0, list: false, filters: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = |name: &str| {
            let text = arguments.next().unwrap_or_default();
            text.parse::<u64>().map_err(|_| format!("{name} takes a number, not '{text}'"))
        };
        match argument.as_str() {
            "--rounds" => options.rounds = number("--rounds")?.max(1) as usize,
            "--seed" => options.seed = number("--seed")?,
            "--list" => options.list = true,
            other if other.starts_with('-') => return Err(format!("unknown argument '{other}'")),
            filter => options.filters.push(filter.to_owned()),
        }
    }
    if options.seed == 0 {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |time| time.as_nanos());
        options.seed = now as u64 % 1_000_000;
    }
    Ok(options)
}

fn main() -> ExitCode {
    let asked = std::env::var_os("TIDEWATER_DATABASES").is_some();
    let options = match options() {
        Ok(options) if asked || options.list => options,
        // Also with arguments of the built-in harness, from `cargo test` of the whole workspace.
        _ if !asked => {
            println!("databases: make test-databases runs them");
            return ExitCode::SUCCESS;
        }
        Ok(options) => options,
        Err(why) => {
            eprintln!("databases: {why}");
            return ExitCode::from(2);
        }
    };
    let databases = all();
    let wanted: Vec<(&dyn Database, Cell)> = databases
        .iter()
        .flat_map(|database| cells().into_iter().map(|cell| (database.as_ref(), cell)))
        .filter(|(database, cell)| cell.suits(*database))
        .filter(|(database, cell)| options.wants(&format!("{}/{cell}", database.name())))
        .collect();
    let plain: Box<dyn Database> = Box::new(Plain);
    let with_plain = |what: &'static str| {
        let (all, options) = (databases.iter().chain([&plain]), &options);
        all.filter(move |database| options.wants(&format!("{}/{what}", database.name())))
    };
    if options.list {
        for (database, cell) in &wanted {
            println!("{}/{cell}", database.name());
        }
        for what in ["exchanged", "death"] {
            with_plain(what).for_each(|database| println!("{}/{what}", database.name()));
        }
        for (name, _) in databases.iter().flat_map(|database| wanted_pages(database.as_ref(), &options)) {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    }
    // Paths of sockets are short.
    let base = std::env::var_os("TIDEWATER_SCRATCH").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let scratch = match tempfile::Builder::new().prefix("tw").tempdir_in(&base) {
        Ok(scratch) => scratch,
        Err(error) => {
            eprintln!("databases: a scratch folder in {}: {error}", base.display());
            return ExitCode::from(2);
        }
    };
    let mut campaign = match Campaign::new(scratch.path(), options.rounds, options.seed) {
        Ok(campaign) => campaign,
        Err(why) => {
            eprintln!("databases: {why}");
            return ExitCode::from(2);
        }
    };
    if let Err(why) = tidewater_tests::databases::process::adopt() {
        eprintln!("databases: orphans: {why}");
        return ExitCode::from(2);
    }
    println!("databases: {} rounds in each cell, seed {}", options.rounds, options.seed);
    if let Err(why) = witnessed::check(&campaign) {
        eprintln!("databases: the witness: {why}");
        return ExitCode::FAILURE;
    }
    println!("databases: the witness sees what is synced, and nothing else");

    let begin = Instant::now();
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut others_failed = 0;
    for database in &databases {
        let cells: Vec<Cell> =
            wanted.iter().filter(|(other, _)| other.name() == database.name()).map(|(_, cell)| *cell).collect();
        let pages = wanted_pages(database.as_ref(), &options);
        let missing = database.missing();
        if !missing.is_empty() {
            let wants = |what: &&&str| options.wants(&format!("{}/{what}", database.name()));
            let others = ["exchanged", "death"].iter().filter(wants).count();
            let count = cells.len() + pages.len() + others;
            if count > 0 {
                skipped(count, &format!("{}: not installed; apt-get install {}", database.name(), missing.join(" ")));
            }
            continue;
        }
        let (cells, left_out): (Vec<Cell>, Vec<Cell>) = cells
            .into_iter()
            .partition(|cell| campaign.has_shim() || matches!(cell.how, How::Unflushed | How::Flushed));
        if !left_out.is_empty() {
            skipped(left_out.len(), &format!("{}: no libtidewater_shim.so beside the binary", database.name()));
        }
        for cell in cells {
            let outcome = campaign.run(database.as_ref(), cell);
            println!("{outcome}");
            outcomes.push(outcome);
        }
        for (name, page) in pages.into_iter().filter(|_| campaign.has_shim()) {
            let folder = scratch.path().join(format!("{page}.page"));
            match pages::check(database.as_ref(), &page, scratch.path(), &folder) {
                Ok(commands) => println!("{name:32} all {commands} lines of commands work"),
                Err(why) => {
                    others_failed += 1;
                    println!("{name:32} FAILED: {why}");
                }
            }
        }
    }
    let mut rng = Rng::new(options.seed, b"exchanged");
    let (has_shim, is_whole) = (campaign.has_shim(), options.rounds >= 10);
    for database in with_plain("exchanged").filter(|database| has_shim && database.missing().is_empty()) {
        let table = exchanged::check(&mut campaign, database.as_ref(), &mut rng, is_whole);
        others_failed += table.as_ref().map_or(1, |table| table.failures.len());
        table.map_or_else(|why| println!("{}/exchanged: FAILED: {why}", database.name()), |table| println!("{table}"));
    }
    for database in with_plain("death").filter(|database| has_shim && database.missing().is_empty()) {
        let times = deaths::check(&mut campaign, database.as_ref(), if is_whole { 5 } else { 1 });
        others_failed += times.as_ref().map_or(1, deaths::Times::late);
        times.map_or_else(|why| println!("{}/death: FAILED: {why}", database.name()), |times| println!("{times}"));
    }
    for name in campaign::blind(&outcomes) {
        println!("{name}: FAILED: no control lost anything without replay: the harness is blind");
        others_failed += 1;
    }
    let failed = others_failed + outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
    println!("\n{}", campaign::table(&outcomes));
    println!("databases: {} cells, {failed} failed, {:.0} s", outcomes.len(), begin.elapsed().as_secs_f64());
    if failed > 0 {
        println!("databases: what failed is in {}", scratch.keep().display());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
