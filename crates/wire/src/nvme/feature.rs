//! Features (section 5.21.1): identifiers, and values from and to double word 11 and the data.

use super::{SetFeatures, Status};
use crate::layout::layout;

/// Arbitration.
pub const ARBITRATION: u8 = 0x01;
/// Power Management.
pub const POWER_MANAGEMENT: u8 = 0x02;
/// Temperature Threshold.
pub const TEMPERATURE_THRESHOLD: u8 = 0x04;
/// Error Recovery.
pub const ERROR_RECOVERY: u8 = 0x05;
/// Volatile Write Cache.
pub const VOLATILE_WRITE_CACHE: u8 = 0x06;
/// Number of Queues.
pub const NUMBER_OF_QUEUES: u8 = 0x07;
/// Interrupt Coalescing.
pub const INTERRUPT_COALESCING: u8 = 0x08;
/// Interrupt Vector Configuration.
pub const INTERRUPT_VECTOR: u8 = 0x09;
/// Write Atomicity Normal.
pub const WRITE_ATOMICITY: u8 = 0x0A;
/// Asynchronous Event Configuration.
pub const ASYNC_EVENTS: u8 = 0x0B;
/// Host Memory Buffer.
pub const HOST_MEMORY_BUFFER: u8 = 0x0D;
/// Timestamp.
pub const TIMESTAMP: u8 = 0x0E;
/// Keep Alive Timer.
pub const KEEP_ALIVE: u8 = 0x0F;
/// Host Behavior Support.
pub const HOST_BEHAVIOR: u8 = 0x16;
/// Sanitize Config.
pub const SANITIZE_CONFIG: u8 = 0x17;
/// Software Progress Marker.
pub const SOFTWARE_PROGRESS: u8 = 0x80;
/// Host Identifier.
pub const HOST_IDENTIFIER: u8 = 0x81;
/// Namespace Write Protection Config.
pub const WRITE_PROTECTION: u8 = 0x84;

/// Every identifier above with its name in the specification, in ascending order.
pub const NAMED: &[(u8, &str)] = &[
    (ARBITRATION, "Arbitration"),
    (POWER_MANAGEMENT, "Power Management"),
    (TEMPERATURE_THRESHOLD, "Temperature Threshold"),
    (ERROR_RECOVERY, "Error Recovery"),
    (VOLATILE_WRITE_CACHE, "Volatile Write Cache"),
    (NUMBER_OF_QUEUES, "Number of Queues"),
    (INTERRUPT_COALESCING, "Interrupt Coalescing"),
    (INTERRUPT_VECTOR, "Interrupt Vector Configuration"),
    (WRITE_ATOMICITY, "Write Atomicity Normal"),
    (ASYNC_EVENTS, "Asynchronous Event Configuration"),
    (HOST_MEMORY_BUFFER, "Host Memory Buffer"),
    (TIMESTAMP, "Timestamp"),
    (KEEP_ALIVE, "Keep Alive Timer"),
    (HOST_BEHAVIOR, "Host Behavior Support"),
    (SANITIZE_CONFIG, "Sanitize Config"),
    (SOFTWARE_PROGRESS, "Software Progress Marker"),
    (HOST_IDENTIFIER, "Host Identifier"),
    (WRITE_PROTECTION, "Namespace Write Protection Config"),
];

/// Whether a feature's value is one for all controllers: to set it changes what other hosts see.
pub const fn is_shared(fid: u8) -> bool {
    matches!(fid, SANITIZE_CONFIG | SOFTWARE_PROGRESS | WRITE_PROTECTION)
}

/// Bytes that Get or Set Features moves for a feature; `cdw11` is that of the command. 0: none.
pub const fn data_bytes(fid: u8, cdw11: u32) -> u32 {
    match fid {
        TIMESTAMP => 8,
        HOST_IDENTIFIER if cdw11 & 1 != 0 => 16,
        HOST_IDENTIFIER => 8,
        HOST_MEMORY_BUFFER => HmbAttributes::SIZE as u32,
        HOST_BEHAVIOR => HostBehavior::SIZE as u32,
        _ => 0,
    }
}

/// Capabilities of a feature: double word 0 of Get Features with SEL 011b.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Capabilities {
    /// It can be saved.
    pub saveable: bool,
    /// It is of each namespace, not of the controller.
    pub of_namespace: bool,
    /// It can be changed.
    pub changeable: bool,
}

