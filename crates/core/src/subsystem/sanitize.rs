//! Sanitize (NVM Express 1.4, sections 5.24, 5.14.1.16.2 and 8.15): what runs, how far it is, and what may be done
//! meanwhile.
//!
//! Block Erase alone is offered. An overwrite through a translation layer leaves copies where it does not reach, and
//! nothing is encrypted, so that no key can be thrown away. Deallocation can't be avoided (NDI): erased blocks hold
//! nothing.

use crate::saved::{Kind, StateError};
use tidewater_wire::nvme::log::{SanitizeLog, sanitize_status};
use tidewater_wire::nvme::{AdminCommand, Event, Sanitize as Wanted, SanitizeAction, Status, log_page};

const KIND: Kind = Kind { what: "sanitize state", magic: *b"TWSZ", version: 1 };
/// Not reported, in the log.
const UNKNOWN: u32 = u32::MAX;
/// SPROG when none runs.
const DONE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Never,
    Succeeded,
    Running,
    Failed,
    /// It succeeded, though the host had asked for no deallocation.
    Deallocated,
    /// It failed, and the host has left the failure mode.
    FailureLeft,
}

/// By their codes in saved state, which are their numbers.
const STATES: [State; 6] = {
    use State::*;
    [Never, Succeeded, Running, Failed, Deallocated, FailureLeft]
};

/// What a Sanitize command leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// All blocks are to be erased: [`Sanitize::finish`] tells how that went.
    BlockErase,
    /// There is nothing to do.
    Nothing,
}

/// The sanitize operation of the subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sanitize {
    state: State,
    cdw10: u32,
    no_deallocate: bool,
    unrestricted_exit: bool,
    /// In 65,536ths.
    progress: u16,
    /// Nothing was written since manufacture, or since the last sanitize that succeeded.
    erased: bool,
}

impl Default for Sanitize {
    /// That of a new drive.
    fn default() -> Sanitize {
        Sanitize {
            state: State::Never,
            cdw10: 0,
            no_deallocate: false,
            unrestricted_exit: false,
            progress: DONE,
            erased: true,
        }
    }
}

