//! Type 0 configuration space with its capabilities.

use super::{CLASS_NVME, DEVICE_ID, VENDOR_ID};

/// Offsets in configuration space, in bytes.
pub mod offset {
    /// Command.
    pub const COMMAND: u16 = 0x04;
    /// Status.
    pub const STATUS: u16 = 0x06;
    /// The first of six base address registers of 4 bytes.
    pub const BAR0: u16 = 0x10;
    /// Where the list of capabilities begins.
    pub const CAPABILITIES: u16 = 0x34;
    /// Interrupt line: for software alone.
    pub const INTERRUPT_LINE: u16 = 0x3C;
    /// Power management capability.
    pub const POWER: u16 = 0x40;
    /// MSI capability, if there is one.
    pub const MSI: u16 = 0x50;
    /// PCI Express capability.
    pub const EXPRESS: u16 = 0x60;
    /// MSI-X capability.
    pub const MSIX: u16 = 0xA0;
    /// Device serial number, an extended capability.
    pub const SERIAL: u16 = 0x100;
}

/// Bits of the command register (PCI 6.2.2).
pub mod command {
    /// The function answers to its memory BARs.
    pub const MEMORY: u16 = 1 << 1;
    /// It may read and write the host's memory, MSI included.
    pub const BUS_MASTER: u16 = 1 << 2;
    /// It must not assert INTx.
    pub const INTERRUPT_DISABLE: u16 = 1 << 10;
}

/// Properties of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes of BAR2 (prefetchable); 0: there is none. Rounded up to a power of two.
    pub bar2_bytes: u64,
    /// Bytes of BAR4 (prefetchable); 0: there is none. Rounded up to a power of two.
    pub bar4_bytes: u64,
    /// MSI-X vectors, up to 2,048; 0: MSI-X is not offered (some virtual machine monitors can't unplug a device that
    /// has it).
    pub vectors: u16,
    /// Offer MSI, with one message.
    pub msi: bool,
    /// Offer INTA.
    pub intx: bool,
    /// One of several functions of a device.
    pub multi_function: bool,
    /// Link speed: 1 (2.5 GT/s) to 5 (32 GT/s).
    pub link_speed: u8,
    /// Lanes: 1 to 32.
    pub link_width: u8,
    /// Device serial number (PCIe 7.9.3): an EUI-64.
    pub serial: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            bar2_bytes: 0,
            bar4_bytes: 0,
            vectors: 65,
            msi: false,
            intx: false,
            multi_function: false,
            link_speed: 3,
            link_width: 4,
            serial: 0,
        }
    }
}

/// Effects of a write that the rest of a device must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// A function level reset was asked for: call [`ConfigSpace::reset`], and reset the controller.
    pub function_reset: bool,
    /// The command register.
    pub command: bool,
    /// A base address.
    pub bars: bool,
    /// MSI-X message control: enable or function mask.
    pub msix: bool,
    /// The MSI capability.
    pub msi: bool,
    /// The power state.
    pub power: bool,
}

/// Function level reset of the device control register.
const INITIATE_FLR: u16 = 1 << 15;
const DEVICE_CONTROL: u16 = offset::EXPRESS + 0x08;
const POWER_CONTROL: u16 = offset::POWER + 4;
const MSIX_CONTROL: u16 = offset::MSIX + 2;
/// The table follows registers and doorbells of 512 queue pairs.
const MSIX_TABLE: u32 = 0x2000;
const PAGE: u64 = 4096;
/// Bits 13:4 of BAR0 are not writable (NVM Express 1.4, section 2.1.10).
const BAR0_MIN: u64 = 0x4000;

/// The configuration space of a function: 4,096 bytes, most of which only read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
    /// As it is after a reset.
    initial: Vec<u8>,
    /// Bits that a write sets.
    writable: Vec<u8>,
    /// Bits that a write of 1 clears.
    clearable: Vec<u8>,
    bars: [u64; 3],
    vectors: u16,
}

impl ConfigSpace {
    /// Bytes of it.
    pub const SIZE: usize = 4096;

