//! A log on several devices: `replicated append FOLDER` appends numbers, and prints each once enough replicas have it;
//! `replicated read FOLDER` prints the numbers that the log of another primary holds. FOLDER is a log device's.
//!
//!     cargo run --package tidewater-client --features mapped --example replicated -- append a

#[cfg(feature = "mapped")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::io::Write as _;
    use std::time::Duration;
    use tidewater_client::mapped::{Log, Options};
    use tidewater_client::{Entry, Level, Records};

    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, folder] = &arguments[..] else { return Err("usage: replicated append|read FOLDER".into()) };
    let target = format!("vfio-user:{folder}/vfio.sock");
    let log = Log::open(&target, Options { level: Some(Level::RemoteRing), ..Options::default() })?;
    let mut out = std::io::stdout().lock();
    if what == "append" {
        for number in 1u64.. {
            let end = log.append(&[&number.to_le_bytes()])?.end;
            log.wait(end, Level::RemoteRing, Duration::from_secs(60))?;
            writeln!(out, "{number}")?;
        }
    }
    let first = log.status().device.ok_or("the device does not answer")?.lane[0].readable;
    let mut bytes = vec![0; (log.tail() - first) as usize];
    log.x_pread(first, &mut bytes, Duration::from_secs(10))?;
    for entry in Records::new(&bytes, first) {
        if let Entry::Record { payload, .. } = entry {
            writeln!(out, "{}", u64::from_le_bytes(payload.try_into()?))?;
        }
    }
    Ok(())
}

#[cfg(not(feature = "mapped"))]
fn main() {
    println!("build it with --features mapped");
}
