//! Device self-test (NVM Express 1.4, sections 5.8, 5.14.1.6 and 8.11): one at a time in the subsystem, as an operation
//! that takes time.
//!
//! What it examines is what the firmware can know of itself: that the flash still takes writes and has spare blocks
//! left (segment 2 of section 8.11, "SMART check"). It neither reads nor writes user data.

use crate::saved::{Kind, StateError};
use tidewater_base::{Duration, Instant};
use tidewater_wire::nvme::log::{SelfTestLog, SelfTestResult, self_test};
use tidewater_wire::nvme::{NSID_ALL, SelfTestAction, Status};

const KIND: Kind = Kind { what: "self-test results", magic: *b"TWST", version: 1 };
/// Minutes that an extended test takes (EDSTT of Identify Controller).
pub const EXTENDED_MINUTES: u16 = 1;
/// How long a short test takes: section 8.11.1 allows 2 minutes.
const SHORT: Duration = Duration::from_ms(2_000);
const EXTENDED: Duration = Duration::from_ms(EXTENDED_MINUTES as u64 * 60_000);
/// The segment that looks at health.
const SMART_CHECK: u8 = 2;

/// Which test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Test {
    Short = 1,
    Extended = 2,
}

impl Test {
    fn time(self) -> Duration {
        match self {
            Test::Short => SHORT,
            Test::Extended => EXTENDED,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Running {
    test: Test,
    controller: u8,
    nsid: u32,
    started: Instant,
    ends: Instant,
}

/// Why a test is aborted by something other than a Device Self-test command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// A controller level reset of this controller.
    Reset(u8),
    /// The namespace was removed.
    NamespaceRemoved(u32),
    /// The namespace is formatted.
    Format(u32),
    /// A sanitize operation has begun.
    Sanitize,
}

/// The self-test of the subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelfTest {
    running: Option<Running>,
    /// Newest first.
    results: Vec<SelfTestResult>,
}

impl SelfTest {
    /// A Device Self-test command of a controller. `nsid` was found to be 0, FFFFFFFFh or attached to it.
    ///
    /// # Errors
    /// Device Self-test In Progress.
    pub fn command(
        &mut self,
        now: Instant,
        hours: u64,
        controller: u8,
        nsid: u32,
        action: SelfTestAction,
    ) -> Result<(), Status> {
        let test = match action {
            SelfTestAction::Short => Test::Short,
            SelfTestAction::Extended => Test::Extended,
            SelfTestAction::Abort => {
                self.end(hours, self_test::ABORTED, 0);
                return Ok(());
            }
        };
        if self.running.is_some() {
            return Err(Status::SELF_TEST_IN_PROGRESS);
        }
        self.running = Some(Running { test, controller, nsid, started: now, ends: now + test.time() });
        Ok(())
    }

    /// When the test that runs ends.
    pub fn deadline(&self) -> Option<Instant> {
        self.running.map(|running| running.ends)
    }

    /// Lets a test end whose time has come. `warnings` are the critical warnings of the SMART log. True: it has found a
    /// failure (the event Diagnostic Failure).
    pub fn expire(&mut self, now: Instant, hours: u64, warnings: u8) -> bool {
        if self.deadline().is_none_or(|ends| now < ends) {
            return false;
        }
        let failed = warnings != 0;
        self.end(
            hours,
            if failed { self_test::FAILED } else { self_test::PASSED },
            if failed { SMART_CHECK } else { 0 },
        );
        failed
    }

    /// Something has happened that aborts a test, if it concerns the one that runs.
    pub fn abort(&mut self, hours: u64, why: Abort) {
        let Some(running) = self.running else { return };
        let tests = |nsid: u32| running.nsid == NSID_ALL || running.nsid == nsid;
        let result = match why {
            // An extended test goes on through resets (section 8.11.2).
            Abort::Reset(controller) if running.test == Test::Short && running.controller == controller => {
                self_test::ABORTED_RESET
            }
            Abort::NamespaceRemoved(nsid) if tests(nsid) => self_test::ABORTED_NAMESPACE,
            Abort::Format(nsid) if tests(nsid) => self_test::ABORTED_FORMAT,
            Abort::Sanitize => self_test::ABORTED_SANITIZE,
            _ => return,
        };
        self.end(hours, result, 0);
    }

