//! The whole policy of a supervisor, without I/O: what is started, stopped and killed, and when.

use super::{Order, Report, State};
use crate::epoch::Epoch;

/// How long after its end a command is started again, in milliseconds.
pub const AGAIN_MS: u64 = 1_000;
/// A program that has run for so long before its end has not failed as the one before did, in milliseconds.
pub const STEADY_MS: u64 = 60_000;
/// How long a command has to end when no keeper has said that, in milliseconds.
const STOP_MS: u64 = 3_000;

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The program, which runs beside the primary.
    Program {
        /// This machine's node.
        node: u8,
        /// The epoch that its device is primary of.
        epoch: Epoch,
    },
    /// The command that runs where the primary is not.
    Standby {
        /// This machine's node.
        node: u8,
        /// The node that leads.
        primary: u8,
    },
}

impl What {
    fn is_program(self) -> bool {
        matches!(self, What::Program { .. })
    }
}

/// A step of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts a command.
    Start(What),
    /// Sends the process that was started the signal to end.
    End,
    /// Kills all processes of the command.
    Kill,
}

/// The keeper's last order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Program { node: u8, epoch: Epoch, until_ms: Option<u64> },
    Standby { node: u8, primary: Option<u8> },
}

/// A command that was started, of which processes are left.
#[derive(Clone, Copy, Debug)]
struct Running {
    what: What,
    since_ms: u64,
    /// It was sent the signal to end, and is killed at this time.
    kill_at_ms: Option<u64>,
}

/// The supervisor's decisions.
#[derive(Clone, Debug)]
pub struct Policy {
    has_standby: bool,
    wanted: Wanted,
    stop_ms: u64,
    running: Option<Running>,
    /// A command of this kind, the program if true, is not started before.
    not_before: Option<(bool, u64)>,
    /// The supervisor itself is to end.
    closes: bool,
    report: Report,
}

impl Policy {
    /// Of a supervisor that has started nothing yet.
    pub fn new(has_standby: bool) -> Policy {
        Policy {
            has_standby,
            wanted: Wanted::Nothing,
            stop_ms: STOP_MS,
            running: None,
            not_before: None,
            closes: false,
            report: Report::default(),
        }
    }

    /// Takes the keeper's word.
    pub fn order(&mut self, order: &Order) {
        let (wanted, stop_ms) = match *order {
            Order::Look => return,
            Order::Run { node, epoch, until_ms, stop_ms } => (Wanted::Program { node, epoch, until_ms }, stop_ms),
            Order::Standby { node, primary, stop_ms } => (Wanted::Standby { node, primary }, stop_ms),
            Order::Stop { stop_ms } => (Wanted::Nothing, stop_ms),
        };
        (self.wanted, self.stop_ms) = (wanted, stop_ms);
        if !matches!(wanted, Wanted::Program { .. }) {
            self.report.failures = 0;
        }
    }

    /// The supervisor is to end: all that it has started ends first.
    pub fn close(&mut self) {
        self.closes = true;
    }

    /// Whether the supervisor may end.
    pub fn is_closed(&self) -> bool {
        self.closes && self.running.is_none()
    }

    /// The process that was started has ended, in these words. What it has left of processes is killed.
    pub fn ended(&mut self, now_ms: u64, how: &str) {
        let Some(running) = self.running.as_mut() else { return };
        how.clone_into(&mut self.report.last);
        if running.kill_at_ms.is_none() {
            // A program that dies by itself leaves nothing beside the next one.
            running.kill_at_ms = Some(now_ms);
            if running.what.is_program() {
                let lasted_ms = now_ms.saturating_sub(running.since_ms);
                self.report.failures = if lasted_ms >= STEADY_MS { 1 } else { self.report.failures + 1 };
            }
            self.not_before = Some((running.what.is_program(), now_ms + AGAIN_MS));
        }
    }

    /// No process of the command is left.
    pub fn gone(&mut self) {
        self.running = None;
    }

    /// The command that could not be started, as one that has ended.
    pub fn failed_to_start(&mut self, now_ms: u64, how: &str) {
        self.ended(now_ms, how);
        self.gone();
    }

    /// When the program is to be stopped, and when to be killed, for the deadline.
    fn times(&self) -> (u64, u64) {
        match self.wanted {
            Wanted::Program { until_ms: Some(until_ms), .. } => {
                (until_ms.saturating_sub(self.stop_ms), until_ms.saturating_sub(self.stop_ms / 3))
            }
            Wanted::Program { until_ms: None, .. } => (u64::MAX, u64::MAX),
            _ => (0, u64::MAX),
        }
    }