impl Capabilities {
    /// The double word.
    pub const fn dword(self) -> u32 {
        self.saveable as u32 | (self.of_namespace as u32) << 1 | (self.changeable as u32) << 2
    }

    /// Parses a double word.
    pub const fn from_dword(dword: u32) -> Capabilities {
        Capabilities { saveable: dword & 1 != 0, of_namespace: dword & 2 != 0, changeable: dword & 4 != 0 }
    }
}

/// Which bound of a temperature is meant (THSEL).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bound {
    /// 00b: an event when it is reached from below.
    Over,
    /// 01b: from above.
    Under,
}

/// Write protection of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Protection {
    /// 000b: none.
    #[default]
    None = 0,
    /// 001b: until the host changes it.
    Protected = 1,
    /// 010b: until the next power cycle.
    UntilPowerCycle = 2,
    /// 011b: for ever.
    Permanent = 3,
}

impl Protection {
    /// The state with this code.
    pub const fn from_code(code: u32) -> Option<Protection> {
        match code {
            0 => Some(Protection::None),
            1 => Some(Protection::Protected),
            2 => Some(Protection::UntilPowerCycle),
            3 => Some(Protection::Permanent),
            _ => None,
        }
    }
}

/// Host memory buffer, as Set Features configures it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HostMemoryBuffer {
    /// Enable Host Memory (EHM).
    pub enable: bool,
    /// Memory Return (MR): the same memory as before, with what the device had left in it.
    pub returned: bool,
    /// Host Memory Buffer Size (HSIZE), in memory pages (CC.MPS).
    pub size: u32,
    /// Where the descriptor list is (HMDLAL and HMDLAU): a multiple of 16.
    pub list: u64,
    /// Host Memory Descriptor List Entry Count (HMDLEC).
    pub entries: u32,
}

layout! {
    /// An entry of the host memory descriptor list.
    pub struct HmbDescriptor [16] {
        /// Buffer Address (BADD): a multiple of the memory page size.
        0 address: u64,
        /// Buffer Size (BSIZE), in memory pages.
        8 size: u32,
    }
}

layout! {
    /// Host memory buffer attributes, as Get Features returns them.
    pub struct HmbAttributes [4096] {
        /// Host Memory Buffer Size, in memory pages.
        0 size: u32,
        /// Host Memory Descriptor List Address, lower half.
        4 list_low: u32,
        /// Host Memory Descriptor List Address, upper half.
        8 list_high: u32,
        /// Host Memory Descriptor List Entry Count.
        12 entries: u32,
    }
}

layout! {
    /// The data of Host Behavior Support. What else revision 2.0 has in it concerns what no controller here offers.
    pub struct HostBehavior [512] {
        /// Advanced Command Retry Enable (ACRE): 1 when the host waits as Command Retry Delay says.
        0 retry: u8,
    }
}

/// The data of Timestamp: milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Timestamp {
    /// Milliseconds, 48 bits.
    pub ms: u64,
    /// The host has set it; else it counts from the last reset.
    pub set_by_host: bool,
    /// It did not count all the time.
    pub stopped: bool,
}

impl Timestamp {
    /// The data of Get Features.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = (self.ms & 0xFFFF_FFFF_FFFF).to_le_bytes();
        bytes[6] = u8::from(self.stopped) | u8::from(self.set_by_host) << 1;
        bytes
    }

    /// Parses the data; of Set Features only the milliseconds count.
    pub fn from_bytes(bytes: [u8; 8]) -> Timestamp {
        let [.., flags, _] = bytes;
        let ms = u64::from_le_bytes(bytes) & 0xFFFF_FFFF_FFFF;
        Timestamp { ms, set_by_host: flags >> 1 & 7 == 1, stopped: flags & 1 != 0 }
    }
}

