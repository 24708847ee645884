//! SMART / Health Information (NVM Express 1.4, section 5.14.1.2): counters that count what happened.

use crate::ftl::Ftl;
use crate::saved::{Kind, StateError};
use tidewater_base::{Duration, Instant};
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;
use tidewater_wire::nvme::log::{SmartLog, critical_warning};

const KIND: Kind = Kind { what: "health counters", magic: *b"TWSM", version: 1 };

/// The composite temperature, in kelvins: 35 °C, always. There is nothing to measure, and the log says so by having no
/// sensors.
pub const TEMPERATURE_K: u16 = 308;
/// Warning Composite Temperature Threshold (WCTEMP), in kelvins: 70 °C, which is never reached.
pub const WARNING_K: u16 = 343;
/// Critical Composite Temperature Threshold (CCTEMP), in kelvins: 80 °C.
pub const CRITICAL_K: u16 = 353;
/// Available spare below this share, in percent, is a critical warning.
pub const SPARE_THRESHOLD: u8 = 10;
/// A counter that is saved higher than this is none: a thousand million a second for 36 years.
const COUNT_MAX: u64 = 1 << 60;

/// What a host command has done, as far as health counters are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Read, Compare or Verify, of so many bytes.
    Read(u64),
    /// Write, of so many bytes. Write Zeroes is none (section 5.14.1.2).
    Written(u64),
    /// Anything else.
    Other,
}

/// The state of the flash, as the log tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flash {
    /// Mean erases of a block, as a share of the endurance, in percent: may pass 100.
    pub used_percent: u64,
    /// Spare blocks that are left.
    pub spares: u64,
    /// The drive only reads.
    pub read_only: bool,
    /// At the last power loss the capacitors did not last for the write buffer.
    pub backup_failed: bool,
}

impl Flash {
    /// That of a translation layer; `endurance` is in erase cycles (`[nand] endurance`). Walks all superblocks.
    pub fn of<M: Medium>(ftl: &Ftl<M>, endurance: u32) -> Flash {
        let (sum, count) = ftl.erase_counts().fold((0, 0), |(sum, count), erases| (sum + u64::from(erases), count + 1));
        Flash {
            used_percent: sum * 100 / (u64::from(endurance.max(1)) * u64::max(count, 1)),
            spares: ftl.layout().spares() as u64,
            read_only: ftl.is_read_only(),
            backup_failed: false,
        }
    }
}

/// Health counters of the subsystem.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Smart {
    read_bytes: u128,
    written_bytes: u128,
    reads: u64,
    writes: u64,
    busy: Duration,
    power_cycles: u64,
    /// Power-on time before this power cycle, in seconds: picoseconds last 213 days only.
    seconds_before: u64,
    /// When this power cycle began.
    on_since: Instant,
    /// Controller busy time before this power cycle, in seconds.
    busy_before: u64,
    unsafe_shutdowns: u64,
    media_errors: u64,
    errors: u64,
    /// Spare blocks when the drive was new.
    spares_initial: u64,
    /// Every controller has been shut down in order since it was last enabled.
    clean: bool,
    outstanding: u32,
    busy_since: Instant,
}

fn seconds(time: Duration) -> u64 {
    time.as_ps() / 1_000_000_000_000
}

impl Smart {
    /// Those of a new drive, which has been powered on for the first time.
    pub fn new(flash: &Flash) -> Smart {
        Smart { power_cycles: 1, spares_initial: flash.spares, clean: true, ..Smart::default() }
    }

    /// A command of an I/O queue has been taken.
    #[inline]
    pub fn started(&mut self, now: Instant) {
        if self.outstanding == 0 {
            self.busy_since = now;
        }
        self.outstanding += 1;
    }

    /// It has ended. Asserts that one was taken.
    #[inline]
    pub fn ended(&mut self, now: Instant, done: Done, status: Status) {
        assert!(self.outstanding > 0, "a command has ended that was not started");
        self.outstanding -= 1;
        if self.outstanding == 0 {
            self.busy += now.since(self.busy_since);
        }
        match done {
            Done::Read(bytes) if status.is_success() || status.same_code(Status::COMPARE_FAILURE) => {
                self.reads += 1;
                self.read_bytes += u128::from(bytes);
            }
            Done::Written(bytes) if status.is_success() => {
                self.writes += 1;
                self.written_bytes += u128::from(bytes);
            }
            _ => {}
        }
        // Data that the medium could not give back (section 5.14.1.2); a full or read-only drive is none of it.
        if status.same_code(Status::UNRECOVERED_READ_ERROR) {
            self.media_errors += 1;
        }
    }