    /// Whether what runs is what is to run.
    fn is_wanted(&self, what: What, now_ms: u64) -> bool {
        !self.closes
            && match (self.wanted, what) {
                (Wanted::Program { .. }, What::Program { .. }) => now_ms < self.times().0,
                (Wanted::Standby { primary, .. }, What::Standby { primary: follows, .. }) => {
                    // While none leads, what follows the last one goes on.
                    primary.is_none_or(|primary| primary == follows)
                }
                _ => false,
            }
    }

    /// The command to start, if any.
    fn next(&self, now_ms: u64) -> Option<What> {
        let what = match self.wanted {
            Wanted::Program { node, epoch, .. } => What::Program { node, epoch },
            Wanted::Standby { node, primary: Some(primary) } if self.has_standby => What::Standby { node, primary },
            _ => return None,
        };
        let waits = self.not_before.is_some_and(|(program, at)| program == what.is_program() && now_ms < at);
        (self.is_wanted(what, now_ms) && !waits).then_some(what)
    }

    /// The next step, if any.
    pub fn step(&mut self, now_ms: u64) -> Option<Step> {
        let Some(running) = self.running else {
            let what = self.next(now_ms)?;
            self.running = Some(Running { what, since_ms: now_ms, kill_at_ms: None });
            self.report.starts += u64::from(what.is_program());
            return Some(Step::Start(what));
        };
        let last_ms = if running.what.is_program() { self.times().1 } else { u64::MAX };
        if running.what.is_program() && now_ms.saturating_sub(running.since_ms) >= STEADY_MS {
            self.report.failures = 0;
        }
        match running.kill_at_ms {
            None if self.is_wanted(running.what, now_ms) => None,
            None => {
                let kill_at_ms = now_ms.saturating_add(self.stop_ms * 2 / 3).min(last_ms);
                self.running = Some(Running { kill_at_ms: Some(kill_at_ms), ..running });
                Some(Step::End)
            }
            Some(at) if now_ms >= at.min(last_ms) => Some(Step::Kill),
            Some(_) => None,
        }
    }

    /// How long until something is to be done, in milliseconds, if nothing happens before.
    pub fn wait_ms(&self, now_ms: u64) -> u64 {
        /// Processes that are being killed are looked for so often.
        const KILLING_MS: u64 = 20;
        let at = match self.running {
            None => self.not_before.filter(|(_, at)| now_ms < *at).map_or(u64::MAX, |(_, at)| at),
            Some(Running { kill_at_ms: None, what, .. }) if what.is_program() => self.times().0,
            Some(Running { kill_at_ms: None, .. }) => u64::MAX,
            Some(Running { kill_at_ms: Some(at), what, .. }) => {
                let at = if what.is_program() { at.min(self.times().1) } else { at };
                if now_ms >= at { now_ms + KILLING_MS } else { at }
            }
        };
        at.saturating_sub(now_ms)
    }

