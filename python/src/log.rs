//! A log on a served device: `tidewater_ssd.Log` is its other half.

use crate::errors;
use crate::work::{Shared, wait};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tidewater_client::mapped::{self, Options, survive_cut_rings};
use tidewater_client::{End, Entry, Level, LogError, Records};

/// How long a call is in Rust before signals are looked at.
const LOOK: Duration = Duration::from_millis(15);
/// Bytes that are looked through for records at a time, if none is longer.
const PIECE: u64 = 256 << 10;

/// A log with its ring mapped. `None`: closed.
#[pyclass(frozen, module = "tidewater_ssd._native")]
pub struct Log {
    log: Arc<RwLock<Option<mapped::Log>>>,
}

/// Where a stream goes on, and how many bytes of it were still in the ring.
type Found = (u64, u64);

/// Records with their offsets, and where the stream goes on behind them.
type Batch = (Vec<(u64, Py<PyBytes>)>, u64);

fn level(py: Python<'_>, name: &str) -> PyResult<Level> {
    let levels = [Level::Ring, Level::Destaged, Level::RemoteRing, Level::RemoteDestaged];
    levels.into_iter().find(|level| level.to_string() == name).ok_or_else(|| {
        let names = levels.map(|level| level.to_string());
        errors::usage(py, &format_args!("{name} is no level: there are {}", names.join(", ")))
    })
}

/// Nothing is lost, and the same may be asked for again.
fn is_late(error: &LogError) -> bool {
    use LogError::{Frozen, Full, NoMoreLog, ReplicasLate, TimedOut, Untrimmed};
    matches!(error, Full { .. } | Untrimmed | TimedOut { .. } | NoMoreLog { .. } | ReplicasLate { .. } | Frozen { .. })
}

fn seconds(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| errors::usage(py, &format_args!("{seconds} is no time: give seconds, from 0 on")))
}

impl Log {
    /// Does something with the log while other threads run.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mapped::Log) -> Result<T, LogError> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| {
            let log = self.log.read().unwrap_or_else(PoisonError::into_inner);
            log.as_ref().map(operation)
        });
        match done {
            Some(done) => done.map_err(|error| errors::log(py, &error)),
            None => Err(errors::run(py, &"the log is closed")),
        }
    }

    /// Does something that may have to wait, a little at a time, so that signals are answered.
    fn patiently<T: Send>(
        &self,
        py: Python<'_>,
        timeout: f64,
        step: impl FnMut(&mapped::Log, Duration) -> Result<T, LogError> + Send,
    ) -> PyResult<T> {
        self.until(py, timeout, step)?.map_err(|error| errors::log(py, &error))
    }

    /// As [`Log::patiently`], with the time that is over as a value.
    fn until<T: Send>(
        &self,
        py: Python<'_>,
        timeout: f64,
        mut step: impl FnMut(&mapped::Log, Duration) -> Result<T, LogError> + Send,
    ) -> PyResult<Result<T, LogError>> {
        let end = Instant::now().checked_add(seconds(py, timeout)?);
        loop {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            let done = self.with(py, |log| match step(log, left.min(LOOK)) {
                Err(error) if is_late(&error) => Ok(Err(error)),
                done => done.map(Ok),
            })?;
            match done {
                Err(_) if !left.is_zero() => py.check_signals()?,
                done => return Ok(done),
            }
        }
    }
}

#[pymethods]
impl Log {
    /// Opens the log, and finds where its stream goes on.
    #[staticmethod]
    fn open(py: Python<'_>, target: String, lane: u8, level: Option<&str>) -> PyResult<(Log, Found)> {
        let level = level.map(|name| self::level(py, name)).transpose()?;
        // An append tries for a moment, and again after signals were looked at.
        let options = Options { lane, level, full: LOOK, ..Options::default() };
        let made = wait(py, &Shared::default(), None, move || {
            survive_cut_rings()?;
            mapped::Log::open_reporting(&target, options)
        })?;
        let (log, found) = made.map_err(|error| errors::log(py, &error))?;
        Ok((Log { log: Arc::new(RwLock::new(Some(log))) }, (found.tail, found.in_ring)))
    }

