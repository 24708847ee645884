//! Registers, and the way from reset to I/O queues.

use super::*;
use tidewater_wire::nvme::identify::{IdentifyController, IdentifyNamespace};
use tidewater_wire::nvme::register::Cap;

pub(super) fn identify(rig: &mut Rig, function: u8, cns: u32, nsid: u32) -> (Status, Vec<u8>) {
    let at = rig.alloc(4096);
    let sqe = admin_sqe(admin_opcode::IDENTIFY).with_dword(10, cns).with_nsid(nsid);
    let status = rig.admin(function, &with_prps(&sqe, at, 0)).status;
    (status, rig.bytes(at, 4096).unwrap().to_vec())
}

#[test]
fn a_driver_finds_its_way() {
    let mut rig = Rig::new();
    let cap = Cap::from_bits(rig.s.register(0, offset::CAP, 8));
    assert!(cap.cqr && cap.nvm_command_set && !cap.subsystem_reset && cap.mqes == 63 && cap.doorbell_stride == 0);
    assert_eq!(rig.read(0, offset::VS), 0x0001_0400);
    assert_eq!(rig.read(0, offset::CSTS), 0);
    rig.enable(0);
    let (status, page) = identify(&mut rig, 0, 1, 0);
    assert_eq!(status, Status::SUCCESS);
    let controller = IdentifyController::parse(&page).unwrap();
    assert_eq!((controller.sqes, controller.cqes, controller.mdts), (0x66, 0x44, 5));
    let (status, page) = identify(&mut rig, 0, 0, 1);
    assert_eq!(status, Status::SUCCESS);
    let namespace = IdentifyNamespace::parse(&page).unwrap();
    assert_eq!(namespace.nsze << 9, rig.s.device().capacity());
    rig.make_queue(0, 1, 16);
    rig.make_queue(0, 2, 16);
    let (from, to) = (rig.alloc(8192), rig.alloc(8192));
    rig.memory[from as usize..][..8192].copy_from_slice(&pattern(1, 8192));
    for queue in [1, 2] {
        let write = rig.with_data(&Sqe::write(0, 64, 15), from, 8192);
        assert_eq!(rig.submit(0, queue, &write).status, Status::SUCCESS);
        assert_eq!(rig.submit(0, queue, &Sqe::flush(0)).status, Status::SUCCESS);
        let read = rig.with_data(&Sqe::read(0, 64, 15), to, 8192);
        assert_eq!(rig.submit(0, queue, &read).status, Status::SUCCESS);
        assert_eq!(rig.bytes(to, 8192), rig.bytes(from, 8192));
        rig.memory[to as usize..][..8192].fill(0);
    }
    assert_eq!(rig.syncs, 2);
    assert!(rig.interrupts.contains(&(0, 0)) && rig.interrupts.contains(&(0, 1)) && rig.interrupts.contains(&(0, 2)));
}
