//! RocksDB by its own db_bench: random puts that are synced, and half reads, half puts.

use std::process::Command;
use std::time::Duration;

use tidewater_tests::databases::{Around, Flush, Place, program};

use crate::load::{number, output};
use crate::{Layer, Mode, Rate};

pub struct Subject;

impl crate::Subject for Subject {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn missing(&self) -> Vec<&'static str> {
        if program(DB_BENCH).is_some() { vec![] } else { vec!["rocksdb-tools"] }
    }

    fn create(&self, _: &Place) -> Result<(), String> {
        Ok(())
    }

    fn measure(&self, place: &Place, mode: Mode, around: Around, time: Duration) -> Result<Vec<Rate>, String> {
        let db_bench = program(DB_BENCH).ok_or("db_bench is not installed")?;
        let globs = [place.data().join("*.log").display().to_string()];
        rates(place, mode.flush(), time, || around.command(place, DB_BENCH, &db_bench, &globs))
    }

    fn measure_layer(&self, place: &Place, layer: Layer, time: Duration) -> Option<Result<Vec<Rate>, String>> {
        let library = layer.folder.join("libtidewater_rocksdb.so");
        if !library.is_file() {
            println!("rocksdb: its layer is left out: apt-get install librocksdb-dev");
            return None;
        }
        let command = || {
            let db_bench = program(DB_BENCH).ok_or("db_bench is not installed")?;
            let mut command = place.command(DB_BENCH, &db_bench)?;
            command.arg(format!("--fs_uri=tidewater://{}", layer.device.target()));
            command.env("LD_PRELOAD", &library).env("TIDEWATER_LEVEL", "ring");
            Ok(command)
        };
        Some(rates(place, Mode::Layer.flush(), time, command))
    }
}

const DB_BENCH: &str = "db_bench";

/// Runs every workload, each in a process of its own.
fn rates(
    place: &Place,
    flush: Flush,
    time: Duration,
    command: impl Fn() -> Result<Command, String>,
) -> Result<Vec<Rate>, String> {
    let mut rates = Vec::new();
    let sync = format!("--sync={}", u32::from(flush == Flush::Real));
    let seconds = format!("--duration={}", time.as_secs().max(1));
    // fillsync counts a thousandth of --num and no time: random puts with --sync=1 are the same for a time.
    for (workload, name, how) in [
        ("fillsync, 64 B", "fillrandom", &[][..]),
        ("YCSB-A mix, 64 B", "readrandomwriterandom", &["--use_existing_db=1", "--readwritepercent=50"][..]),
    ] {
        for clients in [1, 8] {
            let mut command = command()?;
            command.arg(format!("--db={}", place.data().display())).arg(format!("--benchmarks={name}"));
            command
                .args(["--num=100000", "--value_size=64", &sync, &seconds, &format!("--threads={clients}")])
                .args(how);
            let text = output(command)?;
            // fillrandom : 305.7 micros/op 3271 ops/sec ...
            rates.push(Rate { workload, clients, per_second: number(&text, "micros/op", "ops/sec")? });
        }
    }
    Ok(rates)
}
