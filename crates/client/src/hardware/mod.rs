//! A drive's fast side and byte window, reached as hardware is: stores into its BARs, commands through whatever carries
//! them.
//!
//! ```no_run
//! use tidewater_client::Patience;
//! use tidewater_client::hardware::Device;
//!
//! let mut device = Device::open("pci:0000:01:00.0")?;
//! let mut log = device.fast(0, Patience::default())?;
//! let written = log.append(b"commit 17")?;
//! log.x_fsync()?; // the credit covers it
//!
//! let mut window = device.window(1)?;
//! let entry = window.pin(7, None, 4096, 8)?;
//! window.write(&entry, 100, b"a few bytes of a block")?;
//! window.sync(&entry, 0, entry.bytes)?;
//! window.flush(&entry)?;
//! # Ok::<(), tidewater_client::hardware::HardwareError>(())
//! ```
//!
//! - `pci:ADDRESS`: a function of this machine, or of the guest that this runs in. Stores go through sysfs'
//!   `resource2_wc`, loads through `resource2`, commands through the kernel driver's passthrough.
//! - `vfio-user:SOCKET`: a function of a served drive, with no other client attached. Bytes go by messages, commands by
//!   queues of our own.
//! - Anything else: a [`Transport`] of the caller's, as NVMe/TCP. Bytes go by its BAR, or by commands
//!   where it has none.
//!
//! A [`WindowLog`] is a write-ahead log in the window: its end is pinned, a commit is a `BA_SYNC`.
//!
//! The algorithms are those of simulation ([`crate::Pwrite`], [`crate::Fsync`], [`crate::Pread`],
//! [`crate::WindowCall`]); this module carries out what they say.

mod error;
mod fast;
mod window;
mod window_log;

pub use error::HardwareError;
pub use fast::{Fast, Settled};
pub use tidewater_driver::Queue;
pub use window::{Window, WindowPlace};
pub use window_log::{LogPlace, Reopened, WindowLog};

use crate::LogError;
use tidewater_driver::vfio_user::{self, Socket};
use tidewater_driver::{Transport, pci};
use tidewater_wire::nvme::identify::{IDENTIFY_BYTES, IdentifyController, IdentifyNamespace};
use tidewater_wire::nvme::{AdminCommand, Cns, GetLogPage, Identify, NSID_ALL, Sqe};
use tidewater_wire::vendor::{self, BarLayout, ControlPage, FastStatus, IoCommand, TrimTo, WindowStatus, log_page};

/// A drive.
pub struct Device {
    transport: Box<dyn Transport>,
    /// The controller's function: what log pages and admin commands of the fast side name.
    function: u16,
    bars: bool,
}

impl Device {
    /// Opens `pci:ADDRESS` (as `lspci` names it) or `vfio-user:SOCKET`.
    ///
    /// # Errors
    /// [`HardwareError`]: foremost `Target`, `Lacking`, `File`.
    pub fn open(target: &str) -> Result<Device, HardwareError> {
        match target.split_once(':') {
            Some(("pci", address)) => Device::over(Box::new(pci::Function::open(address)?)),
            Some(("vfio-user", path)) if !path.is_empty() => {
                let start =
                    || -> Result<_, LogError> { Ok(vfio_user::Function::start(Socket::connect(path.as_ref())?)?) };
                Device::over(Box::new(start().map_err(LogError::turned_away)?))
            }
            _ => Err(HardwareError::Target(target.to_owned())),
        }
    }

    /// A drive behind a transport of the caller's.
    ///
    /// # Errors
    /// When it does not answer Identify.
    pub fn over(mut transport: Box<dyn Transport>) -> Result<Device, HardwareError> {
        let bars = transport.bar().is_some();
        let mut device = Device { transport, function: 0, bars };
        if bars {
            let page = device.identify(Cns::Controller, 0)?;
            device.function = IdentifyController::parse(&page)?.cntlid;
        }
        Ok(device)
    }

    /// Whether bytes go by stores into a BAR.
    pub fn has_bars(&self) -> bool {
        self.bars
    }

    /// The function, as the fast side's commands name it.
    pub fn function(&self) -> u16 {
        self.function
    }

    /// The user whose process the drive is. `None`: it is the machine's.
    pub fn user(&self) -> Option<u32> {
        self.transport.user()
    }

    /// The carrier of commands and bytes.
    pub fn transport(&mut self) -> &mut dyn Transport {
        self.transport.as_mut()
    }

    /// Shuts the controller down, where this host has it alone. It runs no more commands.
    ///
    /// # Errors
    /// When it does not shut down.
    pub fn shut_down(&mut self) -> Result<(), HardwareError> {
        Ok(self.transport.shut_down()?)
    }

    /// Runs a command that has to end well; `what` names it.
    ///
    /// # Errors
    /// [`HardwareError::Status`], or that it could not be run.
    pub fn run(&mut self, queue: Queue, sqe: &Sqe, data: &mut [u8], what: &'static str) -> Result<u32, HardwareError> {
        let done = self.transport.command(queue, sqe, data)?;
        if done.status.is_success() {
            Ok(done.result)
        } else {
            Err(HardwareError::Status { what, status: done.status })
        }
    }

    /// Runs an admin command that brings `len` bytes; `what` names it.
    ///
    /// # Errors
    /// As [`Device::run`].
    pub fn read(&mut self, command: &AdminCommand, len: usize, what: &'static str) -> Result<Vec<u8>, HardwareError> {
        let mut data = vec![0; len];
        self.run(Queue::Admin, &command.emit(0), &mut data, what)?;
        Ok(data)
    }

