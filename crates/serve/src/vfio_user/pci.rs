//! What every PCIe function does alike: the configuration space, the MSI-X table and the pending bits. The rest is the
//! controller's.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use tidewater_wire::pci::{ConfigSpace, Options, command};
use tidewater_wire::vfio_user::region;

use super::connection::Connection;
use super::device::{Device, Function, Region};
use super::guest::GuestMemory;
use super::interrupts::Interrupts;
use super::session::DOORBELL_PAGE;
use tidewater_ipc::SharedMemory;

/// What the host has said about a function in its configuration space. Any thread may look.
#[derive(Debug, Default)]
pub struct PciState {
    command: AtomicU16,
    power: AtomicU16,
}

impl PciState {
    /// The function may read and write the host's memory (Bus Master Enable).
    pub fn is_bus_master(&self) -> bool {
        self.command.load(Ordering::Acquire) & command::BUS_MASTER != 0
    }

    /// The power state: 0 (D0) or 3 (D3hot).
    pub fn power_state(&self) -> u8 {
        self.power.load(Ordering::Acquire) as u8
    }

    fn set(&self, config: &ConfigSpace) {
        self.command.store(config.command(), Ordering::Release);
        self.power.store(config.power_state().into(), Ordering::Release);
    }
}

/// A PCIe function around a controller, which sees neither the configuration space nor the MSI-X structures.
///
/// A client such as QEMU keeps the MSI-X table itself and masks vectors by messages; the table here is for those that
/// read back what they have written.
#[derive(Debug)]
pub struct Pci<F> {
    config: Mutex<ConfigSpace>,
    state: Arc<PciState>,
    /// The MSI-X table, from `table_at` in BAR0.
    table: Mutex<Vec<u8>>,
    table_at: u64,
    pba_at: u64,
    interrupts: Arc<Interrupts>,
    controller: F,
}

/// Bytes of an entry of the MSI-X table.
const TABLE_ENTRY: usize = 16;

impl<F: Function> Pci<F> {
    /// A function after power-on, with interrupts that fit it. Asserts the ranges of [`Options`].
    pub fn new(options: &Options, controller: F) -> Pci<F> {
        let config = ConfigSpace::new(options);
        let (table_at, pba_at) = (config.msix_table(), config.msix_pba());
        let state = Arc::new(PciState::default());
        state.set(&config);
        let interrupts = Arc::new(Interrupts::new(options.msi.into(), options.vectors.into()));
        let pci = Pci {
            config: Mutex::new(config),
            state,
            table: Mutex::new(vec![0; usize::from(options.vectors) * TABLE_ENTRY]),
            table_at,
            pba_at,
            interrupts,
            controller,
        };
        pci.mask_table();
        pci
    }

    /// What the host has said.
    pub fn state(&self) -> Arc<PciState> {
        Arc::clone(&self.state)
    }

    /// Its interrupts.
    pub fn interrupts(&self) -> Arc<Interrupts> {
        Arc::clone(&self.interrupts)
    }

    /// What a client sees. `doorbells`, as long as BAR0: clients may map the doorbell page; `bar2`, `bar4`: what they
    /// may map of them (their sizes become those of the configuration space).
    pub fn device(
        &self,
        memory: Arc<GuestMemory>,
        doorbells: Option<Arc<SharedMemory>>,
        bar2: Region,
        bar4: Region,
    ) -> Device {
        let config = self.config();
        let mut regions = [Region::NONE; region::COUNT as usize];
        let bar0 = config.bar_bytes(0);
        regions[region::BAR0 as usize] = match doorbells {
            Some(shared) => Region::mapped(bar0, shared, vec![DOORBELL_PAGE]),
            None => Region::trapped(bar0),
        };
        for (at, bar) in [(2, bar2), (4, bar4)] {
            let size = config.bar_bytes(at);
            assert!(bar.size <= size, "BAR{at} has {size} bytes, and {} are shown", bar.size);
            regions[at] = Region { size, ..bar };
        }
        regions[region::CONFIG as usize] = Region::trapped(ConfigSpace::SIZE as u64);
        Device { regions, copy: Region::NONE, memory, interrupts: self.interrupts() }
    }

