//! Clients that lend memory which only messages reach, and answer late or never: they keep no other waiting.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tidewater_core::profile::Timing;
use tidewater_serve::engine::Backing;
use tidewater_wire::nvme::register::offset as register;
use tidewater_wire::vfio_user::{DmaAccess, DmaMap, Header, RegionAccess, Version, command, region};

use crate::vfio_user::support::Raw;
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, setup, tiny};

/// Reads in a measurement.
const READS: u32 = 2_000;
/// How long one may take.
const READ_MAX: Duration = Duration::from_secs(1);
/// How often it is measured at most.
const TRIES: u32 = 5;
/// How late an answer is: within the second after which the device gives a client up.
const LATE: Duration = Duration::from_millis(850);

/// What a client does when it is asked for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hostile {
    /// It answers, late.
    Late,
    /// It never answers, and connects again when it is disconnected.
    Silent,
}

impl Hostile {
    /// Enables a controller whose queues lie in memory without a descriptor, and rings for its whole admin queue.
    /// Counts how often it is asked for memory, until the connection ends.
    fn stay(self, drive: &Drive, stop: &AtomicBool, asked: &AtomicU32) {
        let Ok(stream) = UnixStream::connect(&drive.ready.vfio_user[0]) else { return };
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let mut raw = Raw(stream);
        // Questions that come before the last reply.
        let mut early = VecDeque::new();
        // A reply that does not come: the last connection is not over yet.
        let mut tell = |command: u16, payload: &[u8]| -> Option<Vec<u8>> {
            let header = Header::command(1, command, payload.len());
            let message = [header.to_bytes().as_slice(), payload].concat();
            raw.try_send(&message, &[]).ok()?;
            loop {
                match raw.reply()? {
                    (header, payload) if header.is_reply() => return Some(payload),
                    question => early.push_back(question),
                }
            }
        };
        let write = |region: u32, offset: u32, bytes: &[u8]| {
            let access = RegionAccess { offset: offset.into(), region, count: bytes.len() as u32 };
            [access.to_bytes().as_slice(), bytes].concat()
        };
        let (flags, address) = (DmaMap::READABLE | DmaMap::WRITABLE, 1u64 << 32);
        let map = DmaMap { argsz: DmaMap::SIZE as u32, flags, offset: 0, address, size: 1 << 20 };
        let begun = tell(command::VERSION, &Version { major: 0, minor: 1, data: b"" }.to_bytes()).is_some()
            && tell(command::DMA_MAP, &map.to_bytes()).is_some()
            // Until the last client's transfers have ended, its reset is under way, and RDY is 1: a host that enables
            // the controller before takes that for its own, and rings a doorbell that is not heard (section 7.6.1).
            && becomes_ready(&mut tell, false)
            && [
                (region::CONFIG, 4, vec![6, 0]),
                (region::BAR0, register::AQA, (31u32 << 16 | 31).to_le_bytes().to_vec()),
                (region::BAR0, register::ASQ, address.to_le_bytes().to_vec()),
                (region::BAR0, register::ACQ, (address + 0x10000).to_le_bytes().to_vec()),
                (region::BAR0, register::CC, (4u32 << 20 | 6 << 16 | 1).to_le_bytes().to_vec()),
            ]
            .iter()
            .all(|(region, offset, bytes)| tell(command::REGION_WRITE, &write(*region, *offset, bytes)).is_some())
            && becomes_ready(&mut tell, true)
            && tell(command::REGION_WRITE, &write(region::BAR0, 0x1000, &[31, 0, 0, 0])).is_some();
        if !begun {
            return;
        }
        while let Some((header, payload)) = early.pop_front().or_else(|| raw.reply()) {
            assert!(header.is_command(), "{header:?}");
            asked.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if self == Hostile::Late {
                std::thread::sleep(LATE);
                let reading = header.command == command::DMA_READ;
                let (access, _) = DmaAccess::split(&payload, !reading).expect("an access");
                // All entries are zeroes: a command that is refused, and completes by another message.
                let data = vec![0; if reading { access.count as usize } else { 0 }];
                let reply = header.reply(DmaAccess::SIZE + data.len()).to_bytes();
                let _ = raw.try_send(&[reply.as_slice(), &access.to_bytes(), &data].concat(), &[]);
            }
        }
    }
}

/// Waits until the controller says that it is ready (CSTS.RDY), or that it is not. False: the connection has ended.
fn becomes_ready(tell: &mut impl FnMut(u16, &[u8]) -> Option<Vec<u8>>, is_ready: bool) -> bool {
    let status = RegionAccess { offset: register::CSTS.into(), region: region::BAR0, count: 4 };
    loop {
        let Some(reply) = tell(command::REGION_READ, &status.to_bytes()) else { return false };
        if reply.get(RegionAccess::SIZE).is_some_and(|byte| (byte & 1 == 1) == is_ready) {
            return true;
        }
    }
}

/// How long so many reads take, and the longest of them.
fn measure(host: &mut Host) -> (Duration, Duration) {
    let (begin, mut longest) = (Instant::now(), Duration::ZERO);
    for _ in 0..READS {
        let start = Instant::now();
        host.read(0, BLOCK);
        longest = longest.max(start.elapsed());
        assert!(begin.elapsed() <= PATIENCE, "{READS} reads take longer than {PATIENCE:?}");
    }
    (begin.elapsed(), longest)
}

/// A client beside keeps a third of its share of the device, which is a half.
fn keeps_its_share(hostile: Hostile) {
    let folder = tempfile::tempdir().expect("a folder");
    // Entries that are being read have their places: more than one queue can take.
    let mut profile = tiny(Timing::None);
    profile.host.outstanding_max = 256;
    let drive = Drive::start(&setup(profile, folder.path(), Backing::Memory, 2));
    let mut host = Host::attach(&drive, 1);
    let (alone, _) = measure(&mut host);
    let (stop, asked) = (AtomicBool::new(false), AtomicU32::new(0));
    let most = 6 * alone + Duration::from_secs(5);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                hostile.stay(&drive, &stop, &asked);
            }
        });
        let until = Instant::now() + PATIENCE;
        while asked.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < until, "the device has not asked for memory");
            std::thread::yield_now();
        }
        // A machine that stands still a while lets everybody wait: of some measurements, one must show the share.
        let shows = (0..TRIES).any(|_| {
            // As long as several answers take.
            let (begin, first) = (Instant::now(), asked.load(Ordering::Relaxed));
            let mut rounds = 0;
            let mut longest = Duration::ZERO;
            while asked.load(Ordering::Relaxed) < first + 4 {
                longest = longest.max(measure(&mut host).1);
                rounds += 1;
                assert!(begin.elapsed() < PATIENCE, "it is not asked any more");
            }
            let share = begin.elapsed() / rounds;
            println!("{hostile:?}: {READS} reads take {alone:?} alone, {share:?} beside it, the longest {longest:?}");
            share <= most && longest <= READ_MAX
        });
        stop.store(true, Ordering::Relaxed);
        assert!(shows, "a client beside loses its share, or waits for more than {READ_MAX:?}");
    });
}

#[test]
fn a_client_that_answers_late_keeps_no_other_waiting() {
    keeps_its_share(Hostile::Late);
}

#[test]
fn a_client_that_never_answers_and_comes_again_keeps_no_other_waiting() {
    keeps_its_share(Hostile::Silent);
}