    /// Appends a record. Its offset, and where it ends.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>, timeout: f64) -> PyResult<(u64, u64)> {
        // Bytes stay where they are; what else has a buffer could change meanwhile, and is copied.
        let copied;
        let bytes = match data.cast::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes(),
            Err(_) => {
                copied = py.get_type::<PyBytes>().call1((buffer(data)?,))?.cast_into::<PyBytes>()?;
                copied.as_bytes()
            }
        };
        let written = self.patiently(py, timeout, |log, _| log.append(&[bytes]))?;
        Ok((written.lsn, written.end))
    }

    /// Waits until all before this offset is at a level. Without a level: at that of the log.
    fn wait(&self, py: Python<'_>, end: u64, level: Option<&str>, timeout: f64) -> PyResult<()> {
        let level = level.map(|name| self::level(py, name)).transpose()?;
        self.patiently(py, timeout, |log, time| log.wait(end, level.unwrap_or(log.level()), time))
    }

    /// Reads bytes from an offset on.
    fn read<'py>(&self, py: Python<'py>, offset: u64, bytes: usize, timeout: f64) -> PyResult<Bound<'py, PyBytes>> {
        let most = self.with(py, |log| Ok(log.tail().saturating_sub(offset).max(log.ring_bytes())))?;
        if bytes as u64 > most {
            let why = format_args!("{bytes} bytes after offset {offset} are more than the log can hold by now");
            return Err(errors::usage(py, &why));
        }
        let (mut to, mut filled) = (vec![0; bytes], 0);
        self.patiently(py, timeout, |log, time| {
            log.x_pread(offset + filled as u64, &mut to[filled..], time).map_err(|error| match error {
                LogError::NoMoreLog { filled: more } => {
                    filled += more;
                    LogError::NoMoreLog { filled }
                }
                error => error,
            })
        })?;
        Ok(PyBytes::new(py, &to))
    }

    /// The records from an offset on, as many as are there; waits for the first. None in that time: an empty list.
    fn records(&self, py: Python<'_>, mut start: u64, timeout: f64) -> PyResult<Batch> {
        let mut most = PIECE;
        loop {
            let arrived = self.until(py, timeout, |log, time| {
                log.wait(start.saturating_add(1), Level::Ring, time)?;
                Ok(log.tail())
            })?;
            let Ok(tail) = arrived else { return Ok((Vec::new(), start)) };
            let there = self.read(py, start, (tail - start).min(most) as usize, timeout.max(10.0))?;
            let mut found = Records::new(there.as_bytes(), start);
            let (mut records, mut next) = (Vec::new(), start);
            for entry in found.by_ref() {
                match entry {
                    Entry::Record { lsn, payload, .. } => {
                        next = lsn + tidewater_client::span(payload.len() as u64);
                        records.push((lsn, PyBytes::new(py, payload).unbind()));
                    }
                    Entry::Void { lsn, bytes } => next = lsn + bytes,
                    Entry::Skipped { to, .. } => next = to,
                }
            }
            match found.end() {
                // A long record, of which only a part was read.
                Some(End::Torn { lsn, need, .. }) if lsn == start => most = most.max(need),
                // Voids and holes alone: what is behind them is asked for.
                _ if records.is_empty() && next > start => start = next,
                Some(End::Torn { lsn, .. }) => return Ok((records, lsn)),
                _ => return Ok((records, next)),
            }
        }
    }

    /// Nothing before this offset is needed any more.
    fn trim(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        self.with(py, |log| log.trim(offset))
    }

    /// Connects anew, after the device has gone.
    fn reattach(&self, py: Python<'_>) -> PyResult<Found> {
        let log = Arc::clone(&self.log);
        let made = wait(py, &Shared::default(), None, move || {
            let mut log = log.write().unwrap_or_else(PoisonError::into_inner);
            log.as_mut().map(mapped::Log::reattach)
        })?;
        let found = made.ok_or_else(|| errors::run(py, &"the log is closed"))?;
        let found = found.map_err(|error| errors::log(py, &error))?;
        Ok((found.tail, found.in_ring))
    }

    /// How it is doing, as names and values.
    fn status(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, Py<PyAny>)>> {
        let (status, lane) = self.with(py, |log| Ok((log.status(), log.lane())))?;
        let number = |value: u64| PyResult::Ok(value.into_pyobject(py)?.into_any().unbind());
        let words = |value: &str| PyResult::Ok(value.into_pyobject(py)?.into_any().unbind());
        let oldest = status.device.as_ref().map(|device| device.lane[usize::from(lane)].readable);
        Ok(vec![
            ("lane", number(lane.into())?),
            ("ring_bytes", number(status.ring_bytes)?),
            ("end", number(status.reserved)?),
            ("ring", number(status.ring)?),
            ("taken", number(status.taken)?),
            ("destaged", number(status.destaged)?),
            ("oldest", oldest.into_pyobject(py)?.into_any().unbind()),
            ("open", status.open.into_pyobject(py)?.to_owned().into_any().unbind()),
            ("broken", status.broken.into_pyobject(py)?.to_owned().into_any().unbind()),
            ("level", words(&status.level.to_string())?),
            ("ring_survives", words(status.ring_survives)?),
            ("destaged_survives", words(status.destaged_survives)?),
            ("remote_ring_survives", words(status.remote_ring_survives)?),
            ("remote_destaged_survives", words(status.remote_destaged_survives)?),
        ])
    }

    /// End of what was appended so far, by any writer.
    #[getter]
    fn end(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |log| Ok(log.end()))
    }

    /// Gives the lane back.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.log.write().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Contiguous bytes of an object with a buffer.
fn buffer<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    match data.is_instance_of::<pyo3::types::PyString>() || data.is_instance_of::<pyo3::types::PyInt>() {
        true => Err(pyo3::exceptions::PyTypeError::new_err("a record is bytes: encode text first")),
        false => py.import("builtins")?.getattr("memoryview")?.call1((data,)),
    }
}