    /// A function after power-on. Asserts the ranges of [`Options`].
    pub fn new(options: &Options) -> ConfigSpace {
        assert!(options.vectors <= 2048, "{} MSI-X vectors", options.vectors);
        assert!((1..=5).contains(&options.link_speed), "link speed {}", options.link_speed);
        assert!((1..=32).contains(&options.link_width), "{} lanes", options.link_width);
        let round = |bytes: u64| if bytes == 0 { 0 } else { bytes.max(PAGE).next_power_of_two() };
        let pba = u64::from(MSIX_TABLE) + table_bytes(options.vectors);
        let end = if options.vectors > 0 { pba + PAGE } else { pba };
        let bars = [round(end.max(BAR0_MIN)), round(options.bar2_bytes), round(options.bar4_bytes)];
        let zeroes = || vec![0; ConfigSpace::SIZE];
        let mut space = ConfigSpace {
            bytes: zeroes(),
            initial: Vec::new(),
            writable: zeroes(),
            clearable: zeroes(),
            bars,
            vectors: options.vectors,
        };
        space.header(options);
        space.capabilities(options);
        space.initial = space.bytes.clone();
        space
    }

    fn header(&mut self, options: &Options) {
        self.fixed16(0x00, VENDOR_ID);
        self.fixed16(0x02, DEVICE_ID);
        // Parity error response and SERR# are writable in every function (PCIe 7.5.1.1.3).
        let command = command::MEMORY | command::BUS_MASTER | 1 << 6 | 1 << 8;
        self.set16(offset::COMMAND, 0, command | if options.intx { command::INTERRUPT_DISABLE } else { 0 });
        // There is a list of capabilities; the error bits are cleared by writing 1.
        self.fixed16(offset::STATUS, 1 << 4);
        self.clearable[usize::from(offset::STATUS) + 1] = 0xF9;
        self.fixed32(0x08, CLASS_NVME << 8);
        // Cache line size does nothing in PCIe, but can be written.
        self.set16(0x0C, 0, 0x00FF);
        self.bytes[0x0E] = if options.multi_function { 0x80 } else { 0 };
        for (i, bytes) in self.bars.into_iter().enumerate() {
            if bytes != 0 {
                // 64 bits; BAR0 has side effects on reads, the others have none.
                let flags = if i == 0 { 0b0100 } else { 0b1100 };
                let at = offset::BAR0 + 8 * i as u16;
                let mask = !(bytes - 1);
                self.set32(at, flags, mask as u32);
                self.set32(at + 4, 0, (mask >> 32) as u32);
            }
        }
        self.fixed16(0x2C, VENDOR_ID);
        self.fixed16(0x2E, DEVICE_ID);
        self.bytes[usize::from(offset::CAPABILITIES)] = offset::POWER as u8;
        self.set16(offset::INTERRUPT_LINE, if options.intx { 0x0100 } else { 0 }, 0x00FF);
    }

    fn capabilities(&mut self, options: &Options) {
        let after_power = if options.msi { offset::MSI } else { offset::EXPRESS };
        // Version 3; neither D1 nor D2, and no PME (PM 3.2.3). D3hot to D0 keeps the state of the function
        // (No_Soft_Reset).
        self.capability(offset::POWER, 0x01, after_power);
        self.fixed16(offset::POWER + 2, 0x0003);
        self.set16(POWER_CONTROL, 1 << 3, 0b11);
        if options.msi {
            // 64-bit address, one message, no mask bits (PCI 6.8.1).
            self.capability(offset::MSI, 0x05, offset::EXPRESS);
            self.set16(offset::MSI + 2, 1 << 7, 0x0071);
            self.set32(offset::MSI + 4, 0, !3);
            self.set32(offset::MSI + 8, 0, !0);
            self.set16(offset::MSI + 12, 0, !0);
        }
        self.express(options);
        if let Some(last) = self.vectors.checked_sub(1) {
            self.capability(offset::MSIX, 0x11, 0);
            self.set16(MSIX_CONTROL, last, 0xC000);
            // Both are in BAR0 (BIR 0).
            self.fixed32(offset::MSIX + 4, MSIX_TABLE);
            self.fixed32(offset::MSIX + 8, self.msix_pba() as u32);
        }
        self.fixed32(offset::SERIAL, 0x0001_0003);
        self.fixed32(offset::SERIAL + 4, options.serial as u32);
        self.fixed32(offset::SERIAL + 8, (options.serial >> 32) as u32);
    }

