//! The log of the fast side, read with block commands.

use std::time::Instant;
use tidewater_core::profile::Timing;
use tidewater_core::subsystem::namespaces::NAMESPACES_MAX;
use tidewater_driver::vfio_user::NvmeError;
use tidewater_serve::engine::Backing;
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, setup, tiny};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::{ControlPage, IoCommand, PageHeader};

#[test]
fn what_is_destaged_is_a_namespace_that_only_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut profile = tiny(Timing::None);
    for (key, value) in [("fast.size", "32KiB"), ("fast.queue_size", "16KiB"), ("fast.log_size", "1MiB")] {
        profile.set(key, value).expect("a setting");
    }
    let unit = profile.ftl.unit_size as usize;
    // Two functions, of which the first has a log.
    let backing = Backing::File(folder.path().join("drive"));
    let drive = Drive::start(&setup(profile, folder.path(), backing, 2));
    let mut host = Host::attach(&drive, 0);
    host.run_with_data(IoCommand::ReadControlPage.emit(0), ControlPage::SIZE).expect("the control page");
    let mut page = vec![0; ControlPage::SIZE];
    host.buffer.read(0, &mut page);
    let epoch = ControlPage::parse(&page).expect("a control page").epoch;
    // Bytes for four full pages, all of them different.
    let log: Vec<u8> = (0..4 * (unit - PageHeader::SIZE)).map(|at| (at / 7 + at % 251) as u8).collect();
    for (i, bytes) in log.chunks(8 << 10).enumerate() {
        let offset = i as u64 * (8 << 10);
        host.buffer.write(0, bytes);
        let append = IoCommand::Append { lane: 0, epoch, offset, bytes: bytes.len() as u32 };
        host.run_with_data(append.emit(0), bytes.len()).expect("an append");
        let end = offset + bytes.len() as u64;
        host.run(IoCommand::WaitCredit { lane: 0, offset: end, timeout_ns: u64::MAX }.emit(0)).expect("credit");
    }

    host.nsid = NAMESPACES_MAX + 1;
    assert_eq!(host.blocks() as usize * BLOCK, 1 << 20);
    let until = Instant::now() + PATIENCE;
    // A page that has waited long enough goes before it is full: how many there are depends on the machine.
    let mut read = Vec::new();
    for number in 0u64.. {
        let found = loop {
            let found = host.read(number * (unit / BLOCK) as u64, unit);
            if found[..8] == *b"TIDELOG1" {
                break found;
            }
            assert!(Instant::now() < until, "page {number} is not destaged");
        };
        let header = PageHeader::parse(&found).expect("a header");
        assert_eq!((header.page, header.offset as usize), (number, read.len()));
        read.extend_from_slice(header.valid_bytes(&found).expect("a page that is whole"));
        if read.len() == log.len() {
            break;
        }
    }
    assert!(read == log);
    // Parts of pages, and what lies behind the log.
    let whole = host.read(0, 2 * unit);
    assert!(host.read(1, unit) == whole[BLOCK..BLOCK + unit]);
    let beyond = host.try_read((1 << 20) / BLOCK as u64, BLOCK);
    assert!(matches!(beyond, Err(NvmeError::Status(status)) if status.same_code(Status::LBA_OUT_OF_RANGE)));
    let protected = [host.try_write(0, &[1; BLOCK], false), host.run(Sqe::write_zeroes(1, 0, 7, true))];
    for result in protected {
        assert!(
            matches!(result, Err(NvmeError::Status(status)) if status.same_code(Status::NAMESPACE_WRITE_PROTECTED)),
            "{result:?}"
        );
    }
    assert!(host.read(0, 2 * unit) == whole);
    // The other function has no log, and does not read this one.
    let mut other = Host::attach(&drive, 1);
    other.nsid = host.nsid;
    assert!(other.try_read(0, BLOCK).is_err());
    drop((host, other));
    drive.stop();
}
