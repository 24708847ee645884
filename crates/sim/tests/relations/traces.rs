//! A trace keeps its record in whatever format it is written and read.

use crate::relations::cases::{Case, Load};
use crate::relations::ledger::Ledger;
use crate::relations::rig::{difference, serve_source};
use tidewater_base::{Instant, Rng};
use tidewater_core::ftl::Precondition;
use tidewater_sim::trace::convert::{OutputFormat, convert};
use tidewater_sim::trace::{Format, Input, Options, Trace};
use tidewater_sim::workload::{Op, Request, Source, SourceError};

/// Requests of a list.
struct List(std::vec::IntoIter<Request>);

impl Source for List {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        self.0.next().map(Ok)
    }
}

/// Reads and writes that every format can tell: whole sectors, whole microseconds.
fn requests(case: &Case) -> Vec<Request> {
    let mut rng = Rng::new(case.number, b"trace");
    let sectors = case.profile.drive.capacity / 512;
    let mut arrival_us = 0;
    let mut request = |i: u64| {
        arrival_us += if i == 0 { 0 } else { rng.below(400) };
        let length = 1 + rng.below(64);
        let offset = rng.below(sectors - length);
        let op = if rng.below(3) == 0 { Op::Read } else { Op::Write };
        let arrival = Instant::from_ns(arrival_us * 1_000);
        Request { arrival, op, offset: offset * 512, length: length * 512, fua: false }
    };
    (0..400).map(&mut request).collect()
}

/// All formats that can be written, for one case in four.
pub fn check(case: &Case, ledger: &mut Ledger) {
    if !case.number.is_multiple_of(4) {
        return;
    }
    let requests = requests(case);
    let load = Load::one(Precondition::Filled(1.0), "a trace", 0);
    ledger.runs += 1;
    let direct = match serve_source(&case.profile, &load, List(requests.clone().into_iter()), |_| {}) {
        Ok(direct) => direct,
        Err(error) => return ledger.violation("a trace is served to its end", case, &error.to_string()),
    };
    for output in OutputFormat::ALL {
        let mut text = Vec::new();
        convert(&mut List(requests.clone().into_iter()), &mut text, output, "drive").expect("memory can be written");
        let format = match output {
            OutputFormat::Mqsim => Format::Mqsim,
            OutputFormat::FioV2 | OutputFormat::FioV3 => Format::Fio,
            OutputFormat::Spc => Format::Spc,
        };
        let options = Options { format: Some(format), ..Options::default() };
        let trace = Trace::open(&Input::from_bytes(output.name(), &text), &options).expect("a readable trace");
        ledger.runs += 1;
        let relation = "a trace keeps its record in every format";
        match serve_source(&case.profile, &load, trace, |_| {}) {
            Ok(read) => {
                let different = difference(&direct, &read);
                ledger.check(relation, case, different.is_none(), || {
                    format!("as {}: {}", output.name(), different.unwrap_or_default())
                });
            }
            Err(error) => ledger.violation(relation, case, &format!("as {}: {error}", output.name())),
        }
    }
}
