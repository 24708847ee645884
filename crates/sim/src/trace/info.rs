//! Statistics of a trace or of any other source.

use std::collections::BTreeMap;

use serde::Serialize;

use super::footprint::{Footprint, PAGE_BYTES};
use super::locality::{self, Locality};
use super::shape::{self, Shape};
use super::skew::Places;
use super::{Trace, TraceRequest};
use crate::request::{Op, Request, Source, SourceError};

/// Statistics of a trace. The figures of published trace tables: they count reads and writes; flushes, deallocations
/// and the like are in [`Info::operations`] only.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// The trace, as the user named it.
    pub file: String,
    /// Its format; `None` for a generated workload.
    pub format: Option<&'static str>,
    /// Reads and writes.
    pub requests: u64,
    /// Mean size of a read or write in KiB.
    pub mean_kib: f64,
    /// Mean size of a read in KiB; 0 without reads.
    pub mean_read_kib: f64,
    /// Mean size of a write in KiB; 0 without writes.
    pub mean_write_kib: f64,
    /// Writes as a percentage of reads and writes.
    pub write_percent: f64,
    /// Percentage of reads and writes that start where the previous one on the same device ended.
    pub sequential_percent: f64,
    /// Percentage of reads and writes that begin and end at a multiple of 4 KiB of their device.
    pub aligned_percent: f64,
    /// Exponent of the Zipf distribution that fits how often requests that are not sequential begin in each 64 KiB, 0
    /// (evenly) to 3.
    pub skew: f64,
    /// Time between the first and the last stamp over the number of intervals, in ms.
    pub mean_interarrival_ms: f64,
    /// Distinct 4 KiB pages that reads and writes touch, in MiB; each device has its own pages.
    pub footprint_mib: f64,
    /// Bytes from the first to the last address in the concatenated address space, in MiB.
    pub extent_mib: f64,
    /// Seconds from the first to the last arrival.
    pub duration_seconds: f64,
    /// Devices, volumes or application storage units.
    pub devices: u32,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests by operation, without those that do not occur.
    pub operations: BTreeMap<&'static str, u64>,
    /// Requests with Force Unit Access.
    pub fua: u64,
    /// Requests whose stamp was earlier than that of one before.
    pub reordered: u64,
    /// Malformed lines that were skipped.
    pub skipped: u64,
    /// Why the trace ended before its end, where what is there was used all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_short: Option<String>,
    /// How near in time and place requests are, where it was asked for: it takes longer than all else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locality: Option<Locality>,
    /// Sizes, times between requests, and where requests begin.
    #[serde(flatten)]
    pub shape: Shape,
    /// The devices with the most requests, the busiest first, up to [`BUSIEST`]. Empty: there is one, or only a slice
    /// was read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub busiest: Vec<DeviceInfo>,
}

/// Devices that [`Info`] tells of one by one.
pub const BUSIEST: usize = 10;

/// The figures of one device, volume or application storage unit.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct DeviceInfo {
    /// Its name in the trace; `--volume` takes that.
    pub name: String,
    /// Reads and writes.
    pub requests: u64,
    /// Mean size of a read or write in KiB.
    pub mean_kib: f64,
    /// Writes as a percentage of reads and writes.
    pub write_percent: f64,
    /// Distinct 4 KiB pages that reads and writes touch, in MiB.
    pub footprint_mib: f64,
}

/// Reads a trace to its end and sums it up, `with_locality` or without.
pub fn info(trace: &mut Trace, with_locality: bool) -> Result<Info, SourceError> {
    let mut statistics = Statistics::new(with_locality);
    while let Some(next) = trace.next_request() {
        statistics.add(&next?);
    }
    let mut info = statistics.finish();
    info.file = trace.file().to_owned();
    info.format = Some(trace.format().name());
    info.devices = statistics.last_end.len() as u32;
    info.busiest = statistics.busiest(&trace.device_names());
    info.reordered = trace.reordered();
    info.skipped = trace.skipped();
    info.cut_short = trace.cut_short();
    if let Some(extent) = trace.extent() {
        info.extent_mib = extent as f64 / MIB;
    }
    Ok(info)
}

/// Reads any source to its end and sums it up, as one device, `with_locality` or without. `name` stands for the file.
pub fn info_of(name: &str, source: &mut impl Source, with_locality: bool) -> Result<Info, SourceError> {
    sum_up(name, source, Statistics::new(with_locality))
}

/// The same with the part of the locality that is of places, and no lists of pages.
pub(crate) fn info_with_places(source: &mut impl Source) -> Result<Info, SourceError> {
    let locality = Some(locality::Counter::of_places());
    sum_up("", source, Statistics { locality, ..Statistics::default() })
}

fn sum_up(name: &str, source: &mut impl Source, mut statistics: Statistics) -> Result<Info, SourceError> {
    while let Some(request) = source.next() {
        let request = request?;
        let stamp_ps = u128::from(request.arrival.as_ps());
        statistics.add(&TraceRequest { request, device: 0, device_offset: request.offset, stamp_ps });
    }
    let mut info = statistics.finish();
    info.file = name.to_owned();
    info.skipped = source.skipped();
    info.cut_short = source.cut_short();
    Ok(info)
}

const MIB: f64 = 1_048_576.0;