/// A value of a feature, as double word 11 (and 12 to 15) of Set Features tells it, and as double word 0 of a
/// completion of Get Features does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Feature {
    /// Weights and burst.
    Arbitration {
        /// Arbitration Burst (AB), as a power of two; 7 is no limit.
        burst: u8,
        /// High, medium and low priority weights, each counts from 0.
        weights: [u8; 3],
    },
    /// Power state.
    PowerManagement {
        /// Power State (PS), 0 to 31: any.
        state: u8,
        /// Workload Hint (WH), 3 bits.
        workload: u8,
    },
    /// Threshold of a temperature.
    TemperatureThreshold {
        /// Kelvins.
        kelvins: u16,
        /// 0 composite, 1 to 8 sensors, 15 all of them (Set Features only): any.
        sensor: u8,
        /// Which bound.
        bound: Bound,
    },
    /// Error recovery.
    ErrorRecovery {
        /// Time Limited Error Recovery (TLER), in 100 ms; 0 is no limit.
        limit: u16,
        /// Deallocated or Unwritten Logical Block Error Enable (DULBE).
        dulbe: bool,
    },
    /// Volatile write cache.
    VolatileWriteCache {
        /// Write Cache Enable (WCE).
        enabled: bool,
    },
    /// Number of I/O queues, counting from 0: asked for, or allocated.
    NumberOfQueues {
        /// Submission queues, at most 65,534.
        submission: u16,
        /// Completion queues, at most 65,534.
        completion: u16,
    },
    /// Interrupt coalescing.
    InterruptCoalescing {
        /// Aggregation Threshold (THR), entries, counts from 0.
        threshold: u8,
        /// Aggregation Time (TIME), in 100 us; 0 is no delay.
        time: u8,
    },
    /// Interrupt vector configuration.
    InterruptVector {
        /// Interrupt Vector (IV): any.
        vector: u16,
        /// Coalescing Disable (CD).
        no_coalescing: bool,
    },
    /// Write atomicity.
    WriteAtomicity {
        /// Disable Normal (DN): the host needs AWUPF only.
        disable_normal: bool,
    },
    /// Which asynchronous events are reported.
    AsyncEvents {
        /// Critical warnings, as in SMART (bits 7:0 of the double word).
        critical_warnings: u8,
        /// Namespace Attribute Notices (bit 8).
        namespaces: bool,
        /// Firmware Activation Notices (bit 9).
        firmware: bool,
    },
    /// Host memory buffer.
    HostMemoryBuffer(HostMemoryBuffer),
    /// Timestamp; the value is the data.
    Timestamp,
    /// Keep alive timer.
    KeepAlive {
        /// Keep Alive Timeout (KATO), in milliseconds; 0 is none.
        timeout_ms: u32,
    },
    /// Host behavior support; the value is the data.
    HostBehavior,
    /// Sanitize config.
    SanitizeConfig {
        /// No-Deallocate Response Mode (NODRM): Sanitize with NDAS runs all the same, and deallocates; else it is
        /// refused.
        warn: bool,
    },
    /// Software progress marker.
    SoftwareProgress {
        /// Pre-boot Software Load Count (PBSLC).
        count: u8,
    },
    /// Host identifier; the value is the data.
    HostIdentifier {
        /// It has 128 bits (EXHID), else 64.
        extended: bool,
    },
    /// Write protection of the namespace that NSID names.
    WriteProtection(Protection),
}

impl Feature {
    /// Reads what Set Features wants to set.
    ///
    /// # Errors
    /// Invalid Field in Command for features that are not there and values that are reserved.
    pub fn parse(set: &SetFeatures) -> Result<Feature, Status> {
        let [dword, dword12, dword13, dword14, dword15] = set.dwords;
        Ok(match set.fid {
            HOST_MEMORY_BUFFER => Feature::HostMemoryBuffer(HostMemoryBuffer {
                enable: dword & 1 != 0,
                returned: dword & 2 != 0,
                size: dword12,
                list: u64::from(dword13 & !0xF) | u64::from(dword14) << 32,
                entries: dword15,
            }),
            NUMBER_OF_QUEUES if dword as u16 == u16::MAX || dword >> 16 == 0xFFFF => return Err(Status::INVALID_FIELD),
            fid => Feature::from_dword(fid, dword).ok_or(Status::INVALID_FIELD)?,
        })
    }

