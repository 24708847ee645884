//! Ways into a log that hold a slot.

use std::ops::Deref;
use std::sync::Arc;

use tidewater_wire::log::{RECORD_ALIGN, RecordHeader, RecordKind};

use super::Log;
use crate::mapped::attached::{Attached, Claim};
use crate::mapped::place::Place;
use crate::mapped::stores;
use crate::writers::Reserved;
use crate::{LogError, Written, fill_void};

/// A log's place, which it does not leave meanwhile.
#[derive(Clone, Debug)]
enum Held<'l> {
    One(&'l Attached),
    Several(Arc<Attached>),
}

impl Deref for Held<'_> {
    type Target = Attached;

    #[inline]
    fn deref(&self) -> &Attached {
        match self {
            Held::One(on) => on,
            Held::Several(on) => on,
        }
    }
}

impl Log {
    fn held(&self) -> Held<'_> {
        match &self.place {
            Place::One(on) => Held::One(on),
            Place::Several(moving) => Held::Several(Arc::clone(&moving.on())),
        }
    }

    /// A writer, for one thread: it has its slot for good, which [`Log::append`] claims for each call.
    ///
    /// # Errors
    /// [`LogError::Writers`]: all 32 slots are in use.
    pub fn writer(&self) -> Result<Writer<'_>, LogError> {
        let on = self.held();
        let owner = on.me()?;
        let claim = || on.ring.writers().claim(owner, 0);
        let slot = match claim() {
            Some(slot) => slot,
            None => {
                on.seal()?;
                claim().ok_or(LogError::Writers)?
            }
        };
        Ok(Writer { claim: Claim { on, slot, owner } })
    }

    /// Reserves room for a record of so many bytes, which is filled piece by piece (`x_alloc`). Dropped before it is
    /// committed, it becomes a void record: what others write behind it is not lost.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn begin(&self, bytes: u32) -> Result<Begun<'_>, LogError> {
        self.place.again(|| Begun::new(claim(self.held())?, bytes))
    }
}

/// A slot that is held by its owner.
fn claim(on: Held<'_>) -> Result<Claim<Held<'_>>, LogError> {
    let (slot, owner) = on.claim_slot()?;
    Ok(Claim { on, slot, owner })
}

/// One thread's way into a log.
#[derive(Debug)]
pub struct Writer<'l> {
    claim: Claim<Held<'l>>,
}

impl<'l> Writer<'l> {
    /// Its slot. In a child of the process that made it that is another one: both sides of a fork write.
    #[inline]
    fn slot(&mut self) -> Result<usize, LogError> {
        if !self.claim.is_mine() {
            // What is dropped here is the parent's, and stays so.
            self.claim = claim(self.claim.on.clone())?;
        }
        Ok(self.claim.slot)
    }

    /// Appends one record, as [`Log::append`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn append(&mut self, payload: &[u8]) -> Result<Written, LogError> {
        let slot = self.slot()?;
        self.claim.on.write_record(slot, &[payload])
    }

    /// Writes bytes at the end of the stream, as they are (`x_pwrite`).
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn x_pwrite(&mut self, bytes: &[u8]) -> Result<Written, LogError> {
        let slot = self.slot()?;
        self.claim.on.write_raw(slot, bytes)
    }
}

/// A record that is being filled. It has a slot of its own, and belongs to the process that began it: in a child of it,
/// nothing of it is stored.
#[derive(Debug)]
pub struct Begun<'l> {
    claim: Claim<Held<'l>>,
    reserved: Reserved,
    bytes: u32,
    over: bool,
}

impl<'l> Begun<'l> {
    fn new(claim: Claim<Held<'l>>, bytes: u32) -> Result<Begun<'l>, LogError> {
        let reserved = claim.on.take(claim.slot, RecordHeader::span(bytes.into()), RECORD_ALIGN)?;
        claim.on.ring.zero(reserved.from, reserved.end - reserved.from);
        Ok(Begun { claim, reserved, bytes, over: false })
    }

    /// Its log sequence number.
    pub fn lsn(&self) -> u64 {
        self.reserved.offset
    }

    /// Bytes of its payload.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Stores bytes at a place of its payload. Asserts that they are inside.
    pub fn fill(&mut self, at: u32, bytes: &[u8]) {
        let inside = u64::from(at) + bytes.len() as u64 <= u64::from(self.bytes);
        assert!(inside, "{at} and {} bytes of {}", bytes.len(), self.bytes);
        if self.claim.is_mine() {
            let offset = self.reserved.offset + RecordHeader::SIZE as u64 + u64::from(at);
            self.claim.on.ring.write(offset, bytes);
        }
    }

    /// The record is whole (`x_free`).
    ///
    /// # Errors
    /// `Joined`: another process began it.
    pub fn commit(mut self) -> Result<Written, LogError> {
        if !self.claim.is_mine() {
            return Err(LogError::Joined);
        }
        let (on, lsn) = (&self.claim.on, self.reserved.offset);
        let mut payload = vec![0; self.bytes as usize];
        on.ring.read(lsn + RecordHeader::SIZE as u64, &mut payload);
        let (length, epoch) = (self.bytes, on.ring.header().epoch);
        let data_checksum = stores::sum(0, &payload);
        let header = RecordHeader { kind: RecordKind::Data, length, data_checksum, lsn, epoch };
        self.end(&header.to_bytes());
        Ok(Written { lsn, end: self.reserved.end })
    }

    fn end(&mut self, header: &[u8]) {
        self.over = true;
        let on = &self.claim.on;
        on.ring.write(self.reserved.offset, header);
        on.settle(self.reserved);
        on.ring.writers().publish(self.claim.slot);
    }
}

impl Drop for Begun<'_> {
    /// Gives it up (`x_abort`).
    fn drop(&mut self) {
        if !self.over && self.claim.is_mine() {
            let mut void = vec![0; (self.reserved.end - self.reserved.offset) as usize];
            fill_void(self.reserved.offset, self.claim.on.ring.header().epoch, &mut void);
            self.end(&void);
        }
    }
}
