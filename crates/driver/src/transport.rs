//! Interface of every transport to a controller: commands, and bytes of a BAR where there is one.

use tidewater_wire::nvme::{Sqe, Status};

use crate::Error;

/// Bytes of data that one command moves, at most: what every transport and every drive takes.
pub const DATA_MAX: usize = 64 << 10;

/// Which queue a command is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// The admin queue.
    Admin,
    /// An I/O queue.
    Io,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Its status.
    pub status: Status,
    /// Double word 0.
    pub result: u32,
}

/// BAR2 of a function.
pub trait BarAccess {
    /// Loads bytes. All loads are behind the stores before them.
    ///
    /// # Errors
    /// When the place is outside, or the function is gone.
    fn load(&mut self, offset: u64, to: &mut [u8]) -> Result<(), Error>;

    /// Stores bytes, through write-combining memory if there is any. It is posted: what a function does not take, it
    /// drops.
    ///
    /// # Errors
    /// As [`BarAccess::load`], as far as this side can know.
    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Makes all stores before leave the host before anything after.
    fn fence(&mut self);

    /// Flushes the cache lines that hold some bytes.
    ///
    /// # Errors
    /// As [`BarAccess::load`].
    fn flush_lines(&mut self, offset: u64, bytes: u64) -> Result<(), Error>;
}

/// How commands, and bytes where there is a BAR, reach a controller that is enabled.
pub trait Transport: Send {
    /// Runs a command, whatever its status. Its data are all of `data`, [`DATA_MAX`] bytes at most; bits 1:0 of the
    /// opcode say which way they go.
    ///
    /// # Errors
    /// When it could not be run.
    fn command(&mut self, queue: Queue, sqe: &Sqe, data: &mut [u8]) -> Result<Completion, Error>;

    /// Begins a command without data, of which one at a time is under way. `None`: [`Transport::poll`] says when it
    /// ends; else it has ended already, because this transport waits for each.
    ///
    /// # Errors
    /// As [`Transport::command`].
    fn begin(&mut self, queue: Queue, sqe: &Sqe) -> Result<Option<Completion>, Error> {
        self.command(queue, sqe, &mut []).map(Some)
    }

    /// How the command that was begun has ended; `None`: it has not. `wait`: until it has.
    ///
    /// # Errors
    /// As [`Transport::command`]; none is under way.
    fn poll(&mut self, wait: bool) -> Result<Option<Completion>, Error> {
        let _ = wait;
        Err(Error::Malformed("no command is under way".into()))
    }

    /// BAR2. `None`: this transport has none, and bytes go by commands.
    fn bar(&mut self) -> Option<&mut dyn BarAccess>;

    /// The user whose process the drive is. `None`: it is the machine's.
    fn user(&self) -> Option<u32> {
        None
    }

    /// Shuts the controller down where this host has it alone, so that all it has taken is safe.
    ///
    /// # Errors
    /// When it does not shut down.
    fn shut_down(&mut self) -> Result<(), Error> {
        Ok(())
    }
}
