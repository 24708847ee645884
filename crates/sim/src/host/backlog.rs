//! How much of a log waits for flash in the ring of the fast side and beyond, looked at from time to time.

use tidewater_base::{Duration, Instant};
use tidewater_core::Device;
use tidewater_core::fast::LaneStatistics;
use tidewater_nand::Medium;

/// Looks that are kept; when there are more, every second goes, and looks are half as frequent from then on: how long a
/// log runs need not be known.
const POINTS_MAX: usize = 512;

/// Looks at the first lane of a drive at even distances.
#[derive(Clone, Debug)]
pub struct Backlog {
    every: Duration,
    next_at: Instant,
    points: Vec<(Instant, [u64; 2])>,
    /// Counts of the lane and loads of its client when measuring began.
    before: Option<(LaneStatistics, u64)>,
}

impl Backlog {
    /// Looks from `begin` on.
    pub fn new(begin: Instant) -> Backlog {
        Backlog { every: Duration::from_us(1), next_at: begin, points: Vec::with_capacity(POINTS_MAX), before: None }
    }

    /// Looks, if it is time. The drive is as it has been since the last event, so one look stands for all that were
    /// due. `loads`: of the client so far.
    pub fn look<M: Medium>(&mut self, now: Instant, device: &Device<M>, loads: u64) {
        if now < self.next_at {
            return;
        }
        let Some(function) = device.fast().function(0) else { return };
        let lane = &function.lanes()[0];
        self.before.get_or_insert((lane.statistics, loads));
        self.add(now, [lane.freed(), lane.durable()].map(|end| lane.credit().saturating_sub(end)));
    }

    fn add(&mut self, now: Instant, bytes: [u64; 2]) {
        if self.points.len() == POINTS_MAX {
            let mut odd = false;
            self.points.retain(|_| {
                odd = !odd;
                odd
            });
            self.every = self.every * 2;
        }
        self.points.push((now, bytes));
        self.next_at = now + self.every;
    }

    /// Returns the part of these counts that belongs to the time since measuring began.
    pub fn measured(&self, lane: &LaneStatistics, loads: u64) -> (LaneStatistics, u64) {
        let (before, loads_before) = self.before.unwrap_or_default();
        let since = LaneStatistics {
            stores: lane.stores - before.stores,
            bytes: lane.bytes - before.bytes,
            dropped: lane.dropped - before.dropped,
            pages: lane.pages - before.pages,
            bytes_destaged: lane.bytes_destaged - before.bytes_destaged,
            partial_pages: lane.partial_pages - before.partial_pages,
            rewritten_pages: lane.rewritten_pages - before.rewritten_pages,
            ..*lane
        };
        (since, loads - loads_before)
    }

    /// Instants, and the bytes that were credited then and had not left the ring, and those that were not on flash.
    pub fn points(&self) -> &[(Instant, [u64; 2])] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_looked_at_less_often() {
        let mut backlog = Backlog::new(Instant::ZERO);
        for us in 0..10_000u64 {
            let now = Instant::ZERO + Duration::from_us(us);
            if now >= backlog.next_at {
                backlog.add(now, [us; 2]);
            }
        }
        let points = backlog.points();
        assert!(points.len() <= POINTS_MAX && points.len() > POINTS_MAX / 4, "{}", points.len());
        assert!(
            points.is_sorted_by_key(|point| point.0) && points[0].1 == [0; 2] && points[points.len() - 1].1[0] > 9_900
        );
    }
}
