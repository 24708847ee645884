//! The fast side's log over the ends of a drive: stopped, killed, and without power. What was acknowledged is there,
//! byte for byte, and the log goes on behind it.

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};
use tidewater_base::Rng;
use tidewater_base::checksum::crc32c;
use tidewater_core::fast::bar;
use tidewater_core::profile::{Profile, Timing};
use tidewater_driver::vfio_user::{Nvme, NvmeError};
use tidewater_driver::vfio_user::{Socket, SocketError};
use tidewater_serve::control::{GroupMode, Request};
use tidewater_serve::engine::{Backing, Setup};
use tidewater_serve::peers::PeersSetup;
use tidewater_serve::ring::RingSetup;
use tidewater_testkit::PATIENCE;
use tidewater_testkit::profile::with;
use tidewater_testkit::served::{BLOCK, Drive, Host, serve_in_child, setup, spawn_server, tiny};
use tidewater_wire::nvme::register::offset;
use tidewater_wire::nvme::{Cqe, Sqe, Status};
use tidewater_wire::vendor::status as vendor_status;
use tidewater_wire::vendor::{
    AdminCommand, ControlPage, DestagePriority, FastSetup, IoCommand, OnWrap, ReadLogHeader, TransportStatus, TrimTo,
};
use tidewater_wire::vfio_user::region;

const LANES: usize = 2;
/// The opcode.
const SANITIZE: u32 = 0x84;

/// The tiny drive with a log of two lanes, whose ring survives a loss of power or not.
fn tiny_log(timing: Timing, survives: bool) -> Profile {
    let settings = [
        "memory.sram.size=96KiB",
        if survives { "memory.sram.survives=by-capacitors" } else { "memory.sram.survives=nothing" },
        "fast.size=16KiB",
        "fast.queue_size=4KiB",
        "fast.log_size=512KiB",
        "fast.lanes=2",
        "fast.partial_after=1ms",
        "fast.on_wrap=overwrite-oldest",
        "serve.pmr_size=32KiB",
    ];
    with(tiny(timing), &settings)
}

fn byte(lane: usize, offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (lane as u8) << 7 ^ offset as u8
}

fn bytes(lane: usize, range: std::ops::Range<u64>) -> Vec<u8> {
    range.map(|offset| byte(lane, offset)).collect()
}

/// What a host knows of the log.
#[derive(Clone, Debug, Default)]
struct Known {
    /// For each lane the highest credit that was seen, and the end of what was stored.
    credit: [u64; LANES],
    stored: [u64; LANES],
}

/// The control page, as words of 8 bytes.
fn control_page(client: &mut Socket) -> Result<ControlPage, SocketError> {
    let mut page = vec![0; ControlPage::SIZE];
    for at in (0..page.len()).step_by(8) {
        client.read(region::BAR2, at as u64, &mut page[at..at + 8])?;
    }
    Ok(ControlPage::parse(&page).expect("a control page"))
}

fn credit(client: &mut Socket, lane: usize) -> Result<u64, SocketError> {
    client.read_u64(region::BAR2, ControlPage::lane_offset(lane as u8) as u64)
}

/// Stores pieces into both lanes until the client's device has gone, or `rounds` have been.
fn store(client: &mut Socket, known: &mut Known, rng: &mut Rng, rounds: u64) -> Result<(), SocketError> {
    let ring = 8 << 10;
    for _ in 0..rounds {
        let lane = rng.below(LANES as u64) as usize;
        let from = known.stored[lane].max(known.credit[lane]);
        let len = 1 + rng.below(200);
        // No further than the intake queue goes beyond the credit, nor over the end of the window.
        let end = (from + len).min(known.credit[lane] + (4 << 10)).min((from / ring + 1) * ring);
        if end > from {
            let address = bar::RINGS + lane as u64 * ring + from % ring;
            known.stored[lane] = end;
            client.write(region::BAR2, address, &bytes(lane, from..end))?;
        }
        if rng.below(3) == 0 || end == from {
            let now = credit(client, lane)?;
            assert!(now >= known.credit[lane] && now <= known.stored[lane], "{now} {known:?}");
            known.credit[lane] = now;
        }
    }
    Ok(())
}

