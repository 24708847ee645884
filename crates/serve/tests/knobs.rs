//! The keys of `[serve]`: each, turned, does what it says, and nothing happens where it is not turned. The keys of the
//! model are turned in `crates/sim/tests/knobs`.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidewater_core::profile::{Access, Doorbells, Interrupts, Profile, Timing};
use tidewater_serve::engine::Backing;
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, blocks_of, setup, tiny};
use tidewater_wire::nvme::Sqe;
use tidewater_wire::nvme::register::{Cap, CmbSz, offset};
use tidewater_wire::pci;
use tidewater_wire::vfio_user::{IrqIndex, region};

fn start(profile: Profile) -> (TempDir, Drive) {
    let folder = tempfile::tempdir().expect("a folder");
    let drive = Drive::start(&setup(profile, folder.path(), Backing::Memory, 1));
    (folder, drive)
}

#[test]
fn timing_paces_commands() {
    let slow = Duration::from_millis(20);
    let fastest = |timing| {
        let mut profile = tiny(timing);
        profile.host.completion_time = tidewater_base::Duration::from_ms(slow.as_millis() as u64);
        let (_folder, drive) = start(profile);
        let mut host = Host::attach(&drive, 0);
        let one = |_| {
            let begin = Instant::now();
            host.read(0, BLOCK);
            begin.elapsed()
        };
        (0..20).map(one).min().expect("some")
    };
    let (model, none) = (fastest(Timing::Model), fastest(Timing::None));
    assert!(model >= slow && none < slow, "{model:?} at the model's pace, and {none:?} without");
}

#[test]
fn access_lets_hosts_map_memory_or_not() {
    for (access, areas) in [(Access::Mapped, 1), (Access::Trapped, 0)] {
        let mut profile = tiny(Timing::None);
        profile.serve.access = access;
        profile.serve.cmb_size = 64 << 10;
        profile.serve.pmr_size = 1 << 20;
        let (_folder, drive) = start(profile);
        let mut client = drive.client(0);
        for bar in [region::BAR2, region::BAR4] {
            let described = client.region_info(bar).expect("a region");
            assert_eq!(described.areas.len(), areas, "{access:?}, region {bar}");
            // Either way, the bytes are the same ones.
            let at = described.areas.first().map_or(0, |area| area.offset);
            let at = if bar == region::BAR2 && areas == 0 { described.info.size - (64 << 10) } else { at };
            client.write(bar, at, &[1, 2, 3, 4, 5, 6, 7, 8]).expect("a store");
            assert_eq!(client.read_u64(bar, at).expect("a load"), 0x0807_0605_0403_0201);
            if let Some(area) = described.areas.first() {
                let mapped = described.map(*area).expect("a mapping");
                assert!(mapped.store_u32(0, 0xAABB_CCDD));
                assert_eq!(client.read_u32(bar, at).expect("a load"), 0xAABB_CCDD);
            }
        }
    }
}

#[test]
fn doorbells_are_mapped_polled_or_trapped() {
    for doorbells in [Doorbells::Mapped, Doorbells::Polled, Doorbells::Trapped] {
        let mut profile = tiny(Timing::None);
        profile.serve.doorbells = doorbells;
        let (_folder, drive) = start(profile);
        let mut host = Host::attach(&drive, 0);
        let areas = host.nvme.socket().region_info(region::BAR0).expect("BAR0").areas;
        assert_eq!(areas.len(), usize::from(doorbells != Doorbells::Trapped), "{doorbells:?}");
        let messages = host.pair.messages();
        host.write(0, &blocks_of(0, 1, 1));
        assert_eq!(host.pair.messages() > messages, doorbells == Doorbells::Trapped);
        // While nothing happens: one goes to sleep again and again, or never.
        let (sleeps, time) = drive.sleeps_and_time();
        let until = Instant::now() + PATIENCE;
        loop {
            let (more, longer) = drive.sleeps_and_time();
            if doorbells == Doorbells::Polled {
                assert_eq!(more, sleeps, "it polls");
                if longer - time > 20_000_000 {
                    break;
                }
            } else if more > sleeps + 5 {
                break;
            }
            assert!(Instant::now() < until, "{doorbells:?}: {} sleeps, {} ns", more - sleeps, longer - time);
            std::thread::yield_now();
        }
    }
}

