//! Common parts of the workloads.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tidewater_tests::databases::device::{Device, Memory};
use tidewater_tests::databases::process::{cpu_seconds, descendants, kill_tree};
use tidewater_tests::databases::{Around, Level, Place, program};

use crate::Idle;

/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(5);

/// Output of a program.
pub fn output(mut command: Command) -> Result<String, String> {
    let output = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).output();
    let output = output.map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!(
            "{:?} ended with {}: {text} {}",
            command.get_program(),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ))
    }
}

/// The number that stands before or behind a word: `number(text, "tps = ", " ")`.
pub fn number(text: &str, before: &str, after: &str) -> Result<f64, String> {
    let found = text.split_once(before).and_then(|(_, rest)| rest.trim_start().split_once(after));
    let found = found.and_then(|(number, _)| number.trim().parse().ok());
    found.ok_or_else(|| format!("no figure in: {text}"))
}

/// Counts that an operation reaches in this time, per second. The operation does so many at a time.
pub fn rate(time: Duration, mut operation: impl FnMut() -> Result<u64, String>) -> Result<f64, String> {
    let begin = Instant::now();
    let mut done = 0;
    while begin.elapsed() < time {
        done += operation()?;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// The processor time of a device and of `tidewater run` around a program that sleeps.
pub fn idle(tidewater: &Path, place: &Place, ring: &Path) -> Result<Idle, String> {
    let mut device = Device::new(tidewater, place, ring, "64MiB", Memory::Copied);
    device.start(None)?;
    let around = Around { device: Some((&device, Level::Ring)), ..Around::default() };
    let sleep = program("sleep").ok_or("no program sleep")?;
    let globs = [place.data().join("*.log").display().to_string()];
    let mut supervisor =
        around.command(place, "idle", &sleep, &globs)?.arg("60").spawn().map_err(|error| error.to_string())?;
    // Until it has started.
    let begin = Instant::now();
    while descendants(&[supervisor.id()]).is_empty() && begin.elapsed() < tidewater_tests::PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    let both = |device: &Device| cpu_seconds(device.process()).zip(cpu_seconds(supervisor.id()));
    let before = both(&device);
    let begin = Instant::now();
    std::thread::sleep(IDLE);
    let (after, took) = (both(&device), begin.elapsed().as_secs_f64());
    kill_tree(&[supervisor.id()]);
    let _ = supervisor.wait();
    device.stop()?;
    let (Some(before), Some(after)) = (before, after) else {
        return Err(format!("it did not idle: {}", place.said("idle")));
    };
    Ok(Idle { device: (after.0 - before.0) / took, supervisor: (after.1 - before.1) / took })
}