/// Reads all of the log that is there, and goes on where it ends. Returns how many bytes were read.
fn check(host: &mut Host, known: &mut Known, whole: bool) -> u64 {
    let page = control_page(&mut host.nvme.socket()).expect("a control page");
    let mut total = 0;
    for lane in 0..LANES {
        let record = page.lane[lane];
        let end = record.credit;
        let what = format!("lane {lane} ends at {end}, of which {} are on flash: {known:?}", record.ring_head);
        assert!(end <= known.stored[lane], "{what}");
        assert!(!whole || end >= known.credit[lane], "{what}");
        let mut first = record.lba_head;
        let mut at = first;
        while at < end {
            let want = (end - at).min(8 << 10) as u32;
            let command = IoCommand::ReadLog { lane: lane as u8, offset: at, bytes: want, wait_ns: 1_000_000_000 };
            let len = ReadLogHeader::SIZE + want as usize;
            match host.run_with_data(command.emit(9), len) {
                Err(NvmeError::Status(status)) if status.same_code(vendor_status::OFFSET_RELEASED) => {
                    // What was in the ring goes on to flash meanwhile, and a full log releases its oldest pages for
                    // that.
                    let page = control_page(&mut host.nvme.socket()).expect("a control page");
                    let head = page.lane[lane].lba_head;
                    assert!(at < head && head <= end, "{at} was released, and the log begins at {head} ({what})");
                    let pages = page.lba_tail - page.lba_head;
                    assert!(pages > page.lba_count / 2, "only {pages} pages are left ({what})");
                    (first, at) = (head, head);
                    continue;
                }
                done => done.unwrap_or_else(|error| panic!("{at}: {error} ({what})")),
            };
            let mut data = vec![0; len];
            host.buffer.read(0, &mut data);
            let header = ReadLogHeader::parse(&data[..ReadLogHeader::SIZE]).expect("a header");
            assert!(header.offset == at && header.bytes > 0 && header.bytes <= want, "{header:?}");
            let found = &data[ReadLogHeader::SIZE..][..header.bytes as usize];
            let expected = bytes(lane, at..at + u64::from(header.bytes));
            let wrong = found.iter().zip(&expected).position(|(one, other)| one != other);
            assert!(wrong.is_none(), "byte {} of lane {lane} is another ({what})", at + wrong.unwrap_or(0) as u64);
            at += u64::from(header.bytes);
        }
        total += end - first;
        (known.credit[lane], known.stored[lane]) = (end, end);
    }
    total
}

fn host_of(client: Socket) -> Host {
    Host::over(Nvme::start(client, 8 << 20).expect("a controller"), false)
}

fn served(profile: Profile, folder: &Path) -> Setup {
    setup(profile, folder, Backing::File(folder.join("drive")), 1)
}

/// A drive that is stopped and started again goes on with its log.
fn stops(profile: Profile, seed: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let served = served(profile, folder.path());
    let (mut known, mut rng, mut read) = (Known::default(), Rng::new(seed, b"stops"), 0);
    for _ in 0..6 {
        let drive = Drive::start(&served);
        let mut host = host_of(drive.client(0));
        read += check(&mut host, &mut known, true);
        store(&mut host.nvme.socket(), &mut known, &mut rng, 400).expect("it is served");
        for lane in 0..LANES {
            known.credit[lane] = credit(&mut host.nvme.socket(), lane).expect("credit");
        }
        drop(host);
        drive.stop();
    }
    assert!(read > 20_000, "{read}");
}

#[test]
fn what_a_stored_log_keeps_of_its_setup_is_said() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let backing = || Backing::File(folder.path().join("drive"));
    let drive = Drive::start(&setup(tiny_log(Timing::None, true), folder.path(), backing(), 1));
    assert!(!drive.notes.iter().any(|note| note.contains("keeps")), "{:?}", drive.notes);
    drive.stop();
    let mut other = tiny_log(Timing::None, true);
    other.set("fast.partial_after", "7ms").expect("a time");
    let drive = Drive::start(&setup(other, folder.path(), backing(), 1));
    let keeps: Vec<_> = drive.notes.iter().filter(|note| note.contains("keeps")).collect();
    assert!(matches!(&keeps[..], [one] if one.contains("fast.partial_after: function 0 keeps 1ms")), "{keeps:?}");
    drive.stop();
}

