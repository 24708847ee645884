//! Commands for `tidewater serve --commands`: what the world hands in and takes shows them all.

use crate::commands::{Tap, socket};
use crate::engine::context::Pending;
use crate::engine::events::{ServeError, wrong};
use crate::engine::route::World;
use crate::engine::setup::Setup;
use std::path::PathBuf;
use tidewater_core::subsystem::Input;
use tidewater_wire::nvme::Cqe;
use tidewater_wire::nvme::register::{Cc, NSSR_RESET, offset};

/// The file of commands, if one is wanted. `nqn`: the subsystem's name; `made`: gets the file if it is new.
pub(crate) fn tap(setup: &Setup, nqn: &str, made: &mut Vec<PathBuf>) -> Result<Option<Tap>, ServeError> {
    let Some(path) = &setup.commands else { return Ok(None) };
    // A socket goes with those who listen on it.
    let is_socket = socket(path).is_some();
    let is_new = !is_socket && path.symlink_metadata().is_err();
    let tap = Tap::start(path, nqn).map_err(|error| {
        // What goes wrong with a socket names its path.
        let what = if is_socket { String::new() } else { format!("{}: ", path.display()) };
        wrong(format!("--commands: {what}{error}"))
    })?;
    made.extend(is_new.then(|| path.clone()));
    Ok(Some(tap))
}

impl<M> World<M> {
    /// An input on its way to the firmware: entries of queues, and what ends queues.
    #[cold]
    pub(crate) fn see_input(&mut self, pending: &Pending) {
        let Some(tap) = &mut self.commands else { return };
        match pending {
            Pending::DmaRead(token, Some(bytes)) => {
                if let Some((function, queue)) = token.submission_queue() {
                    tap.entries(function, queue, bytes);
                }
            }
            Pending::Plain(Input::Capsule { function, queue, sqe }) => tap.capsule(*function, *queue, *sqe),
            Pending::Plain(Input::FunctionReset { function } | Input::Disconnect { function }) => {
                tap.gone(*function, None);
            }
            Pending::Plain(Input::DisconnectQueue { function, queue }) => tap.gone(*function, Some(*queue)),
            Pending::Plain(Input::Register { function, offset: offset::CC, value, .. })
                if !Cc(*value as u32).enable() =>
            {
                tap.gone(*function, None);
            }
            Pending::Plain(Input::Register { offset: offset::NSSR, value, .. }) if *value as u32 == NSSR_RESET => {
                tap.all_gone();
            }
            _ => {}
        }
        self.check_tap();
    }

    /// A completion.
    #[cold]
    pub(crate) fn see_end(&mut self, function: u8, queue: u16, cqe: &Cqe) {
        if let Some(tap) = &mut self.commands {
            tap.ended(function, queue, *cqe);
        }
        self.check_tap();
    }

    /// The file could not be written: that is said once, and the device goes on without it.
    fn check_tap(&mut self) {
        if self.commands.as_ref().is_some_and(Tap::has_failed) && self.commands_error.is_none() {
            let error = self.end_tap().expect_err("a writer that ended early has failed");
            let text = format!("the file of commands ends here, because it cannot be written: {error}");
            self.cx.warn(text);
            self.commands_error = Some(error);
        }
    }

    /// Ends the file of commands.
    ///
    /// # Errors
    /// When it is not whole.
    pub(crate) fn end_tap(&mut self) -> std::io::Result<()> {
        self.commands.as_mut().map_or(Ok(()), Tap::end)
    }
}