    fn identify(&mut self, cns: Cns, nsid: u32) -> Result<Vec<u8>, HardwareError> {
        let command = AdminCommand::Identify(Identify { cns, nsid, controller: 0, csi: 0 });
        self.read(&command, IDENTIFY_BYTES, "Identify")
    }

    fn log(&mut self, lid: u8, len: usize, what: &'static str) -> Result<Vec<u8>, HardwareError> {
        let identifier = self.function;
        // Reading must not use up events that the host's driver waits for.
        let get = GetLogPage {
            nsid: NSID_ALL,
            lid,
            specific: 0,
            retain: true,
            len: len as u64,
            offset: 0,
            identifier,
            csi: 0,
        };
        self.read(&AdminCommand::GetLogPage(get), len, what)
    }

    /// How the fast side is doing (log page C0h).
    ///
    /// # Errors
    /// As [`Device::run`]; Fast Side Not Set Up among them.
    pub fn fast_status(&mut self) -> Result<FastStatus, HardwareError> {
        Ok(FastStatus::parse(&self.log(log_page::FAST_STATUS, FastStatus::SIZE, "log page Fast Status")?)?)
    }

    /// Where things are in BAR2 (log page C1h).
    ///
    /// # Errors
    /// As [`Device::run`].
    pub fn layout(&mut self) -> Result<BarLayout, HardwareError> {
        Ok(BarLayout::parse(&self.log(log_page::LAYOUT, BarLayout::SIZE, "log page Layout")?)?)
    }

    /// How the byte window is doing (log page C3h).
    ///
    /// # Errors
    /// As [`Device::run`].
    pub fn window_status(&mut self) -> Result<WindowStatus, HardwareError> {
        Ok(WindowStatus::parse(&self.log(log_page::WINDOW, WindowStatus::SIZE, "log page Window")?)?)
    }

    /// Bytes of a logical block of a namespace.
    fn block_bytes(&mut self, nsid: u32) -> Result<u32, HardwareError> {
        let page = self.identify(Cns::Namespace, nsid)?;
        // Of a namespace that is not active come zeroes (section 5.15.2.1).
        let shift = IdentifyNamespace::parse(&page)?.block_shift().filter(|shift| *shift < 32);
        let unknown = || HardwareError::Lacking(format!("namespace {nsid} is not active, or has no block format"));
        Ok(1 << shift.ok_or_else(unknown)?)
    }

    /// The control page of the fast side, by its BAR or by command.
    ///
    /// # Errors
    /// As [`Device::run`], and that it makes no sense.
    pub fn control_page(&mut self) -> Result<ControlPage, HardwareError> {
        let mut bytes = vec![0; ControlPage::SIZE];
        if self.bars {
            let at = self.layout()?.control_page_offset;
            return self.control_page_at(at);
        }
        let command = IoCommand::ReadControlPage;
        self.run(Queue::Io, &command.emit(0), &mut bytes, "Read Control Page")?;
        Ok(ControlPage::parse(&bytes)?)
    }

    /// Reads it until no change is under way: its sequence is even, and the same before and after.
    fn control_page_at(&mut self, at: u64) -> Result<ControlPage, HardwareError> {
        /// Looks at a page that changes all the time.
        const LOOKS: u32 = 100;
        // What is behind the lanes is reserved.
        const BYTES: usize = ControlPage::lane_offset(vendor::LANES_MAX as u8);
        let bar = self.transport.bar().ok_or(HardwareError::NoWindow)?;
        for _ in 0..LOOKS {
            let mut bytes = vec![0; ControlPage::SIZE];
            bar.load(at, &mut bytes[..BYTES])?;
            let mut again = [0; 8];
            bar.load(at + ControlPage::SEQUENCE_OFFSET as u64, &mut again)?;
            let sequence = &bytes[ControlPage::SEQUENCE_OFFSET..][..8];
            if sequence == again && again[0] & 1 == 0 {
                return Ok(ControlPage::parse(&bytes)?);
            }
        }
        Err(HardwareError::Malformed("the control page never stands still".into()))
    }

    /// Takes up a lane of the fast side, to write and read its stream.
    ///
    /// # Errors
    /// As [`Device::run`]; [`HardwareError::Fast`] when the lane is not in use.
    pub fn fast(&mut self, lane: u8, patience: crate::Patience) -> Result<Fast<'_>, HardwareError> {
        Fast::open(self, lane, patience)
    }

    /// The byte window, for blocks of a namespace.
    ///
    /// # Errors
    /// [`HardwareError::NoWindow`], or as [`Device::run`].
    pub fn window(&mut self, nsid: u32) -> Result<Window<'_>, HardwareError> {
        Window::open(self, nsid)
    }

    /// The byte window where an earlier [`Device::window`] found it, without asking the device.
    pub fn window_at(&mut self, place: WindowPlace) -> Window<'_> {
        Window::at(self, place)
    }

    /// Releases the log of a lane below a stream offset (Trim Log).
    ///
    /// # Errors
    /// As [`Device::run`].
    pub fn trim(&mut self, lane: u8, offset: u64) -> Result<(), HardwareError> {
        let command = vendor::AdminCommand::TrimLog { function: self.function, to: TrimTo::Stream { lane, offset } };
        self.run(Queue::Admin, &command.emit(0), &mut [], "Trim Log").map(drop)
    }
}