/// A ring is made for the lanes that its function has when it is opened, and a host may set others up.
#[test]
fn a_primary_whose_ring_has_fewer_lanes_than_its_function_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut profile = tiny_log(Timing::None, true);
    profile.set("fast.lanes", "4").expect("a number");
    let mut setup = setup(profile, folder.path(), Backing::File(folder.path().join("drive")), 1);
    setup.peers = Some(PeersSetup {
        node: 0,
        cluster: "alone".into(),
        listen: None,
        peers: vec![(1, "127.0.0.1:1".into())],
        identity: None,
        insecure: false,
        holds_log: false,
        catch_up_rate: None,
        faults: None,
    });
    let set_up = |drive: &Drive, lanes: u16| {
        let mut host = host_of(drive.client(0));
        let page = control_page(&mut host.nvme.socket()).expect("a control page");
        let new = FastSetup {
            lanes,
            priority: DestagePriority::Neutral,
            on_wrap: OnWrap::OverwriteOldest,
            ring_bytes: 4 << 10,
            queue_bytes: 4 << 10,
            lba_first: page.lba_first,
            lba_count: page.lba_count,
            partial_page_ns: 1_000_000,
        };
        let data = host.nvme.buffer(FastSetup::SIZE as u64).expect("memory");
        data.write(0, &new.to_bytes());
        let command = AdminCommand::FastSetup { function: 0 }.emit(0);
        host.nvme.admin(data.attach(command, FastSetup::SIZE as u64)).expect("its log is empty");
        let page = control_page(&mut host.nvme.socket()).expect("a control page");
        assert_eq!(page.lanes, lanes);
    };
    let drive = Drive::start(&setup);
    set_up(&drive, 1);
    drive.stop();
    setup.ring = Some(RingSetup { path: folder.path().join("ring"), persistent: false, copy: None });
    let drive = Drive::start(&setup);
    set_up(&drive, 4);
    let form = Request::GroupForm { function: 0, members: vec![0], mode: GroupMode::Eager, k: 0, primary: true };
    drive.ask(&form);
    let status = drive.ask(&Request::Status);
    assert_eq!(status["peers"]["groups"][0]["role"], "primary");
    assert_eq!(status["peers"]["groups"][0]["tail"].as_array().map(Vec::len), Some(4));
    drive.stop();
}

#[test]
fn a_log_goes_on_where_it_was_after_a_stop() {
    stops(tiny_log(Timing::None, true), 1);
    stops(tiny_log(Timing::Model, true), 2);
}

/// Without power inside: a ring that survives is destaged on stored energy; what was only in one that does not is gone.
fn cuts(profile: Profile, survives: bool, seed: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let served = served(profile, folder.path());
    let (mut known, mut rng, mut read) = (Known::default(), Rng::new(seed, b"cuts"), 0);
    let mut drive = Drive::start(&served);
    let mut host = host_of(drive.client(0));
    for cut in 0..8 {
        store(&mut host.nvme.socket(), &mut known, &mut rng, 300).expect("it is served");
        for lane in 0..LANES {
            known.credit[lane] = credit(&mut host.nvme.socket(), lane).expect("credit");
        }
        drive.ask(&Request::PowerCut { off_ms: 3 });
        if cut % 4 == 3 {
            // Without power it is stopped, and started again.
            drop(host);
            drive.stop();
            drive = Drive::start(&served);
        } else {
            drive.wait_for("serving");
            drop(host);
        }
        host = host_of(drive.client(0));
        read += check(&mut host, &mut known, survives);
    }
    drop(host);
    drive.stop();
    assert!(read > 20_000, "{read}");
}

#[test]
fn a_log_goes_on_where_it_was_after_power_cuts() {
    cuts(tiny_log(Timing::None, true), true, 3);
    cuts(tiny_log(Timing::Model, true), true, 4);
}

#[test]
fn of_a_ring_that_does_not_survive_only_pages_come_back() {
    cuts(tiny_log(Timing::Model, false), false, 5);
}

/// The timing, after how long a page that is not full goes to flash, and the folder that a child serves from.
const JOB: &str = "TIDEWATER_TEST_LOG";

fn child(job: &str) {
    let mut parts = job.splitn(3, ':');
    let mut part = || parts.next().expect("a timing, a duration and a folder");
    let mut profile = tiny_log(if part() == "model" { Timing::Model } else { Timing::None }, true);
    profile.set("fast.partial_after", part()).expect("a duration");
    serve_in_child(served(profile, Path::new(part())));
}

