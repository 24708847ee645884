//! Faults before two carriers: links in memory, and TCP.

use super::carrier::{Carrier, Faulty};
use super::*;
use std::os::fd::OwnedFd;

/// A link in memory: what is sent has come.
struct Memory {
    came: VecDeque<Incoming>,
    fd: OwnedFd,
}

impl Memory {
    fn new() -> Memory {
        Memory { came: VecDeque::new(), fd: std::fs::File::open("/dev/null").expect("it is there").into() }
    }
}

impl Carrier for Memory {
    fn send(&mut self, frame: &Frame, log: &[u8]) {
        self.came.push_back(Incoming::Frame(Box::new(frame.clone()), log.to_vec()));
    }

    fn flush(&mut self) {}

    fn poll(&mut self) -> bool {
        false
    }

    fn take(&mut self) -> Option<Incoming> {
        self.came.pop_front()
    }

    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn take_note(&mut self) -> Option<Note> {
        None
    }

    fn node(&self) -> u8 {
        0
    }

    fn address(&self) -> Option<SocketAddr> {
        None
    }

    fn links(&self) -> Vec<PeerLink> {
        Vec::new()
    }

    fn identity(&self) -> Option<IdentityState> {
        None
    }

    fn set_disk(&mut self, _: Disk) {}
}

fn numbered(offset: u64) -> Frame {
    frame(0, 1, Body::Data { pulled: false, lane: 0, offset, len: 1 })
}

/// What comes of a hundred frames, in order.
fn sent(faults: Faults) -> (Vec<u64>, [u64; 3]) {
    let faults = Arc::new(faults);
    let mut carrier = Faulty::new(Memory::new(), Arc::clone(&faults));
    (0..100).for_each(|offset| carrier.send(&numbered(offset), &[7]));
    let (mut came, start) = (Vec::new(), Instant::now());
    let [dropped, repeated, _] = faults.fired();
    while came.len() as u64 != 100 - dropped + repeated {
        assert!(start.elapsed() < PATIENCE, "{came:?}");
        carrier.poll();
        while let Some(Incoming::Frame(frame, log)) = carrier.take() {
            let Body::Data { offset, .. } = frame.body else { panic!("{frame:?}") };
            assert_eq!(log, [7]);
            came.push(offset);
        }
        std::thread::sleep(carrier.deadline().saturating_duration_since(Instant::now()).min(PATIENCE / 1000));
    }
    (came, faults.fired())
}

#[test]
fn faults_are_those_of_the_seed() {
    let faults = |seed| Faults::new(seed, 20, 20, Duration::ZERO);
    let (came, fired) = sent(faults(1));
    assert_eq!((came.clone(), fired), sent(faults(1)));
    assert_ne!(came, sent(faults(2)).0);
    assert!(fired[0] > 5 && fired[1] > 5 && came.is_sorted(), "{fired:?}");
    assert_eq!(sent(Faults::default()), ((0..100).collect(), [0; 3]));
}

#[test]
fn late_frames_overtake_each_other_and_all_come() {
    let (mut came, fired) = sent(Faults::new(1, 0, 0, Duration::from_millis(5)));
    assert!(!came.is_sorted() && fired == [0, 0, 100], "{came:?}");
    came.sort_unstable();
    assert_eq!(came, (0..100).collect::<Vec<_>>());
}

#[test]
fn a_link_that_is_cut_one_way_carries_the_other() {
    let faults = Arc::new(Faults::default());
    faults.cut(1, true);
    let one = bind(&setup(1, &[(0, "127.0.0.1:1".into())]), 1);
    let zero = bind(&setup(0, &[(1, at(&one))]), 2);
    let (mut zero, mut one) = (Faulty::new(zero, Arc::clone(&faults)), one);
    let mut came = (Vec::new(), Vec::new());
    let start = Instant::now();
    while came.0.len() < 3 || came.1.is_empty() {
        assert!(start.elapsed() < PATIENCE, "{came:?}");
        if one.links().all(|link| link.up) && zero.links().iter().all(|link| link.up) {
            let number = came.0.len() as u64;
            faults.cut(1, number < 2);
            zero.send(&numbered(number), &[1]);
            Carrier::send(&mut one, &frame(1, 0, Body::KeepAlive), &[]);
        }
        for carrier in [&mut zero as &mut dyn Carrier, &mut one] {
            carrier.poll();
            carrier.flush();
        }
        while let Some(incoming) = zero.take() {
            came.0.extend(matches!(incoming, Incoming::Frame(..)).then_some(()));
        }
        came.1.extend(take_frame(&mut one));
    }
    let Body::Data { offset, .. } = came.1[0].0.body else { panic!("{came:?}") };
    assert!(offset >= 2 && faults.fired()[0] > 0, "{offset}");
}