    /// Parses a feature's double word: 11 of Set Features, or 0 of a completion. Of the host memory buffer only whether
    /// it is enabled. `None` for features that are not there and values that are reserved.
    pub fn from_dword(fid: u8, dword: u32) -> Option<Feature> {
        let bytes = dword.to_le_bytes();
        Some(match fid {
            ARBITRATION => Feature::Arbitration { burst: bytes[0] & 7, weights: [bytes[3], bytes[2], bytes[1]] },
            POWER_MANAGEMENT => Feature::PowerManagement { state: bytes[0] & 0x1F, workload: bytes[0] >> 5 },
            TEMPERATURE_THRESHOLD => Feature::TemperatureThreshold {
                kelvins: dword as u16,
                sensor: bytes[2] & 0xF,
                bound: match dword >> 20 & 3 {
                    0 => Bound::Over,
                    1 => Bound::Under,
                    _ => return None,
                },
            },
            ERROR_RECOVERY => Feature::ErrorRecovery { limit: dword as u16, dulbe: dword >> 16 & 1 != 0 },
            VOLATILE_WRITE_CACHE => Feature::VolatileWriteCache { enabled: dword & 1 != 0 },
            NUMBER_OF_QUEUES => Feature::NumberOfQueues { submission: dword as u16, completion: (dword >> 16) as u16 },
            INTERRUPT_COALESCING => Feature::InterruptCoalescing { threshold: bytes[0], time: bytes[1] },
            INTERRUPT_VECTOR => Feature::InterruptVector { vector: dword as u16, no_coalescing: dword >> 16 & 1 != 0 },
            WRITE_ATOMICITY => Feature::WriteAtomicity { disable_normal: dword & 1 != 0 },
            ASYNC_EVENTS => Feature::AsyncEvents {
                critical_warnings: bytes[0],
                namespaces: dword >> 8 & 1 != 0,
                firmware: dword >> 9 & 1 != 0,
            },
            HOST_MEMORY_BUFFER => {
                Feature::HostMemoryBuffer(HostMemoryBuffer { enable: dword & 1 != 0, ..Default::default() })
            }
            TIMESTAMP => Feature::Timestamp,
            KEEP_ALIVE => Feature::KeepAlive { timeout_ms: dword },
            HOST_BEHAVIOR => Feature::HostBehavior,
            SANITIZE_CONFIG => Feature::SanitizeConfig { warn: dword & 1 != 0 },
            SOFTWARE_PROGRESS => Feature::SoftwareProgress { count: bytes[0] },
            HOST_IDENTIFIER => Feature::HostIdentifier { extended: dword & 1 != 0 },
            WRITE_PROTECTION => Feature::WriteProtection(Protection::from_code(dword & 7)?),
            _ => return None,
        })
    }

    /// Its identifier.
    pub const fn fid(&self) -> u8 {
        match self {
            Feature::Arbitration { .. } => ARBITRATION,
            Feature::PowerManagement { .. } => POWER_MANAGEMENT,
            Feature::TemperatureThreshold { .. } => TEMPERATURE_THRESHOLD,
            Feature::ErrorRecovery { .. } => ERROR_RECOVERY,
            Feature::VolatileWriteCache { .. } => VOLATILE_WRITE_CACHE,
            Feature::NumberOfQueues { .. } => NUMBER_OF_QUEUES,
            Feature::InterruptCoalescing { .. } => INTERRUPT_COALESCING,
            Feature::InterruptVector { .. } => INTERRUPT_VECTOR,
            Feature::WriteAtomicity { .. } => WRITE_ATOMICITY,
            Feature::AsyncEvents { .. } => ASYNC_EVENTS,
            Feature::HostMemoryBuffer(_) => HOST_MEMORY_BUFFER,
            Feature::Timestamp => TIMESTAMP,
            Feature::KeepAlive { .. } => KEEP_ALIVE,
            Feature::HostBehavior => HOST_BEHAVIOR,
            Feature::SanitizeConfig { .. } => SANITIZE_CONFIG,
            Feature::SoftwareProgress { .. } => SOFTWARE_PROGRESS,
            Feature::HostIdentifier { .. } => HOST_IDENTIFIER,
            Feature::WriteProtection(_) => WRITE_PROTECTION,
        }
    }