/// With a short `partial_after` the ring is on flash before the log is read, with a long one it goes there meanwhile.
fn kills(test: &str, timing: Timing, partial_after: &str, seed: u64, lives: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut profile = tiny_log(timing, true);
    profile.set("fast.partial_after", partial_after).expect("a duration");
    let served = served(profile, folder.path());
    let name = if timing == Timing::Model { "model" } else { "none" };
    let job = format!("{name}:{partial_after}:{}", folder.path().display());
    let (mut known, mut rng, mut read) = (Known::default(), Rng::new(seed, b"kills"), 0);
    for life in 0..lives {
        let mut process = spawn_server(test, &[(JOB, &job)]);
        let mut host = host_of(Socket::connect(&served.vfio_user[0]).expect("a client"));
        read += check(&mut host, &mut known, true);
        if life % 5 == 4 {
            // What the host has no use for any more.
            let to = TrimTo::Stream { lane: 0, offset: known.credit[0] / 2 };
            host.nvme.admin(AdminCommand::TrimLog { function: 0, to }.emit(0)).expect("a trim");
        }
        let after = Duration::from_micros(rng.below(25_000));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(after);
                process.kill().expect("it is killed");
            });
            let begin = Instant::now();
            while store(&mut host.nvme.socket(), &mut known, &mut rng, 50).is_ok() {
                assert!(begin.elapsed() < PATIENCE, "it does not die");
            }
        });
        let status = process.wait().expect("it has ended");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "life {life} ended by itself");
    }
    let drive = Drive::start(&served);
    read += check(&mut host_of(drive.client(0)), &mut known, true);
    drive.stop();
    println!("{timing:?}: {lives} processes killed, {read} bytes of log read, {known:?}");
    assert!(read > 1_000 * lives);
}

#[test]
fn what_was_credited_outlives_the_process() {
    match std::env::var(JOB) {
        Ok(job) => child(&job),
        Err(_) => {
            let test = "served::log::what_was_credited_outlives_the_process";
            kills(test, Timing::None, "1ms", 6, 12);
            kills(test, Timing::Model, "1ms", 7, 12);
            kills(test, Timing::None, "30ms", 8, 30);
        }
    }
}

#[test]
#[ignore = "long: make torture"]
fn torture_what_was_credited_outlives_the_process() {
    match std::env::var(JOB) {
        Ok(job) => child(&job),
        Err(_) => {
            let test = "served::log::torture_what_was_credited_outlives_the_process";
            kills(test, Timing::None, "1ms", 100, 500);
            kills(test, Timing::Model, "1ms", 101, 500);
            kills(test, Timing::None, "30ms", 102, 200);
            kills(test, Timing::Model, "100ms", 103, 200);
        }
    }
}

/// Serves until it is killed, from a disk that is full once a connection comes.
fn child_on_a_disk_that_fills(job: &str) {
    // Writes fail then, and no signal comes: threads inherit the mask.
    SigSet::from(Signal::SIGXFSZ).thread_block().expect("a mask");
    let folder = Path::new(job.splitn(3, ':').last().expect("a folder")).to_owned();
    let listener = UnixListener::bind(folder.join("full")).expect("a socket");
    std::thread::spawn(move || {
        let (asked, _) = listener.accept().expect("a connection");
        // What the fast side has in memory lies at the end.
        let limit = std::fs::metadata(folder.join("drive")).expect("an image").len() / 2;
        setrlimit(Resource::RLIMIT_FSIZE, limit, limit).expect("a limit");
        drop(asked);
    });
    child(job);
}

/// Stores all that is behind a stream's end in its last 8 bytes, at most to the end of the window, and waits for the
/// credit. Returns how that ended.
fn store_and_wait(host: &mut Host, known: &mut Known) -> Cqe {
    let (ring, from) = (8 << 10, known.stored[0]);
    let end = (from + 8).min((from / ring + 1) * ring);
    let wait = IoCommand::WaitCredit { lane: 0, offset: end, timeout_ns: u64::MAX };
    assert!(host.pair.submit(&wait.emit(50).with_nsid(1)));
    host.pair.ring().expect("a doorbell");
    known.stored[0] = end;
    host.nvme.socket().write(region::BAR2, bar::RINGS + from % ring, &bytes(0, from..end)).expect("a store");
    let begin = Instant::now();
    loop {
        if let Some(cqe) = host.pair.poll() {
            return cqe;
        }
        assert!(begin.elapsed() < PATIENCE, "the wait does not end");
    }
}