    /// There is an error for the Error Information log: its number, from 1, that no other one has had.
    pub fn error(&mut self) -> u64 {
        self.errors += 1;
        self.errors
    }

    /// A controller is enabled: a power cut from now on is an unsafe shutdown.
    pub fn enabled(&mut self) {
        self.clean = false;
    }

    /// The last controller that was enabled has been shut down in order (CC.SHN).
    pub fn shut_down(&mut self) {
        self.clean = true;
    }

    /// Whether a power cut would be an unsafe shutdown.
    pub fn is_clean(&self) -> bool {
        self.clean
    }

    /// Power-on hours.
    pub fn power_on_hours(&self, now: Instant) -> u64 {
        self.power_on_seconds(now) / 3600
    }

    fn power_on_seconds(&self, now: Instant) -> u64 {
        self.seconds_before + seconds(now.since(self.on_since))
    }

    fn busy(&self, now: Instant) -> u64 {
        let running = if self.outstanding > 0 { now.since(self.busy_since) } else { Duration::ZERO };
        self.busy_before + seconds(self.busy + running)
    }

    /// Available spare, in percent.
    fn available_spare(&self, flash: &Flash) -> u8 {
        match self.spares_initial {
            _ if flash.read_only => 0,
            0 => 100,
            initial => (flash.spares * 100 / initial).min(100) as u8,
        }
    }

    /// Critical warnings ([`critical_warning`]); `hot` says that a temperature threshold of the host is passed.
    pub fn warnings(&self, flash: &Flash, hot: bool) -> u8 {
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        bit(self.available_spare(flash) < SPARE_THRESHOLD, critical_warning::SPARE)
            | bit(hot, critical_warning::TEMPERATURE)
            | bit(flash.read_only, critical_warning::READ_ONLY)
            | bit(flash.backup_failed, critical_warning::BACKUP)
    }

    /// The log page.
    pub fn log(&self, now: Instant, flash: &Flash, hot: bool) -> SmartLog {
        // Thousands of 512 bytes, rounded up (section 5.14.1.2).
        let units = |bytes: u128| bytes.div_ceil(512_000);
        SmartLog {
            critical_warning: self.warnings(flash, hot),
            temperature: TEMPERATURE_K,
            available_spare: self.available_spare(flash),
            spare_threshold: SPARE_THRESHOLD,
            percentage_used: flash.used_percent.min(255) as u8,
            data_units_read: units(self.read_bytes),
            data_units_written: units(self.written_bytes),
            host_reads: self.reads.into(),
            host_writes: self.writes.into(),
            busy_minutes: u128::from(self.busy(now) / 60),
            power_cycles: self.power_cycles.into(),
            power_on_hours: self.power_on_hours(now).into(),
            unsafe_shutdowns: self.unsafe_shutdowns.into(),
            media_errors: self.media_errors.into(),
            error_entries: self.errors.into(),
            warning_minutes: 0,
            critical_minutes: 0,
            sensors: [0; 8],
        }
    }

