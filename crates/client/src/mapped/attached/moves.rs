//! A log that moves to the new primary of its group, and takes along what that has not got.
//!
//! A stream has the same bytes at the same offsets on all devices. So what a handle has appended is still in the ring
//! of the old primary, which stays mapped, and is appended to the new one byte by byte from where its log ends: offsets
//! stay what they were, and nothing is there twice. What both have is compared first: another program may have
//! appended.

use std::time::{Duration, Instant};

use super::Attached;
use crate::LogError;
use crate::mapped::device::Device;
use crate::mapped::ring::Recovered;
use crate::mapped::targets;

/// How long a new primary is waited for.
const MOVED_WITHIN: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// Bytes before the new primary's end that are compared, at most.
const COMPARED: u64 = 1 << 20;
/// Bytes that are appended at once.
const PIECE: u64 = 256 << 10;

/// Bytes that a handle has appended, as far as its ring has them.
struct Kept {
    from: u64,
    bytes: Vec<u8>,
}

impl Attached {
    /// Whether another device of the list is primary of a later epoch, while this one does not answer.
    pub(in crate::mapped) fn has_newer(&self) -> bool {
        let others = self.devices.now().unwrap_or_default();
        let epoch = self.ring.header().epoch;
        others.iter().filter(|path| self.socket.as_ref() != Some(path)).any(|path| {
            Attached::open(path, &self.devices, self.options).is_ok_and(|(log, _)| log.ring.header().epoch > epoch)
        })
    }

    /// Finds the primary, and appends there what it has not got of this handle's.
    pub(in crate::mapped) fn move_to_primary(&mut self) -> Result<Recovered, LogError> {
        if *self.is_shared.get_mut() || self.ring.has_other_writers(self.home) {
            // Other processes write the old ring, and can't follow.
            return Err(LogError::Busy { lane: self.ring.lane() });
        }
        let (devices, options, epoch) = (self.devices.clone(), self.options, self.ring.header().epoch);
        let start = Instant::now();
        let mut kept = None;
        targets::first(&devices, MOVED_WITHIN, |path| {
            if self.socket.as_deref() == Some(path) {
                // The same device: it has gone on, or begins anew.
                if let (Some(recovered), ..) = self.reconnect()? {
                    self.ring.peers().may_write()?;
                    self.check_store()?;
                    return Ok(recovered);
                }
                self.ring.peers().may_write()?;
                kept.get_or_insert_with(|| self.kept());
                // It serves one client, and the lane has one handle.
                *self.device()? = Device::Gone;
                self.ring.unlock()?;
            }
            let (log, recovered) = Attached::open(path, &devices, options)?;
            if log.ring.header().epoch < epoch {
                // Its records would stand behind those of a later epoch, and be taken for a deposed primary's.
                return Err(LogError::Deposed);
            }
            let left = MOVED_WITHIN.saturating_sub(start.elapsed()).max(Duration::from_secs(1));
            let kept = kept.take().unwrap_or_else(|| self.kept());
            log.take_over(&kept, recovered.tail, left)?;
            *self = log;
            Ok(recovered)
        })
    }

    /// The bytes of this handle's stream in the ring.
    fn kept(&self) -> Kept {
        let end = self.ring.writers().advance();
        let from = end.saturating_sub(self.ring.size()).max(self.ring.begin);
        let mut bytes = vec![0; (end - from) as usize];
        self.ring.read(from, &mut bytes);
        Kept { from, bytes }
    }

    /// Appends what an older primary's ring has beyond this log's end.
    fn take_over(&self, kept: &Kept, tail: u64, time: Duration) -> Result<(), LogError> {
        let Kept { from, bytes } = kept;
        let end = from + bytes.len() as u64;
        if tail > end {
            return Err(LogError::Overtaken { at: end });
        }
        if tail < *from {
            return Err(LogError::Lost { from: tail, to: *from });
        }
        let first = (*from).max(tail.saturating_sub(COMPARED));
        let mut there = vec![0; (tail - first) as usize];
        self.x_pread(first, &mut there, time)?;
        let ours = &bytes[(first - from) as usize..][..there.len()];
        if let Some(at) = there.iter().zip(ours).position(|(one, other)| one != other) {
            return Err(LogError::Overtaken { at: first + at as u64 });
        }
        let (start, mut at) = (Instant::now(), tail);
        while at < end {
            let len = (end - at).min(PIECE).min(self.ring.size() / 2) as usize;
            match self.x_pwrite(&bytes[(at - from) as usize..][..len]) {
                Ok(written) if written.lsn == at => at = written.end,
                Ok(_) => return Err(LogError::Overtaken { at }),
                Err(LogError::Full { .. } | LogError::Untrimmed) if start.elapsed() < time => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