    fn end(&mut self, hours: u64, result: u8, segment: u8) {
        let Some(running) = self.running.take() else { return };
        self.results.truncate(self_test::RESULTS - 1);
        let of_namespace = running.nsid != 0;
        self.results.insert(
            0,
            SelfTestResult {
                status: (running.test as u8) << 4 | result,
                segment,
                valid: u8::from(of_namespace),
                power_on_hours: hours,
                nsid: running.nsid,
                ..SelfTestResult::default()
            },
        );
    }

    /// The log page.
    pub fn log(&self, now: Instant) -> SelfTestLog {
        let unused = SelfTestResult { status: self_test::UNUSED, ..SelfTestResult::default() };
        let (operation, completion) = self.running.map_or((0, 0), |running| {
            let (done, all) = (now.since(running.started).as_ps(), running.test.time().as_ps());
            (running.test as u8, (u128::from(done) * 100 / u128::from(all)).min(99) as u8)
        });
        SelfTestLog {
            operation,
            completion,
            results: std::array::from_fn(|i| self.results.get(i).copied().unwrap_or(unused)),
        }
    }

    /// What outlives a power cut: results, and an extended test, which goes on (section 8.11.2).
    pub fn to_bytes(&self, now: Instant) -> Vec<u8> {
        let mut out = Vec::new();
        let extended = self.running.filter(|running| running.test == Test::Extended);
        let left = extended.map_or(0, |running| running.ends.since(now).as_ps().max(1));
        out.extend(left.to_le_bytes());
        out.push(extended.map_or(0, |running| running.controller));
        out.extend(extended.map_or(0, |running| running.nsid).to_le_bytes());
        out.push(self.results.len() as u8);
        for result in &self.results {
            out.extend(result.to_bytes());
        }
        KIND.seal(&out)
    }

    /// Results as they were saved.
    ///
    /// # Errors
    /// When the bytes are not what [`SelfTest::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8], now: Instant) -> Result<SelfTest, StateError> {
        let mut fields = KIND.open(bytes)?;
        let left = fields.u64()?;
        let (controller, nsid) = (fields.u8()?, fields.u32()?);
        if left > EXTENDED.as_ps() {
            return Err(fields.wrong("a test takes no longer than it takes"));
        }
        let all = EXTENDED.as_ps();
        let running = (left > 0).then(|| {
            let ends = now + Duration::from_ps(left);
            // Before the first instant nothing can have begun: progress then starts anew.
            let started = Instant::from_ps(ends.as_ps().saturating_sub(all));
            Running { test: Test::Extended, controller, nsid, started, ends }
        });
        let count = usize::from(fields.u8()?);
        if count > self_test::RESULTS {
            return Err(fields.wrong("there are at most 20 results"));
        }
        let mut results = Vec::with_capacity(self_test::RESULTS);
        for _ in 0..count {
            let bytes = fields.array::<{ SelfTestResult::SIZE }>()?;
            results.push(SelfTestResult::parse(&bytes).map_err(|_| fields.wrong("a result has 28 bytes"))?);
        }
        fields.end()?;
        Ok(SelfTest { running, results })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    #[test]
    fn a_test_takes_its_time() {
        let mut test = SelfTest::default();
        assert_eq!(test.log(at(0)).results[0].status, self_test::UNUSED);
        assert_eq!(test.command(at(0), 1, 0, 1, SelfTestAction::Abort), Ok(()), "there is none: nothing happens");
        assert_eq!(test.command(at(0), 1, 0, NSID_ALL, SelfTestAction::Short), Ok(()));
        let again = test.command(at(1), 1, 1, 0, SelfTestAction::Extended);
        assert_eq!(again, Err(Status::SELF_TEST_IN_PROGRESS));
        assert!(!test.expire(at(1500), 1, 0));
        let log = test.log(at(1500));
        assert_eq!((log.operation, log.completion, log.results[0].status), (1, 75, self_test::UNUSED));
        assert_eq!(test.deadline(), Some(at(2000)));
        assert!(!test.expire(at(2000), 5, 0));
        let log = test.log(at(2000));
        assert_eq!((log.operation, log.completion), (0, 0));
        assert_eq!((log.results[0].status, log.results[0].power_on_hours, log.results[0].valid), (0x10, 5, 1));

        test.command(at(3000), 1, 0, 0, SelfTestAction::Extended).unwrap();
        assert!(test.expire(at(63_000), 6, 8), "a read-only drive fails");
        let log = test.log(at(63_000));
        assert_eq!((log.results[0].status, log.results[0].segment, log.results[1].status), (0x27, 2, 0x10));
    }