    /// The double word: 11 of Set Features, or 0 of a completion of Get Features.
    pub const fn dword(&self) -> u32 {
        match *self {
            Feature::Arbitration { burst, weights: [high, medium, low] } => {
                u32::from_le_bytes([burst & 7, low, medium, high])
            }
            Feature::PowerManagement { state, workload } => (state & 0x1F) as u32 | ((workload & 7) as u32) << 5,
            Feature::TemperatureThreshold { kelvins, sensor, bound } => {
                kelvins as u32 | ((sensor & 0xF) as u32) << 16 | (matches!(bound, Bound::Under) as u32) << 20
            }
            Feature::ErrorRecovery { limit, dulbe } => limit as u32 | (dulbe as u32) << 16,
            Feature::VolatileWriteCache { enabled } => enabled as u32,
            Feature::NumberOfQueues { submission, completion } => submission as u32 | (completion as u32) << 16,
            Feature::InterruptCoalescing { threshold, time } => threshold as u32 | (time as u32) << 8,
            Feature::InterruptVector { vector, no_coalescing } => vector as u32 | (no_coalescing as u32) << 16,
            Feature::WriteAtomicity { disable_normal } => disable_normal as u32,
            Feature::AsyncEvents { critical_warnings, namespaces, firmware } => {
                critical_warnings as u32 | (namespaces as u32) << 8 | (firmware as u32) << 9
            }
            Feature::HostMemoryBuffer(buffer) => buffer.enable as u32 | (buffer.returned as u32) << 1,
            Feature::Timestamp | Feature::HostBehavior => 0,
            Feature::KeepAlive { timeout_ms } => timeout_ms,
            Feature::SanitizeConfig { warn } => warn as u32,
            Feature::SoftwareProgress { count } => count as u32,
            Feature::HostIdentifier { extended } => extended as u32,
            Feature::WriteProtection(protection) => protection as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_stand_where_the_specification_puts_them() {
        let set = |fid, dword| Feature::parse(&SetFeatures { fid, save: false, nsid: 0, dwords: [dword, 2, 3, 4, 5] });
        assert_eq!(set(ARBITRATION, 0x0403_0207), Ok(Feature::Arbitration { burst: 7, weights: [4, 3, 2] }));
        assert_eq!(set(NUMBER_OF_QUEUES, 0x0001_0003), Ok(Feature::NumberOfQueues { submission: 3, completion: 1 }));
        assert_eq!(set(NUMBER_OF_QUEUES, 0xFFFF), Err(Status::INVALID_FIELD));
        assert_eq!(set(NUMBER_OF_QUEUES, 0xFFFF_0000), Err(Status::INVALID_FIELD));
        let buffer = HostMemoryBuffer { enable: true, returned: true, size: 2, list: 4 << 32, entries: 5 };
        assert_eq!(set(HOST_MEMORY_BUFFER, 3), Ok(Feature::HostMemoryBuffer(buffer)));
        assert_eq!(set(WRITE_PROTECTION, 4), Err(Status::INVALID_FIELD));
        assert_eq!(set(TEMPERATURE_THRESHOLD, 2 << 20), Err(Status::INVALID_FIELD));
        assert_eq!(set(0x03, 0), Err(Status::INVALID_FIELD));
        let stamp = Timestamp { ms: 0x0605_0403_0201, set_by_host: true, stopped: false };
        assert_eq!(stamp.to_bytes(), [1, 2, 3, 4, 5, 6, 2, 0]);
        assert_eq!(Timestamp::from_bytes(stamp.to_bytes()), stamp);
        let can = Capabilities { saveable: true, of_namespace: false, changeable: true };
        assert_eq!((can.dword(), Capabilities::from_dword(5)), (5, can));
    }

    #[test]
    fn every_named_feature_is_known_and_no_other() {
        for fid in 0..=255 {
            let named = NAMED.iter().any(|&(known, _)| known == fid);
            assert_eq!(Feature::from_dword(fid, 0).map(|feature| feature.fid()), named.then_some(fid));
        }
    }

    proptest! {
        #[test]
        fn any_value_comes_back(which in 0..NAMED.len(), fid in any::<u8>(), dwords in any::<[u32; 5]>()) {
            for fid in [NAMED[which].0, fid] {
                match Feature::parse(&SetFeatures { fid, save: false, nsid: 1, dwords }) {
                    Ok(feature) => {
                        prop_assert_eq!(feature.fid(), fid);
                        let dwords = [feature.dword(), dwords[1], dwords[2], dwords[3], dwords[4]];
                        let again = SetFeatures { fid, save: false, nsid: 1, dwords };
                        prop_assert_eq!(Feature::parse(&again), Ok(feature));
                    }
                    Err(status) => prop_assert_eq!(status, Status::INVALID_FIELD),
                }
            }
        }
    }
}
