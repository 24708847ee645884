//! Admin commands that tell, or set, what the subsystem is: Identify, features, namespaces.

use super::admin::{Next, Outcome};
use super::{Slot, Subsystem};
use tidewater_nand::Medium;
use tidewater_wire::nvme::identify::{IdentifyController, IdentifyNamespace, LbaFormat, namespace_list};
use tidewater_wire::nvme::{self, AdminCommand, Cns, DsmRange, NSID_ALL, Status, feature};

/// Where a command's blocks are on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub first_block: u64,
    pub blocks: u32,
    /// The host has left the volatile write cache on.
    pub write_cache: bool,
}

impl<M: Medium> Subsystem<M> {
    /// Where a command's blocks are on the device.
    #[inline]
    pub(super) fn resolve(&self, _function: u8, command: &nvme::Command) -> Result<Extent, Status> {
        let blocks = self.device.capacity() >> self.block_shift;
        if command.nsid != 1 && !(command.kind == nvme::Kind::Flush && command.nsid == NSID_ALL) {
            return Err(Status::INVALID_NAMESPACE);
        }
        if command.first_block > blocks || u64::from(command.blocks) > blocks - command.first_block {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        Ok(Extent { first_block: command.first_block, blocks: command.blocks, write_cache: true })
    }

    /// The ranges of Dataset Management have come.
    pub(super) fn with_ranges(&mut self, slot: Slot, bytes: &[u8]) {
        let blocks = self.device.capacity() >> self.block_shift;
        let ranges: Box<[DsmRange]> =
            bytes.as_chunks::<{ DsmRange::SIZE }>().0.iter().map(DsmRange::from_bytes).collect();
        let good = ranges
            .iter()
            .all(|range| range.first_block <= blocks && u64::from(range.blocks) <= blocks - range.first_block);
        if !good {
            return self.finish(slot, Status::LBA_OUT_OF_RANGE);
        }
        self.slots[slot].ranges = ranges;
        self.submit(slot);
    }

    pub(super) fn do_admin(&mut self, _slot: Slot, command: &AdminCommand, _data: &[u8]) -> Outcome {
        match command {
            AdminCommand::Identify(identify) => self.identify(identify).map(Next::Send),
            AdminCommand::SetFeatures(set) if set.fid == feature::NUMBER_OF_QUEUES => {
                let queues = u32::from(self.options.queues) - 1;
                Ok(Next::Done(queues | queues << 16))
            }
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    fn identify(&self, identify: &nvme::Identify) -> Result<Vec<u8>, Status> {
        let blocks = self.device.capacity() >> self.block_shift;
        let page = match identify.cns {
            Cns::Controller => IdentifyController {
                mdts: (self.transfer_max / 4096).trailing_zeros() as u8,
                controller_type: 1,
                sqes: 0x66,
                cqes: 0x44,
                nn: 1,
                ..IdentifyController::default()
            }
            .to_bytes(),
            Cns::Namespace if identify.nsid == 1 => {
                let mut namespace =
                    IdentifyNamespace { nsze: blocks, ncap: blocks, nuse: blocks, ..IdentifyNamespace::default() };
                namespace.formats[0] = LbaFormat { data_shift: self.block_shift as u8, ..LbaFormat::default() };
                namespace.to_bytes()
            }
            Cns::ActiveNamespaces => namespace_list([1], identify.nsid),
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(page.to_vec())
    }

    pub(super) fn with_host_memory(&mut self, slot: Slot, _bytes: &[u8]) {
        self.finish(slot, Status::INVALID_FIELD);
    }

    pub(super) fn log_page_part(&self, _slot: Slot, data: Vec<u8>) -> Result<Box<[u8]>, Status> {
        Ok(data.into_boxed_slice())
    }

    pub(super) fn on_error(&mut self, _function: u8, _posting: &super::queues::Posting) {}
}
