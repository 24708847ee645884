//! Calls of programs on a log and their results, with times; and the rules that hold for them.
//!
//! Every append has a number of its own. A read is of the log up to a record that its reader has appended and seen
//! acknowledged, so it has to hold all that was acknowledged before the read began.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidewater_client::mapped::Log;
use tidewater_client::{Entry, Level, LogError, Records};

/// Bytes of a record beyond its number, at most.
const FILLER: u64 = 40;

/// A record that a read has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub offset: u64,
    /// The epoch that it was written in: a later one is higher.
    pub epoch: u64,
    pub number: u64,
}

/// A request, with its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Append a number.
    Append {
        number: u64,
        /// Where the record begins. `None`: it did not come into the ring.
        offset: Option<u64>,
        /// The epoch that the primary was in.
        epoch: u64,
    },
    /// All records up to the reader's own.
    Read(Vec<Found>),
}

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub client: u64,
    /// When it began, in nanoseconds from the history's begin.
    pub begin: u64,
    /// When it was acknowledged. `None`: it failed or its time was over, so it may have come about, or may yet.
    pub end: Option<u64>,
    pub asked: Asked,
}

/// All calls of a life.
pub struct History {
    start: Instant,
    next: AtomicU64,
    calls: Mutex<Vec<Call>>,
}

/// Contradictions in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Records that were acknowledged, and that a later read lacks.
    pub lost: Vec<u64>,
    /// Records that were acknowledged in an epoch after one of a later epoch had been.
    pub deposed: Vec<u64>,
    /// Other contradictions, in words.
    pub other: Vec<String>,
}

impl Verdict {
    pub fn is_clean(&self) -> bool {
        *self == Verdict::default()
    }
}

impl Default for History {
    fn default() -> History {
        History { start: Instant::now(), next: AtomicU64::new(0), calls: Mutex::default() }
    }
}

impl History {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn add(&self, call: Call) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn len(&self) -> usize {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Appends a record, and waits until it is at a level.
    ///
    /// # Errors
    /// Those of the log: what becomes of the record is not known then.
    pub fn append(
        &self,
        client: u64,
        (log, epoch): (&Log, u64),
        level: Level,
        patience: Duration,
    ) -> Result<u64, LogError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let begin = self.now();
        let filler = vec![number as u8; (number % FILLER) as usize];
        let written = log.append(&[&number.to_le_bytes(), &filler]);
        let offset = written.as_ref().ok().map(|written| written.lsn);
        let outcome = written.and_then(|written| {
            log.wait(written.end, level, patience)?;
            Ok(written.end)
        });
        let end = outcome.is_ok().then(|| self.now());
        self.add(Call { client, begin, end, asked: Asked::Append { number, offset, epoch } });
        outcome
    }

    /// Reads the log up to a record of its own.
    ///
    /// # Errors
    /// Those of the log.
    pub fn read(&self, client: u64, (log, epoch): (&Log, u64), patience: Duration) -> Result<(), LogError> {
        let begin = self.now();
        let to = self.append(client, (log, epoch), Level::RemoteRing, patience)?;
        let from = log.status().device.ok_or(LogError::Gone)?.lane[0].readable;
        let mut bytes = vec![0; (to - from) as usize];
        log.x_pread(from, &mut bytes, patience)?;
        let mut found = Vec::new();
        for entry in Records::new(&bytes, from) {
            if let Entry::Record { lsn, epoch, payload } = entry {
                let (number, filler) = payload.split_at(8);
                let number = u64::from_le_bytes(number.try_into().expect("eight bytes"));
                assert!(filler.iter().all(|&byte| byte == number as u8), "record {number} has other bytes");
                found.push(Found { offset: lsn, epoch: epoch.0, number });
            }
        }
        self.add(Call { client, begin, end: Some(self.now()), asked: Asked::Read(found) });
        Ok(())
    }
}

/// The longest of the reads.
fn longest(calls: &[Call]) -> &[Found] {
    let reads =
        calls.iter().filter_map(|call| if let Asked::Read(found) = &call.asked { Some(&found[..]) } else { None });
    reads.max_by_key(|found| found.len()).unwrap_or_default()
}