#[test]
fn interrupts_are_of_the_kind_that_was_asked_for() {
    for kind in [Interrupts::MsiX, Interrupts::Msi] {
        let mut profile = tiny(Timing::None);
        profile.serve.interrupts = kind;
        let (_folder, drive) = start(profile);
        let mut host = Host::attach(&drive, 0);
        let counts =
            [IrqIndex::Msi, IrqIndex::MsiX].map(|index| host.nvme.socket().irq_info(index).expect("a kind").count);
        let capability = |at: u16| host.nvme.socket().read_u32(region::CONFIG, at.into()).expect("a capability") as u8;
        let there = [capability(pci::offset::MSI) == 0x05, capability(pci::offset::MSIX) == 0x11];
        let index = match kind {
            Interrupts::Msi => {
                assert_eq!((counts, there), ([1, 0], [true, false]));
                IrqIndex::Msi
            }
            Interrupts::MsiX => {
                // One for the admin queue, and one for each of two.
                assert!(counts[0] <= 1 && counts[1] >= 3 && there == [false, true], "{counts:?} {there:?}");
                IrqIndex::MsiX
            }
        };
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).expect("an event");
        host.nvme.socket().set_events(index, &[event.as_fd()]).expect("descriptors");
        let mut pair = host.nvme.queue_pair(8, Some(0)).expect("a queue pair");
        let _ = event.read();
        pair.run(&Sqe::flush(1).with_nsid(1), PATIENCE).expect("a flush");
        let until = Instant::now() + PATIENCE;
        while event.read().is_err() {
            assert!(Instant::now() < until, "{kind:?}: no interrupt");
        }
    }
}

#[test]
fn cmb_size_is_what_hosts_find() {
    for bytes in [0u64, 64 << 10, 1 << 20] {
        let mut profile = tiny(Timing::None);
        profile.serve.cmb_size = bytes;
        let (_folder, drive) = start(profile);
        let mut host = Host::attach(&drive, 0);
        assert_eq!(Cap::from_bits(host.nvme.capabilities()).cmb, bytes > 0);
        // The registers are there when the host has asked for them (CMBMSC.CRE).
        assert_eq!(host.register(offset::CMBSZ).expect("CMBSZ"), 0);
        host.set_register(offset::CMBMSC, 1);
        let size = CmbSz::from_bits(host.register(offset::CMBSZ).expect("CMBSZ"));
        assert_eq!(u64::from(size.size) << 12, bytes);
        assert!(host.nvme.socket().region_info(region::BAR2).expect("BAR2").info.size >= bytes);
        host.write(0, &blocks_of(0, 1, 1));
    }
}

#[test]
fn pmr_size_is_what_hosts_find() {
    for bytes in [0u64, 64 << 10, 1 << 20] {
        let mut profile = tiny(Timing::None);
        profile.serve.pmr_size = bytes;
        let (_folder, drive) = start(profile);
        let host = Host::attach(&drive, 0);
        assert_eq!(Cap::from_bits(host.nvme.capabilities()).pmr, bytes > 0);
        assert_eq!(host.register(offset::PMRCAP).expect("PMRCAP") != 0, bytes > 0);
        host.set_register(offset::PMRCTL, 1);
        let mut client = host.nvme.socket();
        assert_eq!(client.region_info(region::BAR4).expect("BAR4").info.size, bytes);
        if bytes > 0 {
            client.write(region::BAR4, bytes - 8, &[9; 8]).expect("a store at its end");
            assert_eq!(client.read_u64(region::BAR4, bytes - 8).expect("a load"), 0x0909_0909_0909_0909);
        }
    }
}

#[test]
fn host_memory_is_asked_for_as_the_profile_says() {
    for (preferred, least) in [(0u64, 0u64), (1 << 20, 0), (8 << 20, 64 << 10)] {
        let mut profile = tiny(Timing::None);
        profile.serve.hmb_preferred = preferred;
        profile.serve.hmb_min = least;
        let (_folder, drive) = start(profile);
        let mut host = Host::attach(&drive, 0);
        let page = host.nvme.buffer(4096).expect("memory");
        let data = host.nvme.identify(1, 0, &page).expect("a controller");
        let dword = |at: usize| u64::from(u32::from_le_bytes(data[at..at + 4].try_into().expect("4 bytes")));
        assert_eq!((dword(272) << 12, dword(276) << 12), (preferred, least));
    }
}
