//! Waiting until bytes of a log are at a level, and reading them back.

use super::{Attached, NOTIFY_AGAIN, SEAL_AFTER, pause};
use crate::mapped::commands;
use crate::mapped::cut;
use crate::{Level, LogError};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tidewater_wire::log::{RingLanePage, RingReplicas};

/// How long a waiter for replicas stays awake: some round trips of a fast network.
const SPIN: Duration = Duration::from_micros(50);

impl Attached {
    /// Waits until everything before a stream offset is at a level, or the time is over.
    #[inline]
    pub(in crate::mapped) fn wait(&self, end: u64, level: Level, timeout: Duration) -> Result<(), LogError> {
        match level {
            Level::Ring if self.ring.tail() >= end => Ok(()),
            Level::Ring => self.wait_ring(end, timeout),
            Level::Destaged => self.wait_destaged(end, timeout),
            Level::RemoteRing | Level::RemoteDestaged => self.wait_remote(end, level, timeout),
        }
    }

    #[cold]
    fn wait_ring(&self, end: u64, timeout: Duration) -> Result<(), LogError> {
        let start = Instant::now();
        let mut turns = 0u32;
        let mut seal_at = SEAL_AFTER;
        // Others have to finish what lies before, or are dead.
        loop {
            let at = self.ring.writers().advance();
            if at >= end {
                return Ok(());
            }
            self.check_stream()?;
            let waited = start.elapsed();
            if waited >= seal_at {
                self.seal()?;
                seal_at = waited + SEAL_AFTER;
            }
            if waited >= timeout {
                return Err(LogError::TimedOut { at, wanted: end });
            }
            turns += 1;
            // A waiter for bytes not yet appended leaves the processor to writers.
            if turns < 32 { std::hint::spin_loop() } else { pause(64 + turns / 16) }
        }
    }

    fn wait_destaged(&self, end: u64, timeout: Duration) -> Result<(), LogError> {
        if self.ring.synced() >= end {
            return self.counts();
        }
        self.wait_ring(end, timeout)?;
        if let Some(copy) = &self.copy
            && copy.save(&self.ring, end)?
        {
            // Of a generation that has ended, nothing in the copy counts.
            return self.check_stream();
        }
        self.wait_device(end, timeout)
    }

    /// Whether a counter of the device's that was read just now is of the stream that this handle writes. After another
    /// node has led, that of another stream counts other bytes at the same offsets. The device publishes a generation
    /// before its counters.
    #[inline]
    fn counts(&self) -> Result<(), LogError> {
        if self.ring.is_current() { Ok(()) } else { self.check_stream().and(Err(LogError::Stale)) }
    }

    /// Waits until the device has everything before a stream offset, which is in the ring, on its backing store, and
    /// has synced it.
    pub(in crate::mapped) fn wait_device(&self, end: u64, timeout: Duration) -> Result<(), LogError> {
        let start = Instant::now();
        // The device may have died with the wish: it is repeated now and then.
        let mut notify_at = start;
        if self.ring.wanted().fetch_max(end, Ordering::AcqRel) >= end {
            notify_at = start + Duration::from_millis(2);
        } else if self.doorbell.is_some() {
            self.ring_doorbell();
            notify_at = start + NOTIFY_AGAIN;
        }
        loop {
            let at = self.ring.synced();
            if at >= end {
                return self.counts();
            }
            self.check_stream()?;
            self.check_store()?;
            let now = Instant::now();
            if now - start >= timeout {
                return Err(LogError::TimedOut { at, wanted: end });
            }
            if now >= notify_at {
                notify_at = now + NOTIFY_AGAIN;
                self.notify(RingLanePage::WANTED_OFFSET, end)?;
            }
            self.ring.wait_while_synced(at, (notify_at - now).min(start + timeout - now));
        }
    }