#[test]
fn what_a_full_disk_does_not_take_is_not_credited() {
    let test = "served::log::what_a_full_disk_does_not_take_is_not_credited";
    if let Ok(job) = std::env::var(JOB) {
        return child_on_a_disk_that_fills(&job);
    }
    for (name, timing, seed) in [("none", Timing::None, 9), ("model", Timing::Model, 10)] {
        let folder = tempfile::tempdir().expect("a folder");
        let served = served(tiny_log(timing, true), folder.path());
        let (mut known, mut rng) = (Known::default(), Rng::new(seed, b"full"));
        let mut process = spawn_server(test, &[(JOB, &format!("{name}:1ms:{}", folder.path().display()))]);
        let mut host = host_of(Socket::connect(&served.vfio_user[0]).expect("a client"));
        store(&mut host.nvme.socket(), &mut known, &mut rng, 100).expect("it is served");
        assert!(store_and_wait(&mut host, &mut known).status.is_success());
        let mut asked = UnixStream::connect(folder.path().join("full")).expect("it listens");
        assert_eq!(asked.read(&mut [0]).expect("it hangs up"), 0);
        let answer = store_and_wait(&mut host, &mut known);
        assert!(answer.status.same_code(Status::WRITE_FAULT), "{answer:?}");
        store(&mut host.nvme.socket(), &mut known, &mut rng, 300).expect("it is served");
        let status = control_page(&mut host.nvme.socket()).expect("a control page").status;
        assert!(status.has(TransportStatus::DESTAGE_FAILED), "{status}");
        process.kill().expect("it is killed");
        process.wait().expect("it has ended");
        // With room again, all that was credited is there.
        let drive = Drive::start(&served);
        let read = check(&mut host_of(drive.client(0)), &mut known, true);
        drive.stop();
        assert!(read > 500, "{read}");
    }
}

/// A store into the persistent memory region, and whether a barrier follows.
fn put(client: &mut Socket, at: u64, bytes: &[u8], barrier: bool) -> Result<(), SocketError> {
    client.write(region::BAR4, at, bytes)?;
    if barrier {
        let status = client.read_u32(region::BAR0, offset::PMRSTS.into())?;
        assert_eq!(status & 0x1eff, 0, "no error, ready, in normal operation: {status:#x}");
    }
    Ok(())
}

fn region_of(client: &mut Socket) -> Vec<u8> {
    let mut all = vec![0; 32 << 10];
    for at in (0..all.len()).step_by(4096) {
        client.read(region::BAR4, at as u64, &mut all[at..at + 4096]).expect("the region");
    }
    all
}

fn enable_region(client: &mut Socket) {
    client.write(region::BAR0, offset::PMRCTL.into(), &1u32.to_le_bytes()).expect("a register");
}

#[test]
fn a_persistent_memory_region_outlives_stops_and_what_a_barrier_covers_power_cuts() {
    let folder = tempfile::tempdir().expect("a folder");
    let served = served(tiny_log(Timing::None, true), folder.path());
    let drive = Drive::start(&served);
    let mut client = drive.client(0);
    assert!(region_of(&mut client).iter().all(|&byte| byte == 0));
    enable_region(&mut client);
    put(&mut client, 100, b"stays", true).expect("a store");
    put(&mut client, 102, b"GOES", false).expect("a store");
    put(&mut client, 20_000, b"goes too", false).expect("a store");
    let mut expected = vec![0; 32 << 10];
    expected[100..105].copy_from_slice(b"stays");
    drive.ask(&Request::PowerCut { off_ms: 1 });
    drive.wait_for("serving");
    drop(client);
    let mut client = drive.client(0);
    assert!(region_of(&mut client) == expected, "what no barrier covered went with the power");
    // A stop keeps everything.
    put(&mut client, 20_000, b"not a barrier", false).expect("a store");
    expected[20_000..20_013].copy_from_slice(b"not a barrier");
    drop(client);
    drive.stop();
    let drive = Drive::start(&served);
    let mut client = drive.client(0);
    assert!(region_of(&mut client) == expected);
    drop(client);
    drive.stop();
    // A larger one begins with what the smaller held; functions have one each.
    let mut larger = served.clone();
    larger.profile.set("serve.pmr_size", "64KiB").expect("it may be set");
    larger.vfio_user.push(folder.path().join("another"));
    let drive = Drive::start(&larger);
    let mut client = drive.client(0);
    assert!(region_of(&mut client) == expected);
    let mut other = drive.client(1);
    assert!(region_of(&mut other).iter().all(|&byte| byte == 0));
    drop((client, other));
    drive.stop();
}