    #[test]
    fn what_aborts_a_test() {
        let run = |action, nsid, why: Abort| {
            let mut test = SelfTest::default();
            test.command(at(0), 0, 3, nsid, action).unwrap();
            test.abort(0, why);
            (test.deadline().is_none(), test.log(at(0)).results[0].status)
        };
        assert_eq!(run(SelfTestAction::Short, 0, Abort::Reset(3)), (true, 0x12));
        assert_eq!(run(SelfTestAction::Short, 0, Abort::Reset(2)), (false, 0xF));
        assert_eq!(run(SelfTestAction::Extended, 0, Abort::Reset(3)), (false, 0xF));
        assert_eq!(run(SelfTestAction::Extended, 4, Abort::NamespaceRemoved(4)), (true, 0x23));
        assert_eq!(run(SelfTestAction::Extended, 4, Abort::Format(5)), (false, 0xF));
        assert_eq!(run(SelfTestAction::Short, NSID_ALL, Abort::Format(5)), (true, 0x14));
        assert_eq!(run(SelfTestAction::Short, 0, Abort::Sanitize), (true, 0x19));
        let mut test = SelfTest::default();
        for hours in 0..30 {
            test.command(at(0), 0, 0, 0, SelfTestAction::Short).unwrap();
            test.command(at(0), hours, 0, 0, SelfTestAction::Abort).unwrap();
        }
        let log = test.log(at(0));
        assert!(log.results.iter().zip((10..30).rev()).all(|(result, hours)| result.power_on_hours == hours));
    }

    #[test]
    fn an_extended_test_goes_on_after_a_power_cut() {
        let mut test = SelfTest::default();
        test.command(at(0), 0, 0, 0, SelfTestAction::Short).unwrap();
        test.expire(at(2000), 0, 0);
        test.command(at(10_000), 0, 1, 7, SelfTestAction::Extended).unwrap();
        let bytes = test.to_bytes(at(40_000));
        let again = SelfTest::from_bytes(&bytes, at(100_000)).unwrap();
        assert_eq!((again.deadline(), again.log(at(100_000)).completion), (Some(at(130_000)), 50));
        assert_eq!(again.log(at(0)).results[0].status, 0x10);
        let early = SelfTest::from_bytes(&bytes, at(0)).unwrap();
        assert_eq!(early.deadline(), Some(at(30_000)));
        saved::try_damage(&bytes, |bytes| SelfTest::from_bytes(bytes, at(0)));
        // A short one does not.
        let mut short = SelfTest::default();
        short.command(at(0), 0, 0, 0, SelfTestAction::Short).unwrap();
        assert_eq!(SelfTest::from_bytes(&short.to_bytes(at(0)), at(0)).unwrap().deadline(), None);
        assert!(SelfTest::from_bytes(&KIND.seal(&[0xFF; 14]), at(0)).is_err());
    }
}
