//! Interrupts reach the descriptors that the client has given, and nothing waits for it.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use tidewater_driver::vfio_user::Socket;
use tidewater_wire::vfio_user::{IrqAction, IrqData, IrqIndex, SetIrqs};

use crate::vfio_user::support::{Bench, VECTORS, eventually};

fn events(count: u32) -> Vec<EventFd> {
    (0..count).map(|_| EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK).expect("an event")).collect()
}

fn fds(events: &[EventFd]) -> Vec<BorrowedFd<'_>> {
    events.iter().map(|event| event.as_fd()).collect()
}

/// How often each was raised since the last look.
fn counts(events: &[EventFd]) -> Vec<u64> {
    let count = |event: &EventFd| match event.read() {
        Ok(count) => count,
        Err(Errno::EAGAIN) => 0,
        Err(errno) => panic!("{errno}"),
    };
    events.iter().map(count).collect()
}

fn msix(start: u32, count: u32, data: IrqData<'_>, action: IrqAction) -> SetIrqs<'_> {
    SetIrqs { index: IrqIndex::MsiX, start, count, data, action }
}

#[test]
fn vectors_are_raised_masked_and_taken_away() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let events = events(4);
    bench.interrupts.raise(0);
    client.set_events(IrqIndex::MsiX, &fds(&events)).expect("descriptors");
    assert_eq!(counts(&events), [0; 4], "an interrupt without a descriptor is lost");
    for vector in [0, 2, 2, 3, 4, VECTORS as u16, u16::MAX] {
        bench.interrupts.raise(vector);
    }
    assert_eq!(counts(&events), [1, 0, 2, 1]);

    client.set_irqs(&msix(1, 2, IrqData::None, IrqAction::Mask), &[]).expect("a mask");
    (0..4).for_each(|vector| bench.interrupts.raise(vector));
    bench.interrupts.raise(2);
    assert_eq!(counts(&events), [1, 0, 0, 1]);
    assert_eq!((bench.interrupts.pending(0), bench.interrupts.pending(1)), (0b0110, 0));
    assert_eq!(bench.interrupts.pending(usize::MAX), 0);
    client.set_irqs(&msix(0, 3, IrqData::Bool(&[1, 0, 7]), IrqAction::Unmask), &[]).expect("an unmask");
    assert_eq!(counts(&events), [0, 0, 1, 0], "once, however often it was raised");
    assert_eq!(bench.interrupts.pending(0), 0b0010);
    client.set_irqs(&msix(0, 0, IrqData::None, IrqAction::Unmask), &[]).expect("an unmask of all");
    assert_eq!(counts(&events), [0, 1, 0, 0]);
    client.set_irqs(&msix(0, 0, IrqData::None, IrqAction::Mask), &[]).expect("a mask of all");
    bench.interrupts.raise(3);
    assert_eq!(counts(&events), [0; 4]);
    client.set_irqs(&msix(0, 0, IrqData::None, IrqAction::Unmask), &[]).expect("an unmask of all");
    assert_eq!(counts(&events), [0, 0, 0, 1]);

    client.set_irqs(&msix(0, 4, IrqData::Bool(&[0, 1, 0, 1]), IrqAction::Trigger), &[]).expect("a trigger");
    client.set_irqs(&msix(3, 1, IrqData::None, IrqAction::Trigger), &[]).expect("a trigger");
    assert_eq!(counts(&events), [0, 1, 0, 2]);

    client.set_irqs(&msix(1, 1, IrqData::Event, IrqAction::Trigger), &[]).expect("one is taken away");
    (0..4).for_each(|vector| bench.interrupts.raise(vector));
    assert_eq!(counts(&events), [1, 0, 1, 1]);
    client.set_irqs(&msix(0, 0, IrqData::None, IrqAction::Trigger), &[]).expect("all are taken away");
    (0..4).for_each(|vector| bench.interrupts.raise(vector));
    assert_eq!(counts(&events), [0; 4]);
}

#[test]
fn a_change_that_is_refused_changes_nothing() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let (old, new) = (events(2), events(1));
    client.set_events(IrqIndex::MsiX, &fds(&old)).expect("descriptors");
    let file = std::fs::File::open("/dev/null").expect("a device");
    client.set_events(IrqIndex::MsiX, &[new[0].as_fd(), file.as_fd()]).expect_err("the second is no event");
    (0..2).for_each(|vector| bench.interrupts.raise(vector));
    assert_eq!((counts(&old), counts(&new)), (vec![1, 1], vec![0]));
}

#[test]
fn msi_serves_where_msix_is_not_enabled() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let (msi, msix) = (events(1), events(2));
    client.set_events(IrqIndex::Msi, &fds(&msi)).expect("descriptors");
    for vector in [0, 1, 8] {
        bench.interrupts.raise(vector);
    }
    assert_eq!(counts(&msi), [3], "one vector was granted: it stands for all");
    client.set_events(IrqIndex::MsiX, &fds(&msix)).expect("descriptors");
    bench.interrupts.raise(1);
    assert_eq!((counts(&msi), counts(&msix)), (vec![0], vec![0, 1]));
}

#[test]
fn a_counter_that_is_full_keeps_no_sender_waiting() {
    let bench = Bench::new();
    let mut client = Socket::connect(&bench.path).expect("a client");
    let event = EventFd::from_value_and_flags(0, EfdFlags::empty()).expect("an event that blocks");
    client.set_events(IrqIndex::MsiX, &[event.as_fd()]).expect("a descriptor");
    event.write(u64::MAX - 1).expect("it is full");
    bench.interrupts.raise(0);
    assert_eq!(event.read(), Ok(u64::MAX - 1));
}

#[test]
fn interrupts_go_with_the_client() {
    let bench = Bench::new();
    let events = events(1);
    let mut client = Socket::connect(&bench.path).expect("a client");
    client.set_events(IrqIndex::MsiX, &fds(&events)).expect("a descriptor");
    client.set_irqs(&msix(0, 1, IrqData::None, IrqAction::Mask), &[]).expect("a mask");
    bench.interrupts.raise(0);
    assert_eq!(bench.interrupts.pending(0), 1);
    drop(client);
    eventually("the loss of interrupts", || bench.interrupts.pending(0) == 0);
    let mut client = Socket::connect(&bench.path).expect("another client");
    client.set_events(IrqIndex::MsiX, &fds(&events)).expect("a descriptor");
    assert_eq!(counts(&events), [0]);
    bench.interrupts.raise(0);
    assert_eq!(counts(&events), [1], "not masked any more");
}