#[derive(Default)]
struct Statistics {
    counts: [u64; Op::ALL.len()],
    bytes: [u64; Op::ALL.len()],
    sequential: u64,
    aligned: u64,
    fua: u64,
    extent: u64,
    shape: shape::Counter,
    places: Places,
    footprint: Footprint,
    locality: Option<locality::Counter>,
    /// Where the last read or write of each device ended.
    last_end: Vec<Option<u64>>,
    /// Reads and writes of each device, writes among them, and bytes.
    of_device: Vec<[u64; 3]>,
    /// Stamps of the first and the last read or write, as the trace has them.
    stamps: Option<(u128, u128)>,
    last: Option<Request>,
}

impl Statistics {
    fn new(with_locality: bool) -> Statistics {
        Statistics { locality: with_locality.then(locality::Counter::new), ..Statistics::default() }
    }

    fn add(&mut self, next: &TraceRequest) {
        let request = next.request;
        self.counts[request.op.index()] += 1;
        self.bytes[request.op.index()] += request.length;
        self.fua += u64::from(request.fua);
        self.extent = self.extent.max(request.end());
        self.last = Some(request);
        let device = next.device as usize;
        if self.last_end.len() <= device {
            self.last_end.resize(device + 1, None);
            self.of_device.resize(device + 1, [0; 3]);
        }
        if !matches!(request.op, Op::Read | Op::Write) {
            return;
        }
        let [requests, writes, bytes] = &mut self.of_device[device];
        (*requests, *bytes) = (*requests + 1, *bytes + request.length);
        *writes += u64::from(request.op == Op::Write);
        let is_sequential = self.last_end[device] == Some(next.device_offset);
        self.sequential += u64::from(is_sequential);
        self.aligned += u64::from((next.device_offset | request.length).is_multiple_of(PAGE_BYTES));
        let (is_write, arrival_ps) = (request.op == Op::Write, request.arrival.as_ps());
        self.shape.add(is_write, next.device_offset, request.length, arrival_ps, is_sequential);
        if !is_sequential {
            self.places.add(next.device, next.device_offset);
        }
        if let Some(locality) = &mut self.locality {
            locality.add(next.device, is_write, next.device_offset, request.length, is_sequential);
        }
        self.last_end[device] = Some(next.device_offset + request.length);
        self.footprint.add(next.device, next.device_offset, request.length);
        let first = self.stamps.map_or(next.stamp_ps, |(first, _)| first);
        self.stamps = Some((first, next.stamp_ps));
    }

    /// Of several devices, those with the most requests.
    fn busiest(&self, names: &[String]) -> Vec<DeviceInfo> {
        if self.of_device.len() < 2 {
            return Vec::new();
        }
        let mut order: Vec<usize> = (0..self.of_device.len()).collect();
        order.sort_by_key(|&device| (std::cmp::Reverse(self.of_device[device][0]), device));
        order.truncate(BUSIEST);
        let figures = |&device: &usize| {
            let [requests, writes, bytes] = self.of_device[device];
            let share = |part: f64| if requests == 0 { 0.0 } else { part / requests as f64 };
            DeviceInfo {
                name: names.get(device).cloned().unwrap_or_default(),
                requests,
                mean_kib: share(bytes as f64 / 1024.0),
                write_percent: share(100.0 * writes as f64),
                footprint_mib: (self.footprint.pages_of(device as u32) * PAGE_BYTES) as f64 / MIB,
            }
        };
        order.iter().map(figures).collect()
    }

    fn finish(&self) -> Info {
        let (reads, writes) = (self.counts[Op::Read.index()], self.counts[Op::Write.index()]);
        let (read_bytes, written_bytes) = (self.bytes[Op::Read.index()], self.bytes[Op::Write.index()]);
        let requests = reads + writes;
        let over = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let share = |part: f64| over(part, requests);
        // Last minus first, as the published tables do, not the sum of the gaps after reordering. The two differ only
        // in traces that are not in order; one whose last stamp is before its first has a mean of zero.
        let span_ps = self.stamps.map_or(0, |(first, last)| last.saturating_sub(first));
        let mean_interarrival_ms = if requests > 1 { span_ps as f64 / 1e9 / (requests - 1) as f64 } else { 0.0 };
        let operations = Op::ALL.into_iter().zip(self.counts).filter(|(_, n)| *n > 0).map(|(op, n)| (op.name(), n));
        Info {
            file: String::new(),
            format: None,
            requests,
            mean_kib: share((read_bytes + written_bytes) as f64 / 1024.0),
            mean_read_kib: over(read_bytes as f64 / 1024.0, reads),
            mean_write_kib: over(written_bytes as f64 / 1024.0, writes),
            write_percent: share(100.0 * writes as f64),
            sequential_percent: share(100.0 * self.sequential as f64),
            aligned_percent: share(100.0 * self.aligned as f64),
            skew: self.places.skew(),
            mean_interarrival_ms,
            footprint_mib: (self.footprint.pages() * PAGE_BYTES) as f64 / MIB,
            extent_mib: self.extent as f64 / MIB,
            duration_seconds: self.last.map_or(0.0, |last| last.arrival.as_ps() as f64 / 1e12),
            devices: 1,
            read_bytes,
            written_bytes,
            operations: operations.collect(),
            fua: self.fua,
            reordered: 0,
            skipped: 0,
            cut_short: None,
            locality: self.locality.as_ref().map(locality::Counter::finish),
            shape: self.shape.finish(),
            busiest: Vec::new(),
        }
    }
}
