//! How fast it is, by
//! `cargo test --release -p tidewater-serve --test all -- --ignored --nocapture nvme_tcp::speed`.

use crate::nvme_tcp::mock::{BLOCK, Served, host, options};
use std::time::{Duration, Instant};
use tidewater_driver::nvme_tcp::{Host, Transfer};
use tidewater_wire::nvme::Sqe;

/// Random commands of 4 KiB at a depth, for a while; per second.
fn rate(served: &Served, host: &Host, depth: u16, writes: bool, time: Duration) -> f64 {
    let controller = served.controller(host);
    let mut queue = controller.queue(1, depth + 1).unwrap();
    let mut state = 1_u64;
    let (mut done, mut buffers) = (0_u64, Vec::new());
    let start = Instant::now();
    loop {
        while queue.outstanding() < depth.into() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let block = (state >> 33) % 4_096;
            if writes {
                let buffer = buffers.pop().unwrap_or_else(|| vec![7; BLOCK]);
                queue.submit(Sqe::write(0, block, 0), Transfer::Out(buffer)).unwrap();
            } else {
                queue.submit(Sqe::read(0, block, 0), Transfer::In(BLOCK as u32)).unwrap();
            }
        }
        let mut next = Some(queue.wait().unwrap());
        while let Some(completion) = next {
            let completion = completion.good().unwrap();
            assert_eq!(completion.data.len(), if writes { 0 } else { BLOCK });
            queue.recycle(completion.data);
            done += 1;
            next = queue.ready();
        }
        if start.elapsed() >= time {
            return done as f64 / start.elapsed().as_secs_f64();
        }
    }
}

#[test]
#[ignore = "measures, and is worth nothing on a busy machine"]
fn speed() {
    let time = Duration::from_secs(2);
    for spin in [false, true] {
        let served = Served::run(options(), 4_096, spin);
        for (header_digest, data_digest) in [(false, false), (true, true)] {
            for flow_control in [false, true] {
                let host = Host { header_digest, data_digest, flow_control, ..host() };
                for (depth, writes) in [(1, false), (32, false), (128, false), (32, true)] {
                    let rate = rate(&served, &host, depth, writes, time);
                    println!(
                        "target {} digests {} responses {}: 4 KiB random {} at depth {depth}: {rate:.0}/s",
                        if spin { "polling, " } else { "sleeping," },
                        if data_digest { "on, " } else { "off," },
                        if flow_control { "sent" } else { "with data" },
                        if writes { "writes" } else { "reads" },
                    );
                }
            }
        }
        served.stop();
    }
}
