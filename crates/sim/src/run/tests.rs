use super::*;
use crate::workload::{JobSpec, Op, Request, SourceError};
use std::sync::{Arc, Mutex};
use tidewater_base::Duration;

/// Requests from a list.
#[derive(Clone)]
struct List(std::vec::IntoIter<Request>);

impl Source for List {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        self.0.next().map(Ok)
    }

    fn extent(&self) -> Option<u64> {
        self.0.as_slice().iter().map(Request::end).max()
    }

    fn place(&self) -> Option<String> {
        Some("list:7".into())
    }
}

fn list(requests: impl IntoIterator<Item = Request>) -> List {
    List(requests.into_iter().collect::<Vec<_>>().into_iter())
}

fn request(at_us: u64, op: Op, offset: u64, length: u64) -> Request {
    Request { arrival: Instant::from_ns(at_us * 1_000), op, offset, length, fua: false }
}

/// One die, no buffer, nothing in the background: every latency is a sum.
fn tiny() -> Profile {
    let mut profile = Profile::generic();
    for setting in [
        "drive.capacity=64MiB",
        "nand.channels=1",
        "nand.ways=1",
        "nand.dies_per_way=1",
        "nand.planes=1",
        "nand.pages_per_block=64",
        "nand.page_size=4KiB",
        "nand.oob_size=256",
        "nand.cell=slc",
        "nand.factory_bad_rate=0",
        "nand.rber_fresh=0",
        "nand.rber_worn=0",
        "buffer.write_policy=none",
        "ftl.checkpoint_interval=0",
    ] {
        let (key, value) = setting.split_once('=').unwrap();
        profile.set(key, value).unwrap_or_else(|e| panic!("{setting}: {e}"));
    }
    profile
}

fn job(text: &str, seed: u64) -> crate::workload::JobSource {
    JobSpec::from_inline(text).unwrap().source(Some(64 << 20), seed).unwrap()
}

#[test]
fn a_job_runs() {
    let options = RunOptions { pacing: Pacing::Depth(8), ..RunOptions::default() };
    let source = job("rw=randrw,bs=4k,size=64m,number_ios=20000", 1);
    let Outcome { record, device } = run(&tiny(), source, options).unwrap();
    assert_eq!(record.requests, 20_000);
    assert_eq!(device.outstanding(), 0);
    println!("{record:#?}");
}
