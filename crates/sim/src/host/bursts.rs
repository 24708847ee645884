//! Appends that come in bursts.

use super::attached::Application;
use super::sink::Request;
use tidewater_base::{Duration, Instant};

/// Bursts of appends of one size, as fast as they go, and a pause behind each burst.
#[derive(Debug)]
pub struct Bursts {
    size: u64,
    appends: u64,
    syncs_each: bool,
    pause: Duration,
    begins_at: Instant,
    began: Option<Instant>,
    /// Appends of the burst that have not begun yet.
    left: u64,
    next: Option<Request>,
    under_way: Option<Request>,
    until: Instant,
    /// Bursts that ended, their bytes, and their time from the first store until all was credited.
    pub ended: (u64, u64, Duration),
}

impl Bursts {
    /// Bursts of `bytes`, at least one append of `size`, until an instant. `syncs_each`: each append is waited for
    /// until it is credited, and not only the last of a burst.
    pub fn new((size, bytes): (u64, u64), syncs_each: bool, pause: Duration, until: Instant) -> Bursts {
        Bursts {
            size,
            appends: (bytes / size).max(1),
            syncs_each,
            pause,
            begins_at: Instant::ZERO,
            began: None,
            left: 0,
            next: None,
            under_way: None,
            until,
            ended: (0, 0, Duration::ZERO),
        }
    }

    /// Bytes a second while a burst lasts. 0: none has ended.
    pub fn bandwidth(&self) -> f64 {
        let (_, bytes, time) = self.ended;
        if time.is_zero() { 0.0 } else { bytes as f64 / time.as_secs_f64() }
    }
}

impl Application for Bursts {
    fn deadline(&self) -> Option<Instant> {
        (self.under_way.is_none() && self.next.is_none()).then_some(self.begins_at)
    }

    fn advance(&mut self, now: Instant) {
        if self.under_way.is_none() && self.next.is_none() && now >= self.begins_at {
            self.began = Some(now);
            self.left = self.appends - 1;
            self.next = Some(Request::Append { length: self.size });
        }
    }

    fn poll_request(&mut self) -> Option<Request> {
        let request = self.next.take()?;
        self.under_way = Some(request);
        Some(request)
    }

    fn complete(&mut self, now: Instant) {
        let was_append = matches!(self.under_way.take(), Some(Request::Append { .. }));
        if was_append && (self.syncs_each || self.left == 0) {
            self.next = Some(Request::Sync);
        } else if self.left > 0 {
            self.left -= 1;
            self.next = Some(Request::Append { length: self.size });
        } else {
            let (bursts, bytes, time) = &mut self.ended;
            *bursts += 1;
            *bytes += self.size * self.appends;
            *time += now.since(self.began.take().expect("a burst began"));
            self.begins_at = now + self.pause;
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests in their order, each of which takes a microsecond.
    fn requests(syncs_each: bool) -> (String, Bursts) {
        let us = Duration::from_us;
        let mut bursts = Bursts::new((100, 350), syncs_each, us(50), Instant::ZERO + us(60));
        let (mut now, mut words) = (Instant::ZERO, String::new());
        while !bursts.is_over(now) {
            bursts.advance(now);
            match bursts.poll_request() {
                Some(request) => {
                    words.push(if request == Request::Sync { 's' } else { 'a' });
                    now += us(1);
                    bursts.complete(now);
                }
                None => {
                    words.push(' ');
                    now = bursts.deadline().expect("the next burst has a time");
                }
            }
        }
        (words, bursts)
    }

    #[test]
    fn a_burst_ends_when_its_last_append_is_credited() {
        let (words, bursts) = requests(false);
        assert_eq!(words, "aaas aaas ");
        assert_eq!(bursts.ended, (2, 600, Duration::from_us(8)));
        assert_eq!(bursts.bandwidth(), 600.0 / 8e-6);
        assert_eq!(requests(true).0, "asasas asas", "the second is cut by the end");
    }
}
