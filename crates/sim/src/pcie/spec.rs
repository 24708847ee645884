//! A host and its link, what cores do, and the TLPs that reach the device.

use tidewater_base::{Duration, Instant};
use tidewater_core::profile::LinkProfile;

/// Bytes of a write-combining buffer, and of a cache line.
pub const LINE: u64 = 64;

/// Costs of a core of the host. The default is a core of the paper's server, a Xeon Silver 4110 (Skylake-SP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSpec {
    /// Bytes of one store or load instruction, a power of two from 1 to 64. Default 8: a general register. An uncached
    /// store of this width is one TLP.
    pub width: u32,
    /// Time to issue one store. Default 476 ps: one store a cycle (Intel 64 and IA-32 Optimization Reference Manual,
    /// Skylake: one store-data port) at the 2.1 GHz of that processor.
    pub store_time: Duration,
    /// Write-combining buffers, 1 to 64. Default 12: Skylake's line fill buffers, which do the combining (same manual:
    /// 10 up to Broadwell, 12 in Skylake).
    pub wc_buffers: u32,
    /// Time from the core to a place at the head of the root port: what one store or eviction takes on the mesh.
    /// Default 80 ns, an assumption of the order of a miss to another tile; it sets uncached throughput (8 B in 80 ns:
    /// 100 MB/s) and hardly anything else.
    pub accept_time: Duration,
    /// Time of a store fence, besides waiting for the buffers. Default 15 ns, about 33 cycles; an assumption.
    pub fence_time: Duration,
}

impl Default for CpuSpec {
    fn default() -> CpuSpec {
        CpuSpec {
            width: 8,
            store_time: Duration::from_ps(476),
            wc_buffers: 12,
            accept_time: Duration::from_ns(80),
            fence_time: Duration::from_ns(15),
        }
    }
}

/// Posted flow-control credits that the device advertises (PCI Express Base 3.0, 2.6.1): the TLPs that may be on their
/// way to it or in its receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditSpec {
    /// Headers: TLPs. Default 64, an assumption: on a Gen2 x4 link, the 8-byte TLPs (16 ns each) of a round trip of 600
    /// ns are 38, so that a device that takes TLPs at once never stalls it.
    pub headers: u32,
    /// Units of 16 bytes of data; at least 4, a full line. Default 128 (2 KiB), an assumption: above the
    /// bandwidth-delay product of a Gen2 x4 link (2 GB/s x 600 ns = 1.2 KB), so that a device that takes TLPs at once
    /// never stalls it.
    pub data: u32,
}

impl Default for CreditSpec {
    fn default() -> CreditSpec {
        CreditSpec { headers: 64, data: 128 }
    }
}

/// In which order full or evicted write-combining buffers leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// Any that is ready, by the seeded generator: write-combining memory is weakly ordered (Intel SDM, volume 3,
    /// 11.3.1). None is passed over more often than there are buffers.
    #[default]
    Any,
    /// The one that was closed first.
    Oldest,
}

/// A host and its link.
#[derive(Clone, Debug, PartialEq)]
pub struct PcieSpec {
    /// Cores that reach the device, at least 1.
    pub cores: u32,
    /// Costs of each core.
    pub cpu: CpuSpec,
    /// The link. Its `payload_max` is never less than a line.
    pub link: LinkProfile,
    /// Credits that the device advertises.
    pub credits: CreditSpec,
    /// The order of eviction.
    pub drain: Drain,
    /// Seed of that order.
    pub seed: u64,
}

/// How a range of the device is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Uncached (UC).
    Uncached,
    /// Write-combining (WC).
    WriteCombining,
}

/// An operation of a core. Offsets are bytes of the device's BAR; their meaning is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Stores `length` bytes in ascending order. Done when the last is issued, not when it arrives.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// How the range is mapped.
        mapping: Mapping,
    },
    /// Loads `length` bytes of uncached memory, one load after the other. Done when the last has returned.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Closes all open buffers without waiting for them, as an interrupt or a locked instruction does.
    Evict,
    /// Store fence: done when nothing of this core is left that is not on the wire.
    Fence,
    /// Computes.
    Compute(Duration),
}

/// Kind of a TLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlpKind {
    /// Memory write, posted.
    Write,
    /// Memory read: answer with `RootComplex::complete_read`.
    Read,
}

/// A TLP that reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlp {
    /// When its last byte is there.
    pub at: Instant,
    /// The core it comes from.
    pub core: u32,
    /// The request type.
    pub kind: TlpKind,
    /// First byte.
    pub offset: u64,
    /// Bytes, 1 to 64; all of them are enabled.
    pub length: u32,
}
