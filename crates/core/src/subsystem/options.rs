//! How a subsystem is made, and what the driver of the loop asks for.

use super::namespaces::{CONTROLLERS_MAX, Initial};
use crate::device::{Device, SetupError};
use crate::fast::bar;
use crate::profile::{Arbitration, Profile};
use tidewater_nand::Medium;

/// Commands that the subsystem itself has under way at once, at most: flushes of shutdowns, deallocations.
pub(super) const OWN_SLOTS: u16 = 4;

/// How a subsystem is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// PCI functions, 1 to 16: one controller each.
    pub functions: u8,
    /// Controllers of fabrics hosts at once, at most; with the functions at most 255.
    pub fabrics: u8,
    /// Pairs of I/O queues of each controller, 1 to 64.
    pub queues: u16,
    /// Entries of each queue, at most: 2 to 65,536.
    pub queue_entries: u32,
    /// Interrupt vectors of each PCI function, 1 to 2,048.
    pub vectors: u16,
    /// Commands that are worked on at once, over all controllers: 1 to 4,096.
    pub slots: u16,
    /// Bytes that one command may move: a power of two times 4 KiB.
    pub transfer_max: u32,
    /// The version of the next write, from 1: one that no earlier write of this drive had, or may have had.
    pub first_version: u64,
    /// Serial number, at most 20 ASCII characters.
    pub serial: String,
    /// NVM subsystem qualified name, at most 223 bytes.
    pub nqn: String,
    /// Bytes of BAR2 that are for queues (CMB): a multiple of 4 KiB; 0: none.
    pub cmb: u64,
    /// Bytes of the persistent memory region (BAR4): 0: none.
    pub pmr: u64,
    /// Host memory buffer that is wished for, in units of 4 KiB (HMPRE); 0: none.
    pub hmb_preferred: u32,
    /// The least that is of use, in units of 4 KiB (HMMIN).
    pub hmb_minimum: u32,
    /// PCI functions may use commands that destroy, or change what other hosts see.
    pub privileged: bool,
    /// Namespaces of a new drive, attached to every controller; empty: one that takes everything.
    pub namespaces: Vec<Initial>,
    /// Commands taken from one queue in a turn, 1 to 128: the default of the feature Arbitration.
    pub arbitration_burst: u32,
    /// PCI functions offer weighted round robin (CAP.AMS).
    pub weighted: bool,
    /// Commands in a turn of the high, medium and low classes, 1 to 256: the default of the feature Arbitration.
    pub arbitration_weights: [u32; 3],
    /// What `Subsystem::state` gave when the drive was last run; empty: a new drive.
    pub state: Vec<u8>,
}

impl Options {
    /// Those of a profile: one PCI function, no fabrics, no CMB, PMR and HMB.
    pub fn of(profile: &Profile) -> Options {
        let host = &profile.host;
        Options {
            functions: 1,
            fabrics: 0,
            queues: host.queues.min(64) as u16,
            queue_entries: host.queue_entries,
            vectors: host.queues.min(64) as u16 + 1,
            slots: host.outstanding_max as u16,
            // MDTS is a power of two.
            transfer_max: 1 << host.transfer_max.ilog2(),
            first_version: 1,
            serial: "TIDEWATER".into(),
            nqn: "nqn.2026-11.tidewater:drive".into(),
            cmb: 0,
            pmr: 0,
            hmb_preferred: 0,
            hmb_minimum: 0,
            privileged: true,
            namespaces: Vec::new(),
            arbitration_burst: host.arbitration_burst,
            weighted: host.arbitration == Arbitration::Weighted,
            arbitration_weights: host.arbitration_weights,
            state: Vec::new(),
        }
    }

