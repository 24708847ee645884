//! Hosts: the PCI functions and the NVMe/TCP target, and the ways of bytes between their memory and the device.

pub(crate) mod dma;
pub(crate) mod dma_messages;
pub(crate) mod doorbell_page;
pub(crate) mod function;
pub(crate) mod host_memory;
pub(crate) mod pmr;
pub(crate) mod shadow_doorbells;
