//! One run of a log workload: workers, where their log goes, and what came of it.

use super::attached::{Attached, Database};
use super::backlog::Backlog;
use super::client::LogClient;
use super::sink::{ConventionalSpec, DeviceSink, Memory, MemorySpec, NoLog, RdmaSpec, Sink};
use super::workers::{Measured, Workers, WorkersSpec};
use crate::pcie::{CpuSpec, CreditSpec, Drain, Mapping, PcieSpec};
use crate::request::SourceError;
use crate::workload::log::LogSource;
use std::fmt;
use tidewater_base::Instant;
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_core::fast::LaneStatistics;
use tidewater_core::profile::Profile;
use tidewater_core::{Device, Options, SetupError};
use tidewater_report::log::State;
use tidewater_wire::vendor::TransportStatus;

/// Where a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTo {
    /// Nowhere: a transaction is done when it is computed.
    Nowhere,
    /// The host's own persistent memory.
    Memory,
    /// The same, and by RDMA another server's.
    Shipped,
    /// The fast side of the drive.
    Fast,
    /// The conventional side of the drive.
    Conventional,
}

impl LogTo {
    /// All of them, by the names that a user gives.
    pub const ALL: [(&'static str, LogTo); 5] = [
        ("none", LogTo::Nowhere),
        ("memory", LogTo::Memory),
        ("rdma", LogTo::Shipped),
        ("fast", LogTo::Fast),
        ("conventional", LogTo::Conventional),
    ];
}

/// How a log is written.
#[derive(Clone, Copy, Debug)]
pub struct LogRun {
    /// Where it goes.
    pub to: LogTo,
    /// Workers and group commit. Without a log every transaction is a group.
    pub workers: WorkersSpec,
    /// Measurement begins here.
    pub warm_until: Instant,
    /// And ends here, or with the source.
    pub until: Instant,
    /// Seeds flash and the order of evictions.
    pub seed: u64,
}

/// Outcome of a log run.
#[derive(Clone, Debug)]
pub struct LogOutcome {
    /// Figures of the workers.
    pub measured: Measured,
    /// The end of the measurement.
    pub ended: Instant,
    /// Counts of the lane since measuring began, on the fast side.
    pub lane: Option<LaneStatistics>,
    /// How the log stood at the end, on the fast side.
    pub state: Option<State>,
    /// Loads of the control page since then, on the fast side.
    pub loads: u64,
}

impl LogOutcome {
    /// Transactions a second.
    pub fn transactions_per_second(&self) -> f64 {
        self.measured.transactions_per_second(self.ended)
    }
}

/// Why a log could not be written.
#[derive(Debug)]
pub enum LogRunError {
    /// The profile makes no such drive.
    Setup(SetupError),
    /// The log could not be read.
    Source(SourceError),
    /// The drive did not take it.
    Drive(String),
}

impl fmt::Display for LogRunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogRunError::Setup(error) => error.fmt(f),
            LogRunError::Source(error) => error.fmt(f),
            LogRunError::Drive(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LogRunError {}

impl LogRun {
    /// Runs it.
    ///
    /// # Errors
    /// When the profile makes no drive with that side, or the source ends in an error.
    pub fn run(mut self, profile: &Profile, source: LogSource) -> Result<LogOutcome, LogRunError> {
        if self.to == LogTo::Nowhere {
            // Every transaction is a group of its own, and no worker waits for a buffer.
            self.workers =
                WorkersSpec { commit_bytes: 1, cut: false, buffers: self.workers.workers + 1, ..self.workers };
        }
        let workers = Workers::new(self.workers, source);
        let outcome = match self.to {
            LogTo::Nowhere => self.on_host(workers, &mut NoLog::default()),
            LogTo::Memory => self.on_host(workers, &mut Memory::new(MemorySpec::default())),
            LogTo::Shipped => self.on_host(workers, &mut Memory::shipped(MemorySpec::default(), RdmaSpec::default())),
            LogTo::Fast | LogTo::Conventional => self.on_device(profile, workers),
        };
        let (workers, outcome) = outcome?;
        match workers.into_error() {
            Some(error) => Err(LogRunError::Source(error)),
            None => Ok(outcome),
        }
    }

    fn on_host(&self, mut workers: Workers, sink: &mut impl Sink) -> Result<(Workers, LogOutcome), LogRunError> {
        // What comes at the instant in which nothing has been warmed up is measured.
        if self.warm_until > Instant::ZERO {
            super::drive(&mut workers, sink, self.warm_until);
        }
        workers.measure_from(self.warm_until);
        let mut now = self.warm_until;
        while let Some(next) = super::next(&workers, sink).filter(|&next| next <= self.until) {
            now = now.max(next);
            super::step(&mut workers, sink, now);
        }
        let ended = if workers.is_done() { now } else { self.until };
        let measured = workers.measured().clone();
        Ok((workers, LogOutcome { measured, ended, lane: None, state: None, loads: 0 }))
    }

    fn on_device(&self, profile: &Profile, workers: Workers) -> Result<(Workers, LogOutcome), LogRunError> {
        let options = Options { seed: self.seed, capacity: 8 << 30, ..Options::default() };
        let mut device = Device::new(profile, options).map_err(LogRunError::Setup)?;
        let (sink, client) = if self.to == LogTo::Fast {
            if !device.fast().is_enabled() {
                let text = format!(
                    "profile `{}` has no fast side: give [fast] size a value, or take a profile that does, such as the \
                     built-in `villars`",
                    profile.name
                );
                return Err(LogRunError::Setup(SetupError(text)));
            }
            (DeviceSink::fast(), Some(client_of(&device, Mapping::WriteCombining, None, self.seed)))
        } else {
            let block_size = u64::from(profile.ftl.unit_size).max(ConventionalSpec::default().block_size);
            (DeviceSink::conventional(ConventionalSpec { block_size, ..ConventionalSpec::default() }), None)
        };
        let app = Database::new(workers, sink, self.warm_until, self.until);
        let shift = profile.host.block_size.trailing_zeros();
        let mut host = Attached::new(app, client, shift).with_transfer_max(profile.host.transfer_max);
        host.backlog = host.client.is_some().then(|| Backlog::new(self.warm_until));
        let mut clock = VirtualClock::default();
        drive(&mut device, &mut clock, &mut host);
        if let Some(failure) = host.failure() {
            return Err(LogRunError::Drive(failure));
        }
        if self.to == LogTo::Fast && device.control_page(0).status.has(TransportStatus::WAITS_FOR_TRIM) {
            let text = "the ring of logical pages is full, and there is no trim here: set [fast] on_wrap \
                        = \"overwrite-oldest\", or a larger log_size";
            return Err(LogRunError::Drive(text.into()));
        }
        let ended = if host.app.workers.is_done() { device.now().min(self.until) } else { self.until };
        let function = device.fast().function(0).filter(|_| self.to == LogTo::Fast);
        let loads = host.client.as_ref().map_or(0, LogClient::loads);
        let counted = function.zip(host.backlog.as_ref());
        let counted = counted.map(|(function, backlog)| backlog.measured(&function.lanes()[0].statistics, loads));
        let outcome = LogOutcome {
            measured: host.app.workers.measured().clone(),
            ended,
            lane: counted.map(|(lane, _)| lane),
            state: host.backlog.as_ref().map(|backlog| state_of(&device, backlog, self.warm_until)),
            loads: counted.map_or(0, |(_, loads)| loads),
        };
        Ok((host.app.workers, outcome))
    }
}

/// How the first lane of a drive stands.
fn state_of(device: &Device, backlog: &Backlog, since: Instant) -> State {
    let function = device.fast().function(0).expect("it has a backlog");
    let (lane, status) = (&function.lanes()[0], device.fast_status(0));
    let joules = |nanojoules: u64| nanojoules as f64 / 1e9;
    State {
        arrived: lane.arrived().max(lane.reached()),
        credited: lane.credit(),
        destaged: lane.durable(),
        left_ring: lane.freed(),
        in_ring_from: lane.in_ring_from(),
        readable_from: status.lane[0].readable,
        ring_bytes: lane.ring_size(),
        queue_bytes: lane.queue_size(),
        queue_bytes_max: lane.statistics.queue_bytes_max,
        log_bytes_max: u64::from(function.log().count()) * u64::from(device.fast().payload()),
        survives: device.fast().survives(),
        energy_needed_joules: joules(status.energy_needed_nj),
        energy_stored_joules: joules(status.energy_stored_nj),
        backlog: backlog
            .points()
            .iter()
            .map(|&(at, [ring, flash])| (at.since(since).as_secs_f64(), ring, flash))
            .collect(),
    }
}

/// A client of the first lane of a drive, on a core of the X-SSD paper's server.
///
/// # Panics
/// When the drive has no fast side.
pub fn client_of(device: &Device, mapping: Mapping, piece: Option<u64>, seed: u64) -> LogClient {
    let spec = PcieSpec {
        cores: 1,
        cpu: CpuSpec::default(),
        link: device.profile().link.clone(),
        credits: CreditSpec::default(),
        drain: Drain::Any,
        seed,
    };
    LogClient::attach(&spec, &device.control_page(0), &device.fast().bar_layout(0), 0, mapping, piece)
}