    /// The PCI Express capability of an endpoint, version 2 (PCIe 7.5.3).
    fn express(&mut self, options: &Options) {
        let at = offset::EXPRESS;
        self.capability(at, 0x10, if self.vectors > 0 { offset::MSIX } else { 0 });
        self.fixed16(at + 2, 0x0002);
        // Payloads up to 256 bytes, role-based error reporting, function level reset.
        self.fixed32(at + 0x04, 1 | 1 << 15 | 1 << 28);
        // Relaxed ordering, no snoop, read requests of 512 bytes: as after reset. Extended tags, phantom functions and
        // auxiliary power are not there.
        self.set16(DEVICE_CONTROL, 1 << 4 | 1 << 11 | 2 << 12, 0x78FF | INITIATE_FLR);
        self.clearable[usize::from(at) + 0x0A] = 0x0F;
        let link = u32::from(options.link_speed) | u32::from(options.link_width) << 4;
        // ASPM is not supported, and may be said so (ASPM Optionality Compliance).
        self.fixed32(at + 0x0C, link | 1 << 22);
        self.set16(at + 0x10, 0, 0x00CB);
        // The link uses the slot's reference clock.
        self.fixed16(at + 0x12, link as u16 | 1 << 12);
        // Completion timeouts can be disabled.
        self.fixed32(at + 0x24, 1 << 4);
        self.set16(at + 0x28, 0, 1 << 4);
        // All speeds up to its own.
        self.fixed32(at + 0x2C, ((1 << options.link_speed) - 1) << 1);
        self.set16(at + 0x30, u16::from(options.link_speed), 0x000F);
    }

    fn capability(&mut self, at: u16, id: u8, next: u16) {
        self.fixed16(at, u16::from(id) | next << 8);
    }

    fn put(bytes: &mut [u8], at: u16, value: &[u8]) {
        bytes[usize::from(at)..usize::from(at) + value.len()].copy_from_slice(value);
    }

    fn fixed16(&mut self, at: u16, value: u16) {
        ConfigSpace::put(&mut self.bytes, at, &value.to_le_bytes());
    }

    fn fixed32(&mut self, at: u16, value: u32) {
        ConfigSpace::put(&mut self.bytes, at, &value.to_le_bytes());
    }

    fn set16(&mut self, at: u16, value: u16, writable: u16) {
        self.fixed16(at, value);
        ConfigSpace::put(&mut self.writable, at, &writable.to_le_bytes());
    }

    fn set32(&mut self, at: u16, value: u32, writable: u32) {
        self.fixed32(at, value);
        ConfigSpace::put(&mut self.writable, at, &writable.to_le_bytes());
    }

    fn get16(&self, at: u16) -> u16 {
        u16::from_le_bytes([self.bytes[usize::from(at)], self.bytes[usize::from(at) + 1]])
    }