#[test]
fn a_barrier_covers_pages_that_end_in_a_checksum_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut profile = tiny_log(Timing::None, true);
    // The device does not see stores into memory that is mapped.
    profile.set("serve.access", "mapped").expect("it may be set");
    let drive = Drive::start(&served(profile, folder.path()));
    let mut client = drive.client(0);
    enable_region(&mut client);
    // As databases lay pages out. The CRC-32C of all bytes that end in their CRC-32C is the same.
    let page = |value: u8| {
        let content = vec![value; 4092];
        [content.as_slice(), &crc32c(&content).to_le_bytes()].concat()
    };
    for value in 1..4 {
        put(&mut client, 4096, &page(value), true).expect("a store");
    }
    drive.ask(&Request::PowerCut { off_ms: 1 });
    drive.wait_for("serving");
    drop(client);
    let mut client = drive.client(0);
    assert!(region_of(&mut client)[4096..8192] == page(3), "what the last barrier covered is gone");
    drop(client);
    drive.stop();
}

#[test]
fn a_sanitize_leaves_nothing_in_a_persistent_memory_region() {
    for access in ["trapped", "mapped"] {
        let folder = tempfile::tempdir().expect("a folder");
        let profile = with(tiny(Timing::None), &[("serve.pmr_size", "32KiB"), ("serve.access", access)]);
        let drive = Drive::start(&served(profile, folder.path()));
        let mut host = Host::attach(&drive, 0);
        enable_region(&mut host.nvme.socket());
        put(&mut host.nvme.socket(), 5_000, b"confidential text", true).expect("a store");
        let sanitize = Sqe::default().with_dword(0, SANITIZE).with_dword(10, 2);
        let refused = host.nvme.admin(sanitize);
        assert!(
            matches!(refused, Err(NvmeError::Status(status)) if status.same_code(Status::SANITIZE_PROHIBITED_PMR)),
            "{refused:?}"
        );
        host.set_register(offset::PMRCTL, 0);
        host.nvme.admin(sanitize).expect("it begins");
        let until = Instant::now() + PATIENCE;
        // Reads are refused for as long as it runs.
        while host.try_read(0, BLOCK).is_err() {
            assert!(Instant::now() < until, "it does not end");
        }
        enable_region(&mut host.nvme.socket());
        assert!(region_of(&mut host.nvme.socket()).iter().all(|&byte| byte == 0), "{access}");
        drive.ask(&Request::PowerCut { off_ms: 1 });
        drive.wait_for("serving");
        assert!(region_of(&mut host.nvme.socket()).iter().all(|&byte| byte == 0), "{access}, behind a loss of power");
        drop(host);
        drive.stop();
    }
}

#[test]
fn what_a_barrier_covers_outlives_the_process() {
    let test = "served::log::what_a_barrier_covers_outlives_the_process";
    if let Ok(job) = std::env::var(JOB) {
        return child(&job);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let served = served(tiny_log(Timing::None, true), folder.path());
    let job = format!("none:1ms:{}", folder.path().display());
    // For each word what it may hold: the value that a barrier covered, and all since.
    let mut may: Vec<Vec<u64>> = vec![vec![0]; 4096];
    let mut value = 0u64;
    let mut barriers = 0;
    for life in 0..10 {
        let mut rng = Rng::new(life, b"barriers");
        let mut process = spawn_server(test, &[(JOB, &job)]);
        let mut client = Socket::connect(&served.vfio_user[0]).expect("a client");
        for (word, bytes) in region_of(&mut client).as_chunks::<8>().0.iter().enumerate() {
            let found = u64::from_le_bytes(*bytes);
            assert!(may[word].contains(&found), "life {life}, word {word}: {found}, may be {:?}", may[word]);
            may[word] = vec![found];
        }
        enable_region(&mut client);
        // It is killed a drawn time after a drawn number of stores.
        let (mut left, after) = (10 + rng.below(60), Duration::from_micros(rng.below(2_000)));
        let (kill, killed) = std::sync::mpsc::channel();
        let doomed = &mut process;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                killed.recv().expect("so many stores");
                std::thread::sleep(after);
                doomed.kill().expect("it is killed");
            });
            loop {
                value += 1;
                left = left.saturating_sub(1);
                if left == 0 {
                    // A second word has no effect.
                    let _ = kill.send(());
                }
                let word = rng.below(4096);
                may[word as usize].push(value);
                let barrier = rng.below(10) == 0;
                if put(&mut client, word * 8, &value.to_le_bytes(), barrier).is_err() {
                    break;
                }
                if barrier {
                    barriers += 1;
                    may.iter_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
                }
            }
            // One that died before so many stores fails the test.
            drop(kill);
        });
        process.wait().expect("it has ended");
    }
    println!("{value} stores, {barriers} barriers, 10 processes killed");
    assert!(barriers > 10);
}