/// Judges a history in one pass over each of its reads.
pub fn judge(calls: &[Call]) -> Verdict {
    let mut verdict = Verdict::default();
    let appends: BTreeMap<u64, &Call> = calls
        .iter()
        .filter_map(|call| if let Asked::Append { number, .. } = call.asked { Some((number, call)) } else { None })
        .collect();
    let mut reads: Vec<(&Call, &[Found])> = calls
        .iter()
        .filter_map(|call| if let Asked::Read(found) = &call.asked { Some((call, &found[..])) } else { None })
        .collect();
    reads.sort_by_key(|(_, found)| found.len());
    for pair in reads.windows(2) {
        let ((shorter, some), (longer, more)) = (pair[0], pair[1]);
        if !more.starts_with(some) {
            verdict.other.push(format!("a read of {} is no prefix of one of {}", some.len(), more.len()));
        }
        if some.len() < more.len() && longer.end < Some(shorter.begin) {
            verdict.other.push(format!("a read of {} came before one of {}", more.len(), some.len()));
        }
    }
    for (read, found) in &reads {
        let mut numbers: Vec<u64> = found.iter().map(|record| record.number).collect();
        numbers.sort_unstable();
        verdict.other.extend(
            numbers.windows(2).filter(|two| two[0] == two[1]).map(|two| format!("record {} is there twice", two[0])),
        );
        for record in *found {
            match appends.get(&record.number).map(|call| (call.begin, &call.asked)) {
                Some((begin, Asked::Append { offset, .. })) => {
                    if Some(begin) > read.end || offset.is_some_and(|offset| offset != record.offset) {
                        verdict.other.push(format!("record {} is at {}, and was not", record.number, record.offset));
                    }
                }
                _ => verdict.other.push(format!("record {} was never appended", record.number)),
            }
        }
        let is_lost = |call: &&Call| call.end.is_some_and(|end| end < read.begin);
        let lost = appends.iter().filter(|(number, call)| is_lost(call) && numbers.binary_search(number).is_err());
        verdict.lost.extend(lost.map(|(number, _)| *number));
    }
    verdict.lost.sort_unstable();
    verdict.lost.dedup();
    // In the order of the log: what stands before another may not have begun after that one's end.
    let mut latest = 0;
    for record in longest(calls) {
        let Some(call) = appends.get(&record.number) else { continue };
        if call.end.is_some_and(|end| end < latest) {
            verdict.other.push(format!("record {} stands behind one that was appended later", record.number));
        }
        latest = latest.max(call.begin);
    }
    verdict.deposed = deposed(&appends, longest(calls));
    verdict
}

/// Records that were acknowledged in an epoch, and whose appends began after a record of a later epoch had been
/// acknowledged. The epoch of a record is the one that stands in it, where it was found.
fn deposed(appends: &BTreeMap<u64, &Call>, log: &[Found]) -> Vec<u64> {
    let written: BTreeMap<u64, u64> = log.iter().map(|record| (record.number, record.epoch)).collect();
    let known = |call: &&Call| match call.asked {
        Asked::Append { number, epoch, .. } => {
            let epoch = written.get(&number).copied().unwrap_or(epoch);
            call.end.map(|end| (number, epoch, call.begin, end))
        }
        Asked::Read(_) => None,
    };
    let mut begun: Vec<(u64, u64, u64, u64)> = appends.values().filter_map(known).collect();
    let mut ended = begun.clone();
    begun.sort_by_key(|it| it.2);
    ended.sort_by_key(|it| it.3);
    let (mut ended, mut newest, mut found) = (ended.into_iter().peekable(), 0, Vec::new());
    for (number, epoch, begin, _) in begun {
        while let Some((_, epoch, ..)) = ended.next_if(|it| it.3 < begin) {
            newest = newest.max(epoch);
        }
        if epoch < newest {
            found.push(number);
        }
    }
    found
}

/// A sum over the records of a log, one after the other: FNV-1a.
fn digest(found: &[Found]) -> u64 {
    let bytes = found.iter().flat_map(|record| [record.offset, record.number]).flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A history for other judges: one JSON object a line. An append that is not known to have come about is there if a
/// read has found its record, and without an end; else it did not come about, which is as good.
pub fn lines(calls: &[Call]) -> String {
    let longest: BTreeMap<u64, &Found> = longest(calls).iter().map(|record| (record.number, record)).collect();
    let mut text = String::new();
    for Call { client, begin, end, asked } in calls {
        let line = match asked {
            Asked::Read(found) => {
                let (count, digest) = (found.len(), digest(found));
                format!("\"read\":true,\"count\":{count},\"digest\":\"{digest:016x}\"")
            }
            Asked::Append { number, offset, epoch } => {
                let found = longest.get(number);
                let (Some(offset), true) = (offset.or(found.map(|it| it.offset)), end.is_some() || found.is_some())
                else {
                    continue;
                };
                let epoch = found.map_or(*epoch, |it| it.epoch);
                format!("\"read\":false,\"number\":{number},\"offset\":{offset},\"epoch\":{epoch}")
            }
        };
        let end = end.map_or("null".to_owned(), |end| end.to_string());
        let _ = writeln!(text, "{{\"client\":{client},\"begin\":{begin},\"end\":{end},{line}}}");
    }
    text
}