    /// Reads from any byte on. What lies behind configuration space reads as ones.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let found = usize::try_from(offset).ok().and_then(|offset| self.bytes.get(offset..)).unwrap_or_default();
        let len = found.len().min(out.len());
        out[..len].copy_from_slice(&found[..len]);
        out[len..].fill(0xFF);
    }

    /// Writes from any byte on, as far as bits can be written. What lies behind configuration space is dropped.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Change {
        let Some(start) = usize::try_from(offset).ok().filter(|&start| start < ConfigSpace::SIZE) else {
            return Change::default();
        };
        let power = self.power_state();
        let before: Vec<u8> = self.bytes[..0x100].to_vec();
        for (at, &value) in (start..ConfigSpace::SIZE).zip(data) {
            let kept = self.bytes[at] & !self.writable[at] & !(self.clearable[at] & value);
            self.bytes[at] = kept | value & self.writable[at];
        }
        // D1 and D2 are not supported: such a write leaves the state as it was (PM 3.2.4).
        if matches!(self.power_state(), 1 | 2) {
            let at = usize::from(POWER_CONTROL);
            self.bytes[at] = self.bytes[at] & !3 | power;
        }
        let function_reset = self.get16(DEVICE_CONTROL) & INITIATE_FLR != 0;
        // It always reads as 0.
        self.bytes[usize::from(DEVICE_CONTROL) + 1] &= !((INITIATE_FLR >> 8) as u8);
        let changed = |at: u16, len: u16| {
            let range = usize::from(at)..usize::from(at + len);
            self.bytes[range.clone()] != before[range]
        };
        Change {
            function_reset,
            command: changed(offset::COMMAND, 2),
            bars: changed(offset::BAR0, 24),
            msix: changed(MSIX_CONTROL, 2),
            msi: changed(offset::MSI, 14),
            power: changed(POWER_CONTROL, 1),
        }
    }

    /// As after power-on.
    pub fn reset(&mut self) {
        self.bytes.copy_from_slice(&self.initial);
    }

    /// Bytes of a BAR: 0, 2 or 4. 0 for one that is not there.
    pub fn bar_bytes(&self, bar: usize) -> u64 {
        if bar.is_multiple_of(2) { self.bars.get(bar / 2).copied().unwrap_or(0) } else { 0 }
    }

    /// Where the host has put a BAR: 0, 2 or 4. `None` for one that is not there, or while memory space is disabled.
    pub fn bar_address(&self, bar: usize) -> Option<u64> {
        if self.bar_bytes(bar) == 0 || self.get16(offset::COMMAND) & command::MEMORY == 0 {
            return None;
        }
        let at = usize::from(offset::BAR0) + 4 * bar;
        let address = self.bytes[at..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        Some(address & !0xF)
    }

    /// The command register ([`command`]).
    pub fn command(&self) -> u16 {
        self.get16(offset::COMMAND)
    }

    /// The power state: 0 (D0) or 3 (D3hot), in which the function answers to configuration space alone.
    pub fn power_state(&self) -> u8 {
        self.bytes[usize::from(POWER_CONTROL)] & 3
    }

    /// MSI-X is enabled.
    pub fn msix_enabled(&self) -> bool {
        self.get16(MSIX_CONTROL) & 1 << 15 != 0
    }

    /// All MSI-X vectors are masked.
    pub fn msix_masked(&self) -> bool {
        self.get16(MSIX_CONTROL) & 1 << 14 != 0
    }

    /// MSI is enabled.
    pub fn msi_enabled(&self) -> bool {
        self.bytes[usize::from(offset::MSI)] == 0x05 && self.get16(offset::MSI + 2) & 1 != 0
    }

    /// MSI-X vectors.
    pub fn vectors(&self) -> u16 {
        self.vectors
    }

    /// The byte of BAR0 at which the MSI-X table lies: 16 bytes for each vector, on pages of its own. Without vectors:
    /// the end of registers and doorbells, as for [`ConfigSpace::msix_pba`].
    pub fn msix_table(&self) -> u64 {
        u64::from(MSIX_TABLE)
    }

    /// The byte of BAR0 at which the pending bits lie, on a page of their own.
    pub fn msix_pba(&self) -> u64 {
        u64::from(MSIX_TABLE) + table_bytes(self.vectors)
    }
}