impl Sanitize {
    /// A Sanitize command. `warns` is No-Deallocate Response Mode (`Features::sanitize_warns`). After
    /// [`Begun::BlockErase`] the state is to be saved before the command completes: the operation goes on after a power
    /// cut.
    ///
    /// # Errors
    /// Sanitize In Progress; Sanitize Failed for leaving the failure mode where the last command did not allow that;
    /// Namespace is Write Protected when `is_protected`; Sanitize Prohibited While Persistent Memory Region is Enabled
    /// when `pmr_enabled`; Invalid Field in Command for what is not offered.
    pub fn begin(
        &mut self,
        wanted: &Wanted,
        warns: bool,
        is_protected: bool,
        pmr_enabled: bool,
    ) -> Result<Begun, Status> {
        if self.is_running() {
            return Err(Status::SANITIZE_IN_PROGRESS);
        }
        match wanted.action {
            SanitizeAction::ExitFailureMode => {
                if self.state == State::Failed {
                    if !self.unrestricted_exit {
                        return Err(Status::SANITIZE_FAILED);
                    }
                    self.state = State::FailureLeft;
                }
                return Ok(Begun::Nothing);
            }
            SanitizeAction::BlockErase => {}
            SanitizeAction::Overwrite { .. } | SanitizeAction::CryptoErase => return Err(Status::INVALID_FIELD),
        }
        // A failure that restricts completion is left only by an operation that restricts it too (section 8.15).
        if self.state == State::Failed && !self.unrestricted_exit && wanted.unrestricted_exit {
            return Err(Status::SANITIZE_FAILED);
        }
        if wanted.no_deallocate && !warns {
            return Err(Status::INVALID_FIELD);
        }
        if pmr_enabled {
            return Err(Status::SANITIZE_PROHIBITED_PMR);
        }
        if is_protected {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        *self = Sanitize {
            state: State::Running,
            cdw10: wanted.cdw10(),
            no_deallocate: wanted.no_deallocate,
            unrestricted_exit: wanted.unrestricted_exit,
            progress: 0,
            erased: false,
        };
        Ok(Begun::BlockErase)
    }

    /// How far the operation is: `done` of `all`.
    pub fn advance(&mut self, done: u64, all: u64) {
        if self.is_running() {
            self.progress = (u128::from(done) * 65_536 / u128::from(all.max(1))).min(u128::from(DONE) - 1) as u16;
        }
    }

    /// The operation has ended: all controllers report this event. Asserts that one ran.
    pub fn finish(&mut self, succeeded: bool) -> Event {
        assert!(self.is_running(), "a sanitize operation has ended that did not run");
        self.progress = DONE;
        self.erased = succeeded;
        self.state = match (succeeded, self.no_deallocate) {
            (true, false) => State::Succeeded,
            (true, true) => State::Deallocated,
            (false, _) => State::Failed,
        };
        if self.state == State::Deallocated { Event::SanitizeDeallocated } else { Event::SanitizeCompleted }
    }

    /// One runs: also after a power cut, when it is to be begun again.
    pub fn is_running(&self) -> bool {
        self.state == State::Running
    }

    /// A host has written data.
    #[inline]
    pub fn written(&mut self) {
        self.erased = false;
    }

    /// Whether I/O commands are taken.
    ///
    /// # Errors
    /// Sanitize In Progress or Sanitize Failed.
    #[inline]
    pub fn permits_io(&self) -> Result<(), Status> {
        match self.state {
            State::Running => Err(Status::SANITIZE_IN_PROGRESS),
            State::Failed => Err(Status::SANITIZE_FAILED),
            _ => Ok(()),
        }
    }

    /// Whether an admin command is taken (section 8.15).
    ///
    /// # Errors
    /// Sanitize In Progress or Sanitize Failed.
    pub fn permits(&self, command: &AdminCommand) -> Result<(), Status> {
        match command {
            AdminCommand::DeleteIoSq { .. }
            | AdminCommand::CreateIoSq(_)
            | AdminCommand::DeleteIoCq { .. }
            | AdminCommand::CreateIoCq(_)
            | AdminCommand::Identify(_)
            | AdminCommand::Abort { .. }
            | AdminCommand::SetFeatures(_)
            | AdminCommand::GetFeatures(_)
            | AdminCommand::AsynchronousEventRequest
            | AdminCommand::DoorbellBufferConfig { .. }
            | AdminCommand::KeepAlive
            | AdminCommand::Sanitize(_) => Ok(()),
            // Pages that hold no user data.
            AdminCommand::GetLogPage(get)
                if matches!(
                    get.lid,
                    log_page::SUPPORTED_PAGES
                        | log_page::ERROR
                        | log_page::SMART
                        | log_page::FIRMWARE_SLOT
                        | log_page::CHANGED_NAMESPACES
                        | log_page::EFFECTS
                        | log_page::SANITIZE
                ) =>
            {
                Ok(())
            }
            _ => self.permits_io(),
        }
    }

    /// The log page.
    pub fn log(&self) -> SanitizeLog {
        let status = match self.state {
            State::Never => sanitize_status::NEVER,
            State::Running => sanitize_status::IN_PROGRESS,
            State::Succeeded => sanitize_status::SUCCEEDED,
            State::Deallocated => sanitize_status::SUCCEEDED_DEALLOCATED,
            State::Failed | State::FailureLeft => sanitize_status::FAILED,
        };
        SanitizeLog {
            progress: self.progress,
            status: status | if self.erased { sanitize_status::GLOBAL_DATA_ERASED } else { 0 },
            cdw10: self.cdw10,
            overwrite: UNKNOWN,
            block_erase: UNKNOWN,
            crypto_erase: UNKNOWN,
            overwrite_no_deallocate: UNKNOWN,
            block_erase_no_deallocate: UNKNOWN,
            crypto_erase_no_deallocate: UNKNOWN,
        }
    }

    /// What outlives a power cut.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![self.state as u8];
        out.extend([u8::from(self.no_deallocate), u8::from(self.unrestricted_exit), u8::from(self.erased)]);
        out.extend(self.cdw10.to_le_bytes());
        KIND.seal(&out)
    }

