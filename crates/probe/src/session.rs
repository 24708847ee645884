//! A probe under way: it sends requests, counts them, and knows which places it has not touched for long.

use crate::run::Watch;
use crate::target::{About, Request, Target, TargetError, Timed};
use std::collections::VecDeque;
use tidewater_base::{Duration, Rng};

/// The granule of data that is read and written: what nearly every drive maps by, and every host reads by.
pub(crate) const PAGE: u64 = 4_096;
/// Requests between two looks at whether the probe should end.
const REQUESTS_AT_ONCE: usize = 4_096;

/// Why a stage ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user asked for it.
    Cancelled,
    /// The target failed.
    Failed(TargetError),
}

impl From<TargetError> for Stop {
    fn from(error: TargetError) -> Stop {
        Stop::Failed(error)
    }
}

/// Traffic of a stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub requests: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

/// A probe under way.
pub(crate) struct Session<'a> {
    target: &'a mut dyn Target,
    watch: &'a mut dyn Watch,
    pub about: About,
    pub rng: Rng,
    pub sent: Sent,
    timed: Vec<Timed>,
    /// Regions touched last, and the bytes of them.
    recent: VecDeque<(u64, u64)>,
    recent_bytes: u64,
    /// Where fresh regions are looked for: from here to there.
    window: (u64, u64),
    /// The share of the stage that is done.
    share: f64,
    stage: &'static str,
}

impl<'a> Session<'a> {
    pub(crate) fn new(target: &'a mut dyn Target, watch: &'a mut dyn Watch, seed: u64) -> Session<'a> {
        let about = target.about();
        let window = (0, about.capacity);
        Session {
            window,
            target,
            watch,
            about,
            rng: Rng::new(seed, b"probe"),
            sent: Sent::default(),
            timed: Vec::new(),
            recent: VecDeque::new(),
            recent_bytes: 0,
            share: 0.0,
            stage: "",
        }
    }

    pub(crate) fn target(&mut self) -> &mut dyn Target {
        self.target
    }

    pub(crate) fn watch(&mut self) -> &mut dyn Watch {
        self.watch
    }

    /// A stage begins: it is counted anew.
    pub(crate) fn begin(&mut self, stage: &'static str) {
        self.stage = stage;
        self.sent = Sent::default();
        self.share = 0.0;
        self.watch.progress(stage, 0.0);
    }

    /// So much of the stage is done; it never goes back.
    pub(crate) fn progress(&mut self, share: f64) {
        self.share = self.share.max(share.clamp(0.0, 1.0));
        self.watch.progress(self.stage, self.share);
    }

    /// Does these requests and tells when each was under way.
    pub(crate) fn send(&mut self, requests: &[Request], depth: u32) -> Result<Vec<Timed>, Stop> {
        let mut all = Vec::with_capacity(requests.len());
        // A batch at depth 1 can be cut anywhere; a deeper one must keep its requests together.
        let at_once = if depth == 1 { REQUESTS_AT_ONCE } else { requests.len().max(1) };
        for part in requests.chunks(at_once) {
            if self.watch.cancelled() {
                return Err(Stop::Cancelled);
            }
            self.timed.clear();
            self.target.run(part, depth, &mut self.timed)?;
            all.extend_from_slice(&self.timed);
            self.watch.progress(self.stage, self.share);
        }
        self.sent.requests += requests.len() as u64;
        for request in requests {
            match request.op {
                crate::Op::Read => self.sent.bytes_read += request.length,
                crate::Op::Write => self.sent.bytes_written += request.length,
                _ => {}
            }
        }
        Ok(all)
    }

    /// Latencies of these requests, one after the other, in seconds.
    pub(crate) fn latencies(&mut self, requests: &[Request]) -> Result<Vec<f64>, Stop> {
        Ok(self.send(requests, 1)?.iter().map(Timed::seconds).collect())
    }

    /// Leaves the drive alone.
    pub(crate) fn idle(&mut self, time: Duration) -> Result<(), Stop> {
        if self.watch.cancelled() {
            return Err(Stop::Cancelled);
        }
        Ok(self.target.idle(time)?)
    }

    /// The least that is read or written for its data.
    pub(crate) fn page(&self) -> u64 {
        PAGE.max(self.about.block)
    }

    /// Fresh regions come from here only, from now on.
    pub(crate) fn stay_within(&mut self, first: u64, end: u64) {
        self.window = (first, end.min(self.about.capacity));
        self.recent.clear();
        self.recent_bytes = 0;
    }

    /// A region of `bytes` that was not touched for long, beginning at a multiple of `align`. None when the target is
    /// too small for it.
    pub(crate) fn fresh(&mut self, bytes: u64, align: u64) -> Option<u64> {
        let first = self.window.0.next_multiple_of(align);
        let room = self.window.1.checked_sub(first)?;
        let places = room.checked_sub(bytes)? / align + 1;
        // Half of the room is kept for what was touched before: then a few tries find a place.
        while self.recent_bytes + bytes > room / 2 {
            let Some((_, length)) = self.recent.pop_front() else { break };
            self.recent_bytes -= length;
        }
        let mut start = 0;
        for _ in 0..64 {
            start = first + self.rng.below(places) * align;
            if self.recent.iter().all(|(first, length)| start + bytes <= *first || *first + length <= start) {
                break;
            }
        }
        self.recent.push_back((start, bytes));
        self.recent_bytes += bytes;
        Some(start)
    }

    /// The numbers below `n`, in groups of `group` that follow each other, the groups in random order: a drive that
    /// reads ahead gains little, and what is in one unit of a cache is asked for together.
    pub(crate) fn shuffled(&mut self, n: u64, group: u64) -> Vec<u64> {
        let mut groups: Vec<u64> = (0..n.div_ceil(group)).collect();
        for i in (1..groups.len()).rev() {
            groups.swap(i, self.rng.below(i as u64 + 1) as usize);
        }
        groups.into_iter().flat_map(|first| first * group..((first + 1) * group).min(n)).collect()
    }
}
