//! PostgreSQL by its own pgbench: simple updates (`-N`), and a mix after LinkBench.

use std::process::Command;
use std::time::Duration;

use tidewater_tests::databases::postgresql::{PostgreSql, tool};
use tidewater_tests::databases::process::{User, as_user};
use tidewater_tests::databases::{Around, Database, Flush, Place};
use tidewater_tests::root;

use crate::load::{number, output};
use crate::{Mode, Rate};

pub struct Subject;

const DATABASE: PostgreSql = PostgreSql { small: false };

/// The mix of LinkBench (Armstrong et al., SIGMOD 2013, table 2), in per mille: files of `linkbench/`.
const MIX: &[(&str, u32)] = &[
    ("get-link-list", 507),
    ("get-node", 129),
    ("add-link", 90),
    ("update-link", 80),
    ("update-node", 74),
    ("count-links", 49),
    ("delete-link", 30),
    ("add-node", 26),
    ("delete-node", 10),
    ("multi-get-link", 5),
];

fn pgbench(place: &Place, arguments: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(tool("pgbench").ok_or("pgbench is not installed")?);
    command.current_dir(place.folder()).env("PGHOST", place.sockets()).env("PGUSER", "postgres").args(arguments);
    if let Some(user) = DATABASE.user()? {
        as_user(&mut command, user);
    }
    command.arg("postgres");
    Ok(command)
}

impl crate::Subject for Subject {
    fn name(&self) -> &'static str {
        DATABASE.name()
    }

    fn missing(&self) -> Vec<&'static str> {
        DATABASE.missing()
    }

    fn user(&self) -> Result<Option<User>, String> {
        DATABASE.user()
    }

    fn create(&self, place: &Place) -> Result<(), String> {
        DATABASE.create(place)?;
        let server = DATABASE.start(place, Flush::None, Around::default())?;
        output(pgbench(place, &["-i", "-q", "-s", "5"])?)?;
        let schema = root().join("bench/databases/linkbench/schema.sql");
        let schema = std::fs::read_to_string(schema).map_err(|error| error.to_string())?;
        tidewater_tests::databases::postgresql::Connection::open(place)?.query(&schema)?;
        server.stop()
    }

    fn measure(&self, place: &Place, mode: Mode, around: Around, time: Duration) -> Result<Vec<Rate>, String> {
        let server = DATABASE.start(place, mode.flush(), around)?;
        let seconds = time.as_secs().max(1).to_string();
        let mut rates = Vec::new();
        // Its buffers are empty after a start.
        output(pgbench(place, &["-N", "-n", "-c", "8", "-j", "2", "-T", "1"])?)?;
        for clients in [1, 8, 64] {
            let text = output(pgbench(place, &["-N", "-n", "-c", &clients.to_string(), "-j", "2", "-T", &seconds])?)?;
            rates.push(Rate { workload: "pgbench -N", clients, per_second: number(&text, "tps = ", " ")? });
        }
        let folder = root().join("bench/databases/linkbench");
        let scripts: Vec<String> = MIX
            .iter()
            .map(|(name, weight)| format!("{}@{weight}", folder.join(format!("{name}.sql")).display()))
            .collect();
        let mut arguments = vec!["-n", "-c", "64", "-j", "2", "-T", &seconds];
        for script in &scripts {
            arguments.extend(["-f", script]);
        }
        let text = output(pgbench(place, &arguments)?)?;
        rates.push(Rate { workload: "LinkBench mix", clients: 64, per_second: number(&text, "tps = ", " ")? });
        server.stop()?;
        Ok(rates)
    }
}