    pub(super) fn check<M: Medium>(&self, device: &Device<M>) -> Result<(), SetupError> {
        let options = device.options();
        let wrong = |text: String| Err(SetupError(text));
        match () {
            () if !(options.stamps && options.payload) => {
                wrong("a served device keeps stamps and payload: set Options::stamps and Options::payload".into())
            }
            () if !(1..=16).contains(&self.functions) => wrong(format!("{} PCI functions: 1 to 16", self.functions)),
            () if usize::from(self.functions) + usize::from(self.fabrics) >= CONTROLLERS_MAX => {
                wrong(format!("{} PCI functions and {} fabrics controllers: 255 at most", self.functions, self.fabrics))
            }
            () if !(1..=64).contains(&self.queues) => wrong(format!("{} pairs of I/O queues: 1 to 64", self.queues)),
            () if !(2..=65_536).contains(&self.queue_entries) => {
                wrong(format!("{} queue entries: 2 to 65,536", self.queue_entries))
            }
            () if !(1..=2_048).contains(&self.vectors) => wrong(format!("{} vectors: 1 to 2,048", self.vectors)),
            () if !(1..=4_096).contains(&self.slots) => wrong(format!("{} slots: 1 to 4,096", self.slots)),
            () if self.transfer_max < 4096 || !self.transfer_max.is_power_of_two() => {
                wrong(format!("{} bytes for a command at most: a power of two from 4,096 on", self.transfer_max))
            }
            () if !(4096..=1 << 20).contains(&device.profile().ftl.unit_size) => wrong(format!(
                "[ftl] unit_size of {} bytes: a served drive has units of 4 KiB to 1 MiB",
                device.profile().ftl.unit_size
            )),
            () if self.first_version == 0 => wrong("version 0 is what was there before the first write".into()),
            () if self.serial.len() > 20 || !self.serial.is_ascii() => {
                wrong(format!("serial number {:?}: at most 20 ASCII characters", self.serial))
            }
            () if self.nqn.len() > 223 => wrong(format!("NQN {:?}: at most 223 bytes", self.nqn)),
            () if !self.cmb.is_multiple_of(4096) => wrong(format!("a CMB of {} bytes: a multiple of 4 KiB", self.cmb)),
            () => Ok(()),
        }
    }
}

/// What is where in a function's BAR2: control pages and rings of the fast side from 0 on, then the byte window, then
/// the slice for queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bar2 {
    /// First byte of the byte window, which only the first function has: others have nothing there.
    pub window_offset: u64,
    /// Its bytes; 0: there is none.
    pub window_len: u64,
    /// First byte of the slice for queues.
    pub cmb_offset: u64,
    /// Its bytes.
    pub cmb_len: u64,
    /// Bytes of the BAR: a power of two; 0: there is none.
    pub size: u64,
}

impl Bar2 {
    pub(super) fn of<M: Medium>(device: &Device<M>, options: &Options) -> Bar2 {
        let fast = &device.profile().fast;
        // A function may set its rings up anew, but never gets more memory than the profile gives it.
        let rings = if fast.is_enabled() { bar::RINGS + fast.size.next_multiple_of(bar::RINGS) } else { 0 };
        let window_len = device.profile().window.size;
        let window_offset = if window_len > 0 { device.window().bar_offset() } else { rings };
        let cmb_offset = window_offset + window_len.next_multiple_of(4096);
        let end = cmb_offset + options.cmb;
        Bar2 {
            window_offset,
            window_len,
            cmb_offset,
            cmb_len: options.cmb,
            size: if end == 0 { 0 } else { end.next_power_of_two() },
        }
    }
}

/// What a bus address of a function means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The host's memory, or nothing.
    Host,
    /// The slice for queues: `offset` bytes from its start.
    Cmb {
        /// Bytes from the start of the slice.
        offset: u64,
    },
    /// The persistent memory region.
    Pmr {
        /// Bytes from its start.
        offset: u64,
    },
}

/// A function's shadow doorbells: the value of doorbell `i` of BAR0 (from offset 1000h on, 4 bytes each) is at
/// `address + 4 * i`, as a double word whose low 16 bits count. A changed one is reported by
/// [`Input::Doorbell`](super::Input::Doorbell).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowDoorbells {
    /// Bus address of the page of doorbells.
    pub address: u64,
    /// Bit `q`: I/O submission queue `q` exists. The admin queue has no shadow: its doorbells are rung in BAR0.
    pub submission: u128,
    /// Bit `q`: I/O completion queue `q` exists.
    pub completion: u128,
}

/// The queues of a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Bit `q`: submission queue `q` exists. Queue 0 is the admin queue.
    pub submission: u128,
    /// Bit `q`: completion queue `q` exists.
    pub completion: u128,
    /// I/O queues have shadow doorbells (Doorbell Buffer Config).
    pub shadowed: bool,
}

impl Queues {
    /// Whether a queue exists: a completion queue, else a submission queue.
    pub fn has(&self, queue: u16, completion: bool) -> bool {
        let bits = if completion { self.completion } else { self.submission };
        queue < 128 && bits >> queue & 1 == 1
    }
}