    /// The state as it was saved. An operation that ran is to be begun again.
    ///
    /// # Errors
    /// When the bytes are not what [`Sanitize::to_bytes`] gave.
    pub fn from_bytes(bytes: &[u8]) -> Result<Sanitize, StateError> {
        let mut fields = KIND.open(bytes)?;
        let state = *STATES.get(usize::from(fields.u8()?)).ok_or(fields.wrong("the state is 0 to 5"))?;
        let sanitize = Sanitize {
            state,
            no_deallocate: fields.u8()? != 0,
            unrestricted_exit: fields.u8()? != 0,
            erased: fields.u8()? != 0,
            cdw10: fields.u32()?,
            progress: if state == State::Running { 0 } else { DONE },
        };
        fields.end()?;
        Ok(sanitize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::saved;
    use tidewater_wire::nvme::{GetLogPage, Sqe, admin_opcode};

    fn wanted(cdw10: u32) -> Wanted {
        let sqe = Sqe::default().with_dword(0, u32::from(admin_opcode::SANITIZE)).with_dword(10, cdw10);
        match AdminCommand::parse(&sqe) {
            Ok(AdminCommand::Sanitize(wanted)) => wanted,
            other => panic!("{other:?}"),
        }
    }

    const EXIT: u32 = 1;
    const ERASE: u32 = 2;
    const ALLOW_EXIT: u32 = 1 << 3;
    const KEEP: u32 = 1 << 9;

    #[test]
    fn an_erase_runs_and_ends() {
        let mut it = Sanitize::default();
        assert_eq!(it.log().status, sanitize_status::GLOBAL_DATA_ERASED);
        it.written();
        assert_eq!((it.log().status, it.log().progress), (0, 0xFFFF));
        assert_eq!(it.begin(&wanted(EXIT), false, false, false), Ok(Begun::Nothing));
        assert_eq!(it.begin(&wanted(3), false, false, false), Err(Status::INVALID_FIELD));
        assert_eq!(it.begin(&wanted(4), false, false, false), Err(Status::INVALID_FIELD));
        assert_eq!(it.begin(&wanted(ERASE), false, true, false), Err(Status::NAMESPACE_WRITE_PROTECTED));
        assert_eq!(it.begin(&wanted(ERASE), false, false, true), Err(Status::SANITIZE_PROHIBITED_PMR));
        assert_eq!(it.begin(&wanted(ERASE | KEEP), false, false, false), Err(Status::INVALID_FIELD));
        assert_eq!(it.begin(&wanted(ERASE), false, false, false), Ok(Begun::BlockErase));
        assert_eq!(it.begin(&wanted(ERASE), false, false, false), Err(Status::SANITIZE_IN_PROGRESS));
        it.advance(1, 4);
        assert_eq!((it.log().progress, it.log().status, it.log().cdw10), (0x4000, 2, ERASE));
        it.advance(4, 4);
        assert_eq!(it.log().progress, 0xFFFE, "it has not ended");
        assert_eq!(it.permits_io(), Err(Status::SANITIZE_IN_PROGRESS));
        assert_eq!(it.finish(true), Event::SanitizeCompleted);
        assert_eq!((it.log().progress, it.log().status, it.permits_io()), (0xFFFF, 0x101, Ok(())));
        assert_eq!(it.begin(&wanted(ERASE | KEEP), true, false, false), Ok(Begun::BlockErase));
        assert_eq!((it.finish(true), it.log().status), (Event::SanitizeDeallocated, 0x104));
    }

    #[test]
    fn a_failure_is_left_as_the_command_allowed() {
        let fail = |cdw10| {
            let mut it = Sanitize::default();
            it.begin(&wanted(cdw10), false, false, false).unwrap();
            assert_eq!(it.finish(false), Event::SanitizeCompleted);
            assert_eq!((it.log().status, it.permits_io()), (3, Err(Status::SANITIZE_FAILED)));
            it
        };
        let mut restricted = fail(ERASE);
        assert_eq!(restricted.begin(&wanted(EXIT), false, false, false), Err(Status::SANITIZE_FAILED));
        let unrestricted = wanted(ERASE | ALLOW_EXIT);
        assert_eq!(restricted.begin(&unrestricted, false, false, false), Err(Status::SANITIZE_FAILED));
        assert_eq!(restricted.begin(&wanted(ERASE), false, false, false), Ok(Begun::BlockErase));
        let mut free = fail(ERASE | ALLOW_EXIT);
        assert_eq!(free.begin(&wanted(EXIT), false, false, false), Ok(Begun::Nothing));
        assert_eq!((free.permits_io(), free.log().status), (Ok(()), 3), "the loss stays reported");
        assert_eq!(Sanitize::from_bytes(&free.to_bytes()), Ok(free));
    }

    #[test]
    fn meanwhile_only_what_touches_no_data_is_taken() {
        let mut it = Sanitize::default();
        it.begin(&wanted(ERASE), false, false, false).unwrap();
        let log = |lid| {
            AdminCommand::GetLogPage(GetLogPage {
                nsid: 0,
                lid,
                specific: 0,
                retain: false,
                len: 4,
                offset: 0,
                identifier: 0,
                csi: 0,
            })
        };
        assert_eq!(it.permits(&log(log_page::SANITIZE)), Ok(()));
        assert_eq!(it.permits(&log(log_page::SELF_TEST)), Err(Status::SANITIZE_IN_PROGRESS));
        assert_eq!(it.permits(&AdminCommand::KeepAlive), Ok(()));
        assert_eq!(it.permits(&AdminCommand::DeleteNamespace { nsid: 1 }), Err(Status::SANITIZE_IN_PROGRESS));
        it.finish(true);
        assert_eq!(it.permits(&AdminCommand::DeleteNamespace { nsid: 1 }), Ok(()));
    }

    #[test]
    fn it_goes_on_after_a_power_cut() {
        let mut it = Sanitize::default();
        it.begin(&wanted(ERASE | KEEP), true, false, false).unwrap();
        saved::try_damage(&it.to_bytes(), Sanitize::from_bytes);
        let mut again = Sanitize::from_bytes(&it.to_bytes()).unwrap();
        assert!(again.is_running());
        assert_eq!(again.finish(true), Event::SanitizeDeallocated);
        for it in [Sanitize::default(), again] {
            assert_eq!(Sanitize::from_bytes(&it.to_bytes()), Ok(it));
        }
        assert!(Sanitize::from_bytes(&KIND.seal(&[9, 0, 0, 0, 0, 0, 0, 0])).is_err());
    }
}