    fn config(&self) -> MutexGuard<'_, ConfigSpace> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> MutexGuard<'_, Vec<u8>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All vectors masked, as after a reset (PCI Express Base Specification 4.0, section 7.7.2.8).
    fn mask_table(&self) {
        for entry in self.table().chunks_exact_mut(TABLE_ENTRY) {
            entry.fill(0);
            entry[12] = 1;
        }
    }

    /// The part of BAR0 that `offset` is in: how many of `len` bytes are in it, and where in which structure.
    fn part(&self, offset: u64, len: usize) -> (Part, usize) {
        let until = |end: u64| usize::try_from(end - offset).unwrap_or(usize::MAX).min(len);
        if offset < self.table_at {
            (Part::Registers, until(self.table_at))
        } else if offset < self.pba_at {
            (Part::Table((offset - self.table_at) as usize), until(self.pba_at))
        } else {
            (Part::Pending(offset - self.pba_at), len)
        }
    }

    fn read_config(&self, offset: u64, to: &mut [u8]) {
        self.config().read(offset, to);
    }

    fn write_config(&self, offset: u64, from: &[u8]) -> Result<(), Errno> {
        let change = {
            let mut config = self.config();
            let change = config.write(offset, from);
            self.state.set(&config);
            change
        };
        if change.function_reset { self.reset() } else { Ok(()) }
    }
}

/// Parts of BAR0.
enum Part {
    Registers,
    Table(usize),
    Pending(u64),
}

impl<F: Function> Function for Pci<F> {
    fn region_read(&self, index: u32, mut offset: u64, mut to: &mut [u8]) -> Result<(), Errno> {
        if index == region::CONFIG {
            self.read_config(offset, to);
            return Ok(());
        }
        if index != region::BAR0 {
            return self.controller.region_read(index, offset, to);
        }
        while !to.is_empty() {
            let (part, len) = self.part(offset, to.len());
            let (piece, rest) = to.split_at_mut(len);
            match part {
                Part::Registers => self.controller.region_read(index, offset, piece)?,
                Part::Table(at) => {
                    let table = self.table();
                    for (at, byte) in (at..).zip(piece) {
                        *byte = table.get(at).copied().unwrap_or(0);
                    }
                }
                Part::Pending(at) => {
                    for (at, byte) in (at..).zip(piece) {
                        *byte = self.interrupts.pending((at / 8) as usize).to_le_bytes()[(at % 8) as usize];
                    }
                }
            }
            offset += len as u64;
            to = rest;
        }
        Ok(())
    }

    fn region_write(&self, index: u32, mut offset: u64, mut from: &[u8]) -> Result<(), Errno> {
        if index == region::CONFIG {
            return self.write_config(offset, from);
        }
        if index != region::BAR0 {
            return self.controller.region_write(index, offset, from);
        }
        while !from.is_empty() {
            let (part, len) = self.part(offset, from.len());
            let (piece, rest) = from.split_at(len);
            match part {
                Part::Registers => self.controller.region_write(index, offset, piece)?,
                Part::Table(at) => {
                    let mut table = self.table();
                    for (at, value) in (at..).zip(piece) {
                        if let Some(byte) = table.get_mut(at) {
                            // Of vector control only the mask bit can be written; addresses are aligned to 4 bytes.
                            let writable = match at % TABLE_ENTRY {
                                0 => 0xFC,
                                12 => 0x01,
                                13..=15 => 0x00,
                                _ => 0xFF,
                            };
                            *byte = value & writable;
                        }
                    }
                }
                // Only the function writes it.
                Part::Pending(_) => {}
            }
            offset += len as u64;
            from = rest;
        }
        Ok(())
    }

    fn stored(&self, region: u32) {
        self.controller.stored(region);
    }

    /// Resets configuration space, MSI-X table and controller.
    fn reset(&self) -> Result<(), Errno> {
        {
            let mut config = self.config();
            config.reset();
            self.state.set(&config);
        }
        self.mask_table();
        self.controller.reset()
    }

    fn connected(&self, connection: &Arc<Connection>) {
        self.controller.connected(connection);
    }

    fn disconnected(&self) {
        self.controller.disconnected();
    }
}
