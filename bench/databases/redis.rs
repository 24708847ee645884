//! Redis by its own redis-benchmark, and a mix after YCSB's workload A.

use std::process::Command;
use std::time::Duration;

use tidewater_base::Rng;
use tidewater_tests::databases::redis::{Connection, Redis};
use tidewater_tests::databases::{Around, Database, Place, program};

use crate::load::{output, rate};
use crate::{Mode, Rate};

pub struct Subject;

const DATABASE: Redis = Redis { small: false };
/// Bytes of a value, as in the paper on the byte window.
const VALUE: usize = 64;
const KEYS: usize = 10_000;
const CLIENTS: u32 = 8;

/// YCSB's skew.
const THETA: f64 = 0.99;

impl crate::Subject for Subject {
    fn name(&self) -> &'static str {
        DATABASE.name()
    }

    fn missing(&self) -> Vec<&'static str> {
        DATABASE.missing()
    }

    fn create(&self, place: &Place) -> Result<(), String> {
        DATABASE.create(place)
    }

    fn measure(&self, place: &Place, mode: Mode, around: Around, time: Duration) -> Result<Vec<Rate>, String> {
        let server = DATABASE.start(place, mode.flush(), around)?;
        let mut rates = Vec::new();
        for clients in [1, 50] {
            // It takes a count and no time: a few tell how many that is.
            let few = sets(place, clients, 500)?;
            let per_second = sets(place, clients, ((few * time.as_secs_f64()) as u64).max(500))?;
            rates.push(Rate { workload: "redis-benchmark SET", clients, per_second });
        }
        rates.push(Rate { workload: "YCSB-A mix", clients: CLIENTS, per_second: mix(place, time)? });
        server.stop()?;
        Ok(rates)
    }
}

fn sets(place: &Place, clients: u32, count: u64) -> Result<f64, String> {
    let mut command = Command::new(program("redis-benchmark").ok_or("redis-benchmark is not installed")?);
    command.arg("-s").arg(place.sockets().join("redis")).args(["-t", "set", "-r", "10000", "--csv"]);
    command.args(["-d", &VALUE.to_string(), "-c", &clients.to_string(), "-n", &count.to_string()]);
    let text = output(command)?;
    // "SET","104167.00",...
    let line = text.lines().find(|line| line.starts_with("\"SET\"")).ok_or(format!("no figure in: {text}"))?;
    let figure = line.split(',').nth(1).map(|cell| cell.trim_matches('"'));
    figure.and_then(|figure| figure.parse().ok()).ok_or(format!("no figure in: {text}"))
}

/// Half reads, half updates, keys by Zipf's law.
fn mix(place: &Place, time: Duration) -> Result<f64, String> {
    let value = "v".repeat(VALUE);
    let weights: Vec<f64> = (1..=KEYS).map(|rank| (rank as f64).powf(-THETA)).collect();
    let total: f64 = weights.iter().sum();
    let mut sum = 0.0;
    let below: Vec<f64> = weights
        .iter()
        .map(|weight| {
            sum += weight / total;
            sum
        })
        .collect();
    std::thread::scope(|scope| {
        let (value, below) = (&value, &below);
        let threads: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let mut connection = Connection::open(place)?;
                    let mut rng = Rng::new(u64::from(client), b"ycsb");
                    rate(time, || {
                        let draw = rng.unit_f64();
                        let key = format!("user{}", below.partition_point(|edge| *edge < draw));
                        if rng.below(2) == 0 {
                            connection.ask(&["GET", &key])?
                        } else {
                            connection.ask(&["SET", &key, value])?
                        };
                        Ok(1)
                    })
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a client panicked".to_owned())?).sum()
    })
}