    /// What outlives a power cut. What was counted since this was last stored is lost with the power.
    pub fn to_bytes(&self, now: Instant) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.read_bytes.to_le_bytes());
        out.extend(self.written_bytes.to_le_bytes());
        for value in [
            self.reads,
            self.writes,
            self.busy(now),
            self.power_cycles,
            self.power_on_seconds(now),
            self.unsafe_shutdowns,
            self.media_errors,
            self.errors,
            self.spares_initial,
        ] {
            out.extend(value.to_le_bytes());
        }
        out.push(u8::from(self.clean));
        KIND.seal(&out)
    }

    /// Counters as they were saved, at the next power-on, which is now: a power cycle more, and an unsafe shutdown if
    /// the last one was none in order.
    ///
    /// # Errors
    /// When the bytes are not what [`Smart::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8], now: Instant) -> Result<Smart, StateError> {
        let mut fields = KIND.open(bytes)?;
        let (read_bytes, written_bytes) = (fields.u128()?, fields.u128()?);
        let mut counters = [0; 9];
        for counter in &mut counters {
            *counter = fields.u64()?;
        }
        let clean = fields.u8()? != 0;
        fields.end()?;
        let bytes = read_bytes.max(written_bytes);
        if counters.into_iter().any(|counter| counter > COUNT_MAX) || bytes > u128::from(COUNT_MAX) << 32 {
            return Err(fields.wrong("a counter is higher than any drive can count"));
        }
        let [reads, writes, busy_before, power_cycles, seconds_before, unsafe_shutdowns, media_errors, errors, spares] =
            counters;
        Ok(Smart {
            read_bytes,
            written_bytes,
            reads,
            writes,
            busy_before,
            power_cycles: power_cycles + 1,
            seconds_before,
            unsafe_shutdowns: unsafe_shutdowns + u64::from(!clean),
            media_errors,
            errors,
            spares_initial: spares,
            clean: true,
            on_since: now,
            ..Smart::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved;

    const NEW: Flash = Flash { used_percent: 0, spares: 40, read_only: false, backup_failed: false };

    fn at(seconds: u64) -> Instant {
        Instant::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn counters_count_what_happened() {
        let mut smart = Smart::new(&NEW);
        smart.started(at(0));
        smart.started(at(60));
        smart.ended(at(90), Done::Written(512_000), Status::SUCCESS);
        smart.ended(at(120), Done::Written(1), Status::SUCCESS);
        for (done, status) in [
            (Done::Read(4096), Status::SUCCESS),
            (Done::Read(4096), Status::COMPARE_FAILURE),
            (Done::Read(4096), Status::UNRECOVERED_READ_ERROR),
            (Done::Written(4096), Status::WRITE_FAULT),
            (Done::Other, Status::SUCCESS),
        ] {
            smart.started(at(600));
            smart.ended(at(600), done, status);
        }
        smart.started(at(3540));
        let log = smart.log(at(7200), &NEW, false);
        assert_eq!((log.data_units_written, log.host_writes), (2, 2));
        assert_eq!((log.data_units_read, log.host_reads), (1, 2));
        assert_eq!((log.media_errors, log.error_entries), (1, 0));
        assert_eq!((log.busy_minutes, log.power_on_hours), (2 + 61, 2));
        assert_eq!((log.power_cycles, log.unsafe_shutdowns), (1, 0));
        assert_eq!((log.available_spare, log.critical_warning, log.temperature), (100, 0, TEMPERATURE_K));
    }

    #[test]
    fn flash_wears_and_spares_run_out() {
        let smart = Smart::new(&NEW);
        let worn = Flash { used_percent: 1000, spares: 3, ..NEW };
        let log = smart.log(at(0), &worn, true);
        assert_eq!((log.percentage_used, log.available_spare), (255, 7));
        assert_eq!(log.critical_warning, critical_warning::SPARE | critical_warning::TEMPERATURE);
        let dead = Flash { read_only: true, ..NEW };
        assert_eq!(smart.warnings(&dead, false), critical_warning::SPARE | critical_warning::READ_ONLY);
        assert_eq!(smart.warnings(&Flash { backup_failed: true, ..NEW }, false), critical_warning::BACKUP);
        let bare = Smart::new(&Flash { spares: 0, ..NEW });
        assert_eq!(bare.log(at(0), &Flash { spares: 0, ..NEW }, false).available_spare, 100);
    }

    #[test]
    fn power_cycles_are_told_apart() {
        let mut smart = Smart::new(&NEW);
        assert_eq!((smart.error(), smart.error()), (1, 2));
        smart.started(at(0));
        smart.ended(at(1800), Done::Read(1), Status::SUCCESS);
        // Time goes on where it was, or begins anew.
        let early = Smart::from_bytes(&smart.to_bytes(at(1800)), at(9000)).unwrap();
        let log = early.log(at(10_800), &NEW, false);
        assert_eq!((log.power_cycles, log.unsafe_shutdowns), (2, 0), "no controller was enabled");
        assert_eq!((log.power_on_hours, log.busy_minutes, log.error_entries), (1, 30, 2));
        smart.enabled();
        let mut cut = Smart::from_bytes(&smart.to_bytes(at(0)), at(0)).unwrap();
        assert_eq!(cut.log(at(0), &NEW, false).unsafe_shutdowns, 1);
        assert_eq!(cut.error(), 3, "numbers go on");
        smart.shut_down();
        let shut = Smart::from_bytes(&smart.to_bytes(at(0)), at(0)).unwrap();
        assert_eq!(shut.log(at(0), &NEW, false).unsafe_shutdowns, 0);
        saved::try_damage(&smart.to_bytes(at(7)), |bytes| Smart::from_bytes(bytes, at(0)));
        assert!(matches!(Smart::from_bytes(&KIND.seal(&[0xFF; 105]), at(0)), Err(StateError::Field { .. })));
    }
}