    /// Waits until as many replicas have everything before a stream offset as the group's mode asks for, at a level
    /// that they stand behind.
    fn wait_remote(&self, end: u64, level: Level, timeout: Duration) -> Result<(), LogError> {
        let is_synced = level == Level::RemoteDestaged;
        let counter = if is_synced { RingReplicas::DESTAGED_OFFSET } else { RingReplicas::RING_OFFSET };
        let reached = || if is_synced { self.ring.synced_on_replicas() } else { self.ring.on_replicas() };
        if reached() >= end {
            return self.counts();
        }
        self.ring.peers().acknowledge(level)?;
        self.wait_ring(end, timeout)?;
        let start = Instant::now();
        if is_synced {
            self.ring.wanted().fetch_max(end, Ordering::AcqRel);
            self.ring.replicate_synced().fetch_max(end, Ordering::AcqRel);
        } else {
            self.ring.replicate().fetch_max(end, Ordering::AcqRel);
        }
        self.ring_doorbell();
        let mut notify_at = start + NOTIFY_AGAIN;
        loop {
            let at = reached();
            if at >= end {
                return self.counts();
            }
            self.check_stream()?;
            self.check_store()?;
            self.ring.peers().acknowledge(level)?;
            let now = Instant::now();
            if now - start >= timeout {
                let peers = self.ring.peers();
                return Err(match peers.frozen {
                    true => LogError::Frozen { at, wanted: end },
                    false => LogError::ReplicasLate { at, wanted: end, late: peers.late() },
                });
            }
            if now - start < SPIN && !is_synced {
                // Sooner than a sleep and a wake-up. Whose turn it is may need this processor.
                std::thread::yield_now();
                continue;
            }
            if now >= notify_at {
                notify_at = now + NOTIFY_AGAIN;
                let word = if is_synced { RingLanePage::WANTED_OFFSET } else { RingLanePage::REPLICATE_OFFSET };
                self.notify(word, end)?;
            }
            self.ring.wait_while_replicas(counter, at, (notify_at - now).min(start + timeout - now));
        }
    }

    /// Reads the log from a stream offset on, until the buffer is full or the time is over.
    pub(in crate::mapped) fn x_pread(&self, offset: u64, to: &mut [u8], timeout: Duration) -> Result<(), LogError> {
        let start = Instant::now();
        let mut filled = 0;
        let mut turns = 0u32;
        while filled < to.len() {
            let at = offset + filled as u64;
            let there = self.ring.tail().saturating_sub(at).min((to.len() - filled) as u64) as usize;
            if there > 0 && self.read_ring(at, &mut to[filled..filled + there]) {
                filled += there;
                continue;
            }
            // Where its end was, zeroes are now: nothing more would come.
            cut::check()?;
            if there > 0 {
                let left = timeout.saturating_sub(start.elapsed()).min(Duration::from_millis(100));
                filled += self.read_flash(at, &mut to[filled..filled + there], left)?;
            }
            if turns % 128 == 127 {
                self.seal()?;
            }
            if filled < to.len() && start.elapsed() >= timeout {
                return Err(LogError::NoMoreLog { filled });
            }
            turns += 1;
            pause(turns);
        }
        cut::check()
    }

    /// Copies bytes that are still in the ring. False: they are not, or were overwritten meanwhile.
    fn read_ring(&self, at: u64, to: &mut [u8]) -> bool {
        let oldest = |reserved: u64| reserved.saturating_sub(self.ring.size()).max(self.ring.begin);
        if at < oldest(self.ring.reserved()) {
            return false;
        }
        self.ring.read(at, to);
        std::sync::atomic::fence(Ordering::SeqCst);
        at >= oldest(self.ring.reserved())
    }

    fn read_flash(&self, at: u64, to: &mut [u8], wait: Duration) -> Result<usize, LogError> {
        let lane = self.ring.lane();
        self.device()?.run(|device| commands::read_log(device.function()?, lane, at, to, wait))
    }
}
