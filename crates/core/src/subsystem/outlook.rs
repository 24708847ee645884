//! What whoever serves a subsystem asks of it, besides what it says by itself.

use super::Subsystem;
use tidewater_nand::Medium;

impl<M: Medium> Subsystem<M> {
    /// Commands that are worked on, over all controllers.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.controllers.iter().map(|controller| controller.outstanding).sum()
    }

    /// PCI functions; fabrics controllers are numbered behind them.
    pub fn functions(&self) -> u8 {
        self.options.functions
    }

    /// Interrupt vectors of a PCI function.
    pub fn vectors(&self) -> u16 {
        self.options.vectors
    }

    /// Bytes of a block of a namespace, by its identifier; of one that is not there, of the device.
    pub fn block_size(&self, nsid: u32) -> u64 {
        let shift = self.namespaces().at(nsid).map_or(self.block_shift, |namespace| namespace.block_shift.into());
        1 << shift
    }

    /// The controller identifier that Identify tells of a controller (CNTLID).
    pub fn controller_id(&self, function: u8) -> u16 {
        u16::from(function)
    }
}
