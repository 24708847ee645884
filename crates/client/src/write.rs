//! `x_pwrite` and `x_fsync` (the paper's section 5.1): a stream of bytes, and waiting until it is durable.

use tidewater_base::Instant;
use tidewater_wire::log::RECORD_ALIGN;

use crate::watch::Watch;
use crate::{Action, Answer, Error, Lane, Operation, Outcome, encode_record};

#[derive(Clone, Debug)]
enum Step {
    /// Store as much as there is credit for.
    Store,
    /// The last of the credit is used: let it leave the host.
    Fence,
    /// Tell how far the mapped window is filled.
    Announce,
    /// Read the counter anew.
    Wait,
    /// Say how it ended.
    End(Result<Outcome, Error>),
    Over,
}

/// Writes a buffer of the caller's at the end of the stream: uses all credit that there is without looking, then reads
/// the counter anew, which the paper found to be fastest. Never stores past credit + queue size.
///
/// When it fails, the bytes up to [`Lane::written`] are stored: as with a short `pwrite`, the rest may be written anew.
#[derive(Clone, Debug)]
pub struct Pwrite {
    offset: u64,
    /// Bytes stored so far, of how many.
    stored: usize,
    bytes: usize,
    step: Step,
    watch: Watch,
}

impl Pwrite {
    /// Writes a buffer of `bytes`.
    pub fn new(lane: &mut Lane, bytes: usize, now: Instant) -> Pwrite {
        let step = match lane.can_hold(bytes as u64) {
            _ if lane.gives_regions() => Step::End(Err(Error::WrongUse)),
            Err(error) => Step::End(Err(error)),
            Ok(()) => Step::Store,
        };
        Pwrite { offset: lane.written, stored: 0, bytes, step, watch: Watch::new(lane, 0, now) }
    }

    /// Writes a payload as one record ([`encode_record`]): fills `buffer` with what is to be stored (the operation's
    /// stores are ranges of it) and returns the record's log sequence number too. After a write that was cut short the
    /// record starts at the next line; a reader skips what is before it.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond 4 GiB.
    pub fn append(lane: &mut Lane, payload: &[u8], buffer: &mut Vec<u8>, now: Instant) -> Result<(u64, Pwrite), Error> {
        let lsn = lane.written.next_multiple_of(RECORD_ALIGN);
        buffer.clear();
        buffer.resize((lsn - lane.written) as usize, 0);
        encode_record(lsn, lane.setup.epoch, payload, buffer)?;
        Ok((lsn, Pwrite::new(lane, buffer.len(), now)))
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes as u64
    }
}

impl Operation for Pwrite {
    type On = Lane;

    fn poll(&mut self, lane: &mut Lane) -> Option<Action> {
        loop {
            match &self.step {
                Step::Store => {
                    // An earlier user of regions left a floor that would hold the credit.
                    if let Some(action) = lane.publish_floor() {
                        return Some(action);
                    }
                    if lane.written != self.offset + self.stored as u64 {
                        self.step = Step::End(Err(Error::Interleaved));
                        continue;
                    }
                    let now = lane.room().min((self.bytes - self.stored) as u64) as usize;
                    if now == 0 {
                        let over = self.stored == self.bytes;
                        let written = Outcome::Written { offset: self.offset, end: self.end() };
                        // Where stores are trapped nothing has to be said at the end: a fence is x_fsync's.
                        self.step = match over {
                            true if !lane.setup.mapped || self.bytes == 0 => Step::End(Ok(written)),
                            _ => Step::Fence,
                        };
                        continue;
                    }
                    let (action, rest) = lane.store(lane.written, self.stored..self.stored + now);
                    lane.written += (now - rest.len()) as u64;
                    self.stored += now - rest.len();
                    return Some(action);
                }
                Step::Fence => {
                    self.step = if lane.setup.mapped { Step::Announce } else { Step::Wait };
                    self.watch.want((lane.written + 1).saturating_sub(lane.queue_bytes()));
                    return Some(Action::Fence);
                }
                Step::Announce => {
                    let over = self.stored == self.bytes;
                    let written = Outcome::Written { offset: self.offset, end: self.end() };
                    self.step = if over { Step::End(Ok(written)) } else { Step::Wait };
                    return Some(Action::AnnounceTail { lane: lane.setup.lane, tail: lane.written });
                }
                Step::Wait => return self.watch.poll(lane),
                Step::End(_) => {
                    let Step::End(result) = std::mem::replace(&mut self.step, Step::Over) else { return None };
                    return Some(Action::Done(result));
                }
                Step::Over => return None,
            }
        }
    }

    fn on(&mut self, lane: &mut Lane, now: Instant, answer: Answer) {
        if matches!(self.step, Step::Wait) {
            match self.watch.on(lane, now, answer) {
                Ok(true) => self.step = Step::Store,
                Ok(false) => {}
                Err(error) => self.step = Step::End(Err(error)),
            }
        }
    }
}

/// Waits until the counter covers what was written: until it is durable, as the replication mode means it.
#[derive(Clone, Debug)]
pub struct Fsync {
    end: u64,
    step: Step,
    watch: Watch,
}

impl Fsync {
    /// Waits for all that was written to the lane so far (in a lane with regions: for all that was given out).
    pub fn new(lane: &Lane, now: Instant) -> Fsync {
        Fsync::to(lane, lane.written, now)
    }

    /// Waits for all bytes below a stream offset: a record's end, a region's end.
    pub fn to(lane: &Lane, end: u64, now: Instant) -> Fsync {
        let durable = Step::End(Ok(Outcome::Durable { end }));
        let step = if lane.credit >= end { durable } else { Step::Fence };
        Fsync { end, step, watch: Watch::new(lane, end, now) }
    }
}

impl Operation for Fsync {
    type On = Lane;

    fn poll(&mut self, lane: &mut Lane) -> Option<Action> {
        match &self.step {
            Step::Fence => {
                if let Some(action) = lane.publish_floor() {
                    return Some(action);
                }
                self.step = Step::Wait;
                Some(Action::Fence)
            }
            Step::Wait => self.watch.poll(lane),
            Step::End(_) => {
                let Step::End(result) = std::mem::replace(&mut self.step, Step::Over) else { return None };
                Some(Action::Done(result))
            }
            Step::Store | Step::Announce | Step::Over => None,
        }
    }

    fn on(&mut self, lane: &mut Lane, now: Instant, answer: Answer) {
        if matches!(self.step, Step::Wait) {
            match self.watch.on(lane, now, answer) {
                Ok(true) => self.step = Step::End(Ok(Outcome::Durable { end: self.end })),
                Ok(false) => {}
                Err(error) => self.step = Step::End(Err(error)),
            }
        }
    }
}