    /// How the program stands.
    pub fn report(&self) -> Report {
        let state = match self.running {
            Some(Running { what: What::Standby { .. }, .. }) => State::Standby,
            Some(Running { kill_at_ms: None, .. }) => State::Running,
            Some(_) => State::Stopping,
            None if matches!(self.wanted, Wanted::Program { .. }) && self.report.failures > 0 => State::Ended,
            None => State::Stopped,
        };
        Report { state, ..self.report.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch { counter: 4, node: 1 };
    const PROGRAM: What = What::Program { node: 1, epoch: EPOCH };

    fn until(until_ms: u64) -> Order {
        Order::Run { node: 1, epoch: EPOCH, until_ms: Some(until_ms), stop_ms: 3_000 }
    }

    fn running(until_ms: u64) -> Policy {
        let mut policy = Policy::new(true);
        policy.order(&until(until_ms));
        assert_eq!(policy.step(0), Some(Step::Start(PROGRAM)));
        assert_eq!(policy.step(0), None, "it is not started twice");
        policy
    }

    #[test]
    fn a_program_is_stopped_and_killed_before_the_deadline_that_no_keeper_extends() {
        let mut policy = running(10_000);
        assert_eq!((policy.wait_ms(0), policy.step(6_999)), (7_000, None));
        assert_eq!(policy.step(7_000), Some(Step::End));
        assert_eq!((policy.step(8_999), policy.report().state), (None, State::Stopping));
        // It ignores the signal. An extension that comes too late does not call it back.
        policy.order(&until(20_000));
        assert_eq!(policy.step(9_000), Some(Step::Kill));
        assert_eq!(policy.step(9_020), Some(Step::Kill), "as long as a process is left");
        assert!(!policy.report().is_gone());
        policy.ended(9_021, "killed");
        policy.gone();
        assert_eq!(policy.report().state, State::Stopped, "that was no failure of its own");
        assert_eq!(policy.step(9_021), Some(Step::Start(PROGRAM)));
    }

    #[test]
    fn a_deadline_that_has_come_near_starts_nothing() {
        let mut policy = Policy::new(true);
        policy.order(&until(10_000));
        assert_eq!(policy.step(7_000), None);
        policy.order(&until(11_000));
        assert_eq!(policy.step(7_000), Some(Step::Start(PROGRAM)));
    }

    #[test]
    fn a_keeper_that_is_started_anew_takes_up_what_runs() {
        let mut policy = running(10_000);
        policy.order(&Order::Look);
        policy.order(&until(15_000));
        assert_eq!((policy.step(9_000), policy.report().starts), (None, 1));
        let later = Epoch { counter: 5, node: 1 };
        policy.order(&Order::Run { node: 1, epoch: later, until_ms: None, stop_ms: 3_000 });
        assert_eq!((policy.step(1 << 40), policy.report().starts), (None, 1), "paused: no deadline");
    }

    #[test]
    fn an_order_to_stop_kills_what_ignores_it_and_never_later_than_the_deadline_says() {
        for (at, kill_at) in [(1_000, 3_000), (6_900, 8_900)] {
            let mut policy = running(10_000);
            policy.order(&Order::Stop { stop_ms: 3_000 });
            assert_eq!(policy.step(at), Some(Step::End));
            assert_eq!((policy.step(kill_at - 1), policy.step(kill_at)), (None, Some(Step::Kill)));
        }
        // The deadline's time to kill holds for an order that comes after it was stopped for that.
        let mut policy = running(10_000);
        assert_eq!(policy.step(8_000), Some(Step::End), "it was looked at late");
        policy.order(&Order::Stop { stop_ms: 3_000 });
        assert_eq!(policy.step(9_000), Some(Step::Kill));
    }

    #[test]
    fn a_program_that_dies_is_started_again_after_a_while_and_its_ends_are_counted() {
        let mut policy = running(1 << 40);
        for failures in 1..=4 {
            let now = u64::from(failures) * 5_000;
            policy.ended(now, "exit status 1");
            assert_eq!(policy.step(now), Some(Step::Kill), "what it left of processes");
            policy.gone();
            let report = policy.report();
            assert_eq!((report.state, report.failures), (State::Ended, failures));
            assert!(report.in_words().contains("exit status 1"), "{}", report.in_words());
            assert_eq!((policy.step(now), policy.wait_ms(now)), (None, AGAIN_MS));
            assert_eq!(policy.step(now + AGAIN_MS), Some(Step::Start(PROGRAM)));
        }
        policy.ended(21_000 + STEADY_MS, "exit status 1");
        assert_eq!(policy.report().failures, 1, "it had run for a while");
    }

    #[test]
    fn the_standby_command_ends_before_the_program_starts() {
        let mut policy = Policy::new(true);
        let standby = |primary| Order::Standby { node: 1, primary, stop_ms: 3_000 };
        policy.order(&standby(None));
        assert_eq!(policy.step(0), None, "no node leads");
        policy.order(&standby(Some(0)));
        assert_eq!(policy.step(0), Some(Step::Start(What::Standby { node: 1, primary: 0 })));
        policy.order(&standby(None));
        assert_eq!((policy.step(1), policy.report().state), (None, State::Standby), "it goes on");
        policy.order(&until(20_000));
        assert_eq!((policy.step(2), policy.step(3)), (Some(Step::End), None));
        assert_eq!(policy.step(2_002), Some(Step::Kill));
        policy.ended(2_003, "killed");
        policy.gone();
        assert_eq!(policy.step(2_003), Some(Step::Start(PROGRAM)));
        policy.order(&standby(Some(0)));
        assert_eq!(policy.step(2_004), Some(Step::End));
        policy.ended(2_005, "exit status 0");
        policy.gone();
        assert!(matches!(policy.step(2_006), Some(Step::Start(What::Standby { .. }))));
        policy.ended(2_007, "exit status 1");
        policy.gone();
        assert_eq!(policy.step(2_008), None, "it is started again after a while");
        policy.order(&until(20_000));
        assert_eq!(policy.step(2_009), Some(Step::Start(PROGRAM)), "which the program does not wait for");
        let mut without = Policy::new(false);
        without.order(&standby(Some(0)));
        assert_eq!(without.step(0), None);
    }

    #[test]
    fn a_supervisor_ends_once_its_program_has() {
        let mut policy = running(1 << 40);
        policy.close();
        assert_eq!((policy.step(0), policy.is_closed()), (Some(Step::End), false));
        policy.ended(1, "exit status 0");
        policy.gone();
        assert_eq!((policy.step(2_000), policy.is_closed()), (None, true));
    }
}