/// Bytes that the MSI-X table keeps for itself: whole pages, since a virtual machine maps what is beside it.
fn table_bytes(vectors: u16) -> u64 {
    (u64::from(vectors) * 16).next_multiple_of(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn space() -> ConfigSpace {
        ConfigSpace::new(&Options { bar2_bytes: 48 << 20, msi: true, ..Options::default() })
    }

    fn dword(space: &ConfigSpace, at: u64) -> u32 {
        let mut bytes = [0; 4];
        space.read(at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn a_driver_finds_an_nvme_controller() {
        let space = space();
        assert_eq!(dword(&space, 0), 0x5457_1234);
        assert_eq!(dword(&space, 8), 0x0108_0200);
        let mut found = Vec::new();
        let mut at = dword(&space, u64::from(offset::CAPABILITIES)) as u8;
        while at != 0 {
            let header = dword(&space, u64::from(at));
            found.push(header as u8);
            at = (header >> 8) as u8;
        }
        assert_eq!(found, [0x01, 0x05, 0x10, 0x11]);
        assert_eq!(dword(&space, 0x100), 0x0001_0003);
        assert_eq!(dword(&space, u64::from(offset::MSIX) + 4), 0x2000);
        assert_eq!((space.msix_table(), space.msix_pba(), space.bar_bytes(0)), (0x2000, 0x3000, 0x4000));
        let plain = ConfigSpace::new(&Options { vectors: 2048, ..Options::default() });
        assert_eq!((plain.msix_pba(), plain.bar_bytes(0)), (0xA000, 0x10000));
        assert_eq!(dword(&plain, u64::from(offset::POWER)) >> 8 & 0xFF, u32::from(offset::EXPRESS));
        assert!(!plain.msi_enabled());
        let mut simple = ConfigSpace::new(&Options { vectors: 0, msi: true, ..Options::default() });
        assert_eq!(dword(&simple, u64::from(offset::EXPRESS)) >> 8 & 0xFF, 0, "MSI-X is not there");
        assert_eq!((simple.bar_bytes(0), simple.msix_pba()), (0x4000, 0x2000));
        assert_eq!(simple.write(u64::from(offset::MSIX), &[0xFF; 12]), Change::default());
        assert!(!simple.msix_enabled());
    }

    #[test]
    fn bars_are_sized_and_placed() {
        let mut space = space();
        for (bar, bytes, flags) in [(0u64, 0x4000u64, 0x4u64), (2, 64 << 20, 0xC), (4, 0, 0)] {
            let at = u64::from(offset::BAR0) + 4 * bar;
            let _ = space.write(at, &[0xFF; 8]);
            let found = u64::from(dword(&space, at)) | u64::from(dword(&space, at + 4)) << 32;
            assert_eq!(found, if bytes == 0 { 0 } else { !(bytes - 1) | flags }, "BAR{bar}");
            assert_eq!(space.bar_bytes(bar as usize), bytes);
        }
        let changed = space.write(0x18, &0x12_3400_000Cu64.to_le_bytes());
        assert!(changed.bars && !changed.command);
        assert_eq!(space.bar_address(2), None);
        assert!(space.write(4, &[6, 0]).command);
        assert_eq!((space.bar_address(2), space.bar_address(4)), (Some(0x12_3400_0000), None));
        assert_eq!(space.command(), command::MEMORY | command::BUS_MASTER);
        space.reset();
        assert_eq!((space.command(), dword(&space, 0x18)), (0, 0xC));
    }

    #[test]
    fn states_and_resets() {
        let mut space = space();
        let control = u64::from(POWER_CONTROL);
        assert!(!space.write(control, &[1]).power, "there is no D1");
        assert!(space.write(control, &[3]).power);
        assert!(!space.write(control, &[2]).power, "there is no D2");
        assert_eq!(space.power_state(), 3);
        assert!(space.write(control, &[0]).power);

        let change = space.write(u64::from(DEVICE_CONTROL), &[0x10, 0xA8]);
        assert_eq!(change, Change { function_reset: true, ..Change::default() });
        assert_eq!(dword(&space, u64::from(DEVICE_CONTROL)) as u16, 0x2810);

        assert!(space.write(u64::from(MSIX_CONTROL), &[0xFF, 0xC0]).msix);
        assert!(space.msix_enabled() && space.msix_masked());
        assert_eq!(dword(&space, u64::from(offset::MSIX)) >> 16, 0xC000 | 64);
        assert!(space.write(u64::from(offset::MSI) + 2, &[1]).msi && space.msi_enabled());
    }

    #[test]
    fn identity_only_reads() {
        let mut space = space();
        let before = space.bytes.clone();
        let _ = space.write(0, &[0xFF; 4]);
        let _ = space.write(8, &[0xFF; 4]);
        let _ = space.write(0x2C, &[0xFF; 8]);
        let _ = space.write(0x100, &[0xFF; 3840]);
        assert_eq!(space.bytes, before);
    }

    proptest! {
        #[test]
        fn any_access_at_any_place(
            accesses in prop::collection::vec(
                (prop_oneof![0u64..300, 4090u64..4100, any::<u64>()], prop::collection::vec(any::<u8>(), 0..80)),
                1..20,
            ),
        ) {
            let mut space = space();
            let fixed = space.clone();
            for (offset, data) in accesses {
                let _ = space.write(offset, &data);
                let mut out = data.clone();
                space.read(offset, &mut out);
                prop_assert!(space.power_state() == 0 || space.power_state() == 3);
                for bar in 0..7 {
                    prop_assert!(space.bar_address(bar).is_none_or(|at| at % space.bar_bytes(bar) == 0));
                }
            }
            for at in 0..ConfigSpace::SIZE {
                let changeable = fixed.writable[at] | fixed.clearable[at];
                prop_assert_eq!(space.bytes[at] & !changeable, fixed.bytes[at] & !changeable, "byte {:#x}", at);
            }
        }
    }
}
