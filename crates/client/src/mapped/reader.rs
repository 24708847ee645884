//! Reading a log beside its writer: on a replica, whose device has the bytes while they arrive.
//!
//! A promotion may cut bytes that a replica had and no acknowledgement was based on. A reader that goes on would follow
//! a log that it has not read: it keeps the last bytes that it gave, compares them when the epoch or the log's end has
//! changed, and reports the cut.

use std::path::Path;
use std::time::Duration;

use tidewater_driver::vfio_user::Socket;
use tidewater_wire::log::RECORD_ALIGN;
use tidewater_wire::vendor::{FastStatus, Role};

use super::commands;
use super::device::{Device, patiently};
use super::targets::{self, Devices};
use crate::LogError;

/// Bytes that are kept, to find where a log was cut.
const KEPT_MAX: usize = 1 << 20;
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

/// How far a log goes on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Stream offset of the oldest byte.
    pub oldest: u64,
    /// Stream offset after the newest.
    pub end: u64,
    /// The epoch that the device is in.
    pub epoch: u64,
    /// The device follows a primary.
    pub is_secondary: bool,
}

/// A log that is read, and not written, by the only client of its function.
#[derive(Debug)]
pub struct Reader {
    device: Device,
    lane: u8,
    epoch: Option<u64>,
    /// The bytes that were read last, and where they end.
    kept: Vec<u8>,
    kept_end: u64,
}

impl Reader {
    /// Connects to the device at `vfio-user:SOCKET`, or to the one that etcd names (`cluster:`). Of several that are
    /// listed, to the first that answers.
    ///
    /// # Errors
    /// [`LogError`]: foremost `Unreachable`, `Taken`.
    pub fn open(target: &str, lane: u8) -> Result<Reader, LogError> {
        let devices = Devices::of(target)?;
        match devices.single() {
            Some(path) => Reader::open_one(path, &devices, lane),
            None => targets::first(&devices, targets::FOUND_WITHIN, |path| Reader::open_one(path, &devices, lane)),
        }
    }

    fn open_one(path: &Path, devices: &Devices, lane: u8) -> Result<Reader, LogError> {
        let patience = devices.patience();
        let socket = patiently(|| Ok(Socket::connect_within(path, patience)?))?;
        let device = Device::Plain(Box::new(socket));
        let mut reader = Reader { device, lane, epoch: None, kept: Vec::new(), kept_end: 0 };
        let lanes = reader.status()?.lanes;
        if u16::from(lane) >= lanes {
            return Err(LogError::NoLane { lane, lanes });
        }
        Ok(reader)
    }

    fn status(&mut self) -> Result<FastStatus, LogError> {
        self.device.run(|device| commands::fast_status(device.function()?, 0))
    }

    /// The user of the device: who can have written the log.
    ///
    /// # Errors
    /// `Gone`.
    pub fn user(&mut self) -> Result<u32, LogError> {
        self.device.run(|device| device.socket(|socket| Ok(socket.user())))
    }

    /// How far the log goes. After a change of the epoch, and when the log ends before what was read, the bytes that
    /// were read last are compared.
    ///
    /// # Errors
    /// `Cut`: bytes that were read are no part of the log any more. `Gone`, `NoReply`.
    pub fn extent(&mut self) -> Result<Extent, LogError> {
        let status = self.status()?;
        let lane = status.lane[usize::from(self.lane)];
        let extent = Extent {
            oldest: lane.readable,
            end: lane.persisted.max(lane.readable),
            epoch: status.epoch.0,
            is_secondary: status.role == Role::Secondary,
        };
        let is_same = self.epoch == Some(extent.epoch) && extent.end >= self.kept_end;
        if !is_same && !self.kept.is_empty() {
            self.compare(&extent)?;
        }
        self.epoch = Some(extent.epoch);
        Ok(extent)
    }

    /// Looks for the first byte that was read and is another by now.
    fn compare(&mut self, extent: &Extent) -> Result<(), LogError> {
        let first = self.kept_end - self.kept.len() as u64;
        let (from, to) = (first.max(extent.oldest), self.kept_end.min(extent.end));
        let mut cut = (extent.end < self.kept_end).then_some(extent.end.max(first));
        if from < to {
            let mut now = vec![0; (to - from) as usize];
            self.fill(from, &mut now)?;
            let then = &self.kept[(from - first) as usize..][..now.len()];
            if let Some(at) = now.iter().zip(then).position(|(now, then)| now != then) {
                // What replaced a record may begin as that did.
                cut = Some(((from + at as u64) / RECORD_ALIGN * RECORD_ALIGN).max(from));
            }
        }
        let Some(at) = cut else { return Ok(()) };
        let read = self.kept_end;
        self.kept.truncate((at - first) as usize);
        self.kept_end = at;
        self.epoch = Some(extent.epoch);
        Err(LogError::Cut { at, read })
    }

    /// Reads bytes that are there, without keeping them.
    fn fill(&mut self, from: u64, to: &mut [u8]) -> Result<(), LogError> {
        let mut filled = 0;
        while filled < to.len() {
            let (at, end) = (from + filled as u64, to.len().min(filled + PIECE));
            let got = self.piece(at, &mut to[filled..end], Duration::ZERO)?;
            if got == 0 {
                return Err(LogError::NoMoreLog { filled });
            }
            filled += got;
        }
        Ok(())
    }

    fn piece(&mut self, at: u64, to: &mut [u8], wait: Duration) -> Result<usize, LogError> {
        let lane = self.lane;
        self.device.run(|device| commands::read_log(device.function()?, lane, at, to, wait))
    }

    /// Fills a buffer with bytes before the end that [`Reader::extent`] said.
    ///
    /// # Errors
    /// `Released`: they were trimmed; `NoMoreLog`: they were cut meanwhile; `Gone`, `NoReply`.
    pub fn read(&mut self, from: u64, to: &mut [u8]) -> Result<(), LogError> {
        self.fill(from, to)?;
        if from != self.kept_end {
            self.kept.clear();
        }
        self.kept.extend_from_slice(to);
        self.kept_end = from + to.len() as u64;
        if self.kept.len() > 2 * KEPT_MAX {
            self.kept.drain(..self.kept.len() - KEPT_MAX);
        }
        Ok(())
    }

    /// Nothing before a stream offset is needed any more: a device that keeps its log for a reader may trim it.
    ///
    /// # Errors
    /// `Gone`, `NoReply`, `Status`.
    pub fn release(&mut self, offset: u64) -> Result<(), LogError> {
        let lane = self.lane;
        self.device.run(|device| commands::trim(device.function()?, 0, lane, offset))
    }
}
